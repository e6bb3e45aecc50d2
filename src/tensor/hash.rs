//! Keccak: SHA-3 and SHAKE of the bytes along the last axis, and tinygrad's tree hash.
//!
//! Source: NIST FIPS 202. The state of a message is a row of 25 lanes (u64, lane `x + 5 y`) and one more that counts
//! the rounds, so that all rounds of all blocks are one and the same kernel.

use super::elementwise::Elementwise;
use super::error::{Problem, Shown};
use super::graph;
use super::handle::Tensor;
use super::index::at_positions;
use super::movement::{Movement, positions};
use super::reduction::Reduction;
use super::value::{Expr, Value, lift};
use crate::uop::{DType, Dim, Scalar, UOp};

/// A hash function of the Keccak family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keccak {
    /// SHA3, 28 bytes.
    Sha3_224,
    /// SHA3, 32 bytes.
    #[default]
    Sha3_256,
    /// SHA3, 48 bytes.
    Sha3_384,
    /// SHA3, 64 bytes.
    Sha3_512,
    /// The first 16 bytes of its output.
    Shake128,
    /// The first 32 bytes of its output.
    Shake256,
}

impl Keccak {
    /// Bytes that a block takes in.
    fn rate(self) -> i64 {
        match self {
            Keccak::Sha3_224 => 144,
            Keccak::Sha3_256 | Keccak::Shake256 => 136,
            Keccak::Sha3_384 => 104,
            Keccak::Sha3_512 => 72,
            Keccak::Shake128 => 168,
        }
    }
    /// Bytes of the result: half of what a block leaves of the state.
    fn len(self) -> i64 {
        (200 - self.rate()) / 2
    }
    /// The first byte of the padding, which tells the functions apart.
    fn suffix(self) -> i64 {
        if matches!(self, Keccak::Shake128 | Keccak::Shake256) { 0x1f } else { 6 }
    }
}

const LANES: i64 = 25;
const ROUNDS: usize = 24;
const ROUND_CONSTANTS: [u64; ROUNDS] = [
    0x1,
    0x8082,
    0x8000_0000_0000_808a,
    0x8000_0000_8000_8000,
    0x808b,
    0x8000_0001,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8009,
    0x8a,
    0x88,
    0x8000_8009,
    0x8000_000a,
    0x8000_808b,
    0x8000_0000_0000_008b,
    0x8000_0000_0000_8089,
    0x8000_0000_0000_8003,
    0x8000_0000_0000_8002,
    0x8000_0000_0000_0080,
    0x800a,
    0x8000_0000_8000_000a,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8080,
    0x8000_0001,
    0x8000_0000_8000_8008,
];
/// By how many bits each lane is rotated to the left.
const ROTATIONS: [u64; 25] =
    [0, 1, 62, 28, 27, 36, 44, 6, 55, 20, 3, 10, 43, 25, 39, 41, 45, 15, 21, 8, 18, 2, 61, 56, 14];

/// Hashes.
pub trait Hash: Value {
    /// The hash of the bytes along the last axis (little-endian elements): (.., n) → u8 (.., digest). `kind` may be
    /// `Keccak::default()`, SHA3-256.
    ///
    /// # Errors
    /// No axis, a symbolic one, or elements without bytes.
    #[track_caller]
    fn keccak(&self, kind: Keccak) -> Self {
        lift("keccak", [self.node()], |[x]| keccak(&x, kind))
    }
    /// A hash of the whole Tensor, 16 bytes: SHAKE128 over 4096-byte pieces, over the hashes of each MiB, and so on up
    /// the tree (tinygrad's `hash`). A MiB takes about 1200 kernels, however many are hashed at once.
    ///
    /// # Errors
    /// A symbolic shape, or elements without bytes.
    #[track_caller]
    fn hash(&self) -> Self {
        lift("hash", [self.node()], |[x]| {
            let mut data = bytes(&x.reshape([crate::uop::numel(x.shape())]))?;
            loop {
                let Some(n) = data.dim(0).as_int() else { return Err(symbolic(&x)) };
                let chunks = ((n + MIB - 1) / MIB).max(1);
                data = mebibytes(&data.pad(&[(0, chunks * MIB - n)]).reshape([chunks, MIB]))?.flatten(0, -1);
                if chunks == 1 {
                    return Ok(data);
                }
            }
        })
    }
}

impl<V: Value> Hash for V {}

const MIB: i64 = 1 << 20;

fn symbolic(x: &Expr) -> Problem {
    Problem::shape(format!("bytes of the symbolic shape {}", Shown(x.shape())))
}

/// The hash of each row of a MiB.
fn mebibytes(rows: &Expr) -> Result<Expr, Problem> {
    let pieces = keccak(&rows.reshape([-1, 4096]), Keccak::Shake128)?;
    keccak(&pieces.reshape([rows.dim(0), Dim::Int(-1)]), Keccak::Shake128)
}

/// The bytes of the elements, along the last axis.
fn bytes(x: &Expr) -> Result<Expr, Problem> {
    let whole = match x.scalar().size_bytes() {
        0 => return Err(Problem::dtype(format!("{} has no bytes", x.scalar()))),
        1 if x.scalar() == Scalar::Bool => return Ok(x.cast(Scalar::U8)),
        1 => return Ok(x.bitcast(Scalar::U8)),
        2 => x.bitcast(Scalar::U16),
        4 => x.bitcast(Scalar::U32),
        _ => x.bitcast(Scalar::U64),
    };
    let size = x.scalar().size_bytes() as i64;
    let shift = Expr::from(UOp::iota(size)).mul(8).cast(whole.scalar());
    Ok(whole.unsqueeze(-1).shr(&shift).bitand(0xff).cast(Scalar::U8).flatten(-2, -1))
}

/// A table in memory on the device of `x`: constants in a kernel would make every round another kernel.
fn table(list: &[u64], x: &Expr) -> Expr {
    let device = x.uop().device().cloned().unwrap_or_else(super::default_device);
    let data = list.iter().flat_map(|w| w.to_le_bytes()).collect();
    Expr::from(Tensor::host_data(data, Scalar::U64, list.len(), device))
}

fn keccak(x: &Expr, kind: Keccak) -> Result<Expr, Problem> {
    if x.rank() == 0 {
        return Err(Problem::shape("a message has an axis"));
    }
    let data = bytes(x)?;
    let (lead, last) = data.shape().split_at(data.rank() - 1);
    let (Some(rows), Some(n)) = (crate::uop::numel(lead).as_int(), last[0].as_int()) else {
        return Err(symbolic(x));
    };
    let rate = kind.rate();
    let blocks = n / rate + 1;
    let lanes = absorbed(&data.reshape([rows, n]), kind, blocks).contiguous();
    let rounds = [table(&ROTATIONS, x), table(&ROUND_CONSTANTS, x)];
    let mut state =
        Expr::from(graph::full(&[Dim::Int(rows), Dim::Int(LANES + 1)], &UOp::constant(DType::of(Scalar::U64), 0i64)));
    for k in 0..blocks {
        let block = lanes.narrow(1, k, 1).squeeze(1).pad(&[(0, 0), (0, LANES + 1 - rate / 8)]);
        // The last lane counts this block's rounds.
        let kept = positions(state.shape(), 1).lt(LANES).where_(&state, 0).cast(Scalar::U64);
        state = kept.bitxor(&block).contiguous();
        for _ in 0..ROUNDS {
            state = round(&state, &rounds).contiguous();
        }
    }
    let words = (kind.len() + 7) / 8;
    let digest = bytes(&state.narrow(1, 0, words))?.narrow(1, 0, kind.len());
    Ok(digest.reshape([lead, &[Dim::Int(kind.len())]].concat()))
}

/// The padded message as (rows, blocks, lanes of a block).
fn absorbed(data: &Expr, kind: Keccak, blocks: i64) -> Expr {
    let (rate, n) = (kind.rate(), data.dim(1).as_int().unwrap_or(0));
    let total = blocks * rate;
    let padded = data.pad(&[(0, 0), (0, total - n)]);
    let place = positions(padded.shape(), 1);
    let first = place.eq(n).where_(kind.suffix(), 0).cast(Scalar::U8);
    let end = place.eq(total - 1).where_(0x80, 0).cast(Scalar::U8);
    let whole = padded.bitor(&first).bitor(&end);
    let lanes = whole.reshape([data.dim(0), Dim::Int(blocks), Dim::Int(rate / 8), Dim::Int(8)]).cast(Scalar::U64);
    let shift = Expr::from(UOp::iota(8i64)).mul(8).cast(Scalar::U64);
    lanes.shl(&shift).sum(-1)
}

fn rotated(x: &Expr, by: &Expr) -> Expr {
    // Twice, since a shift by 64 has no meaning.
    x.shl(by).bitor(&x.shr(1).shr(&by.neg().add(63)))
}

/// One round of Keccak-f on (rows, 26).
fn round(state: &Expr, [rotations, constants]: &[Expr; 2]) -> Expr {
    let lanes = [state.dim(0), Dim::Int(LANES)];
    let whole = Expr::from(graph::full(&lanes, &UOp::constant(DType::of(Scalar::I32), 0i64)));
    let lane = |at: &Expr| at_positions(state, 1, at);
    // The parity of column x.
    let parity = |x: &Expr| (1..5).fold(lane(x), |p, y| p.bitxor(&lane(&x.add(5 * y))));
    let place = whole.add(&positions(&lanes, 1)).cast(Scalar::I32);
    let (column, row) = (place.modulo(5), place.div_floor(5));
    // What stands in (column + shift, row) after theta, rho and pi.
    let moved = |shift: i64| {
        let y = column.add(shift).modulo(5);
        let x = y.add(&row.mul(3)).modulo(5);
        let from = x.add(&y.mul(5));
        let beside = parity(&x.add(1).modulo(5));
        let one = Expr::from(UOp::constant(DType::of(Scalar::U64), 1i64));
        let mixed = lane(&from).bitxor(&parity(&x.add(4).modulo(5))).bitxor(&rotated(&beside, &one));
        let by = at_positions(&rotations.unsqueeze(0).expand(&lanes), 1, &from);
        rotated(&mixed, &by)
    };
    let chi = moved(0).bitxor(&moved(1).bitnot().bitand(&moved(2)));
    // The round's constant goes into lane 0, its number into the last.
    let number = state.narrow(1, LANES, 1);
    let constant =
        at_positions(&constants.unsqueeze(0).expand([state.dim(0), Dim::from(ROUNDS)]), 1, &number.cast(Scalar::I32));
    let chi = chi.bitxor(&positions(&lanes, 1).eq(0).where_(&constant, 0).cast(Scalar::U64));
    let counted = chi.pad(&[(0, 0), (0, 1)]);
    positions(counted.shape(), 1).lt(LANES).where_(&counted, &number.add(1))
}
