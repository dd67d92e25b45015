"""One client around any backend: what is stored is not asked again, limits are kept, failures are counted.

A request passes, from the outside in: the cache (a stored answer costs nothing, not even a place in the queue), the
join of identical requests that are on their way, the concurrency limit, the retries, and the budget, which is inside
the retries since every attempt may cost, and inside the limit since what merely waits must set nothing aside.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from obliq_models.llm.answers import fits
from obliq_models.llm.cache import ReplayError
from obliq_models.llm.ledger import UNNAMED, Ledger
from obliq_models.llm.loop import Loop
from obliq_models.llm.protocol import CallError, key_of
from obliq_models.llm.retry import Retries

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable
    from types import TracebackType

    from obliq_models.llm.budget import Budget
    from obliq_models.llm.cache import Cache
    from obliq_models.llm.protocol import Backend, Key, Request, Response

T = TypeVar("T")
V = TypeVar("V")
CONCURRENCY = 64  # a server that works on 32 at once then always has the next ones at hand


@dataclass(frozen=True)
class Failure:
    """A question to which no answer could be read.

    Args:
        reason: Why, in words, for the last answer.
        attempts: How many answers were looked at.
        text: The beginning of the last one.
    """

    reason: str
    attempts: int
    text: str


class _Call:
    """A call that one or more askers wait for."""

    def __init__(self) -> None:
        self.waiters = 0
        self.sent = False
        self.entered = False  # one of the askers has entered it into the ledger as a call
        self.task: asyncio.Task[Response]


class Client:
    """Asks a backend.

    Everything happens in an event loop of its own (`Loop`): `run` serves synchronous code, and `ask` may be awaited in
    any loop. A client is a context manager.

    Args:
        backend: What answers.
        cache: Where answers are kept; None to keep none.
        budget: Limits on calls, tokens, money; None for no limits.
        concurrency: Calls on their way at once, at most.
        retries: How often and when a failed call is made again.
        replay: Make no calls: an answer that is not stored is an error.
        sleep: Waits some seconds between two attempts.

    Raises:
        ValueError: If `concurrency` is below 1, or a replay has no cache.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        cache: Cache | None = None,
        budget: Budget | None = None,
        concurrency: int = CONCURRENCY,
        retries: Retries | None = None,
        replay: bool = False,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        if concurrency < 1:
            raise ValueError("concurrency must be 1 or more")
        if replay and cache is None:
            raise ValueError("a replay needs a cache")
        self.backend, self.cache, self.budget, self.replay = backend, cache, budget, replay
        self.ledger = Ledger()
        self._retries = retries or Retries()
        self._sleep = sleep
        self._slots = asyncio.Semaphore(concurrency)
        self._calls: dict[str, _Call] = {}
        self._works: set[asyncio.Task[Any] | None] = set()
        self._loop = Loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def counts(self) -> dict[str, int]:
        """What was asked, repaired and given up, for a manifest's counts."""
        beyond = self.budget.beyond if self.budget is not None else 0
        own = {f"{UNNAMED}: {name}": n for name, n in self.backend.counts.items() if n}
        return self.ledger.counts() | own | ({f"{UNNAMED}: calls beyond their token limit": beyond} if beyond else {})

    def stored(self, request: Request) -> bool:
        """Return whether a request's answer is stored, so that it would cost nothing."""
        return self.cache is not None and self.cache.get(key_of(request, self.backend)) is not None

    async def ask(self, request: Request) -> Response:
        """Return the answer to a request: the stored one, or that of one call.

        Raises:
            UserError: If the call fails for good (`CallError`), could pass the budget (`BudgetExceeded`), or may not be
                made (`ReplayError`).
        """
        return await self._loop.here(lambda: self._ask(request))

    async def ask_all(self, requests: Iterable[Request], done: Callable[[], object] | None = None) -> list[Response]:
        """Return the answers in the order of the requests, whatever the order in which they arrive; see `gather`."""
        return await gather((self.ask(request) for request in requests), done)

    async def ask_valid(self, request: Request, parse: Callable[[str], V | None], attempts: int = 3) -> V | Failure:
        """Return what `parse` reads from the answer; ask for the next sample while it reads nothing.

        Unfinished answers are not parsed. Answers that bring nothing, and questions given up, are counted.

        Args:
            request: The request; sample i + 1 is asked for after sample i.
            parse: From an answer's text to what it says, or None if it says nothing that can be used.
            attempts: How many samples are asked for at most.

        Raises:
            UserError: As `ask`.
        """

        async def work() -> V | Failure:
            line = self.ledger.line(request)
            reason = text = ""
            for attempt in range(attempts):
                response = await self._ask(replace(request, sample=request.sample + attempt))
                text = response.text
                if not response.complete:
                    reason = f"the answer is unfinished ({response.finish_reason})"
                    continue
                found = parse(text)
                if found is not None:
                    return found
                line.unparsed += 1
                reason = "the answer is not of the form that was asked for"
            line.failures += 1
            return Failure(reason, attempts, text[:200])

        return await self._loop.here(work)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that asks this client, from synchronous code, and return its result.

        After an error, calls that have been sent are waited for, so that their answers are kept; others are not made.
        After Ctrl-C they are cancelled.

        Raises:
            RuntimeError: If it is called inside a coroutine that this client runs.
        """
        try:
            return self._loop.run(self._whole(work), self._abandon)
        finally:
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()  # it never started; one that did is cancelled in its own thread

    def close(self) -> None:
        """Cancel what is on its way, close the backend and end the thread."""

        async def last() -> None:
            await self._abandon()
            await self.backend.close()

        self._loop.close(last)

    async def _whole(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        self._works.add(task)
        try:
            return await work
        except Exception:
            left = [call.task for call in self._calls.values() if not call.waiters]
            await asyncio.gather(*left, return_exceptions=True)
            raise
        finally:
            self._works.discard(task)

    async def _abandon(self) -> None:
        tasks: list[asyncio.Task[Any]] = [call.task for call in self._calls.values()]
        tasks += [task for task in self._works if task is not None]
        for task in tasks:
            if not task.cancelling():  # a second time would stop its cleaning up
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, request: Request) -> Response:
        key = key_of(request, self.backend)
        if self.cache is not None:
            if (kept := self.cache.get(key)) is not None:
                return self._entered(request, kept)
            if self.replay:
                raise ReplayError(request, self.cache.why_missed(key))
        call = self._calls.get(key.digest) or self._start(key, request)
        call.waiters += 1
        try:
            response = await asyncio.shield(call.task)
        finally:
            call.waiters -= 1
            if not call.waiters and not call.sent:  # nobody wants it, and nothing has been paid for it
                self._forget(key, call)
                call.task.cancel()
        shared, call.entered = call.entered, True
        return self._entered(request, replace(response, cached=True) if shared else response)

    def _entered(self, request: Request, response: Response) -> Response:
        self.ledger.answered(request, response)
        if request.schema is not None and response.complete and not fits(response.text, request.schema):
            self.ledger.line(request).unfit += 1
        return response

    def _start(self, key: Key, request: Request) -> _Call:
        call = _Call()
        call.task = asyncio.create_task(self._fetch(key, request, call))

        def finished(task: asyncio.Task[Response]) -> None:
            self._forget(key, call)
            if not task.cancelled():
                task.exception()  # looked at, since whoever asked may be gone

        call.task.add_done_callback(finished)
        self._calls[key.digest] = call
        return call

    def _forget(self, key: Key, call: _Call) -> None:
        if self._calls.get(key.digest) is call:
            del self._calls[key.digest]

    async def _fetch(self, key: Key, request: Request, call: _Call) -> Response:
        """Make the call, with its retries, and store the answer."""
        async with self._slots:
            self.ledger.begin(request)
            try:
                response = await self._attempts(request, call)
            finally:
                self.ledger.end(request)
        return response if self.cache is None else self.cache.put(key, response)

    async def _attempts(self, request: Request, call: _Call) -> Response:
        attempt = 1
        while True:
            try:
                return await self._once(request, call)
            except CallError as error:
                if not call.waiters:
                    raise
                delay = self._retries.delay(error, attempt)
            self.ledger.line(request).retries += 1
            await self._sleep(delay)
            attempt += 1

    async def _once(self, request: Request, call: _Call) -> Response:
        """Make one attempt, within the budget."""
        worst = None if self.budget is None else await self.budget.reserve(request)
        response, spent = None, True
        start = time.perf_counter()
        call.sent = True
        try:
            response = await self.backend.complete(request)
        except CallError as error:
            spent = error.spent
            raise
        finally:
            call.sent = False
            if self.budget is not None and worst is not None:
                self.budget.settle(request, worst, response, spent=spent)
        return replace(response, seconds=time.perf_counter() - start, cached=False)


async def gather(works: Iterable[Coroutine[Any, Any, T]], done: Callable[[], object] | None = None) -> list[T]:
    """Run coroutines at once and return their results in order.

    Args:
        works: The coroutines.
        done: Called whenever one of them ends.

    Raises:
        BaseException: Whatever the first of them that failed raised, after the others were cancelled.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    if done is not None:
        for task in tasks:
            task.add_done_callback(lambda _: done())
    try:
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        failed = next((task for task in tasks if task.done() and (task.cancelled() or task.exception())), None)
        if failed is not None:
            failed.result()
        return [task.result() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
