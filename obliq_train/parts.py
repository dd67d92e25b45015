"""The rows of one part of a recipe, built from a corpus: from a frozen model's graph, or from single sentences."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from obliq_eval import show
from obliq_eval.data.sources import MINI, MINI_FOLDER
from obliq_eval.edges import Edge, edge_lines, read_edges
from obliq_eval.errors import UserError
from obliq_eval.fields import read_sources
from obliq_eval.manifest import versions
from obliq_models.documents import read_source
from obliq_models.loading import load
from obliq_models.naming import find
from obliq_train import provenance
from obliq_train.controls import random_graph, sample_edges
from obliq_train.distinct import Distinct
from obliq_train.graph import Graph, knn_graph
from obliq_train.lineage import manifest_of
from obliq_train.negatives import AT_ONCE, Miner, Ranks
from obliq_train.pairs import Pair, Reader, Scored, read_descriptions, with_negatives
from obliq_train.recipe_check import MATCHED, NEIGHBOURS
from obliq_train.recipe_files import PACKAGE
from obliq_train.rows import Row, row_lines
from obliq_train.sentences import cloze

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from obliq_train.recipe import Negatives, Part

SHIPPED = Path(__file__).parent / "mini"
COMMAND = "obliq train"


@dataclass(frozen=True)
class Built:
    """Rows of one part.

    Args:
        rows: The file.
        edges: The whole graph that they were drawn from; None for rows of no graph.
        counts: Whatever was drawn, left out or passed over, by name.
        texts: Hash of the documents that the rows name by their ids; empty where they hold the texts.
    """

    rows: Path
    edges: Path | None
    counts: Mapping[str, int]
    texts: str = ""


@dataclass
class Corpora:
    """Corpora that are read once, whichever parts use them."""

    _held: dict[tuple[str, str], Distinct] = field(default_factory=dict)

    def of(self, part: Part) -> Distinct:
        """Return the documents of a part's corpus, or those of them that it uses.

        Raises:
            UserError: If they cannot be had, or none is left.
        """
        key = (part.corpus, part.only)
        if key not in self._held:
            table = read_source(located(part.corpus)).table
            if part.only:
                name, _, value = part.only.partition("=")
                known, _ = _field(part, name, table["id"][:])
                table = table.select([at for at, one in enumerate(table["id"]) if value in known.get(one, ())])
                if not len(table):
                    raise UserError(f"part {part.name!r}: no document of {part.corpus} has {name} = {value!r}")
            self._held[key] = Distinct(table)
        return self._held[key]


def located(corpus: str) -> str:
    """Return a corpus as it is read: a file that ships with this package by its path."""
    return str(SHIPPED / corpus.removeprefix(PACKAGE)) if corpus.startswith(PACKAGE) else corpus


def step(
    path: Path, lines: Callable[[], Iterable[str]], *, settings: Mapping[str, Any], inputs: Mapping[str, str],
    seed: int | None = None, counts: Callable[[], Mapping[str, int]] = dict,
) -> dict[str, Any]:  # fmt: skip
    """Write a file with its manifest, or find it again: made of the same, by the same versions, and unchanged since.

    Args:
        path: The file.
        lines: Called only if it is to be written.
        settings: As for `provenance.write`.
        inputs: Likewise.
        seed: Likewise.
        counts: Likewise.

    Returns:
        The manifest.
    """
    told = {"command": COMMAND, "settings": dict(settings), "inputs": dict(inputs), "seed": seed}
    wanted = json.loads(json.dumps({**told, "versions": versions()}, default=str))
    held = manifest_of(path)
    same = held is not None and {key: held.get(key) for key in wanted} == wanted
    if held is not None and same and path.is_file() and provenance.sha256(path) == held.get("content"):
        return held
    return provenance.write(
        path, lines(), command=COMMAND, settings=wanted["settings"], inputs=inputs, seed=seed, counts=counts
    )


def build(part: Part, negatives: Negatives, folder: Path, corpora: Corpora) -> Built:
    """Write the rows of a part that names a corpus, and the whole graph that they are drawn from.

    A control keeps the anchors, the dose and the mined negatives of the teacher's rows; its positives alone are others.

    Args:
        part: The part.
        negatives: What is mined; nothing where its count is 0.
        folder: Where `NAME.rows.jsonl`, `NAME.graph.jsonl` and, for a control, `NAME.control.jsonl` go.
        corpora: The corpora that were read before.

    Raises:
        UserError: If documents, teacher or field cannot be had, or there is less than the dose.
    """
    held, path = corpora.of(part), folder / f"{part.name}.rows.jsonl"
    settings: dict[str, Any] = {
        "part": part.name,
        "corpus": part.corpus,
        "only": part.only,
        "dose": part.dose,
        **negatives.model_dump(),
    }
    if part.sentences:
        made = _Rows(held, part, negatives, (), "query")
        return Built(path, None, made.write(path, made.of_sentences, {**settings, "sentences": True}, {}))
    graph, model = _teacher_graph(part, folder, held)
    whole = read_edges(graph)
    used = graph if part.positives == NEIGHBOURS else _control(part, folder, held, graph, whole)
    edges = whole if used == graph else read_edges(used)
    made = _Rows(held, part, negatives, whole, "positive")
    settings |= {
        "anchor": part.anchor, "one_line": part.one_line, "control": "" if used == graph else part.positives,
        "graph": graph.name, "model": model, "k": part.k,
    }  # fmt: skip
    inputs = {file.name: provenance.sha256(file) for file in {graph: 0, used: 0}}
    descriptions = None
    if part.anchor == "description":
        descriptions = read_descriptions(Path(part.descriptions), one_line=part.one_line)
        inputs |= provenance.inputs(part.descriptions)
    return Built(path, used, made.write(path, lambda: made.of_edges(edges, descriptions), settings, inputs))


def _teacher_graph(part: Part, folder: Path, held: Distinct) -> tuple[Path, str]:
    """Return the file of the whole graph, and the full name of the model that made it."""
    entry = find(part.teacher)
    told = {"model": entry.name, "revision": entry.revision, "loading": dict(entry.settings), "k": part.k}
    apart, inputs = _field(part, part.apart, held.ids) if part.apart else (None, {})
    path, counts = folder / f"{part.name}.graph.jsonl", dict[str, int]()

    def lines() -> Iterator[str]:
        if entry.risk:
            show.say(f"{entry.alias}: {entry.risk} (licence: {entry.licence})", stderr=True)
        made = knn_graph(held, load(entry), part.k, sources=apart)
        _some(made, part)
        counts.update(made.counts)
        yield from edge_lines(made.edges)

    step(path, lines, settings={"corpus": part.corpus, "apart": part.apart, **told},
         inputs={"corpus": held.content, **inputs}, counts=lambda: counts)  # fmt: skip
    return path, entry.name


def _control(part: Part, folder: Path, held: Distinct, graph: Path, whole: Sequence[Edge]) -> Path:
    """Return the file of the whole graph with other neighbours."""
    apart, inputs = _field(part, part.apart, held.ids) if part.apart else (None, {})
    match = None
    if part.positives.startswith(MATCHED):
        match, more = _field(part, part.positives.removeprefix(MATCHED), held.ids)
        inputs |= more
    path, counts = folder / f"{part.name}.control.jsonl", dict[str, int]()

    def lines() -> Iterator[str]:
        made = random_graph(held, whole, seed=part.seed, sources=apart, match=match)
        _some(made, part)
        counts.update(made.counts)
        yield from edge_lines(made.edges)

    step(path, lines, settings={"corpus": part.corpus, "apart": part.apart, "control": part.positives},
         inputs={"corpus": held.content, graph.name: provenance.sha256(graph), **inputs}, seed=part.seed,
         counts=lambda: counts)  # fmt: skip
    return path


def _some(graph: Graph, part: Part) -> None:
    if not graph.edges:
        told = ", ".join(f"{number:,} {what}" for what, number in graph.counts.items() if number)
        raise UserError(f"part {part.name!r}: no edge is left ({told}); is every document of one {part.apart}?")


def _field(part: Part, name: str, ids: Sequence[str]) -> tuple[dict[str, frozenset[str]], dict[str, str]]:
    """Return the values of a field of the corpus, and the hash of the file that has them."""
    place = field_file(part.corpus, name)
    try:
        return read_sources(place, None, ids) or {}, provenance.inputs(place)
    except UserError as error:
        raise UserError(f"part {part.name!r}: {error}") from error


def field_file(corpus: str, name: str) -> str:
    """Return where a field of a corpus stands, as FILE#NAME: in the corpus itself, or in a table beside a bundled one.

    Raises:
        UserError: If nothing but texts is known of the documents.
    """
    if corpus in MINI:
        return f"{MINI_FOLDER / MINI[corpus] / 'provenance.tsv'}#{name}"
    path = Path(located(corpus))
    for file in (path, path / "corpus.jsonl", path / "corpus" / "corpus.jsonl"):
        if file.is_file():
            return f"{file}#{name}"
    raise UserError(f"{corpus} holds nothing but texts, so it has no field {name!r}: give a .jsonl file that has it")


@dataclass
class _Rows:
    """Makes the rows of one part out of pairs, mining where negatives are wanted.

    Args:
        held: The corpus.
        part: The part.
        negatives: What is mined.
        graph: The teacher's whole graph.
        scored: What BM25 scores from.
    """

    held: Distinct
    part: Part
    negatives: Negatives
    graph: Sequence[Edge]
    scored: Scored
    counts: Counter[str] = field(default_factory=Counter)

    def write(
        self, path: Path, pairs: Callable[[], Sequence[Pair]], settings: Mapping[str, Any], inputs: Mapping[str, str]
    ) -> dict[str, int]:
        """Write the rows, or find them again, and return the counts."""

        def lines() -> Iterator[str]:
            found = pairs()
            yield from row_lines(show.track(self._mined(found), f"rows of {self.part.name}", len(found)))

        read = {"corpus": self.held.content, **inputs}
        made = step(path, lines, settings=settings, inputs=read, seed=self.part.seed, counts=lambda: self.counts)
        return dict(made["counts"])

    def _mined(self, pairs: Iterable[Pair]) -> Iterator[Row]:
        if not self.negatives.count:
            yield from self._resolved(pairs)
            return
        miner = Miner(self.held, self.graph, self.negatives.variant)
        yield from with_negatives(pairs, miner, self.scored, Ranks(self.negatives.count, self.negatives.first))
        self.counts.update(miner.counts)

    def _resolved(self, pairs: Iterable[Pair]) -> Iterator[Row]:
        """Yield the rows as they are, with documents' texts in the place of their ids."""
        source = iter(pairs)
        while some := list(islice(source, AT_ONCE)):
            named = sorted({one for pair in some if not pair.written for one in pair.row.positive_ids})
            texts = dict(zip(named, self.held.read([self.held.column[one] for one in named]), strict=True))
            yield from (pair.row if pair.written else pair.row.resolved(texts) for pair in some)

    def of_edges(self, edges: Sequence[Edge], descriptions: Mapping[str, str] | None) -> list[Pair]:
        """Return the pairs of a dose of edges; the dose is drawn from the teacher's, and a control follows it."""
        known = [edge for edge in self.graph if descriptions is None or descriptions.get(edge.anchor)]
        if lost := len(self.graph) - len(known):
            self.counts["edges whose anchor has no description"] = lost
        dose = self._dose(len(known), "edges")
        chosen = known if dose is None else list(sample_edges(known, dose, self.part.seed))
        self.counts["edges of the graph"], self.counts["edges drawn"] = len(self.graph), len(chosen)
        reader = Reader(self.held, self.part.name)
        if self.part.positives == NEIGHBOURS:
            return list(reader.edges(chosen, descriptions))
        places = {(edge.anchor, edge.rank) for edge in chosen}
        other = [edge for edge in edges if (edge.anchor, edge.rank) in places]
        if lost := len(chosen) - len(other):
            self.counts["edges without a document left to draw"] = lost
        return list(reader.edges(other, descriptions, like=self.graph))

    def of_sentences(self) -> list[Pair]:
        """Return the pairs of a dose of documents."""
        found = list(cloze(self.held, self.part.name, self.part.seed, self.counts))
        dose = self._dose(len(found), "documents with a sentence to take out")
        if dose is None:
            return found
        self.counts["documents not drawn"] = len(found) - dose
        drawn = np.sort(np.random.default_rng(self.part.seed).permutation(len(found))[:dose])
        return [found[at] for at in drawn.tolist()]

    def _dose(self, there: int, what: str) -> int | None:
        name, dose = self.part.name, self.part.dose
        if dose is not None and dose > there:
            raise UserError(
                f"part {name!r}: the dose is {dose:,}, and there are {there:,} {what}: part.{name}.dose=all takes all"
            )
        return dose
