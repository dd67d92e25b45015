"""The toy repositories have the layout of the official data, and each of its quirks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from obliq_eval.demo.toy import TASKS, ToyTask, mirror_repo, official_repo, toy_task, write_official

if TYPE_CHECKING:
    from pathlib import Path

POOLED = {"descriptive/twitter", "descriptive/wildchat", "analogues/math"}
EXCLUDING = {"analogues/math", "analogues/writing"}


def test_official_layout(tmp_path: Path) -> None:
    repo = official_repo(tmp_path)
    expected = {"README.md"}
    for task in TASKS:
        names = ["corpus/corpus.jsonl", "queries+qrels/queries.jsonl", "queries+qrels/qrels.tsv"]
        names += ["queries+qrels/qrels_pool.tsv"] * (task in POOLED)
        names += ["queries+qrels/per_query_excluded_ids.json"] * (task in EXCLUDING)
        expected |= {f"{task}/{name}" for name in names}
    assert set(repo.files()) == expected
    assert (repo.kind, repo.repo_id) == ("dataset", "dianetc/OBLIQ-Bench")
    assert repo.revision == "4ebee29f68ceeb62ca00bd73d5478acdd3cd7764"


@pytest.mark.parametrize("task", TASKS)
def test_files_hold_the_task_verbatim(tmp_path: Path, task: str) -> None:
    """Read back by the plainest means: JSON by line, and TSV split on tabs alone."""
    write_official(tmp_path, task)
    toy = toy_task(task)
    rest = tmp_path / "queries+qrels"

    def jsonl(path: Path) -> tuple[tuple[str, str], ...]:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
        return tuple((row["_id"], row["text"]) for row in rows)

    def tsv(path: Path) -> tuple[tuple[str, ...], tuple[tuple[str, str, int], ...]]:
        head, *rows = [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
        return tuple(head), tuple((query, doc, int(grade)) for query, doc, grade in rows)

    assert jsonl(tmp_path / "corpus" / "corpus.jsonl") == toy.corpus
    assert jsonl(rest / "queries.jsonl") == toy.queries
    assert tsv(rest / "qrels.tsv") == (toy.header, toy.gold)
    if toy.pooled is not None:
        assert tsv(rest / "qrels_pool.tsv") == (toy.header, toy.pooled)
    if toy.excluded is not None:
        stored = json.loads((rest / "per_query_excluded_ids.json").read_text(encoding="utf-8"))
        assert stored == {query: list(docs) for query, docs in toy.excluded.items()}


@pytest.mark.parametrize("task", TASKS)
def test_size_and_soundness(task: str) -> None:
    toy = toy_task(task)
    docs = [doc for doc, _ in toy.corpus]
    queries = [query for query, _ in toy.queries]
    assert 30 <= len(docs) <= 60
    assert 6 <= len(queries) <= 10
    assert len(set(docs)) == len(docs)
    assert len(set(queries)) == len(queries)
    for judged in (toy.gold, toy.pooled or ()):
        pairs = [(query, doc) for query, doc, _ in judged]
        assert len(set(pairs)) == len(pairs)
        assert {query for query, _ in pairs} <= set(queries)
    assert {doc for out in (toy.excluded or {}).values() for doc in out} <= set(docs)
    if toy.pooled is not None:
        assert set(toy.gold) < set(toy.pooled)


def missing(toy: ToyTask) -> set[str]:
    """Return the judged documents that the corpus lacks."""
    return {doc for _, doc, _ in toy.pooled or toy.gold} - {doc for doc, _ in toy.corpus}


def duplicates(toy: ToyTask) -> int:
    """Return how many documents repeat the text of an earlier one."""
    return len(toy.corpus) - len({text for _, text in toy.corpus})


def test_both_headers_occur() -> None:
    assert {toy_task(task).header for task in TASKS} == {
        ("query-id", "corpus-id", "score"),
        ("query_id", "corpus_id", "score"),
    }


def test_twitter_quirks() -> None:
    toy = toy_task("descriptive/twitter")
    docs = {doc for doc, _ in toy.corpus}
    assert {"007", "7", "1e3", "1000", "-5"} <= docs
    assert {"01", "2"} <= {query for query, _ in toy.queries}
    assert missing(toy) == {"404404"}
    assert duplicates(toy) == 1
    judged = {query for query, _, _ in toy.pooled or ()}
    assert [query for query, _ in toy.queries if query not in judged] == ["6"]


def test_wildchat_quirks() -> None:
    toy = toy_task("descriptive/wildchat")
    docs = {doc for doc, _ in toy.corpus}
    assert {"conv 1/turn 2", "conversación/é 3", "Gespräch 4"} <= docs
    assert [doc for doc, text in toy.corpus if not text] == ["empty 0"]
    assert missing(toy) == {"gone/turn 9"}
    assert duplicates(toy) == 18  # 6 themes x 3 subjects, the plain wording of each


def test_math_quirks() -> None:
    toy = toy_task("analogues/math")
    assert {grade for _, _, grade in toy.gold} == {2}
    assert {grade for _, _, grade in toy.pooled or ()} == {1, 2}
    assert {len(out) for out in (toy.excluded or {}).values()} == {1}
    both = [(query, doc) for query, doc, _ in toy.gold if doc in (toy.excluded or {})[query]]
    assert both == [("putnam___1980___A0/B0", "putnam___1980___A0/B0 (source)")]
    assert any("/" in doc and "___" in doc for doc, _ in toy.corpus)
    assert any("ç" in doc for doc, _ in toy.corpus)


def test_writing_quirks() -> None:
    toy = toy_task("analogues/writing")
    assert toy.pooled is None
    assert [len(out) for out in (toy.excluded or {}).values()] == [1, 2, 3, 1, 2, 3, 1]
    assert {'blog/"post" 1', "blog/it's post 2"} <= {doc for doc, _ in toy.corpus}


def test_congress_quirks() -> None:
    toy = toy_task("tip-of-tongue/congress")
    assert (toy.pooled, toy.excluded) == (None, None)
    assert [query for query, _, _ in toy.gold] == [query for query, _ in toy.queries]
    assert toy.queries[0][0] == "q001"
    assert "CHRG-116hhrg41317_p0001_09" in {doc for doc, _ in toy.corpus}
    assert duplicates(toy) == 1


@pytest.mark.parametrize("task", TASKS)
def test_bm25_finds_something_but_not_everything(task: str) -> None:
    import bm25s

    toy = toy_task(task)
    index = bm25s.BM25()
    index.index(bm25s.tokenize([text for _, text in toy.corpus], show_progress=False), show_progress=False)
    found = wanted = 0
    for query, text in toy.queries:
        scores = index.get_scores(bm25s.tokenize([text], return_ids=False, show_progress=False)[0])
        out = (toy.excluded or {}).get(query, ())
        ranked = sorted(zip(scores, (doc for doc, _ in toy.corpus), strict=True), reverse=True)
        top = [doc for score, doc in ranked if score > 0 and doc not in out][:10]
        gold = {doc for judged, doc, _ in toy.gold if judged == query}
        found += len(gold & set(top))
        wanted += len(gold)
    assert 0.3 * wanted < found < 0.7 * wanted


def test_unknown_subset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no subset 'writing'; there are .*analogues/writing"):
        write_official(tmp_path, "writing")


def test_same_bytes_each_time(tmp_path: Path) -> None:
    for build in (official_repo, mirror_repo):
        one, two = build(tmp_path / build.__name__ / "1"), build(tmp_path / build.__name__ / "2")
        first = {name: path.read_bytes() for name, path in one.files().items()}
        assert first == {name: path.read_bytes() for name, path in two.files().items()}
