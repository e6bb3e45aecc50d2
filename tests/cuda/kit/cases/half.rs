//! 16-bit floats, and the matrix instructions of a warp.

use super::{Case, Data, Random, line};
use half::{bf16, f16};

/// A number rounded to so many binary digits, not finer than 2 to the power of `least`: ties to even.
fn rounded(x: f64, digits: i32, least: i32) -> f64 {
    if x == 0.0 {
        return x;
    }
    let exponent = (x.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    let unit = 2f64.powi((exponent - digits + 1).max(least));
    (x / unit).round_ties_even() * unit
}

/// To a half; the numbers here are far from its largest.
fn to_half(x: f64) -> u16 {
    f16::from_f64(rounded(x, 11, -24)).to_bits()
}

fn to_bfloat(x: f64) -> u16 {
    bf16::from_f64(rounded(x, 8, -133)).to_bits()
}

fn half(bits: u16) -> f64 {
    f16::from_bits(bits).to_f64()
}

fn bfloat(bits: u16) -> f64 {
    bf16::from_bits(bits).to_f64()
}

fn halves(r: &mut Random, n: usize, low: f64, high: f64) -> Vec<u16> {
    r.f64s(n, low, high).into_iter().map(to_half).collect()
}

fn whole(r: &mut Random, n: usize, to: fn(f64) -> u16) -> Vec<u16> {
    r.i32s(n, -8, 9).into_iter().map(|x| to(x.into())).collect()
}

fn whole_f64(r: &mut Random, n: usize) -> Vec<f64> {
    r.i32s(n, -40, 41).into_iter().map(f64::from).collect()
}

pub fn cases() -> Vec<Case> {
    let mut r = Random::new(7);
    let bfloats = |v: Vec<f64>| Data::U16(v.into_iter().map(to_bfloat).collect());
    let singles = |v: Vec<f64>| v.into_iter().map(|x| x as f32).collect::<Vec<f32>>();
    vec![
        line("half2_axpy", "half", 2, 32)
            .f16s(halves(&mut r, 128, -4.0, 4.0))
            .f16s(halves(&mut r, 128, -4.0, 4.0))
            .bytes(&1.3f32.to_le_bytes())
            .does(|d| {
                let (x, scale) = (d[0].f16s().clone(), half(to_half(f64::from(1.3f32))));
                for (y, x) in d[1].f16s().iter_mut().zip(x) {
                    *y = to_half(scale.mul_add(half(x), half(*y)));
                }
            }),
        line("half_operations", "half", 2, 64)
            .f16s(halves(&mut r, 128, -2.0, 2.0))
            .f16s(halves(&mut r, 128, -2.0, 2.0))
            .f16s(vec![0; 1024])
            .does(|d| {
                let (a, b) = (d[0].f16s().clone(), d[1].f16s().clone());
                for (i, (x, y)) in a.into_iter().map(half).zip(b.into_iter().map(half)).enumerate() {
                    let choice = if x < y { -x } else { y.abs() };
                    let row = [x + y, x - y, x * y, x.min(y), x.max(y), choice, x * 3.0, (x + y).clamp(0.0, 1.0)];
                    d[2].f16s()[8 * i..8 * i + 8].copy_from_slice(&row.map(to_half));
                }
            }),
        // Eighths: no sum is rounded.
        line("half_row_sums", "half", 3, 32)
            .f16s(r.i32s(768, -64, 65).into_iter().map(|x| to_half(f64::from(x) / 8.0)).collect())
            .f32s(vec![0.0; 3])
            .does(|d| {
                let sums = d[0].f16s().chunks(256).map(|c| c.iter().map(|x| half(*x)).sum::<f64>() as f32).collect();
                *d[1].f32s() = sums;
            }),
        line("bfloat_operations", "half", 2, 32)
            .buffer(bfloats(r.f64s(64, -9.0, 9.0)))
            .f32s(r.f32s(64, -9.0, 9.0))
            .buffer(Data::U16(vec![0; 192]))
            .f32s(vec![0.0; 64])
            .does(|d| {
                let (a, f) = (d[0].u16s().clone(), d[1].f32s().clone());
                for (i, (x, f)) in a.into_iter().map(bfloat).zip(f).enumerate() {
                    let y = bfloat(to_bfloat(f.into()));
                    d[2].u16s()[3 * i..3 * i + 3].copy_from_slice(&[y, x * y, x.max(y)].map(to_bfloat));
                    d[3].f32s()[i] = (x * f64::from(f)) as f32;
                }
            }),
        line("wmma_f16_f32", "half", 1, 32)
            .f16s(whole(&mut r, 16 * 48, to_half))
            .f16s(whole(&mut r, 16 * 48, to_half))
            .f32s(vec![0.0; 256])
            .int(48)
            .does(|d| {
                let (a, b) = (d[0].f16s().clone(), d[1].f16s().clone());
                let sum = |i: usize, j: usize| (0..48).map(|k| half(a[i * 48 + k]) * half(b[j * 48 + k])).sum::<f64>();
                (0..256).for_each(|k| d[2].f32s()[k] = sum(k / 16, k % 16) as f32);
            }),
        line("wmma_f16_f16", "half", 1, 32)
            .f16s(whole(&mut r, 32 * 16, to_half))
            .f16s(r.i32s(16 * 8, -3, 4).into_iter().map(|x| to_half(x.into())).collect())
            .f16s(whole(&mut r, 32 * 8, to_half))
            .does(|d| {
                let (a, b) = (d[0].f16s().clone(), d[1].f16s().clone());
                for (n, c) in d[2].f16s().iter_mut().enumerate() {
                    let (i, j) = (n / 8, n % 8);
                    let sum: f64 = (0..16).map(|k| half(a[k * 32 + i]) * half(b[k * 8 + j])).sum();
                    *c = to_half(2.0 * (half(*c) + sum));
                }
            }),
        line("wmma_s8", "half", 1, 32).u8s(r.u8s(256, 256)).u8s(r.u8s(256, 256)).i32s(vec![0; 256]).does(|d| {
            let (a, b) = (d[0].u8s().clone(), d[1].u8s().clone());
            let value = |x: u8| i32::from(x.cast_signed());
            for n in 0..256 {
                let (i, j) = (n % 16, n / 16);
                d[2].i32s()[n] = 5 + (0..16).map(|k| value(a[i * 16 + k]) * value(b[j * 16 + k])).sum::<i32>();
            }
        }),
        line("wmma_bf16", "half", 1, 32)
            .buffer(Data::U16(whole(&mut r, 256, to_bfloat)))
            .buffer(Data::U16(whole(&mut r, 256, to_bfloat)))
            .f32s(vec![0.0; 256])
            .does(|d| {
                let (a, b) = (d[0].u16s().clone(), d[1].u16s().clone());
                for n in 0..256 {
                    let (i, j) = (n / 16, n % 16);
                    let sum: f64 = (0..16).map(|k| bfloat(a[i * 16 + k]) * bfloat(b[k * 16 + j])).sum();
                    d[2].f32s()[n] = (1.0 + sum) as f32;
                }
            }),
        line("wmma_tf32", "half", 1, 32)
            .f32s(singles(whole_f64(&mut r, 128)))
            .f32s(singles(whole_f64(&mut r, 128)))
            .f32s(vec![0.0; 256])
            .does(|d| {
                let (a, b) = (d[0].f32s().clone(), d[1].f32s().clone());
                for n in 0..256 {
                    d[2].f32s()[n] = (0..8).map(|k| a[n / 16 * 8 + k] * b[n % 16 * 8 + k]).sum();
                }
            }),
        line("wmma_f64", "half", 1, 32)
            .f64s(whole_f64(&mut r, 32))
            .f64s(whole_f64(&mut r, 32))
            .f64s(whole_f64(&mut r, 64))
            .does(|d| {
                let (a, b) = (d[0].f64s().clone(), d[1].f64s().clone());
                for (n, c) in d[2].f64s().iter_mut().enumerate() {
                    *c += (0..4).map(|k| a[n / 8 * 4 + k] * b[n % 8 * 4 + k]).sum::<f64>();
                }
            }),
    ]
}
