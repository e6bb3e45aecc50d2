//! Results as lines for a person.

use crate::record::{CaseRecord, Status};

/// The head of the table.
#[must_use]
pub fn head() -> String {
    format!("{:<52} {:>12} {:<6} {:>7} {:>9} {:>6}", "case", "median", "", "+-", "q3/q1", "n")
}

/// One result.
#[must_use]
pub fn line(r: &CaseRecord) -> String {
    let Some((ns, value)) = r.ns.zip(r.value) else {
        return format!("{:<52} {}: {}", r.id, r.status.word(), r.reason.as_deref().unwrap_or_default());
    };
    let share = (ns.high - ns.low) / 2.0 / ns.median;
    let mut line = format!(
        "{:<52} {:>12} {:<6} {:>6.2}% {:>8.3}x {:>6}",
        r.id,
        short(value),
        r.unit.symbol(),
        100.0 * share,
        ns.q3 / ns.q1,
        ns.n
    );
    if r.throttled > 0 {
        line += &format!(" {} throttled", r.throttled);
    }
    if r.status != Status::Ok {
        line += &format!(" {}: {}", r.status.word(), r.reason.as_deref().unwrap_or_default());
    }
    line
}

/// A number with four digits that count.
#[must_use]
pub fn short(value: f64) -> String {
    let digits = value.abs().max(1e-9).log10().floor() as i32;
    let after = usize::try_from((3 - digits).clamp(0, 6)).unwrap_or(0);
    format!("{value:.after$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits_that_count() {
        assert_eq!(
            [1234.5, 12.345, 1.2345, 0.012_345, 0.0].map(short),
            ["1234", "12.35", "1.234", "0.01235", "0.000000"]
        );
    }
}
