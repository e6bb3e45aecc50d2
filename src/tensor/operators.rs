//! Operators: `&a + &b`, `a * 2.0`, `1.0 - &a`, `-a`, `!mask`, `a << 3`.
//! `/` divides as floats do; `%` has the divisor's sign.

use super::Tensor;
use super::elementwise::Elementwise;
use super::value::{Operand, Value};

/// The same operator for all combinations of owned and borrowed operands.
macro_rules! operators {
    ($($trait:ident $method:ident $call:ident;)*) => {$(
        impl<O: Operand<Tensor>> std::ops::$trait<O> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, o: O) -> Tensor { Elementwise::$call(self, o) }
        }
        impl<O: Operand<Tensor>> std::ops::$trait<O> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, o: O) -> Tensor { Elementwise::$call(&self, o) }
        }
        operators!(number $trait $method $call: f32 f64 i32 i64);
    )*};
    (number $trait:ident $method:ident $call:ident: $($t:ty)*) => {$(
        impl std::ops::$trait<&Tensor> for $t {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, o: &Tensor) -> Tensor { Elementwise::$call(&Tensor::of(Operand::<Tensor>::operand(self)), o) }
        }
        impl std::ops::$trait<Tensor> for $t {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, o: Tensor) -> Tensor { Elementwise::$call(&Tensor::of(Operand::<Tensor>::operand(self)), &o) }
        }
    )*};
}
operators! {
    Add add add; Sub sub sub; Mul mul mul; Div div div; Rem rem modulo;
    BitAnd bitand bitand; BitOr bitor bitor; BitXor bitxor bitxor; Shl shl shl; Shr shr shr;
}

impl std::ops::Neg for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        Elementwise::neg(self)
    }
}
impl std::ops::Neg for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        Elementwise::neg(&self)
    }
}
impl std::ops::Not for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn not(self) -> Tensor {
        Elementwise::bitnot(self)
    }
}
impl std::ops::Not for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn not(self) -> Tensor {
        Elementwise::bitnot(&self)
    }
}

/// `x += y` and its like. Where `x` is memory the result is written there, and all handles on it see it; otherwise the
/// handle (and its clones) stand for the new value. Shape and dtype stay: a value that does not fit is an error that
/// the Tensor carries, as `x /= y` of integers.
macro_rules! in_place {
    ($($trait:ident $method:ident $call:ident $name:literal;)*) => {$(
        impl<O: Operand<Tensor>> std::ops::$trait<O> for Tensor {
            #[track_caller]
            fn $method(&mut self, o: O) {
                self.become_value($name, &Elementwise::$call(self, o));
            }
        }
    )*};
}
in_place! {
    AddAssign add_assign add "+="; SubAssign sub_assign sub "-="; MulAssign mul_assign mul "*=";
    DivAssign div_assign div "/="; RemAssign rem_assign modulo "%="; BitAndAssign bitand_assign bitand "&=";
    BitOrAssign bitor_assign bitor "|="; BitXorAssign bitxor_assign bitxor "^="; ShlAssign shl_assign shl "<<=";
    ShrAssign shr_assign shr ">>=";
}
