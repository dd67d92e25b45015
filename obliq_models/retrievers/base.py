"""What every retriever owes its users, whatever it computes: all queries answered, exclusions, order, finite scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from obliq_eval.errors import UserError
from obliq_models.search import sound
from obliq_models.search import top_k as select

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import datasets
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models.model_meta import ModelMeta
    from numpy.typing import NDArray

    from obliq_eval.catalogue import Origin
    from obliq_models.repositories import Repository
    from obliq_models.search import Scores

    Columns = NDArray[np.int64]

_FREE: Columns = np.zeros(0, np.int64)
_REVISIONS = ("revision", "base_revision")
"""What loaders call the commit of each of a retriever's sources."""
_COMMIT = 12
"""Digits of a commit that are put behind a revision."""


class Texts:
    """The documents' texts, read from disk in batches; may be passed over more than once.

    Args:
        corpus: Table with a column `text` and maybe `title`; the two are joined as mteb joins them.
    """

    def __init__(self, corpus: datasets.Dataset) -> None:
        self._corpus = corpus
        self._titles = "title" in corpus.column_names

    def __len__(self) -> int:
        return len(self._corpus)

    def __iter__(self) -> Iterator[str]:
        wanted = ["text", "title"] if self._titles else ["text"]
        for batch in self._corpus.select_columns(wanted).iter(batch_size=1000):
            titles = batch["title"] if self._titles else [None] * len(batch["text"])
            for title, text in zip(titles, batch["text"], strict=True):
                yield f"{title} {text or ''}".strip() if title else (text or "").strip()

    def select(self, rows: Sequence[int]) -> Texts:
        """Return these of the texts, in this order."""
        return Texts(self._corpus.select(rows))

    def sample(self, most: int) -> Texts:
        """Return at most `most` of the texts, evenly spaced."""
        step = max(1, -(-len(self) // most))
        return Texts(self._corpus.select(range(0, len(self), step)))


def batches(items: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yield lists of at most `size` items."""
    source = iter(items)
    while batch := list(islice(source, size)):
        yield batch


class Retriever(ABC):
    """A search model for mteb (`SearchProtocol`); a subclass writes `fit` and `score`.

    Every query gets an answer, an empty one if need be; excluded documents are masked before the cut-off; equal
    scores are put into descending order of document ids.
    """

    accepts_exclusions: ClassVar[bool] = True
    """The queries table may have a column `excluded_ids`: lists of document ids that may not be returned."""

    floor: ClassVar[float] = float("-inf")
    """Only documents with a score above it are answers."""

    sources: Sequence[Repository] = ()
    """Where its weights came from, its own first, then those of its base."""

    task: TaskMetadata | None = None
    """The task that is running, set before `fit` and `score` are called."""

    encode_kwargs: Mapping[str, Any] = {}
    """What mteb was told for encoding, such as `batch_size` and `show_progress_bar`."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._meta: ModelMeta | None = None
        self._origin: Origin | None = None
        self._ids: list[str] = []
        self._column: dict[str, int] = {}

    @abstractmethod
    def fit(self, texts: Texts) -> None:
        """Index the documents' texts; `score` returns one column for each, in this order."""

    @abstractmethod
    def score(self, texts: Sequence[str]) -> Iterator[Scores]:
        """Yield float32 blocks of shape (queries of this block, documents), for all queries in their order.

        A block belongs to the caller, who changes it. -inf means that the document is no answer.
        """

    @property
    def mteb_model_meta(self) -> ModelMeta | None:
        """The description by which mteb loaded it; a branch that stands there as its revision is made a commit."""
        return self._meta

    @mteb_model_meta.setter
    def mteb_model_meta(self, meta: ModelMeta | None) -> None:
        if meta is not None:
            check_dims(str(meta.name), self.dims, meta.embed_dim)
            meta = with_commits(meta, self.sources)
        self._meta = meta

    @property
    def dims(self) -> int | None:
        """Length of one vector; None where there is none."""
        return None

    @property
    def origin(self) -> Origin | None:
        """How it was built, where the table of models built it, at the commits that were loaded."""
        return self._origin

    @origin.setter
    def origin(self, origin: Origin | None) -> None:
        if origin is None or self._origin is None:  # else: a loader around the one that knows where weights come from
            commits = {name: source.commit for name, source in zip(_REVISIONS, self.sources, strict=False)}
            given = {name: commit for name, commit in commits.items() if commit is not None}
            self._origin = origin and replace(origin, settings={**origin.settings, **given})

    @property
    def name(self) -> str:
        """Full name of the model, or of its class where mteb did not load it."""
        return str(self.mteb_model_meta.name) if self.mteb_model_meta is not None else type(self).__name__

    def index(
        self,
        corpus: datasets.Dataset,
        *,
        task_metadata: TaskMetadata | None = None,
        encode_kwargs: Mapping[str, Any] | None = None,
        **_: object,
    ) -> None:
        """Index a corpus.

        Args:
            corpus: Table with the string columns `id` and `text`, maybe `title`.
            task_metadata: The task; some models have prompts for it.
            encode_kwargs: Options for encoding.

        Raises:
            UserError: If a document id occurs twice.
        """
        self.task, self.encode_kwargs = task_metadata, encode_kwargs or {}
        ids = corpus["id"][:]
        order = sorted(range(len(ids)), key=ids.__getitem__, reverse=True)
        self._ids = [ids[i] for i in order]
        self._column = {document: column for column, document in enumerate(self._ids)}
        if len(self._column) != len(ids):
            twice = next(a for a, b in zip(self._ids, self._ids[1:], strict=False) if a == b)
            raise UserError(f"document {twice!r} occurs more than once in the corpus; give every document its own id")
        self.counts = {}
        if ids:
            self.fit(Texts(corpus if order == list(range(len(ids))) else corpus.select(order)))

    def search(
        self,
        queries: datasets.Dataset,
        *,
        top_k: int,
        task_metadata: TaskMetadata | None = None,
        encode_kwargs: Mapping[str, Any] | None = None,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **_: object,
    ) -> dict[str, dict[str, float]]:
        """Return each query's best documents.

        Args:
            queries: Table with the string columns `id` and `text`, maybe `instruction` and `excluded_ids`.
            top_k: How many documents to return; fewer where fewer are left.
            task_metadata: The task; some models have prompts for it.
            encode_kwargs: Options for encoding.
            top_ranked: `{query id: the only documents that may be returned}`; a query without it gets none.

        Returns:
            `{query id: {document id: score}}` in canonical order, every query present.

        Raises:
            UserError: If the model returns NaN or another number of scores than asked for, or a candidate is not in
                the corpus.
        """
        self.task, self.encode_kwargs = task_metadata or self.task, encode_kwargs or self.encode_kwargs
        ids = queries["id"][:]
        answers: dict[str, dict[str, float]] = {query: {} for query in ids}
        if not self._ids or not ids:
            return answers
        barred = self._barred(queries, top_ranked)
        for first, block in self._blocks(query_texts(queries)):
            rows = range(first, first + len(block))
            hits = select(block, top_k, [barred(row) for row in rows], self.floor)
            for row, (columns, scores) in zip(rows, hits, strict=True):
                found = [self._ids[column] for column in columns.tolist()]
                answers[ids[row]] = dict(zip(found, scores.tolist(), strict=True))
        return answers

    def _blocks(self, texts: list[str]) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the first query of each block with its scores, all of them checked."""
        done = 0
        for scores in self.score(texts):
            block = torch.as_tensor(scores).to(torch.float32)
            if block.ndim != 2 or block.shape[1] != len(self._ids) or done + len(block) > len(texts):
                raise self._miscounted(tuple(block.shape), len(texts) - done)
            if not sound(block):
                raise UserError(f"{self.name} returned a score that is not a number (NaN or inf); nothing was ranked")
            yield done, block
            done += len(block)
        if done != len(texts):
            raise self._miscounted((done, len(self._ids)), len(texts))

    def _miscounted(self, got: tuple[int, ...], queries: int) -> UserError:
        return UserError(
            f"{self.name} returned scores of shape {got} where {queries} queries and {len(self._ids)} documents "
            "were to be scored"
        )

    def _barred(
        self, queries: datasets.Dataset, top_ranked: Mapping[str, Sequence[str]] | None
    ) -> Callable[[int], Columns]:
        """Return a function from a query's row to the columns that it may not return."""
        excluded = queries["excluded_ids"][:] if "excluded_ids" in queries.column_names else None
        ids = queries["id"][:]

        def barred(row: int) -> Columns:
            held = _FREE
            if excluded is not None:
                known = (self._column.get(document) for document in excluded[row] or ())
                held = np.array([column for column in known if column is not None], np.int64)
            if top_ranked is None:
                return held
            allowed = np.zeros(len(self._ids), bool)
            allowed[self._candidates(ids[row], top_ranked.get(ids[row]) or ())] = True
            allowed[held] = False
            return np.flatnonzero(~allowed)

        return barred

    def _candidates(self, query: str, documents: Sequence[str]) -> list[int]:
        missing = next((document for document in documents if document not in self._column), None)
        if missing is not None:
            raise UserError(f"candidate {missing!r} of query {query!r} is not in the corpus")
        return [self._column[document] for document in documents]


def check_dims(name: str, found: int | None, declared: object) -> None:
    """Refuse a model whose vectors are not as long as its description says.

    Args:
        name: The model.
        found: Length of its vectors; None where there are none.
        declared: What its description says; anything but a number says nothing.

    Raises:
        UserError: If the two differ.
    """
    if found is not None and isinstance(declared, int) and found != declared:
        raise UserError(
            f"{name}: its vectors have {found} dimensions, and {declared} are declared: these are other weights"
        )


def with_commits(meta: ModelMeta, sources: Sequence[Repository]) -> ModelMeta:
    """Return a model's description with what it was loaded from, so that no result of another commit is served for it.

    mteb keeps results by the revision. Where that is what was asked of the hub, the commit stands in its place; any
    other commit that may be another one tomorrow is put behind it.

    Args:
        meta: The description, as it was asked for.
        sources: Where the weights came from, the model's own first.
    """
    named = [source for source in sources if source.commit is not None]
    if not named:
        return meta
    revision, moving = meta.revision, [source for source in named if source.moving]
    first = sources[0]
    if first.moving and revision in (None, first.asked):
        revision, moving = first.commit, [source for source in moving if source != first]
    told = "-".join([str(revision), *(str(source.commit)[:_COMMIT] for source in moving)])
    loaded = {**(meta.loader_kwargs or {}), "loaded": ", ".join(map(str, named))}
    return meta.model_copy(update={"revision": told, "loader_kwargs": loaded})


def query_texts(queries: datasets.Dataset) -> list[str]:
    """Return the queries' texts, an instruction put after each as mteb puts it."""
    texts: list[str] = queries["text"][:]
    if "instruction" not in queries.column_names:
        return texts
    told = queries["instruction"][:]
    return [text if more is None else f"{text} {more}" for text, more in zip(texts, told, strict=True)]
