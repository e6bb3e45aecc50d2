//! Counts, and what went wrong by its cause.

use std::collections::BTreeMap;
use std::path::Path;

/// What the checks found.
#[derive(Debug, Default)]
pub struct Report {
    pub files: usize,
    /// Kernels, instructions and the like, by name.
    pub counts: BTreeMap<&'static str, u64>,
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

    pub fn add(&mut self, other: Report) {
        self.files += other.files;
        for (what, n) in other.counts {
            *self.counts.entry(what).or_default() += n;
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
        self.causes.iter().try_for_each(|(cause, (n, _))| writeln!(file, "{kind}\tfault: {cause}\t{n}"))
    }
}

/// A message without its numbers and quoted names.
fn general(text: &str) -> String {
    let mut out = String::new();
    let mut digits = false;
    let text = text.lines().next().unwrap_or_default();
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
