"""Listwise reranking: one call orders the first K, or a window of K slides over the pool (Sun et al. 2023)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from obliq_eval.data.official import OFFICIAL
from obliq_eval.data.sources import MINI
from obliq_models import prompts
from obliq_models.rerankers.asking import Asking, check, repairs
from obliq_models.rerankers.base import Candidate, Query, Reranked, Reranker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from obliq_models.llm.client import Client
    from obliq_models.llm.protocol import Request
    from obliq_models.prompts import Prompt

GENERIC = "listwise"
FILLED = frozenset({"count", "material", "answer"})


def prompt_for(task: str) -> str:
    """Return the name of the prompt that names a task's latent attribute; the generic one for a task of one's own.

    >>> prompt_for("OBLIQ-Mini-Writing"), prompt_for("my-folder")
    ('listwise-writing', 'listwise')
    """
    if task not in OFFICIAL and task not in MINI:
        return GENERIC
    return f"{GENERIC}-{task.removeprefix('OBLIQ-').removeprefix('Mini-').lower()}"


def windows(pool: int, k: int, stride: int) -> list[tuple[int, int]]:
    """Return the places of windows of `k` that move from the end of a pool to its beginning; of one, without a stride.

    >>> windows(50, 20, 10)
    [(30, 50), (20, 40), (10, 30), (0, 20)]
    >>> windows(50, 20, 0), windows(1, 20, 10)
    ([(0, 20)], [])
    """
    if pool < 2:
        return []
    if not stride:
        return [(0, min(k, pool))]
    ends = range(pool, 0, -stride)
    last = next((at for at, end in enumerate(ends) if end <= k), len(ends) - 1)
    return [(max(0, end - k), end) for end in ends[: last + 1]]


@dataclass(frozen=True)
class Listwise(Reranker):
    """Asks for the order of the first documents.

    Args:
        asking: The language model.
        k: Documents in one call.
        stride: 0 for one call over the first `k`. Otherwise a window of `k` moves from the end of the pool to its
            beginning by so many places, one call after the other, so that a document can rise all the way.
        pool: How many documents a moving window covers.
        prompt: What is asked; None for the prompt of the query's task (`prompt_for`).
        name: What it is called.

    Raises:
        UserError: If the prompt asks for no ranking.
    """

    asking: Asking
    k: int = 20
    stride: int = 0
    pool: int = 20
    prompt: Prompt | None = None
    name: str = "listwise"

    def __post_init__(self) -> None:
        if self.prompt is not None:
            check(self.prompt, "ranking", FILLED)

    @property
    def client(self) -> Client | None:
        """Whom it asks."""
        return self.asking.client

    def chosen(self, task: str) -> Prompt:
        """Return the prompt for a task."""
        return self.prompt or prompts.load(prompt_for(task))

    def settings(self, task: str = "") -> dict[str, Any]:
        """Return what it is and asks."""
        moving = {"stride": self.stride, "pool": self.pool} if self.stride else {}
        return {"reranker": "listwise", "k": self.k, **moving, **self.asking.settings(self.chosen(task))}

    def windows(self, pool: int) -> list[tuple[int, int]]:
        """Return the places that each call orders, first call first."""
        return windows(min(pool, self.pool if self.stride else self.k), self.k, self.stride)

    def calls(self, pool: int) -> int:
        """Return how many calls a pool costs."""
        return len(self.windows(pool))

    def requests(self, query: Query, pool: Sequence[Candidate]) -> Iterator[Request]:
        """Yield the calls; those after the first are as if it left the order as it was."""
        for start, end in self.windows(len(pool)):
            yield self._request(query, pool[start:end])

    async def rerank(self, query: Query, pool: Sequence[Candidate]) -> Reranked:
        """Order the pool; a window without a usable answer keeps its order."""
        order = list(pool)
        failed = 0
        windows = self.windows(len(pool))
        counts: Counter[str] = Counter()
        for start, end in windows:
            window = order[start:end]
            found = await self.asking.ask(self._request(query, window), len(window))
            if found is None:
                failed += 1
                continue
            counts += repairs(found)
            order[start:end] = [window[place] for place in found.numbers]
        seen = pool[: max((end for _, end in windows), default=0)]
        counts += self.asking.cut.counts(candidate.text for candidate in seen)
        return Reranked(tuple(candidate.id for candidate in order), len(windows), failed, counts=counts)

    def _request(self, query: Query, window: Sequence[Candidate]) -> Request:
        texts = [candidate.text for candidate in window]
        return self.asking.request(self.chosen(query.task), query, texts, stage=self.name)
