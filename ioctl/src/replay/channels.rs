//! NVIDIA's channels in a recording: where their rings and pointers are, which channel a doorbell value belongs to, and
//! the packets of each doorbell.
//!
//! Source: docs/nv.md 1.5, 2.2, 3.1. Rings and USERD have GPU addresses, which are the process's own in the recordings
//! replayed here; the address of a memory object is where UVM, or RM alone, maps it. A submission is the ring's new
//! entries, each with the push buffer that it points at.

use super::memory::Memory;
use super::rings::Submission;
use crate::abi::nvrm::{self, ChannelAlloc, ChannelAllocV610, RmAlloc, WorkSubmitToken};
use crate::abi::{Desc, Embedded, Layout, find_form, same_call, uvm};
use crate::trace::{IoctlEvent, What};
use std::collections::HashMap;

/// Of USERD: the GPU's pointer and the process's.
const GP_GET: u64 = 0x88;
const GP_PUT: u64 = 0x8c;
const ENTRY_BYTES: u64 = 8;
/// Of an entry: the push buffer's address, and its length in dwords.
const VA_MASK: u64 = 0xff_ffff_fffc;
const LEN_SHIFT: u32 = 42;
const LEN_MASK: u64 = (1 << 21) - 1;
/// Channels that are followed at once.
const MAX_CHANNELS: usize = 1024;
const MAX_ENTRIES: u64 = 1 << 21;

/// A channel as its allocation made it; addresses are recorded ones.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    pub number: usize,
    handle: u64,
    class: u32,
    ring: u64,
    pub entries: u64,
    userd: u64,
    /// What is stored to the doorbell.
    token: Option<u64>,
    /// GP_PUT when its doorbell was last rung.
    pub put: u64,
}

impl Channel {
    /// Where its GPU stores how far it has read.
    pub(crate) fn get_address(&self) -> u64 {
        self.userd.wrapping_add(GP_GET)
    }

    pub(crate) fn put_address(&self) -> u64 {
        self.userd.wrapping_add(GP_PUT)
    }
}

/// The channels of a run.
#[derive(Default, Debug)]
pub(super) struct Channels {
    pub live: Vec<Channel>,
    made: usize,
    /// Where memory objects are mapped.
    addresses: HashMap<u64, u64>,
}

/// A field of a struct in a call.
fn field(layout: &Layout, name: &str, bytes: &[u8]) -> u64 {
    layout.field(name).and_then(|f| f.read(bytes)).unwrap_or(0)
}

/// The struct that a call's pointer refers to, as it is after the call, if it is of that kind.
fn embedded<'a>(desc: &'static Desc, call: &'a IoctlEvent, wanted: &Layout) -> Option<&'a [u8]> {
    let is_wanted = |e: &Embedded| e.pointee(desc.layout, &call.before).is_some_and(|l| *l == *wanted);
    let index = desc.embedded.iter().position(is_wanted)?;
    call.blobs_after.iter().find(|b| b.index as usize == index).map(|b| b.bytes.as_slice())
}

impl Channels {
    pub(crate) fn follow(&mut self, what: &What) {
        let What::Ioctl(call) = what else { return };
        let Some(desc) = find_form(call.request, call.before.len()).filter(|_| call.result.is_ok()) else { return };
        if desc.name == uvm::MAP_EXTERNAL_ALLOCATION.desc.name {
            let (memory, base) = (field(desc.layout, "h_memory", &call.after), field(desc.layout, "base", &call.after));
            self.addresses.insert(memory, base.wrapping_sub(field(desc.layout, "offset", &call.after)));
        } else if same_call(call.request, nvrm::MAP_MEMORY_DMA.desc.request)
            && field(desc.layout, "status", &call.after) == 0
        {
            let place = |name| field(desc.layout, name, &call.after);
            self.addresses.insert(place("h_memory"), place("dma_offset").wrapping_sub(place("offset")));
        } else if same_call(call.request, nvrm::ALLOC.desc.request) && field(desc.layout, "status", &call.after) == 0 {
            for layout in [&ChannelAlloc::LAYOUT, &ChannelAllocV610::LAYOUT] {
                if let Some(params) = embedded(desc, call, layout) {
                    self.add(&call.after, (layout, params));
                }
            }
        } else if same_call(call.request, nvrm::CONTROL.desc.request) {
            let object = field(desc.layout, "h_object", &call.after);
            if let Some(params) = embedded(desc, call, &WorkSubmitToken::LAYOUT) {
                let token = field(&WorkSubmitToken::LAYOUT, "work_submit_token", params);
                self.live.iter_mut().filter(|c| c.handle == object).for_each(|c| c.token = Some(token));
            }
        } else if same_call(call.request, nvrm::FREE.desc.request) {
            let object = field(desc.layout, "h_object_old", &call.after);
            self.live.retain(|c| c.handle != object);
            self.addresses.remove(&object);
        }
    }

    fn add(&mut self, alloc: &[u8], (layout, params): (&Layout, &[u8])) {
        // The first of eight: one a subdevice.
        let first = |name: &str| {
            let f = layout.field(name);
            f.and_then(|f| params.get(f.span())).map(|b| b.iter().take(f.map_or(0, |f| f.len_bytes as usize / 8)))
        };
        let number = |name| first(name).map_or(0, |b| b.rev().fold(0, |n, byte| n << 8 | u64::from(*byte)));
        let memory = number("h_userd_memory");
        let Some(base) = self.addresses.get(&memory) else { return };
        let channel = Channel {
            number: self.made,
            handle: field(&RmAlloc::LAYOUT, "h_object_new", alloc),
            class: field(&RmAlloc::LAYOUT, "h_class", alloc) as u32,
            ring: field(layout, "gp_fifo_offset", params),
            entries: field(layout, "gp_fifo_entries", params).clamp(1, MAX_ENTRIES),
            userd: base.wrapping_add(number("userd_offset")),
            token: None,
            put: 0,
        };
        self.made += 1;
        if self.live.len() < MAX_CHANNELS {
            self.live.push(channel);
        }
    }

    /// The channel that a doorbell's value is for.
    pub(crate) fn rung(&mut self, value: u64) -> Option<&mut Channel> {
        self.live.iter_mut().find(|c| c.token == Some(value))
    }

    /// The packets of a doorbell, `allowance` bytes at most.
    pub(crate) fn submission(&mut self, value: u64, memory: &Memory, allowance: usize) -> Option<Submission> {
        let channel = self.rung(value)?;
        let put = u64::from(memory.word(channel.put_address())) % channel.entries;
        let (mut bytes, mut at) = (Vec::new(), channel.put);
        while at != put && bytes.len() < allowance {
            let entry = memory.wide(channel.ring.wrapping_add(at * ENTRY_BYTES));
            bytes.extend(entry.to_le_bytes());
            let len = ((entry >> LEN_SHIFT & LEN_MASK) as usize * 4).min(allowance.saturating_sub(bytes.len()));
            let start = bytes.len();
            bytes.resize(start + len, 0);
            memory.read(entry & VA_MASK, &mut bytes[start..]);
            at = (at + 1) % channel.entries;
        }
        channel.put = put;
        Some(Submission { queue: channel.number, queue_type: channel.class, bytes })
    }
}
