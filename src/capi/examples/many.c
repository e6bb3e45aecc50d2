/* A million runs on bound memory: the first one prepares, the others allocate nothing. Counts are asserted. */
#include <doorbell.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static doorbell_error error = {.struct_size = sizeof error};
static long live;

_Static_assert(sizeof(doorbell_error) == 504 && sizeof(doorbell_options) == 16, "as the library has them");
_Static_assert(sizeof(doorbell_limits) == 32 && sizeof(doorbell_port) == 152, "as the library has them");

static void *allocate(void *user, size_t size, size_t align) {
    void *memory = NULL;
    (void)user;
    live++;
    return posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, size) == 0 ? memory : NULL;
}

static void release(void *user, void *memory, size_t size, size_t align) {
    (void)user, (void)size, (void)align;
    live--;
    free(memory);
}

static void check(int32_t status) {
    if (status != DOORBELL_OK) {
        fprintf(stderr, "%s: %s\n", doorbell_status_name(status), error.text);
        exit(1);
    }
}

static void require(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "not so: %s\n", what);
        exit(1);
    }
}

int main(int argc, char **argv) {
    doorbell_package *package;
    doorbell_device *device;
    doorbell_program *program;
    doorbell_port in, out;
    long runs = argc > 2 ? atol(argv[2]) : 1000000;
    require(argc > 1, "usage: many PACKAGE [RUNS]");
    check(doorbell_set_allocator(allocate, release, NULL, &error));
    check(doorbell_package_open(argv[1], 0, &package, &error));
    check(doorbell_device_open("CPU", NULL, &device, &error));
    require(live > 0, "the library allocates here");
    require(doorbell_set_allocator(allocate, release, NULL, &error) == DOORBELL_INVALID_ARGUMENT, "too late for that");

    /* One byte less than it needs is refused, with a status of its own. */
    doorbell_limits limits = {.struct_size = sizeof limits, .memory_bytes = 1};
    require(doorbell_program_load(device, package, &limits, &program, &error) == DOORBELL_LIMIT, "a hard limit");
    check(doorbell_program_load(device, package, NULL, &program, &error));
    require(doorbell_program_start(program, &error) == DOORBELL_NOT_READY, "an input is missing");

    check(doorbell_package_input(package, 0, &in, &error));
    check(doorbell_package_output(package, 0, &out, &error));
    float *x = aligned_alloc(64, (in.max_bytes + 63) / 64 * 64);
    float *y = aligned_alloc(64, (out.max_bytes + 63) / 64 * 64);
    for (size_t n = 0; n < in.max_bytes / sizeof(float); n++) x[n] = (float)(n % 7) / 8.0f;
    check(doorbell_program_bind_input(program, 0, x, in.max_bytes, &error));
    check(doorbell_program_bind_output(program, 0, y, out.max_bytes, &error));
    check(doorbell_program_start(program, &error));
    check(doorbell_program_wait(program, 10000000000ull, &error));
    float first = y[0];
    uint64_t before = doorbell_allocations();
    for (long n = 0; n < runs; n++) {
        y[0] = -1.0f;
        check(doorbell_program_start(program, &error));
        check(doorbell_program_wait(program, 10000000000ull, &error));
        require(memcmp(&y[0], &first, sizeof first) == 0, "the same result");
    }
    require(doorbell_allocations() == before, "nothing was allocated");
    printf("%ld runs, %lu allocations\n", runs, (unsigned long)(doorbell_allocations() - before));

    doorbell_program_cancel(program);
    require(doorbell_program_wait(program, 1000, &error) == DOORBELL_CANCELLED, "a cancelled wait");
    check(doorbell_program_wait(program, 1000000000, &error));
    require(doorbell_package_open("/nowhere", 0, &(doorbell_package *){NULL}, &error) == DOORBELL_NOT_FOUND, "no file");
    require(doorbell_package_from_memory((const uint8_t *)"\177ELF", 4, NULL, 0, 0, &(doorbell_package *){NULL}, &error) ==
                DOORBELL_DAMAGED, "no package");
    require(strncmp(error.text, "this is no package", 18) == 0, error.text);
    require(doorbell_device_open(NULL, NULL, &(doorbell_device *){NULL}, &error) == DOORBELL_INVALID_ARGUMENT, "no name");
    doorbell_program_close(program);
    doorbell_device_close(device);
    doorbell_package_close(package);
    free(x);
    free(y);
    return 0;
}
