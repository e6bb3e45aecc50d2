// Of tests/device_nv; constants_sm90.cubin is `nvcc -cubin -arch=sm_90` 13.x of this file.

__constant__ int primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__device__ int squares[8] = {0, 1, 4, 9, 16, 25, 36, 49};

// A table of either kind behind one pointer: constants are read at a generic address.
extern "C" __global__ void choose(const int* which, int* out) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  const int* table = which[t] & 1 ? primes : squares;
  out[t] = table[t & 7];
}
