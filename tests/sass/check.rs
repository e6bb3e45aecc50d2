//! The checker of schedules: silent on compiled code, and what it finds when a schedule is damaged in one place.

use crate::compiled::module;
use crate::harmless::{Proof, Reason};
use crate::nvidia::ptxas;
use doorbell::elf::cubin::Cubin;
use doorbell::isa::sass::check::{Checker, Hazard, Kind, Trust, check, check_for};
use doorbell::isa::sass::{
    Completion, Control, Instruction, Pipe, RegFile, SmArch, assemble, assemble_for, completion, decode, distance,
    effects,
};
use std::collections::BTreeMap;

/// Kernels by name.
fn kernels(cubin: &[u8]) -> Vec<(String, Vec<u128>)> {
    let cubin = Cubin::parse(cubin).expect("a cubin");
    let words = |k| cubin.code(k).as_chunks::<16>().0.iter().map(|w| u128::from_le_bytes(*w)).collect();
    cubin.kernels.iter().map(|k| (k.name.clone(), words(k))).collect()
}

fn tensor() -> Vec<(String, Vec<u128>)> {
    kernels(&ptxas(include_str!("../data/sass/tensor.ptx"), "-O3"))
}

#[test]
fn schedules_of_ptxas_are_sound_at_every_level() {
    let random = module(0x5a55_4001, 6);
    let mut all = tensor();
    for level in ["-O0", "-O1", "-O2", "-O3"] {
        all.extend(kernels(&ptxas(&random, level)));
    }
    let mut count = 0;
    for (name, words) in all {
        count += words.len();
        let found = check(&words, Trust::Seen).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(found.is_empty(), "{name}: {}", found.iter().map(Hazard::to_string).collect::<Vec<_>>().join("\n"));
    }
    println!("{count} instructions");
    assert!(count > 10_000, "{count}");
}

fn hazards(listing: &str) -> Vec<String> {
    hazards_on(SmArch::Sm90, listing)
}

fn hazards_on(chip: SmArch, listing: &str) -> Vec<String> {
    let words = assemble_for(listing, chip).unwrap_or_else(|e| panic!("{e}"));
    check_for(&words, chip, Trust::Seen).expect("instructions").iter().map(Hazard::to_string).collect()
}

#[test]
fn each_kind_of_fault_is_named_with_its_place() {
    let early = hazards("[B------:R-:W-:-:S03] IADD3 R0, R1, R2, R3 ;\n[B------:R-:W-:-:S05] IADD3 R4, R0, R2, R3 ;");
    assert_eq!(early, ["instruction 1: R0 of instruction 0: read 3 cycles later, at least 4 are needed"]);
    let load = "[B------:R0:W1:-:S02] LDG.E R4, desc[UR4][R2.64] ;\n";
    let with = |line: &str| hazards(&format!("{load}{line}"));
    assert_eq!(
        with("[B------:R-:W-:-:S05] IADD3 R5, R4, R6, R7 ;"),
        ["instruction 1: R4 of instruction 0: read without a wait for it"]
    );
    assert_eq!(
        with("[B------:R-:W-:-:S05] MOV R4, R6 ;"),
        ["instruction 1: R4 of instruction 0: overwritten without a wait for it"]
    );
    assert_eq!(
        with("[B------:R-:W-:-:S05] MOV R2, R6 ;"),
        ["instruction 1: R2 of instruction 0: overwritten while it may not have been read"]
    );
    assert!(with("[B-1----:R-:W-:-:S05] IADD3 R2, R4, R6, R7 ;").is_empty());
    assert!(with("[B0-----:R-:W-:-:S05] MOV R2, R6 ;").is_empty());
    let predicate = "[B------:R-:W-:-:S05] ISETP.NE.AND P0, PT, R0, RZ, PT ;\n[B------:R-:W-:-:S05] @P0 EXIT ;";
    assert_eq!(hazards(predicate), ["instruction 1: P0 of instruction 0: read 5 cycles later, at least 13 are needed"]);
    let uniform =
        "[B------:R-:W-:-:S02] UIADD3 UR4, UR5, UR6, URZ ;\n[B------:R-:W-:-:S02] UIADD3 UR7, UR4, UR6, URZ ;";
    assert_eq!(hazards(uniform), ["instruction 1: UR4 of instruction 0: read 2 cycles later, at least 4 are needed"]);
}

#[test]
fn a_wait_that_comes_before_its_scoreboard_is_set_waits_for_nothing() {
    let listing = "[B------:R-:W1:-:S01] LDG.E R4, desc[UR4][R2.64] ;\n[B-1----:R-:W-:-:S05] IADD3 R5, R4, R6, R7 ;";
    assert_eq!(hazards(listing), ["instruction 1: R4 of instruction 0: read without a wait for it"]);
}

#[test]
fn before_sm_90_a_barrier_that_was_passed_tells_that_shared_memory_has_read() {
    let with = |chip, between: &str| {
        let load = "[B------:R-:W1:-:S02] LDS R4, [R2] ;";
        hazards_on(chip, &format!("{load}\n[B------:R-:W-:-:S06] {between} ;\n[B------:R-:W-:-:S05] MOV R2, R6 ;"))
    };
    assert!(with(SmArch::Sm80, "BAR.SYNC 0x0").is_empty());
    for (chip, between) in [(SmArch::Sm80, "NOP"), (SmArch::Sm80, "BAR.ARV 0x0, 0x40"), (SmArch::Sm90, "BAR.SYNC 0x0")]
    {
        let late = "instruction 2: R2 of instruction 0: overwritten while it may not have been read";
        assert_eq!(with(chip, between), [late], "{chip} {between}");
    }
}

#[test]
fn the_worst_path_counts_where_paths_meet() {
    // By the branch the result is used at once, in a loop one round later.
    let listing = "[B------:R-:W-:Y:S13] ISETP.NE.AND P0, PT, R0, RZ, PT ;\n\
                   [B------:R-:W-:-:S01] IADD3 R4, R1, R2, R3 ;\n\
                   [B------:R-:W-:-:S01] @P0 BRA .out ;\n\
                   [B------:R-:W-:Y:S15] NOP ;\n\
                   out:\n[B------:R-:W-:-:S05] IADD3 R5, R4, R6, R7 ;\n[B------:R-:W-:-:S05] EXIT ;";
    assert_eq!(hazards(listing), ["instruction 4: R4 of instruction 1: read 2 cycles later, at least 4 are needed"]);
    let round = "again:\n[B------:R-:W-:-:S02] IADD3 R5, R4, R6, R7 ;\n[B------:R-:W2:-:S02] LDG.E R4, desc[UR4][R2.64] ;\n\
                 [B------:R-:W-:-:S05] BRA .again ;";
    let found = hazards(round);
    assert!(found.contains(&"instruction 0: R4 of instruction 1: read without a wait for it".to_owned()), "{found:?}");
}

#[test]
fn lanes_that_exclude_each_other_do_not_wait_for_each_other() {
    let listing = |guard: &str| {
        hazards(&format!(
            "[B------:R-:W1:-:S02] @!P0 MUFU.RCP R3, R0 ;\n[B------:R-:W-:-:S01] {guard}FFMA R3, R2, R4, RZ ;"
        ))
    };
    assert!(listing("@P0 ").is_empty());
    assert_eq!(listing("").len(), 1);
    assert_eq!(listing("@!P0 ").len(), 1);
}

#[test]
fn a_stall_of_nothing_that_yields_waits_for_everything() {
    // The one schedule of ptxas -O0.
    let listing = "[B------:R-:W-:Y:S00] LDG.E R4, desc[UR4][R2.64] ;\n[B------:R-:W-:Y:S00] IADD3 R5, R4, R6, R7 ;";
    assert!(hazards(listing).is_empty());
}

#[test]
fn a_partial_wait_needs_a_scoreboard_of_one_queue() {
    let listing = |second: &str| {
        hazards(&format!(
            "[B------:R-:W0:-:S02] LDS R4, [R2] ;\n[B------:R-:W0:-:S02] {second} ;\n[B------:R-:W-:-:S04] DEPBAR.LE SB0, 0x1 ;"
        ))
    };
    assert_eq!(listing("MUFU.RCP R8, R9").len(), 1);
    assert!(listing("LDS R8, [R9]").is_empty());
}

#[test]
fn a_partial_wait_counts_copies_by_their_own_scoreboards() {
    // The end of a group implies that the copies' addresses have been read, whatever scoreboard they name.
    let code = "[B------:R5:W-:-:S01] LDGSTS.E.128 [R8], desc[UR4][R2.64] ;\n[B------:R-:W-:-:S01] LDG.E R9, desc[UR4][R6.64] ;\n\
        [B------:R-:W0:-:S02] LDGDEPBAR ;\n[B------:R-:W-:-:S04] DEPBAR.LE SB0, 0x1 ;";
    let found = hazards(code);
    assert!(!found.iter().any(|h| h.to_string().contains("partial")), "{found:?}");
}

#[test]
fn an_atomic_on_a_generic_address_says_whose_it_is_once_its_sources_are_read() {
    let listing = |wait: &str| {
        hazards(&format!(
            "[B------:R0:W-:-:S04] ATOM.E.ADD.BF16x2.RN.STRONG.GPU P4, RZ, desc[UR4][R2.64], R5 ;\n\
             [{wait}:R-:W-:-:S05] @P4 BRA 0x30 ;\n[B------:R-:W-:-:S05] EXIT ;\n[B------:R-:W-:-:S05] EXIT ;"
        ))
    };
    assert!(listing("B0-----").is_empty());
    assert_eq!(listing("B------").len(), 1);
}

/// Damages of one kind: how many there were, how many were found, and why the others do no harm.
#[derive(Default, Debug)]
struct Count {
    all: usize,
    found: usize,
    harmless: BTreeMap<Reason, usize>,
}

/// A kernel under the checker, and under the proof that a damage does no harm.
struct Kernel {
    name: String,
    code: Vec<Instruction>,
    checker: Checker,
    proof: Proof,
}

impl Kernel {
    fn of(name: String, words: &[u128]) -> Kernel {
        let code: Vec<Instruction> =
            words.iter().map(|w| decode(*w).unwrap_or_else(|e| panic!("{name}: {e}"))).collect();
        let (checker, proof) = (Checker::of(&code), Proof::of(&code));
        assert!(proof.touched().is_empty(), "{name}: {:?}", proof.touched());
        Kernel { name, code, checker, proof }
    }

    /// Gives an instruction another control word for a moment: either the checker finds it, or every path shows it
    /// harmless.
    fn damage(&mut self, count: &mut Count, at: usize, control: Control) -> bool {
        let good = self.checker.control(at).expect("inside the code");
        self.checker.set_control(at, control);
        let found = self.checker.check(Trust::Seen);
        self.checker.set_control(at, good);
        count.all += 1;
        if !found.is_empty() {
            count.found += 1;
            return true;
        }
        let reason = self.proof.harmless(at, control);
        let reason = reason.unwrap_or_else(|| {
            panic!("{}: instruction {at}, {control} instead of {good}: harmful and not found", self.name)
        });
        *count.harmless.entry(reason).or_default() += 1;
        false
    }
}

/// The least stall that an instruction needs for the next one, by the two alone.
fn needed(first: &Instruction, second: &Instruction) -> u8 {
    let (a, b) = (effects(first), effects(second));
    if completion(first) != Completion::Fixed || first.control.write.is_some() {
        return 0;
    }
    let pairs = a.writes.iter().flat_map(|w| b.reads.iter().map(move |r| (w, r)));
    let met = pairs.filter(|(w, r)| w.file == r.file && w.first < r.first + r.count && r.first < w.first + w.count);
    met.map(|(w, r)| distance(first, w, second, r).seen).max().unwrap_or(0)
}

/// Damages: stalls, dropped waits, results and sources assigned to a scoreboard that nothing waits for.
type Counts = [Count; 4];

fn damage_all(kernel: &mut Kernel, [stalls, waits, results, sources]: &mut Counts) {
    let waited = kernel.code.iter().fold(0, |m, i| m | i.control.wait);
    let never = (0..6).find(|b| waited >> b & 1 == 0);
    for at in 0..kernel.code.len() {
        let (inst, next) = (kernel.code[at], kernel.code.get(at + 1));
        let good = inst.control;
        let least = next.filter(|_| inst.form().pipe != Pipe::Branch).map_or(0, |next| needed(&inst, next));
        if (2..=good.stall).contains(&least) {
            let found = kernel.damage(stalls, at, Control { stall: least - 1, ..good });
            assert!(found, "{}, instruction {at}: a stall of {} instead of {}", kernel.name, least - 1, good.stall);
        }
        for bit in (0..6).filter(|b| good.wait >> b & 1 == 1) {
            kernel.damage(waits, at, Control { wait: good.wait & !(1 << bit), ..good });
        }
        if let Some(board) = good.write {
            kernel.damage(results, at, Control { write: never.filter(|n| *n != board), ..good });
        }
        if let Some(board) = good.read {
            kernel.damage(sources, at, Control { read: never.filter(|n| *n != board), ..good });
        }
    }
}

#[test]
fn every_damage_of_a_schedule_is_found_or_shown_to_do_no_harm() {
    let mut all = kernels(&ptxas(&module(0x5a55_4002, 2), "-O3"));
    all.extend(tensor());
    let mut counts = Counts::default();
    for (name, words) in all {
        damage_all(&mut Kernel::of(name, &words), &mut counts);
    }
    let [stalls, waits, results, sources] = &counts;
    println!("stalls {stalls:?}\nwaits {waits:?}\nresults {results:?}\nsources {sources:?}");
    for count in &counts {
        assert_eq!(count.found + count.harmless.values().sum::<usize>(), count.all, "{count:?}");
    }
    assert_eq!(stalls.found, stalls.all);
    assert!(stalls.all >= 80 && waits.all > 100 && results.all > 100 && sources.all > 20);
    assert!(waits.found > 60 && results.found > 100 && sources.found >= 8);
}

#[test]
fn hazards_sort_by_place_and_tell_the_register() {
    let words = assemble("[B------:R-:W-:-:S01] MOV R0, R1 ;\n[B------:R-:W-:-:S01] MOV R2, R0 ;").expect("a listing");
    let found = check(&words, Trust::Safe).expect("instructions");
    let kind = Kind::ReadTooEarly { cycles: 1, least: 6 };
    assert_eq!(found, [Hazard { producer: 0, consumer: 1, file: RegFile::General, register: 0, kind }]);
}
