"""One training as the command starts it: alone, or as one of several processes of `torchrun` or `accelerate launch`."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from obliq_eval import show
from obliq_eval.errors import UserError
from obliq_eval.home import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from obliq_train.recipe import Recipe
    from obliq_train.trainer import Trained


PATIENCE = 60
"""Seconds in which the first process may tell what is wrong, before another one does."""


def first() -> bool:
    """Tell whether this is the process that prints and writes."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def told_once() -> Iterator[None]:
    """Leave it to the first process to tell what is wrong in all of them; what is wrong in another alone comes later.

    A launcher ends all processes when one has failed, so that those that wait say nothing. If they went at once, they
    would take the first one along before it has spoken.
    """
    try:
        yield
    except UserError:
        if not first():
            time.sleep(PATIENCE)
        raise


def run(recipe: Recipe, output: Path, files: Mapping[str, Path], *, fresh: bool = False) -> Trained:
    """Prepare the rows, then train; of several processes the first one prepares, and the others find the rows.

    Args:
        recipe: The recipe.
        output: The adapter's folder.
        files: `{part: file of rows}`, in the place of what the recipe says.
        fresh: Remove first what an earlier run has left.

    Raises:
        MissingExtraError: If peft or accelerate is not installed.
        UserError: As `data.prepare` and `trainer.train` say; if `output` is something else than an adapter's folder; or
            if the model file beside it would be written over another file.
    """
    from obliq_train import data, listwise, trainer
    from obliq_train.checkpoints import Folder

    folder = Folder.beside(output)
    trainer.check_installed()
    _check_fsdp()
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if first() and processes != recipe.batch.devices:
        _warn(recipe, processes)
    several = processes > 1
    turn = trainer.arguments(recipe, folder).main_process_first(local=False) if several else nullcontext()
    with turn:
        if first():
            check(output, fresh=fresh)
            _check_model_file(recipe, output)
        rows = data.prepare(recipe, folder.path, files)
        if fresh and first():
            clear(output)  # not before the rows are there: what is refused should cost nothing
    train = listwise.train if recipe.trains == "reranker" else trainer.train
    return train(recipe, rows, output)


def _warn(recipe: Recipe, processes: int) -> None:
    each, meant = recipe.batch.per_device * recipe.batch.accumulation, recipe.batch.devices
    show.warn(
        f"the recipe was written for {meant} device{'s'[: meant != 1]}, and {processes} of them train: a step has "
        f"{each * processes:,} anchors, not {each * meant:,}"
    )


def _check_fsdp() -> None:
    """Refuse FSDP without a GPU: accelerate would quietly train with the whole weights in every process."""
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() != "true":
        return
    import torch

    if not torch.cuda.is_available():
        raise UserError("FSDP spreads weights over GPUs, and there is none here: leave --use_fsdp out")


def check(output: Path, *, fresh: bool) -> None:
    """Refuse an output that is there, unless it is an adapter that was trained here and may be replaced.

    Raises:
        UserError: If it is something else, or may not.
    """
    from obliq_train.trainer import MANIFEST, run_folder

    for place, mark in ((output, MANIFEST), (run_folder(output), "")):
        if not place.exists() or (place.is_dir() and not any(place.iterdir())):
            continue
        if not place.is_dir() or (mark and not (place / mark).is_file()):
            raise UserError(f"{place} is there already, and is no adapter of `obliq train`: give another --output")
        if mark and not fresh:
            raise UserError(f"{place} is trained already: give another --output, or --fresh to begin again")


def _check_model_file(recipe: Recipe, output: Path) -> None:
    """Refuse an output whose model file would be written over something else, such as the recipe itself."""
    from obliq_eval.toml import read_toml
    from obliq_train.serving import named

    text, content = named(recipe, output)
    if not content or not Path(text).exists():
        return
    try:
        ours = read_toml(Path(text)).get("path") == output.name
    except UserError:
        ours = False
    if not ours:
        raise UserError(
            f"{text} is there already, where the file would be written that says how {output} is read: "
            "give another --output"
        )


def clear(output: Path) -> None:
    """Remove an adapter, and of the folder beside it all but the rows, which are found again if they are the same.

    Raises:
        UserError: If something cannot be removed; what the checkpoints belong to is then still known.
    """
    from obliq_train.checkpoints import Folder
    from obliq_train.trainer import CURVES, alone

    beside = Folder.beside(output)
    if beside.path.is_dir():
        with alone(beside):
            for place in (beside.checkpoints, beside.path / "tensorboard"):
                _remove(place)
            for file in (beside.identity, beside.path / CURVES):
                file.unlink(missing_ok=True)
    _remove(output)


def _remove(folder: Path) -> None:
    """Remove a folder if it is there; of a link to one, the link."""
    try:
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)
    except OSError as error:
        raise UserError(f"cannot remove {error.filename or folder}: {error.strerror or error}") from error


def evaluation(recipe: Recipe, output: Path) -> str:
    """Return the command that evaluates an adapter, and write the model file that it names, where it needs one."""
    from obliq_train.serving import named

    tasks = recipe.evaluation.tasks or [part.task for part in recipe.used if part.task] or ["TASK"]
    text, content = named(recipe, output)
    if content:
        with whole_file(Path(text)) as part:
            part.write_text(content, "utf-8")
    return f"obliq run -t {tasks[0]} -m {text}"
