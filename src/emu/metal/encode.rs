//! The types of messages as Objective-C's type codes, taken from the Rust functions that answer them.

use crate::object::Id;

/// A selector: a number of `send`'s list.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sel(pub u64);

/// Three numbers by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub [u64; 3]);

/// A part of a buffer, by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub location: u64,
    pub length: u64,
}

/// A block of code, or 0 for none.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block(pub usize);

/// `BOOL`: one byte.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bool(pub u8);

impl From<bool> for Bool {
    fn from(is: bool) -> Self {
        Self(is.into())
    }
}

/// A type that a message may have as an argument or a result.
pub(crate) trait Encode {
    /// Its code.
    const CODE: &'static str;
}

macro_rules! codes {
    ($($t:ty => $code:literal,)*) => { $(impl Encode for $t { const CODE: &'static str = $code; })* };
}

codes! {
    () => "v",
    u64 => "Q",
    i64 => "q",
    f64 => "d",
    u8 => "C",
    Bool => "B",
    Id => "@",
    Sel => ":",
    Size => "{?=QQQ}",
    Range => "{_NSRange=QQ}",
    *mut u8 => "^v",
    *const u8 => "r^v",
    // Apple's `char` has a sign on every processor.
    *const i8 => "r*",
    *mut Id => "^@",
    Block => "@?",
}

/// A function that answers a message.
pub(crate) trait Method: Copy {
    /// The codes of its result, of the receiver, of the selector and of the arguments.
    fn encoding(self) -> String;
    /// Where it is.
    fn address(self) -> usize;
}

macro_rules! methods {
    ($(($($a:ident)*))*) => { $(
        impl<R: Encode $(, $a: Encode)*> Method for extern "C" fn(Id, Sel $(, $a)*) -> R {
            fn encoding(self) -> String {
                let codes: &[&str] = &[R::CODE, "@:" $(, $a::CODE)*];
                codes.concat()
            }
            fn address(self) -> usize {
                self as usize
            }
        }
    )* };
}

methods! { () (A) (A B) (A B C) (A B C D) (A B C D E) }
