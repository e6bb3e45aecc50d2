//! Operands of a decoded instruction: where values are read and written, resolved once.

use super::fault::{R, not_modelled};
use doorbell_ptx::sass::{Instruction, Kind, Role, Value};

/// Where a value is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Src {
    /// 255 is RZ.
    R(u8),
    /// 255 is URZ, on every chip.
    U(u8),
    /// Low and high word; a 32-bit immediate has its bits in the low one, what is longer is extended to 64.
    Imm(u32, u32),
    Const {
        bank: u8,
        offset: i64,
    },
}

/// A source with its modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct In {
    pub src: Src,
    pub neg: bool,
    pub abs: bool,
    pub not: bool,
    /// `.H0_H0`, `.H1_H1`, `.H1`, `.B1`..., `.F32`, or empty.
    pub select: &'static str,
}

/// Where a result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dst {
    R(u8),
    U(u8),
}

/// A predicate that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PDst {
    pub uniform: bool,
    pub index: u8,
}

/// A predicate that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PSrc {
    pub uniform: bool,
    pub index: u8,
    pub not: bool,
}

/// A memory address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub base: u8,
    /// The base has 64 bits.
    pub wide: bool,
    pub scale: u32,
    /// A uniform register is added, of 64 bits for global memory.
    pub uniform: Option<u8>,
    pub offset: i64,
}

/// An instruction whose operands are being looked up.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(pub &'a Instruction);

impl Fields<'_> {
    /// A source; `what` is missing in a form that should have it.
    pub(crate) fn src(self, slot: &str) -> R<In> {
        let Some(operand) = self.0.operand(slot) else {
            return not_modelled(format!("{} without operand {slot}", self.0.form().mnemonic));
        };
        let src = match operand.value {
            Value::Register(r) => Src::R(r.unwrap_or(255)),
            Value::Uniform(u) => Src::U(u.unwrap_or(255)),
            Value::Immediate(bits) => self.immediate(slot, bits),
            Value::Constant { bank, index: None, offset } => Src::Const { bank, offset: offset & 0xffff },
            _ => return not_modelled(format!("operand {slot} of {}", self.0.form().mnemonic)),
        };
        let s = operand.signs;
        Ok(In { src, neg: s.neg, abs: s.abs, not: s.not, select: operand.select })
    }

    /// Halves are in two fields, the first is the high one; doubles have their high word; operands of more than 32 bits
    /// have 64.
    fn immediate(self, slot: &str, bits: u64) -> Src {
        let second = match slot {
            "b" => "b2",
            _ => "c2",
        };
        let field = self.0.form().position(slot, Role::Value).map(|i| &self.0.form().fields[i]);
        match (self.0.get(second, Role::Value), field.map(|f| (f.kind, f.width()))) {
            (Some(low), _) => Src::Imm((bits << 16 | low) as u32, 0),
            (_, Some((Kind::F64High, _))) => Src::Imm(0, bits as u32),
            (_, Some((kind, width @ 33..=64))) => {
                let up = 64 - width;
                let signed = ((bits << up).cast_signed() >> up).cast_unsigned();
                let bits = if kind == Kind::Signed { signed } else { bits };
                Src::Imm(bits as u32, (bits >> 32) as u32)
            }
            _ => Src::Imm(bits as u32, 0),
        }
    }

    /// A source where the form has it, RZ where it does not.
    pub(crate) fn src_or_zero(self, slot: &str) -> R<In> {
        match self.0.operand(slot) {
            Some(_) => self.src(slot),
            None => Ok(In { src: Src::R(255), neg: false, abs: false, not: false, select: "" }),
        }
    }

    pub(crate) fn dst(self) -> R<Dst> {
        match self.0.operand("d").map(|o| o.value) {
            Some(Value::Register(r)) => Ok(Dst::R(r.unwrap_or(255))),
            Some(Value::Uniform(u)) => Ok(Dst::U(u.unwrap_or(255))),
            _ => not_modelled(format!("destination of {}", self.0.form().mnemonic)),
        }
    }

    /// The register of an operand that must be a general one.
    pub(crate) fn register(self, slot: &str) -> R<u8> {
        match self.src(slot)?.src {
            Src::R(r) => Ok(r),
            _ => not_modelled(format!("operand {slot} of {}", self.0.form().mnemonic)),
        }
    }

    /// The register of an operand that must be a uniform one.
    pub(crate) fn uniform(self, slot: &str) -> R<u8> {
        match self.src(slot)?.src {
            Src::U(u) => Ok(u),
            _ => not_modelled(format!("operand {slot} of {}", self.0.form().mnemonic)),
        }
    }

    /// A predicate written; PT where the form has none.
    pub(crate) fn pdst(self, slot: &str) -> PDst {
        match self.0.operand(slot).map(|o| o.value) {
            Some(Value::Predicate(p)) => PDst { uniform: false, index: p.unwrap_or(7) },
            Some(Value::UniformPredicate(p)) => PDst { uniform: true, index: p.unwrap_or(7) },
            _ => PDst { uniform: false, index: 7 },
        }
    }

    /// A predicate read; PT where the form has none.
    pub(crate) fn psrc(self, slot: &str) -> PSrc {
        let always = PSrc { uniform: false, index: 7, not: false };
        let Some(operand) = self.0.operand(slot) else { return always };
        let not = operand.signs.not;
        match operand.value {
            Value::Predicate(p) => PSrc { uniform: false, index: p.unwrap_or(7), not },
            Value::UniformPredicate(p) => PSrc { uniform: true, index: p.unwrap_or(7), not },
            _ => always,
        }
    }

    /// Whether a flag is there and set.
    pub(crate) fn has(self, slot: &str) -> bool {
        self.0.flag(slot, Role::Value)
    }

    /// A modifier's text.
    pub(crate) fn text(self, slot: &str) -> &'static str {
        self.0.modifier(slot)
    }

    /// The bits of a field, 0 where the form has none.
    pub(crate) fn bits(self, slot: &str) -> u64 {
        self.0.get(slot, Role::Value).unwrap_or(0)
    }

    /// The address in a slot: `m`, or `n` of the second.
    pub(crate) fn address(self, slot: &str) -> R<Address> {
        let Some(Value::Address { base, suffix, uniform, offset }) = self.0.operand(slot).map(|o| o.value) else {
            return not_modelled(format!("address of {}", self.0.form().mnemonic));
        };
        let has_base = self.0.form().position(slot, Role::Register).is_some();
        let has_uniform = self.0.form().position(slot, Role::Uniform).is_some();
        let described = self.0.form().name.ends_with('D');
        if described && suffix == ".U32" {
            return not_modelled(format!("{} of a 32-bit register behind a descriptor", self.0.form().mnemonic));
        }
        let scale = match suffix {
            ".X4" => 4,
            ".X8" => 8,
            ".X16" => 16,
            _ => 1,
        };
        Ok(Address {
            base: if has_base { base.unwrap_or(255) } else { 255 },
            wide: suffix == ".64" || suffix.is_empty() && self.0.flag("e", Role::Value),
            scale,
            uniform: if has_uniform { uniform } else { None },
            offset,
        })
    }
}
