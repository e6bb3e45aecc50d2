//! Tiles, tables, local arrays, parameters, vectors.

use super::{Case, Data, Random, line};

pub fn cases() -> Vec<Case> {
    let mut r = Random::new(3);
    let starts: Vec<i32> = (0..65).map(|i| i * i % 7 + i * 11).collect();
    let mut config = vec![0u8; 32];
    config[..4].copy_from_slice(&7i32.to_le_bytes());
    for (i, o) in OFFSETS.iter().enumerate() {
        config[4 + 2 * i..6 + 2 * i].copy_from_slice(&o.to_le_bytes());
    }
    config[16..24].copy_from_slice(&0.375f64.to_le_bytes());
    config[24..29].copy_from_slice(&FLAGS);
    vec![
        Case::new("transpose_tile", "memory", [3, 2, 1], [32, 8, 1])
            .f32s(r.f32s(70 * 50, -1.0, 1.0))
            .f32s(vec![0.0; 70 * 50])
            .int(70)
            .int(50)
            .does(|d| {
                let a = d[0].f32s().clone();
                (0..3500).for_each(|k| d[1].f32s()[k % 70 * 50 + k / 70] = a[k]);
            }),
        Case::new("matmul_tile", "memory", [3, 3, 1], [16, 16, 1])
            .f32s(r.f32s(48 * 48, -1.0, 1.0))
            .f32s(r.f32s(48 * 48, -1.0, 1.0))
            .f32s(vec![0.0; 48 * 48])
            .int(48)
            .does(|d| {
                let (a, b) = (d[0].f32s().clone(), d[1].f32s().clone());
                for (i, c) in d[2].f32s().iter_mut().enumerate() {
                    *c = (0..48).fold(0.0, |s: f32, k| a[i / 48 * 48 + k].mul_add(b[k * 48 + i % 48], s));
                }
            }),
        Case::new("matmul_dp4a", "memory", [3, 3, 1], [8, 8, 1])
            .i32s(r.i32s(24 * 6, -(1 << 31), 1 << 31))
            .i32s(r.i32s(24 * 6, -(1 << 31), 1 << 31))
            .i32s(vec![0; 24 * 24])
            .int(24)
            .does(dp4a),
        Case::new("stencil", "memory", [3, 3, 1], [16, 8, 1])
            .f32s(r.f32s(40 * 21, -1.0, 1.0))
            .f32s(vec![7.0; 40 * 21])
            .int(40)
            .int(21)
            .does(stencil),
        line("local_histogram", "memory", 2, 64).u8s(r.u8s(128 * 40, 256)).u32s(vec![0; 256]).int(40).does(|d| {
            let a = d[0].u8s().clone();
            for (t, part) in a.chunks(40).enumerate() {
                let mut counts = [0u32; 16];
                part.iter().for_each(|x| counts[usize::from(x & 15)] += 1);
                let best = (1..16).fold(0, |b, i| if counts[i] > counts[b] { i } else { b });
                d[1].u32s()[2 * t] = best as u32;
                d[1].u32s()[2 * t + 1] = counts[best];
            }
        }),
        line("crc32", "memory", 2, 32).u8s(r.u8s(800, 256)).i32s(starts).u32s(vec![0; 64]).does(crc32),
        line("global_tables", "memory", 1, 256).i32s(r.i32s(256, 0, 1000)).i32s(vec![0; 256]).does(|d| {
            const PRIMES: [i32; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
            let a = d[0].i32s().clone();
            for t in 0..256 {
                let k = (a[t] >> 1) as usize;
                let value = if a[t] & 1 == 0 { PRIMES[k % 12] } else { ((k % 6 + 1) * (k % 6 + 1)) as i32 };
                d[1].i32s()[t] = value * 1000 + a[255 - t] * 2 + 1;
            }
        }),
        line("dynamic_shared", "memory", 1, 64)
            .i32s(r.i32s(203, -99999, 99999))
            .i32s(vec![0; 203])
            .int(203)
            .shared(6 * 203)
            .does(|d| {
                let a = d[0].i32s().clone();
                (0..203).for_each(|i| d[1].i32s()[i] = a[202 - i] - i32::from((a[i * 5 % 203] >> 3) as i16));
            }),
        line("struct_argument", "memory", 1, 64)
            .bytes(&config)
            .i32s(r.i32s(64, -5000, 5000))
            .f64s(vec![0.0; 64])
            .bytes(&[3])
            .does(|d| {
                let a = d[0].i32s().clone();
                for (t, x) in a.into_iter().enumerate() {
                    let y = x * 7 + i32::from(OFFSETS[((x >> 2) % 6).max(0) as usize]);
                    d[1].f64s()[t] = f64::from(if FLAGS[t % 5] != 0 { y >> 3 } else { y }) * 0.375;
                }
            }),
        line("vector_access", "memory", 2, 32)
            .f32s(r.f32s(256, -4.0, 4.0))
            .i32s(r.i32s(128, -(1 << 20), 1 << 20))
            .u8s(r.u8s(256, 256))
            .f32s(vec![0.0; 256])
            .buffer(Data::U16(vec![0; 256]))
            .does(vectors),
        line("unaligned_words", "memory", 4, 64).u8s(r.u8s(250, 256)).u32s(vec![5; 256]).int(250).does(|d| {
            let a = d[0].u8s().clone();
            (0..247).for_each(|i| d[1].u32s()[i] = u32::from_le_bytes(a[i..i + 4].try_into().unwrap()));
        }),
        line("async_copy", "memory", 1, 32).i32s(r.i32s(128 * 7, -1000, 1000)).i32s(vec![0; 32]).int(7).does(|d| {
            let a = d[0].i32s().clone();
            for t in 0..32 {
                let tile = |n: usize| (0..4).map(move |k| (n * 128 + 127 - t * 4 - k, k as i32 + 1));
                d[1].i32s()[t] = (0..7).flat_map(tile).map(|(i, w)| a[i] * w).sum();
            }
        }),
    ]
}

const OFFSETS: [i16; 6] = [100, -200, 300, -400, 500, -32768];
const FLAGS: [u8; 5] = [1, 0, 0, 255, 0];

fn dp4a(d: &mut [Data]) {
    let (a, b) = (d[0].i32s().clone(), d[1].i32s().clone());
    for i in 0..24 * 24 {
        let dot = |k: usize| -> i32 {
            let (x, y) = (a[i / 24 * 6 + k].to_le_bytes(), b[i % 24 * 6 + k].to_le_bytes());
            (0..4).map(|j| i32::from(x[j].cast_signed()) * i32::from(y[j].cast_signed())).sum()
        };
        d[2].i32s()[i] = (0..6).map(dot).sum();
    }
}

fn stencil(d: &mut [Data]) {
    let a = d[0].f32s().clone();
    let at = |x: i32, y: i32| a[(y.clamp(0, 20) * 40 + x.clamp(0, 39)) as usize];
    for y in 0..21 {
        for x in 0..40 {
            let sum = 4.0f32.mul_add(at(x, y), -at(x, y - 1));
            d[1].f32s()[(y * 40 + x) as usize] = sum - at(x, y + 1) - at(x - 1, y) - at(x + 1, y);
        }
    }
}

fn crc32(d: &mut [Data]) {
    let (text, starts) = (d[0].u8s().clone(), d[1].i32s().clone());
    for t in 0..64 {
        let mut crc = u32::MAX;
        for byte in &text[starts[t] as usize..(starts[t + 1].max(starts[t])) as usize] {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
            }
        }
        d[2].u32s()[t] = !crc;
    }
}

fn vectors(d: &mut [Data]) {
    let (a, b, c) = (d[0].f32s().clone(), d[1].i32s().clone(), d[2].u8s().clone());
    for i in 0..64 {
        let (x, y, z) = (&a[4 * i..4 * i + 4], &b[2 * i..2 * i + 2], &c[4 * i..4 * i + 4]);
        let wide = [x[3], x[2] + y[0] as f32, x[1] * f32::from(z[0]), (y[1] + i32::from(z[3])) as f32];
        d[3].f32s()[4 * i..4 * i + 4].copy_from_slice(&wide);
        let narrow = [u16::from(z[0]) * 257, u16::from(z[1]) + u16::from(z[2]), y[0] as u16, (y[1] >> 8) as u16];
        d[4].u16s()[4 * i..4 * i + 4].copy_from_slice(&narrow);
    }
}
