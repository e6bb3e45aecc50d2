//! Each mistake of a program is found, and named.

use super::{Bench, settled};
use crate::encode::{Block, Sel, Size};
use crate::object::Id;
use crate::{FaultKind, sel};
use doorbell_hcq::memory::View;

#[test]
fn a_message_to_a_dead_object_and_a_release_too_many_are_found() {
    let b = Bench::new();
    let buffer = b.buffer(16);
    b.release(&[buffer]);
    assert_eq!(b.send::<u64>(buffer, "length"), 0);
    b.release(&[buffer]);
    let faults = b.machine.take_faults();
    assert_eq!(faults[0].to_string(), "DeadObject: -[MTLBuffer length] was sent to a dead object");
    assert_eq!(faults[1].to_string(), "DeadObject: -[MTLBuffer release] was sent to a dead object");
    b.send::<()>(Id(0x1234_5677), "release");
    assert_eq!(b.faults(), [FaultKind::NoObject]);
    b.ends_well();
}

#[test]
fn an_object_that_nobody_releases_stays_alive_with_what_it_needs() {
    let b = Bench::new();
    let _forgotten = b.queue();
    b.release(&[b.device]);
    assert_eq!(b.machine.live(), [("MTLCommandQueue", 1), ("MTLDevice", 1)]);
}

#[test]
fn a_selector_that_a_class_lacks_is_named() {
    let b = Bench::new();
    b.send1::<_, ()>(b.device, "newBufferWithLength:option:", 16_u64);
    let faults = b.machine.take_faults();
    assert_eq!(faults[0].to_string(), "UnknownSelector: -[MTLDevice newBufferWithLength:option:] is no message");
    b.ends_well();
}

#[test]
fn memory_of_the_program_that_is_no_whole_pages_is_no_buffer() {
    let b = Bench::new();
    let memory = View::anonymous(32 << 10, 16 << 10).unwrap();
    let at = memory.base().as_ptr::<u8>();
    let make = |at: *mut u8, len_bytes: u64, block: usize| -> Id {
        let send: extern "C" fn(Id, Sel, *mut u8, u64, u64, Block) -> Id = b.table.message();
        let sel = Sel(sel("newBufferWithBytesNoCopy:length:options:deallocator:"));
        send(b.device, sel, at, len_bytes, 0, Block(block))
    };
    let buffer = make(at, 32 << 10, 0);
    assert_eq!(b.send::<*mut u8>(buffer, "contents"), at);
    b.release(&[buffer]);
    assert_eq!(make(at.wrapping_add(4096), 16 << 10, 0), Id::NIL);
    assert_eq!(make(at, 4096, 0), Id::NIL);
    assert_eq!(make(at, 0, 0), Id::NIL);
    assert_eq!(make(at, 16 << 10, 1), Id::NIL);
    assert_eq!(b.faults(), [FaultKind::Range, FaultKind::Range, FaultKind::Range, FaultKind::WrongArgument]);
    b.ends_well();
}

#[test]
fn an_object_returned_without_a_pool_leaks() {
    let b = Bench::new();
    let text = b.string("x");
    assert_eq!(b.faults(), [FaultKind::NoPool]);
    assert_eq!(b.machine.live(), [("MTLDevice", 1), ("NSString", 1)]);
    b.release(&[text]);
    b.ends_well();
}

#[test]
fn a_reference_of_the_pool_is_not_the_caller_s() {
    let b = Bench::new();
    let text = b.pool(|| b.string("x"));
    b.release(&[text]);
    assert_eq!(b.faults(), [FaultKind::DeadObject]);
    b.ends_well();
}

#[test]
fn pools_end_in_the_order_opposite_to_their_beginning() {
    let b = Bench::new();
    let (outer, _inner) = ((b.table.pool_push)(), (b.table.pool_push)());
    (b.table.pool_pop)(outer);
    assert_eq!(b.faults(), [FaultKind::PoolOrder]);
    (b.table.pool_pop)(outer);
    assert_eq!(b.faults(), [FaultKind::PoolOrder]);
    b.ends_well();
}

#[test]
fn encoders_and_command_buffers_are_used_in_their_states_only() {
    let b = Bench::new();
    b.pool(|| {
        let (queue, event): (Id, Id) = (b.queue(), b.send(b.device, "newSharedEvent"));
        let buffer: Id = b.send(queue, "commandBuffer");
        let encoder: Id = b.send(buffer, "computeCommandEncoder");
        b.send2::<_, _, ()>(buffer, "encodeSignalEvent:value:", event, 1_u64);
        assert_eq!(b.send::<Id>(buffer, "blitCommandEncoder"), Id::NIL);
        b.send::<()>(buffer, "commit");
        assert_eq!(b.faults(), [FaultKind::OpenEncoder; 3]);
        b.send::<()>(encoder, "endEncoding");
        b.send::<()>(encoder, "endEncoding");
        assert_eq!(b.faults(), [FaultKind::AfterEnd]);
        b.send::<()>(buffer, "commit");
        b.send::<()>(buffer, "commit");
        b.send2::<_, _, ()>(buffer, "encodeWaitForEvent:value:", event, 1_u64);
        assert_eq!(b.faults(), [FaultKind::AfterEnd; 2]);
        b.send::<()>(buffer, "waitUntilCompleted");
        b.release(&[queue, event]);
    });
    b.ends_well();
}

#[test]
fn an_encoder_released_before_it_ended_is_found() {
    let b = Bench::new();
    b.pool(|| {
        let queue = b.queue();
        let buffer: Id = b.send(queue, "commandBuffer");
        b.pool(|| b.send::<Id>(buffer, "computeCommandEncoder"));
        b.release(&[queue]);
    });
    assert_eq!(b.faults(), [FaultKind::UnendedEncoder]);
    b.ends_well();
}

#[test]
fn slots_sizes_offsets_and_threads_have_limits() {
    let b = Bench::new();
    b.pool(|| {
        let (queue, data, pipeline) = (b.queue(), b.buffer(64), b.pipeline());
        let buffer: Id = b.send(queue, "commandBuffer");
        let encoder: Id = b.send(buffer, "computeCommandEncoder");
        let dispatch = |threads| {
            let (name, groups) = ("dispatchThreadgroups:threadsPerThreadgroup:", Size([1, 1, 1]));
            b.send2::<_, _, ()>(encoder, name, groups, Size([threads, 1, 1]));
        };
        dispatch(1);
        assert_eq!(b.faults(), [FaultKind::NoPipeline]);
        b.send1::<_, ()>(encoder, "setComputePipelineState:", pipeline);
        b.send3::<_, _, _, ()>(encoder, "setBuffer:offset:atIndex:", (data, 0_u64, 31_u64));
        b.send3::<_, _, _, ()>(encoder, "setBuffer:offset:atIndex:", (data, 65_u64, 0_u64));
        b.send3::<_, _, _, ()>(encoder, "setBuffer:offset:atIndex:", (queue, 0_u64, 0_u64));
        assert_eq!(b.faults(), [FaultKind::Slot, FaultKind::Range, FaultKind::WrongArgument]);
        b.send3::<_, _, _, ()>(encoder, "setBuffer:offset:atIndex:", (data, 0_u64, 0_u64));
        dispatch(1);
        assert_eq!(b.faults(), [FaultKind::Slot], "nothing is bound to slot 1");
        let bytes = [0_u8; 8192];
        b.send3::<_, _, _, ()>(encoder, "setBytes:length:atIndex:", (bytes.as_ptr(), 4097_u64, 1_u64));
        b.send2::<_, _, ()>(encoder, "setThreadgroupMemoryLength:atIndex:", 8_u64, 0_u64);
        assert_eq!(b.faults(), [FaultKind::Range; 2]);
        b.send3::<_, _, _, ()>(encoder, "setBytes:length:atIndex:", (bytes.as_ptr(), 4_u64, 1_u64));
        dispatch(1025);
        assert_eq!(b.faults(), [FaultKind::ThreadgroupTooLarge]);
        b.send::<()>(encoder, "endEncoding");
        b.release(&[queue, data, pipeline]);
    });
    b.ends_well();
}

#[test]
fn a_queue_that_would_block_says_so() {
    let b = Bench::new();
    b.pool(|| {
        let queue = b.queue();
        let all: Vec<Id> = (0..5).map(|_| b.send(queue, "commandBuffer")).collect();
        assert_eq!((b.faults(), all[4]), (vec![FaultKind::QueueFull], Id::NIL));
        b.release(&[queue]);
    });
    assert_eq!(settled(&b.machine), [("MTLDevice", 1)]);
    b.ends_well();
}
