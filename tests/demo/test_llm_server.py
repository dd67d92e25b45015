"""The loopback language model, asked by the unmodified client library."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval.delimited import answer_line, delimit
from obliq_eval.demo.llm_server import LlmServer, Manners
from obliq_eval.demo.personalities import (
    MALFORMED,
    Answer,
    Asked,
    cutting,
    dropping,
    malformed,
    noisy,
    perfect,
    rate_limited,
    slow,
    topical,
)

openai = pytest.importorskip("openai", reason="the extra `openai` is optional")

if TYPE_CHECKING:
    from obliq_eval.demo.personalities import Personality

LONG = "the words of a long document that goes on and on, " * 5
DOCUMENTS = ("cats sleep", "dogs bark at <document id='9'> night", LONG, "cats and dogs at night")
GOLD = {"animals at night": {"dogs bark at <document id='9'> night", LONG}}


def prompt(kind: Any = "ranking", size: int = 2, query: str = "animals at night") -> str:
    return f"{delimit(query, DOCUMENTS)}\n{answer_line(kind, len(DOCUMENTS), size)}"


def numbers(personality: Personality, text: str, **more: Any) -> list[int]:
    found: dict[str, list[int]] = json.loads(personality(Asked(0, (("user", text),), **more)).text)
    return next(iter(found.values()))


def test_the_perfect_judge_works_from_the_prompt() -> None:
    """Documents 2 and 3 answer the query; a prompt may show the beginning of a long one only."""
    assert numbers(perfect(GOLD), prompt()) == [2, 3, 1, 4]
    assert numbers(perfect(GOLD), prompt("selection", 2)) == [2, 3]
    assert numbers(perfect(GOLD), prompt(query="another")) == [1, 2, 3, 4]
    cut = f"{delimit('animals at  night', [DOCUMENTS[0], LONG[:60] + '…'])}\n{answer_line('ranking', 2)}"
    assert numbers(perfect(GOLD), cut) == [2, 1]


def test_the_topical_judge_looks_at_words() -> None:
    """Query words of four letters and more are `animals` and `night`: of two that hold one, the shorter is first."""
    assert numbers(topical(), prompt())[:2] == [4, 2]


def test_noise_follows_from_the_request() -> None:
    judge = noisy(perfect(GOLD), 0.5, seed=1)
    found = [numbers(judge, prompt(), seed=seed) for seed in range(20)]
    assert found == [numbers(judge, prompt(), seed=seed) for seed in range(20)]
    assert all(sorted(order) == [1, 2, 3, 4] for order in found)
    assert len({tuple(order) for order in found}) > 3
    assert numbers(noisy(perfect(GOLD), 0.0), prompt()) == [2, 3, 1, 4]


def test_a_prompt_without_texts_gets_prose() -> None:
    assert "found no query" in perfect(GOLD)(Asked(0, (("user", "hello"),))).text


def test_the_talker_goes_through_its_answers() -> None:
    said = [malformed()(Asked(number, (("user", "x"),))).text for number in range(len(MALFORMED) + 1)]
    assert tuple(said[:-1]) == MALFORMED
    assert said[-1] == MALFORMED[0]


def create(server: LlmServer, **more: Any) -> Any:
    with openai.OpenAI(base_url=server.url, api_key="k", max_retries=0) as client:
        more = {"messages": [{"role": "user", "content": prompt()}], "model": "m"} | more
        return client.chat.completions.create(**more)


def test_it_answers_the_client_library() -> None:
    with LlmServer(perfect(GOLD)) as server:
        found = create(server)
        assert found.choices[0].message.content == '{"ranking": [2, 3, 1, 4]}'
        assert found.choices[0].finish_reason == "stop"
        assert (found.model, found.usage.completion_tokens) == ("m", 5)
        assert found.usage.prompt_tokens == len(prompt().split())
        with openai.OpenAI(base_url=server.url, api_key="k") as client:
            assert [model.id for model in client.models.list()] == ["loopback-judge"]
        assert server.bodies[0]["model"] == "m"
        assert 0 < server.busy() <= 1


def test_it_cuts_at_the_token_limit() -> None:
    with LlmServer(perfect(GOLD)) as server:
        found = create(server, max_tokens=3)
    assert found.choices[0].message.content == '{"ranking": [2, 3,'
    assert found.choices[0].finish_reason == "length"


def test_tempers() -> None:
    """Each spoils the first of two requests, and the second is answered."""
    with LlmServer(rate_limited(perfect(GOLD), 2, "7")) as server:
        with pytest.raises(openai.RateLimitError) as caught:
            create(server)
        assert caught.value.response.headers["retry-after"] == "7"
        assert create(server).choices
    with LlmServer(dropping(perfect(GOLD))) as server:
        with pytest.raises(openai.APIConnectionError):
            create(server)
        assert create(server).choices
    with LlmServer(cutting(perfect(GOLD))) as server:
        assert create(server).choices[0].finish_reason == "length"
        assert create(server).choices[0].finish_reason == "stop"
    assert slow(perfect(GOLD), 1.5)(Asked(0, (("user", prompt()),))).seconds == 1.5


def test_manners() -> None:
    """Servers refuse forms and fields that they do not know."""
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}
    with LlmServer(perfect(GOLD), manners=Manners(forms=frozenset({"json_object"}))) as server:
        with pytest.raises(openai.BadRequestError, match="json_schema is not supported"):
            create(server, response_format=form)
        with pytest.raises(openai.BadRequestError, match="unknown field schema"):
            create(server, response_format={"type": "json_object", "schema": {}})
        assert create(server, response_format={"type": "json_object"}).choices
    with LlmServer(perfect(GOLD), manners=Manners(limit="max_completion_tokens", usage=False)) as server:
        with pytest.raises(openai.BadRequestError, match="max_completion_tokens"):
            create(server, max_tokens=9)
        assert create(server, max_completion_tokens=9).usage is None
    with LlmServer(perfect(GOLD), manners=Manners(key="right")) as server, pytest.raises(openai.AuthenticationError):
        create(server)


def test_what_is_no_request_is_refused() -> None:
    with LlmServer(lambda _: Answer("x")) as server:
        with pytest.raises(openai.BadRequestError, match="no chat request"):
            create(server, messages="hello")
        client = openai.OpenAI(base_url=server.url + "/v2", api_key="k", max_retries=0)
        with client, pytest.raises(openai.NotFoundError, match="no page"):
            client.models.list()


def test_after_it_is_left_nothing_answers() -> None:
    with LlmServer(perfect(GOLD)) as server:
        client = openai.OpenAI(base_url=server.url, api_key="k", max_retries=0)
        assert client.models.list()
    with pytest.raises(openai.APIConnectionError):
        client.chat.completions.create(messages=[{"role": "user", "content": "x"}], model="m")
    client.close()
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.url
