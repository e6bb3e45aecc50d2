"""aiter's attention on the software GPU: one query a sequence over a paged cache, and whole sequences.

Arguments are those of the wheel's csrc/py_itfs_cu/asm_pa.cu and of csrc/include/mha_fwd.h, as hsa/gfx942/fmha_v3_fwd's
codegen.py fills them.
"""

import numpy as np
from aiter_runs import BF16, F16, between, bf16, padded, symbol

HEAD = 128
# A score is a sum of 128 products in f32 and its exponential is one of the hardware's: together far below this.
SINGLES = 2**-15


def attention(q, k, v, masked=None):
    """softmax(q k' / sqrt(HEAD)) v in doubles, the same of |v|, and the logarithms of the sums of exponentials.

    The kernels round each probability to the element type. So what a result may be off is a part of that with |v|.
    """
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(HEAD)
    if masked is not None:
        scores = np.where(masked, -np.inf, scores)
    most = scores.max(-1, keepdims=True)
    parts = np.exp(scores - most)
    sums = parts.sum(-1, keepdims=True)
    parts /= sums
    return parts @ v, parts @ abs(v), (most + np.log(sums))[..., 0]


def paged(runs, rng, name, element, group, lengths):
    """`group` query heads share a head of the cache. Blocks of 16 tokens lie where a table says.

    Of 241 to 255 tokens the kernels take the first 256 without a mask, as their last block is the 16th: they are wrong.
    """
    block, packed, kv_heads = 16, 8, 2
    heads, width = group * kv_heads, max(-(-n // block) for n in lengths)
    blocks = len(lengths) * width + 1
    table = rng.permutation(blocks)[: len(lengths) * width].reshape(-1, width).astype(np.int32)
    draw = lambda *shape: element.nearest(rng.standard_normal(shape))
    q = draw(len(lengths), heads, HEAD)
    k = draw(blocks, kv_heads, HEAD // packed, block, packed)
    v = draw(blocks, kv_heads, block // packed, HEAD, packed)
    args = [
        runs.out(q.size * 2),
        *(runs.file(element.bytes(x)) for x in (q, k, v)),
        runs.file(table.tobytes()),
        runs.file(np.array(lengths, np.int32).tobytes()),
        *["null"] * 2,
        f"f32:{np.float32(np.log2(np.e) / np.sqrt(HEAD))}",
        f"u32:{width}",
        f"u32:{kv_heads}",
        f"u32:{heads * HEAD * 2}",
        f"u32:{kv_heads * HEAD * block * 2}",
        f"u32:{HEAD * block * 2}",
        f"u32:{group}",
        "null",
    ]
    # To one row of HEAD numbers a token, for each sequence and head of the cache.
    rows = lambda x, order: x[table].transpose(order).reshape(len(lengths), kv_heads, -1, HEAD)
    keys, values = rows(k, (0, 2, 1, 4, 3, 5)), rows(v, (0, 2, 1, 3, 5, 4))
    want, error = np.empty(q.shape), np.empty(q.shape)
    rounded = element.nearest if element is BF16 else element.cut
    unit = element.unit * (1 if element is BF16 else 2)
    for n, length in enumerate(lengths):
        queries = q[n].reshape(kv_heads, group, HEAD)
        result, size, _ = attention(queries, keys[n, :, :length], values[n, :, :length])
        want[n], error[n] = (x.reshape(heads, HEAD) for x in (result, (unit + SINGLES) * size))

    def check(out):
        return between("results", element.numbers(out).reshape(q.shape), want, error, rounded)

    runs.add(f"pa/{name}.co", symbol(name), [kv_heads, len(lengths), 1], padded(args), check)


def whole(runs, rng, how, causal):
    """All queries of two sequences; `how` the kernel rounds to bf16. A workgroup has 256 of a head's queries."""
    batch, queries, tokens, heads, kv_heads = 2, 40, 72, 2, 1
    draw = lambda heads, rows: bf16(rng.standard_normal((batch, heads, rows, HEAD)))
    q, k, v = draw(heads, queries), draw(kv_heads, tokens), draw(kv_heads, tokens)
    row, u32 = HEAD * 2, lambda *numbers: [f"u32:{n}" for n in numbers]
    strides = lambda heads, rows: u32(row, rows * row, heads * rows * row)
    mine, theirs = strides(heads, queries), strides(kv_heads, tokens)
    args = [
        runs.out(q.size * 2),
        *(runs.file(BF16.bytes(x)) for x in (q, k, v)),
        runs.out(batch * heads * queries * 4),
        f"f32:{np.float32(1 / np.sqrt(HEAD))}",
        *u32(queries),
        mine[0],
        *u32(256 * row),
        *mine[1:],
        *u32(heads // kv_heads),
        *theirs,
        *u32(3 if causal else 5, 1, tokens, HEAD, HEAD, heads),
        *theirs,
        *mine,
        *["null"] * 2,
        *u32(queries * 4),
        *["null"] * 2,
    ]
    # The last query sees all tokens.
    later = np.arange(tokens)[None] > np.arange(queries)[:, None] + tokens - queries
    k, v = (np.repeat(x, heads // kv_heads, 1) for x in (k, v))
    want, size, logs = attention(q, k, v, later if causal else None)
    unit = BF16.unit * (2 if how == "rtz" else 1)

    def check(out, logs_out):
        off = abs(np.frombuffer(logs_out, np.float32).reshape(logs.shape) - logs).max()
        if not off < SINGLES:
            return f"logarithms differ by up to {off}"
        got = BF16.numbers(out).reshape(want.shape)
        rounded = BF16.cut if how == "rtz" else BF16.nearest
        return between("results", got, want, (unit + SINGLES) * size, rounded)

    name = f"fwd_hd128_bf16_{'causal_' if causal else ''}{how}"
    grid = [1, heads, batch]
    runs.add(f"fmha_v3_fwd/MI300/{name}.co", symbol(f"fmha_{name}"), grid, padded(args), check, 512)


def add(runs, rng):
    for element, type in ((BF16, "bf16"), (F16, "fp16")):
        for group in (8, 16):
            paged(runs, rng, f"pa_{type}_noquant_gqa{group}_1tg_4w", element, group, [40, 1, 300])
    for causal in (False, True):
        for how in ("rtz", "rtna", "rtne"):
            whole(runs, rng, how, causal)
