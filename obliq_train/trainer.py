"""From rows to an adapter's folder, or on from where the same command was stopped."""

from __future__ import annotations

import importlib.util
import math
import signal
from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from obliq_eval import show
from obliq_eval.errors import MissingExtraError, UserError
from obliq_eval.home import whole_folder
from obliq_train import build as building
from obliq_train import card, checkpoints, curves, outputs
from obliq_train.provenance import sha256
from obliq_train.rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.training_args import SentenceTransformerTrainingArguments

    from obliq_train.build import Origin
    from obliq_train.checkpoints import Folder
    from obliq_train.data import Data
    from obliq_train.outputs import Trained
    from obliq_train.recipe import Recipe
    from obliq_train.rows import Row
    from obliq_train.watch import Asked

NEVER = 1 << 40
"""Steps between two checkpoints where the last alone is wanted."""
LONGEST_WAIT = 24 * 3600
"""Seconds that processes wait for the first one, which measures dev scores and writes."""
SHAPES = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}


class Stopped(UserError):  # noqa: N818 -- nothing is wrong
    """Somebody has asked for an end, and the run can be resumed.

    Args:
        message: One sentence.
        number: The signal.
    """

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.status = 128 + number
        """What a shell reports for a process that the signal has ended."""


def steps(recipe: Recipe, rows: int, processes: int = 1) -> int:
    """Return how many optimiser steps a recipe makes.

    The last batch of an epoch is left out where it is not full, and so are batches that not every process has one of:
    their anchors would be contrasted with fewer documents than the others.

    Args:
        recipe: The recipe.
        rows: Training rows.
        processes: Devices that train together.

    Raises:
        UserError: If there are too few rows for one batch on each device.
    """
    batches = rows // (recipe.batch.per_device * processes)
    if not batches:
        raise UserError(
            f"{rows} rows are too few for a batch of {recipe.batch.per_device} on each of {processes} "
            f"device{'s'[: processes != 1]}; lower batch.per_device"
        )
    if recipe.schedule.steps is not None:
        return recipe.schedule.steps
    return math.ceil((recipe.schedule.epochs or 1) * math.ceil(batches / recipe.batch.accumulation))


def train(recipe: Recipe, data: Data, output: Path, *, fresh: bool = False, progress: bool = True) -> Trained:
    """Train an adapter and write its folder, or go on where the same command was stopped.

    A run that was resumed ends with the same weights as one that never stopped. Under `torchrun` or `accelerate launch`
    every process calls this; the first one writes.

    Args:
        recipe: The recipe.
        data: Its rows.
        output: The adapter's folder; beside it `OUTPUT-run` holds checkpoints and curves.
        fresh: Remove what an earlier run has left, once it is sure that this one can begin.
        progress: Show a bar on standard error where that is a terminal.

    Raises:
        MissingExtraError: If peft or accelerate is not installed.
        Stopped: After Ctrl-C or SIGTERM, once a checkpoint is written.
        UserError: If `output` is there already; if its checkpoints are another recipe's or other rows'; if the rows or
            the base do not fit the recipe; if the loss or the gradient is no number; if a checkpoint or the adapter
            cannot be written; if nothing was learnt. The last whole checkpoint is kept.
    """
    if recipe.trains != "retriever":
        raise UserError(f"{recipe.name} trains a {recipe.trains}, which this trainer does not")
    check_start(output, fresh=fresh)
    from obliq_train.watch import quiet

    with quiet():
        return _train(recipe, data, output, fresh=fresh, shown=progress)


def check_start(output: Path, *, fresh: bool, digest: str = "") -> None:
    """Refuse to begin where the result could not be written, or without what the trainer needs.

    Args:
        output: The result's folder.
        fresh: Whether an adapter that was trained there is to be replaced.
        digest: Of the recipe, where it is known, so that the message can say whether an adapter there is another's.

    Raises:
        MissingExtraError: If a package is not installed; transformers would name another way to install it.
        UserError: If `output` is there already, unless it is an adapter that was trained here and may be replaced.
    """
    check_installed()
    if not output.name or output.name == "..":
        raise UserError(f"{output} is no folder of its own: give --output a name, as in -o adapter")
    outputs.check_place(output)
    beside = checkpoints.Folder.beside(output)
    outputs.check_place(beside.path)
    beside.check_own()
    outputs.check_free(output, fresh=fresh, digest=digest)


def check_installed() -> None:
    """Refuse to begin without what training needs.

    Raises:
        MissingExtraError: If it is not installed.
    """
    for package, purpose in (("peft", "training an adapter"), ("accelerate", "training")):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "train", purpose)


def _train(recipe: Recipe, data: Data, output: Path, *, fresh: bool, shown: bool) -> Trained:
    from obliq_train.batches import TrainingSet
    from obliq_train.losses import Contrast
    from obliq_train.stepping import Trainer
    from obliq_train.validation import Dev
    from obliq_train.watch import asked_to_stop

    folder = checkpoints.Folder.beside(output)
    args = arguments(recipe, folder)
    rows, edges = _read(data)
    total = steps(recipe, len(rows), args.world_size)
    dev = Dev.of(recipe.evaluation.tasks)
    base = building.origin(recipe)
    model = building.build(recipe, base)
    texts = TrainingSet.of(rows, edges, model.tokenizer, recipe)
    texts.verify(model, rows, recipe)
    texts.check_contrast(recipe, args.world_size)
    identity = identity_of(recipe, data, base, args)
    with claimed(folder, identity, args, output if fresh else None), asked_to_stop() as asked:
        loss = Contrast(model, recipe.loss, recipe.batch.sub_batch_tokens)
        trainer = Trainer(model, args, texts, loss, folder=folder, keep=recipe.run.keep_checkpoints)
        if dev.tasks and trainer.is_fsdp_enabled:
            raise UserError(
                "evaluation.tasks cannot be measured while the weights are spread over devices (FSDP): "
                "take them out, and run `obliq run` afterwards"
            )
        found, made = go(trainer, recipe, folder, dev, total, asked, shown=shown)
        if args.process_index == 0:
            facts = outputs.manifest_of(recipe, data, identity, texts, found, total, trainer.args)
            facts["rows"]["parts"] = dict(Counter(row.source for row in rows))
            _write(output, recipe, model, made, found, facts, base.name)
        trainer.accelerator.wait_for_everyone()
        check_asked(asked, output)
    return outputs.written(output, total)


def check_asked(asked: Asked, output: Path) -> None:
    """End where somebody has asked for an end after the last step: a family would go on with its next member.

    Raises:
        Stopped: If somebody has.
    """
    if asked.signal:
        name = signal.Signals(asked.signal).name
        raise Stopped(f"{name} came after the last step: {output} is written", asked.signal)


def identity_of(recipe: Recipe, data: Data, base: Origin, args: SentenceTransformerTrainingArguments) -> dict[str, Any]:
    """Return whatever a checkpoint depends on."""
    return {
        **told_by(recipe),
        "rows": sha256(data.rows),
        "edges": {name: sha256(path) for name, path in sorted(data.edges.items())},
        "base": base.identity,
        "processes": args.world_size,
    }


def told_by(recipe: Recipe) -> dict[str, Any]:
    """Return what of an identity a recipe alone tells."""
    return {"digest": recipe.digest, "recipe": recipe.deciding()}


@contextmanager
def claimed(
    folder: Folder,
    identity: Mapping[str, Any],
    args: SentenceTransformerTrainingArguments,
    replaced: Path | None = None,
) -> Iterator[None]:
    """Hold the run's folder, once it is sure whose run it is; the first process does, before the others go on.

    Args:
        folder: The run's folder.
        identity: What the run is.
        args: The trainer's arguments.
        replaced: An output that is to be made again, and is removed with the run that made it.
    """
    with args.main_process_first(local=False):
        pass  # all have looked at what is there before the first one removes it
    with ExitStack() as held:
        with args.main_process_first(local=False):
            if args.process_index == 0:
                held.enter_context(checkpoints.alone(folder))
                if replaced is not None:
                    checkpoints.clear(folder, replaced)
                checkpoints.claim(folder, identity)
                folder.begin()
        yield


def _read(data: Data) -> tuple[list[Row], dict[str, Any]]:
    from obliq_eval.edges import read_edges

    return list(read_rows(data.rows)), {name: read_edges(path) for name, path in data.edges.items()}


def arguments(recipe: Recipe, folder: Folder) -> SentenceTransformerTrainingArguments:
    """Return a recipe as the trainer's arguments; what the launcher has set in the environment is read here."""
    import torch
    from sentence_transformers import SentenceTransformerTrainingArguments

    schedule, run = recipe.schedule, recipe.run
    args = SentenceTransformerTrainingArguments(
        output_dir=str(folder.checkpoints),
        use_cpu=not (torch.cuda.is_available() or torch.backends.mps.is_available()),  # else processes do not meet
        per_device_train_batch_size=recipe.batch.per_device,
        gradient_accumulation_steps=recipe.batch.accumulation,
        dataloader_drop_last=True,
        dataloader_pin_memory=torch.cuda.is_available(),
        max_steps=schedule.steps or -1,
        num_train_epochs=schedule.epochs or 1,
        learning_rate=schedule.rate,
        warmup_steps=schedule.warmup,
        lr_scheduler_type=SHAPES[schedule.shape],
        weight_decay=schedule.weight_decay,
        max_grad_norm=schedule.clip,
        optim="adamw_torch",
        bf16=run.precision == "bf16-autocast",
        seed=run.seed,
        data_seed=run.seed,
        logging_strategy="steps",
        logging_steps=run.log_steps,
        logging_first_step=True,
        logging_nan_inf_filter=False,  # a loss that is no number ends the run
        save_strategy="steps",
        save_steps=run.save_steps or NEVER,
        save_total_limit=None,  # `Folder.keep` removes the oldest whole ones
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        log_level="error",
        log_level_replica="error",
        ddp_find_unused_parameters=False,
        ddp_timeout=LONGEST_WAIT,
    )
    args._setup_devices  # noqa: B018 -- a property: the other processes are joined here, before anybody counts them
    if args.world_size == 1 and args.n_gpu > 1:  # else one process would spread each batch over all of them
        args._n_gpu = 1
    return args


def go(
    trainer: Any, recipe: Recipe, folder: Folder, dev: Any, total: int, asked: Asked, *, shown: bool
) -> tuple[list[curves.Point], dict[str, Any]]:
    """Train, and return the points of the curves and the trained weights.

    Raises:
        Stopped: If somebody has asked for an end.
        UserError: If the weights are those at the start.
    """
    from obliq_train.stepping import kept
    from obliq_train.watch import Watch, progress

    start, broken = folder.resumed()
    first, begun = trainer.args.process_index == 0, building.fingerprint(trainer.adapter())
    if first and broken:
        show.warn(f"{folder.checkpoints}: {', '.join(broken)} passed over: not what was written")
    done = checkpoints.step_of(start) if start is not None else 0
    if first and 0 < done < total:
        show.say(f"going on after step {done:,} of {total:,}", stderr=True)
    trainer.accelerator.wait_for_everyone()  # all have looked before the first one writes
    with ExitStack() as open_:
        bar = open_.enter_context(progress(total, done, shown=shown and first))
        file = None
        if first:
            file = curves.Curves(folder.curves, folder.tensorboard, done)
            open_.enter_context(file)
        scores = (lambda: _dev_scores(trainer, dev)) if dev.tasks else None
        watch = Watch(asked, lambda number: _largest(trainer, number), file, scores, recipe.evaluation.every, bar)
        trainer.add_callback(watch)
        if start is not None and done >= total:
            trainer._load_from_checkpoint(str(start))
        else:
            trainer.train(resume_from_checkpoint=None if start is None else str(start))
            if trainer.state.global_step < total:
                if not asked.signal:
                    raise RuntimeError(f"the trainer ended after step {trainer.state.global_step} of {total}")
                raise Stopped(
                    f"stopped after step {trainer.state.global_step} of {total} by "
                    f"{signal.Signals(asked.signal).name}; {kept(folder)}",
                    asked.signal,
                )
        made = trainer.adapter()
        if first and building.fingerprint(made) == begun:
            raise UserError(
                f"nothing was learnt in {total:,} step{'s'[: total != 1]}, and nothing is written: the learning rate "
                "or every gradient was 0; train longer, lower schedule.warmup, or give rows that differ"
            )
        return (file.points if file is not None else []), made


def _dev_scores(trainer: Any, dev: Any) -> dict[str, float]:
    """Measure in the first process, in the weights' own type, while the others wait."""
    found: dict[str, float] = {}
    if trainer.args.process_index == 0:
        model = trainer.plain
        autocast = vars(model).pop("forward", None)  # accelerate's, which computes in bfloat16
        try:
            found = dev.scores(model)
        finally:
            if autocast is not None:
                model.forward = autocast
    trainer.accelerator.wait_for_everyone()
    return found


def _largest(trainer: Any, number: int) -> int:
    """Return the largest of all processes' numbers."""
    if trainer.args.world_size == 1:
        return number
    import torch

    told = torch.tensor([number], device=trainer.args.device)
    torch.distributed.all_reduce(told, torch.distributed.ReduceOp.MAX)
    return int(told)


def _write(
    output: Path,
    recipe: Recipe,
    model: SentenceTransformer,
    weights: Mapping[str, Any],
    found: list[curves.Point],
    facts: Mapping[str, Any],
    base: str,
) -> None:
    """Write the adapter's folder, whole or not at all."""
    with whole_folder(output) as part:
        with outputs.saving(output):
            building.save(model, part, weights)
        told = {**facts, "weights": {building.WEIGHTS: sha256(part / building.WEIGHTS)}}
        outputs.describe(part, recipe, found, told, card.text(recipe, told, output.name, base))
