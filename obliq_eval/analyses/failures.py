"""Which queries a second system helps or hurts, and which neither answers (paper, section 6.2, Table 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from obliq_eval.errors import UserError
from obliq_eval.metrics import parse_measure

if TYPE_CHECKING:
    from obliq_eval.metrics import Panel
    from obliq_eval.records import Judgments, Run

TIE = 0.001
"""Largest difference of a tie ("tied (within 0.001)", Table 7)."""

POOL_DEPTH = 100
"""How many documents of the first stage a reranker sees (paper, section 5)."""

COLUMNS = (
    "from", "to", "queries", "helped", "hurt", "tied", "zero in both",
    "zero: gold outside the pool", "zero: gold in the pool, below the cut-off",
)  # fmt: skip


@dataclass(frozen=True)
class Failures:
    """The queries of two systems in five classes; each query is in exactly one.

    Args:
        measure: What was compared, such as `ndcg@10`.
        pool_depth: How many documents of each pool were looked at.
        helped: Queries that the second system answers better by more than the tolerance.
        hurt: Queries that it answers worse by more than the tolerance.
        tied: Queries within the tolerance that at least one of the systems answers (not 0 in both).
        outside_pool: Queries at 0 in both, and no relevant document is in the pool: no reordering can help.
        in_pool: Queries at 0 in both although the pool holds a relevant document, below the measure's cut-off.
    """

    measure: str
    pool_depth: int
    helped: tuple[str, ...]
    hurt: tuple[str, ...]
    tied: tuple[str, ...]
    outside_pool: tuple[str, ...]
    in_pool: tuple[str, ...]

    @property
    def zero_in_both(self) -> tuple[str, ...]:
        """Queries that score 0 with both systems."""
        return self.outside_pool + self.in_pool

    @property
    def n(self) -> int:
        """How many queries there are."""
        return len(self.helped) + len(self.hurt) + len(self.tied) + len(self.zero_in_both)

    def counts(self) -> dict[str, int]:
        """Return the counts by name, `n` first; helped, hurt, tied and zero_in_both add up to it."""
        return {
            "n": self.n,
            "helped": len(self.helped),
            "hurt": len(self.hurt),
            "tied": len(self.tied),
            "zero_in_both": len(self.zero_in_both),
            "outside_pool": len(self.outside_pool),
            "in_pool": len(self.in_pool),
        }

    def row(self, first: str, second: str) -> list[object]:
        """Return one row under `COLUMNS`."""
        return [first, second, *self.counts().values()]


def classify(
    a: Panel,
    b: Panel,
    pool: Run,
    judgments: Judgments,
    measure: str = "ndcg@10",
    *,
    tolerance: float = TIE,
    pool_depth: int = POOL_DEPTH,
) -> Failures:
    """Divide the queries by what changes from system `a` to system `b`.

    Args:
        a: The baseline, such as the retriever alone.
        b: The other system, such as the retriever with a reranker.
        pool: The run whose first `pool_depth` documents are the candidates: the first stage of `b` if it is a
            reranker, else `b`'s own run.
        judgments: The judgments under which both panels were made.
        measure: The measure that is compared; it must be in both panels.
        tolerance: Largest difference of a tie.
        pool_depth: How many documents of the pool count.

    Raises:
        UserError: If the panels are not over the same queries or lack the measure.
    """
    parse_measure(measure)
    if a.queries != b.queries:
        raise UserError(
            f"the systems are scored on different queries ({len(a.queries)} and {len(b.queries)}); "
            "score both under the same judgments"
        )
    if missing := [name for name, panel in (("first", a), ("second", b)) if measure not in panel.values]:
        raise UserError(f"{measure} was not computed for the {' and the '.join(missing)} system")
    classes: dict[str, list[str]] = {name: [] for name in ("helped", "hurt", "tied", "outside_pool", "in_pool")}
    for query, x, y in zip(a.queries, a.values[measure].tolist(), b.values[measure].tolist(), strict=True):
        if x == y == 0:
            classes["in_pool" if reachable(query, pool, judgments, pool_depth) else "outside_pool"].append(query)
        elif abs(y - x) <= tolerance:
            classes["tied"].append(query)
        else:
            classes["helped" if y > x else "hurt"].append(query)
    return Failures(measure, pool_depth, **{name: tuple(queries) for name, queries in classes.items()})


def reachable(query: str, pool: Run, judgments: Judgments, depth: int) -> bool:
    """Return whether a relevant document of a query is among the first `depth` documents of a run."""
    if query not in pool.rankings:
        return False
    grades = judgments.grades[query]
    return any(grades.get(document, 0) > 0 for document in pool.rankings[query].documents[:depth])
