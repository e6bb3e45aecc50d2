//! A kernel loaded on the device, and its launches: argument block, user SGPRs, AQL packet.
//!
//! Layer: above `load`; used by `encode`. Source: docs/amd.md 2.7, 4.2-4.5 (kernel descriptor; hidden arguments of code
//! object version 5; AMDGPU usage of LLVM). Left out: argument preloading on PM4 rings (no chip with PM4 rings has it),
//! printf and host call buffers, heaps.

use super::bo::Bo;
use super::chip::Chip;
use super::encode::sgpr_pair;
use super::ring::{APERTURE_LDS_HI, APERTURE_SCRATCH_HI};
use crate::{Arg, Geometry};
use doorbell_elf::amdgpu::{BitField, KernelDescriptor, LDS_BYTES, properties};
use doorbell_hcq::packet::{EmitError, GpuVa, aql};
use smallvec::SmallVec;

/// Alignment of argument blocks.
pub(crate) const KERNARG_ALIGN: usize = 64;
/// Most work-items of a workgroup.
const MAX_WORK_ITEMS: u128 = 1024;
/// Bytes of the hidden arguments.
const HIDDEN_BYTES: usize = 256;

/// Whether the kernel expects this value in its user SGPRs.
fn has(d: &KernelDescriptor, property: BitField) -> bool {
    property.get(d.properties.into()) != 0
}

/// Offset and length of an argument in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArgRange {
    pub offset: usize,
    pub len: usize,
}

/// A loaded kernel. The buffer of its code is freed with the last handle.
#[derive(Debug)]
pub(crate) struct LoadedKernel {
    pub name: std::sync::Arc<str>,
    pub descriptor: KernelDescriptor,
    /// Its arguments, in order; `None` if the object does not declare them.
    pub arg_ranges: Option<Vec<ArgRange>>,
    /// Address of the descriptor on the device.
    pub descriptor_va: u64,
    /// Address of the first instruction.
    pub entry: u64,
    /// Keeps the code's buffer alive.
    #[allow(dead_code)]
    pub code: std::sync::Arc<Bo>,
}

/// One checked launch.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    pub program: &'a LoadedKernel,
    pub geometry: Geometry,
    /// Total LDS of a workgroup.
    pub lds_bytes: u32,
    /// Address of the argument block.
    pub kernarg_va: u64,
    /// Offset from there of the dispatch packet, for kernels that read it.
    pub packet_offset: u64,
}

/// An argument block under construction: explicit arguments, hidden ones, and the dispatch packet for kernels that need
/// its address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    /// Padded to a multiple of [`KERNARG_ALIGN`].
    pub bytes: SmallVec<[u8; 192]>,
    /// Offset of each argument.
    pub offsets: SmallVec<[usize; 12]>,
    pub packet_offset: usize,
}

/// Checks a launch; returns the total LDS of a workgroup.
///
/// # Errors
/// A message that says what the kernel or the chip does not support.
pub(crate) fn check(program: &LoadedKernel, chip: &Chip, geometry: &Geometry) -> Result<u32, String> {
    let d = &program.descriptor;
    let items: u128 = geometry.local.iter().map(|n| u128::from(*n)).product();
    let lds_bytes = d.group_segment_bytes.saturating_add(geometry.local_bytes);
    if items > MAX_WORK_ITEMS {
        let [x, y, z] = geometry.local;
        return Err(format!("launch workgroups of {x} x {y} x {z} work-items, at most {MAX_WORK_ITEMS}"));
    }
    if let Some([x, y, z]) = geometry.cluster {
        return Err(format!("launch clusters of {x} x {y} x {z} workgroups, which AMD's GPUs do not have"));
    }
    if lds_bytes > LDS_BYTES {
        return Err(format!("launch workgroups with {lds_bytes} bytes of LDS, at most {LDS_BYTES}"));
    }
    // The number of work-items along an axis has 32 bits on AQL rings; gfx12 has 16 bits for y and z.
    for (axis, (groups, local)) in ["x", "y", "z"].iter().zip(geometry.groups.iter().zip(&geometry.local)) {
        let is_over = if *axis == "x" {
            u64::from(*groups) * u64::from(*local) > u64::from(u32::MAX)
        } else {
            *groups > u32::from(u16::MAX)
        };
        if is_over {
            return Err(format!("launch {groups} workgroups of {local} along {axis}"));
        }
    }
    let is_pm4 = chip.format == super::chip::QueueFormat::Pm4;
    let unknown = [properties::FLAT_SCRATCH_INIT, properties::PRIVATE_SEGMENT_BUFFER];
    if is_pm4 && let Some(property) = unknown.into_iter().find(|property| has(d, *property)) {
        return Err(format!(
            "run {}: its descriptor asks for {}, which PM4 does not serve",
            program.name, property.name
        ));
    }
    Ok(lds_bytes)
}

impl LoadedKernel {
    /// Whether the kernel reads its dispatch packet.
    #[must_use]
    pub(crate) fn reads_dispatch_packet(&self) -> bool {
        has(&self.descriptor, properties::DISPATCH_PTR)
    }
}

/// Bytes of the dispatch packet in a block.
fn packet_bytes(d: &KernelDescriptor) -> u64 {
    if has(d, properties::DISPATCH_PTR) { aql::PACKET_BYTES } else { 0 }
}

/// What kernels read at their queue pointer: the windows of LDS and scratch. An AQL queue has its own; under PM4
/// a launch's block holds one.
fn queue_struct() -> aql::queue::AmdQueue {
    aql::queue::AmdQueue {
        group_aperture_hi: APERTURE_LDS_HI,
        private_aperture_hi: APERTURE_SCRATCH_HI,
        properties: aql::queue::QUEUE_PROPERTIES_IS_PTR64,
        ..aql::queue::AmdQueue::default()
    }
}

impl Block {
    /// Builds the argument block: arguments at the offsets that the object declares, or else in order and naturally
    /// aligned. An argument longer than 8 bytes is passed as several scalars.
    ///
    /// # Errors
    /// A message: too many, too few or wrong arguments for the kernel.
    pub(crate) fn new(program: &LoadedKernel, args: &[Arg], geometry: &Geometry) -> Result<Self, String> {
        let mut block = Self::default();
        let mut layout =
            program.arg_ranges.as_ref().map(|arg_ranges| ArgumentLayout { arg_ranges, next: 0, at: 0, left: 0 });
        for arg in args {
            let len = match arg {
                Arg::Scalar { len_bytes, .. } => usize::from(*len_bytes),
                Arg::Buffer(_) | Arg::Var(_) => 8,
            };
            if !matches!(len, 1 | 2 | 4 | 8) {
                return Err(format!("pass a scalar of {len} bytes"));
            }
            let at = match &mut layout {
                Some(layout) => layout.place(len, program, args.len())?,
                None => block.bytes.len().next_multiple_of(len),
            };
            block.bytes.resize(at, 0);
            block.bytes.extend_from_slice(&arg.bits().to_le_bytes()[..len]);
            block.offsets.push(at);
        }
        if let Some(layout) = layout {
            layout.all(program, args.len())?;
        }
        let (have, needed) = (block.bytes.len(), program.descriptor.kernarg_bytes as usize);
        // A size of 0 in the descriptor means that it is unknown.
        if needed != 0 && have > needed {
            return Err(format!("pass {have} bytes of arguments to {}, which takes {needed}", program.name));
        }
        block.hide(needed, geometry);
        let end = block.bytes.len().max(8).next_multiple_of(KERNARG_ALIGN);
        block.packet_offset = end;
        block.bytes.resize(end + packet_bytes(&program.descriptor) as usize, 0);
        if has(&program.descriptor, properties::QUEUE_PTR) {
            block.bytes.extend_from_slice(&queue_struct().emit());
        }
        Ok(block)
    }

    /// Appends the hidden arguments that compilers put after the explicit ones, up to the block's size.
    fn hide(&mut self, needed: usize, geometry: &Geometry) {
        let start = self.bytes.len().next_multiple_of(8);
        if needed <= start {
            return;
        }
        let mut hidden = [0; HIDDEN_BYTES];
        let mut put = |at: usize, bytes: &[u8]| hidden[at..at + bytes.len()].copy_from_slice(bytes);
        for axis in 0..3 {
            let (groups, local) = (geometry.groups[axis], geometry.local[axis]);
            put(4 * axis, &groups.to_le_bytes());
            put(12 + 2 * axis, &(local as u16).to_le_bytes());
        }
        let dims = 3 - geometry.groups.iter().zip(&geometry.local).rev().take_while(|(g, l)| **g * **l == 1).count();
        put(64, &(dims.max(1) as u16).to_le_bytes());
        put(120, &geometry.local_bytes.to_le_bytes());
        put(192, &APERTURE_SCRATCH_HI.to_le_bytes());
        put(196, &APERTURE_LDS_HI.to_le_bytes());
        self.bytes.resize(start, 0);
        self.bytes.extend_from_slice(&hidden[..(needed - start).min(HIDDEN_BYTES)]);
        self.bytes.resize(needed, 0);
    }
}

/// Assigns scalars and addresses, in order, to the kernel's declared arguments.
struct ArgumentLayout<'a> {
    arg_ranges: &'a [ArgRange],
    /// Number of arguments started.
    next: usize,
    /// Offset of the next byte of the current argument, and how many bytes it still needs.
    at: usize,
    left: usize,
}

impl ArgumentLayout<'_> {
    /// Returns the offset for the next `len` bytes.
    fn place(&mut self, len: usize, program: &LoadedKernel, count: usize) -> Result<usize, String> {
        while self.left == 0 {
            let Some(next) = self.arg_ranges.get(self.next) else { return Err(self.wrong(program, count)) };
            (self.at, self.left, self.next) = (next.offset, next.len, self.next + 1);
        }
        if len > self.left {
            let (n, left) = (self.next, self.left);
            return Err(format!("pass {len} bytes to argument {n} of {}, which has room for {left}", program.name));
        }
        let at = self.at;
        (self.at, self.left) = (at + len, self.left - len);
        Ok(at)
    }

    /// Checks that no argument is missing.
    fn all(&self, program: &LoadedKernel, count: usize) -> Result<(), String> {
        if self.left != 0 {
            let (n, left) = (self.next, self.left);
            return Err(format!("run {}: argument {n} lacks {left} bytes", program.name));
        }
        if self.arg_ranges[self.next..].iter().all(|p| p.len == 0) { Ok(()) } else { Err(self.wrong(program, count)) }
    }

    fn wrong(&self, program: &LoadedKernel, count: usize) -> String {
        let sizes: Vec<String> = self.arg_ranges.iter().map(|p| p.len.to_string()).collect();
        let (name, takes) = (&program.name, self.arg_ranges.len());
        format!("pass {count} arguments to {name}, which takes {takes} of {} bytes", sizes.join(", "))
    }
}

impl Launch<'_> {
    /// The user SGPRs in the order of the properties.
    #[must_use]
    pub(crate) fn user_data(&self) -> SmallVec<[u32; 8]> {
        let d = &self.program.descriptor;
        let mut out = SmallVec::new();
        if has(d, properties::DISPATCH_PTR) {
            out.extend(sgpr_pair(self.kernarg_va + self.packet_offset));
        }
        if has(d, properties::QUEUE_PTR) {
            out.extend(sgpr_pair(self.kernarg_va + self.packet_offset + packet_bytes(d)));
        }
        if has(d, properties::KERNARG_PTR) {
            out.extend(sgpr_pair(self.kernarg_va));
        }
        if has(d, properties::DISPATCH_ID) {
            out.extend([0, 0]);
        }
        if has(d, properties::PRIVATE_SEGMENT_SIZE) {
            out.push(d.private_segment_bytes);
        }
        out
    }

    /// The launch as an AQL packet.
    ///
    /// # Errors
    /// `Misaligned` for a descriptor that is not aligned to 64 bytes.
    pub(crate) fn aql_packet(&self) -> Result<aql::KernelDispatch, EmitError> {
        let g = &self.geometry;
        let grid = std::array::from_fn(|axis| g.groups[axis].saturating_mul(g.local[axis]));
        Ok(aql::KernelDispatch {
            header: aql::Header::SYSTEM,
            dimensions: 3,
            workgroup: g.local,
            grid,
            private_bytes: self.program.descriptor.private_segment_bytes,
            group_bytes: self.lds_bytes,
            kernel_object: GpuVa(self.program.descriptor_va),
            kernarg: GpuVa(self.kernarg_va),
            completion: GpuVa(0),
        })
    }
}
