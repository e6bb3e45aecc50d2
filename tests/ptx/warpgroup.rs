//! Products by the matrix unit of warpgroups (`wgmma`), their tiles copied ahead into swizzled shared memory.

use super::machine::{check, counted, rendered};
use super::pipe::{PLAIN, Shape, half_conv, product};
use crate::codegen_agree::buffers;
use crate::codegen_kernels::byte_matmul;
use doorbell::codegen::{self, OptChoice, Program, Target};
use doorbell::isa::ptx::{Buffers, Chip};
use doorbell::uop::{DType, UOp};

/// A chip with so few multiprocessors that small products fill it.
fn small(chip: &str) -> Target {
    Target { compute_units: 1, ..Chip::parse(chip).unwrap().target() }
}

fn compiled(ast: &UOp, target: &Target, opts: &str) -> Result<Program, String> {
    let choice = match opts {
        "" => OptChoice::Heuristic,
        list => OptChoice::Given(list.split(' ').map(|o| o.parse().unwrap()).collect()),
    };
    codegen::compile(ast, target, &choice, false).map_err(|e| e.to_string())
}

fn agrees(ast: &UOp, shape: &str, copies: &str) -> String {
    let p = compiled(ast, &small("sm_90a"), "").unwrap();
    let text = rendered(&p, "sm_90a", Buffers::Anywhere).0;
    assert!(text.contains(&format!("wgmma.mma_async.sync.aligned.{shape}")), "{shape} {:?}", p.opts);
    assert!(!text.contains("mma.sync.") && !text.contains("ldmatrix") && text.contains(copies), "{shape}\n{text}");
    check(&p, &[buffers(ast, 1)], &[], 1e-5);
    text
}

#[test]
fn products_of_all_layouts_agree() {
    for (size, turned, shape) in [
        ((128, 128, 192), (true, true), "m64n128k16"),
        ((64, 128, 192), (false, true), "m64n128k16"),
        ((64, 64, 256), (true, false), "m64n64k16"),
        ((64, 64, 128), (false, false), "m64n64k16"),
    ] {
        let t = if turned.0 == turned.1 { DType::F16 } else { DType::BF16 };
        agrees(&product(t, Shape { size, turned, ..PLAIN }), shape, "cp.async.cg");
    }
}

#[test]
fn edges_batches_and_computed_operands_agree() {
    for (s, copies) in [
        (Shape { size: (56, 120, 200), ..PLAIN }, "cp.async.cg"),
        (Shape { size: (60, 60, 124), turned: (true, true), ..PLAIN }, ", 8, "),
        (Shape { size: (62, 58, 126), turned: (false, true), ..PLAIN }, ", 4, "),
        (Shape { size: (55, 61, 127), turned: (true, false), ..PLAIN }, "st.shared"),
        (Shape { batch: 3, size: (64, 64, 128), ..PLAIN }, "cp.async.cg"),
        (Shape { size: (64, 64, 128), narrowed: true, ..PLAIN }, "st.shared"),
    ] {
        agrees(&product(DType::F16, s), "m64n", copies);
    }
    // The window's loops go around the rounds.
    agrees(&half_conv((128, 8, 8, 64)), "m64n64k16", "st.shared");
}

#[test]
fn a_round_waits_for_copies_and_old_products_then_meets_the_others() {
    let text = agrees(&product(DType::F16, Shape { size: (64, 128, 256), ..PLAIN }), "m64n128k16", ".align 1024");
    let body = &text[text.find("$L").unwrap()..];
    let order = [
        "cp.async.wait_group 1;",
        "fence.proxy.async.shared::cta;",
        "wgmma.wait_group.sync.aligned 1;",
        "bar.sync 0;",
        "cp.async.cg.shared.global",
        "cp.async.commit_group;",
        "wgmma.fence.sync.aligned;",
        "wgmma.mma_async",
        "wgmma.commit_group.sync.aligned;",
        "bra.uni",
        "wgmma.wait_group.sync.aligned 0;",
        "st.global",
    ];
    let mut rest = body;
    for what in order {
        let at = rest.find(what).unwrap_or_else(|| panic!("{what} is not where it should be\n{text}"));
        rest = &rest[at..];
    }
    // Four products a round, and no more.
    assert_eq!(body[..body.find("wgmma.commit_group").unwrap()].matches("wgmma.mma_async").count(), 4, "{text}");
}

#[test]
fn shared_memory_is_filled_and_read_without_bank_conflicts() {
    for turned in [(false, false), (true, true)] {
        let ast = product(DType::F16, Shape { size: (64, 128, 192), turned, ..PLAIN });
        let c = counted(&compiled(&ast, &small("sm_90a"), "").unwrap(), "sm_90a", &buffers(&ast, 1));
        assert_eq!((c.passes, c.mma), (c.fewest, 64 * 128 * 192 / (64 * 128 * 16)), "{turned:?} {c:?}");
    }
}

#[test]
fn other_chips_types_and_small_products_keep_the_unit_of_warps() {
    let large = product(DType::F16, Shape { size: (128, 128, 128), ..PLAIN });
    let unit = |ast: &UOp, chip: &str, target: &Target| {
        let text = rendered(&compiled(ast, target, "").unwrap(), chip, Buffers::Anywhere).0;
        (text.contains("wgmma."), text.contains("mma.sync."))
    };
    assert_eq!(unit(&large, "sm_90a", &small("sm_90a")), (true, false));
    for chip in ["sm_80", "sm_90", "sm_100a", "sm_120"] {
        assert_eq!(unit(&large, chip, &small(chip)), (false, true), "{chip}");
    }
    let bytes = byte_matmul(DType::I8, (128, 128, 128), DType::I32);
    assert_eq!(unit(&bytes, "sm_90a", &small("sm_90a")), (false, true));
    // On a whole chip a small product is spread over more multiprocessors; one round has nothing to copy ahead.
    let whole = Chip::parse("sm_90a").unwrap().target();
    assert_eq!(unit(&large, "sm_90a", &whole), (false, true));
    let enough = product(DType::F16, Shape { size: (1024, 512, 128), ..PLAIN });
    assert_eq!(unit(&enough, "sm_90a", &whole), (true, false));
    let short = product(DType::F16, Shape { size: (128, 128, 64), ..PLAIN });
    assert_eq!(unit(&short, "sm_90a", &small("sm_90a")), (false, true));
}

#[test]
fn opts_that_do_not_fit_the_unit_are_refused_with_the_reason() {
    let ast = product(DType::F16, Shape { size: (64, 64, 256), ..PLAIN });
    let target = Chip::parse("sm_90a").unwrap().target();
    let choice = compiled(&ast, &small("sm_90a"), "").unwrap().opts[0].clone();
    let refused = |opts: &str| compiled(&ast, &target, &format!("{choice} {opts}")).unwrap_err();
    assert!(refused("UNROLL(1,4) PIPE(1,2)").contains("3 to 8 buffers"), "{}", refused("UNROLL(1,4) PIPE(1,2)"));
    assert!(refused("PIPE(1,3)").contains("a row of 16 elements"), "{}", refused("PIPE(1,3)"));
    // Without PIPE its operands are in registers, where it does not look.
    let p = compiled(&ast, &target, &choice).unwrap();
    let e = doorbell::isa::ptx::render(&p, Chip::parse("sm_90a").unwrap(), Buffers::Anywhere).unwrap_err();
    assert!(e.to_string().contains("outside of a loop's sum") || e.to_string().contains("PIPE comes after TC"), "{e}");
}
