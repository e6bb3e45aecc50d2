"""Ops that only move data: shapes, indexing, gather, cat, stack, pad. All exact; gradients are the transposed moves.

The gradient of every one of them is found the same way: move the numbers of the elements, then add each cotangent to the
element it came from. An index is a list of {"i": int}, {"s": [start, stop, step]}, {"t": input number}, "new", "...".
"""
import numpy as np

import dtypes as dt
from case import BITS, Case, T, near, rng, sample, with_grad

EXACT_SUM = "each element's gradient is a sum of its copies' cotangents"


def moved(name, op, inputs, move, params, others=()):
    """A case of an op that moves the elements of `inputs`; `others` (index Tensors) follow without gradient."""
    others = list(others)

    def forward(*arrays):
        return move(*arrays[:len(inputs)])

    def backward(g, y, *arrays):
        ends = np.cumsum([a.size for a in arrays[:len(inputs)]])
        numbers = [np.arange(end - a.size, end).reshape(a.shape) + 1 for end, a in zip(ends, arrays)]
        places = move(*numbers)  # 0 is padding
        total = np.zeros(int(ends[-1]) + 1, g.dtype)
        np.add.at(total, places.ravel(), g.ravel())
        return [total[end - a.size + 1:end + 1].reshape(a.shape) for end, a in zip(ends, arrays)] + [None] * len(others)

    tol = near(64 * dt.eps("f32"), 4 * dt.eps("f32"), EXACT_SUM)
    return with_grad(f"move/{name}", op, list(inputs) + others, forward, backward, BITS, params, tol)


def cases():
    yield from shape_cases()
    yield from join_cases()
    yield from index_cases()
    yield from gather_cases()
    yield from narrow_cases()
    yield from mask_cases()
    yield from inside_cases()
    for dtype in dt.ALL:
        x = sample("move/dtype", (3, 5), dtype, -100, 100)
        y = T(np.flip(x.value.T[1:4], 0), dtype)
        yield Case(f"move/all dtypes/{dtype}", "transpose_shrink_flip", [x], [y], BITS, {"rows": [1, 4]})


def shape_cases():
    x234, x15, x0 = sample("move", (2, 3, 4), "f32"), sample("move", (1, 5), "f32"), sample("move", (0, 3), "f32")
    deep = sample("move", (2, 1, 3, 1, 2, 2), "f32")
    for x, shape in ((x234, [4, 6]), (x234, [24]), (x234, [2, -1]), (x234, [1, 2, 1, 3, 4, 1]), (x0, [3, 0]), (sample("move", (1,), "f32"), [])):
        yield moved(f"reshape/{list(x.value.shape)} to {shape}", "reshape", [x], lambda a, s=shape: a.reshape(s), {"shape": shape})
    for x, order in ((x234, [2, 0, 1]), (x234, [0, 2, 1]), (deep, [5, 4, 3, 2, 1, 0]), (x0, [1, 0])):
        yield moved(f"permute/{list(x.value.shape)} {order}", "permute", [x], lambda a, o=order: a.transpose(o), {"order": order})
    for x, shape in ((x15, [4, 5]), (x15, [2, 3, 5]), (deep, [2, 4, 3, 5, 2, 2]), (sample("move", (), "f32"), [3, 2]), (sample("move", (0, 1), "f32"), [0, 4])):
        yield moved(f"expand/{list(x.value.shape)} to {shape}", "expand", [x], lambda a, s=shape: np.broadcast_to(a, s), {"shape": shape})
    for x, pads in ((x234, [[1, 2], [0, 0], [3, 1]]), (x15, [[0, 1], [1, 0]]), (x0, [[2, 1], [1, 1]])):
        yield moved(f"pad/{list(x.value.shape)} {pads}", "pad", [x], lambda a, p=pads: np.pad(a, p), {"padding": pads, "value": 0})
        filled = Case(f"move/pad/{list(x.value.shape)} {pads} with a value", "pad", [x], [T(np.pad(x.value, pads, constant_values=-1.5), "f32")], BITS, {"padding": pads, "value": -1.5})
        yield filled
    for x, bounds in ((x234, [[0, 2], [1, 3], [2, 3]]), (x234, [[0, 1], [0, 3], [4, 4]]), (x0, [[0, 0], [1, 2]])):
        cut = tuple(slice(*b) for b in bounds)
        yield moved(f"shrink/{list(x.value.shape)} {bounds}", "shrink", [x], lambda a, c=cut: a[c], {"bounds": bounds})
    for axes in ([0], [1, 2], [0, 1, 2]):
        yield moved(f"flip/{axes}", "flip", [x234], lambda a, ax=axes: np.flip(a, ax), {"axes": axes})
    yield moved("transpose", "transpose", [x234], lambda a: np.swapaxes(a, 0, 2), {"dims": [0, 2]})
    yield moved("squeeze/all", "squeeze", [deep], lambda a: a.squeeze(), {"dim": None})
    yield moved("squeeze/one", "squeeze", [deep], lambda a: a.squeeze(3), {"dim": 3})
    yield moved("unsqueeze", "unsqueeze", [x234], lambda a: np.expand_dims(a, -2), {"dim": -2})
    yield moved("flatten", "flatten", [x234], lambda a: a.reshape(2, 12), {"start": 1, "end": -1})
    yield moved("repeat", "repeat", [x15], lambda a: np.tile(a, (2, 3, 2)), {"repeats": [2, 3, 2]})
    chain = lambda a: np.flip(np.pad(a.transpose(2, 0, 1), ((1, 0), (0, 2), (1, 1))), 2)[1:, ::1, 2:]
    yield moved("chain of views", "permute_pad_flip_shrink", [x234], chain, {})


def join_cases():
    a, b, c = sample("join/a", (2, 3), "f32"), sample("join/b", (2, 3), "f32"), sample("join/c", (2, 3), "f32")
    for dim in (0, 1, -1):
        yield moved(f"cat/{dim}", "cat", [a, b, c], lambda *x, d=dim: np.concatenate(x, d), {"dim": dim})
    for dim in (0, 1, 2, -1):
        yield moved(f"stack/{dim}", "stack", [a, b, c], lambda *x, d=dim: np.stack(x, d), {"dim": dim})
    d, empty = sample("join/d", (2, 17), "f32"), sample("join/e", (2, 0), "f32")
    yield moved("cat/unequal", "cat", [a, d, empty, b], lambda *x: np.concatenate(x, 1), {"dim": 1})
    yield moved("cat/one", "cat", [a], lambda x: x, {"dim": 0})


def index_of(spec, inputs):
    def item(s):
        if s == "new":
            return None
        if s == "...":
            return Ellipsis
        if "i" in s:
            return s["i"]
        return slice(*s["s"]) if "s" in s else inputs[s["t"]]
    return tuple(item(s) for s in spec)


def index_cases():
    x = sample("index", (5, 4, 6), "f32")
    one = lambda *b: {"s": list(b)}
    everything = one(None, None, None)
    basic = {"integer": [{"i": 2}], "negative integer": [{"i": -1}, {"i": 1}], "all integers": [{"i": 0}, {"i": -4}, {"i": 5}], "range": [one(1, 4, None)],
             "negative range": [one(-3, -1, None), everything, one(-2, None, None)], "steps": [one(None, None, 2), one(1, None, 3), one(0, 6, 4)],
             "reversed": [one(None, None, -1), one(3, 0, -2), one(None, None, -3)], "empty range": [one(3, 3, None)], "range past the end": [one(2, 100, None)],
             "ellipsis": ["...", {"i": 1}], "new axes": ["new", one(0, 2, None), "new", {"i": 1}, "...", "new"], "mixed": [{"i": 1}, "...", one(None, None, -2)]}
    for name, spec in basic.items():
        yield moved(f"index/{name}", "index", [x], lambda a, s=spec: a[index_of(s, [])], {"index": spec})
    i, j = T([0, 3, -1, 3], "i32"), T([[1], [2], [-2]], "i32")
    advanced = {"one Tensor": ([{"t": 1}], [i]), "Tensor in the middle": ([everything, {"t": 1}], [T([3, 0, 1], "i32")]), "two adjacent": ([{"t": 1}, {"t": 2}], [i, j]),
                "two adjacent behind a range": ([one(1, 3, None), {"t": 1}, {"t": 2}], [T([0, 1, 2, 3], "i32"), j]),
                "Tensors apart": ([{"t": 1}, everything, {"t": 2}], [i, j]), "a Tensor and an integer": ([{"t": 1}, {"i": 2}], [i]),
                "two dimensions": ([{"t": 1}], [T([[0, 1], [4, -5]], "i32")]), "i64": ([{"t": 1}], [T([4, 0], "i64")]), "no index": ([{"t": 1}], [T(np.zeros(0, np.int32), "i32")])}
    for name, (spec, tensors) in advanced.items():
        yield moved(f"index/{name}", "index", [x], lambda a, s=spec, t=tensors: a[index_of(s, [None] + [v.value for v in t])], {"index": spec}, tensors)


def gather_cases():
    for shape, index_shape, dim in (((3, 5), (3, 2), 1), ((3, 5), (7, 5), 0), ((5,), (9,), 0), ((2, 3, 4), (2, 3, 6), -1), ((4, 5), (2, 3), 1), ((33, 3), (17, 3), 0)):
        x = sample("gather", shape, "f32")
        index = T(rng(f"gather{shape}{dim}").integers(0, shape[dim], index_shape), "i32")
        cut = tuple(slice(None) if k == dim % len(shape) else slice(0, n) for k, n in enumerate(index_shape))
        yield moved(f"gather/{list(shape)} {list(index_shape)} {dim}", "gather", [x], lambda a, i=index, c=cut, d=dim: np.take_along_axis(a[c], i.value, d), {"dim": dim}, [index])


def narrow_cases():
    """Index Tensors and classes of integer types that lack some positions of the axis."""
    numbers = lambda *shape: np.arange(np.prod(shape)).reshape(shape)
    line, flat, wide = T(numbers(300), "f32"), T(numbers(20, 20), "f32"), T(numbers(20, 200), "f32")
    long = T(numbers(3, 11000) % 251, "u8")
    for dtype in dt.INTS:
        back = [-1, -100] if dtype[0] == "i" else [255, 100]
        i, j = T([5, 0, 127] + back, dtype), T([1, 19, 7, 0, 3], dtype)
        n = i.value.astype(np.int64)
        index = {"index": [{"t": 1}]}
        yield Case(f"move/index/{dtype} of 300", "index", [line, i], [T(line.value[n], "f32")], BITS, index)
        pair = {"index": [{"t": 1}, {"t": 2}]}
        m = j.value.astype(np.int64)
        yield Case(f"move/index/pairs of {dtype} of 20 x 20", "index", [flat, j, j], [T(flat.value[m, m], "f32")], BITS, pair)
        k = T([5, 0, 127, 127, 100], dtype)
        yield Case(f"move/index/pairs of {dtype} of 20 x 200", "index", [wide, j, k], [T(wide.value[m, k.value.astype(np.int64)], "f32")], BITS, pair)
        g = T(np.tile(k.value, (20, 1)), dtype)
        yield Case(f"move/gather/{dtype} of 200", "gather", [wide, g], [T(wide.value[:, k.value.astype(np.int64)], "f32")], BITS, {"dim": 1})
        hot = (np.arange(300) == i.value.astype(np.int64)[:, None]).astype(np.int32)
        yield Case(f"move/one_hot/{dtype} of 300", "one_hot", [i], [T(hot, "i32")], BITS, {"classes": 300})
    a, b = T([2, 1, 0], "i16"), T([10999, 7, 32], "i16")  # the last of 33000, more than an i16 counts
    yield Case("move/index/pairs of i16 of 3 x 11000", "index", [long, a, b], [T(long.value[a.value, b.value], "u8")], BITS, {"index": [{"t": 1}, {"t": 2}]})


def mask_cases():
    for shape in ((4, 4), (2, 3, 5), (5, 3)):
        for offset in (0, 1, -2):
            label = f"{'x'.join(map(str, shape))} from {offset}"
            x = sample("mask", shape, "f32")
            for op, function in (("tril", np.tril), ("triu", np.triu)):
                yield moved(f"{op}/{label}", op, [x], lambda v, f=function, k=offset: f(v, k), {"offset": offset})


def inside_cases():
    """Padding with elements of the inside, rotations, repetitions, diagonals and windows."""
    x, v = sample("inside", (2, 5, 4), "f32"), sample("inside/v", (5,), "f32")
    for mode, name in (("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")):
        for counts in (((0, 0), (1, 2), (3, 0)), ((1, 1), (0, 4), (2, 3))):
            label = " ".join(f"{a}-{b}" for a, b in counts)
            yield moved(f"pad_mode/{mode}/{label}", "pad_mode", [x], lambda v, c=counts, n=name: np.pad(v, c, n), {"mode": mode, "padding": [list(c) for c in counts]})
    for shift, axis in ((2, 1), (-3, 2), (7, 0)):
        yield moved(f"roll/{shift} on {axis}", "roll", [x], lambda v, s=shift, a=axis: np.roll(v, s, a), {"shift": shift, "dim": axis})
    for count, axis in ((3, 0), (2, -1)):
        yield moved(f"repeat_interleave/{count} on {axis}", "repeat_interleave", [x], lambda v, n=count, a=axis: np.repeat(v, n, a), {"count": count, "dim": axis})
    for offset, a, b in ((0, 1, 2), (2, 1, 2), (-1, 2, 1), (-3, 1, 0)):
        yield moved(f"diagonal/{offset} of {a} {b}", "diagonal", [x], lambda v, k=offset, a=a, b=b: np.diagonal(v, k, a, b), {"offset": offset, "dims": [a, b]})
    yield moved("diag/5", "diag", [v], np.diag, {})
    for size, step, axis in ((3, 1, 1), (2, 2, 2), (1, 3, 1)):
        cut = lambda v, n=size, s=step, a=axis: np.lib.stride_tricks.sliding_window_view(v, n, a)[(slice(None),) * a + (slice(None, None, s),)]
        yield moved(f"unfold/{size} by {step} on {axis}", "unfold", [x], cut, {"size": size, "step": step, "dim": axis})
