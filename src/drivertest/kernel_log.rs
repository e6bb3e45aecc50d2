//! The kernel's log by a cursor: lines of warnings and errors that came since.
//!
//! Source: Documentation/ABI/testing/dev-kmsg: `priority,sequence,microseconds,flags;text`; the level is the priority's
//! low three bits, 4 is a warning.
//!
//! Two kinds of lines are not a case's warnings. NVIDIA's module remarks on each call that it refuses, at the level of
//! warnings: it names one of its functions first (`NVRM: nvCheckFailedNoLog: Check failed: ...`), or is one of a few
//! sentences. A line that names another process is that process's.

use doorbell_ioctl::port::{KERNEL_LOG, Port};

/// The least severe level that counts.
const WARNING: u64 = 4;

/// Remarks of NVIDIA's module that do not begin with one of its functions, and what it says of no call.
const REMARKS: &[&str] = &[
    "NVRM: API mismatch: the client ",
    "NVRM: invalid ioctl XFER size!",
    "NVRM: failed to copy in ioctl data!",
    "NVRM: failed to copy out ioctl data",
    "Cannot map memory with base addr ",
    // The card's name, before its first error.
    "NVRM: GPU at PCI:",
    "NVRM: GPU Board Serial Number: ",
];

/// What is never a remark, whoever says it: the card or its firmware is in trouble.
const TROUBLE: &[&str] = &[
    "Xid",
    "fallen off",
    "is lost",
    "RmInitAdapter",
    "imeout",
    "imed out",
    "atchdog",
    "rash",
    "ncorrectable",
    "oison",
];

/// Whether NVIDIA's module says no more in this line than that it refuses a call.
#[must_use]
pub(crate) fn is_remark(text: &str) -> bool {
    // A name of a function: no sentence has a capital or an underscore after its first letter in its first word.
    let is_name = |name: &str| {
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && name.bytes().any(|byte| byte.is_ascii_lowercase())
            && name.bytes().skip(1).any(|byte| byte.is_ascii_uppercase() || byte == b'_')
    };
    let says_function =
        || text.strip_prefix("NVRM: ").and_then(|rest| rest.split_once(':')).is_some_and(|(name, _)| is_name(name));
    !TROUBLE.iter().any(|word| text.contains(word))
        && (REMARKS.iter().any(|remark| text.starts_with(remark)) || says_function())
}

/// Whether a line names a process, and not this one. In a process namespace the kernel's numbers are others: then no
/// line is another's.
#[must_use]
pub(crate) fn is_of_another(text: &str, own: Option<u32>) -> bool {
    let named = text.split_once("pid=").map(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next());
    let named = named.flatten().and_then(|pid| pid.parse::<u32>().ok());
    named.zip(own).is_some_and(|(named, own)| named != own)
}

/// This process's number as the kernel knows it.
#[must_use]
pub(crate) fn own_pid() -> Option<u32> {
    /// `PROC_PID_INIT_INO`: the namespace that every other is in.
    const FIRST: &str = "pid:[4026531836]";
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    (namespace.to_str() == Some(FIRST)).then(std::process::id)
}

/// A place in the log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    next: u64,
    /// The log cannot be read here.
    pub blind: bool,
}

fn lines(port: &dyn Port) -> Option<Vec<(u64, u64, String)>> {
    let bytes = port.read_file(KERNEL_LOG).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = |line: &str| {
        let (head, text) = line.split_once(';')?;
        let mut numbers = head.split(',').map(|n| n.parse::<u64>());
        let (priority, sequence) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some((priority & 7, sequence, text.to_owned()))
    };
    Some(text.lines().filter_map(line).collect())
}

impl Cursor {
    /// The end of the log as it is.
    #[must_use]
    pub(crate) fn at_end(port: &dyn Port) -> Self {
        match lines(port) {
            Some(lines) => Self { next: lines.last().map_or(0, |(_, sequence, _)| sequence + 1), blind: false },
            None => Self { next: 0, blind: true },
        }
    }

    /// All that came after it, of whatever level and process.
    #[must_use]
    pub(crate) fn lines(self, port: &dyn Port) -> Vec<String> {
        let new = lines(port).unwrap_or_default().into_iter().filter(|(_, seq, _)| !self.blind && *seq >= self.next);
        new.map(|(_, _, text)| text).collect()
    }

    /// Warnings and errors after it, but for remarks on refused calls and lines of other processes.
    #[must_use]
    pub(crate) fn warnings(self, port: &dyn Port) -> Vec<String> {
        if self.blind {
            return Vec::new();
        }
        let own = own_pid();
        let new = lines(port)
            .unwrap_or_default()
            .into_iter()
            .filter(|(level, seq, _)| *seq >= self.next && *level <= WARNING)
            .map(|(_, _, text)| text);
        new.filter(|text| !is_remark(text) && !is_of_another(text, own)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_emu::kfd::{Chip, Config, SoftKfd};

    #[test]
    fn a_machine_without_news_has_no_warnings() {
        let machine = SoftKfd::new(Config::new(Chip::Gfx1100)).unwrap();
        let cursor = Cursor::at_end(&*machine);
        assert!(!cursor.blind && cursor.warnings(&*machine).is_empty());
    }

    #[test]
    fn what_the_module_says_of_a_refused_call_is_a_remark() {
        for text in [
            "NVRM: nvCheckFailedNoLog: Check failed: pGrCtxBufferMemDesc != NULL @ kernel_graphics_context.c:821",
            "NVRM: nvAssertOkFailedNoLog: Assertion failed: Invalid argument to call [NV_ERR_INVALID_ARGUMENT]",
            "NVRM: RmIoctl: unknown NVRM ioctl command: 0x7f",
            "NVRM: rpcRmApiAlloc_GSP: GspRmAlloc failed: hClient=0xc1d000fd; hParent=0xcaf00004",
            "NVRM: _kgraphicsCtrlCmdGrGetInfoV2: Invalid grInfoList size: 0x100000",
            "NVRM: free_os_event:    fd: 18",
            "NVRM: API mismatch: the client 'doorbell' (pid 4109)",
            "Cannot map memory with base addr 0x1000 and size of 0x1 pages",
            "NVRM: GPU at PCI:0000:00:06: GPU-00000000-1111-2222-3333-444444444444",
            "NVRM: GPU Board Serial Number: 1234567890123",
        ] {
            assert!(is_remark(text), "{text}");
        }
    }

    #[test]
    fn trouble_of_card_or_kernel_is_none() {
        for text in [
            "NVRM: Xid (PCI:0000:00:06): 13, pid=4027, name=doorbell, Graphics Exception: SKEDCHECK11_TOTAL_THREADS",
            "NVRM: GPU 0000:00:06.0: RmInitAdapter failed! (0x62:0x40:2477)",
            "NVRM: krcWatchdogCallbackPerf_IMPL: GPU is probably locked!",
            "NVRM: _kgspRpcRecvPoll: RPC timeout",
            "NVRM: loading NVIDIA UNIX Open Kernel Module",
            "WARNING: CPU: 1 PID: 4 at kernel/foo.c:12 bar+0x1/0x2",
            "BUG: kernel NULL pointer dereference, address: 0000000000000008",
            "Call Trace:",
            "INFO: task doorbell:12 blocked for more than 120 seconds.",
            "nvidia-uvm: something",
        ] {
            assert!(!is_remark(text), "{text}");
        }
    }

    #[test]
    fn a_line_of_another_process_names_it() {
        let xid = "NVRM: Xid (PCI:0000:00:06): 32, pid=3864, name=doorbell, channel 0x0000001e intr 00004000";
        assert!(is_of_another(xid, Some(12)) && !is_of_another(xid, Some(3864)) && !is_of_another(xid, None));
        assert!(!is_of_another("NVRM: Xid (PCI:0000:00:06): 13, Graphics Exception: ESR 0x407020=0x1", Some(12)));
    }
}
