// The mathematics library (libdevice) in single and double precision.

#define EACH(name, type, ...)                                              \
  extern "C" __global__ void name(const type* a, const type* b, type* out, int n) { \
    int i = blockIdx.x * blockDim.x + threadIdx.x;                         \
    if (i >= n) return;                                                    \
    type x = a[i], y = b[i];                                               \
    type r[] = {__VA_ARGS__};                                              \
    _Pragma("unroll") for (int k = 0; k < sizeof(r) / sizeof(type); k++)   \
      out[k * n + i] = r[k];                                               \
  }

EACH(trigonometry, float, sinf(x), cosf(x), tanf(x))
EACH(exponentials, float, expf(y), exp2f(y), exp10f(y), expm1f(y))
EACH(logarithms, float, logf(fabsf(x)), log2f(fabsf(x)), log10f(fabsf(x)), log1pf(fabsf(x)))
EACH(powers, float, powf(fabsf(x), y), cbrtf(x), hypotf(x, y), rsqrtf(fabsf(x)))
EACH(inverse_trigonometry, float, asinf(y), acosf(y), atanf(x), atan2f(x, y))
EACH(hyperbolic, float, sinhf(y), coshf(y), tanhf(y), asinhf(x), acoshf(1.0f + fabsf(x)), atanhf(y))
EACH(error_functions, float, erff(y), erfcf(y), normcdff(y))
EACH(gamma_functions, float, lgammaf(1.0f + fabsf(y)), tgammaf(1.0f + fabsf(y)))
EACH(rounding, float, floorf(x), ceilf(x), truncf(x), rintf(x), roundf(x), fmodf(x, y), remainderf(x, y), fdimf(x, y), copysignf(x, y), fminf(x, y), fmaxf(x, y))
EACH(exact_float, float, x / y, sqrtf(fabsf(x)), __fmaf_rn(x, y, x), 1.0f / x, __fadd_rz(x, y), __fmul_ru(x, y), __fdiv_rd(x, y), ldexpf(x, 7))
EACH(double_functions, double, sin(x), cos(x), exp(y), log(fabs(x)), pow(fabs(x), y), tanh(y), atan2(x, y), cbrt(x))
EACH(exact_double, double, x / y, sqrt(fabs(x)), fma(x, y, x), 1.0 / x, floor(x), rint(y), fmin(x, y), __dadd_ru(x, y))
EACH(double_error_function, double, erf(y), erfc(y), lgamma(1.0 + fabs(y)))
EACH(fast_math, float, __sinf(y), __cosf(y), __expf(y), __logf(fabsf(x) + 0.5f), __fdividef(x, y), __powf(fabsf(x), y * 0.25f))

// Newton's method in double precision with a loop that ends per lane.
extern "C" __global__ void newton_root(const double* a, double* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double x = a[i], r = x > 1 ? x : 1;
  for (int k = 0; k < 60; k++) {
    double next = 0.5 * __dadd_rn(r, x / r);
    if (fabs(next - r) <= 1e-15 * fabs(r)) break;
    r = next;
  }
  out[i] = r;
}

// Polynomials in Horner's form over a table of doubles.
__constant__ double coefficients[8] = {1.0, -0.5, 0.25, -0.125, 3.5, -2.25, 0.0078125, 10.0};
extern "C" __global__ void horner(const double* a, double* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  double x = a[i], sum = 0;
  for (int k = 7; k >= 0; k--) sum = fma(sum, x, coefficients[k]);
  out[i] = sum;
}
