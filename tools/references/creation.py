"""Tensors made from nothing: full, arange, eye, linspace; and the counter-based random block.

threefry: two words of counter, two of key, 20 rounds; rotations and key schedule from Salmon, Moraes, Dror, Shaw, "Parallel
random numbers: as easy as 1, 2, 3" (SC11); the first cases are the known answers printed with Random123.
"""
import numpy as np

import dtypes as dt
from case import BITS, Case, T, near, rng

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)


def threefry(x0, x1, k0, k1):
    keys = [np.uint32(k0), np.uint32(k1), np.uint32(k0) ^ np.uint32(k1) ^ PARITY]
    with np.errstate(over="ignore"):
        x0, x1 = np.uint32(x0) + keys[0], np.uint32(x1) + keys[1]
        for group in range(5):
            for r in ROTATIONS[group % 2]:
                x0 = x0 + x1
                x1 = ((x1 << np.uint32(r)) | (x1 >> np.uint32(32 - r))) ^ x0
            x0 = x0 + keys[(group + 1) % 3]
            x1 = x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


KNOWN = [((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)), ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
         ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0))]


def cases():
    for dtype in ("f32", "i32", "u8", "bool", "f16"):
        yield Case(f"create/full/{dtype}", "full", [], [T(np.full((2, 3), 1), dtype)], BITS, {"shape": [2, 3], "value": 1, "dtype": dtype})
    for shape in ([], [0], [3, 0, 2], [1025]):
        yield Case(f"create/full/{shape}", "full", [], [T(np.full(shape, -2.5), "f32")], BITS, {"shape": shape, "value": -2.5, "dtype": "f32"})
    for start, stop, step in ((0, 5, 1), (2, 17, 3), (5, 0, -1), (-4, 4, 2), (3, 3, 1), (0, 1025, 1)):
        yield Case(f"create/arange/i32/{start} {stop} {step}", "arange", [], [T(np.arange(start, stop, step), "i32")], BITS, {"start": start, "stop": stop, "step": step, "dtype": "i32"})
    yield Case("create/arange/f32", "arange", [], [T(np.arange(0, 2.5, 0.25), "f32")], near(1e-6, 2 * dt.eps("f32"), "start + n step"), {"start": 0.0, "stop": 2.5, "step": 0.25, "dtype": "f32"})
    for n, m in ((1, 1), (3, 3), (2, 5), (5, 2), (0, 3)):
        yield Case(f"create/eye/{n}x{m}", "eye", [], [T(np.eye(n, m), "f32")], BITS, {"n": n, "m": m, "dtype": "f32"})
    yield Case("create/linspace", "linspace", [], [T(np.linspace(-1, 2, 7), "f32")], near(4e-7, 2 * dt.eps("f32"), "start + n step"), {"start": -1.0, "stop": 2.0, "steps": 7})
    for counter, key, want in KNOWN:
        got = threefry(*counter, *key)
        assert tuple(map(int, got)) == want, (counter, key)
        yield threefry_case(f"known {counter[0]:x}", *[np.array([v]) for v in counter + key])
    r = rng("threefry")
    yield threefry_case("random", *[r.integers(0, 2**32, 33, dtype=np.uint64) for _ in range(4)])


def threefry_case(name, x0, x1, k0, k1):
    """Counter and key as u64: low word first."""
    words = [np.asarray(v).astype(np.uint32) for v in (x0, x1, k0, k1)]
    with np.errstate(over="ignore"):
        out = threefry_arrays(*words)
    join = lambda low, high: T(low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32)), "u64")
    return Case(f"create/threefry/{name}", "threefry", [join(*words[:2]), join(*words[2:])], [join(*out)], BITS)


def threefry_arrays(x0, x1, k0, k1):
    pairs = [threefry(*p) for p in zip(x0, x1, k0, k1)]
    return np.array([p[0] for p in pairs], np.uint32), np.array([p[1] for p in pairs], np.uint32)
