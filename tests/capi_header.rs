//! The header of libdoorbell only grows: what a caller has compiled against stays. `tests/data/capi/doorbell-1.h` is
//! the header as it was frozen for ABI version 1; a change that breaks callers needs a new version, and a new file.

use std::collections::BTreeSet;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The header's text without comments, with one blank between words.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        out.push_str(before);
        out.push(' ');
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Fields of structs, values of enums, functions: what stands between `;`, `,` of enums and braces.
fn parts(text: &str) -> Vec<String> {
    let text = plain(text).replace("#ifdef __cplusplus extern \"C\" { #endif", ";");
    let pieces = text.split([';', '{', '}']).flat_map(|piece| {
        let is_enum = piece.contains("= 0,");
        let pieces: Vec<String> =
            if is_enum { piece.split(',').map(str::to_owned).collect() } else { vec![piece.into()] };
        pieces
    });
    pieces.map(|p| p.trim().to_string()).filter(|p| !p.is_empty()).collect()
}

/// Names of the functions that a header declares.
fn functions(text: &str) -> BTreeSet<String> {
    let name = |part: &String| {
        let (before, _) = part.split_once('(')?;
        let name = before.rsplit([' ', '*']).next()?;
        (name.starts_with("doorbell_") && !part.starts_with("typedef")).then(|| name.to_string())
    };
    parts(text).iter().filter_map(name).collect()
}

#[test]
fn what_is_frozen_is_still_in_the_header() {
    let (frozen, now) = (parts(&read("tests/data/capi/doorbell-1.h")), parts(&read("src/capi/doorbell.h")));
    assert!(frozen.len() > 90, "{}", frozen.len());
    // In the same order: fields of a struct have their offsets from it.
    let mut rest = now.iter();
    for part in &frozen {
        assert!(rest.any(|p| p == part), "`{part}` is not in the header any more, or not at its place");
    }
}

#[test]
fn a_lost_field_or_another_number_would_be_found() {
    let header = read("src/capi/doorbell.h");
    for (from, to) in [
        ("int32_t workers;", ""),
        ("DOORBELL_LIMIT = 7", "DOORBELL_LIMIT = 8"),
        ("uint64_t timeout_ns", "int64_t timeout_ns"),
    ] {
        assert!(header.contains(from), "{from}");
        let changed = parts(&header.replace(from, to));
        assert!(parts(&header).iter().any(|part| !changed.contains(part)), "{from}");
    }
}

#[test]
fn the_library_exports_the_header_s_functions() {
    let map = read("src/capi/doorbell.map");
    let exported = map.lines().filter_map(|l| l.trim().strip_suffix(';')).filter(|l| l.starts_with("doorbell_"));
    let exported: BTreeSet<String> = exported.map(str::to_owned).collect();
    assert_eq!(exported, functions(&read("src/capi/doorbell.h")));
    assert!(exported.len() > 30);
}

#[test]
fn every_function_says_what_it_may_do() {
    let header = read("src/capi/doorbell.h");
    let words = ["llocat", "ocks", "alls", "othing"];
    // What is said of all functions of Tensors stands above them.
    for name in functions(&header).into_iter().filter(|n| !n.starts_with("doorbell_tensor_")) {
        let at = header.find(&format!("{name}(")).unwrap();
        let comment = header[..at].rsplit_once("/*").map(|(_, c)| c).unwrap();
        assert!(
            words.iter().any(|w| comment.contains(w)),
            "{name} does not say whether it allocates, locks, blocks, calls"
        );
    }
}
