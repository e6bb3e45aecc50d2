//! What a user says: a lazy Tensor is a UOp and nothing else.
