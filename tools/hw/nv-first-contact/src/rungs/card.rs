//! From the card's file to memory that both sides see, by the runtime's own steps of bring-up.

use crate::ladder::Climb;
use crate::raw::pattern;
use doorbell::device::DeviceTag;
use doorbell::device::nv::{Core, Driver, Gpu, Placement, STEPS, Telemetry, cards, uuid_text};
use hw_contact::{Failure, fail};
use std::sync::Arc;
use std::time::{Duration, Instant};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Opens the driver and chooses the card.
///
/// # Errors
/// The driver's; no such card.
pub fn connect(climb: &mut Climb) -> Result<(), Failure> {
    let port = Arc::clone(&climb.machine.port);
    let driver = Driver::open_with("NV", port, climb.args.any_driver, climb.tables())?;
    let all = cards(&driver).map_err(fail)?;
    let card = climb.machine.selector.pick(&all, &driver).map_err(fail)?.cloned();
    let found: Vec<&str> = all.iter().map(|c| c.bdf.as_str()).collect();
    let none = || Failure::from(format!("no such GPU; there are {}: {}", all.len(), found.join(", ")));
    climb.card = Some(card.ok_or_else(none)?);
    climb.driver = Some(driver);
    Ok(())
}

/// The steps of that name.
fn steps(climb: &mut Climb, names: &[&str]) -> Result<(), Failure> {
    let gpu = climb.gpu.as_mut().ok_or("the rung card was left out")?;
    for step in STEPS.iter().filter(|step| names.contains(&step.name)) {
        (step.run)(gpu).map_err(|e| e.into_device_error("NV"))?;
    }
    Ok(())
}

pub fn card(climb: &mut Climb) -> Result<String, Failure> {
    connect(climb)?;
    let (driver, card) = (Arc::clone(climb.driver()?), climb.card.clone());
    let card = card.ok_or("the rung card was left out")?;
    let gpu = Gpu::begin(&driver, &card, climb.args.bar1_doorbell).map_err(|e| e.into_device_error("NV"))?;
    climb.gpu = Some(gpu);
    steps(climb, &["attach", "classes"])?;
    let chip = climb.gpu()?.chip;
    climb.chip = Some(chip.name);
    let classes = climb.gpu()?.classes().len();
    let (gpfifo, compute, copy) = (chip.gpfifo_class, chip.compute_class, chip.copy_class);
    let has = |class: u32| climb.gpu().is_ok_and(|gpu| gpu.classes().contains(&class));
    // The doorbell's page is taken from an older class where the chip's own is not listed.
    let absent: Vec<String> = [gpfifo, compute, copy].iter().filter(|c| !has(**c)).map(|c| format!("{c:#x}")).collect();
    if !absent.is_empty() {
        return Err(
            format!("{} has not the classes {} that this runtime wants of it", chip.name, absent.join(", ")).into()
        );
    }
    Ok(format!("{} at {}, {classes} classes: {gpfifo:#x}, {compute:#x}, {copy:#x}", chip.name, card.bdf))
}

pub fn facts(climb: &mut Climb) -> Result<String, Failure> {
    steps(climb, &["facts"])?;
    let gpu = climb.gpu()?;
    let facts = &gpu.properties;
    if facts.sms == 0 || facts.vram_bytes == 0 {
        return Err(format!("the driver says {} SMs and {} bytes of VRAM", facts.sms, facts.vram_bytes).into());
    }
    let (name, sms, tpcs) = (&facts.name, facts.sms, facts.max_tpcs);
    Ok(format!(
        "{name}, {sms} SMs (chip {tpcs} TPCs), {} MiB VRAM, no MIG, no confidential computing",
        facts.vram_bytes / MIB
    ))
}

pub fn doorbell(climb: &mut Climb) -> Result<String, Failure> {
    steps(climb, &["doorbells"])?;
    let gpu = climb.gpu()?;
    gpu.doorbell().map_err(|errno| format!("the page is not mapped: {errno}"))?;
    let read = || gpu.register_time_ns().map_err(|errno| Failure::from(format!("the page is not mapped: {errno}")));
    let (first, began) = (read()?, Instant::now());
    let mut second = first;
    // TIMEOUT: a real clock steps within microseconds; a software one when its thread runs.
    let deadline = began + climb.patience().min(Duration::from_secs(5));
    while second <= first && Instant::now() < deadline && !climb.args.bar1_doorbell {
        std::thread::sleep(Duration::from_millis(20));
        second = read()?;
    }
    let took = began.elapsed();
    if climb.args.bar1_doorbell && second == 0 {
        return Ok("mapped through BAR1, where no clock is read".into());
    }
    if second <= first {
        return Err(format!("the clock in the usermode page does not advance: {first} and then {second}").into());
    }
    let rate = (second - first) as f64 / took.as_nanos() as f64;
    Ok(format!("the clock went {} ns in {} ns of the host ({rate:.3})", second - first, took.as_nanos()))
}

/// Nothing depends on it: refusals are reported, and only an empty answer fails.
pub fn telemetry(climb: &mut Climb) -> Result<String, Failure> {
    steps(climb, &["boost"])?;
    let telemetry = Telemetry::read(climb.gpu()?);
    if telemetry.vram_free_bytes.is_none() {
        return Err(format!("the driver does not say how much memory is free: {telemetry}").into());
    }
    Ok(telemetry.to_string())
}

pub fn space(climb: &mut Climb) -> Result<String, Failure> {
    steps(climb, &["address space", "register"])?;
    let gpu = climb.gpu.take().ok_or("the rung card was left out")?;
    let core = Core::of(DeviceTag::new("NV"), Arc::new(gpu), climb.options())?;
    let signal = core.signals.signal().map_err(fail)?;
    let tables = if core.gpu.uses_uvm() { "by UVM" } else { "by RM alone" };
    let note = format!("{}, page tables {tables}, signals at {:#x}", uuid_text(&core.gpu.uuid), signal.va());
    drop(signal);
    climb.core = Some(core);
    Ok(note)
}

pub fn memory(climb: &mut Climb) -> Result<String, Failure> {
    let core = climb.core()?;
    let quick = [4 * KIB, 64 * KIB, 2 * MIB, 16 * MIB];
    let thorough = [4 * KIB, 64 * KIB, 2 * MIB, 64 * MIB, 1 << 30];
    let sizes: &[u64] = if climb.is_quick() { &quick } else { &thorough };
    let mut mapped = "BAR1 too";
    for placement in [Placement::Host, Placement::System, Placement::Vram, Placement::VramMapped] {
        for size in sizes {
            // Mappings through BAR1 have to fit next to those of other processes.
            let is_small = placement == Placement::VramMapped && *size > 16 * MIB;
            let is_large = placement == Placement::System && *size > 2 * MIB;
            if is_small || is_large {
                continue;
            }
            let bo = match core.bo(*size, placement) {
                Ok(bo) => bo,
                Err(e) if placement == Placement::VramMapped => {
                    log_bar1(&e.to_string());
                    mapped = "BAR1 refused: rings go to system memory";
                    break;
                }
                Err(e) => return Err(format!("{placement:?} of {size:#x} bytes: {e}").into()),
            };
            if placement == Placement::Vram {
                continue;
            }
            let (view, data) = (bo.view().map_err(fail)?, pattern(64, *size as u32));
            for at in [0, size / 2, size - 64] {
                view.write(at, &data).map_err(fail)?;
                let mut back = vec![0; 64];
                view.read(at, &mut back).map_err(fail)?;
                if back != data {
                    return Err(
                        format!("{placement:?} of {size:#x} bytes: the host reads other bytes at {at:#x}").into()
                    );
                }
            }
        }
    }
    Ok(format!("pinned, system and VRAM up to {} MiB, {mapped}", sizes[sizes.len() - 1] / MIB))
}

fn log_bar1(why: &str) {
    eprintln!("   VRAM is not mapped for the host: {why}");
}
