//! The kernel's start and end: arguments, workgroup and thread numbers, the scratch areas.
//!
//! Arguments are 64-bit words: the buffers' addresses in slot order, then the variables' values. Initial
//! registers: docs/amd.md 4.4. On chips up to gfx11 fifteen user registers are requested although two are used: with
//! fewer than sixteen initialised ones gfx1100 may leave garbage in the last.

use super::super::{Chip, File, Operand, Reg, op};
use super::mir::{self, Code, Inst, Part, SGPR, VGPR};
use super::{LevelKind, Res, Select, Selected, Src, Val};
use doorbell_codegen::regalloc::{Flow, Operand as RegOperand, PReg, VReg};
use doorbell_elf::amdgpu::LDS_BYTES;
use doorbell_uop::{Arg, Op, Scalar, UOp};
use smallvec::smallvec;

/// User scalar registers before the workgroup ids.
pub(in super::super) const fn user_sgprs(chip: Chip) -> u32 {
    match chip {
        Chip::Gfx1100 => 15,
        _ => 2,
    }
}

/// What the kernel starts with.
#[derive(Debug, Default)]
pub(super) struct Args {
    /// Registers at entry: workgroup ids, packed thread ids.
    groups: [Option<VReg>; 3],
    items: Option<VReg>,
    /// Computed from them at the first use.
    group_ids: [Option<Src>; 3],
    item_ids: [Option<Src>; 3],
    /// Argument words by pairs of arguments.
    pairs: Vec<Option<VReg>>,
    values: Vec<Option<Src>>,
}

impl Select<'_> {
    /// Puts the registers of the entry in place.
    pub(super) fn enter(&mut self) -> Res<()> {
        let mut entry = Inst::bare(Flow::Next);
        let fixed = |reg, file, index| RegOperand::writes(reg).fixed(PReg { file, index });
        let items = self.vgpr(1);
        entry.regs.push(fixed(items, VGPR, 0));
        self.args.items = Some(items);
        if self.chip() != Chip::Gfx1201 {
            let wanted = (0..3).filter(|axis| self.group_axes()[*axis]).collect::<Vec<_>>();
            for (at, axis) in (user_sgprs(self.chip()) as u16..).zip(wanted) {
                let reg = self.sgpr(1);
                entry.regs.push(fixed(reg, SGPR, at));
                self.args.groups[axis] = Some(reg);
            }
        }
        let count = self.program.params.len() + self.program.vars.len();
        self.args.pairs = vec![None; count.div_ceil(2)];
        self.args.values = vec![None; count];
        self.levels[0].insts.push(entry);
        Ok(())
    }

    /// Closes the body.
    pub(super) fn leave(mut self) -> Res<Selected> {
        if self.levels.len() != 1 {
            return Err(self.malformed("a loop is not closed".into()));
        }
        self.put(smallvec![Code::new(op::S_ENDPGM, &[])]).flow = Flow::Return;
        let mut insts = std::mem::take(&mut self.levels[0].insts);
        mir::sweep(&mut insts, self.func.vreg_count());
        let (group_axes, item_axes) = (self.group_axes(), self.item_axes());
        let mut func = self.func;
        mir::describe(&insts, &mut func);
        Ok(Selected { func, insts, lds_bytes: self.lds_bytes, group_axes, item_axes })
    }

    /// Which workgroup ids the program reads.
    fn group_axes(&self) -> [bool; 3] {
        ["gidx0", "gidx1", "gidx2"].map(|name| self.has_special(name))
    }

    /// Highest axis of the thread ids that the program reads.
    fn item_axes(&self) -> u32 {
        (1..3).rev().find(|k| self.has_special(["lidx0", "lidx1", "lidx2"][*k as usize])).unwrap_or(0)
    }

    fn has_special(&self, name: &str) -> bool {
        self.uops.iter().any(|u| u.op() == Op::Special && matches!(u.arg(), Arg::Str(s) if s.as_ref() == name))
    }

    /// Value of a Param, Var or Special; made in the body.
    pub(super) fn argument(&mut self, u: &UOp) -> Res<Val> {
        let back = std::mem::replace(&mut self.cur, 0);
        let wanted = self.wanted.take();
        let src = match (u.op(), u.arg()) {
            (Op::Param, Arg::Param(slot, _)) => {
                let index = self.program.params.iter().position(|p| p.slot == *slot);
                let index = index.ok_or_else(|| self.malformed(format!("{u:?} is not among the parameters")))?;
                Src::Part(self.argument_word(index))
            }
            (Op::Var, _) => {
                let index = self.program.vars.iter().position(|v| v == u || v.arg() == u.arg());
                let index = index.ok_or_else(|| self.malformed(format!("{u:?} is not among the variables")))?;
                let word = self.argument_word(self.program.params.len() + index);
                let words = self.words(u.dtype().scalar);
                Src::Part(Part { words, ..word })
            }
            (Op::Special, Arg::Str(name)) => self.special(u, name)?,
            _ => return Err(self.unsupported(u, "no argument")),
        };
        (self.cur, self.wanted) = (back, wanted);
        Ok(smallvec![src])
    }

    /// The `index`-th 64-bit word of the arguments, in scalar registers.
    fn argument_word(&mut self, index: usize) -> Part {
        let pair = index / 2;
        let both = pair * 2 + 1 < self.args.values.len();
        let words = if both { 4 } else { 2 };
        let reg = match self.args.pairs[pair] {
            Some(reg) => reg,
            None => {
                let reg = self.sgpr(words);
                let load = if both { op::S_LOAD_B128 } else { op::S_LOAD_B64 };
                let to = Part { reg, sub: 0, words };
                let at = i64::try_from(16 * pair).unwrap_or(0);
                self.put(smallvec![Code::new(load, &[to.into(), Self::kernarg().into(), at.into()])]);
                self.args.pairs[pair] = Some(reg);
                reg
            }
        };
        Part { reg, sub: if index % 2 == 1 { 2 } else { 0 }, words: 2 }
    }

    fn special(&mut self, u: &UOp, name: &str) -> Res<Src> {
        let axis = name.bytes().last().map_or(3, |c| usize::from(c.wrapping_sub(b'0')));
        if axis > 2 || !(name.starts_with("gidx") || name.starts_with("lidx")) {
            return Err(self.unsupported(u, "no such hardware index"));
        }
        let low = match name.starts_with('g') {
            true => self.group_id(axis)?,
            false => self.item_id(axis)?,
        };
        if u.dtype().scalar.size_bytes() == 8 { self.widen(low, Scalar::U32) } else { Ok(low) }
    }

    fn group_id(&mut self, axis: usize) -> Res<Src> {
        if let Some(known) = self.args.group_ids[axis] {
            return Ok(known);
        }
        let id = match self.args.groups[axis] {
            Some(reg) => Src::Part(Part { reg, sub: 0, words: 1 }),
            None => {
                // gfx12: x in ttmp9, y and z in the halves of ttmp7.
                let ttmp = |n| Operand::Reg(Reg::new(File::Ttmp, n, 1));
                let to = self.s_part(1);
                let code = match axis {
                    0 => Code::new(op::S_MOV_B32, &[to.into(), ttmp(9).into()]),
                    1 => Code::new(op::S_AND_B32, &[to.into(), ttmp(7).into(), Operand::Lit(0xffff).into()]),
                    _ => Code::new(op::S_LSHR_B32, &[to.into(), ttmp(7).into(), 16.into()]),
                };
                self.run(code)?;
                Src::Part(to)
            }
        };
        self.args.group_ids[axis] = Some(id);
        Ok(id)
    }

    fn item_id(&mut self, axis: usize) -> Res<Src> {
        if let Some(known) = self.args.item_ids[axis] {
            return Ok(known);
        }
        // PANIC: `enter` has set it.
        let packed = Src::Part(Part { reg: self.args.items.expect("thread ids at entry"), sub: 0, words: 1 });
        let id = match axis {
            0 => self.v(op::V_AND_B32, &[Src::Bits(0x3ff), packed])?,
            _ => self.v(op::V_BFE_U32, &[packed, Src::Bits(10 * axis as u64), Src::Bits(10)])?,
        };
        self.args.item_ids[axis] = Some(id);
        Ok(id)
    }

    pub(super) fn local(&mut self, u: &UOp) -> Res<()> {
        let Arg::Local(_, len) = u.arg() else { return Err(self.unsupported(u, "no size")) };
        let bytes = (len * u.dtype().scalar.size_bytes()).next_multiple_of(64) as u32;
        self.locals.insert(u.clone(), self.lds_bytes);
        self.lds_bytes += bytes;
        if self.lds_bytes > LDS_BYTES {
            return Err(self.malformed(format!("{} bytes of workgroup memory, {LDS_BYTES} are there", self.lds_bytes)));
        }
        Ok(())
    }

    pub(super) fn barrier(&mut self) -> Res<()> {
        let all = &[(-1).into()]; // the workgroup's barrier
        let codes = match self.chip() {
            Chip::Gfx1201 => vec![Code::new(op::S_BARRIER_SIGNAL, all), Code::new(op::S_BARRIER_WAIT, all)],
            Chip::Gfx1100 | Chip::Gfx942 => vec![Code::new(op::S_BARRIER, &[])],
        };
        self.run_all(codes)?;
        debug_assert!(matches!(self.levels[0].kind, LevelKind::Body));
        Ok(())
    }
}
