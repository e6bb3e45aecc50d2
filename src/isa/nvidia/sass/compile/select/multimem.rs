//! `multimem`: accesses to memory of which each of several devices has a copy, by the address that stands for all.
//!
//! A store or a reduction goes to every copy: the instructions are those of other global memory. A load combines the
//! words of all copies: LDGMC. Orders and scopes are assembled as ptxas 13.5 does.

use super::build::Build;
use super::memory::{Addressing, STG, scope, size_text};
use crate::ptx::{Space, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::Mach;
use crate::sass::compile::read::flat::Flat;
use crate::sass::{Modifier, mods, op};

impl Build<'_> {
    pub(super) fn multimem(&mut self, i: &Flat) -> Result<(), AsmError> {
        if !matches!(i.space(), None | Some(Space::Global)) {
            return self.no(i, "only global memory has copies");
        }
        if i.has("release") {
            self.release_before(i);
        }
        match () {
            () if i.has("ld_reduce") => self.load_reduced(i),
            () if i.has("st") => self.store_to_all(i),
            () => self.reduce_in_all(i),
        }
    }

    fn load_reduced(&mut self, i: &Flat) -> Result<(), AsmError> {
        let ty = i.ty();
        let bytes = ty.bits() as usize / 8 * i.lanes();
        let Some((form, element)) = element(ty, i.lanes()) else {
            return self.no(i, "elements of this type are not assembled");
        };
        let operation = i.words().find_map(|w| {
            Some(match w {
                "add" if i.has("acc::f32") => mods::op::F32ADD,
                "add" => mods::op::ADD,
                "min" => mods::op::MIN,
                "max" => mods::op::MAX,
                "and" => mods::op::AND,
                "or" => mods::op::OR,
                "xor" => mods::op::XOR,
                _ => return None,
            })
        });
        let Some(operation) = operation else { return self.no(i, "this operation is not assembled") };
        let sub_word = ty.bits() < 32;
        let (d, words) = self.load_dest(i, ty, bytes, sub_word)?;
        let m = Mach::new(form).m(mods::e::E).m(operation).m(element).m(mods::sem::STRONG_SYS);
        let m = self.accessed(i, m, 1, Addressing::GLOBAL)?.wide_base("m").wn("d", d, words);
        self.push(m.effect());
        if i.has("acquire") {
            self.push(Mach::new(op::CCTL_ALL).effect());
        }
        self.load_rest(i, d, ty, sub_word)
    }

    fn store_to_all(&mut self, i: &Flat) -> Result<(), AsmError> {
        let ty = i.ty();
        let bytes = ty.bits() as usize / 8 * i.lanes();
        if !(4..=16).contains(&bytes) {
            return self.no(i, "4 to 16 bytes are stored");
        }
        let words = bytes.div_ceil(4) as u8;
        let data = self.stored(i, &i.opds[1], ty, words)?;
        let strong = i.has("relaxed") || i.has("release");
        let m = STG.mach().mark(if strong { scope(i) } else { mods::sem::NONE });
        let m = self.accessed(i, m, 0, Addressing::GLOBAL)?.mark(size_text(bytes, false)).effect();
        self.push(match data {
            Some(w) => m.rn("b", w, words),
            None => m,
        });
        Ok(())
    }

    fn reduce_in_all(&mut self, i: &Flat) -> Result<(), AsmError> {
        let ty = i.ty();
        let bytes = ty.bits() as usize / 8 * i.lanes();
        if ![4, 8, 16].contains(&bytes) {
            return self.no(i, "4, 8 or 16 bytes are reduced");
        }
        let words = bytes as u8 / 4;
        let data = self.stored(i, &i.opds[1], ty, words)?;
        let float = ty.is_float() || matches!(ty, Type::F16x2 | Type::Bf16x2);
        let m = Mach::new(if float { op::REDG_FR } else { op::REDG_R });
        let m = self.accessed(i, m, 0, Addressing::atomic(true))?;
        let m = self.operation(i, m.m(mods::e::E).m(mods::ev::NONE).m(scope(i)), ty)?.effect();
        self.push(match data {
            Some(w) => m.rn("b", w, words),
            None => m,
        });
        Ok(())
    }
}

/// The form of LDGMC for so many elements of a type, and its name of them.
fn element(ty: Type, lanes: usize) -> Option<(&'static crate::sass::Form, Modifier)> {
    let whole = |size| (lanes == 1).then_some((op::LDGMC_U, size));
    let float = |size| Some((op::LDGMC_FU, size));
    match (ty, lanes) {
        (Type::U32 | Type::B32, _) => whole(mods::sz::_32),
        (Type::S32, _) => whole(mods::sz::S32),
        (Type::U64 | Type::B64, _) => whole(mods::sz::_64),
        (Type::S64, _) => whole(mods::sz::S64),
        (Type::F32, 1) => float(mods::sz::F32_RN),
        (Type::F32, 2) => float(mods::sz::F32X2_RN),
        (Type::F32, 4) => float(mods::sz::F32X4_RN),
        (Type::F64, 1) => float(mods::sz::F64_RN),
        (Type::F16, 2) | (Type::F16x2, 1) => float(mods::sz::F16X2_RN),
        (Type::F16, 4) | (Type::F16x2, 2) => float(mods::sz::F16X4_RN),
        (Type::F16, 8) | (Type::F16x2, 4) => float(mods::sz::F16X8_RN),
        (Type::Bf16, 2) | (Type::Bf16x2, 1) => float(mods::sz::BF16X2_RN),
        (Type::Bf16, 4) | (Type::Bf16x2, 2) => float(mods::sz::BF16X4_RN),
        (Type::Bf16, 8) | (Type::Bf16x2, 4) => float(mods::sz::BF16X8_RN),
        _ => None,
    }
}
