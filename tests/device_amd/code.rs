//! Machine code run from ioctl to signal: kernels assembled by llvm-mc 19 (the text is next to the words), executed by
//! the emulated compute units with every check of theirs on.

use super::{Geometry, LONG, Rig, load_image, name, pattern, read, small_options, units, words};
use doorbell::device::amd::AmdOptions;
use doorbell::device::{Arg, Command, Device, DeviceError, Kernel, Patch, QueueKind};
use doorbell::emu::kfd::{Chip, Config};
use doorbell::hcq::signal::WaitError;
use std::time::Duration;

/// `data[group * 64 + item] += value`, arguments: an address and a value of 8 bytes, workgroups of 64.
/// ```text
/// s_load_b128 s[4:7], s[0:1], 0x0     v_and_b32 v0, 0x3ff, v0             s_lshl_b32 s2, s2, 6
/// v_add_nc_u32 v0, s2, v0             v_lshlrev_b32 v0, 2, v0             s_waitcnt lgkmcnt(0)
/// global_load_b32 v1, v0, s[4:5]      s_waitcnt vmcnt(0)                  v_add_nc_u32 v1, s6, v1
/// global_store_b32 v0, v1, s[4:5]     s_endpgm
/// ```
const ADD_GFX1100: &[u32] = &[
    0xf408_0100,
    0xf800_0000,
    0x3600_00ff,
    0x0000_03ff,
    0x8402_8602,
    0x4a00_0002,
    0x3000_0082,
    0xbf89_fc07,
    0xdc52_0000,
    0x0104_0000,
    0xbf89_03f7,
    0x4a02_0206,
    0xdc6a_0000,
    0x0004_0100,
    0xbfb0_0000,
];
/// The same with the group's number in ttmp9, s_wait_kmcnt and s_wait_loadcnt.
const ADD_GFX1201: &[u32] = &[
    0xf400_4100,
    0xf800_0000,
    0x3600_00ff,
    0x0000_03ff,
    0x8402_8675,
    0x4a00_0002,
    0x3000_0082,
    0xbfc7_0000,
    0xee05_0004,
    0x0000_0001,
    0x0000_0000,
    0xbfc0_0000,
    0x4a02_0206,
    0xee06_8004,
    0x0080_0000,
    0x0000_0000,
    0xbfb0_0000,
];
/// The same with s_load_dwordx4, v_add_u32, global_load_dword.
const ADD_GFX942: &[u32] = &[
    0xc00a_0100,
    0x0000_0000,
    0x2600_00ff,
    0x0000_03ff,
    0x8e02_8602,
    0x6800_0002,
    0x2400_0082,
    0xbf8c_c07f,
    0xdc50_8000,
    0x0104_0000,
    0xbf8c_0f70,
    0x6802_0206,
    0xdc70_8000,
    0x0004_0100,
    0xbf81_0000,
];
/// `s_branch -1`
const LOOP_GFX1100: &[u32] = &[0xbfa0_ffff];
/// `s_load_b64 s[4:5], s[0:1], 0x0; v_mov_b32 v0, 0; s_waitcnt lgkmcnt(0); global_load_b32 v1, v0, s[4:5]; s_waitcnt
/// vmcnt(0); s_endpgm`
const LOAD_GFX1100: &[u32] =
    &[0xf404_0100, 0xf800_0000, 0x7e00_0280, 0xbf89_fc07, 0xdc52_0000, 0x0104_0000, 0xbf89_03f7, 0xbfb0_0000];

fn add_code(chip: Chip) -> &'static [u32] {
    match chip {
        Chip::Gfx1100 => ADD_GFX1100,
        Chip::Gfx1201 => ADD_GFX1201,
        Chip::Gfx942 => ADD_GFX942,
    }
}

const GROUPS: Geometry = Geometry::of([4, 1, 1], [64, 1, 1]);

#[test]
fn machine_code_runs_from_ioctl_to_signal_on_every_chip_and_kernel_interface() {
    for chip in super::CHIPS {
        for kfd_minor in [11, 14, 17] {
            let rig = Rig::with_code(Config { kfd_minor, ..Config::new(chip) });
            let d = rig.open();
            let (k, m) = (load_image(&d, &units::image(name(chip), add_code(chip), 0)), words(&d, &pattern(256)));
            let add = |value| Command::exec(&k, [Arg::Buffer(m.at(0)), Arg::Var(value)], 1).over(GROUPS);
            d.submit(QueueKind::Compute, &[add(40), add(2)]).unwrap();
            let mut list = d.record(&[add(1), add(0)]).unwrap();
            list.replay(&[Patch::Arg { command: 1, arg: 1, value: Arg::Var(1000) }]).unwrap();
            let expected: Vec<u32> = pattern(256).iter().map(|x| x.wrapping_add(1043)).collect();
            assert_eq!(read(&d, &m), expected, "{chip:?} 1.{kfd_minor}");
            drop((list, k, m));
            d.close().unwrap();
            drop(d);
            assert_eq!(rig.complaints(), Vec::<String>::new(), "{chip:?} 1.{kfd_minor}");
        }
    }
}

#[test]
fn code_at_the_address_of_a_former_kernel_runs_as_itself() {
    for chip in super::CHIPS {
        let rig = Rig::with_code(Config::new(chip));
        let (d, code) = (rig.open(), add_code(chip));
        let m = words(&d, &pattern(256));
        let run = |kernel: &Kernel| {
            let command = Command::exec(kernel, [Arg::Buffer(m.at(0)), Arg::Var(5)], 1).over(GROUPS);
            let point = d.submit(QueueKind::Compute, &[command]).unwrap();
            d.wait(&point, super::LONG).unwrap();
        };
        // As long, and nothing but ends.
        let idle = load_image(&d, &units::image(name(chip), &vec![code[code.len() - 1]; code.len()], 0));
        let entry = idle.entry();
        run(&idle);
        drop(idle);
        // The next submission lets go of what the last one kept.
        d.submit(QueueKind::Compute, &[]).unwrap();
        let loaded: Vec<Kernel> = (0..16).map(|_| load_image(&d, &units::image(name(chip), code, 0))).collect();
        let same = loaded.iter().find(|k| k.entry() == entry).expect("a kernel at the freed address");
        run(same);
        let expected: Vec<u32> = pattern(256).iter().map(|x| x.wrapping_add(5)).collect();
        assert_eq!(read(&d, &m), expected, "{chip:?}");
        assert_eq!(rig.reports(), Vec::<String>::new(), "{chip:?}");
    }
}

#[test]
fn endless_loop_is_found_by_the_deadline() {
    let rig = Rig::with_code(Config::new(Chip::Gfx1100));
    let d = rig.open_with(&AmdOptions { submit_timeout: Duration::from_millis(300), ..small_options() }).unwrap();
    let k = load_image(&d, &units::image("gfx1100", LOOP_GFX1100, 0));
    let point = d.submit(QueueKind::Compute, &[Command::exec(&k, [], 1).over(Geometry::default())]).unwrap();
    let error = d.wait(&point, Duration::from_millis(200)).unwrap_err();
    assert!(matches!(error, DeviceError::Wait(WaitError::Timeout(_))), "{error}");
    assert!(d.close().is_err());
}

#[test]
fn load_from_freed_memory_names_the_buffer_it_was() {
    let rig = Rig::with_code(Config::new(Chip::Gfx1100));
    let d = rig.open_with(&AmdOptions { cache_bytes: 0, ..small_options() }).unwrap();
    let k = load_image(&d, &units::image("gfx1100", LOAD_GFX1100, 0));
    let gone = d.alloc(1 << 20).unwrap();
    let va = gone.va();
    drop(gone);
    let wild = Arg::Var((va + 0x2000).cast_signed());
    let point = d.submit(QueueKind::Compute, &[Command::exec(&k, [wild], 1).over(Geometry::default())]).unwrap();
    let error = d.wait(&point, LONG).unwrap_err().to_string();
    assert!(error.contains(&format!("memory fault at {:#x}", va + 0x2000)), "{error}");
    assert!(error.contains("0x2000 into a freed buffer of 0x100000 bytes"), "{error}");
}
