"""What training will hold in memory on each device, from the architecture alone: no weight is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obliq_train.recipe import Recipe

BYTES = {"fp32": 4, "bf16": 2, "bf16-autocast": 4}
"""Of a weight and of a kept value; autocast keeps its casts beside what it casts, and saves hardly any memory here."""
KNOWN: Mapping[str, Mapping[str, Any]] = {
    # The shape of Llama 3.2 3B, which the base has: its config.json on the hub, and Meta's model card.
    "nvidia/llama-nv-embed-reasoning-3b": {
        "model_type": "llama",
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 28,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128256,
        "tie_word_embeddings": True,
    }
}
"""Configurations of bases that may be planned for where the hub cannot be asked."""
NORMS, WIDE, DROPPED = 8, 4, 1.25
"""Values that one token leaves in one layer for the backward pass: hidden sizes, feed-forward sizes, and inputs of
adapted layers where the adapter has dropout (the dropped copy and a mask of one byte). Counted with
`torch.autograd.graph.saved_tensors_hooks` on BERT and Llama layers, torch 2.13, transformers 5.23."""
SQUARES = 5
"""Values for each pair of tokens and head, where attention itself has dropout and a CPU computes its matrix: three that
are kept, and two more in the backward pass. With them the peak measured on MiniLM was 1.2 times the estimate."""


@dataclass(frozen=True)
class Footprint:
    """Bytes on one device, beside what Python, its libraries and the device's own runtime take.

    Args:
        parameters: Weights of the base.
        trained: Weights of the adapter.
        weights: Bytes of both; all on every device, as without FSDP.
        optimiser: Bytes of the adapter's gradients and of AdamW's two moments.
        activations: Bytes that a sub-batch leaves for the backward pass.
        contrast: Bytes of the batch's vectors with their gradients, and of its logits, in float32.
        tokens: Tokens of that sub-batch.
    """

    parameters: int
    trained: int
    weights: int
    optimiser: int
    activations: int
    contrast: int
    tokens: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.optimiser + self.activations + self.contrast


@dataclass(frozen=True)
class Shape:
    """What of an architecture decides its memory.

    Args:
        parameters: Weights of the base.
        trained: Weights of the adapter: rank · (inputs + outputs), over all adapted layers.
        inputs: Inputs of all adapted layers.
        adapted: How many layers are adapted.
        layers: Blocks of the network.
        hidden: Length of a token's state, and of a vector.
        wide: Length of the feed-forward network's.
        heads: Attention heads.
        attention_dropout: Of the base itself, which is on while an adapter is trained.
    """

    parameters: int
    trained: int
    inputs: int
    adapted: int
    layers: int
    hidden: int
    wide: int
    heads: int
    attention_dropout: float


def shape_of(recipe: Recipe) -> Shape:
    """Return the shape of a recipe's base with its adapter.

    Raises:
        MissingExtraError: If the base is packaged, and its package is not installed.
        UserError: If the base is nowhere, its architecture unknown, or a target of the adapter is none of its layers.
    """
    import torch
    from transformers import AutoModel, LlamaConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from obliq_train.build import matches

    told = recipe.model.base
    record = dict(KNOWN.get(told) or _record(recipe))
    kind = str(record.pop("model_type", ""))
    if kind in CONFIG_MAPPING:
        config: Any = CONFIG_MAPPING[kind](**_own(record))
    elif kind.startswith("llama"):  # a bidirectional variant that brings its own code, which need not run for this
        config = LlamaConfig(**_own(record))
    else:
        raise UserError(f"model.base {told}: its architecture, {kind or 'not stated'}, is unknown here")
    with torch.device("meta"):
        network: Any = AutoModel.from_config(config)  # type: ignore[no-untyped-call]
    linear = {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, torch.nn.Linear) and "pooler" not in name.split(".")
    }
    adapted = [module for name, module in linear.items() if matches(name, recipe.lora.targets)]
    if not adapted:
        raise UserError(f"lora.targets names no layer of {told}")
    return Shape(
        parameters=sum(weight.numel() for weight in network.parameters()),
        trained=sum(recipe.lora.rank * (module.in_features + module.out_features) for module in adapted),
        inputs=sum(module.in_features for module in adapted),
        adapted=len(adapted),
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        wide=getattr(config, "intermediate_size", None) or max(module.out_features for module in linear.values()),
        heads=config.num_attention_heads,
        attention_dropout=float(getattr(config, "attention_probs_dropout_prob", 0) or 0),
    )


def footprint(
    recipe: Recipe, shape: Shape, *, longest: int, batch_tokens: int, texts: int, contrasted: int
) -> Footprint:
    """Return what one device will hold.

    weights = bytes · (base + adapter); optimiser = bytes · 3 · adapter; activations = bytes · tokens · (layers · (8 ·
    hidden + 4 · feed-forward) + rank · adapted layers + 1.25 · inputs of adapted layers, if the adapter has dropout,
    + 5 · layers · heads · longest, if attention has dropout); contrast = 4 · (3 · texts · hidden + 3 · anchors ·
    contrasted). Attention without dropout is taken to keep no matrix, nothing to be recomputed, and texts to be
    sorted by length, so that padding is small.

    Args:
        recipe: The recipe.
        shape: Of its base with its adapter.
        longest: Tokens of the longest text.
        batch_tokens: Tokens of all texts of one device's batch.
        texts: How many these are.
        contrasted: Documents that stand in a row of logits.
    """
    size = BYTES[recipe.run.precision]
    tokens = max(longest, min(recipe.batch.sub_batch_tokens, batch_tokens))
    each = shape.layers * (NORMS * shape.hidden + WIDE * shape.wide) + recipe.lora.rank * shape.adapted
    each += round(DROPPED * shape.inputs) if recipe.lora.dropout else 0
    each += SQUARES * shape.layers * shape.heads * longest if shape.attention_dropout else 0
    return Footprint(
        parameters=shape.parameters,
        trained=shape.trained,
        weights=size * (shape.parameters + shape.trained),
        optimiser=3 * size * shape.trained,
        activations=size * tokens * each,
        contrast=4 * 3 * (texts * shape.hidden + recipe.batch.per_device * contrasted),
        tokens=tokens,
    )


def _record(recipe: Recipe) -> dict[str, Any]:
    from obliq_train.build import origin

    return origin(recipe).files.record("config.json")


def _own(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a configuration says how large the network is, and not where its code or its weights are."""
    return {key: value for key, value in record.items() if key not in {"auto_map", "architectures", "model_type"}}
