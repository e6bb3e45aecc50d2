//! Work of the launch that nobody has begun: UGETNEXTWORKID takes a cluster that has not started away from the grid.
//!
//! The answer is 16 bytes in shared memory, whose mbarrier counts them. PTX says nothing about its bits; they are those
//! that ptxas's code of `clusterlaunchcontrol.query_cancel` reads: x of the cluster's first CTA, y and z in 16 bits
//! each, and one bit that there was such a cluster.

use super::fault::R;
use super::lower::Run;
use super::mbarrier;
use super::memory::{aligned, cluster_cta};
use super::operand::Fields;
use super::tma::targets;

/// Bytes of an answer.
const LEN_BYTES: usize = 16;

pub(super) fn lower(f: Fields) -> R<Option<Run>> {
    if f.0.form().mnemonic != "UGETNEXTWORKID" {
        return Ok(None);
    }
    let (a, to_all) = (f.uniform("a")?, f.text("cast") == ".BROADCAST");
    Ok(Some(Box::new(move |c| {
        let (to, barrier) = (c.uniform(a), c.uniform_behind(a, 1));
        aligned("shared", u64::from(to), LEN_BYTES)?;
        let answer = answer(c.machine.begin().map(|index| c.machine.first_cta(index)));
        let mask = to_all.then(|| u32::MAX >> (32 - c.ctas.len()));
        for target in targets(to, mask) {
            cluster_cta(c, target)?.deliver(target as u32 & 0xff_ffff, &answer)?;
        }
        for target in targets(barrier, mask) {
            mbarrier::deliver(c, target, LEN_BYTES as u64)?;
        }
        Ok(())
    })))
}

/// The bytes for a cluster's first CTA; zeros where there is no cluster.
fn answer(first: Option<[u32; 3]>) -> [u8; LEN_BYTES] {
    let mut bytes = [0; LEN_BYTES];
    if let Some([x, y, z]) = first {
        for (at, word) in [(0, x), (4, y | z << 16), (8, 1)] {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}
