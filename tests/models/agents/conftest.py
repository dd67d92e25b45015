"""Agents over a retriever with known scores, and language models that are functions."""

from __future__ import annotations

import asyncio
import random
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import torch

from obliq_eval.catalogue import ModelEntry, to_meta
from obliq_eval.demo.personalities import Asked
from obliq_models.agents.retrieval import Retrieval
from obliq_models.llm.client import Client
from obliq_models.llm.fake import FakeBackend
from obliq_models.llm.retry import Retries
from obliq_models.llm.settings import LLMSettings
from obliq_models.rerankers.asking import Asking
from obliq_models.rerankers.cutting import Cut
from obliq_models.retrievers.base import Retriever, Texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import datasets

    from obliq_eval.demo.personalities import Personality
    from obliq_models.agents.base import Agent
    from obliq_models.llm.protocol import Request


class Scored(Retriever):
    """Knows a score for every pair of a query's and a document's text; 0 where nothing is said."""

    def __init__(self, scores: Mapping[str, Mapping[str, float]]) -> None:
        super().__init__()
        self.scores = scores
        self.asked: list[list[str]] = []

    def fit(self, texts: Texts) -> None:
        self.texts = list(texts)

    def score(self, texts: Sequence[str]) -> Iterator[torch.Tensor]:
        self.asked.append(list(texts))
        yield torch.tensor([[self.scores.get(text, {}).get(d, 0.0) for d in self.texts] for text in texts])


class Words(Scored):
    """Scores by the number of shared words."""

    def __init__(self) -> None:
        super().__init__({})

    def score(self, texts: Sequence[str]) -> Iterator[torch.Tensor]:
        self.asked.append(list(texts))
        yield torch.tensor([[float(len({*t.split()} & {*d.split()})) for d in self.texts] for t in texts])


def played(personality: Personality) -> Callable[[Request], str]:
    """Return a language model that answers as a personality of the loopback server."""
    numbers = count()
    return lambda request: personality(Asked(next(numbers), request.messages)).text


def delayed(answer: Callable[[Request], Any], seed: int) -> Callable[[Request], Any]:
    """Return the same language model, its answers in another order."""
    chance = random.Random(seed)

    async def late(request: Request) -> Any:
        await asyncio.sleep(chance.random() / 100)
        return answer(request)

    return late


TOY = ModelEntry(name="toy/retriever", alias="toy", loader="toy:load", revision="1")


@pytest.fixture
def build() -> Iterator[Callable[..., Any]]:
    """Return a function that makes an agent; its backend is at `agent.backend`."""
    clients: list[Client] = []

    def make(kind: type[Agent], answer: Any, *retrievers: Any, attempts: int = 2, **settings: Any) -> Any:
        backend = FakeBackend(answer)
        client = Client(backend, retries=Retries(attempts=2, base=0.0))
        clients.append(client)
        asking = Asking(LLMSettings(model="judge", attempts=attempts), client, Cut(settings.pop("tokens", 1024)))
        for one in retrievers:
            one.mteb_model_meta = to_meta(TOY)
        parts = [Retrieval(one, f"r{at}", (f"toy/r{at}", "1")) for at, one in enumerate(retrievers)]
        agent: Any = kind(parts, asking, **settings)
        agent.backend = backend
        return agent

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def searched(table: Callable[..., datasets.Dataset]) -> Callable[..., dict[str, list[str]]]:
    """Return a function from an agent, texts and exclusions to the documents of each query, the best first."""

    def search(
        agent: Agent,
        corpus: Mapping[str, str],
        queries: Mapping[str, str],
        excluded: Mapping[str, list[str]] | None = None,
        top_k: int = 1000,
        **more: Any,
    ) -> dict[str, list[str]]:
        agent.index(table(corpus))
        found = agent.search(table(queries, excluded or {}), top_k=top_k, **more)
        return {query: sorted(answer, key=lambda d: -answer[d]) for query, answer in found.items()}

    return search
