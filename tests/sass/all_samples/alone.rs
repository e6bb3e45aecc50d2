//! Samples that need data and launches of their own: branches that a warp has to take as one, loops of given lengths,
//! shared memory that others read.

use super::product::random;
use super::{Codes, file, fill, params};
use crate::machine::Case;

const IN: [u64; 2] = [0x7_0000_0000, 0x7_1000_0000];
const OUT: u64 = 0x7_2000_0000;

/// The code of one of a file's kernels, changed before.
fn code(name: &str, number: usize, change: impl Fn(&str) -> String) -> Codes {
    let (head, kernels) = file(name);
    Codes::of(&(head + &change(&kernels[number - 1])))
}

/// What each code leaves in both inputs and in the output, of a block of so many threads.
fn left(codes: &Codes, kernel: &str, threads: u32, m: u32, input: [&[u32]; 2]) -> Vec<(&'static str, [Vec<u32>; 3])> {
    let bytes = |w: &[u32]| -> Vec<u8> { w.iter().flat_map(|w| w.to_le_bytes()).collect() };
    let buffers = [(IN[0], bytes(input[0])), (IN[1], bytes(input[1])), (OUT, vec![0; 4 * threads.max(4) as usize])];
    let params = params([IN[0], IN[1], OUT, OUT], 0, 0.0, m);
    let case = Case { grid: [1; 3], block: [threads, 1, 1], params, buffers: &buffers, dynamic_bytes: 4096 };
    let words = |b: &[u8]| b.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w)).collect();
    codes.run(kernel, (&case, 1)).into_iter().map(|(who, all)| (who, [0, 1, 2].map(|k| words(&all[k])))).collect()
}

#[test]
fn a_warp_that_takes_each_branch_as_one() {
    let codes = code("control", 2, str::to_owned);
    let run = |input: &[u32]| left(&codes, "k2", 32, 0, [input, &[500]]);
    // None is positive: nothing is added.
    for (who, [_, sum, out]) in run(&[0x8000_0001; 40]) {
        assert_eq!((sum[0], out), (500, vec![0; 32]), "{who}");
    }
    // All are floats above one: the root of the logarithm over the number is below one, and nothing is added either.
    let floats: Vec<u32> = (0..40).map(|k| (1.5 + k as f32).to_bits()).collect();
    for (who, [input, sum, out]) in run(&floats) {
        assert_eq!((input, sum[0], out), (floats.clone(), 500, vec![500; 32]), "{who}");
    }
    // All are positive and, as floats, below one: each adds its number and its neighbour's, in any order.
    let small: Vec<u32> = (0..40).map(|k| 1000 + k * k * k).collect();
    for (who, [input, sum, out]) in run(&small) {
        assert_eq!(input[..2], small[..2], "{who}");
        assert_eq!(input[2..34], small[..32], "{who}");
        let own: Vec<u32> = (0..32).map(|t| small[t] + small[if t == 31 { 31 } else { t + 1 }]).collect();
        let mut steps: Vec<(u32, u32)> = out.iter().zip(&own).map(|(out, own)| (out - own, *own)).collect();
        steps.sort_unstable();
        let end = steps.iter().fold(500, |at, (before, own)| {
            assert_eq!(*before, at, "{who}: {steps:?}");
            at + own
        });
        assert_eq!(sum[0], end, "{who}");
    }
}

#[test]
fn lanes_that_turn_for_different_times_sum_over_four() {
    let codes = code("control", 6, str::to_owned);
    let counts: Vec<u32> = (0..64).map(|t| 1 + t * 7 % 11).collect();
    let powers: Vec<f32> = (0..16).map(|k| k as f32 / 4.0 - 2.0).collect();
    let bits: Vec<u32> = powers.iter().map(|p| p.to_bits()).collect();
    let sum = |t: usize| powers[..counts[t] as usize].iter().map(|p| f64::from(*p).exp2()).sum::<f64>();
    for (who, [_, _, out]) in left(&codes, "k6", 64, 0, [&counts, &bits]) {
        for (t, out) in out.iter().enumerate() {
            let want = 1.0 / [0, 8, 16, 24].map(|k| sum(t ^ k)).iter().sum::<f64>();
            // Two units of ex2.approx, thirteen additions, one unit of rcp.approx.
            let off = (f64::from(f32::from_bits(*out)) - want).abs() / want;
            assert!(off < 2f64.powi(-19), "{who}: {t}: {off}");
        }
    }
}

#[test]
fn words_of_shared_memory_are_read_in_every_order() {
    // Several threads would read what others write without a barrier between.
    const START: &str = "mov.u32 %r100,sm;";
    let codes = code("memory", 124, |k| k.replace(START, &format!("{} {START}", fill("%rd1", 64, 1))));
    let mut next = random(1);
    let input: Vec<u32> = (0..16).map(|_| next() as u32).collect();
    let want = [1, 3, 4, 8].iter().fold(0u32, |n, k| n.wrapping_add(input[*k]));
    for (who, [_, _, out]) in left(&codes, "k124", 1, 0, [&input, &[0]]) {
        assert_eq!(out[0], want, "{who}");
    }
}

#[test]
fn shared_memory_whose_size_the_launch_gives_holds_what_is_stored() {
    // The last threads read beyond what all store: there the same is put before.
    const START: &str = "mov.u32 %r100,dyn;";
    let filled = fill("%rd1", 2048, 64).replace("%end,sm;", "%end,dyn;");
    let codes = code("memory", 125, |k| k.replace(START, &format!("{filled} {START}")));
    let mut next = random(2);
    let quad: Vec<u32> = (0..4).map(|_| next() as u32).collect();
    for (who, [_, _, out]) in left(&codes, "k125", 64, 3, [&quad.repeat(128), &[0]]) {
        assert_eq!(out[..4], quad, "{who}");
    }
}
