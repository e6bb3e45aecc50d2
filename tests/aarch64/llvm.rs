//! The table against LLVM 19: 20,000 random instructions, seeded. Our text assembles to our bytes, LLVM's disassembly
//! of our bytes is our text but for its aliases, and our decoder leads back.

use doorbell_aarch64::codec::{decode, encode, print};
use doorbell_aarch64::field::Field;
use doorbell_aarch64::rows::{Row, all};
use std::io::Write;
use std::process::{Command, Stdio};

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// What llvm-mc writes for the input.
fn llvm(args: &[&str], input: String) -> String {
    let mut child = Command::new("llvm-mc-19")
        .args(["-triple=aarch64", "-M", "no-aliases", "--show-encoding"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("llvm-mc-19 (cargo xtask setup installs it)");
    let mut stdin = child.stdin.take().expect("a pipe");
    let feeder = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("llvm-mc's output");
    feeder.join().expect("the feeding thread").expect("llvm-mc to read its input");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(complaints.is_empty(), "{}", complaints.lines().take(20).collect::<Vec<_>>().join("\n"));
    String::from_utf8(output.stdout).expect("text")
}

/// Text and word of each instruction in llvm-mc's output.
fn lines(output: &str) -> Vec<(String, u32)> {
    let line = |l: &str| {
        let (text, rest) = l.strip_prefix('\t')?.split_once("// encoding: [")?;
        let bytes = rest.trim_end_matches(']').split(',').map(|b| u32::from_str_radix(b.trim_start_matches("0x"), 16));
        let word = bytes.rev().try_fold(0u32, |w, b| Some(w << 8 | b.ok()?))?;
        Some((text.split_whitespace().collect::<Vec<_>>().join(" "), word))
    };
    output.lines().filter_map(line).collect()
}

fn random(rng: &mut Rng, row: &Row) -> Vec<i64> {
    let fields = row.fields.iter().filter(|f| f.place().1 > 0);
    fields.map(|f| f.unpack((rng.next() as u32) & f.mask())).collect()
}

/// Operands that the field allows and the instruction does not: none but the condition `nv` of a set, which LLVM
/// reads as an alias.
fn is_legal(row: &Row, values: &[i64]) -> bool {
    let conditions = row.fields.iter().filter(|f| f.place().1 > 0).zip(values);
    conditions.filter(|(f, _)| matches!(f, Field::Condition(_) | Field::BranchCondition)).all(|(_, v)| *v < 14)
}

/// Whether LLVM's text is ours. Whatever its options, LLVM writes some instructions by an alias (its assembler has said
/// that they are the same), drops an extension that is none, and writes an offset of zero.
fn is_same_text(ours: &str, theirs: &str) -> bool {
    let aliases: &[&str] = match ours.split(' ').next() {
        Some("movz" | "movn") => &["mov"],
        Some("sbfm") => &["asr", "sbfiz", "sbfx", "sxtb", "sxth", "sxtw"],
        Some("ubfm") => &["lsl", "lsr", "ubfiz", "ubfx", "uxtb", "uxth"],
        Some("ret") => &["ret"],
        _ => &[],
    };
    let plain = |text: &str| text.replace(", uxtx", "").replace(", #0]", "]");
    plain(ours) == plain(theirs) || theirs.split(' ').next().is_some_and(|name| aliases.contains(&name))
}

#[test]
fn random_instructions_are_what_llvm_says() {
    let rows = all();
    let mut rng = Rng(0xa64);
    let mut cases: Vec<(&Row, Vec<i64>)> = Vec::new();
    while cases.len() < 20_000 {
        let row = rows[cases.len() % rows.len()];
        let values = random(&mut rng, row);
        if is_legal(row, &values) {
            cases.push((row, values));
        }
    }
    let ours: Vec<(String, u32)> =
        cases.iter().map(|(row, values)| (print(row, values), encode(row, values).expect("a legal operand"))).collect();
    let assembled = lines(&llvm(&[], ours.iter().map(|(text, _)| format!("{text}\n")).collect()));
    let hex = |w: u32| w.to_le_bytes().map(|b| format!("0x{b:02x}")).join(" ");
    let read = lines(&llvm(&["--disassemble"], ours.iter().map(|(_, word)| hex(*word) + "\n").collect()));
    assert_eq!((assembled.len(), read.len()), (ours.len(), ours.len()));
    for (our, theirs) in ours.iter().zip(&assembled) {
        assert_eq!(our.1, theirs.1, "{}: {:08x}, LLVM's assembler makes {:08x}", our.0, our.1, theirs.1);
    }
    for ((text, word), (theirs, _)) in ours.iter().zip(&read) {
        assert!(is_same_text(text, theirs), "{word:08x}: {text}, LLVM reads {theirs}");
    }
    for ((row, values), (text, word)) in cases.iter().zip(&ours) {
        let (found, back) = decode(*word).expect("a row of the table");
        assert!(std::ptr::eq(found, *row), "{text} is decoded as {}", print(found, &back));
        assert_eq!(&back, values, "{text}");
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    use doorbell_aarch64::rows;
    assert!(encode(&rows::LDR_X[0], &[0, 1, 4]).unwrap_err().contains("4 does not fit"));
    assert!(encode(&rows::LDR_X[0], &[0, 1, 32768]).is_err());
    assert!(encode(&rows::LDR_X[1], &[0, 1, -257]).is_err());
    assert!(encode(&rows::ADD_IMM[1], &[0, 1, 4096, 0]).is_err());
    assert!(encode(&rows::SHL[0], &[0, 1, 8]).is_err());
    assert!(encode(&rows::USHR[0], &[0, 1, 0]).is_err());
    assert!(encode(&rows::B_COND, &[0, 1 << 20]).is_err());
    assert!(encode(&rows::RET, &[]).is_ok());
    assert_eq!(encode(&rows::SUB[0], &[1, 2]).unwrap_err(), "sub: an operand is missing");
}
