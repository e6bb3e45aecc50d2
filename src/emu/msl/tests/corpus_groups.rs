//! Threadgroup memory, barriers, simdgroups, atomics.

use super::corpus::{Case, Expect, Random, f16s, f32s, u32s, zeros};

fn rng() -> Random {
    Random(7)
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        reduction(),
        simd_reduction(),
        scan(),
        simd_scan(),
        bitonic(),
        transpose(),
        histogram(),
        simdgroup_gemm(),
        simdgroup_gemm_half(),
        tiled_gemm(),
        atomics(),
        float_cas(),
        softmax(),
        argmax(),
        ballot(),
        dynamic_memory(),
        attention(),
    ]
}

fn reduction() -> Case {
    let x = rng().units(1024);
    let sums: Vec<f32> = x.chunks(256).map(|c| c.iter().map(|v| f64::from(*v)).sum::<f64>() as f32).collect();
    Case::new(
        "reduce",
        "kernel void reduce(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
    uint t [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]], uint n [[threads_per_threadgroup]]) {
  threadgroup float part[256];
  part[t] = x[g * n + t];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint s = n / 2; s > 0; s >>= 1) {
    if (t < s) part[t] += part[t + s];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (t == 0) out[g] = part[0];
}",
        4,
        256,
    )
    .buffer(f32s(&x))
    .buffer(zeros(16))
    .expect(1, Expect::Floats(sums, 1e-5))
}

fn simd_reduction() -> Case {
    let x = rng().units(300);
    let sum = x.iter().map(|v| f64::from(*v)).sum::<f64>() as f32;
    let most = x.iter().copied().fold(f32::MIN, f32::max);
    Case::new(
        "simd_reduce",
        "kernel void simd_reduce(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
    uint t [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint sg [[simdgroup_index_in_threadgroup]], uint count [[simdgroups_per_threadgroup]]) {
  threadgroup float sums[32];
  threadgroup float most[32];
  float s = simd_sum(x[t]), m = simd_max(x[t]);
  if (lane == 0) { sums[sg] = s; most[sg] = m; }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (t == 0) {
    float all = 0.0f, top = -INFINITY;
    for (uint i = 0; i < count; i++) { all += sums[i]; top = max(top, most[i]); }
    out[0] = all;
    out[1] = top;
  }
}",
        1,
        300,
    )
    .buffer(f32s(&x))
    .buffer(zeros(8))
    .expect(1, Expect::Floats(vec![sum, most], 1e-5))
}

fn scan() -> Case {
    let mut random = rng();
    let x: Vec<u32> = (0..512).map(|_| random.below(100)).collect();
    let sums: Vec<u32> = x
        .chunks(128)
        .flat_map(|c| {
            c.iter().scan(0, |sum, v| {
                *sum += v;
                Some(*sum)
            })
        })
        .collect();
    Case::new(
        "scan",
        "kernel void scan(device uint* x [[buffer(0)]], uint t [[thread_position_in_threadgroup]], uint i [[thread_position_in_grid]]) {
  threadgroup uint a[2][128];
  int from = 0;
  a[0][t] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint step = 1; step < 128; step *= 2) {
    a[1 - from][t] = t >= step ? a[from][t] + a[from][t - step] : a[from][t];
    from = 1 - from;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  x[i] = a[from][t];
}",
        4,
        128,
    )
    .buffer(u32s(&x))
    .expect(0, Expect::Bytes(u32s(&sums)))
}

fn simd_scan() -> Case {
    let mut random = rng();
    let x: Vec<u32> = (0..64).map(|_| random.below(100)).collect();
    let mut out = Vec::new();
    for c in x.chunks(32) {
        for n in 0..32 {
            let before: u32 = c[..n].iter().sum();
            out.extend([before, before + c[n]]);
        }
    }
    Case::new(
        "simd_scan",
        "kernel void simd_scan(device const uint* x [[buffer(0)]], device uint2* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  out[i] = uint2(simd_prefix_exclusive_sum(x[i]), simd_prefix_inclusive_sum(x[i]));
}",
        1,
        64,
    )
    .buffer(u32s(&x))
    .buffer(zeros(512))
    .expect(1, Expect::Bytes(u32s(&out)))
}

fn bitonic() -> Case {
    let mut random = rng();
    let x: Vec<u32> = (0..256).map(|_| random.next()).collect();
    let mut sorted = x.clone();
    sorted.sort_unstable();
    Case::new(
        "bitonic",
        "kernel void bitonic(device uint* x [[buffer(0)]], uint t [[thread_position_in_threadgroup]]) {
  threadgroup uint a[256];
  a[t] = x[t];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint k = 2; k <= 256; k <<= 1) {
    for (uint j = k >> 1; j > 0; j >>= 1) {
      uint other = t ^ j;
      if (other > t) {
        bool up = (t & k) == 0;
        uint p = a[t], q = a[other];
        if ((p > q) == up) { a[t] = q; a[other] = p; }
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
  x[t] = a[t];
}",
        1,
        256,
    )
    .buffer(u32s(&x))
    .expect(0, Expect::Bytes(u32s(&sorted)))
}

fn transpose() -> Case {
    let x = rng().units(32 * 64);
    let out: Vec<f32> = (0..64 * 32).map(|n| x[n % 32 * 64 + n / 32]).collect();
    Case::new(
        "transpose",
        "#define TILE 16
kernel void transpose(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
    uint2 g [[threadgroup_position_in_grid]], uint2 t [[thread_position_in_threadgroup]]) {
  threadgroup float tile[TILE][TILE + 1];
  const uint rows = 32, columns = 64;
  tile[t.y][t.x] = x[(g.y * TILE + t.y) * columns + g.x * TILE + t.x];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[(g.x * TILE + t.y) * rows + g.y * TILE + t.x] = tile[t.x][t.y];
}",
        1,
        1,
    )
    .shape([4, 2, 1], [16, 16, 1])
    .buffer(f32s(&x))
    .buffer(zeros(8192))
    .expect(1, Expect::Bytes(f32s(&out)))
}

fn histogram() -> Case {
    let mut random = rng();
    let x: Vec<u8> = (0..2048).map(|_| (random.next() & random.next()) as u8 % 16).collect();
    let mut counts = [0_u32; 16];
    x.iter().for_each(|v| counts[usize::from(*v)] += 1);
    Case::new(
        "histogram",
        "kernel void histogram(device const uchar* x [[buffer(0)]], device atomic_uint* bins [[buffer(1)]], constant uint& n [[buffer(2)]],
    uint t [[thread_index_in_threadgroup]], uint i [[thread_position_in_grid]], uint all [[threads_per_grid]]) {
  threadgroup atomic_uint own[16];
  if (t < 16) atomic_store_explicit(&own[t], 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint k = i; k < n; k += all) atomic_fetch_add_explicit(&own[x[k]], 1u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (t < 16) atomic_fetch_add_explicit(bins + t, atomic_load_explicit(&own[t], memory_order_relaxed), memory_order_relaxed);
}",
        3,
        64,
    )
    .buffer(x)
    .buffer(zeros(64))
    .buffer(u32s(&[2048]))
    .expect(1, Expect::Bytes(u32s(&counts)))
}

fn gemm(a: &[f32], b: &[f32], [m, n, k]: [usize; 3]) -> Vec<f32> {
    let at = |i: usize| (0..k).map(|l| f64::from(a[i / n * k + l]) * f64::from(b[l * n + i % n])).sum::<f64>() as f32;
    (0..m * n).map(at).collect()
}

fn simdgroup_gemm() -> Case {
    let mut random = rng();
    let (a, b) = (random.units(16 * 24), random.units(24 * 32));
    Case::new(
        "gemm8",
        "kernel void gemm8(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]], device float* c [[buffer(2)]],
    uint2 g [[threadgroup_position_in_grid]]) {
  simdgroup_float8x8 acc = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_float8x8 x, y;
  for (uint k = 0; k < 24; k += 8) {
    simdgroup_load(x, a + g.y * 8 * 24 + k, 24);
    simdgroup_load(y, b, 32, ulong2(g.x * 8, k));
    simdgroup_multiply_accumulate(acc, x, y, acc);
  }
  simdgroup_store(acc, c + g.y * 8 * 32 + g.x * 8, 32);
}",
        1,
        1,
    )
    .shape([4, 2, 1], [32, 1, 1])
    .expect(2, Expect::Floats(gemm(&a, &b, [16, 32, 24]), 1e-5))
    .buffer(f32s(&a))
    .buffer(f32s(&b))
    .buffer(zeros(2048))
}

fn simdgroup_gemm_half() -> Case {
    let mut random = rng();
    let cut = |v: &f32| f32::from_bits(crate::exec::half::round_half(v.to_bits()));
    let a: Vec<f32> = random.units(64).iter().map(cut).collect();
    let b: Vec<f32> = random.units(64).iter().map(cut).collect();
    Case::new(
        "gemm_half",
        "kernel void gemm_half(device half* a [[buffer(0)]], device half* b [[buffer(1)]], device float* c [[buffer(2)]],
    ushort lane [[thread_index_in_simdgroup]]) {
  simdgroup_half8x8 x, y;
  simdgroup_float8x8 d[2];
  d[0] = simdgroup_float8x8(0.0f);
  d[1] = d[0];
  x.thread_elements()[0] = a[((lane / 2) % 4 + 4 * (lane / 16)) * 8 + 2 * (lane % 2) + 4 * ((lane / 8) % 2)];
  x.thread_elements()[1] = a[((lane / 2) % 4 + 4 * (lane / 16)) * 8 + 2 * (lane % 2) + 4 * ((lane / 8) % 2) + 1];
  simdgroup_load(y, b, 8);
  for (int i = 0; i < 2; i++) simdgroup_multiply_accumulate(d[i], x, y, d[i]);
  d[1].thread_elements()[0] *= 2.0f;
  simdgroup_store(d[0], c, 8);
  simdgroup_store(d[1], c + 64, 8);
}",
        1,
        32,
    )
    .expect(2, Expect::Floats(half_results(&a, &b), 1e-5))
    .buffer(f16s(&a))
    .buffer(f16s(&b))
    .buffer(zeros(512))
}

/// The product twice, with even columns of the second doubled.
fn half_results(a: &[f32], b: &[f32]) -> Vec<f32> {
    let once = gemm(a, b, [8, 8, 8]);
    let twice = once.iter().enumerate().map(|(n, v)| if n % 2 == 0 { 2.0 * v } else { *v });
    once.iter().copied().chain(twice).collect()
}

fn tiled_gemm() -> Case {
    let mut random = rng();
    let (a, b) = (random.units(16 * 20), random.units(20 * 24));
    Case::new(
        "gemm_tiled",
        "constant int M = 16, N = 24, K = 20;
kernel void gemm_tiled(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]], device float* c [[buffer(2)]],
    uint2 g [[thread_position_in_grid]], uint2 t [[thread_position_in_threadgroup]]) {
  threadgroup float x[8][8];
  threadgroup float y[8][8];
  float sum = 0;
  for (int k = 0; k < K; k += 8) {
    x[t.y][t.x] = (int)(k + t.x) < K ? a[g.y * K + k + t.x] : 0.0f;
    y[t.y][t.x] = (int)(k + t.y) < K ? b[(k + t.y) * N + g.x] : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int l = 0; l < 8; l++) sum += x[t.y][l] * y[l][t.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  c[g.y * N + g.x] = sum;
}",
        1,
        1,
    )
    .shape([3, 2, 1], [8, 8, 1])
    .expect(2, Expect::Floats(gemm(&a, &b, [16, 24, 20]), 1e-5))
    .buffer(f32s(&a))
    .buffer(f32s(&b))
    .buffer(zeros(4 * 16 * 24))
}

fn atomics() -> Case {
    let mut random = rng();
    let x: Vec<u32> = (0..256).map(|_| random.next()).collect();
    let signed = |f: fn(i32, i32) -> i32, from: i32| x.iter().map(|v| *v as i32).fold(from, f) as u32;
    let out = [
        x.iter().copied().fold(0, u32::wrapping_add),
        x.iter().copied().fold(u32::MAX, u32::min),
        x.iter().copied().fold(0, u32::max),
        x.iter().copied().fold(0, |a, b| a ^ b),
        x.iter().copied().fold(u32::MAX, |a, b| a & (b | 0xf0)),
        signed(i32::min, i32::MAX),
        signed(i32::max, i32::MIN),
        256,
    ];
    Case::new(
        "atomics",
        "kernel void atomics(device const uint* x [[buffer(0)]], device atomic_uint* out [[buffer(1)]], device atomic_int* other [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  uint v = x[i];
  atomic_fetch_add_explicit(out, v, memory_order_relaxed);
  atomic_fetch_min_explicit(out + 1, v, memory_order_relaxed);
  atomic_fetch_max_explicit(out + 2, v, memory_order_relaxed);
  atomic_fetch_xor_explicit(out + 3, v, memory_order_relaxed);
  atomic_fetch_and_explicit(out + 4, v | 0xf0, memory_order_relaxed);
  atomic_fetch_min_explicit(&other[0], (int)v, memory_order_relaxed);
  atomic_fetch_max_explicit(&other[1], (int)v, memory_order_relaxed);
  atomic_fetch_sub_explicit((device atomic_uint*)other + 2, 0xffffffffu, memory_order_relaxed);
}",
        2,
        128,
    )
    .buffer(u32s(&x))
    .buffer(u32s(&[0, u32::MAX, 0, 0, u32::MAX]))
    .buffer(u32s(&[i32::MAX as u32, i32::MIN as u32, 0]))
    .expect(1, Expect::Bytes(u32s(&out[..5])))
    .expect(2, Expect::Bytes(u32s(&out[5..])))
}

fn float_cas() -> Case {
    let x: Vec<f32> = (0..64).map(|n| n as f32 * 0.25).collect();
    Case::new(
        "float_cas",
        "static void add(device atomic_uint* p, float v) {
  uint old = atomic_load_explicit(p, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(p, &old, as_type<uint>(as_type<float>(old) + v), memory_order_relaxed, memory_order_relaxed)) {}
}
kernel void float_cas(device const float* x [[buffer(0)]], device atomic_uint* out [[buffer(1)]], device atomic_float* other [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  add(out, x[i]);
  atomic_fetch_add_explicit(other, x[i], memory_order_relaxed);
}",
        2,
        32,
    )
    .buffer(f32s(&x))
    .buffer(zeros(4))
    .buffer(zeros(4))
    .expect(1, Expect::Floats(vec![504.0], 0.0))
    .expect(2, Expect::Floats(vec![504.0], 0.0))
}

fn softmax() -> Case {
    let x = rng().units(4 * 96);
    let row = |c: &[f32]| -> Vec<f32> {
        let sum: f64 = c.iter().map(|v| f64::from(*v * 4.0).exp()).sum();
        c.iter().map(|v| (f64::from(*v * 4.0).exp() / sum) as f32).collect()
    };
    let out: Vec<f32> = x.chunks(96).flat_map(row).collect();
    Case::new(
        "softmax",
        "kernel void softmax(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
    uint row [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  x += row * 96;
  out += row * 96;
  float m = -INFINITY;
  for (uint k = lane; k < 96; k += 32) m = fmax(m, x[k] * 4.0f);
  m = simd_max(m);
  float e[3], sum = 0.0f;
  for (uint k = 0; k < 3; ++k) { e[k] = exp(x[lane + 32 * k] * 4.0f - m); sum += e[k]; }
  sum = simd_sum(sum);
  for (uint k = 0; k < 3; ++k) out[lane + 32 * k] = e[k] / sum;
}",
        4,
        32,
    )
    .buffer(f32s(&x))
    .buffer(zeros(4 * 96 * 4))
    .expect(1, Expect::Floats(out, 1e-5))
}

fn argmax() -> Case {
    let x = rng().units(200);
    let best = (0..200).fold(0, |a, b| if x[b] > x[a] { b } else { a });
    Case::new(
        "argmax",
        "struct Best { float value; int index; };
static Best better(Best a, Best b) { return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a; }
kernel void argmax(device const float* x [[buffer(0)]], device Best* out [[buffer(1)]], constant int& n [[buffer(2)]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup Best all[64];
  Best own = {-INFINITY, 0};
  for (int k = t; k < n; k += 64) { Best b = {x[k], k}; own = better(own, b); }
  all[t] = own;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint s = 32; s > 0; s /= 2) {
    if (t < s) { Best a = all[t], b = all[t + s]; all[t] = better(a, b); }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (t == 0) { *out = all[0]; out->index += 1; }
}",
        1,
        64,
    )
    .buffer(f32s(&x))
    .buffer(zeros(8))
    .buffer(u32s(&[200]))
    .expect(1, Expect::Bytes([f32s(&[x[best]]), u32s(&[best as u32 + 1])].concat()))
}

fn ballot() -> Case {
    let mut random = rng();
    let x: Vec<u32> = (0..32).map(|_| random.below(100)).collect();
    let mut out: Vec<u32> = x.iter().copied().filter(|v| v % 3 == 0).collect();
    let count = out.len() as u32;
    out.resize(32, 0);
    out.push(count);
    out.extend([x.iter().sum(), x[5], u32::from(x.iter().any(|v| *v > 98)), u32::from(x.iter().all(|v| *v < 100))]);
    Case::new(
        "compact",
        "kernel void compact(device const uint* x [[buffer(0)]], device uint* out [[buffer(1)]], uint lane [[thread_index_in_simdgroup]]) {
  uint v = x[lane];
  bool keep = v % 3 == 0;
  uint votes = (uint)simd_ballot(keep);
  uint before = popcount(votes & ((1u << lane) - 1));
  if (keep) out[before] = v;
  uint sum = v;
  for (ushort d = 16; d > 0; d /= 2) sum += simd_shuffle_xor(sum, d);
  uint fifth = simd_broadcast(v, 5);
  bool some = simd_any(v > 98), every = simd_all(v < 100);
  uint next = simd_shuffle_down(v, 1), last = simd_shuffle_up(next, 1);
  if (lane == 0) { out[32] = popcount(votes); out[33] = sum; out[34] = fifth; out[35] = some; out[36] = every; }
  if (lane > 0 && last != v) out[36] = 77;
}",
        1,
        32,
    )
    .buffer(u32s(&x))
    .buffer(zeros(37 * 4))
    .expect(1, Expect::Bytes(u32s(&out)))
}

fn dynamic_memory() -> Case {
    let x = rng().units(64);
    let out: Vec<f32> = x.chunks(32).flat_map(|c| c.iter().rev().copied()).collect();
    let mut case = Case::new(
        "reverse",
        "kernel void reverse(device float* x [[buffer(0)]], threadgroup float* own [[threadgroup(0)]], uint t [[thread_position_in_threadgroup]],
    uint i [[thread_position_in_grid]]) {
  own[t] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  threadgroup float* last = own + 31;
  x[i] = *(last - t);
}",
        2,
        32,
    )
    .buffer(f32s(&x))
    .expect(0, Expect::Bytes(f32s(&out)));
    case.threadgroup = vec![128];
    case
}

fn attention() -> Case {
    let mut random = rng();
    let (q, k, v) = (random.units(8 * 16), random.units(8 * 16), random.units(8 * 16));
    let mut out = Vec::new();
    for i in 0..8 {
        let dot = |j: usize| (0..16).map(|d| f64::from(q[i * 16 + d]) * f64::from(k[j * 16 + d])).sum::<f64>() * 0.25;
        let weights: Vec<f64> = (0..=i).map(|j| dot(j).exp()).collect();
        let all: f64 = weights.iter().sum();
        for d in 0..16 {
            out.push((weights.iter().enumerate().map(|(j, w)| w * f64::from(v[j * 16 + d])).sum::<f64>() / all) as f32);
        }
    }
    Case::new(
        "attend",
        "kernel void attend(device const float* q [[buffer(0)]], device const float* k [[buffer(1)]], device const float* v [[buffer(2)]],
    device float* out [[buffer(3)]], uint i [[threadgroup_position_in_grid]], uint d [[thread_position_in_threadgroup]]) {
  threadgroup float scores[8];
  if (d <= i && d < 8) {
    float4 s = float4(0);
    for (uint c = 0; c < 16; c += 4) s += *(device const float4*)(q + i * 16 + c) * *(device const float4*)(k + d * 16 + c);
    scores[d] = (s.x + s.y + s.z + s.w) * 0.25f;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float m = scores[0];
  for (uint j = 1; j <= i; j++) m = max(m, scores[j]);
  float sum = 0, acc = 0;
  for (uint j = 0; j <= i; j++) { float w = exp(scores[j] - m); sum += w; acc = fma(w, v[j * 16 + d], acc); }
  out[i * 16 + d] = acc / sum;
}",
        8,
        16,
    )
    .expect(3, Expect::Floats(out, 1e-5))
    .buffer(f32s(&q))
    .buffer(f32s(&k))
    .buffer(f32s(&v))
    .buffer(zeros(512))
}
