"""One call for each question, results in order, failures told and counted, whoever calls from wherever."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from obliq_models.llm.answers import ranking, ranking_schema
from obliq_models.llm.budget import Budget, BudgetExceeded
from obliq_models.llm.cache import Cache
from obliq_models.llm.client import Client, Failure, gather
from obliq_models.llm.fake import FakeBackend
from obliq_models.llm.protocol import Backend, CallError, Request, Response
from obliq_models.llm.retry import Retries

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


async def at_once(_: float) -> None:
    """Wait no time at all."""
    await asyncio.sleep(0)


def echo(request: Request) -> str:
    return request.messages[-1][1].upper()


def test_answers_come_in_the_order_of_the_requests(ask: Callable[..., Request]) -> None:
    """Though the first is answered last."""
    waits = iter([0.05, 0.03, 0.01, 0.0])
    ended: list[str] = []

    async def play(request: Request) -> str:
        await asyncio.sleep(next(waits))
        ended.append(request.messages[0][1])
        return echo(request)

    done: list[None] = []
    with Client(FakeBackend(play)) as client:
        found = client.run(client.ask_all([ask(text) for text in "abcd"], lambda: done.append(None)))
    assert [answer.text for answer in found] == ["A", "B", "C", "D"]
    assert ended == ["d", "c", "b", "a"]
    assert len(done) == 4


def test_no_more_calls_at_once_than_allowed(ask: Callable[..., Request]) -> None:
    active, most = 0, 0

    async def play(request: Request) -> str:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await asyncio.sleep(random.random() / 500)
        active -= 1
        return echo(request)

    with Client(FakeBackend(play), concurrency=3) as client:
        client.run(client.ask_all([ask(str(number)) for number in range(20)]))
    assert most == 3


def test_the_same_question_at_once_is_one_call(ask: Callable[..., Request]) -> None:
    """Ten askers under two labels: one call, nine answers without."""
    backend = FakeBackend(echo)
    with Client(backend) as client:
        found = client.run(client.ask_all([ask(query=f"q{number % 2}") for number in range(10)]))
        assert sum(answer.cached for answer in found) == 9
        assert client.ledger.total().calls == 1
    assert len(backend.requests) == 1


def test_an_asker_that_leaves_does_not_take_the_call_along(ask: Callable[..., Request]) -> None:
    backend = FakeBackend(echo)

    async def work(client: Client) -> str:
        first = asyncio.ensure_future(client.ask(ask()))
        second = asyncio.ensure_future(client.ask(ask()))
        await asyncio.sleep(0)
        first.cancel()
        return (await second).text

    with Client(backend) as client:
        assert client.run(work(client)) == "HELLO"
        assert client.ledger.total().calls == 1


def test_failed_calls_are_made_again(ask: Callable[..., Request]) -> None:
    """Two failures, then an answer; the waits are those that the retries name."""
    waits: list[float] = []
    script: list[Any] = [CallError("busy", retriable=True, retry_after="7"), CallError("gone", retriable=True), "yes"]

    def play(_: Request) -> str:
        step = script.pop(0)
        if isinstance(step, CallError):
            raise step
        return str(step)

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    with Client(FakeBackend(play), sleep=sleep) as client:
        assert client.run(client.ask(ask(stage="s"))).text == "yes"
        assert client.counts["s: repeated calls"] == 2
    assert 7 <= waits[0] <= 8
    assert 1 <= waits[1] <= 2


def test_final_errors_are_told_at_once(ask: Callable[..., Request]) -> None:
    def play(_: Request) -> str:
        raise CallError("refused")

    backend = FakeBackend(play)
    with Client(backend, sleep=at_once) as client, pytest.raises(CallError, match="refused"):
        client.run(client.ask(ask()))
    assert len(backend.requests) == 1


def test_attempts_end(ask: Callable[..., Request]) -> None:
    def play(_: Request) -> str:
        raise CallError("busy", retriable=True)

    backend = FakeBackend(play)
    client = Client(backend, sleep=at_once, retries=Retries(attempts=4))
    with client, pytest.raises(CallError, match=r"busy \(4 attempts\)"):
        client.run(client.ask(ask()))
    assert len(backend.requests) == 4


def test_after_an_error_what_was_sent_is_kept_and_nothing_more_is_sent(ask: Callable[..., Request]) -> None:
    """Four places: one fails while three are answered; of twenty requests none else is sent, and the three are kept."""

    async def play(request: Request) -> str:
        if request.messages[0][1] == "0":
            raise CallError("refused")
        await asyncio.sleep(0.02)
        return echo(request)

    backend, cache = FakeBackend(play), Cache()
    with Client(backend, cache=cache, concurrency=4) as client:
        with pytest.raises(CallError, match="refused"):
            client.run(client.ask_all([ask(str(number)) for number in range(20)]))
        assert len(backend.requests) <= 5  # the place of the one that failed may have been taken once
        assert len(cache) == len(backend.requests) - 1


def test_a_budget_stops_before_its_limit_and_a_second_run_goes_on(ask: Callable[..., Request]) -> None:
    """Seven calls of ten are paid for; the rest is asked for with the next budget, and nothing twice."""
    backend, cache = FakeBackend(echo), Cache()
    wanted = [ask(str(number), stage="s", query=f"q{number}") for number in range(10)]
    with Client(backend, cache=cache, budget=Budget(calls=7)) as client:
        with pytest.raises(
            BudgetExceeded, match=r"7 calls could be passed by the next call \(stage 's', query 'q\d'\)"
        ):
            client.run(client.ask_all(wanted))
        assert client.budget is not None
        assert client.budget.spent.calls == len(backend.requests) == len(cache) == 7
    with Client(backend, cache=cache, budget=Budget(calls=3)) as client:
        assert [answer.text for answer in client.run(client.ask_all(wanted))] == [str(number) for number in range(10)]
    assert len(backend.requests) == 10


def test_answers_that_cannot_be_read_are_asked_for_again(ask: Callable[..., Request]) -> None:
    """Sample 0 says nothing, sample 1 is cut, sample 2 ranks."""
    said = {0: Response("no idea"), 1: Response("[2] >", "length"), 2: Response("[2] > [1]")}
    with Client(FakeBackend(lambda request: said[request.sample])) as client:
        found = client.run(client.ask_valid(ask(stage="s"), lambda text: ranking(text, 2)))
        assert found == [2, 1]
        counts = client.counts
    assert counts["s: calls"] == 3
    assert counts["s: unfinished answers"] == counts["s: answers that could not be read"] == 1
    assert "s: failed questions" not in counts


def test_questions_are_given_up(ask: Callable[..., Request]) -> None:
    with Client(FakeBackend(lambda _: "no idea")) as client:
        found = client.run(client.ask_valid(ask(stage="s"), lambda text: ranking(text, 2), attempts=2))
        assert found == Failure("the answer is not of the form that was asked for", 2, "no idea")
        assert client.counts["s: failed questions"] == 1
    with Client(FakeBackend(lambda _: Response("[2] > [1]", "length"))) as client:
        cut = client.run(client.ask_valid(ask(), lambda text: ranking(text, 2), attempts=1))
        assert isinstance(cut, Failure)
        assert cut.reason == "the answer is unfinished (length)"


def test_an_ignored_schema_is_counted(ask: Callable[..., Request]) -> None:
    with Client(FakeBackend(lambda _: "[2] > [1]")) as client:
        client.run(client.ask(ask(schema=ranking_schema(2), stage="s")))
        assert client.counts["s: answers without the schema asked for"] == 1


def test_it_is_called_from_anywhere(ask: Callable[..., Request]) -> None:
    """From a running loop, synchronously and awaited; from threads; and from a coroutine of its own."""
    with Client(FakeBackend(echo)) as client:

        async def outside() -> list[str]:
            inside = await client.ask(ask("awaited"))
            return [client.run(client.ask(ask("run"))).text, inside.text]

        assert asyncio.run(outside()) == ["RUN", "AWAITED"]

        found: list[str] = []
        threads = [
            threading.Thread(target=lambda n=number: found.append(client.run(client.ask(ask(f"t{n}"))).text))
            for number in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == sorted(f"T{number}" for number in range(8))

        async def nested() -> str:
            first = await client.ask(ask("one"))
            return (await client.ask(ask(first.text + "two"))).text

        assert client.run(gather([nested(), nested()])) == ["ONETWO", "ONETWO"]


def test_waiting_for_oneself_is_an_error(ask: Callable[..., Request]) -> None:
    with Client(FakeBackend(echo)) as client:

        async def nested() -> str:
            return client.run(client.ask(ask())).text

        with pytest.raises(RuntimeError, match="await instead"):
            client.run(nested())


def test_gather_raises_the_first_error_and_stops_the_rest() -> None:
    stopped: list[int] = []

    async def work(number: int) -> int:
        try:
            await asyncio.sleep(0 if number == 1 else 30)
        except asyncio.CancelledError:
            stopped.append(number)
            raise
        raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        asyncio.run(gather([work(0), work(1), work(2)]))
    assert stopped == [0, 2]
    assert asyncio.run(gather([])) == []


def test_the_fake_is_a_backend() -> None:
    assert isinstance(FakeBackend(echo), Backend)


SCRIPT = """
import asyncio, sys
from pathlib import Path
from obliq_models.llm.cache import Cache
from obliq_models.llm.client import Client
from obliq_models.llm.fake import FakeBackend
from obliq_models.llm.protocol import Request

async def play(request):
    if request.messages[0][1] == "slow":
        print("waiting", flush=True)
        await asyncio.sleep(3600)
    return "done"

client = Client(FakeBackend(play), cache=Cache(Path(sys.argv[1])), concurrency=2)
wanted = [Request((("user", text),), "m") for text in ("a", "b", "slow", "c")]
try:
    client.run(client.ask_all(wanted))
except KeyboardInterrupt:
    print("stopped with", len(client.cache), flush=True)
    client.close()
"""


def test_after_ctrl_c_nothing_is_left_running() -> None:
    """Work that takes a while to end, with no call on its way, has ended when `run` is left, and nothing complains."""
    said: list[object] = []
    ended: list[bool] = []

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        await asyncio.sleep(0.3)  # until the main thread waits, which is what is interrupted
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.2)
            ended.append(True)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background shells have it ignored
    try:
        with Client(FakeBackend(lambda _: "")) as client:
            with pytest.raises(KeyboardInterrupt):
                client.run(work())
            assert ended == [True]
    finally:
        signal.signal(signal.SIGINT, before)
    gc.collect()
    assert said == []


def test_ctrl_c_stops_it_and_keeps_what_is_done(tmp_path: Path) -> None:
    """Three answers are stored while the fourth never comes."""
    environment = {**os.environ, "PYTHONWARNINGS": "error", "PYTHONASYNCIODEBUG": "0"}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "c.sqlite")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    cache = Cache(tmp_path / "c.sqlite")
    while len(cache) < 3:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == ("stopped with 3\n", "", 0)
