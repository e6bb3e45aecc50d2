//! Asynchronous copies of threads, against plain Rust. The three samples of mbarriers, bulk copies and copies within a
//! cluster are in `samples.rs` with the surroundings that they need.

use super::product::{Format, packed, random};
use super::{Codes, file, fill, params};
use crate::machine::Case;

const IN: [u64; 2] = [0x7_0000_0000, 0x7_1000_0000];
const OUT: u64 = 0x7_2000_0000;
const THREADS: usize = 64;
const BLOCKS: usize = 2;
/// Threads below this number, over all blocks, copy a third time; the second copy has so many bytes, and zeros after
/// them.
const COPYING: usize = 100;
const TAKEN: usize = 3;

/// What each thread of a block stores: words of three copies, of its own or of the next thread.
fn want(shared: &[u8], input: &[u8], each: usize, block: usize) -> Vec<u8> {
    let mut shared = shared.to_vec();
    for t in 0..THREADS {
        let number = THREADS * block + t;
        let from = |area: usize| &input[each * number + area..][..each];
        shared[each * t..][..each].copy_from_slice(from(0));
        shared[each * t + 2048..][..each].fill(0);
        shared[each * t + 2048..][..TAKEN].copy_from_slice(&from(2048)[..TAKEN]);
        if number < COPYING {
            shared[each * t + 4096..][..each].copy_from_slice(from(4096));
        }
    }
    let word = |at: usize| u32::from_le_bytes(shared[at..at + 4].try_into().expect("four bytes"));
    let sum = |t: usize| (0..3).fold(0u32, |n, area| n.wrapping_add(word(each * t + 4 + 2048 * area)));
    (0..THREADS).flat_map(|t| sum(t).to_le_bytes()).collect()
}

#[test]
fn copies_of_threads_are_those_of_plain_rust() {
    let (head, kernels) = file("async_copy");
    assert_eq!(kernels.len(), 11);
    // A thread that copies less reads unwritten memory.
    const START: &str = "mov.u32 %r100,sm;";
    let start = fill("%rd2", 8192, THREADS) + START;
    let codes = Codes::of(&(head + &kernels[..8].iter().map(|k| k.replace(START, &start)).collect::<String>()));
    let mut next = random(1);
    let [input, shared] = [16384, 8192].map(|count| packed(Format::U8, (0..count).map(|_| next() & 255)));
    let params = params([IN[0], IN[1], OUT, OUT], COPYING as u32, 0.0, TAKEN as u32);
    let buffers = [(IN[0], input.clone()), (IN[1], shared.clone()), (OUT, vec![0; 4 * THREADS * BLOCKS])];
    let case = Case {
        grid: [BLOCKS as u32, 1, 1],
        block: [THREADS as u32, 1, 1],
        params,
        buffers: &buffers,
        dynamic_bytes: 0,
    };
    for (number, each) in (1..).zip([4, 4, 8, 8, 16, 16, 16, 16]) {
        let want: Vec<u8> = (0..BLOCKS).flat_map(|block| want(&shared, &input, each, block)).collect();
        for (who, after) in codes.run(&format!("k{number}"), (&case, 1)) {
            assert_eq!(after[2], want, "k{number} by {who}");
        }
    }
}
