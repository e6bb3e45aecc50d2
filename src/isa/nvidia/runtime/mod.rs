//! The functions that CUDA's runtime supplies to kernels: `vprintf`, `__assertfail`, `malloc` and `free`.
//!
//! They are written in PTX and assembled by our assembler, with the addresses of their memory as constants: `state` on
//! the device, `fault` and `text` in memory that the host reads after the launch, and the heap. A PTX module gets them
//! as text ([`with_functions`]); a cubin calls them by the convention of nvcc, through an entry each ([`functions`]).
//!
//! Place in the architecture: `engine::calls` allocates the memory and reads what the functions have written;
//! `elf::cubin` links them. Source: cubins of nvcc 13.5.37 for the convention; CUDA's programming guide for what the
//! functions do.

mod convention;

use super::ptx::{self, Item};
use super::sass::{SmArch, compile};
use convention::Entry;
use doorbell_elf::cubin::{Arch, Functions};

/// Where the functions keep what they remember and tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// [`STATE_BYTES`] zeros on the device.
    pub state: u64,
    /// [`FAULT_BYTES`] zeros that the host can read after a fault.
    pub fault: u64,
    /// The same for records of `vprintf`; a multiple of 8.
    pub text: u64,
    pub text_bytes: u64,
    /// A multiple of 16.
    pub heap: u64,
    pub heap_bytes: u64,
}

/// Bytes of the state: bytes asked for by `vprintf` (u64 at 0), its lost calls (u32 at 8), whether an assertion has
/// failed (u32 at 16), the heap's bytes that were ever used (u64 at 24), lists of free blocks (from 64).
pub const STATE_BYTES: u64 = 512;
/// Where the state has the number of calls whose text did not fit.
pub const LOST_OFFSET: u64 = 8;
/// Bytes of the description of a failed assertion: complete, line (u32), block, thread (3 x u32); at 64, 576 and 1088
/// the message, the file and the function, each of 511 bytes at most and a NUL.
pub const FAULT_BYTES: u64 = 2048;
/// Where a description has its texts: message, file, function.
pub const FAULT_TEXTS: [usize; 3] = [64, 576, 1088];

/// What the functions of a name are made of.
struct Source {
    text: &'static str,
    entries: &'static [Entry],
}

const SOURCES: [Source; 3] = [
    Source { text: include_str!("printf.ptx"), entries: &[Entry::new("vprintf", 4, &[8, 8])] },
    Source { text: include_str!("assert.ptx"), entries: &[Entry::new("__assertfail", 0, &[8, 8, 4, 8, 8])] },
    Source { text: include_str!("heap.ptx"), entries: &[Entry::new("malloc", 8, &[8]), Entry::new("free", 0, &[8])] },
];

/// The names that can be supplied.
pub fn names() -> impl Iterator<Item = &'static str> {
    SOURCES.iter().flat_map(|s| s.entries).map(|e| e.name)
}

/// Characters between `%` and the conversion; modifiers of length and letters of conversions, which are less 64.
const FLAGS: &str = " #'+-.0123456789";
const LENGTHS: &str = "hljztqL";
const INTEGERS: &str = "diouxXc";
const WIDES: &str = "fFeEgGaApsn";

/// A set of characters as bits; `first` is bit 0.
fn set(chars: &str, first: u32) -> u64 {
    chars.chars().fold(0, |set, c| set | 1 << (u32::from(c) - first))
}

fn text(source: &Source, places: &Places) -> String {
    let number = |n: u64| format!("{n:#x}");
    let [message, file, function] = FAULT_TEXTS.map(|at| at as u64);
    [
        ("$MESSAGE", message),
        ("$FILE", file),
        ("$FUNCTION", function),
        ("$STATE", places.state),
        ("$FAULT", places.fault),
        ("$TEXT_BYTES", places.text_bytes),
        ("$TEXT", places.text),
        ("$HEAP_BYTES", places.heap_bytes),
        ("$HEAP", places.heap),
        ("$FLAGS", set(FLAGS, 0)),
        ("$LENGTHS", set(LENGTHS, 64)),
        ("$INTEGERS", set(INTEGERS, 64)),
        ("$WIDES", set(WIDES, 64)),
    ]
    .iter()
    .fold(source.text.to_owned(), |text, (name, value)| text.replace(name, &number(*value)))
}

/// A PTX module with the functions that it declares and does not define; `None`: it declares none of them, or cannot be
/// read.
#[must_use]
pub fn with_functions(module: &str, places: &Places) -> Option<String> {
    if !names().any(|name| module.contains(name)) {
        return None;
    }
    let parsed = ptx::parse(module).ok()?;
    let functions = || parsed.items.iter().filter_map(|i| if let Item::Function(f) = i { Some(f) } else { None });
    let is_wanted = |name: &str| {
        let mut named = functions().filter(|f| *f.name == *name).peekable();
        named.peek().is_some() && named.all(|f| f.body.is_none() && !f.entry)
    };
    let mut out = module.to_owned();
    for source in SOURCES.iter().filter(|s| s.entries.iter().any(|e| is_wanted(e.name))) {
        out.push('\n');
        out.push_str(&text(source, places));
    }
    (out.len() > module.len()).then_some(out)
}

/// The functions for cubins of a chip.
///
/// # Errors
/// A chip that our assembler has no table for.
pub fn functions(places: &Places, arch: Arch) -> Result<Functions, String> {
    let chip = SmArch::of(arch).ok_or_else(|| format!("{arch}: no functions of the runtime are made for it"))?;
    let mut module = ".version 8.0\n.target sm_80\n.address_size 64\n".to_owned();
    SOURCES.iter().for_each(|source| module.push_str(&text(source, places)));
    // The code of functions comes after a kernel that calls them. That kernel is never launched.
    module.push_str(".visible .entry calls()\n{\n");
    SOURCES.iter().flat_map(|s| s.entries).for_each(|e| module.push_str(&e.call()));
    module.push_str("\tret;\n}\n");
    let (kernels, _) = compile::text_code(&module, chip).map_err(|e| format!("functions of the runtime: {e}"))?;
    let kernel = kernels.first().ok_or("functions of the runtime: no code")?;
    convention::functions(kernel, SOURCES.iter().flat_map(|s| s.entries), chip)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: Places =
        Places { state: 0x1000, fault: 0x2000, text: 0x3000, text_bytes: 4096, heap: 0x10000, heap_bytes: 1 << 20 };

    #[test]
    fn every_chip_has_the_functions() {
        for chip in SmArch::ALL {
            let arch = Arch::parse(&chip.to_string()).unwrap();
            let made = functions(&PLACES, arch).unwrap();
            let found: Vec<&str> = made.entries.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(found, ["vprintf", "__assertfail", "malloc", "free"], "{chip}");
            assert!(made.registers <= 48 && made.stack_bytes <= 512, "{chip}: {} {}", made.registers, made.stack_bytes);
        }
    }

    #[test]
    fn a_module_gets_what_it_declares_and_does_not_define() {
        let declared =
            ".version 8.0\n.target sm_80\n.address_size 64\n.extern .func (.param .b64 r) malloc(.param .b64 n);\n";
        let linked = with_functions(declared, &PLACES).unwrap();
        assert!(linked.contains(".func free(") && !linked.contains("vprintf") && !linked.contains('$'), "{linked}");
        let own = declared.replace(".extern ", "").replace(");\n", ") { ret; }\n");
        assert_eq!(with_functions(&own, &PLACES), None);
        assert_eq!(with_functions("malloc is no PTX", &PLACES), None);
    }
}
