//! The Metal device on the stand-in: its messages, what it leaves behind, and how it reports what goes wrong.

use super::settled;
use crate::{Config, Failure, FaultKind, Knobs, Machine, Table, rows};
use doorbell_device::metal::messages::ROWS;
use doorbell_device::metal::objc::Objc;
use doorbell_device::metal::{MetalDevice, MetalOptions, Selector};
use doorbell_device::{Arg, Code, Command, Device, DeviceError, Geometry, Kernel, KernelImage, Memory, QueueKind};
use doorbell_hcq::memory::View;
use std::sync::Arc;
use std::time::Duration;

pub(super) const SOURCE: &str = "#pragma METAL fp math_mode(safe)
#include <metal_stdlib>
using namespace metal;
kernel void scale(device float* out [[buffer(0)]], const device float* in [[buffer(1)]], constant long& by [[buffer(2)]],
                  uint i [[thread_position_in_grid]]) { out[i] = in[i] * float(by); }
kernel void beyond(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) { out[i + 1000000] = 1; }";

pub(super) struct On {
    pub machine: Arc<Machine>,
    pub device: MetalDevice,
    _entered: crate::Entered,
}

fn open_on(config: Config, knobs: Knobs) -> (Arc<Machine>, crate::Entered, Result<MetalDevice, DeviceError>) {
    let machine = Machine::new(config);
    machine.set(knobs);
    let entered = machine.enter();
    let device = MetalDevice::open("METAL", Table::of_thread().objc(), &Selector::Index(0), None);
    (machine, entered, device)
}

impl On {
    pub(crate) fn new() -> On {
        let (machine, entered, device) = open_on(Config::default(), Knobs::default());
        On { machine, device: device.unwrap(), _entered: entered }
    }

    /// With a table of one's own over a common machine.
    pub(crate) fn through(
        config: Config,
        wrap: impl FnOnce(Objc) -> Objc,
        patience: Duration,
    ) -> Result<On, DeviceError> {
        let machine = Machine::new(config);
        let entered = machine.enter();
        let objc = wrap(Table::of_thread().objc());
        let device = MetalDevice::open("METAL", objc, &Selector::Index(0), Some(patience))?;
        Ok(On { machine, device, _entered: entered })
    }

    /// A device that was opened on a machine.
    pub(crate) fn of(machine: Arc<Machine>, device: MetalDevice) -> On {
        let entered = machine.enter();
        On { machine, device, _entered: entered }
    }

    /// With options, on a machine of one's own.
    pub(crate) fn with(config: Config, options: &MetalOptions) -> On {
        let machine = Machine::new(config);
        let entered = machine.enter();
        let device = MetalDevice::open_with("METAL", Table::of_thread().objc(), &Selector::Index(0), options);
        On { machine, device: device.unwrap(), _entered: entered }
    }

    pub(crate) fn kernel(&self, name: &str) -> Result<Kernel, DeviceError> {
        let code = Code::Elf { bytes: SOURCE.as_bytes(), entry: name };
        self.device.load(&[KernelImage { name, code }]).map(|mut all| all.remove(0))
    }

    pub(crate) fn memory(&self, values: &[f32]) -> Memory {
        let memory = self.device.alloc(values.len() as u64 * 4).unwrap();
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.device.copy_in(&memory, 0, &bytes).unwrap();
        memory
    }

    pub(crate) fn values(&self, memory: &Memory) -> Vec<f32> {
        let mut bytes = vec![0; memory.len_bytes() as usize];
        self.device.copy_out(memory, 0, &mut bytes).unwrap();
        bytes.chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
    }

    /// The device ends: no fault, and nothing is left.
    pub(crate) fn ends_well(self) {
        self.device.close().unwrap();
        drop(self.device);
        assert_eq!(self.machine.take_faults(), []);
        assert_eq!(settled(&self.machine), []);
    }
}

pub(super) fn scale(kernel: &Kernel, out: &Memory, from: &Memory, by: i64) -> Command {
    let args = [Arg::Buffer(out.at(0)), Arg::Buffer(from.at(0)), Arg::Var(by)];
    let groups = (out.len_bytes() / 4 / 8) as u32;
    Command::exec(kernel, args, 1).over(Geometry::of([groups, 1, 1], [8, 1, 1]))
}

#[test]
fn the_device_s_messages_are_the_framework_s() {
    let theirs = rows();
    for ours in ROWS.iter().filter(|row| row.class != "NSObject") {
        let same = theirs
            .iter()
            .find(|row| (row.class, row.of_class, row.selector) == (ours.class, ours.of_class, ours.selector));
        let same = same.unwrap_or_else(|| panic!("-[{} {}] is no message", ours.class, ours.selector));
        assert_eq!(same.encoding, ours.encoding(), "{} {}", ours.class, ours.selector);
    }
}

#[test]
fn kernels_copies_and_times_and_nothing_is_left_behind() {
    let on = On::new();
    let kernel = on.kernel("scale").unwrap();
    let (a, b, c) = (on.memory(&[1.0; 16]), on.memory(&[0.0; 16]), on.memory(&[0.0; 16]));
    let stamp = on.device.stamp().unwrap();
    let commands = [
        scale(&kernel, &b, &a, 3),
        scale(&kernel, &a, &b, 5).stamped(stamp.clone()),
        Command::copy(c.at(0), a.at(32), 32),
        scale(&kernel, &b, &c, 1),
    ];
    let point = on.device.submit(QueueKind::Compute, &commands).unwrap();
    on.device.wait(&point, Duration::from_secs(20)).unwrap();
    assert!(stamp.elapsed_ns() > 0 && stamp.elapsed_ns() < 20_000_000_000, "{:?}", stamp.times_ns());
    assert_eq!(on.values(&a), [15.0; 16]);
    assert_eq!(on.values(&b), [[15.0; 8], [0.0; 8]].concat());
    assert_eq!(on.machine.committed(), 3, "before, the one whose time is asked for, after");
    let mut list = on.device.record(&[scale(&kernel, &c, &a, 2)]).unwrap();
    list.replay(&[]).unwrap();
    list.replay(&[]).unwrap();
    assert_eq!(on.values(&c), [30.0; 16]);
    assert_eq!(on.device.memory_used(), 192);
    assert!(on.device.state().unwrap().line.starts_with("Software Apple7, 0 of "));
    drop((list, kernel, a, b, c, commands, stamp));
    assert_eq!(on.device.memory_used(), 0);
    on.ends_well();
}

#[test]
fn memory_of_the_program_is_used_where_it_is() {
    let on = On::new();
    let kernel = on.kernel("scale").unwrap();
    let own = View::anonymous(32 << 10, 16 << 10).unwrap();
    let floats = |n: usize| -> Vec<u8> { (0..n).flat_map(|i| (i as f32).to_le_bytes()).collect() };
    own.write(0, &floats(8192)).unwrap();
    let (wrapped, out) = (on.device.wrap_host(&own).unwrap(), on.memory(&[0.0; 16]));
    assert_eq!((wrapped.va(), on.device.memory_used()), (own.base().0, 64), "it is no memory of the device");
    let commands = [scale(&kernel, &wrapped, &wrapped, 2), Command::copy(out.at(0), wrapped.at(0), 64)];
    let point = on.device.submit(QueueKind::Compute, &commands).unwrap();
    on.device.wait(&point, Duration::from_secs(20)).unwrap();
    assert_eq!(on.values(&out), (0..16).map(|i| i as f32 * 2.0).collect::<Vec<_>>());
    let mut last = [0; 4];
    own.read((32 << 10) - 4, &mut last).unwrap();
    assert_eq!(f32::from_le_bytes(last), 16382.0);
    let why = |view: &View| on.device.wrap_host(view).unwrap_err().to_string();
    assert!(why(&own).ends_with("in place: it is memory of this device already"));
    assert!(why(&own.sub(4096, 16 << 10).unwrap()).ends_with("it does not start on a page of 16384 bytes"));
    assert!(why(&own.sub(16 << 10, 4096).unwrap()).ends_with("it is not whole pages of 16384 bytes"));
    drop((commands, wrapped));
    // It can be the device's again.
    drop(on.device.wrap_host(&own).unwrap());
    drop((kernel, out));
    on.ends_well();
}

#[test]
fn memory_of_another_device_is_copied_by_the_host_in_order() {
    let (on, other) = (On::new(), On::new());
    let (kernel, a, theirs) = (on.kernel("scale").unwrap(), on.memory(&[1.0; 8]), other.memory(&[7.0; 8]));
    let commands = [
        scale(&kernel, &a, &a, 2),
        Command::copy(theirs.at(0), a.at(0), 16),
        Command::copy(a.at(0), theirs.at(16), 16),
        scale(&kernel, &a, &a, 3),
    ];
    on.device.submit(QueueKind::Compute, &commands).unwrap();
    assert_eq!(other.values(&theirs), [[2.0; 4], [7.0; 4]].concat());
    assert_eq!(on.values(&a), [[21.0; 4], [6.0; 4]].concat());
    drop((kernel, a, theirs, commands));
    on.ends_well();
    other.ends_well();
}

#[test]
fn a_reader_of_the_timeline_s_word_sees_completion_without_asking_the_device() {
    let on = On::new();
    let (kernel, a) = (on.kernel("scale").unwrap(), on.memory(&[1.0; 8]));
    let point = on.device.submit(QueueKind::Compute, &[scale(&kernel, &a, &a, 2)]).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !point.is_done() && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(point.is_done());
    drop((kernel, a));
    on.ends_well();
}

#[test]
fn more_submissions_than_a_queue_takes_wait_for_room() {
    let on = On::new();
    let (kernel, a) = (on.kernel("scale").unwrap(), on.memory(&[1.0; 8]));
    for _ in 0..1500 {
        on.device.submit(QueueKind::Compute, &[scale(&kernel, &a, &a, 1)]).unwrap();
    }
    assert_eq!(on.values(&a), [1.0; 8]);
    drop((kernel, a));
    on.ends_well();
}

#[test]
fn a_bad_source_a_missing_kernel_and_a_pipeline_that_cannot_be_made_say_why() {
    let on = On::new();
    let load = |text: &str, entry: &str| {
        let code = Code::Elf { bytes: text.as_bytes(), entry };
        on.device.load(&[KernelImage { name: entry, code }]).unwrap_err().to_string()
    };
    let bad = load("kernel void k(device float* x [[buffer(0)]]) { y = 1; }", "k");
    assert!(bad.starts_with("kernel k cannot be loaded on device METAL: program_source:1:48: error:"), "{bad}");
    assert!(bad.ends_with("(MTLLibraryErrorDomain 3)"), "{bad}");
    let missing = load(SOURCE, "nobody");
    assert!(missing.ends_with("the source has no kernel nobody, it has scale, beyond"), "{missing}");
    on.machine.set(Knobs { pipeline_error: Some("Compiler encountered an internal error".into()), ..Knobs::default() });
    let internal = on.kernel("scale").unwrap_err().to_string();
    assert!(internal.contains("Compiler encountered an internal error (AGXMetal"), "{internal}");
    on.machine.set(Knobs { compile_warning: Some("unused variable".into()), ..Knobs::default() });
    on.kernel("scale").unwrap();
    on.ends_well();
}

#[test]
fn a_threadgroup_above_the_pipeline_s_limit_is_refused_before_it_would_be_dropped() {
    let on = On::new();
    on.machine.set(Knobs { pipeline_limit: Some(4), ..Knobs::default() });
    let (kernel, a) = (on.kernel("scale").unwrap(), on.memory(&[1.0; 8]));
    let error = on.device.submit(QueueKind::Compute, &[scale(&kernel, &a, &a, 2)]).unwrap_err().to_string();
    assert_eq!(error, "device METAL cannot run scale with 8 threads a threadgroup, at most 4");
    assert_eq!(on.values(&a), [1.0; 8]);
    drop((kernel, a));
    on.ends_well();
}

#[test]
fn a_kernel_that_faults_ends_the_device_with_a_report() {
    let on = On::new();
    let (scales, beyond, a) = (on.kernel("scale").unwrap(), on.kernel("beyond").unwrap(), on.memory(&[1.0; 8]));
    let bad = Command::exec(&beyond, [Arg::Buffer(a.at(0))], 1).over(Geometry::of([1; 3], [8, 1, 1]));
    let point = on.device.submit(QueueKind::Compute, &[bad, scale(&scales, &a, &a, 2)]).unwrap();
    let error = on.device.wait(&point, Duration::from_secs(20)).unwrap_err().to_string();
    for part in ["METAL/compute stopped", "kIOGPUCommandBufferCallbackErrorPageFault", "beyond scale", "buffer 0 'out'"]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
    let error = on.device.submit(QueueKind::Compute, &[scale(&scales, &a, &a, 2)]).unwrap_err().to_string();
    assert!(error.contains("PageFault"), "{error}");
    assert!(on.device.close().is_err());
    drop((scales, beyond, a, on.device));
    assert_eq!(on.machine.take_faults(), []);
    assert_eq!(settled(&on.machine), []);
}

#[test]
fn a_command_buffer_that_never_ends_is_reported_at_the_deadline() {
    let on = On::new();
    on.machine.set(Knobs { fail: Some((0, Failure::Hang)), ..Knobs::default() });
    let (kernel, a) = (on.kernel("scale").unwrap(), on.memory(&[1.0; 8]));
    let point = on.device.submit(QueueKind::Compute, &[scale(&kernel, &a, &a, 2)]).unwrap();
    let error = on.device.wait(&point, Duration::from_millis(200)).unwrap_err().to_string();
    for part in ["did not finish in 200 ms", "timeline at 0 of 1", "event at 0 of 1", "scale: status 3, signals 1"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    on.machine.set(Knobs::default());
    let error = on.device.wait(&point, Duration::from_secs(20)).unwrap_err().to_string();
    assert!(error.contains("kIOGPUCommandBufferCallbackErrorTimeout"), "{error}");
    let _fault = on.device.close();
    drop((kernel, a, on.device));
    assert_eq!(settled(&on.machine), []);
}

#[test]
fn what_the_framework_does_not_give_is_named_when_the_device_is_opened() {
    let why = |config: Config, knobs: Knobs| {
        let (machine, entered, device) = open_on(config, knobs);
        let error = device.unwrap_err().to_string();
        drop(entered);
        assert_eq!((machine.take_faults(), settled(&machine)), (vec![], vec![]), "{error}");
        error
    };
    let common = Config::default;
    let nil = why(common(), Knobs { nil_device: true, ..Knobs::default() });
    assert_eq!(nil, "device METAL cannot be opened: Metal has no device for this process");
    let nil = why(common(), Knobs { nil_queue: true, ..Knobs::default() });
    assert_eq!(nil, "device METAL cannot be opened: Metal gives no queue");
    let nil = why(common(), Knobs { nil_event: true, ..Knobs::default() });
    assert_eq!(nil, "device METAL cannot be opened: Metal gives no shared event");
    let intel = why(Config { family: 0, ..common() }, Knobs::default());
    assert!(intel.ends_with("its GPU is of none of Apple's families from Apple5 on"), "{intel}");
}

#[test]
fn memory_has_limits_and_belongs_to_its_device() {
    let (machine, entered, device) = open_on(Config { max_buffer_bytes: 4096, ..Config::default() }, Knobs::default());
    let device = device.unwrap();
    let big = device.alloc(4097).unwrap_err();
    assert!(matches!(big, DeviceError::TooBig { asked: 4097, max: 4096, .. }), "{big}");
    machine.set(Knobs { nil_buffer: true, ..Knobs::default() });
    let none = device.alloc(64).unwrap_err();
    assert!(matches!(none, DeviceError::OutOfMemory { asked: 64, used: 0, .. }), "{none}");
    machine.set(Knobs::default());
    let empty = device.alloc(0).unwrap();
    assert_eq!((empty.len_bytes(), device.memory_used()), (0, 0));
    assert!(device.copy_in(&empty, 0, &[1]).is_err());
    let other = On::new();
    let theirs = other.memory(&[1.0]);
    assert!(matches!(device.copy_in(&theirs, 0, &[1]), Err(DeviceError::WrongDevice { .. })));
    drop((theirs, empty));
    other.ends_well();
    drop(device);
    drop(entered);
    assert_eq!((machine.take_faults(), settled(&machine)), (vec![], vec![]));
}

#[test]
fn families_are_archs() {
    for (family, arch) in
        [(5, "metal-apple5"), (6, "metal-apple5"), (7, "metal"), (8, "metal-apple8"), (9, "metal-apple9")]
    {
        let (_machine, _entered, device) = open_on(Config { family, ..Config::default() }, Knobs::default());
        assert_eq!(device.unwrap().info().arch, arch);
    }
    assert!(Table::of_family(3).is_none() && FaultKind::Slot != FaultKind::Range);
}
