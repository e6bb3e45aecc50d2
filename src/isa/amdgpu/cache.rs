//! Cache hints of gfx12: temporal hint and scope.

use super::row::Row;

const SCOPES: [&str; 4] = ["SCOPE_CU", "SCOPE_SE", "SCOPE_DEV", "SCOPE_SYS"];
const LOADS: [&str; 8] = ["RT", "NT", "HT", "LU", "NT_RT", "RT_NT", "NT_HT", "BYPASS"];
const STORES: [&str; 8] = ["RT", "NT", "HT", "RT_WB", "NT_RT", "RT_NT", "NT_HT", "NT_WB"];

/// The names of a temporal hint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Load,
    Store,
    Atomic,
}

fn usage(row: &Row) -> Use {
    let name = row.op.name();
    match () {
        () if name.contains("atomic") => Use::Atomic,
        () if name.contains("store") => Use::Store,
        () => Use::Load,
    }
}

/// Text of hint and scope; empty for the defaults.
pub(super) fn hint_text(row: &Row, th: u8, scope: u8) -> String {
    let mut text = match (th, usage(row)) {
        (0, _) => String::new(),
        (_, Use::Atomic) => atomic_text(th, scope),
        (3, Use::Load) if scope == 3 => " th:TH_LOAD_BYPASS".to_owned(),
        (3, Use::Store) if scope == 3 => " th:TH_STORE_BYPASS".to_owned(),
        (7, Use::Load) => format!(" th:{th:#x}"),
        (_, Use::Load) => format!(" th:TH_LOAD_{}", LOADS[usize::from(th & 7)]),
        (_, Use::Store) => format!(" th:TH_STORE_{}", STORES[usize::from(th & 7)]),
    };
    if scope != 0 {
        text.push_str(" scope:");
        text.push_str(SCOPES[usize::from(scope & 3)]);
    }
    text
}

fn atomic_text(th: u8, scope: u8) -> String {
    match th {
        1 => " th:TH_ATOMIC_RETURN".to_owned(),
        2 => " th:TH_ATOMIC_NT".to_owned(),
        3 => " th:TH_ATOMIC_NT_RETURN".to_owned(),
        4 if scope >= 2 => " th:TH_ATOMIC_CASCADE_RT".to_owned(),
        6 if scope >= 2 => " th:TH_ATOMIC_CASCADE_NT".to_owned(),
        _ => format!(" th:{th:#x}"),
    }
}

/// Temporal hint of that name.
pub(super) fn parse_hint(name: &str) -> Option<u8> {
    let at = |list: [&str; 8], n: &str| list.iter().position(|x| *x == n).and_then(|i| u8::try_from(i).ok());
    match name {
        "TH_LOAD_BYPASS" | "TH_STORE_BYPASS" => Some(3),
        "TH_ATOMIC_RETURN" | "TH_ATOMIC_RT_RETURN" => Some(1),
        "TH_ATOMIC_RT" => Some(0),
        "TH_ATOMIC_NT" => Some(2),
        "TH_ATOMIC_NT_RETURN" => Some(3),
        "TH_ATOMIC_CASCADE_RT" => Some(4),
        "TH_ATOMIC_CASCADE_NT" => Some(6),
        _ => {
            let load = name.strip_prefix("TH_LOAD_").and_then(|n| at(LOADS, n));
            load.or_else(|| name.strip_prefix("TH_STORE_").and_then(|n| at(STORES, n)))
        }
    }
}

/// Scope of that name.
pub(super) fn parse_scope(name: &str) -> Option<u8> {
    SCOPES.iter().position(|x| *x == name).and_then(|i| u8::try_from(i).ok())
}
