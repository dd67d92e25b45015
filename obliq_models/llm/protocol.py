"""What is asked of a language model, what comes back, and what a backend owes its users."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

Message = tuple[str, str]
"""Role (`system`, `user`, `assistant`) and content."""

STOP, LENGTH = "stop", "length"
UNFINISHED = frozenset({LENGTH, "content_filter", "abort", "error"})
"""Why an answer ended where it is none: these are never stored, and never parsed."""


@dataclass(frozen=True)
class Request:
    """One question to a language model.

    Args:
        messages: (role, content) pairs.
        model: The model's name, as the server knows it.
        temperature: 0 for the likeliest answer.
        max_tokens: The longest answer, in tokens, thinking included.
        seed: Seed of the sampling, where the backend has one; sample i is asked with seed + i.
        schema: JSON schema of the answer, or None for free text.
        sample: Which of several answers to the same question this is; a part of the cache's key.
        stage: What the answer is for, such as `tourrank`; labels the ledger, not a part of the key.
        query: Id of the query that it is for; likewise.
    """

    messages: tuple[Message, ...]
    model: str
    temperature: float = 0.0
    max_tokens: int = 1024
    seed: int | None = None
    schema: Mapping[str, Any] | None = None
    sample: int = 0
    stage: str = ""
    query: str = ""

    @property
    def sent_seed(self) -> int | None:
        """The seed of this sample: without it, all samples of a seeded request would be alike."""
        return None if self.seed is None else self.seed + self.sample

    def chat(self) -> list[dict[str, str]]:
        """Return the messages as the chat-completions protocol has them."""
        return [{"role": role, "content": content} for role, content in self.messages]

    def settings(self) -> dict[str, Any]:
        """Return, as JSON values, everything but the messages that can change the answer."""
        return {
            "model": self.model,
            "temperature": float(self.temperature),
            "max_tokens": self.max_tokens,
            "seed": self.seed,
            "schema": None if self.schema is None else dict(self.schema),
            "sample": self.sample,
        }

    def told(self) -> str:
        """Return whom it is for, as messages name it: `stage 'tourrank', query 'q3'`."""
        parts = [f"{kind} {value!r}" for kind, value in (("stage", self.stage), ("query", self.query)) if value]
        return ", ".join(parts) or "a request without stage and query"


@dataclass(frozen=True)
class Response:
    """One answer.

    Args:
        text: What the model wrote, thinking included where the server leaves it in.
        finish_reason: `stop`; one of `UNFINISHED`; or what else the server says.
        prompt_tokens: Tokens read; estimated where the server does not say, which the backend counts.
        completion_tokens: Tokens written; likewise.
        model: The model that answered, as the server names it.
        seconds: Wall-clock time of the call that made it.
        cached: No call was made for it: it was stored, or the same question was already on its way.
    """

    text: str
    finish_reason: str = STOP
    prompt_tokens: int = 0
    completion_tokens: int = 0
    model: str = ""
    seconds: float = 0.0
    cached: bool = False

    @property
    def complete(self) -> bool:
        """Whether the model came to an end of its own."""
        return self.finish_reason not in UNFINISHED


@dataclass(frozen=True)
class Key:
    """Under what an answer is kept.

    Args:
        digest: SHA-256 over everything below, hexadecimal.
        messages: SHA-256 of the messages alone.
        settings: Everything else that can change the answer.
    """

    digest: str
    messages: str
    settings: Mapping[str, Any] = field(hash=False)


@runtime_checkable
class Backend(Protocol):
    """What answers a request, once, without retrying, storing or limiting anything.

    `complete` raises `CallError` where a call fails. `counts` holds what was repaired, guessed or fell back.
    """

    name: str
    counts: dict[str, int]

    async def complete(self, request: Request) -> Response:
        """Answer one request."""
        ...

    def settings(self) -> Mapping[str, Any]:
        """Return, as JSON values, what beside the request can change an answer; never where or how fast it runs."""
        ...

    async def close(self) -> None:
        """Give back connections or memory."""
        ...


class CallError(UserError):
    """A call that brought no answer.

    Args:
        message: One sentence: what, where, what to do.
        retriable: Whether the same call may succeed later.
        retry_after: The server's `Retry-After` header, verbatim.
        spent: The model may have worked on it (a time-out, a lost connection): it counts against the budget.
    """

    def __init__(
        self, message: str, *, retriable: bool = False, retry_after: str | None = None, spent: bool = False
    ) -> None:
        super().__init__(message)
        self.retriable, self.retry_after, self.spent = retriable, retry_after, spent


def key_of(request: Request, backend: Backend) -> Key:
    """Return the key of a request's answer: the full request, and what of the backend can change the answer."""
    messages = _hash([list(message) for message in request.messages])
    settings = {"backend": backend.name, **backend.settings(), **request.settings()}
    return Key(_hash([messages, settings]), messages, settings)


def _hash(value: Any) -> str:
    # ensure_ascii: half a surrogate pair in a text must not stop a run
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
