//! Arguments of a foreign kernel as text: `in:FILE`, `inout:FILE:OUT`, `out:BYTES:OUT`, `same:ARG`, `null`, `hex:...`,
//! `f32:1.5`.

use std::path::PathBuf;
use std::str::FromStr;

/// One kernel argument.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Spec {
    /// A buffer with a file's bytes.
    In(PathBuf),
    /// A buffer with a file's bytes, written to another file after the launch.
    InOut { from: PathBuf, to: PathBuf },
    /// A buffer of zeros, written to a file after the launch.
    Out { len_bytes: u64, to: PathBuf },
    /// The buffer of an earlier argument, by its index from 0: kernels with tensor maps get a matrix's address twice.
    Same(usize),
    /// A scalar's bytes, little-endian; a null pointer is eight zeros.
    Bytes(Vec<u8>),
}

/// The valid forms, for messages.
pub(crate) const FORMS: &str = "in:FILE, inout:FILE:OUT, out:BYTES:OUT, same:ARG, null, u8: i8: u16: i16: u32: i32: u64: i64: f32: f64:VALUE, hex:BYTES";

/// Largest by-value argument: the kernel arguments of a launch fit in a page.
const HEX_MAX: usize = 2048;

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> Result<Spec, String> {
        let wrong = |why: &str| Err(format!("argument {text:?}: {why}; valid: {FORMS}"));
        if text == "null" {
            return Ok(Spec::Bytes(vec![0; 8]));
        }
        let Some((kind, rest)) = text.split_once(':') else { return wrong("no kind") };
        if rest.is_empty() {
            return wrong("nothing after the kind");
        }
        match kind {
            "in" => Ok(Spec::In(rest.into())),
            "inout" => match rest.split_once(':') {
                Some((from, to)) if !from.is_empty() && !to.is_empty() => {
                    Ok(Spec::InOut { from: from.into(), to: to.into() })
                }
                _ => wrong("two files are needed"),
            },
            "out" => match rest.split_once(':').map(|(n, to)| (n.parse::<u64>(), to)) {
                Some((Ok(len_bytes), to)) if !to.is_empty() => Ok(Spec::Out { len_bytes, to: to.into() }),
                _ => wrong("a number of bytes and a file are needed"),
            },
            "same" => match rest.parse() {
                Ok(n) => Ok(Spec::Same(n)),
                Err(_) => wrong("the number of an argument is needed"),
            },
            "hex" => match hex(rest) {
                Some(bytes) if bytes.len() <= HEX_MAX => Ok(Spec::Bytes(bytes)),
                Some(bytes) => wrong(&format!("{} bytes, the limit is {HEX_MAX}", bytes.len())),
                None => wrong("not pairs of hexadecimal digits"),
            },
            _ => match number(kind, rest) {
                Some(Some(bytes)) => Ok(Spec::Bytes(bytes)),
                Some(None) => wrong(&format!("{rest:?} is not a valid {kind}")),
                None => wrong(&format!("unknown kind {kind:?}")),
            },
        }
    }
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.strip_prefix("0x").unwrap_or(digits).as_bytes();
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return None;
    }
    let value = |d: u8| char::from(d).to_digit(16);
    digits.chunks(2).map(|p| u8::try_from(value(p[0])? * 16 + value(p[1])?).ok()).collect()
}

/// `None`: no such kind. `Some(None)`: not a valid value of that kind.
fn number(kind: &str, text: &str) -> Option<Option<Vec<u8>>> {
    macro_rules! bytes {
        ($t:ty) => {
            Some(text.parse::<$t>().ok().map(|v| v.to_le_bytes().to_vec()))
        };
    }
    match kind {
        "u8" => bytes!(u8),
        "i8" => bytes!(i8),
        "u16" => bytes!(u16),
        "i16" => bytes!(i16),
        "u32" => bytes!(u32),
        "i32" => bytes!(i32),
        "u64" => bytes!(u64),
        "i64" => bytes!(i64),
        "f32" => bytes!(f32),
        "f64" => bytes!(f64),
        _ => None,
    }
}

/// Three sizes `X,Y,Z`; missing ones are 1.
pub(crate) fn extent(text: &str) -> Result<[u32; 3], String> {
    let mut sizes = [1u32; 3];
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 3 {
        return Err(format!("{text:?} has {} sizes, at most 3 (X,Y,Z)", parts.len()));
    }
    for (size, part) in sizes.iter_mut().zip(&parts) {
        *size = match part.trim().parse() {
            Ok(n) if n > 0 => n,
            _ => return Err(format!("{part:?} in {text:?} is not a valid size: 1 to {}", u32::MAX)),
        };
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let read = |t: &str| t.parse::<Spec>().unwrap();
        assert_eq!(read("in:a.bin"), Spec::In("a.bin".into()));
        assert_eq!(read("inout:a:b"), Spec::InOut { from: "a".into(), to: "b".into() });
        assert_eq!(read("out:64:c"), Spec::Out { len_bytes: 64, to: "c".into() });
        assert_eq!(read("same:2"), Spec::Same(2));
        assert_eq!(read("null"), Spec::Bytes(vec![0; 8]));
        assert_eq!(read("u8:255"), Spec::Bytes(vec![255]));
        assert_eq!(read("i16:-2"), Spec::Bytes(vec![0xfe, 0xff]));
        assert_eq!(read("f32:1.0"), Spec::Bytes(vec![0, 0, 0x80, 0x3f]));
        assert_eq!(read("hex:0x01ff"), Spec::Bytes(vec![1, 255]));
        assert_eq!(extent("4"), Ok([4, 1, 1]));
        assert_eq!(extent("4,2,3"), Ok([4, 2, 3]));
    }

    #[test]
    fn what_is_wrong_is_named_with_the_valid_forms() {
        for (text, why) in [
            ("a.bin", "no kind"),
            ("in:", "nothing after"),
            ("inout:a", "two files"),
            ("out:many:b", "a number of bytes"),
            ("same:a", "the number of an argument"),
            ("u8:256", "\"256\" is not a valid u8"),
            ("f16:1", "unknown kind \"f16\""),
            ("hex:abc", "not pairs"),
        ] {
            let e = text.parse::<Spec>().unwrap_err();
            assert!(e.contains(why) && e.contains("inout:FILE:OUT"), "{text}: {e}");
        }
        assert!(extent("1,2,3,4").unwrap_err().contains("at most 3"));
        assert!(extent("1,0").unwrap_err().contains("is not a valid size"));
    }
}
