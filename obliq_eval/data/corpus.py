"""Corpora on disk: JSONL is converted once to an Arrow file, which is mapped and never sits in memory."""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING

from obliq_eval.data.files import read_jsonl
from obliq_eval.errors import UserError
from obliq_eval.home import home, whole_folder
from obliq_eval.records import document_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import datasets

FORM = 2  # raise it when the same rows would be converted differently, or refused, so that no old table is found
BATCH_ROWS = 1_000  # the documents held in memory while converting
SHOWN_IDS = 10


@dataclass(frozen=True)
class CorpusFacts:
    """What one pass over a corpus counted.

    Args:
        documents: Rows.
        distinct_texts: Different texts among them.
        empty_texts: Texts that are empty or white space.
        duplicate_ids: How many rows repeat an id that was there before.
        examples: Some of the repeated ids.
    """

    documents: int
    distinct_texts: int
    empty_texts: int
    duplicate_ids: int
    examples: tuple[str, ...] = ()


class _Counter:
    """Counts the facts of a stream of documents while it passes through, and refuses what cannot be an id."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._ids: set[str] = set()
        self._texts: set[bytes] = set()
        self._rows = self._empty = self._twice = 0
        self._examples: dict[str, None] = {}

    def watch(self, rows: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Yield the rows unchanged."""
        for identifier, text in rows:
            self._rows += 1
            if fault := document_fault(identifier):
                raise UserError(f"{self._source}, document {self._rows}: {fault}")
            self._empty += not text.strip()
            if identifier in self._ids:
                self._twice += 1
                if len(self._examples) < SHOWN_IDS:
                    self._examples[identifier] = None
            self._ids.add(identifier)
            self._texts.add(hashlib.blake2b(text.encode(), digest_size=12).digest())
            yield identifier, text

    def facts(self) -> CorpusFacts:
        """Return what was counted."""
        return CorpusFacts(self._rows, len(self._texts), self._empty, self._twice, tuple(self._examples))


def open_corpus(jsonl: Path, key: str) -> tuple[datasets.Dataset, CorpusFacts]:
    """Return a corpus as a memory-mapped table, converted from JSONL unless that was done before.

    Args:
        jsonl: File with `_id`, `text` and an optional `title` per line.
        key: Names the content (a commit and path, or a content hash); one conversion per key is kept.

    Returns:
        The table with the string columns `id` and `text`, and what was counted when it was made.

    Raises:
        UserError: If the file is damaged or empty, or the disk is full.
    """
    return table_of(lambda: read_jsonl(jsonl), key, str(jsonl))


def table_of(
    rows: Callable[[], Iterable[tuple[str, str]]], key: str, source: str
) -> tuple[datasets.Dataset, CorpusFacts]:
    """Return rows as a memory-mapped table kept under `key`; `rows` is called only if it is not there yet.

    A second process that wants the same table waits for the first; what a killed one left is removed.

    Raises:
        UserError: If there are no rows, a document's id cannot be one, or the disk is full.
    """
    own = home() / "corpora" / hashlib.sha256(f"{FORM}\0{key}".encode()).hexdigest()[:32]
    table = own / "table"
    if found := _open(table):
        return found
    with _alone(own):
        if found := _open(table):  # another process was faster
            return found
        for left in own.glob(".*"):
            shutil.rmtree(left, ignore_errors=True)
        with whole_folder(table) as part:
            facts = _convert(rows(), part / "corpus.arrow", source)
            if not facts.documents:
                raise UserError(f"{source} holds no document")
            (part / "facts.json").write_text(json.dumps(asdict(facts), ensure_ascii=False), encoding="utf-8")
    if found := _open(table):
        return found
    raise UserError(f"{table} cannot be read back; check the disk, or set OBLIQ_HOME to another folder")


def ids_of(documents: datasets.Dataset) -> Iterator[str]:
    """Yield the ids of a corpus without reading its texts."""
    for batch in documents.select_columns("id").iter(batch_size=10_000):
        yield from batch["id"]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, which ends with the process that holds it, however that ends."""
    import filelock

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / "lock")
        lock.acquire()
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}; set OBLIQ_HOME to another folder") from error
    try:
        yield
    finally:
        lock.release()


def _open(table: Path) -> tuple[datasets.Dataset, CorpusFacts] | None:
    """Return a table that was converted before, or `None` if there is none or it is damaged."""
    import datasets
    import pyarrow as pa

    try:
        data = json.loads((table / "facts.json").read_text(encoding="utf-8"))
        facts = CorpusFacts(**{**data, "examples": tuple(data["examples"])})
        documents = datasets.Dataset.from_file(str(table / "corpus.arrow"))
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException):
        return None
    return (documents, facts) if len(documents) == facts.documents else None


def _convert(rows: Iterable[tuple[str, str]], target: Path, source: str) -> CorpusFacts:
    import pyarrow as pa

    schema = pa.schema([("id", pa.string()), ("text", pa.string())])
    counter = _Counter(source)
    with target.open("wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for batch in _batches(counter.watch(rows)):
            columns = [pa.array(column, pa.string()) for column in zip(*batch, strict=True)]
            writer.write_batch(pa.record_batch(columns, schema=schema))
    return counter.facts()


def _batches(rows: Iterator[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    while batch := list(islice(rows, BATCH_ROWS)):
        yield batch
