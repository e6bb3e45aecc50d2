"""Writes the references of layers, optimisers, schedules and state files under tests/data/nn: made by PyTorch and numpy.

`nn.py`: all of them (PyTorch is needed; `make.py` has the ops). Everything is computed in f64 from inputs that f32 holds.
layers.jsonl.gz: {"op","params","state":{name:T},"in":[T],"train","out":[T],"of":[T],"grad_in":[T|null],"grad_state":{name:T},"after":{name:T}}
optim.jsonl.gz:  {"op","params","start":[T],"grads":[[T] a step],"path":[[T] a step]}
rates.jsonl.gz:  {"op","params","rates":[f],"metrics":[f]?}
files.jsonl.gz:  {"file","name",T's fields}: what model.pt, legacy.pt, arrays.npz .. hold
"""
import gzip
import inspect
import io
import json
import pathlib
import pickle
import warnings

import numpy as np
import torch
import torch.nn as nn
import torch.optim._muon as muon

import dtypes
from case import T, rng

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/data/nn"
warnings.simplefilter("ignore")


def write(name, lines):
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=9, mtime=0) as file:
        file.write("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode())
    (FOLDER / name).write_bytes(out.getvalue())
    print(f"{name:18} {len(lines):4} cases {len(out.getvalue()):7} bytes")


def numbers(name, shape, low=-1.0, high=1.0):
    """f64 numbers that f32 holds."""
    return torch.tensor(rng(name).uniform(low, high, shape).astype(np.float32).astype(np.float64))


def t(x):
    """A Tensor's T: floats as f32, integers as i64."""
    x = x.detach().numpy()
    return T(x, "f32" if x.dtype.kind == "f" else "i64").json()


# Layers

class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Attention(nn.MultiheadAttention):
    def forward(self, q, k, v, mask=None):
        return super().forward(q, k, v, attn_mask=mask, need_weights=False)[0]


def layer(name, op, module, inputs, params=None, train=False, fixed=()):
    """A case; the inputs numbered in `fixed` get no gradient."""
    module = module.double().train(train)
    for key, value in module.named_parameters():
        value.data.copy_(numbers(f"{name}/{key}", value.shape))
    for key, value in module.named_buffers():
        if value.is_floating_point():
            value.data.copy_(numbers(f"{name}/{key}", value.shape, 0.2, 1.5))
    state = {k: t(v) for k, v in module.state_dict().items()}
    wanted = [k for k, x in enumerate(inputs) if x.is_floating_point() and k not in fixed]
    inputs = [x.clone().requires_grad_(k in wanted) for k, x in enumerate(inputs)]
    out = module(*inputs)
    flat = []
    for o in out if isinstance(out, tuple) else [out]:
        flat += list(o) if isinstance(o, tuple) else [o]
    of = [numbers(f"{name}/of{k}", o.shape) for k, o in enumerate(flat)]
    sum((o * w).sum() for o, w in zip(flat, of)).backward()
    return {
        "name": name, "op": op, "params": params or {}, "train": train, "state": state,
        "in": [t(x) for x in inputs], "out": [t(o) for o in flat], "of": [t(o) for o in of],
        "grad_in": [t(x.grad) if x.grad is not None else None for x in inputs],
        "grad_state": {k: t(v.grad) for k, v in module.named_parameters() if v.grad is not None},
        "after": {k: t(v) for k, v in module.named_buffers()},
    }


def layers():
    x = lambda *shape: numbers(f"x{shape}", shape)
    yield layer("linear", "linear", nn.Linear(5, 3), [x(2, 4, 5)], {"sizes": [5, 3]})
    yield layer("linear/no bias", "linear", nn.Linear(5, 3, bias=False), [x(4, 5)], {"sizes": [5, 3], "bias": False})
    yield layer("embedding", "embedding", nn.Embedding(6, 3), [torch.tensor([[0, 5, 2], [2, 2, 1]])], {"sizes": [6, 3]})
    yield from convolutions(x)
    for train in (False, True):
        for shape in ((6, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 2, 3)):
            kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)]
            yield layer(f"batchnorm/{len(shape)}/{train}", "batchnorm", kind(3), [x(*shape)], {"channels": 3}, train)
        yield layer(f"batchnorm/not affine/{train}", "batchnorm", nn.BatchNorm2d(3, affine=False), [x(2, 3, 2, 2)], {"channels": 3, "affine": False}, train)
        yield layer(f"batchnorm/no statistics/{train}", "batchnorm", nn.BatchNorm2d(3, track_running_stats=False), [x(2, 3, 2, 2)], {"channels": 3, "track": False}, train)
        yield layer(f"batchnorm/cumulative/{train}", "batchnorm", nn.BatchNorm2d(3, momentum=None), [x(2, 3, 2, 2)], {"channels": 3, "cumulative": True}, train)
        yield layer(f"batchnorm/settings/{train}", "batchnorm", nn.BatchNorm2d(3, eps=0.1, momentum=0.5), [x(2, 3, 2, 2)], {"channels": 3, "eps": 0.1, "momentum": 0.5}, train)
    for affine in (True, False):
        weights = {"affine": affine}
        yield layer(f"groupnorm/{affine}", "groupnorm", nn.GroupNorm(2, 4, affine=affine), [x(2, 4, 3, 2)], {"groups": 2, "channels": 4, **weights})
        yield layer(f"groupnorm/rows/{affine}", "groupnorm", nn.GroupNorm(2, 6, affine=affine), [x(3, 6)], {"groups": 2, "channels": 6, **weights})
        yield layer(f"instancenorm/{affine}", "instancenorm", nn.InstanceNorm2d(3, affine=affine), [x(2, 3, 3, 2)], {"channels": 3, **weights})
        yield layer(f"instancenorm/1d/{affine}", "instancenorm", nn.InstanceNorm1d(3, affine=affine), [x(2, 3, 5)], {"channels": 3, **weights})
        yield layer(f"layernorm/{affine}", "layernorm", nn.LayerNorm((4,), elementwise_affine=affine), [x(2, 3, 4)], {"shape": [4], **weights})
        yield layer(f"layernorm/two axes/{affine}", "layernorm", nn.LayerNorm((3, 4), elementwise_affine=affine, eps=1e-3), [x(2, 3, 4)], {"shape": [3, 4], "eps": 1e-3, **weights})
        yield layer(f"layernorm2d/{affine}", "layernorm2d", LayerNorm2d(3, elementwise_affine=affine), [x(2, 3, 2, 4)], {"channels": 3, **weights})
        yield layer(f"rmsnorm/{affine}", "rmsnorm", nn.RMSNorm(4, eps=1e-6, elementwise_affine=affine), [x(2, 3, 4)], {"size": 4, **weights})
    yield from recurrent(x)
    for bias in (True, False):
        params = {"size": 6, "heads": 2, "bias": bias}
        make = lambda: Attention(6, 2, bias=bias, batch_first=True)
        yield layer(f"attention/{bias}", "attention", make(), [x(2, 3, 6), x(2, 4, 6), x(2, 4, 6) * 0.5], params)
        mask = torch.where(x(3, 4) > 0, -1.5, 0.25)
        yield layer(f"attention/mask/{bias}", "attention", make(), [x(2, 3, 6), x(2, 4, 6), x(2, 4, 6), mask], {**params, "mask": True}, fixed=(3,))
    causal = nn.Transformer.generate_square_subsequent_mask(4).double()
    yield layer("attention/causal", "attention", Attention(6, 3, batch_first=True), [x(1, 4, 6), x(1, 4, 6), x(1, 4, 6), causal], {"size": 6, "heads": 3, "causal": True}, fixed=(3,))


def convolutions(x):
    kinds = {1: (nn.Conv1d, nn.ConvTranspose1d), 2: (nn.Conv2d, nn.ConvTranspose2d), 3: (nn.Conv3d, nn.ConvTranspose3d)}
    space = {1: (9,), 2: (6, 7), 3: (4, 5, 4)}
    kernel = {1: (3,), 2: (3, 2), 3: (2, 3, 2)}
    options = [
        {}, {"bias": False}, {"stride": (2, 1, 2)}, {"padding": (1, 0, 1)}, {"dilation": (2, 1, 1)}, {"groups": 2},
        {"stride": (2, 2, 1), "padding": (1, 1, 0), "dilation": (1, 2, 1), "groups": 2},
    ]
    for rank, (plain, turned) in kinds.items():
        for n, how in enumerate(options):
            cut = {k: v[:rank] if isinstance(v, tuple) else v for k, v in how.items()}
            params = {"sizes": [4, 2], "kernel": kernel[rank], **cut}
            yield layer(f"conv{rank}d/{n}", "conv", plain(4, 2, kernel[rank], **cut), [x(2, 4, *space[rank])], params)
            small = tuple(s - 2 for s in space[rank])
            if "stride" in cut:
                cut["output_padding"] = tuple(max(s - 1, 0) if k == 0 else 0 for k, s in enumerate(cut["stride"]))
            params = {"sizes": [4, 2], "kernel": kernel[rank], **cut}
            yield layer(f"conv_transpose{rank}d/{n}", "conv_transpose", turned(4, 2, kernel[rank], **cut), [x(2, 4, *small)], params)


class Cell(nn.Module):
    """A cell with its state as separate inputs."""
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x, *state):
        return self.cell(x, state if len(state) == 2 else state[0])


def bare(case):
    """Names without the wrapper's."""
    cut = lambda d: {k.removeprefix("cell."): v for k, v in d.items()}
    return {**case, "state": cut(case["state"]), "grad_state": cut(case["grad_state"])}


def recurrent(x):
    for bias in (True, False):
        yield bare(layer(f"lstmcell/{bias}", "lstmcell", Cell(nn.LSTMCell(3, 4, bias=bias)), [x(2, 3), x(2, 4), x(2, 4) * 0.5], {"sizes": [3, 4], "bias": bias}))
        yield bare(layer(f"grucell/{bias}", "grucell", Cell(nn.GRUCell(3, 4, bias=bias)), [x(2, 3), x(2, 4)], {"sizes": [3, 4], "bias": bias}))
    for how in ({}, {"num_layers": 2}, {"bidirectional": True}, {"num_layers": 2, "bidirectional": True, "batch_first": True, "bias": False}):
        name = "/".join(how) or "plain"
        shape = (2, 3, 3) if how.get("batch_first") else (3, 2, 3)
        cells = how.get("num_layers", 1) * (2 if how.get("bidirectional") else 1)
        params = {"sizes": [3, 4], **how}
        yield layer(f"lstm/{name}", "lstm", nn.LSTM(3, 4, **how), [x(*shape)], params)
        yield layer(f"gru/{name}", "gru", nn.GRU(3, 4, **how), [x(*shape)], params)
        state = [x(cells, 2, 4), x(cells, 2, 4) * 0.5]
        yield bare(layer(f"lstm/{name}/state", "lstm", Cell(nn.LSTM(3, 4, **how)), [x(*shape)] + state, params))
        yield bare(layer(f"gru/{name}/state", "gru", Cell(nn.GRU(3, 4, **how)), [x(*shape), state[0]], params))


# Optimisers

SHAPES = ((4, 3), (5,))
STEPS = 5


def gradients(name, shapes):
    return [[numbers(f"{name}/g{step}/{k}", s) for k, s in enumerate(shapes)] for step in range(STEPS)]


def starts(name, shapes):
    return [numbers(f"{name}/p{k}", s) for k, s in enumerate(shapes)]


def path(name, op, params, step, shapes=SHAPES):
    """A case from `step(parameters, gradients, number)`, which moves the parameters in place."""
    start, grads = starts(name, shapes), gradients(name, shapes)
    moving, states = [p.clone() for p in start], []
    for n in range(STEPS):
        step(moving, grads[n], n)
        states.append([t(p) for p in moving])
    return {"name": name, "op": op, "params": params, "start": [t(p) for p in start], "grads": [[t(g) for g in row] for row in grads], "path": states}


def by_torch(name, op, params, make, shapes=SHAPES):
    held = {}

    def step(moving, grads, n):
        if not held:
            held["p"] = [nn.Parameter(p) for p in moving]
            held["o"] = make(held["p"])
        for p, g in zip(held["p"], grads):
            p.grad = g.clone()
        held["o"].step()
        for m, p in zip(moving, held["p"]):
            m.copy_(p.detach())

    return path(name, op, params, step, shapes)


def lars(momentum=0.9, decay=1e-4, trust=0.001, classic=True, nesterov=False, lr=0.1):
    """tinygrad's one formula of SGD and LARS."""
    held = {}

    def step(moving, grads, n):
        for k, (p, g) in enumerate(zip(moving, grads)):
            ratio = 1.0
            if trust:
                r1, r2 = p.norm(), g.norm()
                ratio = trust * r1 / (r2 + decay * r1) if r1 > 0 and r2 > 0 else 1.0
            g = g + decay * p
            if classic:
                g = g * ratio * lr
            if momentum:
                held[k] = momentum * held.get(k, torch.zeros_like(p)) + g
                g = g + momentum * held[k] if nesterov else held[k]
            if not classic:
                g = g * ratio * lr
            p -= g

    return step


def lamb(lr=0.1, betas=(0.9, 0.999), eps=1e-6, decay=0.0):
    held = {}

    def step(moving, grads, n):
        for k, (p, g) in enumerate(zip(moving, grads)):
            m, v = held.get(k, (torch.zeros_like(p), torch.zeros_like(p)))
            m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
            held[k] = (m, v)
            up = m / (1 - betas[0] ** (n + 1)) / ((v / (1 - betas[1] ** (n + 1))).sqrt() + eps) + decay * p
            r1, r2 = p.norm(), up.norm()
            p -= lr * (r1 / r2 if r1 > 0 and r2 > 0 else 1.0) * up

    return step


def optimisers():
    o = torch.optim
    for params in ({}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"momentum": 0.8, "weight_decay": 0.1}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.05}):
        yield by_torch(f"sgd/{'/'.join(params) or 'plain'}", "sgd", params, lambda p, q=params: o.SGD(p, 0.1, **q))
    yield path("sgd/classic", "sgd", {"momentum": 0.9, "classic": True}, lars(0.9, 0.0, 0.0, True))
    yield path("sgd/classic/nesterov", "sgd", {"momentum": 0.9, "classic": True, "nesterov": True, "weight_decay": 0.1}, lars(0.9, 0.1, 0.0, True, True))
    for params in ({}, {"weight_decay": 0.1}, {"betas": (0.8, 0.95), "eps": 1e-3}, {"amsgrad": True}, {"amsgrad": True, "weight_decay": 0.1}):
        yield by_torch(f"adam/{'/'.join(params) or 'plain'}", "adam", params, lambda p, q=params: o.Adam(p, 0.1, **q))
        yield by_torch(f"adamw/{'/'.join(params) or 'plain'}", "adamw", params, lambda p, q=params: o.AdamW(p, 0.1, **q))
    yield path("lars", "lars", {}, lars())
    yield path("lars/settings", "lars", {"momentum": 0.5, "weight_decay": 0.1, "trust": 0.05}, lars(0.5, 0.1, 0.05))
    yield path("lamb", "lamb", {}, lamb())
    yield path("lamb/settings", "lamb", {"weight_decay": 0.1, "betas": (0.8, 0.9), "eps": 1e-3}, lamb(0.1, (0.8, 0.9), 1e-3, 0.1))
    # PyTorch iterates in bf16; the formula is meant, so its own function runs in f64.
    source = inspect.getsource(muon._zeropower_via_newtonschulz)
    assert "torch.bfloat16" in source
    exec(source.replace("torch.bfloat16", "torch.float64"), muon.__dict__)
    for shape in ((4, 3), (3, 6)):
        for params in ({}, {"weight_decay": 0.1}, {"scale": "original"}, {"scale": "match_rms_adamw", "momentum": 0.8}, {"nesterov": False, "scale": "original"}, {"ns_steps": 3, "scale": "original"}):
            how = {"weight_decay": 0.0, **params, "adjust_lr_fn": params.get("scale", "original")}
            how.pop("scale", None)
            # Without a scale: a rate that undoes PyTorch's own.
            lr = 0.1 if "scale" in params else 0.1 / max(1, shape[0] / shape[1]) ** 0.5
            if "scale" not in params and "weight_decay" in params:
                how["weight_decay"] = params["weight_decay"] * 0.1 / lr
            yield by_torch(f"muon/{shape}/{'/'.join(params) or 'plain'}", "muon", params, lambda p, q=how, r=lr: o.Muon(p, r, **q), (shape,))
    yield from clips()


def clips():
    """Gradients before and after; "path" has the norm, then the gradients."""
    for p in (1.0, 2.0, 3.0, float("inf")):
        for bound in (0.5, 100.0):
            rows = [nn.Parameter(x) for x in starts("clip", SHAPES)]
            grads = gradients("clip", SHAPES)[0]
            for row, g in zip(rows, grads):
                row.grad = g.clone()
            norm = nn.utils.clip_grad_norm_(rows, bound, p)
            after = [t(r.grad) for r in rows] if p == 2.0 else []
            yield {"name": f"clip/{p}/{bound}", "op": "clip_norm", "params": {"p": str(p), "bound": bound}, "start": [], "grads": [[t(g) for g in grads]], "path": [[t(norm)] + after]}
    rows = [nn.Parameter(x) for x in starts("clip", SHAPES)]
    grads = gradients("clip", SHAPES)[0]
    for row, g in zip(rows, grads):
        row.grad = g.clone()
    nn.utils.clip_grad_value_(rows, 0.3)
    yield {"name": "clip/value", "op": "clip_value", "params": {"bound": 0.3}, "start": [], "grads": [[t(g) for g in grads]], "path": [[t(r.grad) for r in rows]]}


# Schedules

def rates(name, op, params, make, steps=14):
    optim = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.1)
    schedule, values = make(optim), []
    for _ in range(steps):
        values.append(optim.param_groups[0]["lr"])
        optim.step()
        schedule.step()
    return {"name": name, "op": op, "params": params, "rates": values}


def schedules():
    s = torch.optim.lr_scheduler
    yield rates("multi_step", "multi_step", {"milestones": [3, 7, 8], "gamma": 0.3}, lambda o: s.MultiStepLR(o, [3, 7, 8], 0.3))
    yield rates("step", "step", {"size": 3, "gamma": 0.5}, lambda o: s.StepLR(o, 3, 0.5))
    yield rates("exponential", "exponential", {"gamma": 0.9}, lambda o: s.ExponentialLR(o, 0.9))
    yield rates("cosine", "cosine", {"t_max": 5, "eta_min": 0.01}, lambda o: s.CosineAnnealingLR(o, 5, 0.01))
    yield rates("linear", "linear", {"start": 0.2, "end": 0.9, "steps": 6}, lambda o: s.LinearLR(o, 0.2, 0.9, 6))
    yield rates("polynomial", "polynomial", {"steps": 8, "power": 2.0}, lambda o: s.PolynomialLR(o, 8, 2.0))
    yield rates("polynomial/1", "polynomial", {"steps": 5, "power": 1.0}, lambda o: s.PolynomialLR(o, 5, 1.0))
    for anneal in ("cos", "linear"):
        for three in (False, True):
            how = {"max_lr": 0.4, "total_steps": 14, "pct_start": 0.3, "div_factor": 10.0, "final_div_factor": 100.0}
            make = lambda o: s.OneCycleLR(o, anneal_strategy=anneal, three_phase=three, cycle_momentum=False, **how)
            yield rates(f"one_cycle/{anneal}/{three}", "one_cycle", {**how, "anneal": anneal, "three_phase": three}, make, 13)
    chain = lambda o: s.SequentialLR(o, [s.LinearLR(o, 0.1, 1.0, 4), s.CosineAnnealingLR(o, 8, 0.0)], [4])
    yield rates("warmup and cosine", "warmup", {"start": 0.1, "steps": 4, "t_max": 8}, chain, 12)
    for mode in ("min", "max"):
        for how in ({}, {"patience": 1, "factor": 0.5}, {"patience": 1, "threshold": 0.3, "threshold_mode": "abs", "cooldown": 2}, {"patience": 0, "min_lr": 0.02, "factor": 0.3}):
            metrics = [round(float(v), 3) for v in rng("plateau").uniform(0.5, 1.5, 20)]
            optim = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.1)
            schedule, values = s.ReduceLROnPlateau(optim, mode=mode, **how), []
            for m in metrics:
                schedule.step(m)
                values.append(optim.param_groups[0]["lr"])
            yield {"name": f"plateau/{mode}/{'/'.join(how)}", "op": "plateau", "params": {"mode": mode, **how}, "rates": values, "metrics": metrics}


# Files

NAMES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64", torch.int32: "i32",
         torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool", torch.uint16: "u16",
         torch.float8_e4m3fn: "fp8e4m3", torch.float8_e5m2: "fp8e5m2"}


def tensors():
    grid = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4) - 7.5
    net = nn.Linear(3, 2)
    net.weight.data.copy_(grid[0, :2, :3])
    net.bias.data.copy_(grid[1, 0, :2])
    return net, {
        "plain": grid, "turned": grid.permute(2, 0, 1), "slice": grid[1, 1:], "column": grid[:, 1, 2], "steps": grid.reshape(-1)[1::5],
        "wide": grid[0, 0, :2].reshape(2, 1).expand(2, 3), "both": grid[:, :1].expand(2, 3, 4).permute(1, 2, 0), "scalar": torch.tensor(2.5),
        "none": torch.zeros(0, 3), "double": grid.double() / 3, "half": grid.half(), "brain": grid.bfloat16(), "long": grid.long(),
        "int": grid.int(), "short": grid.short(), "char": grid.char(), "byte": grid.abs().byte(), "flags": grid > 0,
        "parameter": nn.Parameter(grid[0]), "window": torch.arange(6.0).unfold(0, 3, 1),
    }


def records(file, prefix, found):
    for name, x in found.items():
        value = x.detach().float() if x.is_floating_point() and x.dtype != torch.float64 else x.detach()
        yield {"file": file, "name": prefix + name, **T(value.numpy(), NAMES[x.dtype]).json()}


class Evil:
    def __reduce__(self):
        return (__import__("os").system, ("echo pwned",))


def files():
    net, found = tensors()
    checkpoint = {"model": net.state_dict(), "more": {"list": [found["plain"], {"x": found["turned"]}]}, "all": found,
                  "epoch": 3, "lr": 0.1, "name": "net", "shape": torch.Size([2, 3]), "none": None, "flag": True, 7: found["half"], "large": -(2**40)}
    torch.save(checkpoint, FOLDER / "model.pt")
    torch.save(checkpoint, FOLDER / "legacy.pt", _use_new_zipfile_serialization=False)
    named = {f"all.{k}": v for k, v in found.items()}
    named.update({f"model.{k}": v for k, v in net.state_dict().items()})
    named.update({"more.list.0": found["plain"], "more.list.1.x": found["turned"], "7": found["half"]})
    lines = list(records("model.pt", "", named)) + list(records("legacy.pt", "", named))
    newer = {"e4m3": found["plain"].to(torch.float8_e4m3fn), "e5m2": found["plain"].to(torch.float8_e5m2), "word": (found["long"].abs() * 1000).to(torch.uint16)}
    torch.save(newer, FOLDER / "newer.pt")
    lines += records("newer.pt", "", newer)
    torch.save({"x": torch.zeros(2, dtype=torch.complex64)}, FOLDER / "complex.pt")
    torch.save({"x": Evil()}, FOLDER / "evil.pt")
    arrays = {k: v.detach().numpy() for k, v in found.items() if v.dtype != torch.bfloat16}
    arrays["folder/name"] = np.arange(3, dtype=np.uint32)
    arrays["turned"] = np.asfortranarray(arrays["plain"])
    np.savez(FOLDER / "arrays.npz", **arrays)
    np.savez_compressed(FOLDER / "packed.npz", **arrays)
    kinds = {v: k for k, v in {"f32": "float32", "f64": "float64", "f16": "float16", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8", "u32": "uint32", "bool": "bool"}.items()}
    for file in ("arrays.npz", "packed.npz"):
        lines += [{"file": file, "name": k, **T(v, kinds[str(v.dtype)]).json()} for k, v in arrays.items()]
    for name, x in {"plain.npy": arrays["plain"], "fortran.npy": np.asfortranarray(arrays["plain"]), "big.npy": arrays["plain"].astype(">f4"), "words.npy": arrays["long"].astype(">i2"), "one.npy": arrays["steps"], "flags.npy": arrays["flags"], "scalar.npy": np.array(2.5)}.items():
        np.save(FOLDER / name, x)
        plain = x.astype(x.dtype.newbyteorder("="))
        lines.append({"file": name, "name": "", **T(plain, kinds[str(plain.dtype)]).json()})
    return lines


def main():
    dtypes.self_check()
    FOLDER.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for name, make in {"layers.jsonl.gz": layers, "optim.jsonl.gz": optimisers, "rates.jsonl.gz": schedules, "files.jsonl.gz": files}.items():
        write(name, list(make()))
    print(f"{sum(f.stat().st_size for f in FOLDER.iterdir())} bytes in all")


if __name__ == "__main__":
    main()
