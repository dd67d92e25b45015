"""Ceilings, worked out by hand."""

from __future__ import annotations

from math import log2

import pytest

from obliq_eval.analyses.oracle import ceiling, columns, perfect
from obliq_eval.records import Judgments, Run

SECOND = 1 / log2(3)
IDEAL = 1 + SECOND
# q1 finds both relevant documents, at ranks 2 and 3; q2 finds one of two, at rank 1; q3 is not answered
JUDGED = Judgments.from_dict({"q1": {"a": 1, "b": 1}, "q2": {"c": 1, "d": 1}, "q3": {"e": 1}})
RUN = Run.from_lists({"q1": ["x", "a", "b"], "q2": ["c", "y"]}, depth=3)


def test_the_distance_to_a_perfect_order() -> None:
    found = ceiling(RUN, JUDGED, pools=(2, 3, 100))
    now = ((SECOND + 0.5) / IDEAL + 1 / IDEAL) / 3
    two = (1 / IDEAL + 1 / IDEAL) / 3  # of q1's first two documents one is relevant
    three = (1 + 1 / IDEAL) / 3
    assert found.score == pytest.approx(now)
    # a perfect order of two documents keeps nothing below them, so it can be worse than the run itself
    assert found.perfect == (pytest.approx(two), pytest.approx(three), None)
    assert found.oracle is None
    assert sum(part or 0 for part in found.parts) == pytest.approx(1)
    assert len(found.row("s")) == len(columns(found.pools))


def test_the_distance_to_a_given_oracle() -> None:
    oracle = Run.from_lists({"q1": ["a", "b"], "q2": ["c", "d"], "q3": ["e"]})
    found = ceiling(RUN, JUDGED, oracle, pools=(3,))
    assert found.oracle == pytest.approx(1.0)
    assert found.row("s")[-1] == pytest.approx(1 - found.score)


def test_higher_grades_come_first_and_nothing_is_added() -> None:
    judged = Judgments.from_dict({"q": {"low": 1, "high": 2, "bad": -1, "missed": 3}})
    best = perfect(Run.from_lists({"q": ["bad", "x", "low", "high", "late"]}), judged, 4)
    assert best.rankings["q"].documents == ("high", "low", "bad", "x")
