//! The device of programs that name none: the best one that this machine has and this build can use.
//!
//! Place in the arrows: beside the rooms. `tensor` asks it where a Tensor goes that nobody gave a device, and `engine`
//! says (DEBUG=1) what was chosen and why. It uses `device` and `isa` only, and computes nothing.

use crate::device::registry::{DeviceListing, DeviceOptions, Registry, computing_kinds};
use std::sync::{Arc, LazyLock};

/// A device and why it was chosen.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub name: Arc<str>,
    pub why: String,
}

/// What the program computes on where nobody says otherwise: what `DEV` or a variable such as `CPU=1` names, else the
/// best device, found once.
pub(crate) fn choice() -> &'static Choice {
    static CHOICE: LazyLock<Choice> = LazyLock::new(|| {
        let named = named(|name| std::env::var(name).ok());
        named.unwrap_or_else(|| best(Registry::global().probe(&DeviceOptions::default())))
    });
    &CHOICE
}

/// The device that the environment names.
fn named(get: impl Fn(&str) -> Option<String>) -> Option<Choice> {
    if let Some(name) = get("DEV").filter(|d| !d.is_empty()) {
        return Some(Choice { name: name.into(), why: "DEV names it".into() });
    }
    // Kinds of devices are names of variables: `CPU=1`.
    let kind = computing_kinds().find(|kind| get(kind).as_deref() == Some("1"))?;
    Some(Choice { name: kind.into(), why: format!("{kind}=1 names it") })
}

/// The first GPU that can run our code; the CPU where there is none.
fn best(found: Vec<DeviceListing>) -> Choice {
    let mut refused = Vec::new();
    for row in found {
        match row.unavailable.or_else(|| no_code(&row.arch)) {
            None => {
                let why = format!("the first GPU that can be used, {}; DEV names another device", row.arch);
                return Choice { name: row.name.into(), why };
            }
            Some(why) => refused.push(format!("{}: {why}", row.name)),
        }
    }
    let why = if refused.is_empty() { "this build has no others".into() } else { refused.join("; ") };
    Choice { name: "CPU".into(), why: format!("no GPU can be used ({why})") }
}

/// Why no kernel can be made for a chip.
fn no_code(arch: &str) -> Option<String> {
    #[cfg(feature = "nv")]
    if crate::elf::cubin::is_arch(arch) && std::env::var_os("PTXAS").is_none_or(|path| path.is_empty()) {
        return crate::isa::nvidia::no_code(arch);
    }
    let _amd_s_rows_are_of_known_chips = arch;
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, arch: &str, unavailable: Option<&str>) -> DeviceListing {
        let unavailable = unavailable.map(str::to_owned);
        DeviceListing { name: name.into(), arch: arch.into(), cores: 1, memory_bytes: 1, unavailable, state: None }
    }

    #[test]
    fn a_device_is_named_by_dev_or_by_its_kind() {
        let found = |vars: &[(&str, &str)]| {
            named(|n| vars.iter().find(|v| v.0 == n).map(|v| v.1.to_string())).map(|c| (c.name.to_string(), c.why))
        };
        assert_eq!(found(&[("CPU", "1"), ("DEV", "")]), Some(("CPU".into(), "CPU=1 names it".into())));
        assert_eq!(found(&[("CPU", "1"), ("DEV", "NULL")]), Some(("NULL".into(), "DEV names it".into())));
        assert_eq!(found(&[("METAL", "1")]), Some(("METAL".into(), "METAL=1 names it".into())));
        assert_eq!(found(&[("CPU", "0"), ("NV", "x86"), ("DISK", "1")]), None);
    }

    #[test]
    fn the_first_gpu_that_can_be_used_is_the_default_and_the_cpu_where_there_is_none() {
        let none = best(vec![row("AMD", "", Some("no /dev/kfd")), row("NV", "", Some("no /dev/nvidiactl"))]);
        assert_eq!(&*none.name, "CPU");
        assert_eq!(none.why, "no GPU can be used (AMD: no /dev/kfd; NV: no /dev/nvidiactl)");
        #[cfg(feature = "nv")]
        {
            let card = best(vec![row("AMD", "", Some("none")), row("NV", "sm_90", None)]);
            assert_eq!(&*card.name, "NV");
            assert!(card.why.contains("sm_90"), "{}", card.why);
            let old = best(vec![row("NV", "sm_75", None)]);
            assert_eq!(&*old.name, "CPU");
            assert!(old.why.contains("no machine code is made for sm_75, but for sm_80"), "{}", old.why);
        }
    }
}
