//! Integers: division, wide products, bits, hashes, conversions.

use super::{Case, Data, Random, line};

/// Numbers of all magnitudes and both signs, none of them zero or minus one.
fn divisors(r: &mut Random, n: usize) -> Vec<i64> {
    let one = |_| match (r.next() as i64) >> r.below(60) {
        0 | -1 => 3,
        x => x,
    };
    (0..n).map(one).collect()
}

pub fn cases() -> Vec<Case> {
    let mut r = Random::new(5);
    let wide = |r: &mut Random, n| (0..n).map(|_| r.next() as i64 >> r.below(40)).collect::<Vec<i64>>();
    vec![
        line("divide64", "integer", 2, 64).i64s(wide(&mut r, 128)).i64s(divisors(&mut r, 128)).i64s(vec![0; 512]).does(
            |d| {
                let (a, b) = (d[0].i64s().clone(), d[1].i64s().clone());
                for (i, (x, y)) in a.into_iter().zip(b).enumerate() {
                    let (u, v) = (x as u64, y as u64);
                    d[2].i64s()[4 * i..4 * i + 4].copy_from_slice(&[x / y, x % y, (u / v) as i64, (u % v) as i64]);
                }
            },
        ),
        line("divide32", "integer", 2, 64)
            .i32s(r.i32s(128, -(1 << 31), 1 << 31))
            .i32s(divisors(&mut r, 128).iter().map(|x| if (*x as i32 + 1) >> 1 == 0 { 5 } else { *x as i32 }).collect())
            .i32s(vec![0; 1024])
            .does(divide32),
        line("multiply128", "integer", 2, 64)
            .u64s((0..128).map(|_| r.next()).collect())
            .u64s((0..128).map(|_| r.next() >> r.below(30)).collect())
            .u64s(vec![0; 512])
            .does(|d| {
                let (a, b) = (d[0].u64s().clone(), d[1].u64s().clone());
                for i in 0..128 {
                    let p = u128::from(a[i]) * u128::from(b[i]) + u128::from(a[i]);
                    let signed = (i128::from(a[i] as i64) * i128::from(b[i] as i64)) >> 64;
                    let row = [p as u64, (p >> 64) as u64, (p >> 37) as u64, signed as u64];
                    d[2].u64s()[4 * i..4 * i + 4].copy_from_slice(&row);
                }
            }),
        line("bit_tricks", "integer", 2, 64)
            .u32s(r.u32s(128).iter().map(|x| x >> (x & 31)).collect())
            .u32s(r.u32s(128).iter().map(|x| x >> (x & 15)).collect())
            .u32s(vec![0; 12 * 128])
            .does(bit_tricks),
        line("modular_power", "integer", 1, 64)
            .u64s((0..64).map(|_| r.next()).collect())
            .u32s(r.u32s(64).iter().map(|x| x >> (x & 31)).collect())
            .u64s(vec![0; 64])
            .bytes(&4_294_967_291u64.to_le_bytes())
            .does(|d| {
                const M: u128 = 4_294_967_291;
                let (a, e) = (d[0].u64s().clone(), d[1].u32s().clone());
                for i in 0..64 {
                    let power = (0..32).rev().fold(1u128, |p, bit| {
                        let squared = p * p % M;
                        if e[i] >> bit & 1 == 1 { squared * u128::from(a[i]) % M } else { squared }
                    });
                    d[2].u64s()[i] = power as u64;
                }
            }),
        line("sha256_block", "integer", 1, 32).u32s(messages()).u32s(vec![0; 256]).does(sha256),
        line("murmur3", "integer", 2, 32).u32s(r.u32s(64 * 6)).u32s(vec![0; 64]).int(6).int(0x1234).does(murmur3),
        line("integer_intrinsics", "integer", 2, 64)
            .i32s(r.i32s(128, -(1 << 31), 1 << 31))
            .i32s(r.i32s(128, -(1 << 31), 1 << 31))
            .i32s(vec![0; 1280])
            .does(intrinsics),
        line("conversions", "integer", 2, 64)
            .i32s(r.i32s(128, -(1 << 31), 1 << 31))
            .f32s(
                r.f32s(128, -1e5, 1e5)
                    .iter()
                    .enumerate()
                    .map(|(i, x)| if i % 4 == 0 { x.round() + 0.5 } else { *x })
                    .collect(),
            )
            .f64s(r.f64s(128, -2e9, 2e9))
            .i64s(vec![0; 2048])
            .does(conversions),
    ]
}

fn divide32(d: &mut [Data]) {
    let (a, b) = (d[0].i32s().clone(), d[1].i32s().clone());
    for (i, (x, y)) in a.into_iter().zip(b).enumerate() {
        let (u, v) = (x as u32, y as u32);
        let row = [
            x / y,
            x % y,
            (u / v) as i32,
            (u % v) as i32,
            x / 7,
            (u / 641) as i32,
            x % 10,
            i32::from(x as i16) / (y & 0x7fff | 1),
        ];
        d[2].i32s()[8 * i..8 * i + 8].copy_from_slice(&row);
    }
}

fn first_set(x: u64) -> u32 {
    if x == 0 { 0 } else { x.trailing_zeros() + 1 }
}

fn bit_tricks(d: &mut [Data]) {
    let (a, b) = (d[0].u32s().clone(), d[1].u32s().clone());
    for (i, (x, y)) in a.into_iter().zip(b).enumerate() {
        let pair = u64::from(y) << 32 | u64::from(x);
        let bytes = pair.to_le_bytes();
        let permuted = (0..4).map(|k| bytes[(y >> (4 * k) & 7) as usize]).collect::<Vec<u8>>();
        let swapped = u64::from(x) << 32 | u64::from(y);
        let w = swapped << (y & 63) ^ swapped >> (x & 63);
        let row = [
            x.count_ones() | y.leading_zeros() << 8 | first_set((x & y).into()) << 16,
            x.reverse_bits(),
            u32::from_le_bytes(permuted.try_into().unwrap()),
            (pair << (x & 31) >> 32) as u32,
            (pair >> (y & 63).min(32)) as u32,
            (x & !y) | ((!x & y & 0xff00_ff00) ^ ((x | y) >> 3)),
            swapped.count_ones() + (u64::from(y) << 7).leading_zeros(),
            x << (y & 31) ^ ((y as i32) >> (x & 31)) as u32,
            w as u32,
            (w >> 32) as u32,
            first_set(w).wrapping_add((w.reverse_bits() >> 40) as u32),
            (x >> (y & 15) & ((1 << (x & 15)) - 1)).wrapping_add((((x << 13) as i32) / (1 << 20)) as u32),
        ];
        d[2].u32s()[12 * i..12 * i + 12].copy_from_slice(&row);
    }
}

/// Messages of one block with SHA-256's padding: "abc" and others of up to 55 letters.
fn messages() -> Vec<u32> {
    let block = |t: u8| {
        let mut bytes: Vec<u8> =
            if t == 0 { b"abc".to_vec() } else { (0..t + 20).map(|i| b'a' + (i % 26 + t) % 26).collect() };
        let bits = 8 * bytes.len() as u64;
        bytes.push(0x80);
        bytes.resize(56, 0);
        bytes.extend_from_slice(&bits.to_be_bytes());
        bytes
    };
    let all: Vec<u8> = (0..32).flat_map(block).collect();
    all.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect()
}

/// The first 32 bits of the fractions of the roots of the first primes: FIPS 180-4's own definition, so that no table
/// is copied.
fn fractions(count: usize, root: impl Fn(f64) -> f64, cubed: bool) -> Vec<u32> {
    let primes = (2u32..).filter(|n| (2..*n).all(|d| n % d != 0)).take(count);
    let exact = |p: u32| {
        // The root times 2^32 as a whole number, corrected from the rounded one.
        let mut n = (root(f64::from(p)) * 4_294_967_296.0) as u128;
        let over = |n: u128| match cubed {
            true => n * n * n > u128::from(p) << 96,
            false => n * n > u128::from(p) << 64,
        };
        while over(n) {
            n -= 1;
        }
        while !over(n + 1) {
            n += 1;
        }
        n as u32
    };
    primes.map(exact).collect()
}

fn sha256(d: &mut [Data]) {
    let (start, k) = (fractions(8, f64::sqrt, false), fractions(64, f64::cbrt, true));
    let message = d[0].u32s().clone();
    for (t, block) in message.chunks(16).enumerate() {
        let mut w: Vec<u32> = block.iter().map(|x| x.swap_bytes()).collect();
        for i in 16..64 {
            let s0 = w[i - 15].rotate_right(7) ^ w[i - 15].rotate_right(18) ^ w[i - 15] >> 3;
            let s1 = w[i - 2].rotate_right(17) ^ w[i - 2].rotate_right(19) ^ w[i - 2] >> 10;
            w.push([w[i - 16], s0, w[i - 7], s1].into_iter().fold(0, u32::wrapping_add));
        }
        let mut s = start.clone();
        for i in 0..64 {
            let (a, e) = (s[0], s[4]);
            let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let choice = e & s[5] ^ !e & s[6];
            let t1 = [s[7], s1, choice, k[i], w[i]].into_iter().fold(0, u32::wrapping_add);
            let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let majority = a & s[1] ^ a & s[2] ^ s[1] & s[2];
            s.rotate_right(1);
            s[4] = s[4].wrapping_add(t1);
            s[0] = t1.wrapping_add(s0).wrapping_add(majority);
        }
        for i in 0..8 {
            d[1].u32s()[8 * t + i] = start[i].wrapping_add(s[i]);
        }
    }
    assert_eq!(d[1].u32s()[0], 0xba78_16bf, "SHA-256 of abc, FIPS 180-4");
}

fn murmur3(d: &mut [Data]) {
    let keys = d[0].u32s().clone();
    for (t, words) in keys.chunks(6).enumerate() {
        let mut h = 0x1234u32;
        for k in words {
            h ^= k.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
            h = h.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
        }
        h ^= 24;
        h = (h ^ h >> 16).wrapping_mul(0x85eb_ca6b);
        h = (h ^ h >> 13).wrapping_mul(0xc2b2_ae35);
        d[1].u32s()[t] = h ^ h >> 16;
    }
}

fn intrinsics(d: &mut [Data]) {
    let (a, b) = (d[0].i32s().clone(), d[1].i32s().clone());
    for (i, (x, y)) in a.into_iter().zip(b).enumerate() {
        let (wx, wy) = (i64::from(x), i64::from(y));
        let (u, v) = (x as u32, y as u32);
        let low24 = |n: i32| i64::from(n << 8 >> 8);
        let each = |f: fn(u8, u8) -> u8| {
            let (p, q) = (u.to_le_bytes(), v.to_le_bytes());
            i32::from_le_bytes([f(p[0], q[0]), f(p[1], q[1]), f(p[2], q[2]), f(p[3], q[3])])
        };
        let row = [
            ((wx * wy) >> 32) as i32,
            ((u64::from(u) * u64::from(v)) >> 32) as i32,
            ((wx >> 1) - (wy >> 1)).unsigned_abs() as i32 + 5,
            (low24(x) * low24(y)) as i32,
            ((wx + wy) >> 1) as i32,
            ((wx + wy + 1) >> 1) as i32,
            x.min(y) ^ u.max(v) as i32,
            (x >> 1).abs() - (y >> 1).abs(),
            each(u8::wrapping_add),
            each(u8::abs_diff),
        ];
        d[2].i32s()[10 * i..10 * i + 10].copy_from_slice(&row);
    }
}

fn conversions(d: &mut [Data]) {
    let (a, f, e) = (d[0].i32s().clone(), d[1].f32s().clone(), d[2].f64s().clone());
    for (i, ((x, g), e)) in a.into_iter().zip(f).zip(e).enumerate() {
        let bits = |v: f32| i64::from(v.to_bits() as i32);
        let row = [
            i64::from(x as i8),
            i64::from(x as u8),
            i64::from(x as i16),
            i64::from(x as u16),
            g as i64,
            g.round_ties_even() as i64,
            g.ceil() as i64,
            i64::from(g.floor() as u32),
            e as i64,
            e.round_ties_even() as i64,
            bits(x as f32),
            bits(e as f32),
            f64::from(x).to_bits() as i64,
            f64::from(g).to_bits() as i64,
            bits((i64::from(x) * 1_000_003) as f32),
            i64::from(g.abs() as i32 as u8),
        ];
        d[3].i64s()[16 * i..16 * i + 16].copy_from_slice(&row);
    }
}
