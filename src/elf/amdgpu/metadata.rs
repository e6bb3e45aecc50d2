//! The NT_AMDGPU_METADATA note: a MessagePack map about the kernels, for AMD's runtime and tools.
//!
//! Source: AMDGPUUsage «Code Object V5 Metadata», MessagePack specification. Only what is needed is written: maps,
//! arrays, strings, unsigned integers, booleans.

use super::chip::Chip;
use super::descriptor::KernelDescriptor;
use super::write::KernelCode;

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// A pointer to global memory.
    GlobalBuffer,
    /// A scalar, or a structure.
    ByValue,
    /// What the runtime passes by itself: sizes of the launch and the like. Only read, never written.
    Hidden,
}

/// One argument in the kernarg segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arg {
    /// From the start of the kernarg segment (`.offset`).
    pub offset_bytes: u32,
    /// Bytes that it takes there (`.size`).
    pub size_bytes: u32,
    /// What is passed (`.value_kind`).
    pub kind: ArgKind,
}

pub(super) const NT_AMDGPU_METADATA: u32 = 32;

/// Writes MessagePack.
struct Pack(Vec<u8>);

impl Pack {
    fn head(&mut self, short: u8, limit: u32, wide: [u8; 2], n: usize) {
        let n32 = u32::try_from(n).unwrap_or(u32::MAX);
        match u16::try_from(n) {
            Ok(n) if u32::from(n) < limit => self.0.push(short | n.to_le_bytes()[0]),
            Ok(n) => {
                self.0.push(wide[0]);
                self.0.extend_from_slice(&n.to_be_bytes());
            }
            Err(_) => {
                self.0.push(wide[1]);
                self.0.extend_from_slice(&n32.to_be_bytes());
            }
        }
    }

    fn map(&mut self, n: usize) {
        self.head(0x80, 16, [0xde, 0xdf], n);
    }

    fn array(&mut self, n: usize) {
        self.head(0x90, 16, [0xdc, 0xdd], n);
    }

    fn text(&mut self, text: &str) {
        self.head(0xa0, 32, [0xda, 0xdb], text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, n: u32) {
        if n < 128 {
            self.0.push(n.to_le_bytes()[0]);
        } else {
            self.0.push(0xce);
            self.0.extend_from_slice(&n.to_be_bytes());
        }
    }

    fn entry(&mut self, key: &str, n: u32) {
        self.text(key);
        self.number(n);
    }

    fn flag(&mut self, key: &str, on: bool) {
        self.text(key);
        self.0.push(if on { 0xc3 } else { 0xc2 });
    }

    fn words(&mut self, key: &str, text: &str) {
        self.text(key);
        self.text(text);
    }
}

/// The note's description.
pub(super) fn metadata(gpu: Chip, kernels: &[KernelCode]) -> Vec<u8> {
    let mut p = Pack(Vec::new());
    p.map(3);
    p.text("amdhsa.kernels");
    p.array(kernels.len());
    for kernel in kernels {
        kernel_map(&mut p, gpu, kernel);
    }
    p.words("amdhsa.target", &format!("amdgcn-amd-amdhsa--{}", gpu.name()));
    p.text("amdhsa.version");
    p.array(2);
    p.number(1);
    p.number(2);
    p.0
}

fn kernel_map(p: &mut Pack, gpu: Chip, kernel: &KernelCode) {
    let d: &KernelDescriptor = &kernel.descriptor;
    let gfx9 = gpu.is_gfx9();
    p.map(15);
    if gfx9 {
        p.entry(".agpr_count", kernel.acc_vgprs);
    }
    p.text(".args");
    p.array(kernel.args.len());
    for arg in &kernel.args {
        let buffer = arg.kind == ArgKind::GlobalBuffer;
        p.map(if buffer { 4 } else { 3 });
        if buffer {
            p.words(".address_space", "global");
        }
        p.entry(".offset", arg.offset_bytes);
        p.entry(".size", arg.size_bytes);
        p.words(".value_kind", if buffer { "global_buffer" } else { "by_value" });
    }
    p.entry(".group_segment_fixed_size", d.group_segment_bytes);
    p.entry(".kernarg_segment_align", 8);
    p.entry(".kernarg_segment_size", d.kernarg_bytes);
    p.entry(".max_flat_workgroup_size", kernel.max_workgroup);
    p.words(".name", &kernel.name);
    p.entry(".private_segment_fixed_size", d.private_segment_bytes);
    p.entry(".sgpr_count", kernel.sgprs);
    p.entry(".sgpr_spill_count", 0);
    p.words(".symbol", &format!("{}.kd", kernel.name));
    p.flag(".uses_dynamic_stack", false);
    p.entry(".vgpr_count", kernel.vgprs);
    p.entry(".vgpr_spill_count", 0);
    p.entry(".wavefront_size", if d.wave32() { 32 } else { 64 });
    if !gfx9 {
        p.entry(".workgroup_processor_mode", super::rsrc1::WGP_MODE.get(d.rsrc1));
    }
}
