/* Runs a package once with memory of its own: cc run.c $(pkg-config --cflags --libs doorbell) && ./a.out mlp.dbp */
#include <doorbell.h>
#include <stdio.h>
#include <stdlib.h>

static doorbell_error error = {.struct_size = sizeof error};

static void check(int32_t status) {
    if (status != DOORBELL_OK) {
        fprintf(stderr, "%s: %s\n", doorbell_status_name(status), error.text);
        exit(1);
    }
}

int main(int argc, char **argv) {
    doorbell_package *package;
    doorbell_device *device;
    doorbell_program *program;
    if (argc != 2) {
        fprintf(stderr, "usage: run PACKAGE\n");
        return 2;
    }
    check(doorbell_package_open(argv[1], 0, &package, &error));
    check(doorbell_device_open("CPU", NULL, &device, &error));

    /* An arena on the heap is enough for everything: nothing else is allocated for tensors. */
    size_t arena_bytes = doorbell_package_peak_bytes(package) + 64;
    void *arena = malloc(arena_bytes);
    doorbell_limits limits = {.struct_size = sizeof limits, .arena = arena, .arena_bytes = arena_bytes};
    check(doorbell_program_load(device, package, &limits, &program, &error));

    for (size_t i = 0; i < doorbell_package_inputs(package); i++) {
        doorbell_port port;
        check(doorbell_package_input(package, i, &port, &error));
        float *values = malloc(port.max_bytes);
        for (size_t n = 0; n < port.max_bytes / sizeof(float); n++) values[n] = (float)(n % 7) / 8.0f;
        check(doorbell_program_write_input(program, i, values, port.max_bytes, &error));
        free(values);
    }
    check(doorbell_program_start(program, &error));
    check(doorbell_program_wait(program, 10000000000ull, &error));

    for (size_t i = 0; i < doorbell_package_outputs(package); i++) {
        doorbell_port port;
        check(doorbell_package_output(package, i, &port, &error));
        float *values = malloc(port.max_bytes);
        check(doorbell_program_read_output(program, i, values, port.max_bytes, &error));
        printf("%s", port.name);
        for (size_t n = 0; n < port.max_bytes / sizeof(float) && n < 4; n++) printf(" %.6f", values[n]);
        printf("\n");
        free(values);
    }
    doorbell_program_close(program);
    doorbell_device_close(device);
    doorbell_package_close(package);
    free(arena);
    return 0;
}
