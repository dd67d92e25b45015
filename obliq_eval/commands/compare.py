"""`obliq compare`: runs against a baseline, task by task, never averaged over tasks."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 -- Typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from obliq_eval import comparison, markup, reference, show, significance
from obliq_eval.commands.evaluate import IntervalMethod, Resamples, Seed  # noqa: TC001 -- Typer reads the annotations
from obliq_eval.comparison_tables import notes, views
from obliq_eval.errors import UserError, raise_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from obliq_eval.comparison import Comparison
    from obliq_eval.reference import Reference, System

app = typer.Typer(add_completion=False)

RUNS = (
    "Runs, the baseline first: run ids or starts of them, MODEL:TASK, models that were run on the tasks, or run files."
)


@app.command(name="compare")
def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help=RUNS)],
    *,
    tasks: Annotated[list[str] | None, typer.Option("-t", "--task", help="Task or folder; may be repeated.")] = None,
    qrels: Annotated[Path | None, typer.Option("--qrels", help="Qrels file, in place of tasks.")] = None,
    pooled: Annotated[Path | None, typer.Option("--pooled", help="Qrels file over a pool, beside --qrels.")] = None,
    baseline: Annotated[
        str | None, typer.Option(help="The run the others are compared with; by default the first.")
    ] = None,
    queries: Annotated[
        str, typer.Option("--queries", help="Which of the task's queries: all, dev, test or held-out.")
    ] = "all",
    part: Annotated[str | None, typer.Option(help="SUBSET/SPLIT of an mteb prediction file of several.")] = None,
    interval: IntervalMethod = significance.DEFAULT_METHOD,
    resamples: Resamples = significance.RESAMPLES,
    seed: Seed = 0,
    tests: Annotated[
        list[str] | None, typer.Option("--test", help="Also show ranx's p: student or fisher; may be repeated.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page to read the queries and documents in a browser.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything at full precision as JSON.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown tables.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX tables.")] = False,
) -> None:
    """Compare runs with a baseline by a paired bootstrap over queries.

    Each task and each set of judgments has its own tables; there is no mean over tasks. Holm's adjustment is over the
    systems compared with the baseline under one set of judgments, and over the bootstrap's p alone.
    """
    if as_json + markdown + latex > 1:
        raise UserError("choose one of --json, --markdown and --latex")
    if html is not None and tasks and len(tasks) > 1:
        raise UserError("--html writes the page of one task: give -t once")
    ranx_tests = tuple(dict.fromkeys(tests or ()))
    comparison.check_settings(resamples, seed, interval, ranx_tests)

    def contrast(against: Reference, systems: Sequence[System]) -> Comparison:
        """Compare the systems in the way that the options ask for."""
        return comparison.compare(
            against, comparison.ordered(systems, baseline), resamples=resamples, seed=seed, method=interval,
            tests=ranx_tests,
        )  # fmt: skip

    found = _compare(runs, tasks, qrels, pooled, queries, part, contrast)
    for one in found:
        for warning in one.warnings:
            show.warn(warning)
    if html is not None:
        from obliq_eval import comparison_page

        comparison_page.write(found[0], html)
    if as_json:
        show.payload([one.to_dict() for one in found])
        return
    for one in found:
        _report(one, _printer(markdown=markdown, latex=latex), plain=not (markdown or latex))
    if html is not None:
        show.say(f"page: {html} ({html.stat().st_size / 1e6:.1f} MB)", stderr=markdown or latex)


def _compare(
    refs: Sequence[str],
    tasks: Sequence[str] | None,
    qrels: Path | None,
    pooled: Path | None,
    queries: str,
    part: str | None,
    contrast: Callable[[Reference, Sequence[System]], Comparison],
) -> list[Comparison]:
    """Compare on each task in turn.

    Raises:
        UserError: For every run that cannot be judged, on any of the tasks.
    """
    found, problems = [], []
    for task in dict.fromkeys(tasks or ()) or (None,):
        against = reference.choose(task, qrels, pooled, queries)
        systems, wrong = _systems(refs, against, part)
        problems += wrong
        if not wrong:
            found.append(contrast(against, systems))
    raise_all(problems, "not compared")
    return found


def _systems(refs: Sequence[str], against: Reference, part: str | None) -> tuple[list[System], list[str]]:
    systems: dict[str, System] = {}
    problems = []
    for ref in refs:
        try:
            system = reference.fit(reference.find_run(ref, against, part), against)
        except UserError as error:
            problems.append(str(error))
            continue
        if system.run_id in systems:
            problems.append(f"{ref} is the run {system.run_id}, which is named already; compare it with another one")
        systems[system.run_id] = system
    return list(systems.values()), problems


def _printer(*, markdown: bool, latex: bool) -> Callable[[Sequence[str], Sequence[Sequence[object]], str], None]:
    if not (markdown or latex):
        return lambda columns, rows, title: show.table(columns, rows, title=title)
    form = markup.markdown if markdown else markup.latex
    return lambda columns, rows, title: _write(form(columns, rows, title))


def _write(text: str) -> None:
    sys.stdout.write(text + "\n\n")


def _report(
    one: Comparison, table: Callable[[Sequence[str], Sequence[Sequence[object]], str], None], *, plain: bool
) -> None:
    for part in one.parts:
        said = notes(one, part)
        for view, note in zip(views(one, part), ("", *said), strict=True):  # the means need no note
            table(view.columns, view.rows, view.title if plain or not note else f"{view.title} ({note})")
        if plain:
            for note in said:
                show.say(note)
    if plain:
        revision = f"data revision {one.reference.revision}; " if one.reference.revision else ""
        show.say(revision + "; ".join(f"{s.name}: run {s.run_id}, depth {s.run.depth:,}" for s in one.systems))
