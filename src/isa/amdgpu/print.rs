//! Instruction → text, as LLVM's disassembler writes it.

use super::reg::{File, Operand, Reg, SPECIAL};

/// A register as text.
#[must_use]
pub fn reg_text(reg: Reg) -> String {
    let letter = match reg.file {
        File::Vgpr => "v",
        File::Agpr => "a",
        File::Sgpr => "s",
        File::Ttmp => "ttmp",
        file => {
            let name = SPECIAL.iter().find(|n| n.0 == file);
            return name
                .map_or("?", |n| {
                    if n.2.is_empty() || reg.words == 2 {
                        n.1
                    } else if reg.first == 0 {
                        n.2
                    } else {
                        n.3
                    }
                })
                .to_owned();
        }
    };
    match reg.words {
        1 => format!("{letter}{}", reg.first),
        n => format!("{letter}[{}:{}]", reg.first, reg.first + u16::from(n) - 1),
    }
}

/// An operand as text, without what depends on its place.
#[must_use]
pub fn operand_text(operand: &Operand) -> String {
    match operand {
        Operand::Reg(reg) => reg_text(*reg),
        Operand::Int(value) => value.to_string(),
        Operand::Float(value) => format!("{value:?}"),
        Operand::Lit(bits) => format!("{bits:#x}"),
        Operand::Off => "off".to_owned(),
        Operand::Label(n) => format!("L{n}"),
    }
}
