//! Ranks of MPI: what each of their common calls gives on every rank. Run by `cargo xtask mpi`, as `mpirun -n 2` and
//! `-n 4`; alone it is the only rank.

use doorbell::mpi::{Combine, MpiError, World};
use doorbell::tensor::prelude::*;

fn read(t: &Tensor) -> Vec<f32> {
    t.cast(Scalar::F32).to_vec().unwrap_or_else(|e| panic!("{e}"))
}

/// The numbers of rank `r`: (2, 3), none of them a rank's number of another place.
fn numbers(r: usize) -> Vec<f32> {
    (0..6).map(|k| (r * 10 + k) as f32 * 0.5 - 7.0).collect()
}

fn combined(world: &World) {
    let ranks = world.size();
    let over = |f: &dyn Fn(Vec<f32>) -> f32| -> Vec<f32> {
        (0..6).map(|k| f((0..ranks).map(|r| numbers(r)[k]).collect())).collect()
    };
    for (how, want) in [
        (Combine::Sum, over(&|all| all.iter().sum())),
        (Combine::Mean, over(&|all| all.iter().sum::<f32>() / all.len() as f32)),
        (Combine::Max, over(&|all| all.into_iter().fold(f32::MIN, f32::max))),
        (Combine::Min, over(&|all| all.into_iter().fold(f32::MAX, f32::min))),
    ] {
        // Memory, an expression, a half type, and one that is sharded over two devices.
        let own = || Tensor::from_slice(&numbers(world.rank()), [2, 3]);
        let memory = own().contiguous().realize().unwrap().clone();
        let view = memory.clone();
        let (sum, half) = (own() + 1.0 - 1.0, own().cast(Scalar::F16));
        let sharded = own().shard(&["CPU", "CPU:1"], 0);
        world.all_reduce(&[&memory, &sum, &half, &sharded], how).unwrap();
        for t in [&memory, &view, &sum, &sharded] {
            assert_eq!(read(t), want, "{how:?}");
        }
        assert_eq!(half.dtype().unwrap(), Scalar::F16);
        assert!(read(&half).iter().zip(&want).all(|(g, w)| (g - w).abs() <= 0.01 * w.abs()), "{how:?}");
        assert_eq!(sharded.devices().len(), 2);
    }
    let whole = Tensor::new([world.rank() as i32 + 1, -5]);
    let wide = Tensor::new([1i64 << 40]);
    world.all_reduce(&[&whole, &wide], Combine::Sum).unwrap();
    let n = ranks as i32;
    assert_eq!(whole.to_vec::<i32>().unwrap(), [n * (n + 1) / 2, -5 * n]);
    assert_eq!(wide.to_vec::<i64>().unwrap(), [(1i64 << 40) * i64::from(n)]);
    // Memory stays the memory that it was: what was built on it sees the result.
    let state = Tensor::zeros([3]).contiguous();
    state.assign(&Tensor::new([world.rank() as f32; 3])).realize().unwrap();
    let before = state.clone();
    world.all_reduce(&[&state], Combine::Max).unwrap();
    assert_eq!(read(&before), [(ranks - 1) as f32; 3]);
}

fn passed_on(world: &World) {
    let last = world.size() - 1;
    let t = Tensor::from_slice(&numbers(world.rank()), [2, 3]);
    let u = Tensor::new([world.rank() as u8]);
    world.broadcast(&[&t, &u], last).unwrap();
    assert_eq!(read(&t), numbers(last));
    assert_eq!(u.to_vec::<u8>().unwrap(), [last as u8]);
    let own = Tensor::from_slice(&numbers(world.rank()), [2, 3]);
    let all = world.all_gather(&own).unwrap();
    assert_eq!(all.shape().unwrap(), [Dim::from(2 * world.size()), Dim::Int(3)]);
    assert_eq!(read(&all), (0..world.size()).flat_map(numbers).collect::<Vec<f32>>());
    let part = world.rows(8 * world.size()).unwrap();
    assert_eq!(part, 8 * world.rank()..8 * world.rank() + 8);
    world.barrier();
}

fn gradients(world: &World) {
    let w = Tensor::new([2.0f32, 3.0]).requires_grad();
    let x = Tensor::new([world.rank() as f32, 1.0]);
    (&w * &x).sum(()).backward().unwrap();
    world.average_gradients(std::slice::from_ref(&w)).unwrap();
    assert_eq!(read(&w.grad().unwrap()), [(world.size() - 1) as f32 / 2.0, 1.0]);
}

/// What does not fit is an error on every rank, and none waits for ever.
fn refused(world: &World) {
    let text = |r: Result<(), MpiError>| r.unwrap_err().to_string();
    let flags = Tensor::new([true]);
    assert!(text(world.all_reduce(&[&flags], Combine::Max)).contains("type bool are not passed"));
    let whole = Tensor::new([1i32]);
    assert!(text(world.all_reduce(&[&whole], Combine::Mean)).contains("the mean of numbers of type i32"));
    assert!(text(world.broadcast(&[&whole], 99)).contains("there is no rank 99"));
    assert!(matches!(World::init(), Err(MpiError::Twice)));
    if world.size() == 1 {
        return;
    }
    assert!(matches!(world.rows(world.size() + 1), Err(MpiError::Rows { .. })));
    // The last rank comes with another shape, then with what it cannot compute.
    let is_last = world.rank() + 1 == world.size();
    let odd = Tensor::zeros([if is_last { 3 } else { 4 }]);
    let reported = text(world.all_reduce(&[&odd], Combine::Sum));
    assert!(reported.contains("came with other Tensors than"), "{reported}");
    let wrong = if is_last { Tensor::zeros([2]) + Tensor::zeros([3]) } else { Tensor::zeros([2]) };
    let reported = text(world.all_reduce(&[&wrong], Combine::Sum));
    let want = if is_last { "do not broadcast".into() } else { format!("rank {} could not compute", world.size() - 1) };
    assert!(reported.contains(&want), "{reported}");
    // They go on together.
    let t = Tensor::new([1.0f32]);
    world.all_reduce(&[&t], Combine::Sum).unwrap();
    assert_eq!(read(&t), [world.size() as f32]);
}

fn main() {
    let world = World::init().unwrap_or_else(|e| panic!("{e}"));
    combined(&world);
    passed_on(&world);
    gradients(&world);
    refused(&world);
    world.barrier();
    println!("rank {} of {}: ok", world.rank(), world.size());
}
