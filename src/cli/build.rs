//! The release build of the program is linked at a fixed address: its tables hold sixty thousand pointers, and a
//! relocation for each would be a tenth of the file. A statically linked program (`cargo xtask dist`) has rustc choose
//! the fixed address: with this linker option it would ask for a loader.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |name: &str| std::env::var(name).unwrap_or_default();
    let host = ["CARGO_CFG_TARGET_ARCH", "CARGO_CFG_TARGET_OS", "CARGO_CFG_TARGET_ENV"].map(target);
    let is_static = target("CARGO_CFG_TARGET_FEATURE").split(',').any(|feature| feature == "crt-static");
    if target("PROFILE") == "release" && !is_static && host == ["x86_64", "linux", "gnu"] {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
