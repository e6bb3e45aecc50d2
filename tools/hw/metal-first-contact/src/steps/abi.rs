//! The types of all messages that the device sends, against those of the methods that will answer.

use crate::objc::{Raw, send};
use crate::seen::Seen;
use crate::work::{Below, Bench};
use doorbell::device::metal::messages::{ROWS, Row};
use doorbell_ioctl::port::objc::Id;
use hw_contact::Failure;
use std::collections::BTreeSet;

/// Names of the functions that compile, and one that does not.
const GOOD: &str = "kernel void k(device float* x [[buffer(0)]]) { x[0] = 1; }";
const BAD: &str = "kernel void k(";
/// `MTLIndirectCommandTypeConcurrentDispatch`.
const CONCURRENT_DISPATCH: u64 = 32;
/// The only selectors that an older system may lack: the device asks before it sends them.
const MAY_LACK: &[&str] = &["setMathMode:"];

/// The comparison of all rows of a class with an object of it.
struct Rows<'s> {
    bench: &'s Bench,
    seen: &'s mut Seen,
    done: BTreeSet<&'static str>,
    same: usize,
}

impl Rows<'_> {
    /// Compares the rows of `class` with the methods of an object, before any of them is sent to it.
    fn of(&mut self, raw: Raw, class: &str, object: Id) -> Result<Id, Failure> {
        if object.is_nil() {
            return Err(format!("there is no object of {class} to ask").into());
        }
        for row in ROWS.iter().filter(|row| row.class == class) {
            self.done.insert(row.class);
            let receiver = if row.of_class { raw.class(class) } else { object };
            let found = found(self.bench, raw, receiver, row);
            let sign = if row.of_class { '+' } else { '-' };
            let what = format!("{sign}[{class} {}]", row.selector);
            let pretends = self.bench.pretends("abi") && row.selector == "length";
            let expected = if pretends { "v@:".into() } else { row.encoding() };
            match found {
                Some(found) if found == expected => self.same += 1,
                Some(found) => self.seen.is(&what, found, expected),
                None if MAY_LACK.contains(&row.selector) => self.seen.note(format!("{what}: not on this system")),
                None => self.seen.holds(false, &format!("{what}: no such method"), &format!("expected {expected}")),
            }
        }
        Ok(object)
    }
}

/// The types without offsets.
#[cfg(any(target_os = "macos", test))]
fn without_offsets(encoding: &str) -> String {
    encoding.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// What the system, or the software Metal, has for a row.
fn found(bench: &Bench, raw: Raw, receiver: Id, row: &Row) -> Option<String> {
    if bench.is_software() {
        let is_same = |theirs: &doorbell::emu::metal::Row| {
            let class = row.class == "NSObject" || theirs.class == row.class;
            class && (theirs.of_class, theirs.selector) == (row.of_class, row.selector)
        };
        return doorbell::emu::metal::rows().into_iter().find(is_same).map(|theirs| theirs.encoding);
    }
    #[cfg(target_os = "macos")]
    return crate::objc::encoding_of(receiver, raw.selector(row.selector)).map(|types| without_offsets(&types));
    #[cfg(not(target_os = "macos"))]
    {
        let _there_is_no_other_metal = (raw, receiver);
        None
    }
}

pub fn types(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    let below = Below::open(bench)?;
    let mut rows = Rows { bench, seen, done: BTreeSet::new(), same: 0 };
    below.raw.pool(|| objects(&below, &mut rows))?;
    let all: BTreeSet<&str> = ROWS.iter().map(|row| row.class).collect();
    let missed: Vec<&str> = all.difference(&rows.done).copied().collect();
    let same = rows.same;
    seen.holds(
        missed.is_empty(),
        &format!("{same} of {} rows are the same", ROWS.len()),
        &format!("not asked: {missed:?}"),
    );
    Ok(())
}

/// An object of each class, compared before it is used to make the next.
fn objects(below: &Below, rows: &mut Rows) -> Result<(), Failure> {
    let (raw, gpu) = (below.raw, below.device);
    let text = rows.of(raw, "NSString", raw.string(GOOD))?;
    rows.of(raw, "NSObject", text)?;
    rows.of(raw, "MTLDevice", gpu)?;
    let options = send!(raw, raw.class("MTLCompileOptions"), "new"; Id);
    rows.of(raw, "MTLCompileOptions", options)?;
    let mut error = Id::NIL;
    let bad = raw.string(BAD);
    let name = "newLibraryWithSource:options:error:";
    let _nil = send!(raw, gpu, "newLibraryWithSource:options:error:",
        bad => Id, options => Id, &raw mut error => *mut Id; Id);
    rows.of(raw, "NSError", error).map_err(|f| Failure::from(format!("{name} of a wrong source: {}", f.what)))?;
    let library = send!(raw, gpu, "newLibraryWithSource:options:error:",
        text => Id, options => Id, &raw mut error => *mut Id; Id);
    rows.of(raw, "MTLLibrary", library)?;
    rows.of(raw, "NSArray", send!(raw, library, "functionNames"; Id))?;
    let function = send!(raw, library, "newFunctionWithName:", raw.string("k") => Id; Id);
    rows.of(raw, "MTLFunction", function)?;
    let pipeline = send!(raw, gpu, "newComputePipelineStateWithFunction:error:",
        function => Id, &raw mut error => *mut Id; Id);
    rows.of(raw, "MTLComputePipelineState", pipeline)?;
    let queue = send!(raw, gpu, "newCommandQueueWithMaxCommandBufferCount:", 16 => u64; Id);
    rows.of(raw, "MTLCommandQueue", queue)?;
    let memory = send!(raw, gpu, "newBufferWithLength:options:", 64 => u64, 0 => u64; Id);
    rows.of(raw, "MTLBuffer", memory)?;
    let event = send!(raw, gpu, "newSharedEvent"; Id);
    rows.of(raw, "MTLSharedEvent", event)?;
    let buffer = rows.of(raw, "MTLCommandBuffer", send!(raw, queue, "commandBuffer"; Id))?;
    let encoder = rows.of(raw, "MTLComputeCommandEncoder", send!(raw, buffer, "computeCommandEncoder"; Id))?;
    send!(raw, encoder, "endEncoding"; ());
    let encoder = rows.of(raw, "MTLBlitCommandEncoder", send!(raw, buffer, "blitCommandEncoder"; Id))?;
    send!(raw, encoder, "endEncoding"; ());
    raw.release(&[options, library, function, pipeline, queue, memory, event]);
    others(below, rows)
}

/// Classes that no other object gives: descriptors by `new`, what is made of them, and classes with methods of their
/// own.
fn others(below: &Below, rows: &mut Rows) -> Result<(), Failure> {
    let (raw, gpu) = (below.raw, below.device);
    for class in ["MTLComputePipelineDescriptor", "MTLBinaryArchiveDescriptor", "MTLIndirectCommandBufferDescriptor"] {
        if !ROWS.iter().any(|row| row.class == class) {
            continue;
        }
        let descriptor = rows.of(raw, class, send!(raw, raw.class(class), "new"; Id))?;
        if class == "MTLBinaryArchiveDescriptor" {
            let mut error = Id::NIL;
            let archive = send!(raw, gpu, "newBinaryArchiveWithDescriptor:error:",
                descriptor => Id, &raw mut error => *mut Id; Id);
            rows.of(raw, "MTLBinaryArchive", archive)?;
            raw.release(&[archive]);
        }
        if class == "MTLIndirectCommandBufferDescriptor" {
            send!(raw, descriptor, "setCommandTypes:", CONCURRENT_DISPATCH => u64; ());
            send!(raw, descriptor, "setMaxKernelBufferBindCount:", 31 => u64; ());
            let commands = send!(raw, gpu, "newIndirectCommandBufferWithDescriptor:maxCommandCount:options:",
                descriptor => Id, 1 => u64, 0 => u64; Id);
            rows.of(raw, "MTLIndirectCommandBuffer", commands)?;
            let command = send!(raw, commands, "indirectComputeCommandAtIndex:", 0 => u64; Id);
            rows.of(raw, "MTLIndirectComputeCommand", command)?;
            raw.release(&[commands]);
        }
        raw.release(&[descriptor]);
    }
    let left: Vec<&str> = ROWS.iter().map(|row| row.class).filter(|class| !rows.done.contains(class)).collect();
    for class in left {
        // Only methods of the class itself can be asked for without an object.
        if ROWS.iter().all(|row| row.class != class || row.of_class) {
            rows.of(raw, class, raw.class(class))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_no_part_of_a_type() {
        assert_eq!(without_offsets("v64@0:8{?=QQQ}16{?=QQQ}40"), "v@:{?=QQQ}{?=QQQ}");
        assert_eq!(without_offsets("B32@0:8Q16Q24"), "B@:QQ");
    }
}
