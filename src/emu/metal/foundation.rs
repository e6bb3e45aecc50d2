//! Strings, errors and lists.

use crate::device;
use crate::encode::Sel;
use crate::machine::{FaultKind, Machine};
use crate::object::{self, Body, Class, Id};
use crate::send::Methods;
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A reference of an object to another one.
#[derive(Debug)]
pub(crate) struct Own(pub Id);

impl Own {
    /// Adds a reference.
    pub(crate) fn retain(id: Id) -> Own {
        Own(object::retain(id))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        object::release(self.0);
    }
}

/// A string.
pub(crate) struct Text(CString);

impl Body for Text {
    const CLASS: Class = Class::NSString;
}

impl Text {
    pub(crate) fn get(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }
}

/// A new string with one reference.
pub(crate) fn string(machine: &Arc<Machine>, text: &str) -> Id {
    let bytes = text.bytes().filter(|b| *b != 0).collect::<Vec<u8>>();
    object::create(machine, Text(CString::new(bytes).unwrap_or_default()))
}

/// An error.
pub(crate) struct Error {
    domain: String,
    code: i64,
    text: String,
}

impl Body for Error {
    const CLASS: Class = Class::NSError;
}

/// A new error with one reference.
pub(crate) fn error(machine: &Arc<Machine>, domain: &str, code: i64, text: String) -> Id {
    object::create(machine, Error { domain: domain.into(), code, text })
}

/// Stores an error where a caller wants it, left to the thread's pool.
pub(crate) fn give_error(slot: *mut Id, machine: &Arc<Machine>, domain: &str, code: i64, text: String) {
    if slot.is_null() {
        return;
    }
    let error = object::autorelease(error(machine, domain, code, text));
    // SAFETY: a caller of a message with an error argument passes nil or a place for an object's pointer.
    unsafe { *slot = error };
}

/// A list of objects.
pub(crate) struct Array(Vec<Own>);

impl Body for Array {
    const CLASS: Class = Class::NSArray;
}

/// A new list with one reference, which takes over those of its items.
pub(crate) fn array(machine: &Arc<Machine>, items: Vec<Own>) -> Id {
    object::create(machine, Array(items))
}

impl Array {
    /// Its items.
    pub(crate) fn ids(&self) -> Vec<Id> {
        self.0.iter().map(|own| own.0).collect()
    }
}

/// The place of a file.
pub(crate) struct Url(PathBuf);

impl Body for Url {
    const CLASS: Class = Class::NSURL;
}

impl Url {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

/// What `MTLCopyAllDevices` gives.
pub(crate) fn array_of_devices(machine: &Arc<Machine>) -> Id {
    let devices = (0..machine.config.gpus).map(|gpu| device::create(machine, gpu));
    array(machine, devices.filter(|device| !device.is_nil()).map(Own).collect())
}

pub(crate) fn methods(all: &mut Methods) {
    all.on_class(Class::NSString, "stringWithUTF8String:", string_with as extern "C" fn(_, _, _) -> _);
    all.on(Class::NSString, "UTF8String", utf8 as extern "C" fn(_, _) -> _);
    let made = error_with as extern "C" fn(_, _, _, _, _) -> _;
    all.on_class(Class::NSError, "errorWithDomain:code:userInfo:", made);
    all.on(Class::NSError, "domain", domain as extern "C" fn(_, _) -> _);
    all.on(Class::NSError, "code", code as extern "C" fn(_, _) -> _);
    all.on(Class::NSError, "localizedDescription", description as extern "C" fn(_, _) -> _);
    all.on_class(Class::NSURL, "fileURLWithPath:", file_url as extern "C" fn(_, _, _) -> _);
    all.on_class(Class::NSArray, "arrayWithObject:", array_with as extern "C" fn(_, _, _) -> _);
    all.on(Class::NSArray, "count", count as extern "C" fn(_, _) -> _);
    all.on(Class::NSArray, "objectAtIndex:", at_index as extern "C" fn(_, _, _) -> _);
}

extern "C" fn string_with(_: Id, _: Sel, text: *const i8) -> Id {
    if text.is_null() {
        return Id::NIL;
    }
    // SAFETY: the message's argument is a C string.
    let text = unsafe { CStr::from_ptr(text.cast()) };
    object::autorelease(object::create(&Machine::of_thread(), Text(text.into())))
}

extern "C" fn file_url(_: Id, _: Sel, path: Id) -> Id {
    let machine = Machine::of_thread();
    let Some(path) = object::argument::<Text>(&machine, "fileURLWithPath:", path) else { return Id::NIL };
    object::autorelease(object::create(path.machine(), Url(PathBuf::from(path.get()))))
}

/// Of an object of any class.
extern "C" fn array_with(_: Id, _: Sel, item: Id) -> Id {
    let machine = object::machine_of(item);
    if !object::lives(item) {
        machine.fault(FaultKind::WrongArgument, "arrayWithObject: with nil or a dead object");
        return Id::NIL;
    }
    object::autorelease(array(&machine, vec![Own::retain(item)]))
}

extern "C" fn utf8(this: Id, _: Sel) -> *const i8 {
    object::get::<Text>(this).map_or(std::ptr::null(), |t| t.0.as_ptr().cast())
}

/// Without user info, which is all that is modelled.
extern "C" fn error_with(_: Id, _: Sel, domain: Id, code: i64, info: Id) -> Id {
    let machine = Machine::of_thread();
    let what = "errorWithDomain:code:userInfo:";
    let Some(domain) = object::argument::<Text>(&machine, what, domain) else { return Id::NIL };
    if !info.is_nil() {
        machine.fault(FaultKind::WrongArgument, format!("{what} with user info, which is not modelled"));
    }
    let (machine, domain) = (domain.machine(), domain.get());
    let text = format!("The operation couldn\u{2019}t be completed. ({domain} error {code}.)");
    object::autorelease(error(machine, &domain, code, text))
}

extern "C" fn domain(this: Id, _: Sel) -> Id {
    object::get::<Error>(this).map_or(Id::NIL, |e| object::autorelease(string(e.machine(), &e.domain)))
}

extern "C" fn code(this: Id, _: Sel) -> i64 {
    object::get::<Error>(this).map_or(0, |e| e.code)
}

extern "C" fn description(this: Id, _: Sel) -> Id {
    object::get::<Error>(this).map_or(Id::NIL, |e| object::autorelease(string(e.machine(), &e.text)))
}

extern "C" fn count(this: Id, _: Sel) -> u64 {
    object::get::<Array>(this).map_or(0, |a| a.0.len() as u64)
}

extern "C" fn at_index(this: Id, _: Sel, at: u64) -> Id {
    let item = |a: object::Held<Array>| a.0.get(usize::try_from(at).ok()?).map(|own| own.0);
    object::get::<Array>(this).and_then(item).unwrap_or(Id::NIL)
}
