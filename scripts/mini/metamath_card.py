"""The card of Mini-Math: what it is, how it was made, what was measured, and what it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .metamath_techniques import Technique


@dataclass(frozen=True)
class Counts:
    """What went in and what came out, in documents unless said otherwise.

    `unreadable` had no English to speak of, `named` had none left without the words that name a technique,
    `repeats` were nearly the same as one already taken.
    """

    theorems: int
    unreadable: int
    named: int
    repeats: int
    documents: int
    queries: int
    gold: int
    pooled: int


@dataclass(frozen=True)
class Figures:
    """Measured on the files as written, rounded to three decimals; `metamath_measure` prints this record.

    The first four: BM25 with the techniques' names as queries, mean over techniques, beside the expectation of a
    random order. `worst`: the technique that it finds best (slug, average precision, chance). `objects`: queries that
    also say what the technique is about (query, average precision, chance). The rest is NDCG@10, gold and pooled.
    """

    name_ap: float
    name_ap_chance: float
    name_ndcg: float
    name_ndcg_chance: float
    worst: tuple[str, float, float]
    objects: tuple[tuple[str, float, float], ...]
    chance: tuple[float, float]
    bm25: tuple[float, float]
    minilm: tuple[float, float]


FIGURES = Figures(
    name_ap=0.024,
    name_ap_chance=0.022,
    name_ndcg=0.029,
    name_ndcg_chance=0.017,
    worst=("well-ordering-theorem", 0.046, 0.020),
    objects=(
        ("mathematical induction on integers", 0.075, 0.072),
        ("finite induction on natural numbers of omega", 0.100, 0.019),
        ("induction on finite sets", 0.165, 0.032),
        ("bijection, one-to-one correspondence between two sets of the same size", 0.085, 0.040),
        ("counting a disjoint union part by part", 0.027, 0.022),
        ("least upper bound, supremum of a bounded set of reals", 0.083, 0.021),
        ("squeeze theorem, limit comparison", 0.028, 0.015),
        ("comparison test, ratio test, geometric series", 0.110, 0.017),
        ("interchanging the order of summation in a double sum", 0.028, 0.015),
        ("Lagrange's theorem, order of an element", 0.201, 0.019),
    ),
    chance=(0.016, 0.080),
    bm25=(0.104, 0.214),
    minilm=(0.120, 0.273),
)

HEAD = """\
# OBLIQ-Mini-Math

{documents:,} documents, {queries} queries, {techniques} techniques, {gold:,} gold and {pooled:,} pooled judgments.

A document is the English comment of a theorem in set.mm, the main database of the Metamath project. What makes a
document relevant is not in its text: the technique that proves it, read off the formal proof as the key lemma that
the proof cites. A query is one theorem's comment, and asks for others proved the same way (an *analogue* query).

| file | content |
|---|---|
| `corpus/corpus.jsonl` | documents |
| `queries+qrels/queries.jsonl` | queries, each the text of one document |
| `queries+qrels/qrels.tsv` | gold: the proof cites a lemma of the query's technique |
| `queries+qrels/qrels_pool.tsv` | pooled: a lemma of any technique of the same family, gold included |
| `queries+qrels/per_query_excluded_ids.json` | every document of the query's own section, itself included |
| `queries+qrels/groups.json` | the query's technique; a dev/test split takes whole techniques |
| `provenance.tsv` | label in set.mm, techniques, key lemmas cited, section, for documents and queries |

Judged documents always lie outside the query's section, the path of headings above the theorem.

## Source and licence

set.mm of 28 December 2020, from the Debian package `metamath-databases` 0.0.0~20210101.git55fe226-2
(sha256 `c72523c221db6c1039fa909150f9c53fb9175809792f2e80e55e1baa965445a1`; of set.mm itself, 41,013,180 bytes,
`4d93307bc81337a621031739acfffb4159175f94fb90e727f4a231401091e45b`). set.mm is dedicated to the public domain (CC0 1.0);
so are these files.

## How it was made

Of {theorems:,} theorems, old and alternative proofs (labels ending in OLD or ALT) and the key lemmas themselves
are left out. In the comments, a formula becomes `X`; credits, dates, references to books and labels go; a sentence that
needs a label, a book or a person, or speaks about the database, goes as a whole. {unreadable:,} comments were left with
fewer than eight words, or with more than three formulas for ten words.

Then the words that name a technique (any technique of the table, not only the document's own) go: what is said in
passing is cut out, any other sentence with such a word is dropped, and so is a first sentence that leans on a dropped
one. {named:,} comments did not survive that. {repeats} near duplicates (Jaccard index of their words .7 or more) were
passed over. All documents with a technique are in; distractors, whose proofs cite none of the lemmas, come from the
same sections and are chosen by the SHA-256 of their label.

A document may have several techniques, and is gold for each. A query has exactly one, at least ten words, and at least
two gold documents; queries are dealt evenly over the techniques.

| technique | family | documents | sections | queries |
|---|---|---|---|---|"""

TAIL = """
## What was measured

*Does the name give it away?* BM25 (bm25s defaults) with each technique's name as the query, over the whole corpus,
beside what a random order gives on average:

| | BM25 | random |
|---|---|---|
| average precision, mean over techniques | {f.name_ap:.3f} | {f.name_ap_chance:.3f} |
| NDCG@10, mean over techniques | {f.name_ndcg:.3f} | {f.name_ndcg_chance:.3f} |
| average precision where BM25 does best against chance: {worst} | {f.worst[1]:.3f} | {f.worst[2]:.3f} |

This holds for short names without the objects that a technique is about, which is how the names in the table were
settled. Words for those objects stay in the texts, and wordier names find them:

| query | average precision, BM25 | random |
|---|---|---|
{objects}

*Retrieval*, NDCG@10 over all {queries} queries, exclusions taken out before the cut-off:

| | gold | pooled |
|---|---|---|
| random order (expectation) | {f.chance[0]:.3f} | {f.chance[1]:.3f} |
| BM25 (bm25s defaults) | {f.bm25[0]:.3f} | {f.bm25[1]:.3f} |
| all-MiniLM-L6-v2 | {f.minilm[0]:.3f} | {f.minilm[1]:.3f} |

## What it is not

- The labels are citations in formal proofs, not human judgments. A formal proof cites many lemmas (most of them
  bookkeeping), and the one in the table need not be the idea that a mathematician would name.
- Only direct citations count. A proof that rests on induction through another lemma, or repeats an argument inline, is
  not relevant here: there are false negatives among distractors and among documents of other techniques.
- Technique and subject go together (unique factorization is used on integers). Excluding the section removes the
  nearest, not all, of that; compare a model with BM25 and MiniLM above before calling it a reader of proofs.
- Texts are short, the formulas are gone, and some comments say little of what is proved.
- The families are ours, a coarse grouping; the pooled judgments are many ({pooled_mean:.0f} per query).
- It has nothing to do with the benchmark's official Math task but the kind of query, and its scores must not be shown
  beside official ones."""


def card(counts: Counts, table: Iterable[tuple[Technique, int, int, int]], figures: Figures = FIGURES) -> list[str]:
    """Write the card as lines of Markdown.

    Args:
        counts: What the builder counted.
        table: For each technique, its documents, their sections, and queries.
        figures: What `metamath_measure` found on the same files.

    Returns:
        Lines without their ends.
    """
    rows = list(table)
    names = {technique.slug: technique.name for technique, *_ in rows}
    head = HEAD.format(techniques=len(rows), **vars(counts))
    body = [f"| {t.name} | {t.family} | {documents} | {sections} | {asked} |" for t, documents, sections, asked in rows]
    tail = TAIL.format(
        f=figures,
        queries=counts.queries,
        worst=names[figures.worst[0]],
        objects="\n".join(f"| {name} | {found:.3f} | {random:.3f} |" for name, found, random in figures.objects),
        pooled_mean=counts.pooled / counts.queries,
    )
    return [*head.splitlines(), *body, *tail.splitlines()]
