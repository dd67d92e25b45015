"""A model of one's own as a TOML file: weights, a model of the table or a server, and how to use it."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from obliq_eval import catalogue
from obliq_eval.catalogue import ModelEntry
from obliq_eval.errors import UserError, near, raise_all
from obliq_eval.toml import read_toml
from obliq_models import derived
from obliq_models.derived import (
    API,
    CHECKPOINTS,
    DENSE,
    FIELDS,
    GEMINI,
    LATE,
    LUAR,
    MINI,
    MINILM,
    OBLIQ_IR,
    POOLED,
    PUBLISHED,
    WITHOUT_WEIGHTS,
    fingerprint,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_NAME = re.compile(r"[^\s/@+:\x00-\x1f\x7f]+/[^\s/@+:\x00-\x1f\x7f]+")
_LONGEST_NAME = 100
"""In bytes: file systems allow 255, and tasks and revisions stand beside the name."""

_MAY_BE_EMPTY = frozenset({"query_prefix", "document_prefix", "instruction", "licence", "summary"})
Length = Field(default=None, ge=2, le=1_000_000)
Pooling = Literal["mean", "cls", "lasttoken", "max", "mean_sqrt_len_tokens", "weightedmean"]


class Spec(BaseModel):
    """What a model file may hold.

    Args:
        name: `organisation/model`, or a name alone, which is put under `local/`; files are named after it.
        path: Folder of the model or of an adapter, relative to the file.
        model: A model of the table whose settings hold where the file says nothing else.
        revision: Commit of that model on the hub.
        server: Protocol of a server that makes the vectors, in place of weights.
        server_model: What the server calls the model.
        base_url_env: Environment variable that holds the server's address.
        key_env: Environment variable that holds the key.
        dimensions: Length of the vectors, asked of the server.
        base: Folder, relative to the file, or name on the hub of what an adapter adapts.
        base_revision: Its commit on the hub.
        instruction: Put after the prefix of every query.
        query_prefix: Put before every query; left out, the model's own prompt is used.
        document_prefix: Put before every document.
        query_prompt_name: A prompt of the model's own table.
        document_prompt_name: The same for documents.
        task_prompt: Put the task's own prompt before queries.
        query_length: Longest query in tokens.
        document_length: Longest document in tokens.
        pooling: Instead of what the folder says.
        dtype: Of the weights.
        autocast: Compute in bfloat16 where the weights are float32.
        storage: In what form vectors are kept.
        normalize: Compare by cosine; otherwise by dot product.
        batch_size: Texts at a time.
        trust_remote_code: Run the code that the folder brings.
        allow_pickle: Read weights in pickle's form, which can run code.
        causal: Accept an adapter or a model of OBLIQ-IR's kind whose tokens see none of those behind them.
        window: Tokens of one window of an authorship encoder.
        episode: Most windows of one text.
        task_as: How Gemini is told the task.
        retriever: What an agent searches with, as it would stand after `-m`; several for an oracle.
        llm: The language model that an agent asks, in place of `$OBLIQ_LLM`.
        failures: Share of an agent's questions that may fail.
        document_tokens: Where documents are cut that a language model reads.
        tokenizer: What counts those tokens; left out, four characters are one.
        hops: Hops of the multi-hop agent.
        per_hop: Documents of one hop.
        depth: Documents of each retriever in an oracle's pool.
        seed: Of the order in which an oracle's judge sees documents.
        batch: Documents in one call of an oracle.
        promote: How many of a batch go on.
        whole: The largest pool that an oracle has ranked in one call.
        solutions: JSONL file with documents' solutions, relative to the file, for an oracle's judge.
        licence: Shown where models are listed.
        summary: Shown where models are listed.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: str
    path: str | None = None
    model: str | None = None
    revision: str | None = None
    server: Literal["openai"] | None = None
    server_model: str | None = None
    base_url_env: str | None = None
    key_env: str | None = None
    dimensions: int | None = Field(default=None, ge=1)
    base: str | None = None
    base_revision: str | None = None
    instruction: str | None = None
    query_prefix: str | None = None
    document_prefix: str | None = None
    query_prompt_name: str | None = None
    document_prompt_name: str | None = None
    task_prompt: bool | None = None
    query_length: int | None = Length
    document_length: int | None = Length
    pooling: Pooling | None = None
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    autocast: bool | None = None
    storage: Literal["float32", "bfloat16", "float16"] | None = None
    normalize: bool | None = None
    batch_size: int | None = Field(default=None, ge=1)
    trust_remote_code: bool | None = None
    allow_pickle: bool | None = None
    causal: bool | None = None
    window: int | None = Length
    episode: int | None = Field(default=None, ge=1)
    task_as: Literal["parameter", "text"] | None = None
    retriever: str | list[str] | None = None
    llm: str | None = None
    failures: float | None = Field(default=None, ge=0, le=1)
    document_tokens: int | None = Field(default=None, ge=1)
    tokenizer: str | None = None
    hops: int | None = Field(default=None, ge=1)
    per_hop: int | None = Field(default=None, ge=1)
    depth: int | None = Field(default=None, ge=0)
    seed: int | None = None
    batch: int | None = Field(default=None, ge=2)
    promote: int | None = Field(default=None, ge=1)
    whole: int | None = Field(default=None, ge=2)
    solutions: str | None = None
    licence: str = ""
    summary: str = ""

    @field_validator("*")
    @classmethod
    def _whole(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str) and "\0" in value and info.field_name not in {"name", "path"}:  # told of elsewhere
            raise ValueError("it holds a NUL character")
        if value == "" and info.field_name not in _MAY_BE_EMPTY:
            raise ValueError("it is empty; leave it out")
        return value

    @field_validator("name")
    @classmethod
    def _named(cls, name: str) -> str:
        full = name if "/" in name else f"local/{name}"
        if not _NAME.fullmatch(full) or "__" in full or full.endswith(".toml"):
            raise ValueError(
                'a name has at most one slash and none of blanks, control characters, "@", "+", ":", "__" and ".toml"'
            )
        if len(full.encode()) > _LONGEST_NAME:
            raise ValueError(
                f"a name has at most {_LONGEST_NAME} bytes with its organisation, not {len(full.encode())}"
            )
        return full


_SHOWN = frozenset({"name", "licence", "summary"})
_SOURCES = frozenset({"path", "model", "server"})
_VECTORS = frozenset({"query_prefix", "document_prefix", "task_prompt", "storage", "normalize"})
_WEIGHTS = _VECTORS | {
    "query_length", "document_length", "pooling", "dtype", "autocast", "trust_remote_code", "allow_pickle",
}  # fmt: skip
_SENTENCE = _WEIGHTS | {"query_prompt_name", "document_prompt_name", "batch_size"}
_READING = frozenset({"retriever", "llm", "failures", "document_tokens", "tokenizer"})
_KEYS: Mapping[str, frozenset[str]] = {
    OBLIQ_IR: _WEIGHTS | {"base", "base_revision", "instruction", "causal"},
    DENSE: _SENTENCE,
    MINILM: _SENTENCE,
    MINI: (_WEIGHTS | {"instruction"}) - {"pooling", "trust_remote_code", "allow_pickle"},
    PUBLISHED: _SENTENCE,
    POOLED: _SENTENCE - {"pooling", "trust_remote_code"},
    LUAR: frozenset({"window", "episode", "dtype", "allow_pickle", "storage", "task_prompt"}),
    LATE: frozenset({"query_length", "document_length", "dtype", "trust_remote_code", "allow_pickle", "batch_size"}),
    GEMINI: frozenset({"dimensions", "task_as", "batch_size", "storage", "task_prompt"}),
    API: _VECTORS | {"server_model", "base_url_env", "key_env", "dimensions", "batch_size"},
    "obliq_models.agents.rewriter:load": frozenset({"retriever", "llm", "failures"}),
    "obliq_models.agents.multihop:load": _READING | {"hops", "per_hop"},
    "obliq_models.agents.oracle:load": _READING | {"depth", "seed", "batch", "promote", "whole", "solutions"},
}
"""What a file may say to each loader."""
_ON_THE_HUB = frozenset({OBLIQ_IR, DENSE, PUBLISHED, POOLED, LUAR, LATE})


def read_spec(path: Path) -> ModelEntry:
    """Return the model that a TOML file describes.

    The revision is the SHA-256 of the folder's content and of the settings, so that no cache serves vectors of
    another checkpoint, prefix or length. Keys are no secrets: a server's key stays in its environment variable.

    Raises:
        UserError: If the file is not TOML, a key is unknown, missing or of no use here, a value is wrong, or the
            folder is not there; all problems at once.
    """
    data = read_toml(path)
    problems: list[str] = []
    try:
        Spec.model_validate(data)
    except ValidationError as error:
        problems += [_sentence(str(e["loc"][0]), e["type"], e["msg"]) for e in error.errors()]
    problems += _source_problems(data, path.parent)
    raise_all(problems, str(path))
    spec = Spec.model_validate(data)
    try:
        return _entry(spec, path.parent)
    except OSError as error:
        raise UserError(f"{path}: cannot read {error.filename or spec.path}: {error.strerror}") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def parent(path: Path) -> ModelEntry | None:
    """Return the model of the table that a file starts from, if it names one; nothing is hashed.

    Raises:
        UserError: If the file cannot be read.
    """
    model = read_toml(path).get("model")
    return catalogue.resolve(model) if isinstance(model, str) else None


def retrievers(path: Path) -> list[str]:
    """Return what a file's agent is to search with, as it would stand after `-m`; nothing is looked up.

    Raises:
        UserError: If the file cannot be read.
    """
    told = read_toml(path).get("retriever")
    texts = told if isinstance(told, list) else [told]
    return [anchored(text, path.parent) for text in texts if isinstance(text, str)]


def _source_problems(data: Mapping[str, Any], beside: Path) -> Iterator[str]:
    """Yield what is wrong with where the model comes from, and with keys that mean nothing there."""
    given = _SOURCES & data.keys()
    if not given:
        yield "path is missing; or give model, one of `obliq models`, or server"
    elif "server" in given and len(given) > 1:
        yield f"server is given and {' and '.join(sorted(given - {'server'}))} too: leave one out"
    elif "server" in given:
        yield from _idle(data, API, None)
        if not data.get("server_model"):
            yield "server_model is missing"
    else:
        entry = None
        if isinstance(data.get("model"), str):
            try:
                entry = catalogue.resolve(data["model"])
            except UserError as error:
                yield f"model: {error}"
                return
        yield from _weights_problems(data, entry, beside)


def _weights_problems(data: Mapping[str, Any], entry: ModelEntry | None, beside: Path) -> Iterator[str]:
    loader = DENSE if entry is None else entry.loader
    path = data.get("path")
    if path is None and loader == WITHOUT_WEIGHTS and entry is not None:
        yield f"path is missing: {entry.alias} has no published weights"
        return
    if path is not None:
        loader = CHECKPOINTS.get(loader, loader)
    yield from _idle(data, loader, entry)
    if not isinstance(path, str):
        return
    try:
        derived.check_folder(beside / path)
    except UserError as error:
        yield f"path: {error}"
    if entry is None and _is_adapter(beside / path):
        yield f'path: {path} holds an adapter; say what it is a checkpoint of: model = "obliq-ir" or model = "minilm"'


def _is_adapter(folder: Path) -> bool:
    try:
        return (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file()
    except (OSError, ValueError):
        return False


def _idle(data: Mapping[str, Any], loader: str, entry: ModelEntry | None) -> Iterator[str]:
    taken = _KEYS.get(loader, frozenset(entry.settings if entry is not None else ())) | _SHOWN | _SOURCES
    if entry is not None and "path" not in data:
        taken |= {"revision"} if loader in _ON_THE_HUB else frozenset()
        if loader == MINILM:
            taken -= {"pooling"}
    of = f"model {entry.alias}" if entry is not None else "server" if loader == API else "path"
    for key in sorted(data.keys() & Spec.model_fields.keys() - taken):
        yield f"{key} means nothing beside {of}"


def _entry(spec: Spec, beside: Path) -> ModelEntry:
    settings = spec.model_dump(exclude_none=True, exclude={*_SHOWN, "path", "model", "server", "revision"})
    if spec.base is not None and (beside / spec.base).is_dir():
        settings["base"] = str((beside / spec.base).resolve())
    settings |= _beside(spec, beside)
    if spec.model is None:
        return _own(spec, settings, beside)
    entry = catalogue.resolve(spec.model)
    if spec.path is not None:
        found = derived.checkpoint(entry, beside / spec.path, spec.name, settings)
    else:
        found = derived.changed(entry, spec.name, settings, spec.revision)
    from dataclasses import replace

    return replace(found, summary=spec.summary or found.summary, licence=spec.licence or found.licence)


def _beside(spec: Spec, folder: Path) -> dict[str, Any]:
    """Return the settings that name other files, which stand relative to this one, with their whole paths."""
    found: dict[str, Any] = {}
    if isinstance(spec.retriever, str):
        found["retriever"] = anchored(spec.retriever, folder)
    elif spec.retriever is not None:
        found["retriever"] = [anchored(text, folder) for text in spec.retriever]
    if spec.solutions:
        found["solutions"] = str((folder / spec.solutions).resolve())
    return found


def anchored(text: str, folder: Path) -> str:
    """Return what stands after `-m` so that it means the same from anywhere, its paths being relative to a folder."""
    if text.startswith("fuse:"):
        parts = text.removeprefix("fuse:").split(",")
        return f"fuse:{','.join(anchored(part.strip(), folder) for part in parts)}"
    name, at, place = text.partition("@")
    path = folder / (place if at else text)
    if not (at or text.endswith(".toml")) or ("+" in text and not path.exists()):
        return text
    return f"{name}@{path.resolve()}" if at else str(path.resolve())


def _own(spec: Spec, settings: dict[str, Any], beside: Path) -> ModelEntry:
    """Return a model that is none of the table's."""
    if spec.server is not None:
        settings["server"] = spec.server
        told = json.dumps({**settings, "name": spec.name}, sort_keys=True)
        loader, revision, place = API, hashlib.sha256(told.encode()).hexdigest(), {}
    else:
        folder = (beside / str(spec.path)).resolve()
        loader, revision = DENSE, fingerprint(folder, json.dumps(settings, sort_keys=True))
        place = {"path": str(folder)}
    return ModelEntry(
        name=spec.name,
        alias=spec.name.rpartition("/")[2],
        loader=loader,
        revision=revision,
        summary=spec.summary,
        licence=spec.licence,
        settings={**place, **{key: value for key, value in settings.items() if key not in FIELDS}},
        dims=spec.dimensions,
        query_length=spec.query_length,
        document_length=spec.document_length,
        query_prefix=spec.query_prefix,
        document_prefix=spec.document_prefix,
    )


def _sentence(key: str, kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return f"{key} is not a key of a model file{near(key, Spec.model_fields)}"
    if kind == "missing":
        return f"{key} is missing"
    message = message.removeprefix("Value error, ")
    return f"{key}: {message[0].lower()}{message[1:]}"
