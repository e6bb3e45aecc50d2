//! Matrix multiplication of a warp (`mma`), and loads of its fragments.

use super::build::Build;
use crate::ptx::{Opcode, Space, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Val, Word};
use crate::sass::compile::read::flat::{Flat, Opd};
use crate::sass::{SmArch, mods, op};

impl Build<'_> {
    pub(super) fn matrix(&mut self, i: &Flat) -> Result<(), AsmError> {
        match i.op {
            Opcode::Mma => self.multiply_matrices(i),
            Opcode::Ldmatrix => {
                let n = [1usize, 2, 4].into_iter().find(|n| i.has(&format!("x{n}"))).unwrap_or(1);
                let place = self.place(i, &i.opds[1], false, 1 << 23)?;
                let trans = if i.has("trans") { mods::md::MT88 } else { mods::md::M88 };
                let (d, copies) = self.fragment_dest(i, &i.opds[0], n as u8)?;
                let m = Mach::new(op::LDSM_R).m(trans).m([
                    mods::n::NONE,
                    mods::n::NONE,
                    mods::n::_2,
                    mods::n::NONE,
                    mods::n::_4,
                ][n]);
                let m = m.at(place.base.map(|b| b.0), 1, place.offset).wn("d", d, n as u8);
                if i.space().is_some_and(|s| !matches!(s, Space::Shared | Space::SharedCta)) {
                    return self.no(i, "fragments are loaded from shared memory");
                }
                self.push(m);
                self.copy_out(i, copies, d)
            }
            Opcode::Stmatrix => {
                let n = [1usize, 2, 4].into_iter().find(|n| i.has(&format!("x{n}"))).unwrap_or(1);
                let place = self.place(i, &i.opds[0], false, 1 << 23)?;
                let trans = if i.has("trans") { mods::md::MT88 } else { mods::md::M88 };
                let data = self.stored(i, &i.opds[1], Type::B32, n as u8)?;
                let m = Mach::new(op::STSM_R)
                    .m(trans)
                    .m([mods::n::NONE, mods::n::NONE, mods::n::_2, mods::n::NONE, mods::n::_4][n])
                    .at_place(&place);
                self.push(match data {
                    Some(w) => m.rn("b", w, n as u8).effect(),
                    None => m.effect(),
                });
                Ok(())
            }
            Opcode::Movmatrix => {
                let (d, a) = (self.dest(i, &i.opds[0])?, self.src(i, &i.opds[1], Type::B32)?);
                let a = self.in_word(a);
                self.push(Mach::new(op::MOVM_R).m(mods::md::MT88).w("d", d).r("a", a).effect());
                Ok(())
            }
            _ => self.no(i, "not assembled"),
        }
    }

    /// Registers for a result: the text's if they are neighbours, else a tuple that is copied afterwards.
    pub(super) fn fragment_dest<'o>(
        &mut self,
        i: &Flat,
        o: &'o Opd<'o>,
        words: u8,
    ) -> Result<(Word, &'o [Opd<'o>]), AsmError> {
        let v = match o {
            Opd::Vector(v) => v,
            o => std::slice::from_ref(o),
        };
        if v.len() != usize::from(words) {
            return self.no(i, "this number of registers is not assembled");
        }
        if let Some(w) = self.neighbours(v, Type::B32, words) {
            return Ok((w, &[]));
        }
        let d = match words {
            1 => self.one(),
            2 => self.two(),
            _ => self.four(),
        };
        Ok((d, v))
    }

    pub(super) fn copy_out(&mut self, i: &Flat, to: &[Opd], from: Word) -> Result<(), AsmError> {
        for (k, o) in to.iter().enumerate() {
            let d = self.dest(i, o)?;
            self.mov(d, Val::Word(from.plus(k as u8)));
        }
        Ok(())
    }

    fn multiply_matrices(&mut self, i: &Flat) -> Result<(), AsmError> {
        let types: smallvec::SmallVec<[Type; 4]> = i.types().collect();
        let [d_ty, a_ty, b_ty, _] = types[..] else { return self.no(i, "four types are expected") };
        let shape = i.words().find(|w| w.starts_with("m16n8") || w.starts_with("m8n8")).unwrap_or_default();
        let sparse = i.has("sp") || i.has("sp::ordered_metadata");
        if sparse {
            return self.multiply_sparse(i, shape, [d_ty, a_ty, b_ty]);
        }
        let (form, sh, words) = match (shape, a_ty) {
            ("m16n8k8", Type::F16 | Type::Bf16) => (op::HMMA_D, mods::sh::_1688, [2, 1]),
            ("m16n8k16", Type::F16 | Type::Bf16) => (op::HMMA_D, mods::sh::_16816, [4, 2]),
            ("m16n8k4", Type::Tf32) => (op::HMMA_D, mods::sh::_1684, [2, 1]),
            ("m16n8k8", Type::Tf32) => (op::HMMA_D, mods::sh::_1688, [4, 2]),
            ("m8n8k16", Type::U8 | Type::S8) if self.chip == SmArch::Sm120 => {
                return self.multiply_eight_rows(i, typed(i, Mach::new(op::IMMA_D), [d_ty, a_ty, b_ty]));
            }
            ("m8n8k16", Type::U8 | Type::S8) => (op::IMMA_D, mods::sh::_8816, [1, 1]),
            ("m16n8k16", Type::U8 | Type::S8) => (op::IMMA_D, mods::sh::_16816, [2, 1]),
            ("m16n8k32", Type::U8 | Type::S8) => (op::IMMA_D, mods::sh::_16832, [4, 2]),
            ("m16n8k16" | "m16n8k32", Type::E4m3 | Type::E5m2) => return self.multiply_eights(i, [d_ty, a_ty, b_ty]),
            ("m16n8k32" | "m16n8k64", Type::U4 | Type::S4) => return self.multiply_nibbles(i, [a_ty, b_ty], 16),
            ("m8n8k32", Type::U4 | Type::S4) => return self.multiply_nibbles(i, [a_ty, b_ty], 8),
            ("m8n8k128", Type::B1) => return self.multiply_bits(i, mods::sh::_88128),
            ("m16n8k128", Type::B1) => return self.multiply_bits(i, mods::sh::_168128),
            ("m16n8k256", Type::B1) => return self.multiply_bits(i, mods::sh::_168256),
            (_, Type::F64) => return self.multiply_doubles_of(i),
            _ => return self.no(i, "matrices of this shape and type are not assembled"),
        };
        let out = if d_ty == Type::F16 || sh == mods::sh::_8816 { 2 } else { 4 };
        let m = typed(i, Mach::new(form).m(sh), [d_ty, a_ty, b_ty]);
        self.multiply_held(i, m, words, out)
    }

    /// Sparse: half of A's elements are stored, with metadata words that say which.
    fn multiply_sparse(&mut self, i: &Flat, shape: &str, types: [Type; 3]) -> Result<(), AsmError> {
        let (form, sh, words) = match (shape, types[1]) {
            ("m16n8k16", Type::F16 | Type::Bf16) => (op::HMMA_SP, mods::sh::_16816, [2, 2]),
            ("m16n8k32", Type::F16 | Type::Bf16) => (op::HMMA_SP, mods::sh::_16832, [4, 4]),
            ("m16n8k8", Type::Tf32) => (op::HMMA_SP, mods::sh::_1688, [2, 2]),
            ("m16n8k16", Type::Tf32) => (op::HMMA_SP, mods::sh::_16816, [4, 4]),
            ("m16n8k32", Type::U8 | Type::S8) => (op::IMMA_SP, mods::sh::_16832, [2, 2]),
            ("m16n8k64", Type::U8 | Type::S8) => (op::IMMA_SP, mods::sh::_16864, [4, 4]),
            _ => return self.no(i, "sparse matrices of this shape and type are not assembled"),
        };
        let Some(selector) = i.opds.get(5).and_then(|o| self.constant_of(o)).filter(|s| *s < 4) else {
            return self.no(i, "the selector of the metadata is no constant");
        };
        let metadata = self.src(i, &i.opds[4], Type::B32)?;
        let metadata = self.in_word(metadata);
        let out = if types[0] == Type::F16 { 2 } else { 4 };
        let m = typed(i, Mach::new(form).m(sh), types).r("e", metadata).n("id", selector);
        self.multiply_held(i, m, words, out)
    }

    /// A multiply with fragments as in the text: number of words of A and B, and of the result.
    fn multiply_held(&mut self, i: &Flat, m: Mach, words: [u8; 2], out: u8) -> Result<(), AsmError> {
        let a = self.stored(i, &i.opds[1], Type::B32, words[0])?;
        let b = self.stored(i, &i.opds[2], Type::B32, words[1])?;
        let c = if self.is_zero(&i.opds[3]) { None } else { self.stored(i, &i.opds[3], Type::B32, out)? };
        let (d, copies) = self.fragment_dest(i, &i.opds[0], out)?;
        let mut m = m.wn("d", d, out);
        for (slot, w, n) in [("a", a, words[0]), ("b", b, words[1]), ("c", c, out)] {
            if let Some(w) = w {
                m = m.rn(slot, w, n);
            }
        }
        self.push(m.effect());
        self.copy_out(i, copies, d)
    }
}

/// A multiply with its types: of the sum, of A and of B.
fn typed(i: &Flat, m: Mach, [d_ty, a_ty, b_ty]: [Type; 3]) -> Mach {
    let st = match a_ty {
        Type::U8 | Type::S8 => {
            let at = if a_ty.is_signed() { mods::at::S8 } else { mods::at::U8 };
            let bt = if b_ty.is_signed() { mods::bt::S8 } else { mods::bt::U8 };
            let m = m.m(at).m(bt);
            return if i.has("satfinite") { m.m(mods::sat::SAT) } else { m };
        }
        Type::Bf16 => mods::st::BF16,
        Type::Tf32 => mods::st::TF32,
        _ => mods::st::NONE,
    };
    m.m(if d_ty == Type::F16 { mods::dt::F16 } else { mods::dt::F32 }).m(st)
}
