"""Writes the numpy-made references under tests/data/ops; `--check` compares what is there instead (inputs alike, outputs within
the stored tolerance: another machine's numpy may differ in the last bit of a transcendental).

Needs only numpy. Deterministic: every case has a random stream of its own, seeded by its name.
"""
import gzip
import io
import json
import pathlib
import sys

import numpy as np

import binary
import casts
import creation
import dtypes
import linear
import loss
import movement
import reduce
import unary

GROUPS = {"unary": unary, "binary": binary, "casts": casts, "reduce": reduce, "linear": linear, "movement": movement, "loss": loss, "creation": creation}
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/data/ops"
MAX_BYTES = 3 << 20


def lines_of(group):
    lines, names = [], set()
    for case in GROUPS[group].cases():
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


def main(arguments):
    if arguments not in ([], ["--check"]):
        sys.exit(f"make.py: unknown arguments {arguments}; valid: --check")
    dtypes.self_check()
    FOLDER.mkdir(parents=True, exist_ok=True)
    total, faults = 0, []
    for group in GROUPS:
        lines = lines_of(group)
        data = packed(lines)
        total += len(data)
        print(f"{group:9} {len(lines):5} cases {len(data):8} bytes")
        if arguments:
            faults += [f"{group}: {fault}" for fault in check(group, lines)]
        else:
            (FOLDER / f"{group}.jsonl.gz").write_bytes(data)
    print(f"{total} bytes in all, at most {MAX_BYTES}")
    if faults or total > MAX_BYTES:
        sys.exit("\n".join(["make.py: the stored references differ or are too large"] + faults[:20]))


if __name__ == "__main__":
    main(sys.argv[1:])
