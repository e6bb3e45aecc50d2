//! Image and arguments → packets: queue, signal, timeline, kernargs, copy, graph.
