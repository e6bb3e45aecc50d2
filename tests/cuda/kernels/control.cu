// Switches, loops that diverge, recursion, calls through pointers.

// A stack machine: opcode in the high nibble, operand in the low one.
extern "C" __global__ void bytecode(const unsigned char* programs, const int* inputs, int* out, int len) {
  int t = blockIdx.x * blockDim.x + threadIdx.x, stack[16], top = 0, steps = 0;
  const unsigned char* code = programs + (t & 3) * len;
  stack[0] = inputs[t];
  for (int pc = 0; pc < len && steps < 500; steps++) {
    unsigned char c = code[pc++];
    int arg = c & 15;
    switch (c >> 4) {
      case 0: top = min(top + 1, 15); stack[top] = arg; break;
      case 1: if (top) { stack[top - 1] += stack[top]; top--; } break;
      case 2: if (top) { stack[top - 1] -= stack[top]; top--; } break;
      case 3: if (top) { stack[top - 1] *= stack[top]; top--; } break;
      case 4: stack[top] ^= arg * 0x01010101; break;
      case 5: stack[top] = stack[top] >> arg; break;
      case 6: stack[top] = stack[top] << arg; break;
      case 7: if (top) { int x = stack[top]; stack[top] = stack[top - 1]; stack[top - 1] = x; } break;
      case 8: if (stack[top] & 1) pc += arg; break;
      case 9: pc = arg < pc && stack[top]-- > 0 ? arg : pc; break;
      case 10: top = min(top + 1, 15); stack[top] = stack[top > arg ? top - 1 - arg : 0]; break;
      case 11: stack[top] = ~stack[top]; break;
      case 12: stack[top] = stack[top] / (arg + 1); break;
      case 13: stack[top] = stack[top] % (arg + 2); break;
      case 14: if (top) top--; break;
      default: pc = len; break;
    }
  }
  out[2 * t] = stack[top];
  out[2 * t + 1] = steps * 100 + top;
}

extern "C" __global__ void collatz(const unsigned* a, unsigned* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned long long x = a[i];
  unsigned steps = 0, peak = 0;
  while (x != 1) {
    x = x & 1 ? 3 * x + 1 : x >> 1;
    steps++;
    peak = max(peak, (unsigned)(x >> 4));
  }
  out[2 * i] = steps;
  out[2 * i + 1] = peak;
}

extern "C" __global__ void gcd_lcm(const unsigned* a, const unsigned* b, unsigned long long* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned x = a[i], y = b[i];
  while (y) { unsigned r = x % y; x = y; y = r; }
  out[i] = (unsigned long long)(a[i] / x) * b[i] << 1 | (x & 1);
}

// Nested loops left in every way.
extern "C" __global__ void loop_exits(const int* a, int* out, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x, seed = a[t], sum = 0;
  out[t] = -1;
  for (int i = 0; i < n; i++) {
    if ((seed + i) % 7 == 3) continue;
    int j = 0;
    do {
      int x = (seed ^ i * 31) + j * 17;
      if (x % 11 == 0) break;
      if (x % 101 == 55) goto found;
      if (x % 211 == 1) return;
      sum += x & 255;
    } while (++j < (seed & 15) + 2);
    if (sum > 20000) break;
  }
  out[t] = sum;
  return;
found:
  out[t] = -sum - 2;
}

__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
  if (m == 0) return n + 1;
  if (n == 0) return ackermann(m - 1, 1);
  return ackermann(m - 1, ackermann(m, n - 1));
}

extern "C" __global__ void recursion(const unsigned* a, unsigned* out) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  out[t] = ackermann(a[t] % 3, a[t] / 3 % 5);
}

__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int square(int x) { return x * x; }
__device__ __noinline__ int flip(int x) { return ~x ^ 0x55; }
__device__ __noinline__ int halve(int x) { return x / 2 - 1; }
typedef int (*Function)(int);
__device__ Function functions[4] = {twice, square, flip, halve};

// Calls through a table, lanes to different places.
extern "C" __global__ void function_pointers(const int* a, int* out, int rounds) {
  int t = blockIdx.x * blockDim.x + threadIdx.x, x = a[t];
  for (int r = 0; r < rounds; r++) x = functions[(x + r) & 3](x) & 0xffff;
  out[t] = x;
}

extern "C" __global__ void mandelbrot(unsigned* out, int width, int height, int limit, float step) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  float cr = fmaf((float)x, step, -2.0f), ci = fmaf((float)y, step, -1.0f), zr = 0, zi = 0;
  int n = 0;
  for (; n < limit; n++) {
    float rr = __fmul_rn(zr, zr), ii = __fmul_rn(zi, zi);
    if (__fadd_rn(rr, ii) > 4.0f) break;
    zi = fmaf(__fadd_rn(zr, zr), zi, ci);
    zr = __fadd_rn(__fadd_rn(rr, -ii), cr);
  }
  out[y * width + x] = n;
}

// Solutions of n queens whose first queen stands at the thread's column, without recursion.
extern "C" __global__ void queens(int* out, int n) {
  int first = threadIdx.x, count = 0;
  if (first < n) {
    unsigned all = (1u << n) - 1, free_[16], columns[16], left[16], right[16];
    int depth = 1;
    columns[1] = 1u << first;
    left[1] = (1u << first) << 1;
    right[1] = (1u << first) >> 1;
    free_[1] = all & ~(columns[1] | left[1] | right[1]);
    while (depth > 0) {
      if (free_[depth] == 0) { depth--; continue; }
      unsigned bit = free_[depth] & -free_[depth];
      free_[depth] ^= bit;
      if (depth + 1 == n) { count++; continue; }
      columns[depth + 1] = columns[depth] | bit;
      left[depth + 1] = (left[depth] | bit) << 1;
      right[depth + 1] = (right[depth] | bit) >> 1;
      depth++;
      free_[depth] = all & ~(columns[depth] | left[depth] | right[depth]);
    }
  }
  out[threadIdx.x] = count;
}

// Where the pattern begins for the first time, and how often; the failure function is made by thread 0.
extern "C" __global__ void find_string(const char* text, const int* starts, const char* pattern, int len, int* out) {
  __shared__ int fail[64];
  if (threadIdx.x == 0) {
    fail[0] = 0;
    for (int i = 1, k = 0; i < len; i++) {
      while (k > 0 && pattern[i] != pattern[k]) k = fail[k - 1];
      if (pattern[i] == pattern[k]) k++;
      fail[i] = k;
    }
  }
  __syncthreads();
  int t = blockIdx.x * blockDim.x + threadIdx.x, at = -1, count = 0;
  for (int i = starts[t], k = 0; i < starts[t + 1]; i++) {
    while (k > 0 && text[i] != pattern[k]) k = fail[k - 1];
    if (text[i] == pattern[k]) k++;
    if (k == len) {
      if (count++ == 0) at = i - starts[t] - len + 1;
      k = fail[k - 1];
    }
  }
  out[2 * t] = at;
  out[2 * t + 1] = count;
}

struct Shape { int kind; int w, h; __device__ virtual int area() const { return w * h; } };
struct Triangle : Shape { __device__ int area() const override { return w * h / 2; } };
struct Frame : Shape { __device__ int area() const override { return 2 * (w + h) - 4; } };

// Objects made on the stack, called through their tables of virtual functions.
extern "C" __global__ void virtual_calls(const int* a, int* out) {
  int t = blockIdx.x * blockDim.x + threadIdx.x, x = a[t];
  Shape plain;
  Triangle triangle;
  Frame frame;
  Shape* s = x % 3 == 0 ? &plain : x % 3 == 1 ? (Shape*)&triangle : (Shape*)&frame;
  s->w = x & 63;
  s->h = x >> 6 & 63;
  out[t] = s->area();
}
