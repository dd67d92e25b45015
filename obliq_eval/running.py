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

from obliq_eval import catalogue, runs, show
from obliq_eval.data.official import OFFICIAL
from obliq_eval.data.sources import MINI
from obliq_eval.devices import device_of
from obliq_eval.errors import UserError, near
from obliq_eval.mteb_files import check_place, read_predictions, readable, stamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mteb.abstasks.abstask import AbsTask

FIND = "obliq_models.naming:find"  # by reference: the models build on this package, not the reverse
ORIGINS = "obliq_models.naming:origins"
USE_ENGINE = "obliq_models.loading:use_engine"
_FORM = re.compile(r"fuse:|.*@|.*\+|.*\.toml$")
"""What is no plain name."""
_SUGGESTION = re.compile(r"Did you mean: '?([^'?]+)'?\?")


@dataclass(frozen=True)
class Request:
    """What to evaluate and how, in the words of `mteb run`.

    Args:
        model: Alias, full name, `NAME@FOLDER`, `A+B`, `fuse:A,B`, a TOML file, or a name of mteb or of the hub.
        tasks: Task names.
        benchmarks: Benchmark names.
        folders: Folders in the official or BEIR layout.
        filters: Further arguments of `mteb.get_tasks`; None where not given.
        revision: Revision of the model.
        device: Device of the model; by default CUDA where there is one.
        engine: Where documents are encoded: `local`, `pool` or `ray`.
        workers: How many processes, for `pool` and `ray`.
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
    engine: str = "local"
    workers: int | None = None
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
        UserError: If this version of mteb keeps its registries elsewhere, or has no folder for its cache.
    """
    try:
        mteb = importlib.import_module("mteb")  # makes the folder of its cache at once
    except OSError as error:
        raise UserError(
            f"mteb cannot be loaded: {show.why(error)} (MTEB_CACHE names the folder of its cache)"
        ) from error
    except RuntimeError as error:
        raise UserError(f"mteb cannot be loaded: {show.why(error)}") from error
    try:
        from obliq_eval.registry import register_all

        register_all()
    except RuntimeError as error:
        raise UserError(str(error)) from error
    return mteb


def find_tasks(request: Request) -> list[AbsTask]:
    """Return the tasks that are asked for, each once, folders last.

    Raises:
        UserError: If nothing is asked for, a name is unknown (near names are suggested), a folder is no data set, a
            filter does not apply to what is asked for or leaves nothing of it, or two folders have one name.
    """
    mteb = import_mteb()
    from obliq_eval.tasks import folder_task

    filters = {key: value for key, value in request.filters.items() if value}
    _refuse_idle(request, filters)
    wanted: list[AbsTask] = []
    try:
        if request.benchmarks:
            wanted += [task for name in request.benchmarks for task in mteb.get_benchmark(name).tasks]
        elif request.tasks or filters:
            wanted += mteb.get_tasks(tasks=list(dict.fromkeys(request.tasks)) or None, **filters)
    except KeyError as error:
        raise UserError(_unknown(request, str(error.args[0]))) from error
    except ValueError as error:  # a language that mteb does not know
        raise UserError(f"{_options(filters)}: {error}") from error
    _check_filtered(request, filters, wanted)
    wanted += [folder_task(folder) for folder in _distinct(request.folders)]
    if not wanted:
        raise UserError("no task is chosen: give -t TASK, -b BENCHMARK or --data FOLDER; `obliq tasks` lists ours")
    return list({task.metadata.name: task for task in wanted}.values())


def _refuse_idle(request: Request, filters: Mapping[str, Any]) -> None:
    """Refuse what would change nothing: mteb ignores it in silence, or takes it to mean every task that it has.

    Raises:
        UserError: If there is such an argument.
    """
    if request.benchmarks and (request.tasks or filters):
        others = ", ".join([*(["-t"] if request.tasks else []), *filter(None, [_options(filters)])])
        raise UserError(f"-b takes the tasks of a benchmark as they are: leave {others} out, or give -t in place of -b")
    if request.tasks:
        idle = {key: value for key, value in filters.items() if key in {"task_types", "categories"}}
        if idle:
            raise UserError(f"{_options(idle)} chooses among mteb's tasks, and -t names them: leave one of the two out")
    elif request.folders and filters:
        raise UserError(f"{_options(filters)} is for mteb's tasks and leaves a folder as it is: take it out, or add -t")


def _check_filtered(request: Request, filters: Mapping[str, Any], found: Sequence[AbsTask]) -> None:
    """Refuse filters that leave nothing of a task that is named, or nothing at all.

    Raises:
        UserError: If there is such a filter.
    """
    if filters and not request.tasks and not found:
        raise UserError(f"no task of mteb fits {_options(filters)}")
    lost = [name for name in request.tasks if name not in {task.metadata.name for task in found}]
    if lost and len(found) < len(set(request.tasks)):  # mteb knows some tasks under an older name too
        raise UserError(f"{_options(filters)} leaves nothing of {', '.join(lost)}")
    for task in found if request.tasks else ():
        absent = [split for split in filters.get("eval_splits", ()) if split not in task.metadata.eval_splits]
        if absent:
            raise UserError(
                f"{task.metadata.name} has no split {', '.join(map(repr, absent))} to be evaluated on; it has "
                f"{', '.join(task.metadata.eval_splits)}"
            )


def _options(filters: Mapping[str, Any]) -> str:
    """Return filters as they were given on the command line."""
    return ", ".join(f"--{key.replace('_', '-')} {' '.join(map(str, value))}" for key, value in filters.items())


def _distinct(folders: Sequence[Path]) -> list[Path]:
    """Return the folders, each once.

    Raises:
        UserError: If two have one name, which is the name of their result files.
    """
    found = list(dict.fromkeys(folder.resolve() for folder in folders))
    by_name: dict[str, Path] = {}
    for folder in found:
        other = by_name.setdefault(folder.name, folder)
        if other != folder:
            raise UserError(
                f"{other} and {folder} have one name, so that their results would be one file: rename one of them"
            )
    return found


def find_model(request: Request) -> Any:
    """Load the model that is asked for.

    Raises:
        UserError: If it is unknown (near names are suggested), needs what is not installed, or cannot be loaded.
    """
    mteb = import_mteb()
    name, known = _model_name(request.model, mteb)
    device = device_of(request.device)
    try:
        model = mteb.get_model(name, request.revision, device=device)
    except UserError:
        raise
    except Exception as error:  # a loader of another package may raise anything
        close = [] if known else difflib.get_close_matches(request.model, _model_names(mteb), n=1, cutoff=0.75)
        hint = "".join(f'; did you mean "{name}"?' for name in close)
        first = (str(error).strip() or "no message").splitlines()[0]
        raise UserError(
            f"the model {request.model!r} could not be loaded ({type(error).__name__}: {first}){hint}"
        ) from error
    _by_reference(USE_ENGINE)(model, request.engine, request.workers)
    return model


def evaluate(request: Request, task: AbsTask, model: Any) -> Outcome:
    """Let mteb evaluate one task, unless its result file in the output folder already says the result.

    Raises:
        UserError: If the data cannot be had, the model's answers are not rankings, or a file cannot be written (which
            is tried beforehand).
    """
    mteb = import_mteb()
    name, meta = task.metadata.name, model.mteb_model_meta
    given = {key: value for key, value in request.evaluate.items() if value is not None}
    check_place(request.output / "results", "--output-folder", name)
    results = mteb.ResultCache(request.output)
    path = Path(results.get_task_result_path(name, meta))
    check_place(path, "--output-folder", name)
    if folder := given.get("prediction_folder"):
        predictions = Path(folder) / task.prediction_file_name
        check_place(predictions, "--prediction-folder", name)
        readable(predictions, lambda: read_predictions(predictions))
    old = readable(path, lambda: results.load_task_result(name, meta))
    before = stamp(path)
    given["overwrite_strategy"] = _strategy(given, old, task)
    with _told_by_mteb(path, before):
        found = mteb.evaluate(
            model, [task], cache=results, raise_error=True, encode_kwargs=dict(request.encode), **given
        )
    if found.exceptions:
        raise UserError(f"{name}: {found.exceptions[0].exception}")
    cached = before is not None and stamp(path) == before
    return _outcome(task, str(meta.name), found.task_results[0], path, cached=cached)


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
def _told_by_mteb(path: Path, before: int | None) -> Iterator[None]:
    """Turn what mteb refuses on account of its arguments into a `UserError`, and leave no half-written result file.

    Args:
        path: The result file.
        before: When it was written, if it was there.
    """
    try:
        yield
    except ValueError as error:
        if "overwrite_strategy" in str(error):
            raise UserError(str(error)) from error
        raise
    except OSError:
        if stamp(path) != before:
            path.unlink(missing_ok=True)
        raise


def _outcome(task: Any, model: str, result: Any, path: Path, *, cached: bool) -> Outcome:
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
        cached=cached,
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


def origins(text: str) -> list[catalogue.ModelEntry]:
    """Return the models of the table that what stands after `-m` builds on; none if it is unknown."""
    try:
        return list(_by_reference(ORIGINS)(text))
    except UserError:
        return []


def _model_name(text: str, mteb: Any) -> tuple[str, bool]:
    """Return the name under which mteb finds a model, and whether a registry knows it.

    Raises:
        UserError: If it is unknown, and has not the form of the hub's names; a folder needs a file that describes it.
    """
    try:
        entry: catalogue.ModelEntry = _by_reference(FIND)(text)
    except UserError as error:
        names = _model_names(mteb)
        if text in names:
            return text, True
        if _FORM.match(text):
            raise
        if _is_there(Path(text)):
            raise UserError(
                f"{text} is a path: a folder of weights is given by a file my-model.toml with the lines "
                f'name = "my-model" and path = "{text}", as -m my-model.toml, or as a checkpoint of a model, '
                f"as -m obliq-ir@{text}"
            ) from error
        if "/" in text and _is_hub_name(text):
            return text, False
        if text.endswith(".py"):
            raise UserError(
                f"{text}: a model of a script is known inside the script; a package makes it known by name"
            ) from error
        raise UserError(f"no model is called {text!r}{near(text, names)} (`obliq models` lists ours)") from error
    if entry != catalogue.catalogue().get(entry.alias):
        catalogue.register(entry)
    return entry.name, True


def _by_reference(reference: str) -> Any:
    module, _, function = reference.partition(":")
    return getattr(importlib.import_module(module), function)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # such as a name too long for a file
        return False


def _is_hub_name(text: str) -> bool:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # it is public all the same

    try:
        validate_repo_id(text)
    except HFValidationError:
        return False
    return True


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
