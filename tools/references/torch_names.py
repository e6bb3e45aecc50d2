"""Elementwise ops, reductions and movements under PyTorch's names, by PyTorch."""
import numpy as np
import torch
import torch.nn.functional as F

import dtypes as dt
from witness import F32, GRADIENT, made, stored
from case import BITS, Case, T, near, rng, sample


def away(name, shape, low, high, holes, gap=0.05):
    """Samples that stay away from the places in `holes`, where a slope has no one value."""
    x = sample(name, shape, "f32", low, high).value.astype(np.float64)
    for hole in holes:
        x = np.where(np.abs(x - hole) < gap, hole + 2 * gap, x)
    return T(x, "f32")


def cases():
    yield from elementwise_cases()
    yield from test_cases()
    yield from reduction_cases()
    yield from movement_cases()


def elementwise_cases():
    x = away("names", (5, 7), -8, 8, (-3, -1, 0, 1, 3, 0.5, -0.5, 2.5, -2.5))
    table = {
        "clip": (lambda v: torch.clip(v, -1, 2.5), {"low": -1, "high": 2.5}), "clamp_min": (lambda v: torch.clamp(v, min=-0.5), {"low": -0.5}),
        "clamp_max": (lambda v: torch.clamp(v, max=0.5), {"high": 0.5}), "hardtanh": (F.hardtanh, {"low": -1, "high": 1}),
        "swish": (F.silu, {}), "hardsigmoid": (F.hardsigmoid, {}), "hardswish": (F.hardswish, {}), "logsigmoid": (F.logsigmoid, {}),
        "hard_sigmoid_with": (lambda v: torch.clamp(0.2 * v + 0.5, 0, 1), {"alpha": 0.2, "beta": 0.5}),
        "gelu_exact": (F.gelu, {}), "gelu_by_tanh": (lambda v: F.gelu(v, approximate="tanh"), {}), "reciprocal": (torch.reciprocal, {}),
        "softmin": (lambda v: F.softmin(v, 1), {"axis": 1}), "float": (lambda v: v * 1, {}),
    }
    for op, (f, params) in table.items():
        yield made(f"names/{op}", op, [x], f, params, near(2e-6, 1e-5, "an approximation in f32") if op.startswith("gelu") else F32)
    y = away("names/second", (5, 7), -3, 3, (0,))
    for op, f in (("remainder", torch.remainder), ("usum", lambda a, b: a + b), ("uprod", lambda a, b: a * b)):
        yield made(f"names/{op}", op, [x, y], f, grads=op != "remainder")
    for dtype in ("u8", "u16", "i16", "bool"):
        v = sample("unsigned", (9,), dtype, 0 if dtype[0] == "u" else -5, 5)
        yield Case(f"names/sign of {dtype}", "sign", [v], [T(np.sign(v.value.astype(np.int64)), dtype)], BITS, {})
        yield Case(f"names/abs of {dtype}", "abs", [v], [T(np.abs(v.value.astype(np.int64)), dtype)], BITS, {})


def test_cases():
    special = T([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 1e-40, -3.4e38], "f32")
    for op, f in (("isnan", torch.isnan), ("isinf", torch.isinf), ("isposinf", torch.isposinf), ("isneginf", torch.isneginf), ("isfinite", torch.isfinite)):
        yield made(f"names/{op}", op, [special], f, tol=BITS, grads=False)
    a = T([1.0, 1.0, 1.0, np.nan, np.inf, np.inf, 0.0, 100.0], "f32")
    b = T([1.0, 1.000001, 1.1, np.nan, np.inf, -np.inf, 1e-9, 100.0005], "f32")
    for equal in (False, True):
        f = lambda x, y: torch.isclose(x, y, rtol=1e-5, atol=1e-8, equal_nan=equal)
        yield made(f"names/isclose/equal_nan {equal}", "isclose", [a, b], f, {"equal_nan": equal}, tol=BITS, grads=False)
    p, q = sample("bits/a", (12,), "i32", -100, 100), sample("bits/b", (12,), "i32", -100, 100)
    few = sample("bits/few", (12,), "i32", 0, 7)
    for op, f, o in (("bitwise_and", torch.bitwise_and, q), ("bitwise_or", torch.bitwise_or, q), ("bitwise_xor", torch.bitwise_xor, q), ("lshift", torch.bitwise_left_shift, few), ("rshift", torch.bitwise_right_shift, few), ("logical_xor", torch.logical_xor, few)):
        yield made(f"names/{op}", op, [p, o], f, tol=BITS)
    yield made("names/bitwise_not", "bitwise_not", [p], torch.bitwise_not, tol=BITS)
    floats = T([0.0, -0.0, 0.3, 2.7, -3.9, 100.5, np.nan], "f32")
    for op, kind in (("bool", torch.bool), ("half", torch.float16), ("bfloat16", torch.bfloat16), ("double", torch.float64), ("int", torch.int32), ("long", torch.int64), ("short", torch.int16), ("char", torch.int8)):
        v = floats if op in ("bool", "half", "bfloat16", "double") else T(floats.value[:-1], "f32")
        name = {torch.bool: "bool", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64", torch.int32: "i32", torch.int64: "i64", torch.int16: "i16", torch.int8: "i8"}[kind]
        yield Case(f"names/{op}", op, [v], [stored(torch.from_numpy(v.value.copy()).to(kind), name)], BITS, {})
    v = T([1.5, -2.25, 60000.0], "f16")
    yield Case("names/float of f16", "float", [v], [T(v.value, "f32")], BITS, {})


def reduction_cases():
    for shape, dims in (((4, 6), (1,)), ((4, 6), (0, 1)), ((2, 3, 4), (0, 2)), ((5,), (0,)), ((3, 1), (1,))):
        x = sample("names/reduce", shape, "f32")
        for correction in (0, 1):
            if np.prod([shape[d] for d in dims]) <= correction:
                continue
            for op, f in (("var_mean", torch.var_mean), ("std_mean", torch.std_mean)):
                for part in (0, 1):
                    g = lambda v: f(v, dims, correction=correction)[part]
                    params = {"axis": list(dims), "correction": correction, "part": part}
                    yield made(f"names/{op}/{shape} {dims} less {correction}, part {part}", op, [x], g, params, near(2e-6, 2e-5, "sums in f32"), near(1e-5, 1e-4, "sums in f32"))
    for kind, name in ((torch.float64, "f64"), (torch.int64, "i64"), (torch.int8, "i8")):
        v = sample(f"names/sum {name}", (3, 70), "i8", -100, 100)
        for op, f in (("sum_as", torch.sum), ("prod_as", torch.prod)):
            t = torch.from_numpy(v.value.copy())[:, :5] if op == "prod_as" else torch.from_numpy(v.value.copy())
            yield Case(f"names/{op} {name}", op, [T(t.numpy(), "i8")], [stored(f(t, 1, dtype=kind), name)], BITS, {"axis": 1, "dtype": name})
    v = T(rng("names/count").integers(0, 2, (4, 9)) * 1.5, "f32")
    for dims in ((1,), (0, 1)):
        got = torch.count_nonzero(torch.from_numpy(v.value.copy()), dims).to(torch.int32)
        yield Case(f"names/count_nonzero/{dims}", "count_nonzero", [v], [stored(got, "i32")], BITS, {"axis": list(dims)})


def movement_cases():
    x = sample("names/move", (2, 6, 4), "f32")
    patterns = [
        ("a b c -> c a b", {}, lambda v: v.permute(2, 0, 1)), ("a (h w) c -> a h (w c)", {"h": 2}, lambda v: v.reshape(2, 2, 12)),
        ("a (h w) c -> w (a c) h", {"w": 2}, lambda v: v.reshape(2, 3, 2, 4).permute(2, 0, 3, 1).reshape(2, 8, 3)),
        ("... c -> c ...", {}, lambda v: v.permute(2, 0, 1)), ("a ... -> (a ...)", {}, lambda v: v.reshape(-1)),
        ("a b c -> a 1 b () c", {}, lambda v: v.reshape(2, 1, 6, 1, 4)), ("a ... c -> (... c) a", {}, lambda v: v.permute(1, 2, 0).reshape(24, 2)),
        ("(x y) b (p q) -> b q y (x p)", {"x": 1, "p": 2}, lambda v: v.reshape(1, 2, 6, 2, 2).permute(2, 4, 1, 0, 3).reshape(6, 2, 2, 2)),
    ]
    for pattern, sizes, f in patterns:
        yield made(f"names/rearrange/{pattern}", "rearrange", [x], f, {"pattern": pattern, "sizes": sizes}, BITS)
    one = sample("names/ones", (3, 1, 1, 2), "f32")
    yield made("names/rearrange/of ones", "rearrange", [one], lambda v: v.reshape(2, 3) if False else v.reshape(3, 2).t(), {"pattern": "a 1 () b -> b a", "sizes": {}}, BITS)
    yield made("names/swapaxes", "swapaxes", [x], lambda v: torch.swapaxes(v, 0, -1), {"a": 0, "b": -1}, BITS)
    for a, b in ((0, 2), (2, 0), (-1, 1)):
        yield made(f"names/movedim/{a} to {b}", "movedim", [x], lambda v: torch.movedim(v, a, b), {"a": a, "b": b}, BITS)
    for k in (0, 1):
        yield made(f"names/unbind/{k}", "unbind", [x], lambda v: torch.unbind(v, 1)[k + 3], {"axis": 1, "part": k + 3}, BITS)
        grid = [sample("grid/a", (3,), "f32"), sample("grid/b", (4,), "f32"), sample("grid/c", (2,), "f32")]
        for how, op in (("ij", "meshgrid"), ("xy", "meshgrid_xy")):
            for n in (2, 3):
                yield made(f"names/{op}/{n}, part {k}", op, grid[:n], lambda *v: torch.meshgrid(*v, indexing=how)[k], {"part": k}, BITS)
        yield made(f"names/split/{k}", "split", [x], lambda v: torch.split(v, 4, 1)[k], {"size": 4, "axis": 1, "part": k}, BITS)
    yield made("names/T", "T", [x], lambda v: v.transpose(0, 1), {}, BITS)
    yield made("names/broadcast_to", "broadcast_to", [one], lambda v: torch.broadcast_to(v, (3, 4, 1, 2)), {"shape": [3, 4, 1, 2]}, BITS)
