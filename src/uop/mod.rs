//! The one IR.
