"""Matrix products of any ranks, convolutions and pools.

Convolutions are written with index arrays (a patch is a gather from the padded input), their gradients as the transposed
scatter. Layout: input N C H W, weight O C/groups KH KW. Padding is [left, right, top, bottom].
"""
import numpy as np

import dtypes as dt
from case import BITS, Case, T, distinct, near, sample, unbroadcast, with_grad

MATMULS = [((5,), (5,)), ((3, 5), (5,)), ((5,), (5, 3)), ((3, 5), (5, 7)), ((1, 1), (1, 1)), ((17, 33), (33, 5)), ((2, 3, 5), (5, 4)), ((2, 3, 5), (2, 5, 4)),
           ((2, 1, 3, 5), (3, 5, 4)), ((4, 5), (2, 3, 5, 2)), ((5,), (2, 5, 3)), ((1, 2, 1, 2, 3, 4), (2, 1, 2, 1, 4, 3)), ((3, 0), (0, 2)), ((0, 3), (3, 2)), ((33, 17), (17, 33))]


def products(k, a, b, dtype):
    """k products and their sum, kept in f32 for narrow floats."""
    e = dt.eps("f64" if dtype == "f64" else "f32")
    size = float(np.abs(a.wide).max(initial=0) * np.abs(b.wide).max(initial=0))
    return near((k + 1) * e * size * max(k, 1) / 2, dt.eps(dtype), "k products summed in any order: k eps sum|a b| / 2")


def grad_tolerance(dtype, terms, a=2.0):
    return near(terms * dt.eps(dtype) * a, 16 * dt.eps(dtype), "each gradient is itself a sum of products")


def matmul_slopes(g, y, a, b):
    rows, columns = a.ndim == 1, b.ndim == 1
    a2, b2 = (a[None] if rows else a), (b[:, None] if columns else b)
    g2 = np.expand_dims(g, -1) if columns else g
    g2 = np.expand_dims(g2, -2) if rows else g2
    da = unbroadcast(g2 @ np.swapaxes(b2, -1, -2), a2.shape)
    db = unbroadcast(np.swapaxes(a2, -1, -2) @ g2, b2.shape)
    return [da.reshape(a.shape), db.reshape(b.shape)]


def cases():
    for left, right in MATMULS:
        for dtype in dt.FLOATS if np.prod(left) < 100 else ("f32",):
            a, b = sample("matmul/a", left, dtype), sample("matmul/b", right, dtype)
            k = left[-1]
            name = f"matmul/{dtype}/{'x'.join(map(str, left))} by {'x'.join(map(str, right))}"
            tol = grad_tolerance(dtype, max(left + right + (k,)) * 4)
            yield with_grad(name, "matmul", [a, b], lambda a, b: a @ b, matmul_slopes, products(k, a, b, dtype), grad_tol=tol)
    a, b = sample("matmul/a", (5, 7), "i32", -9, 9), sample("matmul/b", (7, 3), "i32", -9, 9)
    yield Case("matmul/i32", "matmul", [a, b], [T(a.value @ b.value, "i32")], BITS)
    a, b = sample("matmul/a", (64, 65), "f32"), sample("matmul/b", (65, 66), "f32")
    yield Case("matmul/f32/64x65 by 65x66", "matmul", [a, b], [T(a.wide @ b.wide, "f32")], products(65, a, b, "f32"))
    yield from einsum_cases()
    yield from batchnorm_cases()
    yield from conv_cases()
    yield from pool_cases()


def pair(v):
    return (v, v) if isinstance(v, int) else tuple(v)


def windows(shape, kernel, stride, dilation):
    """Row and column index arrays [out, kernel] of every window of a padded plane."""
    both = []
    for size, k, s, d in zip(shape, kernel, stride, dilation):
        out = (size - d * (k - 1) - 1) // s + 1
        both.append(np.arange(out)[:, None] * s + np.arange(k)[None] * d)
    return both


def patches(x, rows, columns):
    """N C H W -> N C OH OW KH KW."""
    return x[:, :, rows[:, None, :, None], columns[None, :, None, :]]


def scatter(p, shape, rows, columns):
    """The transpose of `patches`."""
    out = np.zeros(shape, p.dtype)
    np.add.at(out, (slice(None), slice(None), rows[:, None, :, None], columns[None, :, None, :]), p)
    return out


def padded(x, padding, value=0):
    left, right, top, bottom = padding
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)


def unpadded(x, padding):
    left, right, top, bottom = padding
    return x[:, :, top:x.shape[2] - bottom, left:x.shape[3] - right]


def conv_cases():
    # input, weight, bias, stride, dilation, padding [l, r, t, b], groups
    table = [((1, 1, 3, 3), (1, 1, 1, 1), False, 1, 1, [0, 0, 0, 0], 1), ((2, 3, 7, 5), (4, 3, 3, 3), True, 1, 1, [1, 1, 1, 1], 1),
             ((1, 4, 9, 9), (4, 2, 3, 3), True, 2, 1, [0, 0, 0, 0], 2), ((2, 4, 8, 7), (8, 1, 3, 3), False, 1, 1, [1, 1, 1, 1], 4),
             ((1, 2, 11, 10), (3, 2, 3, 2), True, [2, 1], [2, 3], [1, 2, 0, 3], 1), ((1, 3, 5, 5), (2, 3, 5, 5), True, 1, 1, [0, 0, 0, 0], 1),
             ((3, 5, 6, 6), (5, 5, 1, 1), False, 3, 1, [0, 0, 0, 0], 1), ((0, 2, 4, 4), (3, 2, 3, 3), True, 1, 1, [0, 0, 0, 0], 1)]
    for number, (xs, ws, has_bias, stride, dilation, padding, groups) in enumerate(table):
        for dtype in ("f32", "f64", "bf16") if number in (1, 2) else ("f32",):
            yield conv_case(number, xs, ws, has_bias, {"stride": list(pair(stride)), "dilation": list(pair(dilation)), "padding": padding, "groups": groups}, dtype)


def conv_case(number, xs, ws, has_bias, params, dtype):
    groups, padding = params["groups"], params["padding"]
    plane = (xs[2] + padding[2] + padding[3], xs[3] + padding[0] + padding[1])
    rows, columns = windows(plane, ws[2:], params["stride"], params["dilation"])

    def split(x, w):
        p = patches(padded(x, padding), rows, columns)
        return p.reshape(xs[0], groups, xs[1] // groups, *p.shape[2:]), w.reshape(groups, ws[0] // groups, *ws[1:])

    def forward(x, w, *bias):
        p, wg = split(x, w)
        y = np.einsum("ngcyxhw,gochw->ngoyx", p, wg).reshape(xs[0], ws[0], len(rows), len(columns))
        return y + bias[0][:, None, None] if bias else y

    def backward(g, y, x, w, *bias):
        p, wg = split(x, w)
        gg = g.reshape(xs[0], groups, ws[0] // groups, *g.shape[2:])
        dw = np.einsum("ngcyxhw,ngoyx->gochw", p, gg).reshape(ws)
        dp = np.einsum("ngoyx,gochw->ngcyxhw", gg, wg).reshape(xs[0], xs[1], len(rows), len(columns), *ws[2:])
        dx = unpadded(scatter(dp, padded(x, padding).shape, rows, columns), padding)
        return [dx, dw] + ([g.sum(axis=(0, 2, 3))] if bias else [])

    inputs = [sample("conv/x", xs, dtype), sample("conv/w", ws, dtype)] + ([sample("conv/b", (ws[0],), dtype)] if has_bias else [])
    k = int(np.prod(ws[1:]))
    terms = max(k, max(1, xs[0]) * len(rows) * len(columns))
    tol = products(k, inputs[0], inputs[1], dtype)
    if has_bias and dtype not in ("f32", "f64"):
        largest = float(np.abs(forward(inputs[0].wide, inputs[1].wide)).max())
        tol = near(tol["abs"] + dt.eps(dtype) * largest / 2, tol["rel"], tol["why"] + "; the sum is rounded before the bias is added")
    return with_grad(f"conv2d/{dtype}/{number}", "conv2d", inputs, forward, backward, tol, params, grad_tolerance(dtype, terms * 2))


def pool_cases():
    # input, kernel, stride, dilation, padding
    table = [((1, 1, 4, 4), [2, 2], [2, 2], 1, 0), ((2, 3, 7, 6), [3, 2], [2, 1], 1, 0), ((1, 2, 9, 9), [3, 3], [2, 2], 1, 1), ((1, 1, 10, 9), [3, 2], [1, 2], 2, 1), ((2, 1, 5, 5), [5, 5], [5, 5], 1, 0)]
    for number, (shape, kernel, stride, dilation, pad) in enumerate(table):
        for dtype in ("f32", "f64", "f16") if number == 1 else ("f32",):
            yield from pools(number, shape, kernel, {"kernel": kernel, "stride": stride, "dilation": dilation, "padding": [pad] * 4}, dtype)


def pools(number, shape, kernel, params, dtype):
    padding = params["padding"]
    plane = (shape[2] + 2 * padding[0], shape[3] + 2 * padding[0])
    rows, columns = windows(plane, kernel, params["stride"], pair(params["dilation"]))
    full = shape[:2] + plane
    x = distinct("pool", shape, dtype)
    take = lambda x, fill: patches(padded(x, padding, fill), rows, columns)

    def max_back(g, y, x):
        p = take(x, -np.inf)
        return [unpadded(scatter(np.where(p == y[..., None, None], g[..., None, None], 0), full, rows, columns), padding)]

    yield with_grad(f"max_pool2d/{dtype}/{number}", "max_pool2d", [x], lambda x: take(x, -np.inf).max(axis=(-1, -2)), max_back, BITS, params)
    for include in (True, False) if padding[0] else (True,):
        inside = take(np.ones(shape, dt.WIDE), 0 if not include else 1).sum(axis=(-1, -2))
        value = lambda x: take(x, 0).sum(axis=(-1, -2)) / inside

        def mean_back(g, y, x):
            shape6 = g.shape + tuple(kernel)
            return [unpadded(scatter(np.broadcast_to((g / inside)[..., None, None], shape6), full, rows, columns), padding)]

        size = float(np.abs(x.wide).max())
        tol = near(kernel[0] * kernel[1] * dt.eps(dtype) * size, 4 * dt.eps(dtype), "a sum over the window and a division")
        name = f"avg_pool2d/{dtype}/{number}" + ("" if include else "/padding not counted")
        yield with_grad(name, "avg_pool2d", [x], value, mean_back, tol, {**params, "count_include_pad": include})


def einsum_cases():
    """Two operands without repeated letters: the gradient of one is the einsum of the cotangent with the other."""
    for formula, left, right in (("bij,bjk->bik", (2, 3, 5), (2, 5, 4)), ("ij,kj->ki", (3, 17), (4, 17)), ("i,j->ij", (5,), (3,)), ("ab,ab->", (3, 7), (3, 7))):
        (a_names, b_names), out = formula.split("->")[0].split(","), formula.split("->")[1]
        for dtype in dt.FLOATS:
            a, b = sample("einsum/a", left, dtype), sample("einsum/b", right, dtype)
            terms = int(np.prod([n for n, c in zip(left, a_names) if c not in out], dtype=np.int64))
            e = dt.eps(dtype)
            tol = near(2 * terms * min(e, dt.eps("f32")), e, "products summed in f32 or f64, rounded once")
            slopes = lambda g, y, a, b: [np.einsum(f"{out},{b_names}->{a_names}", g, b), np.einsum(f"{out},{a_names}->{b_names}", g, a)]
            yield with_grad(f"linear/einsum/{dtype}/{formula}", "einsum", [a, b], lambda a, b: np.einsum(formula, a, b), slopes, tol, {"formula": formula}, near(8 * e, 8 * e, "sums of products"))
    far = T(np.full((2, 40), 50), "f16")
    yield Case("linear/einsum/f16/a partial sum beyond f16", "einsum", [far, T(np.tile([50, -50], (2, 20)), "f16")], [T([0, 0], "f16")], BITS, {"formula": "ij,ij->i"})


def batchnorm_cases():
    for shape in ((4, 3), (2, 3, 4, 2)):
        for dtype in dt.FLOATS:
            x, e = sample("batchnorm", shape, dtype, -4, 4), dt.eps(dtype)
            weight, bias = sample("batchnorm/w", (3,), dtype, 0.5, 2), sample("batchnorm/b", (3,), dtype)
            mean, scale = sample("batchnorm/m", (3,), dtype), sample("batchnorm/s", (3,), dtype, 0.5, 2)
            spread = lambda v, n=len(shape): v.reshape((1, 3) + (1,) * (n - 2))
            value = (x.wide - spread(mean.wide)) * spread(scale.wide * weight.wide) + spread(bias.wide)
            tol = near(32 * min(e, dt.eps("f32")), e, "in f32 or f64, rounded once")
            yield Case(f"linear/batchnorm/{dtype}/{'x'.join(map(str, shape))}", "batchnorm", [x, weight, bias, mean, scale], [T(value, dtype)], tol)
