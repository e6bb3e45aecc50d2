//! The unsafe part of the CPU device: loads machine code into W^X pages, calls it, and dereferences addresses in
//! packets.
//!
//! Layer: below the rest of `device::cpu`; above `elf` (images) and `ioctl::port` (pages).
//! Source: System V x86-64 ABI, AAPCS64; `extern "C" fn kernel(args: *const u64, tid: u64)`.
//! A fault inside generated code (an invalid store, an illegal instruction) cannot be caught: it ends the process, as
//! in any JIT.
//! [`Bus`] is safe to call because its addresses come only from this device's own packets: `device::cpu::queue` writes
//! them from handles (signals, memories, kernels) that it keeps alive until the submission's timeline value is reached.

use crate::{Code, DeviceError, DeviceTag, Kernel, KernelImage};
use doorbell_elf::{Image, Machine, Object, Perm, link_in_pages, link_object};
use doorbell_ioctl::port::{CodeMapping, CodeWriter, CpuPtr, DeviceView, Protection, page_bytes};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Entry = extern "C" fn(*const u64, u64);

/// Dereferences the addresses in packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bus;

impl Bus {
    /// Runs chunk `tid` of the kernel at `entry`.
    #[inline]
    pub(super) fn call(self, entry: u64, args: u64, tid: u64) {
        // SAFETY: `entry` is the entry of a kernel that `load` has loaded and that the queue keeps alive while its
        // packet runs. The caller of `Device::load` guarantees that the bytes are code with this signature.
        let kernel = unsafe { std::mem::transmute::<*const (), Entry>(CpuPtr(entry).as_ptr::<()>().cast_const()) };
        synchronize_fetch();
        kernel(CpuPtr(args).as_ptr::<u64>().cast_const(), tid);
    }

    /// Reads the kernarg word at `addr`.
    #[inline]
    pub(super) fn word(self, addr: u64) -> u64 {
        // SAFETY: the address is an aligned word of a kernargs block, which stays mapped and unchanged until its
        // submission is done.
        unsafe { CpuPtr(addr).as_ptr::<u64>().read() }
    }

    /// The atomic word at `addr`: a signal's value, or its timestamp, 8 bytes further.
    #[inline]
    pub(super) fn atomic(self, addr: u64) -> &'static AtomicU64 {
        // SAFETY: the address is a word of a signal that the queue keeps alive while the packet that refers to it runs;
        // the reference does not outlive the packet's execution; signal words are only accessed atomically.
        unsafe { AtomicU64::from_ptr(CpuPtr(addr).as_ptr::<u64>()) }
    }

    /// The dwords of a recorded list.
    #[inline]
    pub(super) fn words<'a>(self, addr: u64, count_dwords: u32) -> &'a [u32] {
        // SAFETY: the address and count are those of a recorded list, which never changes and which the queue keeps
        // alive while the packet that refers to it runs; the slice does not outlive the packet's execution.
        unsafe { std::slice::from_raw_parts(CpuPtr(addr).as_ptr::<u32>().cast_const(), count_dwords as usize) }
    }

    /// Copies bytes between memories.
    #[inline]
    pub(super) fn copy(self, dst: u64, src: u64, len_bytes: u64) {
        // SAFETY: both ranges were checked against memories that stay mapped until the submission is done (their blocks
        // are not unmapped while a use is pending). `copy` allows the overlap that the contract forbids.
        unsafe { std::ptr::copy(CpuPtr(src).as_ptr::<u8>(), CpuPtr(dst).as_ptr::<u8>(), len_bytes as usize) };
    }

    /// A fence: all stores before are visible to all loads after.
    #[inline]
    pub(super) fn barrier(self) {
        // ORDER: the BARRIER packet is exactly this.
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// Makes written code visible to the fetching of instructions. Only AArch64 needs that: its instruction caches do not
/// follow its data caches. Source: Arm Architecture Reference Manual (DDI 0487), B2.7.4.
fn flush_instruction_cache(bytes: &[u8]) {
    #[cfg(target_arch = "aarch64")]
    {
        use std::arch::asm;
        let range = bytes.as_ptr_range();
        let (start, end) = (range.start as u64, range.end as u64);
        let lines = |log: u64| {
            let line = 4u64 << log;
            (start & !(line - 1)..end).step_by(line as usize)
        };
        let cache_type: u64;
        // SAFETY: reads the register that says how long the lines of the caches are; every process may.
        unsafe { asm!("mrs {}, ctr_el0", out(reg) cache_type, options(nomem, nostack, preserves_flags)) };
        for line in lines(cache_type >> 16 & 15) {
            // SAFETY: cleans a line of the data cache that holds bytes of the slice; the bytes do not change.
            unsafe { asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags)) };
        }
        // SAFETY: waits until the lines are clean.
        unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
        for line in lines(cache_type & 15) {
            // SAFETY: drops a line of the instruction cache at the slice's address.
            unsafe { asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags)) };
        }
        // SAFETY: waits until the lines are gone.
        unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
    }
    #[cfg(not(target_arch = "aarch64"))]
    let _ = bytes;
}

/// What a thread does before it runs code that another one may have written: on AArch64 the instructions that it has
/// fetched ahead are dropped.
#[inline]
fn synchronize_fetch() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction changes no register and no memory.
    unsafe {
        std::arch::asm!("isb", options(nostack, preserves_flags));
    }
}

/// One image with its offset in the batch.
struct BatchImage<'a> {
    name: &'a str,
    offset: u64,
    form: Form<'a>,
}

enum Form<'a> {
    Elf { image: Box<Image>, entry: u64 },
    Raw(&'a [u8]),
}

impl Form<'_> {
    fn len_bytes(&self) -> u64 {
        match self {
            Self::Elf { image, .. } => image.size() as u64,
            Self::Raw(bytes) => bytes.len() as u64,
        }
    }

    /// Whether it contains absolute 32-bit addresses (built without -fPIC).
    fn needs_low_2gib(&self) -> bool {
        matches!(self, Self::Elf { image, .. } if image.needs_low_2gib())
    }

    fn entry(&self) -> u64 {
        if let Self::Elf { entry, .. } = self { *entry } else { 0 }
    }

    fn protections(&self) -> Vec<(Range<u64>, Protection)> {
        match self {
            Self::Raw(bytes) => vec![(0..bytes.len() as u64, Protection::ReadExec)],
            Self::Elf { image, .. } => image
                .segments()
                .iter()
                .map(|s| {
                    let protection = match s.perm {
                        Perm::Rx => Protection::ReadExec,
                        Perm::R => Protection::Read,
                        Perm::Rw => Protection::ReadWrite,
                    };
                    (s.range.start as u64..s.range.end as u64, protection)
                })
                .collect(),
        }
    }
}

/// External functions that code may call: the four that a freestanding C compiler relies on.
fn resolve(symbol: &str) -> Option<u64> {
    let address = match symbol {
        "memcpy" => libc::memcpy as *const () as usize,
        "memmove" => libc::memmove as *const () as usize,
        "memset" => libc::memset as *const () as usize,
        "memcmp" => libc::memcmp as *const () as usize,
        _ => return None,
    };
    Some(address as u64)
}

/// Loads a batch into one mapping: writes all images, then sets the final protection of all pages at once.
pub(super) fn load(device: &DeviceTag, images: &[KernelImage<'_>]) -> Result<Vec<Kernel>, DeviceError> {
    if images.is_empty() {
        return Ok(Vec::new());
    }
    let mut end = 0;
    let mut batch = Vec::with_capacity(images.len());
    for image in images {
        let form = parse(device, image)?;
        let offset = end;
        end += form.len_bytes().next_multiple_of(page_bytes());
        batch.push(BatchImage { name: image.name, offset, form });
    }
    let mapping = Arc::new(fill(device, &batch, end)?);
    let base = mapping.base();
    let kernel = |p: &BatchImage<'_>| {
        let program: Arc<CodeMapping> = Arc::clone(&mapping);
        Kernel::new(device.clone(), p.name, base.offset(p.offset + p.form.entry()).0, program)
    };
    Ok(batch.iter().map(kernel).collect())
}

fn refusal(device: &DeviceTag, kernel: &str, why: impl ToString) -> DeviceError {
    DeviceError::Load { device: device.name().into(), kernel: kernel.into(), why: why.to_string() }
}

fn parse<'a>(device: &DeviceTag, image: &KernelImage<'a>) -> Result<Form<'a>, DeviceError> {
    let refuse = |why: String| Err(refusal(device, image.name, why));
    match image.code {
        Code::Raw([]) => refuse("no code".into()),
        Code::Raw(bytes) => Ok(Form::Raw(bytes)),
        Code::Elf { entry, .. } | Code::Cubin { entry, .. } | Code::Object { entry, .. } => {
            if let Code::Object { object, .. } = image.code
                && object.machine != Machine::HOST
            {
                return refuse("its code is not for this machine".into());
            }
            let linked = match image.code {
                Code::Object { object, .. } => link_object(object, page_bytes()),
                Code::Elf { bytes, .. } | Code::Cubin { bytes, .. } | Code::Raw(bytes) => {
                    link_in_pages(bytes, page_bytes())
                }
            };
            let linked = linked.map_err(|e| refusal(device, image.name, e))?;
            let Some(at) = linked.entry(entry) else { return refuse(format!("it has no global function {entry}")) };
            Ok(Form::Elf { image: Box::new(linked), entry: at as u64 })
        }
    }
}

fn fill(device: &DeviceTag, batch: &[BatchImage<'_>], len_bytes: u64) -> Result<CodeMapping, DeviceError> {
    let fail = |name: &str, why: String| refusal(device, name, why);
    let first = batch.first().map_or("", |p| p.name);
    let mut writer = match batch.iter().find(|p| p.form.needs_low_2gib()) {
        None => CodeWriter::new(len_bytes).map_err(|e| fail(first, e.to_string()))?,
        Some(p) => CodeWriter::low(len_bytes)
            .map_err(|e| fail(p.name, format!("it contains absolute 32-bit addresses (built without -fPIC): {e}")))?,
    };
    let base = writer.base();
    let mut ranges = Vec::new();
    for p in batch {
        let start = p.offset as usize;
        // PANIC: the writer was made for the sum of these lengths.
        let out = &mut writer.bytes_mut()[start..start + p.form.len_bytes() as usize];
        match &p.form {
            Form::Raw(bytes) => out.copy_from_slice(bytes),
            Form::Elf { image, .. } => {
                image.relocate_into(out, base.offset(p.offset).0, &resolve).map_err(|e| fail(p.name, e.to_string()))?;
            }
        }
        ranges.extend(p.form.protections().into_iter().map(|(r, how)| (r.start + p.offset..r.end + p.offset, how)));
    }
    flush_instruction_cache(writer.bytes_mut());
    writer.seal(&ranges).map_err(|e| fail(first, e.to_string()))
}

/// Code that is called in place, without a queue: a program over buffers of words and ranges of device memory.
pub struct InPlace {
    kernel: Kernel,
    /// The least length of each buffer.
    words: Box<[usize]>,
    views: usize,
}

/// Most parameters of a program that is called in place.
const PARAMETERS: usize = 32;

impl InPlace {
    /// Loads an object's global function, which takes the addresses of buffers of at least so many words, followed by
    /// those of so many ranges. As with [`load`](crate::Device::load), the code's maker guarantees that it takes such
    /// parameters alone, and stays within them.
    ///
    /// # Errors
    /// `Load`: code of another machine, no such function, no memory for it, more than 32 parameters.
    pub fn load(object: &Object, entry: &str, words: &[usize], views: usize) -> Result<InPlace, DeviceError> {
        let tag = DeviceTag::new("CPU");
        if words.len() + views > PARAMETERS {
            let why = format!("{} parameters, of which at most {PARAMETERS} are passed", words.len() + views);
            return Err(refusal(&tag, entry, &why));
        }
        let image = KernelImage { name: entry, code: Code::Object { object, entry } };
        let kernel = load(&tag, &[image])?.pop().ok_or_else(|| refusal(&tag, entry, "no code"))?;
        Ok(InPlace { kernel, words: words.into(), views })
    }

    /// Runs it.
    ///
    /// # Panics
    /// Other buffers or ranges than it was loaded for: another number of them, or a buffer that is too short.
    pub fn run(&self, buffers: &mut [&mut [u32]], views: &[Option<DeviceView>]) {
        let enough = (buffers.len(), views.len()) == (self.words.len(), self.views);
        let long_enough = |(buffer, words): (&&mut [u32], &usize)| buffer.len() >= *words;
        // PANIC: stated above; the code would leave them.
        assert!(enough && buffers.iter().zip(&self.words).all(long_enough), "a block without its buffers");
        let mut arguments = [0; PARAMETERS];
        let buffers = buffers.iter_mut().map(|b| b.as_mut_ptr().expose_provenance() as u64);
        let addresses = buffers.chain(views.iter().map(|v| v.as_ref().map_or(0, |v| v.base().0)));
        arguments.iter_mut().zip(addresses).for_each(|(argument, address)| *argument = address);
        Bus.call(self.kernel.entry(), arguments.as_ptr().expose_provenance() as u64, 0);
    }
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;
    use doorbell_elf::Machine;

    /// `mov rax, [rdi]; mov [rax], rsi; ret`: stores tid to the first argument.
    #[cfg(target_arch = "x86_64")]
    const STORE_TID: &[u8] = &[0x48, 0x8b, 0x07, 0x48, 0x89, 0x30, 0xc3];
    /// `ldr x2, [x0]; str x1, [x2]; ret`: the same.
    #[cfg(target_arch = "aarch64")]
    const STORE_TID: &[u8] = &[0x02, 0x00, 0x40, 0xf9, 0x41, 0x00, 0x00, 0xf9, 0xc0, 0x03, 0x5f, 0xd6];

    #[test]
    fn batch_of_raw_kernels_runs_where_it_was_placed() {
        let tag = DeviceTag::new("CPU");
        let image = KernelImage { name: "store", code: Code::Raw(STORE_TID) };
        let kernels = load(&tag, &[image, image]).unwrap();
        assert_eq!(kernels[1].entry() - kernels[0].entry(), page_bytes());
        for kernel in &kernels {
            let mut out = 0u64;
            let args = [std::ptr::from_mut(&mut out) as u64];
            Bus.call(kernel.entry(), args.as_ptr() as u64, 42);
            assert_eq!(out, 42);
        }
    }

    #[test]
    fn bad_images_are_refused_by_name() {
        let tag = DeviceTag::new("CPU");
        let load_one = |code| load(&tag, &[KernelImage { name: "k", code }]).unwrap_err().to_string();
        assert_eq!(load_one(Code::Raw(&[])), "kernel k cannot be loaded on device CPU: no code");
        assert!(
            load_one(Code::Elf { bytes: b"no elf", entry: "k" })
                .starts_with("kernel k cannot be loaded on device CPU: ")
        );
    }

    fn in_place(words: &[usize], views: usize) -> Result<InPlace, DeviceError> {
        let mut object = Object { text: STORE_TID.to_vec(), ..Object::new(Machine::HOST) };
        object.define_function("store", 0, STORE_TID.len() as u64);
        InPlace::load(&object, "store", words, views)
    }

    #[test]
    fn code_in_place_stores_to_its_buffer_and_has_a_limit_of_parameters() {
        let mut words = [7; 2];
        in_place(&[2], 0).unwrap().run(&mut [&mut words], &[]);
        assert_eq!(words, [0; 2]);
        let refused = in_place(&[1; 32], 1).err().unwrap().to_string();
        let why = "33 parameters, of which at most 32 are passed";
        assert_eq!(refused, format!("kernel store cannot be loaded on device CPU: {why}"));
    }

    #[test]
    #[should_panic(expected = "a block without its buffers")]
    fn code_in_place_does_not_run_on_a_buffer_that_is_too_short() {
        in_place(&[2], 0).unwrap().run(&mut [&mut [7]], &[]);
    }
}
