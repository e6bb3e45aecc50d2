//! Small built-in programs by name, for `dump` and for inspecting generated kernels.

use doorbell::engine::{Error, Jit};
use doorbell::tensor::prelude::*;

/// A program that needs only a device.
#[derive(Clone, Copy)]
pub struct Program {
    pub name: &'static str,
    pub about: &'static str,
    run: fn() -> Result<(), Error>,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Program {
    pub fn run(&self) -> Result<(), Error> {
        (self.run)()
    }
}

/// All built-in programs.
pub const ALL: &[Program] = &[
    Program { name: "add", about: "a + b over 1024 f32", run: add },
    Program { name: "sum", about: "sum of 65536 f32", run: sum },
    Program { name: "matmul", about: "256 x 256 times 256 x 256, f32", run: matmul },
    Program { name: "softmax", about: "rows of 64 x 512, f32", run: softmax },
    Program { name: "conv2d", about: "3 x 3, 4 x 8 x 16 x 16 to 16 channels, f32", run: conv2d },
    Program { name: "train", about: "one step of `doorbell train`, batch 4, f32", run: super::train::one_step },
    Program { name: "mlp", about: "forward and backward of 64 x 32 x 10, batch 16, f32", run: mlp },
];

/// The program of that name.
///
/// # Errors
/// A line that lists the valid names.
pub fn parse(name: &str) -> Result<Program, String> {
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

fn add() -> Result<(), Error> {
    (&input(&[1024], 1) + &input(&[1024], 2)).realize().map(drop)
}
fn sum() -> Result<(), Error> {
    input(&[65536], 1).sum(()).realize().map(drop)
}
fn matmul() -> Result<(), Error> {
    input(&[256, 256], 1).matmul(&input(&[256, 256], 2)).realize().map(drop)
}
fn softmax() -> Result<(), Error> {
    input(&[64, 512], 1).softmax(-1).realize().map(drop)
}
fn conv2d() -> Result<(), Error> {
    input(&[4, 8, 16, 16], 1).conv2d(&input(&[16, 8, 3, 3], 2), None, Conv::padded(1)).realize().map(drop)
}
fn mlp() -> Result<(), Error> {
    let (w1, w2) = (input(&[64, 32], 1), input(&[32, 10], 2));
    let mut step = Jit::new(|x: &[Tensor]| {
        let y = x[0].matmul(&w1).relu().matmul(&w2).square().mean(());
        let mut out = y.gradient(&[&w1, &w2]);
        out.push(y);
        out
    });
    step.call(&[input(&[16, 64], 3)]).map(drop)
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
