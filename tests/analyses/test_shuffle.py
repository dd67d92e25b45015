"""Shuffled against the expectation in closed form, and against every permutation scored by the panel."""

from __future__ import annotations

from itertools import permutations
from math import log2
from statistics import fmean

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
