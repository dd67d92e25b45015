"""Runs of what an ablation trained, of its base and of frozen models; one that is in the store is not run again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError
from obliq_train.serving import reading

BASE = "base"

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from obliq_eval.catalogue import ModelEntry
    from obliq_train.recipe import Recipe


@dataclass(frozen=True)
class Runs:
    """The runs of one row of the tables.

    Args:
        name: What it is called.
        runs: `{task: ids of its runs, one for each training seed}`.
    """

    name: str
    runs: Mapping[str, tuple[str, ...]]


def trained(name: str, adapters: Sequence[tuple[Recipe, Path]], tasks: Sequence[str], output: Path) -> Runs:
    """Run a member's adapters, one for each seed.

    Raises:
        UserError: If one cannot be loaded, or a task cannot be had.
    """
    models = (_load(_checkpoint(folder, recipe, _name(folder))) for recipe, folder in adapters)
    return _runs(name, models, tasks, output)


def base(name: str, recipe: Recipe, tasks: Sequence[str], output: Path) -> Runs:
    """Run the base of a recipe, which reads texts as the recipe says.

    Raises:
        UserError: If it cannot be loaded, or a task cannot be had.
    """
    from obliq_train.build import origin

    files = origin(recipe).files
    if files.commit is None:
        entry = _checkpoint(Path(files.place), recipe, f"local/{BASE}-{_place(Path(files.place))}")
    else:
        entry = replace(_entry(recipe), name=files.place, revision=files.commit)
    return _runs(name, iter([_load(entry)]), tasks, output)


def frozen(name: str, tasks: Sequence[str], output: Path) -> Runs:
    """Run a model by what stands after `-m`.

    Raises:
        UserError: If it is unknown, cannot be loaded, or a task cannot be had.
    """
    from obliq_eval.running import Request, find_model

    return _runs(name, iter([find_model(Request(name))]), tasks, output)


def _runs(name: str, models: Iterator[Any], tasks: Sequence[str], output: Path) -> Runs:
    found: dict[str, list[str]] = {task: [] for task in tasks}
    for model in models:
        for task in tasks:
            found[task].append(_run(model, task, output))
    return Runs(name, {task: tuple(ids) for task, ids in found.items()})


def _run(model: Any, task: str, output: Path) -> str:
    """Return the id of the model's run in the store; mteb's result file says whether there is one."""
    from obliq_eval import running

    folder = Path(task)
    asked = {"folders": (folder,)} if folder.is_dir() else {"tasks": (task,)}
    silent = {"show_progress_bar": False}
    request = running.Request("", **asked, output=output / "results", encode=silent, evaluate=silent)
    [found] = running.find_tasks(request)
    outcome = running.evaluate(request, found, model)
    if not outcome.stored:  # the result is there, and the run is gone
        again = replace(request, evaluate={**silent, "overwrite_strategy": "always"})
        outcome = running.evaluate(again, found, model)
    if outcome.run is None or not outcome.stored:
        raise UserError(f"the run of {outcome.model} on {task} could not be kept: free space, or set OBLIQ_HOME")
    return outcome.run


def _load(entry: ModelEntry) -> Any:
    from obliq_eval.catalogue import to_meta
    from obliq_eval.devices import device_of
    from obliq_eval.running import import_mteb
    from obliq_train.watch import quiet

    import_mteb()
    with quiet():
        return to_meta(entry).load_model(device=device_of(None))


def _name(folder: Path) -> str:
    """Return a name that no other folder has: that of the folder, and a hash of where it is."""
    return f"local/{folder.name}-{_place(folder)}"


def _place(folder: Path) -> str:
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:6]


def _checkpoint(folder: Path, recipe: Recipe, name: str) -> ModelEntry:
    from obliq_models.derived import checkpoint

    return checkpoint(_entry(recipe), folder, name, reading(recipe))


def _entry(recipe: Recipe) -> ModelEntry:
    """Return an entry that loads whatever is trained like OBLIQ-IR, under the recipe's own terms."""
    from obliq_eval.catalogue import resolve

    own = {key: value for key, value in reading(recipe).items() if "prefix" in key or "_length" in key}
    rest = {key: value for key, value in reading(recipe).items() if key not in own}
    return replace(
        resolve("obliq-ir"),
        settings=rest,
        licence=recipe.licence,
        risk=recipe.risk,
        base="",
        base_licence="",
        data_licence="",
        dims=None,
        n_parameters=None,
        paper_row=None,
        **own,
    )
