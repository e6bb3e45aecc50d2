//! The list of messages, by itself; against a framework it is tested in `emu::metal`.

mod bindings;
mod headers;

use super::Selector;
use super::messages::ROWS;

#[test]
fn selectors_have_as_many_colons_as_arguments() {
    for row in ROWS {
        let colons = row.selector.bytes().filter(|b| *b == b':').count();
        // Result, then receiver and selector.
        assert_eq!(colons, row.codes.len() - 2, "{}", row.selector);
    }
}

#[test]
fn what_is_returned_is_owned_by_the_rule_of_names() {
    for row in ROWS.iter().filter(|row| !row.ownership.is_empty()) {
        let gives = ["new", "alloc", "copy", "mutableCopy"].iter().any(|family| row.selector.starts_with(family));
        assert_eq!(row.ownership, if gives { "+1" } else { "+0" }, "{}", row.selector);
    }
}

#[test]
fn names_are_read_and_written() {
    let parse = |rest| Selector::parse(rest).map(|s| s.to_string());
    assert_eq!(parse(None).as_deref(), Some("METAL"));
    assert_eq!(parse(Some("0")).as_deref(), Some("METAL"));
    assert_eq!(parse(Some("1")).as_deref(), Some("METAL:1"));
    assert_eq!(parse(Some("EMU")).as_deref(), Some("METAL:emu"));
    assert_eq!(parse(Some("emu=Apple7")).as_deref(), Some("METAL:emu"));
    assert_eq!(parse(Some("emu=apple9")).as_deref(), Some("METAL:emu=apple9"));
    assert_eq!(parse(Some("1:emu")).as_deref(), Some("METAL:1:emu"));
    assert_eq!(parse(Some("3:EMU=apple8")).as_deref(), Some("METAL:3:emu=apple8"));
    for wrong in ["4:emu", "0:emu", "emu:1", "1:", "", "emu=", "emu=apple6", "emu=sm_90", "x", "64"] {
        assert_eq!(parse(Some(wrong)), None, "{wrong}");
    }
}
