//! What threads of a warp, a block and a cluster do together, and special registers, by the manual's meaning.

use super::{Codes, dump, file, fill, params};
use crate::machine::Case;
use std::sync::LazyLock;

const IN: u64 = 0x7_0000_0000;
const DUMP: u64 = 0x7_1000_0000;
const OUT: u64 = 0x7_2000_0000;
/// Bytes of shared memory whose size the launch gives.
const DYNAMIC_BYTES: u32 = 4096;
const STORE: &str = "mul.wide.s32 %rd30,%r6,4;";

static CODES: LazyLock<Codes> = LazyLock::new(|| {
    let (head, kernels) = file("warp_sync");
    assert_eq!(kernels.len(), 20);
    let all = (1..).zip(&kernels).map(|(number, k)| prepared(number, k));
    Codes::of(&(head.replace("sm_90\n", "sm_90a\n") + &all.collect::<String>()))
});

/// The sample with the surroundings that it needs.
fn prepared(number: usize, kernel: &str) -> String {
    match number {
        1..=4 => shuffled(kernel),
        7 => {
            // Threads that are not in a mask do not come to its barrier.
            let of = |mask: &str, label: &str| {
                let barrier = format!("bar.warp.sync {mask};");
                let guard = format!(
                    "and.b32 %r300,%r5,31; mov.u32 %r301,{mask}; shr.u32 %r301,%r301,%r300; and.b32 %r301,%r301,1; setp.eq.u32 %p20,%r301,0; @%p20 bra {label};"
                );
                (barrier.clone(), format!("{guard} {barrier}\n{label}: "))
            };
            let [(few, guarded_few), (by_register, guarded)] = [of("0xff", "FEW"), of("%r1", "TOLD")];
            kernel.replace(&few, &guarded_few).replace(&by_register, &guarded)
        }
        8 => {
            // Others' shared memory is there before and until all are done with it, and one block alone writes to it.
            const FIRST: &str = "barrier.cluster.arrive; barrier.cluster.wait; barrier.cluster.arrive.release;";
            const REACH: &str = "mov.u32 %r100,sm;";
            let alone = format!("setp.ne.u32 %p20,%r20,0; @%p20 bra DONE; {REACH}");
            let last =
                format!("\nDONE: barrier.cluster.arrive; barrier.cluster.wait; {} {STORE}", dump("%rd2", 1024, 32));
            kernel
                .replace(FIRST, &format!("{} {FIRST}", fill("%rd1", 1024, 32)))
                .replace(REACH, &alone)
                .replace(STORE, &last)
        }
        // Each thread of a grid of three dimensions stores at a place of its own.
        9..=11 => kernel.replace(STORE, &format!("{NUMBER} {STORE}")),
        _ => kernel.to_owned(),
    }
}

/// A thread's number in the whole grid.
const NUMBER: &str = "mov.u32 %r300,%ctaid.z; mov.u32 %r301,%nctaid.y; mov.u32 %r302,%ctaid.y; mad.lo.u32 %r300,%r300,%r301,%r302;
    mov.u32 %r301,%nctaid.x; mad.lo.u32 %r300,%r300,%r301,%r3; mov.u32 %r301,%ntid.z; mov.u32 %r302,%tid.z; mad.lo.u32 %r300,%r300,%r301,%r302;
    mov.u32 %r301,%ntid.y; mov.u32 %r302,%tid.y; mad.lo.u32 %r300,%r300,%r301,%r302; mad.lo.u32 %r6,%r300,%r4,%r5;";

/// Shuffles with masks: threads that are not in a mask go around and keep what they had.
fn shuffled(kernel: &str) -> String {
    let statements: Vec<&str> = kernel.split_inclusive(';').collect();
    let guard = |s: &str| match s {
        s if s.contains("0xffff") => {
            format!("mov.u32 %r25,%r24; and.b32 %r300,%r5,31; setp.gt.u32 %p20,%r300,15; @%p20 bra FEW; {s}\nFEW:")
        }
        s if s.contains("b32 %r26") => format!(
            "mov.u32 %r26,%r25; shr.u32 %r301,%r2,%r300; and.b32 %r301,%r301,1; setp.eq.u32 %p21,%r301,0; @%p21 bra TOLD; {s}\nTOLD:"
        ),
        s => s.to_owned(),
    };
    statements.into_iter().map(guard).collect()
}

/// A launch: grid, block, blocks of a cluster, `pn` and `pm`.
struct Launch {
    grid: [u32; 3],
    block: [u32; 3],
    cluster: u32,
    n: u32,
    m: u32,
    /// The input's words.
    input: Vec<u32>,
}

impl Launch {
    fn of(threads: u32) -> Launch {
        Launch { grid: [1; 3], block: [threads, 1, 1], cluster: 1, n: 0, m: 0, input: vec![0; 256] }
    }

    /// Each thread's word by each code, and the dump.
    fn run(&self, number: usize) -> Vec<(String, Vec<u32>, Vec<u32>)> {
        let count: u32 = self.grid.iter().chain(&self.block).product();
        let input = self.input.iter().flat_map(|w| w.to_le_bytes()).collect();
        let buffers = [(IN, input), (DUMP, vec![0; 4096]), (OUT, vec![0xff; 4 * count.max(4) as usize])];
        let params = params([IN, DUMP, OUT, OUT], self.n, 0.0, self.m);
        let case = Case { grid: self.grid, block: self.block, params, buffers: &buffers, dynamic_bytes: DYNAMIC_BYTES };
        let words = |b: &[u8]| -> Vec<u32> { b.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w)).collect() };
        let all = CODES.run(&format!("k{number}"), (&case, self.cluster));
        all.into_iter().map(|(who, left)| (format!("k{number} by {who}"), words(&left[2]), words(&left[1]))).collect()
    }

    /// Each thread's word has to be this.
    fn leaves(&self, number: usize, want: impl Fn(u32) -> u32) {
        for (who, left, _) in self.run(number) {
            let want: Vec<u32> = (0..left.len() as u32).map(&want).collect();
            assert_eq!(left, want, "{who}");
        }
    }
}

/// What lanes that are in a mask get from others by the manual, and whether it is another's; nothing where that one is
/// not in the mask.
fn shuffle(
    mode: usize,
    values: &[Option<u32>],
    by: impl Fn(usize) -> u32,
    c: impl Fn(usize) -> u32,
    mask: u32,
) -> Vec<(Option<u32>, bool)> {
    let one = |lane: usize| {
        if mask >> lane & 1 == 0 {
            return (values[lane], false);
        }
        let (by, c) = (by(lane) as i32 & 31, c(lane));
        let (clamp, segments) = (c as i32 & 31, (c >> 8) as i32 & 31);
        let (least, most) = (lane as i32 & segments, lane as i32 & segments | clamp & !segments);
        let from = [lane as i32 - by, lane as i32 + by, lane as i32 ^ by, least | by & !segments][mode];
        let other = if mode == 0 { from >= most } else { from <= most };
        let from = if other { from as usize } else { lane };
        (values[from].filter(|_| mask >> from & 1 == 1), other)
    };
    (0..32).map(one).collect()
}

#[test]
fn shuffles_are_those_of_the_manual() {
    // Numbers that leave most lanes with a value of a lane that is there; the mask is a clamp and segments as well.
    for (number, first, m) in [(1, 24, 0xffff_e0e2u32), (2, 5, 0xffff_e0ff), (3, 5, 0xffff_e0ff), (4, 5, 0xffff_e0ff)] {
        let mode = number - 1;
        let mut launch = Launch { m, ..Launch::of(64) };
        launch.input[0] = first;
        let clamp = if mode == 0 { 0 } else { 31 };
        let want: Vec<Option<u32>> = (0..2u32)
            .flat_map(|warp| {
                let own: Vec<u32> = (0..32).map(|lane| first + 32 * warp + lane).collect();
                let some: Vec<Option<u32>> = own.iter().copied().map(Some).collect();
                let by = |lane: usize| own[lane] & 31;
                let first = shuffle(mode, &some, |_| 4, |_| clamp, u32::MAX);
                let picked: Vec<_> = first.iter().zip(&some).map(|((v, p), own)| if *p { *v } else { *own }).collect();
                let values = |all: Vec<(Option<u32>, bool)>| all.into_iter().map(|v| v.0).collect::<Vec<_>>();
                let second = values(shuffle(mode, &picked, by, |_| clamp, u32::MAX));
                let third = values(shuffle(mode, &second, by, |_| m, 0xffff));
                let fourth = values(shuffle(mode, &third, |_| 2, by, m));
                fourth.into_iter().zip(second).map(|(a, b)| Some(a?.wrapping_add(b?))).collect::<Vec<_>>()
            })
            .collect();
        assert!(want.iter().flatten().count() > 40, "k{number}: {want:?}");
        for (who, left, _) in launch.run(number) {
            let wrong = (0..64).find(|t| want[*t].is_some_and(|w| w != left[*t]));
            assert_eq!(wrong, None, "{who}: {left:?}, not {want:?}");
        }
    }
}

#[test]
fn votes_matches_and_reductions_are_those_of_the_manual() {
    let (first, limit) = (7u32, 40u32);
    let mut launch = Launch { n: limit, ..Launch::of(64) };
    launch.input[0] = first;
    let warp = |t: u32| (t / 32 * 32..t / 32 * 32 + 32).map(move |t| first + t);
    launch.leaves(5, |t| {
        let holds: Vec<bool> = warp(t).map(|v| v as i32 > limit as i32).collect();
        let ballot = holds.iter().rev().fold(0u32, |n, h| n << 1 | u32::from(*h));
        let (all, some_not) = (ballot == u32::MAX, ballot != u32::MAX);
        let alike = all || ballot == 0;
        let votes =
            ballot.wrapping_add(if all { 1 } else { 2 } + if some_not { 4 } else { 8 } + if alike { 16 } else { 32 });
        // All are active, each value is of one lane alone.
        votes.wrapping_add(u32::MAX).wrapping_add(2 << (t % 32))
    });
    // Signed and unsigned ones differ.
    launch.input[0] = 0x7fff_fff0;
    let warp = |t: u32| (t / 32 * 32..t / 32 * 32 + 32).map(move |t| 0x7fff_fff0u32.wrapping_add(t));
    launch.leaves(6, |t| {
        let signed = || warp(t).map(u32::cast_signed);
        [
            warp(t).fold(0, u32::wrapping_add),
            signed().min().expect("a lane").cast_unsigned(),
            warp(t).max().expect("a lane"),
            warp(t).fold(u32::MAX, |a, b| a & b),
            warp(t).fold(0, |a, b| a | b),
            warp(t).fold(0, |a, b| a ^ b),
            warp(t).min().expect("a lane"),
            signed().max().expect("a lane").cast_unsigned(),
        ]
        .into_iter()
        .fold(0, u32::wrapping_add)
    });
}

#[test]
fn barriers_and_fences_let_all_through() {
    // Given counts are of all threads; no thread's number is above; one lane is elected, the first.
    Launch { n: 64, m: 4, ..Launch::of(64) }.leaves(7, |_| 1);
}

#[test]
fn blocks_of_a_cluster_reach_each_others_shared_memory() {
    let input: Vec<u32> = (0..256).map(|k| 1000 + k * k).collect();
    let launch = Launch { grid: [4, 1, 1], cluster: 2, m: 1, input: input.clone(), ..Launch::of(32) };
    for (who, left, dumped) in launch.run(8) {
        for (block, left) in (0..).zip(left.chunks(32)) {
            let (rank, size, cluster, clusters) = (block % 2, 2, block / 2, 2);
            let own = ((rank + size) * rank + cluster) * clusters + size;
            // The old values that the first block's threads get, in any order.
            let (mut got, at) = (left.to_vec(), own + input[2] + 1 + input[8] + input[9]);
            got.sort_unstable();
            let want: Vec<u32> = (0..32).map(|k| if rank == 0 { at + k * input[0] } else { own }).collect();
            assert_eq!(got, want, "{who}: block {block}");
        }
        for (block, shared) in (0..).zip(dumped.chunks(256)) {
            let mut want = input.clone();
            if block % 2 == 1 {
                want[1] = input[0];
                want[2] += 32 * input[0];
                want[3] += 32 * 5;
                want[4..8].copy_from_slice(&[0, 2, 0, block / 2]);
            }
            assert_eq!(shared, want, "{who}: block {block}");
        }
    }
}

#[test]
fn special_registers_say_where_a_thread_is() {
    let (grid, block) = ([2, 3, 4], [8, 4, 2]);
    let launch = Launch { grid, block, ..Launch::of(1) };
    // Place of a thread among the block's and of its block.
    let places = |n: u32| {
        let (t, b) = (n % 64, n / 64);
        ([t % 8, t / 8 % 4, t / 32], [b % 2, b / 2 % 3, b / 6])
    };
    let mixed = |n: u32, a: u32, b: u32, c: u32| {
        let (tid, ctaid) = places(n);
        a.wrapping_add(ctaid[0] * 8 + tid[0]) ^ a ^ b ^ c
    };
    launch.leaves(9, |n| mixed(n, places(n).0[1], places(n).0[2], block[1]));
    launch.leaves(10, |n| mixed(n, block[2], places(n).1[1], places(n).1[2]));
    launch.leaves(11, |n| mixed(n, grid[0], grid[1], grid[2]));
    let launch = Launch::of(64);
    let mixed = |t: u32, a: u32, b: u32, c: u32| a.wrapping_add(t) ^ a ^ b ^ c;
    // A multiprocessor of sm_90 has 64 warps.
    launch.leaves(12, |t| mixed(t, t % 32, t / 32, 64));
    launch.leaves(14, |t| mixed(t, 1 << (t % 32), (1 << (t % 32)) - 1, u32::MAX >> (31 - t % 32)));
    launch.leaves(15, |t| mixed(t, !(u32::MAX >> (31 - t % 32)), u32::MAX << (t % 32), DYNAMIC_BYTES));
    // What a cluster may reach and the environment's words are the driver's: nothing here.
    launch.leaves(16, |t| mixed(t, DYNAMIC_BYTES, 0, 0));
}

/// Clocks count other instructions in each code: what is the same is how a warp's threads see them.
#[test]
fn clocks_are_one_for_a_warp() {
    for (who, left, _) in Launch::of(64).run(13) {
        // The multiprocessor's number and how many there are, none, and the clock.
        let clock = |t: usize| left[t] ^ t as u32;
        assert!((0..64).all(|t| clock(t) == clock(t / 32 * 32)) && clock(0) > 0, "{who}: {left:?}");
    }
    for (who, left, _) in Launch::of(64).run(17) {
        // Neither clock is beyond 32 bits.
        let is = |time: u32, warp: u32| {
            (0..32).all(|l| left[(32 * warp + l) as usize] == time.wrapping_add(32 * warp + l) ^ time)
        };
        assert!((0..2).all(|warp| (1..1 << 16).any(|time| is(time, warp))), "{who}: {left:?}");
    }
    for (who, left, _) in Launch::of(1).run(18) {
        // Two clocks and a number that is none; nothing is counted.
        assert!(left[0] > 0 && left[0] < 1 << 20 && left[1..3] == [0, 0], "{who}: {left:?}");
    }
}

#[test]
fn grids_wait_and_threads_leave() {
    let mut launch = Launch::of(64);
    launch.input[0] = 77;
    launch.leaves(19, |t| 77 + t);
    // One leaves before it stores; none comes to the breakpoint or the trap.
    Launch { n: 100, ..Launch::of(9) }.leaves(20, |t| if t == 3 { u32::MAX } else { 1 });
}
