/* A program that knows nothing of Doorbell: what it makes of the kernel's own headers must be what the trace says.
   usage: calls STAND-IN OTHER; prints every result and errno. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kfd_ioctl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static uint32_t gpus[2] = {7, 9};
static char sink[16];
static char *volatile nowhere = 0, *volatile bad = (char *)8;
/* Unknown to the compiler: open becomes the fortified __open_2. */
static volatile int read_only = O_RDONLY;

static void say(const char *what, long result) {
    printf("%s = %ld errno %d\n", what, result, errno);
    fflush(stdout);
    errno = 77; /* a call that succeeds leaves it */
}

/* Before main, and before the preloaded library's own constructor may have run. */
__attribute__((constructor)) static void early(void) {
    errno = 77;
    int fd = open("/dev/null", O_RDONLY);
    say("early open", fd);
    say("early close", close(fd));
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const char *stand_in = argv[1], *other = argv[2];
    printf("gpus at %p\n", (void *)gpus);

    int fd = open(stand_in, O_RDWR | O_CLOEXEC);
    say("open", fd);
    int plain = open64(other, O_RDWR | O_CREAT, 0640);
    say("open other", plain);
    say("open missing", open("/dev/dri/no such card", read_only));
    say("open null", open(nowhere, O_RDONLY));
    say("open bad", open(bad, O_RDONLY));

    struct kfd_ioctl_get_version_args version;
    memset(&version, 0, sizeof version);
    say("get version", ioctl(fd, AMDKFD_IOC_GET_VERSION, &version));
    struct kfd_ioctl_map_memory_to_gpu_args map = {.handle = 0x51, .n_devices = 2};
    map.device_ids_array_ptr = (uintptr_t)gpus;
    say("map memory", ioctl(fd, AMDKFD_IOC_MAP_MEMORY_TO_GPU, &map));
    say("bad argument", ioctl(fd, AMDKFD_IOC_GET_VERSION, (void *)bad));
    say("other's ioctl", ioctl(plain, AMDKFD_IOC_GET_VERSION, &version));

    void *at = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096);
    say("mmap", at == MAP_FAILED);
    memcpy(at, "doorbell", 8);
    void *anonymous = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    say("mmap other", anonymous == MAP_FAILED);
    say("mmap misaligned", mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 5) == MAP_FAILED);
    say("munmap other", munmap(anonymous, 4096));
    say("munmap misaligned", munmap((char *)at + 1, 4096));
    say("munmap", munmap(at, 4096));
    say("munmap rest", munmap((char *)at + 4096, 4096));

    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 40);
    say("fcntl", copy);
    say("ioctl on the copy", ioctl(copy, AMDKFD_IOC_GET_VERSION, &version));
    say("close copy", close(copy));
    say("dup2", dup2(plain, 41));
    say("other's ioctl", ioctl(41, AMDKFD_IOC_GET_VERSION, &version));

    pid_t child = fork();
    if (child == 0) {
        say("child's ioctl", ioctl(fd, AMDKFD_IOC_GET_VERSION, &version));
        say("child's close", close(fd));
        _exit(3);
    }
    int status = 0;
    waitpid(child, &status, 0);
    say("child", WEXITSTATUS(status));

    say("close other", close(plain));
    say("close", close(fd));
    say("close again", close(fd));
    say("ioctl on nothing", ioctl(fd, AMDKFD_IOC_GET_VERSION, &version));
    /* No number that we have not opened is ours to close. */
    long closed = 0;
    for (int n = 42; n < 70000; n++) closed += close(n) == 0;
    say("close all", closed);
    int folder = open("/", O_RDONLY | O_DIRECTORY);
    int relative = openat(folder, stand_in + 1, O_RDONLY);
    say("openat", relative);
    say("last ioctl", ioctl(relative, AMDKFD_IOC_GET_VERSION, &version));
    say("read", read(relative, sink, 8));
    return close(relative) == 0 ? 5 : 6;
}
