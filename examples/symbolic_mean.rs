//! One kernel for all lengths: sum, mean and more over a size that is a variable. Run with
//! `cargo run --example symbolic_mean`, with `DEBUG=4` to see the kernels.

use doorbell::engine::session;
use doorbell::tensor::prelude::*;

/// Kernels compiled so far.
fn compiled() -> Result<u64, doorbell::Error> {
    Ok(session()?.counters.totals().compiled)
}

pub fn main() -> Result<(), doorbell::Error> {
    // A sum of four numbers is one kernel, whose loop has four rounds; a sum of eight is another one.
    let four = Tensor::rand(4);
    println!("sum of 4: {:.4}", four.sum(()).item()?);
    let before = compiled()?;
    let eight = Tensor::rand(8);
    println!("sum of 8: {:.4}", eight.sum(()).item()?);
    println!("{} kernels more were compiled for 8\n", compiled()? - before);

    // With a variable in its place, the length is an argument of the kernel: 4, 5, 6, 7 and 8 share it.
    let length = Variable::new("length", 4, 8);
    let a = Tensor::rand(length.bind(4));
    println!("sum of length 4: {:.4}", a.sum(()).item()?);
    let before = compiled()?;
    let c = Tensor::rand(length.bind(8));
    println!("sum of length 8: {:.4}", c.sum(()).item()?);
    println!("{} kernels more were compiled for 8\n", compiled()? - before);
    assert_eq!(compiled()?, before);

    // A bound variable is split again into the variable and its value.
    let bound = length.bind(4);
    let (same, value) = Variable::unbind(&bound).expect("it is bound");
    assert_eq!((&same, value), (&length, 4));

    // The mean divides by the length, which is a number like any other: a Tensor takes it as an operand.
    let by_hand = a.sum(()).div(&Tensor::from(length.bind(4)));
    println!("mean of length 4: {:.4}, by hand {:.4}", a.mean(()).item()?, by_hand.item()?);
    assert!((a.mean(()).item()? - by_hand.item()?).abs() < 1e-6);

    // So do max, min, variance and deviation; none needs a kernel of its own for another length.
    let all = |x: &Tensor| -> Result<Vec<f64>, doorbell::Error> {
        [x.sum(()), x.mean(()), x.max(()), x.min(()), x.var((), 1), x.std((), 1)].iter().map(Tensor::item).collect()
    };
    all(&a)?;
    let before = compiled()?;
    for n in 4..=8 {
        let x = Tensor::rand(length.bind(n));
        let host = x.to_vec::<f32>()?;
        let mean = host.iter().sum::<f32>() / n as f32;
        let figures = all(&x)?;
        println!("length {n}: mean {:.4}, std {:.4}", figures[1], figures[5]);
        assert_eq!(host.len(), n as usize);
        assert!((figures[1] - f64::from(mean)).abs() < 1e-5);
    }
    println!("{} kernels more were compiled for lengths 4 to 8", compiled()? - before);
    assert!(compiled()? - before <= 1, "reading a Tensor back makes it dense");
    Ok(())
}
