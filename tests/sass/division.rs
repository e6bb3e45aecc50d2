//! Division, reciprocal and square root against the host's, which IEEE 754 rounds: all exponents, neighbours of what
//! rounds to even, denormals, infinities and no numbers, some in every warp and in whole warps none; under a guard;
//! what the fast path costs relative to ptxas's. `ends` has kernels with many.

use crate::figures::Figures;
use crate::machine::{Case, launch, launch_with};
use crate::nvidia::ptxas;
use doorbell::elf::cubin::Arch;
use doorbell::emu::sass::Options;
use doorbell::isa::sass::compile::assemble;

pub const A: u64 = 0x7_0000_0000;
pub const B: u64 = 0x7_1000_0000;
pub const OUT: u64 = 0x7_2000_0000;
pub const ELEMENTS: usize = 1 << 15;

pub struct Op {
    /// With `%a`, `%b` and `%r`.
    pub text: &'static str,
    pub bytes: usize,
    pub exact: fn(u64, u64) -> u64,
}

fn single(b: u64) -> f32 {
    f32::from_bits(b as u32)
}

pub const OPS: [Op; 6] = [
    Op { text: "div.rn.f32 %r, %a, %b", bytes: 4, exact: |a, b| (single(a) / single(b)).to_bits().into() },
    Op { text: "rcp.rn.f32 %r, %b", bytes: 4, exact: |_, b| (1.0 / single(b)).to_bits().into() },
    Op { text: "sqrt.rn.f32 %r, %b", bytes: 4, exact: |_, b| single(b).sqrt().to_bits().into() },
    Op { text: "div.rn.f64 %r, %a, %b", bytes: 8, exact: |a, b| (f64::from_bits(a) / f64::from_bits(b)).to_bits() },
    Op { text: "rcp.rn.f64 %r, %b", bytes: 8, exact: |_, b| (1.0 / f64::from_bits(b)).to_bits() },
    Op { text: "sqrt.rn.f64 %r, %b", bytes: 8, exact: |_, b| f64::from_bits(b).sqrt().to_bits() },
];

fn kernel(op: &Op, guard: &str) -> String {
    let (ty, n) = if op.bytes == 4 { ("f32", 2) } else { ("f64", 3) };
    format!(
        ".version 8.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 o)\n{{\n\
        .reg .b64 %d<5>; .reg .b32 %i<4>; .reg .pred %p; .reg .{ty} %a, %b, %r;\n\
        ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; ld.param.u64 %d3, [o]; mov.u32 %i1, %ctaid.x; mov.u32 %i2, %tid.x;\n\
        mad.lo.u32 %i1, %i1, 256, %i2; mul.wide.u32 %d4, %i1, {}; add.s64 %d1, %d1, %d4; add.s64 %d2, %d2, %d4; add.s64 %d3, %d3, %d4;\n\
        ld.global.{ty} %a, [%d1]; ld.global.{ty} %b, [%d2]; and.b32 %i3, %i2, 3; setp.ne.u32 %p, %i3, 1; mov.{ty} %r, %a;\n\
        {guard}{};\nst.global.{ty} [%d3], %r;\nret;\n}}\n",
        1 << n,
        op.text
    )
}

/// Numbers of all kinds; for every eighth 256 of them only such as are no one's edge.
pub fn numbers(bytes: usize, mut seed: u64) -> Vec<u64> {
    let (mantissa, bias) = if bytes == 4 { (23, 127u64) } else { (52, 1023) };
    let top = 1u64 << (8 * bytes - 1);
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let infinity = (2 * bias + 1) << mantissa;
    let edges = [0, 1, 2, (1 << mantissa) - 1, 1 << mantissa, infinity, infinity - 1, infinity + 1, bias << mantissa];
    let one = move |k: usize| {
        let (r, fraction) = (next(), next() & ((1 << mantissa) - 1));
        let sign = if r >> 40 & 1 == 1 { top } else { 0 };
        // Few bits at either end of the fraction.
        let few =
            [fraction, fraction & 7, (1 << mantissa) - 1 - (fraction & 7), fraction & !0xffff][(r >> 41 & 3) as usize];
        let middle = (bias - 16 + (r >> 8) % 32) << mantissa | few;
        sign | match r % 8 {
            _ if (k / 256).is_multiple_of(8) => middle,
            0 => edges[(r >> 16) as usize % edges.len()],
            1..4 => ((r >> 16) % (2 * bias + 1)) << mantissa | few,
            4 => fraction,
            _ => middle,
        }
    };
    (0..ELEMENTS).map(one).collect()
}

pub fn bytes_of(values: &[u64], bytes: usize) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes().into_iter().take(bytes)).collect()
}

/// Same bits, or both no numbers.
pub fn agrees(bytes: usize, got: u64, want: u64) -> bool {
    let no_number = |bits| if bytes == 4 { single(bits).is_nan() } else { f64::from_bits(bits).is_nan() };
    got == want || no_number(got) && no_number(want)
}

pub fn case(buffers: &[(u64, Vec<u8>)], blocks: usize) -> Case<'_> {
    let params = [A, B, OUT].iter().flat_map(|p| p.to_le_bytes()).collect();
    Case { grid: [blocks as u32, 1, 1], block: [256, 1, 1], params, buffers, dynamic_bytes: 0 }
}

/// What a kernel of `OPS` leaves of operands made from a seed, and the operands.
fn left(cubin: &[u8], op: &Op, seed: u64, guess_error: i32) -> ([Vec<u64>; 2], Vec<u64>) {
    let (a, b) = (numbers(op.bytes, 77 * seed), numbers(op.bytes, 1001 * seed));
    let buffers = [(A, bytes_of(&a, op.bytes)), (B, bytes_of(&b, op.bytes)), (OUT, vec![0; ELEMENTS * op.bytes])];
    let options = Options { guess_error, ..Options::default() };
    let (left, _) =
        launch_with(cubin, "k", (&case(&buffers, ELEMENTS / 256), 1), options).unwrap_or_else(|e| panic!("{e}"));
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
    ([a, b], left[2].chunks_exact(op.bytes).map(word).collect())
}

#[test]
fn quotients_and_roots_are_rounded_as_ieee_754_asks() {
    for (chip, seed) in [((90, true), 1), ((80, false), 2), ((89, false), 3), ((120, false), 4)] {
        for op in &OPS {
            for guard in ["", "@%p "] {
                let cubin = assemble(&kernel(op, guard), Arch { sm: chip.0, specific: chip.1 }).expect("assembles");
                let ([a, b], got) = left(&cubin, op, seed, 0);
                for (k, got) in got.into_iter().enumerate() {
                    let want = if guard.is_empty() || k % 4 != 1 { (op.exact)(a[k], b[k]) } else { a[k] };
                    let what = || {
                        format!("sm_{}: {guard}{} of {:x} and {:x}: {got:x}, not {want:x}", chip.0, op.text, a[k], b[k])
                    };
                    assert!(agrees(op.bytes, got, want), "{}", what());
                }
            }
        }
    }
}

/// A card's MUFU does not round its approximation: from one that is a unit off, the result is the same as in ptxas's
/// code, and right but for few divisors, for which ptxas relies on the card's guess.
#[test]
fn a_guess_that_is_off_leaves_what_it_leaves_in_the_code_of_ptxas() {
    for guess_error in [-1, 1] {
        for op in &OPS {
            let ours = assemble(&kernel(op, ""), Arch { sm: 90, specific: true }).expect("assembles");
            let ([a, b], got) = left(&ours, op, 5, guess_error);
            let (_, theirs) = left(&ptxas(&kernel(op, ""), "-O3"), op, 5, guess_error);
            let mut wrong = 0;
            for (k, (got, theirs)) in got.into_iter().zip(theirs).enumerate() {
                let exact = (op.exact)(a[k], b[k]);
                let what = || {
                    format!("{} of {:x} and {:x}: {got:x}, ptxas's {theirs:x}, exact {exact:x}", op.text, a[k], b[k])
                };
                assert!(
                    agrees(op.bytes, got, theirs) || agrees(op.bytes, got, exact),
                    "guess off by {guess_error}: {}",
                    what()
                );
                wrong += usize::from(!agrees(op.bytes, got, exact));
            }
            println!("{}, guess off by {guess_error}: {wrong} of {ELEMENTS} wrong", op.text);
            assert!(wrong < ELEMENTS / 20, "{}, guess off by {guess_error}: {wrong} wrong", op.text);
        }
    }
}

/// The neighbour of a double in a direction where that is not the exact value; the sign of the remainder tells where
/// that is.
fn directed(nearest: f64, left: f64, rounding: &str) -> u64 {
    let up = match rounding {
        ".rp" => true,
        ".rm" => false,
        _ => nearest < 0.0,
    };
    let moves = if up { left > 0.0 } else { left < 0.0 };
    match (moves, up) {
        (false, _) => nearest.to_bits(),
        (true, true) => nearest.next_up().to_bits(),
        (true, false) => nearest.next_down().to_bits(),
    }
}

/// Exact results of doubles: the nearest, and the remainder, all scaled so that nothing is lost.
type Exact = fn(f64, f64) -> (f64, f64);
/// Bits of other operands instead.
type Instead = fn(u64, u64) -> (u64, u64);

#[test]
fn doubles_are_rounded_in_the_direction_that_is_asked_for() {
    const UP: f64 = f64::from_bits((1023 + 500) << 52);
    const FRACTION: u64 = (1 << 52) - 1;
    let sign = 1 << 63;
    // With numbers at the end of the range, which take the slow path.
    let cases: [(Exact, Instead); 3] = [
        (
            |a, b| (a / b, (-(a / b)).mul_add(b * UP, a * UP) * b.signum()),
            |a, b| (a & FRACTION | (13 + a % 27) << 52, b & FRACTION | ([20, 1023][b as usize % 2] + b % 40) << 52),
        ),
        (|_, b| (1.0 / b, (-(1.0 / b)).mul_add(b, 1.0) * b.signum()), |a, b| (a, b & FRACTION | (0x7fc + b % 3) << 52)),
        (|_, b| (b.sqrt(), (-b.sqrt() * UP).mul_add(b.sqrt() * UP, b * UP * UP)), |a, b| (a, (b & FRACTION) >> 3)),
    ];
    for (op, (exact, ends)) in OPS[3..].iter().zip(cases) {
        for rounding in [".rz", ".rm", ".rp"] {
            let text = kernel(op, "").replace(".rn.f64", &format!("{rounding}.f64"));
            let cubin = assemble(&text, Arch { sm: 90, specific: true }).expect("assembles");
            let middle = |n: u64| n & !(1 << 62) | 1 << 61;
            let (mut a, mut b) = (numbers(8, 5), numbers(8, 9));
            for (k, (a, b)) in a.iter_mut().zip(&mut b).enumerate() {
                (*a, *b) = if k % 3 == 0 { ends(*a, *b) } else { (middle(*a), middle(*b)) };
                *a |= if k % 5 == 0 && op.text.starts_with("div") { sign } else { 0 };
            }
            let buffers = [(A, bytes_of(&a, 8)), (B, bytes_of(&b, 8)), (OUT, vec![0; 8 * ELEMENTS])];
            let (left, _) =
                launch(&cubin, "k", &case(&buffers, ELEMENTS / 256), true).unwrap_or_else(|e| panic!("{e}"));
            let (mut compared, mut denormal) = ([0; 3], 0);
            for (k, got) in left[2].chunks_exact(8).enumerate() {
                let got = u64::from_le_bytes(got.try_into().expect("8 bytes"));
                let (x, y) = (f64::from_bits(a[k]), f64::from_bits(b[k]));
                let (nearest, rest) = exact(x, y);
                if nearest.is_finite() && nearest != 0.0 {
                    let want = directed(nearest, rest, rounding);
                    assert_eq!(got, want, "{}{rounding} of {x:e} and {y:e}: {:e}", op.text, f64::from_bits(got));
                    compared[k % 3] += 1;
                    denormal += usize::from(nearest.is_subnormal());
                }
            }
            assert!(compared.iter().all(|n| *n > 4000), "{}: {compared:?}", op.text);
            assert!(denormal > 1000 || op.text.starts_with("sqrt"), "{}: {denormal}", op.text);
        }
    }
}

/// The remainder of floats after the nearest: exact in doubles except for its size.
type Rest = fn(f64, f64, f64) -> f64;

#[test]
fn floats_are_rounded_in_the_direction_that_is_asked_for() {
    let rests: [Rest; 3] = [
        |a, b, q| (-q).mul_add(b, a) * b.signum(),
        |_, b, q| (-q).mul_add(b, 1.0) * b.signum(),
        |_, b, q| (-q).mul_add(q, b),
    ];
    for (op, rest) in OPS.iter().zip(rests) {
        for rounding in [".rz", ".rm", ".rp"] {
            let text = kernel(op, "").replace(".rn.f32", &format!("{rounding}.f32"));
            let cubin = assemble(&text, Arch { sm: 90, specific: true }).expect("assembles");
            let (a, b) = (numbers(4, 15), numbers(4, 19));
            let buffers = [(A, bytes_of(&a, 4)), (B, bytes_of(&b, 4)), (OUT, vec![0; 4 * ELEMENTS])];
            let (left, _) =
                launch(&cubin, "k", &case(&buffers, ELEMENTS / 256), true).unwrap_or_else(|e| panic!("{e}"));
            let (mut moved, mut denormal) = (0, 0);
            for (k, got) in left[2].chunks_exact(4).enumerate() {
                let nearest = single((op.exact)(a[k], b[k]));
                if !nearest.is_finite() || nearest == 0.0 {
                    continue;
                }
                let rest = rest(single(a[k]).into(), single(b[k]).into(), nearest.into());
                let want = match rounding {
                    ".rp" if rest > 0.0 => nearest.next_up(),
                    ".rm" if rest < 0.0 => nearest.next_down(),
                    ".rz" if rest * f64::from(nearest) < 0.0 => f32::from_bits(nearest.to_bits() - 1),
                    _ => nearest,
                };
                let got = f32::from_le_bytes(got.try_into().expect("4 bytes"));
                assert_eq!(got.to_bits(), want.to_bits(), "{}{rounding} of {:x} and {:x}", op.text, a[k], b[k]);
                moved += usize::from(want != nearest);
                denormal += usize::from(want.is_subnormal());
            }
            assert!(moved > 2000 && (denormal > 100 || op.text.starts_with("sqrt")), "{}: {moved} {denormal}", op.text);
        }
    }
}

#[test]
fn the_near_way_costs_what_that_of_ptxas_does() {
    for op in &OPS {
        let text = kernel(op, "");
        // The first 256 numbers are in the middle.
        let of = |seed| bytes_of(&numbers(op.bytes, seed)[..256], op.bytes);
        let positive = |mut all: Vec<u8>| {
            all.iter_mut().skip(op.bytes - 1).step_by(op.bytes).for_each(|b| *b &= 0x7f);
            all
        };
        let buffers = [(A, of(5)), (B, positive(of(6))), (OUT, vec![0; 256 * op.bytes])];
        let case = case(&buffers, 1);
        let cost = |cubin: &[u8]| {
            let (_, stats) = launch(cubin, "k", &case, false).unwrap_or_else(|e| panic!("{e}"));
            Figures::of(cubin, "k", &stats).0
        };
        let ours = cost(&assemble(&text, Arch { sm: 90, specific: true }).expect("assembles"));
        let theirs = cost(&ptxas(&text, "-O3"));
        println!(
            "{:<24} words {} {}, executed {} {}, cycles {} {}",
            op.text, ours[0], theirs[0], ours[2], theirs[2], ours[3], theirs[3]
        );
        assert!(
            ours[2] <= 1.2 * theirs[2],
            "{}: {} instructions executed, ptxas's code {}",
            op.text,
            ours[2],
            theirs[2]
        );
        assert!(ours[0] <= 1.4 * theirs[0], "{}: {} instructions, ptxas's code {}", op.text, ours[0], theirs[0]);
    }
}
