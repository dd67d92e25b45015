"""A corpus as training sees it: each distinct text once, whatever its ids, and texts read from disk when asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from obliq_eval.records import Corpus
from obliq_models.documents import canonical
from obliq_models.retrievers.base import Texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import datasets
    from numpy.typing import NDArray

    Documents: TypeAlias = Corpus | datasets.Dataset


def same(text: str) -> str:
    """Return what two texts have in common that count as duplicates: all but the white space."""
    return " ".join(text.split())


def digest(text: str) -> bytes:
    """Return the hash under which a text's duplicates are found."""
    return hashlib.blake2b(same(text).encode("utf-8", "surrogatepass"), digest_size=16).digest()


class Distinct(Mapping[str, str]):
    """Documents in descending order of their ids, by column, and which of them stands for each distinct text.

    Among duplicates it is the one that every ranking here would put first: the highest id. As a mapping it gives each
    id's text, read from disk.

    Args:
        documents: A corpus, or its table with the string columns `id` and `text`.

    Raises:
        UserError: If there are no documents, or an id cannot be one or occurs twice.
    """

    def __init__(self, documents: Documents) -> None:
        self.table = canonical(documents.documents if isinstance(documents, Corpus) else documents)
        self.ids: Sequence[str] = self.table["id"][:]
        self.column = {identifier: column for column, identifier in enumerate(self.ids)}
        first: dict[bytes, int] = {}
        empty, stands = digest(""), np.empty(len(self.ids), np.int64)
        for column, text in enumerate(self.texts):
            stands[column] = first.setdefault(digest(text), column)
        self._first = first
        self.stands: NDArray[np.int64] = stands
        """For each column the column that stands for its text."""
        self.empty = first.get(empty, -1)
        """The column that stands for documents without text, or -1."""

    @property
    def texts(self) -> Texts:
        """All texts in the order of the columns, read from disk."""
        return Texts(self.table)

    @cached_property
    def columns(self) -> NDArray[np.int64]:
        """The columns that stand for a text which is not empty, ascending."""
        own = np.flatnonzero(self.stands == np.arange(len(self.stands)))
        found: NDArray[np.int64] = own[own != self.empty]
        return found

    @cached_property
    def folded(self) -> NDArray[np.int64]:
        """The columns that stand for nothing: duplicates of others, and texts that are empty."""
        kept = np.zeros(len(self.stands), bool)
        kept[self.columns] = True
        found: NDArray[np.int64] = np.flatnonzero(~kept)
        return found

    @property
    def counts(self) -> dict[str, int]:
        """How many documents and distinct texts there are, and how many documents are empty."""
        empty = int((self.stands == self.empty).sum())
        return {
            "documents": len(self),
            "distinct texts": len(self.columns),
            "duplicate documents": len(self.folded) - empty,
            "empty documents": empty,
        }

    @cached_property
    def content(self) -> str:
        """SHA-256 over all ids and texts."""
        total = hashlib.sha256()
        for identifier, text in zip(self.ids, self.texts, strict=True):
            for part in (identifier, text):
                data = part.encode("utf-8", "surrogatepass")
                total.update(len(data).to_bytes(8, "little") + data)
        return total.hexdigest()

    def find(self, text: str) -> int | None:
        """Return the column that stands for a text, or None if no document has it."""
        return self._first.get(digest(text))

    def standing(self, ids: Iterable[str]) -> list[int]:
        """Return the columns that stand for documents' texts, each once; unknown ids are passed over."""
        known = (self.column.get(identifier) for identifier in ids)
        return list(dict.fromkeys(int(self.stands[column]) for column in known if column is not None))

    def read(self, columns: Sequence[int] | NDArray[np.int64]) -> list[str]:
        """Return the texts of columns."""
        return list(self.texts.select([int(column) for column in columns])) if len(columns) else []

    def __getitem__(self, identifier: str) -> str:
        return self.read([self.column[identifier]])[0]

    def __contains__(self, identifier: object) -> bool:
        return identifier in self.column

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)


class Sources:
    """Which documents share a source: a post, an address, a book; edges between them can be forbidden.

    A text belongs to the sources of all documents that have it.

    Args:
        documents: The documents.
        values: `{document id: sources}`; a document without one shares none.
    """

    def __init__(self, documents: Distinct, values: Mapping[str, frozenset[str]]) -> None:
        self._of: dict[int, set[str]] = {}
        members: dict[str, set[int]] = {}
        for identifier, sources in values.items():
            column = documents.column.get(identifier)
            if column is None:
                continue
            stands = int(documents.stands[column])
            self._of.setdefault(stands, set()).update(sources)
            for source in sources:
                members.setdefault(source, set()).add(stands)
        self._members = {source: np.array(sorted(columns), np.int64) for source, columns in members.items()}

    def __len__(self) -> int:
        """Return how many distinct texts have a source."""
        return len(self._of)

    def beside(self, column: int) -> NDArray[np.int64]:
        """Return the columns that share a source with one, itself among them, ascending."""
        held = [self._members[source] for source in sorted(self._of.get(column, ()))]
        return np.unique(np.concatenate([*held, [column]])).astype(np.int64)
