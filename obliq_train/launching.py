"""One training as the command starts it: alone, or as one of several processes of `torchrun` or `accelerate launch`."""

from __future__ import annotations

import os
import shlex
import time
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from obliq_eval import show
from obliq_eval.errors import UserError
from obliq_eval.home import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from obliq_train.outputs import Trained
    from obliq_train.recipe import Recipe


OTHER = {
    "ACCELERATE_USE_DEEPSPEED": "false",
    "ACCELERATE_USE_MEGATRON_LM": "false",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "false",
    "ACCELERATE_DYNAMO_BACKEND": "no",
    "ACCELERATE_TORCH_DEVICE": "",
}
"""Ways to train that accelerate reads from the environment, and how each is switched off."""
PATIENCE = 60
"""Seconds in which the first process may tell what is wrong, before another one does."""


def first() -> bool:
    """Tell whether this is the process that prints and writes; a rank that no launcher has given means nothing."""
    try:
        return processes() == 1 or os.environ["RANK"] == "0"
    except UserError:  # told where it matters
        return True


def processes() -> int:
    """Return how many processes a launcher has started together.

    Raises:
        UserError: If the environment says something that no launcher does.
    """
    told = os.environ.get("WORLD_SIZE", "1")
    if not told.isdecimal() or int(told) < 1:
        raise UserError(f"WORLD_SIZE is {told!r} in the environment, and no number of processes: unset it")
    key = "WORLD_SIZE" if int(told) > 1 else "LOCAL_RANK"  # with either of them accelerate waits for the others
    begun = int(told) > 1 or os.environ.get("LOCAL_RANK", "-1") != "-1"
    if begun and not {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        raise UserError(
            f"{key} is {os.environ[key]} in the environment, and no launcher has started this: unset it, or use "
            "torchrun or accelerate launch"
        )
    for key in ("RANK", "LOCAL_RANK", "MASTER_PORT"):
        if begun and not os.environ[key].isdecimal():
            raise UserError(f"{key} is {os.environ[key]!r} in the environment, and no number: unset it")
    return int(told)


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
    from obliq_train import checkpoints, data, listwise, outputs, trainer

    folder = checkpoints.Folder.beside(output)
    trainer.check_installed()
    count = processes()
    _check_launcher()
    _check_fsdp()
    _check_precision(recipe)
    if first() and count != recipe.batch.devices:
        _warn(recipe, count)
    several = count > 1
    turn = trainer.arguments(recipe, folder).main_process_first(local=False) if several else nullcontext()
    with ExitStack() as held:
        with turn:
            if first():
                _mend(recipe, output)
                trainer.check_start(output, fresh=fresh, digest=recipe.digest)
                _check_model_file(recipe, output)
                if not fresh:
                    checkpoints.check(folder, trainer.told_by(recipe))
                data.check(recipe, files)
                held.enter_context(checkpoints.alone(folder))  # before another process puts its rows there
            rows = data.prepare(recipe, folder.path, files)
        train = listwise.train if recipe.trains == "reranker" else trainer.train
        try:
            return train(recipe, rows, output, fresh=fresh)
        finally:  # somebody may have asked for an end when it was written
            if first() and outputs.digest_of(output) == recipe.digest:
                evaluation(recipe, output)


def _warn(recipe: Recipe, count: int) -> None:
    each, meant = recipe.batch.per_device * recipe.batch.accumulation, recipe.batch.devices
    show.warn(
        f"the recipe was written for {meant} device{'s'[: meant != 1]}, and {count} of them train: a step has "
        f"{each * count:,} anchors, not {each * meant:,}"
    )


def _check_launcher() -> None:
    """Refuse what a launcher can ask accelerate for and no recipe says, or nobody has tried here."""
    for key, plain in OTHER.items():
        if (told := os.environ.get(key, plain)).lower() not in (plain, ""):
            raise UserError(f"{key} is {told!r} in the environment, which `obliq train` does not go by: unset it")


def _check_precision(recipe: Recipe) -> None:
    """Refuse a launcher's precision where it is not the recipe's: accelerate would compute in it without a word."""
    told = os.environ.get("ACCELERATE_MIXED_PRECISION", "no").lower()
    own = {"bf16-autocast": "bf16"}.get(recipe.run.precision, "no")
    if told not in ("no", own):
        other = ", or --set run.precision=bf16-autocast" if told == "bf16" else ""
        raise UserError(
            f"the launcher asks for mixed precision {told}, and the recipe for run.precision = {recipe.run.precision}: "
            f"give accelerate launch --mixed_precision no{other}"
        )


def _check_fsdp() -> None:
    """Refuse FSDP without a GPU: accelerate would quietly train with the whole weights in every process."""
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() != "true":
        return
    import torch

    if not torch.cuda.is_available():
        raise UserError("FSDP spreads weights over GPUs, and there is none here: leave --use_fsdp out")


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


def _mend(recipe: Recipe, output: Path) -> None:
    """Write the model file of an adapter that was finished, where a process that was killed has not come to it."""
    from obliq_train.outputs import digest_of
    from obliq_train.serving import named

    text, content = named(recipe, output)
    if content and not Path(text).exists() and digest_of(output) == recipe.digest:
        evaluation(recipe, output)


def evaluation(recipe: Recipe, output: Path) -> str:
    """Return the command that evaluates an adapter, and write the model file that it names, where it needs one."""
    from obliq_train.serving import named

    tasks = recipe.evaluation.tasks or [part.task for part in recipe.used if part.task] or ["TASK"]
    text, content = named(recipe, output)
    if content:
        with whole_file(Path(text)) as part:
            part.write_text(content, "utf-8")
    return shlex.join(["obliq", "run", "-t", tasks[0], "-m", text])
