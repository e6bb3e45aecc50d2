use super::compute::{self, Compute, Pcas};
use super::copy::{self, Copy, Element, Payload};
use super::gpfifo::Entry;
use super::host::{self, Host, Until};
use super::qmd::{Action, Constant, Dependent, FieldError, Invalidate, Launch, ParseError, Qmd, Release, Version};
use super::*;
use crate::packet::seeded::Random;
use crate::packet::{DecodeKind, EmitError, GpuVa};

fn pushed(emit: impl FnOnce(&mut PushBuffer) -> Result<(), EmitError>) -> Vec<u32> {
    let mut out = PushBuffer::new();
    emit(&mut out).unwrap();
    out.words().to_vec()
}

/// The launch of docs/nv.md 4.2 whose dwords were computed from the header.
fn golden() -> Launch {
    let mut constants = [None; 8];
    constants[0] = Some(Constant { address: GpuVa(0x20_0010_0000), len_bytes: 0x240, invalidate: true });
    let release = Release { address: GpuVa(0x20_0020_0000), payload: 7, timestamp: true, sysmembar: true };
    Launch {
        program: GpuVa(0x20_0000_0000),
        registers: 18,
        barriers: 2,
        sass_version: 0x90,
        grid: [4, 2, 1],
        block: [128, 1, 1],
        cluster: None,
        shared_bytes: 0x400,
        shared_config: [8 << 10, 228 << 10],
        local_bytes: 0,
        constants,
        releases: vec![release],
        dependent: None,
        invalidate: Invalidate::DATA,
        sysmembar: true,
    }
}

#[test]
fn qmd_of_hopper_has_the_dwords_that_the_header_gives() {
    let q = golden().emit(Version::V4_0).unwrap();
    let mut want = [0u32; 96];
    for (at, value) in [
        (0, 0x013f_0000),
        (10, 0x0000_1009),
        (13, 0x0000_0009),
        (16, 0x9000_0000),
        (17, 0x0300_0000),
        (18, 0xbc04_0040),
        (19, 0x0000_3e83),
        (20, 0x0020_0000),
        (21, 0x20),
        (22, 7),
        (32, 4),
        (33, 2),
        (34, 1),
        (35, 0x0001_0000),
        (36, 0x0001_0080),
        (37, 0x1012_0001),
        (39, 0x20),
        (48, 0x8000_4000),
        (49, 0x0120_0000),
    ] {
        want[at] = value;
    }
    assert_eq!(q.words(), want);
}

#[test]
fn launches_come_back_from_qmds_of_every_version() {
    for version in [Version::V2_3, Version::V2_4, Version::V3_0, Version::V4_0, Version::V5_0] {
        let mut launch = golden();
        launch.local_bytes = 0x260;
        launch.constants[3] = Some(Constant { address: GpuVa(0x30_0000_0100), len_bytes: 64, invalidate: false });
        launch.dependent =
            Some(Dependent { qmd: GpuVa(0x20_0100_0300), action: Action::Schedule, prefetch: version > Version::V2_3 });
        launch.releases.push(Release {
            address: GpuVa(0x20_0020_0010),
            payload: if version < Version::V3_0 { 9 } else { 1 << 40 },
            timestamp: false,
            sysmembar: true,
        });
        if version >= Version::V4_0 {
            launch.cluster = Some([2, 1, 1]);
        }
        let q = launch.emit(version).unwrap_or_else(|e| panic!("{version:?}: {e}"));
        assert_eq!(Launch::parse(&q), Ok(launch), "{version:?}");
        assert_eq!(Qmd::from_words(version, q.words()), Ok(q));
    }
}

#[test]
fn the_sizes_of_a_grid_of_clusters_count_clusters() {
    for version in [Version::V4_0, Version::V5_0] {
        let clusters = Launch { grid: [12, 4, 2], cluster: Some([3, 2, 1]), ..golden() };
        let q = clusters.emit(version).unwrap();
        let sizes = ["GRID_WIDTH", "GRID_HEIGHT", "GRID_DEPTH"].map(|name| q.get(name, 0).unwrap());
        assert_eq!(sizes, [4, 2, 2], "{version:?}");
        assert_eq!(Launch::parse(&q).unwrap().grid, [12, 4, 2], "{version:?}");
    }
}

#[test]
fn what_a_version_lacks_is_refused_with_its_name() {
    let clusters = Launch { cluster: Some([2, 1, 1]), ..golden() };
    let unknown = FieldError::Unknown { version: Version::V3_0, name: "GPC_CGA_WIDTH", index: 0 };
    assert_eq!(clusters.emit(Version::V3_0), Err(unknown));
    let many = Launch { releases: vec![golden().releases[0]; 3], ..golden() };
    assert!(matches!(many.emit(Version::V4_0), Err(FieldError::Unknown { name: "RELEASE_ENABLE", index: 2, .. })));
    let wide = Launch { registers: 0x200, ..golden() };
    let error = wide.emit(Version::V4_0).unwrap_err();
    assert_eq!(error.to_string(), "QMD field REGISTER_COUNT(0): value 0x200 is over the limit 0x1ff");
    let misaligned = Launch { program: GpuVa(0x20_0000_0008), ..golden() };
    assert!(misaligned.emit(Version::V5_0).is_err(), "Blackwell's address has no room for the low bits");
}

#[test]
fn bits_and_fields_that_no_launch_has_are_refused_with_their_names() {
    let good = golden().emit(Version::V4_0).unwrap();
    let mut q = good;
    q.set("ARRIVE_AT_LATCH_VALID", 0, 1).unwrap();
    let error = Launch::parse(&q).unwrap_err();
    assert_eq!(error.to_string(), "QMD V4_0: ARRIVE_AT_LATCH_VALID(0) is 0x1, which is not supported");
    let mut words = good.words().to_vec();
    words[4] = 1;
    let q = Qmd::from_words(Version::V4_0, &words).unwrap();
    assert_eq!(Launch::parse(&q), Err(ParseError::Reserved { version: Version::V4_0, dword: 4, bits: 1 }));
    let mut q = good;
    q.set("QMD_MAJOR_VERSION", 0, 3).unwrap();
    assert_eq!(Launch::parse(&q), Err(ParseError::Version { version: Version::V4_0, major: 3, minor: 0 }));
    let short = Qmd::from_words(Version::V4_0, &words[..64]).unwrap_err();
    assert_eq!(short.to_string(), "QMD V4_0 needs 96 dwords, only 64 are given");
}

#[test]
fn fields_of_a_version_do_not_overlap_and_lie_within_it() {
    for version in [Version::V2_3, Version::V2_4, Version::V3_0, Version::V4_0, Version::V5_0] {
        for r in version.rows() {
            let last = u32::from(r.lo) + u32::from(r.count - 1) * u32::from(r.stride) + u32::from(r.hi - r.lo);
            assert!((last as usize) < version.dwords() * 32, "{version:?} {}", r.name);
            let mut q = Qmd::new(version);
            q.set(r.name, u32::from(r.count) - 1, 1).unwrap();
            assert_eq!(q.words().iter().map(|w| w.count_ones()).sum::<u32>(), 1, "{version:?} {}", r.name);
            assert_eq!(q.get(r.name, u32::from(r.count) - 1), Ok(1));
        }
    }
}

#[test]
fn gpfifo_entries_have_the_bits_of_the_class_header() {
    let entry = Entry::fetch(GpuVa(0x20_0001_0000), 32);
    assert_eq!(entry.emit(), Ok([0x0001_0000, 0x0000_8020]));
    let all = [
        entry,
        Entry::Fetch { va: GpuVa(0xff_ffff_fffc), len_dwords: gpfifo::MAX_FETCH_DWORDS, subroutine: true, sync: true },
        Entry::Nop,
        Entry::ExtendedBase(0x1_2345),
    ];
    for entry in all {
        assert_eq!(Entry::parse(entry.emit().unwrap()), Ok(entry));
    }
    assert!(Entry::fetch(GpuVa(1 << 40), 1).emit().is_err());
    assert!(Entry::fetch(GpuVa(0x1002), 1).emit().is_err());
    assert!(Entry::fetch(GpuVa(0x1000), 0).emit().is_err());
    assert!(Entry::fetch(GpuVa(0x1000), 1 << 21).emit().is_err());
    assert!(Entry::parse([1, 1 << 10]).is_err(), "conditional");
    assert_eq!(Entry::parse([0, 7]), Err(DecodeKind::Opcode { set: "GPFIFO entry", opcode: 7 }));
}

#[test]
fn headers_are_those_that_other_drivers_send() {
    let sem = host::Action::Release { address: GpuVa(0x20_0020_0000), value: 7, wait_idle: true, timestamp: true };
    assert_eq!(pushed(|o| sem.emit(o)), [0x2005_0017, 0x0020_0000, 0x20, 7, 0, 0x0310_0001]);
    let acquire = host::Action::Acquire { address: GpuVa(0x1000), value: 9, until: Until::AtLeast, switch: true };
    assert_eq!(pushed(|o| acquire.emit(o)), [0x2005_0017, 0x1000, 0, 9, 0, 0x0100_1002]);
    let bind = |subchannel, class| pushed(|o| host::Action::SetObject { subchannel, class }.emit(o));
    assert_eq!(bind(Subchannel::COMPUTE, 0xcbc0), [0x2001_2000, 0xcbc0]);
    assert_eq!(bind(Subchannel::COPY, 0xc8b5), [0x2001_8000, 0xc8b5]);
    assert_eq!(pushed(|o| host::Action::Interrupt.emit(o))[0], 0x2001_0008);
    assert_eq!(pushed(|o| host::Action::WaitIdle { all: false }.emit(o)), [0x2001_001e, 0]);
    let first = |a: compute::Action| pushed(|o| a.emit(o))[0];
    assert_eq!(first(compute::Action::SharedWindow(GpuVa(0x7294 << 32))), 0x2002_20a8);
    assert_eq!(first(compute::Action::LocalWindow(GpuVa(0x7293 << 32))), 0x2002_21ec);
    assert_eq!(first(compute::Action::LocalMemory(GpuVa(0x20 << 32))), 0x2002_21e4);
    assert_eq!(first(compute::Action::LocalMemorySize { tpc_bytes: 0x26_0000, max_sms: 0xff }), 0x2003_20b9);
    let caches = compute::Action::InvalidateCaches { instruction: true, data: true, constant: true };
    assert_eq!(pushed(|o| caches.emit(o)), [0x2001_25a6, 0x1011]);
    let launch = |pcas| pushed(|o| compute::Action::Launch { qmd: GpuVa(0x20_0000_0100), pcas }.emit(o));
    assert_eq!(launch(Pcas::Signaling2), [0x2001_20ad, 0x2000_0001, 0x2001_20b0, 9]);
    assert_eq!(launch(Pcas::Signaling), [0x2001_20ad, 0x2000_0001, 0x2001_20af, 3]);
    let report = compute::Action::Release { address: GpuVa(0x2000), value: 5, timestamp: true };
    assert_eq!(pushed(|o| report.emit(o)), [0x2005_2056, 5, 0, 0x2000, 0, 0x1000]);
}

#[test]
fn copy_engine_gets_the_methods_that_other_drivers_send() {
    let copy =
        copy::Action::Copy { src: GpuVa(0x10_0000), dst: GpuVa(0x20_0000_0000), len_bytes: 4096, pipelined: false };
    assert_eq!(pushed(|o| copy.emit(o)), [0x2004_8100, 0, 0x10_0000, 0x20, 0, 0x2001_8106, 4096, 0x2001_80c0, 0x182]);
    let fill = |element| {
        let a = copy::Action::Fill { dst: GpuVa(0x1000), value: 5, element, count: 16 };
        let words = pushed(|o| a.emit(o));
        assert_eq!(words[0], 0x2003_81c0);
        (words[3], words[words.len() - 1])
    };
    assert_eq!(fill(Element::B4), (0x0003_0004, 0x582));
    assert_eq!(fill(Element::B1), (0x0000_0004, 0x582));
    assert_eq!(fill(Element::B8), (0x0103_0054, 0x582));
    let release = |payload| {
        let a = copy::Action::Release { address: GpuVa(0x3000), value: 1, timestamp: true, payload };
        pushed(|o| a.emit(o))
    };
    assert_eq!(release(Payload::Word), [0x2003_8090, 0, 0x3000, 1, 0x2001_80c0, 0x14]);
    assert_eq!(release(Payload::Wide), [0x2004_8090, 0, 0x3000, 1, 0, 0x2001_80c0, 0x0800_0014]);
    assert!(
        copy::Action::Copy { src: GpuVa(0), dst: GpuVa(0), len_bytes: 0, pipelined: true }
            .emit(&mut PushBuffer::new())
            .is_err()
    );
}

#[test]
fn engines_read_back_every_action() {
    let host_actions = [
        host::Action::SetObject { subchannel: Subchannel::COPY, class: 0xc8b5 },
        host::Action::Acquire {
            address: GpuVa(0x12_3456_7890),
            value: u64::MAX,
            until: Until::Circular,
            switch: false,
        },
        host::Action::Release { address: GpuVa(0x12_3456_7890), value: 1 << 40, wait_idle: false, timestamp: false },
        host::Action::WaitIdle { all: true },
        host::Action::Membar { system: true },
        host::Action::Membar { system: false },
        host::Action::Interrupt,
    ];
    let mut engine = Host::default();
    for action in host_actions {
        let words = pushed(|o| action.emit(o));
        let seen: Vec<_> = Writes::of(&words)
            .map(|w| w.unwrap())
            .filter_map(|w| engine.write(w.subchannel, w.method, w.value).unwrap())
            .collect();
        assert_eq!(seen, [action]);
    }
    let compute_actions = [
        compute::Action::WaitIdle,
        compute::Action::SharedWindow(GpuVa(0x7294 << 32)),
        compute::Action::LocalWindow(GpuVa(0x7293 << 32)),
        compute::Action::LocalMemory(GpuVa(0x21_0000_0000)),
        compute::Action::LocalMemorySize { tpc_bytes: 0x1_0026_0000, max_sms: 132 },
        compute::Action::InvalidateCaches { instruction: false, data: true, constant: true },
        compute::Action::Launch { qmd: GpuVa(0x20_0000_0100), pcas: Pcas::Signaling },
        compute::Action::Launch { qmd: GpuVa(0x20_0000_0200), pcas: Pcas::Signaling2 },
        compute::Action::Release { address: GpuVa(0x2000), value: 1 << 33, timestamp: false },
    ];
    let mut engine = Compute::default();
    for action in compute_actions {
        let words = pushed(|o| action.emit(o));
        let seen: Vec<_> =
            Writes::of(&words).map(|w| w.unwrap()).filter_map(|w| engine.write(w.method, w.value).unwrap()).collect();
        assert_eq!(seen, [action]);
    }
    let (src, dst) = (GpuVa(0x10_1234_5678), GpuVa(0x20_0000_0001));
    let copy_actions = [
        copy::Action::Copy { src, dst, len_bytes: 1 << 31, pipelined: true },
        copy::Action::CopyLines { src, dst, line_bytes: 100, lines: 7, src_pitch: 128, dst_pitch: 256 },
        copy::Action::Fill { dst, value: 0x1234_5678_9abc_def0, element: Element::B8, count: 3 },
        copy::Action::Fill { dst, value: 0xff, element: Element::B2, count: 3 },
        copy::Action::Release { address: GpuVa(0x3000), value: 1 << 50, timestamp: false, payload: Payload::Wide },
        copy::Action::Release { address: GpuVa(0x3000), value: 8, timestamp: true, payload: Payload::Word },
    ];
    let mut engine = Copy::default();
    for action in copy_actions {
        let words = pushed(|o| action.emit(o));
        let writes = Writes::of(&words).map(|w| w.unwrap());
        let seen: Vec<_> = writes.flat_map(|w| engine.write(w.method, w.value).unwrap()).flatten().collect();
        assert_eq!(seen, [action]);
    }
}

#[test]
fn unknown_methods_and_values_are_named_errors() {
    let error = Compute::default().write(0x3ffc, 1).unwrap_err();
    assert_eq!(error.to_string(), "compute engine has no method 0x3ffc (value 0x1)");
    let error = Host::default().write(Subchannel::HOST, 0x10, 1).unwrap_err();
    assert_eq!(error, MethodError::Unknown { engine: "host", method: 0x10, value: 1 });
    assert!(Host::default().write(Subchannel::HOST, 0x6c, 6).is_err(), "reductions");
    assert!(Copy::default().write(0x300, 1 << 12 | 0x182).is_err(), "physical addresses");
    assert!(Copy::default().write(0x300, 2).is_err(), "block-linear");
}

#[test]
fn groups_step_through_methods_as_their_header_says() {
    let mut out = PushBuffer::new();
    out.methods(Subchannel::COPY, 0x400, &[1, 2]).unwrap();
    out.repeated(Subchannel::COMPUTE, 0x1b4, &[3, 4]).unwrap();
    out.immediate(Subchannel::HOST, 0x78, 1).unwrap();
    // One increase: the second and all later values go to the next method.
    let mut words = out.words().to_vec();
    words.extend([5 << 29 | 3 << 16 | 1 << 13 | 0x1b0 >> 2, 7, 8, 9]);
    let seen: Vec<(u16, u32)> = Writes::of(&words).map(|w| w.map(|w| (w.method, w.value)).unwrap()).collect();
    let want = [(0x400, 1), (0x404, 2), (0x1b4, 3), (0x1b4, 4), (0x78, 1), (0x1b0, 7), (0x1b4, 8), (0x1b4, 9)];
    assert_eq!(seen, want);
    let text = Writes::of(&words).next().unwrap().unwrap().describe();
    assert_eq!(text, "COPY OFFSET_IN_UPPER=0x1");
    let cut: Vec<_> = Writes::of(&words[..2]).collect();
    assert!(matches!(&cut[..], [Err(e)] if e.to_string().contains("needs 2 dwords, 1 are left")), "{cut:?}");
    assert!(out.methods(Subchannel::HOST, 0, &[]).is_err());
    assert!(out.immediate(Subchannel::HOST, 0, 0x2000).is_err());
}

#[test]
fn random_dwords_end_in_writes_or_a_named_error() {
    let mut random = Random(0x6e76);
    let (mut writes, mut errors) = (0, 0);
    let (mut host, mut compute, mut copy) = (Host::default(), Compute::default(), Copy::default());
    for _ in 0..4000 {
        let mut words: Vec<u32> = (0..1 + random.next() % 12).map(|_| random.dword()).collect();
        // Every other time a header that can be one.
        if random.next().is_multiple_of(2) {
            words[0] = 1 << 29 | words[0] & 0x0003_efff;
        }
        for write in Writes::of(&words) {
            match write {
                Ok(w) => {
                    writes += 1;
                    let _ = (host.write(w.subchannel, w.method, w.value), compute.write(w.method, w.value));
                    let _ = copy.write(w.method, w.value);
                    assert!(!w.describe().is_empty());
                }
                Err(e) => {
                    errors += 1;
                    assert!((e.offset_dwords as usize) < words.len());
                }
            }
        }
        if let [a, b, ..] = words[..]
            && let Ok(entry) = Entry::parse([a, b])
        {
            assert_eq!(Entry::parse(entry.emit().unwrap()), Ok(entry));
        }
    }
    assert!(writes > 1000 && errors > 1000, "{writes} {errors}");
}

#[test]
fn random_qmds_parse_or_name_what_is_wrong() {
    let mut random = Random(0x716d64);
    for version in [Version::V2_3, Version::V2_4, Version::V3_0, Version::V4_0, Version::V5_0] {
        let good = golden().emit(version).unwrap();
        for _ in 0..300 {
            let mut words = good.words().to_vec();
            let at = random.next() as usize % words.len();
            words[at] ^= 1 << (random.next() % 32);
            let q = Qmd::from_words(version, &words).unwrap();
            match Launch::parse(&q) {
                Ok(launch) => assert_eq!(Launch::parse(&launch.emit(version).unwrap()), Ok(launch)),
                Err(e) => assert!(!e.to_string().is_empty()),
            }
        }
    }
}
