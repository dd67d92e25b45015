"""An embeddings server on loopback: the protocol of OpenAI's `/v1/embeddings`, and of Gemini's, with toy vectors.

It answers `POST /v1/embeddings` and `GET /v1/models` as servers for OpenAI's client do, and
`POST /v1beta/models/NAME:batchEmbedContents` for Google's. A text's vector is the sum of those of its words, and a
word's vector comes from its hash, so that texts which share words are near each other.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from dataclasses import dataclass, replace
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from obliq_eval.demo.loopback import Loopback

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Asked", "EmbeddingsServer", "Fault", "vector"]

DIMS = 256
_WORD = re.compile(r"\w+")
_GEMINI = re.compile(r"/v1(?:beta)?/models/(?P<model>[^/:]+):batchEmbedContents")

Wrong = Literal["", "shuffled", "fewer", "more", "twice", "unnumbered", "nan", "null", "shorter", "ragged", "garbled"]
"""What is wrong with an answer: `shuffled` is in another order with right indices, `twice` repeats an index,
`shorter` halves every vector, `ragged` one of them, `garbled` is no JSON."""


@dataclass(frozen=True)
class Fault:
    """A failure that requests for vectors meet.

    Attributes:
        times: How many requests meet it before it is spent; `None` for all of them.
        after: How many requests are answered as they should be before.
        status: Answer with this status, such as 429, 500 or 503.
        retry_after: Value of the header `Retry-After`.
        location: Value of the header `Location`, for a status that sends a client elsewhere.
        message: The error's sentence.
        code: The error's code, such as `insufficient_quota`.
        cut: Close the connection in the middle of the answer.
        seconds: Wait before answering.
        wrong: What is wrong with an answer of status 200.
    """

    times: int | None = 1
    after: int = 0
    status: int | None = None
    retry_after: str = ""
    location: str = ""
    message: str = "injected by a test"
    code: str = ""
    cut: bool = False
    seconds: float = 0
    wrong: Wrong = ""


@dataclass(frozen=True)
class Asked:
    """One request for vectors, without its headers.

    Attributes:
        model: Name of the model.
        texts: What was to be encoded.
        dimensions: Length of the vectors, where the client asks for one.
        encoding: `float` or `base64`; `gemini` for a request of Google's client.
        task: Gemini's task type.
        status: Status of the answer.
    """

    model: str
    texts: tuple[str, ...]
    dimensions: int | None
    encoding: str
    task: str = ""
    status: int = 200


class EmbeddingsServer(Loopback):
    """A running server of vectors, whose `url` has no path.

    Args:
        models: Names that it answers to.
        dims: Length of a vector, where the client asks for no other.
        key: The key that it demands; empty for none. It is compared and never kept.
        longest: Words of the longest text that it accepts; a longer one is refused with status 400.
        most: Words that it accepts in one request.
        port: TCP port, or 0 for any free one.
        faults: Failures to inject; the first that is not spent applies.

    Raises:
        OSError: On entry, if the port is taken.
    """

    def __init__(
        self,
        models: Sequence[str] = ("toy-embedding",),
        *,
        dims: int = DIMS,
        key: str = "",
        longest: int = 8_192,
        most: int = 300_000,
        port: int = 0,
        faults: Sequence[Fault] = (),
    ) -> None:
        super().__init__(port)
        self.models, self.dims, self.longest, self.most = tuple(models), dims, longest, most
        self._key = hashlib.sha256(key.encode()).digest() if key else b""
        self._faults = list(faults)
        self._log: list[Asked] = []
        self._lock = threading.Lock()

    def bind(self, address: tuple[str, int]) -> _Server:
        """Return the server of vectors."""
        return _Server(address, self)

    @property
    def base_url(self) -> str:
        """The address to use as `OPENAI_BASE_URL`."""
        return f"{self.url}/v1"

    @property
    def requests(self) -> list[Asked]:
        """The requests for vectors so far, in the order in which they were answered."""
        with self._lock:
            return list(self._log)

    def inject(self, fault: Fault) -> None:
        """Add a fault while the server is running."""
        with self._lock:
            self._faults.append(fault)

    def admits(self, key: str) -> bool:
        """Tell whether this is the key that is demanded."""
        return not self._key or hashlib.sha256(key.encode()).digest() == self._key

    def wait(self, seconds: float) -> None:
        """Wait, but not longer than the server runs."""
        self.closing.wait(seconds)

    def note(self, asked: Asked) -> None:
        """Log a request."""
        with self._lock:
            self._log.append(asked)

    def next_fault(self) -> Fault:
        """Return the fault that the next request meets, one without any effect if there is none."""
        with self._lock:
            for at, fault in enumerate(self._faults):
                if fault.times == 0:
                    continue
                if fault.after:
                    self._faults[at] = replace(fault, after=fault.after - 1)
                    continue
                self._faults[at] = replace(fault, times=None if fault.times is None else fault.times - 1)
                return fault
        return Fault()


def vector(text: str, dims: int = DIMS) -> NDArray[np.float32]:
    """Return a text's vector, float32, of unit length: the sum of its words' vectors, without regard to case.

    A text without words has the vector of the empty word.
    """
    total = np.sum([_word(word, dims) for word in _WORD.findall(text.lower()) or [""]], axis=0)
    unit: NDArray[np.float32] = (total / np.linalg.norm(total)).astype(np.float32)
    return unit


@lru_cache(maxsize=100_000)
def _word(word: str, dims: int) -> NDArray[np.float64]:
    numbers: NDArray[np.uint16] = np.frombuffer(hashlib.shake_256(word.encode()).digest(2 * dims), "<u2")
    return numbers.astype(np.float64) / 32_767.5 - 1


class _RefusedError(Exception):
    """An answer other than success."""

    def __init__(self, status: int, message: str, code: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers or {}


class _Server(ThreadingHTTPServer):
    request_queue_size = 64
    daemon_threads = True

    def __init__(self, address: tuple[str, int], embeddings: EmbeddingsServer) -> None:
        super().__init__(address, _Handler)
        self.embeddings = embeddings


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        """List the models."""
        try:
            self._check_key()
            self._check_page({"/v1/models"})
        except _RefusedError as error:
            self._refuse(error)
            return
        names = [{"id": name, "object": "model", "owned_by": "toy"} for name in self.server.embeddings.models]
        self._send(200, {"object": "list", "data": names})

    def do_POST(self) -> None:
        """Encode texts."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server = self.server.embeddings
        fault = server.next_fault()
        server.wait(fault.seconds)
        try:
            self._check_key()
            asked = self._asked(body)
        except _RefusedError as error:
            self._refuse(error)
            return
        try:
            self._check(asked, fault)
        except _RefusedError as error:
            server.note(replace(asked, status=error.status))
            self._refuse(error)
            return
        server.note(asked)
        rows = _spoilt([vector(text, asked.dimensions or server.dims) for text in asked.texts], fault)
        if fault.wrong == "garbled":
            self._send(200, b'{"data": [')
        elif asked.encoding == "gemini":
            self._send(200, {"embeddings": [{"values": row} for row in rows]}, cut=fault.cut)
        else:
            self._send(200, _to_openai(asked, rows, fault), cut=fault.cut)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- http.server's name
        """Stay quiet: the server keeps its own log, which holds no key."""

    def _check_key(self) -> None:
        key = self.headers.get("x-goog-api-key") or self.headers.get("Authorization", "").removeprefix("Bearer ")
        if not self.server.embeddings.admits(key):
            # Real servers repeat a part of the key here; a client must not pass that on.
            raise _RefusedError(401, f"Incorrect API key provided: {key}", "invalid_api_key")

    def _check_page(self, known: set[str]) -> None:
        page = self.path.partition("?")[0]
        if page not in known:
            raise _RefusedError(404, f"there is no page {page}")

    def _asked(self, body: bytes) -> Asked:
        gemini = _GEMINI.fullmatch(self.path.partition("?")[0])
        if gemini is None:
            self._check_page({"/v1/embeddings"})
        try:
            content = json.loads(body)
            return _from_openai(content) if gemini is None else _from_gemini(gemini["model"], content)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise _RefusedError(400, f"the request cannot be read: {type(error).__name__}") from error

    def _check(self, asked: Asked, fault: Fault) -> None:
        if fault.status:
            given = {"Retry-After": fault.retry_after, "Location": fault.location}
            headers = {name: value for name, value in given.items() if value}
            raise _RefusedError(fault.status, fault.message, fault.code, headers)
        server = self.server.embeddings
        words = [len(text.split()) for text in asked.texts]
        if asked.model not in server.models:
            raise _RefusedError(404, f"The model {asked.model!r} does not exist", "model_not_found")
        if not asked.texts or "" in asked.texts:
            raise _RefusedError(400, "input cannot be an empty string")
        if max(words) > server.longest:
            limit = f"This model's maximum context length is {server.longest} tokens"
            raise _RefusedError(400, f"{limit}, but you requested {max(words)}", "context_length_exceeded")
        if sum(words) > server.most:
            raise _RefusedError(400, f"Requested {sum(words)} tokens, max {server.most} tokens per request")

    def _refuse(self, error: _RefusedError) -> None:
        status = HTTPStatus(error.status).phrase.upper().replace(" ", "_")
        content = {"message": str(error), "type": "error", "code": error.code or error.status, "status": status}
        self._send(error.status, {"error": content}, error.headers)

    def _send(self, status: int, content: object, headers: dict[str, str] | None = None, *, cut: bool = False) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Connection": "close", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.close_connection = True
        try:
            self.wfile.write(body[: len(body) // 2] if cut else body)
        except ConnectionError:  # the client has hung up, which is its right
            return


def _from_openai(content: dict[str, Any]) -> Asked:
    texts = content["input"]
    texts = [texts] if isinstance(texts, str) else texts
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("input")
    return Asked(content["model"], tuple(texts), content.get("dimensions"), content.get("encoding_format", "float"))


def _from_gemini(model: str, content: dict[str, Any]) -> Asked:
    parts = [request["content"]["parts"] for request in content["requests"]]
    texts = tuple("".join(part["text"] for part in some) for some in parts)
    first = content["requests"][0]
    return Asked(model, texts, first.get("outputDimensionality"), "gemini", first.get("taskType", ""))


def _spoilt(vectors: list[NDArray[np.float32]], fault: Fault) -> list[list[float | None]]:
    rows: list[list[float | None]] = [row.tolist() for row in vectors]
    if fault.wrong in ("nan", "null"):
        rows[-1][0] = None if fault.wrong == "null" else float("nan")
    if fault.wrong == "ragged":
        rows[-1] = rows[-1][: len(rows[-1]) // 2]
    if fault.wrong == "shorter":
        rows = [row[: len(row) // 2] for row in rows]
    if fault.wrong == "fewer":
        rows.pop()
    if fault.wrong == "more":
        rows.append(rows[-1])
    return rows


def _to_openai(asked: Asked, rows: list[list[float | None]], fault: Fault) -> dict[str, Any]:
    packed = asked.encoding == "base64" and fault.wrong != "null"
    data = [
        {"object": "embedding", "index": at, "embedding": _packed(row) if packed else row}
        for at, row in enumerate(rows)
    ]
    if fault.wrong == "shuffled":
        data.reverse()
    if fault.wrong == "twice":
        data[-1]["index"] = 0
    if fault.wrong == "unnumbered":
        del data[-1]["index"]
    tokens = sum(len(text.split()) for text in asked.texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": asked.model, "usage": usage}


def _packed(row: list[float | None]) -> str:
    return base64.b64encode(np.array(row, "<f4").tobytes()).decode("ascii")
