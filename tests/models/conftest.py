"""Tiny random models of the real architectures, and tables in mteb's form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import datasets
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

TEXT = "the cat sat on a mat and dogs ran in parks while old ships sailed far away from every quiet harbour"


def make_table(texts: Mapping[str, str], excluded: Mapping[str, list[str]] | None = None) -> datasets.Dataset:
    rows: dict[str, list[Any]] = {"id": list(texts), "text": list(texts.values())}
    if excluded is not None:
        rows["excluded_ids"] = [excluded.get(key, []) for key in texts]
    return datasets.Dataset.from_dict(rows)


@pytest.fixture
def table() -> Callable[..., datasets.Dataset]:
    return make_table


@pytest.fixture
def tiny_model(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that saves a Llama with random weights and a byte-level tokenizer into a folder."""

    def make(
        *, causal: bool = False, padding: str = "right", seed: int = 0, name: str = "tiny", length: int = 64
    ) -> Path:
        import torch
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
        from transformers import LlamaConfig, LlamaModel, PreTrainedTokenizerFast

        folder = tmp_path / name
        bpe = Tokenizer(models.BPE())
        bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        bpe.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>", "<pad>"], initial_alphabet=alphabet)
        bpe.train_from_iterator([TEXT], trainer)
        bpe.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
        special = {"bos_token": "<s>", "pad_token": "<pad>"}
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=bpe, padding_side=padding, model_max_length=length, **special
        )
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=length,
            is_causal=causal,
            pad_token_id=1,
        )
        LlamaModel(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return make
