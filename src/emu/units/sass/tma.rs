//! The tensor memory accelerator: tiles of a tensor to and from shared memory (UTMALDG, UTMASTG, UTMAREDG), bulk copies
//! (UBLKCP, UBLKRED).
//!
//! The fields of a tensor map are those of `isa::sass::tensor_map`'s table; semantics as in the PTX ISA. Elements
//! outside the tensor are filled with zeros (or not a number) and are not stored; all bytes of the tile count for the
//! mbarrier. Shared memory holds the tile densely, its 16-byte units swapped within 128, 64 or 32 bytes by the
//! address's bits from 7 on.
//!
//! A copy by im2col moves pixels, not rows of a tile, which [`super::im2col`] finds by [`super::Options::im2col`];
//! without it the launch stops. Everything is done at issue. Left out: interleaved layouts, whose fields are not
//! published; alignment of the map.

use super::atomic::{self, Update};
use super::core::Core;
use super::fault::{R, not_modelled};
use super::im2col;
use super::lower::Run;
use super::mbarrier;
use super::memory::cluster_cta;
use super::operand::Fields;
use super::soft::{self, BF16, F16, F32, F64, Format};
use doorbell_ptx::sass::tensor_map::{Element as Kind, TensorMap};

pub(super) fn lower(f: Fields) -> R<Option<Run>> {
    Ok(Some(match f.0.form().mnemonic {
        "UTMALDG" => load(f)?,
        "UTMASTG" => store(f)?,
        "UTMAREDG" => reduce(f)?,
        "UBLKCP" => copy(f)?,
        "UBLKRED" => copy_reduced(f)?,
        _ => return Ok(None),
    }))
}

/// What an element of a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    Unsigned(usize),
    Signed(usize),
    Float(Format, usize),
}

impl Element {
    fn of(kind: Kind) -> Element {
        match kind {
            Kind::U8 => Element::Unsigned(1),
            Kind::U16 => Element::Unsigned(2),
            Kind::U32 => Element::Unsigned(4),
            Kind::S32 => Element::Signed(4),
            Kind::U64 => Element::Unsigned(8),
            Kind::S64 => Element::Signed(8),
            Kind::F16 => Element::Float(F16, 2),
            Kind::F32 | Kind::F32Flushed | Kind::Tf32 | Kind::Tf32Flushed => Element::Float(F32, 4),
            Kind::F64 => Element::Float(F64, 8),
            Kind::Bf16 => Element::Float(BF16, 2),
        }
    }

    /// By the text of UBLKRED's modifier.
    fn of_text(text: &str) -> Element {
        match text {
            ".S32" => Element::Signed(4),
            ".U64" => Element::Unsigned(8),
            ".S64" => Element::Signed(8),
            ".F16.RN" => Element::Float(F16, 2),
            ".BF16.RN" => Element::Float(BF16, 2),
            ".F32.RN" | ".F32.FTZ.RN" => Element::Float(F32, 4),
            ".F64.RN" => Element::Float(F64, 8),
            _ => Element::Unsigned(4),
        }
    }

    fn len(self) -> usize {
        match self {
            Element::Unsigned(len) | Element::Signed(len) | Element::Float(_, len) => len,
        }
    }

    /// The new value of the old one and the operand.
    fn update(self, op: &'static str) -> R<Update> {
        let what = || not_modelled(format!("a bulk reduction{op} of {self:?}"));
        match self {
            Element::Unsigned(4 | 8) | Element::Signed(4 | 8) => {
                let Some(run) = atomic::operation(op, matches!(self, Element::Signed(_))) else { return what() };
                let bits = 8 * self.len() as u32;
                Ok(Box::new(move |a, b| run(a, b, bits)))
            }
            Element::Float(format, _) if op == ".ADD" => Ok(Box::new(move |a, b| match format.fraction {
                52 => (f64::from_bits(a) + f64::from_bits(b)).to_bits(),
                23 => u64::from((f32::from_bits(a as u32) + f32::from_bits(b as u32)).to_bits()),
                _ => soft::narrow(soft::widen(a, format) + soft::widen(b, format), format, soft::Round::Nearest),
            })),
            Element::Float(format, 2) if matches!(op, ".MIN" | ".MAX") => Ok(Box::new(move |a, b| {
                let (x, y) = (soft::widen(a, format), soft::widen(b, format));
                soft::narrow(if op == ".MIN" { x.min(y) } else { x.max(y) }, format, soft::Round::Nearest)
            })),
            _ => what(),
        }
    }
}

/// A tensor in global memory and the tile that is copied at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Map {
    pub address: u64,
    pub rank: usize,
    element: Element,
    /// Bits of the address that the swizzle swaps: 0 to 3.
    swizzle: u32,
    fills_nan: bool,
    pub strides: [u64; 5],
    pub sizes: [u64; 5],
    pub steps: [u64; 5],
    counts: [usize; 5],
}

impl Map {
    pub(crate) fn parse(bytes: &[u8; 128]) -> R<Map> {
        let map = TensorMap::parse(bytes).map_err(|e| e.to_string()).or_else(not_modelled)?;
        let dims = &map.dimensions;
        // Elements of the innermost dimension are contiguous whatever the map holds.
        let step = |k: usize| dims.get(k).filter(|_| k > 0).map_or(1, |d| u64::from(d.step));
        let count = |k: usize| dims.get(k).map_or(1, |d| usize::from(d.box_size).div_ceil(step(k) as usize));
        Ok(Map {
            address: map.address,
            rank: dims.len(),
            element: Element::of(map.element),
            swizzle: map.swizzle as u32,
            fills_nan: map.fills_nan,
            strides: std::array::from_fn(|k| dims.get(k).map_or(0, |d| d.stride_bytes)),
            sizes: std::array::from_fn(|k| dims.get(k).map_or(1, |d| d.size)),
            steps: std::array::from_fn(step),
            counts: std::array::from_fn(count),
        })
    }

    /// The map that a pair of uniform registers points to.
    fn at(c: &mut Core, address: u64) -> R<Map> {
        let mut bytes = [0; 128];
        c.read_global(address, &mut bytes)?;
        Map::parse(&bytes)
    }

    /// The same, whose rows are so many channels of a pixel.
    pub(crate) fn of_pixels(self, channels: u16) -> Map {
        Map { counts: [channels.into(), 1, 1, 1, 1], ..self }
    }

    pub(crate) fn row_bytes(&self) -> usize {
        self.counts[0] * self.element.len()
    }

    /// Rows of the tile: where each begins in global memory, unless all of it is outside the tensor.
    fn rows(&self, at: [i32; 5]) -> Vec<Option<u64>> {
        let mut all = Vec::new();
        for number in 0..self.counts[1..].iter().product::<usize>() {
            let (mut rest, mut address) = (number, Some(self.address));
            for (k, first) in at.iter().enumerate().skip(1) {
                let place = i64::from(*first) + (rest % self.counts[k]) as i64 * self.steps[k].cast_signed();
                rest /= self.counts[k];
                let inside = u64::try_from(place).ok().filter(|p| *p < self.sizes[k]);
                address = address.zip(inside).map(|(a, place)| a.wrapping_add(place * self.strides[k]));
            }
            all.push(address);
        }
        all
    }

    /// The elements of a row that are inside the tensor: the first's number in the row and in the tensor, and how many.
    fn inside(&self, first: i32) -> (usize, u64, usize) {
        let (first, size) = (i64::from(first), self.sizes[0].cast_signed());
        let (from, to) = (first.clamp(0, size), (first + self.counts[0] as i64).clamp(0, size));
        ((from - first).min(self.counts[0] as i64) as usize, from.cast_unsigned(), (to - from).max(0) as usize)
    }

    /// A row of the tile, filled where it is outside.
    fn read_row(&self, c: &mut Core, row: Option<u64>, first: i32) -> R<Vec<u8>> {
        let len = self.element.len();
        let fill = match self.element {
            Element::Float(format, _) if self.fills_nan => format.nan(),
            _ => 0,
        };
        let mut bytes: Vec<u8> = (0..self.counts[0]).flat_map(|_| fill.to_le_bytes()[..len].to_vec()).collect();
        let (skip, from, count) = self.inside(first);
        if let (Some(row), 1..) = (row, count) {
            c.read_global(row.wrapping_add(from * len as u64), &mut bytes[skip * len..(skip + count) * len])?;
        }
        Ok(bytes)
    }

    /// Where a unit of 16 bytes of shared memory is.
    fn swizzled(&self, at: u32) -> u32 {
        at ^ (at >> 7 & ((1 << self.swizzle) - 1)) << 4
    }

    /// Pieces of at most 16 bytes of a row that begins at a shared address: place in the row, address, length.
    fn pieces(&self, at: u32) -> Vec<(usize, u32, usize)> {
        let (mut all, mut done) = (Vec::new(), 0);
        while done < self.row_bytes() {
            let here = at + done as u32;
            let len = (16 - (here & 15) as usize).min(self.row_bytes() - done);
            all.push((done, self.swizzled(here), len));
            done += len;
        }
        all
    }
}

/// Coordinates from a uniform register on, innermost first.
fn coordinates(c: &Core, first: u8, rank: usize) -> [i32; 5] {
    std::array::from_fn(|k| if k < rank { c.uniform_behind(first, k as u8).cast_signed() } else { 0 })
}

/// The operands of such an instruction: uniform registers.
#[derive(Clone, Copy)]
struct Named {
    name: &'static str,
    dim: &'static str,
    /// The map's address.
    map: u8,
    /// The first coordinate; the others follow.
    at: u8,
    /// Pixels by im2col, in place of a tile.
    columns: bool,
    /// Where in the filter the pixels of a load lie.
    offsets: Option<u8>,
}

/// What a copy moves: rows, each with the map's number of elements, from the same coordinate of the innermost dimension
/// on.
struct Moved {
    map: Map,
    /// Where each begins in global memory, unless all of it is outside of the tensor.
    rows: Vec<Option<u64>>,
    first: i32,
}

impl Named {
    /// For an instruction whose coordinates are at this offset in words.
    fn by(f: Fields, words: u8) -> R<Named> {
        let (name, columns) = (f.0.form().mnemonic, f.has("im"));
        let offsets = if columns && name == "UTMALDG" { Some(f.uniform("c")?) } else { None };
        let at = f.uniform("a")?.saturating_add(words);
        Ok(Named { name, dim: f.text("dim"), map: f.uniform("b")?, at, columns, offsets })
    }

    fn look_up(self, c: &mut Core) -> R<Moved> {
        let (address, spec) = (c.uniform_pair(self.map), c.machine.options.im2col);
        if !self.columns {
            let map = Map::at(c, address)?;
            let at = coordinates(c, self.at, map.rank);
            return Ok(Moved { rows: map.rows(at), first: at[0], map });
        }
        let what = format!("{}{}.IM2COL of the map {address:#x}", self.name, self.dim);
        let Some(spec) = spec else {
            return not_modelled(format!("{what}, of whose columns Options::im2col tells nothing,"));
        };
        let map = Map::at(c, address)?.of_pixels(spec.channels_per_pixel);
        if self.dim != format!(".{}D", map.rank) {
            return not_modelled(format!("{what}, which has {} dimensions,", map.rank));
        }
        let at = coordinates(c, self.at, map.rank);
        let rows = im2col::pixels(&map, spec, at, self.offsets.map_or(0, |u| c.uniform(u)))?;
        Ok(Moved { rows, first: at[0], map })
    }
}

/// Addresses of the same place in the CTAs of a mask; without one the address itself.
pub(super) fn targets(at: u32, mask: Option<u32>) -> Vec<u64> {
    match mask {
        None => vec![u64::from(at)],
        Some(mask) => {
            super::warp::ones(mask & 0xffff).map(|cta| u64::from(at & 0xff_ffff | (cta as u32) << 24)).collect()
        }
    }
}

/// UTMALDG: a tile to shared memory, here or in several CTAs, whose mbarriers count its bytes.
fn load(f: Fields) -> R<Run> {
    let (a, named) = (f.uniform("a")?, Named::by(f, 2)?);
    let cast = if f.has("mc") { Some(f.uniform("c")?) } else { None };
    Ok(Box::new(move |c| {
        let Moved { map, rows, first } = named.look_up(c)?;
        let (to, barrier) = (c.uniform(a), c.uniform_behind(a, 1));
        // A mask is in the high half of its register.
        let mask = cast.map(|u| c.uniform(u) >> 16);
        let len_bytes = rows.len() * map.row_bytes();
        for (number, row) in rows.into_iter().enumerate() {
            let bytes = map.read_row(c, row, first)?;
            for target in targets(to, mask) {
                let row_at = (target as u32 & 0xff_ffff) + (number * map.row_bytes()) as u32;
                let cta = cluster_cta(c, target)?;
                for (from, at, len) in map.pieces(row_at) {
                    cta.deliver(at, &bytes[from..from + len])?;
                }
            }
        }
        for target in targets(barrier, mask) {
            mbarrier::deliver(c, target, len_bytes as u64)?;
        }
        Ok(())
    }))
}

/// A row of the tile in shared memory's order.
fn shared_row(c: &mut Core, map: &Map, from: u32, number: usize) -> R<Vec<u8>> {
    let row_at = (from & 0xff_ffff) + (number * map.row_bytes()) as u32;
    let mut bytes = vec![0; map.row_bytes()];
    for (to, at, len) in map.pieces(row_at) {
        bytes[to..to + len].copy_from_slice(cluster_cta(c, u64::from(from))?.bytes(at, len)?);
    }
    Ok(bytes)
}

/// UTMASTG: a tile from shared memory; elements outside the tensor are not stored.
fn store(f: Fields) -> R<Run> {
    let (a, named) = (f.uniform("a")?, Named::by(f, 1)?);
    Ok(Box::new(move |c| {
        let Moved { map, rows, first } = named.look_up(c)?;
        let (from, len) = (c.uniform(a), map.element.len());
        let (skip, first, count) = map.inside(first);
        for (number, row) in rows.into_iter().enumerate() {
            let bytes = shared_row(c, &map, from, number)?;
            if let (Some(row), 1..) = (row, count) {
                c.write_global(row.wrapping_add(first * len as u64), &bytes[skip * len..(skip + count) * len])?;
            }
        }
        Ok(())
    }))
}

/// UTMAREDG: the same, each element combined with what is there.
fn reduce(f: Fields) -> R<Run> {
    let (a, named, op) = (f.uniform("a")?, Named::by(f, 1)?, f.text("op"));
    Ok(Box::new(move |c| {
        let Moved { map, rows, first } = named.look_up(c)?;
        let (from, len, update) = (c.uniform(a), map.element.len(), map.element.update(op)?);
        let (skip, first, count) = map.inside(first);
        for (number, row) in rows.into_iter().enumerate() {
            let bytes = shared_row(c, &map, from, number)?;
            if let (Some(row), 1..) = (row, count) {
                let to = row.wrapping_add(first * len as u64);
                combine(c, to, &bytes[skip * len..(skip + count) * len], len, &update)?;
            }
        }
        Ok(())
    }))
}

/// Combines elements with global memory, each atomically.
fn combine(c: &mut Core, to: u64, bytes: &[u8], len: usize, update: &Update) -> R<()> {
    for (number, element) in bytes.chunks_exact(len).enumerate() {
        let mut word = [0; 8];
        word[..len].copy_from_slice(element);
        let (at, operand) = (to.wrapping_add((number * len) as u64), u64::from_le_bytes(word));
        if len >= 4 {
            atomic::update_global(c, at, len, &mut |old| update(old, operand))?;
            continue;
        }
        let shift = 8 * (at & 3) as u32;
        let mask = (1u64 << (8 * len)) - 1;
        let part = |old: u64| update(old >> shift & mask, operand) << shift | old & !(mask << shift);
        atomic::update_global(c, at & !3, 4, &mut |old| part(old))?;
    }
    Ok(())
}

/// The size of a bulk copy: the low half of a register, in units of 16 bytes; the high half is the mask of CTAs.
fn size_of(c: &Core, u: u8) -> usize {
    (c.uniform(u) & 0xffff) as usize * 16
}

/// UBLKCP: up to 2^20 bytes between global and shared memory, or between shared memories of a cluster.
fn copy(f: Fields) -> R<Run> {
    let (a, b, size) = (f.uniform("a")?, f.uniform("b")?, f.uniform("c")?);
    let (to_shared, from_shared, cast) = (f.text("dd") == ".S", f.text("ss") == ".S", f.has("mc"));
    Ok(Box::new(move |c| {
        let (len, mask) = (size_of(c, size), cast.then(|| c.uniform(size) >> 16));
        let bytes = match from_shared {
            true => {
                let from = c.uniform(b);
                cluster_cta(c, u64::from(from))?.bytes(from & 0xff_ffff, len)?.to_vec()
            }
            false => {
                let mut bytes = vec![0; len];
                c.read_global(c.uniform_pair(b), &mut bytes)?;
                bytes
            }
        };
        if !to_shared {
            return c.write_global(c.uniform_pair(a), &bytes);
        }
        let (to, barrier) = (c.uniform(a), c.uniform_behind(a, 1));
        for target in targets(to, mask) {
            cluster_cta(c, target)?.deliver(target as u32 & 0xff_ffff, &bytes)?;
        }
        for target in targets(barrier, mask) {
            mbarrier::deliver(c, target, len as u64)?;
        }
        Ok(())
    }))
}

/// UBLKRED: shared memory combined with global memory, or with shared memory of the cluster.
fn copy_reduced(f: Fields) -> R<Run> {
    let (a, b, size) = (f.uniform("a")?, f.uniform("b")?, f.uniform("c")?);
    let (to_shared, element) = (f.text("dd") == ".S", Element::of_text(f.text("ty")));
    let (update, len) = (element.update(f.text("op"))?, element.len());
    Ok(Box::new(move |c| {
        let (from, bytes_len) = (c.uniform(b), size_of(c, size));
        let bytes = cluster_cta(c, u64::from(from))?.bytes(from & 0xff_ffff, bytes_len)?.to_vec();
        if !to_shared {
            return combine(c, c.uniform_pair(a), &bytes, len, &update);
        }
        let (to, barrier) = (c.uniform(a), c.uniform_behind(a, 1));
        let cta = cluster_cta(c, u64::from(to))?;
        for (number, element) in bytes.chunks_exact(len).enumerate() {
            let mut word = [0; 8];
            word[..len].copy_from_slice(element);
            let at = (to & 0xff_ffff) + (number * len) as u32;
            cta.update(at, len, |old| update(old, u64::from_le_bytes(word)))?;
        }
        mbarrier::deliver(c, u64::from(barrier), bytes_len as u64)
    }))
}
