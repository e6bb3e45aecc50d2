//! Matrix multiplication of a warp, and loads of its fragments.

use super::super::AsmError;
use super::super::build::Build;
use super::super::flat::{Flat, Opd};
use super::super::mir::{Mach, Val, Word};
use crate::isa::ptx::{Opcode, Space, Type};
use crate::isa::sass::op;

impl Build<'_> {
    pub(super) fn matrix(&mut self, i: &Flat) -> Result<(), AsmError> {
        match i.op {
            Opcode::Mma => self.multiply_matrices(i),
            Opcode::Ldmatrix => {
                let n = [1usize, 2, 4].into_iter().find(|n| i.has(&format!("x{n}"))).unwrap_or(1);
                let place = self.place(i, &i.opds[1], false, 1 << 23)?;
                let trans = if i.has("trans") { ".MT88" } else { ".M88" };
                let (d, copies) = self.fragment_dest(i, &i.opds[0], n as u8)?;
                let m = Mach::new(op::LDSM_R).m("md", trans).m("n", [".", "", ".2", ".", ".4"][n]);
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
                let trans = if i.has("trans") { ".MT88" } else { ".M88" };
                let data = self.stored(i, &i.opds[1], Type::B32, n as u8)?;
                let m = Mach::new(op::STSM_R).m("md", trans).m("n", ["", "", ".2", "", ".4"][n]).at_place(&place);
                self.push(match data {
                    Some(w) => m.rn("b", w, n as u8).effect(),
                    None => m.effect(),
                });
                Ok(())
            }
            Opcode::Movmatrix => {
                let (d, a) = (self.dest(i, &i.opds[0])?, self.src(i, &i.opds[1], Type::B32)?);
                let a = self.in_word(a);
                self.push(Mach::new(op::MOVM_R).m("md", ".MT88").w("d", d).r("a", a).effect());
                Ok(())
            }
            _ => self.no(i, "not assembled"),
        }
    }

    /// Registers for a result: the text's where they are neighbours, else a tuple, and what to copy from it.
    pub(super) fn fragment_dest<'o>(&mut self, i: &Flat, o: &'o Opd, words: u8) -> Result<(Word, &'o [Opd]), AsmError> {
        let v = match o {
            Opd::Vector(v) => v.as_slice(),
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
        let [d_ty, a_ty, _, _] = types[..] else { return self.no(i, "four types are expected") };
        let shape = i.words().find(|w| w.starts_with("m16n8") || w.starts_with("m8n8")).unwrap_or_default();
        if i.has("sp") || i.words().any(|w| w.starts_with("sp::")) {
            return self.no(i, "sparse matrices are not assembled");
        }
        let (form, sh, words) = match (shape, a_ty) {
            ("m16n8k8", Type::F16 | Type::Bf16) => (op::HMMA_D, ".1688", [2, 1]),
            ("m16n8k16", Type::F16 | Type::Bf16) => (op::HMMA_D, ".16816", [4, 2]),
            ("m16n8k4", Type::Tf32) => (op::HMMA_D, ".1684", [2, 1]),
            ("m16n8k8", Type::Tf32) => (op::HMMA_D, ".1688", [4, 2]),
            ("m16n8k16", Type::U8 | Type::S8) => (op::IMMA_D, ".16816", [2, 1]),
            ("m16n8k32", Type::U8 | Type::S8) => (op::IMMA_D, ".16832", [4, 2]),
            _ => return self.no(i, "matrices of this shape and type are not assembled"),
        };
        let out = if d_ty == Type::F16 { 2 } else { 4 };
        let a = self.stored(i, &i.opds[1], Type::B32, words[0])?;
        let b = self.stored(i, &i.opds[2], Type::B32, words[1])?;
        let zero = matches!(&i.opds[3], Opd::Vector(v) if v.iter().all(|o| self.constant_of(o) == Some(0)));
        let c = if zero { None } else { self.stored(i, &i.opds[3], Type::B32, out)? };
        let (d, copies) = self.fragment_dest(i, &i.opds[0], out)?;
        let mut m = Mach::new(form).m("sh", sh).wn("d", d, out);
        if form == op::HMMA_D {
            let st = match a_ty {
                Type::Bf16 => ".BF16",
                Type::Tf32 => ".TF32",
                _ => "",
            };
            m = m.m("dt", if d_ty == Type::F16 { ".F16" } else { ".F32" }).m("st", st);
        } else {
            let text = |t: Type| if t.is_signed() { ".S8" } else { ".U8" };
            m = m.m("at", text(a_ty)).m("bt", text(types[2]));
            m = if i.has("satfinite") { m.m("sat", ".SAT") } else { m };
        }
        for (slot, w, n) in [("a", a, words[0]), ("b", b, words[1]), ("c", c, out)] {
            if let Some(w) = w {
                m = m.rn(slot, w, n);
            }
        }
        self.push(m.effect());
        self.copy_out(i, copies, d)
    }
}
