//! Ordinary CUDA C++ kernels with everything to run them: compiled code (`nvcc`), launch, inputs, and what must come
//! out.
//!
//! Tests include this folder by `#[path]`. A runner goes over [`cases`]: it places [`Case::buffers`] in memory, passes
//! [`Case::parameters`], launches, and hands the buffers to [`Case::check`]. The references are scalar Rust, written
//! from what the C++ means and independent of any compiler or emulator.

#![allow(dead_code)] // each test uses its part

pub mod cases;
pub mod nvcc;

pub use cases::cases;

/// Contents of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    U8(Vec<u8>),
    U16(Vec<u16>),
    I32(Vec<i32>),
    U32(Vec<u32>),
    I64(Vec<i64>),
    U64(Vec<u64>),
    /// Bits of half floats.
    F16(Vec<u16>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

/// A parameter: a buffer's address or bytes.
#[derive(Clone, Debug)]
enum Param {
    Buffer,
    Bytes(Vec<u8>),
}

/// How near results must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    Exact,
    /// Distance in units of the last place of the buffer's type.
    Ulps(u64),
    /// Or this far from it.
    Close {
        relative: f64,
        absolute: f64,
    },
}

type Reference = Box<dyn Fn(&mut [Data]) + Send + Sync>;

/// A kernel, how it is launched, and what it does to its buffers.
pub struct Case {
    pub kernel: &'static str,
    /// Stem of the file in `tests/cuda/kernels`.
    pub file: &'static str,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub dynamic_shared_bytes: u32,
    params: Vec<Param>,
    data: Vec<Data>,
    reference: Reference,
    tolerance: Tolerance,
    /// Why it is not exact.
    pub reason: &'static str,
}

impl Case {
    fn new(kernel: &'static str, file: &'static str, grid: [u32; 3], block: [u32; 3]) -> Case {
        Case {
            kernel,
            file,
            grid,
            block,
            dynamic_shared_bytes: 0,
            params: Vec::new(),
            data: Vec::new(),
            reference: Box::new(|_| {}),
            tolerance: Tolerance::Exact,
            reason: "",
        }
    }

    fn buffer(mut self, data: Data) -> Case {
        self.params.push(Param::Buffer);
        self.data.push(data);
        self
    }

    fn i32s(self, data: Vec<i32>) -> Case {
        self.buffer(Data::I32(data))
    }

    fn u32s(self, data: Vec<u32>) -> Case {
        self.buffer(Data::U32(data))
    }

    fn i64s(self, data: Vec<i64>) -> Case {
        self.buffer(Data::I64(data))
    }

    fn u64s(self, data: Vec<u64>) -> Case {
        self.buffer(Data::U64(data))
    }

    fn f32s(self, data: Vec<f32>) -> Case {
        self.buffer(Data::F32(data))
    }

    fn f64s(self, data: Vec<f64>) -> Case {
        self.buffer(Data::F64(data))
    }

    fn u8s(self, data: Vec<u8>) -> Case {
        self.buffer(Data::U8(data))
    }

    fn f16s(self, data: Vec<u16>) -> Case {
        self.buffer(Data::F16(data))
    }

    fn bytes(mut self, bytes: &[u8]) -> Case {
        self.params.push(Param::Bytes(bytes.to_vec()));
        self
    }

    fn int(self, n: i32) -> Case {
        self.bytes(&n.to_le_bytes())
    }

    fn shared(mut self, len_bytes: u32) -> Case {
        self.dynamic_shared_bytes = len_bytes;
        self
    }

    fn tolerance(mut self, tolerance: Tolerance, reason: &'static str) -> Case {
        (self.tolerance, self.reason) = (tolerance, reason);
        self
    }

    fn does(mut self, reference: impl Fn(&mut [Data]) + Send + Sync + 'static) -> Case {
        self.reference = Box::new(reference);
        self
    }

    /// The buffers before the launch, in the order of the parameters that are buffers.
    pub fn buffers(&self) -> Vec<Vec<u8>> {
        self.data.iter().map(Data::bytes).collect()
    }

    /// The parameters' values, in order, once the buffers have addresses.
    pub fn parameters(&self, addresses: &[u64]) -> Vec<Vec<u8>> {
        assert_eq!(addresses.len(), self.data.len(), "one address a buffer");
        let mut addresses = addresses.iter();
        let value = |p: &Param| match p {
            Param::Buffer => addresses.next().expect("counted above").to_le_bytes().to_vec(),
            Param::Bytes(b) => b.clone(),
        };
        self.params.iter().map(value).collect()
    }

    /// What the buffers must hold after the launch.
    pub fn expected(&self) -> Vec<Data> {
        let mut data = self.data.clone();
        (self.reference)(&mut data);
        data
    }

    /// Compares the buffers after the launch with the reference.
    ///
    /// # Errors
    /// The first element that is too far, with both values, and how many there are.
    pub fn check(&self, after: &[Vec<u8>]) -> Result<(), String> {
        let expected = self.expected();
        assert_eq!(after.len(), expected.len(), "{}: as many buffers as before", self.kernel);
        for (b, (want, got)) in expected.iter().zip(after).enumerate() {
            let got = want.like(got);
            let wrong: Vec<usize> = (0..want.len()).filter(|i| !want.is_near(&got, *i, self.tolerance)).collect();
            if let Some(i) = wrong.first() {
                let (w, g) = (want.show(*i), got.show(*i));
                let count = wrong.len();
                return Err(format!("{}: buffer {b}, element {i}: {g}, expected {w} ({count} are wrong)", self.kernel));
            }
        }
        Ok(())
    }
}

macro_rules! each {
    ($self:expr, $v:ident => $body:expr) => {
        match $self {
            Data::U8($v) => $body,
            Data::U16($v) | Data::F16($v) => $body,
            Data::I32($v) => $body,
            Data::U32($v) => $body,
            Data::I64($v) => $body,
            Data::U64($v) => $body,
            Data::F32($v) => $body,
            Data::F64($v) => $body,
        }
    };
}

macro_rules! getters {
    ($($name:ident $variant:ident $type:ty;)*) => {
        $(pub fn $name(&mut self) -> &mut Vec<$type> {
            match self {
                Data::$variant(v) => v,
                other => panic!("{other:?}"),
            }
        })*
    };
}

impl Data {
    getters! { u8s U8 u8; u16s U16 u16; i32s I32 i32; u32s U32 u32; i64s I64 i64; u64s U64 u64; f16s F16 u16; f32s F32 f32; f64s F64 f64; }

    pub fn len(&self) -> usize {
        each!(self, v => v.len())
    }

    pub fn bytes(&self) -> Vec<u8> {
        each!(self, v => v.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    /// Bytes as the same type.
    fn like(&self, bytes: &[u8]) -> Data {
        macro_rules! read {
            ($($variant:ident $type:ty),*) => {
                match self {
                    $(Data::$variant(_) => Data::$variant(bytes.chunks_exact(size_of::<$type>()).map(|c| <$type>::from_le_bytes(c.try_into().expect("a chunk"))).collect()),)*
                }
            };
        }
        let read = read!(U8 u8, U16 u16, I32 i32, U32 u32, I64 i64, U64 u64, F16 u16, F32 f32, F64 f64);
        assert_eq!(read.len(), self.len(), "a buffer keeps its length");
        read
    }

    fn show(&self, i: usize) -> String {
        match self {
            Data::F16(v) => format!("{} ({:#06x})", half::f16::from_bits(v[i]), v[i]),
            Data::F32(v) => format!("{} ({:#010x})", v[i], v[i].to_bits()),
            Data::F64(v) => format!("{} ({:#018x})", v[i], v[i].to_bits()),
            _ => each!(self, v => format!("{} ({:#x})", v[i], v[i].to_bits_())),
        }
    }

    fn is_near(&self, got: &Data, i: usize, tolerance: Tolerance) -> bool {
        let (want, got, ulps) = match (self, got) {
            (Data::F32(w), Data::F32(g)) => (
                f64::from(w[i]),
                f64::from(g[i]),
                ordered(w[i].to_bits().into(), 31).abs_diff(ordered(g[i].to_bits().into(), 31)),
            ),
            (Data::F64(w), Data::F64(g)) => {
                (w[i], g[i], ordered(w[i].to_bits(), 63).abs_diff(ordered(g[i].to_bits(), 63)))
            }
            (Data::F16(w), Data::F16(g)) => {
                let value = |bits| f64::from(half::f16::from_bits(bits));
                (value(w[i]), value(g[i]), ordered(w[i].into(), 15).abs_diff(ordered(g[i].into(), 15)))
            }
            _ => return each!(self, w => got.show(i) == format!("{} ({:#x})", w[i], w[i].to_bits_())),
        };
        if want.is_nan() || got.is_nan() {
            return want.is_nan() && got.is_nan();
        }
        match tolerance {
            Tolerance::Exact => ulps == 0,
            Tolerance::Ulps(n) => ulps <= n,
            Tolerance::Close { relative, absolute } => {
                want == got || (want - got).abs() <= absolute + relative * want.abs()
            }
        }
    }
}

/// A float's bits as a number that grows with it.
fn ordered(bits: u64, sign: u32) -> i64 {
    let magnitude = (bits & !(1 << sign)).cast_signed();
    if bits >> sign & 1 == 1 { -magnitude } else { magnitude }
}

/// Bits for messages, of integers and (never used) floats alike.
trait Bits {
    fn to_bits_(&self) -> u64;
}

macro_rules! bits {
    ($($t:ty),*) => { $(impl Bits for $t { fn to_bits_(&self) -> u64 { *self as u64 } })* };
}

bits!(u8, u16, u32, u64, i32, i64);

impl Bits for f32 {
    fn to_bits_(&self) -> u64 {
        self.to_bits().into()
    }
}

impl Bits for f64 {
    fn to_bits_(&self) -> u64 {
        self.to_bits()
    }
}

/// Inputs by a seed (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn u32s(&mut self, n: usize) -> Vec<u32> {
        (0..n).map(|_| self.next() as u32).collect()
    }

    /// From `low` to below `high`.
    pub fn i32s(&mut self, n: usize, low: i64, high: i64) -> Vec<i32> {
        (0..n).map(|_| (low + self.below((high - low) as u64) as i64) as i32).collect()
    }

    pub fn u8s(&mut self, n: usize, limit: u64) -> Vec<u8> {
        (0..n).map(|_| self.below(limit) as u8).collect()
    }

    pub fn f64s(&mut self, n: usize, low: f64, high: f64) -> Vec<f64> {
        (0..n).map(|_| low + (high - low) * (self.next() >> 11) as f64 / (1u64 << 53) as f64).collect()
    }

    pub fn f32s(&mut self, n: usize, low: f64, high: f64) -> Vec<f32> {
        self.f64s(n, low, high).into_iter().map(|x| x as f32).collect()
    }
}
