//! Sorting of short lists through one shared copy of the standard library's sort.
//!
//! The compiler generates a separate copy of the standard sort for every comparison type it is called with, 4 to 20 KB
//! of machine code each. Lists that are short, or sorted only once at startup, share one copy: it sorts the elements'
//! indices and compares through a function pointer. Hot sorts call the standard library directly.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

use smallvec::SmallVec;
use std::cmp::Ordering;

/// The elements' indices in sorted order.
type Numbers = SmallVec<[usize; 16]>;

/// Sorts by a key. Stable: elements with equal keys keep their order.
pub fn by_key<T, K: Ord>(list: &mut [T], key: impl Fn(&T) -> K) {
    by(list, |a, b| key(a).cmp(&key(b)));
}

/// Sorts by a comparison. Stable: equal elements keep their order.
pub fn by<T>(list: &mut [T], order: impl Fn(&T, &T) -> Ordering) {
    let mut from = numbers(list.len(), &|a, b| order(&list[a], &list[b]));
    for start in 0..list.len() {
        // Follow one cycle of the permutation: the swaps carry its first element along.
        let mut at = start;
        while from[at] != start {
            list.swap(at, from[at]);
            at = std::mem::replace(&mut from[at], at);
        }
        from[at] = at;
    }
}

#[inline(never)]
fn numbers(len: usize, order: &dyn Fn(usize, usize) -> Ordering) -> Numbers {
    let mut all: Numbers = (0..len).collect();
    all.sort_by(|a, b| order(*a, *b));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;

    #[test]
    fn equal_keys_keep_their_order() {
        for len in [0, 1, 2, 3, 16, 40, 200] {
            let mut list: Vec<usize> = (0..len).map(|n| n * 37 % 101).collect();
            let mut wanted = list.clone();
            wanted.sort_by_key(|n| Reverse(n % 4));
            by_key(&mut list, |n| Reverse(n % 4));
            assert_eq!(list, wanted);
            wanted.sort_unstable();
            by(&mut list, Ord::cmp);
            assert_eq!(list, wanted);
        }
    }
}

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;
