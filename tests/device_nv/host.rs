//! Memory that both sides see: what the runtime places, and what the caller has already.

use super::engines::each_engine_copies;
use super::{LONG, Rig, launch, pattern, read, small_options, words};
use doorbell::device::nv::{Driver, NvDevice, NvOptions, PageTables, Placement, Selector};
use doorbell::device::{Command, Device, DeviceError, QueueKind};
use doorbell::emu::nvrm::{Chip, Config};
use doorbell::hcq::memory::View;
use doorbell_ioctl::port::FileAccess;
use doorbell_ioctl::trace::leftovers;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A file, and its bytes as memory of this process.
fn file_of(words: &[u32]) -> (File, View) {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(bytemuck::cast_slice(words), 0).unwrap();
    let view = View::file(&file, words.len() as u64 * 4, FileAccess::ReadWrite).unwrap();
    (file, view)
}

fn words_of(file: &File, count: usize) -> Vec<u32> {
    let mut found = vec![0u32; count];
    file.read_exact_at(bytemuck::cast_slice_mut(&mut found), 0).unwrap();
    found
}

#[test]
fn host_visible_memory_is_copied_without_staging_and_fills_fill() {
    let rig = Rig::hopper();
    let d = rig.open();
    let device = words(&d, &[0; 4096]);
    for placement in [Placement::Host, Placement::System, Placement::VramMapped] {
        let host = d.alloc_host(16384, placement).unwrap();
        let data = pattern(4096);
        host.host().unwrap().write(0, bytemuck::cast_slice(&data)).unwrap();
        d.submit(QueueKind::Copy, &[Command::copy(device.at(0), host.at(0), 16384)]).unwrap();
        assert_eq!(read(&d, &device), data, "{placement:?}");
    }
    assert!(matches!(d.alloc_host(4096, Placement::Vram), Err(DeviceError::Unsupported { .. })));
    d.fill(&device.at(4), 0x0102_0304, 4, 8).unwrap();
    d.fill(&device.at(16), 0xab, 1, 3).unwrap();
    d.fill(&device.at(24), 0x1111_2222_3333_4444, 8, 16).unwrap();
    let found = read(&d, &device);
    assert_eq!(found[1..3], [0x0102_0304; 2]);
    assert_eq!(found[4] & 0xff_ffff, 0xab_abab);
    assert_eq!(found[6..10], [0x3333_4444, 0x1111_2222, 0x3333_4444, 0x1111_2222]);
    assert!(d.fill(&device.at(2), 0, 4, 8).is_err() && d.fill(&device.at(0), 0, 3, 9).is_err());
    drop(device);
    d.close().unwrap();
    drop(d);
    assert_eq!(rig.complaints(), Vec::<String>::new());
}

/// The file holds what the GPU did: nothing of the runtime reads it.
#[test]
fn memory_that_the_caller_has_is_used_where_it_is() {
    for tables in [PageTables::UvmOrRm, PageTables::Rm] {
        let rig = Rig::hopper();
        let options = NvOptions { tables, ..small_options() };
        let driver = Driver::open_with("NV", Arc::clone(&rig.port), false, tables).unwrap();
        let d = NvDevice::open("NV", &driver, &Selector::Index(0), &options).unwrap();
        // No whole pages: the rest of the last one is pinned with it.
        let data = pattern(2500);
        let (file, view) = file_of(&data);
        let (k, wrapped, far) = (rig.add(&d), d.wrap_host(&view).unwrap(), words(&d, &[0; 2500]));
        assert_eq!((wrapped.len_bytes(), wrapped.host().unwrap().base()), (10_000, view.base()), "{tables:?}");
        let added: Vec<u32> = data.iter().map(|x| x.wrapping_add(5)).collect();
        let point = d.submit(QueueKind::Compute, &[launch(&k, &wrapped, 5, 25, 100)]).unwrap();
        d.wait(&point, LONG).unwrap();
        assert!(words_of(&file, 2500) == added, "{tables:?}: a kernel wrote");
        d.submit(QueueKind::Copy, &[Command::copy(far.at(0), wrapped.at(0), 10_000)]).unwrap();
        assert!(read(&d, &far) == added, "{tables:?}: a copy read");
        view.write(0, bytemuck::bytes_of(&77u32)).unwrap();
        assert_eq!(read(&d, &wrapped)[0], 77, "{tables:?}: the caller wrote");
        drop((k, wrapped, far, point));
        d.close().unwrap();
        drop((d, driver));
        assert_eq!(rig.complaints(), Vec::<String>::new(), "{tables:?}");
        let mut last = [0u32];
        view.read(9996, bytemuck::cast_slice_mut(&mut last)).unwrap();
        assert_eq!(last[0], added[2499], "the caller's memory outlives the device");
    }
}

#[test]
fn a_peer_reads_memory_of_the_caller() {
    let rig = Rig::new(Config { gpus: 2, ..Config::new(Chip::Sm90) });
    let driver = Driver::open("NV", Arc::clone(&rig.port), false).unwrap();
    let open = |name: &str, n| NvDevice::open(name, &driver, &Selector::Index(n), &small_options()).unwrap();
    let (a, b) = (open("NV", 0), open("NV:1", 1));
    let data = pattern(1024);
    let (_file, view) = file_of(&data);
    let (wrapped, there) = (a.wrap_host(&view).unwrap(), words(&b, &[0; 1024]));
    b.submit(QueueKind::Copy, &[Command::copy(there.at(0), wrapped.at(0), 4096)]).unwrap();
    assert_eq!(read(&b, &there), data);
}

#[test]
fn memory_that_cannot_be_wrapped_is_an_error_that_says_why() {
    let rig = Rig::hopper();
    let d = rig.open();
    let (file, view) = file_of(&pattern(2048));
    let read_only = View::file(&file, 8192, FileAccess::Read).unwrap();
    for (view, why) in [
        (view.sub(64, 4096).unwrap(), "it does not start on a page of 4096 bytes"),
        (view.sub(0, 0).unwrap(), "it is empty"),
        (read_only, "it is read-only"),
    ] {
        let error = d.wrap_host(&view).unwrap_err();
        assert!(matches!(error, DeviceError::Wrap { .. }) && error.to_string().contains(why), "{error:?}");
    }
    // The software driver shares pages; those of one process alone it cannot.
    let error = d.wrap_host(&View::anonymous(8192, 4096).unwrap()).unwrap_err();
    assert!(matches!(error, DeviceError::Rm { .. }), "{error:?}");
    let error = error.to_string();
    assert!(error.contains("wrap memory of the program") && error.contains("NV_ERR_INVALID_ADDRESS"), "{error}");
    d.close().unwrap();
    assert!(matches!(d.wrap_host(&view), Err(DeviceError::Closed { .. })));
    drop(d);
    assert_eq!(leftovers(&rig.log.events()), Vec::<String>::new());
}

#[test]
fn each_copy_engine_copies_in_a_queue_of_its_own() {
    for chip in [Chip::Sm80, Chip::Sm90] {
        let rig = Rig::new(Config::new(chip));
        let d = rig.open();
        let engines = d.copy_engines().unwrap();
        assert!(engines.len() > 1 && engines.iter().all(|engine| engine.name == format!("ce{}", engine.number)));
        assert!(engines.iter().all(|engine| engine.number > 1), "two are on the graphics engine's runlist");
        each_engine_copies(&d);
        let groups: Vec<String> =
            rig.calls().into_iter().filter(|call| call.contains("KEPLER_CHANNEL_GROUP_A")).collect();
        // One of the compute queue, one of the copy queue, one for each engine.
        assert_eq!(groups.len(), 2 + engines.len(), "{groups:#?}");
        d.close().unwrap();
        drop(d);
        assert_eq!(rig.complaints(), Vec::<String>::new());
    }
}
