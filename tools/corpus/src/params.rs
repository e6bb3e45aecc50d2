//! Parameters and block of a kernel that nobody described, from the text of its PTX.

use doorbell_ptx::ptx;
use std::collections::{HashMap, HashSet};

/// The block that `.reqntid` or `.maxntid` names.
pub fn block(text: &str) -> Option<[u32; 3]> {
    let line = text.lines().find(|l| l.starts_with(".reqntid") || l.starts_with(".maxntid"))?;
    let mut numbers = line.split([' ', ',']).skip(1).filter_map(|w| w.parse::<u32>().ok());
    Some([numbers.next()?, numbers.next().unwrap_or(1), numbers.next().unwrap_or(1)])
}

/// The bytes of a kernel's parameters: addresses where the text uses a word as one, small numbers elsewhere. `None`:
/// the text has no such kernel.
pub fn bytes(text: &str, kernel: &str, attempt: u64, seed: u64, address: &dyn Fn(u64) -> u64) -> Option<Vec<u8>> {
    let module = ptx::parse(text).ok()?;
    let (mut bytes, mut places) = (vec![], vec![]);
    for p in &module.entry(kernel)?.params {
        let len = usize::try_from(p.len_bytes()?).ok()?;
        let element = usize::try_from(p.ty.bits().div_ceil(8)).ok()?.max(1);
        let align = p.align.map_or(element, |a| a as usize).max(1);
        bytes.resize(bytes.len().next_multiple_of(align), 0);
        places.push((p.name.to_string(), bytes.len(), p.ptr.is_some()));
        bytes.resize(bytes.len() + len, 0);
    }
    let (used, copies) = (addresses(text), copies(text));
    let (mut state, mut buffers) = (seed.wrapping_add(attempt), 0);
    let mut small = move || {
        state = crate::args::next(state);
        1 + (state >> 33) % 24
    };
    let mut seen = HashSet::new();
    for load in text.lines().filter_map(|l| Load::of(l.trim())) {
        let (param, more) = copies.get(load.param).copied().unwrap_or((load.param, 0));
        let Some((_, at, points)) = places.iter().find(|p| p.0 == param) else { continue };
        for (lane, register) in load.registers.iter().enumerate() {
            let at = at + more + load.offset + lane * load.len_bytes;
            let Some(place) = bytes.get_mut(at..at + load.len_bytes) else { continue };
            if !seen.insert(at) {
                continue;
            }
            let value = match (load.float, load.len_bytes) {
                (_, 8) if *points || used.contains(register) => {
                    buffers += 1;
                    address(buffers - 1)
                }
                (true, 8) => 1.25f64.to_bits(),
                (true, 4) => 0.75f32.to_bits().into(),
                (_, 1) => small() % 2,
                _ => small(),
            };
            place.copy_from_slice(&value.to_le_bytes()[..load.len_bytes]);
        }
    }
    Some(bytes)
}

/// `ld.param.v2.b32 {%r1, %r2}, [k_param_0+8];`
struct Load<'a> {
    param: &'a str,
    offset: usize,
    len_bytes: usize,
    float: bool,
    registers: Vec<&'a str>,
}

impl<'a> Load<'a> {
    fn of(line: &'a str) -> Option<Load<'a>> {
        let (words, rest) = line.strip_prefix("ld.param.")?.split_once(char::is_whitespace)?;
        let (registers, place) = rest.split_once('[')?;
        let (param, offset) = place.split_once(']')?.0.split_once('+').unwrap_or((place.split(']').next()?, "0"));
        let ty = words.rsplit('.').next()?;
        let bits: usize = ty.trim_start_matches(char::is_alphabetic).parse().ok()?;
        let registers = registers.split(['{', '}', ',', ' ']).filter(|r| r.starts_with('%')).collect();
        Some(Load { param, offset: offset.parse().ok()?, len_bytes: bits / 8, float: ty.starts_with('f'), registers })
    }
}

/// Registers that hold a parameter's place, which is read through them, and the offset from its start.
fn copies(text: &str) -> HashMap<&str, (&str, usize)> {
    let mut all: HashMap<&str, (&str, usize)> = HashMap::new();
    for line in text.lines().map(|l| l.trim().trim_end_matches(';')) {
        let words: Vec<&str> = line.split([' ', ',', '\t']).filter(|w| !w.is_empty()).collect();
        match words[..] {
            ["mov.b64" | "mov.u64", to, from] if !from.starts_with('%') => {
                all.insert(to, (from, 0));
            }
            ["add.s64" | "add.u64", to, from, by] => {
                if let (Some((param, at)), Ok(by)) = (all.get(from).copied(), by.parse::<usize>()) {
                    all.insert(to, (param, at + by));
                }
            }
            _ => {}
        }
    }
    all
}

/// Registers that are made addresses of global memory, or are used as such.
fn addresses(text: &str) -> HashSet<&str> {
    let mut all = HashSet::new();
    for line in text.lines().map(str::trim) {
        if line.contains("cvta.to.global") {
            all.extend(line.rsplit(' ').next().map(|r| r.trim_end_matches(';')));
        } else if let Some((_, place)) = line.split_once('[')
            && !line.contains(".param")
        {
            all.extend(place.split(['+', ']']).next());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(\n.param .u64 p0,\n\
        .param .align 8 .b8 p1[24]\n)\n.maxntid 64, 2\n{\n.reg .b64 %rd<9>;\n.reg .b32 %r<9>;\n.reg .f32 %f<9>;\n\
        ld.param.u64 %rd1, [p0];\nld.param.v2.b32 {%r1, %r2}, [p1+8];\nld.param.u64 %rd2, [p1];\n\
        mov.b64 %rd4, p1;\nld.param.f32 %f1, [%rd4+16];\ncvta.to.global.u64 %rd3, %rd1;\nst.global.b32 [%rd3], %r1;\nret;\n}\n";

    #[test]
    fn words_that_are_addresses_get_one_and_others_small_numbers() {
        let bytes = bytes(TEXT, "k", 0, 1, &|n| 0x1000 + n).unwrap();
        assert_eq!(bytes.len(), 32);
        assert_eq!(bytes[..8], 0x1000u64.to_le_bytes());
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert!([8, 16, 20].iter().all(|at| (1..=24).contains(&word(*at))), "{bytes:x?}");
        assert_eq!((word(12), word(24), word(28)), (0, 0.75f32.to_bits(), 0));
        assert_eq!(block(TEXT), Some([64, 2, 1]));
    }
}
