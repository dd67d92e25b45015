"""How far a system is from a ceiling, and where the distance lies (paper, Appendix O)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from obliq_eval.metrics import score
from obliq_eval.records import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obliq_eval.records import Judgments

POOLS = (100, 1000)


@dataclass(frozen=True)
class Ceiling:
    """One system's score and what it could at most have been.

    Args:
        measure: The measure, such as `ndcg@10`.
        score: The system's mean, in 0..1.
        pools: Numbers of first documents that a perfect reranker might reorder, ascending.
        perfect: The mean after a perfect reordering of each of them; None beyond the depth of the run.
        oracle: The mean of the given oracle run, or None without one.
        n: How many queries the means are over.
    """

    measure: str
    score: float
    pools: tuple[int, ...]
    perfect: tuple[float | None, ...]
    oracle: float | None
    n: int

    @property
    def parts(self) -> tuple[float | None, ...]:
        """What a perfect ranking's 1 is made of: the score, what each pool adds, and what no pool holds."""
        steps = (self.score, *self.perfect)
        known = [value for value in steps if value is not None]
        gains = [None if b is None or a is None else b - a for a, b in pairwise(steps)]
        return (self.score, *gains, 1 - known[-1])

    def row(self, system: str) -> list[object]:
        """Return one row under `columns(self.pools)`."""
        gaps = [None if value is None else value - self.score for value in self.perfect]
        pairs = [cell for pair in zip(self.perfect, gaps, strict=True) for cell in pair]
        gap = None if self.oracle is None else self.oracle - self.score
        return [system, self.n, self.score, *pairs, self.oracle, gap]


def columns(pools: Sequence[int] = POOLS) -> tuple[str, ...]:
    """Return the headings of the table."""
    return ("system", "queries", "NDCG@10", *_pairs(pools), "oracle", "gap to oracle")


def _pairs(pools: Sequence[int]) -> list[str]:
    return [heading for k in pools for heading in (f"perfect top-{k}", f"gap to top-{k}")]


def perfect(run: Run, judgments: Judgments, pool: int) -> Run:
    """Return the run with its first `pool` documents in the best order that the judgments allow, and nothing else."""
    answers = {}
    for query, grades in judgments.grades.items():
        documents = run.rankings[query].documents[:pool] if query in run.rankings else ()
        answers[query] = sorted(documents, key=lambda document: -max(grades.get(document, 0), 0))
    return Run.from_lists(answers, depth=min(pool, run.depth))


def ceiling(
    run: Run,
    judgments: Judgments,
    oracle: Run | None = None,
    *,
    pools: Sequence[int] = POOLS,
    measure: str = "ndcg@10",
) -> Ceiling:
    """Return a system's distance to a perfect reordering of its own answers, and to an oracle's run.

    Args:
        run: The system's run.
        judgments: The judgments.
        oracle: A run that had access to the judgments.
        pools: How many first documents a perfect reranker might reorder.
        measure: An NDCG.

    Raises:
        UserError: If no query has a relevant document.
    """
    ordered = tuple(sorted(set(pools)))

    def mean(scored: Run) -> float:
        return float(score(scored, judgments, [measure]).values[measure].mean())

    return Ceiling(
        measure=measure,
        score=mean(run),
        pools=ordered,
        perfect=tuple(mean(perfect(run, judgments, k)) if k <= run.depth else None for k in ordered),
        oracle=None if oracle is None else mean(oracle),
        n=len(judgments.queries),
    )
