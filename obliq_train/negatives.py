"""Hard negatives by BM25 (paper, section 3.2, Eq. 6): what shares words with a text and does not answer its query.

A row's negatives are taken from the ranking for the text that it is scored from: the query of a synthetic row, the
positive d' of a row from a graph. Documents that may not be negatives are taken out before ranks are counted: the
row's positives, its source document, the source's neighbours in the graph, documents without text, and whatever has
the text of one of these under another id. Of documents with one text only one can be a negative.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from obliq_eval.errors import UserError
from obliq_models.retrievers import bm25
from obliq_train.distinct import Distinct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import torch
    from numpy.typing import NDArray

    from obliq_eval.edges import Edge
    from obliq_train.distinct import Documents

AT_ONCE = 1_024
"""Queries whose texts and negatives are in memory at a time."""


@dataclass(frozen=True)
class Wanted:
    """What negatives are to be mined for.

    Args:
        key: Names the row; with the seed it decides what is drawn for it.
        scored: The text that BM25 scores from.
        barred: Ids of documents that may not be negatives: positives, source.
        texts: Texts that may not be negatives, for positives whose ids are not known.
        anchor: Id of the document whose neighbours in the graph may not be negatives.
    """

    key: str
    scored: str
    barred: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    anchor: str = ""


@dataclass(frozen=True)
class Ranks:
    """Which ranks negatives come from, counted from 1 after everything that may not be one is taken out.

    Args:
        count: Negatives for each row.
        first: The first rank that is used; 6 skips five.
        last: The last rank of the range from which `count` are drawn at random; None for the best from `first` on.

    Raises:
        UserError: If there are no such ranks.
    """

    count: int = 4
    first: int = 1
    last: int | None = None

    def __post_init__(self) -> None:
        if self.count < 1 or self.first < 1:
            raise UserError(f"{self.count} negatives from rank {self.first} on: both are 1 or more")
        if self.last is not None and self.last - self.first + 1 < self.count:
            raise UserError(f"ranks {self.first} to {self.last} are fewer than {self.count} negatives: widen the range")

    @property
    def depth(self) -> int:
        """How much of a ranking is needed."""
        return self.last or self.first + self.count - 1

    def choose(self, columns: NDArray[np.int64], key: str, seed: int) -> NDArray[np.int64]:
        """Return the negatives among a ranking's columns, best first."""
        near = columns[self.first - 1 : self.depth]
        if self.last is None or len(near) <= self.count:
            return near[: self.count]
        mixed = int.from_bytes(hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
        drawn = np.random.default_rng([seed, mixed]).choice(len(near), self.count, replace=False)
        return near[np.sort(drawn)]


@dataclass
class Miner:
    """Mines negatives in one corpus.

    Args:
        documents: The corpus.
        edges: The whole graph, not the dose of it: every neighbour of an anchor is barred.
        variant: BM25's tokenizer and formula, one of `bm25.VARIANTS`.

    Raises:
        UserError: If there are no documents, an id occurs twice, or there is no such variant.
    """

    documents: Documents | Distinct
    edges: Iterable[Edge] = ()
    variant: str = "default"
    counts: Counter[str] = field(default_factory=Counter, init=False)
    """Whatever was short or unknown, by its name, over all that was mined."""

    def __post_init__(self) -> None:
        self.held = self.documents if isinstance(self.documents, Distinct) else Distinct(self.documents)
        self._bm25 = bm25.load("BM25 negatives", variant=self.variant)
        self._bm25.fit(self.held.texts)
        near: dict[int, set[int]] = {}
        for edge in self.edges:
            for anchor in self.held.standing([edge.anchor]):
                near.setdefault(anchor, set()).update(self.held.standing([edge.neighbour]))
        self._near: Mapping[int, set[int]] = near

    def mine(self, wanted: Iterable[Wanted], ranks: Ranks | None = None, *, seed: int = 0) -> Iterator[tuple[str, ...]]:
        """Yield each row's negatives, best first; fewer where the ranking holds fewer, which is counted.

        Args:
            wanted: The rows, taken some at a time.
            ranks: By default the four best.
            seed: Seed of the draw from a range of ranks.
        """
        ranks, source = ranks or Ranks(), iter(wanted)
        while some := list(islice(source, AT_ONCE)):
            yield from self._mined(some, ranks, seed)

    def barred(self, row: Wanted) -> NDArray[np.int64]:
        """Return the columns that may not be the row's negatives, ascending."""
        columns = set(self.held.standing(row.barred))
        columns |= {column for text in row.texts if (column := self.held.find(text)) is not None}
        for anchor in self.held.standing([row.anchor] if row.anchor else ()):
            columns |= {anchor} | self._near.get(anchor, set())
        return np.array(sorted(columns), np.int64)

    def _mined(self, rows: Sequence[Wanted], ranks: Ranks, seed: int) -> Iterator[tuple[str, ...]]:
        import torch

        from obliq_models.search import top_k

        folded, done = torch.from_numpy(self.held.folded), 0
        for scores in self._bm25.score([row.scored for row in rows]):
            block: torch.Tensor = torch.as_tensor(scores)
            block[:, folded] = float("-inf")
            some = rows[done : done + len(block)]
            done += len(block)
            hits = top_k(block, ranks.depth, [self.barred(row) for row in some], self._bm25.floor)
            for row, (columns, _) in zip(some, hits, strict=True):
                found = ranks.choose(columns, row.key, seed)
                self._count(len(found), ranks.count)
                yield tuple(self.held.ids[column] for column in found.tolist())

    def _count(self, found: int, asked: int) -> None:
        self.counts["rows"] += 1
        self.counts["negatives"] += found
        if found < asked:
            self.counts["rows with fewer negatives than asked for"] += 1
            self.counts["negatives that are missing"] += asked - found
        if not found:
            self.counts["rows without a negative"] += 1
