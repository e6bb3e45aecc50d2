//! A training curve as a small stand-alone SVG: loss on the left axis, accuracy on the right.

use std::fmt::Write;

/// The point of one epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub loss: f64,
    /// Share of held-out rows that were classified correctly, 0..=1.
    pub accuracy: f64,
}

const W: f64 = 720.0;
const H: f64 = 400.0;
const MARGIN: f64 = 48.0;

/// The curve as SVG text.
pub(crate) fn svg(title: &str, points: &[Point]) -> String {
    let max_loss = points.iter().map(|p| p.loss).filter(|l| l.is_finite()).fold(1e-9, f64::max);
    let min_acc = points.iter().map(|p| p.accuracy).fold(1.0, f64::min).min(0.9);
    let x = |k: usize| MARGIN + (W - 2.0 * MARGIN) * k as f64 / (points.len().max(2) - 1) as f64;
    let y = |share: f64| H - MARGIN - (H - 2.0 * MARGIN) * share.clamp(0.0, 1.0);
    let path = |f: &dyn Fn(&Point) -> f64| {
        points.iter().enumerate().fold(String::new(), |mut s, (k, p)| {
            let _ = write!(s, "{}{:.1},{:.1} ", if k == 0 { "M" } else { "L" }, x(k), y(f(p)));
            s
        })
    };
    let mut out = String::new();
    let _ = write!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {W} {H}" font-family="sans-serif" font-size="12">
<rect width="{W}" height="{H}" fill="#ffffff"/>
<text x="{MARGIN}" y="24" font-size="15" fill="#222222">{title}</text>
"##
    );
    for k in 0..=4 {
        let s = f64::from(k) / 4.0;
        let (yy, acc) = (y(s), 100.0 * (min_acc + (1.0 - min_acc) * s));
        let _ = writeln!(
            out,
            r##"<line x1="{MARGIN}" y1="{yy:.1}" x2="{:.1}" y2="{yy:.1}" stroke="#dddddd"/><text x="8" y="{:.1}" fill="#b33a2b">{:.2}</text><text x="{:.1}" y="{:.1}" fill="#1f5fa8">{acc:.1}%</text>"##,
            W - MARGIN,
            yy + 4.0,
            max_loss * s,
            W - MARGIN + 4.0,
            yy + 4.0
        );
    }
    let _ = write!(
        out,
        r##"<path d="{}" fill="none" stroke="#b33a2b" stroke-width="2"/>
<path d="{}" fill="none" stroke="#1f5fa8" stroke-width="2"/>
<text x="{MARGIN}" y="{:.1}" fill="#222222">epochs 1 to {}; red: training loss, blue: held-out accuracy</text>
</svg>
"##,
        path(&|p| p.loss / max_loss),
        path(&|p| (p.accuracy - min_acc) / (1.0 - min_acc).max(1e-9)),
        H - 12.0,
        points.len()
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_has_two_lines_with_a_point_an_epoch() {
        let pts = [Point { loss: 2.0, accuracy: 0.5 }, Point { loss: 0.1, accuracy: 0.98 }];
        let s = svg("digits", &pts);
        assert_eq!(s.matches("<path").count(), 2);
        assert!(s.contains("epochs 1 to 2") && s.ends_with("</svg>\n"));
    }
}
