//! Which commands are submitted together: as many of one device as no other device waits for in between.
//!
//! Commands come in an order that is right, of several devices. A submission is done as a whole, so a device that needs
//! one of its results waits for all of it; and its memories count as used from the moment it is submitted. Hence a
//! device's commands are gathered until a command elsewhere touches a memory that they touch.

use crate::device::{Command, Memory};
use std::sync::Arc;

/// The commands of one device, or of its copy queue, that are not submitted yet.
struct Lane<'a> {
    device: &'a Arc<str>,
    copies: bool,
    commands: Vec<usize>,
    memories: Vec<&'a Memory>,
}

impl Lane<'_> {
    fn touches(&self, command: &Command) -> bool {
        command.locations().any(|l| self.memories.iter().any(|m| m.is_same(&l.memory)))
    }
}

/// Numbers of the commands of each submission, in the order in which to submit. Each has commands of one device.
pub(super) fn batches<'a>(commands: &[(&'a Arc<str>, &'a Command)]) -> Vec<Vec<usize>> {
    let Some((first, _)) = commands.first() else { return Vec::new() };
    if commands.iter().all(|(device, _)| device == first) {
        return vec![(0..commands.len()).collect()];
    }
    let (mut lanes, mut out): (Vec<Lane>, Vec<Vec<usize>>) = (Vec::new(), Vec::new());
    for (k, (device, command)) in commands.iter().enumerate() {
        // Copies may have a queue of their own, where they run beside kernels.
        let copies = command.is_copy();
        for lane in lanes.iter_mut().filter(|l| l.device != *device || l.copies != copies) {
            if lane.touches(command) {
                out.push(std::mem::take(&mut lane.commands));
                lane.memories.clear();
            }
        }
        let own = lanes.iter().position(|l| l.device == *device && l.copies == copies).unwrap_or_else(|| {
            lanes.push(Lane { device, copies, commands: Vec::new(), memories: Vec::new() });
            lanes.len() - 1
        });
        let lane = &mut lanes[own];
        lane.commands.push(k);
        for l in command.locations() {
            if !lane.memories.iter().any(|m| m.is_same(&l.memory)) {
                lane.memories.push(&l.memory);
            }
        }
    }
    let mut rest: Vec<Vec<usize>> = lanes.into_iter().map(|l| l.commands).filter(|c| !c.is_empty()).collect();
    rest.sort_by_key(|commands| commands[0]);
    out.extend(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::device::null::NullDevice;

    #[test]
    fn a_batch_ends_where_another_device_needs_its_memory() {
        let devices: [Arc<str>; 2] = ["A".into(), "B".into()];
        let d = NullDevice::open("NULL", "", 1).unwrap();
        let memories: Vec<Memory> = (0..5).map(|_| d.alloc(64).unwrap()).collect();
        let copy = |to: usize, from: usize| Command::copy(memories[to].at(0), memories[from].at(0), 8);
        // 0 and 1 are A's, 2 to 4 are B's.
        let commands = [copy(1, 0), copy(3, 2), copy(0, 1), copy(4, 1), copy(1, 0), copy(2, 3)];
        let of = [0, 1, 0, 1, 0, 1];
        let list: Vec<(&Arc<str>, &Command)> = of.iter().map(|k| &devices[*k]).zip(&commands).collect();
        // B's copy from 1 needs what A has done; A's next store to 1 comes after B's copy.
        assert_eq!(batches(&list), [vec![0, 2], vec![1, 3], vec![4], vec![5]]);
        let alone: Vec<(&Arc<str>, &Command)> = commands.iter().map(|c| (&devices[0], c)).collect();
        assert_eq!(batches(&alone), [vec![0, 1, 2, 3, 4, 5]]);
        assert!(batches(&[]).is_empty());
    }
}
