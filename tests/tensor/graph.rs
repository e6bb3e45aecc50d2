//! Shapes, dtypes, identity of equal expressions, and what mistakes say.

use doorbell::tensor::prelude::*;
use doorbell::tensor::{HOST, HostBytes};
use doorbell::uop::{Op, UOp};

fn shape(t: &Tensor) -> Vec<i64> {
    t.shape().unwrap().iter().map(|d| d.as_int().unwrap()).collect()
}
fn t(shape: &[i64]) -> Tensor {
    Tensor::empty(shape, Scalar::F32)
}

#[test]
fn equal_expressions_are_the_identical_node_and_equal_data_is_not() {
    let x = Tensor::new([1.0f32, 2.0]);
    let (a, b) = ((&x + 1.0).exp(), (&x + 1.0).exp());
    assert_eq!(a.uop().unwrap(), b.uop().unwrap());
    assert_ne!(x.uop().unwrap(), Tensor::new([1.0f32, 2.0]).uop().unwrap());
    assert_eq!(Tensor::ones([2, 3]).uop().unwrap(), Tensor::ones([2, 3]).uop().unwrap());
}

#[test]
fn host_data_is_a_host_buffer_copied_to_the_device() {
    let u = Tensor::new([[1i32, 2], [3, 4]]).uop().unwrap();
    assert_eq!(u.op(), Op::Reshape);
    let copy = &u.src()[0];
    assert_eq!((copy.op(), copy.device().unwrap().as_ref()), (Op::Copy, &*doorbell::tensor::default_device()));
    let host = copy.src()[0].buffer_ref().unwrap();
    assert_eq!((host.len, host.device.as_ref()), (4, HOST));
    let bytes = host.memory.get().unwrap().downcast_ref::<HostBytes>().unwrap();
    assert_eq!(bytes.0, [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0]);
}

#[test]
fn shapes_broadcast_from_the_right_and_numbers_stay_scalars() {
    assert_eq!(shape(&(t(&[4, 1, 3]) + t(&[5, 1]))), [4, 5, 3]);
    let u = (t(&[2, 3]) * 2.0).uop().unwrap();
    assert_eq!(u.src()[1].op(), Op::Const);
    assert_eq!(u.src()[1].dtype(), u.dtype());
}

#[test]
fn dtypes_promote_and_numbers_take_the_type_they_meet() {
    let of = |s| Tensor::empty([2], s);
    use Scalar::*;
    assert_eq!((of(I8) + of(U8)).dtype().unwrap(), I16);
    assert_eq!((of(F16) + 2.5).dtype().unwrap(), F16);
    assert_eq!((of(U8) + 1).dtype().unwrap(), U8);
    assert_eq!((of(I32) + 2.5).dtype().unwrap(), F32);
    assert_eq!((of(I64) + of(U64)).dtype().unwrap(), F32);
    assert_eq!((of(I32) / of(I32)).dtype().unwrap(), F32);
    assert_eq!(of(I8).sum(()).dtype().unwrap(), I32);
    assert_eq!(of(F16).sum(()).dtype().unwrap(), F16);
    assert_eq!(of(Bool).sum(()).dtype().unwrap(), I32);
    assert_eq!(of(I32).exp().dtype().unwrap(), F32);
    assert_eq!(of(BF16).mean(()).dtype().unwrap(), BF16);
    assert_eq!(of(F32).lt(0).dtype().unwrap(), Bool);
    assert_eq!(Tensor::arange(3).dtype().unwrap(), I32);
}

#[test]
fn a_mistake_names_op_shapes_and_the_line_and_the_first_one_stays() {
    let (a, b) = (t(&[2, 3]), t(&[4]));
    let line = line!() + 1;
    let bad = &a + &b;
    let later = bad.reshape([7, 7]).exp().sum(()).matmul(&t(&[1]));
    for tensor in [&bad, &later] {
        let error = tensor.shape().unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "add: shapes (2, 3) and (4,) do not broadcast: axis 0 from the right has 3 and 4; of (2, 3) f32, (4,) f32; at {}:{line}:15",
                file!()
            )
        );
    }
}

// A call and its line!() must be on one line.
#[rustfmt::skip]
#[test]
fn every_method_reports_the_line_of_its_caller() {
    let a = t(&[2, 3]);
    let i = Tensor::arange(6).reshape([2, 3]);
    let cases: Vec<(Tensor, u32, &str)> = vec![
        (a.reshape([4, 2]), line!(), "reshape: shape (2, 3) does not become (4, 2)"),
        (a.reshape([-1, -1]), line!(), "reshape: shape (2, 3) does not become (-1, -1)"),
        (a.permute([0, 0]), line!(), "permute: axis 0 is named twice"),
        (a.permute([0]), line!(), "permute: 1 axes named for rank 2"),
        (a.expand([2, 4]), line!(), "expand: shapes (2, 3) and (2, 4) do not broadcast: axis 0 from the right has 3 and 4"),
        (a.sum(5), line!(), "sum: axis 5 is out of range for rank 2"),
        (a.softmax(-3), line!(), "softmax: axis -3 is out of range for rank 2"),
        (a.matmul(&a), line!(), "matmul: the inner sizes 3 and 2 differ"),
        (a.shrink(&[(0, 2), (1, 4)]), line!(), "shrink: 1..4 is not within axis 1 of size 3"),
        (a.pad(&[(1, 1)]), line!(), "pad: 1 pairs of counts for rank 2"),
        (Tensor::cat(&[&a, &t(&[2, 4])], 0), line!(), "cat: (2, 3) and (2, 4) differ outside axis 0"),
        (i.shl(1.5), line!(), "shl: Shl has no meaning for f32"),
        (a.bitcast(Scalar::F64), line!(), "bitcast: the last axis has 3 elements: no whole number of groups of 2"),
        (a.where_(&a, &a), line!(), "where: the condition is f32, not bool"),
        (Tensor::empty([2, -3], Scalar::F32), line!(), "empty: (2, -3) has a negative size"),
        (Tensor::new(vec![vec![1i32], vec![]]), line!(), "new: the rows of the data differ in shape"),
        (a.sin().gradient(&[&a]).remove(0), line!(), "gradient: only a single number has a gradient without a weight"),
        (i.sum(()).gradient(&[&a]).remove(0), line!(), "gradient: i32 has no gradient"),
        (t(&[2, 0]).max(1), line!(), "max: axis 1 has no elements, so no extreme"),
        (a.conv2d(&a, None, Conv::default()), line!(), "conv2d: a weight has rank 4 (channels twice, then a window)"),
        (a.clamp(&i.bitcast(Scalar::F32), &t(&[9])), line!(), "minimum: shapes (2, 3) and (9,) do not broadcast"),
        (a.silu().attention(&t(&[4, 2]), &a, None, true), line!(), "attention: the inner sizes 3 and 2 differ"),
        (Tensor::randint([2], 3, 3), line!(), "randint: no integer lies in 3..3"),
        (a.get((0, 3)), line!(), "get: index 3 is out of range for axis 0 of size 3"),
        (a.clone().assign(&t(&[5])).clone(), line!(), "assign: shapes (5,) and (2, 3) do not broadcast"),
    ];
    for (tensor, line, text) in cases {
        let error = tensor.uop().unwrap_err();
        assert!(error.to_string().starts_with(text), "{error}");
        assert_eq!((error.at.file(), error.at.line()), (file!(), line), "{error}");
    }
}

#[test]
fn uops_speak_the_same_words_and_carry_the_text_of_a_mistake() {
    let (x, y) = (t(&[2, 3]).uop().unwrap(), t(&[3]).uop().unwrap());
    let sum = Elementwise::add(&x, &y);
    assert_eq!(sum.shape(), x.shape());
    let bad = x.reshape([5]).exp();
    let text = Tensor::from(&bad).shape().unwrap_err().to_string();
    assert!(text.contains("shape (2, 3) does not become (5,)") && text.contains("graph.rs"), "{text}");
}

#[test]
fn nothing_is_built_where_nothing_changes() {
    let x = t(&[2, 3]);
    let u = x.uop().unwrap();
    let same = [
        x.reshape([2, 3]),
        x.permute([0, 1]),
        x.expand([-1, 3]),
        x.pad(&[(0, 0), (0, 0)]),
        x.shrink(&[(0, 2), (0, 3)]),
        x.cast(Scalar::F32),
        x.squeeze(()),
    ];
    for s in same {
        assert_eq!(s.uop().unwrap(), u);
    }
}

#[test]
fn sizes_may_be_variables() {
    let n = Variable::new("n", 1, 8);
    let len = n.bind(4);
    let x = t(&[8, 3]).shrink(&[(Dim::Int(0), Dim::from(&len)), (Dim::Int(0), Dim::Int(3))]);
    assert_eq!(x.shape().unwrap(), [Dim::from(&len), Dim::Int(3)]);
    assert_eq!((&x + &x).sum(0).shape().unwrap(), [Dim::Int(3)]);
    assert_eq!(x.reshape([-1, 1, 3]).shape().unwrap()[0], Dim::from(&len));
    assert!(x.mean(0).shape().is_ok());
    assert!(Tensor::arange(&len).shape().is_ok());
    let error = x.reshape([4, 3]).shape().unwrap_err();
    assert!(error.to_string().contains("does not become"), "{error}");
}

#[test]
fn movement_gives_the_shapes_it_says() {
    let x = t(&[2, 3, 4]);
    assert_eq!(shape(&x.flatten(1, -1)), [2, 12]);
    assert_eq!(shape(&x.unflatten(2, [2, -1])), [2, 3, 2, 2]);
    assert_eq!(shape(&x.transpose(0, 2)), [4, 3, 2]);
    assert_eq!(shape(&x.repeat(&[2, 1, 1, 3])), [2, 2, 3, 12]);
    assert_eq!(shape(&x.repeat_interleave(2, 1)), [2, 6, 4]);
    assert_eq!(shape(&x.unfold(2, 2, 1)), [2, 3, 3, 2]);
    assert_eq!(shape(&x.unfold(0, 2, 1)), [1, 3, 4, 2]);
    assert_eq!(shape(&x.diagonal(0, 1, 2)), [2, 3]);
    assert_eq!(shape(&x.diagonal(1, 1, 2)), [2, 3]);
    assert_eq!(shape(&x.pad(&[(1, 0), (0, -1), (2, 2)])), [3, 2, 8]);
    assert_eq!(shape(&Tensor::stack(&[&x, &x], 1)), [2, 2, 3, 4]);
    assert_eq!(x.chunk(2, 2).iter().map(shape).collect::<Vec<_>>(), [[2, 3, 2], [2, 3, 2]]);
    assert_eq!(x.split(&[1, 2], 1).iter().map(shape).collect::<Vec<_>>(), [[2, 1, 4], [2, 2, 4]]);
    assert_eq!(shape(&x.matmul(&t(&[4, 5]))), [2, 3, 5]);
    assert_eq!(shape(&t(&[4]).matmul(&t(&[4]))), [0i64; 0]);
    assert_eq!(shape(&t(&[3, 4]).matmul(&t(&[4]))), [3]);
    assert_eq!(shape(&t(&[4]).matmul(&t(&[7, 4, 2]))), [7, 2]);
    let conv = t(&[2, 4, 8, 8]).conv2d(&t(&[6, 2, 3, 3]), Some(&t(&[6])), Conv::padded(1).strided(2).grouped(2));
    assert_eq!(shape(&conv), [2, 6, 4, 4]);
    assert_eq!(shape(&conv.max_pool2d(Pool::square(2))), [2, 6, 2, 2]);
}

#[test]
fn gradients_have_the_targets_shapes_and_backward_finds_who_asked() {
    let (w, x) = (t(&[3, 4]).requires_grad(), t(&[2, 3]));
    let loss = x.matmul(&w).relu().softmax(1).log().mean(());
    let g = loss.gradient(&[&w, &x]);
    assert_eq!((shape(&g[0]), shape(&g[1])), (vec![3, 4], vec![2, 3]));
    loss.backward().unwrap();
    assert_eq!(shape(&w.grad().unwrap()), [3, 4]);
    assert!(x.grad().is_none());
    let error = x.sum(()).backward().unwrap_err();
    assert!(error.to_string().contains("no Tensor below asked for a gradient"), "{error}");
    let error = x.sum(()).gradient(&[&w])[0].shape().unwrap_err();
    assert!(error.to_string().contains("a target is not below this Tensor"), "{error}");
}

#[test]
fn a_deep_graph_is_built_and_differentiated_without_recursion() {
    let x = t(&[2]);
    let mut y = x.clone();
    for _ in 0..20_000 {
        y = (&y + 1.0).sin();
    }
    assert_eq!(shape(&y.sum(()).gradient(&[&x])[0]), [2]);
}

#[test]
fn a_realized_node_is_what_its_tensors_stand_for_and_targets_are_still_found() {
    let x = t(&[4]);
    let y = (&x * 2.0).requires_grad();
    let loss = y.sum(());
    let buffer =
        UOp::buffer(y.uop().unwrap().dtype(), doorbell::uop::BufferRef::new(4, doorbell::tensor::default_device()));
    y.uop().unwrap().set_realized(buffer.clone());
    assert_eq!(y.uop().unwrap(), buffer);
    assert_eq!(shape(&loss.gradient(&[&y])[0]), [4]);
    loss.backward().unwrap();
    assert_eq!(shape(&y.grad().unwrap()), [4]);
}

/// Without the attribute a mistake would be reported at a line of the library.
#[test]
fn every_method_that_builds_tracks_its_caller() {
    let room = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tensor");
    let mut seen = 0;
    let (mut folders, mut files) = (vec![room], vec![]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let mut within = false;
        for (k, line) in lines.iter().enumerate() {
            let opens = line.starts_with("pub trait ") && line.contains(": Value");
            within = (within || opens || *line == "impl Tensor {") && *line != "}";
            let method = line.starts_with("    fn ") || line.starts_with("    pub fn ");
            if within && method && (line.contains("-> Self {") || line.contains("-> Tensor {")) {
                let exempt = ["fn requires_grad", "fn grad(", "fn buffer("].iter().any(|f| line.contains(f));
                assert!(exempt || lines[k - 1].trim() == "#[track_caller]", "{}:{}: {line}", path.display(), k + 1);
                seen += 1;
            }
        }
    }
    assert!(seen > 150, "{seen}");
}
