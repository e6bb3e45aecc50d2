//! Loops whose iterations run side by side, loads that became wide, words of 64-bit values: the same memory as ptxas's
//! code, and that it is done.

use crate::versus::{kernel, same};
use doorbell::isa::sass::compile::kernels;
use doorbell::isa::sass::{Instruction, Role, decode, print};

/// Texts of the instructions of a body.
fn texts(body: &str) -> Vec<String> {
    let all = kernels(&kernel(body)).unwrap_or_else(|e| panic!("{e}"));
    all[0].words.iter().map(|w| print(&decode(*w).unwrap_or_else(|e| panic!("{e}")))).collect()
}

fn count(body: &str, what: &str) -> usize {
    texts(body).iter().filter(|t| t.contains(what)).count()
}

const FIVE: &str = "mov.u32 %r1, 0; mov.u32 %r2, %x; L: mad.lo.s32 %r2, %r2, 3, %r1; add.s32 %r1, %r1, 1;
    setp.lt.s32 %p1, %r1, 5; @%p1 bra L; st.global.u32 [%o], %r2; st.global.u32 [%o+4], %r1;";

/// Every thread's word in shared memory, then the sum of 64 of them.
const SUM: &str =
    "mov.u32 %r8, sm; mad.lo.u32 %r9, %t, 4, %r8; st.shared.u32 [%r9], %x; bar.sync 0; mov.u32 %r1, 0; mov.u32 %r2, 0;
    L: mad.lo.s32 %r3, %r1, 4, %r8; ld.shared.u32 %r4, [%r3]; add.s32 %r2, %r2, %r4; add.s32 %r1, %r1, 1;
    setp.lt.s32 %p1, %r1, 64; @%p1 bra L; st.global.u32 [%o], %r2;";

#[test]
fn a_loop_of_few_turns_has_no_branch_left() {
    // One is the branch to itself after the end.
    assert_eq!(count(FIVE, "BRA"), 1, "{:#?}", texts(FIVE));
    same("five turns", FIVE);
}

#[test]
fn neighbouring_words_of_shared_memory_are_loaded_at_once() {
    assert!(count(SUM, "LDS.128") > 0, "{:#?}", texts(SUM));
    same("a sum", SUM);
    let odd = SUM.replace("ld.shared.u32 %r4, [%r3]", "ld.shared.u32 %r4, [%r3+4]");
    assert_eq!(count(&odd.replace("%r1, 4, %r8", "%t, 4, %r8"), "LDS.128"), 0);
    let stored_between = "mov.u32 %r8, sm; mad.lo.u32 %r9, %t, 16, %r8; st.shared.v4.b32 [%r9], {%x, %t, %x, %t};
        ld.shared.u32 %r1, [%r9]; ld.shared.u32 %r2, [%r9+4]; st.shared.u32 [%r9+8], %r1; ld.shared.u32 %r3, [%r9+8];
        ld.shared.u32 %r4, [%r9+12]; st.global.v4.b32 [%o], {%r1, %r2, %r3, %r4};";
    assert_eq!(count(stored_between, "LDS.128"), 0);
    same("a store between", stored_between);
}

/// Texts of the instructions of a body's only loop, with the branch back.
fn iteration(body: &str) -> Vec<String> {
    let all = kernels(&kernel(body)).unwrap_or_else(|e| panic!("{e}"));
    let code: Vec<Instruction> = all[0].words.iter().map(|w| decode(*w).unwrap_or_else(|e| panic!("{e}"))).collect();
    let back = |(at, i): (usize, &Instruction)| {
        let distance = i.get("t", Role::Value).filter(|_| i.form().mnemonic == "BRA")? as i64;
        // In quarters of an instruction's 16 bytes, from the next one; the branch to itself is no loop.
        let to = usize::try_from(at as i64 + 1 + (distance << 8 >> 8) / 4).ok()?;
        (to < at).then_some((to, at))
    };
    let (from, to) = code.iter().enumerate().find_map(back).unwrap_or_else(|| panic!("no loop: {:#?}", texts(body)));
    code[from..=to].iter().map(print).collect()
}

#[test]
fn what_is_the_same_in_every_turn_stands_before_the_loop() {
    let end = "add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, %r9; @%p1 bra L; st.global.u32 [%o], %r2;";
    let begin = "and.b32 %r9, %x, 31; mov.u32 %r1, 0; mov.u32 %r2, %x;";
    // Two constants in one product and sum: one has to be in a register.
    let constants = "mov.u32 %r1, %t; cvt.rn.f32.u32 %f1, %t; L: fma.rn.f32 %f1, %f1, 0f3F000000, 0f3F800000;
        fma.rn.f32 %f1, %f1, 0f3F000000, 0f40000000; fma.rn.f32 %f1, %f1, 0f3F000000, 0f40400000;
        add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, 70; @%p1 bra L; st.global.f32 [%o], %f1;";
    let found = iteration(constants);
    assert!(!found.iter().any(|t| t.contains("MOV")), "{found:#?}");
    assert_eq!(found.iter().filter(|t| t.contains("FFMA")).count(), 3, "{found:#?}");
    same("constants", constants);
    let division = format!("{begin} L: div.u32 %r3, %x, 77; xor.b32 %r4, %r3, %t; add.s32 %r2, %r2, %r4; {end}");
    let found = iteration(&division);
    assert!(found.len() <= 5, "{found:#?}");
    same("a division", &division);
    // Values of the previous iteration, values that only some iterations reach, values that are read afterwards.
    let before = format!("{begin} mov.u32 %r3, 5; L: add.s32 %r2, %r2, %r3; mul.lo.s32 %r3, %x, %t; {end}");
    assert!(iteration(&before).iter().any(|t| t.contains("IMAD")), "{:#?}", iteration(&before));
    same("the iteration before", &before);
    let sometimes = format!("{begin} mov.u32 %r5, 0; L: and.b32 %r3, %r1, 3; setp.ne.u32 %p2, %r3, 1; @%p2 bra N; mul.lo.s32 %r4, %x, %t;
        st.global.u32 [%o+4], %r4; st.global.u32 [%o+8], %r1; st.global.u32 [%o+12], %r2; ld.global.u32 %r5, [%o+4]; xor.b32 %r5, %r5, %r4; shl.b32 %r6, %r5, 3;
        add.s32 %r2, %r2, %r6; xor.b32 %r2, %r2, 91; N: {end}");
    assert!(!iteration(&sometimes).iter().any(|t| t.contains("IMAD")), "{:#?}", iteration(&sometimes));
    same("some turns", &sometimes);
    let afterwards =
        format!("{begin} L: mul.hi.u32 %r3, %x, %t; add.s32 %r2, %r2, %r3; {end} st.global.u32 [%o+4], %r3;");
    same("read afterwards", &afterwards);
    let inner = format!("{begin} mov.u32 %r7, 0; M: mov.u32 %r1, 0; L: mul.lo.s32 %r3, %r7, %x; mul.lo.s32 %r4, %x, %t; add.s32 %r2, %r2, %r3; xor.b32 %r2, %r2, %r4;
        add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, %r9; @%p1 bra L; add.s32 %r7, %r7, 1; setp.lt.s32 %p2, %r7, %r9; @%p2 bra M; st.global.u32 [%o], %r2;");
    assert!(!iteration(&inner).iter().any(|t| t.contains("IMAD")), "{:#?}", iteration(&inner));
    same("a loop in a loop", &inner);
}

#[test]
fn loops_of_all_kinds_leave_what_ptxas_leaves() {
    let end = "setp.lt.s32 %p1, %r1, 24; @%p1 bra L;";
    let store = "st.global.u32 [%o], %r2; st.global.u32 [%o+4], %r3;";
    let begin = "mov.u32 %r1, 0; mov.u32 %r2, %x; mov.u32 %r3, %t;";
    for (name, body) in [
        ("downwards", format!("mov.u32 %r1, 12; mov.u32 %r2, %x; mov.u32 %r3, 1; L: add.s32 %r2, %r2, %r1; xor.b32 %r3, %r3, %r2;
            add.s32 %r1, %r1, -2; setp.ne.s32 %p1, %r1, 0; @%p1 bra L; {store}")),
        ("a pointer that grows", format!("{begin} ld.param.u64 %d4, [in]; L: ld.global.u32 %r4, [%d4]; add.s32 %r2, %r2, %r4;
            ld.global.u32 %r4, [%d4+4]; xor.b32 %r3, %r3, %r4; add.s64 %d4, %d4, 16; add.s32 %r1, %r1, 1; {end} {store}")),
        ("what the last iteration left", format!("{begin} L: add.s32 %r5, %r1, %r3; mul.lo.s32 %r3, %r5, 5; xor.b32 %r2, %r2, %r5; shl.b32 %r6, %r1, 3;
            add.s32 %r1, %r1, 2; {end} add.s32 %r3, %r3, %r5; add.s32 %r2, %r2, %r6; {store}")),
        ("the iteration before", format!("{begin} mov.u32 %r5, 7; L: add.s32 %r2, %r2, %r5; mad.lo.s32 %r5, %r1, 3, %t; xor.b32 %r3, %r3, %r5;
            add.s32 %r1, %r1, 1; {end} {store}")),
        ("a guard in it", format!("{begin} L: and.b32 %r5, %r2, 1; setp.eq.u32 %p2, %r5, 0; mov.u32 %r6, 3; @%p2 mov.u32 %r6, %r1;
            @!%p2 shr.u32 %r2, %r2, 1; add.s32 %r2, %r2, %r6; add.s32 %r1, %r1, 1; {end} {store}")),
        ("counted before it is read", format!("{begin} L: add.s32 %r1, %r1, 1; mad.lo.s32 %r2, %r2, %r1, %r3; xor.b32 %r3, %r3, %r1; {end} {store}")),
        ("the comparison read afterwards", format!("{begin} L: add.s32 %r2, %r2, %r1; add.s32 %r1, %r1, 4; {end} selp.u32 %r3, 5, 6, %p1; {store}")),
        ("a loop in a loop", format!("{begin} mov.u32 %r7, 0; M: mov.u32 %r1, 0; L: mad.lo.s32 %r2, %r2, 3, %r1; add.s32 %r3, %r3, %r7; add.s32 %r1, %r1, 1;
            setp.lt.s32 %p1, %r1, 3; @%p1 bra L; add.s32 %r7, %r7, 1; setp.lt.s32 %p2, %r7, 4; @%p2 bra M; {store}")),
        ("a barrier in it", format!("{begin} mov.u32 %r8, sm; mad.lo.u32 %r9, %t, 4, %r8; xor.b32 %r10, %t, 33; mad.lo.u32 %r10, %r10, 4, %r8;
            L: st.shared.u32 [%r9], %r2; bar.sync 0; ld.shared.u32 %r4, [%r10]; bar.sync 0; add.s32 %r2, %r2, %r4; add.s32 %r1, %r1, 8; {end} {store}")),
        ("one iteration in any case", format!("mov.u32 %r1, 30; mov.u32 %r2, %x; mov.u32 %r3, 9; L: add.s32 %r2, %r2, %r1; add.s32 %r1, %r1, 1; {end} {store}")),
    ] {
        same(name, &body);
    }
}

#[test]
fn words_of_wide_values_are_taken_as_they_are() {
    let rotated =
        "cvt.u64.u32 %d3, %x; shl.b64 %d4, %d3, 32; cvt.u64.u32 %d5, %t; or.b64 %d6, %d4, %d5; shr.u64 %d7, %d6, 32;
        cvt.u32.u64 %r1, %d7; cvt.u32.u64 %r2, %d6; st.global.u32 [%o], %r1; st.global.u32 [%o+4], %r2;";
    assert_eq!(count(rotated, "LOP3"), 0, "{:#?}", texts(rotated));
    same("halves", rotated);
    let store = "st.global.u64 [%o], %d5;";
    for (name, op) in [
        ("signed", "cvt.s64.s32 %d3, %x; mul.lo.s64 %d5, %d3, -12;"),
        ("unsigned", "cvt.u64.u32 %d3, %x; cvt.u64.u32 %d4, %t; mul.lo.u64 %d5, %d3, %d4;"),
        ("a large factor", "cvt.u64.u32 %d3, %x; mul.lo.u64 %d5, %d3, 4294967295;"),
        ("too large a factor", "cvt.s64.s32 %d3, %x; mul.lo.s64 %d5, %d3, 4294967295;"),
        ("with an addend", "cvt.s64.s32 %d3, %x; cvt.s64.s32 %d4, %t; mad.lo.s64 %d5, %d3, %d4, %d3;"),
        ("packed", "mov.b64 %d3, {%x, %t}; mov.b64 {%r1, %r2}, %d3; add.s32 %r1, %r1, %r2; mov.b64 %d5, {%r2, %r1};"),
        ("a sum with a carry", "cvt.u64.u32 %d3, %x; cvt.u64.u32 %d4, %x; add.s64 %d5, %d3, %d4;"),
        (
            "joined by a mask",
            "mov.b64 %d3, {%x, %t}; and.b64 %d4, %d3, 4294967295; shl.b64 %d6, %d4, 32; xor.b64 %d5, %d6, %d4;",
        ),
    ] {
        same(name, &format!("{op} {store}"));
    }
}
