"""aiter's mixture of experts on the software GPU: both layers of 16-bit weights in one kernel, and the first layer of
8-bit weights.

Arguments are those of the wheel's csrc/py_itfs_cu/asm_fmoe.cu and asm_moe_2stage.cu; the order of weights in memory is
that of aiter/ops/shuffle.py.
"""

import numpy as np
from aiter_runs import BF16, F16, between, padded, symbol, within

# Sums of up to 512 products in f32, and exponentials and reciprocals of the hardware.
SUM, FUNCTION = 2**-22, 2**-20
# The steepest slope of GELU and SiLU.
SLOPE = 1.14


def shuffled(weights, bytes):
    """Tiles of 16 rows and 64 bytes: in each, 16 bytes of every row, then the next ones."""
    rows, columns = weights.shape[-2:]
    few = 16 // bytes
    tiles = weights.reshape(-1, rows // 16, 16, columns // (4 * few), 4, few)
    return tiles.transpose(0, 1, 3, 4, 2, 5)


class Routes:
    """Tokens with `topk` experts each, sorted by expert and filled up to blocks of so many, as kernels take them."""

    def __init__(self, rng, tokens, experts, topk, block):
        self.experts = np.array([rng.permutation(experts)[:topk] for _ in range(tokens)])
        self.weights = rng.uniform(0.1, 1, (tokens, topk)).astype(np.float32)
        ids, weights, self.of_block = [], [], []
        for expert in range(experts):
            token, slot = np.nonzero(self.experts == expert)
            fill = -len(token) % block
            ids += [*(token | slot << 24), *[tokens | topk << 24] * fill]
            weights += [*self.weights[token, slot], *[0] * fill]
            self.of_block += [expert] * ((len(token) + fill) // block)
        self.ids, self.sorted_weights = np.array(ids, np.uint32), np.array(weights, np.float32)

    def files(self, runs):
        of_block, count = np.array(self.of_block, np.int32), np.array([len(self.ids)], np.int32)
        return [runs.file(array.tobytes()) for array in (self.ids, self.sorted_weights, of_block, count)]


def gelu(x):
    """Its approximation by a tanh."""
    return x / (1 + np.exp(-np.sqrt(8 / np.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x / (1 + np.exp(-x))


def both_layers(runs, rng, name, element, is_padded):
    """GELU between the layers, and the sum over a token's experts weighted.

    A step has 128 columns of the result, and the kernel writes the last two behind its loop of two steps: with an odd
    number of steps, or less than four, it writes them to wrong places.
    """
    tokens, dim, inner, experts, topk = 5, 512, 512, 2, 2
    routes = Routes(rng, tokens, experts, topk, 32)
    draw = lambda scale, *shape: element.nearest(rng.standard_normal(shape) * scale)
    x = draw(1, tokens, dim)
    up, down = draw(dim**-0.5, experts, inner, dim), draw(inner**-0.5, experts, dim, inner)
    ids, weights, of_block, count = routes.files(runs)
    args = [
        runs.out(tokens * dim * 2),
        runs.file(element.bytes(x)),
        runs.file(element.bytes(shuffled(up, 2))),
        count,
        runs.file(element.bytes(shuffled(down, 2))),
        *["null"] * 4,
        *(ids, weights, of_block),
        *(f"u32:{n}" for n in (dim, inner, tokens, experts, dim * 2, dim * 2, inner * 2, dim * 2)),
        *(f"u32:{n}" for n in (inner * dim * 2, inner * dim * 2, 0, 0, inner * 4, topk)),
    ]
    low = high = 0
    rounded = element.nearest
    for slot in range(topk):
        mine = routes.experts[:, slot]
        a, b = up[mine].astype(np.float64), down[mine].astype(np.float64)
        middle = np.einsum("tij,tj->ti", a, x)
        error = SLOPE * SUM * np.einsum("tij,tj->ti", abs(a), abs(x)) + FUNCTION * abs(middle)
        # What the second layer takes is rounded: mostly it is known exactly what to.
        least, most = rounded(gelu(middle) - error), rounded(gelu(middle) + error)
        centre, radius = (least + most) / 2.0, (most - least) / 2.0
        weight = routes.weights[:, slot, None]
        want = weight * np.einsum("tij,tj->ti", b, centre)
        error = weight * np.einsum("tij,tj->ti", abs(b), radius + SUM * abs(centre))
        # Atomic additions of 16-bit numbers, two to a number: in either order the same.
        low, high = element.even(low + rounded(want - error)), element.even(high + rounded(want + error))

    def check(out):
        return within("results", element.numbers(out).reshape(tokens, dim), low, high)

    args = padded(args) if is_padded else args
    runs.add(f"{name}.co", "fmoe_kernel_func", [1, len(routes.of_block), 1], args, check)


def fp8_numbers():
    """All 256 numbers of e4m3fnuz: a bias of 8, no infinities, no negative zero (its word is the only NaN)."""
    word = np.arange(256)
    exponent, mantissa = word >> 3 & 15, word & 7
    size = np.where(exponent == 0, mantissa / 8 * 2.0**-7, (1 + mantissa / 8) * 2.0 ** (exponent - 8.0))
    return np.where(word == 128, np.nan, np.where(word & 128, -size, size))


def draw_8_bits(rng, is_fp8, *shape):
    """Words, and the numbers that they are."""
    if not is_fp8:
        words = rng.integers(-127, 128, shape).astype(np.int8)
        return words, words.astype(np.float64)
    words = rng.integers(0, 255, shape).astype(np.uint8)
    words += words >= 128  # Any but the NaN.
    return words, fp8_numbers()[words]


def first_layer(runs, rng, type, rows, columns, rest, activation):
    """act(x gate') * (x up') of each expert of a token; a token and a row of weights have a scale."""
    tokens, dim, inner, experts, topk = 5, 256, 128, 3, 2
    routes = Routes(rng, tokens, experts, topk, rows)
    x, x_numbers = draw_8_bits(rng, type == "Fp8", tokens, dim)
    weights, numbers = draw_8_bits(rng, type == "Fp8", experts, 2 * inner, dim)
    scales = lambda like, *shape: (rng.uniform(0.5, 2, shape) / np.sqrt((like**2).mean())).astype(np.float32)
    x_scales, scales = scales(x_numbers, tokens), scales(numbers, experts, 2 * inner) * np.float32(dim**-0.5)
    ids, _, of_block, count = routes.files(runs)
    args = [
        runs.out(tokens * topk * inner * 2),
        runs.file(x.tobytes()),
        runs.file(shuffled(weights, 1).tobytes()),
        count,
        runs.file(x_scales.tobytes()),
        runs.file(scales.tobytes()),
        "null",
        *(ids, of_block),
        *(f"u32:{n}" for n in (dim, inner, tokens, experts, dim, dim, topk * inner * 2, 2 * inner * dim)),
        *(f"u32:{n}" for n in (2 * inner * 4, inner * 4, topk, 0, [silu, gelu].index(activation), 0)),
    ]
    mine = routes.experts
    scale = x_scales[:, None, None].astype(np.float64) * scales[mine]
    sums = scale * np.einsum("tkij,tj->tki", numbers[mine], x_numbers)
    errors = SUM * scale * np.einsum("tkij,tj->tki", abs(numbers[mine]), abs(x_numbers))
    (gate, up), (gate_error, up_error) = (np.split(part, 2, axis=-1) for part in (sums, errors))
    want = activation(gate) * up
    error = SLOPE * gate_error * abs(up) + abs(activation(gate)) * up_error + FUNCTION * abs(want)

    def check(out):
        return between("results", BF16.numbers(out).reshape(want.shape), want, error, BF16.nearest)

    name = f"fmoe_stage1_bf16_pertoken{type}_g1u1_{rows}x{columns}_{rest}"
    grid = [inner // columns, len(routes.of_block), 1]
    runs.add(f"fmoe_2stages/{name}.co", symbol(name), grid, padded(args), check)


def add(runs, rng):
    both_layers(runs, rng, "fmoe_b16", BF16, True)
    # Its metadata has no padding.
    both_layers(runs, rng, "fmoe_f16", F16, False)
    first_layer(runs, rng, "Fp8", 16, 64, "6tg_pf2", silu)
    first_layer(runs, rng, "Int8", 16, 128, "4tg_pf2", gelu)
