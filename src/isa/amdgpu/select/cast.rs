//! Conversions. Floats beyond an integer type's range give the instruction's result: up to 32 bits the nearest value.

use super::super::op;
use super::mir::{Code, Part};
use super::{Res, Select, Src};
use doorbell_uop::{Op, Scalar};

impl Select<'_> {
    pub(super) fn cast(&mut self, from: Scalar, to: Scalar, x: Src) -> Res<Src> {
        use Scalar::{BF16, Bool, F16, F32, F64};
        match (from, to) {
            (a, b) if a == b => Ok(x),
            (F16, F32) => self.half_to_f32(x),
            (BF16, F32) => self.bf16_to_f32(x),
            (Scalar::U8, F32) if matches!(x, Src::Packed { bits: 8, .. }) => self.byte_to_f32(x),
            _ => {
                let wanted = self.wanted.take();
                let x = self.unpack(x, from)?;
                self.wanted = wanted;
                match (from, to) {
                    (Bool, to) => self.cast_bool(to, x),
                    (F16 | BF16, Bool) => {
                        let bits = self.v(op::V_AND_B32, &[Src::Bits(0x7fff), x])?;
                        self.compare(Op::CmpNe, Scalar::U32, bits, Src::Bits(0))
                    }
                    (from, Bool) => self.compare(Op::CmpNe, from, x, Src::Bits(0)),
                    (F32, F16) => self.fin(op::V_CVT_F16_F32, &[x]),
                    (F32, BF16) => self.f32_to_bf16(x),
                    (F32, F64) => self.double_of(op::V_CVT_F64_F32, x),
                    (F64, F32) => {
                        let to = self.result(1);
                        let x = self.opd_f64(x)?;
                        self.run(Code::new(op::V_CVT_F32_F64, &[to.into(), x]))?;
                        Ok(Src::Part(to))
                    }
                    (F32 | F64, to) if to.is_int() => self.float_to_int(from, to, x),
                    (from, F32 | F64) if from.is_int() => self.int_to_float(from, to, x),
                    (from, to) if from.is_int() && to.is_int() => self.int_to_int(from, to, x),
                    _ => {
                        // Half types and everything but f32: through f32.
                        let middle = self.without_home(|s| s.cast(from, F32, x))?;
                        self.cast(F32, to, middle)
                    }
                }
            }
        }
    }

    /// Work whose result is not yet the node's.
    pub(super) fn without_home<T>(&mut self, f: impl FnOnce(&mut Self) -> Res<T>) -> Res<T> {
        let wanted = self.wanted.take();
        let r = f(self);
        self.wanted = wanted;
        r
    }

    fn cast_bool(&mut self, to: Scalar, x: Src) -> Res<Src> {
        match to {
            Scalar::F32 => self.mask_to_bits(x, 0x3f80_0000),
            Scalar::F16 => self.mask_to_bits(x, 0x3c00),
            Scalar::BF16 => self.mask_to_bits(x, 0x3f80),
            Scalar::F64 => {
                let high = self.without_home(|s| s.mask_to_bits(x, 0x3ff0_0000))?;
                self.pair(Src::Bits(0), high)
            }
            t if t.size_bytes() == 8 => {
                let low = self.without_home(|s| s.mask_to_bits(x, 1))?;
                self.widen(low, Scalar::U32)
            }
            _ => self.mask_to_bits(x, 1),
        }
    }

    fn half_to_f32(&mut self, x: Src) -> Res<Src> {
        if let Src::Packed { word, shift: 16, .. } = x {
            return self.high_half_to_f32(word);
        }
        let x = self.without_home(|s| s.unpack(x, Scalar::F16))?;
        self.fin(op::V_CVT_F32_F16, &[x])
    }

    fn bf16_to_f32(&mut self, x: Src) -> Res<Src> {
        match x {
            Src::Packed { word, shift: 16, .. } => self.fin(op::V_AND_B32, &[Src::Bits(0xffff_0000), Src::Part(word)]),
            Src::Packed { word, .. } => self.fin(op::V_LSHLREV_B32, &[Src::Bits(16), Src::Part(word)]),
            Src::Bits(b) => Ok(Src::Bits(b << 16 & 0xffff_ffff)),
            x => self.fin(op::V_LSHLREV_B32, &[Src::Bits(16), x]),
        }
    }

    fn byte_to_f32(&mut self, x: Src) -> Res<Src> {
        let Src::Packed { word, shift, .. } = x else { return self.fin(op::V_CVT_F32_U32, &[x]) };
        let code = match shift / 8 {
            0 => op::V_CVT_F32_UBYTE0,
            1 => op::V_CVT_F32_UBYTE1,
            2 => op::V_CVT_F32_UBYTE2,
            _ => op::V_CVT_F32_UBYTE3,
        };
        self.fin(code, &[Src::Part(word)])
    }

    /// Rounds to nearest even by an addition below the kept bits; a NaN keeps its top bits and becomes quiet.
    fn f32_to_bf16(&mut self, x: Src) -> Res<Src> {
        let wanted = self.wanted.take();
        let x = Src::Part(self.in_vgpr(x, 1)?);
        let odd = self.v(op::V_BFE_U32, &[x, Src::Bits(16), Src::Bits(1)])?;
        let rounded = self.v(op::V_ADD3_U32, &[x, odd, Src::Bits(0x7fff)])?;
        let quiet = self.v(op::V_OR_B32, &[Src::Bits(0x40_0000), x])?;
        let nan = self.mask_part();
        self.run(Code::new(op::V_CMP_U_F32, &[nan.into(), self.opd(x), self.opd(x)]))?;
        let bits = self.choose(Scalar::U32, Src::Part(nan), quiet, rounded)?;
        self.wanted = wanted;
        self.fin(op::V_LSHRREV_B32, &[Src::Bits(16), bits])
    }

    /// A 32-bit source converted to a double.
    fn double_of(&mut self, code: super::super::Op, x: Src) -> Res<Src> {
        let to = self.result(2);
        self.v_to(code, to, &[x])
    }

    fn int_to_float(&mut self, from: Scalar, to: Scalar, x: Src) -> Res<Src> {
        let signed = from.is_signed();
        match (from.size_bytes(), to) {
            (8, Scalar::F32) => self.wide_to_f32(signed, x),
            (8, _) => {
                let high = if signed { op::V_CVT_F64_I32 } else { op::V_CVT_F64_U32 };
                self.without_home(|s| {
                    let (lo, hi) = (s.word(x, 0), s.word(x, 1));
                    let h = s.double_of(high, hi)?;
                    let h = s.ldexp_f64(h, Src::Bits(32))?;
                    let l = s.double_of(op::V_CVT_F64_U32, lo)?;
                    s.f64(op::V_ADD_F64, &[h, l], 0)
                })
            }
            (_, Scalar::F32) => self.fin(if signed { op::V_CVT_F32_I32 } else { op::V_CVT_F32_U32 }, &[x]),
            _ => self.double_of(if signed { op::V_CVT_F64_I32 } else { op::V_CVT_F64_U32 }, x),
        }
    }

    /// One rounding: the value is shifted to the top, what falls off the high word sticks to its last bit.
    fn wide_to_f32(&mut self, signed: bool, x: Src) -> Res<Src> {
        self.without_home(|s| {
            let sign = if signed { Some(s.word_sign(x)?) } else { None };
            let magnitude = match sign {
                Some(sign) => {
                    let both = s.pair(sign, sign)?;
                    let flipped = s.wide_xor(x, both)?;
                    s.sub_wide(flipped, both)?
                }
                None => x,
            };
            let (lo, hi) = (s.word(magnitude, 0), s.word(magnitude, 1));
            let in_high = s.v(op::V_CLZ_I32_U32, &[hi])?;
            let in_low = s.v(op::V_CLZ_I32_U32, &[lo])?;
            // Both count -1 for zero: as unsigned numbers the largest.
            let low = s.v(op::V_ADD_NC_U32, &[Src::Bits(32), in_low])?;
            let empty = s.compare(Op::CmpEq, Scalar::U32, hi, Src::Bits(0))?;
            let zeros = s.choose(Scalar::U32, empty, low, in_high)?;
            let zeros = s.v(op::V_MIN_U32, &[Src::Bits(63), zeros])?;
            let top = s.shift_wide_by(true, false, magnitude, zeros)?;
            let (rest, top) = (s.word(top, 0), s.word(top, 1));
            let sticky = s.v(op::V_MIN_U32, &[Src::Bits(1), rest])?;
            let top = s.v(op::V_OR_B32, &[top, sticky])?;
            let f = s.v(op::V_CVT_F32_U32, &[top])?;
            let exponent = s.v(op::V_SUB_NC_U32, &[Src::Bits(32), zeros])?;
            let f = s.v(op::V_LDEXP_F32, &[f, exponent])?;
            match sign {
                Some(sign) => {
                    let bit = s.v(op::V_AND_B32, &[Src::Bits(0x8000_0000), sign])?;
                    s.v(op::V_OR_B32, &[f, bit])
                }
                None => Ok(f),
            }
        })
    }

    /// All ones where a 64-bit value is negative.
    pub(super) fn word_sign(&mut self, x: Src) -> Res<Src> {
        let high = self.word(x, 1);
        self.v(op::V_ASHRREV_I32, &[Src::Bits(31), high])
    }

    pub(super) fn wide_xor(&mut self, a: Src, b: Src) -> Res<Src> {
        let low = self.v(op::V_XOR_B32, &[self.word(a, 0), self.word(b, 0)])?;
        let high = self.v(op::V_XOR_B32, &[self.word(a, 1), self.word(b, 1)])?;
        self.pair(low, high)
    }

    fn float_to_int(&mut self, from: Scalar, to: Scalar, x: Src) -> Res<Src> {
        let signed = to != Scalar::U32 && to != Scalar::U64;
        if to.size_bytes() == 8 {
            return self.without_home(|s| {
                let x = if from == Scalar::F64 { x } else { s.double_of(op::V_CVT_F64_F32, x)? };
                s.f64_to_wide(signed, x)
            });
        }
        let small = to.size_bytes() < 4;
        let code = match (from, signed) {
            (Scalar::F64, true) => op::V_CVT_I32_F64,
            (Scalar::F64, false) => op::V_CVT_U32_F64,
            (_, true) => op::V_CVT_I32_F32,
            (_, false) => op::V_CVT_U32_F32,
        };
        let wanted = self.wanted.take();
        if !small {
            self.wanted = wanted;
        }
        let value = if from == Scalar::F64 { self.opd_f64(x)? } else { self.opd(x) };
        let r = self.result(1);
        self.run(Code::new(code, &[r.into(), value]))?;
        if !small {
            return Ok(Src::Part(r));
        }
        self.wanted = wanted;
        self.narrow(Src::Part(r), to)
    }

    /// The high word is the quotient by 2^32 rounded down, the low word what is left.
    fn f64_to_wide(&mut self, signed: bool, x: Src) -> Res<Src> {
        let whole = self.f64(op::V_TRUNC_F64, &[x], 0)?;
        let shifted = self.ldexp_f64(whole, Src::Bits(0xffff_ffe0))?;
        let high = self.f64(op::V_FLOOR_F64, &[shifted], 0)?;
        let minus = Src::Bits((-4_294_967_296f64).to_bits());
        let low = self.f64(op::V_FMA_F64, &[high, minus, whole], 0)?;
        let to = self.v_part(2);
        let (lo, hi) = (Part { words: 1, ..to }, Part { sub: 1, words: 1, ..to });
        self.v_to(op::V_CVT_U32_F64, lo, &[low])?;
        self.v_to(if signed { op::V_CVT_I32_F64 } else { op::V_CVT_U32_F64 }, hi, &[high])?;
        Ok(Src::Part(to))
    }

    fn int_to_int(&mut self, from: Scalar, to: Scalar, x: Src) -> Res<Src> {
        if to.size_bytes() == 8 {
            return if from.size_bytes() == 8 { Ok(x) } else { self.widen(x, from) };
        }
        let low = self.word(x, 0);
        let holds = from.size_bytes() < to.size_bytes() && (!from.is_signed() || to.is_signed());
        if to.size_bytes() == 4 || holds { Ok(low) } else { self.narrow(low, to) }
    }

    /// The same bits as another type of the same size.
    pub(super) fn bitcast(&mut self, from: Scalar, to: Scalar, x: Src) -> Res<Src> {
        match (from, to) {
            (Scalar::Bool, Scalar::Bool) => Ok(x),
            (Scalar::Bool, _) => self.mask_to_bits(x, 1),
            (_, Scalar::Bool) => self.compare(Op::CmpNe, from, x, Src::Bits(0)),
            (_, to) if to.size_bytes() < 4 && to.is_int() && from != to => self.narrow(x, to),
            _ => Ok(x),
        }
    }
}
