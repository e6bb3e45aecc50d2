/* A supervisor that forks: parent and child each open a device and run the package, before, while and after the other
 * does. Neither disturbs the other, and both get the same bytes. */
#include <doorbell.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static doorbell_error error = {.struct_size = sizeof error};

static void check(int32_t status) {
    if (status != DOORBELL_OK) {
        fprintf(stderr, "%s: %s\n", doorbell_status_name(status), error.text);
        exit(1);
    }
}

typedef struct {
    doorbell_package *package;
    doorbell_device *device;
    doorbell_program *program;
} loaded;

static loaded load(const char *path) {
    loaded l;
    check(doorbell_package_open(path, 0, &l.package, &error));
    check(doorbell_device_open("CPU", NULL, &l.device, &error));
    check(doorbell_program_load(l.device, l.package, NULL, &l.program, &error));
    return l;
}

/* Runs once and returns a checksum of all outputs. */
static unsigned long run(const loaded *l) {
    unsigned long sum = 14695981039346656037ul;
    for (size_t i = 0; i < doorbell_package_inputs(l->package); i++) {
        doorbell_port port;
        check(doorbell_package_input(l->package, i, &port, &error));
        float *values = malloc(port.max_bytes);
        for (size_t n = 0; n < port.max_bytes / sizeof(float); n++) values[n] = (float)(n % 7) / 8.0f;
        check(doorbell_program_write_input(l->program, i, values, port.max_bytes, &error));
        free(values);
    }
    check(doorbell_program_start(l->program, &error));
    check(doorbell_program_wait(l->program, 10000000000ull, &error));
    for (size_t i = 0; i < doorbell_package_outputs(l->package); i++) {
        doorbell_port port;
        check(doorbell_package_output(l->package, i, &port, &error));
        unsigned char *bytes = malloc(port.max_bytes);
        check(doorbell_program_read_output(l->program, i, bytes, port.max_bytes, &error));
        for (size_t n = 0; n < port.max_bytes; n++) sum = (sum ^ bytes[n]) * 1099511628211ul;
        free(bytes);
    }
    return sum;
}

static void finish(loaded *l) {
    doorbell_program_close(l->program);
    doorbell_device_close(l->device);
    doorbell_package_close(l->package);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: fork PACKAGE\n");
        return 2;
    }
    loaded mine = load(argv[1]);
    unsigned long before = run(&mine);
    for (int round = 0; round < 20; round++) {
        pid_t child = fork();
        if (child < 0) return 1;
        if (child == 0) {
            loaded own = load(argv[1]);
            int same = run(&own) == before && run(&own) == before;
            finish(&own);
            _exit(same ? 0 : 1);
        }
        int status = 0;
        if (run(&mine) != before) return 1;
        if (waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "round %d: the child ended with %#x\n", round, (unsigned)status);
            return 1;
        }
        if (run(&mine) != before) return 1;
    }
    finish(&mine);
    printf("20 forks: the same bytes\n");
    return 0;
}
