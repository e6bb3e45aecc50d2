//! Hostile arguments, from the tables of calls: structs of zeros, too short, too long, numbers that are no call, bad
//! pointers, handles that were freed.
//!
//! The driver finds a handler by the number alone; a shorter struct is extended with zeros, a longer one is cut
//! (`kfd_ioctl`). So a struct of zeros, its first word alone, and the same with garbage behind it have one answer.

use super::client::{HOST, Kfd, PAGE, Ring, asked};
use super::on_card;
use crate::case::{Case, Step, holds, same};
use doorbell_ioctl::abi::kfd as k;
use doorbell_ioctl::abi::{Desc, request_number};
use doorbell_ioctl::port::Errno;

/// What a bound process without queues and events gets for zeros; several errors where kernels differ.
const ZEROS: &[(&Desc, &[Result<i32, Errno>])] = &[
    (&k::GET_VERSION.desc, &[Ok(0)]),
    (&k::CREATE_QUEUE.desc, &[Err(Errno::EINVAL)]),
    (&k::DESTROY_QUEUE.desc, &[Err(Errno::EINVAL)]),
    (&k::SET_MEMORY_POLICY.desc, &[Err(Errno::EINVAL)]),
    (&k::GET_CLOCK_COUNTERS.desc, &[Ok(0)]),
    (&k::GET_PROCESS_APERTURES.desc, &[Ok(0)]),
    (&k::UPDATE_QUEUE.desc, &[Err(Errno::EFAULT)]),
    (&k::DESTROY_EVENT.desc, &[Err(Errno::EINVAL)]),
    (&k::SET_EVENT.desc, &[Err(Errno::EINVAL)]),
    (&k::RESET_EVENT.desc, &[Err(Errno::EINVAL)]),
    (&k::WAIT_EVENTS.desc, &[Ok(0)]),
    (&k::SET_SCRATCH_BACKING_VA.desc, &[Err(Errno::EINVAL)]),
    (&k::SET_TRAP_HANDLER.desc, &[Err(Errno::EINVAL)]),
    (&k::GET_PROCESS_APERTURES_NEW.desc, &[Ok(0)]),
    (&k::ACQUIRE_VM.desc, &[Err(Errno::EINVAL)]),
    (&k::ALLOC_MEMORY_OF_GPU.desc, &[Err(Errno::EINVAL)]),
    (&k::FREE_MEMORY_OF_GPU.desc, &[Err(Errno::EINVAL)]),
    (&k::MAP_MEMORY_TO_GPU.desc, &[Err(Errno::EINVAL)]),
    (&k::UNMAP_MEMORY_FROM_GPU.desc, &[Err(Errno::EINVAL)]),
    (&k::SET_CU_MASK.desc, &[Err(Errno::EINVAL)]),
    (&k::GET_QUEUE_WAVE_STATE.desc, &[Err(Errno::EFAULT), Err(Errno::EINVAL)]),
    (&k::GET_DMABUF_INFO.desc, &[Err(Errno::EINVAL)]),
    (&k::IMPORT_DMABUF.desc, &[Err(Errno::EINVAL)]),
    (&k::SVM.desc, &[Err(Errno::EPERM), Err(Errno::EINVAL)]),
    (&k::SET_XNACK_MODE.desc, &[Ok(0)]),
    (&k::CRIU_OP.desc, &[Err(Errno::EACCES), Err(Errno::EINVAL), Err(Errno::EPERM)]),
    (&k::AVAILABLE_MEMORY.desc, &[Err(Errno::EINVAL)]),
    (&k::EXPORT_DMABUF.desc, &[Err(Errno::EINVAL)]),
    (&k::RUNTIME_ENABLE.desc, &[Ok(0)]),
];

fn short_name(desc: &Desc) -> String {
    desc.name.trim_start_matches("AMDKFD_IOC_").to_lowercase().replace('_', "-")
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all: Vec<Case> = ZEROS.iter().flat_map(|(desc, answers)| sizes(desc, answers)).collect();
    all.extend(numbers());
    all.extend(pointers());
    all.extend(freed());
    all
}

/// Whatever a bad call did: the driver answers, and a buffer comes and goes.
fn still_works(kfd: &Kfd<'_>) -> Step {
    let mut version = k::GetVersion::default();
    kfd.call(&k::GET_VERSION, &mut version)?;
    let buffer = kfd.buffer(PAGE, HOST)?;
    same("UNMAP", kfd.unmap(&buffer), Ok(1))?;
    kfd.free(&buffer)
}

fn answers(kfd: &Kfd<'_>, desc: &Desc, bytes: &mut [u8], want: &[Result<i32, Errno>]) -> Step {
    let request = Kfd::resized(desc, bytes.len() as u32);
    let got = kfd.raw(request, bytes);
    holds(&format!("{} of {} bytes: got {got:?}, want one of {want:?}", desc.name, bytes.len()), want.contains(&got))?;
    still_works(kfd)
}

fn sizes(desc: &'static Desc, want: &'static [Result<i32, Errno>]) -> Vec<Case> {
    let (name, len) = (short_name(desc), desc.layout.len_bytes as usize);
    let out_only = desc.request >> 30 == 2;
    let garbage = move || {
        // The kernel reads what it knows; of a call that it only answers it reads nothing.
        let mut bytes = vec![0; len];
        bytes.extend([0xa5; 64]);
        if out_only {
            bytes[..len].fill(0x5a);
        }
        bytes
    };
    vec![
        on_card(&format!("hostile.zeros-{name}"), "A struct of zeros has its answer, and harms nothing", move |kfd| {
            answers(kfd, desc, &mut vec![0; len], want)
        }),
        on_card(
            &format!("hostile.short-{name}"),
            "A struct of one word is taken as one that goes on with zeros",
            move |kfd| answers(kfd, desc, &mut [0; 4], want),
        ),
        on_card(
            &format!("hostile.long-{name}"),
            "Bytes behind the struct are not looked at, nor changed",
            move |kfd| {
                let mut bytes = garbage();
                answers(kfd, desc, &mut bytes, want)?;
                same("the bytes behind it", &bytes[len..], &[0xa5; 64][..])
            },
        ),
    ]
}

fn numbers() -> Vec<Case> {
    let last = k::TABLE.iter().map(|d| request_number(d.request)).max().unwrap_or(0);
    let unknown: Vec<u8> = vec![0, last + 1, last + 2, 0x7f, 0xff];
    let mut all: Vec<Case> = unknown
        .into_iter()
        .map(|number| {
            on_card(&format!("hostile.number-{number:#04x}"), "A number that is no call is refused", move |kfd| {
                let got = kfd.raw(0xc008_4b00 | u32::from(number), &mut [0; 8]);
                // A newer kernel may know the next numbers.
                holds("ENOTTY, EINVAL or EPERM", matches!(got, Err(Errno::ENOTTY | Errno::EINVAL | Errno::EPERM)))?;
                still_works(kfd)
            })
        })
        .collect();
    all.extend((0x0d..=0x10_u8).map(|number| {
        on_card(&format!("hostile.removed-{number:#04x}"), "A debugger call that was removed is EPERM", move |kfd| {
            same("the call", kfd.raw(0xc008_4b00 | u32::from(number), &mut [0; 8]), Err(Errno::EPERM))?;
            still_works(kfd)
        })
    }));
    all
}

/// Name and address of memory that is not the process's.
const NOT_OURS: &[(&str, u64)] =
    &[("null", 0), ("low", 0x10), ("kernel", 0xffff_8000_0000_0000), ("last", u64::MAX - 3)];

/// A call with a pointer: name, and what it answers for an address.
type Pointed = (&'static str, fn(&Kfd<'_>, u64) -> Step<Result<i32, Errno>>);

fn raw<T: bytemuck::Pod>(kfd: &Kfd<'_>, desc: &Desc, mut args: T) -> Result<i32, Errno> {
    kfd.raw(desc.request, bytemuck::bytes_of_mut(&mut args))
}

const POINTED: &[Pointed] = &[
    ("wait-events", |kfd, at| {
        Ok(raw(kfd, &k::WAIT_EVENTS.desc, k::WaitEvents { events_ptr: at, num_events: 1, ..Default::default() }))
    }),
    ("apertures-new", |kfd, at| {
        let args = k::GetProcessAperturesNew { kfd_process_device_apertures_ptr: at, num_of_nodes: 1, pad: 0 };
        Ok(raw(kfd, &k::GET_PROCESS_APERTURES_NEW.desc, args))
    }),
    ("map", |kfd, at| {
        let handle = kfd.alloc(PAGE, HOST)?.handle;
        let args = k::MapMemoryToGpu { handle, device_ids_array_ptr: at, n_devices: 1, n_success: 0 };
        Ok(raw(kfd, &k::MAP_MEMORY_TO_GPU.desc, args))
    }),
    ("unmap", |kfd, at| {
        let handle = kfd.buffer(PAGE, HOST)?.handle;
        let args = k::UnmapMemoryFromGpu { handle, device_ids_array_ptr: at, n_devices: 1, n_success: 0 };
        Ok(raw(kfd, &k::UNMAP_MEMORY_FROM_GPU.desc, args))
    }),
    ("cu-mask", |kfd, at| {
        let queue = kfd.queue(Ring::Pm4)?;
        Ok(raw(kfd, &k::SET_CU_MASK.desc, k::SetCuMask { queue_id: queue.id, num_cu_mask: 32, cu_mask_ptr: at }))
    }),
];

fn pointers() -> Vec<Case> {
    let one = |(call, answer): &Pointed| {
        let (call, answer) = (*call, *answer);
        NOT_OURS.iter().map(move |(place, at)| {
            let at = *at;
            on_card(
                &format!("hostile.pointer-{call}-{place}"),
                "Memory that is not the process's is EFAULT",
                move |kfd| {
                    same("the call", answer(kfd, at)?, Err(Errno::EFAULT))?;
                    still_works(kfd)
                },
            )
        })
    };
    POINTED.iter().flat_map(one).collect()
}

/// A call with a handle of something that is gone: name, answer, what is expected.
type Gone = (&'static str, fn(&Kfd<'_>) -> Step<Result<i32, Errno>>, Errno);

fn gone_buffer(kfd: &Kfd<'_>) -> Step<u64> {
    let buffer = kfd.alloc(PAGE, HOST)?;
    kfd.free(&buffer)?;
    Ok(buffer.handle)
}

fn gone_event(kfd: &Kfd<'_>) -> Step<u32> {
    let event = kfd.event(k::EVENT_SIGNAL, true)?;
    kfd.destroy_event(event)?;
    Ok(event)
}

fn gone_queue(kfd: &Kfd<'_>) -> Step<super::client::Queue> {
    let queue = kfd.queue(Ring::Sdma)?;
    kfd.destroy(&queue)?;
    Ok(queue)
}

const GONE: &[Gone] = &[
    (
        "free-buffer",
        |kfd| {
            let handle = gone_buffer(kfd)?;
            Ok(raw(kfd, &k::FREE_MEMORY_OF_GPU.desc, k::FreeMemoryOfGpu { handle }))
        },
        Errno::EINVAL,
    ),
    (
        "map-buffer",
        |kfd| {
            let (handle, cards) = (gone_buffer(kfd)?, [kfd.gpu_id]);
            Ok(raw(kfd, &k::MAP_MEMORY_TO_GPU.desc, Kfd::map_args(handle, &cards)))
        },
        Errno::ENOMEM,
    ),
    (
        "unmap-buffer",
        |kfd| {
            let (handle, cards) = (gone_buffer(kfd)?, [kfd.gpu_id]);
            Ok(raw(kfd, &k::UNMAP_MEMORY_FROM_GPU.desc, Kfd::map_args(handle, &cards)))
        },
        Errno::ENOMEM,
    ),
    (
        "export-buffer",
        |kfd| {
            let handle = gone_buffer(kfd)?;
            Ok(raw(kfd, &k::EXPORT_DMABUF.desc, k::ExportDmabuf { handle, ..Default::default() }))
        },
        Errno::EINVAL,
    ),
    (
        "event-page-of-buffer",
        |kfd| {
            let event_page_offset = gone_buffer(kfd)?;
            Ok(raw(kfd, &k::CREATE_EVENT.desc, k::CreateEvent { event_page_offset, ..Default::default() }))
        },
        Errno::EINVAL,
    ),
    (
        "destroy-queue",
        |kfd| {
            let queue_id = gone_queue(kfd)?.id;
            Ok(raw(kfd, &k::DESTROY_QUEUE.desc, k::DestroyQueue { queue_id, pad: 0 }))
        },
        Errno::EINVAL,
    ),
    (
        "update-queue",
        |kfd| {
            let args = Kfd::update_args(&gone_queue(kfd)?);
            Ok(raw(kfd, &k::UPDATE_QUEUE.desc, args))
        },
        Errno::EFAULT,
    ),
    (
        "cu-mask-of-queue",
        |kfd| {
            let (queue_id, mask) = (gone_queue(kfd)?.id, [0xf_u32]);
            let cu_mask_ptr = mask.as_ptr().expose_provenance() as u64;
            Ok(raw(kfd, &k::SET_CU_MASK.desc, k::SetCuMask { queue_id, num_cu_mask: 32, cu_mask_ptr }))
        },
        Errno::EFAULT,
    ),
    (
        "set-event",
        |kfd| {
            let event_id = gone_event(kfd)?;
            Ok(raw(kfd, &k::SET_EVENT.desc, k::SetEvent { event_id, pad: 0 }))
        },
        Errno::EINVAL,
    ),
    (
        "reset-event",
        |kfd| {
            let event_id = gone_event(kfd)?;
            Ok(raw(kfd, &k::RESET_EVENT.desc, k::ResetEvent { event_id, pad: 0 }))
        },
        Errno::EINVAL,
    ),
    (
        "wait-for-event",
        |kfd| {
            let event = gone_event(kfd)?;
            Ok(kfd.wait(&mut [asked(event)], false, 0).map(|result| result.cast_signed()))
        },
        Errno::EINVAL,
    ),
];

fn freed() -> Vec<Case> {
    let one = |(name, answer, want): &Gone| {
        let (answer, want) = (*answer, *want);
        on_card(&format!("hostile.gone-{name}"), "The handle of something that is gone is refused", move |kfd| {
            same("the call", answer(kfd)?, Err(want))?;
            still_works(kfd)
        })
    };
    GONE.iter().map(one).collect()
}
