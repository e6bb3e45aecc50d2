//! LLVM's assembler and disassembler (19, and 22 for halves of registers), one process a batch.

use std::io::Write;
use std::process::{Command, Stdio};

/// The first argument that asks for LLVM 22's tools instead of LLVM 19's.
pub const LLVM22: &str = "22";

/// Runs llvm-mc on the input; what it wrote to standard output.
fn run(chip: &str, args: &[&str], input: &str) -> String {
    let (version, args) = match args {
        [LLVM22, rest @ ..] => (LLVM22, rest),
        all => ("19", all),
    };
    let mut child = Command::new(format!("/usr/lib/llvm-{version}/bin/llvm-mc"))
        .args(["-triple=amdgcn", &format!("-mcpu={chip}"), "--show-encoding"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("llvm-mc (cargo xtask setup installs it)");
    let mut stdin = child.stdin.take().expect("a pipe");
    let text = input.to_owned();
    let feeder = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("llvm-mc's output");
    feeder.join().expect("the feeding thread").expect("llvm-mc to read its input");
    String::from_utf8(output.stdout).expect("text")
}

/// Instruction text and bytes of one line of llvm-mc's output.
fn line(line: &str) -> Option<(String, Vec<u8>)> {
    let (text, rest) = line.strip_prefix('\t')?.split_once("; encoding: [")?;
    let bytes = rest.trim_end_matches(']').split(',').map(|b| u8::from_str_radix(b.trim_start_matches("0x"), 16).ok());
    Some((text.trim().to_owned(), bytes.collect::<Option<_>>()?))
}

/// Instructions between numbered `s_nop`s, one list a case. A second `s_nop` takes the blow when a case swallows what
/// follows it.
fn cases(output: &str, count: usize) -> Vec<Vec<(String, Vec<u8>)>> {
    let mut found = vec![Vec::new(); count];
    let mut current = Vec::new();
    for (text, bytes) in output.lines().filter_map(line) {
        let number =
            bytes.strip_suffix(&[0x80, 0xbf]).filter(|b| b.len() == 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
        match number {
            Some(u16::MAX) => {}
            Some(n) if usize::from(n) < count => found[usize::from(n)] = std::mem::take(&mut current),
            _ => current.push((text, bytes)),
        }
    }
    found
}

/// Bytes of each line as LLVM's assembler makes them; `None`: it refuses the line.
pub fn assemble(chip: &str, args: &[&str], lines: &[String]) -> Vec<Option<Vec<u8>>> {
    let mut all = Vec::new();
    for part in lines.chunks(60_000) {
        let text: String = part.iter().enumerate().map(|(i, l)| format!("{l}\ns_nop 0xffff\ns_nop {i}\n")).collect();
        let one = |mut c: Vec<(String, Vec<u8>)>| if c.len() == 1 { c.pop().map(|(_, b)| b) } else { None };
        all.extend(cases(&run(chip, args, &text), part.len()).into_iter().map(one));
    }
    all
}

/// Text of each instruction as LLVM's disassembler writes it; `None`: it sees no instruction, or one of another length.
pub fn disassemble(chip: &str, args: &[&str], codes: &[Vec<u8>]) -> Vec<Option<String>> {
    let mut all = Vec::new();
    let args: Vec<&str> = args.iter().copied().chain(["--disassemble"]).collect();
    for part in codes.chunks(60_000) {
        let hex = |b: &[u8]| b.iter().map(|b| format!("0x{b:02x}")).collect::<Vec<_>>().join(" ");
        let text: String = (0u16..)
            .zip(part)
            .map(|(i, c)| format!("{}\n0xff 0xff 0x80 0xbf\n{} 0x80 0xbf\n", hex(c), hex(&i.to_le_bytes())))
            .collect();
        let one = |mut c: Vec<(String, Vec<u8>)>| if c.len() == 1 { c.pop().map(|(t, _)| t) } else { None };
        all.extend(cases(&run(chip, &args, &text), part.len()).into_iter().map(one));
    }
    all
}
