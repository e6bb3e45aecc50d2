//! Seeded faults between the AMD device and the software KFD: every run ends with the right numbers or with an error
//! that names the cause.

use super::units::{self, Units};
use super::{CHIPS, launch, pattern, small_options};
use doorbell::device::amd::{AmdDevice, AmdOptions, Driver, Selector};
use doorbell::device::{Code, Device, DeviceError, KernelImage, QueueKind};
use doorbell::emu::kfd::{Config, SoftKfd};
use doorbell_ioctl::fault::{Call, Faults, Plan, Trouble};
use doorbell_ioctl::port::Port;
use doorbell_ioctl::trace::{Trace, leftovers};
use std::sync::Arc;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_millis(300);
/// Enough for a busy machine, where nothing was done to the run.
const PATIENT: Duration = Duration::from_secs(10);

/// Copies in, launches, copies out; `Ok` are the words that came back.
fn program(port: &Arc<dyn Port>, patience: Duration) -> Result<Vec<u32>, DeviceError> {
    let options = AmdOptions { submit_timeout: patience, ..small_options() };
    let driver = Driver::open("AMD", Arc::clone(port))?;
    let d = AmdDevice::open("AMD", &driver, &Selector::Index(0), &options)?;
    let image = units::kernel(&d.info().arch, units::ADD, 0);
    let k = d.load(&[KernelImage { name: "k", code: Code::Raw(&image) }])?.remove(0);
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
fn gives_back(call: Call) -> bool {
    let name = call.to_string();
    call == Call::Munmap || ["FREE_MEMORY", "UNMAP_MEMORY", "DESTROY_"].iter().any(|part| name.contains(part))
}

#[test]
fn two_hundred_seeded_faults_end_in_the_right_numbers_or_a_typed_error() {
    let right: Vec<u32> = pattern(1024).iter().map(|x| x.wrapping_add(3)).collect();
    let (mut worked, mut failed) = (0, 0);
    for seed in 0..200u64 {
        let chip = CHIPS[seed as usize % CHIPS.len()];
        let plan = Plan::seeded(seed, 30);
        let run = |patience| {
            let soft = SoftKfd::with_compute(Config::new(chip), Arc::new(Units::default())).unwrap();
            let (trace, log) = Trace::log(soft as _);
            let faults = Faults::new(trace, plan.clone());
            let port: Arc<dyn Port> = Arc::clone(&faults) as _;
            (program(&port, patience), faults.injected(), log)
        };
        let began = Instant::now();
        let (mut result, mut happened, mut log) = run(DEADLINE);
        let took = began.elapsed();
        assert!(took < Duration::from_secs(20), "seed {seed} ({plan}): {took:?}");
        if result.is_err() && happened.is_empty() {
            (result, happened, log) = run(PATIENT);
        }
        let flips = happened.iter().any(|i| matches!(i.fault.trouble, Trouble::Flip { .. }));
        match &result {
            // A flipped bit may be one of an argument or a value: the result is then arbitrary.
            Ok(out) => assert!(*out == right || flips, "seed {seed} ({plan}): wrong numbers"),
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
