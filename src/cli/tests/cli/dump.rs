//! Dumped kernels in other people's tools: binutils reads them, gcc links them, and a C program gets the right numbers;
//! ptxas assembles those for NVIDIA's chips.

use super::{code, err, json, run, temp};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn dumped(dir: &Path, program: &str) -> Vec<(String, Value)> {
    dumped_for(dir, program, &[])
}

fn dumped_for(dir: &Path, program: &str, options: &[&str]) -> Vec<(String, Value)> {
    let args: Vec<&str> = ["dump", program, "--out", ".", "--json"].iter().chain(options).copied().collect();
    let o = run(dir, &args);
    assert_eq!(code(&o), 0, "{program}: {}", err(&o));
    let v = json(&o, &["program", "device", "out", "kernels"]);
    let names = v["kernels"].as_array().unwrap().iter().map(|n| n.as_str().unwrap().to_string());
    let facts = |n: &String| {
        let text = std::fs::read_to_string(dir.join(format!("{n}.json"))).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let all: Vec<(String, Value)> = names.map(|n| (n.clone(), facts(&n))).collect();
    assert!(!all.is_empty());
    all
}

/// Output of a tool, which the set-up has installed.
fn tool(dir: &Path, name: &str, args: &[&str]) -> String {
    let o = Command::new(name).args(args).current_dir(dir).output();
    let o = o.unwrap_or_else(|e| panic!("{name}: {e}; `cargo xtask setup` installs it"));
    let e = err(&o);
    assert!(o.status.success() && e.is_empty(), "{name} {args:?}: {e}{}", String::from_utf8_lossy(&o.stdout));
    String::from_utf8_lossy(&o.stdout).into_owned()
}

#[test]
fn binutils_read_every_object() {
    for program in ["add", "sum", "matmul", "softmax", "conv2d", "mlp"] {
        let t = temp();
        for (name, facts) in dumped(t.path(), program) {
            let object = format!("{name}.o");
            let text = tool(t.path(), "readelf", &["--all", "--wide", &object]);
            assert!(text.contains("REL (Relocatable file)") && text.contains(&name), "{text}");
            let text = tool(t.path(), "objdump", &["-d", &object]);
            assert!(!text.contains("(bad)"), "{name}: {text}");
            assert!(text.contains("ret"), "{name}");
            assert!(!std::fs::read_to_string(t.path().join(format!("{name}.s"))).unwrap().is_empty());
            for key in ["name", "entry", "arch", "args", "calls", "opts", "flops", "mem_bytes"] {
                assert!(facts.get(key).is_some(), "{name} has no {key}");
            }
        }
    }
}

/// Mnemonics of a listing, whose lines are an offset, a colon and an instruction.
fn mnemonics(listing: &str) -> Vec<String> {
    let line = |l: &str| {
        let (offset, text) = l.split_once(':')?;
        u64::from_str_radix(offset.trim(), 16).ok()?;
        text.split_whitespace().next().map(str::to_owned)
    };
    listing.lines().filter_map(line).filter(|m| !m.starts_with('.')).collect()
}

#[test]
fn llvm_reads_every_object_for_aarch64_as_we_list_it() {
    for program in ["add", "softmax", "conv2d"] {
        let t = temp();
        for (name, _) in dumped_for(t.path(), program, &["--target", "aarch64-neon"]) {
            let listing = std::fs::read_to_string(t.path().join(format!("{name}.s"))).unwrap();
            let ours = mnemonics(&listing);
            let args = ["-d", "--no-show-raw-insn", "-M", "no-aliases", &format!("{name}.o")];
            let theirs = mnemonics(&tool(t.path(), "llvm-objdump-19", &args));
            assert!(ours.len() > 5 && theirs.len() >= ours.len() && ours.contains(&"ret".to_owned()), "{listing}");
            // LLVM 19 writes these by an alias, whatever its options.
            let same = |(a, b): (&String, &String)| match a.as_str() {
                "movz" | "movn" => b == "mov",
                "sbfm" | "ubfm" => ["sbfx", "ubfx", "sxtb", "sxth", "sxtw", "asr", "lsr", "lsl"].contains(&b.as_str()),
                a => a == b,
            };
            assert!(ours.iter().zip(&theirs).all(same), "{name}: {ours:?}, {theirs:?}");
            let o = run(t.path(), &["disasm", &format!("{name}.o")]);
            assert_eq!(mnemonics(&String::from_utf8_lossy(&o.stdout)), ours, "{}", err(&o));
        }
    }
}

/// A C program that fills all inputs with `i % 13 - 6` over 8, runs the kernels in order and checks `check` over `out`,
/// `in0`.
fn linked(dir: &Path, kernel: &(String, Value), check: &str) {
    let (name, facts) = kernel;
    let mut body = String::new();
    let (mut inputs, mut list) = (0, Vec::new());
    for (k, a) in facts["args"].as_array().unwrap().iter().enumerate() {
        assert_eq!((a["kind"].as_str(), a["dtype"].as_str()), (Some("buffer"), Some("f32")), "{facts}");
        let (n, bytes) = (a["elements"].as_u64().unwrap(), a["bytes"].as_u64().unwrap());
        assert_eq!(bytes, 4 * n);
        let own = if a["written"] == true {
            "out".to_string()
        } else {
            inputs += 1;
            format!("in{}", inputs - 1)
        };
        body += &format!("  float *{own} = aligned_alloc(64, {}); (void){own};\n", bytes.next_multiple_of(64));
        body += &format!(
            "  for (long i = 0; i < {n}; i++) {own}[i] = (i % 13 - 6) / 8.0f;\n  args[{k}] = (uint64_t){own};\n"
        );
        list.push(own);
    }
    assert!(list.contains(&"out".to_string()));
    let source = format!(
        "#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <math.h>\n\
         void {name}(const uint64_t *args, uint64_t tid);\n\
         int main(void) {{\n  uint64_t args[{}];\n{body}\
         \x20 for (uint64_t t = 0; t < {}; t++) {name}(args, t);\n\
         #define WANT(i, x) do {{ double w = (x); if (fabs(out[i] - w) > 1e-4 * (1 + fabs(w))) {{ \
         printf(\"out[%ld] is %g, not %g\\n\", (long)(i), out[i], w); return 1; }} }} while (0)\n\
         {check}\n  puts(\"right\");\n  return 0;\n}}\n",
        list.len().max(1),
        facts["calls"]
    );
    std::fs::write(dir.join("main.c"), source).unwrap();
    let args = ["-O1", "-std=gnu11", "-o", "main", "main.c", &format!("{name}.o"), "-lm", "-z", "noexecstack"];
    tool(dir, "gcc", &args);
    let o = Command::new(dir.join("main")).output().unwrap();
    assert!(o.status.success(), "{name}: {}", String::from_utf8_lossy(&o.stdout));
}

#[test]
fn a_c_program_adds_with_the_dumped_kernel() {
    let t = temp();
    let k = dumped(t.path(), "add");
    assert_eq!(k.len(), 1);
    linked(t.path(), &k[0], "  for (long i = 0; i < 1024; i++) WANT(i, in0[i] + in1[i]);");
}

#[test]
fn a_c_program_multiplies_matrices_with_the_dumped_kernel() {
    let t = temp();
    let k = dumped(t.path(), "matmul");
    assert_eq!(k.len(), 1);
    // Both inputs hold the same numbers, so their order does not matter.
    linked(
        t.path(),
        &k[0],
        "  for (long i = 0; i < 256; i++) for (long j = 0; j < 256; j++) {\n    double s = 0;\n    \
         for (long k = 0; k < 256; k++) s += (double)in0[i * 256 + k] * in1[k * 256 + j];\n    WANT(i * 256 + j, s);\n  }",
    );
}

#[test]
fn a_c_program_takes_a_softmax_with_the_dumped_kernel() {
    let t = temp();
    let k = dumped(t.path(), "softmax");
    assert_eq!(k.len(), 1, "a softmax is one kernel");
    linked(
        t.path(),
        &k[0],
        "  for (long i = 0; i < 64; i++) {\n    double s = 0;\n    for (long j = 0; j < 512; j++) s += exp(in0[i * 512 + j]);\n    \
         for (long j = 0; j < 512; j++) WANT(i * 512 + j, exp(in0[i * 512 + j]) / s);\n  }",
    );
}

#[test]
fn ptxas_assembles_every_kernel_that_is_dumped_for_an_nvidia_chip() {
    let ptxas = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/nvidia/nvidia/cu13/bin/ptxas");
    for target in ["sm_75", "sm_90a"] {
        for program in ["add", "sum", "matmul", "softmax", "conv2d", "mlp"] {
            let t = temp();
            for (name, facts) in dumped_for(t.path(), program, &["--target", target]) {
                assert_eq!(facts["arch"], target);
                assert!(!t.path().join(format!("{name}.o")).exists(), "{name}");
                let text = tool(t.path(), ptxas, &["-O1", "-arch", target, "-o", "k.cubin", &format!("{name}.ptx")]);
                assert_eq!(text, "", "{name}");
            }
        }
    }
}

#[test]
fn a_target_that_nobody_knows_is_2_and_names_those_that_are_known() {
    let t = temp();
    let o = run(t.path(), &["dump", "add", "--out", ".", "--target", "sm_91"]);
    assert_eq!(code(&o), 2, "{}", err(&o));
    assert!(err(&o).contains("\"sm_91\" of device NULL:sm_91 is unknown, valid: x86_64-avx2"), "{}", err(&o));
    assert!(err(&o).contains("sm_90a"), "{}", err(&o));
}

#[test]
fn a_place_that_cannot_be_written_is_2() {
    let t = temp();
    std::fs::write(t.path().join("file"), "x").unwrap();
    let o = run(t.path(), &["dump", "add", "--out", "file/below"]);
    assert_eq!(code(&o), 2, "{}", err(&o));
    assert!(err(&o).contains("file/below"), "{}", err(&o));
}

#[test]
fn dumped_kernels_run_from_their_jobs_file_on_another_device() {
    let gpu = "AMD:emu=gfx1100";
    for (device, program, least) in [(gpu, "mlp", 3), (gpu, "add", 1), ("CPU", "mlp", 2)] {
        let t = temp();
        let dump = run(t.path(), &["dump", "--device", device, "--out", "d", program, "--json"]);
        assert_eq!(code(&dump), 0, "{device} {program}: {}", err(&dump));
        // Another process, so another software GPU: nothing but the files comes with it.
        let there = t.path().join("d");
        let o = run(&there, &["launch", "--jobs", "jobs.json", "--device", device, "--json"]);
        assert_eq!(code(&o), 0, "{device} {program}: {}", err(&o));
        let reported = json(&o, &["launches", "as_wanted", "different"]);
        let launched = reported["launches"].as_array().unwrap().len();
        assert_eq!(launched, json(&dump, &["kernels"])["kernels"].as_array().unwrap().len());
        assert!(reported["as_wanted"].as_u64() >= Some(least), "{device} {program}: {reported}");
        // A wrong number is found, and named.
        let want = std::fs::read_dir(&there).unwrap().map(|e| e.unwrap().path());
        let want = want.filter(|p| p.extension().is_some_and(|e| e == "want")).min().unwrap();
        let mut bytes = std::fs::read(&want).unwrap();
        bytes[3] ^= 0x41;
        std::fs::write(&want, bytes).unwrap();
        let o = run(&there, &["launch", "--jobs", "jobs.json", "--device", device]);
        let said = String::from_utf8_lossy(&o.stdout).into_owned();
        assert_eq!(code(&o), 1, "{said}");
        assert!(said.contains("element 0 is ") && said.contains("1 different"), "{said}");
    }
}

#[test]
fn kernels_for_nvidias_chips_run_from_their_jobs_file_on_the_software_gpu() {
    for program in ["add", "mlp"] {
        let t = temp();
        let kernels = dumped_for(t.path(), program, &["--target", "sm_90a"]);
        let jobs = std::fs::read_to_string(t.path().join("jobs.json")).unwrap();
        let jobs: Vec<Value> = serde_json::from_str(&jobs).unwrap();
        for (job, (name, facts)) in jobs.iter().zip(&kernels) {
            assert_eq!((&job["object"], &job["kernel"]), (&format!("{name}.ptx").into(), &name.as_str().into()));
            assert_eq!(job["args"].as_array().unwrap().len(), facts["args"].as_array().unwrap().len(), "{name}");
        }
        let o = run(t.path(), &["launch", "--jobs", "jobs.json", "--device", "NV:emu=sm_90", "--json"]);
        assert_eq!(code(&o), 0, "{program}: {}{}", err(&o), String::from_utf8_lossy(&o.stdout));
        let said = json(&o, &["launches", "as_wanted", "different"]);
        assert_eq!(said["launches"].as_array().unwrap().len(), kernels.len());
        assert!(said["as_wanted"].as_u64() >= Some(1), "{program}: {said}");
    }
}
