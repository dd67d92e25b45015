"""Tiny twins of OBLIQ-IR: the bidirectional Llama that it adapts, its LoRA adapter, and the two merged."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

from obliq_eval.demo.twin_tokenizers import LLAMA, VOCABULARY, write_tokenizer
from obliq_eval.demo.twin_weights import noise_of, random_weights, save, write_json

if TYPE_CHECKING:
    from pathlib import Path

    from obliq_eval.demo.twin_weights import Tensors

BASE_ID = "nvidia/llama-nv-embed-reasoning-3b"
ADAPTER_ID = "DataScience-UIBK/OBLIQ-IR-3B-LoRA"
MERGED_ID = "DataScience-UIBK/OBLIQ-IR-3B"
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
RANK, ALPHA = 4, 8
CODE = "llama_bidirectional_model"
"""The module, in the base's repository, that `auto_map` names."""
HIDDEN = 3072
"""As published, so that whoever checks the length of the vectors finds it; all else is tiny."""


def write_base(folder: Path, hidden: int = HIDDEN) -> None:
    """Write the bidirectional Llama that OBLIQ-IR adapts: remote code, bfloat16, no `modules.json`."""
    _write_llama(folder, _base_tensors(hidden), hidden)


def write_adapter(folder: Path) -> None:
    """Write OBLIQ-IR's LoRA adapter on all seven projections, in bfloat16, and its base's tokenizer."""
    config = {
        "peft_type": "LORA",
        "task_type": "FEATURE_EXTRACTION",
        "auto_mapping": None,
        "base_model_name_or_path": BASE_ID,
        "revision": None,
        "inference_mode": True,
        "r": RANK,
        "lora_alpha": ALPHA,
        "lora_dropout": 0.05,
        "bias": "none",
        "target_modules": list(PROJECTIONS),
        "modules_to_save": None,
    }
    write_json(folder / "adapter_config.json", config)
    save(_adapter_tensors(), folder / "adapter_model.safetensors")
    write_tokenizer(folder, LLAMA)


def write_merged(folder: Path) -> None:
    """Write the base with the adapter folded into its weights, and the base's code."""
    tensors, low = _base_tensors(), _adapter_tensors()
    for name, weight in tensors.items():
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{stem}.lora_A.weight" in low:
            change = low[f"{stem}.lora_B.weight"].float() @ low[f"{stem}.lora_A.weight"].float()
            tensors[name] = (weight.float() + ALPHA / RANK * change).to(weight.dtype)
    _write_llama(folder, tensors)


def write_code(folder: Path, name: str) -> None:
    """Write one module of `twin_code` as the code that the base's configuration names."""
    text = files("obliq_eval.demo.twin_code").joinpath(f"{name}.py").read_text("utf-8")
    (folder / f"{CODE}.py").write_text(text, "utf-8")


def _llama_shape(hidden: int) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 4096,
        "rope_theta": 500000.0,
        "rms_norm_eps": 1e-05,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
    }


def _base_tensors(hidden: int = HIDDEN) -> Tensors:
    import torch
    from transformers import LlamaConfig, LlamaModel

    return random_weights(LlamaModel(LlamaConfig(**_llama_shape(hidden))), BASE_ID, torch.bfloat16)


def _adapter_tensors() -> Tensors:
    import torch

    noise = noise_of(ADAPTER_ID)
    low: Tensors = {}
    for name, weight in _base_tensors().items():
        if name.split(".")[-2] in PROJECTIONS:
            wide, narrow = weight.shape
            stem = f"base_model.model.{name.removesuffix('.weight')}"
            for part, shape in (("lora_A", (RANK, narrow)), ("lora_B", (wide, RANK))):
                drawn = torch.randn(shape, generator=noise) / narrow**0.5
                low[f"{stem}.{part}.weight"] = drawn.to(torch.bfloat16)
    return low


def _write_llama(folder: Path, tensors: Tensors, hidden: int = HIDDEN) -> None:
    save(tensors, folder / "model.safetensors")
    config = {
        "model_type": "llama_bidirec",
        "architectures": ["LlamaBidirectionalModel"],
        "auto_map": {
            "AutoConfig": f"{CODE}.LlamaBidirectionalConfig",
            "AutoModel": f"{CODE}.LlamaBidirectionalModel",
        },
        "pooling": "avg",
        "temperature": 0.02,
        "torch_dtype": "bfloat16",
        **_llama_shape(hidden),
    }
    write_json(folder / "config.json", config)
    write_code(folder, "bidirectional")
    write_tokenizer(folder, LLAMA)
