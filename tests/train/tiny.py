"""Tiny models with random weights, for tests of training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


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
