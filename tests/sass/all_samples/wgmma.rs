//! Matrix multiplies of a warpgroup, against products summed by the manual's layouts of matrices in shared memory and
//! of fragments.

use super::product::{Format, Sum, at, packed, random};
use super::{Codes, file, fill, params};
use crate::machine::Case;

const FROM: u64 = 0x7_0000_0000;
const SHARED: u64 = 0x7_1000_0000;
const SUMS: u64 = 0x7_2000_0000;
const OUT: u64 = 0x7_3000_0000;
/// Bytes of both matrices in shared memory, and where B begins.
const SHARED_BYTES: usize = 48 << 10;
const B_AT: usize = 16 << 10;
/// A register of each of the 128 threads takes 512 bytes.
const REGISTER_BYTES: usize = 512;

/// Sums of M = 64 rows.
struct Multiply {
    columns: usize,
    depth: usize,
    sum: Format,
    a: Format,
    b: Format,
    negative: [bool; 2],
    /// Rows of A and columns of B are contiguous in shared memory, not the depth.
    transposed: [bool; 2],
    from_registers: bool,
}

/// The first multiply of a kernel.
fn multiply(kernel: &str) -> Multiply {
    let text = kernel.split(';').find(|t| t.contains("wgmma.mma_async")).expect("a multiply");
    let name = text.split_whitespace().next().expect("a name");
    let shape = name.split('.').find_map(|p| p.strip_prefix("m64n")?.split_once('k')).expect("a shape");
    let formats: Vec<Format> = name.split('.').filter_map(Format::named).collect();
    let from_registers = text.contains("},{");
    let tail: Vec<&str> = text.rsplit_once("%p1").expect("whether sums go on").1.split(',').skip(1).collect();
    let is = |k: usize, what: &str| tail.get(k).is_some_and(|t| t.trim() == what);
    Multiply {
        columns: shape.0.parse().expect("columns"),
        depth: shape.1.parse().expect("the depth"),
        sum: formats[0],
        a: formats[1],
        b: formats[2],
        negative: [is(0, "-1"), is(1, "-1")],
        transposed: if from_registers { [false, is(2, "1")] } else { [is(2, "1"), is(3, "1")] },
        from_registers,
    }
}

/// Element (`row`, `k`) of a matrix in shared memory under the swizzle of 128 bytes: rows of 128 bytes in groups of
/// eight that lie 1024 bytes apart, where bits 4 to 6 of an address are changed by bits 7 to 9.
fn element(format: Format, matrix: &[u8], transposed: bool, (row, k): (usize, usize)) -> u64 {
    let (line, along) = if transposed { (k, row) } else { (row, k) };
    let byte = line * 128 + along * format.bits() / 8;
    let byte = byte ^ (byte >> 7 & 7) << 4;
    at(format, matrix, byte * 8 / format.bits() + along * format.bits() % 8 / format.bits())
}

impl Multiply {
    /// Element (`row`, `k`) of A: a warp has 16 rows, and its registers are those of the multiplies of a warp.
    fn of_a(&self, shared: &[u8], sums: &[u8], (row, k): (usize, usize)) -> u64 {
        if !self.from_registers {
            return element(self.a, shared, self.transposed[0], (row, k));
        }
        let each = 32 / self.a.bits();
        let thread = row / 16 * 32 + row % 8 * 4 + k / each % 4;
        let register = row / 8 % 2 + k / (4 * each) * 2;
        at(self.a, sums, (thread + 64 + register) * each + k % each)
    }

    fn product(&self, a: u64, b: u64) -> f64 {
        let sign = if self.negative[0] == self.negative[1] { 1.0 } else { -1.0 };
        if self.a == Format::B1 { (a & b) as f64 } else { sign * self.a.value(a) * self.b.value(b) }
    }

    /// What is wrong with the sums that are left.
    fn wrong(&self, shared: &[u8], sums: &[u8], out: &[u8], goes_on: bool) -> Option<String> {
        let matrix = |rows: usize, of: &dyn Fn((usize, usize)) -> u64| -> Vec<Vec<u64>> {
            (0..rows).map(|r| (0..self.depth).map(|k| of((r, k))).collect()).collect()
        };
        let a = matrix(64, &|place| self.of_a(shared, sums, place));
        let b = matrix(self.columns, &|place| element(self.b, &shared[B_AT..], self.transposed[1], place));
        let each = 32 / self.sum.bits();
        for (thread, k) in (0..128).flat_map(|t| (0..self.columns / 2).map(move |k| (t, k))) {
            let row = thread / 32 * 16 + thread % 32 / 4 + k / 2 % 2 * 8;
            let column = k / 4 * 8 + thread % 4 * 2 + k % 2;
            let place = (k / each * REGISTER_BYTES / 4 + thread) * each + k % each;
            let products: Vec<f64> = a[row].iter().zip(&b[column]).map(|(a, b)| self.product(*a, *b)).collect();
            let start = if goes_on { self.sum.value(at(self.sum, sums, place)) } else { 0.0 };
            let steps = vec![products.clone(), products];
            let sum = Sum { format: self.sum, saturates: false, start, steps };
            if let Some(what) = sum.wrong(at(self.sum, out, place)) {
                return Some(format!("row {row}, column {column}: {what}"));
            }
        }
        None
    }

    /// The shared memory's bytes and those of sums, in whose place threads find A too if it comes from registers.
    fn inputs(&self, seed: u64, whole: bool) -> (Vec<u8>, Vec<u8>) {
        let mut next = random(seed);
        let mut of = |format: Format, bytes: usize| {
            packed(format, (0..bytes * 8 / format.bits()).map(|_| format.element(next(), whole)))
        };
        let shared = [of(self.a, B_AT), of(self.b, SHARED_BYTES - B_AT)].concat();
        let mut sums = of(self.sum, self.columns / 2 * REGISTER_BYTES);
        if self.from_registers {
            sums[256..256 + 4 * 131].copy_from_slice(&of(self.a, 4 * 131));
        }
        (shared, sums)
    }
}

#[test]
fn multiplies_of_a_warpgroup_are_sums_of_products() {
    let (head, kernels) = file("wgmma");
    // The samples multiply unwritten memory; the largest B extends beyond the shared memory.
    const START: &str = "wgmma.fence.sync.aligned;";
    let start = fill("%rd2", SHARED_BYTES, 128) + START;
    let prepare = |k: &String| k.replacen(START, &start, 1).replace("sm[32768]", &format!("sm[{SHARED_BYTES}]"));
    let kernels: Vec<String> = kernels[..62].iter().map(prepare).collect();
    let codes = Codes::of(&(head + &kernels.concat()));
    let (mut runs, mut faults) = (0, vec![]);
    for (number, kernel) in (1..).zip(&kernels) {
        let m = multiply(kernel);
        for (seed, whole) in [(number, true), (number + 100, false)] {
            let (shared, sums) = m.inputs(seed, whole);
            let buffers =
                [(FROM, vec![0; 64]), (SHARED, shared.clone()), (SUMS, sums.clone()), (OUT, vec![0; sums.len()])];
            let params = params([FROM, SHARED, SUMS, OUT], 0, 0.0, u32::from(whole));
            let case = Case { grid: [1; 3], block: [128, 1, 1], params, buffers: &buffers, dynamic_bytes: 0 };
            for (who, after) in codes.run(&format!("k{number}"), (&case, 1)) {
                let what = m.wrong(&shared, &sums, &after[3], whole);
                faults.extend(what.map(|what| format!("k{number} by {who}: {what}")));
            }
            runs += 1;
        }
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
    assert_eq!(runs, 2 * 62);
}

#[test]
fn registers_that_a_warpgroup_takes_are_those_that_another_gave() {
    let (head, kernels) = file("wgmma");
    // One that takes waits until another gives.
    const TAKES: &str = "setmaxnreg.inc.sync.aligned.u32 232;";
    let gives =
        format!("setp.lt.u32 %p20,%r5,128; @%p20 bra TAKES; setmaxnreg.dec.sync.aligned.u32 40; ret;\nTAKES: {TAKES}");
    let kernels: Vec<String> = kernels[62..].iter().map(|k| k.replace(TAKES, &gives)).collect();
    let codes = Codes::of(&(head + &kernels.concat()));
    let buffers = [(FROM, vec![1, 2, 3, 4]), (OUT, vec![0; 4])];
    for (kernel, threads) in [("k63", 256), ("k64", 384)] {
        let params = params([FROM, FROM, FROM, OUT], 0, 0.0, 0);
        let case = Case { grid: [1; 3], block: [threads, 1, 1], params, buffers: &buffers, dynamic_bytes: 0 };
        for (who, after) in codes.run(kernel, (&case, 1)) {
            assert_eq!(after[1], [1, 2, 3, 4], "{kernel} by {who}");
        }
    }
    assert_eq!(kernels.len(), 2);
}
