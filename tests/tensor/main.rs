//! The tensor room seen by its users: graphs, errors, values, gradients.

mod graph;
