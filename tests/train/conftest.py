"""A loopback writer with hand-checked answers, clients without a model, and corpora in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import pytest

from obliq_eval.data.documents import read_source
from obliq_eval.demo.llm_server import LlmServer
from obliq_eval.demo.personalities import Written, writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from obliq_eval.demo.personalities import Personality

DATA = Path(__file__).parent / "data"
CHECKED = {
    "writing": "OBLIQ-Mini-Writing",
    "math": "OBLIQ-Mini-Math",
    "congress": "OBLIQ-Mini-Congress",
    "stance": "OBLIQ-Mini-Congress",
}
"""Hand-checked answers to Stages A and B: the lens, and the corpus whose documents they are for."""


def checked(lens: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (DATA / f"{lens}.jsonl").read_text("utf-8").splitlines()]


def knowing(lens: str) -> Personality:
    table = read_source(CHECKED[lens]).table
    texts = dict(zip(table["id"][:], table["text"][:], strict=True))
    return writer({texts[row["document"]]: Written(row["description"], [row["query"]]) for row in checked(lens)})


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., LlmServer]]:
    """Return a function that serves a personality and sets the environment for it."""
    running: list[LlmServer] = []

    def start(personality: Personality, **settings: Any) -> LlmServer:
        server = LlmServer(personality, **settings).__enter__()
        running.append(server)
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OBLIQ_LLM", "writer")
        return server

    yield start
    for server in running:
        server.__exit__(None, None, None)


@pytest.fixture
def table() -> Callable[[Mapping[str, str]], datasets.Dataset]:
    """Return a function from `{id: text}` to a table."""
    return lambda texts: datasets.Dataset.from_dict({"id": list(texts), "text": list(texts.values())})
