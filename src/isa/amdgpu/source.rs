//! Assembler source → code: lines of instructions, labels, and the directives that describe kernels.
//!
//! Known directives: `.text`, `.section`, `.globl`, `.p2align`, `.type`, `.size`, `.amdgcn_target` (accepted and
//! ignored where they change nothing), `.long`, `.amdhsa_kernel` to `.end_amdhsa_kernel`. Comments begin with `;` or
//! `//`. Code is in `.text` only; other sections hold nothing but descriptions of kernels.

use super::asm::{AsmError, Assembler, Label};
use super::chip::Target;
use super::describe;
use super::parse::{number, parse};
use super::reg::Operand;
use std::collections::HashMap;
use thiserror::Error;

/// A kernel that the source describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceKernel {
    pub name: String,
    /// Directives without `.amdhsa_`, in order; each is known and its number fits.
    pub settings: Vec<(&'static str, u32)>,
}

/// What a source assembles to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembled {
    pub words: Vec<u32>,
    /// Labels and their dword offsets, in order.
    pub labels: Vec<(String, usize)>,
    pub kernels: Vec<SourceKernel>,
}

/// Why a source does not assemble. Lines and columns count from 1.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {line}, column {column}: {what}")]
pub struct SourceError {
    pub line: usize,
    pub column: usize,
    pub what: String,
}

/// Assembles a whole source.
///
/// # Errors
/// The first line that cannot be read or encoded, or a label that is missing.
pub fn assemble(target: Target, source: &str) -> Result<Assembled, SourceError> {
    let asm = Assembler::new(target);
    let mut state = Source { asm, labels: HashMap::new(), out: Assembled::default(), open: None, in_text: true };
    for (index, text) in source.lines().enumerate() {
        let code = text.split("//").next().unwrap_or_default().split(';').next().unwrap_or_default();
        state.line(code).map_err(|(column, what)| SourceError { line: index + 1, column, what })?;
    }
    let end = |what: String| SourceError { line: source.lines().count(), column: 1, what };
    if let Some(kernel) = &state.open {
        return Err(end(format!(".amdhsa_kernel {} has no end", kernel.name)));
    }
    let mut names: Vec<(String, u32)> = state.labels.iter().map(|(n, l)| (n.clone(), l.0)).collect();
    names.sort_unstable();
    let Source { asm, mut out, .. } = state;
    out.words = asm.finish().map_err(|e| match e {
        AsmError::Unbound { label } => {
            let name = names.iter().find(|n| n.1 == label).map_or("?", |n| n.0.as_str());
            end(format!("label {name} is used and stands nowhere"))
        }
        other => end(other.to_string()),
    })?;
    Ok(out)
}

struct Source {
    asm: Assembler,
    labels: HashMap<String, Label>,
    out: Assembled,
    open: Option<SourceKernel>,
    /// Whether the current section is `.text`.
    in_text: bool,
}

type Fault = (usize, String);

impl Source {
    fn line(&mut self, code: &str) -> Result<(), Fault> {
        let mut rest = code.trim();
        while let Some((name, after)) = rest.split_once(':').filter(|(n, after)| is_name(n) && !after.starts_with(':'))
        {
            let label = label(&mut self.labels, &mut self.asm, name);
            self.asm.bind(label).map_err(|_| (1, format!("label {name} stands twice")))?;
            self.out.labels.push((name.to_owned(), self.asm.len_dwords()));
            rest = after.trim();
        }
        if rest.is_empty() {
            return Ok(());
        }
        if rest.starts_with('.') {
            return self.directive(rest).map_err(|what| (1, what));
        }
        if !self.in_text {
            return Err((1, "an instruction outside .text".into()));
        }
        let (labels, asm) = (&mut self.labels, &mut self.asm);
        let target = asm.target();
        let mut resolve = |name: &str| is_name(name).then(|| Operand::from(label(labels, asm, name)));
        // Columns count from the line's start, labels and all.
        let before = code.rfind(rest).unwrap_or(0);
        let inst = parse(target, rest, &mut resolve).map_err(|e| (before + e.column, e.what))?;
        self.asm.push(&inst).map_err(|e| match e {
            AsmError::Encode { error, .. } => (1, error.to_string()),
            other => (1, other.to_string()),
        })
    }

    fn directive(&mut self, text: &str) -> Result<(), String> {
        let (name, args) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let args = args.trim();
        if name == ".end_amdhsa_kernel" {
            let kernel = self.open.take().ok_or(".end_amdhsa_kernel without a beginning")?;
            self.out.kernels.push(kernel);
            return Ok(());
        }
        if let Some(kernel) = &mut self.open {
            let key = name.strip_prefix(".amdhsa_").ok_or_else(|| format!("{name} inside .amdhsa_kernel"))?;
            let value = number(args).ok_or_else(|| format!("{name}: {args:?} is no number"))?;
            kernel.settings.push(describe::setting(self.asm.target().chip, key, value)?);
            return Ok(());
        }
        match name {
            ".amdhsa_kernel" => {
                self.open = Some(SourceKernel { name: args.to_owned(), settings: Vec::new() });
                Ok(())
            }
            ".p2align" if !self.in_text => Ok(()),
            ".p2align" => self.align(args),
            ".long" if !self.in_text => Err(".long outside .text".into()),
            ".long" => {
                let value = number(args).and_then(super::constant::word);
                self.asm.push_words(&[value.ok_or_else(|| format!(".long: {args:?} is no 32-bit number"))?]);
                Ok(())
            }
            ".text" | ".section" | ".rodata" => {
                let section = if name == ".section" { args.split(',').next().unwrap_or_default().trim() } else { name };
                self.in_text = section == ".text";
                Ok(())
            }
            ".globl" | ".protected" | ".type" | ".size" | ".amdgcn_target" => Ok(()),
            _ => Err(format!("unknown directive {name}")),
        }
    }

    /// Fills with s_nop up to a power of two of bytes.
    fn align(&mut self, args: &str) -> Result<(), String> {
        let first = args.split(',').next().unwrap_or_default();
        let power = number(first)
            .filter(|p| (0..=12).contains(p))
            .ok_or_else(|| format!(".p2align: {args:?} is not 0 to 12"))?;
        let dwords = (1usize << power).div_ceil(4);
        while !self.asm.len_dwords().is_multiple_of(dwords) {
            self.asm.push_words(&[0xbf80_0000]);
        }
        Ok(())
    }
}

fn label(labels: &mut HashMap<String, Label>, asm: &mut Assembler, name: &str) -> Label {
    *labels.entry(name.to_owned()).or_insert_with(|| asm.label())
}

fn is_name(text: &str) -> bool {
    let head = text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '.' | '$'));
    head && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$'))
}

#[cfg(test)]
mod tests {
    use super::super::chip::Chip;
    use super::*;

    #[test]
    fn an_instruction_may_stand_behind_its_label_and_its_fault_has_the_lines_column() {
        let target = Target::of(Chip::Gfx1100);
        assert_eq!(assemble(target, "again: s_branch again").map(|a| a.words), Ok(vec![0xbfa0_ffff]));
        let error = assemble(target, "  a: b: s_nonsense 1").unwrap_err();
        assert_eq!((error.line, error.column), (1, 9));
    }
}
