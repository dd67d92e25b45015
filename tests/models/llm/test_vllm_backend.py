"""The backend for vLLM against a complete fake of the part of vLLM that it uses; vLLM itself is not run here.

The fake has `LLM(model, revision, **engine).chat(conversations, sampling_params, use_tqdm, chat_template_kwargs)`,
`SamplingParams` and `StructuredOutputsParams`, with the names and results of vLLM 0.12 and later.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval.errors import MissingExtraError
from obliq_models.llm.client import Client
from obliq_models.llm.protocol import Backend, CallError, Request
from obliq_models.llm.vllm_backend import VllmBackend

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class StructuredOutputsParams:
    json: dict[str, Any] | None = None


@dataclass
class SamplingParams:
    temperature: float = 1.0
    max_tokens: int | None = 16
    seed: int | None = None
    structured_outputs: StructuredOutputsParams | None = None


@dataclass
class CompletionOutput:
    text: str
    token_ids: list[int]
    finish_reason: str | None


@dataclass
class RequestOutput:
    prompt_token_ids: list[int] | None
    outputs: list[CompletionOutput]


@dataclass
class LLM:
    """Writes the last message back in capitals, a token for each word, and refuses messages that say so."""

    model: str
    revision: str | None = None
    dtype: str = "auto"
    tensor_parallel_size: int = 1
    batches: list[list[SamplingParams]] = field(default_factory=list)
    templates: list[dict[str, Any] | None] = field(default_factory=list)

    def chat(
        self,
        messages: list[list[dict[str, str]]],
        sampling_params: list[SamplingParams],
        use_tqdm: bool = True,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> list[RequestOutput]:
        assert len(messages) == len(sampling_params)
        assert not use_tqdm
        texts = [conversation[-1]["content"] for conversation in messages]
        if "refuse" in texts:
            raise ValueError("the prompt is longer than the model\nand more lines")
        self.batches.append(sampling_params)
        self.templates.append(chat_template_kwargs)
        return [self._answer(text, params) for text, params in zip(texts, sampling_params, strict=True)]

    def _answer(self, text: str, params: SamplingParams) -> RequestOutput:
        words = text.upper().split()
        cut = words[: params.max_tokens]
        reason = "stop" if len(cut) == len(words) else "length"
        output = CompletionOutput(" ".join(cut), list(range(len(cut))), reason)
        return RequestOutput(list(range(len(words))), [output])


@pytest.fixture
def fake_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    vllm, params = ModuleType("vllm"), ModuleType("vllm.sampling_params")
    vars(vllm).update(LLM=LLM, SamplingParams=SamplingParams, sampling_params=params)
    vars(params).update(SamplingParams=SamplingParams, StructuredOutputsParams=StructuredOutputsParams)
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", params)


@pytest.mark.usefixtures("fake_vllm")
def test_what_comes_in_together_is_one_batch(ask: Callable[..., Request]) -> None:
    backend = VllmBackend("judge", template={"enable_thinking": False}, tensor_parallel_size=2)
    assert isinstance(backend, Backend)
    schema = {"type": "object"}
    wanted = [ask("one two three", max_tokens=2, seed=7, sample=1, temperature=0.5), ask("four", schema=schema)]
    with Client(backend) as client:
        first, second = client.run(client.ask_all(wanted))
    assert (first.text, first.finish_reason) == ("ONE TWO", "length")
    assert (first.prompt_tokens, first.completion_tokens) == (3, 2)
    assert (second.text, second.finish_reason) == ("FOUR", "stop")
    (batch,) = backend._llm.batches
    assert batch[0] == SamplingParams(0.5, 2, 8, None)
    assert batch[1] == SamplingParams(0.0, 1024, None, StructuredOutputsParams(schema))
    assert backend._llm.tensor_parallel_size == 2
    assert backend._llm.templates == [{"enable_thinking": False}]


@pytest.mark.usefixtures("fake_vllm")
def test_one_that_is_refused_takes_no_other_down(ask: Callable[..., Request]) -> None:
    with Client(VllmBackend("judge")) as client:

        async def work() -> list[object]:
            import asyncio

            asks = [client.ask(ask("refuse", stage="s", query="q1")), client.ask(ask("fine"))]
            return list(await asyncio.gather(*asks, return_exceptions=True))

        refused, fine = client.run(work())
        assert isinstance(refused, CallError)
        assert str(refused) == "vLLM could not answer stage 's', query 'q1': the prompt is longer than the model"
        assert getattr(fine, "text", "") == "FINE"
        assert client.run(client.ask(ask("again"))).text == "AGAIN"


@pytest.mark.usefixtures("fake_vllm")
def test_another_model_is_refused(ask: Callable[..., Request]) -> None:
    with Client(VllmBackend("judge")) as client, pytest.raises(CallError, match="runs 'judge', not 'other'"):
        client.run(client.ask(ask(model="other")))


@pytest.mark.usefixtures("fake_vllm")
def test_what_changes_answers_is_in_the_key() -> None:
    plain = VllmBackend("judge", tensor_parallel_size=2).settings()
    assert plain == VllmBackend("judge").settings()
    assert plain != VllmBackend("judge", template={"enable_thinking": False}).settings()
    assert plain != VllmBackend("judge", revision="abc").settings()


def test_a_missing_vllm_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'obliq\[vllm\]'"):
        VllmBackend("judge")
