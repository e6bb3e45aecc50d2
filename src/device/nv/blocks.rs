//! The ring of launch blocks: each holds a QMD and its constant bank. If a block already holds the same launch, only
//! its arguments are rewritten.
//!
//! Layer: above `launch`; `program` keeps the templates, `queue` the ring, `graph` uses the same layout
//! for its own blocks. Source: docs/nv.md 4.2.
//! The GPU does not modify a block that it reads, so a block can be launched again. The ring restarts from its
//! beginning whenever it is idle, so a program that repeats the same launches finds its blocks at the same addresses.

use super::chip::Chip;
use super::launch::Plan;
use crate::Geometry;
use doorbell_elf::cubin::Kernel;
use doorbell_hcq::error::SubmitError;
use doorbell_hcq::kernargs::{Kernargs, Room};
use doorbell_hcq::memory::{MemError, View};
use doorbell_hcq::packet::GpuVa;
use doorbell_hcq::packet::nv::qmd::{ALIGN_BYTES, BankSlot};
use doorbell_hcq::signal::Timeline;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A checked launch: QMD and bank, without the bank's address and the arguments.
#[derive(Debug)]
pub(crate) struct Template {
    /// Unique within the process; 0 means no template.
    id: u64,
    geometry: Geometry,
    layout: BlockLayout,
    words: Vec<u64>,
    /// The bytes of `words` in use; the rest pads the bank to its alignment.
    used_bytes: usize,
    slot: BankSlot,
    chip: &'static Chip,
}

impl Template {
    /// Makes a template of a launch planned with its bank at address 0; `None` if the chip's QMD has no field for the
    /// bank.
    #[must_use]
    pub(crate) fn new(chip: &'static Chip, geometry: &Geometry, plan: &Plan, layout: BlockLayout) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Some(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            geometry: *geometry,
            layout,
            words: block_words(plan, layout).to_vec(),
            used_bytes: layout.bank_offset as usize + plan.bank0.len(),
            slot: BankSlot::of(chip.qmd)?,
            chip,
        })
    }

    /// Whether the template is for this geometry.
    #[must_use]
    pub(crate) fn is_over(&self, geometry: &Geometry) -> bool {
        self.geometry == *geometry
    }

    /// Writes the whole block except the arguments.
    fn write(&self, ring: &Kernargs, room: Room) -> Result<(), MemError> {
        let bank_offset = self.layout.bank_offset;
        let bank = GpuVa(ring.address(room) + bank_offset);
        ring.write_at(room, 0, &bytemuck::cast_slice(&self.words)[..self.used_bytes])?;
        for (at, value) in self.slot.values(bytemuck::cast_slice(&self.words), bank) {
            ring.write_at(room, 4 * at as u64, &value.to_le_bytes())?;
        }
        let (at, own) = self.chip.bank0.own_address(bank);
        ring.write_at(room, bank_offset + u64::from(at), &own.to_le_bytes())
    }

    /// Writes the arguments, which have the template's length.
    fn write_args(&self, ring: &Kernargs, room: Room, args: &[u8]) -> Result<(), MemError> {
        ring.write_at(room, self.layout.bank_offset + u64::from(self.chip.bank0.params), args)
    }
}

/// The ring of launch blocks.
#[derive(Debug)]
pub(crate) struct Blocks {
    ring: Kernargs,
    /// For each unit of [`ALIGN_BYTES`]: the id of the template last written there, and the unit's index within its
    /// block.
    pieces: Vec<(u64, u32)>,
}

impl Blocks {
    /// Makes a ring that uses all of `view`.
    #[must_use]
    pub(crate) fn of(view: View) -> Self {
        let count = view.len_bytes() / ALIGN_BYTES;
        Self { ring: Kernargs::of(view), pieces: vec![(0, 0); count as usize] }
    }

    /// As [`Kernargs::forget_after`]; the written blocks stay valid.
    pub(crate) fn forget_after(&mut self, value: u64) {
        self.ring.forget_after(value);
    }

    /// Writes a launch to the ring, for the submission that will signal `value`; waits at most `timeout` for room.
    /// Returns the QMD's address.
    ///
    /// # Errors
    /// As [`Kernargs::take_waiting`].
    pub(crate) fn put(
        &mut self,
        template: &Template,
        args: &[u8],
        timeline: &Timeline,
        value: u64,
        timeout: Duration,
    ) -> Result<u64, SubmitError> {
        let room = self.ring.take_waiting(template.words.len() as u64, timeline, value, timeout)?;
        let first = (room.offset() / ALIGN_BYTES) as usize;
        let count = (template.layout.len_bytes / ALIGN_BYTES) as usize;
        let pieces = self.pieces.get_mut(first..first + count).unwrap_or_default();
        if pieces.is_empty() || !(0..).zip(&*pieces).all(|(n, piece)| *piece == (template.id, n)) {
            // Blocks that overlapped this range are no longer intact.
            pieces.fill((0, 0));
            template.write(&self.ring, room)?;
            (0..).zip(pieces).for_each(|(n, piece)| *piece = (template.id, n));
        }
        template.write_args(&self.ring, room, args)?;
        Ok(self.ring.address(room))
    }
}

/// Layout of a launch block: the QMD, then the bank, both aligned to 256 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockLayout {
    pub bank_offset: u64,
    pub len_bytes: u64,
}

impl BlockLayout {
    /// The layout for a QMD of `qmd_dwords` and a bank of `bank_bytes`.
    #[must_use]
    pub(crate) fn new(qmd_dwords: usize, bank_bytes: usize) -> Self {
        let bank_offset = (qmd_dwords as u64 * 4).next_multiple_of(ALIGN_BYTES);
        Self { bank_offset, len_bytes: bank_offset + (bank_bytes as u64).next_multiple_of(ALIGN_BYTES) }
    }

    /// The layout for launches of a kernel.
    #[must_use]
    pub(crate) fn of(kernel: &Kernel, chip: &Chip) -> Self {
        let bank_bytes = (kernel.bank0_bytes as usize).next_multiple_of(16);
        Self::new(chip.qmd.dwords(), bank_bytes)
    }
}

/// A block's contents as 64-bit words: QMD, then bank.
#[must_use]
pub(crate) fn block_words(plan: &Plan, layout: BlockLayout) -> SmallVec<[u64; 160]> {
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
    use super::super::launch::Request;
    use super::super::local::{LOCAL_WINDOW, SHARED_WINDOW};
    use super::*;
    use doorbell_elf::cubin::Cubin;
    use doorbell_hcq::memory::View;
    use doorbell_hcq::packet::nv::qmd::Version;
    use doorbell_hcq::signal::SignalPool;
    use std::sync::Arc;

    const GEOMETRY: Geometry = Geometry::of([3, 2, 1], [64, 1, 1]);
    const FILES: [(&str, &[u8]); 4] = [
        ("sm_75", include_bytes!("../../../tests/data/cubin/module_sm75.cubin")),
        ("sm_80", include_bytes!("../../../tests/data/cubin/module_sm80.cubin")),
        ("sm_90", include_bytes!("../../../tests/data/cubin/module_sm90.cubin")),
        ("sm_120", include_bytes!("../../../tests/data/cubin/module_sm120.cubin")),
    ];

    /// Plans a launch of a kernel with its bank at an address.
    fn plan(chip: &'static Chip, cubin: &Cubin, kernel: &Kernel, bank0: GpuVa, args: &[u8]) -> Plan {
        let request = Request {
            chip,
            kernel,
            code_sm: cubin.sm,
            image: GpuVa(0x20_0000_0000),
            bank0,
            grid: GEOMETRY.groups,
            block: GEOMETRY.local,
            cluster: None,
            dynamic_shared_bytes: 0,
            args,
            windows: [SHARED_WINDOW, LOCAL_WINDOW],
            releases: Vec::new(),
            dependent: None,
        };
        request.plan().unwrap()
    }

    /// A ring in host memory, and an unused timeline.
    fn ring(len_bytes: u64) -> (View, Blocks, Arc<Timeline>) {
        let view = View::anonymous(len_bytes, 4096).unwrap();
        let timeline = Timeline::new("X/compute".into(), SignalPool::new().signal().unwrap());
        (view.clone(), Blocks::of(view), timeline)
    }

    #[test]
    fn block_of_a_hopper_launch_has_its_bank_behind_the_qmd() {
        let layout = BlockLayout::new(96, 0x220);
        assert_eq!((layout.bank_offset, layout.len_bytes), (512, 512 + 768));
    }

    #[test]
    fn block_is_the_one_that_a_plan_for_the_place_gives_on_every_chip_written_once_or_patched() {
        for version in [Version::V2_3, Version::V2_4, Version::V3_0, Version::V4_0, Version::V5_0] {
            assert!(BankSlot::of(version).is_some(), "{version:?}");
        }
        for (name, bytes) in FILES {
            let chip = Chip::of_name(name).unwrap();
            let cubin = Cubin::parse(bytes).unwrap();
            let kernel = cubin.kernel("k").unwrap();
            let layout = BlockLayout::of(kernel, chip);
            let blank = plan(chip, &cubin, kernel, GpuVa(0), &[0; 12]);
            let template = Template::new(chip, &GEOMETRY, &blank, layout).unwrap();
            let other =
                Template::new(chip, &GEOMETRY, &plan(chip, &cubin, kernel, GpuVa(0), &[9; 12]), layout).unwrap();
            let (view, mut blocks, timeline) = ring(16384);
            let check = |block: u64, args: &[u8]| {
                let mut written = vec![0u64; template.words.len()];
                view.read(block - view.base().0, bytemuck::cast_slice_mut(&mut written)).unwrap();
                let expected = plan(chip, &cubin, kernel, GpuVa(block + layout.bank_offset), args);
                assert_eq!(written, block_words(&expected, layout).to_vec(), "{name} {args:?}");
            };
            // Three submissions, each after the previous one has completed: the first block is new, then patched, then
            // after another template's block.
            for (value, first) in [(1, &template), (2, &template), (3, &other)] {
                let args = [value as u8; 12];
                let mut put = |t: &Template| blocks.put(t, &args, &timeline, value, Duration::ZERO).unwrap();
                let (a, b) = (put(first), put(&template));
                assert_eq!((a, b), (view.base().0, view.base().0 + layout.len_bytes));
                check(a, &args);
                check(b, &args);
                assert_eq!(timeline.next(), value);
                timeline.signal().set(value);
            }
        }
    }

    #[test]
    fn a_block_that_another_has_reached_into_is_written_whole() {
        let chip = Chip::of_name("sm_90").unwrap();
        let cubin = Cubin::parse(FILES[2].1).unwrap();
        let template = |name: &str| {
            let kernel = cubin.kernel(name).unwrap();
            let layout = BlockLayout::of(kernel, chip);
            let len = (kernel.bank0_bytes - kernel.param_base) as usize;
            let plan = plan(chip, &cubin, kernel, GpuVa(0), &vec![0; len]);
            (Template::new(chip, &GEOMETRY, &plan, layout).unwrap(), vec![7; len])
        };
        let ((k, k_args), (stack, stack_args)) = (template("k"), template("stack"));
        let (view, mut blocks, timeline) = ring(16384);
        // Blocks of other lengths or templates shift what follows.
        let orders: [&[bool]; 5] =
            [&[true, true, true], &[false, true, true], &[true, false, true], &[true], &[true, true]];
        for (value, order) in (1..).zip(orders) {
            for is_k in order {
                let (t, args) = if *is_k { (&k, &k_args) } else { (&stack, &stack_args) };
                let at = blocks.put(t, args, &timeline, value, Duration::ZERO).unwrap() - view.base().0;
                let mut written = vec![0u8; t.used_bytes];
                view.read(at, &mut written).unwrap();
                let words: &[u8] = bytemuck::cast_slice(&t.words);
                let params = t.layout.bank_offset as usize + chip.bank0.params as usize;
                assert_eq!(written[params..params + args.len()], args[..], "{value}");
                assert_eq!(
                    written[t.layout.bank_offset as usize..][..16],
                    words[t.layout.bank_offset as usize..][..16]
                );
                assert_eq!(written[..64], words[..64], "{value}");
            }
            timeline.next();
            timeline.signal().set(value);
        }
    }
}
