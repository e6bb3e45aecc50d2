//! The instruction sets as the engine sees them.

use super::{Chip, CompileError, Target, Wave, assemble, compile, decode, print};
use doorbell_codegen::target::Grid;
use doorbell_codegen::{self as codegen, Program, units};
use doorbell_elf::amdgpu::{self as code, LDS_BYTES};
use doorbell_elf::{Machine, Object};
use doorbell_isa::{Backend, Binary, BinaryCode, IsaError};

/// Code for one chip.
#[derive(Clone, Debug)]
pub struct Amdgpu {
    target: Target,
    codegen: codegen::Target,
}

impl Amdgpu {
    /// For a chip with its usual wave size.
    #[must_use]
    pub fn new(chip: Chip) -> Amdgpu {
        let target = Target::of(chip);
        let wave = if target.wave == Wave::W32 { 32 } else { 64 };
        let tensor_cores = match chip {
            Chip::Gfx1100 => units::RDNA3,
            Chip::Gfx1201 => units::RDNA4,
            Chip::Gfx942 => units::CDNA3,
        };
        let gpu = codegen::Target::gpu(chip.name(), Grid::amd(wave));
        Amdgpu {
            target,
            codegen: codegen::Target {
                local_bytes: LDS_BYTES as usize,
                tensor_cores,
                f16_math: true,
                ldexp: true,
                ..gpu
            },
        }
    }

    /// The instruction set of a chip by name.
    #[must_use]
    pub fn for_arch(arch: &str) -> Option<Amdgpu> {
        Chip::parse(arch).map(Amdgpu::new)
    }
}

impl Amdgpu {
    /// What codegen must know of it.
    #[must_use]
    pub const fn target(&self) -> &codegen::Target {
        &self.codegen
    }

    /// A program's machine code as an object.
    ///
    /// # Errors
    /// An op or dtype that has no instruction here, more registers or memory than there are.
    pub fn object(&self, program: &Program) -> Result<Object, IsaError> {
        let kernel = || program.name.clone();
        let code = compile(program, self.target).map_err(|e| match e {
            CompileError::Unsupported { op, dtype, .. } => {
                IsaError::Unsupported { kernel: kernel(), target: self.codegen.name, op, dtype }
            }
            CompileError::Encode(why) => IsaError::Encoding { kernel: kernel(), index: 0, why },
            e => IsaError::Malformed { kernel: kernel(), why: e.to_string() },
        })?;
        let mut object = Object::new(Machine::Amdgpu);
        object.define_function(&program.name, 0, code.text.len() as u64);
        object.text = code.text;
        object.kernel = Some(code.kernel);
        Ok(object)
    }

    /// An object's code as text, one instruction a line.
    ///
    /// # Errors
    /// Bytes that are no instruction.
    pub fn disassemble(&self, object: &Object) -> Result<String, IsaError> {
        let words: Vec<u32> = object.text.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w)).collect();
        let (mut out, mut at) = (String::new(), 0);
        while at < words.len() {
            let lost = IsaError::NotCode { offset: 4 * at };
            let (inst, len) = decode(self.target, &words[at..]).map_err(|_| lost.clone())?;
            let text = print(self.target, &inst).map_err(|_| lost)?;
            out.push_str(&format!("{:6x}:  {text}\n", 4 * at));
            at += len;
        }
        Ok(out)
    }
}

impl Backend for Amdgpu {
    fn target(&self) -> &codegen::Target {
        &self.codegen
    }

    fn compile(&self, program: &Program) -> Result<Binary, IsaError> {
        Ok(Binary::plain(program, BinaryCode::Object(self.object(program)?)))
    }

    fn listing(&self, binary: &Binary) -> Result<String, IsaError> {
        binary.object().map_or_else(|| Ok(String::new()), |object| self.disassemble(object))
    }

    fn language(&self) -> Option<&'static str> {
        Some("s")
    }

    /// A code object of all kernels that the text describes.
    fn assemble(&self, kernel: &str, text: &str) -> Result<Vec<u8>, IsaError> {
        let source = |why: String| IsaError::Source { kernel: kernel.into(), why };
        let chip = self.target.chip;
        let assembled = assemble(self.target, text).map_err(|e| source(e.to_string()))?;
        let kernels: Result<Vec<_>, String> =
            assembled.kernels.iter().map(|k| assembled.kernel_code(chip, k)).collect();
        code::write(chip, &kernels.map_err(source)?).map_err(|e| source(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_codegen::OptChoice;
    use doorbell_elf::amdgpu::CodeObject;
    use doorbell_uop::{AxisKind, DType, Op, Scalar, UOp};

    #[test]
    fn an_object_is_laid_out_as_its_file_is_read() {
        let (float, i) = (DType::of(Scalar::F32), UOp::range(1000, 0, AxisKind::Loop));
        let read = |slot| UOp::param(slot, float, 1000).index(&i).load();
        let sum = read(1).binary(Op::Add, &read(2));
        let kernel = UOp::sink([UOp::param(0, float, 1000).index(&i).store(&sum, std::slice::from_ref(&i))]);
        for chip in Chip::ALL {
            let backend = Amdgpu::new(chip);
            let program = codegen::compile(&kernel, backend.target(), &OptChoice::Heuristic, false).unwrap();
            let object = backend.object(&program).unwrap();
            let direct = CodeObject::of_object(&object).unwrap();
            assert_eq!(direct, CodeObject::parse(&doorbell_elf::write(&object).unwrap()).unwrap(), "{}", chip.name());
            let of = direct.kernel(&program.name).unwrap();
            assert_eq!((direct.code(of), of.args.as_ref().map(Vec::len)), (&object.text[..], Some(3)));
        }
    }
}
