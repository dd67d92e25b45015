"""Recall and NDCG by depth, worked out by hand."""

from __future__ import annotations

from math import log2

import pytest

from obliq_eval.analyses import depth, recall
from obliq_eval.errors import UserError
from obliq_eval.metrics import score
from obliq_eval.records import Judgments, Run

# q1: a and b are relevant, at ranks 2 and 4; q2: c at rank 2; q3: nothing was returned.
JUDGED = Judgments.from_dict({"q1": {"a": 1, "b": 1}, "q2": {"c": 1}, "q3": {"d": 1}})
RUN = Run.from_lists({"q1": ["x", "a", "y", "b"], "q2": ["z", "c"], "q3": []}, depth=4)
SECOND = 1 / log2(3)  # the discount of rank 2


def test_recall_by_depth() -> None:
    # at 1: nothing; at 2: (1/2 + 1 + 0) / 3; at 4: (1 + 1 + 0) / 3; below the run's end nobody knows
    curve = recall.recall_curve(RUN, JUDGED, (10, 4, 2, 1))
    assert curve.depths == (1, 2, 4, 10)
    assert curve.values == (0.0, pytest.approx(0.5), pytest.approx(2 / 3), None)
    assert (curve.n, curve.depth) == (3, 4)
    assert len(curve.row("s")) == len(recall.columns(curve.depths))


def test_ndcg_by_depth() -> None:
    # at 1: nothing; at 2: q1 has .631 of 1.631, q2 .631 of 1, q3 nothing
    curve = depth.depth_curve(RUN, JUDGED, (1, 2, 5))
    assert curve.values == (0.0, pytest.approx((SECOND / (1 + SECOND) + SECOND) / 3), None)
    assert len(curve.row("s")) == len(depth.columns(curve.depths))


def test_gains_are_sorted_and_counted() -> None:
    # q1: unchanged; q2: from rank 2 to rank 1; q3 (d at rank 1 before) is lost
    before = Run.from_lists({"q1": ["a", "b"], "q2": ["z", "c"], "q3": ["d"]}, depth=2)
    after = Run.from_lists({"q1": ["a", "b"], "q2": ["c", "z"], "q3": ["x"]}, depth=2)
    panels = [score(run, JUDGED, ["ndcg@10"]) for run in (before, after)]
    found = depth.gains(*panels)
    assert found.queries == ("q3", "q1", "q2")
    assert found.gains == (-1.0, 0.0, pytest.approx(1 - SECOND))
    assert (found.better, found.worse) == (1, 1)
    assert found.mean == pytest.approx(-SECOND / 3)
    assert found.quantiles[2] == 0.0  # the median
    assert len(found.row("a", "b")) == len(depth.GAIN_COLUMNS)


def test_panels_over_other_queries_are_refused() -> None:
    panels = [score(RUN, judged, ["ndcg@10"]) for judged in (JUDGED, JUDGED.only(["q1"]))]
    with pytest.raises(UserError, match="different queries"):
        depth.gains(*panels)
