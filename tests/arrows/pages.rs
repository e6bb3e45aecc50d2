//! Pages and tables that the sources and the docs cite are in the repository, with the sections that they name; files
//! and folders that a page names in backticks are there; and the lines of the docs are short.
//!
//! A citation is a word that ends in `.md` or `.tsv`: a path from the root or from the citing file, or the name (or the
//! end of the path) of any file of the repository. Section numbers that follow (`docs/nv.md 2, 2.5`) have to be
//! headings of that page. Left out: words with a pattern (`*.tsv`), and addresses of the web.
//!
//! A path in backticks starts with a folder of the root (`src/lib.rs`, `tests/arrows`); the ending `.rs` may be left
//! out. Left out: paths with a pattern or a placeholder (`tests/elf_*`), and those of other projects (`FOREIGN`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Longest line of a page, in characters.
const MAX_COLUMNS: usize = 120;

/// Folders whose files are read; those at the root as well.
const FOLDERS: &[&str] =
    &["src", "ioctl", "kernels-asm", "tests", "tools", "examples", "benches", "bench", "fuzz", "docs", "data"];

/// Folders of other projects, which pages name as their sources.
const FOREIGN: &[&str] = &["src/amd", "src/common", "src/metal", "src/nouveau", "src/nvidia"];

/// Kinds of files that cite.
const CITING: &[&str] = &["rs", "py", "md", "toml"];

/// A cited page: its name as written, the line, and the sections named after it.
#[derive(Debug, PartialEq)]
struct Cited {
    name: String,
    line: usize,
    sections: Vec<String>,
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_./-".contains(c)
}

/// Citations of one file.
fn cited(text: &str) -> Vec<Cited> {
    let lines = text.lines().enumerate();
    lines
        .flat_map(|(at, line)| {
            cited_in(line).into_iter().map(move |(name, sections)| Cited { name, line: at + 1, sections })
        })
        .collect()
}

fn cited_in(line: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(start) = rest.find(is_name) {
        let word = &rest[start..];
        let word = &word[..word.find(|c| !is_name(c)).unwrap_or(word.len())];
        let after = &rest[start + word.len()..];
        let pattern = rest[..start].ends_with(['*', '}', '\\']);
        rest = after;
        let name = word.trim_end_matches('.');
        let stem = name.strip_suffix(".md").or_else(|| name.strip_suffix(".tsv")).unwrap_or("");
        if !pattern && !stem.is_empty() && !stem.ends_with('/') && !name.starts_with("//") {
            let follows = if name.len() == word.len() { after } else { "" };
            found.push((name.trim_start_matches("../").to_owned(), sections(follows)));
        }
    }
    found
}

/// Section numbers right after a page's name: ` 2.3`, `, section 5`, ` 2, 2.5 and 6`.
fn sections(after: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = after.trim_start_matches(['`', ',']);
    for word in [" sections", " section"] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    while let Some(number) = rest.strip_prefix(' ').filter(|r| r.starts_with(|c: char| c.is_ascii_digit())) {
        let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
        let name = number[..end].trim_end_matches('.');
        found.push(name.to_owned());
        rest = &number[name.len()..];
        let next = [",", " and", " to"].iter().find_map(|joint| rest.strip_prefix(joint));
        let Some(next) = next else { break };
        rest = next;
    }
    found
}

/// Numbers of a page's headings: `## 5. Budgets` is 5, `### 1.1 Nodes` is 1.1.
fn headings(page: &str) -> BTreeSet<String> {
    let heads = page.lines().filter(|line| line.starts_with('#'));
    let first = heads.filter_map(|line| line.trim_start_matches('#').split_whitespace().next());
    first
        .filter(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        .map(|word| word.trim_end_matches('.').to_owned())
        .collect()
}

/// Citations of `file` that lead nowhere; `pages` has the repository's pages and tables with their headings.
fn citation_faults(file: &str, text: &str, pages: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let fault = |c: Cited| {
        let suffix = format!("/{}", c.name);
        let beside = Path::new(file).with_file_name(&c.name).to_string_lossy().into_owned();
        let page = pages.get(&c.name).or_else(|| pages.get(&beside));
        let Some(page) = page.or_else(|| pages.iter().find(|(path, _)| path.ends_with(&suffix)).map(|(_, page)| page))
        else {
            return vec![format!("{file}:{}: `{}` is not in the repository", c.line, c.name)];
        };
        let missing = c.sections.iter().filter(|section| !page.contains(*section));
        missing.map(|section| format!("{file}:{}: `{}` has no section {section}", c.line, c.name)).collect()
    };
    cited(text).into_iter().flat_map(fault).collect()
}

/// Whether `path` is `folder` or in it.
fn is_in(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Paths in backticks on a page, outside of its code blocks, each with its line.
fn paths(page: &str) -> Vec<(usize, &str)> {
    let is_path = |text: &str| {
        text.chars().all(is_name)
            && FOLDERS.iter().any(|folder| text.len() > folder.len() + 1 && is_in(text, folder))
            && !FOREIGN.iter().any(|folder| is_in(text, folder))
    };
    let (mut is_block, mut is_quoted) = (false, false);
    let mut found = Vec::new();
    for (at, line) in page.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        is_block ^= is_fence;
        if is_block || is_fence {
            continue;
        }
        // A quotation may go on in the next line, but ends with its paragraph or its row of a table.
        if line.trim().is_empty() || line.starts_with('|') {
            is_quoted = false;
        }
        for (number, part) in line.split('`').enumerate() {
            is_quoted ^= number > 0;
            if is_quoted && is_path(part) {
                found.push((at + 1, part));
            }
        }
    }
    found
}

/// Paths in backticks on the page `file` that are not in the repository, from its root or from the page; `files` has
/// all of it.
fn path_faults(file: &str, page: &str, files: &[String]) -> Vec<String> {
    let is_there = |path: &str| {
        let source = format!("{path}.rs");
        files.iter().any(|known| is_in(known, path) || *known == source)
    };
    let is_missing = |path: &str| {
        let path = path.trim_end_matches('/');
        !is_there(path) && !is_there(&Path::new(file).with_file_name(path).to_string_lossy())
    };
    let missing = paths(page).into_iter().filter(|(_, path)| is_missing(path));
    missing.map(|(line, path)| format!("{file}:{line}: `{path}` is not in the repository")).collect()
}

/// Lines of a page that are too long: not those of tables and code blocks, and without the targets of links.
fn width_faults(file: &str, text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut faults = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        let columns = line.chars().count() - targets(line);
        if columns > MAX_COLUMNS && !is_code && !is_fence && !line.trim_start().starts_with('|') {
            faults.push(format!("{file}:{}: {columns} columns, at most {MAX_COLUMNS}", at + 1));
        }
    }
    faults
}

/// Characters of a line that are targets of links.
fn targets(line: &str) -> usize {
    let ends = line.split("](").skip(1);
    ends.filter_map(|target| target.find(')')).sum()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below `FOLDERS` and at the root, as a path from the root.
fn files() -> Vec<String> {
    let mut open: Vec<PathBuf> = FOLDERS.iter().map(|folder| root().join(folder)).collect();
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(root()).expect("the root").map(|e| e.expect("an entry").path()).collect();
    while let Some(folder) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.map(|entry| entry.expect("a readable folder").path()) {
            if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
                open.push(path);
            } else {
                found.push(path);
            }
        }
    }
    let name = |path: PathBuf| path.strip_prefix(root()).expect("below the root").to_string_lossy().replace('\\', "/");
    let mut names: Vec<String> = found.into_iter().filter(|path| path.is_file()).map(name).collect();
    names.sort();
    names
}

fn extension(file: &str) -> &str {
    Path::new(file).extension().and_then(|e| e.to_str()).unwrap_or("")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).expect("a readable text file")
}

#[test]
fn pages_that_are_cited_are_in_the_repository() {
    let files = files();
    let is_page = |file: &&String| ["md", "tsv"].contains(&extension(file));
    let page =
        |file: &String| (file.clone(), if extension(file) == "md" { headings(&read(file)) } else { BTreeSet::new() });
    let pages: BTreeMap<_, _> = files.iter().filter(is_page).map(page).collect();
    assert!(pages.contains_key("docs/architecture.md"), "the pages were not found");
    let citing = files.iter().filter(|file| CITING.contains(&extension(file)) && *file != "tests/arrows/pages.rs");
    let faults: Vec<String> = citing.flat_map(|file| citation_faults(file, &read(file), &pages)).collect();
    crate::assert_no_faults(&faults);
}

#[test]
fn paths_that_pages_name_are_in_the_repository() {
    let files = files();
    let pages = files.iter().filter(|file| extension(file) == "md");
    let faults: Vec<String> = pages.flat_map(|file| path_faults(file, &read(file), &files)).collect();
    crate::assert_no_faults(&faults);
}

#[test]
fn lines_of_the_docs_are_short() {
    let is_page = |file: &String| {
        extension(file) == "md" && (file.starts_with("docs/") || Path::new(file).ends_with("README.md"))
    };
    let pages = files().into_iter().filter(is_page);
    let faults: Vec<String> = pages.flat_map(|file| width_faults(&file, &read(&file))).collect();
    crate::assert_no_faults(&faults);
}

#[test]
fn citations_are_found_with_their_sections() {
    let found = cited("//! Source: docs/nv.md 2, 2.5 and 6; `uvm.c`.\n// see (README.md), *.tsv, a.md.\n");
    let expected = [("docs/nv.md", 1, vec!["2", "2.5", "6"]), ("README.md", 2, vec![]), ("a.md", 2, vec![])];
    let expected = expected.map(|(name, line, sections)| Cited {
        name: name.to_owned(),
        line,
        sections: sections.into_iter().map(str::to_owned).collect(),
    });
    assert_eq!(found, expected);
}

#[test]
fn a_page_or_a_section_that_is_not_there_is_named() {
    let pages = BTreeMap::from([("docs/nv.md".to_owned(), headings("# NVIDIA\n## 2. Bring-up\n### 2.5 Queries\n"))]);
    let faults = citation_faults("src/a.rs", "// nv.md 2.5\n// nv.md 2, 3\n// amd.md 1\n", &pages);
    assert_eq!(faults, ["src/a.rs:2: `nv.md` has no section 3", "src/a.rs:3: `amd.md` is not in the repository"]);
}

#[test]
fn a_path_that_is_not_there_is_named() {
    let files = ["src/cli/tests/cli/sass.rs", "src/cli/README.md", "tests/jit.rs"].map(str::to_owned);
    let faults = |page: &str| path_faults("src/cli/README.md", page, &files);
    assert_eq!(faults("`tests/cli/sass.rs`\n"), Vec::<String>::new());
    assert_eq!(faults("`tests/cli/dump.rs`\n"), ["src/cli/README.md:1: `tests/cli/dump.rs` is not in the repository"]);
    assert_eq!(faults("`a\nb` and `src/cl`\n"), ["src/cli/README.md:2: `src/cl` is not in the repository"]);
    crate::assert_no_faults(&faults(
        "`tests/jit`, `src/cli/tests/`, `src/*.rs`, `tests/{a,b}`, `src/nvidia/a.c`, src/x\n",
    ));
    crate::assert_no_faults(&faults("```\n`src/x`\n```\n| `a |\n| src/x |\n"));
}

#[test]
fn a_long_line_is_caught_outside_of_tables_and_code() {
    let long = "x".repeat(MAX_COLUMNS + 1);
    assert_eq!(width_faults("a.md", &long), ["a.md:1: 121 columns, at most 120"]);
    crate::assert_no_faults(&width_faults("a.md", &format!("```\n{long}\n```\n| {long} |\n[a]({long})\n")));
}
