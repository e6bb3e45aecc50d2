//! Encodings of the whole table, and refusals.

use super::emit::Unit;
use super::form::{Form, Width};
use super::mir::{self, Inst, Mem, Opd};
use super::rows::ALL;
use super::*;
use doorbell_codegen::ParamInfo;
use doorbell_codegen::regalloc::{Class, Flow, Func, VReg};
use doorbell_uop::UOp;
use iced_x86::{Code, Decoder, DecoderOptions};

/// Encodes one instruction of a form on fresh registers and returns the codes of the function's instructions.
fn codes_of(arch: Arch, form: (Form, Code), memory: bool) -> Vec<Code> {
    let mut func = Func::default();
    let mut insts = Vec::new();
    let base = func.vreg(mir::CLASS_G);
    let mut entry = Inst::bare(Code::INVALID, Flow::Next);
    entry.implied.push(doorbell_codegen::regalloc::Operand::writes(base).fixed(mir::RDI));
    let mut ops: Vec<Opd> = Vec::new();
    let mut mask = None;
    for (k, kind) in form.0.kinds.iter().enumerate() {
        if kind.is_ascii_uppercase() || *kind == b'm' || (memory && form.0.mem as usize == k) {
            let index = kind.is_ascii_uppercase().then(|| (fresh(&mut func, &mut entry, *kind), *kind));
            ops.push(Opd::Mem(Mem { index, disp: 64, ..Mem::base(base) }));
        } else {
            ops.push(Opd::Reg(fresh(&mut func, &mut entry, *kind), *kind));
        }
    }
    if form.0.kinds.iter().any(u8::is_ascii_uppercase) && format!("{:?}", form.0.code).starts_with("EVEX") {
        mask = Some(fresh(&mut func, &mut entry, b'k'));
    }
    if format!("{:?}", form.0.code).contains("imm8") {
        ops.push(Opd::Imm(1));
    }
    let mut inst = Inst::new(form, &ops).modify();
    (inst.mask, inst.apart) = (mask, mask.is_some());
    insts.extend([entry, inst, Inst::bare(Code::INVALID, Flow::Return)]);
    let unit = Unit { name: "row".into(), arch, func, insts, rodata: vec![], local_bytes: 0, streamed: vec![] };
    let code = super::emit::emit(unit).unwrap_or_else(|e| panic!("{:?}: {e}", form.0.code));
    Decoder::new(64, &code.object.text, DecoderOptions::NONE).iter().map(|i| i.code()).collect()
}

/// A register that the entry claims to write.
fn fresh(func: &mut Func, entry: &mut Inst, kind: u8) -> VReg {
    let class: Class = super::select::class_of(kind.to_ascii_lowercase());
    let v = func.vreg(class);
    entry.implied.push(doorbell_codegen::regalloc::Operand::writes(v));
    v
}

#[test]
fn every_row_decodes_to_the_code_it_names() {
    for (name, row) in ALL {
        for arch in [Arch::Avx2, Arch::Avx512] {
            for w in [Width::X, Width::Y, Width::Z] {
                let Some((form, _)) = row.form(arch, w) else { continue };
                for memory in [false, true] {
                    let only_memory = form.kinds.get(form.mem as usize) == Some(&b'm');
                    if (memory && form.mem == 9) || (!memory && only_memory) {
                        continue;
                    }
                    let codes = codes_of(arch, (form, Code::INVALID), memory);
                    assert!(codes.contains(&form.code), "{name} on {}: {codes:?}", arch.name());
                }
            }
        }
    }
}

#[test]
fn twins_have_the_same_operands_in_a_shorter_encoding() {
    for (name, row) in ALL {
        for w in [Width::X, Width::Y] {
            let Some((form, twin)) = row.form(Arch::Avx512, w) else { continue };
            if twin != Code::INVALID && form.kinds.iter().all(|k| k.is_ascii_lowercase() && *k != b'm') {
                let codes = codes_of(Arch::Avx512, (form, twin), false);
                assert!(codes.contains(&twin), "{name}: {codes:?}");
            }
        }
    }
}

fn program(uops: Vec<UOp>) -> Program {
    let params = vec![ParamInfo { slot: 0, dtype: DType::F32, len: 4, read: true, written: true }];
    Program {
        name: "k".into(),
        display_name: "k".into(),
        uops,
        params,
        vars: vec![],
        tensors: vec![],
        threads: 1,
        global: [1; 3],
        local: [1; 3],
        local_bytes: 0,
        estimates: Default::default(),
        opts: vec![],
        fast_math: false,
    }
}

fn compile_value(v: &UOp) -> Result<MachineCode, IselError> {
    let st = UOp::param(0, v.dtype().element(), 4).index(&UOp::constant(DType::I64, 0)).store(v, &[]);
    compile(&program(st.toposort()), Arch::Avx2)
}

#[test]
fn ops_that_should_have_been_decomposed_are_named() {
    let x = UOp::param(0, DType::F32, 4).index(&UOp::constant(DType::I64, 0)).load();
    let e = compile_value(&UOp::alu(Op::Exp2, [x.clone()])).unwrap_err();
    assert_eq!(e, IselError::Unsupported { op: Op::Exp2, dtype: DType::F32, why: "no vector form" });
    let half = x.cast(DType::F16);
    assert!(matches!(compile_value(&(&half + &half)), Err(IselError::Unsupported { op: Op::Add, .. })));
}

#[test]
fn a_node_that_is_not_listed_is_an_error() {
    let x = UOp::param(0, DType::F32, 4).index(&UOp::constant(DType::I64, 0));
    let st = x.store(&x.load(), &[]);
    assert!(matches!(compile(&program(vec![st]), Arch::Avx2), Err(IselError::Malformed(_))));
}

#[test]
fn scratch_beyond_the_stack_limit_is_an_error() {
    let local = UOp::local(0, DType::F32, 1 << 20);
    assert_eq!(
        compile(&program(vec![local]), Arch::Avx2).unwrap_err(),
        IselError::TooLarge { what: "scratch", len: 4 << 20 }
    );
}

#[test]
fn levels_are_named_as_users_write_them() {
    assert_eq!(Arch::parse("avx2"), Some(Arch::Avx2));
    assert_eq!(Arch::parse("x86_64-avx512"), Some(Arch::Avx512));
    assert_eq!(Arch::parse("sse"), None);
}
