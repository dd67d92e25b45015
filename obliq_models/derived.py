"""Models made from one of the table's: the same loader with another checkpoint, or with other settings."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from obliq_eval.catalogue import Loader, ModelEntry, catalogue
from obliq_eval.errors import UserError
from obliq_models.pins import PINS
from obliq_models.repositories import local_base

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

OBLIQ_IR = "obliq_models.retrievers.obliq_ir:load"
DENSE = "obliq_models.retrievers.dense:load"
MINILM = "obliq_models.retrievers.minilm:load"
MINI = "obliq_models.retrievers.mini:load"
PUBLISHED = "obliq_models.retrievers.published:load"
LATE = "obliq_models.retrievers.late:load"
LUAR = "obliq_models.retrievers.authorship:load"
POOLED = "obliq_models.retrievers.authorship:load_pooled"
API = "obliq_models.encoders.api:load"
GEMINI = "obliq_models.encoders.gemini:load"
WITHOUT_WEIGHTS = "obliq_models.retrievers.obliq_ir:without_weights"
CHECKPOINTS: Mapping[str, str] = {
    OBLIQ_IR: OBLIQ_IR,
    WITHOUT_WEIGHTS: OBLIQ_IR,
    MINILM: OBLIQ_IR,
    MINI: OBLIQ_IR,
    **{loader: loader for loader in (DENSE, PUBLISHED, LATE, LUAR, POOLED)},
}
"""What loads a checkpoint of a model, by the model's own loader."""

MARKS = ("adapter_config.json", "config.json", "modules.json")
FIELDS = ("query_prefix", "document_prefix", "query_length", "document_length")
"""Settings that an entry has as fields of its own."""

_OF_THE_PUBLISHED = frozenset({"base", "base_revision", "trust_remote_code", "dims", "path", "repo"})
"""Settings of a published model that say nothing about a checkpoint of one's own."""
_LONGEST = 60


def checkpoint(
    entry: ModelEntry, folder: Path, name: str | None = None, changes: Mapping[str, Any] | None = None
) -> ModelEntry:
    """Return a model of the table with the weights of a folder.

    The revision is the SHA-256 of the folder's content, of the settings, and of the base's content where that is a
    folder too, so that no cache serves vectors of another checkpoint.

    Args:
        entry: The model of the table; its settings and its risk hold on.
        folder: An adapter's folder, or a whole model's.
        name: Full name; by default `local/ALIAS-FOLDER`.
        changes: Settings that differ, by name; those of `FIELDS` included.

    Raises:
        UserError: If the model has no weights that could be replaced, or the folder holds none or cannot be read.
    """
    loader = CHECKPOINTS.get(entry.loader)
    if loader is None:
        raise UserError(
            f"{entry.alias} takes no checkpoint: it is {entry.kind}, and its weights are not to be replaced"
        )
    check_folder(folder)
    settings = {key: value for key, value in entry.settings.items() if key not in _OF_THE_PUBLISHED}
    if entry.loader in {MINILM, MINI}:
        settings |= {"base": catalogue()["minilm"].name, "dtype": "float32"}
    fields, changed = _split(changes or {})
    settings |= changed
    fields = {key: getattr(entry, key) for key in FIELDS} | fields
    told = name or f"local/{entry.alias}-{_tag(folder)}"
    try:
        base, content = _base(folder, settings.get("base"))
        revision = fingerprint(folder, _text({**settings, **fields, "base": content}))
    except OSError as error:
        raise UserError(f"cannot read {error.filename or folder}: {error.strerror}") from error
    return replace(
        entry,
        name=told,
        alias=_alias(told),
        loader=loader,
        revision=revision,
        summary=f"{entry.alias} with the checkpoint {folder.name}",
        base=base,
        base_licence=entry.base_licence if base == entry.base else "",
        data_licence="",
        settings={**settings, "path": str(folder.resolve())},
        dims=None,
        n_parameters=None,
        memory="",
        paper_row=None,
        **fields,
    )


def changed(entry: ModelEntry, name: str, changes: Mapping[str, Any], revision: str | None = None) -> ModelEntry:
    """Return a model of the table under another name, with other settings or of another commit.

    Args:
        entry: The model of the table.
        name: Full name of the new one.
        changes: Settings that differ, by name; those of `FIELDS` included.
        revision: Commit on the hub; by default the entry's.
    """
    fields, settings = _split(changes)
    fields = {key: getattr(entry, key) for key in FIELDS} | fields
    at = revision or entry.revision
    settings = {**entry.settings, **settings}
    return replace(
        entry,
        name=name,
        alias=_alias(name),
        loader="obliq_models.derived:load",
        revision=hashlib.sha256(_text({**settings, **fields, "model": entry.name, "at": at}).encode()).hexdigest(),
        summary=f"{entry.alias} with settings of one's own",
        settings={**settings, "loader": entry.loader, "of": entry.name, "at": at},
        dims=settings.get("dimensions", entry.dims),
        paper_row=None,
        **fields,
    )


def load(name: str, revision: str | None = None, *, loader: str, of: str, at: str, **settings: Any) -> Any:  # noqa: ARG001 -- a loader's form
    """Load a model of the table with changed settings.

    Args:
        name: What it is called now.
        revision: What identifies it now.
        loader: The model's own loader.
        of: What it is called in the table.
        at: Its revision there.
        **settings: See the loader.
    """
    return Loader(loader)(of, revision=at, **settings)


def check_folder(folder: Path) -> None:
    """Make sure that a folder holds a model or an adapter.

    Raises:
        UserError: If it does not, or cannot be read.
    """
    if "\0" in str(folder):
        raise UserError(f"{str(folder)!r} cannot be a folder, it holds a NUL character")
    try:
        if any((folder / mark).is_file() for mark in MARKS):
            return
    except OSError as error:
        raise UserError(f"cannot read {folder}: {error.strerror}") from error
    raise UserError(f"{folder} holds no model (neither config.json, modules.json nor adapter_config.json)")


def fingerprint(folder: Path, settings: str = "") -> str:
    """Return the SHA-256 of a folder's files, their names, and the settings.

    Hidden files and folders are left out; what a link points to counts as if it lay in the link's place.

    Raises:
        UserError: If a link leads back to a folder that it is in.
    """
    total = hashlib.sha256(settings.encode())
    for inside, file in sorted(_files(folder, ())):
        with file.open("rb") as content:
            total.update(f"\n{inside}\t{hashlib.file_digest(content, 'sha256').hexdigest()}".encode("utf-8", "replace"))
    return total.hexdigest()


def _files(folder: Path, above: tuple[Path, ...]) -> Iterator[tuple[str, Path]]:
    """Yield a folder's files with their paths inside it, those behind links included."""
    here = folder.resolve()
    if here in above:
        raise UserError(f"{folder} is a link to a folder that it is in: take it out of the model's folder")
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from ((f"{path.name}/{inside}", file) for inside, file in _files(path, (*above, here)))
        elif path.is_file():
            yield path.name, path


def _base(folder: Path, given: str | None) -> tuple[str, str]:
    """Return the base of an adapter, and what identifies its content; both empty for a whole model.

    Args:
        folder: The checkpoint.
        given: What the settings say.
    """
    config = folder / "adapter_config.json"
    if not config.is_file():
        return "", ""
    try:
        told = json.loads(config.read_text("utf-8")).get("base_model_name_or_path")
    except (ValueError, AttributeError) as error:
        raise UserError(f"{config} is no configuration of an adapter: {error}") from error
    base = given or str(told or "")
    if base == (packaged := catalogue()["minilm"]).name:
        return base, packaged.revision
    if place := local_base(base, folder):
        return base, fingerprint(place)
    commit = PINS.get(base)
    named = f"{base}@{commit}" if commit else base
    return named, named


def _split(changes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the changes of an entry's own fields, and those of the loader's settings."""
    fields = {key: value for key, value in changes.items() if key in FIELDS}
    return fields, {key: value for key, value in changes.items() if key not in FIELDS}


def _text(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, ensure_ascii=False)


def _tag(folder: Path) -> str:
    """Return a folder's name as part of a model's."""
    tag = re.sub(r"[^\w.-]+", "-", folder.resolve().name)
    return re.sub(r"_{2,}", "_", tag).removesuffix(".toml").strip("-_")[:_LONGEST] or "checkpoint"


def _alias(name: str) -> str:
    """Return the last part of a name, unless that is what another model is called."""
    alias = name.rpartition("/")[2]
    return f"local-{alias}" if alias in catalogue() and catalogue()[alias].name != name else alias
