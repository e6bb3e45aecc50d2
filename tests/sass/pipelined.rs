//! What stays on its way over the end of a block and of a loop's turn: seen in the words, and the same memory as ptxas's code on every chip.

use crate::versus::{kernel, same_for};
use doorbell::elf::cubin::Arch;
use doorbell::isa::sass::compile::kernels;
use doorbell::isa::sass::{Instruction, Role, decode, print};

/// The same memory as ptxas's code, on every chip.
fn same_everywhere(name: &str, body: &str) {
    for (sm, specific) in [(80, false), (86, false), (89, false), (90, true), (120, false)] {
        let arch = Arch { sm, specific };
        same_for(arch, &format!("{name}, {arch}"), body);
    }
}

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
    // In quarters of an instruction's 16 bytes, from behind it.
    usize::try_from(at as i64 + 1 + (distance << 8 >> 8) / 4).ok()
}

/// The first loop with such an instruction: its instructions, with the branch back.
fn turn<'a>(code: &'a [Instruction], mnemonic: &str) -> &'a [Instruction] {
    let loops = (0..code.len()).filter_map(|at| target(code, at).filter(|to| *to < at).map(|to| &code[to..=at]));
    let with = |l: &&[Instruction]| l.iter().any(|i| i.form().mnemonic == mnemonic);
    { loops }.find(with).unwrap_or_else(|| panic!("no loop with {mnemonic}:\n{}", listing(code)))
}

/// How many such instructions of a piece of code set a scoreboard that nothing behind them in it waits for.
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
    let turn = turn(&code, "STG");
    assert_eq!(left_open(turn, "STG"), 1, "{}", listing(turn));
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
    // What one way leaves on its way the other one overwrites, and threads of both meet.
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
