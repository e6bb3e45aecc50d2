//! What a recording's memory is for, and where a package has it.
//!
//! Memory that the recording found with contents, or left so (what `prune` has computed once), is a constant if nothing
//! writes it, else it is kept from run to run. Other memory is an output, or intermediate: it needs its place from the
//! first command that uses it to the last, so such blocks share the arena.

use super::super::memory::{attached, dense_view};
use super::super::{Error, JitError, Session};
use super::kept::{Kept, KeptPlace, KeptUse, Ports};
use super::not_dense;
use super::sizes::{Variables, element, most};
use crate::device::{Location, Memory};
use crate::package::{ALIGN_BYTES, Block, BlockKind, Contents, Place, Port};
use crate::uop::UOp;
use std::ops::Range;

/// The program but for its code, and the constants.
pub(super) struct Planned {
    pub contents: Contents,
    pub data: Vec<u8>,
    pub variables: Variables,
    /// Numbers of the blocks of own memories, and where each begins in its memory.
    own: Vec<(u32, u64)>,
}

impl Planned {
    /// An offset in its block.
    pub(super) fn place(&self, at: KeptPlace) -> Result<Place, Error> {
        match at {
            KeptPlace::Input(n, offset) => Ok(Place { block: number(n)?, offset }),
            KeptPlace::Own(n, offset) => {
                let lost = || Error::Internal("a command of a recording uses memory that it does not have".into());
                let (block, start) = self.own.get(n).ok_or_else(lost)?;
                Ok(Place { block: *block, offset: offset.checked_sub(*start).ok_or_else(lost)? })
            }
        }
    }
}

fn number(n: usize) -> Result<u32, Error> {
    u32::try_from(n).map_err(|_| Error::Internal("more blocks than a package can have".into()))
}

/// Own memory, as the commands use it.
struct Own<'a> {
    memory: &'a Memory,
    /// Bytes that are used.
    range: Range<u64>,
    /// The commands that use it.
    steps: Range<usize>,
    kind: BlockKind,
}

pub(super) fn plan(s: &Session, kept: &Kept, ports: &Ports) -> Result<Planned, Error> {
    if let [first, second, ..] = &kept.devices[..] {
        return Err(JitError::Devices { first: first.to_string(), second: second.to_string() }.into());
    }
    let mut planned =
        Planned { contents: Contents::default(), data: Vec::new(), variables: Variables::default(), own: Vec::new() };
    for input in &ports.inputs {
        planned.input(input)?;
    }
    let (mut memories, mut made) = (kept.memories.clone(), kept.made.clone());
    let mut outputs = Vec::with_capacity(ports.outputs.len());
    for (name, view) in &ports.outputs {
        outputs.push(output_place(ports, name, view, (&mut memories, &mut made))?);
    }
    let mut all = owns(kept, &memories, &made, &outputs);
    for (own, place) in
        outputs.iter().filter_map(|o| if let KeptPlace::Own(n, at) = o.0 { Some((n, at..at + o.1)) } else { None })
    {
        if let Some(own) = all.get_mut(own) {
            own.range = union(&own.range, &place);
        }
    }
    planned.blocks(s, &all)?;
    for ((name, view), (place, len_bytes)) in ports.outputs.iter().zip(outputs) {
        planned.output(name, view, place, len_bytes)?;
    }
    Ok(planned)
}

/// Where a result is, and its greatest length.
fn output_place(
    ports: &Ports,
    name: &str,
    view: &UOp,
    (memories, made): (&mut Vec<Memory>, &mut Vec<bool>),
) -> Result<(KeptPlace, u64), Error> {
    let (buffer, offset) = dense_view(view).ok_or_else(|| not_dense(name))?;
    let elem = buffer.dtype().scalar.size_bytes() as u64;
    let (at, len_bytes) = (offset as u64 * elem, most(view.shape()).saturating_mul(elem));
    if let Some(input) = ports.inputs.iter().position(|i| i.buffers.contains(&buffer)) {
        return Ok((KeptPlace::Input(input, at), len_bytes));
    }
    let whole = buffer.buffer_ref().and_then(|b| attached(b)).ok_or_else(|| not_dense(name))?;
    let Location { memory, offset } = whole;
    Ok((KeptPlace::Own(Kept::number(memories, made, &memory), offset + at), len_bytes))
}

/// What each memory is for.
fn owns<'a>(kept: &Kept, memories: &'a [Memory], made: &[bool], outputs: &[(KeptPlace, u64)]) -> Vec<Own<'a>> {
    let one = |(n, memory): (usize, &'a Memory)| {
        let uses: Vec<(usize, KeptUse, u64)> = kept
            .uses
            .iter()
            .enumerate()
            .flat_map(|(step, uses)| uses.iter().map(move |u| (step, *u)))
            .filter_map(
                |(step, u)| if let KeptPlace::Own(m, at) = u.place { (m == n).then_some((step, u, at)) } else { None },
            )
            .collect();
        let room = |at: u64, len: u64| at..at.saturating_add(len).min(memory.len_bytes()).max(at);
        let range = uses.iter().map(|(_, u, at)| room(*at, u.len_bytes)).reduce(|a, b| union(&a, &b)).unwrap_or(0..0);
        let steps = uses.first().map_or(0, |u| u.0)..uses.last().map_or(0, |u| u.0 + 1);
        let is_written = uses.iter().any(|u| u.1.written);
        let is_output = outputs.iter().any(|o| matches!(o.0, KeptPlace::Own(m, _) if m == n));
        let has_contents = !made.get(n).is_some_and(|made| *made) || reads_first(&uses, room);
        let kind = match (has_contents, is_written) {
            (true, false) => BlockKind::Constant,
            (true, true) => BlockKind::State,
            (false, _) if is_output => BlockKind::Output,
            (false, _) => BlockKind::Temporary,
        };
        Own { memory, range, steps, kind }
    };
    memories.iter().enumerate().map(one).collect()
}

/// Whether a command reads bytes that none before it has written.
fn reads_first(uses: &[(usize, KeptUse, u64)], room: impl Fn(u64, u64) -> Range<u64>) -> bool {
    let mut written: Vec<Range<u64>> = Vec::new();
    for (_, u, at) in uses {
        let range = room(*at, u.len_bytes);
        if u.read && !is_covered(range.clone(), &written) {
            return true;
        }
        if u.written {
            written.push(range);
        }
    }
    false
}

fn is_covered(mut range: Range<u64>, by: &[Range<u64>]) -> bool {
    while range.start < range.end {
        let Some(over) = by.iter().filter(|r| r.contains(&range.start)).map(|r| r.end).max() else { return false };
        range.start = over;
    }
    true
}

fn union(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    if a.is_empty() {
        return b.clone();
    }
    a.start.min(b.start)..a.end.max(b.end)
}

impl Planned {
    fn input(&mut self, input: &super::kept::KeptInput) -> Result<(), Error> {
        let [_] = &input.buffers[..] else {
            let (first, second) = (format!("input {}", input.name), "other devices".into());
            return Err(JitError::Devices { first, second }.into());
        };
        let element = element(input.dtype)?;
        let len_bytes = most(&input.shape).saturating_mul(element.size_bytes());
        let shape = input.shape.iter().map(|d| self.variables.size(d)).collect::<Result<_, _>>()?;
        let block = number(self.contents.blocks.len())?;
        self.contents.blocks.push(Block { kind: BlockKind::Input, len_bytes, at: 0, data_at: 0 });
        self.contents.inputs.push(Port { name: input.name.clone(), element, shape, block, offset: 0, len_bytes });
        Ok(())
    }

    fn output(&mut self, name: &str, view: &UOp, place: KeptPlace, len_bytes: u64) -> Result<(), Error> {
        let Place { block, offset } = self.place(place)?;
        let shape = view.shape().iter().map(|d| self.variables.size(d)).collect::<Result<_, _>>()?;
        let element = element(view.dtype().scalar)?;
        self.contents.outputs.push(Port { name: name.into(), element, shape, block, offset, len_bytes });
        Ok(())
    }

    /// A block for each own memory, with its offset and contents.
    fn blocks(&mut self, s: &Session, all: &[Own]) -> Result<(), Error> {
        let places = arena(all);
        for (own, at) in all.iter().zip(&places) {
            let start = own.range.start / ALIGN_BYTES * ALIGN_BYTES;
            let mut block = Block { kind: own.kind, len_bytes: own.range.end.saturating_sub(start), at: 0, data_at: 0 };
            if own.kind.is_in_arena() {
                block.at = *at;
                self.contents.arena_bytes = self.contents.arena_bytes.max(at + rounded(block.len_bytes));
            }
            if own.kind.has_data() && block.len_bytes > 0 {
                block.data_at = self.constants(s, own.memory, start, block.len_bytes)?;
            }
            self.own.push((number(self.contents.blocks.len())?, start));
            self.contents.blocks.push(block);
        }
        self.contents.data_bytes = self.data.len() as u64;
        Ok(())
    }

    /// Adds the contents of memory to the constants; returns where.
    fn constants(&mut self, s: &Session, memory: &Memory, from: u64, len_bytes: u64) -> Result<u64, Error> {
        self.data.resize(self.data.len().next_multiple_of(ALIGN_BYTES as usize), 0);
        let at = self.data.len();
        let len = usize::try_from(len_bytes).map_err(|_| Error::Internal("constants larger than the memory".into()))?;
        self.data.resize(at + len, 0);
        let device = s.device(memory.device().name())?;
        device.device.copy_out(memory, from, &mut self.data[at..])?;
        Ok(at as u64)
    }
}

fn rounded(len_bytes: u64) -> u64 {
    len_bytes.next_multiple_of(ALIGN_BYTES)
}

/// Where each memory is in the arena: large ones first, each at the lowest offset that is free while it is needed.
fn arena(all: &[Own]) -> Vec<u64> {
    let whole = |o: &Own| rounded(o.range.end.saturating_sub(o.range.start / ALIGN_BYTES * ALIGN_BYTES));
    let life = |o: &Own| if o.kind == BlockKind::Temporary { o.steps.clone() } else { 0..usize::MAX };
    let mut order: Vec<usize> = (0..all.len()).filter(|k| all[*k].kind.is_in_arena()).collect();
    order.sort_by_key(|k| (std::cmp::Reverse(whole(&all[*k])), *k));
    let mut places = vec![0; all.len()];
    let mut placed: Vec<usize> = Vec::with_capacity(order.len());
    for k in order {
        let meets = |o: &&usize| {
            let (a, b) = (life(&all[k]), life(&all[**o]));
            a.start < b.end && b.start < a.end
        };
        let mut taken: Vec<Range<u64>> =
            placed.iter().filter(meets).map(|o| places[*o]..places[*o] + whole(&all[*o])).collect();
        taken.sort_by_key(|r| r.start);
        let mut at = 0;
        for r in taken {
            if at + whole(&all[k]) <= r.start {
                break;
            }
            at = at.max(r.end);
        }
        places[k] = at;
        placed.push(k);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::device::null::NullDevice;

    #[test]
    fn what_is_not_needed_at_the_same_time_shares_its_place() {
        let d = NullDevice::open("NULL", "", 1).unwrap();
        let m = d.alloc(1 << 20).unwrap();
        let own = |len: u64, steps: Range<usize>, kind| Own { memory: &m, range: 0..len, steps, kind };
        let all = [
            own(128, 0..2, BlockKind::Temporary),
            own(100, 2..4, BlockKind::Temporary),
            own(64, 1..3, BlockKind::Temporary),
            own(64, 3..4, BlockKind::Output),
            own(999, 0..4, BlockKind::Constant),
        ];
        assert_eq!(arena(&all), [0, 0, 128, 192, 0]);
    }

    #[test]
    fn bytes_are_covered_by_several_writes() {
        assert!(is_covered(2..10, &[6..12, 0..4, 3..7]));
        assert!(!is_covered(2..10, &[0..4, 5..12]));
    }
}
