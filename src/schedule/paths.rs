//! Which kernels must run before which, kept while kernels are merged.
//!
//! A set of bits for each kernel, in both directions: a query costs a few words whatever the graph, merging the sets of
//! the kernels before and after. Graphs of thousands of kernels are queried millions of times. The sets of n jobs take
//! n * n / 4 bytes: 17 MB for 8,192.

/// Bits of a word.
const BITS: usize = u64::BITS as usize;

/// Kernels by number, and which of them run before which.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    words: usize,
    /// All that run after a kernel, directly or not.
    behind: Vec<u64>,
    /// All that run before it.
    before: Vec<u64>,
}

impl Paths {
    /// Of `count` kernels and edges (earlier, later). Edges of a cycle, which no order satisfies, are followed once.
    #[must_use]
    pub(crate) fn of(count: usize, edges: &[(usize, usize)]) -> Self {
        let words = count.div_ceil(BITS);
        let empty = vec![0; count * words];
        let mut paths = Self { words, behind: empty.clone(), before: empty };
        let order = super::order::sort(count, edges).unwrap_or_else(|| (0..count).collect());
        let mut place = vec![0; count];
        order.iter().enumerate().for_each(|(at, k)| place[*k] = at);
        let mut sorted: Vec<(usize, usize)> = edges.to_vec();
        // Sets of later kernels are complete before the ones before them copy them, and vice versa.
        crate::sort::by_key(&mut sorted, |(a, _)| std::cmp::Reverse(place[*a]));
        sorted.iter().for_each(|(a, b)| add(&mut paths.behind, words, *a, *b));
        crate::sort::by_key(&mut sorted, |(_, b)| place[*b]);
        sorted.iter().for_each(|(a, b)| add(&mut paths.before, words, *b, *a));
        paths
    }

    /// Whether some other kernel must run between two.
    #[must_use]
    pub(crate) fn are_apart(&self, a: usize, b: usize) -> bool {
        let between = |first: usize, last: usize| {
            let pairs = self.row(&self.behind, first).iter().zip(self.row(&self.before, last));
            pairs.into_iter().any(|(x, y)| x & y != 0)
        };
        between(a, b) || between(b, a)
    }

    /// `b` becomes the kernel of both, `a` none. No other runs between them.
    pub(crate) fn merge(&mut self, a: usize, b: usize) {
        let words = self.words;
        for set in [&mut self.behind, &mut self.before] {
            for w in 0..words {
                set[b * words + w] |= std::mem::take(&mut set[a * words + w]);
            }
            clear(&mut set[b * words..][..words], a);
            clear(&mut set[b * words..][..words], b);
        }
        let [behind, before] = [&self.behind, &self.before].map(|set| self.row(set, b).to_vec());
        for x in members(&before) {
            take_over(&mut self.behind[x * words..][..words], &behind, a, b);
        }
        for y in members(&behind) {
            take_over(&mut self.before[y * words..][..words], &before, a, b);
        }
    }

    fn row<'s>(&self, set: &'s [u64], k: usize) -> &'s [u64] {
        &set[k * self.words..][..self.words]
    }
}

/// `to` reaches `from`, and all that it reaches.
fn add(set: &mut [u64], words: usize, to: usize, from: usize) {
    for w in 0..words {
        set[to * words + w] |= set[from * words + w];
    }
    set[to * words + from / BITS] |= 1 << (from % BITS);
}

fn clear(row: &mut [u64], k: usize) {
    row[k / BITS] &= !(1 << (k % BITS));
}

/// What reaches the merged kernel reaches all that it does, and it by its new number.
fn take_over(row: &mut [u64], more: &[u64], a: usize, b: usize) {
    row.iter_mut().zip(more).for_each(|(x, y)| *x |= y);
    clear(row, a);
    row[b / BITS] |= 1 << (b % BITS);
}

fn members(row: &[u64]) -> impl Iterator<Item = usize> + '_ {
    row.iter()
        .enumerate()
        .flat_map(|(w, bits)| (0..BITS).filter(move |k| bits >> k & 1 == 1).map(move |k| w * BITS + k))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a third kernel is on a path from `a` to `b` or back, found by walking all paths.
    fn walked(edges: &[(usize, usize)], a: usize, b: usize) -> bool {
        let reaches = |from: usize, to: usize| {
            let (mut seen, mut todo) = (vec![false; 128], vec![from]);
            while let Some(x) = todo.pop() {
                for y in edges.iter().filter(|e| e.0 == x).map(|e| e.1) {
                    if y == to && x != from {
                        return true;
                    }
                    if y != to && !std::mem::replace(&mut seen[y], true) {
                        todo.push(y);
                    }
                }
            }
            false
        };
        reaches(a, b) || reaches(b, a)
    }

    #[test]
    fn answers_are_those_of_a_walk_before_and_after_every_merge() {
        let mut state = 1u64;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        for _ in 0..40 {
            // Numbers that are no order by themselves: edges go up in a shuffled one.
            let count = 3 + random(90);
            let mut names: Vec<usize> = (0..count).collect();
            (1..count).for_each(|k| names.swap(k, random(k + 1)));
            let mut edges: Vec<(usize, usize)> = Vec::new();
            for _ in 0..random(3 * count) {
                let (x, y) = (random(count), random(count));
                if x != y {
                    edges.push((names[x.min(y)], names[x.max(y)]));
                }
            }
            let mut paths = Paths::of(count, &edges);
            let mut alive: Vec<usize> = (0..count).collect();
            for _ in 0..count {
                let (a, b) = (alive[random(alive.len())], alive[random(alive.len())]);
                if a == b {
                    continue;
                }
                let apart = walked(&edges, a, b);
                assert_eq!(paths.are_apart(a, b), apart, "{a} {b} in {edges:?}");
                if !apart {
                    paths.merge(a, b);
                    alive.retain(|k| *k != a);
                    let now = |k: usize| if k == a { b } else { k };
                    edges = edges.iter().map(|(x, y)| (now(*x), now(*y))).filter(|(x, y)| x != y).collect();
                }
            }
        }
    }
}
