"""Exact top-k: excluded documents are masked before selection, and ties have one order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from obliq_models.embeddings import Embeddings

    Scores = NDArray[np.float32] | torch.Tensor
    Hits = tuple[NDArray[np.int64], NDArray[np.float32]]

BLOCK = 1 << 27
"""Scores held at a time: 512 MB of float32."""

CHUNK = 2_048
"""Vectors that are converted to float32 at a time: few enough to be multiplied while they are in the cache."""

LEAST = 16
"""Queries and documents in a product. With fewer, matrix libraries take other paths, which round otherwise: one and the
same vector then scores differently in two columns, and a query alone differently from the same among others."""

_NOTHING = float("-inf")


def top_k(scores: Scores, k: int, excluded: Sequence[NDArray[np.int64]] = (), floor: float = _NOTHING) -> list[Hits]:
    """Return each query's k best documents, best first.

    Columns stand for documents in descending order of their ids. Among equal scores the lower column wins, inside
    the ranking and at its end, which is trec_eval's rule: score descending, then document id descending.

    Args:
        scores: float32, shape (queries, documents), without NaN; -inf marks a document that is no answer. Excluded
            entries are overwritten with -inf in place.
        k: How many to return; fewer come back where fewer are left.
        excluded: For each query the columns that it may not return; empty for none at all.
        floor: Only scores above it are answers.

    Returns:
        For each query its columns (int64) and their scores (float32), both of length at most k.
    """
    block = torch.as_tensor(scores)
    if len(excluded):
        rows = np.repeat(np.arange(len(excluded)), [len(columns) for columns in excluded])
        block[torch.from_numpy(rows), torch.from_numpy(np.concatenate(excluded).astype(np.int64))] = _NOTHING
    width = block.shape[1]
    if k <= 0 or not width:
        return [(np.zeros(0, np.int64), np.zeros(0, np.float32)) for _ in range(len(block))]
    # One more than asked for shows whether a tie stands at the cut.
    top, columns = (part.cpu().numpy() for part in block.topk(min(k + 1, width), dim=1))
    tied = ((top[:, 1:] == top[:, :-1]) & (top[:, 1:] > floor)).any(axis=1)
    answers = (top > floor).sum(axis=1)
    hits = []
    for row, found in enumerate(answers):
        best = columns[row, :found], top[row, :found]
        best = _untie(block[row].cpu().numpy(), *best, k) if tied[row] else best
        hits.append((best[0][:k], best[1][:k]))
    return hits


def _untie(row: NDArray[np.float32], columns: NDArray[np.int64], top: NDArray[np.float32], k: int) -> Hits:
    """Choose and order one query's documents where scores are equal: torch picks any among equals."""
    if len(top) > k and top[k] == top[k - 1]:
        above = columns[top > top[k]]
        columns = np.concatenate([above, np.flatnonzero(row == top[k])[: k - len(above)]])
        top = row[columns]
    order = np.lexsort((columns, -top))
    return columns[order], top[order]


def sound(scores: torch.Tensor) -> bool:
    """Tell whether all scores are numbers, or -inf; NaN and inf cannot be ranked."""
    return bool((scores < float("inf")).all())


def products(queries: torch.Tensor, documents: torch.Tensor | Embeddings) -> Iterator[torch.Tensor]:
    """Yield the dot products of all queries with all documents, in blocks of queries that fit into memory.

    Vectors from a store are read shard by shard for as many queries as a block holds; whatever the type in which they
    are kept, products are computed in float32, and each distinct text is scored once. They are computed on the
    queries' device; where queries are on the CPU, and the documents in a store, on a GPU if there is one.

    Args:
        queries: float32, shape (queries, dims).
        documents: float32, shape (documents, dims), on the same device; or a store.

    Yields:
        float32, shape (queries of this block, documents).
    """
    if isinstance(documents, torch.Tensor):
        for part in torch.split(queries, max(1, BLOCK // max(1, len(documents)))):
            yield _product(part, [documents], len(documents))
        return
    if not queries.is_cuda and torch.cuda.is_available():
        queries = queries.cuda()
    repeats = documents.distinct < len(documents)
    rows = torch.from_numpy(documents.rows).to(queries.device) if repeats else None
    for part in torch.split(queries, max(1, BLOCK // max(1, documents.distinct))):
        scores = _product(part, documents.kept(), documents.distinct)
        if rows is None:
            yield scores
            continue
        for few in torch.split(
            scores, max(1, BLOCK // 4 // len(documents))
        ):  # small: they come beside the distinct ones
            yield few.index_select(1, rows)


def _product(queries: torch.Tensor, shards: Iterable[torch.Tensor], width: int) -> torch.Tensor:
    """Return the products with all shards, side by side."""
    padded = torch.nn.functional.pad(queries, (0, 0, 0, max(0, LEAST - len(queries))))
    scores = torch.empty(len(padded), width, device=queries.device)
    first = 0
    for shard in shards:
        for kept in torch.split(shard, len(shard) if shard.dtype == torch.float32 else CHUNK):
            chunk = kept.to(queries.device).float()
            columns = scores[:, first : first + len(chunk)]
            if len(chunk) >= LEAST:
                torch.mm(padded, chunk.T, out=columns)
            else:
                filled = torch.nn.functional.pad(chunk, (0, 0, 0, LEAST - len(chunk)))
                columns[:] = (padded @ filled.T)[:, : len(chunk)]
            first += len(chunk)
    return scores[: len(queries)]
