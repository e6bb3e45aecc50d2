//! Describes a failed channel: the notifier's code, the MMU fault, SM exceptions, and the recovery action that the
//! driver recommends.
//!
//! Layer: `watch` calls this when a notifier was written. Source: docs/nv.md 6 (`nverror.h`, controls of the debugger).

use super::channel::Notification;
use super::core::Core;
use super::driver::{Driver, Handle};
use super::watch::Debugger;
use doorbell_ioctl::abi::nvrm;
use doorbell_ioctl::port::{KERNEL_LOG, Port};

/// SMs that one control call can cover.
const SMS_AT_ONCE: u32 = 100;
/// SMs that a report names at most.
const NAMED_SMS: usize = 4;

/// Error codes of `nverror.h` with a description.
const CODES: &[(u32, &str)] = &[
    (8, "idle timeout"),
    (13, "graphics engine exception"),
    (31, "MMU fault"),
    (32, "malformed push buffer or entry"),
    (39, "copy engine 0 exception"),
    (40, "copy engine 1 exception"),
    (41, "copy engine 2 exception"),
    (43, "channel was reset"),
    (44, "fault during a context switch"),
    (45, "removed because another channel of its group failed"),
    (48, "double bit ECC error"),
    (69, "method with bad data"),
    (79, "GPU fell off the bus"),
    (94, "contained ECC error"),
    (95, "uncontained ECC error"),
    (119, "no answer from the GPU's system processor"),
    (120, "error of the GPU's system processor"),
    (140, "unrecoverable ECC error"),
    (154, "recovery action changed"),
];

/// `FAULT_TYPE` of the MMU.
const FAULT_TYPES: [&str; 16] = [
    "page directory",
    "page size",
    "page not mapped",
    "address limit",
    "unbound instance",
    "privilege",
    "store to a read-only page",
    "load from a write-only page",
    "pitch",
    "work creation",
    "aperture",
    "compression",
    "kind",
    "region",
    "poisoned",
    "atomic",
];
/// `ACCESS_TYPE`.
const ACCESSES: [&str; 5] = ["load", "store", "strong atomic", "prefetch", "weak atomic"];

/// Describes an error code.
#[must_use]
pub fn code_name(code: u32) -> &'static str {
    CODES.iter().find(|(known, _)| *known == code).map_or("unknown code", |(_, name)| name)
}

fn named(names: &[&'static str], value: u32) -> String {
    names.get(value as usize).map_or_else(|| format!("type {value}"), |n| (*n).into())
}

/// Describes, in one line, a channel that the driver has stopped.
#[must_use]
pub fn describe(core: &Core, channel: Handle, debugger: Option<Debugger>, what: &Notification) -> String {
    let mut text = format!("channel error {} ({})", what.code, code_name(what.code));
    let more = [mmu_fault(core, channel, debugger), debugger.and_then(|d| sm_exceptions(core, d))];
    for part in more.into_iter().flatten() {
        text.push_str(", ");
        text.push_str(&part);
    }
    if let Some(action) = recovery(core) {
        text.push_str(&format!(", recovery action {action}"));
    }
    let driver = &core.gpu.driver;
    if let Some(line) = kernel_log(&**driver.port(), &core.gpu.card.bdf, driver.opened_ns()).last() {
        text.push_str(&format!(", kernel log: {line}"));
    }
    text
}

/// How far the clock of kernel log time stamps may differ from the monotonic clock.
const LOG_SLACK_NS: u64 = 2_000_000_000;

/// The errors of a card in the kernel log since `since_ns` (monotonic clock); empty if this process may not read the
/// log.
#[must_use]
pub fn kernel_log(port: &dyn Port, bdf: &str, since_ns: u64) -> Vec<String> {
    let bytes = port.read_file(KERNEL_LOG).unwrap_or_default();
    let card = format!("(PCI:{})", bdf.rsplit_once('.').map_or(bdf, |(device, _)| device));
    let line = |line: &str| {
        let (head, text) = line.split_once(';')?;
        let us: u64 = head.split(',').nth(2)?.parse().ok()?;
        let is_recent = us.saturating_mul(1000).saturating_add(LOG_SLACK_NS) >= since_ns;
        (is_recent && text.contains("Xid") && text.contains(&card)).then(|| text.to_string())
    };
    String::from_utf8_lossy(&bytes).lines().filter_map(line).collect()
}

/// Describes the page fault: address, kind, and the buffer at the address.
fn mmu_fault(core: &Core, channel: Handle, debugger: Option<Debugger>) -> Option<String> {
    let driver = &core.gpu.driver;
    if let Some(text) = debugger.and_then(|d| debugger_faults(driver, d.handle)) {
        return Some(text);
    }
    let mut fault = nvrm::ChannelMmuFault::default();
    driver.control(channel, &nvrm::CHANNEL_GET_MMU_FAULT_INFO, &mut fault).ok()?;
    let va = doorbell_hcq::bits::join(fault.addr_lo, fault.addr_hi);
    (va != 0)
        .then(|| format!("MMU fault at {va:#x}: {} ({})", named(&FAULT_TYPES, fault.fault_type), driver.describe(va)))
}

fn debugger_faults(driver: &Driver, debugger: Handle) -> Option<String> {
    let mut info = nvrm::ReadMmuFaultInfo::default();
    driver.control(debugger, &nvrm::DEBUG_READ_MMU_FAULT_INFO, &mut info).ok()?;
    let count = (info.count as usize).min(info.mmu_fault_info_list.len());
    let entry = info.mmu_fault_info_list[..count].first()?;
    let (kind, access) = (named(&FAULT_TYPES, entry.fault_type), named(&ACCESSES, entry.access_type));
    let va = entry.fault_address;
    Some(format!("MMU fault at {va:#x}: {kind}, {access} ({})", driver.describe(va)))
}

/// Describes SMs with an exception: program counter and hardware error register.
fn sm_exceptions(core: &Core, debugger: Debugger) -> Option<String> {
    let mut found = Vec::new();
    for starting_sm in (0..core.gpu.properties.sms).step_by(SMS_AT_ONCE as usize) {
        let mut states = nvrm::ReadAllSmErrorStates {
            h_target_channel: debugger.channel,
            num_s_ms_to_read: (core.gpu.properties.sms - starting_sm).min(SMS_AT_ONCE),
            starting_sm,
            ..Default::default()
        };
        core.gpu.driver.control(debugger.handle, &nvrm::DEBUG_READ_ALL_SM_ERROR_STATES, &mut states).ok()?;
        for (n, state) in (starting_sm..).zip(&states.sm_error_state_array[..states.num_s_ms_to_read as usize % 101]) {
            if state.hww_warp_esr != 0 || state.hww_global_esr != 0 {
                let (esr, pc) = (state.hww_warp_esr, state.hww_warp_esr_pc64);
                found.push(format!("SM {n} exception {esr:#x} at {pc:#x} ({})", core.gpu.driver.describe(pc)));
            }
        }
    }
    let more = found.len().saturating_sub(NAMED_SMS);
    found.truncate(NAMED_SMS);
    if more > 0 {
        found.push(format!("and {more} more"));
    }
    (!found.is_empty()).then(|| found.join(", "))
}

/// The recovery action that the driver recommends; `None` if there is none, or if the driver does not answer.
fn recovery(core: &Core) -> Option<&'static str> {
    let mut action = nvrm::RecoveryAction::default();
    core.gpu.driver.control(core.gpu.subdevice, &nvrm::GPU_GET_RECOVERY_ACTION, &mut action).ok()?;
    match action.action {
        0 => None,
        1 => Some("reset the GPU"),
        2 => Some("reboot the node"),
        3 => Some("drain peer-to-peer traffic"),
        _ => Some("drain and reset"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_ioctl::port::{CpuPtr, Errno, Fd, MapRequest, OpenFlags, PollFd};

    /// A port that has a kernel log and nothing else.
    #[derive(Debug)]
    struct Logged(&'static str);

    impl Port for Logged {
        fn open(&self, _: &str, _: OpenFlags) -> Result<Fd, Errno> {
            Err(Errno::ENOENT)
        }
        fn close(&self, _: Fd) -> Result<(), Errno> {
            Err(Errno::EBADF)
        }
        fn ioctl(&self, _: Fd, _: u32, _: &mut [u8]) -> Result<i32, Errno> {
            Err(Errno::EBADF)
        }
        fn mmap(&self, _: &MapRequest) -> Result<CpuPtr, Errno> {
            Err(Errno::ENOMEM)
        }
        fn munmap(&self, _: CpuPtr, _: u64) -> Result<(), Errno> {
            Err(Errno::EINVAL)
        }
        fn poll(&self, _: &mut [PollFd], _: i32) -> Result<usize, Errno> {
            Ok(0)
        }
        fn read_file(&self, path: &str) -> Result<Vec<u8>, Errno> {
            if path == KERNEL_LOG { Ok(self.0.into()) } else { Err(Errno::ENOENT) }
        }
        fn read_dir(&self, _: &str) -> Result<Vec<String>, Errno> {
            Err(Errno::ENOENT)
        }
        fn doorbell(&self, _: CpuPtr, _: u64) {}
    }

    #[test]
    fn kernel_log_gives_the_cards_own_recent_errors() {
        let log = Logged(
            "6,1,100,-;usb 1-1: new device\n3,2,5000000,-;NVRM: Xid (PCI:0000:17:00): 31, old\n SUBSYSTEM=pci\n\
             3,3,90000000,-;NVRM: Xid (PCI:0000:18:00): 13, another card\n3,4,91000000,-;NVRM: Xid (PCI:0000:17:00): 79, pid=7\n",
        );
        assert_eq!(kernel_log(&log, "0000:17:00.0", 90_000_000_000), ["NVRM: Xid (PCI:0000:17:00): 79, pid=7"]);
        assert_eq!(kernel_log(&log, "0000:17:00.0", 0).len(), 2);
    }

    #[test]
    fn codes_and_fault_types_have_names() {
        assert_eq!(
            (code_name(31), code_name(13), code_name(7)),
            ("MMU fault", "graphics engine exception", "unknown code")
        );
        assert_eq!(
            (named(&FAULT_TYPES, 2), named(&FAULT_TYPES, 99)),
            ("page not mapped".into(), "type 99".to_string())
        );
    }
}
