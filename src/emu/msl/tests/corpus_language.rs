//! The language: structs, switch, templates, functors, pointers, scopes, macros.

use super::corpus::{Case, Expect, Random, f32s, i32s, u32s, zeros};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        structs(),
        switches(),
        templates(),
        functors(),
        sorting(),
        life(),
        collatz(),
        names(),
        three_dimensions(),
        control(),
        macros(),
        references(),
        overloads(),
    ]
}

fn structs() -> Case {
    let mut bytes = Vec::new();
    let mut out = Vec::new();
    for n in 0..16_i32 {
        bytes.extend(
            [n.to_le_bytes().to_vec(), f32s(&[0.5, 0.0]), i32s(&[0]), f32s(&[1.0, 2.0, n as f32, 0.0])].concat(),
        );
        out.extend([n as f32 * 0.5 + 3.0, n as f32 + 10.0]);
    }
    Case::new(
        "structs",
        "struct Params { int count; float scale; float3 offset; };
struct Item { int id; float weight; float4 v; };
static_assert(sizeof(Params) == 32, \"layout\");
struct Pair { float a, b; };
Pair combine(thread const Item& item, constant Params& p) {
  Pair r;
  r.a = item.id * item.weight + p.offset.x;
  r.b = item.v.z + p.scale * p.offset.y;
  return r;
}
kernel void structs(device const Item* items [[buffer(0)]], constant Params& p [[buffer(1)]], device Pair* out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  if ((int)i < p.count) {
    Item item = items[i];
    out[i] = combine(item, p);
  }
}",
        1,
        20,
    )
    .buffer(bytes)
    .buffer([i32s(&[16]), f32s(&[2.0, 0.0, 0.0, 3.0, 5.0, 0.0, 0.0])].concat())
    .buffer(zeros(128))
    .expect(2, Expect::Bytes(f32s(&out)))
}

fn switches() -> Case {
    let of = |n: i32| {
        let mut r = 0;
        match n % 7 {
            0 => r += 1 + 10,
            1 => r += 10,
            2 | 3 => r += 100,
            4 => r = -1,
            _ => r += 1000,
        }
        for k in 0..n {
            if k == 3 {
                continue;
            }
            if k == 9 {
                break;
            }
            r += k;
        }
        r
    };
    let out: Vec<i32> = (0..32).map(of).collect();
    Case::new(
        "switches",
        "static int work(int n) {
  int r = 0;
  switch (n % 7) {
    case 0: r += 1;
    case 1: { r += 10; break; }
    case 2:
    case 3: r += 100; break;
    default: r += 1000; break;
    case 4: r = -1;
  }
  for (int k = 0; k < n; k++) {
    switch (k) { case 3: continue; case 9: return r; default: break; }
    r += k;
  }
  return r;
}
kernel void switches(device int* out [[buffer(0)]], uint i [[thread_position_in_grid]]) { out[i] = work((int)i); }",
        1,
        32,
    )
    .buffer(zeros(128))
    .expect(0, Expect::Bytes(i32s(&out)))
}

fn templates() -> Case {
    let x: Vec<f32> = (0..64).map(|n| n as f32).collect();
    let out: Vec<f32> = (0..16).map(|n| (0..4).map(|k| x[n * 4 + k] * (k + 1) as f32).sum::<f32>() + 4.0).collect();
    let mut case = Case::new(
        "dot_float_4",
        "template <typename T, int N = 2, typename Acc = float>
struct Summer {
  static constexpr constant int lanes = N;
  Acc total;
  void add(T v, int k) { total += static_cast<Acc>(v) * (k + 1); }
};
template <typename T, int N> kernel void dots(device const T* x [[buffer(0)]], device T* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  Summer<T, N> s = {0};
  for (int k = 0; k < N; ++k) s.add(x[i * N + k], k);
  if constexpr (N > 2) { s.total += s.lanes; } else { s.total = 7; }
  out[i] = T(s.total);
}
template [[host_name(\"dot_float_4\")]] kernel void dots<float, 4>(device const float*, device float*, uint);",
        1,
        16,
    )
    .buffer(f32s(&x))
    .buffer(zeros(64))
    .expect(1, Expect::Bytes(f32s(&out)));
    case.kernel = ["dot_float_4", "dots", "dots<float, 4>"];
    case
}

fn functors() -> Case {
    let x: Vec<i32> = (0..32).map(|n| (n * 37) % 61 - 30).collect();
    let out = [x.iter().sum::<i32>(), *x.iter().max().unwrap(), x.iter().map(|v| v * v).sum()];
    Case::new(
        "functors",
        "struct Sum { template <typename T> T operator()(T a, T b) const { return a + b; } };
struct Max { template <typename T> T operator()(T a, T b) const { return max(a, b); } };
struct Complex { float re; float im; };
inline Complex operator*(Complex a, Complex b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
template <typename Op, typename T> T fold(device const T* x, int n, T first) {
  Op op;
  T r = first;
  for (int i = 0; i < n; i++) r = op(r, x[i]);
  return r;
}
kernel void functors(device const int* x [[buffer(0)]], device int* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  out[0] = fold<Sum>(x, 32, 0);
  out[1] = fold<Max, int>(x, 32, -1000);
  float s = 0;
  for (int k = 0; k < 32; k++) { Complex c = {0.0f, float(x[k])}; Complex p = c * c; s -= p.re; }
  out[2] = (int)s;
}",
        1,
        1,
    )
    .buffer(i32s(&x))
    .buffer(zeros(12))
    .expect(1, Expect::Bytes(i32s(&out)))
}

fn sorting() -> Case {
    let mut random = Random(5);
    let x: Vec<u32> = (0..20 * 8).map(|_| random.below(1000)).collect();
    let sorted = |c: &[u32]| {
        let mut c = c.to_vec();
        c.sort_unstable();
        c
    };
    let out: Vec<u32> = x.chunks(8).flat_map(sorted).collect();
    Case::new(
        "sorting",
        "static void swap_if(thread uint* a, thread uint* b) { if (*b < *a) { uint t = *a; *a = *b; *b = t; } }
kernel void sorting(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  uint a[8];
  for (int k = 0; k < 8; k++) a[k] = x[8 * i + k];
  for (int k = 1; k < 8; k++)
    for (int j = k; j > 0 && a[j] < a[j - 1]; j--) swap_if(&a[j - 1], a + j);
  for (int k = 0; k < 8; k++) x[8 * i + k] = a[k];
}",
        1,
        20,
    )
    .buffer(u32s(&x))
    .expect(0, Expect::Bytes(u32s(&out)))
}

fn life() -> Case {
    let mut random = Random(9);
    let x: Vec<u8> = (0..256).map(|_| (random.below(3) == 0) as u8).collect();
    let alive = |row: usize, column: usize| x[row % 16 * 16 + column % 16];
    let next = |n: usize| {
        let (row, column) = (n / 16, n % 16);
        let mut count = 0;
        for dr in 0..3 {
            for dc in 0..3 {
                count += if (dr, dc) == (1, 1) { 0 } else { alive(row + 15 + dr, column + 15 + dc) };
            }
        }
        u8::from(count == 3 || (count == 2 && x[n] == 1))
    };
    let out: Vec<u8> = (0..256).map(next).collect();
    Case::new(
        "life",
        "kernel void life(device const bool* now [[buffer(0)]], device bool* next [[buffer(1)]], uint2 p [[thread_position_in_grid]], uint2 size [[threads_per_grid]]) {
  uint count = 0;
  for (uint dy = 0; dy < 3; dy++)
    for (uint dx = 0; dx < 3; dx++) {
      if (dx == 1 && dy == 1) continue;
      uint2 q = (p + size - 1 + uint2(dx, dy)) % size;
      count += now[q.y * size.x + q.x] ? 1 : 0;
    }
  bool own = now[p.y * size.x + p.x];
  next[p.y * size.x + p.x] = count == 3 || (own && count == 2);
}",
        1,
        1,
    )
    .shape([2, 4, 1], [8, 4, 1])
    .buffer(x.clone())
    .buffer(zeros(256))
    .expect(1, Expect::Bytes(out))
}

fn collatz() -> Case {
    let of = |n: u32| {
        let (mut v, mut k) = (u64::from(n) + 1, 0);
        loop {
            if v == 1 {
                return k;
            }
            v = if v % 2 == 0 { v / 2 } else { 3 * v + 1 };
            k += 1;
        }
    };
    let out: Vec<u32> = (0..70).map(of).collect();
    Case::new(
        "collatz",
        "kernel void collatz(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  ulong v = i + 1;
  uint k = 0;
  if (v != 1) {
    do {
      if (v & 1) v = 3 * v + 1;
      else v /= 2;
      k++;
    } while (v != 1);
  }
  out[i] = k;
}",
        1,
        70,
    )
    .buffer(zeros(280))
    .expect(0, Expect::Bytes(u32s(&out)))
}

fn names() -> Case {
    let out: Vec<u32> = (0..8).map(|n| n * 5 + [7, 11, 13][n as usize % 3] + 2 + 1).collect();
    Case::new(
        "names",
        "typedef uint word;
using index_t = uint;
namespace tools {
  constant word table[] = {7, 11, 13};
  enum Mode { Plain, Twice = 2, Next };
  enum class Kind : uchar { A = 1, B };
  inline word pick(index_t i) { return table[i % (sizeof(table) / sizeof(table[0]))]; }
}
constant constexpr int FIVE = 2 + 3;
kernel void names(device word* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  const int five = FIVE;
  constexpr int n = five > 4 ? 1 : 0;
  word local[n + 1];
  local[n] = i * five + tools::pick(i);
  tools::Kind kind = i < 100 ? tools::Kind::A : tools::Kind::B;
  auto mode = tools::Twice;
  { word i = 0; i += 1; }
  out[i] = local[n] + mode + (word)kind;
}",
        1,
        8,
    )
    .buffer(zeros(32))
    .expect(0, Expect::Bytes(u32s(&out)))
}

fn three_dimensions() -> Case {
    let mut out = vec![0_u32; 4 * 6 * 4];
    for z in 0..4 {
        for y in 0..6 {
            for x in 0..4 {
                out[z * 24 + y * 4 + x] = (x + 10 * y + 100 * z + 1000 * (x % 2 + 2 * (y % 3) + 6 * (z % 2))) as u32;
            }
        }
    }
    Case::new(
        "three",
        "kernel void three(device uint* out [[buffer(0)]], uint3 p [[thread_position_in_grid]], uint3 g [[threadgroup_position_in_grid]],
    uint3 t [[thread_position_in_threadgroup]], uint3 n [[threads_per_threadgroup]], uint3 all [[threads_per_grid]],
    uint flat [[thread_index_in_threadgroup]], uint3 groups [[threadgroups_per_grid]]) {
  uint3 q = g * n + t;
  bool same = all.x == groups.x * n.x && q.x == p.x && q.y == p.y && q.z == p.z;
  out[p.z * all.x * all.y + p.y * all.x + p.x] = same ? p.x + 10 * p.y + 100 * p.z + 1000 * flat : 0;
}",
        1,
        1,
    )
    .shape([2, 2, 2], [2, 3, 2])
    .buffer(zeros(384))
    .expect(0, Expect::Bytes(u32s(&out)))
}

fn control() -> Case {
    let of = |n: i32| {
        let mut sum = 0;
        for a in 0..n {
            if a % 5 == 4 {
                continue;
            }
            let mut b = 0;
            while b < a {
                b += 1;
                if b * a > 40 {
                    break;
                }
                if b % 2 == 0 {
                    continue;
                }
                sum += a * b;
                if sum > 500 {
                    return -sum;
                }
            }
        }
        sum
    };
    let out: Vec<i32> = (0..32).map(of).collect();
    Case::new(
        "control",
        "static int nested(int n) {
  int sum = 0;
  for (int a = 0; a < n; ++a) {
    if (a % 5 == 4) continue;
    int b = 0;
    while (b < a) {
      b++;
      if (b * a > 40) break;
      if (b % 2 == 0) continue;
      sum += a * b;
      if (sum > 500) return -sum;
    }
  }
  return sum;
}
kernel void control(device int* out [[buffer(0)]], uint i [[thread_position_in_grid]]) { out[i] = nested(i); }",
        1,
        32,
    )
    .buffer(zeros(128))
    .expect(0, Expect::Bytes(i32s(&out)))
}

fn macros() -> Case {
    let out: Vec<u32> = (0..4).map(|n| 2 * n + 3 + 40).collect();
    Case::new(
        "macros",
        "#define MACRO_A 3
#define MACRO_ADD(x, y) ((x) + (y))
#define MACRO_GLUE(a, b) a##b
#define MACRO_ALL(f, ...) f(__VA_ARGS__)
#if MACRO_A == 3 && !defined(MACRO_B) && (MACRO_A << 1) > 5
#define MACRO_C 40
#elif MACRO_A
#error not this
#else
#define MACRO_C 50
#endif
#ifdef MACRO_B
#error nor this
#endif
#undef MACRO_B
kernel void macros(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  uint value1 = MACRO_ADD(i, /* twice */ i);
  out[i] = MACRO_ALL(MACRO_ADD, MACRO_GLUE(value, 1), MACRO_A) \\
      + MACRO_C;
}",
        1,
        4,
    )
    .buffer(zeros(16))
    .expect(0, Expect::Bytes(u32s(&out)))
}

fn references() -> Case {
    let out: Vec<f32> = (0..8).flat_map(|n| [n as f32 + 1.5, 2.0 * n as f32, 9.0]).collect();
    Case::new(
        "references",
        "static void split(float x, thread float& a, thread float* b) { a = x + 1.5f; *b = 2.0f * x; }
static float last(const thread float (&v)[3]) { return v[2]; }
static void fill(thread float* v, int n) { for (int i = 0; i < n; i++) v[i] = 9.0f; }
kernel void references(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  float a, b, v[3];
  split((float)i, a, &b);
  fill(v, 3);
  device float& first = out[3 * i];
  device float* p = &first;
  first = a;
  p[1] = b;
  *(p + 2) = last(v);
  thread float& same = a;
  same = 0;
}",
        1,
        8,
    )
    .buffer(zeros(96))
    .expect(0, Expect::Bytes(f32s(&out)))
}

fn overloads() -> Case {
    let out: Vec<i32> = (0..4).flat_map(|_| [1, 2, 3, 4, 5, 1]).collect();
    Case::new(
        "overloads",
        "static int f(int x) { return 1; }
static int f(float x) { return 2; }
static int f(uint2 x) { return 3; }
static int f(device int* x) { return 4; }
template <typename T> int f(vec<T, 4> x) { return 5; }
kernel void overloads(device int* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  device int* o = out + 6 * i;
  short s = 1;
  o[0] = f(1); o[1] = f(1.0f); o[2] = f(uint2(1, 2)); o[3] = f(o); o[4] = f(float4(0)); o[5] = f(s);
}",
        1,
        4,
    )
    .buffer(zeros(96))
    .expect(0, Expect::Bytes(i32s(&out)))
}
