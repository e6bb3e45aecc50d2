//! Seeded faults between the NVIDIA device and the software RM: every run ends with the right numbers or with an error
//! that names the cause.

use super::units::{Does, Units};
use super::{CUBIN, launch, pattern, small_options};
use doorbell::device::nv::{Driver, NvDevice, NvOptions, Selector};
use doorbell::device::{Code, Device, DeviceError, KernelImage, QueueKind};
use doorbell::emu::nvrm::{Call, Chip, Config, Refusal, SoftNv};
use doorbell_ioctl::abi::nvrm;
use doorbell_ioctl::fault::{self, Faults, Plan, Trouble};
use doorbell_ioctl::port::Port;
use doorbell_ioctl::trace::{Trace, leftovers};
use std::sync::Arc;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_millis(300);
/// Enough for a busy machine, where nothing was done to the run.
const PATIENT: Duration = Duration::from_secs(10);

/// Copies in, launches, copies out; `Ok` are the words that came back.
fn program(port: &Arc<dyn Port>, units: &Units, patience: Duration) -> Result<Vec<u32>, DeviceError> {
    let options = NvOptions { submit_timeout: patience, ..small_options() };
    let driver = Driver::open("NV", Arc::clone(port), false)?;
    let d = NvDevice::open("NV", &driver, &Selector::Index(0), &options)?;
    let k = d.load(&[KernelImage { name: "add", code: Code::Elf { bytes: CUBIN, entry: "add" } }])?.remove(0);
    units.known.lock().unwrap().insert(k.entry(), Does::Add);
    let m = d.alloc(4096)?;
    d.copy_in(&m, 0, bytemuck::cast_slice(&pattern(1024)))?;
    for _ in 0..3 {
        let point = d.submit(QueueKind::Compute, &[launch(&k, &m, 1, 16, 64)])?;
        d.wait(&point, patience)?;
    }
    let mut out = vec![0u32; 1024];
    d.copy_out(&m, 0, bytemuck::cast_slice_mut(&mut out))?;
    drop((m, k));
    d.close()?;
    Ok(out)
}

/// A call that gives something back: where it fails, that stays.
fn gives_back(call: fault::Call) -> bool {
    let name = call.to_string();
    call == fault::Call::Munmap || ["_FREE", "UNMAP_", "UNREGISTER_"].iter().any(|part| name.contains(part))
}

#[test]
fn two_hundred_seeded_faults_end_in_the_right_numbers_or_a_typed_error() {
    let right: Vec<u32> = pattern(1024).iter().map(|x| x.wrapping_add(3)).collect();
    let (mut worked, mut failed) = (0, 0);
    for seed in 0..200u64 {
        // A lost doorbell is rung again by the waiting host, and RM does what UVM refuses: plans are dense, so that
        // enough of them end a run.
        let plan = Plan::seeded(seed, 30);
        let run = |patience| {
            let units = Arc::new(Units::default());
            let soft = SoftNv::with_compute(Config::new(Chip::Sm90), Arc::clone(&units) as _).unwrap();
            let (trace, log) = Trace::log(soft as _);
            let faults = Faults::new(trace, plan.clone());
            let port: Arc<dyn Port> = Arc::clone(&faults) as _;
            (program(&port, &units, patience), faults.injected(), log)
        };
        let began = Instant::now();
        let (mut result, mut happened, mut log) = run(DEADLINE);
        let took = began.elapsed();
        assert!(took < Duration::from_secs(20), "seed {seed} ({plan}): {took:?}");
        if result.is_err() && happened.is_empty() {
            (result, happened, log) = run(PATIENT);
        }
        match &result {
            Ok(out) => assert!(*out == right, "seed {seed} ({plan}): wrong numbers"),
            Err(e) => {
                assert!(!happened.is_empty(), "seed {seed} ({plan}): {e}");
                assert!(!e.to_string().is_empty() && !e.to_string().contains('\n'), "seed {seed}: {e}");
            }
        }
        *(if result.is_ok() { &mut worked } else { &mut failed }) += 1;
        if !happened.iter().any(|i| matches!(i.fault.trouble, Trouble::Fail(_)) && gives_back(i.call)) {
            assert_eq!(leftovers(&log.events()), Vec::<String>::new(), "seed {seed} ({plan})");
        }
    }
    println!("{worked} runs worked, {failed} ended in an error");
    assert!(worked > 20 && failed > 20, "{worked} worked, {failed} failed");
}

#[test]
fn copies_share_the_graphics_engine_where_the_driver_gives_them_none_of_their_own() {
    let refused = [
        Call::Control(nvrm::GPU_GET_ENGINES_V2.cmd),
        Call::Control(nvrm::CE_GET_CAPS_V2.cmd),
        Call::Class(nvrm::HOPPER_DMA_COPY_A),
        Call::Control(nvrm::GROUP_GPFIFO_SCHEDULE.cmd),
    ];
    let right: Vec<u32> = pattern(1024).iter().map(|x| x.wrapping_add(3)).collect();
    for call in refused {
        // NV_ERR_NOT_SUPPORTED
        let refusals = vec![Refusal { call, nth: 1, status: 0x56 }];
        let units = Arc::new(Units::default());
        let config = Config { refusals, ..Config::new(Chip::Sm90) };
        let soft = SoftNv::with_compute(config, Arc::clone(&units) as _).unwrap();
        let (trace, log) = Trace::log(Arc::clone(&soft) as _);
        let port: Arc<dyn Port> = trace;
        assert!(program(&port, &units, PATIENT).unwrap() == right, "{call:?}");
        drop(port);
        assert_eq!((leftovers(&log.events()), soft.reports().len()), (Vec::new(), 0), "{call:?}");
    }
}

#[test]
fn every_refused_step_of_bring_up_is_named_and_leaves_nothing() {
    let steps = [
        (Call::Class(nvrm::NV01_DEVICE_0), "NV01_DEVICE_0"),
        (Call::Class(nvrm::NV20_SUBDEVICE_0), "NV20_SUBDEVICE_0"),
        (Call::Control(nvrm::GPU_GET_CLASSLIST_V2.cmd), "GPU_GET_CLASSLIST_V2"),
        (Call::Class(nvrm::HOPPER_USERMODE_A), "HOPPER_USERMODE_A"),
        (Call::Class(nvrm::FERMI_VASPACE_A), "FERMI_VASPACE_A"),
        (Call::Class(nvrm::KEPLER_CHANNEL_GROUP_A), "KEPLER_CHANNEL_GROUP_A"),
        (Call::Class(nvrm::FERMI_CONTEXT_SHARE_A), "FERMI_CONTEXT_SHARE_A"),
        (Call::Class(nvrm::HOPPER_CHANNEL_GPFIFO_A), "HOPPER_CHANNEL_GPFIFO_A"),
        (Call::Class(nvrm::HOPPER_COMPUTE_A), "HOPPER_COMPUTE_A"),
        // twice: the first refusal moves copies to the graphics engine
        (Call::Class(nvrm::HOPPER_DMA_COPY_A), "HOPPER_DMA_COPY_A"),
        (Call::Control(nvrm::GPFIFO_GET_WORK_SUBMIT_TOKEN.cmd), "GPFIFO_GET_WORK_SUBMIT_TOKEN"),
        (Call::Control(nvrm::GROUP_GPFIFO_SCHEDULE.cmd), "GPFIFO_SCHEDULE"),
    ];
    for (call, name) in steps {
        // NV_ERR_INVALID_ARGUMENT
        let refusals = (1..=2).map(|nth| Refusal { call, nth, status: 0x1f }).collect();
        let units = Arc::new(Units::default());
        let soft =
            SoftNv::with_compute(Config { refusals, ..Config::new(Chip::Sm90) }, Arc::clone(&units) as _).unwrap();
        let (trace, log) = Trace::log(soft as _);
        let port: Arc<dyn Port> = trace;
        let error = program(&port, &units, PATIENT).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("NV_ERR_INVALID_ARGUMENT (0x1f)"), "{name}: {error}");
        drop(port);
        assert_eq!(leftovers(&log.events()), Vec::<String>::new(), "{name}");
    }
}
