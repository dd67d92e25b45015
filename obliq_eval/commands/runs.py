"""`obliq runs`: the stored runs, and run files in and out."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from obliq_eval import metrics, runs, show
from obliq_eval.data.official import OFFICIAL
from obliq_eval.data.sources import MINI
from obliq_eval.errors import UserError, near, raise_all
from obliq_eval.manifest import Who
from obliq_eval.records import Coverage
from obliq_eval.reference import fit, open_task
from obliq_eval.run_files import Form, read_run, write_run

app = typer.Typer(help="List, show, compare, export and import runs.", no_args_is_help=True, add_completion=False)

REF = "Run id or the start of it, MODEL:TASK for the newest, or a run file."
Ref = Annotated[str, typer.Argument(help=REF)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Part = Annotated[str | None, typer.Option(help="SUBSET/SPLIT of an mteb prediction file that holds several.")]

COLUMNS = ("run", "model", "task", "queries", "coverage", "depth", "who", "date", "NDCG@10", "Recall@100")


@app.command("list")
def list_runs(*, as_json: Json = False) -> None:
    """List the stored runs, newest first; the scores are those under gold judgments."""
    entries, problems = runs.scan()
    rows = [_row(entry.manifest) for entry in entries if entry.manifest is not None]
    if rows or as_json:
        show.table(COLUMNS, rows, as_json=as_json)
    else:
        show.say("no runs are stored yet: `obliq run` and `obliq runs import` store them")
    for problem in problems:
        show.warn(problem)


@app.command("show")
def show_run(ref: Ref, *, as_json: Json = False) -> None:
    """Show what made a run: data, model, settings, versions, machine, scores."""
    entry = runs.load(ref)
    if entry.manifest is None:
        raise UserError(f"{entry.name} is a file without a manifest: `obliq runs import` gives it one")
    record = {"path": str(entry.path), **asdict(entry.manifest)}
    if as_json:
        show.payload(record)
    else:
        show.table(("field", "value"), _flat(record))


@app.command("diff")
def diff_runs(
    first: Ref,
    second: Ref,
    *,
    depth: Annotated[int, typer.Option(min=1, help="How many documents of each answer are compared.")] = 100,
    part: Part = None,
    as_json: Json = False,
) -> None:
    """Compare two runs: order, scores, first documents. Exit status 1 if they differ."""
    a, b = (runs.load(ref, part).read() for ref in (first, second))
    found = runs.diff(a, b, depth)
    if as_json:
        show.payload({**asdict(found), "same": found.same})
    else:
        of = f"of {found.common} queries"
        rows = [
            ("queries in both", found.common, ""),
            ("only in the first", len(found.only_a), _some(found.only_a)),
            ("only in the second", len(found.only_b), _some(found.only_b)),
            (f"identical top-{depth} order", found.same_order, of),
            ("bit-identical scores", found.same_scores, of),
            ("same first document", found.same_top1, of),
            ("largest score difference", None if (gap := found.max_difference) is None else f"{gap:.2e}", ""),
        ]
        show.table(("measure", "value", ""), rows)
    if not found.same:
        raise typer.Exit(1)


@app.command("export")
def export_run(
    ref: Ref,
    file: Annotated[str, typer.Argument(help="File to write; a name in .gz is compressed (TREC and JSON).")],
    *,
    form: Annotated[str, typer.Option(help=f"{', '.join(Form)}.")] = Form.TREC.value,
    part: Part = None,
    as_json: Json = False,
) -> None:
    """Write a run as a file for other tools."""
    entry = runs.load(ref, part)
    model = None if entry.manifest is None else entry.manifest.model
    name, revision = (entry.path.stem, None) if model is None else (model.name, model.revision)
    run = entry.read()
    notes = write_run(run, Path(file), form, name=name, revision=revision)
    if as_json:
        show.payload({"run": entry.name, "file": file, "form": form, "queries": len(run.rankings), "notes": notes})
        return
    for note in notes:
        show.warn(note)
    answered = sum(map(bool, map(len, run.rankings.values())))
    count = f"{answered}" if answered == len(run.rankings) else f"{answered} of {len(run.rankings)}"
    show.say(f"{entry.name} -> {file} ({form}, {count} queries)")


@app.command("import")
def import_run(
    file: Annotated[str, typer.Argument(help="Run file: TREC, ranx, mteb predictions, JSONL lists or Parquet.")],
    task: Annotated[str, typer.Option(help="Task that the run answers.")],
    model: Annotated[str, typer.Option(help="System that made it, as `organisation/model` or a short name.")],
    *,
    revision: Annotated[str | None, typer.Option(help="Revision of the system.")] = None,
    data_revision: Annotated[str | None, typer.Option(help="Revision of the task's data.")] = None,
    coverage: Annotated[str, typer.Option(help="Which queries were asked: all, dev, test or held-out.")] = "all",
    depth: Annotated[int | None, typer.Option(min=1, help="How many documents were asked for, if known.")] = None,
    who: Annotated[str, typer.Option(help="Who ran it: paper, us or submitter.")] = "submitter",
    part: Part = None,
    as_json: Json = False,
) -> None:
    """Store a run that another tool made."""
    names = {"--task": task, "--model": model, "--revision": revision, "--data-revision": data_revision}
    raise_all([p for option, name in names.items() if (p := _unfit(option, name))], "runs import")
    known = (*OFFICIAL, *MINI)
    if task.lower().startswith("obliq-") and task not in known:  # any other name is a folder of the user's
        raise UserError(f'unknown task "{task}"{near(task, known)}')
    covered = cast("Coverage", _one_of(coverage, get_args(Coverage), "--coverage"))
    run = read_run(Path(file), part=part, depth=depth)
    content = runs.content_hash(run)
    manifest = runs.Manifest(
        task=task,
        data=runs.Data(task, data_revision, "import"),
        # The content is part of the fingerprint: nothing else tells two unknown systems of one name apart.
        model=runs.Model(model, revision, {"imported": content}),
        depth=run.depth,
        n_queries=len(run.rankings),
        coverage=covered,
        unanswered=tuple(query for query, ranking in run.rankings.items() if not len(ranking)),
        versions={},
        hardware="",
        who=cast("Who", _one_of(who, get_args(Who), "--who")),
        scores=_scores(runs.StoredRun(Path(file), part=part), run.depth, task, covered),
    )
    stored = runs.store(run, manifest)
    if as_json:
        show.payload({"run": stored.name, **asdict(replace(manifest, run_id=stored.name, content=content))})
        return
    show.say(f"{file} -> {stored.name} ({len(run.rankings)} queries, at most {run.depth} documents each)")
    if manifest.unanswered:
        show.warn(f"{len(manifest.unanswered)} queries have no answer: {_some(manifest.unanswered)}")


def _scores(file: runs.StoredRun, depth: int, task: str, coverage: Coverage) -> dict[str, dict[str, float]]:
    """Check that a run fits its task, and score it, where the task's data is at hand: it may be large to fetch.

    Raises:
        UserError: If the run answers other queries or returns other documents.
    """
    if task not in MINI:
        return {}
    reference = open_task(task, coverage)
    system = fit(file, reference)
    run = replace(system.run, depth=depth)
    for warning in system.warnings:
        show.warn(warning)
    return {name: metrics.score(run, judged).known() for name, judged in reference.judgments.items()}


def _row(manifest: runs.Manifest) -> list[object]:
    gold = manifest.scores.get("gold", {})
    return [
        manifest.run_id, manifest.model.alias or manifest.model.name, manifest.task, manifest.n_queries,
        manifest.coverage, manifest.depth, manifest.who, manifest.created[:10],
        gold.get("ndcg@10"), gold.get("recall@100"),
    ]  # fmt: skip


def _flat(record: dict[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    """Return `(dotted name, value)` rows; counts and seeds are text, so that they stand on the left."""
    rows: list[tuple[str, object]] = []
    for key, value in record.items():
        if isinstance(value, dict) and value:
            rows += _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple):
            rows.append((prefix + key, _some(value) or None))
        else:
            rows.append((prefix + key, None if value in (None, "", {}) else f"{value}"))
    return rows


def _some(names: list[str] | tuple[str, ...], shown: int = 10) -> str:
    rest = len(names) - shown
    return ", ".join(map(str, names[:shown])) + (f" and {rest} more" if rest > 0 else "")


def _unfit(option: str, name: str | None) -> str:
    """Return what is wrong with a name that tables and other tools must show, or nothing."""
    if name is None:
        return ""
    if not name.strip():
        return f"{option} is empty: give a name"
    return "" if name.isprintable() else f"{option} {name!r} holds characters that cannot be shown: give another name"


def _one_of(value: str, choices: tuple[str, ...], option: str) -> str:
    if value not in choices:
        raise UserError(f'{option} "{value}" is not one of {", ".join(choices)}{near(value, choices)}')
    return value
