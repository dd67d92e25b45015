"""Writers whose bytes depend on their input alone, and the check of a source's hash."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CORPUS = Path("corpus") / "corpus.jsonl"
QUERIES = Path("queries+qrels") / "queries.jsonl"
QRELS = Path("queries+qrels") / "qrels.tsv"
EXCLUDED = Path("queries+qrels") / "per_query_excluded_ids.json"
GROUPS = Path("queries+qrels") / "groups.json"
QRELS_HEADER = ("query-id", "corpus-id", "score")


class SourceError(Exception):
    """A source that is missing, or is not the one that the sets are built from."""


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal.

    Args:
        path: An existing file.

    Returns:
        64 hexadecimal digits.
    """
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def verify(path: Path, sha256: str) -> None:
    """Refuse a source whose bytes are not the expected ones.

    Args:
        path: The source file.
        sha256: The expected hash, in hexadecimal.

    Raises:
        SourceError: The file is missing, or has another hash.
    """
    if not path.is_file():
        raise SourceError(f"{path}: no such file; give the source that the set is built from")
    found = sha256_of(path)
    if found != sha256:
        raise SourceError(f"{path}: sha256 is {found}, expected {sha256}; use the pinned version")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines as UTF-8, each ended by a line feed on every system.

    Args:
        path: The file to write; its folders are made.
        lines: Lines without their ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    temporary.write_bytes("".join(f"{line}\n" for line in lines).encode())
    temporary.replace(path)


def write_jsonl(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write one JSON object a line, keys and rows in the order given.

    Args:
        path: The file to write.
        rows: The objects.
    """
    write_lines(path, (json.dumps(row, ensure_ascii=False) for row in rows))


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write one JSON object, one key a line, in the order given.

    Args:
        path: The file to write.
        value: The object.
    """
    fields = (
        f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(item, ensure_ascii=False)}" for key, item in value.items()
    )
    write_lines(path, ["{", *",\n".join(fields).splitlines(), "}"])


def write_tsv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a header and rows, fields separated by TAB.

    Args:
        path: The file to write.
        header: The columns' names.
        rows: The fields of each row, written with `str`.

    Raises:
        ValueError: A field holds a TAB or a line end.
    """
    lines = ["\t".join(header)]
    for row in rows:
        fields = [str(field) for field in row]
        if any(character in field for field in fields for character in "\t\n\r"):
            raise ValueError(f"{path.name}: a field holds a TAB or a line end: {fields}")
        lines.append("\t".join(fields))
    write_lines(path, lines)


def read_jsonl(path: Path) -> list[dict[str, object]]:
    """Read one JSON object a line.

    Args:
        path: A UTF-8 file.

    Returns:
        The objects, in the file's order.
    """
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def numbered(prefix: str, texts: Sequence[str]) -> dict[str, str]:
    """Give every text an id that says nothing about where it comes from.

    Args:
        prefix: What the ids begin with.
        texts: Distinct texts.

    Returns:
        Text to id: numbers in the order of the texts' SHA-256, so neither authors nor years
        stand together.
    """
    order = sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())
    return {text: f"{prefix}{number:04d}" for number, text in enumerate(order, start=1)}
