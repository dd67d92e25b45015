"""A run in, a reranked run out: all queries at once, every failure counted, nothing that looks better than it is."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from obliq_eval.errors import UserError
from obliq_eval.records import Ranking, Run
from obliq_models.llm.ledger import Ledger
from obliq_models.llm.loop import Loop
from obliq_models.rerankers.base import Candidate, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    import datasets

    from obliq_models.rerankers.base import Reranked, Reranker

    Watch = Callable[[str, int, Ledger | None], AbstractContextManager[Callable[[], None]]]

THRESHOLD = 0.05
"""Share of failed questions above which a run is refused."""


@dataclass(frozen=True)
class Pools:
    """What is reranked: for each query its first documents, with their texts.

    Args:
        run: The run, exclusions applied.
        pools: `{query: its first documents}`.
        without_text: Queries of the run whose text is not known; they are left as they are.
    """

    run: Run
    pools: Mapping[Query, tuple[Candidate, ...]]
    without_text: int = 0


@dataclass(frozen=True)
class Staged:
    """A reranked run and how it came about.

    Args:
        run: The new run: the same documents for each query, those of its pool in their new order.
        answers: What the reranker returned, by query id.
        counts: For the manifest: calls, tokens and time by stage, failures, whatever was cut or repaired.
        seconds: Wall-clock time.
    """

    run: Run
    answers: Mapping[str, Reranked]
    counts: dict[str, int]
    seconds: float

    @property
    def questions(self) -> int:
        """Questions asked."""
        return sum(answer.questions for answer in self.answers.values())

    @property
    def failed(self) -> int:
        """Questions without a usable answer."""
        return sum(answer.failed for answer in self.answers.values())


def pools(run: Run, queries: Mapping[str, str], corpus: datasets.Dataset, task: str, depth: int) -> Pools:
    """Return the first `depth` documents of each query with their texts.

    Args:
        run: The run, exclusions applied.
        queries: `{query id: text}`.
        corpus: Table with the columns `id` and `text`, maybe `title`.
        task: Name of the task.
        depth: How many.

    Raises:
        UserError: If a document of a pool is not in the corpus.
    """
    first = {q: ranking.documents[:depth] for q, ranking in run.rankings.items() if q in queries}
    texts = texts_of(corpus, {document for documents in first.values() for document in documents})
    found = {
        Query(q, queries[q], task): tuple(Candidate(document, texts[document]) for document in documents)
        for q, documents in first.items()
    }
    return Pools(run, found, len(run.rankings) - len(found))


def texts_of(corpus: datasets.Dataset, wanted: Iterable[str]) -> dict[str, str]:
    """Return the texts of some documents, titles before them as mteb puts them.

    Raises:
        UserError: If the corpus lacks one.
    """
    from obliq_eval.data.corpus import ids_of
    from obliq_models.retrievers.base import Texts

    left = set(wanted)
    rows = {document: row for row, document in enumerate(ids_of(corpus)) if document in left}
    if missing := left - rows.keys():
        raise UserError(f"{len(missing):,} documents of the run are not in the corpus, among them {min(missing)!r}")
    return dict(zip(rows, Texts(corpus).select(list(rows.values())), strict=True))


def rerank(given: Pools, reranker: Reranker, *, threshold: float = THRESHOLD, watch: Watch | None = None) -> Staged:
    """Rerank every query, all of them at once; the order in which answers arrive changes nothing.

    Scores become the distance from the end of the list, which float32 tells apart, so that the canonical order is the
    new one. A reranker that moves nothing leaves the scores as they are.

    Args:
        given: The pools.
        reranker: What orders them.
        threshold: Share of failed questions above which nothing is returned.
        watch: From a name, the number of queries and the ledger to a context that is told of each finished query.

    Raises:
        UserError: If more questions failed than the threshold lets pass, a cross-encoder gives every query one score
            for all documents, or what is asked cannot be reached.
    """
    if not reranker.moves:
        return Staged(given.run, {}, {}, 0.0)
    client = reranker.client
    if client is not None:
        client.ledger = Ledger()  # of this run alone: a client may serve several
    started = perf_counter()
    with (watch or _unseen)(reranker.name, len(given.pools), client.ledger if client is not None else None) as done:
        found = _run(client, reranker.rerank_all(given.pools, done))
    seconds = perf_counter() - started
    answers = {query.id: answer for query, answer in zip(given.pools, found, strict=True)}
    _check(answers, {query.id: pool for query, pool in given.pools.items()}, reranker, threshold)
    rankings = dict(given.run.rankings) | {q: _moved(given.run.rankings[q], a.ids) for q, a in answers.items()}
    counts = _counts(answers, given, reranker)
    return Staged(Run(rankings, given.run.depth), answers, counts | (client.counts if client else {}), seconds)


def ordered(run: Run, orders: Mapping[str, Sequence[str]]) -> Run:
    """Return a run with the first documents of some queries in another order."""
    return Run(dict(run.rankings) | {q: _moved(run.rankings[q], ids) for q, ids in orders.items()}, run.depth)


def refused(name: str, failed: int, questions: int, threshold: float) -> UserError:
    """Return what to say of a run with too many failures."""
    return UserError(
        f"{name}: {failed:,} of {questions:,} questions ({failed / questions:.1%}) brought no usable answer, more than "
        f"the {threshold:.0%} that may fail, so nothing was stored: those queries would keep the first stage's order "
        "and pass for reranked ones. Every answer is kept in the cache: let answers be longer "
        "($OBLIQ_LLM_MAX_TOKENS) or name another model and run it again, or let more fail (`obliq rerank --failures`)"
    )


def failures(name: str, asked: int, failed: int) -> dict[str, int]:
    """Return, as counts for a manifest, how many questions were asked and how many of them failed."""
    found = {f"{name}: questions": asked, f"{name}: questions without a usable answer": failed}
    return {what: number for what, number in found.items() if number}


def _check(
    answers: Mapping[str, Reranked],
    pools: Mapping[str, Sequence[Candidate]],
    reranker: Reranker,
    threshold: float,
) -> None:
    for query, answer in answers.items():
        if sorted(answer.ids) != sorted(candidate.id for candidate in pools[query]):
            raise UserError(f"{reranker.name} did not return a permutation of the pool of query {query!r}")
    failed, questions = (sum(getattr(a, key) for a in answers.values()) for key in ("failed", "questions"))
    if questions and failed / questions > threshold:
        raise refused(reranker.name, failed, questions, threshold)
    constant = sum(answer.constant for answer in answers.values())
    if constant and constant == sum(len(pool) > 1 for pool in pools.values()):
        raise UserError(
            f"{reranker.name} gives all documents of a query the same score, for every query: it has ranked nothing; "
            "check that its weights were loaded and that it is a model for ranking"
        )


def _counts(answers: Mapping[str, Reranked], given: Pools, reranker: Reranker) -> dict[str, int]:
    total = sum((Counter(answer.counts) for answer in answers.values()), Counter())
    total["queries with such a question"] = sum(answer.failed > 0 for answer in answers.values())
    total["queries without a text, left as they were"] = given.without_text
    asked, failed = (sum(getattr(a, key) for a in answers.values()) for key in ("questions", "failed"))
    return failures(reranker.name, asked, failed) | {f"{reranker.name}: {what}": n for what, n in total.items() if n}


def _moved(ranking: Ranking, first: Sequence[str]) -> Ranking:
    """Return the ranking with these documents in front, in their order, and new scores."""
    documents = (*first, *ranking.documents[len(first) :])
    return Ranking(documents, np.arange(len(documents), 0, -1, dtype=np.float32))


def _run(client: Any, work: Coroutine[Any, Any, list[Reranked]]) -> list[Reranked]:
    if client is not None:
        found: list[Reranked] = client.run(work)
        return found
    loop = Loop()
    try:
        return loop.run(work)
    finally:
        loop.close(_nothing)


async def _nothing() -> None:
    """Leave the loop with nothing to end."""


def _unseen(_: str, __: int, ___: Ledger | None) -> AbstractContextManager[Callable[[], None]]:
    return nullcontext(lambda: None)
