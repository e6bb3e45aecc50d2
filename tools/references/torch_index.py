"""Storing at indices of every form, scattering and gathering."""
import torch

import dtypes as dt
from autograd import cases_of
from case import BITS, T, distinct, near, rng, sample

HOW = ("sum", "prod", "mean", "amax", "amin")


def cases():
    yield from gets()
    yield from sets()
    yield from gathers()
    yield from scatters()
    yield from scatter_types()


def at(spec, inputs):
    """An index list as torch takes it."""
    def one(item):
        if item == "new":
            return None
        if item == "...":
            return Ellipsis
        if "i" in item:
            return item["i"]
        if "l" in item:
            return torch.tensor(item["l"], dtype=torch.int64)
        if "t" in item:
            x = inputs[item["t"]]
            return x if x.dtype == torch.bool else x.long()
        return slice(*item["s"])
    return tuple(one(item) for item in spec)


def get(spec):
    return lambda *x: x[0][at(spec, x)]


def put(spec):
    """x with the last input stored at the indices."""
    def stored(*x):
        y = x[0].clone()
        y[at(spec, x)] = x[-1]
        return y
    return stored


def part(src, index):
    """As much of the source as the index has: PyTorch's backward passes want that."""
    return src[tuple(slice(n) for n in index.shape)]


def gets():
    x = sample("index/get", (4, 3, 5), "f32")
    i, j = T([[2, -1], [0, 3]], "i32"), T([1, -3], "i64")
    for label, spec in (
        ("list", [{"l": [3, 0, 0, -1]}]),
        ("list of the middle", [{"s": [None, None]}, {"l": [2, 0]}]),
        ("lists", [{"l": [1, 2]}, {"l": [0, -1]}]),
        ("list beside an int", [{"i": 1}, "...", {"l": [4, 4, 0]}]),
        ("int between", [{"l": [1, 3]}, {"i": 0}]),
        ("tensors apart", [{"t": 1}, {"s": [1, None]}, {"t": 2}]),
        ("tensors and new axes", ["new", {"t": 1}, {"t": 2}, "new"]),
        ("tensor behind a new axis", ["...", "new", {"t": 2}]),
        ("steps", [{"s": [None, None, 3]}, "...", {"s": [4, 0, 1]}]),
    ):
        yield from cases_of(f"index/get/{label}", "index", [x, i, j], get(spec), {"index": spec}, grad=(0,))


def sets():
    x = sample("index/set", (4, 3, 5), "f32")
    i, j = T([2, -4], "i32"), T([[1], [-3]], "u8")
    j = T([[1], [0]], "u8")
    m2, m1, m3 = (sample(f"index/mask{len(s)}", s, "bool") for s in ((4, 3), (3,), (4, 3, 5)))
    n2, n3 = int(m2.value.sum()), int(m3.value.sum())
    for label, spec, picks, value in (
        ("int", [{"i": -2}], [], (3, 5)),
        ("range", ["...", {"s": [1, 4, 2]}], [], (2,)),
        ("number", [{"s": [1, None]}, {"i": 0}], [], ()),
        ("list", [{"l": [3, 0]}], [], (2, 3, 5)),
        ("list broadcast", [{"s": [None, None]}, {"l": [2, 0]}], [], (1, 5)),
        ("tensors", [{"t": 1}, {"t": 2}], [i, j], (2, 2, 5)),
        ("tensors apart", [{"t": 1}, {"s": [0, 2]}, {"t": 2}], [i, j], (2, 2, 2)),
        ("tensor beside an int", [{"i": 3}, {"s": [None, None]}, {"t": 1}], [i], (3, 2)),
        ("mask of all", [{"t": 1}], [m3], ()),
        ("mask of all, a row each", [{"t": 1}], [m3], (n3,)),
        ("mask of two axes", [{"t": 1}], [m2], (5,)),
        ("mask of two axes, a row each", [{"t": 1}], [m2], (n2, 5)),
        ("mask of two axes, a number each", [{"t": 1}], [m2], (n2, 1)),
        ("mask of the middle", [{"s": [1, 3]}, {"t": 1}], [m1], (1, 1, 5)),
        ("mask of the middle, a row each", [{"i": 2}, {"t": 1}, {"s": [0, 5, 2]}], [m1], (int(m1.value.sum()), 3)),
        ("mask behind an ellipsis", ["...", {"t": 1}, {"i": 4}], [m1], (4, 1)),
    ):
        v = sample("index/value", value, "f32", 3, 4)
        inputs = [x] + picks + [v]
        yield from cases_of(f"index/set/{label}", "set", inputs, put(spec), {"index": spec}, grad=(0, len(inputs) - 1))
    for dtype in ("bool", "u8", "i64", "f16", "bf16"):
        y, v = sample("index/set/types", (4, 3), dtype), sample("index/value", (3,), dtype, 3, 4)
        for label, spec, picks in (("list", [{"l": [3, 1]}], []), ("mask", [{"t": 1}], [T([True, False, True, False], "bool")])):
            yield from cases_of(f"index/set/{label}/{dtype}", "set", [y] + picks + [v], put(spec), {"index": spec})


def gathers():
    x = sample("gather", (4, 5, 3), "f32")
    for axis, shape in ((0, (6, 5, 3)), (1, (4, 2, 3)), (-1, (2, 1, 4)), (2, (4, 5, 0)), (1, (4, 9, 1))):
        i = T(rng(f"gather{shape}").integers(0, x.value.shape[axis], shape), "i64" if axis else "u8")
        f = lambda x, i, a=axis: torch.gather(x, a, i.long())
        yield from cases_of(f"index/gather/{axis} by {'x'.join(map(str, shape))}", "gather", [x, i], f, {"dim": axis}, grad=(0,))


def scatters():
    x, src = distinct("scatter", (4, 5, 3), "f32"), distinct("scatter/src", (4, 5, 3), "f32", 1.7)
    for axis, shape in ((0, (3, 5, 2)), (1, (4, 5, 3)), (-1, (2, 1, 3)), (2, (4, 5, 0)), (1, (1, 5, 3))):
        many = T(rng(f"scatter{shape}").integers(0, x.value.shape[axis], shape), "i32")
        once = rng(f"scatter once{shape}").random(shape[:axis % 3] + (x.value.shape[axis],) + shape[axis % 3 + 1:]).argsort(axis)
        once = T(once[tuple(slice(n) for n in shape)], "i64")
        name = f"{axis} by {'x'.join(map(str, shape))}"
        f = lambda x, i, s, a=axis: torch.scatter(x, a, i.long(), part(s, i))
        yield from cases_of(f"scatter/{name}", "scatter", [x, once, src], f, {"dim": axis}, grad=(0, 2))
        yield from cases_of(f"scatter/number/{name}", "scatter", [x, many], lambda x, i, a=axis: torch.scatter(x, a, i.long(), 1.5), {"dim": axis, "value": 1.5}, grad=(0,))
        for how in HOW:
            for own in (True, False):
                # A product of the small numbers would have gradients beyond the scale of the sums.
                f = lambda x, i, s, a=axis, h=how, o=own: torch.scatter_reduce(x, a, i.long(), part(s, i), h, include_self=o)
                yield from cases_of(f"scatter_reduce/{how}/{'with' if own else 'without'} self/{name}", "scatter_reduce", [x, many, src], f,
                                    {"dim": axis, "reduce": how, "include_self": own}, tol=TOL, grad=(0, 2))


def scatter_types():
    for dtype in ("u8", "i8", "i32", "i64", "f16", "bf16", "f64"):
        x, src = sample("scatter/types", (6,), dtype), sample("scatter/types/src", (9,), dtype)
        i = T(rng("scatter/types/i").integers(0, 5, 9), "i64")
        for how in HOW:
            if how == "mean" and dtype in ("i8", "i32", "i64"):
                continue  # PyTorch rounds the mean of negative integers toward zero at times.
            f = lambda x, i, s, h=how: torch.scatter_reduce(x, 0, i, s, h)
            yield from cases_of(f"scatter_reduce/{how}/{dtype}", "scatter_reduce", [x, i, src], f,
                                {"dim": 0, "reduce": how, "include_self": True}, tol=wide(dtype))


def wide(dtype):
    return near(4 * dt.eps(dtype), 16 * dt.eps(dtype), "PyTorch rounds each sum") if dt.is_float(dtype) else BITS


TOL = wide("f32")
