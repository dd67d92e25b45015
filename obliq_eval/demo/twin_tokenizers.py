"""Tokenizers of the tiny twins, trained on the toy texts, in the form that each real repository has."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from obliq_eval.demo.toy import TASKS, toy_task

if TYPE_CHECKING:
    from pathlib import Path

VOCABULARY = 420
"""Tokens of every twin: 256 bytes, the special ones, and what was learnt from the toy texts."""


@dataclass(frozen=True)
class Family:
    """A kind of tokenizer.

    Attributes:
        cls: The class that `tokenizer_config.json` names.
        special: Special tokens in the order of their ids, from 0.
        template: What surrounds a text, which is `$A`.
        named: The special tokens by role, as `tokenizer_config.json` has them.
        longest: `model_max_length`, in tokens.
        left: Whether texts are padded on the left.
        pieces: Whether words are cut into a unigram model's pieces, as XLM-R does, and not by byte-level BPE.
    """

    cls: str
    special: tuple[str, ...]
    template: str
    named: dict[str, str]
    longest: int
    left: bool = False
    pieces: bool = False


LLAMA = Family(
    "PreTrainedTokenizerFast",
    ("<|begin_of_text|>", "<|end_of_text|>", "<|finetune_right_pad_id|>"),
    "<|begin_of_text|> $A",
    {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>", "pad_token": "<|finetune_right_pad_id|>"},
    4096,
)
QWEN = Family(
    "Qwen2Tokenizer",
    ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "$A <|endoftext|>",
    {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
    4096,
    left=True,
)
_ROBERTA_NAMES = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}
_ROBERTA_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
ROBERTA = Family("RobertaTokenizer", _ROBERTA_SPECIAL, "<s> $A </s>", _ROBERTA_NAMES, 512)
XLM_ROBERTA = Family("XLMRobertaTokenizer", _ROBERTA_SPECIAL, "<s> $A </s>", _ROBERTA_NAMES, 512, pieces=True)
MODERNBERT = Family(
    "PreTrainedTokenizerFast",
    ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    "[CLS] $A [SEP]",
    {
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "mask_token": "[MASK]",
    },
    1024,
)


def write_tokenizer(folder: Path, family: Family) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`."""
    tokenizer = _trained(family.special, pieces=family.pieces)
    tokenizer.post_processor = _surrounding(family)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), "utf-8")
    config = {
        "tokenizer_class": family.cls,
        "model_max_length": family.longest,
        "padding_side": "left" if family.left else "right",
        "clean_up_tokenization_spaces": False,
        **family.named,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def _surrounding(family: Family) -> Any:
    from tokenizers import processors

    used = [word for word in family.template.split() if word != "$A"]
    ids = [(token, family.special.index(token)) for token in dict.fromkeys(used)]
    return processors.TemplateProcessing(single=family.template, special_tokens=ids)


def _trained(special: tuple[str, ...], *, pieces: bool) -> Any:
    """Return a new tokenizer, trained before if one with the same special tokens was."""
    from tokenizers import Tokenizer

    return Tokenizer.from_str((_unigram_json if pieces else _bpe_json)(special))


@lru_cache
def _bpe_json(special: tuple[str, ...]) -> str:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_toy_texts(), trainer)
    return str(tokenizer.to_str())


def _unigram_json(special: tuple[str, ...]) -> str:
    """Take the characters and the most frequent words: a trained unigram model differs from one process to the next."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    words = Counter(f"▁{word}" for text in _toy_texts() for word in text.split())
    letters = Counter("".join(words.elements()))
    room = VOCABULARY - len(special) - len(letters)
    counts = {**letters, **dict(sorted(words.items(), key=lambda item: (-item[1], item[0]))[:room])}
    pieces = [(piece, round(math.log(count / letters.total()), 6)) for piece, count in sorted(counts.items())]
    vocabulary = [*((token, 0.0) for token in special), *pieces]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=special.index("<unk>")))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return str(tokenizer.to_str())


def _toy_texts() -> list[str]:
    tasks = [toy_task(task) for task in TASKS]
    return [text for toy in tasks for _, text in (*toy.corpus, *toy.queries)]
