//! The parts in their order, reported line by line, and the results as one object.

use crate::bench::Sizes;
use crate::machine::{Machine, apart, selector};
use crate::{Args, bench, copies, suite};
use hw_contact::Failure;
use serde_json::{Map, Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

/// Parts that can be left out.
const PARTS: &[&str] = &["copies", "bench", "cuda", "tests"];

pub fn run(args: &Args) -> ExitCode {
    let began = Instant::now();
    let wrong = |what: String| {
        eprintln!("nv-check: {what}");
        ExitCode::from(3)
    };
    if let Some(part) = args.skip.iter().find(|part| !PARTS.contains(&part.as_str())) {
        return wrong(format!("no part {part}, there are {}", PARTS.join(", ")));
    }
    if let Err(what) = selector(args) {
        return wrong(what);
    }
    let machine = match Machine::open(args) {
        Ok(machine) => machine,
        Err(failure) => {
            eprintln!("nv-check: {}", failure.what);
            if args.json {
                println!("{}", json!({"error": failure.what, "exit_code": 2}));
            }
            return ExitCode::from(2);
        }
    };
    let args = &Args { quick: args.quick || machine.is_software, ..args.clone() };
    let deadline = began + Duration::from_secs_f64(args.minutes * 60.0);
    let (reported, is_ok) = parts(args, machine, deadline, began);
    let value = Value::Object(reported);
    if let Some(path) = &args.out
        && let Err(e) = std::fs::write(path, format!("{value:#}\n"))
    {
        eprintln!("nv-check: {}: {e}", path.display());
        return ExitCode::FAILURE;
    }
    if args.json {
        println!("{value}");
    }
    ExitCode::from(u8::from(!is_ok))
}

fn say(args: &Args, line: &str) {
    if args.json { eprintln!("{line}") } else { println!("{line}") }
}

/// A part's result, printed and stored.
fn keep(args: &Args, reported: &mut Map<String, Value>, name: &str, result: Result<Value, Failure>) -> bool {
    let is_ok = result.is_ok();
    let value = result.unwrap_or_else(|failure| json!({"error": failure.what}));
    say(args, &format!("{name}: {value}"));
    reported.insert(name.into(), value);
    is_ok
}

fn parts(args: &Args, machine: Machine, deadline: Instant, began: Instant) -> (Map<String, Value>, bool) {
    let (mut reported, mut is_ok) = (Map::new(), true);
    let is_wanted = |part: &str| !args.skip.iter().any(|s| s == part);
    is_ok &= keep(args, &mut reported, "machine", Ok(identity(args, &machine)));
    if is_wanted("copies") {
        is_ok &= keep(args, &mut reported, "copies", copies::check(&machine, args.quick));
    }
    if is_wanted("bench") {
        let sizes = Sizes::of(args.quick);
        is_ok &= keep(args, &mut reported, "clocks_before", clocks(&machine));
        is_ok &= keep(args, &mut reported, "doorbell", bench::measure(&machine, sizes));
        is_ok &= keep(args, &mut reported, "clocks_after", clocks(&machine));
    }
    // Others get the card for themselves.
    let closed = doorbell::device::Device::close(&machine.device);
    drop(machine);
    if let Err(e) = closed {
        is_ok = keep(args, &mut reported, "close", Err(e.into()));
    }
    if is_wanted("bench") {
        is_ok &= keep(args, &mut reported, "first_kernel", apart("first", args, deadline));
    }
    if is_wanted("cuda") {
        // A machine without CUDA is none that fails.
        keep(args, &mut reported, "cuda", apart("cuda", args, deadline));
    }
    if is_wanted("tests") {
        is_ok &= tests(args, &mut reported, deadline);
    }
    reported.insert("seconds".into(), json!(began.elapsed().as_secs_f64()));
    reported.insert("ok".into(), json!(is_ok));
    say(
        args,
        &format!("{}: {:.1} s", if is_ok { "all right" } else { "something is wrong" }, began.elapsed().as_secs_f64()),
    );
    (reported, is_ok)
}

fn tests(args: &Args, reported: &mut Map<String, Value>, deadline: Instant) -> bool {
    let Some(dir) = suite::folder(args) else {
        let why = "no folder of test programs: --tests DIR names one, --pack makes one, --skip tests goes without";
        return keep(args, reported, "tests", Err(why.into()));
    };
    match suite::run(&dir, args, deadline) {
        Ok(programs) => {
            programs.iter().for_each(|p| say(args, &format!("tests: {p}")));
            let is_ok = programs.iter().all(|p| p["ok"] == json!(true));
            reported.insert("tests".into(), json!({"ok": is_ok, "programs": programs}));
            is_ok
        }
        Err(failure) => keep(args, reported, "tests", Err(failure)),
    }
}

/// Which card, driver and moment.
fn identity(args: &Args, machine: &Machine) -> Value {
    let gpu = machine.device.gpu();
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    json!({"device": args.device, "chip": gpu.chip.name, "name": gpu.properties.name,
        "sms": gpu.properties.sms, "driver": gpu.driver.release().to_string(),
        "bdf": gpu.card.bdf, "vram_bytes": gpu.properties.vram_bytes, "unix_time": time, "version": env!("CARGO_PKG_VERSION"),
        "state": machine.device.telemetry()})
}

/// Clocks by a kernel's measurement and by the driver.
fn clocks(machine: &Machine) -> Result<Value, Failure> {
    let telemetry = machine.device.telemetry();
    Ok(json!({"sm_mhz_by_kernel": bench::sm_clock_mhz(machine)?, "clocks_khz": telemetry.clocks_khz,
        "temperature_c": telemetry.temperature_c, "performance_state": telemetry.performance_state}))
}
