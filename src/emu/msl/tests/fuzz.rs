//! Damaged sources: whatever the text, the answer is a library or an error with a place, never a panic.

use super::corpus::{Random, sources, with_header};
use crate::kernel::compile_here;
use crate::{Binding, Buffer, Launch, Options};

const CASES: usize = 20_000;

/// Pieces that sources are damaged with.
const PIECES: &[&str] = &[
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    ";",
    ",",
    "=",
    "*",
    "&",
    "->",
    ".",
    "::",
    "#",
    "##",
    "\"",
    "'",
    "0x",
    "1e",
    "template ",
    "typename ",
    "struct ",
    "device ",
    "threadgroup ",
    "constant ",
    "thread ",
    "kernel ",
    "const ",
    "float4",
    "int",
    "uint3",
    "half",
    "bfloat ",
    "if ",
    "for (",
    "while (1) ",
    "switch ",
    "case 1:",
    "default:",
    "return ",
    "break;",
    "[[buffer(0)]]",
    "[[",
    "]]",
    "operator",
    "this->",
    "sizeof(",
    "as_type<float>(",
    "simd_sum(",
    "#define A A A\n",
    "\n#if 1\n",
    "\n#endif\n",
    "\\\n",
    "/*",
    "//",
    "auto ",
    "enum ",
    "namespace n {",
    "using ",
    "typedef ",
    "9999999999999999999",
    "1.5h",
    ".xyzw",
    "[1000000]",
    "é",
    "\0",
    "-",
    "~",
    "!",
    "?",
    ":",
    "%",
    "<<",
    ">>",
    "++",
    "--",
    "static_assert(",
    "nullptr",
];

fn boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn damage(text: &str, random: &mut Random) -> String {
    let mut text = text.to_owned();
    for _ in 0..1 + random.below(4) {
        let from = boundary(&text, random.below(text.len() as u32 + 1) as usize);
        let to = boundary(&text, (from + random.below(12) as usize).min(text.len()));
        match random.below(5) {
            0 => text.replace_range(from..to, ""),
            1 => text.insert_str(from, PIECES[random.below(PIECES.len() as u32) as usize]),
            2 => text.replace_range(from..to, PIECES[random.below(PIECES.len() as u32) as usize]),
            3 => {
                let part = text[from..to].to_owned();
                let at = boundary(&text, random.below(text.len() as u32 + 1) as usize);
                text.insert_str(at, &part);
            }
            _ => text.truncate(if random.below(8) == 0 { from } else { text.len() }),
        }
        if text.is_empty() {
            break;
        }
    }
    text
}

#[test]
fn damaged_sources_give_errors_and_no_panics() {
    let (mut errors, mut ran) = (0, 0);
    let mut random = Random(2024);
    let sources: Vec<String> = sources().iter().map(|s| with_header(s)).collect();
    let mut work = || {
        for n in 0..CASES {
            let text = damage(&sources[n % sources.len()], &mut random);
            match compile_here(&text, &Options::default()) {
                Ok(library) => {
                    for name in library.kernel_names() {
                        // Small buffers: most end in a fault, which is fine.
                        let memory: Vec<Buffer> = (0..8).map(|_| Buffer::zeroed(256)).collect();
                        let bound: Vec<Option<Binding<'_>>> = memory.iter().map(|m| Some(Binding::buffer(m))).collect();
                        let launch = Launch {
                            max_steps: 2000,
                            threadgroup: &[64, 64],
                            ..Launch::new([1, 1, 1], [8, 1, 1], &bound)
                        };
                        let _ = library.kernel(name).unwrap().run(&launch);
                        ran += 1;
                    }
                }
                Err(error) => {
                    assert!(error.at.line >= 1 && error.at.column >= 1, "{text}\n{error}");
                    errors += 1;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let big = std::thread::Builder::new().stack_size(256 << 20).spawn_scoped(scope, &mut work).unwrap();
        big.join().expect("no panic");
    });
    assert!(errors > CASES / 2 && ran > CASES / 50, "{errors} errors, {ran} runs");
}

#[test]
fn deep_and_long_sources_end_in_an_error_or_a_library() {
    let wrap = |e: String| format!("kernel void k(device int* x) {{ x[0] = {e}; }}");
    let deep = |n: usize| wrap(format!("{}1{}", "(".repeat(n), ")".repeat(n)));
    assert!(crate::Library::compile(&deep(80), &Options::default()).is_ok());
    let error = crate::Library::compile(&deep(100_000), &Options::default()).unwrap_err();
    assert!(error.text.contains("nesting level"), "{error}");
    assert!(crate::Library::compile(&wrap(vec!["x[1]"; 5000].join(" + ")), &Options::default()).is_ok());
    let error = crate::Library::compile(&wrap(vec!["x[1]"; 50_000].join(" + ")), &Options::default()).unwrap_err();
    assert!(error.text.contains("too deep"), "{error}");
    for piece in ["{", "(", "-", "!", "if (1) ", "*", "[", "a<", "struct {", "? 1 :", "x[", "do "] {
        assert!(crate::Library::compile(&wrap(piece.repeat(20_000)), &Options::default()).is_err(), "{piece}");
    }
    let doubled: String = (0..40).map(|n| format!("#define A{} A{n} A{n}\n", n + 1)).collect();
    let error = crate::Library::compile(&format!("{doubled}#define A0 x\nA40"), &Options::default()).unwrap_err();
    assert!(error.text.contains("too many tokens"), "{error}");
    let calls: String =
        (1..40).map(|n| format!("static int f{n}(int x) {{ return f{}(x) + f{}(x); }}\n", n - 1, n - 1)).collect();
    let source =
        format!("static int f0(int x) {{ return x; }}\n{calls}kernel void k(device int* x) {{ x[0] = f39(1); }}");
    let error = crate::Library::compile(&source, &Options::default()).unwrap_err();
    assert!(error.text.contains("too large"), "{error}");
}
