//! Memory that the program has already, used where it is.

use super::engines::each_engine_copies;
use super::{CHIPS, LONG, Rig, launch, load, pattern, read, small_options, units, words};
use doorbell::device::amd::{AmdDevice, Driver, Selector};
use doorbell::device::{Command, Device, DeviceError, QueueKind};
use doorbell::emu::kfd::{Chip, Config};
use doorbell::hcq::memory::View;
use doorbell_ioctl::abi::kfd;
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

/// The file holds what the GPU did: nothing of the runtime reads it.
#[test]
fn memory_of_the_program_is_used_where_it_is() {
    for chip in CHIPS {
        let rig = Rig::of(chip);
        let d = rig.open();
        // No whole pages: the rest of the last one is taken along.
        let data = pattern(2500);
        let (file, view) = file_of(&data);
        let (k, wrapped, far) = (load(&d, units::ADD), d.wrap_host(&view).unwrap(), words(&d, &[0; 2500]));
        assert_eq!((wrapped.len_bytes(), wrapped.host().unwrap().base()), (10_000, view.base()), "{chip:?}");
        let point = d.submit(QueueKind::Compute, &[launch(&k, &wrapped, 5, 25, 100)]).unwrap();
        d.wait(&point, LONG).unwrap();
        let added: Vec<u32> = data.iter().map(|x| x.wrapping_add(5)).collect();
        assert!(words_of(&file, 2500) == added, "{chip:?}: a kernel wrote");
        d.submit(QueueKind::Copy, &[Command::copy(far.at(0), wrapped.at(0), 10_000)]).unwrap();
        assert!(read(&d, &far) == added, "{chip:?}: a copy read");
        // Twice at the same time, at two addresses of the GPU.
        let again = d.wrap_host(&view).unwrap();
        assert_ne!(again.va(), wrapped.va());
        view.write(0, bytemuck::bytes_of(&77u32)).unwrap();
        assert_eq!((read(&d, &wrapped)[0], read(&d, &again)[0]), (77, 77), "{chip:?}: the program wrote");
        drop((k, wrapped, again, far, point));
        d.close().unwrap();
        drop(d);
        assert_eq!(rig.complaints(), Vec::<String>::new(), "{chip:?}");
        let mut last = [0u32];
        view.read(9996, bytemuck::cast_slice_mut(&mut last)).unwrap();
        assert_eq!(last[0], added[2499], "the program's memory outlives the device");
    }
}

#[test]
fn a_peer_reads_memory_of_the_program() {
    let rig = Rig::new(Config { gpus: 2, ..Config::new(Chip::Gfx942) });
    let driver = Driver::open("AMD", Arc::clone(&rig.port)).unwrap();
    let open = |n| AmdDevice::open(&format!("AMD:{n}"), &driver, &Selector::Index(n), &small_options()).unwrap();
    let (a, b) = (open(0), open(1));
    let data = pattern(1024);
    let (_file, view) = file_of(&data);
    let (wrapped, there) = (a.wrap_host(&view).unwrap(), words(&b, &[0; 1024]));
    b.submit(QueueKind::Copy, &[Command::copy(there.at(0), wrapped.at(0), 4096)]).unwrap();
    assert_eq!(read(&b, &there), data);
}

#[test]
fn memory_that_cannot_be_wrapped_is_an_error_that_says_why() {
    let rig = Rig::of(Chip::Gfx1100);
    let d = rig.open();
    let (file, view) = file_of(&pattern(2048));
    let read_only = View::file(&file, 8192, FileAccess::Read).unwrap();
    for (view, why) in [
        (view.sub(64, 4096).unwrap(), "it does not start on a page of 4096 bytes"),
        (view.sub(0, 0).unwrap(), "it is empty"),
        (read_only, "it is read-only"),
    ] {
        let error = d.wrap_host(&view).unwrap_err();
        let at = view.base().0;
        let text =
            format!("device AMD cannot use {} bytes of the program at {at:#x} in place: {why}", view.len_bytes());
        assert_eq!(error.to_string(), text);
    }
    // The software driver shares pages; those of one process alone it cannot.
    let error = d.wrap_host(&View::anonymous(8192, 4096).unwrap()).unwrap_err().to_string();
    assert!(error.contains("wrap memory of the program") && error.contains("EFAULT"), "{error}");
    d.close().unwrap();
    assert!(matches!(d.wrap_host(&view), Err(DeviceError::Closed { .. })));
    drop(d);
    assert_eq!(leftovers(&rig.log.events()), Vec::<String>::new());
}

#[test]
fn each_copy_engine_copies_in_a_queue_of_its_own() {
    for chip in CHIPS {
        let rig = Rig::of(chip);
        let d = rig.open();
        let engines = d.copy_engines().unwrap();
        assert_eq!((engines[0].name.as_str(), engines[1].name.as_str()), ("sdma0", "sdma1"));
        each_engine_copies(&d);
        // What the driver was asked for: queues on each engine, one for each.
        let asked = |number: usize| {
            let words = ["queue_type=SDMA_BY_ENG_ID".to_owned(), format!("sdma_engine_id={number})")];
            rig.calls().iter().filter(|call| words.iter().all(|word| call.contains(word))).count()
        };
        assert_eq!((0..engines.len()).map(asked).collect::<Vec<_>>(), vec![1; engines.len()], "{:#?}", rig.calls());
        d.close().unwrap();
        drop(d);
        assert_eq!(rig.complaints(), Vec::<String>::new());
    }
}

#[test]
fn drivers_that_do_not_number_their_engines_name_none() {
    let rig = Rig::new(Config { kfd_minor: kfd::MINOR_SDMA_ENGINE - 1, ..Config::new(Chip::Gfx1100) });
    let d = rig.open();
    assert_eq!(d.copy_engines().unwrap(), []);
    let memory = words(&d, &[0; 64]);
    let copy = [Command::copy(memory.at(0), memory.at(128), 64)];
    assert!(d.submit(QueueKind::CopyEngine(0), &copy).is_err());
    d.submit(QueueKind::Copy, &copy).unwrap();
}
