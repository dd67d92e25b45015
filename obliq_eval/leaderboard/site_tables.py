"""The site's tables: cells with what is shown and what is sorted by."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from obliq_eval.leaderboard.entries import MAIN
from obliq_eval.leaderboard.pages import heading
from obliq_eval.show import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from obliq_eval.leaderboard.entries import Board, Entry, Figure, TextTable

FIGURE_SPACE = "\u2007"
YES_NO = {True: "yes", False: "no", None: UNKNOWN}
_NUMERIC = re.compile(r"[<\[+\-.\d\s]+(?:[\d.,+\-\]\s]| to )*")

_DECIMALS = re.compile(r"[+-]?\d+\.(\d+)")


@dataclass(frozen=True)
class Cell:
    """One cell.

    Args:
        text: What is shown.
        value: What a numeric column is sorted by; None for text and for the unknown.
        strong: It is the best of its column.
    """

    text: str
    value: float | None = None
    strong: bool = False

    @property
    def unknown(self) -> bool:
        """Whether nothing is known; such cells come last in either order."""
        return self.text == UNKNOWN

    @property
    def long(self) -> bool:
        """Whether it needs more than a narrow column."""
        return len(self.text) > 30


@dataclass(frozen=True)
class Column:
    """One column.

    Args:
        name: Heading.
        numeric: Aligned to the right, and sorted by value.
        group: Heading above several neighbours; empty for none.
        about: What it means, in a sentence; empty where the heading says it.
    """

    name: str
    numeric: bool = True
    group: str = ""
    about: str = ""


@dataclass(frozen=True)
class Row:
    """One row.

    Args:
        name: Row heading; untrusted text.
        cells: One for each column but the first.
        oracle: Marked as an oracle.
        scored: `measured`, `reported`, or empty where it does not matter.
        find: What a text filter looks at.
        link: Where more about the row stands.
    """

    name: str
    cells: tuple[Cell, ...]
    oracle: bool = False
    scored: str = ""
    find: str = ""
    link: str = ""


@dataclass(frozen=True)
class Table:
    """A table; the first column holds the row headings."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The headings above the columns after the first, with how many columns each spans."""
        spans: list[tuple[str, int]] = []
        for column in self.columns[1:]:
            if spans and spans[-1][0] == column.group:
                spans[-1] = (column.group, spans[-1][1] + 1)
            else:
                spans.append((column.group, 1))
        return spans


def _aligned(table: Table) -> Table:
    """Return a table whose numbers stand with their decimal points in line: figure spaces take the place of digits."""
    texts = [[row.cells[i].text for row in table.rows] for i in range(len(table.columns) - 1)]
    widths = [max(map(_decimals, column), default=0) for column in texts]

    def pad(cell: Cell, width: int) -> Cell:
        missing = width - _decimals(cell.text)
        return replace(cell, text=cell.text + FIGURE_SPACE * missing) if 0 < missing < width else cell

    return replace(table, rows=tuple(replace(row, cells=tuple(map(pad, row.cells, widths))) for row in table.rows))


def _decimals(text: str) -> int:
    found = _DECIMALS.fullmatch(text)
    return len(found[1]) if found else 0


def plain(text: str) -> str:
    """Return untrusted text without control and direction characters, spaces in their place."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def board_table(board: Board) -> Table:
    """Return a task's table: NDCG@10 under gold first, the panel beside it, then who, what and what was seen."""
    columns = list(_columns(board))
    table = Table(
        (Column("System", numeric=False), *(column for column, _ in columns)),
        tuple(
            Row(
                plain(entry.label),
                tuple(cell(entry) for _, cell in columns),
                entry.oracle,
                scored(entry),
                plain(f"{entry.label} {entry.system} {entry.description} {entry.ran_by} {scored(entry)}").lower(),
                f"#system-{number}",
            )
            for number, entry in enumerate(board.entries, start=1)
        ),
    )
    return _aligned(table)


def scored(entry: Entry) -> str:
    """Return whether a row was measured here or is reported."""
    return "measured" if entry.scored_by == "recomputed" else "reported"


def matrix(boards: Sequence[Board]) -> Table:
    """Return NDCG@10 under gold, systems by tasks of one benchmark; no mean, and only rows over all queries."""
    found: dict[tuple[object, ...], dict[str, Entry]] = {}
    for board in boards:
        for entry in board.entries:
            if entry.coverage == "all":
                key = (entry.oracle, entry.system, entry.label, entry.ran_by, entry.scored_by)
                found.setdefault(key, {})[board.task] = entry
    order = sorted(found.values(), key=lambda row: (_first(row).oracle, -sum(e.main is not None for e in row.values())))
    best = {board.task: board.best for board in boards}
    who = (Column("Ran by", numeric=False), Column("Scored by", numeric=False))
    table = Table(
        (Column("System", numeric=False), *(Column(board.title) for board in boards), *who),
        tuple(
            Row(
                plain(_first(row).label),
                (
                    *(_main(row.get(b.task), best[b.task]) for b in boards),
                    Cell(_first(row).ran_by),
                    Cell(_first(row).scored_by),
                ),
                _first(row).oracle,
            )
            for row in order
        ),
    )
    return _aligned(table)


def text_table(table: TextTable) -> Table:
    """Return a table as it was stated; columns of numbers are aligned to the right."""
    numeric = [
        all(row[i] is None or _NUMERIC.fullmatch(row[i] or "") for row in table.rows) for i in range(len(table.columns))
    ]
    shown = Table(
        tuple(
            Column(name if len(name) == 1 else name[:1].upper() + name[1:], numeric=right)
            for name, right in zip(table.columns, numeric, strict=True)
        ),
        tuple(
            Row(plain(row[0] or UNKNOWN), tuple(_cell(text, numeric[i]) for i, text in enumerate(row[1:], start=1)))
            for row in table.rows
        ),
    )
    return _aligned(shown)


def sources(board: Board) -> Table:
    """Return where each number comes from, the numbers of one place together."""
    rows: list[Row] = []
    for entry in board.entries:
        places: dict[tuple[str, str, str], list[str]] = {}
        for judgments, figures in entry.figures.items():
            for measure, figure in figures.items():
                places.setdefault((judgments, figure.source, figure.where), []).append(heading(measure))
        rows += [
            Row(plain(entry.label), tuple(map(_cell, (judgments, ", ".join(measures), source, where))), entry.oracle)
            for (judgments, source, where), measures in places.items()
        ]
    names = ("System", "Judgments", "Numbers", "Source", "Where")
    return Table(tuple(Column(name, numeric=False) for name in names), tuple(rows))


def costs(board: Board) -> Table:
    """Return what one query costs, where it is known."""
    rows = []
    for entry in board.entries:
        if (cost := entry.cost) is not None:
            ends = dict.fromkeys(f"{seconds:.3g}" for seconds in (cost.seconds, cost.seconds_high))
            calls = Cell(UNKNOWN) if cost.llm_calls is None else Cell(f"{cost.llm_calls:g}", cost.llm_calls)
            words = (cost.hardware, cost.note, f"{cost.source}, {cost.where}")
            rows.append(
                Row(
                    plain(entry.label),
                    (Cell(" to ".join(ends), cost.seconds), calls, *map(_cell, words)),
                    entry.oracle,
                )
            )
    texts = (Column(name, numeric=False) for name in ("Machine", "What the time holds", "Source"))
    return Table((Column("System", numeric=False), Column("Seconds"), Column("LLM calls"), *texts), tuple(rows))


def _columns(board: Board) -> Iterator[tuple[Column, Callable[[Entry], Cell]]]:
    """Yield every column after the name with the function that fills it."""
    best = board.best
    for judgments in board.judgments:
        group = f"{judgments.capitalize()} judgments"
        for measure in board.measures:
            if (judgments, measure) == MAIN:
                yield Column(heading(measure), group=group), lambda entry: _main(entry, best)
                yield Column("95 % interval", group=group, about="Bootstrap over queries"), _interval
                yield Column("Rank", group=group, about="Ranks that the paired tests leave open"), _rank
            else:
                yield Column(heading(measure), group=group), _figure(judgments, measure)
    last = board.judgments[-1]
    about = f"Share of the first ten documents that have a judgment ({last})"
    yield Column("Judged@10", group=f"{last.capitalize()} judgments", about=about), _judged(last)
    who = "Provenance"
    yield Column("Ran by", numeric=False, group=who), lambda entry: Cell(entry.ran_by)
    yield Column("Scored by", numeric=False, group=who), lambda entry: Cell(entry.scored_by)
    yield Column("Queries", numeric=False, group=who), lambda entry: Cell(entry.coverage)
    yield Column("Depth", group=who, about="How many documents the run asked for"), _depth
    seen = "Exposure"
    yield (
        Column("Corpus", numeric=False, group=seen, about="Trained on documents of this corpus"),
        lambda entry: Cell(YES_NO[entry.exposure.trained_on_corpus]),
    )
    yield (
        Column("Mechanism", numeric=False, group=seen, about="Built with knowledge of how queries relate to documents"),
        lambda entry: Cell(YES_NO[entry.exposure.knows_mechanism]),
    )
    yield (
        Column("Dev", numeric=False, group=seen, about="Settings were chosen on dev queries"),
        lambda entry: Cell(YES_NO[entry.exposure.saw_dev]),
    )


def _figure(judgments: str, measure: str) -> Callable[[Entry], Cell]:
    return lambda entry: _number(entry.figure(judgments, measure))


def _first(row: dict[str, Entry]) -> Entry:
    return next(iter(row.values()))


def _main(entry: Entry | None, best: Sequence[Entry]) -> Cell:
    if entry is None or entry.main is None:
        return Cell(UNKNOWN)
    return Cell(entry.main.text, entry.main.value, any(entry is other for other in best))


def _number(figure: Figure | None) -> Cell:
    return Cell(UNKNOWN) if figure is None else Cell(figure.text, figure.value)


def _interval(entry: Entry) -> Cell:
    main = entry.main
    if main is None or main.low is None or main.high is None:
        return Cell(UNKNOWN)
    return Cell(f"{main.low:.4f} to {main.high:.4f}", main.low)


def _rank(entry: Entry) -> Cell:
    if entry.rank is None:
        return Cell(UNKNOWN)
    best, worst = entry.rank
    return Cell(f"{best}" if best == worst else f"{best} to {worst}", best + worst / 1e6)


def _judged(judgments: str) -> Callable[[Entry], Cell]:
    def cell(entry: Entry) -> Cell:
        share = entry.judged_at_10(judgments)
        return Cell(UNKNOWN) if share is None else Cell(f"{share:.2f}", share)

    return cell


def _depth(entry: Entry) -> Cell:
    return Cell(UNKNOWN) if entry.depth is None else Cell(f"{entry.depth:,}", entry.depth)


def _cell(text: str | None, numeric: bool = False) -> Cell:
    if text is None or not plain(text):
        return Cell(UNKNOWN)
    number = re.search(r"[+-]?\d[\d,]*\.?\d*", text) if numeric else None
    return Cell(plain(text), float(number[0].replace(",", "")) if number else None)
