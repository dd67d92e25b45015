"""Approximate search by faiss: a graph proposes vectors, the exact ones score them, and its recall is measured.

The graph is HNSW (Y. Malkov and D. Yashunin, "Efficient and robust approximate nearest neighbor search using
hierarchical navigable small world graphs", IEEE TPAMI 42(4), 2020) over float16 copies of the vectors. Built by
several threads it is not the same twice, so what is measured is the recall of the very graph that is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from obliq_eval.errors import MissingExtraError, UserError
from obliq_eval.show import track
from obliq_models.index_files import Recall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    Shards = Callable[[], Iterable[torch.Tensor]]
    """Yields the distinct vectors, float32, shape (vectors of the shard, dims), as often as it is called."""

NEIGHBOURS = 32
"""Edges of a node, faiss's default; twice as many in the lowest layer."""

WIDTHS = (64, 128, 256, 512, 1_024)
"""How many candidates a search keeps (`efSearch`): the first that reaches `TARGET` is used."""

TARGET = 0.95
"""Recall@100 that is enough."""

SAMPLE = 500
"""Vectors that are searched for to measure the recall."""


def library() -> Any:
    """Return faiss.

    Raises:
        MissingExtraError: If it is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("faiss-cpu", "ann", "approximate search") from error
    return faiss


class Graph:
    """An approximate index over distinct vectors, which are known by their rows.

    Args:
        index: What faiss has built or read.
        width: Candidates that a search keeps.
    """

    def __init__(self, index: Any, width: int = WIDTHS[-1]) -> None:
        self._index, self.width = index, width

    @classmethod
    def build(cls, shards: Shards, dims: int) -> Graph:
        """Add all vectors to a new graph.

        Raises:
            MissingExtraError: If faiss is not installed.
        """
        faiss = library()
        index = faiss.IndexHNSWSQ(dims, faiss.ScalarQuantizer.QT_fp16, NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        for shard in track(shards(), "Building the approximate index"):
            index.add(shard.numpy())
        return cls(index)

    @classmethod
    def open(cls, path: Path, width: int) -> Graph:
        """Read a graph from disk, where it stays: what a search needs of it is mapped.

        Raises:
            MissingExtraError: If faiss is not installed.
            UserError: If the file is gone or damaged.
        """
        faiss = library()
        try:
            return cls(faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC), width)
        except RuntimeError as error:
            raise UserError(f"{path} is gone or damaged: index the documents again with --ann") from error

    def write(self, path: Path) -> None:
        """Write the graph to disk.

        Raises:
            OSError: If it cannot be written.
        """
        try:
            library().write_index(self._index, str(path))
        except RuntimeError as error:  # faiss says no more than that a write was short
            raise OSError(f"cannot write {path}: is the disk full?") from error

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def search(self, queries: NDArray[np.float32], k: int) -> NDArray[np.int64]:
        """Return the rows of the vectors with about the largest dot products, shape (queries, k); -1 for none."""
        settings = library().SearchParametersHNSW(efSearch=max(k, self.width))
        _, rows = self._index.search(np.ascontiguousarray(queries, np.float32), k, params=settings)
        return np.asarray(rows, np.int64)

    def tune(self, shards: Shards, sample: int = SAMPLE) -> Recall:
        """Choose the width: the first with a recall@100 of `TARGET`, or the largest; return what it reaches.

        Vectors of the index itself are searched for, evenly spaced, and each is left out of its own answer. Queries
        that are of another kind than the documents may find less.
        """
        chosen = np.unique(np.linspace(0, len(self) - 1, min(sample, len(self))).astype(np.int64))
        queries = _take(shards(), chosen)
        exact = _nearest(queries, chosen, shards(), 100)
        for self.width in WIDTHS:
            found = [_without(row, own)[:100] for row, own in zip(self.search(queries, 101), chosen, strict=True)]
            recall = Recall(self.width, recall_at(10, found, exact), recall_at(100, found, exact), len(chosen))
            if recall.at_100 >= TARGET:
                break
        return recall


def recall_at(k: int, found: list[NDArray[np.int64]], exact: list[NDArray[np.int64]]) -> float:
    """Return the mean share of each query's first k exact rows among the first k that were found; 1 if there are none.

    >>> recall_at(2, [np.array([7, 3])], [np.array([3, 5, 7])])  # of 3 and 5, only 3
    0.5
    """
    shares = [len(np.intersect1d(f[:k], e[:k])) / len(e[:k]) for f, e in zip(found, exact, strict=True) if len(e)]
    return float(np.mean(shares)) if shares else 1.0


def _take(shards: Iterable[torch.Tensor], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the vectors in these rows, ascending."""
    found: list[torch.Tensor] = []
    for first, shard in _numbered(shards):
        here = rows[(rows >= first) & (rows < first + len(shard))] - first
        found.append(shard[torch.from_numpy(here)])
    return torch.cat(found).numpy()


def _nearest(
    queries: NDArray[np.float32], own: NDArray[np.int64], shards: Iterable[torch.Tensor], k: int
) -> list[NDArray[np.int64]]:
    """Return for each query the rows of its k largest dot products, its own row left out."""
    asked, mine = torch.from_numpy(queries), torch.from_numpy(own)
    best = torch.full((len(asked), 0), 0.0)
    rows = torch.zeros((len(asked), 0), dtype=torch.int64)
    for first, shard in _numbered(shards):
        scores = asked @ shard.T
        here = torch.arange(first, first + len(shard)).expand(len(asked), -1)
        scores[here == mine[:, None]] = float("-inf")
        best, rows = torch.cat([best, scores], 1), torch.cat([rows, here], 1)
        best, order = best.topk(min(k, best.shape[1]), dim=1)
        rows = rows.gather(1, order)
    return [found[scores > float("-inf")].numpy() for found, scores in zip(rows, best, strict=True)]


def _without(rows: NDArray[np.int64], own: int) -> NDArray[np.int64]:
    kept: NDArray[np.int64] = rows[(rows != own) & (rows >= 0)]
    return kept


def _numbered(shards: Iterable[torch.Tensor]) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield each shard with the row of its first vector."""
    first = 0
    for shard in shards:
        yield first, shard
        first += len(shard)
