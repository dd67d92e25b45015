"""Tiny models with random weights, for tests of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from obliq_eval.demo.twin_tokenizers import ROBERTA, write_tokenizer
from obliq_eval.demo.twin_weights import random_weights, save, write_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def write_roberta(folder: Path, *, dropout: float = 0.0, family: Any = ROBERTA) -> Path:
    """Write a RoBERTa of two layers and 32 dimensions, with a tokenizer of its own or of another family."""
    shape = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
        "vocab_size": 420, "max_position_embeddings": 1100, "pad_token_id": 1,
        "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout,
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    save(random_weights(RobertaModel(RobertaConfig(**shape)), "tiny"), folder / "model.safetensors")
    write_json(folder / "config.json", {"model_type": "roberta", "architectures": ["RobertaModel"], **shape})
    write_tokenizer(folder, family)
    return folder


def write_cross_encoder(folder: Path, texts: Iterable[str], *, seed: int = 0, head: bool = True) -> Path:
    """Write a BERT of one layer whose words are those of some texts; without its head it is no cross-encoder."""
    tokenizer = Tokenizer(models.WordLevel(unk_token=SPECIAL[1]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=list(SPECIAL)))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), SPECIAL, strict=True))
    own = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **names)
    config = BertConfig(
        vocab_size=len(own), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, num_labels=1, initializer_range=0.2,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    torch.manual_seed(seed)
    (BertForSequenceClassification if head else BertModel)(config).save_pretrained(folder)
    own.save_pretrained(folder)
    return folder
