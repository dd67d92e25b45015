"""Twins that look fine and are not: each function spoils a repository's files in one way seen in practice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from obliq_eval.demo import twin_llama
from obliq_eval.demo.twin_weights import save, write_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_WEIGHTS = ("adapter_model.safetensors", "model.safetensors")


def _causal(folder: Path) -> None:
    """Carry code whose override of the mask nothing calls, so that attention is causal."""
    _needs(folder, f"{twin_llama.CODE}.py")
    twin_llama.write_code(folder, "silently_causal")


def _missing_key(folder: Path) -> None:
    """Leave out the last weight matrix (an adapter's: the last B)."""

    def change(tensors: dict[str, Any]) -> dict[str, Any]:
        out = _last_matrix(tensors)
        return {name: value for name, value in tensors.items() if name != out}

    _edit(folder, change)


def _nan(folder: Path) -> None:
    """Put one NaN into one weight matrix."""

    def change(tensors: dict[str, Any]) -> dict[str, Any]:
        tensors[_last_matrix(tensors)][-1, -1] = float("nan")
        return tensors

    _edit(folder, change)


def _zero_adapter(folder: Path) -> None:
    """Make every B of an adapter zero, as before its first step of training."""
    _needs(folder, "adapter_config.json")
    _edit(folder, lambda tensors: {k: v * 0 if ".lora_B." in k else v for k, v in tensors.items()})


def _other_names(folder: Path) -> None:
    """Name an adapter's tensors as one trained on the causal language model does, `model.` in front of the layers."""
    _needs(folder, "adapter_config.json")
    old, new = "base_model.model.", "base_model.model.model."
    _edit(folder, lambda tensors: {k.replace(old, new, 1): v for k, v in tensors.items()})


def _wrong_base(folder: Path) -> None:
    """Hold another base under the same name: hidden states of 2,048 in place of 3,072."""
    _needs(folder, f"{twin_llama.CODE}.py")
    twin_llama.write_base(folder, hidden=2048)


def _no_pad_token(folder: Path) -> None:
    """Name no padding token."""
    _edit_json(folder / "tokenizer_config.json", pad_token=None)


def _left_padding(folder: Path) -> None:
    """Pad on the left."""
    _edit_json(folder / "tokenizer_config.json", padding_side="left")


def _pickle(folder: Path) -> None:
    """Hold the weights only in pickle's form."""
    import torch
    from safetensors.torch import load

    path = _weights(folder)
    names = {"adapter_model.safetensors": "adapter_model.bin", "model.safetensors": "pytorch_model.bin"}
    torch.save(load(path.read_bytes()), folder / names[path.name])
    path.unlink()


SABOTAGE: dict[str, Callable[[Path], None]] = {
    "causal": _causal,
    "missing key": _missing_key,
    "nan": _nan,
    "zero adapter": _zero_adapter,
    "other names": _other_names,
    "wrong base": _wrong_base,
    "no pad token": _no_pad_token,
    "left padding": _left_padding,
    "pickle": _pickle,
}
"""What can be wrong with a twin, by name. A `ValueError` says where it makes no sense for a repository."""


def _needs(folder: Path, name: str) -> None:
    if not (folder / name).is_file():
        raise ValueError(f"this repository has no {name} to spoil")


def _weights(folder: Path) -> Path:
    for name in _WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    raise ValueError("this repository has no weights to spoil")


def _last_matrix(tensors: dict[str, Any]) -> str:
    """Return the name of the last matrix that vectors depend on, which a pooler's is not."""
    return max(name for name, value in tensors.items() if value.dim() == 2 and ".pooler." not in name)


def _edit(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    from safetensors.torch import load

    path = _weights(folder)
    save(change(load(path.read_bytes())), path)


def _edit_json(path: Path, **changes: object) -> None:
    content = {**json.loads(path.read_text("utf-8")), **changes}
    write_json(path, {name: value for name, value in content.items() if value is not None})
