"""`obliq leaderboard`: pages from reported figures and submitted runs, and the checks of both."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from obliq_eval import show
from obliq_eval.errors import UserError, near
from obliq_eval.leaderboard.entries import Exposure
from obliq_eval.manifest import Who

if TYPE_CHECKING:
    from obliq_eval.leaderboard.intake import Verified

app = typer.Typer(
    help="Build the leaderboards, add submissions, check both.", no_args_is_help=True, add_completion=False
)

Root = Annotated[Path, typer.Option(help="Folder of the leaderboards.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
HERE = Path("leaderboards")


@app.command()
def build(*, root: Root = HERE, as_json: Json = False) -> None:
    """Write the pages: README.md, one page for each task and table, and site/."""
    from obliq_eval.leaderboard import publish

    written = publish.build(root)
    if as_json:
        show.payload({"root": str(root), "written": written})
    else:
        show.say(f"{len(written)} files in {root}; start at {root / 'README.md'} or {root / 'site' / 'index.html'}")


@app.command()
def add(
    submission: Annotated[str, typer.Argument(help="Folder with submission.toml, or a run: id, MODEL:TASK, folder.")],
    *,
    root: Root = HERE,
    system: Annotated[str | None, typer.Option(help="Name of the system; by default the run's model.")] = None,
    label: Annotated[str | None, typer.Option(help="Name as shown, if it differs.")] = None,
    description: Annotated[str | None, typer.Option(help="What the system is.")] = None,
    licence: Annotated[str | None, typer.Option(help="Licence of its weights or code.")] = None,
    link: Annotated[list[str] | None, typer.Option(help="Address with more about it; may be repeated.")] = None,
    ran_by: Annotated[str | None, typer.Option(help="Who ran it: submitter, us or paper.")] = None,
    oracle: Annotated[bool | None, typer.Option(help="Whether the system is shown judgments.")] = None,
    trained_on_corpus: Annotated[bool | None, typer.Option(help="Whether it was trained on this corpus.")] = None,
    knows_mechanism: Annotated[bool | None, typer.Option(help="Whether it was built for this mechanism.")] = None,
    saw_dev: Annotated[bool | None, typer.Option(help="Whether settings were chosen on dev queries.")] = None,
    queries: Annotated[
        str | None,
        typer.Option("--queries", help="Keep and score a part: all, dev, test or held-out; by default the run's."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a submission, name everything that speaks against it, and copy it with what each query scores."""
    from obliq_eval.leaderboard.intake import add as take_in
    from obliq_eval.reference import parse_coverage

    if ran_by is not None and ran_by not in get_args(Who):
        raise UserError(f'--ran-by "{ran_by}" is not one of {", ".join(get_args(Who))}{near(ran_by, get_args(Who))}')
    exposure = Exposure(trained_on_corpus, knows_mechanism, saw_dev)
    given: dict[str, Any] = {
        "system": system, "label": label, "description": description, "licence": licence,
        "links": tuple(link) if link else None, "ran_by": cast("Who | None", ran_by), "oracle": oracle,
        "exposure": exposure if exposure != Exposure() else None,
    }  # fmt: skip
    part = None if queries is None else parse_coverage(queries)
    written = take_in(submission, root, {key: value for key, value in given.items() if value is not None}, part)
    if as_json:
        show.payload({"written": [str(path) for path in written]})
        return
    for path in written:
        show.say(f"{submission} -> {path}")
    show.say("`obliq leaderboard build` brings the pages up to date")


@app.command()
def verify(*, root: Root = HERE, as_json: Json = False) -> None:
    """Score runs and compute families again; exit status 1 if a number does not follow from its run or values."""
    from obliq_eval.leaderboard import families, intake

    found = [*intake.verify(root), *families.verify(root)]
    if as_json:
        show.payload([{**asdict(row), "good": row.good} for row in found])
    elif found:
        columns = ("system", "task", "judgments", "NDCG@10 stored", "recomputed", "largest difference", "verdict")
        show.table(columns, [_row(row) for row in found])
    else:
        show.say(f"{root} holds no submission and no family; reported rows have no run to be verified")
    if not all(row.good for row in found):
        raise typer.Exit(1)


@app.command()
def check(*, root: Root = HERE, as_json: Json = False) -> None:
    """Say which pages are not what `build` would write; exit status 1 if there are any."""
    from obliq_eval.leaderboard import publish

    stale = publish.stale(root)
    if as_json:
        show.payload({"root": str(root), "stale": stale})
    elif stale:
        show.table(("file", "what"), list(stale.items()))
        show.say("`obliq leaderboard build` brings them up to date")
    else:
        show.say(f"every page in {root} is up to date")
    if stale:
        raise typer.Exit(1)


def _row(row: Verified) -> tuple[object, ...]:
    apart = None if row.difference is None else f"{row.difference:.1e}"
    verdict = "same" if row.good else row.problem or "differs"
    return row.system, row.task, row.judgments or None, row.stated, row.recomputed, apart, verdict
