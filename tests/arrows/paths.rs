//! Tokens of one file → the paths it names in its own crate, resolved to the crate's root, wherever they occur: `use`
//! trees, expressions, types, attributes, macros. Items under `#[cfg(test)]` are left out: tests may look up.
//!
//! Left out: paths that only a macro's expansion would show.

use crate::lexer::{Kind, Token};

/// A path from the crate's root (`["uop", "UOp"]`; `*` for a glob) and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    pub path: Vec<String>,
    pub line: usize,
}

/// The workspace's crates, by the name that code has for them, and the room each of them is.
pub const CRATES: &[(&str, &str)] = &[
    ("doorbell_aarch64", "isa::aarch64"),
    ("doorbell_amdgpu", "isa::amdgpu"),
    ("doorbell_bench", "bench"),
    ("doorbell_codegen", "codegen"),
    ("doorbell_device", "device"),
    ("doorbell_drivertest", "drivertest"),
    ("doorbell_elf", "elf"),
    ("doorbell_emu", "emu"),
    ("doorbell_emu_metal", "emu::metal"),
    ("doorbell_emu_msl", "emu::msl"),
    ("doorbell_emu_units", "emu::units"),
    ("doorbell_explorer", "explorer"),
    ("doorbell_hcq", "hcq"),
    ("doorbell_ioctl", "ioctl"),
    ("doorbell_isa", "isa"),
    ("doorbell_kernels", "kernels-asm"),
    ("doorbell_package", "package"),
    ("doorbell_ptx", "isa::nvidia"),
    ("doorbell_runtime", "runtime"),
    ("doorbell_sort", "sort"),
    ("doorbell_uop", "uop"),
    ("doorbell_x86_64", "isa::x86_64"),
];

/// The room of a crate, as a path; `None`: no crate of the workspace has that name.
fn room_of_crate(name: &str) -> Option<Vec<String>> {
    CRATES
        .iter()
        .find(|(crate_name, _)| *crate_name == name)
        .map(|(_, room)| room.split("::").map(str::to_owned).collect())
}

/// Where `crate` leads in a module: to the root of the innermost crate that has it, or to the root package.
fn crate_root(module: &[String]) -> Vec<String> {
    let path = module.join("::");
    let holds = |room: &str| path == room || path.strip_prefix(room).is_some_and(|rest| rest.starts_with("::"));
    let rooms = CRATES.iter().map(|(_, room)| *room).filter(|room| holds(room));
    rooms.max_by_key(|room| room.len()).map_or_else(Vec::new, |room| room.split("::").map(str::to_owned).collect())
}

/// The module path of a source file: `src/schedule/fuse.rs` → `["schedule", "fuse"]`, `src/uop/lib.rs` → `["uop"]`;
/// files of other folders keep the folder's name.
pub fn module_of(file: &str) -> Vec<String> {
    let mut parts: Vec<String> =
        file.trim_start_matches("src/").trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// Drops every item under `#[cfg(test)]` or `#[test]`.
pub fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        if is_test_attribute(&tokens[at..]) {
            at = end_of_item(tokens, at);
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// Files that are modules of their own under `#[cfg(test)] mod name;`, as names.
pub fn test_modules(tokens: &[Token]) -> Vec<String> {
    let mut names = Vec::new();
    for at in 0..tokens.len() {
        if !is_test_attribute(&tokens[at..]) {
            continue;
        }
        let item = &tokens[at..end_of_item(tokens, at)];
        if let [.., module, Token { kind: Kind::Word(name), .. }, end] = item
            && module.is("mod")
            && end.sign(';')
        {
            names.push(name.clone());
        }
    }
    names
}

/// Names of the macros that a file defines: exported ones are at the crate's root, but belong to the file's room.
pub fn macros(tokens: &[Token]) -> Vec<String> {
    let name = |w: &[Token]| match (&w[2].kind, w[0].is("macro_rules") && w[1].sign('!')) {
        (Kind::Word(name), true) => Some(name.clone()),
        _ => None,
    };
    tokens.windows(3).filter_map(name).collect()
}

fn is_test_attribute(tokens: &[Token]) -> bool {
    let plain = |t: &Token| match &t.kind {
        Kind::Word(w) => w.clone(),
        Kind::Sign(s) => s.to_string(),
        _ => String::new(),
    };
    let head: String = tokens.iter().take(7).map(plain).collect();
    ["#[cfg(test)]", "#[test]", "#[cfg(all(test"].iter().any(|a| head.starts_with(a))
}

/// The index after the item whose attributes start at `at`: after its `;`, or after its closing brace.
fn end_of_item(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(at) {
        match token.kind {
            Kind::Sign('{' | '(' | '[') => depth += 1,
            Kind::Sign('}' | ')' | ']') if depth == 0 => return index,
            Kind::Sign('}' | ')' | ']') => {
                depth -= 1;
                if depth == 0 && token.sign('}') && !tokens.get(index + 1).is_some_and(|t| t.sign(';')) {
                    return index + 1;
                }
            }
            Kind::Sign(';') if depth == 0 => return index + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// All paths that start with `crate`, `self`, `super` or another crate of the workspace, given from the room on.
pub fn used(module: &[String], tokens: &[Token]) -> Vec<Used> {
    let mut found = Vec::new();
    let mut inner: Vec<(String, usize)> = Vec::new();
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match &token.kind {
            Kind::Sign('{') => {
                depth += 1;
                if let [.., module, Token { kind: Kind::Word(name), .. }] = &tokens[..at]
                    && module.is("mod")
                {
                    inner.push((name.clone(), depth));
                }
            }
            Kind::Sign('}') => {
                inner.retain(|(_, opened)| *opened != depth);
                depth = depth.saturating_sub(1);
            }
            Kind::Word(word) if room_of_crate(word).is_some() => {
                tree(&room_of_crate(word).unwrap_or_default(), tokens, at + 1, &mut found);
            }
            Kind::Word(word) if starts_path(tokens, at) => {
                let mut here = module.to_vec();
                here.extend(inner.iter().map(|(name, _)| name.clone()));
                if let Some((base, next)) = base_of(word, here, tokens, at) {
                    tree(&base, tokens, next, &mut found);
                }
            }
            _ => {}
        }
    }
    found
}

/// True at the first word of a path that goes on (`crate::`, not `a::crate::`).
fn starts_path(tokens: &[Token], at: usize) -> bool {
    let follows = at > 0 && tokens[at - 1].kind == Kind::PathSep;
    !follows && tokens.get(at + 1).is_some_and(|t| t.kind == Kind::PathSep || t.is("as"))
}

/// Where a path that starts with `crate`, `self` or `super` begins, and the index of what follows the last of them.
fn base_of(word: &str, mut here: Vec<String>, tokens: &[Token], at: usize) -> Option<(Vec<String>, usize)> {
    match word {
        "crate" => here = crate_root(&here),
        "self" => {}
        "super" => {
            here.pop();
        }
        _ => return None,
    }
    let mut next = at + 1;
    while tokens.get(next).is_some_and(|t| t.kind == Kind::PathSep)
        && tokens.get(next + 1).is_some_and(|t| t.is("super"))
    {
        here.pop();
        next += 2;
    }
    Some((here, next))
}

/// Reads what follows a path's start: `::name`, `::*`, `::{...}`; returns the index after it.
fn tree(base: &[String], tokens: &[Token], mut at: usize, found: &mut Vec<Used>) -> usize {
    let mut path = base.to_vec();
    let line = tokens[at - 1].line;
    while tokens.get(at).is_some_and(|t| t.kind == Kind::PathSep) {
        match tokens.get(at + 1).map(|t| &t.kind) {
            Some(Kind::Word(name)) => {
                path.push(name.clone());
                at += 2;
            }
            Some(Kind::Sign('*')) => {
                path.push("*".to_owned());
                at += 2;
            }
            Some(Kind::Sign('{')) => return group(&path, tokens, at + 2, found),
            _ => break,
        }
    }
    found.push(Used { path, line });
    at
}

/// Reads the inside of `{...}` in a use tree; returns the index after the closing brace.
fn group(base: &[String], tokens: &[Token], mut at: usize, found: &mut Vec<Used>) -> usize {
    while let Some(token) = tokens.get(at) {
        match &token.kind {
            Kind::Sign('}') => return at + 1,
            Kind::Sign('{') => at = group(base, tokens, at + 1, found),
            Kind::Word(name) if name == "as" => at += 2,
            Kind::Word(name) => {
                let mut path = base.to_vec();
                if name != "self" {
                    path.push(name.clone());
                }
                at = tree(&path, tokens, at + 1, found);
            }
            Kind::Sign('*') => {
                let mut path = base.to_vec();
                path.push("*".to_owned());
                found.push(Used { path, line: token.line });
                at += 1;
            }
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexer::tokens;

    fn paths(file: &str, source: &str) -> Vec<String> {
        let kept = without_tests(&tokens(source));
        used(&module_of(file), &kept).into_iter().map(|u| u.path.join("::")).collect()
    }

    #[test]
    fn use_trees_are_taken_apart() {
        let source = "use crate::{uop::{self, UOp as U, dtype::*}, tensor::Tensor};";
        assert_eq!(paths("nn/mod.rs", source), ["uop", "uop::UOp", "uop::dtype::*", "tensor::Tensor"]);
    }

    #[test]
    fn a_grouped_use_of_crates_is_taken_apart() {
        assert_eq!(paths("a/b.rs", "use {crate::uop, super::super::tensor::T};"), ["uop", "tensor::T"]);
    }

    #[test]
    fn paths_in_bodies_types_and_turbofish_are_seen() {
        let source = "fn f(x: &crate::tensor::T) { crate::engine::run::<doorbell_hcq::Q>(x); }";
        assert_eq!(paths("engine/a.rs", source), ["tensor::T", "engine::run", "hcq::Q"]);
    }

    #[test]
    fn super_is_resolved_through_files_and_inline_modules() {
        let source = "mod inside { use super::super::super::engine::Jit; } use super::sibling;";
        assert_eq!(paths("uop/node.rs", source), ["engine::Jit", "uop::sibling"]);
    }

    #[test]
    fn items_under_cfg_test_are_left_out_and_the_rest_is_not() {
        let source =
            "#[cfg(test)] mod tests { use crate::engine::A; } #[test] fn t() { crate::nn::B } fn u() { crate::isa::C }";
        assert_eq!(paths("nn/node.rs", source), ["isa::C"]);
    }

    #[test]
    fn a_test_module_in_a_file_of_its_own_is_named() {
        assert_eq!(test_modules(&tokens("#[cfg(test)]\nmod tests; mod real;")), ["tests"]);
    }

    #[test]
    fn macros_of_a_file_are_named() {
        assert_eq!(macros(&tokens("#[macro_export]\nmacro_rules! module { () => {} }\nmodule!();")), ["module"]);
    }

    #[test]
    fn another_crate_is_seen_wherever_it_is_named() {
        assert_eq!(paths("uop/a.rs", "use doorbell_ioctl::{port, abi::kfd};"), ["ioctl::port", "ioctl::abi::kfd"]);
        assert_eq!(
            paths("emu/a.rs", "use doorbell_ptx::sass::Row; use doorbell_sort as sort;"),
            ["isa::nvidia::sass::Row", "sort"]
        );
    }

    #[test]
    fn crate_is_the_root_of_the_crate_that_has_the_file() {
        assert_eq!(paths("uop/a.rs", "use crate::dtype::D;"), ["uop::dtype::D"]);
        assert_eq!(paths("isa/nvidia/sass/a.rs", "use crate::ptx::P;"), ["isa::nvidia::ptx::P"]);
        assert_eq!(paths("nn/a.rs", "use crate::tensor::T;"), ["tensor::T"]);
    }

    #[test]
    fn renaming_the_crate_gives_an_empty_path() {
        assert_eq!(paths("nn/a.rs", "use crate as c;"), [""]);
    }
}
