"""Which documents of a batch an anchor may not be pushed away from, because they are known to answer it.

With k = 3 an anchor stands in several rows with different positives, and popular documents come again and again: what
is a negative by its place in a batch is often an answer. A document is known by its text here, so that a copy of an
answer under another id is one as well.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from obliq_train.distinct import digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from obliq_eval.edges import Edge
    from obliq_train.rows import Row


def keys(text: str) -> int:
    """Return the number by which a text is known, of 64 bits with a sign; white space does not change it."""
    return int.from_bytes(digest(text)[:8], "little", signed=True)


def answers(rows: Sequence[Row], edges: Mapping[str, Sequence[Edge]]) -> list[frozenset[int]]:
    """Return for each row the keys of the texts that may not be negatives for its anchor.

    These are the anchor's own text; all positives, the source document and its neighbours, of this row and of every
    row with the same query text or the same `query_id` of the same source.

    Args:
        rows: All rows that are trained on.
        edges: `{source: edges}`, the whole graph; ids that no row gives a text for are passed over, for they cannot
            meet the anchor in a batch.
    """
    texts = _texts(rows)
    near: dict[tuple[str, str], set[str]] = defaultdict(set)
    for source, some in edges.items():
        for edge in some:
            near[source, edge.anchor].add(edge.neighbour)
    by_text: dict[int, set[int]] = defaultdict(set)
    by_id: dict[tuple[str, str], set[int]] = defaultdict(set)
    for row in rows:
        place = (row.source, row.query_id)
        own = {keys(passage.text) for passage in row.positives}
        for identifier in (row.query_id, *near.get(place, ())) if row.query_id else ():
            own |= texts.get((row.source, identifier), set())
        by_text[keys(row.query.text)] |= own
        if row.query_id:
            by_id[place] |= own
    return _shared(rows, by_text, by_id)


def _shared(
    rows: Iterable[Row], by_text: Mapping[int, set[int]], by_id: Mapping[tuple[str, str], set[int]]
) -> list[frozenset[int]]:
    """Return one set for each row; rows with the same query share it, for most rows have company."""
    known: dict[tuple[int, str, str], frozenset[int]] = {}
    found = []
    for row in rows:
        text = keys(row.query.text)
        name = (text, row.source, row.query_id)
        if name not in known:
            known[name] = frozenset({text} | by_text[text] | by_id.get((row.source, row.query_id), set()))
        found.append(known[name])
    return found


def _texts(rows: Iterable[Row]) -> dict[tuple[str, str], set[int]]:
    """Return the keys of the texts that rows give for a document of a source; the same id may have been cut twice."""
    found: dict[tuple[str, str], set[int]] = defaultdict(set)
    for row in rows:
        for passages, ids in ((row.positives, row.positive_ids), (row.negatives, row.negative_ids)):
            if ids:
                for passage, identifier in zip(passages, ids, strict=True):
                    found[row.source, identifier].add(keys(passage.text))
    return dict(found)
