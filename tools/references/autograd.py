"""Cases made by PyTorch: values by its functions, gradients by its autograd in f64."""
import numpy as np
import torch

import dtypes as dt
from case import BITS, Case, T, near, rng

_TORCH = {"bool": torch.bool, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8,
          "u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64, "f16": torch.float16, "bf16": torch.bfloat16,
          "f32": torch.float32, "f64": torch.float64}
GRAD = near(1e-6, 1e-5, "a few roundings of sums of f32")


def tensor(t):
    """A stored array as a torch tensor."""
    return torch.from_numpy(np.array(t.value, order="C")).to(_TORCH[t.dtype])


def stored(y, dtype):
    """A torch tensor as a stored array."""
    y = y.detach()
    return T((y.float() if y.dtype == torch.bfloat16 else y).numpy(), dtype)


def cases_of(name, op, inputs, f, params=None, dtypes=None, tol=BITS, grad=(), grad_tol=GRAD):
    """One case for each output of f(*torch tensors): its number is the parameter `part`. `dtypes` are those of the outputs (of
    the first input where it is None); `grad` lists the inputs that the first output has a gradient for."""
    outs = f(*[tensor(t) for t in inputs])
    outs = outs if isinstance(outs, tuple) else (outs,)
    for part, (out, dtype) in enumerate(zip(outs, dtypes or (None,) * len(outs))):
        named = name if len(outs) == 1 else f"{name}/part {part}"
        of = backward(named, inputs, f, grad, grad_tol) if grad and part == 0 else None
        shape = {"part": part} if len(outs) > 1 else {}
        yield Case(named, op, inputs, [stored(out, dtype or inputs[0].dtype)], tol, {**(params or {}), **shape}, of)


def backward(name, inputs, f, grad, tol):
    wide = [tensor(t).double().requires_grad_() if k in grad else tensor(t) for k, t in enumerate(inputs)]
    wide = [w.double() if k not in grad and w.is_floating_point() else w for k, w in enumerate(wide)]
    out = f(*wide)
    out = out[0] if isinstance(out, tuple) else out
    of = T(rng(name + "/cotangent").uniform(-1, 1, tuple(out.shape)), "f32")
    found = torch.autograd.grad(out, [wide[k] for k in grad], torch.from_numpy(of.value.astype(np.float64)))
    found = dict(zip(grad, found))
    return of, [T(found[k].numpy(), t.dtype) if k in grad else None for k, t in enumerate(inputs)], tol
