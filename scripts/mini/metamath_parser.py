"""A reader of set.mm: every theorem's comment, its section, and the labels that its proof cites."""

from __future__ import annotations

import io
import lzma
import re
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .common import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SET_MM = "./usr/share/metamath/databases/set.mm"
AR_MAGIC = b"!<arch>\n"
AR_HEADER = 60

# Comments, theorems and the other statements, in the file's order; `$` occurs in no other role.
STATEMENT = re.compile(
    r"\$\((?P<comment>.*?)\$\)"
    r"|(?P<theorem>\S+)\s+\$p\s.*?\$=(?P<proof>.*?)\$\."
    r"|\$[acvdfe]\s.*?\$\.",
    re.DOTALL,
)
# A heading is a line of one of four patterns, the title, and the same line again; deepest last.
HEADING = re.compile(r"\s*(#{4}|#\*#\*|=-=-|-\.-\.)\S*\s*\n(.*?)\n\s*\1", re.DOTALL)
LEVELS = ("####", "#*#*", "=-=-", "-.-.")
COMPRESSED = re.compile(r"\s*\((.*?)\)", re.DOTALL)


@dataclass(frozen=True)
class Theorem:
    """A `$p` statement: the comment in front of it, the titles above it, and what its proof cites.

    `section` is the path of headings, from part to subsection; `cited` holds every label of the proof.
    """

    label: str
    comment: str
    section: tuple[str, ...]
    cited: frozenset[str]


def read_source(path: Path) -> str:
    """Return the text of set.mm, from the Debian package or from the plain file.

    Args:
        path: `metamath-databases_*.deb`, or `set.mm` itself.

    Returns:
        The database, decoded.

    Raises:
        SourceError: The package holds no set.mm, or has a form that is not understood.
    """
    content = path.read_bytes()
    if not content.startswith(AR_MAGIC):
        return content.decode()
    with tarfile.open(fileobj=io.BytesIO(_data_member(content, path))) as archive:
        try:
            stream = archive.extractfile(SET_MM)
        except KeyError:
            stream = None
        if stream is None:
            raise SourceError(f"{path}: holds no {SET_MM}; give the package metamath-databases")
        return stream.read().decode()


def _data_member(package: bytes, path: Path) -> bytes:
    """Return the uncompressed `data.tar.xz` of a Debian package (an ar archive)."""
    position = len(AR_MAGIC)
    while position + AR_HEADER <= len(package):
        name = package[position : position + 16].decode().strip().rstrip("/")
        size = int(package[position + 48 : position + 58])
        start = position + AR_HEADER
        if name == "data.tar.xz":
            return lzma.decompress(package[start : start + size])
        position = start + size + size % 2
    raise SourceError(f"{path}: holds no data.tar.xz; give the package metamath-databases")


def parse(database: str) -> Iterator[Theorem]:
    """Yield the theorems of a Metamath database in order.

    Args:
        database: The text of a `.mm` file. Compressed proofs, `( labels ) letters`, and plain ones,
            `labels`, are both understood; hypotheses that a plain proof names count as cited.

    Yields:
        One record for each `$p` statement. A comment belongs to the statement right behind it.
    """
    path = [""] * len(LEVELS)
    comment = ""
    for match in STATEMENT.finditer(database):
        if match["comment"] is not None:
            comment = match["comment"]
            if heading := HEADING.match(comment):
                level = LEVELS.index(heading[1])
                path[level:] = [" ".join(heading[2].split()), *[""] * (len(LEVELS) - level - 1)]
                comment = ""
            continue
        if match["theorem"] is not None:
            proof = match["proof"]
            compressed = COMPRESSED.match(proof)
            cited = frozenset((compressed[1] if compressed else proof).split())
            yield Theorem(match["theorem"], comment, tuple(title for title in path if title), cited)
        comment = ""
