"""Corpora on disk: JSONL is converted once to an Arrow file, which is mapped and never sits in memory."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from obliq_eval.data.files import read_jsonl
from obliq_eval.errors import UserError
from obliq_eval.home import home, whole_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import datasets

BATCH_ROWS = 2_000  # the documents held in memory while converting
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
    """Counts the facts of a stream of documents while it passes through."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._texts: set[bytes] = set()
        self._rows = self._empty = self._twice = 0
        self._examples: list[str] = []

    def watch(self, rows: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Yield the rows unchanged."""
        for identifier, text in rows:
            self._rows += 1
            self._empty += not text.strip()
            if identifier in self._ids:
                self._twice += 1
                if len(self._examples) < SHOWN_IDS:
                    self._examples.append(identifier)
            self._ids.add(identifier)
            self._texts.add(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).digest())
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
    """Return rows as a memory-mapped table kept under `key`; `rows` is called only if it is not there yet."""
    import datasets

    folder = home() / "corpora" / hashlib.sha256(key.encode()).hexdigest()[:32]
    if not (folder / "facts.json").exists():
        with whole_folder(folder) as part:
            facts = _convert(rows(), part / "corpus.arrow")
            if not facts.documents:
                raise UserError(f"{source} holds no document")
            (part / "facts.json").write_text(json.dumps(asdict(facts), ensure_ascii=False), encoding="utf-8")
    data = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    facts = CorpusFacts(**{**data, "examples": tuple(data["examples"])})
    return datasets.Dataset.from_file(str(folder / "corpus.arrow")), facts


def _convert(rows: Iterable[tuple[str, str]], target: Path) -> CorpusFacts:
    import pyarrow as pa

    schema = pa.schema([("id", pa.string()), ("text", pa.string())])
    counter = _Counter()
    batch: list[tuple[str, str]] = []
    with target.open("wb") as sink, pa.ipc.new_stream(sink, schema) as writer:

        def flush() -> None:
            ids, texts = zip(*batch, strict=True)
            writer.write_batch(
                pa.record_batch([pa.array(ids, pa.string()), pa.array(texts, pa.string())], schema=schema)
            )
            batch.clear()

        for row in counter.watch(rows):
            batch.append(row)
            if len(batch) == BATCH_ROWS:
                flush()
        if batch:
            flush()
    return counter.facts()
