"""Where in the ranking, and on which queries, one system gains over another (paper, section 6.3, Figure 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from obliq_eval.analyses.failures import TIE
from obliq_eval.errors import UserError
from obliq_eval.metrics import score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obliq_eval.metrics import Panel
    from obliq_eval.records import Judgments, Run

DEPTHS = (1, 2, 3, 5, 10, 20, 30, 50, 100)
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

GAIN_COLUMNS = (
    "from", "to", "queries", "mean gain", "better", "worse", "equal", "largest loss",
    *(f"{quantile:.0%} quantile" for quantile in QUANTILES), "largest gain",
)  # fmt: skip


@dataclass(frozen=True)
class DepthCurve:
    """Mean NDCG@k of one run.

    Args:
        depths: The cut-offs k, ascending.
        values: Mean NDCG at each cut-off, in 0..1. None beyond the depth of the run, so that a short list does not
            look like one that finds nothing further down.
        n: How many queries the means are over.
    """

    depths: tuple[int, ...]
    values: tuple[float | None, ...]
    n: int

    def row(self, system: str) -> list[object]:
        """Return one row under `columns(self.depths)`."""
        return [system, self.n, *self.values]


@dataclass(frozen=True)
class Gains:
    """The gain of each query from one system to another.

    Args:
        measure: What was compared.
        queries: Query ids, the largest loss first.
        gains: The gain of each of them, second system minus first, in -1..1.
        quantiles: The distribution's quantiles at `QUANTILES`.
    """

    measure: str
    queries: tuple[str, ...]
    gains: tuple[float, ...]
    quantiles: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean gain, which is the difference of the systems' means."""
        return float(np.mean(self.gains))

    @property
    def better(self) -> int:
        """How many queries gain more than a tie's difference (`failures.TIE`)."""
        return sum(gain > TIE for gain in self.gains)

    @property
    def worse(self) -> int:
        """How many queries lose more than a tie's difference."""
        return sum(gain < -TIE for gain in self.gains)

    def row(self, first: str, second: str) -> list[object]:
        """Return one row under `GAIN_COLUMNS`."""
        equal = len(self.gains) - self.better - self.worse
        return [
            first, second, len(self.gains), self.mean, self.better, self.worse, equal,
            self.gains[0], *self.quantiles, self.gains[-1],
        ]  # fmt: skip


def columns(depths: Sequence[int] = DEPTHS) -> tuple[str, ...]:
    """Return the headings of the table of curves."""
    return ("system", "queries", *(f"NDCG@{k}" for k in depths))


def depth_curve(run: Run, judgments: Judgments, depths: Sequence[int] = DEPTHS) -> DepthCurve:
    """Return mean NDCG@k over the judged queries, each against the ideal ranking cut at the same k.

    Raises:
        UserError: If no query has a relevant document.
    """
    ordered = tuple(sorted(set(depths)))
    panel = score(run, judgments, [f"ndcg@{k}" for k in ordered])
    values = tuple(panel.mean(f"ndcg@{k}") if k <= run.depth else None for k in ordered)
    return DepthCurve(ordered, values, len(panel.queries))


def gains(a: Panel, b: Panel, measure: str = "ndcg@10") -> Gains:
    """Return what each query gains from system `a` to system `b`.

    Raises:
        UserError: If the panels are not over the same queries.
    """
    if a.queries != b.queries:
        raise UserError("the systems are scored on different queries; score both under the same judgments")
    difference = b.values[measure] - a.values[measure]
    order = np.argsort(difference, kind="stable")
    return Gains(
        measure,
        tuple(a.queries[i] for i in order),
        tuple(difference[order].tolist()),
        tuple(np.quantile(difference, QUANTILES).tolist()),
    )
