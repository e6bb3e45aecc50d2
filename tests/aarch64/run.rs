//! Kernels executed in this process against an evaluation of their graphs, element by element: on AArch64, or in an
//! emulator of it (`cargo xtask aarch64`).
#![cfg(target_arch = "aarch64")]

use doorbell_aarch64::{Aarch64, MachineCode, compile};
use doorbell_codegen::{self as codegen, OptChoice, Program};
use doorbell_elf::{PAGE_BYTES, link_object};
use doorbell_isa::Backend;
use doorbell_uop::{Arg, AxisKind, ConstVal, DType, Op, Scalar, UOp, cast_const, eval_alu, from_bits, to_bits};

const INTS: [Scalar; 8] =
    [Scalar::I8, Scalar::U8, Scalar::I16, Scalar::U16, Scalar::I32, Scalar::U32, Scalar::I64, Scalar::U64];
const FLOATS: [Scalar; 4] = [Scalar::F16, Scalar::BF16, Scalar::F32, Scalar::F64];
/// One element, and several vectors.
const LENGTHS: [i64; 2] = [1, 64];

fn all_types() -> impl Iterator<Item = Scalar> {
    [Scalar::Bool].into_iter().chain(INTS).chain(FLOATS)
}

/// With the opts that rules choose, and as plain loops.
const BOTH: &[OptChoice] = &[OptChoice::Heuristic, OptChoice::None];

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn element(&mut self, t: Scalar, tame: bool) -> u64 {
        let r = self.next();
        let small = (r >> 8) as i64 % 41 - 20;
        if t == Scalar::Bool {
            return r & 1;
        }
        if t.is_float() {
            let specials = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-3, 65519.9, 3.3e38];
            let f = if tame || r & 3 > 0 { small as f64 * 0.375 } else { specials[(r >> 5) as usize % 8] };
            return to_bits(ConstVal::Float(f), t);
        }
        match r % 4 {
            _ if tame => small.unsigned_abs(),
            0 => [0, 1, u64::MAX, 1 << 63, i64::MAX as u64, 0x80, 0x8000, 0x8000_0000][(r >> 5) as usize % 8],
            1 => small as u64,
            _ => self.next(),
        }
    }

    fn fill(&mut self, t: Scalar, len: usize, tame: bool) -> Vec<u8> {
        (0..len).flat_map(|_| self.element(t, tame).to_le_bytes()[..t.size_bytes()].to_vec()).collect()
    }
}

fn read(bytes: &[u8], t: Scalar, i: usize) -> ConstVal {
    let mut word = [0; 8];
    let n = t.size_bytes();
    word[..n].copy_from_slice(&bytes[n * i..n * (i + 1)]);
    from_bits(u64::from_le_bytes(word), t)
}

/// A kernel graph's value at one place of its ranges.
fn eval(u: &UOp, at: &mut Vec<(UOp, i64)>, bufs: &[Vec<u8>]) -> ConstVal {
    let t = u.dtype().scalar;
    match u.op() {
        Op::Const => u.as_const().expect("a constant"),
        Op::Range => ConstVal::Int(at.iter().find(|r| r.0 == *u).expect("an open range").1.into()),
        Op::Load => {
            let index = u.src()[0].clone();
            if index.src().get(2).is_some_and(|gate| eval(gate, at, bufs).is_zero()) {
                return eval(&u.src()[1], at, bufs);
            }
            let Arg::Param(slot, _) = index.src()[0].arg() else { panic!("a load of {index:?}") };
            let i = eval(&index.src()[1], at, bufs).as_int().expect("an index");
            read(&bufs[*slot as usize], t, usize::try_from(i).expect("an index inside"))
        }
        Op::Reduce => {
            let mut sum = None;
            let op = u.reduce_op().expect("an operation");
            each_place(&u.src()[1..], at, &mut |at| {
                let v = eval(&u.src()[0], at, bufs);
                sum = Some(sum.map_or(v, |s| eval_alu(op, t, &[s, v]).expect("a value")));
            });
            sum.expect("a range with elements")
        }
        Op::Cast => cast_const(eval(&u.src()[0], at, bufs), t),
        op => {
            let values: Vec<ConstVal> = u.src().iter().map(|s| eval(s, at, bufs)).collect();
            let t = if op.is_comparison() { u.src()[0].dtype().scalar } else { t };
            eval_alu(op, t, &values).expect("a value")
        }
    }
}

fn each_place(ranges: &[UOp], at: &mut Vec<(UOp, i64)>, body: &mut dyn FnMut(&mut Vec<(UOp, i64)>)) {
    let Some((first, rest)) = ranges.split_first() else { return body(at) };
    for i in 0..first.src()[0].as_int().expect("a known range") {
        at.push((first.clone(), i));
        each_place(rest, at, body);
        at.pop();
    }
}

/// Runs a kernel's chunks.
fn execute(code: &MachineCode, p: &Program, bufs: &mut [Vec<u8>]) {
    let image = link_object(&code.object, PAGE_BYTES).expect("our own object links");
    let mut map = memmap2::MmapOptions::new().len(image.size().max(1)).map_anon().expect("memory for code");
    let bytes = image.relocated(map.as_ptr() as u64, &|_| None).expect("no open symbols");
    map[..bytes.len()].copy_from_slice(&bytes);
    let map = map.make_exec().expect("executable memory");
    for line in map.chunks(16) {
        // SAFETY: the instructions clean a line of the data cache and drop one of the instruction cache.
        unsafe { std::arch::asm!("dc cvau, {0}", "dsb ish", "ic ivau, {0}", "dsb ish", "isb", in(reg) line.as_ptr()) };
    }
    let entry = image.entry(&p.name).expect("the kernel's symbol");
    let args: Vec<u64> = p.params.iter().map(|p| bufs[p.slot as usize].as_mut_ptr() as u64).collect();
    // SAFETY: the bytes at `entry` are a function of this type that our compiler made; the buffers in `args` live until
    // the call returns.
    let kernel: extern "C" fn(*const u64, u64) = unsafe { std::mem::transmute(map.as_ptr().add(entry)) };
    (0..u64::from(p.threads)).for_each(|tid| kernel(args.as_ptr(), tid));
}

/// Whether an element is what it should be: integers exactly, floats to so many parts.
fn agrees(have: ConstVal, want: ConstVal, tolerance: f64) -> bool {
    let (ConstVal::Float(a), ConstVal::Float(b)) = (have, want) else { return have == want };
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * b.abs().max(1.0)
}

/// Compiles a kernel, runs it and compares buffer 0 with the graph's value.
fn check(kernel: &UOp, bufs: &[Vec<u8>], tolerance: f64, all_opts: &[OptChoice]) {
    for opts in all_opts {
        let target = Aarch64::new(1);
        let p = codegen::compile(kernel, target.target(), opts, false).expect("a linear program");
        let code = compile(&p).unwrap_or_else(|e| panic!("{}: {e}\n{:#?}", p.name, p.uops));
        let mut have = bufs.to_vec();
        execute(&code, &p, &mut have);
        for store in kernel.src() {
            let (index, value) = (&store.src()[0], &store.src()[1]);
            each_place(&store.src()[2..], &mut Vec::new(), &mut |at| {
                let i = eval(&index.src()[1], at, bufs).as_int().expect("an index") as usize;
                let (t, want) = (value.dtype().scalar, eval(value, at, bufs));
                let found = read(&have[0], t, i);
                let want = from_bits(to_bits(want, t), t);
                assert!(
                    agrees(found, want, tolerance),
                    "{}: element {i} is {found:?}, not {want:?}, of {value:?}\n{}",
                    p.name,
                    code.assembly()
                );
            });
        }
    }
}

/// `out[i] = make(a[i], b[i])`, on inputs of one type.
fn elementwise(n: i64, from: Scalar, tame: bool, tolerance: f64, make: impl Fn(&UOp, &UOp) -> UOp) {
    let (i, len) = (UOp::range(n, 0, AxisKind::Loop), n as usize);
    let load = |slot| UOp::param(slot, DType::of(from), len).index(&i).load();
    let value = make(&load(1), &load(2));
    let to = value.dtype().scalar;
    let store = UOp::param(0, DType::of(to), len).index(&i).store(&value, std::slice::from_ref(&i));
    let mut rng = Rng(n as u64 + 7);
    let bufs = [vec![0; len * to.size_bytes()], rng.fill(from, len, tame), rng.fill(from, len, tame)];
    check(&UOp::sink([store]), &bufs, tolerance, &[OptChoice::Heuristic]);
}

#[test]
fn conversions_of_all_types() {
    for n in LENGTHS {
        for from in all_types() {
            for to in all_types() {
                let tame = from.is_float() && to.is_int();
                elementwise(n, from, tame, 0.0, |x, _| x.cast(to));
            }
        }
    }
}

#[test]
fn arithmetic_of_integers() {
    let ops = [Op::Add, Op::Sub, Op::Mul, Op::Max, Op::And, Op::Or, Op::Xor];
    for n in LENGTHS {
        for t in INTS {
            let one = UOp::constant(DType::of(t), 1i64);
            for op in ops {
                elementwise(n, t, false, 0.0, |x, y| x.binary(op, y));
            }
            for op in [Op::CDiv, Op::CMod] {
                elementwise(n, t, false, 0.0, |x, y| x.binary(op, &y.or(&one)));
                elementwise(n, t, false, 0.0, |x, _| x.binary(op, &UOp::constant(DType::of(t), 7i64)));
            }
            for op in [Op::Shl, Op::Shr] {
                elementwise(n, t, false, 0.0, |x, y| x.binary(op, &y.and(&UOp::constant(DType::of(t), 63i64))));
                elementwise(n, t, false, 0.0, |x, _| x.binary(op, &UOp::constant(DType::of(t), 3i64)));
            }
            elementwise(n, t, false, 0.0, |x, _| UOp::alu(Op::Neg, [x.clone()]));
            elementwise(n, t, false, 0.0, |x, y| UOp::alu(Op::MulAcc, [x.clone(), y.clone(), x.clone()]));
        }
    }
}

#[test]
fn arithmetic_of_floats() {
    for n in LENGTHS {
        for t in FLOATS {
            for op in [Op::Add, Op::Sub, Op::Mul, Op::FDiv, Op::Max] {
                elementwise(n, t, false, 0.0, |x, y| x.binary(op, y));
            }
            for op in [Op::Neg, Op::Recip, Op::Sqrt, Op::Trunc] {
                elementwise(n, t, false, 0.0, |x, _| UOp::alu(op, [x.clone()]));
            }
        }
        for (t, tolerance) in [(Scalar::F32, 4e-6), (Scalar::F64, 1e-14)] {
            for op in [Op::Exp2, Op::Sin] {
                elementwise(n, t, true, tolerance, |x, _| UOp::alu(op, [x.clone()]));
            }
            elementwise(n, t, true, tolerance, |x, _| UOp::alu(Op::Log2, [x.max(&x.const_like(1))]));
            elementwise(n, t, true, tolerance, |x, y| UOp::alu(Op::MulAcc, [x.clone(), y.clone(), x.clone()]));
        }
    }
}

#[test]
fn comparisons_and_selections() {
    for n in LENGTHS {
        for t in all_types() {
            for op in [Op::CmpLt, Op::CmpNe, Op::CmpEq] {
                elementwise(n, t, false, 0.0, |x, y| UOp::alu(op, [x.clone(), y.clone()]));
            }
            elementwise(n, t, false, 0.0, |x, y| x.lt(y).select(x, y));
            elementwise(n, t, false, 0.0, |x, y| x.lt(y).and(&y.ne(x)).or(&x.equal(y)));
        }
    }
}

#[test]
fn sums_products_and_gates() {
    let range = |n: i64, id| UOp::range(n, id, AxisKind::Loop);
    let over = |n: i64, id| UOp::range(n, id, AxisKind::Reduce);
    let mut rng = Rng(3);
    for t in INTS.into_iter().chain([Scalar::F32, Scalar::F64]) {
        let p = |slot, len: i64| UOp::param(slot, DType::of(t), len as usize);
        let mut inputs = |out: i64, a: i64, b: i64| {
            [vec![0; out as usize * t.size_bytes()], rng.fill(t, a as usize, true), rng.fill(t, b as usize, true)]
        };
        // Rows added up, and their largest elements.
        for op in [Op::Add, Op::Max] {
            let (i, l) = (range(5, 0), over(64, 1));
            let s = p(1, 320).index(&(&(&i * 64) + &l)).load().reduce(op, &[l]);
            check(&UOp::sink([p(0, 5).index(&i).store(&s, &[i])]), &inputs(5, 320, 1), 1e-6, BOTH);
        }
        // A product of matrices.
        let (i, j, l) = (range(9, 0), range(20, 1), over(12, 2));
        let a = p(1, 108).index(&(&(&i * 12) + &l)).load();
        let b = p(2, 240).index(&(&(&l * 20) + &j)).load();
        let s = (&a * &b).reduce(Op::Add, &[l]);
        check(&UOp::sink([p(0, 180).index(&(&(&i * 20) + &j)).store(&s, &[i, j])]), &inputs(180, 108, 240), 1e-6, BOTH);
        // A padded and flipped row: loads under a gate.
        let i = range(40, 0);
        let gate = UOp::int(3).lt(&i).and(&i.lt(&UOp::int(36)));
        let x = p(1, 40).index_gated(&(&UOp::int(39) - &i), &gate).load_or(&UOp::constant(DType::of(t), 5i64));
        check(&UOp::sink([p(0, 40).index(&i).store(&x, &[i])]), &inputs(40, 40, 1), 0.0, BOTH);
        // A gather: elements at computed places.
        let i = range(32, 0);
        let at = p(2, 32).index(&i).load().cast(DType::I64).floormod(&UOp::int(32));
        let x = p(1, 32).index(&at).load();
        check(&UOp::sink([p(0, 32).index(&i).store(&x, &[i])]), &inputs(32, 32, 32), 0.0, BOTH);
    }
}
