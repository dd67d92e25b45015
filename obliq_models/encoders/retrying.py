"""How long to wait before a server is asked again, and how its address may be shown."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import threading

LONGEST_WAIT = 60.0
"""Seconds between two tries, where the server does not name a time of its own."""
PATIENCE = 600.0
"""Seconds; a server that asks to wait longer is given up."""


def pause_until(stop: threading.Event, seconds: float) -> None:
    """Wait so many seconds, or until the event is set."""
    stop.wait(seconds)


def backoff(attempt: int) -> float:
    """Return the seconds to wait after this many tries: up to 1, doubled each time, less a random part of up to half.

    The random part keeps requests that failed together from coming back together.
    """
    return float(min(LONGEST_WAIT, 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.0))  # noqa: S311 -- no secret


def seconds_to_wait(header: str | None) -> float | None:
    """Return the seconds that `Retry-After` names, as a number or as a date (RFC 9110, section 10.2.3).

    Args:
        header: Its value; None, or anything malformed, gives None.
    """
    if not header:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(header)
    except ValueError:
        return None
    zoned = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (zoned - datetime.now(UTC)).total_seconds())


def shown(address: str) -> str:
    """Return an address without user, password, query and fragment, any of which may be a secret.

    Raises:
        ValueError: If its port is no number.
    """
    parts = urlsplit(address)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"
