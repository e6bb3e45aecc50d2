//! `doorbell launch`: other people's object files on a device, with arguments from the command line.

use super::{code, err, json, run, temp};
use std::path::Path;
use std::process::Command;

const SOURCE: &str = r"
#include <stdint.h>
static float value(uint64_t bits) { union { uint32_t i; float f; } u = { (uint32_t)bits }; return u.f; }
void scale(const uint64_t *args, uint64_t tid) {
  const float *x = (const float *)args[0];
  float *y = (float *)args[1];
  for (int i = 0; i < 4; i++) y[tid * 4 + i] += x[tid * 4 + i] * value(args[2]) + (float)(int8_t)args[3];
}
void count(const uint64_t *args, uint64_t tid) { ((uint64_t *)args[0])[tid] = tid + (args[1] == 0); }
";

fn compiled(dir: &Path) {
    std::fs::write(dir.join("k.c"), SOURCE).unwrap();
    let args = ["-c", "-O2", "-fno-pic", "-mcmodel=large", "-o", "k.o", "k.c"];
    assert!(
        Command::new("gcc").args(args).current_dir(dir).status().expect("gcc is installed by the set-up").success()
    );
    let floats = |from: i32| (from..from + 8).flat_map(|v| (v as f32).to_le_bytes()).collect::<Vec<u8>>();
    std::fs::write(dir.join("x.bin"), floats(0)).unwrap();
    std::fs::write(dir.join("y.bin"), floats(100)).unwrap();
}

fn floats(path: &Path) -> Vec<f32> {
    std::fs::read(path).unwrap().chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
}

#[test]
fn a_c_kernel_reads_buffers_and_scalars_and_its_output_is_written() {
    let t = temp();
    compiled(t.path());
    let args = ["--arg", "in:x.bin", "--arg", "inout:y.bin:out.bin", "--arg", "f32:0.5", "--arg", "i8:-3"];
    let o = run(t.path(), &[&["launch", "k.o", "--kernel", "scale", "--grid", "2", "--json"], &args[..]].concat());
    assert_eq!(code(&o), 0, "{}", err(&o));
    let v = json(&o, &["device", "arch", "launches"]);
    assert_eq!(v["launches"][0]["times_ns"].as_array().unwrap().len(), 1);
    let want: Vec<f32> = (0..8).map(|i| 97.0 + i as f32 * 1.5).collect();
    assert_eq!(floats(&t.path().join("out.bin")), want);
    assert_eq!(floats(&t.path().join("y.bin"))[0], 100.0, "the input file stays");
}

#[test]
fn a_jobs_file_launches_many_and_a_null_pointer_is_zero() {
    let t = temp();
    compiled(t.path());
    let jobs = r#"[
      {"object": "k.o", "kernel": "count", "grid": [3], "args": ["out:24:a.bin", "null"], "repeat": 4},
      {"object": "k.o", "kernel": "count", "grid": [2, 2, 1], "args": ["out:32:b.bin", "u64:7"]}
    ]"#;
    std::fs::write(t.path().join("jobs.json"), jobs).unwrap();
    let o = run(t.path(), &["launch", "--jobs", "jobs.json", "--json"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    let v = json(&o, &["launches"]);
    assert_eq!(v["launches"][0]["times_ns"].as_array().unwrap().len(), 4);
    let words = |name: &str| -> Vec<u64> {
        let bytes = std::fs::read(t.path().join(name)).unwrap();
        bytes.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect()
    };
    assert_eq!(words("a.bin"), [1, 2, 3]);
    assert_eq!(words("b.bin"), [0, 1, 2, 3]);
}

#[test]
fn wrong_names_sizes_and_files_are_told_apart() {
    let t = temp();
    compiled(t.path());
    let refused = |args: &[&str], exit: i32, words: &[&str]| {
        let o = run(t.path(), args);
        assert_eq!(code(&o), exit, "{args:?}: {}", err(&o));
        for w in words {
            assert!(err(&o).contains(w), "{args:?}: no {w:?} in {}", err(&o));
        }
    };
    refused(&["launch", "k.o", "--kernel", "scael"], 3, &["scael", "k.o contains", "count, scale"]);
    refused(&["launch", "none.o", "--kernel", "scale"], 2, &["none.o"]);
    refused(&["launch", "k.c", "--kernel", "scale"], 3, &["no object code"]);
    refused(&["launch", "k.o", "--kernel", "scale", "--arg", "in:none.bin"], 2, &["none.bin"]);
    refused(&["launch", "k.o", "--kernel", "scale", "--arg", "f16:1"], 3, &["unknown kind \"f16\"", "hex:BYTES"]);
    refused(&["launch", "k.o", "--kernel", "scale", "--grid", "1,2,3,4"], 3, &["at most 3"]);
    refused(&["launch", "k.o", "--kernel", "scale", "--block", "64"], 3, &["one work-item per call"]);
    refused(
        &["launch", "k.o", "--kernel", "scale", "--grid", "2147483648,2147483648,4"],
        3,
        &["the limit is 4294967295"],
    );
    refused(&["launch", "k.o"], 3, &["--kernel"]);
    refused(&["launch", "--jobs", "none.json"], 2, &["none.json"]);
    std::fs::write(t.path().join("bad.json"), r#"[{"object": "k.o", "kernel": "scale", "grids": [1]}]"#).unwrap();
    refused(&["launch", "--jobs", "bad.json"], 3, &["grids"]);
}

/// A kernel for gfx1100, compiled by clang from OpenCL C: `y[i] = y[i] * a + i`.
fn code_object(dir: &Path) {
    let source = r"
        __attribute__((reqd_work_group_size(64, 1, 1)))
        __kernel void axpy(__global float *y, float a) {
          unsigned i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
          y[i] = y[i] * a + (float)i;
        }";
    std::fs::write(dir.join("k.cl"), source).unwrap();
    let args = [
        "-x",
        "cl",
        "-cl-std=CL2.0",
        "-target",
        "amdgcn-amd-amdhsa",
        "-mcpu=gfx1100",
        "-nogpulib",
        "-O2",
        "-Xclang",
        "-finclude-default-header",
        "-o",
        "k.co",
        "k.cl",
    ];
    let clang = Command::new("/usr/lib/llvm-19/bin/clang").args(args).current_dir(dir).output();
    let o = clang.expect("clang-19 is installed by the set-up");
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    std::fs::write(dir.join("y.bin"), (0..128).flat_map(|v| (v as f32).to_le_bytes()).collect::<Vec<u8>>()).unwrap();
}

const ON_GPU: &[&str] = &[
    "launch",
    "k.co",
    "--kernel",
    "axpy",
    "--grid",
    "2",
    "--block",
    "64",
    "--arg",
    "inout:y.bin:z.bin",
    "--arg",
    "f32:3",
];

fn axpy(path: &Path) {
    let want: Vec<f32> = (0..128).map(|i| i as f32 * 4.0).collect();
    assert_eq!(floats(path), want);
}

#[test]
fn a_kernel_of_clang_runs_on_a_software_gpu() {
    let t = temp();
    code_object(t.path());
    let o = run(t.path(), &[ON_GPU, &["--device", "AMD:emu=gfx1100", "--json"]].concat());
    assert_eq!(code(&o), 0, "{}", err(&o));
    assert_eq!(json(&o, &["launches"])["arch"], "gfx1100");
    axpy(&t.path().join("z.bin"));
    let refused = |args: &[&str], words: &[&str]| {
        let o = run(t.path(), args);
        assert_eq!(code(&o), 3, "{args:?}: {}", err(&o));
        assert!(words.iter().all(|w| err(&o).contains(w)), "{args:?}: {}", err(&o));
    };
    let wrong_name = ["launch", "k.co", "--kernel", "axpi", "--device", "AMD:emu=gfx1100"];
    refused(&wrong_name, &["k.co contains", "axpy"]);
    refused(&["launch", "k.co", "--kernel", "axpy", "--device", "AMD:emu=gfx1201"], &["k.co contains", "axpy"]);
    refused(&["launch", "k.co", "--kernel", "axpy"], &["k.co contains", "axpy"]);
    // Arguments and sizes that the kernel does not take.
    let with = |rest: &'static str| {
        let fixed = "launch k.co --kernel axpy --device AMD:emu=gfx1100";
        fixed.split(' ').chain(rest.split(' ')).collect::<Vec<&str>>()
    };
    let y = "--grid 2 --block 64 --arg inout:y.bin:z.bin";
    refused(&with(y), &["pass 1 arguments to axpy, which takes 2 of 8, 4 bytes", "k.co contains gfx1100 code: axpy"]);
    refused(
        &with("--grid 2 --block 64 --arg inout:y.bin:z.bin --arg f32:3 --arg u32:1"),
        &["pass 3 arguments", "k.co contains"],
    );
    refused(
        &with("--grid 2 --block 64 --arg inout:y.bin:z.bin --arg u64:3"),
        &["pass 8 bytes to argument 2", "room for 4"],
    );
    refused(&with("--grid 2 --block 64 --arg inout:y.bin:z.bin --arg u16:3"), &["argument 2 lacks 2 bytes"]);
    refused(&with("--grid 2 --block 2048 --arg inout:y.bin:z.bin --arg f32:3"), &["at most 1024", "k.co contains"]);
    refused(&with("--grid 2 --block 2147483648,2147483648,4 --arg null --arg f32:3"), &["at most 1024"]);
}

#[test]
fn a_recorded_launch_is_shown_and_played_again() {
    let t = temp();
    code_object(t.path());
    let device = ["--device", "AMD:emu=gfx1100"];
    let o = run(t.path(), &[&["trace", "--memory", "--out", "run.trace", "--json"], &device[..], ON_GPU].concat());
    assert_eq!(code(&o), 0, "{}", err(&o));
    axpy(&t.path().join("z.bin"));
    let o = run(t.path(), &["trace", "--show", "run.trace"]);
    let text = String::from_utf8_lossy(&o.stdout).into_owned();
    for wanted in ["AMDKFD_IOC_CREATE_QUEUE(", "doorbell(", "DISPATCH_DIRECT", "memory("] {
        assert!(text.contains(wanted), "no {wanted} in {text}");
    }
    assert!(!text.contains("open at the end"), "{text}");
    let o = run(t.path(), &["replay", "run.trace", "--port", "emu", "--json"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    let v = json(&o, &["calls", "doorbells", "submissions", "packets_identical", "differences"]);
    assert_eq!((v["packets_identical"].as_bool(), v["timeouts"].as_u64()), (Some(true), Some(0)));
    // Another chip is another machine: reported, and not 0.
    let o = run(t.path(), &["replay", "run.trace", "--port", "emu", "--chip", "gfx1201", "--timeout", "1"]);
    assert_eq!(code(&o), 1);
    assert!(
        String::from_utf8_lossy(&o.stdout).contains("\"gfx1100\" then, \"gfx1201\" now"),
        "{}",
        String::from_utf8_lossy(&o.stdout)
    );
}

#[test]
fn a_recorded_launch_on_an_nvidia_card_is_shown_and_played_again() {
    let t = temp();
    std::fs::write(t.path().join("k.cubin"), include_bytes!("../../../../tests/data/cubin/device_sm90.cubin")).unwrap();
    let words: Vec<u8> = (0..64u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(t.path().join("in.bin"), words).unwrap();
    let command = "trace --memory --out run.trace --json --device NV:emu=sm_90 launch k.cubin --kernel add --grid 2 --block 32 \
                   --arg inout:in.bin:out.bin --arg u64:5";
    let o = run(t.path(), &command.split_whitespace().collect::<Vec<_>>());
    assert_eq!(code(&o), 0, "{}", err(&o));
    let out = std::fs::read(t.path().join("out.bin")).unwrap();
    let sums: Vec<u32> = out.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
    assert_eq!(sums, (5..69).collect::<Vec<u32>>());
    let o = run(t.path(), &["trace", "--show", "run.trace"]);
    let text = String::from_utf8_lossy(&o.stdout).into_owned();
    for wanted in [
        "HOPPER_CHANNEL_GPFIFO_A",
        "doorbell(",
        "COMPUTE SEND_PCAS_A=",
        "push buffer at 0x",
        "QMD 4.0: ",
        "GRID_WIDTH=0x2",
    ] {
        assert!(text.contains(wanted), "no {wanted} in {text}");
    }
    assert!(!text.contains("open at the end"), "{text}");
    let o = run(t.path(), &["replay", "run.trace", "--port", "emu", "--json"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    let v = json(&o, &["calls", "doorbells", "submissions", "packets_identical", "differences"]);
    assert_eq!((v["packets_identical"].as_bool(), v["timeouts"].as_u64()), (Some(true), Some(0)), "{v:#}");
    assert!(v["submissions"].as_u64() > Some(3), "{v:#}");
}

#[test]
fn ptx_text_is_assembled_and_runs_on_an_nvidia_card() {
    let t = temp();
    let text = ".version 8.8\n.target sm_90\n.address_size 64\n.visible .entry twice(.param .u64 a)\n{\n.reg .b32 %r<3>;\n\
                .reg .b64 %d<3>;\nld.param.u64 %d1, [a];\nmov.u32 %r1, %tid.x;\nmad.wide.u32 %d2, %r1, 4, %d1;\n\
                ld.global.u32 %r2, [%d2];\nadd.u32 %r2, %r2, %r2;\nst.global.u32 [%d2], %r2;\nret;\n}\n";
    std::fs::write(t.path().join("k.ptx"), text).unwrap();
    std::fs::write(t.path().join("in.bin"), (0..32u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
    let command = "launch k.ptx --device NV:emu=sm_90 --kernel twice --block 32 --arg inout:in.bin:out.bin";
    let o = run(t.path(), &command.split(' ').collect::<Vec<_>>());
    assert_eq!(code(&o), 0, "{}", err(&o));
    let out = std::fs::read(t.path().join("out.bin")).unwrap();
    let twice: Vec<u32> = out.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
    assert_eq!(twice, (0..32).map(|n| 2 * n).collect::<Vec<u32>>());
    std::fs::write(t.path().join("k.ptx"), text.replace("add.u32 %r2", "sub.weird %r2")).unwrap();
    let o = run(t.path(), &command.split(' ').collect::<Vec<_>>());
    assert_eq!(code(&o), 1);
    assert!(err(&o).contains("k.ptx: twice: PTX 12:1: sub.weird"), "{}", err(&o));
}

#[test]
fn clusters_are_named_on_the_command_line_or_in_a_jobs_file() {
    let t = temp();
    std::fs::write(t.path().join("k.ptx"), include_str!("../../../../tests/data/ptx/neighbours.ptx")).unwrap();
    let read = |name: &str| -> Vec<u32> {
        let bytes = std::fs::read(t.path().join(name)).unwrap();
        bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
    };
    // Thread 0 of each block: the numbers 0, 100, 200 and 300, alone or two and two.
    let (alone, pairs) = ([0, 100, 200, 300], [100, 100, 200 * 31 + 300, 200 * 31 + 300]);
    let fixed = "launch k.ptx --device NV:emu=sm_90 --kernel neighbours --grid 4 --block 1 --arg out:16:o.bin";
    let with = |rest: &'static [&'static str]| [&fixed.split(' ').collect::<Vec<_>>()[..], rest].concat();
    for (rest, want) in [(&[][..], alone), (&["--cluster", "1"], alone), (&["--cluster", "2,1,1"], pairs)] {
        let o = run(t.path(), &with(rest));
        assert_eq!(code(&o), 0, "{rest:?}: {}", err(&o));
        assert_eq!(read("o.bin"), want, "{rest:?}");
    }
    let job = r#"{"object": "k.ptx", "kernel": "neighbours", "grid": [4], "args": ["out:16:a.bin"]"#;
    let jobs = format!("[{job}}}, {}, \"cluster\": [2]}}]", job.replace("a.bin", "b.bin"));
    std::fs::write(t.path().join("jobs.json"), jobs).unwrap();
    let o = run(t.path(), &["launch", "--jobs", "jobs.json", "--device", "NV:emu=sm_90", "--json"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    assert_eq!(json(&o, &["launches"])["launches"][1]["cluster"], serde_json::json!([2, 1, 1]));
    assert_eq!((read("a.bin"), read("b.bin")), (alone.to_vec(), pairs.to_vec()));
    let refused = |args: &[&str], words: &str| {
        let o = run(t.path(), args);
        assert_eq!(code(&o), 3, "{args:?}: {}", err(&o));
        assert!(err(&o).contains(words), "{args:?}: {}", err(&o));
    };
    refused(&with(&["--cluster", "3"]), "neighbours: cluster [3, 1, 1]: the grid is not a multiple of it");
    refused(&with(&["--cluster", "0"]), "is not a valid size");
    std::fs::write(t.path().join("k.c"), "void scale(void) {}").unwrap();
    let gcc = Command::new("gcc").args(["-c", "k.c"]).current_dir(t.path()).status();
    assert!(gcc.expect("gcc is installed by the set-up").success());
    refused(&["launch", "k.o", "--kernel", "scale", "--cluster", "2"], "a CPU has no clusters");
}

#[test]
fn traces_that_cannot_be_read_or_played_say_why() {
    let t = temp();
    code_object(t.path());
    std::fs::write(t.path().join("no.trace"), b"nothing").unwrap();
    let refused = |args: &[&str], exit: i32, words: &str| {
        let o = run(t.path(), args);
        assert_eq!(code(&o), exit, "{args:?}: {}", err(&o));
        assert!(err(&o).contains(words), "{args:?}: {}", err(&o));
    };
    refused(&["trace", "--show", "no.trace"], 2, "not a trace");
    refused(&["trace", "--show", "none.trace"], 2, "none.trace");
    refused(&["trace"], 3, "CMD");
    refused(&["trace", "--memory", "/bin/true"], 3, "doorbell's own commands");
    refused(&["replay", "no.trace"], 3, "--port");
    let plain = [&["trace", "--out", "plain.trace", "--device", "AMD:emu=gfx1100"], ON_GPU].concat();
    assert_eq!(code(&run(t.path(), &plain)), 0);
    refused(&["replay", "plain.trace", "--port", "emu"], 2, "traced without memory");
}

const MSL: &str = "#include <metal_stdlib>
using namespace metal;
kernel void scale(device float* y [[buffer(0)]], const device float* x [[buffer(1)]], constant float& by [[buffer(2)]],
                  uint i [[thread_position_in_grid]]) { y[i] = x[i] * by; }";

#[test]
fn metal_source_is_compiled_and_run_on_a_software_gpu() {
    let t = temp();
    std::fs::write(t.path().join("k.metal"), MSL).unwrap();
    std::fs::write(t.path().join("x"), (0..8).flat_map(|n| (n as f32).to_le_bytes()).collect::<Vec<u8>>()).unwrap();
    let args = ["--grid", "2", "--block", "4", "--arg", "out:32:y", "--arg", "in:x", "--arg", "f32:0.5"];
    for device in ["METAL:emu", "METAL:1:emu=apple9"] {
        let words = ["--json", "--device", device, "launch", "k.metal", "--kernel", "scale"];
        let o = run(t.path(), &[&words[..], &args[..]].concat());
        assert_eq!(code(&o), 0, "{}", err(&o));
        assert_eq!(json(&o, &["device", "launches"])["device"], device);
        assert_eq!(floats(&t.path().join("y")), (0..8).map(|n| n as f32 * 0.5).collect::<Vec<_>>());
    }
}

#[test]
fn metal_source_that_does_not_compile_a_missing_kernel_and_a_metallib_say_why() {
    let t = temp();
    std::fs::write(t.path().join("k.metal"), MSL).unwrap();
    std::fs::write(t.path().join("bad.metal"), MSL.replace("y[i]", "z[i]")).unwrap();
    std::fs::write(t.path().join("k.metallib"), b"MTLB and code").unwrap();
    let why = |file: &str, kernel: &str| {
        let o = run(t.path(), &["--device", "METAL:emu", "launch", file, "--kernel", kernel]);
        assert_eq!(code(&o), 3, "{}", err(&o));
        err(&o)
    };
    let bad = why("bad.metal", "scale");
    assert!(bad.contains("program_source:4:") && bad.contains("error:") && !bad.contains("ELF"), "{bad}");
    let missing = why("k.metal", "nobody");
    assert!(missing.contains("it has scale"), "{missing}");
    let compiled = why("k.metallib", "scale");
    assert!(compiled.contains("it runs source only (MTLLibraryErrorDomain 1)"), "{compiled}");
}
