// Tiles, tables, local arrays, parameters, vectors.

extern "C" __global__ void transpose_tile(const float* a, float* out, int width, int height) {
  __shared__ float s[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) if (x < width && y + j < height) s[threadIdx.y + j][threadIdx.x] = a[(y + j) * width + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) if (x < height && y + j < width) out[(y + j) * height + x] = s[threadIdx.x][threadIdx.y + j];
}

extern "C" __global__ void matmul_tile(const float* a, const float* b, float* c, int n) {
  __shared__ float sa[16][16], sb[16][16];
  int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, column = blockIdx.x * 16 + tx;
  float sum = 0;
  for (int k = 0; k < n; k += 16) {
    sa[ty][tx] = a[row * n + k + tx];
    sb[ty][tx] = b[(k + ty) * n + column];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; i++) sum = fmaf(sa[ty][i], sb[i][tx], sum);
    __syncthreads();
  }
  c[row * n + column] = sum;
}

extern "C" __global__ void matmul_dp4a(const int* a, const int* b, int* c, int n) {
  int row = blockIdx.y * 8 + threadIdx.y, column = blockIdx.x * 8 + threadIdx.x, sum = 0;
  // The header's __dp4a does not compile without optimisation.
  for (int k = 0; k < n / 4; k++)
    asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a[row * (n / 4) + k]), "r"(b[column * (n / 4) + k]));
  c[row * n + column] = sum;
}

extern "C" __global__ void stencil(const float* a, float* out, int width, int height) {
  __shared__ float s[10][18];
  int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * 16 + tx, y = blockIdx.y * 8 + ty;
  for (int j = ty; j < 10; j += 8)
    for (int i = tx; i < 18; i += 16) {
      int gx = min(max((int)blockIdx.x * 16 + i - 1, 0), width - 1), gy = min(max((int)blockIdx.y * 8 + j - 1, 0), height - 1);
      s[j][i] = a[gy * width + gx];
    }
  __syncthreads();
  if (x >= width || y >= height) return;
  float sum = fmaf(4.0f, s[ty + 1][tx + 1], -s[ty][tx + 1]);
  sum = __fadd_rn(sum, -s[ty + 2][tx + 1]);
  sum = __fadd_rn(sum, -s[ty + 1][tx]);
  out[y * width + x] = __fadd_rn(sum, -s[ty + 1][tx + 2]);
}

// Counters in an array of the thread's own.
extern "C" __global__ void local_histogram(const unsigned char* a, unsigned* out, int n) {
  unsigned counts[16];
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = 0; i < 16; i++) counts[i] = 0;
  for (int i = 0; i < n; i++) counts[a[t * n + i] & 15]++;
  unsigned best = 0;
  for (int i = 1; i < 16; i++) if (counts[i] > counts[best]) best = i;
  out[2 * t] = best;
  out[2 * t + 1] = counts[best];
}

__constant__ unsigned crc_table[16] = {
    0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
    0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};

// CRC-32 by nibbles from a constant table.
extern "C" __global__ void crc32(const unsigned char* text, const int* starts, unsigned* out) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned crc = ~0u;
  for (int i = starts[t]; i < starts[t + 1]; i++) {
    crc ^= text[i];
    crc = crc_table[crc & 15] ^ crc >> 4;
    crc = crc_table[crc & 15] ^ crc >> 4;
  }
  out[t] = ~crc;
}

__device__ int primes[12] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
__device__ int squares[6] = {1, 4, 9, 16, 25, 36};
struct Row { const int* values; int count; };
__device__ Row rows[2] = {{primes, 12}, {squares, 6}};
__device__ int scratch[256];

// Tables in global memory, one of them with addresses, and one that is written first.
extern "C" __global__ void global_tables(const int* a, int* out) {
  int t = threadIdx.x, x = a[t];
  scratch[t] = x * 2 + 1;
  __syncthreads();
  Row row = rows[x & 1];
  out[t] = row.values[(x >> 1) % row.count] * 1000 + scratch[255 - t];
}

extern "C" __global__ void dynamic_shared(const int* a, int* out, int n) {
  extern __shared__ int s[];
  short* halves = (short*)(s + n);
  for (int i = threadIdx.x; i < n; i += blockDim.x) { s[i] = a[i]; halves[i] = (short)(a[i] >> 3); }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = s[n - 1 - i] - halves[(i * 5) % n];
}

struct Config { int scale; short offsets[6]; double weight; unsigned char flags[5]; };

// A structure by value, indexed at run time.
extern "C" __global__ void struct_argument(Config c, const int* a, double* out, char shift) {
  int t = threadIdx.x, x = a[t];
  int y = x * c.scale + c.offsets[(x >> 2) % 6 < 0 ? 0 : (x >> 2) % 6];
  if (c.flags[t % 5]) y >>= shift;
  out[t] = y * c.weight;
}

extern "C" __global__ void vector_access(const float4* a, const int2* b, const uchar4* c, float4* out, ushort4* narrow) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 x = a[i];
  int2 y = b[i];
  uchar4 z = c[i];
  out[i] = make_float4(x.w, __fadd_rn(x.z, (float)y.x), __fmul_rn(x.y, (float)z.x), (float)(y.y + z.w));
  narrow[i] = make_ushort4(z.x * 257, z.y + z.z, (unsigned short)y.x, (unsigned short)(y.y >> 8));
}

// Bytes at odd places.
extern "C" __global__ void unaligned_words(const unsigned char* a, unsigned* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i + 4 > n) return;
  out[i] = a[i] | a[i + 1] << 8 | a[i + 2] << 16 | (unsigned)a[i + 3] << 24;
}

// Asynchronous copies to shared memory, two stages.
extern "C" __global__ void async_copy(const int* a, int* out, int tiles) {
  __shared__ __align__(16) int s[2][128];
  int t = threadIdx.x, sum = 0;
  auto fetch = [&](int tile) {
    unsigned to = (unsigned)__cvta_generic_to_shared(&s[tile & 1][t * 4]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(a + tile * 128 + t * 4) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  fetch(0);
  for (int tile = 0; tile < tiles; tile++) {
    if (tile + 1 < tiles) {
      fetch(tile + 1);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    for (int k = 0; k < 4; k++) sum += s[tile & 1][127 - (t * 4 + k)] * (k + 1);
    __syncthreads();
  }
  out[t] = sum;
}
