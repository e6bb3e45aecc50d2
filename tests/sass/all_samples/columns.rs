//! Images to columns in shared memory and back, against plain Rust.
//!
//! The samples store what they load before it is there; waits, and what else they lack, are added around the
//! instructions that are sampled. So is a sum.

use super::tma::{bytes, word};
use super::{Codes, dump, file, fill, params};
use crate::machine::{Case, launch_clusters};
use crate::tensor::Tensor;
use doorbell::emu::sass::{Im2col, Options};

const SHARED: u64 = 0x7_0000_0000;
const DUMP: u64 = 0x7_1000_0000;
const TENSOR: u64 = 0x7_2000_0000;
const OUT: u64 = 0x7_3000_0000;
const THREADS: usize = 64;
/// Bytes of shared memory that are filled before and read after; the sum takes its column from further back.
const FILLED: usize = 20480;
const ADDED_AT: usize = 1024;

/// A batch of images of words and a column of it.
#[derive(Clone, Copy)]
struct Columns {
    sizes: &'static [usize],
    steps: &'static [usize],
    swizzle: u32,
    lower: [i16; 3],
    upper: [i16; 3],
    channels: u16,
    pixels: u16,
    /// The block that copies, the last of the grid. In tensors of three and four dimensions its second and third
    /// numbers are the outermost coordinates.
    block: [u32; 3],
    /// `pn`, the first offset, and in five dimensions the image's number less 7; `pm`, the second offset and the base's
    /// place in W.
    reported: [i32; 2],
    /// The copy is one to both blocks of a cluster.
    casts: bool,
}

impl Columns {
    fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// Bytes from an element to the next in each dimension: a little more than what is within.
    fn strides(&self) -> Vec<usize> {
        let mut all = vec![4];
        for size in self.sizes {
            let within = all[all.len() - 1] * size;
            all.push(within.next_multiple_of(16) + 32);
        }
        all
    }

    fn map(&self) -> Vec<u8> {
        let strides = self.strides();
        let tensor = Tensor {
            kind: 2,
            element_bytes: 4,
            sizes: self.sizes,
            strides: strides[1..self.rank()].to_vec().leak(),
            counts: &[1; 5],
            steps: self.steps,
            swizzle: self.swizzle,
            fills_nan: false,
            at: &[],
        };
        tensor.map(TENSOR)
    }

    fn reported(&self) -> Im2col {
        Im2col {
            lower_corner: self.lower,
            upper_corner: self.upper,
            channels_per_pixel: self.channels,
            pixels_per_column: self.pixels,
        }
    }

    fn column_bytes(&self) -> usize {
        usize::from(self.pixels) * usize::from(self.channels) * 4
    }

    /// What the samples' registers hold.
    fn coordinates(&self) -> Vec<i64> {
        let ([x, y, z], [n, m]) = (self.block.map(i64::from), self.reported.map(i64::from));
        [64 * x, m, y, z, n + 7][..self.rank()].to_vec()
    }

    fn offsets(&self) -> Vec<i64> {
        let [n, m] = self.reported.map(i64::from);
        [n, m, self.block[0].into()][..self.rank() - 2].to_vec()
    }

    /// Where each word of the column is in the tensor's bytes, if it is inside, and in shared memory.
    ///
    /// By the manual a box has a number of positions of the filter's base along each of W, H and D: those at steps from
    /// its lower corner that are not beyond its upper one, which is counted from the image's end. Positions of all
    /// images are numbered, those of W one after the other; the column's are that of the coordinates and those that
    /// follow.
    fn words(&self, offsets: &[i64]) -> Vec<(Option<usize>, usize)> {
        let (at, strides) = (self.coordinates(), self.strides());
        let sides: Vec<[i64; 4]> = (1..self.rank() - 1)
            .map(|k| {
                let (lower, upper) = (i64::from(self.lower[k - 1]), i64::from(self.upper[k - 1]));
                let (step, last) = (self.steps[k] as i64, self.sizes[k] as i64 - 1 + upper);
                assert_eq!((at[k] - lower) % step, 0, "a place of the base");
                [lower, step, (last - lower) / step + 1, offsets[k - 1]]
            })
            .collect();
        let image = at[self.rank() - 1];
        let first = sides
            .iter()
            .zip(&at[1..])
            .rev()
            .fold(image, |number, ([lower, step, places, _], at)| number * places + (at - lower) / step);
        let mut all = Vec::new();
        for pixel in 0..i64::from(self.pixels) {
            let mut number = first + pixel;
            let mut place: Vec<i64> = vec![0];
            for [lower, step, places, offset] in &sides {
                place.push(lower + number.rem_euclid(*places) * step + offset);
                number = number.div_euclid(*places);
            }
            place.push(number);
            for channel in 0..i64::from(self.channels) {
                place[0] = at[0] + channel;
                let inside = place.iter().zip(self.sizes).all(|(at, size)| (0..*size as i64).contains(at));
                let from = place.iter().zip(&strides).map(|(at, stride)| at * *stride as i64).sum::<i64>();
                let to = 4 * (pixel * i64::from(self.channels) + channel) as usize;
                all.push((inside.then_some(from as usize), to ^ (to >> 7 & ((1 << self.swizzle) - 1)) << 4));
            }
        }
        all
    }

    /// Shared memory of the blocks that copy, and the tensor, after the kernel.
    fn want(&self, shared: &[u8], tensor: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (mut shared, mut tensor) = (shared.to_vec(), tensor.to_vec());
        for (from, to) in self.words(&self.offsets()) {
            let loaded = from.map_or(0, |from| word(&tensor, from));
            shared[to..to + 4].copy_from_slice(&loaded.to_le_bytes());
        }
        // Stores and sums have no offsets.
        let column = self.words(&[0; 3]);
        let inside = || column.iter().filter_map(|(to, from)| Some(((*to)?, *from)));
        for (to, from) in inside() {
            tensor[to..to + 4].copy_from_slice(&shared[from..from + 4]);
        }
        for (to, from) in inside() {
            let sum = word(&tensor, to).wrapping_add(word(&shared, ADDED_AT + from));
            tensor[to..to + 4].copy_from_slice(&sum.to_le_bytes());
        }
        (shared, tensor)
    }

    /// The sample with what it lacks.
    fn prepared(&self, kernel: &str) -> String {
        const MAP: &str = "mov.u64 %rd50,tmap;";
        const BEGIN: &str = "@%p9 bra SK;";
        const COMMITTED: &str = "cp.async.bulk.commit_group;";
        const END: &str = "mul.wide.s32 %rd30,%r6,4;";
        let dim = self.rank();
        let store = format!("cp.async.bulk.tensor.{dim}d.global.shared::cta.im2col_no_offs.bulk_group");
        let add = format!("cp.reduce.async.bulk.tensor.{dim}d.global.shared::cta.add.im2col_no_offs.bulk_group");
        let from = kernel.find(&store).expect("a store");
        let stored = &kernel[from + store.len()..kernel.find(COMMITTED).expect("its end")];
        let added = stored.replace("[%r100]", &format!("[%r100+{ADDED_AT}]"));
        let axes = if self.casts { "yz" } else { "xyz" };
        let others: String = axes
            .chars()
            .map(|k| {
                format!(
                    "mov.u32 %r300,%nctaid.{k}; sub.u32 %r300,%r300,1; mov.u32 %r301,%ctaid.{k}; setp.ne.u32 %p10,%r300,%r301; @%p10 bra DONE;\n"
                )
            })
            .collect();
        let expects = format!("@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _,[%r110],{};", self.column_bytes());
        let before = match self.casts {
            false => expects,
            true => format!(
                "{expects} mov.u32 %r300,%cluster_ctarank; setp.ne.u32 %p20,%r300,1;
                barrier.cluster.arrive; barrier.cluster.wait; @%p20 bra SK; mov.b16 %h9,3;"
            ),
        };
        let wait = "HERE: mbarrier.try_wait.parity.shared::cta.b64 %p3,[%r110],0; @!%p3 bra HERE;";
        let kernel = kernel
            .replace(".align 128 .b8 sm", ".align 1024 .b8 sm")
            .replace(MAP, &format!("{others} {} {MAP} cvta.param.u64 %rd50,%rd50;", fill("%rd1", FILLED, THREADS)))
            .replace(BEGIN, &format!("{before} {BEGIN}"))
            .replace(&store, &format!("{wait} {store}"))
            .replace(
                COMMITTED,
                &format!(
                    "{COMMITTED} cp.async.bulk.wait_group 0; {add} {added} {COMMITTED} cp.async.bulk.wait_group 0;"
                ),
            )
            .replace(END, &format!("{} {END}", dump("%rd2", FILLED, THREADS)))
            .replace("ret;", "DONE: ret;");
        if !self.casts {
            return kernel;
        }
        kernel
            .replacen("\n{", ".reqnctapercluster 2\n{", 1)
            .replace("complete_tx::bytes [%r100]", "complete_tx::bytes.multicast::cluster [%r100]")
            .replace("[%r110],{%h1,%h2};", "[%r110],{%h1,%h2},%h9;")
    }
}

/// Rows that begin and end outside, images that the batch lacks, channels beyond the last, steps of more than one.
const CASES: [Columns; 7] = [
    Columns {
        sizes: &[80, 11, 6],
        steps: &[1; 3],
        swizzle: 3,
        lower: [-2, 0, 0],
        upper: [-1, 0, 0],
        channels: 32,
        pixels: 24,
        block: [1, 2, 0],
        reported: [3, -1],
        casts: false,
    },
    Columns {
        sizes: &[64, 9, 3],
        steps: &[1, 2, 1],
        swizzle: 0,
        lower: [-1, 0, 0],
        upper: [1, 0, 0],
        channels: 24,
        pixels: 16,
        block: [0, 1, 0],
        reported: [0, 3],
        casts: false,
    },
    Columns {
        sizes: &[80, 7, 6, 4],
        steps: &[1; 4],
        swizzle: 3,
        lower: [-1, -1, 0],
        upper: [-1, 0, 0],
        channels: 32,
        pixels: 60,
        block: [1, 3, 1],
        reported: [2, 1],
        casts: false,
    },
    Columns {
        sizes: &[16, 8, 9, 5],
        steps: &[1, 2, 3, 1],
        swizzle: 1,
        lower: [-3, -2, 0],
        upper: [2, 1, 0],
        channels: 8,
        pixels: 50,
        block: [0, 4, 2],
        reported: [5, 1],
        casts: false,
    },
    Columns {
        sizes: &[96, 6, 5, 3],
        steps: &[1; 4],
        swizzle: 2,
        lower: [-1, -2, 0],
        upper: [0, -1, 0],
        channels: 16,
        pixels: 40,
        block: [1, 1, 1],
        reported: [1, 2],
        casts: true,
    },
    Columns {
        sizes: &[72, 5, 4, 3, 9],
        steps: &[1; 5],
        swizzle: 2,
        lower: [-2, -1, -1],
        upper: [1, -1, 0],
        channels: 16,
        pixels: 100,
        block: [1, 0, 1],
        reported: [1, 2],
        casts: false,
    },
    Columns {
        sizes: &[64, 6, 5, 7, 11],
        steps: &[1, 2, 2, 2, 1],
        swizzle: 0,
        lower: [-1, -2, -3],
        upper: [0, 1, 2],
        channels: 64,
        pixels: 60,
        block: [0, 2, 1],
        reported: [2, 3],
        casts: false,
    },
];

#[test]
fn images_become_columns_and_columns_images_as_in_plain_rust() {
    let (head, kernels) = file("tma");
    for (seed, columns) in CASES.iter().enumerate() {
        let number = columns.rank() + 13;
        let codes = Codes::of(&(head.clone() + &columns.prepared(&kernels[number - 1])));
        let blocks = columns.block[0] as usize + 1;
        let tensor_bytes = columns.strides()[columns.rank()];
        let (shared, before) = (bytes(seed as u64 + 1, FILLED), bytes(99, tensor_bytes));
        let mut params =
            params([SHARED, DUMP, TENSOR, OUT], columns.reported[0] as u32, 0.0, columns.reported[1] as u32);
        params.resize(0x30, 0);
        params.extend(columns.map());
        let buffers = [
            (SHARED, shared.clone()),
            (DUMP, vec![0; blocks * FILLED]),
            (TENSOR, before.clone()),
            (OUT, vec![0; 4 * THREADS * blocks]),
        ];
        let grid = columns.block.map(|k| k + 1);
        let case = Case { grid, block: [THREADS as u32, 1, 1], params, buffers: &buffers, dynamic_bytes: 0 };
        let (left, tensor) = columns.want(&shared, &before);
        let outside = columns.words(&columns.offsets()).iter().filter(|w| w.0.is_none()).count();
        assert!(outside > 0 && 4 * outside < columns.column_bytes(), "case {seed}");
        assert!(left != shared && tensor != before, "case {seed}");
        // Blocks that do nothing leave zeros.
        let copies = |block: usize| columns.casts || block + 1 == blocks;
        let all = |bytes: &[u8]| -> Vec<u8> {
            (0..blocks).flat_map(|k| if copies(k) { bytes.to_vec() } else { vec![0; bytes.len()] }).collect()
        };
        let cluster = if columns.casts { 2 } else { 1 };
        let options = Options { im2col: Some(columns.reported()), ..Options::default() };
        for (who, after) in codes.run_with(&format!("k{number}"), (&case, cluster), options) {
            for (what, got, want) in [
                ("shared memory", &after[1], &all(&left)),
                ("tensor", &after[2], &tensor),
                ("output", &after[3], &all(&left[..4].repeat(THREADS))),
            ] {
                let differs = got.iter().zip(want).position(|(a, b)| a != b);
                assert_eq!(differs, None, "k{number}, case {seed}, by {who}: {what}");
            }
        }
    }
}

/// Where a map stores the im2col fields is not published: a launch without them stops there.
#[test]
fn copies_to_columns_stop_where_nobody_tells_what_the_map_says() {
    let (head, kernels) = file("tma");
    for number in 16..19 {
        let codes = Codes::of(&(head.clone() + &kernels[number - 1]));
        let buffers: Vec<(u64, Vec<u8>)> = [SHARED, DUMP, TENSOR, OUT].map(|at| (at, vec![0; 4096])).to_vec();
        let params = [params([SHARED, DUMP, TENSOR, OUT], 48, 0.0, 3), vec![0; 256]].concat();
        let case = Case { grid: [1; 3], block: [32, 1, 1], params, buffers: &buffers, dynamic_bytes: 0 };
        for (who, cubin) in &codes.0 {
            let fault = launch_clusters(cubin, &format!("k{number}"), (&case, 1), true).expect_err(who);
            let reported =
                [&format!("UTMALDG.{}D.IM2COL of the map ", number - 13), "Options::im2col", "is not modelled"];
            assert!(reported.iter().all(|reported| fault.contains(*reported)), "{who}: {fault}");
        }
    }
}
