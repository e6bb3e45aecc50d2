//! Planned faults as a user writes them: `CREATE_QUEUE:2:EINVAL`, `open:1:EACCES`, `mmap:3:ENOMEM`, `doorbell:1:lose`.

use super::{Call, Plan, Trouble};
use crate::abi;
use crate::port::Errno;

/// A fault's three parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec<'a> {
    text: &'a str,
    pub call: &'a str,
    /// From 1.
    pub nth: u64,
    pub trouble: &'a str,
}

impl<'a> Spec<'a> {
    /// # Errors
    /// In words.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let [call, nth, trouble] = parts[..] else { return Err(format!("--fault {text}: CALL:N:ERRNO is wanted")) };
        Self::of(text, call, nth, trouble)
    }

    /// From its parts.
    pub(super) fn of(text: &'a str, call: &'a str, nth: &str, trouble: &'a str) -> Result<Self, String> {
        let nth = nth.parse().ok().filter(|n| *n > 0);
        let nth = nth.ok_or_else(|| format!("--fault {text}: which call is a number from 1"))?;
        Ok(Self { text, call, nth, trouble })
    }

    /// A complaint about it.
    #[must_use]
    pub fn wrong(&self, what: &str) -> String {
        format!("--fault {}: {what}", self.text)
    }
}

/// A fault of a port: system calls, ioctls by their name or the end of it, doorbells.
///
/// # Errors
/// In words: no such call, no such errno.
pub fn port_plan(text: &str) -> Result<Plan, String> {
    let spec = Spec::parse(text)?;
    let named = |name: &str| {
        let short = |name: &'static str| name.rsplit("IOC_").next().unwrap_or(name).trim_start_matches("NV_ESC_RM_");
        let same = |d: &&abi::Desc| [d.name, short(d.name)].iter().any(|known| known.eq_ignore_ascii_case(name));
        abi::all().find(same).map(|d| Call::Ioctl(d.request))
    };
    let call = match spec.call {
        "open" => Call::Open,
        "mmap" => Call::Mmap,
        "munmap" => Call::Munmap,
        "ioctl" => Call::AnyIoctl,
        "doorbell" => Call::Doorbell,
        name => named(name).ok_or_else(|| spec.wrong("no such call"))?,
    };
    let trouble = match spec.trouble {
        "lose" => Trouble::Lose,
        errno => Trouble::Fail(Errno::named(errno).ok_or_else(|| spec.wrong("no such errno"))?),
    };
    Ok(Plan::one(call, spec.nth, trouble))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_by_the_calls_short_name() {
        assert_eq!(port_plan("create_queue:2:EINVAL").unwrap().to_string(), "AMDKFD_IOC_CREATE_QUEUE 2: EINVAL");
        assert_eq!(port_plan("map_memory:1:EIO").unwrap().to_string(), "NV_ESC_RM_MAP_MEMORY 1: EIO");
        assert_eq!(port_plan("doorbell:1:lose").unwrap().to_string(), "doorbell 1: lost");
        for wrong in ["", "open", "open:0:EIO", "open:1:EWHAT", "nothing:1:EIO"] {
            assert!(port_plan(wrong).unwrap_err().starts_with("--fault "), "{wrong}");
        }
    }
}
