"""The retriever under an agent: asked anything, as often as it takes, always within a query's exclusions."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from obliq_eval.catalogue import to_meta
from obliq_eval.errors import UserError
from obliq_eval.exclusions import EXCLUDED_COLUMN
from obliq_models.retrievers.fusion import Part

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import datasets

    from obliq_eval.catalogue import ModelEntry

AGENTS = "obliq_models.agents"


class Retrieval:
    """A retriever over one corpus.

    It works in the caller's thread, one search at a time, all queries of a search together: retrievers are not made
    for more. Those that keep an index search it; mteb's plain encoders encode the corpus again for every search.

    Args:
        model: Any model that mteb can search with.
        alias: What it is called in counts.
        identity: Name and revision.
    """

    def __init__(self, model: Any, alias: str, identity: tuple[str, str | None] = ("", None)) -> None:
        self.model, self.alias, self.identity = model, alias, identity
        self.seconds = 0.0
        self._part = Part(model)
        self._options: dict[str, Any] = {}

    def index(self, corpus: datasets.Dataset, **options: Any) -> None:
        """Index a corpus (see mteb's `SearchProtocol`)."""
        self._part.index(corpus, **options)

    def begin(self, **options: Any) -> None:
        """Keep what mteb says to every search, such as `task_metadata` and `encode_kwargs`, and start the clock."""
        self._options, self.seconds = options, 0.0

    def search(
        self,
        texts: Mapping[str, str],
        top_k: int,
        excluded: Mapping[str, Collection[str]],
        allowed: Mapping[str, Collection[str]] | None = None,
    ) -> dict[str, dict[str, float]]:
        """Return the best documents for some texts.

        Args:
            texts: `{query id: what to search for}`.
            top_k: How many documents, at most.
            excluded: Documents that may not be found, by query.
            allowed: The only documents that may be found, by query; None for all.

        Returns:
            `{query id: {document id: score}}` in canonical order.
        """
        if not texts:
            return {}
        started = perf_counter()
        top_ranked = None if allowed is None else {query: sorted(allowed.get(query, ())) for query in texts}
        found = self._part.search(_table(texts, excluded), top_k=top_k, top_ranked=top_ranked, **self._options)
        self.seconds += perf_counter() - started
        return found

    @property
    def counts(self) -> dict[str, int]:
        """What the retriever itself counted."""
        return dict(getattr(self.model, "counts", {}))


def open_all(texts: Sequence[str], device: str | None = None) -> tuple[Retrieval, ...]:
    """Load the retrievers that some texts mean; a text is what may stand after `-m`.

    Raises:
        UserError: If there is no such model, it cannot be loaded, or it is an agent itself.
    """
    from obliq_models.naming import find

    entries = [find(text) for text in texts]
    for entry in entries:
        if _loader(entry).startswith(AGENTS):
            raise UserError(f"{entry.alias} is an agent itself, and an agent searches with a retriever: name one")
    return tuple(
        Retrieval(to_meta(entry).load_model(device=device), entry.alias, (entry.name, entry.revision))
        for entry in entries
    )


def _loader(entry: ModelEntry) -> str:
    """Return what loads a model, that of the table's where settings of it were changed."""
    return str(entry.settings.get("loader", entry.loader))


def _table(texts: Mapping[str, str], excluded: Mapping[str, Collection[str]]) -> datasets.Dataset:
    import datasets

    kinds = {"id": datasets.Value("string"), "text": datasets.Value("string")}
    return datasets.Dataset.from_dict(
        {
            "id": list(texts),
            "text": list(texts.values()),
            EXCLUDED_COLUMN: [sorted(excluded.get(query, ())) for query in texts],
        },
        features=datasets.Features({**kinds, EXCLUDED_COLUMN: datasets.List(datasets.Value("string"))}),
    )
