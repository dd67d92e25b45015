"""What the command line prints: aligned tables, JSON for scripts, one-line messages."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

T = TypeVar("T")
UNKNOWN = "\u2013"  # en dash


class _Console(Console):
    """A console that leaves it to the command line what happens when the reader has gone."""

    def on_broken_pipe(self) -> None:
        """Raise the exception at hand again; rich would end the process with status 1, which is a verdict here."""
        raise  # noqa: PLE0704 -- rich calls this while it handles the exception


def console(*, stderr: bool = False) -> Console:
    """Return a console that never wraps or cuts a table when the output is piped."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else 10_000
    return _Console(stderr=stderr, width=width, soft_wrap=not stream.isatty(), highlight=False)


def cell(value: object) -> str:
    """Return the text of a table cell: three decimals for a float, a dash for what is unknown."""
    if value is None:
        return UNKNOWN
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None, as_json: bool = False
) -> None:
    """Print rows as an aligned table, or as a JSON list of objects keyed by column.

    Args:
        columns: Headings; with `as_json` they are the keys.
        rows: One value per column; numbers are aligned to the right, `None` is shown as a dash.
        title: Printed above the table.
        as_json: Print JSON with full precision instead.
    """
    rows = [list(row) for row in rows]
    if as_json:
        payload([dict(zip(columns, row, strict=True)) for row in rows])
        return
    view = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        known = [row[index] for row in rows if row[index] is not None]
        numeric = bool(known) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in known)
        view.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        view.add_row(*(Text(cell(value)) for value in row))
    console().print(view)


def payload(value: Any) -> None:
    """Print one JSON value, indented, for scripts."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def say(message: str, *, stderr: bool = False) -> None:
    """Print one line of plain text."""
    console(stderr=stderr).print(Text(message))


def track(items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """Yield items behind a progress bar on standard error, which is silent unless that is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.progress import track as bar

    yield from bar(items, description=what, total=total, console=console(stderr=True), transient=True)


def warn(message: str) -> None:
    """Print a warning on standard error."""
    console(stderr=True).print(Text.assemble(("warning: ", "yellow"), message))


def fail(message: str) -> None:
    """Print an error on standard error."""
    console(stderr=True).print(Text.assemble(("error: ", "bold red"), message))
