"""References for src/bench/stats.rs: quantiles by numpy, intervals and tests by scipy.

Writes src/bench/tests/statistics.json. Needs numpy and scipy: python3 tools/references/statistics.py
"""

import json
import pathlib

import numpy as np
import scipy
from scipy import stats

RNG = np.random.default_rng(20261126)
OUT = pathlib.Path(__file__).resolve().parents[2] / "src/bench/tests/statistics.json"


def samples():
    """Lists of times as they occur: normal, with a tail, two modes, ties, few."""
    yield "normal", RNG.normal(1000, 20, 400)
    yield "tail", 1000 + RNG.exponential(50, 1500)
    yield "modes", np.concatenate([RNG.normal(1000, 3, 150), RNG.normal(1100, 3, 90)])
    yield "ties", RNG.integers(40, 44, 200).astype(float)
    yield "few", RNG.normal(10, 1, 7)
    yield "two", np.array([1.0, 3.0])


def ranks(n, confidence):
    """Ranks (from 0) of the median's interval by order statistics, or None."""
    tail = (1 - confidence) / 2
    k = int(stats.binom.ppf(tail, n, 0.5))
    while k >= 0 and stats.binom.cdf(k, n, 0.5) > tail:
        k -= 1
    return None if k < 0 else [k, n - 1 - k]


def main():
    lists = []
    for name, x in samples():
        q = [float(v) for v in np.quantile(x, [0, 0.25, 0.5, 0.75, 0.99, 1])]
        boot = stats.bootstrap((x,), np.median, n_resamples=20000, method="percentile", rng=RNG).confidence_interval
        lists.append(
            {
                "name": name,
                "samples": [float(v) for v in x],
                "quantiles": q,
                "mean": float(np.mean(x)),
                "bootstrap": [float(boot.low), float(boot.high)],
                "ranks": ranks(len(x), 0.95),
            }
        )
    tables = [{"n": n, "ranks": [ranks(n, c) for c in (0.9, 0.95, 0.99)]} for n in (1, 2, 5, 6, 8, 9, 30, 101, 1000, 2000)]
    pairs = []
    for shift in (0.0, 0.5, 3.0):
        a, b = RNG.normal(10, 1, 9), RNG.normal(10 + shift, 1, 8)
        u = stats.mannwhitneyu(b, a).statistic
        pairs.append({"a": a.tolist(), "b": b.tolist(), "share": float(u / (len(a) * len(b)))})
    shifts = []
    for n, middle in ((8, 0.02), (12, 0.01), (12, 0.03), (24, 0.01), (48, 0.0)):
        x = RNG.normal(middle, 0.02, n)
        means = np.sort([(x[i] + x[j]) / 2 for i in range(n) for j in range(i, n)])
        p = stats.wilcoxon(x, method="exact").pvalue
        shifts.append({"differences": x.tolist(), "middle": float(np.median(means)), "p": float(p)})
    student = [float(stats.t.ppf(0.995, df)) for df in range(2, 13)]
    versions = {"numpy": np.__version__, "scipy": scipy.__version__}
    OUT.write_text(json.dumps({"made_by": versions, "lists": lists, "ranks": tables, "pairs": pairs, "shifts": shifts, "student": student}) + "\n")


if __name__ == "__main__":
    main()
