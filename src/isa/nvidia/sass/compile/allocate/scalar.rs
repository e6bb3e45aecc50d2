//! Moves warp-uniform values that live through loops into uniform registers, which frees general registers.
//!
//! Loop counters, and values computed from them, from the block index and from parameters, are computed once per warp
//! by the U forms of the same instructions. Other instructions read such a value as their one operand that may be
//! uniform. Each instruction is replaced by exactly one; if that is impossible, the value stays in a general register.
//! A loop whose condition depends only on such values ends with BRA.U.
//!
//! A uniform instruction runs once for whichever threads are active. So divergent code is left alone: branches that are
//! not warp-uniform, and calls. In the remaining code each value is the same in all threads at all times, and so is its
//! register. Source: where ptxas 13.5.37 keeps loop counters.

use super::live::goes_back;
use crate::sass::compile::mir::{Code, Mach, Nature, ONE, PRED, RegField, Term};
use crate::sass::compile::select::Selected;
use crate::sass::{Form, Modifier, Pipe, RegFile, Role, effects, mods, op};
use smallvec::SmallVec;
use std::ops::Range;

/// Uniform registers that are allocated to values; selection and the forms of other chips use those below and above.
pub(crate) const SCALARS: Range<u8> = 40..60;

/// Uniform predicates that are allocated to conditions; selection uses those below.
const CONDITIONS: Range<u8> = 3..7;

/// Analysis of a register.
#[derive(Clone, Copy, Default)]
struct Value {
    /// It can be in a uniform register.
    may: bool,
    /// It will be.
    chosen: bool,
    writes: u32,
    /// The first block that writes it, from 1, and whether other blocks use it.
    block: u32,
    leaves: bool,
    /// Its uniform register.
    place: u8,
}

/// The form that an instruction takes with all operands uniform, or with one operand uniform.
type Shape = (&'static Form, Option<&'static str>);

/// Moves warp-uniform values that live through loops to uniform registers.
pub(crate) fn choose(selected: &mut Selected) {
    let code = &mut selected.code;
    let parts = |b: &usize| matches!(code.blocks[*b].term, Term::Branch(_, x, y, false) if x != y);
    let apart = code.calls > 0 || code.returns.is_some() || !code.meets.is_empty() || !code.strays.is_empty();
    if apart || !goes_back(code, &code.order) || code.order.iter().any(parts) {
        return;
    }
    let forms: Vec<Option<&'static Form>> = all(code).map(|(_, m)| uniform_form(m)).collect();
    let mut values = candidates(code, &forms);
    if !values.iter().any(Value::stays) {
        return;
    }
    agree(code, &forms, &mut values);
    if pick(code, &forms, &mut values) && place(code, &mut values) {
        rewrite(code, &forms, &values);
    }
}

impl Value {
    /// Whether it is worth a uniform register by itself: it is live through a loop or across blocks.
    fn stays(&self) -> bool {
        self.may && (self.leaves || self.writes > 1)
    }
}

fn known<'a>(values: &'a [Value], r: &RegField) -> &'a Value {
    &values[number(r)]
}

fn number(r: &RegField) -> usize {
    r.word.reg().0 as usize
}

/// All instructions in layout order, with their block.
fn all(code: &Code) -> impl Iterator<Item = (usize, &Mach)> {
    code.order.iter().flat_map(|b| code.blocks[*b].ops.iter().map(move |m| (*b, m)))
}

fn sources(m: &Mach) -> impl Iterator<Item = &RegField> {
    m.regs.iter().filter(|r| !r.write)
}

/// The result of an instruction that has exactly one.
fn result(m: &Mach) -> Option<usize> {
    m.regs.iter().find(|r| r.write).map(number)
}

/// Registers of one word, and predicates, that are written only by instructions with a uniform form.
fn candidates(code: &Code, forms: &[Option<&'static Form>]) -> Vec<Value> {
    let may = |class: &_| Value { may: matches!(*class, ONE | PRED), ..Value::default() };
    let mut values: Vec<Value> = code.classes.iter().map(may).collect();
    for ((b, m), form) in all(code).zip(forms) {
        for r in m.regs.iter().filter(|r| r.write) {
            let v = &mut values[number(r)];
            v.writes += 1;
            v.leaves |= v.block != 0 && v.block != b as u32 + 1;
            v.block = b as u32 + 1;
            v.may &= form.is_some();
        }
    }
    for (b, m) in all(code) {
        for r in sources(m) {
            let v = &mut values[number(r)];
            v.leaves |= v.block != b as u32 + 1;
        }
    }
    values.iter_mut().for_each(|v| v.may &= v.writes > 0);
    values
}

/// The block index in the grid.
const BLOCK: [Modifier; 3] = [mods::s::SR_CTAID_X, mods::s::SR_CTAID_Y, mods::s::SR_CTAID_Z];

/// The uniform form of an instruction, if all chips have it.
fn uniform_form(m: &Mach) -> Option<&'static Form> {
    let form = m.inst.form();
    if !matches!(form.pipe, Pipe::Alu | Pipe::Imad | Pipe::Misc) || m.glued || m.effect || m.above || m.is_guarded() {
        return None;
    }
    let unused = |slot| m.inst.get(slot, Role::Value).is_none_or(|p| p == 7);
    let off = |slot| !m.inst.flag(slot, Role::Value);
    let to = match (form.mnemonic, form.name) {
        ("MOV", "R") => op::UMOV_R,
        ("MOV", "I") => op::UMOV_I,
        ("IADD3", "R" | "I") if !(unused("pu") && unused("pv") && off("x")) => return None,
        ("IADD3", "R") => op::UIADD3_R,
        ("IADD3", "I") => op::UIADD3_I,
        ("IMAD", "LOR") if off("x") => op::UIMAD_LOR,
        ("IMAD", "LOI") if off("x") => op::UIMAD_LOI,
        ("SHF", "R") => op::USHF_R,
        ("SHF", "I") => op::USHF_I,
        ("LOP3", "R") if unused("pu") => op::ULOP3_R,
        ("LOP3", "I") if unused("pu") => op::ULOP3_I,
        ("ISETP", "R" | "I") if !(unused("pv") && unused("pp") && off("x")) => return None,
        ("ISETP", "R") => op::UISETP_R,
        ("ISETP", "I") => op::UISETP_I,
        ("S2R", "S") if BLOCK.iter().any(|s| m.inst.says(*s)) => op::S2UR_S,
        _ => return None,
    };
    let plain = matches!(m.nature, Nature::Plain | Nature::Copy | Nature::Constant);
    Some(to).filter(|_| plain && m.regs.iter().filter(|r| r.write).count() == 1)
}

/// The form of an instruction with an operand in a uniform register, if all chips have it, and the slot that is
/// exchanged with `b`.
fn taking(m: &Mach, r: &RegField) -> Option<Shape> {
    let slot = m.slot(r).filter(|_| r.count == 1)?;
    Some(match (m.inst.form().mnemonic, m.inst.form().name, slot) {
        ("IMAD", "LOR", "b") => (op::IMAD_LOU, None),
        ("IMAD", "LOR", "a") => (op::IMAD_LOU, Some("a")),
        ("IMAD", "LOR", "c") => (op::IMAD_LOU3, None),
        ("IMAD", "WIDER", "b") => (op::IMAD_WIDEU, None),
        ("IMAD", "WIDER", "a") => (op::IMAD_WIDEU, Some("a")),
        ("IADD3", "R", "b") => (op::IADD3_U, None),
        ("IADD3", "R", "a") => (op::IADD3_U, Some("a")),
        ("IADD3", "R", "c") => (op::IADD3_U, Some("c")),
        ("ISETP", "R", "b") => (op::ISETP_U, None),
        ("LEA", "R", "b") => (op::LEA_U, None),
        ("LOP3", "R", "b") => (op::LOP3_U, None),
        ("SEL", "R", "b") => (op::SEL_U, None),
        ("SHF", "R", "b") => (op::SHF_U, None),
        _ => return None,
    })
}

/// Drops values that depend on dropped values, or that some user cannot take in a uniform register.
fn agree(code: &Code, forms: &[Option<&'static Form>], values: &mut [Value]) {
    let concerned = |m: &Mach| m.regs.iter().any(|r| known(values, r).may);
    let ops: Vec<_> = all(code).map(|(_, m)| m).zip(forms).filter(|(m, _)| concerned(m)).collect();
    let mut changed = true;
    while std::mem::take(&mut changed) {
        for (m, form) in &ops {
            if let Some(to) = form.and_then(|_| result(m)).filter(|to| values[*to].may) {
                if !sources(m).all(|r| known(values, r).may) {
                    (values[to].may, changed) = (false, true);
                }
                continue;
            }
            let mut taken = false;
            for r in sources(m) {
                if known(values, r).may {
                    if taken || taking(m, r).is_none() {
                        (values[number(r)].may, changed) = (false, true);
                    } else {
                        taken = true;
                    }
                }
            }
        }
    }
}

/// An instruction that may become uniform: its result and sources, and whether each source can stay as it is.
struct Maker {
    to: usize,
    sources: SmallVec<[(usize, bool); 3]>,
}

/// Chooses values that live across blocks or iterations and are used, and the values that they require; returns whether
/// there are any.
fn pick(code: &Code, forms: &[Option<&'static Form>], values: &mut [Value]) -> bool {
    if !values.iter().any(Value::stays) {
        return false;
    }
    let (mut makers, mut wanted) = (vec![], vec![false; values.len()]);
    for ((_, m), form) in all(code).zip(forms) {
        match form.and_then(|_| result(m)).filter(|to| values[*to].may) {
            Some(to) => {
                let sources = sources(m).map(|r| (number(r), taking(m, r).is_some())).collect();
                makers.push(Maker { to, sources });
            }
            None => sources(m).for_each(|r| wanted[number(r)] = true),
        }
    }
    for b in &code.order {
        if let Term::Branch(p, ..) = code.blocks[*b].term
            && let Some(w) = p.word
        {
            wanted[w.reg().0 as usize] = true;
        }
    }
    let mut changed = true;
    while std::mem::take(&mut changed) {
        for m in &makers {
            for (v, _) in m.sources.iter().filter(|_| wanted[m.to]).collect::<SmallVec<[_; 3]>>() {
                changed |= !std::mem::replace(&mut wanted[*v], true);
            }
        }
    }
    for (k, v) in values.iter_mut().enumerate() {
        // A condition follows its sources.
        v.chosen = v.stays() && wanted[k] && code.classes[k] == ONE;
    }
    let any = values.iter().any(|v| v.chosen);
    changed = any;
    while std::mem::take(&mut changed) {
        for m in makers.iter().filter(|m| wanted[m.to]) {
            let mut taken = m.sources.iter().filter(|s| values[s.0].chosen);
            let fits = taken.next().is_none_or(|s| s.1) && taken.next().is_none();
            changed |= !fits && !std::mem::replace(&mut values[m.to].chosen, true);
            if values[m.to].chosen {
                m.sources.iter().for_each(|(v, _)| changed |= !std::mem::replace(&mut values[*v].chosen, true));
            }
        }
    }
    any
}

/// Allocates registers for the chosen values, if there are enough.
fn place(code: &Code, values: &mut [Value]) -> bool {
    let (mut scalars, mut conditions) = (SCALARS, CONDITIONS);
    for (v, class) in values.iter_mut().zip(&code.classes).filter(|(v, _)| v.chosen) {
        let Some(register) = (if *class == PRED { conditions.next() } else { scalars.next() }) else { return false };
        v.place = register;
    }
    debug_assert!(!all(code).any(|(_, m)| is_taken(m)));
    true
}

/// Whether selection uses registers that are allocated here.
fn is_taken(m: &Mach) -> bool {
    let all = effects(&m.inst);
    all.reads.iter().chain(&all.writes).any(|a| match a.file {
        RegFile::Uniform => a.first < SCALARS.end && a.first + a.count > SCALARS.start,
        RegFile::UniformPredicate => CONDITIONS.contains(&a.first),
        _ => false,
    })
}

/// Replaces instructions by their uniform forms.
fn rewrite(code: &mut Code, forms: &[Option<&'static Form>], values: &[Value]) {
    let place = |r: &RegField| Some(known(values, r)).filter(|v| v.chosen).map(|v| u64::from(v.place));
    let mut forms = forms.iter();
    for b in &code.order {
        let block = &mut code.blocks[*b];
        for (m, form) in block.ops.iter_mut().zip(forms.by_ref()) {
            let Some(r) = m.regs.iter().find(|r| place(r).is_some()) else { continue };
            let shape = match form.filter(|_| result(m).is_some_and(|to| values[to].chosen)) {
                Some(form) => Some((form, None)),
                None => taking(m, r),
            };
            if let Some((form, exchange)) = shape {
                *m = m.in_form(form, exchange, place);
            }
        }
        if let Term::Branch(p, x, y, _) = block.term
            && let Some(up) = p.word.and_then(|w| Some(values[w.reg().0 as usize]).filter(|v| v.chosen))
        {
            block.term = Term::Uniform(up.place, p.not, x, y);
        }
    }
}
