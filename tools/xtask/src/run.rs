//! A step is one program to start or one function to call; steps run in order, each is announced with its time, the
//! first failure ends the run.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// What a step does.
pub enum Action {
    /// Program and arguments, started in the clone's root.
    Start(Vec<String>),
    /// A function of this program.
    Call(fn() -> Result<(), Failure>),
}

/// One announced piece of work.
pub struct Step {
    pub name: &'static str,
    pub action: Action,
}

/// Why a run ended early.
#[derive(Debug, PartialEq)]
pub enum Failure {
    /// The step ran and failed.
    Failed { step: String, status: String },
    /// The step could not be started (program missing, no right to install).
    NotStarted { step: String, reason: String },
}

impl Failure {
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Failed { .. } => 1,
            Failure::NotStarted { .. } => 2,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Failed { step, status } => write!(f, "{step} failed ({status})"),
            Failure::NotStarted { step, reason } => write!(f, "{step} could not run: {reason}"),
        }
    }
}

/// A step that starts a program; `command` is split at blanks.
pub fn start(name: &'static str, command: &str) -> Step {
    Step { name, action: Action::Start(command.split_whitespace().map(str::to_owned).collect()) }
}

/// A step that calls a function of this program.
pub fn call(name: &'static str, function: fn() -> Result<(), Failure>) -> Step {
    Step { name, action: Action::Call(function) }
}

/// The clone's root: two folders above this package.
pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Runs all steps; prints each with its time.
///
/// # Errors
/// The first step that fails or cannot start.
pub fn in_order(steps: &[Step]) -> Result<(), Failure> {
    let begin = Instant::now();
    for step in steps {
        let at = Instant::now();
        match &step.action {
            Action::Start(words) => {
                println!("== {}: {}", step.name, words.join(" "));
                program(step.name, words)?;
            }
            Action::Call(function) => {
                println!("== {}", step.name);
                function()?;
            }
        }
        println!("== {} ok, {}", step.name, seconds(at.elapsed()));
    }
    println!("== {} steps ok, {}", steps.len(), seconds(begin.elapsed()));
    Ok(())
}

/// Starts a program in the clone's root and waits for it.
///
/// # Errors
/// The program is missing, or ends with anything but 0.
pub fn program(step: &str, words: &[String]) -> Result<(), Failure> {
    let (mut command, name) = command(step, words)?;
    let status = command
        .status()
        .map_err(|error| Failure::NotStarted { step: step.to_owned(), reason: format!("{name}: {error}") })?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::Failed { step: step.to_owned(), status: status.to_string() })
}

/// The command of these words in the clone's root, and its program's name.
fn command<'a>(step: &str, words: &'a [String]) -> Result<(Command, &'a str), Failure> {
    let Some((name, args)) = words.split_first() else {
        return Err(Failure::NotStarted { step: step.to_owned(), reason: "no program given".to_owned() });
    };
    let mut command = Command::new(name);
    command.args(args).current_dir(root());
    // This program was itself started by cargo: what it sets for us would tie inner cargo calls to this package.
    for (key, _) in std::env::vars_os() {
        if key.to_str().is_some_and(|k| k.starts_with("CARGO_PKG_") || k.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(key);
        }
    }
    Ok((command, name))
}

/// As [`program`]; returns what it printed.
///
/// # Errors
/// As [`program`].
pub fn output(step: &str, words: &[String]) -> Result<String, Failure> {
    let (mut command, name) = command(step, words)?;
    let failed = |error| Failure::NotStarted { step: step.to_owned(), reason: format!("{name}: {error}") };
    let done = command.stderr(std::process::Stdio::inherit()).output().map_err(failed)?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        false => Err(Failure::Failed { step: step.to_owned(), status: done.status.to_string() }),
    }
}

/// True when the program starts and ends with 0; its output is dropped.
pub fn answers(words: &[&str]) -> bool {
    let Some((name, args)) = words.split_first() else { return false };
    Command::new(name).args(args).output().is_ok_and(|out| out.status.success())
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_ends_with_one_stops_the_run_with_exit_code_one() {
        let steps = [start("first", "true"), start("second", "false"), call("third", || panic!("must not run"))];
        let failure = in_order(&steps).unwrap_err();
        assert_eq!(failure.exit_code(), 1);
        assert!(failure.to_string().starts_with("second failed"), "{failure}");
    }

    #[test]
    fn a_missing_program_is_named_and_gives_exit_code_two() {
        let failure = in_order(&[start("gone", "no-such-program-here --now")]).unwrap_err();
        assert_eq!(failure.exit_code(), 2);
        assert!(failure.to_string().contains("no-such-program-here"), "{failure}");
    }

    #[test]
    fn all_steps_ok_is_ok() {
        assert_eq!(in_order(&[start("one", "true"), call("two", || Ok(()))]), Ok(()));
    }
}
