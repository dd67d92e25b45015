"""The frozen records that cross every boundary: corpora, judgments, data sets and runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from obliq_eval.errors import UserError, raise_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import datasets
    from numpy.typing import NDArray

Coverage = Literal["all", "dev", "test", "held-out"]
UNANSWERED = "obliq:unanswered"
"""Reserved document id: it stands in an empty answer, which mteb would drop from its means."""
LARGEST_GRADE = 1_000
"""trec_eval keeps an array as long as the largest grade: 300 million takes 3 GB, and 1e15 ends the process."""


@dataclass(frozen=True)
class Corpus:
    """Documents, and nothing that says which of them answer a query.

    Args:
        name: Name of the task or folder.
        revision: Commit of the source, or the hash of its content.
        documents: Arrow table on disk with the string columns `id` and `text`.
        source: Kind of source: `hub`, `mirror`, `mini`, `folder` or `beir`.
    """

    name: str
    revision: str
    documents: datasets.Dataset
    source: str = "folder"

    def __len__(self) -> int:
        return len(self.documents)


def id_fault(identifier: object) -> str | None:
    """Return why something cannot be an id, or `None` if it can.

    An id is a string of Unicode characters other than NUL, at which trec_eval would cut it off.
    """
    if not isinstance(identifier, str):
        return f'the id {identifier!r} is not a string ("007", not 7)'
    if "\0" in identifier:
        return f"the id {identifier!r} holds a NUL character, at which trec_eval would cut it off; take it out"
    try:
        identifier.encode()
    except UnicodeEncodeError:
        return f"the id {identifier!r} is not valid Unicode, so no file can hold it; replace or drop it"
    return None


def document_fault(identifier: object) -> str | None:
    """Return why something cannot be a document's id, or `None` if it can; see `id_fault`."""
    if identifier == UNANSWERED:
        return f"the document id {identifier!r} is reserved: it stands for an empty answer; rename the document"
    return id_fault(identifier)


def parse_number(text: str) -> float:
    """Return the number that a text spells, in ASCII and without the underscores that Python allows in it.

    Raises:
        ValueError: If it spells none.
    """
    if not text.isascii() or "_" in text:
        raise ValueError(f"{text[:40]!r} is not a number")
    return float(text)


def parse_grade(value: object) -> int:
    """Return a relevance grade as an integer.

    Args:
        value: An integer, or a number or text that equals one ("1.0" is 1), at most `LARGEST_GRADE` either way.

    Raises:
        ValueError: If the value is not such a number.
    """
    shown = repr(value)[:40]
    try:
        number = parse_number(str(value))
    except ValueError as error:
        raise ValueError(f"grade {shown} is not a whole number") from error
    if not math.isfinite(number) or number != int(number):
        raise ValueError(f"grade {shown} is not a whole number")
    if abs(number) > LARGEST_GRADE:
        raise ValueError(f"grade {shown} is beyond {LARGEST_GRADE:,}, the largest that is taken")
    return int(number)


@dataclass(frozen=True)
class Judgments:
    """Relevance grades by query and document; a grade above 0 is relevant.

    Args:
        grades: `{query id: {document id: grade}}`, ids as strings, verbatim.
    """

    grades: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str, object]], source: str = "judgments") -> Judgments:
        """Build judgments from `(query id, document id, grade)` rows; a generator is consumed once.

        Raises:
            UserError: If an id is none, a grade is not a whole number of at most `LARGEST_GRADE`, or a pair is judged
                twice with different grades.
        """
        grades: dict[str, dict[str, int]] = {}
        problems: list[str] = []
        for query, document, value in rows:
            if fault := id_fault(query) or document_fault(document):
                problems.append(fault)
                continue
            try:
                grade = parse_grade(value)
            except ValueError as error:
                problems.append(f"query {query!r}, document {document!r}: {error}; trec_eval's measures take integers")
                continue
            known = grades.setdefault(query, {}).setdefault(document, grade)
            if known != grade:
                problems.append(f"query {query!r}, document {document!r} is judged both {known} and {grade}")
        raise_all(problems, source)
        return cls(grades)

    @classmethod
    def from_dict(cls, grades: Mapping[str, Mapping[str, object]]) -> Judgments:
        """Build judgments from nested mappings and check every id and grade."""
        raise_all([fault for query in grades if (fault := id_fault(query))], "judgments")
        judged = cls.of((q, d, g) for q, documents in grades.items() for d, g in documents.items())
        return cls({query: judged.grades.get(query, {}) for query in grades})

    @property
    def queries(self) -> tuple[str, ...]:
        """Queries with at least one relevant document, in their order: the ones that a mean is over."""
        return tuple(q for q, documents in self.grades.items() if any(g > 0 for g in documents.values()))

    @property
    def unjudgeable(self) -> tuple[str, ...]:
        """Queries without a relevant document: no judgment at all, or only grades of 0 and below."""
        return tuple(q for q, documents in self.grades.items() if not any(g > 0 for g in documents.values()))

    def only(self, queries: Iterable[str]) -> Judgments:
        """Return the judgments of these queries alone."""
        wanted = set(queries)
        return Judgments({q: documents for q, documents in self.grades.items() if q in wanted})

    def pairs(self) -> Iterator[tuple[str, str, int]]:
        """Yield `(query id, document id, grade)`."""
        for query, documents in self.grades.items():
            for document, grade in documents.items():
                yield query, document, grade

    def __len__(self) -> int:
        return sum(len(documents) for documents in self.grades.values())


@dataclass(frozen=True)
class Dataset:
    """One retrieval task's data, the same record for every source.

    Args:
        corpus: The documents.
        queries: `{query id: text}`.
        gold: The main judgments.
        pooled: The judgments over a pool of systems, where they exist.
        exclusions: `{query id: document ids that may not be returned}`.
        groups: `{query id: group}`, such as an author; a group is never divided between dev and test.
    """

    corpus: Corpus
    queries: Mapping[str, str]
    gold: Judgments
    pooled: Judgments | None = None
    exclusions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the task or folder."""
        return self.corpus.name

    @property
    def revision(self) -> str:
        """Commit of the source, or the hash of its content."""
        return self.corpus.revision

    @property
    def judged(self) -> frozenset[str]:
        """Queries with a relevant document under any of the judgments."""
        return frozenset(q for judgments in self.judgments().values() for q in judgments.queries)

    def judgments(self) -> dict[str, Judgments]:
        """Return the judgments by name: `gold`, and `pooled` where it exists."""
        return {"gold": self.gold} if self.pooled is None else {"gold": self.gold, "pooled": self.pooled}

    def only(self, queries: Iterable[str]) -> Dataset:
        """Return the same data for these queries alone."""
        wanted = set(queries)
        return replace(
            self,
            queries={q: text for q, text in self.queries.items() if q in wanted},
            gold=self.gold.only(wanted),
            pooled=None if self.pooled is None else self.pooled.only(wanted),
        )


@dataclass(frozen=True)
class Ranking:
    """One query's answer in canonical order: score descending, then document id descending (trec_eval's rule).

    Args:
        documents: Document ids, best first, each once.
        scores: float32, shape `(len(documents),)`; trec_eval compares scores in this precision.
    """

    documents: tuple[str, ...]
    scores: NDArray[np.float32]

    @classmethod
    def of(cls, documents: Sequence[str], scores: Sequence[float] | NDArray[np.floating]) -> Ranking:
        """Put documents into canonical order, whatever order they come in.

        Raises:
            UserError: If an id is none, a document occurs twice, a score is not finite, or the lengths differ.
        """
        if fault := _any_fault(documents):
            raise UserError(fault)
        if len(documents) != len(scores):
            raise UserError(f"{len(documents)} documents but {len(scores)} scores")
        if len(set(documents)) != len(documents):
            seen: set[str] = set()
            twice = next(d for d in documents if d in seen or seen.add(d))  # type: ignore[func-returns-value]
            raise UserError(f"document {twice!r} is ranked more than once")
        try:
            with np.errstate(over="ignore"):
                values = np.asarray(scores, dtype=np.float32)
        except (TypeError, ValueError, OverflowError) as error:
            raise UserError(f"scores must be numbers within float32: {error}") from error
        if not np.isfinite(values).all():
            worst = documents[int(np.flatnonzero(~np.isfinite(values))[0])]
            raise UserError(f"document {worst!r} has a score that is not a finite number")
        order = sorted(zip(values.tolist(), documents, strict=True), reverse=True)
        return cls(tuple(d for _, d in order), np.array([s for s, _ in order], dtype=np.float32))

    def without(self, excluded: frozenset[str], depth: int) -> Ranking:
        """Drop excluded documents, then cut to `depth`."""
        kept = [i for i, d in enumerate(self.documents) if d not in excluded][:depth]
        return Ranking(tuple(self.documents[i] for i in kept), self.scores[kept])

    def __len__(self) -> int:
        return len(self.documents)


def _any_fault(documents: Sequence[str]) -> str | None:
    """Return the first of these ids' faults; all of them are looked at together first, which costs little."""
    try:
        together = "".join(documents)
        together.encode()
    except (TypeError, UnicodeEncodeError):
        pass
    else:
        if "\0" not in together and UNANSWERED not in together:
            return None
    return next(filter(None, map(document_fault, documents)), None)


@dataclass(frozen=True)
class Run:
    """What one system returned for each query.

    Args:
        rankings: `{query id: ranking}`; a query that got no answer may be absent or empty.
        depth: How many documents were asked for; Recall@k is unknown for k above it.
    """

    rankings: Mapping[str, Ranking]
    depth: int

    @classmethod
    def of(cls, scores: Mapping[str, Mapping[str, float]], depth: int | None = None, source: str = "run") -> Run:
        """Build a run from `{query id: {document id: score}}`.

        Args:
            scores: Any order; ties are put into canonical order.
            depth: How many documents were asked for; by default the longest answer.
            source: Named in errors.

        Raises:
            UserError: If an answer is not a ranking (see `Ranking.of`); all queries at once.
        """
        rows = ((q, list(answer), list(answer.values())) for q, answer in scores.items())
        return cls.build(rows, depth, source)

    @classmethod
    def from_lists(cls, answers: Mapping[str, Sequence[str]], depth: int | None = None, source: str = "run") -> Run:
        """Build a run from ranked lists without scores: the order is the rank."""
        rows = ((q, list(ids), [float(len(ids) - i) for i in range(len(ids))]) for q, ids in answers.items())
        return cls.build(rows, depth, source)

    @classmethod
    def build(
        cls, rows: Iterable[tuple[str, Sequence[str], Sequence[float]]], depth: int | None = None, source: str = "run"
    ) -> Run:
        """Build a run from `(query id, document ids, scores)` rows.

        Raises:
            UserError: If an id is none, an answer is not a ranking, or a query comes twice; all queries at once.
        """
        rankings: dict[str, Ranking] = {}
        problems: list[str] = []
        for query, documents, scores in rows:
            if fault := id_fault(query):
                problems.append(fault)
                continue
            if query in rankings:
                problems.append(f"query {query!r} is answered more than once")
                continue
            try:
                rankings[query] = Ranking.of(documents, scores)
            except UserError as error:
                problems.append(f"query {query!r}: {error}")
        raise_all(problems, source)
        longest = max((len(ranking) for ranking in rankings.values()), default=0)
        return cls(rankings, depth if depth is not None else longest)

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return `{query id: {document id: score}}` in canonical order."""
        return {
            q: dict(zip(ranking.documents, ranking.scores.tolist(), strict=True))
            for q, ranking in self.rankings.items()
        }

    def only(self, queries: Iterable[str]) -> Run:
        """Return the answers to these queries alone."""
        wanted = set(queries)
        return Run({q: ranking for q, ranking in self.rankings.items() if q in wanted}, self.depth)

    def without(self, exclusions: Mapping[str, frozenset[str]], depth: int) -> Run:
        """Drop what each query excludes, then cut to `depth`."""
        none: frozenset[str] = frozenset()
        return Run({q: r.without(exclusions.get(q, none), depth) for q, r in self.rankings.items()}, depth)
