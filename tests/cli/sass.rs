//! SASS from the command line: `kernels-asm/sass` assembled, listed, assembled again, and run on the software GPU.

use super::{code, err, json, run, temp};
use std::path::Path;

fn assembled(dir: &Path, kernel: &str) -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels-asm/sass").join(kernel).with_extension("sass");
    let o = run(dir, &["asm", "--target", "sm_90a", source.to_str().unwrap(), "-o", "k.cubin", "--json"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    assert_eq!(json(&o, &["kernels", "hazards"])["hazards"].as_array().map(Vec::len), Some(0), "{kernel}");
    std::fs::read(dir.join("k.cubin")).unwrap()
}

fn launch(dir: &Path, kernel: &str, args: &[&str]) {
    let fixed = ["launch", "k.cubin", "--device", "NV:emu=sm_90", "--kernel", kernel, "--grid", "2", "--block", "64"];
    let args: Vec<&str> = args.iter().flat_map(|a| ["--arg", *a]).collect();
    let o = run(dir, &[&fixed[..], &args].concat());
    assert_eq!(code(&o), 0, "{kernel}: {}", err(&o));
}

#[test]
fn a_listed_cubin_assembles_to_the_same_file() {
    for kernel in ["peak_fma", "peak_hmma", "copy", "chase"] {
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
    assembled(t.path(), "copy");
    let bytes: Vec<u8> = (0..16 * 300u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(t.path().join("src.bin"), &bytes).unwrap();
    launch(t.path(), "copy", &["in:src.bin", "out:4800:dst.bin", "u32:300"]);
    assert_eq!(std::fs::read(t.path().join("dst.bin")).unwrap(), bytes);
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
    let o = run(t.path(), &["asm", "--target", "sm_80", "k.sass", "-o", "k.bin"]);
    assert_eq!(code(&o), 3, "{}", err(&o));
    assert!(err(&o).contains("sm_90 and sm_90a"), "{}", err(&o));
}
