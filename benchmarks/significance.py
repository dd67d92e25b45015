"""The paired bootstrap: its speed, and how often its intervals and p-values tell the truth.

    python benchmarks/significance.py             # 10,000 resamples of 512 queries, against scipy.stats.bootstrap
    python benchmarks/significance.py --simulate  # coverage and false positives on zero-inflated differences
    python benchmarks/significance.py --simulate --experiments 20000 --sizes 512 1000 --methods percentile

Simulated are two systems' scores as retrieval gives them: most queries are 0 in both. "alike" systems are
exchangeable; of "unlike" ones the first helps a few queries much and hurts more of them a little, by equal sums, so
that the differences are skewed; with "one relevant" document the scores are those of NDCG@10, 1 / log2(1 + rank) or 0.
False positives: how often p < .05 when the true means are equal. Coverage: how often the 95 % interval holds the true
difference when the first system is better. The test does not know the true difference, which is computed exactly.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

import numpy as np
import scipy.stats
from rich.console import Console
from rich.table import Table

from obliq_eval.significance import METHODS, RESAMPLES, invert, paired_bootstrap

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

SIZES = (40, 115, 254, 512, 1000)
ALLOWED = 0.1  # seconds
AT_ONCE = 500  # simulated experiments that share one set of resamples
Population = tuple["NDArray[np.float64]", "NDArray[np.float64]"]  # the possible differences, and how probable each is


def crossed(a: dict[float, float], b: dict[float, float], both_zero: float) -> Population:
    """Return the differences of two independent scores, most queries being beyond both systems."""
    pairs = [(x - y, p * q) for x, p in a.items() for y, q in b.items()]
    values = np.array([0.0, *(difference for difference, _ in pairs)])
    shares = np.array([both_zero, *((1 - both_zero) * share for _, share in pairs)])
    return values, shares / shares.sum()


def scores(found: float, values: NDArray[np.float64], decay: float) -> dict[float, float]:
    """Return the distribution of a score: 0, or one of these values, each so much rarer than the one before."""
    weights = decay ** np.arange(len(values))
    shares = found * weights / weights.sum()
    return {0.0: 1 - found} | dict(zip(values.tolist(), shares.tolist(), strict=True))


def populations() -> dict[str, tuple[Population, Population]]:
    """Return, by name, differences whose mean is 0, and differences with a true effect."""
    ranks = 1 / np.log2(np.arange(2, 12))  # NDCG@10 with one relevant document, at ranks 1 … 10
    grades = np.linspace(0.05, 1, 20)  # NDCG@10 with several
    weak, strong = scores(0.4, ranks, 0.85), scores(0.6, ranks, 0.85)
    few, more = scores(0.4, grades, 0.85), scores(0.6, grades, 0.85)
    gains = np.array([0.0, 0.5, -0.1])
    return {
        "one relevant": (crossed(weak, weak, 0.6), crossed(strong, weak, 0.6)),
        "several, alike": (crossed(few, few, 0.6), crossed(more, few, 0.6)),
        "unlike, skewed": (
            (gains, np.array([0.64, 0.06, 0.30])),
            (gains, np.array([0.65, 0.10, 0.25])),
        ),
    }


def resample_counts(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return how often each resample draws each query, shape (RESAMPLES, n)."""
    drawn = rng.integers(0, n, (RESAMPLES, n)) + np.arange(RESAMPLES)[:, None] * n
    return np.bincount(drawn.ravel(), minlength=RESAMPLES * n).reshape(RESAMPLES, n).astype(np.float64)


def simulate(laws: list[Population], n: int, experiments: int, methods: list[str]) -> list[dict[str, float]]:
    """Return, for each law, in what share of experiments each method, asked for 95 %, did not reject the true mean.

    Where that is 0, this is 1 minus the rate of false positives; else it is the coverage of the interval, for the
    randomisation test of the one that holds every shift it does not reject. The laws share their resamples.
    """
    rng = np.random.default_rng(n)
    kept = [dict.fromkeys((*methods, "randomisation"), 0) for _ in laws]
    for start in range(0, experiments, AT_ONCE):
        counts = resample_counts(n, rng)
        signs = 1.0 - 2.0 * rng.integers(0, 2, (RESAMPLES, n), dtype=np.int8)
        for (values, shares), tally in zip(laws, kept, strict=True):
            truth = round(float(values @ shares), 15)
            data = rng.choice(values, (min(AT_ONCE, experiments - start), n), p=shares)
            seen, swapped = np.abs((data - truth).sum(axis=1)), np.abs((data - truth) @ signs.T)
            p_swapped = ((swapped >= seen[:, None] - 1e-9).sum(axis=1) + 1) / (RESAMPLES + 1)
            tally["randomisation"] += int((p_swapped >= 0.05).sum())
            for means, differences in zip(data @ counts.T / n, data, strict=True):
                for method in methods:
                    low, high, p = invert(means, differences, 0.95, method)
                    tally[method] += p >= 0.05 if truth == 0 else low <= truth <= high
    return [{method: count / experiments for method, count in tally.items()} for tally in kept]


def show_simulation(experiments: int, sizes: list[int], methods: list[str]) -> None:
    """Print coverage and false positives by population, size and method, and their means over the populations."""
    columns = [*methods, "randomisation"]
    laws = populations()
    by_size = {n: simulate([law for both in laws.values() for law in both], n, experiments, methods) for n in sizes}
    rejected = {n: [[1 - r[m] for m in columns] for r in results[::2]] for n, results in by_size.items()}
    covered = {n: [[r[m] for m in columns] for r in results[1::2]] for n, results in by_size.items()}

    def show(title: str, cells: Callable[[int], NDArray[np.float64]]) -> None:
        table = Table(title=title)
        table.add_column("n", justify="right")
        for quantity in ("coverage", "false positives"):
            for method in columns:
                table.add_column(f"{quantity}\n{method}", justify="right")
        for n in sizes:
            table.add_row(str(n), *(f"{share:.4f}" for share in cells(n)))
        Console().print(table)

    error = (0.05 * 0.95 / experiments) ** 0.5
    Console().print(f"{experiments:,} experiments of {RESAMPLES:,} resamples each; standard error {error:.4f}")
    for i, (name, (null, _)) in enumerate(laws.items()):
        title = f"{name}: {null[1][null[0] == 0].sum():.0%} of differences are 0"
        show(title, lambda n, i=i: np.array([*covered[n][i], *rejected[n][i]]))  # type: ignore[misc]
    show("mean of the three", lambda n: np.concatenate([np.mean(covered[n], axis=0), np.mean(rejected[n], axis=0)]))


def best_of(repeats: int, work: Callable[[], object]) -> float:
    """Return the shortest of several runs, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def show_speed() -> None:
    """Print the seconds for 512 queries, and fail if they exceed what is allowed."""
    rng = np.random.default_rng(0)
    a, b = (rng.random(512) * (rng.random(512) < 0.4) for _ in range(2))

    def scipy_way(method: str) -> object:
        return scipy.stats.bootstrap((a - b,), np.mean, n_resamples=RESAMPLES, method=method, rng=0)

    table = Table(title=f"{RESAMPLES:,} resamples of 512 queries, interval and p")
    for column in ("method", "obliq, seconds", "scipy.stats.bootstrap, seconds", "scipy ÷ obliq"):
        table.add_column(column, justify="left" if column == "method" else "right")
    allowed = True
    for method in METHODS:
        ours = best_of(7, lambda method=method: paired_bootstrap(a, b, method=method))  # type: ignore[misc]
        theirs = best_of(3, lambda method=method: scipy_way(method))  # type: ignore[misc]
        table.add_row(method, f"{ours:.3f}", f"{theirs:.3f}", f"{theirs / ours:.1f}")
        allowed = allowed and ours <= ALLOWED
    Console().print(table)
    if not allowed:
        raise SystemExit(f"more than the {ALLOWED} s that are allowed")


def main() -> None:
    """Print one table of speed, or the tables of the simulation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--experiments", type=int, default=3000)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    if options.simulate:
        show_simulation(options.experiments, options.sizes, options.methods)
    else:
        show_speed()


if __name__ == "__main__":
    main()
