//! Asynchronous copies to shared memory, which land when they are waited for and not before, and `ldmatrix`.

use super::{Block, Memory, Opd, Step};
use std::collections::VecDeque;

type Res<T> = Result<T, String>;

/// A copy in flight: thread, shared address, bytes.
type Copy = (usize, u64, Vec<u8>);

/// The copies of a block's threads, which commit and wait together.
#[derive(Default)]
pub struct Copies {
    open: Vec<Copy>,
    groups: VecDeque<Vec<Copy>>,
}

impl Copies {
    pub fn done(&self) -> bool {
        self.open.is_empty() && self.groups.iter().all(Vec::is_empty)
    }
}

/// `cp.async`, its commit and its wait.
pub fn cp(b: &mut Block, s: &Step, mem: &mut Memory) -> Res<()> {
    if !s.inst.has("async") {
        return Err("not known to this interpreter".into());
    }
    if s.inst.has("commit_group") {
        let open = std::mem::take(&mut b.copies.open);
        b.copies.groups.push_back(open);
        return Ok(());
    }
    if s.inst.has("wait_group") {
        let left = b.get(0, &s.operands[0])? as usize;
        while b.copies.groups.len() > left {
            for (thread, at, bytes) in b.copies.groups.pop_front().unwrap_or_default() {
                mem.write_shared(at, &bytes, thread)?;
            }
        }
        return Ok(());
    }
    for t in 0..b.threads {
        if !b.enabled(s, t)? {
            continue;
        }
        let (to, from) = (b.address(t, &s.operands[0])?, b.address(t, &s.operands[1])?);
        let len = b.get(t, &s.operands[2])? as usize;
        let read = s.operands.get(3).map_or(Ok(len as u64), |o| b.get(t, o))? as usize;
        let whole = matches!(len, 4 | 8 | 16) && (s.inst.has("ca") || s.inst.has("cg") && len == 16);
        if !whole || read > len || !to.is_multiple_of(len as u64) || !from.is_multiple_of(len as u64) && read > 0 {
            return Err(format!("thread {t} copies {read} of {len} bytes from {from:#x} to {to:#x}"));
        }
        let mut bytes = vec![0; len];
        if read == len {
            bytes.copy_from_slice(mem.global(from, len)?);
            mem.counts.global_read += len as u64;
        } else if read > 0 {
            return Err("a part of a piece".into());
        }
        mem.touched.push((t, to, len));
        b.copies.open.push((t, to, bytes));
    }
    Ok(())
}

/// `ldmatrix`: lane 8m + r has the address of row r of matrix m. PTX ISA 9.7.14.5.15.
pub fn ldmatrix(b: &mut Block, s: &Step, mem: &mut Memory) -> Res<()> {
    let Opd::Vector(to) = &s.operands[0] else { return Err("a list of registers".into()) };
    if s.guard.is_some() || !b.threads.is_multiple_of(32) || !s.inst.has(&format!("x{}", to.len())) {
        return Err("not known to this interpreter".into());
    }
    for warp in (0..b.threads).step_by(32) {
        for (m, to) in to.iter().enumerate() {
            let mut rows = vec![];
            for r in 0..8 {
                let at = b.address(warp + 8 * m + r, &s.operands[1])?;
                if !at.is_multiple_of(16) {
                    return Err(format!("a row at {at:#x}"));
                }
                mem.touched.push((warp + 8 * m + r, at, 16));
                // The whole warp reads: nothing that one of its threads has just written is ordered either.
                rows.push(mem.read_shared(at, 16, usize::MAX)?);
            }
            for lane in 0..32 {
                let half = |row: usize, column: usize| {
                    u64::from(u16::from_le_bytes([rows[row][2 * column], rows[row][2 * column + 1]]))
                };
                let (i, j) = (lane / 4, 2 * (lane % 4));
                let word = match s.inst.has("trans") {
                    false => half(i, j) | half(i, j + 1) << 16,
                    true => half(j, i) | half(j + 1, i) << 16,
                };
                b.set(warp + lane, to, word)?;
            }
        }
    }
    Ok(())
}

/// What a kernel costs, counted over all warps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Instructions, those of them that multiply matrices, and bytes read from buffers.
    pub instructions: u64,
    pub mma: u64,
    pub global_read: u64,
    /// Passes over the banks that accesses to shared memory take, and those they would take without conflicts.
    pub passes: u64,
    pub fewest: u64,
}

impl Counts {
    /// Adds an instruction's accesses to shared memory: a pass serves 128 bytes in different banks, a piece of 16 bytes
    /// is served with seven others.
    pub fn shared(&mut self, touched: &[(usize, u64, usize)]) {
        let Some(len) = touched.first().map(|t| t.2) else { return };
        let together = (128 / len.max(4)).min(32);
        for part in touched.chunk_by(|a, b| a.0 / together == b.0 / together) {
            let mut words: Vec<u64> =
                part.iter().flat_map(|(_, at, len)| (0..len.div_ceil(4) as u64).map(move |k| at / 4 + k)).collect();
            words.sort_unstable();
            words.dedup();
            let mut banks = [0u64; 32];
            words.iter().for_each(|w| banks[(w % 32) as usize] += 1);
            self.passes += banks.into_iter().max().unwrap_or(0);
            self.fewest += (words.len() as u64).div_ceil(32);
        }
    }
}
