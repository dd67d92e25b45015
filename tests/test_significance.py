"""Intervals, paired tests and Holm's adjustment: hand-worked cases, slow oracles, properties."""

from __future__ import annotations

import math
import runpy
import tracemalloc
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from obliq_eval.errors import UserError
from obliq_eval.significance import (
    METHODS,
    SIMULATED,
    SIMULATED_EXPERIMENTS,
    caution,
    describe,
    holm,
    invert,
    mean_interval,
    paired_bootstrap,
    randomisation_test,
    ranx_test,
)

# Sixteenths add up without rounding, so that fractions can check every comparison; many are 0, as in retrieval.
SIXTEENTHS = st.lists(st.one_of(st.just(0), st.integers(0, 16)), min_size=2, max_size=12)
PAIRS = SIXTEENTHS.flatmap(
    lambda a: st.tuples(st.just(a), st.lists(st.integers(0, 16), min_size=len(a), max_size=len(a)))
)


def sixteenths(values: list[int]) -> np.ndarray:
    return np.array(values) / 16


# --- by hand


def test_by_hand_the_ends_are_order_statistics_and_p_is_twice_the_smaller_tail() -> None:
    # 99 resamples, level .9: c / 100 < .05 up to c = 4, so the ends are the fourth lowest and the fourth highest.
    values = np.array([0.0, 1.0])
    resampled = np.random.default_rng(0).permutation(np.arange(-2.0, 97.0))
    # -2 -1 0 | 1 …: L = 3 at or below 0, p = 2 · 4 / 100; highest 96, fourth highest 93.
    low, high, p = invert(resampled, values, 0.9, "percentile")
    assert (low, high) == (1.0, 93.0)
    assert p == pytest.approx(0.08, abs=1e-15)
    # One lower: L = 4, p = 2 · 5 / 100 = .1, which is not below .1, and the interval touches 0.
    low, high, p = invert(resampled - 1, values, 0.9, "percentile")
    assert (low, high) == (0.0, 92.0)
    assert p == pytest.approx(0.1, abs=1e-15)


def test_identical_systems_differ_by_exactly_nothing() -> None:
    scores = np.array([0.0, 0.3, 0.63, 0.0, 1.0])
    for method in METHODS:
        test = paired_bootstrap(scores, scores, method=method)
        assert (test.difference, test.low, test.high, test.p) == (0.0, 0.0, 0.0, 1.0)


def test_a_gain_equal_on_every_query_has_an_interval_of_no_width() -> None:
    for method in METHODS:
        test = paired_bootstrap([0.75, 1.0, 0.5], [0.5, 0.75, 0.25], resamples=999, method=method)
        # no resampled mean is at or below 0: p = 2 · (0 + 1) / 1000
        assert (test.difference, test.low, test.high, test.p) == (0.25, 0.25, 0.25, 0.002)


def test_a_mean_of_0_is_found_in_spite_of_rounding() -> None:
    # .1 + .2 - .3 is 5.6e-17 in float64; in tenths it is 0.
    exact = paired_bootstrap([1, 2, 0, 0], [0, 0, 3, 0], resamples=999)
    rounded = paired_bootstrap([0.1, 0.2, 0, 0], [0, 0, 0.3, 0], resamples=999)
    assert rounded.p == exact.p
    assert rounded.low == pytest.approx(exact.low / 10, abs=1e-15)


def test_holm_by_hand() -> None:
    # sorted .005 .01 .03 .04, times 4 3 2 1: .02 .03 .06 .04, and the last may not fall below .06
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02), abs=1e-15)
    assert holm([0.6, 0.5, 1.0]) == (1.0, 1.0, 1.0)
    assert holm([0.04]) == (0.04,)
    assert holm([]) == ()


def test_students_test_by_hand() -> None:
    # differences 1 2 3: t = 2 √3, and with 2 degrees of freedom p = 1 - t / √(2 + t²)
    t = 2 * math.sqrt(3)
    assert ranx_test([2, 4, 6], [1, 2, 3]) == pytest.approx(1 - t / math.sqrt(2 + t * t), abs=1e-12)


def test_the_randomisation_tests_against_all_swaps() -> None:
    # differences 3 2 1 -1: of 16 signings, 3 give a sum of at least 5 (7, and 5 with either 1 negative), 3 at most -5
    a, b = [3.0, 2.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]
    sums = [s3 * 3 + s2 * 2 + s1 + s0 for s3 in (1, -1) for s2 in (1, -1) for s1 in (1, -1) for s0 in (1, -1)]
    exact = sum(abs(total) >= 5 for total in sums) / 16
    assert exact == 6 / 16
    assert randomisation_test(a, b) == pytest.approx(exact, abs=0.02)  # four standard errors
    assert ranx_test(a, b, "fisher") == pytest.approx(exact, abs=0.02)
    assert ranx_test(a, b, "fisher") == ranx_test(a, b, "fisher")


def test_other_tests_of_identical_systems() -> None:
    scores = [0.2, 0.0, 0.5]
    assert randomisation_test(scores, scores) == 1.0
    assert ranx_test(scores, scores, "student") == ranx_test(scores, scores, "fisher") == 1.0


# --- slow oracles


@given(PAIRS, st.integers(0, 5), st.sampled_from([0.8, 0.9, 0.95]))
@settings(max_examples=40, deadline=None)
def test_percentile_equals_a_slow_loop_in_fractions(pair: tuple[list[int], list[int]], seed: int, level: float) -> None:
    a, b = pair
    n, count = len(a), 199
    differences = [Fraction(x - y, 16) for x, y in zip(a, b, strict=True)]
    drawn = np.random.default_rng(seed).integers(0, n, (count, n), dtype=np.int32)
    means = sorted(sum(differences[i] for i in row) / n for row in drawn.tolist())
    tail = (1 - Fraction(str(level))) / 2
    c = max(c for c in range(count) if Fraction(c, count + 1) < tail)
    at_most = sum(mean <= 0 for mean in means)
    at_least = sum(mean >= 0 for mean in means)
    p = min(Fraction(1), Fraction(2 * (min(at_most, at_least) + 1), count + 1))

    test = paired_bootstrap(sixteenths(a), sixteenths(b), resamples=count, seed=seed, level=level)
    assert test.difference == pytest.approx(float(sum(differences) / n), abs=1e-15)
    assert (test.low, test.high) == pytest.approx((float(means[c - 1]), float(means[-c])), abs=1e-15)
    assert test.p == pytest.approx(float(p), abs=1e-12)


@given(PAIRS, st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_bca_equals_the_textbook_formulas(pair: tuple[list[int], list[int]], seed: int) -> None:
    a, b = pair
    n, count, normal = len(a), 499, NormalDist()
    differences = [Fraction(x - y, 16) for x, y in zip(a, b, strict=True)]
    total = sum(differences)
    drawn = np.random.default_rng(seed).integers(0, n, (count, n), dtype=np.int32)
    means = sorted(sum(differences[i] for i in row) / n for row in drawn.tolist())
    share = Fraction(2 * sum(m < total / n for m in means) + sum(m == total / n for m in means), 2 * count)
    bias = normal.inv_cdf(float(share))
    left_out = [(total - d) / (n - 1) for d in differences]  # the jackknife's means
    influence = [float(sum(left_out) / n - mean) for mean in left_out]
    cubes, squares = sum(x**3 for x in influence), sum(x**2 for x in influence)
    acceleration = cubes / (6 * squares**1.5) if squares else 0.0

    def level_of(z: float) -> float:
        return normal.cdf(bias + (bias + z) / (1 - acceleration * (bias + z)))

    z = normal.inv_cdf(0.05)
    lowest = max(1, math.ceil(level_of(z) * (count + 1)) - 1)
    highest = max(1, math.ceil((1 - level_of(-z)) * (count + 1)) - 1)
    test = paired_bootstrap(sixteenths(a), sixteenths(b), resamples=count, seed=seed, level=0.9, method="bca")
    assert (test.low, test.high) == pytest.approx((float(means[lowest - 1]), float(means[-highest])), abs=1e-15)


@pytest.mark.parametrize("method", METHODS)
def test_agrees_with_scipy_within_monte_carlo_error(method: str) -> None:
    rng = np.random.default_rng(3)
    differences = rng.gamma(0.5, 1, 150) * (rng.random(150) < 0.4)
    scipy_method = {"percentile": "percentile", "bca": "BCa"}[method]
    theirs = scipy.stats.bootstrap((differences,), np.mean, n_resamples=20_000, method=scipy_method, rng=1)
    ours = mean_interval(differences, resamples=20_000, method=method)
    # The standard error of a 2.5 % quantile of 20,000 is .019 standard deviations; .1 is over three of the difference.
    allowed = 0.1 * theirs.standard_error
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=allowed)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=allowed)
    assert ours.mean == pytest.approx(differences.mean(), abs=1e-15)


def test_the_two_methods_differ_on_skewed_values() -> None:
    values = np.array([0.0] * 30 + [1.0] * 2)
    plain, corrected = mean_interval(values), mean_interval(values, method="bca")
    assert corrected.low > plain.low or corrected.high > plain.high


def test_randomisation_equals_a_slow_loop() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 17, (2, 9))
    swaps = np.random.default_rng(7).integers(0, 2, (300, 9), dtype=np.int8).tolist()
    differences = (a - b).tolist()
    sums = [sum(-d if swap else d for d, swap in zip(differences, row, strict=True)) for row in swaps]
    extreme = sum(abs(total) >= abs(sum(differences)) for total in sums)
    assert 0 < extreme < 300
    assert randomisation_test(a / 16, b / 16, resamples=300, seed=7) == (extreme + 1) / 301


# --- properties


@given(PAIRS, st.sampled_from(METHODS), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_swapping_the_systems_mirrors_the_interval_and_keeps_p(
    pair: tuple[list[int], list[int]], method: str, seed: int
) -> None:
    a, b = (np.array(side) / 10 for side in pair)
    one = paired_bootstrap(a, b, resamples=399, seed=seed, method=method)
    other = paired_bootstrap(b, a, resamples=399, seed=seed, method=method)
    assert (other.difference, other.low, other.high, other.p) == (-one.difference, -one.high, -one.low, one.p)
    assert randomisation_test(a, b, resamples=99) == randomisation_test(b, a, resamples=99)


@given(PAIRS, st.sampled_from(METHODS), st.integers(-8, 8))
@settings(max_examples=60, deadline=None)
def test_a_shift_of_one_system_shifts_the_interval(pair: tuple[list[int], list[int]], method: str, shift: int) -> None:
    a, b = (sixteenths(side) for side in pair)
    base = paired_bootstrap(a, b, resamples=399, method=method)
    both = paired_bootstrap(a + shift / 16, b + shift / 16, resamples=399, method=method)
    assert both == base
    one = paired_bootstrap(a + shift / 16, b, resamples=399, method=method)
    moved = (base.difference + shift / 16, base.low + shift / 16, base.high + shift / 16)
    assert (one.difference, one.low, one.high) == pytest.approx(moved, abs=1e-12)


@given(PAIRS, st.sampled_from(METHODS), st.sampled_from([0.8, 0.9, 0.95]), st.sampled_from([199, 299, 500]))
@settings(max_examples=150, deadline=None)
def test_p_is_below_alpha_exactly_where_the_interval_leaves_out_0(
    pair: tuple[list[int], list[int]], method: str, level: float, resamples: int
) -> None:
    a, b = (sixteenths(side) for side in pair)
    test = paired_bootstrap(a, b, resamples=resamples, level=level, method=method)
    assert (test.p < round(1 - level, 12)) == (test.low > 0 or test.high < 0)
    assert 2 / (resamples + 1) <= test.p <= 1
    assert test.low <= test.high


@given(st.lists(st.floats(0, 1), max_size=8), st.randoms(use_true_random=False))
def test_holm_is_monotone_no_smaller_than_p_and_blind_to_order(p_values: list[float], random: Any) -> None:
    adjusted = holm(p_values)
    by_p = [value for _, value in sorted(zip(p_values, adjusted, strict=True))]
    assert by_p == sorted(by_p)
    assert all(p <= value <= 1 for p, value in zip(p_values, adjusted, strict=True))
    order = list(range(len(p_values)))
    random.shuffle(order)
    assert holm([p_values[i] for i in order]) == tuple(adjusted[i] for i in order)


def test_the_order_of_queries_moves_the_interval_by_monte_carlo_error_only() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.random((2, 200)) * (rng.random((2, 200)) < 0.5)
    order = rng.permutation(200)
    one, other = paired_bootstrap(a, b), paired_bootstrap(a[order], b[order])
    assert one != other
    allowed = 0.15 * float((a - b).std()) / math.sqrt(200)  # four standard errors of the difference of two quantiles
    assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=allowed)


def test_equal_seeds_give_equal_answers_and_others_differ() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.random((2, 50))
    assert paired_bootstrap(a, b, seed=4) == paired_bootstrap(a, b, seed=4)
    assert paired_bootstrap(a, b, seed=4).low != paired_bootstrap(a, b, seed=5).low


def test_many_queries_need_little_memory() -> None:
    values = np.random.default_rng(0).random(5_000)
    tracemalloc.start()
    try:
        mean_interval(values, resamples=1_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000  # all draws at once would be 20 MB, and 40 MB of values


@pytest.mark.slow
@pytest.mark.parametrize(("n", "expected"), [(40, SIMULATED["percentile"][40]), (512, (0.9475, 0.0515))])
def test_the_stated_coverage_and_false_positives_are_those_of_the_simulation(
    n: int, expected: tuple[float, float]
) -> None:
    """At n = 512, 20,000 experiments gave a coverage of .946-.949 and false positives of .050-.053: their middle."""
    benchmark = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "significance.py"))
    experiments = 500
    laws = [law for both in benchmark["populations"]().values() for law in both]
    kept = [shares["percentile"] for shares in benchmark["simulate"](laws, n, experiments, ["percentile"])]
    covered, wrong = np.mean(kept[1::2]), 1 - np.mean(kept[::2])
    for found, stated in zip((covered, wrong), expected, strict=True):
        # three standard errors of the difference between these experiments and those behind the statement
        error = math.sqrt(stated * (1 - stated) * (1 / (3 * experiments) + 1 / SIMULATED_EXPERIMENTS))
        assert found == pytest.approx(stated, abs=3 * error)


# --- what is said, and what is refused


def test_settings_are_described() -> None:
    test = paired_bootstrap([0.5, 1.0, 0.25], [0.0, 1.0, 0.5], seed=7)
    told = describe(test)
    for part in ("paired bootstrap", "percentile", "95 %", "10,000 resamples", "seed 7", "n = 3 queries"):
        assert part in told
    assert "Holm" not in told
    assert "Holm over 6 comparisons with bm25" in describe(test, family="6 comparisons with bm25")
    interval = mean_interval([0.5, 1.0], resamples=500, level=0.9, method="bca")
    assert describe(interval) == "bootstrap over queries, BCa interval of 90 %, 500 resamples, seed 0, n = 2 queries"


def test_small_samples_carry_a_caution_with_the_simulated_coverage() -> None:
    assert caution(100) is None
    for method in METHODS:
        told = caution(99, method)
        assert told is not None
        for size in (40, 115):
            covered, wrong = SIMULATED[method][size]
            assert f"{100 * covered:.1f} % at n = {size} ({100 * wrong:.1f} % false positives)" in told
        assert f"{SIMULATED_EXPERIMENTS:,}" in told
        assert "too narrow" in told


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1.0], [0.0], "at least 2"),
        ([], [], "at least 2"),
        ([1.0, 0.0], [0.0], "2"),
        ([1.0, 0.0], [0.0, 1.0, 1.0], "same queries"),
        ([1.0, math.nan], [0.0, 0.0], "1 of 2 that are not finite"),
        ([1.0, 0.5], [0.0, math.inf], "second system"),
        ([[1.0, 0.5]], [[0.0, 0.5]], r"\(1, 2\)"),
        ([1.0, 0.5j], [0.0, 0.5], "real numbers; they are of the type complex128"),
        (["1.0", "0.5"], [0.0, 0.5], "real numbers; they are of the type <U3"),
        ([1.0, None], [0.0, 0.5], "real numbers; they are of the type object"),
        ([1.0, 0.5], [[0.0], [0.5, 1.0]], "second system's values .* lists of different lengths"),
        (np.ma.array([1.0, 0.5], mask=[True, False]), [0.0, 0.5], "masked array"),
    ],
)
def test_values_that_cannot_be_tested_are_refused(a: Any, b: Any, message: str) -> None:
    for test in (paired_bootstrap, randomisation_test, ranx_test):
        with pytest.raises(UserError, match=message):
            test(a, b)


def test_an_interval_over_one_query_or_of_nan_is_refused() -> None:
    with pytest.raises(UserError, match="cover 1 query; an interval or a test needs at least 2"):
        mean_interval([0.5])
    with pytest.raises(UserError, match="not finite"):
        mean_interval([0.5, math.nan])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([0.5, 1j]), "complex128"),
        (["0.5", "1"], "real numbers"),
        (np.ma.array([0.5, 1.0, 0.0], mask=[False, True, False]), "masked array"),
        ([[0.5], [0.5, 1.0]], "different lengths"),
    ],
)
def test_an_interval_over_anything_but_real_numbers_is_refused(values: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        mean_interval(values)


def test_truth_values_and_whole_numbers_count_as_numbers() -> None:
    # 1 of 2 is .5; whole numbers of numpy are settings as good as Python's
    assert mean_interval([True, False], resamples=99).mean == 0.5
    values: Any = np.array([1, 0], dtype=np.uint8)
    settings_: Any = {"resamples": np.int64(99), "seed": np.int32(3)}
    assert mean_interval(values, **settings_) == mean_interval([1.0, 0.0], resamples=99, seed=3)
    assert paired_bootstrap(values, values[::-1], resamples=99).difference == 0.0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"level": 1.0}, "between 0 and 1"),
        ({"level": 95}, "between 0 and 1"),
        ({"method": "bcaa"}, 'did you mean "bca"'),
        ({"resamples": 39}, "39 resamples are too few for an interval of 95 %"),
        ({"resamples": 0}, "at least 1"),
        ({"seed": -1}, "0 or more"),
        ({"seed": None}, "a seed is a whole number, not None"),
        ({"seed": 1.0}, r"a seed is a whole number, not 1\.0"),
        ({"seed": True}, "a seed is a whole number, not True"),
        ({"resamples": None}, "resamples is a whole number, not None"),
        ({"resamples": 99.5}, r"resamples is a whole number, not 99\.5"),
        ({"resamples": "999"}, "resamples is a whole number, not '999'"),
        ({"level": "0.95"}, "between 0 and 1"),
    ],
)
def test_settings_out_of_range_are_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        paired_bootstrap([0.5, 1.0, 0.0], [0.0, 0.5, 0.5], **setting)
    with pytest.raises(UserError, match=message):
        mean_interval([0.5, 1.0, 0.0], **setting)


def test_other_wrong_requests_are_refused() -> None:
    with pytest.raises(UserError, match=r"1\.5"):
        holm([0.5, 1.5])
    with pytest.raises(UserError, match="nan"):
        holm([math.nan])
    with pytest.raises(UserError, match='did you mean "student"'):
        ranx_test([0.5, 1.0], [0.0, 0.0], "students")
