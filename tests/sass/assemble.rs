//! Our assembler: compiled kernels run on the software multiprocessor in strict mode and leave what the interpreter of
//! linear programs leaves; nvdisasm reads every word as we print it; what is not assembled is refused by name and
//! place.

use crate::codegen_agree::{buffers, same, vars};
use crate::codegen_kernels::kernels as graphs;
use crate::machine::{Case, launch};
use crate::nvidia::printed_as_read;
use doorbell::codegen::{self, OptChoice, Program};
use doorbell::elf::cubin::Arch;
use doorbell::engine::interp::run_program;
use doorbell::isa::ptx::{Buffers, Chip, render};
use doorbell::isa::sass::check::{Trust, check as check_schedule};
use doorbell::isa::sass::compile::{AsmError, assemble, kernels};
use doorbell::isa::sass::{decode, print_at};
use doorbell::uop::{Arg, UOp};

pub const SM90: Arch = Arch { sm: 90, specific: true };

pub fn compiled(ast: &UOp, choice: &OptChoice) -> Program {
    let target = Chip::parse("sm_90a").expect("the chip").target();
    codegen::compile(ast, &target, choice, false).unwrap_or_else(|e| panic!("{e}"))
}

pub fn text(p: &Program) -> String {
    render(p, Chip::parse("sm_90a").expect("the chip"), Buffers::Anywhere).unwrap_or_else(|e| panic!("{e}")).to_string()
}

/// Runs a program's kernel on buffers and compares with the interpreter.
fn check(p: &Program, ast: &UOp, seed: u64) {
    let cubin = assemble(&text(p), SM90).unwrap_or_else(|e| panic!("{}: {e}\n{}", p.name, text(p)));
    let named = vars(ast, 5);
    let mut want = buffers(ast, seed);
    let given: Vec<(u64, Vec<u8>)> =
        want.iter().enumerate().map(|(k, b)| (0x7_0000_0000 + ((k as u64) << 32), b.clone())).collect();
    run_program(p, &mut want, &named).unwrap_or_else(|e| panic!("interpreter: {e}"));
    let mut params: Vec<u8> = given.iter().take(p.params.len()).flat_map(|b| b.0.to_le_bytes()).collect();
    for v in &p.vars {
        let Arg::Var(n, ..) = v.arg() else { panic!("a variable has a name") };
        params.extend(named[&**n].to_le_bytes());
    }
    let dynamic_bytes = if text(p).contains(".extern .shared") { p.local_bytes as u32 } else { 0 };
    let case = Case { grid: p.global, block: p.local, params, buffers: &given, dynamic_bytes };
    let (got, _) = launch(&cubin, &p.name, &case, true).unwrap_or_else(|e| panic!("{e}\n{}", text(p)));
    for (k, (want, got)) in want.iter().zip(&got).enumerate().take(p.params.len()) {
        let t = p.params[k].dtype.scalar;
        same(t, want, got).unwrap_or_else(|e| panic!("{} buffer {k}: {e}\n{}", p.name, text(p)));
    }
}

#[test]
fn compiled_kernels_leave_what_the_interpreter_leaves() {
    for (name, ast) in graphs() {
        for choice in [OptChoice::None, OptChoice::Heuristic] {
            let p = compiled(&ast, &choice);
            check(&p, &ast, 1);
        }
        assert!(!name.is_empty());
    }
}

#[test]
fn nvdisasm_reads_every_word_as_we_print_it_and_the_checker_finds_no_fault() {
    let mut words = vec![];
    for (name, ast) in graphs() {
        let module = text(&compiled(&ast, &OptChoice::Heuristic));
        for k in kernels(&module).unwrap_or_else(|e| panic!("{e}")) {
            let faults = check_schedule(&k.words, Trust::Safe).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(faults.is_empty(), "{name}: {}", faults[0]);
            words.extend(k.words);
        }
    }
    words.sort_unstable();
    words.dedup();
    assert!(words.len() > 400, "{} distinct words", words.len());
    printed_as_read(words);
}

#[test]
fn the_same_text_has_the_same_words() {
    let (_, ast) = graphs().into_iter().next().expect("a kernel");
    let text = text(&compiled(&ast, &OptChoice::Heuristic));
    assert_eq!(kernels(&text).unwrap(), kernels(&text).unwrap());
}

#[test]
fn a_guarded_load_leaves_the_wait_for_what_stood_there_before() {
    let body = "ld.param.u64 %d1, [o]; mov.u32 %r2, %tid.x; setp.lt.u32 %p1, %r2, 3; mov.u32 %r1, 7;\n\
        @%p1 ld.global.u32 %r1, [%d1]; add.u32 %r1, %r1, 1; st.global.u32 [%d1], %r1;";
    let made = kernels(&kernel(body)).unwrap();
    assert_eq!(check_schedule(&made[0].words, Trust::Safe).unwrap(), []);
}

/// Texts of a kernel's instructions, and what it leaves of 512 bytes that 32 threads share.
pub fn made(body: &str) -> (Vec<String>, Vec<u32>) {
    let words = &kernels(&kernel(body)).unwrap()[0].words;
    assert_eq!(check_schedule(words, Trust::Safe).unwrap(), []);
    let cubin = assemble(&kernel(body), SM90).unwrap();
    let at = 0x7_0000_0000u64;
    let bytes = (0..128u32).flat_map(|k| (k * 0x0101_0107 + 3).to_le_bytes()).collect();
    let buffers = [(at, bytes)];
    let params = at.to_le_bytes().to_vec();
    let case = Case { grid: [1; 3], block: [32, 1, 1], params, buffers: &buffers, dynamic_bytes: 0 };
    let (ours, _) = launch(&cubin, "k", &case, true).unwrap();
    let (theirs, _) = launch(&crate::nvidia::ptxas(&kernel(body), "-O3"), "k", &case, false).unwrap();
    assert_eq!(ours, theirs);
    let texts = words.iter().map(|w| print_at(&decode(*w).unwrap(), 0)).collect();
    (texts, ours[0].chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect())
}

/// The address of the thread's word.
pub const MINE: &str = "ld.param.u64 %d1, [o]; mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 4; add.s64 %d1, %d1, %d2;";

#[test]
fn a_rotation_by_shifts_is_one_funnel_shift() {
    for join in ["or.b32", "xor.b32", "add.s32"] {
        let body = format!(
            "{MINE} ld.global.u32 %r2, [%d1]; shl.b32 %r3, %r2, 13; shr.u32 %r4, %r2, 19; {join} %r5, %r3, %r4;\n\
            st.global.u32 [%d1], %r5;"
        );
        let (texts, left) = made(&body);
        assert_eq!(texts.iter().filter(|t| t.contains("SHF.")).count(), 1, "{texts:#?}");
        assert!(texts.iter().any(|t| t.contains("SHF.L.W.U32.HI")), "{texts:#?}");
        assert!(!texts.iter().any(|t| t.contains("LOP3")), "{texts:#?}");
        assert_eq!(left[5], (5u32 * 0x0101_0107 + 3).rotate_left(13));
    }
}

#[test]
fn shifts_that_are_no_rotation_stay_what_they_are() {
    let body = format!(
        "{MINE} ld.global.u32 %r2, [%d1]; shl.b32 %r3, %r2, 13; shr.s32 %r4, %r2, 19; or.b32 %r5, %r3, %r4;\n\
        shl.b32 %r3, %r2, 13; st.global.u32 [%d1], %r5;"
    );
    let x = 5u32 * 0x0101_0107 + 3;
    assert_eq!(made(&body).1[5], x << 13 | (x.cast_signed() >> 19).cast_unsigned());
}

#[test]
fn loads_that_need_not_wait_for_each_other_are_started_together() {
    let body = format!(
        "{MINE} ld.global.u32 %r2, [%d1]; mul.lo.u32 %r3, %r2, 3; ld.global.u32 %r4, [%d1+128];\n\
        mad.lo.u32 %r3, %r4, 5, %r3; ld.global.u32 %r5, [%d1+256]; mad.lo.u32 %r3, %r5, 7, %r3;\n\
        st.global.u32 [%d1], %r3; ld.global.u32 %r6, [%d1+384]; st.global.u32 [%d1+128], %r6;"
    );
    let (texts, _) = made(&body);
    let at = |what: &str| (0..texts.len()).filter(|k| texts[*k].starts_with(what)).collect::<Vec<_>>();
    let (loads, stores) = (at("LDG"), at("STG"));
    let used = at("IMAD").into_iter().filter(|k| *k > loads[0]).min().unwrap();
    assert!(loads[2] < used, "{texts:#?}");
    assert!(stores[0] < loads[3], "a load stays behind a store to memory it may read: {texts:#?}");
}

#[test]
fn a_short_branch_becomes_guards_and_an_exit_a_guarded_exit() {
    let body = format!(
        "{MINE} setp.gt.u32 %p1, %r1, 20; @%p1 bra E; ld.global.u32 %r2, [%d1]; setp.lt.u32 %p2, %r1, 7; @%p2 bra A;\n\
        mul.lo.u32 %r3, %r2, 5; add.u32 %r4, %r3, 1; bra B; A: xor.b32 %r4, %r2, 9; B: st.global.u32 [%d1], %r4; E:"
    );
    let (texts, left) = made(&body);
    // The branch after the end goes to itself.
    assert_eq!(texts.iter().filter(|t| t.contains("BRA")).count(), 1, "{texts:#?}");
    assert!(!texts.iter().any(|t| t.contains("BSSY") || t.contains("BSYNC")), "{texts:#?}");
    assert!(texts.iter().any(|t| t.starts_with("@P") && t.contains("EXIT")), "{texts:#?}");
    let before = |k: u32| k * 0x0101_0107 + 3;
    assert_eq!((left[3], left[9], left[25]), (before(3) ^ 9, before(9).wrapping_mul(5).wrapping_add(1), before(25)));
}

#[test]
fn a_branch_around_a_barrier_between_threads_stays_a_branch() {
    let body = format!(
        "{MINE} setp.gt.u32 %p1, %r1, 15; mov.u32 %r4, 1; @%p1 bra B; shfl.sync.bfly.b32 %r4, %r1, 1, 31, 0xffff;\n\
        B: st.global.u32 [%d1], %r4;"
    );
    let (texts, left) = made(&body);
    assert!(texts.iter().any(|t| t.contains("BSYNC")), "{texts:#?}");
    assert_eq!((left[4], left[20]), (5, 1));
}

#[test]
fn an_operand_that_the_next_instruction_reads_in_the_same_place_is_kept_for_it() {
    let body = "ld.param.u64 %d1, [o]; ld.global.v2.u32 {%r1, %r2}, [%d1]; xor.b32 %r3, %r1, 5; xor.b32 %r4, %r1, 9;\n\
        xor.b32 %r1, %r1, %r2; xor.b32 %r5, %r1, 6; st.global.v4.u32 [%d1], {%r3, %r4, %r5, %r1};";
    let made = kernels(&kernel(body)).unwrap();
    let texts: Vec<String> = made[0].words.iter().map(|w| print_at(&decode(*w).unwrap(), 0)).collect();
    let kept: Vec<usize> = (0..texts.len()).filter(|k| texts[*k].contains(".reuse")).collect();
    assert!(!kept.is_empty(), "{texts:#?}");
    for k in kept {
        let register = texts[k].split(".reuse").next().and_then(|t| t.rsplit([' ', ',']).next()).unwrap_or_default();
        assert!(texts[k + 1].contains(register), "{} | {}", texts[k], texts[k + 1]);
        let written = texts[k].split([' ', ',']).nth(1).unwrap_or_default();
        assert_ne!(written, register, "{}", texts[k]);
    }
}

/// A kernel with these statements in its body.
fn kernel(body: &str) -> String {
    let head = ".version 8.8\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 o)\n{\n.reg .b32 %r<8>;\n";
    format!("{head}.reg .b64 %d<8>;\n.reg .pred %p<4>;\n.reg .b16 %h<4>;\n{body}\nret;\n}}\n")
}

#[test]
fn what_is_not_assembled_is_refused_by_name_and_place() {
    let cases = [
        (
            "  vadd2.s32.s32.s32 %r1, %r2, %r3, %r4;",
            "10:3: vadd2.s32.s32.s32: the assembler has no such instruction yet",
        ),
        ("add.rn.sat.s64 %d1, %d2, %d3;", "10:1: add.rn.sat.s64: .sat is not assembled of this type"),
        (
            "cvt.rn.satfinite.e2m1x2.f32 %h1, %r1, %r2;",
            "10:1: cvt.rn.satfinite.e2m1x2.f32: packing into this type is not assembled",
        ),
        (
            "tex.2d.v4.f32.f32 {%r1,%r2,%r3,%r4}, [%d1, {%r5,%r6}];",
            "10:1: tex.2d.v4.f32.f32: the assembler has no such instruction yet",
        ),
        ("call (%r1), missing, (%r2);", "10:1: call: what is called is not known here"),
        (".reg .b32 %q<4294967295>;", "10:1: 4294967319 registers are declared in this body, of at most 1048576"),
        (".reg .v4 .b32 %v<4294967295>;", "10:1: 17179869204 registers are declared in this body, of at most 1048576"),
        (".local .align 3 .b8 x[8];", "10:1: x: an alignment is a power of two"),
        (".shared .align 0 .b8 x[8];", "10:1: x: an alignment is a power of two"),
        (".local .b32 x[65536][65536][65536][65536];", "10:1: x: it ends beyond 4 GiB"),
        (".shared .b8 x[4294967290]; .shared .align 2147483648 .b8 y[8];", "10:28: y: it ends beyond 4 GiB"),
        (".local .b8 x[16777216]; .local .b8 y;", "10:25: y: it ends beyond the 16 MiB of a thread's local memory"),
        (".local .b8 x[-4];", "10:14: expected a number of elements, found -4"),
        (".global .b8 x[4000000000] = {1};", "10:1: k$x$0: 4000000000 bytes with first values, of at most 268435456"),
        ("mov.u64 %d1, %current_graph_exec;", "10:1: mov.u64: %current_graph_exec is not assembled"),
    ];
    for (body, want) in cases {
        let e: AsmError = kernels(&kernel(body)).unwrap_err();
        assert_eq!(e.to_string(), want);
    }
}

#[test]
fn a_divergent_loop_waits_for_all_threads_before_a_shuffle() {
    // Each thread counts to its own number, then the warp adds up.
    let body = "mov.u32 %r1, %tid.x; mov.u32 %r2, 0; ld.param.u64 %d1, [o];\n\
        L: setp.ge.u32 %p1, %r2, %r1; @%p1 bra D; add.u32 %r2, %r2, 1; bra L;\n\
        D: shfl.sync.bfly.b32 %r3, %r2, 16, 31, -1; add.u32 %r3, %r3, %r2;\n\
        mul.wide.u32 %d2, %r1, 4; add.s64 %d2, %d1, %d2; st.global.u32 [%d2], %r3;";
    let cubin = assemble(&kernel(body), SM90).unwrap();
    let at = 0x7_0000_0000u64;
    let buffers = [(at, vec![0; 128])];
    let case = Case {
        grid: [1; 3],
        block: [32, 1, 1],
        params: at.to_le_bytes().to_vec(),
        buffers: &buffers,
        dynamic_bytes: 0,
    };
    let (got, _) = launch(&cubin, "k", &case, true).unwrap();
    let want: Vec<u8> = (0..32u32).flat_map(|t| (t + (t ^ 16)).to_le_bytes()).collect();
    assert_eq!(got[0], want);
}
