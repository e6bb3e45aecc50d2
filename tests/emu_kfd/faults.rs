//! What goes wrong: page faults, bad packets, endless kernels. The queue stops, the machine goes on, the errors have
//! names and places.

use crate::client::*;
use doorbell::emu::kfd::compute::{ComputeFault, NoCompute};
use doorbell::emu::kfd::{Chip, Config, SoftKfd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MEMORY_EVENT: u32 = 8;
const HW_EXCEPTION_EVENT: u32 = 3;

fn report(client: &Client, kind: &str) -> String {
    until(kind, || client.reports().iter().any(|r| r.starts_with(kind)));
    client.reports().into_iter().find(|r| r.starts_with(kind)).unwrap()
}

#[test]
fn a_store_to_nowhere_is_a_memory_event_and_ends_all_queues_of_the_card() {
    let client = Client::new(Chip::Gfx1100);
    let page = client.buffer(0x8000, HOST);
    let _signal = client.event(0, Some(&page));
    let memory_event = client.event(MEMORY_EVENT, None);
    let (mut bad, mut good) = (client.queue(PM4), client.queue(SDMA));
    let memory = client.buffer(0x1000, HOST);
    bad.submit(&write_data(0x1234_5678, 1));
    let (result, data) = client.wait(&[memory_event], 20_000);
    assert_eq!(result, 0);
    // not_present, read_only, no_execute; va of the page; gpu_id
    assert_eq!((data[0].get32(0), data[0].get32(4), data[0].get32(8)), (1, 0, 0));
    assert_eq!((data[0].get64(16), data[0].get32(24)), (0x1234_5000, client.gpu_id));
    let text = report(&client, "PageFault");
    assert!(
        text.contains("ring dword 0x0: Write of 0x12345678: no mapping in `WRITE_DATA Memory [0x12345678]"),
        "{text}"
    );
    good.submit(&[0x0003_0005, lo(memory.va), hi(memory.va), 1]);
    std::thread::sleep(std::time::Duration::from_millis(10));
    assert_eq!(memory.view.read_u32(0), Ok(0), "queues of the card never resume");
    client.destroy(&bad);
    client.destroy(&good);
    // New queues work.
    let mut queue = client.queue(PM4);
    queue.submit(&release_mem(memory.va, 5));
    eventually(&memory.view, 0, 5);
}

#[test]
fn a_buffer_that_the_card_does_not_have_mapped_faults() {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue(PM4);
    let host_only = client.alloc(0x1000, HOST);
    queue.submit(&write_data(host_only.va, 1));
    assert!(report(&client, "PageFault").contains("no mapping"));
}

#[test]
fn a_store_to_read_only_memory_says_so() {
    let client = Client::new(Chip::Gfx1100);
    let event = client.event(MEMORY_EVENT, None);
    let mut queue = client.queue(SDMA);
    let read_only = client.buffer(0x1000, GTT);
    queue.submit(&[0x0003_0005, lo(read_only.va), hi(read_only.va), 1]);
    let (result, data) = client.wait(&[event], 20_000);
    assert_eq!((result, data[0].get32(0), data[0].get32(4)), (0, 0, 1));
    assert!(report(&client, "PageFault").contains("the mapping does not allow it"));
}

#[test]
fn an_access_of_a_kernel_faults_like_one_of_a_packet() {
    let compute = Double::new(|dispatch, machine| {
        let fetch = machine.vm.translate(dispatch.entry, doorbell::emu::kfd::vm::Access::Fetch);
        fetch.map(|_| ()).map_err(|fault| ComputeFault::Memory { fault, place: "wave 0".to_owned() })
    });
    let client = Client::with_compute(Chip::Gfx1100, compute);
    let event = client.event(MEMORY_EVENT, None);
    let mut queue = client.queue(PM4);
    let data = client.buffer(0x1000, GTT | WRITABLE);
    let entry = [0xc002_7600, 0x20c, lo(data.va >> 8), hi(data.va >> 8)];
    let lanes = [0xc003_7600, 0x207, 64, 1, 1];
    queue.submit(&[&entry[..], &lanes, &[0xc003_1500, 1, 1, 1, 0x8005]].concat());
    let (result, payload) = client.wait(&[event], 20_000);
    assert_eq!((result, payload[0].get32(8), payload[0].get64(16)), (0, 1, data.va), "no_execute");
    assert!(report(&client, "PageFault").contains("(wave 0) in `DISPATCH_DIRECT groups 1,1,1 initiator 0x8005`"));
}

#[test]
fn a_bad_packet_hangs_its_queue_and_only_its_queue() {
    let client = Client::new(Chip::Gfx1100);
    let exception = client.event(HW_EXCEPTION_EVENT, None);
    let (mut bad, mut good) = (client.queue(PM4), client.queue(PM4));
    let memory = client.buffer(0x1000, HOST);
    bad.submit(&[&write_data(memory.va, 1)[..], &[0xc000_9900, 0]].concat());
    assert!(report(&client, "QueueHung").contains("queue 0: ring dword 0x5: unknown PM4 opcode 0x99"));
    assert_eq!(memory.view.read_u32(0), Ok(1), "what came before was done");
    good.submit(&release_mem(memory.va, 2));
    eventually(&memory.view, 0, 2);
    assert_eq!(client.wait(&[exception], 0).0, 1, "the kernel does not know yet");
    client.destroy(&bad);
    let (result, data) = client.wait(&[exception], 0);
    // reset_type 1: per engine; cause hang; memory kept; gpu_id
    let words: Vec<u32> = (0..4).map(|i| data[0].get32(4 * i)).collect();
    assert_eq!((result, words), (0, vec![1, 0, 0, client.gpu_id]));
}

/// Submits these dwords to a fresh PM4 queue of a gfx1100; gives the report.
fn hang(words: &[u32]) -> String {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue(PM4);
    queue.submit(words);
    report(&client, "QueueHung")
}

#[test]
fn every_refusal_of_the_processor_has_its_name() {
    let cases: [(&[u32], &str); 9] = [
        (&[0x1234], "invalid PM4 packet header 0x00001234"),
        (&[0xc001_7600, 0x250, 0], "SET_SH_REG: no register 0x250 on this chip"),
        (&[0xc001_7900, 0x14, 0], "SET_UCONFIG_REG: no register 0xc014"),
        (&[0xc000_2300, 0x0100_0002, 0xffff_1000, 0xffff_1000], "PRED_EXEC works in an indirect buffer only"),
        (&[0xc000_4600, 0x30], "EVENT_WRITE: EVENT_WRITE type 0x30 index 0 is not modelled"),
        (&[0xc003_1500, 1, 1, 1, 0x8004], "initiator 0x8004 does not enable compute"),
        (&[0xc003_1500, 1, 1, 1, 0x8005], "workgroup of 0,0,0 lanes"),
        (&[0xc005_3c00, 0x03, 0x99, 0, 0, 0, 4], "WAIT_REG_MEM: no register 0x99"),
        (&[0xc004_4000, 0x0000_0504, 0, 0, 0x1000, 0], "COPY_DATA: a performance counter is not modelled"),
    ];
    for (words, expected) in cases {
        let text = hang(words);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn too_large_workgroups_and_wave32_on_gfx9_are_refused() {
    let lanes = |x, y| [0xc003_7600, 0x207, x, y, 1];
    let text = hang(&[&lanes(64, 17)[..], &[0xc003_1500, 1, 1, 1, 0x8005]].concat());
    assert!(text.contains("workgroup of 64,17,1 is 1088 lanes, at most 1024"), "{text}");
    let client = Client::new(Chip::Gfx942);
    let mut queue = client.queue(PM4);
    queue.submit(&[&lanes(64, 1)[..], &[0xc003_1500, 1, 1, 1, 0x8005]].concat());
    assert!(report(&client, "QueueHung").contains("wave32 on a chip that has waves of 64 only"));
}

#[test]
fn a_fault_in_an_indirect_buffer_is_named_with_its_place() {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue(PM4);
    let code = client.buffer(0x1000, HOST);
    for (i, word) in (0..).zip([0xffff_1000, 0xffff_1000, 0xc000_ff00, 0]) {
        code.view.write_u32(4 * i, word).unwrap();
    }
    queue.submit(&[0xffff_1000, 0xc002_3f00, lo(code.va), hi(code.va), 4 | 1 << 23]);
    let text = report(&client, "QueueHung");
    let place = format!("ring dword 0x1, dword 0x2 of the indirect buffer at {:#x}: unknown PM4 opcode 0xff", code.va);
    assert!(text.contains(&place), "{text}");
}

#[test]
fn a_signal_without_an_eop_buffer_is_refused() {
    let client = Client::new(Chip::Gfx1100);
    let memory = client.buffer(0x1000, HOST);
    let (ring, pointers) = (client.buffer(0x1000, HOST), client.buffer(0x1000, HOST));
    let args = client.queue_args(PM4, &ring, pointers.va + 128, pointers.va + 56).u64(56, 0);
    let mut queue = client.open_queue(PM4, ring, pointers, args);
    queue.submit(&release_mem(memory.va, 1));
    assert!(report(&client, "QueueHung").contains("RELEASE_MEM on a queue without an EOP buffer"));
}

#[test]
fn a_write_pointer_beyond_the_ring_is_refused() {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue_of(PM4, 0x400);
    queue.put = 0x101;
    queue.put_dwords(&[]);
    queue.ring_doorbell();
    let text = report(&client, "QueueHung");
    assert!(text.contains("write pointer 0x101 is more than a ring of 0x100 ahead of read pointer 0x0"), "{text}");
}

#[test]
fn an_endless_kernel_ends_with_its_queue() {
    let compute = Double::new(|_, machine| {
        while !machine.stop.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        Err(ComputeFault::Stopped)
    });
    let client = Client::with_compute(Chip::Gfx1100, compute);
    let (mut endless, mut good) = (client.queue(PM4), client.queue(PM4));
    let memory = client.buffer(0x1000, HOST);
    let lanes = [0xc003_7600, 0x207, 64, 1, 1];
    endless.submit(&[&lanes[..], &[0xc003_1500, 1, 1, 1, 0x8005], &release_mem(memory.va + 8, 1)].concat());
    good.submit(&release_mem(memory.va, 1));
    eventually(&memory.view, 0, 1);
    client.destroy(&endless);
    assert_eq!(memory.view.read_u32(8), Ok(0));
    assert_eq!(client.reports(), Vec::<String>::new());
}

#[test]
fn an_illegal_instruction_reaches_the_process_that_asked_for_it() {
    const RUNTIME_ENABLE: u32 = 0xc010_4b25;
    let compute = Double::new(|_, _| Err(ComputeFault::Illegal("0x00000000 at 0x100".to_owned())));
    let client = Client::of(SoftKfd::with_compute(Config::new(Chip::Gfx1100), compute).unwrap());
    client.ioctl(RUNTIME_ENABLE, Bytes::new(16).u32(8, 1)).unwrap();
    let page = client.buffer(0x8000, HOST);
    let event = client.event(0, Some(&page));
    let mut queue = client.queue(PM4);
    let memory = client.buffer(0x1000, HOST);
    // The save area's header names payload and event (docs/amd.md 7.3). It is VRAM: the copy engine writes it.
    let (mut copy, save) = (client.queue(SDMA), queue.args.get64(72));
    let header = [2, lo(save + 24), hi(save), 2, lo(memory.va + 8), hi(memory.va), event];
    copy.submit(&[&header[..], &[0x0003_0005, lo(memory.va), hi(memory.va), 1]].concat());
    eventually(&memory.view, 0, 1);
    let lanes = [0xc003_7600, 0x207, 64, 1, 1];
    queue.submit(&[&lanes[..], &[0xc003_1500, 1, 1, 1, 0x8005]].concat());
    assert_eq!(client.wait(&[event], 20_000).0, 0);
    assert_eq!(memory.view.read_u64(8), Ok(1 << 3), "code 4: illegal instruction");
}

#[test]
fn cards_without_compute_units_say_so() {
    let client = Client::with_compute(Chip::Gfx1100, Arc::new(NoCompute));
    let mut queue = client.queue(PM4);
    queue.submit(&[&[0xc003_7600, 0x207, 64, 1, 1][..], &[0xc003_1500, 1, 1, 1, 0x8005]].concat());
    assert!(report(&client, "QueueHung").contains("this card has no compute units"));
}
