// Matrix instructions: fragments are gathered and scattered as the chip lays them out, D = A B + C in row-major order
// behind. A is at word 0, B at 4096, C at 8192; element values are small integers. Device only: matrix.rs multiplies.
#include "kernel.h"
typedef _Float16 half;
typedef half h4 __attribute__((ext_vector_type(4)));
typedef half h8 __attribute__((ext_vector_type(8)));
typedef half h16 __attribute__((ext_vector_type(16)));
typedef short s4 __attribute__((ext_vector_type(4)));
typedef short s8 __attribute__((ext_vector_type(8)));
typedef short s16 __attribute__((ext_vector_type(16)));
typedef float f2 __attribute__((ext_vector_type(2)));
typedef float f4 __attribute__((ext_vector_type(4)));
typedef float f8 __attribute__((ext_vector_type(8)));
typedef float f16 __attribute__((ext_vector_type(16)));
typedef float f32v __attribute__((ext_vector_type(32)));
typedef double d4 __attribute__((ext_vector_type(4)));
typedef int w2 __attribute__((ext_vector_type(2)));
typedef int w4 __attribute__((ext_vector_type(4)));
typedef int w8 __attribute__((ext_vector_type(8)));
typedef int w16 __attribute__((ext_vector_type(16)));
#define A(i, k, K) ((i32)(in[(i) * (K) + (k)] & 15) - 8)
#define B(k, j, N) ((i32)(in[4096 + (k) * (N) + (j)] & 15) - 8)
#define C(i, j, N) ((i32)(in[8192 + (i) * (N) + (j)] & 255) - 128)
#define D(i, j, N) out[(i) * (N) + (j)]
#define BF(v) (short)(u32_of((float)(v)) >> 16)
#if defined(__gfx1100__)
#define FRAGMENT(e) const u32 l = tid() & 31, r = l & 15; (void)r
KERNEL(f32_16x16x16_f16) { FRAGMENT(); h16 a, b; f8 c; for (int e = 0; e < 16; e++) { a[e] = A(r, e, 16); b[e] = B(e, r, 16); } for (int g = 0; g < 8; g++) c[g] = C(2 * g + l / 16, r, 16); c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c); for (int g = 0; g < 8; g++) D(2 * g + l / 16, r, 16) = (i32)c[g]; }
KERNEL(f32_16x16x16_bf16) { FRAGMENT(); s16 a, b; f8 c; for (int e = 0; e < 16; e++) { a[e] = BF(A(r, e, 16)); b[e] = BF(B(e, r, 16)); } for (int g = 0; g < 8; g++) c[g] = C(2 * g + l / 16, r, 16); c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c); for (int g = 0; g < 8; g++) D(2 * g + l / 16, r, 16) = (i32)c[g]; }
KERNEL(f16_16x16x16_f16) { FRAGMENT(); h16 a, b, c = 0; for (int e = 0; e < 16; e++) { a[e] = A(r, e, 16); b[e] = B(e, r, 16); } for (int g = 0; g < 8; g++) c[2 * g] = C(2 * g + l / 16, r, 16); c = __builtin_amdgcn_wmma_f16_16x16x16_f16_w32(a, b, c, 0); for (int g = 0; g < 8; g++) D(2 * g + l / 16, r, 16) = (i32)(float)c[2 * g]; }
KERNEL(i32_16x16x16_iu8) { FRAGMENT(); w4 a, b; w8 c; for (int e = 0; e < 4; e++) { u32 x = 0, y = 0; for (int q = 0; q < 4; q++) { x |= (A(r, 4 * e + q, 16) & 255u) << 8 * q; y |= (B(4 * e + q, r, 16) & 255u) << 8 * q; } a[e] = x; b[e] = y; } for (int g = 0; g < 8; g++) c[g] = C(2 * g + l / 16, r, 16); c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(1, a, 1, b, c, 0); for (int g = 0; g < 8; g++) D(2 * g + l / 16, r, 16) = c[g]; }
KERNEL(i32_16x16x16_iu4) { FRAGMENT(); w2 a, b; w8 c; for (int e = 0; e < 2; e++) { u32 x = 0, y = 0; for (int q = 0; q < 8; q++) { x |= (A(r, 8 * e + q, 16) & 15u) << 4 * q; y |= (B(8 * e + q, r, 16) & 15u) << 4 * q; } a[e] = x; b[e] = y; } for (int g = 0; g < 8; g++) c[g] = C(2 * g + l / 16, r, 16); c = __builtin_amdgcn_wmma_i32_16x16x16_iu4_w32(1, a, 1, b, c, 0); for (int g = 0; g < 8; g++) D(2 * g + l / 16, r, 16) = c[g]; }
#elif defined(__gfx1201__)
#define FRAGMENT() const u32 l = tid() & 31, r = l & 15, q = l / 16
#define K16(e) (8 * ((e) / 4) + 4 * q + (e) % 4)
KERNEL(f32_16x16x16_f16) { FRAGMENT(); h8 a, b; f8 c; for (int e = 0; e < 8; e++) { a[e] = A(r, K16(e), 16); b[e] = B(K16(e), r, 16); c[e] = C(8 * q + e, r, 16); } c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c); for (int g = 0; g < 8; g++) D(8 * q + g, r, 16) = (i32)c[g]; }
KERNEL(f32_16x16x16_bf16) { FRAGMENT(); s8 a, b; f8 c; for (int e = 0; e < 8; e++) { a[e] = BF(A(r, K16(e), 16)); b[e] = BF(B(K16(e), r, 16)); c[e] = C(8 * q + e, r, 16); } c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c); for (int g = 0; g < 8; g++) D(8 * q + g, r, 16) = (i32)c[g]; }
KERNEL(f16_16x16x16_f16) { FRAGMENT(); h8 a, b, c; for (int e = 0; e < 8; e++) { a[e] = A(r, K16(e), 16); b[e] = B(K16(e), r, 16); c[e] = C(8 * q + e, r, 16); } c = __builtin_amdgcn_wmma_f16_16x16x16_f16_w32_gfx12(a, b, c); for (int g = 0; g < 8; g++) D(8 * q + g, r, 16) = (i32)(float)c[g]; }
KERNEL(i32_16x16x16_iu8) { FRAGMENT(); w2 a, b; w8 c; for (int e = 0; e < 2; e++) { u32 x = 0, y = 0; for (int p = 0; p < 4; p++) { x |= (A(r, 8 * q + 4 * e + p, 16) & 255u) << 8 * p; y |= (B(8 * q + 4 * e + p, r, 16) & 255u) << 8 * p; } a[e] = x; b[e] = y; } for (int g = 0; g < 8; g++) c[g] = C(8 * q + g, r, 16); c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(1, a, 1, b, c, 0); for (int g = 0; g < 8; g++) D(8 * q + g, r, 16) = c[g]; }
#else
#define FRAGMENT() const u32 l = tid() & 63
KERNEL(f32_16x16x16_f16) { FRAGMENT(); u32 r = l & 15, q = l / 16; h4 a, b; f4 c; for (int e = 0; e < 4; e++) { a[e] = A(r, 4 * q + e, 16); b[e] = B(4 * q + e, r, 16); c[e] = C(4 * q + e, r, 16); } c = __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0); for (int g = 0; g < 4; g++) D(4 * q + g, r, 16) = (i32)c[g]; }
KERNEL(f32_16x16x16_bf16) { FRAGMENT(); u32 r = l & 15, q = l / 16; s4 a, b; f4 c; for (int e = 0; e < 4; e++) { a[e] = BF(A(r, 4 * q + e, 16)); b[e] = BF(B(4 * q + e, r, 16)); c[e] = C(4 * q + e, r, 16); } c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0); for (int g = 0; g < 4; g++) D(4 * q + g, r, 16) = (i32)c[g]; }
KERNEL(f32_32x32x8_f16) { FRAGMENT(); u32 r = l & 31, q = l / 32; h4 a, b; f16 c; for (int e = 0; e < 4; e++) { a[e] = A(r, 4 * q + e, 8); b[e] = B(4 * q + e, r, 32); } for (int g = 0; g < 16; g++) c[g] = C(8 * (g / 4) + 4 * q + g % 4, r, 32); c = __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, c, 0, 0, 0); for (int g = 0; g < 16; g++) D(8 * (g / 4) + 4 * q + g % 4, r, 32) = (i32)c[g]; }
KERNEL(f32_16x16x4_f32) { FRAGMENT(); u32 r = l & 15, q = l / 16; f4 c; for (int e = 0; e < 4; e++) c[e] = C(4 * q + e, r, 16); c = __builtin_amdgcn_mfma_f32_16x16x4f32((float)A(r, q, 4), (float)B(q, r, 16), c, 0, 0, 0); for (int g = 0; g < 4; g++) D(4 * q + g, r, 16) = (i32)c[g]; }
KERNEL(f32_32x32x2_f32) { FRAGMENT(); u32 r = l & 31, q = l / 32; f16 c; for (int g = 0; g < 16; g++) c[g] = C(8 * (g / 4) + 4 * q + g % 4, r, 32); c = __builtin_amdgcn_mfma_f32_32x32x2f32((float)A(r, q, 2), (float)B(q, r, 32), c, 0, 0, 0); for (int g = 0; g < 16; g++) D(8 * (g / 4) + 4 * q + g % 4, r, 32) = (i32)c[g]; }
KERNEL(i32_16x16x32_i8) { FRAGMENT(); u32 r = l & 15, q = l / 16; u64 a = 0, b = 0; w4 c; for (int e = 0; e < 8; e++) { a |= (u64)(A(r, 8 * q + e, 32) & 255u) << 8 * e; b |= (u64)(B(8 * q + e, r, 16) & 255u) << 8 * e; } for (int e = 0; e < 4; e++) c[e] = C(4 * q + e, r, 16); c = __builtin_amdgcn_mfma_i32_16x16x32_i8(a, b, c, 0, 0, 0); for (int g = 0; g < 4; g++) D(4 * q + g, r, 16) = c[g]; }
KERNEL(f64_16x16x4_f64) { FRAGMENT(); u32 r = l & 15, q = l / 16; d4 c; for (int e = 0; e < 4; e++) c[e] = C(4 * e + q, r, 16); c = __builtin_amdgcn_mfma_f64_16x16x4f64((double)A(r, q, 4), (double)B(q, r, 16), c, 0, 0, 0); for (int g = 0; g < 4; g++) D(4 * g + q, r, 16) = (i32)c[g]; }
KERNEL(f32_16x16x8_xf32) { FRAGMENT(); u32 r = l & 15, q = l / 16; f4 c; f2 a, b; for (int e = 0; e < 2; e++) { a[e] = A(r, 2 * q + e, 8); b[e] = B(2 * q + e, r, 16); } for (int e = 0; e < 4; e++) c[e] = C(4 * q + e, r, 16); c = __builtin_amdgcn_mfma_f32_16x16x8_xf32(a, b, c, 0, 0, 0); for (int g = 0; g < 4; g++) D(4 * q + g, r, 16) = (i32)c[g]; }
#endif
