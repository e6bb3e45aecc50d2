//! The command processor: takes packets from the ring and executes them. A worker thread or a waiting host thread takes
//! this role, one at a time.
//!
//! Layer: part of `device::cpu`. A worker that reaches an unsatisfied WAIT keeps the role and polls; a
//! host thread gives the role up.

use super::exec::Bus;
use super::job::Job;
use super::park::Parking;
use doorbell_hcq::packet::cpu::{DecodeError, MAX_DWORDS, Packet};
use doorbell_hcq::ring::Ring;
use doorbell_hcq::signal::Backoff;
use doorbell_hcq::sync::Role;
use doorbell_ioctl::port::monotonic_ns;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Why a consumer stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Empty,
    Blocked,
    Asked,
}

/// The state that all executors of one queue share.
pub(super) struct Consumer {
    pub(super) ring: Ring,
    role: Role,
    job: Job,
    /// Number of cores that a kernel is distributed over; 1 means that it is not distributed.
    executors: usize,
    spin: Duration,
    pub(super) workers: Parking,
    pub(super) hosts: Parking,
    closing: AtomicBool,
    dead: AtomicBool,
    fault: Mutex<Option<String>>,
}

impl Consumer {
    pub(super) fn new(ring: Ring, executors: u32, spin_ns: u64) -> Self {
        Self {
            ring,
            role: Role::default(),
            job: Job::default(),
            executors: executors.max(1) as usize,
            spin: Duration::from_nanos(spin_ns),
            workers: Parking::default(),
            hosts: Parking::default(),
            closing: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            fault: Mutex::new(None),
        }
    }

    /// Tells the workers to end at the next packet boundary.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.workers.wake(usize::MAX);
        self.hosts.wake(usize::MAX);
    }

    /// False once no more packets will be run.
    pub(super) fn is_alive(&self) -> bool {
        !self.closing.load(Ordering::Acquire) && !self.dead.load(Ordering::Acquire)
    }

    /// The decoding error of a packet, if there was one.
    pub(super) fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The main loop of a worker thread.
    pub(super) fn work(&self) {
        let mut idle_since = None;
        loop {
            if self.consume(true, || !self.is_alive()) || self.job.help() {
                idle_since = None;
                continue;
            }
            if !self.is_alive() {
                return;
            }
            let since = *idle_since.get_or_insert_with(Instant::now);
            if !self.spin_until(since + self.spin, || self.has_work() || !self.is_alive()) {
                self.workers.sleep(|| self.has_work() || !self.is_alive(), None);
                idle_since = None;
            }
        }
    }

    /// Waits, on a host thread, until `done`: runs work if `helps`, and spins for so long before it sleeps. Returns
    /// early at the deadline, or if the queue has ended.
    pub(super) fn wait(&self, (helps, spin): (bool, Duration), deadline: Instant, done: impl Fn() -> bool) {
        let mut spin_end = Instant::now() + spin;
        while !done() && self.is_alive() && Instant::now() < deadline {
            if helps && (self.consume(false, || done() || !self.is_alive()) || self.job.help()) {
                spin_end = Instant::now() + spin;
                continue;
            }
            let ready = || done() || !self.is_alive() || (helps && self.has_work());
            if !self.spin_until(spin_end.min(deadline), ready) {
                // A host that reached a WAIT must wake a worker to poll it before it sleeps itself.
                let stuck = || done() || !self.is_alive() || (helps && self.job.has_work());
                self.workers.wake(1);
                self.hosts.sleep(stuck, Some(deadline.saturating_duration_since(Instant::now())));
                spin_end = Instant::now() + spin;
            }
        }
    }

    /// Spins until `ready` or until `end`; returns whether it became ready.
    fn spin_until(&self, end: Instant, ready: impl Fn() -> bool) -> bool {
        loop {
            // Reading the clock costs as much as thirty checks of a flag.
            for _ in 0..32 {
                if ready() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if Instant::now() >= end {
                return false;
            }
        }
    }

    fn has_work(&self) -> bool {
        self.job.has_work() || (!self.ring.is_empty() && !self.role.is_taken())
    }

    /// Runs packets as the consumer, if the role is free; returns whether any was run.
    pub(super) fn consume(&self, is_worker: bool, stop: impl Fn() -> bool) -> bool {
        let mut ran = false;
        let drain = || self.drain(is_worker, &mut ran, &stop) == Stop::Empty;
        if !self.role.serve(|| !self.ring.is_empty(), drain) {
            self.workers.wake(1);
        }
        ran
    }

    /// Runs `action` as the consumer of an empty ring, if it is empty and the role is free.
    pub(super) fn run_if_idle(&self, action: impl FnOnce(&Self)) -> bool {
        if !self.ring.is_empty() || !self.is_alive() {
            return false;
        }
        let Some(_role) = self.role.try_take() else { return false };
        if !self.ring.is_empty() {
            return false;
        }
        action(self);
        true
    }

    fn drain(&self, is_worker: bool, ran: &mut bool, stop: &impl Fn() -> bool) -> Stop {
        let mut backoff = Backoff::default();
        loop {
            if stop() {
                return Stop::Asked;
            }
            match self.step() {
                Stop::Empty => return Stop::Empty,
                Stop::Blocked if is_worker => backoff.pause(),
                Stop::Blocked => return Stop::Blocked,
                Stop::Asked => {
                    *ran = true;
                    backoff = Backoff::default();
                }
            }
        }
    }

    /// Runs one packet. `Asked` means that the packet was run and the caller may stop or go on.
    fn step(&self) -> Stop {
        let mut words = [0; MAX_DWORDS];
        let have = self.ring.peek(&mut words);
        match Packet::parse(&words[..have]) {
            Ok((Packet::Wait { signal, value }, len)) => {
                // ORDER: acquire; makes the signaller's earlier stores visible.
                if Bus.atomic(signal).load(Ordering::Acquire) < value {
                    return Stop::Blocked;
                }
                self.ring.retire(len);
                Stop::Asked
            }
            Ok((packet, len)) => {
                self.run(packet, 0);
                self.ring.retire(len);
                Stop::Asked
            }
            Err(DecodeError::Truncated { .. }) if have == 0 => Stop::Empty,
            // The producer has not written the rest yet; it may be this same thread, waiting for room.
            Err(DecodeError::Truncated { .. }) => Stop::Blocked,
            Err(e) => {
                *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(e.to_string());
                self.dead.store(true, Ordering::Release);
                self.hosts.wake(usize::MAX);
                Stop::Blocked
            }
        }
    }

    /// Runs the words of a recorded list. Words that do not decode end the list; that would be a bug in the builder.
    pub(super) fn run_words(&self, words: &[u32], kernargs: u64) {
        let mut rest = words;
        while let Ok((packet, len)) = Packet::parse(rest) {
            self.run(packet, kernargs);
            rest = &rest[len..];
        }
    }

    #[inline]
    fn run(&self, packet: Packet, base: u64) {
        match packet {
            // Waits are handled in `step`; recorded lists contain none.
            Packet::Wait { .. } => {}
            Packet::Signal { signal, value } => {
                // ORDER: release; everything before the signal is visible to a thread that reads its value.
                Bus.atomic(signal).store(value, Ordering::Release);
                self.hosts.wake(usize::MAX);
            }
            Packet::Timestamp { signal } => Bus.atomic(signal + 8).store(monotonic_ns(), Ordering::Release),
            Packet::Barrier => Bus.barrier(),
            Packet::Exec { entry, kernargs } => self.exec(entry, base + kernargs),
            Packet::Copy { dst, src, len_bytes } => Bus.copy(dst, src, len_bytes),
            Packet::CopyArgs { kernargs } => {
                let block = base + kernargs;
                Bus.copy(Bus.word(block), Bus.word(block + 8), Bus.word(block + 16));
            }
            Packet::Indirect { words, count_dwords, kernargs } => {
                self.run_words(Bus.words(words, count_dwords), kernargs)
            }
        }
    }

    /// Runs a kernel with its kernargs block at `block`: on this thread, or distributed over all executors that join.
    #[inline]
    fn exec(&self, entry: u64, block: u64) {
        let threads = Bus.word(block);
        let args = block + 8;
        let count = u32::try_from(threads).unwrap_or(u32::MAX);
        if count <= 1 || self.executors == 1 {
            (0..threads).for_each(|tid| Bus.call(entry, args, tid));
            return;
        }
        self.job.publish(entry, args, count);
        let wanted = (self.executors - 1).min(count as usize - 1);
        let woken = self.workers.wake(wanted);
        if woken < wanted {
            self.hosts.wake(wanted - woken);
        }
        self.job.help();
        self.job.join();
    }
}
