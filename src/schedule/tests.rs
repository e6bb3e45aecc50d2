//! Structure of schedules: which kernels, in which form. Values are compared in `tests/schedule`.

use super::*;
use crate::uop::{BufferRef, DType, UOp};

fn buf(n: usize) -> UOp {
    UOp::buffer(DType::F32, BufferRef::new(n, "CPU".into()))
}
fn view(n: &[i64]) -> UOp {
    buf(n.iter().product::<i64>() as usize).movement(Op::Reshape, n.iter().map(|d| UOp::int(*d)))
}
fn run(roots: &[UOp]) -> Schedule {
    let roots: Vec<_> = roots.iter().map(|r| (r.clone(), "CPU".into())).collect();
    schedule(&roots, &ScheduleCache::default()).unwrap()
}

#[test]
fn an_elementwise_chain_is_one_kernel_with_one_loop_an_axis() {
    let (a, b) = (view(&[4, 5]), view(&[4, 5]));
    let s = run(&[&(&a + &b) * &a]);
    assert_eq!(s.kernel_count(), 1);
    let ScheduleItem::Kernel { ast, bufs, .. } = &s.items[0] else { panic!() };
    assert_eq!(bufs.len(), 3);
    assert_eq!(ast.src()[0].src().len(), 4);
    assert_eq!(s.outputs[0].view.shape(), a.shape());
}

#[test]
fn equal_kernels_on_other_buffers_are_the_identical_node() {
    let kernel = |s: Schedule| match &s.items[0] {
        ScheduleItem::Kernel { ast, .. } => ast.clone(),
        _ => panic!(),
    };
    let one = kernel(run(&[view(&[4, 5]).reduce_axes(Op::Add, &[1])]));
    let two = kernel(run(&[view(&[4, 5]).reduce_axes(Op::Add, &[1])]));
    assert_eq!(one, two);
}

#[test]
fn views_of_memory_cost_no_kernel() {
    let x = view(&[4, 5]);
    let shrunk = x.movement(Op::Shrink, [1, 0, 3, 5].map(UOp::int)).wrap(Op::Contiguous);
    let s = run(&[shrunk.clone(), x.permute(&[1, 0])]);
    assert_eq!(s.kernel_count(), 0);
    let region = super::stored::Stored::new().region(&s.outputs[0].view).unwrap().unwrap();
    assert_eq!((region.param.op(), region.offset), (Op::Buffer, 5));
    let s = run(&[x.permute(&[1, 0]).wrap(Op::Contiguous)]);
    assert_eq!(s.kernel_count(), 1);
}

#[test]
fn an_assign_writes_in_place_and_its_readers_come_later() {
    let b = buf(8);
    let a = UOp::new(Op::Assign, b.dtype(), [b.clone(), &b + &b], crate::uop::Arg::None);
    let before = b.reduce_axes(Op::Add, &[0]);
    let after = a.reduce_axes(Op::Max, &[0]);
    let s = run(&[after, before, a.clone()]);
    assert_eq!(s.items.len(), 3);
    let ops: Vec<String> = s
        .items
        .iter()
        .map(|i| match i {
            ScheduleItem::Kernel { ast, bufs, .. } => {
                format!("{:?} {}", ast.src()[0].src()[1].op(), bufs[0] == b)
            }
            _ => "copy".into(),
        })
        .collect();
    assert_eq!(ops, ["Reduce false", "Add true", "Reduce false"]);
    s.finish();
    let new = a.realized().unwrap();
    assert_ne!(new, &b);
}

fn run_on_a_gpu(root: &UOp) -> Schedule {
    let cache = ScheduleCache::default();
    cache.describe(&"CPU".into(), DeviceTraits::gpu(132).with_units(vec![crate::uop::Scalar::F16]));
    schedule(&[(root.clone(), "CPU".into())], &cache).unwrap()
}

#[test]
fn few_channels_are_normalised_by_many_workgroups() {
    let x = view(&[64, 32, 1024]);
    let shape = [64, 32, 1024].map(UOp::int);
    let sum = x.reduce_axes(Op::Add, &[0, 2]).movement(Op::Expand, shape);
    let off = x.binary(Op::Sub, &sum);
    assert_eq!(run(std::slice::from_ref(&off)).kernel_count(), 1, "32 cores have a channel each");
    assert_eq!(run_on_a_gpu(&off).kernel_count(), 3, "parts of the sums, the sums, the differences");
    let rows = view(&[4096, 64]);
    let whole = rows.reduce_axes(Op::Add, &[1]).movement(Op::Expand, [4096, 64].map(UOp::int));
    assert_eq!(run_on_a_gpu(&rows.binary(Op::Sub, &whole)).kernel_count(), 1, "a row is a workgroup's");
}

#[test]
fn operands_of_a_product_are_plain_memory_on_a_gpu() {
    let wide = |x: &UOp| x.movement(Op::Expand, [256, 512, 128].map(UOp::int));
    let product = |a: &UOp, b: &UOp| {
        let b = b.movement(Op::Reshape, [1, 512, 128].map(UOp::int));
        (&wide(a) * &wide(&b)).reduce_axes(Op::Add, &[2])
    };
    let (x, w) = (view(&[256, 128]), view(&[512, 128]));
    let sum = x.reduce_axes(Op::Add, &[1]).movement(Op::Expand, [256, 128].map(UOp::int));
    let off = x.binary(Op::Sub, &sum).movement(Op::Reshape, [256, 1, 128].map(UOp::int));
    let s = run_on_a_gpu(&product(&off, &w));
    let bufs: Vec<usize> =
        s.items.iter().map(|i| if let ScheduleItem::Kernel { bufs, .. } = i { bufs.len() } else { 0 }).collect();
    assert_eq!(bufs, [2, 3], "the rows' differences, then a product of two buffers");
}

#[test]
fn memory_holds_the_narrow_form_of_what_readers_widen() {
    let (x, w) = (view(&[256, 128]), view(&[512, 128]));
    let half = |u: &UOp| u.cast(DType::F16).cast(DType::F32);
    let wide = |x: &UOp, rows: [i64; 3]| {
        x.movement(Op::Reshape, rows.map(UOp::int)).movement(Op::Expand, [256, 512, 128].map(UOp::int))
    };
    let root = UOp::new(Op::Exp2, x.dtype(), [x], crate::uop::Arg::None);
    let product = &wide(&half(&root), [256, 1, 128]) * &wide(&w, [1, 512, 128]);
    let s = run(&[product.reduce_axes(Op::Add, &[2])]);
    let ScheduleItem::Kernel { bufs, .. } = &s.items[0] else { panic!() };
    assert_eq!(bufs[0].dtype(), DType::F16);
}

#[test]
fn values_that_another_thread_realises_during_the_walk_are_taken_as_they_were_found() {
    for _ in 0..20 {
        let chain: Vec<UOp> = std::iter::successors(Some(view(&[8])), |u| Some(u + u)).take(3000).collect();
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|s| {
            s.spawn(|| {
                start.wait();
                chain[1..].iter().for_each(|u| u.set_realized(buf(8)));
            });
            start.wait();
            let front = front::strip(&[(chain[2999].clone(), "CPU".into())], &devices::Devices::default()).unwrap();
            assert_eq!(front.buffers.len(), 1);
        });
    }
}
