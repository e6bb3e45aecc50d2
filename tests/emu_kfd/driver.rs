//! The driver's answers: versions, binding, buffers, queue creation, events; every refusal with the kernel's error.

use crate::client::*;
use doorbell::emu::kfd::{Chip, Config, SoftKfd};
use doorbell_ioctl::port::{Errno, MapRequest, Mapped, OpenFlags};
use std::sync::Arc;

fn minor(kfd_minor: u32) -> Client {
    Client::of(SoftKfd::new(Config { kfd_minor, ..Config::new(Chip::Gfx1100) }).unwrap())
}

#[test]
fn each_interface_minor_answers_its_version_and_knows_its_calls() {
    const RUNTIME_ENABLE: u32 = 0xc010_4b25;
    for (kfd_minor, runtime) in [(11, Err(Errno::ENOTTY)), (14, Ok(())), (17, Ok(()))] {
        let client = minor(kfd_minor);
        let version = client.ioctl(GET_VERSION, Bytes::new(8)).unwrap();
        assert_eq!((version.get32(0), version.get32(4)), (1, kfd_minor));
        assert_eq!(client.ioctl(RUNTIME_ENABLE, Bytes::new(16)).map(|_| ()), runtime);
    }
}

#[test]
fn numbers_without_a_call_and_bad_sizes_are_refused() {
    let client = Client::new(Chip::Gfx1100);
    assert_eq!(client.refusal(0xc008_4b27, Bytes::new(8)), Errno::ENOTTY);
    assert_eq!(client.refusal(0xc008_4b00, Bytes::new(8)), Errno::ENOTTY);
    assert_eq!(client.refusal(0xc008_4b0d, Bytes::new(8)), Errno::EPERM, "a removed debugger call");
    assert_eq!(client.refusal(GET_VERSION, Bytes::new(4)), Errno::EFAULT);
    // The kernel goes by the number: a shorter version struct gets what fits.
    let short = client.ioctl(0x8004_4b01, Bytes::new(4)).unwrap();
    assert_eq!(short.get32(0), 1);
}

#[test]
fn calls_that_are_not_modelled_say_so_loudly() {
    const SMI_EVENTS: u32 = 0xc008_4b1f;
    let client = Client::new(Chip::Gfx1100);
    assert_eq!(client.refusal(SMI_EVENTS, Bytes::new(8)), Errno::ENOSYS);
    assert!(client.reports()[0].ends_with("AMDKFD_IOC_SMI_EVENTS exists and is not modelled"));
}

#[test]
fn an_unbound_card_refuses_all() {
    let client = Client::unbound(SoftKfd::new(Config::new(Chip::Gfx1100)).unwrap());
    assert_eq!(client.refusal(ALLOC, client.alloc_args(0x10_0000, 0x1000, HOST)), Errno::ENODEV);
    let queue = Bytes::new(96).u32(32, 0x1000).u32(36, client.gpu_id);
    assert_eq!(client.refusal(CREATE_QUEUE, queue), Errno::ESRCH);
}

#[test]
fn the_address_space_belongs_to_one_open_file() {
    let client = Client::new(Chip::Gfx1100);
    let bind = |fd: u32, gpu: u32| Bytes::new(8).u32(0, fd).u32(4, gpu);
    client.ioctl(ACQUIRE_VM, bind(client.render.0 as u32, client.gpu_id)).unwrap();
    let other = client.port.open("/dev/dri/renderD128", OpenFlags::DEVICE).unwrap();
    assert_eq!(client.refusal(ACQUIRE_VM, bind(other.0 as u32, client.gpu_id)), Errno::EBUSY);
    assert_eq!(client.refusal(ACQUIRE_VM, bind(client.kfd.0 as u32, 77)), Errno::EINVAL);
    assert_eq!(client.refusal(ACQUIRE_VM, bind(9999, client.gpu_id)), Errno::EINVAL);
    assert_eq!(client.port.open("/dev/dri/renderD129", OpenFlags::DEVICE), Err(Errno::ENOENT));
}

#[test]
fn bad_allocations_are_refused() {
    let client = Client::new(Chip::Gfx1100);
    let va = 0x7000_0000;
    let cases = [
        ("no size", client.alloc_args(va, 0, HOST), Errno::EINVAL),
        ("odd size", client.alloc_args(va, 0x1001, HOST), Errno::EINVAL),
        ("odd address", client.alloc_args(va + 8, 0x1000, HOST), Errno::EINVAL),
        ("outside the window", client.alloc_args(0x8000_0000_0000, 0x1000, HOST), Errno::EINVAL),
        ("no kind of memory", client.alloc_args(va, 0x1000, WRITABLE), Errno::EINVAL),
        ("double mapping", client.alloc_args(va, 0x1000, HOST | 1 << 27), Errno::EINVAL),
        ("unknown card", client.alloc_args(va, 0x1000, HOST).u32(32, 1), Errno::EINVAL),
        ("more than the card has", client.alloc_args(va, 5 << 30, VRAM), Errno::ENOMEM),
        ("doorbells in another size", client.alloc_args(va, 0x1000, 1 << 3), Errno::EINVAL),
        ("HDP page in another size", client.alloc_args(va, 0x2000, 1 << 4), Errno::EINVAL),
        ("user memory nowhere", client.alloc_args(va, 0x1000, USERPTR), Errno::EINVAL),
        ("user memory unmapped", client.alloc_args(va, 0x1000, USERPTR).u64(24, 0x1000), Errno::EFAULT),
    ];
    for (case, args, errno) in cases {
        assert_eq!(client.refusal(ALLOC, args), errno, "{case}");
    }
    assert_eq!(client.machine.left_over(), (0, 0));
}

#[test]
fn a_small_bar_has_no_public_memory() {
    let machine = SoftKfd::new(Config { small_bar: true, ..Config::new(Chip::Gfx1100) }).unwrap();
    let client = Client::of(machine);
    assert_eq!(client.refusal(ALLOC, client.alloc_args(0x7000_0000, 0x1000, VRAM | PUBLIC)), Errno::EINVAL);
    client.ioctl(ALLOC, client.alloc_args(0x7000_0000, 0x1000, VRAM)).unwrap();
}

#[test]
fn memory_of_the_card_is_counted() {
    const AVAILABLE_MEMORY: u32 = 0xc010_4b23;
    let machine = SoftKfd::new(Config { vram_bytes: 1 << 20, ..Config::new(Chip::Gfx1100) }).unwrap();
    let client = Client::of(machine);
    let available = || client.ioctl(AVAILABLE_MEMORY, Bytes::new(16).u32(8, client.gpu_id)).unwrap().get64(0);
    assert_eq!(available(), 1 << 20);
    let buffer = client.alloc(0xc_0000, VRAM);
    assert_eq!(available(), 0x4_0000);
    assert_eq!(client.refusal(ALLOC, client.alloc_args(0x7000_0000, 0x8_0000, VRAM)), Errno::ENOMEM);
    client.ioctl(FREE, Bytes::new(8).u64(0, buffer.handle)).unwrap();
    assert_eq!(available(), 1 << 20);
}

#[test]
fn mapping_and_freeing_keep_their_order() {
    let client = Client::new(Chip::Gfx1100);
    let buffer = client.alloc(0x1000, HOST);
    let ids = [client.gpu_id, 77];
    assert_eq!(client.refusal(MAP, client.map_args(buffer.handle, &[])), Errno::EINVAL);
    assert_eq!(client.refusal(MAP, client.map_args(buffer.handle + 1, &ids[..1])), Errno::ENOMEM);
    assert_eq!(client.refusal(MAP, client.map_args(77 << 32, &ids[..1])), Errno::EINVAL);
    assert_eq!(client.refusal(MAP, client.map_args(buffer.handle, &ids[..1]).u64(8, 0x10)), Errno::EFAULT);
    assert_eq!(client.refusal(MAP, client.map_args(buffer.handle, &ids[..1]).u32(20, 2)), Errno::EINVAL);
    assert_eq!(client.unmap(&buffer), Err(Errno::EINVAL), "not mapped yet");
    // The second card does not exist: the first one is counted as done.
    let mut args = client.map_args(buffer.handle, &ids);
    assert_eq!(client.port.ioctl(client.kfd, MAP, &mut args.0), Err(Errno::EINVAL));
    assert_eq!(args.get32(20), 1);
    client.map(&buffer);
    let free = Bytes::new(8).u64(0, buffer.handle);
    assert_eq!(client.refusal(FREE, free.clone()), Errno::EBUSY);
    client.unmap(&buffer).unwrap();
    client.ioctl(FREE, free.clone()).unwrap();
    assert_eq!(client.refusal(FREE, free), Errno::EINVAL);
}

#[test]
fn two_buffers_cannot_lie_at_one_address() {
    let client = Client::new(Chip::Gfx1100);
    let buffer = client.buffer(0x2000, HOST);
    let other = client.ioctl(ALLOC, client.alloc_args(buffer.va + 0x1000, 0x1000, HOST)).unwrap();
    let ids = [client.gpu_id];
    assert_eq!(client.refusal(MAP, client.map_args(other.get64(16), &ids)), Errno::EINVAL);
}

#[test]
fn render_offsets_map_their_buffer_and_nothing_more() {
    let client = Client::new(Chip::Gfx1100);
    let out = client.ioctl(ALLOC, client.alloc_args(0x7000_0000, 0x2000, HOST)).unwrap();
    let map = |offset, len| Mapped::new(&client.port, &MapRequest::file(client.render, offset, len)).map(|_| ());
    assert_eq!(map(out.get64(24), 0x2000), Ok(()));
    assert_eq!(map(out.get64(24), 0x1000), Ok(()));
    assert_eq!(map(out.get64(24), 0x3000), Err(Errno::EINVAL));
    assert_eq!(map(out.get64(24) + 0x1000, 0x1000), Err(Errno::EINVAL));
}

/// A client with a ring and a pointer page, and the arguments that work for a kind of queue.
fn ready(kind: u32) -> (Client, Buffer, Buffer, Bytes) {
    let client = Client::new(Chip::Gfx1100);
    let (ring, pointers) = (client.buffer(0x1000, HOST), client.buffer(0x1000, HOST));
    let args = client.queue_args(kind, &ring, pointers.va + 128, pointers.va + 56);
    (client, ring, pointers, args)
}

#[test]
fn queue_buffers_of_another_size_are_refused() {
    let (client, _ring, _pointers, args) = ready(PM4);
    let (big, small) = (client.buffer(0x2000, HOST), client.alloc(0x1000, HOST));
    let cwsr = args.get32(80);
    let cases = [
        ("percentage", args.clone().u32(44, 101)),
        ("priority", args.clone().u32(48, 16)),
        ("ring not a power of two", args.clone().u32(32, 0xc00)),
        ("ring below 1 KiB", args.clone().u32(32, 0x200)),
        ("ring smaller than its buffer", args.clone().u64(0, big.va)),
        ("ring larger than its buffer", args.clone().u32(32, 0x2000)),
        ("ring that starts inside a buffer", args.clone().u64(0, big.va + 0x1000)),
        ("ring that the card does not have", args.clone().u64(0, small.va)),
        ("write pointer in two pages", args.clone().u64(8, big.va)),
        ("read pointer in two pages", args.clone().u64(16, big.va)),
        ("pointer nowhere", args.clone().u64(8, 0)),
        ("EOP of two pages", args.clone().u64(64, 0x2000)),
        ("EOP in a larger buffer", args.clone().u64(56, big.va)),
        ("control stack", args.clone().u32(84, 0x1000)),
        ("save area too small", args.clone().u32(80, cwsr - 0x1000)),
        ("save area larger than its buffer", args.clone().u32(80, cwsr + 0x1000)),
        ("no save area", args.clone().u64(72, 0)),
        ("unknown card", args.clone().u32(36, 77)),
    ];
    for (case, args) in cases {
        assert_eq!(client.refusal(CREATE_QUEUE, args), Errno::EINVAL, "{case}");
    }
    let efault = args.clone().u64(0, 0x8000_0000_0000);
    assert_eq!(client.refusal(CREATE_QUEUE, efault), Errno::EFAULT);
    assert_eq!(client.refusal(CREATE_QUEUE, args.clone().u32(40, 9)), Errno(524));
    assert_eq!(client.refusal(CREATE_QUEUE, args.clone().u32(40, 4).u32(88, 99)), Errno::EINVAL, "no such engine");
    client.ioctl(CREATE_QUEUE, args).unwrap();
}

#[test]
fn both_sizes_of_the_struct_make_a_queue() {
    let (client, _ring, _pointers, args) = ready(PM4);
    let mut short = args.clone();
    short.0.truncate(88);
    let first = client.ioctl(CREATE_QUEUE_OLD, short).unwrap();
    assert_eq!(first.get64(24) >> 62, 3, "a doorbell offset");
    // A long struct on an old kernel: what it does not know is ignored.
    let old = minor(14);
    let (ring, pointers) = (old.buffer(0x1000, HOST), old.buffer(0x1000, HOST));
    let args = old.queue_args(SDMA, &ring, pointers.va, pointers.va + 8).u32(88, 99);
    old.ioctl(CREATE_QUEUE, args).unwrap();
}

#[test]
fn an_old_kernel_checks_no_buffers() {
    let config = Config { check_queue_buffers: false, kfd_minor: 11, ..Config::new(Chip::Gfx1100) };
    let client = Client::of(SoftKfd::new(config).unwrap());
    let (ring, pointers) = (client.buffer(0x2000, HOST), client.buffer(0x2000, HOST));
    let args = client.queue_args(SDMA, &ring, pointers.va, pointers.va + 8).u32(32, 0x1000);
    client.ioctl(CREATE_QUEUE, args).unwrap();
}

#[test]
fn queues_are_numbered_and_limited() {
    let (client, _ring, _pointers, args) = ready(SDMA);
    let made: Vec<Bytes> = (0..12).map(|_| client.ioctl(CREATE_QUEUE, args.clone()).unwrap()).collect();
    let ids: Vec<u32> = made.iter().map(|m| m.get32(52)).collect();
    assert_eq!(ids, (0..12).collect::<Vec<_>>());
    let mut doorbells: Vec<u64> = made.iter().map(|m| m.get64(24)).collect();
    doorbells.dedup();
    assert_eq!(doorbells.len(), 12);
    assert_eq!(client.refusal(CREATE_QUEUE, args.clone()), Errno::ENOMEM, "2 engines of 6 queues");
    client.ioctl(DESTROY_QUEUE, Bytes::new(8).u32(0, 5)).unwrap();
    assert_eq!(client.refusal(DESTROY_QUEUE, Bytes::new(8).u32(0, 5)), Errno::EINVAL);
    assert_eq!(client.ioctl(CREATE_QUEUE, args).unwrap().get32(52), 5);
}

#[test]
fn buffers_of_a_living_queue_stay_mapped() {
    let client = Client::new(Chip::Gfx1100);
    let queue = client.queue(PM4);
    assert_eq!(client.unmap(&queue.ring), Err(Errno::EBUSY));
    client.destroy(&queue);
    client.unmap(&queue.ring).unwrap();
}

#[test]
fn updates_of_unknown_queues_and_rings_are_refused() {
    let client = Client::new(Chip::Gfx1100);
    let queue = client.queue(SDMA);
    let update = |id, ring: u64, size: u32| Bytes::new(24).u64(0, ring).u32(8, id).u32(12, size).u32(16, 100);
    assert_eq!(client.refusal(UPDATE_QUEUE, update(9, queue.ring.va, 0x1000)), Errno::EFAULT);
    assert_eq!(client.refusal(UPDATE_QUEUE, update(queue.id, queue.ring.va, 0x1800)), Errno::EINVAL);
    assert_eq!(client.refusal(UPDATE_QUEUE, update(queue.id, queue.ring.va, 0x2000)), Errno::EFAULT);
    client.ioctl(UPDATE_QUEUE, update(queue.id, queue.ring.va, 0x1000)).unwrap();
}

#[test]
fn running_queues_have_no_saved_waves() {
    const GET_QUEUE_WAVE_STATE: u32 = 0xc018_4b1b;
    let client = Client::new(Chip::Gfx1100);
    let queue = client.queue(PM4);
    let ask = |id| client.refusal(GET_QUEUE_WAVE_STATE, Bytes::new(24).u32(16, id));
    assert_eq!((ask(queue.id), ask(99)), (Errno::EINVAL, Errno::EFAULT));
    let stop = Bytes::new(24).u64(0, queue.ring.va).u32(8, queue.id).u32(12, 0x1000);
    client.ioctl(UPDATE_QUEUE, stop).unwrap();
    assert_eq!(ask(queue.id), Errno::ENOSYS, "not modelled");
}

#[test]
fn cu_masks_come_in_whole_words_and_pairs() {
    const SET_CU_MASK: u32 = 0x4010_4b1a;
    let client = Client::new(Chip::Gfx1100);
    let queue = client.queue(PM4);
    let set = |id: u32, bits: u32, mask: &[u32]| {
        let at = mask.as_ptr().expose_provenance() as u64;
        client.ioctl(SET_CU_MASK, Bytes::new(16).u32(0, id).u32(4, bits).u64(8, at)).map(|_| ())
    };
    assert_eq!(set(queue.id, 32, &[0xf]), Ok(()));
    assert_eq!(set(queue.id, 31, &[0xf]), Err(Errno::EINVAL));
    assert_eq!(set(queue.id, 0, &[0xf]), Err(Errno::EINVAL));
    assert_eq!(set(queue.id, 32, &[0x1]), Err(Errno::EINVAL), "half of a WGP");
    assert_eq!(set(99, 32, &[0xf]), Err(Errno::EFAULT));
}

#[test]
fn events_refuse_what_they_cannot_do() {
    let client = Client::new(Chip::Gfx1100);
    let page = client.buffer(0x8000, HOST);
    let short = client.buffer(0x1000, HOST);
    let with_page = |handle: u64| Bytes::new(32).u64(0, handle);
    assert_eq!(client.refusal(CREATE_EVENT, with_page(short.handle)), Errno::EINVAL, "too few slots");
    let id = client.event(0, Some(&page));
    assert_eq!(page.view.read_u64(8 * u64::from(id)), Ok(u64::MAX));
    assert_eq!(client.refusal(CREATE_EVENT, with_page(page.handle)), Errno::EINVAL, "there is a page");
    client.unmap(&page).unwrap();
    assert_eq!(client.refusal(FREE, Bytes::new(8).u64(0, page.handle)), Errno::EPERM);
    let memory = client.event(8, None);
    assert_eq!(client.refusal(SET_EVENT, Bytes::new(8).u32(0, memory)), Errno::EINVAL);
    assert_eq!(client.wait(&[id, memory], 0).0, 1, "timeout");
    client.ioctl(SET_EVENT, Bytes::new(8).u32(0, id)).unwrap();
    assert_eq!(client.wait(&[id, memory], 0).0, 0, "complete");
    let lost = Bytes::new(24).u64(0, 0x10).u32(8, 1);
    assert_eq!(client.refusal(WAIT_EVENTS, lost), Errno::EFAULT);
    client.ioctl(DESTROY_EVENT, Bytes::new(8).u32(0, id)).unwrap();
    assert_eq!(client.refusal(DESTROY_EVENT, Bytes::new(8).u32(0, id)), Errno::EINVAL);
    client.machine.interrupt_next_wait();
    let data = Bytes::new(48).u32(40, memory);
    let at = data.0.as_ptr().expose_provenance() as u64;
    assert_eq!(client.refusal(WAIT_EVENTS, Bytes::new(24).u64(0, at).u32(8, 1).u32(16, 1000)), Errno::EINTR);
}

#[test]
fn runtime_and_xnack_follow_the_queues() {
    const RUNTIME_ENABLE: u32 = 0xc010_4b25;
    const SET_XNACK_MODE: u32 = 0xc004_4b21;
    let client = Client::new(Chip::Gfx1100);
    let enable = |mode| Bytes::new(16).u32(8, mode);
    client.ioctl(RUNTIME_ENABLE, enable(1)).unwrap();
    assert_eq!(client.refusal(RUNTIME_ENABLE, enable(1)), Errno::EBUSY);
    client.ioctl(RUNTIME_ENABLE, enable(0)).unwrap();
    assert_eq!(client.refusal(SET_XNACK_MODE, Bytes::new(4).u32(0, 1)), Errno::EPERM);
    assert_eq!(client.ioctl(SET_XNACK_MODE, Bytes::new(4).u32(0, u32::MAX)).unwrap().get32(0), 0);
    let _queue = client.queue(SDMA);
    assert_eq!(client.refusal(RUNTIME_ENABLE, enable(1)), Errno::EEXIST);
    assert_eq!(client.refusal(SET_XNACK_MODE, Bytes::new(4)), Errno::EBUSY);
}

#[test]
fn apertures_and_clocks_are_told() {
    const APERTURES_NEW: u32 = 0xc010_4b14;
    const CLOCKS: u32 = 0xc028_4b05;
    let client = Client::new(Chip::Gfx1100);
    assert_eq!(client.ioctl(APERTURES_NEW, Bytes::new(16)).unwrap().get32(8), 1, "how many there are");
    let room = Bytes::new(112);
    let at = room.0.as_ptr().expose_provenance() as u64;
    let out = client.ioctl(APERTURES_NEW, Bytes::new(16).u64(0, at).u32(8, 2)).unwrap();
    assert_eq!(out.get32(8), 1);
    assert_eq!((room.get64(0), room.get64(16), room.get32(48)), (1 << 48, 2 << 48, client.gpu_id));
    let clocks = client.ioctl(CLOCKS, Bytes::new(40).u32(32, client.gpu_id)).unwrap();
    assert!(clocks.get64(0) > 0 && clocks.get64(24) == 1_000_000_000);
}

#[test]
fn a_buffer_goes_to_another_handle_as_dmabuf() {
    const EXPORT: u32 = 0xc010_4b24;
    const IMPORT: u32 = 0xc018_4b1d;
    let client = Client::new(Chip::Gfx1100);
    let buffer = client.buffer(0x1000, HOST);
    let fd = client.ioctl(EXPORT, Bytes::new(16).u64(0, buffer.handle).u32(8, 0x8_0002)).unwrap().get32(12);
    let args = Bytes::new(24).u64(0, 0x7000_0000).u32(16, client.gpu_id).u32(20, fd);
    let imported = client.ioctl(IMPORT, args.clone()).unwrap().get64(8);
    assert_ne!(imported, buffer.handle);
    assert_eq!(client.refusal(IMPORT, args.u32(20, client.kfd.0 as u32)), Errno::EINVAL);
}

#[test]
fn doorbells_map_as_a_whole_slice_only() {
    let client = Client::new(Chip::Gfx1100);
    let queue = client.queue(PM4);
    let slice = queue.args.get64(24) & !0x1fff;
    let map = |offset, len| Mapped::new(&client.port, &MapRequest::file(client.kfd, offset, len)).map(|_| ());
    assert_eq!(map(slice, 0x2000), Ok(()));
    assert_eq!(map(slice, 0x1000), Err(Errno::EINVAL));
    assert_eq!(map(slice ^ 1 << 46, 0x2000), Err(Errno::EINVAL), "another card's");
}

#[test]
fn the_file_is_dead_in_a_forked_child() {
    let client = Client::new(Chip::Gfx1100);
    // SAFETY: the child calls the port, which forks no thread and takes no lock that another thread of this test holds,
    // and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let rc = client.port.ioctl(client.kfd, GET_VERSION, &mut [0; 8]);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if rc == Err(Errno::EBADF) { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: `status` is a valid place for the child's status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    client.ioctl(GET_VERSION, Bytes::new(8)).unwrap();
}

#[test]
fn two_cards_share_memory_when_they_are_linked() {
    for (peer_links, expected) in [(true, Ok(())), (false, Err(Errno::EINVAL))] {
        let machine = SoftKfd::new(Config { gpus: 2, peer_links, ..Config::new(Chip::Gfx942) }).unwrap();
        let client = Client::of(machine);
        let other = client.port.open("/dev/dri/renderD129", OpenFlags::DEVICE).unwrap();
        let text = client.port.read_file("/sys/devices/virtual/kfd/kfd/topology/nodes/2/gpu_id").unwrap();
        let id: u32 = String::from_utf8(text).unwrap().trim().parse().unwrap();
        client.ioctl(ACQUIRE_VM, Bytes::new(8).u32(0, other.0 as u32).u32(4, id)).unwrap();
        let vram = client.alloc(0x1000, VRAM | WRITABLE);
        let ids = [client.gpu_id, id];
        assert_eq!(client.ioctl(MAP, client.map_args(vram.handle, &ids)).map(|_| ()), expected);
    }
}

#[test]
fn user_memory_that_is_unmapped_is_gone_for_the_card() {
    let client = Client::new(Chip::Gfx1100);
    let user = Arc::new(Mapped::new(&client.port, &MapRequest::anonymous_shared(0x1000)).unwrap());
    let va = user.base().0;
    let args = client.alloc_args(va, 0x1000, USERPTR | WRITABLE).u64(24, va);
    let handle = client.ioctl(ALLOC, args).unwrap().get64(16);
    let ids = [client.gpu_id];
    client.ioctl(MAP, client.map_args(handle, &ids)).unwrap();
    let mut queue = client.queue(PM4);
    let signal = client.buffer(0x1000, HOST);
    queue.submit(&[&write_data(va + 8, 0xabcd)[..], &release_mem(signal.va, 1)].concat());
    eventually(&signal.view, 0, 1);
    assert_eq!(user.view().unwrap().read_u32(8), Ok(0xabcd));
    drop(user);
    queue.submit(&write_data(va + 8, 1));
    until("a page fault", || client.reports().iter().any(|r| r.contains("PageFault")));
}
