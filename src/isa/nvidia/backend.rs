//! The back end for NVIDIA's GPUs: linear program → PTX module → cubin.
//!
//! Place in the architecture: `ptx` renders, `sass::compile` assembles the module to a cubin (for all chips except
//! sm_75, sm_87 and sm_100). Another assembler that takes text, such as NVIDIA's ptxas, can replace it ([`Assemble`]).
//! PTX text is printed only for such an assembler, for display and for files.

use super::matrix;
use super::ptx::{Buffers, Chip, Module, RenderError, launch_shared_bytes, render};
use super::sass::{self, compile};
use doorbell_codegen::{Program, Target};
use doorbell_elf::cubin::{Arch, Cubin};
use doorbell_isa::{Backend, Binary, BinaryCode, IsaError};
use std::fmt;
use std::sync::Arc;

/// An assembler of PTX text that replaces ours.
pub trait Assemble: Send + Sync + fmt::Debug {
    /// Assembles a text to a cubin for the chip of that name.
    ///
    /// # Errors
    /// The assembler's error message.
    fn assemble(&self, chip: &str, text: &str) -> Result<Vec<u8>, String>;
}

/// What generates the machine code.
#[derive(Clone, Debug)]
enum Assembler {
    Ours,
    Other(Arc<dyn Assemble>),
    /// Nothing: compilation ends with PTX text.
    None,
}

/// Features that kernels may use beyond those of every chip of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Matrix units that ignore the last 13 bits of f32 factors (tf32).
    pub tf32: bool,
    /// Copying tiles by the tensor memory accelerator.
    pub tma: bool,
}

impl Default for Features {
    fn default() -> Features {
        Features { tf32: false, tma: true }
    }
}

/// The back end for one chip.
#[derive(Clone, Debug)]
pub struct Nvidia {
    chip: &'static Chip,
    target: Target,
    assembler: Assembler,
}

impl Nvidia {
    /// With our assembler.
    #[must_use]
    pub const fn new(chip: &'static Chip, features: Features) -> Nvidia {
        let known = chip.target();
        let tma_copies = known.tma_copies && features.tma;
        let target = Target { tensor_cores: chip.tensor_cores(features.tf32), tma_copies, ..known };
        Nvidia { chip, target, assembler: Assembler::Ours }
    }

    /// With another assembler.
    #[must_use]
    pub fn assembled_by(self, other: Arc<dyn Assemble>) -> Nvidia {
        Nvidia { assembler: Assembler::Other(other), ..self }
    }

    /// Without machine code: for a device that executes nothing, also for chips that our assembler has no table for.
    #[must_use]
    pub fn text_only(self) -> Nvidia {
        Nvidia { assembler: Assembler::None, ..self }
    }

    fn module(&self, program: &Program) -> Result<Module, IsaError> {
        render(program, self.chip, Buffers::Anywhere).map_err(|e| match e {
            RenderError::Malformed { kernel, why } => IsaError::Malformed { kernel, why },
            e => {
                let (kernel, why) = (program.name.clone(), e.to_string());
                let why = why.strip_prefix(&format!("{kernel}: ")).map_or_else(|| why.clone(), str::to_owned);
                IsaError::Source { kernel, why }
            }
        })
    }

    /// The chip in the assembler's terms.
    fn arch(&self) -> Result<Arch, String> {
        assembled(self.chip.name).ok_or_else(|| no_code(self.chip.name).unwrap_or_default())
    }

    fn text_to_cubin(&self, text: &str) -> Result<Vec<u8>, String> {
        match &self.assembler {
            Assembler::Other(other) => other.assemble(self.chip.name, text),
            _ => compile::assemble(text, self.arch()?).map_err(|e| format!("PTX {e}; {OTHER}")),
        }
    }

    fn module_to_cubin(&self, module: &Module) -> Result<Vec<u8>, String> {
        if let Assembler::Other(_) = self.assembler {
            return self.text_to_cubin(&module.to_string());
        }
        // A rendered module has no text positions. On an error, its text is assembled, to report line and column.
        compile::assemble_module(module, self.arch()?).or_else(|_| self.text_to_cubin(&module.to_string()))
    }
}

/// A chip that our assembler has a table for.
fn assembled(chip: &str) -> Option<Arch> {
    Arch::parse(chip).filter(|arch| sass::SmArch::of(*arch).is_some())
}

/// Why no machine code is made for a chip (without NVIDIA's ptxas), and for which it is; `None` where it is made.
#[must_use]
pub fn no_code(chip: &str) -> Option<String> {
    if assembled(chip).is_some() {
        return None;
    }
    let made: Vec<&str> = super::ptx::CHIPS.iter().map(|c| c.name).filter(|c| assembled(c).is_some()).collect();
    Some(format!("no machine code is made for {chip}, but for {}; {OTHER}", made.join(", ")))
}

const OTHER: &str = "PTXAS=path names NVIDIA's ptxas in its place";

impl Backend for Nvidia {
    fn target(&self) -> &Target {
        &self.target
    }

    fn makes_code(&self) -> bool {
        !matches!(self.assembler, Assembler::None)
    }

    fn compile(&self, program: &Program) -> Result<Binary, IsaError> {
        let arguments = matrix::arguments(program)?;
        let shared_bytes = u32::try_from(launch_shared_bytes(program)).unwrap_or(u32::MAX);
        let mut binary = Binary { shared_bytes, arguments, ..Binary::plain(program, BinaryCode::None) };
        if let (Assembler::Ours, Some(why)) = (&self.assembler, no_code(self.chip.name)) {
            return Err(IsaError::NoCode { why });
        }
        if self.makes_code() {
            let cubin = self.module_to_cubin(&self.module(program)?);
            let refused = |why| IsaError::Source { kernel: program.name.clone(), why };
            binary.code = BinaryCode::File(cubin.map_err(refused)?);
        }
        Ok(binary)
    }

    /// SASS with its control words, if there is a table for the chip.
    fn listing(&self, binary: &Binary) -> Result<String, IsaError> {
        let BinaryCode::File(cubin) = &binary.code else { return Ok(String::new()) };
        let sass = Cubin::parse(cubin).map_err(|e| e.to_string()).and_then(|c| sass::listing(&c));
        Ok(sass.unwrap_or_else(|why| format!("// {why}")))
    }

    fn source(&self, program: &Program) -> Result<Option<String>, IsaError> {
        Ok(Some(self.module(program)?.to_string()))
    }

    fn language(&self) -> Option<&'static str> {
        Some("ptx")
    }

    fn assemble(&self, kernel: &str, text: &str) -> Result<Vec<u8>, IsaError> {
        self.text_to_cubin(text).map_err(|why| IsaError::Source { kernel: kernel.into(), why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n";

    fn of(chip: &str) -> Nvidia {
        Nvidia::new(Chip::parse(chip).unwrap(), Features::default())
    }

    #[test]
    fn without_ptxas_our_assembler_makes_the_cubin_and_says_what_it_cannot() {
        let code = of("sm_90");
        let cubin = code.assemble("k", TEXT).unwrap();
        assert_eq!(Cubin::parse(&cubin).unwrap().kernels[0].name, "k");
        let error = code
            .assemble("k", &TEXT.replace("ret;", "{ .reg .b32 %v; vadd2.u32.u32.u32 %v, %v, %v, %v; } ret;"))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("k: PTX 4:") && error.ends_with("PTXAS=path names NVIDIA's ptxas in its place"),
            "{error}"
        );
        for name in ["sm_80", "sm_86", "sm_89", "sm_120"] {
            let cubin = of(name).assemble("k", &TEXT.replace("sm_90", "sm_80")).unwrap();
            assert_eq!(format!("sm_{}", Cubin::parse(&cubin).unwrap().sm), name);
        }
        let error = of("sm_75").assemble("k", TEXT).unwrap_err().to_string();
        let other = "PTXAS=path names NVIDIA's ptxas in its place";
        assert!(error.starts_with("k: no machine code is made for sm_75, but for sm_80, sm_86,"), "{error}");
        assert!(error.ends_with(other), "{error}");
    }

    #[test]
    fn a_module_that_is_refused_is_refused_with_a_place_in_its_text() {
        let text = TEXT.replace("ret;", "{ .reg .b32 %v; vadd2.u32.u32.u32 %v, %v, %v, %v; } ret;");
        let module = super::super::ptx::parse(&text).unwrap();
        let error = of("sm_90").module_to_cubin(&module).unwrap_err();
        assert!(error.starts_with("PTX 9:"), "{error}");
    }

    #[test]
    fn another_assembler_is_given_the_text() {
        #[derive(Debug)]
        struct Echo;
        impl Assemble for Echo {
            fn assemble(&self, chip: &str, text: &str) -> Result<Vec<u8>, String> {
                if text.is_empty() { Err("no text".into()) } else { Ok(format!("{chip} {text}").into_bytes()) }
            }
        }
        let code = of("sm_75").assembled_by(Arc::new(Echo));
        assert_eq!(code.assemble("k", "text").unwrap(), b"sm_75 text");
        assert_eq!(code.assemble("k", "").unwrap_err().to_string(), "k: no text");
        let module = super::super::ptx::parse(TEXT).unwrap();
        assert_eq!(code.module_to_cubin(&module).unwrap(), format!("sm_75 {module}").into_bytes());
    }
}
