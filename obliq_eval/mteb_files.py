"""The files that mteb reads and writes beside our own: tried before anything is computed, set aside where damaged."""

from __future__ import annotations

import errno
import json
import logging
import tempfile
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOG = logging.getLogger("obliq")


def check_place(path: Path, option: str, name: str) -> None:
    """Make the folder of a file that mteb will write, and try to write there, before anything is computed.

    Args:
        path: The file.
        option: The option that chose the folder.
        name: The task, after which the file is called.

    Raises:
        UserError: If it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():  # raises where the name is too long
            return
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        if isinstance(error, FileExistsError | NotADirectoryError):
            reason = "there is a file where a folder is needed"
        long = isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG
        hint = f"shorten the name {name}" if long else f"choose another {option}"
        raise UserError(f"cannot write {path}: {reason}; {hint}") from error


def readable(path: Path, read: Callable[[], Any]) -> Any:
    """Return what a file of mteb's holds; one that cannot be read is set aside with a warning, as if it were absent.

    A killed process or a full disk leaves half a file, which mteb would stumble over ever after.
    """
    try:
        return read() if path.exists() else None
    except OSError:
        raise
    except Exception as error:  # mteb raises whatever the content leads to
        aside = path.with_name(f"{path.name}.unreadable")
        path.replace(aside)
        first = (str(error).strip() or "no message").splitlines()[0]
        LOG.warning(
            "%s is no file that mteb can read (%s: %s): it is now %s", path, type(error).__name__, first, aside.name
        )
        return None


def read_predictions(path: Path) -> dict[str, Any]:
    """Return a prediction file of mteb's, to which it adds.

    Raises:
        ValueError: If it is not JSON of objects in an object.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or not all(isinstance(part, dict) for part in content.values()):
        raise ValueError("not one JSON object that holds others")
    return content


def stamp(path: Path) -> int | None:
    """Return when a file was written, in nanoseconds, or None if there is none."""
    return path.stat().st_mtime_ns if path.exists() else None
