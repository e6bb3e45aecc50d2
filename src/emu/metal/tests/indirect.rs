//! Indirect command buffers: by raw messages with each mistake, and as the device's recorded lists.

use super::device::{On, scale};
use super::{Bench, settled};
use crate::encode::{Range, Size};
use crate::object::Id;
use crate::{Config, FaultKind, Knobs, Order, sel};
use doorbell_device::metal::MetalOptions;
use doorbell_device::{Arg, Command, Device, Patch, QueueKind};
use std::ffi::CString;

impl Bench {
    fn class(&self, name: &str) -> Id {
        let name = CString::new(name).unwrap();
        // SAFETY: the name is a C string.
        Id(unsafe { (self.table.get_class)(name.as_ptr()) })
    }

    /// A pipeline of `DOUBLE`'s kernel for indirect command buffers.
    fn indirect_pipeline(&self) -> Id {
        let none: *mut Id = std::ptr::null_mut();
        let source = self.string(super::DOUBLE);
        let library: Id = self.send3(self.device, "newLibraryWithSource:options:error:", (source, Id::NIL, none));
        let function: Id = self.send1(library, "newFunctionWithName:", self.string("twice"));
        let descriptor: Id = self.send(self.class("MTLComputePipelineDescriptor"), "new");
        self.send1::<_, ()>(descriptor, "setComputeFunction:", function);
        self.send1::<_, ()>(descriptor, "setSupportIndirectCommandBuffers:", 1_u8);
        let make: extern "C" fn(Id, crate::encode::Sel, Id, u64, *mut Id, *mut Id) -> Id = self.table.message();
        let name = "newComputePipelineStateWithDescriptor:options:reflection:error:";
        let pipeline = make(self.device, crate::encode::Sel(sel(name)), descriptor, 0, none, none);
        self.release(&[library, function, descriptor]);
        pipeline
    }

    fn indirect(&self, commands: u64) -> Id {
        let descriptor: Id = self.send(self.class("MTLIndirectCommandBufferDescriptor"), "new");
        self.send1::<_, ()>(descriptor, "setCommandTypes:", 32_u64);
        self.send1::<_, ()>(descriptor, "setInheritBuffers:", 0_u8);
        self.send1::<_, ()>(descriptor, "setInheritPipelineState:", 0_u8);
        self.send1::<_, ()>(descriptor, "setMaxKernelBufferBindCount:", 2_u64);
        let name = "newIndirectCommandBufferWithDescriptor:maxCommandCount:options:";
        let icb = self.send3(self.device, name, (descriptor, commands, 0_u64));
        self.release(&[descriptor]);
        icb
    }
}

/// What `execute` may leave out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    Resource,
    Pipeline,
    Barrier,
}

/// Two launches that double a number, by an indirect command buffer; the number and the faults.
fn doubled_twice(b: &Bench, without: Without) -> (f32, Vec<FaultKind>) {
    b.pool(|| {
        let (data, n, queue) = (b.buffer(4), b.buffer(4), b.queue());
        let (pipeline, icb) = (b.indirect_pipeline(), b.indirect(2));
        let at = |id: Id| b.send::<*mut u8>(id, "contents").cast::<u32>();
        // SAFETY: both buffers have a word, and nothing uses them now.
        unsafe { at(data).write(1.5_f32.to_bits()) };
        // SAFETY: as above.
        unsafe { at(n).write(1) };
        for index in 0..2_u64 {
            let command: Id = b.send1(icb, "indirectComputeCommandAtIndex:", index);
            b.send1::<_, ()>(command, "setComputePipelineState:", pipeline);
            b.send3::<_, _, _, ()>(command, "setKernelBuffer:offset:atIndex:", (data, 0_u64, 0_u64));
            b.send3::<_, _, _, ()>(command, "setKernelBuffer:offset:atIndex:", (n, 0_u64, 1_u64));
            let name = "concurrentDispatchThreadgroups:threadsPerThreadgroup:";
            b.send2::<_, _, ()>(command, name, Size([1; 3]), Size([1; 3]));
            if without != Without::Barrier {
                b.send::<()>(command, "setBarrier");
            }
        }
        let buffer: Id = b.send(queue, "commandBuffer");
        let encoder: Id = b.send(buffer, "computeCommandEncoder");
        if without != Without::Pipeline {
            b.send1::<_, ()>(encoder, "setComputePipelineState:", pipeline);
            let name = "dispatchThreadgroups:threadsPerThreadgroup:";
            b.send2::<_, _, ()>(encoder, name, Size([0; 3]), Size([0; 3]));
        }
        b.send2::<_, _, ()>(encoder, "useResource:usage:", data, 3_u64);
        if without != Without::Resource {
            b.send2::<_, _, ()>(encoder, "useResource:usage:", n, 1_u64);
        }
        let range = Range { location: 0, length: 2 };
        b.send2::<_, _, ()>(encoder, "executeCommandsInBuffer:withRange:", icb, range);
        b.send::<()>(encoder, "endEncoding");
        b.send::<()>(buffer, "commit");
        b.send::<()>(buffer, "waitUntilCompleted");
        // SAFETY: the command buffer is completed.
        let result = f32::from_bits(unsafe { at(data).read() });
        b.release(&[data, n, queue, pipeline, icb]);
        (result, b.faults())
    })
}

#[test]
fn an_indirect_command_buffer_runs_what_the_encoder_has_made_resident() {
    let b = Bench::new();
    assert_eq!(doubled_twice(&b, Without::Nothing), (6.0, vec![]));
    assert_eq!(doubled_twice(&b, Without::Barrier), (6.0, vec![]), "the order of these does not matter");
    assert_eq!(doubled_twice(&b, Without::Resource), (1.5, vec![FaultKind::NotResident]));
    assert_eq!(doubled_twice(&b, Without::Pipeline), (1.5, vec![FaultKind::NotResident]));
    b.ends_well();
    // From Apple9 on pipelines need no help.
    let b = Bench::on(Config { family: 9, ..Config::default() });
    assert_eq!(doubled_twice(&b, Without::Pipeline), (6.0, vec![]));
    b.ends_well();
}

#[test]
fn indices_ranges_slots_and_pipelines_that_do_not_fit_are_found() {
    let b = Bench::new();
    b.pool(|| {
        let (icb, data, queue, plain) = (b.indirect(2), b.buffer(16), b.queue(), b.pipeline());
        assert_eq!(b.send1::<_, Id>(icb, "indirectComputeCommandAtIndex:", 2_u64), Id::NIL);
        assert_eq!(b.faults(), [FaultKind::Range]);
        let command: Id = b.send1(icb, "indirectComputeCommandAtIndex:", 0_u64);
        b.send1::<_, ()>(command, "setComputePipelineState:", plain);
        assert_eq!(b.faults(), [FaultKind::Indirect], "made without supportIndirectCommandBuffers");
        b.send3::<_, _, _, ()>(command, "setKernelBuffer:offset:atIndex:", (data, 0_u64, 2_u64));
        b.send3::<_, _, _, ()>(command, "setKernelBuffer:offset:atIndex:", (data, 17_u64, 0_u64));
        assert_eq!(b.faults(), [FaultKind::Slot, FaultKind::Range]);
        let buffer: Id = b.send(queue, "commandBuffer");
        let encoder: Id = b.send(buffer, "computeCommandEncoder");
        let range = Range { location: 1, length: 2 };
        b.send2::<_, _, ()>(encoder, "executeCommandsInBuffer:withRange:", icb, range);
        assert_eq!(b.faults(), [FaultKind::Range]);
        b.send2::<_, _, ()>(encoder, "executeCommandsInBuffer:withRange:", icb, Range { location: 0, length: 1 });
        b.send::<()>(encoder, "endEncoding");
        b.machine.set(Knobs { hold: true, ..Knobs::default() });
        b.send::<()>(buffer, "commit");
        b.send::<()>(command, "setBarrier");
        assert_eq!(b.faults(), [FaultKind::Indirect], "changed while it is executed");
        b.machine.set(Knobs::default());
        b.send::<()>(buffer, "waitUntilCompleted");
        b.release(&[icb, data, queue, plain]);
    });
    b.ends_well();
}

/// A chain of launches over three memories, longer than what is kept resident for it.
fn chain(on: &On, patched: bool) -> Vec<f32> {
    let kernel = on.kernel("scale").unwrap();
    let all = [on.memory(&[1.0; 8]), on.memory(&[0.0; 8]), on.memory(&[0.0; 8])];
    let commands: Vec<Command> =
        (0..6).map(|n| scale(&kernel, &all[(n + 1) % 3], &all[n % 3], if n == 4 { 5 } else { 2 })).collect();
    let mut list = on.device.record(&commands).unwrap();
    list.replay(&[]).unwrap();
    if patched {
        // The last but one multiplies by 7, and the first reads another memory.
        let other = on.memory(&[0.5; 8]);
        let patches = [
            Patch::Arg { command: 4, arg: 2, value: Arg::Var(7) },
            Patch::Arg { command: 0, arg: 1, value: Arg::Buffer(other.at(0)) },
        ];
        list.replay(&patches).unwrap();
        list.replay(&[]).unwrap();
        list.replay(&[]).unwrap();
    }
    let values = on.values(&all[0]);
    drop((list, kernel, all, commands));
    values
}

#[test]
fn recorded_lists_compute_the_same_kept_and_encoded_anew() {
    for (family, order) in [(7, Order::Newest), (8, Order::Commit), (9, Order::Seeded(3))] {
        let config = || Config { family, order, all_untracked: true, ..Config::default() };
        for (patched, want) in [(false, 160.0), (true, 112.0)] {
            for encode_anew in [false, true] {
                let on = On::with(config(), &MetalOptions { encode_anew, ..MetalOptions::default() });
                assert_eq!(chain(&on, patched), [want; 8], "{family} {order:?} {patched} {encode_anew}");
                on.ends_well();
            }
        }
    }
}

#[test]
fn a_list_is_encoded_anew_where_metal_keeps_none() {
    for knobs in
        [Knobs { nil_indirect: true, ..Knobs::default() }, Knobs { no_indirect_pipelines: true, ..Knobs::default() }]
    {
        let on = On::new();
        on.machine.set(knobs);
        assert_eq!(chain(&on, true), [112.0; 8]);
        on.ends_well();
    }
    let on = On::with(
        Config { name: "Apple Paravirtual device, virtual".into(), ..Config::default() },
        &MetalOptions::default(),
    );
    on.machine.set(Knobs { pipeline_error: None, nil_indirect: true, ..Knobs::default() });
    assert_eq!(chain(&on, false), [160.0; 8]);
    on.ends_well();
}

#[test]
fn memory_of_a_list_in_flight_is_kept_alive() {
    let on = On::new();
    let kernel = on.kernel("scale").unwrap();
    let (a, b) = (on.memory(&[1.0; 8]), on.memory(&[0.0; 8]));
    let commands: Vec<Command> = (0..2).flat_map(|_| [scale(&kernel, &b, &a, 3), scale(&kernel, &a, &b, 3)]).collect();
    let mut list = on.device.record(&commands).unwrap();
    assert_eq!(
        on.machine.live().iter().find(|(class, _)| *class == "MTLIndirectCommandBuffer").map(|(_, n)| *n),
        Some(1)
    );
    on.machine.set(Knobs { hold: true, ..Knobs::default() });
    let point = list.replay(&[]).unwrap();
    drop((list, kernel, a, b, commands));
    on.machine.set(Knobs::default());
    on.device.wait(&point, std::time::Duration::from_secs(20)).unwrap();
    let one = on.memory(&[1.0; 8]);
    on.device.submit(QueueKind::Compute, &[Command::copy(one.at(0), one.at(16), 16)]).unwrap();
    drop(one);
    let machine = std::sync::Arc::clone(&on.machine);
    on.ends_well();
    assert_eq!(settled(&machine), []);
}
