//! The rows of the tables in `docs/guide/from-tinygrad.md` and `docs/guide/from-pytorch.md` that no introduction shows.

use crate::Fragment;
use doorbell::engine::session;
use doorbell::nn::optim::schedule::{Curve, LrSchedule};
use doorbell::nn::optim::{AdamW, Optimizer, clip_grad_norm};
use doorbell::nn::{self, Conv2d, Dropout, LSTM, Linear, Module, MultiHeadAttention, Recurrent, Sequential};
use doorbell::tensor::prelude::*;

#[test]
fn tensors_and_their_parts() -> Fragment {
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
    let half = Tensor::on("CPU").dtype(Scalar::F16).rand(10);
    assert_eq!((&*half.device(), half.dtype()?), ("CPU", Scalar::F16));
    assert_eq!((&x + 1.0).tolist::<Vec<Vec<f32>>>()?, [[2.0, 3.0, 4.0], [5.0, 6.0, 7.0]]);
    assert_eq!(x.matmul(&x.t()).tolist::<Vec<Vec<f32>>>()?, [[14.0, 32.0], [32.0, 77.0]]);
    assert_eq!(x.get((1..2, 0)).to_vec::<f32>()?, [4.0]);
    assert_eq!(x.get((.., 1..3)).tolist::<Vec<Vec<f32>>>()?, [[2.0, 3.0], [5.0, 6.0]]);
    assert_eq!(x.get(&x.gt(4.0)).to_vec::<f32>()?, [5.0, 6.0]);
    assert_eq!((x.sum(()).item()?, x.sum_keep(1).shape()?), (21.0, vec![Dim::Int(2), Dim::Int(1)]));
    assert_eq!(x.reshape([-1, 2]).shape()?, [3, 2]);
    assert_eq!(x.permute([1, 0]).get(0).to_vec::<f32>()?, [1.0, 4.0]);
    assert_eq!(x.half().dtype()?, Scalar::F16);
    let (same, copy) = (x.clone(), x.contiguous());
    copy.realize()?;
    x.set(0, 9.0);
    Tensor::realize_all(&[&x, &copy])?;
    assert_eq!(same.get((.., 0)).to_vec::<f32>()?, [9.0, 4.0]);
    assert_eq!(copy.get((.., 0)).to_vec::<f32>()?, [1.0, 4.0]);
    let quotient = Tensor::new([1, 2]) / 2;
    assert!(quotient.dtype()?.is_float());
    assert_eq!(quotient.to_f64()?, [0.5, 1.0]);
    assert_eq!(x.detach().to_vec::<f32>()?, x.to_vec::<f32>()?);
    Ok(())
}

#[test]
fn layers_and_their_modes() -> Fragment {
    let image = Tensor::rand([2, 3, 8, 8]);
    let conv = Conv2d::new(3, 8, 3, Conv::padded(1)).without_bias();
    assert_eq!(conv.forward(&image).shape()?, [2, 8, 8, 8]);
    let net = Sequential::new().layer(Linear::new(8, 4)).then(|x| x.relu()).layer(Linear::new(4, 2));
    assert_eq!(net.forward(&image).shape()?, [2, 3, 8, 2]);
    let tokens = Tensor::rand([2, 5, 64]);
    assert_eq!(MultiHeadAttention::new(64, 4).forward(&tokens, &tokens, &tokens, None, true).shape()?, [2, 5, 64]);
    let lstm = LSTM::new(64, 32, Recurrent { batch_first: true, ..Recurrent::default() });
    assert_eq!(lstm.forward(&tokens, None).0.shape()?, [2, 5, 32]);
    let (drop, ones) = (Dropout::new(0.5), Tensor::ones([64]));
    let kept = |mode: nn::Mode| -> Result<f64, doorbell::Error> {
        let _mode = mode;
        drop.call(&ones).eq(1.0).all(()).cast(Scalar::I32).item()
    };
    assert_eq!((kept(nn::evaluating())?, kept(nn::training())?), (1.0, 0.0));
    assert!(!nn::is_training());
    Ok(())
}

#[test]
fn a_step_with_clipped_gradients_and_a_schedule_of_rates() -> Fragment {
    let model = Linear::new(4, 3);
    let mut optim = AdamW::new(model.parameters(), 0.1)?;
    let mut schedule = LrSchedule::new(&optim, Curve::cosine_annealing(10, 0.0))?;
    let (x, y) = (Tensor::rand([8, 4]), Tensor::arange(8).modulo(3).cast(Scalar::I32));
    let loss = model.forward(&x).sparse_categorical_crossentropy(&y);
    loss.backward()?;
    let norm = clip_grad_norm(&optim.params(), 0.01)?;
    optim.step()?;
    schedule.step()?;
    let squares: f64 =
        model.parameters().iter().filter_map(Tensor::grad).map(|g| g.square().sum(()).item().unwrap()).sum();
    assert!(norm.item()? > 0.01 && (squares.sqrt() - 0.01).abs() < 1e-5, "{squares}");
    let rate = 0.05 * (1.0 + (std::f64::consts::PI / 10.0).cos());
    assert!((optim.lr().item()? - rate).abs() < 1e-6);
    assert!(session()?.counters.totals().kernels > 0);
    Ok(())
}
