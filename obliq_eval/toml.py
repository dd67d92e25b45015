"""TOML files that people write: read in one way, and told about in one way."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def read_toml(path: Path, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Return the content of a TOML file; some editors put a byte-order mark first.

    Args:
        path: The file.
        parse_float: What becomes of a number with a point.

    Raises:
        UserError: If it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"), parse_float=parse_float)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a TOML file: {error}") from error
