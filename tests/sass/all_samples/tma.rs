//! Tiles of tensors to and from shared memory, against plain Rust.
//!
//! The samples wait at barriers where nothing arrives and copy unwritten memory; the surroundings that they need are
//! added around the instructions that are sampled.

use super::product::{Format, packed, random};
use super::{Codes, dump, file, fill, params};
use crate::machine::Case;
use crate::tensor::Tensor;

const SHARED: u64 = 0x7_0000_0000;
const DUMP: u64 = 0x7_1000_0000;
const TENSOR: u64 = 0x7_2000_0000;
const OUT: u64 = 0x7_3000_0000;
const THREADS: usize = 64;
/// What loads expect.
const EXPECTED: usize = 8192;
/// Reductions take their tile from here on, the second tile of those to several blocks comes here.
const REDUCED_AT: usize = 1024;
const SECOND_AT: usize = 16384;
/// The second coordinate and the fifth lie outside.
const SECOND: i32 = -3;
const FIFTH: i32 = -1;

/// Words in tiles of 8192 bytes (except for one dimension, which has fewer) that reach over the ends; the first
/// coordinate is given.
fn tensor(rank: usize, swizzle: u32) -> Tensor {
    let (sizes, strides, counts, at): (&[usize], &[usize], &[usize], &[i32]) = match rank {
        1 => (&[300], &[], &[256], &[0]),
        2 => (&[80, 50], &[320], &[32, 64], &[0, SECOND]),
        3 => (&[70, 9, 20], &[288, 2592], &[16, 8, 16], &[0, SECOND, 0]),
        4 => (&[70, 9, 6, 5], &[288, 2592, 15552], &[8, 8, 8, 4], &[0, SECOND, 0, 0]),
        _ => (&[66, 7, 4, 3, 5], &[272, 1904, 7616, 22848], &[4, 8, 4, 4, 4], &[0, SECOND, 0, 0, FIFTH]),
    };
    let steps = &[1; 5];
    Tensor { kind: 2, element_bytes: 4, sizes, strides, counts, steps, swizzle, fills_nan: false, at }
}

/// Where a tensor's bytes end.
fn tensor_bytes(t: &Tensor) -> usize {
    let last = t.sizes.len() - 1;
    if last == 0 { 4 * t.sizes[0] } else { t.strides[last - 1] * t.sizes[last] }
}

pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// A tile in shared memory's order, for a block whose first coordinate is this.
fn loaded(t: &Tensor, bytes: &[u8], first: i32) -> Vec<u8> {
    let moved = moved(t, first);
    let mut all = vec![0; t.box_bytes()];
    for (from, to) in moved {
        all[to..to + 4].copy_from_slice(&from.map_or(0, |from| word(bytes, from)).to_le_bytes());
    }
    all
}

/// The positions of a tile whose first coordinate is this.
fn moved(t: &Tensor, first: i32) -> Vec<(Option<usize>, usize)> {
    let mut at = [0; 5];
    at[..t.at.len()].copy_from_slice(t.at);
    at[0] = first;
    t.elements(&at)
}

/// Shared memory's tile goes to the tensor by an operation.
fn stored(t: &Tensor, bytes: &mut [u8], shared: &[u8], op: &str) {
    for (to, from) in moved(t, 0) {
        let Some(to) = to else { continue };
        let (a, b) = (word(bytes, to), word(shared, from));
        let new = match op {
            "add" => a.wrapping_add(b),
            "min" => a.min(b),
            "max" => a.max(b),
            "inc" => {
                if a >= b {
                    0
                } else {
                    a + 1
                }
            }
            "dec" => {
                if a == 0 || a > b {
                    b
                } else {
                    a - 1
                }
            }
            "and" => a & b,
            "or" => a | b,
            "xor" => a ^ b,
            _ => b,
        };
        bytes[to..to + 4].copy_from_slice(&new.to_le_bytes());
    }
}

pub(super) fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut next = random(seed);
    // Small words, so that some are equal and some are none.
    packed(Format::S32, (0..count / 4).map(|k| if k % 3 == 0 { next() % 3 } else { next() & 0xffff_ffff }))
}

/// What a kernel of a rank does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Loads,
    /// A store and then a sum.
    Stores,
    /// One block's tile to both, and one to itself alone.
    Multicasts,
    Reduces(&'static str),
}

fn does(number: usize) -> (usize, Does) {
    const OPS: [&str; 8] = ["add", "min", "max", "inc", "dec", "and", "or", "xor"];
    match number {
        1..16 => ((number - 1) / 3 + 1, [Does::Loads, Does::Stores, Does::Multicasts][(number - 1) % 3]),
        _ => (2, Does::Reduces(OPS[number - 19])),
    }
}

/// Bytes of shared memory that are filled before and read after.
const FILLED: usize = SECOND_AT + EXPECTED;

/// The sample with what it lacks.
fn prepared(kernel: &str, t: &Tensor, does: Does) -> String {
    const MAP: &str = "mov.u64 %rd50,tmap;";
    const BEGIN: &str = "@%p9 bra SK;";
    const END: &str = "mul.wide.s32 %rd30,%r6,4;";
    let bytes = t.box_bytes();
    let before = match does {
        Does::Loads => String::new(),
        Does::Stores | Does::Reduces(_) => "@%p1 mbarrier.arrive.shared::cta.b64 %rd99,[%r110];".to_owned(),
        Does::Multicasts => format!(
            "mov.u32 %r300,%cluster_ctarank; setp.ne.u32 %p20,%r300,0; selp.u32 %r301,{bytes},{},%p20;
            @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _,[%r110],%r301; barrier.cluster.arrive; barrier.cluster.wait; @%p20 bra SK;",
            2 * bytes
        ),
    };
    // More is expected than a tile of one dimension can have.
    let missing = EXPECTED - bytes;
    let after = match does {
        Does::Loads if missing > 0 => {
            format!("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r110],{missing};\nSK:")
        }
        _ => "SK:".to_owned(),
    };
    const READ: &str = "cp.async.bulk.wait_group.read 0;";
    kernel
        .replace(".align 128 .b8 sm", ".align 1024 .b8 sm")
        .replace(MAP, &format!("{} {MAP} cvta.param.u64 %rd50,%rd50;", fill("%rd1", FILLED, THREADS)))
        .replace(BEGIN, &format!("{before} {BEGIN}"))
        .replace("SK:", &after)
        // A reduction follows at the same place.
        .replace(READ, &format!("{READ} cp.async.bulk.wait_group 0;"))
        .replace(END, &format!("{} {END}", dump("%rd2", FILLED, THREADS)))
}

/// The shared memory of both blocks and the tensor, after the kernel.
fn want(t: &Tensor, does: Does, shared: &[u8], tensor: &[u8], blocks: usize) -> (Vec<Vec<u8>>, Vec<u8>) {
    let (mut left, mut tensor) = (vec![shared.to_vec(); blocks], tensor.to_vec());
    match does {
        Does::Loads => {
            for (block, left) in left.iter_mut().enumerate() {
                left[..t.box_bytes()].copy_from_slice(&loaded(t, &tensor, 64 * block as i32));
            }
        }
        Does::Multicasts => {
            let sent = loaded(t, &tensor, 0);
            left.iter_mut().for_each(|left| left[..sent.len()].copy_from_slice(&sent));
            left[0][SECOND_AT..][..sent.len()].copy_from_slice(&sent);
        }
        Does::Stores => {
            stored(t, &mut tensor, shared, "");
            stored(t, &mut tensor, &shared[REDUCED_AT..], "add");
        }
        Does::Reduces(op) => stored(t, &mut tensor, &shared[REDUCED_AT..], op),
    }
    (left, tensor)
}

#[test]
fn boxes_of_tensors_are_those_of_plain_rust() {
    let (head, kernels) = file("tma");
    let numbers: Vec<usize> = (1..16).chain(19..27).collect();
    let swizzle = |rank: usize| [0, 0, 3, 2, 1, 0][rank];
    let sampled = numbers.iter().map(|n| {
        let (rank, does) = does(*n);
        prepared(&kernels[n - 1], &tensor(rank, swizzle(rank)), does)
    });
    let codes = Codes::of(&(head + &sampled.collect::<String>()));
    for number in &numbers {
        let (rank, does) = does(*number);
        let t = tensor(rank, swizzle(rank));
        let blocks = if matches!(does, Does::Loads | Does::Multicasts) { 2 } else { 1 };
        let (shared, before) = (bytes(*number as u64, FILLED), bytes(99, tensor_bytes(&t)));
        let mut params = params([SHARED, DUMP, TENSOR, OUT], (FIFTH - 7) as u32, 0.0, SECOND as u32);
        params.resize(0x30, 0);
        params.extend(t.map(TENSOR));
        let buffers = [
            (SHARED, shared.clone()),
            (DUMP, vec![0; blocks * FILLED]),
            (TENSOR, before.clone()),
            (OUT, vec![0; 4 * THREADS * blocks]),
        ];
        let grid = [blocks as u32, 1, 1];
        let case = Case { grid, block: [THREADS as u32, 1, 1], params, buffers: &buffers, dynamic_bytes: 0 };
        let (left, tensor) = want(&t, does, &shared, &before, blocks);
        let out: Vec<u8> = left.iter().flat_map(|l| l[..4].repeat(THREADS)).collect();
        let cluster = if does == Does::Multicasts { 2 } else { 1 };
        for (who, after) in codes.run(&format!("k{number}"), (&case, cluster)) {
            for (what, got, want) in [
                ("shared memory", &after[1], &left.concat()),
                ("tensor", &after[2], &tensor),
                ("output", &after[3], &out),
            ] {
                let differs = got.iter().zip(want).position(|(a, b)| a != b);
                assert_eq!(differs, None, "k{number} by {who}: {what}");
            }
        }
    }
    assert_eq!(numbers.len(), 23);
}

#[test]
fn fields_of_a_map_are_replaced_and_the_map_serves_for_a_copy() {
    // The sample's stride is the tensor's address, so that its row 64 begins at 65 times that.
    const ADDRESS: u64 = 0x10_0000;
    const ROW: u64 = 64;
    let (head, kernels) = file("tma");
    const RANK: &str = "tensormap.replace.tile.rank.shared::cta.b1024.b32 [sm],2;";
    const BEGIN: &str = "@%p9 bra SK;";
    const PUBLISHED: &str = "tensormap.cp_fenceproxy";
    const COPIED: &str = "cp.async.bulk.tensor.2d";
    const END: &str = "mul.wide.s32 %rd30,%r6,4;";
    // A map of three dimensions does not serve for a copy of two. All threads of a warp publish the map that one has
    // changed.
    let kernel = kernels[26]
        .replace(".align 128 .b8 sm", ".align 1024 .b8 sm")
        .replace("mov.u64 %rd50,tmap;", &fill("%rd2", 512, 32))
        .replace(BEGIN, "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _,[%r110],128; @%p9 bra PUBLISHED;")
        .replace(RANK, &format!("{RANK} tensormap.replace.tile.rank.shared::cta.b1024.b32 [sm],1;"))
        .replace(PUBLISHED, &format!("PUBLISHED: bar.warp.sync -1; {PUBLISHED}"))
        .replace(COPIED, &format!("{BEGIN} {COPIED}"))
        .replace(
            END,
            &format!("{END} add.s64 %rd31,%rd4,%rd30; ld.global.b32 %r300,[%rd31]; add.s64 %rd31,%rd3,%rd30; st.global.b32 [%rd31],%r300; {END}"),
        );
    let codes = Codes::of(&(head + &kernel));
    let rest = Tensor { kind: 2, element_bytes: 4, sizes: &[64, 3], strides: &[16], counts: &[9, 1], ..tensor(2, 0) };
    let map = Tensor {
        kind: 6,
        element_bytes: 2,
        sizes: &[64, 100],
        strides: &[ADDRESS as usize],
        counts: &[64, 1],
        swizzle: 3,
        ..rest
    };
    let row = bytes(5, 128);
    let buffers = [
        (SHARED, ADDRESS.to_le_bytes().to_vec()),
        (DUMP, [rest.map(77), vec![0; 384]].concat()),
        ((1 + ROW) * ADDRESS, row.clone()),
        (TENSOR, vec![0; 128]),
        (OUT, vec![0; 128]),
    ];
    let params = params([SHARED, DUMP, TENSOR, OUT], 100, 0.0, ROW as u32);
    let case = Case {
        grid: [1; 3],
        block: [32, 1, 1],
        params: [params, vec![0; 256]].concat(),
        buffers: &buffers,
        dynamic_bytes: 0,
    };
    // Each thread leaves the tile's first word, over the map.
    let want = [map.map(ADDRESS), row[..4].repeat(32)];
    for (who, after) in codes.run("k27", (&case, 1)) {
        assert_eq!(after[3..], want, "{who}");
    }
}
