// Runs kernels on the host: host INPUT OUTPUT GROUPS OUT_WORDS N writes the results of all kernels, one behind the other,
// in the order of their names; each work-item of a workgroup is a thread so that barriers are real.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernel.h"
static struct { const char *name; kernel_fn fn; } kernels[64];
static unsigned count;
__thread unsigned host_tid, host_bid;
static pthread_barrier_t meet;
void add_kernel(const char *name, kernel_fn fn) { kernels[count].name = name; kernels[count++].fn = fn; }
void barrier(void) { pthread_barrier_wait(&meet); }
static const unsigned *input;
static unsigned *output, group, items, n;
static kernel_fn current;
static void *item(void *arg) {
  host_tid = (unsigned)(size_t)arg;
  host_bid = group;
  current(input, output, n);
  return 0;
}
int main(int argc, char **argv) {
  if (argc != 6) return 2;
  FILE *f = fopen(argv[1], "rb");
  fseek(f, 0, SEEK_END);
  long size = ftell(f);
  rewind(f);
  unsigned *data = malloc(size);
  if (fread(data, 1, size, f) != (size_t)size) return 3;
  fclose(f);
  input = data;
  unsigned groups = atoi(argv[3]), words = atoi(argv[4]);
  n = atoi(argv[5]);
  f = fopen(argv[2], "wb");
  pthread_barrier_init(&meet, 0, SIZE);
  for (unsigned k = 0; k < count; k++) {
    output = calloc(words, 4);
    current = kernels[k].fn;
    for (group = 0; group < groups; group++) {
      pthread_t threads[SIZE];
      for (unsigned t = 0; t < SIZE; t++) pthread_create(&threads[t], 0, item, (void *)(size_t)t);
      for (unsigned t = 0; t < SIZE; t++) pthread_join(threads[t], 0);
    }
    char name[64] = {0};
    strncpy(name, kernels[k].name, 63);
    fwrite(name, 1, 64, f);
    fwrite(output, 4, words, f);
  }
  fclose(f);
  return 0;
}
