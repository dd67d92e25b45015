"""Shuffled against the expectation in closed form, and against every permutation scored by the panel."""

from __future__ import annotations

import tracemalloc
from itertools import permutations
from math import log2
from statistics import fmean
from typing import Any

import pytest

from obliq_eval.analyses.shuffle import COLUMNS, shuffle
from obliq_eval.errors import UserError
from obliq_eval.metrics import score
from obliq_eval.records import Judgments, Run

TAIL = [f"x{i}" for i in range(19)]


def test_the_expectation_of_one_relevant_document_among_twenty() -> None:
    # each rank has probability 1/20, and the first ten gain 1 / log2(rank + 1): 4.5436 / 20 = .2272 in all
    expected = sum(1 / log2(rank + 1) for rank in range(1, 11)) / 20
    judged = Judgments.from_dict({"q1": {"g": 1}, "q2": {"g": 1}})
    found = shuffle(Run.from_lists({q: ["g", *TAIL] for q in judged.grades}), judged, shuffles=20_000)
    assert found.real == 1.0
    assert found.shuffled == pytest.approx(expected, abs=0.006)  # four standard errors: .28 / sqrt(40,000) each
    assert found.ratio == pytest.approx(1 / expected, rel=0.03)
    assert (found.pool, found.n) == (20, 2)
    assert len(found.row("s")) == len(COLUMNS)


def test_graded_pools_against_all_permutations() -> None:
    grades = {"a": 2, "b": 1, "missed": 3}
    judged = Judgments.from_dict({"q1": grades, "q2": grades})
    every = [
        score(Run.from_lists({q: list(order) for q in ("q1", "q2")}), judged, ["ndcg@10"]).values["ndcg@10"][0]
        for order in permutations(["a", "b", "x"])
    ]
    found = shuffle(Run.from_lists({q: ["x", "a", "b"] for q in ("q1", "q2")}), judged, shuffles=10_000)
    assert found.shuffled == pytest.approx(fmean(every), abs=0.005)
    assert min(every) <= found.lowest <= found.highest <= max(every)


def test_only_the_pool_is_shuffled() -> None:
    # with a pool of one document there is one order, so that nothing is gained by the real one
    judged = Judgments.from_dict({"q1": {"g": 1}, "q2": {"g": 1}})
    found = shuffle(Run.from_lists({"q1": ["g", *TAIL], "q2": ["g"]}), judged, pool=1)
    assert (found.real, found.shuffled, found.ratio, found.low, found.high) == (1, 1, 1, 1, 1)


def test_equal_queries_leave_the_interval_no_width_but_that_of_the_shuffles() -> None:
    judged = Judgments.from_dict({f"q{i}": {"g": 1} for i in range(30)})
    found = shuffle(Run.from_lists({q: ["g", *TAIL] for q in judged.grades}), judged, shuffles=1000)
    assert found.ratio is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.ratio <= found.high
    assert found.high - found.low < 0.4


def test_a_pool_without_relevant_documents_has_no_ratio() -> None:
    judged = Judgments.from_dict({"q1": {"g": 1}, "q2": {"g": 1}})
    found = shuffle(Run.from_lists({"q1": TAIL, "q2": []}), judged)
    assert (found.real, found.shuffled, found.ratio) == (0, 0, None)
    deep = shuffle(Run.from_lists({"q1": ["g", *TAIL], "q2": TAIL}), judged)
    assert deep.low == 1  # a resample of q2 alone: the order changes nothing


def test_the_same_seed_gives_the_same_numbers() -> None:
    judged = Judgments.from_dict({"q1": {"g": 1}, "q2": {"g": 1}})
    run = Run.from_lists({"q1": ["g", *TAIL], "q2": [*TAIL[:4], "g"]})
    assert shuffle(run, judged, seed=3) == shuffle(run, judged, seed=3)
    assert shuffle(run, judged, seed=3) != shuffle(run, judged, seed=4)


def test_one_query_has_no_interval() -> None:
    judged = Judgments.from_dict({"q1": {"g": 1}})
    with pytest.raises(UserError, match="one query"):
        shuffle(Run.from_lists({"q1": ["g"]}), judged)
    with pytest.raises(UserError, match="at least 1"):
        shuffle(Run.from_lists({"q1": ["g"]}), judged, shuffles=0)


def test_by_hand_what_lies_below_the_pool_stays_in_place() -> None:
    # a pool of two, "g" and "x0", over "h" at rank 3, which keeps its 1 / log2(4) = 1/2 in either order;
    # "g" gains 1 at rank 1 and 1 / log2(3) at rank 2; the ideal order of two gains 1 + 1 / log2(3)
    second = 1 / log2(3)
    best, worst = 1.5 / (1 + second), (second + 0.5) / (1 + second)
    judged = Judgments.from_dict({q: {"g": 1, "h": 1} for q in ("q1", "q2")})
    run = Run.from_lists({q: ["g", "x0", "h", *TAIL[1:]] for q in ("q1", "q2")})
    found = shuffle(run, judged, pool=2, shuffles=10_000)
    assert found.real == found.highest == pytest.approx(best, abs=1e-12)
    assert found.lowest == pytest.approx(worst, abs=1e-12)
    assert found.shuffled == pytest.approx((best + worst) / 2, abs=0.004)  # over five standard errors of .0008


def test_a_pool_of_one_gives_a_ratio_of_exactly_1_whatever_lies_below() -> None:
    grades = {f"x{i}": 1 + i % 3 for i in range(1, 12, 2)}
    judged = Judgments.from_dict({f"q{i}": {**grades, "g": 2} for i in range(7)})
    lists = {q: [*TAIL[i:], "g", *TAIL[:i]] for i, q in enumerate(judged.grades)}
    found = shuffle(Run.from_lists(lists), judged, pool=1, shuffles=199)
    assert 0 < found.real < 1
    assert found.real == found.shuffled == found.lowest == found.highest
    assert (found.ratio, found.low, found.high) == (1, 1, 1)


def test_many_shuffles_of_a_deep_pool_need_little_memory() -> None:
    judged = Judgments.from_dict({"q1": {"g": 1}, "q2": {"g": 1}})
    run = Run.from_lists({q: ["g", *(f"y{i}" for i in range(999))] for q in judged.grades})
    tracemalloc.start()
    try:
        shuffle(run, judged, pool=1000, shuffles=5_000, resamples=100)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40_000_000  # all at once would be at least 80 MB


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"pool": 0}, "the pool is at least 1, not 0"),
        ({"pool": 1.5}, r"the pool is a whole number, not 1\.5"),
        ({"shuffles": -1}, "the number of shuffles is at least 1, not -1"),
        ({"shuffles": 10**12}, "the number of shuffles is at most 100,000, not 1,000,000,000,000"),
        ({"resamples": 10**12}, "the number of resamples is at most 1,000,000"),
        ({"seed": -1}, "a seed is 0 or more, not -1"),
        ({"seed": None}, "a seed is a whole number, not None"),
        ({"level": 0.0}, "between 0 and 1"),
        ({"level": 1.0}, "between 0 and 1"),
        ({"level": float("nan")}, "between 0 and 1"),
    ],
)
def test_settings_out_of_range_are_refused(setting: dict[str, Any], message: str) -> None:
    judged = Judgments.from_dict({"q1": {"g": 1}, "q2": {"g": 1}})
    with pytest.raises(UserError, match=message):
        shuffle(Run.from_lists({"q1": ["g"], "q2": ["g"]}), judged, **setting)
