//! Waves without checks with runs of instructions translated to code of this machine, against the same code
//! interpreted: random sequences of the forms that have a translation, on random registers, for all lanes and for some.

use super::harness::{bytes_of, scratch};
use doorbell::emu::amdgpu::{Access, Bus, BusFault, Chip, Dispatch, HotCode, Strict, Window, disassemble, run_hot};
use doorbell::emu::translate::{Block, Translated, Translation, Translator};
use doorbell::engine::software::translation;
use doorbell_ioctl::port::{DeviceView, Mapping};
use object::{Object, ObjectSection};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const CODE: u64 = 0x7f00_0000_0000;
const INPUT: u64 = 0x1000_0000;
const OUTPUT: u64 = 0x2000_0000;

/// Vector registers v1 to here hold random words; one more holds addresses in LDS.
const VECTORS: u32 = 23;
const ADDRESS: u32 = 24;
/// Scalar registers with random words.
const SCALARS: std::ops::Range<u32> = 16..48;
const GROUPS: u32 = 40;
/// Words of a group's input and output, more than are used.
const WORDS: u32 = 8192;

/// Instructions with a translation, as far as they change nothing but registers.
const NAMES: &[&str] = &[
    "v_mov_b32",
    "v_not_b32",
    "v_and_b32",
    "v_or_b32",
    "v_xor_b32",
    "v_xnor_b32",
    "v_lshlrev_b32",
    "v_lshrrev_b32",
    "v_ashrrev_i32",
    "v_add_nc_u32",
    "v_sub_nc_u32",
    "v_subrev_nc_u32",
    "v_add_u32",
    "v_sub_u32",
    "v_subrev_u32",
    "v_min_i32",
    "v_max_i32",
    "v_min_u32",
    "v_max_u32",
    "v_min3_i32",
    "v_max3_i32",
    "v_min3_u32",
    "v_max3_u32",
    "v_mul_lo_u32",
    "v_mul_hi_u32",
    "v_mul_hi_i32",
    "v_mul_i32_i24",
    "v_mul_u32_u24",
    "v_mad_i32_i24",
    "v_mad_u32_u24",
    "v_bfe_u32",
    "v_bfe_i32",
    "v_bfi_b32",
    "v_alignbit_b32",
    "v_lshl_add_u32",
    "v_add_lshl_u32",
    "v_lshl_or_b32",
    "v_add3_u32",
    "v_and_or_b32",
    "v_or3_b32",
    "v_xor3_b32",
    "v_xad_u32",
    "v_cndmask_b32",
    "v_add_co_u32",
    "v_sub_co_u32",
    "v_subrev_co_u32",
    "v_add_co_ci_u32",
    "v_sub_co_ci_u32",
    "v_subrev_co_ci_u32",
    "v_addc_co_u32",
    "v_subb_co_u32",
    "v_subbrev_co_u32",
    "v_mad_u64_u32",
    "v_mad_i64_i32",
    "v_add_f32",
    "v_sub_f32",
    "v_subrev_f32",
    "v_mul_f32",
    "v_fma_f32",
    "v_fmac_f32",
    "v_fmamk_f32",
    "v_fmaak_f32",
    "v_min_f32",
    "v_max_f32",
    "v_min3_f32",
    "v_max3_f32",
    "v_minmax_f32",
    "v_maxmin_f32",
    "v_mul_dx9_zero_f32",
    "v_mul_legacy_f32",
    "v_fma_dx9_zero_f32",
    "v_fmac_dx9_zero_f32",
    "v_trunc_f32",
    "v_floor_f32",
    "v_ceil_f32",
    "v_sqrt_f32",
    "v_rcp_f32",
    "v_rsq_f32",
    "v_cvt_f32_i32",
    "v_cvt_f32_u32",
    "v_cvt_i32_f32",
    "v_cvt_f32_ubyte0",
    "v_cvt_f32_ubyte1",
    "v_cvt_f32_ubyte2",
    "v_cvt_f32_ubyte3",
    "v_pk_fma_f32",
    "v_pk_mul_f32",
    "v_pk_add_f32",
    "s_mov_b32",
    "s_mov_b64",
    "s_movk_i32",
    "s_add_u32",
    "s_addc_u32",
    "s_sub_u32",
    "s_subb_u32",
    "s_add_i32",
    "s_sub_i32",
    "s_addk_i32",
    "s_mulk_i32",
    "s_mul_i32",
    "s_mul_hi_u32",
    "s_min_i32",
    "s_max_i32",
    "s_min_u32",
    "s_max_u32",
    "s_and_b32",
    "s_or_b32",
    "s_xor_b32",
    "s_and_not1_b32",
    "s_or_not1_b32",
    "s_andn2_b32",
    "s_orn2_b32",
    "s_nand_b32",
    "s_nor_b32",
    "s_xnor_b32",
    "s_not_b32",
    "s_lshl_b32",
    "s_lshr_b32",
    "s_ashr_i32",
    "s_bfe_u32",
    "s_cselect_b32",
    "s_cselect_b64",
    "s_and_b64",
    "s_or_b64",
    "s_xor_b64",
    "s_andn2_b64",
    "s_and_not1_b64",
    "s_not_b64",
    "s_lshl_b64",
    "s_lshr_b64",
    "s_sext_i32_i16",
    "s_sext_i32_i8",
    "s_pack_ll_b32_b16",
    "s_lshl1_add_u32",
    "s_lshl2_add_u32",
    "s_lshl3_add_u32",
    "s_lshl4_add_u32",
];

/// Counts what is compiled.
#[derive(Default)]
struct Counting {
    inner: Translation,
    made: AtomicUsize,
    refused: AtomicUsize,
}

impl Translator for Counting {
    fn translate(&self, block: &Block) -> Option<Box<dyn Translated>> {
        let made = self.inner.0.as_ref().and_then(|t| t.translate(block));
        let count = if made.is_some() { &self.made } else { &self.refused };
        count.fetch_add(1, Ordering::Relaxed);
        made
    }
}

/// A sequence of numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u32) -> u32 {
        (self.next() % u64::from(n)) as u32
    }

    /// A word: often a special value of a float or an integer.
    fn word(&mut self) -> u32 {
        const SPECIAL: [u32; 16] = [
            0,
            0x8000_0000,
            0x7f80_0000,
            0xff80_0000,
            0x7fc0_1234,
            0xffc0_0001,
            0x7f80_0001,
            0xff81_2345,
            1,
            0x807f_ffff,
            0x0080_0000,
            0x3f80_0000,
            0x4f00_0000,
            0xcf00_0000,
            0x7f7f_ffff,
            u32::MAX,
        ];
        match self.below(8) {
            0..=2 => SPECIAL[self.below(16) as usize],
            3 => self.below(64),
            // A float of a moderate size.
            4 | 5 => self.next() as u32 & 0x83ff_ffff | 0x3c00_0000,
            _ => self.next() as u32,
        }
    }

    fn scalar(&mut self) -> u32 {
        (SCALARS.start + self.below(SCALARS.end - SCALARS.start)) & !1
    }

    /// A source operand's number: a register or a constant.
    fn source(&mut self) -> u32 {
        match self.below(10) {
            0 => 128 + self.below(81),
            1 => 240 + self.below(9),
            2 => 106,
            3 | 4 => self.scalar(),
            _ => 256 + 1 + self.below(VECTORS - 1),
        }
    }

    fn scalar_source(&mut self) -> u32 {
        match self.below(6) {
            0 => 128 + self.below(65),
            1 => 106,
            _ => self.scalar(),
        }
    }
}

/// Words that may be an instruction.
fn candidate(r: &mut Random, chip: Chip) -> [u32; 4] {
    // Both the number of a vector register and, for a mask, of a scalar one.
    let dst = 16 + 2 * r.below(4);
    let gfx9 = chip == Chip::Gfx942;
    let word = |w: u32| [w, 0, 0, 0];
    match r.below(9) {
        0 => word(r.below(62) << 25 | dst << 17 | (1 + r.below(VECTORS)) << 9 | r.source()),
        1 => word(0x3f << 25 | dst << 17 | r.below(140) << 9 | r.source()),
        2 => word(0x3e << 25 | r.below(256) << 17 | (1 + r.below(VECTORS)) << 9 | r.source()),
        3 | 4 => {
            let head = if gfx9 { 0x34 } else { 0x35 };
            let signs = if r.below(3) == 0 { (r.below(8), r.below(8)) } else { (0, 0) };
            let carry = if r.below(2) == 0 { 106 << 8 } else { signs.0 << 8 };
            let first = head << 26 | r.below(1024) << 16 | carry | dst;
            let third = if r.below(2) == 0 { r.scalar() } else { r.source() };
            [first, signs.1 << 29 | third << 18 | r.source() << 9 | r.source(), 0, 0]
        }
        5 => {
            let opsel = (r.below(8) << 11, r.below(4) << 27);
            let head = if gfx9 { 0x1a7 << 23 } else { 0xcc << 24 };
            let even = |r: &mut Random| 256 + 2 * (1 + r.below(8));
            let sources = even(r) << 18 | even(r) << 9 | even(r);
            [head | r.below(128) << 16 | opsel.0 | dst, opsel.1 | sources, 0, 0]
        }
        6 if !gfx9 => {
            let (x, y) = (r.below(14), r.below(20));
            let (a, b) = (256 + 1 + r.below(VECTORS), 256 + 1 + r.below(VECTORS));
            let (c, d) = (1 + r.below(VECTORS), 1 + r.below(VECTORS));
            [0x32 << 26 | x << 22 | y << 17 | c << 9 | a, dst << 24 | (2 + r.below(4)) << 17 | d << 9 | b, 0, 0]
        }
        6 | 7 => {
            let dst = r.scalar();
            match r.below(3) {
                0 => word(0x17d << 23 | dst << 16 | r.below(128) << 8 | r.scalar_source()),
                1 => word(0x17e << 23 | r.below(128) << 16 | r.scalar_source() << 8 | r.scalar_source()),
                _ => word(0xb << 28 | r.below(32) << 23 | dst << 16 | r.next() as u32 & 0xffff),
            }
        }
        _ => word(0b10 << 30 | r.below(96) << 23 | r.scalar() << 16 | r.scalar_source() << 8 | r.scalar_source()),
    }
}

fn is_wanted(text: &str) -> bool {
    let known = |part: &str| {
        let name = part.split_whitespace().next().unwrap_or_default();
        let name = name.strip_suffix("_e32").or_else(|| name.strip_suffix("_e64")).unwrap_or(name);
        let single = name.replace("v_dual_", "v_");
        let compare = ["v_cmp_", "v_cmpx_", "s_cmp_", "s_cmpk_"].iter().any(|p| name.starts_with(p));
        let whole = ["_f32", "_i32", "_u32"].iter().any(|t| name.ends_with(t)) && !name.contains("class");
        NAMES.contains(&single.as_str()) || compare && whole
    };
    let without_words = text.split(" //").next().unwrap_or_default();
    !text.contains("dpp") && without_words.split(" :: ").all(known)
}

/// A random instruction as text.
fn instruction(r: &mut Random, chip: Chip, wave32: bool) -> String {
    if r.below(12) == 0 {
        let (b32, b64) = if chip == Chip::Gfx942 { ("read_b32", "read_b64") } else { ("load_b32", "load_b64") };
        let to = 2 * (1 + r.below(9));
        return match r.below(2) {
            0 => format!("ds_{b32} v{to}, v{ADDRESS} offset:{}", 4 * r.below(40)),
            _ => format!("ds_{b64} v[{to}:{}], v{ADDRESS} offset:{}", to + 1, 8 * r.below(20)),
        };
    }
    loop {
        let words = candidate(r, chip);
        let mut all = words;
        // A literal, where there is one.
        all[1] = if words[1] == 0 { r.word() } else { words[1] };
        all[2] = r.word();
        let Ok((text, len)) = disassemble(chip, wave32, all) else { continue };
        let kept = |o: &str| (0..8).any(|n| o == format!("s{n}"));
        if is_wanted(&text) && !text.split([' ', ',']).any(kept) {
            let words: Vec<String> = all[..len as usize].iter().map(|w| format!("{w:#x}")).collect();
            return format!(".long {} // {text}", words.join(", "));
        }
    }
}

/// Loads all registers, executes random instructions, stores all registers.
fn program(r: &mut Random, chip: Chip, wave32: bool, count: u32) -> String {
    let gfx9 = chip == Chip::Gfx942;
    let (load, store) = if gfx9 { ("load_dword", "store_dword") } else { ("load_b32", "store_b32") };
    let scalars = if gfx9 { ("s_load_dwordx16", "s_load_dwordx2") } else { ("s_load_b512", "s_load_b64") };
    let wait = "s_waitcnt vmcnt(0) lgkmcnt(0)";
    let mut t: Vec<String> = vec![
        format!("s_lshl_b32 s5, s4, {}", (4 * WORDS).trailing_zeros()),
        "s_add_u32 s0, s0, s5\n s_addc_u32 s1, s1, 0\n s_add_u32 s2, s2, s5\n s_addc_u32 s3, s3, 0".into(),
        format!("{} s[16:31], s[0:1], 0x7000\n {} s[32:47], s[0:1], 0x7040", scalars.0, scalars.0),
        format!("{} s[6:7], s[0:1], 0x7080\n {} vcc, s[0:1], 0x7088\n {wait}", scalars.1, scalars.1),
        "v_and_b32 v0, 63, v0\n v_lshlrev_b32 v0, 2, v0".into(),
        format!("v_and_b32 v{ADDRESS}, 0x78, v0"),
    ];
    for n in 1..=VECTORS {
        t.push(format!("global_{load} v{n}, v0, s[0:1]\n s_add_u32 s0, s0, 256\n s_addc_u32 s1, s1, 0"));
    }
    t.push(wait.into());
    if r.below(3) != 0 {
        t.push(if wave32 { "s_mov_b32 exec_lo, s6" } else { "s_mov_b64 exec, s[6:7]" }.into());
    }
    t.push("s_cmp_lt_u32 s16, s17".into());
    t.extend((0..count).map(|_| instruction(r, chip, wave32)));
    t.push("s_cselect_b32 s8, 1, 0\n s_mov_b32 s9, exec_lo\n s_mov_b32 s10, exec_hi".into());
    t.push(if wave32 { "s_mov_b32 exec_lo, -1" } else { "s_mov_b64 exec, -1" }.into());
    t.push(wait.into());
    let put = |v: String| format!("global_{store} v0, {v}, s[2:3]\n s_add_u32 s2, s2, 256\n s_addc_u32 s3, s3, 0");
    t.extend((1..=VECTORS).map(|n| put(format!("v{n}"))));
    for n in SCALARS.chain([8, 9, 10, 106, 107]) {
        let from = if n >= 106 { ["vcc_lo", "vcc_hi"][n as usize - 106].to_owned() } else { format!("s{n}") };
        t.push(format!("v_mov_b32 v1, {from}\n {}\n {wait}", put("v1".into())));
    }
    t.push("s_endpgm".into());
    t.join("\n") + "\n"
}

/// The machine code of assembly, by LLVM 19.
fn assemble(chip: Chip, wave32: bool, source: &str) -> Vec<u8> {
    let dir = scratch("translated");
    let (text, made) = (dir.join("k.s"), dir.join("k.o"));
    std::fs::write(&text, source).unwrap();
    let size =
        if wave32 { "-mattr=+wavefrontsize32,-wavefrontsize64" } else { "-mattr=-wavefrontsize32,+wavefrontsize64" };
    let mut command = Command::new(Path::new("/usr/lib/llvm-19/bin/llvm-mc"));
    command.args(["-triple=amdgcn-amd-amdhsa", "-filetype=obj"]);
    command.arg(format!("-mcpu={}", super::harness::cpu(chip)));
    if chip != Chip::Gfx942 {
        command.arg(size);
    }
    let out = command.arg("-o").arg(&made).arg(&text).output().unwrap();
    assert!(out.status.success(), "{}\n{source}", String::from_utf8_lossy(&out.stderr));
    let raw = std::fs::read(made).unwrap();
    std::fs::remove_dir_all(dir).unwrap();
    let file = object::File::parse(&*raw).unwrap();
    file.section_by_name(".text").unwrap().data().unwrap().to_vec()
}

/// Memory that code of the host reads itself, at fixed addresses.
struct Mapped(Vec<(u64, DeviceView)>);

impl Mapped {
    fn new(ranges: &[(u64, &[u8], usize)]) -> Self {
        let map = |(va, bytes, len): &(u64, &[u8], usize)| {
            let view = DeviceView::of(&Arc::new(Mapping::anonymous(*len as u64, 4096).unwrap()));
            view.copy_from_slice(0, bytes).unwrap();
            (*va, view)
        };
        Self(ranges.iter().map(map).collect())
    }
}

impl Bus for Mapped {
    fn translate(&self, va: u64, _: Access) -> Result<Window, BusFault> {
        let hit = self.0.iter().find(|(start, view)| va.wrapping_sub(*start) < view.len_bytes());
        let (va_start, view) = hit.ok_or(BusFault::Unmapped)?;
        Ok(Window { va_start: *va_start, len_bytes: view.len_bytes(), memory: Arc::new(view.clone()) })
    }

    fn epoch(&self) -> u64 {
        0
    }
}

/// What the program leaves in memory, and what it executed.
fn result(chip: Chip, wave32: bool, code: &[u8], input: &[u32], hot: &HotCode) -> (Vec<u8>, String) {
    let (input, size) = (bytes_of(input), (4 * WORDS * GROUPS) as usize);
    let bus = Mapped::new(&[(CODE, code, code.len() + 256), (INPUT, &input, size), (OUTPUT, &[], size)]);
    let dispatch = Dispatch {
        chip,
        entry: CODE,
        wave32,
        groups: [GROUPS, 1, 1],
        local: [if wave32 { 32 } else { 64 }, 1, 1],
        last_partial: [0; 3],
        // 32 registers or more; singles and halves keep their denormals.
        rsrc1: 15 | 0xf0 << 12,
        rsrc2: 4 << 1 | 1 << 7,
        // gfx942: v16 and those beyond are found among the accumulators.
        rsrc3: 3,
        user_data: vec![INPUT as u32, (INPUT >> 32) as u32, OUTPUT as u32, (OUTPUT >> 32) as u32],
        user_data_written: 15,
        lds_bytes: 512,
        scratch_base: 0,
        scratch_wave_bytes: 0,
        scratch_waves: 0,
    };
    let stats = run_hot(&dispatch, &bus, &Strict::off(), &AtomicBool::new(false), hot);
    let mut output = vec![0; size];
    bus.0[2].1.copy_to_slice(0, &mut output).unwrap();
    (output, format!("{stats:?}"))
}

fn agree(chip: Chip, wave32: bool, seed: u64, programs: u32) {
    let counting = Arc::new(Counting { inner: translation(), ..Counting::default() });
    if counting.inner.0.is_none() {
        return;
    }
    let mut r = Random(seed);
    for n in 0..programs {
        let count = if n % 2 == 0 { 2 + r.below(6) } else { 20 + r.below(60) };
        let source = program(&mut r, chip, wave32, count);
        let code = assemble(chip, wave32, &source);
        let input: Vec<u32> = (0..WORDS * GROUPS).map(|_| r.word()).collect();
        let hot = HotCode::new(Translation(Some(Arc::clone(&counting) as Arc<dyn Translator>)));
        let want = result(chip, wave32, &code, &input, &HotCode::default());
        let got = result(chip, wave32, &code, &input, &hot);
        assert_eq!(want.1, got.1, "{source}");
        if let Some(at) = (0..want.0.len() / 4).find(|k| want.0[4 * k..4 * k + 4] != got.0[4 * k..4 * k + 4]) {
            let word = |b: &[u8]| u32::from_le_bytes(b[4 * at..4 * at + 4].try_into().unwrap());
            let (row, lane) = (at as u32 % WORDS / 64 + 1, at % 64);
            let (want, got) = (word(&want.0), word(&got.0));
            panic!("row {row} lane {lane} of group {}: {want:#x}, not {got:#x}\n{source}", at as u32 / WORDS);
        }
    }
    let (made, refused) = (counting.made.load(Ordering::Relaxed), counting.refused.load(Ordering::Relaxed));
    assert!(made > 0 && refused == 0, "{made} blocks made, {refused} refused");
}

#[test]
fn random_code_of_gfx1100_leaves_the_same_registers_translated() {
    agree(Chip::Gfx1100, true, 1, 40);
    agree(Chip::Gfx1100, false, 2, 30);
}

#[test]
fn random_code_of_gfx942_leaves_the_same_registers_translated() {
    agree(Chip::Gfx942, false, 3, 40);
}
