"""Labels of documents: from judgments, and how often two documents share one by chance, exactly."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obliq_eval.records import Judgments

    Values = Mapping[str, frozenset[str]]

_NONE: frozenset[str] = frozenset()


def groups_of(judgments: Judgments) -> dict[str, frozenset[str]]:
    """Return `{document id: group}`: documents relevant to one query are of one group, joined by union-find.

    For analysis only. A group is named after the least of its ids.
    """
    parent: dict[str, str] = {}

    def find(document: str) -> str:
        parent.setdefault(document, document)
        while parent[document] != document:
            parent[document] = parent[parent[document]]
            document = parent[document]
        return document

    for grades in judgments.grades.values():
        relevant = [document for document, grade in grades.items() if grade > 0]
        for document in relevant:
            low, high = sorted((find(relevant[0]), find(document)))
            parent[high] = low
    return {document: frozenset([find(document)]) for document in sorted(parent)}


def queries_of(judgments: Judgments) -> dict[str, frozenset[str]]:
    """Return `{document id: the queries that it is relevant to}`, where union-find would join what differs."""
    found: dict[str, set[str]] = defaultdict(set)
    for query, document, grade in judgments.pairs():
        if grade > 0:
            found[document].add(query)
    return {document: frozenset(queries) for document, queries in sorted(found.items())}


def base_rate(labels: Values, sources: Values | None = None) -> float | None:
    """Return the share of pairs of labelled documents that share a label, exactly; None without a pair.

    Args:
        labels: `{document id: labels}`.
        sources: `{document id: sources}`; pairs that share one do not count.
    """
    held = sources or {}
    kinds = Counter((values, held.get(document, _NONE)) for document, values in labels.items() if values)
    n = kinds.total()
    pairs = n * (n - 1) // 2
    by_label, by_source = Counter[frozenset[str]](), Counter[frozenset[str]]()
    for (label, source), count in kinds.items():
        by_label[label] += count
        by_source[source] += count
    pairs -= _sharing(by_source)
    same = _sharing(by_label) - _sharing_both(kinds)
    return same / pairs if pairs else None


def _sharing(kinds: Mapping[frozenset[str], int]) -> int:
    """Return how many pairs of documents share a value, from how many have each set of values."""
    by_value: dict[str, list[frozenset[str]]] = defaultdict(list)
    for kind in kinds:
        for value in kind:
            by_value[value].append(kind)
    total = 0
    for kind, count in kinds.items():
        related = {other for value in kind for other in by_value[value]}
        total += count * (sum(kinds[other] for other in related) - bool(kind))
    return total // 2


def _sharing_both(kinds: Mapping[tuple[frozenset[str], frozenset[str]], int]) -> int:
    """Return how many pairs of documents share a label and a source."""
    by_source: dict[str, list[tuple[frozenset[str], frozenset[str]]]] = defaultdict(list)
    for kind in kinds:
        for source in kind[1]:
            by_source[source].append(kind)
    total = 0
    for kind, count in kinds.items():
        related = {other for source in kind[1] for other in by_source[source] if other[0] & kind[0]}
        total += count * (sum(kinds[other] for other in related) - bool(related))
    return total // 2
