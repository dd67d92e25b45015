"""Readers for the files of a task folder: JSONL, qrels and exclusions, with errors that name file and line."""

from __future__ import annotations

import codecs
import json
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError, raise_all
from obliq_eval.records import Judgments, id_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

QRELS_FORMS = "three TAB-separated columns (query, document, grade; a header is optional) or TREC's four columns"
HEADERS = frozenset({"query-id", "qid", "query"})
PAIRS = json.JSONDecoder(object_pairs_hook=tuple)  # objects as pairs, so that a key that comes twice is seen


def lines(path: Path) -> Iterator[tuple[int, str]]:
    r"""Yield `(line number, text)` of a UTF-8 file, without line ends, byte-order mark and blank lines.

    Only LF and CRLF end a line: an id may hold U+2028 or a lone CR.

    Raises:
        UserError: If the file cannot be read, or at the first line that is not UTF-8.
    """
    try:
        with path.open("rb") as stream:
            yield from lines_of(stream, str(path))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def lines_of(stream: Iterable[bytes], source: str) -> Iterator[tuple[int, str]]:
    """Yield what `lines` yields of a stream that is open already.

    Raises:
        UserError: At the first line that is not UTF-8.
    """
    for number, raw in enumerate(stream, start=1):
        line = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
        try:
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{source}, line {number}: not UTF-8 text; convert it to UTF-8") from error
        if text.strip():
            yield number, text


def read_jsonl(path: Path, names: Sequence[str] = ("_id",)) -> Iterator[tuple[str, str]]:
    """Yield `(id, text)` from a JSONL file with `_id`, `text` and an optional `title`.

    As BEIR and mteb do, a title is put in front of the text, one space between.

    Args:
        path: The file.
        names: What the key of the id may be called; the first of them that a line has counts.

    Raises:
        UserError: At the first line that is not such an object, naming file and line.
    """
    for number, line in lines(path):
        pairs = _parse(line, f"{path}, line {number}: not a JSON object", PAIRS)
        row = dict(pairs) if isinstance(pairs, tuple) else {}
        name = next((name for name in names if name in row), names[0])
        if not {name, "text"} <= row.keys():
            raise UserError(f'{path}, line {number}: expected an object with "{name}" and "text"')
        if len(row) < len(pairs):
            raise UserError(f"{path}, line {number}: a key occurs more than once")
        identifier, text, title = row[name], row["text"], row.get("title") or ""
        if not isinstance(identifier, str) or not isinstance(text, str) or not isinstance(title, str):
            raise UserError(
                f'{path}, line {number}: "{name}", "text" and "title" must be strings, ids too ("007", not 7)'
            )
        if fault := id_fault(identifier):
            raise UserError(f"{path}, line {number}: {fault}")
        yield identifier, with_title(title, text)


def with_title(title: str, text: str) -> str:
    """Return a document's text with its title in front, if it has one."""
    return f"{title} {text}".strip() if title else text


def read_queries(path: Path) -> dict[str, str]:
    """Read queries as `{id: text}`.

    Raises:
        UserError: If an id occurs twice or the file is damaged.
    """
    return queries_of(read_jsonl(path), str(path))


def queries_of(rows: Iterable[tuple[str, str]], source: str) -> dict[str, str]:
    """Collect `(id, text)` rows as `{id: text}`.

    Raises:
        UserError: If an id occurs twice.
    """
    queries: dict[str, str] = {}
    twice = []
    for identifier, text in rows:
        if identifier in queries:
            twice.append(f"query id {identifier!r} occurs more than once")
        queries[identifier] = text
    raise_all(twice, source)
    return queries


def read_qrels(path: Path) -> Judgments:
    """Read a qrels file in any of its forms.

    Columns are separated by TABs, so that ids may hold spaces; four columns are TREC's form, which also occurs with
    spaces. A header is recognised by its first names and a last column that is not a number.

    Raises:
        UserError: At the first line of neither form; for all grades that are not whole numbers.
    """
    return Judgments.of(_qrels_rows(path), str(path))


def _qrels_rows(path: Path) -> Iterator[tuple[str, str, str]]:
    width = 0
    for number, line in lines(path):
        columns = _columns(line)
        if not width and _is_header(columns):
            width = len(columns)
            continue
        wrong_width = len(columns) not in ({3, 4} if "\t" in line else {4}) or (width and len(columns) != width)
        if wrong_width or not _is_number(columns[-1]):
            raise UserError(f"{path}, line {number}: expected {QRELS_FORMS}, found {line[:80]!r}")
        width = len(columns)
        yield columns[0], columns[-2], columns[-1].strip()


def _columns(line: str) -> list[str]:
    # not `line.split()`, which also splits at U+2028 and other characters that an id may hold
    return line.split("\t") if "\t" in line else [column for column in line.split(" ") if column]


def _is_header(columns: list[str]) -> bool:
    names = {column.strip().lower().replace("_", "-") for column in columns}
    return len(columns) in {3, 4} and bool(names & HEADERS) and not _is_number(columns[-1])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def odd_grades(judgments: Judgments) -> int:
    """Return how many grades are negative, which trec_eval treats as not relevant."""
    return sum(grade < 0 for _, _, grade in judgments.pairs())


def read_exclusions(path: Path) -> dict[str, frozenset[str]]:
    """Read `{query id: [document ids]}`.

    Raises:
        UserError: If the file is not of that form, or names a query twice.
    """
    data = _read_object(path)
    if not all(isinstance(ids, list) for ids in data.values()):
        raise UserError(f"{path}: expected an object of the form {{query id: [document ids]}}")
    faults = ((query, next(filter(None, map(id_fault, ids)), None)) for query, ids in data.items())
    raise_all([f"query {query!r} excludes what is no id: {fault}" for query, fault in faults if fault], str(path))
    return {query: frozenset(ids) for query, ids in data.items() if ids}


def read_groups(path: Path) -> dict[str, str]:
    """Read `{query id: group}`.

    Raises:
        UserError: If the file is not of that form, or names a query twice.
    """
    data = _read_object(path)
    if not all(isinstance(group, str) for group in data.values()):
        raise UserError(f"{path}: expected an object of the form {{query id: group}}")
    return data


def _read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object whose keys are query ids."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text; convert the file to UTF-8") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    twice: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            keys = [key for key, _ in pairs]
            twice.extend(f"query {key!r} occurs more than once" for key in made if keys.count(key) > 1)
        return made

    data = _parse(text, f"{path}: not valid JSON", json.JSONDecoder(object_pairs_hook=unique))
    raise_all(twice, str(path))
    if not isinstance(data, dict):
        raise UserError(f"{path}: expected an object whose keys are query ids")
    raise_all([fault for query in data if (fault := id_fault(query))], str(path))
    return data


def _parse(text: str, wrong: str, decoder: json.JSONDecoder) -> Any:
    """Parse JSON and refuse what no UTF-8 file can hold.

    Raises:
        UserError: With `wrong` in front of the reason.
    """
    try:
        value = decoder.decode(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{wrong} ({error.msg}); is the file cut off?") from error
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits, a thousand brackets
        raise UserError(f"{wrong} ({error})") from error
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise UserError(f"{wrong}: half of a surrogate pair stands alone; replace or drop it") from error
    return value
