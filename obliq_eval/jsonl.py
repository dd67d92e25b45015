"""One line of JSON that others wrote, whatever it holds: a value, or one kind of error."""

from __future__ import annotations

import json
from typing import Any


def value_of(line: str | bytes) -> Any:
    """Return the value of a line of JSON.

    Raises:
        ValueError: If it is none, is nested too deeply, or holds half of a surrogate pair, which UTF-8 cannot.
    """
    try:
        value = json.loads(line)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    escaped = b"\\u" in line if isinstance(line, bytes) else "\\u" in line
    if escaped:
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # UnicodeEncodeError is a ValueError
    return value
