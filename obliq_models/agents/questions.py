"""What an agent asks during one search: all at once, every failure counted by query, no failure hidden."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from obliq_eval.errors import UserError
from obliq_models.llm.client import Failure, gather
from obliq_models.llm.protocol import CallError
from obliq_models.rerankers.progress import watch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from obliq_models.llm.client import Client
    from obliq_models.llm.protocol import Request

T = TypeVar("T")
V = TypeVar("V")
NAMED = 5  # how many queries are named in a sentence
logger = logging.getLogger("obliq")


class Questions:
    """The questions of one search.

    A question fails if no answer to it can be read, or if the server refuses it. That costs only its own query
    something. A server that does not answer at all ends the search: what was answered is in the cache.

    Args:
        client: What asks.
        attempts: How many answers to one question are looked at.
    """

    def __init__(self, client: Client, attempts: int) -> None:
        self.asked: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.repaired: Counter[str] = Counter()
        self._client, self._attempts = client, attempts
        self._refusals: list[CallError] = []

    async def ask(self, request: Request, read: Callable[[str], V | None]) -> V | None:
        """Return what `read` makes of the answer, or None if it failed.

        Raises:
            UserError: If the server cannot be reached, a limit is passed, or an answer is missing from a replay.
        """
        self.asked[request.query] += 1
        try:
            found = await self._client.ask_valid(request, read, self._attempts)
        except CallError as error:
            if error.retriable or isinstance(error.__cause__, CallError):  # tried again in vain: it is the server
                raise
            self._refusals.append(error)
            found = Failure(str(error), 1, "")
        if isinstance(found, Failure):
            self.failed[request.query] += 1
            return None
        return found

    def run(self, what: str, works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Run coroutines that ask, all at once, and return their results in order, however answers arrive.

        Args:
            what: Shown beside the progress.
            works: The coroutines.

        Raises:
            UserError: As `ask`, and if every question of the search so far was refused.
        """
        todo = list(works)
        with watch(what, len(todo), self._client.ledger) as done:
            found = self._client.run(gather(todo, done))
        if self._refusals and len(self._refusals) == self.asked.total():
            raise self._refusals[0]
        return found

    def ask_all(self, what: str, questions: Iterable[tuple[Request, Callable[[str], V | None]]]) -> list[V | None]:
        """Return what each question's answer says, in the order of the questions; see `ask` and `run`."""
        return self.run(what, (self.ask(request, read) for request, read in questions))

    def silent(self, query: str) -> bool:
        """Return whether questions were asked for a query, and every one of them failed."""
        return 0 < self.asked[query] == self.failed[query]

    def check(self, name: str, threshold: float) -> None:
        """Name the queries with failures, and refuse a search with too many.

        Args:
            name: The agent.
            threshold: Share of questions that may fail.

        Raises:
            UserError: If more failed.
        """
        failed, asked = self.failed.total(), self.asked.total()
        if not failed:
            return
        empty = [query for query in self.failed if self.silent(query)]
        for queries, what in ((self.failed, "had a question without a usable answer"), (empty, "got no answer at all")):
            if queries:
                names = ", ".join(sorted(queries)[:NAMED])
                logger.warning("%s: %d of %d queries %s: %s", name, len(queries), len(self.asked), what, names)
        if failed / asked > threshold:
            raise UserError(
                f"{name}: {failed:,} of {asked:,} questions ({failed / asked:.1%}) brought no usable answer, more than "
                f"the {threshold:.0%} that may fail, so nothing was stored. Every answer is kept in the cache: set a "
                "larger $OBLIQ_LLM_MAX_TOKENS or another model and run it again, or let more fail with `failures` in "
                "a model file"
            )

    def counts(self, name: str) -> dict[str, int]:
        """Return what happened, as counts for a manifest."""
        found = {
            "questions": self.asked.total(),
            "questions without a usable answer": self.failed.total(),
            "queries with such a question": len(self.failed),
            "queries without any answer": sum(map(self.silent, self.asked)),
            **self.repaired,
        }
        return {f"{name}: {what}": number for what, number in found.items() if number}
