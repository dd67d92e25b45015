"""Weights of the tiny twins, drawn from a name, and the files that hold them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Generator, Tensor

    Tensors = dict[str, Tensor]


def random_weights(model: Any, seed: str, dtype: Any = None, prefix: str = "") -> Tensors:
    """Draw every weight of a model: matrices keep the size of what passes through, norms stay near one.

    Weights of the usual 0.02 would leave a model this small nearly blind to the other tokens of a text.
    """
    import torch

    noise = noise_of(seed)
    drawn: Tensors = {}
    for name, weight in model.named_parameters():
        value = torch.randn(weight.shape, generator=noise)
        if weight.dim() == 1:
            value = value / 10 + (1 if name.endswith("weight") else 0)
        elif "embeddings" not in name and "embed_tokens" not in name:
            value = value / weight.shape[1] ** 0.5
        drawn[prefix + name] = value.to(dtype or torch.float32)
    return drawn


def noise_of(seed: str) -> Generator:
    """Return a generator of random numbers that depends on a string alone."""
    import torch

    return torch.Generator().manual_seed(int(hashlib.sha256(seed.encode()).hexdigest()[:8], 16))


def save(tensors: Tensors, path: Path) -> None:
    """Write tensors as safetensors, each in memory of its own."""
    from safetensors.torch import save_file

    save_file({name: value.contiguous() for name, value in tensors.items()}, path, metadata={"format": "pt"})


def write_json(path: Path, content: dict[str, Any] | list[dict[str, Any]]) -> None:
    """Write one JSON file."""
    path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
