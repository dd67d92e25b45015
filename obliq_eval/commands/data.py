"""`obliq data`: fetch, check and export the data of a task or folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from obliq_eval import show
from obliq_eval.data import hub
from obliq_eval.data.export import Form, export
from obliq_eval.data.official import OFFICIAL, REPOSITORY, REVISION
from obliq_eval.data.sources import MINI, MINI_FOLDER, open_source
from obliq_eval.errors import UserError

app = typer.Typer(
    add_completion=False, help="Fetch, check and export the data of a task or folder.", no_args_is_help=True
)

SOURCE = "A task, a folder in the official or BEIR layout, or mirror:TASK for mteb's mirror of an official task."
Source = Annotated[str, typer.Argument(metavar="TASK|FOLDER", help=SOURCE)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

SIZES = ("task", "documents", "queries", "gold", "pooled")

LAYOUTS = """Write a data set into a folder.

official: corpus/corpus.jsonl, queries+qrels/queries.jsonl, qrels.tsv, qrels_pool.tsv, per_query_excluded_ids.json,
groups.json. beir: corpus.jsonl, queries.jsonl, qrels/test.tsv. trec: documents.jsonl, topics.tsv, qrels.txt. Either of
the first two serves as `obliq run --data FOLDER`. Files that a data set does not need are left out.
"""


@app.command("get")
def get(
    tasks: Annotated[list[str] | None, typer.Argument(metavar="TASK...", help=SOURCE)] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All official tasks.")] = False,
    as_json: Json = False,
) -> None:
    """Fetch data into the hub's cache and convert it, so that later runs need no network; finished parts are kept."""
    names = list(dict.fromkeys([*(tasks or ()), *(OFFICIAL if everything else ())]))
    if not names:
        raise UserError(f"name the tasks to fetch, or --all for {', '.join(OFFICIAL)}")
    found = [_fetched(name) for name in names]
    if as_json:
        show.payload(found)
        return
    show.table(SIZES, [[one[key] for key in SIZES] for one in found])
    for one in found:
        show.say(f"{one['task']}: {one['files']} (revision {one['revision']}), converted to {one['converted']}")


@app.command("check")
def check(source: Source, *, as_json: Json = False) -> None:
    """Audit a data set: what does not fit together, and counts. Exit status 1 if there is an error."""
    from obliq_eval.data.audit import audit

    loaded = open_source(source)
    findings = audit(loaded)
    if as_json:
        show.payload([asdict(finding) for finding in findings])
    else:
        rows = [(f.level, f.what, f.count, f.detail) for f in findings]
        show.table(("level", "what", "count", "detail"), rows, title=loaded.source)
        errors, warnings = (sum(f.level == level for f in findings) for level in ("error", "warning"))
        show.say(f"{errors} errors, {warnings} warnings")
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)


@app.command("export", help=LAYOUTS)
def export_data(
    source: Source,
    folder: Annotated[Path, typer.Argument(help="The folder to write; it must be missing or empty.")],
    *,
    form: Annotated[Form, typer.Option("--format", help="The layout.")] = Form.OFFICIAL,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export in this folder.")] = False,
) -> None:
    """Write a data set into a folder."""
    loaded = open_source(source)
    for note in export(loaded, form, folder, force=force):
        show.warn(note)
    data = loaded.dataset
    show.say(
        f"{folder}: {len(data.corpus):,} documents, {len(loaded.query_texts):,} queries, {len(data.gold):,} gold "
        f"judgments in the {form} layout"
    )


def _fetched(name: str) -> dict[str, Any]:
    """Fetch and convert one task, and return what it holds and where it lies."""
    if name in OFFICIAL:
        files = str(hub.snapshot(REPOSITORY, REVISION, OFFICIAL[name].folder))
    else:
        files = str(MINI_FOLDER / MINI[name]) if name in MINI else name
    data = open_source(name).dataset
    return {
        "task": name,
        "documents": len(data.corpus),
        "queries": len(data.queries),
        "gold": len(data.gold),
        "pooled": None if data.pooled is None else len(data.pooled),
        "revision": data.revision,
        "files": files,
        "converted": str(Path(data.corpus.documents.cache_files[0]["filename"]).parent),
    }
