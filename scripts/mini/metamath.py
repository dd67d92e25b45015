"""The builder of Mini-Math: comments of set.mm, where relevant means proved by the same key lemma."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .common import (
    CORPUS,
    EXCLUDED,
    GROUPS,
    QRELS,
    QRELS_HEADER,
    QUERIES,
    SourceError,
    numbered,
    verify,
    write_json,
    write_jsonl,
    write_lines,
    write_tsv,
)
from .metamath_card import Counts, card
from .metamath_parser import AR_MAGIC, Theorem, parse, read_source
from .metamath_techniques import TECHNIQUES, Technique
from .metamath_text import hide, reads_as_english, strip_markup, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PACKAGE_SHA256 = "c72523c221db6c1039fa909150f9c53fb9175809792f2e80e55e1baa965445a1"
SET_MM_SHA256 = "4d93307bc81337a621031739acfffb4159175f94fb90e727f4a231401091e45b"

POOLED = QRELS.with_name("qrels_pool.tsv")
PROVENANCE = Path("provenance.tsv")
CARD = Path("README.md")

DOCUMENTS = 1_500
QUERY_COUNT = 115
QUERY_WORDS = 10  # a query is an example to read: longer than the shortest document
GOLDS = 2  # outside the query's own section, at least
NEAR_DUPLICATE = 0.7  # Jaccard index of the sets of words

SUPERSEDED = re.compile(r"(?:OLD|ALT)\w*$")  # earlier or alternative proofs of a theorem that is there as well


@dataclass(frozen=True)
class Document:
    """A theorem with its cleaned comment and the techniques, by slug, whose lemmas its proof cites."""

    theorem: Theorem
    text: str
    techniques: tuple[str, ...]

    @property
    def section(self) -> tuple[str, ...]:
        """The headings above the theorem."""
        return self.theorem.section


def build(source: Path, out: Path) -> None:
    """Write Mini-Math in the official layout, byte for byte the same on each call.

    Args:
        source: The Debian package `metamath-databases_0.0.0~20210101.git55fe226-2_all.deb`, or its set.mm.
        out: The folder to write; files of the same names are replaced.

    Raises:
        SourceError: The source is missing or not the pinned one, or a lemma of the table is not in it.
    """
    is_package = source.is_file() and source.open("rb").read(len(AR_MAGIC)) == AR_MAGIC
    verify(source, PACKAGE_SHA256 if is_package else SET_MM_SHA256)
    theorems = list(parse(read_source(source)))
    check_lemmas(theorems)
    candidates, unreadable, named = documents_of(theorems)
    corpus, repeats = choose_corpus(candidates)
    queries = choose_queries(corpus)
    gold, pooled = write(corpus, queries, out)
    counts = Counts(len(theorems), unreadable, named, repeats, len(corpus), len(queries), gold, pooled)
    write_lines(out / CARD, card(counts, _table(corpus, queries)))


def check_lemmas(theorems: Iterable[Theorem]) -> None:
    """Refuse a table that names a lemma which the source does not prove.

    Raises:
        SourceError: Names every missing label at once.
    """
    missing = set().union(*(technique.lemmas for technique in TECHNIQUES)) - {t.label for t in theorems}
    if missing:
        raise SourceError(f"set.mm proves no {', '.join(sorted(missing))}; correct the table of techniques")


def documents_of(theorems: Iterable[Theorem]) -> tuple[list[Document], int, int]:
    """Clean the comments, and keep those that read as English.

    Left out are superseded proofs and the key lemmas themselves, whose comments state the technique.

    Args:
        theorems: In the source's order.

    Returns:
        The documents in that order, the number of comments that do not read as English, and the number that no
        longer do once the words that name a technique are taken out.
    """
    lemmas = set().union(*(technique.lemmas for technique in TECHNIQUES))
    documents, unreadable, named = [], 0, 0
    for theorem in theorems:
        if SUPERSEDED.search(theorem.label) or theorem.label in lemmas:
            continue
        stripped = strip_markup(theorem.comment)
        if not reads_as_english(stripped):
            unreadable += 1
            continue
        text = hide(stripped)
        if not reads_as_english(text):
            named += 1
            continue
        cited = tuple(technique.slug for technique in TECHNIQUES if technique.lemmas & theorem.cited)
        documents.append(Document(theorem, text, cited))
    return documents, unreadable, named


def choose_corpus(candidates: Sequence[Document], size: int = DOCUMENTS) -> tuple[list[Document], int]:
    """Take all documents with a technique, then distractors, no two nearly the same.

    Distractors come from the sections that the documents with a technique come from, so that subject alone does
    not tell them apart; among them the choice is by the SHA-256 of the label.

    Args:
        candidates: Cleaned documents.
        size: Documents in all.

    Returns:
        The corpus in the source's order, and how many near duplicates were passed over.
    """
    with_technique = [document for document in candidates if document.techniques]
    sections = {document.section for document in with_technique}
    others = [document for document in candidates if not document.techniques and document.section in sections]
    others.sort(key=lambda document: hashlib.sha256(document.theorem.label.encode()).digest())
    chosen: dict[str, Document] = {}
    bags: list[frozenset[str]] = []
    repeats = 0
    for document in (*with_technique, *others):
        if len(chosen) == size:
            break
        bag = frozenset(word.lower() for word in words(document.text))
        if any(len(bag & other) >= NEAR_DUPLICATE * len(bag | other) for other in bags):
            repeats += 1
            continue
        chosen[document.theorem.label] = document
        bags.append(bag)
    return [document for document in candidates if document.theorem.label in chosen], repeats


def relevant(query: Document, corpus: Iterable[Document], techniques: Iterable[str]) -> list[Document]:
    """Return the documents outside the query's section that share one of the given techniques."""
    wanted = set(techniques)
    return [d for d in corpus if d.section != query.section and not wanted.isdisjoint(d.techniques)]


def family_of(slug: str) -> list[str]:
    """Return the slugs of all techniques in the family of one."""
    family = next(technique.family for technique in TECHNIQUES if technique.slug == slug)
    return [technique.slug for technique in TECHNIQUES if technique.family == family]


def choose_queries(corpus: Sequence[Document], count: int = QUERY_COUNT) -> list[Document]:
    """Choose queries evenly over the techniques, by the SHA-256 of the text.

    A query has exactly one technique, at least `QUERY_WORDS` words, and `GOLDS` gold documents elsewhere.

    Args:
        corpus: All documents.
        count: How many queries at most.

    Returns:
        The queries: each technique's first, each technique's second, and so on.
    """
    queues: list[list[Document]] = []
    for technique in TECHNIQUES:
        fit = [
            document
            for document in corpus
            if document.techniques == (technique.slug,)
            and len(words(document.text)) >= QUERY_WORDS
            and len(relevant(document, corpus, document.techniques)) >= GOLDS
        ]
        queues.append(sorted(fit, key=lambda document: hashlib.sha256(document.text.encode()).digest()))
    rounds = max(map(len, queues), default=0)
    in_turn = [queue[turn] for turn in range(rounds) for queue in queues if turn < len(queue)]
    return in_turn[:count]


def write(corpus: Sequence[Document], queries: Sequence[Document], out: Path) -> tuple[int, int]:
    """Write corpus, queries, judgments, exclusions, groups and provenance.

    Args:
        corpus: All documents.
        queries: Some of them.
        out: The folder.

    Returns:
        The number of gold and of pooled judgments.
    """
    document_ids = numbered("math-", [document.text for document in corpus])
    query_ids = numbered("query-", [query.text for query in queries])
    corpus = sorted(corpus, key=lambda document: document_ids[document.text])
    queries = sorted(queries, key=lambda query: query_ids[query.text])

    gold = [
        (query_ids[query.text], document_ids[document.text], 1)
        for query in queries
        for document in relevant(query, corpus, query.techniques)
    ]
    pooled = [
        (query_ids[query.text], document_ids[document.text], 1)
        for query in queries
        for document in relevant(query, corpus, family_of(query.techniques[0]))
    ]
    write_jsonl(out / CORPUS, ({"_id": document_ids[d.text], "text": d.text} for d in corpus))
    write_jsonl(out / QUERIES, ({"_id": query_ids[q.text], "text": q.text} for q in queries))
    write_tsv(out / QRELS, QRELS_HEADER, gold)
    write_tsv(out / POOLED, QRELS_HEADER, pooled)
    excluded = {
        query_ids[query.text]: [document_ids[d.text] for d in corpus if d.section == query.section] for query in queries
    }
    write_json(out / EXCLUDED, excluded)
    write_json(out / GROUPS, {query_ids[query.text]: query.techniques[0] for query in queries})
    rows = [(document_ids[d.text], *_origin(d)) for d in corpus] + [(query_ids[q.text], *_origin(q)) for q in queries]
    write_tsv(out / PROVENANCE, ("id", "label", "techniques", "lemmas", "section"), rows)
    return len(gold), len(pooled)


def _origin(document: Document) -> tuple[str, str, str, str]:
    """Return label, techniques, the key lemmas cited, and the section; `-` where there is none."""
    techniques = [technique for technique in TECHNIQUES if technique.slug in document.techniques]
    lemmas = sorted(lemma for technique in techniques for lemma in technique.lemmas & document.theorem.cited)
    section = " > ".join(document.section)
    return document.theorem.label, ",".join(document.techniques) or "-", ",".join(lemmas) or "-", section


def _table(corpus: Sequence[Document], queries: Sequence[Document]) -> list[tuple[Technique, int, int, int]]:
    """Count documents, their sections, and queries of each technique."""
    rows = []
    for technique in TECHNIQUES:
        documents = [document for document in corpus if technique.slug in document.techniques]
        asked = sum(technique.slug in query.techniques for query in queries)
        rows.append((technique, len(documents), len({document.section for document in documents}), asked))
    return rows
