//! The README is held to what is there: its commands start, its options are the program's options, its folders exist.

use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn readme() -> String {
    std::fs::read_to_string(root().join("README.md")).expect("README.md in the clone's root")
}

/// Command lines of the shell blocks, without comments.
fn commands(text: &str) -> Vec<String> {
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.flat_map(str::lines).map(|line| line.split(" #").next().unwrap_or("").trim());
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// What a command of the README needs: a sub-command of the program, an example, or a task of `cargo xtask`.
#[derive(Debug, PartialEq)]
enum Needs {
    Doorbell(Vec<String>),
    Example(String),
    Xtask,
    Unknown,
}

/// Leading `NAME=value` words are environment variables.
fn needs(command: &str) -> Needs {
    let words: Vec<&str> = command.split_whitespace().skip_while(|w| w.contains('=')).collect();
    match words.as_slice() {
        ["cargo", "run", "--release", "--example", name, ..] => Needs::Example((*name).to_owned()),
        ["cargo", "run", "--release", "--", rest @ ..] => {
            Needs::Doorbell(rest.iter().map(|w| (*w).to_owned()).collect())
        }
        ["cargo", "xtask", ..] => Needs::Xtask,
        _ => Needs::Unknown,
    }
}

/// The command's own `--help`: an unknown sub-command or option fails with exit code 3 before help is shown.
fn assert_help(words: &[String]) {
    let out =
        Command::new(env!("CARGO_BIN_EXE_doorbell")).args(words).arg("--help").output().expect("the program starts");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success() && text.contains("Usage:"),
        "`doorbell {} --help`: {}, {text}",
        words.join(" "),
        out.status
    );
    for option in words.iter().filter(|w| w.starts_with("--")) {
        assert!(text.contains(option.as_str()), "`doorbell {}` has no {option}", words[0]);
    }
}

#[test]
fn commands_of_the_readme_start() {
    let list = commands(&readme());
    assert!(list.iter().any(|c| c.contains(" train")), "the README shows how to train");
    for command in list {
        match needs(&command) {
            Needs::Doorbell(words) => assert_help(&words),
            Needs::Example(name) => assert!(root().join(format!("examples/{name}.rs")).exists(), "no example {name}"),
            Needs::Xtask => {} // tools/xtask holds these to its own table
            Needs::Unknown => panic!("the README shows `{command}`, which this test cannot check"),
        }
    }
}

#[test]
fn options_of_the_readme_are_the_programs_options() {
    let source = std::fs::read_to_string(root().join("src/engine/options.rs")).expect("the options");
    let code = source.split("#[cfg(test)]").next().expect("the part before the tests");
    let quoted = code.split('"').skip(1).step_by(2);
    let name = |w: &&str| w.len() > 1 && w.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let known: Vec<&str> =
        quoted.filter(name).filter(|w| !["HOME", "XDG_CACHE_HOME", "CPU", "NULL"].contains(w)).collect();
    assert!(known.contains(&"DEBUG"), "no option names found: {known:?}");
    let text = readme();
    let table: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("| `")?.split('`').next()).filter(name).collect();
    for option in &known {
        assert!(table.contains(option), "{option} is not in the README's table");
    }
    for option in &table {
        assert!(known.contains(option), "the README's {option} is not an option");
    }
}

#[test]
fn folders_of_the_readme_exist() {
    let text = readme();
    let folders: Vec<&str> =
        text.lines().filter_map(|l| l.strip_prefix("| `")?.split('`').next()).filter(|w| w.ends_with('/')).collect();
    assert!(folders.len() >= 5, "the layout table was not found");
    for folder in folders {
        assert!(root().join(folder).is_dir(), "no folder {folder}");
    }
}

#[test]
fn a_command_is_read_with_its_environment_and_comment() {
    let list = commands(
        "```sh\nDEBUG=2 cargo run --release -- train --epochs 3   # short\n\n```\nx\n```sh\ncargo xtask test\n```\n",
    );
    assert_eq!(list, ["DEBUG=2 cargo run --release -- train --epochs 3", "cargo xtask test"]);
    assert_eq!(needs(&list[0]), Needs::Doorbell(["train", "--epochs", "3"].map(str::to_owned).to_vec()));
    assert_eq!(needs("make all"), Needs::Unknown);
}
