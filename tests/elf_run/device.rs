//! The same objects on the CPU device: its loader places them in W^X pages, its workers run them from the queue.

use doorbell::device::cpu::{CpuDevice, CpuOptions};
use doorbell::device::{Arg, Code, Command, Device, KernelImage, Memory, QueueKind};
use doorbell_kernels as kernels_asm;
use std::process::Command as Process;

fn memory<T: bytemuck::NoUninit>(device: &dyn Device, values: &[T]) -> Memory {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    let memory = device.alloc(bytes.len() as u64).unwrap();
    device.copy_in(&memory, 0, bytes).unwrap();
    memory
}

fn read<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(device: &dyn Device, from: &Memory, out: &mut [T]) {
    device.copy_out(from, 0, bytemuck::cast_slice_mut(out)).unwrap();
}

fn two_threads() -> CpuDevice {
    CpuDevice::open("CPU", &CpuOptions { threads: 2, ..CpuOptions::default() }).unwrap()
}

#[test]
fn triad_runs_on_the_device_split_over_its_threads() {
    let device = two_threads();
    for kernel in kernels_asm::KERNELS.iter().filter(|kernel| kernel.name.starts_with("triad") && kernel.needs.met()) {
        let code = Code::Elf { bytes: kernel.object, entry: kernel.name };
        let loaded = device.load(&[KernelImage { name: kernel.name, code }]).unwrap().remove(0);
        let (n, chunk) = (10_000u16, 777u16);
        let (b, c): (Vec<f32>, Vec<f32>) = ((0..n).map(f32::from).collect(), (0..n).rev().map(f32::from).collect());
        let (a, b, c) = (memory(&device, &vec![0f32; n.into()]), memory(&device, &b), memory(&device, &c));
        let buffers = [&a, &b, &c].map(|memory| Arg::Buffer(memory.at(0)));
        let scalars = [i64::from(2f32.to_bits()), i64::from(n), i64::from(chunk)].map(Arg::Var);
        let threads = u32::from(n.div_ceil(chunk));
        device
            .submit(QueueKind::Compute, &[Command::exec(&loaded, buffers.into_iter().chain(scalars), threads)])
            .unwrap();
        let mut got = vec![0f32; n.into()];
        read(&device, &a, &mut got);
        let want: Vec<f32> = (0..n).map(|i| f32::from(i) + 2.0 * f32::from(n - 1 - i)).collect();
        assert_eq!(got, want, "{}", kernel.name);
    }
}

/// What a compiled kernel needs from a loader: a call, tables, zeros, data that stays between launches, memcpy.
#[test]
fn compiled_kernel_runs_on_the_device_and_keeps_its_data_between_launches() {
    let source = "#include <string.h>
        typedef unsigned long u64;
        static const u64 table[5] = {2, 3, 5, 7, 11};
        static u64 launches = 10, zeros[600];
        struct big { u64 words[100]; };
        __attribute__((noinline)) static u64 pick(u64 i) {
            switch (i % 6) { case 0: return table[i % 5]; case 1: return i * i; case 2: return ~i; case 3: return zeros[i]++;
                             case 4: return launches; case 5: return i << 3; } return 0; }
        __attribute__((noinline)) void copy(struct big *to, const struct big *from) { memcpy(to, from, sizeof *to); }
        void kernel(const u64 *args, u64 tid) {
            struct big *out = (struct big *)args[0];
            copy(out, (const struct big *)args[1]);
            launches += args[2];
            for (u64 i = 0; i < 60; i++) out->words[i] += pick(i + tid); }";
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("kernel.c"), source).unwrap();
    for flags in [&["-O2"][..], &["-O0"], &["-O2", "-fPIC", "-fno-plt"], &["-O3", "-mavx2", "-ffunction-sections"]] {
        let compile = Process::new("gcc")
            .args(["-c", "-fpie"])
            .args(flags)
            .arg("kernel.c")
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert!(compile.status.success(), "{}", String::from_utf8_lossy(&compile.stderr));
        let object = std::fs::read(dir.path().join("kernel.o")).unwrap();
        let device = two_threads();
        let code = Code::Elf { bytes: &object, entry: "kernel" };
        let loaded = device.load(&[KernelImage { name: "kernel", code }]).unwrap().remove(0);
        let input: Vec<u64> = (1000..1100).collect();
        let (out, source) = (memory(&device, &[0u64; 100]), memory(&device, &input));
        for launch in 1..=3u64 {
            let args = [Arg::Buffer(out.at(0)), Arg::Buffer(source.at(0)), Arg::Var(4)];
            device.submit(QueueKind::Compute, &[Command::exec(&loaded, args, 1)]).unwrap();
            let mut got = [0u64; 100];
            read(&device, &out, &mut got);
            let pick = |i: u64| match i % 6 {
                0 => [2, 3, 5, 7, 11][(i % 5) as usize],
                1 => i * i,
                2 => !i,
                3 => launch - 1,
                4 => 10 + 4 * launch,
                _ => i << 3,
            };
            let want = (0..100u64).map(|i| if i < 60 { (1000 + i).wrapping_add(pick(i)) } else { 1000 + i });
            assert_eq!(got.to_vec(), want.collect::<Vec<_>>(), "gcc {flags:?}, launch {launch}");
        }
    }
}
