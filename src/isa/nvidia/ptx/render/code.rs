//! Instructions under construction: registers by class and number, mnemonics as text.

use super::{Render, Src};
use doorbell_uop::Scalar;

/// Classes of registers.
pub(super) const P: u8 = 0;
pub(super) const H: u8 = 1;
pub(super) const R: u8 = 2;
pub(super) const RD: u8 = 3;
pub(super) const F: u8 = 4;
pub(super) const FD: u8 = 5;
pub(super) const CLASSES: usize = 6;

/// A register: class and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Reg {
    pub class: u8,
    pub n: u32,
}

/// The class that holds a lane of a type.
pub(super) const fn class_of(t: Scalar) -> u8 {
    match t {
        Scalar::Bool => P,
        Scalar::F16 | Scalar::BF16 => H,
        Scalar::F32 => F,
        Scalar::F64 => FD,
        Scalar::I64 | Scalar::U64 => RD,
        _ => R,
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Opd {
    Reg(Reg),
    Int(i64),
    F32(u32),
    F64(u64),
    Vector(Vec<Opd>),
    /// `[register + bytes]`
    Address(Reg, i64),
    /// `[param]`
    Param(usize),
    /// The address of a parameter.
    ParamAddress(usize),
    /// `[tensor map, {column, row}]`
    Tensor(Reg, Vec<Opd>),
    /// `_`
    Nothing,
    /// `%tid.x`
    Special(&'static str),
    /// The kernel's shared memory.
    Shared,
    Label(u32),
}

impl From<Reg> for Opd {
    fn from(r: Reg) -> Opd {
        Opd::Reg(r)
    }
}

/// An instruction or a label.
#[derive(Clone, Debug)]
pub(super) struct Code {
    /// Mnemonic with modifiers; empty: a label, its number in `ins`.
    pub name: &'static str,
    /// The guard: runs if the predicate is set (or, if `true`, not set).
    pub guard: Option<(bool, Reg)>,
    pub outs: Vec<Reg>,
    /// The results are written `{a, b}`.
    pub tuple: bool,
    pub ins: Vec<Opd>,
}

impl Code {
    pub(crate) fn label(l: u32) -> Code {
        Code { name: "", guard: None, outs: vec![], tuple: false, ins: vec![Opd::Label(l)] }
    }

    pub(super) fn is_label(&self) -> bool {
        self.name.is_empty()
    }

    /// Whether its results are accumulated into registers that it also reads.
    fn adds(&self) -> bool {
        self.name.starts_with("wgmma.mma_async")
    }

    /// Calls `f` with each register that is read.
    pub(crate) fn reads(&self, f: &mut impl FnMut(Reg)) {
        fn walk(o: &Opd, f: &mut impl FnMut(Reg)) {
            match o {
                Opd::Reg(r) | Opd::Address(r, _) => f(*r),
                Opd::Vector(v) => v.iter().for_each(|o| walk(o, f)),
                Opd::Tensor(r, v) => {
                    f(*r);
                    v.iter().for_each(|o| walk(o, f));
                }
                _ => {}
            }
        }
        if let Some((_, p)) = self.guard {
            f(p);
        }
        if self.adds() {
            self.outs.iter().for_each(|r| f(*r));
        }
        self.ins.iter().for_each(|o| walk(o, f));
    }
}

impl Render<'_> {
    pub(super) fn reg(&mut self, class: u8) -> Reg {
        let n = self.made[usize::from(class)];
        self.made[usize::from(class)] += 1;
        Reg { class, n }
    }

    pub(super) fn label(&mut self) -> u32 {
        self.labels += 1;
        self.labels - 1
    }

    /// Emits an instruction.
    pub(super) fn run(&mut self, name: &'static str, outs: &[Reg], ins: Vec<Opd>) {
        self.code.push(Code { name, guard: None, outs: outs.to_vec(), tuple: false, ins });
    }

    /// Emits an instruction with one new register as its result.
    pub(super) fn op(&mut self, name: &'static str, class: u8, ins: Vec<Opd>) -> Src {
        let to = self.reg(class);
        self.run(name, &[to], ins);
        Src::Reg(to)
    }

    pub(super) fn branch(&mut self, guard: Option<(bool, Reg)>, to: u32) {
        // All threads of a block take the same path.
        self.code.push(Code { name: "bra.uni", guard, outs: vec![], tuple: false, ins: vec![Opd::Label(to)] });
    }

    /// A lane as an operand of its type. Half types and bools have no immediate form.
    pub(super) fn opd(&mut self, t: Scalar, s: Src) -> Opd {
        match (s, t) {
            (Src::Reg(r), _) => r.into(),
            (Src::Bits(_), Scalar::Bool | Scalar::F16 | Scalar::BF16) => self.held(t, s).into(),
            (Src::Bits(b), Scalar::F32) => Opd::F32(b as u32),
            (Src::Bits(b), Scalar::F64) => Opd::F64(b),
            (Src::Bits(b), _) => Opd::Int(b.cast_signed()),
        }
    }

    /// A lane in a register.
    pub(super) fn held(&mut self, t: Scalar, s: Src) -> Reg {
        if let Src::Reg(r) = s {
            return r;
        }
        self.copy(t, s)
    }

    /// A lane in a new register.
    pub(super) fn copy(&mut self, t: Scalar, s: Src) -> Reg {
        let to = self.reg(class_of(t));
        self.mov(t, to, s);
        to
    }

    pub(super) fn mov(&mut self, t: Scalar, to: Reg, s: Src) {
        let (name, from) = match (class_of(t), s) {
            (P, Src::Bits(b)) => ("mov.pred", Opd::Int(-i64::from(b != 0))),
            (H, Src::Bits(b)) => ("mov.b16", Opd::Int((b & 0xffff).cast_signed())),
            (class, s) => {
                let name = match class {
                    P => "mov.pred",
                    H => "mov.b16",
                    R => "mov.b32",
                    RD => "mov.b64",
                    F => "mov.f32",
                    _ => "mov.f64",
                };
                (name, self.opd(t, s))
            }
        };
        self.run(name, &[to], vec![from]);
    }
}
