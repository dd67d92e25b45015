"""A tiny causal model with random weights, asked in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from obliq_eval.errors import UserError
from obliq_models.llm.client import Client
from obliq_models.llm.protocol import Backend, CallError, Request
from obliq_models.llm.transformers_backend import TransformersBackend

if TYPE_CHECKING:
    from collections.abc import Callable

TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}{{ tone or '' }}assistant:"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Return the folder of a Llama with random weights, a byte-level tokenizer and a chat template."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<s>": 0, "</s>": 1} | {letter: 2 + at for at, letter in enumerate(letters)}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    wrapped.chat_template = TEMPLATE
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path / "tiny")
    wrapped.save_pretrained(tmp_path / "tiny")
    return str(tmp_path / "tiny")


def test_it_answers(folder: str, ask: Callable[..., Request]) -> None:
    """`user: hello` and a line end are 12 bytes, `assistant:` 10; five tokens are written and none is the end."""
    backend = TransformersBackend(folder, device="cpu")
    assert isinstance(backend, Backend)
    with Client(backend) as client:
        found = client.run(client.ask(ask(model=folder, max_tokens=5)))
        again = client.run(client.ask(ask(model=folder, max_tokens=5)))
    assert (found.prompt_tokens, found.completion_tokens, found.finish_reason) == (22, 5, "length")
    assert found.text == again.text
    assert backend.count("hello") == 5


def test_it_is_the_models_own_likeliest_answer(folder: str, ask: Callable[..., Request]) -> None:
    """Against one forward pass for each token, without a cache of keys."""
    import torch

    backend = TransformersBackend(folder, device="cpu")
    with Client(backend) as client:
        found = client.run(client.ask(ask(model=folder, max_tokens=6)))
    ids = backend._tokenizer("user: hello\nassistant:", add_special_tokens=False, return_tensors="pt")["input_ids"]
    for _ in range(6):
        with torch.inference_mode():
            best = backend._model(ids).logits[0, -1].argmax()
        ids = torch.cat([ids, best.reshape(1, 1)], dim=1)
    assert found.text == backend._tokenizer.decode(ids[0, 22:], skip_special_tokens=True)


def test_samples_differ_and_repeat(folder: str, ask: Callable[..., Request]) -> None:
    """The seed and the sample index fix an answer; without a seed nothing does."""
    backend = TransformersBackend(folder, device="cpu")

    def texts(**settings: object) -> list[str]:
        wanted = [ask(model=folder, max_tokens=12, temperature=1.0, sample=n, **settings) for n in range(3)]
        with Client(backend) as client:
            return [answer.text for answer in client.run(client.ask_all(wanted))]

    assert len(set(texts(seed=1))) == 3
    assert texts(seed=1) == texts(seed=1)
    assert texts(seed=2)[0] == texts(seed=1)[1]
    assert texts() != texts()


def test_an_answer_that_ends_is_complete(folder: str, ask: Callable[..., Request]) -> None:
    """The end is made the likeliest token: an answer of one token, which is not a cut one, even at a limit of one."""
    backend = TransformersBackend(folder, device="cpu")
    head = backend._model.lm_head
    head.bias = None
    original = backend._model.forward

    def forward(*args: object, **more: object) -> object:
        output = original(*args, **more)
        output.logits[..., 1] = 1e4
        return output

    backend._model.forward = forward
    with Client(backend) as client:
        for limit in (1, 5):
            found = client.run(client.ask(ask(model=folder, max_tokens=limit)))
            assert (found.text, found.finish_reason, found.completion_tokens) == ("", "stop", 1)


def test_what_does_not_fit_is_told(folder: str, ask: Callable[..., Request]) -> None:
    with Client(TransformersBackend(folder, device="cpu")) as client:
        with pytest.raises(CallError, match=r"has 117 tokens, which with an answer of 20 is more than the 128"):
            client.run(client.ask(ask("x" * 100, model=folder, max_tokens=20)))
        with pytest.raises(CallError, match="not 'other'"):
            client.run(client.ask(ask(model="other")))


def test_a_model_without_a_template_is_refused(folder: str) -> None:
    for file in Path(folder).glob("chat_template*"):
        file.unlink()
    with pytest.raises(UserError, match="no chat template"):
        TransformersBackend(folder, device="cpu")


def test_a_folder_without_a_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot load the language model"):
        TransformersBackend(str(tmp_path), device="cpu")


def test_what_changes_answers_is_in_the_key(folder: str) -> None:
    """Weights by their content, so that a model trained again under the same name is another one."""
    plain = TransformersBackend(folder, device="cpu").settings()
    assert plain == TransformersBackend(folder, device="cpu").settings()
    assert plain != TransformersBackend(folder, device="cpu", template={"tone": "kindly "}).settings()
    assert plain != TransformersBackend(folder, device="cpu", dtype="bfloat16").settings()
    (Path(folder) / "config.json").write_text((Path(folder) / "config.json").read_text() + "\n")
    assert plain != TransformersBackend(folder, device="cpu").settings()
