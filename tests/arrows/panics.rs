//! Library code does not panic on input of a user, a file or a device: `unwrap`, `expect`, `panic!` and `unreachable!`
//! need a `// PANIC:` comment on their line or just above with the reason why they cannot happen. Asserts of our own
//! invariants are free.

use crate::lexer::{Token, tokens};
use crate::paths::without_tests;

/// How many lines above the call the comment may start.
const REACH_LINES: usize = 4;

/// Panicking calls of a file without a reason, as `file:line: what`.
pub fn panic_faults(file: &str, source: &str) -> Vec<String> {
    let lines: Vec<&str> = source.lines().collect();
    let explained = |line: usize| {
        let first = line.saturating_sub(REACH_LINES + 1);
        lines.get(first..line).is_some_and(|near| near.iter().any(|text| text.contains("// PANIC:")))
    };
    let kept = without_tests(&tokens(source));
    let calls = kept.windows(3).filter_map(panicking).filter(|(line, _)| !explained(*line));
    calls.map(|(line, what)| format!("{file}:{line}: {what} without a `// PANIC:` comment")).collect()
}

fn panicking(three: &[Token]) -> Option<(usize, &'static str)> {
    let [a, b, c] = three else { return None };
    let method = a.sign('.') && c.sign('(');
    match () {
        () if method && b.is("unwrap") => Some((b.line, "unwrap()")),
        () if method && b.is("expect") => Some((b.line, "expect()")),
        () if b.sign('!') && a.is("panic") => Some((a.line, "panic!")),
        () if b.sign('!') && a.is("unreachable") => Some((a.line, "unreachable!")),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_unwrap_is_caught_and_one_with_a_reason_is_not() {
        let source = "fn f() {\n    a.unwrap();\n}\n\n\n\nfn g() {\n    // PANIC: never empty.\n    b\n        .expect(\"x\");\n}\n";
        assert_eq!(panic_faults("src/a.rs", source), ["src/a.rs:2: unwrap() without a `// PANIC:` comment"]);
    }

    #[test]
    fn macros_are_caught_and_lookalikes_are_not() {
        let source = "fn f() { x.unwrap_or(1); s.expect_err; panic!(\"no\") }";
        assert_eq!(panic_faults("src/a.rs", source), ["src/a.rs:1: panic! without a `// PANIC:` comment"]);
    }

    #[test]
    fn tests_may_unwrap() {
        assert_eq!(panic_faults("src/a.rs", "#[cfg(test)]\nmod tests { fn f() { a.unwrap() } }"), Vec::<String>::new());
    }
}
