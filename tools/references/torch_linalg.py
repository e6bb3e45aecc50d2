"""Decompositions, normalisation, Newton-Schulz and hashes. Singular vectors have a sign of their own: cases of the SVD are about
what does not depend on it."""
import functools
import hashlib

import numpy as np
import torch

from autograd import cases_of, tensor
from case import Case, T, near, rng, sample

TOL = near(4e-6, 4e-6, "some tens of roundings at the matrix's scale")
SLOPE = near(4e-5, 4e-5, "gradients through differences of singular values or a triangle's inverse")


def cases():
    yield from decompositions()
    yield from norms()
    yield from hashes()


def signless(x):
    """U and V without their signs: the outer product of each pair, the gradient of which PyTorch accepts."""
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    return torch.einsum("...mk,...k,...kn->...mkn", u, torch.arange(1, s.shape[-1] + 1, dtype=s.dtype), v).sum(-2), s


def decompositions():
    for shape in ((3, 3), (5, 3), (2, 4), (1, 1), (1, 3), (4, 1), (2, 3, 3, 2), (6, 6)):
        x = sample("linalg", shape, "f32")
        name = "x".join(map(str, shape))
        k = min(shape[-2:])
        # PyTorch has no gradient of the wide form, and ours differs from nothing where the triangle is regular.
        grad = (0,) if shape[-2] >= shape[-1] else ()
        yield from cases_of(f"linalg/qr/{name}", "qr", [x], lambda x: tuple(torch.linalg.qr(x)), {}, ("f32", "f32"), TOL, grad, SLOPE)
        yield from cases_of(f"linalg/qr_complete/{name}", "qr_complete", [x], lambda x: tuple(torch.linalg.qr(x, "complete")), {}, ("f32", "f32"), TOL)
        yield from cases_of(f"linalg/singular values/{name}", "svdvals", [x], torch.linalg.svdvals, {}, ("f32",), TOL, (0,), SLOPE)
        yield from cases_of(f"linalg/svd/{name}", "svd_outer", [x], lambda x: signless(x)[0], {}, ("f32",), TOL, (0,), SLOPE)
        for full in (False, True):
            yield from cases_of(f"linalg/svd product/{name}/{full}", "svd_product", [x], lambda x: x, {"full": full}, ("f32",), TOL)
            u, v = (shape[-2], shape[-1]) if full else (k, k)
            lead = shape[:-2]
            yield from cases_of(f"linalg/svd orthogonal/{name}/{full}", "svd_orthogonal", [x], lambda x, u=u, v=v, lead=lead: (torch.eye(u).expand(lead + (u, u)).clone(), torch.eye(v).expand(lead + (v, v)).clone()), {"full": full}, ("f32", "f32"), TOL)
    x = T(np.outer([1.0, 2.0, -1.0], [3.0, 0.0, 1.0, 1.0]), "f32")
    yield from cases_of("linalg/singular values/rank 1", "svdvals", [x], torch.linalg.svdvals, {}, ("f32",), TOL)
    yield from cases_of("linalg/svd orthogonal/rank 1", "svd_orthogonal", [x], lambda x: (torch.eye(3), torch.eye(4)), {"full": True}, ("f32", "f32"), TOL)
    zero = T(np.zeros((3, 2)), "f32")
    yield from cases_of("linalg/svd orthogonal/zeros", "svd_orthogonal", [zero], lambda x: (torch.eye(3), torch.eye(2)), {"full": True}, ("f32", "f32"), TOL)
    yield from cases_of("linalg/qr/zeros", "qr", [zero], lambda x: tuple(torch.linalg.qr(x)), {}, ("f32", "f32"), TOL)
    wide = sample("linalg/f64", (5, 4), "f64")
    fine = near(4e-15, 4e-15, "some tens of roundings")
    yield from cases_of("linalg/qr/f64", "qr", [wide], lambda x: tuple(torch.linalg.qr(x)), {}, ("f64", "f64"), near(1e-14, 1e-14, "some tens of roundings"))
    yield from cases_of("linalg/singular values/f64", "svdvals", [wide], torch.linalg.svdvals, {}, ("f64",), fine)


def newton_schulz(x, steps, params):
    g = x / (x.square().sum((-2, -1), keepdim=True).sqrt() + 1e-7)
    g = g.mT if x.shape[-2] > x.shape[-1] else g
    for _ in range(steps):
        g = sum(p * functools.reduce(lambda y, _: g @ g.mT @ y, range(i), g) for i, p in enumerate(params))
    return g.mT if x.shape[-2] > x.shape[-1] else g


def norms():
    for shape in ((4, 4), (3, 5), (6, 2), (2, 3, 4)):
        x = sample("newton", shape, "f32")
        for steps, params in ((1, [2.0, -1.5, 0.5]), (5, [2.0, -1.5, 0.5]), (3, [1.5, -0.5])):
            f = lambda x, s=steps, p=params: newton_schulz(x, s, p)
            yield from cases_of(f"linalg/newton_schulz/{'x'.join(map(str, shape))}/{steps} by {len(params)}", "newton_schulz", [x], f, {"steps": steps, "params": params}, ("f32",), TOL, (0,), SLOPE)
    x = sample("normalize", (3, 4, 5), "f32")
    for p in (1.0, 2.0, 3.0, float("inf")):
        for axis in (1, 0, -1):
            f = lambda x, p=p, a=axis: torch.nn.functional.normalize(x, p, a)
            shown = "inf" if p == float("inf") else p
            yield from cases_of(f"linalg/normalize/{shown} along {axis}", "normalize", [x], f, {"p": shown, "axis": axis}, ("f32",), TOL, (0,), SLOPE)
    zero = T(np.array([[0.0, 3.0], [0.0, -4.0]]), "f32")
    yield from cases_of("linalg/normalize/zeros", "normalize", [zero], lambda x: torch.nn.functional.normalize(x, 2.0, 0), {"p": 2.0, "axis": 0}, ("f32",), TOL)


KINDS = {"sha3_224": 28, "sha3_256": 32, "sha3_384": 48, "sha3_512": 64, "shake_128": 16, "shake_256": 32}


def hashes():
    for kind, size in KINDS.items():
        for shape in ((0,), (3,), (71,), (72,), (135,), (136,), (137,), (167,), (168,), (2, 2, 200)):
            x = T(rng(f"hash{shape}").integers(0, 256, shape), "u8")
            rows = x.value.reshape(int(np.prod(shape[:-1])), shape[-1])
            make = lambda row: hashlib.new(kind, row.tobytes())
            digest = lambda h: h.digest(size) if kind.startswith("shake") else h.digest()
            out = np.array([list(digest(make(row))) for row in rows], np.uint8).reshape(shape[:-1] + (size,))
            yield Case(f"keccak/{kind}/{'x'.join(map(str, shape))}", "keccak", [x], [T(out, "u8")], {"bits": True}, {"kind": kind})
    x = sample("hash/f32", (2, 5), "f32")
    out = np.array([list(hashlib.sha3_256(row.astype("<f4").tobytes()).digest()) for row in x.value], np.uint8)
    yield Case("keccak/sha3_256/f32", "keccak", [x], [T(out, "u8")], {"bits": True}, {"kind": "sha3_256"})
