//! The kernels of an object file, for the error message about a missing kernel.

use doorbell::elf::abi::{STB_GLOBAL, STT_FUNC};
use doorbell::elf::amdgpu::{CodeObject, is_amdgpu, machine_name};
use doorbell::elf::cubin::{Cubin, is_cubin};
use doorbell::elf::parse::{ElfFile, FileSymbol, Place};

/// The file's machine and the names of its kernels.
pub(crate) fn contents(bytes: &[u8]) -> String {
    let found = match () {
        () if bytes.starts_with(b"MTLB") => return "a metallib".to_owned(),
        () if !bytes.is_empty() && std::str::from_utf8(bytes).is_ok() => {
            return "no object code (it is text)".to_owned();
        }
        () if is_amdgpu(bytes) => code_object(bytes),
        () if is_cubin(bytes) => cubin(bytes),
        () => elf_file(bytes),
    };
    match found {
        Ok((machine, names)) if names.is_empty() => format!("{machine} code: no kernel"),
        Ok((machine, names)) => format!("{machine} code: {}", names.join(", ")),
        Err(e) => format!("no object code ({e})"),
    }
}

fn code_object(bytes: &[u8]) -> Result<(String, Vec<String>), String> {
    let object = CodeObject::parse(bytes).map_err(|e| e.to_string())?;
    let machine = object.gpu.map_or_else(machine_name, |gpu| gpu.name().to_owned());
    Ok((machine, sorted(object.kernels.iter().map(|k| k.name.as_str()))))
}

fn cubin(bytes: &[u8]) -> Result<(String, Vec<String>), String> {
    let cubin = Cubin::parse(bytes).map_err(|e| e.to_string())?;
    Ok((format!("sm_{}", cubin.sm), sorted(cubin.kernels.iter().map(|k| k.name.as_str()))))
}

fn elf_file(bytes: &[u8]) -> Result<(String, Vec<String>), String> {
    let file = ElfFile::parse_any(bytes).map_err(|e| e.to_string())?;
    let is_entry =
        |s: &&FileSymbol<'_>| (s.kind(), s.binding()) == (STT_FUNC, STB_GLOBAL) && !matches!(s.place, Place::Undefined);
    let names = sorted(file.symbols().iter().filter(is_entry).map(|s| s.name));
    Ok((format!("{:?}", file.machine()), names))
}

fn sorted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut all: Vec<String> = names.map(str::to_owned).collect();
    all.sort_unstable();
    all
}
