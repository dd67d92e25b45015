"""Runs as JSON: ranx's files, mteb's prediction files, and ranked lists, one JSON object a line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError, raise_all
from obliq_eval.records import UNANSWERED
from obliq_eval.run_trec import LARGEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from obliq_eval.records import Run

    Row = tuple[str, Sequence[str], Sequence[float]]
    Object = tuple[tuple[Any, Any], ...]  # a JSON object as its pairs, so that a key that comes twice is seen

QUERY_KEYS = ("query_id", "qid")
LIST_KEYS = ("retrieved_ids", "documents", "ranking")


def looks_like_json(text: str) -> bool:
    """Tell JSON, whole or damaged, from a TREC file whose first query id starts with a brace."""
    start = text.lstrip()
    first = start.partition("\n")[0]
    return start.startswith("{") and (len(first.split()) != 6 or _parses(first) or _parses(start))


def rows(text: str, path: Path, part: str | None) -> Iterator[Row]:
    """Return `(query id, document ids, scores)` rows of a JSON or JSONL file.

    Args:
        text: Its content, which starts with a brace.
        path: Named in errors.
        part: For mteb's files: `subset/split`, or one of the two where that is enough.

    Raises:
        UserError: If the text is cut off, of no known form, or has several parts and `part` selects none or several.
    """
    try:
        value = json.loads(text, object_pairs_hook=tuple)
    except RecursionError as error:
        raise UserError(f"{path}: JSON that is nested too deeply to be a run") from error
    except ValueError as error:
        if _parses(text.lstrip().partition("\n")[0]):
            return _list_rows(text, path)
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        raise UserError(f"{path}, line {line}: not JSON ({error}); is the file cut off?") from error
    keys = dict(value)
    if any(isinstance(keys.get(key), str) for key in QUERY_KEYS):
        return _list_rows(text, path)
    header = keys.get("mteb_model_meta")
    # In a run of ranx this key would be a query, and what is below it a score.
    if isinstance(header, tuple) and any(key == "model_name" and isinstance(name, str | None) for key, name in header):
        return _mteb_rows(value, path, part)
    return _nested(value, str(path))


def lz4_rows(data: bytes, path: Path) -> Iterator[Row]:
    """Return the rows of ranx's binary form: CBOR, compressed twice with LZ4.

    Raises:
        UserError: If the file is cut off or is not `{query: {document: score}}`.
    """
    import cbor2
    import lz4.frame  # type: ignore[import-untyped]

    try:
        content = cbor2.loads(lz4.frame.decompress(lz4.frame.decompress(data)))
    # Damaged CBOR also asks for keys that cannot be keys, and for more memory than there is.
    except (cbor2.CBORError, RuntimeError, ValueError, EOFError, TypeError, OverflowError, MemoryError) as error:
        raise UserError(f"{path} is not a whole LZ4 file as ranx writes it ({error})") from error
    if not isinstance(content, dict) or not all(isinstance(query, str) for query in content):
        raise UserError(f"{path}: expected {{query: {{document: score}}}}")
    pairs = ((q, tuple(answer.items()) if isinstance(answer, dict) else answer) for q, answer in content.items())
    return _nested(tuple(pairs), str(path))


def mteb_object(run: Run, name: str, revision: str | None) -> dict[str, Any]:
    """Return a run as mteb's prediction file, under subset `default` and split `test`.

    Args:
        run: The run; an empty answer becomes the placeholder `obliq:unanswered`.
        name: The model's name.
        revision: The model's revision.
    """
    answers = {query: answer or {UNANSWERED: 0.0} for query, answer in run.to_dict().items()}
    return {"mteb_model_meta": {"model_name": name, "revision": revision}, "default": {"test": answers}}


def _parses(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _nested(value: Object, source: str) -> Iterator[Row]:
    """Check `{query: {document: score}}` and return its rows."""
    problems = []
    for query, answer in value:
        if not isinstance(answer, tuple):
            problems.append(f"query {query!r}: expected {{document: score}}")
            continue
        for document, score in answer:
            if not isinstance(document, str):
                problems.append(f"query {query!r}: the document id {document!r} is not a string")
            elif not _is_number(score):
                problems.append(f"query {query!r}, document {document!r}: the score {score!r} is not a finite number")
    raise_all(problems, source)
    return ((query, [d for d, _ in answer], [float(s) for _, s in answer]) for query, answer in value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _mteb_rows(value: Object, path: Path, part: str | None) -> Iterator[Row]:
    parts = []
    for subset, splits in value:
        if subset == "mteb_model_meta":
            continue
        if not isinstance(splits, tuple):
            raise UserError(f"{path}: the subset {subset!r} is not {{split: {{query: {{document: score}}}}}}")
        parts += [(_printable(f"{subset}/{split}"), answers) for split, answers in splits]
    chosen = [(name, answers) for name, answers in parts if part in (None, name, *name.split("/"))]
    if len(chosen) != 1:
        held = f"{len(chosen)} parts" if part is None else f'{len(chosen)} parts called "{part}"'
        raise UserError(f"{path} holds {held}: choose one of {', '.join(name for name, _ in parts) or '(none)'}")
    name, answers = chosen[0]
    if not isinstance(answers, tuple):
        raise UserError(f"{path}: {name} is not {{query: {{document: score}}}}; is it a retrieval task's file?")
    kept = ((q, tuple(p for p in a if p[0] != UNANSWERED) if isinstance(a, tuple) else a) for q, a in answers)
    return _nested(tuple(kept), str(path))


def _printable(name: str) -> str:
    """Return a name in which no half of a surrogate pair stands alone."""
    return name.encode(errors="backslashreplace").decode()


def _list_rows(text: str, path: Path) -> Iterator[Row]:
    answers: dict[str, Row] = {}
    problems: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = _list_row(line)
        except (ValueError, RecursionError) as error:
            problems.append(f"line {number}: {error}")
            continue
        if row[0] in answers:
            problems.append(f"line {number}: query {row[0]!r} is answered more than once")
        answers[row[0]] = row
    raise_all(problems, str(path))
    return iter(answers.values())


def _list_row(line: str) -> Row:
    try:
        pairs = json.loads(line, object_pairs_hook=tuple)
    except json.JSONDecodeError as error:
        raise ValueError(f"not a JSON object ({error.msg}); is the file cut off?") from error
    if not isinstance(pairs, tuple):
        raise ValueError("not a JSON object")
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a key occurs more than once")
    query = next((row[key] for key in QUERY_KEYS if key in row), None)
    documents = next((row[key] for key in LIST_KEYS if key in row), None)
    if not isinstance(query, str):
        raise ValueError(f'expected a string in one of {", ".join(QUERY_KEYS)} ("007", not 7)')
    if not isinstance(documents, list) or not all(isinstance(document, str) for document in documents):
        raise ValueError(f"query {query!r}: expected a list of strings in one of {', '.join(LIST_KEYS)}")
    if len(set(documents)) < len(documents):
        twice = next(d for i, d in enumerate(documents) if d in documents[:i])
        raise ValueError(f"query {query!r}: document {twice!r} is ranked more than once")
    scores = row.get("scores", [float(len(documents) - i) for i in range(len(documents))])
    if not isinstance(scores, list) or len(scores) != len(documents) or not all(map(_is_number, scores)):
        raise ValueError(f"query {query!r}: expected one finite score for each of {len(documents)} documents")
    return query, documents, scores
