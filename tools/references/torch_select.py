"""What has a shape that depends on data: masks as indices, masked_select, nonzero, unique."""
import numpy as np
import torch

from autograd import cases_of
from case import T, sample
from torch_index import get


def cases():
    x = sample("select", (4, 3, 5), "f32")
    m3, m2, m1 = (sample(f"select/mask{len(s)}", s, "bool") for s in ((4, 3, 5), (4, 3), (5,)))
    none, i = T(np.zeros((4, 3), bool), "bool"), T([2, 0], "i64")
    two = T([True, False, True, False], "bool")
    for label, spec, picks in (
        ("all", [{"t": 1}], [m3]),
        ("two axes", [{"t": 1}], [m2]),
        ("last axis", ["...", {"t": 1}], [m1]),
        ("nothing", [{"t": 1}], [none]),
        ("beside ranges", [{"s": [1, 3]}, {"s": [None, None]}, {"t": 1}], [m1]),
        ("beside an int", [{"i": 1}, {"s": [None, None]}, {"t": 1}], [m1]),
        ("beside a tensor", [{"t": 1}, {"t": 2}], [two, i]),
        ("beside a tensor, apart", [{"t": 1}, {"s": [None, None]}, {"t": 2}], [two, i]),
        ("new axes", ["new", {"t": 1}, "new"], [m2]),
    ):
        yield from cases_of(f"select/get/{label}", "index", [x] + picks, get(spec), {"index": spec}, grad=(0,))
    for shape, mask in (((4, 3, 5), m3), ((4, 3, 5), m1), ((4, 3), none)):
        y = sample("select/masked", shape, "f32")
        yield from cases_of(f"masked_select/{shape} by {mask.value.shape}", "masked_select", [y, mask], torch.masked_select, grad=(0,))
    for dtype in ("bool", "i32", "f32"):
        for shape in ((7,), (3, 4), (), (0, 2), (2, 3, 2)):
            y = sample("nonzero", shape, dtype, -1, 1)
            y = T(np.round(y.value), dtype) if dtype == "f32" else y
            yield from cases_of(f"nonzero/{dtype}/{shape}", "nonzero", [y], torch.nonzero, dtypes=("i32",))
    for dtype in ("i8", "i64", "f32", "f64", "bool"):
        for shape in ((30,), (4, 5), (1,), (0,)):
            y = sample("unique/eager", shape, dtype, -3, 3)
            y = T(np.round(y.value) + 0.0, dtype) if dtype[0] == "f" else y
            f = lambda x: torch.unique(x, return_inverse=True, return_counts=True)
            yield from cases_of(f"unique/{dtype}/{shape}", "unique", [y], f, dtypes=(dtype, "i32", "i32"))
    y = T([1.0, np.nan, -0.0, 0.0, np.nan, 1.0, np.inf], "f32")
    yield from cases_of("unique/special", "unique", [y], lambda x: torch.unique(x, return_inverse=True, return_counts=True), dtypes=("f32", "i32", "i32"))
