//! Turns assigned pieces into operand locations, ordered edits and a frame.

use super::live::NONE;
use super::live_ranges::Seg;
use super::spill::{Assignment, Pieces};
use super::{Allocation, Class, Constraint, Edit, Flow, Loc, PReg, Slot};
use doorbell_sort as sort;
use smallvec::SmallVec;

/// Order of edits at the same instruction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// A fixed result is moved to its value's register.
    AfterResult,
    /// A result is stored to its slot.
    AfterStore,
    /// On entry to a block through its only branch.
    EdgeIn,
    /// A value changes its location inside the block.
    Inside,
    /// On fallthrough from the previous block (which may be a mere label with an `EdgeIn`).
    Fall,
    /// On jumping out of the block.
    EdgeOut,
    /// Values are moved to fixed inputs; a value that is spilled after its last read here is stored to its slot.
    BeforeInputs,
}

/// A move that still has to be ordered among its neighbours.
#[derive(Clone, Copy)]
struct Pending {
    inst: u32,
    phase: Phase,
    edit: Edit,
}

struct Resolve<'p, 'a> {
    p: &'p Pieces<'a>,
    /// Slot of each value, or `NONE`.
    slot: Vec<u32>,
    /// Values that are stored where they are written, not where they leave their register.
    store_at_defs: Vec<bool>,
    pending: Vec<Pending>,
    out: Allocation,
    /// By class: a slot for breaking cycles of moves.
    scratch: Vec<Option<u32>>,
}

/// A value changes its location here.
#[derive(Clone, Copy)]
struct Change {
    v: u32,
    from: u32,
    to: u32,
    at: At,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Before(u32, Phase),
    /// Only if the branch is taken.
    Taken(u32),
}

pub(super) fn resolve(p: &Pieces) -> Allocation {
    if !p.was_split && p.taken.is_empty() {
        return unsplit(p);
    }
    let nv = p.func.vregs.len();
    let mut r = Resolve {
        p,
        slot: vec![NONE; nv],
        store_at_defs: vec![false; nv],
        pending: Vec::new(),
        out: Allocation::default(),
        scratch: vec![None; p.regs.classes.len()],
    };
    let order = r.sorted_pieces();
    let changes = r.changes(&order);
    r.decide_stores(&changes);
    r.assign_slots();
    r.operands(&order);
    let mut taken: Vec<(u32, Vec<Edit>)> = Vec::new();
    for c in &changes {
        let Some(edit) = r.edit(c) else { continue };
        match c.at {
            At::Before(inst, phase) => r.pending.push(Pending { inst, phase, edit }),
            At::Taken(inst) => match taken.last_mut().filter(|t| t.0 == inst) {
                Some(t) => t.1.push(edit),
                None => taken.push((inst, vec![edit])),
            },
        }
    }
    r.order_edits();
    for (inst, edits) in taken {
        let points = [2 * inst + 1, r.target_point(inst)];
        let ordered = r.sequence(&edits, points);
        r.out.edge_edits.push((inst, ordered));
    }
    r.written();
    r.out
}

impl Resolve<'_, '_> {
    /// The values with more than one piece, each with its pieces sorted by start.
    fn sorted_pieces(&self) -> Vec<(u32, Vec<u32>)> {
        let mut order = Vec::new();
        for v in 0..self.p.values() as u32 {
            if self.p.of(v).nth(1).is_some() {
                let mut ids: Vec<u32> = self.p.of(v).collect();
                doorbell_sort::by_key(&mut ids, |id| self.p.pieces[*id as usize].start());
                order.push((v, ids));
            }
        }
        order
    }

    /// Every point and edge where a value's piece changes.
    fn changes(&self, order: &[(u32, Vec<u32>)]) -> Vec<Change> {
        let (live, pieces) = (self.p.live, &self.p.pieces);
        let mut changes = Vec::new();
        let at = |ids: &[u32], point: u32| ids.iter().copied().find(|id| pieces[*id as usize].covers(point));
        for (v, ids) in order {
            let v = *v;
            for to in ids {
                for Seg { from: point, .. } in &pieces[*to as usize].segs {
                    let inst = point / 2;
                    let at_block_start =
                        point % 2 == 0 && live.blocks[live.block_of[inst as usize] as usize].start == inst;
                    if at_block_start || *point == 0 {
                        continue; // the edges see to it
                    }
                    if let Some(from) = at(ids, point - 1).filter(|from| from != to) {
                        let phase = if point % 2 == 0 { Phase::Inside } else { Phase::BeforeInputs };
                        changes.push(Change { v, from, to: *to, at: At::Before(inst, phase) });
                    }
                }
            }
        }
        for (b, block) in live.blocks.iter().enumerate() {
            for s in &block.succs {
                let start = live.blocks[*s as usize].start;
                for (v, ids) in order.iter().filter(|(v, _)| live.is_live_in(*s, *v)) {
                    let (v, from, to) = (*v, at(ids, 2 * block.end - 1), at(ids, 2 * start));
                    if let (Some(from), Some(to)) = (from, to)
                        && from != to
                    {
                        let places = self.edge(b as u32, *s);
                        changes.extend(places.into_iter().map(|at| Change { v, from, to, at }));
                    }
                }
            }
        }
        changes
    }

    /// Where code for an edge goes: two positions if a branch goes to the instruction after it.
    fn edge(&self, from: u32, to: u32) -> SmallVec<[At; 2]> {
        let (func, live) = (self.p.func, self.p.live);
        let (a, b) = (&live.blocks[from as usize], &live.blocks[to as usize]);
        let last = a.end - 1;
        let fall = At::Before(b.start, Phase::Fall);
        match func.inst(last).flow {
            Flow::Jump(_) => [At::Before(last, Phase::EdgeOut)].into_iter().collect(),
            Flow::Branch(label) if func.inst(b.start).flow == Flow::Label(label) => {
                match (b.preds.len(), b.start == a.end) {
                    (1, _) => [At::Before(b.start + 1, Phase::EdgeIn)].into_iter().collect(),
                    (_, true) => [At::Taken(last), fall].into_iter().collect(),
                    (_, false) => [At::Taken(last)].into_iter().collect(),
                }
            }
            _ => [fall].into_iter().collect(),
        }
    }

    fn target_point(&self, branch: u32) -> u32 {
        let block = &self.p.live.blocks[self.p.live.block_of[branch as usize] as usize];
        block.succs.first().map_or(0, |s| 2 * self.p.live.blocks[*s as usize].start)
    }

    /// Decides to store a value where it is written if that happens less often than leaving its register.
    fn decide_stores(&mut self, changes: &[Change]) {
        let live = self.p.live;
        let mut leave = vec![0.0f32; self.slot.len()];
        for c in changes {
            if self.p.pieces[c.to as usize].assigned == Assignment::Spilled {
                let (At::Before(inst, _) | At::Taken(inst)) = c.at;
                leave[c.v as usize] += live.freq(inst);
            }
        }
        for v in (0..self.slot.len()).filter(|v| self.p.spilled[*v]) {
            let writes = live.uses(v as u32).iter().filter(|(_, o)| self.p.func.operands[*o as usize].role.writes());
            let at_defs: f32 = writes.map(|(i, _)| live.freq(*i)).sum();
            self.store_at_defs[v] = at_defs <= leave[v];
        }
    }

    /// Allocates slots for spilled values; values whose live ranges do not overlap may share one.
    fn assign_slots(&mut self) {
        let mut values: Vec<(u32, u32, u32)> = (0..self.slot.len() as u32)
            .filter(|v| self.p.spilled[*v as usize] && self.p.remat[*v as usize] == NONE)
            .filter_map(|v| {
                let segs = self.p.live.segs(v);
                Some((segs.first()?.from, segs.last()?.to, v))
            })
            .collect();
        doorbell_sort::by_key(&mut values, |v| *v);
        let mut free_from: Vec<u32> = Vec::new();
        let mut kinds: Vec<(u32, u32)> = Vec::new(); // (length, alignment)
        for (from, to, v) in values {
            let class = self.p.class(v);
            let kind = (class.slot_bytes, class.slot_align);
            let s = (0..kinds.len()).find(|s| kinds[*s] == kind && free_from[*s] <= from).unwrap_or(kinds.len());
            if s == kinds.len() {
                free_from.push(0);
                kinds.push(kind);
            }
            free_from[s] = to;
            self.slot[v as usize] = s as u32;
        }
        for kind in kinds {
            self.new_slot(kind);
        }
    }

    /// Adds a slot at the frame's end.
    fn new_slot(&mut self, (len_bytes, align): (u32, u32)) -> u32 {
        let frame = &mut self.out.frame;
        let end = frame.slots.last().map_or(0, |s| s.offset + s.len_bytes);
        frame.slots.push(Slot { offset: end.next_multiple_of(align), len_bytes });
        frame.align = frame.align.max(align);
        frame.len_bytes = (end.next_multiple_of(align) + len_bytes).next_multiple_of(frame.align);
        frame.slots.len() as u32 - 1
    }

    fn loc(&self, piece: u32) -> Option<Loc> {
        let piece = &self.p.pieces[piece as usize];
        match piece.assigned {
            Assignment::Reg(index) => Some(Loc::Reg(PReg { file: self.p.class(piece.vreg).file, index })),
            _ => Some(self.slot[piece.vreg as usize]).filter(|s| *s != NONE).map(Loc::Slot),
        }
    }

    /// The edit for a change of location, if it needs one.
    fn edit(&self, c: &Change) -> Option<Edit> {
        let class = self.p.func.vregs[c.v as usize];
        let (from, to) = (&self.p.pieces[c.from as usize], &self.p.pieces[c.to as usize]);
        match (from.assigned, to.assigned) {
            (Assignment::Spilled, Assignment::Spilled) => None,
            (_, Assignment::Spilled) if self.p.remat[c.v as usize] != NONE || self.store_at_defs[c.v as usize] => None,
            (Assignment::Spilled, Assignment::Reg(index)) if self.p.remat[c.v as usize] != NONE => {
                Some(Edit::Remat { inst: self.p.remat[c.v as usize], to: PReg { file: self.p.class(c.v).file, index } })
            }
            _ => match (self.loc(c.from)?, self.loc(c.to)?) {
                (from, to) if from == to => None,
                (from, to) => Some(Edit::Move { class, from, to }),
            },
        }
    }

    /// Sets each operand's location; fixed operands get moves, spilled results get stores.
    fn operands(&mut self, order: &[(u32, Vec<u32>)]) {
        self.out.operands = vec![NOWHERE; self.p.func.operands.len()];
        let mut order = order.iter().peekable();
        for v in 0..self.p.values() {
            let class = self.p.func.vregs[v];
            let only = self.p.of(v as u32).next();
            let pieces = order.next_if(|o| o.0 as usize == v).map_or(&[][..], |o| &o.1);
            for (i, o) in self.p.live.uses(v as u32) {
                let op = &self.p.func.operands[*o as usize];
                let span = op.role.points(*i);
                let find = |point| pieces.iter().copied().find(|id| self.p.pieces[*id as usize].covers(point));
                let piece = if pieces.is_empty() { only } else { find(span.start) };
                let Some(own) = piece.and_then(|piece| self.loc(piece)) else { continue };
                let mut place = own;
                if let Constraint::Fixed(preg) = op.constraint {
                    place = Loc::Reg(preg);
                    if own != place && op.role.reads() {
                        let edit = Edit::Move { class, from: own, to: place };
                        self.pending.push(Pending { inst: *i, phase: Phase::BeforeInputs, edit });
                    }
                    if own != place && op.role.writes() {
                        let edit = Edit::Move { class, from: place, to: own };
                        self.pending.push(Pending { inst: i + 1, phase: Phase::AfterResult, edit });
                    }
                }
                self.out.operands[*o as usize] = place;
                if op.role.writes() && self.slot[v] != NONE && self.store_at_defs[v] {
                    let edit = Edit::Move { class, from: own, to: Loc::Slot(self.slot[v]) };
                    self.pending.push(Pending { inst: i + 1, phase: Phase::AfterStore, edit });
                }
            }
        }
    }

    /// Orders the moves of each position and phase so that every source is read before it is overwritten.
    fn order_edits(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        sort::by_key(&mut pending, |m| (m.inst, m.phase));
        for group in pending.chunk_by(|a, b| (a.inst, a.phase) == (b.inst, b.phase)) {
            let inst = group[0].inst;
            let edits: Vec<Edit> = group.iter().map(|m| m.edit).collect();
            let ordered = self.sequence(&edits, [(2 * inst).saturating_sub(1), 2 * inst]);
            self.out.edits.extend(ordered.into_iter().map(|e| (inst, e)));
        }
    }

    /// Sequentialises a parallel move. A cycle is broken through a register that is free at the two points, or through
    /// a slot.
    fn sequence(&mut self, edits: &[Edit], points: [u32; 2]) -> Vec<Edit> {
        if let [one] = edits {
            return vec![*one];
        }
        let mut todo: Vec<Edit> = edits.to_vec();
        let mut done = Vec::with_capacity(todo.len());
        while !todo.is_empty() {
            let blocked = |e: &Edit, me: usize| {
                todo.iter()
                    .enumerate()
                    .any(|(k, other)| k != me && self.reads(other).is_some_and(|r| self.overlap(r, self.writes(e))))
            };
            if let Some(k) = (0..todo.len()).find(|k| !blocked(&todo[*k], *k)) {
                done.push(todo.remove(k));
                continue;
            }
            // Only cycles of moves between registers are left: copy one source elsewhere.
            let in_cycle = |e: &&Edit| {
                self.reads(e).is_some_and(|r| todo.iter().any(|w| w != *e && self.overlap(r, self.writes(w))))
            };
            let Some((class, from, to)) = todo.iter().filter(in_cycle).find_map(as_move) else { break };
            let free = self.free_register(class, points, edits, &done);
            let scratch = free.unwrap_or_else(|| self.scratch_slot(class, &todo));
            done.push(Edit::Move { class, from, to: scratch });
            for e in &mut todo {
                if *e == (Edit::Move { class, from, to }) {
                    *e = Edit::Move { class, from: scratch, to };
                }
            }
        }
        done
    }

    /// A slot for breaking a cycle that no pending move reads.
    fn scratch_slot(&mut self, class: Class, todo: &[Edit]) -> Loc {
        let idle = |s: &u32| !todo.iter().any(|e| self.reads(e).is_some_and(|r| r.0 == Loc::Slot(*s)));
        if let Some(s) = self.scratch[class.0 as usize].filter(idle) {
            return Loc::Slot(s);
        }
        let c = &self.p.regs.classes[class.0 as usize];
        let s = self.new_slot((c.slot_bytes, c.slot_align));
        self.scratch[class.0 as usize] = Some(s);
        Loc::Slot(s)
    }

    /// Register range or slot that an edit reads, with its width.
    fn reads(&self, e: &Edit) -> Option<(Loc, u16)> {
        match *e {
            Edit::Move { class, from, .. } => Some((from, self.p.regs.classes[class.0 as usize].width)),
            Edit::Remat { .. } => None,
        }
    }

    fn writes(&self, e: &Edit) -> (Loc, u16) {
        match *e {
            Edit::Move { class, to, .. } => (to, self.p.regs.classes[class.0 as usize].width),
            Edit::Remat { inst, to } => {
                let v = self.p.func.operands(inst)[0].vreg.0;
                (Loc::Reg(to), self.p.class(v).width)
            }
        }
    }

    fn overlap(&self, a: (Loc, u16), b: (Loc, u16)) -> bool {
        match (a.0, b.0) {
            (Loc::Reg(x), Loc::Reg(y)) => x.file == y.file && x.index < y.index + b.1 && y.index < x.index + a.1,
            (x, y) => x == y,
        }
    }

    /// A register (tuple) of a class that is used neither at the two points nor by the moves there.
    fn free_register(&self, class: Class, points: [u32; 2], edits: &[Edit], done: &[Edit]) -> Option<Loc> {
        let c = &self.p.regs.classes[class.0 as usize];
        let file = &self.p.regs.files[c.file as usize];
        let held = |r: u16| {
            let me = (Loc::Reg(PReg { file: c.file, index: r }), c.width);
            let by_piece = |p: &super::spill::Piece| match p.assigned {
                Assignment::Reg(index) if points.iter().any(|pt| p.covers(*pt)) => self.overlap(
                    me,
                    (Loc::Reg(PReg { file: self.p.class(p.vreg).file, index }), self.p.class(p.vreg).width),
                ),
                _ => false,
            };
            let by_inst = |t: &super::spill::ReservedRegs| {
                points.iter().any(|pt| t.from <= *pt && *pt < t.to) && self.overlap(me, (Loc::Reg(t.preg), 1))
            };
            self.p.pieces.iter().any(by_piece)
                || self.p.taken.iter().any(by_inst)
                || edits
                    .iter()
                    .chain(done)
                    .any(|e| self.overlap(me, self.writes(e)) || self.reads(e).is_some_and(|x| self.overlap(me, x)))
        };
        let usable = |r: u16| r.is_multiple_of(c.align) && (r..r + c.width).all(|k| file.order.contains(&k));
        let index = file.order.iter().copied().find(|r| usable(*r) && !held(*r))?;
        Some(Loc::Reg(PReg { file: c.file, index }))
    }

    /// Lists the registers that are written anywhere.
    fn written(&mut self) {
        let mut all = of_pieces(self.p);
        let mut add = |file: u8, first: u16, width: u16| {
            for k in first..first + width {
                all[usize::from(file)][usize::from(k) / 64] |= 1 << (k % 64);
            }
        };
        self.p.taken.iter().for_each(|t| add(t.preg.file, t.preg.index, 1));
        let edits = self.out.edits.iter().map(|e| &e.1).chain(self.out.edge_edits.iter().flat_map(|e| &e.1));
        for e in edits {
            if let (Loc::Reg(r), width) = self.writes(e) {
                add(r.file, r.index, width);
            }
        }
        self.out.written = listed(&all);
    }
}

/// A placeholder: no register yet.
pub(super) const NOWHERE: Loc = Loc::Reg(PReg { file: 0, index: 0 });

/// The allocation if every value has a single register: nothing to move.
fn unsplit(p: &Pieces) -> Allocation {
    let place = |v: u32| match p.of(v).next().map(|id| p.pieces[id as usize].assigned) {
        Some(Assignment::Reg(index)) => Loc::Reg(PReg { file: p.class(v).file, index }),
        _ => NOWHERE,
    };
    let operands = p.func.operands.iter().map(|op| place(op.vreg.0)).collect();
    Allocation { operands, written: listed(&of_pieces(p)), ..Allocation::default() }
}

/// The registers of all pieces, by file as bits.
fn of_pieces(p: &Pieces) -> Vec<[u64; 4]> {
    let mut all = vec![[0u64; 4]; p.regs.files.len()];
    for piece in &p.pieces {
        if let Assignment::Reg(r) = piece.assigned {
            let class = p.class(piece.vreg);
            let file = &mut all[usize::from(class.file)];
            (r..r + class.width).for_each(|k| file[usize::from(k) / 64] |= 1 << (k % 64));
        }
    }
    all
}

pub(super) fn listed(all: &[[u64; 4]]) -> Vec<PReg> {
    let mut out = Vec::with_capacity(all.iter().flatten().map(|w| w.count_ones() as usize).sum());
    for (file, set) in (0u8..).zip(all) {
        for (word, bits) in (0u16..).zip(set) {
            let mut bits = *bits;
            while bits != 0 {
                out.push(PReg { file, index: 64 * word + bits.trailing_zeros() as u16 });
                bits &= bits - 1;
            }
        }
    }
    out
}

fn as_move(e: &Edit) -> Option<(Class, Loc, Loc)> {
    match *e {
        Edit::Move { class, from, to } => Some((class, from, to)),
        Edit::Remat { .. } => None,
    }
}
