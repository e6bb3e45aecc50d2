"""Sorting, running extremes, searching, and the forms of known size of masked_select, nonzero and unique."""
import numpy as np
import torch

import dtypes as dt
from autograd import GRAD, cases_of, tensor
from case import Case, T, distinct, near, rng, sample

TYPES = dt.INTS + dt.FLOATS + ("bool",)
SPECIAL = [1.0, np.nan, -0.0, 0.0, np.inf, -np.inf, np.nan, 0.0, -0.0, -1.0, 1.0, np.inf]


def cases():
    yield from sorts()
    yield from argument_extremes()
    yield from running()
    yield from searches()
    yield from of_known_size()


def sort(axis, descending):
    def sorted_(x):
        # torch sorts neither u16 nor u32 nor u64.
        wide = x.to(torch.int64) if x.dtype in (torch.uint16, torch.uint32) else x
        if x.dtype == torch.uint64:
            order = np.argsort(x.numpy() if not descending else ~x.numpy(), axis=axis, kind="stable")
            return torch.from_numpy(np.take_along_axis(x.numpy(), order, axis)), torch.from_numpy(order)
        values, i = torch.sort(wide, dim=axis, descending=descending, stable=True)
        return values.to(x.dtype), i
    return sorted_


def sorts():
    for descending in (False, True):
        word = "descending" if descending else "ascending"
        for dtype in TYPES:
            x = sample("sort/types", (3, 21), dtype, -6, 6)
            yield from cases_of(f"sort/{word}/{dtype}", "sort", [x], sort(1, descending), {"dim": 1, "descending": descending}, (dtype, "i32"))
            if dtype in ("i8", "u8", "i32", "u32", "i64", "u64"):
                ends = T(np.array([0, 1, dt.largest(dtype), dt.smallest(dtype), dt.largest(dtype) // 2 + 1, dt.smallest(dtype) // 2, 1], object).astype(f"{dtype[0]}{int(dtype[1:]) // 8}"), dtype)
                yield from cases_of(f"sort/{word}/ends of {dtype}", "sort", [ends], sort(0, descending), {"dim": 0, "descending": descending}, (dtype, "i32"))
            elif dt.is_float(dtype):
                special = T(SPECIAL, dtype)
                yield from cases_of(f"sort/{word}/special {dtype}", "sort", [special], sort(0, descending), {"dim": 0, "descending": descending}, (dtype, "i32"), tol=SIGNLESS)
        for shape, axis in (((5, 4, 3), 0), ((5, 4, 3), -2), ((2, 7), 1), ((4, 1), 1), ((1,), 0), ((0,), 0), ((3, 0), 0), ((0, 3), 1), ((), 0), ((300,), 0), ((2, 131), -1)):
            x = distinct("sort/shapes", shape, "f32")
            name = f"sort/{word}/{'x'.join(map(str, shape)) or 'scalar'} by {axis}"
            yield from cases_of(name, "sort", [x], sort(axis, descending), {"dim": axis, "descending": descending}, ("f32", "i32"), grad=(0,))
    for k, axis, largest in ((3, 1, True), (3, 1, False), (1, 0, True), (17, 1, False), (0, 1, True), (4, -2, False)):
        x = distinct("topk", (4, 17), "f32")
        f = lambda x, k=k, a=axis, l=largest: torch.topk(x, k, a, l)
        yield from cases_of(f"topk/{k} by {axis} {'largest' if largest else 'smallest'}", "topk", [x], lambda x, f=f: tuple(f(x)), {"k": k, "dim": axis, "largest": largest}, ("f32", "i32"), grad=(0,))
    x = distinct("topk/long", (2, 300), "f32")
    yield from cases_of("topk/20 of 300", "topk", [x], lambda x: tuple(torch.topk(x, 20, 1)), {"k": 20, "dim": 1, "largest": True}, ("f32", "i32"), grad=(0,))


def argument_extremes():
    for dtype in ("i8", "u8", "i64", "f16", "f32", "f64"):
        x = sample("argument", (3, 4, 5), dtype, -3, 3)
        for op, f in (("argmax", np.argmax), ("argmin", np.argmin)):
            for axis in (None, 0, -1):
                for keep in (False, True):
                    out = f(x.value, axis=axis, keepdims=keep)
                    yield Case(f"order/{op}/{dtype}/axis {axis}{' kept' if keep else ''}", f"{op}_keep" if keep else f"{op}_all", [x], [T(out, "i32")], {"bits": True}, {"axis": axis})
    for op, f in (("argmax", np.argmax), ("argmin", np.argmin)):
        x = T([3.0, np.nan, 7.0, np.nan], "f32")
        yield Case(f"order/{op}/nan", f"{op}_all", [x], [T(f(x.value), "i32")], {"bits": True}, {"axis": None})


def running():
    x = distinct("cummax", (4, 7, 3), "f32")
    for axis in (0, 1, -1):
        for op, f in (("cummax", torch.cummax), ("cummin", torch.cummin)):
            yield from cases_of(f"order/{op}/axis {axis}", f"{op}_places", [x], lambda x, a=axis, f=f: tuple(f(x, a)), {"axis": axis}, ("f32", "i32"), grad=(0,))
        yield from cases_of(f"logcumsumexp/axis {axis}", "logcumsumexp", [x], lambda x, a=axis: torch.logcumsumexp(x, a), {"axis": axis}, tol=LOG, grad=(0,))
    for op, f in (("cummax", torch.cummax), ("cummin", torch.cummin)):
        for dtype in ("i8", "u8", "i64", "f16", "f64"):
            y = sample("cummax/types", (2, 9), dtype, -3, 3)
            yield from cases_of(f"order/{op}/{dtype}", f"{op}_places", [y], lambda x, f=f: tuple(f(x, 1)), {"axis": 1}, (dtype, "i32"))
        y = T(SPECIAL[::-1], "f32")
        # The sign of a running zero is not PyTorch's: only the places are compared.
        places = [case for case in cases_of(f"order/{op}/special", f"{op}_places", [y], lambda x, f=f: tuple(f(x, 0)), {"axis": 0}, ("f32", "i32"))][1]
        yield places
        y = distinct("cummax/long", (600,), "f32")
        yield from cases_of(f"order/{op}/600", f"{op}_places", [y], lambda x, f=f: tuple(f(x, 0)), {"axis": 0}, ("f32", "i32"))
    y = sample("logcumsumexp/far", (300,), "f32", -90, 90)
    f = lambda x: torch.logcumsumexp(x, 0)
    yield from cases_of("logcumsumexp/far apart", "logcumsumexp", [y], lambda x: f(x.double()), {"axis": 0}, tol=LOG, grad=(0,))
    for label, list_ in (("minus infinity", [-np.inf, -np.inf, 1.0, -np.inf, 2.0]), ("infinity", [1.0, np.inf, 2.0]), ("nan", [1.0, np.nan, 2.0])):
        yield from cases_of(f"logcumsumexp/{label}", "logcumsumexp", [T(list_, "f32")], f, {"axis": 0}, tol=LOG)


SIGNLESS = near(0, 0, "the interpreter reads an element as a sum, which loses the sign of a zero")
LOG = near(4e-6, 4e-6, "a log of a sum of exponentials")


def searches():
    for dtype in ("f32", "i32", "u8", "i64"):
        r = rng(f"search{dtype}")
        low = 0 if dtype[0] == "u" else -9
        line = T(np.sort(r.integers(low, 9, 13)), dtype)
        rows = T(np.sort(r.integers(low, 9, (3, 10)), axis=1), dtype)
        for right in (False, True):
            v, w = T(r.integers(low, 12, (2, 5)), dtype), T(r.integers(low, 12, (3, 4)), dtype)
            f = lambda a, b, r=right: torch.searchsorted(a, b, right=r)
            side = "right" if right else "left"
            yield from cases_of(f"searchsorted/{dtype}/{side}", "searchsorted", [line, v], f, {"right": right}, ("i32",))
            yield from cases_of(f"searchsorted/{dtype}/{side}/rows", "searchsorted", [rows, w], f, {"right": right}, ("i32",))
    for right in (False, True):
        f = lambda a, b, r=right: torch.searchsorted(a, b, right=r)
        yield from cases_of(f"searchsorted/nothing/{right}", "searchsorted", [T(np.zeros(0), "f32"), T([1.0, 2.0], "f32")], f, {"right": right}, ("i32",))


def of_known_size():
    for shape in ((7,), (3, 5), (2, 3, 4), (1,), (0, 3), ()):
        x = sample("known", shape, "f32")
        mask = sample("known/mask", shape, "bool")
        n = int(mask.value.sum())
        for size in sorted({n, n + 3, max(n - 2, 0)}):
            name = f"{'x'.join(map(str, shape)) or 'scalar'} to {size}"

            def select(x, m, size=size):
                y = torch.masked_select(x, m)[:size]
                return torch.cat([y, torch.full((size - y.numel(),), 2.5, dtype=y.dtype)])
            if size != n:
                yield from cases_of(f"masked_select_static/{name}", "masked_select_static", [x, mask], select, {"size": size, "fill": 2.5}, grad=(0,))
            else:
                yield from cases_of(f"masked_select_static/{name}", "masked_select_static", [x, mask], select, {"size": size, "fill": 2.5})

            def places(m, size=size):
                y = torch.nonzero(m)[:size]
                return torch.cat([y, torch.full((size - y.shape[0], m.ndim), -1)])
            yield from cases_of(f"nonzero_static/{name}", "nonzero_static", [mask], places, {"size": size, "fill": -1}, ("i32",))
    for dtype in ("i32", "u8", "i64", "f32", "bool"):
        for shape in ((20,), (3, 7), (1,), (0,)):
            x = sample("unique", shape, dtype, -4, 4)
            if dtype == "f32":
                x = T(np.round(x.value) + 0.0, dtype)
            values, inverse, counts = torch.unique(tensor(x), return_inverse=True, return_counts=True)
            n = values.numel()
            for size in (n, n + 2):
                fill = torch.zeros(size - n, dtype=values.dtype)

                def unique(x, v=values, i=inverse, c=counts, fill=fill):
                    return torch.cat([v, fill]), i, torch.cat([c, torch.zeros(fill.numel(), dtype=c.dtype)])
                yield from cases_of(f"unique_static/{dtype}/{'x'.join(map(str, shape))} to {size}", "unique_static", [x], unique, {"size": size, "fill": 0}, (dtype, "i32", "i32"))
