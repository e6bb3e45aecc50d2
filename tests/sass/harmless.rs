//! Why a damaged schedule does no harm: every path from every instruction of variable latency, walked to its end.
//!
//! The checker keeps one state at each position and joins where paths meet. This test follows one instruction in flight
//! at a time and walks all paths from it (calls with their return addresses) until a wait covers it or its lanes end.
//! Nothing is joined and nothing is forgotten, so registers that no path accesses are never accessed. The rules that
//! both rely on are those of docs/sass.md: which instructions complete, or read their sources, in order.

use doorbell::isa::sass::{
    Access, Completion, Control, Effects, Instruction, Pipe, RegFile, Role, Slot, Value, completion, effects,
    reads_late,
};
use std::collections::{BTreeMap, BTreeSet};

/// The queues in whose order instructions end or read: a pipe, or a mnemonic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Xu,
    Shared,
    Memory,
    Of(&'static str),
}

struct Line {
    inst: Instruction,
    effects: Effects,
    waited: bool,
    late: bool,
    ends: Option<Queue>,
    reads: Option<Queue>,
}

impl Line {
    fn of(inst: &Instruction) -> Line {
        let form = inst.form();
        let waited = completion(inst) != Completion::Fixed || inst.control.write.is_some();
        let ends = match form.pipe {
            Pipe::Xu => Some(Queue::Xu),
            Pipe::Shared => Some(Queue::Shared),
            _ if form.mnemonic == "SHFL" => Some(Queue::Shared),
            _ if waited && ["S2UR", "B2R", "SYNCS", "REDUX"].contains(&form.mnemonic) => Some(Queue::Of(form.mnemonic)),
            _ => None,
        };
        let reads = if matches!(form.pipe, Pipe::Shared | Pipe::Global) { Some(Queue::Memory) } else { ends };
        let late = reads_late(inst) || waited && inst.control.read.is_some();
        Line { inst: *inst, effects: effects(inst), waited, late, ends, reads }
    }

    /// Matrices of a warpgroup wait for groups, which no damage here touches.
    fn is_followed(&self) -> bool {
        let sources = self.late && !self.effects.reads.is_empty();
        self.waited && self.inst.form().pipe != Pipe::Gmma && (sources || !self.effects.writes.is_empty())
    }

    fn reads_late_of(&self, file: RegFile, register: u8) -> bool {
        let late = file == RegFile::General || file == RegFile::Uniform && self.inst.form().pipe == Pipe::Bulk;
        late && has(&self.effects.reads, file, register)
    }

    fn lanes(&self) -> Option<(RegFile, u8, bool)> {
        let guard = self.effects.reads.iter().find(|r| r.slot == Slot::GUARD)?;
        Some((guard.file, guard.first, self.inst.guard.not))
    }
}

fn has(list: &[Access], file: RegFile, register: u8) -> bool {
    list.iter().any(|a| a.file == file && (a.first..=a.first.saturating_add(a.count - 1)).contains(&register))
}

fn each(list: &[Access]) -> impl Iterator<Item = (RegFile, u8)> + '_ {
    list.iter().flat_map(|a| (a.first..=a.first.saturating_add(a.count - 1)).map(|r| (a.file, r)))
}

/// Cycles since a scoreboard was set for the instruction in flight, up to the two that it takes; `NOT`: it does not
/// report it.
type Boards = [u8; 6];
const NOT: u8 = u8::MAX;
const SET: u8 = 2;

/// The instruction in flight, seen from a place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    at: usize,
    /// Where calls return to.
    returns: Vec<usize>,
    done: Boards,
    read: Boards,
    results: bool,
    sources: bool,
    lanes: Option<(RegFile, u8, bool)>,
}

/// The findings on the paths from an instruction.
#[derive(Clone, Default)]
pub struct Ways {
    /// Where a register of it is touched too early.
    pub touched: BTreeSet<usize>,
    /// Where a wait covered it.
    pub waited: BTreeSet<usize>,
    /// Some path ended before any wait.
    pub ended: bool,
    places: BTreeSet<usize>,
}

pub struct Code {
    lines: Vec<Line>,
    /// Each instruction with the returns that are open there.
    contexts: BTreeSet<(usize, Vec<usize>)>,
}

impl Code {
    pub fn of(code: &[Instruction]) -> Code {
        let mut all = Code { lines: code.iter().map(Line::of).collect(), contexts: BTreeSet::new() };
        let mut work = vec![(0, Vec::new())];
        while let Some((at, returns)) = work.pop() {
            if at < all.lines.len() && all.contexts.insert((at, returns.clone())) {
                work.extend(all.next(at, &returns));
            }
        }
        all
    }

    pub fn set_control(&mut self, at: usize, control: Control) {
        let mut inst = self.lines[at].inst;
        inst.control = control;
        self.lines[at] = Line::of(&inst);
    }

    /// Where control goes from a place.
    fn next(&self, at: usize, returns: &[usize]) -> Vec<(usize, Vec<usize>)> {
        let inst = &self.lines[at].inst;
        let target = || match inst.operand("t").map(|o| o.value) {
            Some(Value::Distance(bytes)) => usize::try_from(at as i64 + 1 + bytes / 16).ok(),
            _ => None,
        };
        let on = (at + 1, returns.to_vec());
        let to = || target().map(|t| (t, returns.to_vec()));
        let maybe = |slot| {
            inst.operand(slot)
                .is_some_and(|o| !matches!(o.value, Value::Predicate(None) | Value::UniformPredicate(None)))
        };
        let falls = inst.guard.index != 7 || inst.guard.not || maybe("pp") || maybe("up");
        let falls = falls || !inst.modifier("dv").is_empty();
        let (jump, stays) = match (inst.form().mnemonic, inst.form().name) {
            ("BRA", "DIV") | ("WARPSYNC", "CALL" | "CR") => (to(), true),
            ("BRA", _) => (to(), falls),
            ("CALL", "RELI") => (target().map(|t| (t, [returns, &[at + 1]].concat())), falls),
            ("RET", _) => (returns.split_last().map(|(last, rest)| (*last, rest.to_vec())), falls),
            ("EXIT" | "BRX" | "KILL", _) => (None, falls),
            _ => (None, true),
        };
        jump.into_iter().chain(stays.then_some(on)).collect()
    }

    /// The instructions that are in flight after their issue.
    pub fn flying(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.lines.len()).filter(|at| self.lines[*at].is_followed())
    }

    /// All paths of an instruction until it is known to be done.
    pub fn ways(&self, producer: usize) -> Ways {
        let (from, mut ways) = (&self.lines[producer], Ways::default());
        ways.places.insert(producer);
        let (mut seen, mut work) = (BTreeSet::new(), Vec::new());
        for (_, returns) in self.contexts.iter().filter(|c| c.0 == producer) {
            let board = |n: Option<u8>| std::array::from_fn(|b| if n == Some(b as u8) { 0 } else { NOT });
            let done: Boards = board(from.inst.control.write);
            let read = merged(done, board(from.inst.control.read));
            let sources = from.late && !from.effects.reads.is_empty();
            let results = !from.effects.writes.is_empty();
            let lanes = from.lanes();
            let mut start = Point { at: producer, returns: returns.clone(), done, read, results, sources, lanes };
            if self.passes(&mut start) {
                self.follow(&start, &mut ways, &mut work);
            }
        }
        while let Some(mut point) = work.pop() {
            if !seen.insert(point.clone()) {
                continue;
            }
            ways.places.insert(point.at);
            if self.waits(&mut point) {
                ways.waited.insert(point.at);
                continue;
            }
            if self.touches(from, &point) {
                ways.touched.insert(point.at);
            }
            self.joins(from, &mut point);
            if self.passes(&mut point) {
                self.follow(&point, &mut ways, &mut work);
            }
        }
        ways
    }

    fn follow(&self, point: &Point, ways: &mut Ways, work: &mut Vec<Point>) {
        let next = self.next(point.at, &point.returns);
        ways.ended |= next.is_empty();
        work.extend(next.into_iter().filter(|n| n.0 < self.lines.len()).map(|(at, returns)| Point {
            at,
            returns,
            ..point.clone()
        }));
    }

    /// The waits of the instruction; whether they cover the one in flight.
    fn waits(&self, point: &mut Point) -> bool {
        let inst = &self.lines[point.at].inst;
        let value = |slot| inst.get(slot, Role::Value).unwrap_or(0);
        let mut mask = inst.control.wait;
        if inst.form().mnemonic == "DEPBAR" {
            mask |= (value("l") & 0x3f) as u8;
            if inst.form().name == "LE" && value("n") == 0 {
                mask |= 1 << value("s");
            }
        }
        let signals = |boards: &Boards| (0..6).any(|b| mask >> b & 1 == 1 && boards[b] == SET);
        point.sources &= !signals(&point.read);
        signals(&point.done) || !point.results && !point.sources
    }

    fn touches(&self, from: &Line, point: &Point) -> bool {
        let me = &self.lines[point.at];
        let others = match (me.lanes(), point.lanes) {
            (Some((file, index, not)), Some(lanes)) => (file, index, !not) == lanes,
            _ => false,
        };
        if others {
            return false;
        }
        let reads = point.results && each(&me.effects.reads).any(|(f, r)| has(&from.effects.writes, f, r));
        let in_order = from.ends.is_some() && from.ends == me.ends;
        let load_before = from.reads.is_some() && from.reads == me.reads && !from.effects.writes.is_empty();
        let overwrites = |(f, r)| {
            point.results && has(&from.effects.writes, f, r)
                || point.sources && from.reads_late_of(f, r) && !load_before
        };
        reads || !in_order && each(&me.effects.writes).any(overwrites)
    }

    /// The completion of an instruction after it in a queue implies its own.
    fn joins(&self, from: &Line, point: &mut Point) {
        let me = &self.lines[point.at];
        for (file, register) in each(&me.effects.writes) {
            point.lanes = point.lanes.filter(|l| (l.0, l.1) != (file, register));
        }
        if !me.waited {
            return;
        }
        let control = me.inst.control;
        let mut mark = |boards: fn(&mut Point) -> &mut Boards, board: Option<u8>| {
            if let Some(age) = board.map(|b| &mut boards(point)[usize::from(b)]).filter(|a| **a == NOT) {
                *age = 0;
            }
        };
        if from.ends.is_some() && from.ends == me.ends {
            mark(|p| &mut p.done, control.write);
        }
        if from.reads.is_some() && from.reads == me.reads {
            mark(|p| &mut p.read, control.write);
            mark(|p| &mut p.read, control.read);
        }
    }

    /// Time until the next instruction; false: it issues when all is done.
    fn passes(&self, point: &mut Point) -> bool {
        let control = self.lines[point.at].inst.control;
        if control.stall == 0 && control.yields && control.write.is_none() && control.read.is_none() {
            return false;
        }
        for age in point.done.iter_mut().chain(&mut point.read).filter(|a| **a < SET) {
            *age = (*age + control.stall.max(1)).min(SET);
        }
        true
    }
}

fn merged(a: Boards, b: Boards) -> Boards {
    std::array::from_fn(|i| a[i].min(b[i]))
}

/// Why a damage does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// What it waited for, or reported, is known to be done by something else at the same position, or is nothing.
    Nothing,
    /// Its registers are not touched before a later wait.
    LaterWait,
    /// On some path they are not accessed at all before the lanes end.
    NeverTouched,
}

/// Paths of the sound code, with which damaged code is compared.
pub struct Proof {
    code: Code,
    sound: BTreeMap<usize, Ways>,
}

impl Proof {
    pub fn of(code: &[Instruction]) -> Proof {
        let code = Code::of(code);
        let sound = code.flying().map(|p| (p, code.ways(p))).collect();
        Proof { code, sound }
    }

    /// Places where the sound code touches something too early.
    pub fn touched(&self) -> BTreeSet<(usize, usize)> {
        self.sound.iter().flat_map(|(p, ways)| ways.touched.iter().map(|at| (*p, *at))).collect()
    }

    /// Another control word at a place: why it does no harm; `None`: something is touched too early.
    pub fn harmless(&mut self, at: usize, control: Control) -> Option<Reason> {
        let good = self.code.lines[at].inst.control;
        self.code.set_control(at, control);
        let mut reason = Some(Reason::Nothing);
        let followed: BTreeSet<usize> = self.code.flying().filter(|p| *p == at).collect();
        // An instruction whose paths do not pass the position has the same paths as before.
        let near = self.sound.iter().filter(|(_, ways)| ways.places.contains(&at)).map(|w| *w.0);
        for producer in near.chain(followed).collect::<BTreeSet<_>>() {
            let (old, new) = (self.sound.get(&producer), self.code.ways(producer));
            let more = match old {
                _ if !new.touched.is_empty() => None,
                Some(old) if old.waited == new.waited && old.ended == new.ended => Some(Reason::Nothing),
                _ if new.ended => Some(Reason::NeverTouched),
                _ => Some(Reason::LaterWait),
            };
            reason = reason.zip(more).map(|(a, b)| a.max(b));
        }
        self.code.set_control(at, good);
        reason
    }
}
