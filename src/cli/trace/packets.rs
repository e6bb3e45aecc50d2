//! Submissions of a recording as text, one packet per line.

use doorbell::device::amd::Chip;
use doorbell::device::nv;
use doorbell::hcq::packet::nv::qmd::{self, Launch, Qmd};
use doorbell::hcq::packet::nv::{Entry, Writes};
use doorbell::hcq::packet::{aql, pm4, sdma};
use doorbell_ioctl::abi::{kfd, nvrm, same_call};
use doorbell_ioctl::replay::{Memory, Submission, each_submission};
use doorbell_ioctl::trace::{Event, What};

/// The gfx target version (110000 is gfx1100) of the first GPU in a recorded topology.
pub(crate) fn target_version(events: &[Event]) -> Option<u32> {
    let version = |text: &str| text.lines().find_map(|l| l.strip_prefix("gfx_target_version ")?.trim().parse().ok());
    events.iter().find_map(|e| match &e.what {
        What::ReadFile { path, result: Ok(bytes) } if path.ends_with("/properties") => {
            version(std::str::from_utf8(bytes).ok()?).filter(|v| *v != 0)
        }
        _ => None,
    })
}

/// The chip of an NVIDIA recording, by the classes that its driver listed.
pub(crate) fn nvidia_chip(events: &[Event]) -> Option<&'static nv::Chip> {
    events.iter().find_map(|e| {
        let What::Ioctl(call) = &e.what else { return None };
        let is_list = nvrm::GPU_GET_CLASSLIST_V2.cmd.to_le_bytes();
        // The command field of CONTROL's struct.
        let cmd = call.before.get(8..12).filter(|_| same_call(call.request, nvrm::CONTROL.desc.request))?;
        let answer = call.blobs_after.first()?.bytes.get(..size_of::<nvrm::ClassList>())?;
        let list: nvrm::ClassList = bytemuck::pod_read_unaligned(answer);
        let classes = list.class_list.get(..list.num_classes as usize).filter(|_| cmd == is_list)?;
        nv::Chip::of_classes(classes)
    })
}

/// How packets of a recording are read: the gfx target version of AMD's queues, the form of NVIDIA's QMDs.
#[derive(Clone, Copy, Default)]
struct Form {
    version: u32,
    qmd: Option<qmd::Version>,
}

/// QMDs of one doorbell that are shown at most.
const MOST_QMDS: usize = 4096;

/// An NVIDIA channel's new entries, each with the methods of its push buffer and the QMDs that these start.
fn channel_lines(bytes: &[u8], form: Form, memory: &Memory) -> Vec<String> {
    let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
    let (mut rest, mut lines, mut left) = (&words[..], Vec::new(), MOST_QMDS);
    while let [low, high, after @ ..] = rest {
        rest = after;
        match Entry::parse([*low, *high]) {
            Ok(Entry::Fetch { va, len_dwords, .. }) => {
                let (push, after) = rest.split_at((len_dwords as usize).min(rest.len()));
                rest = after;
                lines.push(format!("push buffer at {:#x}, {len_dwords} dwords", va.0));
                for write in Writes::of(push) {
                    let Ok(w) = write.inspect_err(|e| lines.push(e.to_string())) else { continue };
                    lines.push(format!("  {}", w.describe()));
                    if let (Some(at), Some(version)) = (w.launched_qmd(), form.qmd) {
                        let found = qmd_lines((at.0, version), memory, left);
                        left -= found.len();
                        lines.extend(found);
                    }
                }
            }
            Ok(entry) => lines.push(format!("{entry:?}")),
            Err(e) => lines.push(e.to_string()),
        }
    }
    lines
}

/// A QMD in memory and those that it starts after it, field by field.
fn qmd_lines((first, version): (u64, qmd::Version), memory: &Memory, most: usize) -> Vec<String> {
    let (mut next, mut lines) = (Some(first), Vec::new());
    while let (Some(at), true) = (next, lines.len() < most) {
        let mut words = vec![0u32; version.dwords()];
        memory.read(at, bytemuck::cast_slice_mut(&mut words));
        let Ok(qmd) = Qmd::from_words(version, &words) else { break };
        let is_recorded = words.iter().any(|w| *w != 0);
        let text = if is_recorded { qmd.describe() } else { "QMD: its memory was not recorded".into() };
        lines.push(format!("    at {at:#x} {text}"));
        next = Launch::parse(&qmd).ok().and_then(|l| l.dependent).map(|d| d.qmd.0).filter(|n| *n != at);
    }
    lines
}

/// The packets of each doorbell as text, in the order of the doorbells that have some.
pub(crate) fn of_doorbells(events: &[Event]) -> Vec<Vec<String>> {
    let form = Form { version: target_version(events).unwrap_or(0), qmd: nvidia_chip(events).map(|c| c.qmd) };
    let mut all = Vec::new();
    each_submission(events, |s, memory| {
        let named = |line: String| format!("queue {} {line}", s.queue);
        all.push(lines(&s, form, memory).into_iter().map(named).collect());
    });
    all
}

/// The queue type is a class for NVIDIA's queues, and a small number for KFD's.
const FIRST_CLASS: u32 = 0x1000;

/// One line per packet.
fn lines(submission: &Submission, form: Form, memory: &Memory) -> Vec<String> {
    if submission.queue_type >= FIRST_CLASS {
        return channel_lines(&submission.bytes, form, memory);
    }
    let words: Vec<u32> =
        submission.bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let Some(chip) = Chip::of_version(form.version) else {
        return vec![format!("{} words for an unknown chip", words.len())];
    };
    let found = match submission.queue_type {
        kfd::QUEUE_TYPE_COMPUTE => pm4::describe(chip.gfx, &words),
        kfd::QUEUE_TYPE_COMPUTE_AQL => aql::describe(&words),
        _ => sdma::describe(chip.sdma, &words),
    };
    found.into_iter().map(|(_, line)| line).collect()
}
