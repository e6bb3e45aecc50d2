// 16-bit floats, and the matrix instructions of a warp.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

extern "C" __global__ void half2_axpy(const __half2* x, __half2* y, float scale) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = __hfma2(__float2half2_rn(scale), x[i], y[i]);
}

extern "C" __global__ void half_operations(const __half* a, const __half* b, __half* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  __half x = a[i], y = b[i];
  __half* o = out + 8 * i;
  o[0] = __hadd_rn(x, y);
  o[1] = __hsub_rn(x, y);
  o[2] = __hmul_rn(x, y);
  o[3] = __hmin(x, y);
  o[4] = __hmax(x, y);
  o[5] = __hlt(x, y) ? __hneg(x) : __habs(y);
  o[6] = __float2half_rn(__half2float(x) * 3.0f);
  o[7] = __hadd_sat(x, y);
}

// Rows of 256 halves added up in pairs, then in float.
extern "C" __global__ void half_row_sums(const __half2* a, float* out) {
  int lane = threadIdx.x;
  __half2 sum = __float2half2_rn(0.0f);
  for (int k = 0; k < 4; k++) sum = __hadd2(sum, a[blockIdx.x * 128 + k * 32 + lane]);
  float s = __low2float(sum) + __high2float(sum);
  for (int d = 16; d > 0; d >>= 1) s += __shfl_xor_sync(~0u, s, d);
  if (lane == 0) out[blockIdx.x] = s;
}

extern "C" __global__ void bfloat_operations(const __nv_bfloat16* a, const float* f, __nv_bfloat16* out, float* wide) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  __nv_bfloat16 x = a[i], y = __float2bfloat16_rn(f[i]);
  out[3 * i] = y;
  out[3 * i + 1] = __hmul(x, y);
  out[3 * i + 2] = __hmax(x, y);
  wide[i] = __bfloat162float(x) * f[i];
}

// Matrices of small integers: every order of additions gives the same sums.
extern "C" __global__ void wmma_f16_f32(const __half* a, const __half* b, float* c, int k) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
  wmma::fill_fragment(fc, 0.0f);
  for (int i = 0; i < k; i += 16) {
    wmma::load_matrix_sync(fa, a + i, k);
    wmma::load_matrix_sync(fb, b + i, k);
    wmma::mma_sync(fc, fa, fb, fc);
  }
  wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}

extern "C" __global__ void wmma_f16_f16(const __half* a, const __half* b, __half* c) {
  wmma::fragment<wmma::matrix_a, 32, 8, 16, __half, wmma::col_major> fa;
  wmma::fragment<wmma::matrix_b, 32, 8, 16, __half, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 32, 8, 16, __half> fc;
  wmma::load_matrix_sync(fa, a, 32);
  wmma::load_matrix_sync(fb, b, 8);
  wmma::load_matrix_sync(fc, c, 8, wmma::mem_row_major);
  wmma::mma_sync(fc, fa, fb, fc);
  for (int i = 0; i < fc.num_elements; i++) fc.x[i] = __hadd(fc.x[i], fc.x[i]);
  wmma::store_matrix_sync(c, fc, 8, wmma::mem_row_major);
}

extern "C" __global__ void wmma_s8(const signed char* a, const signed char* b, int* c) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, int> fc;
  wmma::load_matrix_sync(fa, a, 16);
  wmma::load_matrix_sync(fb, b, 16);
  wmma::fill_fragment(fc, 5);
  wmma::mma_sync(fc, fa, fb, fc);
  wmma::store_matrix_sync(c, fc, 16, wmma::mem_col_major);
}

extern "C" __global__ void wmma_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
  wmma::load_matrix_sync(fa, a, 16);
  wmma::load_matrix_sync(fb, b, 16);
  wmma::fill_fragment(fc, 1.0f);
  wmma::mma_sync(fc, fa, fb, fc);
  wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}

extern "C" __global__ void wmma_tf32(const float* a, const float* b, float* c) {
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> fc;
  wmma::load_matrix_sync(fa, a, 8);
  wmma::load_matrix_sync(fb, b, 8);
  for (int i = 0; i < fa.num_elements; i++) fa.x[i] = wmma::__float_to_tf32(fa.x[i]);
  for (int i = 0; i < fb.num_elements; i++) fb.x[i] = wmma::__float_to_tf32(fb.x[i]);
  wmma::fill_fragment(fc, 0.0f);
  wmma::mma_sync(fc, fa, fb, fc);
  wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}

extern "C" __global__ void wmma_f64(const double* a, const double* b, double* c) {
  wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 8, 8, 4, double> fc;
  wmma::load_matrix_sync(fa, a, 4);
  wmma::load_matrix_sync(fb, b, 4);
  wmma::load_matrix_sync(fc, c, 8, wmma::mem_row_major);
  wmma::mma_sync(fc, fa, fb, fc);
  wmma::store_matrix_sync(c, fc, 8, wmma::mem_row_major);
}
