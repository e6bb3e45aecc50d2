//! UVM's tests of itself, as the module answers them that is loaded with `uvm_enable_builtin_tests=1`.
//!
//! Source: `uvm_test.c` and the handlers that it names, of the open kernel modules 580.142: what each one refuses, in
//! its order, and what it answers. A test of the module's own parts has none here to test: it looks whether the tables
//! of this driver's address space fit together. Left out (a named report and INVALID_STATE): tests with arguments that
//! reach managed memory, page tables, chunks of VRAM and the tools' queues.

use super::state::{FileKind, State};
use super::uvm::{UvmSpace, set_status};
use super::{SoftNv, status};
use doorbell_ioctl::abi::Desc;
use doorbell_ioctl::abi::nvrm::Status;
use doorbell_ioctl::port::Errno;

const INVALID_PARAMETER: Status = Status(0x3b);
const MISSING_TABLE_ENTRY: Status = Status(0x4a);
const NOTHING_TO_DO: Status = Status(0x1_0006);
const BLOCK_BYTES: u64 = 2 << 20;
const PAGE: u64 = 4096;
/// First address after those of a process.
const TASK_SIZE: u64 = 0x7fff_ffff_f000;
/// Sizes that memory of the host and of the card comes in: one bit each.
const CHUNK_SIZES: u64 = 4096 | 64 << 10 | 2 << 20;
/// Kinds of events, and counters, of the tools.
const EVENT_TYPES: u8 = 64;
const COUNTERS: u32 = 16;
/// Where the kernel's own memory begins.
const KERNEL: u64 = 0xffff_8880_0000_0000;

/// A test's struct, by offsets.
struct Args<'a>(&'a mut [u8]);

impl Args<'_> {
    fn u8(&self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0)
    }

    fn u32(&self, at: usize) -> u32 {
        self.0.get(at..at + 4).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
    }

    fn u64(&self, at: usize) -> u64 {
        self.0.get(at..at + 8).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
    }

    fn uuid(&self, at: usize) -> [u8; 16] {
        self.0.get(at..at + 16).and_then(|b| b.first_chunk()).copied().unwrap_or_default()
    }

    fn answer(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.0.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}

fn check(it: bool, refused: Status) -> Result<(), Status> {
    if it { Ok(()) } else { Err(refused) }
}

impl SoftNv {
    /// A call of a test.
    pub(super) fn uvm_test(
        &self,
        file: u64,
        kind: FileKind,
        desc: &'static Desc,
        bytes: &mut [u8],
    ) -> Result<i32, Errno> {
        if !self.config.uvm_builtin_tests {
            return Err(Errno::ENOSYS);
        }
        let bytes = bytes.get_mut(..desc.layout.len_bytes as usize).ok_or(Errno::EFAULT)?;
        let mut state = self.state();
        let outcome = match desc.request {
            290 | 291 | 296 | 307 | 308 => any_file(&mut state, file, kind, desc.request, &mut Args(bytes)),
            number => match state.spaces.remove(&file) {
                None => Err(status::ILLEGAL_ACTION),
                Some(space) => {
                    let mut args = Args(bytes);
                    let outcome = self.test_of(&mut state, &space, number, &mut args);
                    state.spaces.insert(file, space);
                    if outcome.is_ok() && number == 252 {
                        args.answer(0, &(KERNEL | file << 12).to_le_bytes());
                    }
                    outcome
                }
            },
        };
        set_status(desc, bytes, outcome.err().unwrap_or(Status(0)))
    }

    /// A test on an address space: first what names a card or an address.
    fn test_of(&self, state: &mut State, space: &UvmSpace, number: u32, args: &mut Args<'_>) -> Result<(), Status> {
        let card = |at: usize| space.gpu(self, &args.uuid(at));
        match number {
            200 => {
                let gpu = self.gpu_of_uuid(&args.uuid(0));
                let named = |space: &UvmSpace| gpu.is_some_and(|gpu| space.has(gpu));
                let count = u64::from(named(space)) + state.spaces.values().filter(|s| named(s)).count() as u64;
                args.answer(16, &count.to_le_bytes());
                Ok(())
            }
            204 => {
                let (base, last, kind) = space.range_at(args.u64(0)).ok_or(status::INVALID_ADDRESS)?;
                args.answer(8, &base.to_le_bytes());
                args.answer(16, &last.to_le_bytes());
                args.answer(4164, &kind.to_le_bytes());
                Ok(())
            }
            207 | 234 | 260 | 261 => {
                let (a, b) = (card(0)?, card(16)?);
                if number == 207 {
                    args.answer(40, &u64::from(space.are_peers(a, b)).to_le_bytes());
                }
                check(a != b, status::INVALID_DEVICE)
            }
            211 => {
                check(args.u64(16).is_multiple_of(PAGE), status::INVALID_ADDRESS)?;
                check(args.u32(24) < 4, status::INVALID_ARGUMENT)?;
                card(0)?;
                Err(status::INVALID_ADDRESS)
            }
            221 => {
                card(0)?;
                check(args.u64(16) == 0, status::INVALID_ARGUMENT)?;
                args.answer(24, &CHUNK_SIZES.to_le_bytes());
                Ok(())
            }
            222 => {
                check(args.u64(24).cast_signed() >= -1, status::INVALID_ARGUMENT)?;
                card(0).map(|_| ())
            }
            236
            | 237
            | 243
            | 253..=256
            | 258
            | 265
            | 271
            | 273
            | 274
            | 276..=278
            | 284
            | 305
            | 306
            | 309
            | 312
            | 314 => card(0).map(|_| ()),
            257 => {
                check(args.u32(16) < 2, status::INVALID_ARGUMENT)?;
                card(0).map(|_| ())
            }
            270 => {
                card(0)?;
                args.answer(16, &self.clock.ns().to_le_bytes());
                Ok(())
            }
            275 => {
                card(0)?;
                args.answer(16, &BLOCK_BYTES.to_le_bytes());
                Ok(())
            }
            // Of managed memory, which there is none of.
            208 | 209 | 217 | 233 | 235 | 310 => Err(status::INVALID_ADDRESS),
            293 => check(space.range_at(args.u64(0)).is_some(), status::INVALID_ADDRESS),
            311 => {
                check(args.u64(0).is_multiple_of(BLOCK_BYTES), status::INVALID_ADDRESS)?;
                card(8)?;
                Err(status::INVALID_ADDRESS)
            }
            259 | 313 => Err(status::INVALID_CHANNEL),
            _ => self.test_of_itself(state, space, number, args),
        }
    }

    /// Tests of the module's own parts, and its switches.
    fn test_of_itself(
        &self,
        state: &mut State,
        space: &UvmSpace,
        number: u32,
        args: &mut Args<'_>,
    ) -> Result<(), Status> {
        let sound = check(space.is_sound(), status::INVALID_STATE);
        match number {
            201
            | 202
            | 205
            | 206
            | 210
            | 212..=214
            | 216
            | 218..=220
            | 223
            | 225
            | 230
            | 242
            | 245
            | 286..=288
            | 300 => sound,
            203 => {
                check(args.u32(20) <= 100 && args.u32(24) <= 100 && args.u64(56) != 0, INVALID_PARAMETER)?;
                sound
            }
            215 => check(args.u32(0) < 4, INVALID_PARAMETER).and(sound),
            224 => check(u64::from(args.u32(8)) > BLOCK_BYTES, status::INVALID_ARGUMENT).and(sound),
            226 => check(args.u32(12) < 4, INVALID_PARAMETER).and(self.no_test(number)),
            227 => check(space.has_cards(), status::INVALID_DEVICE).and(sound),
            228 | 304 => check(args.u8(0) < EVENT_TYPES, status::INVALID_ARGUMENT),
            229 => check(args.u32(8) < COUNTERS, status::INVALID_ARGUMENT),
            240 => check(matches!(args.u32(0), 1 | 2), status::INVALID_ARGUMENT).and(sound),
            241 => check([24, 28, 32].iter().all(|at| args.u32(*at) != 0), INVALID_PARAMETER).and(self.no_test(number)),
            244 => check(args.u32(0) == 1, status::INVALID_ARGUMENT),
            246 | 263 => check(args.u32(0) < 2, status::INVALID_ARGUMENT),
            247 => Err(INVALID_PARAMETER),
            248 => {
                args.answer(16, &u64::MAX.to_le_bytes());
                Ok(())
            }
            249 => Err(status::OBJECT_NOT_FOUND),
            250 => {
                args.answer(0, &state.prefetch_lapse_ms.to_le_bytes());
                Ok(())
            }
            251 => {
                state.prefetch_lapse_ms = args.u32(0);
                Ok(())
            }
            // Thrashing is not looked for: policy 1.
            262 => {
                args.answer(0, &1_u32.to_le_bytes());
                Ok(())
            }
            267 => check(args.u64(8).is_multiple_of(8), status::INVALID_ARGUMENT).and(Err(MISSING_TABLE_ENTRY)),
            266 | 269 => Err(NOTHING_TO_DO),
            281 | 282 => check(args.u32(0) > 0, status::INVALID_ARGUMENT),
            // The process's own pages are not the card's: the kernel tells of its unmapping.
            283 => {
                args.answer(0, &1_u32.to_le_bytes());
                Ok(())
            }
            285 => check(args.u64(0).is_multiple_of(8), status::INVALID_ADDRESS).and(self.no_test(number)),
            295 | 299 => check(self.config.confidential, status::INVALID_STATE),
            // Switches of the address space; kernel's address; its memory map.
            232 | 252 | 272 | 279 | 280 | 289 | 294 | 298 | 301..=303 => Ok(()),
            _ => self.no_test(number),
        }
    }

    fn no_test(&self, number: u32) -> Result<(), Status> {
        self.unmodelled(format!("UVM's test {number} with these arguments"));
        Err(status::INVALID_STATE)
    }
}

/// Tests that ask for no address space.
fn any_file(state: &mut State, file: u64, kind: FileKind, number: u32, args: &mut Args<'_>) -> Result<(), Status> {
    match number {
        290 => args.answer(0, &TASK_SIZE.to_le_bytes()),
        291 => args.answer(0, &CHUNK_SIZES.to_le_bytes()),
        296 => return Err(status::NOT_SUPPORTED),
        307 => {
            check(kind == FileKind::Uvm, status::INVALID_ARGUMENT)?;
            state.set_kind(file, FileKind::UvmTest);
        }
        _ => check(kind == FileKind::UvmTest, status::ILLEGAL_ACTION)?,
    }
    Ok(())
}
