//! Unrolls loops of one block with a known trip count, partially or completely.
//!
//! Temporaries of an iteration get their own registers in each copy, so that loads of all copies can be in flight
//! together. Values that are carried from iteration to iteration keep their register and their order, so that sums of
//! floats are unchanged. Values that grow by a constant in every iteration (addresses) become the first copy's value
//! plus a constant, which goes into the offset of addresses. Invariant values are computed once.

use super::facts::{bits_of, each, is_word};
use super::split::{each_mut, fresh};
use crate::ptx::{Imm, Modifier, Opcode, Pos, Type};
use crate::sass::compile::read::flat::{Body, Flat, Item, Opd, Reg, Symbol};
use crate::sass::compile::read::mnemonics::Mnemonic;
use crate::sass::compile::read::source::Store;
use std::ops::{Index, IndexMut};
use std::sync::LazyLock;

/// Limit on the instructions of all copies together, for complete and for partial unrolling.
const LONGEST_WHOLE: usize = 96;
const LONGEST: usize = 64;
/// Maximum factor of partial unrolling.
const MOST: u64 = 4;
/// Outer loops whose inner loop was unrolled completely are considered again, up to this many times.
const DEPTH: usize = 3;

/// Mnemonics for connecting the copies.
static SUM32: LazyLock<Mnemonic> = LazyLock::new(|| typed(Opcode::Add, Type::S32));
static SUM64: LazyLock<Mnemonic> = LazyLock::new(|| typed(Opcode::Add, Type::S64));
static MOVE32: LazyLock<Mnemonic> = LazyLock::new(|| typed(Opcode::Mov, Type::B32));
static MOVE64: LazyLock<Mnemonic> = LazyLock::new(|| typed(Opcode::Mov, Type::B64));

fn typed(op: Opcode, ty: Type) -> Mnemonic {
    Mnemonic::new(op, [Modifier::Type(ty)].into_iter())
}

/// A body before its loops were unrolled.
pub(crate) struct Rolled<'a> {
    items: Vec<Item<'a>>,
    registers: usize,
}

impl<'a> Rolled<'a> {
    pub(crate) fn restore(self, body: &mut Body<'a>) {
        body.items = self.items;
        body.regs.truncate(self.registers);
    }
}

/// Unrolls the innermost loops, and those around them that become innermost; returns the original body if there are
/// any.
pub(crate) fn unroll<'a>(body: &mut Body<'a>, store: &'a Store<'a>) -> Option<Rolled<'a>> {
    let registers = body.regs.len();
    let mut before = None;
    for _ in 0..DEPTH {
        let Some((items, straight)) = once(body, store) else { break };
        before.get_or_insert(Rolled { items, registers });
        if !straight {
            break;
        }
    }
    before
}

/// One pass over the body; returns the items before, and whether a loop was unrolled completely.
fn once<'a>(body: &mut Body<'a>, store: &'a Store<'a>) -> Option<(Vec<Item<'a>>, bool)> {
    let found: Vec<Count> =
        loops(body).into_iter().filter_map(|(label, branch)| Count::of(body, label, branch)).collect();
    if found.is_empty() {
        return None;
    }
    let mut reads = vec![0u32; body.regs.len()];
    for i in body.items.iter().filter_map(inst) {
        touches(i, &mut |r, write| reads[r as usize] += u32::from(!write));
    }
    let of = |count: Count| {
        let (label, branch) = (count.from - 1, count.to);
        let l = Loop::of(body, count, &reads)?;
        Some((label, branch, l.times()?, l))
    };
    let counting: Vec<(usize, usize, u64, Loop)> = found.into_iter().filter_map(of).collect();
    // Includes the counter updates before each copy.
    let copies: usize = counting.iter().map(|(.., times, l)| (l.to - l.from + 2) * *times as usize).sum();
    let (mut out, mut done, mut straight) = (Vec::with_capacity(body.items.len() + copies), 0, false);
    for (label, branch, times, l) in counting {
        let whole = times == l.trips;
        out.extend(body.items[done..label + usize::from(!whole)].iter().cloned());
        let mut c = Copies {
            l: &l,
            store,
            types: &mut body.regs,
            block: &body.items[l.from..l.to],
            whole,
            times,
            out: &mut out,
        };
        c.all();
        done = branch + usize::from(whole);
        straight |= whole;
    }
    if done == 0 {
        return None;
    }
    out.extend(body.items[done..].iter().cloned());
    Some((std::mem::replace(&mut body.items, out), straight))
}

/// Labels with their back edges, where the code between is straight-line and no other branch goes to the label.
fn loops(body: &Body) -> Vec<(usize, usize)> {
    let (mut out, mut label) = (vec![], None);
    let mut users: Vec<u32> = vec![0; body.labels as usize];
    for (k, item) in body.items.iter().enumerate() {
        match item {
            Item::Label(l) => label = Some((k, *l)),
            Item::Inst(i) if matches!(i.op, Opcode::Bra | Opcode::Brx | Opcode::Call | Opcode::Ret | Opcode::Exit) => {
                let back = label.take().filter(|(_, l)| i.opds.first() == Some(&Opd::Symbol(Symbol::Label(*l), 0)));
                out.extend(back.filter(|_| i.op == Opcode::Bra).map(|(at, _)| (at, k)));
                i.opds.iter().for_each(|o| labels(o, &mut |l| users[l as usize] += 1));
            }
            Item::Inst(_) => {}
        }
    }
    out.retain(|(at, _)| matches!(&body.items[*at], Item::Label(l) if users[*l as usize] == 1));
    out
}

/// Calls `f` with each label that a jump refers to.
fn labels(o: &Opd, f: &mut impl FnMut(u32)) {
    match o {
        Opd::Symbol(Symbol::Label(l), _) => f(*l),
        Opd::Vector(v) => v.iter().for_each(|o| labels(o, f)),
        _ => {}
    }
}

fn inst<'a, 'b>(item: &'b Item<'a>) -> Option<&'b Flat<'a>> {
    if let Item::Inst(i) = item { Some(i) } else { None }
}

/// Calls `f` with each register that an instruction reads, then with each that it writes (true).
fn touches(i: &Flat, f: &mut impl FnMut(Reg, bool)) {
    let results = i.results();
    for o in &i.opds[results.min(i.opds.len())..] {
        each(o, &mut |r| f(r, false));
    }
    if let Some((p, _)) = i.guard {
        f(p, false);
    }
    for o in i.opds.iter().take(results) {
        each(o, &mut |r| f(r, !matches!(o, Opd::Address(..))));
    }
}

/// How a loop's block uses a register.
#[derive(Clone, Copy)]
struct Use {
    writes: u32,
    reads: u32,
    /// The first write, and whether it is guarded.
    first_write: u32,
    guarded: bool,
    first_read: u32,
    last_read: u32,
    /// It is incremented by a constant in an instruction, and is not read after it.
    step: Option<(u32, i64)>,
    /// Its increment per iteration, if known; 0 if the block does not write it.
    delta: Option<i64>,
    /// It is read outside the loop too.
    outside: bool,
}

const UNUSED: Use = Use {
    writes: 0,
    reads: 0,
    first_write: u32::MAX,
    guarded: false,
    first_read: u32::MAX,
    last_read: 0,
    step: None,
    delta: Some(0),
    outside: false,
};

impl Use {
    /// Each iteration computes it before reading it.
    fn own(&self) -> bool {
        self.writes > 0 && !self.guarded && self.first_read > self.first_write
    }
}

/// How a loop's block uses the registers that it refers to.
struct Uses {
    /// Each register's index in the list, from 1; 0 if the block does not use it.
    places: Vec<u32>,
    all: Vec<(Reg, Use)>,
}

impl Uses {
    fn new(registers: usize) -> Uses {
        Uses { places: vec![0; registers], all: Vec::with_capacity(32) }
    }

    /// A register's index in the list; adds it if needed.
    fn place(&mut self, r: Reg) -> usize {
        let place = &mut self.places[r as usize];
        if *place == 0 {
            self.all.push((r, UNUSED));
            *place = self.all.len() as u32;
        }
        *place as usize - 1
    }
}

impl Index<Reg> for Uses {
    type Output = Use;

    fn index(&self, r: Reg) -> &Use {
        match self.places[r as usize] {
            0 => &UNUSED,
            place => &self.all[place as usize - 1].1,
        }
    }
}

impl IndexMut<Reg> for Uses {
    fn index_mut(&mut self, r: Reg) -> &mut Use {
        let place = self.place(r);
        &mut self.all[place].1
    }
}

/// How a loop counts, derived from its last instructions and the code before it.
struct Count {
    /// Range of the block's items, without the label and the branch.
    from: usize,
    to: usize,
    /// The predicate of the branch.
    guard: Reg,
    /// The comparison, in the block.
    test: usize,
    counter: Reg,
    limit: i64,
    /// The loop ends when the counter equals the limit, not when it is no longer below it.
    exact: bool,
    start: i64,
}

impl Count {
    /// The loop between a label and its branch, if it counts from one constant to another.
    fn of(body: &Body, label: usize, branch: usize) -> Option<Count> {
        let (from, to) = (label + 1, branch);
        let (guard, false) = inst(&body.items[branch])?.guard? else { return None };
        let block = &body.items[from..to];
        if block.len() < 2 || block.len() > LONGEST_WHOLE / 2 {
            return None;
        }
        let test =
            block.iter().rposition(|item| inst(item).is_some_and(|i| i.opds.first() == Some(&Opd::Reg(guard))))?;
        let compare = inst(&block[test])?;
        let [_, Opd::Reg(counter), Opd::Imm(Imm::Int(limit))] = &*compare.opds else { return None };
        if compare.op != Opcode::Setp || compare.ty() != Type::S32 || compare.guard.is_some() {
            return None;
        }
        let mut words = compare.words();
        let exact = match (words.next(), words.next()) {
            (Some("lt"), None) => false,
            (Some("ne"), None) => true,
            _ => return None,
        };
        if !block.iter().filter_map(inst).all(may_repeat) {
            return None;
        }
        let start = start(body, label, *counter)?;
        Some(Count { from, to, guard, test, counter: *counter, limit: *limit, exact, start })
    }

    fn trips(&self, step: i64) -> Option<i64> {
        let way = self.limit.checked_sub(self.start)?;
        match self.exact {
            false if step > 0 => Some(way.checked_add(step - 1)? / step),
            true if way.checked_rem(step)? == 0 => Some(way / step),
            _ => None,
        }
    }
}

/// A counted loop.
struct Loop {
    /// Range of the block's items, without the label and the branch.
    from: usize,
    to: usize,
    counter: Reg,
    start: i64,
    /// The comparison, in the block.
    test: u32,
    trips: u64,
    uses: Uses,
}

impl Loop {
    /// The counted loop, if its counter is incremented by a constant; `reads` are the numbers of reads of each register
    /// in the body.
    fn of(body: &Body, count: Count, reads: &[u32]) -> Option<Loop> {
        let Count { from, to, test, counter, start, .. } = count;
        let mut uses = uses(&body.items[from..to], reads.len(), test, counter);
        let Use { step: Some((_, step)), .. } = uses[counter] else { return None };
        // The comparison may be read only by the branch.
        let guard = uses[count.guard];
        if guard.writes != 1 || guard.reads > 0 || reads[count.guard as usize] != 1 {
            return None;
        }
        let small = |v: i64| (-(1 << 30)..1 << 30).contains(&v);
        let trips = u64::try_from(count.trips(step)?).ok();
        let trips = trips.filter(|n| *n > 1 && small(count.limit) && small(start) && small(step))?;
        for (r, u) in &mut uses.all {
            // The comparison must be the only other reader of the counter.
            let counts = u32::from(*r == counter) + u32::from(u.step.is_some());
            u.outside = reads[*r as usize] > u.reads + counts;
        }
        Some(Loop { from, to, counter, start, test: test as u32, trips, uses })
    }

    /// The index of a register in the block's list.
    fn place(&self, r: Reg) -> usize {
        self.uses.places[r as usize] as usize - 1
    }

    /// The unrolling factor, if more than one.
    fn times(&self) -> Option<u64> {
        let len = (self.to - self.from).max(3) - 2;
        if self.trips <= 2 * MOST && self.trips as usize * len <= LONGEST_WHOLE {
            return Some(self.trips);
        }
        let room = (LONGEST / len) as u64;
        (2..=room.min(MOST)).rev().find(|n| self.trips.is_multiple_of(*n))
    }
}

fn may_repeat(i: &Flat) -> bool {
    use Opcode::*;
    !matches!(i.op, Brx | Call | Trap | Addc | Subc | Madc | Wgmma | Setmaxnreg | Mbarrier) && !i.has("cc")
}

/// The constant value of a register on entry to a label by fallthrough.
fn start(body: &Body, label: usize, counter: Reg) -> Option<i64> {
    for item in body.items[..label].iter().rev() {
        let i = inst(item)?;
        if matches!(i.op, Opcode::Brx | Opcode::Call) {
            return None;
        }
        let mut written = false;
        touches(i, &mut |r, write| written |= write && r == counter);
        if written {
            return match (i.op, i.guard, &*i.opds) {
                (Opcode::Mov, None, [_, Opd::Imm(v)]) => Some(i64::from(bits_of(*v, Type::B32) as u32 as i32)),
                _ => None,
            };
        }
    }
    None
}

/// `r = r + constant`.
fn grows(i: &Flat) -> Option<(Reg, i64)> {
    let [Opd::Reg(to), Opd::Reg(from), Opd::Imm(Imm::Int(by))] = &*i.opds else { return None };
    let plain = i.op == Opcode::Add && i.guard.is_none() && is_word(i.ty()) && i.is_plain();
    (plain && to == from).then_some((*to, *by))
}

/// How a block uses each register. The read of the counter by the comparison `test` is not counted.
fn uses(block: &[Item], registers: usize, test: usize, counter: Reg) -> Uses {
    let mut uses = Uses::new(registers);
    for (k, i) in block.iter().enumerate().filter_map(|(k, item)| Some((k, inst(item)?))) {
        let grown = grows(i);
        let at = k as u32;
        touches(i, &mut |r, write| {
            let u = &mut uses[r];
            if write {
                u.writes += 1;
                if u.writes == 1 {
                    (u.first_write, u.guarded) = (at, i.guard.is_some());
                }
            } else if let Some((_, by)) = grown {
                (u.step, u.first_read) = (Some((at, by)), u.first_read.min(at));
            } else if !(k == test && r == counter) {
                (u.reads, u.first_read, u.last_read) = (u.reads + 1, u.first_read.min(at), u.last_read.max(at));
            }
        });
    }
    for (_, u) in &mut uses.all {
        let once = u.writes == 1 && u.step.is_some_and(|(at, _)| u.reads == 0 || u.last_read < at);
        u.step = u.step.filter(|_| once);
        u.delta = match u.step {
            Some((_, by)) => Some(by),
            None if u.writes > 0 => None,
            None => Some(0),
        };
    }
    for i in block.iter().filter_map(inst) {
        if let Some(Opd::Reg(d)) = i.opds.first().filter(|_| i.results() == 1 && i.guard.is_none()) {
            let u = uses[*d];
            if u.own() && u.writes == 1 {
                uses[*d].delta = delta(i, &uses);
            }
        }
    }
    uses
}

/// The increment of an instruction's result per iteration, if known.
fn delta(i: &Flat, uses: &Uses) -> Option<i64> {
    use Opcode::*;
    let pure = matches!(
        i.op,
        Mov | Add
            | Sub
            | Mul
            | Mad
            | Fma
            | Shl
            | Shr
            | And
            | Or
            | Xor
            | Not
            | Cvt
            | Cvta
            | Setp
            | Selp
            | Min
            | Max
            | Neg
            | Abs
    );
    if !pure {
        return None;
    }
    let of = |o: &Opd| match o {
        Opd::Reg(r) | Opd::Not(r) => uses[*r].delta,
        Opd::Imm(_) | Opd::Symbol(..) => Some(0),
        _ => None,
    };
    let sources = &i.opds[1..];
    if sources.iter().all(|o| of(o) == Some(0)) {
        return Some(0);
    }
    let factor = |o: &Opd| if let Opd::Imm(Imm::Int(v)) = o { Some(*v) } else { None };
    let low = i.only_says(&["lo"]);
    match (i.op, sources) {
        _ if !is_word(i.ty()) || !low || !i.has_one_type() => None,
        (Mov, [a]) => of(a),
        (Add, [a, b]) => Some(of(a)?.wrapping_add(of(b)?)),
        (Sub, [a, b]) => Some(of(a)?.wrapping_sub(of(b)?)),
        (Mul, [a, b]) => Some(of(a)?.wrapping_mul(factor(b)?)),
        (Mad, [a, b, c]) => Some(of(a)?.wrapping_mul(factor(b)?).wrapping_add(of(c)?)),
        (Shl, [a, b]) => Some(of(a)?.wrapping_shl(factor(b).filter(|n| (0..32).contains(n))? as u32)),
        _ => None,
    }
}

/// For each register of a block, its name in one of the copies.
type Names = Vec<Reg>;

/// Writes the copies of a loop's block.
struct Copies<'a, 'b> {
    l: &'b Loop,
    store: &'a Store<'a>,
    types: &'b mut Vec<Type>,
    block: &'b [Item<'a>],
    /// The loop is unrolled completely.
    whole: bool,
    times: u64,
    out: &'b mut Vec<Item<'a>>,
}

impl<'a> Copies<'a, '_> {
    fn all(&mut self) {
        // The counters before the first copy.
        let mut first: Vec<(Reg, Reg, u32, i64)> = vec![];
        for (r, u) in &self.l.uses.all {
            if let Some((at, by)) = u.step {
                first.push((*r, 0, at, by));
            }
        }
        first.sort_unstable();
        for (r, before, ..) in &mut first {
            *before = fresh(self.types, *r);
            let copy = if self.types[*r as usize].bits() == 64 { &MOVE64 } else { &MOVE32 };
            let from = match self.whole && *r == self.l.counter {
                true => Opd::Imm(Imm::Int(self.l.start)),
                false => Opd::Reg(*r),
            };
            self.out.push(plain(copy, [Opd::Reg(*before), from]));
        }
        let mut base = vec![];
        for n in 0..self.times {
            let mut names: Names = self.l.uses.all.iter().map(|(r, _)| *r).collect();
            for (r, before, _, by) in &first {
                names[self.l.place(*r)] = match (n, self.whole && *r == self.l.counter) {
                    (0, _) => *before,
                    (_, true) => {
                        let value = self.l.start.wrapping_add(by.wrapping_mul(n as i64));
                        let now = fresh(self.types, *r);
                        self.out.push(plain(&MOVE32, [Opd::Reg(now), Opd::Imm(Imm::Int(value))]));
                        now
                    }
                    _ => self.grown(*r, *before, by.wrapping_mul(n as i64)),
                };
            }
            self.copy(n, &mut names, &base);
            if n == 0 {
                base = names;
            }
        }
        for (r, before, _, by) in &first {
            let by = by.wrapping_mul(self.times as i64);
            if !self.whole || self.l.uses[*r].outside {
                let sum = self.sum(*r, *before, by);
                self.out.push(sum);
            }
        }
        if !self.whole {
            self.out.extend(self.block.get(self.l.test as usize).cloned());
        }
    }

    /// One copy of the iteration; `base` are the first one's names.
    fn copy(&mut self, n: u64, names: &mut [Reg], base: &[Reg]) {
        let (last, l) = (n + 1 == self.times, self.l);
        let uses = &l.uses;
        for (k, item) in self.block.iter().enumerate() {
            let Item::Inst(i) = item else { continue };
            let counts = grows(i).is_some_and(|(r, _)| uses[r].step.is_some());
            if counts || k as u32 == l.test {
                continue;
            }
            // A result that is the first copy's plus a constant.
            if let Some(Opd::Reg(d)) = i.opds.first().filter(|_| n > 0 && i.results() == 1)
                && let Use { delta: Some(by), writes: 1, step: None, outside: false, .. } = uses[*d]
            {
                let before = base[l.place(*d)];
                let by = by.wrapping_mul(n as i64);
                names[l.place(*d)] = if by == 0 { before } else { self.grown(*d, before, by) };
                continue;
            }
            let mut copy = i.clone();
            let results = i.results();
            let mut rename = |r: &mut Reg, write: bool| {
                let (u, name) = (&uses[*r], &mut names[l.place(*r)]);
                let keeps = if u.outside { last } else { n == 0 };
                if write && u.own() && u.first_write == k as u32 && !keeps {
                    *name = fresh(self.types, *r);
                }
                *r = *name;
            };
            for o in copy.opds.iter_mut().skip(results) {
                each_mut(o, self.store, &mut |r| rename(r, false));
            }
            if let Some((p, _)) = &mut copy.guard {
                rename(p, false);
            }
            for o in copy.opds.iter_mut().take(results) {
                let write = !matches!(o, Opd::Address(..));
                each_mut(o, self.store, &mut |r| rename(r, write));
            }
            self.out.push(Item::Inst(copy));
        }
    }

    /// A register like `like` that holds `from + by`.
    fn grown(&mut self, like: Reg, from: Reg, by: i64) -> Reg {
        let now = fresh(self.types, like);
        let sum = self.sum(now, from, by);
        self.out.push(sum);
        now
    }

    fn sum(&self, to: Reg, from: Reg, by: i64) -> Item<'a> {
        let wide = self.types[from as usize].bits() == 64;
        let (sum, by) = if wide { (&SUM64, by) } else { (&SUM32, i64::from(by as i32)) };
        plain(sum, [Opd::Reg(to), Opd::Reg(from), Opd::Imm(Imm::Int(by))])
    }
}

fn plain<'a, const N: usize>(mnemonic: &'static Mnemonic, opds: [Opd<'a>; N]) -> Item<'a> {
    Item::Inst(Flat::of(Pos::default(), None, mnemonic, opds.into_iter().collect()))
}
