//! Assigns registers to pieces, in order of their start.

use super::live::NONE;
use super::spill::{Assignment, Gap, Piece, Pieces};
use super::{Class, Constraint, Func, Inst, Kind, RegAllocError, RegClass, RegFile, RegInfo, VReg};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// A set of registers of one file.
pub(super) type Bits = [u64; 4];

/// Number of points in a block; the occupancy of whole blocks is also kept.
const BLOCK: usize = 32;

/// Which registers of one file are occupied at each point. A block of points that a piece covers completely is marked
/// as a whole, so that long live ranges are cheap.
struct Occupancy {
    words: usize,
    /// Number of points; the tables are allocated at the first mark.
    count: usize,
    /// By point: the registers marked there, except by marks of whole blocks.
    points: Vec<u64>,
    /// By block: the registers marked in the whole block at once.
    whole: Vec<u64>,
    /// By block: all registers marked anywhere in it.
    any: Vec<u64>,
}

/// Splits a range of points into single points, whole blocks, and single points.
fn cover(from: u32, to: u32) -> (Range<usize>, Range<usize>, Range<usize>) {
    let (from, to) = (from as usize, to as usize);
    let (first, last) = (from.div_ceil(BLOCK), to / BLOCK);
    if first >= last { (from..to, 0..0, to..to) } else { (from..first * BLOCK, first..last, last * BLOCK..to) }
}

impl Occupancy {
    fn new(file: &RegFile, points: usize) -> Self {
        let words = usize::from(file.count).div_ceil(64).max(1);
        Occupancy { words, count: points, points: vec![], whole: vec![], any: vec![] }
    }

    fn mark(&mut self, from: u32, to: u32, mask: &Bits) {
        let w = self.words;
        if self.points.is_empty() {
            let blocks = self.count.div_ceil(BLOCK);
            self.points = vec![0; w * self.count];
            (self.whole, self.any) = (vec![0; w * blocks], vec![0; w * blocks]);
        }
        let (head, blocks, tail) = cover(from, to);
        for p in [head, tail] {
            if p.is_empty() {
                continue;
            }
            // A range that contains no whole block touches at most two blocks.
            let around = p.start / BLOCK * w..((p.end - 1) / BLOCK + 1) * w;
            spread(&mut self.points[p.start * w..p.end * w], mask, w);
            spread(&mut self.any[around], mask, w);
        }
        spread(&mut self.whole[blocks.start * w..blocks.end * w], mask, w);
        spread(&mut self.any[blocks.start * w..blocks.end * w], mask, w);
    }

    /// Removes a mark of the same range.
    fn clear(&mut self, from: u32, to: u32, mask: &Bits) {
        let w = self.words;
        let (head, blocks, tail) = cover(from, to);
        for p in head.chain(tail) {
            remove(&mut self.points[p * w..][..w], mask);
        }
        for b in blocks {
            remove(&mut self.whole[b * w..][..w], mask);
        }
        for b in from as usize / BLOCK..(to as usize).div_ceil(BLOCK) {
            let rows = b * BLOCK * w..self.points.len().min((b + 1) * BLOCK * w);
            for k in 0..w {
                let marked = self.points[rows.clone()].iter().skip(k).step_by(w).fold(0, |a, x| a | x);
                self.any[b * w + k] = marked | self.whole[b * w + k];
            }
        }
    }

    /// Adds the registers that are occupied in a range of points to `sum`.
    fn gather(&self, from: u32, to: u32, sum: &mut Bits) {
        if self.points.is_empty() {
            return;
        }
        let w = self.words;
        let (head, blocks, tail) = cover(from, to);
        for p in [head, tail] {
            if p.is_empty() {
                continue;
            }
            if w == 1 {
                sum[0] |= self.points[p.clone()].iter().fold(0, |a, b| a | b);
            } else {
                self.points[p.start * w..p.end * w].chunks_exact(w).for_each(|row| add(sum, row));
            }
            // A range that contains no whole block touches at most two blocks.
            for b in p.start / BLOCK..=(p.end - 1) / BLOCK {
                add(sum, &self.whole[b * w..][..w]);
            }
        }
        self.any[blocks.start * w..blocks.end * w].chunks_exact(w).for_each(|row| add(sum, row));
    }
}

/// Adds a mask to all rows.
fn spread(rows: &mut [u64], mask: &Bits, words: usize) {
    match words {
        1 => rows.iter_mut().for_each(|row| *row |= mask[0]),
        _ => rows.chunks_exact_mut(words).for_each(|row| add(row, mask)),
    }
}

fn add(to: &mut [u64], bits: &[u64]) {
    to.iter_mut().zip(bits).for_each(|(t, b)| *t |= b);
}

fn remove(from: &mut [u64], bits: &[u64]) {
    from.iter_mut().zip(bits).for_each(|(f, b)| *f &= !b);
}

/// Preferred registers of values, chosen to save moves.
pub(super) struct Hints {
    /// A register that the value uses as a fixed operand, or `u16::MAX`; empty if no value has one.
    preferred: Vec<u16>,
    /// Up to two values that this one is copied from or to; empty if there is no copy.
    copy_related: Vec<[u32; 2]>,
}

impl Hints {
    pub(crate) fn of(func: &Func) -> Hints {
        let nv = func.vregs.len();
        let copy = |(i, inst): (usize, &Inst)| match func.operands(i as u32) {
            [to, from, ..] if inst.kind == Kind::Copy => Some((to.vreg, from.vreg)),
            _ => None,
        };
        let mut hints = Hints::of_copies(nv, func.insts.iter().enumerate().filter_map(copy));
        if !func.fixes {
            return hints;
        }
        hints.preferred = vec![u16::MAX; nv];
        for op in &func.operands {
            if let Constraint::Fixed(preg) = op.constraint {
                hints.preferred[op.vreg.0 as usize] = preg.index;
            }
        }
        for v in 0..nv {
            let near =
                hints.copy_related(v as u32).into_iter().filter(|k| *k != NONE).map(|k| hints.preferred[k as usize]);
            if let (u16::MAX, Some(w)) = (hints.preferred[v], near.into_iter().find(|w| *w != u16::MAX)) {
                hints.preferred[v] = w;
            }
        }
        hints
    }

    /// Hints from copies (to, from) only.
    pub(crate) fn of_copies(values: usize, copies: impl Iterator<Item = (VReg, VReg)>) -> Hints {
        let mut copy_related: Vec<[u32; 2]> = vec![];
        for (to, from) in copies {
            if copy_related.is_empty() {
                copy_related = vec![[NONE; 2]; values];
            }
            for (a, b) in [(to, from), (from, to)] {
                if let Some(free) = copy_related[a.0 as usize].iter_mut().find(|k| **k == NONE) {
                    *free = b.0;
                }
            }
        }
        Hints { preferred: vec![], copy_related }
    }

    #[inline]
    fn preferred(&self, v: u32) -> u16 {
        self.preferred.get(v as usize).copied().unwrap_or(u16::MAX)
    }

    #[inline]
    fn copy_related(&self, v: u32) -> [u32; 2] {
        self.copy_related.get(v as usize).copied().unwrap_or([NONE; 2])
    }
}

/// The registers held at the current point, if pieces arrive in order of their start. A piece of one segment that has
/// begun holds its register until it ends, and conflicts with every piece that starts before that. So only pieces with
/// holes need to be marked point by point.
pub(super) struct Sweep {
    /// By file.
    held: Vec<Bits>,
    /// Linked list of the pieces that end at each point.
    ends: Vec<u32>,
    list: Vec<End>,
    /// The current point.
    at: u32,
    /// By file: the end of the last piece with holes.
    scattered: Vec<u32>,
}

/// Registers that become free (file, first, count), and the next such entry at the same point.
struct End {
    file: u8,
    first: u16,
    width: u16,
    next: u32,
}

impl Sweep {
    pub(crate) fn new(files: usize, points: usize, pieces: usize) -> Sweep {
        let (ends, list) = (vec![NONE; points], Vec::with_capacity(pieces));
        Sweep { held: vec![[0; 4]; files], ends, list, at: 0, scattered: vec![0; files] }
    }

    /// The registers of a file that are held.
    pub(crate) fn held(&self, file: u8) -> Bits {
        self.held[usize::from(file)]
    }

    /// Frees everything that ends up to a point.
    pub(crate) fn reach(&mut self, point: u32) {
        while self.at < point {
            self.at += 1;
            let mut e = std::mem::replace(&mut self.ends[self.at as usize], NONE);
            while e != NONE {
                let End { file, first, width, next } = self.list[e as usize];
                let mask = window(first, width);
                self.held[usize::from(file)].iter_mut().zip(mask).for_each(|(h, m)| *h &= !m);
                e = next;
            }
        }
    }

    pub(crate) fn hold(&mut self, file: u8, (first, width): (u16, u16), until: u32) {
        let mask = window(first, width);
        self.held[usize::from(file)].iter_mut().zip(mask).for_each(|(h, m)| *h |= m);
        let next = std::mem::replace(&mut self.ends[until as usize], self.list.len() as u32);
        self.list.push(End { file, first, width, next });
    }
}

/// The registers to choose from, and the registers that values were given.
pub(super) struct Choice<'a> {
    classes: &'a [Class],
    regs: &'a RegInfo,
    hints: &'a Hints,
    files: Vec<File>,
    /// The register last given to each value, or `u16::MAX`.
    last: Vec<u16>,
}

/// A file's registers.
struct File {
    /// Registers that may be allocated.
    given: Bits,
    /// Reserve registers, used only if none of the others is free.
    spare: Bits,
    /// The file has classes of several registers.
    tuples: bool,
    /// The allocation order is that of the registers' numbers.
    ascending: bool,
}

impl<'a> Choice<'a> {
    pub(crate) fn new(classes: &'a [Class], regs: &'a RegInfo, hints: &'a Hints) -> Choice<'a> {
        let file = |(k, f): (usize, &RegFile)| {
            let mut given = [0; 4];
            f.order.iter().for_each(|r| given[usize::from(*r) / 64] |= 1 << (r % 64));
            let tuples = regs.classes.iter().any(|c| usize::from(c.file) == k && c.width > 1);
            File { given, spare: [0; 4], tuples, ascending: f.order.is_sorted() }
        };
        let files = regs.files.iter().enumerate().map(file).collect();
        Choice { classes, regs, hints, files, last: vec![u16::MAX; classes.len()] }
    }

    /// Adds reserve registers to each file, for values that find no free one.
    pub(crate) fn add(&mut self, spare: &[Range<u16>]) {
        for (file, spare) in self.files.iter_mut().zip(spare) {
            spare.clone().for_each(|r| file.spare[usize::from(r) / 64] |= 1 << (r % 64));
        }
    }

    /// The register last given to each value, or `u16::MAX`.
    pub(crate) fn all(self) -> Vec<u16> {
        self.last
    }

    /// Records that a value is in that register.
    pub(crate) fn give(&mut self, vreg: u32, r: u16) {
        self.last[vreg as usize] = r;
    }

    /// The best free register: one that saves a move, else the first in the file's order, else the first of the
    /// reserve.
    #[inline]
    pub(crate) fn choose(&self, vreg: u32, class: &RegClass, busy: &Bits) -> Option<u16> {
        self.among(vreg, class, busy).or_else(|| self.spare(class, busy))
    }

    fn spare(&self, class: &RegClass, busy: &Bits) -> Option<u16> {
        let file = &self.files[usize::from(class.file)];
        if file.spare == [0; 4] || !class.width.is_power_of_two() || class.align != class.width {
            return None;
        }
        first_window(&std::array::from_fn(|k| (file.given[k] | file.spare[k]) & !busy[k]), class.width)
    }

    #[inline]
    fn among(&self, vreg: u32, class: &RegClass, busy: &Bits) -> Option<u16> {
        let file = &self.files[usize::from(class.file)];
        if let Some(r) = self.hinted(vreg, class, busy) {
            return Some(r);
        }
        // In a file with tuples, single registers are taken from the end, so that aligned windows stay free.
        let tuples = class.width == 1 && file.tuples;
        if file.ascending && class.align == class.width && class.width.is_power_of_two() {
            let all = std::array::from_fn(|k| file.given[k] & !busy[k]);
            return if tuples { last_of(&all) } else { first_window(&all, class.width) };
        }
        let free =
            |r: &u16| self.is_free(class, busy, *r) && (class.width == 1 || within(&file.given, *r, class.width));
        let mut fits = self.regs.files[usize::from(class.file)].order.iter().copied().filter(free);
        if tuples { fits.next_back() } else { fits.next() }
    }

    /// A free register that saves a move.
    #[inline]
    fn hinted(&self, vreg: u32, class: &RegClass, busy: &Bits) -> Option<u16> {
        let (copy_related, wishes) =
            (self.hints.copy_related(vreg), [self.last[vreg as usize], self.hints.preferred(vreg)]);
        if copy_related == [NONE; 2] && wishes == [u16::MAX; 2] {
            return None;
        }
        self.near(class, vreg, (copy_related, wishes), busy)
    }

    fn near(
        &self,
        class: &RegClass,
        vreg: u32,
        (copy_related, wishes): ([u32; 2], [u16; 2]),
        busy: &Bits,
    ) -> Option<u16> {
        let (classes, given) = (self.classes, &self.files[usize::from(class.file)].given);
        let related = copy_related.iter().filter(|k| **k != NONE && classes[**k as usize] == classes[vreg as usize]);
        let mut hints = wishes.into_iter().chain(related.map(|k| self.last[*k as usize]));
        hints.find(|r| *r != u16::MAX && self.is_free(class, busy, *r) && within(given, *r, class.width))
    }

    fn is_free(&self, class: &RegClass, busy: &Bits, r: u16) -> bool {
        if class.width == 1 && class.align == 1 {
            return busy[usize::from(r) / 64] >> (r % 64) & 1 == 0;
        }
        let fits = r.is_multiple_of(class.align) && r + class.width <= self.regs.files[usize::from(class.file)].count;
        fits && window(r, class.width).iter().zip(busy).all(|(w, b)| w & b == 0)
    }
}

struct Color<'p, 'a> {
    p: &'p mut Pieces<'a>,
    choice: Choice<'p>,
    /// Used if spilling is not allowed, because then pieces arrive in order.
    sweep: Option<Sweep>,
    /// Occupancy by pieces: all pieces, or only those with holes.
    occupied: Vec<Occupancy>,
    /// Occupancy by the instructions' own registers.
    taken: Vec<Occupancy>,
    /// The pieces in each register of each file. Not kept if spilling is not allowed.
    holders: Vec<Vec<Vec<u32>>>,
    /// The initial pieces, in reverse order.
    first: Vec<u32>,
    /// Pieces that were split off or lost their register.
    queue: BinaryHeap<Reverse<Entry>>,
}

/// `(start, wide first, piece)`.
type Entry = (u32, Reverse<u16>, u32);

/// Assigns a register to each piece that is not spilled, and splits pieces further where needed. Returns false if a
/// value would have to be spilled but `memory` does not allow it.
pub(super) fn color(p: &mut Pieces, hints: &Hints, memory: bool) -> Result<bool, RegAllocError> {
    let points = 2 * p.func.insts.len() + 2;
    let regs = p.regs;
    let holders = |f: &RegFile| vec![Vec::new(); if memory { usize::from(f.count) } else { 0 }];
    let mut c = Color {
        choice: Choice::new(&p.func.vregs, regs, hints),
        sweep: (!memory).then(|| Sweep::new(regs.files.len(), points, p.pieces.len())),
        occupied: regs.files.iter().map(|f| Occupancy::new(f, points)).collect(),
        taken: regs.files.iter().map(|f| Occupancy::new(f, points)).collect(),
        holders: regs.files.iter().map(holders).collect(),
        first: Vec::new(),
        queue: BinaryHeap::new(),
        p,
    };
    c.prepare();
    while let Some(id) = c.next() {
        if !c.place(id, memory)? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Color<'_, '_> {
    /// Marks fixed registers and sorts the pieces.
    fn prepare(&mut self) {
        for t in self.p.taken {
            self.taken[t.preg.file as usize].mark(t.from, t.to, &window(t.preg.index, 1));
        }
        // A counting sort by start; of pieces that start together the wide ones come first.
        let open = |id: &u32| self.p.pieces[*id as usize].assigned == Assignment::Unassigned;
        let all = || (0..self.p.pieces.len() as u32).filter(open);
        let mut places = vec![0u32; 2 * self.p.func.insts.len() + 3];
        all().for_each(|id| places[self.p.pieces[id as usize].start() as usize + 1] += 1);
        for k in 1..places.len() {
            places[k] += places[k - 1];
        }
        let count = places.last().map_or(0, |n| *n as usize);
        let mut order = vec![0; count];
        for id in all() {
            let place = &mut places[self.p.pieces[id as usize].start() as usize];
            order[*place as usize] = id;
            *place += 1;
        }
        let same = |a: &u32, b: &u32| self.p.pieces[*a as usize].start() == self.p.pieces[*b as usize].start();
        for together in order.chunk_by_mut(same).filter(|t| t.len() > 1) {
            doorbell_sort::by_key(together, |id| Reverse(self.p.class(self.p.pieces[*id as usize].vreg).width));
        }
        order.reverse();
        self.first = order;
    }

    /// The next piece in order.
    fn next(&mut self) -> Option<u32> {
        let later = self.queue.peek().is_some_and(|q| self.first.last().is_none_or(|f| q.0 < self.entry(*f)));
        if later { self.queue.pop().map(|e| e.0.2) } else { self.first.pop() }
    }

    fn entry(&self, id: u32) -> Entry {
        let piece = &self.p.pieces[id as usize];
        (piece.start(), Reverse(self.p.class(piece.vreg).width), id)
    }

    fn enqueue(&mut self, id: u32) {
        let entry = self.entry(id);
        self.queue.push(Reverse(entry));
    }

    /// Finds a register for a piece. If no register is free over the whole piece, splits it or evicts others. Returns
    /// false if eviction is needed but not allowed.
    fn place(&mut self, id: u32, memory: bool) -> Result<bool, RegAllocError> {
        let piece = &self.p.pieces[id as usize];
        let class = self.p.class(piece.vreg);
        let (mut busy, mut all) = ([0; 4], true);
        if let Some(sweep) = &mut self.sweep {
            sweep.reach(piece.start());
            busy = sweep.held[usize::from(class.file)];
            all = piece.start() < sweep.scattered[usize::from(class.file)];
        }
        for s in piece.segs.iter().filter(|_| all) {
            self.occupied[class.file as usize].gather(s.from, s.to, &mut busy);
        }
        self.gather_taken(piece, class.file, &mut busy);
        if let Some(r) = self.choice.choose(piece.vreg, class, &busy) {
            self.give(id, r);
            return Ok(true);
        }
        if let Some(at) = self.split_point(id, class) {
            let rest = self.p.split(id, at);
            self.enqueue(rest);
            return self.place(id, memory);
        }
        if !memory {
            return Ok(false);
        }
        self.make_room(id, class)?;
        self.enqueue(id);
        Ok(true)
    }

    /// Adds the registers that instructions use at the piece's points, except those that they use for the piece's own
    /// value.
    fn gather_taken(&self, piece: &Piece, file: u8, busy: &mut Bits) {
        if self.p.taken.is_empty() {
            return;
        }
        let own: smallvec::SmallVec<[(u32, u32, u16); 4]> = self.own_fixed(piece, file).collect();
        for s in &piece.segs {
            let mut from = s.from;
            for (f, t, r) in &own {
                for point in (*f).max(from)..(*t).min(s.to) {
                    self.taken[file as usize].gather(from, point, busy);
                    let mut here = [0; 4];
                    self.taken[file as usize].gather(point, point + 1, &mut here);
                    let mine = window(*r, 1);
                    for k in 0..4 {
                        busy[k] |= here[k] & !mine[k];
                    }
                    from = point + 1;
                }
            }
            self.taken[file as usize].gather(from, s.to.max(from), busy);
        }
    }

    /// Fixed operands of the piece's own value as `(from, to, register)`, in order.
    fn own_fixed<'s>(&'s self, piece: &'s Piece, file: u8) -> impl Iterator<Item = (u32, u32, u16)> + 's {
        let wanted = self.choice.hints.preferred(piece.vreg) != u16::MAX;
        let uses = if wanted { self.p.live.uses(piece.vreg) } else { &[] };
        uses.iter().filter_map(move |(i, o)| {
            let op = &self.p.func.operands[*o as usize];
            match op.constraint {
                Constraint::Fixed(preg) if preg.file == file => {
                    let span = op.role.points(*i);
                    Some((span.start, span.end, preg.index))
                }
                _ => None,
            }
        })
    }

    /// Where to split a piece so that the first part can keep a register for as long as possible; `None` if no register
    /// is free at its start.
    fn split_point(&self, id: u32, class: &RegClass) -> Option<u32> {
        let piece = &self.p.pieces[id as usize];
        let mut busy = self.sweep.as_ref().map_or([0; 4], |s| s.held[usize::from(class.file)]);
        let mut reached = piece.start();
        'points: for s in &piece.segs {
            for point in s.from..s.to {
                self.occupied[class.file as usize].gather(point, point + 1, &mut busy);
                let one = piece.at([super::live_ranges::Seg { from: point, to: point + 1 }]);
                self.gather_taken(&one, class.file, &mut busy);
                if self.choice.choose(piece.vreg, class, &busy).is_none() {
                    reached = point;
                    break 'points;
                }
            }
        }
        let mut at = reached & !1; // before the instruction
        // Prefer to split before a loop rather than in it.
        let mut l = self.p.live.loop_of(at / 2);
        while l != NONE {
            let lp = self.p.live.loops[l as usize];
            if 2 * lp.start > piece.start() {
                at = 2 * lp.start;
            }
            l = lp.parent;
        }
        (at > piece.start()).then_some(at)
    }

    fn give(&mut self, id: u32, r: u16) {
        let piece = &mut self.p.pieces[id as usize];
        piece.assigned = Assignment::Reg(r);
        let piece = &self.p.pieces[id as usize];
        let class = self.p.class(piece.vreg);
        self.choice.give(piece.vreg, r);
        match (&mut self.sweep, piece.segs.as_slice()) {
            (Some(sweep), [s]) => return sweep.hold(class.file, (r, class.width), s.to),
            (Some(sweep), _) => {
                let until = &mut sweep.scattered[usize::from(class.file)];
                *until = piece.end().max(*until);
            }
            (None, _) => {
                for k in r..r + class.width {
                    self.holders[class.file as usize][usize::from(k)].push(id);
                }
            }
        }
        let mask = window(r, class.width);
        for s in &piece.segs {
            self.occupied[class.file as usize].mark(s.from, s.to, &mask);
        }
    }

    /// Spills the cheapest pieces that occupy registers at a piece's start.
    fn make_room(&mut self, id: u32, class: &RegClass) -> Result<(), RegAllocError> {
        let piece = &self.p.pieces[id as usize];
        let (vreg, from) = (piece.vreg, piece.start());
        let to = piece.segs[0].to.min((from | 1) + 1);
        let mut taken = [0; 4];
        let head = piece.at([super::live_ranges::Seg { from, to }]);
        self.gather_taken(&head, class.file, &mut taken);
        let file = &self.p.regs.files[class.file as usize];
        let mut best: Option<(f32, Vec<(u32, Gap)>)> = None;
        let given = self.choice.files[usize::from(class.file)].given;
        for r in file.order.iter().copied().filter(|r| r.is_multiple_of(class.align) && within(&given, *r, class.width))
        {
            let mask = window(r, class.width);
            if (0..4).any(|k| mask[k] & taken[k] != 0) {
                continue;
            }
            let Some(gaps) = self.gaps_at(class, r, from, to) else { continue };
            let cost = gaps.iter().map(|g| g.1.cost).sum();
            if best.as_ref().is_none_or(|b| cost < b.0) {
                best = Some((cost, gaps));
            }
        }
        let Some((_, gaps)) = best else {
            return Err(RegAllocError::NoRegister { class: class.name, vreg, inst: from / 2 });
        };
        for (victim, gap) in gaps {
            self.evict(victim, gap);
        }
        Ok(())
    }

    /// For each piece in the window's registers during `from..to`, its gap there; `None` if one of them cannot be
    /// evicted.
    fn gaps_at(&self, class: &RegClass, r: u16, from: u32, to: u32) -> Option<Vec<(u32, Gap)>> {
        let mut gaps: Vec<(u32, Gap)> = Vec::new();
        for k in r..r + class.width {
            for holder in &self.holders[class.file as usize][usize::from(k)] {
                let piece = &self.p.pieces[*holder as usize];
                if !matches!(piece.assigned, Assignment::Reg(_)) || gaps.iter().any(|g| g.0 == *holder) {
                    continue;
                }
                for point in (from..to).filter(|pt| piece.covers(*pt)) {
                    if gaps.iter().any(|g| g.0 == *holder && g.1.from <= point && point < g.1.to) {
                        continue;
                    }
                    if gaps.iter().any(|g| g.0 == *holder) {
                        return None; // two gaps of one piece: another window will do
                    }
                    gaps.push((*holder, self.p.gap(*holder, point)?));
                }
            }
        }
        Some(gaps)
    }

    /// Takes a piece out of its register for a gap; the part after the gap is queued for a register again.
    fn evict(&mut self, id: u32, gap: Gap) {
        let Assignment::Reg(r) = self.p.pieces[id as usize].assigned else { return };
        let class = self.p.class(self.p.pieces[id as usize].vreg);
        let mask = window(r, class.width);
        for s in &self.p.pieces[id as usize].segs {
            self.occupied[class.file as usize].clear(s.from, s.to, &mask);
        }
        let first_new = self.p.pieces.len() as u32;
        self.p.cut(id, gap);
        // The rest of the piece keeps its register; new parts that need one are queued.
        if self.p.pieces[id as usize].assigned == Assignment::Reg(r) {
            for s in &self.p.pieces[id as usize].segs {
                self.occupied[class.file as usize].mark(s.from, s.to, &mask);
            }
        }
        for new in first_new..self.p.pieces.len() as u32 {
            if self.p.pieces[new as usize].assigned == Assignment::Unassigned {
                self.enqueue(new);
            }
        }
    }
}

/// The registers `r .. r + width` as bits.
pub(super) fn window(r: u16, width: u16) -> Bits {
    let mut bits = [0; 4];
    if r % 64 + width <= 64 {
        bits[usize::from(r) / 64] = u64::MAX >> (64 - width) << (r % 64);
    } else {
        (r..r + width).for_each(|k| bits[usize::from(k) / 64] |= 1 << (k % 64));
    }
    bits
}

/// The highest register of a set.
fn last_of(set: &Bits) -> Option<u16> {
    let k = set.iter().rposition(|w| *w != 0)?;
    Some(k as u16 * 64 + 63 - set[k].leading_zeros() as u16)
}

/// The bit positions 0..64 that are multiples of 1, 2, 4 ... 64.
const STARTS: [u64; 7] =
    [u64::MAX, u64::MAX / 0x3, u64::MAX / 0xf, u64::MAX / 0xff, u64::MAX / 0xffff, u64::MAX / 0xffff_ffff, 1];

/// The lowest `width` registers of a set that start at a multiple of `width`, a power of two of at most 64.
fn first_window(set: &Bits, width: u16) -> Option<u16> {
    let starts = STARTS[width.trailing_zeros() as usize];
    set.iter().enumerate().find_map(|(k, w)| {
        let mut all = *w;
        let mut step = 1;
        while step < width {
            all &= all >> step;
            step *= 2;
        }
        all &= starts;
        (all != 0).then(|| k as u16 * 64 + all.trailing_zeros() as u16)
    })
}

/// Whether the registers `r .. r + width` may all be allocated.
fn within(given: &Bits, r: u16, width: u16) -> bool {
    usize::from(r + width) <= 64 * given.len() && {
        let w = window(r, width);
        (0..4).all(|k| w[k] & !given[k] == 0)
    }
}
