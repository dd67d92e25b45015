"""Where obliq keeps runs and caches, and how a file gets there whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator


def home() -> Path:
    """Return `$OBLIQ_HOME`, by default `~/.cache/obliq`."""
    return Path(os.environ.get("OBLIQ_HOME") or Path.home() / ".cache" / "obliq")


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`, and rename it to `target` if the block succeeds.

    Raises:
        UserError: If the disk is full or the folder cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".part-")
        os.close(handle)
        part = Path(name)
        try:
            yield part
            part.chmod(0o666 & ~_umask())
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise _cannot_write(target, error) from error


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `target`, and put it in `target`'s place if the block succeeds.

    Raises:
        UserError: If the disk is full or the folder cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=target.parent, prefix=".part-"))
        part.chmod(0o777 & ~_umask())
        old = part.with_name(part.name.replace(".part-", ".old-"))
        try:
            yield part
            if target.exists():
                target.rename(old)
            part.rename(target)
        finally:
            if old.exists() and not target.exists():  # stopped between the two: what was there stays there
                old.rename(target)
            shutil.rmtree(part, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise _cannot_write(target, error) from error


def _cannot_write(target: Path, error: OSError) -> UserError:
    hint = "; free space, or set OBLIQ_HOME to another disk" if error.errno == errno.ENOSPC else ""
    return UserError(f"cannot write {target}: {error.strerror or error}{hint}")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
