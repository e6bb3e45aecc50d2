//! Building blocks of selection: operands, and arithmetic forms chosen by the kinds of their operands.

use super::far::Place;
use crate::ptx::{Opcode, Pos, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::context::Unit;
use crate::sass::compile::mir::{
    Block, Code, FOUR, Mach, Nature, ONE, PRED, Pred, TWO, Template, Term, Val, Wide, Word, class_of,
};
use crate::sass::compile::optimise::facts::{Known, RegisterFacts, SHARED_START, bits_of};
use crate::sass::compile::read::call::Signatures;
use crate::sass::compile::read::flat::{Body, Flat, Item, Opd, Reg, Symbol};
use crate::sass::{Form, Modifier, SmArch, mods, op};
use doorbell_elf::cubin::ChipFacts;
use std::cell::OnceCell;

/// Offset of the parameters in bank 0.
pub(crate) const PARAMS: u32 = ChipFacts::SM_90.arch().param_base();

/// A 32-bit source with its sign modifiers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Src {
    pub val: Val,
    pub neg: bool,
    pub abs: bool,
}

impl Src {
    pub(crate) const ZERO: Src = Src { val: Val::Imm(0), neg: false, abs: false };

    pub(crate) fn negated(self) -> Src {
        Src { neg: !self.neg, ..self }
    }
}

impl From<Val> for Src {
    fn from(val: Val) -> Src {
        Src { val, neg: false, abs: false }
    }
}

impl From<Word> for Src {
    fn from(w: Word) -> Src {
        Val::Word(w).into()
    }
}

impl From<u32> for Src {
    fn from(i: u32) -> Src {
        Val::Imm(i).into()
    }
}

/// Forms of one operation, by the position of the operand that is not a register.
pub(super) struct Family {
    r: Template,
    i: Option<Template>,
    c: Option<Template>,
    i3: Option<Template>,
    c3: Option<Template>,
    /// Immediates are floats, so a sign can be folded into them.
    float: bool,
}

impl Family {
    /// Whether it adds its first and its last source, which may be exchanged.
    fn sums(&self) -> bool {
        self.i.is_none() && self.c3.is_some()
    }
}

macro_rules! families {
    ($($(#[$doc:meta])* $name:ident: $r:ident $i:tt $c:tt $i3:tt $c3:tt $float:literal $mods:tt;)*) => {$(
        pub(super) fn $name() -> &'static Family {
            static FAMILY: Family = Family {
                r: families!(@of $r $mods),
                i: families!(@ $i $mods),
                c: families!(@ $c $mods),
                i3: families!(@ $i3 $mods),
                c3: families!(@ $c3 $mods),
                float: $float,
            };
            &FAMILY
        }
    )*};
    (@ _ $mods:tt) => { None };
    (@ $name:ident $mods:tt) => { Some(families!(@of $name $mods)) };
    (@of $name:ident ($($slot:ident::$value:ident),*)) => { Template::of(op::$name)$(.with(mods::$slot::$value))* };
}

families! {
    iadd3: IADD3_R IADD3_I IADD3_C _ _ false ();
    /// Signed, as are the next three.
    imad: IMAD_LOR IMAD_LOI IMAD_LOC IMAD_LOI3 IMAD_LOC3 false (sg::NONE);
    imad_wide: IMAD_WIDER IMAD_WIDEI IMAD_WIDEC _ IMAD_WIDEC3 false (sg::NONE);
    imad_hi: IMAD_HIR IMAD_HII IMAD_HIC _ _ false (sg::NONE);
    isetp: ISETP_R ISETP_I ISETP_C _ _ false (sg::NONE);
    lop3: LOP3_R LOP3_I LOP3_C _ _ false ();
    shf: SHF_R SHF_I SHF_C SHF_I3 SHF_C3 false ();
    prmt: PRMT_R PRMT_I PRMT_C PRMT_I3 PRMT_C3 false ();
    sel: SEL_R SEL_I SEL_C _ _ false ();
    vimnmx: VIMNMX_R VIMNMX_I VIMNMX_C _ _ false ();
    lea: LEA_R LEA_I LEA_C _ _ false ();
    bmsk: BMSK_R BMSK_I BMSK_C _ _ false ();
    sgxt: SGXT_R SGXT_I SGXT_C _ _ false ();
    fmul: FMUL_R FMUL_I FMUL_C _ _ true (scale::NONE);
    ffma: FFMA_R FFMA_I FFMA_C FFMA_I3 FFMA_C3 true ();
    fsetp: FSETP_R FSETP_I FSETP_C _ _ true ();
    fmnmx: FMNMX_R FMNMX_I FMNMX_C _ _ true ();
    /// Its second source is in slot c.
    fadd: FADD_R _ _ FADD_I3 FADD_C3 true ();
}

/// State of selection.
pub(super) struct Build<'a> {
    pub code: Code,
    pub facts: &'a RegisterFacts,
    pub body: &'a Body<'a>,
    /// Types of the text's registers.
    pub types: &'a [Type],
    /// Warp-uniform registers; computed on first use.
    uniform: OnceCell<Vec<bool>>,
    /// Constants that are kept in registers from the start, by bank, offset and width.
    constants: hashbrown::HashMap<(u8, u32, bool), Word>,
    /// Pairs of bank words that are in registers since an instruction of the current block.
    pairs: hashbrown::HashMap<(u8, u32), (usize, Word)>,
    loops: OnceCell<bool>,
    pub entry: Vec<Mach>,
    /// The text's carry flag (.cc).
    pub carry: Option<Word>,
    /// The virtual register for each register of the text, once used.
    words: Vec<Option<Word>>,
    tuples: Vec<Option<Word>>,
    /// Block to which instructions are appended.
    pub block: usize,
    /// The first item of the straight-line code being selected.
    pub straight_from: usize,
    /// Guard of the current instruction.
    pub guard: Option<Pred>,
    pub pos: Pos,
    /// The stack pointer, made at the start.
    pub stack: Word,
    pub uses_stack: bool,
    pub barriers: u32,
    /// The module's functions, and the number of the current one.
    pub functions: &'a Signatures,
    pub number: Option<u32>,
    /// The target chip. Nearly everything is selected for sm_90 and translated afterwards.
    pub chip: SmArch,
    /// Functions that are called.
    pub calls: Vec<u32>,
    /// Places that need code for the ends of the range.
    pub far: Vec<Place>,
    /// Whether shared memory addresses contain the block's rank in its cluster; computed on first use.
    ranked: OnceCell<bool>,
    /// That rank, and addresses with it, computed at the start.
    pub rank: Option<Word>,
    pub shared: hashbrown::HashMap<u32, Word>,
    /// The next uniform register to use.
    pub uniforms: u64,
    fault: Option<String>,
}

impl<'a> Build<'a> {
    pub(crate) fn new(unit: &'a Unit<'_, '_>) -> Build<'a> {
        let (facts, body): (&RegisterFacts, &Body) = (&unit.facts, &unit.body);
        let types = &body.regs[..];
        let mut code = Code::default();
        let stack = code.vreg(ONE);
        code.blocks.push(Block { ops: vec![], term: Term::Exit });
        code.order.push(0);
        Build {
            code,
            facts,
            body,
            types,
            uniform: OnceCell::new(),
            constants: Default::default(),
            pairs: Default::default(),
            loops: OnceCell::new(),
            entry: vec![],
            carry: None,
            words: vec![None; types.len()],
            tuples: vec![None; facts.tuples.len()],
            block: 0,
            straight_from: 0,
            guard: None,
            pos: Pos::default(),
            stack,
            uses_stack: false,
            barriers: 0,
            functions: &unit.ctx.functions,
            number: unit.number,
            chip: unit.ctx.chip,
            calls: vec![],
            far: vec![],
            ranked: OnceCell::new(),
            rank: None,
            shared: Default::default(),
            uniforms: 0,
            fault: None,
        }
    }

    /// Whether shared memory addresses contain this block's rank in its cluster.
    pub(super) fn is_ranked(&self) -> bool {
        !self.chip.is_before_hopper()
            && *self.ranked.get_or_init(|| crate::sass::compile::select::knows_blocks(self.body))
    }

    /// Whether a register is warp-uniform.
    pub(crate) fn is_uniform(&self, r: Reg) -> bool {
        self.uniform.get_or_init(|| crate::sass::compile::optimise::uniform::uniform(self.body, self.facts))[r as usize]
    }

    /// Where the chip's parameters begin in bank 0. Registers hold this offset of a parameter; operands that name the
    /// bank hold sm_90's, which is translated with the instruction.
    pub(crate) fn param_base(&self) -> u32 {
        self.chip.arch().param_base()
    }

    /// A local variable's offset from the stack pointer.
    pub(super) fn frame_offset(&mut self, at: u32) -> u32 {
        self.uses_stack = true;
        self.body.outgoing_bytes + at
    }

    /// An error at the current instruction.
    pub(crate) fn no<T>(&self, i: &Flat, why: &str) -> Result<T, AsmError> {
        Err(AsmError::new(i.pos, format!("{}: {why}", i.name())))
    }

    /// Returns and clears the first field that could not be set.
    pub(super) fn take_fault(&mut self) -> Option<String> {
        self.fault.take()
    }

    pub(crate) fn one(&mut self) -> Word {
        self.code.vreg(ONE)
    }

    pub(crate) fn two(&mut self) -> Word {
        self.code.vreg(TWO)
    }

    pub(crate) fn four(&mut self) -> Word {
        self.code.vreg(FOUR)
    }

    pub(crate) fn pred(&mut self) -> Word {
        self.code.vreg(PRED)
    }

    /// Appends an instruction with the guard of the current PTX instruction.
    #[inline]
    pub(crate) fn push(&mut self, m: Mach) {
        self.always(m);
        if self.guard.is_some()
            && let Some(m) = self.code.blocks[self.block].ops.last_mut()
        {
            m.guard(self.guard);
        }
    }

    /// Appends an instruction without a guard.
    #[inline]
    pub(crate) fn always(&mut self, m: Mach) {
        if let Some(e) = m.fault() {
            self.fault.get_or_insert(e.to_string());
        }
        // Written in place, because it is large.
        let ops = &mut self.code.blocks[self.block].ops;
        ops.push(m);
        if let Some(m) = ops.last_mut() {
            m.pos = self.pos;
        }
    }

    /// Runs `f` without a guard, for results that are read only by instructions with the same guard.
    pub(crate) fn unguarded<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let guard = self.guard.take();
        let out = f(self);
        self.guard = guard;
        out
    }

    // --- operands ---

    /// The virtual register of a register of the text.
    #[inline]
    pub(super) fn home(&mut self, r: Reg) -> Word {
        match self.words[r as usize] {
            Some(w) => w,
            None => self.new_home(r),
        }
    }

    /// The same on first use.
    fn new_home(&mut self, of: Reg) -> Word {
        let r = self.facts.root(of);
        if let Some(w) = self.words[r as usize] {
            self.words[of as usize] = Some(w);
            return w;
        }
        let word = match self.facts.member[r as usize] {
            Some(m) => {
                let words = self.facts.tuples[m.tuple as usize];
                let code = &mut self.code;
                let make = || code.vreg(class_of(words));
                self.tuples[m.tuple as usize].get_or_insert_with(make).plus(m.sub)
            }
            None => self.code.vreg(match self.types[r as usize] {
                Type::Pred => PRED,
                t if t.bits() == 128 => FOUR,
                t if t.bits() == 64 => TWO,
                _ => ONE,
            }),
        };
        self.words[r as usize] = Some(word);
        self.words[of as usize] = Some(word);
        word
    }

    /// A destination of up to 64 bits.
    pub(super) fn dest(&mut self, i: &Flat, o: &Opd) -> Result<Word, AsmError> {
        match o {
            Opd::Reg(r) => {
                // Its own register, even if its readers look through it as a copy.
                if self.facts.root(*r) != *r {
                    return Ok(match self.types[*r as usize].bits() {
                        128 => self.four(),
                        64 => self.two(),
                        _ => self.one(),
                    });
                }
                Ok(self.home(*r))
            }
            Opd::Nothing => Ok(self.one()),
            _ => self.no(i, "such a destination is not assembled"),
        }
    }

    /// A 32-bit source; the upper bits of smaller ones are undefined.
    pub(crate) fn src(&mut self, i: &Flat, o: &Opd, ty: Type) -> Result<Val, AsmError> {
        Ok(match o {
            Opd::Reg(r) => match self.facts.known[*r as usize] {
                Known::Imm(v) => Val::Imm(v as u32),
                Known::Param(at) => Val::Const(0, PARAMS + at),
                Known::Shared(at) => self.shared_value(at),
                _ => Val::Word(self.home(*r)),
            },
            Opd::Imm(v) => Val::Imm(bits_of(*v, ty) as u32),
            Opd::Symbol(Symbol::Shared(at), o) => {
                self.shared_value(SHARED_START.wrapping_add(*at).wrapping_add(*o as u32))
            }
            Opd::Symbol(Symbol::Local(at), o) => {
                let (d, stack) = (self.one(), self.stack);
                let by = self.frame_offset(*at).wrapping_add(*o as u32);
                self.unguarded(|b| b.alu(iadd3(), d, [stack.into(), by.into(), Src::ZERO], |m| m));
                Val::Word(d)
            }
            Opd::Symbol(Symbol::Constant(at), o) => Val::Imm(at.wrapping_add(*o as u32)),
            // Parameters of kernels are in bank 0; `ld.param` through a register finds them there.
            Opd::Symbol(Symbol::Param(at, _), o) => Val::Imm((self.param_base() + at).wrapping_add(*o as u32)),
            Opd::Symbol(Symbol::Function(f), 0) => Val::Imm(crate::sass::compile::read::call::address(*f) as u32),
            _ => return self.no(i, "such an operand is not assembled"),
        })
    }

    /// A 64-bit source.
    pub(crate) fn wide(&mut self, i: &Flat, o: &Opd, ty: Type) -> Result<Wide, AsmError> {
        Ok(match o {
            Opd::Reg(r) => match self.facts.known[*r as usize] {
                Known::Imm(v) => Wide::Imm(v),
                Known::Param(at) => Wide::Const(0, PARAMS + at),
                Known::Shared(at) if !self.is_ranked() => Wide::Imm(u64::from(at)),
                Known::Shared(at) => {
                    let low = self.shared_value(at);
                    Wide::Pair(self.low_word(low))
                }
                _ => Wide::Pair(self.home(*r)),
            },
            Opd::Imm(v) => Wide::Imm(bits_of(*v, ty)),
            Opd::Symbol(Symbol::Global(slot), 0) => Wide::Const(4, *slot),
            Opd::Symbol(Symbol::Global(slot), o) => {
                let d = self.two();
                let sum = o.cast_unsigned();
                self.unguarded(|b| b.add64(d, Wide::Const(4, *slot), Wide::Imm(sum)));
                Wide::Pair(d)
            }
            Opd::Symbol(..) => match self.src(i, o, Type::U32)? {
                Val::Imm(v) => Wide::Imm(u64::from(v)),
                low => Wide::Pair(self.low_word(low)),
            },
            _ => return self.no(i, "such an operand is not assembled"),
        })
    }

    /// A pair with this low word and a zero high word.
    fn low_word(&mut self, low: Val) -> Word {
        let d = self.two();
        self.unguarded(|b| {
            b.mov(d, low);
            b.mov(d.plus(1), Val::Imm(0));
        });
        d
    }

    /// A predicate as an operand; the negation of another predicate is read from that one.
    pub(crate) fn truth(&mut self, r: Reg) -> Pred {
        match self.origin(&Opd::Reg(r)).map(|f| (f.op, &*f.opds)) {
            Some((Opcode::Not, [_, Opd::Reg(s)])) => Pred::of(self.home(*s)).not(),
            _ => Pred::of(self.home(r)),
        }
    }

    /// A predicate operand.
    pub(super) fn pred_src(&mut self, i: &Flat, o: &Opd) -> Result<Pred, AsmError> {
        match o {
            Opd::Reg(r) => Ok(self.truth(*r)),
            Opd::Not(r) => Ok(self.truth(*r).not()),
            Opd::Imm(v) => Ok(Pred { word: None, not: bits_of(*v, Type::B32) == 0 }),
            Opd::Special(name) if name.trim_start_matches('%') == "is_explicit_cluster" => {
                let p = self.pred();
                self.unguarded(|b| {
                    let explicit = b.in_word(Val::Const(0, crate::sass::compile::select::EXPLICIT));
                    b.compare(p, mods::cmp::EQ, false, explicit.into(), 1.into());
                });
                Ok(Pred::of(p))
            }
            _ => self.no(i, "such a predicate is not assembled"),
        }
    }

    /// The value in a register.
    pub(crate) fn held(&mut self, v: Val) -> Option<Word> {
        match v {
            Val::Word(w) => Some(w),
            Val::Imm(0) => None,
            v => Some(self.in_word(v)),
        }
    }

    /// The value in a register, including zero.
    pub(super) fn in_word(&mut self, v: Val) -> Word {
        match v {
            Val::Word(w) => w,
            Val::Const(bank, at) => self.constant(bank, at, false),
            v => {
                let d = self.one();
                self.unguarded(|b| b.mov(d, v));
                d
            }
        }
    }

    /// A constant of a bank that is loaded into registers at the start.
    fn constant(&mut self, bank: u8, at: u32, wide: bool) -> Word {
        if let Some(w) = self.constants.get(&(bank, at, wide)) {
            return *w;
        }
        let d = if wide { self.two() } else { self.one() };
        let block = std::mem::take(&mut self.code.blocks[self.block].ops);
        self.unguarded(|b| match wide {
            true => b.mov64(d, Wide::Const(bank, at)),
            false => b.mov(d, Val::Const(bank, at)),
        });
        let made = std::mem::replace(&mut self.code.blocks[self.block].ops, block);
        self.entry.extend(made.into_iter().map(|m| m.nature(Nature::Constant)));
        self.constants.insert((bank, at, wide), d);
        d
    }

    /// A pair of bank words, loaded at its first use in the block: loading it at the start would occupy two registers
    /// in all code before. If the code has no loop, later blocks find it at the end of the first.
    fn constant_here(&mut self, bank: u8, at: u32) -> Word {
        let block = if self.block != 0 && !self.goes_back() { 0 } else { self.block };
        if let Some((_, w)) = self.pairs.get(&(bank, at)).filter(|p| p.0 == block) {
            return *w;
        }
        let d = self.two();
        let now = std::mem::replace(&mut self.block, block);
        self.unguarded(|b| b.mov64(d, Wide::Const(bank, at)));
        self.block = now;
        self.pairs.insert((bank, at), (block, d));
        d
    }

    /// Whether the text has a backward branch.
    fn goes_back(&self) -> bool {
        *self.loops.get_or_init(|| {
            let mut seen = vec![false; self.body.labels as usize];
            self.body.items.iter().any(|item| match item {
                Item::Label(l) => {
                    seen[*l as usize] = true;
                    false
                }
                Item::Inst(i) if i.op == Opcode::Bra => {
                    matches!(i.opds.first(), Some(Opd::Symbol(Symbol::Label(l), _)) if seen[*l as usize])
                }
                Item::Inst(i) => i.op == Opcode::Brx,
            })
        })
    }

    /// Whether a pair of bank words is not in registers yet.
    pub(super) fn takes_constant(&self, bank: u8, at: u32) -> bool {
        !self.constants.contains_key(&(bank, at, true))
    }

    /// An immediate that is put into a register at the start.
    pub(crate) fn immediate(&mut self, n: u32) -> Word {
        if let Some(w) = self.constants.get(&(u8::MAX, n, false)) {
            return *w;
        }
        let d = self.one();
        let block = std::mem::take(&mut self.code.blocks[self.block].ops);
        self.unguarded(|b| b.mov(d, Val::Imm(n)));
        let made = std::mem::replace(&mut self.code.blocks[self.block].ops, block);
        self.entry.extend(made.into_iter().map(|m| m.nature(Nature::Constant)));
        self.constants.insert((u8::MAX, n, false), d);
        d
    }

    /// The only definition of a register, if the registers that it reads have only one definition as well.
    pub(crate) fn origin(&self, o: &Opd) -> Option<&'a Flat<'a>> {
        let Opd::Reg(r) = o else { return None };
        let r = self.facts.root(*r) as usize;
        if self.facts.writes[r] != 1 {
            return None;
        }
        let Item::Inst(i) = self.body.items.get(self.facts.def[r] as usize)? else { return None };
        let stable = |o: &Opd| match o {
            Opd::Reg(r) => self.facts.writes[*r as usize] == 1,
            Opd::Imm(_) => true,
            _ => false,
        };
        (i.guard.is_none() && i.opds[1..].iter().all(stable)).then_some(i)
    }

    /// [`Build::origin`] of a register that has no other reader.
    pub(super) fn only_use(&self, o: &Opd) -> Option<&'a Flat<'a>> {
        let Opd::Reg(r) = o else { return None };
        if self.facts.reads[*r as usize] == 1 { self.origin(o) } else { None }
    }

    /// [`Build::only_use`] of a register that is written in the same straight-line code.
    pub(super) fn only_use_here(&self, o: &Opd) -> Option<&'a Flat<'a>> {
        self.only_use(o).filter(|_| self.is_written_here(o))
    }

    /// [`Build::origin`] of a register that is written in the same straight-line code.
    pub(super) fn origin_here(&self, o: &Opd) -> Option<&'a Flat<'a>> {
        self.origin(o).filter(|_| self.is_written_here(o))
    }

    fn is_written_here(&self, o: &Opd) -> bool {
        matches!(o, Opd::Reg(r) if self.facts.def[*r as usize] as usize >= self.straight_from)
    }

    /// The value in two registers.
    pub(super) fn in_pair(&mut self, v: Wide) -> Word {
        match v {
            Wide::Pair(w) => w,
            Wide::Const(bank, at) if self.chip.is_before_hopper() => self.constant(bank, at, true),
            Wide::Const(bank, at) => self.constant_here(bank, at),
            v => {
                let d = self.two();
                self.unguarded(|b| b.mov64(d, v));
                d
            }
        }
    }

    // --- arithmetic ---

    pub(crate) fn mov(&mut self, d: Word, v: Val) {
        let m = match v {
            Val::Word(w) => {
                let whole = crate::sass::compile::mir::width(self.code.classes[w.reg().0 as usize]) == 1
                    && crate::sass::compile::mir::width(self.code.classes[d.reg().0 as usize]) == 1;
                Mach::new(op::MOV_R).w("d", d).r("b", w).nature(if whole { Nature::Copy } else { Nature::Plain })
            }
            Val::Imm(0) => Mach::new(op::MOV_R).w("d", d).nature(Nature::Constant),
            Val::Imm(i) => Mach::new(op::MOV_I).w("d", d).n("b", u64::from(i)).nature(Nature::Constant),
            Val::Const(bank, offset) => Mach::new(op::MOV_C).w("d", d).c("b", bank, offset).nature(Nature::Constant),
        };
        let m = if self.guard.is_some() { m.nature(Nature::Plain) } else { m };
        self.push(m);
    }

    pub(super) fn mov64(&mut self, d: Word, v: Wide) {
        self.mov(d, v.low());
        self.mov(d.plus(1), v.high());
        self.glue(2);
        let at = self.code.blocks[self.block].ops.len();
        let ops = &mut self.code.blocks[self.block].ops[at - 2..];
        let whole = |w: Word, classes: &[doorbell_codegen::regalloc::Class]| {
            crate::sass::compile::mir::width(classes[w.reg().0 as usize]) == 2
        };
        let nature = match v {
            _ if self.guard.is_some() => Nature::Plain,
            Wide::Pair(s) if whole(s, &self.code.classes) && whole(d, &self.code.classes) => Nature::Copy,
            _ => Nature::Plain,
        };
        ops.iter_mut().for_each(|o| o.nature = nature);
    }

    /// Glues the last `n` instructions, so that they are one for the allocator.
    pub(super) fn glue(&mut self, n: usize) {
        let ops = &mut self.code.blocks[self.block].ops;
        let at = ops.len() - n + 1;
        ops[at..].iter_mut().for_each(|o| o.glued = true);
    }

    /// `d = f(a, b, c)`: chooses the form; operands that no form takes are moved to registers.
    pub(crate) fn alu(&mut self, f: &Family, d: Word, mut s: [Src; 3], finish: impl FnOnce(Mach) -> Mach) {
        let template = self.template(f, &mut s);
        let mut m = template.reading(&s);
        template.write(&mut m, d);
        self.push(finish(m));
    }

    /// The instruction without its destination.
    pub(super) fn arith(&mut self, f: &Family, mut s: [Src; 3]) -> Mach {
        self.template(f, &mut s).reading(&s)
    }

    /// The form for these operands; operands that no form takes are moved to registers.
    fn template<'f>(&mut self, f: &'f Family, s: &mut [Src; 3]) -> &'f Template {
        let [a, b, c] = s;
        let fixed = |v: &Src| !matches!(v.val, Val::Word(_) | Val::Imm(0));
        if f.sums() && fixed(a) && !fixed(c) {
            std::mem::swap(a, c);
        }
        if fixed(a) {
            a.val = Val::Word(self.in_word(a.val));
        }
        if f.float {
            (*b, *c) = (folded(*b), folded(*c));
        }
        if fixed(b) && fixed(c) {
            let keep_b = f.i3.is_none() && f.c3.is_none();
            let v = if keep_b { &mut *c } else { &mut *b };
            v.val = Val::Word(self.in_word(v.val));
        }
        let pick = |v: &Src, i: &'f Option<Template>, c: &'f Option<Template>| match v.val {
            Val::Imm(n) if n != 0 => i.as_ref().filter(|_| !v.neg && !v.abs),
            Val::Const(..) => c.as_ref(),
            _ => None,
        };
        let mut form = pick(b, &f.i, &f.c);
        if fixed(b) && form.is_none() {
            b.val = Val::Word(self.in_word(b.val));
        }
        if fixed(c) {
            form = pick(c, &f.i3, &f.c3);
            if form.is_none() {
                c.val = Val::Word(self.in_word(c.val));
            }
        }
        form.unwrap_or(&f.r)
    }

    /// Three inputs through a truth table.
    pub(super) fn lop(&mut self, d: Word, s: [Src; 3], table: u8) {
        self.alu(lop3(), d, s, |m| m.n("lut", u64::from(table)).p("pp", Pred::TRUE.not()));
    }

    /// `d = a + b` of 64 bits.
    pub(super) fn add64(&mut self, d: Word, a: Wide, b: Wide) {
        self.sum64(d, [a, b], [false, false]);
    }

    /// `d = ±a ± b` of 64 bits; at most one operand is negated.
    pub(super) fn sum64(&mut self, d: Word, s: [Wide; 2], neg: [bool; 2]) {
        let (mut a, mut b) = ((s[0], neg[0]), (s[1], neg[1]));
        if !matches!(a.0, Wide::Pair(_)) && matches!(b.0, Wide::Pair(_)) {
            (a, b) = (b, a);
        }
        if let (Wide::Imm(v), true) = b {
            b = (Wide::Imm(v.wrapping_neg()), false);
        }
        if !matches!(a.0, Wide::Pair(_)) {
            a.0 = Wide::Pair(self.in_pair(a.0));
        }
        let carry = self.pred();
        let src = |v: Val, neg: bool| Src { val: v, neg, abs: false };
        let low = self.arith(iadd3(), [src(a.0.low(), a.1), src(b.0.low(), b.1), Src::ZERO]);
        self.push(low.w("d", d).w("pu", carry));
        let high = self.arith(iadd3(), [src(a.0.high(), a.1), src(b.0.high(), b.1), Src::ZERO]);
        let high = high.w("d", d.plus(1)).m(mods::x::X).p("pp", Pred::of(carry)).p("pq", Pred::TRUE.not());
        self.push(high.glued());
    }

    /// A shift or funnel shift: direction and type as the table writes them.
    pub(crate) fn shift(&mut self, d: Word, s: [Src; 3], dir: Modifier, ty: Modifier, hi: bool) {
        self.alu(shf(), d, s, |m| m.m(dir).m(ty).mark(if hi { mods::hi::HI } else { mods::hi::NONE }));
    }

    /// Bytes of two words.
    pub(crate) fn permute(&mut self, d: Word, a: Src, select: u32, c: Src) {
        self.alu(prmt(), d, [a, select.into(), c], |m| m);
    }

    /// `d = p ? a : b`.
    pub(crate) fn select(&mut self, d: Word, p: Pred, a: Src, b: Src) {
        let (mut p, mut a, mut b) = (p, a, b);
        if !matches!(a.val, Val::Word(_) | Val::Imm(0)) && matches!(b.val, Val::Word(_) | Val::Imm(0)) {
            (p, a, b) = (p.not(), b, a);
        }
        self.alu(sel(), d, [a, b, Src::ZERO], |m| m.p("pp", p));
    }

    /// `p = a cmp b` of 32-bit integers, and with another predicate.
    pub(crate) fn compare(&mut self, d: Word, cmp: Modifier, signed: bool, a: Src, b: Src) {
        let m = self.arith(isetp(), [a, b, Src::ZERO]).w("pu", d).m(cmp).mark(if signed {
            mods::sg::NONE
        } else {
            mods::sg::U32
        });
        self.push(m.p("pp", Pred::TRUE));
    }

    /// `p = a cmp b` of 64-bit integers.
    pub(super) fn compare64(&mut self, d: Word, cmp: Modifier, signed: bool, a: Wide, b: Wide) {
        let low = self.pred();
        let m = self.arith(isetp(), [a.low().into(), b.low().into(), Src::ZERO]);
        self.push(m.w("pu", low).m(cmp).m(mods::sg::U32).p("pp", Pred::TRUE));
        let m = self.arith(isetp(), [a.high().into(), b.high().into(), Src::ZERO]);
        let m = m.w("pu", d).m(cmp).mark(if signed { mods::sg::NONE } else { mods::sg::U32 }).m(mods::x::EX);
        self.push(m.p("pp", Pred::TRUE).p("pq", Pred::of(low)));
    }

    /// A logic function of three predicates by its truth table (index `4a + 2b + c`).
    pub(super) fn plop(&mut self, d: Word, s: [Pred; 3], table: u8) {
        let m = Mach::new(op::PLOP3_P).w("pu", d).n("lut", u64::from(table));
        // Its operands may be in either predicate file: number and file share a field.
        let m = s.into_iter().zip(["pa", "pb", "pc"]).fold(m, |m, (p, slot)| m.p(slot, p));
        self.push(m);
    }

    /// One float conversion or function of one source.
    pub(crate) fn unary(&mut self, form: &'static Form, d: Word, s: Src, finish: impl FnOnce(Mach) -> Mach) {
        let m = Mach::new(form);
        let m = match self.held(s.val) {
            Some(w) => m.r("b", w),
            None => m,
        };
        self.push(finish(m.w("d", d).neg("b", s.neg).abs("b", s.abs)));
    }
}

/// Folds a sign into a constant.
fn folded(s: Src) -> Src {
    match s.val {
        Val::Imm(v) if s.neg || s.abs => {
            let v = if s.abs { v & 0x7fff_ffff } else { v };
            let v = if s.neg { v ^ 0x8000_0000 } else { v };
            if v == 0x8000_0000 { s } else { Val::Imm(v).into() }
        }
        _ => s,
    }
}
