//! Calls of the program's own functions: overload resolution, arguments, operators.

use super::template::Argument;
use super::{Candidate, Entry, Parser};
use crate::error::{Pos, Res, fail};
use crate::tree::{Expr, FnId, Kind};
use crate::types::{Space, Ty};
use std::rc::Rc;

impl Parser {
    pub(crate) fn call(
        &mut self,
        name: &Rc<str>,
        candidates: &[Candidate],
        explicit: Vec<Argument>,
        args: Vec<Expr>,
        at: Pos,
    ) -> Res<Expr> {
        let mut fitting = Vec::new();
        for candidate in candidates {
            match candidate {
                Candidate::Function(function) if explicit.is_empty() => fitting.push(*function),
                _ => {}
            }
        }
        let exact = fitting.iter().any(|f| self.ranks(*f, &args).is_some_and(|r| r.iter().all(|n| *n == 0)));
        for candidate in candidates {
            if let Candidate::Template(template) = candidate
                && !exact
                && let Some(found) = self.deduce(*template, &explicit, &args)?
            {
                let function = self.instance(*template, &found, None, at)?;
                fitting.push(function);
            }
        }
        self.call_best(name, &fitting, args, at)
    }

    /// The ranks of the arguments' conversions; `None`: the function does not take them.
    fn ranks(&self, function: FnId, args: &[Expr]) -> Option<Vec<u32>> {
        let f = &self.functions[function];
        if f.params.len() != args.len() || f.kernel {
            return None;
        }
        let one = |(var, arg): (&u32, &Expr)| {
            let var = &f.vars[*var as usize];
            if !var.reference {
                return self.rank(arg, var.ty);
            }
            match arg.lv {
                Some(lv) if arg.ty == var.ty && lv.space == var.space && (var.constant || !lv.constant) => {
                    Some(u32::from(var.constant != lv.constant))
                }
                // A temporary binds to a reference to const in thread space.
                _ if var.space == Space::Thread && var.constant && !self.types.is_aggregate(var.ty) => {
                    self.rank(arg, var.ty).map(|r| r + 1)
                }
                None if var.space == Space::Thread && arg.ty == var.ty && self.types.is_aggregate(var.ty) => Some(1),
                _ => None,
            }
        };
        f.params.iter().zip(args).map(one).collect()
    }

    pub(crate) fn call_best(&mut self, name: &Rc<str>, fitting: &[FnId], args: Vec<Expr>, at: Pos) -> Res<Expr> {
        let ranked: Vec<(FnId, Vec<u32>)> =
            fitting.iter().filter_map(|f| self.ranks(*f, &args).map(|r| (*f, r))).collect();
        let better = |a: &[u32], b: &[u32]| a.iter().zip(b).all(|(x, y)| x <= y) && a != b;
        let best: Vec<FnId> = ranked
            .iter()
            .filter(|(f, r)| ranked.iter().all(|(g, other)| f == g || !better(other, r)))
            .map(|(f, _)| *f)
            .collect();
        match best[..] {
            [function] => self.call_of(function, args, at),
            [] => {
                let shown: Vec<String> = args.iter().map(|a| self.types.name(a.ty)).collect();
                let shown = shown.join(", ");
                fail(at, format!("no matching function for call to '{name}' with ({shown})"))
            }
            _ => fail(at, format!("call to '{name}' is ambiguous")),
        }
    }

    fn call_of(&mut self, function: FnId, args: Vec<Expr>, at: Pos) -> Res<Expr> {
        let mut made = Vec::new();
        for (n, mut arg) in args.into_iter().enumerate() {
            let f = &self.functions[function];
            let var = f.vars[f.params[n] as usize].clone();
            let unknown = f.body.is_none();
            if var.reference {
                if arg.lv.is_some() && arg.ty == var.ty && matches!(arg.kind, Kind::Swizzle(..) | Kind::Element(..)) {
                    if !var.constant {
                        return fail(arg.at, "reference cannot bind to a vector element");
                    }
                    arg.lv = None;
                }
                if arg.lv.is_none() || arg.ty != var.ty {
                    arg = self.converted(arg, var.ty)?;
                    arg.lv = None;
                } else if (var.in_memory || unknown) && var.space == Space::Thread {
                    // Marks the variable as one whose address is taken.
                    let _ = self.address_of(arg.clone());
                }
            } else {
                arg = if matches!(self.types.get(var.ty), Ty::Ptr { .. }) { self.decay(arg)? } else { arg };
                arg = self.converted(arg, var.ty)?;
            }
            made.push(arg);
        }
        self.now.calls.push((function, at));
        let ret = self.functions[function].ret;
        self.value(Kind::Call(function, made), ret, at)
    }

    /// An operator that a struct defines, if an operand is one.
    pub(crate) fn overloaded(&mut self, sign: &str, operands: &[&Expr]) -> Res<Option<Expr>> {
        if !operands.iter().any(|e| matches!(self.types.get(e.ty), Ty::Struct(_))) {
            return Ok(None);
        }
        let at = operands[0].at;
        let name: Rc<str> = format!("operator{sign}").into();
        let args: Vec<Expr> = operands.iter().map(|e| (*e).clone()).collect();
        if let Ty::Struct(index) = self.types.get(operands[0].ty)
            && self.methods.contains_key(&(index, name.clone()))
        {
            return self.call_member(index, args[0].clone(), &name, args[1..].to_vec(), at).map(Some);
        }
        match self.scopes[0].get(&name).cloned() {
            Some(Entry::Functions(list)) => self.call(&name, &list, Vec::new(), args, at).map(Some),
            _ => Ok(None),
        }
    }
}
