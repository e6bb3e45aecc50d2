//! A reduction shared by the threads of a workgroup.
//!
//! Each thread reduces its part. The threads of one wave combine their results without memory (WaveReduce). If the
//! group is longer than a wave, one thread of each wave writes the wave's result to workgroup memory, and after a
//! barrier all threads reduce these results, again by WaveReduce if their number is a power of two. A group of several
//! axes, or one that is not the workgroup's fastest axis, goes through workgroup memory alone: every thread writes its
//! part, and every thread reads all parts.

use super::grid::{is_local, position, size};
use super::opt::kind_of;
use doorbell_sort as sort;
use doorbell_uop::{Arg, AxisKind, Op, RangeArg, Scalar, UMap, UOp};

/// Context of one shared reduction.
pub(super) struct Group<'a> {
    /// Threads of a wave; 1: no exchange within waves.
    pub wave: i64,
    /// The ranges that the total depends on.
    pub open: &'a [UOp],
    /// Number of its scratch area in workgroup memory.
    pub area: u32,
    /// The last sub-number given to a range.
    pub subs: &'a mut u32,
}

impl Group<'_> {
    /// The result of a Reduce over GroupReduce ranges. Ranges that are reduced within waves are added to `in_waves`.
    pub(crate) fn total(&mut self, reduce: &UOp, in_waves: &mut Vec<UOp>) -> UOp {
        let (groups, rest): (Vec<UOp>, Vec<UOp>) =
            reduce.src()[1..].iter().cloned().partition(|r| kind_of(r) == AxisKind::GroupReduce);
        let op = reduce.reduce_op().unwrap_or(Op::Add);
        let x = &reduce.src()[0];
        let part = if rest.is_empty() { x.clone() } else { x.reduce(op, &rest) };
        match groups.as_slice() {
            [g] if self.threads(g) > 1 => {
                in_waves.push(g.clone());
                if !part.dtype().is_bool() {
                    return self.by_waves(op, &part, g);
                }
                // Bools are reduced as integers: sum and maximum mean `any`, product means `all`.
                let number = part.dtype().with_scalar(Scalar::I32);
                let total = self.by_waves(op, &part.cast(number), g);
                total.binary(Op::CmpNe, &UOp::constant(number, 0i64))
            }
            _ => self.through_memory(op, &part, &groups),
        }
    }

    /// The number of neighbouring threads of a group that are reduced by one WaveReduce.
    fn threads(&self, g: &UOp) -> i64 {
        (1i64 << size(g).trailing_zeros()).min(self.wave)
    }

    fn by_waves(&mut self, op: Op, part: &UOp, g: &UOp) -> UOp {
        let n = self.threads(g);
        let waves = size(g) / n;
        if waves == 1 {
            return part.wave_reduce(op, n as u16, Some(g));
        }
        let dims = self.dims(std::slice::from_ref(g));
        let sizes: Vec<i64> = dims.iter().map(|d| if d == g { waves } else { size(d) }).collect();
        let at = |wave: &UOp| {
            let place: Vec<UOp> = dims.iter().map(|d| if d == g { wave.clone() } else { d.clone() }).collect();
            position(&place, &sizes)
        };
        let area = UOp::local(self.area, part.dtype(), sizes.iter().product::<i64>() as usize);
        let first = g.floormod(&UOp::int(n)).lt(&UOp::int(1));
        let of_wave = part.wave_reduce(op, n as u16, None);
        let fill = area.index_gated(&at(&g.floordiv(&UOp::int(n))), &first).store(&of_wave, &dims);
        let area = area.after(&[fill]);
        if waves & (waves - 1) == 0 && waves <= self.wave {
            // Thread k reads the result of wave k.
            let taken = area.index(&at(&g.floormod(&UOp::int(waves)))).load();
            return taken.wave_reduce(op, waves as u16, Some(g));
        }
        let k = self.again(g, waves);
        area.index(&at(&k)).load().reduce(op, &[k])
    }

    fn through_memory(&mut self, op: Op, part: &UOp, groups: &[UOp]) -> UOp {
        let dims = self.dims(groups);
        let sizes: Vec<i64> = dims.iter().map(size).collect();
        let area = UOp::local(self.area, part.dtype(), sizes.iter().product::<i64>() as usize);
        let fill = area.index(&position(&dims, &sizes)).store(part, &dims);
        // All threads of the group read all parts, in the same order.
        let fresh: UMap<UOp> = groups.iter().map(|g| (g.clone(), self.again(g, size(g)))).collect();
        let at: Vec<UOp> = dims.iter().map(|d| fresh.get(d).unwrap_or(d).clone()).collect();
        let over: Vec<UOp> = groups.iter().map(|g| fresh[g].clone()).collect();
        area.after(&[fill]).index(&position(&at, &sizes)).load().reduce(op, &over)
    }

    /// One slot for each thread and copy; the threads of a wave are adjacent.
    fn dims(&self, groups: &[UOp]) -> Vec<UOp> {
        let place = |r: &UOp| match kind_of(r) {
            AxisKind::Upcast | AxisKind::Unroll => Some(0),
            k if is_local(k) => Some(1),
            AxisKind::Vector => Some(3),
            _ => None,
        };
        let mut dims: Vec<(u8, UOp)> = self.open.iter().filter_map(|r| Some((place(r)?, r.clone()))).collect();
        dims.extend(groups.iter().map(|r| (2, r.clone())));
        sort::by_key(&mut dims, |(p, r)| (*p, r.range_arg()));
        dims.into_iter().map(|(_, r)| r).collect()
    }

    /// A new loop, run by every thread, over so many parts.
    fn again(&mut self, g: &UOp, steps: i64) -> UOp {
        *self.subs += 1;
        let kind = if steps <= 16 { AxisKind::Unroll } else { AxisKind::Reduce };
        let id = g.range_arg().map_or(0, |a| a.id);
        UOp::range(UOp::int(steps), id, kind).with_arg(Arg::Range(RangeArg { id, sub: *self.subs, kind }))
    }
}
