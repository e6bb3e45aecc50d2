//! Compares a result with the reference: shape, dtype, then element by element.

use crate::reader::{Array, Tolerance};
use doorbell::uop::{ConstVal, Scalar};

/// `Err` names the first element that is off and how many are.
pub fn compare(got: &Array, want: &Array, tolerance: &Tolerance) -> Result<(), String> {
    if (got.dtype, &got.shape) != (want.dtype, &want.shape) {
        return Err(format!("{}{:?} instead of {}{:?}", got.dtype.name(), got.shape, want.dtype.name(), want.shape));
    }
    let off: Vec<usize> = (0..want.len()).filter(|&i| !element(got, want, i, tolerance)).collect();
    let Some(&first) = off.first() else { return Ok(()) };
    let show = |a: &Array| format!("{:?} ({:#x})", a.value(first), a.bits(first));
    let rule = match tolerance {
        Tolerance::Bits => "the same bits".to_owned(),
        Tolerance::Near { abs, rel, why } => format!("within {abs:.3e} + {rel:.3e} |want| ({why})"),
    };
    let (got_text, want_text, n) = (show(got), show(want), want.len());
    Err(format!("{} of {n} elements off; element {first}: got {got_text}, want {want_text}, {rule}", off.len()))
}

fn element(got: &Array, want: &Array, i: usize, tolerance: &Tolerance) -> bool {
    if got.bits(i) == want.bits(i) {
        return true;
    }
    let (g, w) = (float(got, i), float(want, i));
    if g.is_nan() || w.is_nan() {
        return g.is_nan() && w.is_nan();
    }
    match tolerance {
        Tolerance::Bits => false,
        Tolerance::Near { .. } if !want.dtype.is_float() => false,
        Tolerance::Near { .. } if w.is_infinite() || g.is_infinite() => g == w,
        Tolerance::Near { abs, rel, .. } => (g - w).abs() <= abs + rel * w.abs(),
    }
}

/// The element as f64; 0 for what is no float (its bits decide).
fn float(a: &Array, i: usize) -> f64 {
    match a.value(i) {
        ConstVal::Float(f) if a.dtype != Scalar::Bool => f,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(values: &[f32]) -> Array {
        Array {
            dtype: Scalar::F32,
            shape: vec![values.len()],
            bytes: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        }
    }

    fn near(abs: f64) -> Tolerance {
        Tolerance::Near { abs, rel: 0.0, why: "test".to_owned() }
    }

    #[test]
    fn bits_tell_the_zeros_apart_and_near_does_not() {
        assert!(compare(&f32s(&[-0.0]), &f32s(&[0.0]), &Tolerance::Bits).is_err());
        assert_eq!(compare(&f32s(&[-0.0]), &f32s(&[0.0]), &near(0.0)), Ok(()));
    }

    #[test]
    fn a_nan_is_only_as_good_as_a_nan() {
        assert_eq!(compare(&f32s(&[f32::NAN]), &f32s(&[-f32::NAN]), &Tolerance::Bits), Ok(()));
        assert!(compare(&f32s(&[f32::NAN]), &f32s(&[1.0]), &near(f64::INFINITY)).is_err());
    }

    #[test]
    fn an_infinity_is_not_near_a_number() {
        assert!(compare(&f32s(&[f32::INFINITY]), &f32s(&[f32::MAX]), &near(f64::INFINITY)).is_err());
    }

    #[test]
    fn the_message_names_the_first_element_off_and_the_reason() {
        let message = compare(&f32s(&[1.0, 2.5, 4.0]), &f32s(&[1.0, 2.0, 3.0]), &near(0.25)).unwrap_err();
        assert!(message.starts_with("2 of 3 elements off; element 1: "), "{message}");
        assert!(message.ends_with("(test)"), "{message}");
    }

    #[test]
    fn another_shape_is_an_error_of_its_own() {
        let mut flat = f32s(&[1.0, 2.0]);
        flat.shape = vec![2, 1];
        assert_eq!(compare(&flat, &f32s(&[1.0, 2.0]), &near(0.0)), Err("f32[2, 1] instead of f32[2]".to_owned()));
    }
}
