//! `kernels-asm/amdgpu/*.s`: assembled by `doorbell asm`, compared with LLVM's assembler, run by `doorbell launch` on the software GPUs.

use super::{code, err, run, temp};
use doorbell::elf::amdgpu::CodeObject;
use doorbell::uop::{ConstVal, Scalar, to_bits};
use std::path::{Path, PathBuf};
use std::process::Command;

const CHIPS: [&str; 3] = ["gfx1100", "gfx1201", "gfx942"];
const THREADS: usize = 256;

fn source(chip: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels-asm/amdgpu").join(format!("{chip}.s"))
}

fn assembled(dir: &Path, chip: &str) {
    let from = source(chip);
    let o = run(dir, &["asm", "--arch", chip, from.to_str().unwrap(), "-o", "k.co"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
}

/// Launches a kernel of `k.co` with `grid` workgroups.
fn launch(dir: &Path, chip: &str, kernel: &str, grid: usize, args: &[&str]) {
    let (device, grid, block) = (format!("AMD:emu={chip}"), grid.to_string(), THREADS.to_string());
    let fixed = ["launch", "k.co", "--device", &device, "--kernel", kernel, "--grid", &grid, "--block", &block];
    let args: Vec<&str> = args.iter().flat_map(|a| ["--arg", *a]).collect();
    let o = run(dir, &[&fixed[..], &args].concat());
    assert_eq!(code(&o), 0, "{chip} {kernel}: {}", err(&o));
}

fn words(path: PathBuf) -> Vec<u32> {
    std::fs::read(path).unwrap().as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
}

fn floats(path: PathBuf) -> Vec<f32> {
    words(path).into_iter().map(f32::from_bits).collect()
}

fn llvm(tool: &str, args: &[&str]) {
    let path = format!("/usr/lib/llvm-19/bin/{tool}");
    let o = Command::new(&path).args(args).output();
    let o = o.unwrap_or_else(|e| panic!("{path}: {e} (cargo xtask setup installs it)"));
    assert!(o.status.success(), "{path}: {}", String::from_utf8_lossy(&o.stderr));
}

#[test]
fn hand_written_kernels_have_the_bytes_and_descriptors_of_llvms_assembler() {
    for chip in CHIPS {
        let t = temp();
        let file = |name: &str| t.path().join(name).to_str().unwrap().to_owned();
        let (object, text, rodata) = (file("k.o"), file("k.text"), file("k.rodata"));
        let cpu = format!("-mcpu={chip}");
        let from = source(chip);
        let from = from.to_str().unwrap();
        llvm("llvm-mc", &["-triple=amdgcn-amd-amdhsa", &cpu, "-filetype=obj", from, "-o", &object]);
        llvm("llvm-objcopy", &["-O", "binary", "-j", ".text", &object, &text]);
        llvm("llvm-objcopy", &["-O", "binary", "-j", ".rodata", &object, &rodata]);
        let chip_of = doorbell::isa::amdgpu::Chip::parse(chip).unwrap();
        let target = doorbell::isa::amdgpu::Target::of(chip_of);
        let ours = doorbell::isa::amdgpu::assemble(target, &std::fs::read_to_string(from).unwrap()).unwrap();
        assert_eq!(ours.words, words(text.into()), "{chip}");

        assembled(t.path(), chip);
        let bytes = std::fs::read(t.path().join("k.co")).unwrap();
        let ours = CodeObject::parse(&bytes).unwrap();
        let theirs = std::fs::read(rodata).unwrap();
        assert_eq!((ours.kernels.len(), theirs.len()), (7, 7 * 64), "{chip}");
        // The order of the descriptions in the source, and of the symbols by name.
        for (k, kernel) in descriptions(from).iter().enumerate() {
            let found = ours.kernels.iter().find(|o| o.name == *kernel).unwrap();
            let mut mine = found.descriptor.emit();
            let mut other = theirs[64 * k..64 * k + 64].to_vec();
            for b in [&mut mine[16..24], &mut other[16..24]] {
                b.fill(0); // where the code stands: the linker's business
            }
            assert_eq!(mine.to_vec(), other, "{chip} {kernel}");
        }
    }
}

/// Kernels in the order in which the source describes them.
fn descriptions(path: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().filter_map(|l| l.trim().strip_prefix(".amdhsa_kernel ")).map(str::to_owned).collect()
}

#[test]
fn copy_and_fill_write_every_byte() {
    for chip in CHIPS {
        let t = temp();
        assembled(t.path(), chip);
        let bytes: Vec<u8> = (0..3 * 16384u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        std::fs::write(t.path().join("src.bin"), &bytes).unwrap();
        launch(t.path(), chip, "copy_b128", 3, &["out:49152:dst.bin", "in:src.bin"]);
        assert_eq!(std::fs::read(t.path().join("dst.bin")).unwrap(), bytes, "{chip}");
        launch(t.path(), chip, "fill_b32", 2, &["out:32768:f.bin", "u32:3735928559"]);
        assert_eq!(words(t.path().join("f.bin")), [0xdead_beef; 8192], "{chip}");
    }
}

#[test]
fn peak_fma_does_as_many_multiply_adds_as_it_says() {
    for chip in CHIPS {
        let t = temp();
        assembled(t.path(), chip);
        let second = if chip == "gfx942" { "peak_fma_pk" } else { "peak_fma_dual" };
        for kernel in ["peak_fma", second] {
            launch(t.path(), chip, kernel, 2, &["out:32768:o.bin", "u32:5"]);
            let start = |chain: usize| [0.0, 1.0, 2.0, 4.0].get(chain).copied().unwrap_or(0.0);
            let want: Vec<f32> = (0..2 * THREADS * 16).map(|i| start(i % 16) + 10.0 * (i / 16 % 32) as f32).collect();
            assert_eq!(floats(t.path().join("o.bin")), want, "{chip} {kernel}");
        }
    }
}

#[test]
fn lds_reads_give_what_the_neighbour_wrote() {
    for chip in CHIPS {
        let t = temp();
        assembled(t.path(), chip);
        launch(t.path(), chip, "lds_read_b128", 2, &["out:2048:o.bin", "u32:3"]);
        let want: Vec<u32> = (0..2 * 256).map(|i| 8 * ((i % 256) ^ 1) + 28000).collect();
        assert_eq!(words(t.path().join("o.bin")), want, "{chip}");
    }
}

#[test]
fn matrix_kernels_give_the_product_of_each_wave() {
    let value = |i: usize, j: usize| ((i * 5 + j * 3) % 11) as f64 - 5.0;
    let (a, b) = (|i, k| value(i, k), |j, k| value(j + 2, k + 7));
    for chip in CHIPS {
        let t = temp();
        assembled(t.path(), chip);
        let (unit, waves) = if chip == "gfx942" { ("mfma", 4) } else { ("wmma", 8) };
        for (name, scalar) in [("f16", Scalar::F16), ("bf16", Scalar::BF16)] {
            let save = |file: &str, of: &dyn Fn(usize, usize) -> f64| {
                let all = (0..256).map(|n| to_bits(ConstVal::Float(of(n / 16, n % 16)), scalar) as u16);
                std::fs::write(t.path().join(file), all.flat_map(u16::to_le_bytes).collect::<Vec<u8>>()).unwrap();
            };
            save("a.bin", &a);
            save("b.bin", &b);
            let out = format!("out:{}:d.bin", 2 * waves * 1024);
            launch(t.path(), chip, &format!("{unit}_{name}"), 2, &[&out, "in:a.bin", "in:b.bin", "u32:3"]);
            let one: Vec<f32> =
                (0..256).map(|n| 12.0 * (0..16).map(|k| a(n / 16, k) * b(n % 16, k)).sum::<f64>() as f32).collect();
            assert_eq!(floats(t.path().join("d.bin")), one.repeat(2 * waves), "{chip} {name}");
        }
    }
}
