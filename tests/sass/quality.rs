//! The assembler's code relative to that of ptxas -O3 for the same text: instructions, registers, executed
//! instructions, estimated cycles.

use crate::assemble::{SM90, compiled, text};
use crate::codegen_agree::{buffers, same, vars};
use crate::codegen_kernels::kernels as graphs;
use crate::figures::Figures;
use crate::machine::{Case, launch};
use crate::nvidia::ptxas;
use doorbell::codegen::OptChoice;
use doorbell::elf::cubin::Cubin;
use doorbell::isa::sass::compile::assemble;
use doorbell::isa::sass::{RegFile, decode, effects};
use doorbell::uop::Arg;

/// A kernel's figures, and what its buffers hold afterwards.
fn run(cubin: &[u8], name: &str, case: &Case, strict: bool) -> (Figures, Vec<Vec<u8>>) {
    let (left, stats) = launch(cubin, name, case, strict).unwrap_or_else(|e| panic!("{e}"));
    (Figures::of(cubin, name, &stats), left)
}

/// Instructions with three different general registers as sources, and those of them whose sources are all in one bank.
fn banks(cubin: &[u8]) -> [usize; 2] {
    let file = Cubin::parse(cubin).expect("a cubin");
    let image = file.image(0).expect("an image");
    let mut counts = [0; 2];
    for kernel in &file.kernels {
        let code = &image[kernel.code_offset as usize..][..kernel.code_bytes as usize];
        for word in code.chunks_exact(16) {
            let inst = decode(u128::from_le_bytes(word.try_into().expect("16 bytes"))).expect("an instruction");
            if !matches!(inst.form().mnemonic, "FFMA" | "IMAD" | "LOP3" | "IADD3") {
                continue;
            }
            let all = effects(&inst).reads;
            let general = all.iter().filter(|a| a.file == RegFile::General && a.count == 1);
            let mut sources: Vec<u8> = general.map(|a| a.first).collect();
            sources.sort_unstable();
            sources.dedup();
            counts[0] += usize::from(sources.len() == 3);
            counts[1] += usize::from(sources.len() == 3 && sources.iter().all(|r| r % 2 == sources[0] % 2));
        }
    }
    counts
}

#[test]
fn sources_of_an_instruction_stand_in_both_banks() {
    let (mut ours, mut theirs) = ([0; 2], [0; 2]);
    for (_, ast) in graphs() {
        for choice in [OptChoice::None, OptChoice::Heuristic] {
            let ptx = text(&compiled(&ast, &choice));
            let sum = |all: &mut [usize; 2], more: [usize; 2]| (all[0], all[1]) = (all[0] + more[0], all[1] + more[1]);
            sum(&mut ours, banks(&assemble(&ptx, SM90).expect("assembles")));
            sum(&mut theirs, banks(&ptxas(&ptx, "-O3")));
        }
    }
    println!("of {} instructions with three sources {} have them in one bank; of ptxas's {theirs:?}", ours[0], ours[1]);
    assert!(ours[0] > 80 && ours[1] * 50 <= ours[0], "{ours:?}, ptxas's code {theirs:?}");
}

#[test]
fn code_is_about_as_good_as_that_of_ptxas() {
    let (mut sums, mut count, mut table) = ([0.0f64; 4], 0, String::new());
    for (name, ast) in graphs() {
        let p = compiled(&ast, &OptChoice::Heuristic);
        let ptx = text(&p);
        let named = vars(&ast, 5);
        let memory = buffers(&ast, 1);
        let given: Vec<(u64, Vec<u8>)> =
            memory.iter().enumerate().map(|(k, b)| (0x7_0000_0000 + ((k as u64) << 32), b.clone())).collect();
        let mut params: Vec<u8> = given.iter().take(p.params.len()).flat_map(|b| b.0.to_le_bytes()).collect();
        for v in &p.vars {
            let Arg::Var(n, ..) = v.arg() else { panic!("a variable has a name") };
            params.extend(named[&**n].to_le_bytes());
        }
        let dynamic_bytes = if ptx.contains(".extern .shared") { p.local_bytes as u32 } else { 0 };
        let case = Case { grid: p.global, block: p.local, params, buffers: &given, dynamic_bytes };
        let (ours, left) = run(&assemble(&ptx, SM90).expect("assembles"), &p.name, &case, true);
        let (theirs, other) = run(&ptxas(&ptx, "-O3"), &p.name, &case, false);
        for (k, (a, b)) in left.iter().zip(&other).enumerate().take(p.params.len()) {
            same(p.params[k].dtype.scalar, a, b).unwrap_or_else(|e| panic!("{name} buffer {k}: {e}"));
        }
        table += &format!("{name:<14}");
        for (sum, (ours, theirs)) in sums.iter_mut().zip(ours.0.into_iter().zip(theirs.0)) {
            *sum += (ours / theirs).ln();
            table += &format!(" {ours:>8}/{theirs:<8}");
        }
        table.push('\n');
        count += 1;
    }
    let [instructions, registers, executed, cycles] = sums.map(|s| (s / f64::from(count)).exp());
    println!("{:<14} {:>17} {:>17} {:>17} {:>17}\n{table}", "", "instructions", "registers", "executed", "cycles");
    println!("of ptxas's: {instructions:.3} {registers:.3} {executed:.3} {cycles:.3}");
    assert!(instructions <= 0.95, "{instructions:.3} of ptxas's instructions\n{table}");
    assert!(registers <= 1.1, "{registers:.3} of ptxas's registers\n{table}");
    assert!(executed <= 0.85, "{executed:.3} of what ptxas's code executes\n{table}");
    assert!(cycles <= 0.85, "{cycles:.3} of the cycles of ptxas's code\n{table}");
}
