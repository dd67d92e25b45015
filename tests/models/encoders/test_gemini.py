"""Gemini through Google's own client, against a server on loopback."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from obliq_eval.demo.embeddings_server import EmbeddingsServer, Fault, vector
from obliq_eval.errors import MissingExtraError, UserError
from obliq_models.encoders import gemini
from obliq_models.encoders.remote import Pace

pytest.importorskip("google.genai", reason="the extra gemini is not installed")

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

KEY = "AIza-4711-not-to-be-seen"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingsServer]:
    """Serve in Google's stead."""
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    monkeypatch.delenv("GOOGLE_GENAI_USE_VERTEXAI", raising=False)
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    with EmbeddingsServer(["gemini-embedding-2"], key=KEY) as running:
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", running.url)
        yield running


def encoder(waits: list[float] | None = None, **settings: Any) -> gemini.GeminiEncoder:
    def pause(_stop: threading.Event, seconds: float) -> None:
        (waits if waits is not None else []).append(seconds)

    pace = Pace(pause=pause, in_flight=1, batch_size=settings.pop("batch_size", 50), tries=settings.pop("tries", 8))
    return gemini.GeminiEncoder("local/gemini", "1", pace=pace, **{"dimensions": 16, **settings})


def told(error: BaseException) -> str:
    parts = ["".join(traceback.format_exception(error))]
    for inner in (error.__cause__, error.__context__):
        parts += [told(inner)] if inner is not None else []
    return "\n".join(parts)


def test_vectors_come_in_the_order_of_the_texts_with_their_task_type(server: EmbeddingsServer) -> None:
    texts = ["one", "two and three", ""]
    for role, task in gemini.TASK_TYPES.items():
        found = encoder(batch_size=2).encode(texts, role).vectors
        assert np.allclose(found, [vector(text, 16) for text in texts], atol=1e-6)
        assert [(asked.texts, asked.task) for asked in server.requests[-2:]] == [
            (("one", "two and three"), task),
            ((" ",), task),
        ]
    assert {(asked.model, asked.dimensions) for asked in server.requests} == {("gemini-embedding-2", 16)}


def test_the_task_can_stand_in_the_text_as_mteb_puts_it(server: EmbeddingsServer) -> None:
    from mteb.models.model_implementations import google_gemini
    from mteb.types import PromptType

    for role, task in gemini.TASK_TYPES.items():
        encoder(task_as="text").encode(["one"], role)
        theirs = google_gemini._format_gemini_embedding_2_text("one", task, PromptType(role))
        assert (server.requests[-1].texts, server.requests[-1].task) == ((theirs,), "")


def test_an_instruction_stands_before_the_text(server: EmbeddingsServer) -> None:
    encoder().encode(["one"], "query", "Find style. ")
    assert server.requests[-1].texts == ("Find style. one",)


def test_everything_that_can_change_a_vector_is_in_the_key(server: EmbeddingsServer) -> None:
    base = encoder().key("query")
    assert base["server"] == server.url
    others = [
        encoder(dimensions=8).key("query"),
        encoder(server_model="gemini-embedding-2-preview").key("query"),
        encoder(task_as="text").key("query"),
        encoder().key("document"),
    ]
    assert base not in others
    assert base == encoder(batch_size=2, tries=1).key("query")


@pytest.mark.parametrize(
    "fault",
    [Fault(times=2, status=429), Fault(times=2, status=503), Fault(times=2, cut=True)],
    ids=["429", "503", "cut"],
)
def test_what_passes_is_tried_again_and_counted(
    server: EmbeddingsServer, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    server.inject(fault)
    waits: list[float] = []
    model = encoder(waits)
    assert model.encode(["one"], "query").vectors.shape == (1, 16)
    assert (model.repeated, len(waits)) == (2, 2)
    assert "try 3 of 8" in caplog.text
    assert KEY not in caplog.text


def test_retry_after_is_kept(server: EmbeddingsServer) -> None:
    server.inject(Fault(status=429, retry_after="17"))
    waits: list[float] = []
    encoder(waits).encode(["one"], "query")
    assert waits == [17.0]


def test_a_service_that_stays_down_is_given_up(server: EmbeddingsServer) -> None:
    server.shutdown()
    with pytest.raises(UserError, match=r"cannot be reached.*given up after 2 tries") as caught:
        encoder(tries=2).encode(["one"], "query")
    assert KEY not in told(caught.value)


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_refusal_is_told_at_once(server: EmbeddingsServer, status: int) -> None:
    server.inject(Fault(times=None, status=status, message=f"no, and your key is {KEY}"))
    with pytest.raises(UserError, match=rf"Gemini at http://127\.0\.0\.1:\d+ refuses \(status {status}") as caught:
        encoder().encode(["one"], "query")
    assert len(server.requests) == 1
    assert KEY not in told(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_key_is_not_repeated(server: EmbeddingsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "AIza-wrong")
    with pytest.raises(UserError, match="status 401") as caught:
        encoder().encode(["one"], "query")
    assert "AIza-wrong" not in told(caught.value)


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        ("nan", "not a number"),
        ("null", "not a number|something else than vectors"),
        ("fewer", "returned 1 vectors for 2 texts"),
        ("more", "returned 3 vectors for 2 texts"),
        ("ragged", "vectors of 8 and of 16 dimensions"),
        ("shorter", "vectors of 8 dimensions, but declares 16"),
        ("garbled", "something else than vectors"),
    ],
)
def test_wrong_answers_are_refused(server: EmbeddingsServer, wrong: Any, part: str) -> None:
    server.inject(Fault(times=None, wrong=wrong))
    with pytest.raises(UserError, match=part) as caught:
        encoder().encode(["one", "two"], "query")
    assert KEY not in told(caught.value)


def test_an_unknown_way_to_tell_the_task(server: EmbeddingsServer) -> None:
    with pytest.raises(UserError, match='did you mean "text"'):
        gemini.load("local/gemini", task_as="texts")  # type: ignore[arg-type]


def test_no_key(server: EmbeddingsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEMINI_API_KEY")
    with pytest.raises(UserError, match="set GEMINI_API_KEY"):
        gemini.load("local/gemini")
    assert server.requests == []


def test_a_missing_client_is_named(server: EmbeddingsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "google.genai" or name.startswith("google.genai.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "google.genai", None)
    monkeypatch.delattr(sys.modules["google"], "genai", raising=False)
    with pytest.raises(MissingExtraError, match=r"obliq\[gemini\]"):
        gemini.load("local/gemini")


def test_load(server: EmbeddingsServer) -> None:
    model = gemini.load("local/gemini", "1", dimensions=16, device="cpu")
    assert model.encoder.dims == 16
    assert server.requests == []


@pytest.mark.parametrize("status", [302, 307])
def test_neither_key_nor_texts_follow_to_another_address(server: EmbeddingsServer, status: int) -> None:
    """Such an address is nobody whom the user has named; Google's client would take the key along."""
    with EmbeddingsServer(["gemini-embedding-2"]) as other:
        server.inject(Fault(times=None, status=status, location=f"{other.url}/elsewhere"))
        with pytest.raises(UserError, match=rf"sends requests on to another address \(status {status}\)"):
            encoder().encode(["a text"], "query")
        assert other.requests == []
