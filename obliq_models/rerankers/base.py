"""What every reranker takes and returns, whatever it asks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from obliq_models.llm.client import gather

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from obliq_models.llm.client import Client
    from obliq_models.llm.protocol import Request


@dataclass(frozen=True)
class Candidate:
    """A document of the pool."""

    id: str
    text: str


@dataclass(frozen=True)
class Query:
    """A query, and the task that it belongs to, from which a prompt may follow."""

    id: str
    text: str
    task: str = ""


@dataclass(frozen=True)
class Reranked:
    """One query's pool in its new order.

    Args:
        ids: The pool's document ids, each once, the best first.
        questions: How many questions were asked; each may have taken more than one call.
        failed: How many of them brought no usable answer.
        points: For a tournament: `{document id: points}` of each, in their order.
        failures: For a tournament: failed questions of each.
        constant: All scores were equal, so that they say nothing.
        counts: What was cut or repaired, by name.
    """

    ids: tuple[str, ...]
    questions: int = 0
    failed: int = 0
    points: tuple[Mapping[str, int], ...] = ()
    failures: tuple[int, ...] = ()
    constant: bool = False
    counts: Mapping[str, int] = field(default_factory=Counter)


class Reranker(ABC):
    """Puts the first documents of a ranking into another order.

    Args:
        name: What it is and does, in characters that a model's name may hold.
        pool: How many first documents it may move; those below keep their order.
    """

    name: str
    pool: int
    moves: ClassVar[bool] = True
    """Whether it ever changes an order."""

    @property
    def client(self) -> Client | None:
        """Whom it asks; None for those that ask no language model."""
        return None

    @abstractmethod
    async def rerank(self, query: Query, pool: Sequence[Candidate]) -> Reranked:
        """Return the pool's ids in a new order: a permutation, whatever is answered.

        Raises:
            UserError: If what it asks cannot be reached, or a limit is passed.
        """

    async def rerank_all(
        self, pools: Mapping[Query, Sequence[Candidate]], done: Callable[[], object] | None = None
    ) -> list[Reranked]:
        """Return every query's new order, in the order of the queries: all of them are reranked at once.

        Args:
            pools: The candidates of each query.
            done: Called for each query that is finished.
        """
        return await gather((self.rerank(query, pool) for query, pool in pools.items()), done)

    @abstractmethod
    def settings(self, task: str = "") -> dict[str, Any]:
        """Return, as JSON values, whatever can change its answers on a task."""

    def calls(self, pool: int) -> int:  # noqa: ARG002 -- for subclasses
        """Return how many calls a pool of so many documents costs."""
        return 0

    def requests(self, query: Query, pool: Sequence[Candidate]) -> Iterator[Request]:  # noqa: ARG002
        """Yield what would be asked, or requests like them in number and length where answers decide; asks nothing."""
        yield from ()
