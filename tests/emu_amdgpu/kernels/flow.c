#include "kernel.h"
KERNEL(collatz) { u32 i = gid(); if (i < n) { u32 a = in[i] & 0xffff, k = 0; while (a > 1 && k < 200) { a = a & 1 ? 3 * a + 1 : a / 2; k++; } out[i] = k; } }
KERNEL(nested_branches) { u32 i = gid(); u32 a = in[i], r = 1; if (a & 1) { r += 5; if (a & 2) { r *= a; } else { r ^= a; for (u32 k = 0; k < (a >> 28); k++) { if (k == (a >> 20 & 15)) break; if (k & 1) continue; r = r * 31 + k; } } } else if (a & 4) r -= a; else { do { r += 7; a >>= 3; } while (a); } out[i] = r; }
KERNEL(switch_many) { u32 i = gid(); u32 a = in[i], r; switch (a % 9) { case 0: r = a * 3; break; case 1: r = a >> 4; break; case 2: r = ~a; break; case 3: r = a + i; break; case 4: r = a - i; break; case 5: r = a | 0xf0f0; break; case 6: r = a % 77; break; case 7: r = 0; /* falls through */ default: r = 9 + a; } out[i] = r; }
KERNEL(uniform_loop) { u32 i = gid(); u32 s = 0; for (u32 k = 0; k < 40; k++) s = s * 5 + in[k] + (i << (k & 7)); out[i] = s; }
KERNEL(gcd) { u32 i = gid(); u32 a = in[i] | 1, b = in[i + n] >> 3; for (int k = 0; k < 64 && b; k++) { u32 t = a % b; a = b; b = t; } out[i] = a; }
KERNEL(early_return) { u32 i = gid(); if (in[i] % 3 == 0) return; out[i] = 1; if (in[i] % 3 == 1) { out[i] = 2; return; } out[i + n + 5] = in[i]; }
KERNEL(scratch_array) { u32 i = gid(); u32 a[32]; for (int k = 0; k < 32; k++) a[k] = in[i + k] ^ k; for (int r = 0; r < 3; r++) { u32 p = a[(in[i] >> (5 * r)) & 31] & 31; u32 t = a[p]; a[p] = a[31 - p]; a[31 - p] = t + r; } u32 s = 0; for (int k = 0; k < 32; k++) s = s * 7 + a[k]; out[i] = s; }
KERNEL(insertion_sort) { u32 i = gid(); u8 a[16]; for (int k = 0; k < 16; k++) a[k] = (u8)(in[i] >> k) ^ (u8)(in[i + 1] >> (2 * k)); for (int k = 1; k < 16; k++) { u8 v = a[k]; int j = k - 1; while (j >= 0 && a[j] > v) { a[j + 1] = a[j]; j--; } a[j + 1] = v; } out[2 * i] = a[0] | a[5] << 8 | a[10] << 16 | (u32)a[15] << 24; out[2 * i + 1] = a[1] + a[8]; }
__attribute__((noinline)) static u32 twist(u32 a, u32 b) { return a * 2654435761u ^ b >> 3; }
KERNEL(function_call) { u32 i = gid(); u32 s = in[i]; for (u32 k = 0; k < (in[i] & 7); k++) s = twist(s, k); out[i] = s; }
__attribute__((noinline)) static u32 ackermann(u32 m, u32 k) { u32 r = 0; while (m--) r = twist(r + k, m); return r; }
KERNEL(nested_calls) { u32 i = gid(); out[i] = ackermann(in[i] & 15, i) + ackermann(3, in[i]); }
KERNEL(struct_copy) { struct s { u32 a, b[5]; u16 c; u8 d; } x, y; u32 i = gid(); x.a = in[i]; for (int k = 0; k < 5; k++) x.b[k] = in[i + k] * k; x.c = (u16)in[i + 1]; x.d = (u8)in[i + 2]; y = x; y.b[in[i] % 5] += y.c; out[i] = y.a ^ y.b[0] ^ y.b[1] ^ y.b[2] ^ y.b[3] ^ y.b[4] ^ y.d; }
