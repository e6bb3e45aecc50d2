//! Reads the references under `tests/data/ops`; the form of a line is at the head of `tools/references/case.py`.

use doorbell::uop::{ConstVal, Scalar, from_bits};
use flate2::read::GzDecoder;
use serde_json::Value;
use std::io::Read;

/// A stored Tensor: little-endian elements in row-major order.
#[derive(Clone, Debug)]
pub struct Array {
    pub dtype: Scalar,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl Array {
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The bits of element `i`, in the low end.
    pub fn bits(&self, i: usize) -> u64 {
        let size = self.dtype.size_bytes();
        let mut word = [0; 8];
        word[..size].copy_from_slice(&self.bytes[i * size..(i + 1) * size]);
        u64::from_le_bytes(word)
    }

    pub fn value(&self, i: usize) -> ConstVal {
        from_bits(self.bits(i), self.dtype)
    }
}

/// How near a result must be.
#[derive(Clone, Debug)]
pub enum Tolerance {
    /// The same bits; any NaN is as good as any other.
    Bits,
    /// |got - want| <= abs + rel |want|; infinities and NaN where the reference has them.
    Near { abs: f64, rel: f64, why: String },
}

/// Expected gradients: of `sum(output * of)`, one a differentiable input.
#[derive(Clone, Debug)]
pub struct Grad {
    pub of: Array,
    pub inputs: Vec<Option<Array>>,
    pub tolerance: Tolerance,
}

#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub op: String,
    pub params: Value,
    pub inputs: Vec<Array>,
    pub outputs: Vec<Array>,
    pub tolerance: Tolerance,
    pub grad: Option<Grad>,
}

/// The file of a group, in the program: it may run where its source is not.
macro_rules! files {
    ($group:expr, $($name:literal)*) => {
        match $group {
            $($name => &include_bytes!(concat!("../data/ops/", $name, ".jsonl.gz"))[..],)*
            other => panic!("no references {other}"),
        }
    };
}

/// All cases of one group.
pub fn cases(group: &str) -> Vec<Case> {
    let file = files!(
        group, "unary" "binary" "casts" "reduce" "linear" "movement" "loss" "creation" "conv" "index" "order" "select" "dtypes" "names"
        "losses" "linalg"
    );
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).unwrap_or_else(|error| panic!("{group}: {error}"));
    text.lines()
        .map(|line| case(line).unwrap_or_else(|what| panic!("{group}: no valid {what} in {line:.200}")))
        .collect()
}

/// One line; the error is the name of what is missing or malformed.
fn case(line: &str) -> Result<Case, &'static str> {
    let value: Value = serde_json::from_str(line).map_err(|_| "JSON")?;
    let text = |key: &'static str| value[key].as_str().map(str::to_owned).ok_or(key);
    let arrays = |key: &'static str| value[key].as_array().ok_or(key)?.iter().map(array).collect::<Result<Vec<_>, _>>();
    let grad = match &value["grad"] {
        Value::Null => None,
        stored => Some(Grad {
            of: array(&stored["of"])?,
            inputs: stored["in"].as_array().ok_or("grad")?.iter().map(maybe_array).collect::<Result<_, _>>()?,
            tolerance: tolerance(&stored["tol"])?,
        }),
    };
    Ok(Case {
        name: text("name")?,
        op: text("op")?,
        params: value["params"].clone(),
        inputs: arrays("in")?,
        outputs: arrays("out")?,
        tolerance: tolerance(&value["tol"])?,
        grad,
    })
}

fn maybe_array(value: &Value) -> Result<Option<Array>, &'static str> {
    if value.is_null() { Ok(None) } else { array(value).map(Some) }
}

fn array(value: &Value) -> Result<Array, &'static str> {
    let dtype = value["d"].as_str().and_then(Scalar::parse).ok_or("dtype")?;
    let size = |n: &Value| n.as_u64().and_then(|n| usize::try_from(n).ok()).ok_or("shape");
    let shape = value["s"].as_array().ok_or("shape")?.iter().map(size).collect::<Result<Vec<_>, _>>()?;
    let bytes = unhex(value["x"].as_str().ok_or("bytes")?).ok_or("bytes")?;
    if bytes.len() != shape.iter().product::<usize>() * dtype.size_bytes() {
        return Err("length");
    }
    Ok(Array { dtype, shape, bytes })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
    text.as_bytes().chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
}

fn tolerance(value: &Value) -> Result<Tolerance, &'static str> {
    if value["bits"] == true {
        return Ok(Tolerance::Bits);
    }
    let number = |key| value[key].as_f64().ok_or("tolerance");
    let why = value["why"].as_str().ok_or("reason of a tolerance")?.to_owned();
    Ok(Tolerance::Near { abs: number("abs")?, rel: number("rel")?, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"name":"n","op":"neg","params":{},"in":[{"d":"bf16","s":[2],"x":"803f00c0"}],"out":[{"d":"bf16","s":[2],"x":"80bf0040"}],"tol":{"bits":true}}"#;

    #[test]
    fn a_line_is_read_with_its_values() {
        let case = case(LINE).unwrap();
        assert_eq!(
            (case.op.as_str(), case.inputs[0].value(0), case.inputs[0].value(1)),
            ("neg", ConstVal::Float(1.0), ConstVal::Float(-2.0))
        );
        assert!(matches!(case.tolerance, Tolerance::Bits));
    }

    #[test]
    fn bytes_that_do_not_fill_the_shape_are_refused() {
        assert_eq!(case(&LINE.replace("803f00c0", "803f00")).unwrap_err(), "length");
        assert_eq!(case(&LINE.replace("803f00c0", "803f00c")).unwrap_err(), "bytes");
    }

    #[test]
    fn a_tolerance_without_a_reason_is_refused() {
        assert_eq!(
            case(&LINE.replace(r#"{"bits":true}"#, r#"{"abs":1.0,"rel":0.0}"#)).unwrap_err(),
            "reason of a tolerance"
        );
    }
}
