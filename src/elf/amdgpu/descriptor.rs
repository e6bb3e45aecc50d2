//! The kernel descriptor: 64 bytes in `.rodata` with the resources of a wave and the offset of its code.
//!
//! Source: AMDGPUUsage «Kernel Descriptor», AMDHSAKernelDescriptor.h.

use super::chip::Chip;

/// Bytes of a descriptor, and its alignment.
pub const DESCRIPTOR_BYTES: usize = 64;

/// A field of one of the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitField {
    /// After AMDGPUUsage, in lower case: `granulated_workitem_vgpr_count`.
    pub name: &'static str,
    /// Its lowest bit in the word.
    pub lo: u8,
    /// How many bits, at least 1.
    pub width: u8,
}

const fn field(name: &'static str, lo: u8, width: u8) -> BitField {
    BitField { name, lo, width }
}

impl BitField {
    const fn mask(self) -> u32 {
        u32::MAX >> (32 - self.width)
    }

    /// The field's value in a word.
    #[must_use]
    pub const fn get(self, word: u32) -> u32 {
        word >> self.lo & self.mask()
    }

    /// The word with another value in the field; a value that does not fit is cut to the field's width.
    #[must_use]
    pub const fn set(self, word: u32, value: u32) -> u32 {
        word & !(self.mask() << self.lo) | (value & self.mask()) << self.lo
    }
}

macro_rules! fields {
    ($($const_name:ident = $name:literal $lo:literal $width:literal),* $(,)?) => {
        $(#[doc = $name] pub const $const_name: BitField = field($name, $lo, $width);)*
        /// All of them.
        pub const ALL: &[BitField] = &[$($const_name),*];
    };
}

/// `COMPUTE_PGM_RSRC1`.
pub mod rsrc1 {
    use super::{BitField, field};
    fields! {
        VGPRS = "granulated_workitem_vgpr_count" 0 6, SGPRS = "granulated_wavefront_sgpr_count" 6 4, PRIORITY = "priority" 10 2,
        ROUND_32 = "float_round_mode_32" 12 2, ROUND_16_64 = "float_round_mode_16_64" 14 2, DENORM_32 = "float_denorm_mode_32" 16 2,
        DENORM_16_64 = "float_denorm_mode_16_64" 18 2, PRIV = "priv" 20 1, DX10_CLAMP = "enable_dx10_clamp" 21 1,
        DEBUG_MODE = "debug_mode" 22 1, IEEE_MODE = "enable_ieee_mode" 23 1, BULKY = "bulky" 24 1, CDBG_USER = "cdbg_user" 25 1,
        FP16_OVFL = "fp16_ovfl" 26 1, WGP_MODE = "wgp_mode" 29 1, MEM_ORDERED = "mem_ordered" 30 1, FWD_PROGRESS = "fwd_progress" 31 1,
    }
}

/// `COMPUTE_PGM_RSRC2`.
pub mod rsrc2 {
    use super::{BitField, field};
    fields! {
        SCRATCH = "enable_private_segment" 0 1, USER_SGPRS = "user_sgpr_count" 1 5, TRAP_HANDLER = "enable_trap_handler" 6 1,
        WORKGROUP_X = "enable_sgpr_workgroup_id_x" 7 1, WORKGROUP_Y = "enable_sgpr_workgroup_id_y" 8 1,
        WORKGROUP_Z = "enable_sgpr_workgroup_id_z" 9 1, WORKGROUP_INFO = "enable_sgpr_workgroup_info" 10 1,
        WORKITEM_ID = "enable_vgpr_workitem_id" 11 2, ADDRESS_WATCH = "exception_address_watch" 13 1,
        MEMORY_VIOLATION = "exception_memory" 14 1, LDS_SIZE = "granulated_lds_size" 15 9, EXCEPTIONS = "exceptions" 24 7,
    }
}

/// `COMPUTE_PGM_RSRC3`: gfx90a and gfx942 use the first two, gfx11 and gfx12 the rest.
pub mod rsrc3 {
    use super::{BitField, field};
    fields! {
        ACCUM_OFFSET = "accum_offset" 0 6, TG_SPLIT = "tg_split" 16 1, SHARED_VGPRS = "shared_vgpr_count" 0 4,
        INST_PREF_SIZE = "inst_pref_size" 4 6, IMAGE_OP = "image_op" 31 1,
    }
}

/// `kernel_code_properties`: which user SGPRs hold what.
pub mod properties {
    use super::{BitField, field};
    fields! {
        PRIVATE_SEGMENT_BUFFER = "enable_sgpr_private_segment_buffer" 0 1, DISPATCH_PTR = "enable_sgpr_dispatch_ptr" 1 1,
        QUEUE_PTR = "enable_sgpr_queue_ptr" 2 1, KERNARG_PTR = "enable_sgpr_kernarg_segment_ptr" 3 1,
        DISPATCH_ID = "enable_sgpr_dispatch_id" 4 1, FLAT_SCRATCH_INIT = "enable_sgpr_flat_scratch_init" 5 1,
        PRIVATE_SEGMENT_SIZE = "enable_sgpr_private_segment_size" 6 1, WAVE32 = "enable_wavefront_size32" 10 1,
        DYNAMIC_STACK = "uses_dynamic_stack" 11 1,
    }
}

/// A kernel descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelDescriptor {
    /// LDS of a workgroup.
    pub group_segment_bytes: u32,
    /// Scratch of a work-item.
    pub private_segment_bytes: u32,
    /// Bytes of arguments.
    pub kernarg_bytes: u32,
    /// From the descriptor to the first instruction; the entry is at a multiple of 256.
    pub entry_offset_bytes: i64,
    /// `COMPUTE_PGM_RSRC3`, with the fields of [`rsrc3`].
    pub rsrc3: u32,
    /// `COMPUTE_PGM_RSRC1`, with the fields of [`rsrc1`]: registers, floating-point mode.
    pub rsrc1: u32,
    /// `COMPUTE_PGM_RSRC2`, with the fields of [`rsrc2`]: what a wave's registers hold at its start, exceptions.
    pub rsrc2: u32,
    /// `kernel_code_properties`, with the fields of [`properties`].
    pub properties: u16,
    /// Dwords of arguments that the hardware loads into SGPRs (gfx942): length in bits 6:0, offset in 15:7.
    pub kernarg_preload: u16,
}

impl KernelDescriptor {
    /// The 64 bytes; reserved ones are zero.
    #[must_use]
    pub fn emit(&self) -> [u8; DESCRIPTOR_BYTES] {
        let mut raw = [0; DESCRIPTOR_BYTES];
        // PANIC: constant offsets inside
        let mut put = |at: usize, bytes: &[u8]| raw[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.group_segment_bytes.to_le_bytes());
        put(4, &self.private_segment_bytes.to_le_bytes());
        put(8, &self.kernarg_bytes.to_le_bytes());
        put(16, &self.entry_offset_bytes.to_le_bytes());
        put(44, &self.rsrc3.to_le_bytes());
        put(48, &self.rsrc1.to_le_bytes());
        put(52, &self.rsrc2.to_le_bytes());
        put(56, &self.properties.to_le_bytes());
        put(58, &self.kernarg_preload.to_le_bytes());
        raw
    }

    /// Reads the 64 bytes.
    #[must_use]
    pub fn parse(raw: &[u8; DESCRIPTOR_BYTES]) -> Self {
        // PANIC: constant offsets inside.
        let half = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]);
        let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
        let entry = u64::from(word(16)) | u64::from(word(20)) << 32;
        Self {
            group_segment_bytes: word(0),
            private_segment_bytes: word(4),
            kernarg_bytes: word(8),
            entry_offset_bytes: entry.cast_signed(),
            rsrc3: word(44),
            rsrc1: word(48),
            rsrc2: word(52),
            properties: half(56),
            kernarg_preload: half(58),
        }
    }

    /// Whether waves have 32 lanes.
    #[must_use]
    pub const fn wave32(&self) -> bool {
        properties::WAVE32.get(self.properties as u32) == 1
    }

    /// Vector registers of a lane, from the granulated count.
    #[must_use]
    pub const fn vgprs(&self, gpu: Chip) -> u32 {
        (rsrc1::VGPRS.get(self.rsrc1) + 1) * gpu.vgpr_granule(self.wave32())
    }
}

/// What a kernel needs, in plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSpec {
    /// The chip that the code is for; it decides register granules and which fields there are.
    pub gpu: Chip,
    /// Waves of 32 lanes, not 64; without effect on gfx942, which has 64 only.
    pub wave32: bool,
    /// Vector registers (gfx942: architectural ones).
    pub vgprs: u32,
    /// Accumulation registers (gfx942).
    pub acc_vgprs: u32,
    /// Scalar registers, VCC and the like not counted (gfx942 only; others always have all).
    pub sgprs: u32,
    /// LDS of a workgroup that the kernel itself declares.
    pub lds_bytes: u32,
    /// Scratch of a work-item.
    pub scratch_bytes: u32,
    /// Bytes of the kernarg segment.
    pub kernarg_bytes: u32,
    /// User SGPRs; the kernarg pointer is in the first two. More than two are padding.
    pub user_sgprs: u32,
    /// Which workgroup ids are enabled in x, y and z.
    pub workgroup_ids: [bool; 3],
    /// Work-item ids packed in v0: 1 x, 2 xy, 3 xyz.
    pub workitem_dims: u32,
}

impl KernelSpec {
    /// The descriptor, without the entry offset.
    #[must_use]
    pub fn descriptor(&self) -> KernelDescriptor {
        let gfx9 = self.gpu.is_gfx9();
        let arch = self.vgprs.max(1);
        let total = if self.acc_vgprs > 0 { arch.next_multiple_of(4) + self.acc_vgprs } else { arch };
        let granules = total.div_ceil(self.gpu.vgpr_granule(self.wave32)) - 1;
        let mut one = rsrc1::VGPRS.set(0, granules);
        one = rsrc1::DENORM_32.set(one, 3);
        one = rsrc1::DENORM_16_64.set(one, 3);
        if self.gpu != Chip::Gfx1201 {
            one = rsrc1::DX10_CLAMP.set(one, 1);
            one = rsrc1::IEEE_MODE.set(one, 1);
        }
        if gfx9 {
            // Six more: VCC, FLAT_SCRATCH, XNACK_MASK. In eights, as LLVM counts them; the hardware allocates sixteens.
            one = rsrc1::SGPRS.set(one, (self.sgprs + 6).div_ceil(8) - 1);
        } else {
            one = rsrc1::WGP_MODE.set(one, 1);
            one = rsrc1::MEM_ORDERED.set(one, 1);
        }
        let mut two = rsrc2::SCRATCH.set(0, u32::from(self.scratch_bytes > 0));
        two = rsrc2::USER_SGPRS.set(two, self.user_sgprs);
        for (wanted, bit) in
            self.workgroup_ids.into_iter().zip([rsrc2::WORKGROUP_X, rsrc2::WORKGROUP_Y, rsrc2::WORKGROUP_Z])
        {
            two = bit.set(two, u32::from(wanted));
        }
        two = rsrc2::WORKITEM_ID.set(two, self.workitem_dims.clamp(1, 3) - 1);
        let three = if gfx9 { rsrc3::ACCUM_OFFSET.set(0, arch.div_ceil(4) - 1) } else { 0 };
        let props = properties::KERNARG_PTR.set(0, u32::from(self.user_sgprs >= 2));
        let props = properties::WAVE32.set(props, u32::from(self.wave32 && !gfx9));
        KernelDescriptor {
            group_segment_bytes: self.lds_bytes,
            private_segment_bytes: self.scratch_bytes,
            kernarg_bytes: self.kernarg_bytes,
            entry_offset_bytes: 0,
            rsrc3: three,
            rsrc1: one,
            rsrc2: two,
            properties: u16::try_from(props).unwrap_or_default(),
            kernarg_preload: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_gives_the_words_that_llvm_writes() {
        // clang-19 for a kernel with kernarg pointer and workgroup id x, denormals kept (amdhsa directives,
        // llvm-mc-19).
        let spec = KernelSpec {
            gpu: Chip::Gfx1100,
            wave32: true,
            vgprs: 5,
            acc_vgprs: 0,
            sgprs: 16,
            lds_bytes: 0,
            scratch_bytes: 0,
            kernarg_bytes: 16,
            user_sgprs: 2,
            workgroup_ids: [true, false, false],
            workitem_dims: 1,
        };
        let d = spec.descriptor();
        assert_eq!((d.rsrc1, d.rsrc2, d.properties), (0x60af_0000, 0x84, 0x408));
        let d = KernelSpec { gpu: Chip::Gfx1201, ..spec }.descriptor();
        assert_eq!((d.rsrc1, d.rsrc2, d.properties), (0x600f_0000, 0x84, 0x408));
        let d = KernelSpec { gpu: Chip::Gfx942, wave32: false, ..spec }.descriptor();
        assert_eq!((d.rsrc1, d.rsrc2, d.properties), (0x00af_0080, 0x84, 0x8));
    }

    #[test]
    fn emitted_bytes_parse_to_the_same_descriptor() {
        let d = KernelDescriptor {
            group_segment_bytes: 1,
            private_segment_bytes: 2,
            kernarg_bytes: 3,
            entry_offset_bytes: -256,
            rsrc3: 4,
            rsrc1: 5,
            rsrc2: 6,
            properties: 0x408,
            kernarg_preload: 7,
        };
        assert_eq!(KernelDescriptor::parse(&d.emit()), d);
    }
}
