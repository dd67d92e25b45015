"""The client of embeddings servers, against a real server on loopback."""

from __future__ import annotations

import logging
import traceback
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from obliq_eval.demo.embeddings_server import EmbeddingsServer, Fault, vector
from obliq_eval.errors import MissingExtraError, UserError
from obliq_models.encoders import api
from obliq_models.encoders.remote import Pace
from obliq_models.encoders.retrying import LONGEST_WAIT, backoff, seconds_to_wait, shown

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator
    from pathlib import Path

KEY = "sk-4711-not-to-be-seen"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingsServer]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with EmbeddingsServer(dims=16, key=KEY) as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.base_url)
        yield running


class Waits:
    """Counts the waits, and waits for nothing."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, _stop: threading.Event, seconds: float) -> None:
        self.seconds.append(seconds)


def encoder(server: EmbeddingsServer, waits: Waits | None = None, **settings: Any) -> api.ApiEncoder:
    pace = {name: settings.pop(name) for name in ("batch_size", "in_flight", "tries", "timeout") if name in settings}
    given = {"server_model": "toy-embedding", "dimensions": 16, "base_url": server.base_url, **settings}
    return api.ApiEncoder("local/toy", "1", pace=Pace(pause=waits or Waits(), **{"in_flight": 1, **pace}), **given)


def told(error: BaseException) -> str:
    """Return all that is printed about an error, causes and contexts included, even those that are not shown."""
    parts = ["".join(traceback.format_exception(error))]
    for inner in (error.__cause__, error.__context__):
        parts += [told(inner)] if inner is not None else []
    return "\n".join(parts)


# What it returns


def test_vectors_are_those_of_the_server_in_the_order_of_the_texts(server: EmbeddingsServer) -> None:
    texts = [f"word{i} and more" for i in range(23)]
    found = encoder(server, batch_size=5, in_flight=4).encode(texts, "document")
    assert np.allclose(found.vectors, [vector(text, 16) for text in texts], atol=1e-6)
    assert found.tokens == 23 * 3
    assert sorted(len(asked.texts) for asked in server.requests) == [3, 5, 5, 5, 5]


def test_each_role_has_its_prefix_and_a_task_its_instruction_after_it(server: EmbeddingsServer) -> None:
    model = encoder(server, query_prefix="query: ", document_prefix="passage: ")
    model.encode(["one"], "query", "Find style. ")
    model.encode(["one"], "document")
    assert [asked.texts for asked in server.requests] == [("query: Find style. one",), ("passage: one",)]


def test_an_empty_text_has_a_vector_as_well(server: EmbeddingsServer) -> None:
    found = encoder(server).encode(["", "one"], "document")
    assert server.requests[0].texts == (" ", "one")
    assert np.allclose(found.vectors[0], vector("", 16), atol=1e-6)


def test_no_texts_ask_nothing(server: EmbeddingsServer) -> None:
    assert encoder(server).encode([], "query").vectors.shape == (0, 16)
    assert server.requests == []


def test_dimensions_are_asked_of_the_server_or_learnt_from_it(server: EmbeddingsServer) -> None:
    assert encoder(server, dimensions=8).encode(["one"], "query").vectors.shape == (1, 8)
    assert encoder(server, dimensions=None).dims == 16
    assert [asked.dimensions for asked in server.requests] == [8, None]


def test_normalisation_can_be_left_out(server: EmbeddingsServer) -> None:
    """The server's own vectors have length 1, so they are the same in both."""
    raw = encoder(server, normalize=False).encode(["one two"], "query").vectors
    unit = encoder(server).encode(["one two"], "query").vectors
    assert np.array_equal(raw[0], vector("one two", 16))
    assert np.allclose(raw, unit, atol=1e-6)


def test_everything_that_can_change_a_vector_is_in_the_key(server: EmbeddingsServer) -> None:
    base = encoder(server).key("query")
    assert base["server"] == server.base_url
    others = [
        encoder(server, server_model="other").key("query"),
        encoder(server, dimensions=8).key("query"),
        encoder(server, query_prefix="q: ").key("query"),
        encoder(server, normalize=False).key("query"),
        encoder(server, base_url="http://127.0.0.1:1/v1").key("query"),
        encoder(server).key("document"),
        encoder(server).key("query", "an instruction"),
    ]
    assert base not in others
    assert base == encoder(server, batch_size=3, in_flight=2, tries=1, timeout=3).key("query")
    secret = encoder(server, base_url="http://me:word@127.0.0.1:1/v1/?api-key=hidden#part")
    assert secret.key("query")["server"] == "http://127.0.0.1:1/v1"


# What passes


@pytest.mark.parametrize(
    "fault",
    [
        Fault(times=2, status=429),
        Fault(times=2, status=500),
        Fault(times=2, status=503),
        Fault(times=2, status=408),
        Fault(times=2, cut=True),
    ],
    ids=["429", "500", "503", "408", "cut"],
)
def test_what_passes_is_tried_again_and_counted(
    server: EmbeddingsServer, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    server.inject(fault)
    waits = Waits()
    model = encoder(server, waits)
    assert np.allclose(model.encode(["one"], "query").vectors[0], vector("one", 16), atol=1e-6)
    assert model.repeated == 2
    assert len(waits.seconds) == 2
    assert 0.5 <= waits.seconds[0] <= 1.0 <= waits.seconds[1] <= 2.0
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 2
    assert "try 2 of 8" in caplog.text
    assert KEY not in caplog.text


def test_a_server_that_is_slow_is_asked_again(server: EmbeddingsServer) -> None:
    server.inject(Fault(seconds=30))
    model = encoder(server, timeout=0.3)
    assert model.encode(["one"], "query").vectors.shape == (1, 16)
    assert model.repeated == 1


def test_retry_after_is_kept(server: EmbeddingsServer) -> None:
    server.inject(Fault(status=429, retry_after="17"))
    waits = Waits()
    encoder(server, waits).encode(["one"], "query")
    assert waits.seconds == [17.0]


def test_a_server_that_asks_for_an_hour_is_given_up(server: EmbeddingsServer) -> None:
    server.inject(Fault(status=429, retry_after="3600"))
    with pytest.raises(UserError, match="asks to wait 3600 s"):
        encoder(server).encode(["one"], "query")
    assert len(server.requests) == 1


def test_a_server_that_stays_down_is_given_up_after_so_many_tries(server: EmbeddingsServer) -> None:
    server.inject(Fault(times=None, status=503))
    with pytest.raises(UserError, match=r"at http://127\.0\.0\.1:\d+/v1 refuses \(status 503.*given up after 3 tries"):
        encoder(server, tries=3).encode(["one"], "query")
    assert len(server.requests) == 3


def test_no_server_at_all(server: EmbeddingsServer) -> None:
    model = encoder(server, tries=2)
    server.shutdown()
    with pytest.raises(UserError, match=r"cannot be reached.*given up after 2 tries") as caught:
        model.encode(["one"], "query")
    assert "\n" not in str(caught.value)


# What does not pass


def test_a_spent_account_is_no_rate_limit(server: EmbeddingsServer) -> None:
    server.inject(Fault(times=None, status=429, code="insufficient_quota", message="You exceeded your quota"))
    with pytest.raises(UserError, match="You exceeded your quota"):
        encoder(server).encode(["one"], "query")
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refusal_is_told_at_once(server: EmbeddingsServer, status: int) -> None:
    server.inject(Fault(times=None, status=status, message=f"no, and your key is {KEY}"))
    model = encoder(server)
    with pytest.raises(UserError, match=f"status {status}") as caught:
        model.encode(["one"], "query")
    assert (len(server.requests), model.repeated) == (1, 0)
    assert KEY not in told(caught.value)


def test_a_wrong_key_and_none(server: EmbeddingsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
    with pytest.raises(UserError, match=r"refuses the key in OPENAI_API_KEY \(status 401\)") as caught:
        encoder(server).encode(["one"], "query")
    assert "sk-wrong" not in told(caught.value)
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UserError, match=r"refuses no key, and there is none in OPENAI_API_KEY \(status 401\)"):
        encoder(server).encode(["one"], "query")


def test_a_server_without_keys_is_sent_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with EmbeddingsServer(dims=16) as server:
        assert encoder(server).encode(["one"], "query").vectors.shape == (1, 16)


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        ("fewer", "returned 2 vectors for 3 texts"),
        ("more", "returned 4 vectors for 3 texts"),
        ("twice", "returned 3 vectors that are not numbered 0 to 2"),
        ("unnumbered", "not numbered 0 to 2"),
        ("nan", "not a number"),
        ("null", "not a number"),
        ("ragged", "vectors of 8 and of 16 dimensions"),
        ("shorter", "returned vectors of 8 dimensions, but declares 16"),
        ("garbled", "something else than vectors"),
    ],
)
def test_wrong_answers_are_refused(server: EmbeddingsServer, wrong: Any, part: str) -> None:
    server.inject(Fault(wrong=wrong))
    with pytest.raises(UserError, match=part) as caught:
        encoder(server).encode(["one", "two", "three"], "document")
    assert KEY not in told(caught.value)


def test_another_order_is_put_right(server: EmbeddingsServer) -> None:
    server.inject(Fault(wrong="shuffled"))
    texts = ["one", "two", "three"]
    found = encoder(server).encode(texts, "document").vectors
    assert np.allclose(found, [vector(text, 16) for text in texts], atol=1e-6)


def test_one_length_in_all_requests(server: EmbeddingsServer) -> None:
    server.inject(Fault(after=1, wrong="shorter"))
    with pytest.raises(UserError, match="vectors of 8 and of 16 dimensions"):
        encoder(server, batch_size=1).encode(["one", "two"], "document")


def test_a_text_that_is_too_long_is_named(server: EmbeddingsServer) -> None:
    server.longest = 5
    texts = ["one", "two", "a very long text that goes on and on", "three"]
    with pytest.raises(UserError, match=r"the document that begins 'a very long text .* has 36 characters") as caught:
        encoder(server).encode(texts, "document")
    assert "maximum context length is 5" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_much_in_one_request_is_halved(server: EmbeddingsServer) -> None:
    """Twelve words, five at once: 4 texts of 3 words are sent as 4, then 2 and 2, then 1 each."""
    server.most = 5
    texts = [f"a b {i}" for i in range(4)]
    found = encoder(server).encode(texts, "document").vectors
    assert np.allclose(found, [vector(text, 16) for text in texts], atol=1e-6)
    assert [len(asked.texts) for asked in server.requests] == [4, 2, 1, 1, 2, 1, 1]


def test_after_a_failure_nothing_more_is_asked(server: EmbeddingsServer) -> None:
    server.inject(Fault(after=1, status=400))
    with pytest.raises(UserError, match="status 400"):
        encoder(server, batch_size=1).encode([str(i) for i in range(200)], "document")
    assert len(server.requests) < 200


# Loading


def test_load_takes_address_and_key_from_the_environment(server: EmbeddingsServer) -> None:
    model = api.load("local/toy", "1", server_model="toy-embedding", query_prefix="q: ", device="cpu")
    assert model.encoder.dims == 16
    assert model.encoder.key("query")["prefix"] == "q: "


@pytest.mark.parametrize(
    "address", [None, "", "  ", "127.0.0.1:8000", "ftp://host/v1", "http://", "http://host:port/v1"]
)
def test_no_address_no_guess(address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an address OpenAI's client would send the texts to OpenAI."""
    monkeypatch.delenv("MY_SERVER", raising=False)
    if address is not None:
        monkeypatch.setenv("MY_SERVER", address)
    with pytest.raises(UserError, match=r"MY_SERVER=http://127\.0\.0\.1:8000/v1"):
        api.load("local/toy", server_model="toy", base_url_env="MY_SERVER")


def test_an_unknown_protocol(server: EmbeddingsServer) -> None:
    with pytest.raises(UserError, match='did you mean "openai"'):
        api.load("local/toy", server_model="toy", server="open-ai")


def test_a_missing_client_is_named(server: EmbeddingsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    with pytest.raises(MissingExtraError, match=r"obliq\[openai\]"):
        api.load("local/toy", server_model="toy")


def test_the_key_is_in_no_file_output_or_log(
    server: EmbeddingsServer,
    obliq_home: Path,
    write_task: Any,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    """A whole evaluation under mteb, a rate limit on the way; then every file is searched."""
    import mteb

    from obliq_eval.catalogue import ModelEntry, register
    from obliq_eval.tasks import folder_task

    caplog.set_level(logging.DEBUG)
    entry = ModelEntry(
        name="local/api-toy",
        alias="api-toy",
        loader="obliq_models.encoders.api:load",
        revision="1",
        settings={"server_model": "toy-embedding", "dimensions": 16},
    )
    register(entry)
    server.inject(Fault(status=429, retry_after="0"))
    folder = write_task({"a": "harbour at dawn", "b": "tax return"}, {"q": "dawn harbour"}, {"q": {"a": 1}})
    result = mteb.evaluate(
        mteb.get_model("api-toy"),
        [folder_task(folder)],
        cache=mteb.ResultCache(tmp_path / "results"),
        overwrite_strategy="always",
    )
    assert result.task_results[0].get_score() == 1.0
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(file.name == "model_meta.json" for file in files)
    assert [file for file in files if KEY.encode() in file.read_bytes()] == []
    out, err = capfd.readouterr()
    assert KEY not in out + err + caplog.text
    assert any(asked.status == 429 for asked in server.requests)


# Waiting and showing


def test_waits_grow_up_to_a_minute_and_vary() -> None:
    for attempt, most in ((1, 1.0), (4, 8.0), (30, LONGEST_WAIT)):
        found = [backoff(attempt) for _ in range(50)]
        assert all(most / 2 <= seconds <= most for seconds in found)
        assert len(set(found)) > 1


def test_retry_after_is_a_number_or_a_date() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=100))
    past = format_datetime(datetime.now(UTC) - timedelta(seconds=100))
    assert seconds_to_wait("2.5") == 2.5
    assert seconds_to_wait("-3") == 0
    assert 50 < (seconds_to_wait(soon) or 0) <= 100
    assert seconds_to_wait(past) == 0
    assert [seconds_to_wait(header) for header in (None, "", "soon")] == [None] * 3


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("http://user:word@host:8000/v1/", "http://host:8000/v1"),
        ("https://host/v1?key=secret#secret", "https://host/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
    ],
)
def test_an_address_is_shown_without_secrets(address: str, found: str) -> None:
    assert shown(address) == found


@pytest.mark.parametrize("status", [302, 307])
def test_neither_key_nor_texts_follow_to_another_address(server: EmbeddingsServer, status: int) -> None:
    """Such an address is nobody whom the user has named; Google's client would take the key along."""
    with EmbeddingsServer(dims=16) as other:
        server.inject(Fault(times=None, status=status, location=f"{other.url}/elsewhere"))
        with pytest.raises(UserError, match=rf"sends requests on to another address \(status {status}\)"):
            encoder(server).encode(["a text"], "query")
        assert other.requests == []
