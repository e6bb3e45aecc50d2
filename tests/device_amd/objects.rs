//! Code objects that clang and lld make, loaded and run: arguments of mixed sizes, hidden arguments, shared memory,
//! scratch, constants.

use super::{Geometry, LONG, Rig, name, read, words};
use doorbell::device::amd::AmdDevice;
use doorbell::device::{Arg, Code, Command, Device, Kernel, KernelImage, QueueKind};
use doorbell::emu::amdgpu::Strict;
use doorbell::emu::kfd::{Chip, Config};

const SOURCE: &str = r#"
#define GLOBAL __attribute__((address_space(1)))
#define LOCAL __attribute__((address_space(3)))
#define CONSTANT __attribute__((address_space(4)))
#define KERNEL __attribute__((amdgpu_kernel, visibility("protected")))
typedef unsigned uint;

static uint id(void) {
    uint size = ((const CONSTANT unsigned short *)__builtin_amdgcn_implicitarg_ptr())[6];
    return __builtin_amdgcn_workgroup_id_x() * size + __builtin_amdgcn_workitem_id_x();
}

KERNEL void axpy(GLOBAL float *y, const GLOBAL float *x, float a, unsigned char shift, uint n) {
    uint i = id();
    if (i < n) y[i] = a * x[i] + y[i] + (float)(1u << shift);
}

static LOCAL uint tile[64] __attribute__((loader_uninitialized));
KERNEL void reverse(GLOBAL uint *data) {
    uint t = __builtin_amdgcn_workitem_id_x(), i = id();
    tile[t] = data[i];
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
    data[i] = tile[63 - t];
}

KERNEL void scratch(GLOBAL uint *data, uint salt) {
    volatile uint local[40];
    uint i = id();
    for (uint k = 0; k < 40; k++) local[k] = i * 3 + k + salt;
    uint sum = 0;
    for (uint k = 0; k < 40; k += 3) sum += local[(k * 7) % 40];
    data[i] = sum;
}

__attribute__((visibility("hidden"))) const CONSTANT uint table[4] = {7, 11, 13, 17};
KERNEL void lookup(GLOBAL uint *data) { uint i = id(); data[i] = table[data[i] & 3]; }
"#;

const LINKER: &str = "--ld-path=/usr/lib/llvm-19/bin/ld.lld";

/// The object for a chip, optimised as that option of clang says.
fn compile(chip: Chip, level: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (source, object) = (dir.path().join("k.c"), dir.path().join("k.co"));
    std::fs::write(&source, SOURCE).unwrap();
    let target = format!("-mcpu={}", name(chip));
    let flags = [
        "-target",
        "amdgcn-amd-amdhsa",
        &target,
        "-mcode-object-version=5",
        level,
        "-nogpulib",
        "-ffreestanding",
        LINKER,
    ];
    let mut clang = std::process::Command::new("/usr/lib/llvm-19/bin/clang");
    let out = clang.args(flags).arg("-o").arg(&object).arg(&source).output().expect("clang-19: cargo xtask setup");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    std::fs::read(object).unwrap()
}

fn kernel(d: &AmdDevice, object: &[u8], name: &str) -> Kernel {
    d.load(&[KernelImage { name, code: Code::Elf { bytes: object, entry: name } }]).unwrap().remove(0)
}

/// Two workgroups of 64.
const GROUPS: Geometry = Geometry::of([2, 1, 1], [64, 1, 1]);

#[test]
fn kernels_that_clang_made_find_their_arguments_memory_and_constants() {
    // At -O0 they ask for the dispatch packet, the queue and the dispatch id too, from PM4 (RDNA) as from AQL (gfx942).
    for (chip, level) in super::CHIPS.into_iter().flat_map(|chip| ["-O2", "-O0"].map(|level| (chip, level))) {
        // clang 19 does not know gfx1201's hazard of scalar registers.
        let waves = Strict { scalar_reads: false, ..Strict::on() };
        let rig = Rig::with_code(Config { waves, ..Config::new(chip) });
        let (d, object) = (rig.open(), compile(chip, level));
        let floats = |f: fn(u32) -> f32| (0..128).map(|i| f(i).to_bits()).collect::<Vec<u32>>();
        let (y, x) = (words(&d, &floats(|i| i as f32)), words(&d, &floats(|i| 2.0 * i as f32)));
        let scalar = |bits, len_bytes| Arg::Scalar { bits, len_bytes };
        let run = |kernel: &Kernel, args: Vec<Arg>| {
            let point = d.submit(QueueKind::Compute, &[Command::exec(kernel, args, 1).over(GROUPS)]).unwrap();
            d.wait(&point, LONG).unwrap();
        };
        let at = |m: &doorbell::device::Memory| Arg::Buffer(m.at(0));
        let half = scalar(u64::from(0.5f32.to_bits()), 4);
        run(&kernel(&d, &object, "axpy"), vec![at(&y), at(&x), half, scalar(3, 1), scalar(100, 4)]);
        let expected: Vec<u32> =
            (0..128).map(|i| if i < 100 { 2.0 * i as f32 + 8.0 } else { i as f32 }.to_bits()).collect();
        assert_eq!(read(&d, &y), expected, "{chip:?} {level} axpy");

        let m = words(&d, &(0..128).collect::<Vec<u32>>());
        run(&kernel(&d, &object, "reverse"), vec![at(&m)]);
        assert_eq!(
            read(&d, &m),
            (0..128).map(|i| i / 64 * 64 + 63 - i % 64).collect::<Vec<u32>>(),
            "{chip:?} {level} reverse"
        );

        run(&kernel(&d, &object, "scratch"), vec![at(&m), scalar(5, 4)]);
        let sum = |i: u32| (0..40).step_by(3).map(|k| i * 3 + (k * 7) % 40 + 5).sum::<u32>();
        assert_eq!(read(&d, &m), (0..128).map(sum).collect::<Vec<u32>>(), "{chip:?} {level} scratch");

        d.copy_in(&m, 0, bytemuck::cast_slice(&(0..128).collect::<Vec<u32>>())).unwrap();
        run(&kernel(&d, &object, "lookup"), vec![at(&m)]);
        assert_eq!(
            read(&d, &m),
            (0..128).map(|i| [7, 11, 13, 17][i % 4]).collect::<Vec<u32>>(),
            "{chip:?} {level} lookup"
        );
        assert_eq!(rig.reports(), Vec::<String>::new(), "{chip:?}");
    }
}

#[test]
fn objects_for_another_chip_or_without_the_kernel_are_refused_by_name() {
    let rig = Rig::of(Chip::Gfx1100);
    let d = rig.open();
    let refused = |bytes: &[u8], entry: &str| {
        d.load(&[KernelImage { name: "k", code: Code::Elf { bytes, entry } }]).unwrap_err().to_string()
    };
    let wrong = refused(&compile(Chip::Gfx942, "-O2"), "axpy");
    assert!(wrong.ends_with("the code object is for gfx942, the device is gfx1100"), "{wrong}");
    assert!(refused(&compile(Chip::Gfx1100, "-O2"), "axpi").ends_with("the code object has no kernel axpi"));
    assert!(refused(b"no object", "k").ends_with("the file is not an AMDGPU code object"));
}
