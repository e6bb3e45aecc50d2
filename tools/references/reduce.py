"""Reductions, normalisations along an axis, and running sums.

Sums of narrow floats are kept in f32 and rounded once; sums of small integers give i32 or u32. `axis` is null for all axes.
"""
import numpy as np

import dtypes as dt
from case import BITS, Case, T, distinct, near, sample, with_grad

# shape, axes
SHAPES = [((33,), None), ((1,), None), ((17,), 0), ((3, 5), None), ((3, 5), 0), ((3, 5), 1), ((2, 3, 4), (0, 2)), ((2, 3, 4), 1), ((5, 1, 7), -1),
          ((2, 1, 3, 1, 2, 2), (1, 3, 5)), ((1025,), None), ((3, 333), 1), ((333, 3), 0)]
SUM_DTYPE = {"bool": "i32", "i8": "i32", "i16": "i32", "i32": "i32", "i64": "i64", "u8": "u32", "u16": "u32", "u32": "u32", "u64": "u64"}


def axes_of(shape, axis):
    return tuple(range(len(shape))) if axis is None else tuple(a % len(shape) for a in (axis if isinstance(axis, tuple) else (axis,)))


def count(shape, axis):
    return int(np.prod([shape[a] for a in axes_of(shape, axis)], dtype=np.int64))


def params(axis, keepdim=False, **more):
    return {"axis": list(axis) if isinstance(axis, tuple) else axis, "keepdim": keepdim, **more}


def accumulation(x, axis, dtype):
    """What n roundings of partial sums may cost, in any order: n eps sum|x|; the result is rounded to its dtype once more."""
    e = dt.eps("f64" if dtype == "f64" else "f32")
    total = float(np.abs(x.wide).sum(axis=axis).max()) if x.value.size else 0.0
    return near(count(x.value.shape, axis) * e * total / 2, dt.eps(dtype) / (1 if dtype in ("f16", "bf16") else 2), "partial sums in any order: n eps sum|x| / 2")


def name_of(op, dtype, shape, axis):
    return f"reduce/{op}/{dtype}/{'x'.join(map(str, shape))} over {'all' if axis is None else axis}"


def cases():
    for shape, axis in SHAPES:
        for dtype in dt.FLOATS if np.prod(shape) < 100 else ("f32",):
            yield from float_cases(shape, axis, dtype)
    yield from empty_and_keepdim()
    yield from integer_cases()
    yield from no_number_cases()
    yield from along_axis_cases()
    yield from cumulative_cases()
    yield from running_cases()
    yield from norm_cases()
    yield from truth_cases()


def expand(y, shape, axis):
    return np.broadcast_to(np.expand_dims(y, axes_of(shape, axis)) if y.ndim < len(shape) else y, shape)


def float_cases(shape, axis, dtype):
    x = sample("reduce", shape, dtype)
    n = count(shape, axis)
    tol = accumulation(x, axis, dtype)
    up = lambda g: expand(g, shape, axis)
    yield with_grad(name_of("sum", dtype, shape, axis), "sum", [x], lambda x: x.sum(axis=axis), lambda g, y, x: [up(g)], tol, params(axis))
    mean_tol = near(tol["abs"] / n, tol["rel"] + dt.eps(dtype), tol["why"] + ", over n")
    yield with_grad(name_of("mean", dtype, shape, axis), "mean", [x], lambda x: x.mean(axis=axis), lambda g, y, x: [up(g) / n], mean_tol, params(axis))
    for correction in (0, 1) if n > 1 else (0,):
        e, size = dt.eps(dtype), float(np.abs(x.wide).max())
        tol = near((n if dtype in ("f32", "f64") else 8) * e * size**2, 8 * e, "differences from a rounded mean, squared and summed")
        center = lambda x: x - x.mean(axis=axis, keepdims=True)
        var = lambda x, c=correction: x.var(axis=axis, ddof=c)
        yield with_grad(name_of(f"var{correction}", dtype, shape, axis), "var", [x], var, lambda g, y, x, c=correction: [up(g) * 2 * center(x) / (n - c)], tol, params(axis, correction=correction))
    if n > 1:
        slopes = lambda g, y, x: [up(g) * center(x) / (up(y) * (n - 1))]
        yield with_grad(name_of("std", dtype, shape, axis), "std", [x], lambda x: x.std(axis=axis, ddof=1), slopes, tol, params(axis, correction=1))
    if n <= 33:
        near_one = sample("reduce/prod", shape, dtype, 0.7, 1.4)
        tol = near(0, n * dt.eps(dtype), "n roundings of partial products, in any order")
        yield with_grad(name_of("prod", dtype, shape, axis), "prod", [near_one], lambda x: x.prod(axis=axis), lambda g, y, x: [up(g) * up(y) / x], tol, params(axis))
    x = distinct("reduce", shape, dtype) if dtype in ("f32", "f64") or n <= 33 else x
    for op, function in (("max", np.max), ("min", np.min)):
        yield with_grad(name_of(op, dtype, shape, axis), op, [x], lambda x, f=function: f(x, axis=axis), lambda g, y, x: [up(g) * (x == up(y))], BITS, params(axis))
    if axis is None or isinstance(axis, int):
        for op, function in (("argmax", np.argmax), ("argmin", np.argmin)):
            yield Case(name_of(op, dtype, shape, axis), op, [x], [T(function(x.value, axis=axis), "i32")], BITS, params(axis))


def empty_and_keepdim():
    for shape, axis in (((0,), None), ((0, 3), 0), ((0, 3), 1), ((3, 0, 2), (0, 1))):
        x = T(np.zeros(shape), "f32")
        yield Case(name_of("sum", "f32", shape, axis), "sum", [x], [T(x.value.sum(axis=axis), "f32")], BITS, params(axis))
        yield Case(name_of("prod", "f32", shape, axis), "prod", [x], [T(x.value.prod(axis=axis), "f32")], BITS, params(axis))
    x = sample("keepdim", (2, 3, 4), "f32")
    for op, function in (("sum", np.sum), ("max", np.max), ("mean", np.mean)):
        tol = BITS if op == "max" else accumulation(x, (0, 2), "f32")
        yield Case(f"reduce/{op}/keepdim", op, [x], [T(function(x.wide, axis=(0, 2), keepdims=True), "f32")], tol, params((0, 2), True))
    x = T(2.5, "f32")
    for op in ("sum", "mean", "max", "prod"):
        yield Case(f"reduce/{op}/scalar", op, [x], [x], BITS, params(None))


def integer_cases():
    for dtype in ("bool",) + dt.INTS:
        x = sample("reduce/int", (5, 7), dtype, -20, 20)
        for axis in (None, 0, 1):
            out = SUM_DTYPE[dtype]
            total = x.value.astype(np.uint64 if out[0] == "u" else np.int64).sum(axis=axis)
            yield Case(name_of("sum", dtype, (5, 7), axis), "sum", [x], [T(total, out)], BITS, params(axis))
            for op, function in (("max", np.max), ("min", np.min)):
                yield Case(name_of(op, dtype, (5, 7), axis), op, [x], [T(function(x.value, axis=axis), dtype)], BITS, params(axis))
            if dtype != "bool":
                for op, function in (("argmax", np.argmax), ("argmin", np.argmin)):
                    yield Case(name_of(op, dtype, (5, 7), axis), op, [x], [T(function(x.value, axis=axis), "i32")], BITS, params(axis))
        if dtype != "bool":
            ends = T(np.array([dt.smallest(dtype), dt.largest(dtype), dt.smallest(dtype)], object).astype(dt._NUMPY[dtype]), dtype)
            for op, function in (("max", np.max), ("min", np.min)):
                yield Case(f"reduce/{op}/{dtype}/limits", op, [ends], [T(function(ends.value), dtype)], BITS, params(None))
    x = sample("reduce/int mean", (5, 7), "i32", -20, 20)
    yield Case("reduce/mean/i32", "mean", [x], [T(x.wide.mean(axis=1), "f32")], near(1e-6, 4 * dt.eps("f32"), "integers average as f32"), params(1))
    big = T([2**31 - 1, 1], "i32")
    yield Case("reduce/sum/i32/wraps", "sum", [big], [T([-(2**31)], "i32")], BITS, params(0, True))


def no_number_cases():
    inf, nan = np.inf, np.nan
    x = T([[1, nan, 2], [inf, 1, -inf], [inf, 1, 2], [-inf, -inf, -inf], [nan, nan, nan]], "f32")
    with np.errstate(all="ignore"):
        for op, function in (("sum", np.sum), ("mean", np.mean), ("prod", np.prod), ("max", np.max), ("min", np.min)):
            yield Case(f"reduce/{op}/f32/infinities and no numbers", op, [x], [T(function(x.wide, axis=1), "f32")], BITS, params(1))
    ties = T([[1, 3, 3, 2], [0, 0, 0, 0], [-1, -1, -2, -2]], "f32")
    for op, function in (("argmax", np.argmax), ("argmin", np.argmin)):
        yield Case(f"reduce/{op}/first of equals", op, [ties], [T(function(ties.value, axis=1), "i32")], BITS, params(1))


def softmax(x, axis):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def logsumexp(x, axis, keepdims=False):
    top = np.max(x, axis=axis, keepdims=True)
    y = np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top
    return y if keepdims else np.squeeze(y, axis=axis)


def along_axis_cases():
    for shape, axis in (((33,), 0), ((3, 5), 1), ((3, 5), 0), ((2, 3, 17), -1), ((4, 1), 1), ((2, 2, 3, 1, 2, 3), 2), ((3, 129), 1)):
        for dtype in dt.FLOATS if np.prod(shape) < 100 else ("f32",):
            e, n = dt.eps(dtype), shape[axis]
            x = sample("softmax", shape, dtype, -4, 4)
            rel = (32 + n) * e if dtype in ("f32", "f64") else 4 * e
            total = lambda t: t.sum(axis=axis, keepdims=True)
            slopes = lambda g, y, x: [y * (g - total(g * y))]
            tol = near(0, rel, "an exp of a difference up to 8, a sum of n, a division")
            yield with_grad(name_of("softmax", dtype, shape, axis), "softmax", [x], lambda x: softmax(x, axis), slopes, tol, {"axis": axis})
            value = lambda x: x - logsumexp(x, axis, True)
            tol = near(rel * 4, 4 * e, "the log of a sum, absolute at the size of the inputs")
            yield with_grad(name_of("log_softmax", dtype, shape, axis), "log_softmax", [x], value, lambda g, y, x: [g - np.exp(y) * total(g)], tol, {"axis": axis})
            slopes = lambda g, y, x: [np.expand_dims(g, axis) * softmax(x, axis)]
            yield with_grad(name_of("logsumexp", dtype, shape, axis), "logsumexp", [x], lambda x: logsumexp(x, axis), slopes, tol, params(axis))
    big = T([[1e4, 1e4 - 1, -1e4], [-1e4, -1e4, -1e4], [0, -np.inf, 0]], "f32")
    tol = near(0, 64 * dt.eps("f32"), "the maximum is taken off first, so nothing overflows")
    yield Case("reduce/softmax/f32/large", "softmax", [big], [T(softmax(big.wide, 1), "f32")], tol, {"axis": 1})
    yield Case("reduce/logsumexp/f32/large", "logsumexp", [big], [T(logsumexp(big.wide, 1), "f32")], tol, params(1))


def running_cases():
    """Running extremes, exact in every dtype, and running products."""
    for op, function, arg in (("cummax", np.maximum, np.argmax), ("cummin", np.minimum, np.argmin)):
        for shape, axis in (((33,), 0), ((3, 5), 1), ((2, 3, 4), -2), ((600,), 0), ((0, 3), 1)):
            for dtype in dt.FLOATS + dt.INTS + dt.FP8 if np.prod(shape) < 100 else ("f32", "u8") + dt.FP8:
                x = sample(op, shape, dtype, -90, 90)
                yield Case(name_of(op, dtype, shape, axis), op, [x], [T(function.accumulate(x.value, axis=axis), dtype)], BITS, {"axis": axis})
        for dtype in ("f32", "f64"):
            x = distinct(op, (33,), dtype)
            first = np.array([arg(x.wide[:k + 1]) for k in range(33)])
            slopes = lambda g, y, x, p=first: [np.bincount(p, weights=g.astype(np.float64), minlength=33).astype(x.dtype)]
            tol = near(64 * dt.eps(dtype), 4 * dt.eps(dtype), "each element's gradient is a sum of cotangents")
            yield with_grad(f"reduce/{op}/{dtype}/gradient", op, [x], lambda x, f=function: f.accumulate(x), slopes, BITS, {"axis": 0}, tol)
    for shape, axis in (((33,), 0), ((3, 5), 0), ((2, 3, 4), 1)):
        for dtype in dt.FLOATS:
            x = sample("cumprod", shape, dtype, 0.7, 1.4)
            back = lambda g: np.flip(np.cumsum(np.flip(g, axis), axis=axis), axis)
            tol = near(0, shape[axis] * dt.eps(dtype), "n roundings of partial products, in any order")
            grad_tol = near(shape[axis] ** 2 * dt.eps(dtype), shape[axis] * dt.eps(dtype), "a sum of n products of n")
            yield with_grad(name_of("cumprod", dtype, shape, axis), "cumprod", [x], lambda x: np.cumprod(x, axis=axis), lambda g, y, x: [back(g * y) / x], tol, {"axis": axis}, grad_tol)


def truth_cases():
    for dtype in dt.ALL:
        x = T(np.where(sample("truth", (4, 5), "bool").value, sample("truth", (4, 5), "i8", 0, 1).value, 0), dtype)
        x.value[1], x.value[2] = 0, 1
        if dtype in dt.FLOATS:
            x.value[3] = [np.nan, np.nan, -0.0, np.inf, 1]
        for axis in (None, 0, 1):
            for op, function in (("any", np.any), ("all", np.all)):
                yield Case(name_of(op, dtype, (4, 5), axis), op, [x], [T(function(x.value != 0, axis=axis), "bool")], BITS, params(axis))


def norm_cases():
    """layernorm and rmsnorm: half types in f32 throughout, also where their squares are beyond them."""
    for shape, axis in (((33,), 0), ((3, 5), 1), ((3, 5), 0), ((2, 3, 4), (1, 2)), ((4, 7), None), ((3, 1), 1)):
        for dtype in dt.FLOATS:
            e, eps = dt.eps(dtype), 1e-5
            x = sample("norm", shape, dtype, -4, 4)
            mean = lambda v: v.mean(axis=axis, keepdims=True)
            scale = lambda v: 1 / np.sqrt(mean(v * v) + eps)
            tol = near(64 * min(e, dt.eps("f32")), 2 * e if dtype in ("f16", "bf16") else 16 * e, "a mean, differences from it, and a root")
            slopes = lambda g, y, x: [scale(x - mean(x)) * (g - mean(g) - y * mean(g * y))]
            # One element is its own mean: its scale is 1 / sqrt(eps), which magnifies the cotangents' rounding.
            grad_tol = near(8 * e / np.sqrt(eps), 0, "differences of means, over sqrt(eps)") if count(shape, axis) == 1 else near(32 * e, 32 * e, "differences of means")
            yield with_grad(name_of("layernorm", dtype, shape, axis), "layernorm", [x], lambda x: (x - mean(x)) * scale(x - mean(x)), slopes, tol, params(axis, eps=eps), grad_tol)
            slopes = lambda g, y, x: [scale(x) * (g - y * mean(g * y))]
            yield with_grad(name_of("rmsnorm", dtype, shape, axis), "rmsnorm", [x], lambda x: x * scale(x), slopes, tol, params(axis, eps=eps), near(32 * e, 32 * e, "differences of means"))
    far = T([[1000, -1000, 500, 0], [6e4, 6e4, -6e4, 6e4]], "f16")
    mean = lambda v: v.mean(axis=1, keepdims=True)
    for op, off in (("layernorm", far.wide - mean(far.wide)), ("rmsnorm", far.wide)):
        out = off / np.sqrt(mean(off * off) + 1e-5)
        yield Case(f"reduce/{op}/f16/squares beyond f16", op, [far], [T(out, "f16")], near(0, 2 * dt.eps("f16"), "in f32, rounded once"), params(1, eps=1e-5))
    long = T(np.zeros((1, 3000)), "f16")
    long.value[0, ::3] = 11
    for op, function in (("softmax", softmax), ("log_softmax", lambda x, a: x - logsumexp(x, a, True))):
        yield Case(f"reduce/{op}/f16/a sum of exps beyond f16", op, [long], [T(function(long.wide, 1), "f16")], near(0, 2 * dt.eps("f16"), "in f32, rounded once"), {"axis": 1})
    yield Case("reduce/logsumexp/f16/a sum of exps beyond f16", "logsumexp", [long], [T(logsumexp(long.wide, 1), "f16")], near(0, 2 * dt.eps("f16"), "in f32, rounded once"), params(1))


def cumulative_cases():
    for shape, axis in (((33,), 0), ((1,), 0), ((3, 5), 1), ((3, 5), 0), ((2, 3, 4), -2), ((0, 3), 1), ((600,), 0)):
        for dtype in ("f32", "f64", "i32") if np.prod(shape) < 100 else ("f32", "i32"):
            x = sample("cumsum", shape, dtype, -9 if dtype == "i32" else -2, 9 if dtype == "i32" else 2)
            name = name_of("cumsum", dtype, shape, axis)
            if dtype == "i32":
                yield Case(name, "cumsum", [x], [T(np.cumsum(x.value, axis=axis), dtype)], BITS, {"axis": axis})
                continue
            back = lambda g: np.flip(np.cumsum(np.flip(g, axis), axis=axis), axis)
            tol = accumulation(x, axis, dtype)
            grad_tol = near(2 * tol["abs"] + dt.eps(dtype), 4 * dt.eps(dtype), tol["why"])
            yield with_grad(name, "cumsum", [x], lambda x: np.cumsum(x, axis=axis), lambda g, y, x: [back(g)], tol, {"axis": axis}, grad_tol)
