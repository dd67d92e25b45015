"""Every answer is stored once, under everything that can change it; CASES 15."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from obliq_eval.errors import UserError
from obliq_models.llm.cache import Cache
from obliq_models.llm.client import Client
from obliq_models.llm.fake import FakeBackend
from obliq_models.llm.protocol import CallError, Request, Response, key_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BASE = Request((("user", "hello"),), "judge", schema={"type": "object"})
OTHERS = (
    replace(BASE, messages=(("user", "hello!"),)),
    replace(BASE, messages=(("system", "hello"),)),
    replace(BASE, messages=(("user", "hel"), ("user", "lo"))),
    replace(BASE, model="other"),
    replace(BASE, temperature=0.7),
    replace(BASE, max_tokens=1023),
    replace(BASE, seed=1),
    replace(BASE, schema=None),
    replace(BASE, schema={"type": "array"}),
    replace(BASE, sample=1),
)


def test_case_15(ask: Callable[..., Request]) -> None:
    """Two temperatures, two models, two samples are eight answers; a repeat is none; errors and cuts are not kept."""
    said = iter(range(100))
    backend = FakeBackend(lambda _: f"answer {next(said)}")
    wanted = [ask(temperature=t, model=m, sample=s) for t in (0.0, 0.7) for m in ("a", "b") for s in (0, 1)]
    with Client(backend, cache=Cache()) as client:
        first = [answer.text for answer in client.run(client.ask_all(wanted))]
        again = client.run(client.ask_all(wanted))
    assert len(set(first)) == len(backend.requests) == 8
    assert [answer.text for answer in again] == first
    assert all(answer.cached for answer in again)


def test_errors_and_cut_answers_are_asked_again(ask: Callable[..., Request]) -> None:
    """First an error, then an answer cut at the limit, then a whole one, which stays."""
    script: list[str | Exception] = [CallError("no"), "too long " * 100, "short"]

    def play(_: Request) -> str:
        step = script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    with Client(FakeBackend(play), cache=Cache()) as client:
        request = ask(max_tokens=10)
        with pytest.raises(CallError, match="no"):
            client.run(client.ask(request))
        assert client.run(client.ask(request)).finish_reason == "length"
        assert client.run(client.ask(request)).text == "short"
        assert client.run(client.ask(request)).text == "short"
        assert client.cache is not None
        assert len(client.cache) == 1
    assert not script


@pytest.mark.parametrize("reason", ["length", "content_filter", "abort", "error"])
def test_what_is_no_whole_answer_is_not_stored(reason: str) -> None:
    cache = Cache()
    key = key_of(BASE, FakeBackend(str))
    assert cache.put(key, Response("x", reason)).text == "x"
    assert len(cache) == 0


def test_the_key_is_the_whole_request_and_no_label() -> None:
    keys = [key_of(request, FakeBackend(str)).digest for request in (BASE, *OTHERS)]
    assert all(one != other for one, other in combinations(keys, 2))
    assert key_of(replace(BASE, stage="s", query="q"), FakeBackend(str)).digest == keys[0]
    assert key_of(BASE, FakeBackend(str, name="other")).digest not in keys


def test_two_that_ask_at_once_go_on_with_the_same_answer() -> None:
    """The first one stored stays: a replay then finds what both went on with."""
    cache, key = Cache(), key_of(BASE, FakeBackend(str))
    assert cache.put(key, Response("mine")) == Response("mine")
    assert cache.put(key, Response("theirs")) == Response("mine")


def test_a_miss_is_explained() -> None:
    cache, backend = Cache(), FakeBackend(str)
    cache.put(key_of(replace(BASE, temperature=0.7, seed=3), backend), Response("x"))
    cache.put(key_of(replace(BASE, temperature=0.7), backend), Response("x"))
    told = cache.why_missed(key_of(BASE, backend))
    assert told == "the nearest stored answer differs in temperature (0.7, not 0.0)"
    assert "no answer to these messages" in cache.why_missed(key_of(OTHERS[0], backend))


def test_replay_makes_no_call(ask: Callable[..., Request]) -> None:
    backend = FakeBackend(lambda _: "x")
    with Client(backend, cache=Cache()) as client:
        client.run(client.ask(ask()))
    with Client(backend, cache=Cache(), replay=True) as client:
        assert client.run(client.ask(ask())).cached
        with pytest.raises(UserError, match=r"stage 'tourrank', query 'q3': .* differs in max_tokens \(1024, not 7\)"):
            client.run(client.ask(ask(max_tokens=7, stage="tourrank", query="q3")))
    assert len(backend.requests) == 1


FILL = """
import sys
from pathlib import Path
from obliq_models.llm.cache import Cache
from obliq_models.llm.fake import FakeBackend
from obliq_models.llm.protocol import Request, Response, key_of

cache = Cache(Path(sys.argv[1]))
for number in range(150):
    request = Request((("user", "hello"),), "judge", sample=number)
    cache.put(key_of(request, FakeBackend(str)), Response(sys.argv[2]))
"""


def test_processes_share_it(tmp_path: Path) -> None:
    """Four processes make the file and write 150 answers under the same keys: all are there, none twice."""
    path = tmp_path / "c.sqlite"
    workers = [subprocess.Popen([sys.executable, "-c", FILL, str(path), str(number)]) for number in range(4)]
    assert [worker.wait() for worker in workers] == [0] * 4
    assert len(Cache(path)) == 150


def test_a_damaged_file_is_told_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(UserError, match=r"c\.sqlite is damaged \(.*\): delete it or move it away"):
        Cache(path)


def test_a_file_that_breaks_later_is_told(tmp_path: Path) -> None:
    """Every page but the first is overwritten."""
    path = tmp_path / "c.sqlite"
    cache, backend = Cache(path), FakeBackend(str)
    for number in range(100):
        cache.put(key_of(replace(BASE, sample=number), backend), Response("x" * 1000))
    cache.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(UserError, match="is damaged"):
        Cache(path).get(key_of(BASE, backend))


def test_other_databases_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE photographs (name TEXT)")
    other.commit()
    with pytest.raises(UserError, match="something else"):
        Cache(path)
    other.execute("DROP TABLE photographs")
    other.execute("PRAGMA user_version = 9")
    other.commit()
    other.close()
    with pytest.raises(UserError, match="later version"):
        Cache(path)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot"):
        Cache(tmp_path / "file" / "c.sqlite")


def test_it_lies_in_the_home_folder(obliq_home: Path) -> None:
    assert Cache().path == obliq_home / "llm" / "cache.sqlite"


def test_half_a_surrogate_pair_is_stored(ask: Callable[..., Request]) -> None:
    with Client(FakeBackend(lambda _: Response("\udc00")), cache=Cache()) as client:
        request = ask("\ud800")
        assert client.run(client.ask(request)).text == client.run(client.ask(request)).text == "\udc00"
