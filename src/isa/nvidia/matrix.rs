//! The tensor maps of a kernel's TMA copies as arguments: a buffer's address, and the words that describe its layout.
//!
//! Place in the architecture: `codegen` lists the matrices (`Program::tensors`), and
//! [`tensor_map`](super::sass::tensor_map) encodes them. A device sees a map as its parts: a buffer like any other,
//! which a launch waits for and a replay patches, and [`WORDS`] constants after it.

use super::sass::tensor_map::{BYTES, Dimension, Element, MapError, Swizzle, TensorMap};
use doorbell_codegen::{Program, TensorInfo};
use doorbell_isa::{Argument, IsaError};
use doorbell_uop::Scalar;

/// Words after the address.
pub const WORDS: usize = BYTES / 8 - 1;

/// The words after the address of a matrix with elements of this type: f16 or bf16.
///
/// # Errors
/// A number that does not fit into a map, or another element type (there is no such kernel).
pub fn words(info: &TensorInfo, element: Scalar) -> Result<[u64; WORDS], MapError> {
    let element = match element {
        Scalar::F16 => Element::F16,
        Scalar::BF16 => Element::Bf16,
        Scalar::F32 => Element::F32,
        t if t.size_bytes() == 1 => Element::U8,
        other => return Err(MapError { field: "element", dimension: 0, value: other as u64, max: 0 }),
    };
    let t = &info.tensor;
    let dimension =
        |n: usize, stride_bytes| Dimension { size: t.sizes[n].into(), stride_bytes, box_size: t.shape[n], step: 1 };
    let rows = t.pitch.cast_unsigned().saturating_mul(element.bytes());
    let dimensions = vec![dimension(0, element.bytes()), dimension(1, rows)];
    let map = TensorMap { address: 0, element, swizzle: Swizzle::Bytes128, fills_nan: false, dimensions };
    let bytes = map.emit()?;
    let (words, _) = bytes.as_chunks::<8>();
    // PANIC: sixteen words, of which the address is the first.
    Ok(std::array::from_fn(|n| u64::from_le_bytes(words[n + 1])))
}

/// A kernel's arguments: buffers, variables, and for each tensor map its buffer's address again, followed by the map's
/// other words.
///
/// # Errors
/// A matrix without a buffer, or one that a map cannot represent.
pub(super) fn arguments(program: &Program) -> Result<Vec<Argument>, IsaError> {
    let refused = |why: String| IsaError::Malformed { kernel: program.name.clone(), why };
    let mut all = Argument::plain(program);
    for info in &program.tensors {
        let param = program.params.get(info.param).ok_or_else(|| refused("a matrix of no buffer".into()))?;
        let words = words(info, param.dtype.scalar).map_err(|e| refused(e.to_string()))?;
        all.push(Argument::Buffer(info.param));
        all.extend(words.map(Argument::Word));
    }
    Ok(all)
}
