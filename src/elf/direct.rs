//! [`Object`] → [`Image`] without a file in between: what our own code for the CPU needs.
//!
//! Taken here: distances between addresses of the object itself. Everything else (names that are defined elsewhere,
//! absolute addresses, an object that contradicts itself) goes through the file, whose reader knows all of it and says
//! what is wrong. The image is the same either way.

use super::image::{Field, Image, MAX_IMAGE_BYTES, Perm, Segment, store};
use super::num::{align_up, index, wide};
use super::object::{Machine, Object, RelocKind, Section, Symbol, Target};
use super::x86_64::{INT3, STUB_BYTES};

/// The linked object; `None`: it has to go through its file.
pub(super) fn link(object: &Object, page_bytes: u64) -> Option<Image> {
    let plain = |s: &Symbol| {
        let inside = s.section.is_some_and(|section| s.offset_bytes <= object.section_len(section));
        inside && !s.name.is_empty() && !s.name.contains('\0')
    };
    if !matches!(object.machine, Machine::X86_64 | Machine::Aarch64)
        || object.bss_len > MAX_IMAGE_BYTES
        || !object.symbols.iter().all(plain)
    {
        return None;
    }
    let (text, rodata) = (wide(object.text.len()), wide(object.rodata.len()));
    let text_end = align_up(text, page_bytes)?;
    let rodata_end = align_up(text_end.checked_add(rodata)?, page_bytes)?;
    let size_bytes = align_up(rodata_end.checked_add(object.bss_len)?, page_bytes)?;
    if size_bytes == 0 || size_bytes > MAX_IMAGE_BYTES {
        return None;
    }
    let start = |section| match section {
        Section::Text => 0,
        Section::Rodata => text_end,
        Section::Bss => rodata_end,
    };
    let mut bytes = vec![0; index(rodata_end)];
    bytes.get_mut(..index(align_up(text, STUB_BYTES)?))?.fill(INT3);
    bytes.get_mut(..object.text.len())?.copy_from_slice(&object.text);
    bytes.get_mut(index(text_end)..)?.get_mut(..object.rodata.len())?.copy_from_slice(&object.rodata);
    for r in &object.relocations {
        let is_inside = r.offset_bytes.checked_add(4).is_some_and(|end| end <= object.section_len(r.section));
        let is_pc32 = r.kind == RelocKind::Pc32 && object.machine == Machine::X86_64;
        if !is_pc32 || r.section == Section::Bss || !is_inside {
            return None;
        }
        let to = match r.target {
            Target::Section(section) => start(section),
            Target::Symbol(n) => {
                let symbol = object.symbols.get(n)?;
                start(symbol.section?) + symbol.offset_bytes
            }
        };
        let at = start(r.section) + r.offset_bytes;
        let distance = i128::from(to) + i128::from(r.addend) - i128::from(at);
        store(&mut bytes, at, Field::Signed32, distance).then_some(())?;
    }
    let ends = [(0, text_end, Perm::Rx), (text_end, rodata_end, Perm::R), (rodata_end, size_bytes, Perm::Rw)];
    let used = ends.iter().filter(|(start, end, _)| start < end);
    let segments = used.map(|&(start, end, perm)| Segment { range: index(start)..index(end), perm }).collect();
    let is_entry = |s: &&Symbol| s.global && s.func && s.section == Some(Section::Text) && s.offset_bytes < text;
    let entries = object.symbols.iter().filter(is_entry).map(|s| (s.name.clone(), s.offset_bytes)).collect();
    Some(Image { bytes, size_bytes, page_bytes, segments, fixups: Vec::new(), externals: Vec::new(), entries })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Relocation;
    use crate::{PAGE_BYTES, link_in_pages, write};

    fn object(text: usize, rodata: usize, bss_len: u64) -> Object {
        let fill = |n: usize| (0..n).map(|k| k as u8).collect::<Vec<u8>>();
        let mut object = Object { text: fill(text), rodata: fill(rodata), bss_len, ..Object::new(Machine::X86_64) };
        object.define_function("k", 0, text as u64);
        object
    }

    fn distance(section: Section, offset_bytes: u64, target: Target, addend: i64) -> Relocation {
        Relocation { section, offset_bytes, kind: RelocKind::Pc32, target, addend }
    }

    #[test]
    fn an_object_links_to_what_its_file_links_to() {
        for (text, rodata, bss) in [(5, 0, 0), (4096, 64, 0), (4097, 100, 8), (70, 5000, 5000), (16, 0, 1)] {
            let mut o = object(text, rodata, bss);
            o.define_function("second", 3, 2);
            o.define_function("end", text as u64, 0);
            o.symbols[1].global = false;
            o.relocations.push(distance(Section::Text, 1, Target::Section(Section::Rodata), -4));
            o.relocations.push(distance(Section::Text, 0, Target::Symbol(1), 60));
            o.relocations.push(distance(Section::Text, 1, Target::Section(Section::Bss), 0));
            if rodata > 8 {
                o.relocations.push(distance(Section::Rodata, 8, Target::Symbol(0), 2));
            }
            for page in [PAGE_BYTES, 16 << 10, 64 << 10] {
                let image = link(&o, page).unwrap();
                assert_eq!(image, link_in_pages(&write(&o).unwrap(), page).unwrap(), "{text} {rodata} {bss} {page}");
                let ends = image.segments().iter().flat_map(|s| [s.range.start, s.range.end]);
                assert!(ends.chain([image.align(), image.size()]).all(|at| (at as u64).is_multiple_of(page)));
                assert!(image.relocated(page / 2, &|_| None).is_err());
            }
        }
    }

    #[test]
    fn what_is_not_plain_goes_through_the_file() {
        let mut external = object(8, 0, 0);
        let n = external.declare_external("memcpy");
        external.relocations.push(distance(Section::Text, 0, Target::Symbol(n), -4));
        let mut absolute = object(8, 0, 0);
        absolute.relocations.push(Relocation {
            kind: RelocKind::Abs64,
            ..distance(Section::Text, 0, Target::Section(Section::Text), 0)
        });
        let mut outside = object(8, 0, 0);
        outside.relocations.push(distance(Section::Text, 6, Target::Section(Section::Text), 0));
        let mut far = object(8, 0, 0);
        far.relocations.push(distance(Section::Text, 0, Target::Section(Section::Text), i64::MAX));
        let gpu = Object { machine: Machine::Amdgpu, ..object(8, 0, 0) };
        for o in [external, absolute, outside, far, gpu, Object::new(Machine::X86_64)] {
            assert_eq!(link(&o, PAGE_BYTES), None, "{o:?}");
        }
    }
}
