"""Runs as Parquet: obliq's own files, and those of ranx."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from obliq_eval.records import Run
    from obliq_eval.run_json import Row

METADATA = b"obliq"
"""Key of the schema's metadata: all query ids, which a query without an answer needs, and the depth, as JSON."""


def write(run: Run, target: Path) -> None:
    """Write the columns `query_id` (string), `doc_id` (string) and `score` (float32); the same run, the same bytes."""
    queries = [query for query, ranking in run.rankings.items() for _ in ranking.documents]
    documents = [document for ranking in run.rankings.values() for document in ranking.documents]
    scores = np.concatenate([np.empty(0, np.float32), *(ranking.scores for ranking in run.rankings.values())])
    about = json.dumps({"queries": list(run.rankings), "depth": run.depth})
    columns = [pa.array(queries, pa.string()), pa.array(documents, pa.string()), pa.array(scores, pa.float32())]
    table = pa.table(columns, names=["query_id", "doc_id", "score"], metadata={METADATA: about})
    pq.write_table(table, target, compression="zstd")


def rows(data: bytes, path: Path) -> tuple[Iterator[Row], int | None]:
    """Return `(query id, document ids, scores)` rows, and the depth if the file knows it.

    Raises:
        UserError: If the file is damaged, or its columns are not strings, strings and numbers.
    """
    try:
        table = pq.read_table(pa.BufferReader(data))
        table.validate(full=True)  # strings that are no UTF-8 would be found too late
        about = json.loads((table.schema.metadata or {}).get(METADATA, b"{}"))
    except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is a damaged Parquet file; fetch or write it again") from error
    known, depth = _about(about, path)
    if "score" not in table.column_names or not pa.types.is_floating(table["score"].type):
        raise UserError(f"{path}: expected a column score of floating-point numbers")
    queries, documents = _strings(table, ("query_id", "q_id"), path), _strings(table, ("doc_id",), path)
    answers: dict[str, tuple[list[str], list[float]]] = {query: ([], []) for query in known}
    for query, document, score in zip(queries, documents, table["score"].to_pylist(), strict=True):
        ranked, scores = answers.setdefault(query, ([], []))
        ranked.append(document)
        scores.append(score)
    return ((query, ranked, scores) for query, (ranked, scores) in answers.items()), depth


def _about(about: Any, path: Path) -> tuple[list[str], int | None]:
    """Return the queries and the depth that a file's metadata name; there are none in a file of ranx."""
    queries, depth = (about.get("queries", []), about.get("depth")) if isinstance(about, dict) else (None, None)
    if (
        not isinstance(queries, list)
        or not all(isinstance(query, str) for query in queries)
        or not (depth is None or (type(depth) is int and depth >= 0))
    ):
        raise UserError(f"{path}: its metadata {METADATA.decode()!r} are not those of a run; write the run again")
    return queries, depth


def _strings(table: Any, names: Sequence[str], path: Path) -> list[str]:
    name = next((name for name in names if name in table.column_names), None)
    if name is None:
        raise UserError(f"{path}: no column {names[0]}; its columns are {', '.join(table.column_names)}")
    kind = table[name].type.value_type if pa.types.is_dictionary(table[name].type) else table[name].type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise UserError(f'{path}: the column {name} holds {kind}, and ids are strings ("007", not 7)')
    if table[name].null_count:
        raise UserError(f"{path}: {table[name].null_count} rows have no {name}")
    strings: list[str] = table[name].to_pylist()
    return strings
