"""Ten of aiter's hand-written kernels for gfx942 on the software GPU, against numpy.

    python aiter.py DOORBELL FOLDER

FOLDER has the objects (hsa/gfx942 of the wheel). Eight are softmax with the k best experts: 4 or 12 tokens a workgroup,
128 or 256 experts, k of 6 or 8. Two are layer norms of a sum in bf16, one with a result of 8 bits and a scale a row.
Arguments are those of the wheel's csrc/py_itfs_cu; each has 16 bytes.
Leniently: the kernels read scalars that vector instructions have just written without the two wait states of the
documents, and the layer norms write to the LDS without a barrier after the others' reads. Exit code 1 if a value
differs.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np


def padded(args):
    """Each argument in 16 bytes."""
    out = []
    for arg in args:
        out.append(arg)
        out += ["u64:0"] if arg.startswith(("in:", "out:", "null")) else ["u32:0"] * 3
    return out


class Runs:
    """Launches in one process, and what is wrong."""

    def __init__(self, doorbell, folder, dir):
        self.doorbell, self.folder, self.dir = doorbell, folder, dir
        self.jobs, self.checks, self.files = [], [], 0

    def path(self):
        self.files += 1
        return self.dir / str(self.files)

    def file(self, data):
        path = self.path()
        path.write_bytes(data)
        return f"in:{path}"

    def out(self, bytes):
        return f"out:{bytes}:{self.path()}"

    def add(self, object, kernel, groups, args, check):
        outs = [arg.split(":", 2)[2] for arg in args if arg.startswith("out:")]
        job = {"object": str(self.folder / object), "kernel": kernel, "grid": [groups], "block": [256]}
        self.jobs.append(job | {"args": padded(args)})
        self.checks.append((object, check, outs))

    def run(self):
        list_file = self.dir / "jobs.json"
        list_file.write_text(json.dumps(self.jobs))
        command = [self.doorbell, "launch", "--device", "AMD:emu=gfx942", "--lenient", "--jobs", str(list_file)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            # A line a hazard, of which there are hundreds, and the reason.
            print("\n".join(done.stderr.splitlines()[-3:]))
            return False
        good = True
        for object, check, outs in self.checks:
            wrong = check(*[Path(o).read_bytes() for o in outs])
            print(f"   {object}: {wrong or 'as numpy'}")
            good &= not wrong
        return good


def softmax(runs, rng, rows, experts, k):
    tokens = 2 * rows + 3
    gates = rng.standard_normal((tokens, experts)).astype(np.float32)
    name = f"topksoftmax_{rows}x{experts}x{k}"
    args = [
        runs.out(tokens * k * 4),
        runs.out(tokens * k * 4),
        runs.file(gates.tobytes()),
        f"u32:{tokens}",
        f"u32:{experts}",
        f"u32:{k}",
        "u32:1",
        f"u32:{4 * k}",
    ]
    e = np.exp(gates.astype(np.float64) - gates.max(1, keepdims=True))
    soft = e / e.sum(1, keepdims=True)
    best = np.argsort(-soft, axis=1, kind="stable")[:, :k]
    want = np.take_along_axis(soft, best, 1)
    want /= want.sum(1, keepdims=True)

    def check(indices, weights):
        got = np.frombuffer(indices, np.int32).reshape(tokens, k)
        if (got != best).any():
            return f"{(got != best).sum()} of {got.size} indices differ"
        error = np.abs(np.frombuffer(weights, np.float32).reshape(tokens, k) - want).max()
        return None if error < 2e-6 else f"weights differ by up to {error}"

    runs.add(f"topksoftmax/{name}.co", f"_ZN5aiter{len(name)}{name}E", -(-tokens // rows), args, check)


def bf16(values):
    """The f32 cut off to bf16, as numbers: these kernels take the high half of the word."""
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def halves(values):
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()


def between(name, got, want, error, cut):
    """What is wrong where `got` is no value that `want` gives within `error` of it, once cut off towards zero."""
    low, high = cut(want - error), cut(want + error)
    wrong = (got < low) | (got > high)
    return f"{wrong.sum()} of {wrong.size} of the {name} differ" if wrong.any() else None


def layer_norm(runs, rng, rows, quantized):
    columns, epsilon = 8192, 1e-5  # The kernels divide by this number of columns whatever they are told.
    draw = lambda *shape: bf16(rng.standard_normal(shape))
    x, residual, weight, bias = draw(rows, columns), draw(rows, columns), draw(columns), draw(columns)
    scale = rng.uniform(0.5, 2, columns).astype(np.float32)
    size = rows * columns
    args = [
        runs.out(size * (1 if quantized else 2)),
        runs.file(halves(x)),
        runs.file(halves(weight)),
        runs.file(halves(bias)),
        f"f32:{epsilon}",
        f"u32:{rows}",
        f"u32:{columns}",
        runs.out(size * 2),
        runs.file(halves(residual)),
    ]
    args += [runs.out(rows * 4), runs.file(scale.tobytes())] if quantized else ["null", "null"]

    sums = x + residual
    wide = sums.astype(np.float64)
    # Their code computes the mean and reads it nowhere: what is divided is not centred.
    scaled = wide / np.sqrt((wide**2).mean(1, keepdims=True) + epsilon) * weight
    # Sums and root have 24 bits and less; the sum with the bias may cancel.
    want, error = scaled + bias, 4e-6 * (np.abs(scaled) + np.abs(bias) + 1)

    def check(out, sum_out, scales=None):
        got = np.frombuffer(sum_out, np.uint16).reshape(rows, columns)
        wrong = (got != np.frombuffer(halves(sums), np.uint16).reshape(got.shape)).sum()
        if wrong:
            return f"{wrong} of {size} sums differ"
        if not quantized:
            got = (np.frombuffer(out, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(rows, columns)
            return between("results", got, want, error, bf16)
        step = np.abs(want * scale).max(1, keepdims=True) / 127
        off = np.abs(np.frombuffer(scales, np.float32).reshape(rows, 1) / step - 1).max()
        if off > 1e-5:
            return f"scales differ by up to {off} of them"
        got = np.frombuffer(out, np.int8).reshape(rows, columns)
        return between("results", got, want * scale / step, error * scale / step + 127e-5, np.trunc)

    name, kernel = ("layer_norm_qnt",) * 2 if quantized else ("layer_norm", "layer_norm_kernel_func")
    runs.add(f"{name}.co", kernel, rows // 2, args, check)


def main():
    doorbell, folder = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]).resolve()
    rng = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as dir:
        runs = Runs(doorbell, folder, Path(dir))
        for rows in (4, 12):
            for experts in (128, 256):
                for k in (6, 8):
                    softmax(runs, rng, rows, experts, k)
        for quantized in (False, True):
            layer_norm(runs, rng, 6, quantized)
        return 0 if runs.run() else 1


sys.exit(main())
