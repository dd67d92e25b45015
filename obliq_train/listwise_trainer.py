"""The trainer and the loss of the listwise reranker: those of sentence-transformers, fed with rows by their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_transformers.cross_encoder.losses import ListNetLoss

from obliq_eval.errors import UserError
from obliq_train import stepping

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from obliq_train.listwise import Lists

WEIGHTS = "trained.safetensors"


class ListNet(ListNetLoss):
    """sentence-transformers' ListNet over lists that are named by their numbers.

    Args:
        model: The student.
        lists: The lists.
    """

    def __init__(self, model: Any, lists: Lists) -> None:
        super().__init__(model)
        self.lists = lists

    def forward(self, features: Sequence[Mapping[str, torch.Tensor]], _: object = None) -> torch.Tensor:  # type: ignore[override]
        """Return the mean loss over the lists of a batch."""
        import torch

        rows = features[0]["input_ids"].tolist()
        queries = [self.lists.queries[row] for row in rows]
        documents = [list(self.lists.documents[row]) for row in rows]
        found: torch.Tensor = super().forward(
            [queries, documents], [torch.tensor(self.lists.scores[row]) for row in rows]
        )
        return found


class Trainer(stepping.Trainer):
    """Trains and keeps whatever of the student has gradients: an adapter and the head, or everything."""

    def adapter(self) -> Mapping[str, torch.Tensor]:
        """Return the weights that are trained."""
        model: Any = self.plain
        return {name: weight.detach().cpu() for name, weight in model.named_parameters() if weight.requires_grad}

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the weights that are trained; called in every process."""
        from safetensors.torch import save

        if self.args.should_save:
            place = Path(str(output_dir))
            place.mkdir(parents=True, exist_ok=True)
            (place / WEIGHTS).write_bytes(save({name: one.contiguous() for name, one in self.adapter().items()}))

    def _load_from_checkpoint(self, place: str, model: Any = None) -> None:  # noqa: ARG002 -- as the parent calls it
        from safetensors.torch import load_file

        student: Any = self.plain
        own, found = self.adapter(), load_file(Path(place) / WEIGHTS)
        if {name: one.shape for name, one in own.items()} != {name: one.shape for name, one in found.items()}:
            raise UserError(f"{place} holds another reranker than the recipe's: give another --output, or --fresh")
        student.load_state_dict(found, strict=False)
