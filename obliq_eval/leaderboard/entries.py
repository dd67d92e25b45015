"""The records that every page of a leaderboard is made of: one number, one system's row, one task's board."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from obliq_eval.evaluation import PANEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from obliq_eval.manifest import Who
    from obliq_eval.metrics import Panel
    from obliq_eval.records import Coverage

MAIN = ("gold", "ndcg@10")
"""Judgments and measure that rows are ordered and compared by."""
MEASURES = PANEL
BENCH, MINI_BENCH = "OBLIQ-Bench", "OBLIQ-Mini"
SHOWN_DECIMALS = 4
"""Decimals of a measured number in a table; a reported one is shown as its source gives it, but never with more."""

Scored = Literal["reported", "recomputed"]


@dataclass(frozen=True)
class Figure:
    """One number and where it comes from.

    Args:
        value: The mean over queries.
        decimals: Decimals that the source gives; for a measured number `SHOWN_DECIMALS`.
        source: Who states it: `arXiv:…`, a model card, or the submission it was computed from.
        where: Place in the source, such as a table.
        low: Lower end of the 95 % bootstrap interval over queries; None for a reported number.
        high: Upper end.
    """

    value: float
    decimals: int
    source: str
    where: str
    low: float | None = None
    high: float | None = None

    @property
    def text(self) -> str:
        """The number as a table shows it."""
        return f"{self.value:.{min(self.decimals, SHOWN_DECIMALS)}f}"


@dataclass(frozen=True)
class Exposure:
    """What a system had seen of a task before it was measured; None where nobody says.

    Args:
        trained_on_corpus: It was trained on documents of this corpus.
        knows_mechanism: It was built or prompted with knowledge of how the queries relate to the documents.
        saw_dev: Settings were chosen on the task's dev queries.
    """

    trained_on_corpus: bool | None = None
    knows_mechanism: bool | None = None
    saw_dev: bool | None = None


@dataclass(frozen=True)
class Cost:
    """What one query costs.

    Args:
        seconds: Seconds for one query, the lower end where a range is known.
        seconds_high: The upper end; equal to `seconds` where one number is known.
        llm_calls: Calls of a language model for one query; None if not known.
        hardware: The machine, in words.
        note: What the time includes.
        source: Who states it.
        where: Place in the source.
    """

    seconds: float
    seconds_high: float
    llm_calls: float | None
    hardware: str
    note: str
    source: str
    where: str


@dataclass(frozen=True)
class Entry:
    """One system's row on one task's board.

    Args:
        system: Name of the system, the same on every board (an alias or a full name).
        label: Name as shown to people; untrusted text, to be escaped.
        task: Name of the task.
        figures: `{judgments: {measure: figure}}`; what is absent is unknown, never 0.
        ran_by: Who ran it.
        scored_by: Whether the numbers are taken from a source or recomputed from the run.
        exposure: What the system had seen of this task.
        coverage: Which of the task's queries were asked.
        depth: How many documents were asked for; None if not known.
        data_revision: Revision of the data; None if the source does not say.
        oracle: It is shown the judgments or relies on them, so no retriever attains it.
        rank: From 1 + the number of systems significantly better to n - the number significantly worse; None for
            reported rows, which have no per-query data, and for oracles.
        panels: `{judgments: Panel}` with the values of each query; empty for a reported row.
        folder: Folder with `run.parquet` and `manifest.json`; None for a reported row.
        description: What the system is; untrusted text.
        licence: Licence of the system; empty if not known.
        links: Addresses with more about it, `https://…` or `http://…`.
        cost: What one query costs; None if not known.
    """

    system: str
    label: str
    task: str
    figures: Mapping[str, Mapping[str, Figure]]
    ran_by: Who
    scored_by: Scored
    exposure: Exposure = Exposure()
    coverage: Coverage = "all"
    depth: int | None = None
    data_revision: str | None = None
    oracle: bool = False
    rank: tuple[int, int] | None = None
    panels: Mapping[str, Panel] = field(default_factory=dict, repr=False, compare=False)
    folder: Path | None = None
    description: str = ""
    licence: str = ""
    links: tuple[str, ...] = ()
    cost: Cost | None = None

    def figure(self, judgments: str, measure: str) -> Figure | None:
        """Return one number, or None where it is unknown."""
        return self.figures.get(judgments, {}).get(measure)

    @property
    def main(self) -> Figure | None:
        """NDCG@10 under gold judgments."""
        return self.figure(*MAIN)

    @property
    def measured(self) -> bool:
        """Whether there is per-query data."""
        return bool(self.panels)

    def judged_at_10(self, judgments: str) -> float | None:
        """Return the share of the first ten documents that have a judgment; None for a reported row."""
        return self.panels[judgments].judged_at_10 if judgments in self.panels else None


@dataclass(frozen=True)
class Board:
    """One task's leaderboard.

    Args:
        name: `OBLIQ-Bench` or `OBLIQ-Mini`; the two are never mixed.
        task: Name of the task.
        title: Heading.
        about: One sentence on what decides relevance.
        queries: How many queries the task has.
        judgments: `("gold",)` or `("gold", "pooled")`.
        measures: Columns, NDCG@10 first.
        entries: Rows in the order in which they are shown: whole coverage before parts, attainable systems before
            oracles, then NDCG@10 under gold from the highest down, unknown last.
        data_revision: Revision of the data that measured rows share.
        notes: Sentences to show below the table.
    """

    name: str
    task: str
    title: str
    about: str
    queries: int
    judgments: tuple[str, ...]
    measures: tuple[str, ...]
    entries: tuple[Entry, ...]
    data_revision: str | None
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> tuple[Entry, ...]:
        """The best system that is not an oracle, over all queries; several where they are equal."""
        fair = [e for e in self.entries if not e.oracle and e.coverage == "all" and e.main is not None]
        top = max((e.main.value for e in fair if e.main), default=None)
        return tuple(e for e in fair if e.main and e.main.value == top)


@dataclass(frozen=True)
class TextTable:
    """A table that is shown as it was stated.

    Args:
        source: Who states it, and over what: a phrase that stands above it.
        columns: Headings.
        rows: One text for each column; None is unknown.
        name: Heading; empty where the page has no other table.
    """

    source: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    name: str = ""


@dataclass(frozen=True)
class TablePage:
    """A page of tables that are no leaderboards.

    Args:
        slug: Its name, without suffix.
        title: Heading.
        group: What it is listed under; what stands before a colon names the group in short.
        tables: The tables.
        notes: Sentences to show below the tables.
    """

    slug: str
    title: str
    group: str
    tables: tuple[TextTable, ...]
    notes: tuple[str, ...] = ()


def by_group(pages: Iterable[TablePage]) -> dict[str, list[TablePage]]:
    """Return the pages of each group, in their order."""
    groups: dict[str, list[TablePage]] = {}
    for page in pages:
        groups.setdefault(page.group, []).append(page)
    return groups
