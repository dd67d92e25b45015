"""The nearest-neighbour graph of a frozen specialist (paper, section 3.2, Eqs. 2 to 4): its topology, never its scores.

Edges are exact: every anchor is compared with every document, block by block. A neighbour is a distinct text: the
anchor's own text is none, under whatever id, and of several documents with one text one stands for all. Equally
similar documents come in descending order of ids, the order of every ranking here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from obliq_eval.edges import Edge
from obliq_eval.errors import UserError
from obliq_models.loading import encoder_of, storage_of
from obliq_train.distinct import Distinct, Sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch
    from numpy.typing import NDArray

    from obliq_models.embeddings import Embeddings
    from obliq_models.retrievers.base import Retriever
    from obliq_train.distinct import Documents

BLOCK = 1 << 25
"""Similarities at a time: 128 MB of float32."""
TEXTS_AT_ONCE = 512
"""Anchors that are given to a model without vectors at a time."""


@dataclass(frozen=True)
class Graph:
    """Edges, and what was left out on the way.

    Args:
        edges: In descending order of the anchors' ids, then by rank.
        counts: Whatever was folded, forbidden or short, by its name.
    """

    edges: tuple[Edge, ...]
    counts: Mapping[str, int]


def knn_graph(
    documents: Documents | Distinct,
    model: Retriever,
    k: int = 3,
    *,
    sources: Mapping[str, frozenset[str]] | None = None,
    mutual: bool = False,
) -> Graph:
    """Return the edges from every distinct text to the `k` most similar others.

    Encoders see both sides as documents, and their vectors are taken from the store of embeddings. Any other model
    sees the anchor where it usually sees a query. A model that counts some documents as no answer at all (BM25: no
    common word) has no edge to them.

    Args:
        documents: The corpus.
        model: Any retriever of the zoo, frozen.
        k: Neighbours for each anchor; fewer where fewer are left.
        sources: `{document id: sources}`: no edge joins documents that share one.
        mutual: Keep an edge only if the other direction is among the `k` nearest as well.

    Raises:
        UserError: If `k` is not positive, nothing can be joined, or the model returns what is no number.
    """
    if k < 1:
        raise UserError(f"k is {k}: a neighbour or more is needed")
    held = documents if isinstance(documents, Distinct) else Distinct(documents)
    if len(held.columns) < 2:
        raise UserError("a graph needs two different texts at least")
    apart = Sources(held, sources or {})
    found: dict[int, NDArray[np.int64]] = {}
    for anchors, block in _similarities(held, model):
        barred = [apart.beside(int(anchor)) for anchor in anchors]
        found |= zip(anchors.tolist(), _nearest(block, held.folded, barred, k, model.floor), strict=True)
    counts = {
        **held.counts,
        "anchors with fewer neighbours than k": sum(len(near) < k for near in found.values()),
        "distinct texts with a source": len(apart),
        **{what: number for what, number in model.counts.items() if number and what.startswith(("truncated", "lost"))},
    }
    edges = tuple(chain.from_iterable(_edges(held.ids, anchor, near) for anchor, near in found.items()))
    if mutual:
        both = {(edge.anchor, edge.neighbour) for edge in edges}
        kept = tuple(edge for edge in edges if (edge.neighbour, edge.anchor) in both)
        edges, counts["edges that are not mutual"] = kept, len(edges) - len(kept)
    return Graph(edges, counts)


def _edges(ids: Sequence[str], anchor: int, near: NDArray[np.int64]) -> Iterator[Edge]:
    for rank, column in enumerate(near.tolist(), start=1):
        yield Edge(ids[anchor], ids[column], rank)


def _nearest(
    block: torch.Tensor, folded: NDArray[np.int64], barred: Sequence[NDArray[np.int64]], k: int, floor: float
) -> Iterator[NDArray[np.int64]]:
    """Yield each anchor's nearest columns. What is similar, and by how much, ends here."""
    import torch

    from obliq_models.search import top_k

    if bool(torch.isnan(block).any()):
        raise UserError("the model returned a similarity that is not a number (NaN); no graph was made")
    if len(folded):
        block[:, torch.from_numpy(folded).to(block.device)] = float("-inf")
    for columns, _ in top_k(block, k, barred, floor):
        yield columns


def _similarities(held: Distinct, model: Retriever) -> Iterator[tuple[NDArray[np.int64], torch.Tensor]]:
    """Yield some anchors' columns with float32 similarities of shape (these anchors, all columns)."""
    import torch

    encoder = encoder_of(model)
    if encoder is None:
        model.index(held.table)
    else:
        vectors = _vectors(held, model)
    size = max(1, BLOCK // len(held))
    size = min(size, TEXTS_AT_ONCE) if encoder is None else size
    for first in range(0, len(held.columns), size):
        anchors = held.columns[first : first + size]
        scores = _products(vectors, anchors) if encoder is not None else model.score(held.read(anchors))
        done = 0
        for part in scores:
            block = torch.as_tensor(part).to(torch.float32)
            if block.ndim != 2 or block.shape[1] != len(held) or done + len(block) > len(anchors):
                raise UserError(f"{model.name} returned similarities of shape {tuple(block.shape)}; no graph was made")
            yield anchors[done : done + len(block)], block
            done += len(block)
        if done != len(anchors):
            raise UserError(f"{model.name} answered {done} of {len(anchors)} anchors; no graph was made")


def _vectors(held: Distinct, model: Retriever) -> Embeddings:
    """Return the documents' vectors as a search would have them, so that those which are kept are found."""
    from obliq_models.embeddings import embed

    encoder = encoder_of(model)
    assert encoder is not None  # noqa: S101 -- the caller has looked
    told = getattr(model, "instruction", None)
    found = embed(
        encoder, held.texts, "document", instruction="" if told is None else str(told("document")),
        storage=storage_of(model), engine=getattr(model, "engine", None),
    )  # fmt: skip
    model.counts |= found.counts
    return found


def _products(vectors: Embeddings, columns: NDArray[np.int64]) -> Iterator[torch.Tensor]:
    """Yield the products of these documents' vectors with all of them."""
    import torch

    from obliq_models.search import products

    rows = vectors.rows[columns]
    chosen = torch.empty(len(rows), vectors.dims)
    first = 0
    for shard in vectors.kept():
        inside = np.flatnonzero((rows >= first) & (rows < first + len(shard)))
        if len(inside):
            chosen[torch.from_numpy(inside)] = shard[torch.from_numpy(rows[inside] - first).long()].float()
        first += len(shard)
    yield from products(chosen, vectors)
