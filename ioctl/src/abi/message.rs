//! Messages of the Objective-C runtime as data: receiver, selector, typed arguments, result.
//!
//! Layer: what a device's list of messages describes, and traces, faults and replays read. Objects and memory are
//! numbers here; nobody follows them.

use std::borrow::Cow;
use std::fmt;

/// An argument or a result.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Value {
    /// No result.
    #[default]
    Nothing,
    /// An object, 0 for nil.
    Object(u64),
    /// The name of a selector.
    Selector(String),
    /// NSUInteger and the like.
    Unsigned(u64),
    /// NSInteger.
    Signed(i64),
    /// The bits of a double.
    Float(u64),
    /// BOOL, and other bytes.
    Byte(u8),
    /// `MTLSize`.
    Size([u64; 3]),
    /// `NSRange`: location and length.
    Range([u64; 2]),
    /// Memory, a pool or a block of code; 0 for none.
    Pointer(u64),
    /// A C string.
    Text(Option<String>),
    /// Memory that is only read, as long as the next argument says.
    Bytes(Vec<u8>),
    /// A place for an error: the object that is stored there, 0 for none.
    Error(u64),
}

impl Value {
    /// The number of an integer, a byte or a pointer.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Unsigned(n) | Self::Pointer(n) => Some(*n),
            Self::Signed(n) => Some(n.cast_unsigned()),
            Self::Byte(n) => Some((*n).into()),
            _ => None,
        }
    }

    /// The object, nil included.
    #[must_use]
    pub fn object(&self) -> Option<u64> {
        if let Self::Object(id) | Self::Error(id) = self { Some(*id) } else { None }
    }
}

/// Longest text and bytes that are shown.
const SHOWN: usize = 48;

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("void"),
            Self::Object(0) => f.write_str("nil"),
            Self::Object(id) => write!(f, "{id:#x}"),
            Self::Selector(name) => write!(f, "@selector({name})"),
            Self::Unsigned(n) => write!(f, "{n}"),
            Self::Signed(n) => write!(f, "{n}"),
            Self::Float(bits) => write!(f, "{:?}", f64::from_bits(*bits)),
            Self::Byte(n) => write!(f, "{n}"),
            Self::Size([x, y, z]) => write!(f, "{{{x}, {y}, {z}}}"),
            Self::Range([location, length]) => write!(f, "{{{location}, {length}}}"),
            Self::Pointer(0) | Self::Text(None) => f.write_str("NULL"),
            Self::Pointer(at) => write!(f, "{at:#x}"),
            Self::Text(Some(text)) => {
                let shown: String = text.chars().take(SHOWN).collect();
                write!(f, "{shown:?}")?;
                if shown.len() < text.len() { write!(f, "... ({} bytes)", text.len()) } else { Ok(()) }
            }
            Self::Bytes(bytes) => {
                f.write_str("<")?;
                bytes.iter().take(SHOWN / 2).try_for_each(|b| write!(f, "{b:02x}"))?;
                if bytes.len() > SHOWN / 2 { write!(f, "... {} bytes>", bytes.len()) } else { f.write_str(">") }
            }
            Self::Error(0) => f.write_str("no error"),
            Self::Error(id) => write!(f, "error {id:#x}"),
        }
    }
}

/// A message, or a call of one of the functions beside them: then class and receiver are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Class or protocol; empty for a function.
    pub class: Cow<'static, str>,
    /// The message goes to the class itself.
    pub of_class: bool,
    /// The object; a class object where `of_class`.
    pub receiver: u64,
    /// The selector, or the function's name.
    pub selector: Cow<'static, str>,
    pub arguments: Vec<Value>,
}

impl Message {
    /// A call of a function.
    #[must_use]
    pub fn function(name: &'static str, arguments: Vec<Value>) -> Self {
        Self { class: "".into(), of_class: false, receiver: 0, selector: name.into(), arguments }
    }

    /// Whether the caller owns the object that is returned, by the rule of names of Apple's memory management.
    #[must_use]
    pub fn gives(&self) -> bool {
        let owns = ["new", "alloc", "copy", "mutableCopy", "retain"].iter().any(|p| self.selector.starts_with(p));
        owns || self.class.is_empty() && self.selector.starts_with("MTL")
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.class.is_empty() {
            write!(f, "{}(", self.selector)?;
            for (at, argument) in self.arguments.iter().enumerate() {
                write!(f, "{}{argument}", if at > 0 { ", " } else { "" })?;
            }
            return f.write_str(")");
        }
        match self.of_class {
            true => write!(f, "+[{}", self.class)?,
            false => write!(f, "-[{} {:#x}", self.class, self.receiver)?,
        }
        if self.arguments.is_empty() {
            return write!(f, " {}]", self.selector);
        }
        for (name, argument) in self.selector.split(':').zip(&self.arguments) {
            write!(f, " {name}: {argument}")?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(class: &'static str, selector: &'static str, arguments: Vec<Value>) -> Message {
        Message { class: class.into(), of_class: false, receiver: 0x1020, selector: selector.into(), arguments }
    }

    #[test]
    fn messages_read_as_they_are_written() {
        let copy = message("MTLDevice", "newBufferWithLength:options:", vec![Value::Unsigned(64), Value::Unsigned(0)]);
        assert_eq!(copy.to_string(), "-[MTLDevice 0x1020 newBufferWithLength: 64 options: 0]");
        let size = message("E", "dispatch:", vec![Value::Size([1, 2, 3])]);
        assert_eq!(size.to_string(), "-[E 0x1020 dispatch: {1, 2, 3}]");
        let new = Message { of_class: true, ..message("MTLCompileOptions", "new", vec![]) };
        assert_eq!(new.to_string(), "+[MTLCompileOptions new]");
        let pop = Message::function("objc_autoreleasePoolPop", vec![Value::Pointer(16)]);
        assert_eq!(pop.to_string(), "objc_autoreleasePoolPop(0x10)");
        let text = Value::Text(Some("kernel void ".repeat(10))).to_string();
        assert!(text.ends_with("... (120 bytes)"), "{text}");
        assert_eq!(Value::Bytes(vec![1, 0xff]).to_string(), "<01ff>");
    }

    #[test]
    fn who_owns_a_result_follows_from_the_name() {
        assert!(copy_of("newSharedEvent").gives() && copy_of("retain").gives());
        assert!(!copy_of("commandBuffer").gives() && !copy_of("objectAtIndex:").gives());
        assert!(Message::function("MTLCopyAllDevices", vec![]).gives());
        assert!(!Message::function("objc_autoreleasePoolPush", vec![]).gives());
    }

    fn copy_of(selector: &'static str) -> Message {
        message("MTLDevice", selector, vec![])
    }
}
