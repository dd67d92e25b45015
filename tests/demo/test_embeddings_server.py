"""The loopback embeddings server, asked with plain HTTP."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from obliq_eval.demo.embeddings_server import Asked, EmbeddingsServer, Fault, Wrong, vector


def ask(server: EmbeddingsServer, texts: list[str], key: str = "", **more: Any) -> requests.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    content = {"model": "toy-embedding", "input": texts, **more}
    return requests.post(f"{server.base_url}/embeddings", json=content, headers=headers, timeout=30)


def rows(answer: requests.Response) -> dict[int, list[float]]:
    return {row["index"]: row["embedding"] for row in answer.json()["data"]}


def test_texts_that_share_words_are_near() -> None:
    near, far = vector("the old harbour at dawn"), vector("quarterly tax returns")
    query = vector("Harbour, dawn!")
    assert query @ near > 0.5 > abs(query @ far)


@given(st.text(max_size=40), st.sampled_from([8, 256]))
def test_a_vector_has_unit_length_and_depends_on_words_alone(text: str, dims: int) -> None:
    found = vector(text, dims)
    assert found.shape == (dims,)
    assert found.dtype == np.float32
    assert np.linalg.norm(found) == pytest.approx(1, abs=1e-5)
    assert np.array_equal(found, vector(f"  {text} ", dims))


def test_it_answers_with_vectors_and_lists_its_models() -> None:
    with EmbeddingsServer(["toy-embedding", "other"], dims=8) as server:
        answer = ask(server, ["one two", "three"])
        names = [model["id"] for model in requests.get(f"{server.base_url}/models", timeout=30).json()["data"]]
        asked = server.requests
    assert rows(answer) == {0: vector("one two", 8).tolist(), 1: vector("three", 8).tolist()}
    assert answer.json()["usage"]["prompt_tokens"] == 3
    assert names == ["toy-embedding", "other"]
    assert asked == [Asked("toy-embedding", ("one two", "three"), None, "float")]


def test_dimensions_and_base64_are_honoured() -> None:
    import base64

    with EmbeddingsServer() as server:
        packed = rows(ask(server, ["one"], dimensions=4, encoding_format="base64"))[0]
    assert np.array_equal(np.frombuffer(base64.b64decode(str(packed)), "<f4"), vector("one", 4))


def test_it_speaks_the_protocol_of_gemini() -> None:
    content: Any = {"requests": [{"content": {"parts": [{"text": "one"}]}, "outputDimensionality": 4}]}
    with EmbeddingsServer(["g"], key="k") as server:
        url = f"{server.url}/v1beta/models/g:batchEmbedContents"
        answer = requests.post(url, json=content, headers={"x-goog-api-key": "k"}, timeout=30)
    assert answer.json() == {"embeddings": [{"values": vector("one", 4).tolist()}]}


def test_it_demands_a_key_and_keeps_none() -> None:
    with EmbeddingsServer(key="sesame") as server:
        refused = ask(server, ["one"], "barley")
        models = requests.get(f"{server.base_url}/models", timeout=30)
        let_in = ask(server, ["one"], "sesame")
        kept = repr([vars(server), server.requests])
    assert (refused.status_code, models.status_code, let_in.status_code) == (401, 401, 200)
    assert "barley" in refused.text  # as real servers do, so that a client is seen not to pass it on
    assert "sesame" not in kept
    assert "barley" not in kept


@pytest.mark.parametrize(
    ("texts", "status", "part"),
    [
        ([""], 400, "empty"),
        (["one two three four"], 400, "maximum context length is 3"),
        (["one two three"] * 3, 400, "max 6 tokens per request"),
        ([], 400, "empty"),
    ],
)
def test_it_refuses_what_real_servers_refuse(texts: list[str], status: int, part: str) -> None:
    with EmbeddingsServer(longest=3, most=6) as server:
        answer = ask(server, texts)
        assert server.requests[-1].status == status
    assert answer.status_code == status
    assert part in answer.json()["error"]["message"]


@pytest.mark.parametrize("body", ["no json", "[]", json.dumps({"model": "toy-embedding", "input": [1]}), "{}"])
def test_a_request_that_cannot_be_read_is_refused(body: str) -> None:
    with EmbeddingsServer() as server:
        assert requests.post(f"{server.base_url}/embeddings", data=body, timeout=30).status_code == 400


def test_unknown_pages_and_models_are_not_found() -> None:
    with EmbeddingsServer() as server:
        assert ask(server, ["one"], model="gpt").status_code == 404
        assert requests.post(f"{server.url}/embeddings", json={}, timeout=30).status_code == 404
        assert requests.get(f"{server.url}/v1/files", timeout=30).status_code == 404


def test_a_fault_strikes_as_often_and_as_late_as_told() -> None:
    late = Fault(times=2, after=1, status=429, retry_after="7", code="slow_down")
    with EmbeddingsServer(faults=[late]) as server:
        answers = [ask(server, ["one"]) for _ in range(4)]
        assert [asked.status for asked in server.requests] == [200, 429, 429, 200]
    assert [answer.status_code for answer in answers] == [200, 429, 429, 200]
    assert answers[1].headers["Retry-After"] == "7"
    assert answers[1].json()["error"]["code"] == "slow_down"


def test_a_cut_answer_breaks_the_connection() -> None:
    with EmbeddingsServer() as server:
        server.inject(Fault(cut=True))
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            ask(server, ["one"])
        assert ask(server, ["one"]).status_code == 200


def test_a_slow_answer_outlasts_the_clients_patience() -> None:
    with EmbeddingsServer(faults=[Fault(seconds=30)]) as server, pytest.raises(requests.exceptions.ReadTimeout):
        requests.post(f"{server.base_url}/embeddings", json={"model": "m", "input": ["a"]}, timeout=0.2)


def test_wrong_answers() -> None:
    found = {}
    kinds: tuple[Wrong, ...] = (
        "shuffled",
        "fewer",
        "more",
        "twice",
        "unnumbered",
        "null",
        "shorter",
        "ragged",
        "garbled",
    )
    with EmbeddingsServer(dims=4, faults=[Fault(wrong=kind) for kind in kinds]) as server:
        for kind in kinds:
            found[kind] = ask(server, ["one", "two"])
    data = {kind: found[kind].json()["data"] for kind in kinds if kind != "garbled"}
    assert [row["index"] for row in data["shuffled"]] == [1, 0]
    assert data["shuffled"][0]["embedding"] == vector("two", 4).tolist()
    assert (len(data["fewer"]), len(data["more"])) == (1, 3)
    assert [row["index"] for row in data["twice"]] == [0, 0]
    assert "index" not in data["unnumbered"][1]
    assert data["null"][1]["embedding"][0] is None
    assert [len(row["embedding"]) for row in data["shorter"]] == [2, 2]
    assert [len(row["embedding"]) for row in data["ragged"]] == [4, 2]
    with pytest.raises(ValueError, match="Expecting"):
        found["garbled"].json()


def test_it_has_no_address_before_and_after() -> None:
    server = EmbeddingsServer()
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.url
    with server:
        port = server.url.rpartition(":")[2]
    server.shutdown()
    with EmbeddingsServer(port=int(port)):  # the port is free again
        pass
