//! Code on the device, and what one launch of it needs: argument block, user SGPRs, AQL packet.
//!
//! Place in the arrows: `load` makes programs, `encode` asks. Source: amd.md 2.7, 4.2-4.5 (kernel descriptor; hidden arguments of code
//! object version 5; AMDGPU usage of LLVM). Left out: argument preloading on PM4 rings (no chip with them has it), printf and host call
//! buffers, heaps, kernels that ask for a queue's address on PM4 rings.

use super::bo::Bo;
use super::chip::Chip;
use super::encode::sgpr_pair;
use super::ring::{APERTURE_LDS_HI, APERTURE_SCRATCH_HI};
use crate::{Arg, Geometry};
use doorbell_elf::amdgpu::{BitField, KernelDescriptor, properties};
use doorbell_hcq::packet::{EmitError, GpuVa, aql};
use smallvec::SmallVec;

/// Argument blocks start at a multiple of this.
pub const KERNARG_ALIGN: usize = 64;
/// Work-items of a workgroup at most.
const MAX_WORK_ITEMS: u128 = 1024;
/// Bytes of the hidden arguments.
const HIDDEN_BYTES: usize = 256;

/// Whether the kernel wants this of its user SGPRs.
fn has(d: &KernelDescriptor, property: BitField) -> bool {
    property.get(d.properties.into()) != 0
}

/// Where an argument lies in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    pub offset: usize,
    pub len: usize,
}

/// A loaded kernel. Its buffer is freed with the last handle.
#[derive(Debug)]
pub struct Program {
    pub name: std::sync::Arc<str>,
    pub descriptor: KernelDescriptor,
    /// What it is passed, in order; none where the object does not say.
    pub passed: Option<Vec<Passed>>,
    /// Address of the descriptor on the device.
    pub descriptor_va: u64,
    /// Address of the first instruction.
    pub entry: u64,
    /// Keeps the code.
    #[allow(dead_code)]
    pub code: std::sync::Arc<Bo>,
}

/// One launch, checked.
#[derive(Debug)]
pub struct Launch<'a> {
    pub program: &'a Program,
    pub geometry: Geometry,
    /// LDS of a workgroup in all.
    pub lds_bytes: u32,
    /// Address of the argument block.
    pub kernarg_va: u64,
    /// Bytes from there to the dispatch packet that the kernel may read.
    pub packet_offset: u64,
}

/// An argument block being made: explicit arguments, hidden ones, and the dispatch packet for kernels that ask for its address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Padded to a multiple of [`KERNARG_ALIGN`].
    pub bytes: SmallVec<[u8; 192]>,
    /// Where each argument lies.
    pub offsets: SmallVec<[usize; 12]>,
    pub packet_offset: usize,
}

/// Why a kernel cannot be launched so, in words.
///
/// # Errors
/// The words.
pub fn check(program: &Program, chip: &Chip, geometry: &Geometry) -> Result<u32, String> {
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
    if lds_bytes > chip.lds_bytes {
        return Err(format!("launch workgroups with {lds_bytes} bytes of LDS, at most {}", chip.lds_bytes));
    }
    // The counter of a dimension's work-items is 32 bits wide on AQL rings; gfx12 carries y and z in 16.
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
    let unknown = [properties::QUEUE_PTR, properties::FLAT_SCRATCH_INIT, properties::PRIVATE_SEGMENT_BUFFER];
    if is_pm4 && unknown.into_iter().any(|property| has(d, property)) {
        return Err(format!("run {}: its descriptor asks for properties {:#x}", program.name, d.properties));
    }
    Ok(lds_bytes)
}

impl Block {
    /// The block of these arguments for a kernel: where the object says, or in order and naturally aligned. An argument that is longer than 8
    /// bytes is passed as scalars, one behind the other.
    ///
    /// # Errors
    /// In words: arguments that the kernel does not take, or lacks.
    pub fn new(program: &Program, args: &[Arg], geometry: &Geometry) -> Result<Self, String> {
        let mut block = Self::default();
        let mut places = program.passed.as_ref().map(|passed| Places { passed, next: 0, at: 0, left: 0 });
        for arg in args {
            let len = match arg {
                Arg::Scalar { len_bytes, .. } => usize::from(*len_bytes),
                Arg::Buffer(_) | Arg::Var(_) => 8,
            };
            if !matches!(len, 1 | 2 | 4 | 8) {
                return Err(format!("pass a scalar of {len} bytes"));
            }
            let at = match &mut places {
                Some(places) => places.place(len, program, args.len())?,
                None => block.bytes.len().next_multiple_of(len),
            };
            block.bytes.resize(at, 0);
            block.bytes.extend_from_slice(&arg.bits().to_le_bytes()[..len]);
            block.offsets.push(at);
        }
        if let Some(places) = places {
            places.all(program, args.len())?;
        }
        let (have, wanted) = (block.bytes.len(), program.descriptor.kernarg_bytes as usize);
        // A descriptor of 0 says nothing about the block.
        if wanted != 0 && have > wanted {
            return Err(format!("pass {have} bytes of arguments to {}, which takes {wanted}", program.name));
        }
        block.hide(wanted, geometry);
        let end = block.bytes.len().max(8).next_multiple_of(KERNARG_ALIGN);
        block.packet_offset = end;
        let extra = if has(&program.descriptor, properties::DISPATCH_PTR) { aql::PACKET_BYTES as usize } else { 0 };
        block.bytes.resize(end + extra, 0);
        Ok(block)
    }

    /// The hidden arguments that compilers put behind the explicit ones, as far as the kernel's block goes.
    fn hide(&mut self, wanted: usize, geometry: &Geometry) {
        let start = self.bytes.len().next_multiple_of(8);
        if wanted <= start {
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
        self.bytes.extend_from_slice(&hidden[..(wanted - start).min(HIDDEN_BYTES)]);
        self.bytes.resize(wanted, 0);
    }
}

/// Goes through the arguments that a kernel takes.
struct Places<'a> {
    passed: &'a [Passed],
    /// Arguments begun.
    next: usize,
    /// Where the next byte of the last one goes, and how many it still wants.
    at: usize,
    left: usize,
}

impl Places<'_> {
    /// Where the next `len` bytes go.
    fn place(&mut self, len: usize, program: &Program, count: usize) -> Result<usize, String> {
        while self.left == 0 {
            let Some(next) = self.passed.get(self.next) else { return Err(self.wrong(program, count)) };
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

    /// Whether nothing is missing.
    fn all(&self, program: &Program, count: usize) -> Result<(), String> {
        if self.left != 0 {
            let (n, left) = (self.next, self.left);
            return Err(format!("run {}: argument {n} lacks {left} bytes", program.name));
        }
        if self.passed[self.next..].iter().all(|p| p.len == 0) { Ok(()) } else { Err(self.wrong(program, count)) }
    }

    fn wrong(&self, program: &Program, count: usize) -> String {
        let sizes: Vec<String> = self.passed.iter().map(|p| p.len.to_string()).collect();
        let (name, takes) = (&program.name, self.passed.len());
        format!("pass {count} arguments to {name}, which takes {takes} of {} bytes", sizes.join(", "))
    }
}

impl Launch<'_> {
    /// The user SGPRs in the order of the properties.
    #[must_use]
    pub fn user_data(&self) -> SmallVec<[u32; 8]> {
        let d = &self.program.descriptor;
        let mut out = SmallVec::new();
        if has(d, properties::DISPATCH_PTR) {
            out.extend(sgpr_pair(self.kernarg_va + self.packet_offset));
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

    /// Whether the kernel reads its dispatch packet.
    #[must_use]
    pub fn wants_packet(&self) -> bool {
        has(&self.program.descriptor, properties::DISPATCH_PTR)
    }

    /// The launch as a packet.
    ///
    /// # Errors
    /// `Misaligned` for a descriptor that is not at a multiple of 64.
    pub fn aql_packet(&self) -> Result<aql::KernelDispatch, EmitError> {
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
