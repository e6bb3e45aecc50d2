//! Expectations: what is known to fail, to fail now and then, or not to be run, with a reason and an end.
//!
//! A file of JSON, an array of entries. Everything that is not right about it is an error: an unknown word, a case that
//! is not there, an entry without a reason or link, one whose end date is over, and, after a run, a pass where a
//! failure was expected.

use crate::select::fits;
use serde::Deserialize;
use std::time::{SystemTime, UNIX_EPOCH};

/// What is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expected {
    /// It fails.
    Fail,
    /// It fails now and then.
    Flake,
    /// It is not run.
    Skip,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Names with `*`.
    pub case: String,
    /// What is expected.
    pub expect: Expected,
    /// Of these chips only.
    #[serde(default)]
    pub chips: Vec<String>,
    /// From this release of the driver on, that one included.
    pub from: Option<String>,
    /// Up to this release, that one included.
    pub to: Option<String>,
    /// Why.
    pub reason: String,
    /// Where it is followed.
    pub link: String,
    /// Of a flake: how often it fails, between 0 and 1.
    pub rate: Option<f64>,
    /// The last day on which it holds, as 2026-12-31.
    pub until: String,
}

/// The machine that entries are for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// As the software machine's names: gfx1100, sm_90; empty where it is not known.
    pub chip: String,
    /// The driver's release, numbers with dots.
    pub release: String,
}

/// Expectations of one machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expectations(Vec<Entry>);

/// Numbers of a release.
fn release(text: &str) -> Option<Vec<u64>> {
    text.split('.').map(|part| part.parse().ok()).collect()
}

/// Days since 1970 of a date, if it is one.
fn day(text: &str) -> Option<i64> {
    let mut parts = text.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() || !(1..=12).contains(&month) || !(1..=31).contains(&day) || text.len() != 10 {
        return None;
    }
    // Days from civil, counted from March (H. Hinnant).
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

fn today() -> i64 {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    i64::try_from(seconds / 86_400).unwrap_or(i64::MAX)
}

impl Entry {
    fn check(&self, names: &[&str], today: i64) -> Result<(), String> {
        if !names.iter().any(|name| fits(&self.case, name)) {
            return Err("no case has such a name".to_owned());
        }
        if self.reason.trim().is_empty() {
            return Err("it has no reason".to_owned());
        }
        if !self.link.starts_with("https://") && !self.link.starts_with("http://") {
            return Err(format!("{:?} is no link", self.link));
        }
        for text in [&self.from, &self.to].into_iter().flatten() {
            release(text).ok_or_else(|| format!("{text:?} is no release: numbers with dots"))?;
        }
        match (self.expect, self.rate) {
            (Expected::Flake, None) => return Err("a flake needs a rate".to_owned()),
            (Expected::Flake, Some(rate)) if !(rate > 0.0 && rate < 1.0) => {
                return Err(format!("rate {rate} is not between 0 and 1"));
            }
            (Expected::Fail | Expected::Skip, Some(_)) => return Err("only a flake has a rate".to_owned()),
            _ => {}
        }
        let last = day(&self.until).ok_or_else(|| format!("{:?} is no day: year-month-day", self.until))?;
        if last < today { Err(format!("it was to hold until {}", self.until)) } else { Ok(()) }
    }

    fn is_for(&self, machine: &Machine) -> bool {
        let own = release(&machine.release);
        let ordered = |bound: &Option<String>, after: bool| match (bound.as_deref().and_then(release), &own) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(bound), Some(own)) => {
                if after {
                    *own >= bound
                } else {
                    *own <= bound
                }
            }
        };
        (self.chips.is_empty() || self.chips.contains(&machine.chip))
            && ordered(&self.from, true)
            && ordered(&self.to, false)
    }
}

impl Expectations {
    /// Reads a file's text.
    ///
    /// # Errors
    /// In words, with the entry's number and case: whatever is not right.
    pub fn read(text: &str, names: &[&str], machine: &Machine) -> Result<Self, String> {
        Self::read_on(text, names, machine, today())
    }

    fn read_on(text: &str, names: &[&str], machine: &Machine, today: i64) -> Result<Self, String> {
        let entries: Vec<Entry> = serde_json::from_str(text).map_err(|e| e.to_string())?;
        for (at, entry) in entries.iter().enumerate() {
            entry.check(names, today).map_err(|what| format!("entry {}, {}: {what}", at + 1, entry.case))?;
        }
        let own = Self(entries.into_iter().filter(|entry| entry.is_for(machine)).collect());
        for name in names {
            let mut fitting = own.0.iter().filter(|entry| fits(&entry.case, name));
            if let (Some(one), Some(other)) = (fitting.next(), fitting.next()) {
                return Err(format!("{name} is in two entries, {} and {}", one.case, other.case));
            }
        }
        Ok(own)
    }

    /// The entry of a case.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| fits(&entry.case, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[&str] = &["kfd.a.one", "kfd.a.two"];

    fn machine() -> Machine {
        Machine { chip: "gfx1100".into(), release: "1.17".into() }
    }

    fn read(entry: &str) -> Result<Expectations, String> {
        Expectations::read_on(entry, NAMES, &machine(), day("2026-11-26").unwrap())
    }

    fn entry(more: &str) -> String {
        format!(
            r#"[{{"case":"kfd.a.one","expect":"fail","reason":"x","link":"https://e.org","until":"2026-12-31"{more}}}]"#
        )
    }

    #[test]
    fn days_are_counted_as_calendars_do() {
        assert_eq!((day("1970-01-01"), day("2000-03-01"), day("2026-11-26")), (Some(0), Some(11_017), Some(20_783)));
        assert!([day("2026-13-01"), day("2026-1-1"), day("soon")].iter().all(Option::is_none));
    }

    #[test]
    fn an_entry_holds_for_its_chips_and_releases() {
        let known = |more: &str| read(&entry(more)).unwrap().of("kfd.a.one").is_some();
        assert!(known("") && known(r#","chips":["gfx1100"]"#) && known(r#","from":"1.17","to":"1.17""#));
        assert!(!known(r#","chips":["gfx942"]"#) && !known(r#","from":"1.18""#) && !known(r#","to":"1.9""#));
    }

    #[test]
    fn whatever_is_not_right_is_an_error() {
        let good = entry("");
        let wrong = [
            (good.replace("one", "none"), "no case"),
            (good.replace("\"x\"", "\" \""), "no reason"),
            (good.replace("https://e.org", "later"), "is no link"),
            (good.replace("2026-12-31", "2026-11-25"), "was to hold until"),
            (good.replace("2026-12-31", "never"), "is no day"),
            (good.replace("\"fail\"", "\"flake\""), "needs a rate"),
            (good.replace("\"fail\"", "\"maybe\""), "unknown variant"),
            (entry(r#","rate":0.5"#), "only a flake"),
            (entry(r#","what":1"#), "unknown field"),
            (entry(r#","from":"new""#), "is no release"),
            (good.replace(']', ",").to_owned() + &good[1..].replace("kfd.a.one", "kfd.a.*"), "is in two entries"),
        ];
        for (text, what) in wrong {
            let error = read(&text).unwrap_err();
            assert!(error.contains(what), "{error}: {text}");
        }
    }
}
