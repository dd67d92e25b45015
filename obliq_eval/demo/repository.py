"""A repository as the hub describes it: its files, their hashes, and the JSON forms of its info and listings."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

Entry = Mapping[str, object]
"""A file or folder in a listing, in the hub's JSON form: type, path, size in bytes, oid, and lfs for a file."""


@dataclass(frozen=True)
class Repo:
    """One revision of a repository: the files of a folder under a name and a commit.

    Attributes:
        kind: "dataset" or "model".
        repo_id: The name, `owner/name` or a bare `name`.
        folder: The folder whose files are served, at any depth.
        revision: The commit, 40 lower-case hex digits. Of several revisions of one repository, the last is `main`.
        gated: Whether listing and reading files is refused, as for a visitor whom the owner has not let in.

    Raises:
        ValueError: If `revision` is not 40 hex digits.
    """

    kind: Literal["dataset", "model"]
    repo_id: str
    folder: Path
    revision: str
    gated: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{40}", self.revision):
            raise ValueError(f"{self.repo_id}: a revision is 40 hex digits, not {self.revision!r}")

    def files(self) -> dict[str, Path]:
        """Map each file's path in the repository, with forward slashes, to its place on disk."""
        found = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path for path in found}

    def info(self) -> dict[str, object]:
        """Describe the revision as `/api/{kind}s/{repo_id}/revision/{revision}` does."""
        siblings = [{"rfilename": name, "size": path.stat().st_size} for name, path in self.files().items()]
        gated = "manual" if self.gated else False
        return {"id": self.repo_id, "sha": self.revision, "private": False, "gated": gated, "siblings": siblings}

    def entries(self) -> dict[str, Entry]:
        """Describe every file and every folder that holds one, by path, each folder before what is in it.

        Each file is marked as an LFS object, for which the hub's ETag is the SHA-256 of the content, so that a client
        may check what it has against the listing alone.
        """
        entries: dict[str, Entry] = {}
        for name, path in self.files().items():
            for parent in reversed(Path(name).parents[:-1]):
                folder = parent.as_posix()
                oid = hashlib.sha1(folder.encode(), usedforsecurity=False).hexdigest()
                entries.setdefault(folder, {"type": "directory", "path": folder, "size": 0, "oid": oid})
            digest, size = sha256(path), path.stat().st_size
            lfs = {"oid": digest, "size": size, "pointerSize": 0}
            entries[name] = {"type": "file", "path": name, "size": size, "oid": digest[:40], "lfs": lfs}
        return entries

    def tree(self, folder: str, *, recursive: bool) -> list[Entry]:
        """List what is in a folder ("" for the root), at any depth if recursive.

        Raises:
            KeyError: If the repository has no such folder.
        """
        entries = self.entries()
        if folder and entries[folder]["type"] != "directory":
            raise KeyError(folder)
        prefix = f"{folder}/" if folder else ""
        below = (name for name in entries if name.startswith(prefix))
        return [entries[name] for name in below if recursive or "/" not in name[len(prefix) :]]


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content in hex; a file that has not changed is hashed once."""
    stat = path.stat()
    return _sha256_of_state(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=4096)
def _sha256_of_state(path: Path, _mtime_ns: int, _size: int) -> str:
    """Hash a file once for each state of it, which the other two arguments tell apart."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
