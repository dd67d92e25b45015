"""Where obliq keeps runs and caches, and how a file gets there whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from glob import escape
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
        UserError: If the disk is full, the folder cannot be written, or `target` is there and no file.
    """
    if target.exists() and not target.is_file():
        raise UserError(f"cannot write {target}: it is there already, and no file")
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

    Where `target` is a link, what it points at is replaced. What a process that was killed has left is removed.

    Raises:
        UserError: If the disk is full or the folder cannot be written.
    """
    try:
        target = target.resolve() if target.is_symlink() else target
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = f"{target.name[:100]}-"
        _clear(target, beside)
        part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".part-{beside}"))
        held = _hold(part)
        part.chmod(0o777 & ~_umask())
        old = part.with_name(part.name.replace(".part-", ".old-", 1))
        try:
            yield part
            for file in part.rglob("*"):  # some libraries write files that nobody else may read
                if file.is_file() and not file.is_symlink():
                    file.chmod((file.stat().st_mode | 0o666) & ~_umask())
            if target.exists():
                target.rename(old)
            part.rename(target)
        finally:
            if old.exists() and not target.exists():  # stopped between the two: what was there stays there
                old.rename(target)
            shutil.rmtree(part, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
            if held is not None:
                os.close(held)
    except OSError as error:
        raise _cannot_write(target, error) from error


def _hold(folder: Path) -> int | None:
    """Return a handle that holds a folder until it is closed or its process ends; None if another holds it."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system: nothing is held, and nothing is cleared
        return None
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held, or a disk that has no locks
        os.close(handle)
        return None
    return handle


def _clear(target: Path, beside: str) -> None:
    """Remove folders for the same target that nobody writes any more."""
    kinds = (".part-", ".old-") if target.exists() else (".part-",)
    for left in [path for kind in kinds for path in target.parent.glob(f"{kind}{escape(beside)}????????")]:
        with suppress(OSError):
            held = _hold(left)
            if held is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(held)


def _cannot_write(target: Path, error: OSError) -> UserError:
    hint = "; free space, or set OBLIQ_HOME to another disk" if error.errno == errno.ENOSPC else ""
    return UserError(f"cannot write {target}: {error.strerror or error}{hint}")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
