//! Packets: struct ↔ dwords, one module a packet set, `emit` and `parse` side by side.

pub mod cpu;
