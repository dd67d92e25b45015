"""When a call that failed is made again, and after how long."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from obliq_models.llm.protocol import CallError

if TYPE_CHECKING:
    from collections.abc import Callable

RETRIABLE = frozenset({408, 409, 429})
"""HTTP statuses below 500 after which the same call may succeed; every status from 500 on is another."""


def retriable(status: int) -> bool:
    """Return whether a call that ended with this HTTP status may succeed later."""
    return status in RETRIABLE or status >= 500


@dataclass(frozen=True)
class Retries:
    """How often, and how long between: exponential with jitter, never earlier than the server asks.

    Args:
        attempts: Calls in all, the first included.
        base: Seconds before the second call, at most.
        cap: Longest wait of our own choosing, in seconds.
        longest: Longest wait that a server's `Retry-After` may ask for; beyond it the call fails.
    """

    attempts: int = 6
    base: float = 1.0
    cap: float = 60.0
    longest: float = 900.0

    def delay(
        self,
        error: CallError,
        attempt: int,
        chance: Callable[[], float] = random.random,
        now: Callable[[], float] = time.time,
    ) -> float:
        """Return the seconds to wait after a failed attempt.

        Args:
            error: How it failed.
            attempt: Which attempt it was, from 1.
            chance: Uniform numbers from 0 to 1.
            now: Seconds since 1970, against which a date in `Retry-After` is held.

        Raises:
            CallError: If the error is final, the attempts are used up, or the server asks for too long a wait.
        """
        if not error.retriable:
            raise error
        if attempt >= self.attempts:
            raise CallError(f"{error} ({attempt} attempts)", spent=error.spent) from error
        asked = wait_asked(error.retry_after, now())
        if asked is not None and asked > self.longest:
            raise CallError(
                f"{error}; the server asks to wait for {asked:,.0f} seconds, longer than the {self.longest:,.0f} that "
                "are waited: run it again later, finished answers are kept"
            ) from error
        # Half of it fixed, half of it chance: calls that failed together are not repeated together.
        own = min(self.cap, self.base * 2.0 ** (attempt - 1)) * (0.5 + 0.5 * chance())
        return own if asked is None else asked + min(own, self.base)


def wait_asked(header: str | None, now: float) -> float | None:
    """Return the seconds that a `Retry-After` header asks for (RFC 9110, section 10.2.3), or None if it says nothing.

    Args:
        header: Seconds or an HTTP date; anything else counts as no header.
        now: Seconds since 1970.
    """
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return None
        return max(0.0, seconds)
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
