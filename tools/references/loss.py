"""Cross entropy losses in all reductions. Classes are on axis 1 (axis 0 of a vector); targets are class numbers or probabilities."""
import numpy as np

import dtypes as dt
from case import Case, T, near, rng, sample, with_grad
from reduce import logsumexp, softmax
from unary import sigmoid, softplus

TOL = near(64 * dt.eps("f32"), 32 * dt.eps("f32"), "a log-softmax and a mean, absolute at the size of the logits")

REDUCTIONS = ("mean", "sum", "none")


def reduced(y, how):
    return {"mean": np.mean, "sum": np.sum, "none": lambda v: v}[how](y)


def per_item(g, y, how):
    """The cotangent of the unreduced losses `y`."""
    return {"mean": lambda: np.broadcast_to(g / y.size, y.shape), "sum": lambda: np.broadcast_to(g, y.shape), "none": lambda: g}[how]()


def cases():
    yield from cross_entropy_cases()
    yield from sparse_cases()
    yield from binary_cases()
    yield from narrow_cases()


def cross_entropy_cases():
    for shape in ((5, 10), (3, 4, 2, 3), (1, 2), (33, 17)):
        x = sample("loss", shape, "f32", -4, 4)
        targets = rng(f"loss{shape}").integers(0, shape[1], shape[:1] + shape[2:])
        hot = np.moveaxis(np.eye(shape[1])[targets], -1, 1)
        soft = softmax(sample("loss/soft", shape, "f64").wide, 1)
        for how in REDUCTIONS:
            for smoothing in (0.0, 0.1):
                for label, y in (("classes", T(targets, "i32")), ("probabilities", T(soft, "f32"))):
                    want = (hot if label == "classes" else y.wide) * (1 - smoothing) + smoothing / shape[1]
                    value = lambda x, y, w=want: -((x - logsumexp(x, 1, True)) * w).sum(axis=1)
                    slopes = lambda g, out, x, y, w=want, h=how: [np.expand_dims(per_item(g, w.sum(axis=1), h), 1) * (softmax(x, 1) * w.sum(axis=1, keepdims=True) - w), None]
                    name = f"loss/cross_entropy/{'x'.join(map(str, shape))}/{label}/{how}/smoothing {smoothing}"
                    yield with_grad(name, "cross_entropy", [x, y], lambda x, y, v=value, h=how: reduced(v(x, y), h), slopes, TOL, {"reduction": how, "label_smoothing": smoothing}, dtype="f32")


def sparse_cases():
    x = sample("loss/sparse", (6, 5), "f32", -4, 4)
    y = T([0, 4, 2, 2, 1, 4], "i32")
    for how in REDUCTIONS:
        for ignored in (-1, 4):
            keep = (y.value != ignored).astype(dt.WIDE)
            hot = np.eye(5)[y.value] * keep[:, None]
            value = lambda x, y: -((x - logsumexp(x, 1, True)) * hot).sum(axis=1)
            total = lambda v, h=how: v.sum() / keep.sum() if h == "mean" else reduced(v, h)
            weight = lambda g, h=how: np.broadcast_to(g / keep.sum() if h == "mean" else g, (6,))
            slopes = lambda g, out, x, y: [(weight(g) * keep)[:, None] * softmax(x, 1) - weight(g)[:, None] * hot, None]
            yield with_grad(f"loss/sparse_categorical_crossentropy/{how}/ignoring {ignored}", "sparse_categorical_crossentropy", [x, y], lambda x, y: total(value(x, y)), slopes, TOL, {"reduction": how, "ignore_index": ignored}, dtype="f32")


def narrow_cases():
    """Labels of types that lack some of the classes, and targets that are certain."""
    x = sample("loss/narrow", (4, 300), "f32", -4, 4)
    for dtype in ("u8", "i8", "i16", "u64"):
        y = T([5, 0, 127, 44], dtype)
        hot = np.eye(300)[y.value.astype(np.int64)]
        value = lambda x, y: (-(x - logsumexp(x, 1, True)) * hot).sum(axis=1).mean()
        slopes = lambda g, out, x, y: [g / 4 * (softmax(x, 1) - hot), None]
        yield with_grad(f"loss/sparse_categorical_crossentropy/{dtype} of 300", "sparse_categorical_crossentropy", [x, y], value, slopes, TOL, {"reduction": "mean", "ignore_index": -1}, dtype="f32")
    p, y = T([0, 1, 0.25, 1, 0, 0.5], "f32"), T([0, 1, 0, 0, 1, 0.5], "f32")
    log = lambda v: np.maximum(np.log(np.maximum(v, WIDE_TINY)), -100)
    out = -(y.wide * log(p.wide) + (1 - y.wide) * log(1 - p.wide)).mean()
    yield Case("loss/binary_crossentropy/certain", "binary_crossentropy", [p, y], [T(out, "f32")], TOL, {"reduction": "mean"})


WIDE_TINY = dt.WIDE(1e-300)


def binary_cases():
    x, y = sample("loss/binary", (17,), "f32", -4, 4), T(rng("loss/binary/y").uniform(0, 1, 17), "f32")
    for how in REDUCTIONS:
        value = lambda x, y: softplus(x) - x * y
        slopes = lambda g, out, x, y, h=how: [per_item(g, x, h) * (sigmoid(x) - y), None]
        yield with_grad(f"loss/binary_crossentropy_logits/{how}", "binary_crossentropy_logits", [x, y], lambda x, y, h=how: reduced(value(x, y), h), slopes, TOL, {"reduction": how}, dtype="f32")
        p = T(sigmoid(x.wide), "f32")
        value = lambda p, y: -y * np.log(p) - (1 - y) * np.log(1 - p)
        slopes = lambda g, out, p, y, h=how: [per_item(g, p, h) * ((1 - y) / (1 - p) - y / p), None]
        yield with_grad(f"loss/binary_crossentropy/{how}", "binary_crossentropy", [p, y], lambda p, y, h=how, v=value: reduced(v(p, y), h), slopes, TOL, {"reduction": how}, dtype="f32")
    logs = T(np.log(softmax(sample("loss/nll", (6, 5), "f64").wide, 1)), "f32")
    y = T([0, 4, 2, 2, 1, 4], "i32")
    hot = np.eye(5)[y.value]
    for how in REDUCTIONS:
        value = lambda x, y, h=how: reduced(-(x * hot).sum(axis=1), h)
        slopes = lambda g, out, x, y, h=how: [-hot * per_item(g, x[:, 0], h)[:, None], None]
        yield with_grad(f"loss/nll_loss/{how}", "nll_loss", [logs, y], value, slopes, TOL, {"reduction": how}, dtype="f32")
