//! The kernels of the tensor suite as another compiler sees them: the text that a Mac would compile, through clang with
//! typed address spaces, and through a scan for what C++ cannot see.
//!
//! Place: the last step of `cargo xtask suite`. The suite on the software Metal keeps its sources in `FOLDER`; equal
//! texts are checked once, and many kernels are one file for clang, each in a namespace of its own.

use crate::run::{Failure, root};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const STEP: &str = "msl";
/// Where the suite keeps the sources (`SOURCES`).
pub const FOLDER: &str = "target/msl";
/// Kernels in one file for clang.
const BATCH: usize = 100;
/// Slots for buffers and variables.
const SLOTS: usize = 31;
const THREADGROUP_BYTES: usize = 32 << 10;
/// Parameters that are no buffers.
const POSITIONS: [&str; 2] = ["[[threadgroup_position_in_grid]]", "[[thread_position_in_threadgroup]]"];

/// One kernel.
struct Kernel {
    /// Its file's name.
    name: String,
    text: String,
}

fn failed(why: String) -> Failure {
    Failure::Failed { step: STEP.to_owned(), status: why }
}

/// Removes what earlier runs have kept.
pub fn clear() -> Result<(), Failure> {
    let folder = root().join(FOLDER);
    match std::fs::remove_dir_all(&folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(failed(format!("{}: {e}", folder.display()))),
        _ => Ok(()),
    }
}

/// Checks every kernel that was kept; and that wrong ones are found.
pub fn check() -> Result<(), Failure> {
    for (wrong, expected) in WRONG {
        let kernel = Kernel { name: "wrong".into(), text: format!("{HEAD}{wrong}") };
        let found = [scan(&kernel.text), clang(&[kernel])?].concat();
        if !found.iter().any(|line| line.contains(expected)) {
            return Err(failed(format!("not found: {expected} in {wrong}: {found:?}")));
        }
    }
    let kernels = kernels(&root().join(FOLDER))?;
    if kernels.is_empty() {
        return Err(failed(format!("{FOLDER} has no kernel: the suite on Metal keeps them there")));
    }
    let batches: Vec<&[Kernel]> = kernels.chunks(BATCH).collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<(), Failure> {
        while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
            let scanned =
                batch.iter().flat_map(|k| scan(&k.text).into_iter().map(|line| format!("{}: {line}", k.name)));
            let lines: Vec<String> = scanned.chain(clang(batch)?).collect();
            found.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(lines);
        }
        Ok(())
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| Err(failed("a thread panicked".into()))))
    })?;
    let found = found.into_inner().unwrap_or_default();
    println!("   {} kernels of different text, {} wrong ones found on purpose", kernels.len(), WRONG.len());
    found.iter().take(20).for_each(|line| println!("   {line}"));
    if found.is_empty() { Ok(()) } else { Err(failed(format!("{} complaints", found.len()))) }
}

/// The kernels of a folder, each text once: names do not make a difference.
fn kernels(folder: &Path) -> Result<Vec<Kernel>, Failure> {
    let list = std::fs::read_dir(folder).map_err(|e| failed(format!("{}: {e}", folder.display())))?;
    let mut all = BTreeMap::new();
    for file in list.flatten() {
        let text = std::fs::read_to_string(file.path()).map_err(|e| failed(e.to_string()))?;
        let name = file.file_name().to_string_lossy().into_owned();
        // The file's name is the kernel's and a number.
        let own = name.rsplit_once('-').map_or("", |(own, _)| own);
        all.entry(text.replace(&format!("kernel void {own}("), "kernel void k(")).or_insert(name);
    }
    Ok(all.into_iter().map(|(text, name)| Kernel { name, text }).collect())
}

/// Kernels as one file in C++: clang knows no automatic variables in an address space.
fn as_cpp(batch: &[Kernel]) -> String {
    let mut out = String::from("#include <metal_stdlib>\n");
    for (n, kernel) in batch.iter().enumerate() {
        let _ = writeln!(out, "namespace case{n} {{ using namespace metal;\n#line 1 \"{}\"", kernel.name);
        for line in kernel.text.lines() {
            let is_head =
                line.starts_with("#include") || line.starts_with("#pragma METAL") || line.starts_with("using ");
            let is_area = line.trim_start().starts_with("threadgroup ");
            let _ = writeln!(out, "{}{}", if is_area { "static " } else { "" }, if is_head { "" } else { line });
        }
        out.push_str("}\n");
    }
    out
}

/// Clang's complaints about kernels, each with the kernel's name and line.
fn clang(batch: &[Kernel]) -> Result<Vec<String>, Failure> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let file = root().join(format!("target/msl-{}-{number}.cpp", std::process::id()));
    std::fs::write(&file, as_cpp(batch)).map_err(|e| failed(format!("{}: {e}", file.display())))?;
    let mut command = Command::new("clang++-19");
    command.args(["-std=c++17", "-fsyntax-only", "-ferror-limit=0", "-fno-exceptions", "-fno-rtti", "-nostdinc"]);
    command.args(["-Wno-everything", "-Werror=double-promotion", "-Werror=implicit-float-conversion"]);
    command.args(["-Werror=return-type", "-Werror=uninitialized", "-Werror=vla-cxx-extension", "-I"]);
    let done = command.arg(root().join("tools/xtask/msl")).arg(&file).output();
    let _it_was_for_clang_alone = std::fs::remove_file(&file);
    let done = done.map_err(|e| Failure::NotStarted { step: STEP.to_owned(), reason: format!("clang++-19: {e}") })?;
    let said = String::from_utf8_lossy(&done.stderr);
    let lines: Vec<String> = said.lines().filter(|line| line.contains("error:")).map(str::to_owned).collect();
    match (done.status.success(), lines.is_empty()) {
        (false, true) => Err(failed(format!("clang++-19: {said}"))),
        _ => Ok(lines),
    }
}

/// What is wrong with a kernel that C++ does not see.
fn scan(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    // Casts of pointers change the address space without a complaint of clang.
    if ["*)", "&)", "_cast"].iter().any(|sign| text.contains(sign)) {
        found.push("a cast of a pointer".into());
    }
    let heads: Vec<&str> = text.split("kernel ").skip(1).collect();
    if heads.len() != 1 || !heads.iter().all(|head| head.starts_with("void ")) {
        found.push("not one kernel that returns nothing".into());
    }
    let parameters = heads.first().and_then(|head| head.split_once('(')?.1.split_once(") {")).map_or("", |p| p.0);
    let mut slots = 0;
    for parameter in parameters.split(",\n").map(str::trim) {
        if parameter.ends_with(&format!("[[buffer({slots})]]")) {
            slots += 1;
            if !(parameter.starts_with("device ") || parameter.starts_with("constant ")) {
                found.push(format!("a buffer in no address space: {parameter}"));
            }
        } else if !POSITIONS.iter().any(|p| parameter.ends_with(p)) {
            found.push(format!("a parameter that is neither the next buffer nor a position: {parameter}"));
        }
    }
    if slots > SLOTS {
        found.push(format!("{slots} buffers and variables"));
    }
    let bytes: usize = text.lines().filter_map(|line| area(line.trim_start().strip_prefix("threadgroup ")?)).sum();
    if bytes > THREADGROUP_BYTES {
        found.push(format!("{bytes} bytes of threadgroup memory"));
    }
    // An exponent's sign is no operator.
    let text = text.replace("e-", "e");
    found.extend(text.split(|c: char| !(c.is_ascii_alphanumeric() || "._".contains(c))).find_map(unmarked));
    found
}

/// Bytes of an area, `float local0[64];`.
fn area(declared: &str) -> Option<usize> {
    let (kind, rest) = declared.split_once(' ')?;
    let size = match kind {
        "char" | "uchar" | "bool" => 1,
        "short" | "ushort" | "half" | "bfloat" => 2,
        "long" | "ulong" => 8,
        _ => 4,
    };
    let count: usize = rest.split_once('[')?.1.split_once(']')?.0.parse().ok()?;
    Some(count * size)
}

/// A number with a point that has no `f` or `h` at its end: `double` in C++.
fn unmarked(word: &str) -> Option<String> {
    let is_number =
        word.starts_with(|c: char| c.is_ascii_digit()) && !word.starts_with("0x") && word.contains(['.', 'e']);
    (is_number && !word.ends_with(['f', 'h'])).then(|| format!("a number without a suffix: {word}"))
}

const HEAD: &str = "#include <metal_stdlib>\nusing namespace metal;\n";

/// Kernels that are wrong, and what is said about each.
const WRONG: &[(&str, &str)] = &[
    ("kernel void k(\n    device float* x [[buffer(0)]]) {\n    y = 1.0f;\n}", "undeclared identifier 'y'"),
    ("kernel void k(\n    device float* x [[buffer(0)]]) {\n    float* p = x;\n}", "cannot initialize"),
    ("kernel void k(\n    device float* x [[buffer(0)]]) {\n    threadgroup float* p = x;\n}", "cannot initialize"),
    ("kernel void k(\n    device float* x [[buffer(0)]]) {\n    float* p = (float*)x;\n}", "a cast of a pointer"),
    ("kernel void k(\n    constant int& n [[buffer(0)]]) {\n    n = 1;\n}", "const"),
    ("kernel void k(\n    device const float* x [[buffer(0)]]) {\n    x[0] = 1.0f;\n}", "read-only"),
    (
        "kernel void k(\n    device float* x [[buffer(0)]]) {\n    x[0] = x[0] * 2.0;\n}",
        "a number without a suffix: 2.0",
    ),
    ("kernel void k(\n    device float* x [[buffer(0)]]) {\n    double y = x[0];\n}", "double_is_no_type_of_metal"),
    (
        "kernel void k(\n    device float* x [[buffer(0)]]) {\n    x[0] = sinh2(x[0]);\n}",
        "undeclared identifier 'sinh2'",
    ),
    ("kernel void k(\n    device long* x [[buffer(0)]]) {\n    x[0] = simd_shuffle_xor(x[0], 1);\n}", "ambiguous"),
    ("kernel void k(\n    device half* x [[buffer(0)]]) {\n    x[0] = as_type<half>(1.0f);\n}", "two sizes"),
    ("kernel void k(\n    device float* x [[buffer(1)]]) {\n    x[0] = 1.0f;\n}", "neither the next buffer"),
    ("kernel void k(\n    float x [[buffer(0)]]) {\n    float y = x;\n}", "no address space"),
    ("kernel void k(\n    device float* x [[buffer(0)]],\n    uint i [[thread_position]]) {\n}", "nor a position"),
    ("kernel int k(\n    device float* x [[buffer(0)]]) {\n    return 1;\n}", "returns nothing"),
    ("kernel void k(\n    device float* x [[buffer(0)]]) {\n    threadgroup float local0[8193];\n}", "32772 bytes"),
    (
        "kernel void k(\n    device bfloat* x [[buffer(0)]]) {\n    x[0] = float(x[0]) + 1.0f;\n}",
        "loses floating-point precision",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "kernel void k(\n    device float* data0 [[buffer(0)]],\n    constant int& n0 [[buffer(1)]],\n    uint3 gid [[threadgroup_position_in_grid]],\n    uint3 lid [[thread_position_in_threadgroup]]) {\n    threadgroup half local0[16];\n    data0[gid.x] = 1.0f + 1e-5f;\n}\n";

    #[test]
    fn a_kernel_as_it_is_printed_passes_the_scan() {
        assert_eq!(scan(&format!("{HEAD}{GOOD}")), Vec::<String>::new());
        assert_eq!((area("half local0[16];"), area("uchar local1[3];")), (Some(32), Some(3)));
    }

    #[test]
    fn each_kernel_is_a_namespace_with_lines_of_its_own() {
        let kernels = [Kernel { name: "a-1".into(), text: format!("{HEAD}{GOOD}") }];
        let text = as_cpp(&kernels);
        assert!(
            text.contains("namespace case0 { using namespace metal;\n#line 1 \"a-1\"\n\n\nkernel void k("),
            "{text}"
        );
        assert!(text.contains("\nstatic     threadgroup half local0[16];"), "{text}");
    }

    #[test]
    fn numbers_with_a_point_need_a_suffix() {
        assert_eq!(unmarked("1.0f"), None);
        assert_eq!((unmarked("0x1e"), unmarked("v1"), unmarked("17")), (None, None, None));
        assert!(unmarked("1.5").is_some() && unmarked("1e10").is_some());
    }
}
