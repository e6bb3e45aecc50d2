//! A tensor program as data: it can be built again, cut down, and printed.

use doorbell::tensor::prelude::*;

/// A function of one Tensor and its name.
pub type Unary = (&'static str, fn(&Tensor) -> Tensor);
/// A function of two Tensors and its name.
pub type Binary = (&'static str, fn(&Tensor, &Tensor) -> Tensor);
/// A reduction over axes that go, and its name.
pub type Fold = (&'static str, fn(&Tensor, Vec<i64>) -> Tensor);
/// A function along one axis and its name.
pub type Along = (&'static str, fn(&Tensor, i64) -> Tensor);

#[derive(Clone)]
pub enum Step {
    /// Numbers from a seed: whole multiples of `step` within the bounds.
    Input {
        seed: u64,
        low: i64,
        high: i64,
        step: f64,
        shape: Vec<usize>,
        dtype: Scalar,
    },
    Full {
        shape: Vec<usize>,
        value: f64,
        dtype: Scalar,
    },
    Arange(usize),
    Unary(Unary),
    Binary(Binary),
    /// With a number on the right.
    Scalar(&'static str, i64),
    Where,
    Cast(Scalar),
    Reshape(Vec<usize>),
    Permute(Vec<i64>),
    Expand(Vec<usize>),
    Pad(Vec<(i64, i64)>),
    Shrink(Vec<(i64, i64)>),
    Flip(Vec<i64>),
    Fold(Fold, Vec<i64>),
    Along(Along, i64),
    Matmul,
    Cat(i64),
    Stack(i64),
    Gather(i64),
    Pick,
    Contiguous,
    Assign,
    Bitcast(Scalar),
    Conv,
}

/// What is known of a value without computing it.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// No element is larger.
    pub size: f64,
    /// All elements are multiples of 2^-grid.
    pub grid: i32,
    /// How far two right evaluations may be apart; 0: they are equal.
    pub error: f64,
}

#[derive(Clone)]
pub struct Node {
    pub step: Step,
    pub src: Vec<usize>,
    pub shape: Vec<usize>,
    pub dtype: Scalar,
    pub facts: Facts,
}

#[derive(Clone)]
pub struct Program {
    pub nodes: Vec<Node>,
    pub outputs: Vec<usize>,
    /// Whether the outputs are computed as one schedule.
    pub together: bool,
}

/// splitmix64.
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

fn input(seed: u64, (low, high, step): (i64, i64, f64), shape: &[usize], dtype: Scalar) -> Tensor {
    let mut r = Rng(seed);
    let n: usize = shape.iter().product();
    let v: Vec<f64> = (0..n).map(|_| (low + r.below((high - low + 1) as usize) as i64) as f64 * step).collect();
    macro_rules! of {
        ($($scalar:ident $t:ty),*) => {
            match dtype {
                $(Scalar::$scalar => Tensor::from_slice(&v.iter().map(|x| *x as $t).collect::<Vec<_>>(), shape),)*
                Scalar::Bool => Tensor::from_slice(&v.iter().map(|x| *x != 0.0).collect::<Vec<_>>(), shape),
                Scalar::F16 => {
                    Tensor::from_slice(&v.iter().map(|x| half::f16::from_f64(*x)).collect::<Vec<_>>(), shape)
                }
                other => panic!("no inputs of {other}"),
            }
        };
    }
    of!(F32 f32, F64 f64, I32 i32, U32 u32, I64 i64, U64 u64, U8 u8)
}

impl Step {
    /// The Tensor this step makes of its sources.
    pub fn build(&self, src: &[&Tensor]) -> Tensor {
        match self {
            Step::Input { seed, low, high, step, shape, dtype } => input(*seed, (*low, *high, *step), shape, *dtype),
            Step::Full { shape, value, dtype } => Tensor::full_of(shape, *value, *dtype),
            Step::Arange(n) => Tensor::arange(*n),
            Step::Unary((_, f)) => f(src[0]),
            Step::Binary((_, f)) => f(src[0], src[1]),
            Step::Scalar(name, n) => match *name {
                "add" => src[0].add(*n),
                "mul" => src[0].mul(*n),
                "div_floor" => src[0].div_floor(*n),
                "div_trunc" => src[0].div_trunc(*n),
                "modulo" => src[0].modulo(*n),
                "shl" => src[0].shl(*n),
                "shr" => src[0].shr(*n),
                other => panic!("{other} takes no number"),
            },
            Step::Where => src[0].where_(src[1], src[2]),
            Step::Cast(t) => src[0].cast(*t),
            Step::Reshape(s) => src[0].reshape(s),
            Step::Permute(a) => src[0].permute(a.clone()),
            Step::Expand(s) => src[0].expand(s),
            Step::Pad(c) => src[0].pad(c),
            Step::Shrink(k) => src[0].shrink(k),
            Step::Flip(a) => src[0].flip(a.clone()),
            Step::Fold((_, f), a) => f(src[0], a.clone()),
            Step::Along((_, f), a) => f(src[0], *a),
            Step::Matmul => src[0].matmul(src[1]),
            Step::Cat(a) => Tensor::cat(src, *a),
            Step::Stack(a) => Tensor::stack(src, *a),
            Step::Gather(a) => src[0].gather(*a, src[1]),
            Step::Pick => src[0].get(src[1]),
            Step::Contiguous => src[0].contiguous(),
            Step::Assign => src[0].assign(src[1]).clone(),
            Step::Bitcast(t) => src[0].bitcast(*t),
            Step::Conv => src[0].conv(src[1], None, Conv::default()),
        }
    }

    fn text(&self, s: &[String]) -> String {
        let rest = |from: usize| s[from..].iter().map(|x| format!("&{x}")).collect::<Vec<_>>().join(", ");
        match self {
            Step::Input { seed, low, high, step, shape, dtype } => {
                format!("input({shape:?}, {dtype}, {low}..={high} times {step}, seed {seed})")
            }
            Step::Full { shape, value, dtype } => format!("Tensor::full_of({shape:?}, {value:?}, {dtype})"),
            Step::Arange(n) => format!("Tensor::arange({n})"),
            Step::Unary((name, _)) => format!("{}.{name}()", s[0]),
            Step::Binary((name, _)) => format!("{}.{name}({})", s[0], rest(1)),
            Step::Scalar(name, n) => format!("{}.{name}({n})", s[0]),
            Step::Where => format!("{}.where_({})", s[0], rest(1)),
            Step::Cast(t) => format!("{}.cast({t})", s[0]),
            Step::Reshape(to) => format!("{}.reshape({to:?})", s[0]),
            Step::Permute(a) => format!("{}.permute({a:?})", s[0]),
            Step::Expand(to) => format!("{}.expand({to:?})", s[0]),
            Step::Pad(c) => format!("{}.pad({c:?})", s[0]),
            Step::Shrink(k) => format!("{}.shrink({k:?})", s[0]),
            Step::Flip(a) => format!("{}.flip({a:?})", s[0]),
            Step::Fold((name, _), a) => format!("{}.{name}({a:?})", s[0]),
            Step::Along((name, _), a) => format!("{}.{name}({a})", s[0]),
            Step::Matmul => format!("{}.matmul({})", s[0], rest(1)),
            Step::Cat(a) => format!("Tensor::cat(&[{}], {a})", rest(0)),
            Step::Stack(a) => format!("Tensor::stack(&[{}], {a})", rest(0)),
            Step::Gather(a) => format!("{}.gather({a}, {})", s[0], rest(1)),
            Step::Pick => format!("{}.get({})", s[0], rest(1)),
            Step::Contiguous => format!("{}.contiguous()", s[0]),
            Step::Assign => format!("{}.assign({}).clone()", s[0], rest(1)),
            Step::Bitcast(t) => format!("{}.bitcast({t})", s[0]),
            Step::Conv => format!("{}.conv({}, None, Conv::default())", s[0], rest(1)),
        }
    }
}

impl Program {
    /// Builds every Tensor of it.
    pub fn build(&self) -> Vec<Tensor> {
        let mut made: Vec<Tensor> = Vec::with_capacity(self.nodes.len());
        let targets: Vec<usize> =
            self.nodes.iter().filter(|n| matches!(n.step, Step::Assign)).map(|n| n.src[0]).collect();
        for (k, n) in self.nodes.iter().enumerate() {
            let src: Vec<&Tensor> = n.src.iter().map(|s| &made[*s]).collect();
            let mut t = n.step.build(&src);
            if targets.contains(&k) {
                // Memory of its own before it is assigned to.
                t = t.contiguous();
                t.realize().unwrap_or_else(|e| panic!("input t{k}: {e}"));
            }
            made.push(t);
        }
        made
    }

    /// The same program without what no output needs, renumbered.
    pub fn pruned(&self) -> Program {
        let mut needed = vec![false; self.nodes.len()];
        self.outputs.iter().for_each(|o| needed[*o] = true);
        for k in (0..self.nodes.len()).rev() {
            if needed[k] {
                self.nodes[k].src.iter().for_each(|s| needed[*s] = true);
            }
        }
        let mut at = vec![0; self.nodes.len()];
        let mut nodes = Vec::new();
        for (k, n) in self.nodes.iter().enumerate().filter(|(k, _)| needed[*k]) {
            at[k] = nodes.len();
            nodes.push(Node { src: n.src.iter().map(|s| at[*s]).collect(), ..n.clone() });
        }
        Program { nodes, outputs: self.outputs.iter().map(|o| at[*o]).collect(), together: self.together }
    }
}

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (k, n) in self.nodes.iter().enumerate() {
            let names: Vec<String> = n.src.iter().map(|s| format!("t{s}")).collect();
            writeln!(f, "    let t{k} = {}; // {} {:?}", n.step.text(&names), n.dtype, n.shape)?;
        }
        let outs: Vec<String> = self.outputs.iter().map(|o| format!("t{o}")).collect();
        let how = if self.together { "realize_all" } else { "realize one by one" };
        write!(f, "    {how}: [{}]", outs.join(", "))
    }
}
