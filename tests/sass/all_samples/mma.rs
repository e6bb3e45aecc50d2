//! Matrix multiplies of a warp, against products summed by the fragment layouts of the PTX manual; loads and stores of
//! 8 by 8 matrices, against plain Rust.

use super::product::{Format, Sum, at, packed, random};
use super::{Codes, file, fill, params};
use crate::machine::Case;

const IN: [u64; 3] = [0x7_0000_0000, 0x7_1000_0000, 0x7_2000_0000];
const OUT: u64 = 0x7_3000_0000;
const THREADS: usize = 64;
/// Each thread has 64 bytes of every buffer; loads reach beyond the last.
const BYTES: usize = 64 * (THREADS + 4);

/// The bits of a matrix's elements: rows of A, columns of B.
type Elements = Vec<Vec<u64>>;

/// D = A * B + C.
struct Multiply {
    rows: usize,
    depth: usize,
    sum: Format,
    a: Format,
    b: Format,
    saturates: bool,
    /// Of every four elements of A two are there.
    sparse: bool,
    xor: bool,
}

/// The first multiply of a kernel.
fn multiply(kernel: &str) -> Multiply {
    let name = kernel.split_whitespace().find(|w| w.starts_with("mma.")).expect("a multiply");
    let shape = name.split('.').find_map(|p| p.strip_prefix('m')?.split_once("n8k")).expect("a shape");
    let formats: Vec<Format> = name.split('.').filter_map(Format::named).collect();
    Multiply {
        rows: shape.0.parse().expect("rows"),
        depth: shape.1.parse().expect("the depth"),
        sum: formats[0],
        a: formats[1],
        b: formats[2],
        saturates: name.contains("satfinite"),
        sparse: name.contains(".sp."),
        xor: name.contains("xor"),
    }
}

/// Where a warp's registers of a fragment lie: the first element that a thread loads and how many elements are from a
/// thread to the next.
#[derive(Clone, Copy)]
struct Fragment<'a> {
    bytes: &'a [u8],
    first: usize,
    stride: usize,
}

impl Fragment<'_> {
    /// Rows of A, or columns of B: element `k` of thread `lane` is at row `lane / 4` (and 8 more in the odd registers
    /// of 16 rows).
    fn rows(&self, format: Format, rows: usize, depth: usize) -> Elements {
        let each = (32 / format.bits()).max(1);
        let mut all = vec![vec![0; depth]; rows];
        for (lane, k) in (0..32).flat_map(|l| (0..rows * depth / 32).map(move |k| (l, k))) {
            let (register, part) = (k / each, k % each);
            let (down, right) = if rows == 16 { (register % 2, register / 2) } else { (0, register) };
            all[lane / 4 + 8 * down][right * 4 * each + lane % 4 * each + part] =
                at(format, self.bytes, self.first + lane * self.stride + k);
        }
        all
    }
}

/// Spreads the elements of sparse A out: two bits for each say where among four it is. A word has those of row `lane /
/// 4` in its low half and those of the row 8 below in the other, for 16 columns.
fn spread(m: &Multiply, kept: &[Vec<u64>], metadata: impl Fn(usize) -> u64) -> Elements {
    let mut all = vec![vec![0; m.depth]; m.rows];
    for (row, k) in (0..m.rows).flat_map(|r| (0..m.depth / 2).map(move |k| (r, k))) {
        let word = metadata(4 * (row % 8) + k / 8);
        let place = word >> (16 * (row / 8) + 2 * (k % 8)) & 3;
        all[row][4 * (k / 2) + place as usize] = kept[row][k];
    }
    all
}

impl Multiply {
    fn product(&self, a: u64, b: u64) -> f64 {
        match self.a {
            Format::B1 => (if self.xor { a ^ b } else { a & b }) as f64,
            _ => self.a.value(a) * self.b.value(b),
        }
    }

    fn products(&self, a: &[Vec<u64>], b: &[Vec<u64>], (row, column): (usize, usize)) -> Vec<f64> {
        (0..self.depth).map(|k| self.product(a[row][k], b[column][k])).collect()
    }
}

/// Input of A, B and C. The first word of A at a thread is metadata of another: indices that rise within each four
/// bits, with a high half byte that makes a moderate float.
fn inputs(m: &Multiply, seed: u64, whole: bool) -> [Vec<u8>; 3] {
    let mut next = random(seed);
    let mut of = |format: Format| {
        let count = BYTES * 8 / format.bits();
        packed(format, (0..count).map(|_| format.element(next(), whole)))
    };
    let mut all = [of(m.a), of(m.b), of(m.sum)];
    if m.sparse {
        const RISING: [u8; 6] = [0x4, 0x8, 0xc, 0x9, 0xd, 0xe];
        for (k, word) in all[0].chunks_exact_mut(64).enumerate() {
            let r = next() as usize;
            let pair = |r: usize| RISING[r % 6] << 4 | RISING[r / 6 % 6];
            // Which rows a word of bytes' metadata belongs to the manual shows in figures alone: there all words are
            // alike.
            let half = |r: usize| if m.a == Format::S8 { [0x49, 0x49] } else { [pair(r), [0x44, 0xc4][(k + r) % 2]] };
            word[..2].copy_from_slice(&half(r));
            word[2..4].copy_from_slice(&half(r >> 8));
        }
    }
    all
}

/// What is wrong with the output of a warp.
fn wrong(m: &Multiply, [a, b, c]: [&[u8]; 3], out: &[u8], warp: usize) -> Option<String> {
    let double = m.sum == Format::F64;
    let fragment = |bytes, format: Format, byte: usize| Fragment {
        bytes,
        first: (warp * 2048 + byte) * 8 / format.bits(),
        stride: 512 / format.bits(),
    };
    let kept = if m.sparse { m.depth / 2 } else { m.depth };
    // Doubles all come from the first buffer; there the second multiply of the smaller shape has elements of its own.
    let factors: Vec<(Elements, Elements)> = match (double, m.rows) {
        (true, 8) => {
            [[0, 8], [32, 40]].map(|at| at.map(|at| fragment(a, m.a, at).rows(m.a, 8, 4))).map(|[a, b]| (a, b)).into()
        }
        (true, _) => vec![(fragment(a, m.a, 0).rows(m.a, 16, 8), fragment(a, m.a, 32).rows(m.a, 8, 8))],
        _ => {
            let rows = fragment(a, m.a, 0).rows(m.a, m.rows, kept);
            // The second thread after has them as its first word.
            let metadata = |lane: usize| at(Format::S32, a, warp * 512 + 16 * (lane + 2));
            let rows = if m.sparse { spread(m, &rows, metadata) } else { rows };
            let both = (rows, fragment(b, m.b, 0).rows(m.b, 8, m.depth));
            vec![both.clone(), both]
        }
    };
    let from = match (double, m.rows) {
        (false, _) => fragment(c, m.sum, 0),
        (true, 8) => fragment(a, m.sum, 16),
        (true, _) => fragment(a, m.sum, 48),
    };
    for (lane, k) in (0..32).flat_map(|l| (0..m.rows / 4).map(move |k| (l, k))) {
        let place = (lane / 4 + 8 * (k / 2), 2 * (lane % 4) + k % 2);
        let steps = factors.iter().map(|(a, b)| m.products(a, b, place)).collect();
        let start = m.sum.value(at(m.sum, from.bytes, from.first + lane * from.stride + k));
        let sum = Sum { format: m.sum, saturates: m.saturates, start, steps };
        let left = fragment(out, m.sum, 0);
        if let Some(what) = sum.wrong(at(m.sum, out, left.first + lane * left.stride + k)) {
            return Some(format!("lane {lane}, {k}: {what}"));
        }
    }
    None
}

#[test]
fn multiplies_of_a_warp_are_sums_of_products() {
    let (head, kernels) = file("mma");
    let kernels = &kernels[..39];
    let codes = Codes::of(&(head + &kernels.concat()));
    let (mut runs, mut faults) = (0, vec![]);
    for (number, kernel) in (1..).zip(kernels) {
        let m = multiply(kernel);
        for (seed, whole) in [(number, true), (number + 100, false)] {
            let input = inputs(&m, seed, whole);
            let mut buffers: Vec<(u64, Vec<u8>)> = IN.into_iter().zip(input.clone()).collect();
            buffers.push((OUT, vec![0; BYTES]));
            let params = params([IN[0], IN[1], IN[2], OUT], 0, 0.0, 0);
            let case =
                Case { grid: [1; 3], block: [THREADS as u32, 1, 1], params, buffers: &buffers, dynamic_bytes: 0 };
            for (who, after) in codes.run(&format!("k{number}"), (&case, 1)) {
                // Kernels of doubles write to the second buffer.
                let out = if m.sum == Format::F64 { &after[1] } else { &after[3] };
                let [a, b, c] = &input;
                let what = (0..2).find_map(|warp| wrong(&m, [a, b, c], out, warp));
                faults.extend(what.map(|what| format!("k{number} by {who}: {what}")));
            }
            runs += 1;
        }
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
    assert_eq!(runs, 2 * 39);
}

/// The bytes of the shared memory of matrices, and what they hold as halves in rows of 16 bytes.
pub struct Rows(pub Vec<u8>);

impl Rows {
    fn half(&self, row: usize, column: usize) -> u32 {
        u32::from(u16::from_le_bytes([self.0[row + 2 * column], self.0[row + 2 * column + 1]]))
    }

    fn word(&self, byte: usize) -> u32 {
        self.half(byte, 0) | self.half(byte, 1) << 16
    }

    /// ldmatrix: a lane's registers; `row` gives the byte where a lane's row begins.
    pub fn load(&self, row: impl Fn(usize) -> usize, (count, trans): (usize, bool), lane: usize) -> Vec<u32> {
        let (down, right) = (lane / 4, 2 * (lane % 4));
        let half = |matrix: usize, part: usize| match trans {
            false => self.half(row(8 * matrix + down), right + part),
            true => self.half(row(8 * matrix + right + part), down),
        };
        (0..count).map(|m| half(m, 0) | half(m, 1) << 16).collect()
    }

    /// stmatrix of a lane's registers.
    fn store(&mut self, row: impl Fn(usize) -> usize, trans: bool, lane: usize, registers: &[u32]) {
        for (matrix, part) in (0..registers.len()).flat_map(|m| [(m, 0), (m, 1)]) {
            let (down, right) = (lane / 4, 2 * (lane % 4) + part);
            let (down, right) = if trans { (right, down) } else { (down, right) };
            let half = (registers[matrix] >> (16 * part)) as u16;
            self.0[row(8 * matrix + down) + 2 * right..][..2].copy_from_slice(&half.to_le_bytes());
        }
    }
}

/// What the samples of ldmatrix, stmatrix and movmatrix store for each lane of a warp, beginning with what is in shared
/// memory.
fn matrices(shared: &[u8], count: usize, trans: bool) -> Vec<u32> {
    let mut rows = Rows(shared.to_vec());
    for t in 0..32u32 {
        let words: Vec<u8> = [0, 32, t, t].iter().flat_map(|w: &u32| w.to_le_bytes()).collect();
        rows.0[16 * t as usize..][..16].copy_from_slice(&words);
    }
    let loaded: Vec<Vec<u32>> = (0..32).map(|l| rows.load(|l| 16 * l + 32, (count, trans), l)).collect();
    let sums: Vec<u32> = loaded
        .iter()
        .map(|r| match count {
            1 => r[0].wrapping_add(r[0]),
            2 => r[1].wrapping_add(r[0]),
            _ => r[3].wrapping_add(r[1]),
        })
        .collect();
    (0..32).for_each(|l| rows.store(|l| 16 * l + 512, trans, l, &loaded[l]));
    let half = |row: usize, column: usize| sums[4 * row + column / 2] >> (16 * (column % 2)) & 0xffff;
    (0..32)
        .map(|l| {
            let turned = half(2 * (l % 4), l / 4) | half(2 * (l % 4) + 1, l / 4) << 16;
            let first = rows.load(|_| 0, (count, trans), l)[0];
            turned.wrapping_add(rows.word(16 * l + 64)).wrapping_add(first)
        })
        .collect()
}

#[test]
fn loads_and_stores_of_small_matrices_are_those_of_plain_rust() {
    let (head, kernels) = file("mma");
    // The last rows that are loaded are none that the sample writes.
    const START: &str = "mov.u32 %r100,sm;";
    let start = fill("%rd2", 16384, 32) + START;
    let kernels: Vec<String> = kernels[39..].iter().map(|k| k.replacen(START, &start, 1)).collect();
    let codes = Codes::of(&(head + &kernels.concat()));
    let mut next = random(7);
    let shared = packed(Format::U8, (0..16384).map(|_| next() & 255));
    let buffers = [(IN[0], vec![0; 64]), (IN[1], shared.clone()), (OUT, vec![0; 128])];
    let params = params([IN[0], IN[1], IN[0], OUT], 0, 0.0, 0);
    let case = Case { grid: [1; 3], block: [32, 1, 1], params, buffers: &buffers, dynamic_bytes: 0 };
    for (number, kernel) in (40..).zip(&kernels) {
        let count = ["x1.", "x2.", "x4."].iter().position(|x| kernel.contains(x)).expect("a count");
        let want = matrices(&shared, 1 << count, kernel.contains(".trans.shared"));
        let want: Vec<u8> = want.iter().flat_map(|w| w.to_le_bytes()).collect();
        for (who, after) in codes.run(&format!("k{number}"), (&case, 1)) {
            assert_eq!(after[2], want, "k{number} by {who}");
        }
    }
    assert_eq!(kernels.len(), 6);
}
