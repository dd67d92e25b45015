"""Training rows in the form of ReasonIR: a query with its positives and negatives, each with an instruction.

Shao et al., "ReasonIR: training retrievers for reasoning tasks", 2025, write `{"query": [instruction, text], "pos":
[[instruction, document], …], "neg": [[instruction, document], …]}`; some generators write flat strings in place of
the pairs. Both are read, and the pairs are written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from obliq_eval.data.files import lines
from obliq_eval.errors import UserError
from obliq_eval.jsonl import value_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

EXPECTED = '"query", "pos" and "neg": texts, or pairs of an instruction and a text'
OWN = ("query", "pos", "neg", "source", "query_id", "pos_ids", "neg_ids")


class Passage(NamedTuple):
    """A text with what is put before it."""

    instruction: str
    text: str


@dataclass(frozen=True)
class Row:
    """One training row.

    Args:
        query: The query.
        positives: Documents that answer it, at least one.
        negatives: Documents that do not.
        source: Name of the part that it belongs to.
        query_id: Where the query comes from: the id of a document, as a rule.
        positive_ids: Ids of the positives, in their order, where they are known.
        negative_ids: Ids of the negatives, in their order, where they are known.
        more: All other keys, as they were read.
    """

    query: Passage
    positives: tuple[Passage, ...]
    negatives: tuple[Passage, ...] = ()
    source: str = ""
    query_id: str = ""
    positive_ids: tuple[str, ...] = ()
    negative_ids: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def scores(self) -> tuple[list[float], list[float]] | None:
        """A teacher's scores of the positives and of the negatives; None unless each has one finite number."""
        told = self.more.get("scores")
        if not isinstance(told, dict):
            return None
        pair = told.get("pos", []), told.get("neg", [])
        for values, documents in zip(pair, (self.positives, self.negatives), strict=True):
            if not isinstance(values, list) or len(values) != len(documents):
                return None
            if not all(map(_is_score, values)):
                return None
        return pair

    @classmethod
    def of(cls, data: object, place: str = "row") -> Row:
        """Read a row from its JSON value.

        Raises:
            UserError: If it is none; `place` says where it stands.
        """
        if not isinstance(data, dict):
            raise UserError(f"{place}: expected an object with {EXPECTED}")
        positives = _passages(data.get("pos"), place)
        if not positives:
            raise UserError(f'{place}: the row has no positive; take it out, or name a document under "pos"')
        negatives = _passages(data.get("neg") or [], place)
        return cls(
            query=_passage(data.get("query"), place),
            positives=positives,
            negatives=negatives,
            source=_text(data, "source", place),
            query_id=_text(data, "query_id", place),
            positive_ids=_ids(data, "pos_ids", place, len(positives)),
            negative_ids=_ids(data, "neg_ids", place, len(negatives)),
            more={key: value for key, value in data.items() if key not in OWN},
        )

    def to_json(self) -> str:
        """Return the row as one line of JSON: what is empty of the ids and the source is left out."""
        own: dict[str, Any] = {"query": self.query, "pos": self.positives, "neg": self.negatives}
        known = zip(OWN[3:], (self.source, self.query_id, self.positive_ids, self.negative_ids), strict=True)
        return json.dumps({**own, **{key: value for key, value in known if value}, **self.more}, ensure_ascii=False)

    def resolved(self, texts: Mapping[str, str]) -> Row:
        """Return the row with documents that are named by their ids replaced by their texts.

        Args:
            texts: `{document id: text}`; an entry that is one of these ids stands for its document, any other is a
                text. The ids are kept where all of the positives, or of the negatives, have one.
        """
        positives, positive_ids = _resolved(self.positives, self.positive_ids, texts)
        negatives, negative_ids = _resolved(self.negatives, self.negative_ids, texts)
        return replace(
            self, positives=positives, positive_ids=positive_ids, negatives=negatives, negative_ids=negative_ids
        )

    def named(self, texts: Mapping[str, str]) -> int:
        """Return how many of the row's documents are named by an id rather than written out."""
        return sum(passage.text in texts for passage in (*self.positives, *self.negatives))


def read_rows(path: Path, texts: Mapping[str, str] | None = None) -> Iterator[Row]:
    """Yield the rows of a JSONL file, one at a time.

    Args:
        path: The file.
        texts: `{document id: text}` of the documents that rows may name by their ids (see `Row.resolved`).

    Raises:
        UserError: At the first line that is no row, naming file and line.
    """
    for number, line in lines(path):
        place = f"{path}, line {number}"
        try:
            data = value_of(line)
        except ValueError as error:
            raise UserError(f"{place}: not a JSON object; is the file cut off?") from error
        row = Row.of(data, place)
        yield row if texts is None else row.resolved(texts)


def row_lines(rows: Iterable[Row]) -> Iterator[str]:
    """Yield each row as a line of JSONL."""
    for row in rows:
        yield row.to_json() + "\n"


def _is_score(value: object) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    except OverflowError:  # an integer of hundreds of digits
        return False


def _passage(value: object, place: str) -> Passage:
    if isinstance(value, str):
        return Passage("", value)
    if isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value):
        return Passage(*value)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return Passage("", value[0])
    raise UserError(f"{place}: expected {EXPECTED}; found {json.dumps(value, ensure_ascii=False)[:80]}")


def _passages(value: object, place: str) -> tuple[Passage, ...]:
    """Read several passages; one flat string is one of them, a list of strings are several, not a pair."""
    if isinstance(value, str):
        return (Passage("", value),)
    if not isinstance(value, list):
        raise UserError(f"{place}: expected {EXPECTED}; found {json.dumps(value, ensure_ascii=False)[:80]}")
    return tuple(_passage(one, place) for one in value)


def _text(data: Mapping[str, Any], key: str, place: str) -> str:
    value = data.get(key) or ""
    if not isinstance(value, str):
        raise UserError(f'{place}: "{key}" must be a string ("007", not 7)')
    return value


def _ids(data: Mapping[str, Any], key: str, place: str, documents: int) -> tuple[str, ...]:
    value = data.get(key) or []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise UserError(f'{place}: "{key}" must be a list of strings ("007", not 7)')
    if value and len(value) != documents:
        raise UserError(f'{place}: "{key}" has {len(value)} ids for {documents} documents')
    return tuple(value)


def _resolved(
    passages: tuple[Passage, ...], ids: tuple[str, ...], texts: Mapping[str, str]
) -> tuple[tuple[Passage, ...], tuple[str, ...]]:
    found = tuple(Passage(p.instruction, texts[p.text]) if p.text in texts else p for p in passages)
    if not ids and passages and all(p.text in texts for p in passages):
        ids = tuple(p.text for p in passages)
    return found, ids
