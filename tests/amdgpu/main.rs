//! AMDGPU instructions against LLVM 19: encoder, printer, decoder and parser, byte for byte and letter for letter.
//!
//! Nothing is normalised. Texts in which LLVM itself marks an error (`/*...*/`), or that its assembler does not turn
//! back into the same bytes, are no reference and are counted as skipped.

mod llvm;
mod random;
mod true16;

use doorbell::isa::amdgpu;

use amdgpu::format::Format;
use amdgpu::{Chip, Inst, Operand, Target, Wave, all_rows, decode, encode, parse, print};
use random::Rng;

const WAVE64: &[&str] = &["-mattr=+wavefrontsize64,-wavefrontsize32"];

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().expect("four bytes"))).collect()
}

/// `per_row` random instructions of every row, and dual ones where the chip has them.
fn instructions(target: Target, per_row: usize, seed: u64) -> Vec<Inst> {
    let mut rng = Rng(seed);
    let mut found = Vec::new();
    let single = all_rows(target.chip).filter(|r| !matches!(r.format, Format::VopdX | Format::VopdY));
    for row in single.filter(|r| !true16::ONLY.contains(&r.op.name())) {
        for _ in 0..per_row {
            let inst = random::instruction(&mut rng, target, row);
            let known = inst.is_some() || target.wave == Wave::W64 && row.op.name().starts_with("v_wmma");
            assert!(known, "no instruction of {} in {:?}", row.op.name(), row.format);
            found.extend(inst);
        }
    }
    let halves = |f| all_rows(target.chip).filter(|r| r.format == f).collect::<Vec<_>>();
    let (x, y) = (halves(Format::VopdX), halves(Format::VopdY));
    if !x.is_empty() && target.wave == Wave::W32 {
        found.extend((0..per_row * 100).map(|_| random::dual(&mut rng, target, &x, &y)));
    }
    found
}

/// Bytes equal LLVM's for our text; LLVM's text for our bytes equals ours; our decoder and parser lead back.
fn agree(target: Target, flags: &[&str], insts: &[Inst]) {
    agree_as(target, flags, insts, print);
}

/// The texts are those that `print` makes.
fn agree_as(
    target: Target,
    flags: &[&str],
    insts: &[Inst],
    print: impl Fn(Target, &Inst) -> Result<String, amdgpu::EncodeError>,
) {
    let chip = target.chip.name();
    let texts: Vec<String> =
        insts.iter().map(|i| print(target, i).expect("text of an encodable instruction")).collect();
    let ours: Vec<Vec<u8>> = insts.iter().map(|i| bytes(&encode(target, i).expect("code"))).collect();
    let assembled = llvm::assemble(chip, flags, &texts);
    let read = llvm::disassemble(chip, flags, &ours);
    let mut faults = Vec::new();
    for (i, text) in texts.iter().enumerate() {
        if assembled[i].as_ref() != Some(&ours[i]) {
            faults.push(format!("{text}: ours {:02x?}, LLVM {:02x?}", ours[i], assembled[i]));
        }
        if read[i].as_ref() != Some(text) {
            faults.push(format!("{:02x?}: ours {text}, LLVM {:?}", ours[i], read[i]));
        }
        let code = words(&ours[i]);
        let decoded = decode(target, &code).map(|(inst, n)| (print(target, &inst), n));
        if decoded != Ok((Ok(text.clone()), code.len())) {
            faults.push(format!("{:02x?} is {text}, decoded {decoded:?}", ours[i]));
        }
        let parsed = parse(target, text, &mut |_| None).map(|inst| encode(target, &inst));
        if !matches!(&parsed, Ok(Ok(w)) if w[..] == code[..]) {
            faults.push(format!("{text} parsed gives {parsed:?}"));
        }
    }
    faults.truncate(40);
    assert!(faults.is_empty(), "{chip}, of {} instructions:\n{}", insts.len(), faults.join("\n"));
}

#[test]
fn random_gfx1100_instructions_agree_with_llvm() {
    let target = Target::of(Chip::Gfx1100);
    let insts = instructions(target, 16, 0x1100);
    assert!(insts.len() >= 20_000, "{} instructions", insts.len());
    agree(target, &[], &insts);
}

#[test]
fn random_gfx1100_wave64_instructions_agree_with_llvm() {
    let target = Target { chip: Chip::Gfx1100, wave: Wave::W64 };
    agree(target, WAVE64, &instructions(target, 4, 0x1164));
}

#[test]
fn random_gfx1201_instructions_agree_with_llvm() {
    let target = Target::of(Chip::Gfx1201);
    let insts = instructions(target, 14, 0x1201);
    assert!(insts.len() >= 20_000, "{} instructions", insts.len());
    agree(target, &[], &insts);
}

#[test]
fn random_gfx942_instructions_agree_with_llvm() {
    let target = Target::of(Chip::Gfx942);
    let insts = instructions(target, 18, 0x942);
    assert!(insts.len() >= 20_000, "{} instructions", insts.len());
    agree(target, &[], &insts);
}

/// Random dwords that begin with a known format more often than not.
fn noise(rng: &mut Rng, count: usize) -> Vec<Vec<u32>> {
    const HEADS: [u32; 12] = [
        0x8000_0000,
        0xb000_0000,
        0xbe80_0000,
        0xbf00_0000,
        0xbf80_0000,
        0x7e00_0000,
        0x7c00_0000,
        0xd400_0000,
        0xcc00_0000,
        0xd800_0000,
        0xdc00_0000,
        0xf400_0000,
    ];
    let mut one = || {
        let head = rng.pick(&HEADS);
        let first = if rng.below(3) == 0 { rng.next() as u32 } else { head | rng.next() as u32 & 0x03ff_ffff };
        // Few set bits in the second dword: more of them are instructions.
        let second = (rng.next() & rng.next()) as u32;
        vec![first, second, rng.next() as u32]
    };
    (0..count).map(|_| one()).collect()
}

/// What LLVM reads from our noise and writes back to the same bytes, we read alike.
fn noise_agrees(target: Target, seed: u64, count: usize) -> usize {
    noise_agrees_as(target, &[], seed, count, print)
}

fn noise_agrees_as(
    target: Target,
    flags: &[&str],
    seed: u64,
    count: usize,
    print: impl Fn(Target, &Inst) -> Result<String, amdgpu::EncodeError>,
) -> usize {
    let chip = target.chip.name();
    let mut rng = Rng(seed);
    let mut cases = Vec::new();
    for case in noise(&mut rng, count) {
        cases.extend((1..=3).map(|n| bytes(&case[..n])));
    }
    let texts = llvm::disassemble(chip, flags, &cases);
    let (codes, texts): (Vec<_>, Vec<_>) =
        cases.into_iter().zip(texts).filter_map(|(c, t)| Some((c, t.filter(|t| !t.contains("/*"))?))).unzip();
    let again = llvm::assemble(chip, flags, &texts);
    let mut faults = Vec::new();
    let mut compared = 0;
    for ((code, text), again) in codes.iter().zip(&texts).zip(&again) {
        let left_out = text.contains("_sdwa")
            || text.contains("v_dual_dot2acc_f32_bf16")
            || LEFT_OUT.iter().any(|p| text.starts_with(p));
        if again.as_ref() != Some(code) || left_out {
            continue;
        }
        compared += 1;
        let ours = decode(target, &words(code)).map(|(inst, n)| (print(target, &inst), 4 * n));
        if ours != Ok((Ok(text.clone()), code.len())) {
            faults.push(format!("{code:02x?}: LLVM {text}, ours {ours:?}"));
        }
    }
    let total = faults.len();
    faults.truncate(40);
    assert!(faults.is_empty(), "{chip}: {total} of {compared} differ\n{}", faults.join("\n"));
    compared
}

/// Operations that the table leaves out.
const LEFT_OUT: &[&str] = &[
    "image_",
    "tbuffer_",
    "exp",
    "v_interp_",
    "lds_param",
    "lds_direct",
    "ds_ordered",
    "ds_gws",
    "ds_nop",
    "ds_param_load",
    "ds_direct_load",
    "ds_bvh",
    "s_version",
    "v_illegal",
    "v_mov_b16",
    "s_atc_probe",
    "s_prefetch",
    "s_buffer_prefetch",
    "s_barrier_init",
    "s_barrier_join",
    "s_get_barrier",
    "s_wakeup_barrier",
];

#[test]
fn noise_that_llvm_reads_as_gfx1100_reads_alike() {
    assert!(noise_agrees(Target::of(Chip::Gfx1100), 1, 15_000) > 3_000);
}

#[test]
fn noise_that_llvm_reads_as_gfx1201_reads_alike() {
    assert!(noise_agrees(Target::of(Chip::Gfx1201), 2, 15_000) > 3_000);
}

#[test]
fn noise_that_llvm_reads_as_gfx942_reads_alike() {
    assert!(noise_agrees(Target::of(Chip::Gfx942), 3, 15_000) > 3_000);
}

#[test]
fn a_million_random_dwords_decode_or_fail_without_panic() {
    let mut rng = Rng(99);
    for chip in Chip::ALL {
        let target = Target::of(chip);
        for case in noise(&mut rng, 340_000) {
            if let Ok((inst, n)) = decode(target, &case) {
                assert!((1..=3).contains(&n));
                let _ = print(target, &inst);
            }
            let _ = decode(target, &case[..1]);
        }
    }
}

/// Every third value of the immediate of these instructions.
#[test]
fn every_immediate_with_a_notation_of_its_own_reads_as_llvm_reads_it() {
    let target = Target::of(Chip::Gfx1100);
    // s_waitcnt, s_waitcnt_depctr, s_getreg_b32 s20, s_delay_alu, s_sendmsg
    for head in [0xbf89_0000u32, 0xbf88_0000, 0xb894_0000, 0xbf87_0000, 0xbfb6_0000] {
        let codes: Vec<Vec<u8>> = (0..0x1_0000).step_by(3).map(|i| bytes(&[head | i])).collect();
        let texts = llvm::disassemble("gfx1100", &[], &codes);
        let known: Vec<_> = codes.iter().zip(&texts).filter_map(|(c, t)| Some((c, t.clone()?))).collect();
        let lines: Vec<String> = known.iter().map(|k| k.1.clone()).collect();
        let again = llvm::assemble("gfx1100", &[], &lines);
        let mut compared = 0;
        for ((code, text), again) in known.iter().zip(again) {
            if again.as_ref() == Some(*code) {
                let inst = decode(target, &words(code)).expect("an instruction").0;
                assert_eq!(print(target, &inst).as_ref(), Ok(text));
                compared += 1;
            }
        }
        assert!(compared > 200, "{head:#x}: {compared}");
    }
}

/// Examples made with LLVM 19 by hand, one a mnemonic: columns target, mnemonic, format, opcode, operands, text, bytes.
#[test]
fn examples_assemble_to_their_bytes() {
    let table = include_str!("examples.tsv");
    let (mut checked, mut faults) = (0, Vec::new());
    for line in table.lines().skip(1) {
        let column: Vec<&str> = line.split('\t').collect();
        let Some(chip) = Chip::parse(column[0]) else { panic!("unknown target in {line}") };
        if LEFT_OUT.iter().any(|p| column[5].starts_with(p)) {
            continue;
        }
        let target = Target::of(chip);
        let code: Vec<u8> = (0..column[6].len() / 2)
            .map(|i| u8::from_str_radix(&column[6][2 * i..2 * i + 2], 16).expect("hex"))
            .collect();
        let parsed = parse(target, column[5], &mut |_| None).map(|inst| encode(target, &inst).map(|w| bytes(&w)));
        checked += 1;
        if parsed != Ok(Ok(code.clone())) {
            faults.push(format!("{}: {code:02x?}, ours {parsed:02x?}", column[5]));
        }
    }
    assert!(faults.is_empty(), "{} of {checked}:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn wrong_operands_are_refused_with_the_operand_named() {
    use amdgpu::{op, s, ss, v, vs};
    let target = Target::of(Chip::Gfx1100);
    let error = |inst: Inst| encode(target, &inst).expect_err("a refusal").to_string();
    assert_eq!(
        error(Inst::new(op::S_MOV_B64, [ss(3, 2), ss(4, 2)])),
        "s_mov_b64: operand 0 (s[3:4]): a scalar tuple must be aligned"
    );
    assert_eq!(error(Inst::new(op::V_ADD_F32, [v(0), v(1)])), "v_add_f32 takes 3 operands, 2 given");
    assert_eq!(
        error(Inst::new(op::V_FMA_F32, [v(0), s(1), s(2), s(3)])),
        "v_fma_f32: more scalar values than the constant bus carries"
    );
    let far = Inst::new(op::GLOBAL_LOAD_B32, [v(0), vs(2, 2), Operand::Off]).offset(4096);
    assert_eq!(error(far), "global_load_b32: offset = 4096 does not fit from -4096 to 4095");
}
