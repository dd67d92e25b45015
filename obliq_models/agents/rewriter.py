"""The query rewriter: one rewrite for each query, then the retriever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from obliq_eval.delimited import delimit
from obliq_models import prompts
from obliq_models.agents.base import Agent, Given, prepared
from obliq_models.llm.answers import read_object
from obliq_models.rerankers.stage import THRESHOLD

if TYPE_CHECKING:
    from obliq_models.llm.protocol import Request
    from obliq_models.rerankers.base import Query

STAGE = "rewrite"


class Rewriter(Agent):
    """Searches with what a language model makes of each query; where it makes nothing, with the query as it is."""

    name = "query-rewriter"
    prompt_names = ("rewrite",)

    def calls(self, pool: int = 0) -> int:  # noqa: ARG002 -- the same for every pool
        """Return how many calls one query costs."""
        return 1

    def request(self, query: Query) -> Request:
        """Return the question about one query."""
        prompt = prompts.load("rewrite")
        messages = prompt.messages(material=delimit(query.text, ()))
        return self.asking.llm.request(messages, prompt.schema, stage=STAGE, query=query.id)

    def answer(self, given: Given) -> dict[str, dict[str, float]]:
        """Rewrite all queries at once, then search."""
        found = self.questions.ask_all(STAGE, ((self.request(query), read_query) for query in given.queries))
        texts = {query.id: new or query.text for query, new in zip(given.queries, found, strict=True)}
        if kept := sum(new is None for new in found):
            self.questions.repaired["queries searched as they were"] = kept
        return self.retriever.search(texts, given.top_k, given.excluded, given.allowed)


def read_query(text: str) -> str | None:
    """Return the query that an answer gives as JSON, or None.

    >>> read_query('{"query": "a stance"}'), read_query('{"query": " "}'), read_query("a stance")
    ('a stance', None, None)
    """
    found = read_object(text, "query")
    query = None if found is None else found["query"]
    return query.strip() or None if isinstance(query, str) else None


def load(
    name: str,
    revision: str | None = None,  # noqa: ARG001 -- a loader's form
    *,
    failures: float = THRESHOLD,
    **parts: Any,
) -> Rewriter:
    """Load the retriever; the language model is not asked anything yet.

    Args:
        name: Full name of the model.
        revision: Its revision.
        failures: Share of queries that may be searched as they were.
        **parts: See `prepared`.

    Raises:
        UserError: If a part cannot be had.
    """
    found, asking = prepared(name, **parts)
    return Rewriter(found, asking, failures=failures)
