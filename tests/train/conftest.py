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


TINY_WORDS = [
    *("whales", "sing", "of", "cold", "northern", "seas", "while", "kings", "speak"),
    *("to", "people", "about", "taxes", "harvest", "winter", "night", "and", "war"),
]
TINY_RECIPE = """
purpose = "a test"

[model]
base = "base"
query_prefix = "query: "
document_prefix = "passage: "
query_length = 12
document_length = 24
encode_query_length = 12
encode_document_length = 24

[lora]
rank = 4
alpha = 8
dropout = 0.0
targets = ["query", "key", "value", "dense"]

[batch]
per_device = 4

[schedule]
epochs = 1.0
rate = 1e-3

[[part]]
name = "toy"
task = "OBLIQ-Mini-Math"
file = "rows.jsonl"
"""


@pytest.fixture(scope="session")
def write_tiny_training() -> Callable[[Path], Path]:
    """Return a function that writes a tiny base with random weights, 24 rows and a recipe, and returns the last.

    A row has one positive and two negatives, and no text comes twice.
    """
    from tests.train.tiny import write_roberta

    def make(folder: Path) -> Path:
        write_roberta(folder / "base")

        def text(start: int, words: int) -> str:
            return " ".join(TINY_WORDS[(start * 5 + word * 7) % len(TINY_WORDS)] for word in range(words)) + f" {start}"

        rows = [
            {
                "query": ["", text(n, 3)],
                "pos": [["", text(n + 100, 4)]],
                "neg": [["", text(n + 200, 5)], ["", text(n + 300, 6)]],
            }
            for n in range(24)
        ]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        recipe = folder / "tiny.toml"
        recipe.write_text(TINY_RECIPE, "utf-8")
        return recipe

    return make


@pytest.fixture
def tiny_training(tmp_path: Path, write_tiny_training: Callable[[Path], Path]) -> Path:
    """Return a recipe in a folder of the test's own."""
    return write_tiny_training(tmp_path)
