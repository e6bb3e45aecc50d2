//! Exit codes, names, and what the environment and the options say about devices.

use super::{code, doorbell, err, json, run, temp};

#[test]
fn help_and_version_are_no_failure() {
    let t = temp();
    for args in [&["--help"][..], &["--version"], &["train", "--help"], &["dump", "--help"]] {
        assert_eq!(code(&run(t.path(), args)), 0, "{args:?}");
    }
}

#[test]
fn wrong_usage_is_3_and_says_what_is_meant() {
    let t = temp();
    for (args, word) in [
        (&[][..], "train"),
        (&["trian"][..], "train"),
        (&["train", "--epoch", "1"], "--epochs"),
        (&["train", "--epochs", "0"], "1"),
        (&["train", "--batch", "1"], "2"),
        (&["train", "--lr", "fast"], "learning rate"),
        (&["train", "--lr", "-1"], "learning rate"),
        (&["train", "--lr", "nan"], "learning rate"),
        (&["train", "--split", "none"], "writers"),
        (&["train", "--batch", "4000"], "rows"),
        (&["dump", "add"], "--out"),
        (&["dump", "ad", "--out", "x"], "softmax"),
    ] {
        let o = run(t.path(), args);
        assert_eq!(code(&o), 3, "{args:?}: {}", err(&o));
        assert!(err(&o).contains(word), "{args:?}: {}", err(&o));
    }
}

#[test]
fn an_unknown_device_is_2_and_the_valid_ones_are_named() {
    let t = temp();
    for name in ["GPU", "CPU:x", "CPU:99", "METAL:x", "AMD:x y", "NV:gfx1100", "NULL:1", ""] {
        let o = run(t.path(), &["dump", "add", "--out", "x", "--device", name]);
        assert_eq!(code(&o), 2, "{name}: {}", err(&o));
        assert!(err(&o).contains("NULL"), "{name}: {}", err(&o));
    }
    let o = doorbell(t.path(), &["train", "--epochs", "1", "--json"]).env("DEV", "GPU").output().unwrap();
    assert_eq!(code(&o), 2, "{}", err(&o));
    assert_eq!(json(&o, &["error"])["exit_code"], 2);
}

#[test]
fn a_variable_that_means_nothing_is_3_and_named() {
    let t = temp();
    for (name, value) in [
        ("DEBUG", "8"),
        ("DEBUG", "x"),
        ("NOOPT", "2"),
        ("BEAM", "-1"),
        ("SPEC", "3"),
        ("JIT", "9"),
        ("THREADS", "1.5"),
    ] {
        let o = doorbell(t.path(), &["devices"]).env(name, value).output().unwrap();
        assert_eq!(code(&o), 3, "{name}={value}: {}", err(&o));
        assert!(err(&o).contains(&format!("{name}={value}")), "{}", err(&o));
    }
}

#[test]
fn an_unknown_arch_could_not_run() {
    let t = temp();
    let o = doorbell(t.path(), &["dump", "add", "--out", "x"]).env("ARCH", "sse9").output().unwrap();
    assert_eq!(code(&o), 2, "{}", err(&o));
    assert!(err(&o).contains("avx2"), "{}", err(&o));
}

#[test]
fn devices_are_listed_with_the_chosen_one() {
    let t = temp();
    let o = run(t.path(), &["devices", "--json"]);
    assert_eq!(code(&o), 0);
    let v = json(&o, &["default", "devices"]);
    assert_eq!(v["default"], "CPU");
    let names: Vec<&str> = v["devices"].as_array().unwrap().iter().filter_map(|d| d["name"].as_str()).collect();
    assert!(names.contains(&"CPU") && names.contains(&"NULL"), "{names:?}");
    // What is only known of an open device is left out of a closed one's line.
    assert!(
        err(&o).contains("NV:emu=sm_90") && !err(&o).contains(" 0 cores") && !err(&o).contains(" 0.0 GiB"),
        "{}",
        err(&o)
    );
}

#[test]
fn state_of_the_chosen_card_is_told_with_memory_clocks_and_temperature() {
    let t = temp();
    let o = run(t.path(), &["devices", "--json", "--device", "NV:emu=sm_90"]);
    let v = json(&o, &["default", "devices"]);
    let row = v["devices"].as_array().unwrap().iter().find(|d| d["name"] == "NV:emu=sm_90").unwrap();
    assert_eq!((code(&o), row["state"]["temperature_c"].as_i64()), (0, Some(42)), "{row:#}");
    assert!(row["state"]["vram_free_bytes"].as_u64() > Some(0) && row["state"]["clocks_khz"].is_array(), "{row:#}");
    assert!(err(&o).contains("NVIDIA H200, ") && err(&o).contains("PCIe 5 x16"), "{}", err(&o));
}

#[test]
fn the_variable_and_the_option_choose_the_same_device() {
    let t = temp();
    for name in ["CPU", "CPU:1"] {
        let by_option = run(t.path(), &["dump", "add", "--out", "a", "--json", "--device", name]);
        let by_variable =
            doorbell(t.path(), &["dump", "add", "--out", "b", "--json"]).env("DEV", name).output().unwrap();
        for o in [by_option, by_variable] {
            assert_eq!(code(&o), 0, "{name}: {}", err(&o));
            assert_eq!(json(&o, &["program", "device", "out", "kernels"])["device"], name);
        }
        let kernel = |d: &str| {
            let mut all: Vec<_> = std::fs::read_dir(t.path().join(d)).unwrap().map(|e| e.unwrap().path()).collect();
            all.sort();
            all.iter().map(|p| std::fs::read(p).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(kernel("a"), kernel("b"));
    }
    // The option wins.
    let o = doorbell(t.path(), &["devices", "--json", "--device", "CPU:1"]).env("DEV", "NULL").output().unwrap();
    assert_eq!(json(&o, &[])["default"], "CPU:1");
}

#[test]
fn cuda_is_another_word_for_nv() {
    let t = temp();
    let o = run(t.path(), &["devices", "--json", "--device", "cuda:emu=sm_90"]);
    let v = json(&o, &["default", "devices"]);
    assert_eq!((code(&o), v["default"].as_str()), (0, Some("NV:emu=sm_90")), "{}", err(&o));
    assert!(err(&o).lines().any(|line| line.starts_with("* NV:emu=sm_90")), "{}", err(&o));
}

#[test]
fn a_lower_case_device_is_the_same_device() {
    let t = temp();
    let o = run(t.path(), &["dump", "add", "--out", "a", "--json", "--device", "cpu:0"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
}

#[test]
fn null_compiles_without_running() {
    let t = temp();
    let o = run(t.path(), &["dump", "add", "--out", "a", "--device", "NULL", "--json"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    let v = json(&o, &["device", "kernels"]);
    let name = v["kernels"][0].as_str().unwrap();
    assert!(std::fs::read(t.path().join(format!("a/{name}.o"))).unwrap().starts_with(b"\x7fELF"));
}

#[test]
fn every_level_of_debug_says_something_and_changes_nothing() {
    let t = temp();
    for level in 1..=7 {
        let o = doorbell(t.path(), &["dump", "mlp", "--out", "a", "--json"]).env("DEBUG", level.to_string()).output();
        let o = o.unwrap();
        assert_eq!(code(&o), 0, "DEBUG={level}: {}", err(&o));
        assert!(!o.stderr.is_empty(), "DEBUG={level}");
        assert_eq!(o.stdout.iter().filter(|b| **b == b'\n').count(), 1, "DEBUG={level}: only the result is on stdout");
    }
}

/// PTX, then each instruction of what our assembler makes of it, with its control word.
#[test]
fn the_assembly_of_an_nvidia_kernel_is_sass_with_its_control_words() {
    let t = temp();
    let command = ["dump", "matmul", "--device", "NV:emu=sm_90", "--out", "a"];
    let o = doorbell(t.path(), &command).env("DEBUG", "7").output().unwrap();
    assert_eq!(code(&o), 0, "{}", err(&o));
    let text = err(&o);
    let (ptx, sass) = text.split_once(".kernel ").expect("a listing");
    assert!(ptx.contains(".visible .entry"), "{ptx}");
    let is_line = |l: &&str| l.trim_start().starts_with("[B") && l.contains(":S") && l.contains(" ;");
    let lines = sass.lines().filter(is_line).count();
    assert!(lines > 20 && sass.contains("EXIT"), "{lines} instructions\n{sass}");
}

#[test]
fn a_profile_is_a_trace_of_events() {
    let t = temp();
    let o = doorbell(t.path(), &["dump", "softmax", "--out", "a"]).env("PROFILE", "trace.json").output().unwrap();
    assert_eq!(code(&o), 0, "{}", err(&o));
    let text = std::fs::read_to_string(t.path().join("trace.json")).unwrap();
    let v: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = v["traceEvents"].as_array().unwrap();
    assert!(!events.is_empty());
    let o = doorbell(t.path(), &["dump", "add", "--out", "a"]).env("PROFILE", "no/such/trace.json").output().unwrap();
    assert_ne!(code(&o), 0);
    assert!(err(&o).contains("no/such/trace.json"), "{}", err(&o));
}

#[test]
fn options_that_change_the_code_run() {
    let t = temp();
    for (name, value) in [
        ("NOOPT", "1"),
        ("ARCH", "avx2"),
        ("THREADS", "1"),
        ("SPEC", "2"),
        ("VALIDATE", "1"),
        ("JIT", "0"),
        ("FAST_MATH", "1"),
    ] {
        let o = doorbell(t.path(), &["dump", "mlp", "--out", "a"]).env(name, value).output().unwrap();
        assert_eq!(code(&o), 0, "{name}={value}: {}", err(&o));
    }
}
