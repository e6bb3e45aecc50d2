//! Matrix multiplies of a warpgroup: `wgmma`.
//!
//! They run beside the threads. `wgmma.fence` is WARPGROUP.ARRIVE, a multiply HGMMA, QGMMA, IGMMA or BGMMA, the last multiply before
//! `commit_group` carries the group's mark, `wait_group` is WARPGROUP.DEPBAR. Sums stand in neighbouring registers from a multiple of eight on, descriptors
//! in four neighbouring uniform registers. That no register of a multiply on its way is given to something else is [`flight`](super::super::flight)'s.

use super::super::AsmError;
use super::super::build::Build;
use super::super::flat::{Flat, Opd};
use super::super::mir::{Mach, Pred, Val, Word, class_of};
use crate::ptx::Type;
use crate::sass::{Form, is_group_multiply, op};

/// URZ.
const NO_UNIFORM: u64 = 63;

/// The uniform predicate that says whether sums are added to what is there.
const ADDS: u64 = 1;

/// What a multiply's name says.
struct Shape {
    form: [&'static Form; 2],
    columns: u32,
    depth: u32,
    /// Sums in halves, two in a register.
    packed: bool,
    a: Type,
    b: Type,
}

impl Shape {
    fn of(i: &Flat) -> Option<Shape> {
        let mut types = i.types();
        let (d, a, b) = (types.next()?, types.next()?, types.next()?);
        let (columns, depth) = i.words().find_map(|w| w.strip_prefix("m64n")?.split_once('k'))?;
        let (columns, depth) = (columns.parse().ok()?, depth.parse().ok()?);
        let form = match (d, a, b, depth) {
            (Type::F16 | Type::F32, Type::F16, Type::F16, 16) => [op::HGMMA_SS, op::HGMMA_RS],
            (Type::F32, Type::Bf16, Type::Bf16, 16) | (Type::F32, Type::Tf32, Type::Tf32, 8) => {
                [op::HGMMA_SS, op::HGMMA_RS]
            }
            (Type::F16 | Type::F32, Type::E4m3 | Type::E5m2, Type::E4m3 | Type::E5m2, 32) => {
                [op::QGMMA_SS, op::QGMMA_RS]
            }
            (Type::S32, Type::S8 | Type::U8, Type::S8 | Type::U8, 32) => [op::IGMMA_SS, op::IGMMA_RS],
            (Type::S32, Type::B1, Type::B1, 256) => [op::BGMMA_SS, op::BGMMA_SS],
            _ => return None,
        };
        let known = matches!(columns, 8..=256) && u32::is_multiple_of(columns, 8);
        known.then_some(Shape { form, columns, depth, packed: d == Type::F16, a, b })
    }

    /// Registers of the sums.
    fn words(&self) -> u8 {
        (self.columns / if self.packed { 4 } else { 2 }) as u8
    }

    fn formats(&self, m: Mach) -> Mach {
        let m = m.m("sh", &format!(".64x{}x{}", self.columns, self.depth));
        let sums = if self.packed { ".F16" } else { ".F32" };
        let eight = |t: Type| if t == Type::E4m3 { ".E4M3" } else { ".E5M2" };
        let byte = |t: Type| if t == Type::S8 { ".S8" } else { ".U8" };
        match self.a {
            Type::F16 => m.m("dt", sums).m("st", ""),
            Type::Bf16 => m.m("dt", sums).m("st", ".BF16"),
            Type::Tf32 => m.m("dt", sums).m("st", ".TF32"),
            Type::E4m3 | Type::E5m2 => m.m("dt", sums).m("at", eight(self.a)).m("bt", eight(self.b)),
            Type::B1 => m.m("op", ".AND.POPC"),
            _ => m.m("at", byte(self.a)).m("bt", byte(self.b)),
        }
    }
}

/// Where the sums of a multiply go.
struct Sums<'o> {
    at: Word,
    words: u8,
    /// Registers to copy them to, where these are no neighbours.
    copies: &'o [Opd<'o>],
}

impl Build<'_> {
    pub(super) fn wgmma(&mut self, i: &Flat) -> Result<(), AsmError> {
        self.aside(|b| match () {
            () if i.has("fence") => {
                b.push(Mach::new(op::WARPGROUP_ARV).effect());
                Ok(())
            }
            () if i.has("commit_group") => {
                b.end_group();
                Ok(())
            }
            () if i.has("wait_group") => match i.opds.first().and_then(|o| b.constant_of(o)) {
                Some(n) if n < 8 => {
                    b.push(Mach::new(op::WARPGROUP_DEPBAR).n("n", n).effect());
                    Ok(())
                }
                _ => b.no(i, "a number of groups that is no constant below 8 is not assembled"),
            },
            () if i.has("mma_async") => b.multiply_async(i),
            () => b.no(i, "not assembled"),
        })
    }

    /// The last multiply marks the end of its group. Where there is none since the last group here, one that does nothing does.
    fn end_group(&mut self) {
        let ops = &mut self.code.blocks[self.block].ops;
        if let Some(m) = ops.iter_mut().rev().find(|m| is_group_multiply(&m.inst))
            && m.inst.modifier("gsb").is_empty()
        {
            *m = m.clone().m("gsb", ", gsb0");
            return;
        }
        let m = Mach::new(op::HGMMA_SS).m("sh", ".64x8x16").m("dt", ".F16").m("st", "").n("u", NO_UNIFORM);
        self.push(m.p("pp", Pred::TRUE.not()).m("gsb", ", gsb0").effect());
    }

    fn multiply_async(&mut self, i: &Flat) -> Result<(), AsmError> {
        if i.has("sp") {
            return self.no(i, "sparse matrices are not assembled");
        }
        let Some(shape) = Shape::of(i) else { return self.no(i, "matrices of this shape and type are not assembled") };
        let [d, a, b, rest @ ..] = &*i.opds else { return self.no(i, "sums and two factors are expected") };
        let fragment = matches!(a, Opd::Vector(_));
        let form = shape.form[usize::from(fragment)];
        if fragment && std::ptr::eq(shape.form[0], shape.form[1]) {
            return self.no(i, "a factor in registers is not assembled here");
        }
        let u = self.uniform_registers(4, 4);
        if !fragment {
            self.descriptor(i, a, u)?;
        }
        self.descriptor(i, b, u + 2)?;
        let mut m = shape.formats(Mach::new(form)).n("u", u).m("gsb", "");
        let sums = self.sums(i, d, shape.words())?;
        if fragment {
            let count = |b: &Self| b.code.blocks[b.block].ops.len();
            let before = count(self);
            let factor = self.stored(i, a, Type::B32, 4)?;
            if count(self) != before {
                // Copies behind the text's fence are fenced as well.
                self.push(Mach::new(op::WARPGROUP_ARV).effect());
            }
            m = match factor {
                Some(w) => m.rn("a", w, 4),
                None => m,
            };
        }
        m = self.scaled_by(i, m, rest, fragment)?;
        m = if i.has("satfinite") { m.m("sat", ".SAT") } else { m };
        let overwrites = i.opds.get(3).is_some_and(|o| self.constant_of(o) == Some(0));
        m = m.wn("d", sums.at, sums.words);
        m = match overwrites {
            true => m.p("pp", Pred::TRUE.not()),
            false => m.rn("c", sums.at, sums.words),
        };
        self.issue(i, m.effect(), &sums)
    }

    /// Registers for the sums: the text's where they are neighbours.
    fn sums<'o>(&mut self, i: &Flat, o: &Opd<'o>, words: u8) -> Result<Sums<'o>, AsmError> {
        let Opd::Vector(v) = o else { return self.no(i, "a vector of sums is expected") };
        if v.len() != usize::from(words) {
            return self.no(i, "this number of sums is not assembled");
        }
        if let Some(at) = self.neighbours(v, Type::B32, words) {
            return Ok(Sums { at, words, copies: &[] });
        }
        let at = self.code.vreg(class_of(words.max(8)));
        Ok(Sums { at, words, copies: v })
    }

    /// The multiply; where its sums are copied it is waited for.
    fn issue(&mut self, i: &Flat, m: Mach, sums: &Sums) -> Result<(), AsmError> {
        if sums.copies.is_empty() {
            self.push(m);
            return Ok(());
        }
        for (k, o) in sums.copies.iter().enumerate() {
            let v = self.src(i, o, Type::B32)?;
            self.mov(sums.at.plus(k as u8), v);
        }
        self.push(Mach::new(op::WARPGROUP_ARV).effect());
        self.push(m.m("gsb", ", gsb0"));
        self.push(Mach::new(op::WARPGROUP_DEPBAR).n("n", 0).effect());
        for (k, o) in sums.copies.iter().enumerate() {
            let d = self.dest(i, o)?;
            self.mov(d, Val::Word(sums.at.plus(k as u8)));
        }
        Ok(())
    }

    /// A descriptor in a pair of uniform registers.
    fn descriptor(&mut self, i: &Flat, o: &Opd, register: u64) -> Result<(), AsmError> {
        let v = self.wide(i, o, Type::B64)?;
        self.put_uniform(v.low(), register);
        self.put_uniform(v.high(), register + 1);
        Ok(())
    }

    /// Scales and layouts: whether sums are added to, signs of the factors, transposed factors.
    fn scaled_by(&mut self, i: &Flat, m: Mach, rest: &[Opd], fragment: bool) -> Result<Mach, AsmError> {
        let mut m = m;
        match rest.first() {
            None => {}
            Some(o) if self.constant_of(o).is_some() => {}
            Some(o) => {
                let p = self.pred_src(i, o)?;
                self.push(Mach::new(op::VOTEU_U).m("md", ".ANY").n("pu", ADDS).p("pp", p).effect());
                m = m.n("pp", 7 - ADDS);
            }
        }
        // Signs of A and B, then where both may be transposed the order of A unless it is in registers, and of B.
        let transposed = if fragment { &["tb"][..] } else { &["ta", "tb"][..] };
        for (k, o) in rest.iter().skip(1).enumerate() {
            let Some(n) = self.constant_of(o) else { return self.no(i, "a scale or order that is no constant") };
            m = match (k, n as i64) {
                (0 | 1, 1) | (2 | 3, 0) => m,
                (0, -1) if fragment => m.neg("a", true),
                (0, -1) => m.m("na", ".negA"),
                (1, -1) => m.m("nb", ".negB"),
                (2 | 3, 1) if k - 2 < transposed.len() => {
                    let slot = transposed[k - 2];
                    m.m(slot, if slot == "ta" { ".tnspA" } else { ".tnspB" })
                }
                _ => return self.no(i, "this scale or order is not assembled"),
            };
        }
        Ok(m)
    }
}
