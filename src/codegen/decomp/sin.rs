//! sin x = (-1)^n sin(pi*r), with n the nearest integer to x/pi and r = x/pi - n in [-1/2, 1/2].
//!
//! f32 is computed in f64. 1/pi is three numbers of which the first two have 29 bits, so their products with a 24-bit x
//! are exact and multiples of one can be taken away exactly. Beyond 2^50, x is an integer times a power of two:
//! multiples of two of that power over pi do not count, so every 26 octaves have three numbers of their own. f64 up to
//! 2^25: pi in four parts (Cody and Waite). Beyond: x times the 192 bits of 1/pi that matter, in integers (Payne and
//! Hanek). Constants: 1,400-bit arithmetic.

use super::super::Target;
use super::float::{Layout, abs, fma, ilit, lit, polynomial, round};
use doorbell_uop::{DType, Op, Scalar, UOp};

/// sin(pi r)/r in r²; relative error 2^-43.9 for |r| <= 1/2.
const P32: [f64; 7] = [
    3.141592653589597107,
    -5.1677127799773200736,
    2.5501640354197032109,
    -0.5992644257419841641,
    0.082144732162355325998,
    -0.0073637851922584908371,
    0.00044720051174994605603,
];
/// sin(pi r)/r - pi in r²; relative error 2^-71 for |r| <= 1/2.
const P64: [f64; 9] = [
    -5.1677127800499700283,
    2.5501640398773453272,
    -0.59926452932078626869,
    0.082145886610980719835,
    -0.0073704309435550650986,
    0.00046630278646838862108,
    -0.000021915246406718307404,
    7.9484564063367728557e-7,
    -2.2276403475410316055e-8,
];
/// From which |x| on, and (2^s/pi mod 2) / 2^s in three parts.
const BINS: [(f64, [f64; 3]); 4] = [
    (0.0, [0.3183098863810301, -1.9723941056815075e-10, -5.967184394376089e-19]),
    (1125899906842624.0, [-2.059884568472725e-09, 8.07689895366169e-18, -1.3215263964366365e-26]),
    (7.555786372591432e22, [-7.518982804832141e-17, 1.4188110119109797e-25, -3.0177165053440597e-34]),
    (5.070602400912918e30, [-2.717092043150439e-25, -1.0721436247599198e-33, -3.529380501904391e-42]),
];
/// pi in parts of 28 bits and the rest.
const PI_PARTS: [f64; 4] = [3.141592651605606, 1.9841871479187034e-09, 1.144237741932715e-17, 3.2892513872648515e-26];
/// 64 zeros, then the bits of 1/pi.
const ONE_OVER_PI: [u64; 20] = [
    0x0000_0000_0000_0000,
    0x517c_c1b7_2722_0a94,
    0xfe13_abe8_fa9a_6ee0,
    0x6db1_4acc_9e21_c820,
    0xff28_b1d5_ef5d_e2b0,
    0xdb92_371d_2126_e970,
    0x0324_9775_04e8_c90e,
    0x7f0e_f58e_5894_d39f,
    0x7441_1afa_975d_a242,
    0x74ce_3813_5a2f_bf20,
    0x9cc8_eb1c_c1a9_9cfa,
    0x4e42_2fc5_defc_941d,
    0x8ffc_4bff_ef02_cc07,
    0xf797_88c5_ad05_368f,
    0xb69b_3f67_93e5_84db,
    0xa7a3_1fb3_4f2f_f516,
    0xba93_dd63_f5f2_f8bd,
    0x9e83_9cfb_c529_4975,
    0x35fd_afd8_8fc6_ae84,
    0x2b01_9823_7e3d_b5d5,
];

pub(crate) fn lower(u: &UOp, target: &Target, fast: bool) -> Option<UOp> {
    let l = Layout::of(u.dtype())?;
    if target.supports(Op::Sin, u.dtype().scalar) {
        return None;
    }
    let x = &u.src()[0];
    if l.double() {
        return Some(sin_f64(x, l, fast));
    }
    let wide = x.cast(x.dtype().with_scalar(Scalar::F64));
    Some(sin_f32_wide(&wide, fast).cast(u.dtype()))
}

/// Sine, to f32 accuracy, of an f64 that is an f32.
fn sin_f32_wide(x: &UOp, fast: bool) -> UOp {
    // PANIC-free: the cast above made it f64, which has a layout.
    let Some(l) = Layout::of(x.dtype()) else { return x.clone() };
    let part = |k: usize| {
        let first = lit(x, BINS[0].1[k]);
        if fast {
            return first;
        }
        let square = x * x;
        BINS[1..].iter().fold(first, |c, (from, parts)| square.lt(&lit(x, from * from)).select(&c, &lit(x, parts[k])))
    };
    let t1 = x * &part(0);
    let (n1, _) = round(&t1, l);
    let t2 = x * &part(1);
    let (n2, _) = round(&t2, l);
    let s = fma(x, &part(2), &(&(&t1 - &n1) + &(&t2 - &n2)));
    let (n3, _) = round(&s, l);
    let r = &s - &n3;
    let (_, bits) = round(&(&(&n1 + &n2) + &n3), l);
    let p = polynomial(&(&r * &r), &P32);
    flip(&(&p * &r), &bits, l)
}

/// Negated where the integer in the low bits of `rounded` is odd.
fn flip(v: &UOp, rounded: &UOp, l: Layout) -> UOp {
    let sign = rounded.bitcast(l.uint).binary(Op::Shl, &ilit(l.uint, 63));
    (&v.bitcast(l.uint) ^ &sign).bitcast(l.float)
}

fn sin_f64(x: &UOp, l: Layout, fast: bool) -> UOp {
    // r in radians, |r| <= pi/2
    let (n, rounded) = round(&(x * &lit(x, std::f64::consts::FRAC_1_PI)), l);
    let small = PI_PARTS.iter().fold(x.clone(), |r, p| fma(&n, &lit(x, -p), &r));
    let small = flip(&sin_radians(&small), &rounded, l);
    if fast {
        return small;
    }
    let a = abs(x, l);
    let (r, odd) = payne_hanek(&a, l);
    let p = polynomial(&(&r * &r), &P64);
    let r2 = &(&r * &r) * &p;
    let big = fma(&r, &lit(x, std::f64::consts::PI), &fma(&r, &lit(x, 1.2246467991473532e-16), &(&r2 * &r)));
    // sin(-x) = -sin(x); infinity times zero is NaN.
    let sign = &x.bitcast(l.uint) & &ilit(l.uint, 1 << 63);
    let big = (&(&big.bitcast(l.uint) ^ &odd.binary(Op::Shl, &ilit(l.uint, 63))) ^ &sign).bitcast(l.float);
    let finite = a.lt(&lit(x, f64::INFINITY)).select(&big, &(x * &lit(x, 0.0)));
    a.lt(&lit(x, 33_554_432.0)).select(&small, &finite)
}

/// |r| <= pi/2: Taylor coefficients suffice in f64 with nine terms: the ninth is 2^-56 of the first.
fn sin_radians(r: &UOp) -> UOp {
    let mut c = [0.0f64; 10];
    let mut f = 1.0;
    for (k, c) in c.iter_mut().enumerate() {
        let n = 2 * k as i32 + 2;
        f *= f64::from(n) * f64::from(n + 1);
        *c = if k % 2 == 0 { -1.0 / f } else { 1.0 / f };
    }
    let z = r * r;
    let p = polynomial(&z, &c);
    fma(&(&p * &z), r, r)
}

/// a/pi mod 2 of a >= 2^25 as (r in [-1/2, 1/2], parity of the integer).
fn payne_hanek(a: &UOp, l: Layout) -> (UOp, UOp) {
    let u = l.uint;
    let k = |v: i128| ilit(u, v);
    let shl = |x: &UOp, n: &UOp| x.binary(Op::Shl, n);
    let shr = |x: &UOp, n: &UOp| x.binary(Op::Shr, n);
    let bits = a.bitcast(u);
    // a = m * 2^(field - 1075); the first bit of 1/pi that counts has number e, at e + 63 after 64 zeros.
    let field = shr(&bits, &k(52));
    let m = &(&bits & &k((1 << 52) - 1)) | &k(1 << 52);
    let at = &field - &k(1075 - 63);
    let (word, shift) = (shr(&at, &k(6)), &at & &k(63));
    let table = |offset: usize| pick(&word, offset, u);
    let w: Vec<UOp> = (0..4).map(table).collect();
    // Three 64-bit words from bit `shift` on; the double shift keeps counts below 64.
    let f: Vec<UOp> = (0..3).map(|j| &shl(&w[j], &shift) | &shr(&shr(&w[j + 1], &k(1)), &(&k(63) - &shift))).collect();
    let low32 = |x: &UOp| x & &k(0xffff_ffff);
    let high32 = |x: &UOp| shr(x, &k(32));
    // Limbs of 32 bits, least significant first.
    let limbs = [low32(&f[2]), high32(&f[2]), low32(&f[1]), high32(&f[1]), low32(&f[0]), high32(&f[0])];
    let (m0, m1) = (low32(&m), high32(&m));
    let mut carry = k(0);
    let mut out: Vec<UOp> = Vec::new();
    for (j, limb) in limbs.iter().enumerate() {
        let mut sum = &carry + &low32(&(&m0 * limb));
        if j > 0 {
            sum = &(&sum + &high32(&(&m0 * &limbs[j - 1]))) + &(&m1 * &limbs[j - 1]);
        }
        out.push(low32(&sum));
        carry = high32(&sum);
    }
    // The top bit is the parity; what follows is a fraction in two's complement.
    let joined = |h: usize| &shl(&out[h], &k(32)) | &out[h - 1];
    let (p2, p1, p0) = (joined(5), joined(3), joined(1));
    let hi = &shl(&p2, &k(1)) | &shr(&p1, &k(63));
    let lo = &shl(&p1, &k(1)) | &shr(&p0, &k(63));
    let top = shr(&hi, &k(63));
    let mask = &k(0) - &top;
    let (hi, lo) = (&hi ^ &mask, &lo ^ &mask);
    let number = |v: &UOp, scale: f64| {
        let two52 = k(0x4330_0000_0000_0000);
        &(&(v | &two52).bitcast(l.float) - &lit(a, 4_503_599_627_370_496.0)) * &lit(a, scale)
    };
    let small = &number(&high32(&lo), 2f64.powi(-96)) + &number(&low32(&lo), 2f64.powi(-128));
    let r = &number(&high32(&hi), 2f64.powi(-32)) + &(&number(&low32(&hi), 2f64.powi(-64)) + &small);
    let negative = (&r.bitcast(u) ^ &shl(&top, &k(63))).bitcast(l.float);
    (negative, &shr(&p2, &k(63)) ^ &top)
}

/// `ONE_OVER_PI[word + offset]` by a tree of selections over the bits of `word` (0..=16).
fn pick(word: &UOp, offset: usize, t: DType) -> UOp {
    let entry = |k: usize| ilit(t, ONE_OVER_PI.get(k + offset).copied().unwrap_or(0).into());
    let mut row: Vec<UOp> = (0..18).map(entry).collect();
    let mut bit = 0;
    while row.len() > 1 {
        let b = &word.binary(Op::Shr, &ilit(t, bit)) & &ilit(t, 1);
        let set = b.ne(&ilit(t, 0));
        row = row
            .chunks(2)
            .map(|p| match p {
                [even, odd] => set.select(odd, even),
                [one] => one.clone(),
                // PANIC: chunks of two have one or two entries.
                _ => unreachable!(),
            })
            .collect();
        bit += 1;
    }
    // PANIC: the loop ends with one entry.
    row.remove(0)
}
