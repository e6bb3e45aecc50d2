//! What a Mac would be given: the programs linted, compiled and linked for it on this machine.
//!
//! Place: the steps of `cargo xtask metal`. There is no linker or system of Apple's here: rustup has the standard
//! library for that target, rustc brings LLVM's linker, and `tools/macos-stubs` names every symbol of the system that
//! the programs may refer to. So a misspelt function, or one that nobody looked up, is an error of the link that names
//! it.

use crate::run::{Failure, Step, call, output, root, start};
use crate::setup::{self, MACOS};
use std::process::Command;

const STEP: &str = "metal";
/// What stands in for the folder of Apple's SDK.
const STUBS: &str = "tools/macos-stubs";
/// The oldest system that the programs are linked for, and the one that the stubs speak of.
const OLDEST: &str = "14.0";
/// Where the programs are linked to.
const FOLDER: &str = "target/aarch64-apple-darwin/linked";
/// The programs: everything but the allocator, which is in C.
const PROGRAMS: &str = "--package doorbell-cli --package metal-first-contact --bins \
                        --no-default-features --features cpu,amd,nv,metal,emu";
/// What a program that opens the GPU is linked with.
const LIBRARIES: [&str; 5] = [
    "/usr/lib/libSystem.B.dylib",
    "/usr/lib/libobjc.A.dylib",
    "/System/Library/Frameworks/Foundation.framework/Versions/C/Foundation",
    "/System/Library/Frameworks/Metal.framework/Versions/A/Metal",
    "/System/Library/Frameworks/CoreGraphics.framework/Versions/A/CoreGraphics",
];

/// The steps. The programs are linted as they are compiled: Clippy takes the place of the compiler for the packages of
/// the workspace, so that nothing is read twice.
pub fn steps(_: &[String]) -> Vec<Step> {
    let stubs = root().join(STUBS);
    let stubs = stubs.canonicalize().unwrap_or(stubs);
    let build = format!(
        "env SDKROOT={} MACOSX_DEPLOYMENT_TARGET={OLDEST} CARGO_TARGET_AARCH64_APPLE_DARWIN_LINKER=rust-lld \
         RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__ \
         cargo build --quiet --profile linked --target {MACOS} {PROGRAMS}",
        stubs.display()
    );
    vec![
        call(STEP, setup::macos_library),
        start(STEP, &build),
        call(STEP, libraries),
        call(STEP, || misspelt(&["MTLCreateSystemDefaultDevice"], None)),
        call(STEP, || misspelt(&["MTLCreateSystemDefaultDevise"], Some("_MTLCreateSystemDefaultDevise"))),
    ]
}

fn failed(why: String) -> Failure {
    Failure::Failed { step: STEP.to_owned(), status: why }
}

/// Each program needs the libraries that it has to have on a Mac, and no other.
fn libraries() -> Result<(), Failure> {
    for program in ["doorbell", "metal-first-contact"] {
        let words = ["llvm-objdump-19", "--macho", "--dylibs-used", &format!("{FOLDER}/{program}")];
        let text = output(STEP, &words.map(str::to_owned))?;
        let mut found: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
        found.sort_unstable();
        let mut expected = LIBRARIES;
        expected.sort_unstable();
        if found != expected {
            return Err(failed(format!("{program} needs {found:?}, expected {expected:?}")));
        }
        println!("   {program}: Metal, Foundation, CoreGraphics, libobjc and libSystem");
    }
    Ok(())
}

/// Links a program that refers to functions of Metal: it links, or is refused for the symbol `wrong`.
fn misspelt(functions: &[&str], wrong: Option<&str>) -> Result<(), Failure> {
    let folder = root().join("target");
    let source = folder.join("macos-link.rs");
    let declared: String = functions.iter().map(|f| format!("fn {f}() -> usize;")).collect();
    let called: String = functions.iter().map(|f| format!("{f}() + ")).collect();
    let text = format!(
        "#[link(name = \"Metal\", kind = \"framework\")] unsafe extern \"C\" {{ {declared} }}\n\
         fn main() {{ println!(\"{{}}\", unsafe {{ {called}0 }}); }}\n"
    );
    std::fs::write(&source, text).map_err(|e| failed(format!("{}: {e}", source.display())))?;
    let mut rustc = Command::new("rustc");
    rustc.env("SDKROOT", root().join(STUBS)).env("MACOSX_DEPLOYMENT_TARGET", OLDEST);
    rustc.args(["--edition", "2024", "--target", MACOS, "-Clinker=rust-lld", "-o"]).arg(folder.join("macos-link"));
    let done = rustc.arg(&source).output();
    let done = done.map_err(|e| Failure::NotStarted { step: STEP.to_owned(), reason: format!("rustc: {e}") })?;
    let said = String::from_utf8_lossy(&done.stderr);
    match (wrong, undefined(&said).as_slice()) {
        (None, []) if done.status.success() => println!("   a program that calls {} links", functions.join(", ")),
        (Some(wrong), [one]) if *one == wrong && !done.status.success() => {
            println!("   {wrong} is refused by its name")
        }
        _ => return Err(failed(format!("a program that calls {} was linked so: {said}", functions.join(", ")))),
    }
    Ok(())
}

/// The symbols that the linker did not find.
fn undefined(said: &str) -> Vec<&str> {
    said.lines().filter_map(|line| line.split_once("undefined symbol: ")).map(|(_, name)| name.trim()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(file: &str) -> String {
        std::fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
    }

    /// The symbols of a stub, without the underscore.
    fn symbols(file: &str) -> Vec<String> {
        let text = text(&format!("{STUBS}/{file}"));
        let list = text.split_once("symbols:").map_or("", |(_, list)| list);
        let words = list.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let mut all: Vec<String> = words.filter_map(|w| w.strip_prefix('_')).map(str::to_owned).collect();
        all.sort_unstable();
        all
    }

    /// The functions that a source declares in `extern` blocks, whose names start so.
    fn declared(file: &str, starts: &[&str]) -> Vec<String> {
        let text = text(file);
        let names = text.split("fn ").skip(1).filter_map(|t| t.split('(').next());
        let is_one = |name: &&str| starts.iter().any(|s| name.starts_with(s));
        names.filter(is_one).map(str::to_owned).collect()
    }

    #[test]
    fn the_stubs_have_the_functions_that_are_declared_and_no_other() {
        let (port, tool) = ("ioctl/src/port/objc.rs", "tools/hw/metal-first-contact/src/objc.rs");
        let mut metal = declared(port, &["MTL"]);
        metal.sort_unstable();
        assert_eq!(symbols("System/Library/Frameworks/Metal.framework/Metal.tbd"), metal);
        let starts = ["objc_", "sel_", "object_", "class_", "method_"];
        let mut objc = [declared(port, &starts), declared(tool, &starts)].concat();
        objc.sort_unstable();
        assert_eq!(symbols("usr/lib/libobjc.tbd"), objc);
        assert!(metal.len() >= 2 && objc.len() >= 5, "{metal:?} {objc:?}");
    }

    #[test]
    fn the_names_of_undefined_symbols_are_read_from_what_the_linker_says() {
        let said =
            "note: rust-lld: error: undefined symbol: _MTLCopy\n  >>> referenced by x.o\n error: undefined symbol: _b";
        assert_eq!(undefined(said), ["_MTLCopy", "_b"]);
    }
}
