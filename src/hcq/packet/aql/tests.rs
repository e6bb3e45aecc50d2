//! Packets of docs/amd.md 2.7, byte by byte; random slots.

use super::*;
use crate::packet::seeded::Random;

const DISPATCH: KernelDispatch = KernelDispatch {
    header: Header::SYSTEM,
    dimensions: 1,
    workgroup: [64, 1, 1],
    grid: [4096, 1, 1],
    private_bytes: 0,
    group_bytes: 0x400,
    kernel_object: GpuVa(0x7f00_0001_0040),
    kernarg: GpuVa(0x7f00_0000_1000),
    completion: GpuVa(0x7f00_0000_2040),
};

#[test]
fn a_dispatch_stands_at_the_runtimes_offsets() {
    let words = DISPATCH.emit().unwrap();
    let expected =
        [0x0001_1502, 0x0001_0040, 1, 4096, 1, 1, 0, 0x400, 0x0001_0040, 0x7f00, 0x1000, 0x7f00, 0, 0, 0x2040, 0x7f00];
    assert_eq!(words, expected);
    assert_eq!(Packet::parse(&words), Ok(Packet::KernelDispatch(DISPATCH)));
}

#[test]
fn barriers_and_vendor_packets_have_their_headers() {
    let signals = [GpuVa(0x40), GpuVa(0), GpuVa(0x80), GpuVa(0), GpuVa(0)];
    let all = Barrier { header: Header::SYSTEM, any: false, signals, completion: GpuVa(0) };
    let words = all.emit().unwrap();
    assert_eq!((words[0], words[2], words[6]), (0x1503, 0x40, 0x80));
    assert_eq!(Packet::parse(&words), Ok(Packet::Barrier(all)));
    assert_eq!(Packet::Barrier(all).to_string(), "BARRIER_AND barrier acquire System release System 0x40 0x80");
    let any = Barrier { any: true, ..all };
    assert_eq!(any.emit().unwrap()[0], 0x1505);

    let ib = IndirectBuffer { addr: GpuVa(0x7f00_1234_5678), size_dwords: 0x11, chain: false };
    let vendor = VendorPm4 { header: Header::SYSTEM, ib, completion: GpuVa(0) };
    let words = vendor.emit().unwrap();
    assert_eq!(words[..7], [0x0001_1500, 0xc002_3f00, 0x1234_5678, 0x7f00, 0x0080_0011, 0xa, 0]);
    assert_eq!(Packet::parse(&words), Ok(Packet::VendorPm4(vendor)));
}

#[test]
fn an_empty_slot_is_invalid_whatever_lies_behind_its_header() {
    let mut words = [u32::MAX; PACKET_DWORDS];
    words[0] = INVALID_HEADER;
    assert_eq!(Packet::parse(&words), Ok(Packet::Invalid));
    assert_eq!(Packet::Invalid.emit().unwrap()[0], 1);
}

#[test]
fn bad_slots_are_named() {
    let text = |words: [u32; PACKET_DWORDS]| Packet::parse(&words).unwrap_err().to_string();
    let mut words = DISPATCH.emit().unwrap();
    words[0] = 0x77;
    assert_eq!(text(words), "dword 0x0: invalid AQL packet header 0x00000077");
    words[0] = 0x0001_1502;
    words[12] = 1;
    assert_eq!(text(words), "dword 0x0: kernel dispatch: reserved bits 0x00000001 of its dword 12 are set");
    words[12] = 0;
    words[10] = 0x1001;
    assert_eq!(text(words), "dword 0x0: kernel dispatch: address 0x7f0000001001 is not aligned to 16 bytes");
    let misaligned = KernelDispatch { completion: GpuVa(8), ..DISPATCH };
    assert!(matches!(misaligned.emit(), Err(EmitError::Misaligned { align: 64, .. })));
}

#[test]
fn a_listing_skips_empty_slots() {
    let mut words = Packet::Invalid.emit().unwrap().to_vec();
    words.extend(DISPATCH.emit().unwrap());
    let listing = describe(&words);
    assert_eq!(listing.len(), 1);
    assert_eq!(listing[0].0, 1);
    assert!(listing[0].1.starts_with("KERNEL_DISPATCH barrier acquire System release System grid 4096,1,1"));
}

#[test]
fn random_slots_parse_to_what_emits_them_or_to_an_error() {
    let mut random = Random(0xa91);
    let mut accepted = 0;
    for case in 0..1_000_000_u32 {
        // Sparse slots with plausible headers, else nearly all would be refused.
        let mut words: [u32; PACKET_DWORDS] = std::array::from_fn(|_| random.dword() & !0x3f);
        words[0] = (case % 6) | (random.dword() & 0x0003_1f00);
        if !random.next().is_multiple_of(4) {
            words[12..14].fill(0);
            words[1..3].fill(0);
        }
        if random.next().is_multiple_of(2) {
            let tail = [0xc002_3f00, words[2], words[3], 0x80_0010, 0xa];
            words[1..6].copy_from_slice(&tail);
            words[6..14].fill(0);
        }
        match Packet::parse(&words) {
            Ok(Packet::Invalid) | Err(_) => {}
            Ok(packet) => {
                accepted += 1;
                assert_eq!(packet.emit().unwrap(), words, "case {case} {packet}");
            }
        }
    }
    assert!(accepted > 20_000, "only {accepted} cases were packets");
}
