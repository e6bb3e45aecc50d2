//! Device names as Tensors carry them: one spelling for each device, so that nodes can be compared.

use std::sync::Arc;

/// The name without a number 0 and with its kind in upper case, NV for CUDA: `cpu`, `CPU` and `CPU:0` are one device.
/// Whether there is such a device is the registry's knowledge, at the first realize.
pub(crate) fn canonical(name: &str) -> Arc<str> {
    let name = name.trim();
    let (kind, rest) = name.split_once(':').map_or((name, ""), |(kind, rest)| (kind, rest));
    let kind = kind.to_ascii_uppercase();
    let rest = match rest {
        path if kind == "DISK" => path,
        "0" => "",
        rest => rest.strip_prefix("0:").unwrap_or(rest),
    };
    let kind = if kind == "CUDA" { "NV" } else { &kind };
    if rest.is_empty() { kind.into() } else { format!("{kind}:{rest}").into() }
}

/// The vendor, or the kind of a device without one.
pub(crate) fn kind(name: &str) -> &str {
    name.split(':').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_device_has_one_name() {
        for (name, want) in [
            ("cpu", "CPU"),
            ("CPU:0", "CPU"),
            ("CPU:1", "CPU:1"),
            ("cuda:2", "NV:2"),
            ("NV:0:emu=sm_90", "NV:emu=sm_90"),
            ("NV:1:emu=sm_90", "NV:1:emu=sm_90"),
            ("disk:0", "DISK:0"),
            (" Toy:east ", "TOY:east"),
        ] {
            assert_eq!(&*canonical(name), want);
        }
        assert_eq!((kind("NV:1:emu=sm_90"), kind("CPU")), ("NV", "CPU"));
    }
}
