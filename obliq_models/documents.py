"""Documents to be searched, on disk in the order in which ties are broken."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from obliq_eval.data.documents import Source, read_source
from obliq_eval.data.files import with_title
from obliq_eval.errors import UserError, raise_all
from obliq_eval.records import document_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import datasets

    Given: TypeAlias = datasets.Dataset | Mapping[str, str] | Iterable[tuple[str, str]]

__all__ = ["Documents", "Source", "canonical", "read_source", "table_of", "write_documents"]

STRINGS = frozenset({"string", "large_string"})
BATCH = 1_000
"""Documents that are held in memory while they are written."""


def table_of(documents: Given) -> datasets.Dataset:
    """Return documents as a table with the columns `id` and `text`.

    Raises:
        UserError: If an id or a text is no string of Unicode characters.
    """
    import datasets

    if isinstance(documents, datasets.Dataset):
        return documents
    pairs = list(documents.items() if isinstance(documents, Mapping) else documents)
    faults = [fault for identifier, _ in pairs if (fault := document_fault(identifier))]
    faults += [f"the text of {key!r} is no string of Unicode characters" for key, text in pairs if not _is_text(text)]
    raise_all(faults, "the documents")
    strings = datasets.Features({name: datasets.Value("string") for name in ("id", "text")})
    return datasets.Dataset.from_dict({"id": [key for key, _ in pairs], "text": [text for _, text in pairs]}, strings)


def _is_text(text: object) -> bool:
    try:
        return isinstance(text, str) and bool(text.encode() or True)
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def canonical(table: datasets.Dataset) -> datasets.Dataset:
    """Return the table in descending order of ids, which decides among equal scores.

    Raises:
        UserError: If there are no documents, ids or texts are no strings, or an id cannot be one or occurs twice.
    """
    odd = [name for name in ("id", "text") if getattr(table.features.get(name), "dtype", None) not in STRINGS]
    raise_all([f"there is no column {name!r} of strings" for name in odd], "the documents")
    ids: Sequence[str] = table["id"][:]
    if not ids:
        raise UserError("there are no documents to be searched")
    raise_all([fault for identifier in ids if (fault := document_fault(identifier))], "the documents")
    order = sorted(range(len(ids)), key=ids.__getitem__, reverse=True)
    twice = next((ids[a] for a, b in pairwise(order) if ids[a] == ids[b]), None)
    if twice is not None:
        raise UserError(f"document {twice!r} occurs more than once; every document needs its own id")
    return table if order == list(range(len(ids))) else table.select(order)


def write_documents(table: datasets.Dataset, target: Path) -> str:
    """Write a table as an Arrow stream with the columns `id` and `text`, and return the SHA-256 of what is in it."""
    import pyarrow as pa

    schema = pa.schema([("id", pa.string()), ("text", pa.string())])
    total = hashlib.sha256()
    with target.open("wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for batch in table.iter(batch_size=BATCH):
            titles = batch.get("title") or [None] * len(batch["id"])
            texts = [with_title(title or "", text or "") for title, text in zip(titles, batch["text"], strict=True)]
            for identifier, text in zip(batch["id"], texts, strict=True):
                for part in (identifier.encode(), text.encode()):
                    total.update(len(part).to_bytes(8, "little") + part)
            columns = [pa.array(column, pa.string()) for column in (batch["id"], texts)]
            writer.write_batch(pa.record_batch(columns, schema=schema))
    return total.hexdigest()


class Documents:
    """Documents in descending order of ids, on disk: only what is asked for is read.

    Args:
        path: The Arrow stream that `write_documents` has written.

    Raises:
        UserError: If it is gone or damaged.
    """

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self.path = path
        try:
            with pa.memory_map(str(path)) as source:
                table = pa.ipc.open_stream(source).read_all()
            self._ids, self._texts = table.column("id"), table.column("text")
        except (OSError, KeyError, pa.ArrowException) as error:
            raise UserError(f"{path} is gone or damaged: index the documents again") from error

    def __len__(self) -> int:
        return len(self._ids)

    def id(self, row: int) -> str:
        """Return one document's id."""
        return str(self._ids[row])

    def text(self, row: int) -> str:
        """Return one document's text."""
        return str(self._texts[row])

    def row(self, identifier: str) -> int | None:
        """Return where the document with this id stands, or None; found by halving, as the ids are in order."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.id(middle) > identifier:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self.id(low) == identifier else None

    def names(self) -> Iterator[str]:
        """Yield every id."""
        for chunk in self._ids.chunks:
            yield from chunk.to_pylist()

    @cached_property
    def table(self) -> datasets.Dataset:
        """All of it as a table of `datasets`, mapped as well."""
        import datasets

        return datasets.Dataset.from_file(str(self.path))
