//! The page: one HTML file that needs nothing else. A policy in it forbids every request and every script and style but
//! its own, which it names by their hashes; data is base64 in blocks that are no scripts. The hashes are constants,
//! which a test holds to the files: computing them would put a hash function into every program.

use crate::read::{AFTER_BYTES, AFTER_NAME, BEFORE_NAME};
use crate::{Part, Record};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const STYLE: &str = include_str!("page/style.css");

/// The scripts, in the order in which they run; they are one script of the page.
const SCRIPTS: &[&str] = &[
    "'use strict';\n",
    include_str!("page/dom.js"),
    include_str!("page/data.js"),
    include_str!("page/list.js"),
    include_str!("page/state.js"),
    include_str!("page/asm.js"),
    include_str!("page/layout.js"),
    include_str!("page/overview.js"),
    include_str!("page/lines.js"),
    include_str!("page/graph.js"),
    include_str!("page/kernels.js"),
    include_str!("page/rewrites.js"),
    include_str!("page/code.js"),
    include_str!("page/timeline.js"),
    include_str!("page/memory.js"),
    include_str!("page/roofline.js"),
    include_str!("page/calls.js"),
    include_str!("page/diff.js"),
    include_str!("page/main.js"),
];

/// SHA-256 of the script and of the style, in base64.
const SCRIPT_HASH: &str = "hok/R9+hpwQH8Oa5xzOHYT4TDb4OXWhjC72lhQdjr3I=";
const STYLE_HASH: &str = "p08GxRm7p7/NV3C1AU1owxj53p7r99iT5YmsGDtfwp0=";

const BODY: &str = include_str!("page/body.html");

/// The page of a run; with a second one, for their comparison.
#[must_use]
pub fn html(record: &Record, other: Option<&Record>) -> String {
    let script = SCRIPTS.concat();
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{SCRIPT_HASH}'; style-src 'sha256-{STYLE_HASH}'; base-uri 'none'; \
         form-action 'none'"
    );
    let mut page = String::with_capacity(1 << 20);
    page.push_str("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    page.push_str(&format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n"));
    page.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    page.push_str(&format!("<title>Doorbell explorer</title>\n<style>{STYLE}</style></head>\n{BODY}\n"));
    parts(&mut page, "", record);
    if let Some(other) = other {
        parts(&mut page, "b:", other);
    }
    page.push_str(&format!("<script>{script}</script>\n</html>\n"));
    page
}

/// Bytes of the page without a record.
#[cfg(test)]
pub(crate) fn empty_len() -> usize {
    STYLE.len() + BODY.len() + SCRIPTS.iter().map(|s| s.len()).sum::<usize>()
}

fn parts(page: &mut String, prefix: &str, record: &Record) {
    let head = Part::of("head", record);
    for part in std::iter::once(&head).chain(&record.parts) {
        page.push_str(BEFORE_NAME);
        page.push_str(prefix);
        page.push_str(&part.name);
        page.push_str(AFTER_NAME);
        STANDARD.encode_string(&part.bytes, page);
        page.push_str(AFTER_BYTES);
        page.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    /// Put the right-hand sides into the constants after a change of the page's files.
    #[test]
    fn the_policy_names_the_script_and_the_style_by_their_hashes() {
        let hash = |text: &str| STANDARD.encode(Sha256::digest(text.as_bytes()));
        assert_eq!(SCRIPT_HASH, hash(&SCRIPTS.concat()));
        assert_eq!(STYLE_HASH, hash(STYLE));
    }
}
