//! `kernels-asm/amdgpu/*.s`: assembled by `doorbell asm`, compared with LLVM's assembler, run by `doorbell launch` on
//! the software GPUs.

use super::{code, err, run, temp};
use doorbell::elf::amdgpu::CodeObject;
use doorbell::uop::{ConstVal, Scalar, to_bits};
use std::path::{Path, PathBuf};
use std::process::Command;

const CHIPS: [&str; 3] = ["gfx1100", "gfx1201", "gfx942"];
const THREADS: usize = 256;

fn source(chip: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels-asm/amdgpu").join(format!("{chip}.s"))
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

/// A kernel that ends at once, with these directives.
fn described(directives: &[(&str, u32)]) -> String {
    let lines: String = directives.iter().map(|(name, value)| format!("  .amdhsa_{name} {value}\n")).collect();
    format!(
        ".text\n.p2align 8\nk:\n  s_endpgm\n.section .rodata\n.p2align 6\n.amdhsa_kernel k\n{lines}.end_amdhsa_kernel\n"
    )
}

#[test]
fn every_directive_makes_the_descriptor_that_llvm_makes_of_it() {
    let all = [
        ("group_segment_fixed_size", 1024),
        ("private_segment_fixed_size", 64),
        ("kernarg_size", 40),
        ("user_sgpr_count", 11),
        ("user_sgpr_dispatch_ptr", 1),
        ("user_sgpr_queue_ptr", 1),
        ("user_sgpr_kernarg_segment_ptr", 1),
        ("user_sgpr_dispatch_id", 1),
        ("user_sgpr_private_segment_size", 1),
        ("uses_dynamic_stack", 1),
        ("enable_private_segment", 1),
        ("system_sgpr_workgroup_id_x", 0),
        ("system_sgpr_workgroup_id_y", 1),
        ("system_sgpr_workgroup_id_z", 1),
        ("system_sgpr_workgroup_info", 1),
        ("system_vgpr_workitem_id", 2),
        ("float_round_mode_32", 1),
        ("float_round_mode_16_64", 2),
        ("float_denorm_mode_32", 1),
        ("float_denorm_mode_16_64", 2),
        ("fp16_overflow", 1),
        ("exception_fp_ieee_invalid_op", 1),
        ("exception_fp_denorm_src", 1),
        ("exception_fp_ieee_div_zero", 1),
        ("exception_fp_ieee_overflow", 1),
        ("exception_fp_ieee_underflow", 1),
        ("exception_fp_ieee_inexact", 1),
        ("exception_int_div_zero", 1),
    ];
    let rdna =
        [("workgroup_processor_mode", 0), ("memory_ordered", 0), ("forward_progress", 1), ("wavefront_size32", 0)];
    for chip in CHIPS {
        let t = temp();
        let mut own: Vec<(&str, u32)> = match chip {
            "gfx942" => vec![("tg_split", 1), ("dx10_clamp", 0), ("ieee_mode", 0)],
            "gfx1100" => {
                [("dx10_clamp", 0), ("ieee_mode", 0), ("shared_vgpr_count", 3)].into_iter().chain(rdna).collect()
            }
            _ => rdna.to_vec(),
        };
        own.extend(all);
        let base: Vec<(&str, u32)> = [("next_free_vgpr", 37), ("next_free_sgpr", 23)]
            .into_iter()
            .chain((chip == "gfx942").then_some(("accum_offset", 32)))
            .collect();
        // One at a time, none, and all of them.
        let mut cases: Vec<Vec<(&str, u32)>> = own.iter().map(|d| vec![*d]).collect();
        cases.extend([Vec::new(), own.clone()]);
        for case in cases {
            let wave64 = case.contains(&("wavefront_size32", 0));
            // LLVM wants all of these to go together.
            let skip = |d: &&(&str, u32)| d.0 == "shared_vgpr_count" && !wave64;
            let case: Vec<(&str, u32)> = base.iter().chain(case.iter().filter(|d| !skip(d))).copied().collect();
            let source = described(&case);
            std::fs::write(t.path().join("k.s"), &source).unwrap();
            let file = |name: &str| t.path().join(name).to_str().unwrap().to_owned();
            let (from, object, rodata) = (file("k.s"), file("k.o"), file("k.rodata"));
            let mut mc =
                vec!["-triple=amdgcn-amd-amdhsa".to_owned(), format!("-mcpu={chip}"), "-filetype=obj".to_owned()];
            if wave64 {
                mc.push("-mattr=+wavefrontsize64,-wavefrontsize32".to_owned());
            }
            let mc: Vec<&str> = mc.iter().map(String::as_str).chain([from.as_str(), "-o", &object]).collect();
            llvm("llvm-mc", &mc);
            llvm("llvm-objcopy", &["-O", "binary", "-j", ".rodata", &object, &rodata]);
            let known = doorbell::isa::amdgpu::Chip::parse(chip).unwrap();
            let target = doorbell::isa::amdgpu::Target::of(known);
            let ours =
                doorbell::isa::amdgpu::assemble(target, &source).unwrap_or_else(|e| panic!("{chip} {case:?}: {e}"));
            let ours = ours.kernel_code(known, &ours.kernels[0]).unwrap().descriptor.emit();
            let mut theirs = std::fs::read(rodata).unwrap();
            theirs[16..24].fill(0);
            assert_eq!(ours.to_vec(), theirs, "{chip} {case:?}");
        }
    }
}

#[test]
fn directives_that_are_unknown_or_out_of_range_are_refused_with_their_line() {
    let t = temp();
    for (chip, directives, why) in [
        ("gfx1100", vec![("next_free_vpgr", 64)], "line 8, column 1: unknown directive .amdhsa_next_free_vpgr"),
        (
            "gfx1100",
            vec![("next_free_vgpr", 1000)],
            "line 8, column 1: .amdhsa_next_free_vgpr 1000: 0 to 256 are possible",
        ),
        (
            "gfx942",
            vec![("next_free_vgpr", 512), ("wavefront_size32", 1)],
            "line 9, column 1: gfx942 has no .amdhsa_wavefront",
        ),
        ("gfx942", vec![("accum_offset", 6)], "a multiple of 4"),
        ("gfx1201", vec![("ieee_mode", 0)], "gfx1201 has no .amdhsa_ieee_mode"),
        ("gfx1201", vec![("system_vgpr_workitem_id", u32::MAX)], "0 to 2 are possible"),
        ("gfx1100", vec![("user_sgpr_dispatch_ptr", 1), ("user_sgpr_count", 1)], "its directives take 2"),
    ] {
        std::fs::write(t.path().join("k.s"), described(&directives)).unwrap();
        let o = run(t.path(), &["asm", "--arch", chip, "k.s", "-o", "k.co"]);
        assert_eq!(code(&o), 1, "{directives:?}");
        assert!(err(&o).contains(why), "{directives:?}: {}", err(&o));
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
