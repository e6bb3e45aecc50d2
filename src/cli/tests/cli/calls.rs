//! `printf`, `assert`, `malloc` and `free` in kernels of nvcc, as cubins of ptxas and as PTX by our assembler, on
//! software GPUs; the text beside that of the host's C library.

use super::{code, err, json, run, temp};
use std::path::Path;
use std::process::{Command, Output};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/calls.cu");

/// The object of each way: a chip, and a cubin for it or PTX.
const WAYS: [(&str, &str); 4] = [("sm_80", "cubin"), ("sm_90", "cubin"), ("sm_80", "ptx"), ("sm_90", "ptx")];

fn done(command: &mut Command) {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}

fn compiled(dir: &Path, (chip, kind): (&str, &str)) {
    let nvcc = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/nvidia/nvidia/cu13/bin/nvcc");
    assert!(Path::new(nvcc).exists(), "{nvcc} is missing (cargo xtask setup installs it)");
    let form = [format!("-{kind}"), format!("-arch={chip}")];
    let object = dir.join(format!("k.{kind}"));
    done(Command::new(nvcc).args(["-w", "-allow-unsupported-compiler"]).args(form).arg("-o").arg(object).arg(SOURCE));
}

fn launched(dir: &Path, (chip, kind): (&str, &str), kernel: &str, more: &[&str]) -> Output {
    let (object, device) = (format!("k.{kind}"), format!("NV:emu={chip}"));
    let fixed = ["launch", &object, "--device", &device, "--kernel", kernel, "--json"];
    run(dir, &[&fixed[..], more].concat())
}

/// The lines that a launch printed.
fn lines(o: &Output) -> Vec<String> {
    assert_eq!(code(o), 0, "{}", err(o));
    let launches = &json(o, &["launches"])["launches"];
    let list = launches[0]["printed"].as_array().unwrap();
    list.iter().map(|line| line.as_str().unwrap().to_owned()).collect()
}

fn words(dir: &Path, file: &str) -> Vec<u32> {
    let bytes = std::fs::read(dir.join(file)).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
}

#[test]
fn printf_of_a_kernel_is_that_of_the_c_library() {
    let t = temp();
    let host = t.path().join("host");
    done(Command::new("g++").args(["-w", "-x", "c++", SOURCE, "-o"]).arg(&host));
    let reference = Command::new(&host).output().unwrap().stdout;
    let reference = String::from_utf8(reference).unwrap();
    for way in WAYS {
        compiled(t.path(), way);
        let args = ["--arg", "i32:42", "--arg", "f64:3.14159265358979", "--arg", "i64:123456789012345"];
        let o = launched(t.path(), way, "report", &args);
        let want: Vec<String> = reference.lines().map(|line| format!("NV:emu={}: {line}", way.0)).collect();
        assert_eq!(lines(&o), want, "{way:?}");
        assert!(err(&o).contains(&want[0]), "a person reads it, too");
    }
}

#[test]
fn each_thread_prints_in_its_order_and_keeps_its_values() {
    let t = temp();
    let reference: Vec<f32> = (0..128).map(kept_by_a_thread).collect();
    for way in WAYS {
        compiled(t.path(), way);
        let args = ["--grid", "2", "--block", "64", "--arg", "out:512:sum.bin", "--arg", "i32:3"];
        let lines = lines(&launched(t.path(), way, "thrice", &args));
        assert_eq!(lines.len(), 2 * 64 * 3, "{way:?}");
        for (block, thread) in (0..2).flat_map(|b| (0..64).map(move |t| (b, t))) {
            let of = format!("NV:emu={}: {block} {thread} ", way.0);
            let said: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix(of.as_str())).collect();
            assert_eq!(said, ["0", "1", "2"], "{way:?}: {block} {thread}");
        }
        let sums: Vec<f32> = words(t.path(), "sum.bin").into_iter().map(f32::from_bits).collect();
        assert_eq!(sums, reference, "{way:?}");
        let lost = launched(t.path(), way, "thrice", &[&args[..], &["--print-buffer", "4096"]].concat());
        let launch = &json(&lost, &["launches"])["launches"][0];
        let (printed, lost) = (launch["printed"].as_array().unwrap().len(), launch["lost_calls"].as_u64().unwrap());
        assert!(printed > 40 && printed as u64 + lost == 2 * 64 * 3, "{way:?}: {printed} {lost}");
    }
}

/// The sum of `thrice`, whose products and sums are exact or rounded once.
fn kept_by_a_thread(i: u16) -> f32 {
    let mut v: Vec<f32> = (0..24).map(|k| f32::from(i + k)).collect();
    for _ in 0..3 {
        for k in 0..24 {
            v[k] = v[k].mul_add(0.5, if i & 1 == 1 { v[(k + 1) % 24] } else { 1.0 });
        }
    }
    v.iter().sum()
}

#[test]
fn a_failed_assertion_is_told_with_its_place() {
    let t = temp();
    let source = std::fs::read_to_string(SOURCE).unwrap();
    let line = 1 + source.lines().position(|l| l.contains("assert(i < limit")).unwrap();
    for way in WAYS {
        compiled(t.path(), way);
        let at = ["--grid", "2", "--block", "32", "--arg"];
        assert_eq!(lines(&launched(t.path(), way, "check", &[&at[..], &["i32:64"]].concat())).len(), 64, "{way:?}");
        let o = launched(t.path(), way, "check", &[&at[..], &["i32:37"]].concat());
        assert_eq!(code(&o), 1, "{way:?}: {}", err(&o));
        let place = format!("calls.cu:{line}: void check(int): block [1, 0, 0], thread [");
        assert!(err(&o).contains(&place), "{way:?}: {}", err(&o));
        assert!(err(&o).contains("assertion `i < limit && \"too many\"` failed"), "{way:?}: {}", err(&o));
        let thread =
            err(&o).split("thread [").nth(1).and_then(|s| s.split(',').next()).unwrap().parse::<u32>().unwrap();
        assert!((5..32).contains(&thread), "{way:?}: {thread}");
    }
}

#[test]
fn blocks_of_the_heap_are_apart_and_used_again() {
    let t = temp();
    for way in WAYS {
        compiled(t.path(), way);
        // 64 threads take more than ten times what the heap has, one block after the other.
        let args = ["--grid", "2", "--block", "32", "--arg", "out:512:at.bin", "--arg", "out:256:kept.bin"];
        let more = ["--arg", "u32:40", "--heap", "32768"];
        let o = launched(t.path(), way, "blocks", &[&args[..], &more].concat());
        assert_eq!(code(&o), 0, "{way:?}: {}", err(&o));
        assert_eq!(words(t.path(), "kept.bin"), [41; 64], "{way:?}: every block kept what was written");
        let at: Vec<u64> = words(t.path(), "at.bin")
            .as_chunks::<2>()
            .0
            .iter()
            .map(|w| u64::from(w[1]) << 32 | u64::from(w[0]))
            .collect();
        let mut ranges: Vec<(u64, u64)> = at.iter().zip(0u64..).map(|(at, i)| (*at, at + 4 + 4 * (i % 50))).collect();
        ranges.sort_unstable();
        assert!(ranges.iter().all(|r| r.0 != 0 && r.0.is_multiple_of(16)), "{way:?}");
        assert!(ranges.windows(2).all(|w| w[0].1 <= w[1].0), "{way:?}: {ranges:?}");
        // 100 bytes are a block of 128 with its head.
        let args = ["--block", "32", "--arg", "out:8:count.bin", "--arg", "u32:100", "--heap", "65536"];
        let o = launched(t.path(), way, "fill", &args);
        assert_eq!(code(&o), 0, "{way:?}: {}", err(&o));
        assert_eq!(words(t.path(), "count.bin"), [512, 32], "{way:?}");
    }
}
