"""An index of one's own documents: a folder that holds the documents, their vectors, and what made them.

index = Index.build({"a": "first text", "b": "second text"}, "minilm", "my-index")
[hits] = Index.open("my-index").search(["what to look for"], k=1)
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from obliq_eval.errors import UserError
from obliq_eval.exclusions import EXCLUDED_COLUMN
from obliq_eval.home import whole_folder
from obliq_models.ann import Graph
from obliq_models.documents import Documents, canonical, table_of, write_documents
from obliq_models.embeddings import Embeddings, embed
from obliq_models.encoders.base import check_unicode
from obliq_models.index_files import (
    DOCUMENTS,
    GRAPH,
    VECTORS,
    Kept,
    Manifest,
    check_place,
    read_manifest,
    write_manifest,
)
from obliq_models.loading import absolute, encoder_of, identity, load, name_of, storage_of
from obliq_models.naming import find
from obliq_models.retrievers.base import Texts
from obliq_models.search import products, sound, top_k
from obliq_models.shards import rounded

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from obliq_models.documents import Given
    from obliq_models.encoders.base import Encoder
    from obliq_models.engines import Engine
    from obliq_models.index_files import Recall
    from obliq_models.retrievers.base import Retriever
    from obliq_models.search import Hits
    from obliq_models.shards import Storage


@dataclass(frozen=True)
class Hit:
    """One document that was found.

    Args:
        id: Its id.
        score: The model's score; the cosine for most models with vectors.
        text: All of its text.
    """

    id: str
    score: float
    text: str


class Index:
    """Documents that can be searched with the model that indexed them.

    A model with vectors (`retriever.encoder`) has them in the index. Any other is fitted to the documents anew when
    it is first asked, which BM25 does in seconds.

    Args:
        path: The folder.
        manifest: What is in it.
        model: The model that answers.
    """

    def __init__(self, path: Path, manifest: Manifest, model: Retriever) -> None:
        self.path, self.manifest, self.model = path, manifest, model
        self.documents = Documents(path / DOCUMENTS)
        self.encoder = encoder_of(model)
        self.inexact = 0
        """Queries for which the approximate index found too little, so that they were searched exactly."""
        if len(self.documents) != manifest.documents:
            raise UserError(f"{path} is damaged: it holds {len(self.documents):,} of {manifest.documents:,} documents")

    @classmethod
    def build(  # noqa: PLR0913 -- each is a choice of its own
        cls,
        documents: Given,
        model: Retriever | str,
        path: str | Path,
        *,
        ann: bool = False,
        storage: Storage | None = None,
        engine: Engine | None = None,
        force: bool = False,
        source: str = "",
        given: str = "",
        progress: bool = True,
    ) -> Index:
        """Index documents, into a folder that is written whole or not at all.

        Vectors go through the store of embeddings: those that are there are taken, and after a kill the work goes on
        where it was.

        Args:
            documents: `{id: text}`, pairs of both, or a table with the columns `id`, `text` and maybe `title`.
            model: A retriever, or what stands after `-m`.
            path: The folder.
            ann: Also build an approximate index, and measure its recall.
            storage: Type in which a value of a vector is kept; by default the model's own.
            engine: Where to encode.
            force: Replace the index that is in the folder.
            source: Where the documents come from, for people.
            given: What stands after `-m` for the model, where it is a retriever: `open` then loads it by itself.
            progress: Show a bar on standard error where that is a terminal.

        Raises:
            MissingExtraError: If an approximate index is wanted, and faiss is not installed.
            UserError: If the folder holds anything, and not an index that may be replaced; two documents have one id;
                an approximate index is wanted of a model without vectors; or as the model and the disk have it.
        """
        path = Path(path)
        check_place(path, force=force)
        table = canonical(table_of(documents))
        given = absolute(model) if isinstance(model, str) else given
        model = load(find(model)) if isinstance(model, str) else model
        name, revision = name_of(model)
        encoder, vectors, recall = encoder_of(model), None, None
        if encoder is None and ann:
            raise UserError(f"{name} has no vectors to build an approximate index of: leave --ann out")
        if encoder is not None:
            kept = storage or storage_of(model)
            engine = engine or getattr(model, "engine", None)
            vectors = embed(encoder, Texts(table), "document", storage=kept, engine=engine, progress=progress)
        with whole_folder(path) as part:
            content = write_documents(table, part / DOCUMENTS)
            if vectors is not None:
                _link(vectors.store.folder, part / VECTORS)
                recall = _build_graph(vectors, part / GRAPH) if ann else None
            manifest = Manifest(
                model=name,
                revision=revision,
                given=given,
                identity=identity(model),
                documents=len(table),
                content=content,
                source=source,
                counts={} if vectors is None else dict(vectors.counts),
                vectors=None if vectors is None else vectors.store.name,
                recall=recall,
            )
            write_manifest(part, manifest)
            check_place(path, force=force)  # another process may have been faster
        return cls(path, manifest, model)

    @classmethod
    def open(cls, path: str | Path, model: Retriever | str | None = None, *, device: str | None = None) -> Index:
        """Open an index; neither texts nor vectors are read before they are needed.

        Args:
            path: The folder.
            model: The model that indexed, where it lies elsewhere now, or was given as an object.
            device: Where to run it.

        Raises:
            UserError: If there is no index, it is damaged, or the model is not the one that indexed.
        """
        path = Path(path)
        manifest = read_manifest(path)
        if model is None and not manifest.given:
            raise UserError(f"{path} was indexed with an object of {manifest.model}: give that model when opening it")
        if model is None or isinstance(model, str):
            entry = find(model or manifest.given)
            if entry.name != manifest.model and entry.loader:
                raise manifest.other(path, f"{entry.name} is another")
            model = load(entry, device)
        manifest.check(path, identity(model))
        return cls(path, manifest, model)

    def __len__(self) -> int:
        return len(self.documents)

    def search(
        self,
        texts: Sequence[str],
        k: int = 10,
        *,
        excluded: Sequence[Collection[str]] = (),
        approximate: bool = False,
    ) -> list[tuple[Hit, ...]]:
        """Return each query's best documents, best first; equal scores in descending order of ids.

        Args:
            texts: The queries.
            k: How many documents to return; fewer where fewer are left, or where fewer are an answer to the model.
            excluded: For each query the ids of documents that it may not return; empty for none at all.
            approximate: Search with the approximate index.

        Raises:
            UserError: If a query is empty or no Unicode, k is not positive, an excluded id is not in the index, there
                is no approximate index, or another index has taken this one's place.
        """
        if isinstance(texts, str):
            raise UserError("search takes a list of queries: put the one query into brackets")
        empty = next((number for number, text in enumerate(texts, 1) if not text.strip()), None)
        if empty is not None:
            which = f"query {empty} of {len(texts)}" if len(texts) > 1 else "the query"
            raise UserError(f"{which} is empty: say what to look for")
        for text in texts:
            check_unicode(text, "query")
        if k < 1:
            raise UserError(f"{k} documents were asked for: ask for at least one")
        if len(excluded) not in {0, len(texts)}:
            raise UserError(f"there are {len(texts)} queries and {len(excluded)} lists of excluded documents")
        if read_manifest(self.path) != self.manifest:  # its vectors are read anew each time
            raise UserError(f"{self.path} was replaced while it was open: open it again")
        if any(isinstance(ids, str) for ids in excluded):
            raise UserError("excluded holds a list of ids for each query: put the one id into brackets")
        barred = [self._rows(ids) for ids in excluded] or [np.zeros(0, np.int64)] * len(texts)
        if approximate:
            found: Iterable[Hits] = self._nearby(texts, k, barred)
        elif self.encoder is not None:
            found = self._nearest(self._vectors(texts), k, barred)
        else:
            return self._fitted_search(texts, k, barred)
        return [self._hits(*hits) for hits in found]

    def row(self, identifier: str) -> int:
        """Return where a document stands.

        Raises:
            UserError: If the index has no such document.
        """
        found = self.documents.row(identifier)
        if found is None:
            raise UserError(f"{self.path} holds no document with the id {identifier!r}")
        return found

    def _rows(self, ids: Collection[str]) -> NDArray[np.int64]:
        return np.array(sorted({self.row(identifier) for identifier in ids}), np.int64)

    def _hits(self, rows: NDArray[np.int64], scores: NDArray[np.float32]) -> tuple[Hit, ...]:
        pairs = zip(rows.tolist(), scores.tolist(), strict=True)
        return tuple(Hit(self.documents.id(row), score, self.documents.text(row)) for row, score in pairs)

    @cached_property
    def embeddings(self) -> Embeddings:
        """The documents' vectors, mapped.

        Raises:
            UserError: If they are gone or damaged.
        """
        found = Embeddings.read(Kept.read(self.path / VECTORS))
        if found.store.name != self.manifest.vectors or len(found) != len(self):
            raise UserError(f"{self.path} is damaged, its vectors are not its documents': index the documents again")
        return found

    def _vectors(self, texts: Sequence[str]) -> torch.Tensor:
        """Return the queries' vectors, which are not kept, rounded as the model keeps those that it ranks with."""
        encoder: Encoder = self.encoder  # type: ignore[assignment]  # it is asked for where there is one
        return rounded(encoder.encode(list(texts), "query").vectors, storage_of(self.model))

    def _nearest(
        self, queries: torch.Tensor, k: int, barred: Sequence[NDArray[np.int64]], first: int = 0
    ) -> Iterator[Hits]:
        """Score every document."""
        for block in products(queries, self.embeddings):
            self._check(block)
            yield from top_k(block, k, barred[first : first + len(block)])
            first += len(block)

    def _nearby(self, texts: Sequence[str], k: int, barred: Sequence[NDArray[np.int64]]) -> Iterator[Hits]:
        """Score what the approximate index proposes; each proposal is a distinct text, and stands for a document."""
        queries = self._vectors(texts)
        wanted = min(k + max(map(len, barred), default=0), len(self.graph))
        proposals = self.graph.search(queries.numpy(), wanted)
        for row, proposed in enumerate(proposals):
            if (proposed < 0).any():
                self.inexact += 1
                yield from self._nearest(queries[row : row + 1], k, barred, row)
                continue
            texts_found = np.sort(proposed)
            block = next(products(queries[row : row + 1], self._taken(texts_found)))
            self._check(block)
            rows, scores = self._expanded(texts_found, block[0].cpu().numpy())
            left = ~np.isin(rows, barred[row])
            rows, scores = rows[left], scores[left]
            order = np.lexsort((rows, -scores))[:k]
            yield rows[order], scores[order]

    def _check(self, scores: torch.Tensor) -> None:
        if not sound(scores):
            raise UserError(f"a vector in {self.path} is damaged: a score is no number; index the documents again")

    def _taken(self, rows: NDArray[np.int64]) -> torch.Tensor:
        """Return the vectors of distinct texts, ascending, float32."""
        parts, first = [], 0
        for shard in self.embeddings.kept():
            here = rows[(rows >= first) & (rows < first + len(shard))] - first
            parts.append(shard[torch.from_numpy(here)].float())
            first += len(shard)
        return torch.cat(parts)

    def _expanded(
        self, distinct: NDArray[np.int64], scores: NDArray[np.float32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the documents that have these texts, with their scores."""
        order, starts = self._by_text
        spans = [order[starts[text] : starts[text + 1]] for text in distinct.tolist()]
        return np.concatenate(spans), np.repeat(scores, [len(span) for span in spans])

    @cached_property
    def _by_text(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Documents sorted by the row of their text, and where each text begins among them."""
        rows = self.embeddings.rows
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=self.embeddings.distinct))])
        return np.argsort(rows, kind="stable"), starts

    @cached_property
    def graph(self) -> Graph:
        """The approximate index.

        Raises:
            MissingExtraError: If faiss is not installed.
            UserError: If none was built, or it is damaged.
        """
        recall = self.manifest.recall
        if recall is None:
            raise UserError(f"{self.path} has no approximate index: index the documents again with --ann")
        found = Graph.open(self.path / GRAPH, recall.width)
        if len(found) != self.embeddings.distinct:
            raise UserError(f"{self.path} is damaged: its approximate index does not fit its vectors")
        return found

    def _fitted_search(
        self, texts: Sequence[str], k: int, barred: Sequence[NDArray[np.int64]]
    ) -> list[tuple[Hit, ...]]:
        """Search with a model that keeps no vectors."""
        import datasets

        numbers = [str(number) for number in range(len(texts))]
        excluded = [[self.documents.id(row) for row in rows] for rows in barred]
        given = {"id": numbers, "text": list(texts), EXCLUDED_COLUMN: excluded}
        string = datasets.Value("string")
        features = datasets.Features({"id": string, "text": string, EXCLUDED_COLUMN: [string]})
        answers = self._fitted.search(datasets.Dataset.from_dict(given, features), top_k=k)
        hits = []
        for number in numbers:
            rows = [(self.documents.row(identifier), score) for identifier, score in answers[number].items()]
            found = [(row, score) for row, score in rows if row is not None]
            hits.append(tuple(Hit(self.documents.id(row), score, self.documents.text(row)) for row, score in found))
        return hits

    @cached_property
    def _fitted(self) -> Retriever:
        self.model.index(self.documents.table)
        return self.model


def _link(source: Path, target: Path) -> None:
    """Put a folder's files into another without copying them, where that is one disk."""
    target.mkdir()
    for file in source.iterdir():
        if file.name.startswith("."):
            continue
        try:
            os.link(file, target / file.name)
        except OSError:  # another disk, or one that knows no second name for a file
            shutil.copyfile(file, target / file.name)


def _build_graph(vectors: Embeddings, target: Path) -> Recall:
    graph = Graph.build(vectors.shards, vectors.dims)
    recall = graph.tune(vectors.shards)
    graph.write(target)
    return recall
