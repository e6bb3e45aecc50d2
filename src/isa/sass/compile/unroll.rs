//! Loops that count: a loop of one block whose number of turns is known does several turns at once, or all of them.
//!
//! What a turn computes for itself gets registers of its own in each copy, so that loads of all copies can be on their way together; what
//! goes from turn to turn keeps its register and its order, so that sums of floats stay as they are. What grows by the same in every turn
//! (addresses) is the first copy's plus a constant, which addresses take as their offset; what is the same in every turn is computed once.

use super::facts::{bits_of, each, is_word};
use super::flat::{Body, Flat, Item, Opd, Reg, Symbol};
use super::source::Store;
use crate::isa::ptx::{Imm, Modifier, Opcode, Type};
use std::convert::Infallible;

/// Instructions of all copies together, where all turns are done at once and where they are not.
const LONGEST_WHOLE: usize = 96;
const LONGEST: usize = 64;
/// Turns done at once.
const MOST: u64 = 4;
/// Loops around loops that became straight code are looked at again, so often.
const DEPTH: usize = 3;

static SUM32: [Modifier; 1] = [Modifier::Type(Type::S32)];
static SUM64: [Modifier; 1] = [Modifier::Type(Type::S64)];
static MOVE32: [Modifier; 1] = [Modifier::Type(Type::B32)];
static MOVE64: [Modifier; 1] = [Modifier::Type(Type::B64)];

/// A body as it was.
pub(super) struct Before<'a> {
    items: Vec<Item<'a>>,
    registers: usize,
}

impl<'a> Before<'a> {
    pub fn restore(self, body: &mut Body<'a>) {
        body.items = self.items;
        body.regs.truncate(self.registers);
    }
}

/// Unrolls the innermost loops, and those around them that become innermost; gives the body as it was if there are any.
pub(super) fn unroll<'a>(body: &mut Body<'a>, store: &'a Store<'a>) -> Option<Before<'a>> {
    let registers = body.regs.len();
    let mut before = None;
    for _ in 0..DEPTH {
        let Some((items, straight)) = once(body, store) else { break };
        before.get_or_insert(Before { items, registers });
        if !straight {
            break;
        }
    }
    before
}

/// One turn over the body: the items before, and whether a loop became straight code.
fn once<'a>(body: &mut Body<'a>, store: &'a Store<'a>) -> Option<(Vec<Item<'a>>, bool)> {
    let found = loops(body);
    if found.is_empty() {
        return None;
    }
    let mut reads = vec![0u32; body.regs.len()];
    for i in body.items.iter().filter_map(inst) {
        touches(i, &mut |r, write| reads[r as usize] += u32::from(!write));
    }
    let of = |(label, branch)| {
        let l = Loop::of(body, (label, branch), &reads)?;
        Some((label, branch, l.times()?, l))
    };
    let counting: Vec<(usize, usize, u64, Loop)> = found.into_iter().filter_map(of).collect();
    // With what counts before each copy.
    let copies: usize = counting.iter().map(|(.., times, l)| (l.to - l.from + 2) * *times as usize).sum();
    let (mut out, mut done, mut straight) = (Vec::with_capacity(body.items.len() + copies), 0, false);
    for (label, branch, times, l) in counting {
        let whole = times == l.turns;
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

/// Labels and the branches back to them with nothing but straight code between, where no other branch goes to the label.
fn loops(body: &Body) -> Vec<(usize, usize)> {
    let (mut out, mut label) = (vec![], None);
    let mut users: Vec<u32> = vec![];
    for (k, item) in body.items.iter().enumerate() {
        match item {
            Item::Label(l) => label = Some((k, *l)),
            Item::Inst(i) if matches!(i.op, Opcode::Bra | Opcode::Brx | Opcode::Call | Opcode::Ret | Opcode::Exit) => {
                let back = label.take().filter(|(_, l)| i.opds.first() == Some(&Opd::Symbol(Symbol::Label(*l), 0)));
                out.extend(back.filter(|_| i.op == Opcode::Bra).map(|(at, _)| (at, k)));
            }
            Item::Inst(_) => {}
        }
    }
    if !out.is_empty() {
        users.resize(body.labels as usize, 0);
        for i in body.items.iter().filter_map(inst) {
            i.opds.iter().for_each(|o| labels(o, &mut |l| users[l as usize] += 1));
        }
        out.retain(|(at, _)| matches!(&body.items[*at], Item::Label(l) if users[*l as usize] == 1));
    }
    out
}

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

/// What a loop's block does to a register.
#[derive(Clone, Copy)]
struct Use {
    writes: u32,
    reads: u32,
    /// The first write, and whether it is guarded.
    first_write: u32,
    guarded: bool,
    first_read: u32,
    last_read: u32,
    /// It grows by a constant in an instruction that nothing after it reads.
    step: Option<(u32, i64)>,
    /// How much it grows from turn to turn; of what the block does not write 0.
    delta: Option<i64>,
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
};

impl Use {
    /// A turn computes it before it reads it.
    fn own(&self) -> bool {
        self.writes > 0 && !self.guarded && self.first_read > self.first_write
    }
}

/// A loop that counts.
struct Loop {
    /// Items of the block, the label and the branch not among them.
    from: usize,
    to: usize,
    counter: Reg,
    start: i64,
    /// The comparison, in the block.
    test: u32,
    turns: u64,
    uses: Vec<Use>,
    /// Registers that are read elsewhere too.
    outside: Vec<bool>,
}

impl Loop {
    /// The loop between a label and its branch, if it counts by constants.
    fn of(body: &Body, (label, branch): (usize, usize), reads: &[u32]) -> Option<Loop> {
        let (from, to) = (label + 1, branch);
        let (p, false) = inst(&body.items[branch])?.guard? else { return None };
        let block = &body.items[from..to];
        if block.len() < 2 || block.len() > LONGEST_WHOLE / 2 || !block.iter().filter_map(inst).all(may_repeat) {
            return None;
        }
        let test = block.iter().rposition(|item| inst(item).is_some_and(|i| i.opds.first() == Some(&Opd::Reg(p))))?;
        let compare = inst(&block[test])?;
        let [_, Opd::Reg(counter), Opd::Imm(Imm::Int(limit))] = &*compare.opds else { return None };
        if compare.op != Opcode::Setp || compare.ty() != Type::S32 || compare.guard.is_some() {
            return None;
        }
        let uses = uses(block, reads.len(), (test, *counter));
        let Use { step: Some((_, step)), .. } = uses[*counter as usize] else { return None };
        // Only the branch reads the comparison.
        if uses[p as usize].writes != 1 || uses[p as usize].reads > 0 || reads[p as usize] != 1 {
            return None;
        }
        let start = start(body, label, *counter)?;
        let mut words = compare.words();
        let turns = match (words.next(), words.next()) {
            (Some("lt"), None) if step > 0 => limit.checked_sub(start)?.checked_add(step - 1)? / step,
            (Some("ne"), None) if limit.checked_sub(start)?.checked_rem(step)? == 0 => (limit - start) / step,
            _ => return None,
        };
        let small = |v: i64| (-(1 << 30)..1 << 30).contains(&v);
        let turns = u64::try_from(turns).ok().filter(|n| *n > 1 && small(*limit) && small(start) && small(step))?;
        // The comparison reads the counter, here and nowhere else.
        let outside = (0..reads.len()).map(|r| {
            let counts = u32::from(r == *counter as usize) + u32::from(uses[r].step.is_some());
            reads[r] > uses[r].reads + counts
        });
        let (test, outside) = (test as u32, outside.collect());
        Some(Loop { from, to, counter: *counter, start, test, turns, uses, outside })
    }

    /// How many turns at once, if more than one.
    fn times(&self) -> Option<u64> {
        let len = (self.to - self.from).max(3) - 2;
        if self.turns <= 2 * MOST && self.turns as usize * len <= LONGEST_WHOLE {
            return Some(self.turns);
        }
        let room = (LONGEST / len) as u64;
        (2..=room.min(MOST)).rev().find(|n| self.turns.is_multiple_of(*n))
    }
}

fn may_repeat(i: &Flat) -> bool {
    use Opcode::*;
    !matches!(i.op, Brx | Call | Trap | Addc | Subc | Madc | Wgmma | Setmaxnreg | Mbarrier) && !i.has("cc")
}

/// The constant that a register has when control falls into a label.
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

/// What a block does to each register. The comparison's read of the counter is not counted.
fn uses(block: &[Item], registers: usize, (test, counter): (usize, Reg)) -> Vec<Use> {
    let mut uses = vec![UNUSED; registers];
    for (k, i) in block.iter().enumerate().filter_map(|(k, item)| Some((k, inst(item)?))) {
        let grown = grows(i);
        let at = k as u32;
        touches(i, &mut |r, write| {
            let u = &mut uses[r as usize];
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
    for u in &mut uses {
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
            let u = uses[*d as usize];
            if u.own() && u.writes == 1 {
                uses[*d as usize].delta = delta(i, &uses);
            }
        }
    }
    uses
}

/// How much an instruction's result grows from turn to turn, if that is known.
fn delta(i: &Flat, uses: &[Use]) -> Option<i64> {
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
        Opd::Reg(r) | Opd::Not(r) => uses[*r as usize].delta,
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

/// Writes the copies of a loop's block.
struct Copies<'a, 'b> {
    l: &'b Loop,
    store: &'a Store<'a>,
    types: &'b mut Vec<Type>,
    block: &'b [Item<'a>],
    /// All turns: no loop is left.
    whole: bool,
    times: u64,
    out: &'b mut Vec<Item<'a>>,
}

impl<'a> Copies<'a, '_> {
    fn all(&mut self) {
        // The registers that count, as they were before the first copy.
        let mut first: Vec<(Reg, Reg, u32, i64)> = vec![];
        for (r, u) in self.l.uses.iter().enumerate() {
            if let Some((at, by)) = u.step {
                first.push((r as Reg, 0, at, by));
            }
        }
        for (r, before, ..) in &mut first {
            *before = fresh(self.types, *r);
            let (op, mods) = (Opcode::Mov, if self.types[*r as usize].bits() == 64 { &MOVE64 } else { &MOVE32 });
            let from = match self.whole && *r == self.l.counter {
                true => Opd::Imm(Imm::Int(self.l.start)),
                false => Opd::Reg(*r),
            };
            self.out.push(plain(op, mods, [Opd::Reg(*before), from].into_iter()));
        }
        let mut base: Vec<Option<Reg>> = vec![];
        for n in 0..self.times {
            let mut names: Vec<Option<Reg>> = vec![None; self.l.uses.len()];
            for (r, before, _, by) in &first {
                names[*r as usize] = Some(match (n, self.whole && *r == self.l.counter) {
                    (0, _) => *before,
                    (_, true) => {
                        let value = self.l.start.wrapping_add(by.wrapping_mul(n as i64));
                        let now = fresh(self.types, *r);
                        self.out.push(plain(
                            Opcode::Mov,
                            &MOVE32,
                            [Opd::Reg(now), Opd::Imm(Imm::Int(value))].into_iter(),
                        ));
                        now
                    }
                    _ => self.grown(*r, *before, by.wrapping_mul(n as i64)),
                });
            }
            self.copy(n, &mut names, &base);
            if n == 0 {
                base = names;
            }
        }
        for (r, before, _, by) in &first {
            let by = by.wrapping_mul(self.times as i64);
            if !self.whole || self.l.outside[*r as usize] {
                let sum = self.sum(*r, *before, by);
                self.out.push(sum);
            }
        }
        if !self.whole {
            self.out.extend(self.block.get(self.l.test as usize).cloned());
        }
    }

    /// One turn; `base` are the first one's names.
    fn copy(&mut self, n: u64, names: &mut [Option<Reg>], base: &[Option<Reg>]) {
        let (last, l) = (n + 1 == self.times, self.l);
        let uses = &l.uses;
        for (k, item) in self.block.iter().enumerate() {
            let Item::Inst(i) = item else { continue };
            let counts = grows(i).is_some_and(|(r, _)| uses[r as usize].step.is_some());
            if counts || k as u32 == l.test {
                continue;
            }
            // What follows from the first copy.
            if let Some(Opd::Reg(d)) = i.opds.first().filter(|_| n > 0 && i.results() == 1)
                && let Use { delta: Some(by), writes: 1, step: None, .. } = uses[*d as usize]
                && !l.outside[*d as usize]
            {
                let before = base[*d as usize].unwrap_or(*d);
                let by = by.wrapping_mul(n as i64);
                let now = if by == 0 { before } else { self.grown(*d, before, by) };
                names[*d as usize] = Some(now);
                continue;
            }
            let mut copy = i.clone();
            let results = i.results();
            let mut rename = |r: &mut Reg, write: bool| {
                let u = &uses[*r as usize];
                let keeps = if l.outside[*r as usize] { last } else { n == 0 };
                if write && u.own() && u.first_write == k as u32 && !keeps {
                    names[*r as usize] = Some(fresh(self.types, *r));
                }
                *r = names[*r as usize].unwrap_or(*r);
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
        let (mods, by) = if wide { (&SUM64, by) } else { (&SUM32, i64::from(by as i32)) };
        plain(Opcode::Add, mods, [Opd::Reg(to), Opd::Reg(from), Opd::Imm(Imm::Int(by))].into_iter())
    }
}

fn plain<'a>(op: Opcode, mods: &'static [Modifier; 1], opds: impl Iterator<Item = Opd<'a>>) -> Item<'a> {
    Item::Inst(Flat::new(Default::default(), op, &mods[..], opds.collect()))
}

fn fresh(types: &mut Vec<Type>, like: Reg) -> Reg {
    types.push(types[like as usize]);
    types.len() as Reg - 1
}

/// Calls `f` with each register of an operand.
fn each_mut<'a>(o: &mut Opd<'a>, store: &'a Store<'a>, f: &mut impl FnMut(&mut Reg)) {
    let Ok(()) = o.map::<Infallible>(store, &mut |o| {
        if let Opd::Reg(r) | Opd::Not(r) = o {
            f(r);
        }
        Ok(())
    });
}
