"""The query rewriter: what is searched for, and what happens where there is no rewrite."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval.delimited import find
from obliq_eval.errors import UserError
from obliq_models.agents.rewriter import Rewriter, read_query
from obliq_models.llm.protocol import CallError
from tests.models.agents.conftest import Scored, delayed

if TYPE_CHECKING:
    from collections.abc import Callable

    from obliq_models.llm.protocol import Request

CORPUS = {"a": "cats", "b": "dogs", "7": "birds"}
SCORES = {
    "one": {"cats": 3.0, "dogs": 2.0, "birds": 1.0},
    "two": {"cats": 1.0, "dogs": 2.0, "birds": 3.0},
    "ONE": {"cats": 1.0, "dogs": 2.0, "birds": 3.0},
    "TWO": {"cats": 3.0, "dogs": 2.0, "birds": 1.0},
}
QUERIES = {"q1": "one", "q2": "two"}


def loud(request: Request) -> str:
    """Rewrite a query in capitals."""
    found = find(request.messages[-1][1])
    assert found is not None
    return json.dumps({"query": found.query.upper()})


def only_the_first(request: Request) -> str:
    return loud(request) if request.query == "q1" else "I would rather not."


def test_the_retriever_is_asked_for_the_rewritten_queries_in_one_search(build: Any, searched: Any) -> None:
    """ONE is scored as two is, so q1 gets birds, dogs, cats; q2 the other way round, but for b, which it excludes."""
    retriever = Scored(SCORES)
    agent = build(Rewriter, loud, retriever)
    assert searched(agent, CORPUS, QUERIES, {"q2": ["b"]}) == {"q1": ["7", "b", "a"], "q2": ["a", "7"]}
    assert retriever.asked == [["ONE", "TWO"]]
    assert len(agent.backend.requests) == 2 == agent.calls() * len(QUERIES)
    assert agent.counts["rewrite: calls"] == 2
    assert agent.counts["r0: queries"] == 2
    assert agent.counts["query-rewriter: questions"] == 2
    assert searched(agent, CORPUS, QUERIES, top_k=1) == {"q1": ["7"], "q2": ["a"]}


def test_a_query_without_a_rewrite_is_searched_as_it_is_counted_and_named(
    build: Any, searched: Any, caplog: pytest.LogCaptureFixture
) -> None:
    agent = build(Rewriter, only_the_first, Scored(SCORES), failures=0.5)
    assert searched(agent, CORPUS, QUERIES) == {"q1": ["7", "b", "a"], "q2": ["7", "b", "a"]}
    assert agent.retriever.model.asked == [["ONE", "two"]]
    assert agent.counts["query-rewriter: queries searched as they were"] == 1
    assert agent.counts["query-rewriter: questions without a usable answer"] == 1
    assert agent.counts["rewrite: answers that could not be read"] == 2, "it was asked twice"
    assert "query-rewriter: 1 of 2 queries had a question without a usable answer: q2" in caplog.text


def test_too_many_failures_are_refused(build: Any, searched: Any) -> None:
    with pytest.raises(UserError, match=r"1 of 2 questions \(50.0%\) brought no usable answer, more than the 5%"):
        searched(build(Rewriter, only_the_first, Scored(SCORES)), CORPUS, QUERIES)


def test_a_refused_request_costs_its_query_alone_and_a_silent_server_ends_the_search(build: Any, searched: Any) -> None:
    def refusing(which: tuple[str, ...], **how: Any) -> Callable[[Request], str]:
        def answer(request: Request) -> str:
            if request.query in which:
                raise CallError(f"no answer for {request.query}", **how)
            return loud(request)

        return answer

    one = build(Rewriter, refusing(("q2",)), Scored(SCORES), failures=0.5)
    assert searched(one, CORPUS, QUERIES)["q1"] == ["7", "b", "a"]
    with pytest.raises(UserError, match="no answer for q1"):
        searched(build(Rewriter, refusing(("q1", "q2")), Scored(SCORES), failures=1.0), CORPUS, QUERIES)
    with pytest.raises(UserError, match=r"no answer for q2 \(2 attempts\)"):
        searched(build(Rewriter, refusing(("q2",), retriable=True), Scored(SCORES), failures=1.0), CORPUS, QUERIES)


def test_the_order_of_answers_changes_nothing(build: Any, searched: Any) -> None:
    queries = {f"q{i}": ("one", "two")[i % 2] for i in range(20)}
    once = searched(build(Rewriter, loud, Scored(SCORES)), CORPUS, queries)
    for seed in range(3):
        assert searched(build(Rewriter, delayed(loud, seed), Scored(SCORES)), CORPUS, queries) == once


def test_candidates_of_an_earlier_run_are_kept_to(build: Any, searched: Any) -> None:
    agent = build(Rewriter, loud, Scored(SCORES))
    given = {"q1": ["a", "b"], "q2": []}
    assert searched(agent, CORPUS, QUERIES, top_ranked=given) == {"q1": ["b", "a"], "q2": []}


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ('```json\n{"query": "a \\alpha b"}\n```', "a \\alpha b"),
        ('<think>{"query": "no"}</think>{"query": " yes "}', "yes"),
        ('{"query": ["a"]}', None),
        ('{"query": ""}', None),
        ('{"query": "cut', None),
        ("", None),
    ],
)
def test_what_counts_as_a_rewrite(text: str, query: str | None) -> None:
    assert read_query(text) == query


def test_one_retriever_is_needed(build: Any) -> None:
    with pytest.raises(UserError, match="needs a retriever"):
        build(Rewriter, loud)
    with pytest.raises(UserError, match="failures is 2"):
        build(Rewriter, loud, Scored({}), failures=2)
