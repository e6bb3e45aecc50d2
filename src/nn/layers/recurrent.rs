//! Recurrent layers: cells, and stacks of them over time. Gates and names are PyTorch's.

use super::{refused, uniform};
use crate::module;
use crate::nn::Module;
use crate::nn::module::named;
use crate::tensor::{Math, Movement, Product, Tensor};
use crate::uop::Dim;

/// One step of a long short-term memory. Gates in the order input, forget, cell, output.
#[derive(Clone, Debug)]
pub struct LSTMCell {
    /// (4 hidden, inputs)
    pub weight_ih: Tensor,
    /// (4 hidden, hidden)
    pub weight_hh: Tensor,
    /// (4 hidden,)
    pub bias_ih: Option<Tensor>,
    /// (4 hidden,)
    pub bias_hh: Option<Tensor>,
    hidden: usize,
}
module!(LSTMCell { weight_ih, weight_hh, bias_ih, bias_hh; skip hidden });

/// One step of a gated recurrent unit. Gates in the order reset, update, new.
#[derive(Clone, Debug)]
pub struct GRUCell {
    /// (3 hidden, inputs)
    pub weight_ih: Tensor,
    /// (3 hidden, hidden)
    pub weight_hh: Tensor,
    /// (3 hidden,)
    pub bias_ih: Option<Tensor>,
    /// (3 hidden,)
    pub bias_hh: Option<Tensor>,
    hidden: usize,
}
module!(GRUCell { weight_ih, weight_hh, bias_ih, bias_hh; skip hidden });

/// Zeros for the first step of a batch like `x`, (n, inputs) or (inputs,).
fn start(x: &Tensor, hidden: usize) -> Tensor {
    let mut shape = x.shape().unwrap_or_default();
    shape.pop();
    shape.push(Dim::from(hidden));
    Tensor::zeros(shape).to(&x.device())
}

/// The sums of all gates, cut apart.
fn gates(sums: &Tensor, count: usize, hidden: usize) -> Vec<Tensor> {
    (0..count).map(|k| sums.narrow(-1, k * hidden, hidden)).collect()
}

impl LSTMCell {
    /// Parameters within ± one over the root of `hidden`.
    pub fn new(inputs: usize, hidden: usize) -> LSTMCell {
        LSTMCell {
            weight_ih: uniform(&[4 * hidden, inputs], hidden),
            weight_hh: uniform(&[4 * hidden, hidden], hidden),
            bias_ih: Some(uniform(&[4 * hidden], hidden)),
            bias_hh: Some(uniform(&[4 * hidden], hidden)),
            hidden,
        }
    }
    /// The cell without its biases (`bias=False`).
    pub fn without_bias(self) -> LSTMCell {
        LSTMCell { bias_ih: None, bias_hh: None, ..self }
    }
    /// The next hidden and cell state, (n, hidden) each, from (n, inputs) and the states before (zeros at first).
    #[track_caller]
    pub fn forward(&self, x: &Tensor, state: Option<&(Tensor, Tensor)>) -> (Tensor, Tensor) {
        let zeros = || (start(x, self.hidden), start(x, self.hidden));
        let (h, c) = state.cloned().unwrap_or_else(zeros);
        let sums = x.linear(&self.weight_ih, self.bias_ih.as_ref()) + h.linear(&self.weight_hh, self.bias_hh.as_ref());
        let parts = gates(&sums, 4, self.hidden);
        let [i, f, o] = [0, 1, 3].map(|k| parts[k].sigmoid());
        let c = f * &c + i * parts[2].tanh();
        (o * c.tanh(), c)
    }
}

impl GRUCell {
    /// Parameters within ± one over the root of `hidden`.
    pub fn new(inputs: usize, hidden: usize) -> GRUCell {
        GRUCell {
            weight_ih: uniform(&[3 * hidden, inputs], hidden),
            weight_hh: uniform(&[3 * hidden, hidden], hidden),
            bias_ih: Some(uniform(&[3 * hidden], hidden)),
            bias_hh: Some(uniform(&[3 * hidden], hidden)),
            hidden,
        }
    }
    /// The cell without its biases (`bias=False`).
    pub fn without_bias(self) -> GRUCell {
        GRUCell { bias_ih: None, bias_hh: None, ..self }
    }
    /// The next hidden state, (n, hidden), from (n, inputs) and the state before (zeros at first).
    #[track_caller]
    pub fn forward(&self, x: &Tensor, state: Option<&Tensor>) -> Tensor {
        let h = state.cloned().unwrap_or_else(|| start(x, self.hidden));
        let new = gates(&x.linear(&self.weight_ih, self.bias_ih.as_ref()), 3, self.hidden);
        let old = gates(&h.linear(&self.weight_hh, self.bias_hh.as_ref()), 3, self.hidden);
        let reset = (&new[0] + &old[0]).sigmoid();
        let update = (&new[1] + &old[1]).sigmoid();
        let made = (&new[2] + reset * &old[2]).tanh();
        &made + update * (h - &made)
    }
}

/// How [`LSTM`] and [`GRU`] are built; the default is PyTorch's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recurrent {
    /// Cells one above the other.
    pub layers: usize,
    /// Whether there are biases.
    pub bias: bool,
    /// Whether inputs and outputs are (n, time, ..) instead of (time, n, ..).
    pub batch_first: bool,
    /// Whether a second row of cells reads the sequence backwards; the outputs stand side by side.
    pub bidirectional: bool,
}

impl Default for Recurrent {
    fn default() -> Recurrent {
        Recurrent { layers: 1, bias: true, batch_first: false, bidirectional: false }
    }
}

/// Long short-term memory over a sequence. The graph has one step's operations for each point in time.
#[derive(Clone, Debug)]
pub struct LSTM {
    cells: Vec<LSTMCell>,
    how: Recurrent,
}

/// Gated recurrent units over a sequence. The graph has one step's operations for each point in time.
#[derive(Clone, Debug)]
pub struct GRU {
    cells: Vec<GRUCell>,
    how: Recurrent,
}

impl Recurrent {
    fn directions(self) -> usize {
        if self.bidirectional { 2 } else { 1 }
    }
    /// PyTorch's ending of the names of cell `k`: `_l0`, `_l0_reverse`, `_l1` ...
    fn suffix(self, k: usize) -> String {
        let back = if k % self.directions() == 1 { "_reverse" } else { "" };
        format!("_l{}{back}", k / self.directions())
    }
    /// Inputs of cell `k`.
    fn inputs(self, k: usize, inputs: usize, hidden: usize) -> usize {
        if k < self.directions() { inputs } else { hidden * self.directions() }
    }
    /// Number of cells.
    fn count(self) -> usize {
        self.layers * self.directions()
    }
    /// Runs all cells over time. `step` computes cell `k` from its input and state; a state is a list of Tensors, the
    /// output first. Returns the outputs and the last states of all cells.
    #[track_caller]
    fn run(
        self,
        op: &'static str,
        x: &Tensor,
        mut states: Vec<Option<Vec<Tensor>>>,
        step: impl Fn(usize, &Tensor, Option<&[Tensor]>) -> Vec<Tensor>,
    ) -> Result<(Tensor, Vec<Vec<Tensor>>), Tensor> {
        let shape = x.shape().map_err(|_| x.clone())?;
        let time = usize::from(self.batch_first);
        let length = shape.get(time).and_then(Dim::as_int).filter(|n| shape.len() == 3 && *n > 0);
        let Some(length) = length else {
            let form = if self.batch_first { "(n, time, inputs)" } else { "(time, n, inputs)" };
            return Err(refused(op, x, format!("the input is {form} with a known length above 0")));
        };
        let mut sequence: Vec<Tensor> = (0..length).map(|t| x.narrow(time as i64, t, 1).squeeze(time as i64)).collect();
        let mut last = Vec::new();
        for layer in 0..self.layers {
            let mut sides = Vec::new();
            for side in 0..self.directions() {
                let k = layer * self.directions() + side;
                let mut state = states[k].take();
                let mut outputs = Vec::new();
                for t in 0..sequence.len() {
                    let at = if side == 1 { sequence.len() - 1 - t } else { t };
                    let made = step(k, &sequence[at], state.as_deref());
                    outputs.push(made[0].clone());
                    state = Some(made);
                }
                if side == 1 {
                    outputs.reverse();
                }
                sides.push(outputs);
                last.extend(state);
            }
            sequence = match sides.as_slice() {
                [there, back] => there.iter().zip(back).map(|(a, b)| Tensor::cat(&[a, b], -1)).collect(),
                _ => sides.swap_remove(0),
            };
        }
        let all: Vec<&Tensor> = sequence.iter().collect();
        Ok((Tensor::stack(&all, time as i64), last))
    }
}

/// Part `k` of a state (cells, n, hidden).
fn of_cell(state: &Tensor, k: usize) -> Tensor {
    state.narrow(0, k, 1).squeeze(0)
}

/// Part `part` of the last states of all cells, (cells, n, hidden).
fn stacked(last: &[Vec<Tensor>], part: usize) -> Tensor {
    let all: Vec<&Tensor> = last.iter().map(|s| &s[part]).collect();
    Tensor::stack(&all, 0)
}

impl LSTM {
    /// Cells of `hidden` numbers over inputs of `inputs`.
    pub fn new(inputs: usize, hidden: usize, how: Recurrent) -> LSTM {
        let cell = |k| {
            let cell = LSTMCell::new(how.inputs(k, inputs, hidden), hidden);
            if how.bias { cell } else { cell.without_bias() }
        };
        LSTM { cells: (0..how.count()).map(cell).collect(), how }
    }
    /// The cells: layer after layer, forward before backward.
    pub fn cells(&self) -> &[LSTMCell] {
        &self.cells
    }
    /// (time, n, inputs) to the outputs of all times, (time, n, hidden) (twice as wide if bidirectional), and the last
    /// hidden and cell states, (layers * directions, n, hidden) each. `state`: the same for the time before, zeros at
    /// first.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, state: Option<&(Tensor, Tensor)>) -> (Tensor, (Tensor, Tensor)) {
        let states = (0..self.cells.len()).map(|k| state.map(|(h, c)| vec![of_cell(h, k), of_cell(c, k)])).collect();
        let made = self.how.run("lstm", x, states, |k, x, state| {
            let pair = state.map(|s| (s[0].clone(), s[1].clone()));
            let (h, c) = self.cells[k].forward(x, pair.as_ref());
            vec![h, c]
        });
        match made {
            Ok((y, last)) => (y, (stacked(&last, 0), stacked(&last, 1))),
            Err(bad) => (bad.clone(), (bad.clone(), bad)),
        }
    }
}

impl GRU {
    /// Cells of `hidden` numbers over inputs of `inputs`.
    pub fn new(inputs: usize, hidden: usize, how: Recurrent) -> GRU {
        let cell = |k| {
            let cell = GRUCell::new(how.inputs(k, inputs, hidden), hidden);
            if how.bias { cell } else { cell.without_bias() }
        };
        GRU { cells: (0..how.count()).map(cell).collect(), how }
    }
    /// The cells: layer after layer, forward before backward.
    pub fn cells(&self) -> &[GRUCell] {
        &self.cells
    }
    /// (time, n, inputs) to the outputs of all times, (time, n, hidden) (twice as wide if bidirectional), and the last
    /// hidden states, (layers * directions, n, hidden). `state`: the same for the time before, zeros at first.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, state: Option<&Tensor>) -> (Tensor, Tensor) {
        let states = (0..self.cells.len()).map(|k| state.map(|h| vec![of_cell(h, k)])).collect();
        let step =
            |k: usize, x: &Tensor, state: Option<&[Tensor]>| vec![self.cells[k].forward(x, state.map(|s| &s[0]))];
        match self.how.run("gru", x, states, step) {
            Ok((y, last)) => (y, stacked(&last, 0)),
            Err(bad) => (bad.clone(), bad),
        }
    }
}

/// Names as PyTorch's: `weight_ih_l0`, not `0.weight_ih`.
fn visit_cells(how: Recurrent, cells: &[impl Module], prefix: &str, f: &mut dyn FnMut(String, &Tensor)) {
    for (k, cell) in cells.iter().enumerate() {
        cell.visit("", &mut |name, t| f(named(prefix, &format!("{name}{}", how.suffix(k))), t));
    }
}
impl Module for LSTM {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &Tensor)) {
        visit_cells(self.how, &self.cells, prefix, f);
    }
}
impl Module for GRU {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &Tensor)) {
        visit_cells(self.how, &self.cells, prefix, f);
    }
}
