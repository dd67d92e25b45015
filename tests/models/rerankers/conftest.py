"""A language model that is a function, behind the real client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval.demo.personalities import Asked
from obliq_models.llm.cache import Cache
from obliq_models.llm.client import Client
from obliq_models.llm.fake import FakeBackend
from obliq_models.llm.settings import LLMSettings
from obliq_models.rerankers.asking import Asking
from obliq_models.rerankers.base import Candidate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def asking(obliq_home: Any) -> Iterator[Callable[..., Asking]]:
    """Return a function from a personality, or a function of requests, to a language model that behaves so."""
    clients: list[Client] = []

    def make(personality: Any = None, *, function: Any = None, cache: bool = False) -> Asking:
        def play(request: Any) -> str:
            messages = tuple(tuple(message) for message in request.messages)
            return str(personality(Asked(0, messages, seed=request.sample)).text)

        client = Client(FakeBackend(function or play), cache=Cache() if cache else None)
        clients.append(client)
        return Asking(LLMSettings(model="m"), client)

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def pool() -> Callable[[int], tuple[Candidate, ...]]:
    """Return a function from a size to candidates d0, d1, ... with texts of their own."""

    def make(size: int) -> tuple[Candidate, ...]:
        return tuple(
            Candidate(f"d{number}", f"the text of document number {number:03d}, nothing else") for number in range(size)
        )

    return make


@pytest.fixture
def requests() -> Callable[[Asking], list[Any]]:
    """Return a function from a language model to the requests that reached it."""

    def found(asking: Asking) -> list[Any]:
        backend: Any = asking.client and asking.client.backend
        return list(backend.requests)

    return found
