"""The reported figures, which come with the package: rows and tables of the sources, each number with its place."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from obliq_eval.leaderboard.entries import Cost, Entry, Exposure, Figure, TablePage, TextTable

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP = "Tables of the paper"


@dataclass(frozen=True)
class Reported:
    """One number of a source.

    Args:
        task: Name of the task.
        system: Name of the system; `a+b` is a pipeline, retriever and then reranker.
        judgments: `gold` or `pooled`.
        measure: Such as `ndcg@10`.
        value: The number.
        decimals: How many decimals the source gives.
        source: Who states it, such as `arXiv:2609.29649`.
        where: Place in the source.
    """

    task: str
    system: str
    judgments: str
    measure: str
    value: float
    decimals: int
    source: str
    where: str


@cache
def reported() -> tuple[Reported, ...]:
    """Return every reported number; what is absent is unknown."""
    return tuple(
        Reported(
            task=row["task"],
            system=row["system"],
            judgments=row["judgments"],
            measure=measure,
            value=float(text),
            decimals=len(text.partition(".")[2]),
            source=_source(row),
            where=row["where"],
        )
        for row in _content()["results"]
        for measure, text in row["figures"].items()
    )


def reported_entries(task: str) -> tuple[Entry, ...]:
    """Return a row for each system that the sources list for a task, also where no number of it is known."""
    figures: dict[str, dict[str, dict[str, Figure]]] = defaultdict(lambda: defaultdict(dict))
    for r in reported():
        if r.task == task:
            figures[r.system][r.judgments][r.measure] = Figure(r.value, r.decimals, r.source, r.where)
    return tuple(
        Entry(
            system=system["system"],
            label=system["label"],
            task=task,
            figures={judgments: dict(measures) for judgments, measures in figures[system["system"]].items()},
            ran_by="paper",
            scored_by="reported",
            exposure=Exposure(**(system["exposure"].get(task) or system["exposure"].get("*", {}))),
            oracle=system["oracle"],
            description=system["description"],
            licence=system["licence"],
            links=tuple(system["links"]),
            cost=_cost(system["system"], task),
        )
        for system in _content()["systems"]
        if task in system["tasks"]
    )


def notes(task: str) -> tuple[str, ...]:
    """Return what is to be known when reading a task's reported rows."""
    return tuple(_content()["notes"].get(task, ()))


def table_pages() -> tuple[TablePage, ...]:
    """Return the paper's tables that are no leaderboards: Table 5, Table H.1, Table D.1."""
    tables = [(table, _by_task(table)) for table in _content()["tables"]]
    tables.append((_content()["contrast_table"], _contrasts()))
    return tuple(
        TablePage(about["slug"], about["title"], GROUP, (table,), tuple(about["notes"])) for about, table in tables
    )


def _by_task(table: dict[str, Any]) -> TextTable:
    """Return NDCG@10 under gold judgments, systems by tasks."""
    texts = {(r.system, r.task): Figure(r.value, r.decimals, r.source, r.where).text for r in _main()}
    return TextTable(
        source=_stated(),
        columns=("system", *table["tasks"]),
        rows=tuple(
            (label, *(texts.get((system, task)) for task in table["tasks"])) for system, label in table["systems"]
        ),
    )


def _main() -> Iterator[Reported]:
    return (r for r in reported() if (r.judgments, r.measure) == ("gold", "ndcg@10"))


def _contrasts() -> TextTable:
    labels = {system["system"]: system["label"] for system in _content()["systems"]}
    return TextTable(
        source=_stated(),
        columns=("contrast", "task", "queries", "difference", "95 % interval", "p"),
        rows=tuple(
            (
                " − ".join(labels[system] for system in row["contrast"]),  # noqa: RUF001 -- a real minus sign
                row["task"],
                str(row["queries"]),
                row["difference"],
                f"[{row['low']}, {row['high']}]",
                ("< " if row["p_is_upper_bound"] else "") + row["p"],
            )
            for row in _content()["contrasts"]
        ),
    )


def _stated() -> str:
    return f"As reported in {_content()['sources']['paper']['id']}"


def _cost(system: str, task: str) -> Cost | None:
    for row in _content()["costs"]:
        if system in row["systems"] and task in row["tasks"]:
            return Cost(
                seconds=float(row["seconds"]),
                seconds_high=float(row["seconds_high"]),
                llm_calls=row["llm_calls"],
                hardware=row["hardware"],
                note=row["note"],
                source=_source(row),
                where=row["where"],
            )
    return None


def _source(row: dict[str, Any]) -> str:
    source: str = _content()["sources"][row["source"]]["id"]
    return source


@cache
def _content() -> dict[str, Any]:
    text = files(__package__).joinpath("paper.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content
