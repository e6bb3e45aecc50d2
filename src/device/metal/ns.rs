//! Objects that are owned, strings and errors; and what may be an argument or a result of a message.

use super::messages::{Any, NsError, NsString};
use super::objc::{Id, Runtime, Sel};
use doorbell_ioctl::abi::Value;
use std::ffi::{CStr, CString};
use std::fmt;
use std::marker::PhantomData;

/// A class or protocol of the list of messages.
pub(crate) trait Class {
    /// Its name.
    const NAME: &'static str;
}

/// A reference to an object of class `C`, released when it is dropped.
pub(crate) struct Owned<C> {
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
        // Made only then: a handle of nil would send a message when it is dropped.
        (!id.is_nil()).then(|| Self { runtime, id, of: PhantomData })
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

    /// Its number in traces.
    pub(super) fn number(&self) -> u64 {
        self.id.number()
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
pub(crate) trait Encode: Copy {
    /// Objective-C's code for it.
    const CODE: &'static str;

    /// The value for those who see messages.
    fn value(self, runtime: &Runtime) -> Value;

    /// The value that another answers or replays; pointers in it live as long as `keep`.
    fn of_value(value: &Value, keep: &mut Keep) -> Option<Self>;

    /// Stores what another has answered in the place that this points at.
    ///
    /// # Safety
    /// As for the message.
    unsafe fn give(self, _value: &Value) {}
}

/// What values that were made up point at.
#[derive(Debug)]
pub(crate) struct Keep {
    pub(super) runtime: &'static Runtime,
    texts: Vec<CString>,
    bytes: Vec<Vec<u8>>,
    /// Places for errors.
    #[allow(clippy::vec_box)] // a message points at them while the list grows
    pub(super) slots: Vec<Box<Id>>,
}

impl Keep {
    /// Nothing yet.
    pub(super) fn new(runtime: &'static Runtime) -> Self {
        Self { runtime, texts: Vec::new(), bytes: Vec::new(), slots: Vec::new() }
    }
}

/// What may be an argument.
pub(crate) trait Argument {
    /// What is passed.
    type Raw: Encode;
    /// The class of an object; empty for what is none.
    const CLASS: &'static str = "";
    /// The value to pass.
    fn raw(self) -> Self::Raw;
}

/// What may be a result.
pub(crate) trait Outcome: Sized {
    /// What is returned.
    type Raw: Encode;
    /// Who owns a returned object: `+1` the caller, `+0` somebody else; empty for what is no object.
    const OWNERSHIP: &'static str = "";
    /// The class of a returned object; empty for what is none.
    const CLASS: &'static str = "";
    /// The result.
    ///
    /// # Safety
    /// The message returned `raw`, and follows the list of messages.
    unsafe fn of(runtime: &'static Runtime, raw: Self::Raw) -> Self;
}

macro_rules! plain {
    ($($t:ty => $code:literal, $value:expr, $of:expr;)*) => { $(
        impl Encode for $t {
            const CODE: &'static str = $code;
            fn value(self, runtime: &Runtime) -> Value {
                let value: fn($t, &Runtime) -> Value = $value;
                value(self, runtime)
            }
            fn of_value(value: &Value, keep: &mut Keep) -> Option<$t> {
                let of: fn(&Value, &mut Keep) -> Option<$t> = $of;
                of(value, keep)
            }
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

/// Where a number points.
fn pointer<T>(number: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(usize::try_from(number).unwrap_or(0))
}

plain! {
    () => "v", |(), _| Value::Nothing, |_, _| Some(());
    u64 => "Q", |n, _| Value::Unsigned(n), |v, _| v.number();
    i64 => "q", |n, _| Value::Signed(n), |v, _| Some(v.number()?.cast_signed());
    f64 => "d", |n, _| Value::Float(n.to_bits()),
        |v, _| if let Value::Float(bits) = v { Some(f64::from_bits(*bits)) } else { None };
    Size => "{?=QQQ}", |n, _| Value::Size(n.0), |v, _| if let Value::Size(n) = v { Some(Size(*n)) } else { None };
    Range => "{_NSRange=QQ}", |n, _| Value::Range([n.location, n.length]), |v, _| match v {
        Value::Range([location, length]) => Some(Range { location: *location, length: *length }),
        _ => None,
    };
    *mut u8 => "^v", |at, _| Value::Pointer(at.expose_provenance() as u64), |v, _| Some(pointer(v.number()?));
    *const u8 => "r^v", |at, _| Value::Pointer(at.expose_provenance() as u64), |v, keep| match v {
        Value::Bytes(bytes) => {
            keep.bytes.push(bytes.clone());
            keep.bytes.last().map(|kept| kept.as_ptr())
        }
        other => Some(pointer::<u8>(other.number()?).cast_const()),
    };
    // Apple's `char` has a sign on every processor; Linux's on AArch64 has none.
    *const i8 => "r*", |at, _| Value::Text(shown(at)), |v, keep| match v {
        Value::Text(Some(text)) => {
            keep.texts.push(CString::new(text.as_str()).ok()?);
            keep.texts.last().map(|kept| kept.as_ptr().cast())
        }
        _ => Some(std::ptr::null()),
    };
    Sel => ":", |sel, runtime| Value::Selector(super::messages::name_of(runtime, sel).into()), |v, keep| {
        let Value::Selector(name) = v else { return None };
        let name = CString::new(name.as_str()).ok()?;
        // SAFETY: the name is a C string.
        Some(unsafe { (keep.runtime.objc.sel_register_name)(name.as_ptr()) })
    };
}

/// A C string of a message.
fn shown(at: *const i8) -> Option<String> {
    // SAFETY: what messages of the list pass and return as text is a C string, or nothing.
    (!at.is_null()).then(|| unsafe { CStr::from_ptr(at.cast()) }.to_string_lossy().into_owned())
}

/// A block of code. The only one that is ever passed is none: 0.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block(pub usize);

impl Encode for Block {
    const CODE: &'static str = "@?";
    fn value(self, _: &Runtime) -> Value {
        Value::Pointer(self.0 as u64)
    }
    /// A recorded block would be code of another process.
    fn of_value(value: &Value, _: &mut Keep) -> Option<Self> {
        (value.number() == Some(0)).then_some(Block(0))
    }
}

impl Argument for Block {
    type Raw = Block;
    fn raw(self) -> Block {
        self
    }
}

impl Encode for Id {
    const CODE: &'static str = "@";
    fn value(self, _: &Runtime) -> Value {
        Value::Object(self.number())
    }
    fn of_value(value: &Value, _: &mut Keep) -> Option<Self> {
        match value {
            Value::Nothing => Some(Id::NIL),
            other => Some(Id::of_number(other.object()?)),
        }
    }
}

impl Encode for *mut Id {
    const CODE: &'static str = "^@";
    fn value(self, _: &Runtime) -> Value {
        // SAFETY: it points at a place for an error, of the caller of the message.
        Value::Error(if self.is_null() { 0 } else { unsafe { *self }.number() })
    }
    fn of_value(_: &Value, keep: &mut Keep) -> Option<Self> {
        keep.slots.push(Box::new(Id::NIL));
        keep.slots.last_mut().map(|slot| &raw mut **slot)
    }
    unsafe fn give(self, value: &Value) {
        if let (Value::Error(id), false) = (value, self.is_null()) {
            // SAFETY: as in `value`.
            unsafe { *self = Id::of_number(*id) };
        }
    }
}

/// `MTLSize`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub [u64; 3]);

/// `NSRange`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// The first byte.
    pub location: u64,
    /// How many.
    pub length: u64,
}

/// `BOOL`, one byte everywhere; the list has arm64's code for it (x86-64 has `c`).
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bool(pub u8);

impl Encode for Bool {
    const CODE: &'static str = "B";
    fn value(self, _: &Runtime) -> Value {
        Value::Byte(self.0)
    }
    fn of_value(value: &Value, _: &mut Keep) -> Option<Self> {
        u8::try_from(value.number()?).ok().map(Bool)
    }
}

impl Encode for u8 {
    const CODE: &'static str = "C";
    fn value(self, _: &Runtime) -> Value {
        Value::Byte(self)
    }
    fn of_value(value: &Value, _: &mut Keep) -> Option<Self> {
        u8::try_from(value.number()?).ok()
    }
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

impl<C: Class> Argument for &Owned<C> {
    type Raw = Id;
    const CLASS: &'static str = C::NAME;
    fn raw(self) -> Id {
        self.id
    }
}

impl<C: Class> Argument for Option<&Owned<C>> {
    type Raw = Id;
    const CLASS: &'static str = C::NAME;
    fn raw(self) -> Id {
        self.map_or(Id::NIL, |owned| owned.id)
    }
}

/// Where a message stores an error, which belongs to the thread's pool.
#[derive(Debug)]
pub(crate) struct ErrorSlot(Id);

impl Argument for &mut ErrorSlot {
    type Raw = *mut Id;
    fn raw(self) -> *mut Id {
        &raw mut self.0
    }
}

/// No place for a result that nobody asks for: 0.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoPlace(pub usize);

impl Encode for NoPlace {
    const CODE: &'static str = "^@";
    fn value(self, _: &Runtime) -> Value {
        Value::Pointer(self.0 as u64)
    }
    fn of_value(value: &Value, _: &mut Keep) -> Option<Self> {
        (value.number() == Some(0)).then_some(NoPlace(0))
    }
}

impl Argument for NoPlace {
    type Raw = NoPlace;
    fn raw(self) -> NoPlace {
        self
    }
}

impl ErrorSlot {
    /// An empty one.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self(Id::NIL)
    }

    /// The error that was stored. Call it in the pool that the message was sent in.
    #[must_use]
    pub(crate) fn get(&self, runtime: &'static Runtime) -> Option<ErrorText> {
        // SAFETY: a message stores an error that lives as long as the pool, or leaves nil.
        let error = unsafe { Owned::<NsError>::retained(runtime, self.0) }?;
        Some(ErrorText::of(&error))
    }
}

/// A result that the caller owns.
pub(crate) type New<C> = Option<Owned<C>>;

/// A result that somebody else owns: retained at once, since the pool lets go of it.
pub(crate) struct Lent<C>(pub Option<Owned<C>>);

impl<C: Class> Outcome for New<C> {
    type Raw = Id;
    const CLASS: &'static str = C::NAME;
    const OWNERSHIP: &'static str = "+1";
    unsafe fn of(runtime: &'static Runtime, raw: Id) -> Self {
        // SAFETY: the message gives the reference away.
        unsafe { Owned::take(runtime, raw) }
    }
}

impl<C: Class> Outcome for Lent<C> {
    type Raw = Id;
    const CLASS: &'static str = C::NAME;
    const OWNERSHIP: &'static str = "+0";
    unsafe fn of(runtime: &'static Runtime, raw: Id) -> Self {
        // SAFETY: the object is alive until the pool ends, at least.
        Lent(unsafe { Owned::retained(runtime, raw) })
    }
}

/// What an `NSError` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorText {
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
    pub(crate) fn of(error: &Owned<NsError>) -> Self {
        let text = |lent: Lent<NsString>| lent.0.map(|s| text_of(&s)).unwrap_or_default();
        Self { domain: text(error.domain()), code: error.code(), text: text(error.localized_description()) }
    }
}

/// The text of a string.
#[must_use]
pub(crate) fn text_of(string: &Owned<NsString>) -> String {
    let bytes = string.utf8();
    if bytes.is_null() {
        return String::new();
    }
    // SAFETY: the bytes are a C string that lives as long as `string` or the pool.
    unsafe { CStr::from_ptr(bytes.cast()) }.to_string_lossy().into_owned()
}

/// A new string. Call it in a pool. `None` without the class, or for text with a zero byte.
#[must_use]
pub(crate) fn string(runtime: &'static Runtime, text: &str) -> Option<Owned<NsString>> {
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
