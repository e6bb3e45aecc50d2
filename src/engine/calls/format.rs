//! The text of a device's `printf`: the C library's conversions, applied to the arguments of a record.
//!
//! The directives are read as the device's function reads them (`isa::nvidia::runtime`), so that both agree about the
//! arguments. `%n` takes its argument and writes nothing.

use std::fmt::Write;

/// The arguments of a record in order.
#[derive(Debug)]
pub(super) struct Arguments<'a>(pub &'a [u8]);

impl<'a> Arguments<'a> {
    fn number(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    /// `None` for a null pointer, else the bytes before the NUL.
    fn string(&mut self) -> Option<Option<&'a [u8]>> {
        if self.number()? == 0 {
            return Some(None);
        }
        Some(Some(text(&mut self.0)?))
    }
}

/// The bytes before the NUL; `from` goes on after it and the padding to 8.
pub(super) fn text<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let all: &'a [u8] = from;
    let len = all.iter().position(|b| *b == 0)?;
    *from = all.get((len + 1).next_multiple_of(8)..)?;
    all.get(..len)
}

/// One directive without its conversion.
#[derive(Clone, Debug, Default)]
struct Spec {
    minus: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
    /// Characters `h`.
    halves: u32,
    wide: bool,
}

/// Longest padding: a width from memory may be any number.
const MAX_FIELD: usize = 1 << 16;

/// The text of a format; `None`: the arguments end before it does.
pub(super) fn format(format: &[u8], args: &mut Arguments) -> Option<Vec<u8>> {
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(char) = format.get(at) {
        at += 1;
        if *char != b'%' {
            out.push(*char);
            continue;
        }
        let start = at - 1;
        let (spec, conversion, next) = directive(format, at, args)?;
        at = next;
        match conversion {
            Some(b'%') => out.push(b'%'),
            Some(c) if b"diouxXcfFeEgGaApsn".contains(&c) => convert(&mut out, &spec, c, args)?,
            // Printed as it is.
            _ => out.extend_from_slice(format.get(start..at).unwrap_or_default()),
        }
    }
    Some(out)
}

/// The directive whose characters begin at `at`, its conversion if there is one, and where the text goes on.
fn directive(format: &[u8], mut at: usize, args: &mut Arguments) -> Option<(Spec, Option<u8>, usize)> {
    let mut spec = Spec::default();
    while let Some(char) = format.get(at) {
        at += 1;
        match char {
            b'*' => spec.star(args.number()? as u32 as i32),
            b'-' => spec.minus = true,
            b'+' => spec.plus = true,
            b' ' => spec.space = true,
            b'#' => spec.alternate = true,
            b'\'' => {}
            b'.' => spec.precision = Some(0),
            b'0' if spec.width == 0 && spec.precision.is_none() => spec.zero = true,
            b'0'..=b'9' => spec.digit(usize::from(char - b'0')),
            b'h' => spec.halves += 1,
            b'l' | b'j' | b'z' | b't' | b'q' | b'L' => spec.wide = true,
            c => return Some((spec, Some(*c), at)),
        }
    }
    Some((spec, None, at))
}

impl Spec {
    fn digit(&mut self, digit: usize) {
        let number = self.precision.as_mut().unwrap_or(&mut self.width);
        *number = (*number * 10 + digit).min(MAX_FIELD);
    }

    /// A negative width is a `-` and a width; a negative precision is none.
    fn star(&mut self, value: i32) {
        let size = (value.unsigned_abs() as usize).min(MAX_FIELD);
        match &mut self.precision {
            Some(_) if value < 0 => self.precision = None,
            Some(precision) => *precision = size,
            None => (self.minus, self.width) = (self.minus || value < 0, size),
        }
    }

    /// Puts sign or prefix and body into the field.
    fn field(&self, out: &mut Vec<u8>, prefix: &str, body: &[u8], may_fill: bool) {
        let fill = self.width.saturating_sub(prefix.len() + body.len());
        let zeros = self.zero && may_fill && !self.minus;
        let pad = |out: &mut Vec<u8>, with: u8| out.resize(out.len() + fill, with);
        if !self.minus && !zeros {
            pad(out, b' ');
        }
        out.extend_from_slice(prefix.as_bytes());
        if zeros {
            pad(out, b'0');
        }
        out.extend_from_slice(body);
        if self.minus {
            pad(out, b' ');
        }
    }

    fn sign(&self, is_negative: bool) -> &'static str {
        match (is_negative, self.plus, self.space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        }
    }
}

fn convert(out: &mut Vec<u8>, spec: &Spec, conversion: u8, args: &mut Arguments) -> Option<()> {
    match conversion {
        b's' => {
            let text = args.string()?;
            // As glibc: a null pointer is not cut.
            let text = text.unwrap_or(if spec.precision.is_none_or(|p| p >= 6) { b"(null)" } else { b"" });
            let len = spec.precision.map_or(text.len(), |p| p.min(text.len()));
            spec.field(out, "", text.get(..len).unwrap_or_default(), false);
        }
        b'c' => spec.field(out, "", &[args.number()? as u8], false),
        b'p' => match args.number()? {
            0 => spec.field(out, "", b"(nil)", false),
            n => spec.field(out, "0x", format!("{n:x}").as_bytes(), spec.precision.is_none()),
        },
        b'n' => drop(args.number()?),
        b'd' | b'i' => signed(out, spec, args.number()?),
        b'o' | b'u' | b'x' | b'X' => unsigned(out, spec, conversion, args.number()?),
        _ => float(out, spec, conversion, f64::from_bits(args.number()?)),
    }
    Some(())
}

fn signed(out: &mut Vec<u8>, spec: &Spec, bits: u64) {
    let value = match (spec.wide, spec.halves) {
        (true, _) => bits.cast_signed(),
        (_, 0) => i64::from(bits as u32 as i32),
        (_, 1) => i64::from(bits as u16 as i16),
        _ => i64::from(bits as u8 as i8),
    };
    let digits = digits(value.unsigned_abs().to_string(), spec, value == 0);
    spec.field(out, spec.sign(value < 0), digits.as_bytes(), spec.precision.is_none());
}

fn unsigned(out: &mut Vec<u8>, spec: &Spec, conversion: u8, bits: u64) {
    let value = match (spec.wide, spec.halves) {
        (true, _) => bits,
        (_, 0) => u64::from(bits as u32),
        (_, 1) => u64::from(bits as u16),
        _ => u64::from(bits as u8),
    };
    let (text, prefix) = match conversion {
        b'o' => (format!("{value:o}"), ""),
        b'x' => (format!("{value:x}"), "0x"),
        b'X' => (format!("{value:X}"), "0X"),
        _ => (value.to_string(), ""),
    };
    let mut digits = digits(text, spec, value == 0);
    if conversion == b'o' && spec.alternate && !digits.starts_with('0') {
        digits.insert(0, '0');
    }
    let prefix = if spec.alternate && value != 0 { prefix } else { "" };
    spec.field(out, prefix, digits.as_bytes(), spec.precision.is_none());
}

/// At least as many digits as the precision; none of a zero whose precision is 0.
fn digits(text: String, spec: &Spec, is_zero: bool) -> String {
    match spec.precision {
        Some(0) if is_zero => String::new(),
        Some(least) => format!("{text:0>least$}"),
        None => text,
    }
}

fn float(out: &mut Vec<u8>, spec: &Spec, conversion: u8, value: f64) {
    let size = value.abs();
    let sign = spec.sign(value.is_sign_negative());
    if !value.is_finite() {
        let text = if value.is_nan() { "nan" } else { "inf" };
        let text = if conversion.is_ascii_uppercase() { text.to_uppercase() } else { text.to_owned() };
        return spec.field(out, sign, text.as_bytes(), false);
    }
    let (mut prefix, precision) = (sign.to_owned(), spec.precision.unwrap_or(6));
    let text = match conversion.to_ascii_lowercase() {
        b'f' => point(format!("{size:.precision$}"), spec),
        b'e' => exponential(size, precision, spec, false),
        b'g' => general(size, precision.max(1), spec),
        _ => {
            prefix.push_str("0x");
            hexadecimal(size, spec)
        }
    };
    let upper = conversion.is_ascii_uppercase();
    let text = if upper { text.to_uppercase() } else { text };
    let prefix = if upper { prefix.to_uppercase() } else { prefix };
    spec.field(out, &prefix, text.as_bytes(), true);
}

/// `#`: a point also without digits after it.
fn point(mut text: String, spec: &Spec) -> String {
    if spec.alternate && !text.contains('.') {
        text.push('.');
    }
    text
}

fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

fn exponential(size: f64, precision: usize, spec: &Spec, trims: bool) -> String {
    let text = format!("{size:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let mantissa = if trims { without_zeros(mantissa).to_owned() } else { point(mantissa.to_owned(), spec) };
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
    format!("{mantissa}e{sign}{exponent:0>2}")
}

fn general(size: f64, digits: usize, spec: &Spec) -> String {
    let rounded = format!("{size:.*e}", digits - 1);
    let exponent: i64 = rounded.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    let most = i64::try_from(digits).unwrap_or(i64::MAX);
    if exponent < -4 || exponent >= most {
        return exponential(size, digits - 1, spec, !spec.alternate);
    }
    let after = usize::try_from(most - 1 - exponent).unwrap_or(0);
    let text = format!("{size:.after$}");
    if spec.alternate { point(text, spec) } else { without_zeros(&text).to_owned() }
}

/// `%a` without its prefix.
fn hexadecimal(size: f64, spec: &Spec) -> String {
    const FRACTION_BITS: u32 = 52;
    let bits = size.to_bits();
    let (raw, fraction) = ((bits >> FRACTION_BITS) as i64, bits & ((1 << FRACTION_BITS) - 1));
    let exponent = match (raw, fraction) {
        (0, 0) => 0,
        (0, _) => -1022,
        (raw, _) => raw - 1023,
    };
    let mut mantissa = fraction | u64::from(raw != 0) << FRACTION_BITS;
    let mut left = 13;
    if let Some(precision) = spec.precision.filter(|p| *p < 13) {
        // To the nearest, ties to even.
        let cut = 4 * (13 - precision as u32);
        let (rest, half) = (mantissa & ((1 << cut) - 1), 1u64 << (cut - 1));
        mantissa >>= cut;
        mantissa += u64::from(rest > half || rest == half && mantissa & 1 == 1);
        left = precision;
    }
    let (whole, below) = (mantissa >> (4 * left), mantissa & ((1u64 << (4 * left)) - 1));
    let mut digits = if left == 0 { String::new() } else { format!("{below:0left$x}") };
    match spec.precision {
        None => digits.truncate(digits.trim_end_matches('0').len()),
        Some(precision) => digits.extend(std::iter::repeat_n('0', precision.saturating_sub(13))),
    }
    let mut text = whole.to_string();
    if !digits.is_empty() || spec.alternate {
        let _ = write!(text, ".{digits}");
    }
    let _ = write!(text, "p{exponent:+}");
    text
}
