//! Strict mode's findings and what it allows, in code assembled by hand: each fault with the same code corrected.

use doorbell::emu::sass::{Decoder, Fault, FaultKind, Launch, Options, PlainBus, SmArch, Stats, run, run_decoded};
use doorbell::engine::software::translation;
use doorbell::isa::sass::assemble_for;
use std::sync::atomic::AtomicBool;

const CODE: u64 = 0x1000;
const DATA: u64 = 0x10_0000;

fn execute(source: &str, options: &Options, block: u32) -> Result<(Stats, Vec<u8>), Fault> {
    execute_on(SmArch::Sm90, source, options, block)
}

/// Interpreted, and translated to code of this machine: the same outcome.
fn execute_on(chip: SmArch, source: &str, options: &Options, block: u32) -> Result<(Stats, Vec<u8>), Fault> {
    let interpreted = execute_decoded(chip, source, options, block, &Decoder::default());
    let translated = execute_decoded(chip, source, options, block, &Decoder::translated(translation()).after(1));
    match (&interpreted, &translated) {
        (Ok((_, a)), Ok((_, b))) => assert!(a == b, "translated, it leaves other bytes:\n{source}"),
        (Err(a), Err(b)) => assert_eq!(a.to_string(), b.to_string(), "{source}"),
        (a, b) => panic!("{:?}, translated {:?}:\n{source}", a.as_ref().err(), b.as_ref().err()),
    }
    interpreted
}

fn execute_decoded(
    chip: SmArch,
    source: &str,
    options: &Options,
    block: u32,
    decoder: &Decoder,
) -> Result<(Stats, Vec<u8>), Fault> {
    let words = assemble_for(source, chip).unwrap_or_else(|e| panic!("{e}"));
    let mut bus = PlainBus::default();
    bus.map(CODE, &words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>(), false);
    bus.map(DATA, &[7; 4096], true);
    let launch = Launch {
        chip,
        entry: CODE,
        grid: [1; 3],
        block: [block, 1, 1],
        cluster: [1; 3],
        registers: 32,
        barriers: 1,
        shared_bytes: 2048,
        local_bytes: 0,
        banks: [None; 8],
    };
    let stats = run_decoded(&launch, &bus, &AtomicBool::new(false), options, decoder)?;
    Ok((stats, bus.bytes(DATA)))
}

fn fault(source: &str) -> FaultKind {
    execute(source, &Options::default(), 64).expect_err(source).kind
}

fn passes(source: &str) {
    execute(source, &Options::default(), 64).unwrap_or_else(|e| panic!("{e}"));
}

const EXIT: &str = "[B------:R-:W-:Y:S05] EXIT ;\n";

#[test]
fn a_result_read_before_its_stall_is_a_fault_and_after_it_is_not() {
    let code = |stall: u8| {
        format!("[B------:R-:W-:Y:S0{stall}] MOV R2, 0x5 ;\n[B------:R-:W-:Y:S05] IADD3 R3, R2, 0x1, RZ ;\n{EXIT}")
    };
    let kind = fault(&code(2));
    assert!(matches!(&kind, FaultKind::TooEarly { register, have: 2, need: 4, .. } if register == "R2"), "{kind}");
    passes(&code(4));
    execute(&code(2), &Options::fast(), 64).unwrap();
}

#[test]
fn a_load_read_without_its_scoreboard_is_a_fault() {
    let code = |wait: &str| {
        format!(
            "[B------:R-:W-:Y:S08] MOV R2, 0x100000 ;\n[B------:R-:W0:Y:S02] LDG R4, [R2] ;\n\
             [B{wait}:R-:W-:Y:S05] IADD3 R5, R4, 0x1, RZ ;\n{EXIT}"
        )
    };
    let kind = fault(&code("------"));
    assert!(matches!(&kind, FaultKind::NotWaited { register, used: "read", .. } if register == "R4"), "{kind}");
    passes(&code("0-----"));
}

#[test]
fn the_scoreboards_of_a_depbar_s_list_are_waited_for() {
    let code = |list: &str| {
        format!(
            "[B------:R-:W-:Y:S08] MOV R2, 0x100000 ;\n[B------:R-:W3:Y:S02] LDG R4, [R2] ;\n\
             [B------:R-:W-:Y:S04] DEPBAR.LE SB0, 0x0{list} ;\n[B------:R-:W-:Y:S05] IADD3 R5, R4, 0x1, RZ ;\n{EXIT}"
        )
    };
    let kind = fault(&code(""));
    assert!(matches!(&kind, FaultKind::NotWaited { register, used: "read", .. } if register == "R4"), "{kind}");
    passes(&code(", {4,3}"));
}

#[test]
fn an_instruction_whose_guard_is_false_in_all_lanes_tells_of_those_before_it() {
    let code = |wait: &str| {
        format!(
            "[B------:R-:W-:Y:S08] MOV R2, 0x3f800000 ;\n[B------:R-:W-:Y:S13] ISETP.NE.AND P0, PT, RZ, RZ, PT ;\n\
             [B------:R-:W-:Y:S08] @!P0 MUFU.RCP R4, R2 ;\n[B------:R-:W0:Y:S02] @P0 MUFU.RCP R5, R2 ;\n\
             [B{wait}:R-:W-:Y:S05] FADD R6, R4, R2 ;\n{EXIT}"
        )
    };
    let kind = fault(&code("------"));
    assert!(matches!(&kind, FaultKind::NotWaited { register, used: "read", .. } if register == "R4"), "{kind}");
    passes(&code("0-----"));
}

#[test]
fn a_shuffle_that_was_waited_for_tells_of_the_load_from_shared_memory_before_it() {
    let code = |wait: &str| {
        format!(
            "[B------:R-:W-:Y:S08] MOV R2, 0x400 ;\n[B------:R-:W-:Y:S04] STS [R2], R2 ;\n[B------:R-:W-:Y:S04] LDS R4, [R2] ;\n\
             [B------:R-:W0:Y:S02] SHFL.IDX PT, R5, R2, RZ, 0x1f ;\n[B{wait}:R-:W-:Y:S05] IADD3 R6, R4, 0x1, RZ ;\n{EXIT}"
        )
    };
    let kind = execute(&code("------"), &Options::default(), 32).expect_err("no wait").kind;
    assert!(matches!(&kind, FaultKind::NotWaited { register, used: "read", .. } if register == "R4"), "{kind}");
    execute(&code("0-----"), &Options::default(), 32).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn lanes_that_left_a_convergence_barrier_for_a_warpsync_of_all_do_not_hold_it() {
    let code = |out: &str| {
        format!(
            "[B------:R-:W0:Y:S02] S2R R0, SR_TID.X ;\n[B0-----:R-:W-:Y:S13] ISETP.LT.U32.AND P0, PT, R0, 0x8, PT ;\n\
             [B------:R-:W-:Y:S05] BSSY B0, .join ;\n[B------:R-:W-:Y:S05] @P0 BRA .out ;\njoin:\n[B------:R-:W-:Y:S05] BSYNC B0 ;\n\
             out:\n[B------:R-:W-:Y:S05] {out} ;\n{EXIT}"
        )
    };
    let kind = execute(&code("BSYNC B0"), &Options::default(), 32).expect_err("two places").kind;
    assert!(kind.to_string().contains("nobody else can come"), "{kind}");
    execute(&code("WARPSYNC.ALL"), &Options::default(), 32).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a_source_overwritten_before_a_store_has_read_it_is_a_fault() {
    let code = |wait: &str| {
        format!(
            "[B------:R-:W-:Y:S01] MOV R2, 0x100000 ;\n[B------:R-:W-:Y:S08] MOV R4, 0x9 ;\n\
             [B------:R1:W-:Y:S02] STG [R2], R4 ;\n[B{wait}:R-:W-:Y:S05] MOV R4, 0x3 ;\n{EXIT}"
        )
    };
    let kind = fault(&code("------"));
    assert!(matches!(&kind, FaultKind::ReadPending { register, .. } if register == "R4"), "{kind}");
    passes(&code("-1----"));
}

#[test]
fn before_sm_90_shared_memory_has_read_its_sources_when_a_barrier_is_passed() {
    let code = |between: &str| {
        format!(
            "[B------:R-:W-:Y:S08] MOV R2, 0x400 ;\n[B------:R-:W-:Y:S04] STS [R2], R2 ;\n[B------:R-:W0:Y:S02] LDS R4, [R2] ;\n\
             [B------:R-:W-:Y:S06] {between} ;\n[B------:R-:W-:Y:S05] MOV R2, 0x3 ;\n{EXIT}"
        )
    };
    let run = |chip, between: &str| execute_on(chip, &code(between), &Options::default(), 32);
    run(SmArch::Sm86, "BAR.SYNC 0x0").unwrap_or_else(|e| panic!("{e}"));
    for (chip, between) in [(SmArch::Sm86, "NOP"), (SmArch::Sm86, "BAR.ARV 0x0, 0x40"), (SmArch::Sm90, "BAR.SYNC 0x0")]
    {
        let kind = run(chip, between).expect_err(between).kind;
        assert!(
            matches!(&kind, FaultKind::ReadPending { register, .. } if register == "R2"),
            "{chip} {between}: {kind}"
        );
    }
}

#[test]
fn a_register_nobody_wrote_is_a_fault() {
    let kind = fault(&format!("[B------:R-:W-:Y:S05] IADD3 R3, R9, 0x1, RZ ;\n{EXIT}"));
    assert!(matches!(&kind, FaultKind::Unwritten { register, .. } if register == "R9"), "{kind}");
}

/// ptxas compares, and moves and joins predicates, where the register has no value and the result does not depend on
/// it.
#[test]
fn a_register_nobody_wrote_is_no_fault_where_a_predicate_decides_without_it() {
    const FALSE: &str = "[B------:R-:W-:Y:S13] ISETP.NE.AND P0, PT, RZ, RZ, PT ;\n";
    let compare = |how: &str| format!("{FALSE}[B------:R-:W-:Y:S13] FSETP.GE.{how} P1, PT, R9, RZ, P0 ;\n{EXIT}");
    passes(&compare("AND"));
    let kind = fault(&compare("OR"));
    assert!(matches!(&kind, FaultKind::Unwritten { register, .. } if register == "R9"), "{kind}");

    let joined = |use_of: &str| {
        format!(
            "{FALSE}[B------:R-:W-:Y:S13] PLOP3.LUT P1, P2, P3, P0, PT, 0x80, 0xfc ;\n\
             [B------:R-:W-:-:S05] @{use_of} MOV R2, 0x1 ;\n{EXIT}"
        )
    };
    passes(&joined("P1"));
    let kind = fault(&joined("P2").replace("PT, 0x80", "!PT, 0x80"));
    assert!(matches!(&kind, FaultKind::Unwritten { register, .. } if register == "P2"), "{kind}");

    let moved = |use_of: &str| {
        format!(
            "{FALSE}[B------:R-:W-:Y:S13] PLOP3.LUT P4, PT, PT, PT, UP2, 0x80, 0x0 ;\n\
             [B------:R-:W-:-:S05] @{use_of} MOV R2, 0x1 ;\n{EXIT}"
        )
    };
    passes(&moved("P0"));
    let kind = fault(&moved("P4"));
    assert!(matches!(&kind, FaultKind::Unwritten { register, .. } if register == "P4"), "{kind}");

    // What is uniform comes into a general register, for an instruction under the guard that the write had.
    let copied = |guard: &str| {
        format!(
            "{FALSE}[B------:R-:W-:Y:S13] IMAD.U32 R8, RZ, RZ, UR5 ;\n[B------:R-:W-:-:S05] {guard} IADD3 R2, R8, 0x1, RZ ;\n{EXIT}"
        )
    };
    passes(&copied("@P0"));
    let kind = fault(&copied("@!P0"));
    assert!(matches!(&kind, FaultKind::Unwritten { register, .. } if register == "R8"), "{kind}");
}

/// A choice looks at what it takes alone; what an unwritten predicate chooses, and bytes put together with unwritten
/// ones, must not go further than moves.
#[test]
fn what_a_choice_takes_and_what_comes_of_an_unwritten_predicate_must_have_a_value() {
    const FALSE: &str = "[B------:R-:W-:Y:S13] ISETP.NE.AND P0, PT, RZ, RZ, PT ;\n";
    const FALSE_UP: &str = "[B------:R-:W-:Y:S13] UISETP.NE.AND UP0, UPT, URZ, URZ, UPT ;\n";
    let unwritten = |kind: &FaultKind, wanted: &str| {
        assert!(matches!(kind, FaultKind::Unwritten { register, .. } if register == wanted), "{wanted}: {kind}");
    };
    for (mnemonic, start, uniform) in [("SEL", FALSE, ""), ("FSEL", FALSE, ""), ("USEL", FALSE_UP, "U")] {
        let choice = |a: &str, b: &str, p: &str| {
            let [d, a, b, p] = ["R4", a, b, p].map(|r| format!("{uniform}{r}"));
            format!("{start}[B------:R-:W-:Y:S13] {mnemonic} {d}, {a}, {b}, {p} ;\n")
        };
        // The second is taken.
        passes(&format!("{}{EXIT}", choice("R9", "RZ", "P0")));
        unwritten(&fault(&format!("{}{EXIT}", choice("RZ", "R9", "P0"))), &format!("{uniform}R9"));
        let not = choice("R9", "RZ", "P0").replace("P0 ;", "!P0 ;").replace("U!", "!U");
        unwritten(&fault(&format!("{not}{EXIT}")), &format!("{uniform}R9"));
        // The predicate is unwritten: what is selected has no value, and may be dropped.
        let unknown = choice("RZ", "RZ", "P1");
        passes(&format!("{unknown}{EXIT}"));
        let used = match uniform {
            "" => "[B------:R-:W-:Y:S05] IADD3 R5, R4, 0x1, RZ ;\n",
            _ => "[B------:R-:W-:Y:S13] UIADD3 UR5, UR4, 0x1, URZ ;\n",
        };
        unwritten(&fault(&format!("{unknown}{used}{EXIT}")), &format!("{uniform}R4"));
    }
}

/// Bytes may be put next to unwritten ones; which bytes, and whether, must be a written value.
#[test]
fn a_selector_of_bytes_that_nobody_wrote_is_a_fault() {
    for (u, zero) in [("", "RZ"), ("U", "URZ")] {
        let code = |a: &str, selector: &str, guard: &str| {
            format!("[B------:R-:W-:Y:S13] {guard}{u}PRMT {u}R4, {a}, {selector}, {zero} ;\n{EXIT}")
        };
        let unwritten = |source: &str, wanted: &str| {
            let kind = fault(source);
            assert!(matches!(&kind, FaultKind::Unwritten { register, .. } if register == wanted), "{wanted}: {kind}");
        };
        let register = format!("{u}R9");
        passes(&code(&register, "0x7610", ""));
        unwritten(&code(zero, &register, ""), &register);
        unwritten(&code(zero, "0x7610", &format!("@{u}P2 ")), &format!("{u}P2"));
    }
}

#[test]
fn a_guard_read_before_its_thirteen_cycles_is_a_fault() {
    let code = |stall: &str| {
        format!(
            "[B------:R-:W-:Y:{stall}] ISETP.EQ.AND P0, PT, RZ, RZ, PT ;\n[B------:R-:W-:Y:S05] @P0 MOV R2, 0x1 ;\n{EXIT}"
        )
    };
    let kind = fault(&code("S12"));
    assert!(matches!(&kind, FaultKind::TooEarly { register, have: 12, need: 13, .. } if register == "P0"), "{kind}");
    passes(&code("S13"));
}

#[test]
fn shared_memory_passed_between_warps_needs_a_barrier() {
    let code = |barrier: &str| {
        format!(
            "[B------:R-:W0:Y:S02] S2R R2, SR_TID.X ;\n[B0-----:R-:W-:Y:S08] SHF.L.U32 R3, R2, 0x2, RZ ;\n\
             [B------:R-:W-:Y:S02] STS [R3+0x400], R2 ;\n{barrier}\
             [B------:R-:W-:Y:S08] LOP3.LUT R4, R3, 0x80, RZ, 0x3c, !PT ;\n\
             [B------:R-:W1:Y:S02] LDS R5, [R4+0x400] ;\n[B-1----:R-:W-:Y:S05] MOV R6, R5 ;\n{EXIT}"
        )
    };
    let kind = fault(&code(""));
    assert!(matches!(&kind, FaultKind::SharedUnwritten { .. } | FaultKind::SharedRace { .. }), "{kind}");
    passes(&code("[B------:R-:W-:Y:S06] BAR.SYNC.DEFER_BLOCKING 0x0 ;\n"));
}

/// A multiply of a warpgroup of shared memory that is all written: the code before ARRIVE, after it, and after the
/// multiply.
fn multiply(before: &str, behind: &str, after: &str) -> String {
    let zeros: String = (4..8).map(|k| format!("[B------:R-:W-:Y:S08] MOV R{k}, 0x0 ;\n")).collect();
    let descriptors: String = (4..8).map(|k| format!("[B------:R-:W-:Y:S12] UMOV UR{k}, 0x0 ;\n")).collect();
    format!(
        "[B------:R-:W0:Y:S02] S2R R2, SR_TID.X ;\n[B0-----:R-:W-:Y:S08] SHF.L.U32 R3, R2, 0x4, RZ ;\n{zeros}{descriptors}\
         [B------:R-:W-:Y:S02] STS.128 [R3], R4 ;\n[B------:R-:W-:Y:S06] BAR.SYNC.DEFER_BLOCKING 0x0 ;\n\
         {before}[B------:R-:W-:Y:S08] WARPGROUP.ARRIVE ;\n{behind}\
         [B------:R-:W-:Y:S08] HGMMA.64x8x16.F32 R24, gdesc[UR4], R24, gsb0 ;\n{after}{EXIT}"
    )
}

const SUMS: &str = "[B------:R-:W-:Y:S15] MOV R24, 0x0 ;\n[B------:R-:W-:Y:S15] MOV R25, 0x0 ;\n\
                    [B------:R-:W-:Y:S15] MOV R26, 0x0 ;\n[B------:R-:W-:Y:S15] MOV R27, 0x0 ;\n";
const WAIT: &str = "[B------:R-:W-:Y:S02] WARPGROUP.DEPBAR.LE gsb0, 0x0 ;\n";
const READ: &str = "[B------:R-:W-:Y:S05] IADD3 R8, R24, 0x1, RZ ;\n";

#[test]
fn sums_of_a_warpgroup_that_are_read_or_written_before_their_group_is_waited_for_are_a_fault() {
    let run = |source: &str| execute(source, &Options::default(), 128);
    for (touch, how) in [(READ, "read"), ("[B------:R-:W-:Y:S05] MOV R25, 0x1 ;\n", "overwritten")] {
        let kind = run(&multiply(SUMS, "", touch)).unwrap_err().kind;
        assert!(matches!(&kind, FaultKind::NotWaited { used, .. } if *used == how), "{kind}");
        run(&multiply(SUMS, "", &format!("{WAIT}{touch}"))).unwrap_or_else(|e| panic!("{e}"));
    }
    execute(&multiply(SUMS, "", READ), &Options::fast(), 128).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn sums_that_are_written_after_the_warpgroup_arrived_are_a_fault() {
    let run = |source: &str| execute(source, &Options::default(), 128);
    let kind = run(&multiply("", SUMS, WAIT)).unwrap_err().kind;
    assert!(matches!(&kind, FaultKind::NotArrived { register, .. } if register == "R24"), "{kind}");
    run(&multiply(SUMS, "", WAIT)).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn sums_of_shared_memory_that_nobody_wrote_count_as_unwritten() {
    let source = multiply(SUMS, "", &format!("{WAIT}{READ}")).replace("STS.128 [R3], R4", "NOP");
    let kind = execute(&source, &Options::default(), 128).unwrap_err().kind;
    assert!(matches!(&kind, FaultKind::Unwritten { register, .. } if register == "R24"), "{kind}");
}

#[test]
fn words_and_registers_that_are_none_raise_the_chips_exceptions() {
    let words = [0u128, 0x5];
    let mut bus = PlainBus::default();
    bus.map(CODE, &words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>(), false);
    let launch = Launch {
        chip: SmArch::Sm90,
        entry: CODE,
        grid: [1; 3],
        block: [1, 1, 1],
        cluster: [1; 3],
        registers: 16,
        barriers: 1,
        shared_bytes: 1024,
        local_bytes: 0,
        banks: [None; 8],
    };
    let fault = run(&launch, &bus, &AtomicBool::new(false), &Options::fast()).unwrap_err();
    assert_eq!((fault.pc, fault.exception().warp_error, fault.exception().channel_error), (CODE, 9, 13), "{fault}");
    let beyond = execute(&format!("[B------:R-:W-:Y:S05] MOV R40, 0x1 ;\n{EXIT}"), &Options::fast(), 32).unwrap_err();
    assert_eq!(beyond.exception().warp_error, 0xd, "{beyond}");
    let unmapped = "[B------:R-:W-:Y:S08] MOV R2, 0x40 ;\n[B------:R-:W0:Y:S02] LDG R4, [R2] ;\n";
    let fault = execute(&format!("{unmapped}{EXIT}"), &Options::fast(), 32).unwrap_err();
    assert_eq!((fault.exception().channel_error, fault.pc), (31, CODE + 16), "{fault}");
}

#[test]
fn a_loop_without_end_stops_at_the_limit_and_at_the_hosts_word() {
    let source = "loop:\n[B------:R-:W-:Y:S05] BRA .loop ;\n";
    let options = Options { max_instructions: 1000, ..Options::default() };
    let kind = execute(source, &options, 32).unwrap_err().kind;
    assert!(matches!(kind, FaultKind::Endless { .. }), "{kind}");
}

#[test]
fn lanes_that_part_come_together_at_their_convergence_barrier() {
    let source = format!(
        "[B------:R-:W0:Y:S02] S2R R2, SR_LANEID ;\n[B0-----:R-:W-:Y:S13] ISETP.LT.U32.AND P0, PT, R2, 0x5, PT ;\n\
         [B------:R-:W-:Y:S01] BSSY B0, .join ;\n[B------:R-:W-:Y:S05] @P0 BRA .few ;\n\
         [B------:R-:W-:Y:S02] MOV R3, 0x1 ;\n[B------:R-:W-:Y:S05] BRA .join ;\n\
         few:\n[B------:R-:W-:Y:S02] MOV R3, 0x2 ;\n\
         join:\n[B------:R-:W-:Y:S05] BSYNC B0 ;\n[B------:R-:W-:Y:S13] VOTE.ANY R4, PT, PT ;\n\
         [B------:R-:W-:Y:S08] IMAD R5, R2, 0x4, RZ ;\n[B------:R-:W-:Y:S08] IADD3 R6, R5, 0x100000, RZ ;\n\
         [B------:R-:W-:Y:S02] STG [R6], R4 ;\n{EXIT}"
    );
    let (_, data) = execute(&source, &Options::default(), 32).unwrap_or_else(|e| panic!("{e}"));
    assert!(data[..128].iter().all(|b| *b == 0xff), "{:x?}", &data[..128]);
}

/// ptxas jumps so over a divergent branch and the convergence barrier that it needs.
#[test]
fn a_jump_of_a_whole_warp_takes_all_lanes_or_none() {
    for (lanes, left) in [(5, [0xff; 4]), (32, [2, 0, 0, 0])] {
        let source = format!(
            "[B------:R-:W0:Y:S02] S2R R2, SR_LANEID ;\n[B0-----:R-:W-:Y:S13] ISETP.LT.U32.AND P0, PT, R2, {lanes:#x}, PT ;\n\
             [B------:R-:W-:Y:S05] MOV R4, 0x2 ;\n[B------:R-:W-:Y:S05] @P0 BRA.U .whole ;\n\
             [B------:R-:W-:Y:S13] VOTE.ANY R4, PT, PT ;\nwhole:\n\
             [B------:R-:W-:Y:S08] IMAD R5, R2, 0x4, RZ ;\n[B------:R-:W-:Y:S08] IADD3 R6, R5, 0x100000, RZ ;\n\
             [B------:R-:W-:Y:S02] STG [R6], R4 ;\n{EXIT}"
        );
        let (_, data) = execute(&source, &Options::default(), 32).unwrap_or_else(|e| panic!("{e}"));
        assert!(data[..128].chunks(4).all(|w| w == left), "{lanes} lanes: {:x?}", &data[..128]);
    }
}

#[test]
fn a_half_product_with_a_negated_high_half_is_that_of_complex_numbers() {
    let source = format!(
        "[B------:R-:W-:Y:S05] MOV R2, 0x40003c00 ;\n[B------:R-:W-:Y:S05] MOV R3, 0x44004200 ;\n\
         [B------:R-:W-:Y:S05] MOV R6, 0x100000 ;\n[B------:R-:W-:Y:S08] HFMA2 R5, R2, R3.H0_NH1, RZ ;\n\
         [B------:R-:W-:Y:S05] STG [R6], R5 ;\n{EXIT}"
    );
    let (_, bytes) = execute(&source, &Options::default(), 1).unwrap_or_else(|e| panic!("{e}"));
    // 1 * 3, and 2 * -4.
    assert_eq!(bytes[..4], 0xc800_4200u32.to_le_bytes());
}
