"""What is known of documents beside their texts: labels, sources, decades, from JSON, JSONL or TSV files."""

from __future__ import annotations

import re
from collections import Counter
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval.data.files import PAIRS, lines
from obliq_eval.errors import UserError, near, raise_all
from obliq_eval.jsonl import value_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Values = Mapping[str, frozenset[str]]

IDS = ("id", "_id", "document", "doc-id", "doc_id", "corpus-id", "corpus_id")
"""What the column or key with a document's id may be called."""

FORMS = (
    "a JSON object {document id: value or list of values}, a JSONL file of objects with an id, or a TSV file whose "
    "first column is the id; after # the name of the key or column, as in corpus.jsonl#decade"
)


def read_field(reference: str) -> dict[str, frozenset[str]]:
    """Read one field of documents.

    Args:
        reference: `FILE` or `FILE#NAME`, see `FORMS`. In a TSV file without NAME the second column counts, a header
            being one that starts with a name of `IDS`; an id on several lines has several values.

    Returns:
        `{document id: values}`; numbers become text, null and empty values are left out.

    Raises:
        UserError: If the file is of none of these forms, has no such column, or says nothing.
    """
    file, name = parted(reference)
    path = Path(file)
    if path.suffix == ".json":
        pairs: Iterable[tuple[str, Any]] = _from_json(path)
    elif path.suffix == ".jsonl":
        pairs = _from_jsonl(path, name)
    elif path.suffix in {".tsv", ".txt"}:
        pairs = _from_tsv(path, name)
    else:
        raise UserError(f"{reference}: give {FORMS}")
    found: dict[str, set[str]] = {}
    for identifier, value in pairs:
        values = value if isinstance(value, list) else [value]
        if not all(_is_value(one) for one in values):
            raise UserError(f"{file}: the value of {identifier!r} is neither text nor a number nor a list of these")
        found.setdefault(identifier, set()).update(str(one) for one in values if one not in (None, ""))
    kept = {identifier: frozenset(values) for identifier, values in found.items() if values}
    if not kept:
        raise UserError(f"{reference} says nothing about any document; give {FORMS}")
    return kept


def parted(reference: str) -> tuple[str, str]:
    """Return the file and the name behind its last `#`; a `#` before that is the path's own."""
    file, mark, name = reference.rpartition("#")
    return (file, name) if mark and not Path(reference).exists() else (reference, "")


def _is_value(value: Any) -> bool:
    return isfinite(value) if isinstance(value, float) else isinstance(value, str | int | None)


def by_pattern(pattern: str, texts: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    """Return what the one group of a regular expression finds in each document's id or values.

    Args:
        pattern: Searched for, not matched from the start: anchor it with `^`.
        texts: `{document id: where to search}`; a document in which nothing is found is left out.

    Raises:
        UserError: If it is no regular expression with one group, or finds nothing anywhere.
    """
    try:
        rule = re.compile(pattern)
    except re.error as error:
        raise UserError(f"{pattern!r} is not a regular expression ({error})") from error
    if rule.groups != 1:
        raise UserError(f"{pattern!r} has {rule.groups} groups; put one pair of brackets around what names the source")
    found = {
        identifier: frozenset(hit[1] for text in held if (hit := rule.search(text)) and hit[1])
        for identifier, held in texts.items()
    }
    kept = {identifier: values for identifier, values in found.items() if values}
    if not kept:
        raise UserError(f"{pattern!r} is found nowhere; try it on one of the ids")
    return kept


def read_sources(reference: str | None, pattern: str | None, ids: Iterable[str]) -> dict[str, frozenset[str]] | None:
    """Return the sources of documents, or None if neither a file nor a rule is given.

    Args:
        reference: See `read_field`.
        pattern: A rule (see `by_pattern`) over the values of the file, or over the ids without one.
        ids: The documents.

    Raises:
        UserError: As these say, or if nothing is known of any of the documents.
    """
    if reference is None and pattern is None:
        return None
    wanted = set(ids)
    given: Values = {one: frozenset([one]) for one in wanted} if reference is None else read_field(reference)
    found = dict(given) if pattern is None else by_pattern(pattern, given)
    kept = {identifier: values for identifier, values in found.items() if identifier in wanted}
    if not kept:
        raise UserError(f"{reference} knows none of the documents: its ids are others, such as {next(iter(found))!r}")
    return kept


def _from_json(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        data = PAIRS.decode("\n".join(line for _, line in lines(path)).strip())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(data, tuple):
        raise UserError(f"{path}: expected an object {{document id: value or list of values}}")
    counted = Counter(identifier for identifier, _ in data)
    raise_all([f"{one!r} is there {n} times" for one, n in counted.items() if n > 1], str(path))
    yield from data


def _from_jsonl(path: Path, name: str) -> Iterator[tuple[str, Any]]:
    if not name:
        raise UserError(f"{path}: say which key holds the value, as in {path}#decade")
    known: set[str] = set()
    for number, line in lines(path):
        try:
            row = value_of(line)
        except ValueError:
            row = None
        key = next((key for key in IDS if key in row), None) if isinstance(row, dict) else None
        if key is None or not isinstance(row[key], str):
            raise UserError(f"{path}, line {number}: expected an object with an id, one of {', '.join(IDS)}")
        known |= row.keys()
        yield row[key], row.get(name)
    if name not in known:
        raise UserError(f"{path}: no line has the key {name!r}{near(name, known)}")


def _from_tsv(path: Path, name: str) -> Iterator[tuple[str, Any]]:
    column = None if name else 1
    for number, line in lines(path):
        columns = line.split("\t")
        if number == 1 and (columns[0] in IDS or name):
            if name and name not in columns:
                raise UserError(f"{path}: its first line names no column {name!r}{near(name, columns)}")
            column = columns.index(name) if name else 1
            continue
        if column is None or len(columns) <= column:
            raise UserError(f"{path}, line {number}: expected an id and a value, separated by a TAB")
        yield columns[0], columns[column]
