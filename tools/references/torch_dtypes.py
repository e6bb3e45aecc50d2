"""Conversions by PyTorch: the four fp8 formats, bits seen as elements of another size, and bf16 arithmetic."""
import numpy as np
import torch

import dtypes as dt
from witness import SCALARS, exact, made, stored
from case import BITS, Case, T, near, rng, sample


def cases():
    yield from fp8_cases()
    yield from size_cases()
    yield from half_cases()


def fp8_cases():
    for t in dt.FP8:
        every = T(dt.from_bits(bytes(range(256)), t), t)
        for wide in ("f32", "f16", "bf16"):
            yield Case(f"torch/every {t} to {wide}", "cast", [every], [stored(exact(every).to(SCALARS[wide]), wide)], BITS, {"dtype": wide})
        values = np.sort(every.value[np.isfinite(every.value)].astype(np.float64))
        middles = (values[1:] + values[:-1]) / 2
        top = dt.largest(t)
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, top * 1.0624, top * 1.0626, top * 1.126, -top * 2, 1e-30, 3e38]
        x = T(np.concatenate([middles, np.nextafter(middles.astype(np.float32), np.inf), special, rng(t).uniform(-2, 2, 40)]), "f32")
        if t == "fp8e4m3":  # beyond its range PyTorch gives the largest value in newer releases, and gave NaN before
            x = T(x.value[~(np.abs(x.value) > 463)], "f32")
        yield Case(f"torch/f32 to {t}", "cast", [x], [stored(exact(x).to(SCALARS[t]), t)], BITS, {"dtype": t})
        small = sample(t, (4, 6), t)
        for op, f in (("neg", torch.neg), ("relu", torch.relu), ("sqrt", torch.sqrt), ("exp", torch.exp)):
            got = f(exact(small).float()).to(SCALARS[t])
            yield Case(f"torch/{op} of {t}", op, [small], [stored(got, t)], near(0, 2 * dt.eps(t), "one rounding, at a tie either way"), {})
        got = exact(small).float().amax(1).to(SCALARS[t])
        yield Case(f"torch/max of {t}", "max", [small], [stored(got, t)], BITS, {"axis": 1, "keepdim": False})


def size_cases():
    r = rng("sizes")
    kinds = ("u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "fp8e5m2", "fp8e4m3fnuz")
    width = {k: SCALARS[k].itemsize for k in kinds}
    for a in kinds:
        for b in kinds:
            if width[a] == width[b]:
                continue
            shape = (2, 3, 8 // width[a])
            data = r.integers(0, 256, (2, 3, 8), dtype=np.uint8)
            if a in dt.FP8 or b in dt.FP8:
                data = data & 0x3F | 0x01
            elif dt.is_float(a) or dt.is_float(b):
                data[..., 1::2] = data[..., 1::2] & 0x3F | 0x01  # no NaN, whose bits are not kept
            x = T(dt.from_bits(data.tobytes(), a).reshape(shape), a)
            y = exact(x).view(SCALARS[b])
            yield Case(f"torch/bits of {a} as {b}", "bitcast", [x], [stored(y, b)], BITS, {"dtype": b})


def half_cases():
    """bf16, computed by PyTorch in bf16; what is composed of several steps is rounded between them there."""
    a, b = sample("bf16/a", (3, 8), "bf16"), sample("bf16/b", (3, 8), "bf16")
    one = near(1e-30, 2.0 ** -7, "one rounding to bf16 either way")
    for op, f in (("add", torch.add), ("sub", torch.sub), ("mul", torch.mul), ("div", torch.div), ("maximum", torch.maximum)):
        yield Case(f"torch/bf16 {op}", op, [a, b], [stored(f(exact(a), exact(b)), "bf16")], BITS, {})
    for op, f in (("exp", torch.exp), ("tanh", torch.tanh), ("sigmoid", torch.sigmoid), ("sin", torch.sin), ("rsqrt", lambda x: torch.rsqrt(x.abs() + 1))):
        x = T(np.abs(a.value) + 1, "bf16") if op == "rsqrt" else a
        g = torch.rsqrt if op == "rsqrt" else f
        yield Case(f"torch/bf16 {op}", op, [x], [stored(g(exact(x)), "bf16")], one, {})
    for op, f in (("sum", torch.sum), ("mean", torch.mean)):
        yield Case(f"torch/bf16 {op}", op, [a], [stored(f(exact(a), 1), "bf16")], near(2.0 ** -8, 2.0 ** -7, "one rounding of a sum in f32"), {"axis": 1, "keepdim": False})
    w = sample("bf16/w", (8, 5), "bf16")
    yield Case("torch/bf16 matmul", "matmul", [a, w], [stored(exact(a) @ exact(w), "bf16")], near(2.0 ** -6, 2.0 ** -7, "one rounding of a sum in f32"), {})
    yield made("torch/bf16 softmax", "softmax", [a], lambda x: torch.softmax(x, 1), {"axis": 1}, one, near(2.0 ** -9, 2.0 ** -6, "bf16 steps of the chain rule"), "bf16")
