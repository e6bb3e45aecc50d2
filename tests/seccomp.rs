//! The profile of system calls that `doorbell devices --syscalls` prints is enough to run a package on the CPU, with
//! workers, and it is in force: another call fails. The test starts itself as the process under the profile.
#![cfg(all(target_os = "linux", target_arch = "x86_64", feature = "cpu"))]

use doorbell::Jit;
use doorbell::device::Device;
use doorbell::device::cpu::{CpuDevice, CpuOptions};
use doorbell::engine::PackageOptions;
use doorbell::runtime::{Check, Limits, PackageFile, Program, syscalls};
use doorbell::tensor::prelude::*;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const INSIDE: &str = "DOORBELL_TEST_PACKAGE";

/// Numbers of the names in the profile, of x86-64.
fn number(name: &str) -> libc::c_long {
    match name {
        "arch_prctl" => libc::SYS_arch_prctl,
        "brk" => libc::SYS_brk,
        "clock_gettime" => libc::SYS_clock_gettime,
        "clone3" => libc::SYS_clone3,
        "close" => libc::SYS_close,
        "execve" => libc::SYS_execve,
        "exit" => libc::SYS_exit,
        "exit_group" => libc::SYS_exit_group,
        "fstat" => libc::SYS_fstat,
        "futex" => libc::SYS_futex,
        "getrandom" => libc::SYS_getrandom,
        "gettid" => libc::SYS_gettid,
        "madvise" => libc::SYS_madvise,
        "mmap" => libc::SYS_mmap,
        "mprotect" => libc::SYS_mprotect,
        "mremap" => libc::SYS_mremap,
        "munmap" => libc::SYS_munmap,
        "newfstatat" => libc::SYS_newfstatat,
        "openat" => libc::SYS_openat,
        "prctl" => libc::SYS_prctl,
        "pread64" => libc::SYS_pread64,
        "prlimit64" => libc::SYS_prlimit64,
        "read" => libc::SYS_read,
        "rseq" => libc::SYS_rseq,
        "rt_sigaction" => libc::SYS_rt_sigaction,
        "rt_sigprocmask" => libc::SYS_rt_sigprocmask,
        "rt_sigreturn" => libc::SYS_rt_sigreturn,
        "sched_getaffinity" => libc::SYS_sched_getaffinity,
        "sched_yield" => libc::SYS_sched_yield,
        "set_robust_list" => libc::SYS_set_robust_list,
        "set_tid_address" => libc::SYS_set_tid_address,
        "sigaltstack" => libc::SYS_sigaltstack,
        "statx" => libc::SYS_statx,
        "sysinfo" => libc::SYS_sysinfo,
        "write" => libc::SYS_write,
        other => panic!("{other} is in the profile and not in this test"),
    }
}

/// The profile as a filter: allowed calls, everything else is EPERM.
fn filter(names: &[&str]) -> Vec<libc::sock_filter> {
    let op = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let (load, equal, give) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    let mut all = vec![op(load, 0, 0, 0)];
    for (n, name) in names.iter().enumerate() {
        let to_the_end = u8::try_from(names.len() - n).unwrap();
        all.push(op(equal, to_the_end, 0, u32::try_from(number(name)).unwrap()));
    }
    all.push(op(give, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    all.push(op(give, 0, 0, libc::SECCOMP_RET_ALLOW));
    all
}

/// Puts this process under the profile, for good.
fn confine(names: &[&str]) {
    let mut filter = filter(names);
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the two calls only read the program, which is whole; they change what this process may do.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let flags = libc::SECCOMP_FILTER_FLAG_TSYNC;
        assert_eq!(libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program), 0);
    }
}

/// Runs the package with two workers, under the profile.
fn inside(path: &Path) {
    confine(&syscalls("CPU").unwrap());
    assert!(std::net::TcpListener::bind("127.0.0.1:0").is_err(), "a socket is not in the profile");
    let file = PackageFile::open(path, Check::Everything).unwrap();
    let options = CpuOptions { threads: 3, ..CpuOptions::default() };
    let device: Arc<dyn Device> = Arc::new(CpuDevice::open("CPU", &options).unwrap());
    let mut program = Program::load(&device, &file, &Limits::default()).unwrap();
    let (x, y) = (program.input("input").unwrap(), program.output("output").unwrap());
    let ones = 1.0f32.to_le_bytes().repeat(256 * 256);
    for _ in 0..20 {
        program.write_input(x, &ones).unwrap();
        program.run().unwrap();
    }
    let mut out = [0; 4];
    program.read_output(y, &mut out).unwrap();
    assert_eq!(f32::from_le_bytes(out), 256.0 * 256.0 * 256.0);
    drop(program);
    device.close().unwrap();
}

#[test]
fn a_package_runs_under_the_printed_profile() {
    if let Some(path) = std::env::var_os(INSIDE) {
        return inside(Path::new(&path));
    }
    let mut f = Jit::new(|x: &Tensor| x.matmul(x).sum(()));
    let x = Tensor::ones([256, 256]);
    f.call(&x).unwrap();
    f.call(&x).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.dbp");
    f.package(&PackageOptions::default()).unwrap().write(&path).unwrap();
    let me = std::env::current_exe().unwrap();
    let run = Command::new(me)
        .args(["--exact", "a_package_runs_under_the_printed_profile", "--nocapture"])
        .env(INSIDE, &path)
        .output();
    let out = run.unwrap();
    assert!(out.status.success(), "{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
}
