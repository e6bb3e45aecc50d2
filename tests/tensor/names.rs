//! Names of PyTorch and tinygrad: facts of Tensors, default types, devices, forms of arguments, random draws.

use crate::{eval, values};
use doorbell::tensor::prelude::*;
use doorbell::tensor::{default_float, default_int, set_default_float, set_default_int};
use std::sync::{Mutex, PoisonError};

#[test]
fn sizes_and_bytes_are_known_without_computing() {
    let x = Tensor::empty([2, 3, 4], Scalar::BF16);
    assert_eq!((x.ndim().unwrap(), x.numel().unwrap(), x.element_size().unwrap()), (3, Dim::Int(24), 2));
    assert_eq!((x.nbytes().unwrap(), x.size(-1).unwrap(), x.size(0).unwrap()), (48, Dim::Int(4), Dim::Int(2)));
    assert!(x.is_floating_point().unwrap() && !x.int().is_floating_point().unwrap() && x.bool().is_bool().unwrap());
    assert!(x.size(3).unwrap_err().to_string().contains("names.rs"));
    let n = Variable::new("n", 1, 8);
    let y = Tensor::ones([Dim::from(n.uop()), Dim::Int(3)]);
    assert_eq!((y.max_shape().unwrap(), y.max_numel().unwrap()), (vec![8, 3], 24));
}

#[test]
fn float_is_f32_and_as_float_keeps_floats() {
    let x = Tensor::new([1.5f32]);
    assert_eq!(x.half().float().dtype().unwrap(), Scalar::F32);
    assert_eq!(x.double().float().dtype().unwrap(), Scalar::F32);
    assert_eq!(x.half().as_float().dtype().unwrap(), Scalar::F16);
    assert_eq!(Tensor::arange(2).as_float().dtype().unwrap(), Scalar::F32);
    assert_eq!(x.byte().dtype().unwrap(), Scalar::U8);
}

#[test]
fn limits_of_types_are_those_of_finfo_and_iinfo() {
    let f = |t: Scalar| (t.max().as_f64(), t.min().as_f64(), t.eps(), t.tiny());
    assert_eq!(f(Scalar::F32), (f32::MAX.into(), f32::MIN.into(), f32::EPSILON.into(), f32::MIN_POSITIVE.into()));
    assert_eq!(f(Scalar::F64), (f64::MAX, f64::MIN, f64::EPSILON, f64::MIN_POSITIVE));
    assert_eq!(f(Scalar::F16), (65504.0, -65504.0, 2f64.powi(-10), 2f64.powi(-14)));
    assert_eq!(f(Scalar::BF16).0, half::bf16::MAX.to_f64());
    assert_eq!(f(Scalar::F8E4M3Fnuz), (240.0, -240.0, 0.125, 2f64.powi(-7)));
    assert_eq!(f(Scalar::F8E5M2Fnuz), (57344.0, -57344.0, 0.25, 2f64.powi(-15)));
    assert_eq!((Scalar::U64.max().as_int(), Scalar::I8.min().as_int()), (Some(u64::MAX.into()), Some(-128)));
}

/// Tests that change or depend on the default types take turns.
static DEFAULTS: Mutex<()> = Mutex::new(());

#[test]
fn default_types_are_chosen_for_the_program() {
    let _turn = DEFAULTS.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(set_default_float(Scalar::I32).unwrap_err().to_string().contains("i32 is no default"));
    assert!(set_default_int(Scalar::F32).is_err());
    assert_eq!((default_float(), default_int()), (Scalar::F32, Scalar::I32));
}

#[test]
fn bits_of_another_size_change_the_last_axis() {
    let x = Tensor::new([[1.0f32, -2.0]]);
    assert_eq!(x.bitcast(Scalar::U8).max_shape().unwrap(), [1, 8]);
    assert_eq!(values(&x.bitcast(Scalar::U8).bitcast(Scalar::F32)), [1.0, -2.0]);
    assert_eq!(x.bitcast(Scalar::U64).max_shape().unwrap(), [1, 1]);
    let odd = Tensor::new([1u8, 2, 3]).bitcast(Scalar::U16).shape().unwrap_err().to_string();
    assert!(odd.contains("the last axis has 3 elements: no whole number of groups of 2"), "{odd}");
    assert!(Tensor::new(1.0f32).bitcast(Scalar::U8).shape().is_err());
}

#[test]
fn device_and_dtype_are_named_before_what_is_made() {
    let on = || Tensor::on("NULL").dtype(Scalar::F16);
    for t in [on().zeros([2]), on().ones([2]), on().full([2], 3), on().empty([2]), on().arange(2), on().eye(2, 2)] {
        assert_eq!((&*t.device(), t.dtype().unwrap()), ("NULL", Scalar::F16), "{t:?}");
    }
    for t in [on().rand([2]), on().randn([2]), on().uniform([2], 0.0, 1.0), on().new([1.0f32, 2.0]), on().randperm(2)] {
        assert_eq!((&*t.device(), t.dtype().unwrap()), ("NULL", Scalar::F16), "{t:?}");
    }
    assert_eq!(*Tensor::ones([2]).device(), *doorbell::tensor::default_device());
    assert_eq!(Tensor::of_dtype(Scalar::I64).arange(3).to_vec::<i64>().unwrap(), [0, 1, 2]);
    assert_eq!(Tensor::of_dtype(Scalar::F64).rand([4]).dtype().unwrap(), Scalar::F64);
    assert!(Tensor::of_dtype(Scalar::U8).full([2], 300).shape().is_err());
    let moved = Tensor::new([1.0f32]);
    assert_eq!(&*moved.to_("NULL").device(), "NULL");
    assert_eq!(Tensor::on("CPU").zeros([3]).to_vec::<f32>().unwrap(), [0.0; 3]);
}

#[test]
fn axes_are_written_as_is_convenient() {
    let x = Tensor::new([[[1.0f64, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]]);
    let all = [36.0];
    assert_eq!(values(&x.sum(())), all);
    assert_eq!(values(&x.sum(..)), all);
    assert_eq!(values(&x.sum(0..3)), all);
    assert_eq!(values(&x.sum(0usize..=2)), all);
    assert_eq!(values(&x.sum([0usize, 1, 2])), all);
    assert_eq!(values(&x.sum(vec![0usize, 1, 2])), all);
    assert_eq!(values(&x.sum(&[0i64, 1, 2])), all);
    assert_eq!(values(&x.sum(1usize)), values(&x.sum(1)));
    assert_eq!(values(&x.sum(&vec![0, 1])), values(&x.sum([0, 1])));
    assert!(x.sum(3usize).shape().unwrap_err().to_string().contains("axis 3 is out of range for rank 3"));
    let pieces = x.flatten(0, -1).split(3, 0);
    assert_eq!(pieces.iter().map(|p| p.max_numel().unwrap()).collect::<Vec<_>>(), [3, 3, 2]);
    assert_eq!(x.split([1, 1], 0).len(), 2);
}

#[test]
fn rearrange_says_what_is_wrong_with_a_pattern() {
    let x = Tensor::zeros([2, 6]);
    let text = |pattern: &str, sizes: &[(&str, usize)]| x.rearrange(pattern, sizes).shape().unwrap_err().to_string();
    for (pattern, sizes, want) in [
        ("a b", &[][..], "has no `->`"),
        ("a -> a", &[], "1 axes named for rank 2"),
        ("a b -> a", &[], "`b` stands on the left only"),
        ("a b -> a b c", &[], "`c` stands on the right only"),
        ("a a -> a", &[], "`a` stands twice"),
        ("a (b c) -> a b c", &[], "split into several names without a size"),
        ("a (b c) -> a b c", &[("b", 4)], "an axis of size 6 is no product of 4"),
        ("a (b c -> a b c", &[("b", 2)], "`(` without `)`"),
        ("a b) -> a b", &[], "`)` without `(`"),
        ("a ((b c)) -> a b c", &[], "a parenthesis within a parenthesis"),
        ("a 6 -> a", &[], "an axis without a name can only be 1, not 6"),
        ("a b -> a ...", &[], "`...` stands on one side only"),
        ("a b -> b a", &[("z", 2)], "a size for `z`"),
        ("1 b -> b", &[], "an axis of size 2 is no product of 1"),
        ("a $ -> a", &[], "`$` is no axis name"),
    ] {
        assert!(text(pattern, sizes).contains(want), "{pattern}: {}", text(pattern, sizes));
    }
}

#[test]
fn random_words_have_as_many_ones_as_zeros() {
    Tensor::manual_seed(7);
    let bits = Tensor::random_bits([256]).to_vec::<u32>().unwrap();
    assert!(bits.iter().map(|b| b.count_ones()).sum::<u32>().abs_diff(4096) < 400, "{bits:?}");
}

#[test]
fn small_ops_made_of_others() {
    let x = Tensor::new([1.0f64, -2.0]);
    assert_eq!(values(&Tensor::alu(doorbell::uop::Op::Add, &[&x, &x])), [2.0, -4.0]);
    assert_eq!(values(&x.const_like(3)), [3.0, 3.0]);
    assert_eq!(values(&Tensor::from_blob(&[1, 2, 3], Scalar::U8, [3])), [1.0, 2.0, 3.0]);
    assert_eq!(eval(&Tensor::zeros([2, 3]).T()).0, [3, 2]);
    let mean = Tensor::new([1.0f32, 1.0]).requires_grad();
    mean.std(.., 1).backward().unwrap();
    assert_eq!(mean.grad().unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0]);
}

#[test]
fn a_target_of_another_shape_is_refused() {
    let (x, y) = (Tensor::ones([4, 1]), Tensor::ones([4]));
    for loss in
        [x.mse_loss(&y), x.l1_loss(&y), x.binary_crossentropy(&y), x.binary_crossentropy_logits(&y), x.kl_div(&y)]
    {
        let text = loss.shape().unwrap_err().to_string();
        assert!(text.contains("the target has shape (4,), the prediction (4, 1)"), "{text}");
    }
}

/// The text of all sources below a folder.
fn sources(folder: &std::path::Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|e| e == "rs") {
            all.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_name_of_the_guide_exists() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = String::new();
    for folder in ["src/tensor", "src/engine", "src/nn", "src/schedule"] {
        sources(&root.join(folder), &mut all);
    }
    let page = std::fs::read_to_string(root.join("docs/guide/names.md")).unwrap();
    let rows: Vec<Vec<&str>> =
        page.lines().filter(|l| l.starts_with("| ")).skip(1).map(|l| l.split('|').map(str::trim).collect()).collect();
    assert_eq!(rows.len(), 251, "the names of tinygrad's Tensor");
    for row in rows {
        // `x.name(..)`, `Tensor::name`: the last name before a bracket.
        let Some(ours) = row[2].strip_prefix('`') else { continue };
        let head = ours.split(['(', '`']).next().unwrap_or("").trim_end_matches("::<Vec<Vec<f32>>>");
        let name = head.rsplit(['.', ':']).next().unwrap_or("");
        let is_there =
            [format!("fn {name}("), format!("fn {name}<"), format!(" {name}(")].iter().any(|t| all.contains(t));
        assert!(is_there, "`{name}`, for {}", row[1]);
    }
}
