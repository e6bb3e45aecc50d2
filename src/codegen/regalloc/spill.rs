//! Splits live ranges into pieces, and cuts gaps out of them until no point has more live values than registers.

use super::live::{Live, NONE};
use super::live_ranges::{self, Seg};
use super::{Constraint, Func, Kind, PReg, RegClass, RegInfo, Role};
use smallvec::SmallVec;
use std::collections::BinaryHeap;

/// Where a piece is assigned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assignment {
    /// Not assigned yet; needs a register.
    Unassigned,
    /// In this register (the first of a tuple) of its file.
    Reg(u16),
    /// In the value's spill slot, or nowhere if the value can be rematerialised.
    Spilled,
}

/// A part of a value's live range that stays in one register or slot.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub vreg: u32,
    pub segs: SmallVec<[Seg; 2]>,
    pub assigned: Assignment,
    /// The next piece of the same value in order of creation, or `NONE`.
    next: u32,
}

impl Piece {
    pub(crate) fn start(&self) -> u32 {
        self.segs[0].from
    }

    pub(crate) fn end(&self) -> u32 {
        self.segs[self.segs.len() - 1].to
    }

    /// A piece of the same value that covers only this segment.
    pub(crate) fn at(&self, seg: [Seg; 1]) -> Piece {
        Piece { vreg: self.vreg, segs: seg.into_iter().collect(), assigned: self.assigned, next: NONE }
    }

    pub(crate) fn covers(&self, point: u32) -> bool {
        self.segs.iter().any(|s| s.from <= point && point < s.to)
    }
}

/// A gap that can be cut out of a piece: the value leaves its register for `from..to`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    pub from: u32,
    pub to: u32,
    pub cost: f32,
    /// A second gap of the same piece, before this one: from a loop's start to the first use in the loop.
    pub head: Option<(u32, u32)>,
}

/// What happens at the loop's start when a gap wraps around the loop's end.
#[derive(Clone, Copy, Debug)]
enum Head {
    /// The gap does not wrap, or the value is in a register there.
    None,
    /// The value is in memory there already.
    In,
    /// This range can be cut out as well.
    Cut(u32, u32),
}

/// All pieces of all values, and the register pressure at each point.
pub(super) struct Pieces<'a> {
    pub func: &'a Func,
    pub regs: &'a RegInfo,
    pub live: &'a Live<'a>,
    pub pieces: Vec<Piece>,
    /// The first and last piece of each value in order of creation, or `NONE`.
    ends: Vec<(u32, u32)>,
    /// Some value has several pieces, or one that is spilled.
    pub was_split: bool,
    /// The instruction that can be repeated to rematerialise a value, or `NONE`. Not computed if spilling is not
    /// allowed.
    pub remat: Vec<u32>,
    /// Values with a spilled piece.
    pub spilled: Vec<bool>,
    /// Registers that instructions themselves use.
    pub taken: &'a [ReservedRegs],
}

/// A register that an instruction names: for an operand fixed to it, or because it clobbers it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReservedRegs {
    pub preg: PReg,
    pub from: u32,
    pub to: u32,
    pub clobber: bool,
}

/// The registers that instructions themselves use.
pub(super) fn taken(func: &Func) -> Vec<ReservedRegs> {
    let mut taken = Vec::new();
    if !func.fixes && func.clobbers.is_empty() {
        return taken;
    }
    for i in 0..func.insts.len() as u32 {
        for op in func.operands(i) {
            if let Constraint::Fixed(preg) = op.constraint {
                let span = op.role.points(i);
                taken.push(ReservedRegs { preg, from: span.start, to: span.end, clobber: false });
            }
        }
        for preg in func.clobbers(i) {
            taken.push(ReservedRegs { preg: *preg, from: 2 * i + 1, to: 2 * i + 2, clobber: true });
        }
    }
    taken
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(func: &'a Func, regs: &'a RegInfo, live: &'a Live<'a>, taken: &'a [ReservedRegs]) -> Self {
        let nv = func.vregs.len();
        let mut me = Pieces {
            func,
            regs,
            live,
            pieces: Vec::with_capacity(nv + nv / 8),
            ends: vec![(NONE, NONE); nv],
            was_split: false,
            remat: vec![NONE; nv],
            spilled: vec![false; nv],
            taken,
        };
        for v in 0..nv as u32 {
            match live.segs(v) {
                [] => {}
                // By far the most common case.
                [one] => {
                    me.add(v, SmallVec::from_buf_and_len([*one, *one], 1), Assignment::Unassigned);
                }
                segs => {
                    me.add(v, segs.into(), Assignment::Unassigned);
                }
            }
        }
        me
    }

    /// Finds the values that can be rematerialised by repeating an instruction.
    pub(crate) fn find_rematerialisable(&mut self) {
        let func = self.func;
        for i in 0..func.insts.len() as u32 {
            let ops = func.operands(i);
            if func.insts[i as usize].kind == Kind::Remat && ops.len() == 1 && func.clobbers(i).is_empty() {
                let v = ops[0].vreg.0;
                if self.writes(v) == 1 && ops[0].constraint == Constraint::Reg {
                    self.remat[v as usize] = i;
                }
            }
        }
    }

    /// The pieces of a value, in order of creation.
    pub(crate) fn of(&self, vreg: u32) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.ends[vreg as usize].0;
        std::iter::from_fn(move || {
            let id = (at != NONE).then_some(at)?;
            at = self.pieces[id as usize].next;
            Some(id)
        })
    }

    /// Number of values.
    pub(crate) fn values(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn class(&self, vreg: u32) -> &'a RegClass {
        &self.regs.classes[self.func.vregs[vreg as usize].0 as usize]
    }

    pub(crate) fn add(&mut self, vreg: u32, segs: SmallVec<[Seg; 2]>, assigned: Assignment) -> u32 {
        self.pieces.push(Piece { vreg, segs, assigned, next: NONE });
        let id = self.pieces.len() as u32 - 1;
        let (first, last) = &mut self.ends[vreg as usize];
        match std::mem::replace(last, id) {
            NONE => *first = id,
            before => self.pieces[before as usize].next = id,
        }
        id
    }

    /// Splits a piece at a point inside it. The piece keeps the part before the point; returns the part from the point
    /// on.
    pub(crate) fn split(&mut self, id: u32, at: u32) -> u32 {
        self.was_split = true;
        let piece = &mut self.pieces[id as usize];
        let (mut before, mut after) = (SmallVec::new(), SmallVec::new());
        for s in &piece.segs {
            if s.from < at {
                before.push(Seg { from: s.from, to: s.to.min(at) });
            }
            if s.to > at {
                after.push(Seg { from: s.from.max(at), to: s.to });
            }
        }
        piece.segs = before;
        let vreg = piece.vreg;
        self.add(vreg, after, Assignment::Unassigned)
    }

    /// Spills the gap of a piece. Returns the piece after the gap, if there is one; it needs a register.
    pub(crate) fn cut(&mut self, id: u32, gap: Gap) -> Option<u32> {
        let after = self.cut_one(id, gap.from, gap.to);
        if let Some((from, to)) = gap.head {
            let rest = self.cut_one(id, from, to);
            debug_assert!(rest.is_some(), "a use stands between a loop's head gap and its tail gap");
        }
        after
    }

    fn cut_one(&mut self, id: u32, from: u32, to: u32) -> Option<u32> {
        let (start, end) = (self.pieces[id as usize].start(), self.pieces[id as usize].end());
        let middle = if from > start { self.split(id, from) } else { id };
        let after = (to < end).then(|| self.split(middle, to));
        self.pieces[middle as usize].assigned = Assignment::Spilled;
        self.was_split = true;
        self.spilled[self.pieces[middle as usize].vreg as usize] = true;
        after
    }

    /// The best gap around a point where a piece is live, or `None` if the value is needed in a register at that point.
    pub(crate) fn gap(&self, id: u32, point: u32) -> Option<Gap> {
        let (piece, live) = (&self.pieces[id as usize], self.live);
        let v = piece.vreg;
        let uses = live.uses(v);
        let inst = point / 2;
        let (mut from, mut to) = (piece.start(), piece.end());
        let mut soft_cost = 0.0;
        let remat = self.remat[v as usize] != NONE;
        let next = uses.partition_point(|(i, _)| *i < inst);
        for (i, o) in &uses[next..] {
            let op = &self.func.operands[*o as usize];
            let span = op.role.points(*i);
            if span.start >= to {
                break;
            } else if op.constraint == Constraint::RegOrSlot && op.role == Role::Use && !remat {
                soft_cost += 0.8 * live.freq(*i);
            } else if span.contains(&point) {
                return None;
            } else if span.start > point {
                to = to.min(2 * i);
            } else {
                from = from.max(span.end);
            }
        }
        for (i, o) in uses[..next].iter().rev() {
            let op = &self.func.operands[*o as usize];
            if 2 * i + 2 <= from {
                break; // before the piece, or before the instruction that was found
            } else if op.constraint == Constraint::RegOrSlot && op.role == Role::Use && !remat {
                soft_cost += 0.8 * live.freq(*i);
            } else {
                from = from.max(op.role.points(*i).end); // another operand of the same instruction may end later
            }
        }
        let head;
        (from, to, head) = self.stay_in_loop(v, piece.start(), (from, to), point);
        (from, to) = self.leave_loops(inst, from, to);
        if !(from <= point && point < to) {
            return None;
        }
        let stored = remat || (self.spilled[v as usize] && self.writes(v) == 1);
        let store = if stored { 0.0 } else { live.freq(self.store_at(v, from)) };
        let load = match head {
            Head::In => 0.0,
            _ if remat => 0.7 * live.freq(to / 2),
            _ => live.freq(to / 2),
        };
        let head = if let Head::Cut(from, to) = head { Some((from, to)) } else { None };
        Some(Gap { from, to, cost: store + load + soft_cost, head })
    }

    /// The instruction at which a value is stored: where it is written, if there is one such place, or else where it
    /// leaves its register.
    fn store_at(&self, v: u32, gap_from: u32) -> u32 {
        let mut writes = self.live.uses(v).iter().filter(|(_, o)| self.func.operands[*o as usize].role.writes());
        match (writes.next(), writes.next()) {
            (Some((inst, _)), None) => *inst,
            _ => gap_from / 2,
        }
    }

    /// Number of instructions that write a value.
    pub(crate) fn writes(&self, v: u32) -> usize {
        self.live.uses(v).iter().filter(|(_, o)| self.func.operands[*o as usize].role.writes()).count()
    }

    /// Limits a gap by the innermost loop around the point that uses the value. If the loop writes the value, the value
    /// returns to its register before the loop's end, so that nothing has to be moved on the back edge. If the loop
    /// only reads it, the gap may wrap around the loop's end and continue at the loop's start.
    fn stay_in_loop(&self, v: u32, start: u32, (from, to): (u32, u32), point: u32) -> (u32, u32, Head) {
        let uses = self.live.uses(v);
        let mut l = self.live.loop_of(point / 2);
        while l != NONE {
            let lp = self.live.loops[l as usize];
            l = lp.parent;
            let first = uses.partition_point(|(i, _)| *i < lp.start);
            let in_loop = uses[first..].iter().take_while(|(i, _)| *i < lp.end);
            if first == uses.len() || uses[first].0 >= lp.end {
                continue;
            }
            let (head, tail) = (2 * lp.start, 2 * lp.end);
            if in_loop.clone().any(|(_, o)| self.func.operands[*o as usize].role.writes()) {
                let (f, t) = (from.max(head + 2), to.min(tail - 2));
                return (if f <= point { f } else { from }, if point < t { t } else { to }, Head::None);
            }
            let cut = match self.at(v, head) {
                _ if to < tail => Head::None,
                Some(id) if self.pieces[id as usize].assigned == Assignment::Spilled => Head::In,
                Some(_) if start <= head && 2 * uses[first].0 < from && head < 2 * uses[first].0 => {
                    Head::Cut(head, 2 * uses[first].0)
                }
                _ => Head::None,
            };
            return (from.max(head), to.min(tail), cut);
        }
        (from, to, Head::None)
    }

    /// The piece of a value at a point.
    pub(crate) fn at(&self, v: u32, point: u32) -> Option<u32> {
        self.of(v).find(|id| self.pieces[*id as usize].covers(point))
    }

    /// Moves a gap's ends out of loops that do not contain the point.
    fn leave_loops(&self, inst: u32, mut from: u32, mut to: u32) -> (u32, u32) {
        let live = self.live;
        let inside = |l: u32| live.loops[l as usize].start <= inst && inst < live.loops[l as usize].end;
        let mut l = live.loop_of(from / 2);
        while l != NONE {
            if !inside(l) && from > 2 * live.loops[l as usize].start {
                from = from.max(2 * live.loops[l as usize].end);
            }
            l = live.loops[l as usize].parent;
        }
        let mut l = live.loop_of(to / 2);
        while l != NONE {
            if !inside(l) {
                to = to.min(2 * live.loops[l as usize].start);
            }
            l = live.loops[l as usize].parent;
        }
        (from, to)
    }
}

/// Cuts gaps until, at every point and in every file, the live values fit into the registers that are not clobbered
/// there.
pub(super) fn reduce_pressure(p: &mut Pieces) {
    for file in 0..p.regs.files.len() as u8 {
        let mut need = needs(p, file);
        let have = p.regs.files[file as usize].order.len() as i32;
        if need.iter().all(|n| *n <= have) {
            continue;
        }
        let mut starts: BinaryHeap<std::cmp::Reverse<(u32, u32)>> = (0..p.pieces.len() as u32)
            .filter(|id| p.class(p.pieces[*id as usize].vreg).file == file)
            .map(|id| std::cmp::Reverse((p.pieces[id as usize].start(), id)))
            .collect();
        let mut active: Vec<u32> = Vec::new();
        for point in 0..need.len() as u32 {
            while starts.peek().is_some_and(|s| s.0.0 <= point) {
                active.extend(starts.pop().map(|s| s.0.1));
            }
            if need[point as usize] <= have {
                continue;
            }
            active.retain(|id| {
                p.pieces[*id as usize].end() > point && p.pieces[*id as usize].assigned == Assignment::Unassigned
            });
            while need[point as usize] > have {
                let Some((id, gap)) = victim(p, &active, point) else { break };
                let width = i32::from(p.class(p.pieces[id as usize].vreg).width);
                for s in &p.pieces[id as usize].segs {
                    for n in
                        &mut need[s.from.max(gap.from) as usize..s.to.min(gap.to).max(s.from.max(gap.from)) as usize]
                    {
                        *n -= width;
                    }
                }
                if let Some(after) = p.cut(id, gap) {
                    starts.push(std::cmp::Reverse((p.pieces[after as usize].start(), after)));
                }
                active.retain(|id| {
                    p.pieces[*id as usize].assigned == Assignment::Unassigned && p.pieces[*id as usize].end() > point
                });
            }
        }
    }
}

/// The maximum register pressure of each file.
pub(super) fn max_pressure(func: &Func, regs: &RegInfo, live: &Live) -> Vec<u16> {
    let points = 2 * func.insts.len() + 1;
    let mut need = live.ranges.needs(&func.vregs, regs, points);
    for i in 0..func.insts.len() as u32 {
        for preg in func.clobbers(i) {
            if regs.files[usize::from(preg.file)].order.contains(&preg.index) {
                let at = usize::from(preg.file) * points + 2 * i as usize;
                need[at + 1] += 1;
                need[at + 2] -= 1;
            }
        }
    }
    live_ranges::most(need, points)
}

/// Register pressure at each point, for one file.
fn needs(p: &Pieces, file: u8) -> Vec<i32> {
    let mut need = vec![0i32; 2 * p.func.insts.len() + 1];
    for piece in &p.pieces {
        let class = p.class(piece.vreg);
        if class.file == file && piece.assigned != Assignment::Spilled {
            for s in &piece.segs {
                need[s.from as usize] += i32::from(class.width);
                need[s.to as usize] -= i32::from(class.width);
            }
        }
    }
    for t in p.taken.iter().filter(|t| t.preg.file == file && t.clobber) {
        if p.regs.files[file as usize].order.contains(&t.preg.index) {
            need[t.from as usize] += 1;
            need[t.to as usize] -= 1;
        }
    }
    let mut sum = 0;
    for n in &mut need {
        sum += *n;
        *n = sum;
    }
    need
}

/// The active piece whose gap is cheapest relative to its length from the point on: everything before the point already
/// fits.
fn victim(p: &Pieces, active: &[u32], point: u32) -> Option<(u32, Gap)> {
    let mut best: Option<(f32, u32, Gap)> = None;
    for id in active.iter().filter(|id| p.pieces[**id as usize].covers(point)) {
        if let Some(gap) = p.gap(*id, point) {
            let width = f32::from(p.class(p.pieces[*id as usize].vreg).width);
            let score = gap.cost / ((gap.to - point) as f32 * width);
            if best.is_none_or(|b| score < b.0) {
                best = Some((score, *id, gap));
            }
        }
    }
    best.map(|b| (b.1, b.2))
}
