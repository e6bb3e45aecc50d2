//! Lists of nodes in the order of a key.
//!
//! The standard library's sort is compiled once for each comparison that it is called with, 4 to 20 KB of machine code each. The lists sorted here are
//! short and many (axes, ranges, clauses), so all of them share one copy, which asks for the order through a pointer.

use super::UOp;
use std::cmp::Ordering;

/// Sorts nodes by a key; what has equal keys keeps its order.
pub fn sort_by_key<K: Ord>(nodes: &mut [UOp], key: impl Fn(&UOp) -> K) {
    by(nodes, &|a, b| key(a).cmp(&key(b)));
}

#[inline(never)]
fn by(nodes: &mut [UOp], order: &dyn Fn(&UOp, &UOp) -> Ordering) {
    nodes.sort_by(order);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_keep_their_order() {
        let mut nodes: Vec<UOp> = (0..40i64).map(UOp::int).collect();
        let number = |u: &UOp| u.as_int().unwrap();
        sort_by_key(&mut nodes, |u| std::cmp::Reverse(number(u) % 4));
        let found: Vec<i64> = nodes.iter().map(number).collect();
        let wanted: Vec<i64> = (0..4).rev().flat_map(|rest| (0..10).map(move |n| 4 * n + rest)).collect();
        assert_eq!(found, wanted);
    }
}
