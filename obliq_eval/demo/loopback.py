"""What every demo server owes its users: 127.0.0.1 alone, a thread of its own, and an end when its block ends."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.server import ThreadingHTTPServer
    from types import TracebackType


class Loopback(ABC):
    """A running server; a context manager that serves on 127.0.0.1 until it is left.

    Args:
        port: TCP port, or 0 for any free one.

    Raises:
        OSError: On entry, if the port is taken.
    """

    def __init__(self, port: int = 0) -> None:
        self.closing = threading.Event()
        self._port = port
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    @abstractmethod
    def bind(self, address: tuple[str, int]) -> ThreadingHTTPServer:
        """Return a server that is bound to the address and does not serve yet."""

    def __enter__(self) -> Self:
        self._server = self.bind(("127.0.0.1", self._port))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    @property
    def url(self) -> str:
        """The address that clients are given; known once the server has been entered."""
        return self.root

    @property
    def root(self) -> str:
        """The address without a path; known once the server has been entered."""
        if self._server is None:
            raise RuntimeError(f"the server is not running: enter it with `with {type(self).__name__}(...)` first")
        return f"http://127.0.0.1:{self._server.server_port}"

    def shutdown(self) -> None:
        """Stop answering and free the port; a second call does nothing."""
        if self._server is None or self._thread is None:
            return
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = self._thread = None


def serve(server: Loopback, ready: Callable[[str], None]) -> None:
    """Serve until the process is interrupted; `ready` is told the address once requests are accepted."""
    with server:
        try:
            ready(server.url)
            threading.Event().wait()
        except KeyboardInterrupt:
            return
