"""Encoders that ask a server: batches, several requests at once, patience, and a look at what comes back."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np

from obliq_eval.errors import UserError
from obliq_models.encoders.base import Encoded, Encoder, Role
from obliq_models.encoders.retrying import PATIENCE, backoff, pause_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

BUSY = frozenset({408, 409, 425, 429})
"""Statuses that pass, beside those of 500 and more."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """What a server has returned for some texts.

    Args:
        rows: One sequence of numbers for each text, in their order.
        tokens: Tokens that it says it has read.
    """

    rows: Sequence[Any]
    tokens: int = 0


@dataclass(frozen=True)
class Trouble:
    """Why a request was not answered.

    Args:
        what: A clause that goes on from the server's name, such as "refuses (status 503)"; without any secret.
        passing: Whether it may be answered later.
        wait: The seconds that the server asks to wait.
        too_long: Whether the texts are too long, one of them or all together.
    """

    what: str
    passing: bool = False
    wait: float | None = None
    too_long: bool = False


@dataclass(frozen=True)
class Pace:
    """How fast, and for how long, a server is asked; none of it changes a vector.

    Args:
        batch_size: Texts in one request.
        in_flight: Requests under way at once.
        tries: How often a request is made before the server is given up.
        timeout: Seconds to wait for an answer.
        pause: Waits so many seconds, or until the event is set.
    """

    batch_size: int = 50
    in_flight: int = 4
    tries: int = 8
    timeout: float = 120.0
    pause: Callable[[threading.Event, float], None] = pause_until


class RemoteEncoder(Encoder):
    """Encodes through a server; a subclass writes `ask`, `before` and `settings`.

    What passes is tried again, later and later and at slightly random times; a time that the server names is kept. A
    request that is too long as a whole is halved. The number of vectors, their length, and that all are finite is
    checked. A server may cut long texts without saying so, which nobody can count from outside: `cut` is 0.

    What a client raises may hold the request with its key. Subclasses return a `Trouble` instead of raising, so that
    neither a message nor the cause or context of an exception carries it.

    Args:
        name: Full name of the model.
        revision: What identifies these settings.
        dims: Length of the vectors.
        who: The server, for messages.
        normalize: Bring vectors to unit length.
        pace: How fast it is asked.

    Attributes:
        batch_size: Texts in one request.
        repeated: Requests that were made again, so far.
    """

    def __init__(
        self,
        name: str,
        revision: str | None,
        dims: int,
        *,
        who: str,
        normalize: bool = True,
        pace: Pace | None = None,
    ) -> None:
        super().__init__(name, revision, dims)
        self.who, self.normalize = f"{name}: {who}", normalize
        self.pace = pace or Pace()
        self.batch_size = self.pace.batch_size
        self.repeated = 0
        self._lock = threading.Lock()

    @abstractmethod
    def ask(self, texts: list[str], role: Role) -> Answer | Trouble:
        """Make one request, from one of several threads, and raise nothing."""

    @abstractmethod
    def before(self, role: Role, instruction: str) -> str:
        """Return what is put before a text."""

    def run(self, texts: Sequence[str], role: Role, instruction: str) -> Encoded:
        """Encode.

        Raises:
            UserError: If the server cannot be reached, refuses, or answers with something else than asked for.
        """
        before = self.before(role, instruction)
        sent = [(before + text) or " " for text in texts]  # servers refuse empty texts
        stop = threading.Event()
        with ThreadPoolExecutor(self.pace.in_flight, "embeddings") as pool:
            jobs = [
                pool.submit(self._batch, sent[first : first + self.batch_size], role, stop)
                for first in range(0, len(sent), self.batch_size)
            ]
            try:
                done = wait(jobs, return_when=FIRST_EXCEPTION).done
            finally:  # after a failure nothing more is asked
                stop.set()
                for job in jobs:
                    job.cancel()
            parts = [job.result() for job in jobs if job in done]
        self._check_widths(len(row) for part, _ in parts for row in part[:1])
        vectors = np.concatenate([vectors for vectors, _ in parts])
        if self.normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        return Encoded(vectors, tokens=sum(tokens for _, tokens in parts))

    def _batch(self, texts: list[str], role: Role, stop: threading.Event) -> tuple[NDArray[np.float32], int]:
        """Return the vectors and the tokens of one request, or of two where it is too long as a whole."""
        answer = self._patiently(texts, role, stop)
        if isinstance(answer, Answer):
            return self._matrix(answer.rows, len(texts)), answer.tokens
        if len(texts) == 1:
            begins = shorten(texts[0], 60, placeholder=" …")
            told = f"the {role} that begins {begins!r} has {len(texts[0])} characters: shorten it"
            raise UserError(f"{self.who} {answer.what}; {told}")
        logger.info("%s takes no such %d texts at once; they are sent in two parts", self.who, len(texts))
        half = len(texts) // 2
        left, right = (self._batch(part, role, stop) for part in (texts[:half], texts[half:]))
        self._check_widths((left[0].shape[1], right[0].shape[1]))
        return np.concatenate([left[0], right[0]]), left[1] + right[1]

    def _patiently(self, texts: list[str], role: Role, stop: threading.Event) -> Answer | Trouble:
        """Make a request until it is answered, or is too long."""
        for attempt in range(1, self.pace.tries + 1):
            found = self.ask(texts, role)
            if isinstance(found, Answer) or found.too_long:
                return found
            what = f"{self.who} {found.what}"
            if not found.passing:
                raise UserError(what)
            seconds = found.wait if found.wait is not None else backoff(attempt)
            if seconds > PATIENCE:
                raise UserError(f"{what}; it asks to wait {seconds:.0f} s: try again later")
            if attempt == self.pace.tries:
                raise UserError(f"{what}; given up after {attempt} tries: try again later")
            with self._lock:
                self.repeated += 1
            logger.warning("%s; try %d of %d follows in %.1f s", what, attempt + 1, self.pace.tries, seconds)
            self.pace.pause(stop, seconds)
            if stop.is_set():
                break
        raise UserError(f"{self.who} is not asked any more, as another request has failed")

    def _matrix(self, rows: Sequence[Any], asked: int) -> NDArray[np.float32]:
        if len(rows) != asked:
            raise UserError(f"{self.who} returned {len(rows)} vectors for {asked} texts")
        self._check_widths(len(row) if hasattr(row, "__len__") else 0 for row in rows)
        try:
            vectors = np.array([list(row) for row in rows], np.float32)  # null becomes NaN
        except (TypeError, ValueError):
            vectors = np.full((asked, 1), np.nan, np.float32)
        if not np.isfinite(vectors).all():
            raise UserError(f"{self.who} returned a vector that is not a number")
        return vectors

    def _check_widths(self, widths: Any) -> None:
        found = sorted(set(widths))
        if len(found) > 1 or not found[0]:
            raise UserError(f"{self.who} returned vectors of {' and of '.join(map(str, found))} dimensions")
