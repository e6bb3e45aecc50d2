//! Packets of docs/amd.md 3, dword by dword, per engine version; random dwords; the ring's end.

use super::*;
use crate::packet::pm4::{Function, GcrCntl};
use crate::packet::seeded::Random;

const SRC: GpuVa = GpuVa(0x7f00_1234_5678);
const DST: GpuVa = GpuVa(0x7e00_0000_4000);

fn golden(sdma: Sdma, packet: Packet<'_>, expected: &[u32]) {
    let mut out = Vec::new();
    packet.emit(sdma, &mut out).unwrap();
    assert_eq!(out, expected, "{packet}");
    assert_eq!(Packet::parse(sdma, expected), Ok((packet, expected.len())));
}

#[test]
fn copies_and_fills_are_known_dwords() {
    let copy = Packet::CopyLinear(CopyLinear { dst: DST, src: SRC, len_bytes: 0x1000 });
    golden(Sdma::V6, copy, &[1, 0xfff, 0, 0x1234_5678, 0x7f00, 0x4000, 0x7e00]);
    let fill = ConstFill::dwords(Sdma::V6, DST, 0xdead_beef, 0x100).unwrap();
    golden(Sdma::V6, Packet::ConstFill(fill), &[0x8000_000b, 0x4000, 0x7e00, 0xdead_beef, 0xff]);
    let write = Packet::Write(Write { dst: DST, values: &[7, 8] });
    golden(Sdma::V4, write, &[2, 0x4000, 0x7e00, 1, 7, 8]);
}

#[test]
fn both_ways_to_count_a_dword_fill_mean_the_same_bytes() {
    let count = |count| ConstFill { dst: DST, size: FillSize::Dword, value: 0, count }.len_bytes();
    assert_eq!((count(0xff), count(0xfc)), (0x100, 0x100));
}

#[test]
fn signalling_packets_are_known_dwords() {
    golden(Sdma::V6, Packet::Fence(Fence { addr: DST, value: 9 }), &[0x0003_0005, 0x4000, 0x7e00, 9]);
    golden(Sdma::V4, Packet::Fence(Fence { addr: DST, value: 9 }), &[5, 0x4000, 0x7e00, 9]);
    golden(Sdma::V6, Packet::Trap(Trap { context: 3 }), &[6, 3]);
    let poll = Packet::PollRegmem(PollRegmem::at_least(DST, 9));
    golden(Sdma::V6, poll, &[0xd000_0008, 0x4000, 0x7e00, 9, u32::MAX, 0x0fff_0004]);
    golden(Sdma::V6, Packet::Timestamp(Timestamp { addr: DST }), &[0x020d, 0x4000, 0x7e00]);
    golden(Sdma::V6, Packet::HdpFlush, &[8, 0, 0x8000_0000, 0, 0, 0]);
    let add = Atomic { tc_op: TC_OP_ATOMIC_ADD_RTN_64, addr: DST, data: 1, compare: 0, loop_interval: 0 };
    golden(Sdma::V6, Packet::Atomic(add), &[0x5e00_000a, 0x4000, 0x7e00, 1, 0, 0, 0, 0]);
    let ib = Indirect { addr: DST, size_dwords: 0x40 };
    golden(Sdma::V6, Packet::Indirect(ib), &[4, 0x4000, 0x7e00, 0x40, 0, 0]);
    golden(Sdma::V6, Packet::Nop { skipped: &[1, 2] }, &[0x0002_0000, 1, 2]);
}

#[test]
fn a_gcr_carries_its_control_in_two_words() {
    let cache = GcrCntl::GL2_WB | GcrCntl::GLI_INV | GcrCntl::SEQ_LO;
    let gcr = Gcr { cache, base: GpuVa(0), limit: GpuVa(0) };
    golden(Sdma::V7, Packet::Gcr(gcr), &[0x0111, 0, 0x8001_0000, 1, 0]);
    assert!(gcr.emit(Sdma::V4, &mut Vec::new()).is_err());
    let error = Packet::parse(Sdma::V4, &[0x0111, 0, 0, 0, 0]).unwrap_err();
    assert_eq!(error.to_string(), "dword 0x0: unknown SDMA opcode 0x111");
}

#[test]
fn the_copy_limit_is_the_engines() {
    let copy = |len_bytes| CopyLinear { dst: DST, src: SRC, len_bytes };
    assert!(copy(0x40_0000).emit(Sdma::V4, &mut Vec::new()).is_ok());
    assert!(copy(0x40_0001).emit(Sdma::V4, &mut Vec::new()).is_err());
    assert!(copy(0x40_0001).emit(Sdma::V6, &mut Vec::new()).is_ok());
    assert!(copy(0).emit(Sdma::V6, &mut Vec::new()).is_err());
    let error = Packet::parse(Sdma::V4, &[1, 0x40_0000, 0, 0, 0, 0, 0]).unwrap_err();
    assert_eq!(error.to_string(), "dword 0x0: COPY: reserved bits 0x00400000 of its dword 1 are set");
}

#[test]
fn a_fence_of_another_engines_mtype_is_refused() {
    let error = Packet::parse(Sdma::V4, &[0x0003_0005, 0, 0, 0]).unwrap_err();
    assert_eq!(error.to_string(), "dword 0x0: FENCE: mtype has no meaning for value 0x3");
}

#[test]
fn a_cut_packet_says_what_is_left() {
    let error = Packet::parse(Sdma::V6, &[1, 0, 0]).unwrap_err().at(0x3fd);
    assert_eq!(error.to_string(), "dword 0x3fd: COPY needs 7 dwords, 3 are left");
    let error = Packet::parse(Sdma::V6, &[2, 0, 0, 9, 1]).unwrap_err();
    assert_eq!(error.to_string(), "dword 0x0: WRITE needs 14 dwords, 5 are left");
}

#[test]
fn the_rings_end_is_filled_when_a_packet_does_not_fit() {
    assert_eq!(pad_dwords(0x1000 - 28, 0x1000, 7), 0);
    assert_eq!(pad_dwords(0x1000 - 24, 0x1000, 7), 6);
    assert_eq!(pad_dwords(0x3000, 0x1000, 7), 0);
}

#[test]
fn a_listing_joins_runs_of_nops() {
    let listing = describe(Sdma::V6, &[0, 0, 0, 6, 3, 0xff]);
    let expected = [(0, "NOP x 3"), (3, "TRAP interrupt 3"), (5, "unknown SDMA opcode 0xff")];
    assert_eq!(listing, expected.map(|(at, line)| (at, line.to_owned())));
}

#[test]
fn a_poll_holds_as_its_function_says() {
    assert!(Function::GreaterEqual.holds(5, 5) && !Function::Greater.holds(5, 5));
    assert!(Function::Always.holds(0, 1) && Function::NotEqual.holds(0, 1) && !Function::Equal.holds(0, 1));
    assert!(Function::Less.holds(0, u64::MAX) && !Function::LessEqual.holds(u64::MAX, 0), "unsigned");
}

#[test]
fn random_dwords_parse_to_what_emits_them_or_to_an_error() {
    const OPS: [u32; 13] = [0, 1, 2, 4, 5, 6, 8, 10, 11, 0x20d, 0x111, 32, 99];
    let mut random = Random(0x5d3a);
    let mut accepted = 0;
    for case in 0..1_000_000_u32 {
        let sdma = [Sdma::V4, Sdma::V5, Sdma::V6, Sdma::V7][case as usize % 4];
        let mut words: [u32; 9] = std::array::from_fn(|_| random.dword());
        words[0] = OPS[random.next() as usize % OPS.len()] | (random.dword() & 0xffff_0000);
        if let Ok((packet, len)) = Packet::parse(sdma, &words) {
            accepted += 1;
            let mut out = Vec::new();
            packet.emit(sdma, &mut out).unwrap();
            assert_eq!(out, words[..len], "case {case} {packet}");
        }
    }
    assert!(accepted > 20_000, "only {accepted} cases were packets");
}
