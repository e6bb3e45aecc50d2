#include "kernel.h"
KERNEL(f32_basic) { u32 i = gid(); if (i < n) { float a = f32_of(in[i]), b = f32_of(in[i + n]); out[4 * i] = fb(a + b); out[4 * i + 1] = fb(a - b); out[4 * i + 2] = fb(a * b); out[4 * i + 3] = fb(-a * 0.25f); } }
KERNEL(f32_divide) { u32 i = gid(); if (i < n) { float a = f32_of(in[i]), b = f32_of(in[i + n]); out[2 * i] = fb(a / b); out[2 * i + 1] = fb(1.0f / b); } }
KERNEL(f32_fma) { u32 i = gid(); if (i < n) { float a = f32_of(in[i]), b = f32_of(in[i + n]), c = f32_of(in[i + 7]); out[2 * i] = fb(__builtin_fmaf(a, b, c)); out[2 * i + 1] = fb(__builtin_fmaf(-a, b, __builtin_fabsf(c))); } }
KERNEL(f32_sqrt) { u32 i = gid(); if (i < n) { float a = f32_of(in[i]); out[i] = fb(__builtin_sqrtf(a)); } }
KERNEL(f32_compare) { u32 i = gid(); if (i < n) { float a = f32_of(in[i]), b = f32_of(in[i + n]); out[i] = (a < b) | (a <= b) << 1 | (a > b) << 2 | (a >= b) << 3 | (a == b) << 4 | (a != b) << 5 | (a != a) << 6 | __builtin_isless(a, b) << 7 | __builtin_isunordered(a, b) << 8; } }
KERNEL(f32_round) { u32 i = gid(); if (i < n) { float a = f32_of(in[i]); out[4 * i] = fb(__builtin_floorf(a)); out[4 * i + 1] = fb(__builtin_ceilf(a)); out[4 * i + 2] = fb(__builtin_truncf(a)); out[4 * i + 3] = fb(__builtin_rintf(a)); } }
KERNEL(f32_convert) { u32 i = gid(); if (i < n) { float a = f32_of(in[i]); out[4 * i] = fb((float)in[i]); out[4 * i + 1] = fb((float)(i32)in[i]); float c = a > -2e9f && a < 2e9f ? a : 3.5f; out[4 * i + 2] = (u32)(i32)c; out[4 * i + 3] = (u32)(c < 0 ? -c : c); } }
KERNEL(f32_convert64) { u32 i = gid(); if (i < n) { u64 a = in64(in, i); out[2 * i] = fb((float)a); out[2 * i + 1] = fb((float)(i64)a); float f = (float)(i64)(a >> 3); out64(out, n + i, (u64)(i64)f); } }
KERNEL(f32_minmax) { u32 i = gid(); if (i < n) { float a = f32_of(in[i]), b = f32_of(in[i + n]); float m = a < b ? a : b; out[2 * i] = fb(m); a = a != a ? 1.0f : a; b = b != b ? 2.0f : b; out[2 * i + 1] = fb(a == b ? 0 : __builtin_fmaxf(a, b)); } }
KERNEL(f64_basic) { u32 i = gid(); if (i < n) { double a = f64_of(in64(in, i)), b = f64_of(in64(in, i + n / 2)); out64(out, 3 * i, db(a + b)); out64(out, 3 * i + 1, db(a * b)); out64(out, 3 * i + 2, db(__builtin_fma(a, b, -a))); } }
KERNEL(f64_divide) { u32 i = gid(); if (i < n) { double a = f64_of(in64(in, i)), b = f64_of(in64(in, i + n / 2)); out64(out, i, db(a / b)); } }
KERNEL(f64_sqrt) { u32 i = gid(); if (i < n) { double a = f64_of(in64(in, i)); out64(out, i, db(__builtin_sqrt(a))); } }
KERNEL(f64_convert) { u32 i = gid(); if (i < n) { double a = (double)(i32)in[i] * 0.37 + (double)in[i + n]; float f = f32_of(in[i]); out64(out, 4 * i, db((double)f)); out[8 * i + 2] = fb((float)f64_of(in64(in, i))); out[8 * i + 3] = (u32)(i64)a; out64(out, 4 * i + 2, (u64)(i64)(a * 1e6)); out64(out, 4 * i + 3, db((double)in64(in, i))); } }
KERNEL(f64_round) { u32 i = gid(); if (i < n) { double a = f64_of(in64(in, i)); out64(out, 4 * i, db(__builtin_floor(a))); out64(out, 4 * i + 1, db(__builtin_ceil(a))); out64(out, 4 * i + 2, db(__builtin_trunc(a))); out64(out, 4 * i + 3, db(__builtin_rint(a))); } }
KERNEL(f64_compare) { u32 i = gid(); if (i < n) { double a = f64_of(in64(in, i)), b = f64_of(in64(in, i + 1)); out[i] = (a < b) | (a <= b) << 1 | (a == b) << 2 | (a != b) << 3 | (a > b) << 4 | __builtin_isunordered(a, b) << 5; } }
KERNEL(half_convert) { u32 i = gid(); if (i < n) { float a = f32_of(in[i]); _Float16 h = (_Float16)a; u16 b; __builtin_memcpy(&b, &h, 2); out[2 * i] = h != h ? 0x7e00 : b; u16 c = (u16)in[i + n]; _Float16 g; __builtin_memcpy(&g, &c, 2); out[2 * i + 1] = fb((float)g); } }
static inline u32 hb(_Float16 h) { u16 b; __builtin_memcpy(&b, &h, 2); return h != h ? 0x7e00 : b; }
static inline _Float16 h_of(u32 v) { u16 c = (u16)v; _Float16 g; __builtin_memcpy(&g, &c, 2); return g; }
KERNEL(half_arith) { u32 i = gid(); if (i < n) { _Float16 a = h_of(in[i]), b = h_of(in[i] >> 16); out[4 * i] = hb(a + b); out[4 * i + 1] = hb(a * b); out[4 * i + 2] = hb(a - b); out[4 * i + 3] = hb(a < b ? a : b); } }
KERNEL(half_divide) { u32 i = gid(); if (i < n) { _Float16 a = h_of(in[i]), b = h_of(in[i] >> 16); out[i] = hb((_Float16)((float)a / (float)b)); } }
KERNEL(half_compare) { u32 i = gid(); if (i < n) { _Float16 a = h_of(in[i]), b = h_of(in[i + n]); out[i] = (a < b) | (a <= b) << 1 | (a == b) << 2 | (a >= b) << 3; } }
KERNEL(bf16_by_hand) { u32 i = gid(); if (i < n) { float a = f32_of(in[i] << 16), b = f32_of(in[i] & 0xffff0000u), c = a * b + a; u32 v = u32_of(c); u32 r = c != c ? 0x7fc0 : (v + 0x7fff + (v >> 16 & 1)) >> 16; out[i] = r; } }
KERNEL(polynomial) { u32 i = gid(); if (i < n) { float x = (float)(i32)in[i] * 4.6566e-10f, s = 1.0f, p = 1.0f; for (int k = 1; k < 12; k++) { p *= x / (float)k; s += p; } out[i] = fb(s); } }
