//! The packets of each doorbell of a recording. KFD's queues are followed here, NVIDIA's channels in `channels`.

use super::channels::Channels;
use super::memory::Memory;
use crate::abi::{find, kfd, same_call};
use crate::port::Fd;
use crate::trace::{Event, IoctlEvent, What};
use std::collections::{BTreeMap, HashMap};

/// What one doorbell handed over: the ring's bytes between the write pointers before and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Queues are numbered from 0 as they were created.
    pub queue: usize,
    /// As in CREATE_QUEUE; the class of an NVIDIA channel.
    pub queue_type: u32,
    /// Packets; of an NVIDIA channel its new entries, each followed by the push buffer that it names.
    pub bytes: Vec<u8>,
}

/// A queue as CREATE_QUEUE made it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub number: usize,
    pub id: u64,
    pub queue_type: u32,
    pub ring: u64,
    pub ring_bytes: u64,
    pub read_pointer: u64,
    doorbell: u64,
    /// Bytes handed over so far.
    pub put_bytes: u64,
}

impl Queue {
    /// Bytes in one unit of the pointers.
    pub(crate) fn unit_bytes(&self) -> u64 {
        match self.queue_type {
            kfd::QUEUE_TYPE_COMPUTE => 4,
            kfd::QUEUE_TYPE_COMPUTE_AQL => 64,
            _ => 1,
        }
    }

    /// The write pointer that a doorbell's value means, in bytes. AQL's value is the last packet's number.
    pub(crate) fn put_of(&self, value: u64) -> u64 {
        let is_aql = self.queue_type == kfd::QUEUE_TYPE_COMPUTE_AQL;
        value.wrapping_add(u64::from(is_aql)).wrapping_mul(self.unit_bytes())
    }
}

/// The queues of a run, and where their doorbells are mapped.
#[derive(Default, Debug)]
pub(super) struct Queues {
    pub live: Vec<Queue>,
    made: usize,
    /// File and offset of mappings, by address.
    maps: BTreeMap<u64, (u64, Option<Fd>, u64)>,
}

impl Queues {
    pub(crate) fn follow(&mut self, what: &What) {
        match what {
            What::Ioctl(call) if call.result.is_ok() => self.ioctl(call),
            What::Mmap { map, result: Ok(at) } => {
                self.maps.insert(at.0, (map.len_bytes, map.fd, map.offset));
            }
            What::Munmap { addr, result: Ok(()), .. } => {
                self.maps.remove(&addr.0);
            }
            _ => {}
        }
    }

    fn ioctl(&mut self, call: &IoctlEvent) {
        let Some(desc) = find(call.request) else { return };
        let field = |name: &str| desc.layout.field(name).and_then(|f| f.read(&call.after)).unwrap_or(0);
        if same_call(call.request, kfd::CREATE_QUEUE.desc.request) {
            let queue = Queue {
                number: self.made,
                id: field("queue_id"),
                queue_type: field("queue_type") as u32,
                ring: field("ring_base_address"),
                ring_bytes: field("ring_size"),
                read_pointer: field("read_pointer_address"),
                doorbell: field("doorbell_offset"),
                put_bytes: 0,
            };
            self.made += 1;
            // A ring that overlaps another replaces it: the other's end was not recorded.
            let end = |q: &Queue| q.ring.saturating_add(q.ring_bytes);
            self.live.retain(|q| q.ring >= end(&queue) || queue.ring >= end(q));
            if self.live.len() < MAX_QUEUES {
                self.live.push(queue);
            }
        } else if same_call(call.request, kfd::DESTROY_QUEUE.desc.request) {
            let id = field("queue_id");
            self.live.retain(|q| q.id != id);
        }
    }

    /// The queue whose doorbell is at an address.
    pub(crate) fn rung(&mut self, at: u64) -> Option<&mut Queue> {
        let (start, (len, _, offset)) = self.maps.range(..=at).next_back()?;
        let inside = at - start;
        let doorbell = offset.wrapping_add(inside);
        (inside < *len).then_some(())?;
        self.live.iter_mut().find(|q| q.doorbell == doorbell)
    }
}

/// Queues that are followed at once; no driver has as many.
const MAX_QUEUES: usize = 1024;
/// A recording yields at most `FREE_BYTES` and this many times the memory it holds: a damaged file costs no more than
/// its size.
const MAX_RATIO: usize = 1024;
const FREE_BYTES: usize = 1 << 20;

/// The packets of a recording, doorbell by doorbell.
#[must_use]
pub fn submissions(events: &[Event]) -> Vec<Submission> {
    let mut found = Vec::new();
    each_submission(events, |submission, _| found.push(submission));
    found
}

/// The packets of a recording, doorbell by doorbell, with the memory as it was then. Of KFD's queues only the rings are
/// followed: their memory reads as zero.
pub fn each_submission(events: &[Event], mut visit: impl FnMut(Submission, &Memory)) {
    let mut queues = Queues::default();
    let (mut channels, mut pages) = (Channels::default(), Memory::default());
    let is_nvidia = |what: &What| matches!(what, What::Open { path, .. } if path.starts_with("/dev/nvidia"));
    let mut has_channels = false;
    let mut memory: HashMap<u64, u8> = HashMap::new();
    let mut allowance = FREE_BYTES;
    for event in events {
        queues.follow(&event.what);
        channels.follow(&event.what);
        has_channels |= is_nvidia(&event.what);
        match &event.what {
            What::Memory { at, bytes } => {
                allowance = allowance.saturating_add(bytes.len().saturating_mul(MAX_RATIO));
                if has_channels {
                    pages.write(at.0, bytes);
                }
                // Only rings are looked at.
                for q in &queues.live {
                    let start = at.0.max(q.ring);
                    let end = at.0.saturating_add(bytes.len() as u64).min(q.ring.saturating_add(q.ring_bytes));
                    memory.extend((start..end).map(|a| (a, bytes[(a - at.0) as usize])));
                }
            }
            What::Doorbell { at, value } => {
                if let Some(queue) = queues.rung(at.0) {
                    let put = queue.put_of(*value);
                    // A pointer that jumps by more than the ring yields the whole ring.
                    let from = queue.put_bytes.max(put.saturating_sub(queue.ring_bytes)).min(put);
                    let place = |p: u64| queue.ring.wrapping_add(p % queue.ring_bytes.max(1));
                    let byte = |p: u64| memory.get(&place(p)).copied().unwrap_or(0);
                    let bytes: Vec<u8> = (from..put).take(allowance).map(byte).collect();
                    allowance -= bytes.len();
                    queue.put_bytes = put;
                    visit(Submission { queue: queue.number, queue_type: queue.queue_type, bytes }, &pages);
                } else if let Some(submission) = channels.submission(*value, &pages, allowance) {
                    allowance -= submission.bytes.len().min(allowance);
                    visit(submission, &pages);
                }
            }
            _ => {}
        }
    }
}
