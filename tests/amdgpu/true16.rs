//! Halves of vector registers (`v1.l`, `v1.h`) against LLVM 22, which writes them for gfx1100 by default.

use super::amdgpu::format::{Field, Format};
use super::amdgpu::{
    Chip, File, Inst, Kind, Operand, Row, Target, all_rows, decode, encode, parse, print, print_true16,
};
use super::llvm::LLVM22;
use super::random::{self, Rng};
use super::{agree_as, noise_agrees_as};

/// Operations that LLVM 19 has only with true16.
pub const ONLY: &[&str] = &["v_mov_b16", "v_swap_b16"];

/// gfx1201's are halves only where they are asked for.
const FLAGS: &[&str] = &[LLVM22, "-mattr=+real-true16"];

fn is_vector(operand: Option<&Operand>) -> bool {
    matches!(operand, Some(Operand::Reg(r)) if r.file == File::Vgpr)
}

/// Bits of `op_sel` that a row's vector registers have in this instruction.
fn selectable(row: &Row, chip: Chip, inst: &Inst) -> u8 {
    let bit = |field| match field {
        Field::Src0 => 1,
        Field::Src1 | Field::Vsrc1 => 2,
        Field::Src2 => 4,
        Field::Vdst => 8,
        _ => 0,
    };
    let slots = row.slots.iter().enumerate().filter(|(i, _)| is_vector(inst.operands.get(*i)));
    slots.fold(0, |bits, (_, s)| bits | bit(s.field)) & row.halves(chip)
}

/// Random instructions with random halves; left out are constants and signs that LLVM 22 reads otherwise than LLVM 19.
fn instructions(target: Target, per_row: usize, seed: u64) -> Vec<Inst> {
    let mut rng = Rng(seed);
    let mut found = Vec::new();
    for row in all_rows(target.chip).filter(|r| r.halves(target.chip) != 0) {
        let name = row.op.name();
        let mut made = 0;
        for _ in 0..50 * per_row {
            let Some(mut inst) = random::instruction(&mut rng, target, row) else { continue };
            let wide = |o: &Operand| !is_vector(Some(o)) && !matches!(row.slots[0].kind, Kind::Mask { .. });
            let odd = name.starts_with("v_align") && inst.operands.get(3).is_some_and(wide)
                || name.contains("class") && !is_vector(inst.operands.last())
                || name == "v_fmac_f16" && inst.mods.dpp.is_some() && !is_vector(inst.operands.get(2))
                || name == "v_ldexp_f16" && (inst.mods.neg | inst.mods.abs) & 2 != 0;
            if odd || made == per_row {
                continue;
            }
            // Of such an accumulator LLVM's assembler refuses what its disassembler writes.
            let known = if name == "v_fmac_f16" && row.format == Format::Vop3 { 7 } else { 15 };
            inst.mods.op_sel = rng.below(16) as u8 & selectable(row, target.chip, &inst) & known;
            made += 1;
            found.push(inst);
        }
        assert_eq!(made, per_row, "{name}");
    }
    found
}

fn halves_agree(chip: Chip, seed: u64) {
    let target = Target::of(chip);
    let insts = instructions(target, 24, seed);
    assert!(insts.len() > 4_000, "{}", insts.len());
    let high = insts.iter().filter(|i| i.mods.op_sel != 0).count();
    assert!(high > 2_000, "{high} with a high half");
    agree_as(target, FLAGS, &insts, print_true16);
}

#[test]
fn halves_of_gfx1100_agree_with_llvm_22() {
    halves_agree(Chip::Gfx1100, 0x16_1100);
}

#[test]
fn halves_of_gfx1201_agree_with_llvm_22() {
    halves_agree(Chip::Gfx1201, 0x16_1201);
}

/// LLVM 22 writes gfx1100's halves without being asked.
#[test]
fn noise_that_llvm_22_reads_as_gfx1100_reads_alike() {
    let compared = noise_agrees_as(Target::of(Chip::Gfx1100), &[LLVM22], 4, 15_000, print_true16);
    assert!(compared > 3_000, "{compared}");
}

#[test]
fn a_high_half_is_named_and_a_half_of_a_whole_operand_is_refused() {
    let target = Target::of(Chip::Gfx1100);
    let text = |line: &str| {
        let inst = parse(target, line, &mut |_| None).map_err(|e| e.to_string())?;
        let words = encode(target, &inst).map_err(|e| e.to_string())?;
        print(target, &decode(target, &words).map_err(|e| e.to_string())?.0).map_err(|e| e.to_string())
    };
    assert_eq!(text("v_mov_b16_e32 v0.l, v1.h").as_deref(), Ok("v_mov_b16_e32 v0.l, v1.h"));
    assert_eq!(text("v_add_f16 v0.l, v1.l, v2.l").as_deref(), Ok("v_add_f16_e32 v0, v1, v2"));
    assert_eq!(text("v_add_f16 v200.h, v1, v2").as_deref(), Ok("v_add_f16_e64 v200.h, v1.l, v2.l op_sel:[0,0,1]"));
    assert_eq!(text("v_mov_b32 v0, v1.h"), Err("column 15: this operand is no half of a register".to_owned()));
    let constant = Inst::new(super::amdgpu::op::V_MOV_B16, [super::amdgpu::v(0), Operand::Int(1)]).e32().op_sel(1);
    assert_eq!(
        encode(target, &constant).expect_err("a refusal").to_string(),
        "v_mov_b16: no high half of such an operand in this encoding"
    );
}
