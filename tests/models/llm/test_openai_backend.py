"""A real client library against a real server: what servers refuse, ignore, drop and say."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval.delimited import answer_line, delimit
from obliq_eval.demo.llm_server import LlmServer, Manners
from obliq_eval.demo.personalities import Answer, Asked, cutting, dropping, perfect, rate_limited
from obliq_eval.errors import MissingExtraError, UserError
from obliq_models.llm.answers import ranking, ranking_schema
from obliq_models.llm.cache import Cache
from obliq_models.llm.client import Client, Failure
from obliq_models.llm.protocol import Backend, CallError, Request
from obliq_models.llm.retry import Retries

pytest.importorskip("openai", reason="the extra `openai` is optional")

from obliq_models.llm.openai_backend import OpenAIBackend

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "sk-Abc123Def456Ghi789"  # noqa: S105 -- no server knows it
DOCUMENTS = ("cats", "dogs", "birds")
PROMPT = f"{delimit('barking', DOCUMENTS)}\n{answer_line('ranking', 3)}"
RANKED = '{"ranking": [2, 1, 3]}'
JUDGE = perfect({"barking": {"dogs"}})


@pytest.fixture(autouse=True)
def no_server_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def rank(ask: Callable[..., Request]) -> Request:
    return ask(PROMPT, schema=ranking_schema(3), stage="s", query="q1")


async def at_once(_: float) -> None:
    pass


def client_of(server: LlmServer, **more: Any) -> Client:
    return Client(OpenAIBackend(base_url=server.url), **{"sleep": at_once, **more})


def test_it_asks_a_server(rank: Request) -> None:
    with LlmServer(JUDGE) as server, client_of(server) as client:
        assert isinstance(client.backend, Backend)
        found = client.run(client.ask(rank))
        assert ranking(found.text, 3) == [2, 1, 3]
        assert (found.finish_reason, found.model) == ("stop", "judge")
        assert (found.prompt_tokens, found.completion_tokens) == (len(PROMPT.split()), 4)
        assert found.seconds > 0
        (body,) = server.bodies
        assert body["response_format"]["json_schema"]["schema"] == ranking_schema(3)
        assert (body["temperature"], body["max_tokens"]) == (0.0, 1024)
        assert "seed" not in body
        assert "n" not in body
        assert not client.backend.counts


def test_samples_and_further_fields_are_sent(ask: Callable[..., Request]) -> None:
    with LlmServer(JUDGE) as server:
        backend = OpenAIBackend(base_url=server.url, extra={"chat_template_kwargs": {"enable_thinking": False}})
        with Client(backend) as client:
            client.run(client.ask_all([ask(seed=5, sample=sample) for sample in (0, 1)]))
        assert sorted(body["seed"] for body in server.bodies) == [5, 6]
        assert all(body["chat_template_kwargs"] == {"enable_thinking": False} for body in server.bodies)
        assert "response_format" not in server.bodies[0]
        assert backend.settings() != OpenAIBackend(base_url=server.url).settings()


def test_the_environment_names_server_and_key(monkeypatch: pytest.MonkeyPatch, ask: Callable[..., Request]) -> None:
    with LlmServer(JUDGE, manners=Manners(key=SECRET)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        with Client(OpenAIBackend()) as client:
            assert client.run(client.ask(ask())).complete


def test_no_server_is_told() -> None:
    with pytest.raises(UserError, match="set OPENAI_BASE_URL"):
        OpenAIBackend()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'obliq\[openai\]'"):
        OpenAIBackend(base_url="http://127.0.0.1:1/v1")


@pytest.mark.parametrize(
    ("manners", "kept", "told", "requests"),
    [
        (Manners(forms=frozenset({"json_object"}), fields=frozenset({"schema"})), "json_object", "with a schema", 2),
        (Manners(forms=frozenset({"json_object"})), "json_object", "json_object", 3),
        (Manners(forms=frozenset()), None, "text", 4),
        (Manners(forms=frozenset(), form_status=422), None, "text", 4),
    ],
)
def test_weaker_forms_are_tried_and_kept(
    manners: Manners, kept: str | None, told: str, requests: int, rank: Request, ask: Callable[..., Request]
) -> None:
    """The first question tries the forms in their order; the second goes to the one that was taken."""
    with LlmServer(JUDGE, manners=manners) as server, client_of(server) as client:
        assert client.run(client.ask(rank)).text == RANKED
        assert len(server.bodies) == requests
        assert client.run(client.ask(ask(PROMPT + " ", schema=ranking_schema(3)))).text == RANKED
        assert len(server.bodies) == requests + 1
        assert server.bodies[-1].get("response_format", {}).get("type") == kept
        (count,) = client.backend.counts
        assert count.startswith("models whose answers fell back from json_schema to")
        assert count.endswith(told)


def test_a_form_that_breaks_the_server_is_left_after_the_second_time(rank: Request) -> None:
    """One 500 may be anything and is repeated as it was; after the next one weaker forms are tried."""
    manners = Manners(forms=frozenset({"json_object"}), form_status=500)
    with LlmServer(JUDGE, manners=manners) as server, client_of(server) as client:
        assert client.run(client.ask(rank)).text == RANKED
        kinds = [body["response_format"]["type"] for body in server.bodies]
        assert kinds == ["json_schema", "json_schema", "json_object", "json_object"]


def test_a_bad_request_is_no_reason_to_weaken_the_form(rank: Request, ask: Callable[..., Request]) -> None:
    """A prompt that is refused in every form says nothing about the forms."""

    def picky(asked: Asked) -> Answer:
        return Answer("too long a prompt", 400) if "long" in asked.prompt else JUDGE(asked)

    with LlmServer(picky) as server, client_of(server) as client:
        with pytest.raises(CallError, match="too long a prompt"):
            client.run(client.ask(ask("long", schema=ranking_schema(3))))
        client.run(client.ask(rank))
        assert server.bodies[-1]["response_format"]["type"] == "json_schema"
        assert not client.backend.counts


def test_an_ignored_form_is_counted(rank: Request) -> None:
    """Status 200 and prose: some servers ignore what they do not know."""
    with LlmServer(lambda _: Answer("[2] > [1] > [3]")) as server, client_of(server) as client:
        assert client.run(client.ask_valid(rank, lambda text: ranking(text, 3))) == [2, 1, 3]
        assert client.counts["s: answers without the schema asked for"] == 1


def test_the_other_name_of_the_limit(rank: Request) -> None:
    with LlmServer(JUDGE, manners=Manners(limit="max_completion_tokens")) as server, client_of(server) as client:
        assert client.run(client.ask(rank)).text == RANKED
        assert server.bodies[-1]["max_completion_tokens"] == 1024
        assert client.backend.counts == {"models that take max_completion_tokens only": 1}


def test_missing_token_counts_are_guessed_and_counted(rank: Request) -> None:
    with LlmServer(JUDGE, manners=Manners(usage=False)) as server, client_of(server) as client:
        found = client.run(client.ask(rank))
        assert found.completion_tokens == -(-len(RANKED) // 4)
        assert client.counts["language model: answers without token counts, which were guessed"] == 1


def test_an_ignored_limit_is_counted(ask: Callable[..., Request]) -> None:
    """The server cuts at three words, here at 40 characters at most, but says that it wrote more than it might."""
    with LlmServer(lambda _: Answer("one two three")) as server:
        backend = OpenAIBackend(base_url=server.url, extra={"max_tokens": 50})
        with Client(backend) as client:
            client.run(client.ask(ask(max_tokens=2)))
            assert backend.counts == {"answers longer than the limit that was sent": 1}


def test_rate_limits_are_waited_out(rank: Request) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    with LlmServer(rate_limited(JUDGE, 2, "7")) as server, client_of(server, sleep=sleep) as client:
        assert client.run(client.ask(rank)).text == RANKED
        assert client.counts["s: repeated calls"] == 1
    assert 7 <= waits[0] <= 8


def test_dropped_connections_are_opened_again(rank: Request) -> None:
    with LlmServer(dropping(JUDGE)) as server, client_of(server) as client:
        assert client.run(client.ask(rank)).text == RANKED
        assert client.counts["s: repeated calls"] == 1


def test_cut_answers_are_not_parsed(rank: Request) -> None:
    with LlmServer(cutting(JUDGE)) as server, client_of(server, cache=Cache()) as client:
        assert client.run(client.ask_valid(rank, lambda text: ranking(text, 3))) == [2, 1, 3]
        assert client.counts["s: unfinished answers"] == 1
        assert client.cache is not None
        assert len(client.cache) == 1


def test_a_slow_server_is_given_up(rank: Request) -> None:
    with LlmServer(JUDGE, delay=0.5) as server:
        backend = OpenAIBackend(base_url=server.url, timeout=0.1)
        client = Client(backend, sleep=at_once, retries=Retries(attempts=2))
        with client, pytest.raises(CallError, match=r"did not answer within .* \(2 attempts\)") as caught:
            client.run(client.ask(rank))
    assert caught.value.spent


def test_a_server_that_is_not_there_is_told(rank: Request) -> None:
    with LlmServer(JUDGE) as server:
        gone = server.url
    client = Client(OpenAIBackend(base_url=gone), sleep=at_once, retries=Retries(attempts=2))
    told = rf"{gone} cannot be reached \(no connection\); see OPENAI_BASE_URL"
    with client, pytest.raises(CallError, match=told) as caught:
        client.run(client.ask(rank))
    assert not caught.value.spent


def test_the_key_is_never_told(monkeypatch: pytest.MonkeyPatch, rank: Request) -> None:
    """Though the server repeats it, and though the address holds a password."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with LlmServer(JUDGE, manners=Manners(key="another")) as server:
        backend = OpenAIBackend(base_url=server.url.replace("//", "//user:hidden@"))
        with Client(backend) as client, pytest.raises(CallError) as caught:
            client.run(client.ask(rank))
    told = str(caught.value)
    assert told.startswith(f"{server_name(backend)} refused a call to 'judge' for stage 's', query 'q1': ")
    assert told.endswith("; see the key in OPENAI_API_KEY")
    assert "[key]" in told
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        assert "hidden" not in str(error)
        error = error.__cause__
    assert SECRET not in repr(backend.settings())


def server_name(backend: OpenAIBackend) -> str:
    return backend.shown


def test_shortened_keys_are_hidden_too(ask: Callable[..., Request]) -> None:
    """As servers print them: the beginning, stars, the end."""
    with LlmServer(lambda _: Answer("Incorrect API key: sk-Abc*****789.", 401)) as server, client_of(server) as client:
        with pytest.raises(CallError, match=r"Incorrect API key: \[key\]") as caught:
            client.run(client.ask(ask()))
        assert "789" not in str(caught.value)


def test_a_used_up_account_is_not_waited_for(ask: Callable[..., Request]) -> None:
    """429 as for a rate limit, but with a code that no waiting cures."""
    with LlmServer(lambda _: Answer("quota", 429, code="insufficient_quota")) as server, client_of(server) as client:
        with pytest.raises(CallError, match="quota"):
            client.run(client.ask(ask()))
        assert len(server.bodies) == 1


@pytest.mark.parametrize("status", [400, 403, 404, 422])
def test_other_refusals_are_final(status: int, ask: Callable[..., Request]) -> None:
    with LlmServer(lambda _: Answer("no", status)) as server, client_of(server) as client:
        with pytest.raises(CallError, match="refused a call"):
            client.run(client.ask(ask()))
        assert len(server.bodies) == 1


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
def test_passing_failures_are_repeated(status: int, ask: Callable[..., Request]) -> None:
    def play(asked: Asked) -> Answer:
        return Answer("wait", status) if asked.number < 2 else Answer("yes")

    with LlmServer(play) as server, client_of(server) as client:
        assert client.run(client.ask(ask())).text == "yes"


@pytest.mark.parametrize(
    "raw",
    [{}, [], "text", None, {"choices": []}, {"choices": None}, {"choices": [{}]}, {"choices": [{"message": "x"}]},
     {"choices": [{"message": {"content": 7}}]}, {"error": {"message": "down"}}, {"error": 7}],
)  # fmt: skip
def test_what_is_no_completion_is_told(raw: object, ask: Callable[..., Request]) -> None:
    """A gateway may say anything with status 200."""
    told = r"something else than a chat completion .*\(2 attempts\)"
    with LlmServer(lambda _: Answer(raw=raw)) as server, client_of(server, retries=Retries(attempts=2)) as client:
        with pytest.raises(CallError, match=told) as caught:
            client.run(client.ask(ask()))
        assert caught.value.spent


def test_pages_instead_of_json_are_told(ask: Callable[..., Request]) -> None:
    with LlmServer(lambda _: Answer(raw=b"<html>hello</html>")) as server:
        client = client_of(server, retries=Retries(attempts=1))
        with client, pytest.raises(CallError, match="something else than a chat completion"):
            client.run(client.ask(ask()))


def test_nesting_without_end_is_told(ask: Callable[..., Request]) -> None:
    with LlmServer(lambda _: Answer(raw=b"[" * 200_000)) as server:
        client = client_of(server, retries=Retries(attempts=1))
        with client, pytest.raises(CallError, match="something else than a chat completion"):
            client.run(client.ask(ask()))


def test_an_error_under_status_200_is_repeated_without_the_key(
    ask: Callable[..., Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    raw = {"error": {"message": f"no memory is left for {SECRET}"}}
    with LlmServer(lambda _: Answer(raw=raw)) as server:
        client = client_of(server, retries=Retries(attempts=1))
        with client, pytest.raises(CallError, match=r"it says: no memory is left for \[key\]"):
            client.run(client.ask(ask()))


@pytest.mark.parametrize(
    "usage",
    ["many", [1, 2], 7, {"prompt_tokens": -5, "completion_tokens": 2}, {"prompt_tokens": 9**30, "completion_tokens": 1},
     {"prompt_tokens": True, "completion_tokens": True}, {"prompt_tokens": 5.5, "completion_tokens": 1}],
)  # fmt: skip
def test_token_counts_that_make_no_sense_are_guessed(usage: object, ask: Callable[..., Request]) -> None:
    """A prompt of 40 characters are 10 tokens, an answer of 8 two."""
    raw = {"choices": [{"message": {"content": "12345678"}, "finish_reason": "stop"}], "usage": usage}
    with LlmServer(lambda _: Answer(raw=raw)) as server, client_of(server) as client:
        found = client.run(client.ask(ask("0123456789" * 4)))
        assert (found.prompt_tokens, found.completion_tokens) == (10, 2)
        assert client.backend.counts["answers without token counts, which were guessed"] == 1


@pytest.mark.parametrize("word", ["max_tokens", "model_length", "max_length"])
def test_other_words_for_a_cut_answer(word: str, ask: Callable[..., Request]) -> None:
    raw = {"choices": [{"message": {"content": "half an ans"}, "finish_reason": word}]}
    with LlmServer(lambda _: Answer(raw=raw)) as server, client_of(server) as client:
        assert not client.run(client.ask(ask())).complete


@pytest.mark.parametrize(
    "message",
    [{"content": None, "reasoning_content": RANKED}, {"content": "", "tool_calls": [{"id": "a", "type": "function"}]}],
)
def test_thinking_and_tool_calls_alone_are_no_answer(message: object, rank: Request) -> None:
    """What a server calls thinking is never read, and that there was nothing else is counted."""
    raw = {"choices": [{"message": message, "finish_reason": "stop"}]}
    with LlmServer(lambda _: Answer(raw=raw)) as server, client_of(server) as client:
        found = client.run(client.ask_valid(rank, lambda text: ranking(text, 3), attempts=2))
        assert isinstance(found, Failure)
        assert client.backend.counts["answers without a text, such as thinking or tool calls alone"] == 2


def test_an_answer_that_drips_is_given_up(ask: Callable[..., Request]) -> None:
    """One byte after the other keeps a connection alive for ever; a call's time has an end all the same."""

    def drip(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while not done.wait(0.02):
                connection.sendall(b" ")

    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,))
        thread.start()
        backend = OpenAIBackend(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}/v1", timeout=0.5)
        client = Client(backend, retries=Retries(attempts=1))
        with client, pytest.raises(CallError, match="did not answer within"):
            client.run(client.ask(ask()))
        done.set()
        thread.join()


def test_an_answer_without_content_is_empty(ask: Callable[..., Request]) -> None:
    raw = {"choices": [{"message": {"content": None, "refusal": "no"}, "finish_reason": "length"}], "model": "m"}
    with LlmServer(lambda _: Answer(raw=raw)) as server, client_of(server) as client:
        found = client.run(client.ask(ask()))
        assert (found.text, found.finish_reason) == ("", "length")
        assert client.backend.counts["refusals"] == 1


def test_a_backend_outlives_its_loop(ask: Callable[..., Request]) -> None:
    """Connections belong to a loop; a second loop opens its own."""
    with LlmServer(JUDGE) as server:
        backend = OpenAIBackend(base_url=server.url)
        for _ in range(2):
            assert asyncio.run(backend.complete(ask())).complete
