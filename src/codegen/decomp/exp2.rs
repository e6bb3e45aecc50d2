//! 2^x. x = n + f with n the nearest integer and f in [-1/2, 1/2]; 2^f by a polynomial, times 2^n: see [`Scale`].

use super::float::{Layout, fma, lit, polynomial, power_of_two, round};
use doorbell_uop::{Op, UOp};

/// How a product with 2^n is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// By the exponent field, in two halves: rounded once where the result becomes a denormal or infinity.
    Halves,
    /// By the exponent field: neither denormals nor infinity come out (`fast`).
    Normal,
    /// By the target's own instruction, which rounds once too.
    Instruction,
}

/// Relative error 2^-29.0 on [-1/2, 1/2].
const P32: [f64; 7] = [
    1.0,
    0.6931472057348867691,
    0.24022646890115522198,
    0.055503287816624155876,
    0.0096184890609642343313,
    0.0013399929818629382898,
    0.00015345779771296524524,
];
/// Relative error 2^-58.2 on [-1/2, 1/2].
const P64: [f64; 12] = [
    1.0,
    std::f64::consts::LN_2,
    0.24022650695910156171,
    0.055504108664819926434,
    0.0096181291075883477941,
    0.0013333558146788773461,
    0.00015403530462498820296,
    0.000015252733491096090395,
    1.3215433097307574654e-6,
    1.0178197558846428875e-7,
    7.0741043418275163482e-9,
    4.4353523518648835224e-10,
];

pub(crate) fn lower(u: &UOp, scale: Scale) -> Option<UOp> {
    let l = Layout::of(u.dtype())?;
    Some(exp2(&u.src()[0], None, l, scale))
}

/// 2^(x + tail). Any x, NaN stays NaN because comparisons with it are false; the tail is below a unit of x.
pub(crate) fn exp2(x: &UOp, tail: Option<&UOp>, l: Layout, scale: Scale) -> UOp {
    // Beyond these the result is 0 or infinity anyway; within them the exponents below are normal.
    let (lowest, highest) = match (l.double(), scale == Scale::Normal) {
        (false, false) => (-151.0, 130.0),
        (true, false) => (-1076.0, 1026.0),
        (false, true) => (-126.0, 127.0),
        (true, true) => (-1022.0, 1023.0),
    };
    let x = x.lt(&lit(x, lowest)).select(&lit(x, lowest), x);
    let x = lit(&x, highest).lt(&x).select(&lit(&x, highest), &x);
    let (n, bits) = round(&x, l);
    let f = &x - &n;
    let f = tail.map_or_else(|| f.clone(), |t| &f + t);
    let p = polynomial(&f, if l.double() { &P64 } else { &P32 });
    match scale {
        Scale::Normal => return &p * &power_of_two(&bits, l),
        Scale::Instruction => return p.binary(Op::Ldexp, &n),
        Scale::Halves => {}
    }
    let half_bits = fma(&n, &lit(&n, 0.5), &lit(&n, l.magic));
    let half = &half_bits - &lit(&n, l.magic);
    let (_, rest_bits) = round(&(&n - &half), l);
    &(&p * &power_of_two(&half_bits, l)) * &power_of_two(&rest_bits, l)
}

/// 2^x for x that is not above 0: 0 below the normal numbers, also of -inf.
pub(crate) fn of_negative(x: &UOp) -> Option<UOp> {
    let l = Layout::of(x.dtype())?;
    let lowest = if l.double() { -1022.0 } else { -126.0 };
    let (n, bits) = round(x, l);
    let p = polynomial(&(x - &n), if l.double() { &P64 } else { &P32 });
    Some(x.lt(&lit(x, lowest)).select(&lit(x, 0.0), &(&p * &power_of_two(&bits, l))))
}
