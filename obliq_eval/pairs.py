"""Queries beside their source documents: a file of synthetic queries, training rows, or a task's gold judgments."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval.data.files import lines
from obliq_eval.errors import UserError, raise_all
from obliq_eval.jsonl import value_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import datasets

CHUNK = 1_000  # rows whose documents are read at once
FORMS = 'synthetic queries ("document" and "query") or training rows ("query" and "pos")'


@dataclass(frozen=True)
class Pair:
    """A query and one of its sources.

    Args:
        group: What it is counted under: the task of a row, its part, or its lens.
        key: Tells the query apart from others.
        query: The query's text.
        source: The document's text.
    """

    group: str
    key: str
    query: str
    source: str


def read_pairs(reference: str, documents: str | None = None) -> Iterator[Pair]:
    """Yield the pairs of a file or of a task.

    Args:
        reference: A `.jsonl` file of synthetic queries or of training rows; or a task or folder, whose queries are
            paired with their gold documents.
        documents: Where the documents of synthetic queries are; by default what the file's manifest names.

    Raises:
        UserError: If it is none of them, or a document is not there.
    """
    path = Path(reference)
    if path.is_file():
        yield from _of_file(path, documents)
    else:
        yield from _of_task(reference)


def _of_task(reference: str) -> Iterator[Pair]:
    from obliq_eval.data.sources import load

    data = load(reference)
    rows = _rows_of(data.corpus.documents)
    for query, text in data.queries.items():
        gold = [document for document, grade in data.gold.grades.get(query, {}).items() if grade > 0]
        for source in _texts(data.corpus.documents, [rows[document] for document in gold if document in rows]):
            yield Pair(reference, query, text, source)


def _of_file(path: Path, documents: str | None) -> Iterator[Pair]:
    rows = _objects(path)
    first = next(rows, None)
    if first is None:
        raise UserError(f"{path} is empty: expected {FORMS}")
    data = first[1]
    if "pos" in data:
        yield from _of_rows(path)
    elif isinstance(data.get("document"), str) and isinstance(data.get("query"), str):
        yield from _of_synthetic(path, documents or _named(path))
    else:
        raise UserError(f"{path}, line {first[0]}: expected {FORMS}")


def _of_rows(path: Path) -> Iterator[Pair]:
    for number, data in _objects(path):
        query, positives = _last(data.get("query")), data.get("pos")
        positives = [positives] if isinstance(positives, str) else positives
        if query is None or not isinstance(positives, list) or None in (texts := [_last(one) for one in positives]):
            raise UserError(
                f'{path}, line {number}: "query" and "pos" must hold texts, or pairs of instruction and text'
            )
        group = str(data.get("task") or data.get("source") or path.name)
        for text in texts:
            yield Pair(group, str(number), query, str(text))


def _of_synthetic(path: Path, documents: str) -> Iterator[Pair]:
    from obliq_eval.data.documents import read_source

    table = read_source(documents).table
    at = _rows_of(table)
    rows = _objects(path)
    while chunk := list(islice(rows, CHUNK)):
        raise_all(
            [
                f"line {number}: document {data.get('document')!r} is not in {documents} (--data names another source)"
                for number, data in chunk
                if data.get("document") not in at or not isinstance(data.get("query"), str)
            ],
            str(path),
        )
        texts = _texts(table, [at[data["document"]] for _, data in chunk])
        for (number, data), text in zip(chunk, texts, strict=True):
            group = " ".join(str(data[key]) for key in ("task", "lens") if data.get(key)) or path.name
            yield Pair(group, str(number), data["query"], text)


def _named(path: Path) -> str:
    """Return the documents that a file's manifest names.

    Raises:
        UserError: If there is no manifest, or it names none.
    """
    manifest = path.with_name(path.name + ".manifest.json")
    try:
        settings = json.loads(manifest.read_text(encoding="utf-8"))["settings"]
        return str(settings["source"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{manifest} does not say where the documents are: name them with --data") from error


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in lines(path):
        try:
            data = value_of(line)
        except ValueError as error:
            raise UserError(f"{path}, line {number}: not a JSON object; is the file cut off?") from error
        if not isinstance(data, dict):
            raise UserError(f"{path}, line {number}: expected {FORMS}")
        yield number, data


def _last(value: object) -> str | None:
    """Return the text of a passage: a string, or the last of a list of an instruction and a text."""
    if isinstance(value, list) and value:
        value = value[-1]
    return value if isinstance(value, str) else None


def _rows_of(table: datasets.Dataset) -> dict[str, int]:
    return {identifier: row for row, identifier in enumerate(table["id"][:])}


def _texts(table: datasets.Dataset, rows: list[int]) -> list[str]:
    return list(table.select(rows)["text"][:]) if rows else []
