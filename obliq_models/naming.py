"""What may stand after `-m`: a name, a checkpoint of a model, a file, a fusion, a retriever with a reranker."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from obliq_eval.catalogue import ModelEntry, catalogue, resolve
from obliq_eval.errors import UserError, raise_all
from obliq_models import derived, pipelines
from obliq_models.specs import parent, read_spec

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
        return read_spec(Path(text))
    if at:
        raise UserError(f"no model is called {name!r}, so {text!r} is no checkpoint of one: write NAME@FOLDER")
    return resolve(text)


def origins(text: str) -> Iterator[ModelEntry]:
    """Yield the models of the table that a text builds on, whose licences and risks hold; nothing is hashed.

    Raises:
        UserError: If there are none.
    """
    if pipelines.is_pipeline(text):
        yield from origins(pipelines.halves(text)[0])
        return
    if text.startswith(FUSE):
        for part in _parts(text):
            yield from origins(part)
        return
    name, at, _ = text.partition("@")
    if at and _known(name):
        yield resolve(name)
    elif text.endswith(".toml"):
        found = parent(Path(text))
        if found is not None:
            yield found
    else:
        yield resolve(text)


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
