// Reductions, histograms, atomics, warp votes and shuffles.

// A tree in shared memory: the order of the additions is fixed.
extern "C" __global__ void reduce_tree(const float* a, float* out, int n) {
  __shared__ float s[256];
  int t = threadIdx.x;
  float x = 0;
  for (int i = blockIdx.x * 256 + t; i < n; i += gridDim.x * 256) x = __fadd_rn(x, a[i]);
  s[t] = x;
  __syncthreads();
  for (int d = 128; d > 0; d >>= 1) {
    if (t < d) s[t] = __fadd_rn(s[t], s[t + d]);
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = s[0];
}

extern "C" __global__ void reduce_shuffle(const long long* a, long long* out) {
  long long x = a[blockIdx.x * blockDim.x + threadIdx.x];
  for (int d = 16; d > 0; d >>= 1) x += __shfl_down_sync(~0u, x, d);
  if ((threadIdx.x & 31) == 0) atomicAdd((unsigned long long*)&out[blockIdx.x], (unsigned long long)x);
}

// The largest and the first place it stands at.
extern "C" __global__ void arg_max(const float* a, int* place, float* value) {
  __shared__ float sv[8];
  __shared__ int sp[8];
  int t = threadIdx.x, p = blockIdx.x * 256 + t;
  float v = a[p];
  for (int d = 1; d < 32; d <<= 1) {
    float w = __shfl_xor_sync(~0u, v, d);
    int q = __shfl_xor_sync(~0u, p, d);
    if (w > v || (w == v && q < p)) { v = w; p = q; }
  }
  if ((t & 31) == 0) { sv[t >> 5] = v; sp[t >> 5] = p; }
  __syncthreads();
  if (t == 0) {
    for (int i = 1; i < 8; i++) if (sv[i] > v || (sv[i] == v && sp[i] < p)) { v = sv[i]; p = sp[i]; }
    place[blockIdx.x] = p;
    value[blockIdx.x] = v;
  }
}

extern "C" __global__ void dot_f64(const double* a, const double* b, double* out, int n) {
  __shared__ double s[128];
  int t = threadIdx.x;
  double x = 0;
  for (int i = t; i < n; i += 128) x = fma(a[i], b[i], x);
  s[t] = x;
  __syncthreads();
  for (int d = 64; d > 0; d >>= 1) {
    if (t < d) s[t] += s[t + d];
    __syncthreads();
  }
  if (t == 0) *out = s[0];
}

extern "C" __global__ void histogram_shared(const unsigned char* a, unsigned* bins, int n) {
  __shared__ unsigned s[256];
  s[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&s[a[i]], 1u);
  __syncthreads();
  if (s[threadIdx.x]) atomicAdd(&bins[threadIdx.x], s[threadIdx.x]);
}

extern "C" __global__ void histogram_global(const float* a, unsigned* bins, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    int bin = (int)(a[i] * 16.0f);
    bin = bin < 0 ? 0 : bin > 15 ? 15 : bin;
    atomicAdd(&bins[bin], 1u);
  }
}

extern "C" __global__ void atomic_mix(const int* a, int* r, unsigned long long* w) {
  int x = a[blockIdx.x * blockDim.x + threadIdx.x];
  atomicAdd(&r[0], x);
  atomicSub(&r[1], x);
  atomicMin(&r[2], x);
  atomicMax(&r[3], x);
  atomicAnd(&r[4], x | 0x00ff0000);
  atomicOr(&r[5], x & 0x0f0f0f0f);
  atomicXor(&r[6], x);
  atomicInc((unsigned*)&r[7], 99u);
  atomicDec((unsigned*)&r[8], 77u);
  atomicMin((unsigned*)&r[9], (unsigned)x);
  atomicMax((unsigned*)&r[10], (unsigned)x);
  atomicAdd(&w[0], (unsigned long long)(unsigned)x << 16);
  atomicMax(&w[1], (unsigned long long)(unsigned)x * 977);
  atomicXor(&w[2], (unsigned long long)(unsigned)x * 0x100000001ull);
  atomicAnd(&w[3], ~(1ull << (x & 63)));
}

// A product modulo a prime by compare-and-swap: commutative, so the order does not matter.
extern "C" __global__ void atomic_cas_product(const unsigned* a, unsigned* r) {
  unsigned x = a[blockIdx.x * blockDim.x + threadIdx.x] % 65521u;
  if (x == 0) x = 1;
  unsigned old = *(volatile unsigned*)r, seen;
  do {
    seen = old;
    old = atomicCAS(r, seen, (unsigned)((unsigned long long)seen * x % 65521u));
  } while (old != seen);
}

extern "C" __global__ void atomic_float(const float* a, float* sums, double* wide) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&sums[i & 3], a[i]);
  atomicAdd(wide, (double)a[i]);
}

// The block that comes last adds up what all have written.
__device__ unsigned blocks_done;
extern "C" __global__ void last_block_sums(const unsigned* a, unsigned* parts, unsigned* out) {
  __shared__ bool last;
  unsigned x = a[blockIdx.x * 64 + threadIdx.x];
  x = __reduce_add_sync(~0u, x);
  __shared__ unsigned s[2];
  if ((threadIdx.x & 31) == 0) s[threadIdx.x >> 5] = x;
  __syncthreads();
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = s[0] + s[1];
    __threadfence();
    last = atomicInc(&blocks_done, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    unsigned sum = 0;
    for (unsigned i = 0; i < gridDim.x; i++) sum += ((volatile unsigned*)parts)[i];
    *out = sum;
  }
}

// All lanes take part in widths 32, 16 and 8.
extern "C" __global__ void shuffles(const int* a, int* out) {
  int t = threadIdx.x, g = blockIdx.x * 32 + t, x = a[g];
  int* o = out + g * 8;
  o[0] = __shfl_sync(~0u, x, (t * 7 + 3) & 31);
  o[1] = __shfl_up_sync(~0u, x, 3);
  o[2] = __shfl_down_sync(~0u, x, 5);
  o[3] = __shfl_xor_sync(~0u, x, 9);
  o[4] = __shfl_sync(~0u, x, t + 1, 16);
  o[5] = __shfl_up_sync(~0u, x, 2, 8);
  o[6] = __shfl_down_sync(~0u, x, 6, 16);
  o[7] = __shfl_xor_sync(~0u, x, 12, 16);
}

extern "C" __global__ void votes(const int* a, unsigned* out) {
  int t = threadIdx.x, g = blockIdx.x * 32 + t, x = a[g];
  unsigned* o = out + g * 6;
  o[0] = __ballot_sync(~0u, x & 1);
  o[1] = __any_sync(~0u, x == 7) * 2 + __all_sync(~0u, x < 1000);
  o[2] = __match_any_sync(~0u, x & 7);
  int same;
  o[3] = __match_all_sync(~0u, x >> 20, &same);
  o[4] = same;
  unsigned inside = 0;
  if (x & 2) inside = __ballot_sync(__activemask(), x & 4);
  o[5] = inside;
}

extern "C" __global__ void redux(const int* a, int* out) {
  int x = a[blockIdx.x * 32 + threadIdx.x];
  int r[8];
  r[0] = __reduce_add_sync(~0u, (unsigned)x);
  r[1] = __reduce_min_sync(~0u, x);
  r[2] = __reduce_max_sync(~0u, x);
  r[3] = __reduce_min_sync(~0u, (unsigned)x);
  r[4] = __reduce_max_sync(~0u, (unsigned)x);
  r[5] = __reduce_and_sync(~0u, (unsigned)x | 0xff);
  r[6] = __reduce_or_sync(~0u, (unsigned)x & 0x0ff0);
  r[7] = __reduce_xor_sync(~0u, (unsigned)x);
  if (threadIdx.x < 8) out[blockIdx.x * 8 + threadIdx.x] = r[threadIdx.x];
}

// A 32 by 32 matrix over a warp's registers.
extern "C" __global__ void warp_transpose(const unsigned* a, unsigned* out) {
  unsigned lane = threadIdx.x, row[32];
#pragma unroll
  for (int i = 0; i < 32; i++) row[i] = a[i * 32 + lane];
#pragma unroll
  for (int d = 1; d < 32; d <<= 1) {
#pragma unroll
    for (int i = 0; i < 32; i++) {
      if (i & d) continue;
      unsigned keep = lane & d ? row[i + d] : row[i];
      unsigned give = lane & d ? row[i] : row[i + d];
      unsigned got = __shfl_xor_sync(~0u, give, d);
      row[i] = lane & d ? got : keep;
      row[i + d] = lane & d ? keep : got;
    }
  }
#pragma unroll
  for (int i = 0; i < 32; i++) out[i * 32 + lane] = row[i];
}

extern "C" __global__ void warp_bitonic(unsigned* a) {
  unsigned lane = threadIdx.x & 31, g = blockIdx.x * blockDim.x + threadIdx.x, x = a[g];
  for (unsigned size = 2; size <= 32; size <<= 1)
    for (unsigned d = size >> 1; d > 0; d >>= 1) {
      unsigned y = __shfl_xor_sync(~0u, x, d);
      bool up = (lane & size) == 0, lower = (lane & d) == 0;
      x = up == lower ? min(x, y) : max(x, y);
    }
  a[g] = x;
}

extern "C" __global__ void block_votes(const int* a, int* out) {
  int x = a[blockIdx.x * blockDim.x + threadIdx.x];
  int n = __syncthreads_count(x > 0), o = __syncthreads_or(x == 77), e = __syncthreads_and(x > -900);
  if (threadIdx.x == 0) { out[blockIdx.x * 3] = n; out[blockIdx.x * 3 + 1] = o != 0; out[blockIdx.x * 3 + 2] = e != 0; }
}

// Two halves of a block hand over a buffer through named barriers.
extern "C" __global__ void named_barriers(const int* a, int* out, int rounds) {
  __shared__ int buffer[64];
  int t = threadIdx.x & 63;
  if (threadIdx.x < 64) {
    for (int r = 0; r < rounds; r++) {
      buffer[t] = a[r * 64 + t] * 3;
      asm volatile("bar.arrive 1, 128;" ::: "memory");
      asm volatile("bar.sync 2, 128;" ::: "memory");
    }
  } else {
    int sum = 0;
    for (int r = 0; r < rounds; r++) {
      asm volatile("bar.sync 1, 128;" ::: "memory");
      sum += buffer[63 - t] ^ r;
      asm volatile("bar.arrive 2, 128;" ::: "memory");
    }
    out[t] = sum;
  }
}
