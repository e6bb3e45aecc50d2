//! Binary archives: files of compiled pipelines, which are known by their functions.
//!
//! What a file holds is the stand-in's own: a head, the GPU's family, the functions' hashes, and a checksum. A real
//! archive holds code. Left out: archives of functions that draw.

use crate::compile::key_of_descriptor;
use crate::device::Device;
use crate::encode::{Bool, Sel};
use crate::foundation::{Own, Url, give_error};
use crate::machine::Machine;
use crate::object::{self, Body, Class, Id};
use crate::send::Methods;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const DOMAIN: &str = "MTLBinaryArchiveDomain";
const INVALID_FILE: i64 = 1;
const COMPILATION_FAILURE: i64 = 3;
const MAGIC: &[u8; 8] = b"SOFTARC1";

/// From which file an archive is made.
#[derive(Default)]
struct Descriptor(Mutex<Option<Own>>);

impl Body for Descriptor {
    const CLASS: Class = Class::MTLBinaryArchiveDescriptor;
}

/// An archive.
pub(crate) struct Archive(Mutex<BTreeSet<u64>>);

impl Body for Archive {
    const CLASS: Class = Class::MTLBinaryArchive;
}

impl Archive {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has(&self, key: u64) -> bool {
        self.lock().contains(&key)
    }
}

/// FNV-1a (Fowler, Noll and Vo).
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

fn bytes_of(family: u32, keys: &BTreeSet<u64>) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(family.to_le_bytes());
    keys.iter().for_each(|key| bytes.extend(key.to_le_bytes()));
    let sum = checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// The functions of a file, or why it is no archive of this GPU.
fn keys_of(family: u32, bytes: &[u8]) -> Result<BTreeSet<u64>, &'static str> {
    let (body, sum) = bytes.split_last_chunk::<8>().ok_or("it is cut off")?;
    let body = body.strip_prefix(MAGIC.as_slice()).ok_or("it is no binary archive")?;
    if checksum(&bytes[..bytes.len() - 8]) != u64::from_le_bytes(*sum) {
        return Err("its checksum is wrong");
    }
    let (of, keys) = body.split_first_chunk::<4>().ok_or("it is cut off")?;
    if u32::from_le_bytes(*of) != family {
        return Err("it is of another GPU");
    }
    let (keys, rest) = keys.as_chunks::<8>();
    if rest.is_empty() { Ok(keys.iter().map(|key| u64::from_le_bytes(*key)).collect()) } else { Err("it is cut off") }
}

pub(crate) fn methods(all: &mut Methods) {
    let descriptor = Class::MTLBinaryArchiveDescriptor;
    all.on_class(descriptor, "new", new_descriptor as extern "C" fn(_, _) -> _);
    all.on(descriptor, "setUrl:", set_url as extern "C" fn(_, _, _));
    let make = new_archive as extern "C" fn(_, _, _, _) -> _;
    all.on(Class::MTLDevice, "newBinaryArchiveWithDescriptor:error:", make);
    let archive = Class::MTLBinaryArchive;
    let add = add as extern "C" fn(_, _, _, _) -> _;
    all.on(archive, "addComputePipelineFunctionsWithDescriptor:error:", add);
    all.on(archive, "serializeToURL:error:", serialize as extern "C" fn(_, _, _, _) -> _);
}

extern "C" fn new_descriptor(_: Id, _: Sel) -> Id {
    object::create(&Machine::of_thread(), Descriptor::default())
}

extern "C" fn set_url(this: Id, _: Sel, url: Id) {
    let Some(descriptor) = object::get::<Descriptor>(this) else { return };
    let mut held = descriptor.0.lock().unwrap_or_else(PoisonError::into_inner);
    if url.is_nil() {
        *held = None;
    } else if object::argument::<Url>(descriptor.machine(), "setUrl:", url).is_some() {
        *held = Some(Own::retain(url));
    }
}

extern "C" fn new_archive(this: Id, _: Sel, descriptor: Id, error: *mut Id) -> Id {
    let Some(device) = object::get::<Device>(this) else { return Id::NIL };
    let machine: &Arc<Machine> = device.machine();
    let what = "newBinaryArchiveWithDescriptor:";
    let Some(descriptor) = object::argument::<Descriptor>(machine, what, descriptor) else { return Id::NIL };
    let from = descriptor.0.lock().unwrap_or_else(PoisonError::into_inner);
    let read = |url: &Own| {
        let url = object::get::<Url>(url.0).ok_or("its URL is dead".to_owned())?;
        let bytes = std::fs::read(url.path()).map_err(|e| e.to_string())?;
        keys_of(machine.config.family, &bytes).map_err(str::to_owned)
    };
    match from.as_ref().map_or(Ok(BTreeSet::new()), read) {
        Ok(keys) => object::create(machine, Archive(Mutex::new(keys))),
        Err(why) => {
            give_error(error, machine, DOMAIN, INVALID_FILE, format!("Invalid binary archive: {why}"));
            Id::NIL
        }
    }
}

extern "C" fn add(this: Id, _: Sel, descriptor: Id, error: *mut Id) -> Bool {
    let Some(archive) = object::get::<Archive>(this) else { return Bool(0) };
    let key = key_of_descriptor(descriptor);
    if key == 0 {
        give_error(error, archive.machine(), DOMAIN, COMPILATION_FAILURE, "the descriptor has no function".into());
        return Bool(0);
    }
    archive.lock().insert(key);
    Bool(1)
}

extern "C" fn serialize(this: Id, _: Sel, url: Id, error: *mut Id) -> Bool {
    let Some(archive) = object::get::<Archive>(this) else { return Bool(0) };
    let machine = archive.machine();
    let Some(url) = object::argument::<Url>(machine, "serializeToURL:", url) else { return Bool(0) };
    let bytes = bytes_of(machine.config.family, &archive.lock());
    let written = std::fs::write(url.path(), bytes);
    if let Err(why) = &written {
        give_error(error, machine, DOMAIN, INVALID_FILE, why.to_string());
    }
    Bool(written.is_ok().into())
}
