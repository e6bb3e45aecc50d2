//! Assigns registers: nearly always one for each value's whole live range; otherwise the shared allocator splits live
//! ranges (`parts`).

use super::live::Settled;
use super::parts::{Apply, Parts, moves_runs, parked, spills};
use super::pool;
use crate::ptx::Pos;
use crate::sass::compile::AsmError;
use crate::sass::compile::lines::{End, Line, Lines, Place, ends};
use crate::sass::compile::mir::{FOUR, Mach, PRED, WIDEST, Word, width};
use crate::sass::compile::select::Selected;
use crate::sass::op;
use doorbell_codegen::regalloc::{self, Allocation, Class, RegClass, RegFile, RegInfo, Unsplit, Values};
use std::ops::Range;

pub(crate) const PREDICATES: u8 = 0;
pub(crate) const GENERAL: u8 = 1;
/// R1 holds the stack pointer.
pub(crate) const STACK: u64 = 1;

pub(crate) struct AllocatedCode {
    pub lines: Vec<Line>,
    /// One more than the highest general register in use.
    pub registers: u32,
    /// Bytes of the frame.
    pub frame_bytes: u32,
    pub spills: usize,
    /// Number of labels: the blocks' numbers, then more.
    pub labels: usize,
    /// It contains wgmma instructions.
    pub multiplies: bool,
    /// Places where code beside it is called.
    pub places: Vec<Place>,
}

/// The registers that may be allocated, without the last `apart`; with `wide` also long tuples for wgmma accumulators;
/// single registers first from below `low`.
fn info(registers: u16, apart: u16, wide: bool, low: Option<u16>) -> RegInfo {
    let class = |name, file, words: u16| RegClass {
        name,
        file,
        width: words,
        align: words,
        slot_bytes: 4 * u32::from(words),
        slot_align: 4 * u32::from(words),
    };
    let run = |c| RegClass { align: 8, slot_align: 16, ..class("run", GENERAL, u16::from(width(Class(c)))) };
    let last = registers - apart;
    // Single registers are taken from the end.
    let low = low.unwrap_or(0).min(last);
    let mut order: Vec<u16> = Vec::with_capacity(usize::from(last));
    order.extend(low..last);
    order.extend((0..low).rev());
    if let Some(stack) = order.iter().position(|r| u64::from(*r) == STACK) {
        order.remove(stack);
    }
    RegInfo {
        files: vec![
            RegFile { name: "predicate", count: 7, order: (0..7).collect() },
            RegFile { name: "general", count: registers, order },
        ],
        classes: [
            class("predicate", PREDICATES, 1),
            class("word", GENERAL, 1),
            class("pair", GENERAL, 2),
            class("quad", GENERAL, 4),
        ]
        .into_iter()
        .chain((FOUR.0 + 1..=WIDEST.0).filter(|_| wide).map(run))
        .collect(),
    }
}

/// Allocates at most `registers` registers for code whose live ranges are in `settled`; the frame has `local_bytes`
/// besides spills.
pub(crate) fn place(
    selected: &Selected,
    settled: &Settled,
    registers: u16,
    local_bytes: u32,
) -> Result<AllocatedCode, AsmError> {
    let wide = selected.code.classes.iter().any(|c| c.0 > FOUR.0);
    if !wide
        && selected.calls.is_empty()
        && selected.pool.is_none()
        && let Some(whole) = whole(selected, settled, registers)
    {
        let registers = whole.end(GENERAL).max(if selected.uses_stack { STACK as u32 + 1 } else { 0 });
        return Ok(placed(selected, lines(selected, &whole, local_bytes)?, registers, 0));
    }
    let limits = Limits { registers, wide, calls: !selected.calls.is_empty(), pool: selected.pool.map(|p| p.least) };
    let parts = Parts::of(selected, &settled.undefined, true);
    let known = regalloc::Analysis::new(&parts.func).map_err(failed)?;
    let all = limits.info(registers, 0);
    // Calls clobber all registers, which must not count as register pressure.
    let need = match limits.calls {
        true => {
            let func = Parts::of(selected, &settled.undefined, false).func;
            regalloc::pressure(&func, &all).map_err(failed)?
        }
        false => known.pressure(&all),
    };
    let (alloc, first) = limits.allocated(&known, &need)?;
    let (lines, spills) = Apply::new(&parts, &alloc, first, local_bytes).all()?;
    let registers = pool::used(&lines.all);
    Ok(placed(selected, lines, registers, spills))
}

fn failed(e: regalloc::RegAllocError) -> AsmError {
    AsmError::new(Pos::default(), e.to_string())
}

/// Adds the setup of the stack pointer if it is needed.
fn placed(selected: &Selected, lines: Lines, registers: u32, spills: usize) -> AllocatedCode {
    let Lines { mut all, labels, frame_bytes, multiplies, places, .. } = lines;
    if selected.uses_stack || spills > 0 {
        let load = Mach::new(op::MOV_C).n("d", STACK).c("b", 0, 0x28).n("mask", 15);
        let down = Mach::new(op::IADD3_I).n("d", STACK).n("a", STACK).n("b", u64::from(frame_bytes.wrapping_neg()));
        // A kernel sets the stack pointer, a function does not.
        let first = usize::from(selected.code.returns.is_some());
        let head = [load, down].map(|m| Line::Inst(m.inst, None));
        all.splice(1..1, head.into_iter().skip(first));
    }
    AllocatedCode { lines: all, registers, frame_bytes, spills, labels, multiplies, places }
}

/// How many registers more than the maximum pressure may be used.
fn more(limit: u16) -> u16 {
    2 + limit / 8
}

/// One register for each value's whole live range, if there are enough: the maximum pressure plus a few.
fn whole(selected: &Selected, settled: &Settled, registers: u16) -> Option<Unsplit> {
    let regs = info(registers, 0, false, None);
    let values = Values { classes: &selected.code.classes, ranges: &settled.ranges, points: settled.points };
    let need = settled.ranges.pressure(values.classes, &regs, values.points);
    let file = |file: u8| usize::from(file);
    if usize::from(need[file(PREDICATES)]) > regs.files[file(PREDICATES)].order.len() {
        return None;
    }
    let limit = (need[file(GENERAL)] + 1).clamp(8, registers);
    let most = (limit + 2 * more(limit)).min(registers);
    let mut regs = info(limit, 0, false, None);
    regs.files[file(GENERAL)].count = most;
    let whole = regalloc::allocate_unsplit(values, &settled.copies, &regs, &[0..0, limit..most])?;
    debug_assert_eq!(Ok(()), {
        regs.files[file(GENERAL)].order.extend(limit..most);
        let func = Parts::of(selected, &settled.undefined, true).func;
        regalloc::check(&func, &regs, &whole.allocation(&func, &regs))
    });
    Some(whole)
}

/// Allocates for code that may use these general registers and predicates, and where they are not enough general
/// registers of a range. Nothing is split or spilled.
///
/// # Errors
/// There are too few registers.
pub(crate) fn within(
    selected: &Selected,
    settled: &Settled,
    general: &[u16],
    predicates: &[u16],
    more: Range<u16>,
) -> Result<AllocatedCode, AsmError> {
    let values = Values { classes: &selected.code.classes, ranges: &settled.ranges, points: settled.points };
    let mut regs = info(more.end.max(more.start), 0, false, None);
    regs.files[usize::from(PREDICATES)].order = predicates.to_vec();
    regs.files[usize::from(GENERAL)].order = general.to_vec();
    let Some(whole) = regalloc::allocate_unsplit(values, &settled.copies, &regs, &[0..0, more.clone()]) else {
        return Err(AsmError::new(Pos::default(), "too few registers for code that several places call".into()));
    };
    debug_assert_eq!(Ok(()), {
        regs.files[usize::from(GENERAL)].order.extend(more);
        let func = Parts::of(selected, &settled.undefined, true).func;
        regalloc::check(&func, &regs, &whole.allocation(&func, &regs))
    });
    Ok(placed(selected, lines(selected, &whole, 0)?, whole.end(GENERAL), 0))
}

/// The lines of code whose values have one register each.
fn lines<'a>(selected: &'a Selected, whole: &Unsplit, local_bytes: u32) -> Result<Lines<'a>, AsmError> {
    let code = &selected.code;
    let mut lines = Lines::new(code, local_bytes.next_multiple_of(16));
    let stack = selected.stack.reg();
    let register = |w: Word| match whole.register(w.reg()) {
        _ if w.reg() == stack => Ok(STACK),
        Some(r) => Ok(u64::from(r) + u64::from(w.sub())),
        None => Err(AsmError::new(Pos::default(), "an operand has no register".into())),
    };
    for (k, b) in code.order.iter().enumerate() {
        lines.label(*b);
        for m in &code.blocks[*b].ops {
            lines.place(m, |r| register(r.word))?;
        }
        for end in ends(code, *b, code.order.get(k + 1).copied()) {
            match end {
                End::Exit => lines.exit()?,
                End::Jump(to) => lines.jump(to)?,
                End::Uniform(p, not, to) => lines.uniform_branch(p, not, to)?,
                End::Branch(p, to) => lines.branch(p, p.word.map(register).transpose()?, to)?,
            }
        }
    }
    Ok(lines)
}

/// What bounds the registers of code whose live ranges may be split.
struct Limits {
    /// General registers at most.
    registers: u16,
    /// It contains calls.
    calls: bool,
    /// It contains long tuples.
    wide: bool,
    /// The least count that `setmaxnreg` sets, if it contains that.
    pool: Option<u16>,
}

impl Limits {
    /// So many registers, without the last `apart`.
    fn info(&self, registers: u16, apart: u16) -> RegInfo {
        info(registers, apart, self.wide, self.pool.map(|least| least / 2))
    }

    /// Tries with as many registers as the maximum pressure, then more if tuples do not fit between the others. Returns
    /// the first register reserved for predicates.
    fn allocated(&self, known: &regalloc::Analysis, need: &[u16]) -> Result<(Allocation, u16), AsmError> {
        let Limits { registers, calls, wide, pool } = *self;
        let mut limit = (need[usize::from(GENERAL)] + 1).clamp(8, registers);
        // General registers for predicates that find no predicate register.
        let mut apart = u16::from(need[usize::from(PREDICATES)] > 7);
        let calm = !calls && !wide && pool.is_none() && apart == 0;
        if pool.is_some() {
            limit = registers;
        }
        loop {
            let with = self.info(limit, apart);
            if calm && limit < registers {
                match known.allocate_without_frame(&with, need).map_err(failed)?.filter(|a| !spills(a, |_| true)) {
                    Some(a) => return Ok((a, limit)),
                    None => limit = (limit + more(limit)).min(registers),
                }
                continue;
            }
            match known.allocate(&with) {
                Ok(a) if wanted(&a, calls) > apart => {
                    let more = wanted(&a, calls) - apart;
                    (apart, limit) = (apart + more, (limit + more).min(registers));
                }
                // Values that are live over a call are stored in any case.
                Ok(a) if limit == registers || !(spills(&a, |c| c != PRED) || wide && moves_runs(&a)) || calls => {
                    return Ok((a, limit - apart));
                }
                Err(e) if limit == registers => return Err(failed(e)),
                _ => limit = (limit + more(limit)).min(registers),
            }
        }
    }
}

/// Number of general registers needed for predicates.
fn wanted(alloc: &Allocation, calls: bool) -> u16 {
    let slots = parked(alloc).len() as u16;
    if calls { slots.min(1) } else { slots }
}
