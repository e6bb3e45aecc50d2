//! What a step saw: comparisons with what the runtime relies on, and measurements.

/// The sum of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything compared is as expected.
    Ok,
    /// Something is not.
    Differs,
    /// There was nothing to compare with.
    Measured,
    /// It cannot be seen on this device.
    Absent,
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Differs => "DIFFERS",
            Self::Measured => "measured",
            Self::Absent => "absent",
        }
    }
}

/// The notes of a step.
#[derive(Debug, Default)]
pub struct Seen {
    /// In the order in which they were made.
    pub notes: Vec<String>,
    compared: bool,
    differs: bool,
}

impl Seen {
    /// A measurement, or a fact that nothing relies on.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// A comparison of what was found with what is relied on.
    pub fn is<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, found: T, expected: T) {
        self.holds(found == expected, &format!("{what}: {found:?}"), &format!("expected {expected:?}"));
    }

    /// A condition that is relied on: `text` is what was found.
    pub fn holds(&mut self, condition: bool, text: &str, expected: &str) {
        self.compared = true;
        if condition {
            self.notes.push(text.into());
        } else {
            self.differs = true;
            self.notes.push(format!("DIFFERS: {text}, {expected}"));
        }
    }

    pub fn verdict(&self) -> Verdict {
        match (self.differs, self.compared, self.notes.is_empty()) {
            (true, ..) => Verdict::Differs,
            (_, true, _) => Verdict::Ok,
            (_, _, false) => Verdict::Measured,
            (_, _, true) => Verdict::Absent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_difference_is_the_verdict_of_a_step() {
        let mut seen = Seen::default();
        assert_eq!(seen.verdict(), Verdict::Absent);
        seen.note("3 us");
        assert_eq!(seen.verdict(), Verdict::Measured);
        seen.is("lanes", 32, 32);
        assert_eq!(seen.verdict(), Verdict::Ok);
        seen.is("lanes", 16, 32);
        assert_eq!(seen.verdict(), Verdict::Differs);
        assert_eq!(seen.notes.last().map(String::as_str), Some("DIFFERS: lanes: 16, expected 32"));
    }
}
