"""Toy repositories: the official dataset and its mirror, with every quirk of the real ones and a few dozen documents.

The texts are ours; ids, file names, headers and the relations between the files are in the form of the published
data, so that what reads these reads those. Nothing is random: the same call writes the same bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from obliq_eval.demo import toy_texts
from obliq_eval.demo.hub import Repo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

OFFICIAL_ID = "dianetc/OBLIQ-Bench"
OFFICIAL_REVISION = "4ebee29f68ceeb62ca00bd73d5478acdd3cd7764"
MIRROR_ID = "mteb/OBLIQBenchRetrieval"
MIRROR_REVISION = "b630be644e0dbdc2fa5f712ae8383ebbb9cbee7e"

Texts = tuple[tuple[str, str], ...]
Qrels = tuple[tuple[str, str, int], ...]

_HYPHEN = ("query-id", "corpus-id", "score")
_UNDERSCORE = ("query_id", "corpus_id", "score")


@dataclass(frozen=True)
class ToyTask:
    """One subset of the benchmark at toy size.

    Attributes:
        header: The three column names of its qrels files.
        corpus: (id, text) of each document, in file order.
        queries: (id, text) of each query, in file order.
        gold: (query id, document id, grade) judgments.
        pooled: The gold judgments and further ones, or `None` where the benchmark has none.
        excluded: Documents that do not count for a query, or `None` where the benchmark has none.
    """

    header: tuple[str, str, str]
    corpus: Texts
    queries: Texts
    gold: Qrels
    pooled: Qrels | None = None
    excluded: Mapping[str, tuple[str, ...]] | None = None


def toy_task(task: str) -> ToyTask:
    """Return a subset by its folder in the official repository, such as `analogues/writing`.

    Raises:
        ValueError: If the benchmark has no such subset.
    """
    if task not in _BUILDERS:
        raise ValueError(f"no subset {task!r}; there are {', '.join(_BUILDERS)}")
    return _BUILDERS[task]()


def write_official(folder: Path, task: str) -> None:
    """Write a subset's files, `corpus/` and `queries+qrels/`, into a folder, which is made if it is missing."""
    toy = toy_task(task)
    corpus, rest = folder / "corpus", folder / "queries+qrels"
    corpus.mkdir(parents=True, exist_ok=True)
    rest.mkdir(exist_ok=True)
    _write_jsonl(corpus / "corpus.jsonl", toy.corpus)
    _write_jsonl(rest / "queries.jsonl", toy.queries)
    _write_tsv(rest / "qrels.tsv", toy.header, toy.gold)
    if toy.pooled is not None:
        _write_tsv(rest / "qrels_pool.tsv", toy.header, toy.pooled)
    if toy.excluded is not None:
        excluded = json.dumps(toy.excluded, ensure_ascii=False, indent=2)
        (rest / "per_query_excluded_ids.json").write_text(excluded, encoding="utf-8")


def official_repo(folder: Path) -> Repo:
    """Write all five subsets into a folder and return it as the official dataset at its pinned revision."""
    for task in TASKS:
        write_official(folder / task, task)
    card = "---\nlicense: cc-by-4.0\n---\n\nA toy in the layout of OBLIQ-Bench; texts and judgments are made up.\n"
    (folder / "README.md").write_text(card, encoding="utf-8")
    return Repo("dataset", OFFICIAL_ID, folder, OFFICIAL_REVISION)


def mirror_repo(folder: Path) -> Repo:
    """Write all five subsets as mteb's mirror holds them, and return it at its pinned revision.

    Each subset has the configs `-corpus`, `-queries`, `-qrels` and, where documents are excluded, `-top_ranked`, each
    one Parquet file for the split `test`. Judgments are the pooled ones where they exist; an exclusion is written out
    as the list of every other document.
    """
    configs: list[str] = []
    for task in TASKS:
        for part, table in _mirror_tables(toy_task(task)).items():
            config = f"{task.rpartition('/')[2]}-{part}"
            _write_parquet(folder / config / "test-00000-of-00001.parquet", table)
            configs += [f"- config_name: {config}", "  data_files:", "  - split: test", f"    path: {config}/test-*"]
    card = ["---", "license: cc-by-4.0", "configs:", *configs, "---", "", "A toy in the layout of mteb's mirror.", ""]
    (folder / "README.md").write_text("\n".join(card), encoding="utf-8")
    return Repo("dataset", MIRROR_ID, folder, MIRROR_REVISION)


def _twitter() -> ToyTask:
    """Numbers as ids, a duplicate text, a judged document that is missing, a last query that nobody judged."""
    grid = toy_texts.TWITTER.grid()
    ids = _ids(len(grid), ("007", "7", "1e3", "1000", "-5"), "17540{:02d}")
    queries = tuple((f"{t:02d}" if t % 2 else str(t), theme.query) for t, theme in enumerate(toy_texts.TWITTER.themes))
    judged = [(queries[t][0], doc, s) for doc, (t, s, _, _) in zip(ids, grid, strict=True) if t < len(queries) - 1]
    gold = (*((query, doc, 1) for query, doc, s in judged if s < 2), ("0", "404404", 1))
    pooled = (*gold, *((query, doc, 1) for query, doc, s in judged if s == 2))
    corpus = (*_texts(ids, grid), ("1799000", grid[0][3]))
    return ToyTask(_HYPHEN, corpus, queries, gold, pooled)


def _wildchat() -> ToyTask:
    """Spaces, slashes and accents in ids, a third of the texts duplicated, one empty text, a missing document."""
    grid = toy_texts.WILDCHAT.grid()
    ids = _ids(len(grid), ("conv 1/turn 2", "conversación/é 3", "Gespräch 4"), "{:02d}c/turn 1")
    queries = tuple((f"failure {t}", theme.query) for t, theme in enumerate(toy_texts.WILDCHAT.themes))
    rows = list(zip(ids, grid, strict=True))
    copies = tuple((f"copy/{doc}", text) for doc, (_, _, plain, text) in rows if plain)
    gold = (*((queries[t][0], doc, 1) for doc, (t, s, _, _) in rows if s < 2), ("failure 5", "gone/turn 9", 1))
    pooled = (*gold, *((queries[t][0], doc, 1) for doc, (t, s, plain, _) in rows if s == 2 and not plain))
    corpus = (*_texts(ids, grid), ("empty 0", ""), *copies)
    return ToyTask(_UNDERSCORE, corpus, queries, gold, pooled)


def _math() -> ToyTask:
    """Grades, the source volume excluded for each query, and for the first query a gold document excluded too."""
    topic = toy_texts.MATH
    grid = topic.grid()
    ids = _ids(
        len(grid), ("olympiade-française___1999___no 3",), "american-math-monthly___2008___112{0:02d}/112{0:02d}"
    )
    queries = tuple((f"putnam___{1980 + t}___A{t}/B{t}", theme.query) for t, theme in enumerate(topic.themes))
    sources = tuple((f"{query} (source)", f"{text} (As printed in the source volume.)") for query, text in queries)
    rows = list(zip(ids, grid, strict=True))
    gold = (
        *((queries[t][0], doc, 2) for doc, (t, s, _, _) in rows if s < 2),
        (queries[0][0], sources[0][0], 2),
    )
    pooled = (*gold, *((queries[t][0], doc, 1) for doc, (t, s, _, _) in rows if s == 2))
    excluded = {query: (source,) for (query, _), (source, _) in zip(queries, sources, strict=True)}
    return ToyTask(_UNDERSCORE, (*_texts(ids, grid), *sources), queries, gold, pooled, excluded)


def _writing() -> ToyTask:
    """Quotes in ids, and one to three snippets of the query's own post, which are excluded."""
    topic = toy_texts.WRITING
    grid = topic.grid()
    ids = _ids(len(grid), ('blog/"post" 1', "blog/it's post 2", "journal d'été/3"), "blog/post {}")
    queries = tuple((f"post {t}/snippet 0", theme.query) for t, theme in enumerate(topic.themes))
    own = {query: tuple(f"post {t}/snippet {n + 1}" for n in range(1 + t % 3)) for t, (query, _) in enumerate(queries)}
    posts = tuple((doc, f"{text} Part {doc[-1]}.") for query, text in queries for doc in own[query])
    gold = tuple((queries[t][0], doc, 1) for doc, (t, _, _, _) in zip(ids, grid, strict=True))
    return ToyTask(_HYPHEN, (*_texts(ids, grid), *posts), queries, gold, None, own)


def _congress() -> ToyTask:
    """Exactly one gold passage for each query, worded plainly for every other one, and a duplicate passage."""
    topic = toy_texts.CONGRESS
    grid = topic.grid()
    ids = tuple(f"CHRG-116hhrg{41317 + t}_p{s + 1:04d}_{9 + plain:02d}" for t, s, plain, _ in grid)
    wanted = [(t, t % len(topic.subjects), t % 2 == 0) for t in range(len(topic.themes))]
    place = {row[:3]: doc for doc, row in zip(ids, grid, strict=True)}
    queries = tuple((f"q{t + 1:03d}", topic.themes[t].query.format(toy_texts.CONGRESS_HINTS[s])) for t, s, _ in wanted)
    gold = tuple((query, place[key], 1) for (query, _), key in zip(queries, wanted, strict=True))
    twin = (("CHRG-116hhrg41399_p0001_01", grid[-1][3]),)
    return ToyTask(_UNDERSCORE, (*_texts(ids, grid), *twin), queries, gold)


_BUILDERS: dict[str, Callable[[], ToyTask]] = {
    "descriptive/twitter": _twitter,
    "descriptive/wildchat": _wildchat,
    "analogues/math": _math,
    "analogues/writing": _writing,
    "tip-of-tongue/congress": _congress,
}
TASKS = tuple(_BUILDERS)
"""The folders of the five subsets in the official repository, in the benchmark's order."""


def _ids(count: int, special: tuple[str, ...], pattern: str) -> tuple[str, ...]:
    return (*special, *(pattern.format(n) for n in range(len(special), count)))


def _texts(ids: Iterable[str], grid: Iterable[tuple[int, int, bool, str]]) -> Texts:
    return tuple((doc, row[3]) for doc, row in zip(ids, grid, strict=True))


def _write_jsonl(path: Path, rows: Texts) -> None:
    lines = (json.dumps({"_id": key, "text": text}, ensure_ascii=False) + "\n" for key, text in rows)
    path.write_text("".join(lines), encoding="utf-8")


def _write_tsv(path: Path, header: tuple[str, str, str], rows: Qrels) -> None:
    lines = ["\t".join(header), *(f"{query}\t{doc}\t{grade}" for query, doc, grade in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _mirror_tables(toy: ToyTask) -> dict[str, dict[str, list[Any]]]:
    """Return the columns of each table of the mirror, by the ending of its config's name."""
    judged = toy.gold if toy.pooled is None else toy.pooled
    tables: dict[str, dict[str, list[Any]]] = {
        "corpus": {"id": [doc for doc, _ in toy.corpus], "text": [text for _, text in toy.corpus]},
        "queries": {"id": [query for query, _ in toy.queries], "text": [text for _, text in toy.queries]},
        "qrels": {name: [row[at] for row in judged] for at, name in enumerate(_HYPHEN)},
    }
    if toy.excluded is not None:
        others = [[doc for doc, _ in toy.corpus if doc not in out] for out in toy.excluded.values()]
        tables["top_ranked"] = {"query-id": list(toy.excluded), "corpus-ids": others}
    return tables


def _write_parquet(path: Path, columns: dict[str, list[Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
