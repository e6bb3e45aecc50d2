//! The back end: linear program → MSL text, which the device's driver compiles.

use super::family::Family;
use super::render::{RenderError, render};
use doorbell_codegen::{Program, Target};
use doorbell_isa::{Backend, Binary, BinaryCode, IsaError};

/// The back end for one family of Apple's GPUs. A kernel's file is its source text.
#[derive(Clone, Debug)]
pub struct Metal {
    family: Family,
    target: Target,
}

impl Metal {
    /// For GPUs of this family and newer ones.
    #[must_use]
    pub const fn new(family: Family) -> Metal {
        Metal { family, target: family.target() }
    }

    fn text(&self, program: &Program) -> Result<String, IsaError> {
        render(program, self.family).map_err(|e| match e {
            RenderError::Unsupported { kernel, op, dtype } => {
                IsaError::Unsupported { kernel, target: self.family.name(), op, dtype }
            }
            RenderError::Malformed { kernel, why } => IsaError::Malformed { kernel, why },
            RenderError::Limit { ref kernel, .. } => IsaError::Source { kernel: kernel.clone(), why: e.what() },
        })
    }
}

impl Backend for Metal {
    fn target(&self) -> &Target {
        &self.target
    }

    fn compile(&self, program: &Program) -> Result<Binary, IsaError> {
        Ok(Binary::plain(program, BinaryCode::File(self.text(program)?.into_bytes())))
    }

    /// The source: machine code is made by the driver, out of reach.
    fn listing(&self, binary: &Binary) -> Result<String, IsaError> {
        let BinaryCode::File(text) = &binary.code else { return Ok(String::new()) };
        String::from_utf8(text.clone()).map_err(|e| IsaError::NotCode { offset: e.utf8_error().valid_up_to() })
    }

    fn source(&self, program: &Program) -> Result<Option<String>, IsaError> {
        self.text(program).map(Some)
    }

    fn language(&self) -> Option<&'static str> {
        Some("metal")
    }

    fn assemble(&self, _kernel: &str, text: &str) -> Result<Vec<u8>, IsaError> {
        Ok(text.as_bytes().to_vec())
    }
}
