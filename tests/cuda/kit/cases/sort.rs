//! Sorting, searching, prefix sums.

use super::{Case, Data, Random, line};

fn sorted_parts<T: Ord>(v: &mut [T], part: usize) {
    v.chunks_mut(part).for_each(<[T]>::sort_unstable);
}

pub fn cases() -> Vec<Case> {
    let mut r = Random::new(1);
    let distinct: Vec<i32> = (0..256).map(|i| (i % 128 * 89 + 17) % 128 - 64).collect();
    let mut merge = [r.i32s(300, -500, 500), r.i32s(300, -500, 500)];
    merge.iter_mut().for_each(|v| v.sort_unstable());
    let [first, second] = merge;
    vec![
        line("bitonic_sort", "sort", 3, 256).u32s(r.u32s(3 * 512)).does(|d| sorted_parts(d[0].u32s(), 512)),
        line("odd_even_sort", "sort", 2, 128).i32s(distinct).i32s(r.i32s(256, -9999, 9999)).does(odd_even),
        line("radix_sort", "sort", 2, 256)
            .u32s(r.u32s(512).iter().map(|x| x & 0xfff).collect())
            .int(12)
            .does(|d| sorted_parts(d[0].u32s(), 256)),
        line("merge_by_rank", "sort", 5, 128).i32s(first).i32s(second).i32s(vec![-1; 600]).int(300).does(|d| {
            let mut all = [d[0].i32s().clone(), d[1].i32s().clone()].concat();
            all.sort_unstable();
            *d[2].i32s() = all;
        }),
        line("quick_sort", "sort", 2, 32)
            .i32s(r.i32s(64 * 24, -100, 100))
            .int(24)
            .does(|d| sorted_parts(d[0].i32s(), 24)),
        line("scan_hillis", "sort", 3, 256).u32s(r.u32s(768)).does(|d| {
            d[0].u32s().chunks_mut(256).for_each(|c| inclusive(c, u32::wrapping_add));
        }),
        line("scan_blelloch", "sort", 2, 256).u32s(r.u32s(1024)).u32s(vec![7; 2]).shared(4 * (512 + 16)).does(blelloch),
        line("scan_shuffle", "sort", 1, 1024).i32s(r.i32s(1024, -(1 << 31), 1 << 31)).i64s(vec![-1; 1024]).does(|d| {
            let mut all: Vec<i64> = d[0].i32s().iter().map(|x| i64::from(*x)).collect();
            inclusive(&mut all, i64::wrapping_add);
            *d[1].i64s() = all;
        }),
        line("segmented_scan", "sort", 4, 32)
            .i32s(r.i32s(128, -1000, 1000))
            .u8s(r.u8s(128, 4).iter().map(|x| u8::from(*x == 0)).collect())
            .does(segmented),
        line("compact_odd", "sort", 3, 256).u32s(r.u32s(768)).u32s(vec![0xdead; 768]).u32s(vec![9; 3]).does(compact),
    ]
}

fn inclusive<T: Copy>(v: &mut [T], add: impl Fn(T, T) -> T) {
    (1..v.len()).for_each(|i| v[i] = add(v[i - 1], v[i]));
}

fn odd_even(d: &mut [Data]) {
    let (keys, values) = (d[0].i32s().clone(), d[1].i32s().clone());
    for start in [0, 128] {
        let mut pairs: Vec<(i32, i32)> = (start..start + 128).map(|i| (keys[i], values[i])).collect();
        pairs.sort_unstable_by_key(|p| p.0);
        for (i, (k, v)) in pairs.into_iter().enumerate() {
            d[0].i32s()[start + i] = k;
            d[1].i32s()[start + i] = v;
        }
    }
}

fn blelloch(d: &mut [Data]) {
    let mut totals = Vec::new();
    for part in d[0].u32s().chunks_mut(512) {
        let mut sum = 0u32;
        for x in part {
            let next = sum.wrapping_add(*x);
            *x = sum;
            sum = next;
        }
        totals.push(sum);
    }
    *d[1].u32s() = totals;
}

fn segmented(d: &mut [Data]) {
    let flags = d[1].u8s().clone();
    let a = d[0].i32s();
    for i in 0..a.len() {
        if i % 32 != 0 && flags[i] == 0 {
            a[i] = a[i].wrapping_add(a[i - 1]);
        }
    }
}

fn compact(d: &mut [Data]) {
    let a = d[0].u32s().clone();
    for (block, part) in a.chunks(256).enumerate() {
        let odd: Vec<u32> = part.iter().copied().filter(|x| x & 1 == 1).collect();
        d[1].u32s()[block * 256..][..odd.len()].copy_from_slice(&odd);
        d[2].u32s()[block] = odd.len() as u32;
    }
}
