//! What a launch needs to know of a kernel: the numbers of its descriptor (docs/amd.md 4.2, 4.3).

use super::super::select::{Selected, user_sgprs};
use super::super::{Target, Wave};
use super::place::Placed;
use doorbell_codegen::Program;
use doorbell_elf::GpuKernel;
use doorbell_elf::amdgpu::{Arg, ArgKind, KernelSpec};

/// The kernel's description: registers, memory, arguments (64 bits each: buffers, then variables).
pub(super) fn describe(program: &Program, selected: &Selected, placed: &Placed, target: Target) -> GpuKernel {
    let (buffers, vars) = (program.params.len() as u32, program.vars.len() as u32);
    let arg = |k: u32| {
        let kind = if k < buffers { ArgKind::GlobalBuffer } else { ArgKind::ByValue };
        Arg { offset_bytes: 8 * k, size_bytes: 8, kind }
    };
    let spec = KernelSpec {
        gpu: target.chip,
        wave32: target.wave == Wave::W32,
        vgprs: placed.vgprs,
        acc_vgprs: 0,
        sgprs: placed.sgprs,
        lds_bytes: selected.lds_bytes,
        scratch_bytes: placed.scratch_bytes,
        kernarg_bytes: 8 * (buffers + vars),
        user_sgprs: user_sgprs(target.chip),
        workgroup_ids: selected.group_axes,
        workitem_dims: selected.item_axes + 1,
    };
    GpuKernel { spec, args: (0..buffers + vars).map(arg).collect(), max_workgroup: program.local.iter().product() }
}
