// Sorting, searching, prefix sums.

// 512 keys a block of 256 threads.
extern "C" __global__ void bitonic_sort(unsigned* keys) {
  __shared__ unsigned s[512];
  unsigned t = threadIdx.x, base = blockIdx.x * 512;
  s[t] = keys[base + t];
  s[t + 256] = keys[base + t + 256];
  for (unsigned size = 2; size <= 512; size <<= 1) {
    for (unsigned stride = size / 2; stride > 0; stride >>= 1) {
      __syncthreads();
      unsigned i = 2 * t - (t & (stride - 1)), j = i + stride;
      bool up = (i & size) == 0;
      unsigned a = s[i], b = s[j];
      if ((a > b) == up) { s[i] = b; s[j] = a; }
    }
  }
  __syncthreads();
  keys[base + t] = s[t];
  keys[base + t + 256] = s[t + 256];
}

// Pairs by key, keys distinct in a block of 128.
extern "C" __global__ void odd_even_sort(int* keys, int* values) {
  __shared__ int k[128], v[128];
  int t = threadIdx.x, g = blockIdx.x * 128 + t;
  k[t] = keys[g];
  v[t] = values[g];
  __syncthreads();
  for (int round = 0; round < 128; round++) {
    int i = 2 * t + (round & 1);
    if (i + 1 < 128 && k[i] > k[i + 1]) {
      int x = k[i]; k[i] = k[i + 1]; k[i + 1] = x;
      x = v[i]; v[i] = v[i + 1]; v[i + 1] = x;
    }
    __syncthreads();
  }
  keys[g] = k[t];
  values[g] = v[t];
}

// Least bit first, one bit a round, by ballots and a scan over warps.
extern "C" __global__ void radix_sort(unsigned* keys, unsigned bits) {
  __shared__ unsigned s[256];
  __shared__ unsigned zeros_of_warp[8];
  unsigned t = threadIdx.x, lane = t & 31, warp = t >> 5, g = blockIdx.x * 256 + t;
  unsigned key = keys[g];
  for (unsigned bit = 0; bit < bits; bit++) {
    bool one = key >> bit & 1;
    unsigned ones = __ballot_sync(~0u, one);
    unsigned zeros_below = __popc(~ones & ((1u << lane) - 1));
    if (lane == 0) zeros_of_warp[warp] = __popc(~ones);
    __syncthreads();
    unsigned before = 0, zeros = 0;
    for (unsigned w = 0; w < 8; w++) {
      if (w < warp) before += zeros_of_warp[w];
      zeros += zeros_of_warp[w];
    }
    unsigned rank_of_zero = before + zeros_below;
    s[one ? zeros + t - rank_of_zero : rank_of_zero] = key;
    __syncthreads();
    key = s[t];
  }
  keys[g] = key;
}

// Two sorted arrays of n into one: each element finds its rank in the other.
extern "C" __global__ void merge_by_rank(const int* a, const int* b, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 2 * n) return;
  bool first = i < n;
  int own = first ? i : i - n;
  int x = first ? a[own] : b[own];
  const int* other = first ? b : a;
  int lo = 0, hi = n;
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    bool less = first ? other[mid] < x : other[mid] <= x;
    if (less) lo = mid + 1; else hi = mid;
  }
  out[own + lo] = x;
}

__device__ __noinline__ void quick(int* a, int lo, int hi) {
  if (lo >= hi) return;
  int pivot = a[(lo + hi) / 2], i = lo, j = hi;
  while (i <= j) {
    while (a[i] < pivot) i++;
    while (a[j] > pivot) j--;
    if (i <= j) { int x = a[i]; a[i++] = a[j]; a[j--] = x; }
  }
  quick(a, lo, j);
  quick(a, i, hi);
}

// Each thread sorts its own n numbers by recursion.
extern "C" __global__ void quick_sort(int* a, int n) {
  quick(a + (blockIdx.x * blockDim.x + threadIdx.x) * n, 0, n - 1);
}

// Inclusive, 256 a block.
extern "C" __global__ void scan_hillis(unsigned* a) {
  __shared__ unsigned s[2][256];
  unsigned t = threadIdx.x, g = blockIdx.x * 256 + t;
  int from = 0;
  s[0][t] = a[g];
  __syncthreads();
  for (unsigned d = 1; d < 256; d <<= 1) {
    s[1 - from][t] = s[from][t] + (t >= d ? s[from][t - d] : 0);
    from = 1 - from;
    __syncthreads();
  }
  a[g] = s[from][t];
}

#define PAD(i) ((i) + ((i) >> 5))
// Exclusive, 512 a block of 256, up-sweep and down-sweep; the total to totals.
extern "C" __global__ void scan_blelloch(unsigned* a, unsigned* totals) {
  extern __shared__ unsigned d[];
  unsigned t = threadIdx.x, base = blockIdx.x * 512;
  d[PAD(2 * t)] = a[base + 2 * t];
  d[PAD(2 * t + 1)] = a[base + 2 * t + 1];
  unsigned step = 1;
  for (unsigned n = 256; n > 0; n >>= 1) {
    __syncthreads();
    if (t < n) d[PAD(step * (2 * t + 2) - 1)] += d[PAD(step * (2 * t + 1) - 1)];
    step <<= 1;
  }
  if (t == 0) { totals[blockIdx.x] = d[PAD(511)]; d[PAD(511)] = 0; }
  for (unsigned n = 1; n <= 256; n <<= 1) {
    step >>= 1;
    __syncthreads();
    if (t < n) {
      unsigned i = PAD(step * (2 * t + 1) - 1), j = PAD(step * (2 * t + 2) - 1), x = d[i];
      d[i] = d[j];
      d[j] += x;
    }
  }
  __syncthreads();
  a[base + 2 * t] = d[PAD(2 * t)];
  a[base + 2 * t + 1] = d[PAD(2 * t + 1)];
}

// Inclusive scan of 64-bit sums over 1024 by shuffles, one block.
extern "C" __global__ void scan_shuffle(const int* a, long long* out) {
  __shared__ long long sums[32];
  int t = threadIdx.x, lane = t & 31, warp = t >> 5;
  long long x = a[blockIdx.x * 1024 + t];
  for (int d = 1; d < 32; d <<= 1) {
    long long y = __shfl_up_sync(~0u, x, d);
    if (lane >= d) x += y;
  }
  if (lane == 31) sums[warp] = x;
  __syncthreads();
  if (warp == 0) {
    long long s = sums[lane];
    for (int d = 1; d < 32; d <<= 1) {
      long long y = __shfl_up_sync(~0u, s, d);
      if (lane >= d) s += y;
    }
    sums[lane] = s;
  }
  __syncthreads();
  out[blockIdx.x * 1024 + t] = x + (warp > 0 ? sums[warp - 1] : 0);
}

// Sums begin anew at flags; one warp a block.
extern "C" __global__ void segmented_scan(int* a, const unsigned char* flags) {
  int lane = threadIdx.x, g = blockIdx.x * 32 + lane;
  int x = a[g];
  unsigned heads = __ballot_sync(~0u, flags[g] != 0) | 1;
  int start = 31 - __clz(heads & (~0u >> (31 - lane)));
  for (int d = 1; d < 32; d <<= 1) {
    int y = __shfl_up_sync(~0u, x, d);
    if (lane - d >= start) x += y;
  }
  a[g] = x;
}

// Keeps what is odd, in order, each block to its own place; counts to counts.
extern "C" __global__ void compact_odd(const unsigned* a, unsigned* out, unsigned* counts) {
  __shared__ unsigned of_warp[9];
  unsigned t = threadIdx.x, lane = t & 31, warp = t >> 5, base = blockIdx.x * 256;
  unsigned x = a[base + t];
  bool keep = x & 1;
  unsigned mask = __ballot_sync(~0u, keep);
  if (lane == 0) of_warp[warp + 1] = __popc(mask);
  if (t == 0) of_warp[0] = 0;
  __syncthreads();
  if (t == 0) for (int w = 1; w <= 8; w++) of_warp[w] += of_warp[w - 1];
  __syncthreads();
  if (keep) out[base + of_warp[warp] + __popc(mask & ((1u << lane) - 1))] = x;
  if (t == 0) counts[blockIdx.x] = of_warp[8];
}
