"""What can be wrong with a loaded encoder though its files are whole: attention, padding, adapter, dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from obliq_models.retrievers.guards import listed, pad_token_problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sentence_transformers import SentenceTransformer

_TEXT = "a first text that is read from both of its ends"
_TRIES = 3
"""Tokens that are put in the last one's place."""
_LEAST = 1e-6
"""Of the largest entry of the state; rounding in float32 reaches a tenth of it."""


def one_way(model: SentenceTransformer) -> list[str]:
    """Return what is wrong if the first token does not see the last one.

    Another last token is put in its place; the first token's state has to change by more than a repetition of the
    same text changes it. Attention takes another path where there is padding, so both are tried. A model whose states
    are not finite is let pass, its weights being told of elsewhere.

    Args:
        model: A sentence-transformers model whose first module is a transformer.
    """
    blind = [what for what, padded in (("alone", False), ("beside a longer one", True)) if _blind(model, padded=padded)]
    if not blind:
        return []
    return [
        f"its attention is causal for a text {' and '.join(blind)}: the last token does not reach the first one's "
        "state; the repository's code may be too old for the installed transformers"
    ]


@torch.no_grad()
def _blind(model: SentenceTransformer, *, padded: bool) -> bool:
    transformer: Any = model[0]
    network, tokenizer = transformer.model, model.tokenizer
    ids = tokenizer(_TEXT)["input_ids"]
    size = network.get_input_embeddings().num_embeddings
    others = [(ids[-1] + (turn + 1) * max(1, size // (_TRIES + 1))) % size for turn in range(_TRIES)]
    rows = [ids, ids, *([*ids[:-1], other] for other in others if other != ids[-1])]
    mask = [1] * len(ids) + [0] * padded
    rows = [row + [tokenizer.pad_token_id or 0] * padded for row in rows]
    states = [
        network(
            input_ids=torch.tensor([row], device=network.device),
            attention_mask=torch.tensor([mask], device=network.device),
        )[0][0, 0].float()
        for row in rows
    ]
    first, again, *changed = states
    if not all(bool(state.isfinite().all()) for state in states):
        return False
    noise = float((first - again).abs().max())
    seen = max(float((first - other).abs().max()) for other in changed)
    return seen <= max(4 * noise, _LEAST * float(first.abs().max()))


def padding_problems(tokenizer: Any) -> list[str]:
    """Return what is wrong with how a tokenizer brings texts to one length."""
    problems = pad_token_problems(tokenizer)
    side = getattr(tokenizer, "padding_side", "right")
    if side != "right":
        problems.append(
            f"its tokenizer pads on the {side}, and it was trained with padding on the right; set padding_side in "
            "tokenizer_config.json"
        )
    return problems


def adapter_problems(model: SentenceTransformer, config: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the LoRA adapter that was loaded into a model.

    Keys that are missing or have no place are told of by `guards.checked`.

    Args:
        model: The model with its adapter.
        config: Content of `adapter_config.json`.
    """
    from peft.tuners.lora import LoraLayer

    layers = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    targets = config.get("target_modules") or ()
    if not isinstance(targets, str):  # else a regular expression, or "all-linear"
        absent = sorted(t for t in targets if not any(name == t or name.endswith(f".{t}") for name in layers))
        if absent:
            yield f"its adapter is for {', '.join(absent)}, of which the base has none"
    dead = sorted(name for name, layer in layers.items() if _dead(layer))
    if dead:
        yield f"its adapter changes nothing (B·A is zero) in {listed(dead, 'layer')}"


@torch.no_grad()
def _dead(layer: Any) -> bool:
    """Tell whether every product B·A of a layer is zero; its squared Frobenius norm is tr((BᵀB)(AAᵀ))."""
    for name in layer.lora_A:
        a, b = (part[name].weight.flatten(1).double() for part in (layer.lora_A, layer.lora_B))
        size = float(((b.T @ b) * (a @ a.T)).sum()) * layer.scaling[name] ** 2
        if size != 0:  # NaN included, which is told of with the weights
            return False
    return True


def dimension_problems(model: SentenceTransformer, declared: int | None) -> list[str]:
    """Return what is wrong with the length of a model's vectors.

    Args:
        model: The model.
        declared: What its publisher says; None where nothing is said.
    """
    found, hidden = model.get_embedding_dimension(), model[0].model.config.hidden_size  # type: ignore[union-attr]
    if found != hidden:
        return [f"its vectors have {found} dimensions, and its configuration says {hidden}"]
    if declared is not None and found != declared:
        return [f"its vectors have {found} dimensions, and {declared} were published: these are other weights"]
    return []
