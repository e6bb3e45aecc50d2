//! Operations that other chips call by another name. Selection writes gfx11's names.

use super::super::{Chip, Op, op};

/// gfx11's operation, and its name on gfx1201.
const GFX12: &[(Op, Op)] = &[
    (op::S_ADD_U32, op::S_ADD_CO_U32),
    (op::S_ADD_I32, op::S_ADD_CO_I32),
    (op::S_ADDC_U32, op::S_ADD_CO_CI_U32),
    (op::S_SUB_U32, op::S_SUB_CO_U32),
    (op::S_SUB_I32, op::S_SUB_CO_I32),
    (op::S_SUBB_U32, op::S_SUB_CO_CI_U32),
    (op::V_MAX_F32, op::V_MAX_NUM_F32),
    (op::V_MAX_F64, op::V_MAX_NUM_F64),
];

/// The chip's operation for gfx11's.
pub fn on(chip: Chip, op: Op) -> Op {
    let list = match chip {
        Chip::Gfx1201 => GFX12,
        Chip::Gfx1100 | Chip::Gfx942 => return op,
    };
    list.iter().find(|n| n.0 == op).map_or(op, |n| n.1)
}
