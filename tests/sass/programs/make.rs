//! Random programs by seed.

use super::templates as t;
use super::tree::{CLASSES, Node, Program};
use crate::compiled::Random;
use std::fmt::Write;

/// What surrounds the statement to be made.
#[derive(Clone)]
struct Place {
    /// All threads of the block are here together; the mask of those that are, where it is known.
    together: bool,
    mask: Option<String>,
    depth: usize,
    loops: usize,
    in_loop: bool,
    in_function: bool,
}

struct Maker {
    /// The chip's number.
    sm: u32,
    random: Random,
    /// Registers that are set in one place, by class, and can be read here.
    seen: Vec<(char, String)>,
    /// Registers that hold a signed part of a word, or a half's absolute value, which ptxas converts by their sign,
    /// whatever it is told.
    signed: Vec<String>,
    /// Registers that `set` has set, which ptxas takes as integers also where they have become floats.
    truths: Vec<String>,
    number: usize,
    special: usize,
    calls: Option<usize>,
    left: usize,
}

/// A program for a chip by its seed; `statements` is about how many it has.
pub fn program(sm: u32, seed: u64, number: usize, statements: usize) -> Program {
    let state = (seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(number as u64);
    let state = (state ^ state >> 31).wrapping_mul(0x94d0_49bb_1331_11eb) | 1;
    let mut m = Maker::new(sm, state);
    (0..8).for_each(|_| _ = m.random.below(2));
    let outer = Place { together: true, mask: None, depth: 0, loops: 0, in_loop: false, in_function: false };
    let function = m.one_in(3).then(|| {
        m.left = 12;
        m.list(&Place { together: false, in_function: true, ..outer.clone() }, 12)
    });
    m.seen.clear();
    m.calls = function.as_ref().map(|_| number);
    m.left = statements;
    let body = m.list(&outer, statements);
    let mut results: Vec<String> = vec![];
    for (class, count, _) in CLASSES {
        results.extend((0..*count).map(|k| format!("%{class}{k}")));
    }
    results.extend(m.seen.iter().rev().take(18).map(|s| s.1.clone()));
    Program { body, function, results, number }
}

/// One program for each template that the chip has, of a few statements of it.
pub fn one_each(sm: u32, seed: u64) -> Vec<Program> {
    let lists =
        [t::WORD, t::WIDE, t::SHORT, t::FLOAT, t::DOUBLE, t::HALF, t::TRUTH, t::LEAVE, t::WARP, t::BLOCK, t::ATOMIC];
    let place = Place { together: true, mask: None, depth: 0, loops: 0, in_loop: false, in_function: false };
    let one = |(number, text): (usize, &&str)| {
        let mut m = Maker::new(sm, seed + 77 * number as u64);
        let body = (0..3).map(|_| m.filled(text, &place)).collect();
        let fixed = CLASSES.iter().flat_map(|(class, count, _)| (0..*count).map(move |k| format!("%{class}{k}")));
        let results = fixed.chain(m.seen.iter().rev().take(18).map(|s| s.1.clone())).collect();
        Program { body, function: None, results, number }
    };
    lists.into_iter().flatten().enumerate().map(one).collect()
}

impl Maker {
    fn new(sm: u32, state: u64) -> Maker {
        Maker {
            sm,
            random: Random(state),
            seen: vec![],
            signed: vec![],
            truths: vec![],
            number: 100,
            special: 1,
            calls: None,
            left: 0,
        }
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.random.below(n) == 0
    }

    fn fresh(&mut self, class: char) -> String {
        self.number += 1;
        format!("%{class}{}", self.number)
    }

    fn list(&mut self, place: &Place, most: usize) -> Vec<Node> {
        let mark = self.seen.len();
        let mut out = vec![];
        for _ in 0..most {
            if self.left == 0 || self.number > 900 {
                break;
            }
            out.push(self.node(place));
        }
        if place.depth > 0 {
            self.seen.truncate(mark);
        }
        out
    }

    fn node(&mut self, place: &Place) -> Node {
        self.left = self.left.saturating_sub(1);
        if place.depth < 4 && self.one_in(7) {
            return self.block(place);
        }
        if place.in_loop && self.one_in(12) {
            return Node::Leave { condition: self.register('p'), again: self.one_in(2) };
        }
        self.leaf(place)
    }

    fn block(&mut self, place: &Place) -> Node {
        let inner = |mask| Place { together: false, mask, depth: place.depth + 1, ..place.clone() };
        let len = 1 + self.random.below(8);
        match self.random.below(10) {
            0..4 => {
                let condition = self.register('p');
                let mask = (place.together && !place.in_function && self.one_in(2)).then(|| {
                    self.special += 1;
                    format!("%m{}", self.special)
                });
                let yes = self.list(&inner(mask.clone()), len);
                let no = if self.one_in(2) { self.list(&inner(None), len) } else { vec![] };
                Node::If { condition, mask, yes, no }
            }
            4..7 if place.loops < 2 && self.special < 190 => {
                self.special += 1;
                let counter = format!("%c{}", self.special);
                let even = self.one_in(2);
                let rounds = match even {
                    true => format!("{}", 1 + self.random.below(6)),
                    false => self.register('r'),
                };
                let together = place.together && even && self.one_in(2);
                let place = Place { together, loops: place.loops + 1, in_loop: !together, ..inner(None) };
                self.seen.push(('r', counter.clone()));
                let body = self.list(&place, len);
                self.seen.pop();
                Node::Loop { rounds, counter, late: self.one_in(2), body }
            }
            4..=7 => {
                let arms = if self.one_in(2) { 2 } else { 4 };
                let index = self.register('r');
                let arms = (0..arms).map(|_| self.list(&inner(None), len)).collect();
                Node::Table { index, arms }
            }
            _ => {
                let parts = 2 + self.random.below(3);
                let conditions = (1..parts).map(|_| self.register('p')).collect();
                // A part may be left out, so that what it sets is not there behind it.
                let parts = (0..parts).map(|_| self.list(&inner(None), len)).collect();
                Node::Ladder { conditions, parts }
            }
        }
    }

    fn leaf(&mut self, place: &Place) -> Node {
        if place.together && self.one_in(9) {
            let text = self.random.of(t::BLOCK);
            return self.filled(text, place);
        }
        if (place.together || place.mask.is_some()) && self.one_in(7) {
            let text = self.random.of(t::WARP);
            return self.filled(text, place);
        }
        if !place.in_function && self.one_in(6) {
            return self.memory(place);
        }
        if !place.in_function && self.one_in(15) {
            let text = self.random.of(t::ATOMIC);
            return self.filled(text, place);
        }
        if let (Some(k), true) = (self.calls, self.one_in(20)) {
            let text = format!(
                "{{ .param .b32 pc; .param .b64 pd; .param .b32 pe; .param .b32 pq; st.param.b32 [pc],$=r; st.param.b64 [pd],$=d; \
                st.param.f32 [pe],$=f; call (pq),g{k},(pc,pd,pe); ld.param.b32 $R,[pq]; }}"
            );
            return self.filled(&text, place);
        }
        let list = match self.random.below(22) {
            0..7 => t::WORD,
            7..10 => t::WIDE,
            10..12 => t::SHORT,
            12..15 => t::FLOAT,
            15..17 => t::DOUBLE,
            17..19 => t::HALF,
            19..21 => t::TRUTH,
            _ => t::LEAVE,
        };
        let text = self.random.of(list);
        self.filled(text, place)
    }

    /// A register that is there.
    fn register(&mut self, class: char) -> String {
        let near = self.seen.iter().filter(|s| s.0 == class).count();
        if near > 0 && !self.one_in(3) {
            let back = self.random.below(near.min(8));
            if let Some(s) = self.seen.iter().rev().filter(|s| s.0 == class).nth(back) {
                return s.1.clone();
            }
        }
        if self.one_in(12) {
            match class {
                'r' => return "%n".to_owned(),
                'd' => return "%w".to_owned(),
                'f' => return "%z".to_owned(),
                _ => {}
            }
        }
        let count = CLASSES.iter().find(|c| c.0 == class).map_or(1, |c| c.1);
        format!("%{class}{}", self.random.below(count))
    }

    fn constant(&mut self, class: char) -> Option<String> {
        let any = (self.random.below(1 << 30) as u64) << 40
            ^ (self.random.below(1 << 30) as u64) << 20
            ^ self.random.below(1 << 30) as u64;
        Some(match class {
            'r' => match self.random.below(4) {
                0 => format!("{}", any % 64),
                1 => format!("-{}", any % 300),
                2 => format!("{:#x}", 1u32 << (any % 32)),
                _ => format!("{:#x}", any as u32),
            },
            'd' => match self.random.below(4) {
                0 => format!("{}", any % 64),
                1 => format!("-{}", any % 300),
                2 => format!("{:#x}", 1u64 << (any % 64)),
                _ => format!("{any:#x}"),
            },
            'h' => format!("{}", any % 32768),
            'f' => {
                const SPECIAL: [u32; 8] =
                    [0, 0x8000_0000, 0x7f80_0000, 0xff80_0000, 1, 0x3f80_0000, 0x7f7f_ffff, 0x0070_0000];
                let v = if any.is_multiple_of(3) {
                    SPECIAL[(any >> 9) as usize % 8]
                } else {
                    ((any % 4001) as f32 / 16.0 - 120.0).to_bits()
                };
                format!("0f{v:08x}")
            }
            'e' => format!("0d{:016x}", ((any % 4001) as f64 / 16.0 - 120.0).to_bits()),
            _ => return None,
        })
    }

    fn source(&mut self, class: char) -> String {
        if self.one_in(4)
            && let Some(c) = self.constant(class)
        {
            return c;
        }
        self.register(class)
    }

    /// A statement of a template (see `templates`).
    fn filled(&mut self, template: &str, place: &Place) -> Node {
        let mut text = self.chosen(template);
        while !t::is_there(&text, self.sm) {
            let another = self.random.of(t::WORD);
            text = self.chosen(another);
        }
        let alone = !text.contains('#') && !text.contains(';') && !text.contains("sync") && !text.contains("bar.");
        let guard = (alone && self.one_in(8)).then(|| self.register('p'));
        let (mut out, mut sources, mut fresh): (String, Vec<String>, Vec<(String, String)>) = Default::default();
        if let Some(g) = &guard {
            out = format!("@{}{g} ", if self.one_in(2) { "!" } else { "" });
        }
        let (mut made, mut hidden): (Vec<(char, String)>, Vec<String>) = Default::default();
        let touches_memory = text.contains('[');
        let by_value = ["f64.u32 ", "f32.u32 ", "f16.u32 ", "f64.u16 ", "f32.u16 ", "f16.u16 "];
        let by_value =
            by_value.iter().any(|c| text.contains(c)) || text.starts_with("cvt.sat.") && text.contains(".u32 ");
        let becomes_float = ["f64.s", "f64.u", "f32.s", "f32.u", "f16.s", "f16.u"].iter().any(|c| text.contains(c));
        let changes_sign = ["neg.", "abs.", "mul."].iter().any(|c| text.starts_with(c));
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            let digits = |rest: &mut std::iter::Peekable<std::str::Chars>| {
                let mut n = 0;
                while let Some(d) = rest.peek().and_then(|c| c.to_digit(10)) {
                    n = 10 * n + d as usize;
                    rest.next();
                }
                n
            };
            match c {
                '$' => {
                    let only = rest.next_if_eq(&'=').is_some();
                    let Some(class) = rest.next() else { break };
                    if class.is_ascii_uppercase() {
                        let class = class.to_ascii_lowercase();
                        let fixed = guard.is_some() || self.one_in(2);
                        let d = if fixed { self.fixed(class) } else { self.fresh(class) };
                        if !fixed {
                            made.push((class, d.clone()));
                        }
                        out += &d;
                        continue;
                    }
                    let s = match class {
                        's' if self.one_in(3) => self.register('r'),
                        's' => format!("{}", self.random.below(36)),
                        class if only => {
                            self.register_but(class, by_value, becomes_float || changes_sign && class == 'f')
                        }
                        'f' if changes_sign => self.register_but('f', false, true),
                        class => self.source(class),
                    };
                    out += &s;
                    sources.push(s);
                }
                '#' => {
                    let Some(class) = rest.next() else { break };
                    let number = digits(&mut rest);
                    let key = format!("{class}{number}");
                    if !fresh.iter().any(|f| f.0 == key) {
                        let name = self.fresh(class);
                        // Where memory lies is for the assembler to say: no other statement sees an address.
                        match touches_memory && number < 10 {
                            true => hidden.push(name.clone()),
                            false => made.push((class, name.clone())),
                        }
                        fresh.push((key.clone(), name));
                    }
                    out.extend(fresh.iter().filter(|f| f.0 == key).map(|f| f.1.as_str()));
                }
                '&' => {
                    let k = digits(&mut rest);
                    out += sources.get(k).map_or("%r0", String::as_str);
                }
                '~' | '^' => {
                    let below = digits(&mut rest);
                    let n = self.random.below(below) + usize::from(c == '^');
                    let by = if rest.next_if_eq(&'*').is_some() { 4 } else { 1 };
                    let _ = write!(out, "{}", by * n);
                }
                c => out.push(c),
            }
        }
        let out = match out.split_once("ACC[") {
            Some((before, after)) if before.contains("atom") => format!("{before}_,[{after}"),
            _ => out.replace("ACC[", "["),
        };
        let out = out.replace("MASK", place.mask.as_deref().unwrap_or("-1"));
        let part = text.starts_with("bfe.s32") || text.contains("ld.") && text.contains(".v") && text.contains(".s8 ");
        let part = part || text.starts_with("abs.s16");
        if part
            || ["mov.b32 $R", "mov.b16 $H"].iter().any(|m| text.starts_with(m))
                && sources.iter().any(|s| self.signed.contains(s))
        {
            let first = out.split([' ', ',']).find(|w| w.starts_with('%'));
            self.signed.extend(made.iter().map(|m| m.1.clone()).chain(first.map(str::to_owned)));
        }
        if text.starts_with("set.") || text.starts_with("mov.") && sources.iter().any(|s| self.truths.contains(s)) {
            let first = out.split([' ', ',']).find(|w| w.starts_with('%'));
            self.truths.extend(made.iter().map(|m| m.1.clone()).chain(first.map(str::to_owned)));
        }
        self.seen.extend(made.iter().cloned());
        Node::Leaf(out, made.into_iter().map(|m| m.1).chain(hidden).collect())
    }

    /// A register that is there, and where asked for holds no signed part of a word, no result of `set`.
    fn register_but(&mut self, class: char, signed: bool, truths: bool) -> String {
        let name = self.register(class);
        let not = signed && self.signed.contains(&name) || truths && self.truths.contains(&name);
        match class {
            'f' if not => "%z".to_owned(),
            'r' if not => "%n".to_owned(),
            'h' if not => "%j".to_owned(),
            _ => name,
        }
    }

    fn fixed(&mut self, class: char) -> String {
        let count = CLASSES.iter().find(|c| c.0 == class).map_or(1, |c| c.1);
        format!("%{class}{}", self.random.below(count))
    }

    /// One alternative of each `<a|b>`.
    fn chosen(&mut self, template: &str) -> String {
        let mut out = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('<') {
            let Some((inside, behind)) = after.split_once('>') else { break };
            let ways: Vec<&str> = inside.split('|').collect();
            out += before;
            out += ways[self.random.below(ways.len())];
            rest = behind;
        }
        out + rest
    }

    /// A load or store of any width in memory that is the thread's own, of fixed or computed address.
    fn memory(&mut self, place: &Place) -> Node {
        let (space, base, wide, written) = [
            ("global", "%o", true, true),
            ("shared", "%s", false, true),
            ("local", "loc", false, true),
            ("global", "%i", true, false),
            ("global.nc", "%i", true, false),
            ("", "%o", true, true),
        ][self.random.below(6)];
        let (ty, class, bytes) = [
            ("u8", 'r', 1),
            ("s8", 'r', 1),
            ("u16", 'r', 2),
            ("s16", 'r', 2),
            ("b16", 'h', 2),
            ("u8", 'h', 1),
            ("b32", 'r', 4),
            ("b32", 'r', 4),
            ("b64", 'd', 8),
            ("f32", 'f', 4),
            ("f64", 'e', 8),
        ][self.random.below(11)];
        let lanes = [1, 1, 2, 4][self.random.below(if bytes == 8 { 3 } else { 4 })];
        let whole = bytes * lanes;
        let store = written && !ty.starts_with('f') && self.one_in(2);
        let spaced = if space.is_empty() { String::new() } else { format!(".{space}") };
        let vector = if lanes > 1 { format!(".v{lanes}") } else { String::new() };
        let ty = if store { ty.replace('s', "u") } else { ty.to_owned() };
        let offset = whole * self.random.below(32 / whole);
        let near = whole * self.random.below(32 / whole);
        let mask = (31 / whole) * whole;
        let (before, address) = match self.random.below(4) {
            0 | 1 => (String::new(), format!("{base}+{}", offset + near)),
            2 if wide => (
                format!("and.b32 #r1,$=r,{mask}; cvt.u64.u32 #d1,#r1; add.s64 #d2,{base},#d1; "),
                format!("#d2+{offset}"),
            ),
            _ if wide => (
                format!("and.b32 #r1,$=r,{}; mad.wide.u32 #d2,#r1,{whole},{base}; ", 31 / whole),
                format!("#d2+{offset}"),
            ),
            _ if base == "loc" => {
                (format!("and.b32 #r1,$=r,{mask}; mov.u32 #r2,loc; add.u32 #r3,#r2,#r1; "), format!("#r3+{offset}"))
            }
            _ => (format!("and.b32 #r1,$=r,{mask}; add.u32 #r3,#r1,{base}; "), format!("#r3+{offset}")),
        };
        let operand = |letter: String| match lanes {
            1 => letter,
            n => format!("{{{}}}", vec![letter; n].join(",")),
        };
        let text = match store {
            true => format!("{before}st{spaced}{vector}.{ty} [{address}],{}", operand(format!("$={class}"))),
            false => {
                let upper = class.to_ascii_uppercase();
                // No register twice in one result.
                let names: Vec<String> = (0..lanes).map(|k| format!("#{class}{}", 11 + k)).collect();
                let to = if lanes == 1 { format!("${upper}") } else { format!("{{{}}}", names.join(",")) };
                format!("{before}ld{spaced}{vector}.{ty} {to},[{address}]")
            }
        };
        self.filled(&text, place)
    }
}
