//! Which cases a run is about: patterns, tags, shards.

use crate::case::Case;

/// A choice of cases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Select {
    /// Names with `*`, any of which fits; none is every case.
    pub patterns: Vec<String>,
    /// Tags, all of which a case must have: driver, family, `provokes`.
    pub tags: Vec<String>,
    /// Names with `*` that are left out.
    pub without: Vec<String>,
    /// Which part of how many, from 0.
    pub shard: Option<(usize, usize)>,
}

/// Whether a name fits a pattern: `*` is any text, and the whole name has to fit.
#[must_use]
pub fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// A case's tags.
#[must_use]
pub fn tags(case: &Case) -> Vec<String> {
    let driver = case.name.split('.').next().unwrap_or("").to_owned();
    let mut tags = vec![driver, case.family().to_owned()];
    if !case.log.is_empty() {
        tags.push("provokes".to_owned());
    }
    tags
}

impl Select {
    /// The cases that it chooses, in their order.
    #[must_use]
    pub fn of<'a>(&self, cases: &'a [Case]) -> Vec<&'a Case> {
        let any = |patterns: &[String], name: &str| patterns.iter().any(|pattern| fits(pattern, name));
        let wanted = |case: &&Case| {
            (self.patterns.is_empty() || any(&self.patterns, &case.name))
                && !any(&self.without, &case.name)
                && self.tags.iter().all(|tag| tags(case).contains(tag))
        };
        let chosen = cases.iter().filter(wanted).enumerate();
        let in_shard = |at: usize| self.shard.is_none_or(|(part, of)| at % of.max(1) == part);
        chosen.filter(|(at, _)| in_shard(*at)).map(|(_, case)| case).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_names() {
        assert!(fits("kfd.*", "kfd.open.version") && fits("*.version", "kfd.open.version") && fits("*", "x"));
        assert!(fits("kfd.*.ver*n", "kfd.open.version") && fits("a", "a"));
        assert!(!fits("kfd", "kfd.open") && !fits("*.vers", "kfd.open.version") && !fits("a*b*a", "aba-"));
    }

    #[test]
    fn shards_are_all_cases_once() {
        let cases: Vec<Case> = (0..10).map(|n| Case::new(format!("kfd.f.{n}"), "", |_| Ok(()))).collect();
        let part = |part| Select { shard: Some((part, 3)), ..Select::default() }.of(&cases).len();
        assert_eq!([part(0), part(1), part(2)], [4, 3, 3]);
    }
}
