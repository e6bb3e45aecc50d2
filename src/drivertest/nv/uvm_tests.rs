//! UVM's tests of itself, one case each, where the module was loaded with `uvm_enable_builtin_tests=1`.
//!
//! Source: `uvm_test.c` and the handlers that it names, of the open kernel modules 580.142 and 595.45. Each test is
//! first refused on a file without an address space. A test of the module's own parts then has to pass; one that would
//! change the card or what other processes have gets arguments that it has to refuse: a card that is not there, an
//! address without managed memory, a mode that is none.

use super::client::{Device, HUGE, want};
use super::on_card;
use crate::case::{Case, Change, Problem, Step, holds, same};
use Put::{Byte, Int, Long, Own, Range, Stranger};
use doorbell_emu::nvrm::Config;
use doorbell_ioctl::abi::nvrm::{self as rm, Release, Status};
use doorbell_ioctl::abi::{Desc, uvm_test};
use doorbell_ioctl::port::{Errno, Fd};

/// What goes into a test's struct, and where.
#[derive(Clone, Copy)]
enum Put {
    Byte(usize, u8),
    Int(usize, u32),
    Long(usize, u64),
    /// The card's UUID.
    Own(usize),
    /// The UUID of no card.
    Stranger(usize),
    /// An address in a range for RM's memory, so many bytes after its start.
    Range(usize, u64),
}

/// Arguments, and the codes that are right for them.
type Ask = (&'static [Put], &'static [u32]);

const OK: u32 = 0;
const ILLEGAL_ACTION: u32 = 0x16;
const ADDRESS: u32 = 0x1e;
const ARGUMENT: u32 = 0x1f;
const DEVICE: u32 = 0x26;
const PARAMETER: u32 = 0x3b;
const STATE: u32 = 0x40;
const MISSING: u32 = 0x4a;
const UNSUPPORTED: u32 = 0x56;
const NOT_FOUND: u32 = 0x57;
/// NV_WARN_NOTHING_TO_DO: of cards whose memory is a node of the kernel's.
const NOTHING: u32 = 0x1_0006;
/// What a test answers that was not reached.
const UNTOUCHED: u32 = 0x5a5a_5a5a;

/// The test passes as it is.
const PASSES: &[Ask] = &[(&[], &[OK])];
/// It refuses a card that is not there.
const NO_CARD: &[Ask] = &[(&[Stranger(0)], &[DEVICE])];
/// It refuses an address without managed memory.
const UNMANAGED: &[Ask] = &[(&[Range(0, 0)], &[ADDRESS])];

#[rustfmt::skip] // A line a test, in the order of the numbers.
const TESTS: &[(u32, &[Ask])] = &[
    (200, &[(&[Own(0)], &[OK]), (&[Stranger(0)], &[OK])]),
    (201, PASSES), (202, PASSES),
    (203, &[(&[Int(20, 101), Long(56, 1)], &[PARAMETER]), (&[], &[PARAMETER]), (&[Long(8, 100), Int(20, 90),
        Int(24, 50), Int(28, 25), Long(40, 1 << 40), Long(48, 500), Long(56, 50), Int(64, 10)], &[OK])]),
    (204, &[(&[Range(0, 0x1000)], &[OK])]),
    (205, PASSES), (206, PASSES),
    (207, &[(&[Own(0), Stranger(16)], &[DEVICE]), (&[Stranger(0), Own(16)], &[DEVICE])]),
    (208, &[(&[], &[ADDRESS]), (&[Range(0, 0xfff)], &[ADDRESS])]),
    (209, UNMANAGED), (210, PASSES),
    (211, &[(&[Own(0), Long(16, 1)], &[ADDRESS]), (&[Own(0), Int(24, 4)], &[ARGUMENT]), (&[Stranger(0)], &[DEVICE])]),
    (212, PASSES), (213, PASSES), (214, PASSES),
    (215, &[(&[Int(0, 99)], &[PARAMETER])]),
    (216, PASSES), (217, UNMANAGED), (218, PASSES), (219, PASSES), (220, PASSES),
    (221, &[(&[Own(0)], &[OK]), (&[Own(0), Long(16, 99)], &[ARGUMENT]), (&[Stranger(0)], &[DEVICE])]),
    (222, &[(&[Own(0), Long(24, u64::MAX - 1)], &[ARGUMENT]), (&[Stranger(0)], &[DEVICE])]),
    (223, PASSES), (224, &[(&[], &[ARGUMENT])]),
    (225, &[(&[Int(4, 1), Int(8, 10)], &[OK])]),
    (226, &[(&[Int(12, 99)], &[PARAMETER])]),
    (227, &[(&[Long(0, 1)], &[OK])]),
    (228, &[(&[Byte(0, 0xff)], &[ARGUMENT])]),
    (229, &[(&[Int(8, 99)], &[ARGUMENT])]),
    (230, PASSES), (232, PASSES), (233, UNMANAGED),
    (234, &[(&[Stranger(0), Own(16)], &[DEVICE]), (&[Own(0), Stranger(16)], &[DEVICE])]),
    (235, UNMANAGED), (236, NO_CARD), (237, NO_CARD),
    (240, &[(&[Int(0, 99)], &[ARGUMENT]), (&[Int(0, 2)], &[OK])]),
    (241, &[(&[Own(0)], &[PARAMETER])]),
    (242, PASSES), (243, NO_CARD),
    (244, &[(&[Int(0, 99)], &[ARGUMENT]), (&[Int(0, 1)], &[OK])]),
    (245, PASSES),
    (246, &[(&[Int(0, 2)], &[ARGUMENT]), (&[], &[OK])]),
    (247, &[(&[Long(0, 0x5a5a)], &[PARAMETER])]),
    (248, &[(&[Range(0, 0)], &[OK])]),
    (249, &[(&[Long(0, 0x5a5a)], &[NOT_FOUND])]),
    (250, PASSES), (251, &[]), (252, PASSES),
    (253, NO_CARD), (254, NO_CARD), (255, NO_CARD),
    (256, &[(&[Stranger(0)], &[DEVICE, ARGUMENT])]),
    (257, &[(&[Own(0), Int(16, 99)], &[ARGUMENT]), (&[Stranger(0)], &[DEVICE])]),
    (258, NO_CARD), (259, &[]),
    (260, &[(&[Own(0), Stranger(16)], &[DEVICE]), (&[Own(0), Own(16)], &[DEVICE])]),
    (261, &[(&[Own(0), Stranger(16)], &[DEVICE]), (&[Own(0), Own(16)], &[DEVICE])]),
    (262, PASSES), (263, &[(&[Int(0, 2)], &[ARGUMENT])]),
    (264, &[]), (265, NO_CARD), (266, &[]),
    (267, &[(&[Long(8, 1)], &[ARGUMENT]), (&[Long(0, 8)], &[MISSING])]),
    (269, &[(&[], &[OK, NOTHING])]),
    (270, &[(&[Own(0)], &[OK]), (&[Stranger(0)], &[DEVICE])]),
    (271, &[(&[Own(0)], &[OK]), (&[Stranger(0)], &[DEVICE])]),
    (272, PASSES), (273, NO_CARD), (274, NO_CARD),
    (275, &[(&[Own(0)], &[OK]), (&[Stranger(0)], &[DEVICE])]),
    (276, NO_CARD), (277, &[]),
    (278, &[(&[Stranger(0)], &[DEVICE, UNSUPPORTED])]),
    (279, PASSES), (280, PASSES),
    (281, &[(&[], &[ARGUMENT]), (&[Int(0, 10)], &[OK])]),
    (282, &[(&[], &[ARGUMENT]), (&[Int(0, 10)], &[OK])]),
    (283, PASSES), (284, NO_CARD),
    (285, &[(&[Long(0, 1)], &[ADDRESS])]),
    (286, PASSES),
    (287, &[(&[Long(0, 10), Long(8, 1000), Int(16, 100), Int(20, 1)], &[OK])]),
    (288, PASSES), (289, PASSES), (290, PASSES), (291, PASSES),
    (293, &[(&[Long(0, 0x1000)], &[ADDRESS])]),
    (294, PASSES), (295, &[(&[], &[OK, STATE])]), (296, &[(&[], &[OK, UNSUPPORTED])]),
    (298, PASSES), (299, &[(&[], &[OK, STATE])]), (300, PASSES), (301, PASSES), (302, PASSES), (303, PASSES),
    (304, &[(&[Byte(0, 0xff)], &[ARGUMENT])]),
    (305, NO_CARD), (306, NO_CARD), (307, &[]), (308, &[(&[], &[ILLEGAL_ACTION])]),
    (309, NO_CARD), (310, UNMANAGED),
    (311, &[(&[Long(0, 1), Stranger(8)], &[ADDRESS, DEVICE])]),
    (312, NO_CARD), (313, &[]), (314, NO_CARD),
];
/// Tests that ask for no address space.
const ANY_FILE: &[u32] = &[290, 291, 296, 307, 308];
/// What a test of confidential computing says on a machine without it.
const LOG: &[&str] = &["nvidia-uvm", "Test check failed"];

pub(crate) fn cases() -> Vec<Case> {
    let mut all: Vec<Case> = TESTS.iter().filter_map(|(number, asks)| case(*number, asks)).collect();
    all.push(on_card("uvm-test.switched-off", "Without the module's parameter every test is ENOSYS", |device| {
        let on = answer_on_a_fresh_file(device, 201)?.is_ok();
        device.client.bench.require(!on, "uvm-builtin-tests-off", "the module was loaded with its tests")?;
        let major = major(device)?;
        for number in (200..400).filter(|number| uvm_test::form(*number, major).is_some()) {
            same(&format!("test {number}"), answer_on_a_fresh_file(device, number)?, Err(Errno::ENOSYS))?;
        }
        Ok(())
    }));
    all
}

fn tests_on(config: &mut Config) {
    config.uvm_builtin_tests = true;
}

fn tests_of_595(config: &mut Config) {
    tests_on(config);
    config.release = Release { major: 595, minor: 45, patch: 4 };
}

fn tests_of_550(config: &mut Config) {
    tests_on(config);
    config.release = Release { major: 550, minor: 163, patch: 1 };
}

fn tests_of_535(config: &mut Config) {
    tests_on(config);
    config.release = Release { major: 535, minor: 288, patch: 1 };
}

fn case(number: u32, asks: &'static [Ask]) -> Option<Case> {
    type Machine = fn(&mut Config);
    let machines: [(u32, Machine); 4] =
        [(580, tests_on), (595, tests_of_595), (550, tests_of_550), (535, tests_of_535)];
    let (desc, machine) =
        machines.into_iter().find_map(|(major, machine)| Some((uvm_test::form(number, major)?, machine)))?;
    let name = desc.name.trim_start_matches("UVM_TEST_").to_lowercase().replace('_', "-");
    let what =
        if std::ptr::eq(asks, PASSES) { "UVM's test passes" } else { "UVM's test answers what its arguments say" };
    let case = on_card(&format!("uvm-test.{name}"), what, move |device| run(device, number, asks));
    let case = case.on(Change::Nv(machine));
    Some(if matches!(number, 295 | 299) { case.provoking(LOG) } else { case })
}

/// The driver's first number.
fn major(device: &Device<'_>) -> Step<u32> {
    const QUERY: u32 = 0x32;
    let mut args = rm::CheckVersion { cmd: QUERY, ..Default::default() };
    want("CHECK_VERSION_STR", device.client.call(device.client.control, &rm::CHECK_VERSION_STR, &mut args))?;
    let text = String::from_utf8_lossy(&args.version_string).into_owned();
    let major = text.split('.').next().and_then(|major| major.parse().ok());
    major.ok_or_else(|| Problem::failed("the release does not begin with a number"))
}

/// What a test answers on a file that has no address space, and the status in its struct.
fn answer_on_a_fresh_file(device: &Device<'_>, number: u32) -> Step<Result<u32, Errno>> {
    let major = major(device)?;
    let Some(desc) = uvm_test::form(number, major) else { return Ok(Err(Errno::EINVAL)) };
    let file = device.client.open("/dev/nvidia-uvm")?;
    let answer = ask(device, file, desc, &[], 0);
    device.client.close_file(file)?;
    Ok(answer.map(|(status, _)| status))
}

/// One call: the status, and the struct as it came back.
fn ask(device: &Device<'_>, file: Fd, desc: &Desc, puts: &[Put], range: u64) -> Result<(u32, Vec<u8>), Errno> {
    let mut bytes = vec![0; desc.layout.len_bytes as usize];
    for put in puts {
        match *put {
            Byte(at, value) => bytes[at] = value,
            Int(at, value) => bytes[at..at + 4].copy_from_slice(&value.to_le_bytes()),
            Long(at, value) => bytes[at..at + 8].copy_from_slice(&value.to_le_bytes()),
            Range(at, offset) => bytes[at..at + 8].copy_from_slice(&(range + offset).to_le_bytes()),
            Own(at) => bytes[at..at + 16].copy_from_slice(&device.uuid),
            Stranger(at) => bytes[at..at + 16].fill(0x5a),
        }
    }
    let status = desc.layout.field("rm_status").map_or(0..0, |field| field.span());
    bytes[status.clone()].copy_from_slice(&UNTOUCHED.to_le_bytes());
    device.client.raw(file, desc.request, &mut bytes)?;
    let code = bytes[status].first_chunk().map_or(UNTOUCHED, |code| u32::from_le_bytes(*code));
    Ok((code, bytes))
}

fn run(device: &Device<'_>, number: u32, asks: &[Ask]) -> Step {
    let bench = device.client.bench;
    let desc = uvm_test::form(number, major(device)?);
    bench.require(desc.is_some(), "release", "this release of the driver has no such test")?;
    let Some(desc) = desc else { return Ok(()) };
    if !ANY_FILE.contains(&number) {
        match answer_on_a_fresh_file(device, number)? {
            Err(Errno::ENOSYS) => return skip(device),
            answer => same("without an address space", answer, Ok(ILLEGAL_ACTION))?,
        }
    }
    let range = device.take_va(HUGE);
    want("UVM_CREATE_EXTERNAL_RANGE", device.create_range(range, HUGE))?;
    for (puts, statuses) in asks {
        match ask(device, device.uvm, desc, puts, range) {
            Err(Errno::ENOSYS) => return skip(device),
            Err(errno) => return Err(errno.into()),
            Ok((code, _)) => {
                let right = statuses.contains(&code);
                let what = || format!("{}: {}, want one of {statuses:x?}", desc.name, Status(code));
                right.then_some(()).ok_or_else(|| Problem::Failed(what()))?;
            }
        }
    }
    answers(device, number, desc, range)
}

fn skip(device: &Device<'_>) -> Step {
    let why = "the module was not loaded with uvm_enable_builtin_tests=1";
    device.client.bench.require(false, "uvm-builtin-tests", why)
}

/// What a test answers beside its status.
fn answers(device: &Device<'_>, number: u32, desc: &Desc, range: u64) -> Step {
    let get = |puts: &[Put]| -> Step<Vec<u8>> {
        let (code, bytes) = ask(device, device.uvm, desc, puts, range)?;
        same("status", code, OK)?;
        Ok(bytes)
    };
    let int = |bytes: &[u8], at: usize| bytes[at..at + 4].first_chunk().map_or(0, |b| u32::from_le_bytes(*b));
    let long = |bytes: &[u8], at: usize| bytes[at..at + 8].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    match number {
        // Where a count is depends on the release; it is before the status.
        200 => {
            let at = desc.layout.len_bytes as usize - 16;
            holds("the card is registered", long(&get(&[Own(0)])?, at) > 0)?;
            same("no card is", long(&get(&[Stranger(0)])?, at), 0)
        }
        204 => {
            let info = get(&[Range(0, 0x1000)])?;
            same("its ends", (long(&info, 8), long(&info, 16)), (range, range + HUGE - 1))
        }
        221 => holds("sizes of chunks", long(&get(&[Own(0)])?, 24) & HUGE != 0),
        248 => {
            let info = get(&[Range(0, 0)])?;
            same("no group is around it", (long(&info, 8), long(&info, 16)), (0, u64::MAX))
        }
        251 => {
            let lapse = uvm_test::form(250, major(device)?).ok_or_else(|| Problem::failed("test 250"))?;
            let now = || ask(device, device.uvm, lapse, &[], range);
            let before = match now() {
                Err(Errno::ENOSYS) => return skip(device),
                Err(errno) => return Err(errno.into()),
                Ok((_, bytes)) => int(&bytes, 0),
            };
            get(&[Int(0, before + 1)])?;
            let changed = int(&now()?.1, 0);
            get(&[Int(0, before)])?;
            same("what was set", (changed, int(&now()?.1, 0)), (before + 1, before))
        }
        252 => holds("an address of the kernel", long(&get(&[])?, 0) >> 63 == 1),
        259 | 313 => refused(device, desc, range),
        270 => {
            let first = long(&get(&[Own(0)])?, 16);
            holds("the card's clock runs", long(&get(&[Own(0)])?, 16) > first && first > 0)
        }
        275 => holds("whole huge pages", long(&get(&[Own(0)])?, 16).is_multiple_of(HUGE)),
        283 => holds("a type of access", (1..=4).contains(&int(&get(&[])?, 0))),
        290 => holds("a process's addresses", long(&get(&[])?, 0) >> 40 > 0),
        291 => holds("pages are among them", int(&get(&[])?, 0) & 4096 != 0),
        307 => {
            let file = device.client.open("/dev/nvidia-uvm")?;
            match ask(device, file, desc, &[], 0) {
                Err(Errno::ENOSYS) => skip(device),
                Err(errno) => Err(errno.into()),
                Ok((code, _)) => {
                    same("on a fresh file", code, OK)?;
                    let (again, _) = ask(device, device.uvm, desc, &[], 0)?;
                    holds("not on a file with an address space", again != OK)
                }
            }
        }
        _ => Ok(()),
    }
}

/// Handles and files that are none are refused, one way or another.
fn refused(device: &Device<'_>, desc: &Desc, range: u64) -> Step {
    match ask(device, device.uvm, desc, &[Own(0)], range) {
        Err(Errno::ENOSYS) => skip(device),
        Err(errno) => Err(errno.into()),
        Ok((code, _)) => holds("it is refused", code != OK && code != UNTOUCHED),
    }
}
