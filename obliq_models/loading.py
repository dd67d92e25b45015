"""A retriever by what stands after `-m`, loaded without mteb, and what tells whether it is the same one as before."""

from __future__ import annotations

import json
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from obliq_eval.catalogue import Loader
from obliq_eval.devices import device_of
from obliq_eval.errors import UserError, near
from obliq_models.encoders.base import ROLES, Encoder

if TYPE_CHECKING:
    from obliq_eval.catalogue import ModelEntry
    from obliq_models.retrievers.base import Retriever
    from obliq_models.shards import Storage

ENGINES = ("local", "pool", "ray")
_ELSEWHERE = frozenset({"device", "path", "revision", "batch_size", "batch_tokens"})
"""Settings that do not change answers, and the revision, which stands for itself."""


def absolute(text: str) -> str:
    """Return what stands after `-m` so that it means the same from another folder."""
    from obliq_models.specs import anchored

    return anchored(text, Path.cwd())


def load(entry: ModelEntry, device: str | None = None) -> Retriever:
    """Load a model of the table.

    Raises:
        UserError: If it cannot be loaded, or cannot index documents by itself.
    """
    if entry.meta is not None:
        raise UserError(f"{entry.name} is registered as a model of mteb's, which cannot be indexed; give a TOML file")
    given = ("query_prefix", "document_prefix", "query_length", "document_length")
    settings = {name: value for name in given if (value := getattr(entry, name)) is not None}
    if device is not None:
        settings["device"] = device_of(device)
    model = retriever(Loader(entry.loader)(entry.name, revision=entry.revision, **settings, **entry.settings))
    from obliq_models.retrievers.base import check_dims

    check_dims(entry.name, model.dims, entry.dims)
    return model


def retriever(model: object) -> Retriever:
    """Return the model if it is a retriever of this package.

    Raises:
        UserError: If it is not.
    """
    from obliq_models.retrievers.base import Retriever

    if not isinstance(model, Retriever):
        raise UserError(
            f"{type(model).__name__} is no retriever of obliq's: only these can be indexed and encoded with"
        )
    return model


def use_engine(model: Any, kind: str, workers: int | None = None) -> None:
    """Let a model encode documents in this process, in several, or on a Ray cluster.

    Args:
        model: Any model; only one with an `engine` can encode elsewhere.
        kind: `local`, `pool` or `ray`.
        workers: How many processes; by default as the engine says.

    Raises:
        UserError: If there is no such engine, or the model cannot be built in another process.
    """
    if kind not in ENGINES:
        raise UserError(f"--engine is {kind!r}, not one of {', '.join(ENGINES)}{near(kind, ENGINES)}")
    if kind == "local":
        if workers is not None:
            raise UserError("--workers is for --engine pool and ray: name one of them, or leave it out")
        return
    origin = getattr(model, "origin", None)
    if not hasattr(model, "engine") or origin is None:
        name = origin.name if origin is not None else type(model).__name__
        raise UserError(f"{name} does nothing that other processes could do for it: leave --engine {kind} out")
    from obliq_models.engines import PoolEngine, RayEngine

    if kind == "ray":
        model.engine = RayEngine(origin, workers or 0)
        return
    import torch

    gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    device = origin.settings.get("device") or "cuda"
    places = [device] if device != "cuda" else gpus or ["cpu"]  # a GPU that is named, or the CPU, and no other
    model.engine = PoolEngine(origin, list(islice(cycle(places), workers or (2 if "cpu" in places else len(places)))))


def check_storage(storage: str | None) -> Storage | None:
    """Return the type in which a value of a vector is to be kept.

    Raises:
        UserError: If there is no such type.
    """
    from obliq_models.shards import Storage

    known = get_args(Storage)
    if storage is not None and storage not in known:
        raise UserError(f"--storage is {storage!r}, not one of {', '.join(known)}{near(storage, known)}")
    return cast("Storage | None", storage)


def encoder_of(model: Retriever) -> Encoder | None:
    """Return what turns its texts into one vector each, if that is how it works."""
    found = getattr(model, "encoder", None)
    return found if isinstance(found, Encoder) else None


def storage_of(model: Retriever) -> Storage:
    """Return the type in which the model keeps its vectors where nothing else is asked for."""
    return cast("Storage", getattr(model, "storage", "float32"))


def identity(model: Retriever) -> dict[str, dict[str, Any]]:
    """Return, as JSON values, whatever can change the model's answers.

    Returns:
        The encoder's key for each role, without any task's prompt; for another model its name, revision and settings
        under `model`.
    """
    encoder, origin = encoder_of(model), model.origin
    if encoder is not None:
        found: dict[str, dict[str, Any]] = {role: encoder.key(role) for role in ROLES}
    elif origin is not None:
        settings = {key: value for key, value in origin.settings.items() if key not in _ELSEWHERE}
        found = {"model": {"model": origin.name, "revision": origin.settings.get("revision"), "settings": settings}}
    else:
        found = {"model": {"model": type(model).__name__, "revision": None, "settings": {}}}
    return cast("dict[str, dict[str, Any]]", json.loads(json.dumps(found, default=str)))


def name_of(model: Retriever) -> tuple[str, str | None]:
    """Return the model's full name and revision, as its identity has them."""
    first = next(iter(identity(model).values()))
    return str(first["model"]), first["revision"]
