//! The stand-in by raw messages, with each of a program's mistakes made on purpose; and the Metal device on it.

mod archive;
mod device;
mod indirect;
mod messages;
mod mistakes;
mod overlap;
mod private;
mod several;

use crate::encode::{Bool, Range, Sel, Size};
use crate::object::Id;
use crate::{Config, Fault, FaultKind, Machine, Table, sel};
use std::ffi::CString;
use std::sync::Arc;

/// A machine with a device, and messages to its objects.
struct Bench {
    machine: Arc<Machine>,
    table: Table,
    device: Id,
    _entered: crate::Entered,
}

const DOUBLE: &str = "#include <metal_stdlib>
using namespace metal;
kernel void twice(device float* data [[buffer(0)]], constant int& n [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) { if (int(i) < n) data[i] *= 2; }";

impl Bench {
    fn new() -> Bench {
        Bench::on(Config::default())
    }

    fn on(config: Config) -> Bench {
        let machine = Machine::new(config);
        let entered = machine.enter();
        let table = Table::of_thread();
        let device = Id((table.create_system_default_device)());
        Bench { machine, table, device, _entered: entered }
    }

    fn send<R>(&self, to: Id, name: &str) -> R {
        let f: extern "C" fn(Id, Sel) -> R = self.table.message();
        f(to, Sel(sel(name)))
    }

    fn send1<A, R>(&self, to: Id, name: &str, a: A) -> R {
        let f: extern "C" fn(Id, Sel, A) -> R = self.table.message();
        f(to, Sel(sel(name)), a)
    }

    fn send2<A, B, R>(&self, to: Id, name: &str, a: A, b: B) -> R {
        let f: extern "C" fn(Id, Sel, A, B) -> R = self.table.message();
        f(to, Sel(sel(name)), a, b)
    }

    fn send3<A, B, C, R>(&self, to: Id, name: &str, (a, b, c): (A, B, C)) -> R {
        let f: extern "C" fn(Id, Sel, A, B, C) -> R = self.table.message();
        f(to, Sel(sel(name)), a, b, c)
    }

    fn release(&self, all: &[Id]) {
        all.iter().for_each(|id| self.send::<()>(*id, "release"));
    }

    fn string(&self, text: &str) -> Id {
        let text = CString::new(text).unwrap();
        self.send1(Class::string(&self.table), "stringWithUTF8String:", text.as_ptr())
    }

    fn queue(&self) -> Id {
        self.send1(self.device, "newCommandQueueWithMaxCommandBufferCount:", 4_u64)
    }

    fn buffer(&self, len_bytes: u64) -> Id {
        self.buffer_of(len_bytes, 0)
    }

    fn buffer_of(&self, len_bytes: u64, options: u64) -> Id {
        self.send2(self.device, "newBufferWithLength:options:", len_bytes, options)
    }

    /// Encodes a fill of a whole buffer.
    fn fill(&self, blit: Id, buffer: Id, value: u8) {
        let range = Range { location: 0, length: self.send(buffer, "length") };
        self.send3::<_, _, _, ()>(blit, "fillBuffer:range:value:", (buffer, range, value));
    }

    /// Encodes a copy of the first bytes of a buffer.
    fn copy(&self, blit: Id, from: Id, to: Id, len_bytes: u64) {
        let copy: extern "C" fn(Id, Sel, Id, u64, Id, u64, u64) = self.table.message();
        let name = "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:";
        copy(blit, Sel(sel(name)), from, 0, to, 0, len_bytes);
    }

    /// The bytes of a buffer that nothing uses now.
    fn bytes(&self, buffer: Id) -> Vec<u8> {
        let at: *const u8 = self.send(buffer, "contents");
        let len: u64 = self.send(buffer, "length");
        // SAFETY: the buffer has these bytes, and no command buffer is in flight.
        unsafe { std::slice::from_raw_parts(at, len as usize) }.to_vec()
    }

    /// A pipeline of `DOUBLE`'s kernel; call it in a pool.
    fn pipeline(&self) -> Id {
        let none: *mut Id = std::ptr::null_mut();
        let source = self.string(DOUBLE);
        let library: Id = self.send3(self.device, "newLibraryWithSource:options:error:", (source, Id::NIL, none));
        let function: Id = self.send1(library, "newFunctionWithName:", self.string("twice"));
        let pipeline = self.send2(self.device, "newComputePipelineStateWithFunction:error:", function, none);
        self.release(&[library, function]);
        pipeline
    }

    /// Runs `f` in a pool.
    fn pool<R>(&self, f: impl FnOnce() -> R) -> R {
        let pool = (self.table.pool_push)();
        let result = f();
        (self.table.pool_pop)(pool);
        result
    }

    fn faults(&self) -> Vec<FaultKind> {
        self.machine.take_faults().into_iter().map(|fault| fault.kind).collect()
    }

    /// The device is released, nothing else is alive, and there was no fault.
    fn ends_well(self) {
        self.release(&[self.device]);
        assert_eq!(self.machine.take_faults(), Vec::<Fault>::new());
        assert_eq!(settled(&self.machine), []);
    }
}

/// Objects that are alive when the queues' threads have let go of the last command buffer.
fn settled(machine: &Machine) -> Vec<(&'static str, u64)> {
    for _ in 0..1000 {
        if machine.live().is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    machine.live()
}

/// Class objects by name.
struct Class;

impl Class {
    fn string(table: &Table) -> Id {
        // SAFETY: the name is a C string.
        Id(unsafe { (table.get_class)(c"NSString".as_ptr()) })
    }
}

#[test]
fn messages_to_nil_answer_zeros_of_each_type() {
    let b = Bench::new();
    assert_eq!(b.send::<u64>(Id::NIL, "length"), 0);
    assert_eq!(b.send::<f64>(Id::NIL, "GPUStartTime").to_bits(), 0);
    assert_eq!(b.send1::<_, Id>(Id::NIL, "objectAtIndex:", 1_u64), Id::NIL);
    b.ends_well();
}

#[test]
fn structs_by_value_floats_and_seven_arguments_arrive_whole() {
    let b = Bench::new();
    b.pool(|| {
        let (from, to, queue) = (b.buffer(64), b.buffer(64), b.queue());
        let words = |id: Id| {
            let at: *mut u8 = b.send(id, "contents");
            // SAFETY: the buffer has 64 bytes, and nothing else uses them now.
            unsafe { std::slice::from_raw_parts_mut(at.cast::<u32>(), 16) }
        };
        words(from).iter_mut().zip(1..).for_each(|(word, n)| *word = n);
        let buffer: Id = b.send(queue, "commandBuffer");
        let blit: Id = b.send(buffer, "blitCommandEncoder");
        let copy: extern "C" fn(Id, Sel, Id, u64, Id, u64, u64) = b.table.message();
        let name = "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:";
        copy(blit, Sel(sel(name)), from, 8, to, 16, 12);
        b.send::<()>(blit, "endEncoding");
        b.send::<()>(buffer, "commit");
        b.send::<()>(buffer, "waitUntilCompleted");
        assert_eq!(words(to)[4..7], [3, 4, 5]);
        // New memory is not zero, so that nobody relies on it.
        assert_eq!((words(to)[3], words(to)[7]), (0xaaaa_aaaa, 0xaaaa_aaaa));
        let (start, end): (f64, f64) = (b.send(buffer, "GPUStartTime"), b.send(buffer, "GPUEndTime"));
        assert!(0.0 < start && start <= end, "{start} {end}");
        assert_eq!(b.send::<u64>(buffer, "status"), 4);
        b.release(&[from, to, queue]);
    });
    b.ends_well();
}

#[test]
fn ranges_by_value_bytes_signed_numbers_and_yes_or_no_arrive_whole() {
    let b = Bench::new();
    b.pool(|| {
        let (data, queue) = (b.buffer(64), b.queue());
        let buffer: Id = b.send(queue, "commandBuffer");
        let blit: Id = b.send(buffer, "blitCommandEncoder");
        let range = Range { location: 5, length: 7 };
        b.send3::<_, _, _, ()>(blit, "fillBuffer:range:value:", (data, range, 0xfe_u8));
        b.send::<()>(blit, "endEncoding");
        b.send::<()>(buffer, "commit");
        b.send::<()>(buffer, "waitUntilCompleted");
        let at: *mut u8 = b.send(data, "contents");
        // SAFETY: the buffer has 64 bytes, and the command buffer is completed.
        let bytes = unsafe { std::slice::from_raw_parts(at, 64) };
        let wanted: Vec<u8> = (0..64).map(|k| if (5..12).contains(&k) { 0xfe } else { 0xaa }).collect();
        assert_eq!(bytes, wanted);
        let supports = |family: i64| b.send1::<_, Bool>(b.device, "supportsFamily:", family);
        assert_eq!([supports(1007), supports(1008), supports(-1)], [Bool(1), Bool(0), Bool(0)]);
        b.release(&[data, queue]);
    });
    b.ends_well();
}

#[test]
fn a_kernel_runs_over_a_grid_with_bytes_copied_when_they_were_set() {
    let b = Bench::new();
    b.pool(|| {
        let (data, queue, pipeline) = (b.buffer(40 * 4), b.queue(), b.pipeline());
        let at: *mut u8 = b.send(data, "contents");
        // SAFETY: the buffer has 40 words, which only this thread uses until the commit.
        unsafe { std::slice::from_raw_parts_mut(at.cast::<f32>(), 40) }.fill(1.5);
        let buffer: Id = b.send(queue, "commandBuffer");
        let encoder: Id = b.send(buffer, "computeCommandEncoder");
        b.send1::<_, ()>(encoder, "setComputePipelineState:", pipeline);
        b.send3::<_, _, _, ()>(encoder, "setBuffer:offset:atIndex:", (data, 16_u64, 0_u64));
        let mut n = 30_i32.to_le_bytes();
        b.send3::<_, _, _, ()>(encoder, "setBytes:length:atIndex:", (n.as_ptr(), 4_u64, 1_u64));
        n.fill(0);
        let (groups, threads) = (Size([2, 1, 1]), Size([16, 1, 1]));
        b.send2::<_, _, ()>(encoder, "dispatchThreadgroups:threadsPerThreadgroup:", groups, threads);
        b.send::<()>(encoder, "endEncoding");
        b.send::<()>(buffer, "commit");
        // The command buffer keeps what it uses.
        b.release(&[pipeline]);
        b.send::<()>(buffer, "waitUntilCompleted");
        assert_eq!(b.send::<u64>(buffer, "status"), 4);
        // SAFETY: the command buffer is completed.
        let all = unsafe { std::slice::from_raw_parts(at.cast::<f32>(), 40) };
        let wanted: Vec<f32> = (0..40).map(|k| if (4..34).contains(&k) { 3.0 } else { 1.5 }).collect();
        assert_eq!(all, wanted);
        b.release(&[data, queue]);
    });
    b.ends_well();
}

#[test]
fn events_order_command_buffers_of_two_queues_and_the_host() {
    let b = Bench::new();
    b.pool(|| {
        let event: Id = b.send(b.device, "newSharedEvent");
        let (first, second) = (b.queue(), b.queue());
        let (one, two): (Id, Id) = (b.send(first, "commandBuffer"), b.send(second, "commandBuffer"));
        b.send2::<_, _, ()>(one, "encodeWaitForEvent:value:", event, 2_u64);
        b.send2::<_, _, ()>(one, "encodeSignalEvent:value:", event, 3_u64);
        b.send2::<_, _, ()>(two, "encodeWaitForEvent:value:", event, 1_u64);
        b.send2::<_, _, ()>(two, "encodeSignalEvent:value:", event, 2_u64);
        b.send::<()>(one, "commit");
        b.send::<()>(two, "commit");
        let early: u8 = b.send2(event, "waitUntilSignaledValue:timeoutMS:", 2_u64, 20_u64);
        assert_eq!((early, b.send::<u64>(event, "signaledValue")), (0, 0));
        b.send1::<_, ()>(event, "setSignaledValue:", 1_u64);
        let late: u8 = b.send2(event, "waitUntilSignaledValue:timeoutMS:", 3_u64, 20_000_u64);
        assert_eq!((late, b.send::<u64>(event, "signaledValue")), (1, 3));
        b.send1::<_, ()>(event, "setSignaledValue:", 1_u64);
        assert_eq!(b.send::<u64>(event, "signaledValue"), 3, "a lower value changes nothing");
        b.release(&[event, first, second]);
    });
    b.ends_well();
}
