//! A random program as a tree of statements: its text, and what it becomes with a part of it gone.

use std::collections::BTreeSet;
use std::fmt::Write;

/// A statement. Registers with a number of 100 or more, counters (`%c`) and masks (`%m`) are set in one place; what is
/// set elsewhere is there from the start.
#[derive(Clone, Debug)]
pub enum Node {
    /// One instruction or a few, and the registers that only this sets.
    Leaf(String, Vec<String>),
    /// Condition, the mask of the threads that enter (queried where all are together), both paths.
    If { condition: String, mask: Option<String>, yes: Vec<Node>, no: Vec<Node> },
    /// Rounds (a number, or `register & 7`), the counter, whether the test is at the end.
    Loop { rounds: String, counter: String, late: bool, body: Vec<Node> },
    /// Under this condition the loop ends, or its next round begins.
    Leave { condition: String, again: bool },
    /// A branch through a table by the low bits of a register, to two or four arms.
    Table { index: String, arms: Vec<Vec<Node>> },
    /// Parts of which each may be jumped over, into the middle of the rest.
    Ladder { conditions: Vec<String>, parts: Vec<Vec<Node>> },
}

/// A kernel, perhaps with a function that it calls.
#[derive(Clone, Debug)]
pub struct Program {
    pub body: Vec<Node>,
    pub function: Option<Vec<Node>>,
    /// Registers that the kernel stores at its end.
    pub results: Vec<String>,
    /// The kernel's name is `k` and this.
    pub number: usize,
}

/// Registers that are there from the start, by class: how many, and their type.
pub const CLASSES: &[(char, usize, &str)] = &[
    ('r', 8, "b32"),
    ('d', 4, "b64"),
    ('h', 4, "b16"),
    ('f', 4, "f32"),
    ('e', 2, "f64"),
    ('x', 2, "b32"),
    ('y', 2, "b32"),
    ('g', 2, "b16"),
    ('k', 2, "b16"),
    ('p', 4, "pred"),
];

/// Bytes that a thread has of the input and of the output.
pub const INPUT: usize = 256;
pub const OUTPUT: usize = 512;
pub const THREADS: usize = 64;

impl Node {
    /// Lists of statements inside.
    fn lists(&mut self) -> Vec<&mut Vec<Node>> {
        match self {
            Node::Leaf(..) | Node::Leave { .. } => vec![],
            Node::If { yes, no, .. } => vec![yes, no],
            Node::Loop { body, .. } => vec![body],
            Node::Table { arms: lists, .. } | Node::Ladder { parts: lists, .. } => lists.iter_mut().collect(),
        }
    }

    /// Registers that this alone sets, those of what is inside too.
    fn sets(&mut self, out: &mut Vec<String>) {
        match self {
            Node::Leaf(_, defs) => out.extend(defs.iter().cloned()),
            Node::If { mask: Some(m), .. } => out.push(m.clone()),
            Node::Loop { counter, .. } => out.push(counter.clone()),
            _ => {}
        }
        self.lists().into_iter().flatten().for_each(|n| n.sets(out));
    }

    fn rename(&mut self, gone: &BTreeSet<String>) {
        match self {
            Node::Leaf(text, _) => *text = renamed(text, gone),
            Node::If { condition, .. } | Node::Leave { condition, .. } => *condition = renamed(condition, gone),
            Node::Loop { rounds: text, .. } | Node::Table { index: text, .. } => *text = renamed(text, gone),
            Node::Ladder { conditions, .. } => conditions.iter_mut().for_each(|c| *c = renamed(c, gone)),
        }
        self.lists().into_iter().flatten().for_each(|n| n.rename(gone));
    }
}

/// The text with registers of that list in place of which one stands that is there from the start.
fn renamed(text: &str, gone: &BTreeSet<String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        let len = rest[at + 1..].find(|c: char| !c.is_ascii_alphanumeric()).map_or(rest.len(), |n| at + 1 + n);
        out += &rest[..at];
        let name = &rest[at..len];
        match name.as_bytes().get(1) {
            _ if !gone.contains(name) => out += name,
            Some(b'm') => out += "-1",
            Some(b'c') => out += "%r0",
            Some(class) => {
                let _ = write!(out, "%{}0", char::from(*class));
            }
            None => {}
        }
        rest = &rest[len..];
    }
    out + rest
}

impl Program {
    /// Every program that this one becomes when one thing of it goes, larger things first.
    pub fn smaller(&self) -> Vec<Program> {
        let mut out = vec![];
        if self.function.is_some() {
            let mut p = self.clone();
            p.function = None;
            p.each(&mut |list| list.retain(|n| !matches!(n, Node::Leaf(t, _) if t.contains("call "))));
            out.push(p);
        }
        let mut size = self.results.len() / 2;
        while size > 0 {
            for at in (0..self.results.len()).step_by(size) {
                let mut p = self.clone();
                drop(p.results.drain(at..(at + size).min(self.results.len())));
                out.push(p);
            }
            size /= 2;
        }
        let mut lists = 0;
        self.clone().each(&mut |_| lists += 1);
        let mut cuts = vec![];
        for list in 0..lists {
            let mut len = 0;
            self.clone().nth(list, &mut |l| len = l.len());
            let mut size = len;
            while size > 0 {
                cuts.extend((0..len).step_by(size).map(|at| (size, list, at)));
                size /= 2;
            }
        }
        cuts.sort_by_key(|c| std::cmp::Reverse(c.0));
        for (size, list, at) in &cuts {
            let mut p = self.clone();
            p.nth(*list, &mut |l| drop(l.drain(*at..(at + size).min(l.len()))));
            out.push(p);
        }
        for (_, list, at) in cuts.iter().filter(|c| c.0 == 1) {
            let mut ways = 0;
            self.clone().nth(*list, &mut |l| ways = l[*at].lists().len());
            for way in 0..ways {
                let mut p = self.clone();
                p.nth(*list, &mut |l| {
                    let inside = std::mem::take(l[*at].lists().swap_remove(way));
                    l.splice(*at..=*at, inside);
                });
                out.push(p);
            }
        }
        let had = self.clone().set();
        out.iter_mut().for_each(|p| p.forget(&had));
        out
    }

    /// Calls name the function of a kernel of another number.
    pub fn rename_calls(&mut self, number: usize) {
        let (old, new) = (format!("),g{},(", self.number), format!("),g{number},("));
        self.each(&mut |l| {
            for n in l {
                if let Node::Leaf(text, _) = n {
                    *text = text.replace(&old, &new);
                }
            }
        });
    }

    fn each(&mut self, f: &mut dyn FnMut(&mut Vec<Node>)) {
        fn walk(list: &mut Vec<Node>, f: &mut dyn FnMut(&mut Vec<Node>)) {
            f(list);
            list.iter_mut().flat_map(Node::lists).for_each(|l| walk(l, f));
        }
        walk(&mut self.body, f);
        if let Some(list) = &mut self.function {
            walk(list, f);
        }
    }

    fn nth(&mut self, n: usize, f: &mut dyn FnMut(&mut Vec<Node>)) {
        let mut k = 0;
        let mut done = false;
        self.each(&mut |l| {
            if k == n && !done {
                done = true;
                f(l);
            }
            k += 1;
        });
    }

    fn set(&mut self) -> BTreeSet<String> {
        let mut out = vec![];
        self.each(&mut |l| l.iter_mut().for_each(|n| n.sets(&mut out)));
        out.into_iter().collect()
    }

    /// Registers that nothing sets any more become others.
    fn forget(&mut self, had: &BTreeSet<String>) {
        let now = self.set();
        let gone: BTreeSet<String> = had.difference(&now).cloned().collect();
        self.each(&mut |l| l.iter_mut().for_each(|n| n.rename(&gone)));
        self.results.retain(|r| !gone.contains(r));
    }
}

/// Text of statements: labels are numbered, and the loop that a `Leave` belongs to is known.
struct Writer {
    text: String,
    labels: usize,
    loops: Vec<usize>,
}

impl Writer {
    fn label(&mut self) -> usize {
        self.labels += 1;
        self.labels
    }

    fn nodes(&mut self, nodes: &[Node]) {
        nodes.iter().for_each(|n| self.node(n));
    }

    fn line(&mut self, text: &str) {
        self.text += text;
        self.text.push('\n');
    }

    fn node(&mut self, node: &Node) {
        match node {
            Node::Leaf(text, _) if text.starts_with('{') => self.line(text),
            Node::Leaf(text, _) => self.line(&format!("{text};")),
            Node::If { condition, mask, yes, no } => {
                let n = self.label();
                if let Some(m) = mask {
                    self.line(&format!("vote.sync.ballot.b32 {m},{condition},-1;"));
                }
                self.line(&format!("@!{condition} bra N{n};"));
                self.nodes(yes);
                if !no.is_empty() {
                    self.line(&format!("bra E{n};"));
                }
                self.line(&format!("N{n}:"));
                if !no.is_empty() {
                    self.nodes(no);
                    self.line(&format!("E{n}:"));
                }
            }
            Node::Loop { rounds, counter, late, body } => self.rounds(rounds, counter, *late, body),
            Node::Leave { condition, again } => {
                if let Some(n) = self.loops.last() {
                    let to = if *again { 'C' } else { 'E' };
                    self.line(&format!("@{condition} bra {to}{n};"));
                }
            }
            Node::Table { index, arms } => self.table(index, arms),
            Node::Ladder { conditions, parts } => {
                let first = self.labels + 1;
                self.labels += parts.len();
                for (k, part) in parts.iter().enumerate() {
                    if let Some(c) = conditions.get(k) {
                        // Over this part, or over this and the next.
                        let to = (first + k + 1 + k % 2).min(first + parts.len() - 1);
                        self.line(&format!("@{c} bra J{to};"));
                    }
                    self.line(&format!("J{}:", first + k));
                    self.nodes(part);
                }
            }
        }
    }

    fn rounds(&mut self, rounds: &str, counter: &str, late: bool, body: &[Node]) {
        let n = self.label();
        let last = format!("%l{}", &counter[2..]);
        self.line(&format!("mov.u32 {counter},0;"));
        let limit = match rounds.starts_with('%') {
            true => {
                self.line(&format!("and.b32 {last},{rounds},7;"));
                last.as_str()
            }
            false => rounds,
        };
        self.line(&format!("L{n}:"));
        if !late {
            self.line(&format!("setp.ge.u32 %q0,{counter},{limit}; @%q0 bra E{n};"));
        }
        self.loops.push(n);
        self.nodes(body);
        self.loops.pop();
        self.line(&format!("C{n}: add.u32 {counter},{counter},1;"));
        match late {
            true => self.line(&format!("setp.lt.u32 %q0,{counter},{limit}; @%q0 bra L{n};")),
            false => self.line(&format!("bra L{n};")),
        }
        self.line(&format!("E{n}:"));
    }

    fn table(&mut self, index: &str, arms: &[Vec<Node>]) {
        let n = self.label();
        let names: Vec<String> = (0..arms.len()).map(|k| format!("A{n}_{k}")).collect();
        self.line(&format!("and.b32 %l0,{index},{};", arms.len() - 1));
        self.line(&format!("T{n}: .branchtargets {}; brx.idx %l0,T{n};", names.join(",")));
        for (name, arm) in names.iter().zip(arms) {
            self.line(&format!("{name}:"));
            self.nodes(arm);
            self.line(&format!("bra E{n};"));
        }
        self.line(&format!("E{n}:"));
    }
}

/// Declarations of all registers that the statements may name.
fn declarations() -> String {
    let mut text = String::from(
        ".reg .b16 %j; .reg .b32 %t,%n,%s,%v,%c<200>,%m<200>,%l<200>; .reg .b64 %i,%o,%a,%w,%u<4>; .reg .f32 %z; .reg .pred %q<8>;\n",
    );
    for (class, _, ty) in CLASSES {
        let _ = writeln!(text, ".reg .{ty} %{class}<999>;");
    }
    text
}

/// A float's bits where it is a number, else those of one NaN: which of them is not specified by PTX.
fn stored(k: usize, register: &str) -> String {
    let at = 64 + 8 * k;
    let float = "setp.nan.f32 %q1,%f998,%f998; mov.b32 %r998,%f998; selp.b32 %r998,0x7fffffff,%r998,%q1;";
    let half = |ty: &str| {
        format!(
            "mov.b32 {{%g998,%g997}},{register}; cvt.f32.{ty} %f998,%g998; {float} st.global.b32 [%o+{at}],%r998; cvt.f32.{ty} %f998,%g997; {float} st.global.b32 [%o+{}],%r998;",
            at + 4
        )
    };
    match &register[1..2] {
        "d" => format!("st.global.b64 [%o+{at}],{register};"),
        "h" => format!("st.global.b16 [%o+{at}],{register};"),
        "f" => format!("mov.b32 %f998,{register}; {float} st.global.b32 [%o+{at}],%r998;"),
        "e" => format!(
            "setp.nan.f64 %q1,{register},{register}; mov.b64 %d998,{register}; selp.b64 %d998,0x7fffffffffffffff,%d998,%q1; st.global.b64 [%o+{at}],%d998;"
        ),
        "x" => half("f16"),
        "y" => half("bf16"),
        "g" => format!("cvt.f32.f16 %f998,{register}; {float} st.global.b32 [%o+{at}],%r998;"),
        "k" => format!("cvt.f32.bf16 %f998,{register}; {float} st.global.b32 [%o+{at}],%r998;"),
        "p" => format!("selp.b32 %r998,1,2,{register}; st.global.b32 [%o+{at}],%r998;"),
        _ => format!("st.global.b32 [%o+{at}],{register};"),
    }
}

/// Results that a kernel can store.
pub const RESULTS: usize = (OUTPUT - 64) / 8;

const PREPARE: &str = "mov.u32 %t,%tid.x; ld.param.u64 %i,[a]; ld.param.u64 %a,[b]; ld.param.u32 %n,[c]; cvt.u16.u32 %j,%n; ld.param.u64 %w,[d]; ld.param.f32 %z,[e];
mul.wide.u32 %u0,%t,256; add.s64 %i,%i,%u0; mul.wide.u32 %u0,%t,512; add.s64 %o,%a,%u0; add.s64 %a,%a,32768;
ld.global.v4.b32 {%r0,%r1,%r2,%r3},[%i]; ld.global.v4.b32 {%r4,%r5,%r6,%r7},[%i+16]; ld.global.v2.b64 {%d0,%d1},[%i+32];
ld.global.v2.b64 {%d2,%d3},[%i+48]; ld.global.v4.b16 {%h0,%h1,%h2,%h3},[%i+64]; ld.global.v4.f32 {%f0,%f1,%f2,%f3},[%i+80];
ld.global.v2.f64 {%e0,%e1},[%i+96]; ld.global.v2.b32 {%x0,%x1},[%i+112]; ld.global.v2.b32 {%y0,%y1},[%i+120];
ld.global.v2.b16 {%g0,%g1},[%i+128]; ld.global.v2.b16 {%k0,%k1},[%i+132];
setp.lt.s32 %p0,%r0,%r1; setp.gt.u32 %p1,%r2,%r3; setp.lt.u32 %p2,%t,40; setp.ne.s32 %p3,%r4,0;
mov.u32 %s,own; mad.lo.u32 %s,%t,64,%s; mov.u32 %v,acc; setp.lt.u32 %q0,%t,16; mad.lo.u32 %r998,%t,4,%v; @%q0 st.shared.b32 [%r998],%t;
st.shared.v4.b32 [%s],{%r0,%r1,%r2,%r3}; st.shared.v4.b32 [%s+16],{%r4,%r5,%r6,%r7}; st.shared.v2.b64 [%s+32],{%d0,%d1}; st.shared.v2.b64 [%s+48],{%d2,%d3};
st.local.v4.b32 [loc],{%r4,%r5,%r6,%r7}; st.local.v4.b32 [loc+16],{%r0,%r1,%r2,%r3}; st.local.v2.b64 [loc+32],{%d2,%d3}; st.local.v2.b64 [loc+48],{%d0,%d1};
bar.sync 0;
";

const PREPARE_FUNCTION: &str = "ld.param.b32 %n,[c]; cvt.u16.u32 %j,%n; ld.param.b64 %w,[d]; ld.param.f32 %z,[e]; mov.b64 {%r0,%r1},%w; mov.b32 %r2,%n; xor.b32 %r3,%r0,%n; add.s32 %r4,%r1,%n;
not.b32 %r5,%n; shr.u32 %r6,%n,7; mov.b32 %r7,%r1; mov.b64 %d0,%w; cvt.s64.s32 %d1,%n; add.s64 %d2,%d0,%d1; not.b64 %d3,%w;
mov.b32 {%h0,%h1},%n; mov.b32 {%h2,%h3},%r0; mov.b32 %f0,%z; cvt.rn.f32.s32 %f1,%n; neg.f32 %f2,%z; mov.f32 %f3,0f3f000000;
cvt.f64.f32 %e0,%z; cvt.rn.f64.s32 %e1,%n; mov.b32 %x0,%n; mov.b32 %x1,%r0; mov.b32 %y0,%n; mov.b32 %y1,%r1; mov.b16 %g0,%h0; mov.b16 %g1,%h1; mov.b16 %k0,%h2; mov.b16 %k1,%h3;
setp.lt.s32 %p0,%r0,%r1; setp.gt.u32 %p1,%r2,%r3; setp.lt.u32 %p2,%n,40; setp.ne.s32 %p3,%r4,0;
";

impl Program {
    /// The kernel's text, after that of its function.
    pub fn text(&self) -> String {
        let k = self.number;
        let mut w = Writer { text: String::new(), labels: 0, loops: vec![] };
        if let Some(body) = &self.function {
            let _ = writeln!(
                w.text,
                ".func (.param .b32 q) g{k}(.param .b32 c,.param .b64 d,.param .b32 e)\n{{\n{}",
                declarations()
            );
            w.text += PREPARE_FUNCTION;
            w.nodes(body);
            w.line("xor.b32 %r998,%r0,%r1; add.s32 %r998,%r998,%r2; st.param.b32 [q],%r998; ret;\n}");
        }
        let _ = writeln!(
            w.text,
            ".visible .entry k{k}(.param .u64 a,.param .u64 b,.param .u32 c,.param .u64 d,.param .f32 e)\n{{\n{}\
            .shared .align 16 .b8 sm[256]; .shared .align 16 .b8 own[4096]; .shared .align 8 .b8 acc[64]; .local .align 16 .b8 loc[64];",
            declarations()
        );
        w.text += PREPARE;
        w.nodes(&self.body);
        self.results.iter().take(RESULTS).enumerate().for_each(|(k, r)| w.line(&stored(k, r)));
        w.line(
            "bar.sync 0; setp.lt.u32 %q0,%t,16; @!%q0 bra X; mad.lo.u32 %r998,%t,4,%v; ld.shared.b32 %r997,[%r998];",
        );
        w.line("mul.wide.u32 %u0,%t,4; add.s64 %u0,%u0,%a; st.global.b32 [%u0+128],%r997; X: ret;\n}");
        w.text
    }
}

/// The text before the kernels.
pub fn head(chip: &str) -> String {
    format!(".version 8.8\n.target {chip}\n.address_size 64\n{TABLE}")
}

const TABLE: &str = ".const .align 8 .b32 tab[16] = {1,2,4294967295,2147483648,5,77,1065353216,3212836864,9,10,255,65535,13,14,2147483647,16};\n";
