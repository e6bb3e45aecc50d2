//! `elf` on files of every machine.

use super::{code, err, json, run, temp};

#[test]
fn cubins_kernels_are_shown_with_what_a_launch_needs() {
    let file = format!("{}/../../tests/data/cubin/module_sm90.cubin", env!("CARGO_MANIFEST_DIR"));
    let dir = temp();
    let o = run(dir.path(), &["elf", &file]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    let text = String::from_utf8_lossy(&o.stdout);
    assert!(text.contains("kernel  stack for sm_90"), "{text}");
    assert!(text.contains("12 registers, 0 barriers, 0 bytes of shared memory, stack 256 bytes"), "{text}");
    assert!(text.contains("parameter at 0x218 of bank 0, 24 bytes"), "{text}");
    let v = json(&run(dir.path(), &["elf", "--json", &file]), &["machine", "kernels"]);
    assert_eq!(v["kernels"][1]["registers"], 16);
}
