//! `Display` of a Tensor: its values as numpy prints an array, and Tensors as nested Vecs.
//!
//! Rules of numpy's `array2string` with its default options: at most 8 digits after the point and no more than tell the
//! number apart from its neighbours of the same type; columns aligned over the whole array; powers of ten for all where
//! one element is 10^8 or more (10^6 for f32), below 10^-4, or a thousand times another; lines of 75 characters; beyond
//! 1000 elements only the first and last three of each axis.

use super::{Error, session};
use crate::tensor::{Element, Tensor, Value};
use crate::uop::{ConstVal, Scalar, from_bits, to_bits};
use std::fmt;

/// Characters of a line.
const WIDTH: usize = 75;
/// Elements that are printed all.
const THRESHOLD: usize = 1000;
/// Elements at either end of an axis that is cut short.
const EDGE: usize = 3;
/// Digits after the point.
const PRECISION: usize = 8;

/// Values with a shape.
struct Values {
    shape: Vec<usize>,
    data: Vec<ConstVal>,
    dtype: Scalar,
}

impl fmt::Display for Tensor {
    /// Computes the Tensor and prints its values as numpy's `str` does. One that carries an error, or cannot be
    /// computed, prints that error in angle brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match values(self) {
            Ok(v) => f.write_str(&text(&v)),
            Err(error) => write!(f, "<{error}>"),
        }
    }
}

fn values(t: &Tensor) -> Result<Values, Error> {
    let (bytes, dtype, shape) = session()?.dense_bytes(t)?;
    let size = dtype.size_bytes().max(1);
    let one = |c: &[u8]| {
        let mut w = [0u8; 8];
        w[..c.len()].copy_from_slice(c);
        from_bits(u64::from_le_bytes(w), dtype)
    };
    Ok(Values { shape, data: bytes.chunks_exact(size).map(one).collect(), dtype })
}

fn text(v: &Values) -> String {
    if v.shape.is_empty() {
        return v.data.first().map(|x| alone(*x, v.dtype)).unwrap_or_default();
    }
    if v.data.is_empty() {
        return "[]".into();
    }
    let short = v.data.len() > THRESHOLD;
    let mut shown = Vec::new();
    visible(v, short, 0, 0, &mut shown);
    let format = Format::of(&shown.iter().map(|k| v.data[*k]).collect::<Vec<_>>(), v.dtype);
    Printer { v, short, format }.block(0, 0, " ", WIDTH)
}

/// Positions along an axis that are printed, and whether some are left out after the first three.
fn along(size: usize, short: bool) -> (Vec<usize>, bool) {
    if short && size > 2 * EDGE {
        ((0..EDGE).chain(size - EDGE..size).collect(), true)
    } else {
        ((0..size).collect(), false)
    }
}

/// Numbers of the elements that are printed.
fn visible(v: &Values, short: bool, axis: usize, base: usize, out: &mut Vec<usize>) {
    if axis == v.shape.len() {
        out.push(base);
        return;
    }
    for k in along(v.shape[axis], short).0 {
        visible(v, short, axis + 1, base * v.shape[axis] + k, out);
    }
}

struct Printer<'a> {
    v: &'a Values,
    short: bool,
    format: Format,
}

impl Printer<'_> {
    /// The part of the array from `axis` on that begins at element `base` of the axes before.
    fn block(&self, axis: usize, base: usize, indent: &str, width: usize) -> String {
        if axis == self.v.shape.len() {
            return self.format.element(self.v.data[base]);
        }
        let (size, left) = (self.v.shape[axis], self.v.shape.len() - axis);
        let (places, cut) = along(size, self.short);
        let (deeper, narrower) = (format!("{indent} "), width.saturating_sub(1));
        let words = places.iter().map(|k| self.block(axis + 1, base * size + k, &deeper, narrower));
        let mut words: Vec<String> = words.collect();
        if cut {
            words.insert(EDGE, "...".into());
        }
        let body =
            if left == 1 { wrapped(&words, indent, width.saturating_sub(1)) } else { stacked(&words, indent, left) };
        // The first line's indent is where the bracket stands.
        format!("[{}]", &body[indent.len()..])
    }
}

/// Words in lines of at most `width` characters.
fn wrapped(words: &[String], indent: &str, width: usize) -> String {
    let (mut done, mut line) = (String::new(), indent.to_string());
    for (k, word) in words.iter().enumerate() {
        if line.len() + word.len() > width && line.len() > indent.len() {
            done += line.trim_end();
            done.push('\n');
            line = indent.to_string();
        }
        line += word;
        if k + 1 < words.len() {
            line.push(' ');
        }
    }
    done + &line
}

fn stacked(words: &[String], indent: &str, left: usize) -> String {
    let lines: Vec<String> = words.iter().map(|w| format!("{indent}{w}")).collect();
    lines.join(&"\n".repeat(left - 1))
}

/// How the elements of one array are written.
enum Format {
    Bool,
    Int {
        width: usize,
    },
    /// Digits before the point with the sign, and after it.
    Plain {
        left: usize,
        right: usize,
        dtype: Scalar,
    },
    /// The same, and digits of the exponent.
    Power {
        left: usize,
        right: usize,
        exponent: usize,
    },
}

/// The largest number that numpy prints without a power of ten.
fn plain_limit(t: Scalar) -> f64 {
    match t {
        Scalar::F64 => 1e8,
        Scalar::F32 => 1e6,
        _ => 1e3,
    }
}

impl Format {
    fn of(shown: &[ConstVal], dtype: Scalar) -> Format {
        if dtype == Scalar::Bool {
            return Format::Bool;
        }
        if !dtype.is_float() {
            return Format::Int { width: shown.iter().map(|v| integer(*v).len()).max().unwrap_or(0) };
        }
        let list: Vec<f64> = shown.iter().map(|v| v.as_f64()).collect();
        let finite: Vec<f64> = list.iter().copied().filter(|x| x.is_finite()).collect();
        let sizes = finite.iter().map(|x| x.abs()).filter(|x| *x != 0.0);
        let (min, max) = sizes.fold((f64::INFINITY, 0.0f64), |(lo, hi), x| (lo.min(x), hi.max(x)));
        let ratio = round_to(max / min, dtype);
        let powers = max > 0.0 && (max >= plain_limit(dtype) || min < 0.0001 || ratio > 1000.0);
        let widest = |parts: &dyn Fn(f64) -> usize| finite.iter().map(|x| parts(*x)).max().unwrap_or(0);
        let mut format = if powers {
            let right = widest(&|x| shortest(x, dtype).0.len().saturating_sub(1).min(PRECISION));
            let parts = |x: f64| powered(x, right);
            Format::Power { left: widest(&|x| parts(x).0.len()), right, exponent: widest(&|x| parts(x).2.len()) }
        } else {
            let (left, right) = (widest(&|x| plain(x, dtype).0.len()), widest(&|x| plain(x, dtype).1.len()));
            Format::Plain { left, right, dtype }
        };
        if finite.len() < list.len() {
            format.make_room(3 + usize::from(list.contains(&f64::NEG_INFINITY)));
        }
        format
    }

    /// Digits after the point, with what follows.
    fn decimals(&self) -> usize {
        match self {
            Format::Plain { right, .. } => *right,
            Format::Power { right, exponent, .. } => right + 1 + exponent,
            _ => 0,
        }
    }
    /// Widens to `nan`, `inf` and `-inf`.
    fn make_room(&mut self, longest: usize) {
        let decimals = self.decimals() + 1;
        if let Format::Plain { left, .. } | Format::Power { left, .. } = self {
            *left = (*left).max(longest.saturating_sub(decimals));
        }
    }

    fn element(&self, v: ConstVal) -> String {
        let x = v.as_f64();
        match self {
            Format::Bool => if v.is_zero() { "False" } else { " True" }.into(),
            Format::Int { width } => format!("{:>width$}", integer(v)),
            Format::Plain { left, .. } | Format::Power { left, .. } if !x.is_finite() => {
                format!("{:>1$}", special(x), left + 1 + self.decimals())
            }
            Format::Plain { left, right, dtype } => {
                let (whole, part) = plain(x, *dtype);
                format!("{whole:>left$}.{part:<right$}")
            }
            Format::Power { left, right, exponent } => {
                let (whole, part, e) = powered(x, *right);
                let (sign, digits) = e.split_at(1);
                let wide = exponent - 1;
                format!("{whole:>left$}.{part}e{sign}{digits:0>wide$}")
            }
        }
    }
}

/// The nearest value of a float type.
fn round_to(x: f64, t: Scalar) -> f64 {
    from_bits(to_bits(ConstVal::Float(x), t), t).as_f64()
}

fn integer(v: ConstVal) -> String {
    v.as_int().unwrap_or(0).to_string()
}

fn special(x: f64) -> &'static str {
    match x {
        x if x.is_nan() => "nan",
        x if x < 0.0 => "-inf",
        _ => "inf",
    }
}

/// The fewest decimal digits that name `x` among the values of its type, and the exponent of the first.
fn shortest(x: f64, t: Scalar) -> (String, i32) {
    let x = x.abs();
    for digits in 0..17 {
        let text = format!("{x:.digits$e}");
        if text.parse::<f64>().is_ok_and(|back| round_to(back, t) == x) {
            let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let kept = mantissa.replace('.', "");
            let trimmed = kept.trim_end_matches('0');
            return (if trimmed.is_empty() { "0".into() } else { trimmed.into() }, exponent.parse().unwrap_or(0));
        }
    }
    ("0".into(), 0)
}

/// Sign and digits before the point, digits after it; at most 8, without zeros at the end.
fn plain(x: f64, t: Scalar) -> (String, String) {
    let (digits, exponent) = shortest(x, t);
    let decimals = usize::try_from(digits.len() as i32 - 1 - exponent).unwrap_or(0);
    let text = if decimals > PRECISION { format!("{:.PRECISION$}", x.abs()) } else { decimal(&digits, exponent) };
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let sign = if x.is_sign_negative() { "-" } else { "" };
    (format!("{sign}{whole}"), part.trim_end_matches('0').into())
}

/// Digits with the point in its place: `("12", 0)` is 1.2.
fn decimal(digits: &str, exponent: i32) -> String {
    let places = usize::try_from(exponent.unsigned_abs()).unwrap_or(0);
    if exponent < 0 {
        return format!("0.{}{digits}", "0".repeat(places - 1));
    }
    let whole: String = digits.chars().chain(std::iter::repeat('0')).take(places + 1).collect();
    let part: String = digits.chars().skip(places + 1).collect();
    format!("{whole}.{part}")
}

/// Sign and digit before the point, `right` digits after it, sign and digits (two at least) of the exponent.
fn powered(x: f64, right: usize) -> (String, String, String) {
    let text = format!("{:.right$e}", x.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let sign = if x.is_sign_negative() { "-" } else { "" };
    let e: i32 = exponent.parse().unwrap_or(0);
    (format!("{sign}{whole}"), part.into(), format!("{}{:02}", if e < 0 { '-' } else { '+' }, e.abs()))
}

/// A number by itself, as numpy prints a scalar.
fn alone(v: ConstVal, t: Scalar) -> String {
    match v {
        ConstVal::Bool(b) => if b { "True" } else { "False" }.into(),
        ConstVal::Int(i) => i.to_string(),
        ConstVal::Float(x) if !x.is_finite() => special(x).into(),
        ConstVal::Float(x) => {
            let (digits, exponent) = shortest(x, t);
            let sign = if x.is_sign_negative() { "-" } else { "" };
            if x != 0.0 && !(-4..16).contains(&exponent) {
                let (first, rest) = digits.split_at(1);
                let point = if rest.is_empty() { "" } else { "." };
                let e = format!("{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
                return format!("{sign}{first}{point}{rest}e{e}");
            }
            let text = decimal(&digits, exponent);
            format!("{sign}{text}{}", if text.ends_with('.') { "0" } else { "" })
        }
    }
}

/// Vecs of Vecs of elements, to any depth: what [`Tensor::to_nested`] gives.
pub trait FromNested: Sized {
    /// The type of the elements.
    type Element: Element;
    /// How deep it is.
    const RANK: usize;
    /// Takes its elements from the front of a list.
    fn take(shape: &[usize], list: &mut std::vec::IntoIter<Self::Element>) -> Option<Self>;
}
macro_rules! elements_nest {
    ($($t:ty)*) => {$(
        impl FromNested for $t {
            type Element = $t;
            const RANK: usize = 0;
            fn take(_: &[usize], list: &mut std::vec::IntoIter<$t>) -> Option<$t> {
                list.next()
            }
        }
    )*};
}
elements_nest! { bool i8 u8 i16 u16 i32 u32 i64 u64 f32 f64 half::f16 half::bf16 }
impl<T: FromNested> FromNested for Vec<T> {
    type Element = T::Element;
    const RANK: usize = T::RANK + 1;
    fn take(shape: &[usize], list: &mut std::vec::IntoIter<T::Element>) -> Option<Vec<T>> {
        let (first, rest) = shape.split_first()?;
        (0..*first).map(|_| T::take(rest, list)).collect()
    }
}

impl Tensor {
    /// The elements in Vecs as deep as the Tensor has axes (`tolist()`, and `numpy()` where the shape is to be kept):
    /// `x.to_nested::<Vec<Vec<f32>>>()`.
    ///
    /// # Errors
    /// As `realize`; the element type is not the dtype's, or the depth not the rank.
    pub fn to_nested<T: FromNested>(&self) -> Result<T, Error> {
        let shape = self.node()?.shape().to_vec();
        if shape.len() != T::RANK {
            return Err(Error::WrongRank { have: shape.len(), want: T::RANK });
        }
        let (bytes, have, shape) = session()?.dense_bytes(self)?;
        if have != T::Element::SCALAR {
            return Err(Error::WrongType { have, want: T::Element::SCALAR });
        }
        let lost = || Error::Internal("a Tensor with fewer elements than its shape says".into());
        T::take(&shape, &mut T::Element::get(&bytes).into_iter()).ok_or_else(lost)
    }
    /// [`Tensor::to_nested`], under PyTorch's and tinygrad's name.
    ///
    /// # Errors
    /// As [`Tensor::to_nested`].
    pub fn tolist<T: FromNested>(&self) -> Result<T, Error> {
        self.to_nested()
    }
}
