//! Printing: index expressions as formulas, graphs as trees with shared nodes named (as in tinygrad's guide).

use super::{Arg, Op, UMap, UOp};
use std::fmt::Write;

/// The infix operator of an op in a formula.
pub const fn infix(op: Op) -> Option<&'static str> {
    Some(match op {
        Op::Add => "+",
        Op::Sub => "-",
        Op::Mul => "*",
        Op::FDiv => "/",
        Op::FloorDiv => "//",
        Op::FloorMod => "%",
        Op::CDiv => " cdiv ",
        Op::CMod => " cmod ",
        Op::Shl => "<<",
        Op::Shr => ">>",
        Op::And => "&",
        Op::Or => "|",
        Op::Xor => "^",
        Op::CmpLt => "<",
        Op::CmpNe => "!=",
        Op::CmpEq => "==",
        _ => return None,
    })
}

impl UOp {
    /// One-line formula; meant for index expressions and other small graphs.
    pub fn render(&self) -> String {
        let mut text: UMap<String> = UMap::default();
        for u in self.toposort() {
            let s = |k: usize| u.src().get(k).and_then(|x| text.get(x)).cloned().unwrap_or_default();
            let t = match (u.op(), u.arg()) {
                (_, Arg::Const(c)) => format!("{c:?}"),
                (_, Arg::Var(n, ..)) => n.to_string(),
                (_, Arg::Range(r)) if r.sub == 0 => format!("r{}", r.id),
                (_, Arg::Range(r)) => format!("r{}_{}", r.id, r.sub),
                (_, Arg::Param(slot, _)) => format!("data{slot}"),
                (Op::Bind, _) => format!("{}[{}]", s(0), s(1)),
                (Op::Where, _) => format!("({}?{}:{})", s(0), s(1), s(2)),
                (op, _) => match infix(op) {
                    Some(i) => format!("({}{i}{})", s(0), s(1)),
                    None => {
                        let args: Vec<String> = (0..u.src().len()).map(s).collect();
                        format!("{op:?}({})", args.join(", "))
                    }
                },
            };
            text.insert(u, t);
        }
        let t = text.remove(self).unwrap_or_default();
        match t.strip_prefix('(').and_then(|x| x.strip_suffix(')')) {
            Some(inner) if infix(self.op()).is_some() => inner.to_string(),
            _ => t,
        }
    }

    /// The graph as an indented tree; a node used more than once is written out once as `x3:=` and then named `x3`.
    pub fn tree(&self) -> String {
        let mut uses: UMap<usize> = UMap::default();
        let order = self.toposort();
        for u in &order {
            for s in u.src() {
                *uses.entry(s.clone()).or_default() += 1;
            }
        }
        let mut names: UMap<usize> = UMap::default();
        let mut out = String::new();
        let mut stack: Vec<(Option<UOp>, usize)> = vec![(Some(self.clone()), 0)];
        while let Some((u, depth)) = stack.pop() {
            let pad = "  ".repeat(depth);
            let Some(u) = u else {
                let _ = writeln!(out, "{pad}]),");
                continue;
            };
            if let Some(n) = names.get(&u) {
                let _ = writeln!(out, "{pad}x{n},");
                continue;
            }
            let name = match uses.get(&u) {
                Some(n) if *n > 1 && !u.src().is_empty() => {
                    let k = names.len();
                    names.insert(u.clone(), k);
                    format!("x{k}:=")
                }
                _ => String::new(),
            };
            let arg = if *u.arg() == Arg::None { String::new() } else { format!(", arg={:?}", u.arg()) };
            if u.src().is_empty() {
                let _ = writeln!(out, "{pad}{name}UOp({:?}, {}{arg}),", u.op(), u.dtype());
            } else {
                let _ = writeln!(out, "{pad}{name}UOp({:?}, {}{arg}, src=[", u.op(), u.dtype());
                stack.push((None, depth));
                stack.extend(u.src().iter().rev().map(|s| (Some(s.clone()), depth + 1)));
            }
        }
        out
    }
}

impl std::fmt::Display for UOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.tree())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_and_trees_show_structure_and_sharing() {
        let a = UOp::var("a", 0, 9);
        let e = &(&a * 2) + 1;
        assert_eq!(e.render(), "(a*2)+1");
        let t = (&e + &e).tree();
        assert_eq!(t.matches("x0:=").count(), 1, "{t}");
        assert_eq!(t.matches("x0,").count(), 1, "{t}");
    }
}
