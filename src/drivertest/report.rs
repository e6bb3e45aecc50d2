//! A run's result as KTAP, JUnit's XML, JSON and lines of text.
//!
//! Source: Documentation/dev-tools/ktap.rst (version 1: nested by four more spaces, `# SKIP` with a reason);
//! JUnit's schema as CI systems read it. A skip is `ok ... # SKIP` in KTAP, as its rules say, and `skipped` in JUnit;
//! it never counts as passed.

use crate::case::Verdict;
use crate::run::{Record, Report, Shown};
use std::fmt::Write;

/// Records by family, in their order.
fn families(report: &Report) -> Vec<(String, Vec<&Record>)> {
    let mut families: Vec<(String, Vec<&Record>)> = Vec::new();
    for record in &report.records {
        let family = record.case.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
        match families.iter_mut().find(|(name, _)| *name == family) {
            Some((_, records)) => records.push(record),
            None => families.push((family, vec![record])),
        }
    }
    families
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('#', "no.")
}

/// KTAP version 1: a test a family, its cases below it.
#[must_use]
pub fn ktap(report: &Report) -> String {
    let families = families(report);
    let mut text = format!("KTAP version 1\n1..{}\n", families.len());
    for (at, (family, records)) in families.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "    KTAP version 1\n    # Subtest: {family}\n    1..{}", records.len());
        for (at, record) in records.iter().enumerate() {
            ktap_case(&mut text, at + 1, record);
        }
        let bad = records.iter().any(|record| record.is_bad());
        let skipped = records.iter().all(|record| record.verdict == Verdict::Skip);
        let skip = if skipped { " # SKIP all of it" } else { "" };
        let _ = writeln!(text, "{} {} {family}{skip}", if bad { "not ok" } else { "ok" }, at + 1);
    }
    text
}

fn ktap_case(text: &mut String, at: usize, record: &Record) {
    let name = record.case.splitn(3, '.').nth(2).unwrap_or(&record.case);
    if record.verdict == Verdict::Skip {
        let key = record.key.as_deref().unwrap_or("skip");
        let _ = writeln!(text, "    ok {at} {name} # SKIP {key}: {}", one_line(&record.why));
        return;
    }
    if record.verdict != Verdict::Pass || record.shown != Shown::Plain {
        let _ = writeln!(text, "    # {name}: {} {}", word(record), one_line(&record.why));
    }
    let _ = writeln!(text, "    {} {at} {name}", if record.is_bad() { "not ok" } else { "ok" });
}

/// Verdict, and how it compares with the expectations.
fn word(record: &Record) -> String {
    let verdict = record.verdict.word();
    match record.shown {
        Shown::Plain => verdict.to_owned(),
        Shown::ExpectedFail => format!("{verdict} (expected)"),
        Shown::Flake => format!("{verdict} (flake)"),
        Shown::UnexpectedPass => "pass (a failure was expected)".to_owned(),
        Shown::ExpectedSkip => "skip (expected)".to_owned(),
    }
}

fn xml(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    // XML has no control characters.
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '?' } else { c }).collect()
}

/// JUnit's XML: a suite a family.
#[must_use]
pub fn junit(report: &Report) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for (family, records) in families(report) {
        let failures = records.iter().filter(|record| record.is_bad()).count();
        let skipped = records.iter().filter(|record| record.verdict == Verdict::Skip).count();
        let seconds: f64 = records.iter().map(|record| record.seconds).sum();
        let _ = writeln!(
            text,
            "  <testsuite name=\"{family}\" tests=\"{}\" failures=\"{failures}\" skipped=\"{skipped}\" time=\"{seconds:.3}\">",
            records.len()
        );
        for record in records {
            let name = xml(record.case.splitn(3, '.').nth(2).unwrap_or(&record.case));
            let _ = write!(text, "    <testcase classname=\"{family}\" name=\"{name}\" time=\"{:.3}\"", record.seconds);
            let (kind, why) = (xml(&word(record)), xml(&record.why));
            let _ = match record.verdict {
                _ if record.is_bad() => writeln!(text, "><failure type=\"{kind}\" message=\"{why}\"/></testcase>"),
                Verdict::Skip => {
                    let key = xml(record.key.as_deref().unwrap_or("skip"));
                    writeln!(text, "><skipped message=\"{key}: {why}\"/></testcase>")
                }
                _ => writeln!(text, "/>"),
            };
        }
        text.push_str("  </testsuite>\n");
    }
    text.push_str("</testsuites>\n");
    text
}

/// One object.
#[must_use]
pub fn json(report: &Report) -> serde_json::Value {
    let mut counts = serde_json::Map::new();
    for record in &report.records {
        let count = counts.entry(record.verdict.word()).or_insert(0.into());
        *count = (count.as_u64().unwrap_or(0) + 1).into();
    }
    serde_json::json!({
        "ok": report.is_ok(),
        "counts": counts,
        "bad": report.records.iter().filter(|record| record.is_bad()).count(),
        "unmet": report.unmet,
        "records": report.records,
    })
}

/// A line for a person.
#[must_use]
pub fn line(record: &Record) -> String {
    let why = if record.why.is_empty() { String::new() } else { format!("  {}", record.why) };
    let key = record.key.as_ref().map(|key| format!(" [{key}]")).unwrap_or_default();
    format!("{:<12} {:>7.3} s  {}{key}{why}", word(record), record.seconds, record.case)
}

/// The last line for a person.
#[must_use]
pub fn summary(report: &Report) -> String {
    let bad = report.records.iter().filter(|record| record.is_bad()).count();
    let (passed, skipped) = (report.count(Verdict::Pass), report.count(Verdict::Skip));
    format!("{} cases: {passed} passed, {bad} bad, {skipped} skipped", report.records.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(case: &str, verdict: Verdict, why: &str) -> Record {
        let key = (verdict == Verdict::Skip).then(|| "two-cards".to_owned());
        Record { case: case.into(), verdict, why: why.into(), key, shown: Shown::Plain, seconds: 0.5, seed: 1, runs: 1 }
    }

    fn report() -> Report {
        let records = vec![
            record("kfd.open.version", Verdict::Pass, ""),
            record("kfd.open.twice", Verdict::Fail, "got <1> # & want \"2\""),
            record("kfd.peer.vram", Verdict::Skip, "there is one card"),
        ];
        Report { records, unmet: Vec::new() }
    }

    #[test]
    fn ktap_nests_families_and_gives_skips_a_reason() {
        let want = "KTAP version 1\n1..2\n    KTAP version 1\n    # Subtest: kfd.open\n    1..2\n    ok 1 version\n    # twice: \
                    fail got <1> no. & want \"2\"\n    not ok 2 twice\nnot ok 1 kfd.open\n    KTAP version 1\n    # Subtest: \
                    kfd.peer\n    1..1\n    ok 1 vram # SKIP two-cards: there is one card\nok 2 kfd.peer # SKIP all of it\n";
        assert_eq!(ktap(&report()), want);
    }

    #[test]
    fn junit_escapes_and_counts() {
        let text = junit(&report());
        assert!(text.contains("<testsuite name=\"kfd.open\" tests=\"2\" failures=\"1\" skipped=\"0\""), "{text}");
        assert!(text.contains("message=\"got &lt;1&gt; # &amp; want &quot;2&quot;\""), "{text}");
        assert!(text.contains("<skipped message=\"two-cards: there is one card\"/>"), "{text}");
    }

    #[test]
    fn a_skip_never_counts_as_passed() {
        let json = json(&report());
        assert_eq!((json["counts"]["pass"].as_u64(), json["counts"]["skip"].as_u64()), (Some(1), Some(1)));
        assert_eq!(summary(&report()), "3 cases: 1 passed, 1 bad, 1 skipped");
    }
}
