"""Cases made by PyTorch: the value of a function in f64, and by its autograd the gradients for a random cotangent."""
import numpy as np
import torch

import dtypes as dt
from case import Case, T, near, rng

SCALARS = {"bool": torch.bool, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8,
           "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
           "fp8e4m3": torch.float8_e4m3fn, "fp8e5m2": torch.float8_e5m2, "fp8e4m3fnuz": torch.float8_e4m3fnuz,
           "fp8e5m2fnuz": torch.float8_e5m2fnuz}
F32 = near(1e-6, 1e-3 / 64, "a few roundings in f32 of what PyTorch computes in f64")
GRADIENT = near(4e-6, 1e-3 / 64, "a few roundings of the chain rule in f32")


def exact(x):
    """A PyTorch tensor of the dtype itself, with the bits of `x`."""
    bits = dt.to_bits(x.value, x.dtype)
    return torch.frombuffer(bytearray(bits), dtype=torch.uint8).view(SCALARS[x.dtype]).reshape(x.value.shape)


def stored(tensor, dtype):
    """A PyTorch tensor of the dtype -> an array with its bits."""
    flat = tensor.detach().contiguous().reshape(-1)
    return T(dt.from_bits(flat.view(torch.uint8).numpy().tobytes(), dtype).reshape(tuple(tensor.shape)), dtype)


def made(name, op, inputs, function, params=None, tol=F32, grad_tol=GRADIENT, dtype=None, grads=True):
    """A case of `function` on the inputs: floats in f64, all others as they are. Gradients of all float inputs, unless
    `grads` says for which of them (or False: of none)."""
    wants = [grads if isinstance(grads, bool) else grads[k] for k in range(len(inputs))] if inputs else []
    tensors = []
    for x, wanted in zip(inputs, wants):
        t = exact(x)
        t = t.double() if dt.is_float(x.dtype) else t
        tensors.append(t.requires_grad_(wanted) if t.is_floating_point() else t)
    out = function(*tensors)
    floating = out.is_floating_point()
    dtype = dtype or (inputs[0].dtype if floating else {v: k for k, v in SCALARS.items()}[out.dtype])
    value = T(out.detach().numpy(), dtype)
    grad = None
    if floating and out.requires_grad:
        of = T(rng(name + "/cotangent").uniform(-1, 1, tuple(out.shape)), dtype)
        into = [t for t in tensors if t.requires_grad]
        found = iter(torch.autograd.grad(out, into, exact(of).double(), allow_unused=True))
        slopes = []
        for x, t in zip(inputs, tensors):
            g = next(found) if t.requires_grad else None
            slopes.append(None if g is None else T(g.numpy(), x.dtype))
        grad = (of, slopes, grad_tol)
    return Case(name, op, inputs, [value], tol, params, grad)
