"""Any model of the zoo as a retriever for BEIR's own `EvaluateRetrieval`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from obliq_eval.errors import MissingExtraError, UserError
from obliq_eval.exclusions import EXCLUDED_COLUMN, ExcludingSearch

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from beir.retrieval.search.base import BaseSearch


def retriever(
    model: str | object, *, excluded: Mapping[str, Collection[str]] | None = None, device: str | None = None
) -> BaseSearch:
    """Return a retriever for `beir.retrieval.evaluation.EvaluateRetrieval`.

    It answers every query: one that the model finds nothing for gets an id that nobody judged, since BEIR's means
    drop queries without an answer.

    Args:
        model: What stands after `-m` of `obliq run`, or a loaded model.
        excluded: `{query id: ids of documents}` that may not be returned.
        device: Where to run a model that is given by name.

    Raises:
        MissingExtraError: If beir is not installed.
        UserError: If the model is unknown or cannot be loaded; the message names it.
    """
    try:
        from beir.retrieval.search.base import BaseSearch
    except ImportError as error:
        raise MissingExtraError("beir", "beir", "a retriever for BEIR") from error
    if isinstance(model, str):
        from obliq_eval.running import Request, find_model

        model = find_model(Request(model=model, device=device))
    held = {query: frozenset(documents) for query, documents in (excluded or {}).items()}
    return type("BeirRetriever", (_Search, BaseSearch), {})(model, held)


class _Search:
    """BEIR's search over one model."""

    def __init__(self, model: object, excluded: Mapping[str, frozenset[str]]) -> None:
        self.model, self.excluded = model, excluded

    def search(
        self,
        corpus: Mapping[str, Mapping[str, str]],
        queries: Mapping[str, str],
        top_k: int,
        score_function: str | None = None,  # noqa: ARG002 -- the model's own is used; BEIR always passes one
        **encode_kwargs: Any,
    ) -> dict[str, dict[str, float]]:
        """Return `{query id: {document id: score}}`, exclusions applied, every query present."""
        import datasets

        columns: dict[str, Sequence[Any]] = {
            "id": list(corpus),
            "text": [document.get("text") or "" for document in corpus.values()],
        }
        if any(document.get("title") for document in corpus.values()):
            columns["title"] = [document.get("title") or "" for document in corpus.values()]
        asked = {
            "id": list(queries),
            "text": list(queries.values()),
            EXCLUDED_COLUMN: [sorted(self.excluded.get(query, ())) for query in queries],
        }
        searched = ExcludingSearch(self.model, self.excluded)
        # What mteb passes to every model; BEIR knows no task.
        given: dict[str, Any] = {
            "task_metadata": None,
            "hf_split": "test",
            "hf_subset": "default",
            "encode_kwargs": encode_kwargs,
        }
        searched.index(datasets.Dataset.from_dict(dict(columns)), **given)
        return searched.search(datasets.Dataset.from_dict(asked), top_k=top_k, **given)

    def encode(self, *_: object, **__: object) -> NoReturn:
        """Refuse: vectors are kept in obliq's own store, whichever way a model is run.

        Raises:
            UserError: Always.
        """
        raise UserError(
            "encode_and_retrieve() is not supported: call retrieve(), which keeps vectors in obliq's own store"
        )

    search_from_files = encode
