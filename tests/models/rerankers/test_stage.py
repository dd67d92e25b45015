"""From run to reranked run: what stays, what is refused, what is counted."""

from __future__ import annotations

import json
from typing import Any

import datasets
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obliq_eval.analyses.cost import WHOLE, stages
from obliq_eval.errors import UserError
from obliq_eval.exclusions import candidates
from obliq_eval.manifest import Data, Manifest, Model
from obliq_eval.metrics import evaluate
from obliq_eval.records import Run
from obliq_models.rerankers import stage
from obliq_models.rerankers.base import Candidate, Query, Reranked, Reranker
from obliq_models.rerankers.crossencoder import CrossEncoder
from obliq_models.rerankers.identity import Identity
from obliq_models.rerankers.listwise import Listwise
from obliq_models.rerankers.tourrank import TourRank


class Backwards(Reranker):
    """Turns every pool round."""

    name, pool = "backwards", 100

    async def rerank(self, query: Query, pool: Any) -> Reranked:  # noqa: ARG002
        return Reranked(tuple(candidate.id for candidate in reversed(pool)))

    def settings(self, task: str = "") -> dict[str, Any]:  # noqa: ARG002
        return {}


class Scorer:
    """A cross-encoder of mteb's that scores a pair by what a function says of the document."""

    def __init__(self, score: Any) -> None:
        from mteb.models import ModelMeta

        self.mteb_model_meta = ModelMeta.create_empty({"name": "test/scorer", "revision": "7"})
        self.score = score

    def predict(self, inputs1: Any, inputs2: Any, **_: Any) -> Any:  # noqa: ARG002
        return np.array([self.score(text) for batch in inputs2 for text in batch["text"]])


def encoder(score: Any) -> CrossEncoder:
    from obliq_eval.tasks import MINI_TASKS

    return CrossEncoder(Scorer(score), name="scorer", task=MINI_TASKS[0].metadata)


def corpus(size: int) -> datasets.Dataset:
    return datasets.Dataset.from_dict(
        {"id": [f"d{i}" for i in range(size)], "text": [f"text {i}" for i in range(size)]}
    )


def ranked(size: int, queries: int = 1) -> Run:
    return Run.from_lists({f"q{q}": [f"d{i}" for i in range(size)] for q in range(queries)})


def given_pools(run: Run, depth: int = 100, size: int | None = None) -> stage.Pools:
    most = size or max(len(ranking) for ranking in run.rankings.values())
    return stage.pools(run, {q: f"text of {q}" for q in run.rankings}, corpus(most), "T", depth)


@settings(deadline=None, max_examples=20)
@given(size=st.integers(1, 300), depth=st.integers(1, 100))
def test_recall_at_100_stays_and_what_is_below_the_pool_keeps_its_order(size: int, depth: int) -> None:
    run = ranked(size)
    staged = stage.rerank(given_pools(run, depth), Backwards())
    before, after = run.rankings["q0"], staged.run.rankings["q0"]
    assert after.documents == (*before.documents[:depth][::-1], *before.documents[depth:])
    assert after.scores.dtype == np.float32
    assert (np.diff(after.scores) < 0).all()  # strictly, in the precision that decides ties
    again = Run.of(staged.run.to_dict()).rankings["q0"]
    assert again.documents == after.documents  # the canonical order is this very order
    gold = {"q0": {"d0": 1, f"d{min(size - 1, 99)}": 1, f"d{size - 1}": 1}}
    recall = [evaluate(each, gold, ["recall@100"], depth=1000).means() for each in (run, staged.run)]
    assert recall[0] == recall[1]


def test_excluded_documents_are_in_no_pool() -> None:
    """x1 .9, x2 .8, g .7; x1 and x2 excluded: the pool is g alone, NDCG@2 1.0."""
    run = Run.of({"q": {"x1": 0.9, "x2": 0.8, "g": 0.7}})
    barred = {"q": frozenset({"x1", "x2"})}
    table = datasets.Dataset.from_dict({"id": ["x1", "x2", "g"], "text": ["a", "b", "c"]})
    pools = stage.pools(run.without(barred, 3), {"q": "text"}, table, "T", 2)
    assert (
        [[c.id for c in pool] for pool in pools.pools.values()] == list(candidates(run, barred, 2).values()) == [["g"]]
    )
    staged = stage.rerank(pools, Backwards())
    assert evaluate(staged.run, {"q": {"g": 1}}, ["ndcg@2"]).means() == {"ndcg@2": 1.0}


def test_too_many_failures_are_no_reranked_run(asking: Any, requests: Any) -> None:
    """One of twenty queries is 5 %, which passes and is counted; two are 10 %, and nothing is returned."""
    run = ranked(3, queries=20)

    def failing(*bad: str) -> Any:
        return asking(function=lambda request: "no" if request.query in bad else '{"ranking": [3, 2, 1]}')

    staged = stage.rerank(given_pools(run), Listwise(failing("q0")))
    assert (staged.failed, staged.questions) == (1, 20)
    assert staged.run.rankings["q0"].documents == ("d0", "d1", "d2")
    assert staged.run.rankings["q1"].documents == ("d2", "d1", "d0")
    assert staged.counts["listwise: questions without a usable answer"] == 1
    assert staged.counts["listwise: queries with such a question"] == 1
    with pytest.raises(UserError, match=r"2 of 20 questions \(10\.0%\) .* more than the 5% .* kept in the cache"):
        stage.rerank(given_pools(run), Listwise(failing("q0", "q1")))
    stage.rerank(given_pools(run), Listwise(failing("q0", "q1")), threshold=0.1)


def test_what_it_cost_is_what_analyze_cost_reads(asking: Any) -> None:
    """TourRank, Y = 2, pools of ten: two calls for each tournament, three queries, twelve calls."""
    llm = asking(
        function=lambda request: json.dumps(
            {"selection": list(range(1, 1 + request.schema["properties"]["selection"]["minItems"]))}
        )
    )
    reranker = TourRank(llm, y=2, name="tourrank-y2")
    given = given_pools(ranked(10, queries=3))
    staged = stage.rerank(given, reranker)
    manifest = Manifest("T", Data("T", "1", "mini"), Model("o/m"), 10, 3, counts=staged.counts)
    whole, one = stages(manifest)
    assert (whole.name, one.name, one.queries, one.calls) == (WHOLE, "tourrank-y2", 3, 12)
    assert one.prompt_tokens
    again = stage.rerank(given, reranker)  # each run counts for itself, though one client serves both
    assert again.counts["tourrank-y2: calls"] == 12
    assert again.run.to_dict() == staged.run.to_dict()


def test_identity_moves_nothing_and_keeps_the_scores() -> None:
    run = Run.of({"q": {"d0": 0.75, "d1": 0.5}})
    staged = stage.rerank(given_pools(run), Identity())
    assert staged.run is run
    assert (staged.questions, staged.counts) == (0, {})


def test_a_query_without_a_text_is_left_as_it_is_and_counted() -> None:
    run = ranked(3, queries=2)
    pools = stage.pools(run, {"q0": "text"}, corpus(3), "T", 100)
    staged = stage.rerank(pools, Backwards())
    assert staged.run.rankings["q0"].documents == ("d2", "d1", "d0")
    assert staged.run.rankings["q1"] is run.rankings["q1"]
    assert staged.counts == {"backwards: queries without a text, left as they were": 1}


def test_a_document_that_the_corpus_lacks_is_named() -> None:
    with pytest.raises(UserError, match="1 documents of the run are not in the corpus, among them 'd2'"):
        given_pools(ranked(3), size=2)


def test_a_cross_encoder_orders_by_score_and_ties_keep_their_order() -> None:
    """Scores 0, 1, 2, 0, 1, 2: 2 and 5 first, then 1 and 4, then 0 and 3."""
    model = encoder(lambda text: int(text.split()[1]) % 3)
    staged = stage.rerank(given_pools(ranked(6, queries=2)), model)
    for query in ("q0", "q1"):
        assert staged.run.rankings[query].documents == ("d2", "d5", "d1", "d4", "d0", "d3")
    assert model.settings() == {"reranker": "test/scorer", "revision": "7", "pool": 100}


def test_constant_scores_are_noticed() -> None:
    with pytest.raises(UserError, match="the same score, for every query: it has ranked nothing"):
        stage.rerank(given_pools(ranked(4, queries=3)), encoder(lambda _: 0.5))
    run = Run.from_lists({"q0": ["d0", "d1"], "q1": ["d2", "d3"], "q2": ["d4"]})
    model = encoder(lambda text: min(int(text.split()[1]), 1))
    staged = stage.rerank(stage.pools(run, dict.fromkeys(run.rankings, "text"), corpus(5), "T", 100), model)
    assert staged.run.rankings["q0"].documents == ("d1", "d0")
    assert staged.counts == {"scorer: queries with one score for all documents": 1}


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_scores_that_are_no_numbers_are_refused(score: float) -> None:
    with pytest.raises(UserError, match="not a finite number"):
        stage.rerank(given_pools(ranked(2)), encoder(lambda _: score))


def test_a_reranker_that_loses_a_document_is_refused() -> None:
    class Loses(Backwards):
        async def rerank(self, query: Query, pool: Any) -> Reranked:  # noqa: ARG002
            return Reranked(tuple(candidate.id for candidate in pool[1:]))

    with pytest.raises(UserError, match="did not return a permutation of the pool of query 'q0'"):
        stage.rerank(given_pools(ranked(3)), Loses())


def test_titles_stand_before_texts_as_the_retriever_reads_them() -> None:
    table = datasets.Dataset.from_dict({"id": ["a", "b"], "title": ["T", ""], "text": ["x", "y"]})
    assert stage.texts_of(table, ["b", "a"]) == {"a": "T x", "b": "y"}
    pools = stage.pools(Run.from_lists({"q": ["b", "a"]}), {"q": "text"}, table, "T", 9)
    assert pools.pools == {Query("q", "text", "T"): (Candidate("b", "y"), Candidate("a", "T x"))}
