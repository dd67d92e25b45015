"""What a manifest is told of the calls, worked out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from obliq_eval.analyses.cost import Stage, stages
from obliq_eval.manifest import Manifest
from obliq_models.llm.ledger import Ledger, Line
from obliq_models.llm.protocol import Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from obliq_models.llm.protocol import Request


def test_counts_are_what_the_cost_table_reads(ask: Callable[..., Request]) -> None:
    """Two queries of one stage, overlapping from 0 to 3 and alone from 5 to 6: four seconds of wall clock."""
    now = iter([0.0, 3.0, 5.0, 6.0])
    ledger = Ledger(lambda: next(now))
    first, second = ask(stage="tourrank", query="q1"), ask(stage="tourrank", query="q2")
    ledger.begin(first)
    ledger.begin(second)
    ledger.answered(first, Response("x", "stop", 100, 10, seconds=2.0))
    ledger.end(first)
    ledger.answered(second, Response("x", "length", 50, 5, seconds=2.0))
    ledger.end(second)
    ledger.begin(second)
    ledger.answered(second, Response("x", "stop", 50, 5, seconds=1.0))
    ledger.end(second)
    counts = ledger.counts()
    assert counts == {
        "tourrank: queries": 2,
        "tourrank: calls": 3,
        "tourrank: prompt tokens": 200,
        "tourrank: completion tokens": 20,
        "tourrank: batch microseconds": 4_000_000,
        "tourrank: unfinished answers": 1,
    }
    manifest = Manifest.__new__(Manifest)
    object.__setattr__(manifest, "counts", counts)
    object.__setattr__(manifest, "n_queries", 2)
    object.__setattr__(manifest, "seconds", 9.0)
    assert stages(manifest)[1] == Stage("tourrank", 2, 4.0, None, 3, 200, 20)


def test_stored_answers_cost_the_system_as_much_but_no_time_is_known(ask: Callable[..., Request]) -> None:
    ledger = Ledger()
    ledger.answered(ask(query="q1"), Response("x", "stop", 100, 10, seconds=2.0, cached=True))
    assert ledger.counts() == {
        "language model: queries": 1,
        "language model: calls": 1,
        "language model: prompt tokens": 100,
        "language model: completion tokens": 10,
        "language model: answers from the cache": 1,
    }
    assert ledger.total().calls == 0
    assert ledger.total().seconds == 0


def test_lines_by_stage_and_query(ask: Callable[..., Request]) -> None:
    ledger = Ledger()
    for query, tokens in (("q1", 1), ("q1", 2), ("q2", 4)):
        ledger.answered(ask(stage="s", query=query), Response("x", "stop", tokens, 0))
    assert {query: line["prompt_tokens"] for query, line in ledger.as_json()["s"].items()} == {"q1": 3, "q2": 4}
    assert ledger.by_stage()["s"] == Line(answers=3, prompt_tokens=7)
