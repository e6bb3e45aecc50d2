//! Instruction → closure: a function a mnemonic decodes its operands once and returns what each execution does.

use super::core::{Core, How, zip, zip3};
use super::fault::{R, not_modelled};
use super::operand::{Dst, Fields, In};
use super::{
    atomic, convert, cross, double, float, flow, half, integer, logic, matrix, mbarrier, memory, mufu, pack, special,
    steal, tma, wgmma, wide,
};
use doorbell_ptx::sass::Instruction;

/// What an instruction does to registers and memory.
pub(super) type Run = Box<dyn Fn(&mut Core) -> R<()> + Send + Sync>;

/// What an instruction does.
pub(super) enum Body {
    Plain(Run),
    /// Changes the program counter or waits.
    Flow(flow::Flow),
}

/// Decodes the instruction's operands.
pub(super) fn lower(inst: &Instruction) -> R<Body> {
    let f = Fields(inst);
    if let Some(flow) = flow::lower(f)? {
        return Ok(Body::Flow(flow));
    }
    let rooms = [
        wide::lower,
        integer::lower,
        logic::lower,
        float::lower,
        convert::lower,
        memory::lower,
        pack::lower,
        half::lower,
        double::lower,
        mufu::lower,
        special::lower,
        cross::lower,
        atomic::lower,
        matrix::lower,
        mbarrier::lower,
        wgmma::lower,
        tma::lower,
        steal::lower,
    ];
    for room in rooms {
        if let Some(run) = room(f)? {
            return Ok(Body::Plain(run));
        }
    }
    not_modelled(inst.form().mnemonic)
}

/// The mnemonic; instructions of the uniform datapath do what their vector namesakes do.
pub(super) fn name(f: Fields) -> &'static str {
    match f.0.form().mnemonic {
        "UIADD3" => "IADD3",
        "UIMAD" => "IMAD",
        "ULOP3" => "LOP3",
        "USHF" => "SHF",
        "ULEA" => "LEA",
        "UMOV" => "MOV",
        "UISETP" => "ISETP",
        "UPLOP3" => "PLOP3",
        "UPRMT" => "PRMT",
        "USEL" => "SEL",
        "USGXT" => "SGXT",
        "UBMSK" => "BMSK",
        "UBREV" => "BREV",
        "UFLO" => "FLO",
        "UPOPC" => "POPC",
        "UVIMNMX" => "VIMNMX",
        "UIMNMX" => "IMNMX",
        "UFADD" => "FADD",
        "UFMUL" => "FMUL",
        "UFFMA" => "FFMA",
        "UFSEL" => "FSEL",
        "UFSETP" => "FSETP",
        "UFSET" => "FSET",
        "UFMNMX" => "FMNMX",
        "UFRND" => "FRND",
        "UVIADD" => "VIADD",
        "UI2F" => "I2F",
        "UI2FP" => "I2FP",
        "UF2I" => "F2I",
        "UF2F" => "F2F",
        "UF2FP" => "F2FP",
        "UF2IP" => "F2IP",
        "UI2I" => "I2I",
        "UI2IP" => "I2IP",
        other => other,
    }
}

/// One integer of one.
pub(super) fn unary(d: Dst, a: In, f: impl Fn(u32) -> u32 + Send + Sync + 'static) -> Run {
    Box::new(move |c| {
        let [a] = c.sources(How::Int, [&a])?;
        let r = a.map(&f);
        c.write(d, &r);
        Ok(())
    })
}

/// One integer of two.
pub(super) fn binary(d: Dst, a: In, b: In, f: impl Fn(u32, u32) -> u32 + Send + Sync + 'static) -> Run {
    Box::new(move |c| {
        let [a, b] = c.sources(How::Int, [&a, &b])?;
        let r = zip(a, b, &f);
        c.write(d, &r);
        Ok(())
    })
}

/// One integer of three.
pub(super) fn ternary(
    d: Dst,
    (a, b, e): (In, In, In),
    f: impl Fn(u32, u32, u32) -> u32 + Send + Sync + 'static,
) -> Run {
    Box::new(move |c| {
        let [a, b, e] = c.sources(How::Int, [&a, &b, &e])?;
        let r = zip3(a, b, e, &f);
        c.write(d, &r);
        Ok(())
    })
}
