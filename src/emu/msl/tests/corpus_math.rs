//! Elementwise kernels, matrix-vector products, integers, conversions.

use super::corpus::{Case, Expect, Random, f16s, f32s, i32s, u32s, u64s, zeros};
use crate::exec::half::{half_bits, round_bfloat, round_half};

fn rng() -> Random {
    Random(11)
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        saxpy(),
        convolution(),
        matvec(),
        rng_kernel(),
        layernorm(),
        mandelbrot(),
        bodies(),
        bit_tricks(),
        packing(),
        int8_dot(),
        lcg(),
        gelu(),
        bfloat(),
        vectors(),
        small_integers(),
        functions(),
    ]
}

fn saxpy() -> Case {
    let (x, y) = (rng().units(100), Random(3).units(100));
    let out: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 2.5 * x + y).chain([7.0; 28]).collect();
    let mut y = y;
    y.extend([7.0; 28]);
    Case::new(
        "saxpy",
        "kernel void saxpy(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], constant float& a [[buffer(2)]],
    constant uint& n [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  if (i >= n) return;
  y[i] = a * x[i] + y[i];
}",
        2,
        64,
    )
    .buffer(f32s(&x))
    .buffer(f32s(&y))
    .buffer(f32s(&[2.5]))
    .buffer(u32s(&[100]))
    .expect(1, Expect::Bytes(f32s(&out)))
}

fn convolution() -> Case {
    let x = rng().units(24 * 16);
    let weights = [1.0, 2.0, 1.0, 2.0, 4.0, 2.0, 1.0, 2.0, -1.0_f32];
    let mut out = Vec::new();
    for row in 0..16_i32 {
        for column in 0..24_i32 {
            let mut sum = 0.0;
            for dy in -1..=1 {
                for dx in -1..=1 {
                    let (r, c) = (row + dy, column + dx);
                    if (0..16).contains(&r) && (0..24).contains(&c) {
                        sum +=
                            f64::from(x[(r * 24 + c) as usize]) * f64::from(weights[((dy + 1) * 3 + dx + 1) as usize]);
                    }
                }
            }
            out.push(sum as f32);
        }
    }
    Case::new(
        "convolve",
        "constant float weights[3][3] = {{1, 2, 1}, {2, 4, 2}, {1, 2, -1.0f}};
kernel void convolve(device const float* x [[buffer(0)]], device float* out [[buffer(1)]], uint2 p [[thread_position_in_grid]], uint2 size [[threads_per_grid]]) {
  float sum = 0.0;
  for (int dy = -1; dy <= 1; dy++)
    for (int dx = -1; dx <= 1; dx++) {
      int2 q = int2(p) + int2(dx, dy);
      if (q.x < 0 || q.y < 0 || q.x >= (int)size.x || q.y >= (int)size.y) continue;
      sum += x[q.y * size.x + q.x] * weights[dy + 1][dx + 1];
    }
  out[p.y * size.x + p.x] = sum;
}",
        1,
        1,
    )
    .shape([3, 4, 1], [8, 4, 1])
    .buffer(f32s(&x))
    .buffer(zeros(24 * 16 * 4))
    .expect(1, Expect::Floats(out, 1e-5))
}

fn matvec() -> Case {
    let mut random = rng();
    let cut = |v: &f32| f32::from_bits(round_half(v.to_bits()));
    let w: Vec<f32> = random.units(16 * 64).iter().map(cut).collect();
    let x: Vec<f32> = random.units(64).iter().map(cut).collect();
    let row = |c: &[f32]| c.iter().zip(&x).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32;
    let out: Vec<f32> = w.chunks(64).map(row).collect();
    Case::new(
        "matvec",
        "kernel void matvec(device const half4* w [[buffer(0)]], device const half4* x [[buffer(1)]], device half* out [[buffer(2)]],
    uint row [[thread_position_in_grid]]) {
  float4 sum = float4(0.0f);
  for (uint k = 0; k < 16; k++) sum += float4(w[row * 16 + k]) * float4(x[k]);
  out[row] = half(dot(sum, float4(1.0f)));
}",
        1,
        16,
    )
    .buffer(f16s(&w))
    .buffer(f16s(&x))
    .buffer(zeros(32))
    .expect(2, Expect::Halves(out, 2e-3))
}

fn rng_kernel() -> Case {
    let step = |seed: u32| {
        let (mut x, mut out) = (seed.wrapping_mul(747_796_405).wrapping_add(1), Vec::new());
        for _ in 0..4 {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            out.push((x >> 8) as f32 / 16_777_216.0);
        }
        out
    };
    let out: Vec<f32> = (0..40).flat_map(step).collect();
    Case::new(
        "random",
        "static inline uint next_random(thread uint& x) { x ^= x << 13; x ^= x >> 17; x ^= x << 5; return x; }
kernel void random(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  uint state = i * 747796405u + 1;
  for (int k = 0; k < 4; k++) out[4 * i + k] = (next_random(state) >> 8) * (1.0f / 16777216.0f);
}",
        1,
        40,
    )
    .buffer(zeros(640))
    .expect(0, Expect::Bytes(f32s(&out)))
}

fn layernorm() -> Case {
    let x = rng().units(3 * 64);
    let row = |c: &[f32]| -> Vec<f32> {
        let mean = c.iter().map(|v| f64::from(*v)).sum::<f64>() / 64.0;
        let var = c.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / 64.0;
        c.iter().map(|v| ((f64::from(*v) - mean) / (var + 1e-5).sqrt()) as f32).collect()
    };
    let out: Vec<f32> = x.chunks(64).flat_map(row).collect();
    Case::new(
        "layernorm",
        "template <typename T> inline T group_sum(T v, threadgroup T* part, uint sg, uint lane) {
  v = simd_sum(v);
  if (lane == 0) part[sg] = v;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  T all = part[0] + part[1];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return all;
}
kernel void layernorm(device float* x [[buffer(0)]], uint g [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]],
    uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float part[2];
  float v = x[g * 64 + t];
  float mean = group_sum(v, part, sg, lane) / 64.0f;
  float d = v - mean;
  float variance = group_sum<float>(d * d, part, sg, lane) / 64.0f;
  x[g * 64 + t] = d * rsqrt(variance + 1e-5f);
}",
        3,
        64,
    )
    .buffer(f32s(&x))
    .expect(0, Expect::Floats(out, 1e-4))
}

fn mandelbrot() -> Case {
    let point = |n: u32| {
        let (cx, cy) = ((n % 32) as f32 * 0.09 - 2.0, (n / 32) as f32 * 0.15 - 1.2);
        let (mut x, mut y, mut k) = (0.0_f32, 0.0_f32, 0);
        while k < 100 && x * x + y * y <= 4.0 {
            (x, y) = (x * x - y * y + cx, 2.0 * x * y + cy);
            k += 1;
        }
        k
    };
    let out: Vec<u32> = (0..512).map(point).collect();
    Case::new(
        "mandelbrot",
        "kernel void mandelbrot(device int* out [[buffer(0)]], uint3 p [[thread_position_in_grid]]) {
  const float2 c = float2(p.x, p.y) * float2(0.09f, 0.15f) - float2(2.0f, 1.2f);
  float2 z = 0.0f;
  int k = 0;
  while (true) {
    if (k >= 100) break;
    float xx = z.x * z.x, yy = z.y * z.y;
    if (xx + yy > 4.0f) break;
    z = float2(xx - yy + c.x, 2.0f * z.x * z.y + c.y);
    ++k;
  }
  out[p.y * 32 + p.x] = k;
}",
        1,
        1,
    )
    .shape([2, 4, 1], [16, 4, 1])
    .buffer(zeros(2048))
    .expect(0, Expect::Bytes(u32s(&out)))
}

fn bodies() -> Case {
    let p = rng().units(4 * 20);
    let mut out = Vec::new();
    for a in p.chunks(4) {
        let mut force = [0.0_f64; 3];
        for b in p.chunks(4) {
            let d: Vec<f64> = (0..3).map(|k| f64::from(b[k]) - f64::from(a[k])).collect();
            let square = d.iter().map(|v| v * v).sum::<f64>() + 0.01;
            (0..3).for_each(|k| force[k] += d[k] * f64::from(b[3]) / (square * square.sqrt()));
        }
        out.extend([force[0] as f32, force[1] as f32, force[2] as f32, 0.0]);
    }
    Case::new(
        "bodies",
        "struct Body { float3 at; };
kernel void bodies(device const float4* p [[buffer(0)]], device float4* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  float3 own = p[i].xyz;
  float3 force = float3(0);
  for (int k = 0; k < 20; k++) {
    float3 d = p[k].xyz - own;
    float r = rsqrt(dot(d, d) + 0.01f);
    force += d * (p[k].w * r * r * r);
  }
  out[i] = float4(force, 0);
}",
        1,
        20,
    )
    .buffer(f32s(&p))
    .buffer(zeros(320))
    .expect(1, Expect::Floats(out, 1e-4))
}

fn bit_tricks() -> Case {
    let mut random = rng();
    let x: Vec<u32> = (0..32).map(|n| if n == 0 { 0 } else { random.next() >> random.below(32) }).collect();
    let of = |v: u32| {
        let high = ((i64::from(v as i32) * i64::from(0x1234_5678)) >> 32) as u32;
        [
            v.count_ones(),
            v.leading_zeros(),
            v.trailing_zeros(),
            v.reverse_bits(),
            v.rotate_left(7),
            high,
            v >> 3 & 31,
            v & !0xff0 | 0xab0,
        ]
    };
    let out: Vec<u32> = x.iter().flat_map(|v| of(*v)).collect();
    Case::new(
        "bits",
        "kernel void bits(device const uint* x [[buffer(0)]], device uint* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  uint v = x[i];
  device uint* o = out + 8 * i;
  *o++ = popcount(v);
  *o++ = clz(v);
  *o++ = ctz(v);
  *o++ = reverse_bits(v);
  *o++ = rotate(v, 7u);
  *o++ = (uint)mulhi((int)v, 0x12345678);
  *o++ = extract_bits(v, 3, 5);
  *o = insert_bits(v, 0xabu, 4, 8);
}",
        1,
        32,
    )
    .buffer(u32s(&x))
    .buffer(zeros(1024))
    .expect(1, Expect::Bytes(u32s(&out)))
}

fn packing() -> Case {
    let x = rng().units(32);
    let mut out = Vec::new();
    for v in &x {
        let h = u32::from(half_bits(v.to_bits()));
        let t = u32::from(half_bits((v * 3.0).to_bits()));
        out.extend([h | t << 16, v.to_bits() ^ 0x8000_0000, (v.to_bits() >> 24) | 0x100]);
    }
    Case::new(
        "packing",
        "kernel void packing(device const float* x [[buffer(0)]], device uint* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  half2 h = half2((half)x[i], (half)(x[i] * 3.0f));
  out[3 * i] = as_type<uint>(h);
  out[3 * i + 1] = as_type<uint>(x[i]) ^ (1u << 31);
  uchar4 b = as_type<uchar4>(x[i]);
  ushort2 s = as_type<ushort2>(uchar4(b.w, 1, b.xy));
  out[3 * i + 2] = s.x;
}",
        1,
        32,
    )
    .buffer(f32s(&x))
    .buffer(zeros(384))
    .expect(1, Expect::Bytes(u32s(&out)))
}

fn int8_dot() -> Case {
    let mut random = rng();
    let (a, b): (Vec<u8>, Vec<u8>) = (0..256).map(|_| (random.next() as u8, random.next() as u8)).unzip();
    let row = |n: usize| (0..16).map(|k| i32::from(a[n * 16 + k] as i8) * i32::from(b[n * 16 + k] as i8)).sum::<i32>();
    let out: Vec<i32> = (0..16).map(row).collect();
    Case::new(
        "int8_dot",
        "kernel void int8_dot(device const char4* a [[buffer(0)]], device const char4* b [[buffer(1)]], device int* out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  int sum = 0;
  for (int k = 0; k < 4; k++) {
    int4 p = int4(a[i * 4 + k]) * int4(b[i * 4 + k]);
    sum += p.x + p.y + p.z + p.w;
  }
  out[i] = sum;
}",
        1,
        16,
    )
    .buffer(a)
    .buffer(b)
    .buffer(zeros(64))
    .expect(2, Expect::Bytes(i32s(&out)))
}

fn lcg() -> Case {
    let of = |n: u64| {
        let mut x = n + 1;
        for _ in 0..10 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        }
        x ^= x >> 31;
        [
            x,
            x % 1_000_003,
            (x as i64 / -7) as u64,
            ((x as i64) >> 5) as u64,
            u64::from((x as i64) < 0),
            x.rotate_left(9),
        ]
    };
    let out: Vec<u64> = (0..33).flat_map(of).collect();
    Case::new(
        "lcg",
        "kernel void lcg(device ulong* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  ulong x = i + 1;
  for (int k = 0; k < 10; k++) x = x * 6364136223846793005ul + 1442695040888963407ul;
  x ^= x >> 31;
  out[6 * i] = x;
  out[6 * i + 1] = x % 1000003;
  out[6 * i + 2] = (long)x / -7;
  out[6 * i + 3] = (long)x >> 5;
  out[6 * i + 4] = (long)x < 0 ? 1 : 0;
  out[6 * i + 5] = x << 9 | x >> 55;
}",
        1,
        33,
    )
    .buffer(zeros(33 * 48))
    .expect(0, Expect::Bytes(u64s(&out)))
}

fn gelu() -> Case {
    let x: Vec<f32> = rng().units(64).iter().map(|v| v * 4.0).collect();
    let of = |v: &f32| {
        let v = f64::from(f32::from_bits(round_half(v.to_bits())));
        (0.5 * v * (1.0 + (0.797_884_560_8 * (v + 0.044_715 * v * v * v)).tanh())) as f32
    };
    let out: Vec<f32> = x.iter().map(of).collect();
    Case::new(
        "gelu",
        "METAL_FUNC half4 gelu_of(half4 h) {
  float4 x = float4(h);
  return half4(0.5f * x * (1.0f + precise::tanh(0.7978845608f * (x + 0.044715f * x * x * x))));
}
kernel void gelu(device half4* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = gelu_of(x[i]); }",
        1,
        16,
    )
    .buffer(f16s(&x))
    .expect(0, Expect::Halves(out, 2e-3))
}

fn bfloat() -> Case {
    let x = rng().units(32);
    let cut = |v: f32| f32::from_bits(round_bfloat(v.to_bits()));
    let mut out = Vec::new();
    for v in &x {
        let b = cut(*v);
        let s = cut(b + cut(3.0));
        let p = cut(s * b);
        out.extend([s, p, b + *v, if p < s { 1.0 } else { 0.0 }, cut(17.0 / 3.0_f32)]);
    }
    Case::new(
        "bf16",
        "kernel void bf16(device const float* x [[buffer(0)]], device float* out [[buffer(1)]], device bfloat* low [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  bfloat b = bfloat(x[i]);
  bfloat s = b + bfloat(3.0f);
  bfloat p = s * b;
  low[i] = p;
  device float* o = out + 5 * i;
  o[0] = s; o[1] = low[i]; o[2] = b + x[i]; o[3] = p < s; o[4] = (bfloat)17 / (bfloat)3;
}",
        1,
        32,
    )
    .buffer(f32s(&x))
    .buffer(zeros(640))
    .buffer(zeros(64))
    .expect(1, Expect::Bytes(f32s(&out)))
}

fn vectors() -> Case {
    let x = rng().units(4 * 16);
    let mut out = Vec::new();
    for c in x.chunks(4) {
        out.extend([
            c[3],
            c[0],
            c[1] + 1.0,
            c[0] + c[2],
            c[2].max(0.0),
            c[1].clamp(-0.5, 0.5),
            if c[0] < c[1] { c[2] } else { c[3] },
            c[3].abs(),
        ]);
    }
    Case::new(
        "vectors",
        "kernel void vectors(device const float4* x [[buffer(0)]], device float4* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  float4 v = x[i], w;
  w.xy = v.wx;
  w[2] = v.y + 1.0f;
  int last = 3;
  w[last] = v.r + v.b;
  out[2 * i] = w;
  float2 low = clamp(v.yz, -0.5f, 0.5f);
  out[2 * i + 1] = float4(max(v, 0.0f).z, low.x, select(v.w, v.z, v.x < v.y), fabs(v).w);
}",
        1,
        16,
    )
    .buffer(f32s(&x))
    .buffer(zeros(512))
    .expect(1, Expect::Bytes(f32s(&out)))
}

fn small_integers() -> Case {
    let mut random = rng();
    let x: Vec<u8> = (0..64).map(|_| random.next() as u8).collect();
    let of = |c: &[u8]| {
        let (a, b) = (c[0] as i8, c[1] as i8);
        let wide = i32::from(a) * i32::from(b);
        let shorts = (wide as i16, (wide as u16) >> 3);
        [
            a.wrapping_add(b) as i32,
            i32::from(a) + i32::from(b),
            i32::from(shorts.0),
            i32::from(shorts.1),
            i32::from(a.saturating_sub(b)),
            i32::from(c[0] / c[1].max(1)),
        ]
    };
    let out: Vec<i32> = x.chunks(2).flat_map(of).collect();
    Case::new(
        "small",
        "kernel void small(device const char2* x [[buffer(0)]], device int* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  char2 v = x[i];
  char2 s = v + v.yx;
  short p = v.x * v.y;
  ushort q = v.x * v.y;
  q >>= 3;
  uchar2 u = (uchar2)(v);
  device int* o = out + 6 * i;
  o[0] = s.x; o[1] = v.x + v.y; o[2] = p; o[3] = q; o[4] = subsat(v, v.yx).x; o[5] = u.x / max(u.y, (uchar)1);
}",
        1,
        32,
    )
    .buffer(x)
    .buffer(zeros(32 * 24))
    .expect(1, Expect::Bytes(i32s(&out)))
}

fn functions() -> Case {
    let x: Vec<f32> = rng().units(32).iter().map(|v| v * 3.0).collect();
    let mut out = Vec::new();
    for v in &x {
        let d = f64::from(*v);
        let half_way = v.round_ties_even();
        out.extend([
            d.sin() as f32,
            d.cos() as f32,
            d.exp() as f32,
            d.abs().sqrt() as f32,
            (d.abs() + 1.0).ln() as f32,
            d.abs().powf(1.5) as f32,
            d.atan2(2.0) as f32,
            half_way,
            v.trunc(),
            (d - d.floor()) as f32,
            d.signum() as f32,
            (d % 0.7) as f32,
        ]);
    }
    Case::new(
        "functions",
        "kernel void functions(device const float* x [[buffer(0)]], device float* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  float v = x[i];
  device float* o = out + 12 * i;
  o[0] = sin(v); o[1] = precise::cos(v); o[2] = fast::exp(v); o[3] = sqrt(fabs(v)); o[4] = log(abs(v) + 1.0f);
  o[5] = pow(abs(v), 1.5f); o[6] = atan2(v, 2.0f); o[7] = rint(v); o[8] = trunc(v); o[9] = fract(v); o[10] = sign(v); o[11] = fmod(v, 0.7f);
}",
        1,
        32,
    )
    .buffer(f32s(&x))
    .buffer(zeros(32 * 48))
    .expect(1, Expect::Floats(out, 2e-6))
}
