//! CONTROL: each command answers something that makes sense, and refuses another size, another object, and nothing.
//!
//! One row a command makes four cases.

use super::client::{Device, code, refused, want};
use super::on_card;
use crate::case::{Case, Step, holds};
use bytemuck::Pod;
use doorbell_ioctl::abi::nvrm::{self as rm, Control, Status};

/// The object that a command is for.
#[derive(Clone, Copy)]
enum On {
    Client,
    Device,
    Subdevice,
}

impl On {
    fn of(self, device: &Device<'_>) -> u32 {
        match self {
            Self::Client => device.client.root,
            Self::Device => device.device,
            Self::Subdevice => device.subdevice,
        }
    }

    /// An object that it is not for.
    fn wrong(self, device: &Device<'_>) -> u32 {
        match self {
            Self::Subdevice => device.space,
            _ => device.subdevice,
        }
    }
}

fn row<T: Pod + Default>(
    name: &str,
    control: &'static Control<T>,
    on: On,
    ask: fn(&Device<'_>, &mut T),
    makes_sense: fn(&Device<'_>, &T) -> bool,
) -> Vec<Case> {
    let (cmd, len) = (control.cmd, size_of::<T>());
    let refuses = move |device: &Device<'_>, object: u32, len: usize, codes: &[Status]| -> Step {
        let got = device.client.control_raw(object, cmd, &mut vec![0; len]);
        holds(&format!("got {got:?}, want one of {codes:?}"), got.is_err_and(|status| codes.contains(&status)))
    };
    vec![
        on_card(
            &format!("control.answers-{name}"),
            "The command fills its struct with what makes sense",
            move |device| {
                let mut params = T::default();
                ask(device, &mut params);
                let reported = want("CONTROL", device.client.control(on.of(device), control, params))?;
                holds("the answer makes sense", makes_sense(device, &reported))
            },
        ),
        on_card(&format!("control.size-{name}"), "A struct of another size is refused", move |device| {
            const CODES: &[Status] = &[code::INVALID_ARGUMENT, Status(0x3a)];
            refuses(device, on.of(device), len + 4, CODES)?;
            refuses(device, on.of(device), (len - 1).max(1) / 2 + usize::from(len == 1) * 2, CODES)
        }),
        on_card(
            &format!("control.object-{name}"),
            "The command to an object of another class is refused",
            move |device| {
                let codes = [code::NOT_SUPPORTED, code::INVALID_CLASS, code::INVALID_OBJECT_HANDLE];
                refuses(device, on.wrong(device), len, &codes)
            },
        ),
        on_card(
            &format!("control.nothing-{name}"),
            "The command to no object, and of no client, is refused",
            move |device| {
                refuses(device, 0xdead, len, &[code::OBJECT_NOT_FOUND])?;
                let mut bytes = vec![0_u8; len];
                let params = bytes.as_mut_ptr().expose_provenance() as u64;
                let mut args = rm::RmControl {
                    h_client: 0x77,
                    h_object: on.of(device),
                    cmd,
                    params,
                    params_size: len as u32,
                    ..Default::default()
                };
                want("CONTROL", device.client.call(device.client.control, &rm::CONTROL, &mut args))?;
                refused("of no client", super::client::outcome(args.status), code::INVALID_CLIENT)
            },
        ),
    ]
}

fn card_id(device: &Device<'_>) -> u32 {
    let ids = device.client.control(device.client.root, &rm::GPU_GET_PROBED_IDS, rm::ProbedIds::default());
    ids.map_or(0, |ids| ids.gpu_ids[0])
}

fn text(bytes: &[u8]) -> bool {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    end > 2 && bytes[..end].iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ')
}

pub(crate) fn cases() -> Vec<Case> {
    use On::{Client, Device, Subdevice};
    let mut all = Vec::new();
    all.extend(row(
        "build-version",
        &rm::SYSTEM_GET_BUILD_VERSION_V2,
        Client,
        |_, _| {},
        |_, a| text(&a.driver_version_buffer),
    ));
    // RM answers it from a cache, whatever the object.
    all.truncate(2);
    all.extend(row("fabric-status", &rm::SYSTEM_GET_FABRIC_STATUS, Client, |_, _| {}, |_, a| a.fabric_status > 0));
    all.extend(row("attached-ids", &rm::GPU_GET_ATTACHED_IDS, Client, |_, _| {}, |d, a| a.gpu_ids[0] == card_id(d)));
    all.extend(row(
        "probed-ids",
        &rm::GPU_GET_PROBED_IDS,
        Client,
        |_, _| {},
        |_, a| a.gpu_ids[0] != 0 && a.gpu_ids.contains(&u32::MAX),
    ));
    all.extend(row(
        "id-info",
        &rm::GPU_GET_ID_INFO_V2,
        Client,
        |d, a| a.gpu_id = card_id(d),
        |_, a| a.gpu_flags != 0 && (a.device_instance, a.sub_device_instance) == (0, 0),
    ));
    all.extend(row(
        "class-list",
        &rm::GPU_GET_CLASSLIST_V2,
        Device,
        |_, _| {},
        |_, a| {
            let classes = a.class_list.get(..a.num_classes as usize).unwrap_or_default();
            // RM's own root class is 0.
            [rm::FERMI_VASPACE_A, rm::KEPLER_CHANNEL_GROUP_A].iter().all(|class| classes.contains(class))
        },
    ));
    all.extend(row("name", &rm::GPU_GET_NAME_STRING, Subdevice, |_, _| {}, |_, a| text(&a.gpu_name_string)));
    all.extend(row(
        "short-name",
        &rm::GPU_GET_SHORT_NAME_STRING,
        Subdevice,
        |_, _| {},
        |_, a| text(&a.gpu_short_name_string),
    ));
    all.extend(row(
        "uuid",
        &rm::GPU_GET_GID_INFO,
        Subdevice,
        |_, a| a.flags = 2,
        |d, a| a.data[..16] == d.uuid && a.length == 16,
    ));
    all.extend(row(
        "engines",
        &rm::GPU_GET_ENGINES_V2,
        Subdevice,
        |_, _| {},
        |_, a| a.engine_count > 1 && a.engine_list[0] == 1,
    ));
    all.extend(row(
        "first-async-copy-engine",
        &rm::GPU_GET_FIRST_ASYNC_CE_IDX,
        Subdevice,
        |_, _| {},
        |_, a| a.first_async_ce_idx < 64,
    ));
    all.extend(row("architecture", &rm::MC_GET_ARCH_INFO, Subdevice, |_, _| {}, |_, a| a.architecture >= 0x160));
    all.extend(row(
        "sm-order",
        &rm::GR_GET_GLOBAL_SM_ORDER,
        Subdevice,
        |_, _| {},
        |_, a| a.num_sm >= a.num_tpc && a.num_tpc > 0,
    ));
    all.extend(row("gpc-mask", &rm::GR_GET_GPC_MASK, Subdevice, |_, _| {}, |_, a| a.gpc_mask != 0));
    all.extend(row("tpc-mask", &rm::GR_GET_TPC_MASK, Subdevice, |_, _| {}, |_, a| a.tpc_mask != 0));
    all.extend(row(
        "context-buffer-size",
        &rm::GR_GET_CTX_BUFFER_SIZE,
        Subdevice,
        |d, a| a.h_channel = d.compute().map_or(0, |channel| channel.handle),
        |_, a| a.total_buffer_size > 4096,
    ));
    all.extend(row("time", &rm::TIMER_GET_TIME, Subdevice, |_, _| {}, |_, a| a.time_nsec > 1000));
    all.extend(row("bus-info", &rm::BUS_GET_PCI_INFO, Subdevice, |_, _| {}, |_, a| a.pci_device_id & 0xffff == 0x10de));
    all.extend(row(
        "bars",
        &rm::BUS_GET_PCI_BAR_INFO,
        Subdevice,
        |_, _| {},
        |_, a| a.pci_bar_count > 0 && a.pci_bar_info[0].bar_size_bytes > 0,
    ));
    all.extend(row(
        "performance-state",
        &rm::PERF_GET_CURRENT_PSTATE,
        Subdevice,
        |_, a| a.curr_pstate = 7,
        |_, a| a.curr_pstate.is_power_of_two(),
    ));
    all.extend(row(
        "error-count",
        &rm::RC_GET_ERROR_COUNT,
        Subdevice,
        // Of the card, not of the client: it need not be 0.
        |_, a| a.error_count = u32::MAX,
        |_, a| a.error_count < u32::MAX,
    ));
    all.extend(row(
        "reset-status",
        &rm::GPU_GET_RESET_STATUS,
        Subdevice,
        |_, a| a.b_reset_required = 1,
        |_, a| a.b_reset_required == 0,
    ));
    all.extend(row(
        "recovery-action",
        &rm::GPU_GET_RECOVERY_ACTION,
        Subdevice,
        |_, a| a.action = 9,
        |_, a| a.action == 0,
    ));
    all.extend(row(
        "copy-engine-caps",
        &rm::CE_GET_CAPS_V2,
        Subdevice,
        |_, a| a.ce_engine_type = 0x0b,
        |_, a| a.caps_tbl != 0,
    ));
    all.extend(row(
        "framebuffer-size",
        &rm::FB_GET_INFO_V2,
        Subdevice,
        |_, a| {
            a.fb_info_list_size = 1;
            a.fb_info_list[0].index = 7;
        },
        |_, a| a.fb_info_list[0].data > 1024,
    ));
    all.extend(row(
        "gpu-info",
        &rm::GPU_GET_INFO_V2,
        Subdevice,
        |_, a| {
            a.gpu_info_list_size = 1;
            a.gpu_info_list[0].index = 0x2a;
            a.gpu_info_list[0].data = 77;
        },
        |_, a| a.gpu_info_list[0].data < 3,
    ));
    all.extend(row(
        "graphics-info",
        &rm::GR_GET_INFO_V2,
        Subdevice,
        |_, a| {
            a.gr_info_list_size = 1;
            a.gr_info_list[0].index = 0x0c;
        },
        |_, a| a.gr_info_list[0].data >= 0x700,
    ));
    all.extend(row(
        "bus-info-list",
        &rm::BUS_GET_INFO_V2,
        Subdevice,
        |_, a| {
            a.bus_info_list_size = 1;
            a.bus_info_list[0].index = 7;
        },
        |_, a| a.bus_info_list[0].data != 0,
    ));
    all.extend(extra());
    all
}

fn extra() -> Vec<Case> {
    vec![
        on_card("control.time-runs", "The card's time grows", |device| {
            let now = || {
                want("TIMER_GET_TIME", device.client.control(device.subdevice, &rm::TIMER_GET_TIME, Default::default()))
            };
            let first: rm::TimerTime = now()?;
            device.client.bench.pause();
            holds("later", now()?.time_nsec > first.time_nsec)
        }),
        on_card("control.list-too-long", "A list that claims more entries than it has is refused", |device| {
            let asked = rm::GrInfo { gr_info_list_size: 1 << 20, ..Default::default() };
            let got = device.client.control(device.subdevice, &rm::GR_GET_INFO_V2, asked);
            refused("GR_GET_INFO_V2", got.map(|_| ()), code::INVALID_ARGUMENT)
        }),
        on_card(
            "control.params-without-size",
            "Params without a size, and a size without params, are refused",
            |device| {
                let call = |params: u64, params_size: u32| {
                    let (h_client, h_object) = (device.client.root, device.subdevice);
                    let cmd = rm::MC_GET_ARCH_INFO.cmd;
                    let mut args = rm::RmControl { h_client, h_object, cmd, params, params_size, ..Default::default() };
                    device.client.call(device.client.control, &rm::CONTROL, &mut args)?;
                    super::client::outcome(args.status)
                };
                refused("no params", call(0, 16), code::INVALID_ARGUMENT)?;
                refused("no size", call(0x1000, 0), code::INVALID_ARGUMENT)?;
                refused("params nowhere", call(0x10, 16), code::INVALID_ADDRESS)
            },
        ),
    ]
}
