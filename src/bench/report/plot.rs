//! Results as one SVG file: a panel a family, a bar a case, with whiskers from the first to the third quartile.

use super::escaped;
use super::table::short;
use crate::record::{CaseRecord, Record};
use std::fmt::Write;

const WIDTH: f64 = 900.0;
const NAMES: f64 = 380.0;
const VALUES: f64 = 130.0;
const ROW: f64 = 18.0;
const HEAD: f64 = 34.0;

/// The file's text. Bars of a panel share a scale for each unit: the best one is the longest.
#[must_use]
pub fn svg(record: &Record) -> String {
    let measured: Vec<&CaseRecord> = record.results.iter().filter(|r| r.value.is_some()).collect();
    let mut families: Vec<(&str, &str)> = Vec::new();
    for r in &measured {
        let key = (r.device.as_str(), family(r));
        if !families.contains(&key) {
            families.push(key);
        }
    }
    let mut body = String::new();
    let mut y = 50.0;
    for (device, name) in families {
        let rows: Vec<&CaseRecord> =
            measured.iter().copied().filter(|r| (r.device.as_str(), family(r)) == (device, name)).collect();
        panel(&mut body, &mut y, &format!("{device}: {name}"), &rows);
    }
    let title = format!("{} ({}), doorbell {}", record.host.name, record.host.cpu, record.version);
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:.0}" font-family="sans-serif" font-size="12">
<rect width="{WIDTH}" height="{y:.0}" fill="#ffffff"/>
<text x="16" y="28" font-size="15" fill="#222222">{}</text>
{body}</svg>
"##,
        escaped(&title)
    )
}

fn family(r: &CaseRecord) -> &str {
    r.case.split('/').next().unwrap_or(&r.case)
}

fn panel(out: &mut String, y: &mut f64, title: &str, rows: &[&CaseRecord]) {
    let _ = writeln!(
        out,
        r##"<text x="16" y="{:.1}" font-weight="bold" fill="#222222">{}</text>"##,
        *y + 18.0,
        escaped(title)
    );
    *y += HEAD - 8.0;
    for r in rows {
        let same = rows.iter().filter(|other| other.unit == r.unit);
        let most = same.filter_map(|other| other.value).fold(1e-300, f64::max);
        bar(out, *y, r, most);
        *y += ROW;
    }
    *y += 8.0;
}

fn bar(out: &mut String, y: f64, r: &CaseRecord, most: f64) {
    let Some((ns, value)) = r.ns.zip(r.value) else { return };
    let room = WIDTH - NAMES - VALUES - 16.0;
    let at = |value: f64| NAMES + room * (value / most).clamp(0.0, 1.15);
    let (a, b) = (r.unit.value(r.work, ns.q1), r.unit.value(r.work, ns.q3));
    let colour = if r.unit.more_is_better() { "#1f5fa8" } else { "#b3602b" };
    let middle = y + ROW / 2.0;
    let name = escaped(r.id.split_once('/').map_or(r.id.as_str(), |(_, rest)| rest));
    let _ = writeln!(
        out,
        r##"<text x="{:.1}" y="{:.1}" text-anchor="end" fill="#444444">{name}</text><rect x="{NAMES}" y="{:.1}" width="{:.1}" height="{:.1}" fill="{colour}"/><line x1="{:.1}" y1="{middle:.1}" x2="{:.1}" y2="{middle:.1}" stroke="#111111"/><text x="{:.1}" y="{:.1}" fill="#222222">{} {}</text>"##,
        NAMES - 6.0,
        y + 13.0,
        y + 3.0,
        (at(value) - NAMES).max(0.5),
        ROW - 6.0,
        at(a.min(b)),
        at(a.max(b)),
        at(value.max(a).max(b)) + 6.0,
        y + 13.0,
        short(value),
        r.unit.symbol()
    );
}
