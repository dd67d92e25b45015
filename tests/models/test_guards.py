"""Checkpoints that transformers would load without a word: each is refused, with what is wrong."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from obliq_eval.errors import UserError
from obliq_models.retrievers import dense
from obliq_models.retrievers.guards import checked, tokenizer_problems

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Weights = dict[str, torch.Tensor]

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["a", "first", "text", "the", "cat", "sat"]
KEY = "encoder.layer.0.attention.self.query.weight"


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """Save a BERT with random weights and a vocabulary of six words."""
    from transformers import BertConfig, BertModel

    folder = tmp_path / "bert"
    torch.manual_seed(0)
    BertModel(
        BertConfig(
            vocab_size=len(SPECIAL + WORDS),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=32,
        )
    ).save_pretrained(folder)
    save_tokenizer(folder, SPECIAL + WORDS)
    return folder


def save_tokenizer(folder: Path, vocabulary: list[str]) -> None:
    from transformers import BertTokenizer

    BertTokenizer(vocab={word: row for row, word in enumerate(vocabulary)}).save_pretrained(folder)


def rewrite(folder: Path, change: Callable[[Weights], object], file: str = "model.safetensors") -> None:
    weights = load_file(folder / file)
    change(weights)
    save_file(weights, folder / file, metadata={"format": "pt"})


def load(folder: Path, **settings: Any) -> dense.DenseRetriever:
    return dense.load("me/mine", path=str(folder), **settings)


def test_a_whole_checkpoint_loads(bert: Path) -> None:
    assert load(bert).encode(["the cat"], "query").shape == (1, 16)


@pytest.mark.parametrize("pooling", [None, "cls"])
def test_a_missing_weight_is_named(bert: Path, pooling: str | None) -> None:
    rewrite(bert, lambda weights: weights.pop(KEY))
    with pytest.raises(UserError, match=rf"bert is not a complete model: the files lack 1 weight \({KEY}\)"):
        load(bert, pooling=pooling)


def test_a_renamed_weight_is_missing_and_its_new_name_is_told(bert: Path) -> None:
    rewrite(bert, lambda weights: weights.update({"encoder.layer.0.q.weight": weights.pop(KEY)}))
    with pytest.raises(UserError) as caught:
        load(bert)
    assert f"the files lack 1 weight ({KEY})" in str(caught.value)
    assert "the files hold what the architecture does not: 1 weight (encoder.layer.0.q.weight)" in str(caught.value)


def test_of_many_missing_weights_the_first_are_named(bert: Path) -> None:
    """A layer of BERT has 16 weights: four linear layers and two more, and two norms, of two each."""
    config = json.loads((bert / "config.json").read_text())
    (bert / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(UserError, match=r"lack 32 weights \(encoder\.layer\.1\..*, … and 12 more\)"):
        load(bert)


def test_a_weight_of_another_shape_is_named_with_both(bert: Path) -> None:
    rewrite(bert, lambda weights: weights.update({KEY: torch.zeros(16, 8)}))
    with pytest.raises(UserError, match=rf"{KEY} is \[16, 8\], not \[16, 16\]"):
        load(bert)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_is_named(bert: Path, value: float) -> None:
    """The row is that of a word which the first text does not have, so that the first vector is finite."""
    row = (SPECIAL + WORDS).index("cat")
    rewrite(bert, lambda weights: weights["embeddings.word_embeddings.weight"][row].fill_(value))
    with pytest.raises(UserError, match=r"NaN or infinity is in 1 weight \(.*embeddings\.word_embeddings\.weight\)"):
        load(bert)


def test_a_missing_pooler_is_let_pass(bert: Path, caplog: pytest.LogCaptureFixture) -> None:
    vector = load(bert).encode(["the cat"], "query")
    rewrite(bert, lambda weights: [weights.pop(key) for key in list(weights) if key.startswith("pooler.")])
    with caplog.at_level(logging.WARNING):
        assert (load(bert).encode(["the cat"], "query") == vector).all()
    assert caplog.messages == []


def test_weights_without_a_place_are_counted_and_shown(bert: Path, caplog: pytest.LogCaptureFixture) -> None:
    rewrite(bert, lambda weights: weights.update({"head.bias": torch.zeros(1), "head.weight": torch.zeros(1, 2)}))
    with caplog.at_level(logging.WARNING):
        load(bert)
    told = "me/mine: left out, because the model has no place for it: 2 weights (head.bias, head.weight)"
    assert caplog.messages == [told]


def test_a_folder_without_tokenizer_is_refused(bert: Path) -> None:
    for file in bert.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(UserError, match=r"it has no tokenizer \(vocab.txt or tokenizer.json or tokenizer.model\)"):
        load(bert)


def test_a_tokenizer_without_words_is_refused(bert: Path) -> None:
    save_tokenizer(bert, SPECIAL)
    with pytest.raises(UserError, match="its tokenizer knows no words"):
        load(bert)


def test_a_tokenizer_of_characters_needs_no_vocabulary(tmp_path: Path) -> None:
    from transformers import CanineTokenizer

    tokenizer = CanineTokenizer()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    assert tokenizer_problems(tokenizer, str(tmp_path)) != []
    tokenizer.save_pretrained(tmp_path)
    assert tokenizer_problems(tokenizer, str(tmp_path)) == []


def test_all_problems_are_told_at_once(bert: Path) -> None:
    rewrite(bert, lambda weights: weights.pop(KEY))
    save_tokenizer(bert, SPECIAL)
    with pytest.raises(UserError, match="bert is not a complete model: 2 problems"):
        load(bert)


def test_what_a_damaged_file_raises_is_one_sentence(bert: Path) -> None:
    weights = bert / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    with pytest.raises(UserError, match=r"^me/mine: cannot load a model from .*bert: ") as caught:
        load(bert)
    assert "\n" not in str(caught.value)
    weights.unlink()
    (bert / "pytorch_model.bin").write_bytes(b"no archive")
    with pytest.raises(UserError, match=r"^me/mine: .*bert holds its weights only as pytorch_model\.bin"):
        load(bert)
    with pytest.raises(UserError, match=r"^me/mine: cannot load a model from .*bert: "):
        load(bert, allow_pickle=True)


def test_a_first_text_must_give_the_declared_dimension(bert: Path) -> None:
    model = load(bert).encoder.model  # type: ignore[attr-defined]
    model.save(str(bert))
    assert load(bert).encode(["the cat"], "query").shape == (1, 16)
    file = bert / "1_Pooling" / "config.json"
    config = json.loads(file.read_text())
    (key,) = (key for key, value in config.items() if value == 16)
    file.write_text(json.dumps({**config, key: 8}))
    with pytest.raises(UserError, match=r"me/mine: the model in .* cannot encode a text: .*16 dimensions, .* 8"):
        load(bert)


def test_a_first_text_must_give_finite_vectors(bert: Path) -> None:
    """Every weight is finite, and the sum of squares in the norm is not."""
    rewrite(bert, lambda weights: weights["embeddings.word_embeddings.weight"].fill_(3e38))
    rewrite(bert, lambda weights: weights["embeddings.position_embeddings.weight"].fill_(3e38))
    with pytest.raises(UserError, match=r"cannot encode a text: .* a vector that is not a number"):
        load(bert)


def test_an_adapter_and_its_base_are_both_checked(bert: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    from transformers import AutoModel

    base = AutoModel.from_pretrained(bert)
    base.add_adapter(peft.LoraConfig(target_modules=["query"]))
    adapter = tmp_path / "adapter"
    base.save_pretrained(adapter)
    save_tokenizer(adapter, SPECIAL + WORDS)
    assert load(adapter).encode(["the cat"], "query").shape == (1, 16)

    lora = "base_model.model.encoder.layer.0.attention.self.query.lora_A.weight"
    rewrite(adapter, lambda weights: weights.pop(lora), "adapter_model.safetensors")
    with pytest.raises(UserError, match=r"the files lack 1 weight \(.*lora_A"):
        load(adapter)
    rewrite(bert, lambda weights: weights.pop(KEY.replace("query", "value")))
    with pytest.raises(UserError, match="adapter is not a complete model: 2 problems"):
        load(adapter)


def test_any_module_of_torch_can_be_checked() -> None:
    module = torch.nn.Linear(2, 2)
    assert checked("x", "y", lambda: module) is module
