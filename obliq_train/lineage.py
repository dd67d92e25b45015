"""What the manifests beside a file say of where it comes from, back through its inputs as far as they lie there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError
from obliq_eval.fields import parted
from obliq_train import provenance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def manifest_of(path: Path) -> dict[str, Any] | None:
    """Return the manifest beside a file; None where none lies there, or one that cannot be read."""
    try:
        found = json.loads(provenance.manifest_path(path).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("settings"), dict) else None


def lineage(path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield a file and its manifest, then the same of each of its inputs, and so on back.

    An input is looked for where the manifest says, from here and from the manifest's folder, and beside the manifest;
    it counts only if it still has the hash that the manifest holds.
    """
    waiting, seen = [path], set[Path]()
    while waiting:
        one = waiting.pop(0)
        manifest = manifest_of(one)
        if manifest is None or one.resolve() in seen:
            continue
        seen.add(one.resolve())
        yield one, manifest
        named = dict(_mapping(manifest.get("inputs")))
        files = _mapping(manifest["settings"].get("files"))  # `obliq mix` names its parts, and their files beside
        for name, content in named.items():
            place = input_of(one, str(files.get(name, name)), str(content))
            waiting += [place] if place is not None else []


def input_of(path: Path, name: str, content: str) -> Path | None:
    """Return where an input of a file lies, None if no file of this name and content is found."""
    text, _ = parted(name)
    folder = path.parent
    for place in dict.fromkeys((Path(text), folder / text, folder / Path(text).name)):
        try:
            if place.is_file() and provenance.sha256(place) == content:
                return place
        except (OSError, UserError):
            continue
    return None


def graph_of(path: Path) -> Path | None:
    """Return the whole graph that a file of rows was made beside, if its lineage names one that is still there."""
    for one, manifest in lineage(path):
        name = manifest["settings"].get("graph")
        content = _mapping(manifest.get("inputs")).get(name) if isinstance(name, str) else None
        if isinstance(name, str) and isinstance(content, str):
            return input_of(one, name, content)
    return None


def told(path: Path, *keys: str) -> set[str]:
    """Return what the settings in a file's lineage say under a key, in whichever of them it stands.

    Args:
        path: The file.
        keys: The key, and the keys inside it: `llm`, `model`.
    """
    found = set[str]()
    for _, manifest in lineage(path):
        value: Any = manifest["settings"]
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, str | int) and value != "":
            found.add(str(value))
    return found


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
