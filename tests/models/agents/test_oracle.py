"""The oracle's tournament: pools, batches, the order of the rest, solutions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obliq_eval.delimited import find
from obliq_eval.demo.personalities import malformed, perfect
from obliq_eval.errors import UserError
from obliq_eval.records import Judgments
from obliq_models.agents.bracket import MATH, Shape, batches, calls, shuffled, woven
from obliq_models.agents.oracle import Oracle, read_solutions
from tests.models.agents.conftest import Scored, Words, delayed, played

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from obliq_models.llm.protocol import Request

LARGE = {f"d {i}/é": f"text number {i}" for i in range(300)}
QUERIES = {"q1": "number 1", "q2": "number 2"}
GOLD = Judgments({"q1": {"d 250/é": 2, "d 251/é": 0, "d 3/é": 1, "gone": 1}, "q2": {"d 260/é": 1, "d 261/é": 1}})
POOLED = Judgments({"q1": {"d 270/é": 1}, "q2": {}})
JUDGED = {"gold": GOLD, "pooled": POOLED}


def shown(request: Request) -> list[int]:
    """Return the numbers in the texts of a prompt's documents."""
    found = find(request.messages[-1][1])
    assert found is not None
    return [int(text.split()[-1]) for text in found.documents]


def smallest(request: Request) -> str:
    """Rank by the number in the text, the smallest first."""
    numbers = shown(request)
    order = sorted(range(len(numbers)), key=lambda at: numbers[at])
    return json.dumps({"ranking": [at + 1 for at in order]})


def oracle(build: Any, answer: Any, *retrievers: Any, judged: Any = JUDGED, **more: Any) -> Any:
    agent = build(Oracle, answer, *(retrievers or (Words(),)), **more)
    agent.judgments = judged
    return agent


def test_the_pool_holds_what_is_found_and_every_judged_document_but_excluded_ones(build: Any, searched: Any) -> None:
    """Ten found; q1 has 250, 251 (judged 0), 3 and 270 (pooled), of which it excludes 250; the corpus lacks `gone`."""
    agent = oracle(build, smallest, depth=10)
    found = searched(agent, LARGE, QUERIES, {"q1": ["d 250/é"]})
    assert {"d 251/é", "d 3/é", "d 270/é"} <= set(found["q1"])
    assert "d 250/é" not in found["q1"]
    assert {"d 260/é", "d 261/é"} <= set(found["q2"])
    assert all(len(answer) == len(set(answer)) <= 14 for answer in found.values())
    assert agent.counts["oracle-tournament: judged documents that the corpus lacks"] == 1
    numbers = [int(d.split()[1].partition("/")[0]) for d in found["q1"]]
    assert numbers == sorted(numbers), "one call ranks a pool of at most 20"
    assert len(agent.backend.requests) == 2


def test_the_pool_is_the_union_of_several_retrievers(build: Any, searched: Any) -> None:
    corpus = {"a": "n 1", "b": "n 2", "c": "n 3", "d": "n 4"}
    first, second = Scored({"x": {"n 1": 2.0, "n 2": 1.0}}), Scored({"x": {"n 3": 2.0, "n 1": 1.0}})
    agent = oracle(build, smallest, first, second, judged={"gold": Judgments({"q": {"c": 1}})}, depth=2)
    assert searched(agent, corpus, {"q": "x"}) == {"q": ["a", "b", "c"]}
    assert agent.counts["r1: queries"] == 1
    alone = oracle(build, smallest, judged={"gold": Judgments({"q": {"c": 1}})}, depth=0)
    assert searched(alone, corpus, {"q": "x"}) == {"q": ["c"]}
    assert not alone.backend.requests, "one document needs no call"


def slow(pool: Iterable[int], shape: Shape, seed: str, level: int = 0) -> list[int]:
    """The tournament as it is described: recursive, with a judge that prefers the smaller number."""
    mixed = shuffled(sorted(pool), f"{seed}/{level}")
    if len(mixed) <= shape.whole:
        return sorted(mixed)
    dealt = [sorted(mixed[at : at + shape.batch]) for at in range(0, len(mixed), shape.batch)]
    promoted = [place for batch in dealt for place in batch[: shape.promote]]
    tails = [batch[shape.promote :] for batch in dealt]
    rest = [tail[at] for at in range(shape.batch) for tail in tails if at < len(tail)]
    return slow(promoted, shape, seed, level + 1) + rest


@pytest.mark.parametrize(("size", "shape"), [(20, Shape()), (21, Shape()), (137, Shape()), (16, MATH), (75, MATH)])
def test_every_level_as_the_description_has_it(build: Any, searched: Any, size: int, shape: Shape) -> None:
    """Places in the pool follow the number in the text here, so the slow description can work on places."""
    corpus = {f"d{i:03}": f"n {i}" for i in range(size)}
    retriever = Scored({"x": {text: 1000.0 - i for i, text in enumerate(corpus.values())}})
    judged = {"gold": Judgments({"q": {"d000": 1}})}
    agent = oracle(build, smallest, retriever, judged=judged, depth=size, shape=shape, seed=7)
    found = searched(agent, corpus, {"q": "x"})["q"]
    assert found == [f"d{i:03}" for i in slow(range(size), shape, "7/q")]
    assert len(agent.backend.requests) == calls(size, shape) == agent.calls(size)
    other = oracle(build, smallest, retriever, judged=judged, depth=size, shape=shape, seed=8)
    assert searched(other, corpus, {"q": "x"})["q"][0] == "d000", "the best wins whatever the shuffle"


def test_the_calls_of_some_pools() -> None:
    """Batches that go on as a whole need no call.

    21: one batch of 20 and one of 1, then 4 + 1 in one call. 41: two batches, then 9. 100: five, then 20. 101: five,
    then 21 as before. 17 under Math's shape: 6, 6, 5, then 6.
    """
    assert [calls(n, Shape()) for n in (0, 1, 2, 20, 21, 41, 100, 101)] == [0, 0, 1, 1, 2, 3, 6, 5 + 2]
    assert [calls(n, MATH) for n in (16, 17)] == [1, 4]
    assert woven([[1, 2, 3], [], [4], [5, 6]]) == [1, 4, 5, 2, 6, 3]
    assert batches([3, 1, 2], 2) == [[3, 1], [2]]


@given(st.integers(0, 400), st.integers(2, 30), st.data())
@settings(max_examples=60, deadline=None)
def test_a_tournament_loses_nobody_and_ends(pool: int, batch: int, data: Any) -> None:
    promote = data.draw(st.integers(1, batch - 1))
    shape = Shape(batch, promote, data.draw(st.integers(max(2, promote), 40)))
    assert sorted(slow(range(pool), shape, "s")) == list(range(pool))
    assert calls(pool, shape) <= max(pool, 1)


@pytest.mark.parametrize("sizes", [(4, 4, 20), (20, 0, 20), (20, 4, 3), (2, 1, 1)])
def test_a_shape_that_never_ends_is_refused(sizes: Sequence[int]) -> None:
    with pytest.raises(UserError, match="never come to an end"):
        Shape(*sizes)


def test_math_has_its_own_shape(build: Any) -> None:
    agent = oracle(build, smallest)
    assert [agent.shape_for(t) for t in ("OBLIQ-Math", "OBLIQ-Mini-Math", "mine")] == [MATH, MATH, Shape()]
    assert oracle(build, smallest, shape=Shape(5, 1)).shape_for("OBLIQ-Math") == Shape(5, 1)


def test_the_perfect_judge_puts_every_relevant_document_first(build: Any, searched: Any) -> None:
    right = {q: {d for d, g in GOLD.grades[q].items() if g > 0 and d in LARGE} for q in QUERIES}
    judge = perfect({QUERIES[q]: {LARGE[d] for d in documents} for q, documents in right.items()})
    found = searched(oracle(build, played(judge)), LARGE, QUERIES)
    for query, documents in right.items():
        assert set(found[query][: len(documents)]) == documents


def test_a_batch_without_an_answer_keeps_the_order_of_the_pool(build: Any, searched: Any) -> None:
    """The retriever's documents come first in it, so that nothing judged gains by a failure."""
    agent = oracle(build, lambda r: "no" if r.query == "q1" else smallest(r), failures=1.0, depth=30)
    found = searched(agent, LARGE, QUERIES)
    assert found["q1"] == [], "every question about q1 failed"
    assert len(found["q2"]) >= 30

    failed: list[Request] = []

    def first_fails(request: Request) -> str:
        if not failed or failed[0].messages == request.messages:
            failed.append(request)
            return "no"
        return smallest(request)

    corpus = {f"d{i:03}": f"n {i}" for i in range(21)}
    retriever = Scored({"x": {text: float(i) for i, text in enumerate(corpus.values())}})
    agent = oracle(
        build, first_fails, retriever, judged={"gold": Judgments({"q": {"d000": 1}})}, depth=20, failures=1.0
    )
    found = searched(agent, corpus, {"q": "x"})
    batch = set(shown(failed[0]))
    kept = sorted(batch, key=lambda n: (n == 0, -n))[:4]
    assert {int(d[1:]) for d in found["q"]} == set(range(21))
    assert set(kept) <= {int(d[1:]) for d in found["q"][:5]}, "the first four of the pool's order went on"


def test_malformed_answers_are_refused_or_counted(build: Any, searched: Any) -> None:
    agent = oracle(build, played(malformed()), failures=1.0)
    found = searched(agent, LARGE, QUERIES)
    assert all(len(answer) == len(set(answer)) for answer in found.values())
    assert agent.counts["oracle-tournament: repaired answers"] > 0


def test_the_order_of_answers_changes_nothing(build: Any, searched: Any) -> None:
    once = searched(oracle(build, smallest), LARGE, QUERIES)
    for seed in range(3):
        assert searched(oracle(build, delayed(smallest, seed)), LARGE, QUERIES) == once


def test_without_judgments_nothing_is_indexed(build: Any, searched: Any) -> None:
    retriever = Words()
    agent = oracle(build, smallest, retriever, judged=None)
    with pytest.raises(UserError, match="oracle-tournament was shown no judgments"):
        searched(agent, LARGE, QUERIES)
    assert not hasattr(retriever, "texts")


def test_only_candidates_are_ranked_where_there_are_any(build: Any, searched: Any) -> None:
    found = searched(oracle(build, smallest), LARGE, QUERIES, top_ranked={"q1": ["d 3/é", "d 9/é"], "q2": []})
    assert found == {"q1": ["d 3/é", "d 9/é"], "q2": []}


def test_the_judge_sees_solutions_where_there_are_any(build: Any, searched: Any, tmp_path: Path) -> None:
    file = tmp_path / "corpus.jsonl"
    rows = [{"_id": "a", "text": "n 1", "solution": "by induction"}, {"id": "b", "text": "n 2"}]
    file.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    told = read_solutions(file)
    assert told == {"a": "by induction"}
    judged = {"gold": Judgments({"q": {"a": 1, "b": 1}})}
    agent = oracle(build, lambda _: '{"ranking": [1, 2]}', judged=judged, solutions=told)
    searched(agent, {"a": "n 1", "b": "n 2"}, {"q": "x"})
    (request,) = agent.backend.requests
    found = find(request.messages[-1][1])
    assert found is not None
    assert set(found.documents) == {"n 1\n\nSolution: by induction", "n 2"}
    assert "technique" in request.messages[0][1]
    assert agent.counts["oracle-tournament: documents without a solution"] == 1
    assert agent.settings()["prompts"][0].startswith("oracle-solution@")
    stranger = oracle(build, smallest, judged=judged, solutions={"z": "s"})
    with pytest.raises(UserError, match="no solution of any document of this corpus"):
        searched(stranger, {"a": "n 1", "b": "n 2"}, {"q": "x"})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"_id": "a", "text": "t"}', "has no solution to show"),
        ('{"_id": 1, "solution": "s"}', "line 1: expected an object"),
        ("[]", "line 1: expected an object"),
        ('{"_id": "a", "solution": "s"}\n{"_id": "a", "solution": "t"}', "line 2: document 'a' has another solution"),
    ],
)
def test_a_file_without_solutions_is_refused(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "s.jsonl").write_text(content, "utf-8")
    with pytest.raises(UserError, match=sentence):
        read_solutions(tmp_path / "s.jsonl")
