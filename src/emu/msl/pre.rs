//! The preprocessor: tokens with directives → tokens without. Macros with `#`, `##` and `__VA_ARGS__`; conditions;
//! `#include` of Metal's own headers, which are built in.
//!
//! Left out: a macro whose expansion ends in the name of a function macro takes no arguments from the tokens after it.

use crate::error::{Pos, Res, fail};
use crate::lex::{Tok, Token};
use std::collections::HashMap;
use std::rc::Rc;

#[derive(Clone)]
struct Macro {
    /// Names of the parameters of a function macro; `true`: the last takes all that follow.
    params: Option<(Vec<Rc<str>>, bool)>,
    body: Vec<Token>,
}

pub(crate) struct Pre {
    macros: HashMap<Rc<str>, Macro>,
    out: Vec<Token>,
    made: usize,
}

/// Most tokens after expansion.
const MAX_TOKENS: usize = 2 << 20;
const MAX_DEPTH: usize = 64;

struct Condition {
    at: Pos,
    live: bool,
    taken: bool,
    outer: bool,
}

pub(crate) fn preprocess(tokens: Vec<Token>, defines: &[(&str, u32)]) -> Res<Vec<Token>> {
    let mut pre = Pre { macros: HashMap::new(), out: Vec::new(), made: 0 };
    for (name, value) in defines {
        let tok = Tok::Num(value.to_string().into());
        let body = vec![Token { tok, at: Pos::default(), first: false, spaced: false }];
        pre.macros.insert((*name).into(), Macro { params: None, body });
    }
    pre.run(&tokens)?;
    Ok(pre.out)
}

impl Pre {
    fn run(&mut self, tokens: &[Token]) -> Res<()> {
        let mut at = 0;
        let mut open: Vec<Condition> = Vec::new();
        while tokens[at].tok != Tok::End {
            let end = if tokens[at].first && tokens[at].is("#") { line_end(tokens, at) } else { text_end(tokens, at) };
            let part = &tokens[at..end];
            if tokens[at].first && tokens[at].is("#") {
                self.directive(part, &mut open)?;
            } else if open.iter().all(|c| c.live) {
                let expanded = self.expand(part, &mut Vec::new())?;
                self.out.extend(expanded);
            }
            at = end;
        }
        if let Some(condition) = open.last() {
            return fail(condition.at, "unterminated conditional directive");
        }
        self.out.push(tokens[at].clone());
        Ok(())
    }

    fn directive(&mut self, line: &[Token], open: &mut Vec<Condition>) -> Res<()> {
        let Some(name) = line.get(1) else { return Ok(()) };
        let rest = &line[2..];
        let live = open.iter().all(|c| c.live);
        let Tok::Id(word) = &name.tok else {
            return if live { fail(name.at, "invalid preprocessing directive") } else { Ok(()) };
        };
        match &**word {
            "ifdef" | "ifndef" => {
                let holds = live && (self.defined(rest, name.at)? == (&**word == "ifdef"));
                open.push(Condition { at: name.at, live: holds, taken: holds, outer: live });
            }
            "if" => {
                let holds = live && self.condition(rest, name.at)?;
                open.push(Condition { at: name.at, live: holds, taken: holds, outer: live });
            }
            "elif" | "else" => {
                let Some(last) = open.last() else { return fail(name.at, format!("#{word} without #if")) };
                let asked = last.outer && !last.taken;
                let holds = asked && (&**word == "else" || self.condition(rest, name.at)?);
                // PANIC: the list has a last element, seen above.
                let last = open.last_mut().expect("a condition is open");
                last.live = holds;
                last.taken |= holds;
            }
            "endif" => {
                if open.pop().is_none() {
                    return fail(name.at, "#endif without #if");
                }
            }
            _ if !live => {}
            "define" => self.define(rest, name.at)?,
            "undef" => {
                if let Some(Token { tok: Tok::Id(word), .. }) = rest.first() {
                    self.macros.remove(word);
                }
            }
            "include" => include(rest, name.at)?,
            "pragma" | "warning" | "line" => {}
            "error" => {
                let text: Vec<String> = rest.iter().map(Token::text).collect();
                return fail(name.at, text.join(" "));
            }
            other => return fail(name.at, format!("invalid preprocessing directive #{other}")),
        }
        Ok(())
    }

    fn defined(&self, rest: &[Token], at: Pos) -> Res<bool> {
        match rest.first() {
            Some(Token { tok: Tok::Id(word), .. }) => Ok(self.macros.contains_key(word)),
            _ => fail(at, "macro name missing"),
        }
    }

    fn define(&mut self, rest: &[Token], at: Pos) -> Res<()> {
        let Some(Token { tok: Tok::Id(name), .. }) = rest.first() else { return fail(at, "macro name missing") };
        let mut body = &rest[1..];
        let mut params = None;
        if body.first().is_some_and(|t| t.is("(") && !t.spaced) {
            let Some(close) = body.iter().position(|t| t.is(")")) else {
                return fail(at, "missing ')' in macro parameter list");
            };
            let (mut names, mut rest_of_all) = (Vec::new(), false);
            for token in body[1..close].iter().filter(|t| !t.is(",")) {
                match &token.tok {
                    Tok::Id(word) => names.push(word.clone()),
                    Tok::Sign("...") => {
                        names.push("__VA_ARGS__".into());
                        rest_of_all = true;
                    }
                    _ => return fail(token.at, "invalid token in macro parameter list"),
                }
            }
            params = Some((names, rest_of_all));
            body = &body[close + 1..];
        }
        self.macros.insert(name.clone(), Macro { params, body: body.to_vec() });
        Ok(())
    }

    fn expand(&mut self, tokens: &[Token], active: &mut Vec<Rc<str>>) -> Res<Vec<Token>> {
        let mut out = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            let token = &tokens[at];
            at += 1;
            if token.is_word("_Pragma") && tokens.get(at).is_some_and(|t| t.is("(")) {
                at = arguments(tokens, at, None)?.1;
                continue;
            }
            let found = match &token.tok {
                Tok::Id(word) if !active.contains(word) => self.macros.get(word).cloned().map(|m| (word.clone(), m)),
                _ => None,
            };
            let Some((word, found)) = found else {
                self.count(1, token.at)?;
                out.push(token.clone());
                continue;
            };
            if active.len() >= MAX_DEPTH {
                return fail(token.at, "macros are nested too deeply");
            }
            let body = match &found.params {
                None => paste(&found.body)?,
                Some(params) => {
                    if !tokens.get(at).is_some_and(|t| t.is("(")) {
                        out.push(token.clone());
                        continue;
                    }
                    let (args, next) = arguments(tokens, at, params.1.then_some(params.0.len()))?;
                    at = next;
                    self.substitute(&found, params, &args, token, active)?
                }
            };
            self.count(body.len(), token.at)?;
            active.push(word);
            let expanded = self.expand(&body, active)?;
            active.pop();
            out.extend(expanded.into_iter().map(|t| Token { at: token.at, first: false, ..t }));
        }
        Ok(out)
    }

    fn count(&mut self, more: usize, at: Pos) -> Res<()> {
        self.made += more;
        if self.made > MAX_TOKENS { fail(at, "the source expands to too many tokens") } else { Ok(()) }
    }

    fn substitute(
        &mut self,
        found: &Macro,
        (names, _): &(Vec<Rc<str>>, bool),
        args: &[Vec<Token>],
        token: &Token,
        active: &mut Vec<Rc<str>>,
    ) -> Res<Vec<Token>> {
        let none = names.is_empty() && args.len() == 1 && args[0].is_empty();
        let short = args.len() + 1 == names.len() && names.last().is_some_and(|n| &**n == "__VA_ARGS__");
        if args.len() != names.len() && !none && !short {
            return fail(token.at, format!("macro '{}' takes {} arguments", token.text(), names.len()));
        }
        let which = |t: &Token| match &t.tok {
            Tok::Id(word) => names.iter().position(|n| n == word),
            _ => None,
        };
        let empty = Vec::new();
        let mut out = Vec::new();
        let body = &found.body;
        for (i, token) in body.iter().enumerate() {
            let pasted = body.get(i + 1).is_some_and(|t| t.is("##")) || (i > 0 && body[i - 1].is("##"));
            match which(token) {
                Some(n) if i > 0 && body[i - 1].is("#") => {
                    out.pop();
                    let arg = args.get(n).unwrap_or(&empty);
                    out.push(Token { tok: Tok::Str(spell(arg).into()), ..token.clone() });
                }
                Some(n) => {
                    let arg = args.get(n).unwrap_or(&empty);
                    let filled = if pasted { arg.clone() } else { self.expand(arg, active)? };
                    self.count(filled.len(), token.at)?;
                    out.extend(filled);
                }
                None => out.push(token.clone()),
            }
        }
        paste(&out)
    }

    fn condition(&mut self, rest: &[Token], at: Pos) -> Res<bool> {
        let mut tokens = Vec::new();
        let mut i = 0;
        while i < rest.len() {
            if rest[i].is_word("defined") {
                let wrapped = rest.get(i + 1).is_some_and(|t| t.is("("));
                let name = rest.get(i + 1 + usize::from(wrapped));
                let Some(Token { tok: Tok::Id(word), .. }) = name else {
                    return fail(rest[i].at, "macro name missing");
                };
                let value = if self.macros.contains_key(word) { "1" } else { "0" };
                tokens.push(Token { tok: Tok::Num(value.into()), ..rest[i].clone() });
                i += if wrapped { 4 } else { 2 };
            } else {
                tokens.push(rest[i].clone());
                i += 1;
            }
        }
        let tokens = self.expand(&tokens, &mut Vec::new())?;
        let mut eval = Eval { tokens: &tokens, at: 0, depth: 0, line: at };
        let value = eval.binary(0)?;
        if eval.at < tokens.len() {
            return fail(tokens[eval.at].at, "unexpected token in a preprocessor expression");
        }
        Ok(value != 0)
    }
}

fn include(rest: &[Token], at: Pos) -> Res<()> {
    let name: String = match rest.first() {
        Some(Token { tok: Tok::Str(name), .. }) => name.to_string(),
        Some(token) if token.is("<") => rest[1..].iter().take_while(|t| !t.is(">")).map(Token::text).collect(),
        _ => return fail(at, "expected \"FILENAME\" or <FILENAME>"),
    };
    let known = name.starts_with("metal_") || name == "simd/simd.h" || name == "TargetConditionals.h";
    if known { Ok(()) } else { fail(at, format!("'{name}' file not found")) }
}

fn line_end(tokens: &[Token], at: usize) -> usize {
    let rest = tokens[at + 1..].iter().position(|t| t.first || t.tok == Tok::End);
    rest.map_or(tokens.len() - 1, |n| at + 1 + n)
}

/// The first directive after `at`, or the end.
fn text_end(tokens: &[Token], at: usize) -> usize {
    let rest = tokens[at + 1..].iter().position(|t| (t.first && t.is("#")) || t.tok == Tok::End);
    rest.map_or(tokens.len() - 1, |n| at + 1 + n)
}

/// The arguments in the parentheses at `open`, and where they end.
fn arguments(tokens: &[Token], open: usize, rest_from: Option<usize>) -> Res<(Vec<Vec<Token>>, usize)> {
    let mut args = vec![Vec::new()];
    let mut depth = 0_usize;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        if depth == 1 && token.is(",") && rest_from.is_none_or(|n| args.len() < n) {
            args.push(Vec::new());
            continue;
        }
        match &token.tok {
            Tok::Sign("(") => depth += 1,
            Tok::Sign(")") => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok((args, i + 1));
        }
        if i > open {
            // PANIC: the list starts with one element and only grows.
            args.last_mut().expect("an argument").push(token.clone());
        }
    }
    fail(tokens[open].at, "unterminated function-like macro invocation")
}

fn spell(tokens: &[Token]) -> String {
    let mut out = String::new();
    for (i, token) in tokens.iter().enumerate() {
        if i > 0 && (token.spaced || token.first) {
            out.push(' ');
        }
        out.push_str(&token.text());
    }
    out
}

/// Joins the neighbours of each `##`.
fn paste(tokens: &[Token]) -> Res<Vec<Token>> {
    let mut out: Vec<Token> = Vec::with_capacity(tokens.len());
    let mut i = 0;
    while i < tokens.len() {
        let joined = match (out.last(), tokens.get(i + 1)) {
            (Some(left), Some(right)) if tokens[i].is("##") => Some((left.clone(), right.clone())),
            _ => None,
        };
        let Some((left, right)) = joined else {
            if !tokens[i].is("##") {
                out.push(tokens[i].clone());
            }
            i += 1;
            continue;
        };
        out.pop();
        let made = crate::lex::lex(&format!("{}{}", left.text(), right.text()))?;
        if made.len() != 2 {
            return fail(left.at, format!("pasting formed '{}{}', an invalid token", left.text(), right.text()));
        }
        out.push(Token { tok: made[0].tok.clone(), ..left });
        i += 2;
    }
    Ok(out)
}

/// Integer expressions of `#if`.
struct Eval<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
    line: Pos,
}

const LEVELS: &[&[&str]] = &[
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<", "<=", ">", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl Eval<'_> {
    fn binary(&mut self, level: usize) -> Res<i64> {
        let Some(signs) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(token) = self.tokens.get(self.at) {
            let next = self.tokens.get(self.at + 1);
            let double = token.is(">") && next.is_some_and(|t| t.is(">") && !t.spaced);
            let sign = if double { signs.iter().find(|s| **s == ">>") } else { signs.iter().find(|s| token.is(s)) };
            let Some(sign) = sign else { break };
            self.at += 1 + usize::from(double);
            let right = self.binary(level + 1)?;
            left = match *sign {
                "||" => i64::from(left != 0 || right != 0),
                "&&" => i64::from(left != 0 && right != 0),
                "|" => left | right,
                "^" => left ^ right,
                "&" => left & right,
                "==" => i64::from(left == right),
                "!=" => i64::from(left != right),
                "<" => i64::from(left < right),
                "<=" => i64::from(left <= right),
                ">" => i64::from(left > right),
                ">=" => i64::from(left >= right),
                "<<" => left.wrapping_shl(right as u32),
                ">>" => left.wrapping_shr(right as u32),
                "+" => left.wrapping_add(right),
                "-" => left.wrapping_sub(right),
                "*" => left.wrapping_mul(right),
                _ if right == 0 => return fail(token.at, "division by zero in preprocessor expression"),
                "/" => left.wrapping_div(right),
                _ => left.wrapping_rem(right),
            };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Res<i64> {
        let Some(token) = self.tokens.get(self.at) else {
            return fail(self.line, "expected value in preprocessor expression");
        };
        self.at += 1;
        self.depth += 1;
        if self.depth > 200 {
            return fail(token.at, "preprocessor expression is nested too deeply");
        }
        let value = match &token.tok {
            Tok::Num(text) => match number(text) {
                Some(value) => value,
                None => return fail(token.at, "invalid integer in preprocessor expression"),
            },
            Tok::Char(c) => i64::from(*c),
            Tok::Id(word) => i64::from(&**word == "true"),
            Tok::Sign("!") => i64::from(self.unary()? == 0),
            Tok::Sign("-") => self.unary()?.wrapping_neg(),
            Tok::Sign("+") => self.unary()?,
            Tok::Sign("~") => !self.unary()?,
            Tok::Sign("(") => {
                let value = self.binary(0)?;
                if !self.tokens.get(self.at).is_some_and(|t| t.is(")")) {
                    return fail(token.at, "expected ')' in preprocessor expression");
                }
                self.at += 1;
                value
            }
            _ => return fail(token.at, "invalid token at start of a preprocessor expression"),
        };
        self.depth -= 1;
        Ok(value)
    }
}

fn number(text: &str) -> Option<i64> {
    let text = text.replace('\'', "");
    let text = text.trim_end_matches(['u', 'U', 'l', 'L']);
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}
