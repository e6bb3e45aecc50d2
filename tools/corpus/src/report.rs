//! Counts, and what went wrong by its cause.

use std::collections::BTreeMap;
use std::path::Path;

/// What the checks found.
#[derive(Debug, Default)]
pub struct Report {
    pub files: usize,
    /// Kernels, instructions and the like, by name.
    pub counts: BTreeMap<&'static str, u64>,
    /// What is said without being a fault, how often.
    notes: BTreeMap<String, u64>,
    /// Causes, how often, and the first file and text of each.
    causes: BTreeMap<String, (u64, String)>,
}

impl Report {
    pub fn count(&mut self, what: &'static str, n: usize) {
        *self.counts.entry(what).or_default() += n as u64;
    }

    /// Something that does not hold; causes that differ in numbers only are one.
    pub fn fault(&mut self, path: &Path, what: &str, text: &str) {
        let cause = format!("{what}: {}", general(text));
        let first = || (0, format!("{}: {text}", path.display()));
        self.causes.entry(cause).or_insert_with(first).0 += 1;
    }

    /// Something to be said that is no fault.
    pub fn note(&mut self, what: &str, text: &str) {
        *self.notes.entry(format!("{what}: {}", general(text))).or_default() += 1;
    }

    pub fn add(&mut self, other: Report) {
        self.files += other.files;
        for (what, n) in other.counts {
            *self.counts.entry(what).or_default() += n;
        }
        for (note, n) in other.notes {
            *self.notes.entry(note).or_default() += n;
        }
        for (cause, (n, first)) in other.causes {
            self.causes.entry(cause).or_insert((0, first)).0 += n;
        }
    }

    pub fn is_clean(&self) -> bool {
        self.causes.is_empty()
    }

    fn counted(&self) -> String {
        self.counts.iter().map(|(what, n)| format!(", {n} {what}")).collect()
    }

    /// For people.
    pub fn text(&self, kind: &str) -> String {
        let faults: u64 = self.causes.values().map(|c| c.0).sum();
        let mut text = format!("{kind}: {} files{}, {faults} faults\n", self.files, self.counted());
        self.notes.iter().for_each(|(note, n)| text.push_str(&format!("{n:6}  {note}\n")));
        let mut causes: Vec<_> = self.causes.iter().collect();
        causes.sort_by_key(|(_, c)| std::cmp::Reverse(c.0));
        for (cause, (n, first)) in causes.into_iter().take(60) {
            text.push_str(&format!("{n:6}  {cause}\n        {first}\n"));
        }
        text
    }

    /// Adds lines of a table with tabs.
    pub fn append(&self, out: &Path, kind: &str) -> std::io::Result<()> {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(out)?;
        writeln!(file, "{kind}\tfiles\t{}", self.files)?;
        self.counts.iter().try_for_each(|(what, n)| writeln!(file, "{kind}\t{what}\t{n}"))?;
        self.notes.iter().try_for_each(|(note, n)| writeln!(file, "{kind}\t{note}\t{n}"))?;
        self.causes.iter().try_for_each(|(cause, (n, _))| writeln!(file, "{kind}\tfault: {cause}\t{n}"))
    }
}

/// A message without its numbers and the kernel's name at its end.
fn general(text: &str) -> String {
    let mut out = String::new();
    let mut digits = false;
    let text = text.lines().next().unwrap_or_default();
    let text = text.rsplit_once(" in ").filter(|(_, name)| !name.contains(' ')).map_or(text, |(text, _)| text);
    for (i, c) in text.char_indices() {
        let hex = digits && (c.is_ascii_hexdigit() || c == 'x');
        let starts = c.is_ascii_digit() && !text[..i].ends_with(|p: char| p.is_alphanumeric() || p == '_' || p == '.');
        if starts && !digits {
            out.push('#');
        }
        digits = starts || hex;
        if !digits {
            out.push(c);
        }
    }
    out
}
