//! Code on the GPU, and what one launch of it needs: its arguments at the kernel's offsets, the bank and the QMD.
//!
//! Place in the arrows: above `bo` and `launch`; `queue` and `graph` ask. Source: nv.md 4.2, 5.4, 5.6.

use super::bo::Bo;
use super::chip::Chip;
use super::launch::{MAX_STACK_BYTES, Plan, Request, local_bytes};
use super::local::{LOCAL_WINDOW, SHARED_WINDOW};
use crate::device::{Arg, Code, Geometry, KernelImage};
use crate::elf::cubin::{Cubin, Kernel, Param, is_cubin};
use crate::hcq::kernargs::{Kernargs, Room};
use crate::hcq::memory::MemError;
use crate::hcq::packet::GpuVa;
use crate::hcq::packet::nv::qmd::{ALIGN_BYTES, BankSlot, Dependent};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, PoisonError};

/// A loaded kernel. Its buffer is freed with the last kernel of the image.
#[derive(Debug)]
pub struct Program {
    pub name: Arc<str>,
    pub kernel: Kernel,
    /// Compute capability of the code.
    pub code_sm: u32,
    pub image: GpuVa,
    /// Keeps the code.
    #[allow(dead_code)]
    pub code: Arc<Bo>,
    /// The last launch's, for one over the same grid.
    pub template: Mutex<Option<Arc<Template>>>,
}

/// A launch with its checks done: QMD and bank, but for the bank's address and the arguments.
#[derive(Debug)]
pub struct Template {
    geometry: Geometry,
    layout: BlockLayout,
    words: Vec<u64>,
    /// What of them has a meaning: the rest fills the bank up to its alignment.
    used_bytes: usize,
    slot: BankSlot,
    chip: &'static Chip,
}

impl Template {
    /// Writes the block of a launch into room of so many words, with its arguments, which are as long as the template's.
    ///
    /// # Errors
    /// Room outside of the ring.
    pub fn write(&self, ring: &Kernargs, room: Room, args: &[u8]) -> Result<(), MemError> {
        let block_va = ring.address(room);
        let (bank_offset, bank0) = (self.layout.bank_offset, self.chip.bank0);
        let bank = GpuVa(block_va + bank_offset);
        ring.write_at(room, 0, &bytemuck::cast_slice(&self.words)[..self.used_bytes])?;
        for (at, value) in self.slot.values(bytemuck::cast_slice(&self.words), bank) {
            ring.write_at(room, 4 * at as u64, &value.to_le_bytes())?;
        }
        let (at, own) = bank0.own_address(bank);
        ring.write_at(room, bank_offset + u64::from(at), &own.to_le_bytes())?;
        ring.write_at(room, bank_offset + u64::from(bank0.params), args)
    }

    #[must_use]
    pub fn len_words(&self) -> u64 {
        self.words.len() as u64
    }
}

/// An image before it has an address.
#[derive(Clone, Debug)]
pub struct Placed {
    pub cubin: Cubin,
    pub kernel: Kernel,
}

impl Placed {
    /// Reads what was given to load.
    ///
    /// # Errors
    /// In words: no cubin, or one without the kernel, or for another chip.
    pub fn read(image: &KernelImage<'_>, chip: &Chip) -> Result<Self, String> {
        let (bytes, entry) = match image.code {
            Code::Elf { bytes, entry } => (bytes, entry),
            Code::Raw(_) => return Err("bare instructions do not say what a launch needs; a cubin is wanted".into()),
        };
        if !is_cubin(bytes) {
            return Err("the file is no cubin".into());
        }
        let cubin = Cubin::parse(bytes).map_err(|e| e.to_string())?;
        if cubin.sm > chip.sm || cubin.sm / 10 != chip.sm / 10 {
            return Err(format!("the cubin is for sm_{}, the device is {}", cubin.sm, chip.name));
        }
        let kernel = cubin.kernel(entry).ok_or_else(|| {
            let names: Vec<&str> = cubin.kernels.iter().map(|k| k.name.as_str()).take(8).collect();
            format!("the cubin has no kernel {entry}, it has {}", names.join(", "))
        })?;
        let stack = kernel.stack_bytes.unwrap_or(0);
        if stack > MAX_STACK_BYTES {
            return Err(format!("{entry} wants {stack} bytes of stack a thread, at most {MAX_STACK_BYTES}"));
        }
        Ok(Self { kernel: kernel.clone(), cubin })
    }
}

/// Arguments as the kernel finds them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    pub bytes: SmallVec<[u8; 64]>,
    /// Where each lies, and its length.
    pub places: SmallVec<[(usize, usize); 8]>,
}

impl Program {
    /// Bytes of local memory that a thread of the kernel needs.
    #[must_use]
    pub fn local_bytes(&self) -> u32 {
        local_bytes(&self.kernel)
    }

    /// The arguments at the offsets that the cubin says, or, where it says none, one after another at their natural alignment.
    ///
    /// # Errors
    /// In words: other arguments than the kernel takes.
    pub fn arguments(&self, args: &[Arg]) -> Result<Arguments, String> {
        // Another count than the kernel's: the scalars of a struct, which the check of all bytes below holds to its length.
        let params: &[Param] = if self.kernel.params.len() == args.len() { &self.kernel.params } else { &[] };
        let want = (self.kernel.bank0_bytes as usize).saturating_sub(self.kernel.param_base as usize);
        let (mut out, mut have) = (Arguments::default(), 0_usize);
        out.bytes.resize(want, 0);
        for (n, arg) in args.iter().enumerate() {
            let own = match arg {
                Arg::Scalar { len_bytes, .. } => usize::from(*len_bytes),
                Arg::Buffer(_) | Arg::Var(_) => 8,
            };
            if !matches!(own, 1 | 2 | 4 | 8) {
                return Err(format!("pass a scalar of {own} bytes"));
            }
            let (at, len) = match params.get(n) {
                Some(p) => (p.offset as usize, p.len_bytes as usize),
                None => (have.next_multiple_of(own), own),
            };
            // A variable fills what the kernel declares; an address and a scalar have their length.
            let fits = if matches!(arg, Arg::Var(_)) { len <= 8 } else { len == own };
            if !fits {
                return Err(format!("pass {own} bytes as argument {n} of {}, which has {len}", self.name));
            }
            have = have.max(at + len);
            // More than the kernel takes is told below.
            if let Some(place) = out.bytes.get_mut(at..at + len) {
                place.copy_from_slice(&arg.bits().to_le_bytes()[..len]);
            }
            out.places.push((at, len));
        }
        // What is missing may be padding, but no parameter.
        let lacks = self.kernel.params.last().is_some_and(|last| have <= last.offset as usize);
        if have > want || have.next_multiple_of(4) < want || lacks {
            let count = (args.len(), self.kernel.params.len());
            let name = &self.name;
            return Err(format!(
                "pass {} arguments of {have} bytes to {name}, which takes {} of {want}",
                count.0, count.1
            ));
        }
        Ok(out)
    }

    /// The launch over this grid, checked once.
    ///
    /// # Errors
    /// As `plan`.
    pub fn template(
        &self,
        chip: &'static Chip,
        geometry: &Geometry,
        args: &Arguments,
    ) -> Result<Arc<Template>, String> {
        let mut kept = self.template.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(template) = kept.as_ref().filter(|t| t.geometry == *geometry) {
            return Ok(Arc::clone(template));
        }
        let layout = BlockLayout::of(self, chip);
        let plan = self.plan(chip, geometry, &args.bytes, GpuVa(0), None)?;
        let slot = BankSlot::of(chip.qmd).ok_or("launch without a bank")?;
        let words = block_words(&plan, layout).to_vec();
        let used_bytes = layout.bank_offset as usize + plan.bank0.len();
        let template = Arc::new(Template { geometry: *geometry, layout, words, used_bytes, slot, chip });
        *kept = Some(Arc::clone(&template));
        Ok(template)
    }

    /// A launch whose bank lies at `bank0`.
    ///
    /// # Errors
    /// In words: a shape, an amount or arguments that the kernel or the chip does not take.
    pub fn plan(
        &self,
        chip: &'static Chip,
        geometry: &Geometry,
        args: &[u8],
        bank0: GpuVa,
        dependent: Option<Dependent>,
    ) -> Result<Plan, String> {
        let request = Request {
            chip,
            kernel: &self.kernel,
            code_sm: self.code_sm,
            image: self.image,
            bank0,
            grid: geometry.groups,
            block: geometry.local,
            cluster: None,
            dynamic_shared_bytes: geometry.local_bytes,
            args,
            windows: [SHARED_WINDOW, LOCAL_WINDOW],
            releases: Vec::new(),
            dependent,
        };
        request.plan().map_err(|e| format!("launch {e}"))
    }
}

/// Where bank and QMD of a launch lie in its block: QMD first, both at multiples of 256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    pub bank_offset: u64,
    pub len_bytes: u64,
}

impl BlockLayout {
    /// For a QMD of so many dwords, and a bank of so many bytes.
    #[must_use]
    pub fn new(qmd_dwords: usize, bank_bytes: usize) -> Self {
        let bank_offset = (qmd_dwords as u64 * 4).next_multiple_of(ALIGN_BYTES);
        Self { bank_offset, len_bytes: bank_offset + (bank_bytes as u64).next_multiple_of(ALIGN_BYTES) }
    }

    /// For a program's launches.
    #[must_use]
    pub fn of(program: &Program, chip: &Chip) -> Self {
        let bank_bytes = (program.kernel.bank0_bytes as usize).next_multiple_of(16);
        Self::new(chip.qmd.dwords(), bank_bytes)
    }
}

/// A block's bytes as words: QMD, then bank.
#[must_use]
pub fn block_words(plan: &Plan, layout: BlockLayout) -> SmallVec<[u64; 160]> {
    let mut bytes: SmallVec<[u8; 1280]> = SmallVec::new();
    bytes.extend_from_slice(bytemuck::cast_slice(plan.qmd.words()));
    bytes.resize(layout.bank_offset as usize, 0);
    bytes.extend_from_slice(&plan.bank0);
    bytes.resize(layout.len_bytes as usize, 0);
    let (eights, _) = bytes.as_chunks::<8>();
    eights.iter().map(|c| u64::from_le_bytes(*c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hcq::memory::View;

    #[test]
    fn block_of_a_hopper_launch_has_its_bank_behind_the_qmd() {
        let layout = BlockLayout::new(96, 0x220);
        assert_eq!((layout.bank_offset, layout.len_bytes), (512, 512 + 768));
    }

    #[test]
    fn template_gives_the_block_that_a_plan_for_the_place_gives_on_every_chip() {
        use crate::hcq::packet::nv::qmd::Version;
        for version in [Version::V2_3, Version::V2_4, Version::V3_0, Version::V4_0, Version::V5_0] {
            assert!(BankSlot::of(version).is_some(), "{version:?}");
        }
        let files: [(&str, &[u8]); 4] = [
            ("sm_75", include_bytes!("../../../tests/data/cubin/module_sm75.cubin")),
            ("sm_80", include_bytes!("../../../tests/data/cubin/module_sm80.cubin")),
            ("sm_90", include_bytes!("../../../tests/data/cubin/module_sm90.cubin")),
            ("sm_120", include_bytes!("../../../tests/data/cubin/module_sm120.cubin")),
        ];
        for (name, bytes) in files {
            let chip = Chip::of_name(name).unwrap();
            let cubin = Cubin::parse(bytes).unwrap();
            let kernel = cubin.kernel("k").unwrap();
            let geometry = Geometry { groups: [3, 2, 1], local: [64, 1, 1], local_bytes: 0 };
            let request = |bank0, args| Request {
                chip,
                kernel,
                code_sm: cubin.sm,
                image: GpuVa(0x20_0000_0000),
                bank0,
                grid: geometry.groups,
                block: geometry.local,
                cluster: None,
                dynamic_shared_bytes: 0,
                args,
                windows: [SHARED_WINDOW, LOCAL_WINDOW],
                releases: Vec::new(),
                dependent: None,
            };
            let args: Vec<u8> = (1..=12).collect();
            let layout = BlockLayout::new(chip.qmd.dwords(), kernel.bank0_bytes.next_multiple_of(16) as usize);
            let blank = request(GpuVa(0), &[0; 12]).plan().unwrap();
            let (words, slot) = (block_words(&blank, layout).to_vec(), BankSlot::of(chip.qmd).unwrap());
            let used_bytes = layout.bank_offset as usize + blank.bank0.len();
            let template = Template { geometry, layout, words, used_bytes, slot, chip };
            let view = View::anonymous(8192, 4096).unwrap();
            let mut ring = Kernargs::of(view.clone());
            ring.take(32, 1, 0).unwrap();
            let room = ring.take(template.len_words(), 1, 0).unwrap();
            template.write(&ring, room, &args).unwrap();
            let mut written = vec![0u64; template.len_words() as usize];
            view.read(256, bytemuck::cast_slice_mut(&mut written)).unwrap();
            let bank = GpuVa(view.base().0 + 256 + layout.bank_offset);
            let expected = request(bank, &args).plan().unwrap();
            assert_eq!(written, block_words(&expected, layout).to_vec(), "{name}");
        }
    }
}
