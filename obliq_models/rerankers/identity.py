"""The reranker that leaves a ranking as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from obliq_models.rerankers.base import Candidate, Query, Reranked, Reranker

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Identity(Reranker):
    """Moves nothing and asks nobody."""

    name: str = "identity"
    pool: int = 0
    moves: ClassVar[bool] = False

    async def rerank(self, query: Query, pool: Sequence[Candidate]) -> Reranked:  # noqa: ARG002
        """Return the ids as they come."""
        return Reranked(tuple(candidate.id for candidate in pool))

    def settings(self, task: str = "") -> dict[str, Any]:  # noqa: ARG002
        """Return what it is."""
        return {"reranker": self.name}
