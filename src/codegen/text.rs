//! A program as C-like text, printed by DEBUG=4. It is meant for reading; nothing parses it.

use super::Program;
use doorbell_uop::{Arg, Op, UMap, UOp, infix};
use std::fmt::Write;

impl Program {
    /// The program in C-like lines: loops are indented, one line for each value, constants and addresses inline.
    pub fn source(&self) -> String {
        let mut names: UMap<String> = UMap::default();
        let args: Vec<String> = self.params.iter().map(|p| format!("{}* data{}", p.dtype.scalar, p.slot)).collect();
        let vars = self.vars.iter().map(|v| format!("{} {}", v.dtype(), v.render()));
        let mut out =
            format!("void {}({}) {{\n", self.name, args.into_iter().chain(vars).collect::<Vec<_>>().join(", "));
        let mut depth = 1;
        for u in &self.uops {
            let text = |k: usize| u.src().get(k).map_or_else(String::new, |s| named(s, &names));
            if matches!(u.op(), Op::End | Op::EndIf) {
                depth -= 1;
            }
            let pad = "  ".repeat(depth.max(1));
            match u.op() {
                Op::Const | Op::Param | Op::Var | Op::Sink => {}
                Op::Special => {
                    names.insert(u.clone(), if let Arg::Str(name) = u.arg() { name.to_string() } else { "tid".into() });
                }
                Op::After => {
                    names.insert(u.clone(), text(0));
                }
                Op::Index => {
                    let gate = if u.src().len() > 2 { format!(" if {}", text(2)) } else { String::new() };
                    names.insert(u.clone(), format!("{}[{}{gate}]", text(0), text(1)));
                }
                Op::Range => {
                    let name = u.render();
                    let _ = writeln!(out, "{pad}for ({} {name} = 0; {name} < {}; {name}++) {{", u.dtype(), text(0));
                    names.insert(u.clone(), name);
                    depth += 1;
                }
                Op::If => {
                    let _ = writeln!(out, "{pad}if ({}) {{", text(0));
                    depth += 1;
                }
                Op::End | Op::EndIf => {
                    let _ = writeln!(out, "{pad}}}");
                }
                Op::Store | Op::SetAcc => {
                    let _ = writeln!(out, "{pad}{} = {};", text(0), text(1));
                }
                Op::Barrier => {
                    let _ = writeln!(out, "{pad}barrier();");
                }
                _ => {
                    let name = format!("{}{}", if u.op() == Op::Acc { "acc" } else { "v" }, names.len());
                    let _ = writeln!(out, "{pad}{} {name} = {};", u.dtype(), value(u, &names));
                    names.insert(u.clone(), name);
                }
            }
        }
        out.push('}');
        out
    }
}

fn named(u: &UOp, names: &UMap<String>) -> String {
    match (names.get(u), u.op(), u.arg()) {
        (Some(n), ..) => n.clone(),
        (_, Op::Const, Arg::Const(c)) => format!("{c:?}"),
        _ => u.render(),
    }
}

fn value(u: &UOp, names: &UMap<String>) -> String {
    let s: Vec<String> = u.src().iter().map(|s| named(s, names)).collect();
    let infix = infix(u.op()).map_or("", str::trim);
    match (u.op(), s.as_slice()) {
        (_, [a, b]) if !infix.is_empty() => format!("{a} {infix} {b}"),
        (Op::Where, [c, a, b]) => format!("{c} ? {a} : {b}"),
        (Op::MulAcc, [a, b, c]) => format!("{a} * {b} + {c}"),
        (Op::Load, [a]) => a.clone(),
        (Op::Load, [a, alt]) => format!("{a} else {alt}"),
        (Op::Acc, [init]) => init.clone(),
        (Op::Cast, [a]) => format!("({}){a}", u.dtype()),
        (Op::Gep, [a]) => format!("{a}.{:?}", u.axes()),
        (op, _) => format!("{op:?}({})", s.join(", ")),
    }
}
