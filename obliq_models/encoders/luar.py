"""LUAR, a network for authorship: a transformer reads each text, attention without weights joins an author's texts.

Rivera-Soto et al., "Learning Universal Authorship Representations" (EMNLP 2021); the formulas are those of the code
that its authors published (LLNL/LUAR, Apache-2.0). Only weights are read from a checkpoint, never code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from obliq_eval.errors import raise_all
from obliq_models.retrievers.guards import listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import RobertaConfig

DIMS = 512
"""Length of a vector where a checkpoint's configuration does not give its `embedding_size`."""

DISTILROBERTA: Mapping[str, Any] = {
    "vocab_size": 50_265,
    "hidden_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 3_072,
    "hidden_act": "gelu",
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
}
"""Shape of the transformer, which the published checkpoints' own configurations do not give.

Source: `config.json` of distilbert/distilroberta-base. With this shape, the names `transformer.*` and `linear.*` and
the pooler, a safetensors file has 330,061,440 bytes, the size that the hub shows for LUAR-MUD's.
"""

_UNUSED = (
    "transformer.pooler.dense.weight",
    "transformer.pooler.dense.bias",
    "transformer.embeddings.position_ids",
    "transformer.embeddings.token_type_ids",
)
"""What checkpoints hold besides: a head that this network has no use for, and counts from 0 to the last position."""


class Luar(nn.Module):
    """The network.

    Args:
        config: Shape of the transformer.
        dims: Length of a vector.
    """

    def __init__(self, config: RobertaConfig, dims: int = DIMS) -> None:
        from transformers import RobertaModel  # takes a second to import

        super().__init__()
        self.transformer = RobertaModel(config, add_pooling_layer=False)
        self.linear = nn.Linear(config.hidden_size, dims)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return one vector for each author.

        Args:
            input_ids: Shape (authors, texts, tokens), padded with the transformer's own padding.
            attention_mask: 1 for a token, 0 for padding, same shape. A text without any token is not there; each
                author has at least one that is.

        Returns:
            float32, shape (authors, dims), not normalised.
        """
        present = attention_mask.bool().any(-1)
        texts = self.texts(input_ids[present], attention_mask[present])
        states = texts.new_zeros(*present.shape, texts.shape[-1])
        states[present] = texts
        return self.authors(states, present)

    def texts(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the mean of the last states over each text's tokens, special tokens included.

        Args:
            input_ids: Shape (texts, tokens).
            attention_mask: The same shape.

        Returns:
            float32, shape (texts, hidden size).
        """
        states = self.transformer(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state.float()
        weights = attention_mask.unsqueeze(-1).to(states)
        means: torch.Tensor = (states * weights).sum(1) / weights.sum(1)
        return means

    def authors(self, states: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        """Return the vectors of authors from the means of their texts.

        Each text becomes softmax(s · S / √hidden) S, where S are all texts of its author; then comes the maximum
        over the texts, entry by entry, and the linear layer. With a single text the attention changes nothing. The
        published code takes equally many texts from each author; here those that are not there take no part.

        Args:
            states: float32, shape (authors, texts, hidden size).
            present: bool, shape (authors, texts).
        """
        joined = functional.scaled_dot_product_attention(states, states, states, attn_mask=present.unsqueeze(1))
        vectors: torch.Tensor = self.linear(joined.masked_fill(~present.unsqueeze(-1), float("-inf")).amax(1))
        return vectors


def build(config: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> Luar:
    """Return a network for these weights, not yet filled.

    Args:
        config: A checkpoint's `config.json`; what it says of the transformer's shape comes first.
        weights: By name. Where they are not as wide as distilroberta, their shapes tell that of the transformer.
    """
    from transformers import RobertaConfig

    shape = {**DISTILROBERTA, **_shape(weights)}
    shape = {key: config.get(key, value) for key, value in shape.items()}
    return Luar(RobertaConfig(**shape), config.get("embedding_size", DIMS))


def _shape(weights: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """Return the shape of a transformer of another width than distilroberta's, with as many dimensions to a head."""
    layer = "transformer.encoder.layer."
    tables = [weights.get(f"transformer.embeddings.{kind}_embeddings.weight") for kind in ("word", "position")]
    inner = weights.get(f"{layer}0.intermediate.dense.weight")
    if any(table is None or table.ndim != 2 for table in (*tables, inner)):
        return {}  # `fill` says what is missing
    (words, hidden), (positions, _), (wide, _) = (table.shape for table in (*tables, inner) if table is not None)
    if hidden == DISTILROBERTA["hidden_size"]:
        return {}
    return {
        "vocab_size": words,
        "hidden_size": hidden,
        "num_hidden_layers": 1 + max(int(key.split(".")[3]) for key in weights if key.startswith(layer)),
        "num_attention_heads": max(1, hidden // 64),
        "intermediate_size": wide,
        "max_position_embeddings": positions,
    }


def fill(network: Luar, weights: Mapping[str, torch.Tensor], source: str) -> None:
    """Put a checkpoint's weights into the network.

    Args:
        network: A network of the checkpoint's shape; changed in place.
        weights: By name, `transformer.*` and `linear.*`.
        source: Where they come from, for messages.

    Raises:
        UserError: If a weight is missing, has no place, has another shape, or is not finite; all problems at once.
    """
    needed = network.state_dict()
    given = {key: weight for key, weight in weights.items() if key not in _UNUSED}
    shared = sorted(needed.keys() & given.keys())
    found = {
        "the file lacks": sorted(needed.keys() - given.keys()),
        "the file holds what the architecture does not:": sorted(given.keys() - needed.keys()),
        "of another shape than the configuration says:": [
            f"{key} is {list(given[key].shape)}, not {list(needed[key].shape)}"
            for key in shared
            if given[key].shape != needed[key].shape
        ],
        "NaN or infinity is in": [key for key in shared if not given[key].isfinite().all()],
    }
    problems = [f"{what} {listed(keys)}" for what, keys in found.items() if keys]
    raise_all(problems, f"{source} holds no weights of LUAR")
    network.load_state_dict(given)
