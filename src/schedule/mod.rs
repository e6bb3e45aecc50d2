//! Tensor graph → kernels and copies.
