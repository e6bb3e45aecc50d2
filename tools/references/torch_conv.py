"""Convolutions, transposed ones, pooling and its way back, resizing and padding by PyTorch, gradients by its autograd.

Everything is computed in f64 from the stored inputs, and rounded once; sizes are in the order of the axes.
"""
import numpy as np
import torch
import torch.nn.functional as F

import dtypes as dt
from case import BITS, Case, T, distinct, near, rng, sample

SUMS = "products summed in any order, absolute at the size of the largest sum"


def wide(t):
    return torch.from_numpy(np.ascontiguousarray(t.wide.astype(np.float64)))


def largest(arrays):
    return max([1.0] + [float(np.abs(a).max()) for a in arrays if a is not None and a.size])


def made(name, op, inputs, function, params, tol=None, dtype=None):
    """`function` of torch tensors, and the gradients for a random cotangent of those inputs that are floats."""
    dtype = dtype or inputs[0].dtype
    leaves = [wide(t) if dt.is_float(t.dtype) else torch.from_numpy(t.value.astype(np.int64)) for t in inputs]
    for leaf in leaves:
        leaf.requires_grad_(leaf.dtype.is_floating_point)
    out = function(*leaves)
    of = T(rng(name + "/cotangent").uniform(-1, 1, tuple(out.shape)), dtype)
    floats = [leaf for leaf in leaves if leaf.requires_grad]
    found = iter(torch.autograd.grad(out, floats, wide(of), allow_unused=True))
    gradients = [next(found) if leaf.requires_grad else None for leaf in leaves]
    gradients = [None if g is None else g.numpy() for g in gradients]
    value = out.detach().numpy()
    e = max(dt.eps(dtype), dt.eps("f32") if dtype != "f64" else 0)
    tol = tol or near(16 * min(e, dt.eps("f32")) * largest([value]) + (dt.eps(dtype) if dtype == "f16" else 0), 4 * e, SUMS)
    grad_tol = near(32 * e * largest(gradients), 16 * e, "each gradient is itself a sum of products")
    into = [None if g is None else T(g, t.dtype) for g, t in zip(gradients, inputs)]
    return Case(f"conv/{name}", op, inputs, [T(value, dtype)], tol, params, (of, into, grad_tol))


def whole(name, op, inputs, function, params, dtype):
    """An output of integers."""
    out = function(*[wide(t) for t in inputs])
    return Case(f"conv/{name}", op, inputs, [T(out.numpy(), dtype)], BITS, params)


def each(n, axes):
    return [n] * axes if isinstance(n, int) else list(n)


def pairs(padding, axes):
    return [p if isinstance(p, (list, tuple)) else (p, p) for p in each(padding, axes)]


def padded(x, padding, value=0.0):
    """Counts of each axis, negative ones cut; torch wants the last axis first."""
    flat = [n for pair in reversed(padding) for n in pair]
    return F.pad(x, flat, value=value) if any(flat) else x


def cases():
    yield from convolutions()
    yield from transposed()
    yield from maxima()
    yield from means()
    yield from adaptive()
    yield from resized()
    yield from padding()


# input, weight, stride, dilation, padding, groups
CONVS = [
    ((2, 3, 9), (4, 3, 3), 1, 1, 0, 1),
    ((1, 4, 11), (6, 2, 4), 2, 2, [(3, 1)], 2),
    ((2, 6, 8), (6, 1, 3), 1, 1, 1, 6),
    ((3, 9), (2, 3, 3), 1, 1, 1, 1),
    ((1, 2, 12), (2, 2, 3), 1, 1, [(-2, -1)], 1),
    ((2, 3, 6, 5), (4, 3, 3, 3), 1, 1, 1, 1),
    ((1, 4, 7, 8), (6, 2, 3, 2), [2, 1], [1, 2], [(2, 1), (0, 3)], 2),
    ((1, 3, 6, 7), (6, 1, 3, 3), 1, 1, 1, 3),
    ((2, 2, 7, 7), (3, 2, 3, 3), [3, 2], 1, [(1, -1), (-2, 2)], 1),
    ((2, 5, 5), (3, 2, 2, 2), 1, 1, 0, 1),
    ((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), 1, 1, 0, 1),
    ((2, 4, 5, 4, 5), (4, 2, 3, 1, 2), [2, 1, 3], [1, 1, 2], [(1, 1), (0, 0), (2, 1)], 2),
    ((1, 3, 3, 3, 3), (3, 1, 2, 2, 2), 1, 1, 1, 3),
]


def convolutions():
    run = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
    for number, (xs, ws, stride, dilation, padding, groups) in enumerate(CONVS):
        axes = len(ws) - 2
        sides, stride, dilation = pairs(padding, axes), each(stride, axes), each(dilation, axes)
        params = {"stride": stride, "dilation": dilation, "padding": [list(p) for p in sides], "groups": groups, "axes": axes}
        for dtype in ("f32", "f64", "f16") if number in (1, 6, 11) else ("f32",):
            inputs = [sample("conv/x", xs, dtype, -1, 1), sample("conv/w", ws, dtype, -1, 1)]
            if number % 2 == 0 and dtype != "f16":
                inputs.append(sample("conv/b", ws[:1], dtype))
            function = lambda x, w, b=None: run[axes](padded(x, sides), w, b, stride=stride, dilation=dilation, groups=groups)
            yield made(f"conv/{dtype}/{number}", "conv", inputs, function, params)
    for number, (xs, ws, dilation) in enumerate([((1, 2, 7), (2, 2, 4), 1), ((1, 2, 5, 6), (3, 2, 2, 3), 1), ((1, 1, 9, 9), (2, 1, 4, 3), 2), ((1, 1, 4, 4, 5), (1, 1, 2, 3, 2), 1)]):
        axes = len(ws) - 2
        inputs = [sample("same/x", xs, "f32", -1, 1), sample("same/w", ws, "f32", -1, 1)]
        params = {"stride": [1] * axes, "dilation": [dilation] * axes, "padding": "same", "groups": 1, "axes": axes}
        yield made(f"same/{number}", "conv", inputs, lambda x, w: run[axes](x, w, padding="same", dilation=dilation), params)


# input, weight, stride, dilation, padding, output padding, groups
TRANSPOSED = [
    ((2, 3, 5), (3, 4, 3), 1, 1, 0, 0, 1),
    ((1, 4, 6), (4, 2, 4), 2, 1, 1, 0, 2),
    ((1, 2, 5), (2, 3, 3), 3, 1, 1, 2, 1),
    ((1, 2, 5), (2, 3, 3), 2, 2, 1, 1, 1),
    ((2, 5), (2, 3, 2), 2, 1, 0, 0, 1),
    ((1, 2, 4), (2, 2, 2), 4, 1, 0, 3, 1),
    ((2, 3, 4, 5), (3, 2, 3, 3), 2, 1, 1, 1, 1),
    ((1, 4, 3, 4), (4, 1, 3, 2), [2, 1], [1, 2], [1, 0], [1, 0], 4),
    ((1, 4, 4, 3), (4, 2, 2, 4), [3, 2], [2, 3], [0, 1], [2, 1], 2),
    ((1, 2, 3, 3), (2, 2, 1, 1), 2, 1, 0, 1, 1),
    ((1, 2, 3, 2, 3), (2, 2, 2, 3, 2), [1, 2, 2], 1, [0, 1, 0], [0, 1, 0], 1),
    ((1, 4, 2, 3, 2), (4, 1, 3, 2, 2), 2, [1, 2, 1], 1, 1, 2),
]


def transposed():
    run = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
    for number, (xs, ws, stride, dilation, padding, more, groups) in enumerate(TRANSPOSED):
        axes = len(ws) - 2
        stride, dilation, padding, more = (each(v, axes) for v in (stride, dilation, padding, more))
        params = {"stride": stride, "dilation": dilation, "padding": [[p, p] for p in padding], "output_padding": more, "groups": groups, "axes": axes}
        for dtype in ("f32", "f64", "f16") if number == 6 else ("f32",):
            inputs = [sample("transposed/x", xs, dtype, -1, 1), sample("transposed/w", ws, dtype, -1, 1)]
            if number % 2 == 0 and dtype != "f16":
                inputs.append(sample("transposed/b", (ws[1] * groups,), dtype))
            function = lambda x, w, b=None: run[axes](x, w, b, stride, padding, more, groups, dilation)
            yield made(f"transposed/{dtype}/{number}", "conv_transpose", inputs, function, params)


# input, window, stride (None: the window), padding, dilation, ceil
POOLS = [
    ((2, 3, 9), 2, None, 0, 1, False),
    ((1, 2, 10), 3, 2, 1, 2, True),
    ((1, 2, 7, 6), [3, 2], [2, 1], 0, 1, False),
    ((1, 2, 7, 8), 3, 2, 1, 1, True),
    ((2, 2, 8, 9), [3, 2], [2, 3], [1, 0], [2, 1], True),
    ((1, 1, 5, 5), 2, 2, 1, 1, True),
    ((2, 5, 6), 2, None, 0, 1, False),
    ((1, 2, 4, 5, 4), 2, None, 0, 1, False),
    ((1, 1, 5, 4, 5), [2, 3, 2], [2, 1, 3], [1, 1, 0], 1, True),
]


def pool_options(shape, size, stride, padding, dilation, ceil):
    axes = 3 if len(shape) == 5 else 1 if len(shape) == 3 and isinstance(size, int) and shape[1] < 4 else 2
    size, padding, dilation = (each(v, axes) for v in (size, padding, dilation))
    stride = size if stride is None else each(stride, axes)
    return axes, {"kernel": size, "stride": stride, "dilation": dilation, "padding": [[p, p] for p in padding], "ceil": ceil, "axes": axes}


def maxima():
    run, back = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}, {1: F.max_unpool1d, 2: F.max_unpool2d, 3: F.max_unpool3d}
    for number, row in enumerate(POOLS):
        axes, params = pool_options(*row)
        options = (params["kernel"], params["stride"], [p[0] for p in params["padding"]], params["dilation"], row[5])
        for dtype in ("f32", "f16", "f64") if number == 3 else ("f32",):
            x = distinct("pool", row[0], dtype)
            yield made(f"max_pool/{dtype}/{number}", "max_pool", [x], lambda x: run[axes](x, *options), params, BITS)
            yield whole(f"max_pool indices/{dtype}/{number}", "max_pool_indices", [x], lambda x: run[axes](x, *options, return_indices=True)[1], params, "i32")
    ties = T([[[0, 1, 1, 0, 2, 2, 2, -1, -1]]], "f32")
    _, params = pool_options((1, 1, 9), 3, 2, 1, 1, False)
    yield whole("max_pool indices/ties", "max_pool_indices", [ties], lambda x: F.max_pool1d(x, 3, 2, 1, return_indices=True)[1], params, "i32")
    # input, window, stride, padding, size of the output
    table = [((2, 3, 8), 2, None, 0, None), ((1, 2, 9), 2, None, 0, [9]), ((1, 2, 6, 8), 2, None, 0, None), ((1, 2, 7, 9), [3, 2], [2, 3], [1, 0], [7, 9]), ((1, 1, 7, 7), 2, None, 0, [7, 7]), ((1, 2, 4, 4, 6), 2, None, 0, None), ((2, 6, 6), 2, None, 0, None)]
    for number, (shape, size, stride, padding, out) in enumerate(table):
        axes, params = pool_options(shape, size, stride, padding, 1, False)
        options = (params["kernel"], params["stride"], [p[0] for p in params["padding"]])
        x, indices = run[axes](wide(distinct("unpool", shape, "f32")), *options, return_indices=True)
        # Windows that overlap name a place more than once: PyTorch keeps one of the values, which here are equal.
        function = lambda x, i: back[axes](x, i, *options, output_size=out)
        repeats = len(np.unique(indices[0, 0].numpy() if len(shape) > 3 or axes == 1 else indices[0].numpy())) < indices[0, 0].numel()
        inputs = [T(x.numpy(), "f32"), T(indices.numpy(), "i32")]
        case = made(f"max_unpool/{number}", "max_unpool", inputs, function, {**params, "output_size": out}, BITS)
        case.grad = None if repeats else case.grad
        yield case


def means():
    run = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
    for number, row in enumerate(POOLS):
        if row[4] != 1:
            continue
        axes, params = pool_options(*row)
        for counted in (True, False):
            options = (params["kernel"], params["stride"], [p[0] for p in params["padding"]], row[5], counted)
            for dtype in ("f32", "f16", "f64") if number == 3 else ("f32",):
                x = sample("pool", row[0], dtype)
                yield made(f"avg_pool/{dtype}/{number}/{'' if counted else 'not '}counted", "avg_pool", [x], lambda x: run[axes](x, *options), {**params, "count_include_pad": counted})


def adaptive():
    means, maxima = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}, {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
    for shape, out in (((2, 3, 12), [4]), ((1, 2, 7), [3]), ((1, 2, 3), [5]), ((1, 2, 8, 6), [2, 3]), ((2, 2, 7, 5), [3, 2]), ((1, 2, 6, 7), [1, 1]), ((1, 1, 5, 6), [5, 4]), ((1, 2, 4, 5, 3), [2, 3, 2])):
        axes, name = len(out), f"{'x'.join(map(str, shape))} to {'x'.join(map(str, out))}"
        params = {"size": out, "axes": axes}
        yield made(f"adaptive_avg_pool/{name}", "adaptive_avg_pool", [sample("adaptive", shape, "f32")], lambda x: means[axes](x, out), params)
        yield made(f"adaptive_max_pool/{name}", "adaptive_max_pool", [distinct("adaptive", shape, "f32")], lambda x: maxima[axes](x, out), params, BITS)


# shape, size or None, factor or None
SIZES = {
    1: [((1, 2, 5), [8], None), ((1, 2, 8), [3], None), ((2, 1, 6), [12], None), ((1, 1, 7), None, 1.7), ((1, 1, 7), None, 0.6), ((1, 2, 1), [4], None), ((1, 2, 6), [1], None)],
    2: [((1, 2, 4, 5), [7, 9], None), ((1, 2, 8, 9), [3, 5], None), ((1, 2, 4, 3), [8, 6], None), ((1, 1, 6, 4), [3, 2], None), ((1, 1, 5, 4), None, [1.5, 2.0]), ((1, 1, 6, 7), None, [0.5, 0.7]), ((2, 1, 3, 4), [3, 4], None), ((1, 1, 3, 2), [9, 8], None)],
    3: [((1, 1, 3, 4, 2), [5, 3, 4], None), ((1, 1, 4, 3, 5), [2, 6, 3], None), ((1, 1, 2, 3, 4), None, [2.0, 1.5, 0.5])],
}
MODES = {"nearest": (1, 2, 3), "nearest-exact": (1, 2, 3), "linear": (1,), "bilinear": (2,), "trilinear": (3,), "bicubic": (2,), "area": (1, 2, 3)}


def resized():
    for mode, ranks in MODES.items():
        for axes in ranks:
            for number, (shape, size, factor) in enumerate(SIZES[axes]):
                for corners in (None, True) if mode in ("linear", "bilinear", "trilinear", "bicubic") else (None,):
                    for dtype in ("f32", "f64", "f16") if (number, axes) == (0, 2) else ("f32",):
                        yield resize(mode, axes, number, (shape, size, factor), corners, dtype)


def resize(mode, axes, number, row, corners, dtype):
    shape, size, factor = row
    x = sample("resize", shape, dtype)
    params = {"mode": mode, "size": size, "scale": factor if factor is None else each_float(factor, axes), "align_corners": corners is True, "axes": axes}
    function = lambda x: F.interpolate(x, size=size, scale_factor=params["scale"] and tuple(params["scale"]), mode=mode, align_corners=corners)
    e = max(dt.eps(dtype), dt.eps("f32") if dtype != "f64" else 0)
    # PyTorch and we compute positions in f32 where the values are f32: a weight is off by an ulp of the position.
    tol = BITS if mode.startswith("nearest") else near(64 * e, 8 * e, "positions and weights in f32 (f64 for f64)")
    return made(f"interpolate/{mode}/{dtype}/{axes}-{number}/{'corners' if corners else 'centres'}", "interpolate", [x], function, params, tol)


def each_float(v, axes):
    return [v] * axes if isinstance(v, float) else list(v)


def padding():
    modes = {"constant": [[1, 2], [-1, 3, 2, 0], [0, 1, -2, 1, 1, -1]], "reflect": [[2, 1], [1, 2, 2, 1], [2, -1, 0, 1]], "replicate": [[3, 1], [1, 2, 3, 0], [-1, 2, 1, -1]], "circular": [[2, 1], [1, 3, 2, 0], [2, -1, -1, 2]]}
    for mode, lists in modes.items():
        for number, flat in enumerate(lists):
            shape = (2, 3, 5) if len(flat) == 2 else (2, 2, 4, 5)
            function = lambda x: F.pad(x, flat, mode=mode, **({"value": 1.5} if mode == "constant" else {}))
            yield made(f"pad_flat/{mode}/{number}", "pad_flat", [sample("pad", shape, "f32")], function, {"padding": flat, "mode": mode, "value": 1.5}, BITS)
