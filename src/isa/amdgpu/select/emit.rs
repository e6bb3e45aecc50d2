//! Registers, constants and instructions: the building blocks of the selection rules.

use super::super::{Accepts, File, Inst as Encoded, Kind as SlotKind, NULL, Op, Operand, Reg, Row, op, row_of, ss, vs};
use super::mir::{self, Code, Inst, Opd, Part, SGPR, VGPR};
use super::{CompileError, Res, Select, Src};
use doorbell_codegen::regalloc::{Kind, VReg};
use smallvec::{SmallVec, smallvec};

pub(super) type Codes = SmallVec<[Code; 1]>;

impl Select<'_> {
    // --- registers ---

    pub(crate) fn vgpr(&mut self, words: u8) -> VReg {
        self.func.vreg(mir::class_of(VGPR, words))
    }

    pub(crate) fn sgpr(&mut self, words: u8) -> VReg {
        self.func.vreg(mir::class_of(SGPR, words))
    }

    pub(crate) fn v_part(&mut self, words: u8) -> Part {
        Part { reg: self.vgpr(words), sub: 0, words }
    }

    pub(crate) fn s_part(&mut self, words: u8) -> Part {
        Part { reg: self.sgpr(words), sub: 0, words }
    }

    /// A new lane mask.
    pub(crate) fn mask_part(&mut self) -> Part {
        let words = self.target.mask_words();
        self.s_part(words)
    }

    pub(crate) fn is_scalar_part(&self, part: Part) -> bool {
        mir::class_shape(self.func.class(part.reg)).0 == SGPR
    }

    /// The same for all threads (of masks: all ones or all zeros).
    pub(crate) fn is_uniform(&self, src: Src) -> bool {
        match src {
            Src::Bits(_) => true,
            Src::Part(p) => self.is_scalar_part(p),
            Src::Packed { .. } => false,
        }
    }

    /// The register for the next result.
    pub(crate) fn result(&mut self, words: u8) -> Part {
        match self.wanted.take() {
            Some(p) if p.words == words => p,
            _ => self.v_part(words),
        }
    }

    // --- operands ---

    /// Word `k` of a value; a constant has zeros after its second.
    pub(crate) fn word(&self, src: Src, k: u8) -> Src {
        match src {
            Src::Bits(b) => Src::Bits(b.checked_shr(32 * u32::from(k)).unwrap_or(0) & 0xffff_ffff),
            Src::Part(p) => Src::Part(Part { sub: p.sub + k, words: 1, ..p }),
            Src::Packed { .. } => src,
        }
    }

    /// A 32-bit source.
    pub(crate) fn opd(&self, src: Src) -> Opd {
        match src {
            Src::Part(p) | Src::Packed { word: p, .. } => Opd::Part(p),
            Src::Bits(b) => Opd::Given(Operand::Lit(b as u32)),
        }
    }

    /// A 64-bit integer source: inline constants stay, others go to scalar registers.
    pub(crate) fn opd_wide(&mut self, src: Src) -> Res<Opd> {
        match src {
            Src::Bits(b) if (-16..=64).contains(&(b as i64)) => Ok(Opd::Given(Operand::Int(b as i64))),
            Src::Bits(b) => Ok(Opd::Part(self.const_reg(b, 2, SGPR)?)),
            src => Ok(self.opd(src)),
        }
    }

    /// A double source.
    pub(crate) fn opd_f64(&mut self, src: Src) -> Res<Opd> {
        let Src::Bits(b) = src else { return Ok(self.opd(src)) };
        let short = [0.5f64, 1.0, 2.0, 4.0].iter().any(|f| f64::from_bits(b).abs() == *f) || b == 0;
        let literal = b & 0xffff_ffff == 0 && !self.chip().is_gfx9();
        if short || literal {
            return Ok(Opd::Given(Operand::Float(f64::from_bits(b))));
        }
        Ok(Opd::Part(self.const_reg(b, 2, SGPR)?))
    }

    /// A lane mask as an operand.
    pub(crate) fn opd_mask(&self, src: Src) -> Opd {
        match src {
            Src::Bits(b) => Opd::Given(Operand::Int(if b == 0 { 0 } else { -1 })),
            src => self.opd(src),
        }
    }

    /// A register of a file that holds a constant; made in the body.
    pub(crate) fn const_reg(&mut self, bits: u64, words: u8, file: u8) -> Res<Part> {
        if let Some(reg) = self.consts.get(&(bits, words, file)) {
            return Ok(Part { reg: *reg, sub: 0, words });
        }
        let reg = if file == VGPR { self.vgpr(words) } else { self.sgpr(words) };
        let mov = if file == VGPR { op::V_MOV_B32 } else { op::S_MOV_B32 };
        let codes = (0..words).map(|k| {
            let word = Operand::Lit((bits >> (32 * u32::from(k))) as u32);
            Code::new(mov, &[Part { reg, sub: k, words: 1 }.into(), word.into()])
        });
        let codes: Codes = codes.collect();
        let back = std::mem::replace(&mut self.cur, 0);
        self.put_kind(codes, Kind::Remat);
        self.cur = back;
        self.consts.insert((bits, words, file), reg);
        Ok(Part { reg, sub: 0, words })
    }

    /// The value in vector registers.
    pub(crate) fn in_vgpr(&mut self, src: Src, words: u8) -> Res<Part> {
        match src {
            Src::Part(p) if !self.is_scalar_part(p) => Ok(p),
            Src::Packed { word, .. } => Ok(word),
            Src::Bits(b) => self.const_reg(b, words, VGPR),
            Src::Part(p) => self.copy(p),
        }
    }

    /// A copy of registers; of scalar ones too it is in vector registers.
    pub(crate) fn copy(&mut self, from: Part) -> Res<Part> {
        let mask = self.agreed.contains(&from.reg) || self.is_mask(from);
        let to = if mask { self.mask_part() } else { self.v_part(from.words) };
        self.copy_to(to, Src::Part(from))?;
        Ok(to)
    }

    /// Mutable masks are the only scalar registers that are copied.
    fn is_mask(&self, part: Part) -> bool {
        self.mutable.contains_key(&part.reg) && self.is_scalar_part(part)
    }

    /// Copies a value into registers.
    pub(crate) fn copy_to(&mut self, to: Part, from: Src) -> Res<()> {
        let scalar = self.is_scalar_part(to);
        let (_, have) = mir::class_shape(self.func.class(to.reg));
        let whole_from =
            |p: Part, s: &Self| mir::class_shape(s.func.class(p.reg)) == mir::class_shape(s.func.class(to.reg));
        if scalar {
            let code = Code::new(self.mask_op(op::S_MOV_B32, op::S_MOV_B64), &[to.into(), self.opd_mask(from)]);
            let kind = if matches!(from, Src::Part(_)) { Kind::Copy } else { Kind::Plain };
            self.put_kind(smallvec![code], kind);
            return Ok(());
        }
        for k in 0..to.words {
            let part = Part { sub: to.sub + k, words: 1, ..to };
            let word = self.word(from, k);
            let one = matches!(from, Src::Part(p) if to.words == 1 && have == 1 && whole_from(p, self));
            let code = Code::new(op::V_MOV_B32, &[part.into(), self.opd(word)]);
            self.put_kind(smallvec![code], if one { Kind::Copy } else { Kind::Plain });
        }
        Ok(())
    }

    // --- instructions ---

    /// The operation of a mask's width.
    pub(crate) fn mask_op(&self, one: Op, two: Op) -> Op {
        if self.target.mask_words() == 1 { one } else { two }
    }

    /// Emits operations as one instruction.
    pub(crate) fn put(&mut self, codes: Codes) -> &mut Inst {
        self.put_kind(codes, Kind::Plain)
    }

    fn put_kind(&mut self, mut codes: Codes, kind: Kind) -> &mut Inst {
        for c in &mut codes {
            c.op = super::super::finish::names::on(self.target.chip, c.op);
        }
        let Self { func, defined, target, levels, cur, .. } = self;
        let mut whole = |p: Part| {
            let (_, words) = mir::class_shape(func.class(p.reg));
            words == p.words || defined.insert(p.reg)
        };
        let inst = mir::inst(target.chip, codes, &mut whole).kind(kind);
        let list = &mut levels[*cur].insts;
        list.push(inst);
        // PANIC: one was just pushed.
        list.last_mut().expect("an instruction")
    }

    /// Emits one operation, made encodable first.
    pub(crate) fn run(&mut self, code: Code) -> Res<&mut Inst> {
        let code = self.legal(code)?;
        Ok(self.put(smallvec![code]))
    }

    /// Emits operations that must stay together, each made encodable first.
    pub(crate) fn run_all(&mut self, codes: Vec<Code>) -> Res<&mut Inst> {
        let codes: Codes = codes.into_iter().map(|c| self.legal(c)).collect::<Res<_>>()?;
        Ok(self.put(codes))
    }

    /// An operation on 32-bit sources into a new vector register.
    pub(crate) fn v(&mut self, op: Op, srcs: &[Src]) -> Res<Src> {
        let to = self.v_part(1);
        self.v_to(op, to, srcs)
    }

    /// The last operation of a node's lane: its result goes to the requested register.
    pub(crate) fn fin(&mut self, op: Op, srcs: &[Src]) -> Res<Src> {
        let to = self.result(1);
        self.v_to(op, to, srcs)
    }

    pub(crate) fn v_to(&mut self, op: Op, to: Part, srcs: &[Src]) -> Res<Src> {
        let mut opds: SmallVec<[Opd; 5]> = smallvec![to.into()];
        opds.extend(srcs.iter().map(|s| self.opd(*s)));
        self.run(Code { op, opds, mods: Default::default() })?;
        Ok(Src::Part(to))
    }

    /// A scalar operation into a new scalar register.
    pub(crate) fn s(&mut self, op: Op, srcs: &[Src]) -> Res<Src> {
        let to = self.s_part(1);
        let mut opds: SmallVec<[Opd; 5]> = smallvec![to.into()];
        opds.extend(srcs.iter().map(|s| self.opd(*s)));
        self.run(Code { op, opds, mods: Default::default() })?;
        Ok(Src::Part(to))
    }

    /// Moves constants and scalar registers to other registers until the operation can be encoded.
    pub(crate) fn legal(&mut self, mut code: Code) -> Res<Code> {
        code.op = super::super::finish::names::on(self.target.chip, code.op);
        let mut scalars_too = false;
        loop {
            let Err(error) = row_of(self.target, &self.stand_in(&code)) else { return Ok(code) };
            let salu = code.op.name().starts_with("s_");
            let Some(k) = (1..code.opds.len()).rev().find(|k| self.movable(&code, *k, scalars_too)) else {
                if salu || scalars_too {
                    return Err(CompileError::Encode(format!("{}: {error}", code.op.name())));
                }
                scalars_too = true;
                continue;
            };
            code.opds[k] = match code.opds[k] {
                Opd::Given(Operand::Lit(bits)) if scalars_too => Opd::Part(self.const_reg(bits.into(), 1, VGPR)?),
                Opd::Given(Operand::Lit(bits)) => Opd::Part(self.const_reg(bits.into(), 1, SGPR)?),
                Opd::Given(Operand::Int(v)) => Opd::Part(self.const_reg(v as u64, 1, VGPR)?),
                Opd::Given(Operand::Float(v)) => {
                    Opd::Part(self.const_reg(v.to_bits(), 2, if scalars_too { VGPR } else { SGPR })?)
                }
                Opd::Part(p) => Opd::Part(self.copy(p)?),
                given => given,
            };
        }
    }

    /// Whether an operand can be put into another register to make an operation encodable.
    fn movable(&self, code: &Code, k: usize, scalars_too: bool) -> bool {
        let anywhere = |row: &Row| match row.slots.get(k).map(|s| s.kind) {
            Some(SlotKind::Source { accepts, .. }) => !scalars_too || accepts.contains(Accepts::VGPR),
            Some(SlotKind::Vgpr) => scalars_too,
            _ => false,
        };
        if !code.op.rows(self.chip()).any(anywhere) {
            return false;
        }
        match code.opds[k] {
            Opd::Given(Operand::Lit(_) | Operand::Float(_)) => true,
            Opd::Given(Operand::Int(_)) => scalars_too,
            Opd::Part(p) => scalars_too && self.is_scalar_part(p),
            Opd::Given(_) => false,
        }
    }

    /// The operation with some registers, for a trial encoding.
    fn stand_in(&self, code: &Code) -> Encoded {
        let mut seen: SmallVec<[VReg; 5]> = smallvec![];
        let operands = code.opds.iter().map(|o| match *o {
            Opd::Given(o) => o,
            Opd::Part(p) => {
                let at = seen.iter().position(|r| *r == p.reg).unwrap_or_else(|| {
                    seen.push(p.reg);
                    seen.len() - 1
                });
                let first = 16 * at as u16 + u16::from(p.sub);
                if self.is_scalar_part(p) { ss(first, p.words) } else { vs(first, p.words) }
            }
        });
        let operands = operands.collect();
        Encoded { op: code.op, operands, mods: code.mods, enc: Default::default(), dual: None }
    }

    /// A register for unused results: NULL, or a spare one where there is none.
    pub(crate) fn nowhere(&self) -> Operand {
        if self.chip().is_gfx9() { self.target.mask(mir::SPARE_SGPR) } else { NULL }
    }

    /// The kernel argument pointer: never given out.
    pub(crate) fn kernarg() -> Operand {
        Operand::Reg(Reg::new(File::Sgpr, 0, 2))
    }
}
