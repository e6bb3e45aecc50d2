//! Replaces groups of gathers that together read a block of memory by vector loads of the block's rows and a
//! transposition in registers.
//!
//! Such groups occur in transposed panels and in transpositions: lanes are one row apart, and four copies read four
//! neighbouring columns. Gathering sixteen elements costs thirty cycles; loading sixteen pieces of four elements and
//! eight shuffles give four vectors in twenty. Not handled: elements that are not four bytes wide, and targets without
//! shuffles of two 64-byte registers.

use super::Target;
use super::affine::AffineMemo;
use doorbell_sort as sort;
use doorbell_uop::{Arg, Axes, DType, Op, Order, UMap, UOp};

/// Elements of one row's piece, which is the number of columns that are transposed together.
const BLOCK: usize = 4;
const LANES: u16 = 16;

/// A gather of lanes that are `step` elements apart.
struct Gather {
    load: UOp,
    memory: UOp,
    /// Index of lane 0 without its constant part, and the constant part.
    base: UOp,
    offset: i64,
    step: i64,
}

/// The kernel with such groups replaced.
pub(super) fn transpose(sink: &UOp, target: &Target) -> UOp {
    if target.vector_bytes < 64 {
        return sink.clone();
    }
    let mut memo = AffineMemo::default();
    let order = Order::of(sink);
    let mut all: Vec<Gather> = order.nodes().iter().filter_map(|u| gather(u, &mut memo)).collect();
    if all.len() < BLOCK {
        return sink.clone();
    }
    sort::by_key(&mut all, |g| (g.memory.id(), g.step, g.base.id(), g.offset));
    let mut map: UMap<UOp> = UMap::default();
    let mut rest = all.as_slice();
    while let Some(block) = rest.get(..BLOCK) {
        let first = &block[0];
        let neighbours = block.iter().enumerate().all(|(k, g)| {
            g.memory == first.memory
                && g.step == first.step
                && g.base == first.base
                && g.offset == first.offset + k as i64
        });
        if neighbours {
            map.extend(block.iter().map(|g| g.load.clone()).zip(columns(first)));
        }
        rest = &rest[if neighbours { BLOCK } else { 1 }..];
    }
    sink.substitute(&map)
}

fn gather(u: &UOp, memo: &mut AffineMemo) -> Option<Gather> {
    let index = u.src().first().filter(|_| u.op() == Op::Load && u.src().len() == 1)?;
    let (d, [memory, at]) = (u.dtype(), index.src()) else { return None };
    if d.lanes != LANES || d.scalar.size_bytes() != 4 || at.op() != Op::Add {
        return None;
    }
    let (splat, lanes) = match (at.src()[0].op(), at.src()[1].op()) {
        (Op::Splat, Op::Stack) => (&at.src()[0], &at.src()[1]),
        (Op::Stack, Op::Splat) => (&at.src()[1], &at.src()[0]),
        _ => return None,
    };
    let first = splat.src().first().filter(|b| b.dtype() == DType::INDEX)?;
    let steps: Option<Vec<i64>> = lanes.src().iter().map(UOp::as_int).collect();
    let steps = steps?;
    let step = steps.get(1)? - steps[0];
    if steps.windows(2).any(|p| p[1] - p[0] != step) {
        return None;
    }
    let mut base = memo.of(first).clone();
    let offset = base.constant + steps[0];
    base.constant = 0;
    sort::by_key(&mut base.terms, |t| t.0.id());
    Some(Gather { load: u.clone(), memory: memory.clone(), base: base.build(), offset, step })
}

/// The four column vectors of the sixteen-row block that starts at `g`.
fn columns(g: &Gather) -> [UOp; BLOCK] {
    let dtype = g.load.dtype();
    turned(dtype, |row| {
        let at = &g.base + (g.offset + row * g.step);
        let index = UOp::new(Op::Index, g.load.src()[0].dtype(), [g.memory.clone(), at], Arg::None);
        UOp::new(Op::Load, dtype.vec(BLOCK as u16), [index], Arg::None)
    })
}

/// The columns of sixteen rows of four elements each, as vectors of this type.
pub(super) fn turned(dtype: DType, mut piece: impl FnMut(i64) -> UOp) -> [UOp; BLOCK] {
    // Quarter k of register q: row q + 4 k.
    let registers: Vec<UOp> = (0..4)
        .map(|q| UOp::new(Op::Cat, dtype, (0..4).map(|k| piece(q + 4 * k)).collect::<Vec<_>>(), Arg::None))
        .collect();
    let both = |a: &UOp, b: &UOp, lanes: [u16; 4]| {
        let two = UOp::new(Op::Cat, dtype.vec(2 * LANES), [a.clone(), b.clone()], Arg::None);
        let lanes: Axes = (0..4).flat_map(|k| lanes.map(|l| 4 * k + l)).collect();
        two.gep(&lanes)
    };
    let (low, high) = ([0, LANES, 1, LANES + 1], [2, LANES + 2, 3, LANES + 3]);
    let (first, last) = ([0, 1, LANES, LANES + 1], [2, 3, LANES + 2, LANES + 3]);
    let halves = [low, high].map(|l| [both(&registers[0], &registers[1], l), both(&registers[2], &registers[3], l)]);
    [(0, first), (0, last), (1, first), (1, last)].map(|(h, l)| both(&halves[h][0], &halves[h][1], l))
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_uop::DType;

    fn load(at: &UOp, step: i64) -> UOp {
        let lanes: Vec<UOp> = (0..16).map(|k| UOp::int(k * step)).collect();
        let lanes = UOp::new(Op::Stack, DType::INDEX.vec(16), lanes, Arg::None);
        let memory = UOp::param(1, DType::F32, 1 << 20);
        let index = memory.index(&at.clone());
        let index = index.with_src([memory, &at.splat(16) + &lanes]);
        UOp::new(Op::Load, DType::F32.vec(16), [index], Arg::None)
    }

    fn target() -> Target {
        Target { vector_bytes: 64, ..Target::null() }
    }

    #[test]
    fn four_neighbouring_columns_become_sixteen_loads_of_four() {
        let row = UOp::var("row", 0, 9);
        let all = UOp::sink((0..4).map(|k| load(&(&(&row * 4) + k), 100)));
        let turned = transpose(&all, &target());
        let loads: Vec<UOp> = turned.toposort().into_iter().filter(|u| u.op() == Op::Load).collect();
        assert_eq!(loads.len(), 16);
        assert!(loads.iter().all(|l| l.dtype().lanes == 4));
    }

    #[test]
    fn columns_with_a_gap_and_narrow_targets_keep_their_gathers() {
        let row = UOp::var("row", 0, 9);
        let gap = UOp::sink([0, 1, 2, 4].into_iter().map(|k| load(&(&(&row * 5) + k), 100)));
        assert_eq!(transpose(&gap, &target()), gap);
        let all = UOp::sink((0..4).map(|k| load(&(&(&row * 4) + k), 100)));
        assert_eq!(transpose(&all, &Target { vector_bytes: 32, ..target() }), all);
    }
}
