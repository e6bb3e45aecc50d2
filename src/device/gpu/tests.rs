//! Tests of the queue and of recorded lists over a mock vendor: a ring of words that the test empties itself.

use super::encode::{Encode, GpuCore, GpuProgram, SubmitContext, Watch};
use super::queue::{GpuQueue, name_of, submit_runs};
use super::recorded::{EncodeList, GpuList, LaidOut, Launches};
use super::staging::SharedBuffer;
use crate::health::Health;
use crate::{Arg, Command, DeviceError, DeviceTag, Geometry, Kernel, Memory, MemoryParts};
use crate::{Patch, QueueKind, Recorded, Uses};
use doorbell_hcq::error::SubmitError;
use doorbell_hcq::memory::View;
use doorbell_hcq::signal::{Point, Report, Signal, SignalPool, Timeline, WaitError};
use std::any::Any;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Words that the ring holds.
const ROOM: usize = 12;

#[derive(Debug)]
struct Core {
    tag: DeviceTag,
    health: Health,
    signals: Arc<SignalPool>,
    /// What the queues pushed, as text; the test reads and empties it.
    ring: Mutex<Vec<String>>,
}

impl GpuCore for Core {
    fn tag(&self) -> &DeviceTag {
        &self.tag
    }
    fn health(&self) -> &Health {
        &self.health
    }
    fn submit_timeout(&self) -> Duration {
        Duration::from_millis(5)
    }
    fn spin(&self) -> Duration {
        Duration::ZERO
    }
    fn staging_bytes(&self) -> u64 {
        64
    }
    fn has_signal(&self, _: &Signal) -> bool {
        true
    }
    fn peer_signal(&self, _: &Signal) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
    fn map_peer(&self, _: u64) -> Result<bool, DeviceError> {
        Ok(false)
    }
    fn shared_buffer(&self, _: &'static str, len_bytes: u64) -> Result<SharedBuffer, DeviceError> {
        let view = View::anonymous(len_bytes, 64)?;
        Ok(SharedBuffer { va: view.base().0, view, keep: Arc::new(()) })
    }
    fn platform(&self) -> String {
        "a mock".into()
    }
    fn last_calls(&self) -> String {
        "none".into()
    }
}

#[derive(Debug)]
struct Program(Arc<str>);

impl GpuProgram for Program {
    fn name(&self) -> &Arc<str> {
        &self.0
    }
    fn entry(&self) -> u64 {
        7
    }
    fn private_bytes(&self) -> u32 {
        16
    }
}

/// The list, and what of it is in the ring.
#[derive(Debug)]
struct Words {
    core: Arc<Core>,
    list: Vec<String>,
    pushed: usize,
    private: u32,
}

#[derive(Debug)]
struct Polls;

impl Watch<Words> for Polls {
    type Nap = ();

    fn look(&self, _: &GpuQueue<Words>) {}

    fn sleep(&self, _: &GpuQueue<Words>, _: u64, (): &mut (), left: Duration) -> bool {
        std::thread::sleep(left.min(Duration::from_millis(1)));
        false
    }

    fn end(&self, core: &Core, _: Words) -> Result<(), DeviceError> {
        core.ring.lock().unwrap().push("end".into());
        Ok(())
    }
}

impl Words {
    fn put(&mut self, word: String) -> Result<(), DeviceError> {
        self.list.push(word);
        Ok(())
    }
}

impl Encode for Words {
    type Core = Core;
    type Program = Program;
    type Watch = Polls;

    fn begin(&mut self, _: &Core, _: u64) {
        self.list.clear();
        self.pushed = 0;
    }
    fn holds_private(&self, bytes: u32) -> bool {
        bytes <= self.private
    }
    fn grow_private(&mut self, _: &Core, bytes: u32) -> Result<(), DeviceError> {
        self.private = bytes;
        Ok(())
    }
    fn open(&mut self, context: &SubmitContext<'_, Core>) -> Result<(), DeviceError> {
        self.put(format!("open {}", context.value))
    }
    fn wait(&mut self, _: &Signal, value: u64) -> Result<bool, DeviceError> {
        self.put(format!("wait {value}"))?;
        Ok(true)
    }
    fn acquire(&mut self, _: &Core) -> Result<(), DeviceError> {
        self.put("acquire".into())
    }
    fn timestamp(&mut self, _: &Signal) -> Result<(), DeviceError> {
        self.put("time".into())
    }
    fn exec(
        &mut self,
        context: &SubmitContext<'_, Core>,
        p: &Program,
        args: &[Arg],
        _: &Geometry,
    ) -> Result<(), DeviceError> {
        if args.is_empty() {
            return Err(context.core.cannot("launch without arguments".into()));
        }
        self.put(format!("exec {}", p.0))
    }
    fn copy(&mut self, _: &SubmitContext<'_, Core>, dst: u64, src: u64, len_bytes: u64) -> Result<(), DeviceError> {
        self.put(format!("copy {dst} {src} {len_bytes}"))
    }
    fn seal(&mut self, context: &SubmitContext<'_, Core>) -> Result<(), DeviceError> {
        self.put(format!("signal {}", context.value))
    }
    fn push(&mut self, _: &SubmitContext<'_, Core>) -> Result<bool, DeviceError> {
        let mut ring = self.core.ring.lock().unwrap();
        let room = ROOM - ring.len().min(ROOM);
        let rest = self.list[self.pushed..].iter().take(room).cloned();
        self.pushed += rest.len();
        ring.extend(rest);
        Ok(self.pushed == self.list.len())
    }
    fn report(&self, _: &Timeline) -> Report {
        Report { wptr: self.pushed as u64, ..Report::default() }
    }
}

impl EncodeList for Words {
    type Layout = ();
    type Image = Mutex<Vec<u8>>;

    fn lay_out(
        _: &Core,
        _: &Launches<()>,
        _: &Program,
        args: &[Arg],
        _: &Geometry,
    ) -> Result<LaidOut<()>, DeviceError> {
        let bytes = args.iter().flat_map(|arg| arg.bits().to_le_bytes()).collect();
        Ok(LaidOut { bytes, arg_ranges: (0..args.len()).map(|n| (8 * n, 8)).collect(), layout: () })
    }
    fn image(&self, _: &GpuQueue<Self>, launches: &Launches<()>) -> Result<Self::Image, DeviceError> {
        Ok(Mutex::new(launches.args.image().to_vec()))
    }
    fn is_current(&self, _: &Self::Image) -> bool {
        true
    }
    fn rewrite(
        _: &GpuQueue<Self>,
        image: &Self::Image,
        launches: &Launches<()>,
        _: impl Iterator<Item = usize> + Clone,
    ) -> Result<(), DeviceError> {
        *image.lock().unwrap() = launches.args.image().to_vec();
        Ok(())
    }
    fn run(&mut self, _: &SubmitContext<'_, Core>, image: &Self::Image) -> Result<(), DeviceError> {
        let first = image.lock().unwrap()[0];
        self.put(format!("list {first}"))
    }
}

struct Rig {
    core: Arc<Core>,
    compute: Arc<GpuQueue<Words>>,
    copies: Arc<GpuQueue<Words>>,
}

fn rig() -> Rig {
    let (tag, signals, ring) = (DeviceTag::new("X"), SignalPool::new(), Mutex::default());
    let core = Arc::new(Core { tag, health: Health::default(), signals, ring });
    let queue = |kind| {
        let timeline = Timeline::new(name_of(&core.tag, kind), core.signals.signal().unwrap());
        let words = Words { core: Arc::clone(&core), list: Vec::new(), pushed: 0, private: 0 };
        GpuQueue::new(&core, kind, timeline, words, Polls)
    };
    let (compute, copies) = (queue(QueueKind::Compute), queue(QueueKind::Copy));
    Rig { core, compute, copies }
}

impl Rig {
    fn memory(&self, va: u64) -> Memory {
        let uses = Uses::new(Some(Arc::clone(self.compute.timeline())));
        let device = self.core.tag.clone();
        Memory::new(MemoryParts { device, va, len_bytes: 64, host: None, uses, release: None })
    }

    fn kernel(&self) -> Kernel {
        Kernel::new(self.core.tag.clone(), "k", 7, Arc::new(Program("k".into())))
    }

    fn exec(&self, memory: &Memory) -> Command {
        Command::exec(&self.kernel(), [Arg::Buffer(memory.at(0))], 1)
    }

    /// Takes what was pushed since the last call, and marks it as done.
    fn take(&self) -> Vec<String> {
        for queue in [&self.compute, &self.copies] {
            queue.timeline().signal().set(queue.timeline().submitted());
        }
        std::mem::take(&mut self.core.ring.lock().unwrap())
    }
}

#[test]
fn a_copy_waits_for_the_kernel_that_uses_its_memory() {
    let rig = rig();
    let (a, b) = (rig.memory(1000), rig.memory(2000));
    let copy = Command::copy(b.at(0), a.at(8), 16);
    submit_runs(&rig.compute, &rig.copies, &[rig.exec(&a), copy]).unwrap();
    let pushed =
        ["open 1", "acquire", "exec k", "signal 1", "open 1", "wait 1", "acquire", "copy 2000 1008 16", "signal 1"];
    assert_eq!(rig.take(), pushed);
    rig.compute.submit(&[rig.exec(&b)], &[]).unwrap();
    assert_eq!(rig.take(), ["open 2", "acquire", "exec k", "signal 2"], "the copy is done");
}

#[test]
fn commands_of_the_other_queue_and_of_other_devices_are_refused() {
    let (here, there) = (rig(), rig());
    let (ours, theirs) = (here.memory(1000), there.memory(1000));
    let refused = |queue: &GpuQueue<Words>, command: Command| queue.submit(&[command], &[]).unwrap_err();
    assert!(refused(&here.copies, here.exec(&ours)).to_string().contains("run kernels"));
    assert!(refused(&here.compute, Command::copy(ours.at(0), ours.at(32), 8)).to_string().contains("copy"));
    assert!(matches!(refused(&here.compute, here.exec(&theirs)), DeviceError::WrongDevice { .. }));
    assert!(matches!(
        refused(&here.copies, Command::copy(ours.at(0), theirs.at(0), 8)),
        DeviceError::WrongDevice { .. }
    ));
    assert!(matches!(refused(&here.copies, Command::copy(ours.at(60), ours.at(0), 8)), DeviceError::Range { .. }));
    assert!(here.take().is_empty());
}

#[test]
fn a_submission_given_up_leaves_nothing_behind() {
    let rig = rig();
    let a = rig.memory(1000);
    let refused = rig.compute.submit(&[rig.exec(&a), Command::exec(&rig.kernel(), [], 1)], &[]);
    assert!(matches!(refused, Err(DeviceError::Unsupported { .. })));
    assert!(a.uses().are_done() && rig.take().is_empty());
    rig.compute.submit(&[rig.exec(&a)], &[]).unwrap();
    assert_eq!(rig.take(), ["open 1", "acquire", "exec k", "signal 1"]);
}

#[test]
fn a_ring_that_stays_full_ends_the_device_with_a_report() {
    let rig = rig();
    let a = rig.memory(1000);
    for _ in 0..3 {
        rig.compute.submit(&[rig.exec(&a)], &[]).unwrap();
    }
    let full = rig.compute.submit(&[rig.exec(&a)], &[]).unwrap_err();
    let DeviceError::Submit(SubmitError::Wait(WaitError::Timeout(report))) = full else { panic!("{full}") };
    assert_eq!((report.queue.as_str(), report.timeout_ms), ("X/compute", 5));
    assert_eq!(report.signals, [("timeline".to_string(), 0, 4)]);
    assert_eq!(report.notes, ["a mock", "last kernels: k at 0x7", "last calls: none"]);
    assert_eq!(rig.core.health.fault(), Some("X/compute stayed full"));
    assert!(matches!(rig.compute.submit(&[], &[]), Err(DeviceError::Unavailable { .. })));
}

#[test]
fn a_list_that_is_replayed_reads_the_arguments_of_its_last_patches() {
    let rig = rig();
    let (a, b) = (rig.memory(1), rig.memory(2));
    let mut list = GpuList::new(&rig.compute, &[rig.exec(&a)]).unwrap();
    let patch = |memory: &Memory| [Patch::Arg { command: 0, arg: 0, value: Arg::Buffer(memory.at(0)) }];
    let run = |list: &mut GpuList<Words>, patches: &[Patch]| -> Point { list.replay(patches).unwrap() };
    for (patches, first) in [(&[][..], 1), (&patch(&b)[..], 2), (&[], 2), (&patch(&a), 1), (&[], 1), (&[], 1)] {
        let point = run(&mut list, patches);
        assert_eq!(rig.take()[2], format!("list {first}"));
        assert!(point.is_done());
    }
    assert!(matches!(list.replay(&[Patch::Threads { command: 0, threads: 1 }]), Err(DeviceError::Submit(_))));
}

#[test]
fn a_list_has_as_many_runs_in_flight_as_it_has_copies() {
    let rig = rig();
    let a = rig.memory(1);
    let mut list = GpuList::new(&rig.compute, &[rig.exec(&a)]).unwrap();
    for _ in 0..4 {
        list.replay(&[]).unwrap();
        rig.core.ring.lock().unwrap().clear();
    }
    assert!(matches!(list.replay(&[]), Err(DeviceError::Wait(WaitError::Timeout(_)))));
    rig.take();
    list.replay(&[]).unwrap();
}

#[test]
fn a_closed_queue_takes_nothing_and_ends_once() {
    let rig = rig();
    rig.compute.close().unwrap();
    rig.compute.close().unwrap();
    assert_eq!(rig.take(), ["end"]);
    assert!(matches!(rig.compute.submit(&[], &[]), Err(DeviceError::Closed { .. })));
}
