"""A file that training writes, whole or not at all, with a manifest beside it that says what made it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError
from obliq_eval.fields import parted
from obliq_eval.home import whole_file
from obliq_eval.manifest import hardware, now, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

SUFFIX = ".manifest.json"


def manifest_path(path: Path) -> Path:
    """Return where the manifest of a file lies."""
    return path.with_name(path.name + SUFFIX)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes.

    Raises:
        UserError: If it cannot be read.
    """
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def check_output(path: Path, *references: str | Path | None) -> None:
    """Refuse an output that cannot be a file, or that would take the place of an input, before any work is done.

    Args:
        path: The file that is to be written.
        references: What is read, each FILE, FILE#NAME, a folder or a task.

    Raises:
        UserError: If it is a folder, or one of the inputs; its manifest as well.
    """
    if path.is_dir() or (path.exists() and not path.is_file()):  # a device would be replaced, not written to
        raise UserError(f"{path} is {'a folder' if path.is_dir() else 'no ordinary file'}: give --output a file's name")
    read = [Path(place) for text in map(str, filter(None, references)) for place in (text, parted(text)[0])]
    read = [place.resolve() for place in read if place.is_file()]
    for target in (path, manifest_path(path)):
        if target.resolve() in read:
            raise UserError(f"{target} is one of the inputs: choose another --output")


def inputs(*references: str | Path | None) -> dict[str, str]:
    """Return `{FILE or FILE#NAME as given: SHA-256 of the file}` of those that are given."""
    given = [str(reference) for reference in references if reference]
    files = {text: Path(parted(text)[0]) for text in given}
    return {text: sha256(path) for text, path in files.items()}


def write(
    path: Path,
    lines: Iterable[str],
    *,
    command: str,
    settings: Mapping[str, Any],
    inputs: Mapping[str, str],
    seed: int | None = None,
    counts: Callable[[], Mapping[str, int]] = dict,
) -> dict[str, Any]:
    """Write lines, then the manifest, and return the manifest.

    The lines hold no times, so that the same inputs, settings and seed give the same bytes; the manifest says when and
    where.

    Args:
        path: The file.
        lines: Each with its line end.
        command: What made it, such as `obliq graph`.
        settings: Whatever can change the file, as JSON values.
        inputs: `{name: hash}` of what was read.
        seed: The seed, if one was used.
        counts: Called once all lines are written: whatever was dropped, cut or repaired, by its name.

    Raises:
        UserError: If the disk is full or the folder cannot be written.
    """
    total, written = hashlib.sha256(), 0
    with whole_file(path) as part, part.open("wb") as stream:
        for line in lines:
            try:
                data = line.encode()
            except UnicodeEncodeError as error:
                raise UserError(
                    f"{path} is not written: its line {written + 1} would hold half of a surrogate pair, "
                    f"{line[error.start].encode('unicode_escape').decode()}; take it out of what is read"
                ) from error
            stream.write(data)
            total.update(data)
            written += 1
    made = {
        "file": path.name,
        "content": total.hexdigest(),
        "lines": written,
        "command": command,
        "settings": dict(settings),
        "inputs": dict(inputs),
        "seed": seed,
        "counts": dict(counts()),
        "versions": versions(),
        "created": now(),
        "hardware": hardware(),
    }
    with whole_file(manifest_path(path)) as part:
        part.write_text(json.dumps(made, indent=2, ensure_ascii=False, default=str) + "\n", "utf-8")
    return made
