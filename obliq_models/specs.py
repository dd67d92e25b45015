"""A model of one's own as a TOML file: a folder of weights and how to use it."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from obliq_eval.catalogue import ModelEntry
from obliq_eval.errors import UserError, near, raise_all

if TYPE_CHECKING:
    from pathlib import Path

_NAME = re.compile(r"[^\s/@+:\x00-\x1f\x7f]+/[^\s/@+:\x00-\x1f\x7f]+")
_LONGEST_NAME = 100
"""In bytes: file systems allow 255, and tasks and revisions stand beside the name."""

Length = Field(default=None, ge=2, le=1_000_000)


class Spec(BaseModel):
    """What a model file may hold.

    Args:
        name: `organisation/model`, or a name alone, which is put under `local/`; files are named after it.
        path: Folder of the model, relative to the file.
        query_prefix: Put before every query; left out, the model's own prompt is used.
        document_prefix: Put before every document.
        query_prompt_name: A prompt of the model's own table.
        document_prompt_name: The same for documents.
        task_prompt: Put the task's own prompt before queries.
        query_length: Longest query in tokens.
        document_length: Longest document in tokens.
        pooling: Instead of what the folder says.
        dtype: Of the weights.
        normalize: Compare by cosine; otherwise by dot product.
        batch_size: Texts at a time.
        trust_remote_code: Run the code that the folder brings.
        licence: Shown where models are listed.
        summary: Shown where models are listed.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: str
    path: str
    query_prefix: str | None = None
    document_prefix: str | None = None
    query_prompt_name: str | None = None
    document_prompt_name: str | None = None
    task_prompt: bool = False
    query_length: int | None = Length
    document_length: int | None = Length
    pooling: Literal["mean", "cls", "lasttoken", "max", "mean_sqrt_len_tokens", "weightedmean"] | None = None
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    normalize: bool = True
    batch_size: int = Field(default=32, ge=1)
    trust_remote_code: bool = False
    licence: str = ""
    summary: str = ""

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


def read_spec(path: Path) -> ModelEntry:
    """Return the model that a TOML file describes.

    The revision is the SHA-256 of the folder's content and of the settings, so that no cache serves vectors of
    another checkpoint, prefix or length.

    Raises:
        UserError: If the file is not TOML, a key is unknown or missing, a value is wrong, or the folder is not there;
            all problems at once.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors put a byte-order mark first
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a TOML file: {error}") from error
    problems: list[str] = []
    try:
        Spec.model_validate(data)
    except ValidationError as error:
        problems += [_sentence(str(e["loc"][0]), e["type"], e["msg"]) for e in error.errors()]
    folder = path.parent / str(data.get("path", "."))
    if isinstance(data.get("path"), str):
        problems += _no_model(folder)
    raise_all(problems, str(path))
    try:
        return _entry(Spec.model_validate(data), folder.resolve())
    except OSError as error:
        raise UserError(f"{path}: cannot read {error.filename or folder}: {error.strerror}") from error


def _no_model(folder: Path) -> list[str]:
    """Return why a folder cannot be that of a model, if it cannot."""
    if "\0" in str(folder):
        return [f"path: {str(folder)!r} cannot be a folder, it holds a NUL character"]
    try:
        if any((folder / mark).is_file() for mark in ("config.json", "modules.json")):
            return []
    except OSError as error:
        return [f"path: cannot read {folder}: {error.strerror}"]
    return [f"path: {folder} holds no model (neither config.json nor modules.json)"]


def _entry(spec: Spec, folder: Path) -> ModelEntry:
    lengths_and_prefixes = {"query_prefix", "document_prefix", "query_length", "document_length"}
    shown = {"name", "path", "licence", "summary"}
    settings = spec.model_dump(exclude_none=True, exclude=shown)
    return ModelEntry(
        name=spec.name,
        alias=spec.name.rpartition("/")[2],
        loader="obliq_models.retrievers.dense:load",
        revision=fingerprint(folder, json.dumps(settings, sort_keys=True)),
        summary=spec.summary,
        licence=spec.licence,
        settings={
            "path": str(folder),
            **{key: value for key, value in settings.items() if key not in lengths_and_prefixes},
        },
        query_length=spec.query_length,
        document_length=spec.document_length,
        query_prefix=spec.query_prefix,
        document_prefix=spec.document_prefix,
    )


def fingerprint(folder: Path, settings: str = "") -> str:
    """Return the SHA-256 of a folder's files, their names, and the settings.

    Hidden files and folders are left out.
    """
    total = hashlib.sha256(settings.encode())
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        inside = file.relative_to(folder)
        if any(part.startswith(".") for part in inside.parts):
            continue
        with file.open("rb") as content:
            total.update(f"\n{inside.as_posix()}\t{hashlib.file_digest(content, 'sha256').hexdigest()}".encode())
    return total.hexdigest()


def _sentence(key: str, kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return f"{key} is not a key of a model file{near(key, Spec.model_fields)}"
    if kind == "missing":
        return f"{key} is missing"
    message = message.removeprefix("Value error, ")
    return f"{key}: {message[0].lower()}{message[1:]}"
