//! Code on the GPU, and what one launch of it needs: its arguments at the kernel's offsets, the bank and the QMD.
//!
//! Place in the arrows: above `bo` and `launch`; `queue` and `graph` ask. Source: nv.md 4.2, 5.4, 5.6.

use super::bo::Bo;
use super::chip::Chip;
use super::launch::{Plan, Request, local_bytes};
use super::local::{LOCAL_WINDOW, SHARED_WINDOW};
use crate::device::{Arg, Code, Geometry, KernelImage};
use crate::elf::cubin::{Cubin, Kernel, Param, is_cubin};
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
    slot: BankSlot,
    chip: &'static Chip,
}

impl Template {
    /// The block of a launch whose block lies at `block_va`, with its arguments, which are as long as the template's.
    #[must_use]
    pub fn fill(&self, block_va: u64, args: &[u8]) -> SmallVec<[u64; 160]> {
        let mut words: SmallVec<[u64; 160]> = SmallVec::from_slice(&self.words);
        let bank = GpuVa(block_va + self.layout.bank_offset);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let (qmd, bank_bytes) = bytes.split_at_mut(self.layout.bank_offset as usize);
        self.slot.patch(bytemuck::cast_slice_mut(qmd), bank);
        let (at, own) = self.chip.bank0.own_address(bank);
        // PANIC: a bank holds its own address and, behind its first bytes, the arguments that the template was made with.
        bank_bytes[at as usize..][..8].copy_from_slice(&own.to_le_bytes());
        bank_bytes[self.chip.bank0.params as usize..][..args.len()].copy_from_slice(args);
        words
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
        let mut out = Arguments::default();
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
                None => (out.bytes.len().next_multiple_of(own), own),
            };
            // A variable fills what the kernel declares; an address and a scalar have their length.
            let fits = if matches!(arg, Arg::Var(_)) { len <= 8 } else { len == own };
            if !fits {
                return Err(format!("pass {own} bytes as argument {n} of {}, which has {len}", self.name));
            }
            out.bytes.resize(out.bytes.len().max(at + len), 0);
            out.bytes[at..at + len].copy_from_slice(&arg.bits().to_le_bytes()[..len]); // PANIC: made that long on the line above
            out.places.push((at, len));
        }
        let want = (self.kernel.bank0_bytes as usize).saturating_sub(self.kernel.param_base as usize);
        let have = out.bytes.len();
        if have > want || have.next_multiple_of(4) < want {
            let count = (args.len(), self.kernel.params.len());
            let name = &self.name;
            return Err(format!(
                "pass {} arguments of {have} bytes to {name}, which takes {} of {want}",
                count.0, count.1
            ));
        }
        out.bytes.resize(want, 0);
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
        let template = Arc::new(Template { geometry: *geometry, layout, words, slot, chip });
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
            let template = Template { geometry, layout, words, slot, chip };
            let block_va = 0x10_1234_5600;
            let expected = request(GpuVa(block_va + layout.bank_offset), &args).plan().unwrap();
            assert_eq!(template.fill(block_va, &args), block_words(&expected, layout), "{name}");
        }
    }
}
