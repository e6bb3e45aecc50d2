//! What tinygrad's guides show, done here: one file a guide, in the guide's order.

mod pages;
mod quick_reference;
mod ramp;
mod symbolic_mean;
mod tutorial_notes;

use doorbell::engine::{Options, Session};
use std::error::Error;
use std::process::Command;
use std::sync::{Arc, Mutex};

/// What a fragment returns: any error ends it.
type Fragment = Result<(), Box<dyn Error>>;

/// What a session with these options says while `f` runs in it. The program prints it; here it is collected.
fn said<T>(options: Options, f: impl FnOnce() -> T) -> (T, String) {
    let s = Session::open(options).unwrap();
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = heard.clone();
    s.on_message(move |text| kept.lock().unwrap().push(text.into()));
    let _in_it = s.enter();
    let value = f();
    let text = heard.lock().unwrap().join("\n");
    (value, text)
}

fn debug(level: u8) -> Options {
    Options { debug: level, ..Options::default() }
}

/// Runs f in a session of its own, whose counters count nothing else.
fn alone<T>(f: impl FnOnce(&Arc<Session>) -> T) -> T {
    let s = Session::open(Options::default()).unwrap();
    let _in_it = s.enter();
    f(&s)
}

/// What a program prints that is started with these variables: `DEBUG=2 CPU=1 program`. The program is one of the tests
/// named `program_..`, which do nothing otherwise.
fn printed(program: &str, vars: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", program, "--nocapture"]).env("GUIDES_PROGRAM", "1");
    for name in ["DEV", "DEBUG", "NOOPT", "BEAM", "PROFILE", "VIZ", "SPEC"] {
        command.env_remove(name);
    }
    let out = command.envs(vars.iter().copied()).output().unwrap();
    let text = [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(out.status.success(), "{text}");
    text
}

/// Whether this process was started by `printed`.
fn is_program() -> bool {
    std::env::var_os("GUIDES_PROGRAM").is_some()
}
