"""The losses: InfoNCE over a batch without false negatives, MarginMSE to a cross-encoder's margins, and both.

The gradient is computed as GradCache computes it (Gao et al. 2021, "Scaling deep contrastive learning batch size under
memory limited setup"): vectors first, then the loss's gradient at the vectors, then, sub-batch by sub-batch, the
network's. Two things differ from the parent class, and neither changes which rows share a contrast. Sub-batches hold
texts of similar length, because the collator has sorted all texts of the batch by length. And of as many tokens as may
be held at a time anyway, the activations are kept from the first pass, so that these texts are not encoded twice.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss
from sentence_transformers.util import all_gather, all_gather_with_grad
from torch import distributed
from torch.nn.functional import cross_entropy, normalize
from torch.nn.parallel import DistributedDataParallel

from obliq_eval.errors import UserError
from obliq_models.encoders.batching import plan
from obliq_models.encoders.sentence import OVERHEADS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager

    from sentence_transformers import SentenceTransformer
    from torch import Tensor

    from obliq_train.recipe import Loss

STRUCTURE = ("place", "keys", "answers", "margins")
UNBOUNDED = 1 << 30
"""Texts of a sub-batch, as the parent class counts them: its own division is not used."""


@dataclass(frozen=True)
class Structure:
    """Which text of a batch is what; see `TrainingSet.collate`.

    Args:
        place: int64, shape (rows, 2 + negatives).
        keys: int64, shape (rows, 1 + negatives).
        answers: int64, shape (rows, most).
        margins: float32, shape (rows, negatives).
        first: Vectors of the first texts, where their activations are kept.
    """

    place: Tensor
    keys: Tensor
    answers: Tensor
    margins: Tensor | None = None
    first: tuple[Tensor, ...] = ()


class Contrast(CachedMultipleNegativesRankingLoss):
    """The loss that a recipe names, over batches of `TrainingSet`.

    Args:
        model: The model that is trained.
        loss: Kind, scale and the rest.
        sub_batch_tokens: Tokens, padding included, whose activations are in memory at a time; a longer text is alone.

    Raises:
        UserError: If the model's pooling leaves out the prefix, which is of one length for all texts of a sub-batch
            there, and of two lengths here.
    """

    def __init__(self, model: SentenceTransformer, loss: Loss, sub_batch_tokens: int) -> None:
        super().__init__(model, scale=loss.scale, mini_batch_size=UNBOUNDED, gather_across_devices=loss.gather)
        if any(getattr(module, "include_prompt", True) is False for module in model):
            raise UserError("the model's pooling leaves the prefix out (include_prompt = false): set it to true")
        self.settings = loss
        self.sub_batch_tokens = sub_batch_tokens

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Any = None) -> Tensor:  # noqa: ARG002 -- the parent's
        """Return the loss of a batch, whose backward pass computes the network's gradient.

        Args:
            sentence_features: The one feature that the trainer makes of `TrainingSet.collate`'s tensors.
            labels: Not used.

        Returns:
            A scalar, float32.
        """
        [feature] = sentence_features
        structure = Structure(**{name: feature[name] for name in STRUCTURE if name in feature})
        pieces = self._pieces({name: value for name, value in feature.items() if name not in STRUCTURE})
        if self._sharded:  # each pass gathers the parameters of all processes: all need the same number of passes
            pieces += pieces[-1:] * (_most(len(pieces), structure.place.device) - len(pieces))
        if not torch.is_grad_enabled():
            return self.forward_cached(pieces, cast("Tensor", structure))
        kept = self._kept(pieces)
        first, rest = pieces[:kept], pieces[kept:]
        with self._apart(rest):
            vectors = [self.model(piece)["sentence_embedding"] for piece in first]
        ends = tuple(vector.detach().requires_grad_() for vector in vectors)
        loss = self.forward_cached(rest, cast("Tensor", replace(structure, first=ends)))
        # A tensor of its own: its hook runs before the parent's, so that these activations are gone by then.
        result = loss.view_as(loss)

        def through(gradient: Tensor) -> None:
            with self._apart(rest):
                torch.autograd.backward(vectors, [cast("Tensor", end.grad) * gradient.to(end.dtype) for end in ends])

        if vectors:
            result.register_hook(through)  # type: ignore[no-untyped-call]
        return result

    def calculate_loss(self, reps: list[list[Tensor]], labels: Any = None, *, with_backward: bool = False) -> Tensor:
        """Return the loss of vectors; in float32, whatever they were computed in.

        Args:
            reps: The vectors of all texts but `labels.first`, in the order of the batch.
            labels: The batch's structure.
            with_backward: Compute the gradient at the vectors, and return a loss without one.
        """
        vectors = torch.cat([*labels.first, *(rep for piece in reps for rep in piece)])
        with torch.autocast(vectors.device.type, enabled=False):
            loss = self.of_vectors(vectors.float(), labels)
        if with_backward:
            loss.backward()  # type: ignore[no-untyped-call]
            loss = loss.detach()
        return loss

    def of_vectors(self, vectors: Tensor, structure: Structure) -> Tensor:
        """Return the loss.

        Args:
            vectors: Of all texts of the batch, float32, of any length.
            structure: Which text is what.
        """
        # Where a row has fewer negatives than others, text 0 stands in, and counts for nothing.
        own = normalize(vectors, dim=-1)[structure.place.clamp(min=0)]
        there = structure.place[:, 1:] >= 0
        loss = vectors.new_zeros(())
        if self.settings.kind != "margin-mse":
            loss = loss + self._infonce(own[:, 0], own[:, 1:], there, structure)
        if self.settings.kind != "infonce":
            weight = self.settings.margin_weight if self.settings.kind == "hybrid" else 1.0
            loss = loss + weight * self._margin_mse(own, there[:, 1:], structure)
        return loss

    def _infonce(self, anchors: Tensor, documents: Tensor, there: Tensor, structure: Structure) -> Tensor:
        """Return -log softmax of each anchor's positive among the documents that it is contrasted with."""
        rows, columns = there.shape
        known, rank = structure.keys, 0
        if self.settings.gather and _processes() > 1:
            documents, rank = all_gather_with_grad(documents), distributed.get_rank()
            there, known = all_gather(there), all_gather(known)
        positive = (rank * rows + torch.arange(rows, device=anchors.device)) * columns
        answers = structure.answers if self.settings.mask else structure.answers[:, :0]
        bare = left_out(there.flatten(), known.flatten(), answers, positive)
        logits = self.settings.scale * anchors @ documents.flatten(0, 1).T
        return cross_entropy(logits.masked_fill(bare, -torch.inf), positive)

    def _margin_mse(self, own: Tensor, there: Tensor, structure: Structure) -> Tensor:
        """Return the mean squared difference to the teacher's margins over the negatives of all processes."""
        if structure.margins is None:
            raise UserError("the batch has no margins: make its training set with the recipe of this loss")
        cosines = torch.einsum("rd,rcd->rc", own[:, 0], own[:, 1:])
        margins = self.settings.margin_scale * (cosines[:, :1] - cosines[:, 1:])
        squares = torch.where(there, margins - structure.margins.nan_to_num(), 0.0).square()
        count = there.sum()
        if _processes() > 1:  # gradients are averaged over processes, which may hold different numbers of negatives
            distributed.all_reduce(count)
        return squares.sum() * _processes() / count.clamp(min=1)

    def _pieces(self, texts: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Cut a batch, sorted by length, into sub-batches, each without the padding that all of it has."""
        mask = texts["attention_mask"]
        lengths = mask.sum(dim=1).tolist()
        left = bool(mask[:, -1].all())
        runs = plan(lengths, self.sub_batch_tokens, overhead=OVERHEADS.get(mask.device.type, 0))
        pieces, begin = [], 0
        for run in runs:
            width, end = lengths[begin], begin + len(run)
            columns = slice(mask.shape[1] - width, None) if left else slice(width)
            pieces.append(
                {name: v[begin:end, columns] if isinstance(v, torch.Tensor) else v for name, v in texts.items()}
            )
            begin = end
        return pieces

    def _kept(self, pieces: list[dict[str, Any]]) -> int:
        """Return of how many sub-batches, the first ones, the activations may be held together."""
        if self._sharded:
            return 0  # parameters are gathered for one forward and backward pass at a time
        total = kept = 0
        for piece in pieces:
            total += piece["input_ids"].numel()
            if kept and total > self.sub_batch_tokens:
                break
            kept += 1
        return kept

    def _apart(self, rest: list[dict[str, Any]]) -> AbstractContextManager[object]:
        """Keep DDP from exchanging gradients while there are sub-batches to come, after whose last the parent does."""
        model = self._wrapped
        if not isinstance(model, DistributedDataParallel):
            return nullcontext()
        # Positions and the like never change, and processes with different texts make different numbers of passes.
        model.broadcast_buffers = False
        return model.no_sync() if rest else nullcontext()

    @property
    def _wrapped(self) -> torch.nn.Module:
        return cast("torch.nn.Module", getattr(self.model, "_orig_mod", self.model))

    @property
    def _sharded(self) -> bool:
        """Whether the model is one of FSDP, of the first or the second kind."""
        return any(kind.__name__ in {"FSDPModule", "FullyShardedDataParallel"} for kind in type(self._wrapped).__mro__)

    def get_config_dict(self) -> dict[str, Any]:
        """Return what sentence-transformers' model card says about the loss."""
        return {**self.settings.model_dump(), "sub_batch_tokens": self.sub_batch_tokens}


def left_out(there: Tensor, known: Tensor, answers: Tensor, positive: Tensor) -> Tensor:
    """Return which documents an anchor is not contrasted with: answers, and places without a document.

    Args:
        there: Whether there is a document; bool, shape (documents,).
        known: Keys of the documents; shape (documents,).
        answers: Keys of what answers each anchor; shape (rows, most).
        positive: Which document is each anchor's own positive, and stays; shape (rows,).

    Returns:
        bool, shape (rows, documents).
    """
    found = (~there).expand(len(answers), -1)
    for answer in answers.unbind(dim=1):  # one at a time, so that it takes no more memory than the result
        found = found | (known == answer[:, None])
    return found.scatter(1, positive[:, None], value=False)


def _most(count: int, device: torch.device) -> int:
    """Return the largest of all processes' counts."""
    largest = torch.tensor(count, device=device)
    distributed.all_reduce(largest, distributed.ReduceOp.MAX)
    return int(largest)


def _processes() -> int:
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
