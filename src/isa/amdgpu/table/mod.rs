//! The instruction table: isa.tsv and the rows that tools/amdgpu_rows.py writes from it.

pub mod op;
#[allow(unreachable_pub, reason = "generated")]
pub(super) mod rows;
