"""Answers on disk: every call is made once, by however many processes, and can be replayed without any."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from obliq_eval.errors import UserError
from obliq_eval.home import home
from obliq_models.llm.protocol import Response

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from obliq_models.llm.protocol import Key, Request

VERSION = 1
WAIT = 60  # seconds that a write waits for another process's
_TABLE = """
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY, messages TEXT NOT NULL, settings TEXT NOT NULL, response TEXT NOT NULL, made TEXT NOT NULL
) WITHOUT ROWID
"""
_INDEX = "CREATE INDEX IF NOT EXISTS by_messages ON answers (messages)"


class Cache:
    """A SQLite file of answers, in write-ahead mode: processes read and write it at the same time.

    Errors and unfinished answers are never stored. The first answer stored under a key stays. The prompts themselves
    are not kept, only their hash. The file must lie on a local disk.

    Args:
        path: The file, by default `$OBLIQ_HOME/llm/cache.sqlite`; made if it is not there.

    Raises:
        UserError: If the file is damaged, is not a cache, was written by a later version, or cannot be written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or home() / "llm" / "cache.sqlite"
        self._lock = threading.Lock()
        with self._told():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(self.path, timeout=WAIT, isolation_level=None, check_same_thread=False)
            try:
                self._open()
                self._file.execute("PRAGMA synchronous = NORMAL")  # a killed process loses nothing
            except BaseException:
                self._file.close()
                raise

    def _open(self) -> None:
        if self._version() == VERSION:
            return
        with FileLock(f"{self.path}.lock"):  # SQLite does not wait for another process that changes the mode
            version = self._version()
            if version > VERSION:
                raise UserError(f"{self.path} comes from a later version of obliq; install that, or set OBLIQ_HOME")
            tables = {row[0] for row in self._file.execute("SELECT tbl_name FROM sqlite_master")}
            if tables - {"answers"}:
                raise UserError(f"{self.path} is a database of something else: move it away")
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute(_TABLE)
            self._file.execute(_INDEX)
            self._file.execute(f"PRAGMA user_version = {VERSION}")

    def _version(self) -> int:
        return int(self._file.execute("PRAGMA user_version").fetchone()[0])

    def __len__(self) -> int:
        with self._told():
            return int(self._file.execute("SELECT count(*) FROM answers").fetchone()[0])

    def get(self, key: Key) -> Response | None:
        """Return the stored answer, marked as cached, or None."""
        with self._told():
            row = self._file.execute("SELECT response FROM answers WHERE key = ?", (key.digest,)).fetchone()
            return None if row is None else replace(Response(**json.loads(row[0])), cached=True)

    def put(self, key: Key, response: Response) -> Response:
        """Store an answer, and return what is stored: another process's, if that was first.

        An unfinished answer is returned and not stored.
        """
        if not response.complete:
            return response
        made = datetime.now(UTC).isoformat(timespec="seconds")
        row = (key.digest, key.messages, json.dumps(key.settings, sort_keys=True), json.dumps(asdict(response)), made)
        with self._told():
            done = self._file.execute("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?)", row)
            if done.rowcount:
                return response
        # Two processes asked at once: both go on with the answer that a replay will find.
        return replace(self.get(key) or response, cached=response.cached)

    def why_missed(self, key: Key) -> str:
        """Return what is different about the nearest stored answer to the same messages, or that there is none."""
        with self._told():
            rows = self._file.execute("SELECT settings FROM answers WHERE messages = ?", (key.messages,)).fetchall()
        if not rows:
            return "no answer to these messages is stored"
        nearest = min((_differences(key.settings, json.loads(row[0])) for row in rows), key=len)
        return f"the nearest stored answer differs in {', '.join(nearest)}"

    def close(self) -> None:
        """Close the file; what was stored is on disk already."""
        self._file.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Hold the lock, and tell what SQLite refuses in one sentence."""
        try:
            with self._lock:
                yield
        except sqlite3.OperationalError as error:
            raise UserError(f"cannot use the answers in {self.path}: {error}{_hint(str(error))}") from error
        except (sqlite3.DatabaseError, json.JSONDecodeError, TypeError) as error:
            raise UserError(
                f"{self.path} is damaged ({error}): delete it or move it away, and the answers will be asked for again"
            ) from error
        except OSError as error:
            raise UserError(f"cannot write {error.filename or self.path}: {error.strerror or error}") from error


class ReplayError(UserError):
    """An answer that only a call could bring, where none may be made."""

    def __init__(self, request: Request, why: str) -> None:
        super().__init__(f"replay only, and no stored answer for {request.told()}: {why}; run it without replay first")


def _hint(message: str) -> str:
    if "locked" in message:
        return f"; another process has held it for {WAIT} seconds: end that, and run this again"
    if "disk" in message and "full" in message:
        return "; free space, or set OBLIQ_HOME to another disk"
    return "; see that the file and its folder can be written, or set OBLIQ_HOME"


def _differences(wanted: Any, stored: Any) -> list[str]:
    names = sorted(wanted.keys() | stored.keys())
    return [
        f"{name} ({_short(stored.get(name))}, not {_short(wanted.get(name))})"
        for name in names
        if wanted.get(name) != stored.get(name)
    ]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
