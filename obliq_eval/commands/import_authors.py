"""`obliq import-authors`: the authors' own runs, found in a repository of unknown layout and scored here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from obliq_eval import show
from obliq_eval.data.official import OFFICIAL
from obliq_eval.errors import UserError, near, raise_all
from obliq_eval.leaderboard import paper
from obliq_eval.leaderboard.author_runs import find, held_back, import_all, official_tasks, stated
from obliq_eval.leaderboard.author_source import LICENCE, REPOSITORY, fetch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from obliq_eval.leaderboard.author_runs import Found, FoundRun, Imported

app = typer.Typer(add_completion=False)

HELP = f"""Import the authors' runs from a data set on the hub or a folder, whatever its layout.

Every file is looked into. A run is recognised by its form, its task by its ids (95 % of its queries and documents), its
system by the words of its path; runs go to the run store as the paper's, scored here. Whatever is not recognised is
listed with the reason. {REPOSITORY} is under {LICENCE}. Exit status 1 if no run could be imported.
"""
COLUMNS = ("file", "task", "system", "NDCG@10", "stated", "run")


@app.command(help=HELP)
def import_authors(
    source: Annotated[str, typer.Argument(metavar="REPOSITORY|FOLDER", help="Where the runs are.")] = REPOSITORY,
    *,
    revision: Annotated[str | None, typer.Option(help="Commit, branch or tag; by default the newest.")] = None,
    tasks: Annotated[list[str] | None, typer.Option("-t", "--task", help="Look for runs of these tasks only.")] = None,
    systems: Annotated[
        list[str] | None, typer.Option("--system", metavar="PATH=SYSTEM", help="System of files whose path holds PATH.")
    ] = None,
    incomplete: Annotated[bool, typer.Option(help="Import runs that answer less than 95 % of the queries.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Store nothing.")] = False,
    max_mb: Annotated[int, typer.Option("--max-mb", min=1, help="Fetch no file that is larger.")] = 2_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Import the authors' runs from a data set on the hub or a folder, whatever its layout."""
    known = tuple(dict.fromkeys(figure.system for figure in paper.reported()))
    given = _given(systems or (), known)
    names = tasks or tuple(OFFICIAL)
    raise_all([f'"{t}" is no official task{near(t, OFFICIAL)}' for t in names if t not in OFFICIAL], "import-authors")
    fetched = fetch(source, revision, max_mb)
    found = find(fetched.folder, known, official_tasks(names), given)
    made = [] if dry_run else import_all(found, source, fetched.revision, incomplete=incomplete)
    other = {**found.other, **fetched.left}
    result = [_row(one, made, found, known, incomplete=incomplete) for one in found.runs]
    if as_json:
        tables = [{"file": table.path, "figures": len(table.figures)} for table in found.tables]
        show.payload({"revision": fetched.revision, "runs": result, "tables": tables, "not_recognised": other})
    else:
        _print(result, found, other)
    if not made and not dry_run:
        raise typer.Exit(1)


def _given(pairs: Sequence[str], known: Sequence[str]) -> dict[str, str]:
    """Parse `PATH=SYSTEM`; a system that the paper does not list is refused.

    Raises:
        UserError: If a pair has no `=` or names no system of the paper.
    """
    split = {part: system for part, _, system in (pair.rpartition("=") for pair in pairs)}
    if "" in split:
        raise UserError("--system takes PATH=SYSTEM, such as runs/dense=obliq-ir")
    raise_all(
        [f'"{s}" is no system of the paper{near(s, known)}' for s in split.values() if s not in known], "--system"
    )
    return split


def _row(
    one: FoundRun, made: Sequence[Imported], found: Found, known: Sequence[str], *, incomplete: bool
) -> dict[str, Any]:
    stored = next((imported for imported in made if imported.found is one), None)
    return {
        "file": one.path,
        "task": one.task.name,
        "system": one.system,
        "why": one.why,
        "ndcg@10": None if stored is None else stored.panels["gold"].mean("ndcg@10"),
        "stated": stated(one, found.tables, known),
        "run": None if stored is None else stored.stored.name,
        "held_back": held_back(one, incomplete=incomplete),
    }


def _print(result: Sequence[Mapping[str, Any]], found: Found, other: Mapping[str, str]) -> None:
    rows = [
        (
            one["file"], one["task"], one["system"], one["ndcg@10"],
            ", ".join(f"{value:g}" for value in one["stated"]) or None, one["run"],
        )
        for one in result
    ]  # fmt: skip
    show.table(COLUMNS, rows, title=f"runs recognised: {len(rows)}")
    for one in result:
        if one["held_back"]:
            show.warn(f"{one['file']} is not imported ({one['held_back']}; {one['why']})")
    if found.tables:
        counted = [(table.path, len(table.figures)) for table in found.tables]
        show.table(("file", "figures"), counted, title=f"tables of results: {len(counted)}")
    if other:
        show.table(("file", "what it is"), list(other.items()), title=f"not recognised: {len(other)}")
