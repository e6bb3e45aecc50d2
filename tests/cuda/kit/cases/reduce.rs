//! Reductions, histograms, atomics, warp votes and shuffles.

use super::{Case, Data, Random, line};

pub fn cases() -> Vec<Case> {
    let mut r = Random::new(2);
    let whole = |v: Vec<i32>| v.into_iter().map(|x| x as f32).collect::<Vec<f32>>();
    let atomics = vec![0, 0, i32::MAX, i32::MIN, -1, 0, 0, 3, 5, -1, 0];
    vec![
        line("reduce_tree", "reduce", 3, 256).f32s(r.f32s(2500, -1.0, 1.0)).f32s(vec![0.0; 3]).int(2500).does(tree),
        line("reduce_shuffle", "reduce", 2, 96)
            .i64s((0..192).map(|_| r.next() as i64 >> 3).collect())
            .i64s(vec![0; 2])
            .does(|d| {
                let sums = d[0].i64s().chunks(96).map(|c| c.iter().fold(0i64, |s, x| s.wrapping_add(*x))).collect();
                *d[1].i64s() = sums;
            }),
        line("arg_max", "reduce", 3, 256)
            .f32s(whole(r.i32s(768, -90, 90)))
            .i32s(vec![-1; 3])
            .f32s(vec![0.0; 3])
            .does(arg_max),
        line("dot_f64", "reduce", 1, 128)
            .f64s(r.f64s(1000, -1.0, 1.0))
            .f64s(r.f64s(1000, -1.0, 1.0))
            .f64s(vec![0.0])
            .int(1000)
            .does(dot),
        line("histogram_shared", "reduce", 2, 256).u8s(r.u8s(3000, 200)).u32s(vec![1; 256]).int(3000).does(|d| {
            for x in d[0].u8s().clone() {
                d[1].u32s()[usize::from(x)] += 1;
            }
        }),
        line("histogram_global", "reduce", 4, 128).f32s(r.f32s(500, -0.2, 1.2)).u32s(vec![0; 16]).int(500).does(|d| {
            for x in d[0].f32s().clone() {
                d[1].u32s()[((x * 16.0) as i32).clamp(0, 15) as usize] += 1;
            }
        }),
        line("atomic_mix", "reduce", 3, 64)
            .i32s(r.i32s(192, -(1 << 31), 1 << 31))
            .i32s(atomics)
            .u64s(vec![0, 0, 0, u64::MAX])
            .does(atomic_mix),
        line("atomic_cas_product", "reduce", 2, 32).u32s(r.u32s(64)).u32s(vec![1]).does(|d| {
            let product = d[0].u32s().iter().fold(1u64, |p, x| p * u64::from((x % 65521).max(1)) % 65521);
            d[1].u32s()[0] = product as u32;
        }),
        // Whole numbers: every order of the additions gives the same sum.
        line("atomic_float", "reduce", 2, 64)
            .f32s(whole(r.i32s(128, -1000, 1000)))
            .f32s(vec![0.0; 4])
            .f64s(vec![0.0])
            .does(|d| {
                for (i, x) in d[0].f32s().clone().into_iter().enumerate() {
                    d[1].f32s()[i & 3] += x;
                    d[2].f64s()[0] += f64::from(x);
                }
            }),
        line("last_block_sums", "reduce", 5, 64).u32s(r.u32s(320)).u32s(vec![0; 5]).u32s(vec![0]).does(|d| {
            let sums: Vec<u32> =
                d[0].u32s().chunks(64).map(|c| c.iter().fold(0u32, |s, x| s.wrapping_add(*x))).collect();
            d[2].u32s()[0] = sums.iter().fold(0u32, |s, x| s.wrapping_add(*x));
            *d[1].u32s() = sums;
        }),
        line("shuffles", "reduce", 2, 32).i32s(r.i32s(64, -9999, 9999)).i32s(vec![0; 512]).does(shuffles),
        line("votes", "reduce", 3, 32).i32s(r.i32s(96, 0, 1010)).u32s(vec![0; 576]).does(votes),
        line("redux", "reduce", 3, 32).i32s(r.i32s(96, -(1 << 31), 1 << 31)).i32s(vec![0; 24]).does(redux),
        line("warp_transpose", "reduce", 1, 32).u32s(r.u32s(1024)).u32s(vec![0; 1024]).does(|d| {
            let a = d[0].u32s().clone();
            (0..1024).for_each(|k| d[1].u32s()[k] = a[k % 32 * 32 + k / 32]);
        }),
        line("warp_bitonic", "reduce", 2, 64)
            .u32s(r.u32s(128))
            .does(|d| d[0].u32s().chunks_mut(32).for_each(<[u32]>::sort_unstable)),
        line("block_votes", "reduce", 3, 96).i32s(r.i32s(288, -1000, 1000)).i32s(vec![0; 9]).does(|d| {
            let a = d[0].i32s().clone();
            for (b, c) in a.chunks(96).enumerate() {
                let count = c.iter().filter(|x| **x > 0).count() as i32;
                let (any, all) = (c.contains(&77), c.iter().all(|x| *x > -900));
                d[1].i32s()[3 * b..3 * b + 3].copy_from_slice(&[count, any.into(), all.into()]);
            }
        }),
        line("named_barriers", "reduce", 1, 128).i32s(r.i32s(64 * 9, -1000, 1000)).i32s(vec![0; 64]).int(9).does(|d| {
            let a = d[0].i32s().clone();
            for t in 0..64 {
                d[1].i32s()[t] = (0..9).map(|r| (a[r * 64 + 63 - t] * 3) ^ r as i32).sum();
            }
        }),
    ]
}

fn tree(d: &mut [Data]) {
    let a = d[0].f32s().clone();
    for block in 0..3 {
        let mut s: Vec<f32> =
            (0..256).map(|t| (block * 256 + t..2500).step_by(3 * 256).fold(0.0, |x: f32, i| x + a[i])).collect();
        let mut half = 128;
        while half > 0 {
            (0..half).for_each(|t| s[t] += s[t + half]);
            half /= 2;
        }
        d[1].f32s()[block] = s[0];
    }
}

fn arg_max(d: &mut [Data]) {
    let a = d[0].f32s().clone();
    for block in 0..3 {
        let best = (block * 256..block * 256 + 256).reduce(|p, q| if a[q] > a[p] { q } else { p }).unwrap();
        d[1].i32s()[block] = best as i32;
        d[2].f32s()[block] = a[best];
    }
}

fn dot(d: &mut [Data]) {
    let (a, b) = (d[0].f64s().clone(), d[1].f64s().clone());
    let mut s: Vec<f64> =
        (0..128).map(|t| (t..1000).step_by(128).fold(0.0, |x: f64, i| a[i].mul_add(b[i], x))).collect();
    let mut half = 64;
    while half > 0 {
        (0..half).for_each(|t| s[t] += s[t + half]);
        half /= 2;
    }
    d[2].f64s()[0] = s[0];
}

fn atomic_mix(d: &mut [Data]) {
    for x in d[0].i32s().clone() {
        let u = x as u32;
        let r = d[1].i32s();
        r[0] = r[0].wrapping_add(x);
        r[1] = r[1].wrapping_sub(x);
        r[2] = r[2].min(x);
        r[3] = r[3].max(x);
        r[4] &= x | 0x00ff_0000;
        r[5] |= x & 0x0f0f_0f0f;
        r[6] ^= x;
        r[7] = if r[7] as u32 >= 99 { 0 } else { r[7] + 1 };
        r[8] = if r[8] == 0 || r[8] as u32 > 77 { 77 } else { r[8] - 1 };
        r[9] = (r[9] as u32).min(u) as i32;
        r[10] = (r[10] as u32).max(u) as i32;
        let w = d[2].u64s();
        w[0] = w[0].wrapping_add(u64::from(u) << 16);
        w[1] = w[1].max(u64::from(u) * 977);
        w[2] ^= u64::from(u).wrapping_mul(0x1_0000_0001);
        w[3] &= !(1 << (x & 63));
    }
}

fn shuffles(d: &mut [Data]) {
    let a = d[0].i32s().clone();
    for g in 0..64 {
        let (base, t) = (g & !31, g & 31);
        let at = |lane: usize| a[base + lane];
        let part = |width: usize| t & !(width - 1);
        let row = [
            at((t * 7 + 3) & 31),
            at(if t >= 3 { t - 3 } else { t }),
            at(if t + 5 < 32 { t + 5 } else { t }),
            at(t ^ 9),
            at(part(16) | ((t + 1) & 15)),
            at(if t - part(8) >= 2 { t - 2 } else { t }),
            at(if t + 6 < part(16) + 16 { t + 6 } else { t }),
            at(t ^ 12),
        ];
        d[1].i32s()[g * 8..g * 8 + 8].copy_from_slice(&row);
    }
}

fn votes(d: &mut [Data]) {
    let a = d[0].i32s().clone();
    for g in 0..96 {
        let warp = &a[g & !31..(g & !31) + 32];
        let x = a[g];
        let ballot =
            |f: &dyn Fn(i32) -> bool| warp.iter().enumerate().fold(0u32, |m, (i, y)| m | u32::from(f(*y)) << i);
        let all_small = warp.iter().all(|y| *y < 1000);
        let row = [
            ballot(&|y| y & 1 == 1),
            u32::from(warp.contains(&7)) * 2 + u32::from(all_small),
            ballot(&|y| y & 7 == x & 7),
            u32::MAX, // every value is below 2^20
            1,
            if x & 2 == 2 { ballot(&|y| y & 6 == 6) } else { 0 },
        ];
        d[1].u32s()[g * 6..g * 6 + 6].copy_from_slice(&row);
    }
}

fn redux(d: &mut [Data]) {
    let a = d[0].i32s().clone();
    for (b, w) in a.chunks(32).enumerate() {
        let unsigned = || w.iter().map(|x| *x as u32);
        let row = [
            unsigned().fold(0, u32::wrapping_add) as i32,
            *w.iter().min().unwrap(),
            *w.iter().max().unwrap(),
            unsigned().min().unwrap() as i32,
            unsigned().max().unwrap() as i32,
            unsigned().fold(u32::MAX, |s, x| s & (x | 0xff)) as i32,
            unsigned().fold(0, |s, x| s | x & 0x0ff0) as i32,
            unsigned().fold(0, |s, x| s ^ x) as i32,
        ];
        d[1].i32s()[b * 8..b * 8 + 8].copy_from_slice(&row);
    }
}
