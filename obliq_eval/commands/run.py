"""`obliq run`: what `mteb run` takes, folders and model files beside it, and a table of the scores at the end."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from obliq_eval import show
from obliq_eval.errors import UserError, raise_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from obliq_eval.running import Outcome, Request

app = typer.Typer(add_completion=False)

MEASURES = ("ndcg@10", "ndcg@50", "recall@10", "recall@100", "recall@1000")
COLUMNS = ("task", "model", "judgments", "queries", "unanswered", "NDCG@10", "NDCG@50", "R@10", "R@100", "R@1000")
TITLES = {
    "official": "OBLIQ-Bench",
    "mini": "OBLIQ-Mini (not comparable with OBLIQ-Bench)",
    "folder": "Your folders",
}
SEVERAL = frozenset(
    ("-t", "--tasks", "-b", "--benchmarks", "-l", "--languages", "--task-types", "--categories", "--eval-splits",
     "--data")
)  # fmt: skip
"""Options that take one value or, as in `mteb run`, several."""


class _RunCommand(TyperCommand):
    """Understands `-t A B` as `-t A -t B`, and `--batch_size` as `--batch-size`; takes one value for what has one."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Repeat the option before each further value, look for what is given too often, then parse as usual."""
        spelled = spread(args)
        _, _, given = self.make_parser(ctx).parse_args(list(spelled))
        single = Counter(p.opts[0] for p in given if not p.multiple and not getattr(p, "is_flag", False))
        raise_all(
            [f"{option} is given {count} times, and takes one value" for option, count in single.items() if count > 1],
            "obliq run",
        )
        return super().parse_args(ctx, spelled)


def spread(args: Sequence[str]) -> list[str]:
    """Return the arguments as Typer wants them.

    Options of several values are repeated, once for each value, and the underscores in the names of mteb's older
    options become hyphens. A value that is attached, as in `--tasks=A` or `-tA`, is left as it is.
    """
    spelled: list[str] = []
    option, filled = "", False
    for argument in args:
        if argument.startswith("-"):
            name, rest = _split(argument)
            option, filled = name if name in SEVERAL else "", bool(rest)
            spelled.append(name + rest)
            continue
        if option and filled:
            spelled.append(option)
        filled = True
        spelled.append(argument)
    return spelled


def _split(argument: str) -> tuple[str, str]:
    """Return an option as Typer spells it, and what is attached to it."""
    if argument.startswith("--"):
        name, equals, value = argument.partition("=")
        return name.replace("_", "-"), equals + value
    return argument[:2], argument[2:]


Names = list[str] | None


@app.command(cls=_RunCommand)
def run(
    *,
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", help="Alias, full name, NAME@FOLDER, FILE.toml, A+B, fuse:A,B, a name of mteb's."
        ),
    ],
    tasks: Annotated[Names, typer.Option("--tasks", "-t", help="Tasks; several may follow.")] = None,
    benchmarks: Annotated[Names, typer.Option("--benchmarks", "-b", help="Benchmarks, in place of tasks.")] = None,
    data: Annotated[
        list[Path] | None, typer.Option("--data", help="Folders of your own, in the official or BEIR layout.")
    ] = None,
    languages: Annotated[Names, typer.Option("--languages", "-l", help="Filter for mteb's tasks.")] = None,
    task_types: Annotated[Names, typer.Option("--task-types", help="Filter for mteb's tasks.")] = None,
    categories: Annotated[Names, typer.Option("--categories", help="Filter for mteb's tasks.")] = None,
    eval_splits: Annotated[Names, typer.Option("--eval-splits", help="Splits of mteb's tasks.")] = None,
    model_revision: Annotated[str | None, typer.Option("--model-revision", help="Revision of the model.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, or the number of a GPU.")] = None,
    engine: Annotated[
        str, typer.Option(help="Where documents are encoded: local, pool (several processes) or ray (a cluster).")
    ] = "local",
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="How many processes for --engine pool or ray.")
    ] = None,
    output_folder: Annotated[Path, typer.Option("--output-folder", help="Folder of mteb's result files.")] = Path(
        "results"
    ),
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", min=1, help="Texts that are encoded at a time.")
    ] = None,
    num_proc: Annotated[
        int | None, typer.Option("--num-proc", min=1, help="Processes that prepare mteb's data.")
    ] = None,
    overwrite_strategy: Annotated[
        str,
        typer.Option(help="only-missing, always, never or only-cache: what to do where a result file exists."),
    ] = "only-missing",
    prediction_folder: Annotated[
        Path | None, typer.Option(help="Folder for mteb's prediction files; the run store keeps runs in any case.")
    ] = None,
    co2_tracker: Annotated[
        bool | None, typer.Option("--co2-tracker/--no-co2-tracker", help="Measure emissions, if codecarbon is there.")
    ] = None,
    verbosity: Annotated[
        int, typer.Option("--verbosity", "-v", min=0, max=3, help="What mteb logs: 0 nothing, 3 everything.")
    ] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", hidden=True)] = False,
    save_predictions: Annotated[bool, typer.Option("--save-predictions", hidden=True)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print scores at full precision as JSON.")] = False,
) -> None:
    """Evaluate a model on tasks.

    Takes what `mteb run` takes and leaves the work to mteb; every run is kept in the run store (`obliq runs list`).
    """
    from obliq_eval.running import Request

    if overwrite_strategy not in (known := ("only-missing", "always", "never", "only-cache")):
        raise UserError(f"unknown --overwrite-strategy {overwrite_strategy!r}: use one of {', '.join(known)}")
    bars = sys.stderr.isatty()
    quiet(verbosity)
    request = Request(
        model=model,
        tasks=tasks or (),
        benchmarks=benchmarks or (),
        folders=data or (),
        filters={
            "languages": languages, "task_types": task_types, "categories": categories, "eval_splits": eval_splits,
        },
        revision=model_revision,
        device=device,
        engine=engine,
        workers=workers,
        output=output_folder,
        encode={"show_progress_bar": bars} | ({} if batch_size is None else {"batch_size": batch_size}),
        evaluate={
            "overwrite_strategy": "always" if overwrite else overwrite_strategy,
            "prediction_folder": output_folder if save_predictions and not prediction_folder else prediction_folder,
            "num_proc": num_proc,
            "co2_tracker": co2_tracker,
            "show_progress_bar": False,
        },
    )  # fmt: skip
    outcomes, problems = _evaluate(request)
    _report(outcomes, as_json=as_json)
    raise_all(problems, "not evaluated")


def _evaluate(request: Request) -> tuple[list[Outcome], list[str]]:
    """Evaluate the tasks one after the other; a task that fails, for whatever reason, leaves the others be."""
    from obliq_eval import running

    tasks = running.find_tasks(request)
    _mention_licence(request.model)
    model = running.find_model(request)
    outcomes, problems = [], []
    for number, task in enumerate(tasks, start=1):
        if sys.stderr.isatty():
            show.say(f"{task.metadata.name} ({number} of {len(tasks)})", stderr=True)
        try:
            outcomes.append(running.evaluate(request, task, model))
        except UserError as error:
            problems.append(str(error))
        except Exception as error:  # what was computed for the other tasks is still worth showing
            show.debug()
            problems.append(f"{task.metadata.name}: {show.why(error)}")
    return outcomes, problems


def _mention_licence(name: str) -> None:
    """Say on standard error what to bear in mind when this model, or one that is made from it, is chosen."""
    from obliq_eval.running import origins

    for entry in origins(name):
        if entry.risk:
            show.say(f"{entry.alias}: {entry.risk} (licence: {entry.licence})", stderr=True)


def _report(outcomes: Sequence[Outcome], *, as_json: bool) -> None:
    if as_json:
        show.payload([_record(outcome) for outcome in outcomes])
        return
    for kind, title in TITLES.items():
        if rows := [row for outcome in outcomes if outcome.kind == kind for row in _rows(outcome)]:
            show.table(COLUMNS, rows, title=title)
    others = [(o.task, o.model, o.main) for o in outcomes if o.kind == "other"]
    if others:
        show.table(("task", "model", "main score"), others, title="Tasks of mteb")
    for outcome in outcomes:
        show.say(_origin(outcome))


def _rows(outcome: Outcome) -> Iterator[tuple[object, ...]]:
    for judgments, scores in outcome.scores.items():
        means = (scores.get(measure) for measure in MEASURES)
        yield (outcome.task, outcome.model, judgments, outcome.n_queries, outcome.unanswered, *means)


def _origin(outcome: Outcome) -> str:
    """Say where the result of a task is kept, and whether anything was run for it."""
    parts = [f"{outcome.task}: {outcome.result}"]
    if outcome.run:
        parts.append(f"run {outcome.run}" if outcome.stored else f"run {outcome.run} is no longer in the store")
    if outcome.cached:
        parts.append("an earlier result, nothing was run (--overwrite-strategy always runs it again)")
    return "; ".join(parts)


def _record(outcome: Outcome) -> dict[str, Any]:
    return {
        "task": outcome.task,
        "benchmark": {"official": "OBLIQ-Bench", "mini": "OBLIQ-Mini"}.get(outcome.kind),
        "model": outcome.model,
        "main_score": outcome.main,
        "queries": outcome.n_queries,
        "unanswered": outcome.unanswered,
        "scores": outcome.scores,
        "rounded": not outcome.stored,
        "run": outcome.run,
        "stored": outcome.stored,
        "cached": outcome.cached,
        "result": str(outcome.result),
    }


class _Warnings(logging.Handler):
    """Shows what obliq logs as the command line shows its own warnings."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record on standard error."""
        show.warn(record.getMessage())


def quiet(verbosity: int) -> None:
    """Keep the libraries below silent up to a verbosity; obliq's own warnings are always shown.

    Args:
        verbosity: 0 shows nothing of mteb's, 1 its warnings, 2 its progress, 3 everything.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # as `mteb run` does
    own = logging.getLogger("obliq")
    if not any(isinstance(handler, _Warnings) for handler in own.handlers):
        own.addHandler(_Warnings(logging.WARNING))
        own.propagate = False
    levels = (logging.CRITICAL, logging.WARNING, logging.INFO, logging.DEBUG)
    if verbosity:
        logging.basicConfig(format="%(name)s: %(message)s", level=logging.WARNING)
    else:
        for category in (DeprecationWarning, FutureWarning, UserWarning):
            warnings.simplefilter("ignore", category)
    logging.getLogger("mteb").setLevel(levels[verbosity])
