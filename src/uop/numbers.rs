//! Temporary numbers of nodes during a walk: a table by node id that is cleared by increasing its generation, so a walk
//! pays only for the nodes it visits. Tables are kept in a thread-local pool from which walks borrow them.

use super::UOp;
use std::cell::RefCell;

#[derive(Clone, Copy, Default)]
struct Slot {
    id: u64,
    /// The slot is free if its generation is not the table's.
    generation: u32,
    number: u32,
}

/// Open addressing, at most half full.
pub(super) struct Numbers {
    slots: Vec<Slot>,
    generation: u32,
    used: usize,
}

thread_local! {
    static POOL: RefCell<Vec<Numbers>> = const { RefCell::new(Vec::new()) };
}

/// Maximum number of tables in a thread's pool, and their maximum size (in slots).
const POOLED: usize = 8;
const LARGEST: usize = 1 << 16;
const SMALLEST: usize = 256;

impl Numbers {
    /// An empty table. Return it with [`Numbers::give_back`].
    pub(crate) fn borrow_table() -> Numbers {
        let kept = POOL.try_with(|p| p.borrow_mut().pop()).ok().flatten();
        let mut n = kept.unwrap_or_else(|| Numbers { slots: vec![Slot::default(); SMALLEST], generation: 0, used: 0 });
        n.used = 0;
        n.generation = n.generation.wrapping_add(1);
        if n.generation == 0 {
            n.slots.fill(Slot::default());
            n.generation = 1;
        }
        n
    }

    pub(crate) fn give_back(&mut self) {
        if self.slots.is_empty() || self.slots.len() > LARGEST {
            return;
        }
        let n = Numbers { slots: std::mem::take(&mut self.slots), ..*self };
        // Fails during thread shutdown.
        let _ = POOL.try_with(|p| {
            let mut p = p.borrow_mut();
            if p.len() < POOLED {
                p.push(n);
            }
        });
    }

    /// The slot of `id`, or the free slot where it would be.
    fn find(&self, id: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        while self.slots[at].generation == self.generation && self.slots[at].id != id {
            at = (at + 1) & mask;
        }
        at
    }

    pub(crate) fn get(&self, u: &UOp) -> Option<u32> {
        let slot = &self.slots[self.find(u.id())];
        (slot.generation == self.generation).then_some(slot.number)
    }

    /// Numbers a node that has no number yet.
    pub(crate) fn set(&mut self, u: &UOp, number: u32) {
        if self.used * 2 >= self.slots.len() {
            self.grow();
        }
        let at = self.find(u.id());
        self.slots[at] = Slot { id: u.id(), generation: self.generation, number };
        self.used += 1;
    }

    fn grow(&mut self) {
        let larger = vec![Slot::default(); self.slots.len() * 2];
        let old = std::mem::replace(&mut self.slots, larger);
        for slot in old.into_iter().filter(|s| s.generation == self.generation) {
            let at = self.find(slot.id);
            self.slots[at] = slot;
        }
    }
}

/// Results of a walk, by node. Does not keep its keys alive: a node that is freed and made again is another key.
pub struct Memo<V> {
    numbers: Numbers,
    values: Vec<V>,
}

impl<V> Default for Memo<V> {
    fn default() -> Memo<V> {
        Memo::new()
    }
}

impl<V> Memo<V> {
    /// An empty memo.
    pub fn new() -> Memo<V> {
        Memo { numbers: Numbers::borrow_table(), values: Vec::new() }
    }
    /// Whether there is a result for `u`.
    pub fn has(&self, u: &UOp) -> bool {
        self.numbers.get(u).is_some()
    }
    /// The result for `u`.
    pub fn get(&self, u: &UOp) -> Option<&V> {
        self.numbers.get(u).map(|n| &self.values[n as usize])
    }
    /// Records the result for `u`.
    pub fn insert(&mut self, u: &UOp, v: V) {
        match self.numbers.get(u) {
            Some(n) => self.values[n as usize] = v,
            None => {
                self.numbers.set(u, self.values.len() as u32);
                self.values.push(v);
            }
        }
    }
}

impl<V> Drop for Memo<V> {
    fn drop(&mut self) {
        self.numbers.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_growth_and_do_not_survive_the_walk() {
        let nodes: Vec<UOp> = (0..1000).map(|k| UOp::var("numbered", 0, k + 1)).collect();
        for round in 0..3 {
            let mut n = Numbers::borrow_table();
            assert!(nodes.iter().all(|u| n.get(u).is_none()), "round {round}");
            nodes.iter().enumerate().for_each(|(k, u)| n.set(u, k as u32));
            assert!(nodes.iter().enumerate().all(|(k, u)| n.get(u) == Some(k as u32)));
            n.give_back();
        }
    }
}
