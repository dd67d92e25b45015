"""An ablation's runs as tables: means, paired differences from the control, and whether a model has collapsed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from obliq_eval import significance
from obliq_eval.analyses.degeneracy import Degeneracy, degeneracy
from obliq_eval.comparison_tables import View, bounds, caution, label, settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from obliq_eval.reference import Reference
    from obliq_eval.significance import PairedTest
    from obliq_train.ablation_runs import Runs

MEASURE, RECALL = "ndcg@10", "recall@100"


@dataclass(frozen=True)
class Row:
    """One model, or one member with all its training seeds, on one task.

    Args:
        name: What it is called.
        runs: Ids of the runs, one for each seed.
        queries: Mean over the seeds of each query's NDCG@10.
        means: NDCG@10 of each seed.
        recall: Mean over the seeds of Recall@100; None where a run is too shallow.
        first: How the first documents of each seed's run are spread.
        test: The difference from the control; None for the control and what has its very recipe.
        adjusted_p: Its p-value after Holm's adjustment over the task's rows.
    """

    name: str
    runs: tuple[str, ...]
    queries: NDArray[np.float64]
    means: tuple[float, ...]
    recall: float | None
    first: tuple[Degeneracy, ...]
    test: PairedTest | None = None
    adjusted_p: float | None = None

    @property
    def mean(self) -> float:
        """NDCG@10 over queries and seeds."""
        return float(self.queries.mean())

    @property
    def distinct(self) -> float:
        """How many documents come first for some query, on average over the seeds."""
        return float(np.mean([one.distinct for one in self.first]))

    @property
    def share(self) -> float:
        """The largest share of the queries that one first document takes in one of the seeds' runs."""
        return max(one.share or 0.0 for one in self.first)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        test = self.test
        return {
            "member": self.name,
            "runs": list(self.runs),
            MEASURE: self.mean,
            "by query": self.queries.tolist(),
            "by seed": list(self.means),
            RECALL: self.recall,
            "distinct first documents": self.distinct,
            "share of the most frequent": self.share,
            "collapsed": any(one.collapsed for one in self.first),
            "difference": None if test is None else vars(test) | {"adjusted_p": self.adjusted_p},
        }


@dataclass(frozen=True)
class Table:
    """All rows on one task, the control first.

    Args:
        task: Name of the task.
        revision: Of its data.
        judgments: `gold`, or the only ones that there are.
        coverage: Which of the task's queries: `test` or `held-out`.
        queries: Ids of the queries that the means are over, in the order of each row's values.
        rows: The rows.
    """

    task: str
    revision: str | None
    judgments: str
    coverage: str
    queries: tuple[str, ...]
    rows: tuple[Row, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "task": self.task,
            "data_revision": self.revision,
            "judgments": self.judgments,
            "queries": self.coverage,
            "n": len(self.queries),
            "query ids": list(self.queries),
            "rows": [row.to_dict() for row in self.rows],
        }


def table(task: str, against: Reference, runs: Sequence[Runs], same: Mapping[str, str]) -> Table:
    """Judge runs on one task and compare them with the first of them, the control.

    The tests are those of `obliq compare`: a paired bootstrap over queries, with Holm's adjustment over all rows but
    the control and what repeats another row.

    Args:
        task: The task as the runs name it.
        against: The judgments and the data.
        runs: The control first.
        same: `{row: the row that has its very recipe}`.
    """
    control, *others = (_row(one, one.runs[task], against) for one in runs)
    tested = [row for row in others if row.name not in same]
    tests = [significance.paired_bootstrap(row.queries, control.queries) for row in tested]
    adjusted = significance.holm([test.p for test in tests])
    known = {row.name: (test, p) for row, test, p in zip(tested, tests, adjusted, strict=True)}
    rows = [control]
    for row in others:
        test, p = known.get(row.name) or known.get(same.get(row.name, "")) or (None, None)
        rows.append(Row(**{**vars(row), "test": test, "adjusted_p": p}))
    return Table(
        against.name,
        against.revision,
        next(iter(against.judgments)),
        against.coverage,
        against.main.queries,
        tuple(rows),
    )


def _row(one: Runs, ids: Sequence[str], against: Reference) -> Row:
    from obliq_eval import metrics, reference, runs

    systems = [reference.fit(runs.load(run), against) for run in ids]
    panels = [metrics.score(system.run, against.main, (MEASURE, RECALL)) for system in systems]
    recalls = [panel.mean(RECALL) for panel in panels]
    return Row(
        one.name,
        tuple(ids),
        np.mean([panel.values[MEASURE] for panel in panels], axis=0),
        tuple(float(panel.values[MEASURE].mean()) for panel in panels),
        None if None in recalls else float(np.mean([recall for recall in recalls if recall is not None])),
        tuple(degeneracy(system.run, against.main.queries) for system in systems),
    )


def views(title: str, results: Sequence[Table], missing: Mapping[str, str]) -> tuple[View, ...]:
    """Return all tasks at once, each task with its intervals, and what was not run."""
    named = list(dict.fromkeys(row.name for one in results for row in one.rows))
    means = [{row.name: row.mean for row in one.rows} for one in results]
    rows = tuple((name, *(mean.get(name) for mean in means)) for name in named)
    whole = View(
        f"{title}; {label(MEASURE)}, {results[0].coverage} queries", ("model", *(one.task for one in results)), rows
    )
    not_run = View("Not run", ("model", "why"), tuple(missing.items()))
    return (whole, *map(_detail, results), *([not_run] if missing else []))


def _detail(one: Table) -> View:
    against = f"{one.judgments} judgments; Δ: {label(MEASURE)} less that of {one.rows[0].name}"
    collapse = ("distinct first", "most frequent first")
    return View(
        f"{one.task}, {one.coverage} queries (n = {len(one.queries):,}), {against}",
        ("model", label(MEASURE), "seeds", "Δ", "95 % interval", "Holm p", label(RECALL), *collapse),
        tuple(_cells(one)),
    )


def _cells(one: Table) -> Iterator[tuple[object, ...]]:
    for row in one.rows:
        test = row.test
        yield (
            row.name,
            row.mean,
            f"{min(row.means):.3f} to {max(row.means):.3f}" if len(row.means) > 1 else None,
            None if test is None else f"{test.difference:+.3f}",
            bounds(test, "+"),
            None if row.adjusted_p is None else f"{row.adjusted_p:.4f}",
            row.recall,
            int(row.distinct) if row.distinct.is_integer() else row.distinct,
            f"{100 * row.share:.0f} %",
        )


def notes(results: Sequence[Table], seeds: Sequence[int]) -> tuple[str, ...]:
    """Return what must stand under the tables."""
    found = ["distinct first: documents that come first for some query; few of them mean that a model has collapsed"]
    if len(seeds) > 1:
        found.append(
            f"{len(seeds)} training seeds: a query's score is its mean over them; seeds: least and highest mean; "
            "the interval is over queries, not over seeds"
        )
    else:
        found.append("one training seed: how far another would fall from it is not in the interval")
    for one in results:
        collapsed = [row.name for row in one.rows if any(spread.collapsed for spread in row.first)]
        if collapsed:
            found.append(
                f"{one.task}: one document comes first for more than half of the queries of {', '.join(collapsed)}"
            )
        if test := next((row.test for row in one.rows if row.test is not None), None):
            found.append(f"{one.task}: {settings(test)}; Holm over the task's rows")
            found += [f"{one.task}: {small}"] if (small := caution(test.n)) else []
    return tuple(found)
