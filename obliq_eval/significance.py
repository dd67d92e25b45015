"""Intervals and paired tests over queries: bootstrap, randomisation, Holm's adjustment.

The query is the unit that is resampled. A p-value comes from inverting the interval of the same resamples, so that the
two cannot contradict each other: p < .05 exactly where the 95 % interval leaves out 0.

Why the percentile interval is the default: simulated on differences as retrieval gives them, 64-75 % of them 0
(benchmarks/significance.py --simulate; 3,000 experiments in each of three populations, standard error .004):

    n                                     40           115           254           512          1000
    coverage, percentile             .914-.922    .943-.948    .938-.944    .950-.956    .948-.952
    coverage, BCa                    .879-.960    .936-.951    .938-.948    .947-.955    .948-.951
    false positives, percentile      .086-.097    .052-.056    .055-.064    .051-.061    .044-.051
    false positives, BCa             .109-.136    .043-.075    .051-.072    .053-.057    .044-.054
    false positives, randomisation   .036-.096    .040-.059    .048-.060    .048-.062    .045-.051

With 20,000 experiments the percentile method's coverage is .946-.949 and its false positives .050-.053 at n = 512 and
1,000. BCa is better only where differences are skewed, and worse where systems are alike, most of all at n = 40. The
randomisation test keeps its rate for exchangeable systems, but gives no interval, and does no better on skewed ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from obliq_eval.errors import UserError, near
from obliq_eval.metrics import _choose_numba_cache, _package_folder, _ranx_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

METHODS = ("percentile", "bca")
DEFAULT_METHOD = "percentile"
NAMES = {"percentile": "percentile", "bca": "BCa"}
RESAMPLES = 10_000
RANX_TESTS = ("student", "fisher")
SMALL = 100  # queries; an interval over fewer is not shown without a word
# 95 % intervals at n queries: how often they held the true difference, and how often p < .05 where there was none.
SIMULATED = {
    "percentile": {40: (0.919, 0.090), 115: (0.945, 0.054)},
    "bca": {40: (0.911, 0.123), 115: (0.942, 0.061)},
}
SIMULATED_EXPERIMENTS = 9_000  # each, 3,000 in each of three populations
_DRAWN_AT_ONCE = 1 << 15  # numbers; keeps memory small at any n, and the work within the processor's cache


@dataclass(frozen=True)
class Interval:
    """A mean over queries with its bootstrap interval.

    Args:
        mean: The mean of the values.
        low: Lower end of the interval.
        high: Upper end of the interval.
        n: How many queries.
        resamples: How many times n queries were drawn with replacement.
        seed: Where the draws start; equal n and seed give equal draws, whatever the values.
        level: Nominal coverage of the interval, .95 for a 95 % interval.
        method: One of `METHODS`.
    """

    mean: float
    low: float
    high: float
    n: int
    resamples: int
    seed: int
    level: float
    method: str


@dataclass(frozen=True)
class PairedTest:
    """The difference of two systems' means over the same queries, tested by the paired bootstrap.

    Args:
        difference: Mean of the first system minus mean of the second.
        low: Lower end of the interval of the difference.
        high: Upper end of the interval of the difference.
        p: Two-sided p-value of "no difference", not adjusted for other comparisons.
        n: How many queries.
        resamples: How many times n queries were drawn with replacement.
        seed: Where the draws start; equal n and seed give equal draws, whatever the values.
        level: Nominal coverage of the interval, .95 for a 95 % interval.
        method: One of `METHODS`.
    """

    difference: float
    low: float
    high: float
    p: float
    n: int
    resamples: int
    seed: int
    level: float
    method: str


def mean_interval(
    values: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0, level: float = 0.95, method: str = DEFAULT_METHOD
) -> Interval:
    """Return the mean of one system's values with its bootstrap interval.

    Args:
        values: One number per query, shape (n,); an unanswered query counts as 0.
        resamples: How many resamples to draw.
        seed: Seed of the draws.
        level: Nominal coverage.
        method: `"percentile"` or `"bca"`.

    Raises:
        UserError: If there are fewer than two queries, a value is not finite, or a setting is out of range.
    """
    checked = _checked(values, "the values")
    low, high, _ = _bootstrap(checked, resamples, seed, level, method)
    return Interval(float(checked.mean()), low, high, len(checked), resamples, seed, level, method)


def paired_bootstrap(
    a: ArrayLike,
    b: ArrayLike,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = 0.95,
    method: str = DEFAULT_METHOD,
) -> PairedTest:
    """Return mean(a) - mean(b) with its interval and p-value, resampling the queries that both share.

    The interval and p are those of `invert`. Identical systems give 0, [0, 0] and p = 1.

    Args:
        a: One number per query, shape (n,).
        b: The other system's numbers for the same queries in the same order, shape (n,).
        resamples: How many resamples to draw.
        seed: Seed of the draws.
        level: Nominal coverage.
        method: `"percentile"` or `"bca"`.

    Raises:
        UserError: If the shapes differ, there are fewer than two queries, a value is not finite, or a setting is out
            of range.
    """
    differences = _differences(a, b)
    low, high, p = _bootstrap(differences, resamples, seed, level, method)
    mean = float(differences.mean())
    return PairedTest(mean, low, high, p, len(differences), resamples, seed, level, method)


def invert(
    resampled: NDArray[np.float64], values: NDArray[np.float64], level: float, method: str
) -> tuple[float, float, float]:
    """Return the interval's two ends, and the two-sided p-value of a mean of 0, from resampled means.

    Of B resampled means, the c lowest are the tail below the c-th, whose probability under the percentile method is
    c / (B + 1). The lower end is the highest resampled mean with a tail below (1 - level) / 2. With L means at or below
    0, the tail of c = L + 1 is the least level at which the lower end would not exceed 0; likewise from above; p is
    twice the smaller of the two tails, at most 1. So p < 1 - level exactly where the interval leaves out 0. For the
    percentile method p = 2 (min(L, G) + 1) / (B + 1), with G the means at or above 0.

    BCa (Efron 1987, "Better bootstrap confidence intervals", JASA 82) corrects the tails for bias, the share of
    resampled means below the mean, and acceleration, the skewness of the values' influence on the mean; without
    spread in the values both are 0.

    Args:
        resampled: Means of resamples, shape (B,).
        values: The n numbers that were resampled, shape (n,).
        level: Nominal coverage.
        method: `"percentile"` or `"bca"`.

    Raises:
        UserError: If there are too few resamples for the level.
    """
    # Sums of the same numbers in another order differ in the last bits; a mean of 0 must be found to be 0.
    rounding = len(values) * np.finfo(np.float64).eps * float(np.abs(values).max())
    ordered = np.sort(np.where(np.abs(resampled) <= rounding, 0.0, resampled))
    alpha = round(1 - level, 12)
    count = len(ordered)
    _check_enough(count, level)
    lower, upper = _tails(ordered, values, rounding) if method == "bca" else (_shares(count), _shares(count))
    low = ordered[int((lower < alpha / 2).sum()) - 1]
    high = ordered[count - int((upper < alpha / 2).sum())]
    below = int(np.searchsorted(ordered, 0.0, side="right"))
    above = count - int(np.searchsorted(ordered, 0.0, side="left"))
    tail = min(lower[min(below, count - 1)], upper[min(above, count - 1)])
    return float(low), float(high), min(1.0, max(2 * float(tail), 2 / (count + 1)))


def describe(result: Interval | PairedTest, family: str | None = None) -> str:
    """Return test and settings in words, to stand under a table.

    Args:
        result: One of the table's results.
        family: Over which comparisons p was adjusted by `holm`, if it was.
    """
    paired = isinstance(result, PairedTest)
    parts = [
        "paired bootstrap over queries" if paired else "bootstrap over queries",
        f"{NAMES[result.method]} interval of {_percent(result.level)}",
        *(["two-sided p by inverting the interval"] if paired else []),
        f"{result.resamples:,} resamples",
        f"seed {result.seed}",
        f"n = {result.n:,} queries",
        *([f"p adjusted by Holm over {family}"] if family else []),
    ]
    return ", ".join(parts)


def caution(n: int, method: str = DEFAULT_METHOD) -> str | None:
    """Return what must stand beside an interval over `n` queries if that is fewer than `SMALL`, else `None`."""
    if n >= SMALL:
        return None
    rates = " and ".join(
        f"{100 * covered:.1f} % at n = {size} ({100 * wrong:.1f} % false positives)"
        for size, (covered, wrong) in SIMULATED[method].items()
    )
    return (
        f"n = {n} queries are few: the interval is too narrow and p too small; in {SIMULATED_EXPERIMENTS:,} simulated "
        f"experiments the {NAMES[method]} interval of 95 % held the true difference in {rates}"
    )


def check_settings(resamples: int, seed: int, level: float = 0.95, method: str = DEFAULT_METHOD) -> None:
    """Refuse settings of a bootstrap before anything is read or computed.

    Raises:
        UserError: If one is out of range, or there are too few resamples for the level.
    """
    _check_draws(resamples, seed)
    if not isinstance(level, int | float | np.number) or not 0 < level < 1:
        raise UserError(f"the level of an interval lies between 0 and 1, such as 0.95; {level} does not")
    if method not in METHODS:
        raise UserError(f'the method "{method}" is unknown{near(method, METHODS)}; there are {", ".join(METHODS)}')
    _check_enough(resamples, level)


def check_whole(what: str, value: object, least: int, most: int | None = None) -> None:
    """Refuse a setting that is no whole number, or is out of range.

    Args:
        what: The setting, as the message names it.
        value: What was given; `None`, truth values, text and floats are no whole numbers.
        least: The least that is allowed.
        most: The most that is allowed, if there is a limit.

    Raises:
        UserError: If the value is refused.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise UserError(f"{what} is a whole number, not {value!r}")
    if value < least:
        raise UserError(f"{what} is {'at least 1' if least == 1 else f'{least} or more'}, not {value}")
    if most is not None and value > most:
        raise UserError(f"{what} is at most {most:,}, not {value:,}")


def check_ranx_test(which: str) -> None:
    """Refuse a test that is none of `RANX_TESTS`.

    Raises:
        UserError: If the test is unknown.
    """
    if which not in RANX_TESTS:
        known = ", ".join(RANX_TESTS)
        raise UserError(f'the test "{which}" is unknown{near(which, RANX_TESTS)}; there are {known}')


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return p-values adjusted for the family that they make up (Holm 1979, a step-down Bonferroni method).

    The smallest of m is multiplied by m, the next by m - 1, and so on; none falls below the one before it or exceeds
    1. Leave out what is no comparison, such as the baseline with itself.

    Args:
        p_values: The family, in any order; the answer is in the same order.

    Raises:
        UserError: If one of them is not a number from 0 to 1.
    """
    wrong = [p for p in p_values if not 0 <= p <= 1]
    if wrong:
        raise UserError(f"a p-value lies between 0 and 1, which {wrong[0]} does not")
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, p_values[i] * (len(p_values) - rank)))
        adjusted[i] = highest
    return tuple(adjusted)


def randomisation_test(a: ArrayLike, b: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> float:
    """Return the two-sided p-value of Fisher's randomisation test, which swaps the two systems' values at random.

    p = (1 + how many random swaps give at least the difference seen, in size) / (1 + resamples).

    Args:
        a: One number per query, shape (n,).
        b: The other system's numbers for the same queries in the same order, shape (n,).
        resamples: How many random assignments to draw.
        seed: Seed of the draws.

    Raises:
        UserError: As for `paired_bootstrap`.
    """
    differences = _differences(a, b)
    _check_draws(resamples, seed)
    rng = np.random.default_rng(seed)
    seen = abs(float(differences.sum()))
    rounding = len(differences) ** 2 * np.finfo(np.float64).eps * float(np.abs(differences).max())
    extreme = 0
    for rows in _blocks(resamples, len(differences)):
        swapped = rng.integers(0, 2, (rows, len(differences)), dtype=np.int8)
        sums = (1.0 - 2.0 * swapped) @ differences
        extreme += int((np.abs(sums) >= seen - rounding).sum())
    return (extreme + 1) / (resamples + 1)


def ranx_test(a: ArrayLike, b: ArrayLike, which: str = "student") -> float:
    """Return the two-sided p-value of ranx's own paired test, for comparison with other work.

    Its Student test gives no number for systems without any difference; that is reported as 1. Its Fisher test, with
    10,000 randomisations, lacks the +1 correction, so that it can return 0; compiled for several threads, as in
    ranx, it ignores its seed, so it is compiled here for one. The first call takes seconds.

    Args:
        a: One number per query, shape (n,).
        b: The other system's numbers for the same queries in the same order, shape (n,).
        which: One of `RANX_TESTS`.

    Raises:
        UserError: As for `paired_bootstrap`, or if the test is unknown.
    """
    check_ranx_test(which)
    differences = _differences(a, b)
    if not differences.any():
        return 1.0
    first, second = np.asarray(a, np.float64), np.asarray(b, np.float64)
    with _ranx_lock:
        student, fisher = _ranx_tests()
        p = student(first, second)[0] if which == "student" else fisher(first, second, RESAMPLES, 0.05, 0)[0]
    return float(p)


@cache
def _ranx_tests() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return ranx's Student test, and its Fisher test compiled without threads."""
    _choose_numba_cache(_package_folder("ranx"))
    import numba
    from ranx import statistical_tests

    return statistical_tests.paired_student_t_test, numba.njit(statistical_tests.fisher_randomization_test.py_func)


def _bootstrap(
    values: NDArray[np.float64], resamples: int, seed: int, level: float, method: str
) -> tuple[float, float, float]:
    check_settings(resamples, seed, level, method)
    rng = np.random.default_rng(seed)
    n = len(values)
    means = [values.take(rng.integers(0, n, (rows, n), dtype=np.int32)).mean(axis=1) for rows in _blocks(resamples, n)]
    return invert(np.concatenate(means), values, level, method)


def _tails(
    ordered: NDArray[np.float64], values: NDArray[np.float64], rounding: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return BCa's probabilities of the tails made of the c lowest and the c highest, c = 1 … B; see `invert`."""
    from scipy.special import ndtr, ndtri

    count, mean = len(ordered), float(values.mean())
    below = int(np.searchsorted(ordered, mean - rounding))
    above = count - int(np.searchsorted(ordered, mean + rounding, side="right"))
    # Resamples with the very mean count half on either side; the two halves make swapped systems mirror images.
    bias = float(ndtri((count + below - above) / (2 * count)) - ndtri((count + above - below) / (2 * count))) / 2
    deviations = values - mean
    spread = float((deviations * deviations).sum())
    flat = spread <= len(values) * rounding**2
    acceleration = 0.0 if flat else float((deviations * deviations * deviations).sum()) / (6 * spread**1.5)

    uncorrected = ndtri(_shares(count))

    def tail(bias: float, acceleration: float) -> NDArray[np.float64]:
        z = uncorrected - bias
        divisor = 1 + acceleration * z
        with np.errstate(divide="ignore"):  # beyond a divisor of 0 the tail has reached its limit, 0 or 1
            corrected: NDArray[np.float64] = np.where(divisor > 0, ndtr(z / divisor - bias), z > 0)
        corrected[0] = min(corrected[0], 1 / (count + 1))  # the interval never leaves the range of the resamples
        return corrected

    return tail(bias, acceleration), tail(-bias, -acceleration)


def _shares(count: int) -> NDArray[np.float64]:
    return np.arange(1, count + 1) / (count + 1)


def _blocks(resamples: int, n: int) -> Iterator[int]:
    """Yield how many resamples to draw at once, until all are drawn."""
    at_once = max(1, _DRAWN_AT_ONCE // n)
    for start in range(0, resamples, at_once):
        yield min(at_once, resamples - start)


def _differences(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    first, second = _checked(a, "the first system's values"), _checked(b, "the second system's values")
    if len(first) != len(second):
        raise UserError(
            f"a paired test needs the same queries for both systems; one has {len(first):,}, the other {len(second):,}"
        )
    return first - second


def _checked(values: ArrayLike, what: str) -> NDArray[np.float64]:
    if np.ma.isMaskedArray(values):
        raise UserError(f"{what} are a masked array: fill the masked queries with 0, or leave them out")
    try:
        given = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise UserError(f"{what} must be one number per query; they are lists of different lengths") from error
    if given.dtype.kind not in "biuf" and given.size:
        raise UserError(f"{what} must be real numbers; they are of the type {given.dtype}")
    array = given.astype(np.float64)
    if array.ndim != 1:
        raise UserError(f"{what} must be one number per query; they have the shape {array.shape}")
    if len(array) < 2:
        queries = "1 query" if len(array) == 1 else "no query"
        raise UserError(f"{what} cover {queries}; an interval or a test needs at least 2")
    wrong = int((~np.isfinite(array)).sum())
    if wrong:
        raise UserError(f"{what} hold {wrong:,} of {len(array):,} that are not finite numbers: score the run again")
    return array


def _check_draws(resamples: int, seed: int) -> None:
    check_whole("the number of resamples", resamples, 1)
    check_whole("a seed", seed, 0)


def _check_enough(resamples: int, level: float) -> None:
    if 2 / (resamples + 1) >= round(1 - level, 12):
        raise UserError(f"{resamples:,} resamples are too few for an interval of {_percent(level)}: ask for more")


def _percent(level: float) -> str:
    return f"{100 * level:g} %"
