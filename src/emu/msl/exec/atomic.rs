//! Atomics: lane after lane, lower first.

use super::memory::{Access, Target};
use super::simd::Simd;
use super::{Bound, GroupMemory, Machine, Source};
use crate::code::{Rmw, Row};
use crate::fault::Run;
use crate::memory::{Width, ones};

fn apply(op: Rmw, old: u32, v: u32) -> u32 {
    let float = |f: fn(f32, f32) -> f32| f(f32::from_bits(old), f32::from_bits(v)).to_bits();
    match op {
        Rmw::Load => old,
        Rmw::Store | Rmw::Exchange => v,
        Rmw::Add => old.wrapping_add(v),
        Rmw::Sub => old.wrapping_sub(v),
        Rmw::And => old & v,
        Rmw::Or => old | v,
        Rmw::Xor => old ^ v,
        Rmw::MinS => (old as i32).min(v as i32) as u32,
        Rmw::MaxS => (old as i32).max(v as i32) as u32,
        Rmw::MinU => old.min(v),
        Rmw::MaxU => old.max(v),
        Rmw::AddF => float(|a, b| a + b),
        Rmw::SubF => float(|a, b| a - b),
    }
}

impl Simd {
    pub(super) fn atomic(
        &mut self,
        m: &Machine,
        group: &mut GroupMemory,
        op: Rmw,
        (d, p, v): (Row, Row, Row),
        wide: bool,
    ) -> Run<()> {
        let pointers = self.pointers(p, 0);
        let bytes = if wide { 8 } else { 4 };
        let access = Access { bytes, align: bytes, write: op != Rmw::Load };
        self.each_memory(m, &pointers, access, &mut |simd, target, lanes, at| {
            if wide {
                simd.atomic_wide(m, target, lanes, (op, d, v), at);
                return Ok(());
            }
            for lane in ones(lanes) {
                let value = simd.regs[v as usize][lane];
                let old = simd.update(m, group, (target, lane, at[lane]), op, &mut |old| apply(op, old, value))?;
                simd.regs[d as usize][lane] = old;
            }
            Ok(())
        })
    }

    /// Replaces one word; returns the old one.
    fn update(
        &mut self,
        m: &Machine,
        group: &mut GroupMemory,
        (target, lane, at): (Target, usize, u64),
        kind: Rmw,
        f: &mut dyn FnMut(u32) -> u32,
    ) -> Run<u32> {
        let load = kind == Rmw::Load;
        if let Target::Buffer(slot) = target {
            return Ok(match &m.buffers[slot] {
                Some(Bound { memory: Source::Memory(memory), base, .. }) if load => memory.read(at + base, Width::Word),
                Some(Bound { memory: Source::Memory(memory), base, .. }) => memory.update_u32(at + base, f),
                _ => 0,
            });
        }
        group.atomic = true;
        let made = self.update_own(m, group, (target, lane, at), kind, f);
        group.atomic = false;
        made
    }

    /// A word of threadgroup memory; simdgroups take turns, so plain accesses are whole.
    fn update_own(
        &mut self,
        m: &Machine,
        group: &mut GroupMemory,
        (target, lane, at): (Target, usize, u64),
        kind: Rmw,
        f: &mut dyn FnMut(u32) -> u32,
    ) -> Run<u32> {
        let load = kind == Rmw::Load;
        let mut row = [0; 32];
        let offsets = [at; 32];
        let lanes = 1 << lane;
        // A store needs no value that was there before.
        if kind != Rmw::Store {
            self.fetch_words(m, group, (target, lanes), &offsets, 4, &mut row)?;
        }
        let old = row[lane];
        if !load {
            self.put_words(m, group, (target, lanes), &offsets, 4, &[f(old); 32])?;
        }
        Ok(old)
    }

    fn atomic_wide(&mut self, m: &Machine, target: Target, lanes: u32, (op, d, v): (Rmw, Row, Row), at: &[u64; 32]) {
        let Target::Buffer(slot) = target else { return };
        let Some(Bound { memory: Source::Memory(memory), base, .. }) = &m.buffers[slot] else { return };
        for lane in ones(lanes) {
            let value = u64::from(self.regs[v as usize][lane]) | u64::from(self.regs[v as usize + 1][lane]) << 32;
            let old = memory.update_u64(at[lane] + base, &mut |old| match op {
                Rmw::MinU => old.min(value),
                _ => old.max(value),
            });
            self.regs[d as usize][lane] = old as u32;
            self.regs[d as usize + 1][lane] = (old >> 32) as u32;
        }
    }

    pub(super) fn compare_exchange(
        &mut self,
        m: &Machine,
        group: &mut GroupMemory,
        (d, p, expected, v): (Row, Row, Row, Row),
    ) -> Run<()> {
        let pointers = self.pointers(p, 0);
        let access = Access { bytes: 4, align: 4, write: true };
        self.each_memory(m, &pointers, access, &mut |simd, target, lanes, at| {
            for lane in ones(lanes) {
                let (want, new) = (simd.regs[expected as usize][lane], simd.regs[v as usize][lane]);
                let swap = &mut |old: u32| if old == want { new } else { old };
                let old = simd.update(m, group, (target, lane, at[lane]), Rmw::Exchange, swap)?;
                simd.regs[d as usize][lane] = u32::from(old == want);
                simd.regs[expected as usize][lane] = old;
            }
            Ok(())
        })
    }
}
