//! Registers and distances: known instructions, and that compiled code never falls below the smallest distances.

use crate::compiled::{module, words};
use crate::nvidia::ptxas;
use doorbell::isa::sass::{
    Access, Completion, Instruction, Pipe, RegFile, SmArch, completion, decode, distance, effects, least_stall, parse,
    parse_for, print,
};
use std::collections::HashMap;

fn inst(text: &str) -> Instruction {
    parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Register file, first register, how many.
type Tuple = (RegFile, u8, u8);

fn tuples(text: &str) -> (Vec<Tuple>, Vec<Tuple>) {
    let all = effects(&inst(text));
    let short = |a: &Access| (a.file, a.first, a.count);
    (all.writes.iter().map(short).collect(), all.reads.iter().map(short).collect())
}

#[test]
fn operands_are_as_wide_as_the_operation() {
    use RegFile::{General, Predicate, Uniform};
    assert_eq!(
        tuples("@P1 IMAD.WIDE R4, R2, R3, R6"),
        (vec![(General, 4, 2)], vec![(General, 2, 1), (General, 3, 1), (General, 6, 2), (Predicate, 1, 1)])
    );
    let load = tuples("LDG.E.128 R8, desc[UR4][R2.64+0x10]");
    assert_eq!(load, (vec![(General, 8, 4)], vec![(Uniform, 4, 2), (General, 2, 2)]));
    let multiply = tuples("HMMA.16816.F32 R4, R8, R12, R4");
    assert_eq!(multiply, (vec![(General, 4, 4)], vec![(General, 8, 4), (General, 12, 2), (General, 4, 4)]));
    assert_eq!(tuples("ISETP.NE.AND P0, PT, R0, RZ, PT"), (vec![(Predicate, 0, 1)], vec![(General, 0, 1)]));
}

#[test]
fn a_pair_at_an_odd_register_is_told() {
    let odd = effects(&inst("DADD R3, R4, R6"));
    assert_eq!(odd.writes.iter().map(Access::is_aligned).collect::<Vec<_>>(), [false]);
    assert!(odd.reads.iter().all(Access::is_aligned));
}

#[test]
fn loads_end_by_scoreboard_and_arithmetic_by_distance() {
    assert_eq!(completion(&inst("LDG.E R0, [R2]")), Completion::Scoreboard);
    assert_eq!(completion(&inst("MUFU.RCP R0, R1")), Completion::Scoreboard);
    assert_eq!(completion(&inst("FFMA R0, R1, R2, R3")), Completion::Fixed);
    assert_eq!(least_stall(&inst("EXIT")), 5);
}

/// The smallest distance from the first's result to what the second reads of it, on a chip.
fn seen(first: &str, second: &str, chip: SmArch) -> u8 {
    let [a, b] = [first, second].map(|t| parse_for(t, 0, chip).unwrap_or_else(|e| panic!("{t}: {e}")));
    let (from, to) = (effects(&a), effects(&b));
    let read = to.reads.iter().find(|r| (r.file, r.first) == (from.writes[0].file, from.writes[0].first));
    distance(&a, &from.writes[0], &b, read.expect("it reads the result")).seen
}

/// Code of ptxas 13.5.37 that leaves less than was seen first: at -O1 on sm_90a, and of chips before it.
#[test]
fn distances_are_as_small_as_ptxas_leaves_them() {
    let carry = "IMAD.WIDE.U32.X R2, RZ, RZ, R2, P1";
    assert_eq!(seen(carry, "I2F.F16.U64 R0, R2", SmArch::Sm90), 4);
    let halves = ("HFMA2.MMA R2, R13, 1, 1, -R2", "HFMA2.MMA.RELU R6, R2, |R3|, R13");
    assert_eq!([SmArch::Sm80, SmArch::Sm86].map(|c| seen(halves.0, halves.1, c)), [6, 8]);
    let product = |ty: &str| format!("IMMA.16832.{ty}.{ty} R12, R10.ROW, R4.COL, R12");
    let [four, eight] = ["S4", "S8"].map(|ty| seen(&product(ty), &product(ty), SmArch::Sm80));
    assert!(four <= 16 && eight == 24, "{four} {eight}");
}

/// What a register waits for: when its producer issued, and which.
type Pending = HashMap<(RegFile, u8), (u32, Instruction, Access)>;

/// Replays one section of code and collects what is read earlier than the table's smallest distance.
fn early(code: &[u128], checked: &mut usize) -> Vec<String> {
    let (mut pending, mut now, mut wrong) = (Pending::new(), 0u32, Vec::new());
    for word in code {
        let inst = decode(*word).unwrap_or_else(|e| panic!("{e}"));
        let all = effects(&inst);
        for read in &all.reads {
            for r in 0..read.count {
                if let Some((issued, producer, written)) = pending.get(&(read.file, read.first + r)) {
                    *checked += 1;
                    let least = distance(producer, written, &inst, read).seen;
                    if now - issued < u32::from(least) {
                        wrong.push(format!("{} -> {}: {} of {least}", print(producer), print(&inst), now - issued));
                    }
                }
            }
        }
        for written in &all.writes {
            for r in 0..written.count {
                let register = (written.file, written.first + r);
                match completion(&inst) == Completion::Fixed && inst.control.write.is_none() {
                    true => pending.insert(register, (now, inst, *written)),
                    false => pending.remove(&register),
                };
            }
        }
        now += u32::from(inst.control.stall.max(1));
        if inst.form().pipe == Pipe::Branch {
            pending.clear();
        }
    }
    wrong
}

#[test]
fn compiled_kernels_keep_the_smallest_distances() {
    let mut checked = 0;
    let wrong = early(&words(&ptxas(&module(0x5a55_3001, 8), "-O3")), &mut checked);
    println!("{checked} reads checked");
    assert!(checked > 1_000, "only {checked} reads");
    assert!(wrong.is_empty(), "{} of {checked}:\n{}", wrong.len(), wrong.join("\n"));
}
