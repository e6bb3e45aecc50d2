//! The same kernels compiled by clang for the host, with a stand-in for Metal's header.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const CLANG: &str = "clang++-19";

/// Whether the witness is there; says so where it is not.
pub(crate) fn present() -> bool {
    let found = Command::new(CLANG).arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("SKIPPED: {CLANG} is not installed (cargo xtask setup installs it)");
    }
    found
}

/// A kernel in a program of several.
pub(crate) struct Entry<'a> {
    pub source: &'a str,
    /// The function's name in the source.
    pub function: &'a str,
    /// How C++ calls it, with template arguments.
    pub call: &'a str,
}

/// A program with some kernels.
pub(crate) struct Program {
    folder: PathBuf,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What C++ passes for each parameter of a kernel.
fn arguments(source: &str, function: &str) -> String {
    let header = format!("void {function}");
    let start = source.match_indices(&header).map(|(at, _)| at + header.len());
    let open =
        start.filter(|at| source[*at..].starts_with('(')).map(|at| at + 1).next().expect("the kernel's parameters");
    let (mut depth, mut part, mut parts) = (0, String::new(), Vec::new());
    for c in source[open..].chars() {
        match c {
            '(' | '[' => depth += 1,
            ')' if depth == 0 => break,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    parts.push(part);
    let mut next = 0;
    let argument = |part: &String| {
        let attribute = part.split_once("[[").map(|(_, rest)| rest.split("]]").next().unwrap_or("").trim());
        match attribute {
            Some(a) if a.starts_with("buffer") => format!("metal::slot{{metal::buffers[{}].data}}", number(a)),
            Some(a) if a.starts_with("threadgroup(") => format!("metal::slot{{metal::groups_memory[{}]}}", number(a)),
            Some(a) => format!("metal::{a}()"),
            None => {
                next += 1;
                format!("metal::slot{{metal::buffers[{}].data}}", next - 1)
            }
        }
    };
    parts.iter().map(argument).collect::<Vec<_>>().join(", ")
}

fn number(text: &str) -> u32 {
    text.chars().filter(char::is_ascii_digit).collect::<String>().parse().expect("a slot")
}

/// The source as C++: what the header cannot express.
fn as_cpp(source: &str) -> String {
    let mut out = String::new();
    for line in source.lines() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("#include") || trimmed.starts_with("#pragma METAL") {
            continue;
        }
        let mut line = line.to_owned();
        while let Some(at) = ["[[host_name(", "[[max_total", "[[threadgroup("].iter().find_map(|a| line.find(a)) {
            let end = at + line[at..].find("]]").expect("an attribute's end") + 2;
            line.replace_range(at..end, "");
        }
        let trimmed = line.trim_start();
        if trimmed.starts_with("threadgroup ") && trimmed.trim_end().ends_with(';') && !trimmed.contains(['=', '(']) {
            line = line.replacen("threadgroup ", "static ", 1);
        }
        let _ = writeln!(out, "{line}");
    }
    out
}

impl Program {
    /// Compiles kernels into one program; the folder's name has to be the test's own.
    pub(crate) fn compile(name: &str, entries: &[Entry<'_>]) -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clang");
        let folder = std::env::temp_dir().join(format!("doorbell-msl-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the program");
        let mut text = String::from("#include <metal_stdlib>\n#include \"run.h\"\nstatic int which;\n");
        for (n, entry) in entries.iter().enumerate() {
            let call = format!("{}({})", entry.call, arguments(entry.source, entry.function));
            let _ = writeln!(
                text,
                "namespace case{n} {{\nusing namespace metal;\n{}\nstatic void call() {{ {call}; }}\n}}",
                as_cpp(entry.source)
            );
        }
        text.push_str("static void call() {\n  switch (which) {\n");
        for n in 0..entries.len() {
            let _ = writeln!(text, "    case {n}: case{n}::call(); break;");
        }
        text.push_str("  }\n}\n");
        // `main` reads the number from the environment before anything runs.
        text.push_str("__attribute__((constructor)) static void choose() { which = atoi(getenv(\"WHICH\")); }\n");
        let file = folder.join("kernels.cpp");
        std::fs::write(&file, text).expect("the source");
        let made = Command::new(CLANG)
            .args(["-std=c++20", "-O1", "-w", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv"])
            .args(["-Xclang", "-ffloat16-excess-precision=none", "-Xclang", "-fbfloat16-excess-precision=none", "-I"])
            .arg(&here)
            .arg("-o")
            .args([&folder.join("kernels"), &file])
            .output()
            .expect("clang runs");
        assert!(made.status.success(), "clang: {}", String::from_utf8_lossy(&made.stderr));
        Self { folder }
    }

    /// Runs one kernel; the buffers afterwards.
    pub(crate) fn run(
        &self,
        which: usize,
        shape: ([u32; 3], [u32; 3]),
        buffers: &[Vec<u8>],
        own: &[u64],
    ) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        for n in shape.0.iter().chain(&shape.1) {
            bytes.extend(u64::from(*n).to_le_bytes());
        }
        bytes.extend((buffers.len() as u64).to_le_bytes());
        bytes.extend((own.len() as u64).to_le_bytes());
        for buffer in buffers {
            bytes.extend((buffer.len() as u64).to_le_bytes());
            bytes.extend(buffer);
        }
        own.iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        let (input, output) = (self.folder.join(format!("in{which}")), self.folder.join(format!("out{which}")));
        std::fs::write(&input, bytes).expect("the input");
        let done =
            Command::new(self.folder.join("kernels")).args([&input, &output]).env("WHICH", which.to_string()).status();
        assert!(done.expect("the program starts").success(), "kernel {which} does not end well");
        let made = std::fs::read(&output).expect("the output");
        let mut rest = &made[..];
        buffers
            .iter()
            .map(|b| {
                let (part, tail) = rest.split_at(b.len());
                rest = tail;
                part.to_vec()
            })
            .collect()
    }
}
