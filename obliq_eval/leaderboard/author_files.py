"""What one file of unknown layout holds, told from its content and never from its name: runs, figures, or neither."""

from __future__ import annotations

import csv
import gzip
import json
import re
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

from obliq_eval.errors import UserError
from obliq_eval.records import Run
from obliq_eval.run_files import GZIP, LZ4, PARQUET, read_run
from obliq_eval.run_json import LIST_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

HEAD = 1 << 16
ARCHIVES = {b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"7z\xbc\xaf": "7z", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
QUERY = ("query_id", "qid", "q_id", "query-id", "queryid")
DOCUMENT = ("doc_id", "docid", "document_id", "corpus_id", "corpus-id", "doc-id", "pid", "id", "_id")
SCORE = ("score", "similarity", "sim")
LISTS = (*LIST_KEYS, "results", "hits", "docs", "doc_ids", "ranked", "ranked_list", "top_k")
_MEASURE = re.compile(r"(?<![a-z])(ndcg|recall|mrr|map|success)[\s_@-]*(?:at)?[\s_@-]*([1-9]\d*)(?!\d)")


@dataclass(frozen=True)
class HeldRun:
    """A run that a file holds.

    Args:
        run: The run.
        part: Where it lies in the file: `subset/split` of mteb's files, a key of other JSON; empty for all of it.
    """

    run: Run
    part: str = ""


@dataclass(frozen=True)
class Figure:
    """One number of a table of results.

    Args:
        words: Everything that stands around it: keys, row labels, what else its column says.
        measure: `ndcg@10` and so on.
        value: As it stands there, percent or not.
    """

    words: tuple[str, ...]
    measure: str
    value: float


@dataclass(frozen=True)
class Held:
    """What was recognised in a file; with neither runs nor figures, the reason says what it is instead."""

    runs: tuple[HeldRun, ...] = ()
    figures: tuple[Figure, ...] = ()
    reason: str = ""


def look(path: Path) -> Held:
    """Return what a file holds; a damaged one is a reason, not an error."""
    try:
        return _look(path)
    except UserError as error:
        return Held(reason=" ".join(str(error).removeprefix(f"{path}: ").replace(str(path), "the file").split()))
    except (OSError, EOFError, UnicodeDecodeError, ValueError, RecursionError, csv.Error) as error:
        return Held(reason=f"cannot be read ({str(error).splitlines()[0] if str(error) else type(error).__name__})")


def measure_in(text: str) -> str | None:
    """Return the measure that a key or heading names: `pooled_ndcg_at_10` and `NDCG@10 (gold)` name `ndcg@10`."""
    found = _MEASURE.search(text.lower())
    return f"{found[1]}@{found[2]}" if found else None


def _look(path: Path) -> Held:
    head = _head(path)
    if not head.strip():
        return Held(reason="empty")
    if head.startswith(PARQUET):
        return _look_parquet(path)
    if head.startswith(LZ4):
        return Held((HeldRun(read_run(path)),))
    return Held(reason=reason) if (reason := _no_text(head)) else _look_text(path)


def _no_text(head: bytes) -> str:
    archive = next((kind for magic, kind in ARCHIVES.items() if head.startswith(magic)), None)
    if archive or head[257:262] == b"ustar":
        return f"an archive ({archive or 'tar'}): unpack it and name the folder"
    return "binary data of no known form" if b"\0" in head else ""


def _look_text(path: Path) -> Held:
    first, second = _two_lines(path)
    if first[0] in "{[":
        row = _object(first)
        lines = row is not None and (_object(second) is not None or _key(row, QUERY) != "")
        return _look_lines(path, row or {}) if lines else _look_json(path)
    columns = first.split()
    if len(columns) == 6 and _number(columns[4]) is not None:
        return Held((HeldRun(read_run(path)),))
    return _look_table(path)


def _head(path: Path) -> bytes:
    with path.open("rb") as stream:
        head = stream.read(HEAD)
    if not head.startswith(GZIP):
        return head
    with gzip.open(path, "rb") as unpacked:
        return unpacked.read(HEAD)


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as stream:
        packed = stream.read(len(GZIP)) == GZIP
    return cast("IO[bytes]", gzip.open(path, "rb")) if packed else path.open("rb")


def _two_lines(path: Path) -> tuple[str, str]:
    """Return the first two lines that are not blank, the second empty if there is none."""
    with _open(path) as stream:
        lines = (text for raw in stream if (text := raw.decode("utf-8-sig").strip()))
        return next(lines, ""), next(lines, "")


def _text(path: Path) -> str:
    with _open(path) as stream:
        return stream.read().decode("utf-8-sig")


def _object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _look_lines(path: Path, row: Mapping[str, Any]) -> Held:
    """Read one JSON object a line; the first decides, so that a file of training rows is not read to its end."""
    of_a_run = _key(row, QUERY) and (_key(row, LISTS) or _key(row, DOCUMENT))
    if not of_a_run and not any(measure_in(word) for key in row for word in _words(key, row[key])):
        return Held(reason=f"JSON lines with the keys {_some(row)}")
    try:
        return Held((HeldRun(read_run(path)),))
    except UserError:
        records = [_object(line) for line in _text(path).split("\n") if line.strip()]
        if None in records:  # a damaged line: what was said of it stands
            raise
        return _of_records(cast("list[dict[str, Any]]", records))


def _look_json(path: Path) -> Held:
    try:
        value = json.loads(_text(path))
    except json.JSONDecodeError as error:
        return Held(reason=f"damaged JSON, line {error.lineno}: {error.msg}; is the file cut off?")
    figures = tuple(_figures(value, ()))
    if figures:
        return Held(figures=figures)
    if isinstance(value, dict) and isinstance(value.get("mteb_model_meta"), dict):
        parts = [f"{s}/{p}" for s, splits in value.items() if s != "mteb_model_meta" for p in splits]
        return Held(tuple(HeldRun(read_run(path, part=part), part) for part in parts))
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        return _of_records(value)
    found = list(_mappings(value, ""))
    if [part for part, _ in found] == [""] and all(isinstance(answer, dict) for answer in value.values()):
        return Held((HeldRun(read_run(path)),))
    kind = f"with the keys {_some(value)}" if isinstance(value, dict) else "that is no table"
    runs = tuple(HeldRun(_build(rows), part) for part, rows in found)
    return Held(runs, reason="" if runs else f"JSON {kind}")


def _look_parquet(path: Path) -> Held:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise UserError("a damaged Parquet file") from error
    names = dict.fromkeys(schema.names)
    of_a_run = _key(names, QUERY) and (_key(names, LISTS) or _key(names, DOCUMENT))
    if not of_a_run and not any(measure_in(name) for name in schema.names):
        return Held(reason=f"Parquet with the columns {_some(names)}")
    try:
        return Held((HeldRun(read_run(path)),))
    except UserError:
        return _of_records(pq.read_table(path).to_pylist())


def _look_table(path: Path) -> Held:
    """Read tables with a heading: separated by TABs or commas, or Markdown's anywhere in a text."""
    lines = [line for line in _text(path).split("\n") if line.strip()]
    if any(line.lstrip().startswith("|") for line in lines):
        records = [record for block in _markdown(lines) for record in block]
    else:
        records = _rows(lines, "\t" if "\t" in lines[0] else ",")
    if records and ("\t" in lines[0] or "," in lines[0] or "|" in "".join(lines)):
        return _of_records(records, "text")
    return Held(reason="text without a run or a table of results")


def _rows(lines: Iterable[str], separator: str) -> list[dict[str, Any]]:
    rows = csv.DictReader(
        lines, delimiter=separator, quoting=csv.QUOTE_NONE if separator == "\t" else csv.QUOTE_MINIMAL
    )
    return [{str(key).strip(): value for key, value in row.items()} for row in rows]


def _markdown(lines: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    block: list[list[str]] = []
    for line in (*lines, ""):
        if line.lstrip().startswith("|"):
            block.append([cell.strip(" *`") for cell in line.strip().strip("|").split("|")])
        elif block:
            head, *body = block
            yield [dict(zip(head, row, strict=False)) for row in body if not all(set(c) <= set("-: ") for c in row)]
            block = []


def _of_records(records: Sequence[Mapping[str, Any]], kind: str = "rows") -> Held:
    """Return the run or the figures of rows with named columns."""
    first = records[0] if records else {}
    if _key(first, QUERY) and (_key(first, LISTS) or _key(first, DOCUMENT)):
        return Held((HeldRun(_build(_grouped(records))),))
    figures = tuple(figure for record in records for figure in _figures_of_record(record))
    return Held(figures=figures, reason="" if figures else f"{kind} with the columns {_some(first)}")


def _grouped(records: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    query, listed = _key(records[0], QUERY), _key(records[0], LISTS)
    if listed:
        yield from ((_identifier(record[query]), record[listed]) for record in records)
        return
    answers: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        answers.setdefault(_identifier(record[query]), []).append(record)
    yield from answers.items()


def _mappings(value: Any, part: str) -> Iterator[tuple[str, Iterable[tuple[str, Any]]]]:
    """Yield the `{query: answer}` objects in a JSON value, with the keys that lead to each."""
    if not isinstance(value, dict) or not value:
        return
    if all(_is_answer(answer) for answer in value.values()) and any(value.values()):
        yield part, value.items()
        return
    for key, inner in value.items():
        yield from _mappings(inner, f"{part}/{key}".lstrip("/"))


def _is_answer(answer: Any) -> bool:
    if isinstance(answer, dict):
        return all(_number(score) is not None and not isinstance(score, str) for score in answer.values())
    if not isinstance(answer, list):
        return False
    return all(
        isinstance(hit, str)
        or (isinstance(hit, list) and len(hit) == 2 and isinstance(hit[0], str) and _number(hit[1]) is not None)
        or (isinstance(hit, dict) and bool(_key(hit, DOCUMENT)))
        for hit in answer
    )


def _build(rows: Iterable[tuple[str, Any]]) -> Run:
    """Build a run from `(query, answer)`: documents with scores, or in their order where no scores are given.

    Raises:
        UserError: If it is no ranking.
    """
    made = []
    for query, answer in rows:
        pairs = list(answer.items()) if isinstance(answer, dict) else [_hit(hit) for hit in answer]
        scored = all(score is not None for _, score in pairs)
        scores = [float(s) if scored else float(len(pairs) - i) for i, (_, s) in enumerate(pairs)]
        made.append((query, [document for document, _ in pairs], scores))
    return Run.build(made, source="run")


def _hit(hit: Any) -> tuple[str, Any]:
    if isinstance(hit, str):
        return hit, None
    if not isinstance(hit, dict):
        return _identifier(hit[0]), _number(hit[1])
    document, score = _key(hit, DOCUMENT), _key(hit, SCORE)
    rank = _number(hit.get("rank"))
    return _identifier(hit[document]), _number(hit[score]) if score else (None if rank is None else -rank)


def _identifier(value: Any) -> str:
    """Return an id.

    Raises:
        UserError: If it is no string: whether 7 stands for "7" or "007" nobody can tell.
    """
    if not isinstance(value, str):
        raise UserError(f'the id {value!r} is not a string ("007", not 7)')
    return value


def _figures(value: Any, words: tuple[str, ...]) -> Iterator[Figure]:
    """Yield every number of a JSON value below a key that names a measure."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _figures(inner, (*words, str(key)))
        own = {k: v for k, v in value.items() if isinstance(v, str)}
        named = next((m for v in own.values() if (m := measure_in(v))), None)
        number = next((_number(value[k]) for k in ("value", "mean", "score") if k in value), None)
        if named and number is not None and not any(map(measure_in, words)):
            yield Figure((*words, *own.values()), named, number)
    elif isinstance(value, list):
        for inner in value:
            if isinstance(inner, dict):
                labels = tuple(v for v in inner.values() if isinstance(v, str))
                yield from _figures(inner, (*words, *labels) if not any(map(measure_in, labels)) else words)
    elif words and not isinstance(value, str) and (number := _number(value)) is not None:
        measures = [m for word in words if (m := measure_in(word))]
        if measures and words[-1].lower() not in {"n", "count", "std", "stderr", "p", "low", "high"}:
            yield Figure(words, measures[-1], number)


def _figures_of_record(record: Mapping[str, Any]) -> Iterator[Figure]:
    labels = tuple(v for k, v in record.items() if isinstance(v, str) and v and _number(v) is None)
    named = next((m for label in labels if (m := measure_in(label))), None)
    for key, value in record.items():
        number = _number(value)
        measure = measure_in(key) or (named if key.lower() in {"value", "mean", "score"} else None)
        if measure is not None and number is not None:
            yield Figure((*labels, key), measure, number)


def _key(record: Mapping[str, Any], names: Sequence[str]) -> str:
    return next((name for name in names if name in record), "")


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _words(key: str, value: Any) -> tuple[str, ...]:
    inner = tuple(cast("Mapping[str, Any]", value)) if isinstance(value, dict) else ()
    return (key, *([value] if isinstance(value, str) else ()), *inner)


def _some(keys: Iterable[str]) -> str:
    names = [str(key)[:40] for key in keys]
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "") if names else "(none)"
