"""How much of a score is the order, and how much is what the pool holds (paper, Appendix M, Table M.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from obliq_eval.errors import UserError
from obliq_eval.metrics import score
from obliq_eval.significance import RESAMPLES, check_settings, check_whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from obliq_eval.records import Judgments, Run

CUT = 10  # the measure is NDCG@10
CHUNK = 1000  # resamples at a time, which bounds the memory: 1,000 x 512 queries are 4 MB
MOST_GRADES = 1 << 20  # grades in random order at a time, 8 MB
MOST_SHUFFLES = 100_000
MOST_RESAMPLES = 1_000_000

COLUMNS = (
    "system", "queries", "pool", "NDCG@10", "shuffled", "lowest shuffle", "highest shuffle", "ratio", "low", "high",
)  # fmt: skip


@dataclass(frozen=True)
class Shuffle:
    """A ranking against random orders of the same documents.

    Args:
        real: Mean NDCG@10 of the run.
        shuffled: Mean NDCG@10 over all shuffles.
        lowest: Mean NDCG@10 of the worst single shuffle.
        highest: Mean NDCG@10 of the best single shuffle.
        ratio: `real / shuffled`; None where no pool holds a relevant document.
        low: Lower end of the ratio's interval; None where it is not finite.
        high: Upper end of the ratio's interval; None where it is not finite.
        level: Coverage of the interval: percentile bootstrap over queries, both means from the same resample.
        n: How many queries.
        pool: How many documents of each answer were shuffled.
        shuffles: How many random orders.
        resamples: How many resamples of the queries.
        seed: The seed of both.
    """

    real: float
    shuffled: float
    lowest: float
    highest: float
    ratio: float | None
    low: float | None
    high: float | None
    level: float
    n: int
    pool: int
    shuffles: int
    resamples: int
    seed: int

    def row(self, system: str) -> list[object]:
        """Return one row under `COLUMNS`."""
        return [
            system, self.n, self.pool, self.real, self.shuffled, self.lowest, self.highest,
            self.ratio, self.low, self.high,
        ]  # fmt: skip


def check(pool: int, shuffles: int, seed: int, resamples: int = RESAMPLES, level: float = 0.95) -> None:
    """Refuse settings of `shuffle` before anything is read or computed.

    Raises:
        UserError: If one is out of range.
    """
    check_whole("the pool", pool, 1)
    check_whole("the number of shuffles", shuffles, 1, MOST_SHUFFLES)
    check_whole("the number of resamples", resamples, 1, MOST_RESAMPLES)
    check_settings(resamples, seed, level)


def shuffle(
    run: Run,
    judgments: Judgments,
    *,
    pool: int = 100,
    shuffles: int = 200,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Shuffle:
    """Shuffle the first `pool` documents of every answer many times, and compare NDCG@10 with the real order's.

    Args:
        run: The run.
        judgments: The judgments.
        pool: How many documents of each answer are shuffled; a shorter answer is shuffled whole, and what a longer one
            holds below the pool stays at its ranks.
        shuffles: How many random orders, at most `MOST_SHUFFLES`.
        seed: Seed of the shuffles and of the bootstrap, 0 or more.
        resamples: Resamples of the queries for the interval of the ratio, at most `MOST_RESAMPLES`.
        level: Coverage of the interval, between 0 and 1.

    Raises:
        UserError: If there are fewer than two queries, no query has a relevant document, or a setting is out of range.
    """
    check(pool, shuffles, seed, resamples, level)
    panel = score(run, judgments, [f"ndcg@{CUT}"])
    if len(panel.queries) < 2:
        raise UserError("an interval over one query says nothing; it needs at least two")
    random = np.random.default_rng(seed)
    real = panel.values[f"ndcg@{CUT}"]
    shuffled = np.empty(len(real))
    totals = np.zeros(1 + shuffles)  # the real order's, then each shuffle's, summed alike so that equals stay equal
    for i, query in enumerate(panel.queries):
        values = _one_query(run, judgments, query, float(real[i]), pool, shuffles, random)
        shuffled[i] = _mean(values)
        totals += np.concatenate(([real[i]], values))
    low, high = _ratio_interval(real, shuffled, random, resamples, level)
    real_mean, means = float(totals[0] / len(real)), totals[1:] / len(real)
    mean = _mean(means)
    return Shuffle(
        real=real_mean,
        shuffled=mean,
        lowest=float(means.min()),
        highest=float(means.max()),
        ratio=real_mean / mean if mean > 0 else None,
        low=low,
        high=high,
        level=level,
        n=len(panel.queries),
        pool=min(pool, run.depth),
        shuffles=shuffles,
        resamples=resamples,
        seed=seed,
    )


def _one_query(
    run: Run, judgments: Judgments, query: str, real: float, pool: int, shuffles: int, random: np.random.Generator
) -> NDArray[np.float64]:
    """Return NDCG@10 of each random order of one answer, float64 of shape `(shuffles,)`.

    An order that gains as much as the real one has the very value `real`, whatever the rounding of another sum.
    """
    documents = run.rankings[query].documents[: max(pool, CUT)] if query in run.rankings else ()
    grades = judgments.grades[query]
    found = np.array([max(grades.get(document, 0), 0) for document in documents], dtype=np.float64)
    head, tail = found[:pool], found[pool:]
    if not head.any():
        return np.full(shuffles, real)
    discounts = 1 / np.log2(np.arange(2, CUT + 2))
    ideal = np.array(sorted((g for g in grades.values() if g > 0), reverse=True)[:CUT], dtype=np.float64)

    def gain(orders: NDArray[np.float64]) -> NDArray[np.float64]:
        top = np.ascontiguousarray(orders[:, :CUT])
        summed: NDArray[np.float64] = (top * discounts[: top.shape[1]]).sum(axis=1)
        return summed

    at_once = max(1, MOST_GRADES // len(found))
    gained = np.empty(shuffles)
    for start in range(0, shuffles, at_once):
        rows = min(at_once, shuffles - start)
        heads = random.permuted(np.tile(head, (rows, 1)), axis=1)
        gained[start : start + rows] = gain(np.hstack([heads, np.tile(tail, (rows, 1))]))
    return np.where(gained == gain(found[np.newaxis])[0], real, gained / (ideal @ discounts[: len(ideal)]))


def _mean(values: NDArray[np.float64]) -> float:
    """Return the mean, which rounding does not take beyond the lowest or the highest value."""
    return float(np.clip(values.mean(), values.min(), values.max()))


def _ratio_interval(
    real: NDArray[np.float64], shuffled: NDArray[np.float64], random: np.random.Generator, resamples: int, level: float
) -> tuple[float | None, float | None]:
    """Return the percentile interval of the ratio of two means over the same resampled queries.

    A resample in which the shuffled mean is 0 has an infinite ratio, or 1 where both are 0 and the order changes
    nothing; order statistics (no interpolation) keep infinity in its place.
    """
    ratios = np.empty(resamples)
    for start in range(0, resamples, CHUNK):
        drawn = random.integers(len(real), size=(min(CHUNK, resamples - start), len(real)))
        above, below = real[drawn].mean(axis=1), shuffled[drawn].mean(axis=1)
        infinite = np.where(above > 0, np.inf, 1.0)
        ratios[start : start + len(drawn)] = np.divide(above, below, out=infinite, where=below > 0)
    ends = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
    low, high = (float(end) if np.isfinite(end) else None for end in ends)
    return low, high
