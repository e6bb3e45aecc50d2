//! On musl, rustc leaves what unwinds out of static libraries, and that of gcc needs glibc: it is put into
//! libdoorbell.a.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    if var("CARGO_CFG_TARGET_ENV") != "musl" {
        return;
    }
    let printed = Command::new(var("RUSTC")).args(["--print", "target-libdir", "--target", &var("TARGET")]).output();
    let folder = printed.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default();
    println!("cargo:rustc-link-search=native={folder}/self-contained");
    println!("cargo:rustc-link-lib=static=unwind");
}
