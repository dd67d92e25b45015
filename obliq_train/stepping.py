"""The trainer: sentence-transformers' own with an order of rows, an end at what is no number, and whole checkpoints."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers import SentenceTransformerTrainer
from sentence_transformers.base.sampler import DefaultBatchSampler
from transformers import PrinterCallback

from obliq_eval.errors import UserError
from obliq_train import build, checkpoints, sharded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sentence_transformers import SentenceTransformer

    from obliq_train.batches import TrainingSet
    from obliq_train.checkpoints import Folder

OPTIMIZER, SCHEDULER = "optimizer.pt", "scheduler.pt"
EPOCHS_APART = 1_000_003
"""Between the seeds of an epoch's order and the next one's."""


class Shuffled(DefaultBatchSampler):
    """Full batches in an order that depends on seed and epoch alone, however many epochs this process has seen."""

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the rows of each batch."""
        random = torch.Generator()
        random.manual_seed(self.seed + EPOCHS_APART * self.epoch)
        order = torch.randperm(len(self.sampler), generator=random).tolist()  # type: ignore[arg-type]
        for first in range(0, len(order) - self.batch_size + 1, self.batch_size):
            yield order[first : first + self.batch_size]

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.sampler) // self.batch_size  # type: ignore[arg-type]


class Trainer(SentenceTransformerTrainer):
    """Trains the adapter of a model.

    Args:
        model: The model.
        args: The trainer's arguments.
        texts: What is trained on; it is the collator as well.
        loss: The loss.
        folder: Where checkpoints go.
        keep: How many are kept.
    """

    def __init__(
        self, model: SentenceTransformer, args: Any, texts: TrainingSet, loss: Any, *, folder: Folder, keep: int
    ) -> None:
        self.folder, self.keep = folder, keep
        collator: Any = texts
        super().__init__(model=model, args=args, train_dataset=texts.dataset, data_collator=collator, loss=loss)
        self.remove_callback(PrinterCallback)

    @property
    def plain(self) -> SentenceTransformer:
        """The model without what distributes it."""
        found: SentenceTransformer = self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=True)
        return found

    def adapter(self) -> Mapping[str, torch.Tensor]:
        """Return the adapter's weights; called in every process, and whole in the first one."""
        return build.adapter(self.plain, sharded.weights(self.model) if self.is_fsdp_enabled else None)

    def get_batch_sampler(self, dataset: Any, batch_size: int, drop_last: bool, *_: Any, **settings: Any) -> Shuffled:
        """Return the order of rows."""
        self.order = Shuffled(dataset, batch_size, drop_last, seed=settings["seed"])
        return self.order

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Leave it out: the card is written at the end, by `card`."""

    def _run_epoch(self, *given: Any, **settings: Any) -> None:
        self.order.set_epoch(settings["epoch"])  # a sampler that is wrapped twice is not told
        super()._run_epoch(*given, **settings)  # type: ignore[no-untyped-call]

    def training_step(self, *given: Any, **settings: Any) -> torch.Tensor:
        """Return the loss, unless it is no number."""
        loss = super().training_step(*given, **settings)
        if not bool(torch.isfinite(loss).all()):
            raise self._no_number("loss", float(loss))
        return loss

    def _get_grad_norm(self, *given: Any, **settings: Any) -> Any:
        norm = super()._get_grad_norm(*given, **settings)  # type: ignore[no-untyped-call]
        if not math.isfinite(float(norm)):  # before the optimiser's step, which would spoil the weights
            raise self._no_number("norm of the gradient", float(norm))
        return norm

    def _no_number(self, what: str, value: float) -> UserError:
        return UserError(
            f"the {what} is {value} at step {self.state.global_step + 1}, learning rate "
            f"{self._get_learning_rate():.3g}: lower schedule.rate, set schedule.clip, or take run.precision = fp32, "
            f"with another --output; {kept(self.folder)}"
        )

    def _get_output_dir(self, trial: Any) -> str:  # noqa: ARG002 -- as the parent calls it
        return str(self.folder.part)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        step = self.state.global_step
        try:
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                self.folder.keep(step, self.keep)
            self.accelerator.wait_for_everyone()
        except Exception as error:
            self.folder.begin()
            raise UserError(
                f"cannot save step {step} in {self.folder.checkpoints}: {checkpoints.why(error)}; free space, and give "
                f"the same command again; {kept(self.folder)}"
            ) from error

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the adapter; called in every process."""
        weights = self.adapter()
        if self.args.should_save:
            place = Path(str(output_dir))
            place.mkdir(parents=True, exist_ok=True)
            build.save(self.plain, place, weights)

    def _load_from_checkpoint(self, place: str, model: Any = None) -> None:  # noqa: ARG002 -- as the parent calls it
        build.load(self.plain, Path(place), sharded=self.is_fsdp_enabled)

    def _save_optimizer_and_scheduler(self, place: str) -> None:
        if not self.is_fsdp_enabled:  # else the parent would save the base as well
            super()._save_optimizer_and_scheduler(place)
            return
        optimizer, scheduler = self._parts
        state = sharded.optimizer_state(self.model, optimizer)
        if self.args.should_save:
            torch.save(state, Path(place) / OPTIMIZER)
            torch.save(scheduler.state_dict(), Path(place) / SCHEDULER)

    def _load_optimizer_and_scheduler(self, place: str | None) -> None:
        if not self.is_fsdp_enabled or place is None:
            super()._load_optimizer_and_scheduler(place)
            return
        optimizer, scheduler = self._parts
        state = torch.load(Path(place) / OPTIMIZER, map_location="cpu", weights_only=True)
        sharded.set_optimizer_state(self.model, optimizer, state)
        scheduler.load_state_dict(torch.load(Path(place) / SCHEDULER, weights_only=True))

    @property
    def _parts(self) -> tuple[Any, Any]:
        optimizer: Any = self.optimizer
        return optimizer.optimizer, self.lr_scheduler  # accelerate's is around the real one


def kept(folder: Folder) -> str:
    """Return what a run can go on from, as the end of a sentence."""
    newest = folder.newest()
    if newest is None:
        return "no checkpoint had been written"
    return f"the last good checkpoint is {newest}, and the same command goes on from it"
