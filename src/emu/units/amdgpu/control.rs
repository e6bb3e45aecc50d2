//! Scalar instructions of control flow: branches, calls, EXEC masks, barriers, waits, messages, hardware registers.
//!
//! Source: AMD's ISA documents (SOPP, SOPK, SOP1); docs/amd-isa.md 5.6, 5.8.

use super::Chip;
use super::decode::{PRIVATE_APERTURE, SHARED_APERTURE};
use super::fault::{FaultKind, R, fail};
use super::inst::{EXEC, Inst, M0, Operand};
use super::sem_scalar::{In, Scalar};
use super::wave::Wave;

/// Where the wave continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Advance,
    Jump(u64),
    Barrier,
    /// gfx12: the barrier is signalled; with `true` the instruction returns whether this wave was the first.
    Signal(bool),
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Always,
    Scc(bool),
    VccZero(bool),
    ExecZero(bool),
}

#[derive(Clone, Copy)]
pub(super) enum Control {
    /// No effect that software can see.
    Nothing,
    Nop,
    End,
    CodeEnd,
    Branch(Condition),
    Barrier,
    Signal {
        first: bool,
    },
    BarrierWait,
    BarrierState,
    Wait(Waiting),
    Trap,
    Halt,
    Message,
    MessageReturn,
    GetPc,
    SetPc,
    SwapPc,
    Call,
    Exec {
        f: fn(u64, u64) -> u64,
        write_back: bool,
    },
    GetReg,
    SetReg {
        immediate: bool,
    },
    DenormMode,
    RoundMode,
    Relative {
        source: bool,
    },
    /// gfx9's register indexing: on with which operands, off, and the index alone.
    IndexOn,
    IndexOff,
    IndexMode,
    Index,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The combined word of gfx9 and gfx11.
    Combined,
    Load,
    Store,
    Lds,
    Scalar,
    Lgkm,
    LoadLds,
    StoreLds,
    Idle,
    /// s_waitcnt_depctr, s_wait_alu.
    Alu,
    /// Counters that nothing here increments.
    Other,
}

const NOTHING: &[&str] = &[
    "s_clause",
    "s_sleep",
    "s_setprio",
    "s_icache_inv",
    "s_ttracedata",
    "s_set_inst_prefetch_distance",
    "s_incperflevel",
    "s_decperflevel",
    "s_wakeup",
    "s_version",
    "s_wait_event",
    "s_delay_alu",
];

impl Control {
    pub(crate) fn find(_chip: Chip, name: &str) -> Option<Self> {
        if NOTHING.contains(&name) {
            return Some(Self::Nothing);
        }
        if let Some(found) = exec_op(name) {
            return Some(found);
        }
        Some(match name {
            "s_nop" => Self::Nop,
            "s_endpgm" | "s_endpgm_saved" => Self::End,
            "s_code_end" => Self::CodeEnd,
            "s_branch" => Self::Branch(Condition::Always),
            "s_cbranch_scc0" => Self::Branch(Condition::Scc(false)),
            "s_cbranch_scc1" => Self::Branch(Condition::Scc(true)),
            "s_cbranch_vccz" => Self::Branch(Condition::VccZero(true)),
            "s_cbranch_vccnz" => Self::Branch(Condition::VccZero(false)),
            "s_cbranch_execz" => Self::Branch(Condition::ExecZero(true)),
            "s_cbranch_execnz" => Self::Branch(Condition::ExecZero(false)),
            "s_barrier" => Self::Barrier,
            "s_barrier_signal" => Self::Signal { first: false },
            "s_barrier_signal_isfirst" => Self::Signal { first: true },
            "s_barrier_wait" => Self::BarrierWait,
            "s_get_barrier_state" => Self::BarrierState,
            "s_waitcnt" => Self::Wait(Waiting::Combined),
            "s_waitcnt_vmcnt" | "s_wait_loadcnt" => Self::Wait(Waiting::Load),
            "s_waitcnt_vscnt" | "s_wait_storecnt" => Self::Wait(Waiting::Store),
            "s_waitcnt_lgkmcnt" => Self::Wait(Waiting::Lgkm),
            "s_wait_dscnt" => Self::Wait(Waiting::Lds),
            "s_wait_kmcnt" => Self::Wait(Waiting::Scalar),
            "s_wait_loadcnt_dscnt" => Self::Wait(Waiting::LoadLds),
            "s_wait_storecnt_dscnt" => Self::Wait(Waiting::StoreLds),
            "s_wait_idle" => Self::Wait(Waiting::Idle),
            "s_waitcnt_depctr" | "s_wait_alu" => Self::Wait(Waiting::Alu),
            "s_waitcnt_expcnt" | "s_wait_samplecnt" | "s_wait_bvhcnt" | "s_wait_expcnt" => Self::Wait(Waiting::Other),
            "s_trap" => Self::Trap,
            "s_sethalt" | "s_sendmsghalt" => Self::Halt,
            "s_sendmsg" => Self::Message,
            "s_sendmsg_rtn_b32" | "s_sendmsg_rtn_b64" => Self::MessageReturn,
            "s_getpc_b64" => Self::GetPc,
            "s_setpc_b64" => Self::SetPc,
            "s_swappc_b64" => Self::SwapPc,
            "s_call_b64" => Self::Call,
            "s_getreg_b32" => Self::GetReg,
            "s_setreg_b32" => Self::SetReg { immediate: false },
            "s_setreg_imm32_b32" => Self::SetReg { immediate: true },
            "s_denorm_mode" => Self::DenormMode,
            "s_round_mode" => Self::RoundMode,
            "s_set_gpr_idx_on" => Self::IndexOn,
            "s_set_gpr_idx_off" => Self::IndexOff,
            "s_set_gpr_idx_mode" => Self::IndexMode,
            "s_set_gpr_idx_idx" => Self::Index,
            "s_movrels_b32" | "s_movrels_b64" => Self::Relative { source: true },
            "s_movreld_b32" | "s_movreld_b64" => Self::Relative { source: false },
            _ => return None,
        })
    }
}

/// `s_<op>_saveexec` and `s_<op>_wrexec`: the new EXEC from the source and the old one.
fn exec_op(name: &str) -> Option<Control> {
    let rest =
        name.strip_prefix("s_")?.strip_suffix("_b32").or_else(|| name.strip_prefix("s_")?.strip_suffix("_b64"))?;
    let (op, write_back) = match rest.strip_suffix("_saveexec") {
        Some(op) => (op, false),
        None => (rest.strip_suffix("_wrexec")?, true),
    };
    let f: fn(u64, u64) -> u64 = match op {
        "and" => |s, e| s & e,
        "or" => |s, e| s | e,
        "xor" => |s, e| s ^ e,
        "nand" => |s, e| !(s & e),
        "nor" => |s, e| !(s | e),
        "xnor" => |s, e| !(s ^ e),
        "and_not1" => |s, e| s & !e,
        "and_not0" => |s, e| !s & e,
        "or_not1" => |s, e| s | !e,
        "or_not0" => |s, e| !s | e,
        _ => return None,
    };
    Some(Control::Exec { f, write_back })
}

/// Plain scalar arithmetic.
pub(super) fn scalar(w: &mut Wave, i: &Inst, s: &Scalar) -> R<()> {
    let widths = i.entry.widths;
    let sopk = i.format == super::rows::Format::Sopk;
    if i.is_copy
        && let (Operand::S(from), Operand::S(to)) = (i.src[0], i.dst)
        && w.move_unwritten(from, to, widths[0])?
    {
        return Ok(());
    }
    let source = |slot: usize| match i.src[slot] {
        Operand::None => Ok(0),
        // Compilers merge EXEC into a mask whose other lanes are undefined.
        Operand::S(n) if i.src[1 - slot] == Operand::S(EXEC) && widths[2] != 0 => w.read_mask_unwritten(n, widths[1]),
        operand => w.scalar_operand(operand, widths[slot + 1]),
    };
    let b = if sopk { i.imm as i64 as u64 } else { source(1)? };
    if s.reads_scc {
        check_scc(w)?;
    }
    let old = match i.src[2] {
        // The mandatory literal of s_fmaak and s_fmamk.
        Operand::K(k) => k,
        _ if s.reads_dst => w.scalar_operand(i.dst, widths[0].max(1))?,
        _ => 0,
    };
    let input = In { a: source(0)?, b, d: old, scc: w.scc, mode: w.mode };
    let out = (s.f)(&input);
    if let Some(v) = out.value
        && widths[0] != 0
    {
        write(w, i.dst, widths[0], v)?;
    }
    if let Some(scc) = out.scc {
        (w.scc, w.scc_known) = (scc, true);
    }
    Ok(())
}

fn check_scc(w: &Wave) -> R<()> {
    if w.strict.poison && !w.scc_known {
        return fail(FaultKind::SccUnwritten);
    }
    Ok(())
}

fn write(w: &mut Wave, dst: Operand, words: u8, v: u64) -> R<()> {
    match dst {
        Operand::S(n) => w.write_scalars(n, words.into(), v),
        _ => Ok(()),
    }
}

pub(super) fn execute(w: &mut Wave, i: &Inst, c: Control) -> R<Next> {
    let after = w.pc + i.len_bytes();
    match c {
        Control::Nothing | Control::Nop => {}
        Control::End => return Ok(Next::End),
        Control::CodeEnd => return fail(FaultKind::IllegalInstruction { word: i.words[0] }),
        Control::Branch(condition) => {
            if holds(w, condition)? {
                return Ok(Next::Jump(after.wrapping_add_signed(i64::from(i.imm) * 4)));
            }
        }
        Control::Barrier | Control::BarrierWait => return Ok(Next::Barrier),
        Control::Signal { first } => return Ok(Next::Signal(first)),
        Control::BarrierState => write(w, i.dst, 1, u64::from(w.signalled))?,
        Control::Wait(what) => wait(w, i.imm as u32, what),
        Control::Trap => return fail(FaultKind::Trap { id: i.imm as u32 & 0xff }),
        Control::Halt if i.imm & 1 == 1 => return fail(FaultKind::Halted),
        Control::Halt | Control::Message => {}
        Control::MessageReturn => message(w, i)?,
        Control::GetPc => write(w, i.dst, 2, after)?,
        Control::SetPc => return Ok(Next::Jump(w.scalar_operand(i.src[0], 2)?)),
        Control::SwapPc => {
            let to = w.scalar_operand(i.src[0], 2)?;
            write(w, i.dst, 2, after)?;
            return Ok(Next::Jump(to));
        }
        Control::Call => {
            write(w, i.dst, 2, after)?;
            return Ok(Next::Jump(after.wrapping_add_signed(i64::from(i.imm) * 4)));
        }
        Control::Exec { f, write_back } => exec_mask(w, i, f, write_back)?,
        Control::GetReg => {
            let v = get_register(w, i.imm as u32);
            write(w, i.dst, 1, v.into())?;
        }
        Control::SetReg { immediate } => {
            let v = if immediate { w.scalar_operand(i.src[2], 1)? } else { w.scalar_operand(i.dst, 1)? };
            set_register(w, i.imm as u32, v as u32)?;
        }
        Control::DenormMode => w.mode.bits = w.mode.bits & !0xf0 | (i.imm as u32 & 15) << 4,
        Control::RoundMode => w.mode.bits = w.mode.bits & !0xf | i.imm as u32 & 15,
        Control::Relative { source } => relative(w, i, source)?,
        Control::IndexOn | Control::IndexOff | Control::IndexMode | Control::Index => index_mode(w, i, c)?,
    }
    Ok(Next::Advance)
}

fn holds(w: &Wave, condition: Condition) -> R<bool> {
    Ok(match condition {
        Condition::Always => true,
        Condition::Scc(want) => {
            check_scc(w)?;
            w.scc == want
        }
        Condition::VccZero(want) => (w.scalar_operand(Operand::S(super::inst::VCC), 255)? == 0) == want,
        Condition::ExecZero(want) => (w.exec() == 0) == want,
    })
}

/// The destination gets the old EXEC (or, for `wrexec`, the new one); SCC is set if any lane is left.
fn exec_mask(w: &mut Wave, i: &Inst, f: fn(u64, u64) -> u64, write_back: bool) -> R<()> {
    let words = i.entry.widths[0];
    if (words == 1) != w.is_wave32() && w.strict.registers && words == 2 {
        return fail(FaultKind::BadOperand { what: "a 64-bit EXEC operation in wave32".into() });
    }
    let source = w.scalar_operand(i.src[0], words)?;
    let old = w.exec();
    let mask = f(source, old) & w.full();
    w.set_exec(mask);
    write(w, i.dst, words, if write_back { mask } else { old })?;
    (w.scc, w.scc_known) = (mask != 0, true);
    Ok(())
}

fn wait(w: &mut Wave, imm: u32, what: Waiting) {
    let n = imm & 0xffff;
    match what {
        Waiting::Combined => combined(w, n),
        Waiting::Load => w.waits.wait_load(n & 63),
        Waiting::Store => w.waits.wait_store(n & 63),
        Waiting::Lds => w.waits.wait_lds(n & 63),
        Waiting::Scalar => w.waits.wait_scalar(n & 31),
        Waiting::Lgkm => w.waits.wait_lgkm(n & 63),
        Waiting::LoadLds => {
            w.waits.wait_load(n >> 8 & 63);
            w.waits.wait_lds(n & 63);
        }
        Waiting::StoreLds => {
            w.waits.wait_store(n >> 8 & 63);
            w.waits.wait_lds(n & 63);
        }
        Waiting::Idle => w.waits.wait_all(),
        Waiting::Alu | Waiting::Other => {}
    }
}

/// s_waitcnt: a field at its largest value waits for nothing.
fn combined(w: &mut Wave, imm: u32) {
    let (load, lgkm, most_lgkm) = match w.chip {
        Chip::Gfx942 => (imm & 15 | imm >> 14 << 4, imm >> 8 & 15, 15),
        _ => (imm >> 10 & 63, imm >> 4 & 63, 63),
    };
    if load < 63 {
        w.waits.wait_load(load);
    }
    if lgkm < most_lgkm {
        w.waits.wait_lgkm(lgkm);
    }
}

/// Messages with an answer: clocks and identities.
fn message(w: &mut Wave, i: &Inst) -> R<()> {
    let value = match i.words[0] & 255 {
        0x83 => realtime(),
        _ => 0,
    };
    write(w, i.dst, i.entry.widths[0], value)
}

/// The 100 MHz clock of the device.
pub(super) fn realtime() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    (since.as_nanos() / 10) as u64
}

/// Hardware register `id` of the simm16's low bits.
fn register(w: &Wave, id: u32) -> u32 {
    let gfx12 = w.chip == Chip::Gfx1201;
    match id {
        1 => w.mode.bits,
        2 => u32::from(w.scc) | 1 << 16 | u32::from(w.exec() == 0) << 9 | u32::from(w.vcc() == 0) << 10,
        15 => (SHARED_APERTURE >> 48 << 16 | PRIVATE_APERTURE >> 48) as u32,
        20 if w.chip != Chip::Gfx942 => w.scratch_base as u32,
        21 if w.chip != Chip::Gfx942 => (w.scratch_base >> 32) as u32,
        23 | 4 => w.index,
        29 if gfx12 => w.instructions as u32,
        30 if gfx12 => (w.instructions >> 32) as u32,
        29 => w.instructions as u32 & 0xf_ffff,
        _ => 0,
    }
}

fn field(imm: u32) -> (u32, u32, u32) {
    let (id, offset, size) = (imm & 63, imm >> 6 & 31, (imm >> 11 & 31) + 1);
    (id, offset, (u64::from(u32::MAX) >> (32 - size)) as u32)
}

fn get_register(w: &Wave, imm: u32) -> u32 {
    let (id, offset, mask) = field(imm);
    register(w, id) >> offset & mask
}

fn set_register(w: &mut Wave, imm: u32, value: u32) -> R<()> {
    let (id, offset, mask) = field(imm);
    match id {
        1 => w.mode.bits = w.mode.bits & !(mask << offset) | (value & mask) << offset,
        // Trap status and similar registers: nothing here reads them.
        2..=31 => {}
        _ => return fail(FaultKind::BadOperand { what: format!("hardware register {id}") }),
    }
    Ok(())
}

/// gfx9: vector registers named by instructions are moved by M0's low byte, for the operands that M0's bits 12..
/// choose.
fn index_mode(w: &mut Wave, i: &Inst, c: Control) -> R<()> {
    match c {
        Control::IndexOff => w.index_mode = false,
        Control::IndexMode => {
            let m0 = w.scalar_operand(Operand::S(M0), 1)? as u32;
            w.put_scalar(M0, m0 & !0xf000 | (i.imm as u32 & 15) << 12);
        }
        _ => {
            let index = w.scalar_operand(i.src[0], 1)? as u32 & 255;
            let on = matches!(c, Control::IndexOn);
            let choice = if on { (i.words[0] >> 8 & 15) << 12 } else { w.scalar_unchecked(M0) & !255 };
            w.put_scalar(M0, index | choice);
            w.index_mode |= on;
        }
    }
    Ok(())
}

/// s_movrel*: M0 is added to a register's number.
fn relative(w: &mut Wave, i: &Inst, source: bool) -> R<()> {
    let words = i.entry.widths[0];
    let m0 = w.scalar_operand(Operand::S(M0), 1)? as u8;
    let moved = |o: Operand, on: bool| match o {
        Operand::S(n) if on => Operand::S(n.saturating_add(m0)),
        other => other,
    };
    let v = w.scalar_operand(moved(i.src[0], source), words)?;
    write(w, moved(i.dst, !source), words, v)
}
