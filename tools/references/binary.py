"""Ops of two or three Tensors: arithmetic, comparison, bits, where; broadcasting and promotion.

Promotion follows the lattice of the weak types: bool < i8 < i16 < i32 < i64 < floats, u8 < i16 and u16 and so on, any integer
with a float gives that float, f16 with bf16 gives f32. Left out: integer division by zero and smallest / -1 (undefined).
"""
import itertools

import numpy as np

import dtypes as dt
from case import BITS, Case, T, exactly, near, rng, sample, unbroadcast, with_grad
from dtypes import WIDE

ARITHMETIC = {
    "add": (np.add, lambda g, y, a, b: [g, g]),
    "sub": (np.subtract, lambda g, y, a, b: [g, -g]),
    "mul": (np.multiply, lambda g, y, a, b: [g * b, g * a]),
    "maximum": (np.maximum, lambda g, y, a, b: [g * (a > b), g * (b > a)]),
    "minimum": (np.minimum, lambda g, y, a, b: [g * (a < b), g * (b < a)]),
}
COMPARISONS = {"lt": np.less, "gt": np.greater, "le": np.less_equal, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal}
BIT_OPS = {"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor}
LATTICE = {"bool": ["i8", "u8"], "i8": ["i16"], "i16": ["i32"], "i32": ["i64"], "i64": ["weak"], "u8": ["i16", "u16"], "u16": ["i32", "u32"],
           "u32": ["i64", "u64"], "u64": ["weak"], "weak": list(dt.FP8), **{t: ["f16", "bf16"] for t in dt.FP8}, "f16": ["f32"], "bf16": ["f32"], "f32": ["f64"], "f64": []}


def above(dtype):
    found = {dtype}
    for parent in LATTICE[dtype]:
        found |= above(parent)
    return found


def promoted(a, b):
    """The least dtype above both."""
    common = above(a) & above(b)
    return next(d for d in common if common == above(d))


def edge_pairs(dtype):
    top = dt.largest(dtype)
    if dt.is_float(dtype):
        one = [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, top, -top, dt.tiny(dtype), 3.0]
    else:
        one = [dt.smallest(dtype), top, 0, 1, 2, top - 1, 7, dt.smallest(dtype) + 1]
    pairs = list(itertools.product(one, one))
    def build(k):
        column = [p[k] for p in pairs]
        return T(np.array(column, WIDE) if dt.is_float(dtype) else np.array(column, object).astype(dt._NUMPY[dtype]), dtype)
    return build(0), build(1)


def cases():
    yield from arithmetic_cases()
    yield from division_cases()
    yield from power_cases()
    yield from two_float_cases()
    yield from comparison_cases()
    yield from bit_cases()
    yield from where_cases()
    yield from broadcast_cases()
    yield from promotion_cases()


def arithmetic_cases():
    for op, (value, slopes) in ARITHMETIC.items():
        for dtype in dt.FLOATS:
            a, b = sample(op + "/a", (33,), dtype, -3, 3), sample(op + "/b", (33,), dtype, -3, 3)
            yield with_grad(f"binary/{op}/{dtype}", op, [a, b], value, slopes, BITS)
        for dtype in dt.FLOATS + dt.INTS:
            a, b = edge_pairs(dtype)
            with np.errstate(all="ignore"):
                y = exactly(value, [a, b], dtype) if dt.is_float(dtype) else T(value(a.value, b.value), dtype)
            tol = near(0, 0, "exact but for the sign of zero") if op in ("maximum", "minimum") else BITS
            yield Case(f"binary/{op}/{dtype}/edges", op, [a, b], [y], tol)
        for dtype in dt.FP8:
            a, b = sample(op + "/a", (33,), dtype, -3, 3), sample(op + "/b", (33,), dtype, -3, 3)
            yield Case(f"binary/{op}/{dtype}", op, [a, b], [T(value(a.wide, b.wide), dtype)], BITS)
    a, b = T([True, True, False, False], "bool"), T([True, False, True, False], "bool")
    for op, value in (("add", a.value | b.value), ("mul", a.value & b.value), ("maximum", a.value | b.value), ("minimum", a.value & b.value)):
        yield Case(f"binary/{op}/bool", op, [a, b], [T(value, "bool")], BITS)


def division_cases():
    for dtype in dt.FLOATS:
        a, b = sample("div/a", (33,), dtype, -3, 3), sample("div/b", (33,), dtype, 0.3, 3)
        tol = near(0, 2 * dt.eps(dtype), "a product with a reciprocal is allowed: two roundings")
        yield with_grad(f"binary/div/{dtype}", "div", [a, b], np.divide, lambda g, y, a, b: [g / b, -g * a / (b * b)], tol)
        a, b = edge_pairs(dtype)
        b_is_safe = ~np.isin(np.abs(b.value), [dt.largest(dtype), dt.tiny(dtype)]) & ~np.isin(np.abs(a.value), [dt.largest(dtype), dt.tiny(dtype)])
        a, b = T(a.value[b_is_safe], dtype), T(b.value[b_is_safe], dtype)  # reciprocals over- or underflow at the limits
        with np.errstate(all="ignore"):
            yield Case(f"binary/div/{dtype}/edges", "div", [a, b], [T(np.divide(a.wide, b.wide), dtype)], tol)
    for dtype in dt.INTS:
        a, b = edge_pairs(dtype)
        ok = (b.value != 0) & ~((a.value == dt.smallest(dtype)) & (b.wide == -1))
        a, b = T(a.value[ok], dtype), T(b.value[ok], dtype)
        yield Case(f"binary/floordiv/{dtype}", "floordiv", [a, b], [T(a.value // b.value, dtype)], BITS)
        yield Case(f"binary/mod/{dtype}", "mod", [a, b], [T(a.value % b.value, dtype)], BITS)
    yield from remainder_cases()
    signs = T([7, -7, 7, -7, 6, -6, 0], "i32"), T([3, 3, -3, -3, 3, -3, 5], "i32")
    yield Case("binary/floordiv/i32/signs", "floordiv", list(signs), [T([2, -3, -3, 2, 2, 2, 0], "i32")], BITS)
    yield Case("binary/mod/i32/signs", "mod", list(signs), [T([1, 2, -2, -1, 0, 0, 0], "i32")], BITS)
    a, b = sample("idiv/a", (17,), "i32", -9, 9), T(np.arange(17) % 5 + 1, "i32")
    yield Case("binary/div/i32", "div", [a, b], [T(a.wide / b.wide, "f32")], near(0, 2 * dt.eps("f32"), "integers divide as f32"))


# Quotients up to which the remainder of f64 is exact.
FAR_F64 = 2.0**190
REMAINDERS = {"mod": (np.mod, np.floor), "fmod": (np.fmod, np.trunc)}


def remainder_cases():
    zeros = near(0, 0, "exact but for the sign of zero")
    for op, (value, rounded) in REMAINDERS.items():
        for dtype in dt.FLOATS:
            a, b = sample(op + "/a", (48,), dtype, -30, 30), sample(op + "/b", (48,), dtype, 0.3, 4)
            q = a.wide / b.wide
            smooth = np.abs(q - np.rint(q)) > 1e-3  # at a multiple there is no slope
            a, b = T(a.value[smooth], dtype), T(b.value[smooth], dtype)
            yield with_grad(f"binary/{op}/{dtype}", op, [a, b], value, lambda g, y, a, b, r=rounded: [g, -g * r(a / b)], zeros)
            a, b = edge_pairs(dtype)
            with np.errstate(all="ignore"):
                near_enough = ~np.isfinite(a.wide) | ~np.isfinite(b.wide) | (np.abs(a.wide / b.wide) < FAR_F64) | (b.wide == 0) if dtype == "f64" else np.full(a.value.shape, True)
                a, b = T(a.value[near_enough], dtype), T(b.value[near_enough], dtype)
                yield Case(f"binary/{op}/{dtype}/edges", op, [a, b], [exactly(value, [a, b], dtype)], zeros)
            far = {"f16": 14, "bf16": 120, "f32": 120, "f64": 90}[dtype]
            r = rng(f"{op}/far/{dtype}")
            scaled = lambda: T(r.uniform(1, 2, 65) * 2.0 ** r.integers(-far, far, 65) * r.choice([-1, 1], 65), dtype)
            a, b = scaled(), scaled()
            yield Case(f"binary/{op}/{dtype}/far", op, [a, b], [exactly(value, [a, b], dtype)], zeros)
        for dtype in dt.FP8:
            a, b = sample(op + "/a", (33,), dtype, -30, 30), sample(op + "/b", (33,), dtype, 0.3, 4)
            yield Case(f"binary/{op}/{dtype}", op, [a, b], [T(value(a.wide, b.wide), dtype)], zeros)
    for dtype in dt.INTS:
        a, b = edge_pairs(dtype)
        ok = (b.value != 0) & ~((a.value == dt.smallest(dtype)) & (b.wide == -1))
        a, b = T(a.value[ok], dtype), T(b.value[ok], dtype)
        yield Case(f"binary/fmod/{dtype}", "fmod", [a, b], [T(np.fmod(a.value, b.value), dtype)], BITS)


def two_float_cases():
    for dtype in dt.FLOATS:
        a, b = edge_pairs(dtype)
        yield Case(f"binary/copysign/{dtype}", "copysign", *copied_signs(a, b, dtype), BITS)
        a, b = sample("logaddexp/a", (33,), dtype, -9, 9), sample("logaddexp/b", (33,), dtype, -9, 9)
        e = dt.eps(dtype)
        tol = near(32 * min(e, dt.eps("f32")), 2 * e, "two exps and a log in f32 or f64, rounded once")
        slopes = lambda g, y, a, b: [g * np.exp(a - y), g * np.exp(b - y)]
        yield with_grad(f"binary/logaddexp/{dtype}", "logaddexp", [a, b], np.logaddexp, slopes, tol)
    a, b = T([1e4, -1e4, 88, -np.inf, np.inf, 60000], "f32"), T([1e4, -1e4, 88, -np.inf, 1, -60000], "f32")
    with np.errstate(all="ignore"):
        out = T(np.logaddexp(a.wide, b.wide), "f32")
    yield Case("binary/logaddexp/f32/large", "logaddexp", [a, b], [out], near(0, 4 * dt.eps("f32"), "the maximum is taken off first"))


def copied_signs(a, b, dtype):
    """Signs of numbers: that of a NaN is left to the machine."""
    ok = ~np.isnan(b.value)
    a, b = T(a.value[ok], dtype), T(b.value[ok], dtype)
    return [a, b], [T(np.copysign(a.value, b.value), dtype)]


def power_cases():
    for dtype in dt.FLOATS:
        a, b = sample("pow/a", (33,), dtype, 0.2, 4), sample("pow/b", (33,), dtype, -3, 3)
        tol = near(0, (24 if dtype in ("f32", "f64") else 2) * dt.eps(dtype), "pow as exp2(y log2 x): |y log2 x| scales the log's rounding")
        slopes = lambda g, y, a, b: [g * b * a ** (b - 1), g * y * np.log(a)]
        yield with_grad(f"binary/pow/{dtype}", "pow", [a, b], np.power, slopes, tol)
    x = [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, np.inf]
    y = [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]
    pairs = np.array(list(itertools.product(x, y)))
    a, b = T(pairs[:, 0], "f32"), T(pairs[:, 1], "f32")
    with np.errstate(all="ignore"):
        out = T(np.power(a.wide, b.wide), "f32")
    yield Case("binary/pow/f32/edges", "pow", [a, b], [out], near(0, 24 * dt.eps("f32"), "whole exponents of negative bases, 0 and infinity"))


def comparison_cases():
    for op, value in COMPARISONS.items():
        for dtype in dt.FLOATS + dt.INTS:
            a, b = edge_pairs(dtype)
            yield Case(f"binary/{op}/{dtype}", op, [a, b], [T(value(a.value, b.value), "bool")], BITS)
        a, b = T([True, True, False, False], "bool"), T([True, False, True, False], "bool")
        yield Case(f"binary/{op}/bool", op, [a, b], [T(value(a.value, b.value), "bool")], BITS)


def bit_cases():
    for op, value in BIT_OPS.items():
        for dtype in dt.INTS:
            a, b = edge_pairs(dtype)
            yield Case(f"binary/{op}/{dtype}", op, [a, b], [T(value(a.value, b.value), dtype)], BITS)
        a, b = T([True, True, False, False], "bool"), T([True, False, True, False], "bool")
        yield Case(f"binary/{op}/bool", op, [a, b], [T(value(a.value, b.value), "bool")], BITS)
    for dtype in dt.INTS:
        width = 8 * np.dtype(dt._NUMPY[dtype]).itemsize
        values = np.array([1, 3, dt.largest(dtype), dt.smallest(dtype), 42, dt.largest(dtype) // 3], object).astype(dt._NUMPY[dtype])
        a = T(np.repeat(values, 3), dtype)
        b = T(np.tile([0, 1, width - 1], 6), dtype)
        yield Case(f"binary/lshift/{dtype}", "lshift", [a, b], [T(a.value << b.value, dtype)], BITS)
        yield Case(f"binary/rshift/{dtype}", "rshift", [a, b], [T(a.value >> b.value, dtype)], BITS)


def where_cases():
    for dtype in dt.ALL:
        c, a, b = sample("where/c", (17,), "bool"), sample("where/a", (17,), dtype, -3, 3), sample("where/b", (17,), dtype, -3, 3)
        yield Case(f"where/{dtype}", "where", [c, a, b], [T(np.where(c.value, a.value, b.value), dtype)], BITS)
    c, a, b = sample("where/c", (5, 1, 3), "bool"), sample("where/a", (4, 3), "f32"), sample("where/b", (1,), "f32")
    value = lambda c, a, b: np.where(c, a, b)
    slopes = lambda g, y, c, a, b: [None, unbroadcast(np.where(c, g, 0), a.shape), unbroadcast(np.where(c, 0, g), b.shape)]
    yield with_grad("where/broadcast", "where", [c, a, b], value, slopes, BITS, dtype="f32")
    c, a, b = T([True, False, True], "bool"), T([1.0, np.nan, np.inf], "f32"), T([np.nan, 2.0, np.nan], "f32")
    yield Case("where/the arm not taken may be no number", "where", [c, a, b], [T([1.0, 2.0, np.inf], "f32")], BITS)


def broadcast_cases():
    shapes = [((1,), (5,)), ((3, 1), (1, 5)), ((), (3,)), ((2, 3, 4), (4,)), ((2, 1, 4), (3, 1)), ((0,), (1,)), ((0, 3), (1,)), ((1025,), ()),
              ((2, 1, 3, 1, 2, 1), (1, 2, 1, 3, 1, 2)), ((33, 3), (33, 1)), ((17,), (17,))]
    for left, right in shapes:
        label = "x".join(map(str, left)) + " and " + "x".join(map(str, right))
        a, b = sample("broadcast/a", left, "f32"), sample("broadcast/b", right, "f32")
        slopes = lambda g, y, a, b: [unbroadcast(g * b, a.shape), unbroadcast(g * a, b.shape)]
        n = max(1, int(np.prod(np.broadcast_shapes(left, right))))
        tol = near(n * dt.eps("f32"), 16 * dt.eps("f32"), "gradients of broadcast inputs are sums of up to n terms of size 2 in any order")
        yield with_grad(f"binary/mul/broadcast/{label}", "mul", [a, b], np.multiply, slopes, BITS, grad_tol=tol)


def promotion_cases():
    for left, right in itertools.combinations(dt.ALL, 2):
        if left in dt.FP8 or (right in dt.FP8 and left not in ("i32", "f32", "bool")):
            continue
        out = promoted(left, right)
        if out == "weak":
            continue  # u64 with a signed integer: no dtype holds both, left to the library
        a, b = T([0, 1, 3, 2], left), T([1, 1, 2, 4], right)
        yield Case(f"promote/{left} and {right}", "add", [a, b], [T(T(a.wide, out).wide + T(b.wide, out).wide, out)], BITS)
