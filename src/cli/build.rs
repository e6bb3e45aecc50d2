//! Tells the program how it was built, and how it is linked. The release build of the program is linked at a fixed address: its tables contain sixty thousand pointers, and the
//! relocations would be a tenth of the file. For a statically linked program (`cargo xtask dist`), rustc chooses the
//! fixed address: this linker option would make the program need a loader.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=DOORBELL_OPT_LEVEL={}", std::env::var("OPT_LEVEL").unwrap_or_default());
    let target = |name: &str| std::env::var(name).unwrap_or_default();
    let host = ["CARGO_CFG_TARGET_ARCH", "CARGO_CFG_TARGET_OS", "CARGO_CFG_TARGET_ENV"].map(target);
    let is_static = target("CARGO_CFG_TARGET_FEATURE").split(',').any(|feature| feature == "crt-static");
    if target("PROFILE") == "release" && !is_static && host == ["x86_64", "linux", "gnu"] {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
