//! The port that injects a plan's faults.

use super::{Call, Fault, Plan, Trouble};
use crate::abi::{self, kfd, same_call};
use crate::port::{CpuPtr, Errno, Fd, MapFlags, MapRequest, OpenFlags, PollFd, Port, read_process, write_process};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A fault that has happened, and to which call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    pub fault: Fault,
    /// The call itself, where the fault was for a wider kind.
    pub call: Call,
    /// Which call of the fault's kind it was, from 1.
    pub nth: u64,
}

/// Where a queue's packets are.
#[derive(Clone, Copy, Debug)]
struct Ring {
    at: u64,
    len_bytes: u64,
}

#[derive(Default)]
struct State {
    counts: HashMap<Call, u64>,
    rings: HashMap<u32, Ring>,
    injected: Vec<Injected>,
}

/// Another port with the faults of a plan.
pub struct Faults {
    inner: Arc<dyn Port>,
    plan: Plan,
    state: Mutex<State>,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faults({} of {:?})", self.plan, self.inner)
    }
}

impl Faults {
    /// `inner` with these faults.
    #[must_use]
    pub fn new(inner: Arc<dyn Port>, plan: Plan) -> Arc<Self> {
        Arc::new(Self { inner, plan, state: Mutex::default() })
    }

    /// What has happened so far.
    #[must_use]
    pub fn injected(&self) -> Vec<Injected> {
        self.state().injected.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call of these kinds; returns the faults that apply to it.
    fn troubles(&self, kinds: &[Call]) -> Vec<Trouble> {
        let mut state = self.state();
        let mut matched = Vec::new();
        for call in kinds {
            let count = state.counts.entry(*call).or_insert(0);
            *count += 1;
            let nth = *count;
            let due = |f: &&Fault| same(f.call, *call) && (f.nth == nth || f.lasting && f.nth < nth);
            let itself = kinds.first().copied().unwrap_or(*call);
            matched.extend(self.plan.0.iter().filter(due).map(|fault| Injected { fault: *fault, call: itself, nth }));
        }
        state.injected.extend(matched.iter().cloned());
        matched.iter().map(|i| i.fault.trouble).collect()
    }

    /// Delays, or the error to fail with.
    fn pass(&self, kinds: &[Call]) -> Result<(), Errno> {
        let troubles = self.troubles(kinds);
        let late: Duration =
            troubles.iter().filter_map(|t| if let Trouble::Delay(by) = t { Some(*by) } else { None }).sum();
        if !late.is_zero() {
            std::thread::sleep(late);
        }
        troubles
            .iter()
            .find_map(|t| if let Trouble::Fail(errno) = t { Some(Err(*errno)) } else { None })
            .unwrap_or(Ok(()))
    }

    /// Remembers the rings of queues as they come and go.
    fn follow(&self, request: u32, arg: &[u8]) {
        let Some(desc) = abi::find(request) else { return };
        let number = |name: &str| desc.layout.field(name)?.read(arg);
        let queue = number("queue_id").and_then(|id| u32::try_from(id).ok());
        if same_call(request, kfd::CREATE_QUEUE.desc.request) {
            if let (Some(queue), Some(at), Some(len_bytes)) = (queue, number("ring_base_address"), number("ring_size"))
            {
                self.state().rings.insert(queue, Ring { at, len_bytes });
            }
        } else if same_call(request, kfd::DESTROY_QUEUE.desc.request)
            && let Some(queue) = queue
        {
            self.state().rings.remove(&queue);
        }
    }

    /// Flips a bit of some queue's ring. A ring that cannot be reached stays as it is.
    fn flip(&self, bit: u64) {
        let mut rings: Vec<(u32, Ring)> = self.state().rings.iter().map(|(id, r)| (*id, *r)).collect();
        rings.sort_unstable_by_key(|r| r.0);
        let Some((_, ring)) = rings.get((bit >> 32) as usize % rings.len().max(1)) else { return };
        let bit = bit % (ring.len_bytes * 8).max(1);
        let at = CpuPtr(ring.at).offset(bit / 8);
        let mut byte = [0];
        if read_process(at, &mut byte).is_ok() {
            byte[0] ^= 1 << (bit % 8);
            let _stays_as_it_is = write_process(at, &byte);
        }
    }
}

fn same(wanted: Call, call: Call) -> bool {
    match (wanted, call) {
        (Call::Ioctl(a), Call::Ioctl(b)) => same_call(a, b),
        (a, b) => a == b,
    }
}

impl Port for Faults {
    fn open(&self, path: &str, flags: OpenFlags) -> Result<Fd, Errno> {
        self.pass(&[Call::Open])?;
        self.inner.open(path, flags)
    }

    fn close(&self, fd: Fd) -> Result<(), Errno> {
        self.inner.close(fd)
    }

    fn ioctl(&self, fd: Fd, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        // The size is left out of the count's key: one call, one count.
        let key = abi::find(request).map_or(request, |d| d.request);
        self.pass(&[Call::Ioctl(key), Call::AnyIoctl])?;
        let result = self.inner.ioctl(fd, request, arg);
        if result.is_ok() {
            self.follow(request, arg);
        }
        result
    }

    fn mmap(&self, map: &MapRequest) -> Result<CpuPtr, Errno> {
        if !map.prot.is_empty() || map.flags.contains(MapFlags::FIXED) {
            self.pass(&[Call::Mmap])?;
        }
        self.inner.mmap(map)
    }

    fn munmap(&self, addr: CpuPtr, len_bytes: u64) -> Result<(), Errno> {
        self.pass(&[Call::Munmap])?;
        self.inner.munmap(addr, len_bytes)
    }

    fn poll(&self, fds: &mut [PollFd], timeout_ms: i32) -> Result<usize, Errno> {
        self.inner.poll(fds, timeout_ms)
    }

    fn read_file(&self, path: &str) -> Result<Vec<u8>, Errno> {
        self.inner.read_file(path)
    }

    fn read_dir(&self, path: &str) -> Result<Vec<String>, Errno> {
        self.inner.read_dir(path)
    }

    fn page_bytes(&self) -> u64 {
        self.inner.page_bytes()
    }

    fn doorbell(&self, at: CpuPtr, value: u64) {
        let mut lost = false;
        for trouble in self.troubles(&[Call::Doorbell]) {
            match trouble {
                Trouble::Lose | Trouble::Fail(_) => lost = true,
                Trouble::Delay(by) => std::thread::sleep(by),
                Trouble::Flip { bit } => self.flip(bit),
            }
        }
        if !lost {
            self.inner.doorbell(at, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{LinuxPort, Mapped};
    use crate::trace::Trace;
    use std::time::Instant;

    fn faulty(plan: Plan) -> (Arc<Faults>, crate::trace::Log) {
        let (trace, log) = Trace::log(LinuxPort::new());
        (Faults::new(trace, plan), log)
    }

    fn create(port: &dyn Port, fd: Fd) -> Result<i32, Errno> {
        let mut args = kfd::CreateQueue::default();
        port.ioctl(fd, kfd::CREATE_QUEUE.desc.request, bytemuck::bytes_of_mut(&mut args))
    }

    #[test]
    fn only_the_chosen_call_fails_and_does_not_reach_the_driver() {
        let request = kfd::CREATE_QUEUE.desc.request;
        let (port, log) = faulty(Plan::one(Call::Ioctl(request), 2, Trouble::Fail(Errno::ENOMEM)));
        let fd = port.open("/dev/null", OpenFlags::DEVICE).unwrap();
        let answers: Vec<_> = (0..3).map(|_| create(&*port, fd)).collect();
        assert_eq!(answers, [Err(Errno::ENOTTY), Err(Errno::ENOMEM), Err(Errno::ENOTTY)]);
        assert_eq!(log.events().len(), 3, "open and two ioctls");
        let injected = port.injected();
        assert_eq!((injected.len(), injected[0].nth), (1, 2));
    }

    #[test]
    fn the_shorter_struct_of_an_older_release_is_the_same_call() {
        let (port, _) = faulty(Plan::one(Call::Ioctl(kfd::CREATE_QUEUE.desc.request), 1, Trouble::Fail(Errno::EIO)));
        let fd = port.open("/dev/null", OpenFlags::DEVICE).unwrap();
        assert_eq!(port.ioctl(fd, 0xc058_4b02, &mut [0; 88]), Err(Errno::EIO));
    }

    #[test]
    fn a_lasting_fault_stays() {
        let mut plan = Plan::one(Call::Mmap, 2, Trouble::Fail(Errno::ENOMEM));
        plan.0[0].lasting = true;
        let (port, _) = faulty(plan);
        let port: Arc<dyn Port> = port;
        let map = || Mapped::new(&port, &MapRequest::anonymous_shared(4096));
        assert!(map().is_ok());
        assert!(Mapped::new(&port, &MapRequest::reserve(4096)).is_ok(), "a reservation is no mapping");
        assert!(matches!(map(), Err(Errno::ENOMEM)) && matches!(map(), Err(Errno::ENOMEM)));
    }

    #[test]
    fn doorbells_are_lost_and_calls_come_late() {
        let mut plan = Plan::one(Call::Doorbell, 1, Trouble::Lose);
        plan.0.extend(Plan::one(Call::Open, 1, Trouble::Delay(Duration::from_millis(20))).0);
        let (port, log) = faulty(plan);
        port.doorbell(CpuPtr(8), 1);
        port.doorbell(CpuPtr(8), 2);
        assert_eq!(log.events().len(), 1, "the first was lost");
        let began = Instant::now();
        port.open("/dev/null", OpenFlags::READ).unwrap();
        assert!(began.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn one_bit_of_the_ring_flips_before_the_doorbell() {
        /// Answers every ioctl with success.
        #[derive(Debug)]
        struct Willing(Arc<LinuxPort>);
        impl Port for Willing {
            fn open(&self, path: &str, flags: OpenFlags) -> Result<Fd, Errno> {
                self.0.open(path, flags)
            }
            fn close(&self, fd: Fd) -> Result<(), Errno> {
                self.0.close(fd)
            }
            fn ioctl(&self, _: Fd, _: u32, _: &mut [u8]) -> Result<i32, Errno> {
                Ok(0)
            }
            fn mmap(&self, map: &MapRequest) -> Result<CpuPtr, Errno> {
                self.0.mmap(map)
            }
            fn munmap(&self, addr: CpuPtr, len_bytes: u64) -> Result<(), Errno> {
                self.0.munmap(addr, len_bytes)
            }
            fn poll(&self, fds: &mut [PollFd], timeout_ms: i32) -> Result<usize, Errno> {
                self.0.poll(fds, timeout_ms)
            }
            fn read_file(&self, path: &str) -> Result<Vec<u8>, Errno> {
                self.0.read_file(path)
            }
            fn read_dir(&self, path: &str) -> Result<Vec<String>, Errno> {
                self.0.read_dir(path)
            }
            fn doorbell(&self, _: CpuPtr, _: u64) {}
        }
        let willing: Arc<dyn Port> = Arc::new(Willing(LinuxPort::new()));
        let port =
            Faults::new(Arc::clone(&willing), Plan::one(Call::Doorbell, 1, Trouble::Flip { bit: 4096 * 8 + 13 }));
        let ring = Arc::new(Mapped::new(&willing, &MapRequest::anonymous_shared(4096)).unwrap());
        let mut args = kfd::CreateQueue { ring_base_address: ring.base().0, ring_size: 4096, ..Default::default() };
        port.ioctl(Fd(0), kfd::CREATE_QUEUE.desc.request, bytemuck::bytes_of_mut(&mut args)).unwrap();
        port.doorbell(CpuPtr(8), 1);
        let view = ring.view().unwrap();
        assert_eq!((view.read_u8(1), view.read_u8(0)), (Ok(1 << 5), Ok(0)));
    }
}
