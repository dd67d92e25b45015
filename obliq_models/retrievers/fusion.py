"""Several retrievers fused by mteb's `HybridSearch`, each of them keeping to the exclusions."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from obliq_eval.catalogue import to_meta
from obliq_eval.exclusions import EXCLUDED_COLUMN, ExcludingSearch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def load(
    name: str,  # noqa: ARG001 -- a loader's form
    revision: str | None = None,  # noqa: ARG001
    *,
    parts: Sequence[str],
    strategy: str = "rrf",
    rrf_k: int = 60,
    device: str | None = None,
) -> Any:
    """Load the parts and fuse them.

    Args:
        name: Full name of the fusion.
        revision: Hash over the parts.
        parts: What each part is called after `-m`.
        strategy: mteb's: `rrf`, `dbsf` or `rsf`.
        rrf_k: Constant of reciprocal rank fusion.
        device: Where the parts run.

    Raises:
        UserError: If a part cannot be loaded.
    """
    from obliq_models.naming import find

    models = [Part(to_meta(find(part)).load_model(device=device)) for part in parts]
    fusion = _fusion()(models, fusion_strategy=strategy, rrf_k=rrf_k)
    fusion.parts = dict(zip(parts, models, strict=True))
    return fusion


class Part:
    """A model of a fusion. No excluded document is among its answers, so that none takes a rank from another.

    Args:
        model: Any model that mteb can search with.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.mteb_model_meta = model, model.mteb_model_meta
        self._search = ExcludingSearch(model, {})

    def index(self, corpus: Any, **kwargs: Any) -> None:
        """Index the corpus (see mteb's `SearchProtocol`)."""
        self._search.index(corpus, **kwargs)

    def search(
        self, queries: Any, *, top_k: int, top_ranked: Mapping[str, list[str]] | None = None, **kwargs: Any
    ) -> dict[str, dict[str, float]]:
        """Search (see mteb's `SearchProtocol`); a column `excluded_ids` of the queries holds for every part."""
        excluded = queries[EXCLUDED_COLUMN] if EXCLUDED_COLUMN in queries.column_names else [()] * len(queries)
        pairs = zip(queries["id"], excluded, strict=True)
        self._search.exclusions = {query: frozenset(ids or ()) for query, ids in pairs}
        self._search.search(queries, top_k=top_k, top_ranked=top_ranked, **kwargs)
        return self._search.run.to_dict()


@cache
def _fusion() -> Any:
    from mteb.models.hybrid_wrappers import HybridSearch  # takes seconds to import

    class Fusion(HybridSearch):
        """mteb's fusion, which says what its parts say."""

        accepts_exclusions = True
        parts: Mapping[str, Part]

        @property
        def counts(self) -> dict[str, int]:
            """What the parts counted, each under its name."""
            counted = {name: getattr(part.model, "counts", {}) for name, part in self.parts.items()}
            return {f"{name}: {what}": number for name, counts in counted.items() for what, number in counts.items()}

    return Fusion
