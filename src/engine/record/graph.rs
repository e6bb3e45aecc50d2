//! UOps as columns of a record.

use crate::explorer::{Graph, NodeSource};
use crate::tensor::Shown;
use crate::uop::{Arg, UOp};

/// Longest text of an argument.
const LONGEST: usize = 160;

/// The numbers of `root` and of all below it; nodes that are there already are not walked again. What is below a node
/// that `is_leaf` is left out.
pub(super) fn add(graph: &mut Graph<u64>, root: &UOp, is_leaf: &dyn Fn(&UOp) -> bool) -> usize {
    let mut stack = vec![(root.clone(), false)];
    while let Some((u, is_open)) = stack.pop() {
        if graph.get(&u.id()).is_some() {
            continue;
        }
        let leaf = is_leaf(&u);
        if !is_open && !leaf {
            let below: Vec<UOp> = u.src().iter().rev().filter(|s| graph.get(&s.id()).is_none()).cloned().collect();
            stack.push((u, true));
            stack.extend(below.into_iter().map(|s| (s, false)));
            continue;
        }
        let src = if leaf { Vec::new() } else { u.src().iter().filter_map(|s| graph.get(&s.id())).collect() };
        graph.add(u.id(), texts(&u, leaf), src);
    }
    graph.get(&root.id()).unwrap_or_default()
}

/// A node's texts; of a value that is in memory already only that it is.
fn texts(u: &UOp, is_memory: bool) -> NodeSource {
    let shape = if u.shape().is_empty() { String::new() } else { Shown(u.shape()).to_string() };
    let arg = match u.arg() {
        Arg::None => String::new(),
        arg => format!("{arg:?}"),
    };
    let (op, arg) = match is_memory && !u.src().is_empty() {
        true => ("Buffer".into(), format!("of {:?}", u.op())),
        false => (format!("{:?}", u.op()), arg),
    };
    NodeSource { op, dtype: u.dtype().to_string(), arg: shortened(arg), shape }
}

/// A text of at most [`LONGEST`] characters.
pub(super) fn shortened(text: String) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_come_after_their_sources_and_once() {
        let (a, mut g) = (UOp::var("a", 0, 9), Graph::default());
        let sum = &(&a * 2) + &(&a * 2);
        let top = add(&mut g, &sum, &|_| false);
        let again = add(&mut g, &(&sum + 1), &|_| false);
        let nodes = g.into_nodes();
        assert_eq!(again, top + 2, "one constant and one sum are new");
        for (k, src) in nodes.src.iter().enumerate() {
            assert!(src.iter().all(|s| *s < k), "{k}");
        }
        assert_eq!(nodes.strings[nodes.op[top]], "Add");
    }

    #[test]
    fn below_a_leaf_is_nothing() {
        let (a, mut g) = (UOp::var("a", 0, 9), Graph::default());
        let product = &a * 2;
        add(&mut g, &(&product + 1), &|u| *u == product);
        assert_eq!(g.len(), 3);
    }
}
