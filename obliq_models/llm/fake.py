"""A backend without a model: a function answers."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from obliq_models.llm.estimate import likely_tokens, prompt_tokens
from obliq_models.llm.protocol import LENGTH, Request, Response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    Answer = str | Response
    Function = Callable[[Request], Answer | Awaitable[Answer]]


class FakeBackend:
    """Answers every request with what a function returns; complete, and without any model.

    A text becomes a response with guessed token counts, cut at the request's token limit as a server would.

    Args:
        function: From a request to a text, a `Response`, or an awaitable of one; it may raise `CallError`.
        name: Name of the backend, a part of the cache's key.
    """

    def __init__(self, function: Function, name: str = "fake") -> None:
        self.name = name
        self.counts: dict[str, int] = {}
        self.requests: list[Request] = []
        """Every request that reached it, in their order."""
        self._function = function

    async def complete(self, request: Request) -> Response:
        """Answer one request."""
        self.requests.append(request)
        found = self._function(request)
        answer = await found if inspect.isawaitable(found) else found
        return answer if isinstance(answer, Response) else _response(request, answer)

    def settings(self) -> Mapping[str, Any]:
        """Return nothing: the function is taken to be the same whenever the name is."""
        return {}

    async def close(self) -> None:
        """Do nothing."""


def _response(request: Request, text: str) -> Response:
    read, written = prompt_tokens(request), likely_tokens(text)
    if written <= request.max_tokens:
        return Response(text, "stop", read, written, request.model)
    cut = text.encode()[: 4 * request.max_tokens].decode("utf-8", "ignore")
    return Response(cut, LENGTH, read, request.max_tokens, request.model)
