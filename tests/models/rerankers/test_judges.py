"""Judges of several qualities over the bundled sets: the ceiling, the topical fallback, noise and depth."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval.analyses.oracle import ceiling
from obliq_eval.commands.demo import gold_texts
from obliq_eval.data.sources import load
from obliq_eval.demo.personalities import noisy, perfect, topical
from obliq_eval.metrics import score
from obliq_eval.records import Run
from obliq_models.rerankers import stage, sweep
from obliq_models.rerankers.listwise import Listwise
from obliq_models.rerankers.tourrank import TourRank

if TYPE_CHECKING:
    from obliq_eval.records import Dataset

CONGRESS, WRITING = "OBLIQ-Mini-Congress", "OBLIQ-Mini-Writing"


@cache
def searched(task: str, model: str, queries: int) -> tuple[Dataset, Run]:
    """Return some queries of a task and a retriever's first hundred documents for them."""
    import datasets

    from obliq_eval.exclusions import EXCLUDED_COLUMN
    from obliq_models.retrievers import bm25, stylometry

    whole = load(task)
    data = whole.only(list(whole.queries)[:: max(1, len(whole.queries) // queries)])
    retriever: Any = {"bm25": bm25.load, "stylometry": stylometry.load}[model](f"obliq/{model}")
    retriever.index(data.corpus.documents)
    table = datasets.Dataset.from_dict(
        {
            "id": list(data.queries),
            "text": list(data.queries.values()),
            EXCLUDED_COLUMN: [sorted(data.exclusions.get(query, ())) for query in data.queries],
        }
    )
    return data, Run.of(retriever.search(table, top_k=100), 100)


def ndcg(run: Run, data: Dataset) -> float:
    return score(run, data.gold, ["ndcg@10"]).means()["ndcg@10"] or 0.0


def rerank(data: Dataset, run: Run, reranker: Any) -> stage.Staged:
    return stage.rerank(stage.pools(run, data.queries, data.corpus.documents, data.name, reranker.pool), reranker)


def test_a_perfect_judge_reaches_the_ceiling_that_the_pool_allows(asking: Any) -> None:
    """Congress has one right passage for each query. One call over all hundred puts it first if it is there.

    TourRank chooses two in its last round, so one tournament may put another before it; five tournaments hardly do.
    """
    data, run = searched(CONGRESS, "bm25", 6)
    best = dict(zip((c := ceiling(run, data.gold)).pools, c.perfect, strict=True))[100]
    assert best is not None
    assert 0 < ndcg(run, data) < best < 1
    llm = asking(perfect(gold_texts([CONGRESS])))
    assert ndcg(rerank(data, run, Listwise(llm, k=100, pool=100)).run, data) == pytest.approx(best)
    tourrank = rerank(data, run, TourRank(llm, y=5))
    assert ndcg(tourrank.run, data) == pytest.approx(best)
    one = ndcg(sweep.at(run, tourrank.answers, 1), data)
    assert best - 0.37 * best <= one <= best  # at worst in place 2: 1 / log2(3) = .63 of it


def test_a_call_over_fewer_documents_has_a_lower_ceiling(asking: Any) -> None:
    """The perfect judge rises with K, since the pool is all that holds it back (Appendix F's other side)."""
    data, run = searched(CONGRESS, "bm25", 12)
    llm = asking(perfect(gold_texts([CONGRESS])))
    values = [ndcg(rerank(data, run, Listwise(llm, k=k, pool=k)).run, data) for k in (10, 50, 100)]
    assert ndcg(run, data) <= values[0] <= values[1] <= values[2]
    assert values[0] < values[2]


def test_a_topical_judge_hurts_writing(asking: Any) -> None:
    """Section 6.3 in small: style is what counts; a judge that falls back on topic does harm, the deeper the more."""
    data, run = searched(WRITING, "bm25", 228)
    llm = asking(topical())
    values = [ndcg(run, data)]
    for k in (20, 50):
        staged = rerank(data, run, Listwise(llm, k=k, pool=k))
        values.append(ndcg(staged.run, data))
        assert staged.failed == 0
        hundred = [score(each, data.gold, ["recall@100"]).means()["recall@100"] for each in (run, staged.run)]
        assert hundred[0] == hundred[1]
    assert values[0] > values[1] > values[2]
    tourrank = rerank(data, run, TourRank(llm, y=1, pool=20))
    assert ndcg(tourrank.run, data) < values[0]


def test_more_tournaments_help_against_noise(asking: Any) -> None:
    """A judge that puts every second document anywhere: points of five tournaments average what one gets wrong."""
    data, run = searched(CONGRESS, "bm25", 12)
    staged = rerank(data, run, TourRank(asking(noisy(perfect(gold_texts([CONGRESS])), 0.5)), y=5))
    one, five = (ndcg(sweep.at(run, staged.answers, y), data) for y in (1, 5))
    assert one < five
