/* libdoorbell: programs compiled ahead of time ("packages") on CPUs and GPUs.
 *
 * Rules for all functions:
 * - A function that can fail returns a doorbell_status and, if `error` is not null, fills it on failure. On success
 *   `error` is not touched.
 * - A handle comes from the function that opens it and is closed once, after the last call that uses it. Programs keep
 *   what they need of their device and package: the order of closing does not matter.
 * - Texts are UTF-8 and end with a zero. Structs begin with their size where this header says so, and grow at the end.
 * - A device and a package may be used by several threads. A program is used by one thread at a time; a second one gets
 *   DOORBELL_BUSY. doorbell_program_cancel may be called at any time.
 * - The library uses no signals, changes no locale, reads no environment, prints nothing, starts no thread and opens no
 *   file that the caller does not ask for. After fork(), the child may use what the parent has not opened yet.
 *
 * Each comment ends with what a call may do: "allocates" (the library's allocator), "locks" (waits for another thread),
 * "blocks" (waits for a device), "calls" (system calls); "nothing" is none of these. It is the same on failure, where
 * the text of the error is allocated for the time of the call. */
#ifndef DOORBELL_H
#define DOORBELL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DOORBELL_ABI_VERSION 1

typedef enum doorbell_status {
    DOORBELL_OK = 0,
    DOORBELL_INVALID_ARGUMENT = 1, /* a null pointer, a wrong length, a value out of range */
    DOORBELL_NOT_FOUND = 2,        /* no such file, input, output or variable */
    DOORBELL_DAMAGED = 3,          /* not a package, or a damaged one; the text says what and where */
    DOORBELL_NO_TARGET = 4,        /* the package has no code for the device */
    DOORBELL_NO_DEVICE = 5,        /* no such device, or it cannot be opened */
    DOORBELL_OUT_OF_MEMORY = 6,
    DOORBELL_LIMIT = 7,            /* the program needs more memory than doorbell_limits allows */
    DOORBELL_NOT_READY = 8,        /* an input or a variable has no value */
    DOORBELL_TIMEOUT = 9,          /* not done at the deadline; it may be waited for again */
    DOORBELL_CANCELLED = 10,
    DOORBELL_FAULT = 11,           /* the device reported a fault, and does no more work */
    DOORBELL_DRIVER = 12,          /* a kernel driver refused a call; driver_code has its number */
    DOORBELL_UNSUPPORTED = 13,     /* the device or the package cannot do this */
    DOORBELL_BUSY = 14,            /* another thread is using the program */
    DOORBELL_INTERNAL = 15,        /* a mistake of the library's; the text says where */
    DOORBELL_COMPILE = 16          /* an expression that cannot be computed */
} doorbell_status;

/* Filled on failure. Set struct_size to sizeof(doorbell_error) before the call. */
typedef struct doorbell_error {
    uint32_t struct_size;
    int32_t status;
    int64_t driver_code; /* the kernel driver's own number (an errno), 0 if there is none */
    char text[488];
} doorbell_error;

typedef enum doorbell_element {
    DOORBELL_BOOL = 0,
    DOORBELL_I8 = 1,
    DOORBELL_U8 = 2,
    DOORBELL_I16 = 3,
    DOORBELL_U16 = 4,
    DOORBELL_I32 = 5,
    DOORBELL_U32 = 6,
    DOORBELL_I64 = 7,
    DOORBELL_U64 = 8,
    DOORBELL_F8E4M3 = 9,
    DOORBELL_F8E5M2 = 10,
    DOORBELL_F8E4M3FNUZ = 11,
    DOORBELL_F8E5M2FNUZ = 12,
    DOORBELL_F16 = 13,
    DOORBELL_BF16 = 14,
    DOORBELL_F32 = 15,
    DOORBELL_F64 = 16
} doorbell_element;

typedef struct doorbell_device doorbell_device;
typedef struct doorbell_package doorbell_package;
typedef struct doorbell_program doorbell_program;

/* --- The library --- */

/* The version, such as "0.1.0". Nothing. */
const char *doorbell_version(void);
/* DOORBELL_ABI_VERSION of the library that runs. Nothing. */
uint32_t doorbell_abi_version(void);
/* A few words for a status. Nothing. */
const char *doorbell_status_name(int32_t status);

/* Memory for the library: `size` bytes at a multiple of `align` (a power of two), or null; what it returned comes back
 * to the other function with the same size and alignment. Both may be called by any thread of the library. */
typedef void *(*doorbell_allocate_fn)(void *user, size_t size, size_t align);
typedef void (*doorbell_free_fn)(void *user, void *memory, size_t size, size_t align);

/* Sets the allocator of the process's libdoorbell. DOORBELL_INVALID_ARGUMENT if the library has already allocated
 * something: call it first. Tensors of programs are not from it (see doorbell_limits). Nothing. */
int32_t doorbell_set_allocator(doorbell_allocate_fn allocate, doorbell_free_fn release, void *user, doorbell_error *error);
/* Blocks that the library has allocated so far: equal before and after what allocates nothing. Nothing. */
uint64_t doorbell_allocations(void);

/* A message: level 1 error, 2 warning, 3 information, 4 debug, 5 trace. */
typedef void (*doorbell_log_fn)(void *user, int32_t level, const char *text);

/* Sends the library's messages up to `level` to `take`, which any thread of the library may call. Once in a process;
 * without it there are none. Nothing; each message allocates. */
int32_t doorbell_set_log(doorbell_log_fn take, void *user, int32_t level, doorbell_error *error);

/* --- Devices --- */

typedef struct doorbell_options {
    uint32_t struct_size;
    uint32_t threads; /* the CPU: cores that a kernel is distributed over; 0: all that the process may use */
    int32_t workers;  /* the CPU: threads that the library starts; -1: threads - 1, at least one; 0: none, everything
                         runs in the thread that waits */
    uint32_t reserved; /* 0 */
} doorbell_options;

/* Opens a device: "CPU", "AMD", "AMD:1", "NV", "AMD:emu=gfx1100" in builds with software GPUs. Without options the CPU
 * has one thread, the caller's. Allocates, locks, calls: the CPU maps memory for its queue and starts the workers that
 * were asked for; GPUs open their driver's files. */
int32_t doorbell_device_open(const char *name, const doorbell_options *options, doorbell_device **out,
                             doorbell_error *error);
/* Closes a device: after the last program on it, the CPU's threads end. The driver of a GPU stays open in the process.
 * Null is allowed. Locks, blocks, calls. */
void doorbell_device_close(doorbell_device *device);
/* Its name. Lives as long as the handle. Nothing. */
const char *doorbell_device_name(const doorbell_device *device);
/* Its architecture, such as "x86_64-avx512". Lives as long as the handle. Nothing. */
const char *doorbell_device_arch(const doorbell_device *device);

/* --- Packages --- */

/* The constants are not compared with their checksum. */
#define DOORBELL_SKIP_CONSTANTS 1u
/* A size that depends on variables. */
#define DOORBELL_VARIABLE_SIZE UINT64_MAX

typedef struct doorbell_port {
    const char *name;    /* lives as long as the package's handle */
    uint64_t max_bytes;  /* for all values of the variables */
    uint64_t shape[16];  /* sizes, or DOORBELL_VARIABLE_SIZE */
    uint32_t rank;       /* how many; more than 16 are not in `shape` */
    uint32_t element;    /* a doorbell_element */
} doorbell_port;

typedef struct doorbell_variable {
    const char *name; /* lives as long as the package's handle */
    int64_t min;
    int64_t max;
} doorbell_variable;

/* Maps and checks a file (and the file of its constants beside it). Flags: 0 or DOORBELL_SKIP_CONSTANTS. Allocates,
 * calls. */
int32_t doorbell_package_open(const char *path, uint32_t flags, doorbell_package **out, doorbell_error *error);
/* As doorbell_package_open, of bytes in memory, which are used in place: they must stay unchanged until the package and
 * all its programs are closed. `constants`: the file of the constants if the package has one, else null. Allocates. */
int32_t doorbell_package_from_memory(const uint8_t *bytes, size_t len, const uint8_t *constants, size_t constants_len,
                                     uint32_t flags, doorbell_package **out, doorbell_error *error);
/* Null is allowed. Calls. */
void doorbell_package_close(doorbell_package *package);
/* The most memory that a program of the package needs on a device, known before one is opened. Nothing. */
uint64_t doorbell_package_peak_bytes(const doorbell_package *package);
/* The name of the machine's best device that the package has code for: a GPU before the CPU. Allocates, locks, calls:
 * it looks for the files of GPU drivers. */
int32_t doorbell_package_best_device(const doorbell_package *package, char *name, size_t len, doorbell_error *error);
/* Nothing. */
size_t doorbell_package_inputs(const doorbell_package *package);
/* Nothing. */
size_t doorbell_package_outputs(const doorbell_package *package);
/* Nothing. */
size_t doorbell_package_variables(const doorbell_package *package);
/* Describes an input. Nothing. */
int32_t doorbell_package_input(const doorbell_package *package, size_t index, doorbell_port *out,
                               doorbell_error *error);
/* Describes an output. Nothing. */
int32_t doorbell_package_output(const doorbell_package *package, size_t index, doorbell_port *out,
                                doorbell_error *error);
/* Describes a variable. Nothing. */
int32_t doorbell_package_variable(const doorbell_package *package, size_t index, doorbell_variable *out,
                                  doorbell_error *error);

/* --- Programs --- */

typedef struct doorbell_limits {
    uint32_t struct_size;
    uint32_t reserved;     /* 0 */
    uint64_t memory_bytes; /* most bytes of the device's memory; 0: no limit. More are refused before any is taken. */
    void *arena;           /* the CPU: memory of the caller's for the whole program, until it is closed; or null */
    size_t arena_bytes;
} doorbell_limits;

/* Loads code and constants on a device. Allocates, locks, calls; blocks on GPUs while constants are copied. */
int32_t doorbell_program_load(const doorbell_device *device, const doorbell_package *package,
                              const doorbell_limits *limits, doorbell_program **out, doorbell_error *error);
/* Waits for the last run. Null is allowed. Locks, blocks, calls. */
void doorbell_program_close(doorbell_program *program);

/* Copies an input to the program's memory. At the first call allocates and calls; blocks until the last run is done. */
int32_t doorbell_program_write_input(doorbell_program *program, size_t index, const void *bytes, size_t len,
                                     doorbell_error *error);
/* Makes memory of the caller's an input, without a copy: runs read it there, until another is bound or the program is
 * closed. For the CPU. Allocates. */
int32_t doorbell_program_bind_input(doorbell_program *program, size_t index, const void *memory, size_t len,
                                    doorbell_error *error);
/* Makes memory of the caller's an output, without a copy: runs write it there, until another is bound or the program is
 * closed. `len` is the port's max_bytes. For the CPU. Allocates. */
int32_t doorbell_program_bind_output(doorbell_program *program, size_t index, void *memory, size_t len,
                                     doorbell_error *error);
/* Copies an output of the last run. Blocks until it is done. */
int32_t doorbell_program_read_output(doorbell_program *program, size_t index, void *bytes, size_t len,
                                     doorbell_error *error);
/* Bytes of an input with the present variables. Allocates. */
int32_t doorbell_program_input_bytes(doorbell_program *program, size_t index, uint64_t *out, doorbell_error *error);
/* Bytes of an output with the present variables. Allocates. */
int32_t doorbell_program_output_bytes(doorbell_program *program, size_t index, uint64_t *out, doorbell_error *error);
/* Sets a variable for the runs from now on. Allocates at the first calls. */
int32_t doorbell_program_set_variable(doorbell_program *program, size_t index, int64_t value, doorbell_error *error);
/* Gives what the program keeps from run to run its first value again. Allocates; blocks until the last run is done. */
int32_t doorbell_program_reset(doorbell_program *program, doorbell_error *error);

/* Starts a run with what is bound. The first one allocates and calls; later ones allocate nothing, and call only to
 * wake a sleeping thread or, on GPUs whose driver wants it, to ring. Locks. */
int32_t doorbell_program_start(doorbell_program *program, doorbell_error *error);
/* Waits for the last run that was started, at most `timeout_ns`. Blocks; calls only to sleep. With workers = 0 the run
 * happens here, and the deadline is looked at before it. */
int32_t doorbell_program_wait(doorbell_program *program, uint64_t timeout_ns, doorbell_error *error);
/* Makes the wait of another thread, or else the next wait, return DOORBELL_CANCELLED. The device ends the work that it
 * has begun; memory that is bound stays in use until then. Nothing. */
void doorbell_program_cancel(const doorbell_program *program);
/* The whole report of the last run that failed (queue, positions, signals, packets, faults): as much as fits in `len`
 * bytes with its final zero; the length that it needs to `needed`, if that is not null. Nothing. */
int32_t doorbell_program_report(doorbell_program *program, char *text, size_t len, size_t *needed,
                                doorbell_error *error);

/* --- Tensors: computed op by op, in builds with the compiler ---
 *
 * A Tensor is an expression; nothing is computed before it is read, then kernels are compiled and run. Mistakes, such as
 * shapes that do not fit, are found when a Tensor is read. All functions allocate and lock; reading also blocks and
 * calls. They read the environment of the process (DEV, DEBUG and so on), as the library for Rust does. */

typedef struct doorbell_tensor doorbell_tensor;

typedef enum doorbell_op {
    DOORBELL_NEG = 0, /* of one Tensor */
    DOORBELL_EXP = 1,
    DOORBELL_LOG = 2,
    DOORBELL_SQRT = 3,
    DOORBELL_SIN = 4,
    DOORBELL_TANH = 5,
    DOORBELL_SIGMOID = 6,
    DOORBELL_RELU = 7,
    DOORBELL_ADD = 32, /* of two Tensors */
    DOORBELL_SUB = 33,
    DOORBELL_MUL = 34,
    DOORBELL_DIV = 35,
    DOORBELL_MAXIMUM = 36,
    DOORBELL_MATMUL = 37,
    DOORBELL_SUM = 64, /* of one Tensor, along an axis */
    DOORBELL_MAX = 65,
    DOORBELL_MEAN = 66,
    DOORBELL_SOFTMAX = 67
} doorbell_op;

/* Data of the caller's, copied: f32, i32, u8 and bool. */
int32_t doorbell_tensor_from(const void *data, uint32_t element, const size_t *shape, size_t rank,
                             doorbell_tensor **out, doorbell_error *error);
/* An op of a Tensor; `axis` for those along an axis, from the end if it is negative. */
int32_t doorbell_tensor_unary(int32_t op, const doorbell_tensor *a, int64_t axis, doorbell_tensor **out,
                              doorbell_error *error);
/* An op of two Tensors, with numpy's broadcasting. */
int32_t doorbell_tensor_binary(int32_t op, const doorbell_tensor *a, const doorbell_tensor *b, doorbell_tensor **out,
                               doorbell_error *error);
/* The same elements in another shape. */
int32_t doorbell_tensor_reshape(const doorbell_tensor *a, const size_t *shape, size_t rank, doorbell_tensor **out,
                                doorbell_error *error);
/* Sizes of the shape, as many as `shape` has room for; how many there are to `rank`. */
int32_t doorbell_tensor_shape(const doorbell_tensor *a, size_t *shape, size_t room, size_t *rank,
                              doorbell_error *error);
/* Computes the Tensor and copies its elements, `len` bytes. */
int32_t doorbell_tensor_read(const doorbell_tensor *a, void *data, size_t len, doorbell_error *error);
/* Null is allowed. */
void doorbell_tensor_close(doorbell_tensor *a);

#ifdef __cplusplus
}
#endif

#endif
