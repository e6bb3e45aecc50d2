// Runs a kernel over a grid: buffers come from a file and go back to one. Its caller defines `call`.
#pragma once
namespace metal {
struct buffer { ulong bytes; char* data; };
inline buffer buffers[31];
inline char* groups_memory[31];
struct slot { void* p; template <class T> operator T*() const { return (T*)p; } template <class T> operator T&() const { return *(T*)p; } };
typedef uint3 three;
typedef uint2 two;
struct place { three v; operator three() const { return v; } operator two() const { return v.xy; } operator uint() const { return v.x; } operator ushort() const { return v.x; } };
inline place at(uint x) { uint3 v = {x, 0, 0}; return {v}; }
inline place thread_position_in_grid() { return {me().local + S.group * S.size}; }
inline place thread_position_in_threadgroup() { return {me().local}; }
inline place threadgroup_position_in_grid() { return {S.group}; }
inline place threads_per_threadgroup() { return {S.size}; }
inline place threadgroups_per_grid() { return {S.groups}; }
inline place threads_per_grid() { return {S.groups * S.size}; }
inline place thread_index_in_threadgroup() { return at(me().linear); }
inline place thread_index_in_simdgroup() { return at(lane()); }
inline place simdgroup_index_in_threadgroup() { return at(simd()); }
inline place simdgroups_per_threadgroup() { return at((S.threads + 31) / 32); }
inline place threads_per_simdgroup() { return at(32); }
}
static void call();
static void entry() { call(); metal::me().done = true; swapcontext(&metal::me().context, &metal::S.main); }
static ulong number(FILE* f) { ulong n = 0; if (fread(&n, 8, 1, f) != 1) exit(3); return n; }
int main(int, char** argv) {
  using namespace metal;
  FILE* f = fopen(argv[1], "rb");
  if (!f) return 2;
  for (int i = 0; i < 3; i++) S.groups[i] = number(f);
  for (int i = 0; i < 3; i++) S.size[i] = number(f);
  ulong count = number(f), own = number(f);
  for (ulong i = 0; i < count; i++) {
    buffers[i].bytes = number(f);
    buffers[i].data = (char*)aligned_alloc(64, buffers[i].bytes + 64 - buffers[i].bytes % 64);
    if (fread(buffers[i].data, 1, buffers[i].bytes, f) != buffers[i].bytes) return 3;
  }
  for (ulong i = 0; i < own; i++) groups_memory[i] = (char*)aligned_alloc(64, number(f) + 64);
  fclose(f);
  S.threads = S.size.x * S.size.y * S.size.z;
  S.all = (fibre*)calloc(S.threads, sizeof(fibre));
  const size_t stack = 128 << 10;
  for (uint t = 0; t < S.threads; t++) S.all[t].stack = (char*)malloc(stack);
  for (uint z = 0; z < S.groups.z; z++) for (uint y = 0; y < S.groups.y; y++) for (uint x = 0; x < S.groups.x; x++) {
    S.group[0] = x; S.group[1] = y; S.group[2] = z;
    for (uint t = 0; t < S.threads; t++) {
      fibre& b = S.all[t];
      b.done = false; b.linear = t;
      b.local[0] = t % S.size.x; b.local[1] = t / S.size.x % S.size.y; b.local[2] = t / (S.size.x * S.size.y);
      getcontext(&b.context);
      b.context.uc_stack.ss_sp = b.stack; b.context.uc_stack.ss_size = stack; b.context.uc_link = 0;
      makecontext(&b.context, entry, 0);
    }
    for (bool left = true; left;) {
      left = false;
      for (uint t = 0; t < S.threads; t++) if (!S.all[t].done) { left = true; S.current = t; swapcontext(&S.main, &S.all[t].context); }
    }
  }
  f = fopen(argv[2], "wb");
  for (ulong i = 0; i < count; i++) fwrite(buffers[i].data, 1, buffers[i].bytes, f);
  return fclose(f) ? 4 : 0;
}
