//! Whole kernels of real programs, against plain Rust: sums, softmax, matrix products in all variants, a convolution,
//! GELU, random numbers, masks.

use super::mma::Rows;
use super::product::{Format, packed, random};
use super::{Codes, file, fill, params};
use crate::machine::Case;
use crate::tensor::Tensor;
use std::sync::LazyLock;

const IN: [u64; 2] = [0x7_0000_0000, 0x7_1000_0000];
const OUT: u64 = 0x7_2000_0000;

static CODES: LazyLock<Codes> = LazyLock::new(|| {
    let (head, kernels) = file("kernels");
    assert_eq!(kernels.len(), 9);
    // One multiplies unwritten memory.
    let filled = |k: &String| match k.contains("sgemm8x8_inner") {
        true => k.replace("mov.u32 %r100,sm;", &format!("{} mov.u32 %r100,sm;", fill("%rd2", 16384, 256))),
        false => k.clone(),
    };
    Codes::of(&(head + &kernels.iter().map(filled).collect::<String>()))
});

/// A launch: grid, block, `pn`, `pf` and `pm`.
type Launch = ([u32; 3], [u32; 3], (u32, f32, u32));

/// Runs a kernel by all three codes; `wrong` returns the output's fault.
fn leaves(
    kernel: &str,
    (grid, block, (n, f, m)): Launch,
    [a, b]: [Vec<u8>; 2],
    out_bytes: usize,
    wrong: impl Fn(&[u8]) -> Option<String>,
) {
    let buffers = [(IN[0], a), (IN[1], b), (OUT, vec![0xff; out_bytes])];
    let case =
        Case { grid, block, params: params([IN[0], IN[1], OUT, OUT], n, f, m), buffers: &buffers, dynamic_bytes: 0 };
    for (who, after) in CODES.run(kernel, (&case, 1)) {
        assert_eq!(wrong(&after[2]), None, "{kernel} by {who}");
    }
}

/// Where the output is not this.
fn differs(want: &[u8]) -> impl Fn(&[u8]) -> Option<String> {
    move |got| {
        let at = got.iter().zip(want).position(|(a, b)| a != b)?;
        Some(format!("at {at}: {:02x?}, not {:02x?}", &got[at / 4 * 4..][..4], &want[at / 4 * 4..][..4]))
    }
}

/// Whole numbers from -9 to 9.
fn whole(seed: u64, count: usize) -> Vec<f32> {
    let mut next = random(seed);
    (0..count).map(|_| (next() % 19) as f32 - 9.0).collect()
}

fn bytes(all: &[f32]) -> Vec<u8> {
    all.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn floats(all: &[u8]) -> Vec<f32> {
    all.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn halves(all: &[f32]) -> Vec<u8> {
    all.iter().flat_map(|v| half::bf16::from_f32(*v).to_le_bytes()).collect()
}

#[test]
fn blocks_sum_what_is_theirs() {
    let (quads, threads) = (1500usize, 256usize);
    let all = whole(1, 4 * quads);
    let mut sums = [0.0; 2];
    (0..quads).for_each(|q| sums[q / threads % 2] += all[4 * q..4 * q + 4].iter().sum::<f32>());
    let want = bytes(&sums.map(|s| s * 0.5));
    let launch = ([2, 1, 1], [threads as u32, 1, 1], (quads as u32, 0.5, 0));
    leaves("reduce_sum", launch, [bytes(&all), vec![0; 16]], 8, differs(&want));
}

#[test]
fn rows_become_their_softmax() {
    let mut next = random(2);
    let all: Vec<f32> = (0..2048).map(|_| (next() % 4096) as f32 / 512.0 - 4.0).collect();
    let wrong = |got: &[u8]| {
        for (row, got) in all.chunks(1024).zip(floats(got).chunks(1024)) {
            let most = row.iter().copied().fold(f32::MIN, f32::max);
            let powers: Vec<f64> = row.iter().map(|v| f64::from(v - most).exp()).collect();
            let sum: f64 = powers.iter().sum();
            // Arguments up to 12 are rounded twice, ex2.approx and rcp.approx are 2 ulp off at most, 17 sums round.
            let off = 2f64.powi(-18);
            let far = powers.iter().zip(got).position(|(p, g)| ((f64::from(*g) - p / sum) / (p / sum)).abs() > off);
            if let Some(k) = far {
                return Some(format!("{k}: {} not {}", got[k], powers[k] / sum));
            }
        }
        None
    };
    leaves("softmax_row", ([2, 1, 1], [256, 1, 1], (0, 0.0, 0)), [bytes(&all), vec![0; 16]], 8192, wrong);
}

#[test]
fn products_of_tiles_of_floats_are_those_of_plain_rust() {
    let (depth, columns) = (48, 32);
    let (a, b) = (whole(3, 32 * depth), whole(4, depth * columns));
    let at = |row: usize, column: usize| (0..depth).map(|k| a[row * depth + k] * b[k * columns + column]).sum();
    let want: Vec<f32> = (0..32 * columns).map(|k| at(k / columns, k % columns)).collect();
    let launch = ([2, 2, 1], [16, 16, 1], (depth as u32, 0.0, columns as u32));
    leaves("sgemm16", launch, [bytes(&a), bytes(&b)], 4 * want.len(), differs(&bytes(&want)));

    // Eight by eight of each thread, of rows of 128 that lie in shared memory.
    let shared = whole(5, 4096);
    let at = |t: usize, k: usize| {
        let (left, right) = (t % 16 * 8 + k / 8, t / 16 * 8 + k % 8);
        (0..16).map(|row| shared[128 * row + left] * shared[2048 + 128 * row + right]).sum()
    };
    let want: Vec<f32> = (0..256 * 64).map(|k| at(k / 64, k % 64)).collect();
    let launch = ([1; 3], [256, 1, 1], (16, 0.0, 0));
    leaves("sgemm8x8_inner", launch, [vec![0; 16], bytes(&shared)], 4 * want.len(), differs(&bytes(&want)));
}

/// Element (`row`, `k`) of a fragment of halves of A or B, from the registers of each lane.
fn fragment(registers: &[Vec<u32>], first: usize, rows: usize, (row, k): (usize, usize)) -> f32 {
    let register = if rows == 16 { row / 8 + 2 * (k / 8) } else { k / 8 };
    let word = registers[4 * (row % 8) + k % 8 / 2][first + register];
    half::bf16::from_bits((word >> (16 * (k % 2))) as u16).to_f32()
}

#[test]
fn products_of_fragments_that_are_copied_while_others_are_used() {
    let steps = 3;
    let [a, b] = [6, 7].map(|seed| halves(&whole(seed, 2048 * steps)));
    let mut sums = vec![[0.0f32; 32]; 32];
    for (step, half) in (0..steps).flat_map(|s| [(s, 0), (s, 1)]) {
        let load = |from: &[u8], first: usize, trans: bool| -> Vec<Vec<u32>> {
            let rows = Rows(from[4096 * step..][..4096].to_vec());
            (0..32).map(|lane| rows.load(|l| l % 16 * 80 + first, (4, trans), lane)).collect()
        };
        let left = [load(&a, 32 * half, false), load(&a, 1280 + 32 * half, false)];
        let right = [load(&b, 640 * half, true), load(&b, 640 * half + 32, true)];
        for (lane, n) in (0..32).flat_map(|l| (0..32).map(move |n| (l, n))) {
            let (product, part) = (n / 4, n % 4);
            let (row, column) = (lane / 4 + 8 * (part / 2), 2 * (lane % 4) + part % 2);
            let (a, b) = (&left[product / 4], &right[product % 4 / 2]);
            let from = product % 2 * 2;
            sums[lane][n] +=
                (0..16).map(|k| fragment(a, 0, 16, (row, k)) * fragment(b, from, 8, (column, k))).sum::<f32>();
        }
    }
    let want: Vec<u8> = (0..256).flat_map(|t| halves(&sums[t % 32])).collect();
    let launch = ([1; 3], [256, 1, 1], (steps as u32, 0.0, 0));
    leaves("hgemm_cpasync", launch, [a, b], want.len(), differs(&want));
}

#[test]
fn a_convolution_of_images_and_its_positive_part() {
    let (wide, high) = (112i32, 56i32);
    let places = wide * high + 500;
    let (image, weights) = (whole(8, 2 * (wide * high) as usize), whole(9, 9));
    let at = |place: i32| {
        let (x, y, number) = (place % wide, place / wide % high, place / wide / high);
        let part = |k: i32| {
            let (x, y) = (x + k % 3 - 1, y + k / 3 - 1);
            let inside = (0..wide).contains(&x) && (0..high).contains(&y);
            if inside { image[((number * high + y) * wide + x) as usize] * weights[k as usize] } else { 0.0 }
        };
        (0..9).map(part).sum::<f32>().max(0.0)
    };
    let want: Vec<f32> = (0..places).map(at).collect();
    let launch = ([places.cast_unsigned().div_ceil(256), 1, 1], [256, 1, 1], (places as u32, 0.0, 0));
    leaves("conv3x3", launch, [bytes(&image), bytes(&weights)], 4 * want.len(), differs(&bytes(&want)));
}

#[test]
fn halves_become_their_gelu() {
    let mut next = random(10);
    let all: Vec<f32> = (0..512).map(|_| half::bf16::from_f32((next() % 4096) as f32 / 512.0 - 4.0).to_f32()).collect();
    let wrong = |got: &[u8]| {
        let got = got.as_chunks::<2>().0.iter().map(|b| f64::from(half::bf16::from_le_bytes(*b).to_f32()));
        let (cubic, scale) = (f64::from(f32::from_bits(0x3d37_2713)), f64::from(f32::from_bits(0xc013_cc2a)));
        for (x, got) in all.iter().map(|x| f64::from(*x)).zip(got) {
            let want = x / (1.0 + (scale * (x + cubic * x * x * x)).exp2());
            // Half a unit in the last of eight bits, and what f32 and both approximations are off.
            if (got - want).abs() > (2f64.powi(-8) + 2f64.powi(-17)) * want.abs() {
                return Some(format!("{x}: {got}, not {want}"));
            }
        }
        None
    };
    leaves("gelu_bf16", ([1; 3], [64, 1, 1], (0, 0.0, 0)), [halves(&all), vec![0; 16]], 1024, wrong);
}

#[test]
fn random_numbers_are_those_of_threefry() {
    let (n, m) = (0x1234_5678u32, 0x9abc_def0u32);
    let keys = [n, m, n ^ m ^ 0x1bd1_1bda];
    let pair = |t: u32| {
        let (mut x, mut y) = (t.wrapping_add(n), n.wrapping_add(m));
        for (group, turns) in [[13, 15, 26, 6], [17, 29, 16, 24]].into_iter().cycle().take(4).enumerate() {
            for by in turns {
                x = x.wrapping_add(y);
                y = y.rotate_left(by) ^ x;
            }
            x = x.wrapping_add(keys[(group + 1) % 3]);
            y = y.wrapping_add(keys[(group + 2) % 3]).wrapping_add(group as u32 + 1);
        }
        [x, y].map(|v| f32::from_bits(v >> 9 | 0x3f80_0000) - 1.0)
    };
    let want: Vec<f32> = (0..128).flat_map(pair).collect();
    let launch = ([2, 1, 1], [64, 1, 1], (n, 0.0, m));
    leaves("threefry", launch, [vec![0; 16], vec![0; 16]], 4 * want.len(), differs(&bytes(&want)));
}

#[test]
fn masks_of_bytes_are_those_of_plain_rust() {
    let mut next = random(11);
    let [a, b] = [3, 256].map(|below| packed(Format::U8, (0..512).map(|_| next() % below)));
    let want: Vec<u8> = a.iter().zip(&b).map(|(a, b)| u8::from(*a != 0 && *b < 100)).collect();
    leaves("bool_mask", ([2, 1, 1], [64, 1, 1], (0, 0.0, 0)), [a, b], 512, differs(&want));
}

#[test]
fn a_product_that_one_warpgroup_fetches_and_another_multiplies() {
    let (steps, rows, columns) = (3, 64, 128);
    let depth = 64 * steps;
    let (head, kernels) = file("hopper_gemm");
    assert_eq!(kernels.len(), 1);
    // Maps are read by their addresses among all memory.
    const MAPS: &str = "mov.u64 %rd51,tb;";
    let kernel = kernels[0].replace(MAPS, &format!("{MAPS} cvta.param.u64 %rd50,%rd50; cvta.param.u64 %rd51,%rd51;"));
    let codes = Codes::of(&(head + &kernel));
    let (a, b) = (whole(12, 256 * depth), whole(13, columns * depth));
    let map = |address: u64, sizes: &'static [usize]| {
        let (strides, counts, steps, at) = (&[384], &[64, 128], &[1, 1], &[0, 0]);
        Tensor { kind: 10, element_bytes: 2, sizes, strides, counts, steps, swizzle: 3, fills_nan: false, at }
            .map(address)
    };
    let mut params = params([IN[0], IN[1], OUT, OUT], steps as u32, 0.0, 0);
    params.resize(0x30, 0);
    params.extend([map(IN[0], &[192, 256]), map(IN[1], &[192, 128])].concat());
    let buffers = [(IN[0], halves(&a)), (IN[1], halves(&b)), (OUT, vec![0; 2 * 256 * 256])];
    let case = Case { grid: [2, 1, 1], block: [256, 1, 1], params, buffers: &buffers, dynamic_bytes: 0 };
    let mut want = vec![0.0f32; 2 * 256 * 64];
    for (block, place) in (0..2).flat_map(|b| (0..rows * columns).map(move |p| (b, p))) {
        let (row, column) = (place / columns, place % columns);
        let products = (0..depth).map(|k| a[(128 * block + row) * depth + k] * b[column * depth + k]);
        // Where the warpgroup's fragment has it.
        let thread = 256 * block + 128 + row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
        want[64 * thread + column / 8 * 4 + row / 8 % 2 * 2 + column % 2] = products.sum();
    }
    for (who, after) in codes.run("wgmma_tma", (&case, 1)) {
        assert_eq!(differs(&bytes(&want))(&after[2]), None, "{who}");
    }
}
