//! Software GPUs for `AMD:emu=CHIP`: this is the edge, the only place that knows both the devices and the emulator.

use doorbell::device::Registry;

/// Tells the registry where software GPUs come from.
pub fn offer() {
    Registry::global().set_emulate(emulate);
}

/// A software GPU of that chip.
#[cfg(target_os = "linux")]
pub fn emulate(chip: &str) -> Result<std::sync::Arc<dyn doorbell_ioctl::port::Port>, String> {
    use doorbell::emu::amdgpu::Strict;
    use doorbell::emu::kfd::{Chip, Config, SoftKfd};
    let known = [("gfx1100", Chip::Gfx1100), ("gfx1201", Chip::Gfx1201), ("gfx942", Chip::Gfx942)];
    let Some((_, chip)) = known.iter().find(|(name, _)| *name == chip) else {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        return Err(format!("no software GPU of chip {chip}, there are {}", names.join(", ")));
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let config = Config { waves: Strict { threads, ..Strict::on() }, ..Config::new(*chip) };
    Ok(SoftKfd::new(config).map_err(|errno| format!("software GPU: {errno}"))?)
}

#[cfg(not(target_os = "linux"))]
pub fn emulate(_chip: &str) -> Result<std::sync::Arc<dyn doorbell_ioctl::port::Port>, String> {
    Err("software GPUs need Linux".into())
}
