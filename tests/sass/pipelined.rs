//! Operations in flight over the end of a block and of a loop's iteration: seen in the words, and the same memory as
//! ptxas's code on every chip.

use crate::versus::{kernel, same_everywhere};
use doorbell::isa::sass::compile::kernels;
use doorbell::isa::sass::{Instruction, Role, decode, print};

fn code(body: &str) -> Vec<Instruction> {
    let all = kernels(&kernel(body)).unwrap_or_else(|e| panic!("{e}"));
    all[0].words.iter().map(|w| decode(*w).unwrap_or_else(|e| panic!("{e}"))).collect()
}

fn listing(code: &[Instruction]) -> String {
    code.iter().map(|i| format!("{:?} {}\n", i.control, print(i))).collect()
}

/// Where a branch leads.
fn target(code: &[Instruction], at: usize) -> Option<usize> {
    let distance = code[at].get("t", Role::Value).filter(|_| code[at].form().mnemonic == "BRA")? as i64;
    // In quarters of an instruction's 16 bytes, from the next one.
    usize::try_from(at as i64 + 1 + (distance << 8 >> 8) / 4).ok()
}

/// The first loop with such an instruction: its instructions, with the branch back.
fn iteration<'a>(code: &'a [Instruction], mnemonic: &str) -> &'a [Instruction] {
    let loops = (0..code.len()).filter_map(|at| target(code, at).filter(|to| *to < at).map(|to| &code[to..=at]));
    let with = |l: &&[Instruction]| l.iter().any(|i| i.form().mnemonic == mnemonic);
    { loops }.find(with).unwrap_or_else(|| panic!("no loop with {mnemonic}:\n{}", listing(code)))
}

/// How many such instructions of a piece of code set a scoreboard that nothing after them in it waits for.
fn left_open(code: &[Instruction], mnemonic: &str) -> usize {
    let open = |(k, i): &(usize, &Instruction)| {
        let set = [i.control.write, i.control.read].into_iter().flatten().fold(0u8, |all, k| all | 1 << k);
        i.form().mnemonic == mnemonic && set != 0 && code[k + 1..].iter().all(|later| later.control.wait & set == 0)
    };
    code.iter().enumerate().filter(open).count()
}

#[test]
fn sources_of_a_store_are_read_while_the_next_turn_begins() {
    let body = "mov.u32 %r1, 0; mov.u32 %r2, %x; and.b32 %r5, %t, 3; add.s32 %r5, %r5, 1;
        L: mad.lo.s32 %r2, %r2, 5, %r1; st.global.u32 [%o], %r2; add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, %r5; @%p1 bra L;";
    let code = code(body);
    let iteration = iteration(&code, "STG");
    assert_eq!(left_open(iteration, "STG"), 1, "{}", listing(iteration));
    same_everywhere("stores in a loop", body);
}

#[test]
fn a_load_is_waited_for_where_it_is_wanted_behind_a_branch() {
    let long: String = (1..14).map(|k| format!("mad.lo.s32 %r2, %r2, %r2, {k}; ")).collect();
    let body = format!(
        "mov.u32 %r2, %t; ld.global.u32 %r4, [%i+4]; and.b32 %r3, %t, 5; setp.eq.u32 %p1, %r3, 1; @%p1 bra N;
        {long} N: add.s32 %r2, %r2, %r4; st.global.u32 [%o], %r2;"
    );
    let code = code(&body);
    let branch = (0..code.len()).find(|k| target(&code, *k).is_some_and(|to| to > *k)).expect("a branch");
    let loaded = (0..branch).rfind(|k| code[*k].form().mnemonic == "LDG").expect("a load");
    assert_eq!(left_open(&code[loaded..=branch], "LDG"), 1, "{}", listing(&code));
    same_everywhere("a load over a branch", &body);
    // What one path leaves in flight the other one overwrites, and threads of both converge.
    let both = format!(
        "mov.u32 %r2, %t; mov.u32 %r5, 7; and.b32 %r3, %t, 5; setp.eq.u32 %p1, %r3, 1; @%p1 bra N; {long}
        ld.global.u32 %r5, [%i+8]; bra M; N: ld.global.u32 %r4, [%i+4]; {long} xor.b32 %r2, %r2, %r4; ld.global.u32 %r5, [%i+12];
        M: add.s32 %r2, %r2, %r5; st.global.u32 [%o], %r2;"
    );
    same_everywhere("loads of two ways", &both);
}

#[test]
fn sums_of_matrices_and_loads_go_around_loops_in_loops() {
    let body = "and.b32 %r20, %t, 1; add.s32 %r20, %r20, 2; mov.u64 %d4, %i; mov.u32 %r2, 0; mov.u32 %r1, 0; mov.u32 %r4, 1;
        M: mov.u32 %r3, 0; add.s32 %r2, %r2, %r4; ld.global.u32 %r4, [%d4];
        L: ld.global.u32 %r5, [%d4+4]; mad.lo.s32 %r2, %r2, 3, %r5; add.s32 %r3, %r3, 1; setp.lt.s32 %p1, %r3, %r20; @%p1 bra L;
        add.s64 %d4, %d4, 4; add.s32 %r1, %r1, 1; setp.lt.s32 %p2, %r1, 2; @%p2 bra M; add.s32 %r2, %r2, %r4; st.global.u32 [%o], %r2;";
    same_everywhere("a load around a loop", body);
    let matrices = "cvt.rn.f32.u32 %f1, %t; mov.f32 %f2, %f1; mov.f32 %f3, 0f00000000; mov.f32 %f4, 0f3F800000; mov.u32 %r1, 0; mov.u32 %r7, 0x3c003c00;
        L: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r7, %r7, %r7, %r7}, {%r7, %r7}, {%f1, %f2, %f3, %f4};
        add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, 11; @%p1 bra L; st.global.v4.f32 [%o], {%f1, %f2, %f3, %f4};";
    same_everywhere("matrices", matrices);
}

/// What was loaded into %r5 goes into the sum in %r2, then comes arithmetic on that.
fn work(steps: u32) -> String {
    let step = |k| format!("mad.lo.s32 %r2, %r2, {}, {k}; xor.b32 %r2, %r2, {}; ", 2 * k + 1, 77 * k);
    format!("add.s32 %r2, %r2, %r5; {}", (1..=steps).map(step).collect::<String>())
}

/// Iterations of a thread in %r9, and in %d4 so many words before the end of the input: one word more is not mapped.
const TO_THE_END: &str = "and.b32 %r9, %t, 7; mul.wide.u32 %d3, %r9, 4; ld.param.u64 %d4, [in]; add.s64 %d4, %d4, 4096; sub.s64 %d4, %d4, %d3;
    mov.u32 %r1, 0; mov.u32 %r2, %t; setp.eq.u32 %p3, %r9, 0; @%p3 bra E;";
const NEXT: &str = "add.s64 %d4, %d4, 4; add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, %r9; @%p1 bra L;";
const LEAVE: &str = "E: add.s32 %r2, %r2, 1; st.global.u32 [%o], %r2;";

#[test]
fn loads_are_a_turn_ahead_and_none_is_beyond_the_last_turn() {
    let long = work(24);
    for (name, body) in [
        ("counted up", format!("{TO_THE_END} L: ld.global.u32 %r5, [%d4]; {long} {NEXT} {LEAVE}")),
        (
            "counted down",
            format!(
                "{TO_THE_END} L: ld.global.u32 %r5, [%d4]; {long} add.s64 %d4, %d4, 4; add.s32 %r9, %r9, -1; setp.ne.s32 %p1, %r9, 0; @%p1 bra L; {LEAVE}"
            ),
        ),
        (
            "counted before it is read",
            format!(
                "{TO_THE_END} add.s64 %d4, %d4, -4; L: add.s64 %d4, %d4, 4; add.s32 %r1, %r1, 1; ld.global.u32 %r5, [%d4]; {long} setp.lt.s32 %p1, %r1, %r9; @%p1 bra L; {LEAVE}"
            ),
        ),
        (
            "an index",
            format!(
                "{TO_THE_END} L: mul.wide.s32 %d5, %r1, 4; add.s64 %d6, %d4, %d5; ld.global.u32 %r5, [%d6]; add.s32 %r2, %r2, %r1; {long} add.s32 %r1, %r1, 1; setp.ge.s32 %p1, %r1, %r9; @!%p1 bra L; {LEAVE}"
            ),
        ),
        (
            "read after the loop",
            format!(
                "mov.u32 %r5, 3; {TO_THE_END} L: ld.global.u32 %r5, [%d4]; {long} {NEXT} E: add.s32 %r2, %r2, %r5; st.global.u32 [%o], %r2;"
            ),
        ),
        (
            "a loop in a loop",
            format!(
                "mov.u32 %r20, 0; mov.u32 %r21, 0; M: {TO_THE_END} L: ld.global.u32 %r5, [%d4]; {long} {NEXT} E: add.s32 %r21, %r21, %r2; add.s32 %r20, %r20, 1; setp.lt.s32 %p2, %r20, 3; @%p2 bra M; st.global.u32 [%o], %r21;"
            ),
        ),
        (
            "stores elsewhere",
            format!(
                "mov.u32 %r8, sm; mad.lo.u32 %r8, %t, 4, %r8; st.shared.u32 [%r8], %t; {TO_THE_END} L: ld.global.u32 %r5, [%d4]; {long} st.shared.u32 [%r8], %r2; {NEXT} {LEAVE} ld.shared.u32 %r6, [%r8]; st.global.u32 [%o+4], %r6;"
            ),
        ),
    ] {
        let code = code(&body);
        let iteration = iteration(&code, "LDG");
        assert_eq!(left_open(iteration, "LDG"), 1, "{name}: {}", listing(iteration));
        same_everywhere(name, &body);
    }
}

#[test]
fn tiles_are_read_while_the_tile_before_is_multiplied() {
    let fill = "mov.u32 %r8, sm; mad.lo.u32 %r9, %t, 64, %r8; mov.u32 %r1, 0; mov.u32 %r2, %x;
        F: st.shared.u32 [%r9], %r2; mad.lo.s32 %r2, %r2, 5, 9; and.b32 %r2, %r2, 0x3fff3fff; add.s32 %r9, %r9, 4; add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, 16; @%p1 bra F; bar.sync 0;";
    let count = "and.b32 %r20, %x, 3; add.s32 %r20, %r20, 1; mov.u32 %r1, 0;";
    let products: String = (0..16)
        .map(|k| format!("mad.lo.s32 %r{}, %r{}, %r{}, %r{}; ", 30 + k, 4 + k % 4, 10 + k / 4, 30 + k))
        .collect();
    let sums: String = (0..16).map(|k| format!("mov.u32 %r{}, {k}; ", 30 + k)).collect();
    let more: String = (0..16).map(|k| format!("mad.lo.s32 %r{}, %r{}, 3, {k}; ", 30 + k, 30 + k)).collect();
    let all: String = (1..16).map(|k| format!("add.s32 %r30, %r30, %r{}; ", 30 + k)).collect();
    let outer = format!(
        "{fill} {count} {sums} mad.lo.u32 %r21, %t, 16, %r8;
        L: ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r21]; ld.shared.v4.b32 {{%r10, %r11, %r12, %r13}}, [%r21+2048]; {products} {more}
        add.s32 %r21, %r21, 256; add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, %r20; @%p1 bra L; {all} st.global.u32 [%o], %r30;"
    );
    // The same number of iterations for all threads of a warp, two steps an iteration.
    let zeros: String = (0..16).map(|k| format!("mov.f32 %f{k}, 0f00000000; ")).collect();
    let multiply = |sums: [u32; 4], a: u32, b: u32| {
        let [s, t, u, v] = sums;
        let (a, b) = ([0, 1, 2, 3].map(|k| format!("%r{}", a + k)).join(", "), format!("%r{b}, %r{}", b + 1));
        format!(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f{s}, %f{t}, %f{u}, %f{v}}}, {{{a}}}, {{{b}}}, {{%f{s}, %f{t}, %f{u}, %f{v}}}; "
        )
    };
    let quads = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]];
    let step = |a: u32, b: u32| -> String {
        quads.iter().enumerate().map(|(k, sums)| multiply(*sums, a, b + 2 * (k as u32 % 2))).collect()
    };
    let load = |r: u32, at: u32| {
        let all = [0, 1, 2, 3].map(|k| format!("%r{}", r + k)).join(", ");
        format!("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{all}}}, [%r21+{at}]; ")
    };
    let matrices = format!(
        "{fill} shr.u32 %r20, %t, 5; add.s32 %r20, %r20, 2; mov.u32 %r1, 0; and.b32 %r22, %t, 31; mad.lo.u32 %r21, %r22, 16, %r8; {zeros}
        L: {}{}{}{} {}{} add.s32 %r21, %r21, 256; add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, %r20; @%p1 bra L;
        add.f32 %f0, %f0, %f4; add.f32 %f1, %f1, %f8; add.f32 %f2, %f2, %f12; add.f32 %f3, %f3, %f15; st.global.v4.f32 [%o], {{%f0, %f1, %f2, %f3}};",
        load(4, 0), load(10, 512), load(30, 1024), load(34, 1536), step(4, 10), step(30, 34)
    );
    for (name, mnemonic, ahead, body) in [("an outer product", "LDS", 2, &outer), ("matrices", "LDSM", 4, &matrices)] {
        let code = code(body);
        let iteration = iteration(&code, mnemonic);
        assert_eq!(left_open(iteration, mnemonic), ahead, "{name}: {}", listing(iteration));
        same_everywhere(name, body);
    }
}

#[test]
fn loads_stay_in_their_turn_where_it_may_write_what_they_read_or_decides_what_is_read() {
    let long = work(24);
    let own = "mov.u64 %d4, %o; mov.u32 %r1, 0; mov.u32 %r9, 3; mov.u32 %r2, %x; st.global.u32 [%o], %t;";
    let shared = "mov.u32 %r8, sm; mad.lo.u32 %r9, %t, 4, %r8; xor.b32 %r10, %t, 33; mad.lo.u32 %r10, %r10, 4, %r8; mov.u32 %r1, 0; mov.u32 %r2, %x; and.b32 %r20, %x, 0;
        add.s32 %r20, %r20, 5; st.shared.u32 [%r9], %t; bar.sync 0;";
    let end = "add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, %r20; @%p1 bra L; st.global.u32 [%o], %r2;";
    for (name, mnemonic, body) in [
        ("a store to the next word", "LDG", format!("{own} L: ld.global.u32 %r5, [%d4]; {long} st.global.u32 [%d4+4], %r2; {NEXT}")),
        ("an atomic", "LDG", format!("{own} L: ld.global.u32 %r5, [%o]; {long} red.global.add.u32 [%o], %r2; {NEXT}")),
        ("a store through a generic address", "LDS", format!("{shared} cvt.u64.u32 %d5, %r9; cvta.shared.u64 %d5, %d5; L: ld.shared.u32 %r5, [%r9]; {long} st.u32 [%d5], %r2; {end}")),
        ("barriers", "LDS", format!("{shared} L: ld.shared.u32 %r5, [%r10]; {long} bar.sync 0; {end}")),
        ("a volatile load", "LDG", format!("{own} L: ld.volatile.global.u32 %r5, [%o]; {long} {NEXT} st.global.u32 [%o+4], %r2;")),
        ("a relaxed load", "LDS", format!("{shared} L: ld.relaxed.cta.shared.u32 %r5, [%r9]; {long} {end}")),
        // The last word of the input is not zero, the words after it are not mapped: reading one too far faults.
        ("an exit that what is loaded decides", "LDG", format!("{TO_THE_END} ld.param.u64 %d8, [in]; ld.global.u32 %r15, [%d8+4092];
            L: ld.global.u32 %r5, [%d4]; {long} add.s64 %d4, %d4, 4; setp.ne.u32 %p1, %r5, %r15; @%p1 bra L; {LEAVE}")),
        ("an address that is loaded", "LDS", format!("{shared} mov.u32 %r12, %r9; L: ld.shared.u32 %r5, [%r12]; {long} and.b32 %r12, %r5, 63; mad.lo.u32 %r12, %r12, 4, %r8; {end}")),
        ("addresses that share what is loaded", "LDS", format!("{shared} mov.u32 %r12, %r9; L: ld.shared.u32 %r5, [%r12]; and.b32 %r13, %r5, 31; mad.lo.u32 %r14, %r13, 4, %r8;
            {long} ld.shared.u32 %r15, [%r14]; ld.shared.u32 %r16, [%r14+4]; add.s32 %r2, %r2, %r15; xor.b32 %r2, %r2, %r16; and.b32 %r12, %r5, 63; mad.lo.u32 %r12, %r12, 4, %r8; {end}")),
        ("threads that leave in the loop", "LDG", format!("{TO_THE_END} L: setp.ge.s32 %p2, %r1, %r9; st.global.u32 [%o+8], %r2; @%p2 exit;
            ld.global.nc.u32 %r5, [%d4]; {long} add.s64 %d4, %d4, 4; add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, 100; @%p1 bra L; {LEAVE}")),
    ] {
        let code = code(&body);
        let iteration = iteration(&code, mnemonic);
        assert_eq!(left_open(iteration, mnemonic), 0, "{name}: {}", listing(iteration));
        same_everywhere(name, &body);
    }
}
