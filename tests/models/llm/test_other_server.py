"""A server that nobody here wrote: `transformers serve` with a tiny causal model of random weights."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from obliq_eval.errors import UserError
from obliq_eval.records import Run
from obliq_models.llm.settings import LLMSettings
from obliq_models.rerankers import stage
from obliq_models.rerankers.asking import Asking
from obliq_models.rerankers.base import Candidate, Query
from obliq_models.rerankers.listwise import Listwise
from obliq_models.rerankers.tourrank import TourRank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from obliq_models.llm.protocol import Request
    from obliq_models.rerankers.base import Reranker

missing = [name for name in ("openai", "fastapi", "uvicorn") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(
    bool(missing), reason=f"not installed: {', '.join(missing)} (pip install 'obliq[openai]' 'transformers[serving]')"
)

TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
POOLS = {
    Query(f"q{q}", f"query {q}", "T"): tuple(Candidate(f"d{d}", f"document {d} of query {q}") for d in range(7))
    for q in range(2)
}
RUN = Run.from_lists({query.id: [one.id for one in pool] for query, pool in POOLS.items()})


def save_model(folder: Path) -> Path:
    """Save a Llama whose tokens are bytes and half of whose tokens end an answer, so that answers are short garbage."""
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
        num_key_value_heads=2, max_position_embeddings=8192, bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.generation_config.eos_token_id = list(range(1, len(vocabulary), 2))
    model.save_pretrained(folder)
    wrapped.save_pretrained(folder)
    return folder


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def wait_for(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until the server is ready; a server that ends before says why."""
    for _ in range(1200):
        assert process.poll() is None, log.read_text("utf-8")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):  # noqa: S310
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"not ready after two minutes: {log.read_text('utf-8')}")


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Return address and model of a running server."""
    folder = tmp_path_factory.mktemp("peer")
    model = save_model(folder / "tiny")
    port = free_port()
    command = [sys.executable, "-c", "from transformers.cli.transformers import main; main()", "serve"]
    quiet = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub")}
    log = folder / "log.txt"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"],
            stdout=output, stderr=subprocess.STDOUT, env=quiet,
        ) as process,
    ):  # fmt: skip
        try:
            wait_for(process, f"http://127.0.0.1:{port}", log)
            yield f"http://127.0.0.1:{port}/v1", str(model)
        finally:
            process.kill()


@pytest.fixture
def settings(peer: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> LLMSettings:
    url, model = peer
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    return LLMSettings(model=model, max_tokens=400, attempts=2, concurrency=4)


def test_the_client_talks_to_it_and_counts_its_tokens(settings: LLMSettings, ask: Callable[..., Request]) -> None:
    """`user: hi` and a line end are 9 bytes, `assistant:` 10, and every byte is a token."""
    with settings.open() as client:
        asked = ask("hi", model=settings.model, max_tokens=400, seed=1)
        first = client.run(client.ask(asked))
        assert first.finish_reason == "stop"
        assert (first.prompt_tokens, first.cached) == (19, False)
        assert 1 <= first.completion_tokens < 400
        assert client.run(client.ask(asked)).cached
        assert not client.backend.counts


def test_an_answer_at_the_token_limit_is_not_stored(settings: LLMSettings, ask: Callable[..., Request]) -> None:
    """It calls every answer that is as long as the limit cut, even one that ends there."""
    asked = ask("hi", model=settings.model, max_tokens=1)
    with settings.open() as client:
        assert client.run(client.ask(asked)).finish_reason == "length"
        assert not client.stored(asked)


@pytest.mark.parametrize("kind", ["listwise", "tourrank"])
def test_garbage_is_counted_as_failures_and_refused(settings: LLMSettings, kind: str) -> None:
    """It takes the schema with status 200 and ignores it: every answer is noticed, and every question fails.

    Seven documents: listwise asks one question for each query, a tournament two (7 documents, then 4 or 5).
    """
    with settings.open() as client:
        asking = Asking(settings, client)
        reranker: Reranker = Listwise(asking) if kind == "listwise" else TourRank(asking, y=1)
        questions = len(POOLS) * reranker.calls(7)
        with pytest.raises(UserError, match=rf"{questions} of {questions} questions \(100\.0%\) brought no usable"):
            stage.rerank(stage.Pools(RUN, POOLS), reranker)
        assert client.counts[f"{kind}: failed questions"] == questions
        staged = stage.rerank(stage.Pools(RUN, POOLS), reranker, threshold=1.0)
    assert all(staged.run.rankings[query].documents == before.documents for query, before in RUN.rankings.items())
    assert staged.failed == questions
    counts = staged.counts
    unread = counts.get(f"{kind}: answers that could not be read", 0)
    assert unread
    assert counts[f"{kind}: answers without the schema asked for"] == unread
    assert unread + counts.get(f"{kind}: unfinished answers", 0) == questions * settings.attempts
