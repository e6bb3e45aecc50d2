//! Every wait and every nop that code generation puts in is needed: without it the checker finds an instruction too
//! early.

use super::machine::{chips, execute};
use crate::codegen_agree::{buffers, vars};
use crate::codegen_kernels::kernels;
use doorbell::codegen::{self, OptChoice, Program};
use doorbell::isa::amdgpu::{Amdgpu, Chip, MachineCode, Target, check, compile, decode};
use doorbell::uop::Arg;

/// An instruction's first dword and its length.
type Place = (usize, usize);

fn places(target: Target, words: &[u32]) -> Vec<(Place, &'static str)> {
    let (mut at, mut out) = (0, Vec::new());
    while at < words.len() {
        let (inst, len) = decode(target, &words[at..]).unwrap();
        out.push(((at, len), inst.op.name()));
        at += len;
    }
    out
}

/// The code without one instruction, branches over it shortened.
fn without(target: Target, words: &[u32], (gone, len): Place) -> Vec<u32> {
    let moved = |at: i64| if at > gone as i64 { at - len as i64 } else { at };
    let mut out = words.to_vec();
    for ((at, _), name) in places(target, words) {
        if name == "s_branch" || name.starts_with("s_cbranch") {
            let to = at as i64 + 1 + i64::from(words[at] as u16 as i16);
            let distance = moved(to) - moved(at as i64) - 1;
            out[at] = words[at] & 0xffff_0000 | u32::from(distance as i16 as u16);
        }
    }
    out.drain(gone..gone + len);
    out
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Whether the emulator stops at the code.
fn stops(code: &MachineCode, text: Vec<u8>, p: &Program, ast: &doorbell::uop::UOp) -> bool {
    let code = MachineCode { text, ..code.clone() };
    let named = vars(ast, 5);
    let of = |v: &doorbell::uop::UOp| match v.arg() {
        Arg::Var(n, ..) => named[&**n],
        _ => 0,
    };
    let values: Vec<i64> = p.vars.iter().map(of).collect();
    execute(&code, p, &mut buffers(ast, 1), &values).is_err()
}

#[test]
fn every_removed_wait_or_nop_is_found() {
    for chip in chips() {
        let (target, isa) = (Target::of(chip), Amdgpu::new(chip));
        let (mut removed, mut ran, mut stopped) = (0, 0, 0);
        for (name, ast) in kernels() {
            let p = codegen::compile(&ast, isa.target(), &OptChoice::Heuristic, false).unwrap();
            let code = compile(&p, target).unwrap();
            let words: Vec<u32> = code.text.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w)).collect();
            assert_eq!(check(target, &code.text), Ok(()), "{name} on {}", chip.name());
            for (place, op) in places(target, &words) {
                let inserted = op.starts_with("s_wait") || op.ends_with("_nop");
                if !inserted {
                    continue;
                }
                let text = bytes(&without(target, &words, place));
                let found = check(target, &text);
                assert!(found.is_err(), "{name} on {}: {op} at dword {} is not missed", chip.name(), place.0);
                removed += 1;
                // The emulator runs a share of them.
                if removed % 4 == 0 {
                    ran += 1;
                    stopped += usize::from(stops(&code, text, &p, &ast));
                }
            }
        }
        eprintln!("{}: {removed} removed, {ran} of them run, {stopped} stopped by the emulator", chip.name());
        assert!(removed >= 50, "{}: {removed}", chip.name());
        assert!(stopped * 10 >= ran * 9, "{}: the emulator stopped {stopped} of {ran}", chip.name());
    }
    assert!(chips().contains(&Chip::Gfx942) || std::env::var("CHIP").is_ok());
}
