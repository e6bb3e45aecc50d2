//! Switches, loops that diverge, recursion, calls through pointers.

use super::{Case, Data, Random, line};

pub fn cases() -> Vec<Case> {
    let mut r = Random::new(4);
    let starts: Vec<i32> = (0..33).map(|i| i * 40).collect();
    let pattern = b"abaab".to_vec();
    vec![
        line("bytecode", "control", 2, 64)
            .u8s(r.u8s(4 * 96, 250))
            .i32s(r.i32s(128, -500, 500))
            .i32s(vec![0; 256])
            .int(96)
            .does(bytecode),
        line("collatz", "control", 2, 64)
            .u32s(r.i32s(128, 1, 100_000).iter().map(|x| *x as u32).collect())
            .u32s(vec![0; 256])
            .does(|d| {
                for (i, a) in d[0].u32s().clone().into_iter().enumerate() {
                    let (mut x, mut steps, mut peak) = (u64::from(a), 0, 0);
                    while x != 1 {
                        x = if x & 1 == 1 { 3 * x + 1 } else { x >> 1 };
                        steps += 1;
                        peak = peak.max((x >> 4) as u32);
                    }
                    d[1].u32s()[2 * i..2 * i + 2].copy_from_slice(&[steps, peak]);
                }
            }),
        line("gcd_lcm", "control", 2, 64)
            .u32s(r.u32s(128).iter().map(|x| x >> (x & 15) | 1).collect())
            .u32s(r.u32s(128).iter().map(|x| x >> (x & 15) | 1).collect())
            .u64s(vec![0; 128])
            .does(|d| {
                let (a, b) = (d[0].u32s().clone(), d[1].u32s().clone());
                for i in 0..128 {
                    let (mut x, mut y) = (a[i], b[i]);
                    while y != 0 {
                        (x, y) = (y, x % y);
                    }
                    d[2].u64s()[i] = (u64::from(a[i] / x) * u64::from(b[i])) << 1 | u64::from(x & 1);
                }
            }),
        line("loop_exits", "control", 2, 64).i32s(r.i32s(128, 0, 100_000)).i32s(vec![0; 128]).int(60).does(|d| {
            let a = d[0].i32s().clone();
            (0..128).for_each(|t| d[1].i32s()[t] = loop_exits(a[t], 60));
        }),
        line("recursion", "control", 2, 32).u32s(r.u32s(64)).u32s(vec![0; 64]).does(|d| {
            let a = d[0].u32s().clone();
            (0..64).for_each(|t| d[1].u32s()[t] = ackermann(a[t] % 3, a[t] / 3 % 5));
        }),
        line("function_pointers", "control", 2, 32).i32s(r.i32s(64, -1000, 1000)).i32s(vec![0; 64]).int(9).does(|d| {
            for (t, mut x) in d[0].i32s().clone().into_iter().enumerate() {
                for r in 0..9 {
                    let y = match (x + r) & 3 {
                        0 => x.wrapping_mul(2),
                        1 => x.wrapping_mul(x),
                        2 => !x ^ 0x55,
                        _ => x / 2 - 1,
                    };
                    x = y & 0xffff;
                }
                d[1].i32s()[t] = x;
            }
        }),
        Case::new("mandelbrot", "control", [4, 3, 1], [16, 8, 1])
            .u32s(vec![999; 60 * 24])
            .int(60)
            .int(24)
            .int(200)
            .bytes(&0.05f32.to_le_bytes())
            .does(mandelbrot),
        line("queens", "control", 1, 32).i32s(vec![-1; 32]).int(7).does(|d| {
            (0..32).for_each(|t| d[0].i32s()[t] = if t < 7 { queens(7, &mut vec![t]) } else { 0 });
        }),
        line("find_string", "control", 1, 32)
            .u8s(r.u8s(32 * 40, 2).iter().map(|x| b'a' + x).collect())
            .i32s(starts)
            .u8s(pattern)
            .int(5)
            .i32s(vec![0; 64])
            .does(|d| {
                let (text, pattern) = (d[0].u8s().clone(), d[2].u8s().clone());
                for (t, part) in text.chunks(40).enumerate() {
                    let places: Vec<usize> = (0..=40 - 5).filter(|i| part[*i..].starts_with(&pattern)).collect();
                    d[3].i32s()[2 * t] = places.first().map_or(-1, |p| *p as i32);
                    d[3].i32s()[2 * t + 1] = places.len() as i32;
                }
            }),
        line("virtual_calls", "control", 2, 32).i32s(r.i32s(64, 0, 1 << 20)).i32s(vec![0; 64]).does(|d| {
            for (t, x) in d[0].i32s().clone().into_iter().enumerate() {
                let (w, h) = (x & 63, x >> 6 & 63);
                d[1].i32s()[t] = match x % 3 {
                    0 => w * h,
                    1 => w * h / 2,
                    _ => 2 * (w + h) - 4,
                };
            }
        }),
    ]
}

fn bytecode(d: &mut [Data]) {
    let (programs, inputs) = (d[0].u8s().clone(), d[1].i32s().clone());
    for (t, input) in inputs.into_iter().enumerate() {
        let code = &programs[(t & 3) * 96..(t & 3) * 96 + 96];
        let (mut stack, mut top, mut steps, mut pc) = ([0i32; 16], 0usize, 0, 0usize);
        stack[0] = input;
        while pc < 96 && steps < 500 {
            let (op, arg) = (code[pc] >> 4, usize::from(code[pc] & 15));
            pc += 1;
            let n = arg as i32;
            match op {
                0 => {
                    top = (top + 1).min(15);
                    stack[top] = n;
                }
                1..=3 if top > 0 => {
                    let f = [i32::wrapping_add, i32::wrapping_sub, i32::wrapping_mul][usize::from(op - 1)];
                    stack[top - 1] = f(stack[top - 1], stack[top]);
                    top -= 1;
                }
                4 => stack[top] ^= n * 0x0101_0101,
                5 => stack[top] >>= n,
                6 => stack[top] <<= n,
                7 if top > 0 => stack.swap(top, top - 1),
                8 if stack[top] & 1 == 1 => pc += arg,
                9 if arg < pc => {
                    let taken = stack[top] > 0;
                    stack[top] = stack[top].wrapping_sub(1);
                    pc = if taken { arg } else { pc };
                }
                10 => {
                    top = (top + 1).min(15);
                    stack[top] = stack[if top > arg { top - 1 - arg } else { 0 }];
                }
                11 => stack[top] = !stack[top],
                12 => stack[top] /= n + 1,
                13 => stack[top] %= n + 2,
                14 if top > 0 => top -= 1,
                15 => pc = 96,
                _ => {}
            }
            steps += 1;
        }
        d[2].i32s()[2 * t] = stack[top];
        d[2].i32s()[2 * t + 1] = steps * 100 + top as i32;
    }
}

fn loop_exits(seed: i32, n: i32) -> i32 {
    let mut sum = 0;
    for i in 0..n {
        if (seed + i) % 7 == 3 {
            continue;
        }
        let mut j = 0;
        loop {
            let x = (seed ^ (i * 31)) + j * 17;
            if x % 11 == 0 {
                break;
            }
            if x % 101 == 55 {
                return -sum - 2;
            }
            if x % 211 == 1 {
                return -1;
            }
            sum += x & 255;
            j += 1;
            if j >= (seed & 15) + 2 {
                break;
            }
        }
        if sum > 20000 {
            break;
        }
    }
    sum
}

fn ackermann(m: u32, n: u32) -> u32 {
    match (m, n) {
        (0, _) => n + 1,
        (_, 0) => ackermann(m - 1, 1),
        _ => ackermann(m - 1, ackermann(m, n - 1)),
    }
}

fn mandelbrot(d: &mut [Data]) {
    for y in 0..24 {
        for x in 0..60 {
            let (cr, ci) = ((x as f32).mul_add(0.05, -2.0), (y as f32).mul_add(0.05, -1.0));
            let (mut zr, mut zi, mut n) = (0.0f32, 0.0f32, 0);
            while n < 200 {
                let (rr, ii) = (zr * zr, zi * zi);
                if rr + ii > 4.0 {
                    break;
                }
                zi = (zr + zr).mul_add(zi, ci);
                zr = rr - ii + cr;
                n += 1;
            }
            d[0].u32s()[y * 60 + x] = n;
        }
    }
}

/// How many ways there are to go on from these queens.
fn queens(n: usize, placed: &mut Vec<usize>) -> i32 {
    if placed.len() == n {
        return 1;
    }
    let mut count = 0;
    for c in 0..n {
        let row = placed.len();
        if placed.iter().enumerate().all(|(r, q)| *q != c && q.abs_diff(c) != row - r) {
            placed.push(c);
            count += queens(n, placed);
            placed.pop();
        }
    }
    count
}
