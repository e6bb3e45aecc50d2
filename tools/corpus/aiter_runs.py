"""Launches of aiter's kernels in one process, and 16-bit elements with the ways that kernels round to them."""

import json
import subprocess
from collections import namedtuple
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

    def add(self, object, kernel, grid, args, check, block=256):
        """A launch of `grid` workgroups; `check` takes the outputs' bytes and says what is wrong with them."""
        outs = [arg.split(":", 2)[2] for arg in args if arg.startswith("out:")]
        job = {"object": str(self.folder / object), "kernel": kernel, "grid": grid, "block": [block]}
        self.jobs.append(job | {"args": args})
        self.checks.append((object, check, outs))

    def run(self):
        list_file = self.dir / "jobs.json"
        list_file.write_text(json.dumps(self.jobs))
        command = [self.doorbell, "launch", "--device", "AMD:emu=gfx942", "--lenient", "--jobs", str(list_file)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            # A line a finding, of which there are thousands, and the reason.
            print("\n".join(done.stderr.splitlines()[-3:]))
            return False
        good = 0
        for object, check, outs in self.checks:
            wrong = check(*[Path(o).read_bytes() for o in outs])
            print(f"   {object}: {wrong or 'as numpy'}")
            good += not wrong
        print(f"   {good} of {len(self.checks)} as numpy")
        return good == len(self.checks)


def symbol(name):
    """The symbol of a kernel in namespace aiter."""
    return f"_ZN5aiter{len(name)}{name}E"


def bf16(values):
    """The f32 cut off to bf16, as numbers: the high half of the word."""
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def bf16_nearest(values):
    """The nearest bf16, halves away from zero: what aiter's kernels add to the word is half of a step."""
    return bf16((np.ascontiguousarray(values, np.float32).view(np.uint32) + 0x8000).view(np.float32))


def bf16_even(values):
    """The nearest bf16, halves to even: as atomic additions of the hardware round."""
    word = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return bf16((word + 0x7FFF + (word >> 16 & 1)).view(np.float32))


def f16_even(values):
    return np.asarray(values).astype(np.float16).astype(np.float32)


def f16_cut(values):
    near = np.asarray(values).astype(np.float16)
    return np.where(abs(near) > abs(values), np.nextafter(near, np.float16(0)), near).astype(np.float32)


def halves(values):
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()


def from_halves(data):
    return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)


def f16_bytes(values):
    return values.astype(np.float16).tobytes()


def from_f16(data):
    return np.frombuffer(data, np.float16).astype(np.float32)


# `unit` is how far the nearest number of the type may be, as a part of the number; cut off, it is twice as far.
Element = namedtuple("Element", "bytes numbers cut nearest even unit")
BF16 = Element(halves, from_halves, bf16, bf16_nearest, bf16_even, 2**-8)
F16 = Element(f16_bytes, from_f16, f16_cut, f16_even, f16_even, 2**-11)


def within(name, got, low, high):
    """What is wrong where `got` is not from `low` to `high`."""
    wrong = ~((got >= low) & (got <= high))
    return f"{wrong.sum()} of {wrong.size} of the {name} differ" if wrong.any() else None


def between(name, got, want, error, rounded):
    """What is wrong where `got` is no value that `want` gives within `error` of it, once it is rounded."""
    return within(name, got, rounded(want - error), rounded(want + error))
