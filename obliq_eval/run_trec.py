"""TREC's six-column run files, for ids of any characters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import numpy as np

from obliq_eval.errors import raise_all
from obliq_eval.records import parse_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from obliq_eval.records import Run
    from obliq_eval.run_json import Row

COLUMNS = "query Q0 document rank score tag"

ENCODED = ";ids=percent"
"""End of the tag column of a file whose ids are percent-encoded."""

LARGEST = float(np.finfo(np.float32).max)
"""Largest float32: a score above it, or NaN, is refused."""


def rows(text: str, path: Path) -> Iterator[Row]:
    """Return `(query id, document ids, scores)` rows; ids are decoded if the tags say that they are encoded.

    Raises:
        UserError: If lines are not TREC's, a document is ranked twice, or a score is not a finite number.
    """
    answers: dict[str, dict[str, float]] = {}
    problems: list[str] = []
    encoded: bool | None = None
    for number, line in enumerate(text.encode().split(b"\n"), start=1):
        columns = [column.decode() for column in line.split()]  # bytes split on ASCII whitespace alone
        if not columns:
            continue
        encoded = columns[-1].endswith(ENCODED) if encoded is None else encoded
        try:
            query, document, score = _row(columns, encoded=encoded)
        except ValueError as error:
            problems.append(f"line {number}: {error}")
            continue
        answer = answers.setdefault(query, {})
        if document in answer:
            problems.append(f"line {number}: query {query!r}: document {document!r} is ranked more than once")
        answer[document] = score
    raise_all(problems, str(path))
    return ((query, list(answer), list(answer.values())) for query, answer in answers.items())


def text(run: Run, name: str) -> tuple[str, tuple[str, ...]]:
    """Return the text of a run file, and one sentence for each thing that the form cannot hold as it is.

    If any id is empty or holds whitespace or a character that cannot be printed, such characters and `%` are
    percent-encoded in every id (an empty id is `%`), and the tag ends in `;ids=percent`. A score is written with all
    its digits, so that reading it as float32 or float64 gives the same number.

    Args:
        run: The run.
        name: The system; it becomes the tag column.
    """
    ids = {*run.rankings, *(document for ranking in run.rankings.values() for document in ranking.documents)}
    unfit = sum(not _fits(identifier) for identifier in ids)
    tag = re.sub(r"[^A-Za-z0-9._-]+", "-", name) + (ENCODED if unfit else "")
    spell = _encoded if unfit else str
    lines = [
        f"{spell(query)} Q0 {spell(document)} {rank} {score!r} {tag}\n"
        for query, ranking in run.rankings.items()
        for rank, (document, score) in enumerate(zip(ranking.documents, ranking.scores.tolist(), strict=True), start=1)
    ]
    empty = [query for query, ranking in run.rankings.items() if not ranking]
    notes = []
    if unfit:
        notes.append(f'{unfit} ids do not fit TREC\'s columns, so all ids are percent-encoded (tag "{tag}")')
    if empty:
        notes.append(f"TREC cannot hold queries without an answer; left out: {', '.join(map(repr, empty))}")
    return "".join(lines), tuple(notes)


def _row(columns: Sequence[str], *, encoded: bool) -> tuple[str, str, float]:
    if len(columns) != 6:
        raise ValueError(f"{len(columns)} columns, where TREC has six ({COLUMNS})")
    query, _, document, _, written, tag = columns
    if tag.endswith(ENCODED) != encoded:
        raise ValueError(f'only some tags end in "{ENCODED}"; is the line cut off?')
    try:
        score = parse_number(written)
    except ValueError:
        raise ValueError(f"the score {written!r} is not a number") from None
    if not abs(score) <= LARGEST:  # NaN compares false
        raise ValueError(f"the score {written!r} is not a finite number")
    return (_decoded(query), _decoded(document), score) if encoded else (query, document, score)


def _fits(identifier: str) -> bool:
    return identifier != "" and identifier.isprintable() and " " not in identifier


def _encoded(identifier: str) -> str:
    return "".join(c if c.isprintable() and c not in " %" else quote(c, safe="") for c in identifier) or "%"


def _decoded(identifier: str) -> str:
    return "" if identifier == "%" else unquote(identifier, errors="strict")
