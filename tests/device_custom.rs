//! `examples/custom_device.rs` compiles, runs and stays short; `docs/custom-device.md` names every method of the trait.

#[path = "../examples/custom_device.rs"]
mod custom_device;

#[test]
fn example_device_runs() {
    custom_device::main().unwrap();
}

#[test]
fn example_is_under_150_lines() {
    assert!(include_str!("../examples/custom_device.rs").lines().count() < 150);
}

#[test]
fn page_explains_every_method_of_the_trait() {
    let page = include_str!("../docs/custom-device.md");
    let source = include_str!("../src/device/lib.rs");
    let (_, body) = source.split_once("pub trait Device:").unwrap();
    let (body, _) = body.split_once("\n}\n").unwrap();
    let methods: Vec<&str> =
        body.lines().filter_map(|l| l.strip_prefix("    fn ")).filter_map(|l| l.split('(').next()).collect();
    assert!(methods.len() > 10);
    let missing: Vec<_> = methods.iter().filter(|m| !page.contains(&format!("`{m}`"))).collect();
    assert!(missing.is_empty(), "docs/custom-device.md lacks {missing:?}");
}
