"""Cost by stage, from manifests; latency on a clock of the test's own."""

from __future__ import annotations

from itertools import chain, pairwise

import pytest

from obliq_eval.analyses.cost import COLUMNS, WHOLE, Stage, single_query_seconds, stage_counts, stages
from obliq_eval.analyses.latency import evenly
from obliq_eval.manifest import Data, Manifest, Model

# Table 8: 48 ms for the dense stage, and 8.2 s and 65 calls for TourRank with five tournaments
DENSE = Stage("dense", 512, single_seconds=0.048, calls=0)
TOURRANK = Stage("tourrank: y=5", 512, 900.5, 8.2, 65 * 512, 512 * 40_000, 512 * 100)


def manifest(counts: dict[str, int], seconds: float | None = 1024.0) -> Manifest:
    return Manifest("T", Data("T", "1", "mini"), Model("o/m"), 100, 512, counts=counts, seconds=seconds)


def test_what_a_stage_writes_down_is_read_again() -> None:
    other = {"truncated document texts": 7, "odd: name": 1}
    found = stages(manifest({**other, **stage_counts(DENSE), **stage_counts(TOURRANK)}))
    assert found == (Stage(WHOLE, 512, batch_seconds=1024.0), DENSE, TOURRANK)


def test_rows_are_by_query_and_unknown_is_not_zero() -> None:
    whole, dense, tourrank = stages(manifest({**stage_counts(DENSE), **stage_counts(TOURRANK)}))
    assert whole.row("s", "m") == ["s", WHOLE, 512, None, 2000.0, 0.5, None, None, None, "m"]
    assert dense.row("s", "")[3:] == [48.0, None, None, 0.0, None, None, None]
    assert tourrank.row("s", "m")[6:9] == [65.0, 40_000.0, 100.0]
    assert len(whole.row("s", "m")) == len(COLUMNS)
    assert stages(manifest({}, None)) == (Stage(WHOLE, 512),)
    assert Stage("none", 0, batch_seconds=1.0).row("s", "m")[4:6] == [None, None]


def test_a_single_query_is_timed_alone_after_a_warm_up() -> None:
    asked: list[str] = []
    # three queries take 5, 1 and 2 seconds: the median is 2
    ticks = chain([0, 5, 10, 11, 20, 22])
    seconds = single_query_seconds(asked.append, ["a", "b", "c"], warm_up=2, clock=lambda: float(next(ticks)))
    assert seconds == 2.0
    assert asked == ["a", "b", "a", "b", "c"]
    with pytest.raises(ValueError, match="at least one query"):
        single_query_seconds(asked.append, [])


@pytest.mark.parametrize(("length", "count"), [(10, 3), (3, 10), (7, 7), (0, 5)])
def test_timed_queries_are_spread_over_all(length: int, count: int) -> None:
    rows = evenly(length, count)
    assert len(rows) == min(length, count)
    assert all(0 <= a < b < length for a, b in pairwise(rows))
    assert evenly(10, 3) == [0, 3, 6]
