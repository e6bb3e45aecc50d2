//! Compiles kernels with clang for a GPU and with gcc for the host, loads the code object, launches it in the emulator.

use doorbell::emu::amdgpu::{Chip, Dispatch, PlainBus, SharedBytes, Stats, Strict, WaveFault, run};
use object::{Object, ObjectSegment, ObjectSymbol};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub const SIZE: u32 = 128;
const CODE: u64 = 0x7f00_0000_0000;
const INPUT: u64 = 0x1000_0000;
pub const OUTPUT: u64 = 0x2000_0000;
const KERNARG: u64 = 0x3000_0000;
const PACKET: u64 = 0x3100_0000;
const SCRATCH: u64 = 0x4000_0000;

pub fn llvm(tool: &str) -> PathBuf {
    PathBuf::from("/usr/lib/llvm-19/bin").join(tool)
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emu_amdgpu/kernels")
}

/// A folder of this test process for objects and data.
pub fn scratch(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("doorbell-emu-{}-{number}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

pub fn cpu(chip: Chip) -> &'static str {
    match chip {
        Chip::Gfx1100 => "gfx1100",
        Chip::Gfx942 => "gfx942",
        Chip::Gfx1201 => "gfx1201",
    }
}

fn must(command: &mut Command) {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e} (cargo xtask setup installs it)"));
    assert!(out.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&out.stderr));
}

/// A linked code object from a C or assembly source, by clang 19.
pub fn compile(chip: Chip, source: &Path, flags: &[&str], dir: &Path) -> Vec<u8> {
    compile_by("19", chip, source, flags, dir)
}

/// As [`compile`], by clang of that version.
pub fn compile_by(version: &str, chip: Chip, source: &Path, flags: &[&str], dir: &Path) -> Vec<u8> {
    let bin = PathBuf::from(format!("/usr/lib/llvm-{version}/bin"));
    let stem = source.file_stem().unwrap().to_string_lossy();
    let file = dir.join(format!("{stem}-{}-{}.co", cpu(chip), flags.join("").replace(['/', ' '], "")));
    must(
        Command::new(bin.join("clang"))
            .args(["-target", "amdgcn-amd-amdhsa", "-nogpulib", "-fno-math-errno", "-ffp-contract=off", "-w"])
            .arg(format!("-mcpu={}", cpu(chip)))
            .args(flags)
            .arg(format!("--ld-path={}", bin.join("ld.lld").display()))
            .arg("-o")
            .arg(&file)
            .arg(source),
    );
    std::fs::read(file).unwrap()
}

/// A linked code object from assembly that names halves of registers, by LLVM 22.
pub fn assemble_halves(chip: Chip, source: &str) -> Vec<u8> {
    let (dir, bin) = (scratch("halves"), Path::new("/usr/lib/llvm-22/bin"));
    let [text, object, linked] = ["k.s", "k.o", "k.co"].map(|name| dir.join(name));
    std::fs::write(&text, source).unwrap();
    let target = ["-triple=amdgcn-amd-amdhsa", "-mattr=+real-true16", "-filetype=obj"];
    must(
        Command::new(bin.join("llvm-mc"))
            .args(target)
            .arg(format!("-mcpu={}", cpu(chip)))
            .arg("-o")
            .arg(&object)
            .arg(&text),
    );
    must(Command::new(bin.join("ld.lld")).args(["-shared", "-o"]).arg(&linked).arg(&object));
    let code = std::fs::read(linked).unwrap();
    std::fs::remove_dir_all(dir).unwrap();
    code
}

/// The host's results of all kernels of a source, by name.
pub fn on_host(source: &Path, input: &[u32], groups: u32, out_words: u32, n: u32) -> Vec<(String, Vec<u32>)> {
    let dir = scratch(&format!("host-{}", source.file_stem().unwrap().to_string_lossy()));
    let (program, from, to) = (dir.join("host"), dir.join("in"), dir.join("out"));
    must(
        Command::new("gcc")
            .args([
                "-O1",
                "-ffp-contract=off",
                "-fexcess-precision=16",
                "-fwrapv",
                "-fno-strict-aliasing",
                "-w",
                "-pthread",
                "-o",
            ])
            .arg(&program)
            .arg(source)
            .arg(folder().join("host.c"))
            .arg("-lm"),
    );
    std::fs::write(&from, bytes_of(input)).unwrap();
    let numbers = [groups, out_words, n].map(|v| v.to_string());
    must(Command::new(&program).arg(&from).arg(&to).args(numbers));
    let raw = std::fs::read(&to).unwrap();
    let each = 64 + 4 * out_words as usize;
    let kernel = |part: &[u8]| {
        let name = part[..64].split(|b| *b == 0).next().unwrap();
        (String::from_utf8(name.to_vec()).unwrap(), words_of(&part[64..]))
    };
    let found = raw.chunks_exact(each).map(kernel).collect();
    std::fs::remove_dir_all(dir).unwrap();
    found
}

pub fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

pub fn words_of(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect()
}

/// A loaded code object.
pub struct Loaded {
    chip: Chip,
    image: Vec<u8>,
    kernels: Vec<(String, u64)>,
}

impl Loaded {
    pub fn new(chip: Chip, elf: &[u8]) -> Self {
        let file = object::File::parse(elf).unwrap();
        let end = file.segments().map(|s| s.address() + s.size()).max().unwrap();
        let mut image = vec![0; (end as usize).next_multiple_of(4096)];
        for s in file.segments() {
            let data = s.data().unwrap();
            image[s.address() as usize..s.address() as usize + data.len()].copy_from_slice(data);
        }
        for (offset, relocation) in file.dynamic_relocations().into_iter().flatten() {
            let value = CODE.wrapping_add_signed(relocation.addend());
            image[offset as usize..offset as usize + 8].copy_from_slice(&value.to_le_bytes());
        }
        let symbols = file.symbols().chain(file.dynamic_symbols());
        let mut kernels: Vec<_> =
            symbols.filter_map(|s| Some((s.name().ok()?.strip_suffix(".kd")?.to_owned(), s.address()))).collect();
        kernels.sort();
        kernels.dedup();
        Self { chip, image, kernels }
    }

    pub fn names(&self) -> Vec<&str> {
        self.kernels.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn word(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.image[at as usize..at as usize + 4].try_into().unwrap())
    }
}

/// All that clang 19's code is held to: it does not know gfx1201's hazard of scalar registers.
pub const CLANG: Strict = Strict { scalar_reads: false, ..Strict::on() };

/// How a kernel is launched.
#[derive(Clone)]
pub struct Launch<'a> {
    pub kernel: &'a str,
    pub input: &'a [u32],
    pub out_words: u32,
    pub groups: u32,
    pub local: u32,
    pub n: u32,
    pub strict: Strict,
}

/// A kernel ready to run: its dispatch, the memory it sees, and its output in that.
pub struct Prepared {
    pub dispatch: Dispatch,
    pub bus: PlainBus,
    pub output: Arc<SharedBytes>,
}

/// Runs one kernel; gives the words of its output.
pub fn launch(loaded: &Loaded, l: &Launch) -> Result<(Vec<u32>, Stats), Box<WaveFault>> {
    let Prepared { dispatch, bus, output } = prepare(loaded, l);
    let stats = run(&dispatch, &bus, &l.strict, &AtomicBool::new(false))?;
    let mut words = words_of(&output.to_vec());
    words.truncate(l.out_words as usize);
    Ok((words, stats))
}

pub fn prepare(loaded: &Loaded, l: &Launch) -> Prepared {
    let kd =
        loaded.kernels.iter().find(|(name, _)| name == l.kernel).map(|(_, at)| *at).expect("a kernel of that name");
    let [lds, private, rsrc3, rsrc1, rsrc2] = [0, 4, 44, 48, 52].map(|n| loaded.word(kd + n));
    let entry = i64::from_le_bytes(loaded.image[kd as usize + 16..kd as usize + 24].try_into().unwrap());
    let properties = loaded.word(kd + 56) & 0xffff;
    let wave32 = properties >> 10 & 1 == 1;
    let lanes = if wave32 { 32 } else { 64 };
    let output = SharedBytes::new(4 * l.out_words as usize);
    let waves = 64;
    // Room for callees of unknown depth.
    let lane_bytes = if private == 0 && rsrc2 & 1 == 0 { 0 } else { (private + 1024).next_multiple_of(16) };
    let mut bus = PlainBus::default();
    bus.map_code(CODE, SharedBytes::from_bytes(&loaded.image));
    bus.map(INPUT, SharedBytes::from_bytes(&bytes_of(l.input)), false);
    bus.map(OUTPUT, Arc::clone(&output), true);
    bus.map(KERNARG, SharedBytes::from_bytes(&kernarg(l)), false);
    bus.map(PACKET, SharedBytes::from_bytes(&packet(l)), false);
    bus.map(SCRATCH, SharedBytes::new((lane_bytes * lanes * waves) as usize), true);
    let mut user = Vec::new();
    for (bit, words, value) in [(1, 2, PACKET), (2, 2, PACKET), (3, 2, KERNARG), (4, 2, 7), (6, 1, u64::from(private))]
    {
        if properties >> bit & 1 == 1 {
            user.extend([value as u32, (value >> 32) as u32].into_iter().take(words));
        }
    }
    let dispatch = Dispatch {
        chip: loaded.chip,
        entry: CODE.wrapping_add(kd).wrapping_add_signed(entry),
        wave32,
        groups: [l.groups, 1, 1],
        local: [l.local, 1, 1],
        last_partial: [0; 3],
        rsrc1,
        rsrc2,
        rsrc3,
        user_data_written: (1u32 << user.len()) - 1,
        user_data: user,
        lds_bytes: lds,
        scratch_base: SCRATCH,
        scratch_wave_bytes: lane_bytes * lanes,
        scratch_waves: waves,
    };
    Prepared { dispatch, bus, output }
}

/// Arguments, followed by the hidden ones (block counts and sizes).
fn kernarg(l: &Launch) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    bytes[0..8].copy_from_slice(&INPUT.to_le_bytes());
    bytes[8..16].copy_from_slice(&OUTPUT.to_le_bytes());
    bytes[16..20].copy_from_slice(&l.n.to_le_bytes());
    for (at, v) in [(24, l.groups), (28, 1), (32, 1)] {
        bytes[at..at + 4].copy_from_slice(&v.to_le_bytes());
    }
    for (at, v) in [(36, l.local as u16), (38, 1), (40, 1)] {
        bytes[at..at + 2].copy_from_slice(&v.to_le_bytes());
    }
    bytes
}

/// The part of the dispatch packet that kernels look at: workgroup and grid sizes.
fn packet(l: &Launch) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    for (at, v) in [(4, l.local as u16), (6, 1), (8, 1)] {
        bytes[at..at + 2].copy_from_slice(&v.to_le_bytes());
    }
    for (at, v) in [(12, l.local * l.groups), (16, 1), (20, 1)] {
        bytes[at..at + 4].copy_from_slice(&v.to_le_bytes());
    }
    bytes
}

/// A small generator whose numbers are the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

/// Words of all kinds: any bits, small numbers, ordinary floats, the edges of floats.
pub fn inputs(words: usize, seed: u64) -> Vec<u32> {
    let edges =
        [0, 0x8000_0000, 0x7f80_0000, 0xff80_0000, 0x7fc0_0000, 1, 0x8000_0001, 0x7f7f_ffff, 0x0080_0000, 0x3f80_0000];
    let mut r = Random(seed);
    (0..words)
        .map(|_| {
            let v = r.next();
            match v >> 60 {
                0..=6 => v as u32,
                7 | 8 => v as u32 & 0xff,
                9..=13 => (v as u32 & 0x80ff_ffff) | (0x3c + (v >> 40 & 7) as u32) << 24,
                14 => edges[(v >> 32) as usize % edges.len()],
                _ => !0 << (v & 31),
            }
        })
        .collect()
}
