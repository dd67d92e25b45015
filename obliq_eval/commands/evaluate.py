"""`obliq eval`: one run of any form, scored under gold and pooled judgments."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path  # noqa: TC003 -- Typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from obliq_eval import metrics, reference, show, significance
from obliq_eval.comparison_tables import bounds, caution, label, settings
from obliq_eval.errors import UserError, raise_all
from obliq_eval.home import whole_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from obliq_eval.metrics import Panel
    from obliq_eval.reference import Reference, System
    from obliq_eval.significance import Interval

app = typer.Typer(add_completion=False)

IntervalMethod = Annotated[
    str, typer.Option("--interval", help=f"Bootstrap interval: {' or '.join(significance.METHODS)}.")
]
Resamples = Annotated[int, typer.Option("--resamples", help="How many times the bootstrap draws the queries.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the bootstrap.")]
MAIN = "ndcg@10"
RUN = "Run id or the start of it, MODEL:TASK, a model that was run on the task, or a run file of any form."


@app.command(name="eval")
def evaluate(
    run: Annotated[str, typer.Argument(metavar="RUN", help=RUN)],
    *,
    task: Annotated[str | None, typer.Option("-t", "--task", help="Task, or a folder in a known layout.")] = None,
    qrels: Annotated[Path | None, typer.Option("--qrels", help="Qrels file, in place of a task.")] = None,
    pooled: Annotated[Path | None, typer.Option("--pooled", help="Qrels file over a pool, beside --qrels.")] = None,
    queries: Annotated[
        str, typer.Option("--queries", help="Which of the task's queries: all, dev, test or held-out.")
    ] = "all",
    measures: Annotated[
        list[str] | None, typer.Option("--measures", help="Such as ndcg@10,recall@100,mrr@10; may be repeated.")
    ] = None,
    part: Annotated[str | None, typer.Option(help="SUBSET/SPLIT of an mteb prediction file of several.")] = None,
    interval: IntervalMethod = significance.DEFAULT_METHOD,
    resamples: Resamples = significance.RESAMPLES,
    seed: Seed = 0,
    per_query: Annotated[
        Path | None, typer.Option("--per-query", help="Write each query's values to FILE.csv or FILE.jsonl.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print means at full precision as JSON.")] = False,
) -> None:
    """Score a run under gold and pooled judgments.

    A query without an answer scores 0 and is named. Recall@k is unknown where the run has fewer than k documents.
    """
    significance.check_settings(resamples, seed, method=interval)
    wanted = parse_measures(measures)
    against = reference.choose(task, qrels, pooled, queries)
    system = reference.fit(reference.find_run(run, against, part), against)
    panels = against.score(system.run, wanted)
    intervals = {name: _interval(panel, resamples, seed, interval) for name, panel in panels.items()}
    for warning in (*system.warnings, *_cautions(intervals, panels)):
        show.warn(warning)
    if per_query is not None:
        write_per_query(panels, per_query)
    if as_json:
        show.payload(_record(system, against, panels, intervals))
        return
    _print(system, against, panels, intervals)
    if per_query is not None:
        show.say(f"values of each query: {per_query}")


def parse_measures(measures: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the measures of an option that may be repeated and may hold several, divided by commas.

    Raises:
        UserError: For every unknown one.
    """
    names = [name.strip().lower() for text in measures or () for name in text.split(",") if name.strip()]
    problems = []
    for name in names:
        try:
            metrics.parse_measure(name)
        except UserError as error:
            problems.append(str(error))
    raise_all(problems, "--measures")
    return tuple(dict.fromkeys(names)) or None


def write_per_query(panels: Mapping[str, Panel], path: Path) -> None:
    """Write one row for each query and judgment, as JSON lines if the name ends in `.jsonl`, else as CSV.

    A value that the run is too shallow to know is null, or an empty cell.

    Raises:
        UserError: If the file cannot be written.
    """
    rows: list[dict[str, Any]] = []
    for name, panel in panels.items():
        known = [measure for measure in panel.measures if panel.mean(measure) is not None]
        values = {m: panel.values[m].tolist() if m in known else [None] * len(panel.queries) for m in panel.measures}
        for i, query in enumerate(panel.queries):
            rows.append({"query": query, "judgments": name, **{m: column[i] for m, column in values.items()}})
    if path.suffix == ".jsonl":
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    else:
        stream = io.StringIO()
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        text = stream.getvalue()
    with whole_file(path) as target:
        target.write_text(text, encoding="utf-8", newline="")


def _interval(panel: Panel, resamples: int, seed: int, method: str) -> Interval | None:
    """Return the interval of the main measure; one query has none."""
    if MAIN not in panel.values or len(panel.queries) < 2:
        return None
    return significance.mean_interval(panel.values[MAIN], resamples=resamples, seed=seed, method=method)


def _cautions(intervals: Mapping[str, Interval | None], panels: Mapping[str, Panel]) -> list[str]:
    """Return what to say about the intervals, once: the sets of judgments share their queries, or nearly so."""
    if any(len(panel.queries) < 2 for panel in panels.values()):
        return ["an interval needs at least two queries, so there is none for one query"]
    return [text for i in list(intervals.values())[:1] if i is not None and (text := caution(i.n))]


def _print(
    system: System, against: Reference, panels: Mapping[str, Panel], intervals: Mapping[str, Interval | None]
) -> None:
    rows: list[list[object]] = []
    for measure in next(iter(panels.values())).measures:
        rows.append([label(measure), *(panel.mean(measure) for panel in panels.values())])
        if measure == MAIN and any(intervals.values()):
            rows.append([f"  {_level(intervals)} interval", *(bounds(i) for i in intervals.values())])
    rows += [
        ["judged@10", *(panel.judged_at_10 for panel in panels.values())],
        ["unjudged in the top 10", *(panel.unjudged_at_10 for panel in panels.values())],
        ["queries", *(len(panel.queries) for panel in panels.values())],
        ["  unanswered, scored 0", *(len(panel.unanswered) for panel in panels.values())],
    ]
    show.table(("", *panels), _right(rows), title=_title(system, against))
    if first := next(filter(None, intervals.values()), None):
        show.say(settings(first))
    revision = f"data revision {against.revision}; " if against.revision else ""
    show.say(f"{revision}run {system.run_id}, depth {system.run.depth:,}")


def _title(system: System, against: Reference) -> str:
    queries = "" if against.data is None else f", {against.coverage} queries"
    return f"{system.name} on {against.name}{queries}"


def _right(rows: Sequence[Sequence[object]]) -> list[list[object]]:
    """Return rows of different kinds of numbers with the cells of each column padded to the same width."""
    texts = [[first, *map(show.cell, others)] for first, *others in rows]
    widths = [max(len(str(row[i])) for row in texts) for i in range(1, len(texts[0]))]
    return [[row[0], *(str(t).rjust(w) for t, w in zip(row[1:], widths, strict=True))] for row in texts]


def _level(intervals: Mapping[str, Interval | None]) -> str:
    return next(f"{100 * i.level:g} %" for i in intervals.values() if i is not None)


def _record(
    system: System, against: Reference, panels: Mapping[str, Panel], intervals: Mapping[str, Interval | None]
) -> dict[str, Any]:
    return {
        "run": system.run_id,
        "system": system.name,
        "task": against.name,
        "data_revision": against.revision,
        "queries": against.coverage,
        "depth": system.run.depth,
        "who": None if system.manifest is None else system.manifest.who,
        "judgments": {
            name: {
                "means": panel.means(),
                "interval": None if (i := intervals[name]) is None else {**vars(i), "measure": MAIN},
                "judged@10": panel.judged_at_10,
                "unjudged@10": panel.unjudged_at_10,
                "n_queries": len(panel.queries),
                "unanswered": list(panel.unanswered),
                "unjudgeable": list(panel.unjudgeable),
            }
            for name, panel in panels.items()
        },
        "warnings": list(system.warnings),
    }
