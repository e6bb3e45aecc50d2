//! Files as memory, and foreign objects through the CPU device's loader.

use doorbell::device::cpu::{CpuDevice, CpuOptions};
use doorbell::device::disk::DiskDevice;
use doorbell::device::{Arg, Code, Command, Device, DeviceError, DeviceOptions, KernelImage, QueueKind, Registry};
use doorbell_ioctl::port::FileAccess;
use std::time::Duration;

fn file_of(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

fn cpu() -> CpuDevice {
    CpuDevice::open("CPU", &CpuOptions { threads: 2, ..CpuOptions::default() }).unwrap()
}

#[test]
fn range_of_a_file_is_read_in_place() {
    let file = file_of(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let disk = DiskDevice::open("DISK:f", file.path(), FileAccess::Read).unwrap();
    let part = disk.map(3, 4).unwrap();
    let mut out = [0; 2];
    disk.copy_out(&part, 2, &mut out).unwrap();
    assert_eq!((out, disk.memory_used()), ([6, 7], 4));
    drop(part);
    assert_eq!(disk.memory_used(), 0);
}

#[test]
fn range_past_the_end_of_the_file_is_refused() {
    let file = file_of(&[0; 8]);
    let disk = DiskDevice::open("DISK:f", file.path(), FileAccess::Read).unwrap();
    assert!(matches!(disk.map(4, 5), Err(DeviceError::Range { offset: 4, len_bytes: 5, size_bytes: 8, .. })));
    assert!(matches!(disk.map(u64::MAX, 2), Err(DeviceError::Range { .. })));
    assert!(matches!(disk.alloc(9), Err(DeviceError::Range { .. })));
    assert_eq!(disk.map(8, 0).unwrap().len_bytes(), 0);
}

#[test]
fn file_opened_for_reading_cannot_be_written() {
    let file = file_of(&[0; 64]);
    let disk = DiskDevice::open("DISK:f", file.path(), FileAccess::Read).unwrap();
    let memory = disk.alloc(64).unwrap();
    assert!(disk.copy_in(&memory, 0, &[1]).is_err());
    let d = cpu();
    let source = d.alloc(64).unwrap();
    let copy = [Command::copy(memory.at(0), source.at(0), 64)];
    assert!(matches!(d.submit(QueueKind::Compute, &copy), Err(DeviceError::Unsupported { .. })));
    assert!(disk.submit(QueueKind::Copy, &copy).is_err());
}

#[test]
fn file_opened_for_writing_grows_and_keeps_what_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new");
    let disk = DiskDevice::open("DISK:new", &path, FileAccess::ReadWrite).unwrap();
    let memory = disk.alloc(10).unwrap();
    disk.copy_in(&memory, 8, &[7, 9]).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), [0, 0, 0, 0, 0, 0, 0, 0, 7, 9]);
}

#[test]
fn copy_from_a_file_outlives_its_memory() {
    let bytes: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    let file = file_of(&bytes);
    let disk = DiskDevice::open("DISK:f", file.path(), FileAccess::Read).unwrap();
    let d = cpu();
    let to = d.alloc(1_000_000).unwrap();
    let from = disk.alloc(1_000_000).unwrap();
    d.submit(QueueKind::Copy, &[Command::copy(to.at(0), from.at(0), 1_000_000)]).unwrap();
    drop((from, disk));
    let mut out = vec![0; 1_000_000];
    d.copy_out(&to, 0, &mut out).unwrap();
    assert_eq!(out, bytes);
}

#[test]
fn missing_file_is_named() {
    let error = Registry::default().open("DISK:/nowhere/at/all", &DeviceOptions::default()).unwrap_err();
    assert!(error.to_string().starts_with("file /nowhere/at/all: "), "{error}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn object_of_a_c_compiler_runs_on_all_chunks() {
    let source = "
        static const double third[2] = { 3.0, 1.0 / 3.0 };
        static unsigned long calls;
        static double mean(const double *x, long n) { double s = 0; for (long i = 0; i < n; i++) s += x[i]; return s / n; }
        void kernel(const unsigned long *args, unsigned long tid) {
            double *out = (double *)args[0]; const double *in = (const double *)args[1]; long n = (long)args[2];
            out[tid] = mean(in + tid * n, n) * third[1];
            __atomic_add_fetch(&calls, 1, 5);
        }";
    let dir = tempfile::tempdir().unwrap();
    let (c, o) = (dir.path().join("k.c"), dir.path().join("k.o"));
    std::fs::write(&c, source).unwrap();
    let gcc = std::process::Command::new("gcc").args(["-c", "-O2", "-fPIC"]).arg(&c).arg("-o").arg(&o).status();
    assert!(gcc.expect("gcc is part of the test set-up").success());
    let bytes = std::fs::read(&o).unwrap();
    let d = cpu();
    let image = KernelImage { name: "mean", code: Code::Elf { bytes: &bytes, entry: "kernel" } };
    let kernels = d.load(&[image, image]).unwrap();
    let input: Vec<f64> = (0..40).map(f64::from).collect();
    let (a, b) = (d.alloc(320).unwrap(), d.alloc(64).unwrap());
    d.copy_in(&a, 0, bytemuck::cast_slice(&input)).unwrap();
    let args = [Arg::Buffer(b.at(0)), Arg::Buffer(a.at(0)), Arg::Var(5)];
    let point = d.submit(QueueKind::Compute, &[Command::exec(&kernels[1], args, 8)]).unwrap();
    d.wait(&point, Duration::from_secs(10)).unwrap();
    let mut out = [0f64; 8];
    d.copy_out(&b, 0, bytemuck::cast_slice_mut(&mut out)).unwrap();
    let want: Vec<f64> = (0..8).map(|t| (f64::from(t) * 5.0 + 2.0) * (1.0 / 3.0)).collect();
    assert_eq!(out.as_slice(), want);
    let no_entry = KernelImage { name: "mean", code: Code::Elf { bytes: &bytes, entry: "other" } };
    assert!(matches!(d.load(&[no_entry]), Err(DeviceError::Load { .. })));
}
