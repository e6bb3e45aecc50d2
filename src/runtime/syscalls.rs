//! The system calls that a process needs to open a device and run packages on it, for seccomp profiles.
//!
//! Measured with strace and held by `tests/seccomp`, which runs under the profile of the CPU. Calls of the process's
//! own start (the dynamic linker's, mostly) and end are among them, since a supervisor sets a profile before it starts
//! one.

/// What every process needs: start and end, memory, the package's file, locks, the clock.
const ALL: &[&str] = &[
    "arch_prctl",
    "brk",
    "clock_gettime",
    "close",
    "execve",
    "exit",
    "exit_group",
    "fstat",
    "futex",
    "getrandom",
    "madvise",
    "mmap",
    "mprotect",
    "mremap",
    "munmap",
    "newfstatat",
    "openat",
    "pread64",
    "prlimit64",
    "read",
    "rseq",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sched_getaffinity",
    "sched_yield",
    "set_robust_list",
    "set_tid_address",
    "sigaltstack",
    "statx",
    "sysinfo",
    "write",
];
/// The CPU: threads, if it has workers.
const CPU: &[&str] = &["clone3", "gettid", "prctl"];
/// AMD's and NVIDIA's drivers: devices are found by the files of the kernel and spoken to by ioctls. AArch64 has
/// `ppoll` and `readlinkat` alone.
const GPU: &[&str] = &[
    "clone3",
    "eventfd2",
    "fcntl",
    "getdents64",
    "getpid",
    "gettid",
    "ioctl",
    "lseek",
    "poll",
    "ppoll",
    "readlink",
    "readlinkat",
];

/// The system calls for a device of that name, sorted; `None` for a device that has none of its own.
#[must_use]
pub fn syscalls(device: &str) -> Option<Vec<&'static str>> {
    let kind = device.split(':').next().unwrap_or_default();
    let own = match kind.to_ascii_uppercase().as_str() {
        "CPU" => CPU,
        "AMD" | "NV" | "CUDA" => GPU,
        _ => return None,
    };
    let mut all: Vec<&str> = ALL.iter().chain(own).copied().collect();
    all.sort_unstable();
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_need_ioctls_and_the_cpu_does_not() {
        assert!(syscalls("AMD:1").unwrap().contains(&"ioctl"));
        assert!(!syscalls("cpu").unwrap().contains(&"ioctl"));
        assert!(syscalls("DISK:x").is_none());
    }
}
