"""The audit of a data set: what does not fit together, and what is worth knowing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from obliq_eval.data.corpus import ids_of
from obliq_eval.data.files import odd_grades
from obliq_eval.data.official import OFFICIAL
from obliq_eval.records import Judgments

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from obliq_eval.data.sources import Loaded

Level = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Finding:
    """One line of the audit.

    Args:
        level: An error makes results wrong, a warning changes what they mean, info is a count.
        what: The check.
        count: How often it was found.
        detail: Examples, or what was expected.
    """

    level: Level
    what: str
    count: int
    detail: str = ""


def audit(loaded: Loaded) -> list[Finding]:
    """Check one data set.

    Args:
        loaded: As `open_source` returns it.

    Returns:
        Findings, errors first; counts of 0 are left out except for the sizes.
    """
    found = [*_sizes(loaded), *_ids(loaded), *_judgments(loaded), *_published(loaded)]
    order = {"error": 0, "warning": 1, "info": 2}
    return sorted(found, key=lambda finding: order[finding.level])


def _sizes(loaded: Loaded) -> Iterator[Finding]:
    data, facts = loaded.dataset, loaded.facts
    yield Finding("info", "documents", facts.documents)
    yield Finding("info", "distinct texts", facts.distinct_texts)
    more = len(loaded.query_texts) - len(data.queries)
    yield Finding("info", "queries", len(data.queries), f"{more} more have no relevant document" if more else "")
    for name, judgments in data.judgments().items():
        yield Finding("info", f"{name} judgments", len(judgments))
    yield Finding("info", "excluded documents", sum(map(len, data.exclusions.values())))
    if facts.documents > facts.distinct_texts:
        yield Finding("info", "documents that repeat another's text", facts.documents - facts.distinct_texts)
    if facts.empty_texts:
        yield Finding("warning", "empty texts", facts.empty_texts)


def _ids(loaded: Loaded) -> Iterator[Finding]:
    data, facts = loaded.dataset, loaded.facts
    if facts.duplicate_ids:
        yield Finding("error", "document ids that occur more than once", facts.duplicate_ids, _some(facts.examples))
    corpus = frozenset(ids_of(data.corpus.documents))
    for name, judgments in data.judgments().items():
        unknown = {d for _, d, _ in judgments.pairs()} - corpus
        yield from _finding("error", f"{name} documents not in the corpus", unknown)
    excluded = {d for ids in data.exclusions.values() for d in ids}
    yield from _finding("warning", "excluded documents not in the corpus", excluded - corpus)
    gold, pooled = (_excluded(judgments, data.exclusions) for judgments in (data.gold, data.pooled or Judgments({})))
    yield from _finding("error", "documents both gold and excluded for a query", gold)
    yield from _finding("warning", "documents relevant in the pool alone, and excluded for the query", pooled - gold)


def _excluded(judgments: Judgments, exclusions: Mapping[str, frozenset[str]]) -> set[str]:
    """Return the relevant documents that their query excludes."""
    return {f"{q} / {d}" for q, d, grade in judgments.pairs() if grade > 0 and d in exclusions.get(q, ())}


def _judgments(loaded: Loaded) -> Iterator[Finding]:
    data, texts = loaded.dataset, loaded.query_texts.keys()
    judged = {query for judgments in data.judgments().values() for query in judgments.grades}
    yield from _finding("warning", "queries without judgments", texts - judged)
    yield from _finding(
        "warning", "queries whose text is empty", {q for q, t in loaded.query_texts.items() if not t.strip()}
    )
    for file, named in (("exclusions", loaded.exclusions.keys()), ("groups", loaded.groups.keys())):
        yield from _finding("warning", f"queries in the {file} file without a text", named - texts)
    for name, judgments in data.judgments().items():
        if not judgments.queries:
            yield Finding("warning", f"no {name} judgments in this source", 1)
        yield from _finding("error", f"{name} queries without a text", judgments.grades.keys() - texts)
        yield from _finding("warning", f"{name} queries judged, but with no relevant document", judgments.unjudgeable)
        if negative := odd_grades(judgments):
            yield Finding("warning", f"negative {name} grades, counted as not relevant", negative)
    if data.pooled is not None and data.gold.queries:
        relevant = {(q, d) for q, d, grade in data.pooled.pairs() if grade > 0}
        lost = {f"{q} / {d}" for q, d, grade in data.gold.pairs() if grade > 0 and (q, d) not in relevant}
        yield from _finding("warning", "gold documents that the pool does not call relevant", lost)


def _published(loaded: Loaded) -> Iterator[Finding]:
    task = OFFICIAL.get(loaded.dataset.name)
    if task is None:
        return
    data, facts = loaded.dataset, loaded.facts
    expected = {
        "documents": (facts.documents, task.documents),
        "distinct texts": (facts.distinct_texts, task.distinct_texts),
        "queries": (len(data.queries), task.queries),
        "gold judgments": (len(data.gold), task.gold),
        "pooled judgments": (len(data.pooled) if data.pooled else None, task.pooled),
    }
    for what, (here, published) in expected.items():
        if here != published and not (what == "gold judgments" and not data.gold.queries):
            yield Finding("error", f"{what} differ from the published count", here or 0, f"published: {published}")


def _finding(level: Level, what: str, ids: Collection[str]) -> Iterator[Finding]:
    if ids:
        yield Finding(level, what, len(ids), _some(sorted(ids)))


def _some(ids: Collection[str]) -> str:
    shown = ", ".join(map(repr, list(ids)[:3]))
    return f"{shown}, …" if len(ids) > 3 else shown
