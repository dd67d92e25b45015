"""A Hugging Face hub on the loopback interface, for the unmodified client libraries.

The server speaks as much of the hub's HTTP interface as `huggingface_hub` and `datasets` use to read repositories:
revision info, file listings, and file contents with byte ranges. Everything is derived from folders on disk. Point a
client at it with the environment variable `HF_ENDPOINT`, which the client reads when it is imported.
"""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass
from fnmatch import fnmatchcase
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

from obliq_eval.demo import loopback
from obliq_eval.demo.loopback import Loopback
from obliq_eval.demo.repository import Repo, sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

__all__ = ["Fault", "HubError", "LoopbackHub", "Repo", "serve"]

_CHUNK = 1 << 16
_ID = r"(?P<id>[^/]+(?:/[^/]+)?)"
_API = re.compile(
    rf"/api/(?P<kind>dataset|model)s/{_ID}(?:/(?P<verb>revision|tree|paths-info)/(?P<rev>[^/]+)(?:/(?P<path>.*))?)?"
)
_RESOLVE = re.compile(rf"(?:/(?P<kind>dataset)s)?/{_ID}/resolve/(?P<rev>[^/]+)/(?P<path>.+)")
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


@dataclass(frozen=True)
class Fault:
    """A failure that matching requests meet.

    Attributes:
        pattern: Shell-style pattern (`*` also crosses slashes) for the decoded path, without the query string.
        times: How many matching requests fail before the fault is spent; `None` for all of them.
        method: The HTTP method that fails.
        status: Answer with this status and no content, such as 429, 500 or 503.
        cut_after: Close the connection after this many bytes of the body.
        length_error: Added to the true `Content-Length`; the body itself stays whole.
    """

    pattern: str
    times: int | None = None
    method: str = "GET"
    status: int | None = None
    cut_after: int | None = None
    length_error: int = 0


class LoopbackHub(Loopback):
    """A running hub, whose `url` is to be used as `HF_ENDPOINT`.

    Args:
        repos: What to serve. Files are read when they are asked for.
        port: TCP port, or 0 for any free one.
        faults: Failures to inject; the first that matches a request and is not spent applies.

    Raises:
        OSError: On entry, if the port is taken.
    """

    def __init__(self, repos: Sequence[Repo], port: int = 0, faults: Sequence[Fault] = ()) -> None:
        super().__init__(port)
        self._repos = tuple(repos)
        self._faults: list[tuple[Fault, int | None]] = [(fault, fault.times) for fault in faults]
        self._log: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def bind(self, address: tuple[str, int]) -> _Server:
        """Return the hub's server."""
        return _Server(address, self)

    @property
    def requests(self) -> list[tuple[str, str]]:
        """The requests so far, oldest first, as (method, decoded path without the query string)."""
        with self._lock:
            return list(self._log)

    def inject(self, fault: Fault) -> None:
        """Add a fault while the hub is running."""
        with self._lock:
            self._faults.append((fault, fault.times))

    def admit(self, method: str, path: str) -> Fault:
        """Log a request and return the fault that it meets, one without any effect if there is none."""
        with self._lock:
            self._log.append((method, path))
            for at, (fault, left) in enumerate(self._faults):
                if left != 0 and fault.method == method and fnmatchcase(path, fault.pattern):
                    self._faults[at] = (fault, None if left is None else left - 1)
                    return fault
        return Fault(path)

    def find(self, kind: str, repo_id: str, revision: str) -> Repo:
        """Return the repository at a revision.

        Raises:
            HubError: RepoNotFound or RevisionNotFound.
        """
        found = [repo for repo in self._repos if (repo.kind, repo.repo_id) == (kind, repo_id)]
        if not found:
            raise HubError(HTTPStatus.NOT_FOUND, "RepoNotFound", f"There is no {kind} {repo_id}.")
        for repo in reversed(found):
            if revision in ("main", repo.revision):
                return repo
        raise HubError(HTTPStatus.NOT_FOUND, "RevisionNotFound", f"{repo_id} has no revision {revision}.")


class HubError(Exception):
    """An answer other than success: status, the hub's error code (may be empty), a sentence, the commit if known."""

    def __init__(self, status: HTTPStatus, code: str, message: str, commit: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.headers = {"X-Error-Code": code, "X-Error-Message": message, "X-Repo-Commit": commit}


def serve(repos: Sequence[Repo], port: int, ready: Callable[[str], None]) -> None:
    """Serve repositories until the process is interrupted; `ready` is told the address once requests are accepted."""
    loopback.serve(LoopbackHub(repos, port), ready)


class _Server(ThreadingHTTPServer):
    request_queue_size = 64  # clients fetch files in parallel; a full queue costs them a second each

    def __init__(self, address: tuple[str, int], hub: LoopbackHub) -> None:
        super().__init__(address, _Handler)
        self.hub = hub


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        """Answer GET, and HEAD and POST alike: the method is read where it matters."""
        # A POST's body is read before anything is answered, or closing the connection would reset it.
        self._form = parse_qs(self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode())
        url = urlsplit(self.path)
        self._query = parse_qs(url.query)
        # unquote, not unquote_plus: a "+" in a path is a plus sign, not a space.
        self._fault = self.server.hub.admit(self.command, unquote(url.path))
        if self._fault.status:
            self._send(HTTPStatus(self._fault.status), b"", {})
            return
        try:
            self._route(url.path)
        except HubError as error:
            self._send(error.status, json.dumps({"error": str(error)}).encode(), error.headers)

    do_HEAD = do_POST = do_GET  # noqa: N815 -- http.server's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- http.server's name
        """Stay quiet: the hub keeps its own log."""

    def _route(self, path: str) -> None:
        if match := _API.fullmatch(path):
            repo = self._find(match, match["kind"])
            if match["verb"] in (None, "revision"):
                self._send_json(repo, repo.info())
                return
            _refuse_if_gated(repo)
            if match["verb"] == "tree":
                self._send_tree(repo, unquote(match["path"] or "").strip("/"))
            else:
                entries = repo.entries()
                wanted = [name.strip("/") for name in self._form.get("paths", [])]
                self._send_json(repo, [entries[name] for name in wanted if name in entries])
        elif match := _RESOLVE.fullmatch(path):
            repo = self._find(match, match["kind"] or "model")
            _refuse_if_gated(repo)
            self._send_file(repo, unquote(match["path"]))
        else:
            raise HubError(HTTPStatus.NOT_FOUND, "", "This hub has no such page.")

    def _find(self, match: re.Match[str], kind: str) -> Repo:
        return self.server.hub.find(kind, unquote(match["id"]), unquote(match["rev"] or "main"))

    def _send_tree(self, repo: Repo, folder: str) -> None:
        recursive = self._query.get("recursive", ["false"])[0].lower() in ("true", "1")
        try:
            self._send_json(repo, repo.tree(folder, recursive=recursive))
        except KeyError:
            message = f"There is no folder {folder}."
            raise HubError(HTTPStatus.NOT_FOUND, "EntryNotFound", message, repo.revision) from None

    def _send_file(self, repo: Repo, name: str) -> None:
        file = repo.files().get(name)
        if file is None:
            raise HubError(HTTPStatus.NOT_FOUND, "EntryNotFound", f"There is no file {name}.", repo.revision)
        size = file.stat().st_size
        headers = {"ETag": f'"{sha256(file)}"', "X-Repo-Commit": repo.revision, "Accept-Ranges": "bytes"}
        part = _byte_range(self.headers.get("Range", "") if self.command == "GET" else "", size)
        if part is None:
            self._send(HTTPStatus.OK, file, headers, range(size))
        elif not part:
            self._send(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, b"", {**headers, "Content-Range": f"bytes */{size}"})
        else:
            headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{size}"
            self._send(HTTPStatus.PARTIAL_CONTENT, file, headers, part)

    def _send_json(self, repo: Repo, content: object) -> None:
        headers = {"Content-Type": "application/json", "X-Repo-Commit": repo.revision}
        self._send(HTTPStatus.OK, json.dumps(content).encode(), headers)

    def _send(self, status: HTTPStatus, body: bytes | Path, headers: dict[str, str], part: range | None = None) -> None:
        part = range(len(body)) if isinstance(body, bytes) else part or range(0)
        self.send_response(status)
        for name, value in headers.items():
            if value:
                # Header values are Latin-1; a file name in an error message may be anything.
                self.send_header(name, value.encode("ascii", "replace").decode())
        self.send_header("Content-Length", str(len(part) + self._fault.length_error))
        self.send_header("Connection", "close")  # so that nothing is answered after shutdown
        self.end_headers()
        if self.command == "HEAD":
            return
        left = len(part) if self._fault.cut_after is None else min(len(part), self._fault.cut_after)
        try:
            for chunk in _chunks(body, part.start, left):
                self.wfile.write(chunk)
        except ConnectionError:  # the client has hung up, which is its right
            return


def _refuse_if_gated(repo: Repo) -> None:
    if repo.gated:
        raise HubError(HTTPStatus.UNAUTHORIZED, "GatedRepo", f"Access to {repo.kind} {repo.repo_id} is restricted.")


def _byte_range(header: str, size: int) -> range | None:
    """Return the bytes that a Range header asks for: `None` for the whole file, empty when out of range.

    As RFC 9110 (section 14.2) allows, several ranges at once or a malformed header count as no header.
    """
    match = _RANGE.fullmatch(header.strip())
    if match is None or not any(match.groups()):
        return None
    first, last = match.groups()
    if not first:
        return range(max(0, size - int(last)), size)
    if last and int(last) < int(first):
        return None
    return range(int(first), min(size, int(last) + 1) if last else size)


def _chunks(body: bytes | Path, start: int, length: int) -> Iterator[bytes]:
    if isinstance(body, bytes):
        yield body[start : start + length]
        return
    with body.open("rb") as file:
        file.seek(start)
        while length > 0 and (chunk := file.read(min(_CHUNK, length))):
            length -= len(chunk)
            yield chunk
