//! `asm`, `disasm` and `elf`: assemble, disassemble and describe object code.

use super::{CliError, Output};
use clap::Args;
use doorbell::elf::Machine;
use doorbell::elf::amdgpu::{self as code, CodeObject, KernelDescriptor, properties, rsrc1, rsrc2, rsrc3};
use doorbell::elf::cubin::{Arch, Cubin, is_cubin};
use doorbell::elf::parse::ElfFile;
use doorbell::isa::amdgpu::{Chip, Target, assemble};
use doorbell::isa::sass;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
pub(crate) struct AsmArgs {
    /// Chip: gfx1100, gfx942 or gfx1201; sm_80, sm_86, sm_89, sm_90, sm_90a or sm_120 for PTX or a SASS listing
    #[arg(long, visible_alias = "target")]
    arch: String,
    /// Assembler source; a file with the extension .ptx is PTX, any other a SASS listing
    file: PathBuf,
    /// Code object or cubin to write (without .amdhsa_kernel or .kernel: only the code)
    #[arg(short, long)]
    out: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct FileArgs {
    /// An object file: AMD code object, cubin or x86-64 ELF
    file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct DisasmArgs {
    /// An object file: AMD code object, cubin or x86-64 ELF
    file: PathBuf,
    /// The file is raw code for this chip: sm_90 or sm_90a
    #[arg(long, visible_alias = "target")]
    arch: Option<String>,
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    crate::files::read(path).map_err(|e| CliError::CouldNotRun(format!("{}: {e}", path.display())))
}

fn failed(path: &Path, e: &dyn std::fmt::Display) -> CliError {
    CliError::Failed(format!("{}: {e}", path.display()))
}

/// Assembles a source into a code object.
pub(crate) fn asm(args: &AsmArgs, out: Output) -> Result<(), CliError> {
    if doorbell::elf::cubin::is_arch(&args.arch) {
        return sass_asm(args, out);
    }
    let chip = Chip::parse(&args.arch).ok_or_else(|| {
        let names = Chip::ALL.map(Chip::name).join(", ");
        CliError::Usage(format!("chip {}: there are {names}, {} and sm_90a", args.arch, sass_chips()))
    })?;
    let text = String::from_utf8(read(&args.file)?).map_err(|e| failed(&args.file, &e))?;
    let assembled = assemble(Target::of(chip), &text).map_err(|e| failed(&args.file, &e))?;
    let bytes = if assembled.kernels.is_empty() {
        assembled.words.iter().flat_map(|w| w.to_le_bytes()).collect()
    } else {
        let kernels: Result<Vec<_>, String> =
            assembled.kernels.iter().map(|k| assembled.kernel_code(chip, k)).collect();
        let kernels = kernels.map_err(|e| failed(&args.file, &e))?;
        code::write(chip, &kernels).map_err(|e| failed(&args.file, &e))?
    };
    std::fs::write(&args.out, &bytes).map_err(|e| CliError::CouldNotRun(format!("{}: {e}", args.out.display())))?;
    let names: Vec<&str> = assembled.kernels.iter().map(|k| k.name.as_str()).collect();
    out.say(&format!(
        "{}: {} dwords of {}, kernels: {}",
        args.out.display(),
        assembled.words.len(),
        args.arch,
        names.join(", ")
    ));
    out.result(&json!({ "out": args.out, "bytes": bytes.len(), "dwords": assembled.words.len(), "kernels": names }));
    Ok(())
}

fn sass_chips() -> String {
    sass::SmArch::ALL.map(|c| c.to_string()).join(", ")
}

/// The chip of a SASS listing.
fn sass_chip(name: &str) -> Result<Arch, CliError> {
    let arch = Arch::parse(name).filter(|a| sass::SmArch::of(*a).is_some());
    arch.ok_or_else(|| {
        CliError::Usage(format!("chip {name}: there are tables of SASS for {} and sm_90a", sass_chips()))
    })
}

/// Assembles PTX or a listing and reports hazards in its schedule.
fn sass_asm(args: &AsmArgs, out: Output) -> Result<(), CliError> {
    let arch = sass_chip(&args.arch)?;
    let text = String::from_utf8(read(&args.file)?).map_err(|e| failed(&args.file, &e))?;
    let bytes = if args.file.extension().is_some_and(|e| e == "ptx") {
        sass::compile::assemble(&text, arch).map_err(|e| failed(&args.file, &e))?
    } else {
        sass::assemble_file(&text, arch).map_err(|e| failed(&args.file, &e))?
    };
    std::fs::write(&args.out, &bytes).map_err(|e| CliError::CouldNotRun(format!("{}: {e}", args.out.display())))?;
    let parts: Vec<(String, Vec<u8>)> = match Cubin::parse(&bytes) {
        Ok(cubin) => cubin.kernels.iter().map(|k| (k.name.clone(), cubin.code(k).to_vec())).collect(),
        // No kernel in it.
        Err(_) if is_cubin(&bytes) => vec![],
        Err(_) => vec![("code".to_owned(), bytes.clone())],
    };
    let mut hazards = Vec::new();
    let chip = sass::SmArch::of(arch).unwrap_or_default();
    for (name, code) in &parts {
        let words: Vec<u128> = code.as_chunks::<16>().0.iter().map(|w| u128::from_le_bytes(*w)).collect();
        let found =
            sass::check::check_for(&words, chip, sass::check::Trust::Safe).map_err(|e| failed(&args.file, &e))?;
        hazards.extend(found.iter().map(|h| format!("{name}: {h}")));
    }
    let names: Vec<&String> = parts.iter().map(|p| &p.0).collect();
    out.say(&format!("{}: {} bytes for {arch}, {} hazards", args.out.display(), bytes.len(), hazards.len()));
    hazards.iter().for_each(|h| out.say(h));
    out.result(&json!({ "out": args.out, "bytes": bytes.len(), "kernels": names, "hazards": hazards }));
    Ok(())
}

/// Writes the code of a file as text.
pub(crate) fn disasm(args: &DisasmArgs, out: Output) -> Result<(), CliError> {
    let bytes = read(&args.file)?;
    let text = match &args.arch {
        Some(name) => {
            sass_chip(name).map(|a| Ok(sass::words_listing(&bytes, sass::SmArch::of(a).unwrap_or_default())))?
        }
        None if code::is_amdgpu(&bytes) => gpu_text(&bytes),
        None if is_cubin(&bytes) => Cubin::parse(&bytes).map_err(|e| e.to_string()).and_then(|c| sass::listing(&c)),
        None => cpu_text(&bytes),
    };
    let text = text.map_err(|e| failed(&args.file, &e))?;
    out.say(text.trim_end());
    out.result(&json!({ "file": args.file, "text": text }));
    Ok(())
}

fn gpu_text(bytes: &[u8]) -> Result<String, String> {
    let object = CodeObject::parse(bytes).map_err(|e| e.to_string())?;
    doorbell::isa::amdgpu::listing(&object)
}

fn cpu_text(bytes: &[u8]) -> Result<String, String> {
    let file = ElfFile::parse_any(bytes).map_err(|e| e.to_string())?;
    let mut text = String::new();
    for section in file.sections().iter().filter(|s| s.header.sh_flags & doorbell::elf::abi::SHF_EXECINSTR != 0) {
        let _ = writeln!(text, "{}:", section.name);
        let code = file.contents(section).map_err(|e| e.to_string())?;
        let listing = match file.machine() {
            Machine::Aarch64 => {
                // What follows the functions are their constants.
                let functions = file.symbols().iter().filter(|s| s.kind() == doorbell::elf::abi::STT_FUNC);
                let end = functions.map(|s| s.sym.st_value.saturating_add(s.sym.st_size)).max();
                let end = end.and_then(|end| usize::try_from(end).ok()).unwrap_or(code.len());
                doorbell::isa::aarch64::codec::disassemble(code, end)
            }
            _ => doorbell::isa::x86_64::disassemble(code),
        };
        text.push_str(&listing.map_err(|e| e.to_string())?);
    }
    Ok(text)
}

/// Describes a file: sections, symbols, kernels.
pub(crate) fn elf(args: &FileArgs, out: Output) -> Result<(), CliError> {
    let bytes = read(&args.file)?;
    let file = ElfFile::parse_any(&bytes).map_err(|e| failed(&args.file, &e))?;
    let machine = format!("{:?}", file.machine());
    out.say(&format!("{machine}, {}", if file.is_relocatable() { "relocatable" } else { "linked" }));
    let mut sections = Vec::new();
    for s in file.sections().iter().filter(|s| s.header.sh_type != 0) {
        out.say(&format!(
            "section {:20} type {:#x} flags {:#x} {} bytes",
            s.name, s.header.sh_type, s.header.sh_flags, s.header.sh_size
        ));
        sections.push(
            json!({ "name": s.name, "type": s.header.sh_type, "flags": s.header.sh_flags, "bytes": s.header.sh_size }),
        );
    }
    let mut symbols = Vec::new();
    for s in file.symbols().iter().filter(|s| !s.name.is_empty()) {
        out.say(&format!("symbol  {:20} {:#x} {} bytes", s.name, s.sym.st_value, s.sym.st_size));
        symbols.push(json!({ "name": s.name, "value": s.sym.st_value, "bytes": s.sym.st_size, "binding": s.binding(), "kind": s.kind() }));
    }
    let kernels = match file.machine() {
        Machine::Amdgpu => kernels(args, &bytes, out)?,
        Machine::Cuda => cubin_kernels(args, &bytes, out)?,
        _ => Vec::new(),
    };
    out.result(&json!({ "machine": machine, "relocatable": file.is_relocatable(), "sections": sections, "symbols": symbols, "kernels": kernels }));
    Ok(())
}

fn kernels(args: &FileArgs, bytes: &[u8], out: Output) -> Result<Vec<Value>, CliError> {
    let object = CodeObject::parse(bytes).map_err(|e| failed(&args.file, &e))?;
    let gpu = object.gpu.map_or_else(code::machine_name, |g| g.name().to_owned());
    let mut all = Vec::new();
    for k in &object.kernels {
        let fields = descriptor_fields(&k.descriptor, object.gpu);
        out.say(&format!("kernel  {} for {gpu}: entry {:#x}, {} bytes of code", k.name, k.entry_offset, k.code_bytes));
        for (name, value) in &fields {
            out.say(&format!("        {name} {value}"));
        }
        k.remarks.iter().for_each(|remark| out.say(&format!("        {remark}")));
        let map: serde_json::Map<String, Value> = fields.into_iter().map(|(n, v)| (n, json!(v))).collect();
        all.push(
            json!({ "name": k.name, "gpu": gpu, "entry": k.entry_offset, "descriptor": map, "remarks": k.remarks }),
        );
    }
    Ok(all)
}

fn cubin_kernels(args: &FileArgs, bytes: &[u8], out: Output) -> Result<Vec<Value>, CliError> {
    let cubin = Cubin::parse(bytes).map_err(|e| failed(&args.file, &e))?;
    cubin.undefined().iter().for_each(|name| out.say(&format!("undefined {name}: the runtime provides it")));
    let mut all = Vec::new();
    for k in &cubin.kernels {
        let stack = k.stack_bytes.map_or_else(|| "without bound".to_owned(), |n| format!("{n} bytes"));
        out.say(&format!("kernel  {} for sm_{}: {} bytes of code", k.name, cubin.sm, k.code_bytes));
        out.say(&format!(
            "        {} registers, {} barriers, {} bytes of shared memory, stack {stack}",
            k.registers, k.barriers, k.shared_bytes
        ));
        for p in &k.params {
            out.say(&format!("        parameter at {:#x} of bank 0, {} bytes", k.param_base + p.offset, p.len_bytes));
        }
        let params: Vec<Value> = k.params.iter().map(|p| json!({ "offset": p.offset, "bytes": p.len_bytes })).collect();
        all.push(json!({
            "name": k.name, "gpu": format!("sm_{}", cubin.sm), "entry": k.code_offset, "registers": k.registers,
            "barriers": k.barriers, "shared_bytes": k.shared_bytes, "stack_bytes": k.stack_bytes,
            "param_base": k.param_base, "params": params,
        }));
    }
    Ok(all)
}

/// Fields of a descriptor by name.
fn descriptor_fields(d: &KernelDescriptor, gpu: Result<Chip, u32>) -> Vec<(String, i64)> {
    let mut fields = vec![
        ("group_segment_fixed_size".to_owned(), i64::from(d.group_segment_bytes)),
        ("private_segment_fixed_size".to_owned(), i64::from(d.private_segment_bytes)),
        ("kernarg_size".to_owned(), i64::from(d.kernarg_bytes)),
        ("kernel_code_entry_byte_offset".to_owned(), d.entry_offset_bytes),
    ];
    let gfx9 = gpu.is_ok_and(Chip::is_gfx9);
    let third = |f: &&code::BitField| gfx9 == (**f == rsrc3::ACCUM_OFFSET || **f == rsrc3::TG_SPLIT);
    let words = [(d.rsrc1, rsrc1::ALL), (d.rsrc2, rsrc2::ALL), (u32::from(d.properties), properties::ALL)];
    for (word, all) in words {
        fields.extend(all.iter().map(|f| (f.name.to_owned(), i64::from(f.get(word)))));
    }
    fields.extend(rsrc3::ALL.iter().filter(third).map(|f| (f.name.to_owned(), i64::from(f.get(d.rsrc3)))));
    fields
}
