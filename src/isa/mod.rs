//! Linear program → machine code, one folder a target.
