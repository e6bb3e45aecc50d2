//! Our assembler for chips beside sm_90: what a chip has not is refused by name, and parameters are read where the chip has them.

use doorbell::elf::cubin::{Arch, Cubin};
use doorbell::isa::sass::Chip;
use doorbell::isa::sass::compile::assemble;

/// A kernel with these statements in its body.
fn kernel(body: &str) -> String {
    let head = ".version 8.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 o)\n{\n.reg .b32 %r<8>;\n";
    format!("{head}.reg .b64 %d<8>;\n.reg .pred %p<4>;\n{body}\nret;\n}}\n")
}

#[test]
fn what_a_chip_has_not_is_refused_by_name() {
    let body = "mov.u32 %r1, %cluster_nctaid.x; ld.param.u64 %d1, [o]; st.global.u32 [%d1], %r1;";
    let e = assemble(&kernel(body), Chip::Sm80.arch()).expect_err("clusters");
    assert_eq!(e.what, "sm_80 keeps nothing like c[0x0][0x144] of sm_90");
    let cubin =
        assemble(&kernel("ld.param.u64 %d1, [o]; st.global.u64 [%d1], %d1;"), Chip::Sm80.arch()).expect("a copy");
    assert_eq!(Cubin::parse(&cubin).expect("a cubin").sm, 80);
    let e = assemble(&kernel(""), Arch { sm: 75, specific: false }).expect_err("a chip without a table");
    assert_eq!(e.what, "sm_75: machine code is made for sm_80, sm_86, sm_89, sm_90, sm_120 and sm_90a");
}
