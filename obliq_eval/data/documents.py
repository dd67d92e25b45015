"""Documents from a task, a folder or a file, without their queries and judgments."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval.data import hub
from obliq_eval.data.corpus import open_corpus, table_of
from obliq_eval.data.files import read_jsonl
from obliq_eval.data.mirror import open_mirror_corpus
from obliq_eval.data.official import FILES, OFFICIAL, REPOSITORY, REVISION
from obliq_eval.data.sources import BEIR_FILES, MINI, MINI_FOLDER, MIRROR_PREFIX
from obliq_eval.errors import UserError, near, raise_all
from obliq_eval.records import document_fault

if TYPE_CHECKING:
    import datasets

SUFFIXES = (".txt", ".md")


@dataclass(frozen=True)
class Source:
    """Documents to be searched.

    Args:
        name: Where they come from, for people.
        table: Arrow table on disk with the string columns `id` and `text`.
        notes: What was left out or is odd, one sentence each.
    """

    name: str
    table: datasets.Dataset
    notes: tuple[str, ...] = ()


def read_source(reference: str) -> Source:
    """Return the documents of a task, folder or file; queries and judgments are neither needed nor read.

    Args:
        reference: A task (`mirror:` in front for mteb's mirror of it); a folder in the official or the BEIR layout;
            a folder of `.txt` and `.md` files, whose paths are the ids; or a `.jsonl` file of objects with `_id` (or
            `id`), `text` and maybe `title`.

    Raises:
        UserError: If it is none of them, cannot be had or is damaged, or two documents have one id.
    """
    table, facts, notes = _open(reference)
    if facts.duplicate_ids:
        raise UserError(
            f"{reference}: {facts.duplicate_ids} documents repeat an id, among them "
            f"{', '.join(map(repr, facts.examples[:3]))}; every document needs its own id"
        )
    if facts.empty_texts:
        notes = (*notes, f"{facts.empty_texts:,} of {facts.documents:,} documents are empty")
    return Source(reference, table, notes)


def _open(reference: str) -> tuple[datasets.Dataset, Any, tuple[str, ...]]:
    """Return the table with what was counted while it was made, and what was left out."""
    if reference.startswith(MIRROR_PREFIX):
        return *open_mirror_corpus(reference.removeprefix(MIRROR_PREFIX)), ()
    if reference in OFFICIAL:
        task = OFFICIAL[reference]
        folder = hub.snapshot(REPOSITORY, REVISION, task.folder, (FILES["corpus"],))
        return *open_corpus(folder / FILES["corpus"], f"{REPOSITORY}@{REVISION}/{task.folder}"), ()
    path = MINI_FOLDER / MINI[reference] if reference in MINI else Path(reference)
    corpus = next((path / name for name in (FILES["corpus"], BEIR_FILES["corpus"]) if (path / name).is_file()), None)
    if corpus is not None:
        return *open_corpus(corpus, f"sha256:{_hash(corpus)}"), ()
    if path.is_dir():
        return _open_texts(path)
    if path.is_file() and path.suffix == ".jsonl":
        key = f"id or _id, sha256:{_hash(path)}"
        return *table_of(lambda: read_jsonl(path, ("_id", "id")), key, reference), ()
    if path.exists():
        raise UserError(f"{reference} is neither a folder nor a .jsonl file; put text files into a folder")
    known = (*OFFICIAL, *MINI)
    raise UserError(f"{reference!r} is neither a task nor a folder nor a file{near(reference, known) or '.'}")


def _open_texts(folder: Path) -> tuple[datasets.Dataset, Any, tuple[str, ...]]:
    """Read a folder of text files, hidden ones left out; the id of a document is its path inside the folder."""
    files = sorted(
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    texts = [path for path in files if path.suffix.lower() in SUFFIXES]
    if not texts:
        raise UserError(
            f"{folder} holds no documents: neither corpus.jsonl (BEIR's layout) nor corpus/corpus.jsonl (the official "
            f"one) nor any {' or '.join(SUFFIXES)} file"
        )
    raise_all([fault for path in texts if (fault := document_fault(path.as_posix()))], str(folder))
    listing = "\n".join(f"{path.as_posix()}\0{_hash(folder / path)}" for path in texts)
    key = f"texts sha256:{hashlib.sha256(listing.encode()).hexdigest()}"
    left = len(files) - len(texts)
    notes = (f"{left:,} files that are no {' or '.join(SUFFIXES)} files were left out",) if left else ()
    rows = ((path.as_posix(), folder / path) for path in texts)
    return *table_of(lambda: ((name, _text(path)) for name, path in rows), key, str(folder)), notes


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text; convert it to UTF-8, or move it elsewhere") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def _hash(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
