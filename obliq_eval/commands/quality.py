"""`obliq quality`: how much of queries can be read off their documents, as in Table J.1 of the paper."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from obliq_eval import show
from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from obliq_eval.analyses.obliqueness import Measures, Quality

app = typer.Typer(add_completion=False)
HELP = """Measure how oblique queries are: overlap with their documents, entities and spans that they repeat.

The measures are those of the paper's appendix J, for synthetic queries against their sources and for a task's queries
against their gold documents; lower is more oblique. Shares are of all pairs of query and document.
"""
COLUMNS = ("queries of", "queries", "pairs", "Jaccard", "coverage", "leakage", "copied spans", "words", "duplicates")
WHAT = "File of synthetic queries or training rows, or a task or folder with judgments."


@app.command(help=HELP)
def quality(
    what: Annotated[list[str], typer.Argument(metavar="FILE|TASK...", help=WHAT)],
    *,
    data: Annotated[
        str | None,
        typer.Option("--data", help="Where synthetic queries' documents are; by default as the manifest says."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the distributions: FILE.svg or .png.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON with full precision.")] = False,
) -> None:
    """Measure how oblique queries are against their documents."""
    from obliq_eval.analyses.obliqueness import summarise

    if plot is not None:
        from obliq_eval.drawing import check_target

        check_target(plot)
    measured: dict[str, list[Measures]] = {}
    table: dict[str, Quality] = {}
    for reference in what:
        for group, (found, queries) in _measured(reference, data).items():
            name = _name(reference, group, measured)
            measured[name] = found
            table[name] = summarise(found, queries.values())
    if not table:
        raise UserError(f"{', '.join(what)}: there is no query with a document to measure it against")
    if as_json:
        show.payload({name: asdict(one) for name, one in table.items()})
    else:
        rows = [(name, *asdict(one).values()) for name, one in table.items()]
        show.table(COLUMNS, rows, title="Queries against their documents: means and shares")
    if plot is not None:
        from obliq_eval import drawing, plots

        pairs = sum(map(len, measured.values()))
        drawing.save(plots.obliqueness(measured, f"{pairs:,} pairs of a query and a document"), plot)
        show.say(f"picture: {plot}", stderr=as_json)


def _measured(reference: str, documents: str | None) -> dict[str, tuple[list[Measures], dict[str, str]]]:
    """Return the measures of each group of pairs, with the text of each query."""
    from obliq_eval.analyses.obliqueness import measure
    from obliq_eval.pairs import read_pairs

    found: dict[str, tuple[list[Measures], dict[str, str]]] = {}
    for pair in show.track(read_pairs(reference, documents), "measuring"):
        measures, queries = found.setdefault(pair.group, ([], {}))
        measures.append(measure(pair.query, pair.source))
        queries[pair.key] = pair.query
    return found


def _name(reference: str, group: str, taken: dict[str, list[Measures]]) -> str:
    """Return what a group is called: its file and its own name, with a number if that is taken."""
    path = Path(reference)
    base = group if not path.is_file() or group == path.name else f"{path.name}: {group}"
    name, number = base, 2
    while name in taken:
        name, number = f"{base} ({number})", number + 1
    return name
