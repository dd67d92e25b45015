"""A language model on the loopback interface, for the unmodified client libraries: the chat-completions protocol.

It answers `POST /v1/chat/completions` and `GET /v1/models` with what a personality says
(`obliq_eval.demo.personalities`). A token is a word here: usage is counted and answers are cut in words.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from obliq_eval.demo.loopback import Loopback
from obliq_eval.demo.personalities import ABSENT, Answer, Asked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obliq_eval.demo.personalities import Personality

MODEL = "loopback-judge"
EVERY_FORM = frozenset({"json_schema", "json_object"})


@dataclass(frozen=True)
class Manners:
    """How the server treats what is not the prompt; servers differ in this.

    Attributes:
        forms: Types of `response_format` that it takes; it refuses others.
        form_status: Status of that refusal: 400 in most servers, 500 in some.
        fields: Fields that a `json_object` may have beside its type.
        limit: The field that limits an answer; where it is `max_completion_tokens`, `max_tokens` is refused.
        usage: Whether it counts tokens.
        key: The key that it asks for; empty for none. A wrong one is repeated in the refusal, as some servers do.
    """

    forms: frozenset[str] = EVERY_FORM
    form_status: int = 400
    fields: frozenset[str] = frozenset()
    limit: str = "max_tokens"
    usage: bool = True
    key: str = ""


class LlmServer(Loopback):
    """A running server of answers.

    Args:
        personality: What answers.
        port: TCP port, or 0 for any free one.
        slots: Requests that are worked on at once; others wait, as in a batching server that is full.
        delay: Seconds that each request takes, besides what the personality says.
        manners: How it treats formats, limits and keys.

    Raises:
        OSError: On entry, if the port is taken.
    """

    def __init__(
        self,
        personality: Personality,
        port: int = 0,
        *,
        slots: int = 64,
        delay: float = 0.0,
        manners: Manners | None = None,
    ) -> None:
        super().__init__(port)
        self.personality, self.delay, self.slots = personality, delay, slots
        self.manners = manners or Manners()
        self._free = threading.Semaphore(slots)
        self._lock = threading.Lock()
        self._bodies: list[dict[str, Any]] = []
        self._spans: list[tuple[float, float]] = []

    def bind(self, address: tuple[str, int]) -> _Server:
        """Return the chat server."""
        return _Server(address, self)

    @property
    def url(self) -> str:
        """The address to use as `OPENAI_BASE_URL`; known once the server has been entered."""
        return f"{self.root}/v1"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The bodies of the chat requests so far, oldest first."""
        with self._lock:
            return list(self._bodies)

    def busy(self) -> float:
        """Return the share of its slots' time in which it worked, from the first request to the last."""
        with self._lock:
            spans = list(self._spans)
        if not spans:
            return 0.0
        whole = max(end for _, end in spans) - min(start for start, _ in spans)
        return sum(end - start for start, end in spans) / (whole * self.slots)

    def answer(self, body: dict[str, Any]) -> tuple[Asked, Answer]:
        """Return what a request asks for and what is answered, after a slot is free and the delay is over."""
        with self._lock:
            number = len(self._bodies)
            self._bodies.append(body)
        asked = _asked(number, body)
        if refused := self._refused(body):
            return asked, refused
        with self._free:
            start = time.monotonic()
            answer = self.personality(asked)
            time.sleep(self.delay + answer.seconds)
            with self._lock:
                self._spans.append((start, time.monotonic()))
        return asked, _cut(answer, asked.max_tokens)

    def _refused(self, body: Mapping[str, Any]) -> Answer | None:
        manners = self.manners
        if manners.limit != "max_tokens" and "max_tokens" in body:
            return Answer(f"Unsupported parameter: 'max_tokens'. Use '{manners.limit}' instead.", 400)
        wanted = body.get("response_format") or {}
        kind = wanted.get("type")
        if kind and kind not in manners.forms:
            return Answer(f"response_format of type {kind} is not supported", manners.form_status)
        if kind == "json_object" and (more := wanted.keys() - {"type"} - manners.fields):
            return Answer(f"response_format: unknown field {min(more)}", 400)
        return None


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True
    block_on_close = False  # connections that a client keeps open must not hold up the end

    def __init__(self, address: tuple[str, int], llm: LlmServer) -> None:
        super().__init__(address, _Handler)
        self.llm = llm


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes, which must not wait for each other
    server: _Server

    def do_GET(self) -> None:
        """List the one model."""
        if self.path.rstrip("/") == "/v1/models":
            self._send(200, {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "obliq"}]})
        else:
            self._error(404, f"there is no page {self.path}; this server has /v1/chat/completions and /v1/models")

    def do_POST(self) -> None:
        """Answer a chat request."""
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.llm.closing.is_set():
            self._drop()
            return
        if self.path.rstrip("/") != "/v1/chat/completions":
            self._error(404, f"there is no page {self.path}; this server has /v1/chat/completions and /v1/models")
            return
        key = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.server.llm.manners.key not in ("", key):
            self._error(401, f"Incorrect API key provided: {key}", code="invalid_api_key")
            return
        try:
            asked, answer = self.server.llm.answer(json.loads(raw))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self._error(400, f"this is no chat request: {error}")
            return
        if answer.drop:
            self._drop()
        elif answer.status != 200:
            self._error(answer.status, answer.text, answer.headers, answer.code)
        elif answer.raw is not ABSENT:
            self._send(200, answer.raw)
        else:
            self._send(200, _completion(asked, answer, usage=self.server.llm.manners.usage))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- http.server's name
        """Stay quiet: the server keeps its own record."""

    def _error(self, status: int, message: str, headers: Mapping[str, str] | None = None, code: str = "") -> None:
        self._send(status, {"error": {"message": message, "type": "error", "code": code or None}}, headers)

    def _send(self, status: int, content: object, headers: Mapping[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        try:
            self.send_response(HTTPStatus(status))
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:  # the client has hung up, which is its right
            self.close_connection = True

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


def _asked(number: int, body: Mapping[str, Any]) -> Asked:
    return Asked(
        number=number,
        messages=tuple((message["role"], message["content"]) for message in body["messages"]),
        model=body.get("model", MODEL),
        temperature=body.get("temperature", 1.0),
        max_tokens=body.get("max_tokens") or body.get("max_completion_tokens"),
        seed=body.get("seed"),
        response_format=body.get("response_format") or {},
    )


def _cut(answer: Answer, limit: int | None) -> Answer:
    words = answer.text.split()
    if limit is None or len(words) <= limit:
        return answer
    return replace(answer, text=" ".join(words[:limit]), finish="length")


def _completion(asked: Asked, answer: Answer, *, usage: bool) -> dict[str, Any]:
    read, written = len(asked.prompt.split()), len(answer.text.split())
    message = {"role": "assistant", "content": answer.text}
    found: dict[str, Any] = {
        "id": f"chatcmpl-{asked.number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": asked.model,
        "choices": [{"index": 0, "message": message, "finish_reason": answer.finish, "logprobs": None}],
    }
    if usage:
        found["usage"] = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return found
