// Integers: division, wide products, bits, hashes, conversions.

extern "C" __global__ void divide64(const long long* a, const long long* b, long long* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  long long x = a[i], y = b[i];
  unsigned long long u = x, v = y;
  out[4 * i] = x / y;
  out[4 * i + 1] = x % y;
  out[4 * i + 2] = u / v;
  out[4 * i + 3] = u % v;
}

extern "C" __global__ void divide32(const int* a, const int* b, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i];
  int* o = out + 8 * i;
  o[0] = x / y;
  o[1] = x % y;
  o[2] = (unsigned)x / (unsigned)y;
  o[3] = (unsigned)x % (unsigned)y;
  o[4] = x / 7;
  o[5] = (unsigned)x / 641u;
  o[6] = x % 10;
  o[7] = (short)x / (short)((y & 0x7fff) | 1);
}

extern "C" __global__ void multiply128(const unsigned long long* a, const unsigned long long* b, unsigned long long* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned __int128 p = (unsigned __int128)a[i] * b[i] + a[i];
  out[4 * i] = (unsigned long long)p;
  out[4 * i + 1] = (unsigned long long)(p >> 64);
  out[4 * i + 2] = (unsigned long long)(p >> 37);
  out[4 * i + 3] = __mul64hi((long long)a[i], (long long)b[i]);
}

extern "C" __global__ void bit_tricks(const unsigned* a, const unsigned* b, unsigned* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned x = a[i], y = b[i];
  unsigned* o = out + 12 * i;
  o[0] = __popc(x) | __clz(y) << 8 | __ffs(x & y) << 16;
  o[1] = __brev(x);
  o[2] = __byte_perm(x, y, y & 0x7777);
  o[3] = __funnelshift_l(x, y, x & 63);
  o[4] = __funnelshift_rc(x, y, y & 63);
  o[5] = (x & ~y) | (~x & y & 0xff00ff00) ^ (x | y) >> 3;
  o[6] = __popcll((unsigned long long)x << 32 | y) + __clzll((unsigned long long)y << 7);
  o[7] = x << (y & 31) ^ (int)y >> (x & 31);
  unsigned long long w = ((unsigned long long)x << 32 | y);
  w = w << (y & 63) ^ w >> (x & 63);
  o[8] = (unsigned)w;
  o[9] = (unsigned)(w >> 32);
  o[10] = __ffsll(w) + (unsigned)(__brevll(w) >> 40);
  o[11] = (x >> (y & 15) & ((1u << (x & 15)) - 1)) + (int)(x << 13) / (1 << 20);
}

extern "C" __global__ void modular_power(const unsigned long long* a, const unsigned* e, unsigned long long* out, unsigned long long m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned long long base = a[i] % m, r = 1;
  for (unsigned n = e[i]; n; n >>= 1) {
    if (n & 1) r = r * base % m;
    base = base * base % m;
  }
  out[i] = r;
}

__constant__ unsigned sha_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// One block of 64 bytes a thread.
extern "C" __global__ void sha256_block(const unsigned* message, unsigned* out) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned w[16], h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}, s[8];
  for (int i = 0; i < 16; i++) w[i] = __byte_perm(message[t * 16 + i], 0, 0x0123);
  for (int i = 0; i < 8; i++) s[i] = h[i];
#define ROR(x, n) __funnelshift_r(x, x, n)
#pragma unroll 1
  for (int i = 0; i < 64; i++) {
    unsigned x = w[i & 15];
    unsigned t1 = s[7] + (ROR(s[4], 6) ^ ROR(s[4], 11) ^ ROR(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6])) + sha_k[i] + x;
    unsigned t2 = (ROR(s[0], 2) ^ ROR(s[0], 13) ^ ROR(s[0], 22)) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
    s[7] = s[6]; s[6] = s[5]; s[5] = s[4]; s[4] = s[3] + t1; s[3] = s[2]; s[2] = s[1]; s[1] = s[0]; s[0] = t1 + t2;
    unsigned y = w[(i + 1) & 15], z = w[(i + 14) & 15];
    w[i & 15] = x + (ROR(y, 7) ^ ROR(y, 18) ^ y >> 3) + w[(i + 9) & 15] + (ROR(z, 17) ^ ROR(z, 19) ^ z >> 10);
  }
  for (int i = 0; i < 8; i++) out[t * 8 + i] = h[i] + s[i];
}

extern "C" __global__ void murmur3(const unsigned* keys, unsigned* out, int words, unsigned seed) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned h = seed;
  for (int i = 0; i < words; i++) {
    unsigned k = keys[t * words + i] * 0xcc9e2d51u;
    k = (k << 15 | k >> 17) * 0x1b873593u;
    h ^= k;
    h = (h << 13 | h >> 19) * 5 + 0xe6546b64u;
  }
  h ^= 4 * words;
  h = (h ^ h >> 16) * 0x85ebca6bu;
  h = (h ^ h >> 13) * 0xc2b2ae35u;
  out[t] = h ^ h >> 16;
}

extern "C" __global__ void integer_intrinsics(const int* a, const int* b, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i], y = b[i];
  int* o = out + 10 * i;
  o[0] = __mulhi(x, y);
  o[1] = __umulhi(x, y);
  o[2] = __sad(x >> 1, y >> 1, 5);
  o[3] = __mul24(x, y);
  o[4] = __hadd(x, y);
  o[5] = __rhadd(x, y);
  o[6] = min(x, y) ^ max((unsigned)x, (unsigned)y);
  o[7] = abs(x >> 1) - abs(y >> 1);
  o[8] = __vadd4(x, y);
  o[9] = __vabsdiffu4(x, y);
}

// Between all widths of integers and floats.
extern "C" __global__ void conversions(const int* a, const float* f, const double* d, long long* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i];
  float g = f[i];
  double e = d[i];
  long long* o = out + 16 * i;
  o[0] = (signed char)x;
  o[1] = (unsigned char)x;
  o[2] = (short)x;
  o[3] = (unsigned short)x;
  o[4] = (int)g;
  o[5] = __float2int_rn(g);
  o[6] = __float2int_ru(g);
  o[7] = __float2uint_rd(g);
  o[8] = (long long)e;
  o[9] = __double2int_rn(e);
  o[10] = __float_as_int((float)x);
  o[11] = __float_as_int((float)e);
  o[12] = __double_as_longlong((double)x);
  o[13] = __double_as_longlong((double)g);
  o[14] = __float_as_int((float)((long long)x * 1000003));
  o[15] = (long long)(unsigned char)(int)fabsf(g);
}
