//! Compares a launch's outputs with the expected outputs of a jobs file.

use super::job::file_error;
use crate::CliError;
use doorbell::uop::{Scalar, from_bits};
use serde::Deserialize;
use std::path::PathBuf;

/// An output and the file with its expected numbers.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
    out: PathBuf,
    want: PathBuf,
    dtype: String,
}

/// The tolerance for sums in another order and fused products, relative to the largest number of the output.
fn tolerance(t: Scalar) -> f64 {
    match t {
        Scalar::F64 => 1e-9,
        Scalar::F32 => 1e-4,
        Scalar::F16 => 1e-2,
        t if t.is_float() => 6e-2,
        _ => 0.0,
    }
}

impl Expect {
    /// `Some`: a message that says where the files differ.
    pub(crate) fn check(&self) -> Result<Option<String>, CliError> {
        let name = &self.dtype;
        let t = Scalar::parse(name).ok_or_else(|| CliError::Usage(format!("expect: unknown dtype {name:?}")))?;
        let read = |path: &PathBuf| -> Result<Vec<f64>, CliError> {
            let bytes = crate::files::read(path).map_err(|e| file_error(path, &e))?;
            let number = |part: &[u8]| {
                let bits = part.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
                from_bits(bits, t).as_f64()
            };
            Ok(bytes.chunks_exact(t.size_bytes().max(1)).map(number).collect())
        };
        let (out, want) = (read(&self.out)?, read(&self.want)?);
        let files = format!("{} is not {}", self.out.display(), self.want.display());
        if out.len() != want.len() {
            return Ok(Some(format!("{files}: {} elements, expected {}", out.len(), want.len())));
        }
        let scale = want.iter().filter(|w| w.is_finite()).fold(0.0f64, |most, w| most.max(w.abs()));
        let same = |o: f64, w: f64| o == w || o.is_nan() && w.is_nan() || (o - w).abs() <= tolerance(t) * scale;
        let bad = out.iter().zip(&want).position(|(o, w)| !same(*o, *w));
        Ok(bad.map(|at| format!("{files}: element {at} is {}, expected {}", out[at], want[at])))
    }
}
