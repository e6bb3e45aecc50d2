"""Writes the references under tests/data/ops; `--check` compares what is there instead (inputs alike, outputs within the stored
tolerance: another machine may differ in the last bit of a transcendental). `make.py [--check] [group ...]`: those groups, or all
that can be made here.

The groups of NUMPY need only numpy; those of TORCH are made by PyTorch's own functions and its autograd (`torch_*.py`), and
are left out with a word where PyTorch is not installed. Deterministic: every case has a random stream of its own, seeded by its
name.
"""
import gzip
import importlib
import importlib.util
import io
import json
import pathlib
import sys

import numpy as np

import dtypes

# Each is the module of its name.
NUMPY = ("unary", "binary", "casts", "reduce", "linear", "movement", "loss", "creation")
# Each is the module of its name after "torch_".
TORCH = ("conv", "index", "order", "select", "dtypes", "names", "losses", "linalg")
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/data/ops"
MAX_BYTES = 20 << 20


def lines_of(group):
    module = importlib.import_module(group if group in NUMPY else f"torch_{group}")
    lines, names = [], set()
    for case in module.cases():
        assert case.name not in names, f"two cases are called {case.name}"
        names.add(case.name)
        lines.append(case.json())
    return lines


def packed(lines):
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=9, mtime=0) as file:
        file.write(("\n".join(lines) + "\n").encode())
    return out.getvalue()


def array(t):
    return dtypes.from_bits(bytes.fromhex(t["x"]), t["d"]).reshape(t["s"])


def same(stored, made, tol):
    if {k: v for k, v in stored.items() if k != "x"} != {k: v for k, v in made.items() if k != "x"}:
        return False
    if stored["x"] == made["x"] or tol.get("bits"):
        return stored["x"] == made["x"]
    a, b = array(stored).astype(np.float64), array(made).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return bool(np.all((np.abs(a - b) <= tol["abs"] + tol["rel"] * np.abs(a)) | (a == b) | (np.isnan(a) & np.isnan(b))))


def check(group, lines):
    with gzip.open(FOLDER / f"{group}.jsonl.gz", "rt") as file:
        stored = [json.loads(line) for line in file]
    made = [json.loads(line) for line in lines]
    faults = [] if len(stored) == len(made) else [f"{len(stored)} stored cases, {len(made)} made"]
    for a, b in zip(stored, made):
        alike = all(a[k] == b[k] for k in ("name", "op", "params", "in", "tol")) and len(a["out"]) == len(b["out"])
        if not alike or not all(same(x, y, a["tol"]) for x, y in zip(a["out"], b["out"])):
            faults.append(a["name"])
    return faults


def wanted(arguments):
    """The groups to make, and whether they are only compared."""
    check, groups = "--check" in arguments, [a for a in arguments if a != "--check"]
    unknown = [g for g in groups if g not in NUMPY + TORCH]
    if unknown:
        sys.exit(f"make.py: unknown arguments {unknown}; valid: --check {' '.join(NUMPY + TORCH)}")
    groups = groups or NUMPY + TORCH
    if importlib.util.find_spec("torch") is None:
        print(f"not made here, PyTorch is not installed: {[g for g in groups if g in TORCH]}")
        groups = [g for g in groups if g in NUMPY]
    return check, groups


def main(arguments):
    compare, groups = wanted(arguments)
    dtypes.self_check()
    FOLDER.mkdir(parents=True, exist_ok=True)
    faults = []
    for group in groups:
        lines = lines_of(group)
        data = packed(lines)
        print(f"{group:9} {len(lines):5} cases {len(data):8} bytes")
        if compare:
            faults += [f"{group}: {fault}" for fault in check(group, lines)]
        else:
            (FOLDER / f"{group}.jsonl.gz").write_bytes(data)
    total = sum(file.stat().st_size for file in FOLDER.glob("*.jsonl.gz"))
    print(f"{total} bytes in all, at most {MAX_BYTES}")
    if faults or total > MAX_BYTES:
        sys.exit("\n".join(["make.py: the stored references differ or are too large"] + faults[:20]))


if __name__ == "__main__":
    main(sys.argv[1:])
