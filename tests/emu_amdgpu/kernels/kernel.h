// One source for both sides: the same kernels compiled for a GPU, and for the host where every work-item is a thread.
// A kernel gets words in, words out and a count; values that may be NaN are stored through fb/db, which keep one NaN.
#ifdef __AMDGCN__
#define GLOBAL __attribute__((address_space(1)))
#define LOCAL __attribute__((address_space(3)))
#define CONSTANT __attribute__((address_space(4)))
#define KERNEL(name) __attribute__((amdgpu_kernel)) void name(GLOBAL const unsigned *in, GLOBAL unsigned *out, unsigned n)
#define SHARED(type, name, count) static LOCAL type name[count] __attribute__((loader_uninitialized))
static inline unsigned tid(void) { return __builtin_amdgcn_workitem_id_x(); }
static inline unsigned bid(void) { return __builtin_amdgcn_workgroup_id_x(); }
static inline void barrier(void) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#else
#include <pthread.h>
#define GLOBAL
#define LOCAL
#define CONSTANT const
typedef void (*kernel_fn)(const unsigned *, unsigned *, unsigned);
void add_kernel(const char *name, kernel_fn fn);
#define KERNEL(name)                                                                             \
  void name(const unsigned *in, unsigned *out, unsigned n);                                      \
  __attribute__((constructor)) static void add_##name(void) { add_kernel(#name, name); }         \
  void name(const unsigned *in, unsigned *out, unsigned n)
#define SHARED(type, name, count) static type name[count]
extern __thread unsigned host_tid, host_bid;
static inline unsigned tid(void) { return host_tid; }
static inline unsigned bid(void) { return host_bid; }
void barrier(void);
// gcc has no atomic minimum and maximum.
#define __atomic_fetch_max(p, v, order) ({ __typeof__(*(p)) was = *(p); while (was < (v) && !__atomic_compare_exchange_n(p, &was, v, 0, order, order)); was; })
#define __atomic_fetch_min(p, v, order) ({ __typeof__(*(p)) was = *(p); while (was > (v) && !__atomic_compare_exchange_n(p, &was, v, 0, order, order)); was; })
#endif
#define SIZE 128u
static inline unsigned gid(void) { return bid() * SIZE + tid(); }
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long u64;
typedef long i64;
static inline float f32_of(u32 v) { float f; __builtin_memcpy(&f, &v, 4); return f; }
static inline u32 u32_of(float f) { u32 v; __builtin_memcpy(&v, &f, 4); return v; }
static inline double f64_of(u64 v) { double f; __builtin_memcpy(&f, &v, 8); return f; }
static inline u64 u64_of(double f) { u64 v; __builtin_memcpy(&v, &f, 8); return v; }
static inline u32 fb(float f) { return f != f ? 0x7fc00000u : u32_of(f); }
static inline u64 db(double f) { return f != f ? 0x7ff8000000000000ul : u64_of(f); }
static inline u64 in64(GLOBAL const u32 *in, u32 i) { return in[2 * i] | (u64)in[2 * i + 1] << 32; }
static inline void out64(GLOBAL u32 *out, u32 i, u64 v) { out[2 * i] = (u32)v; out[2 * i + 1] = (u32)(v >> 32); }
