//! The memory of a loaded program: a place for every block.

use crate::RunError;
use crate::file::{PackageFile, in_place};
use doorbell_device::{Device, Location, Memory};
use doorbell_hcq::memory::View;
use doorbell_package::{ALIGN_BYTES, Block, BlockKind};

/// What a program may use.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Most bytes of memory on the device; more are refused before any is allocated.
    pub memory_bytes: Option<u64>,
    /// The caller's own memory for all that the program needs. For devices that use host memory: the CPU.
    pub arena: Option<View>,
}

/// Where the blocks are. `None`: an input that has neither been written nor bound.
pub(crate) struct Blocks {
    pub places: Vec<Option<Location>>,
    /// What is left of the caller's memory.
    rest: Option<(Memory, u64)>,
    /// Memory that may still be allocated.
    left_bytes: u64,
    limit_bytes: u64,
}

impl Blocks {
    /// Allocates the arena, and places the constants: in the file where the device can read them there.
    pub(crate) fn new(device: &dyn Device, file: &PackageFile, limits: &Limits) -> Result<Blocks, RunError> {
        let contents = &file.package().contents;
        let limit_bytes = limits.memory_bytes.unwrap_or(u64::MAX);
        let mut blocks =
            Blocks { places: vec![None; contents.blocks.len()], rest: None, left_bytes: limit_bytes, limit_bytes };
        let constants: Vec<Option<Memory>> =
            contents.blocks.iter().map(|b| constant(device, file, b)).collect::<Result<_, _>>()?;
        let copied =
            contents.blocks.iter().zip(&constants).filter(|(b, m)| b.kind == BlockKind::Constant && m.is_none());
        let copied_bytes: u64 = copied.map(|(b, _)| rounded(b.len_bytes)).fold(0, u64::saturating_add);
        let inputs = contents.blocks.iter().filter(|b| b.kind == BlockKind::Input);
        let input_bytes = inputs.map(|b| rounded(b.len_bytes)).fold(0, u64::saturating_add);
        let needed = rounded(contents.arena_bytes).saturating_add(copied_bytes);
        if needed > limit_bytes {
            return Err(RunError::Limit { needed, limit: limit_bytes });
        }
        if let Some(view) = &limits.arena {
            blocks.rest = Some((arena(device, view, needed, needed.saturating_add(input_bytes))?, 0));
        }
        let own = if contents.arena_bytes > 0 { Some(blocks.take(device, contents.arena_bytes)?) } else { None };
        for ((place, b), constant) in (0..).zip(&contents.blocks).zip(constants) {
            let location = match (b.kind, &own, constant) {
                (BlockKind::Input, ..) => continue,
                (BlockKind::Constant, _, Some(memory)) => memory.at(0),
                (BlockKind::Constant, _, None) => blocks.take(device, b.len_bytes)?,
                (_, Some(own), _) => Location { memory: own.memory.clone(), offset: own.offset + b.at },
                // A block without a byte.
                (_, None, _) => device.alloc(0)?.at(0),
            };
            if let Some(to) = blocks.places.get_mut(place) {
                *to = Some(location);
            }
        }
        blocks.fill(device, file, BlockKind::Constant)?;
        blocks.fill(device, file, BlockKind::State)?;
        Ok(blocks)
    }

    /// Copies first contents to the blocks of a kind.
    pub(crate) fn fill(&self, device: &dyn Device, file: &PackageFile, kind: BlockKind) -> Result<(), RunError> {
        for (b, place) in file.package().contents.blocks.iter().zip(&self.places) {
            let Some(place) = place.as_ref().filter(|_| b.kind == kind && b.len_bytes > 0) else { continue };
            if kind == BlockKind::Constant && place.memory.host().is_some_and(|h| !h.is_writable()) {
                continue;
            }
            let put = |at: u64, bytes: &[u8]| device.copy_in(&place.memory, place.offset + at, bytes);
            file.copy_constants(b.data_at, b.len_bytes, put)?;
        }
        Ok(())
    }

    /// Memory from the caller's arena, else from the device.
    pub(crate) fn take(&mut self, device: &dyn Device, len_bytes: u64) -> Result<Location, RunError> {
        let len = rounded(len_bytes);
        let needed = (self.limit_bytes - self.left_bytes).saturating_add(len);
        self.left_bytes =
            self.left_bytes.checked_sub(len).ok_or(RunError::Limit { needed, limit: self.limit_bytes })?;
        let Some((memory, used)) = &mut self.rest else { return Ok(device.alloc(len_bytes)?.at(0)) };
        let (at, end) = (*used, used.saturating_add(len));
        if end > memory.len_bytes() {
            return Err(RunError::Limit { needed: end, limit: memory.len_bytes() });
        }
        *used = end;
        Ok(memory.at(at))
    }
}

fn rounded(len_bytes: u64) -> u64 {
    len_bytes.checked_next_multiple_of(ALIGN_BYTES).unwrap_or(u64::MAX)
}

/// A constant where it lies in the file.
fn constant(device: &dyn Device, file: &PackageFile, b: &Block) -> Result<Option<Memory>, RunError> {
    if b.kind != BlockKind::Constant || b.len_bytes == 0 {
        return Ok(None);
    }
    let view = file.constants(b.data_at, b.len_bytes)?;
    let is_aligned = view.base().0.is_multiple_of(ALIGN_BYTES);
    Ok(if view.is_writable() || !is_aligned { None } else { in_place(device, &view).ok() })
}

/// The caller's memory as the device's, from its first aligned byte on.
fn arena(device: &dyn Device, view: &View, needed: u64, all: u64) -> Result<Memory, RunError> {
    let skip = view.base().0.next_multiple_of(ALIGN_BYTES) - view.base().0;
    let limit = view.len_bytes().saturating_sub(skip);
    if limit < needed {
        return Err(RunError::Limit { needed: all.saturating_add(skip), limit: view.len_bytes() });
    }
    Ok(in_place(device, &view.sub(skip, limit)?)?)
}
