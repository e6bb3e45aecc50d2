/* What compilers put into an object: calls between functions, tables, zeros, data, jump tables, strings, pointers to
 * functions and data, externals. gcc.rs compiles it in many ways and compares with a program that the system's own
 * linker and loader made of the same source (-DNATIVE). No system header: the object must need nothing but `host_scale`. */

typedef unsigned long u64;
typedef unsigned int u32;
typedef unsigned char u8;

extern double host_scale(double x, u64 n);      /* the resolver provides it */
extern u64 maybe(u64 x) __attribute__((weak));  /* nobody provides it */
extern u64 host_words[4];                       /* data that the resolver provides */

static const u32 primes[64] = {
    2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113,
    127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191, 193, 197, 199, 211, 223, 227, 229, 233, 239, 241, 251,
    257, 263, 269, 271, 277, 281, 283, 293, 307, 311};
static float weights[8] = {0.5f, -1.25f, 2.0f, 3.5f, -0.125f, 8.0f, 1.0f, -2.5f}; /* .data: changed below */
static u64 calls;                                                             /* .bss, local */
u64 scratch[300];                                                             /* .bss, or common with -fcommon */
u64 alone;
static const char *const names[] = {"alpha", "beta", "gamma delta", "epsilon"}; /* pointers in read-only data */
u64 *const inside = &scratch[7];                                                /* a pointer into another section */

__attribute__((noinline)) static u64 rotate(u64 x, u64 n) { return x << (n & 63) | x >> (-n & 63); }
__attribute__((noinline)) u64 mix(u64 x) {
    calls += 1;
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ul;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebul;
    return x ^ x >> 31;
}
__attribute__((noinline)) static u64 add(u64 a, u64 b) { return a + b; }
__attribute__((noinline)) static u64 mul(u64 a, u64 b) { return a * b; }
__attribute__((noinline)) static u64 xor_(u64 a, u64 b) { return a ^ rotate(b, a); }
typedef u64 (*operation)(u64, u64);
static operation operations[] = {add, mul, xor_};
__attribute__((noinline)) u64 fib(u64 n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

/* dense enough for a jump table, each case different enough to keep it */
__attribute__((noinline)) u64 dispatch(u64 which, u64 x) {
    switch (which) {
    case 0: return x + 1;
    case 1: return x * 3;
    case 2: return mix(x);
    case 3: return rotate(x, 5);
    case 4: return x / 7;
    case 5: return x % 11 + primes[x % 64];
    case 6: return ~x;
    case 7: return fib(x % 15);
    case 8: return x >> 3;
    case 9: return operations[x % 3](x, which);
    case 10: calls += x; return calls;
    case 11: return x - 0x1234567890ul;
    default: return 0;
    }
}

__attribute__((noinline)) static u64 text_sum(const char *text) {
    u64 sum = 0;
    for (; *text; text++) sum = sum * 31 + (u8)*text;
    return sum;
}

static float dot(const float *a, const float *b, u64 n) {
    float sum = 0;
    for (u64 i = 0; i < n; i++) sum += a[i] * b[i & 7];
    return sum;
}

/* args: u64 out[20], const float in[n], n; the kernel ABI of the project */
void kernel(const u64 *args, u64 tid) {
    u64 *out = (u64 *)args[0];
    const float *in = (const float *)args[1];
    u64 n = args[2], x = mix(tid + 1);
    for (u64 i = 0; i < 13; i++) out[i] = dispatch(i, x += i);
    weights[tid & 7] += 1.0f;
    float sum = dot(in, weights, n);
    u32 bits;
    __builtin_memcpy(&bits, &sum, 4);
    out[13] = bits;
    scratch[7] += tid + 40;
    alone += *inside;
    out[14] = alone;
    out[15] = text_sum(names[tid & 3]) ^ text_sum("a string of its own");
    out[16] = (u64)host_scale(0.75 + (double)tid, n);
    out[17] = maybe ? maybe(1) : 77;
    host_words[tid & 3] += 5;
    out[18] = host_words[tid & 3] + calls;
    operation pick = operations[tid % 3];
    out[19] = pick(x, 12) + (pick == mul) + (u64)(scratch[299] == 0);
}

#ifdef NATIVE
int printf(const char *, ...);
double host_scale(double x, u64 n) { return x * 1000.0 + (double)n; }
u64 host_words[4] = {10, 20, 30, 40};
int main(void) {
    float in[24];
    u64 out[20];
    for (int i = 0; i < 24; i++) in[i] = (float)i * 0.25f - 2.0f;
    u64 args[3] = {(u64)out, (u64)in, 24};
    for (u64 tid = 0; tid < 9; tid++) {
        kernel(args, tid);
        for (int i = 0; i < 20; i++) printf("%lu\n", out[i]);
    }
    return 0;
}
#endif
