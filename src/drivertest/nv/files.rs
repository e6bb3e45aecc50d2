//! Files, versions, cards.

use super::client::Client;
use super::{on_card, with_client};
use crate::case::{Case, Change, Step, holds, same};
use doorbell_ioctl::abi::nvrm as rm;
use doorbell_ioctl::port::{Errno, OpenFlags};

const QUERY: u32 = 0x32;
const STRICT: u32 = 0;

fn version(client: &Client<'_>, cmd: u32, text: [u8; 64]) -> (Result<i32, Errno>, rm::CheckVersion) {
    let mut args = rm::CheckVersion { cmd, version_string: text, ..Default::default() };
    let answer = client.raw(client.control, rm::CHECK_VERSION_STR.desc.request, bytemuck::bytes_of_mut(&mut args));
    (answer, args)
}

fn cards(client: &Client<'_>) -> Step<Vec<rm::CardInfo>> {
    let mut cards = rm::CardInfos::default();
    same(
        "CARD_INFO",
        client.raw(client.control, rm::CARD_INFO.desc.request, bytemuck::bytes_of_mut(&mut cards)),
        Ok(0),
    )?;
    Ok(cards.cards.iter().filter(|card| card.valid != 0).copied().collect())
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("nv.open.missing-card", "A card that is not there cannot be opened", |bench| {
            let opened = bench.port.open("/dev/nvidia200", OpenFlags::DEVICE);
            holds("ENOENT or ENODEV", matches!(opened, Err(Errno::ENOENT | Errno::ENODEV)))
        }),
        with_client("open.closed-file", "A call on a closed file is EBADF", |client| {
            let file = client.open("/dev/nvidiactl")?;
            client.close_file(file)?;
            let answer = client.raw(file, rm::SYS_PARAMS.desc.request, &mut [0; size_of::<rm::SysParams>()]);
            same("SYS_PARAMS", answer, Err(Errno::EBADF))
        }),
        with_client("open.two-control-files", "Two control files have a client each", |client| {
            let other = Client::new(client.bench)?;
            holds("two files", other.control != client.control)?;
            holds("two handles", other.root != client.root)?;
            other.end()
        }),
        with_client("open.version", "CHECK_VERSION_STR answers a release that it then accepts", |client| {
            let (answer, reported) = version(client, QUERY, [0; 64]);
            same("query", (answer, reported.reply), (Ok(0), 1))?;
            holds(
                "a release is digits and dots",
                reported.version_string[0].is_ascii_digit() && reported.version_string.contains(&b'.'),
            )?;
            let (answer, again) = version(client, STRICT, reported.version_string);
            same("the same release", (answer, again.reply), (Ok(0), 1))
        }),
        with_client("open.version-other", "CHECK_VERSION_STR refuses another release", |client| {
            let (_, mut reported) = version(client, QUERY, [0; 64]);
            reported.version_string[0] ^= 1;
            let (answer, _) = version(client, STRICT, reported.version_string);
            same("another release", answer, Err(Errno::EINVAL))
        }),
        with_client("open.build-version", "The build version is the file's release", |client| {
            let (_, reported) = version(client, QUERY, [0; 64]);
            let build = client.control(client.root, &rm::SYSTEM_GET_BUILD_VERSION_V2, rm::BuildVersion::default());
            let build = super::client::want("GET_BUILD_VERSION_V2", build)?;
            same("both", &build.driver_version_buffer[..32], &reported.version_string[..32])
        }),
        with_client("open.card-info", "CARD_INFO lists cards with vendor, ids and windows of their own", |client| {
            let cards = cards(client)?;
            holds("there is one", !cards.is_empty())?;
            for (at, card) in cards.iter().enumerate() {
                same("vendor", card.vendor_id, 0x10de)?;
                holds("device id", card.device_id != 0)?;
                holds("registers", card.reg_address != 0 && card.reg_size > 0)?;
                holds("its id is its own", cards[..at].iter().all(|other| other.gpu_id != card.gpu_id))?;
            }
            Ok(())
        }),
        with_client("open.card-info-two", "Two cards are two entries with two minors", |client| {
            let cards = cards(client)?;
            client.bench.require(cards.len() > 1, "two-cards", "there is one card")?;
            holds("two minors", cards[0].minor_number != cards[1].minor_number)
        })
        .on(Change::Nv(|config| config.gpus = 2)),
        on_card("open.bus-info", "BUS_GET_PCI_INFO says what the kernel says of the card's slot", |device| {
            let cards = cards(&device.client)?;
            let first = cards.iter().find(|card| card.minor_number == 0);
            let Some(card) = first else { return holds("the card is among them", false) };
            let slot = format!("{:04x}:{:02x}:{:02x}.{}", card.domain, card.bus, card.slot, card.function);
            let number = |file: &str| -> Step<u32> {
                let text = device.client.bench.port.read_file(&format!("/sys/bus/pci/devices/{slot}/{file}"));
                let text = text.map(|bytes| String::from_utf8_lossy(&bytes).trim().trim_start_matches("0x").to_owned());
                let number = text.ok().and_then(|text| u32::from_str_radix(&text, 16).ok());
                device.client.bench.require(
                    number.is_some(),
                    "pci-sysfs",
                    "the kernel shows no numbers of the slot",
                )?;
                Ok(number.unwrap_or(0))
            };
            let info = device.client.control(device.subdevice, &rm::BUS_GET_PCI_INFO, rm::BusPciInfo::default());
            let info = super::client::want("BUS_GET_PCI_INFO", info)?;
            same("device", info.pci_device_id, number("device")? << 16 | number("vendor")?)?;
            let subsystem = number("subsystem_device")? << 16 | number("subsystem_vendor")?;
            same("subsystem", info.pci_sub_system_id, subsystem)?;
            same("revision", info.pci_revision_id, number("revision")?)
        }),
        with_client("open.probed-ids", "The probed ids are those of CARD_INFO", |client| {
            let cards = cards(client)?;
            let ids = client.control(client.root, &rm::GPU_GET_PROBED_IDS, rm::ProbedIds::default());
            let ids = super::client::want("GPU_GET_PROBED_IDS", ids)?;
            for (card, id) in cards.iter().zip(ids.gpu_ids) {
                same("id", id, card.gpu_id)?;
            }
            same("behind the last", ids.gpu_ids.get(cards.len()).copied(), Some(u32::MAX))
        }),
        with_client("open.sys-params", "SYS_PARAMS takes no other size of memory blocks than it has", |client| {
            // A size would stay until the module is unloaded; 0 changes nothing.
            let mut args = rm::SysParams { memblock_size: 0 };
            let answer = client.raw(client.control, rm::SYS_PARAMS.desc.request, bytemuck::bytes_of_mut(&mut args));
            holds("it has none yet, or another", matches!(answer, Ok(0) | Err(Errno::EBUSY)))
        }),
        with_client("open.register-fd", "REGISTER_FD binds a card's file to a control file, once", |client| {
            let card = client.card(0)?;
            let mut again = rm::RegisterFd { ctl_fd: client.control.0 };
            let answer = client.raw(card, rm::REGISTER_FD.desc.request, bytemuck::bytes_of_mut(&mut again));
            same("a second time", answer, Err(Errno::EINVAL))
        }),
        with_client(
            "open.register-fd-of-a-card",
            "REGISTER_FD to a file that is no control file is EINVAL",
            |client| {
                let card = client.open("/dev/nvidia0")?;
                let mut args = rm::RegisterFd { ctl_fd: card.0 };
                let answer = client.raw(card, rm::REGISTER_FD.desc.request, bytemuck::bytes_of_mut(&mut args));
                same("REGISTER_FD", answer, Err(Errno::EINVAL))
            },
        ),
        with_client("open.control-call-on-a-card", "Objects are made on the control file only", |client| {
            let card = client.card(0)?;
            let answer = client.raw(card, rm::ALLOC.desc.request, &mut [0; size_of::<rm::RmAlloc>()]);
            same("ALLOC", answer, Err(Errno::EINVAL))
        }),
        with_client("open.card-call-on-control", "Pinned memory is made on a card's file only", |client| {
            let answer =
                client.raw(client.control, rm::ALLOC_MEMORY.desc.request, &mut [0; size_of::<rm::RmAllocMemory>()]);
            same("ALLOC_MEMORY", answer, Err(Errno::EINVAL))
        }),
        on_card(
            "open.closing-ends-everything",
            "Closing the control file ends its client's objects and channels",
            |device| {
                let other = Client::new(device.client.bench)?;
                let mut params = rm::DeviceAlloc { h_client_share: other.root, ..Default::default() };
                super::client::want("ALLOC", other.alloc_with(other.root, rm::NV01_DEVICE_0, &mut params))?;
                let root = other.root;
                other.end()?;
                let mut args = rm::RmFree { h_root: root, h_object_old: root, ..Default::default() };
                super::client::want("FREE", device.client.call(device.client.control, &rm::FREE, &mut args))?;
                holds("the client is gone", args.status != 0)
            },
        ),
    ]
}
