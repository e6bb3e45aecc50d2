//! Graphs as columns: each text once, sources as numbers of nodes. Nodes come after their sources.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::Hash;

/// Nodes, column by column; texts are indices into `strings`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nodes {
    /// Each text once.
    pub strings: Vec<String>,
    /// What the node does.
    pub op: Vec<usize>,
    /// Its type.
    pub dtype: Vec<usize>,
    /// Its argument.
    pub arg: Vec<usize>,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its sources.
    pub src: Vec<Vec<usize>>,
}

/// The texts of a node.
#[derive(Clone, Debug, Default)]
pub struct NodeSource {
    /// What the node does.
    pub op: String,
    /// Its type.
    pub dtype: String,
    /// Its argument.
    pub arg: String,
    /// Its shape.
    pub shape: String,
}

/// Collects nodes by key.
#[derive(Debug)]
pub struct Graph<K> {
    nodes: Nodes,
    texts: HashMap<String, usize>,
    known: HashMap<K, usize>,
}

impl<K> Default for Graph<K> {
    fn default() -> Self {
        Graph { nodes: Nodes::default(), texts: HashMap::new(), known: HashMap::new() }
    }
}

impl<K: Eq + Hash> Graph<K> {
    /// The number of a node, if it is there.
    pub fn get(&self, key: &K) -> Option<usize> {
        self.known.get(key).copied()
    }

    /// Adds a node; its sources are numbers of nodes that are there.
    pub fn add(&mut self, key: K, node: NodeSource, src: Vec<usize>) -> usize {
        let number = self.nodes.op.len();
        let texts = [node.op, node.dtype, node.arg, node.shape].map(|t| self.text(t));
        self.nodes.op.push(texts[0]);
        self.nodes.dtype.push(texts[1]);
        self.nodes.arg.push(texts[2]);
        self.nodes.shape.push(texts[3]);
        self.nodes.src.push(src);
        self.known.insert(key, number);
        number
    }

    fn text(&mut self, text: String) -> usize {
        if let Some(known) = self.texts.get(&text) {
            return *known;
        }
        let number = self.nodes.strings.len();
        self.nodes.strings.push(text.clone());
        self.texts.insert(text, number);
        number
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.op.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The nodes.
    pub fn into_nodes(self) -> Nodes {
        self.nodes
    }
}
