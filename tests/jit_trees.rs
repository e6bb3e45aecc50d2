//! What a recorded function takes, gives and refuses: trees of Tensors, sizes and numbers, errors of any type.

use doorbell::engine::{Error, Jit, JitError, Options, Session};
use doorbell::tensor::prelude::*;
use doorbell::uop::UOp;
use std::collections::{BTreeMap, HashMap};

fn new(v: &[f32]) -> Tensor {
    Tensor::new(v.to_vec())
}

fn values(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap()
}

fn refused<T>(r: Result<T, Error>) -> String {
    match r {
        Err(Error::Jit(e)) => e.to_string(),
        Err(other) => panic!("not the recording's error: {other}"),
        Ok(_) => panic!("not refused"),
    }
}

struct Cell {
    weights: Vec<Tensor>,
    state: Option<Tensor>,
}
doorbell::tree!(Cell { weights, state });

#[test]
fn structs_maps_tuples_and_lists_go_in_and_out() {
    type Out = (BTreeMap<String, Tensor>, [Tensor; 2]);
    let mut f = Jit::new(|(cell, more): &(Cell, HashMap<String, Tensor>)| -> Out {
        let sum = &cell.weights[0] + &cell.weights[1];
        let state = cell.state.as_ref().unwrap() * &more["scale"];
        ([("sum".to_string(), sum.clone()), ("state".to_string(), state)].into(), [&sum * 2.0, &sum + &more["shift"]])
    });
    for k in 0..5 {
        let k = k as f32;
        let cell = Cell { weights: vec![new(&[k, 1.0]), new(&[2.0, k])], state: Some(new(&[3.0])) };
        let more = [("shift".to_string(), new(&[k])), ("scale".to_string(), new(&[10.0]))].into();
        let (map, [twice, shifted]) = f.call(&(cell, more)).unwrap();
        assert_eq!(values(&map["sum"]), [k + 2.0, k + 1.0]);
        assert_eq!(values(&map["state"]), [30.0]);
        assert_eq!(values(&twice), [2.0 * k + 4.0, 2.0 * k + 2.0]);
        assert_eq!(values(&shifted), [2.0 * k + 2.0, 2.0 * k + 1.0], "call {k}");
    }
    assert!(f.is_recorded());
}

#[test]
fn a_part_that_differs_is_named_with_what_differs() {
    let mut f =
        Jit::new(|cell: &Cell| &cell.weights[0] + cell.state.as_ref().map_or(Tensor::new([1.0f32]), Tensor::clone));
    let cell = |w: Tensor, state: Option<Tensor>| Cell { weights: vec![w], state };
    for _ in 0..2 {
        f.call(&cell(new(&[1.0, 2.0]), Some(new(&[1.0])))).unwrap();
    }
    let one = || Some(new(&[1.0]));
    let e = refused(f.call(&cell(new(&[1.0, 2.0, 3.0]), one())));
    assert_eq!(e, "jit: input weights.0 has shape (3), recorded with (2)");
    let e = refused(f.call(&cell(Tensor::new([1i32, 2]), one())));
    assert_eq!(e, "jit: input weights.0 has dtype i32, recorded with f32");
    let e = refused(f.call(&cell(new(&[1.0, 2.0]).to("CPU:1"), one())));
    assert_eq!(e, "jit: input weights.0 is on CPU:1, recorded on CPU");
    let e = refused(f.call(&cell(new(&[1.0, 2.0]), None)));
    assert!(e.starts_with("jit: input state.is_some() is false, recorded with true: numbers are frozen"), "{e}");
    let two = Cell { weights: vec![new(&[1.0]), new(&[2.0])], state: one() };
    assert_eq!(refused(f.call(&two)), "jit: 3 inputs, recorded with 2");
    assert_eq!(values(&f.call(&cell(new(&[5.0, 6.0]), one())).unwrap()), [6.0, 7.0], "it is as it was");
}

#[test]
fn maps_with_other_names_and_numbers_that_change_are_refused() {
    let mut f = Jit::new(|(x, p): &(Tensor, BTreeMap<String, f32>)| x * p.values().sum::<f32>());
    let call = |name: &str, v: f32| (new(&[1.0]), BTreeMap::from([(name.to_string(), v)]));
    for _ in 0..3 {
        assert_eq!(values(&f.call(&call("lr", 0.5)).unwrap()), [0.5]);
    }
    let e = refused(f.call(&call("lr", 0.25)));
    assert!(e.starts_with("jit: input 1.lr is 0.25, recorded with 0.5: numbers are frozen"), "{e}");
    let e = refused(f.call(&call("rate", 0.5)));
    assert!(e.starts_with("jit: input 1 is \"rate\", recorded with \"lr\""), "{e}");
    assert_eq!(values(&f.call(&call("lr", 0.5)).unwrap()), [0.5]);
}

#[test]
fn a_bound_variable_is_an_input() {
    let base = new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    base.realize().unwrap();
    let n = Variable::new("n_input", 1, 8);
    let mut f = Jit::new(|(x, n): &(Tensor, UOp)| x.shrink(&[(UOp::int(0), n.clone())]).sum(()));
    for len in [3i64, 5, 2, 8, 8, 1, 5] {
        let out = f.call(&(base.clone(), n.bind(len))).unwrap();
        assert_eq!(out.item().unwrap(), (len * (len + 1) / 2) as f64, "length {len}");
    }
    let other = Variable::new("m_input", 1, 8);
    let e = refused(f.call(&(base.clone(), other.bind(2))));
    assert!(e.starts_with("jit: input 1 is m_input, recorded with n_input"), "{e}");
    // A variable that no input binds: the recording would not know its value.
    let kept = base.clone();
    let at = n.bind(4);
    let mut hidden = Jit::new(move |x: &Tensor| kept.shrink(&[(UOp::int(0), at.clone())]).sum(()) + x);
    let one = new(&[1.0]);
    for _ in 0..2 {
        assert_eq!(hidden.call(&one).unwrap().item().unwrap(), 11.0);
    }
    let e = refused(hidden.call(&one));
    assert!(e.starts_with("jit: variable 'n_input' was recorded but no input of this call binds it"), "{e}");
}

#[derive(Debug)]
enum Mine {
    Engine(Error),
    Parse(std::num::ParseFloatError),
}
impl From<Error> for Mine {
    fn from(e: Error) -> Mine {
        Mine::Engine(e)
    }
}
impl From<std::num::ParseFloatError> for Mine {
    fn from(e: std::num::ParseFloatError) -> Mine {
        Mine::Parse(e)
    }
}

#[test]
fn functions_return_errors_of_their_own_by_a_question_mark() {
    for text in ["2.5", "x"] {
        let mut f = Jit::new(|x: &Tensor| -> Result<Tensor, Mine> { Ok(x * text.parse::<f32>()?) });
        match f.call(&new(&[2.0])) {
            Ok(y) => assert_eq!(values(&y), [5.0]),
            Err(Mine::Parse(e)) => assert_eq!((text, e.to_string().as_str()), ("x", "invalid float literal")),
            Err(Mine::Engine(e)) => panic!("{e}"),
        }
    }
    let mut any = Jit::new(|x: &[Tensor]| -> Result<Vec<Tensor>, Box<dyn std::error::Error>> {
        std::fs::read("/no/such/file")?;
        Ok(x.to_vec())
    });
    assert!(any.call(&[new(&[1.0])]).unwrap_err().to_string().contains("No such file"));
    // A mistake in a Tensor is the function's too, and names its line.
    let mut wrong = Jit::new(|x: &Tensor| -> Result<Tensor, Mine> { Ok(x.reshape([3])) });
    let Err(Mine::Engine(e)) = wrong.call(&new(&[1.0])) else { panic!("not refused") };
    assert!(e.to_string().contains("jit_trees.rs"), "{e}");
}

#[test]
fn what_does_not_depend_on_inputs_runs_once_when_it_is_pruned() {
    let s = Session::open(Options::default()).unwrap();
    let _in_it = s.enter();
    let (table, count) = (new(&[1.0, 2.0, 3.0, 4.0]), Tensor::zeros([1]).contiguous());
    table.realize().unwrap();
    count.realize().unwrap();
    let step = |x: &Tensor| -> Result<(Tensor, Tensor), Error> {
        // Independent of x, in a kernel of its own.
        let weights = (table.cumsum(0) * 0.5).contiguous();
        weights.realize()?;
        count.assign(&(&count + 1.0));
        Ok((x * &weights, count.clone()))
    };
    let (mut plain, mut pruned) = (Jit::new(step), Jit::new(step).prune());
    for k in 1..=4 {
        let x = Tensor::full([4], k as f32).contiguous();
        let (a, n) = plain.call(&x).unwrap();
        assert_eq!(values(&n), [2.0 * k as f32 - 1.0]);
        let a = values(&a);
        let (b, n) = pruned.call(&x).unwrap();
        assert_eq!(values(&n), [2.0 * k as f32], "an assignment is repeated");
        assert_eq!(a, [0.5, 1.5, 3.0, 5.0].map(|w| w * k as f32));
        assert_eq!(a, values(&b), "call {k}");
    }
    let (all, left) = (plain.kernels().unwrap(), pruned.kernels().unwrap());
    assert_eq!(left, all - 1, "one of {all} kernels is left out");
}

#[test]
fn pruning_keeps_random_draws_and_what_follows_from_them() {
    let g = Generator::new(5);
    let inside = g.clone();
    let mut f = Jit::new(move |x: &Tensor| (x + inside.rand([4]) * 2.0, inside.rand([2]).contiguous())).prune();
    let mut seen: Vec<Vec<f32>> = Vec::new();
    for k in 0..5 {
        let (a, b) = f.call(&Tensor::zeros([4]).contiguous()).unwrap();
        let v = [values(&a), values(&b)].concat();
        assert!(!seen.contains(&v), "call {k} repeats an earlier draw");
        seen.push(v);
    }
}

#[test]
fn jit_2_submits_the_commands_one_list_anew() {
    let options = Options::from_lookup(|name| (name == "JIT").then(|| "2".into())).unwrap();
    assert_eq!((options.jit, options.jit_lists), (true, false));
    let s = Session::open(Options { device: "CPU".into(), ..options }).unwrap();
    let _in_it = s.enter();
    let mut f = Jit::new(|x: &[Tensor]| vec![(&x[0] + &x[1]).contiguous() * 2.0, x[0].sum(())]);
    for k in 0..5 {
        let k = k as f32;
        let out = f.call(&[new(&[k, k + 1.0]), new(&[10.0, 20.0])]).unwrap();
        assert_eq!(values(&out[0]), [2.0 * k + 20.0, 2.0 * k + 42.0]);
        assert_eq!(values(&out[1]), [2.0 * k + 1.0]);
    }
    assert!(f.is_recorded());
}

// What tinygrad's users trip over, and what happens here.

#[test]
fn a_constant_or_an_expression_as_input_is_computed_first() {
    let mut f = Jit::new(|x: &[Tensor]| vec![&x[0] + &x[1]]);
    for k in 0..4 {
        let constant = Tensor::full([2], k as f32);
        let expression = new(&[1.0, 2.0]) * 3.0;
        assert_eq!(values(&f.call(&[constant, expression]).unwrap()[0]), [k as f32 + 3.0, k as f32 + 6.0], "call {k}");
    }
}

#[test]
fn one_buffer_as_two_inputs_is_refused_by_name() {
    let mut f = Jit::new(|(a, b): &(Tensor, Tensor)| a + b);
    let x = new(&[1.0]);
    x.realize().unwrap();
    f.call(&(x.clone(), x.clone())).unwrap();
    let e = refused(f.call(&(x.clone(), x.clone())));
    assert!(e.starts_with("jit: input 0 and input 1 are the same buffer"), "{e}");
    f.call(&(x.clone(), new(&[2.0]))).unwrap();
    let e = refused(f.call(&(x.clone(), x.clone())));
    assert!(e.starts_with("jit: input 0 and input 1 are the same buffer"), "in a replay: {e}");
}

#[test]
fn a_function_that_runs_nothing_cannot_be_recorded() {
    let mut f = Jit::new(|x: &Tensor| x.clone());
    let x = new(&[1.0]);
    f.call(&x).unwrap();
    assert_eq!(refused(f.call(&x)), "jit: nothing was captured: the function ran no kernel");
}

#[test]
fn reading_a_value_while_recording_is_refused_and_nothing_is_left_open() {
    let mut f = Jit::new(|x: &Tensor| -> Result<Tensor, Error> {
        let y = x + 1.0;
        let first = y.to_f64()?[0];
        Ok(y * first as f32)
    });
    let x = new(&[1.0]);
    f.call(&x).unwrap();
    assert!(refused(f.call(&x)).starts_with("jit: data was read back during the recording"));
    assert_eq!((x + 1.0).item().unwrap(), 2.0);
}

#[test]
fn one_recording_inside_of_another_is_refused() {
    let mut inner = Jit::new(|x: &Tensor| x + 1.0);
    let mut outer = Jit::new(move |x: &Tensor| inner.call(&(x * 2.0)));
    outer.call(&new(&[1.0])).unwrap();
    let e = refused(outer.call(&new(&[1.0])));
    assert!(e.contains("already going on in this thread: call the inner function itself"), "{e}");
}

#[test]
fn results_that_are_not_realized_are_realized_by_the_call() {
    let mut f = Jit::new(|x: &Tensor| ((x + 1.0, x.sum(())), x.reshape([2, 1])));
    for k in 0..4 {
        let k = k as f32;
        let ((a, b), c) = f.call(&new(&[k, 1.0])).unwrap();
        assert_eq!((values(&a), values(&b), values(&c)), (vec![k + 1.0, 2.0], vec![k + 1.0], vec![k, 1.0]));
        assert_eq!(c.shape().unwrap(), [Dim::Int(2), Dim::Int(1)]);
    }
    assert!(matches!(f.call(&new(&[1.0])), Err(Error::Jit(JitError::Shape { .. }))));
}
