//! Cases by hand, random programs, and mutations that the checker must detect.

use super::*;
use proptest::prelude::*;

const G: Class = Class(0);
const PAIR: Class = Class(1);

/// One file of `n` registers with a single and an aligned pair class.
fn regs(n: u16) -> RegInfo {
    let class =
        |name, width, align| RegClass { name, file: 0, width, align, slot_bytes: 8 * u32::from(width), slot_align: 8 };
    RegInfo {
        files: vec![RegFile { name: "r", count: n, order: (0..n).collect() }],
        classes: vec![class("single", 1, 1), class("pair", 2, 2)],
    }
}

fn r(index: u16) -> PReg {
    PReg { file: 0, index }
}

fn def(f: &mut Func, class: Class) -> VReg {
    let v = f.vreg(class);
    f.push(Kind::Plain, Flow::Next, &[Operand::writes(v)], &[]);
    v
}

fn constant(f: &mut Func) -> VReg {
    let v = f.vreg(G);
    f.push(Kind::Remat, Flow::Next, &[Operand::writes(v)], &[]);
    v
}

fn reads(f: &mut Func, vs: &[VReg]) -> u32 {
    let ops: Vec<Operand> = vs.iter().map(|v| Operand::reads(*v)).collect();
    f.push(Kind::Plain, Flow::Next, &ops, &[])
}

fn plain(f: &mut Func, flow: Flow) -> u32 {
    f.push(Kind::Plain, flow, &[], &[])
}

fn done(f: &Func, n: u16) -> Allocation {
    allocate(f, &regs(n)).unwrap()
}

fn reg_of(f: &Func, a: &Allocation, inst: u32, operand: usize) -> u16 {
    match a.operands[f.operand_range(inst).start + operand] {
        Loc::Reg(p) => p.index,
        Loc::Slot(s) => panic!("slot {s}"),
    }
}

#[test]
fn values_that_fit_get_no_edits() {
    let mut f = Func::default();
    let vs: Vec<VReg> = (0..4).map(|_| def(&mut f, G)).collect();
    reads(&mut f, &vs);
    plain(&mut f, Flow::Return);
    let a = done(&f, 4);
    assert!(a.edits.is_empty() && a.frame.slots.is_empty());
}

#[test]
fn one_value_too_many_is_spilled_and_reloaded() {
    let mut f = Func::default();
    let vs: Vec<VReg> = (0..5).map(|_| def(&mut f, G)).collect();
    reads(&mut f, &vs[..3]);
    reads(&mut f, &vs[2..]);
    plain(&mut f, Flow::Return);
    let a = done(&f, 4);
    assert_eq!(a.frame.slots.len(), 1);
    assert_eq!(a.edits.len(), 2, "one store, one reload: {:?}", a.edits);
}

#[test]
fn value_not_used_in_a_loop_leaves_around_the_whole_loop() {
    let mut f = Func::default();
    let outside: Vec<VReg> = (0..3).map(|_| def(&mut f, G)).collect();
    let inside: Vec<VReg> = (0..3).map(|_| def(&mut f, G)).collect();
    let top = f.label();
    let header = plain(&mut f, Flow::Label(top));
    f.push(
        Kind::Plain,
        Flow::Next,
        &[Operand::modifies(inside[0]), Operand::reads(inside[1]), Operand::reads(inside[2])],
        &[],
    );
    let latch = f.push(Kind::Plain, Flow::Branch(top), &[Operand::reads(inside[0])], &[]);
    reads(&mut f, &outside);
    plain(&mut f, Flow::Return);
    let a = done(&f, 4);
    assert!(a.edge_edits.is_empty());
    assert!(a.edits.iter().all(|(i, _)| *i <= header || *i > latch), "edits in the loop: {:?}", a.edits);
    assert_eq!(a.edits.len(), 4, "two values go and come back");
}

#[test]
fn constants_are_repeated_instead_of_spilled() {
    let mut f = Func::default();
    let c = constant(&mut f);
    let vs: Vec<VReg> = (0..3).map(|_| def(&mut f, G)).collect();
    reads(&mut f, &vs);
    reads(&mut f, &[c]);
    plain(&mut f, Flow::Return);
    let a = done(&f, 3);
    assert!(a.frame.slots.is_empty());
    assert!(matches!(a.edits[..], [(_, Edit::Remat { inst: 0, .. })]), "{:?}", a.edits);
}

#[test]
fn operand_that_may_be_memory_is_read_from_its_slot() {
    let mut f = Func::default();
    let far = def(&mut f, G);
    let vs: Vec<VReg> = (0..2).map(|_| def(&mut f, G)).collect();
    reads(&mut f, &vs);
    let soft = Operand { constraint: Constraint::RegOrSlot, ..Operand::reads(far) };
    let at = f.push(Kind::Plain, Flow::Next, &[Operand::reads(vs[0]), Operand::reads(vs[1]), soft], &[]);
    plain(&mut f, Flow::Return);
    let a = done(&f, 2);
    assert_eq!(a.operands[f.operand_range(at).start + 2], Loc::Slot(0));
    assert_eq!(a.edits.len(), 1, "the store alone: {:?}", a.edits);
}

#[test]
fn copy_takes_the_register_of_its_dying_source() {
    let mut f = Func::default();
    let a0 = def(&mut f, G);
    let other = def(&mut f, G);
    let b = f.vreg(G);
    let copy = f.push(Kind::Copy, Flow::Next, &[Operand::writes(b), Operand::reads(other)], &[]);
    reads(&mut f, &[a0, b]);
    plain(&mut f, Flow::Return);
    let a = done(&f, 4);
    assert_eq!(reg_of(&f, &a, copy, 0), reg_of(&f, &a, copy, 1));
}

#[test]
fn fixed_operands_get_their_registers_and_survivors_keep_clear() {
    let mut f = Func::default();
    let x = f.vreg(G);
    f.push(Kind::Plain, Flow::Next, &[Operand::writes(x).fixed(r(1))], &[]);
    let keep = def(&mut f, G);
    let q = f.vreg(G);
    let div =
        f.push(Kind::Plain, Flow::Next, &[Operand::writes(q).fixed(r(0)), Operand::reads(x).fixed(r(0))], &[r(2)]);
    reads(&mut f, &[keep, q, x]);
    plain(&mut f, Flow::Return);
    let a = done(&f, 4);
    assert_eq!((reg_of(&f, &a, div, 0), reg_of(&f, &a, div, 1)), (0, 0));
}

#[test]
fn swap_in_a_loop_is_correct() {
    let mut f = Func::default();
    let (a, b) = (def(&mut f, G), def(&mut f, G));
    let t = f.vreg(G);
    let top = f.label();
    plain(&mut f, Flow::Label(top));
    for (to, from) in [(t, a), (a, b), (b, t)] {
        f.push(Kind::Copy, Flow::Next, &[Operand::writes(to), Operand::reads(from)], &[]);
    }
    plain(&mut f, Flow::Branch(top));
    reads(&mut f, &[a, b]);
    plain(&mut f, Flow::Return);
    done(&f, 3);
}

#[test]
fn pairs_are_aligned_beside_singles() {
    let mut f = Func::default();
    let s: Vec<VReg> = (0..3).map(|_| def(&mut f, G)).collect();
    let p: Vec<VReg> = (0..2).map(|_| def(&mut f, PAIR)).collect();
    let at = reads(&mut f, &[p[0], p[1], s[0], s[1], s[2]]);
    plain(&mut f, Flow::Return);
    let a = done(&f, 8);
    assert!(a.edits.is_empty());
    assert_eq!((reg_of(&f, &a, at, 0) % 2, reg_of(&f, &a, at, 1) % 2), (0, 0));
}

#[test]
fn accumulators_stay_in_registers_when_a_loop_just_fits() {
    let mut f = Func::default();
    let acc: Vec<VReg> = (0..12).map(|_| def(&mut f, G)).collect();
    let top = f.label();
    plain(&mut f, Flow::Label(top));
    let b: Vec<VReg> = (0..2).map(|_| def(&mut f, G)).collect();
    for chunk in acc.chunks(2) {
        let x = def(&mut f, G);
        for (a, b) in chunk.iter().zip(&b) {
            f.push(Kind::Plain, Flow::Next, &[Operand::modifies(*a), Operand::reads(*b), Operand::reads(x)], &[]);
        }
    }
    plain(&mut f, Flow::Branch(top));
    reads(&mut f, &acc[..8]);
    reads(&mut f, &acc[4..]);
    plain(&mut f, Flow::Return);
    let a = done(&f, 15);
    assert!(a.edits.is_empty(), "{:?}", a.edits);
}

#[test]
fn invariants_beyond_the_registers_cost_one_reload_a_turn() {
    let mut f = Func::default();
    let inv: Vec<VReg> = (0..5).map(|_| def(&mut f, G)).collect();
    let top = f.label();
    let header = plain(&mut f, Flow::Label(top));
    for v in &inv {
        let t = f.vreg(G);
        f.push(Kind::Plain, Flow::Next, &[Operand::writes(t), Operand::reads(*v)], &[]);
        reads(&mut f, &[t]);
    }
    let latch = plain(&mut f, Flow::Branch(top));
    plain(&mut f, Flow::Return);
    let a = done(&f, 4);
    let inside = a.edits.iter().filter(|(i, _)| *i > header && *i <= latch).count();
    assert!(a.edge_edits.is_empty(), "{:?}", a.edge_edits);
    assert!(inside <= 2, "{:?}", a.edits);
}

#[test]
fn reading_what_no_path_wrote_is_an_error() {
    let mut f = Func::default();
    let v = f.vreg(G);
    reads(&mut f, &[v]);
    plain(&mut f, Flow::Return);
    assert_eq!(allocate(&f, &regs(4)).unwrap_err(), RegAllocError::Undefined { vreg: 0 });
}

#[test]
fn an_instruction_with_too_many_operands_is_an_error() {
    let mut f = Func::default();
    let vs: Vec<VReg> = (0..3).map(|_| def(&mut f, G)).collect();
    reads(&mut f, &vs);
    plain(&mut f, Flow::Return);
    assert!(matches!(allocate(&f, &regs(2)), Err(RegAllocError::NoRegister { class: "single", .. })));
}

#[test]
fn a_jump_to_nowhere_is_an_error() {
    let mut f = Func::default();
    let l = f.label();
    plain(&mut f, Flow::Jump(l));
    assert_eq!(allocate(&f, &regs(2)).unwrap_err(), RegAllocError::NoLabel { label: 0, inst: 0 });
}

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

/// Generates a random program.
struct Gen {
    f: Func,
    rng: Rng,
    /// Values written on every path so far.
    known: Vec<VReg>,
    tuples: bool,
    fixed: bool,
    registers: u16,
}

impl Gen {
    fn pick(&mut self) -> VReg {
        self.known[self.rng.next(self.known.len() as u64) as usize]
    }

    fn class(&mut self) -> Class {
        if self.tuples && self.rng.next(4) == 0 { PAIR } else { G }
    }

    /// Generates some instructions, loops and conditions.
    fn body(&mut self, size: u64, depth: u32) {
        for _ in 0..size {
            match self.rng.next(12) {
                0 if depth < 3 => self.repeat(size / 2, depth),
                1 if depth < 4 => self.condition(size / 2, depth),
                2 if self.fixed => self.divide(),
                3 => self.copy(),
                4 => {
                    let v = self.f.vreg(G);
                    self.f.push(Kind::Remat, Flow::Next, &[Operand::writes(v)], &[]);
                    self.known.push(v);
                }
                _ => self.compute(),
            }
        }
    }

    fn compute(&mut self) {
        let mut ops = Vec::new();
        for _ in 0..self.rng.next(3) {
            let v = self.pick();
            ops.push(Operand::reads(v));
        }
        if let Some(last) = ops.last_mut().filter(|_| self.rng.next(4) == 0) {
            last.constraint = Constraint::RegOrSlot;
        } else if let Some(last) = ops.last_mut().filter(|_| self.rng.next(6) == 0) {
            last.role = Role::UseLate;
        }
        match self.rng.next(4) {
            0 => {
                let v = self.pick();
                ops.insert(0, Operand::modifies(v));
                ops.dedup_by(|a, b| a.vreg == b.vreg);
                ops.retain({
                    let mut first = true;
                    move |o| std::mem::take(&mut first) || o.vreg != v
                });
            }
            1 if self.f.len() > 4 => {
                let v = self.pick(); // an old value written anew
                let early = self.rng.next(4) == 0 && ops.iter().all(|o| o.vreg != v);
                let role = if early { Role::DefEarly } else { Role::Def };
                ops.retain(|o| o.role != Role::UseLate || o.vreg != v);
                ops.insert(0, Operand { role, ..Operand::writes(v) });
            }
            _ => {
                let class = self.class();
                let v = self.f.vreg(class);
                ops.insert(0, Operand::writes(v));
                self.known.push(v);
            }
        }
        // A constant is written once: a second write makes it an ordinary value.
        self.f.push(Kind::Plain, Flow::Next, &ops, &[]);
    }

    fn copy(&mut self) {
        let from = self.pick();
        let class = self.f.class(from);
        let to = self.f.vreg(class);
        self.f.push(Kind::Copy, Flow::Next, &[Operand::writes(to), Operand::reads(from)], &[]);
        self.known.push(to);
    }

    /// An instruction with fixed inputs and results, like the x86 division.
    fn divide(&mut self) {
        let singles: Vec<VReg> = self.known.iter().copied().filter(|v| self.f.class(*v) == G).collect();
        if singles.is_empty() {
            return;
        }
        let x = singles[self.rng.next(singles.len() as u64) as usize];
        let q = self.f.vreg(G);
        let (hi, clobber) = (r(1), r(2));
        let ops = [Operand::writes(q).fixed(hi), Operand::reads(x).fixed(r(0))];
        let clobbers: &[PReg] = if self.rng.next(2) == 0 { &[clobber] } else { &[] };
        self.f.push(Kind::Plain, Flow::Next, &ops, clobbers);
        self.known.push(q);
    }

    fn repeat(&mut self, size: u64, depth: u32) {
        let top = self.f.label();
        self.f.push(Kind::Plain, Flow::Label(top), &[], &[]);
        self.body(size, depth + 1);
        let v = self.pick();
        self.f.push(Kind::Plain, Flow::Branch(top), &[Operand::reads(v)], &[]);
    }

    fn condition(&mut self, size: u64, depth: u32) {
        let (other, end) = (self.f.label(), self.f.label());
        let v = self.pick();
        self.f.push(Kind::Plain, Flow::Branch(other), &[Operand::reads(v)], &[]);
        let known = self.known.len();
        self.body(size, depth + 1);
        self.known.truncate(known);
        if self.rng.next(2) == 0 {
            self.f.push(Kind::Plain, Flow::Jump(end), &[], &[]);
            self.f.push(Kind::Plain, Flow::Label(other), &[], &[]);
            self.body(size / 2, depth + 1);
            self.known.truncate(known);
            self.f.push(Kind::Plain, Flow::Label(end), &[], &[]);
        } else {
            self.f.push(Kind::Plain, Flow::Label(other), &[], &[]);
        }
    }
}

fn random(seed: u64, size: u64, registers: u16, tuples: bool, fixed: bool) -> Func {
    let mut g = Gen { f: Func::default(), rng: Rng(seed), known: Vec::new(), tuples, fixed, registers };
    for _ in 0..3 {
        let class = g.class();
        let v = def(&mut g.f, class);
        g.known.push(v);
    }
    g.body(size, 0);
    // Read many values at the end, a few at a time.
    let known = g.known.clone();
    for vs in known.chunks(usize::from(g.registers / 4).max(1)) {
        reads(&mut g.f, vs);
    }
    plain(&mut g.f, Flow::Return);
    g.f
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_with_few_registers_pass_the_checker(seed in any::<u64>(), size in 1u64..40, registers in 5u16..9) {
        let f = random(seed, size, registers, false, false);
        let a = allocate(&f, &regs(registers));
        prop_assert!(a.is_ok(), "{:?}", a.err());
        prop_assert_eq!(check(&f, &regs(registers), &a.unwrap()), Ok(()));
    }

    #[test]
    fn random_programs_with_fixed_registers_pass_the_checker(seed in any::<u64>(), size in 1u64..40, registers in 7u16..12) {
        let f = random(seed, size, registers, false, true);
        let a = allocate(&f, &regs(registers));
        prop_assert!(a.is_ok(), "{:?}", a.err());
    }

    #[test]
    fn random_programs_with_pairs_pass_the_checker(seed in any::<u64>(), size in 1u64..40, registers in 5u16..9) {
        let registers = registers * 2;
        let f = random(seed, size, registers, true, registers > 12);
        let a = allocate(&f, &regs(registers));
        prop_assert!(a.is_ok(), "{:?}", a.err());
    }

    #[test]
    fn one_pass_over_whole_lives_gives_what_the_four_steps_give(
        seed in any::<u64>(), size in 1u64..40, registers in 3u16..24, pairs in any::<bool>()
    ) {
        let (f, regs) = (random(seed, size, 6, pairs, false), regs(2 * registers));
        let known = Analysis::new(&f).unwrap();
        let mut pieces = spill::Pieces::new(&f, &regs, &known.live, &known.taken);
        let placed = color::color(&mut pieces, &known.hints, false).unwrap();
        match known.scanned(&regs) {
            Scanned::Unsplit(one) => {
                let (one, four) = (one.allocation(&f, &regs), known.in_pieces(&regs).unwrap());
                prop_assert_eq!((one.operands, one.written), (four.operands, four.written));
                prop_assert!(placed && four.edits.is_empty() && four.edge_edits.is_empty());
            }
            Scanned::Full => prop_assert!(!placed),
            Scanned::NeedsSplit => prop_assert!(!placed || pieces.was_split),
        }
    }

    #[test]
    fn registers_to_spare_are_taken_only_by_values_that_find_no_other(
        seed in any::<u64>(), size in 1u64..40, registers in 3u16..12, spare in 0u16..12, pairs in any::<bool>()
    ) {
        let (f, few, most) = (random(seed, size, 6, pairs, false), 2 * registers, 2 * (registers + spare));
        let known = Analysis::new(&f).unwrap();
        let values = Values { classes: &f.vregs, ranges: &known.live.ranges, points: 2 * f.len() + 2 };
        let alone = |n| allocate_unsplit(values, &[], &regs(n), &[]);
        let mut both = regs(few);
        both.files[0].count = most;
        let spared = allocate_unsplit(values, &[], &both, std::slice::from_ref(&(few..most)));
        match (alone(few), spared) {
            (Some(alone), spared) => {
                let spared = spared.unwrap();
                prop_assert!((0..f.vreg_count() as u32).all(|v| alone.register(VReg(v)) == spared.register(VReg(v))));
            }
            (None, Some(spared)) => {
                let spared = spared.allocation(&f, &both);
                prop_assert!(spared.written.iter().any(|r| r.file == 0 && (few..most).contains(&r.index)));
                prop_assert_eq!(check(&f, &regs(most), &spared), Ok(()));
            }
            (None, None) => {}
        }
    }

    #[test]
    fn a_corrupted_allocation_fails_the_checker(seed in any::<u64>(), size in 4u64..20, which in any::<u64>()) {
        let f = random(seed, size, 5, false, false);
        let good = allocate(&f, &regs(5)).unwrap();
        let mut bad = good.clone();
        let reads: Vec<usize> = (0..f.operands.len()).filter(|o| f.operands[*o].role.reads()).collect();
        // Make an operand read another register than the one that holds it.
        let o = reads[(which % reads.len() as u64) as usize];
        let Loc::Reg(p) = bad.operands[o] else { return Ok(()) };
        bad.operands[o] = Loc::Reg(r((p.index + 1) % 5));
        let copies_agree = check(&f, &regs(5), &bad).is_ok();
        // Two registers may hold the same value only after a copy or a reload.
        prop_assert!(!copies_agree || !good.edits.is_empty());
    }
}

/// The spilling example from which the tests below remove parts.
fn spilling() -> (Func, Allocation) {
    let mut f = Func::default();
    let vs: Vec<VReg> = (0..5).map(|_| def(&mut f, G)).collect();
    reads(&mut f, &vs[..4]);
    reads(&mut f, &[vs[4]]);
    reads(&mut f, &vs[1..]);
    plain(&mut f, Flow::Return);
    let a = done(&f, 4);
    (f, a)
}

#[test]
fn leaving_out_any_store_or_reload_is_found() {
    let (f, good) = spilling();
    assert!(good.edits.len() >= 2);
    for k in 0..good.edits.len() {
        let mut bad = good.clone();
        bad.edits.remove(k);
        assert!(check(&f, &regs(4), &bad).is_err(), "without {:?}", good.edits[k]);
    }
}

#[test]
fn slots_that_overlap_are_found() {
    let (f, mut bad) = spilling();
    bad.frame.slots.push(bad.frame.slots[0]);
    assert_eq!(
        check(&f, &regs(4), &bad).unwrap_err(),
        CheckError::BadSlot { slot: bad.frame.slots.len() as u32 - 1, why: "overlaps another" }
    );
}

#[test]
fn a_result_in_the_register_of_a_late_input_is_found() {
    let mut f = Func::default();
    let x = def(&mut f, G);
    let y = f.vreg(G);
    let late = Operand { role: Role::UseLate, ..Operand::reads(x) };
    f.push(Kind::Plain, Flow::Next, &[Operand::writes(y), late], &[]);
    plain(&mut f, Flow::Return);
    let mut bad = done(&f, 4);
    bad.operands[1] = bad.operands[2];
    assert!(matches!(
        check(&f, &regs(4), &bad),
        Err(CheckError::WrongPlace { inst: 1, why: "shares a register with another operand", .. })
    ));
}

#[test]
fn a_value_left_in_a_destroyed_register_is_found() {
    let mut f = Func::default();
    let x = def(&mut f, G);
    f.push(Kind::Plain, Flow::Next, &[], &[r(1)]);
    let at = reads(&mut f, &[x]);
    plain(&mut f, Flow::Return);
    let mut bad = done(&f, 4);
    bad.operands = vec![Loc::Reg(r(1)); 2];
    assert_eq!(
        check(&f, &regs(4), &bad).unwrap_err(),
        CheckError::WrongValue { inst: at, vreg: 0, loc: Loc::Reg(r(1)) }
    );
}

#[test]
fn a_stale_copy_from_before_the_loop_is_found() {
    let mut f = Func::default();
    let x = def(&mut f, G);
    let old = f.vreg(G);
    f.push(Kind::Copy, Flow::Next, &[Operand::writes(old), Operand::reads(x)], &[]);
    let top = f.label();
    plain(&mut f, Flow::Label(top));
    let at = f.push(Kind::Plain, Flow::Next, &[Operand::modifies(x)], &[]);
    plain(&mut f, Flow::Branch(top));
    reads(&mut f, &[x, old]);
    plain(&mut f, Flow::Return);
    let mut bad = done(&f, 4);
    let last = bad.operands.len();
    bad.operands.swap(last - 1, last - 2);
    assert!(matches!(check(&f, &regs(4), &bad), Err(CheckError::WrongValue { inst, .. }) if inst > at));
}

/// A long kernel body: allocation stays far below a millisecond in release builds (measured by the bench, not here).
#[test]
fn two_thousand_instructions_in_a_loop_are_allocated() {
    let f = long_kernel();
    assert!(f.len() > 1800);
    done(&f, 16);
}

fn long_kernel() -> Func {
    let mut f = Func::default();
    let acc: Vec<VReg> = (0..12).map(|_| def(&mut f, G)).collect();
    let top = f.label();
    plain(&mut f, Flow::Label(top));
    for k in 0..600 {
        let x = def(&mut f, G);
        let y = f.vreg(G);
        f.push(Kind::Plain, Flow::Next, &[Operand::writes(y), Operand::reads(x)], &[]);
        f.push(Kind::Plain, Flow::Next, &[Operand::modifies(acc[k % 12]), Operand::reads(x), Operand::reads(y)], &[]);
    }
    plain(&mut f, Flow::Branch(top));
    reads(&mut f, &acc);
    plain(&mut f, Flow::Return);
    f
}
