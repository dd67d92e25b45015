"""The five classes of Table 7."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obliq_eval.analyses.failures import COLUMNS, classify
from obliq_eval.errors import UserError
from obliq_eval.metrics import Panel, score
from obliq_eval.records import Judgments, Run

QUERIES = ("better", "worse", "same", "near", "out", "deep", "silent")
JUDGED = Judgments.from_dict({query: {"g": 1, "n": 0} for query in QUERIES})


def panel(values: dict[str, float]) -> Panel:
    scores = np.array([values[query] for query in values])
    return Panel(tuple(values), {"ndcg@10": scores}, 100, (), (), 0, 1.0, 0)


def test_every_class() -> None:
    # near: .0005 apart, a tie; out: only an irrelevant judged document; deep: g is third; silent: no answer at all
    before = panel({"better": 0, "worse": 1, "same": 0.5, "near": 0.5, "out": 0, "deep": 0, "silent": 0})
    after = panel({"better": 0.5, "worse": 0.4, "same": 0.5, "near": 0.5005, "out": 0, "deep": 0, "silent": 0})
    pool = Run.from_lists({"better": ["g"], "out": ["n", "x"], "deep": ["x", "y", "g"]})
    found = classify(before, after, pool, JUDGED)
    assert (found.helped, found.hurt, found.tied) == (("better",), ("worse",), ("same", "near"))
    assert (found.outside_pool, found.in_pool) == (("out", "silent"), ("deep",))
    assert found.zero_in_both == ("out", "silent", "deep")
    assert found.counts() == {
        "n": 7, "helped": 1, "hurt": 1, "tied": 2, "zero_in_both": 3, "outside_pool": 2, "in_pool": 1
    }  # fmt: skip
    assert len(found.row("a", "b")) == len(COLUMNS)


def test_the_pool_ends_where_the_reranker_stopped_reading() -> None:
    zero = panel({"deep": 0})
    pool = Run.from_lists({"deep": ["x", "y", "g"]})
    assert classify(zero, zero, pool, JUDGED, pool_depth=3).in_pool == ("deep",)
    assert classify(zero, zero, pool, JUDGED, pool_depth=2).outside_pool == ("deep",)


def test_reranked_lists_from_end_to_end() -> None:
    # g moves from rank 11 to rank 1 for q1, and from rank 1 to rank 11 for q2: 0 to 1, and 1 to 0
    tail = [f"x{i}" for i in range(10)]
    judged = Judgments.from_dict({"q1": {"g": 1}, "q2": {"g": 1}})
    first = Run.from_lists({"q1": [*tail, "g"], "q2": ["g", *tail]})
    second = Run.from_lists({"q1": ["g", *tail], "q2": [*tail, "g"]})
    found = classify(score(first, judged), score(second, judged), first, judged)
    assert (found.helped, found.hurt, found.n) == (("q1",), ("q2",), 2)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20))
def test_each_query_is_in_exactly_one_class(pairs: list[tuple[float, float]]) -> None:
    names = [f"q{i}" for i in range(len(pairs))]
    judged = Judgments.from_dict({name: {"g": 1} for name in names})
    before, after = (panel({name: pair[side] for name, pair in zip(names, pairs, strict=True)}) for side in (0, 1))
    found = classify(before, after, Run({}, 0), judged)
    classes = [*found.helped, *found.hurt, *found.tied, *found.zero_in_both]
    assert sorted(classes) == sorted(names)
    swapped = classify(after, before, Run({}, 0), judged)
    assert (swapped.helped, swapped.hurt) == (found.hurt, found.helped)


def test_what_cannot_be_compared_is_refused() -> None:
    pool = Run({}, 0)
    with pytest.raises(UserError, match="different queries"):
        classify(panel({"better": 0}), panel({"worse": 0}), pool, JUDGED)
    with pytest.raises(UserError, match="not computed for the first and the second"):
        classify(panel({"better": 0}), panel({"better": 0}), pool, JUDGED, "recall@10")
