"""Per-query exclusions, applied before any cut-off, for whatever model mteb can run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from obliq_eval.errors import UserError
from obliq_eval.records import UNANSWERED, Ranking, Run

if TYPE_CHECKING:
    from collections.abc import Iterator

EXCLUDED_COLUMN = "excluded_ids"  # beside `id` and `text` in the table of queries; a list of document ids
NONE: frozenset[str] = frozenset()


class ExcludingSearch:
    """Wraps a model so that no query is answered with a document that it excludes.

    A model that declares `accepts_exclusions` finds them in the table of queries and masks before it selects. From any
    other model as many more documents are asked for as the longest list of exclusions holds, so that dropping them
    always leaves `top_k`. Candidates for reranking are filtered beforehand. Every query has an answer afterwards,
    which mteb's means need, and the canonical run is kept in `run`.

    Args:
        model: Encoder, cross-encoder or search model of mteb.
        exclusions: `{query id: document ids}`.
    """

    def __init__(self, model: Any, exclusions: Mapping[str, frozenset[str]]) -> None:
        self.model = model
        self.exclusions = exclusions
        self.mteb_model_meta = model.mteb_model_meta
        self.run = Run({}, 0)
        self.dropped = 0
        self._search_model = _as_search_model(model)
        self._documents: frozenset[str] = NONE

    @property
    def name(self) -> str:
        """The model's name, for messages."""
        return str(self.mteb_model_meta.name)

    def index(self, corpus: Any, **kwargs: Any) -> None:
        """Index the corpus (see mteb's `SearchProtocol`)."""
        self._documents = frozenset(corpus["id"])
        with _named(self.name, "indexing"):
            self._search_model.index(corpus, **kwargs)

    def search(
        self,
        queries: Any,
        *,
        top_k: int,
        top_ranked: Mapping[str, list[str]] | None = None,
        **kwargs: Any,
    ) -> dict[str, dict[str, float]]:
        """Search (see mteb's `SearchProtocol`).

        Raises:
            UserError: If the model fails, or answers with documents or queries that do not exist, or with scores that
                are not finite numbers.
        """
        if top_ranked is not None:
            top_ranked = {q: [d for d in ids if d not in self.exclusions.get(q, NONE)] for q, ids in top_ranked.items()}
        asked = top_k
        if not getattr(self.model, "accepts_exclusions", False):
            queries = queries.remove_columns([c for c in queries.column_names if c == EXCLUDED_COLUMN])
            longest = max((len(self.exclusions.get(q, NONE)) for q in queries["id"]), default=0)
            asked = min(top_k + longest, max(len(self._documents), 1))
        with _named(self.name, "searching"):
            found = self._search_model.search(queries, top_k=asked, top_ranked=top_ranked, **kwargs)
        self.run = self._checked(found, list(queries["id"]), top_k)
        answers = self.run.to_dict()
        return {q: answer or {UNANSWERED: 0.0} for q, answer in answers.items()}

    def _checked(self, found: object, queries: list[str], depth: int) -> Run:
        if not isinstance(found, Mapping) or not all(isinstance(answer, Mapping) for answer in found.values()):
            raise UserError(f"the answers of {self.name} are not of the form {{query id: {{document id: score}}}}")
        strangers = [q for q in found if q not in set(queries)]
        if strangers:
            raise UserError(f"{self.name} answers a query that was not asked: {strangers[0]!r}")
        with _named(self.name, "ranking the answers"):
            whole = Run.of({q: found.get(q, {}) for q in queries}, source=f"the answers of {self.name}")
        unknown = next(
            (
                f"{d!r} for query {q!r}"
                for q, r in whole.rankings.items()
                for d in r.documents
                if d not in self._documents
            ),
            None,
        )
        if unknown:
            raise UserError(f"{self.name} answers with a document that is not in the corpus: {unknown}")
        self.dropped = sum(d in self.exclusions.get(q, NONE) for q, r in whole.rankings.items() for d in r.documents)
        return whole.without(self.exclusions, depth)


@contextmanager
def _named(model: str, doing: str) -> Iterator[None]:
    """Turn whatever a model raises into one sentence that names the model; the cause stays attached."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        first = (str(error).strip() or "no message").splitlines()[0]
        raise UserError(f"{model} failed while {doing} ({type(error).__name__}: {first})") from error


def _as_search_model(model: Any) -> Any:
    """Return the object that mteb would search with, encoders being watched for missing vectors and NaN."""
    from mteb.models import (
        CrossEncoderProtocol,
        EncoderProtocol,
        SearchCrossEncoderWrapper,
        SearchEncoderWrapper,
        SearchProtocol,
    )

    if isinstance(model, SearchProtocol):
        return model
    if isinstance(model, EncoderProtocol):
        return SearchEncoderWrapper(_CheckedEncoder(model))
    if isinstance(model, CrossEncoderProtocol):
        return SearchCrossEncoderWrapper(model)
    raise UserError(f"{type(model).__name__} is no encoder, cross-encoder or search model of mteb")


class _CheckedEncoder:
    """An encoder whose every answer is one finite vector per text."""

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder
        self.mteb_model_meta = encoder.mteb_model_meta

    def encode(self, inputs: Any, **kwargs: Any) -> Any:
        vectors = self._encoder.encode(inputs, **kwargs)
        if len(getattr(vectors, "shape", ())) < 2:
            form = getattr(vectors, "shape", type(vectors).__name__)
            raise UserError(f"{self.mteb_model_meta.name} returned {form} where an array of vectors was expected")
        expected, got = len(inputs.dataset), len(vectors)
        if expected != got:
            raise UserError(f"{self.mteb_model_meta.name} returned {got} vectors for {expected} texts")
        values = vectors.float().cpu().numpy() if hasattr(vectors, "cpu") else np.asarray(vectors)
        if not np.issubdtype(values.dtype, np.number) or np.iscomplexobj(values):
            raise UserError(f"{self.mteb_model_meta.name} returned vectors of {values.dtype}, not of real numbers")
        if not np.isfinite(values).all():
            bad = int((~np.isfinite(values)).reshape(len(values), -1).any(axis=1).sum())
            raise UserError(f"{self.mteb_model_meta.name} returned NaN or infinity in {bad} of {got} vectors")
        return vectors

    def similarity(self, first: Any, second: Any) -> Any:
        return self._encoder.similarity(first, second)

    def similarity_pairwise(self, first: Any, second: Any) -> Any:
        return self._encoder.similarity_pairwise(first, second)


def candidates(run: Run, exclusions: Mapping[str, frozenset[str]], depth: int) -> dict[str, list[str]]:
    """Return the pool for a reranker: the best `depth` documents of each query that it does not exclude."""
    kept: Mapping[str, Ranking] = run.without(exclusions, depth).rankings
    return {query: list(ranking.documents) for query, ranking in kept.items()}
