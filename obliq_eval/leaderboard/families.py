"""Families of recipes that were trained and compared on the mini tasks: their files, their pages, their check.

`obliq train FAMILY --ablate --data mini` writes a family's file; what is not shown of it is passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field, FiniteFloat, TypeAdapter

from obliq_eval.commands.tasks import known_tasks
from obliq_eval.errors import raise_all
from obliq_eval.leaderboard.entries import BENCH, MINI_BENCH, SHOWN_DECIMALS, TablePage, TextTable
from obliq_eval.leaderboard.intake import TOLERANCE, Verified
from obliq_eval.leaderboard.submissions import load_submissions, parsed
from obliq_eval.records import Coverage  # noqa: TC001 -- pydantic reads the annotation
from obliq_eval.reference import open_task
from obliq_eval.significance import PairedTest, holm, paired_bootstrap

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from obliq_eval.leaderboard.submissions import Submitted

FOLDER = "mini/families"
GROUP = f"Families of recipes on {MINI_BENCH}: not comparable with {BENCH}"
COLUMNS = (
    "model", "NDCG@10", "seeds", "Δ", "95 % interval", "Holm p", "Recall@100", "distinct first documents",
    "share of the most frequent",
)  # fmt: skip
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_Share = Annotated[FiniteFloat, Field(ge=0, le=1)]


@dataclass(frozen=True)
class Difference:
    """A row's difference from the control; the fields are those of `PairedTest`, and p after Holm's adjustment."""

    difference: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat
    p: _Share
    n: int
    resamples: int
    seed: int
    level: _Share
    method: str
    adjusted_p: _Share


@dataclass(frozen=True)
class Row:
    """One model on one task.

    Args:
        member: What it is called.
        runs: Ids of its runs, one for each seed; none in files of older versions.
        mean: NDCG@10 over queries and training seeds.
        by_query: NDCG@10 of each query, the mean over the seeds.
        by_seed: NDCG@10 of each seed.
        recall: Recall@100; None where a run is too shallow.
        distinct: How many documents come first for some query, the mean over the seeds.
        share: Largest share of the queries that one first document takes.
        difference: None for the control and what has its very recipe.
    """

    member: str
    mean: Annotated[_Share, Field(alias="ndcg@10")]
    by_query: Annotated[tuple[_Share, ...], Field(alias="by query")]
    by_seed: Annotated[tuple[_Share, ...], Field(alias="by seed", min_length=1)]
    recall: Annotated[_Share | None, Field(alias="recall@100")]
    distinct: Annotated[FiniteFloat, Field(alias="distinct first documents", ge=0)]
    share: Annotated[_Share, Field(alias="share of the most frequent")]
    difference: Difference | None
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """A family on one task.

    Args:
        task: Name of the task.
        data_revision: Revision of its data.
        judgments: Name of the judgments.
        coverage: Which of the task's queries.
        n: How many these are.
        query_ids: Their ids, in the order of each row's values.
        rows: The control first.
    """

    task: str
    data_revision: str
    judgments: str
    coverage: Annotated[Coverage, Field(alias="queries")]
    n: int
    query_ids: Annotated[tuple[str, ...], Field(alias="query ids")]
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Family:
    """The content of one file.

    Args:
        family: Its name.
        data: `mini`.
        control: What the others are compared with.
        seeds: Training seeds.
        tasks: One table for each task.
        not_run: `{model: why}`.
        same: `{row: the row whose recipe it has}`; such a row is no comparison of its own.
        notes: Sentences to show below the tables.
    """

    family: str
    data: Literal["mini"]
    control: str
    seeds: Annotated[tuple[int, ...], Field(min_length=1)]
    tasks: Annotated[tuple[Table, ...], Field(min_length=1)]
    not_run: Annotated[dict[str, str], Field(alias="not run")]
    same: Annotated[dict[str, str], Field(alias="same recipe")]
    notes: tuple[str, ...]


def load(root: Path) -> tuple[Family, ...]:
    """Return the families of a leaderboard's folder by name.

    Raises:
        UserError: If a file is damaged, bears another family's name, or was measured on other data than this version's.
    """
    return tuple(_read(path) for path in sorted((root / FOLDER).glob("*.json")))


def page(family: Family) -> TablePage:
    """Return the page of a family, with one table for each of its tasks."""
    return TablePage(
        slug=f"mini-{family.family}",
        title=f"{family.family} on {MINI_BENCH}: what was trained and what was not, against {family.control}",
        group=GROUP,
        tables=tuple(map(_text_table, family.tasks)),
        notes=(*family.notes, *(f"{name} was not run: {why}" for name, why in family.not_run.items())),
    )


def verify(root: Path) -> Iterator[Verified]:
    """Compute means, differences, intervals and p of every family again, from the values of each query.

    Where the very run stands on a board too, the values are compared with those. There are none of Recall@100 and of
    how first documents are spread: these stand as they were written.

    Raises:
        UserError: As `load` does.
    """
    boards = {one.manifest.run_id: one for one in load_submissions(root)}
    for family in load(root):
        for table in family.tasks:
            if table.query_ids == open_task(table.task, table.coverage).main.queries:
                yield from _again(family, table, boards)
            else:
                problem = f"its query ids are not those of the {table.coverage} queries; {_remedy(family.family)}"
                yield Verified(family.family, table.task, table.judgments, None, None, None, problem)


def _read(path: Path) -> Family:
    family = parsed(path, lambda text: TypeAdapter(Family).validate_json(text, strict=True), _remedy(path.stem))
    raise_all(list(_problems(family, path)), str(path))
    return family


def _problems(family: Family, path: Path) -> Iterator[str]:
    """Yield what forbids showing a family, one sentence each."""
    if family.family != path.stem or not _NAME.fullmatch(path.stem):
        yield f"it is about the family {family.family!r}; name it by that, in small letters, digits and hyphens"
    revisions = {facts.task: facts.revision for facts in known_tasks() if facts.benchmark == MINI_BENCH}
    for table in family.tasks:
        if table.task not in revisions:
            yield f"{table.task} is not one of {', '.join(revisions)}; take it out"
        elif table.data_revision != revisions[table.task]:
            yield (
                f"{table.task} was measured on revision {table.data_revision}, the board is about revision "
                f"{revisions[table.task]}; {_remedy(path.stem)}"
            )
        members = [row.member for row in table.rows]
        if members[0] != family.control or len(set(members)) < len(members):
            yield f"{table.task}: the rows are not the control {family.control} and others, each once"
        if table.n < 2 or {table.n} != {len(table.query_ids), *(len(row.by_query) for row in table.rows)}:
            yield f"{table.task}: there is not one value of each row for each of two queries or more; n is {table.n}"


def _remedy(family: str) -> str:
    return f"make it again with `obliq train {family} --ablate --data mini`"


def _again(family: Family, table: Table, boards: Mapping[str, Submitted]) -> Iterator[Verified]:
    rows = {row.member: row for row in table.rows}
    control, *others = table.rows
    tests = {
        row.member: paired_bootstrap(row.by_query, control.by_query) for row in others if row.member not in family.same
    }
    adjusted = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    for row in table.rows:
        first = family.same.get(row.member, row.member)
        mean = float(np.mean(row.by_query))
        gaps = _gaps(row, mean, tests.get(first), adjusted.get(first))
        if (known := _on_boards(row, table, boards)) is not None:
            gaps["the values of its run on the board"] = float(np.abs(known - np.array(row.by_query)).max())
        wrong = [name for name, gap in gaps.items() if gap > TOLERANCE]
        if row.by_query != rows.get(first, row).by_query:
            wrong.append(f"the values of {first}, whose recipe it has")
        problem = f"{', '.join(wrong)}: not as recomputed; {_remedy(family.family)}" if wrong else ""
        name = f"{family.family}: {row.member}"
        yield Verified(name, table.task, table.judgments, row.mean, mean, max(gaps.values()), problem)


def _on_boards(row: Row, table: Table, boards: Mapping[str, Submitted]) -> NDArray[np.float64] | None:
    """Return NDCG@10 of each query by the runs that stand on boards; None unless all of a row's do."""
    panels = [boards[run].panels.get(table.judgments) if run in boards else None for run in row.runs]
    found = list[list[float]]()
    for panel in panels:
        if panel is None or not set(table.query_ids) <= set(panel.queries):
            return None
        values = dict(zip(panel.queries, panel.values["ndcg@10"].tolist(), strict=True))
        found.append([values[query] for query in table.query_ids])
    return np.array(found).mean(axis=0) if found else None


def _gaps(row: Row, mean: float, test: PairedTest | None, adjusted: float | None) -> dict[str, float]:
    """Return how far each stated number lies from the one that follows; settings that differ lie infinitely far."""
    gaps = {"NDCG@10": abs(row.mean - mean), "by seed": abs(float(np.mean(row.by_seed)) - mean)}
    stated = {} if row.difference is None else vars(row.difference)
    wanted = {} if test is None else vars(test) | {"adjusted_p": adjusted}
    if stated.keys() != wanted.keys():
        return gaps | {"difference": np.inf}
    for name, value in wanted.items():
        same = 0.0 if stated[name] == value else np.inf
        gaps[name] = abs(stated[name] - value) if isinstance(value, float) else same
    return gaps


def _text_table(table: Table) -> TextTable:
    which = f"{table.coverage} queries (n = {table.n:,}), {table.judgments} judgments"
    return TextTable(
        source=f"Measured here: {which}; Δ: NDCG@10 less that of {table.rows[0].member}",
        columns=COLUMNS,
        rows=tuple(map(_cells, table.rows)),
        name=table.task,
    )


def _cells(row: Row) -> tuple[str | None, ...]:
    places, test = SHOWN_DECIMALS, row.difference
    least, most = min(row.by_seed), max(row.by_seed)
    return (
        row.member,
        f"{row.mean:.{places}f}",
        f"{least:.{places}f} to {most:.{places}f}" if len(row.by_seed) > 1 else None,
        None if test is None else f"{test.difference:+.{places}f}",
        None if test is None else f"[{test.low:+.{places}f}, {test.high:+.{places}f}]",
        None if test is None else f"{test.adjusted_p:.4f}",
        None if row.recall is None else f"{row.recall:.{places}f}",
        f"{row.distinct:.1f}".removesuffix(".0"),
        f"{row.share:.2f}",
    )
