// What kernels ask of CUDA's runtime. `say` is also compiled by the host's compiler, whose printf is the reference.

#include <cassert>
#include <cstdio>
#ifdef __CUDACC__
#define DEVICE __device__ __noinline__
#else
#define DEVICE
#endif

DEVICE void say(int i, double x, long long big) {
    char own[8];
    for (int k = 0; k < 7; k++) own[k] = char('a' + (i + k) % 26);
    own[7] = 0;
    printf("plain text, 100%% of it\n");
    printf("%d %i %u %x %X %o %c|\n", i, -i, i, i, -i, i, 'A' + i % 26);
    printf("%5d|%-5d|%05d|%+d|% d|%.4d|%8.3d|%-8.3d|%.0d|\n", i, i, i, i, i, i, -i, i, i - i);
    printf("%#x %#X %#o %#o %#x %#8x %#08x %-#8x|\n", i, i, i, 0, 0, i, i, i);
    printf("%ld %lld %llu %llx %#llo %20lld|%-20lld|%020lld|\n", (long)big, big, big, -big, big, big, -big, big);
    printf("%hd %hhd %hu %hhu %hhx %zu %jd %td\n", i * 70000, i * 300, i * 70000, -i, -i, (size_t)big, big, big);
    printf("%f %F %.0f %#.0f %.1f %10.3f|%-10.3f|%010.3f|%+f % f\n", x, -x, x, x, x, x, x, -x, x, x);
    printf("%e %E %.0e %#.0e %.3e %15.2e|%-15.2e|%015.2e|\n", x, x, x, x, -x, x, x, x);
    printf("%g %G %.3g %#g %.10g %g %g %g %g %#.3g\n", x, x, x, x, x, 1e-5, 123456.0, 1234567.0, 0.0001, 2.0);
    printf("%a %A %.2a %.0a %#.0a %20a|%a %a %.15a %.1a\n", x, x, x, x, x, x, 0.0, 1e-310, x, 1.96875);
    printf("%f %e %g %5.1f|%05f|%F\n", __builtin_inf(), -__builtin_inf(), __builtin_nan(""), __builtin_nan(""), __builtin_inf(), __builtin_inf());
    printf("%s|%10s|%-10s|%.3s|%10.3s|%s|%s|\n", "text", "right", "left", "precise", "both", own, "");
    printf("%p %20p|%-20p|%p\n", (void *)0x1234, (void *)0xabcdef, (void *)16, (void *)0);
    printf("%*d|%-*d|%.*f|%*.*f|%*s|%.*s|%*d\n", 6, i, 6, i, 2, x, 10, 3, x, 8, "star", 2, "star", -6, i);
    printf("%s %d %s %lld %s %f %c\n", own, i, own + 2, big, "mixed", x, '!');
    printf("no line end, ");
    printf("then one\n");
    printf("%d%d%d%d%d%d%d%d%d%d\n", 1, 2, 3, 4, 5, 6, 7, 8, 9, i);
    printf("%%d %5c|%-5c|%c\n", 'x', 'y', 'z');
}

#ifdef __CUDACC__
extern "C" __global__ void report(int i, double x, long long big) { say(i, x, big); }

// Registers and predicates live across calls.
extern "C" __global__ void thrice(float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v[24], sum = 0;
    for (int k = 0; k < 24; k++) v[k] = float(i + k);
    bool odd = i & 1;
    for (int s = 0; s < n; s++) {
        if (printf("%d %d %d\n", blockIdx.x, threadIdx.x, s) != 3) v[0] = 1e9f;
        for (int k = 0; k < 24; k++) v[k] = v[k] * 0.5f + (odd ? v[(k + 1) % 24] : 1.0f);
    }
    for (int k = 0; k < 24; k++) sum += v[k];
    out[i] = sum;
}

extern "C" __global__ void check(int limit) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    printf("%d\n", i);
    assert(i < limit && "too many");
}

// Addresses of blocks, their bytes of different lengths, and whether each kept what was written.
extern "C" __global__ void blocks(unsigned long long *at, unsigned *kept, unsigned rounds) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, bytes = 4 + 4 * (i % 50), good = 0;
    for (unsigned r = 0; r <= rounds; r++) {
        unsigned *p = (unsigned *)malloc(bytes);
        if (!p) continue;
        for (unsigned k = 0; k < bytes / 4; k++) p[k] = i * 1000 + k + r;
        bool same = true;
        for (unsigned k = 0; k < bytes / 4; k++) same &= p[k] == i * 1000 + k + r;
        good += same;
        at[i] = (unsigned long long)p;
        if (r < rounds) free(p);
    }
    kept[i] = good;
}

extern "C" __global__ void fill(unsigned *count, unsigned bytes) {
    while (malloc(bytes)) atomicAdd(count, 1);
    if (!malloc(1ull << 50)) atomicAdd(count + 1, 1);
    free(nullptr);
}
#else
int main() { say(42, 3.14159265358979, 123456789012345ll); }
#endif
