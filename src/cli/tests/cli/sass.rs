//! SASS and PTX from the command line: `kernels-asm/sass` assembled, listed, assembled again, and run on the software
//! GPU; `kernels-asm/ptx` by our assembler and by ptxas, with the same numbers.

use super::{code, err, json, run, temp};
use std::path::{Path, PathBuf};

fn source(kind: &str, kernel: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels-asm").join(kind).join(kernel).with_extension(kind)
}

fn assembled(dir: &Path, kernel: &str) -> Vec<u8> {
    assembled_from(dir, &source("sass", kernel))
}

fn assembled_from(dir: &Path, source: &Path) -> Vec<u8> {
    let kernel = source.display();
    let o = run(dir, &["asm", "--target", "sm_90a", source.to_str().unwrap(), "-o", "k.cubin", "--json"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    assert_eq!(json(&o, &["kernels", "hazards"])["hazards"].as_array().map(Vec::len), Some(0), "{kernel}");
    std::fs::read(dir.join("k.cubin")).unwrap()
}

fn launch(dir: &Path, kernel: &str, args: &[&str]) {
    launch_by(dir, kernel, "64", args);
}

fn launch_by(dir: &Path, kernel: &str, block: &str, args: &[&str]) {
    let fixed = ["launch", "k.cubin", "--device", "NV:emu=sm_90", "--kernel", kernel, "--grid", "2", "--block", block];
    let args: Vec<&str> = args.iter().flat_map(|a| ["--arg", *a]).collect();
    let o = run(dir, &[&fixed[..], &args].concat());
    assert_eq!(code(&o), 0, "{kernel}: {}", err(&o));
}

#[test]
fn a_listed_cubin_assembles_to_the_same_file() {
    for kernel in ["peak_fma", "peak_hmma", "peak_wgmma", "copy", "copy_bulk", "chase"] {
        let t = temp();
        let first = assembled(t.path(), kernel);
        let o = run(t.path(), &["disasm", "k.cubin"]);
        assert_eq!(code(&o), 0, "{}", err(&o));
        std::fs::write(t.path().join("k.sass"), &o.stdout).unwrap();
        let o = run(t.path(), &["asm", "--arch", "sm_90a", "k.sass", "-o", "again.cubin"]);
        assert_eq!(code(&o), 0, "{}", err(&o));
        assert_eq!(std::fs::read(t.path().join("again.cubin")).unwrap(), first, "{kernel}");
    }
}

#[test]
fn our_cubins_run_on_the_software_gpu() {
    let t = temp();
    assembled(t.path(), "peak_fma");
    launch(t.path(), "peak_fma", &["out:512:o.bin", "u32:3"]);
    let out = std::fs::read(t.path().join("o.bin")).unwrap();
    let floats: Vec<f32> = out.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    // Twelve steps of x / 2 + 1 from 1 in eight registers.
    assert_eq!(floats, [8.0 * (2.0 - 1.0 / 4096.0); 128]);
    assembled(t.path(), "peak_hmma");
    launch(t.path(), "peak_hmma", &["out:512:o.bin", "u32:3"]);
    let out = std::fs::read(t.path().join("o.bin")).unwrap();
    assert!(out.as_chunks::<4>().0.iter().all(|b| f32::from_le_bytes(*b) == 192.0), "64 a round");
    assembled(t.path(), "peak_wgmma");
    launch_by(t.path(), "peak_wgmma", "128", &["out:1024:o.bin", "u32:2"]);
    let out = std::fs::read(t.path().join("o.bin")).unwrap();
    assert!(out.as_chunks::<4>().0.iter().all(|b| f32::from_le_bytes(*b) == 64.0), "32 a round");
    let bytes: Vec<u8> = (0..16 * 300u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(t.path().join("src.bin"), &bytes).unwrap();
    for kernel in ["copy", "copy_bulk"] {
        assembled(t.path(), kernel);
        launch(t.path(), kernel, &["in:src.bin", "out:4800:dst.bin", "u32:300"]);
        assert_eq!(std::fs::read(t.path().join("dst.bin")).unwrap(), bytes, "{kernel}");
    }
}

#[test]
fn an_unsound_schedule_is_told_and_a_chip_without_table_refused() {
    let t = temp();
    let text = "[B------:R-:W-:-:S01] MOV R0, R1 ;\n[B------:R-:W-:-:S05] MOV R2, R0 ;\n";
    std::fs::write(t.path().join("k.sass"), text).unwrap();
    let o = run(t.path(), &["asm", "--target", "sm_90", "k.sass", "-o", "k.bin", "--json"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    let hazards = json(&o, &["hazards"])["hazards"].to_string();
    assert!(hazards.contains("instruction 1: R0 of instruction 0: read 1 cycles later"), "{hazards}");
    let o = run(t.path(), &["disasm", "--target", "sm_90", "k.bin"]);
    assert!(String::from_utf8_lossy(&o.stdout).contains("MOV R2, R0 ;"), "{}", err(&o));
    let o = run(t.path(), &["asm", "--target", "sm_75", "k.sass", "-o", "k.bin"]);
    assert_eq!(code(&o), 3, "{}", err(&o));
    assert!(err(&o).contains("sm_120 and sm_90a"), "{}", err(&o));
}

/// `k.cubin` from PTX, by us or by ptxas.
fn from_ptx(dir: &Path, kernel: &str, ours: bool) {
    let source = source("ptx", kernel);
    if ours {
        assembled_from(dir, &source);
        return;
    }
    let ptxas = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/nvidia/nvidia/cu13/bin/ptxas");
    let mut command = std::process::Command::new(ptxas);
    let done = command.current_dir(dir).args(["-arch=sm_90a", "-o", "k.cubin"]).arg(source).status();
    assert!(done.expect("ptxas: `cargo xtask setup` installs it").success(), "{kernel}");
}

#[test]
fn kernels_in_ptx_give_the_same_numbers_by_our_assembler_and_by_ptxas() {
    let t = temp();
    let floats = || -> Vec<f32> {
        let bytes = std::fs::read(t.path().join("o.bin")).unwrap();
        bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    };
    let bytes: Vec<u8> = (0..16 * 300u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(t.path().join("src.bin"), &bytes).unwrap();
    let values: Vec<u8> = (0..512u32).flat_map(|i| ((i * 7 % 64) as f32).to_le_bytes()).collect();
    std::fs::write(t.path().join("x.bin"), values).unwrap();
    let long: Vec<u8> = (0..44_000u32).map(|i| (i.wrapping_mul(2_246_822_519) >> 15) as u8).collect();
    std::fs::write(t.path().join("long.bin"), &long).unwrap();
    let sum = |block: u32| (0..256).map(|i| ((block * 256 + i) * 7 % 64) as f32).sum::<f32>();
    for ours in [true, false] {
        from_ptx(t.path(), "peak_fma", ours);
        launch(t.path(), "peak_fma", &["out:512:o.bin", "u32:3"]);
        assert_eq!(floats(), [8.0 * (2.0 - 1.0 / 4096.0); 128]);
        from_ptx(t.path(), "copy", ours);
        launch(t.path(), "copy", &["in:src.bin", "out:4800:o.bin", "u32:300"]);
        assert_eq!(std::fs::read(t.path().join("o.bin")).unwrap(), bytes);
        from_ptx(t.path(), "peak_hmma", ours);
        launch(t.path(), "peak_hmma", &["out:512:o.bin", "u32:3"]);
        assert_eq!(floats(), [192.0; 128], "64 a round");
        from_ptx(t.path(), "peak_wgmma", ours);
        launch_by(t.path(), "peak_wgmma", "128", &["out:1024:o.bin", "u32:2"]);
        assert_eq!(floats(), [64.0; 256], "32 a round");
        // Chunks of 4 KiB, the last of them ragged.
        from_ptx(t.path(), "copy_bulk", ours);
        launch(t.path(), "copy_bulk", &["in:long.bin", "out:44000:o.bin", "u32:2750"]);
        assert_eq!(std::fs::read(t.path().join("o.bin")).unwrap(), long);
        from_ptx(t.path(), "sum", ours);
        launch_by(t.path(), "sum", "256", &["in:x.bin", "out:8:o.bin"]);
        assert_eq!(floats(), [sum(0), sum(1)]);
    }
}

#[test]
fn ptx_that_has_no_machine_code_yet_is_told_by_line_and_column() {
    let t = temp();
    let text = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n    tcgen05.fence::before_thread_sync;\n    ret;\n}\n";
    std::fs::write(t.path().join("k.ptx"), text).unwrap();
    let o = run(t.path(), &["asm", "--target", "sm_90a", "k.ptx", "-o", "k.cubin"]);
    assert_eq!(code(&o), 1, "{}", err(&o));
    assert!(err(&o).contains("k.ptx: 6:5: ") && err(&o).contains("tcgen05"), "{}", err(&o));
}

/// Functions alone, or nothing.
#[test]
fn a_module_without_a_kernel_is_a_cubin_without_one() {
    let t = temp();
    for body in ["", ".func f() { ret; }"] {
        std::fs::write(t.path().join("f.ptx"), format!(".version 8.3\n.target sm_90a\n.address_size 64\n{body}\n"))
            .unwrap();
        let o = run(t.path(), &["asm", "--target", "sm_90a", "f.ptx", "-o", "f.cubin", "--json"]);
        assert_eq!(code(&o), 0, "{}", err(&o));
        assert_eq!(json(&o, &["out", "kernels"])["kernels"], serde_json::json!([]));
    }
}
