//! Hostile arguments, from the tables of calls: structs of zeros, of other sizes, numbers that are no call, clients and
//! files of others.
//!
//! RM takes a struct of exactly its size (EINVAL otherwise) and tells the outcome inside.

use super::client::{Client, Device, code, outcome, refused, want};
use super::{on_card, with_client};
use crate::case::{Case, Step, holds, same};
use doorbell_ioctl::abi::nvrm::{self as rm, Status};
use doorbell_ioctl::abi::{Desc, uvm};
use doorbell_ioctl::port::Errno;

/// Calls of the control file whose struct of zeros is refused with one of these codes.
const ZEROS: &[(&Desc, &[Status])] = &[
    (&rm::FREE.desc, &[code::INVALID_OBJECT_HANDLE, code::INVALID_CLIENT]),
    (&rm::DUP_OBJECT.desc, &[code::INVALID_CLIENT, code::INVALID_OBJECT_HANDLE]),
    (&rm::SHARE.desc, &[code::INVALID_OBJECT_HANDLE, code::INVALID_CLIENT]),
    (&rm::IDLE_CHANNELS.desc, &[code::INVALID_OBJECT_HANDLE, code::INVALID_CLIENT]),
    (&rm::UNMAP_MEMORY.desc, &[code::INVALID_OBJECT_HANDLE, code::INVALID_CLIENT]),
    (&rm::MAP_MEMORY.desc, &[code::INVALID_OBJECT_HANDLE, code::INVALID_CLIENT]),
    (&rm::MAP_MEMORY_DMA.desc, &[code::INVALID_LIMIT, code::INVALID_OBJECT_HANDLE, code::INVALID_CLIENT]),
    (&rm::UNMAP_MEMORY_DMA.desc, &[code::INVALID_OBJECT_HANDLE, code::INVALID_CLIENT]),
    (&rm::GET_EVENT_DATA.desc, &[code::OPERATING_SYSTEM]),
    (&rm::FREE_OS_EVENT.desc, &[code::INVALID_EVENT]),
];

/// Calls whose struct has one size.
const SIZED: &[&Desc] = &[
    &rm::FREE.desc,
    &rm::CONTROL.desc,
    &rm::DUP_OBJECT.desc,
    &rm::SHARE.desc,
    &rm::IDLE_CHANNELS.desc,
    &rm::UNMAP_MEMORY.desc,
    &rm::MAP_MEMORY.desc,
    &rm::UNMAP_MEMORY_DMA.desc,
    &rm::GET_EVENT_DATA.desc,
    &rm::FREE_OS_EVENT.desc,
    &rm::ALLOC_OS_EVENT.desc,
    &rm::SYS_PARAMS.desc,
    &rm::CHECK_VERSION_STR.desc,
    &rm::REGISTER_FD.desc,
];

/// UVM's calls whose struct of zeros is refused in an initialised space.
const UVM: &[(&Desc, Status)] = &[
    (&uvm::REGISTER_GPU.desc, code::GPU_UUID_NOT_FOUND),
    (&uvm::UNREGISTER_GPU.desc, code::INVALID_DEVICE),
    (&uvm::REGISTER_GPU_VASPACE.desc, code::INVALID_DEVICE),
    (&uvm::UNREGISTER_GPU_VASPACE.desc, code::INVALID_DEVICE),
    (&uvm::REGISTER_CHANNEL.desc, code::INVALID_DEVICE),
    (&uvm::UNREGISTER_CHANNEL.desc, code::INVALID_CHANNEL),
    (&uvm::ENABLE_PEER_ACCESS.desc, code::INVALID_DEVICE),
    (&uvm::DISABLE_PEER_ACCESS.desc, code::INVALID_DEVICE),
    (&uvm::MAP_EXTERNAL_ALLOCATION.desc, code::INVALID_ADDRESS),
    (&uvm::UNMAP_EXTERNAL.desc, code::INVALID_ADDRESS),
    (&uvm::FREE.desc, code::INVALID_ADDRESS),
    (&uvm::VALIDATE_VA_RANGE.desc, code::INVALID_ADDRESS),
    (&uvm::CREATE_EXTERNAL_RANGE.desc, code::INVALID_ADDRESS),
    (&uvm::PAGEABLE_MEM_ACCESS_ON_GPU.desc, code::INVALID_DEVICE),
];

fn short(desc: &Desc) -> String {
    desc.name.trim_start_matches("NV_ESC_").trim_start_matches("UVM_").to_lowercase().replace('_', "-")
}

/// The driver's status inside a struct.
fn status(desc: &Desc, bytes: &[u8]) -> Status {
    let own = desc.layout.field("status").or_else(|| desc.layout.field("rm_status"));
    let value = own.and_then(|field| field.read(bytes)).or_else(|| {
        let last = desc.layout.fields.iter().find_map(|outer| match outer.kind {
            doorbell_ioctl::abi::Kind::Nested(inner) => inner.field("status"),
            _ => None,
        })?;
        last.read(bytes)
    });
    Status(value.unwrap_or(0) as u32)
}

/// Whatever a bad call did: the driver makes an object and frees it.
fn still_works(client: &Client<'_>) -> Step {
    // RM makes a device only for a process that has the card's file open.
    let card = client.card(0)?;
    let mut params = rm::DeviceAlloc { h_client_share: client.root, ..Default::default() };
    let device = want("ALLOC", client.alloc_with(client.root, rm::NV01_DEVICE_0, &mut params))?;
    want("FREE", client.free(device))?;
    client.close_file(card)
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all: Vec<Case> = ZEROS
        .iter()
        .map(|(desc, codes)| {
            let name = format!("hostile.zeros-{}", short(desc));
            on_control(&name, "A struct of zeros is refused inside, and harms nothing", move |client| {
                let mut bytes = vec![0; desc.layout.len_bytes as usize];
                same(desc.name, client.raw(client.control, desc.request, &mut bytes), Ok(0))?;
                let got = status(desc, &bytes);
                holds(&format!("{}: got {got}, want one of {codes:?}", desc.name), codes.contains(&got))
            })
        })
        .collect();
    all.extend(SIZED.iter().map(|desc| {
        let name = format!("hostile.size-{}", short(desc));
        on_control(&name, "A struct of another size is EINVAL", move |client| {
            let len = desc.layout.len_bytes;
            for other in [len - 4, len + 4, len + 64].into_iter().filter(|len| *len > 0) {
                let request = desc.request & !(0x3fff << 16) | other << 16;
                let got = client.raw(client.control, request, &mut vec![0; other as usize]);
                same(&format!("{} of {other} bytes", desc.name), got, Err(Errno::EINVAL))?;
            }
            let request = desc.request & !(0x3fff << 16);
            same("of no bytes", client.raw(client.control, request, &mut []), Err(Errno::EINVAL))
        })
    }));
    all.extend(UVM.iter().map(|(desc, code)| {
        let name = format!("hostile.uvm-zeros-{}", short(desc));
        on_card(&name, "A struct of zeros is refused inside, and harms nothing", move |device| {
            let mut bytes = vec![0; desc.layout.len_bytes as usize];
            same(desc.name, device.client.raw(device.uvm, desc.request, &mut bytes), Ok(0))?;
            same(desc.name, status(desc, &bytes), *code)?;
            still_works(&device.client)
        })
    }));
    all.extend(numbers());
    all.extend(others());
    all
}

fn on_control(name: &str, what: &str, body: impl Fn(&Client<'_>) -> Step + Send + Sync + 'static) -> Case {
    with_client(name, what, move |client| {
        body(client)?;
        still_works(client)
    })
}

fn numbers() -> Vec<Case> {
    let escape = |number: u32| {
        on_control(&format!("hostile.escape-{number:#04x}"), "A number that is no call is EINVAL", move |client| {
            let got = client.raw(client.control, 0xc010_4600 | number, &mut [0; 16]);
            holds("EINVAL or ENOTTY", matches!(got, Err(Errno::EINVAL | Errno::ENOTTY)))
        })
    };
    let mut all: Vec<Case> = [0x00, 0x01, 0x7f, 0xff].into_iter().map(escape).collect();
    all.push(on_control("hostile.wrapped-number", "IOCTL_XFER_CMD of a number that is none is EINVAL", |client| {
        let xfer = |cmd, size, ptr| {
            let mut args = rm::Xfer { cmd, size, ptr };
            client.raw(client.control, rm::IOCTL_XFER_CMD.desc.request, bytemuck::bytes_of_mut(&mut args))
        };
        let room = [0_u8; 64];
        let at = room.as_ptr().expose_provenance() as u64;
        same("a number of 9 bits", xfer(0x1ff, 16, at), Err(Errno::EINVAL))?;
        same("a huge struct", xfer(0x2b, u32::MAX, at), Err(Errno::EINVAL))?;
        same("a struct nowhere", xfer(0x2b, 48, 0x10), Err(Errno::EFAULT))?;
        same("another size than the call's", xfer(0x2b, 12, at), Err(Errno::EINVAL))
    }));
    all
}

fn others() -> Vec<Case> {
    vec![
        on_card("hostile.object-of-another-client", "Another client's object is not there", |device| {
            let other = Client::new(device.client.bench)?;
            // FREE succeeds for what is not there.
            let mut args = rm::RmFree { h_root: other.root, h_object_old: device.subdevice, ..Default::default() };
            want("FREE", other.call(other.control, &rm::FREE, &mut args))?;
            want("FREE", outcome(args.status))?;
            let got = other.control(device.subdevice, &rm::MC_GET_ARCH_INFO, rm::ArchInfo::default());
            refused("CONTROL", got.map(|_| ()), code::OBJECT_NOT_FOUND)?;
            other.end()?;
            let own = device.client.control(device.subdevice, &rm::MC_GET_ARCH_INFO, rm::ArchInfo::default());
            want("its owner's CONTROL", own).map(|_| ())
        }),
        on_card("hostile.client-on-another-file", "A client is not to be had through another control file", |device| {
            let other = Client::new(device.client.bench)?;
            let mut args =
                rm::RmFree { h_root: device.client.root, h_object_old: device.subdevice, ..Default::default() };
            want("FREE", other.call(other.control, &rm::FREE, &mut args))?;
            holds("it is refused", args.status != 0)?;
            other.end()
        }),
        on_card("hostile.uvm-on-the-control-file", "A command of UVM on the control file is EINVAL", |device| {
            let mut bytes = vec![0; size_of::<uvm::Initialize>()];
            let got = device.client.raw(device.client.control, uvm::INITIALIZE.desc.request, &mut bytes);
            holds("EINVAL or EFAULT", matches!(got, Err(Errno::EINVAL | Errno::EFAULT | Errno::ENOTTY)))
        }),
        on_card("hostile.uvm-looks-at-no-control-file", "UVM takes a space by client and handle alone", |device| {
            want("UVM_UNREGISTER_GPU_VASPACE", device.unregister_space())?;
            let mut args = uvm::RegisterGpuVaSpace {
                gpu_uuid: device.uuid,
                rm_ctrl_fd: device.uvm.0,
                h_client: device.client.root,
                h_va_space: device.space,
                rm_status: 0,
            };
            let got = device.uvm_call(&uvm::REGISTER_GPU_VASPACE, &mut args, |a| a.rm_status);
            want("UVM_REGISTER_GPU_VASPACE", got)
        }),
        on_control("hostile.null-control", "A command of number 0 does nothing, for any client and object", |client| {
            let mut args = rm::RmControl::default();
            want("CONTROL", client.call(client.control, &rm::CONTROL, &mut args))?;
            want("CONTROL", outcome(args.status))
        }),
        on_card(
            "hostile.free-of-the-root-of-another",
            "The device works after a client beside it is freed",
            |device: &Device<'_>| {
                let other = Client::new(device.client.bench)?;
                other.end()?;
                let own = device.client.control(device.subdevice, &rm::MC_GET_ARCH_INFO, rm::ArchInfo::default());
                holds("an architecture", want("CONTROL", own)?.architecture != 0)
            },
        ),
    ]
}
