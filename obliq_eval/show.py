"""What the command line prints: aligned tables, JSON for scripts, one-line messages."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import traceback
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.progress import Progress

T = TypeVar("T")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed
UNKNOWN = "\u2013"  # en dash
NARROWEST = 6  # characters to which a word of a table may be broken, however narrow the terminal
HINTS = {
    errno.ENOSPC: "; free space, or choose a folder on another disk",
    errno.EACCES: "; change its permissions, or choose another folder",
    errno.ENAMETOOLONG: "; choose a shorter name",
}


class _Console(Console):
    """A console that leaves it to the command line what happens when the reader has gone."""

    def on_broken_pipe(self) -> None:
        """Raise the exception at hand again; rich would end the process with status 1, which is a verdict here."""
        raise  # noqa: PLE0704 -- rich calls this while it handles the exception


def progress(name: str, told: str) -> Progress:
    """Return a bar on standard error that counts up to a total, and goes when it is done.

    Args:
        name: Text before the bar, which may hold fields of the task, as rich writes them.
        told: Text behind the count, likewise.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn(name),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(told),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console(stderr=True),
        transient=True,
    )


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
    cells = [[encodable(cell(value)) for value in row] for row in rows]
    view = Table(
        title=title and encodable(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
    least = 1
    for index, column in enumerate(columns):
        known = [row[index] for row in rows if row[index] is not None]
        numeric = bool(known) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in known)
        width = _narrowest([row[index] for row in cells], column, numeric=numeric)
        view.add_column(encodable(column), justify="right" if numeric else "left", overflow="fold", min_width=width)
        least += width + 3  # a blank on either side, and what divides two columns
    for texts in cells:
        view.add_row(*map(Text, texts))
    target = console()
    target.width = max(target.width, least)  # better lines that the terminal breaks than columns without content
    target.print(view)


def _narrowest(texts: Sequence[str], column: str, *, numeric: bool) -> int:
    """Return the least width of a column: numbers stay whole, words are broken at the earliest after `NARROWEST`."""
    if numeric:
        return max(map(cell_len, texts))
    words = [word for text in (column, *texts) for word in text.split()]
    return min(NARROWEST, max(map(cell_len, words), default=1))


def payload(value: Any) -> None:
    """Print one JSON value, indented, for scripts; in ASCII where the output cannot hold what the text has."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    if encodable(text) != text:
        text = json.dumps(value, indent=2, default=str)
    sys.stdout.write(text + "\n")


def encodable(text: str, stream: TextIO | None = None) -> str:
    r"""Return the text with what the stream's encoding lacks written as `\xe9`; the dash of `UNKNOWN` as a hyphen.

    Control characters are spelled out too: ids and file names must not steer the terminal.

    Args:
        text: Any text, half a surrogate pair included.
        stream: Where it will be printed, by default standard output.
    """
    text = CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    encoding = getattr(stream or sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.replace(UNKNOWN, "-").encode(encoding, "backslashreplace").decode(encoding)
    return text


def say(message: str, *, stderr: bool = False) -> None:
    """Print one line of plain text."""
    console(stderr=stderr).print(Text(encodable(message, sys.stderr if stderr else sys.stdout)))


def track(items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """Yield items behind a progress bar on standard error, which is silent unless that is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.progress import track as bar

    yield from bar(items, description=what, total=total, console=console(stderr=True), transient=True)


def warn(message: str) -> None:
    """Print a warning on standard error."""
    console(stderr=True).print(Text.assemble(("warning: ", "yellow"), encodable(message, sys.stderr)))


def fail(message: str) -> None:
    """Print an error on standard error."""
    console(stderr=True).print(Text.assemble(("error: ", "bold red"), encodable(message, sys.stderr)))


def why(error: Exception) -> str:
    """Return one sentence on an exception that is no `UserError`.

    What the system refuses is told with its path; a missing home folder as such; everything else is a defect.
    """
    if isinstance(error, OSError) and error.strerror:
        place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        return f"{place}{error.strerror}{HINTS.get(error.errno or 0, '')}"
    text = (str(error).strip() or "no message").splitlines()[0]
    if isinstance(error, RuntimeError) and "home directory" in text:  # as pathlib says it
        return "there is no home folder to keep anything in: set HOME to a folder"
    return (
        f"{type(error).__name__}: {text}; this is a defect of obliq or of a library below it, not of your input: "
        "OBLIQ_DEBUG=1 shows the traceback"
    )


def debug() -> None:
    """Print the traceback of the exception at hand if `OBLIQ_DEBUG` asks for it."""
    if os.environ.get("OBLIQ_DEBUG", "0") not in {"", "0"}:
        traceback.print_exc()
