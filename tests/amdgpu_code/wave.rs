//! Sums over the threads of a wave in compiled kernels: which instructions make them, and what they save.

use super::machine::{check_on, execute, listing, text};
use super::ops::across;
use crate::codegen_agree::buffers;
use crate::codegen_kernels::{row_sum, softmax};
use doorbell::codegen::target::Grid;
use doorbell::codegen::{self, OptChoice, Program, Target as Facts};
use doorbell::emu::amdgpu::Stats;
use doorbell::isa::amdgpu::{Amdgpu, Chip, MachineCode, Target, compile};
use doorbell::uop::{Op, Scalar, UOp};

#[test]
fn a_whole_wave_of_64_is_combined_bit_for_bit() {
    for t in [Scalar::F32, Scalar::F64, Scalar::I32, Scalar::U64, Scalar::I16] {
        for op in [Op::Add, Op::Mul, Op::Max] {
            for (n, threads) in [(64, 64), (32, 192), (64, 256)] {
                let (p, inputs) = across(t, op, n, threads, 1);
                check_on(&[Chip::Gfx942], &p, &inputs, &[], 0.0);
            }
        }
    }
}

/// The kernel by waves, and as it would be if threads exchanged everything through workgroup memory.
fn both(chip: Chip, k: &UOp, choice: &OptChoice) -> [Program; 2] {
    let facts = Amdgpu::new(chip).target().clone();
    let grid = facts.grid.map(|g| Grid { wave: 1, ..g });
    let alone = Facts { grid, ..facts.clone() };
    [facts, alone].map(|t| codegen::compile(k, &t, choice, false).unwrap_or_else(|e| panic!("{}: {e}", chip.name())))
}

/// Instructions that all waves ran, after the result was compared with the interpreter's.
fn cost(chip: Chip, k: &UOp, p: &Program) -> (MachineCode, Stats) {
    check_on(&[chip], p, &[buffers(k, 1)], &[], 1e-5);
    let code = compile(p, Target::of(chip)).unwrap();
    let stats = execute(&code, p, &mut buffers(k, 1), &[]).unwrap();
    (code, stats)
}

#[test]
fn sums_of_groups_cost_less_by_waves_than_through_memory() {
    for chip in Chip::ALL {
        for (name, k) in [("row sum", row_sum(4, 2048)), ("softmax", softmax(4, 1024))] {
            let [by_waves, alone] = both(chip, &k, &OptChoice::Heuristic);
            assert_eq!(by_waves.local, [256, 1, 1], "{:?}", by_waves.opts);
            let ((code, now), (_, before)) = (cost(chip, &k, &by_waves), cost(chip, &k, &alone));
            eprintln!(
                "{} {name}: {} instructions of all waves by waves, {} through memory; {} and {} nodes; {} and {} bytes",
                chip.name(),
                now.instructions,
                before.instructions,
                by_waves.uops.len(),
                alone.uops.len(),
                by_waves.local_bytes,
                alone.local_bytes
            );
            assert!(now.instructions * 2 < before.instructions, "{}\n{}", listing(&code), text(&by_waves));
            assert!(by_waves.local_bytes < alone.local_bytes);
        }
    }
}

#[test]
fn a_group_within_a_wave_uses_neither_memory_nor_barriers() {
    let moves = |chip| match chip {
        Chip::Gfx942 => ["v_readlane_b32", "v_add_f32"],
        _ => ["v_permlanex16_b32", "v_add_f32"],
    };
    for chip in Chip::ALL {
        let wave = Amdgpu::new(chip).target().grid.unwrap().wave;
        let k = row_sum(3, 4 * i64::from(wave));
        let choice = OptChoice::Given(vec![format!("GROUP(1,{wave})").parse().unwrap()]);
        let [p, _] = both(chip, &k, &choice);
        let (code, _) = cost(chip, &k, &p);
        let text = listing(&code);
        assert!(moves(chip).iter().all(|name| text.contains(name)), "{text}");
        assert!(!text.contains("barrier") && !text.contains("ds_"), "{text}");
        let dpp = code.listing.iter().filter(|i| i.mods.dpp.is_some()).count();
        assert!(dpp >= 4, "{dpp}\n{text}");
    }
}
