//! Tensors as text against numpy's own text, nested reads, and the texts of errors.

use doorbell::Error;
use doorbell::engine::JitError;
use doorbell::tensor::TensorError;
use doorbell::tensor::prelude::*;
use serde_json::Value as Json;

#[test]
fn a_tensor_prints_as_numpy_prints_an_array() {
    let lines = include_str!("../data/display.jsonl");
    let mut faults = Vec::new();
    for line in lines.lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let text = case["x"].as_str().unwrap();
        let bytes = (0..text.len() / 2).map(|k| u8::from_str_radix(&text[2 * k..2 * k + 2], 16).unwrap()).collect();
        let shape: Vec<i64> = case["s"].as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect();
        let dtype = Scalar::parse(case["d"].as_str().unwrap()).unwrap();
        let got = Tensor::from_bytes(bytes, dtype, shape, "CPU").to_string();
        let want = case["text"].as_str().unwrap();
        if got != want {
            faults.push(format!("{dtype} {}\ngot\n{got}\nwant\n{want}", case["s"]));
        }
    }
    assert!(faults.is_empty(), "{} of {} differ\n{}", faults.len(), lines.lines().count(), faults.join("\n\n"));
}

#[test]
fn what_numpy_lacks_prints_in_the_same_way() {
    assert_eq!(Tensor::new([1.5f32, -2.0]).cast(Scalar::BF16).to_string(), "[ 1.5 -2. ]");
    assert_eq!(Tensor::new([0.1f32]).cast(Scalar::F8E4M3).to_string(), "[0.1]");
    assert_eq!(format!("{}", Tensor::arange(3) + 0.5), "[0.5 1.5 2.5]");
    let wrong = Tensor::ones([2, 3]) + Tensor::ones([4]);
    assert!(wrong.to_string().starts_with("<add: shapes (2, 3) and (4,) do not broadcast"), "{wrong}");
}

#[test]
fn elements_come_in_nested_vecs_and_wrong_types_say_the_right_one() {
    let x = Tensor::arange(6).reshape([2, 3]);
    assert_eq!(x.to_nested::<Vec<Vec<i32>>>().unwrap(), [[0, 1, 2], [3, 4, 5]]);
    assert_eq!(Tensor::new(2.5f32).tolist::<f32>().unwrap(), 2.5);
    let text = x.to_nested::<Vec<i32>>().unwrap_err().to_string();
    assert_eq!(text, "to_nested: the Tensor has 2 axes, 1 nested Vecs were asked for");
    let text = x.to_vec::<f64>().unwrap_err().to_string();
    assert!(text.contains("holds i32, f64 was asked for: read it as to_vec::<i32>()"), "{text}");
    assert!(text.contains("cast(Scalar::F64)"), "{text}");
    assert!(x.allclose(&(&x + 1e-9), 1e-5, 1e-8).unwrap());
    assert!(!x.allclose(&(&x + 1), 1e-5, 1e-8).unwrap());
}

#[test]
fn reading_memory_without_a_value_says_what_to_do() {
    let text = Tensor::empty([2, 2], Scalar::F32).to_vec::<f32>().unwrap_err().to_string();
    assert_eq!(
        text,
        "the Tensor (2, 2) of f32 is memory without a value (Tensor::empty): assign to it before it is read"
    );
    let filled = Tensor::empty([2], Scalar::F32);
    filled.assign(&Tensor::new([1.0f32, 2.0]));
    assert_eq!(filled.to_vec::<f32>().unwrap(), [1.0, 2.0]);
}

#[test]
fn debug_of_an_error_is_its_text() {
    let error: TensorError = Tensor::ones([2]).reshape([3]).shape().unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string());
    assert_eq!(format!("{:?}", error.problem), error.problem.to_string());
    for error in [Error::from(error), Error::from(JitError::Nested), Error::NotOne(3)] {
        assert_eq!(format!("{error:?}"), error.to_string());
    }
}
