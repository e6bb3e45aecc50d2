//! Loads and stores: global, generic, local, shared, constant; asynchronous copies and matrices of shared memory.

use super::bus::Access;
use super::core::{Core, mask, zip};
use super::fault::{FaultKind, R, fail, not_modelled};
use super::lower::Run;
use super::operand::{Address, Dst, Fields, Src};
use super::warp::{Lanes, Warp, ones};
use doorbell_ptx::sass::{File, Role, Value};

pub(super) fn lower(f: Fields) -> R<Option<Run>> {
    Ok(Some(match f.0.form().mnemonic {
        "LDG" if f.0.form().name.starts_with("X2") => load_two_runs(f)?,
        "STG" if f.0.form().name.starts_with("X2") => store_two_runs(f)?,
        "LDG" => load(f, Space::Global)?,
        "LD" => load(f, Space::Generic)?,
        "LDL" => load(f, Space::Local)?,
        "LDS" => load(f, Space::Shared)?,
        "STG" => store(f, Space::Global)?,
        "ST" => store(f, Space::Generic)?,
        "STL" => store(f, Space::Local)?,
        "STS" => store(f, Space::Shared)?,
        "LDC" | "ULDC" | "LDCU" => constant(f)?,
        "LDGSTS" => copy(f)?,
        "LDSM" => matrices(f, true)?,
        "STSM" => matrices(f, false)?,
        "QSPC" => query(f)?,
        _ => return Ok(None),
    }))
}

/// Up to four words of each lane.
pub(super) type Rows = [Lanes; 4];

/// Which memory an address is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Global,
    Generic,
    Local,
    Shared,
}

/// A thread's local window.
pub(super) const LOCAL_WINDOW: u64 = 1 << 24;

/// Width of an access and how a narrow value fills its register.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub len: usize,
    signed: bool,
}

impl Size {
    pub(crate) fn of(text: &str) -> Size {
        let (len, signed) = match text {
            ".U8" => (1, false),
            ".S8" => (1, true),
            ".U16" => (2, false),
            ".S16" => (2, true),
            ".64" | ".S64" => (8, false),
            ".128" => (16, false),
            _ => (4, false),
        };
        Size { len, signed }
    }

    fn words(self) -> usize {
        self.len.div_ceil(4)
    }

    fn extend(self, v: u32) -> u32 {
        let up = 32 - 8 * self.len.min(4) as u32;
        if self.signed { ((v << up).cast_signed() >> up).cast_unsigned() } else { v << up >> up }
    }
}

/// The addresses of all lanes.
pub(super) fn addresses(c: &Core, m: &Address, global: bool) -> [u64; 32] {
    let uniform = match m.uniform {
        None => 0,
        Some(u) if global => {
            u64::from(c.warp.uniform[usize::from(u) + 1]) << 32 | u64::from(c.warp.uniform[usize::from(u)])
        }
        Some(u) => u64::from(c.warp.uniform[usize::from(u)]),
    };
    let plus = uniform.wrapping_add(m.offset.cast_unsigned());
    let low = &c.warp.registers[usize::from(m.base)];
    match (m.wide && m.base != 255, global) {
        (true, _) => {
            let high = &c.warp.registers[usize::from(m.base) + 1];
            let all = zip(low, high, |low, high| (u64::from(high) << 32 | u64::from(low)).wrapping_add(plus));
            if global { all } else { all.map(|at| at & 0xffff_ffff) }
        }
        (false, true) => low.map(|v| (u64::from(v) * u64::from(m.scale)).wrapping_add(plus)),
        (false, false) => low.map(|v| u64::from(v.wrapping_mul(m.scale).wrapping_add(plus as u32))),
    }
}

/// Which memory a generic address leads to, and the address there; a shared one has its CTA's rank in the high byte.
fn resolve(c: &Core, space: Space, at: u64) -> (Space, u64) {
    let options = c.machine.options;
    match space {
        Space::Generic if at >> 32 == options.shared_window >> 32 => (Space::Generic, at & 0xffff_ffff),
        Space::Generic if at.wrapping_sub(options.local_window) < LOCAL_WINDOW => {
            (Space::Local, at - options.local_window)
        }
        Space::Generic => (Space::Global, at),
        other => (other, at),
    }
}

/// Reads one lane's bytes.
pub(super) fn read(c: &mut Core, space: Space, lane: usize, at: u64, into: &mut [u8]) -> R<()> {
    let who = c.warp.who();
    match resolve(c, space, at) {
        (Space::Global, at) => {
            aligned("global", at, into.len())?;
            c.read_global(at, into)
        }
        (Space::Local, at) => {
            let from = local(c, lane, at, into.len())?;
            into.copy_from_slice(&c.warp.local[from..from + into.len()]);
            Ok(())
        }
        (Space::Shared, at) => c.cta().read(at as u32 & 0xff_ffff, into, who),
        (Space::Generic, at) => cluster_cta(c, at)?.read(at as u32 & 0xff_ffff, into, who),
    }
}

/// Writes one lane's bytes.
pub(super) fn write(c: &mut Core, space: Space, lane: usize, at: u64, bytes: &[u8]) -> R<()> {
    let who = c.warp.who();
    match resolve(c, space, at) {
        (Space::Global, at) => {
            aligned("global", at, bytes.len())?;
            c.write_global(at, bytes)
        }
        (Space::Local, at) => {
            let from = local(c, lane, at, bytes.len())?;
            c.warp.local[from..from + bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
        (Space::Shared, at) => c.cta().write(at as u32 & 0xff_ffff, bytes, who),
        (Space::Generic, at) => cluster_cta(c, at)?.write(at as u32 & 0xff_ffff, bytes, who),
    }
}

/// The CTA of the cluster whose rank a shared address has in its high byte.
pub(super) fn cluster_cta<'a>(c: &'a mut Core, at: u64) -> R<&'a mut super::shared::Cta> {
    let (rank, size_bytes) = ((at >> 24 & 0xff) as usize, c.ctas.len() as u64 * LOCAL_WINDOW);
    match c.ctas.get_mut(rank) {
        Some(cta) => Ok(cta),
        None => fail(FaultKind::OutOfRange { space: "shared", address: at, len_bytes: 1, size_bytes }),
    }
}

pub(super) fn aligned(space: &'static str, address: u64, len: usize) -> R<()> {
    match address & (len as u64 - 1) == 0 {
        true => Ok(()),
        false => fail(FaultKind::Misaligned { space, address, len_bytes: len as u32 }),
    }
}

/// The place of a local access: the window's top is what the launch has.
fn local(c: &mut Core, lane: usize, at: u64, len: usize) -> R<usize> {
    aligned("local", at, len)?;
    let bytes = u64::from(c.machine.launch.local_bytes);
    let from = (at & (LOCAL_WINDOW - 1)).checked_sub(LOCAL_WINDOW - bytes);
    let Some(from) = from.filter(|f| f + len as u64 <= bytes) else {
        return fail(FaultKind::OutOfRange { space: "local", address: at, len_bytes: len as u32, size_bytes: bytes });
    };
    if c.warp.local.is_empty() {
        c.warp.local = vec![0; 32 * bytes as usize];
    }
    Ok(lane * bytes as usize + from as usize)
}

/// Whether a generic address is one of global, of shared or of local memory.
fn query(f: Fields) -> R<Run> {
    let (pu, m, kind) = (f.pdst("pu"), f.address("m")?, f.text("sp"));
    let wanted = match kind {
        ".G" => Space::Global,
        // Of this block, and of its cluster: there is one window.
        ".S" | ".D" => Space::Generic,
        ".L" => Space::Local,
        _ => return not_modelled(format!("QSPC{kind}")),
    };
    if f.register("d")? != 255 {
        return not_modelled("QSPC with a result");
    }
    Ok(Box::new(move |c| {
        let at = addresses(c, &m, true);
        let held =
            (0..32).fold(0, |all, lane| all | u32::from(resolve(c, Space::Generic, at[lane]).0 == wanted) << lane);
        c.set_pred(pu, held);
        Ok(())
    }))
}

/// Bytes of all lanes as words.
fn gather(c: &mut Core, space: Space, at: &[u64; 32], size: Size) -> R<Rows> {
    let mut rows = [[0; 32]; 4];
    if space == Space::Shared {
        let (lanes, who) = (c.lanes, c.warp.who());
        c.cta().gather(lanes, at, size.len, who, &mut rows)?;
        return Ok(rows);
    }
    if is_global(c, space, at) && gather_global(c, at, size.len, &mut rows).is_some() {
        return Ok(rows);
    }
    for lane in ones(c.lanes) {
        let mut bytes = [0; 16];
        read(c, space, lane, at[lane], &mut bytes[..size.len])?;
        scatter_words(&mut rows, lane, &bytes);
    }
    Ok(rows)
}

fn scatter_words(rows: &mut Rows, lane: usize, bytes: &[u8; 16]) {
    for (row, word) in rows.iter_mut().zip(bytes.chunks_exact(4)) {
        row[lane] = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
    }
}

/// Whether all lanes' addresses lead to global memory.
fn is_global(c: &Core, space: Space, at: &[u64; 32]) -> bool {
    let (shared, local) = (c.machine.options.shared_window >> 32, c.machine.options.local_window);
    let other = |lane: usize| at[lane] >> 32 == shared || at[lane].wrapping_sub(local) < LOCAL_WINDOW;
    space == Space::Global || space == Space::Generic && mask(other) & c.lanes == 0
}

/// The lowest address of the lanes and the bytes up to the highest one's end, if all are aligned.
fn span(lanes: u32, at: &[u64; 32], len: usize) -> Option<(u64, u64)> {
    let (mut low, mut high, mut all) = (u64::MAX, 0, 0);
    for (lane, at) in at.iter().enumerate() {
        let on = lanes & 1 << lane != 0;
        low = low.min(if on { *at } else { u64::MAX });
        high = high.max(if on { *at } else { 0 });
        all |= if on { *at } else { 0 };
    }
    let len_bytes = high.checked_sub(low)?.checked_add(len as u64)?;
    (all & (len as u64 - 1) == 0).then_some((low, len_bytes))
}

/// Whether all lanes execute and their addresses follow each other.
fn is_run(lanes: u32, at: &[u64; 32], len: usize) -> bool {
    lanes == u32::MAX && (0..32).all(|lane| at[lane] == at[0].wrapping_add((lane * len) as u64))
}

/// Reads all lanes from one range of memory; None: lane by lane, which names the fault.
fn gather_global(c: &mut Core, at: &[u64; 32], len: usize, rows: &mut Rows) -> Option<()> {
    let (low, len_bytes) = span(c.lanes, at, len)?;
    c.sm.tlb.refresh(c.machine.bus);
    let (view, base) = c.sm.tlb.range(c.machine.bus, low, len_bytes, Access::Read)?;
    if len >= 4 && is_run(c.lanes, at, len) {
        let mut bytes = [0; 512];
        let bytes = &mut bytes[..32 * len];
        view.copy_to_slice(base, bytes).ok()?;
        for (lane, words) in bytes.chunks_exact(len).enumerate() {
            for (row, word) in rows.iter_mut().zip(words.chunks_exact(4)) {
                row[lane] = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            }
        }
        return Some(());
    }
    for lane in ones(c.lanes) {
        let from = base + (at[lane] - low);
        match len {
            1 => rows[0][lane] = view.read_u8(from).ok()?.into(),
            2 => rows[0][lane] = view.read_u16(from).ok()?.into(),
            4 => rows[0][lane] = view.read_u32(from).ok()?,
            _ => {
                for k in 0..len / 8 {
                    let pair = view.read_u64(from + 8 * k as u64).ok()?;
                    (rows[2 * k][lane], rows[2 * k + 1][lane]) = (pair as u32, (pair >> 32) as u32);
                }
            }
        }
    }
    Some(())
}

fn load(f: Fields, space: Space) -> R<Run> {
    let (d, m, size) = (f.register("d")?, f.address("m")?, Size::of(f.text("sz")));
    if f.psrc("pp").index != 7 || f.pdst("pu").index != 7 {
        return not_modelled(format!("{} with a predicate", f.0.form().mnemonic));
    }
    let global = matches!(space, Space::Global | Space::Generic);
    Ok(Box::new(move |c| {
        let at = addresses(c, &m, global);
        let rows = gather(c, space, &at, size)?;
        if size.len < 4 {
            c.write(Dst::R(d), &rows[0].map(|v| size.extend(v)));
            return Ok(());
        }
        write_words(c, d, &rows[..size.words()]);
        Ok(())
    }))
}

/// The words of 32 bytes that a mask chooses, the lower four in registers from `low` on, the others from `high` on.
struct TwoRuns {
    low: u8,
    high: u8,
    mask: u8,
}

impl TwoRuns {
    fn of(f: &Fields, [low, high]: [&str; 2]) -> R<TwoRuns> {
        let mask = f.0.get("mask", Role::Value).map_or(0xff, |mask| mask as u8);
        Ok(TwoRuns { low: f.register(low)?, high: f.register(high)?, mask })
    }

    /// Word and register of each that is chosen.
    fn words(&self) -> impl Iterator<Item = (u64, u8)> {
        let chosen = |from: u32, run: u8| {
            let words = (from..from + 4).filter(|k| self.mask >> k & 1 == 1).enumerate();
            words.map(move |(n, k)| (u64::from(k), if run == 255 { 255 } else { run + n as u8 }))
        };
        chosen(0, self.low).chain(chosen(4, self.high))
    }
}

fn load_two_runs(f: Fields) -> R<Run> {
    let (m, runs) = (f.address("m")?, TwoRuns::of(&f, ["d2", "d"])?);
    if f.psrc("pp").index != 7 {
        return not_modelled("LDG with a predicate");
    }
    Ok(Box::new(move |c| {
        let at = addresses(c, &m, true);
        ones(c.lanes).try_for_each(|lane| aligned("global", at[lane], 32))?;
        for (word, d) in runs.words() {
            let rows = gather(c, Space::Global, &at.map(|at| at.wrapping_add(4 * word)), Size::of(""))?;
            write_words(c, d, &rows[..1]);
        }
        Ok(())
    }))
}

fn store_two_runs(f: Fields) -> R<Run> {
    let (m, runs) = (f.address("m")?, TwoRuns::of(&f, ["b", "b2"])?);
    Ok(Box::new(move |c| {
        let at = addresses(c, &m, true);
        for lane in ones(c.lanes) {
            aligned("global", at[lane], 32)?;
            for (word, b) in runs.words() {
                write(c, Space::Global, lane, at[lane].wrapping_add(4 * word), &stored(c, b, lane)[..4])?;
            }
        }
        Ok(())
    }))
}

/// Writes words to registers that follow each other.
pub(super) fn write_words(c: &mut Core, d: u8, rows: &[Lanes]) {
    if d != 255 {
        rows.iter().zip(d..).for_each(|(row, d)| c.write(Dst::R(d), row));
    }
}

/// The bytes that a lane stores.
pub(super) fn stored(c: &Core, b: u8, lane: usize) -> [u8; 16] {
    let mut bytes = [0; 16];
    if b != 255 {
        for (k, word) in bytes.chunks_exact_mut(4).enumerate() {
            let register = c.warp.registers.get(usize::from(b) + k).map_or(0, |r| r[lane]);
            word.copy_from_slice(&register.to_le_bytes());
        }
    }
    bytes
}

fn store(f: Fields, space: Space) -> R<Run> {
    let (b, m, size) = (f.register("b")?, f.address("m")?, Size::of(f.text("sz")));
    let global = matches!(space, Space::Global | Space::Generic);
    Ok(Box::new(move |c| {
        let at = addresses(c, &m, global);
        if space == Space::Shared {
            let Core { warp, ctas, lanes, .. } = c;
            let (row, who) = (|k| stored_row(warp, b, k), warp.who());
            return ctas[warp.cta].scatter(*lanes, &at, size.len, who, row);
        }
        if is_global(c, space, &at) && scatter_global(c, &at, b, size.len).is_some() {
            return Ok(());
        }
        for lane in ones(c.lanes) {
            write(c, space, lane, at[lane], &stored(c, b, lane)[..size.len])?;
        }
        Ok(())
    }))
}

/// The words that a store reads from register `b + k`.
fn stored_row(warp: &Warp, b: u8, k: usize) -> &Lanes {
    // PANIC: there is a register 255, and it is zero.
    warp.registers.get(if b == 255 { 255 } else { usize::from(b) + k }).unwrap_or(&warp.registers[255])
}

/// Stores all lanes to one range of memory; None: lane by lane, which names the fault.
fn scatter_global(c: &mut Core, at: &[u64; 32], b: u8, len: usize) -> Option<()> {
    let (low, len_bytes) = span(c.lanes, at, len)?;
    c.sm.tlb.refresh(c.machine.bus);
    let (view, base) = c.sm.tlb.range(c.machine.bus, low, len_bytes, Access::Write)?;
    if len >= 4 && is_run(c.lanes, at, len) {
        let mut bytes = [0; 512];
        let bytes = &mut bytes[..32 * len];
        for k in 0..len / 4 {
            let row = stored_row(c.warp, b, k);
            for (words, v) in bytes.chunks_exact_mut(len).zip(row) {
                words[4 * k..4 * k + 4].copy_from_slice(&v.to_le_bytes());
            }
        }
        return view.copy_from_slice(base, bytes).ok();
    }
    for lane in ones(c.lanes) {
        let to = base + (at[lane] - low);
        let word = |k| stored_row(c.warp, b, k)[lane];
        match len {
            1 => view.write_u8(to, word(0) as u8).ok()?,
            2 => view.write_u16(to, word(0) as u16).ok()?,
            4 => view.write_u32(to, word(0)).ok()?,
            _ => {
                for k in 0..len / 8 {
                    let pair = u64::from(word(2 * k)) | u64::from(word(2 * k + 1)) << 32;
                    view.write_u64(to + 8 * k as u64, pair).ok()?;
                }
            }
        }
    }
    Some(())
}

/// Constants by a fixed or an indexed offset.
fn constant(f: Fields) -> R<Run> {
    let (d, size) = (f.dst()?, Size::of(f.text("sz")));
    let Some(Value::Constant { bank, index, offset }) = f.0.operand("c").map(|o| o.value) else {
        return not_modelled(f.0.form().mnemonic);
    };
    if !f.text("md").is_empty() {
        return not_modelled(format!("LDC{}", f.text("md")));
    }
    // An index is of the file that the result is of.
    let uniform = f.0.form().guard == File::UniformPredicate;
    let index = index.map(|r| if uniform { Src::U(r) } else { Src::R(r) });
    let offset = if index.is_none() { offset & 0xffff } else { offset };
    Ok(Box::new(move |c| {
        // What is wider than 8 bytes is uniform and made of such pieces.
        for (piece, step) in (0..size.len).step_by(8).zip(0u8..) {
            let (from, len) = (offset + piece as i64, size.len.min(8));
            let values = constants(c, (bank, from), index, len, matches!(d, Dst::U(_)))?;
            let d = match d {
                Dst::U(u) => Dst::U(u.saturating_add(2 * step)),
                Dst::R(r) => Dst::R(r.saturating_add(2 * step)),
            };
            match len {
                8 => c.write_pairs(d, &values),
                4 => c.write(d, &values.map(|v| v as u32)),
                _ => c.write(d, &values.map(|v| size.extend(v as u32))),
            }
        }
        Ok(())
    }))
}

/// A constant for each lane, or for the first alone.
fn constants(c: &Core, (bank, offset): (u8, i64), index: Option<Src>, len: usize, first: bool) -> R<[u64; 32]> {
    let fixed = match index {
        None => Some(c.constant(bank, offset, len)?),
        Some(Src::U(u)) => Some(c.constant(bank, offset + i64::from(c.uniform(u).cast_signed()), len)?),
        _ => None,
    };
    let mut values = [0u64; 32];
    for lane in ones(if first { 1 } else { c.lanes }) {
        values[lane] = match (fixed, index) {
            (Some(v), _) => v,
            (None, Some(Src::R(r))) => {
                let index = c.warp.registers[usize::from(r)][lane].cast_signed();
                c.constant(bank, offset + i64::from(index), len)?
            }
            _ => 0,
        };
    }
    Ok(values)
}

/// LDGSTS: global memory to shared memory, done at once here.
fn copy(f: Fields) -> R<Run> {
    let (to, mut from, size) = (f.address("m")?, f.address("n")?, Size::of(f.text("sz")));
    from.wide = true;
    let (pp, zero) = (f.psrc("pp"), f.has("zf"));
    Ok(Box::new(move |c| {
        let (to, from) = (addresses(c, &Address { wide: false, ..to }, false), addresses(c, &from, true));
        let copies = c.pred(pp);
        for lane in ones(c.lanes) {
            let mut bytes = [0; 16];
            match copies >> lane & 1 == 1 {
                // An address in the middle is the number of bytes that are not read: those at the end.
                true if zero => {
                    let left = from[lane] % size.len as u64;
                    let read_bytes = size.len - left as usize;
                    let part = &mut bytes[..read_bytes];
                    copy_part(c, lane, from[lane] - left, part)?;
                }
                true => read(c, Space::Global, lane, from[lane], &mut bytes[..size.len])?,
                // Zeros are written.
                false => {}
            }
            let who = c.warp.who();
            c.cta().write(to[lane] as u32 & 0xff_ffff, &bytes[..size.len], who)?;
        }
        Ok(())
    }))
}

/// Bytes of a copy that reads fewer than it writes.
fn copy_part(c: &mut Core, lane: usize, from: u64, bytes: &mut [u8]) -> R<()> {
    let whole = [16, 8, 4, 2, 1];
    let mut at = 0;
    while at < bytes.len() {
        let n = whole.into_iter().find(|n| at % n == 0 && at + n <= bytes.len()).unwrap_or(1);
        read(c, Space::Global, lane, from + at as u64, &mut bytes[at..at + n])?;
        at += n;
    }
    Ok(())
}

/// LDSM and STSM: matrices of 8 by 8 halves. Lane `8m + r` has the address of row `r` of matrix `m`; lane `l` has
/// columns `2(l % 4)` and the next of row `l / 4`, or of column `l / 4` where the matrix is transposed.
fn matrices(f: Fields, load: bool) -> R<Run> {
    let (register, m) = (f.register(if load { "d" } else { "b" })?, f.address("m")?);
    let transposed = match f.text("md") {
        ".M88" => false,
        ".MT88" => true,
        other => return not_modelled(format!("{}.16{other}", f.0.form().mnemonic)),
    };
    let count = match f.text("n") {
        ".4" => 4,
        ".2" => 2,
        _ => 1,
    };
    Ok(Box::new(move |c| {
        let at = addresses(c, &m, false);
        let who = c.warp.who();
        for k in 0..count {
            let mut rows = [[0u16; 8]; 8];
            let cell = |lane: usize, half: usize| match transposed {
                false => (lane / 4, 2 * (lane % 4) + half),
                true => (2 * (lane % 4) + half, lane / 4),
            };
            if !load {
                let values = c.warp.registers[usize::from(register) + k];
                for (lane, half) in (0..64).map(|i| (i / 2, i % 2)) {
                    let (row, column) = cell(lane, half);
                    rows[row][column] = (values[lane] >> (16 * half)) as u16;
                }
            }
            for (row, values) in rows.iter_mut().enumerate() {
                let address = at[8 * k + row] as u32 & 0xff_ffff;
                let mut bytes = [0; 16];
                if load {
                    c.cta().read(address, &mut bytes, who)?;
                    for (v, b) in values.iter_mut().zip(bytes.chunks_exact(2)) {
                        *v = u16::from_le_bytes([b[0], b[1]]);
                    }
                } else {
                    for (v, b) in values.iter().zip(bytes.chunks_exact_mut(2)) {
                        b.copy_from_slice(&v.to_le_bytes());
                    }
                    c.cta().write(address, &bytes, who)?;
                }
            }
            if load {
                let values: Lanes = std::array::from_fn(|lane| {
                    let half = |h: usize| u32::from(rows[cell(lane, h).0][cell(lane, h).1]);
                    half(0) | half(1) << 16
                });
                c.write(Dst::R(register + k as u8), &values);
            }
        }
        Ok(())
    }))
}
