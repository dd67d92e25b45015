"""What may stand after `-m`: a name, a checkpoint of a model, a file, a fusion, a retriever with a reranker."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from obliq_eval.catalogue import ModelEntry, catalogue, resolve
from obliq_eval.errors import UserError, raise_all
from obliq_models import derived, pipelines
from obliq_models.specs import parent, read_spec, retrievers

if TYPE_CHECKING:
    from collections.abc import Iterator

FUSE = "fuse:"
FUSION = {"strategy": "rrf", "rrf_k": 60}
"""How mteb fuses where nothing is said (`HybridSearch`, mteb 2.26): reciprocal ranks, equal weights."""


def find(text: str) -> ModelEntry:
    """Return the model that a text means.

    Args:
        text: An alias or full name, `NAME@FOLDER`, `FILE.toml`, `fuse:A,B`, or `A+B`: one of these, then a reranker.

    Raises:
        UserError: If there is no such model, or the folder or the file is not one; the message says how to write it.
    """
    if pipelines.is_pipeline(text):
        first, second = pipelines.halves(text)
        return pipelines.entry(find(first), second)
    if text.startswith(FUSE):
        return _fusion(text)
    name, at, folder = text.partition("@")
    if at and _known(name):
        if not folder:
            raise UserError(f"{text!r} names no folder after the @: write {name}@FOLDER")
        return derived.checkpoint(resolve(name), Path(folder))
    if text.endswith(".toml"):
        entry = read_spec(Path(text))
        list(origins(text))  # a model that searches with itself would never be loaded
        return entry
    if at:
        raise UserError(f"no model is called {name!r}, so {text!r} is no checkpoint of one: write NAME@FOLDER")
    return resolve(text)


def origins(text: str) -> Iterator[ModelEntry]:
    """Yield the models of the table that a text builds on, each once; nothing is hashed.

    Their licences and risks hold: those of a fusion's parts and of what an agent searches with as well.

    Raises:
        UserError: If there are none, or a file names itself.
    """
    yield from {entry.name: entry for entry in _origins(text, ())}.values()


def _origins(text: str, above: tuple[str, ...]) -> Iterator[ModelEntry]:
    if text in above:
        raise UserError(f"{text} searches with itself: name another retriever in it")
    above = (*above, text)
    if pipelines.is_pipeline(text):
        yield from _origins(pipelines.halves(text)[0], above)
        return
    if text.startswith(FUSE):
        for part in _parts(text):
            yield from _origins(part, above)
        return
    name, at, _ = text.partition("@")
    searched: list[str] | None = None
    if at and _known(name):
        found: ModelEntry | None = resolve(name)
    elif text.endswith(".toml"):
        found, searched = parent(Path(text)), retrievers(Path(text))
    else:
        found = resolve(text)
    if found is not None:
        yield found
        own = found.settings.get("retriever") or ()
        for one in searched or ([own] if isinstance(own, str) else own):
            yield from _origins(one, above)


def _fusion(text: str) -> ModelEntry:
    parts = _parts(text)
    entries, problems = [], []
    for part in parts:
        try:
            entries.append(find(part))
        except UserError as error:
            problems.append(str(error))
    raise_all(problems, text)
    if len({(entry.name, entry.revision) for entry in entries}) < len(entries):
        raise UserError(f"{text} names a model twice: fuse models that differ")
    aliases = "-".join(entry.alias for entry in entries)
    told = "\n".join(f"{entry.name}\t{entry.revision}" for entry in entries)
    risks = list(dict.fromkeys(entry.risk for entry in entries if entry.risk))
    return ModelEntry(
        name=f"local/fuse-{aliases}",
        alias=f"fuse-{aliases}",
        loader="obliq_models.retrievers.fusion:load",
        revision=hashlib.sha256(f"{told}\n{sorted(FUSION.items())}".encode()).hexdigest(),
        kind="pipeline",
        summary=f"{' and '.join(entry.alias for entry in entries)}, fused by reciprocal ranks, equal weights",
        licence="; ".join(dict.fromkeys(entry.licence for entry in entries if entry.licence)),
        settings={"parts": parts, **FUSION},
        risk="; ".join(risks),
    )


def _parts(text: str) -> list[str]:
    parts = [part.strip() for part in text.removeprefix(FUSE).split(",")]
    if len(parts) < 2 or not all(parts):
        raise UserError(f"{text!r} does not name two models: write fuse:A,B, as in fuse:bm25,minilm")
    if nested := next((part for part in parts if part.startswith(FUSE)), None):
        raise UserError(f"{text!r} fuses a fusion, {nested!r}: name all models in one, as fuse:A,B,C")
    return parts


def _known(name: str) -> bool:
    models = catalogue()
    return name in models or any(entry.name == name for entry in models.values())
