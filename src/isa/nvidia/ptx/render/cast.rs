//! Conversions. Floats outside an integer type's range give what the instruction gives: up to 32 bits the nearest
//! value.

use super::code::{F, FD, H, Opd, P, R, RD};
use super::{Render, Res, Src, class_of};
use doorbell_uop::{Op, Scalar, UOp};

impl Render<'_> {
    pub(super) fn cast(&mut self, u: &UOp, from: Scalar, to: Scalar, x: Src) -> Res<Src> {
        use Scalar::{BF16, Bool, F16, F32, F64};
        Ok(match (from, to) {
            (a, b) if a == b => x,
            (Bool, to) => self.cast_bool(to, x),
            (F16 | BF16, F32) => self.half_to_f32(from, x),
            (F32, F16 | BF16) => self.f32_to_half(to, x),
            (F16 | BF16, _) => {
                let middle = self.half_to_f32(from, x);
                self.cast(u, F32, to, middle)?
            }
            (_, F16 | BF16) => {
                let middle = self.cast(u, from, F32, x)?;
                self.f32_to_half(to, middle)
            }
            (_, Bool) => self.compare(Op::CmpNe, from, x, Src::Bits(0)),
            (F32, F64) => self.convert("cvt.f64.f32", from, to, x),
            (F64, F32) => self.convert("cvt.rn.f32.f64", from, to, x),
            (F32 | F64, to) if to.is_int() => self.float_to_int(from, to, x),
            (from, F32 | F64) if from.is_int() => self.int_to_float(from, to, x),
            (from, to) if from.is_int() && to.is_int() => self.int_to_int(from, to, x),
            _ => return Err(self.unsupported(u, "no such conversion")),
        })
    }

    fn convert(&mut self, name: &'static str, from: Scalar, to: Scalar, x: Src) -> Src {
        let x = self.held(from, x);
        self.op(name, class_of(to), vec![x.into()])
    }

    fn cast_bool(&mut self, to: Scalar, x: Src) -> Src {
        let one = match to {
            Scalar::F16 => 0x3c00,
            Scalar::BF16 => 0x3f80,
            Scalar::F32 => 0x3f80_0000,
            Scalar::F64 => 1f64.to_bits(),
            _ => 1,
        };
        self.choose(to, x, Src::Bits(one), Src::Bits(0))
    }

    /// Exact.
    pub(super) fn half_to_f32(&mut self, from: Scalar, x: Src) -> Src {
        if from == Scalar::F16 {
            return self.convert("cvt.f32.f16", from, Scalar::F32, x);
        }
        // The upper half of an f32; the instruction for it came with sm_90.
        let low = self.reg(H);
        self.run("mov.b16", &[low], vec![Opd::Int(0)]);
        let x = self.held(from, x);
        self.op("mov.b32", F, vec![Opd::Vector(vec![low.into(), x.into()])])
    }

    pub(super) fn f32_to_half(&mut self, to: Scalar, x: Src) -> Src {
        let name = match to {
            Scalar::F16 => "cvt.rn.f16.f32",
            _ if self.chip.has_sm80() => "cvt.rn.bf16.f32",
            _ => return self.f32_to_bf16(x),
        };
        let half = self.convert(name, Scalar::F32, to, x);
        if let (Src::Reg(half), Src::Reg(x)) = (half, x)
            && !self.mutable.contains(&x)
        {
            self.rounded.insert(half, (to, x));
        }
        half
    }

    /// Rounds to nearest even by an addition below the kept bits; a NaN becomes the canonical quiet NaN.
    fn f32_to_bf16(&mut self, x: Src) -> Src {
        let x = self.held(Scalar::F32, x);
        let nan = self.op("setp.nan.f32", P, vec![x.into(), x.into()]);
        let bits = self.held(Scalar::U32, Src::Bits(0));
        self.run("mov.b32", &[bits], vec![x.into()]);
        let odd = self.op("bfe.u32", R, vec![bits.into(), Opd::Int(16), Opd::Int(1)]);
        let odd = self.opd(Scalar::U32, odd);
        let sum = self.op("add.s32", R, vec![bits.into(), odd]);
        let sum = self.opd(Scalar::U32, sum);
        let sum = self.op("add.s32", R, vec![sum, Opd::Int(0x7fff)]);
        let sum = self.opd(Scalar::U32, sum);
        let top = self.op("shr.u32", R, vec![sum, Opd::Int(16)]);
        let top = self.choose(Scalar::U32, nan, Src::Bits(0x7fff), top);
        let top = self.opd(Scalar::U32, top);
        self.op("cvt.u16.u32", H, vec![top])
    }

    fn int_to_float(&mut self, from: Scalar, to: Scalar, x: Src) -> Src {
        let name = match (to, from.size_bytes() == 8, from.is_signed()) {
            (Scalar::F32, false, true) => "cvt.rn.f32.s32",
            (Scalar::F32, false, false) => "cvt.rn.f32.u32",
            (Scalar::F32, true, true) => "cvt.rn.f32.s64",
            (Scalar::F32, true, false) => "cvt.rn.f32.u64",
            (_, false, true) => "cvt.rn.f64.s32",
            (_, false, false) => "cvt.rn.f64.u32",
            (_, true, true) => "cvt.rn.f64.s64",
            (_, true, false) => "cvt.rn.f64.u64",
        };
        self.convert(name, from, to, x)
    }

    fn float_to_int(&mut self, from: Scalar, to: Scalar, x: Src) -> Src {
        let small = to.size_bytes() < 4;
        let name = match (from, to.size_bytes() == 8, to.is_signed() || small) {
            (Scalar::F32, false, true) => "cvt.rzi.s32.f32",
            (Scalar::F32, false, false) => "cvt.rzi.u32.f32",
            (Scalar::F32, true, true) => "cvt.rzi.s64.f32",
            (Scalar::F32, true, false) => "cvt.rzi.u64.f32",
            (_, false, true) => "cvt.rzi.s32.f64",
            (_, false, false) => "cvt.rzi.u32.f64",
            (_, true, true) => "cvt.rzi.s64.f64",
            (_, true, false) => "cvt.rzi.u64.f64",
        };
        let r = self.convert(name, from, to, x);
        self.narrow(to, r)
    }

    fn int_to_int(&mut self, from: Scalar, to: Scalar, x: Src) -> Src {
        let x = match x {
            // Constants are held extended to 64 bits.
            Src::Bits(b) => {
                let bits = if to.size_bytes() == 8 { b } else { b & (u64::MAX >> (64 - 8 * to.size_bytes())) };
                return Src::Bits(super::extend(bits, to));
            }
            Src::Reg(r) => r,
        };
        match (from.size_bytes() == 8, to.size_bytes() == 8) {
            (true, true) => x.into(),
            (false, true) => {
                let name = if from.is_signed() { "cvt.s64.s32" } else { "cvt.u64.u32" };
                self.op(name, RD, vec![x.into()])
            }
            (true, false) => {
                let low = self.op("cvt.u32.u64", R, vec![x.into()]);
                self.narrow(to, low)
            }
            (false, false) => {
                let holds = from.size_bytes() < to.size_bytes() && (!from.is_signed() || to.is_signed());
                if to.size_bytes() == 4 || holds { x.into() } else { self.narrow(to, x.into()) }
            }
        }
    }

    /// Reinterprets the bits as another type of the same size.
    pub(super) fn bitcast(&mut self, u: &UOp, from: Scalar, to: Scalar, x: Src) -> Res<Src> {
        if from.size_bytes() != to.size_bytes() {
            return Err(self.unsupported(u, "a bitcast keeps the size"));
        }
        let x = match x {
            Src::Bits(b) if from != Scalar::Bool && to != Scalar::Bool => {
                let low = if to.size_bytes() == 8 { b } else { b & (u64::MAX >> (64 - 8 * to.size_bytes())) };
                return Ok(Src::Bits(super::extend(low, to)));
            }
            x => self.held(from, x),
        };
        Ok(match (class_of(from), class_of(to)) {
            (P, P) => x.into(),
            (P, _) => self.choose(Scalar::U8, x.into(), Src::Bits(1), Src::Bits(0)),
            (_, P) => self.compare(Op::CmpNe, from, x.into(), Src::Bits(0)),
            (H, R) => {
                let bits = self.op("cvt.u32.u16", R, vec![x.into()]);
                if to.is_signed() { self.narrow(to, bits) } else { bits }
            }
            (R, H) => self.op("cvt.u16.u32", H, vec![x.into()]),
            (F, R) => self.op("mov.b32", R, vec![x.into()]),
            (R, F) => self.op("mov.b32", F, vec![x.into()]),
            (FD, RD) => self.op("mov.b64", RD, vec![x.into()]),
            (RD, FD) => self.op("mov.b64", FD, vec![x.into()]),
            (R, R) if from != to => self.narrow(to, x.into()),
            _ => x.into(),
        })
    }
}
