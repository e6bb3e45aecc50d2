//! `cp.async.bulk.tensor` and the mbarriers that count its bytes. A tile arrives when it is waited for: from its issue
//! on, the memory it will overwrite is not there. So a buffer that is filled again too early is seen as much as one
//! that is read too early. Written from the PTX ISA's text (mbarrier: phases, expect-tx and complete-tx; tensor copies:
//! tiles, swizzles, elements outside the tensor).

use super::{Block, Memory, Opd, Step};
use doorbell::codegen::Program;
use std::collections::HashMap;

type Res<T> = Result<T, String>;

/// A matrix among the parameters: where its buffer begins, bytes of an element, and what is known of it.
#[derive(Clone, Copy)]
pub struct Matrix {
    pub start: u64,
    element: usize,
    tensor: doorbell::uop::Tensor2,
}

/// The matrices of a program, by the addresses of their parameters.
pub fn matrices(p: &Program, buffers: &[u64]) -> HashMap<u64, Matrix> {
    let first = p.params.len() + p.vars.len();
    let one = |(n, t): (usize, &doorbell::codegen::TensorInfo)| {
        let (start, element) = (buffers[t.param], p.params[t.param].dtype.scalar.size_bytes());
        (super::PARAM + 8 * (first + n) as u64, Matrix { start, element, tensor: t.tensor })
    };
    p.tensors.iter().enumerate().map(one).collect()
}

/// An mbarrier: arrivals of a phase and those still to come, bytes still to come, phases that are over.
struct Barrier {
    count: u64,
    pending: u64,
    bytes: i64,
    phases: u64,
    /// Tiles in flight: where their rows go, and what they are.
    tiles: Vec<(u64, Vec<u8>)>,
}

impl Barrier {
    fn end_phase(&mut self) {
        if self.pending == 0 && self.bytes == 0 {
            (self.pending, self.phases) = (self.count, self.phases + 1);
        }
    }
}

/// A block's.
#[derive(Default)]
pub struct Barriers(HashMap<u64, Barrier>);

impl Barriers {
    pub fn done(&self) -> bool {
        self.0.values().all(|b| b.tiles.is_empty() && b.bytes == 0)
    }

    fn at(&mut self, at: u64) -> Res<&mut Barrier> {
        self.0.get_mut(&at).ok_or(format!("no barrier at {at:#x}"))
    }
}

/// `mbarrier`.
pub fn mbarrier(b: &mut Block, s: &Step, mem: &mut Memory) -> Res<()> {
    for t in 0..b.threads {
        if !b.enabled(s, t)? {
            continue;
        }
        if s.inst.has("init") {
            let (at, count) = (b.address(t, &s.operands[0])?, b.get(t, &s.operands[1])?);
            mem.place(at, 8)?;
            let new = Barrier { count, pending: count, bytes: 0, phases: 0, tiles: vec![] };
            if b.barriers.0.insert(at, new).is_some() {
                return Err(format!("the barrier at {at:#x} is there already"));
            }
        } else if s.inst.has("arrive") && s.inst.has("expect_tx") {
            let (at, bytes) = (b.address(t, &s.operands[1])?, b.get(t, &s.operands[2])?);
            let barrier = b.barriers.at(at)?;
            barrier.pending = barrier.pending.checked_sub(1).ok_or("more arrive than are expected")?;
            barrier.bytes += bytes.cast_signed();
            barrier.end_phase();
        } else if s.inst.has("try_wait") && s.inst.has("parity") {
            let (at, parity) = (b.address(t, &s.operands[1])?, b.get(t, &s.operands[2])?);
            let barrier = b.barriers.at(at)?;
            for (to, bytes) in std::mem::take(&mut barrier.tiles) {
                mem.land(to, &bytes)?;
                barrier.bytes -= bytes.len() as i64;
            }
            barrier.end_phase();
            if parity > 1 || barrier.phases % 2 == parity {
                return Err(format!("thread {t} waits for parity {parity} in phase {} for ever", barrier.phases));
            }
            b.set(t, &s.operands[0], 1)?;
        } else {
            return Err("not known to this interpreter".into());
        }
    }
    Ok(())
}

/// A tile of two dimensions to shared memory, its pieces of 16 bytes swapped within 128.
pub fn copy(b: &mut Block, s: &Step, mem: &mut Memory) -> Res<()> {
    let [to, Opd::Tensor(map, at), bar] = s.operands.as_slice() else { return Err("other operands than known".into()) };
    for t in 0..b.threads {
        if !b.enabled(s, t)? {
            continue;
        }
        let map = b.reg(t, *map)?;
        let m = *mem.matrices.get(&map).ok_or(format!("no matrix at {map:#x}"))?;
        let (to, bar) = (b.address(t, to)?, b.address(t, bar)?);
        let [column, row] = [&at[0], &at[1]].map(|o| b.get(t, o));
        let (column, row) = (i64::from(column? as i32), i64::from(row? as i32));
        let pitch = m.tensor.pitch as u64 * m.element as u64;
        let aligned = m.start.is_multiple_of(16) && pitch.is_multiple_of(16) && to.is_multiple_of(1024);
        if !aligned || usize::from(m.tensor.shape[0]) * m.element != 128 {
            return Err(format!("thread {t} copies a TMA tile from {:#x} by {pitch} to {to:#x}", m.start));
        }
        for r in 0..i64::from(m.tensor.shape[1]) {
            for piece in 0..8 {
                let place = to + 128 * r as u64 + 16 * (piece ^ r as u64 & 7);
                let mut bytes = vec![];
                for e in 0..16 / m.element as i64 {
                    let x = column + piece as i64 * 16 / m.element as i64 + e;
                    let y = row + r;
                    let inside =
                        (0..m.tensor.sizes[0].into()).contains(&x) && (0..m.tensor.sizes[1].into()).contains(&y);
                    let from = m.start.wrapping_add_signed(y * pitch as i64 + x * m.element as i64);
                    bytes.extend(if inside { mem.global(from, m.element)?.to_vec() } else { vec![0; m.element] });
                }
                mem.lose(place, 16)?;
                mem.counts.global_read += 16;
                b.barriers.at(bar)?.tiles.push((place, bytes));
            }
        }
    }
    Ok(())
}
