//! Small built-in programs by name, for `dump`, for `compile`, and for inspecting generated kernels.

use doorbell::engine::{Error, Jit, PackageBytes, PackageOptions};
use doorbell::tensor::prelude::*;
use std::collections::BTreeMap;

/// Tensors by name.
pub(crate) type Named = BTreeMap<&'static str, Tensor>;

/// What a program computes.
pub(crate) type Function = Box<dyn FnMut(&Named) -> Result<Named, Error>>;

/// A program that needs only a device.
#[derive(Clone, Copy)]
pub(crate) struct Program {
    pub name: &'static str,
    pub about: &'static str,
    /// The function, and inputs for it.
    make: fn() -> Result<(Function, Named), Error>,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Program {
    /// Computes it once.
    pub(crate) fn run(&self) -> Result<(), Error> {
        let (function, inputs) = (self.make)()?;
        Jit::new(function).call(&inputs).map(drop)
    }

    /// Records it as a package.
    pub(crate) fn package(&self, options: &PackageOptions) -> Result<PackageBytes, Error> {
        let (mut function, inputs) = (self.make)()?;
        // A gradient may be a view of memory in another order.
        let mut recorded = Jit::new(move |x: &Named| -> Result<Named, Error> {
            Ok(function(x)?.into_iter().map(|(name, t)| (name, t.contiguous())).collect())
        });
        recorded.call(&inputs)?;
        recorded.call(&inputs)?;
        recorded.package(&PackageOptions { name: self.name.into(), ..options.clone() })
    }
}

/// All built-in programs.
pub(crate) const ALL: &[Program] = &[
    Program { name: "add", about: "a + b over 1024 f32", make: add },
    Program { name: "sum", about: "sum of 65536 f32", make: sum },
    Program { name: "matmul", about: "256 x 256 times 256 x 256, f32", make: matmul },
    Program { name: "softmax", about: "rows of 64 x 512, f32", make: softmax },
    Program { name: "conv2d", about: "3 x 3, 4 x 8 x 16 x 16 to 16 channels, f32", make: conv2d },
    Program { name: "train", about: "one step of `doorbell train`, batch 4, f32", make: super::train::one_step },
    Program { name: "mlp", about: "forward and backward of 64 x 32 x 10, batch 16, f32", make: mlp },
];

/// The program of that name.
///
/// # Errors
/// A line that lists the valid names.
pub(crate) fn parse(name: &str) -> Result<Program, String> {
    ALL.iter().find(|p| p.name == name).copied().ok_or_else(|| {
        let names: Vec<String> = ALL.iter().map(|p| format!("{} ({})", p.name, p.about)).collect();
        format!("no such program; there are: {}", names.join(", "))
    })
}

/// Input data that the compiler does not treat as constants.
fn input(shape: &[usize], seed: u32) -> Tensor {
    let n: usize = shape.iter().product();
    let data: Vec<f32> = (0..n as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 16) as f32 / 65536.0 - 0.5)
        .collect();
    Tensor::from_slice(&data, shape)
}

/// A function of one result, and its inputs.
fn of(
    inputs: impl IntoIterator<Item = (&'static str, Tensor)>,
    compute: impl Fn(&Named) -> Tensor + 'static,
) -> Result<(Function, Named), Error> {
    let function: Function = Box::new(move |x| Ok(Named::from([("out", compute(x))])));
    Ok((function, inputs.into_iter().collect()))
}

fn add() -> Result<(Function, Named), Error> {
    of([("a", input(&[1024], 1)), ("b", input(&[1024], 2))], |x| &x["a"] + &x["b"])
}
fn sum() -> Result<(Function, Named), Error> {
    of([("x", input(&[65536], 1))], |x| x["x"].sum(()))
}
fn matmul() -> Result<(Function, Named), Error> {
    of([("a", input(&[256, 256], 1)), ("b", input(&[256, 256], 2))], |x| x["a"].matmul(&x["b"]))
}
fn softmax() -> Result<(Function, Named), Error> {
    of([("x", input(&[64, 512], 1))], |x| x["x"].softmax(-1))
}
fn conv2d() -> Result<(Function, Named), Error> {
    let w = input(&[16, 8, 3, 3], 2);
    w.realize()?;
    of([("x", input(&[4, 8, 16, 16], 1))], move |x| x["x"].conv2d(&w, None, Conv::padded(1)))
}
fn mlp() -> Result<(Function, Named), Error> {
    let (w1, w2) = (input(&[64, 32], 1), input(&[32, 10], 2));
    Tensor::realize_all(&[&w1, &w2])?;
    let function: Function = Box::new(move |x| {
        let loss = x["x"].matmul(&w1).relu().matmul(&w2).square().mean(());
        let mut gradients = loss.gradient(&[&w1, &w2]).into_iter();
        let names = ["w1.grad", "w2.grad"].into_iter();
        let mut out: Named = names.zip(gradients.by_ref()).collect();
        out.insert("loss", loss);
        Ok(out)
    });
    Ok((function, Named::from([("x", input(&[16, 64], 3))])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_program_names_the_valid_ones() {
        assert!(parse("frobnicate").unwrap_err().contains("softmax"));
        assert_eq!(parse("matmul").unwrap().name, "matmul");
    }
}
