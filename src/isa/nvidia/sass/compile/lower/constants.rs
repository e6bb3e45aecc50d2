//! Constant-bank operands of arithmetic, from Hopper on: they come through uniform registers, or through separate
//! loads.
//!
//! On sm_120 arithmetic cannot read a constant bank. sm_90 can, but no code of ptxas does: in 1.2 million instructions
//! that it generates from the tests' texts for that chip, only LDC and ULDC name a bank. Our code does the same.
//! Selection writes bank operands as for older chips. Here, after register allocation, `MOV` of a constant becomes LDC,
//! and other instructions read a uniform register. ULDC loads it at the start of the code if a register is free
//! throughout, or else before its first reader after a label or a jump. Divergent threads share uniform registers and
//! may run in any order, so in divergent code a register holds one constant permanently, and on sm_90 the remaining
//! operands stay in the bank.

use super::chips::{copied, place};
use crate::sass::compile::allocate::scalar::SCALARS;
use crate::sass::compile::lines::Line;
use crate::sass::row::{Field, Form, Index, Kind, Pipe, Role};
use crate::sass::{FieldError, Guard, Instruction, SmArch, mods, op};
use std::ops::Range;

/// Uniform registers for constants: selection uses those below, loop values those above.
pub(crate) const CONSTANTS: Range<u8> = 28..SCALARS.start;
/// The same in divergent code, where no loop values are in uniform registers.
const DIVERGENT: Range<u8> = 28..SCALARS.end;
/// Pairs that are reused from piece to piece if there are more constants than pairs.
const REUSED_PAIRS: usize = 3;

/// Rewrites lines so that only loads read constant banks.
///
/// # Errors
/// An instruction has no form with a uniform register.
pub(crate) fn in_registers(lines: Vec<Line>, chip: SmArch) -> Result<Vec<Line>, String> {
    if !lines.iter().any(|l| matches!(l, Line::Inst(i, _) if Read::of(i, chip).is_some())) {
        return Ok(lines);
    }
    let mut loads = Loads::new(&lines, chip);
    let mut out = Vec::with_capacity(lines.len() + loads.all.len());
    for k in 0..loads.all.len() {
        if loads.all[k].lasts {
            out.push(loads.load(k)?);
        }
    }
    let mut rest = lines.into_iter().peekable();
    while let Some(line) = rest.next() {
        let Line::Inst(inst, target) = line else {
            loads.forget();
            out.push(line);
            continue;
        };
        let next = match rest.peek() {
            Some(Line::Inst(next, None)) => Some(next),
            _ => None,
        };
        if let Some((load, both)) = moved(&inst, next, chip)? {
            out.push(Line::Inst(load, target));
            if both {
                rest.next();
            }
            continue;
        }
        let reads = match Read::of(&inst, chip) {
            Some(read) if loads.finds(read) || chip != SmArch::Sm90 => loads.through_uniform(&inst, read, &mut out)?,
            _ => inst,
        };
        out.push(Line::Inst(reads, target));
        if inst.form().pipe == Pipe::Branch {
            loads.forget();
        }
    }
    Ok(out)
}

/// A bank operand: which bank, and which bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Read {
    slot: &'static str,
    bank: u64,
    /// Start of the aligned pair that contains the operand.
    base: u64,
    /// Which of its words: bit 0 the first, bit 1 the second.
    words: u8,
}

impl Read {
    /// The bank operand of an instruction that is not a load.
    fn of(inst: &Instruction, chip: SmArch) -> Option<Read> {
        let form = inst.form();
        // In the table, forms that read a constant have a C in their name.
        if !form.name.contains('C') || matches!(form.mnemonic, "LDC" | "ULDC") {
            return None;
        }
        let is = |kind| matches!(kind, Kind::Constant(Index::None | Index::Spaced));
        let slot = form.fields.iter().find(|f| is(f.kind))?.slot;
        let get = |role| inst.get(slot, role).unwrap_or(0);
        let (bank, at) = (get(Role::Bank), get(Role::Offset));
        // The addend of a wide product, and all double-precision operands, have two words.
        if form.pipe == Pipe::Double || form.name.starts_with("WIDE") && slot == "c" {
            return Some(Read { slot, bank, base: at, words: 3 });
        }
        let second = at % 8 == 4 && is_pair(bank, at - 4, chip);
        Some(Read { slot, bank, base: at - if second { 4 } else { 0 }, words: if second { 2 } else { 1 } })
    }
}

/// Whether the chip has two words of a bank as one aligned pair.
fn is_pair(bank: u64, at: u64, chip: SmArch) -> bool {
    let there = |at| place(bank, at, chip).ok();
    there(at).is_some_and(|first| first % 8 == 0 && there(at + 4) == Some(first + 4))
}

/// The load that replaces a move of a constant, and whether it includes the next move.
fn moved(inst: &Instruction, next: Option<&Instruction>, chip: SmArch) -> Result<Option<(Instruction, bool)>, String> {
    let parts = |i: &Instruction| {
        let get = |slot, role| i.get(slot, role).unwrap_or(0);
        (get("d", Role::Value), get("b", Role::Bank), get("b", Role::Offset))
    };
    let is_move = |i: &Instruction| std::ptr::eq(i.form(), op::MOV_C);
    if !is_move(inst) {
        return Ok(None);
    }
    let (d, bank, at) = parts(inst);
    let next = next.filter(|n| is_move(n) && n.guard == inst.guard);
    let both = d % 2 == 0 && is_pair(bank, at, chip) && next.is_some_and(|n| parts(n) == (d + 1, bank, at + 4));
    let mut load = load(op::LDC_C, d, bank, at, both)?;
    load.guard = inst.guard;
    Ok(Some((load, both)))
}

/// A load of one word or two from offset `at` of a bank.
pub(crate) fn load(form: &'static Form, d: u64, bank: u64, at: u64, both: bool) -> Result<Instruction, String> {
    let mut inst = Instruction::new(form);
    let failed = |e: FieldError| e.to_string();
    inst.set("d", Role::Value, d).map_err(failed)?;
    inst.set("c", Role::Bank, bank).map_err(failed)?;
    inst.set("c", Role::Offset, at).map_err(failed)?;
    inst.modify(if both { mods::sz::_64 } else { mods::sz::NONE }).map_err(failed)?;
    Ok(inst)
}

/// A constant, or two adjacent ones, and its register.
struct Constant {
    bank: u64,
    base: u64,
    /// Words that some instruction reads.
    words: u8,
    /// The first of its uniform registers; `None`: it has none.
    register: Option<u8>,
    /// The register holds it throughout the code.
    lasts: bool,
    /// Pieces of straight code that read it, the last of them, and whether one is in a loop.
    pieces: u32,
    piece: usize,
    in_loop: bool,
}

impl Constant {
    fn new(read: Read) -> Constant {
        let Read { bank, base, .. } = read;
        Constant { bank, base, words: 0, register: None, lasts: false, pieces: 0, piece: usize::MAX, in_loop: false }
    }
}

/// Whether it writes a uniform register for loop values.
fn keeps_scalar(line: &Line) -> bool {
    let Line::Inst(inst, _) = line else { return false };
    let form = inst.form();
    let written = |f: &&Field| f.slot == "d" && f.kind == Kind::UR;
    form.uniform
        && form.fields.iter().find(written).is_some_and(|f| {
            inst.get(f.slot, f.role).is_some_and(|r| (u64::from(SCALARS.start)..u64::from(SCALARS.end)).contains(&r))
        })
}

struct Loads {
    all: Vec<Constant>,
    /// Pairs that are reused from piece to piece.
    free: Range<u8>,
    next: u8,
    /// Threads may diverge.
    divergent: bool,
}

impl Loads {
    /// The constants that lines read, and which of them get a permanent register.
    fn new(lines: &[Line], chip: SmArch) -> Loads {
        let mut all: Vec<Constant> = vec![];
        let (loops, mut piece, mut divergent) = (loops(lines), 0, false);
        for (at, line) in lines.iter().enumerate() {
            let Line::Inst(inst, target) = line else {
                piece += 1;
                continue;
            };
            if let Some(read) = Read::of(inst, chip).filter(|_| !std::ptr::eq(inst.form(), op::MOV_C)) {
                let known = all.iter().position(|c| (c.bank, c.base) == (read.bank, read.base));
                let k = known.unwrap_or(all.len());
                if known.is_none() {
                    all.push(Constant::new(read));
                }
                let c = &mut all[k];
                c.pieces += u32::from(c.piece != piece);
                c.words |= read.words;
                c.piece = piece;
                c.in_loop |= loops.iter().any(|l| l.contains(&at));
            }
            if inst.form().pipe == Pipe::Branch {
                piece += 1;
                let decides = target.is_some() && inst.guard != Guard::ALWAYS;
                divergent |= decides || !matches!(inst.form().mnemonic, "BRA" | "EXIT");
            }
        }
        // Code with loop values in uniform registers does not diverge.
        divergent &= !lines.iter().any(keeps_scalar);
        let registers = if divergent { DIVERGENT } else { CONSTANTS };
        let pairs = registers.len() / 2;
        let fit = all.len() <= pairs;
        // sm_120 can only reuse pairs from piece to piece.
        let room = if fit || divergent && chip == SmArch::Sm90 { pairs } else { pairs - REUSED_PAIRS };
        let mut order: Vec<usize> = (0..all.len()).filter(|k| fit || divergent || all[*k].pieces > 1).collect();
        order.sort_by_key(|k| std::cmp::Reverse((all[*k].in_loop, all[*k].pieces)));
        let mut first = registers.start;
        for k in order.into_iter().take(room) {
            (all[k].lasts, all[k].register) = (true, Some(first));
            first += 2;
        }
        Loads { all, free: first..registers.end, next: first, divergent }
    }

    /// Whether a uniform register can hold the constant.
    fn finds(&self, read: Read) -> bool {
        !self.divergent || self.all.iter().any(|c| c.lasts && (c.bank, c.base) == (read.bank, read.base))
    }

    /// The load of a constant.
    fn load(&self, k: usize) -> Result<Line, String> {
        let c = &self.all[k];
        let register = c.register.unwrap_or(CONSTANTS.start);
        let skip = if c.words == 2 { 1 } else { 0 };
        let (d, at) = (u64::from(register + skip), c.base + 4 * u64::from(skip));
        let inst = load(op::ULDC_C, d, c.bank, at, c.words == 3)?;
        Ok(Line::Inst(inst, None))
    }

    /// The form that reads a uniform register, preceded by the load of that register if needed.
    fn through_uniform(&mut self, inst: &Instruction, read: Read, out: &mut Vec<Line>) -> Result<Instruction, String> {
        let (from, chip) = (inst.form(), inst.chip());
        let no = || format!("{chip} has no {} of a constant", from.mnemonic);
        let (before, rest) = from.name.rsplit_once('C').ok_or_else(no)?;
        let name = format!("{before}U{rest}");
        let form = Form::find(from.mnemonic, &name, chip).ok_or_else(no)?;
        let k = self.all.iter().position(|c| (c.bank, c.base) == (read.bank, read.base)).ok_or_else(no)?;
        let register = match self.all[k].register {
            Some(register) => register,
            None => {
                let register = self.fresh(k);
                out.push(self.load(k)?);
                register
            }
        };
        let mut to = copied(inst, form, chip, read.slot)?;
        let register = register + if read.words == 2 { 1 } else { 0 };
        to.set(read.slot, Role::Value, u64::from(register)).map_err(|e| e.to_string())?;
        Ok(to)
    }

    /// A pair of uniform registers; its previous contents are forgotten.
    fn fresh(&mut self, k: usize) -> u8 {
        let register = self.next;
        self.next = if register + 2 < self.free.end { register + 2 } else { self.free.start };
        if let Some(before) = self.all.iter_mut().find(|c| c.register == Some(register)) {
            before.register = None;
        }
        self.all[k].register = Some(register);
        register
    }

    /// Code may be reached from elsewhere here.
    fn forget(&mut self) {
        self.all.iter_mut().filter(|c| !c.lasts).for_each(|c| c.register = None);
    }
}

/// Ranges of lines from a back edge's target to the jump.
fn loops(lines: &[Line]) -> Vec<std::ops::Range<usize>> {
    let mut labels = hashbrown::HashMap::new();
    let mut all = vec![];
    for (at, line) in lines.iter().enumerate() {
        match line {
            Line::Label(l) => drop(labels.insert(*l, at)),
            Line::Inst(_, Some(to)) => all.extend(labels.get(to).map(|from| *from..at)),
            Line::Inst(..) => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sass::table::FORMS;

    #[test]
    fn forms_that_read_a_constant_in_its_place_are_called_so() {
        let reads = |f: &&Form| f.fields.iter().any(|f| matches!(f.kind, Kind::Constant(Index::None | Index::Spaced)));
        for form in FORMS.iter().filter(reads) {
            let inst = Instruction::on(form, form.chips.iter().next().unwrap());
            let loads = matches!(form.mnemonic, "LDC" | "ULDC" | "LDCU");
            assert!(loads || Read::of(&inst, SmArch::Sm90).is_some(), "{} {}", form.mnemonic, form.name);
        }
    }

    #[test]
    fn words_are_pairs_where_the_chip_has_them_side_by_side() {
        // Parameters, and the grid's sizes, which sm_120 keeps 16 bytes after the block's.
        assert!([SmArch::Sm90, SmArch::Sm120].iter().all(|c| is_pair(0, 0x218, *c) && !is_pair(0, 0x214, *c)));
        assert!(is_pair(0, 8, SmArch::Sm90) && !is_pair(0, 8, SmArch::Sm120));
    }
}
