//! The parser and the printer: what compilers write, what is refused and where, and that no damage to a text is a
//! panic.

use super::ptxas::assemble_at;
use doorbell::isa::ptx::{Imm, Init, Item, Linkage, Opcode, Operand, ParseError, Space, Statement, Type, parse};

/// Texts in the manner of nvcc, Triton and hand-written kernels; ptxas takes each of them.
const SAMPLES: [(&str, &str); 4] = [
    ("nvcc", include_str!("../data/ptx/nvcc.ptx")),
    ("triton", include_str!("../data/ptx/triton.ptx")),
    ("calls", include_str!("../data/ptx/calls.ptx")),
    ("hopper", include_str!("../data/ptx/hopper.ptx")),
];

#[test]
fn what_is_printed_parses_to_the_same_module() {
    for (name, text) in SAMPLES {
        let m = parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let printed = m.to_string();
        assert_eq!(parse(&printed).unwrap_or_else(|e| panic!("{name}: {e}\n{printed}")), m, "{name}");
        assert_eq!(parse(&printed).unwrap().to_string(), printed, "{name}");
    }
}

/// Bodies with a comment before each comma and semicolon: so nothing in them is read from the bytes at once, all of it
/// by tokens.
fn by_tokens(text: &str) -> String {
    let in_body = |line: &str| line.starts_with(['\t', ' ', '@']) && !line.contains(['"', '/']) && line.contains(';');
    let slow = |line: &str| line.replace(',', "/**/,").replace(';', "/**/;");
    text.lines().map(|l| if in_body(l) { slow(l) } else { l.to_owned() } + "\n").collect()
}

#[test]
fn bytes_and_tokens_give_the_same_module() {
    for (name, text) in SAMPLES {
        let slow = by_tokens(text);
        assert!(slow.matches("/**/").count() > 20, "{name}");
        assert_eq!(parse(&slow).unwrap_or_else(|e| panic!("{name}: {e}")), parse(text).unwrap(), "{name}");
    }
}

#[test]
fn numbers_of_all_lengths_are_read() {
    for n in [
        u64::MAX,
        i64::MAX as u64,
        1 << 63,
        999_999_999_999_999_999,
        1_000_000_000_000_000_000,
        9_999_999_999_999_999_999,
    ] {
        let text = format!(
            ".version 8.8\n.target sm_90\n.address_size 64\n.visible .entry k() {{ .reg .b64 %d<2>; mov.u64 %d1, {n}; ret; }}"
        );
        let m = parse(&text).unwrap_or_else(|e| panic!("{n}: {e}"));
        let body = m.entry("k").and_then(|f| f.body.clone()).unwrap();
        let given = body.iter().find_map(|s| match s {
            Statement::Inst(i) if i.op == Opcode::Mov => i.operands.last(),
            _ => None,
        });
        assert_eq!(given, Some(&Operand::int(n.cast_signed())), "{n}");
    }
}

#[test]
fn ptxas_takes_the_samples_as_written_and_as_printed() {
    for (name, text) in SAMPLES {
        let m = parse(text).unwrap();
        for ptx in [text, &m.to_string()] {
            assemble_at("-O2", &m.target[0], ptx).unwrap_or_else(|e| panic!("{name}: {e}\n{ptx}"));
        }
    }
}

#[test]
fn a_module_says_what_stood_in_the_text() {
    let m = parse(SAMPLES[0].1).unwrap();
    assert_eq!((m.version, &*m.target[0], m.address_bits), ((8, 0), "sm_90", 64));
    let Some(Item::Variable(table)) = m.items.iter().find(|i| matches!(i, Item::Variable(v) if &*v.name == "table"))
    else {
        panic!("no table")
    };
    assert_eq!((table.space, table.align, table.ty, table.len_bytes()), (Space::Const, Some(4), Type::F32, Some(16)));
    let Some(Init::List(values)) = &table.init else { panic!("no values") };
    assert_eq!(values[1], Init::Value(Operand::Imm(Imm::F32(0x4000_0000))));
    let f = m.entry("scale").unwrap();
    assert_eq!((f.linkage, f.params.len(), f.params[1].ty), (Linkage::Visible, 3, Type::F32));
    let insts: Vec<_> =
        f.body.iter().flatten().filter_map(|s| if let Statement::Inst(i) = s { Some(i) } else { None }).collect();
    let load = insts.iter().find(|i| i.op == Opcode::Ld && i.space() == Some(Space::Global)).unwrap();
    assert_eq!((load.vector(), load.types().next()), (4, Some(Type::F32)));
    assert!(load.has("nc") && matches!(&load.operands[0], Operand::Vector(v) if v.len() == 4));
    let guarded = insts.iter().find(|i| i.guard.is_some()).unwrap();
    assert_eq!((guarded.op, &*guarded.guard.as_ref().unwrap().pred), (Opcode::Bra, "%p1"));
    assert_eq!((insts[0].pos.line, insts[0].pos.column), (21, 2));
}

fn error(body: &str) -> String {
    parse(&format!(".version 8.0\n.target sm_90\n.visible .entry k(.param .u64 a)\n{{\n.reg .b32 %r<4>;\n{body}\n}}\n"))
        .unwrap_err()
        .to_string()
}

#[test]
fn errors_name_line_column_and_what_was_expected() {
    for (body, why) in [
        ("add.s32 %r0, %r1, %r9;", "6:19: expected a register that is declared before this, found `%r9`"),
        ("  frob.s32 %r0;", "6:3: expected an instruction, found `frob.s32`"),
        ("add.s32 %r0, %r1 %r2;", "6:18: expected `,` or `;`, found `%r2`"),
        ("mov.b32 %r0, 0f12;", "6:14: expected a number of PTX, found `0f12`"),
        ("@%q bra X;", "6:2: expected a predicate register that is declared here, found `%q`"),
        ("ld.param.u64 %r0, [5.5];", "6:20: expected an address, found a floating-point constant"),
        (".reg .q7 %x;", "6:6: expected a type of registers, such as .b32, found `.q7`"),
        ("mov.b32 %r0, \"x\";", "6:14: expected an operand, found \"x\""),
        ("bra X", "7:1: expected `,` or `;`, found `}`"),
        // Numbers and registers that are not what they look like at first.
        ("add.s32 %r0, %r1, %r01;", "6:19: expected a register that is declared before this, found `%r01`"),
        ("add.s32 %r0, %r1, %r1.;", "6:22: expected `,` or `;`, found `.`"),
        ("add.s32 %r0, %r1, 08;", "6:19: expected a number of PTX, found `08`"),
        ("mov.b32 %r0, 0f3f80000g;", "6:14: expected a number of PTX, found `0f3f80000g`"),
        ("ld.global.u32 %r0, [%r0+4;", "6:26: expected `]` after an address, found `;`"),
        ("add.s32 %r0, , %r1;", "6:14: expected an operand, found `,`"),
        ("add.s32 %r0, %r1, ;", "6:19: expected an operand, found `;`"),
        ("mov.v2.u32 {%r0, %r1;", "6:21: expected `,` or `}`, found `;`"),
        ("ret;\n  frob;", "7:3: expected an instruction, found `frob`"),
        ("ret;\nadd.s32 %r0, %q, 1;", "7:14: expected a register that is declared before this, found `%q`"),
    ] {
        assert_eq!(error(body), why, "{body}");
    }
    assert_eq!(parse(".version 8").unwrap_err().to_string(), "1:10: expected a version, such as 8.8, found `8`");
    assert_eq!(
        parse(".entry k() { /* ").unwrap_err().to_string(),
        "1:14: expected an end of this comment, found the end of the text"
    );
    let deep = format!(".entry k() {}", "{".repeat(100_000));
    assert!(matches!(parse(&deep), Err(ParseError::TooDeep { .. })));
    let deep = format!(".global .b8 x[1] = {}", "{".repeat(100_000));
    assert!(matches!(parse(&deep), Err(ParseError::TooDeep { .. })));
}

#[test]
fn numbers_and_addresses_in_all_spellings() {
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n.global .align 8 .u64 p[2] = {generic(x)+4, x};\n.global .b32 x;\n\
                .visible .entry k()\n{\n.reg .b32 %r<4>;\n.reg .b64 %d;\nmov.u32 %r1, 0x1F;\nmov.b32 %r2, -5;\nmov.b32 %r3, 0F3f800000;\n\
                mov.u64 %d, x+8;\nld.global.u32 %r0, [ %d + -4 ];\nld.global.u32 %r0, [%d - 4];\nld.global.u32 %r0, [x+8];\nret;\n}\n";
    // The variable is declared after its use here: our module accepts that, as it stores names.
    let m = parse(text).unwrap();
    let operands: Vec<String> = m
        .functions()
        .next()
        .unwrap()
        .body
        .iter()
        .flatten()
        .filter_map(|s| match s {
            Statement::Inst(i) if i.operands.len() == 2 => Some(i.operands[1].to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(operands, ["31", "-5", "0f3f800000", "x+8", "[%d+-4]", "[%d+-4]", "[x+8]"]);
}

#[test]
fn damaged_texts_are_errors_or_modules_and_never_a_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n as u64) as usize
    };
    let pieces: [&str; 24] = [
        "{", "}", "(", ")", "[", "]", "<", ">", ",", ";", ":", "@", "!", "|", "\"", ".reg", ".b32", "%r1", "-", "/*",
        "é", "0x", "1e+", "::",
    ];
    let mut parsed = 0;
    for round in 0..4000 {
        let (name, text) = SAMPLES[round % SAMPLES.len()];
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..=next(3) {
            let at = next(bytes.len());
            match next(5) {
                0 => bytes[at] = next(256) as u8,
                1 => bytes.truncate(at),
                2 => drop(bytes.drain(at..(at + next(9)).min(bytes.len()))),
                3 => drop(bytes.splice(at..at, pieces[next(pieces.len())].bytes())),
                _ => {
                    let from = next(bytes.len());
                    let chunk = bytes[from..(from + next(40)).min(bytes.len())].to_vec();
                    drop(bytes.splice(at..at, chunk));
                }
            }
            if bytes.is_empty() {
                bytes.push(b' ');
            }
        }
        let damaged = String::from_utf8_lossy(&bytes);
        if let Ok(m) = parse(&damaged) {
            parsed += 1;
            assert_eq!(parse(&m.to_string()).as_ref(), Ok(&m), "{name}: round {round}");
        }
    }
    assert!(parsed > 100, "{parsed} of 4000 still parsed");
}
