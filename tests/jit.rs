//! Recorded functions: replays see new inputs and new state, and refuse what does not fit the recording.

use doorbell::engine::{Error, Jit, JitError};
use doorbell::tensor::prelude::*;

fn vec(v: &[f32]) -> Tensor {
    Tensor::from_slice(v, [v.len()])
}

#[test]
fn replays_compute_with_the_inputs_of_each_call() {
    let mut f = Jit::new(|x: &[Tensor]| vec![(&x[0] + &x[1]) * 2.0, x[0].sum(())]);
    for k in 0..6 {
        let base = k as f32;
        let out = f.call(&[vec(&[base, 1.0, 2.0]), vec(&[10.0, 20.0, 30.0])]).unwrap();
        assert_eq!(out[0].to_vec::<f32>().unwrap(), [2.0 * (base + 10.0), 42.0, 64.0], "call {k}");
        assert_eq!(out[1].item().unwrap(), f64::from(base) + 3.0, "call {k}");
        assert_eq!(f.is_recorded(), k >= 1);
    }
}

#[test]
fn state_assigned_in_the_function_advances_at_each_replay_and_is_seen_outside() {
    let counter = Tensor::zeros([4]).contiguous();
    counter.realize().unwrap();
    let inside = counter.clone();
    let mut f = Jit::new(move |x: &[Tensor]| {
        inside.assign(&(&inside + &x[0]));
        vec![inside.clone()]
    });
    for k in 1..=5 {
        f.call(&[vec(&[1.0, 2.0, 3.0, 4.0])]).unwrap();
        let doubled = (&counter * 2.0).to_vec::<f32>().unwrap();
        assert_eq!(doubled, [2.0, 4.0, 6.0, 8.0].map(|v| v * k as f32), "call {k}");
    }
}

#[test]
fn inputs_unlike_the_recorded_ones_are_named_errors() {
    let mut f = Jit::new(|x: &[Tensor]| vec![&x[0] + 1.0]);
    for _ in 0..2 {
        f.call(&[vec(&[1.0, 2.0])]).unwrap();
    }
    let err = |r: Result<Vec<Tensor>, Error>| match r.unwrap_err() {
        Error::Jit(e) => e,
        other => panic!("{other}"),
    };
    assert!(matches!(err(f.call(&[vec(&[1.0, 2.0, 3.0])])), JitError::Shape { input, .. } if input == "input 0"));
    assert!(
        matches!(err(f.call(&[Tensor::from_slice(&[1i32, 2], [2])])), JitError::Dtype { input, .. } if input == "input 0")
    );
    assert_eq!(err(f.call(&[])), JitError::Count { have: 0, want: 1 });
    // A refused call leaves the recording as it was.
    assert_eq!(f.call(&[vec(&[5.0, 6.0])]).unwrap()[0].to_vec::<f32>().unwrap(), [6.0, 7.0]);
}

#[test]
fn a_function_that_runs_nothing_or_reads_back_cannot_be_recorded() {
    let x = vec(&[1.0]);
    let mut nothing = Jit::new(|x: &[Tensor]| vec![x[0].clone()]);
    nothing.call(std::slice::from_ref(&x)).unwrap();
    assert!(matches!(nothing.call(std::slice::from_ref(&x)), Err(Error::Jit(JitError::NothingCaptured))));
    let mut reads = Jit::new(|x: &[Tensor]| -> Result<Vec<Tensor>, Error> {
        let y = &x[0] + 1.0;
        y.item()?;
        Ok(vec![y])
    });
    reads.call(std::slice::from_ref(&x)).unwrap();
    assert!(matches!(reads.call(std::slice::from_ref(&x)), Err(Error::Jit(JitError::ReadDuringCapture))));
    let mut twice = Jit::new(|x: &[Tensor]| vec![&x[0] + &x[1]]);
    twice.call(&[x.clone(), x.clone()]).unwrap();
    let (first, second) = ("input 0".into(), "input 1".into());
    let same = twice.call(&[x.clone(), x]);
    assert!(matches!(same, Err(Error::Jit(e)) if e == JitError::SameBuffer { first, second }));
}

#[test]
fn tensors_of_equal_expressions_are_assigned_to_one_by_one() {
    let (a, b) = (Tensor::zeros([3]).contiguous(), Tensor::zeros([3]).contiguous());
    Tensor::realize_all(&[a.clone(), b.clone()]).unwrap();
    a.assign(&(&a + 1.0));
    assert_eq!(a.to_vec::<f32>().unwrap(), [1.0; 3]);
    assert_eq!(b.to_vec::<f32>().unwrap(), [0.0; 3]);
    a.assign(&(&a + 1.0));
    assert_eq!(a.to_vec::<f32>().unwrap(), [2.0; 3]);
    assert_eq!((&b + &Tensor::zeros([3])).to_vec::<f32>().unwrap(), [0.0; 3]);
}
