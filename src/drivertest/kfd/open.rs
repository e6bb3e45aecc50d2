//! Opening, versions, binding, and what the driver tells about card and process.

use super::client::{HOST, Kfd, PAGE, Ring, cards};
use super::{on_card, unbound};
use crate::case::{Case, Change, holds, same};
use doorbell_ioctl::abi::kfd as k;
use doorbell_ioctl::port::{Errno, OpenFlags};

pub(crate) fn cases() -> Vec<Case> {
    let mut all = files();
    all.extend(binding());
    all.extend(facts());
    all.extend(modes());
    all
}

fn files() -> Vec<Case> {
    vec![
        Case::new("kfd.open.missing-render-node", "A render node that is not there is ENOENT", |bench| {
            same("open", bench.port.open("/dev/dri/renderD255", OpenFlags::DEVICE), Err(Errno::ENOENT))
        }),
        unbound("open.twice", "A process may open the driver twice, and close one of the files", |kfd| {
            let second = kfd.bench.port.open("/dev/kfd", OpenFlags::DEVICE)?;
            holds("two files have two numbers", second != kfd.kfd)?;
            kfd.bench.port.close(second)?;
            let mut version = k::GetVersion::default();
            kfd.call(&k::GET_VERSION, &mut version)?;
            same("major version", version.major_version, 1)
        }),
        unbound("open.closed-file", "A call on a closed file is EBADF", |kfd| {
            let second = kfd.bench.port.open("/dev/kfd", OpenFlags::DEVICE)?;
            kfd.bench.port.close(second)?;
            let answer = kfd.bench.port.ioctl(second, k::GET_VERSION.desc.request, &mut [0; 8]);
            same("GET_VERSION", answer, Err(Errno::EBADF))
        }),
        unbound("open.version", "GET_VERSION answers interface 1 and a minor", |kfd| {
            let mut version = k::GetVersion::default();
            kfd.call(&k::GET_VERSION, &mut version)?;
            same("major version", version.major_version, 1)?;
            holds("minor version is 1.3 or later", version.minor_version >= 3)
        }),
        unbound("open.version-11", "Interface 1.11 answers its minor and knows no RUNTIME_ENABLE", |kfd| {
            let mut version = k::GetVersion::default();
            kfd.call(&k::GET_VERSION, &mut version)?;
            kfd.bench.require(version.minor_version == 11, "interface", "the kernel's interface is not 1.11")?;
            kfd.refused(&k::RUNTIME_ENABLE, k::RuntimeEnable::default(), Errno::ENOTTY)
        })
        .on(Change::Kfd(|config| config.kfd_minor = 11)),
        unbound("open.render-node-is-not-kfd", "The render node knows no call of KFD", |kfd| {
            let answer = kfd.bench.port.ioctl(kfd.render, k::GET_VERSION.desc.request, &mut [0; 8]);
            holds("GET_VERSION is refused there", matches!(answer, Err(Errno::ENOTTY | Errno::EINVAL)))
        }),
    ]
}

fn bind(kfd: &Kfd<'_>, drm_fd: u32, gpu_id: u32) -> k::AcquireVm {
    let _process = kfd;
    k::AcquireVm { drm_fd, gpu_id }
}

fn binding() -> Vec<Case> {
    vec![
        on_card("bind.again", "ACQUIRE_VM of the file that has the address space succeeds again", |kfd| {
            Ok(kfd.call(&k::ACQUIRE_VM, &mut bind(kfd, kfd.render.0 as u32, kfd.gpu_id))?)
        }),
        on_card("bind.another-file", "The address space belongs to one open file: EBUSY for another", |kfd| {
            let minor = kfd.property("drm_render_minor");
            let other = kfd.bench.port.open(&format!("/dev/dri/renderD{minor}"), OpenFlags::DEVICE)?;
            kfd.refused(&k::ACQUIRE_VM, bind(kfd, other.0 as u32, kfd.gpu_id), Errno::EBUSY)?;
            Ok(kfd.bench.port.close(other)?)
        }),
        unbound("bind.kfd-file", "ACQUIRE_VM of the driver's own file is EINVAL", |kfd| {
            kfd.refused(&k::ACQUIRE_VM, bind(kfd, kfd.kfd.0 as u32, kfd.gpu_id), Errno::EINVAL)
        }),
        unbound("bind.no-file", "ACQUIRE_VM of a number that is not open is EINVAL", |kfd| {
            kfd.refused(&k::ACQUIRE_VM, bind(kfd, 99_999, kfd.gpu_id), Errno::EINVAL)
        }),
        unbound("bind.unknown-card", "ACQUIRE_VM of an unknown card is EINVAL", |kfd| {
            kfd.refused(&k::ACQUIRE_VM, bind(kfd, kfd.render.0 as u32, kfd.gpu_id ^ 0x55), Errno::EINVAL)
        }),
        unbound("bind.alloc-before", "Memory before ACQUIRE_VM is ENODEV", |kfd| {
            kfd.refused(&k::ALLOC_MEMORY_OF_GPU, kfd.alloc_args(0x10_0000, PAGE, HOST), Errno::ENODEV)
        }),
        unbound("bind.queue-before", "A queue before ACQUIRE_VM is ESRCH", |kfd| {
            let args = k::CreateQueue { ring_size: 0x1000, gpu_id: kfd.gpu_id, ..Default::default() };
            kfd.refused(&k::CREATE_QUEUE, args, Errno::ESRCH)
        }),
        unbound("bind.policy-before", "SET_MEMORY_POLICY before ACQUIRE_VM is ESRCH", |kfd| {
            let args = k::SetMemoryPolicy { gpu_id: kfd.gpu_id, ..Default::default() };
            kfd.refused(&k::SET_MEMORY_POLICY, args, Errno::ESRCH)
        }),
    ]
}

fn clocks(kfd: &Kfd<'_>, gpu_id: u32) -> crate::case::Step<k::GetClockCounters> {
    let mut args = k::GetClockCounters { gpu_id, ..Default::default() };
    kfd.call(&k::GET_CLOCK_COUNTERS, &mut args)?;
    Ok(args)
}

fn facts() -> Vec<Case> {
    vec![
        Case::new("kfd.facts.topology", "Every card of the topology has an id of its own and SIMDs", |bench| {
            let cards = cards(&*bench.port);
            bench.require(!cards.is_empty(), "no-card", "the topology has no card")?;
            for (at, (id, properties)) in cards.iter().enumerate() {
                holds("its id is its own", cards[..at].iter().all(|(other, _)| other != id))?;
                holds("it has SIMDs", properties.get("simd_count").is_some_and(|n| *n > 0))?;
                holds("it has a version", properties.get("gfx_target_version").is_some_and(|n| *n > 0))?;
            }
            let fd = bench.port.open("/dev/kfd", OpenFlags::DEVICE)?;
            Ok(bench.port.close(fd)?)
        }),
        unbound("facts.clocks-grow", "GET_CLOCK_COUNTERS answers three clocks that run", |kfd| {
            let first = clocks(kfd, kfd.gpu_id)?;
            kfd.bench.pause();
            let second = clocks(kfd, kfd.gpu_id)?;
            holds("the card's clock runs", second.gpu_clock_counter > first.gpu_clock_counter)?;
            holds("the host's clock runs", second.cpu_clock_counter > first.cpu_clock_counter)?;
            holds("the system's clock runs", second.system_clock_counter > first.system_clock_counter)?;
            same("system_clock_freq", second.system_clock_freq, 1_000_000_000)
        }),
        unbound("facts.clocks-unknown-card", "The clock of an unknown card is 0, and the call succeeds", |kfd| {
            same("gpu_clock_counter", clocks(kfd, kfd.gpu_id ^ 0x55)?.gpu_clock_counter, 0)
        }),
        on_card("facts.apertures", "GET_PROCESS_APERTURES names the card with windows that are in order", |kfd| {
            let mut args = k::GetProcessApertures::default();
            kfd.call(&k::GET_PROCESS_APERTURES, &mut args)?;
            let all = &args.process_apertures[..(args.num_of_nodes as usize).min(7)];
            let own = all.iter().find(|a| a.gpu_id == kfd.gpu_id);
            let Some(own) = own else { return holds("the card is among them", false) };
            holds("LDS window", own.lds_base > 0 && own.lds_base < own.lds_limit)?;
            holds("scratch window", own.scratch_base > 0 && own.scratch_base < own.scratch_limit)?;
            holds("the windows do not overlap", own.lds_limit < own.scratch_base || own.scratch_limit < own.lds_base)?;
            holds("GPUVM window", own.gpuvm_base < own.gpuvm_limit)
        }),
        unbound(
            "facts.apertures-count",
            "GET_PROCESS_APERTURES_NEW with no room answers how many cards there are",
            |kfd| {
                let mut args = k::GetProcessAperturesNew::default();
                kfd.call(&k::GET_PROCESS_APERTURES_NEW, &mut args)?;
                same("num_of_nodes", args.num_of_nodes as usize, cards(&*kfd.bench.port).len())
            },
        ),
        on_card("facts.apertures-new", "GET_PROCESS_APERTURES_NEW fills what the older call answers", |kfd| {
            let mut old = k::GetProcessApertures::default();
            kfd.call(&k::GET_PROCESS_APERTURES, &mut old)?;
            let mut room = [k::ProcessDeviceApertures::default(); 8];
            let at = room.as_mut_ptr().expose_provenance() as u64;
            let mut args = k::GetProcessAperturesNew { kfd_process_device_apertures_ptr: at, num_of_nodes: 8, pad: 0 };
            kfd.call(&k::GET_PROCESS_APERTURES_NEW, &mut args)?;
            same("num_of_nodes", args.num_of_nodes, old.num_of_nodes)?;
            same("the first card", std::hint::black_box(&room)[0], old.process_apertures[0])
        }),
        on_card("facts.available-memory", "AVAILABLE_MEMORY is not more than the card has, and not nothing", |kfd| {
            let available = kfd.available()?;
            holds("there is some", available >= 1 << 20)
        }),
        unbound("facts.available-unknown-card", "AVAILABLE_MEMORY of an unknown card is EINVAL", |kfd| {
            let args = k::GetAvailableMemory { gpu_id: kfd.gpu_id ^ 0x55, ..Default::default() };
            kfd.refused(&k::AVAILABLE_MEMORY, args, Errno::EINVAL)
        }),
    ]
}

fn modes() -> Vec<Case> {
    vec![
        on_card("mode.memory-policy", "SET_MEMORY_POLICY takes the two policies that there are", |kfd| {
            for policy in [0, 1] {
                let mut args = k::SetMemoryPolicy {
                    gpu_id: kfd.gpu_id,
                    default_policy: policy,
                    alternate_policy: 1 - policy,
                    ..Default::default()
                };
                kfd.call(&k::SET_MEMORY_POLICY, &mut args)?;
            }
            Ok(())
        }),
        on_card(
            "mode.memory-policy-unknown",
            "SET_MEMORY_POLICY refuses a policy that is none, in either field",
            |kfd| {
                let args = k::SetMemoryPolicy { gpu_id: kfd.gpu_id, default_policy: 2, ..Default::default() };
                kfd.refused(&k::SET_MEMORY_POLICY, args, Errno::EINVAL)?;
                let args = k::SetMemoryPolicy { gpu_id: kfd.gpu_id, alternate_policy: 2, ..Default::default() };
                kfd.refused(&k::SET_MEMORY_POLICY, args, Errno::EINVAL)
            },
        ),
        on_card("mode.trap-handler", "SET_TRAP_HANDLER takes no handler, and no unknown card", |kfd| {
            let mut args = k::SetTrapHandler { gpu_id: kfd.gpu_id, ..Default::default() };
            kfd.call(&k::SET_TRAP_HANDLER, &mut args)?;
            let args = k::SetTrapHandler { gpu_id: kfd.gpu_id ^ 0x55, ..Default::default() };
            kfd.refused(&k::SET_TRAP_HANDLER, args, Errno::EINVAL)
        }),
        on_card("mode.scratch", "SET_SCRATCH_BACKING_VA takes an address, and no unknown card", |kfd| {
            let mut args = k::SetScratchBackingVa { gpu_id: kfd.gpu_id, ..Default::default() };
            kfd.call(&k::SET_SCRATCH_BACKING_VA, &mut args)?;
            let args = k::SetScratchBackingVa { gpu_id: kfd.gpu_id ^ 0x55, ..Default::default() };
            kfd.refused(&k::SET_SCRATCH_BACKING_VA, args, Errno::EINVAL)
        }),
        on_card("mode.xnack-query", "SET_XNACK_MODE -1 answers the mode and changes nothing", |kfd| {
            let mut args = k::SetXnackMode { xnack_enabled: -1 };
            kfd.call(&k::SET_XNACK_MODE, &mut args)?;
            holds("off or on", matches!(args.xnack_enabled, 0 | 1))
        }),
        on_card("mode.xnack-off", "SET_XNACK_MODE 0 turns retries off", |kfd| {
            kfd.call(&k::SET_XNACK_MODE, &mut k::SetXnackMode { xnack_enabled: 0 })?;
            let mut args = k::SetXnackMode { xnack_enabled: -1 };
            kfd.call(&k::SET_XNACK_MODE, &mut args)?;
            same("xnack_enabled", args.xnack_enabled, 0)
        }),
        on_card("mode.xnack-with-queue", "SET_XNACK_MODE while there are queues is EBUSY", |kfd| {
            let _queue = kfd.queue(Ring::Sdma)?;
            kfd.refused(&k::SET_XNACK_MODE, k::SetXnackMode { xnack_enabled: 0 }, Errno::EBUSY)
        }),
        on_card("mode.runtime-enable", "RUNTIME_ENABLE goes on, not on again, and off", |kfd| {
            let on = k::RuntimeEnable { mode_mask: 1, ..Default::default() };
            kfd.call(&k::RUNTIME_ENABLE, &mut { on })?;
            kfd.refused(&k::RUNTIME_ENABLE, on, Errno::EBUSY)?;
            kfd.call(&k::RUNTIME_ENABLE, &mut k::RuntimeEnable::default())?;
            kfd.call(&k::RUNTIME_ENABLE, &mut { on })?;
            Ok(kfd.call(&k::RUNTIME_ENABLE, &mut k::RuntimeEnable::default())?)
        }),
        on_card("mode.runtime-enable-late", "RUNTIME_ENABLE after the first queue is EEXIST", |kfd| {
            let _queue = kfd.queue(Ring::Sdma)?;
            kfd.refused(&k::RUNTIME_ENABLE, k::RuntimeEnable { mode_mask: 1, ..Default::default() }, Errno::EEXIST)
        }),
    ]
}
