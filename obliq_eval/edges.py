"""Edges of a graph over documents: who is whose neighbour, at which rank, and nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from obliq_eval.data.files import lines
from obliq_eval.errors import UserError
from obliq_eval.jsonl import value_of
from obliq_eval.records import document_fault, parse_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

KEYS = ("anchor", "neighbour", "rank")


class Edge(NamedTuple):
    """A directed edge.

    Args:
        anchor: Id of the document that it starts from.
        neighbour: Id of the document that it leads to.
        rank: 1 for the anchor's nearest neighbour.
    """

    anchor: str
    neighbour: str
    rank: int


def read_edges(path: Path) -> tuple[Edge, ...]:
    """Read edges: JSONL with the keys of `KEYS`, or, from a `.tsv` file, these three columns, a header first or none.

    Other keys and columns are ignored. Without a rank (two columns), an anchor's edges are ranked as they stand.

    Raises:
        UserError: At the first line that is no edge; if an edge leads to its own anchor or comes twice; or if there
            are none.
    """
    rows = _from_tsv(path) if path.suffix == ".tsv" else _from_jsonl(path)
    edges, seen = [], set()
    for number, (anchor, neighbour, rank) in rows:
        place = f"{path}, line {number}"
        if fault := document_fault(anchor) or document_fault(neighbour):
            raise UserError(f"{place}: {fault}")
        if anchor == neighbour:
            raise UserError(f"{place}: the edge of {anchor!r} leads to itself; take it out")
        if (anchor, neighbour) in seen:
            raise UserError(f"{place}: the edge from {anchor!r} to {neighbour!r} is there twice; take one out")
        seen.add((anchor, neighbour))
        edges.append(Edge(anchor, neighbour, _rank(rank, place)))
    if not edges:
        raise UserError(f"{path} holds no edges; `obliq graph` makes them")
    return tuple(edges)


def edge_lines(edges: Iterable[Edge]) -> Iterator[str]:
    """Yield each edge as a line of JSONL."""
    for edge in edges:
        yield json.dumps(edge._asdict(), ensure_ascii=False) + "\n"


def _rank(value: object, place: str) -> int:
    try:
        number = parse_number(str(value))
    except ValueError:
        number = 0.0
    if not number.is_integer() or number < 1:
        raise UserError(f"{place}: the rank is {str(value)[:40]!r}, not a whole number from 1 on")
    return int(number)


def _from_jsonl(path: Path) -> Iterator[tuple[int, tuple[Any, Any, Any]]]:
    for number, line in lines(path):
        try:
            row = value_of(line)
            found = tuple(row[key] for key in KEYS)
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f'{path}, line {number}: expected an object with "anchor", "neighbour", "rank"') from error
        yield number, found


def _from_tsv(path: Path) -> Iterator[tuple[int, tuple[Any, Any, Any]]]:
    last: dict[str, int] = {}
    for number, line in lines(path):
        columns = line.split("\t")
        if tuple(columns[:2]) == KEYS[:2]:
            continue
        if len(columns) < 2:
            raise UserError(f"{path}, line {number}: expected anchor, neighbour and rank, separated by TABs")
        last[columns[0]] = last.get(columns[0], 0) + 1
        yield number, (columns[0], columns[1], columns[2] if len(columns) > 2 else last[columns[0]])
