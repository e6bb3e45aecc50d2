//! Products by the matrix unit of warpgroups (`wgmma`), their tiles copied ahead into swizzled shared memory.

use super::machine::{check, counted, rendered};
use super::pipe::{PLAIN, Shape, half_conv, product};
use crate::codegen_agree::buffers;
use crate::codegen_kernels::byte_matmul;
use doorbell::codegen::{self, OptChoice, Program, Target};
use doorbell::isa::ptx::{Buffers, Chip};
use doorbell::uop::{DType, Scalar, UOp};

/// A chip with so few multiprocessors that small products fill it, whose threads copy.
fn small(chip: &str) -> Target {
    // Products of f32 may be those of tf32.
    let chip = Chip::parse(chip).unwrap();
    Target { compute_units: 1, tma_copies: false, tensor_cores: chip.tensor_cores(true), ..chip.target() }
}

/// The same, with tiles copied by TMA.
fn with_tma() -> Target {
    Target { tma_copies: true, ..small("sm_90a") }
}

fn compiled(ast: &UOp, target: &Target, opts: &str) -> Result<Program, String> {
    let choice = match opts {
        "" => OptChoice::Heuristic,
        list => OptChoice::Given(list.split(' ').map(|o| o.parse().unwrap()).collect()),
    };
    codegen::compile(ast, target, &choice, false).map_err(|e| e.to_string())
}

fn agrees(ast: &UOp, shape: &str, copies: &str) -> String {
    agrees_on(&small("sm_90a"), ast, shape, copies)
}

fn agrees_on(target: &Target, ast: &UOp, shape: &str, copies: &str) -> String {
    let p = compiled(ast, target, "").unwrap();
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
fn products_of_bytes_are_exact() {
    for (t, size, turned, shape, copies) in [
        (DType::I8, (128, 128, 384), (false, true), "m64n128k32.s32.s8.s8", "cp.async.cg"),
        (DType::U8, (64, 64, 256), (false, true), "m64n64k32.s32.u8.u8", "cp.async.cg"),
        // An operand that is contiguous along lines is transposed during the copy.
        (DType::I8, (64, 64, 256), (true, false), "m64n64k32.s32.s8.s8", "st.shared."),
        // Edges: a multiple of 8, of 4, and of nothing.
        (DType::I8, (56, 120, 392), (false, true), "m64n128k32", ", 8, "),
        (DType::U8, (60, 60, 252), (false, true), "m64n64k32", ", 4, "),
        (DType::I8, (55, 61, 255), (false, true), "m64n64k32", "st.shared."),
    ] {
        agrees(&product(t, Shape { size, turned, ..PLAIN }), shape, copies);
    }
}

#[test]
fn products_of_tf32_agree() {
    for (size, turned, shape, copies) in [
        ((128, 128, 96), (false, true), "m64n128k8.f32.tf32.tf32", "cp.async.cg"),
        ((64, 64, 64), (true, false), "m64n64k8.f32.tf32.tf32", "cp.async.ca"),
        ((55, 61, 63), (false, true), "m64n64k8", "cp.async.ca"),
    ] {
        agrees(&product(DType::F32, Shape { size, turned, ..PLAIN }), shape, copies);
    }
    let whole = matrices(DType::F32, Shape { size: (128, 128, 96), turned: (false, true), ..PLAIN });
    assert_eq!(whole, [([96, 128], 96, [32, 128]), ([96, 128], 96, [32, 128])]);
}

#[test]
fn tiles_of_bytes_are_tma_tiles_of_128_columns() {
    let shape = |size| Shape { size, turned: (false, true), ..PLAIN };
    let whole = matrices(DType::I8, shape((128, 128, 384)));
    assert_eq!(whole, [([384, 128], 384, [128, 128]), ([384, 128], 384, [128, 128])]);
    let edges = matrices(DType::U8, shape((56, 120, 400)));
    assert_eq!(edges, [([400, 56], 400, [128, 64]), ([400, 120], 400, [128, 128])]);
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

/// The matrices of a product whose tiles are copied by TMA: columns and rows, elements between rows, and a tile.
fn matrices(t: DType, s: Shape) -> Vec<([u32; 2], i64, [u16; 2])> {
    let ast = product(t, s);
    let p = compiled(&ast, &with_tma(), "").unwrap();
    agrees_on(&with_tma(), &ast, "m64n", "cp.async.bulk.tensor.2d");
    p.tensors.iter().map(|i| (i.tensor.sizes, i.tensor.pitch, i.tensor.shape)).collect()
}

#[test]
fn tiles_of_all_layouts_edges_and_batches_come_by_tma_and_agree() {
    let shape = |size, turned| Shape { size, turned, ..PLAIN };
    let whole = matrices(DType::F16, shape((128, 128, 192), (false, false)));
    assert_eq!(whole, [([192, 128], 192, [64, 128]), ([128, 192], 128, [64, 64])]);
    let turned = matrices(DType::BF16, shape((64, 128, 192), (true, true)));
    assert_eq!(turned, [([64, 192], 64, [64, 64]), ([192, 128], 192, [64, 128])]);
    // What is beyond an edge is zero because the matrix ends there.
    let edges = matrices(DType::F16, shape((56, 120, 200), (false, false)));
    assert_eq!(edges, [([200, 56], 200, [64, 64]), ([120, 200], 120, [64, 64])]);
    // Matrices of a batch lie below each other.
    let batch = matrices(DType::BF16, Shape { batch: 3, ..shape((64, 64, 128), (false, true)) });
    assert_eq!(batch, [([128, 192], 128, [64, 64]), ([128, 192], 128, [64, 64])]);
    // Rows of b are 124 bytes apart: the threads copy it.
    let one = matrices(DType::F16, shape((64, 62, 128), (false, false)));
    assert_eq!(one, [([128, 64], 128, [64, 64])]);
}

#[test]
fn tiles_that_tma_cannot_copy_are_copied_by_the_threads() {
    let rows_of_a_batch = Shape { batch: 3, size: (56, 64, 128), ..PLAIN };
    for (s, copies) in [
        (Shape { size: (62, 58, 126), turned: (false, true), ..PLAIN }, ", 4, "),
        (Shape { size: (64, 58, 128), turned: (true, false), narrowed: true, ..PLAIN }, "st.shared"),
    ] {
        let ast = product(DType::F16, s);
        let text = agrees_on(&with_tma(), &ast, "m64n", copies);
        assert!(!text.contains(".bulk") && compiled(&ast, &with_tma(), "").unwrap().tensors.is_empty(), "{text}");
    }
    // Where a matrix of a batch ends, the next begins: that is no edge. Its other operand is copied by TMA.
    let p = compiled(&product(DType::F16, rows_of_a_batch), &with_tma(), "").unwrap();
    assert_eq!(p.tensors.iter().map(|t| t.param).collect::<Vec<_>>(), [2]);
    agrees_on(&with_tma(), &product(DType::F16, rows_of_a_batch), "m64n", "cp.async.bulk.tensor");
    // A window's loops go around the rounds.
    agrees_on(&with_tma(), &half_conv((128, 8, 8, 64)), "m64n64k16", "st.shared");
}

#[test]
fn one_thread_issues_tma_copies_and_an_iteration_waits_for_its_own() {
    let ast = product(DType::F16, Shape { size: (64, 128, 320), ..PLAIN });
    let text = agrees_on(&with_tma(), &ast, "m64n128k16", ".param .align 64 .b8");
    let order = [
        "bra.uni",
        "mbarrier.init.shared::cta.b64",
        "fence.proxy.async.shared::cta;",
        "mbarrier.arrive.expect_tx.shared::cta.b64 _,",
        "cp.async.bulk.tensor.2d",
        "wgmma.wait_group.sync.aligned 1;",
        "bar.sync 0;",
        "@!%p",
        "mbarrier.arrive.expect_tx.shared::cta.b64 _,",
        "cp.async.bulk.tensor.2d",
        "mbarrier.try_wait.parity",
        "wgmma.fence.sync.aligned;",
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
        "ret;",
        // Buffers that begin anywhere: the threads copy.
        "st.shared",
        "fence.proxy.async.shared::cta;",
        "bar.sync 0;",
    ];
    let mut rest = text.as_str();
    for what in order {
        let at = rest.find(what).unwrap_or_else(|| panic!("{what} is not where it should be\n{text}"));
        rest = &rest[at + what.len()..];
    }
    // One barrier for each of the buffers; no fence in the loop, as no thread writes a tile.
    assert_eq!(text.matches("mbarrier.init").count(), 4, "{text}");
    assert_eq!(text[..text.find("ret;").unwrap()].matches("fence.proxy").count(), 1, "{text}");
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
    let bytes = byte_matmul(DType::I8, (128, 128, 256), DType::I32);
    assert_eq!(unit(&bytes, "sm_90a", &small("sm_90a")), (true, false));
    assert_eq!(unit(&bytes, "sm_90", &small("sm_90")), (false, true));
    // Its sums of fp8 keep fewer bits than f32 has.
    let eights = product(DType::of(Scalar::F8E4M3), Shape { size: (128, 128, 256), ..PLAIN });
    assert_eq!(unit(&eights, "sm_90a", &small("sm_90a")), (false, true));
    // On a whole chip a small product is spread over more multiprocessors; one round has nothing to copy ahead.
    let whole = Chip::parse("sm_90a").unwrap().target();
    assert_eq!(unit(&large, "sm_90a", &whole), (false, true));
    let enough = product(DType::F16, Shape { size: (1024, 512, 128), ..PLAIN });
    assert_eq!(unit(&enough, "sm_90a", &whole), (true, false));
    // f32 is not truncated without the option.
    let floats = product(DType::F32, Shape { size: (128, 128, 128), ..PLAIN });
    assert_eq!(unit(&floats, "sm_90a", &small("sm_90a")), (true, false));
    assert_eq!(unit(&floats, "sm_86", &small("sm_86")), (false, true));
    assert_eq!(unit(&floats, "sm_90a", &whole), (false, false));
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
