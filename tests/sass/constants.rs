//! Constants of banks: from Hopper on only loads read them, whatever the text does with a parameter; on every chip the
//! memory is that of ptxas's code.

use crate::machine::{Case, launch};
use crate::nvidia::ptxas_for;
use doorbell::elf::cubin::{Arch, Cubin};
use doorbell::isa::sass::check::{Trust, check_for};
use doorbell::isa::sass::compile::assemble;
use doorbell::isa::sass::{Instruction, SmArch, Value, decode_for};

const THREADS: u32 = 64;
const OUT: u64 = 0x7_0000_0000;
const WORDS: u32 = 40;

/// A kernel with forty words, two doubles and two long words as parameters; its thread's number is %t, the address of
/// its 16 bytes of results %o.
fn text(arch: Arch, body: &str) -> String {
    let words: String = (0..WORDS).map(|k| format!(", .param .u32 p{k}")).collect();
    let loads: String = (0..WORDS).map(|k| format!("ld.param.u32 %p{k}, [p{k}]; ")).collect();
    format!(
        ".version 8.8\n.target {arch}\n.address_size 64\n
        .func (.param .b32 q) twice(.param .b32 v) {{ .reg .b32 %a<3>; ld.param.b32 %a1, [v]; add.s32 %a2, %a1, %a1; st.param.b32 [q], %a2; ret; }}
        .visible .entry k(.param .u64 out, .param .f64 e0, .param .f64 e1, .param .u64 w0, .param .u64 w1{words})\n{{
        .reg .pred %q<4>; .reg .b32 %t, %r<20>, %p<{WORDS}>; .reg .f32 %f<8>; .reg .f64 %e<8>; .reg .b64 %o, %d<8>;
        ld.param.u64 %o, [out]; ld.param.f64 %e0, [e0]; ld.param.f64 %e1, [e1]; ld.param.u64 %d0, [w0]; ld.param.u64 %d1, [w1]; {loads}
        mov.u32 %t, %tid.x; mul.wide.u32 %d2, %t, 16; add.s64 %o, %o, %d2;\n{body}\nret;\n}}\n"
    )
}

fn params() -> Vec<u8> {
    let mut all: Vec<u8> = OUT.to_le_bytes().to_vec();
    [1.5f64, -2.25].iter().for_each(|e| all.extend(e.to_le_bytes()));
    [0x1_2345_6789u64, 0xfedc_ba98_7654_3210].iter().for_each(|w| all.extend(w.to_le_bytes()));
    (0..WORDS).for_each(|k| all.extend((k.wrapping_mul(0x9e37_79b9) >> (k % 7 * 3)).to_le_bytes()));
    all
}

fn left(cubin: &[u8]) -> Vec<u8> {
    left_of(cubin, params())
}

fn left_of(cubin: &[u8], params: Vec<u8>) -> Vec<u8> {
    let buffers = [(OUT, vec![0; THREADS as usize * 16])];
    let case = Case { grid: [1; 3], block: [THREADS, 1, 1], params, buffers: &buffers, dynamic_bytes: 0 };
    launch(cubin, "k", &case, true).unwrap_or_else(|e| panic!("{e}")).0.remove(0)
}

fn code(cubin: &[u8], chip: SmArch) -> Vec<Instruction> {
    let file = Cubin::parse(cubin).expect("a cubin");
    let code = file.code(file.kernel("k").expect("the kernel")).as_chunks::<16>().0;
    let words: Vec<u128> = code.iter().map(|w| u128::from_le_bytes(*w)).collect();
    let found = check_for(&words, chip, Trust::Safe).unwrap_or_else(|e| panic!("{e}"));
    assert!(found.is_empty(), "{}", found[0]);
    words.iter().map(|w| decode_for(*w, chip).unwrap_or_else(|e| panic!("{e}"))).collect()
}

/// Whether it reads a bank and is no load.
fn reads_a_bank(i: &Instruction) -> bool {
    !matches!(i.form().mnemonic, "LDC" | "ULDC" | "LDCU")
        && i.operands().any(|o| matches!(o.value, Value::Constant { .. }))
}

fn count(code: &[Instruction], mnemonic: &str) -> usize {
    code.iter().filter(|i| i.form().mnemonic == mnemonic).count()
}

const STORE: &str = "st.global.v4.b32 [%o], {%r0, %r1, %r2, %r3};";

/// What many constants do: sums, products, comparisons and shifts of all types.
fn mixed(words: u32) -> String {
    let words: String = (0..words)
        .map(|k| {
            let (a, b) = (k % 4, (k + 1) % 4);
            match k % 5 {
                0 => format!("mad.lo.s32 %r{a}, %r{a}, %p{k}, %r{b}; "),
                1 => format!("xor.b32 %r{a}, %r{a}, %p{k}; "),
                2 => format!("setp.lt.s32 %q1, %r{b}, %p{k}; selp.b32 %r{a}, %p{k}, %r{a}, %q1; "),
                3 => format!("min.u32 %r{a}, %r{a}, %p{k}; add.s32 %r{a}, %r{a}, %r{b}; "),
                _ => format!("shf.l.wrap.b32 %r{a}, %r{a}, %p{k}, %r{b}; @%q1 add.s32 %r{b}, %r{b}, %p{k}; "),
            }
        })
        .collect();
    format!(
        "mov.u32 %r0, %t; mov.u32 %r1, 7; shl.b32 %r2, %t, 5; not.b32 %r3, %t; {words}
        cvt.rn.f64.u32 %e2, %t; fma.rn.f64 %e3, %e2, %e0, %e1; add.rn.f64 %e3, %e3, %e1; mul.rn.f64 %e3, %e3, %e0; cvt.rzi.s32.f64 %r4, %e3;
        cvt.rn.f32.s32 %f0, %t; mov.b32 %f1, %p3; fma.rn.f32 %f2, %f0, 0f3F000000, %f0; setp.gt.f32 %q2, %f2, %f1; selp.b32 %r5, %r4, %r1, %q2;
        mul.wide.s32 %d3, %t, 3; add.s64 %d4, %d0, %d3; xor.b64 %d4, %d4, %d1; sub.s64 %d5, %d1, %d3; add.s64 %d4, %d4, %d5;
        cvt.u32.u64 %r6, %d4; shr.u64 %d4, %d4, 32; cvt.u32.u64 %r7, %d4; xor.b32 %r0, %r0, %r4; xor.b32 %r1, %r1, %r5; add.s32 %r2, %r2, %r6; xor.b32 %r3, %r3, %r7;"
    )
}

#[test]
fn only_loads_read_banks_from_hopper_on() {
    let (mixed, all) = (mixed(16), mixed(WORDS));
    let iteration = "xor.b32 %r0, %r0, %p4; mad.lo.s32 %r0, %r0, %p5, %p6; add.s32 %r9, %r9, 1; setp.le.u32 %q3, %r9, %r8; @%q3 bra L;";
    let around = "and.b32 %r8, %t, 3; add.s32 %r8, %r8, 21; mov.u32 %r9, 0; L:";
    let call = "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r0; call (b), twice, (a); ld.param.b32 %r0, [b]; }";
    let cases = [
        ("straight", format!("{mixed} {STORE}")),
        ("twice", format!("{mixed} {mixed} {STORE}")),
        ("in a loop", format!("{mixed} {around} {iteration} {mixed} {STORE}")),
        ("a loop of many", format!("{around} {mixed} {iteration} {STORE}")),
        (
            "two ways",
            format!("setp.lt.u32 %q1, %t, 19; @%q1 bra M; {mixed} {STORE} ret; M: mov.u32 %r3, %p2; {mixed} {STORE}"),
        ),
        ("all, straight", format!("{all} {STORE}")),
        (
            "all, in two ways",
            format!("setp.lt.u32 %q1, %t, 19; @%q1 bra M; {all} {STORE} ret; M: mov.u32 %r3, %p2; {all} {STORE}"),
        ),
        (
            "a call between",
            format!("{mixed} {call} xor.b32 %r0, %r0, %p1; add.s32 %r1, %r1, %p1; add.s32 %r2, %r2, %p9; {STORE}"),
        ),
    ];
    for (name, body) in cases {
        for chip in SmArch::ALL {
            let arch = chip.arch();
            let text = text(arch, &body);
            let ours = assemble(&text, arch).unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
            assert_eq!(left(&ours), left(&ptxas_for(&text, &arch.to_string(), "-O3")), "{name}, {chip}");
            let code = code(&ours, chip);
            let reads = code.iter().filter(|i| reads_a_bank(i)).count();
            // More than sixteen pairs where threads part: sm_90's rows serve those that find no register.
            let none = chip == SmArch::Sm120 || chip == SmArch::Sm90 && name != "all, in two ways";
            assert_eq!(reads == 0, none, "{name}, {chip}: {reads}");
        }
    }
}

#[test]
fn few_constants_are_loaded_once_whatever_the_code_does() {
    let body = format!(
        "mov.u32 %r0, %t; mov.u32 %r1, %t; mov.u32 %r2, 1; mov.u32 %r3, 2; and.b32 %r8, %t, 3; add.s32 %r8, %r8, 21; mov.u32 %r9, 0;
        L: xor.b32 %r0, %r0, %p4; mad.lo.s32 %r0, %r0, %p5, %r9; setp.gt.s32 %q1, %r0, %p4; @%q1 bra N; xor.b32 %r1, %r1, %p5; mad.lo.s32 %r1, %r1, %r1, %r0; add.s32 %r1, %r1, %p8;
        xor.b32 %r1, %r1, %r0; mad.lo.s32 %r2, %r1, %r2, %r0; mad.lo.s32 %r3, %r1, %r2, %r3; mad.lo.s32 %r2, %r3, %r2, %r0; mad.lo.s32 %r3, %r1, %r2, %r3;
        N: add.s32 %r9, %r9, 1; setp.le.u32 %q3, %r9, %r8; @%q3 bra L; {STORE}"
    );
    for (chip, load) in [(SmArch::Sm90, "ULDC"), (SmArch::Sm120, "LDCU")] {
        let text = text(chip.arch(), &body);
        let ours = assemble(&text, chip.arch()).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(left(&ours), left(&ptxas_for(&text, &chip.arch().to_string(), "-O3")), "{chip}");
        // Pairs of p4 with p5, and of p8, and the memory descriptor.
        assert_eq!(count(&code(&ours, chip), load), 3, "{chip}");
    }
}

/// Tables among the parameters, as libraries pass lists of pointers: the offset beside the register is small, large, or
/// negative.
#[test]
fn tables_among_the_parameters_are_read_by_index_on_every_chip() {
    let body = "
        .reg .b32 %t, %r<8>; .reg .b64 %o, %d<9>;
        ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %d2, %t, 16; add.s64 %o, %o, %d2;
        and.b32 %r4, %t, 15; mul.wide.u32 %d3, %r4, 8; mov.b64 %d4, table; add.s64 %d5, %d4, %d3;
        ld.param.u32 %r0, [%d5]; ld.param.u32 %r1, [%d5+56]; ld.param.u16 %r2, [%d5+18];
        add.s64 %d6, %d5, 128; ld.param.b8 %r3, [%d6+-121]; shl.b32 %r3, %r3, 16; or.b32 %r2, %r2, %r3;
        ld.param.u32 %r3, [%d6+-124];
        st.global.v4.b32 [%o], {%r0, %r1, %r2, %r3}; ret;";
    let mut params: Vec<u8> = OUT.to_le_bytes().to_vec();
    params.extend((0..256u32).map(|k| ((k * 37) >> 1) as u8));
    for chip in SmArch::ALL {
        let arch = chip.arch();
        let head = format!(".version 8.8\n.target {arch}\n.address_size 64\n");
        let text = format!("{head}.visible .entry k(.param .u64 out, .param .align 8 .b8 table[256])\n{{ {body} }}\n");
        let ours = assemble(&text, arch).unwrap_or_else(|e| panic!("{chip}: {e}"));
        let theirs = ptxas_for(&text, &arch.to_string(), "-O3");
        assert_eq!(left_of(&ours, params.clone()), left_of(&theirs, params.clone()), "{chip}");
        let word = |at: usize| u32::from_le_bytes([params[at], params[at + 1], params[at + 2], params[at + 3]]);
        let left = left_of(&ours, params.clone());
        for t in 0..THREADS as usize {
            let at = 8 + 8 * (t % 16);
            let low = u32::from(params[at + 18]) | u32::from(params[at + 19]) << 8;
            let want = [word(at), word(at + 56), low | u32::from(params[at + 7]) << 16, word(at + 4)];
            assert_eq!(left[16 * t..16 * t + 16], want.map(u32::to_le_bytes).concat(), "{chip}, thread {t}");
        }
    }
}

#[test]
fn narrow_loads_into_registers_of_64_bits_fill_them() {
    // The fourteenth word is negative as s32 and as s16.
    let bodies = [("s32", "u32"), ("s16", "u16"), ("s8", "u8")].map(|(a, b)| {
        format!("ld.param.{a} %d3, [p14]; ld.param.{b} %d4, [p14]; st.global.v2.b64 [%o], {{%d3, %d4}};")
    });
    let stored =
        "st.global.v2.b32 [%o], {%p14, %p14}; ld.global.v2.s32 {%d3, %d4}, [%o]; st.global.v2.b64 [%o], {%d3, %d4};";
    for chip in SmArch::ALL {
        for body in bodies.iter().map(String::as_str).chain([stored]) {
            let text = text(chip.arch(), body);
            let ours = assemble(&text, chip.arch()).unwrap_or_else(|e| panic!("{chip} {body}: {e}"));
            let _ = code(&ours, chip);
            assert_eq!(left(&ours), left(&ptxas_for(&text, &chip.to_string(), "-O3")), "{chip} {body}");
        }
    }
}

#[test]
fn pairs_of_floats_leave_what_ptxas_leaves_on_sm_120() {
    let body = "mov.b64 %d3, {%p1, %p2}; mov.b64 %d4, {%p3, %t}; cvt.rn.f32.u32 %f1, %t; cvt.rn.f32.s32 %f2, %p14; mov.b64 %d5, {%f1, %f2};
        add.rn.f32x2 %d3, %d5, %d4; mul.rm.f32x2 %d4, %d5, %d5; fma.rn.f32x2 %d5, %d3, %d4, %d5; xor.b64 %d3, %d3, %d4; st.global.v2.b64 [%o], {%d3, %d5};";
    same_as_ptxas_on_sm_120(body, body);
}

#[test]
fn accesses_of_32_bytes_leave_what_two_of_16_leave() {
    // The odd threads end: two places of 16 bytes are one of 32.
    let even = "and.b32 %r0, %t, 1; setp.ne.u32 %q1, %r0, 0; @%q1 ret; cvt.rn.f64.u32 %e2, %t;";
    let filled =
        format!("{even} st.global.v2.b64 [%o], {{%d0, %d1}}; st.global.v2.b64 [%o+16], {{%d1, %d0}}; mov.b64 %d2, %o;");
    let cases = [
        (
            "st.global.v4.f64 [%o], {%e0, %e2, %e1, %e2};",
            "st.global.v2.f64 [%o], {%e0, %e2}; st.global.v2.f64 [%o+16], {%e1, %e2};",
        ),
        (
            "ld.global.v8.f32 {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, [%o]; st.global.cg.v8.f32 [%o], {%f7, %f1, %f5, %f0, %f2, %f3, %f6, %f4};",
            "ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%o]; ld.global.v4.f32 {%f4, %f5, %f6, %f7}, [%o+16];
            st.global.v4.f32 [%o], {%f7, %f1, %f5, %f0}; st.global.v4.f32 [%o+16], {%f2, %f3, %f6, %f4};",
        ),
        // The address is one of the registers that are loaded.
        (
            "ld.global.v4.b64 {%d2, %d3, %d4, %d5}, [%d2]; st.global.v4.b64 [%o], {%d5, %d4, %d2, %d3};",
            "ld.global.v2.b64 {%d4, %d5}, [%d2+16]; ld.global.v2.b64 {%d2, %d3}, [%d2];
            st.global.v2.b64 [%o], {%d5, %d4}; st.global.v2.b64 [%o+16], {%d2, %d3};",
        ),
    ];
    for (whole, parts) in cases {
        same_as_ptxas_on_sm_120(&format!("{filled} {whole}"), &format!("{filled} {parts}"));
    }
}

/// Our code of one body leaves what ptxas's of the other leaves.
fn same_as_ptxas_on_sm_120(ours: &str, theirs: &str) {
    let chip = SmArch::Sm120;
    let cubin = assemble(&text(chip.arch(), ours), chip.arch()).unwrap_or_else(|e| panic!("{ours}: {e}"));
    let _ = code(&cubin, chip);
    assert_eq!(left(&cubin), left(&ptxas_for(&text(chip.arch(), theirs), "sm_120", "-O3")), "{ours}");
}
