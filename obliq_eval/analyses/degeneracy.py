"""Whether a retriever has collapsed: many queries that share one first document (paper, Appendix H)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from obliq_eval.records import Run

COLLAPSED = 0.5
"""Share of queries with one first document above which a run is called collapsed; the paper's collapsed model, a
random graph's, had 366 of 512, or 71 %. The threshold is this project's."""

COLUMNS = ("system", "queries", "answered", "distinct first", "most frequent first", "is first for", "share")


@dataclass(frozen=True)
class Degeneracy:
    """How a run's first documents are spread.

    Args:
        queries: How many queries were asked.
        answered: How many of them got an answer.
        first: `(document id, for how many queries it comes first)`, the most frequent first, then by id.
    """

    queries: int
    answered: int
    first: tuple[tuple[str, int], ...]

    @property
    def distinct(self) -> int:
        """How many documents come first for some query."""
        return len(self.first)

    @property
    def share(self) -> float | None:
        """The share of answered queries that the most frequent first document takes; None without an answer."""
        return self.first[0][1] / self.answered if self.answered else None

    @property
    def collapsed(self) -> bool:
        """Whether one document comes first for more than half of the queries."""
        return self.answered > 1 and (self.share or 0) > COLLAPSED

    def row(self, system: str) -> list[object]:
        """Return one row under `COLUMNS`."""
        document, count = self.first[0] if self.first else (None, None)
        return [system, self.queries, self.answered, self.distinct, document, count, self.share]


def degeneracy(run: Run, queries: Iterable[str]) -> Degeneracy:
    """Count a run's first documents.

    Args:
        run: The run.
        queries: The queries that were asked; others are ignored.
    """
    asked = set(queries)
    top = Counter(run.rankings[q].documents[0] for q in asked if q in run.rankings and len(run.rankings[q]))
    ordered = sorted(top.items(), key=lambda item: (-item[1], item[0]))
    return Degeneracy(len(asked), top.total(), tuple(ordered))
