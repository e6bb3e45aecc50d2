//! A record as text, CSV, JUnit, lines of samples, and plots.

pub mod plot;
pub mod table;

use crate::record::{CaseRecord, Record, Status};
use std::fmt::Write;

/// Columns of the CSV file.
pub const COLUMNS: &[&str] = &[
    "device",
    "case",
    "id",
    "status",
    "reason",
    "value",
    "unit",
    "n",
    "min_ns",
    "q1_ns",
    "median_ns",
    "q3_ns",
    "p99_ns",
    "low_ns",
    "high_ns",
    "work",
    "clock",
    "throttled",
    "clock_mhz_low",
    "clock_mhz_high",
    "together",
];

/// A line a case.
///
/// # Errors
/// None that memory does not give.
pub fn csv(record: &Record) -> Result<String, csv::Error> {
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(COLUMNS)?;
    for r in &record.results {
        out.write_record(fields(r))?;
    }
    let bytes = out.into_inner().map_err(|e| csv::Error::from(e.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn fields(r: &CaseRecord) -> Vec<String> {
    let number = |x: Option<f64>| x.map_or_else(String::new, |x| x.to_string());
    let of = |f: fn(&crate::stats::Summary) -> f64| number(r.ns.as_ref().map(f));
    vec![
        r.device.clone(),
        r.case.clone(),
        r.id.clone(),
        r.status.word().into(),
        r.reason.clone().unwrap_or_default(),
        number(r.value),
        r.unit.symbol().into(),
        r.ns.map_or_else(String::new, |s| s.n.to_string()),
        of(|s| s.min),
        of(|s| s.q1),
        of(|s| s.median),
        of(|s| s.q3),
        of(|s| s.p99),
        of(|s| s.low),
        of(|s| s.high),
        r.work.to_string(),
        r.clock.clone(),
        r.throttled.to_string(),
        number(r.clock_mhz.map(|[low, _]| low)),
        number(r.clock_mhz.map(|[_, high]| high)),
        r.together.join(" "),
    ]
}

/// A line of JSON for each sample: device, id, pass, number, nanoseconds, whether the clock was low.
#[must_use]
pub fn samples(record: &Record) -> String {
    let mut out = String::new();
    for r in &record.results {
        for (pass, list) in r.samples.iter().enumerate() {
            for (n, ns) in list.iter().enumerate() {
                let is_low = r.is_throttled(pass, n);
                let line = serde_json::json!({
                    "device": r.device, "id": r.id, "pass": pass, "sample": n, "ns": ns, "throttled": is_low});
                let _ = writeln!(out, "{line}");
            }
        }
    }
    out
}

/// JUnit's XML: a suite a device, a test a case. What a device lacks is skipped; a case that was wrong fails; one that
/// could not be run to its end is an error.
#[must_use]
pub fn junit(record: &Record) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"doorbell bench\">\n");
    let mut names: Vec<&str> = Vec::new();
    for r in &record.results {
        if !names.contains(&r.device.as_str()) {
            names.push(&r.device);
        }
    }
    for name in names {
        let of = || record.results.iter().filter(|r| r.device == name);
        let count = |statuses: &[Status]| of().filter(|r| statuses.contains(&r.status)).count();
        let errors = count(&[Status::Failed, Status::Hung, Status::Lost]);
        let _ = writeln!(
            out,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{errors}\" skipped=\"{}\">",
            escaped(name),
            of().count(),
            count(&[Status::Wrong]),
            count(&[Status::LeftOut])
        );
        of().for_each(|r| test(&mut out, r));
        out += "  </testsuite>\n";
    }
    out + "</testsuites>\n"
}

fn test(out: &mut String, r: &CaseRecord) {
    let seconds = (r.made_ns as f64 + r.all_samples().iter().sum::<f64>() * r.runs as f64) / 1e9;
    let _ = write!(
        out,
        "    <testcase classname=\"{}\" name=\"{}\" time=\"{seconds:.6}\"",
        escaped(&r.case),
        escaped(&r.id)
    );
    let reason = escaped(r.reason.as_deref().unwrap_or_default());
    let tag = match r.status {
        Status::Ok => {
            *out += "/>\n";
            return;
        }
        Status::LeftOut => "skipped",
        Status::Wrong => "failure",
        _ => "error",
    };
    let _ = writeln!(out, ">\n      <{tag} message=\"{reason}\"/>\n    </testcase>");
}

/// Text as XML has it; control characters that XML forbids become blanks.
#[must_use]
pub(crate) fn escaped(text: &str) -> String {
    let one = |c: char| match c {
        '&' => "&amp;".into(),
        '<' => "&lt;".into(),
        '>' => "&gt;".into(),
        '"' => "&quot;".into(),
        c if c.is_control() => " ".into(),
        c => c.to_string(),
    };
    text.chars().map(one).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::BenchError;
    use crate::run::{host, unopened};
    use std::collections::BTreeMap;

    #[test]
    fn a_reader_of_csv_and_one_of_xml_get_back_a_reason_of_any_text() {
        let reason = "line 1, \"quoted\"\nline 2; <a & b>";
        let failed = unopened("NV:1", &BenchError::Empty(reason.into()));
        let record = Record {
            schema: crate::record::SCHEMA,
            version: String::new(),
            unix_time: 0,
            host: host(),
            settings: BTreeMap::new(),
            devices: Vec::new(),
            results: vec![failed],
            seconds: 0.0,
        };
        let text = csv(&record).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        assert!(reader.headers().unwrap().iter().eq(COLUMNS.iter().copied()));
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        assert_eq!((rows.len(), &rows[0][0], &rows[0][3], &rows[0][4]), (1, "NV:1", "failed", reason));
        let xml = junit(&record);
        assert!(xml.contains("errors=\"1\"") && xml.contains("&quot;quoted&quot; line 2; &lt;a &amp; b&gt;"), "{xml}");
    }
}
