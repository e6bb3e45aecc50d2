//! What an object file holds, for people who named a kernel that is not in it.

use object::{Architecture, Object, ObjectSymbol, SymbolKind};

/// Its machine and the names that can be launched.
pub fn holdings(bytes: &[u8]) -> String {
    let file = match object::File::parse(bytes) {
        Ok(file) => file,
        Err(e) => return format!("no object code ({e})"),
    };
    let symbols = || file.symbols().chain(file.dynamic_symbols()).filter(|s| s.is_definition());
    let name = |s: &object::Symbol<'_, '_>| s.name().ok().map(str::to_owned);
    let mut names: Vec<String> = if file.architecture() == Architecture::Unknown {
        // AMD's: each kernel has a descriptor.
        symbols().filter_map(|s| name(&s)?.strip_suffix(".kd").map(str::to_owned)).collect()
    } else {
        symbols().filter(|s| s.kind() == SymbolKind::Text && s.is_global()).filter_map(|s| name(&s)).collect()
    };
    names.sort();
    names.dedup();
    let list = if names.is_empty() { "no kernel".to_owned() } else { names.join(", ") };
    format!("{:?} code: {list}", file.architecture())
}
