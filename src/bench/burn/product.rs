//! Products whose result is known exactly: the factors repeat a tile of small integers, so that every sum is an integer
//! that f32 holds, in whichever order it is added up. Each round has other tiles.

use super::{Finding, NO_ANSWER, answers};
use crate::cases::inputs::captured_all;
use crate::cases::memory::places;
use crate::error::BenchError;
use crate::machine::{Kind, Machine};
use crate::stats::Draw;
use doorbell::device::{Command, Memory, QueueKind};
use doorbell::tensor::prelude::*;

/// Rows and columns of a tile.
const TILE: usize = 16;
/// Integers of a tile are below this and above its negative.
const MOST: i64 = 4;

/// A product of one type and size.
pub(crate) struct ProductTest {
    n: usize,
    of: Scalar,
    /// The tiles of both factors and of the result.
    tiles: [Memory; 3],
    out: Memory,
    result: Memory,
    /// What the tests run; the Tensors keep their memory.
    commands: Vec<Command>,
    _tensors: Vec<Tensor>,
}

impl ProductTest {
    /// Those of a device: in f32, and in the type of its matrix units.
    pub(crate) fn all(machine: &Machine) -> Result<Vec<Self>, BenchError> {
        let types: &[Scalar] = match machine.kind {
            Kind::Cpu => &[Scalar::F32],
            _ => &[Scalar::F32, Scalar::F16],
        };
        types.iter().map(|of| Self::new(machine, *of)).collect()
    }

    fn new(machine: &Machine, of: Scalar) -> Result<Self, BenchError> {
        let n = match (machine.is_small, machine.kind) {
            (true, _) => 2 * TILE,
            (false, Kind::Cpu) => 512,
            (false, _) => 4096,
        };
        let tile = || {
            let t = Tensor::from_slice(&[0f32; TILE * TILE], [TILE, TILE]).to(&machine.name).cast(of).contiguous();
            t.realize().map(|_| t.clone()).map_err(BenchError::from)
        };
        let (a, b, c) = (tile()?, tile()?, tile()?);
        let tiles = [places(machine, &a)?, places(machine, &b)?, places(machine, &c)?];
        let times = n / TILE;
        let (tensors, captured) = captured_all(|| {
            let whole = |t: &Tensor| t.repeat(&[times, times]).contiguous();
            let product = whole(&a).matmul(&whole(&b)).contiguous();
            let want = c.reshape([1, TILE, 1, TILE]);
            let is_wrong = product.reshape([times, TILE, times, TILE]).ne(&want).reshape([n * n]);
            let count = is_wrong.cast(Scalar::I32).sum(()).reshape([1]);
            let at = Tensor::arange((n * n) as i64).cast(Scalar::I32);
            let first = is_wrong.where_(&at, &at.const_like((n * n) as i64)).min(()).reshape([1]);
            vec![Tensor::cat(&[&count, &first], 0).contiguous(), product]
        })?;
        let (out, result) = (places(machine, &tensors[0])?, places(machine, &tensors[1])?);
        let mut kept = tensors;
        kept.extend([a, b, c]);
        Ok(Self { n, of, tiles, out, result, commands: captured.commands, _tensors: kept })
    }

    /// Multiplications and additions of a round.
    pub(crate) fn operations(&self) -> f64 {
        2.0 * (self.n as f64).powi(3)
    }

    /// Elements compared in a round.
    pub(crate) fn elements(&self) -> u64 {
        (self.n * self.n) as u64
    }

    /// One product, compared.
    pub(crate) fn round(&mut self, machine: &Machine, round: u64) -> Result<Option<Finding>, BenchError> {
        let (a, b) = (tile(2 * round + 1), tile(2 * round + 2));
        let want = product(&a, &b, (self.n / TILE) as i64);
        for (memory, values) in self.tiles.iter().zip([&a, &b, &want]) {
            machine.device().copy_in(memory, 0, &bytes(values, self.of))?;
        }
        machine.device().copy_in(&self.out, 0, &NO_ANSWER)?;
        machine.run(QueueKind::Compute, &self.commands)?;
        let (count, first) = answers(machine, &self.out)?;
        if count == 0 && first == self.elements() {
            return Ok(None);
        }
        self.finding(machine, (round, count, first), &want).map(Some)
    }

    fn finding(
        &self,
        machine: &Machine,
        (round, count, first): (u64, u64, u64),
        want: &[i64],
    ) -> Result<Finding, BenchError> {
        let blank = Finding { test: "product", round, text: String::new(), element: None, address: None, count };
        if first >= self.elements() {
            let text = format!("{} product of {}: no answer ({count:#x}, {first:#x})", self.of, self.n);
            return Ok(Finding { text, ..blank });
        }
        let at = first as usize;
        let (row, column, size) = (at / self.n, at % self.n, self.of.size_bytes());
        let mut have = vec![0; size];
        machine.device().copy_out(&self.result, (at * size) as u64, &mut have)?;
        let want = bytes(&[want[row % TILE * TILE + column % TILE]], self.of);
        let text = format!(
            "{} product of {}: row {row}, column {column} is {}, not {}; {count} elements are wrong",
            self.of,
            self.n,
            hex(&have),
            hex(&want)
        );
        let address = Some(self.result.va() + (at * size) as u64);
        Ok(Finding { text, element: Some(first), address, ..blank })
    }
}

/// A tile of small integers.
fn tile(seed: u64) -> Vec<i64> {
    let mut draw = Draw(seed);
    (0..TILE * TILE).map(|_| draw.below(2 * MOST as usize - 1) as i64 - (MOST - 1)).collect()
}

/// The tile of the product of two matrices that repeat tiles so many times.
fn product(a: &[i64], b: &[i64], times: i64) -> Vec<i64> {
    let at = |row: usize, column: usize| (0..TILE).map(|k| a[row * TILE + k] * b[k * TILE + column]).sum::<i64>();
    (0..TILE * TILE).map(|n| times * at(n / TILE, n % TILE)).collect()
}

/// Integers in a type, rounded as the type rounds.
fn bytes(values: &[i64], of: Scalar) -> Vec<u8> {
    let one = |v: &i64| match of {
        Scalar::F16 => half::f16::from_f64(*v as f64).to_le_bytes().to_vec(),
        _ => (*v as f32).to_le_bytes().to_vec(),
    };
    values.iter().flat_map(one).collect()
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().rev().map(|b| format!("{b:02x}")).collect();
    format!("0x{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_of_repeated_tiles_is_a_tile_times_their_number() {
        let (a, b) = (tile(1), tile(2));
        let n = 3 * TILE;
        let at = |t: &[i64], row: usize, column: usize| t[row % TILE * TILE + column % TILE];
        let want = product(&a, &b, 3);
        for (row, column) in [(0, 0), (17, 5), (47, 47)] {
            let sum: i64 = (0..n).map(|k| at(&a, row, k) * at(&b, k, column)).sum();
            assert_eq!(sum, at(&want, row, column));
        }
        assert!(a.iter().all(|v| v.abs() < MOST) && a != b);
    }
}
