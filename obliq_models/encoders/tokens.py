"""Tokens of many texts at once, straight from the tokenizer's own library, as sentence-transformers would give them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

    from obliq_models.encoders.base import Role

_PROBES = ("a first text", "Two lines,\n1 & 2 — naïve? ", "words " * 600)
"""The last is longer than most models read."""


@dataclass(frozen=True)
class Padding:
    """How texts of a batch are brought to one length.

    Args:
        token: Id of what is put there.
        left: Whether it is put before the text.
        types: Whether the network is told that all tokens are of one segment.
        prompt: Tokens of what stands before every text, for a pooling that leaves them out.
    """

    token: int
    left: bool
    types: bool
    prompt: int | None


@dataclass(frozen=True)
class Tokens:
    """Tokens of some texts.

    Args:
        ids: For each text the tokens that are read, special tokens included.
        padding: How to make batches of them.
        cut: Texts that were longer.
        lost: Tokens of those texts that are not read.
    """

    ids: Sequence[Sequence[int]] = field(repr=False)
    padding: Padding
    cut: int = 0
    lost: int = 0

    @property
    def lengths(self) -> list[int]:
        """Return how many tokens of each text are read."""
        return [len(row) for row in self.ids]

    def features(self, rows: Sequence[int], device: torch.device) -> dict[str, Any]:
        """Return what a network reads: `input_ids`, `attention_mask` and so on, int64, shape (rows, longest)."""
        lengths = np.array([len(self.ids[row]) for row in rows])
        width, columns = lengths.max(), np.arange(lengths.max())
        mask = columns >= (width - lengths)[:, None] if self.padding.left else columns < lengths[:, None]
        ids = np.full(mask.shape, self.padding.token, np.int64)
        ids[mask] = np.concatenate([self.ids[row] for row in rows])
        features: dict[str, Any] = {"input_ids": _there(ids, device), "attention_mask": _there(mask, device).long()}
        if self.padding.types:
            features["token_type_ids"] = torch.zeros_like(features["input_ids"])
        features["modality"] = "text"
        if self.padding.prompt is not None:
            features["prompt_length"] = self.padding.prompt
        return features


def reader(
    model: SentenceTransformer, prompt: str, limit: int | None, role: Role
) -> Callable[[list[str]], Tokens] | None:
    """Return a function from texts, the prompt before them, to tokens; None if that cannot be done here.

    It can be done if a few probes come out just as sentence-transformers has them, cut, padded and with its prompt's
    length: then the first module is a transformer for text whose tokenizer is one of the library `tokenizers`.

    Args:
        model: A model whose `max_seq_length` is `limit`.
        prompt: What stands before every text.
        limit: Tokens of a text at most.
        role: Whether the texts are queries or documents.
    """
    from sentence_transformers.base.modules import Transformer

    module: Any = model[0]
    if type(module) is not Transformer or module.backend != "torch" or "message" in module.modality_config:
        return None
    tokenizer: Any = module.processor
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or tokenizer.pad_token_id is None:
        return None
    wanted = model.preprocess(list(_PROBES), prompt=prompt, task=role)
    length: Any = wanted.get("prompt_length")
    padding = Padding(tokenizer.pad_token_id, tokenizer.padding_side == "left", "token_type_ids" in wanted, length)

    def read(texts: list[str]) -> Tokens:
        return tokens_of(backend, texts, limit, tokenizer.truncation_side, padding)

    found = read([prompt + text for text in _PROBES]).features(range(len(_PROBES)), torch.device("cpu"))
    return read if _same(found, wanted) else None


def tokens_of(backend: Tokenizer, texts: list[str], limit: int | None, side: str, padding: Padding) -> Tokens:
    """Return the tokens of texts, special ones included, cut at `limit` on the `side` that the tokenizer names."""
    backend.no_padding()  # transformers sets both again whenever it is called itself
    if limit is None:
        backend.no_truncation()
    else:
        backend.enable_truncation(limit, direction=side)
    special = backend.num_special_tokens_to_add(is_pair=False)
    ids, cut, lost = [], 0, 0
    for encoding in backend.encode_batch_fast(texts):
        ids.append(encoding.ids)
        behind = encoding.overflowing
        cut += bool(behind)
        lost += sum(len(part.ids) - special for part in behind)
    return Tokens(ids, padding, cut, lost)


def _there(values: Any, device: torch.device) -> torch.Tensor:
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    if found.keys() != wanted.keys():
        return False
    pairs = [(found[key], wanted[key]) for key in found]
    return all(torch.equal(a, b) if isinstance(b, torch.Tensor) else a == b for a, b in pairs)
