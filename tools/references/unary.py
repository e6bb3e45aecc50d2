"""Ops of one Tensor: arithmetic, rounding, tests, transcendental and activation functions."""
import math

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


def mish_slope(x):
    t = np.tanh(softplus(x))
    return t + x * (1 - t * t) * sigmoid(x)


def quick_gelu_slope(x):
    s = sigmoid(WIDE(1.702) * x)
    return s + x * WIDE(1.702) * s * (1 - s)


# PyTorch's constants of selu.
SELU_ALPHA, SELU_SCALE = WIDE(1.6732632423543772), WIDE(1.0507009873554805)
ELU_ALPHA, CELU_ALPHA, LEAK = WIDE(1.25), WIDE(0.75), WIDE(0.25)


def elu(x, alpha):
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


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
    "asin": (np.arcsin, lambda x: 1 / np.sqrt((1 - x) * (1 + x)), -0.95, 0.95, 8, 0, "two roots, two divisions and a polynomial"),
    "acos": (np.arccos, lambda x: -1 / np.sqrt((1 - x) * (1 + x)), -0.95, 0.95, 8, 0, "three roots, two divisions and a polynomial"),
    "atan": (np.arctan, lambda x: 1 / (1 + x * x), -6, 6, 8, 0, "a reciprocal, a root, a division and a polynomial"),
    "sinh": (np.sinh, np.cosh, -5, 5, 24, 0, "a series near 0, the difference of two exps beyond 1"),
    "cosh": (np.cosh, np.sinh, -5, 5, 16, 0, "the sum of two exps"),
    "asinh": (np.arcsinh, lambda x: 1 / np.sqrt(x * x + 1), -6, 6, 12, 0, "a polynomial near 0, a log of more than 1.6 beyond 0.5"),
    "acosh": (np.arccosh, lambda x: 1 / np.sqrt((x - 1) * (x + 1)), 1.05, 20, 12, 0, "asinh of its sine"),
    "atanh": (np.arctanh, lambda x: 1 / ((1 - x) * (1 + x)), -0.95, 0.95, 12, 0, "a polynomial near 0, a log of more than 3 beyond 0.5"),
    "log_sigmoid": (lambda x: -softplus(-x), lambda x: sigmoid(-x), -5, 5, 16, 8, "a softplus"),
    "mish": (lambda x: x * np.tanh(softplus(x)), mish_slope, -5, 5, 32, 16, "a softplus, a tanh and a product"),
    "softsign": (lambda x: x / (1 + np.abs(x)), lambda x: 1 / (1 + np.abs(x)) ** 2, -5, 5, 4, 0, "a sum and a division"),
    "quick_gelu": (lambda x: x * sigmoid(WIDE(1.702) * x), quick_gelu_slope, -3, 3, 24, 0, "x sigmoid(1.702 x)"),
    "hard_sigmoid": (lambda x: np.clip(x / 6 + WIDE(0.5), 0, 1), lambda x: (np.abs(x) < 3) / WIDE(6), -5, 5, 4, 1, "x / 6 as a product"),
    "hard_swish": (lambda x: x * np.clip(x + 3, 0, 6) / 6, lambda x: np.where(np.abs(x) < 3, x / 3 + WIDE(0.5), x > 0), -5, 5, 4, 2, "x / 6 as a product"),
    "relu6": (lambda x: np.minimum(np.where(x > 0, x, np.where(np.isnan(x), x, 0)), 6), lambda x: ((x > 0) & (x < 6)) * ONE, -3, 9, 0, 0, "exact"),
    "leaky_relu": (lambda x: np.where(x < 0, LEAK * x, x), lambda x: np.where(x < 0, LEAK, ONE), -3, 3, 1, 0, "a product"),
    "elu": (lambda x: elu(x, ELU_ALPHA), lambda x: np.where(x > 0, ONE, ELU_ALPHA * np.exp(np.minimum(x, 0))), -5, 5, 16, 8, "exp(x) - 1 cancels near 0"),
    "celu": (lambda x: np.where(x > 0, x, CELU_ALPHA * np.expm1(np.minimum(x, 0) / CELU_ALPHA)), lambda x: np.where(x > 0, ONE, np.exp(np.minimum(x, 0) / CELU_ALPHA)), -5, 5, 24, 8, "exp(x) - 1 cancels near 0"),
    "selu": (lambda x: SELU_SCALE * elu(x, SELU_ALPHA), lambda x: SELU_SCALE * np.where(x > 0, ONE, SELU_ALPHA * np.exp(np.minimum(x, 0))), -5, 5, 16, 16, "exp(x) - 1 cancels near 0"),
}
# By a rational approximation, whose error is the same in f32 and f64: name: (value, derivative)
ERF = np.vectorize(lambda v: WIDE(math.erf(float(v))), otypes=[WIDE])
BELL = lambda x: np.exp(-x * x)
ROOT_HALF = np.sqrt(WIDE(0.5))
BY_ERF = {
    "erf": (ERF, lambda x: 2 / np.sqrt(WIDE(np.pi)) * BELL(x)),
    "gelu_erf": (lambda x: x * (1 + ERF(x * ROOT_HALF)) / 2, lambda x: (1 + ERF(x * ROOT_HALF)) / 2 + x * BELL(x * ROOT_HALF) / np.sqrt(2 * WIDE(np.pi))),
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
    for op, (value, slope) in BY_ERF.items():
        for dtype in dt.FLOATS:
            x = sample("unary/" + op, (33,), dtype, -4.5, 4.5)
            why = "a rational approximation, within 2e-7 of erf"
            tol, grad_tol = near(1e-6, 2 * dt.eps(dtype), why), near(1e-5 + 4 * dt.eps(dtype), 4 * dt.eps(dtype), why + "; its slope")
            yield with_grad(f"unary/{op}/{dtype}", op, [x], value, lambda g, y, x, s=slope: [g * s(x)], tol, grad_tol=grad_tol)
    yield from far_cases()
    x = T(np.linspace(-87, 88, 65), "f32")
    why = "exp as exp2(x log2 e): |x| log2 e rounded to 24 bits is 2^-18 off at the ends"
    yield Case("unary/exp/f32/range", "exp", [x], [evaluated(np.exp, x, "f32")], near(dt.tiny("f32"), 64 * dt.eps("f32"), why))
    x = T(np.linspace(-700, 709, 65), "f64")
    yield Case("unary/exp/f64/range", "exp", [x], [evaluated(np.exp, x, "f64")], near(dt.tiny("f64"), 512 * dt.eps("f64"), why))
    x = T(2.0 ** np.arange(-126, 128, 5) * 1.25, "f32")
    yield Case("unary/log2/f32/range", "log2", [x], [evaluated(np.log2, x, "f32")], near(0, 4 * dt.eps("f32"), PLAIN))


def far_cases():
    """Arguments up to the largest values and down to the smallest normal ones."""
    for dtype in ("f32", "f64"):
        top = 127 if dtype == "f32" else 1023
        scales = 2.0 ** np.linspace(-top + 1, top, 65)
        for op in ("atan", "asinh", "acosh"):
            x = T(np.abs(scales) + 1 if op == "acosh" else scales * np.tile([1, -1], 33)[:65], dtype)
            value, _, _, _, ulps, _, why = FUNCTIONS[op]
            yield Case(f"unary/{op}/{dtype}/far", op, [x], [evaluated(value, x, dtype)], near(0, ulps * dt.eps(dtype), why))
        for op in ("asin", "atanh", "sinh"):
            x = T(scales[:32] * np.tile([1, -1], 16), dtype)
            value, _, _, _, ulps, _, why = FUNCTIONS[op]
            yield Case(f"unary/{op}/{dtype}/small", op, [x], [evaluated(value, x, dtype)], near(0, ulps * dt.eps(dtype), why))
    x = T([89.0, -89.2, 88.8, 89.3], "f32")
    for op in ("sinh", "cosh"):
        yield Case(f"unary/{op}/f32/just below overflow", op, [x], [evaluated(FUNCTIONS[op][0], x, "f32")], near(0, 128 * dt.eps("f32"), "exp of 89"))
    x = T(1 + 2.0 ** np.arange(-23, 2), "f32")
    yield Case("unary/acosh/f32/near 1", "acosh", [x], [evaluated(np.arccosh, x, "f32")], near(0, 12 * dt.eps("f32"), "asinh of its sine"))


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
