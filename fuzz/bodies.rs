//! What must be true for any bytes, one function a target. libFuzzer (`fuzz/targets`) and the seeded mutations of
//! `tests/fuzz.rs` call the same ones.
//!
//! No panic, no overflow (both builds check arithmetic), nothing read beyond the bytes; and where two halves exist,
//! what one half reads the other writes back. Left out: x86 machine code, which `iced-x86` decodes.
#![allow(dead_code)] // each target uses one

use doorbell::elf::amdgpu::CodeObject;
use doorbell::elf::cubin::{Arch, Cubin};
use doorbell::elf::parse::ElfFile;
use doorbell::elf::{self, ElfError, Perm};
use doorbell::emu::amdgpu as emu;
use doorbell::hcq::packet::nv::qmd::{Launch, Qmd, Version};
use doorbell::hcq::packet::nv::{Entry, Writes};
use doorbell::hcq::packet::{aql, pm4, sdma};
use doorbell::isa::amdgpu::{Chip, Target, Wave, assemble, decode, encode, parse, print};
use doorbell::isa::{ptx as ptx_isa, sass as sass_isa};
use doorbell::package::{Package, checksum_of};
use doorbell::runtime::PackageFile;
use doorbell_ioctl::abi::{self, Blob, Returned, decode_call};
use doorbell_ioctl::port::Errno;
use doorbell_ioctl::replay::submissions;
use doorbell_ioctl::trace::{FileSink, Sink, leftovers, read_trace};

/// What a target does with bytes.
pub type Body = fn(&[u8]);

/// Every target by name.
pub const TARGETS: &[(&str, Body)] = &[
    ("ioctl", ioctl),
    ("trace", trace),
    ("elf", elf),
    ("code_object", code_object),
    ("pm4", pm4),
    ("aql", aql),
    ("sdma", sdma),
    ("amdgpu", amdgpu),
    ("amdgpu_source", amdgpu_source),
    ("emu_decode", emu_decode),
    ("nv_push", nv_push),
    ("qmd", qmd),
    ("cubin", cubin),
    ("ptx", ptx),
    ("sass", sass),
    ("state", state),
    ("package", package),
];

/// A package: as it is, and with its checksums made right, so that what they protect is read too. What is read is
/// written back to the same bytes; the loader for devices agrees.
pub fn package(data: &[u8]) {
    let sealed = resealed(data);
    for bytes in [data, &sealed] {
        let Ok(p) = Package::parse(bytes) else { continue };
        let constants = p.data.start as usize..p.data.end as usize;
        if p.contents.data_file.is_none() {
            assert!(doorbell::package::write(&p.contents, &bytes[constants]).is_ok_and(|again| again == bytes));
            assert!(PackageFile::from_bytes(bytes).is_ok());
        }
        let sizes = p.contents.outputs.iter().flat_map(|o| &o.shape);
        let _any: Vec<Option<u64>> = sizes.map(|s| s.value(|_| Some(7))).collect();
    }
}

/// The bytes with the checksums that they would need, as far as the sections can be found.
fn resealed(data: &[u8]) -> Vec<u8> {
    let mut out = data.to_vec();
    let word = |out: &[u8], at: usize| out.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let put = |out: &mut Vec<u8>, at: usize, value: u32| {
        if let Some(to) = out.get_mut(at..at + 4) {
            to.copy_from_slice(&value.to_le_bytes());
        }
    };
    let rows = (word(&out, 12) as usize).min(out.len().saturating_sub(64) / 32);
    for row in (0..rows).map(|n| 64 + n * 32) {
        let (at, len) = (word(&out, row + 8) as usize, word(&out, row + 16) as usize);
        if let Some(section) = at.checked_add(len).and_then(|end| out.get(at..end)) {
            let checksum = checksum_of([section]);
            put(&mut out, row + 4, checksum);
        }
    }
    let table = checksum_of([out.get(64..64 + rows * 32).unwrap_or_default()]);
    put(&mut out, 32, table);
    let length = (out.len() as u64).to_le_bytes();
    if let Some(to) = out.get_mut(16..24) {
        to.copy_from_slice(&length);
    }
    let header = checksum_of([out.get(..60).unwrap_or_default()]);
    put(&mut out, 60, header);
    out
}

/// What a recording may yield beyond what it holds.
const FREE_BYTES: usize = 1 << 20;

/// Little-endian dwords; what is left over is dropped.
fn dwords(data: &[u8]) -> Vec<u32> {
    data.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
}

/// A call: which one, bytes of its struct, index of its blob, result; then the struct and the blob.
pub fn ioctl(data: &[u8]) {
    let Some(([which, struct_bytes, index, result], rest)) = data.split_first_chunk::<4>() else { return };
    let known = abi::all().nth(usize::from(*which)).map(|d| d.request);
    let request = known.unwrap_or_else(|| rest.first_chunk().map_or(0, |b| u32::from_le_bytes(*b)));
    let (bytes, tail) = rest.split_at(usize::from(*struct_bytes).min(rest.len()));
    let blobs = [Blob { index: u32::from(*index), bytes: tail.to_vec() }];
    let result = if *result < 128 { Ok(i32::from(*result)) } else { Err(Errno(i32::from(*result) - 128)) };
    for after in [None, Some(Returned { result, bytes, blobs: &blobs })] {
        let text = decode_call(request, bytes, &blobs, after);
        assert!(!text.is_empty() && !text.contains('\n') && text.len() < 1 << 16, "{text}");
    }
    if let Some(desc) = abi::find(request) {
        for embedded in desc.embedded {
            assert!(embedded.range(desc.layout, bytes).is_none_or(|(at, len)| at != 0 && len != 0));
        }
    }
}

/// A binary trace: read, printed, audited for leaks, written again and read again.
pub fn trace(data: &[u8]) {
    let Ok(events) = read_trace(data) else { return };
    for event in &events {
        assert!(!event.to_string().is_empty());
    }
    let _any = leftovers(&events);
    // A doorbell yields at most a ring, and only bytes of the file.
    let handed_over: usize = submissions(&events).iter().map(|s| s.bytes.len()).sum();
    assert!(handed_over <= FREE_BYTES + 1024 * data.len());
    let mut file = Vec::new();
    let Ok(mut sink) = FileSink::new(&mut file) else { return };
    events.iter().for_each(|event| sink.event(event));
    drop(sink);
    assert!(read_trace(&file[..]).is_ok_and(|again| again == events));
}

/// An x86-64 object: linked, placed, relocated.
pub fn elf(data: &[u8]) {
    let _ = ElfFile::parse_any(data);
    let Ok(image) = elf::link(data) else { return };
    let mut end = 0;
    for segment in image.segments() {
        assert_eq!(segment.range.start, end);
        assert!(segment.range.end > end && segment.range.end.is_multiple_of(image.align()));
        end = segment.range.end;
    }
    assert_eq!(end, image.size());
    for (name, at) in image.entries() {
        let segment = image.segments().iter().find(|segment| segment.range.contains(&at));
        assert_eq!(segment.map(|segment| segment.perm), Some(Perm::Rx), "{name} at {at:#x}");
    }
    if image.size() <= 1 << 20 {
        match image.relocated(0x7fff_1234_5000, &|name| (!name.is_empty()).then_some(0x5555_0000)) {
            Ok(memory) => assert_eq!(memory.len(), image.size()),
            Err(ElfError::Overflow { .. } | ElfError::Undefined { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

/// A code object: laid out, its kernels found, relocated.
pub fn code_object(data: &[u8]) {
    let Ok(object) = CodeObject::parse(data) else { return };
    assert_eq!(object.bytes().len(), object.size());
    for kernel in &object.kernels {
        assert!(object.code(kernel).len() <= object.size());
        assert!(kernel.entry_offset < object.size() as u64 && kernel.descriptor_offset < object.size() as u64);
    }
    if object.size() <= 1 << 20 {
        assert_eq!(object.image(0x7f00_0000_0000).map(|image| image.len()), Ok(object.size()));
    }
}

/// PM4 dwords: each packet that is read is written back as it was.
pub fn pm4(data: &[u8]) {
    use pm4::Gfx;
    let words = dwords(data);
    for gfx in [Gfx::Gfx9, Gfx::Gfx10, Gfx::Gfx11, Gfx::Gfx12] {
        let (mut at, mut out) = (0, Vec::new());
        while at < words.len() {
            match pm4::Packet::parse(gfx, &words[at..]) {
                Ok((packet, len)) => {
                    assert!(!packet.text(gfx).to_string().is_empty());
                    out.clear();
                    packet.emit(&mut out).expect("what was read fits its fields");
                    assert_eq!(out, words[at..at + len]);
                    at += len;
                }
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    at += 1;
                }
            }
        }
        assert!(pm4::describe(gfx, &words).len() <= words.len());
    }
}

/// AQL slots, as [`pm4`].
pub fn aql(data: &[u8]) {
    let words = dwords(data);
    for slot in words.as_chunks::<16>().0 {
        match aql::Packet::parse(slot) {
            Ok(aql::Packet::Invalid) => {}
            Ok(packet) => assert_eq!(packet.emit().as_ref(), Ok(slot)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert!(aql::describe(&words).len() <= words.len() / 16);
}

/// SDMA dwords, as [`pm4`].
pub fn sdma(data: &[u8]) {
    use sdma::Sdma;
    let words = dwords(data);
    for version in [Sdma::V4, Sdma::V5, Sdma::V6, Sdma::V7] {
        let (mut at, mut out) = (0, Vec::new());
        while at < words.len() {
            match sdma::Packet::parse(version, &words[at..]) {
                Ok((packet, len)) => {
                    out.clear();
                    packet.emit(version, &mut out).expect("what was read fits its fields");
                    assert_eq!(out, words[at..at + len], "{packet}");
                    at += len;
                }
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    at += 1;
                }
            }
        }
        assert!(sdma::describe(version, &words).len() <= words.len());
    }
}

/// Chip and wave size by the first byte.
fn target(byte: u8) -> Target {
    let chip = Chip::ALL[usize::from(byte) % Chip::ALL.len()];
    let wave = if chip.is_gfx9() || byte >= 128 { Wave::W64 } else { Wave::W32 };
    Target { chip, wave }
}

/// Machine code of a GPU: what is printed and can be read is encoded to an instruction that prints alike. Noise prints
/// texts that no assembler takes: literals wider than their operand, modifiers without effect.
pub fn amdgpu(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let (target, words) = (target(*first), dwords(rest));
    let mut at = 0;
    while at < words.len() {
        let Ok((inst, len)) = decode(target, &words[at..]) else {
            at += 1;
            continue;
        };
        assert!((1..=3).contains(&len) && at + len <= words.len());
        if let Ok(text) = print(target, &inst) {
            let read = parse(target, &text, &mut |_| None).ok().and_then(|again| encode(target, &again).ok());
            if let Some(code) = read {
                let (second, _) = decode(target, &code).unwrap_or_else(|e| panic!("{text}: {e}"));
                assert_eq!(print(target, &second).as_ref(), Ok(&text), "{:08x?}", &words[at..at + len]);
            }
        }
        at += len;
    }
}

/// Text for the assembler.
pub fn amdgpu_source(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    match assemble(target(*first), text) {
        Ok(done) => assert!(done.labels.iter().all(|(_, at)| *at <= done.words.len())),
        Err(error) => assert!(error.line <= text.lines().count().max(1), "{error}"),
    }
}

/// The emulator's own decoder.
pub fn emu_decode(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let chip = [emu::Chip::Gfx1100, emu::Chip::Gfx942, emu::Chip::Gfx1201][usize::from(*first) % 3];
    let words = dwords(rest);
    for at in 0..words.len() {
        let code = std::array::from_fn(|n| words.get(at + n).copied().unwrap_or(0));
        for wave32 in [true, false] {
            if let Ok((text, len)) = emu::disassemble(chip, wave32, code) {
                assert!(!text.is_empty() && (1..=4).contains(&len), "{text}: {len}");
            }
        }
    }
}

/// NVIDIA's push buffers and GPFIFO entries: every write is reported; an entry that is read is written back as it was.
pub fn nv_push(data: &[u8]) {
    let words = dwords(data);
    let mut writes = Writes::of(&words);
    while let Some(write) = writes.next() {
        match write {
            Ok(write) => assert!(!write.describe().is_empty()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        assert!(writes.position() <= words.len());
    }
    for pair in words.as_chunks::<2>().0 {
        // Bytes after a word that does nothing are ignored.
        if let Ok(entry) = Entry::parse(*pair)
            && entry != Entry::Nop
        {
            assert_eq!(entry.emit().expect("what was read fits its fields"), *pair);
        }
    }
}

/// A launch descriptor of each version: what is read as a launch is written back to be read as the same launch.
pub fn qmd(data: &[u8]) {
    let words = dwords(data);
    for version in [Version::V2_3, Version::V2_4, Version::V3_0, Version::V4_0, Version::V5_0] {
        let Ok(qmd) = Qmd::from_words(version, &words) else { continue };
        assert!(!qmd.describe().contains('\0'));
        let Ok(launch) = Launch::parse(&qmd) else { continue };
        let again = launch.emit(version).expect("what was read fits its fields");
        assert_eq!(Launch::parse(&again), Ok(launch));
    }
}

/// A cubin: read, placed, listed.
pub fn cubin(data: &[u8]) {
    let Ok(cubin) = Cubin::parse(data) else { return };
    for kernel in &cubin.kernels {
        assert!(cubin.code(kernel).len() <= cubin.size());
    }
    if cubin.size() <= 1 << 20 {
        assert!(cubin.image(0x7f_0000_0000).is_ok_and(|image| image.len() == cubin.size()));
    }
    let _text_or_what_is_wrong = sass_isa::listing(&cubin);
}

/// PTX text: what is read is printed and read again; then it is assembled, or refused in one line.
pub fn ptx(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(module) = ptx_isa::parse(text) else { return };
    assert_eq!(ptx_isa::parse(&module.to_string()).as_ref(), Ok(&module));
    if let Err(error) = sass_isa::compile::assemble(text, Arch { sm: 90, specific: false }) {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}

/// SASS of each chip: what is decoded has a text and encodes to the same word.
pub fn sass(data: &[u8]) {
    for word in data.as_chunks::<16>().0 {
        let word = u128::from_le_bytes(*word);
        for chip in sass_isa::SmArch::ALL {
            match sass_isa::decode_for(word, chip) {
                Ok(inst) => {
                    assert!(!sass_isa::print(&inst).is_empty());
                    assert_eq!(sass_isa::encode(&inst), Ok(word));
                }
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
}

/// Files of Tensors, of every format: what is read has a shape, and nothing is executed.
pub fn state(data: &[u8]) {
    use doorbell::nn::state as files;
    let id = format!("{}-{:?}", std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(format!("doorbell-fuzz-{id}"));
    if std::fs::write(&path, data).is_err() {
        return;
    }
    let dicts = [
        files::load(&path),
        files::load_npz(&path),
        files::load_torch(&path),
        files::zip_extract(&path),
        files::tar_extract(&path),
        files::load_npy(&path).map(files_of),
    ];
    let _ = files::load_metadata(&path);
    for t in dicts.into_iter().flatten().flat_map(|d| d.into_values()) {
        // A Tensor may carry an error, for a shape beyond what is counted.
        let _ = t.shape();
    }
    let _ = std::fs::remove_file(&path);
}

fn files_of(t: doorbell::Tensor) -> doorbell::nn::StateDict {
    doorbell::nn::StateDict::from([(String::new(), t)])
}
