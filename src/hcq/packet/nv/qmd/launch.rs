//! Conversion between a grid launch and a QMD of any version.

use super::{FieldError, ParseError, Qmd, Version};
use crate::packet::GpuVa;

/// The parameters of a launch. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Address of the first instruction; a multiple of 128.
    pub program: GpuVa,
    /// Registers per thread, including the hidden ones.
    pub registers: u32,
    /// Named barriers per CTA.
    pub barriers: u32,
    /// Compute capability in hexadecimal: `0x90` for sm_90.
    pub sass_version: u32,
    /// CTAs of the grid; with clusters whole clusters along each axis. The QMD counts clusters.
    pub grid: [u32; 3],
    /// Threads of a CTA.
    pub block: [u32; 3],
    /// CTAs of a cluster (Hopper and later).
    pub cluster: Option<[u32; 3]>,
    /// Shared memory per CTA; a multiple of 128.
    pub shared_bytes: u32,
    /// Shared memory of an SM: the smallest split, which is also the preferred one, and the largest split.
    pub shared_config: [u32; 2],
    /// Local memory per thread; a multiple of 16.
    pub local_bytes: u32,
    pub constants: [Option<Constant>; 8],
    /// Semaphores written when the grid is done.
    pub releases: Vec<Release>,
    /// The next QMD of a chain.
    pub dependent: Option<Dependent>,
    pub invalidate: Invalidate,
    /// Makes the grid's stores visible to the system before it is complete.
    pub sysmembar: bool,
}

/// A constant bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    /// A multiple of 64; of 256 before Hopper.
    pub address: GpuVa,
    /// A multiple of 16, up to 64 KiB.
    pub len_bytes: u32,
    /// Invalidates cached data of the bank.
    pub invalidate: bool,
}

/// A semaphore to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    pub address: GpuVa,
    /// Turing writes only the low 32 bits.
    pub payload: u64,
    /// Writes four words, with the time after the payload; otherwise only the payload.
    pub timestamp: bool,
    /// Waits until all stores are visible to the system.
    pub sysmembar: bool,
}

/// The action on the dependent QMD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    IncrementPut = 0,
    Schedule = 1,
    InvalidateCopySchedule = 3,
    DecrementDependence = 4,
}

/// The next QMD of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependent {
    pub qmd: GpuVa,
    pub action: Action,
    pub prefetch: bool,
}

/// Caches to invalidate before the grid starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Invalidate {
    pub texture_header: bool,
    pub texture_sampler: bool,
    pub texture_data: bool,
    pub shader_data: bool,
    pub instruction: bool,
    pub constant: bool,
}

impl Invalidate {
    /// All except instructions: for a kernel that reads data written by others.
    pub const DATA: Self = Self {
        texture_header: true,
        texture_sampler: true,
        texture_data: true,
        shader_data: true,
        instruction: false,
        constant: true,
    };
}

/// Differences between versions: field names and shifts.
struct Dialect {
    grid: [&'static str; 3],
    registers: &'static str,
    program: [&'static str; 2],
    program_shift: u32,
    shared: &'static str,
    shared_shift: u32,
    local: &'static str,
    local_shift: u32,
    constant: [&'static str; 2],
    constant_shift: u32,
    minor: &'static str,
    /// QMD_TYPE of a plain grid and of a grid of clusters; `None` if the version has a bit for queues instead.
    kinds: Option<[u32; 2]>,
    dependent: [(&'static str, u32); 3],
    pointer: &'static str,
}

const V3: Dialect = Dialect {
    grid: ["CTA_RASTER_WIDTH", "CTA_RASTER_HEIGHT", "CTA_RASTER_DEPTH"],
    registers: "REGISTER_COUNT_V",
    program: ["PROGRAM_ADDRESS_LOWER", "PROGRAM_ADDRESS_UPPER"],
    program_shift: 0,
    shared: "SHARED_MEMORY_SIZE",
    shared_shift: 0,
    local: "SHADER_LOCAL_MEMORY_HIGH_SIZE",
    local_shift: 0,
    constant: ["CONSTANT_BUFFER_ADDR_LOWER", "CONSTANT_BUFFER_ADDR_UPPER"],
    constant_shift: 0,
    minor: "QMD_VERSION",
    kinds: None,
    dependent: [("DEPENDENT_QMD0_ENABLE", 0), ("DEPENDENT_QMD0_ACTION", 0), ("DEPENDENT_QMD0_PREFETCH", 0)],
    pointer: "DEPENDENT_QMD0_POINTER",
};
const V4: Dialect = Dialect {
    grid: ["GRID_WIDTH", "GRID_HEIGHT", "GRID_DEPTH"],
    registers: "REGISTER_COUNT",
    constant: ["CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6", "CONSTANT_BUFFER_ADDR_UPPER_SHIFTED6"],
    constant_shift: 6,
    minor: "QMD_MINOR_VERSION",
    kinds: Some([2, 3]),
    dependent: [("DEPENDENT_QMD_ENABLE", 0), ("DEPENDENT_QMD_ACTION", 0), ("DEPENDENT_QMD_PREFETCH", 0)],
    ..V3
};
const V5: Dialect = Dialect {
    program: ["PROGRAM_ADDRESS_LOWER_SHIFTED4", "PROGRAM_ADDRESS_UPPER_SHIFTED4"],
    program_shift: 4,
    shared: "SHARED_MEMORY_SIZE_SHIFTED7",
    shared_shift: 7,
    local: "SHADER_LOCAL_MEMORY_HIGH_SIZE_SHIFTED4",
    local_shift: 4,
    dependent: V3.dependent,
    ..V4
};

/// Field names of one release, in order: enable, structure, membar, 64-bit payload, address (2), payload (2); empty for
/// a field that the version does not have.
fn release_names(version: Version, slot: u32) -> Option<[(&'static str, u32); 8]> {
    let v2 = |enable, structure, address, upper, payload| {
        [
            (enable, 0),
            (structure, 0),
            ("RELEASE_MEMBAR_TYPE", 0),
            ("", 0),
            (address, 0),
            (upper, 0),
            (payload, 0),
            ("", 0),
        ]
    };
    let shared = |address, upper, payload, payload_upper| {
        [
            ("RELEASE_ENABLE", slot),
            ("RELEASE_STRUCTURE_SIZE", slot),
            ("RELEASE_MEMBAR_TYPE", slot),
            ("RELEASE_PAYLOAD64B", slot),
            (address, 0),
            (upper, 0),
            (payload, 0),
            (payload_upper, 0),
        ]
    };
    Some(match (version, slot) {
        (Version::V2_3 | Version::V2_4, 0) => v2(
            "SEMAPHORE_RELEASE_ENABLE0",
            "RELEASE0_STRUCTURE_SIZE",
            "RELEASE0_ADDRESS_LOWER",
            "RELEASE0_ADDRESS_UPPER",
            "RELEASE0_PAYLOAD",
        ),
        (Version::V2_3 | Version::V2_4, 1) => v2(
            "SEMAPHORE_RELEASE_ENABLE1",
            "RELEASE1_STRUCTURE_SIZE",
            "RELEASE1_ADDRESS_LOWER",
            "RELEASE1_ADDRESS_UPPER",
            "RELEASE1_PAYLOAD",
        ),
        (Version::V3_0, 0) => [
            ("RELEASE0_ENABLE", 0),
            ("RELEASE0_STRUCTURE_SIZE", 0),
            ("RELEASE0_MEMBAR_TYPE", 0),
            ("RELEASE0_PAYLOAD64B", 0),
            ("RELEASE0_ADDRESS_LOWER", 0),
            ("RELEASE0_ADDRESS_UPPER", 0),
            ("RELEASE0_PAYLOAD_LOWER", 0),
            ("RELEASE0_PAYLOAD_UPPER", 0),
        ],
        (Version::V3_0, 1) => [
            ("RELEASE1_ENABLE", 0),
            ("RELEASE1_STRUCTURE_SIZE", 0),
            ("RELEASE1_MEMBAR_TYPE", 0),
            ("RELEASE1_PAYLOAD64B", 0),
            ("RELEASE1_ADDRESS_LOWER", 0),
            ("RELEASE1_ADDRESS_UPPER", 0),
            ("RELEASE1_PAYLOAD_LOWER", 0),
            ("RELEASE1_PAYLOAD_UPPER", 0),
        ],
        (Version::V4_0 | Version::V5_0, 0) => shared(
            "RELEASE_SEMAPHORE0_ADDR_LOWER",
            "RELEASE_SEMAPHORE0_ADDR_UPPER",
            "RELEASE_SEMAPHORE0_PAYLOAD_LOWER",
            "RELEASE_SEMAPHORE0_PAYLOAD_UPPER",
        ),
        (Version::V4_0 | Version::V5_0, 1) => shared(
            "RELEASE_SEMAPHORE1_ADDR_LOWER",
            "RELEASE_SEMAPHORE1_ADDR_UPPER",
            "RELEASE_SEMAPHORE1_PAYLOAD_LOWER",
            "RELEASE_SEMAPHORE1_PAYLOAD_UPPER",
        ),
        _ => return None,
    })
}

/// Most releases of a launch.
const MAX_RELEASES: usize = 2;

const INVALIDATE: [&str; 6] = [
    "INVALIDATE_TEXTURE_HEADER_CACHE",
    "INVALIDATE_TEXTURE_SAMPLER_CACHE",
    "INVALIDATE_TEXTURE_DATA_CACHE",
    "INVALIDATE_SHADER_DATA_CACHE",
    "INVALIDATE_INSTRUCTION_CACHE",
    "INVALIDATE_SHADER_CONSTANT_CACHE",
];
const BLOCK: [&str; 3] = ["CTA_THREAD_DIMENSION0", "CTA_THREAD_DIMENSION1", "CTA_THREAD_DIMENSION2"];
const CLUSTER: [&str; 3] = ["GPC_CGA_WIDTH", "GPC_CGA_HEIGHT", "GPC_CGA_DEPTH"];

fn dialect(version: Version) -> Dialect {
    match version {
        // Turing has one dependent QMD, with a fixed action.
        Version::V2_3 => Dialect {
            dependent: [
                ("DEPENDENT_QMD_SCHEDULE_ENABLE", 0),
                ("DEPENDENT_QMD_TYPE", 0),
                ("DEPENDENT_QMD_FIELD_COPY", 0),
            ],
            pointer: "DEPENDENT_QMD_POINTER",
            ..V3
        },
        Version::V2_4 | Version::V3_0 => V3,
        Version::V4_0 => V4,
        Version::V5_0 => V5,
    }
}

/// Position of constant bank 0's address in a QMD: the only difference between two launches of a kernel with the same
/// geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BankSlot {
    /// Dword, lowest bit and mask of the lower and the upper part.
    parts: [(usize, u32, u32); 2],
    shift: u32,
}

impl BankSlot {
    /// The position in a version's QMD; `None` if it has no such field.
    #[must_use]
    pub fn of(version: Version) -> Option<Self> {
        let d = dialect(version);
        let place = |name| version.row(name).and_then(|r| r.place(0));
        Some(Self { parts: [place(d.constant[0])?, place(d.constant[1])?], shift: d.constant_shift })
    }

    /// Replaces the address in the dwords of a QMD that was emitted for another bank with the same alignment.
    pub fn patch(&self, words: &mut [u32], address: GpuVa) {
        for (at, value) in self.values(words, address) {
            if let Some(word) = words.get_mut(at) {
                *word = value;
            }
        }
    }

    /// The new values of the dwords that hold the address, with their indices, in the order in which to store them.
    #[must_use]
    pub fn values(&self, words: &[u32], address: GpuVa) -> [(usize, u32); 2] {
        let parts = crate::bits::split(address.0 >> self.shift);
        let put = |old: u32, n: usize| {
            let (_, lo, mask) = self.parts[n];
            old & !(mask << lo) | (parts[n] & mask) << lo
        };
        let old = |n: usize| words.get(self.parts[n].0).copied().unwrap_or(0);
        let (first, second) = (self.parts[0].0, self.parts[1].0);
        let lower = put(old(0), 0);
        // Both parts may lie in one dword.
        [(first, lower), (second, put(if first == second { lower } else { old(1) }, 1))]
    }
}

/// The encoding of a split of an SM's shared memory.
#[must_use]
fn config(shared_bytes: u32) -> u32 {
    shared_bytes / 4096 + 1
}

/// A QMD under construction, with helpers for sizes and for addresses in two fields.
struct Filler(Qmd);

impl Filler {
    fn put(&mut self, name: &'static str, index: u32, value: u32) -> Result<(), FieldError> {
        self.0.set(name, index, value)
    }

    /// Sets a size that the field stores divided by `1 << shift`; a size that is not a multiple is an overflow, too.
    fn shifted(&mut self, name: &'static str, value: u32, shift: u32) -> Result<(), FieldError> {
        let max = (u64::from(u32::MAX) >> shift) << shift;
        if value.trailing_zeros() < shift {
            return Err(FieldError::Overflow { name, index: 0, value: value.into(), max });
        }
        self.put(name, 0, value >> shift)
    }

    fn address(&mut self, names: [(&'static str, u32); 2], address: GpuVa, shift: u32) -> Result<(), FieldError> {
        let (name, index) = names[1];
        if address.0.trailing_zeros() < shift {
            return Err(FieldError::Overflow { name, index, value: address.0, max: u64::MAX >> shift << shift });
        }
        let value = address.0 >> shift;
        self.put(names[0].0, names[0].1, value as u32)?;
        match u32::try_from(value >> 32) {
            Ok(upper) => self.put(name, index, upper),
            Err(_) => Err(FieldError::Overflow { name, index, value: address.0, max: u64::from(u32::MAX) << shift }),
        }
    }
}

impl Launch {
    /// Encodes the launch as a QMD.
    ///
    /// # Errors
    /// A value that its field cannot hold, or something that the version does not have (clusters before Hopper, a third
    /// release).
    pub fn emit(&self, version: Version) -> Result<Qmd, FieldError> {
        let d = dialect(version);
        let mut q = Filler(Qmd::new(version));
        let (major, minor) = version.number();
        q.put("QMD_MAJOR_VERSION", 0, major)?;
        q.put(d.minor, 0, minor)?;
        q.put("QMD_GROUP_ID", 0, 0x3f)?;
        q.put("API_VISIBLE_CALL_LIMIT", 0, 1)?;
        q.put("SAMPLER_INDEX", 0, 1)?;
        q.put("SASS_VERSION", 0, self.sass_version)?;
        if version == Version::V3_0 || version == Version::V2_4 || version == Version::V2_3 {
            q.put("SM_GLOBAL_CACHING_ENABLE", 0, 1)?;
        }
        match (d.kinds, self.cluster) {
            (Some([plain, _]), None) => q.put("QMD_TYPE", 0, plain)?,
            (Some([_, clusters]), Some(_)) => q.put("QMD_TYPE", 0, clusters)?,
            (None, _) => {}
        }
        for (name, value) in CLUSTER.into_iter().zip(self.cluster.unwrap_or_default()) {
            if value != 0 {
                q.put(name, 0, value)?;
            }
        }
        q.address([(d.program[0], 0), (d.program[1], 0)], self.program, d.program_shift)?;
        q.put(d.registers, 0, self.registers)?;
        q.put("BARRIER_COUNT", 0, self.barriers)?;
        let per_cluster = self.cluster.unwrap_or([1; 3]).map(|ctas| ctas.max(1));
        let clusters = self.grid.into_iter().zip(per_cluster).map(|(ctas, size)| ctas / size);
        for (name, size) in d.grid.into_iter().zip(clusters).chain(BLOCK.into_iter().zip(self.block)) {
            q.put(name, 0, size)?;
        }
        q.shifted(d.shared, self.shared_bytes, d.shared_shift)?;
        q.shifted(d.local, self.local_bytes, d.local_shift)?;
        let [wanted, largest] = self.shared_config.map(config);
        q.put("MIN_SM_CONFIG_SHARED_MEM_SIZE", 0, wanted)?;
        q.put("TARGET_SM_CONFIG_SHARED_MEM_SIZE", 0, wanted)?;
        q.put("MAX_SM_CONFIG_SHARED_MEM_SIZE", 0, largest)?;
        q.put("CWD_MEMBAR_TYPE", 0, self.sysmembar.into())?;
        for (name, on) in INVALIDATE.into_iter().zip(self.invalidate.flags()) {
            q.put(name, 0, on.into())?;
        }
        self.emit_constants(&d, &mut q)?;
        self.emit_chain(&d, &mut q)?;
        Ok(q.0)
    }

    fn emit_constants(&self, d: &Dialect, q: &mut Filler) -> Result<(), FieldError> {
        for (bank, c) in (0u32..).zip(&self.constants) {
            let Some(c) = c else { continue };
            q.put("CONSTANT_BUFFER_VALID", bank, 1)?;
            q.put("CONSTANT_BUFFER_INVALIDATE", bank, c.invalidate.into())?;
            q.address([(d.constant[0], bank), (d.constant[1], bank)], c.address, d.constant_shift)?;
            let name = "CONSTANT_BUFFER_SIZE_SHIFTED4";
            if !c.len_bytes.is_multiple_of(16) {
                return Err(FieldError::Overflow { name, index: bank, value: c.len_bytes.into(), max: 0x1_0000 });
            }
            q.put(name, bank, c.len_bytes >> 4)?;
        }
        Ok(())
    }

    fn emit_chain(&self, d: &Dialect, q: &mut Filler) -> Result<(), FieldError> {
        let version = q.0.version();
        for (slot, r) in (0u32..).zip(&self.releases) {
            let unknown = FieldError::Unknown { version, name: "RELEASE_ENABLE", index: slot };
            let names = release_names(version, slot).ok_or(unknown)?;
            q.put(names[0].0, names[0].1, 1)?;
            // Structure codes: four words with the time; two words for a 64-bit payload; one word.
            let structure = match (r.timestamp, names[3].0.is_empty()) {
                (true, _) => 0,
                (false, true) => 1,
                (false, false) => 2,
            };
            q.put(names[1].0, names[1].1, structure)?;
            if r.sysmembar {
                q.put(names[2].0, names[2].1, 1)?;
            }
            q.address([names[4], names[5]], r.address, 0)?;
            q.put(names[6].0, names[6].1, r.payload as u32)?;
            if names[3].0.is_empty() {
                if let Ok(0) = u32::try_from(r.payload >> 32) {
                    continue;
                }
                let (name, index) = names[6];
                return Err(FieldError::Overflow { name, index, value: r.payload, max: u32::MAX.into() });
            }
            q.put(names[3].0, names[3].1, 1)?;
            q.put(names[7].0, names[7].1, (r.payload >> 32) as u32)?;
        }
        if let Some(next) = &self.dependent {
            let max = ((1 << 40) - 1) & !0xff;
            if next.qmd.0 & !max != 0 {
                return Err(FieldError::Overflow { name: d.pointer, index: 0, value: next.qmd.0, max });
            }
            q.put(d.dependent[0].0, d.dependent[0].1, 1)?;
            q.put(d.dependent[1].0, d.dependent[1].1, next.action as u32)?;
            q.put(d.dependent[2].0, d.dependent[2].1, next.prefetch.into())?;
            q.put(d.pointer, 0, (next.qmd.0 >> 8) as u32)?;
        }
        Ok(())
    }

    /// Parses a QMD. Accepts those that [`Launch::emit`] can produce, whoever produced it.
    ///
    /// # Errors
    /// The number of another version, or fields and bits that a launch does not have.
    pub fn parse(q: &Qmd) -> Result<Self, ParseError> {
        let version = q.version();
        let d = dialect(version);
        let get = |name, index| q.get(name, index).unwrap_or(0);
        let (major, minor) = (get("QMD_MAJOR_VERSION", 0), get(d.minor, 0));
        if (major, minor) != version.number() {
            return Err(ParseError::Version { version, major, minor });
        }
        if let Some((dword, bits)) = q.unclaimed() {
            return Err(ParseError::Reserved { version, dword, bits });
        }
        let address = |names: [(&'static str, u32); 2], shift: u32| {
            let [lo, hi] = names.map(|(name, index)| u64::from(get(name, index)));
            GpuVa((lo | hi << 32) << shift)
        };
        let bytes = |name, shift: u32| get(name, 0) << shift;
        let split = |name| (get(name, 0).max(1) - 1) * 4096;
        let kind = get("QMD_TYPE", 0);
        let clusters = d.kinds.is_some_and(|[_, clusters]| kind == clusters);
        let constant = |bank: usize| {
            let bank = bank as u32;
            (get("CONSTANT_BUFFER_VALID", bank) == 1).then(|| Constant {
                address: address([(d.constant[0], bank), (d.constant[1], bank)], d.constant_shift),
                len_bytes: get("CONSTANT_BUFFER_SIZE_SHIFTED4", bank) << 4,
                invalidate: get("CONSTANT_BUFFER_INVALIDATE", bank) == 1,
            })
        };
        let flag = |name| get(name, 0) == 1;
        let cluster = clusters.then(|| CLUSTER.map(|n| get(n, 0)));
        let mut grid = d.grid.map(|n| get(n, 0));
        for (axis, size) in grid.iter_mut().zip(cluster.unwrap_or([1; 3])) {
            *axis = axis.saturating_mul(size.max(1));
        }
        let launch = Self {
            program: address([(d.program[0], 0), (d.program[1], 0)], d.program_shift),
            registers: get(d.registers, 0),
            barriers: get("BARRIER_COUNT", 0),
            sass_version: get("SASS_VERSION", 0),
            grid,
            block: BLOCK.map(|n| get(n, 0)),
            cluster,
            shared_bytes: bytes(d.shared, d.shared_shift),
            shared_config: [split("TARGET_SM_CONFIG_SHARED_MEM_SIZE"), split("MAX_SM_CONFIG_SHARED_MEM_SIZE")],
            local_bytes: bytes(d.local, d.local_shift),
            constants: std::array::from_fn(constant),
            releases: releases(q),
            dependent: dependent(q, &d)?,
            invalidate: Invalidate::of(INVALIDATE.map(flag)),
            sysmembar: flag("CWD_MEMBAR_TYPE"),
        };
        launch.refuse_the_rest(q)?;
        Ok(launch)
    }

    /// Fields that the launch does not represent must have the values that `emit` writes; otherwise the QMD means
    /// something else.
    fn refuse_the_rest(&self, q: &Qmd) -> Result<(), ParseError> {
        let version = q.version();
        let other = |name, index, value| ParseError::Unsupported { version, name, index, value };
        let Ok(ours) = self.emit(version) else {
            let kind = q.get("QMD_TYPE", 0).unwrap_or(0);
            return Err(other("QMD_TYPE", 0, kind));
        };
        // Any value is valid here: these fields do not change what the grid does.
        let free = ["SAMPLER_INDEX", "API_VISIBLE_CALL_LIMIT", "QMD_GROUP_ID", "MIN_SM_CONFIG_SHARED_MEM_SIZE"];
        let is_hint = |name: &str| name.starts_with("PROGRAM_PREFETCH") || name.starts_with("OCCUPANCY");
        for (r, index, value) in q.used() {
            let same = ours.get(r.name, index) == Ok(value);
            if !same && !free.contains(&r.name) && !is_hint(r.name) {
                return Err(other(r.name, index, value));
            }
        }
        for (r, index, _) in ours.used() {
            if q.get(r.name, index) == Ok(0) && !free.contains(&r.name) && r.name != "SM_GLOBAL_CACHING_ENABLE" {
                return Err(other(r.name, index, 0));
            }
        }
        Ok(())
    }
}

fn releases(q: &Qmd) -> Vec<Release> {
    let get = |(name, index): (&'static str, u32)| u64::from(q.get(name, index).unwrap_or(0));
    let names = (0..MAX_RELEASES as u32).filter_map(|slot| release_names(q.version(), slot));
    let on = names.filter(|n| get(n[0]) == 1);
    on.map(|n| Release {
        address: GpuVa(get(n[4]) | get(n[5]) << 32),
        payload: get(n[6]) | get(n[7]) << 32,
        timestamp: get(n[1]) == 0,
        sysmembar: get(n[2]) == 1,
    })
    .collect()
}

fn dependent(q: &Qmd, d: &Dialect) -> Result<Option<Dependent>, ParseError> {
    let get = |(name, index): (&'static str, u32)| q.get(name, index).unwrap_or(0);
    if get(d.dependent[0]) == 0 {
        return Ok(None);
    }
    let (name, index) = d.dependent[1];
    let action = match get(d.dependent[1]) {
        0 => Action::IncrementPut,
        1 => Action::Schedule,
        3 => Action::InvalidateCopySchedule,
        4 => Action::DecrementDependence,
        value => return Err(ParseError::Unsupported { version: q.version(), name, index, value }),
    };
    let qmd = GpuVa(u64::from(get((d.pointer, 0))) << 8);
    Ok(Some(Dependent { qmd, action, prefetch: get(d.dependent[2]) == 1 }))
}

impl Invalidate {
    fn flags(self) -> [bool; 6] {
        [
            self.texture_header,
            self.texture_sampler,
            self.texture_data,
            self.shader_data,
            self.instruction,
            self.constant,
        ]
    }

    fn of(flags: [bool; 6]) -> Self {
        let [texture_header, texture_sampler, texture_data, shader_data, instruction, constant] = flags;
        Self { texture_header, texture_sampler, texture_data, shader_data, instruction, constant }
    }
}
