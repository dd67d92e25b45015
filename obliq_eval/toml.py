"""TOML files that people write: read in one way, and told about in one way."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


DEEPEST = 20
"""Levels of tables and arrays; no file of ours has more than four."""


def read_toml(path: Path, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Return the content of a TOML file; some editors put a byte-order mark first.

    Args:
        path: The file.
        parse_float: What becomes of a number with a point.

    Raises:
        UserError: If it cannot be read, or is not TOML.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"), parse_float=parse_float)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except RecursionError as error:
        raise UserError(f"{path} nests its tables or arrays too deeply") from error
    except ValueError as error:  # no TOML, no UTF-8, a number of 5,000 digits, a NUL in the path
        raise UserError(f"{path} is not a TOML file: {error}") from error
    if _deeper(found, DEEPEST):
        raise UserError(f"{path} nests its tables or arrays too deeply")
    return found


def _deeper(value: object, levels: int) -> bool:
    """Tell whether a value has more levels of tables and arrays than these."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return bool(inner) and (levels == 0 or any(_deeper(one, levels - 1) for one in inner))
