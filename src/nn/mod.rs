//! Layers, optimisers, state, datasets.
