"""A case: an op's inputs and what must come out, how near, and why that near; gradients for a given cotangent.

Written as one JSON object a line (`.jsonl.gz`): {"name","op","params","in":[T],"out":[T],"tol":{...},"grad":{"of":T,"in":[T|null],"tol"}}
with T = {"d": dtype, "s": shape, "x": hex of the little-endian bytes}. tol is {"bits": true} (same bits, any NaN equals any
NaN) or {"abs": a, "rel": r, "why": text}: |got - want| <= a + r |want|, infinities and NaN where the reference has them.
"""
import json
import zlib

import numpy as np

import dtypes as dt

BITS = {"bits": True}


def near(abs_, rel, why):
    return {"abs": float(abs_), "rel": float(rel), "why": why}


class T:
    """An array with the dtype that numpy cannot name."""

    def __init__(self, value, dtype):
        self.dtype, self.value = dtype, dt.to(value, dtype)

    @property
    def wide(self):
        return self.value.astype(dt.WIDE) if self.value.dtype.kind in "fiu" else self.value

    def json(self):
        return {"d": self.dtype, "s": list(self.value.shape), "x": dt.to_bits(self.value, self.dtype).hex()}


def rng(name):
    """One stream of random numbers a case, independent of the order of cases."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def sample(name, shape, dtype, low=-2.0, high=2.0):
    """Random values: uniform floats in a range, integers over a small range, bools."""
    r = rng(name + str(shape) + dtype)
    if dtype == "bool":
        return T(r.integers(0, 2, shape), dtype)
    if dt.is_float(dtype):
        return T(r.uniform(low, high, shape), dtype)
    low = max(int(low), 0) if dtype[0] == "u" else int(low)
    return T(r.integers(low, max(int(high), low + 1) + 1, shape), dtype)


def distinct(name, shape, dtype, scale=1.0):
    """Values without ties, so that the place of a maximum and its gradient are one."""
    n = int(np.prod(shape, dtype=np.int64))
    return T((rng(name).permutation(n) - n // 2).reshape(shape) * scale / max(n, 1) * 4, dtype)


def exactly(function, inputs, dtype):
    """The output of a correctly rounded op. f64 is computed as f64: rounding a long double once more could differ."""
    with np.errstate(all="ignore"):
        return T(function(*[t.value if dtype == "f64" and t.dtype == "f64" else t.wide for t in inputs]), dtype)


class Case:
    def __init__(self, name, op, inputs, outputs, tol, params=None, grad=None):
        self.name, self.op, self.params = name, op, params or {}
        self.inputs, self.outputs, self.tol, self.grad = inputs, outputs, tol, grad

    def json(self):
        case = {"name": self.name, "op": self.op, "params": self.params, "in": [t.json() for t in self.inputs],
                "out": [t.json() for t in self.outputs], "tol": self.tol}
        if self.grad is not None:
            of, into, tol = self.grad
            case["grad"] = {"of": of.json(), "in": [t and t.json() for t in into], "tol": tol}
        return json.dumps(case, separators=(",", ":"))


def with_grad(name, op, inputs, forward, backward, tol, params=None, grad_tol=None, dtype=None):
    """A case whose output is forward(*wide inputs) and whose gradients are backward(cotangent, output, *wide inputs).

    backward gives None for an input without gradient. The formula is checked against central differences.
    """
    dtype = dtype or inputs[0].dtype
    wide = [t.wide for t in inputs]
    with np.errstate(all="ignore"):
        out = np.asarray(forward(*wide))
    of = T(rng(name + "/cotangent").uniform(-1, 1, out.shape), dtype)
    gradients = backward(of.wide, out, *wide)
    check_differences(name, forward, wide, of.wide, gradients)
    # Narrow floats: the gradient itself is rounded, and so are the steps before it.
    size = max([1.0] + [float(np.abs(g).max()) for g in gradients if g is not None and g.size])
    grad_tol = grad_tol or near(8 * dt.eps(dtype) * size, 16 * dt.eps(dtype), "a few roundings of the chain rule, at the largest gradient's scale")
    into = [None if g is None else T(np.broadcast_to(g, w.shape), t.dtype) for g, w, t in zip(gradients, wide, inputs)]
    result = exactly(forward, inputs, dtype) if tol is BITS else T(out, dtype)
    return Case(name, op, inputs, [result], tol, params, (of, into, grad_tol))


def check_differences(name, forward, wide, of, gradients, step=dt.WIDE(2.0**-20)):
    """Central differences in long double, at up to 12 places an input."""
    for index, gradient in enumerate(gradients):
        if gradient is None or wide[index].size == 0:
            continue
        gradient = np.broadcast_to(gradient, wide[index].shape)
        for place in rng(name).choice(wide[index].size, min(12, wide[index].size), replace=False):
            at = np.unravel_index(place, wide[index].shape)
            ends = []
            for side in (step, -step):
                moved = [w.copy() for w in wide]
                moved[index][at] += side
                ends.append((np.asarray(forward(*moved), dt.WIDE) * of).sum())
            want = (ends[0] - ends[1]) / (2 * step)
            assert abs(want - gradient[at]) <= 1e-6 * (1 + abs(want)), f"{name}: input {index} at {at}: formula {gradient[at]}, differences {want}"


def unbroadcast(g, shape):
    """Sum a gradient back to the shape that was broadcast."""
    g = g.sum(axis=tuple(range(g.ndim - len(shape))))
    return g.sum(axis=tuple(i for i, n in enumerate(shape) if n == 1 and g.shape[i] != 1), keepdims=True)
