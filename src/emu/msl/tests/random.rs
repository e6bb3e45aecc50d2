//! Random expressions over the scalar and vector types: the same values here and from code that clang compiles.
//!
//! Left out, since their values are not defined or not the same everywhere: division by zero, shifts by the width,
//! floats that do not fit an integer, the payload of a NaN.

use super::clang::{Entry, Program, present};
use super::corpus::{Random, floats, i32s, with_header};
use crate::{Binding, Buffer, Launch, Library, Options};
use std::fmt::Write;

const INTS: [&str; 8] = ["char", "uchar", "short", "ushort", "int", "uint", "long", "ulong"];
const VALUES: usize = 8;
const THREADS: usize = 64;

struct Writer {
    random: Random,
    body: String,
    longs: usize,
    floats: usize,
}

impl Writer {
    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.random.below(list.len() as u32) as usize]
    }

    fn digit(&mut self) -> u32 {
        self.random.below(3)
    }

    /// An integer expression of the type that it happens to have.
    fn int(&mut self, depth: u32) -> String {
        let choice = if depth == 0 { self.random.below(3) } else { 3 + self.random.below(13) };
        match choice {
            0 | 1 => format!("{}{}", self.pick(&["c", "uc", "s", "us", "a", "u", "l", "ul", "b"]), self.digit()),
            2 => {
                let n = self.random.below(1000);
                self.pick(&["3", "-7", "0x7fffffff", "0xffffffffu", "1l", "5ul", "'a'", "true"]).to_owned()
                    + &format!(" + {n}")
            }
            3..=7 => {
                let op = self.pick(&["+", "-", "*", "&", "|", "^"]);
                format!("(({}) {op} ({}))", self.int(depth - 1), self.int(depth - 1))
            }
            8 => {
                let op = self.pick(&["/", "%"]);
                format!("(({}) {op} ((({}) & 15) | 1))", self.int(depth - 1), self.int(depth - 1))
            }
            9 => {
                let op = self.pick(&["<<", ">>"]);
                format!("(({}) {op} (({}) & 7))", self.int(depth - 1), self.int(depth - 1))
            }
            10 => {
                let op = self.pick(&["<", "<=", ">", ">=", "==", "!="]);
                format!("(({}) {op} ({}))", self.int(depth - 1), self.int(depth - 1))
            }
            11 => format!("({})({})", self.pick(&INTS), self.int(depth - 1)),
            12 => format!("{}({})", self.pick(&["-", "~", "+", "!"]), self.int(depth - 1)),
            13 => format!("(({}) ? ({}) : ({}))", self.int(depth - 1), self.int(depth - 1), self.int(depth - 1)),
            14 => {
                let to = self.pick(&["int", "long", "short", "uchar"]);
                let limit = if to == "uchar" { "0.0f, 200.0f" } else { "-30000.0f, 30000.0f" };
                format!("({to})clamp((float)({}), {limit})", self.float(depth - 1))
            }
            _ => {
                let op = self.pick(&["&&", "||"]);
                format!("(({}) {op} ({}))", self.int(depth - 1), self.float_test(depth - 1))
            }
        }
    }

    fn float_test(&mut self, depth: u32) -> String {
        let op = self.pick(&["<", "<=", ">", ">=", "==", "!="]);
        format!("(({}) {op} ({}))", self.float(depth), self.float(depth))
    }

    /// A float or half expression.
    fn float(&mut self, depth: u32) -> String {
        let choice = if depth == 0 { self.random.below(3) } else { 3 + self.random.below(8) };
        match choice {
            0 | 1 => format!("{}{}", self.pick(&["f", "h"]), self.digit()),
            2 => self.pick(&["1.5f", "-0.25f", "half(3.0f)", "1e-3f", "half(0.1f)"]).to_owned(),
            3..=5 => {
                let op = self.pick(&["+", "-", "*", "/"]);
                format!("(({}) {op} ({}))", self.float(depth - 1), self.float(depth - 1))
            }
            6 => {
                let op = self.pick(&["+", "-", "*"]);
                format!("(({}) {op} ({}))", self.float(depth - 1), self.int(depth - 1))
            }
            7 => format!("-({})", self.float(depth - 1)),
            8 => format!("({})({})", self.pick(&["half", "float"]), self.int(depth - 1)),
            9 => format!("(({}) ? ({}) : ({}))", self.int(depth - 1), self.float(depth - 1), self.float(depth - 1)),
            _ => {
                let f = self.pick(&["fabs", "floor", "ceil", "trunc", "rint", "sqrt", "round"]);
                format!("{f}((float)({}))", self.float(depth - 1))
            }
        }
    }

    /// A vector expression of exactly a type.
    fn vector(&mut self, of: &str, n: u32, depth: u32) -> String {
        let floating = matches!(of, "float" | "half");
        let ty = format!("{of}{n}");
        if depth == 0 {
            return format!("v_{ty}_{}", self.random.below(2));
        }
        let d = depth - 1;
        match self.random.below(11) {
            0 | 1 => {
                let op =
                    if floating { self.pick(&["+", "-", "*"]) } else { self.pick(&["+", "-", "*", "&", "|", "^"]) };
                format!("({} {op} {})", self.vector(of, n, d), self.vector(of, n, d))
            }
            2 => format!("({} * ({of})({}))", self.vector(of, n, d), self.int(d.min(1))),
            3 if floating => format!("({} / {})", self.vector(of, n, d), self.vector(of, n, d)),
            3 => {
                let op = self.pick(&["/", "%"]);
                format!("({} {op} (({} & ({of})7) | ({of})1))", self.vector(of, n, d), self.vector(of, n, d))
            }
            4 if !floating => {
                let op = self.pick(&["<<", ">>"]);
                format!("({} {op} ({} & ({of})7))", self.vector(of, n, d), self.vector(of, n, d))
            }
            4 => format!("floor({})", self.vector(of, n, d)),
            5 => format!(
                "({}).{}",
                self.vector(of, n, d),
                if n == 2 { "yx" } else { self.pick(&["wzyx", "xxyy", "zwxy"]) }
            ),
            6 if n == 4 => format!(
                "{ty}({}, ({of})({}), ({}).y)",
                self.vector(of, 2, d),
                self.int(d.min(1)),
                self.vector(of, 2, d)
            ),
            6 => format!("{ty}(({of})({}), ({}).x)", self.int(d.min(1)), self.vector(of, 4, d)),
            7 => {
                let from = self.pick(&["char", "uchar", "short", "ushort", "int", "uint", "long", "ulong"]);
                format!("{ty}({})", self.vector(from, n, d))
            }
            8 => {
                let op = self.pick(&["<", ">=", "==", "!="]);
                let (a, b) = (self.vector(of, n, d), self.vector(of, n, d));
                format!("select({a}, {b}, {} {op} {})", self.vector(of, n, d.min(1)), self.vector(of, n, d.min(1)))
            }
            9 if floating => format!("(-{})", self.vector(of, n, d)),
            9 => {
                let f = self.pick(&["min", "max", "addsat", "subsat", "mulhi", "rotate", "absdiff", "hadd", "rhadd"]);
                let wide = matches!(of, "long" | "ulong") && matches!(f, "absdiff" | "hadd" | "rhadd");
                let f = if wide { "max" } else { f };
                format!("{f}({}, {})", self.vector(of, n, d), self.vector(of, n, d))
            }
            _ if floating => format!("fabs({})", self.vector(of, n, d)),
            _ => {
                let f = self.pick(&["popcount", "clz", "ctz", "reverse_bits", "~", "-"]);
                format!("{f}({})", self.vector(of, n, d))
            }
        }
    }

    fn statement(&mut self) {
        let n = self.longs + self.floats;
        match self.random.below(3) {
            0 => {
                let e = self.int(3);
                let _ = writeln!(self.body, "  {{ auto t = {e}; lo[{}] = (long)t; }}", self.longs);
                self.longs += 1;
            }
            1 => {
                let e = self.float(3);
                let _ = writeln!(self.body, "  {{ auto t = {e}; fo[{}] = (float)t; }}", self.floats);
                self.floats += 1;
            }
            _ => {
                let of =
                    self.pick(&["char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "float", "half"]);
                let lanes = if n.is_multiple_of(2) { 2 } else { 4 };
                let e = self.vector(of, lanes, 3);
                let _ = write!(self.body, "  {{ {of}{lanes} t = {e};");
                for lane in &["x", "y", "z", "w"][..lanes as usize] {
                    if matches!(of, "float" | "half") {
                        let _ = write!(self.body, " fo[{}] = (float)t.{lane};", self.floats);
                        self.floats += 1;
                    } else {
                        let _ = write!(self.body, " lo[{}] = (long)t.{lane};", self.longs);
                        self.longs += 1;
                    }
                }
                self.body.push_str(" }\n");
            }
        }
    }

    /// Lanes of a vector assigned to others of the same one.
    fn lanes(&mut self) {
        let of = self.pick(&["int", "uint", "float", "half", "short", "long"]);
        let name = format!("m_{of}");
        let mut line = String::from("  {");
        for _ in 0..4 {
            let (to, from) = match self.random.below(3) {
                0 => (self.pick(&["x", "y", "z", "w"]), self.pick(&["x", "y", "z", "w"])),
                1 => (self.pick(&["xy", "yz", "zw", "wx", "zx"]), self.pick(&["xy", "yz", "zw", "xx", "wy"])),
                _ => (self.pick(&["xyz", "yzw", "wzx"]), self.pick(&["xyz", "yzw", "zzx", "wxy"])),
            };
            let op = self.pick(&["=", "=", "+=", "-=", "*="]);
            let more = if self.random.below(2) == 0 { format!(" + {name}.{from}") } else { String::new() };
            let _ = write!(line, " {name}.{to} {op} {name}.{from}{more};");
        }
        for lane in ["x", "y", "z", "w"] {
            if matches!(of, "float" | "half") {
                let _ = write!(line, " fo[{}] = (float){name}.{lane};", self.floats);
                self.floats += 1;
            } else {
                let _ = write!(line, " lo[{}] = (long){name}.{lane};", self.longs);
                self.longs += 1;
            }
        }
        let _ = writeln!(self.body, "{line} }}");
    }

    /// Statements that change three integers, with branches, loops and early ends.
    fn block(&mut self, depth: u32, in_loop: bool, indent: usize) -> String {
        let mut out = String::new();
        let pad = " ".repeat(indent);
        for _ in 0..2 + self.random.below(2) {
            let (a, b, n) = (self.digit(), self.digit(), self.random.below(90) + 1);
            let test =
                format!("((r{a} ^ p) % {} {} {})", n % 7 + 2, self.pick(&["==", "!=", "<"]), self.random.below(3));
            let choice = if depth == 0 { self.random.below(3) } else { self.random.below(9) };
            let inner = depth.saturating_sub(1);
            let part = match choice {
                0 => format!("r{a} += r{b} * {n} + k;"),
                1 => format!("r{a} ^= (r{b} >> 3) + p;"),
                2 if in_loop => format!("if {test} {};", self.pick(&["break", "continue", "break", "return r0 - r1"])),
                2 => format!("if {test} return r{b};"),
                3 | 4 => {
                    let (yes, no) = (self.block(inner, in_loop, indent + 2), self.block(inner, in_loop, indent + 2));
                    format!("if {test} {{\n{yes}{pad}}} else {{\n{no}{pad}}}")
                }
                5 => {
                    let body = self.block(inner, true, indent + 2);
                    format!("for (int k = 0; k < (int)((uint)r{a} % 6); k++) {{\n{body}{pad}}}")
                }
                6 => {
                    let body = self.block(inner, true, indent + 2);
                    format!("{{ int k = (r{a} & 3) + 1; while (k-- > 0) {{\n{body}{pad}}} }}")
                }
                7 => {
                    let body = self.block(inner, true, indent + 2);
                    format!("{{ int k = 0; do {{\n{body}{pad}}} while (++k < (r{b} & 3)); }}")
                }
                _ => {
                    let cases: Vec<String> = (0..3).map(|_| self.block(inner, in_loop, indent + 4)).collect();
                    let last = self.pick(&["break;", ""]);
                    format!(
                        "switch ((r{a} + p) & 3) {{\n{pad}  case 0: {{\n{}{pad}  }} {last}\n{pad}  default: {{\n{}{pad}  }} break;\n{pad}  case 2: {{\n{}{pad}  }}\n{pad}}}",
                        cases[0], cases[1], cases[2]
                    )
                }
            };
            let _ = writeln!(out, "{pad}{part}");
        }
        out
    }

    /// Variables of every type from a thread's numbers.
    fn variables() -> String {
        let mut out = String::new();
        for n in 0..3 {
            let _ = writeln!(
                out,
                "  int a{n} = x[{n}]; uint u{n} = x[{n} + 1]; char c{n} = (char)x[{n} + 2]; uchar uc{n} = (uchar)x[{n}];"
            );
            let _ = writeln!(
                out,
                "  short s{n} = (short)x[{n} + 3]; ushort us{n} = (ushort)x[{n} + 1]; bool b{n} = x[{n}] & 1;"
            );
            let _ = writeln!(
                out,
                "  long l{n} = (long)x[{n}] * 0x100000001l + x[3]; ulong ul{n} = (ulong)l{n} ^ 0x8000000000000001ul;"
            );
            let _ = writeln!(
                out,
                "  float f{n} = (float)x[{n}] * 0.0000152587890625f; half h{n} = half((float)x[{n} + 2] * 0.000030517578125f);"
            );
        }
        for of in INTS.iter().chain(&["float", "half"]) {
            for lanes in [2, 4] {
                for n in 0..2 {
                    let part = |k: usize| {
                        let from = format!("x[{}]", (k + n) % 6);
                        match *of {
                            "float" => format!("(float){from} * 0.001f"),
                            "half" => format!("half((float){from} * 0.00003f)"),
                            _ => format!("({of}){from}"),
                        }
                    };
                    let parts: Vec<String> = (0..lanes).map(part).collect();
                    let _ = writeln!(out, "  {of}{lanes} v_{of}{lanes}_{n} = {of}{lanes}({});", parts.join(", "));
                }
            }
            let _ = writeln!(out, "  {of}4 m_{of} = v_{of}4_0;");
        }
        out
    }
}

fn kernel(seed: u64, statements: usize) -> (String, usize, usize) {
    let mut writer = Writer { random: Random(seed), body: String::new(), longs: 0, floats: 0 };
    let mut functions = String::new();
    for n in 0..statements {
        writer.statement();
        if n % 10 == 0 {
            writer.lanes();
        }
        if n % 20 == 0 {
            let body = writer.block(4, false, 2);
            let _ = writeln!(
                functions,
                "static int flow{n}(int r0, int r1, int r2, int p) {{\n  int k = 1;\n{body}  return r0 + r1 * 3 + r2 * 5;\n}}"
            );
            let _ = writeln!(writer.body, "  lo[{}] = flow{n}(a0, a1, a2, (int)i);", writer.longs);
            writer.longs += 1;
        }
    }
    let (longs, floats) = (writer.longs, writer.floats);
    let text = format!(
        "{functions}kernel void expressions(device const int* data [[buffer(0)]], device long* los [[buffer(1)]], device float* fos [[buffer(2)]], uint i [[thread_position_in_grid]]) {{
  device const int* x = data + {VALUES} * i;
  device long* lo = los + {longs} * i;
  device float* fo = fos + {floats} * i;
{}{}}}",
        Writer::variables(),
        writer.body
    );
    (text, longs, floats)
}

fn inputs() -> Vec<u8> {
    let mut random = Random(42);
    let special = [0, 1, -1, i32::MAX, i32::MIN, 127, -128, 65535];
    let value = |_| {
        let n = random.next();
        if n.is_multiple_of(4) { special[(n >> 8) as usize % 8] } else { random.next() as i32 >> ((n >> 8) % 31) }
    };
    i32s(&(0..VALUES * THREADS).map(value).collect::<Vec<i32>>())
}

#[test]
fn random_expressions_have_the_values_that_clang_gives_them() {
    if !present() {
        return;
    }
    let kernels: Vec<(String, usize, usize)> = (0..4).map(|n| kernel(1000 + n, 200)).collect();
    let entry = |k: &'static str| Entry { source: k, function: "expressions", call: "expressions" };
    let entries: Vec<Entry<'_>> = kernels.iter().map(|k| entry(Box::leak(k.0.clone().into_boxed_str()))).collect();
    let program = Program::compile("random", &entries);
    for (n, (source, longs, floats_each)) in kernels.iter().enumerate() {
        let buffers = vec![inputs(), vec![0; longs * THREADS * 8], vec![0; floats_each * THREADS * 4]];
        let theirs = program.run(n, ([2, 1, 1], [32, 1, 1]), &buffers, &[]);
        let library = match Library::compile(&with_header(source), &Options::default()) {
            Ok(library) => library,
            Err(error) => panic!("{error}"),
        };
        let memory: Vec<Buffer> = buffers.iter().map(|b| Buffer::new(b)).collect();
        let bound: Vec<Option<Binding<'_>>> = memory.iter().map(|m| Some(Binding::buffer(m))).collect();
        library.kernel("expressions").unwrap().run(&Launch::new([2, 1, 1], [32, 1, 1], &bound)).unwrap();
        let line = |store: String| source.lines().find(|l| l.contains(&store)).unwrap_or("").trim().to_owned();
        let ours = memory[1].to_bytes();
        if let Some(at) = ours.chunks(8).zip(theirs[1].chunks(8)).position(|(a, b)| a != b) {
            let [a, b] = [&ours, &theirs[1]].map(|m| i64::from_le_bytes(m[8 * at..8 * at + 8].try_into().unwrap()));
            panic!("thread {}: {a} here, {b} by clang: {}", at / longs, line(format!("lo[{}] =", at % longs)));
        }
        let (ours, theirs) = (memory[2].to_f32(), floats(&theirs[2]));
        let differs = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan());
        if let Some(at) = ours.iter().zip(&theirs).position(differs) {
            let (a, b) = (ours[at], theirs[at]);
            panic!(
                "thread {}: {a} here, {b} by clang: {}",
                at / floats_each,
                line(format!("fo[{}] =", at % floats_each))
            );
        }
    }
}
