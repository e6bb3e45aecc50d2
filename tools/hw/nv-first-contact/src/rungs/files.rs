//! Device files, called directly: existence, the release, a client, the cards, UVM. Nothing of the runtime is used.

use crate::ladder::Climb;
use doorbell::device::nv::{CTL_PATH, UVM_PATH, explain};
use doorbell_ioctl::abi::{nvrm, uvm as abi};
use doorbell_ioctl::port::{Fd, KERNEL_LOG, OpenFlags, Port, call};
use hw_contact::{Failure, fail};
use std::fs;
use std::path::Path;

const NVIDIA_VENDOR: &str = "0x10de";
/// Lines of the kernel's log that are shown.
const LOG_LINES: usize = 5;

/// Files that are closed at the end.
struct Files<'a> {
    port: &'a dyn Port,
    open: Vec<Fd>,
}

impl Files<'_> {
    fn open(&mut self, path: &str) -> Result<Fd, Failure> {
        let fd = self.port.open(path, OpenFlags::DEVICE).map_err(|errno| fail(explain(self.port, path, errno)))?;
        self.open.push(fd);
        Ok(fd)
    }
}

impl Drop for Files<'_> {
    fn drop(&mut self) {
        for fd in self.open.drain(..).rev() {
            let _closed_anyway = self.port.close(fd);
        }
    }
}

/// A status as an error.
fn check(what: &str, status: u32) -> Result<(), Failure> {
    let status = nvrm::Status(status);
    if status.is_ok() { Ok(()) } else { Err(format!("{what}: {status}").into()) }
}

fn text(port: &dyn Port, path: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&port.read_file(path).ok()?).trim().to_string())
}

pub fn nodes(climb: &mut Climb) -> Result<String, Failure> {
    let port = &*climb.machine.port;
    let devices = text(port, "/proc/devices").unwrap_or_default();
    let major = |name: &str| devices.lines().find_map(|l| l.trim().strip_suffix(name)?.trim().parse::<u32>().ok());
    let Some(rm) = major(" nvidia").or_else(|| major(" nvidia-frontend")) else {
        return Err("no major nvidia in /proc/devices: no NVIDIA driver is loaded".into());
    };
    let Some(uvm) = major(" nvidia-uvm") else {
        return Err("no major nvidia-uvm in /proc/devices: the module is not loaded".into());
    };
    let there = |path: &str| port.open(path, OpenFlags::DEVICE).map(|fd| port.close(fd));
    for path in [CTL_PATH, UVM_PATH] {
        if let Err(errno) = there(path) {
            return Err(explain(port, path, errno).into());
        }
    }
    let version = text(port, "/proc/driver/nvidia/version").unwrap_or_default();
    let version = version.lines().next().unwrap_or("no /proc/driver/nvidia/version").to_string();
    Ok(format!("majors nvidia {rm}, nvidia-uvm {uvm}; {version}"))
}

/// Ladder 1 to 3: the release, a client, the cards.
pub fn control(climb: &mut Climb) -> Result<String, Failure> {
    let port = &*climb.machine.port;
    let mut files = Files { port, open: Vec::new() };
    let ctl = files.open(CTL_PATH)?;
    let mut version = nvrm::CheckVersion { cmd: u32::from(b'2'), ..Default::default() };
    call(port, ctl, &nvrm::CHECK_VERSION_STR, &mut version).map_err(fail)?;
    let end = version.version_string.iter().position(|b| *b == 0).unwrap_or(version.version_string.len());
    let release = String::from_utf8_lossy(&version.version_string[..end]).into_owned();
    let mut root = nvrm::RmAlloc { h_class: nvrm::NV01_ROOT_CLIENT, ..Default::default() };
    call(port, ctl, &nvrm::ALLOC, &mut root).map_err(fail)?;
    check("ALLOC NV01_ROOT_CLIENT", root.status)?;
    let client = root.h_object_new;
    let mut infos = nvrm::CardInfos::default();
    let listed = call(port, ctl, &nvrm::CARD_INFO, &mut infos).map_err(fail);
    let mut free = nvrm::RmFree { h_root: client, h_object_old: client, ..Default::default() };
    call(port, ctl, &nvrm::FREE, &mut free).map_err(fail)?;
    check("FREE of the client", free.status)?;
    listed?;
    let card = |c: &nvrm::CardInfo| {
        let place = format!("{:04x}:{:02x}:{:02x}.{}", c.domain, c.bus, c.slot, c.function);
        format!("{place} {:04x} minor {} BAR1 {} MiB", c.device_id, c.minor_number, c.fb_size >> 20)
    };
    let cards: Vec<String> = infos.cards.iter().filter(|c| c.valid != 0).map(card).collect();
    if cards.is_empty() {
        return Err("the driver lists no card".into());
    }
    let known = nvrm::Release::parse(&release).map_err(fail)?.known();
    let tested = known.map_or_else(|e| format!(" ({e})"), |_| String::new());
    Ok(format!("release {release}{tested}, client {client:#x}, {}", cards.join("; ")))
}

/// Ladder 8: an address space of UVM.
pub fn uvm(climb: &mut Climb) -> Result<String, Failure> {
    let port = &*climb.machine.port;
    let mut files = Files { port, open: Vec::new() };
    let (fd, mm) = (files.open(UVM_PATH)?, files.open(UVM_PATH)?);
    let mut args = abi::Initialize::default();
    call(port, fd, &abi::INITIALIZE, &mut args).map_err(fail)?;
    check("UVM_INITIALIZE", args.rm_status)?;
    let mut args = abi::MmInitialize { uvm_fd: fd.0, ..Default::default() };
    call(port, mm, &abi::MM_INITIALIZE, &mut args).map_err(fail)?;
    let mm = check("UVM_MM_INITIALIZE", args.rm_status).map_or_else(|f| f.what, |()| "MM_INITIALIZE done".into());
    let mut args = abi::PageableMemAccess::default();
    call(port, fd, &abi::PAGEABLE_MEM_ACCESS, &mut args).map_err(fail)?;
    check("UVM_PAGEABLE_MEM_ACCESS", args.rm_status)?;
    let pageable = if args.pageable_mem_access != 0 { "yes" } else { "no" };
    Ok(format!("{mm}, pageable memory of the process is seen by GPUs: {pageable}"))
}

/// What a machine without a usable card lacks, from what the kernel shows of it.
pub fn missing(climb: &Climb) -> Vec<String> {
    let port = &*climb.machine.port;
    let mut lines = Vec::new();
    if !climb.machine.is_software {
        let cards = cards(Path::new("/sys/bus/pci/devices"));
        lines.push(match cards.is_empty() {
            true => "no NVIDIA display or accelerator device is on the PCI bus that this system shows".into(),
            false => format!("on the PCI bus: {}", cards.join(", ")),
        });
        if !Path::new("/sys/module/nvidia").exists() {
            lines.push("the module nvidia is not loaded (modprobe nvidia; dmesg says why it refused a card)".into());
        }
        if !Path::new("/sys/module/nvidia_uvm").exists() {
            lines.push("the module nvidia-uvm is not loaded (modprobe nvidia-uvm)".into());
        }
    }
    for path in [CTL_PATH, UVM_PATH, "/dev/nvidia0"] {
        match port.open(path, OpenFlags::DEVICE) {
            Ok(fd) => drop(port.close(fd)),
            Err(errno) => lines.push(explain(port, path, errno)),
        }
    }
    let log = port.read_file(KERNEL_LOG).unwrap_or_default();
    let log = String::from_utf8_lossy(&log).into_owned();
    let ours: Vec<&str> = log.lines().filter(|l| l.contains("NVRM") || l.contains("nvidia")).collect();
    lines.extend(ours.iter().rev().take(LOG_LINES).rev().map(|l| format!("kernel log: {l}")));
    lines
}

/// NVIDIA's displays (class 03) and accelerators (class 12), each with its driver.
fn cards(bus: &Path) -> Vec<String> {
    let text = |folder: &Path, name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default().trim().to_string();
    let Ok(entries) = fs::read_dir(bus) else { return Vec::new() };
    let mut found: Vec<String> = entries
        .filter_map(Result::ok)
        .map(|e| e.path())
        .filter(|p| text(p, "vendor") == NVIDIA_VENDOR)
        .filter(|p| ["0x03", "0x12"].iter().any(|class| text(p, "class").starts_with(class)))
        .map(|p| {
            let driver = fs::read_link(p.join("driver")).ok();
            let driver = driver.and_then(|d| Some(d.file_name()?.to_string_lossy().into_owned()));
            let place = p.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            format!("{place} ({}, driver {})", text(&p, "device"), driver.as_deref().unwrap_or("none"))
        })
        .collect();
    found.sort();
    found
}
