"""What is done with a graph's edges before training: a dose of them, and the controls with other positives.

The paper's random control (Appendix H) keeps anchors, negatives and dose, and replaces the neighbours by uniformly
random documents. The matched control keeps a nuisance field as well: each neighbour is replaced by a random document
that has the same value (the same decade, say), so that what the graph owes to this field alone stays in it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from obliq_eval.edges import Edge
from obliq_eval.errors import UserError
from obliq_train.distinct import Distinct, Sources
from obliq_train.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from obliq_train.distinct import Documents

    Values = Mapping[str, frozenset[str]]


def sample_edges(edges: Sequence[Edge], dose: int, seed: int = 0) -> tuple[Edge, ...]:
    """Draw edges uniformly, without replacement (Eq. 5), in the order in which they stand.

    With one seed a smaller dose is part of a larger one.

    Raises:
        UserError: If there are fewer edges than the dose, or it is not positive.
    """
    if not 1 <= dose <= len(edges):
        raise UserError(f"the dose is {dose:,}, and there are {len(edges):,} edges: give 1 to {len(edges):,}")
    chosen = np.sort(np.random.default_rng(seed).permutation(len(edges))[:dose])
    return tuple(edges[i] for i in chosen)


def random_graph(
    documents: Documents | Distinct,
    edges: Sequence[Edge],
    *,
    seed: int = 0,
    sources: Values | None = None,
    match: Values | None = None,
) -> Graph:
    """Replace each edge's neighbour by a random document: same anchors, same ranks, each neighbour once an anchor.

    What may not be a neighbour in the graph may not be one here: the anchor's own text, and documents of its source.
    The true neighbours may be drawn; they are as likely as any others.

    Args:
        documents: The corpus.
        edges: The edges, or a dose of them.
        seed: Seed of the draw.
        sources: `{document id: sources}`, as for the graph.
        match: `{document id: values}` of a nuisance field: the new neighbour has the values of the old one; documents
            without a value match one another.

    Returns:
        As many edges, fewer where too few documents are left, which is counted.

    Raises:
        UserError: If an edge's document is not in the corpus.
    """
    held = documents if isinstance(documents, Distinct) else Distinct(documents)
    unknown = next((d for edge in edges for d in edge[:2] if d not in held), None)
    if unknown is not None:
        raise UserError(f"document {unknown!r} of the edges is not in the corpus: name the corpus of the graph")
    apart, random = Sources(held, sources or {}), np.random.default_rng(seed)
    strata = _strata(held, match)
    by_anchor: dict[str, list[Edge]] = defaultdict(list)
    for edge in edges:
        by_anchor[edge.anchor].append(edge)
    made, short = [], 0
    for anchor, own in by_anchor.items():
        taken = set(apart.beside(held.standing([anchor])[0]).tolist())
        for edge in own:
            stratum = strata[_value(edge.neighbour, match)]
            column = _draw(stratum, taken, random)
            if column is None:
                short += 1
                continue
            taken.add(column)
            made.append(Edge(anchor, held.ids[column], edge.rank))
    counts = {"edges asked for": len(edges), "edges without a document left to draw": short}
    if match is not None:
        counts["neighbours without a value to match"] = sum(not match.get(edge.neighbour) for edge in edges)
    return Graph(tuple(made), counts)


def _value(identifier: str, match: Values | None) -> frozenset[str]:
    return frozenset() if match is None else match.get(identifier, frozenset())


def _strata(held: Distinct, match: Values | None) -> dict[frozenset[str], NDArray[np.int64]]:
    found: dict[frozenset[str], list[int]] = defaultdict(list)
    for column in held.columns.tolist():
        found[_value(held.ids[column], match)].append(column)
    made = {value: np.array(columns, np.int64) for value, columns in found.items()}
    return defaultdict(lambda: np.zeros(0, np.int64), made)


def _draw(stratum: NDArray[np.int64], taken: set[int], random: np.random.Generator) -> int | None:
    """Draw a column that is not taken, uniformly: by trial, and from a list of what is left where trials fail."""
    for _ in range(8):
        if not len(stratum):
            return None
        column = int(stratum[random.integers(len(stratum))])
        if column not in taken:
            return column
    left = stratum[~np.isin(stratum, list(taken))]
    return int(left[random.integers(len(left))]) if len(left) else None
