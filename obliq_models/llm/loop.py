"""An event loop in a thread of its own: synchronous code may call it from any thread, and from inside another loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

T = TypeVar("T")
GRACE = 10.0  # seconds that calls on their way are given to be cancelled


class Loop:
    """Runs coroutines in one thread, which starts with the first of them.

    Connections and everything else that belongs to an event loop so outlive a single `run`, and `run` works where a
    loop runs already (notebooks, asynchronous servers), which `asyncio.run` does not.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def run(self, work: Coroutine[Any, Any, T], stop: Callable[[], Coroutine[Any, Any, None]] | None = None) -> T:
        """Run a coroutine to its end and return its result.

        Args:
            work: The coroutine.
            stop: What is run, for at most `GRACE` seconds, if the caller is interrupted (Ctrl-C), after the coroutine
                has been cancelled.

        Raises:
            RuntimeError: If it is called from a coroutine that runs in this loop, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("run() inside a coroutine that runs there already would wait for itself: await instead")
        loop, future = self._started(), None
        try:
            future = asyncio.run_coroutine_threadsafe(work, loop)
            return future.result()
        except (KeyboardInterrupt, SystemExit):
            if future is not None:
                future.cancel()
            if stop is not None:
                with suppress(TimeoutError):  # what does not stop ends with the process
                    asyncio.run_coroutine_threadsafe(stop(), self._started()).result(GRACE)
            raise
        except CancelledError:
            raise RuntimeError("the work was cancelled: its client was closed") from None

    async def here(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in this loop and await it from whatever loop is running."""
        loop = self._started()
        if asyncio.get_running_loop() is loop:
            return await make()
        waiting: Awaitable[T] = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(make(), loop))
        return await waiting

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a last coroutine and end the thread; nothing if it never started."""
        if self._loop is None or self._thread is None:
            return
        loop, thread = self._loop, self._thread
        self.run(last())
        self._loop = self._thread = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join(GRACE)
        loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="obliq-llm", daemon=True)
                self._thread.start()
            return self._loop
