"""TourRank (Chen et al. 2025): Y tournaments at once, each selection a point, the points summed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from obliq_models import prompts
from obliq_models.llm.client import gather
from obliq_models.rerankers import tournament
from obliq_models.rerankers.asking import Asking, check, repairs
from obliq_models.rerankers.base import Candidate, Query, Reranked, Reranker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from obliq_models.llm.client import Client
    from obliq_models.llm.protocol import Request
    from obliq_models.prompts import Prompt
    from obliq_models.rerankers.tournament import Group

FILLED = frozenset({"count", "choose", "material", "answer"})


@dataclass(frozen=True)
class _Played:
    """One tournament: points by place in the pool, failed questions, and what was repaired."""

    points: Mapping[int, int]
    failed: int
    repaired: Counter[str]


@dataclass(frozen=True)
class TourRank(Reranker):
    """Lets the documents of a pool compete.

    Args:
        asking: The language model.
        y: Tournaments.
        pool: How many first documents take part; above 100, rounds of groups of 20 come before (a cascade).
        seed: Of the order in which a group is shown.
        prompt: What is asked; None for the generic `tourrank`.
        name: What it is called.

    Raises:
        UserError: If the prompt asks for no selection.
    """

    asking: Asking
    y: int = 5
    pool: int = 100
    seed: int = 0
    prompt: Prompt | None = None
    name: str = "tourrank"

    def __post_init__(self) -> None:
        if self.prompt is not None:
            check(self.prompt, "selection", FILLED)

    @property
    def client(self) -> Client | None:
        """Whom it asks."""
        return self.asking.client

    @property
    def chosen(self) -> Prompt:
        """The prompt."""
        return self.prompt or prompts.load("tourrank")

    def settings(self, task: str = "") -> dict[str, Any]:  # noqa: ARG002 -- the same for every task
        """Return what it is and asks."""
        return {
            "reranker": "tourrank",
            "y": self.y,
            "pool": self.pool,
            "seed": self.seed,
            **self.asking.settings(self.chosen),
        }

    def calls(self, pool: int) -> int:
        """Return how many calls a pool costs: 13 for 100 documents and one tournament."""
        return tournament.calls(min(pool, self.pool), self.y)

    def requests(self, query: Query, pool: Sequence[Candidate]) -> Iterator[Request]:
        """Yield the calls of tournaments in which the first documents of every group win."""
        for number in range(self.y):
            left: Sequence[int] = range(len(pool))
            for at, stage in enumerate(tournament.stages(len(pool))):
                groups = tournament.groups(left, stage, self._shuffle(query, number, at))
                for group in groups:
                    if len(group.documents) > 1:
                        yield self._request(query, pool, group, number)
                left = sorted(place for group in groups for place in sorted(group.documents)[: group.choose])

    async def rerank(self, query: Query, pool: Sequence[Candidate]) -> Reranked:
        """Play all tournaments at once and order the pool by points; equal points keep the incoming order."""
        played = await gather(self._play(query, pool, number) for number in range(self.y))
        order = tournament.order(len(pool), tournament.added(one.points for one in played))
        counts = self.asking.cut.counts(candidate.text for candidate in pool)
        counts += sum((one.repaired for one in played), Counter())
        return Reranked(
            tuple(pool[place].id for place in order),
            tournament.calls(len(pool), self.y),
            sum(one.failed for one in played),
            tuple({pool[place].id: won for place, won in one.points.items()} for one in played),
            tuple(one.failed for one in played),
            counts=counts,
        )

    async def _play(self, query: Query, pool: Sequence[Candidate], number: int) -> _Played:
        """Play one tournament, all groups of a round at once.

        A group without a usable answer gives no points; its first documents in the incoming order go on.
        """
        points: dict[int, int] = {}
        failed = 0
        repaired: Counter[str] = Counter()
        left: Sequence[int] = range(len(pool))
        for at, stage in enumerate(tournament.stages(len(pool))):
            groups = tournament.groups(left, stage, self._shuffle(query, number, at))
            answers = await gather(self._ask(query, pool, group, number) for group in groups)
            through: list[int] = []
            for group, (chosen, mended) in zip(groups, answers, strict=True):
                repaired += mended
                if chosen is None:
                    failed += len(group.documents) > 1  # one alone plays nobody
                    through += sorted(group.documents)[: group.choose]
                    continue
                through += chosen
                for place in chosen:
                    points[place] = points.get(place, 0) + 1
            left = sorted(through)
        return _Played(points, failed, repaired)

    async def _ask(
        self, query: Query, pool: Sequence[Candidate], group: Group, number: int
    ) -> tuple[list[int] | None, Counter[str]]:
        """Return the places that a group's answer chooses, or None, and what had to be repaired."""
        size = len(group.documents)
        if size < 2:
            return None, Counter()
        found = await self.asking.ask(self._request(query, pool, group, number), size, group.choose)
        if found is None:
            return None, Counter()
        return [group.documents[position] for position in found.numbers], repairs(found)

    def _request(self, query: Query, pool: Sequence[Candidate], group: Group, number: int) -> Request:
        texts = [pool[place].text for place in group.documents]
        return self.asking.request(self.chosen, query, texts, stage=self.name, choose=group.choose, sample=number)

    def _shuffle(self, query: Query, number: int, at: int) -> str:
        """Return the seed of one round: independent of when it is played."""
        return f"{self.seed}/{query.id}/{number}/{at}"
