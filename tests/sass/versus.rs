//! Our assembler and ptxas on the same text: both codes run on the software multiprocessor in strict mode and leave the
//! same bytes.

use crate::machine::{Case, launch};
use crate::nvidia::ptxas_for;
use doorbell::elf::cubin::{Arch, Cubin};
use doorbell::isa::sass::SmArch;
use doorbell::isa::sass::check::{Trust, check_for};
use doorbell::isa::sass::compile::{assemble, kernels};
use doorbell::isa::sass::{decode, print_at};

const SM90: Arch = Arch { sm: 90, specific: true };
const HEAD: &str = ".version 8.8\n.target sm_90a\n.address_size 64\n";
pub const THREADS: u32 = 64;

/// A kernel whose thread has its number in %t, its input word in %x and the address of its 16 bytes of results in %o.
pub fn kernel(body: &str) -> String {
    format!(
        "{HEAD}{FUNCTIONS}.visible .entry k(.param .u64 in, .param .u64 out)\n{{\n\
        .reg .pred %p<8>; .reg .b16 %h<16>; .reg .b32 %r<64>; .reg .f32 %f<16>; .reg .b64 %d<32>; .reg .f64 %e<8>;\n\
        .reg .b32 %t, %x; .reg .b64 %o, %i; .shared .align 16 .b8 sm[8192]; .shared .align 8 .b64 bar[4];\n\
        ld.param.u64 %i, [in]; ld.param.u64 %o, [out]; mov.u32 %t, %tid.x;\n\
        mul.wide.u32 %d1, %t, 16; add.s64 %o, %o, %d1; add.s64 %i, %i, %d1; ld.global.u32 %x, [%i];\n\
        {body}\nret;\n}}\n"
    )
}

/// Functions that bodies may call.
const FUNCTIONS: &str = "
.func (.param .b32 q) twice(.param .b32 v) { .reg .b32 %a<4>; ld.param.b32 %a1, [v]; add.s32 %a2, %a1, %a1; st.param.b32 [q], %a2; ret; }
.func (.param .b32 q) square(.param .b32 v) { .reg .b32 %a<4>; ld.param.b32 %a1, [v]; mul.lo.s32 %a2, %a1, %a1; st.param.b32 [q], %a2; ret; }
.func (.param .b32 q) sum(.param .b32 v) {
.reg .b32 %a<8>; .reg .pred %p<3>; ld.param.b32 %a1, [v]; mov.u32 %a4, %a1; setp.lt.u32 %p1, %a1, 1; @%p1 bra D; sub.s32 %a2, %a1, 1;
{ .param .b32 s; .param .b32 r; st.param.b32 [s], %a2; call (r), sum, (s); ld.param.b32 %a3, [r]; } add.s32 %a4, %a1, %a3;
D: st.param.b32 [q], %a4; ret; }
.func (.param .align 16 .b8 q[16]) four(.param .b64 v, .param .b32 w) {
.reg .b64 %a<4>; .reg .b32 %b<8>; ld.param.b64 %a1, [v]; ld.param.b32 %b1, [w]; mov.b64 {%b2, %b3}, %a1; add.s32 %b4, %b2, %b1;
st.param.v4.b32 [q], {%b1, %b2, %b3, %b4}; ret; }
.func (.reg.u64 wide) scaled(.reg .b32 v, .reg .f32 w, .reg .b16 h) {
.reg .b32 %a<4>; .reg .f32 %b<3>; .reg .pred %p; setp.gt.s32 %p, v, 9; cvt.rn.f32.s32 %b0, v; mul.rn.f32 %b1, %b0, w; cvt.rzi.s32.f32 %a1, %b1;
mul.wide.u16 %a0, h, h; mov.b64 wide, {%a0, %a1}; @%p ret; shl.b64 wide, wide, 7; }
.global .align 8 .u64 table[2] = {twice, square};
.const .align 8 .u64 cx = 9; .const .align 4 .u32 cz = 6; .const .align 8 .u64 cy[4] = {3, cx, cz, cx+4}; .const .align 4 .u32 cw[2] = {cx, cz};
";

/// Runs one text's code by both.
pub fn same(name: &str, body: &str) {
    same_for(SM90, name, body);
}

/// The same for every chip.
pub fn same_everywhere(name: &str, body: &str) {
    for chip in SmArch::ALL {
        let arch = if chip == SmArch::Sm90 { SM90 } else { chip.arch() };
        same_for(arch, &format!("{name}, {arch}"), body);
    }
}

pub fn input() -> Vec<u8> {
    (0..THREADS * 16).flat_map(|k| k.wrapping_mul(2_654_435_761).rotate_left(k % 32).to_le_bytes()).collect()
}

/// The same for a chip; gives what both leave.
pub fn same_for(arch: Arch, name: &str, body: &str) -> Vec<u8> {
    let theirs = ptxas_for(&text_for(arch, body), &arch.to_string(), "-O3");
    let theirs = left(&theirs).unwrap_or_else(|e| panic!("{name}, theirs: {e}"));
    let ours = ours_for(arch, name, body);
    assert_eq!(theirs, ours, "{name}");
    ours
}

fn text_for(arch: Arch, body: &str) -> String {
    kernel(body).replace(".target sm_90a", &format!(".target {arch}"))
}

/// What our code leaves, of which no schedule has a fault.
pub fn ours_for(arch: Arch, name: &str, body: &str) -> Vec<u8> {
    let text = text_for(arch, body);
    let ours = assemble(&text, arch).unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
    let chip = SmArch::of(arch).expect("a chip of the table");
    let file = Cubin::parse(&ours).expect("our cubin");
    let code = file.code(file.kernel("k").expect("the kernel")).as_chunks::<16>().0;
    let words: Vec<u128> = code.iter().map(|w| u128::from_le_bytes(*w)).collect();
    let found = check_for(&words, chip, Trust::Safe).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(found.is_empty(), "{name}: {}", found[0]);
    let left = left(&ours).unwrap_or_else(|e| panic!("{name}, ours: {e}"));
    assert_ne!(left, vec![0; THREADS as usize * 16], "{name}: nothing is written");
    left
}

/// The results after a launch; the input stays as it was.
fn left(cubin: &[u8]) -> Result<Vec<u8>, String> {
    let (from, to) = (0x7_0000_0000u64, 0x7_1000_0000u64);
    let buffers = [(from, input()), (to, vec![0; THREADS as usize * 16])];
    let params = [from, to].iter().flat_map(|a| a.to_le_bytes()).collect::<Vec<u8>>();
    let case = Case { grid: [1; 3], block: [THREADS, 1, 1], params, buffers: &buffers, dynamic_bytes: 0 };
    let (mut all, _) = launch(cubin, "k", &case, true)?;
    assert_eq!(all[0], buffers[0].1, "the input is changed");
    Ok(all.remove(1))
}

/// The words after the input's 4 KiB are not mapped: a load moved before the exit of the threads that would read there
/// faults.
#[test]
fn loads_stay_behind_the_exit_of_threads_that_must_not_read() {
    for load in ["ld.global.nc.u32", "ld.global.u32", "ld.relaxed.gpu.global.u32"] {
        let body = format!(
            "ld.param.u64 %d4, [in]; mul.wide.u32 %d3, %t, 256; add.s64 %d4, %d4, %d3; and.b32 %r3, %x, 0; add.u32 %r3, %r3, %t;
            setp.gt.u32 %p1, %r3, 15; @%p1 exit;
            {load} %r2, [%d4]; mad.lo.s32 %r2, %r2, %r2, 7; mul.lo.s32 %r2, %r2, %x; st.global.u32 [%o], %r2;"
        );
        same_everywhere(load, &body);
    }
}

/// On sm_120 constants come through uniform registers: not through those of the instructions between two uses of one.
#[test]
fn constants_are_still_there_behind_instructions_that_take_uniform_registers() {
    let body = "ld.param.u32 %r1, [out]; ld.param.u32 %r4, [in]; mov.u32 %r9, bar; add.u32 %r2, %x, %r1; xor.b32 %r5, %r2, %r4; setp.eq.u32 %p1, %t, 0;
        mbarrier.init.shared.b64 [%r9], 3; add.u32 %r3, %t, %r1; xor.b32 %r6, %r3, %r4; st.global.v4.u32 [%o], {%r2, %r3, %r5, %r6};";
    for chip in [SmArch::Sm90, SmArch::Sm120] {
        same_for(chip.arch(), &format!("an mbarrier, {chip}"), body);
    }
}

#[test]
fn calls_and_tables_leave_what_ptxas_leaves() {
    let call = |f: &str| {
        format!("{{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), {f}, (a); ld.param.b32 %r2, [b]; }}")
    };
    let store = "st.global.u32 [%o], %r2;";
    same("call", &format!("mov.u32 %r1, %x; {} {store}", call("twice")));
    same("two calls", &format!("mov.u32 %r1, %x; {} mov.u32 %r1, %r2; {} {store}", call("twice"), call("square")));
    same("recursion", &format!("and.b32 %r1, %t, 7; {} st.global.u32 [%o+4], %r1; {store}", call("sum")));
    same(
        "guarded call",
        &format!(
            "mov.u32 %r1, %x; mov.u32 %r2, 5; setp.lt.u32 %p1, %t, 9; @!%p1 bra S; {} S: add.u32 %r2, %r2, %t; {store}",
            call("square")
        ),
    );
    same("a structure", "cvt.u64.u32 %d3, %x; shl.b64 %d4, %d3, 9;
        { .param .b64 a; .param .b32 c; .param .align 16 .b8 b[16]; st.param.b64 [a], %d4; st.param.b32 [c], %t;
        call (b), four, (a, c); ld.param.v4.b32 {%r2, %r3, %r4, %r5}, [b]; } st.global.v4.b32 [%o], {%r2, %r3, %r4, %r5};");
    same("through a register", "and.b32 %r3, %t, 1; mul.wide.u32 %d3, %r3, 8; mov.u64 %d4, table; add.s64 %d3, %d3, %d4; ld.global.u64 %d5, [%d3];
        { .param .b32 a; .param .b32 b; st.param.b32 [a], %x; P: .callprototype (.param .b32 _) _ (.param .b32 _);
        call (b), %d5, (a), P; ld.param.b32 %r2, [b]; } st.global.u32 [%o], %r2;");
    same("two ways to a table", &format!("mov.u32 %r1, %x; mov.u32 %r2, 9; setp.lt.s32 %p1, %x, 0; @%p1 bra J; {} setp.eq.u32 %p2, %t, 40; @%p2 bra K;
        J: and.b32 %r3, %x, 3; T: .branchtargets A, B, C, E; brx.idx %r3, T; A: {} bra E; B: add.u32 %r2, %r2, 3; bra E; C: not.b32 %r2, %r2; E: K: {store}",
        call("twice"), call("square")));
    same(
        "brx",
        "and.b32 %r3, %t, 3; mov.u32 %r2, %x; T: .branchtargets A, B, C, E; brx.idx %r3, T;
        A: add.s32 %r2, %r2, 1; bra E; B: shl.b32 %r2, %r2, 3; bra E; C: not.b32 %r2, %r2; E: st.global.u32 [%o], %r2;",
    );
}

/// A constant of an inner loop that stands for an equal one stays in the outer loop where there is no room for it, and
/// with it what reads it: a multiply was done before its factor was there.
#[test]
fn what_reads_a_constant_stays_behind_it_in_loops_of_loops() {
    for more in [9, 10, 13] {
        let sums = (0..more).map(|k| format!("mul.lo.u32 %r{0}, %t, {1}; xor.b32 %r1, %r1, %r{0};", 30 + k, 7 * k + 3));
        let body = format!(
            "mov.u32 %r20, 0; mov.u32 %r1, 0; and.b32 %r21, %x, 3; setp.gt.u32 %p1, %x, 1000; mov.f32 %f2, 0f00000000;
            L1: setp.ge.u32 %p2, %r20, %r21; @%p2 bra E1; mov.u32 %r22, 0;
            L2: setp.ge.u32 %p2, %r22, 6; @%p2 bra E2; {}
            sub.rn.f32 %f7, 0f40ec0000, 0fc2420000; @%p1 bra J5; add.u32 %r1, %r1, %r22; @%p1 bra J6;
            J5: @%p1 rcp.rn.f32 %f2, %f7;
            J6: add.u32 %r22, %r22, 1; bra L2;
            E2: add.u32 %r20, %r20, 1; bra L1;
            E1: st.global.f32 [%o], %f2; st.global.u32 [%o+4], %r1;",
            sums.collect::<String>()
        );
        same_everywhere(&format!("{more} sums"), &body);
    }
}

/// Parameters in registers, and constants in calls.
#[test]
fn parameters_in_registers_leave_what_ptxas_leaves() {
    let call = |args: &str| {
        format!(
            "mov.b32 {{%h1, %h2}}, %x; cvt.rn.f32.u32 %f1, %t; and.b32 %r1, %t, 15; call (%d3), scaled, ({args});
            st.global.u64 [%o+8], %d3;"
        )
    };
    same_everywhere("registers", &call("%r1, %f1, %h1"));
    same("constants", &call("12, 0f40490FDB, 300"));
    same("a constant float", &call("%r1, 0f3f000000, %h2"));
    same(
        "guarded",
        "setp.lt.u32 %p1, %t, 9; mov.u64 %d3, 6; mov.u32 %r1, 11; mov.f32 %f1, 0f40000000; mov.b32 {%h1, %h2}, %x;
        @%p1 call (%d3), scaled, (%r1, %f1, %h2); st.global.u64 [%o+8], %d3;",
    );
}

/// The values of `isa::ptx`'s own test of expressions, by ptxas.
#[test]
fn constant_expressions_and_vector_registers_leave_what_ptxas_leaves() {
    let all = [
        "4*8+1",
        "1+4*8",
        "(1+4)*8",
        "-7/2",
        "-7 % 3",
        "7 % -3",
        "-7/2U",
        "1<<70",
        "1 ? -1 : 2U",
        "1<<4|3",
        "~0 & 0xff",
        "-16>>2",
        "0xfffffffffffffff0>>2",
        "(.u64)-16>>60",
        "3 > 2 ? 10 : 20",
        "!5",
        "1 == 1 && 2 != 2 || 7 >= 7",
        "6 ^ 3",
        "-1 < 1",
        "-1 < 1U",
        "WARP_SZ*2",
        "(5)",
    ];
    for text in all {
        same(text, &format!("mov.u64 %d3, {text}; add.u64 %d3, %d3, 77; st.global.u64 [%o], %d3;"));
    }
    same(
        "offsets",
        "ld.global.u32 %r1, [%i + 2*4]; ld.global.u32 %r2, [%i+16-4]; add.u32 %r1, %r1, WARP_SZ; st.global.v2.u32 [%o+2*(1+1)*2], {%r1, %r2};",
    );
    same(
        "glued words",
        "{ .reg.v2.u32 v; .reg .u64 y<2>; mov.u32 v.x, %x; mov.u32 v.y, %t; mov.b64 y0, v; st.global.u64 [%o], y0; }",
    );
    same(
        "vectors",
        "{ .reg .v4 .b32 v, w<2>; ld.global.v4.b32 v, [%i]; add.u32 v.y, v.x, v.w; mov.v4.b32 w1, v; mov.v4.b32 v, {w1.y, w1.x, w1.w, w1.z};         st.global.v4.b32 [%o], v; }",
    );
    same(
        "small lanes",
        "{ .reg .v4 .u16 v; .reg .v2 .b64 y; mov.b32 {%h1, %h2}, %x; mov.v4.u16 v, {%h2, 7, %h1, %h1}; cvt.u64.u16 y.x, v.x; cvt.u64.u16 y.y, v.w;         mov.v2.b64 y, {y.y, y.x}; add.u64 y.x, y.x, %d1; st.global.v2.b64 [%o], y; }",
    );
}

/// Also by the manual's text: both assemblers make one instruction of these.
#[test]
fn integers_are_packed_to_the_nearest_smaller_ones_on_every_chip() {
    let types = [
        ("u16", 0, 0xffff),
        ("s16", -0x8000, 0x7fff),
        ("u8", 0, 0xff),
        ("s8", -0x80, 0x7f),
        ("u4", 0, 15),
        ("s4", -8, 7),
        ("u2", 0, 3),
        ("s2", -2, 1),
    ];
    let (input, word) =
        (input(), |of: &[u8], at: usize| u32::from_le_bytes(of[at..at + 4].try_into().expect("a word")));
    for (chip, (ty, least, largest)) in SmArch::ALL.into_iter().flat_map(|c| types.map(|t| (c, t))) {
        let (bits, guard) = (ty[1..].parse::<u32>().expect("bits"), if ty == "s8" { "@%p1 " } else { "" });
        let third = if bits < 16 { (".b32", ", %r2") } else { ("", "") };
        for shift in [0, 12, 18, 22, 26, 30] {
            let body = format!(
                "ld.global.u32 %r1, [%i+4]; ld.global.u32 %r2, [%i+8]; setp.lt.u32 %p1, %t, 20; mov.u32 %r3, 7; shr.s32 %r4, %x, {shift}; \
                shr.s32 %r5, %r1, {shift}; {guard}cvt.pack.sat.{ty}.s32{} %r3, %r4, %r5{}; st.global.u32 [%o], %r3;",
                third.0, third.1
            );
            let left = same_for(chip.arch(), &format!("{chip} {ty}"), &body);
            for t in 0..THREADS as usize {
                let part = |at| {
                    let nearest = (word(&input, 16 * t + at).cast_signed() >> shift).clamp(least, largest);
                    u64::from(nearest.cast_unsigned()) & ((1 << bits) - 1)
                };
                let above = if bits < 16 { u64::from(word(&input, 16 * t + 8)) << (2 * bits) } else { 0 };
                let packed = (above | part(0) << bits | part(4)) as u32;
                let want = if !guard.is_empty() && t >= 20 { 7 } else { packed };
                assert_eq!(word(&left, 16 * t), want, "{chip} {ty} >> {shift}, thread {t}");
            }
        }
    }
}

/// The address of a variable in a constant bank is its place there, also as what another one holds.
#[test]
fn places_of_constants_are_the_same_wherever_they_are_named() {
    same(
        "a constant's place",
        "mov.u64 %d3, cx; mov.u64 %d4, cz; ld.const.u64 %d5, [cy+8]; ld.const.u64 %d6, [cy+16]; ld.const.u64 %d7, [cy+24]; \
        ld.const.u32 %r1, [cw+4]; xor.b64 %d3, %d3, %d5; xor.b64 %d4, %d4, %d6; sub.s64 %d7, %d7, %d5; shl.b64 %d4, %d4, 8; or.b64 %d3, %d3, %d4; cvt.u64.u32 %d8, %r1; \
        sub.s64 %d8, %d8, %d6; add.s64 %d8, %d8, %d7; ld.const.u64 %d9, [%d5]; add.s64 %d8, %d8, %d9; st.global.v2.u64 [%o], {%d3, %d8};",
    );
}

/// Variables of the module in a body, two of one name.
#[test]
fn variables_in_bodies_leave_what_ptxas_leaves() {
    same(
        "variables",
        "{ .global .align 4 .b32 kept[4] = {11, 22, 33, 44}; .const .align 4 .u32 few[2] = {5, 6}; and.b32 %r1, %t, 3; mul.wide.u32 %d3, %r1, 4; \
        mov.u64 %d4, kept; add.s64 %d4, %d4, %d3; ld.global.u32 %r2, [%d4]; ld.const.u32 %r3, [few+4]; add.u32 %r2, %r2, %r3; \
        { .global .align 4 .b32 kept = 900; ld.global.u32 %r4, [kept]; add.u32 %r2, %r2, %r4; } st.global.u32 [%o], %r2; }",
    );
}

#[test]
fn differences_of_halves_leave_what_ptxas_leaves() {
    let two = "ld.global.u32 %r1, [%i+4]; ld.global.u32 %r2, [%i+8]; setp.lt.u32 %p1, %t, 20; mov.u32 %r3, 7;";
    for op in [
        "vabsdiff2.u32.u32.u32.add %r3, %x, %r1, %r2",
        "vabsdiff2.u32.s32.s32.add %r3, %x, %r1, %r2",
        "vabsdiff2.u32.u32.u32 %r3, %x, %r1, %r2",
        "@%p1 vabsdiff2.u32.s32.s32.add %r3, %r1, %x, %r3",
    ] {
        same_everywhere(op, &format!("{two} {op}; st.global.u32 [%o], %r3;"));
    }
    for op in ["max.s16x2.relu %r3, %x, %r1", "min.s16x2.relu %r3, %x, %r1"] {
        same(op, &format!("{two} {op}; st.global.u32 [%o], %r3;"));
    }
}

/// A failed assertion ends the grid; its message is lost.
#[test]
fn a_failed_assertion_is_a_trap() {
    let body = "setp.ne.u32 %p1, %t, 100; @%p1 bra OK; { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 e; .param .b64 f;         st.param.b64 [a], %d1; st.param.b64 [b], %d1; st.param.b32 [c], 7; st.param.b64 [e], %d1; st.param.b64 [f], 1;         call.uni __assertfail, (a, b, c, e, f); } OK: st.global.u32 [%o], %x;";
    let text = kernel(body).replace(
        ".visible .entry",
        ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 e, .param .b64 f);\n.visible .entry",
    );
    let code = &kernels(&text).expect("it is assembled")[0].words;
    let trap = |w: &&u128| decode(**w).is_ok_and(|i| print_at(&i, 0).contains("BPT.TRAP"));
    assert_eq!(code.iter().filter(trap).count(), 1);
    let printing = text.replace("__assertfail", "vprintf");
    let elsewhere = text.replace(".extern .func", ".extern .global .align 4 .b32 far[4];\n.extern .func");
    assert_eq!(kernels(&elsewhere).expect("nobody names it")[0].words, kernels(&text).expect("as before")[0].words);
    assert!(kernels(&printing).expect_err("nothing prints").to_string().contains("vprintf has no body in this module"));
}

/// More predicates than there are, of which the first has a value in some threads only. (ptxas's code joins it with
/// others where it has none, and what comes of that decides nothing.)
#[test]
fn predicates_that_find_no_register_before_they_have_a_value_leave_what_ptxas_leaves() {
    let bit = |k: u32| format!("and.b32 %r1, %x, {}; setp.eq.u32 %p{k}, %r1, 0;", 1 << k);
    let adds = |k: u32| format!("@%p{k} add.u32 %r2, %r2, {};", 7 * k + 1);
    let [bits, sums]: [String; 2] = [(2..8).map(bit).collect(), (2..8).chain(2..8).map(adds).collect()];
    let first = bit(0);
    let body = format!(
        "mov.u32 %r2, 0; mov.u32 %r3, 0; {first} @%p0 setp.gt.u32 %p1, %x, 0x40000000; {bits} {sums}
            @%p0 selp.u32 %r3, 1, 2, %p1; st.global.v2.u32 [%o], {{%r2, %r3}};"
    );
    same("predicates", &body);
    // General registers hold them.
    let made = kernels(&kernel(&body)).expect("a kernel");
    assert_eq!((made[0].spills, made[0].frame_bytes), (0, 0));
}

#[test]
fn asynchronous_copies_and_mbarriers_leave_what_ptxas_leaves() {
    let place = "mov.u32 %r1, sm; mad.lo.u32 %r1, %t, 16, %r1;";
    let load = "ld.shared.v4.b32 {%r2, %r3, %r4, %r5}, [%r1]; st.global.v4.b32 [%o], {%r2, %r3, %r4, %r5};";
    same(
        "cg",
        &format!(
            "{place} cp.async.cg.shared.global [%r1], [%i], 16; cp.async.commit_group; cp.async.wait_group 0; {load}"
        ),
    );
    same(
        "ca of words",
        &format!(
            "{place} cp.async.ca.shared.global [%r1], [%i+12], 4; cp.async.ca.shared.global.L2::128B [%r1+4], [%i], 4;
        cp.async.ca.shared.global [%r1+8], [%i+8], 8; cp.async.wait_all; {load}"
        ),
    );
    same("two groups", &format!(
        "{place} cp.async.cg.shared.global [%r1], [%i], 16; cp.async.commit_group; cp.async.cg.shared.global [%r1+4096], [%i], 16;
        cp.async.commit_group; cp.async.wait_group 1; bar.sync 0; {load} cp.async.wait_group 0;
        ld.shared.u32 %r6, [%r1+4100]; st.global.u32 [%o+8], %r6;"));
    same(
        "none or all of the source",
        &format!(
            "{place} setp.lt.u32 %p1, %t, 20; selp.u32 %r9, 16, 0, %p1; cp.async.cg.shared.global [%r1], [%i], 16, %r9; cp.async.wait_all; {load}"
        ),
    );
    same(
        "mbarrier",
        &format!(
        "{place} mov.u32 %r9, bar; setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [%r9], {THREADS}; bar.sync 0;
        st.shared.u32 [%r1], %x; st.shared.u32 [%r1+4], %t; st.shared.u32 [%r1+8], %t; st.shared.u32 [%r1+12], %t;
        mbarrier.arrive.shared.b64 %d5, [%r9]; W: mbarrier.try_wait.shared.b64 %p2, [%r9], %d5; @!%p2 bra W;
        xor.b32 %r8, %t, 1; mov.u32 %r7, sm; mad.lo.u32 %r1, %r8, 16, %r7; {load}"),
    );
    same(
        "copies that arrive",
        &format!(
        "{place} mov.u32 %r9, bar; setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [%r9+8], {THREADS}; bar.sync 0;
        cp.async.ca.shared.global [%r1], [%i], 16; cp.async.mbarrier.arrive.noinc.shared.b64 [%r9+8];
        W: mbarrier.try_wait.parity.shared.b64 %p2, [%r9+8], 0; @!%p2 bra W; {load}"),
    );
}

#[test]
fn fragments_go_through_shared_memory_as_ptxas_has_it() {
    let fill = "mov.u32 %r1, sm; mad.lo.u32 %r2, %t, 16, %r1; cp.async.cg.shared.global [%r2], [%i], 16; cp.async.wait_all; bar.sync 0;";
    for (n, regs) in [(1, "{%r4}"), (2, "{%r4, %r5}"), (4, "{%r4, %r5, %r6, %r7}")] {
        for trans in ["", ".trans"] {
            same(&format!("ldmatrix x{n}{trans}"), &format!(
                "{fill} mov.u32 %r5, 0; mov.u32 %r6, 0; mov.u32 %r7, 0; and.b32 %r8, %t, 31; mad.lo.u32 %r8, %r8, 16, %r1;
                ldmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16 {regs}, [%r8]; st.global.v4.b32 [%o], {{%r4, %r5, %r6, %r7}};"));
            same(&format!("stmatrix x{n}{trans}"), &format!(
                "{fill} add.u32 %r4, %x, 1; add.u32 %r5, %x, 2; not.b32 %r6, %x; add.u32 %r7, %x, %t;
                mad.lo.u32 %r8, %t, 16, %r1; stmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16 [%r8], {regs};
                bar.sync 0; ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r2]; st.global.v4.b32 [%o], {{%r4, %r5, %r6, %r7}};"));
        }
    }
}

#[test]
fn packed_saturated_and_wide_integers_leave_what_ptxas_leaves() {
    let two = "ld.global.u32 %r1, [%i+4]; ld.global.u32 %r2, [%i+8]; mov.b64 %d3, {%x, %r1}; mov.b64 %d4, {%r2, %x};";
    for op in [
        "add.u16x2 %r3, %x, %r1",
        "min.s16x2 %r3, %x, %r1",
        "max.u16x2 %r3, %x, %r1",
        "add.sat.s32 %r3, %x, %r1",
        "sub.sat.s32 %r3, %x, %r1",
        "prmt.b32.f4e %r3, %x, %r1, %r2",
        "prmt.b32.ecl %r3, %x, %r1, %r2",
        "bmsk.clamp.b32 %r3, %x, %r1",
        "bmsk.wrap.b32 %r3, %x, %r1",
        "szext.clamp.s32 %r3, %x, %r1",
        "szext.wrap.u32 %r3, %x, %r1",
        "dp2a.lo.s32.s32 %r3, %x, %r1, %r2",
        "dp2a.hi.u32.u32 %r3, %x, %r1, %r2",
        "vabsdiff4.u32.u32.u32.add %r3, %x, %r1, %r2",
        "mad.lo.cc.u32 %r3, %x, %r1, %r2; madc.hi.u32 %r3, %x, %r1, %r3",
        "cvt.sat.u16.s64 %h1, %d3; cvt.u32.u16 %r3, %h1",
        "cvt.sat.s32.s64 %r3, %d3",
        "cvt.sat.s32.u64 %r3, %d3",
        "cvt.sat.u32.s64 %r3, %d3",
        "bfind.u64 %r3, %d3",
        "and.b32 %r3, %x, 0x83ff83ff; neg.ftz.f16x2 %r3, %r3",
        "and.b32 %r4, %x, 0x83ff83ff; abs.ftz.f16x2 %r4, %r4; neg.f16x2 %r3, %r4; sub.s32 %r3, %r3, %x",
        "set.lt.u32.f16x2 %r3, %x, %r1",
        "set.ge.bf16x2.bf16x2 %r3, %x, %r1",
        "mov.b32 %f1, %x; cvt.rna.tf32.f32 %r3, %f1",
        "mov.b32 {%h1, %h2}, %x; cvt.rn.f16x2.e4m3x2 %r3, %h1",
        "cvt.rn.satfinite.e5m2x2.f16x2 %h1, %x; cvt.u32.u16 %r3, %h1",
    ] {
        same(op, &format!("{two} {op}; st.global.u32 [%o], %r3;"));
    }
    for op in [
        "add.cc.s64 %d5, %d3, %d4; addc.s64 %d5, %d3, %d5",
        "sub.cc.s64 %d5, %d3, %d4; subc.s64 %d5, %d5, %d3",
        "bfe.u64 %d5, %d3, 13, 30",
        "bfe.s64 %d5, %d3, 40, 20",
        "bfi.b64 %d5, %d3, %d4, 32, 32",
        "bfi.b64 %d5, %d3, %d4, 7, 43",
        "cvt.sat.u64.s64 %d5, %d3",
        "cvt.sat.s64.u64 %d5, %d3",
    ] {
        same(op, &format!("{two} {op}; st.global.u64 [%o], %d5;"));
    }
}

/// sm_120 has no instruction for them; its own are selected.
#[test]
fn differences_of_bytes_leave_what_ptxas_leaves_on_every_chip() {
    let two = "ld.global.u32 %r1, [%i+4]; ld.global.u32 %r2, [%i+8]; setp.lt.u32 %p1, %t, 20; mov.u32 %r3, 7;";
    for chip in SmArch::ALL {
        for op in [
            "vabsdiff4.u32.u32.u32.add %r3, %x, %r1, %r2",
            "vabsdiff4.u32.u32.u32 %r3, %x, %r1, %r2",
            "@%p1 vabsdiff4.u32.u32.u32.add %r3, %r1, %x, %r3",
        ] {
            same_for(chip.arch(), &format!("{chip} {op}"), &format!("{two} {op}; st.global.u32 [%o], %r3;"));
        }
    }
}

/// What ptxas makes of each is one instruction that only some chips have so: F2FP that joins a half, BRXU, R2UR with a
/// predicate, FCHK and IDP.2A of a constant.
#[test]
fn what_random_programs_found_leaves_what_ptxas_leaves_on_every_chip() {
    let table = "ld.param.u32 %r1, [out]; shr.u32 %r1, %r1, 27; and.b32 %r1, %r1, 3; ts: .branchtargets A, B, C, D; brx.idx %r1, ts;
        A: add.u32 %x, %x, 1; bra E; B: mul.lo.u32 %x, %x, 3; bra E; C: sub.u32 %x, %x, 7; bra E; D: xor.b32 %x, %x, 7; E: st.global.u32 [%o], %x;";
    let mask = "setp.lt.u32 %p1, %t, 13; vote.sync.ballot.b32 %r6, %p1, 0xffffffff; @!%p1 bra F; and.b32 %r4, %t, 0; match.all.sync.b32 %r7|%p2, %r4, %r6; \
        st.global.u32 [%o], %r7; F:";
    let constant = "ld.param.u32 %r1, [out]; dp2a.hi.u32.s32 %r2, %x, %r1, %t; cvt.rn.f32.u32 %f1, %t; mov.b32 %f2, %r1; \
        div.rn.f32 %f4, %f1, %f2; st.global.u32 [%o], %r2; st.global.f32 [%o+4], %f4;";
    let halves = "cvt.rn.f32.u32 %f1, %t; cvt.rn.f32.s32 %f2, %x; cvt.u16.u32 %h2, %x; cvt.rn.satfinite.e5m2x2.f32 %h1, %f1, %f2; mov.b32 %r1, {%h1, %h2}; \
        st.global.u32 [%o], %r1;";
    for chip in SmArch::ALL {
        let bodies = [("a table", table), ("a mask", mask), ("constants", constant), ("halves", halves)];
        for (name, body) in bodies.into_iter().filter(|b| b.0 != "halves" || chip >= SmArch::Sm89) {
            same_for(chip.arch(), &format!("{chip} {name}"), body);
        }
    }
}

#[test]
fn atomics_that_the_machine_does_not_have_leave_what_ptxas_leaves() {
    let zero = "mov.u32 %r9, sm; setp.eq.u32 %p1, %t, 0; mov.u64 %d9, 77; @%p1 st.shared.u64 [%r9], %d9; bar.sync 0; and.b32 %r3, %x, 1023; add.u32 %r3, %r3, 3;
        cvt.u64.u32 %d3, %r3; cvt.rn.f32.u32 %f1, %r3; cvt.rn.f64.u32 %e1, %r3;";
    let end = "bar.sync 0; ld.shared.u64 %d4, [%r9]; st.global.u64 [%o], %d4;";
    for op in [
        "red.shared.add.u64 [%r9], %d3",
        "red.shared.max.u64 [%r9], %d3",
        "red.shared.min.s64 [%r9], %d3",
        "red.shared.or.b64 [%r9], %d3",
        "red.shared.add.f32 [%r9], %f1",
        "red.shared.add.f64 [%r9], %e1",
    ] {
        same(op, &format!("{zero} {op}; {end}"));
    }
}

/// Fragments of words in %r1.. (A), %r11.. (B) and %r21.. (C), results in %r31.. .
const FRAGMENTS: &str = "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%i]; xor.b32 %r11, %r1, 0x13579bdf; shf.l.wrap.b32 %r12, %r2, %r3, 5;
    add.u32 %r13, %r4, %r1; not.b32 %r14, %r3; shr.s32 %r21, %r2, 9; and.b32 %r22, %r3, 1023; sub.u32 %r23, %r22, %r21; shr.s32 %r24, %r4, 3;";
const STORE: &str = "st.global.v4.u32 [%o], {%r31, %r32, %r33, %r34};";

fn list(from: u32, n: u32) -> String {
    (from..from + n).map(|k| format!("%r{k}")).collect::<Vec<_>>().join(", ")
}

#[test]
fn products_of_every_type_leave_what_ptxas_leaves() {
    // Instruction, registers of A, B and the sum.
    for (op, a, b, c) in [
        ("m8n8k16.row.col.s32.s8.u8.s32", 1, 1, 2),
        ("m16n8k64.row.col.s32.s4.s4.s32", 4, 2, 4),
        ("m16n8k64.row.col.s32.u4.s4.s32", 4, 2, 4),
        ("m16n8k64.row.col.satfinite.s32.s4.u4.s32", 4, 2, 4),
        ("m16n8k32.row.col.s32.u4.u4.s32", 2, 1, 4),
        ("m16n8k32.row.col.s32.s4.s4.s32", 2, 1, 4),
        ("m8n8k32.row.col.s32.s4.s4.s32", 1, 1, 2),
        ("m8n8k32.row.col.s32.u4.s4.s32", 1, 1, 2),
        ("m8n8k128.row.col.s32.b1.b1.s32.and.popc", 1, 1, 2),
        ("m16n8k128.row.col.s32.b1.b1.s32.xor.popc", 2, 1, 4),
        ("m16n8k128.row.col.s32.b1.b1.s32.and.popc", 2, 1, 4),
        ("m16n8k256.row.col.s32.b1.b1.s32.xor.popc", 4, 2, 4),
        ("m16n8k256.row.col.s32.b1.b1.s32.and.popc", 4, 2, 4),
    ] {
        let (d, a, b, c) = (list(31, c), list(1, a), list(11, b), list(21, c));
        let body = format!(
            "{FRAGMENTS} mov.u32 %r33, 0; mov.u32 %r34, 0; mma.sync.aligned.{op} {{{d}}}, {{{a}}}, {{{b}}}, {{{c}}}; {STORE}"
        );
        for chip in SmArch::ALL {
            let (arch, name) = (chip.arch(), format!("{op}, {chip}"));
            if chip == SmArch::Sm120 && op.contains("b1") {
                // ptxas's code for bits unpacks them by instructions that the software multiprocessor does not have.
                assert_eq!(ours_for(arch, &name, &body), same_for(SM90, op, &body), "{name}");
            } else {
                same_for(arch, &name, &body);
            }
        }
    }
    // Of numbers whose sums are exact in any order.
    let small: String = [1, 2, 3, 4, 11, 12, 13, 14]
        .iter()
        .map(|r| format!("and.b32 %r{r}, %r{r}, 0x83838383; or.b32 %r{r}, %r{r}, 0x3c3c3c3c;"))
        .collect();
    let addends: String =
        (1..5).map(|k| format!("shr.s32 %r2{k}, %r2{k}, 16; cvt.rn.f32.s32 %f{k}, %r2{k};")).collect();
    let floats = format!("{small} {addends}");
    let store = "st.global.v4.f32 [%o], {%f5, %f6, %f7, %f8};";
    for (a_ty, b_ty) in [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e5m2", "e5m2")] {
        let op = format!("mma.sync.aligned.m16n8k32.row.col.f32.{a_ty}.{b_ty}.f32");
        same(
            &op,
            &format!(
                "{FRAGMENTS} {floats} {op} {{%f5, %f6, %f7, %f8}}, {{{}}}, {{{}}}, {{%f1, %f2, %f3, %f4}}; {store}",
                list(1, 4),
                list(11, 2)
            ),
        );
    }
    for (op, a, b) in [
        ("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", 2, 1),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 4, 2),
        ("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", 2, 1),
        ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 2, 1),
    ] {
        same_everywhere(
            op,
            &format!(
                "{FRAGMENTS} {floats} {op} {{%f5, %f6, %f7, %f8}}, {{{}}}, {{{}}}, {{%f1, %f2, %f3, %f4}}; {store}",
                list(1, a),
                list(11, b)
            ),
        );
    }
}

#[test]
fn sparse_products_leave_what_ptxas_leaves() {
    // Of every four elements (of pairs with one) two that lie in order.
    let metadata = "mov.u32 %r40, 0x4e4ee444; shf.l.wrap.b32 %r41, %r40, %r40, %t; and.b32 %r42, %t, 1; setp.eq.u32 %p1, %r42, 0; selp.b32 %r9, %r40, 0xe4e44e4e, %p1;";
    let floats =
        "cvt.rn.f32.s32 %f1, %r21; cvt.rn.f32.s32 %f2, %r22; cvt.rn.f32.s32 %f3, %r23; cvt.rn.f32.s32 %f4, %r24;";
    for (op, a, b, selector) in [
        ("sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", 4, 4, 0),
        ("sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32", 4, 4, 1),
        ("sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 2, 2, 2),
        ("sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32", 4, 4, 0),
        ("sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 2, 2, 1),
    ] {
        same(op, &format!("{FRAGMENTS} {floats} {metadata} mma.{op} {{%f5, %f6, %f7, %f8}}, {{{}}}, {{{}}}, {{%f1, %f2, %f3, %f4}}, %r9, {selector};
            st.global.v4.f32 [%o], {{%f5, %f6, %f7, %f8}};", list(1, a), list(11, b)));
    }
    for (op, a, b) in [
        ("sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32", 4, 4),
        ("sp::ordered_metadata.sync.aligned.m16n8k64.row.col.satfinite.s32.u8.s8.s32", 4, 4),
        ("sp.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32", 2, 2),
    ] {
        same(
            op,
            &format!(
                "{FRAGMENTS} {metadata} mma.{op} {{{}}}, {{{}}}, {{{}}}, {{{}}}, %r9, 0; {STORE}",
                list(31, 4),
                list(1, a),
                list(11, b),
                list(21, 4)
            ),
        );
    }
}

#[test]
fn products_of_doubles_leave_what_ptxas_leaves() {
    let fill = |names: &[String]| {
        names
            .iter()
            .enumerate()
            .map(|(k, n)| {
                format!("xor.b32 %r1, %x, {}; shr.s32 %r1, %r1, {}; cvt.rn.f64.s32 {n}, %r1;", 77 * k + 1, k % 13)
            })
            .collect::<String>()
    };
    let named = |letter: char, n: usize| (0..n).map(|k| format!("%{letter}{k}")).collect::<Vec<_>>();
    for (shape, a, b, c) in [("m8n8k4", 1, 1, 2), ("m16n8k4", 2, 1, 4), ("m16n8k8", 4, 2, 4), ("m16n8k16", 8, 4, 4)] {
        let (av, bv, cv, dv) = (named('a', a), named('b', b), named('c', c), named('q', c));
        let [at, bt, ct, dt] = [&av, &bv, &cv, &dv].map(|v| v.join(", "));
        let sum = if c == 4 { "add.rn.f64 %q0, %q0, %q2; add.rn.f64 %q1, %q1, %q3;" } else { "" };
        same(
            shape,
            &format!(
                ".reg .f64 %a<8>, %b<4>, %c<4>, %q<4>; {}{}{} mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64 {{{dt}}}, {{{at}}}, {{{bt}}}, {{{ct}}}; {sum} st.global.v2.f64 [%o], {{%q0, %q1}};",
                fill(&av),
                fill(&bv),
                fill(&cv)
            ),
        );
    }
}

#[test]
fn hints_grids_and_wide_swaps_leave_what_ptxas_leaves() {
    same("a cache policy", "createpolicy.fractional.L2::evict_last.b64 %d5, 1.0; createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 %d6, 0.25;
        ld.global.L2::cache_hint.v2.u32 {%r1, %r2}, [%i], %d5; add.u32 %r1, %r1, %r2; st.global.L2::cache_hint.u32 [%o], %r1, %d6;
        atom.global.add.L2::cache_hint.u32 %r3, [%o+4], %r2, %d5; red.global.max.L2::cache_hint.u32 [%o+8], %r1, %d5;
        mov.u32 %r4, sm; mad.lo.u32 %r4, %t, 16, %r4; cp.async.cg.shared.global.L2::cache_hint [%r4], [%i], 16, %d5; cp.async.wait_all;
        ld.shared.u32 %r5, [%r4+12]; st.global.u32 [%o+12], %r5;");
    same(
        "the grid before and after",
        "griddepcontrol.wait; add.u32 %r1, %x, 1; griddepcontrol.launch_dependents; st.global.u32 [%o], %r1;",
    );
    same("swaps of 128 bits", ".reg .b128 %q<8>; mov.b64 %d3, {%x, %t}; mov.b64 %d4, {%t, %x}; mov.b128 %q0, {%d3, %d4}; ld.global.b128 %q1, [%i];
        atom.global.exch.b128 %q2, [%o], %q0; atom.global.cas.b128 %q3, [%o], %q0, %q1; mov.b128 {%d5, %d6}, %q3; mov.b128 %q4, %q2;
        mov.b128 {%d7, %d8}, %q4; add.s64 %d5, %d5, %d8; st.global.u64 [%o+8], %d5;");
    same(
        "arrivals that complete nothing",
        &format!(
            "mov.u32 %r9, bar; setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [%r9], {}; bar.sync 0;
        mbarrier.arrive.noComplete.shared.b64 %d6, [%r9], 2; bar.sync 0; mbarrier.arrive.shared.b64 %d5, [%r9];
        W: mbarrier.try_wait.shared.b64 %p2, [%r9], %d5; @!%p2 bra W; st.global.u32 [%o], %x;",
            3 * THREADS
        ),
    );
}

#[test]
fn choices_differences_and_high_halves_leave_what_ptxas_leaves() {
    let two = "ld.global.u32 %r1, [%i+4]; ld.global.u32 %r2, [%i+8]; mov.b64 %d3, {%x, %r1}; mov.b64 %d4, {%r2, %x}; mov.b32 {%h1, %h2}, %x; mov.b32 {%h3, %h4}, %r1; mov.b32 %f1, %r2;";
    for op in [
        "slct.b64.s32 %d5, %d3, %d4, %r1",
        "slct.u64.f32 %d5, %d3, %d4, %f1",
        "sad.s64 %d5, %d3, %d4, %d3",
        "sad.u64 %d5, %d3, %d4, %d4",
        "and.b32 %r3, %t, 3; shl.b32 %r3, %r3, 5; shr.u64 %d4, %d3, %r3; cnot.b64 %d5, %d4",
    ] {
        same(op, &format!("{two} {op}; st.global.u64 [%o], %d5;"));
    }
    for op in [
        "sad.u16 %h5, %h1, %h3, %h2; cvt.u32.u16 %r3, %h5",
        "sad.s16 %h5, %h1, %h3, %h2; cvt.u32.u16 %r3, %h5",
        "slct.b16.s32 %h5, %h1, %h3, %r1; cvt.u32.u16 %r3, %h5",
        "shl.b32 %r4, %x, 16; mov.b32 {%h5, %h6}, %r4; add.u16 %h7, %h1, %h1; sub.u16 %h7, %h7, %h1; sub.u16 %h7, %h7, %h1; cnot.b16 %h5, %h7; cvt.u32.u16 %r3, %h5",
        "cvt.u8.s8 %r3, %x",
        "cvt.u16.s8 %r3, %x",
        "cvt.u16.s16 %r3, %h1",
        "shr.u32 %r4, %r2, 9; or.b32 %r4, %r4, 0x80000000; mov.b32 %f2, %r4; slct.ftz.u32.f32 %r3, %x, %r1, %f2",
        "mad.hi.s16 %h5, %h1, %h3, %h2; cvt.u32.u16 %r3, %h5",
        "mad.hi.sat.s32 %r3, %x, %r1, %r2",
        "mul24.hi.u32 %r3, %x, %r1",
        "mul24.hi.s32 %r3, %x, %r1",
        "mad24.hi.s32 %r3, %x, %r1, %r2",
        "testp.normal.f32 %p1, %f1; selp.u32 %r3, 1, 2, %p1",
        "shr.u32 %r4, %r2, 8; mov.b32 %f2, %r4; testp.subnormal.f32 %p1, %f2; selp.u32 %r3, 1, 2, %p1",
    ] {
        same(op, &format!("{two} {op}; st.global.u32 [%o], %r3;"));
    }
}

#[test]
fn barriers_of_any_number_leave_what_ptxas_leaves() {
    let place = "mov.u32 %r1, sm; mad.lo.u32 %r1, %t, 4, %r1; st.shared.u32 [%r1], %x; and.b32 %r2, %x, 0; add.u32 %r3, %r2, 3; add.u32 %r4, %r2, 64;";
    let load = "xor.b32 %r5, %t, 33; mov.u32 %r6, sm; mad.lo.u32 %r6, %r5, 4, %r6; ld.shared.u32 %r7, [%r6]; st.global.u32 [%o], %r7;";
    for barrier in [
        "bar.sync %r3",
        "barrier.sync %r3, 64",
        "barrier.sync 5, %r4",
        "barrier.sync %r3, %r4",
        "setp.lt.u32 %p1, %t, 32; @%p1 bra A; barrier.sync %r3, %r4; bra E; A: barrier.arrive %r3, %r4; barrier.sync 0, 32; E: barrier.sync 1, %r4",
    ] {
        same(barrier, &format!("{place} {barrier}; {load}"));
    }
}

#[test]
fn what_random_programs_found_leaves_what_ptxas_leaves() {
    same(
        "both words of what threads match are there first",
        "cvt.sat.u64.s32 %d5, %x; match.any.sync.b64 %r1, %d5, -1; mov.b64 %d6, {%x, %t}; cvt.u64.u32 %d6, %x; match.any.sync.b64 %r2, %d6, -1;
        st.global.v2.u32 [%o], {%r1, %r2};",
    );
    same(
        "what a reduction leaves is read behind it",
        "ld.global.u32 %r5, [%i+4]; bar.sync 0; redux.sync.min.s32 %r3, %x, -1; setp.gt.s32 %p1, %r3, %r5; @%p1 ld.global.nc.u32 %r5, [%i+8];
        ld.global.nc.u32 %r6, [%i+12]; add.s32 %r6, %r6, %r5; st.global.v2.u32 [%o], {%r3, %r6};",
    );
    // Threads of two paths record the same barrier at different times, and meet on the way to it.
    same(
        "a table behind a way that some take later",
        "setp.lt.s32 %p3, %x, 0; mov.u32 %r9, 0; @%p3 bra J2;
        { .param .b32 s; .param .b32 r; st.param.b32 [s], %x; call (r), square, (s); ld.param.b32 %r9, [r]; }
        setp.eq.u32 %p2, %r9, 1; @%p2 bra J3;
        J2: shr.u32 %r8, %x, 3; and.b32 %r8, %r8, 3; T: .branchtargets A0, A1, A2, A3; brx.idx %r8, T;
        A0: { .param .b32 s; .param .b32 r; st.param.b32 [s], %x; call (r), square, (s); ld.param.b32 %r9, [r]; } bra E;
        A1: add.s32 %r9, %r9, 5; bra E;
        A2: bra E;
        A3: xor.b32 %r9, %r9, %x; bra E;
        E: J3: st.global.v2.u32 [%o], {%r9, %x};",
    );
}

/// Constants below the smallest normal number are zeros of their sign under `.ftz`, in divisions too; what is no number
/// is the least value of a small signed type.
#[test]
fn denormal_constants_and_small_integers_of_doubles_leave_what_ptxas_leaves() {
    same(
        "constants",
        "mov.b32 %f0, %x; and.b32 %r1, %t, 3; mul.lo.u32 %r1, %r1, 0x7ff00000; mov.b64 %d1, {%x, %r1}; mov.b64 %e1, %d1;
        div.rn.ftz.f32 %f1, 0f00000001, %f0; div.rn.ftz.f32 %f2, %f0, 0f80700000; setp.nan.f32 %p1, %f2, %f2; mov.b32 %r2, %f2;
        selp.b32 %r2, 5, %r2, %p1; setp.nan.f32 %p1, %f1, %f1; mov.b32 %r3, %f1; selp.b32 %r3, 5, %r3, %p1;
        cvt.rzi.s16.f64 %r4, %e1; cvt.rni.s8.f64 %r5, %e1; st.global.v4.u32 [%o], {%r2, %r3, %r4, %r5};",
    );
}
