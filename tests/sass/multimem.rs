//! `multimem`: memory of which several devices have a copy. Our code has ptxas's instructions, and nvdisasm reads all
//! words as we print them.

use crate::chips::agree;
use crate::nvidia::ptxas_for;
use doorbell::elf::cubin::{Arch, Cubin};
use doorbell::isa::sass::check::{Trust, check_for};
use doorbell::isa::sass::compile::assemble;
use doorbell::isa::sass::{SmArch, decode_for, print};

/// What a load combines: operation, type, and the registers that get it.
const LOADS: [(&str, &str); 31] = [
    ("min.u32", "%r1"),
    ("max.s32", "%r1"),
    ("add.u32", "%r1"),
    ("add.s32", "%r1"),
    ("and.b32", "%r1"),
    ("or.b32", "%r1"),
    ("xor.b32", "%r1"),
    ("add.u64", "%d5"),
    ("min.u64", "%d5"),
    ("max.s64", "%d5"),
    ("xor.b64", "%d5"),
    ("add.f32", "%f1"),
    ("add.v2.f32", "{%f1, %f2}"),
    ("add.v4.f32", "{%f1, %f2, %f3, %f4}"),
    ("add.f64", "%e1"),
    ("add.v2.f16", "{%h1, %h2}"),
    ("min.v4.f16", "{%h1, %h2, %h3, %h4}"),
    ("max.v8.f16", "{%h1, %h2, %h3, %h4, %h5, %h6, %h7, %h8}"),
    ("add.acc::f32.v2.bf16", "{%h1, %h2}"),
    ("add.v4.bf16", "{%h1, %h2, %h3, %h4}"),
    ("max.v8.bf16", "{%h1, %h2, %h3, %h4, %h5, %h6, %h7, %h8}"),
    ("min.f16x2", "%r1"),
    ("add.acc::f32.f16x2", "%r1"),
    ("add.v2.f16x2", "{%r1, %r2}"),
    ("add.acc::f32.v2.f16x2", "{%r1, %r2}"),
    ("add.v4.f16x2", "{%r1, %r2, %r3, %r4}"),
    ("add.acc::f32.v4.f16x2", "{%r1, %r2, %r3, %r4}"),
    ("max.bf16x2", "%r1"),
    ("add.v2.bf16x2", "{%r1, %r2}"),
    ("min.v4.bf16x2", "{%r1, %r2, %r3, %r4}"),
    ("add.acc::f32.v4.bf16x2", "{%r1, %r2, %r3, %r4}"),
];

/// Stores and reductions: what stands before the address, and the data.
const WRITES: [(&str, &str); 25] = [
    ("st.global.u32", "%r1"),
    ("st.weak.global.f64", "%e1"),
    ("st.relaxed.cta.global.b32", "%r1"),
    ("st.relaxed.gpu.global.v4.f32", "{%f1, %f2, %f3, %f4}"),
    ("st.relaxed.sys.global.v2.f16", "{%h1, %h2}"),
    ("st.relaxed.sys.global.v8.f16", "{%h1, %h2, %h3, %h4, %h5, %h6, %h7, %h8}"),
    ("st.release.sys.global.v2.f16x2", "{%r1, %r2}"),
    ("st.release.gpu.global.u64", "%d5"),
    ("st.release.cta.global.u32", "%r1"),
    ("red.global.min.s32", "%r1"),
    ("red.relaxed.sys.global.add.u32", "%r1"),
    ("red.relaxed.gpu.global.max.u64", "%d5"),
    ("red.relaxed.cluster.global.min.s64", "%d5"),
    ("red.relaxed.cta.global.xor.b64", "%d5"),
    ("red.release.sys.global.and.b32", "%r1"),
    ("red.release.gpu.or.b32", "%r1"),
    ("red.relaxed.sys.global.add.f32", "%f1"),
    ("red.relaxed.sys.global.add.v2.f32", "{%f1, %f2}"),
    ("red.relaxed.sys.global.add.v4.f32", "{%f1, %f2, %f3, %f4}"),
    ("red.relaxed.sys.global.add.f64", "%e1"),
    ("red.relaxed.sys.global.add.f16x2", "%r1"),
    ("red.relaxed.sys.global.add.v2.bf16", "{%h1, %h2}"),
    ("red.relaxed.sys.global.max.v8.f16", "{%h1, %h2, %h3, %h4, %h5, %h6, %h7, %h8}"),
    ("red.relaxed.sys.global.min.v2.f16x2", "{%r1, %r2}"),
    ("red.relaxed.sys.global.max.v4.bf16x2", "{%r1, %r2, %r3, %r4}"),
];

/// A store of a load's result, or a load of a write's data, of plain memory; halves one by one.
fn plain(what: &str, registers: &str) -> String {
    let list: Vec<&str> = registers.trim_matches(['{', '}']).split(", ").collect();
    let bits = match list[0].as_bytes()[1] {
        b'h' => "b16",
        b'd' | b'e' => "b64",
        _ => "b32",
    };
    let one = |(k, register): (usize, &&str)| match what {
        "st" => format!("st.global.{bits} [%d2+{}], {register};", 16 * k),
        _ => format!("ld.global.{bits} {register}, [%d2+{}];", 16 * k),
    };
    list.iter().enumerate().map(one).collect()
}

/// A kernel of each statement.
fn module(target: &str) -> String {
    let loads = LOADS.iter().enumerate().map(|(k, (what, to))| {
        let order = if k % 2 == 0 { "relaxed.sys" } else { "acquire.gpu" };
        format!("multimem.ld_reduce.{order}.global.{what} {to}, [%d1+{}]; {}", 16 * k, plain("st", to))
    });
    let writes = WRITES
        .iter()
        .enumerate()
        .map(|(k, (what, from))| format!("{} multimem.{what} [%d1+{}], {from};", plain("ld", from), 16 * k));
    let kernel = |(k, body): (usize, String)| {
        format!(
            ".visible .entry k{k}(.param .u64 a, .param .u64 b)\n{{\n.reg .b16 %h<9>; .reg .b32 %r<9>; .reg .f32 %f<9>;\n\
            .reg .b64 %d<9>; .reg .f64 %e<9>; ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b];\n\
            mov.u32 %r8, %tid.x; mul.wide.u32 %d8, %r8, 16; add.s64 %d1, %d1, %d8; add.s64 %d2, %d2, %d8;\n{body}\nret;\n}}\n"
        )
    };
    let all: String = loads.chain(writes).enumerate().map(kernel).collect();
    format!(".version 8.7\n.target {target}\n.address_size 64\n{all}")
}

/// A text without numbers of registers.
fn shape(text: &str) -> String {
    let mut out = String::new();
    let mut after = ' ';
    for c in text.chars() {
        let digit = c.is_ascii_digit() && after == 'R';
        if !digit {
            out.push(c);
            after = c;
        }
    }
    out
}

/// The accesses of the kernels' code, of plain memory too, with what orders them.
fn accesses(cubin: &[u8], chip: SmArch) -> (Vec<Vec<String>>, Vec<u128>) {
    let file = Cubin::parse(cubin).expect("a cubin");
    let mut words = vec![];
    let kept = ["LDGMC", "REDG", "STG", "MEMBAR", "ERRBAR", "CGAERRBAR", "CCTL"];
    let mut kernels: Vec<_> = file.kernels.iter().collect();
    kernels.sort_by_key(|k| k.name[1..].parse::<u32>().expect("its number"));
    let of = |k: &&doorbell::elf::cubin::Kernel| {
        let code: Vec<u128> = file.code(k).as_chunks::<16>().0.iter().map(|w| u128::from_le_bytes(*w)).collect();
        let faults = check_for(&code, chip, Trust::Seen).unwrap_or_else(|e| panic!("{}: {e}", k.name));
        assert!(faults.is_empty(), "{chip} {}: {}", k.name, faults[0]);
        let all = code.iter().map(|w| decode_for(*w, chip).unwrap_or_else(|e| panic!("{w:032x}: {e}")));
        let mut loaded = None;
        let mut texts = vec![];
        for inst in all.filter(|i| kept.contains(&i.form().mnemonic)) {
            // What is in the cache becomes invalid after the load.
            let waits = inst.form().mnemonic != "CCTL" || loaded.is_some_and(|k: u8| inst.control.wait >> k & 1 == 1);
            assert!(waits, "{chip} {}: {}", k.name, print(&inst));
            loaded = if inst.form().mnemonic == "LDGMC" { inst.control.write } else { loaded };
            texts.push(shape(&print(&inst)));
            // Halves of a result are stored one by one, in any order.
            texts.retain(|text| !text.contains(".U16"));
        }
        words.extend(code);
        texts
    };
    (kernels.iter().map(of).collect(), words)
}

#[test]
fn accesses_to_all_copies_are_ptxas_s_instructions() {
    for (chip, target) in [(SmArch::Sm90, "sm_90a"), (SmArch::Sm120, "sm_120a")] {
        let text = module(target);
        let ours =
            assemble(&text, Arch { sm: chip.number(), specific: true }).unwrap_or_else(|e| panic!("{chip}: {e}"));
        let ((ours, words), (theirs, more)) = (accesses(&ours, chip), accesses(&ptxas_for(&text, target, "-O3"), chip));
        assert_eq!(ours.len(), LOADS.len() + WRITES.len());
        for (k, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(ours, theirs, "{chip}, kernel {k}");
        }
        agree(&[words, more].concat(), chip);
    }
}

#[test]
fn chips_before_sm_90_have_no_copies() {
    let text = ".version 8.7\n.target sm_89\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n.reg .b64 %d<2>; .reg .b32 %r<2>;\n\
        ld.param.u64 %d1, [a]; multimem.ld_reduce.relaxed.sys.global.add.u32 %r1, [%d1]; st.global.u32 [%d1], %r1; ret;\n}\n";
    let refused = assemble(text, SmArch::Sm89.arch()).expect_err("no such instruction").to_string();
    assert!(refused.contains("multimem") && refused.contains("LDGMC"), "{refused}");
}
