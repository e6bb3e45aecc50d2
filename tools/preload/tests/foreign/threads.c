/* usage: threads STAND-IN: threads that make ioctls, map and unmap, while the main thread forks. Prints how many calls went as they should. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kfd_ioctl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 200, FORKS = 20 };
static int fd;

static int one(void) {
    struct kfd_ioctl_get_version_args version = {0, 0};
    return ioctl(fd, AMDKFD_IOC_GET_VERSION, &version) == -1 && errno == ENOTTY;
}

static void on_alarm(int signal) {
    int was = errno;
    (void)signal;
    one();
    errno = was;
}

static void *work(void *arg) {
    long good = 0;
    (void)arg;
    for (int n = 0; n < ROUNDS; n++) {
        good += one();
        void *at = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
        good += at != MAP_FAILED && munmap(at, 4096) == 0;
    }
    return (void *)good;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    fd = open(argv[1], O_RDWR);
    pthread_t threads[THREADS];
    long good = 0;
    for (int n = 0; n < THREADS; n++) pthread_create(&threads[n], 0, work, 0);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, 0);
    for (int n = 0; n < FORKS; n++) {
        pid_t child = fork();
        if (child == 0) _exit(one() ? 0 : 1);
        int status = 1;
        waitpid(child, &status, 0);
        good += status == 0;
    }
    setitimer(ITIMER_REAL, &never, 0);
    for (int n = 0; n < THREADS; n++) {
        void *result;
        pthread_join(threads[n], &result);
        good += (long)result;
    }
    printf("%ld good\n", good);
    return 0;
}
