//! A simdgroup: registers, masks, and the loop over instructions.
//!
//! Each instruction works on the lanes of `mask`. Constructs push a frame; leaving one by `break`, `continue` or
//! `return` takes lanes out of the frames in between, so that they are not switched on again.

use super::alu::{self, Lanes, put};
use super::{GroupMemory, Machine, cross};
use crate::code::{Code, Inst};
use crate::fault::{FaultKind, Run, Trouble, trouble};
use crate::types::Scalar;
use std::sync::atomic::Ordering;

/// A construct that lanes are in.
#[derive(Clone, Copy, Default)]
struct Frame {
    /// Lanes that go on after it.
    outer: u32,
    /// Of an `if`: lanes of the other branch. Of a loop: lanes that wait for the next round. Of a `switch`: all lanes.
    other: u32,
}

pub(crate) enum Stop {
    End,
    /// At the barrier of this instruction; whether it orders threadgroup memory.
    Barrier {
        at: u32,
        orders: bool,
    },
}

pub(crate) struct Simd {
    pub regs: Vec<Lanes>,
    pub pc: u32,
    pub mask: u32,
    /// Lanes that exist.
    pub live: u32,
    /// Number in the group.
    pub index: u32,
    frames: Vec<Frame>,
    /// Lanes in which each noted scalar has a value.
    defined: Vec<u32>,
    /// Words of thread memory, a row each, and the lanes that have written each byte.
    pub words: Vec<Lanes>,
    pub shadow: Vec<[u32; 4]>,
    pub steps: u64,
    pub executed: u64,
}

impl Simd {
    pub(crate) fn new(code: &Code) -> Self {
        let words = code.thread_bytes.div_ceil(4) as usize;
        let mut regs = vec![[0; 32]; code.rows as usize + 1];
        for (row, number) in regs.iter_mut().zip(&code.numbers) {
            *row = [*number; 32];
        }
        Self {
            regs,
            pc: 0,
            mask: 0,
            live: 0,
            index: 0,
            frames: Vec::new(),
            defined: vec![0; code.slots as usize],
            words: vec![[0xaaaa_aaaa; 32]; words],
            shadow: vec![[0; 4]; words],
            steps: 0,
            executed: 0,
        }
    }

    /// Back to the first instruction.
    pub(crate) fn start(&mut self, live: u32, index: u32) {
        (self.pc, self.mask, self.live, self.index, self.steps) = (0, live, live, index, 0);
        self.frames.clear();
    }

    /// Lanes leave the frames above one of them, and go on nowhere for now.
    fn leave(&mut self, frames: u32) -> usize {
        let mask = self.mask;
        let target = self.frames.len() - 1 - frames as usize;
        // `other` has none of them: lanes that run are neither in the other branch nor waiting.
        for frame in &mut self.frames[target + 1..] {
            frame.outer &= !mask;
        }
        self.mask = 0;
        target
    }

    /// The lanes of the mask in which a row is not zero.
    fn holds(&self, c: u32) -> u32 {
        let row = &self.regs[c as usize];
        let mut bits = 0;
        for (lane, value) in row.iter().enumerate() {
            bits |= u32::from(*value != 0) << lane;
        }
        bits & self.mask
    }

    fn pop(&mut self) -> Frame {
        self.frames.pop().unwrap_or_default()
    }

    fn last(&mut self) -> &mut Frame {
        if self.frames.is_empty() {
            self.frames.push(Frame::default());
        }
        let n = self.frames.len() - 1;
        &mut self.frames[n]
    }

    /// To the end or the next barrier.
    pub(crate) fn run(&mut self, m: &Machine, group: &mut GroupMemory) -> Run<Stop> {
        let insts = &m.code.insts[..];
        loop {
            let inst = insts[self.pc as usize];
            self.pc += 1;
            self.executed += 1;
            let mask = self.mask;
            match inst {
                Inst::Const { d, v } => put(&mut self.regs[d as usize], &[v; 32], mask),
                Inst::Mov { d, a, n } => {
                    for k in 0..n {
                        let row = self.regs[(a + k) as usize];
                        put(&mut self.regs[(d + k) as usize], &row, mask);
                    }
                }
                Inst::Splat { d, a, n, rows } => {
                    for k in 0..n * rows {
                        let row = self.regs[(a + k % rows) as usize];
                        put(&mut self.regs[(d + k) as usize], &row, mask);
                    }
                }
                Inst::Un { op, d, a, n } => alu::un(&mut self.regs, op, (d, a, n), mask),
                Inst::Bin { op, d, a, b, n } => alu::bin(&mut self.regs, op, (d, a, b, n), mask),
                Inst::Fma { d, a, b, c, n } => alu::fma(&mut self.regs, (d, a, b, c, n), mask),
                Inst::Select { d, c, a, b, n, step } => alu::select(&mut self.regs, (d, c, a, b), (n, step), mask),
                Inst::PtrAdd { d, p, i, scale, index } => self.pointer_add((d, p, i), scale, index),
                Inst::PtrOffset { d, p, by } => self.pointer_add((d, p, p), by, Scalar::Bool),
                Inst::PtrDiff { d, a, b, size } => self.pointer_diff(d, a, b, size),
                Inst::Load { d, p, off, kind, n, align } => self.load(m, group, (d, p, off), kind, (n, align))?,
                Inst::Store { p, s, off, kind, n, align } => self.store(m, group, (s, p, off), kind, (n, align))?,
                Inst::LoadThread { d, at, kind, n } => self.load_thread(d, at, kind, n)?,
                Inst::StoreThread { s, at, kind, n } => self.store_thread(s, at, kind, n),
                Inst::ClearThread { at, bytes, zero } => self.clear_thread(at, bytes, zero),
                Inst::Copy { to, from, bytes, align } => self.copy(m, group, (to, from), (bytes, align))?,
                Inst::Atomic { op, d, p, v, wide } => self.atomic(m, group, op, (d, p, v), wide)?,
                Inst::AtomicCas { d, p, expected, v } => self.compare_exchange(m, group, (d, p, expected, v))?,
                Inst::Barrier { orders } => {
                    if mask == self.live {
                        return Ok(Stop::Barrier { at: self.pc - 1, orders });
                    }
                    let missing = (self.live & !mask).trailing_zeros();
                    return trouble(FaultKind::DivergentBarrier, missing as usize);
                }
                Inst::Reduce { op, d, a, n, scalar } => cross::reduce(&mut self.regs, op, (d, a, n), scalar, mask),
                Inst::Shuffle { op, d, a, lane, n } => cross::shuffle(&mut self.regs, op, (d, a, lane, n), mask),
                Inst::Vote { op, d, c } => cross::vote(&mut self.regs, op, (d, c), mask),
                Inst::MatrixFill { d, a } => {
                    for k in 0..2 {
                        let row = self.regs[a as usize];
                        put(&mut self.regs[d as usize + k], &row, mask);
                    }
                }
                Inst::MatrixLoad { d, p, args, kind } => self.matrix_memory(m, group, (d, p, args), kind, false)?,
                Inst::MatrixStore { s, p, args, kind } => self.matrix_memory(m, group, (s, p, args), kind, true)?,
                Inst::MatrixMul { d, a, b, c, round } => {
                    self.need_all_lanes()?;
                    if mask != 0 {
                        cross::multiply(&mut self.regs, (d, a, b, c), round);
                    }
                }
                Inst::Undefine { slot, n } => {
                    self.defined[slot as usize..(slot + n) as usize].iter_mut().for_each(|s| *s &= !mask);
                }
                Inst::Define { slot, n } => {
                    self.defined[slot as usize..(slot + n) as usize].iter_mut().for_each(|s| *s |= mask);
                }
                Inst::NeedDefined { slot, n } => self.need_defined(m, slot, n)?,
                Inst::End => return Ok(Stop::End),
                flow => self.flow(m, flow)?,
            }
        }
    }

    /// Matrices are spread over all lanes.
    pub(crate) fn need_all_lanes(&self) -> Run<()> {
        if self.mask == u32::MAX || self.mask == 0 {
            return Ok(());
        }
        trouble(FaultKind::PartialSimdgroup, self.mask.trailing_zeros() as usize)
    }

    fn need_defined(&self, m: &Machine, slot: u32, n: u32) -> Run<()> {
        let all = self.defined[slot as usize..(slot + n) as usize].iter().fold(u32::MAX, |a, b| a & b);
        let missing = self.mask & !all;
        if missing == 0 {
            return Ok(());
        }
        let name = m.code.names.get(slot as usize).map_or("", String::as_str);
        let what = format!("variable '{name}'").into();
        trouble(FaultKind::Uninitialised { what }, missing.trailing_zeros() as usize)
    }

    /// Constructs and jumps.
    #[inline]
    fn flow(&mut self, m: &Machine, inst: Inst) -> Run<()> {
        let mask = self.mask;
        match inst {
            Inst::If { c, els } => {
                let yes = self.holds(c);
                self.frames.push(Frame { outer: mask, other: mask & !yes });
                self.mask = yes;
                if yes == 0 {
                    self.pc = els;
                }
            }
            Inst::Else { end } => {
                self.mask = self.last().other;
                if self.mask == 0 {
                    self.pc = end;
                }
            }
            Inst::EndIf | Inst::LoopEnd | Inst::FnEnd | Inst::SwitchEnd => self.mask = self.pop().outer,
            Inst::LoopBegin | Inst::FnBegin => self.frames.push(Frame { outer: mask, other: 0 }),
            Inst::SwitchBegin => {
                self.frames.push(Frame { outer: mask, other: mask });
                self.mask = 0;
            }
            Inst::CaseIn { c } => {
                // A lane has one label, so none that has left comes back.
                self.mask = self.last().other;
                self.mask = mask | self.holds(c);
            }
            Inst::LoopTest { c, exit } => {
                self.mask = self.holds(c);
                if self.mask == 0 {
                    // Lanes that wait for the next round have come back before the test.
                    self.pc = exit;
                }
            }
            Inst::LoopNext { exit } => {
                let frame = self.last();
                let waiting = std::mem::take(&mut frame.other);
                self.mask = mask | waiting;
                if self.mask == 0 {
                    self.pc = exit;
                }
            }
            Inst::Back { to } => {
                self.steps += u64::from(self.pc - to);
                self.pc = to;
                if self.steps > m.max_steps {
                    return Err(Trouble { kind: FaultKind::Steps, lane: Some(mask.trailing_zeros() & 31) });
                }
                if m.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                    return Err(Trouble { kind: FaultKind::Stopped, lane: None });
                }
            }
            Inst::Break { frames } | Inst::Return { frames } => {
                self.leave(frames);
            }
            Inst::Continue { frames } => {
                let target = self.leave(frames);
                self.frames[target].other |= mask;
            }
            Inst::Skip { to } if mask == 0 => self.pc = to,
            _ => {}
        }
        Ok(())
    }

    /// `d = p + i * scale`; without an index (`Bool`) `d = p + scale`.
    fn pointer_add(&mut self, (d, p, i): (u32, u32, u32), scale: i64, index: Scalar) {
        let (low, high) = (self.regs[p as usize], self.regs[p as usize + 1]);
        let by = self.regs[i as usize];
        let by: [i64; 32] = match index {
            Scalar::Bool => [1; 32],
            Scalar::UInt => by.map(i64::from),
            Scalar::Long | Scalar::ULong => {
                let top = self.regs[i as usize + 1];
                std::array::from_fn(|l| (u64::from(by[l]) | u64::from(top[l]) << 32) as i64)
            }
            _ => by.map(|v| i64::from(v as i32)),
        };
        let (mut a, mut b) = ([0; 32], [0; 32]);
        for l in 0..32 {
            let at = u64::from(low[l]) | u64::from(high[l]) << 32;
            let made = at.wrapping_add(by[l].wrapping_mul(scale) as u64);
            (a[l], b[l]) = (made as u32, (made >> 32) as u32);
        }
        put(&mut self.regs[d as usize], &a, self.mask);
        put(&mut self.regs[d as usize + 1], &b, self.mask);
    }

    fn pointer_diff(&mut self, d: u32, a: u32, b: u32, size: u32) {
        let (mut low, mut high) = ([0; 32], [0; 32]);
        let (x, y) = (self.pointers(a, 0), self.pointers(b, 0));
        for l in 0..32 {
            let made = (x[l].wrapping_sub(y[l]) as i64 / i64::from(size.max(1))) as u64;
            (low[l], high[l]) = (made as u32, (made >> 32) as u32);
        }
        put(&mut self.regs[d as usize], &low, self.mask);
        put(&mut self.regs[d as usize + 1], &high, self.mask);
    }

    /// The pointers of all lanes, moved by a constant.
    #[inline]
    pub(crate) fn pointers(&self, p: u32, off: i32) -> [u64; 32] {
        let (low, high) = (&self.regs[p as usize], &self.regs[p as usize + 1]);
        std::array::from_fn(|l| (u64::from(low[l]) | u64::from(high[l]) << 32).wrapping_add(i64::from(off) as u64))
    }
}
