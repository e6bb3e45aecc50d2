//! Golden dwords from docs/amd.md 2.3 and 2.5, chip by chip; random dwords; listings.

use super::chip::AcquireScope;
use super::*;
use crate::packet::seeded::Random;

const SIGNAL: GpuVa = GpuVa(0x7f00_1234_5678);

fn dwords(packet: Packet<'_>) -> Vec<u32> {
    let mut out = Vec::new();
    packet.emit(&mut out).unwrap();
    out
}

/// Emits, compares with the golden dwords, and parses them back.
fn golden(gfx: Gfx, packet: Packet<'_>, expected: &[u32]) {
    assert_eq!(dwords(packet), expected, "{}", packet.text(gfx));
    assert_eq!(Packet::parse(gfx, expected), Ok((packet, expected.len())));
}

#[test]
fn a_gfx11_launch_is_the_golden_dispatch() {
    // docs/amd.md 2.5: gfx1100, wave32, kernarg 0x7f00_0000_1000, entry 0x7f00_0001_0100, groups 4,1,1, local 64,1,1.
    let mut out = Vec::new();
    AcquireMem::all(Gfx::Gfx11.acquire(AcquireScope::Dispatch)).emit(&mut out).unwrap();
    let launch = ComputeDispatch {
        entry: GpuVa(0x7f00_0001_0100),
        rsrc1: 0x60af_0000 | 1 << 20,
        rsrc2: 0x84,
        rsrc3: 0,
        tmpring_size: 0,
        scratch_base: GpuVa(0),
        user_data: &[0x1000, 0x7f00],
        local: [64, 1, 1],
        groups: [4, 1, 1],
        wave32: true,
    };
    launch.emit(Gfx::Gfx11, &mut out).unwrap();
    EventWrite::CS_PARTIAL_FLUSH.emit(&mut out).unwrap();
    #[rustfmt::skip]
    let expected = [
        0xC006_5800, 0x0000_0000, 0xFFFF_FFFF, 0xFFFF_FFFF, 0x0000_0000, 0x0000_0000, 0x0000_0000, 0x0000_03F0,
        0xC002_7600, 0x0000_020C, 0x0000_0101, 0x0000_007F,
        0xC002_7600, 0x0000_0212, 0x60BF_0000, 0x0000_0084,
        0xC001_7600, 0x0000_0228, 0x0000_0000,
        0xC001_7600, 0x0000_0218, 0x0000_0000,
        0xC002_7600, 0x0000_0210, 0x0000_0000, 0x0000_0000,
        0xC003_7600, 0x0000_021B, 0x0000_0000, 0x0000_0000, 0x0000_0000,
        0xC002_7600, 0x0000_0240, 0x0000_1000, 0x0000_7F00,
        0xC001_7600, 0x0000_0215, 0x0000_0000,
        0xC008_7600, 0x0000_0204, 0, 0, 0, 0x0000_0040, 0x0000_0001, 0x0000_0001, 0, 0,
        0xC003_1500, 0x0000_0004, 0x0000_0001, 0x0000_0001, 0x0000_8005,
        0xC000_4600, 0x0000_0407,
    ];
    assert_eq!(out, expected);
    let listing: Vec<String> = describe(Gfx::Gfx11, &out).into_iter().map(|(_, line)| line).collect();
    assert_eq!(listing[0], "ACQUIRE_MEM GLM_WB|GLM_INV|GLK_WB|GLK_INV|GLV_INV|GL1_INV");
    assert_eq!(listing[1], "SET_SH_REG COMPUTE_PGM_LO = 0x101 0x7f");
    assert_eq!(listing[3], "SET_SH_REG COMPUTE_PGM_RSRC3 = 0x0");
    assert_eq!(listing[10], "DISPATCH_DIRECT groups 4,1,1 initiator 0x8005");
    assert_eq!(listing[11], "EVENT_WRITE CS_PARTIAL_FLUSH");
}

#[test]
fn full_acquires_are_the_constants_that_work() {
    let gfx11 = AcquireMem::all(Gfx::Gfx11.acquire(AcquireScope::Full));
    golden(Gfx::Gfx12, Packet::AcquireMem(gfx11), &[0xc006_5800, 0, u32::MAX, u32::MAX, 0, 0, 0, 0xc3f1]);
    let gfx9 = AcquireMem::all(Gfx::Gfx9.acquire(AcquireScope::Full));
    golden(Gfx::Gfx9, Packet::AcquireMem(gfx9), &[0xc005_5800, 0x28c4_0000, u32::MAX, u32::MAX, 0, 0, 0xa]);
    let before = AcquireMem::all(Gfx::Gfx9.acquire(AcquireScope::Dispatch));
    assert_eq!(dwords(Packet::AcquireMem(before))[1], 0x0840_0000);
}

#[test]
fn an_acquire_of_another_family_is_refused() {
    let gfx9 = dwords(Packet::AcquireMem(AcquireMem::all(Gfx::Gfx9.acquire(AcquireScope::Full))));
    let error = Packet::parse(Gfx::Gfx11, &gfx9).unwrap_err();
    assert_eq!(error.kind, DecodeKind::Count { packet: "ACQUIRE_MEM", min: 8, max: 8, have: 7 });
}

#[test]
fn signals_are_release_mems_with_and_without_interrupt() {
    let release = |cache, int_sel, ctxid| {
        Packet::ReleaseMem(ReleaseMem { cache, data_sel: DataSel::Low32, int_sel, addr: SIGNAL, data: 7, ctxid })
    };
    let flush = release(Gfx::Gfx11.table().release_flush, IntSel::None, 0);
    golden(Gfx::Gfx11, flush, &[0xc006_4900, 0x0070_f514, 0x2000_0000, 0x1234_5678, 0x7f00, 7, 0, 0]);
    let flush = release(Gfx::Gfx9.table().release_flush, IntSel::None, 0);
    golden(Gfx::Gfx9, flush, &[0xc006_4900, 0x0008_8514, 0x2000_0000, 0x1234_5678, 0x7f00, 7, 0, 0]);
    let event = release(Gfx::Gfx11.table().release_plain, IntSel::AfterConfirm, 5);
    golden(Gfx::Gfx11, event, &[0xc006_4900, 0x514, 0x2200_0000, 0x1234_5678, 0x7f00, 7, 0, 5]);
    let text = event.text(Gfx::Gfx11).to_string();
    assert_eq!(text, "RELEASE_MEM [0x7f0012345678] = 0x7 (32 bits) flush none interrupt 5");
}

#[test]
fn a_timestamp_is_a_release_mem_of_the_clock() {
    let packet = Packet::ReleaseMem(ReleaseMem {
        cache: Gfx::Gfx12.table().release_plain,
        data_sel: DataSel::GpuClock,
        int_sel: IntSel::None,
        addr: SIGNAL,
        data: 0,
        ctxid: 0,
    });
    golden(Gfx::Gfx12, packet, &[0xc006_4900, 0x514, 0x6000_0000, 0x1234_5678, 0x7f00, 0, 0, 0]);
}

#[test]
fn waits_and_writes_are_known_dwords() {
    let wait = Packet::WaitRegMem(WaitRegMem::at_least(SIGNAL, 9));
    golden(Gfx::Gfx11, wait, &[0xc005_3c00, 0x15, 0x1234_5678, 0x7f00, 9, u32::MAX, 4]);
    let hdp = WaitRegMem {
        space: WaitSpace::Register(0x0e26, 0x0e27),
        operation: Operation::WriteThenWait,
        reference: u32::MAX,
        ..WaitRegMem::at_least(SIGNAL, 0)
    };
    golden(Gfx::Gfx11, Packet::WaitRegMem(hdp), &[0xc005_3c00, 0x45, 0xe26, 0xe27, u32::MAX, u32::MAX, 4]);
    let write = WriteData { dst: DstSel::Memory, no_incr: false, confirm: true, addr: SIGNAL, values: &[0xcafe] };
    golden(Gfx::Gfx11, Packet::WriteData(write), &[0xc003_3700, 0x0010_0500, 0x1234_5678, 0x7f00, 0xcafe]);
}

#[test]
fn steering_packets_are_known_dwords() {
    let ib = IndirectBuffer { addr: SIGNAL, size_dwords: 0x20, chain: true };
    golden(Gfx::Gfx9, Packet::IndirectBuffer(ib), &[0xc002_3f00, 0x1234_5678, 0x7f00, 0x0090_0020]);
    let pred = PredExec { xcc_mask: 1, exec_dwords: 8 };
    golden(Gfx::Gfx9, Packet::PredExec(pred), &[0xc000_2300, 0x0100_0008]);
    golden(Gfx::Gfx9, Packet::Nop(Nop { payload: &[1, 2, 3] }), &[0xc002_1000, 1, 2, 3]);
    golden(Gfx::Gfx9, Packet::Nop(Nop { payload: &[] }), &[0xffff_1000]);
    let clock = CopyData {
        src_sel: CopySrc::GpuClock,
        dst_sel: CopyDst::Memory,
        wide: true,
        confirm: true,
        src: 0,
        dst: SIGNAL,
    };
    golden(Gfx::Gfx9, Packet::CopyData(clock), &[0xc004_4000, 0x0011_0509, 0, 0, 0x1234_5678, 0x7f00]);
    let reg = SetUconfigReg { first: regs::UconfigReg(0x14), values: &[7] };
    golden(Gfx::Gfx9, Packet::SetUconfigReg(reg), &[0xc001_7900, 0x14, 7]);
}

#[test]
fn rsrc3_goes_to_the_familys_register() {
    let launch = ComputeDispatch {
        entry: GpuVa(0x100),
        rsrc1: 0,
        rsrc2: 0,
        rsrc3: 0xabc,
        tmpring_size: 0,
        scratch_base: GpuVa(0),
        user_data: &[],
        local: [1, 1, 1],
        groups: [1, 1, 1],
        wave32: false,
    };
    let emit = |gfx| {
        let mut out = Vec::new();
        launch.emit(gfx, &mut out).unwrap();
        out
    };
    assert_eq!(emit(Gfx::Gfx9)[8..11], [0xc001_7600, 0x22d, 0xabc]);
    assert_eq!(emit(Gfx::Gfx12)[8..11], [0xc001_7600, 0x228, 0xabc]);
    let wide = ComputeDispatch { local: [0x2000, 1, 1], ..launch };
    assert!(wide.emit(Gfx::Gfx12, &mut Vec::new()).is_err(), "gfx12 has 13 bits of lanes");
    assert!(wide.emit(Gfx::Gfx11, &mut Vec::new()).is_ok());
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let ib = IndirectBuffer { addr: SIGNAL, size_dwords: 1 << 20, chain: false };
    assert!(ib.emit(&mut Vec::new()).unwrap_err().to_string().contains("IB size"));
    let odd = IndirectBuffer { addr: GpuVa(2), size_dwords: 1, chain: false };
    assert_eq!(
        odd.emit(&mut Vec::new()).unwrap_err().to_string(),
        "INDIRECT_BUFFER: address 0x2 is not aligned to 4 bytes"
    );
    let regs = SetShReg { first: regs::ShReg(0x3ff), values: &[1, 2] };
    assert!(matches!(regs.emit(&mut Vec::new()), Err(EmitError::OverLimit { .. })));
    assert!(matches!(SetShReg { values: &[], ..regs }.emit(&mut Vec::new()), Err(EmitError::Values { .. })));
}

#[test]
fn broken_headers_are_named_with_their_place() {
    let parse = |words: &[u32]| Packet::parse(Gfx::Gfx11, words).unwrap_err().at(0x40).to_string();
    assert_eq!(parse(&[0]), "dword 0x40: invalid PM4 packet header 0x00000000");
    assert_eq!(parse(&[0x8000_0000]), "dword 0x40: invalid PM4 packet header 0x80000000");
    assert_eq!(parse(&[0xc000_7700, 0]), "dword 0x40: unknown PM4 opcode 0x77");
    assert_eq!(parse(&[0xc003_1500, 1, 1]), "dword 0x40: DISPATCH_DIRECT needs 5 dwords, 3 are left");
    assert_eq!(parse(&[0xc001_4600, 0x407, 0]), "dword 0x40: EVENT_WRITE takes 2 to 2 dwords, its header says 3");
    assert_eq!(
        parse(&[0xc000_4600, 0x1407]),
        "dword 0x40: EVENT_WRITE: reserved bits 0x00001000 of its dword 1 are set"
    );
    assert_eq!(parse(&[0xc003_3700, 0x300, 0, 0, 1]), "dword 0x40: WRITE_DATA: dst_sel has no meaning for value 0x3");
}

#[test]
fn a_listing_goes_on_behind_a_bad_dword() {
    let listing = describe(Gfx::Gfx11, &[0x1234, 0xffff_1000, 0xc000_4600, 0x407, 0xc003_1500]);
    let lines: Vec<(usize, &str)> = listing.iter().map(|(at, line)| (*at, line.as_str())).collect();
    let expected = [
        (0, "invalid PM4 packet header 0x00001234"),
        (1, "NOP 1 dwords"),
        (2, "EVENT_WRITE CS_PARTIAL_FLUSH"),
        (4, "DISPATCH_DIRECT needs 5 dwords, 1 are left"),
    ];
    assert_eq!(lines, expected);
}

const OPCODES: [u32; 17] =
    [0x10, 0x15, 0x16, 0x1e, 0x22, 0x23, 0x37, 0x3c, 0x3f, 0x40, 0x46, 0x49, 0x50, 0x58, 0x76, 0x79, 0x93];

#[test]
fn random_dwords_parse_to_what_emits_them_or_to_an_error() {
    let mut random = Random(0x9a4);
    let mut accepted = 0;
    for case in 0..1_000_000_u32 {
        let gfx = [Gfx::Gfx9, Gfx::Gfx10, Gfx::Gfx11, Gfx::Gfx12][case as usize % 4];
        let mut words: [u32; 10] = std::array::from_fn(|_| random.dword());
        let pick = random.next();
        if !pick.is_multiple_of(8) {
            let opcode = OPCODES[pick as usize / 8 % OPCODES.len()];
            words[0] = 0xc000_0000 | (pick as u32 >> 8 & 7) << 16 | opcode << 8;
        }
        if let Ok((packet, len)) = Packet::parse(gfx, &words) {
            accepted += 1;
            let mut out = Vec::new();
            packet.emit(&mut out).unwrap();
            assert_eq!(out, words[..len], "case {case} {}", packet.text(gfx));
        }
    }
    assert!(accepted > 20_000, "only {accepted} cases were packets");
}
