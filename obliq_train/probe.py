"""Do two encoders do the same? Their vectors and rankings on one set of texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import datasets
    from numpy.typing import NDArray

    from obliq_models.encoders.base import Encoder

DEFAULT = "OBLIQ-Mini-Math"
DEPTH = 10
"""Documents of a ranking that are compared."""


@dataclass(frozen=True)
class Probe:
    """Texts that are encoded twice.

    Args:
        name: Where they come from.
        queries: `{query id: text}`.
        documents: `{document id: text}`, in descending order of ids, as ties are broken.
        excluded: `{query id: documents that may not be returned}`.
    """

    name: str
    queries: Mapping[str, str]
    documents: Mapping[str, str]
    excluded: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Vectors:
    """A probe's vectors.

    Args:
        queries: float32, shape (queries, dims).
        documents: float32, shape (documents, dims).
        cut: Texts that were longer than the encoder reads.
    """

    queries: NDArray[np.float32]
    documents: NDArray[np.float32]
    cut: int


@dataclass(frozen=True)
class Change:
    """How far two encoders differ on a probe.

    Args:
        probe: Its name.
        texts: Texts whose vectors are compared.
        cut: Those of them that were longer than the encoder reads.
        least: Least cosine between a text's two vectors.
        mean: Mean of these cosines.
        queries: Queries whose rankings are compared.
        first: Queries with the same first document.
        overlap: Mean share of the first `DEPTH` documents that are in both rankings.
    """

    probe: str
    texts: int
    cut: int
    least: float
    mean: float
    queries: int
    first: int
    overlap: float


def read(reference: str) -> Probe:
    """Return the texts of a task, a folder or a file.

    Args:
        reference: A task or a folder with queries; or documents alone, a folder or a .jsonl file, each of which is then
            a query for the others.

    Raises:
        UserError: If it is none of these, or holds fewer than two documents.
    """
    if _documents_alone(Path(reference)):
        from obliq_eval.data.documents import read_source

        texts = _ordered(read_source(reference).table)
        probe = Probe(reference, texts, texts, {name: frozenset([name]) for name in texts})
    else:
        from obliq_eval.asked import asked

        found = asked(reference)
        probe = Probe(reference, found.queries, _ordered(found.documents), found.exclusions)
    if len(probe.documents) < 2 or not probe.queries:
        raise UserError(f"{reference} is too small to compare rankings on: it needs a query and two documents")
    return probe


def encode(encoder: Encoder, probe: Probe) -> Vectors:
    """Return the vectors of a probe's texts, past the store."""
    queries = encoder.encode(list(probe.queries.values()), "query")
    documents = encoder.encode(list(probe.documents.values()), "document")
    return Vectors(queries.vectors, documents.vectors, queries.cut + documents.cut)


def compare(probe: Probe, before: Vectors, after: Vectors) -> Change:
    """Return how far two encoders differ."""
    cosines = np.concatenate([_cosines(before.queries, after.queries), _cosines(before.documents, after.documents)])
    ranked = list(zip(_ranked(probe, before), _ranked(probe, after), strict=True))
    shares = [len(set(old.tolist()) & set(new.tolist())) / max(1, len(old)) for old, new in ranked]
    return Change(
        probe=probe.name,
        texts=len(cosines),
        cut=after.cut,
        least=float(cosines.min()),
        mean=float(cosines.mean()),
        queries=len(ranked),
        first=sum(list(old[:1]) == list(new[:1]) for old, new in ranked),
        overlap=float(np.mean(shares)),
    )


def _ranked(probe: Probe, vectors: Vectors) -> list[NDArray[np.int64]]:
    import torch

    from obliq_models.search import products, top_k

    columns = {name: column for column, name in enumerate(probe.documents)}
    barred = [
        np.array(sorted(columns[one] for one in probe.excluded.get(query, ()) if one in columns), np.int64)
        for query in probe.queries
    ]
    found: list[NDArray[np.int64]] = []
    for block in products(torch.from_numpy(vectors.queries), torch.from_numpy(vectors.documents)):
        hits = top_k(block, DEPTH, barred[len(found) : len(found) + len(block)])
        found += [ranking for ranking, _ in hits]
    return found


def _cosines(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the cosine of each pair of rows; that of two zero vectors, which are the same, is 1."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    norms = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    same = (x == y).all(axis=1)
    return np.where(same, 1.0, np.divide((x * y).sum(1), norms, out=np.zeros(len(x)), where=norms > 0))


def _documents_alone(path: Path) -> bool:
    if path.is_file():
        return True
    if not path.is_dir():
        return False
    from obliq_eval.data.sources import find_layout

    try:
        return not find_layout(path).queries.is_file()
    except UserError:
        return True


def _ordered(table: datasets.Dataset) -> dict[str, str]:
    from obliq_models.retrievers.base import Texts

    ids: list[str] = table["id"][:]
    texts = dict(zip(ids, Texts(table), strict=True))
    return {name: texts[name] for name in sorted(texts, reverse=True)}
