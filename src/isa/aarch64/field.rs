//! What an instruction's operands are: where each stands in the 32-bit word, which values it takes, and how it is
//! written.
//!
//! Source: Arm Architecture Reference Manual for A-profile (DDI 0487), C4 and C6 to C7: fields by their bit positions.

/// How a vector register's lanes are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    /// 16 bytes.
    B16,
    /// 8 halfwords.
    H8,
    /// 4 words.
    S4,
    /// 2 doublewords.
    D2,
    /// 8 bytes: the low half.
    B8,
    /// 4 halfwords: the low half.
    H4,
    /// 2 words: the low half.
    S2,
}

impl Arrangement {
    const fn suffix(self) -> &'static str {
        match self {
            Arrangement::B16 => "16b",
            Arrangement::H8 => "8h",
            Arrangement::S4 => "4s",
            Arrangement::D2 => "2d",
            Arrangement::B8 => "8b",
            Arrangement::H4 => "4h",
            Arrangement::S2 => "2s",
        }
    }
}

/// One operand of a row. The number is the lowest bit of its field, or the logarithm of an element's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// A 64-bit general register; 31 is zero.
    X(u8),
    /// A 32-bit general register; 31 is zero.
    W(u8),
    /// A 64-bit general register or the stack pointer.
    Xsp(u8),
    /// A 32-bit general register or the stack pointer.
    Wsp(u8),
    /// A vector register.
    V(u8, Arrangement),
    /// The low 1, 2, 4, 8 or 16 bytes of a vector register, by the logarithm.
    F(u8, u8),
    /// A vector register of which the next field picks an element.
    Elem(u8, u8),
    /// Index of an element in `imm5`.
    Index5(u8),
    /// Index of an element in `imm4`.
    Index4(u8),
    /// A list of one vector register.
    List(u8),
    /// The register that an address starts from.
    Base(u8),
    /// Unsigned offset of an address in units of the access.
    Offset(u8),
    /// Signed offset of an address in bytes.
    Offset9,
    /// An unsigned number: lowest bit, width.
    Imm(u8, u8),
    /// 0 or 12: a shift of an immediate.
    Lsl12,
    /// 0, 16, 32 or 48: a shift of an immediate.
    Lsl16,
    /// Left shift of the last register operand: lowest bit, width.
    Lsl(u8, u8),
    /// Left shift of lanes.
    ShiftLeft(u8),
    /// Right shift of lanes.
    ShiftRight(u8),
    /// A condition.
    Condition(u8),
    /// The condition in a branch's name.
    BranchCondition,
    /// Distance in bytes: lowest bit, width.
    Relative(u8, u8),
    /// Text without a field: a register that the row fixes, or zero.
    Text(&'static str),
}

/// Names of conditions, by number.
const CONDITIONS: [&str; 16] =
    ["eq", "ne", "hs", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le", "al", "nv"];

impl Field {
    /// Lowest bit and width.
    #[must_use]
    pub const fn place(self) -> (u8, u8) {
        use Field::*;
        match self {
            X(at) | W(at) | Xsp(at) | Wsp(at) | V(at, _) | F(at, _) | Elem(at, _) | List(at) | Base(at) => (at, 5),
            Index5(log) => (17 + log, 4 - log),
            Index4(log) => (11 + log, 4 - log),
            Offset(_) => (10, 12),
            Offset9 => (12, 9),
            Imm(at, bits) | Relative(at, bits) | Lsl(at, bits) => (at, bits),
            Lsl12 => (22, 1),
            Lsl16 => (21, 2),
            ShiftLeft(log) | ShiftRight(log) => (16, 3 + log),
            Condition(at) => (at, 4),
            BranchCondition => (0, 4),
            Text(_) => (0, 0),
        }
    }

    /// The bits of the word that it owns.
    #[must_use]
    pub const fn mask(self) -> u32 {
        let (at, bits) = self.place();
        (((1u64 << bits) - 1) << at) as u32
    }

    /// Whether it is a register: its value comes from the allocator.
    #[must_use]
    pub const fn is_register(self) -> bool {
        use Field::*;
        matches!(self, X(_) | W(_) | Xsp(_) | Wsp(_) | V(..) | F(..) | Elem(..) | List(_) | Base(_))
    }

    /// A value in place; `None`: it does not fit.
    #[must_use]
    pub fn pack(self, v: i64) -> Option<u32> {
        use Field::*;
        let (at, bits) = self.place();
        let units = |by: i64| (v % by == 0).then_some(v / by);
        let raw = match self {
            Offset(log) => units(1 << log)?,
            Lsl12 => units(12)?,
            Lsl16 => units(16)?,
            Relative(..) => units(4)?,
            ShiftRight(log) => (8 << log) - v,
            _ => v,
        };
        let fits = match self {
            Offset9 | Relative(..) => (-(1 << (bits - 1))..1 << (bits - 1)).contains(&raw),
            _ => (0..1i64 << bits).contains(&raw),
        };
        fits.then_some(((raw as u32) << at) & self.mask())
    }

    /// The value in a word.
    #[must_use]
    pub fn unpack(self, word: u32) -> i64 {
        use Field::*;
        let (at, bits) = self.place();
        let raw = i64::from((word & self.mask()) >> at);
        let signed = || if raw >> (bits - 1) & 1 == 1 { raw - (1 << bits) } else { raw };
        match self {
            Offset(log) => raw << log,
            Offset9 => signed(),
            Relative(..) => signed() * 4,
            Lsl12 => raw * 12,
            Lsl16 => raw * 16,
            ShiftRight(log) => (8 << log) - raw,
            _ => raw,
        }
    }

    /// Whether the text continues the operand before it.
    pub(crate) const fn continues(self, v: i64) -> bool {
        use Field::*;
        match self {
            Index5(_) | Index4(_) | Offset(_) | Offset9 | BranchCondition => true,
            Lsl12 | Lsl16 | Lsl(..) => v == 0,
            _ => false,
        }
    }

    /// The operand as an assembler reads it.
    pub(crate) fn text(self, v: i64) -> String {
        use Field::*;
        let letter = |log: u8| ["b", "h", "s", "d", "q"][usize::from(log) % 5];
        match self {
            X(_) if v == 31 => "xzr".into(),
            W(_) if v == 31 => "wzr".into(),
            Xsp(_) if v == 31 => "sp".into(),
            Wsp(_) if v == 31 => "wsp".into(),
            Base(_) if v == 31 => "[sp".into(),
            X(_) | Xsp(_) => format!("x{v}"),
            W(_) | Wsp(_) => format!("w{v}"),
            V(_, a) => format!("v{v}.{}", a.suffix()),
            F(_, log) => format!("{}{v}", letter(log)),
            Elem(_, log) => format!("v{v}.{}", letter(log)),
            Index5(_) | Index4(_) => format!("[{v}]"),
            List(_) => format!("{{ v{v}.16b }}"),
            Base(_) => format!("[x{v}"),
            Offset(_) | Offset9 if v == 0 => "]".into(),
            Offset(_) | Offset9 => format!(", #{v}]"),
            Imm(..) | ShiftLeft(_) | ShiftRight(_) | Relative(..) => format!("#{v}"),
            Lsl12 | Lsl16 | Lsl(..) if v == 0 => String::new(),
            Lsl12 | Lsl16 | Lsl(..) => format!("lsl #{v}"),
            Condition(_) | BranchCondition => CONDITIONS[v as usize & 15].into(),
            Text(t) => t.into(),
        }
    }
}
