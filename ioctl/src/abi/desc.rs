//! The types that describe an ioctl, and the macro that declares a struct together with its layout.
//!
//! Source of the request word: `asm-generic/ioctl.h`: number 7:0, type 15:8, size 29:16, direction 31:30 (1 to the
//! kernel, 2 from it).

use std::marker::PhantomData;

/// Size in bytes that a request word gives for its struct.
#[must_use]
pub const fn request_len_bytes(request: u32) -> usize {
    ((request >> 16) & 0x3fff) as usize
}

/// The number within the type.
#[must_use]
pub const fn request_number(request: u32) -> u8 {
    request as u8
}

/// The type byte: `K` for KFD, `d` for DRM, `F` for NVIDIA's RM; 0 where a driver numbers its calls without the macros
/// of C: UVM's go up to 314.
#[must_use]
pub const fn request_type(request: u32) -> u8 {
    const NUMBERED: u32 = 0x200;
    if request < NUMBERED { 0 } else { (request >> 8) as u8 }
}

/// Whether two request words are the same call: drivers choose by type and number, the size depends on the caller's
/// release. Words without a type (UVM's) are numbers as they are.
#[must_use]
pub const fn same_call(a: u32, b: u32) -> bool {
    if request_type(a) == 0 {
        return a == b;
    }
    request_type(a) == request_type(b) && request_number(a) == request_number(b)
}

/// What gives a value its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dir {
    /// To the kernel.
    In,
    /// From the kernel.
    Out,
    InOut,
}

/// What a field means: how it is printed, and what a replay has to translate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Dec,
    Signed,
    Hex,
    /// An address of the process or the device (they are the same for KFD).
    Address,
    /// An address of memory that the driver reads or writes during the call.
    Pointer,
    /// A driver's name for a buffer.
    Handle,
    /// An offset for mmap.
    MapOffset,
    GpuId,
    QueueId,
    EventId,
    Fd,
    /// Characters up to a zero.
    Text,
    /// A number that chooses what another field points at.
    Choice(&'static [Choice]),
    Flags(&'static [(u64, &'static str)]),
    Enum(&'static [(u64, &'static str)]),
    /// A struct, or several in a row.
    Nested(&'static Layout),
    /// One of these, by context that the struct does not hold.
    Union(&'static [(&'static str, &'static Layout)]),
    /// An array of 32-bit words.
    Words,
    /// Must be zero; not printed unless it is not.
    Reserved,
}

/// One field of a struct.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FieldDesc {
    /// The field's name in Rust and in text.
    pub name: &'static str,
    /// The path in C; empty for padding that C leaves unnamed.
    pub c_name: &'static str,
    /// Bytes from the struct's start.
    pub offset: u32,
    pub len_bytes: u32,
    pub dir: Dir,
    pub kind: Kind,
}

impl FieldDesc {
    /// Offset of the field in its struct.
    #[must_use]
    pub fn span(&self) -> std::ops::Range<usize> {
        self.offset as usize..(self.offset + self.len_bytes) as usize
    }

    /// The value of an integer field; `None` for a longer one, and where another release's struct ends before it.
    #[must_use]
    pub fn read(&self, bytes: &[u8]) -> Option<u64> {
        let part = bytes.get(self.span()).filter(|p| p.len() <= 8)?;
        Some(super::decode::integer(part))
    }

    /// Replaces an integer field's value by `value` of it; does nothing where the field is missing.
    pub fn write(&self, bytes: &mut [u8], value: impl FnOnce(u64) -> u64) {
        if let Some(old) = self.read(bytes) {
            bytes[self.span()].copy_from_slice(&value(old).to_le_bytes()[..self.len_bytes as usize]);
        }
    }
}

/// A struct's fields in order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layout {
    /// The C type, as `struct kfd_event_data`.
    pub name: &'static str,
    pub len_bytes: u32,
    pub fields: &'static [FieldDesc],
}

impl Layout {
    /// The field of that name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&FieldDesc> {
        self.fields.iter().find(|f| f.name == name)
    }
}

/// One of the things a number may choose: an object's class, a command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    pub value: u32,
    pub name: &'static str,
    /// The associated struct, if there is one and it is described.
    pub layout: Option<&'static Layout>,
    /// The struct in another release of the driver, which its size tells apart.
    pub other: Option<&'static Layout>,
}

impl Choice {
    /// The associated struct where the caller gives its size.
    #[must_use]
    pub(crate) fn layout_of(&self, len_bytes: Option<u64>) -> Option<&'static Layout> {
        self.other.filter(|l| Some(u64::from(l.len_bytes)) == len_bytes).or(self.layout)
    }
}

/// The choice of that number; `among` is in order of numbers.
#[must_use]
pub fn chosen(among: &'static [Choice], value: u32) -> Option<&'static Choice> {
    among.binary_search_by_key(&value, |c| c.value).ok().map(|at| &among[at])
}

/// What an embedded pointer points at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Element {
    Bytes,
    U32,
    Struct(&'static Layout),
    /// The struct that this field, a [`Kind::Choice`], chooses; bytes if that has none.
    Chosen(&'static str),
}

impl Element {
    /// Bytes of one element.
    #[must_use]
    pub fn len_bytes(self) -> u32 {
        match self {
            Self::Bytes | Self::Chosen(_) => 1,
            Self::U32 => 4,
            Self::Struct(layout) => layout.len_bytes,
        }
    }
}

/// How many elements there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The value of this field.
    Field(&'static str),
    /// The value of this field divided by so much.
    FieldOver(&'static str, u32),
    /// The bytes of the chosen struct, whatever this field holds; the field's value where nothing is chosen.
    Whole(&'static str),
}

/// Memory outside the struct that the driver reads or writes. An array that follows the struct has the pointer `""`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Embedded {
    /// The field with the address.
    pub pointer: &'static str,
    pub element: Element,
    pub count: Count,
    pub dir: Dir,
}

/// One ioctl.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Desc {
    pub name: &'static str,
    pub request: u32,
    pub layout: &'static Layout,
    /// Set where the driver answers with another struct at the same address.
    pub out: Option<&'static Layout>,
    pub embedded: &'static [Embedded],
    /// Release that first had this form (KFD: interface minor; NVIDIA: the driver's major number); 1 where it is older
    /// than the header's history.
    pub since: u32,
    /// The last one, where a later form took its place.
    pub until: Option<u32>,
}

/// An ioctl whose struct is `T`.
#[derive(Debug)]
pub struct Ioctl<T> {
    pub desc: Desc,
    args: PhantomData<fn() -> T>,
}

impl<T> Ioctl<T> {
    /// Direction bits 31:30 of a request word, by the names of the C macros.
    const fn new(name: &'static str, request: u32, layout: &'static Layout) -> Self {
        assert!(request_type(request) == 0 || request_len_bytes(request) == size_of::<T>());
        let desc = Desc { name, request, layout, out: None, embedded: &[], since: 1, until: None };
        Self { desc, args: PhantomData }
    }

    const fn word(direction: u32, ty: u8, number: u8) -> u32 {
        assert!(size_of::<T>() < 1 << 14);
        direction << 30 | (size_of::<T>() as u32) << 16 | (ty as u32) << 8 | number as u32
    }

    /// `_IOR`: the kernel writes the struct.
    #[must_use]
    pub const fn read(ty: u8, number: u8, name: &'static str, layout: &'static Layout) -> Self {
        Self::new(name, Self::word(2, ty, number), layout)
    }

    /// `_IOW`: the kernel reads the struct.
    #[must_use]
    pub const fn write(ty: u8, number: u8, name: &'static str, layout: &'static Layout) -> Self {
        Self::new(name, Self::word(1, ty, number), layout)
    }

    /// `_IOWR`: both.
    #[must_use]
    pub const fn both(ty: u8, number: u8, name: &'static str, layout: &'static Layout) -> Self {
        Self::new(name, Self::word(3, ty, number), layout)
    }

    /// A call that is known by its number alone.
    #[must_use]
    pub const fn bare(number: u32, name: &'static str, layout: &'static Layout) -> Self {
        assert!(request_type(number) == 0);
        Self::new(name, number, layout)
    }

    /// The same with pointers to memory outside the struct.
    #[must_use]
    pub const fn embedding(mut self, embedded: &'static [Embedded]) -> Self {
        self.desc.embedded = embedded;
        self
    }

    /// The same, with another struct for the answer.
    #[must_use]
    pub(crate) const fn answering(mut self, out: &'static Layout) -> Self {
        self.desc.out = Some(out);
        self
    }

    /// The same, since a release.
    #[must_use]
    pub const fn since(mut self, release: u32) -> Self {
        self.desc.since = release;
        self
    }

    /// The same, up to a release.
    #[must_use]
    pub const fn until(mut self, release: u32) -> Self {
        self.desc.until = Some(release);
        self
    }
}

/// Declares a struct of the kernel: Rust type, size assertion, layout. A field is `name: type, direction, kind;`, with
/// `as "c.path"` where C calls it otherwise.
macro_rules! abi_struct {
    ($(#[$meta:meta])* $name:ident = $c:literal, $size:literal {
        $($(#[$doc:meta])* $field:ident $(as $c_field:literal)?: $ty:ty, $dir:ident, $kind:expr;)*
    }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
        pub struct $name { $($(#[$doc])* pub $field: $ty,)* }

        impl Default for $name {
            fn default() -> Self {
                bytemuck::Zeroable::zeroed()
            }
        }

        const _: () = assert!(size_of::<$name>() == $size);

        impl $name {
            /// The fields, for text and comparison.
            pub const LAYOUT: $crate::abi::Layout = $crate::abi::Layout {
                name: $c,
                len_bytes: $size,
                fields: &[$($crate::abi::FieldDesc {
                    name: stringify!($field),
                    c_name: [$($c_field,)? stringify!($field)][0],
                    offset: std::mem::offset_of!($name, $field) as u32,
                    len_bytes: size_of::<$ty>() as u32,
                    dir: $crate::abi::Dir::$dir,
                    kind: $kind,
                }),*],
            };
        }
    };
}
