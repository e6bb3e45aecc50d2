"""24 of aiter's hand-written kernels for gfx942 on the software GPU, against numpy.

    python aiter.py DOORBELL FOLDER

FOLDER has the objects (hsa/gfx942 of the wheel). Eight are softmax with the k best experts: 4 or 12 tokens a workgroup,
128 or 256 experts, k of 6 or 8. Two are layer norms of a sum in bf16, one with a result of 8 bits and a scale a row.
Ten are attention (aiter_attention.py), four are mixtures of experts (aiter_experts.py).
Arguments are those of the wheel's csrc/py_itfs_cu; each has 16 bytes.
Leniently, for what strict mode finds in them:
- scalars that vector instructions have just written are read without the two wait states of the documents, and M0 by
  loads to the LDS without the one;
- layer norms and experts write to the LDS without a barrier after the others' reads;
- attention over whole sequences uses v160 to v235 with an accum_offset of 160, which are accumulators then;
- from 256 tokens on, paged attention reads the number of a block behind a wait that allows 24 loads in flight, where 23
  are younger than that number's;
- 16-bit experts begin the second layer with some weights whose loads they have not waited for: the wait counts atomic
  additions among the younger accesses, which only later steps have.
Exit code 1 if a value differs.
"""

import sys
import tempfile
from pathlib import Path

import aiter_attention
import aiter_experts
import numpy as np
from aiter_runs import Runs, between, bf16, from_halves, halves, padded, symbol


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

    runs.add(f"topksoftmax/{name}.co", symbol(name), [-(-tokens // rows)], padded(args), check)


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
            return between("results", from_halves(out).reshape(rows, columns), want, error, bf16)
        # Their code leaves the first 32 threads out of the maximum, and what is beyond it wraps around.
        seen = np.arange(columns) % 2048 >= 256
        step = np.abs(want * scale)[:, seen].max(1, keepdims=True) / 127
        off = np.abs(np.frombuffer(scales, np.float32).reshape(rows, 1) / step - 1).max()
        if off > 1e-5:
            return f"scales differ by up to {off} of them"
        got, slack = np.frombuffer(out, np.int8).reshape(rows, columns), error * scale / step + 127e-5
        low, high = np.trunc(want * scale / step - slack), np.trunc(want * scale / step + slack)
        wrong = (got - low) % 256 > high - low
        return f"{wrong.sum()} of {size} of the results differ" if wrong.any() else None

    name, kernel = ("layer_norm_qnt",) * 2 if quantized else ("layer_norm", "layer_norm_kernel_func")
    runs.add(f"{name}.co", kernel, [rows // 2], padded(args), check)


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
        aiter_attention.add(runs, rng)
        aiter_experts.add(runs, rng)
        return 0 if runs.run() else 1


sys.exit(main())
