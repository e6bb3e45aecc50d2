//! The `doorbell` program from its users' side: exit codes, JSON, files, signals.

mod asm;
mod bench;
#[cfg(all(feature = "nv", feature = "emu"))]
mod calls;
mod drivertest;
mod dump;
mod files;
mod launch;
mod object;
mod options;
mod sass;
mod trace;
mod train;
mod viz;

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program with an empty environment except PATH, in a directory of its own.
pub fn doorbell(dir: &Path, args: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_doorbell"));
    c.args(args).current_dir(dir).env_clear().env("CACHELEVEL", "0").stdin(Stdio::null());
    if let Some(path) = std::env::var_os("PATH") {
        c.env("PATH", path);
    }
    c
}

pub fn run(dir: &Path, args: &[&str]) -> Output {
    doorbell(dir, args).output().unwrap()
}

pub fn code(o: &Output) -> i32 {
    o.status.code().unwrap_or_else(|| panic!("ended by a signal: {}\n{}", o.status, err(o)))
}

pub fn err(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

/// The JSON object of the last line of standard output, which has all of `keys`.
pub fn json(o: &Output, keys: &[&str]) -> Value {
    let text = String::from_utf8_lossy(&o.stdout);
    let last = text.lines().last().unwrap_or_else(|| panic!("nothing on standard output\n{}", err(o)));
    let v: Value = serde_json::from_str(last).unwrap_or_else(|e| panic!("{e} in: {last}"));
    let object = v.as_object().unwrap_or_else(|| panic!("not an object: {last}"));
    for k in keys {
        assert!(object.contains_key(*k), "no '{k}' in {last}");
    }
    v
}

pub fn temp() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}
