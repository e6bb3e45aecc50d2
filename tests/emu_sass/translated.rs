//! Plain mode with runs of instructions translated to code of this machine, against the same code interpreted: every
//! form that has a translation with random fields and operands, alone and in sequences, for whole warps and for paths
//! of some lanes.

use doorbell::emu::sass::{Decoder, Fault, Launch, Options, PlainBus, SmArch, run_decoded};
use doorbell::emu::translate::{Block, Translated, Translation, Translator};
use doorbell::engine::software::translation;
use doorbell::isa::sass::{File, Form, Guard, Index, Instruction, Kind, Role, assemble_for, encode, print};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const CODE: u64 = 0x20_0000_0000;
const BANK: u64 = 0x30_0000_0000;
const DATA: u64 = 0x10_0000_0000;

/// Words that threads load and store: 32 each.
const WORDS: u32 = 6 * 32 * 32;

/// Instructions of which some forms are translated.
const MNEMONICS: [&str; 47] = [
    "FADD", "FMUL", "FFMA", "FSETP", "FMNMX", "FSEL", "I2F", "I2FP", "IADD", "IADD3", "IMAD", "LEA", "ISETP", "IABS",
    "VIADD", "IMNMX", "VIMNMX", "LOP3", "SHF", "PRMT", "MOV", "SEL", "PLOP3", "LDC", "NOP", "UIADD3", "UIMAD", "ULEA",
    "UISETP", "ULOP3", "USHF", "UPRMT", "UMOV", "USEL", "UPLOP3", "ULDC", "LDCU", "UFADD", "UFMUL", "UFFMA", "UFSETP",
    "UFMNMX", "UFSEL", "UI2F", "UI2FP", "UVIMNMX", "UVIADD",
];

/// Counts what is compiled.
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

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// A word: often a special value of a float or an integer.
    fn word(&mut self) -> u32 {
        let special = [
            0,
            1,
            2,
            0x8000_0000,
            0x7fff_ffff,
            0xffff_ffff,
            0x3f80_0000,
            0xbf80_0000,
            0x7f80_0000,
            0xff80_0000,
            0x7fc0_0000,
            0x7f80_0001,
            0xffc1_2345,
            0x0000_0001,
            0x8000_0001,
            0x007f_ffff,
            0x0080_0000,
            0x7f7f_ffff,
            31,
            32,
            33,
            63,
            64,
        ];
        match self.below(4) {
            0 => self.one_of(&special),
            1 => (self.next() as f32 / 1e15 - 5000.0).to_bits(),
            _ => self.next() as u32,
        }
    }
}

/// An instruction of a form with random fields; None for a form whose operands lead elsewhere.
fn random_instruction(form: &'static Form, chip: SmArch, r: &mut Random) -> Option<Instruction> {
    let mut inst = Instruction::on(form, chip);
    for field in form.fields {
        let ones = u64::MAX >> (64 - field.width().clamp(1, 64));
        let value = match (field.kind, field.role) {
            (Kind::R, _) => r.one_of(&[0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 1, 3, 5, 255]),
            (Kind::UR, _) => r.one_of(&[4, 6, 8, 10, 5, ones]),
            (Kind::P | Kind::UP, _) => r.one_of(&[0, 1, 2, 3, 7]),
            (Kind::PInverted | Kind::UPInverted, _) => r.one_of(&[7, 6, 5, 4, 0]),
            (Kind::List(list), _) => u64::from(r.one_of(list).value),
            (Kind::Signed | Kind::Unsigned | Kind::Decimal | Kind::F32, Role::Value) => u64::from(r.word()) & ones,
            (_, Role::Offset) => 8 * r.below(6),
            (_, Role::Bank) => 0,
            (Kind::Constant(Index::None), Role::Value) | (Kind::Must(_) | Kind::Bits, Role::Value)
                if field.width() == 0 =>
            {
                continue;
            }
            (Kind::Bits | Kind::Unsigned, _) if field.width() == 1 => r.below(2),
            (Kind::Must(_), _) => continue,
            (Kind::Constant(Index::None), _) => continue,
            (Kind::Bits, _) => continue,
            _ => return None,
        };
        inst.set(field.slot, field.role, value).ok()?;
    }
    if r.below(3) == 0 {
        inst.guard = Guard { index: r.one_of(&[0, 1, 2]), not: r.below(2) == 0 };
    }
    let _ = File::Predicate;
    Some(inst)
}

/// What newer chips have before an address.
fn descriptor(chip: SmArch) -> &'static str {
    if chip < SmArch::Sm90 { "" } else { "desc[UR14]" }
}

/// What comes before: registers, predicates and uniform registers with values.
fn before(chip: SmArch) -> Vec<u128> {
    let d = descriptor(chip);
    let loads: String =
        (0..6).map(|k| format!("[B------:R-:W0:Y:S05] LDG.E.128 R{}, {d}[R60.64+{:#x}] ;\n", 4 * k, 16 * k)).collect();
    let uniform: String = (4..12)
        .map(|u| format!("[B------:R-:W-:Y:S05] UMOV UR{u}, {:#x} ;\n", 0x9e37_79b9u32.wrapping_mul(u) >> (u % 3 * 9)))
        .collect();
    let text = format!(
        "[B------:R-:W0:Y:S05] S2R R62, SR_TID.X ;
        [B------:R-:W-:Y:S05] MOV R60, c[0x0][0x0] ;
        [B------:R-:W-:Y:S05] MOV R61, c[0x0][0x4] ;
        [B------:R-:W-:Y:S05] MOV R63, 0x80 ;
        [B------:R-:W-:Y:S05] IMAD.WIDE.U32 R60, R62, R63, R60 ;
        {loads}{uniform}
        [B------:R-:W-:Y:S05] ISETP.LT.AND P0, PT, R0, R5, PT ;
        [B------:R-:W-:Y:S05] ISETP.LT.U32.AND P1, PT, R6, R7, PT ;
        [B------:R-:W-:Y:S05] ISETP.NE.AND P2, PT, R8, RZ, PT ;
        [B------:R-:W-:Y:S05] ISETP.GT.AND P3, PT, R9, R10, PT ;
        [B------:R-:W-:Y:S05] UISETP.LT.AND UP0, UPT, UR4, UR5, UPT ;
        [B------:R-:W-:Y:S05] UISETP.GT.AND UP1, UPT, UR6, UR5, UPT ;
        [B------:R-:W-:Y:S05] UISETP.NE.AND UP2, UPT, UR6, UR7, UPT ;
        "
    );
    assemble_for(&text, chip).unwrap_or_else(|e| panic!("{e}"))
}

/// What comes after: everything is stored.
fn after(chip: SmArch) -> Vec<u128> {
    let uniform: String = (0..6).map(|k| format!("[B------:R-:W-:Y:S05] MOV R{}, UR{} ;\n", 25 + k, 4 + k)).collect();
    let d = descriptor(chip);
    let stores: String =
        (0..8).map(|k| format!("[B------:R-:W-:Y:S05] STG.E.128 {d}[R60.64+{:#x}], R{} ;\n", 16 * k, 4 * k)).collect();
    let text = format!(
        "[B------:R-:W-:Y:S05] P2R R24, PR, RZ, 0x7f ;
        {uniform}
        [B------:R-:W-:Y:S05] USEL UR12, UR10, UR11, UP0 ;
        [B------:R-:W-:Y:S05] USEL UR13, UR12, UR9, UP1 ;
        [B------:R-:W-:Y:S05] MOV R31, UR13 ;
        {stores}[B------:R-:W-:Y:S05] EXIT ;"
    );
    assemble_for(&text, chip).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs a program of some threads on words; what it leaves of them.
fn run_words(words: &[u128], chip: SmArch, threads: u32, data: &[u32], decoder: &Decoder) -> Result<Vec<u8>, Fault> {
    let mut bus = PlainBus::default();
    bus.map(CODE, &words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>(), false);
    bus.map(DATA, &data.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>(), true);
    let bank: Vec<u8> = [DATA as u32, (DATA >> 32) as u32]
        .into_iter()
        .chain((2..32).map(|k: u32| k.wrapping_mul(0x1234_5677)))
        .flat_map(u32::to_le_bytes)
        .collect();
    bus.map(BANK, &bank, false);
    let mut banks = [None; 8];
    banks[0] = Some((BANK, 128));
    let launch = Launch {
        chip,
        entry: CODE,
        grid: [1; 3],
        block: [threads, 1, 1],
        cluster: [1; 3],
        registers: 64,
        barriers: 1,
        shared_bytes: 1024,
        local_bytes: 0,
        banks,
    };
    run_decoded(&launch, &bus, &AtomicBool::new(false), &Options::fast(), decoder)?;
    Ok(bus.bytes(DATA))
}

/// Whether a program leaves the same, interpreted and translated; None: it is a fault.
fn same(body: &[Instruction], chip: SmArch, data: &[u32], translator: &Arc<Counting>) -> Option<bool> {
    let body: Vec<u128> = body.iter().map(|i| encode(i).unwrap_or_else(|e| panic!("{}: {e}", print(i)))).collect();
    same_words(&body, chip, data, translator)
}

/// The same of a body's words. A load is native from the second warp on, so the last of six, in which some lanes are
/// missing, has five native ones.
fn same_words(body: &[u128], chip: SmArch, data: &[u32], translator: &Arc<Counting>) -> Option<bool> {
    let words = [&before(chip), body, &after(chip)].concat();
    for threads in [32, 21, 5 * 32 + 21] {
        let interpreted = run_words(&words, chip, threads, data, &Decoder::default()).ok()?;
        let decoder = Decoder::translated(Translation(Some(translator.clone() as Arc<dyn Translator>))).after(1);
        let translated = run_words(&words, chip, threads, data, &decoder);
        if translated.ok().as_ref() != Some(&interpreted) {
            return Some(false);
        }
    }
    Some(true)
}

fn forms_are_translated_on(chip: SmArch, seed: u64) {
    let mut r = Random(seed);
    let translator = Counting { inner: translation(), made: AtomicUsize::new(0), refused: AtomicUsize::new(0) };
    let translator = Arc::new(translator);
    assert!(translator.inner.0.is_some(), "no back end for this machine");
    let mut good: Vec<Instruction> = Vec::new();
    let mut wrong = Vec::new();
    for form in MNEMONICS.iter().flat_map(|m| Form::of(m)).filter(|f| f.chips.has(chip)) {
        for _ in 0..6 {
            let data: Vec<u32> = (0..WORDS).map(|_| r.word()).collect();
            let Some(inst) = random_instruction(form, chip, &mut r) else { continue };
            if encode(&inst).is_err() {
                continue;
            }
            match same(&[inst], chip, &data, &translator) {
                None => {}
                Some(true) => good.push(inst),
                Some(false) => wrong.push(print(&inst)),
            }
        }
    }
    for _ in 0..60 {
        let data: Vec<u32> = (0..WORDS).map(|_| r.word()).collect();
        let body: Vec<Instruction> = (0..14).map(|_| r.one_of(&good)).collect();
        if same(&body, chip, &data, &translator) == Some(false) {
            wrong.push(body.iter().map(print).collect::<Vec<_>>().join("\n"));
        }
    }
    let (made, refused) = (translator.made.load(Ordering::Relaxed), translator.refused.load(Ordering::Relaxed));
    println!("{} instructions, {made} blocks compiled, {refused} refused", good.len());
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n\n"));
    assert!(good.len() > 300 && made > 300 && refused == 0, "{} good, {made} compiled, {refused} refused", good.len());
}

#[test]
fn translated_forms_of_sm_90_leave_the_bits_that_interpreted_ones_leave() {
    forms_are_translated_on(SmArch::Sm90, 1);
}

#[test]
fn translated_forms_of_sm_80_leave_the_bits_that_interpreted_ones_leave() {
    forms_are_translated_on(SmArch::Sm80, 2);
}

/// A load from a place that depends on a register, and the instructions that make its address.
fn random_load(chip: SmArch, r: &mut Random) -> String {
    let (d, index) = (descriptor(chip), r.below(24));
    let (size, words) = r.one_of(&[(".E", 1), (".E.64", 2), (".E.128", 4)]);
    let to = r.below(24 / words) * words;
    let guard = r.one_of(&["", "", "@P0 ", "@!P1 ", "@P2 "]);
    let start = match r.below(3) {
        0 => "LDC.64 R34, c[0x0][0x0]",
        1 => "MOV R34, c[0x0][0x0] ;\nMOV R35, c[0x0][0x4]",
        _ => "LDC R34, c[0x0][0x0] ;\nLDC R35, c[0x0][0x4]",
    };
    format!(
        "LOP3.LUT R32, R{index}, 0x1f, RZ, 0xc0, !PT ;
        {start} ;
        IMAD.WIDE R34, R32, 0x10, R34 ;
        {guard}LDG{size} R{to}, {d}[R34.64+{:#x}] ;
        ",
        16 * r.below(20)
    )
}

fn loads_are_translated_on(chip: SmArch, seed: u64) {
    let mut r = Random(seed);
    let translator = Counting { inner: translation(), made: AtomicUsize::new(0), refused: AtomicUsize::new(0) };
    let translator = Arc::new(translator);
    for n in 0..100 {
        let data: Vec<u32> = (0..WORDS).map(|_| r.word()).collect();
        // Some lanes may leave the others, which go on with what they have.
        let over = r.one_of(&["", "@P3", "@!P3", "@P1"]);
        let lines: String = (0..1 + n % 6)
            .map(|_| match r.below(3) {
                0 => format!("IADD3 R{}, R{}, R{}, RZ ;\n", r.below(24), r.below(24), r.below(24)),
                1 => format!("ISETP.LT.AND P{}, PT, R{}, R{}, PT ;\n", r.below(3), r.below(24), r.below(24)),
                _ => random_load(chip, &mut r),
            })
            .collect();
        let text: String = lines
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty())
            .map(|l| format!("[B------:R-:W-:Y:S05] {l}\n"))
            .collect();
        let branch = match over {
            "" => String::new(),
            _ => format!("[B------:R-:W-:Y:S05] {over} BRA {:#x} ;\n", 16 * (text.lines().count() + 1)),
        };
        let text = branch + &text;
        let body = assemble_for(&text, chip).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(same_words(&body, chip, &data, &translator), Some(true), "{text}");
    }
}

#[test]
fn translated_loads_of_sm_90_leave_the_bits_that_interpreted_ones_leave() {
    loads_are_translated_on(SmArch::Sm90, 3);
}

#[test]
fn translated_loads_of_sm_80_leave_the_bits_that_interpreted_ones_leave() {
    loads_are_translated_on(SmArch::Sm80, 4);
}

/// A register that has two values in turns, each stored before a load.
fn a_value_comes_back_on(chip: SmArch) {
    let translator = Counting { inner: translation(), made: AtomicUsize::new(0), refused: AtomicUsize::new(0) };
    let translator = Arc::new(translator);
    let data: Vec<u32> = (0..WORDS).map(|k| k * k + 7).collect();
    let d = descriptor(chip);
    for over in ["", "[B------:R-:W-:Y:S05] @P3 BRA 0x70 ;\n"] {
        let text: String = ["R2", "R3", "R2"]
            .map(|from| {
                let load = format!("LDG.E R5, {d}[R60.64+0x40]");
                format!("[B------:R-:W-:Y:S05] MOV R0, {from} ;\n[B------:R-:W-:Y:S05] {load} ;\n")
            })
            .concat();
        let body = assemble_for(&format!("{over}{text}"), chip).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(same_words(&body, chip, &data, &translator), Some(true), "{chip:?} {text}");
    }
}

#[test]
fn a_register_that_has_a_former_value_again_is_stored_again() {
    [SmArch::Sm80, SmArch::Sm90].into_iter().for_each(a_value_comes_back_on);
}
