"""From synthetic queries, edges or rows to what negatives are mined for, and from there to training rows."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from obliq_eval.data.files import lines
from obliq_eval.edges import read_edges
from obliq_eval.errors import UserError
from obliq_eval.jsonl import value_of
from obliq_train.negatives import AT_ONCE, Miner, Ranks, Wanted
from obliq_train.rows import OWN, Passage, Row, read_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from obliq_eval.edges import Edge
    from obliq_train.distinct import Distinct

Kind = Literal["synthetic", "edges", "rows"]
Scored = Literal["query", "positive"]
SCORED: dict[Kind, Scored] = {"synthetic": "query", "edges": "positive", "rows": "query"}
"""What the paper scores from: the query of a synthetic row, d' of an edge (Eq. 6)."""
SENTENCE = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True)
class Pair:
    """A row to be, without negatives.

    Args:
        row: The row as far as it is known; documents by id where `written` is false.
        anchor: Id of the document that the query comes from; empty if not known.
        written: Whether the positives are texts; otherwise they are ids, to be read from the corpus.
        scored: Id of a document to score from in place of the query or the positive; empty for none.
    """

    row: Row
    anchor: str = ""
    written: bool = False
    scored: str = ""


@dataclass
class Reader:
    """Reads pairs from one file.

    Args:
        documents: The corpus.
        source: Name of the part, written into every row.
        instruction: What is put before queries.
        passage_instruction: What is put before documents.
    """

    documents: Distinct
    source: str = ""
    instruction: str = ""
    passage_instruction: str = ""
    counts: Counter[str] = field(default_factory=Counter, init=False)
    """Whatever was passed over, by its name."""

    def synthetic(self, path: Path) -> Iterator[Pair]:
        """Yield a pair for each synthetic query: it is answered by the document that it was written from.

        Raises:
            UserError: At the first line without a query or with a document that is not in the corpus.
        """
        for number, data in _objects(path, ("document", "query")):
            document = data["document"]
            self._check(document, f"{path}, line {number}")
            more = {key: value for key, value in data.items() if key not in {*OWN, "document", "description"}}
            row = Row(
                query=Passage(self.instruction, data["query"]),
                positives=(Passage(self.passage_instruction, document),),
                source=self.source,
                query_id=document,
                positive_ids=(document,),
                more=more,
            )
            yield Pair(row, document)

    def edges(
        self,
        edges: Iterable[Edge],
        descriptions: Mapping[str, str] | None = None,
        *,
        like: Iterable[Edge] = (),
    ) -> Iterator[Pair]:
        """Yield a pair for each edge: the anchor's description, or the anchor itself, is answered by the neighbour.

        Args:
            edges: The edges, or a dose of them.
            descriptions: `{document id: description}`; an edge whose anchor has none is passed over and counted. None
                makes the anchor's text the query.
            like: The teacher's edges, where `edges` are a control's: negatives are scored from the neighbour that the
                teacher has at the same anchor and rank, and this neighbour is no negative, so that the control differs
                in its positives alone.

        Raises:
            UserError: If a document is not in the corpus, or the teacher has no edge at an anchor and rank.
        """
        teacher = {(edge.anchor, edge.rank): edge.neighbour for edge in like}
        source = iter(edges)
        while some := list(islice(source, AT_ONCE)):
            for edge in some:
                for document in edge[:2]:
                    self._check(document, "the edges")
            queries = self._read([edge.anchor for edge in some]) if descriptions is None else descriptions
            for edge in some:
                if teacher and (edge.anchor, edge.rank) not in teacher:
                    known = f"the teacher's edges have none of rank {edge.rank} at {edge.anchor!r}"
                    raise UserError(f"{known}: name the edges that the control was made from")
                if queries.get(edge.anchor):
                    yield self._pair(edge, queries[edge.anchor], teacher.get((edge.anchor, edge.rank), ""))
                else:
                    self.counts["edges whose anchor has no description"] += 1

    def rows(self, path: Path) -> Iterator[Pair]:
        """Yield a pair for each row, whose negatives are dropped; documents may be named by their ids."""
        for row in read_rows(path, self.documents):
            self.counts["negatives that were replaced"] += len(row.negatives)
            anchor = row.query_id if row.query_id in self.documents else ""
            fresh = replace(row, negatives=(), negative_ids=(), source=row.source or self.source)
            yield Pair(fresh, anchor, written=True)

    def _pair(self, edge: Edge, query: str, scored: str) -> Pair:
        row = Row(
            query=Passage(self.instruction, query),
            positives=(Passage(self.passage_instruction, edge.neighbour),),
            source=self.source,
            query_id=edge.anchor,
            positive_ids=(edge.neighbour,),
            more={"rank": edge.rank},
        )
        return Pair(row, edge.anchor, scored=scored)

    def _read(self, ids: list[str]) -> dict[str, str]:
        return dict(zip(ids, self.documents.read([self.documents.column[one] for one in ids]), strict=True))

    def _check(self, document: str, place: str) -> None:
        if document not in self.documents:
            raise UserError(f"{place}: document {document!r} is not in the corpus: name the corpus that it comes from")


def kind_of(path: Path) -> Kind:
    """Return what a file holds, by its first line.

    Raises:
        UserError: If it is none of the three.
    """
    if path.suffix == ".tsv":
        return "edges"
    first = next(lines(path), (0, "null"))[1]
    try:
        keys = set(value_of(first))
    except (ValueError, TypeError):
        keys = set()
    if "anchor" in keys:
        return "edges"
    if {"document", "query"} <= keys:
        return "synthetic"
    if {"query", "pos"} <= keys:
        return "rows"
    raise UserError(f"{path} holds neither synthetic queries nor edges nor rows; `obliq synth` and `obliq graph` do")


def read_descriptions(path: Path, *, one_line: bool = False) -> dict[str, str]:
    """Read Stage A's descriptions as `{document id: description}`, the first of a document's where it has several.

    Args:
        path: JSONL with `document` and `description`, such as `obliq synth` writes.
        one_line: Keep the first sentence alone, for the paper's "one-line" description (section 3.2); otherwise the
            whole paragraph (its Figure B.3).

    Raises:
        UserError: At the first line without them.
    """
    found: dict[str, str] = {}
    for _, data in _objects(path, ("document", "description")):
        text = " ".join(data["description"].split()) if one_line else data["description"].strip()
        found.setdefault(data["document"], SENTENCE.split(text)[0] if one_line else text)
    return found


def with_negatives(
    pairs: Iterable[Pair], miner: Miner, scored: Scored, ranks: Ranks | None = None, *, seed: int = 0
) -> Iterator[Row]:
    """Yield each pair as a whole row; some are in memory at a time.

    Args:
        pairs: The pairs.
        miner: The corpus with its graph.
        scored: Score from the query, or from the (first) positive.
        ranks: Which ranks negatives come from.
        seed: Seed of the draw from a range of ranks.
    """
    source = iter(pairs)
    while some := list(islice(source, AT_ONCE)):
        texts = _Texts(miner.held, some)
        wanted = [_wanted(pair, texts, scored) for pair in some]
        mined = list(miner.mine(wanted, ranks, seed=seed))
        texts.add(identifier for negatives in mined for identifier in negatives)
        for pair, negatives in zip(some, mined, strict=True):
            row = pair.row if pair.written else pair.row.resolved(texts.known)
            before = row.positives[0].instruction
            yield replace(
                row,
                negatives=tuple(Passage(before, texts.known[identifier]) for identifier in negatives),
                negative_ids=negatives,
            )


class _Texts:
    """Texts of documents, read together."""

    def __init__(self, documents: Distinct, pairs: Iterable[Pair]) -> None:
        self._documents, self.known = documents, dict[str, str]()
        named = (p.text for pair in pairs if not pair.written for p in pair.row.positives)
        self.add([*named, *(pair.scored for pair in pairs if pair.scored)])

    def add(self, ids: Iterable[str]) -> None:
        """Read those that are not known yet."""
        new = [identifier for identifier in dict.fromkeys(ids) if identifier not in self.known]
        columns = [self._documents.column[identifier] for identifier in new]
        self.known |= zip(new, self._documents.read(columns), strict=True)


def _wanted(pair: Pair, texts: _Texts, scored: Scored) -> Wanted:
    row = pair.row
    first = row.positives[0].text if pair.written else texts.known[row.positives[0].text]
    text = row.query.text if scored == "query" else first
    return Wanted(
        key=json.dumps([pair.anchor, row.query.text, row.positive_ids]),
        scored=texts.known[pair.scored] if pair.scored and scored == "positive" else text,
        barred=(*row.positive_ids, *((pair.scored,) if pair.scored else ())),
        texts=(row.query.text, *(p.text for p in row.positives if pair.written)),
        anchor=pair.anchor,
    )


def _objects(path: Path, keys: tuple[str, ...]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in lines(path):
        try:
            data = value_of(line)
        except ValueError:
            data = None
        if not isinstance(data, dict) or not all(isinstance(data.get(key), str) and data[key].strip() for key in keys):
            named = " and ".join(f'"{key}"' for key in keys)
            raise UserError(f"{path}, line {number}: expected an object with the texts {named}")
        yield number, data


def graph_of(path: Path | None) -> tuple[Edge, ...]:
    """Return the edges of a file; none without one."""
    return () if path is None else read_edges(path)
