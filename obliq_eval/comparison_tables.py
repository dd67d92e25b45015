"""A comparison as tables, the same for the terminal, Markdown, LaTeX and the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from obliq_eval import metrics, significance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from obliq_eval.comparison import Comparison, Part
    from obliq_eval.significance import Interval, PairedTest

RANX = {
    "student": "ranx's paired Student t-test",
    "fisher": f"ranx's Fisher randomisation test ({significance.RESAMPLES:,} randomisations, seed 0, can be 0)",
}
LABELS = {"ndcg": "NDCG", "recall": "Recall", "mrr": "MRR", "success": "Success"}


@dataclass(frozen=True)
class View:
    """A table to be shown; a cell of `None` is unknown.

    Args:
        title: What it shows, and over what.
        columns: Headings.
        rows: One value per column.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


def views(comparison: Comparison, part: Part) -> tuple[View, View, View]:
    """Return the means, the tests against the baseline, and the counts of queries."""
    n = len(next(iter(part.panels.values())).queries)
    queries = "" if comparison.reference.data is None else f", {comparison.reference.coverage} queries"
    where = f"{comparison.reference.name}{queries} (n = {n:,}), {part.judgments} judgments"
    against = f"Against {comparison.baseline}, {part.judgments} judgments"
    cut = metrics.parse_measure(comparison.measure)[1]
    word = "gold" if part.judgments == "gold" else "relevant"
    pool = (f"{word} outside the pool", f"{word} in it, below rank {cut}")
    measures = tuple(label(measure) for measure in next(iter(part.panels.values())).measures)
    return (
        View(where, ("system", *measures, "judged@10", "unjudged", "unanswered"), tuple(_means(part))),
        View(
            f"{against}: difference in {label(comparison.measure)}",
            ("system", "Δ", "95 % interval", "p", "Holm p", *(f"ranx {test} p" for test in _ranx_tests(part))),
            tuple(_contrasts(part)),
        ),
        View(
            f"{against}: queries",
            ("system", "helped", "hurt", "tied", "zero in both", *pool),
            tuple(_queries(part)),
        ),
    )


def notes(comparison: Comparison, part: Part) -> tuple[str, str]:
    """Return what must be said about the tests and about the counts of queries."""
    first = part.contrasts[0]
    of_ranx = "".join(f"; ranx {test} p: {RANX[test]}, not adjusted" for test in _ranx_tests(part))
    return (
        f"{settings(first.test)}; Holm over the family: {part.family}{of_ranx}",
        "helped, hurt, tied and zero in both add up to n; "
        f"tied: within {comparison.tie} in {label(comparison.measure)} and not 0 in both; "
        f"pool: the first {first.failures.pool_depth} documents of the system's own run, or of the baseline if the "
        "system reranks that",
    )


def settings(result: Interval | PairedTest) -> str:
    """Return what made an interval or a test, in words that can stand under a table."""
    paired = isinstance(result, significance.PairedTest)
    return (
        f"{'paired ' if paired else ''}bootstrap over queries, "
        f"{100 * result.level:g} % {significance.NAMES[result.method]} interval, "
        f"{result.resamples:,} resamples, seed {result.seed}, n = {result.n:,}"
        + ("; two-sided p by inverting the interval" if paired else "")
    )


def caution(n: int) -> str | None:
    """Return what to say beside an interval over few queries, else None."""
    if n >= significance.SMALL:
        return None
    return f"n = {n} is small: below {significance.SMALL} queries a 95 % interval misses the truth more often than 5 %"


def label(measure: str) -> str:
    """Return a measure as it is written in tables: `ndcg@10` is `NDCG@10`."""
    name, k = metrics.parse_measure(measure)
    return f"{LABELS[name]}@{k}"


def bounds(result: Interval | PairedTest | None, sign: str = "") -> str | None:
    """Return an interval in words, or None where there is none; a sign of `+` marks a difference."""
    return None if result is None else f"[{result.low:{sign}.3f}, {result.high:{sign}.3f}]"


def _means(part: Part) -> Iterator[tuple[object, ...]]:
    for system, panel in part.panels.items():
        judged = (panel.judged_at_10, panel.unjudged_at_10, len(panel.unanswered))
        yield (system, *(panel.mean(measure) for measure in panel.measures), *judged)


def _contrasts(part: Part) -> Iterator[tuple[object, ...]]:
    for c in part.contrasts:
        ps = (c.test.p, c.adjusted_p, *c.ranx_p.values())
        yield (c.system, f"{c.test.difference:+.3f}", bounds(c.test, "+"), *(f"{p:.4f}" for p in ps))


def _ranx_tests(part: Part) -> tuple[str, ...]:
    return tuple(part.contrasts[0].ranx_p)


def _queries(part: Part) -> Iterator[tuple[object, ...]]:
    for c in part.contrasts:
        f = c.failures
        yield (c.system, *map(len, (f.helped, f.hurt, f.tied, f.zero_in_both, f.outside_pool, f.in_pool)))
