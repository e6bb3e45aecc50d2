// Lanes that meet, and arithmetic that only builtins reach. Device only: the references are in lanes.rs.
#include "kernel.h"
#define WORD in[gid()]
#define PUT(k, v) out[(k) * n + gid()] = (u32)(v)
#define DPP(k, ctrl, row, bank, bound) PUT(k, __builtin_amdgcn_update_dpp(0xabcd, WORD, ctrl, row, bank, bound))
KERNEL(dpp_rows) { DPP(0, 0x1b, 15, 15, 0); DPP(1, 0x101, 15, 15, 0); DPP(2, 0x113, 15, 15, 1); DPP(3, 0x125, 15, 15, 0); DPP(4, 0x140, 15, 15, 0); DPP(5, 0x141, 15, 15, 0); DPP(6, 0x111, 5, 15, 0); DPP(7, 0x10f, 15, 6, 1); }
#if defined(__gfx942__)
KERNEL(dpp_chip) { DPP(0, 0x142, 0xa, 15, 0); DPP(1, 0x143, 0xc, 15, 0); DPP(2, 0x130, 15, 15, 1); DPP(3, 0x138, 15, 15, 0); DPP(4, 0x134, 15, 15, 0); DPP(5, 0x13c, 15, 15, 0); DPP(6, 0x153, 15, 15, 0); DPP(7, 0xe4, 15, 15, 0); }
#else
KERNEL(dpp_chip) { DPP(0, 0x153, 15, 15, 0); DPP(1, 0x165, 15, 15, 0); PUT(2, __builtin_amdgcn_mov_dpp8(WORD, 0x39c1a5)); PUT(3, __builtin_amdgcn_permlane16(7, WORD, 0x76543210, 0xfedcba89, 0, 0)); PUT(4, __builtin_amdgcn_permlanex16(7, WORD, 0x01234567, 0x89abcdef, 0, 0)); PUT(5, __builtin_amdgcn_permlane64(WORD)); DPP(6, 0x15f, 3, 15, 0); DPP(7, 0xe4, 15, 15, 0); }
#endif
KERNEL(votes) {
#if defined(__gfx942__)
  u64 m = __builtin_amdgcn_ballot_w64(WORD & 1);
#else
  u64 m = __builtin_amdgcn_ballot_w32(WORD & 1);
#endif
  PUT(0, m); PUT(1, m >> 32); PUT(2, __builtin_amdgcn_readfirstlane(WORD)); PUT(3, __builtin_amdgcn_readlane(WORD, 11)); PUT(4, __builtin_amdgcn_mbcnt_hi((u32)(m >> 32), __builtin_amdgcn_mbcnt_lo((u32)m, 100)));
  if (WORD & 2) { PUT(5, __builtin_amdgcn_readfirstlane(WORD)); PUT(6, __builtin_amdgcn_update_dpp(0x55, WORD, 0x101, 15, 15, 0)); } else { PUT(5, 1); PUT(6, 2); }
  PUT(7, __builtin_amdgcn_wavefrontsize()); }
KERNEL(crossbar) { u32 l = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); PUT(0, __builtin_amdgcn_ds_bpermute((l * 7 + 3) * 4, WORD)); PUT(1, __builtin_amdgcn_ds_permute((l ^ 5) * 4, WORD)); PUT(2, __builtin_amdgcn_ds_swizzle(WORD, 0x041f)); PUT(3, __builtin_amdgcn_ds_swizzle(WORD, 0x801b)); PUT(4, __builtin_amdgcn_ds_swizzle(WORD, 0x1c03)); if (l & 1) PUT(5, __builtin_amdgcn_ds_bpermute((l ^ 1) * 4, WORD)); else PUT(5, 9); }
KERNEL(fields) { u32 a = WORD, b = in[gid() + n], c = in[gid() + 7]; PUT(0, __builtin_amdgcn_alignbit(a, b, c)); PUT(1, __builtin_amdgcn_alignbyte(a, b, c)); PUT(2, __builtin_amdgcn_perm(a, b, c)); PUT(3, __builtin_amdgcn_ubfe(a, b & 31, c & 31)); PUT(4, __builtin_amdgcn_sbfe(a, b & 31, c & 31)); PUT(5, __builtin_amdgcn_sad_u8(a, b, c)); PUT(6, __builtin_amdgcn_lerp(a, b, c)); PUT(7, __builtin_amdgcn_msad_u8(a, b, c)); PUT(8, __builtin_amdgcn_sad_u16(a, b, c)); PUT(9, __builtin_amdgcn_sad_hi_u8(a, b, c)); PUT(10, (u32)((i32)a >> (b & 31))); PUT(11, __builtin_amdgcn_cvt_pk_u8_f32((float)(a & 1023) * 0.3f, b & 3, c)); }
KERNEL(float_parts) { float a = f32_of(WORD), b = f32_of(in[gid() + n]), c = f32_of(in[gid() + 7]); PUT(0, fb(__builtin_amdgcn_fmed3f(a == a ? a : 1, b == b ? b : 2, c == c ? c : 3))); PUT(1, fb(__builtin_amdgcn_frexp_mantf(a))); PUT(2, __builtin_amdgcn_frexp_expf(a)); PUT(3, fb(__builtin_amdgcn_fractf(a))); PUT(4, __builtin_amdgcn_classf(a, 0x2a5)); PUT(5, fb(__builtin_amdgcn_ldexpf(a, (i32)(in[gid() + 3] & 255) - 128))); typedef __fp16 h2 __attribute__((ext_vector_type(2))); h2 p = __builtin_amdgcn_cvt_pkrtz(a != a ? 1 : a, b != b ? 1 : b); u32 w; __builtin_memcpy(&w, &p, 4); PUT(6, w); PUT(7, fb(__builtin_amdgcn_rcpf(a))); PUT(8, fb(__builtin_amdgcn_rsqf(a))); PUT(9, fb(__builtin_amdgcn_exp2f(a))); PUT(10, fb(__builtin_amdgcn_logf(a))); PUT(11, fb(__builtin_amdgcn_sinf(f32_of(WORD & 0x807fffff | 0x3f000000)))); PUT(12, fb(__builtin_amdgcn_cosf(f32_of(WORD & 0x807fffff | 0x40000000)))); PUT(13, fb(__builtin_amdgcn_sqrtf(a))); }
KERNEL(double_parts) { double a = f64_of(in64(in, gid())); out64(out, 4 * gid(), db(__builtin_amdgcn_frexp_mant(a))); out64(out, 4 * gid() + 1, __builtin_amdgcn_frexp_exp(a)); out64(out, 4 * gid() + 2, db(__builtin_amdgcn_ldexp(a, (i32)(in[gid() + 3] & 4095) - 2048))); out64(out, 4 * gid() + 3, __builtin_amdgcn_class(a, 0x15a)); }
KERNEL(dots) { u32 a = WORD, b = in[gid() + n], c = in[gid() + 7];
  PUT(0, __builtin_amdgcn_udot4(a, b, c, 0)); PUT(1, __builtin_amdgcn_udot8(a, b, c, 0)); PUT(2, __builtin_amdgcn_udot4(a, b, c | 0xffff0000u, 1));
#if defined(__gfx942__)
  PUT(3, __builtin_amdgcn_sdot4(a, b, c, 0)); PUT(4, __builtin_amdgcn_sdot8(a, b, c, 0));
#else
  PUT(3, __builtin_amdgcn_sudot4(1, a, 1, b, c, 0)); PUT(4, __builtin_amdgcn_sudot8(1, a, 1, b, c, 0));
#endif
  typedef _Float16 h2 __attribute__((ext_vector_type(2))); h2 x = {(_Float16)(float)(a & 15), (_Float16)(float)(a >> 4 & 15)}, y = {(_Float16)(float)(b & 15), (_Float16)-(float)(b >> 4 & 15)}; PUT(5, fb(__builtin_amdgcn_fdot2(x, y, (float)(c & 255), 0))); h2 z = x * y + x; u32 w; __builtin_memcpy(&w, &z, 4); PUT(6, w); h2 m = __builtin_elementwise_max(x, y); __builtin_memcpy(&w, &m, 4); PUT(7, w); h2 q = __builtin_elementwise_fma(x, y, -y); __builtin_memcpy(&w, &q, 4); PUT(8, w); }
KERNEL(float_atomics) { GLOBAL float *o = (GLOBAL float *)out; __atomic_fetch_add(&o[WORD & 3], (float)(in[gid() + 1] & 255), __ATOMIC_RELAXED); SHARED(float, s, 4); if (tid() < 4) s[tid()] = 0; barrier(); __atomic_fetch_add(&s[WORD >> 4 & 3], (float)(in[gid() + 2] & 255), __ATOMIC_RELAXED); barrier(); if (tid() < 4) out[8 + 4 * bid() + tid()] = u32_of(s[tid()]); }
KERNEL(buffers) { __amdgpu_buffer_rsrc_t r = __builtin_amdgcn_make_buffer_rsrc((void *)in, 0, 1024,
#if defined(__gfx942__)
  0x27000
#else
  0x31016000
#endif
  ); typedef u32 v2 __attribute__((ext_vector_type(2))); typedef u32 v4 __attribute__((ext_vector_type(4))); u32 o = gid() * 4; PUT(0, __builtin_amdgcn_raw_buffer_load_b32(r, o, 0, 0)); PUT(1, __builtin_amdgcn_raw_buffer_load_b8(r, gid() + 3, 0, 0)); PUT(2, __builtin_amdgcn_raw_buffer_load_b16(r, 2 * gid(), 64, 0)); v2 a = __builtin_amdgcn_raw_buffer_load_b64(r, 2 * o, 0, 0); PUT(3, a.x ^ a.y); v4 b = __builtin_amdgcn_raw_buffer_load_b128(r, o + 16, 0, 0); PUT(4, b.x + b.y * 3 + b.z * 5 + b.w * 7);
  __amdgpu_buffer_rsrc_t w = __builtin_amdgcn_make_buffer_rsrc((void *)(out + 5 * n), 0, 4 * n - 64,
#if defined(__gfx942__)
  0x27000
#else
  0x31016000
#endif
  ); __builtin_amdgcn_raw_buffer_store_b32(WORD, w, o, 0, 0); __builtin_amdgcn_raw_buffer_store_b8((u8)(WORD >> 8), w, o + 1, 0, 0); }
