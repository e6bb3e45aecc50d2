//! Operations with other names on other chips. Selection writes gfx11's names.

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

/// gfx11's operation, and its name on gfx942.
const GFX9: &[(Op, Op)] = &[
    (op::DS_LOAD_B128, op::DS_READ_B128),
    (op::DS_LOAD_B32, op::DS_READ_B32),
    (op::DS_LOAD_B64, op::DS_READ_B64),
    (op::DS_LOAD_I16, op::DS_READ_I16),
    (op::DS_LOAD_I8, op::DS_READ_I8),
    (op::DS_LOAD_U16, op::DS_READ_U16),
    (op::DS_LOAD_U8, op::DS_READ_U8),
    (op::DS_STORE_B128, op::DS_WRITE_B128),
    (op::DS_STORE_B16, op::DS_WRITE_B16),
    (op::DS_STORE_B32, op::DS_WRITE_B32),
    (op::DS_STORE_B64, op::DS_WRITE_B64),
    (op::DS_STORE_B8, op::DS_WRITE_B8),
    (op::GLOBAL_LOAD_B128, op::GLOBAL_LOAD_DWORDX4),
    (op::GLOBAL_LOAD_B32, op::GLOBAL_LOAD_DWORD),
    (op::GLOBAL_LOAD_B64, op::GLOBAL_LOAD_DWORDX2),
    (op::GLOBAL_LOAD_I16, op::GLOBAL_LOAD_SSHORT),
    (op::GLOBAL_LOAD_I8, op::GLOBAL_LOAD_SBYTE),
    (op::GLOBAL_LOAD_U16, op::GLOBAL_LOAD_USHORT),
    (op::GLOBAL_LOAD_U8, op::GLOBAL_LOAD_UBYTE),
    (op::GLOBAL_STORE_B128, op::GLOBAL_STORE_DWORDX4),
    (op::GLOBAL_STORE_B16, op::GLOBAL_STORE_SHORT),
    (op::GLOBAL_STORE_B32, op::GLOBAL_STORE_DWORD),
    (op::GLOBAL_STORE_B64, op::GLOBAL_STORE_DWORDX2),
    (op::GLOBAL_STORE_B8, op::GLOBAL_STORE_BYTE),
    (op::SCRATCH_LOAD_B128, op::SCRATCH_LOAD_DWORDX4),
    (op::SCRATCH_LOAD_B32, op::SCRATCH_LOAD_DWORD),
    (op::SCRATCH_LOAD_B64, op::SCRATCH_LOAD_DWORDX2),
    (op::SCRATCH_LOAD_B96, op::SCRATCH_LOAD_DWORDX3),
    (op::SCRATCH_STORE_B128, op::SCRATCH_STORE_DWORDX4),
    (op::SCRATCH_STORE_B32, op::SCRATCH_STORE_DWORD),
    (op::SCRATCH_STORE_B64, op::SCRATCH_STORE_DWORDX2),
    (op::SCRATCH_STORE_B96, op::SCRATCH_STORE_DWORDX3),
    (op::S_AND_NOT1_B64, op::S_ANDN2_B64),
    (op::S_LOAD_B128, op::S_LOAD_DWORDX4),
    (op::S_LOAD_B256, op::S_LOAD_DWORDX8),
    (op::S_LOAD_B32, op::S_LOAD_DWORD),
    (op::S_LOAD_B512, op::S_LOAD_DWORDX16),
    (op::S_LOAD_B64, op::S_LOAD_DWORDX2),
    (op::V_ADD_CO_CI_U32, op::V_ADDC_CO_U32),
    (op::V_ADD_NC_U32, op::V_ADD_U32),
    (op::V_CLZ_I32_U32, op::V_FFBH_U32),
    (op::V_SUB_CO_CI_U32, op::V_SUBB_CO_U32),
    (op::V_SUB_NC_U32, op::V_SUB_U32),
];

/// The chip's operation for gfx11's.
pub(crate) fn on(chip: Chip, op: Op) -> Op {
    let list = match chip {
        Chip::Gfx1201 => GFX12,
        Chip::Gfx942 => GFX9,
        Chip::Gfx1100 => return op,
    };
    list.iter().find(|n| n.0 == op).map_or(op, |n| n.1)
}
