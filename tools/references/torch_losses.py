"""Losses with all their options, by PyTorch."""
import numpy as np
import torch
import torch.nn.functional as F

from witness import made
from case import T, near, rng, sample

TOL = near(2e-6, 1e-4, "a sum of logarithms in f32")
SLOPE = near(4e-6, 1e-4, "a sum of logarithms in f32")
REDUCTIONS = ("mean", "sum", "none")


def made_loss(name, op, inputs, f, params, slopes):
    return made(f"losses/{name}", op, inputs, f, params, TOL, SLOPE, "f32", slopes)


def cases():
    yield from distance_cases()
    yield from class_cases()
    yield from binary_cases()


def distance_cases():
    x, y = sample("distance/x", (4, 5), "f32", -3, 3), sample("distance/y", (4, 5), "f32", -3, 3)
    logs = T(torch.log_softmax(torch.from_numpy(x.value.astype(np.float64)), 1).numpy(), "f32")
    share = T(torch.softmax(torch.from_numpy(y.value.astype(np.float64)), 1).numpy(), "f32")
    none = T(np.where(np.arange(20).reshape(4, 5) % 3 == 0, 0, share.value), "f32")
    log_share = T(np.log(share.value.astype(np.float64)), "f32")
    for how in REDUCTIONS:
        p = {"reduction": how}
        both = [True, True]
        yield made_loss(f"mse/{how}", "mse_loss", [x, y], lambda a, b: F.mse_loss(a, b, reduction=how), p, both)
        yield made_loss(f"l1/{how}", "l1_loss", [x, y], lambda a, b: F.l1_loss(a, b, reduction=how), p, both)
        for beta in (1.0, 0.5, 2.5, 0.0):
            yield made_loss(f"smooth_l1/{how}/{beta}", "smooth_l1_loss", [x, y], lambda a, b: F.smooth_l1_loss(a, b, reduction=how, beta=beta), p | {"beta": beta}, both)
        for delta in (1.0, 0.5, 2.5):
            yield made_loss(f"huber/{how}/{delta}", "huber_loss", [x, y], lambda a, b: F.huber_loss(a, b, reduction=how, delta=delta), p | {"delta": delta}, both)
    for how in REDUCTIONS + ("batchmean",):
        p = {"reduction": how, "log_target": False}
        yield made_loss(f"kl_div/{how}", "kl_div", [logs, share], lambda a, b: F.kl_div(a, b, reduction=how), p, [True, True])
        yield made_loss(f"kl_div/{how}/zeros", "kl_div", [logs, none], lambda a, b: F.kl_div(a, b, reduction=how), p, [True, False])
        yield made_loss(f"kl_div/{how}/log", "kl_div", [logs, log_share], lambda a, b: F.kl_div(a, b, reduction=how, log_target=True), p | {"log_target": True}, [True, True])


def class_cases():
    for shape in ((6, 5), (5,), (2, 4, 3), (2, 3, 2, 2)):
        axis = 1 if len(shape) > 1 else 0
        n = shape[axis]
        x = sample("classes", shape, "f32", -4, 4)
        places = shape[:axis] + shape[axis + 1:]
        labels = np.array(rng(f"labels{shape}").integers(0, n, places))
        if labels.ndim and labels.size > 2:
            labels.reshape(-1)[1] = 2
        y = T(labels, "i64")
        w = T(rng(f"weights{n}").uniform(0.2, 2, n), "f32")
        soft = T(torch.softmax(torch.from_numpy(sample("classes/soft", shape, "f64").value), axis).numpy(), "f32")
        text = "x".join(map(str, shape))
        for how in REDUCTIONS:
            for smoothing in (0.0, 0.2):
                for weight in (None, w):
                    for ignore in (-100, 2):
                        p = {"reduction": how, "smoothing": smoothing, "ignore": ignore, "labels": True}
                        f = lambda a, b, *v: F.cross_entropy(a, b, *v, reduction=how, label_smoothing=smoothing, ignore_index=ignore)
                        name = f"cross_entropy/{text}/{how}/{smoothing}/{'weights' if weight else 'plain'}/{ignore}"
                        inputs = [x, y] + ([weight] if weight else [])
                        yield made_loss(name, "cross_entropy_with", inputs, f, p, [True, False, False])
                    p = {"reduction": how, "smoothing": smoothing, "ignore": -100, "labels": False}
                    f = lambda a, b, *v: F.cross_entropy(a, b, *v, reduction=how, label_smoothing=smoothing)
                    name = f"cross_entropy/{text}/{how}/{smoothing}/{'weights' if weight else 'plain'}/probabilities"
                    yield made_loss(name, "cross_entropy_with", [x, soft] + ([weight] if weight else []), f, p, [True, True, False])
            logs = T(torch.log_softmax(torch.from_numpy(x.value.astype(np.float64)), axis).numpy(), "f32")
            for weight in (None, w):
                for ignore in (-100, 2):
                    f = lambda a, b, *v: F.nll_loss(a, b, *v, reduction=how, ignore_index=ignore)
                    name = f"nll/{text}/{how}/{'weights' if weight else 'plain'}/{ignore}"
                    inputs = [logs, y] + ([weight] if weight else [])
                    yield made_loss(name, "nll_loss_with", inputs, f, {"reduction": how, "ignore": ignore}, [True, False, False])


def binary_cases():
    x, y = sample("binary/x", (4, 3), "f32", -4, 4), T(rng("binary/y").uniform(0, 1, (4, 3)), "f32")
    p = T(1 / (1 + np.exp(-x.wide)), "f32")
    w, pos = T(rng("binary/w").uniform(0.2, 2, (4, 3)), "f32"), T([0.5, 2.0, 3.0], "f32")
    for how in REDUCTIONS:
        q = {"reduction": how}
        yield made_loss(f"binary/{how}", "binary_with", [p, y], lambda a, b: F.binary_cross_entropy(a, b, reduction=how), q, [True, False])
        yield made_loss(f"binary/{how}/weights", "binary_with", [p, y, w], lambda a, b, v: F.binary_cross_entropy(a, b, v, reduction=how), q, [True, False, False])
        f = lambda a, b, *v: F.binary_cross_entropy_with_logits(a, b, reduction=how, **dict(zip(names, v)))
        for names, more in (((), []), (("weight",), [w]), (("pos_weight",), [pos]), (("weight", "pos_weight"), [w, pos])):
            yield made_loss(f"logits/{how}/{' '.join(names)}", "logits_with", [x, y] + more, f, q | {"names": list(names)}, [True, True, False, False])
