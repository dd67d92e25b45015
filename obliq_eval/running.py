"""What `obliq run` asks of mteb: tasks, a model and an evaluation by name, with every failure told in one sentence."""

from __future__ import annotations

import difflib
import importlib
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval import catalogue, runs
from obliq_eval.data.official import OFFICIAL
from obliq_eval.data.sources import MINI
from obliq_eval.errors import UserError, near

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mteb.abstasks.abstask import AbsTask

READ_SPEC = "obliq_models.specs:read_spec"  # by reference: the models build on this package, not the reverse
_SUGGESTION = re.compile(r"Did you mean: '?([^'?]+)'?\?")


@dataclass(frozen=True)
class Request:
    """What to evaluate and how, in the words of `mteb run`.

    Args:
        model: Alias, full name, name of mteb or of the hub, or a TOML file.
        tasks: Task names.
        benchmarks: Benchmark names.
        folders: Folders in the official or BEIR layout.
        filters: Further arguments of `mteb.get_tasks`; None where not given.
        revision: Revision of the model.
        device: Device of the model; by default CUDA where there is one.
        output: Folder of mteb's result files.
        encode: Arguments of the model's `encode`.
        evaluate: Further arguments of `mteb.evaluate`.
    """

    model: str
    tasks: Sequence[str] = ()
    benchmarks: Sequence[str] = ()
    folders: Sequence[Path] = ()
    filters: Mapping[str, Any] = field(default_factory=dict)
    revision: str | None = None
    device: str | None = None
    output: Path = Path("results")
    encode: Mapping[str, Any] = field(default_factory=dict)
    evaluate: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The scores of one task.

    Args:
        task: Its name.
        kind: `official`, `mini`, `folder`, or `other` for a task of mteb's own.
        model: Full name of the model.
        main: The task's main score, as mteb rounds it.
        scores: `{judgments: {measure: mean}}`; at full precision if the run is in the store.
        n_queries: How many queries the means are over.
        unanswered: How many of them got no answer.
        run: Id of the stored run, or None.
        stored: Whether that run is in the store now.
        cached: Whether mteb served an earlier result and ran nothing.
        result: mteb's result file.
    """

    task: str
    kind: str
    model: str
    main: float | None
    scores: Mapping[str, Mapping[str, float]]
    n_queries: int | None
    unanswered: int | None
    run: str | None
    stored: bool
    cached: bool
    result: Path


@cache
def import_mteb() -> Any:
    """Return mteb with the tasks, benchmarks and models of obliq registered, whether the start-up hook ran or not.

    Raises:
        UserError: If this version of mteb keeps its registries elsewhere.
    """
    try:
        mteb = importlib.import_module("mteb")
        from obliq_eval.registry import register_all

        register_all()
    except RuntimeError as error:
        raise UserError(str(error)) from error
    return mteb


def find_tasks(request: Request) -> list[AbsTask]:
    """Return the tasks that are asked for, folders last.

    Raises:
        UserError: If nothing is asked for, a name is unknown (near names are suggested), or a folder is no data set.
    """
    mteb = import_mteb()
    from obliq_eval.tasks import folder_task

    wanted: list[AbsTask] = []
    filters = {key: value for key, value in request.filters.items() if value}
    try:
        if request.benchmarks:
            wanted += [task for name in request.benchmarks for task in mteb.get_benchmark(name).tasks]
        elif request.tasks or filters:
            wanted += mteb.get_tasks(tasks=list(request.tasks) or None, **filters)
    except KeyError as error:
        raise UserError(_unknown(request, str(error.args[0]))) from error
    wanted += [folder_task(folder) for folder in request.folders]
    if not wanted:
        raise UserError("no task is chosen: give -t TASK, -b BENCHMARK or --data FOLDER; `obliq tasks` lists ours")
    return wanted


def find_model(request: Request) -> Any:
    """Load the model that is asked for.

    Raises:
        UserError: If it is unknown (near names are suggested), needs what is not installed, or cannot be loaded.
    """
    import torch

    mteb = import_mteb()
    name, known = _model_name(request.model, mteb)
    device = request.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return mteb.get_model(name, request.revision, device=f"cuda:{device}" if device.isdigit() else device)
    except UserError:
        raise
    except Exception as error:  # a loader of another package may raise anything
        close = [] if known else difflib.get_close_matches(request.model, _model_names(mteb), n=1, cutoff=0.75)
        hint = "".join(f'; did you mean "{name}"?' for name in close)
        first = (str(error).strip() or "no message").splitlines()[0]
        raise UserError(
            f"the model {request.model!r} could not be loaded ({type(error).__name__}: {first}){hint}"
        ) from error


def evaluate(request: Request, task: AbsTask, model: Any) -> Outcome:
    """Let mteb evaluate one task, unless its result file in the output folder already says the result.

    Raises:
        UserError: If the data cannot be had, or the model's answers are not rankings.
    """
    mteb = import_mteb()
    before = _stamps(request.output)
    results = mteb.ResultCache(request.output)
    given = {key: value for key, value in request.evaluate.items() if value is not None}
    given["overwrite_strategy"] = _strategy(
        given, results.load_task_result(task.metadata.name, model.mteb_model_meta), task
    )
    with _told_by_mteb():
        found = mteb.evaluate(
            model, [task], cache=results, raise_error=True, encode_kwargs=dict(request.encode), **given
        )
    if found.exceptions:
        raise UserError(f"{task.metadata.name}: {found.exceptions[0].exception}")
    path = Path(results.get_task_result_path(task.metadata.name, model.mteb_model_meta))
    return _outcome(task, str(model.mteb_model_meta.name), found.task_results[0], path, before)


def _strategy(given: Mapping[str, Any], old: Any, task: AbsTask) -> str:
    """Return mteb's strategy for an existing result file, so that changed data is never answered with old scores.

    mteb compares the revision of the data only where a result file is incomplete.

    Raises:
        UserError: If the strategy forbids running, and the result is for other data.
    """
    strategy = str(given.get("overwrite_strategy", "only-missing"))
    if old is None or strategy == "always" or old.dataset_revision == task.metadata.revision:
        return strategy
    if strategy == "only-missing":
        return "always"
    raise UserError(
        f"the result file of {task.metadata.name} is for revision {old.dataset_revision} of the data, which is now at "
        f"{task.metadata.revision}; --overwrite-strategy always replaces it"
    )


@contextmanager
def _told_by_mteb() -> Iterator[None]:
    """Turn what mteb refuses on account of its arguments into a `UserError`."""
    try:
        yield
    except ValueError as error:
        if "overwrite_strategy" in str(error):
            raise UserError(str(error)) from error
        raise


def _outcome(task: Any, model: str, result: Any, path: Path, before: Mapping[Path, int]) -> Outcome:
    rows = [row for split in result.scores.values() for row in split]
    found: Mapping[str, Any] = rows[0] if len(rows) == 1 else {}
    run = found.get("obliq_run")
    scores, stored = _scores(found, run)
    return Outcome(
        task=task.metadata.name,
        kind=_kind(task),
        model=model,
        main=result.get_score(),
        scores=scores,
        n_queries=found.get("n_queries"),
        unanswered=found.get("n_unanswered"),
        run=run,
        stored=stored,
        cached=path in before and _stamps(path.parent).get(path) == before[path],
        result=path,
    )


def _kind(task: Any) -> str:
    from obliq_eval.tasks import ObliqTask

    name = task.metadata.name
    if not isinstance(task, ObliqTask):
        return "other"
    return "official" if name in OFFICIAL else "mini" if name in MINI else "folder"


def _scores(found: Mapping[str, Any], run: str | None) -> tuple[dict[str, dict[str, float]], bool]:
    """Return the means by judgments, from the run's manifest or, where it is gone, as mteb's result file has them."""
    try:
        entry = runs.load(run) if run else None
    except UserError:
        entry = None
    if entry is not None and entry.manifest is not None and entry.manifest.scores:
        return entry.manifest.scores, True
    scores: dict[str, dict[str, float]] = {}
    for key, value in found.items():
        if match := re.fullmatch(r"(pooled_)?(ndcg|recall)_at_(10|50|100|1000)", key):
            judgments = "pooled" if match[1] else "gold"
            scores.setdefault(judgments, {})[f"{match[2]}@{match[3]}"] = float(value)
    return scores, entry is not None


def _model_name(text: str, mteb: Any) -> tuple[str, bool]:
    """Return the name under which mteb finds a model, and whether a registry knows it.

    Raises:
        UserError: If it is unknown, and neither a path nor a name of the form that the hub uses.
    """
    if text.endswith(".toml"):
        module, _, function = READ_SPEC.partition(":")
        entry = getattr(importlib.import_module(module), function)(Path(text))
        return catalogue.register(entry).name, True
    try:
        return catalogue.resolve(text).name, True
    except UserError as error:
        names = _model_names(mteb)
        if text in names:
            return text, True
        if "/" in text or Path(text).exists():  # a repository of the hub, or a local checkpoint
            return text, False
        raise UserError(f"no model is called {text!r}{near(text, names)} (`obliq models` lists ours)") from error


def _model_names(mteb: Any) -> list[str]:
    ours = [name for alias, entry in catalogue.catalogue().items() for name in (alias, entry.name)]
    return [*ours, *(str(meta.name) for meta in mteb.get_model_metas())]


def _unknown(request: Request, message: str) -> str:
    """Return what to say of an unknown task or benchmark, in place of mteb's message."""
    what = "benchmark" if request.benchmarks else "task"
    ours = ("OBLIQ-Bench", "OBLIQ-Mini") if request.benchmarks else (*OFFICIAL, *MINI)
    quoted = re.search(r"'([^']*)' not found", message)
    theirs = _SUGGESTION.search(message)
    name = quoted[1] if quoted else ", ".join((*request.tasks, *request.benchmarks))
    return f"no {what} is called {name!r}{near(name, (*ours, *(theirs.groups() if theirs else ())))}"


def _stamps(folder: Path) -> dict[Path, int]:
    """Return when each result file below a folder was written, in nanoseconds."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.json")} if folder.is_dir() else {}
