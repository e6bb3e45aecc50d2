"""Ops of one Tensor: arithmetic, rounding, tests, transcendental and activation functions."""
import numpy as np

import dtypes as dt
from case import BITS, Case, T, exactly, near, rng, sample, with_grad
from dtypes import WIDE

ONE = WIDE(1)
LN2 = np.log(WIDE(2))


def sigmoid(x):
    return ONE / (ONE + np.exp(-x))


def softplus(x):
    return np.logaddexp(x, WIDE(0))


GELU_A, GELU_B = np.sqrt(2 / WIDE(np.pi)), WIDE(0.044715)


def gelu(x):
    """The tanh form."""
    return x / 2 * (1 + np.tanh(GELU_A * (x + GELU_B * x**3)))


def gelu_slope(x):
    t = np.tanh(GELU_A * (x + GELU_B * x**3))
    return (1 + t) / 2 + x / 2 * (1 - t * t) * GELU_A * (1 + 3 * GELU_B * x * x)


# Correctly rounded in IEEE 754: any implementation gives these bits. name: (value, derivative, low, high)
EXACT = {
    "neg": (np.negative, lambda x: -np.ones_like(x), -3, 3),
    "abs": (np.abs, np.sign, -3, 3),
    "sqrt": (np.sqrt, lambda x: 1 / (2 * np.sqrt(x)), 0.1, 9),
    "square": (np.square, lambda x: 2 * x, -3, 3),
    "reciprocal": (lambda x: 1 / x, lambda x: -1 / (x * x), 0.2, 4),
    "floor": (np.floor, None, -6, 6),
    "ceil": (np.ceil, None, -6, 6),
    "trunc": (np.trunc, None, -6, 6),
    "round": (np.rint, None, -6, 6),
    "sign": (np.sign, None, -3, 3),
    "relu": (lambda x: np.where(x > 0, x, np.where(np.isnan(x), x, 0)), lambda x: (x > 0) * ONE, -3, 3),
}

# name: (value, derivative, low, high, ulps, absolute error in units of eps, reason)
PLAIN = "a transcendental within 4 ulp"
FUNCTIONS = {
    "exp2": (np.exp2, lambda x: np.exp2(x) * LN2, -6, 6, 4, 0, PLAIN),
    "exp": (np.exp, np.exp, -5, 5, 12, 0, "exp as exp2(x log2 e): the product's rounding grows with |x|"),
    "log2": (np.log2, lambda x: 1 / (x * LN2), 0.05, 20, 4, 0.5, PLAIN),
    "log": (np.log, lambda x: 1 / x, 0.05, 20, 4, 0.5, "log as log2 times ln 2"),
    "log10": (np.log10, lambda x: 1 / (x * np.log(WIDE(10))), 0.05, 20, 4, 0.5, "log10 as log2 times a constant"),
    "sin": (np.sin, np.cos, -7, 7, 4, 2, "argument reduction costs absolute error near the zeros"),
    "cos": (np.cos, lambda x: -np.sin(x), -7, 7, 4, 4, "cos as sin(pi/2 - x): the shift's rounding is absolute"),
    "tan": (np.tan, lambda x: 1 + np.tan(x) ** 2, -1.2, 1.2, 16, 4, "tan as sin over cos"),
    "rsqrt": (lambda x: 1 / np.sqrt(x), lambda x: -1 / (2 * x * np.sqrt(x)), 0.1, 9, 4, 0, "a root and a division"),
    "sigmoid": (sigmoid, lambda x: sigmoid(x) * (1 - sigmoid(x)), -6, 6, 16, 0, "an exp, a sum and a division"),
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2, -4, 4, 8, 4, "tanh as 2 sigmoid(2x) - 1 cancels near 0"),
    "silu": (lambda x: x * sigmoid(x), lambda x: sigmoid(x) * (1 + x * (1 - sigmoid(x))), -5, 5, 16, 0, "x sigmoid(x)"),
    "gelu": (gelu, gelu_slope, -3, 3, 16, 8, "the tanh form; 1 + tanh cancels for negative x"),
    "softplus": (softplus, sigmoid, -5, 5, 16, 8, "log(1 + exp x): log near 1 costs absolute error"),
}

# Values where strict floats have a definite answer.
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, np.inf, -np.inf, np.nan]


def edges(dtype):
    top, low = dt.largest(dtype), dt.tiny(dtype)
    return T(EDGES + [top, -top, low, -low, 1 + dt.eps(dtype), 1 - dt.eps(dtype) / 2], dtype)


def evaluated(function, x, dtype):
    with np.errstate(all="ignore"):
        return T(function(x.wide), dtype)


def cases():
    yield from exact_cases()
    yield from function_cases()
    yield from test_cases()
    yield from integer_cases()
    yield from shape_cases()


def exact_cases():
    for op, (value, slope, low, high) in EXACT.items():
        for dtype in dt.FLOATS:
            x = sample("unary/" + op, (33,), dtype, low, high)
            name = f"unary/{op}/{dtype}"
            # A reciprocal of a narrow float is a division of its f32, rounded: the same bits.
            if slope is None:
                yield Case(name, op, [x], [exactly(value, [x], dtype)], BITS)
            else:
                yield with_grad(name, op, [x], value, lambda g, y, x, s=slope: [g * s(x)], BITS)
            x = edges(dtype)
            # sign(-0) and relu(-0) may be either zero.
            tol = near(0, 0, "exact but for the sign of zero") if op in ("sign", "relu") else BITS
            yield Case(f"{name}/edges", op, [x], [exactly(value, [x], dtype)], tol)


def function_cases():
    for op, (value, slope, low, high, ulps, absolute, why) in FUNCTIONS.items():
        for dtype in dt.FLOATS:
            e = dt.eps(dtype)
            ulps_here = ulps if dtype in ("f32", "f64") else 2  # narrow floats are computed in f32 and rounded once
            tol = near(absolute * e, ulps_here * e, why)
            x = sample("unary/" + op, (33,), dtype, low, high)
            yield with_grad(f"unary/{op}/{dtype}", op, [x], value, lambda g, y, x, s=slope: [g * s(x)], tol)
            if op in ("sin", "cos", "tan"):
                continue
            x = edges(dtype)
            # exp(x) for |x| up to the overflow bound; subnormal results may be flushed.
            tol = near(2 * dt.tiny(dtype) + 4 * absolute * e, 4 * ulps_here * e, why + "; subnormal results may be flushed")
            x = T(x.value[np.abs(np.nan_to_num(x.value, posinf=0)) < 1e4], dtype)
            yield Case(f"unary/{op}/{dtype}/edges", op, [x], [evaluated(value, x, dtype)], tol)
    for op in ("sin", "cos"):
        for dtype in ("f32", "f64"):
            for label, scale in (("large", 1e4), ("huge", 1e9)):
                x = sample(f"unary/{op}/{label}", (33,), dtype, -scale, scale)
                tol = near(4 * dt.eps(dtype), 4 * dt.eps(dtype), "argument reduction keeps absolute accuracy")
                yield Case(f"unary/{op}/{dtype}/{label}", op, [x], [evaluated(FUNCTIONS[op][0], x, dtype)], tol)
        x = T([np.inf, -np.inf, np.nan, 0.0], "f32")
        yield Case(f"unary/{op}/f32/edges", op, [x], [evaluated(FUNCTIONS[op][0], x, "f32")], near(0, 0, "no number, or exact"))
    x = T(np.linspace(-87, 88, 65), "f32")
    why = "exp as exp2(x log2 e): |x| log2 e rounded to 24 bits is 2^-18 off at the ends"
    yield Case("unary/exp/f32/range", "exp", [x], [evaluated(np.exp, x, "f32")], near(dt.tiny("f32"), 64 * dt.eps("f32"), why))
    x = T(np.linspace(-700, 709, 65), "f64")
    yield Case("unary/exp/f64/range", "exp", [x], [evaluated(np.exp, x, "f64")], near(dt.tiny("f64"), 512 * dt.eps("f64"), why))
    x = T(2.0 ** np.arange(-126, 128, 5) * 1.25, "f32")
    yield Case("unary/log2/f32/range", "log2", [x], [evaluated(np.log2, x, "f32")], near(0, 4 * dt.eps("f32"), PLAIN))


def test_cases():
    tests = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}
    for op, function in tests.items():
        for dtype in dt.FLOATS:
            x = edges(dtype)
            yield Case(f"unary/{op}/{dtype}", op, [x], [T(function(x.value), "bool")], BITS)
    for dtype in ("bool", "i32", "f32"):
        x = T([0, 1, 2, 0, -1 if dtype != "bool" else 1], dtype)
        yield Case(f"unary/logical_not/{dtype}", "logical_not", [x], [T(x.value == 0, "bool")], BITS)


def integer_cases():
    for dtype in dt.INTS:
        limits = [dt.smallest(dtype), dt.largest(dtype), 0, 1]
        x = T(np.concatenate([np.array(limits, object).astype(dt._NUMPY[dtype]), sample("unary/int", (13,), dtype, -50, 50).value]), dtype)
        for op, function in (("neg", np.negative), ("abs", np.abs), ("square", np.square), ("sign", np.sign), ("bitwise_not", np.invert), ("relu", lambda v: np.maximum(v, 0))):
            with np.errstate(all="ignore"):
                yield Case(f"unary/{op}/{dtype}", op, [x], [T(function(x.value), dtype)], BITS)
        if dtype not in ("i64", "u64"):
            x = T(sample("unary/int/exp", (9,), dtype, 0, 6).value, dtype)
            tol = near(4 * dt.eps("f32"), 16 * dt.eps("f32"), "integers are taken to f32 first")
            yield Case(f"unary/exp/{dtype}", "exp", [x], [evaluated(np.exp, x, "f32")], tol)
            yield Case(f"unary/sqrt/{dtype}", "sqrt", [x], [exactly(np.sqrt, [x], "f32")], BITS)
    yield Case("unary/bitwise_not/bool", "bitwise_not", [T([True, False], "bool")], [T([False, True], "bool")], BITS)


def shape_cases():
    shapes = [(0,), (1,), (3,), (5,), (17,), (1025,), (), (0, 3), (3, 0, 2), (1, 1, 1, 1, 1, 1), (2, 1, 3, 1, 5, 2), (3, 33), (2, 3, 4, 5)]
    for shape in shapes:
        label = "x".join(map(str, shape)) or "scalar"
        x = sample("unary/shape", shape, "f32", 0.1, 4)
        yield Case(f"unary/sqrt/f32/shape/{label}", "sqrt", [x], [exactly(np.sqrt, [x], "f32")], BITS)
        tol = near(0, 12 * dt.eps("f32"), FUNCTIONS["exp"][6])
        yield Case(f"unary/exp/f32/shape/{label}", "exp", [x], [evaluated(np.exp, x, "f32")], tol)
    x = T(rng("unary/subnormal").uniform(-1, 1, 17) * 1e-40, "f32")
    yield Case("unary/neg/f32/subnormal", "neg", [x], [exactly(np.negative, [x], "f32")], BITS)
