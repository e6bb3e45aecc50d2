//! Objects that are owned, strings and errors; and what may be an argument or a result of a message.

use super::messages::{Any, NsError, NsString};
use super::objc::{Id, Runtime, Sel};
use std::ffi::{CStr, CString};
use std::fmt;
use std::marker::PhantomData;

/// A class or protocol of the list of messages.
pub trait Class {
    /// Its name.
    const NAME: &'static str;
}

/// A reference to an object of class `C`, released when it is dropped.
pub struct Owned<C> {
    pub(super) runtime: &'static Runtime,
    pub(super) id: Id,
    of: PhantomData<fn() -> C>,
}

// SAFETY: counting references is safe on any thread. Of the objects here, devices, queues, buffers, events, pipelines,
// libraries and strings may be used by several threads; command buffers and encoders are used under their queue's lock.
unsafe impl<C> Send for Owned<C> {}
// SAFETY: as above.
unsafe impl<C> Sync for Owned<C> {}

impl<C: Class> fmt::Debug for Owned<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:?})", C::NAME, self.id.0)
    }
}

impl<C> Owned<C> {
    /// Takes over a reference; `None` for nil.
    ///
    /// # Safety
    /// The object is of class `C`, and the caller gives away one reference.
    pub(super) unsafe fn take(runtime: &'static Runtime, id: Id) -> Option<Self> {
        (!id.is_nil()).then_some(Self { runtime, id, of: PhantomData })
    }

    /// Another reference to an object.
    ///
    /// # Safety
    /// The object is of class `C` and alive.
    pub(super) unsafe fn retained(runtime: &'static Runtime, id: Id) -> Option<Self> {
        // SAFETY: the object is alive; nil has no reference to count.
        let id = if id.is_nil() { id } else { unsafe { super::messages::retain(runtime, id) } };
        // SAFETY: the class is the caller's promise, the reference was just made.
        unsafe { Self::take(runtime, id) }
    }

    /// The same object as one of class `D`.
    ///
    /// # Safety
    /// It is one.
    pub(super) unsafe fn cast<D>(self) -> Owned<D> {
        let this = std::mem::ManuallyDrop::new(self);
        Owned { runtime: this.runtime, id: this.id, of: PhantomData }
    }
}

impl<C> Drop for Owned<C> {
    fn drop(&mut self) {
        // SAFETY: the reference is this handle's own, and goes with it.
        unsafe { super::messages::release(self.runtime, self.id) };
    }
}

/// A type in the encoding of a message.
pub trait Encode {
    /// Objective-C's code for it.
    const CODE: &'static str;
}

/// What may be an argument.
pub trait Argument {
    /// What is passed.
    type Raw: Encode;
    /// The value to pass.
    fn raw(self) -> Self::Raw;
}

/// What may be a result.
pub trait Outcome: Sized {
    /// What is returned.
    type Raw: Encode;
    /// Who owns a returned object: `+1` the caller, `+0` somebody else; empty for what is no object.
    const OWNERSHIP: &'static str = "";
    /// The result.
    ///
    /// # Safety
    /// The message returned `raw`, and follows the list of messages.
    unsafe fn of(runtime: &'static Runtime, raw: Self::Raw) -> Self;
}

macro_rules! plain {
    ($($t:ty => $code:literal,)*) => { $(
        impl Encode for $t {
            const CODE: &'static str = $code;
        }
        impl Argument for $t {
            type Raw = $t;
            fn raw(self) -> $t {
                self
            }
        }
        impl Outcome for $t {
            type Raw = $t;
            unsafe fn of(_: &'static Runtime, raw: $t) -> $t {
                raw
            }
        }
    )* };
}

plain! {
    () => "v",
    u64 => "Q",
    i64 => "q",
    f64 => "d",
    Size => "{?=QQQ}",
    Range => "{_NSRange=QQ}",
    *mut u8 => "^v",
    *const u8 => "r^v",
    // Apple's `char` has a sign on every processor; Linux's on AArch64 has none.
    *const i8 => "r*",
    Sel => ":",
}

/// A block of code. The only one that is ever passed is none: 0.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block(pub usize);

impl Encode for Block {
    const CODE: &'static str = "@?";
}

impl Argument for Block {
    type Raw = Block;
    fn raw(self) -> Block {
        self
    }
}

impl Encode for Id {
    const CODE: &'static str = "@";
}

impl Encode for *mut Id {
    const CODE: &'static str = "^@";
}

/// `MTLSize`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub [u64; 3]);

/// `NSRange`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first byte.
    pub location: u64,
    /// How many.
    pub length: u64,
}

/// `BOOL`, one byte everywhere; the list has arm64's code for it (x86-64 has `c`).
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bool(pub u8);

impl Encode for Bool {
    const CODE: &'static str = "B";
}

impl Encode for u8 {
    const CODE: &'static str = "C";
}

impl Argument for bool {
    type Raw = Bool;
    fn raw(self) -> Bool {
        Bool(self.into())
    }
}

impl Argument for u8 {
    type Raw = u8;
    fn raw(self) -> u8 {
        self
    }
}

impl Outcome for bool {
    type Raw = Bool;
    unsafe fn of(_: &'static Runtime, raw: Bool) -> bool {
        raw.0 != 0
    }
}

impl<C> Argument for &Owned<C> {
    type Raw = Id;
    fn raw(self) -> Id {
        self.id
    }
}

impl<C> Argument for Option<&Owned<C>> {
    type Raw = Id;
    fn raw(self) -> Id {
        self.map_or(Id::NIL, |owned| owned.id)
    }
}

/// Where a message stores an error, which belongs to the thread's pool.
#[derive(Debug)]
pub struct ErrorSlot(Id);

impl Argument for &mut ErrorSlot {
    type Raw = *mut Id;
    fn raw(self) -> *mut Id {
        &raw mut self.0
    }
}

impl ErrorSlot {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self(Id::NIL)
    }

    /// The error that was stored. Call it in the pool that the message was sent in.
    #[must_use]
    pub fn get(&self, runtime: &'static Runtime) -> Option<ErrorText> {
        // SAFETY: a message stores an error that lives as long as the pool, or leaves nil.
        let error = unsafe { Owned::<NsError>::retained(runtime, self.0) }?;
        Some(ErrorText::of(&error))
    }
}

/// A result that the caller owns.
pub type New<C> = Option<Owned<C>>;

/// A result that somebody else owns: retained at once, since the pool lets go of it.
pub struct Lent<C>(pub Option<Owned<C>>);

impl<C> Outcome for New<C> {
    type Raw = Id;
    const OWNERSHIP: &'static str = "+1";
    unsafe fn of(runtime: &'static Runtime, raw: Id) -> Self {
        // SAFETY: the message gives the reference away.
        unsafe { Owned::take(runtime, raw) }
    }
}

impl<C> Outcome for Lent<C> {
    type Raw = Id;
    const OWNERSHIP: &'static str = "+0";
    unsafe fn of(runtime: &'static Runtime, raw: Id) -> Self {
        // SAFETY: the object is alive until the pool ends, at least.
        Lent(unsafe { Owned::retained(runtime, raw) })
    }
}

/// What an `NSError` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorText {
    /// Its domain.
    pub domain: String,
    /// Its code.
    pub code: i64,
    /// Its text.
    pub text: String,
}

impl fmt::Display for ErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} {})", self.text, self.domain, self.code)
    }
}

impl ErrorText {
    /// Reads an error. Call it in a pool.
    #[must_use]
    pub fn of(error: &Owned<NsError>) -> Self {
        let text = |lent: Lent<NsString>| lent.0.map(|s| text_of(&s)).unwrap_or_default();
        Self { domain: text(error.domain()), code: error.code(), text: text(error.localized_description()) }
    }
}

/// The text of a string.
#[must_use]
pub fn text_of(string: &Owned<NsString>) -> String {
    let bytes = string.utf8();
    if bytes.is_null() {
        return String::new();
    }
    // SAFETY: the bytes are a C string that lives as long as `string` or the pool.
    unsafe { CStr::from_ptr(bytes.cast()) }.to_string_lossy().into_owned()
}

/// A new string. Call it in a pool. `None` without the class, or for text with a zero byte.
#[must_use]
pub fn string(runtime: &'static Runtime, text: &str) -> Option<Owned<NsString>> {
    let text = CString::new(text).ok()?;
    NsString::with_utf8(runtime, text.as_ptr().cast())?.0
}

impl Owned<Any> {
    /// The object as a string.
    ///
    /// # Safety
    /// It is one.
    pub(super) unsafe fn into_text(self) -> String {
        // SAFETY: the caller's promise.
        text_of(&unsafe { self.cast::<NsString>() })
    }
}
