//! The memory that a process shares with a device, and its changes.

use super::What;
use super::runs::runs;
use crate::port::{CpuPtr, Fd, MapFlags, MapRequest, Prot, read_process};
use std::collections::{BTreeMap, HashSet};

/// Memory that is compared at a time.
const PIECE_BYTES: usize = 64 << 10;

/// A copy of all memory mapped readable and writable through a port, as it was last read.
#[derive(Default)]
pub(super) struct Shadow {
    /// Start → bytes.
    copies: BTreeMap<u64, Vec<u8>>,
    registers: Registers,
}

/// Files whose mappings are registers, not memory: doorbells.
#[derive(Default, Debug)]
pub(crate) struct Registers {
    kfd: HashSet<Fd>,
    /// NVIDIA's cards: their memory is mapped where the process requests it, their registers anywhere.
    cards: HashSet<Fd>,
}

impl Registers {
    pub(crate) fn opened(&mut self, fd: Fd, path: &str) {
        // A number is used again after its file is closed.
        self.kfd.remove(&fd);
        self.cards.remove(&fd);
        let card = path.strip_prefix("/dev/nvidia").is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()));
        if card {
            self.cards.insert(fd);
        } else if path == "/dev/kfd" {
            self.kfd.insert(fd);
        }
    }

    pub(crate) fn are_mapped(&self, map: &MapRequest) -> bool {
        let is_fixed = map.flags.contains(MapFlags::FIXED);
        map.fd.is_some_and(|fd| self.kfd.contains(&fd) || self.cards.contains(&fd) && !is_fixed)
    }
}

impl Shadow {
    /// Learns from a call what is mapped.
    pub(super) fn follow(&mut self, what: &What) {
        match what {
            What::Open { path, result: Ok(fd), .. } => self.registers.opened(*fd, path),
            What::Mmap { map, result: Ok(at) } => {
                if map.flags.contains(MapFlags::FIXED) {
                    self.forget(at.0, map.len_bytes);
                }
                let is_memory = map.prot.contains(Prot::RW) && !self.registers.are_mapped(map);
                // A new mapping is taken as zero until it is read.
                if let (true, Ok(len)) = (is_memory, usize::try_from(map.len_bytes)) {
                    self.copies.insert(at.0, vec![0; len]);
                }
            }
            What::Munmap { addr, len_bytes, result: Ok(()) } => self.forget(addr.0, *len_bytes),
            _ => {}
        }
    }

    /// Removes whole mappings: those in the range, and those that reach into it.
    fn forget(&mut self, start: u64, len_bytes: u64) {
        let end = start.saturating_add(len_bytes);
        self.copies.retain(|at, copy| at + copy.len() as u64 <= start || *at >= end);
    }

    /// Where memory differs from the last call, and its contents now.
    pub(super) fn changes(&mut self) -> Vec<(CpuPtr, Vec<u8>)> {
        let mut found = Vec::new();
        let mut now = vec![0; PIECE_BYTES];
        for (start, copy) in &mut self.copies {
            for (k, old) in copy.chunks_mut(PIECE_BYTES).enumerate() {
                let at = CpuPtr(start + (k * PIECE_BYTES) as u64);
                let now = &mut now[..old.len()];
                // Memory that cannot be read is not recorded: the device's own, not accessible to the process.
                if read_process(at, now).is_ok() && now != old {
                    found.extend(runs(old, now).map(|(a, b)| (at.offset(a as u64), now[a..b].to_vec())));
                    old.copy_from_slice(now);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{LinuxPort, Mapped, OpenFlags, Port};
    use crate::trace::{Log, Trace};
    use std::sync::Arc;

    #[test]
    fn near_changes_are_one_run_and_far_ones_two() {
        let old = vec![0u8; 1024];
        let mut now = old.clone();
        (now[3], now[60], now[900]) = (1, 1, 1);
        assert_eq!(runs(&old, &now).collect::<Vec<_>>(), [(0, 64), (896, 904)]);
        assert_eq!(runs(&old, &old).count(), 0);
        let mut end = vec![0u8; 10];
        end[9] = 7;
        assert_eq!(runs(&[0; 10], &end).collect::<Vec<_>>(), [(8, 10)]);
    }

    #[test]
    fn a_doorbell_is_preceded_by_what_was_written_since_the_one_before() {
        let log = Log::default();
        let port: Arc<dyn Port> = Trace::recording(LinuxPort::new(), Box::new(log.clone()));
        let null = port.open("/dev/null", OpenFlags::READ).unwrap();
        port.close(null).unwrap();
        let memory = Arc::new(Mapped::new(&port, &MapRequest::anonymous_shared(1 << 17)).unwrap());
        let view = memory.view().unwrap();
        view.write_u32(70_000, 0x1122_3344).unwrap();
        port.doorbell(CpuPtr(8), 1);
        port.doorbell(CpuPtr(8), 2);
        view.write_u32(70_000, 5).unwrap();
        port.doorbell(CpuPtr(8), 3);
        let recorded: Vec<What> = log.events().into_iter().map(|e| e.what).collect();
        let changed: Vec<&What> = recorded.iter().filter(|w| matches!(w, What::Memory { .. })).collect();
        assert_eq!(changed.len(), 2);
        let at = memory.base().offset(70_000);
        assert_eq!(changed[0], &What::Memory { at, bytes: vec![0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0] });
        assert!(matches!(recorded.last(), Some(What::Doorbell { value: 3, .. })));
        assert_eq!(&recorded[recorded.len() - 2], changed[1]);
    }
}
