"""Casts between all dtypes, and bitcasts.

Integers wrap; floats are rounded once to nearest even; bool is "not zero" (NaN is true); a float to an integer is cut
towards zero. Left out: floats outside the integer's range and NaN to integer (hardware disagrees).
"""
import numpy as np

import dtypes as dt
from case import BITS, Case, T, near, rng


def source(dtype, target):
    r = rng(f"cast/{dtype}/{target}")
    if dtype == "bool":
        return T([True, False, True], dtype)
    if not dt.is_float(dtype):
        near_zero = r.integers(0 if dtype[0] == "u" else -100, 100, 16)
        anywhere = r.integers(dt.smallest(dtype), dt.largest(dtype), 16, dtype=dt._NUMPY[dtype], endpoint=True)
        limits = np.array([dt.smallest(dtype), dt.largest(dtype), 0, 1], object).astype(dt._NUMPY[dtype])
        return T(np.concatenate([near_zero.astype(dt._NUMPY[dtype]), anywhere, limits]), dtype)
    if dt.is_float(target) or target == "bool":
        low, high = np.log2(dt.tiny(dtype)) / 2, np.log2(dt.largest(dtype)) / 2
        spread = r.choice([-1, 1], 24) * 2.0 ** r.uniform(low, high, 24)
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, dt.largest(dtype), -dt.largest(dtype), dt.tiny(dtype), dt.tiny(dtype) / 2]
        ties = [1 + 2.0**-k for k in (2, 3, 4, 7, 8, 9, 10, 11, 12, 24, 25)] + [3 * 2.0**-k + 1 for k in (4, 8, 11, 24)]
        return T(np.concatenate([spread, special, ties, r.uniform(-3, 3, 8)]), dtype)
    low, high = max(dt.smallest(target), dt.smallest(dtype), -(2.0**62)), min(dt.largest(target), dt.largest(dtype), 2.0**62)
    values = np.concatenate([r.uniform(max(low, -120), min(high, 120), 16), [0.0, 0.5, 0.99, 1.5, 2.5, 100.75], r.uniform(low, high, 12)])
    values = np.concatenate([values, [] if target[0] == "u" else [-0.5, -1.5, -0.99]])
    rounded = T(values, dtype)
    inside = (rounded.wide >= low) & (rounded.wide <= high)
    return T(rounded.value[inside], dtype)


def cases():
    for dtype in dt.ALL:
        for target in dt.ALL:
            if dtype == target:
                continue
            x = source(dtype, target)
            y = T((x.value != 0) if target == "bool" else (x.wide if dt.is_float(target) or dt.is_float(dtype) else x.value), target)
            yield Case(f"cast/{dtype} to {target}", "cast", [x], [y], BITS, {"dtype": target})
    for dtype in ("f32", "f16", "bf16"):
        x = T(np.array([1.0, -2.0, 3.5]), dtype)
        of = T([0.5, -1.0, 2.0], "f32" if dtype != "f32" else "f16")
        grad = (of, [T(of.value, dtype)], near(0, 0, "a cast of exact values"))
        yield Case(f"cast/{dtype} to {of.dtype}/gradient", "cast", [x], [T(x.value, of.dtype)], BITS, {"dtype": of.dtype}, grad)
    for a, b in (("f32", "u32"), ("f32", "i32"), ("u32", "f32"), ("f64", "u64"), ("f16", "u16"), ("bf16", "u16"), ("u8", "i8"), ("fp8e4m3", "u8"), ("i64", "f64")):
        x = source(a, "f64") if dt.is_float(a) else source(a, "u8")
        if dt.is_float(a):
            x = T(x.value[~np.isnan(x.value)], a)
        y = T(dt.from_bits(dt.to_bits(x.value, a), b), b)
        yield Case(f"bitcast/{a} to {b}", "bitcast", [x], [y], BITS, {"dtype": b})
