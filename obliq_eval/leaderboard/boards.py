"""Boards: reported rows and submissions put together, with intervals and ranks; nothing is mixed that differs."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from obliq_eval.commands.tasks import known_tasks
from obliq_eval.errors import raise_all
from obliq_eval.leaderboard import families, paper
from obliq_eval.leaderboard.entries import (
    MAIN,
    MEASURES,
    SHOWN_DECIMALS,
    Board,
    Cost,
    Entry,
    Figure,
    TablePage,
)
from obliq_eval.leaderboard.submissions import Submitted, load_submissions
from obliq_eval.records import Coverage  # noqa: TC001 -- the order of coverages is typed by it
from obliq_eval.significance import SMALL, holm, mean_interval, paired_bootstrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from obliq_eval.commands.tasks import Facts

LEVEL = 0.05
FEW = f"Fewer than {SMALL} queries: a percentile interval over so few is too narrow, and a rank says little."
COVERAGES: tuple[Coverage, ...] = ("all", "test", "held-out", "dev")


def load_boards(root: Path) -> tuple[Board, ...]:
    """Return the board of every task, the official ones first.

    Args:
        root: Folder that may hold `submissions/` and `mini/`; reported rows come with the package.

    Raises:
        UserError: If a submission is damaged, or was measured on another revision of the data than this version's.
    """
    submitted = list(load_submissions(root))
    tasks = {facts: [s for s in submitted if s.manifest.task == facts.task] for facts in known_tasks()}
    raise_all([problem for facts, part in tasks.items() for problem in _misfits(facts, part)], str(root))
    return tuple(_board(facts, part) for facts, part in tasks.items())


def load_tables(root: Path) -> tuple[TablePage, ...]:
    """Return the pages of tables: the paper's, then those of families that were measured on the mini tasks.

    Args:
        root: Folder that may hold `mini/families/`.

    Raises:
        UserError: If the file of a family is damaged, or was measured on other data than this version's.
    """
    return (*paper.table_pages(), *map(families.page, families.load(root)))


def measured_entry(submitted: Submitted) -> Entry:
    """Return a submission's row, without its rank."""
    about, manifest = submitted.about, submitted.manifest
    source = f"{about.slug}/{manifest.task}"
    figures: dict[str, dict[str, Figure]] = {}
    for judgments, panel in submitted.panels.items():
        figures[judgments] = {}
        for measure, mean in panel.means().items():
            if mean is not None:
                interval = mean_interval(panel.values[measure])
                figures[judgments][measure] = Figure(
                    mean, SHOWN_DECIMALS, source, "recomputed from the run", interval.low, interval.high
                )
    return Entry(
        system=about.system,
        label=about.label or about.system,
        task=manifest.task,
        figures=figures,
        ran_by=about.ran_by,
        scored_by="recomputed",
        exposure=about.exposure,
        coverage=manifest.coverage,
        depth=manifest.depth,
        data_revision=manifest.data.revision,
        oracle=about.oracle,
        panels=submitted.panels,
        folder=submitted.folder,
        description=about.description,
        licence=about.licence,
        links=about.links,
        cost=_cost(submitted, source),
    )


def with_ranks(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries, the measured ones with their rank intervals.

    All pairs of measured systems over the same queries, oracles left out, are one family: paired bootstrap of NDCG@10
    under gold judgments, Holm's adjustment, 5 %.
    """
    ranked = list(entries)
    for coverage in COVERAGES:
        family = [i for i, e in enumerate(entries) if e.measured and not e.oracle and e.coverage == coverage]
        for i, rank in zip(family, ranks([_values(entries[i]) for i in family]), strict=True):
            ranked[i] = replace(entries[i], rank=rank)
    return tuple(ranked)


def ranks(values: Sequence[NDArray[np.float64]]) -> list[tuple[int, int]]:
    """Return the best and the worst rank that the tests leave open to each of n systems.

    Args:
        values: For each system one number per query, all over the same queries in the same order.

    Returns:
        `(1 + systems significantly better, n - systems significantly worse)` for each system.
    """
    pairs = list(combinations(range(len(values)), 2))
    tests = [paired_bootstrap(values[i], values[j]) for i, j in pairs]
    better, worse = [0] * len(values), [0] * len(values)
    for (i, j), test, p in zip(pairs, tests, holm([test.p for test in tests]), strict=True):
        if p < LEVEL:
            winner, loser = (i, j) if test.difference > 0 else (j, i)
            worse[winner] += 1
            better[loser] += 1
    return [(1 + b, len(values) - w) for b, w in zip(better, worse, strict=True)]


def _board(facts: Facts, submitted: Iterable[Submitted]) -> Board:
    entries = with_ranks([*paper.reported_entries(facts.task), *map(measured_entry, submitted)])
    return Board(
        name=facts.benchmark,
        task=facts.task,
        title=facts.task,
        about=f"{facts.mechanism.capitalize()} queries; what decides relevance: {facts.attribute}.",
        queries=facts.queries,
        judgments=("gold",) if facts.pooled is None else ("gold", "pooled"),
        measures=MEASURES,
        entries=tuple(sorted(entries, key=_order)),
        data_revision=facts.revision,
        notes=(*paper.notes(facts.task), *([FEW] if facts.queries < SMALL else [])),
    )


def _order(entry: Entry) -> tuple[object, ...]:
    value = -1.0 if entry.main is None else entry.main.value
    return COVERAGES.index(entry.coverage), entry.oracle, -value, entry.label, entry.scored_by, entry.system


def _values(entry: Entry) -> NDArray[np.float64]:
    judgments, measure = MAIN
    return entry.panels[judgments].values[measure]


def _misfits(facts: Facts, submitted: Sequence[Submitted]) -> list[str]:
    """Return what forbids showing these runs in one table."""
    problems = [
        f"{s.folder} was measured on revision {s.manifest.data.revision} of {facts.task}, the board is about revision "
        f"{facts.revision}, and the two are never mixed: run it again and add it again, or take it out"
        for s in submitted
        if s.manifest.data.revision != facts.revision
    ]
    first = {s.manifest.coverage: s.panels["gold"].queries for s in reversed(submitted)}
    return problems + [
        f"{s.folder} was scored over other queries than the other runs of {facts.task}: add it again"
        for s in submitted
        if s.panels["gold"].queries != first[s.manifest.coverage]
    ]


def _cost(submitted: Submitted, source: str) -> Cost | None:
    manifest = submitted.manifest
    if not manifest.seconds or not manifest.n_queries:
        return None
    seconds = manifest.seconds / manifest.n_queries
    note = (
        "search and scoring of all queries, documents' encoding included, divided by their number; an upper bound "
        "where the machine had other work"
    )
    return Cost(seconds, seconds, None, manifest.hardware, note, source, "manifest")
