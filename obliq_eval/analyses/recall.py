"""Recall@k from shallow to deep: how much a later stage could still reach (paper, section 6.1, Table 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from obliq_eval.metrics import score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obliq_eval.records import Judgments, Run

DEPTHS = (10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class RecallCurve:
    """Mean Recall@k of one run.

    Args:
        depths: The cut-offs k, ascending.
        values: Mean recall at each cut-off, in 0..1; None beyond the depth of the run.
        n: How many queries the means are over.
        depth: How many documents the run asked for.
    """

    depths: tuple[int, ...]
    values: tuple[float | None, ...]
    n: int
    depth: int

    def row(self, system: str) -> list[object]:
        """Return one row under `columns(self.depths)`."""
        return [system, self.n, self.depth, *self.values]


def columns(depths: Sequence[int] = DEPTHS) -> tuple[str, ...]:
    """Return the headings of the table."""
    return ("system", "queries", "run depth", *(f"R@{k}" for k in depths))


def recall_curve(run: Run, judgments: Judgments, depths: Sequence[int] = DEPTHS) -> RecallCurve:
    """Return mean Recall@k over the judged queries; an unanswered query counts 0.

    Args:
        run: The run.
        judgments: The judgments; a query's recall is over all of its relevant documents.
        depths: The cut-offs k.

    Raises:
        UserError: If no query has a relevant document.
    """
    ordered = tuple(sorted(set(depths)))
    measures = [f"recall@{k}" for k in ordered]
    panel = score(run, judgments, measures)
    return RecallCurve(ordered, tuple(panel.mean(m) for m in measures), len(panel.queries), run.depth)
