//! The contents of a row of the instruction table.

use super::Arch;
use iced_x86::Code;

/// One encoding of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// iced-x86's name of it.
    pub code: Code,
    /// Kind of each register operand: x y z vector, X Y Z vector index, k mask, d q w b general, m memory only.
    pub kinds: &'static [u8],
    /// Index of the operand that may be memory; 9: none.
    pub mem: u8,
}

impl Form {
    /// No such encoding.
    pub(crate) const NONE: Form = Form { code: Code::INVALID, kinds: b"", mem: 9 };

    /// A general-register form.
    pub(crate) const fn gpr(code: Code, kinds: &'static [u8], mem: u8) -> Form {
        Form { code, kinds, mem }
    }
}

/// Width of a vector operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Width {
    /// 16 bytes, also for scalars.
    X,
    /// 32 bytes.
    Y,
    /// 64 bytes.
    Z,
}

impl Width {
    /// Bytes of the register.
    pub(crate) const fn bytes(self) -> u16 {
        match self {
            Width::X => 16,
            Width::Y => 32,
            Width::Z => 64,
        }
    }

    /// The narrowest register that holds that many bytes (64 at most).
    pub(crate) const fn for_bytes(bytes: u16) -> Width {
        match bytes {
            0..=16 => Width::X,
            17..=32 => Width::Y,
            _ => Width::Z,
        }
    }

    /// The operand kind of a register of this width.
    pub(crate) const fn kind(self) -> u8 {
        match self {
            Width::X => b'x',
            Width::Y => b'y',
            Width::Z => b'z',
        }
    }
}

/// An operation's encodings: VEX xmm, VEX ymm, EVEX xmm, EVEX ymm, EVEX zmm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row(pub [Form; 5]);

impl Row {
    /// The encoding for a width, and a shorter one that suffices if no operand needs EVEX. VEX-only operations (masks,
    /// general registers) have one encoding on both feature levels.
    pub(crate) fn form(&self, arch: Arch, width: Width) -> Option<(Form, Code)> {
        let vex = match width {
            Width::X => self.0[0],
            Width::Y => self.0[1],
            Width::Z => Form::NONE,
        };
        let evex = self.0[2 + width as usize];
        let some = |f: Form| f.code != Code::INVALID;
        match arch {
            Arch::Avx512 if some(evex) => {
                // A VEX twin has the same operands in the same places.
                let twin = if vex.kinds == evex.kinds { vex.code } else { Code::INVALID };
                Some((evex, twin))
            }
            _ => Some((vex, Code::INVALID)).filter(|f| some(f.0)),
        }
    }
}
