"""Any server that speaks the chat-completions protocol, such as `vllm serve`; what it ignores is noticed."""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING, Any, TypeGuard
from urllib.parse import urlsplit, urlunsplit

from obliq_eval.errors import MissingExtraError, UserError
from obliq_models.llm.estimate import likely_tokens, prompt_tokens
from obliq_models.llm.protocol import LENGTH, STOP, CallError, Request, Response
from obliq_models.llm.retry import retriable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from openai import APIStatusError, AsyncOpenAI

URL, KEY = "OPENAI_BASE_URL", "OPENAI_API_KEY"
OFFICIAL = "https://api.openai.com/v1"
TIMEOUT = 600.0
NO_KEY = "none"  # servers of one's own ask for none, but the client library does

FORMS = ("json_schema", "json_object with a schema", "json_object", "text")
"""How an answer's form can be asked for, the strictest first; servers know some of them."""

CUT = {"max_tokens": LENGTH, "max_length": LENGTH, "model_length": LENGTH}
"""Other words of servers for an answer that was cut at its limit."""
MOST_TOKENS = 2**31
"""More than any answer has: a server that says more has not counted."""

REFUSED = frozenset({400, 404, 415, 422, 501})
"""Statuses with which servers refuse a `response_format` that they do not know."""
BROKEN = 500  # with which some do so too, but which may also mean anything else
STRIKES = 2
NO_MONEY = "insufficient_quota"  # an error code under status 429 that waiting does not cure
_SECRET = re.compile(r"\b(?:sk|key|gsk|hf|xai)[-_][\w*.…-]{6,}|(?:Bearer|Basic)\s+\S+", re.IGNORECASE)


class OpenAIBackend:
    """A server at `$OPENAI_BASE_URL` with the key in `$OPENAI_API_KEY`.

    Where the server refuses a JSON schema, weaker forms are tried, down to plain text, which the strict parser reads.
    The form that it takes is kept for the model's later requests, and the fallback is counted. A server that takes
    the schema and ignores it shows in the ledger's count of answers that do not fit.

    Args:
        extra: Further fields of the request's body, such as
            `{"chat_template_kwargs": {"enable_thinking": False}}` for Qwen3 under vLLM; a part of the cache's key.
        base_url: Address up to `/v1`, instead of the environment's.
        timeout: Seconds that one call may take.

    Raises:
        UserError: If neither an address nor a key is set.
        MissingExtraError: If the package `openai` is not installed.
    """

    name = "openai"

    def __init__(
        self, *, extra: Mapping[str, Any] | None = None, base_url: str | None = None, timeout: float = TIMEOUT
    ) -> None:
        key = os.environ.get(KEY, "")
        found = base_url or os.environ.get(URL, "")
        if not found and not key:
            raise UserError(
                f"no server for language models is named: set {URL} (http://localhost:8000/v1 for vllm serve), and "
                f"{KEY} if it asks for a key"
            )
        try:
            import openai  # noqa: F401 -- told now rather than at the first of many calls
        except ImportError as error:
            raise MissingExtraError("openai", "openai", "asking an OpenAI-compatible server") from error
        self.url = (found or OFFICIAL).rstrip("/")
        self.counts: dict[str, int] = {}
        self.extra = dict(extra or {})
        self._key = key or NO_KEY
        self._timeout = timeout
        self._client: AsyncOpenAI | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._form: dict[str, int] = {}  # by model: the form that it has taken
        self._strikes: dict[str, int] = {}
        self._limit: dict[str, str] = {}

    def settings(self) -> Mapping[str, Any]:
        """Return the extra fields; the address is none, so that answers outlive a server's move."""
        return {"extra": self.extra} if self.extra else {}

    async def complete(self, request: Request) -> Response:
        """Make one call, with weaker forms of answer where the server refuses a stronger one."""
        if request.schema is None:
            return await self._call(request, len(FORMS) - 1)
        known = self._form.get(request.model)
        if known is not None:
            return await self._call(request, known)
        first: CallError | None = None
        for form in range(len(FORMS)):
            try:
                response = await self._call(request, form)
            except _StatusError as error:
                first = first or error
                if not self._refuses(request.model, error.status):
                    raise
                continue
            # The strictest form that any request has shown to work stays.
            self._form[request.model] = min(form, self._form.get(request.model, form))
            if form:
                self._count(f"models whose answers fell back from {FORMS[0]} to {FORMS[form]}")
            return response
        raise first or CallError(f"{self.shown} answered nothing")

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    @property
    def shown(self) -> str:
        """The address as messages name it, without a password."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    def _refuses(self, model: str, status: int) -> bool:
        """Return whether a status may be about the form; one 500 may be anything, the next one hardly."""
        if status == BROKEN:
            self._strikes[model] = self._strikes.get(model, 0) + 1
            return self._strikes[model] >= STRIKES
        return status in REFUSED

    async def _call(self, request: Request, form: int) -> Response:
        import openai

        limit = self._limit.get(request.model, "max_tokens")
        try:
            # Not `chat.completions.create`, which spends more on types than on the request, and believes what comes.
            async with asyncio.timeout(self._timeout):  # the library's own begins anew with every byte
                answer = await self._connected().post(
                    "/chat/completions", cast_to=object, body=self._body(request, form, limit)
                )
        except openai.APIStatusError as error:
            wants_other = limit == "max_tokens" and error.status_code in REFUSED
            if wants_other and "max_completion_tokens" in error.message:
                self._limit[request.model] = "max_completion_tokens"
                self._count("models that take max_completion_tokens only")
                return await self._call(request, form)
            raise self._refusal(request, error) from None
        except (openai.APITimeoutError, TimeoutError):
            raise CallError(
                f"{self.shown} did not answer within {self._timeout:,.0f} seconds", retriable=True, spent=True
            ) from None
        except openai.APIConnectionError as error:
            raise self._unreachable(error.__cause__) from None
        except (openai.APIError, ValueError, RecursionError) as error:
            raise self._no_completion(type(error).__name__) from None
        return self._response(request, answer)

    def _body(self, request: Request, form: int, limit: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": request.model,
            "messages": request.chat(),
            "temperature": request.temperature,
            limit: request.max_tokens,
        }
        if request.sent_seed is not None:
            body["seed"] = request.sent_seed
        if request.schema is not None and (wanted := _form(form, request.schema)):
            body["response_format"] = wanted
        return body | self.extra

    def _connected(self) -> AsyncOpenAI:
        """Return the client of the running loop: connections belong to the loop that opened them."""
        from openai import AsyncOpenAI

        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._client = AsyncOpenAI(api_key=self._key, base_url=self.url, timeout=self._timeout, max_retries=0)
            self._loop = loop
        return self._client

    def _response(self, request: Request, answer: object) -> Response:
        """Check what came and return it; servers that answer with status 200 answer with many things."""
        try:
            choice, usage = answer["choices"][0], answer.get("usage")  # type: ignore[index, attr-defined]
            message, model = choice["message"] or {}, answer.get("model")  # type: ignore[attr-defined]
            text = message.get("content") or ""
            finish, refusal = str(choice.get("finish_reason") or STOP), message.get("refusal")
        except (TypeError, KeyError, IndexError, AttributeError):
            raise self._no_completion(self._said(answer) or "no choices with a message") from None
        if not isinstance(text, str):
            raise self._no_completion("a message that is no text")
        if refusal:
            self._count("refusals")
        if not text:
            self._count("answers without a text, such as thinking or tool calls alone")
        counted = usage if isinstance(usage, dict) else {}
        read, written = counted.get("prompt_tokens"), counted.get("completion_tokens")
        if not (_is_count(read) and _is_count(written)):
            self._count("answers without token counts, which were guessed")
            read, written = prompt_tokens(request), likely_tokens(text)
        if written > request.max_tokens:
            self._count("answers longer than the limit that was sent")
        return Response(text, CUT.get(finish, finish), read, written, str(model or request.model))

    def _refusal(self, request: Request, error: APIStatusError) -> _StatusError:
        status = error.status_code
        hint = {
            401: f"; see the key in {KEY}",
            403: f"; see the key in {KEY} and what it may use",
            404: f"; see {URL} and the model's name",
        }.get(status, "")
        said = (
            f"{self.shown} refused a call to {request.model!r} for {request.told()}: {self._clean(error.message)}{hint}"
        )
        again = retriable(status) and error.code != NO_MONEY
        return _StatusError(said, status, error.response.headers.get("retry-after"), retriable=again)

    def _unreachable(self, cause: BaseException | None) -> CallError:
        # Before a connection stands nothing can have been spent; afterwards it may have been.
        spent = type(cause).__name__ != "ConnectError"
        why = "the connection broke off" if spent else "no connection"
        return CallError(f"{self.shown} cannot be reached ({why}); see {URL}", retriable=True, spent=spent)

    def _no_completion(self, why: str) -> CallError:
        return CallError(
            f"{self.shown} answered with something else than a chat completion ({why}); see {URL}, which ends in /v1 "
            "for most servers",
            retriable=True,
            spent=True,
        )

    def _said(self, answer: object) -> str:
        """Return the error that some servers send with status 200, or an empty string."""
        error = answer.get("error") if isinstance(answer, dict) else None
        told = error.get("message") if isinstance(error, dict) else error
        return f"it says: {self._clean(told)}" if isinstance(told, str) and told else ""

    def _clean(self, message: str) -> str:
        """Return a server's message in one line, shortened, without the key or what looks like one."""
        if self._key != NO_KEY:
            message = message.replace(self._key, "[key]")
        text = " ".join(_SECRET.sub("[key]", message).split())
        return text if len(text) <= 300 else f"{text[:299]}…"

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= MOST_TOKENS


class _StatusError(CallError):
    """A status other than success."""

    def __init__(self, message: str, status: int, retry_after: str | None, *, retriable: bool) -> None:
        super().__init__(message, retriable=retriable, retry_after=retry_after)
        self.status = status


def _form(form: int, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the `response_format` of a form, None for plain text."""
    match FORMS[form]:
        case "json_schema":
            return {"type": "json_schema", "json_schema": {"name": "answer", "schema": dict(schema), "strict": True}}
        case "json_object with a schema":  # llama.cpp's server
            return {"type": "json_object", "schema": dict(schema)}
        case "json_object":
            return {"type": "json_object"}
    return None
