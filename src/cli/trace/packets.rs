//! Submissions of a recording as text, one packet a line.

use doorbell::device::amd::Chip;
use doorbell::hcq::packet::{aql, pm4, sdma};
use doorbell_ioctl::abi::kfd;
use doorbell_ioctl::replay::Submission;
use doorbell_ioctl::trace::{Event, What};

/// The gfx target version (110000 is gfx1100) of the first GPU in a recorded topology.
pub fn target_version(events: &[Event]) -> Option<u32> {
    let version = |text: &str| text.lines().find_map(|l| l.strip_prefix("gfx_target_version ")?.trim().parse().ok());
    events.iter().find_map(|e| match &e.what {
        What::ReadFile { path, result: Ok(bytes) } if path.ends_with("/properties") => {
            version(std::str::from_utf8(bytes).ok()?).filter(|v| *v != 0)
        }
        _ => None,
    })
}

/// One line a packet, as the chip of that version reads them.
pub fn lines(submission: &Submission, version: u32) -> Vec<String> {
    let words: Vec<u32> =
        submission.bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let Some(chip) = Chip::of_version(version) else {
        return vec![format!("{} words for an unknown chip", words.len())];
    };
    let found = match submission.queue_type {
        kfd::QUEUE_TYPE_COMPUTE => pm4::describe(chip.gfx, &words),
        kfd::QUEUE_TYPE_COMPUTE_AQL => aql::describe(&words),
        _ => sdma::describe(chip.sdma, &words),
    };
    found.into_iter().map(|(_, line)| line).collect()
}
