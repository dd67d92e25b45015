"""The folder beside an adapter that is being trained: whose run it is, and which of its checkpoints are whole."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import SHOWN, UserError
from obliq_eval.home import whole_file
from obliq_train.provenance import sha256
from obliq_train.recipe_files import flat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

SEAL = "whole.json"
"""Written last into a checkpoint: its step, and the size and the SHA-256 of each of its files."""
PART = ".part"
_NAME = re.compile(r"checkpoint-(\d+)")
_MISSING = object()


@dataclass(frozen=True)
class Folder:
    """`OUTPUT-run`: everything that a killed run needs to go on.

    Args:
        path: The folder.
    """

    path: Path

    @classmethod
    def beside(cls, output: Path) -> Folder:
        """Return the folder of the run that makes an output."""
        return cls(Path(f"{output}-run"))

    @property
    def identity(self) -> Path:
        """The file that says whose run it is."""
        return self.path / "run.json"

    @property
    def lock(self) -> Path:
        """The file that a process holds while it works here; it is written before anything else, and stays."""
        return self.path / ".lock"

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints are."""
        return self.path / "checkpoints"

    @property
    def curves(self) -> Path:
        """The file of loss, rate and dev scores."""
        return self.path / "curves.jsonl"

    @property
    def tensorboard(self) -> Path:
        """Where TensorBoard finds them."""
        return self.path / "tensorboard"

    @property
    def part(self) -> Path:
        """Where a checkpoint is before it is whole."""
        return self.checkpoints / PART

    def newest(self) -> Path | None:
        """Return the newest whole checkpoint, or None; what was cut short or damaged is passed over."""
        return self.resumed()[0]

    def resumed(self) -> tuple[Path | None, list[str]]:
        """Return the newest whole checkpoint, or None, and the names of the newer ones that are passed over."""
        broken: list[str] = []
        for _, path in sorted(self.all(), reverse=True):
            if whole(path):
                return path, broken
            broken.append(path.name)
        return None, broken

    def check_own(self) -> None:
        """Refuse a folder that no training of ours has begun, or whose checkpoints belong to nobody knows what.

        Raises:
            UserError: If it is one of these.
        """
        end = "move it away, or give another --output"
        if self.path.is_dir() and any(self.path.iterdir()) and not (self.lock.is_file() or self.identity.is_file()):
            raise UserError(f"{self.path} holds something that `obliq train` did not write: {end}")
        if self.checkpoints.is_dir() and any(self.checkpoints.iterdir()) and not self.identity.is_file():
            raise UserError(
                f"{self.checkpoints} holds something, and no {self.identity.name} says that `obliq train` wrote it: "
                f"{end}"
            )

    def begin(self) -> None:
        """Remove what a process that was killed has left of an unfinished checkpoint."""
        shutil.rmtree(self.part, ignore_errors=True)

    def keep(self, step: int, most: int) -> Path:
        """Seal the checkpoint that lies in `part`, put it in its place, and remove the oldest.

        Args:
            step: Its step.
            most: How many whole checkpoints are kept.

        Raises:
            OSError: If it cannot be written.
        """
        name = f"checkpoint-{step}"
        made, target = self.part / name, self.checkpoints / name
        files = sorted(file for file in made.rglob("*") if file.is_file())
        told = {str(file.relative_to(made)): {"bytes": file.stat().st_size, "sha256": sha256(file)} for file in files}
        (made / SEAL).write_text(json.dumps({"step": step, "files": told}, indent=2) + "\n", "utf-8")
        shutil.rmtree(target, ignore_errors=True)  # one that was not whole
        made.rename(target)
        shutil.rmtree(self.part, ignore_errors=True)
        for path in [path for _, path in sorted(self.all()) if complete(path)][:-most]:
            shutil.rmtree(path, ignore_errors=True)
        return target

    def all(self) -> Iterator[tuple[int, Path]]:
        """Yield the checkpoints, whole or not, with their steps."""
        for path in self.checkpoints.glob("checkpoint-*"):
            if found := _NAME.fullmatch(path.name):
                yield int(found[1]), path


def whole(checkpoint: Path) -> bool:
    """Tell whether a checkpoint's files are all there, and what they were when it was written."""
    return _sealed(checkpoint, lambda file, told: sha256(file) == told["sha256"])


def complete(checkpoint: Path) -> bool:
    """Tell whether a checkpoint's files are all there, and as long as they were; gigabytes are not read for it."""
    return _sealed(checkpoint, lambda file, told: file.stat().st_size == told["bytes"])


def _sealed(checkpoint: Path, same: Callable[[Path, Mapping[str, Any]], bool]) -> bool:
    try:
        seal = json.loads((checkpoint / SEAL).read_text("utf-8"))
        files = seal["files"]
        own = bool(files) and seal["step"] == step_of(checkpoint)
        return own and all(same(checkpoint / name, told) for name, told in files.items())
    except (OSError, ValueError, AttributeError, TypeError, KeyError, RecursionError, UserError):
        return False


def why(error: Exception) -> str:
    """Return why something could not be written, in a few words, whatever kind of error a library raises for it."""
    return shorten(str(getattr(error, "strerror", None) or error), 200, placeholder=" …") or type(error).__name__


def step_of(checkpoint: Path) -> int:
    """Return the step after which a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


@contextmanager
def alone(folder: Folder) -> Iterator[None]:
    """Hold the run's folder against a second process with the same output."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder.lock, is_singleton=True)  # whoever holds it here may take it again
    try:
        folder.checkpoints.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise UserError(
            f"another process is training in {folder.path}: wait for it, or give another --output"
        ) from error
    except OSError as error:
        raise UserError(f"cannot write {folder.path}: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()


def clear(folder: Folder, output: Path) -> None:
    """Remove an adapter, and of its run whatever depends on rows or recipe; the same rows are found again.

    Of an output that is a link, what it points at is removed.

    Raises:
        UserError: If something cannot be removed; what the checkpoints belong to is then still known.
    """
    try:
        for place in (*(path for _, path in folder.all()), folder.part):
            _remove(place)
        for file in (*folder.tensorboard.glob("events.out.tfevents.*"), folder.identity, folder.curves):
            file.unlink(missing_ok=True)
        _remove(output.resolve())
    except OSError as error:
        raise UserError(f"cannot remove {error.filename or folder.path}: {error.strerror or error}") from error


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def claim(folder: Folder, identity: Mapping[str, Any]) -> None:
    """Write whose run this is, or make sure that it is the same as before.

    Args:
        folder: The run's folder.
        identity: `digest`, `rows` and `edges`, hashes; `recipe`, what the digest is of, as JSON values; and whatever
            else a checkpoint depends on, as single values.

    Raises:
        UserError: If checkpoints of another run are there; the message names what differs.
    """
    check(folder, identity)
    if not folder.identity.is_file():
        with whole_file(folder.identity) as part:
            part.write_text(json.dumps(identity, indent=2, ensure_ascii=False) + "\n", "utf-8")


def check(folder: Folder, known: Mapping[str, Any]) -> None:
    """Make sure that a run's folder is nobody's yet, or the same run's as far as its identity is known.

    Args:
        folder: The run's folder.
        known: An identity, or some of its values.

    Raises:
        UserError: If it is another run's; the message names what differs.
    """
    wanted = json.loads(json.dumps(known))  # as it comes back from the file
    path = folder.identity
    if not path.is_file():
        return
    try:
        found = json.loads(path.read_text("utf-8"))
        if not isinstance(found, dict) or not isinstance(found.get("recipe", {}), dict):
            raise ValueError  # noqa: TRY301 -- as if it were no JSON
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path}: give --fresh to begin again, or another --output") from error
    told = list(_differences({key: value for key, value in found.items() if key in wanted}, wanted))
    if told:
        more = [f"and {len(told) - SHOWN} more"] if len(told) > SHOWN else []
        raise UserError(
            f"{folder.path} is the run of another recipe or of other rows: {', '.join([*told[:SHOWN], *more])}; "
            "give another --output, or --fresh to begin again"
        )


def _differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs, recipes by their keys; nothing if only what changes no weight does."""
    if found.get("digest") != wanted.get("digest"):
        old, new = (dict(flat(one.get("recipe") or {})) for one in (found, wanted))
        keys = [key for key in {**old, **new} if old.get(key, _MISSING) != new.get(key, _MISSING)]
        yield from (f"{key} was {_shown(old, key)} and is {_shown(new, key)}" for key in keys)
        if not keys:
            yield "the recipe (it was written by another version of obliq)"
    for key in [key for key in {**found, **wanted} if key not in {"digest", "recipe"}]:
        if found.get(key) != wanted.get(key):
            hashes = key in {"rows", "edges"}
            yield f"the {key}" if hashes else f"{key} was {_shown(found, key)} and is {_shown(wanted, key)}"


def _shown(table: Mapping[str, Any], key: str) -> str:
    return json.dumps(table[key], ensure_ascii=False)[:60] if key in table else "not there"
