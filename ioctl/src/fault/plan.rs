//! Which faults are injected, and when.

use crate::abi;
use crate::port::Errno;
use std::fmt;
use std::time::Duration;

/// Calls of one kind; each kind is counted by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Open,
    /// ioctls of this number; their sizes may differ with the release.
    Ioctl(u32),
    AnyIoctl,
    /// Mappings of files and of anonymous memory; reservations are none.
    Mmap,
    Munmap,
    Doorbell,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ioctl(request) => match abi::find(*request) {
                Some(desc) => f.write_str(desc.name),
                None => write!(f, "ioctl {request:#x}"),
            },
            Self::AnyIoctl => f.write_str("ioctl"),
            other => f.write_str(&format!("{other:?}").to_lowercase()),
        }
    }
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The call fails with this error and does not reach the driver. A doorbell returns nothing: it is lost.
    Fail(Errno),
    /// It happens this much later.
    Delay(Duration),
    /// A doorbell store that does not reach the device. Other calls are passed on.
    Lose,
    /// Before a doorbell is passed on, bit `bit` (modulo its length) of the ring of a queue that was created through
    /// this port is flipped.
    Flip { bit: u64 },
}

/// One trouble for the `nth` call of its kind (from 1), or for every one from there on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub call: Call,
    pub nth: u64,
    pub lasting: bool,
    pub trouble: Trouble,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = if self.lasting { "from " } else { "" };
        write!(f, "{since}{} {}: ", self.call, self.nth)?;
        match self.trouble {
            Trouble::Fail(errno) => write!(f, "{errno}"),
            Trouble::Delay(by) => write!(f, "{by:?} late"),
            Trouble::Lose => f.write_str("lost"),
            Trouble::Flip { bit } => write!(f, "bit {bit} of a ring flipped"),
        }
    }
}

/// A list of faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan(pub Vec<Fault>);

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(Fault::to_string).collect();
        f.write_str(&texts.join("; "))
    }
}

/// Errors that drivers return.
const ERRORS: &[Errno] =
    &[Errno::EINVAL, Errno::ENOMEM, Errno::EBUSY, Errno::EINTR, Errno::EIO, Errno::ETIME, Errno::ENODEV, Errno::EPERM];

impl Plan {
    /// A list with one fault.
    #[must_use]
    pub fn one(call: Call, nth: u64, trouble: Trouble) -> Self {
        Self(vec![Fault { call, nth, lasting: false, trouble }])
    }

    /// One or two faults drawn from `seed`, in the first `calls` calls of their kind.
    #[must_use]
    pub fn seeded(seed: u64, calls: u64) -> Self {
        let mut draw = Draw(seed);
        let count = 1 + draw.below(2);
        Self((0..count).map(|_| draw.fault(calls.max(1))).collect())
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn fault(&mut self, calls: u64) -> Fault {
        let late = Trouble::Delay(Duration::from_micros(self.below(3000)));
        let errno = ERRORS[self.below(ERRORS.len() as u64) as usize];
        let (call, trouble) = match self.below(9) {
            0..=2 => {
                let all: Vec<u32> = abi::all().map(|d| d.request).collect();
                (Call::Ioctl(all[self.below(all.len() as u64) as usize]), Trouble::Fail(errno))
            }
            3 => (Call::AnyIoctl, Trouble::Fail(errno)),
            4 => (Call::Mmap, Trouble::Fail(Errno::ENOMEM)),
            5 => (Call::AnyIoctl, late),
            6 => (Call::Doorbell, Trouble::Lose),
            7 => (Call::Doorbell, late),
            _ => (Call::Doorbell, Trouble::Flip { bit: self.next() }),
        };
        let failing = matches!(trouble, Trouble::Fail(_));
        Fault { call, nth: 1 + self.below(calls), lasting: failing && self.below(4) == 0, trouble }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_is_one_plan_and_seeds_reach_every_kind_of_trouble() {
        assert_eq!(Plan::seeded(7, 40), Plan::seeded(7, 40));
        let all: Vec<Fault> = (0..500).flat_map(|seed| Plan::seeded(seed, 40).0).collect();
        assert!(all.iter().all(|f| (1..=40).contains(&f.nth)));
        let some = |wanted: fn(&Trouble) -> bool| all.iter().any(|f| wanted(&f.trouble));
        assert!(some(|t| matches!(t, Trouble::Fail(_))) && some(|t| matches!(t, Trouble::Delay(_))));
        assert!(some(|t| matches!(t, Trouble::Lose)) && some(|t| matches!(t, Trouble::Flip { .. })));
        assert!(all.iter().any(|f| f.lasting));
    }

    #[test]
    fn a_plan_reads_as_a_sentence() {
        let request = abi::all().find(|d| d.name.ends_with("CREATE_QUEUE")).map(|d| d.request).unwrap();
        let mut plan = Plan::one(Call::Ioctl(request), 2, Trouble::Fail(Errno::EINVAL));
        plan.0.push(Fault { call: Call::Doorbell, nth: 3, lasting: true, trouble: Trouble::Lose });
        assert_eq!(plan.to_string(), "AMDKFD_IOC_CREATE_QUEUE 2: EINVAL; from doorbell 3: lost");
    }
}
