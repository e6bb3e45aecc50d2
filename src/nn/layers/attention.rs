//! Attention with several heads.

use super::{Linear, refused};
use crate::module;
use crate::nn::is_training;
use crate::tensor::{Composite, Elementwise, IntoDim, Movement, Product, Reduction, Tensor};
use crate::uop::{Dim, Scalar, UOp};

/// Attention with several heads, over (n, tokens, size) (PyTorch's `batch_first=True`).
///
/// Parameters as in `torch.nn.MultiheadAttention`: `in_proj_weight` has the rows of the queries, then of the keys, then
/// of the values. With fewer heads of keys and values than of queries, groups of queries share them.
#[derive(Clone, Debug)]
pub struct MultiHeadAttention {
    /// (size + 2 * kv_heads * head size, size)
    pub in_proj_weight: Tensor,
    /// As many numbers as `in_proj_weight` has rows.
    pub in_proj_bias: Option<Tensor>,
    /// (size, size)
    pub out_proj: Linear,
    /// Probability that an attention weight is dropped in training.
    pub dropout: f64,
    size: usize,
    heads: usize,
    kv_heads: usize,
}
module!(MultiHeadAttention { in_proj_weight, in_proj_bias, out_proj; skip dropout, size, heads, kv_heads });

/// Keys and values of the tokens that were seen so far, for [`MultiHeadAttention::forward_cached`].
#[derive(Clone, Debug)]
pub struct KvCache {
    /// (2, n, kv_heads, tokens at most, size / heads): the keys, then the values.
    pub memory: Tensor,
    most: usize,
}

impl MultiHeadAttention {
    /// `heads` heads of `size / heads` numbers each. Glorot weights, biases 0.
    #[doc(alias = "MultiheadAttention")]
    pub fn new(size: usize, heads: usize) -> MultiHeadAttention {
        MultiHeadAttention::grouped(size, heads, heads)
    }
    /// Every `heads / kv_heads` heads of queries share one of keys and values (grouped queries).
    pub fn grouped(size: usize, heads: usize, kv_heads: usize) -> MultiHeadAttention {
        let rows = size + 2 * kv_heads * (size / heads.max(1));
        let mut out_proj = Linear::new(size, size);
        out_proj.bias = Some(Tensor::zeros([size]).requires_grad());
        MultiHeadAttention {
            in_proj_weight: Tensor::glorot_uniform([rows, size]).in_own_memory().requires_grad(),
            in_proj_bias: Some(Tensor::zeros([rows]).requires_grad()),
            out_proj,
            dropout: 0.0,
            size,
            heads,
            kv_heads,
        }
    }
    /// The layer without biases (`bias=False`).
    pub fn without_bias(self) -> MultiHeadAttention {
        MultiHeadAttention { in_proj_bias: None, out_proj: self.out_proj.without_bias(), ..self }
    }
    /// Attention weights are dropped with this probability in the thread's [`training`](crate::nn::training) scope.
    pub fn dropout(self, p: f64) -> MultiHeadAttention {
        MultiHeadAttention { dropout: p, ..self }
    }

    /// (n, tokens, size) of the queries and (n, others, size) of the keys and values to (n, tokens, size). `mask` is
    /// added to the scores, or, of Bool, says which pairs count; it broadcasts to (n, heads, tokens, others). (As in
    /// `scaled_dot_product_attention`; the Bool masks of PyTorch's module mean the opposite.) With `causal`, a token
    /// sees itself and those before.
    #[track_caller]
    pub fn forward(&self, query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>, causal: bool) -> Tensor {
        let [q, k, v] = match self.projected(query, key, value) {
            Ok(parts) => parts,
            Err(refused) => return refused,
        };
        let [k, v] = [k, v].map(|x| self.for_all_heads(x));
        let y = if self.dropout > 0.0 && is_training() {
            self.dropped(&q, &k, &v, mask, causal)
        } else {
            q.attention(&k, &v, mask, causal)
        };
        self.joined(&y)
    }

    /// An empty cache for `n` sequences of at most `most` tokens.
    pub fn cache(&self, n: usize, most: usize) -> KvCache {
        let size = self.size / self.heads.max(1);
        let like = &self.in_proj_weight;
        let zeros = Tensor::zeros([2, n, self.kv_heads, most, size]).cast(like.dtype().unwrap_or(Scalar::F32));
        KvCache { memory: zeros.to(&like.device()).in_own_memory(), most }
    }
    /// Causal self-attention of the tokens from position `at` on, (n, tokens, size) to the same shape, when the keys
    /// and values of those before are in the cache; those of `x` are stored there. Nothing is dropped. `at` is a number
    /// or, so that one recording serves all positions, a bound [`Variable`](crate::tensor::Variable).
    ///
    /// # Errors
    /// (Carried by the result.) A cache of another shape, or one whose last token may lie beyond its end.
    ///
    /// ```
    /// use doorbell::nn::MultiHeadAttention;
    /// use doorbell::tensor::prelude::*;
    ///
    /// let (layer, x) = (MultiHeadAttention::new(8, 2), Tensor::rand([1, 5, 8]));
    /// let whole = layer.forward(&x, &x, &x, None, true);
    /// let cache = layer.cache(1, 5);
    /// let start = layer.forward_cached(&x.narrow(1, 0, 3), &cache, 0); // a prompt at once
    /// let mut parts = vec![start.realize()?.clone()];
    /// let position = Variable::new("position", 0, 4);
    /// for k in 3..5 {
    ///     let next = layer.forward_cached(&x.narrow(1, k, 1), &cache, position.bind(k));
    ///     parts.push(next.realize()?.clone()); // then token by token
    /// }
    /// assert!(Tensor::cat(&parts.iter().collect::<Vec<_>>(), 1).allclose(&whole, 1e-4, 1e-5)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn forward_cached(&self, x: &Tensor, cache: &KvCache, at: impl IntoDim) -> Tensor {
        let [q, k, v] = match self.projected(x, x, x) {
            Ok(parts) => parts,
            Err(refused) => return refused,
        };
        let (at, shape) = (at.into_dim().uop(), k.shape().unwrap_or_default());
        let count = shape.get(2).cloned().unwrap_or(Dim::Int(0)).uop();
        let end = (&at + &count).simplify();
        if at.vmin() < 0 || end.vmax() > cache.most as i128 {
            let text = format!("tokens {} to {} do not fit a cache of {}", at.render(), end.render(), cache.most);
            return refused("attention", x, text);
        }
        cache.memory.set((.., .., .., at.clone()..end.clone(), ..), &Tensor::stack(&[&k, &v], 0));
        let [k, v] = [0, 1].map(|part| self.for_all_heads(cache.memory.get((part, .., .., UOp::int(0)..end.clone()))));
        // With one token there is nothing after it to hide.
        let seen = (count.as_int() != Some(1)).then(|| {
            let tokens = Tensor::arange(Dim::from(count)).unsqueeze(-1) + &Tensor::from(at);
            Tensor::arange(Dim::from(end)).le(&tokens).to(&x.device())
        });
        self.joined(&q.attention(&k, &v, seen.as_ref(), false))
    }

    /// Queries (n, heads, tokens, d), keys and values (n, kv_heads, others, d); or a Tensor with the error.
    #[track_caller]
    fn projected(&self, query: &Tensor, key: &Tensor, value: &Tensor) -> Result<[Tensor; 3], Tensor> {
        let (size, heads, kv) = (self.size, self.heads, self.kv_heads);
        if heads == 0 || kv == 0 || size % heads != 0 || heads % kv != 0 {
            let text = format!("{heads} heads with {kv} of keys and values do not share {size} numbers evenly");
            return Err(refused("attention", query, text));
        }
        let wide = kv * (size / heads);
        let parts = [(query, 0, size), (key, size, wide), (value, size + wide, wide)];
        let one = key.is(query) && value.is(query);
        let all = one.then(|| query.linear(&self.in_proj_weight, self.in_proj_bias.as_ref()));
        let [q, k, v] = parts.map(|(x, from, rows)| match &all {
            Some(all) => all.narrow(-1, from, rows),
            None => {
                let bias = self.in_proj_bias.as_ref().map(|b| b.narrow(0, from, rows));
                x.linear(&self.in_proj_weight.narrow(0, from, rows), bias.as_ref())
            }
        });
        Ok([(q, heads), (k, kv), (v, kv)].map(|(x, n)| self.by_head(&x, n)))
    }
    /// Keys or values with one for each head of the queries.
    fn for_all_heads(&self, x: Tensor) -> Tensor {
        if self.kv_heads == self.heads { x } else { x.repeat_interleave(self.heads / self.kv_heads, 1) }
    }
    /// What all heads made, (n, heads, tokens, d), as the layer's output.
    #[track_caller]
    fn joined(&self, y: &Tensor) -> Tensor {
        self.out_proj.forward(&y.transpose(1, 2).flatten(2, 3))
    }
    /// (n, tokens, heads * d) as (n, heads, tokens, d).
    #[track_caller]
    fn by_head(&self, x: &Tensor, heads: usize) -> Tensor {
        x.unflatten(-1, [Dim::from(heads), Dim::from(self.size / self.heads)]).transpose(1, 2)
    }
    /// Attention whose weights are dropped: values that are one-hot rows would give the weights, so these are computed
    /// here.
    #[track_caller]
    fn dropped(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, causal: bool) -> Tensor {
        let root = ((self.size / self.heads) as f64).sqrt();
        let mut scores = q.matmul(&k.transpose(2, 3)).div(root);
        if causal {
            let keep = Tensor::full(scores.shape().unwrap_or_default(), true).tril(0);
            scores = keep.where_(&scores, f64::NEG_INFINITY);
        }
        if let Some(mask) = mask {
            let is_bool = mask.dtype().is_ok_and(|t| t == crate::uop::Scalar::Bool);
            scores = if is_bool { mask.where_(&scores, f64::NEG_INFINITY) } else { scores + mask };
        }
        scores.softmax(-1).dropout(self.dropout, true).matmul(v)
    }
}
