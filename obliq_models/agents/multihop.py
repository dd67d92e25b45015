"""The multi-hop agent: it writes a query, reads what is found, takes notes, and searches again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from obliq_eval.delimited import delimit
from obliq_eval.errors import UserError
from obliq_models import prompts
from obliq_models.agents.base import Agent, Given, prepared, ranked
from obliq_models.agents.rewriter import read_query
from obliq_models.llm.answers import RANKING, SELECTION, Reading, read_object, read_ranking
from obliq_models.rerankers.asking import repairs
from obliq_models.rerankers.cutting import Cut
from obliq_models.rerankers.stage import THRESHOLD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from obliq_models.agents.retrieval import Retrieval
    from obliq_models.llm.protocol import Request
    from obliq_models.rerankers.asking import Asking
    from obliq_models.rerankers.base import Query

HOPS, PER_HOP = 4, 25
NOTES = Cut(500)
"""What is kept of one hop's notes: they are in every later prompt."""


@dataclass(frozen=True)
class Read:
    """What a language model says about the documents of a hop.

    Args:
        selected: Positions from 0 on of those that fit, in its order.
        notes: For the next hop.
        summary: One sentence on this hop.
        unknown: Numbers that no document has, dropped.
        repeated: Numbers given again, dropped.
    """

    selected: tuple[int, ...] = ()
    notes: str = ""
    summary: str = ""
    unknown: int = 0
    repeated: int = 0


@dataclass(frozen=True)
class Hop:
    """One hop of one query.

    Args:
        query: What was searched for.
        documents: What was found, the best first.
        read: What was said about it.
    """

    query: str
    documents: tuple[str, ...]
    read: Read

    @property
    def selected(self) -> tuple[str, ...]:
        """Documents that fit."""
        return tuple(self.documents[place] for place in self.read.selected)


Trail = tuple[Hop, ...]


class MultiHop(Agent):
    """Searches in hops; what was selected comes first, ordered in one call, then the rest by its score.

    All queries go from hop to hop together: the questions of a hop are asked at once, and the retriever searches once.
    A hop without a usable query searches with the original one; documents that nobody could read count as not
    selected.

    Args:
        retrievers: What it searches with, one.
        asking: The language model.
        hops: How many hops.
        per_hop: Documents of one hop.
        failures: Share of failed questions above which a search is refused.
    """

    name = "multihop"
    prompt_names = ("hop-query", "hop-read", "select-final")

    def __init__(
        self,
        retrievers: Sequence[Retrieval],
        asking: Asking,
        *,
        hops: int = HOPS,
        per_hop: int = PER_HOP,
        failures: float = THRESHOLD,
    ) -> None:
        super().__init__(retrievers, asking, failures=failures)
        if hops < 1 or per_hop < 1:
            raise UserError(f"hops is {hops} and per_hop is {per_hop}, and both must be at least 1")
        self.hops, self.per_hop = hops, per_hop

    def own_settings(self) -> dict[str, Any]:
        """Return how far it goes."""
        return {"hops": self.hops, "per_hop": self.per_hop}

    def calls(self, pool: int = 0) -> int:  # noqa: ARG002 -- the same for every pool
        """Return how many calls one query costs: two for each hop and one for the order."""
        return 2 * self.hops + 1

    def answer(self, given: Given) -> dict[str, dict[str, float]]:
        """Go all hops, then order what was selected."""
        trails: dict[str, Trail] = {query.id: () for query in given.queries}
        for hop in range(1, self.hops + 1):
            trails = self._hop(given, trails, hop)
        first = self._ordered(given, trails)
        second = self._rest(given, trails)
        return {
            query: ranked([*first[query], *second[query]][: given.top_k])
            for query in trails
            if not self.questions.silent(query)
        }

    def query_request(self, query: Query, trail: Trail, hop: int) -> Request:
        """Return the question for a hop's search query."""
        prompt = prompts.load("hop-query")
        messages = prompt.messages(material=delimit(query.text, ()), notes=notes(trail), hop=hop, hops=self.hops)
        return self.asking.llm.request(messages, prompt.schema, stage="hop-query", query=query.id)

    def read_request(self, query: Query, trail: Trail, texts: Sequence[str]) -> Request:
        """Return the question about a hop's documents."""
        prompt = prompts.load("hop-read")
        material = delimit(query.text, [self.asking.cut(text) for text in texts])
        messages = prompt.messages(material=material, notes=notes(trail), count=len(texts))
        return self.asking.llm.request(messages, prompt.schema, stage="hop-read", query=query.id)

    def _hop(self, given: Given, trails: Mapping[str, Trail], hop: int) -> dict[str, Trail]:
        label = f"hop {hop} of {self.hops}"
        written = self.questions.ask_all(
            f"{label}: queries", ((self.query_request(q, trails[q.id], hop), read_query) for q in given.queries)
        )
        texts = {query.id: new or query.text for query, new in zip(given.queries, written, strict=True)}
        self.questions.repaired["hops with the original query"] += sum(new is None for new in written)
        barred = {query: given.excluded[query] | set(seen(trail)) for query, trail in trails.items()}
        found = {q: tuple(d) for q, d in self.retriever.search(texts, self.per_hop, barred, given.allowed).items()}
        reads = self._read(given, trails, found, f"{label}: reading")
        return {q: (*trail, Hop(texts[q], found[q], reads.get(q, Read()))) for q, trail in trails.items()}

    def _read(
        self, given: Given, trails: Mapping[str, Trail], found: Mapping[str, tuple[str, ...]], label: str
    ) -> dict[str, Read]:
        """Return what is said about the documents that each query found, where anything usable is."""
        texts = self.texts({document for documents in found.values() for document in documents})
        self.questions.repaired += self.asking.cut.counts(texts.values())
        queries = [query for query in given.queries if found[query.id]]
        asked = []
        for query in queries:
            shown = [texts[document] for document in found[query.id]]
            asked.append((self.read_request(query, trails[query.id], shown), partial(read_selected, count=len(shown))))
        answers = self.questions.ask_all(label, asked)
        reads = {query.id: one for query, one in zip(queries, answers, strict=True) if one is not None}
        for one in reads.values():
            self.questions.repaired += repairs(Reading((), one.unknown, one.repeated))
            self.questions.repaired["notes cut"] += NOTES(one.notes) != one.notes
        return reads

    def _ordered(self, given: Given, trails: Mapping[str, Trail]) -> dict[str, list[str]]:
        """Return the selected documents of each query, ordered by one call."""
        pools = {query: [d for hop in trail for d in hop.selected] for query, trail in trails.items()}
        prompt = prompts.load("select-final")
        queries = [query for query in given.queries if len(pools[query.id]) > 1]
        asked = []
        for query in queries:
            texts = self.texts(pools[query.id])
            shown = [texts[document] for document in pools[query.id]]
            request = self.asking.request(prompt, query, shown, stage="select-final")
            asked.append((request, partial(read_ranking, n=len(shown))))
        for query, order in zip(queries, self.questions.ask_all("order of what was selected", asked), strict=True):
            if order is not None:
                self.questions.repaired += repairs(order)
                pools[query.id] = [pools[query.id][number - 1] for number in order.numbers]
        return pools

    def _rest(self, given: Given, trails: Mapping[str, Trail]) -> dict[str, list[str]]:
        """Return the other documents of each query by their score to the original query.

        Those that the retriever gives no score, as BM25 does where no word is shared, follow as they were found.
        """
        chosen = {query: {d for hop in trail for d in hop.selected} for query, trail in trails.items()}
        rest = {q: [d for d in seen(trail) if d not in chosen[q]] for q, trail in trails.items()}
        texts = {query.id: query.text for query in given.queries if rest[query.id]}
        found = self.retriever.search(texts, max(map(len, rest.values()), default=1), given.excluded, rest)
        return {query: list(dict.fromkeys([*found.get(query, ()), *left])) for query, left in rest.items()}


def seen(trail: Trail) -> list[str]:
    """Return the documents of all hops, in the order in which they were found."""
    return [document for hop in trail for document in hop.documents]


def notes(trail: Trail) -> str:
    """Return the notes of all hops as JSON, in which nothing can pass for a part of the prompt around it."""
    told = [
        {"hop": number, "query": NOTES(hop.query), "notes": NOTES(hop.read.notes), "summary": NOTES(hop.read.summary)}
        for number, hop in enumerate(trail, 1)
    ]
    return json.dumps(told, ensure_ascii=False).replace("<", "\\u003c")


def read_selected(text: str, count: int) -> Read | None:
    """Return what an answer says about the documents of a hop, or None.

    An empty selection is an answer; one that names only documents that do not exist is none.

    >>> read_selected('{"selection": [2, 2, 9], "notes": "n", "summary": "s"}', 3)
    Read(selected=(1,), notes='n', summary='s', unknown=1, repeated=1)
    >>> read_selected('{"selection": [], "notes": "n"}', 3)
    Read(selected=(), notes='n', summary='', unknown=0, repeated=0)
    """
    found = read_object(text, SELECTION, "notes")
    if found is None:
        return None
    told, summary = found["notes"], found.get("summary", "")
    if not isinstance(told, str) or not isinstance(summary, str):
        return None
    if found[SELECTION] == []:
        return Read((), told, summary)
    order = read_ranking(json.dumps({RANKING: found[SELECTION]}), count)
    if order is None:
        return None
    named = order.numbers[: count - order.added]  # the rest was not named, only appended
    return Read(tuple(number - 1 for number in named), told, summary, order.unknown, order.repeated)


def load(
    name: str,
    revision: str | None = None,  # noqa: ARG001 -- a loader's form
    *,
    hops: int = HOPS,
    per_hop: int = PER_HOP,
    failures: float = THRESHOLD,
    **parts: Any,
) -> MultiHop:
    """Load the retriever; the language model is not asked anything yet.

    Args:
        name: Full name of the model.
        revision: Its revision.
        hops: How many hops.
        per_hop: Documents of one hop.
        failures: Share of failed questions above which a search is refused.
        **parts: See `prepared`.

    Raises:
        UserError: If a part cannot be had.
    """
    found, asking = prepared(name, **parts)
    return MultiHop(found, asking, hops=hops, per_hop=per_hop, failures=failures)
