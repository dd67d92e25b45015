"""Mini-Congress: every recollection is oblique, has one gold passage, and was solved by readers."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from statistics import fmean, median

import pytest

from obliq_eval.analyses.obliqueness import content_words, coverage, jaccard
from obliq_eval.data.sources import MINI_FOLDER, load
from obliq_eval.metrics import score
from obliq_eval.run_files import read_run

FOLDER = MINI_FOLDER / "congress"
RUNS = Path(__file__).resolve().parent.parent / "leaderboards" / "mini"
SHARED_RUN = 4  # words in a row
# Ordinary words of the recollections that the addresses hold with a capital alone: in a name (Green, Rush, the Kingdom
# of Italy), in a title, or at the start of a sentence.
NO_NAMES = frozenset(
    re.findall(
        r"\w+",
        """
        author ball beach dole emperor ferry green growers halfway hook invisible isles justices kingdom midnight moms
        mosquito palace parade patch punishments rush speaker tycoon ups wow
        """,
    )
)
# The first year of the later of two speakers of one surname.
LATER_NAMESAKE = {"Adams": 1825, "Bush": 2001, "Johnson": 1963, "Roosevelt": 1933}


def words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", text.lower())


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    rows = map(json.loads, (FOLDER / "corpus" / "corpus.jsonl").read_text("utf-8").splitlines())
    return {row["_id"]: row["text"] for row in rows}


@pytest.fixture(scope="module")
def readings() -> list[dict[str, object]]:
    return [json.loads(line) for line in (FOLDER / "reading.jsonl").read_text("utf-8").splitlines()]


def test_content_words_are_long_alphabetic_and_no_stopwords() -> None:
    """Short words ("the", "war"), stopwords ("with") and numbers ("1964") do not count."""
    assert content_words("The war, and PEACE with 1964's heirs") == {"peace", "heirs"}
    assert coverage("peace heirs treaty mountain", "Heirs of peace") == 0.5
    assert coverage("of the", "of the") == 0.0
    assert jaccard("peace heirs", "peace treaty") == 1 / 3


def test_every_recollection_has_one_passage_of_its_own() -> None:
    data = load("OBLIQ-Mini-Congress")
    golds = [document for _, document, _ in data.gold.pairs()]
    assert len(data.queries) == len(golds) == len(set(golds)) >= 150
    assert set(golds) <= set(data.corpus.documents["id"])
    assert data.pooled is None
    assert set(data.groups) == set(data.queries)


def test_recollections_share_little_with_their_passage(texts: dict[str, str]) -> None:
    data = load("OBLIQ-Mini-Congress")
    shares = [coverage(data.queries[q], texts[d]) for q, d, _ in data.gold.pairs()]
    assert fmean(shares) <= 0.15
    assert round(fmean(shares), 3) == 0.082
    assert max(shares) <= 0.25


def test_recollections_hold_no_phrase_name_or_date(texts: dict[str, str]) -> None:
    data = load("OBLIQ-Mini-Congress")
    for query, document, _ in data.gold.pairs():
        text, source = words(data.queries[query]), f" {' '.join(words(texts[document]))} "
        runs = {" ".join(text[i : i + SHARED_RUN]) for i in range(len(text) - SHARED_RUN + 1)}
        assert not [run for run in runs if f" {run} " in source], query
        assert not re.findall(r"\d", data.queries[query]), query
        inside = re.findall(r"(?<![.!?]) \W*([A-Z]\w+)", data.queries[query])
        assert not inside, query


def test_recollections_hold_no_name_at_the_start_of_a_sentence_or_in_lower_case(texts: dict[str, str]) -> None:
    """A word that the addresses never write in lower case may be a name; the ordinary ones are listed."""
    written = {word for text in texts.values() for word in re.findall(r"[^\W\d_]+", text)}
    names = {word.lower() for word in written if word[0].isupper()} - {word for word in written if word[0].islower()}
    assert {"lincoln", "cuba", "washington"} <= names
    used = {word for query in load("OBLIQ-Mini-Congress").queries.values() for word in words(query)}
    assert used & names == NO_NAMES


def test_readers_found_the_passage_in_at_least_four_of_five_cases(
    texts: dict[str, str], readings: list[dict[str, object]]
) -> None:
    gold = {q: d for q, d, _ in load("OBLIQ-Mini-Congress").gold.pairs()}
    assert {reading["_id"] for reading in readings} == gold.keys()
    for reading in readings:
        pool = reading["pool"]
        assert isinstance(pool, list)
        assert len(set(pool)) == 20
        assert set(pool) <= texts.keys()
        assert gold[str(reading["_id"])] in pool
    right = [reading["answer"] == gold[str(reading["_id"])] for reading in readings]
    assert fmean(right) >= 0.8
    assert sum(right) == 170


def test_pools_are_the_gold_passage_and_the_nearest_others_in_the_order_of_a_hash(
    readings: list[dict[str, object]],
) -> None:
    gold = {q: d for q, d, _ in load("OBLIQ-Mini-Congress").gold.pairs()}
    run = read_run(RUNS / "minilm" / "OBLIQ-Mini-Congress" / "run.parquet")
    for reading in readings:
        query = str(reading["_id"])
        others = [document for document in run.rankings[query].documents if document != gold[query]]
        pool = {gold[query], *others[:19]}
        assert reading["pool"] == sorted(pool, key=lambda d: hashlib.sha256(f"{query}/{d}".encode()).hexdigest())


# --- what the card prints


@pytest.fixture(scope="module")
def card() -> str:
    return (FOLDER / "README.md").read_text("utf-8")


def row(card: str, start: str) -> str:
    """Return the second cell of the one table row that starts so."""
    (found,) = [line for line in card.splitlines() if line.startswith(f"| {start} |")]
    return found.strip("|").split("|")[1].strip()


def printed(*values: float) -> str:
    return " / ".join(f"{value:.3f}".removeprefix("0") for value in values)


def test_card_counts_of_the_corpus(card: str, texts: dict[str, str]) -> None:
    lengths = [len(text) for text in texts.values()]
    size = f"{min(lengths):,}\N{EN DASH}{max(lengths):,} characters, mean {fmean(lengths):,.0f}"
    assert row(card, "documents") == f"{len(texts):,} ({size})"
    with (FOLDER / "provenance.tsv").open(encoding="utf-8", newline="") as stream:
        speeches = {line["corpus-id"]: line["speech"].split("-") for line in csv.DictReader(stream, delimiter="\t")}
    assert speeches.keys() == texts.keys()
    addresses = Counter((surname, int(year)) for year, surname, _ in speeches.values())
    assert row(card, "addresses") == f"{len(addresses)} (a person and a year), at most five passages each"
    assert max(addresses.values()) == 5
    persons = {(surname, year >= LATER_NAMESAKE.get(surname, year + 1)) for surname, year in addresses}
    assert row(card, "persons") == str(len(persons))
    years = [year for _, year in addresses]
    assert f"addresses to Congress, {min(years)}\N{EN DASH}{max(years)}." in card
    lines = (MINI_FOLDER / "writing" / "corpus" / "corpus.jsonl").read_text("utf-8").splitlines()
    both = {json.loads(line)["text"] for line in lines} & set(texts.values())
    assert f"{len(both)} of the passages are in Mini-Writing too." in card


def test_card_figures_of_the_recollections(card: str, texts: dict[str, str]) -> None:
    data = load("OBLIQ-Mini-Congress")
    lengths = [len(query) for query in data.queries.values()]
    assert (
        f"{len(lengths)} recollections of {min(lengths)}\N{EN DASH}{max(lengths)} characters, each of another passage"
        in card
    )
    own = [coverage(data.queries[q], texts[d]) for q, d, _ in data.gold.pairs()]
    start = "share of a recollection's content words that its passage holds (mean / median / most)"
    assert row(card, start) == printed(fmean(own), median(own), max(own))
    passages = [content_words(text) for text in texts.values()]
    recollections = [content_words(query) for query in data.queries.values()]
    shares = [len(words & passage) / len(words) for words in recollections for passage in passages]
    pairs = f"{len(recollections)} \N{MULTIPLICATION SIGN} {len(passages):,} pairs"
    assert row(card, f"the same share over all passages (mean of {pairs})") == printed(fmean(shares))


def test_card_figures_of_the_reading(card: str, readings: list[dict[str, object]]) -> None:
    each, rest = divmod(len(readings), 5)
    assert rest == 0
    assert re.search(rf"Five readers, .* got {each} recollections each\.", card)
    assert f"All {len(readings)} choices were right." in card  # the readings themselves are checked above
    assert all(reading["sure"] in range(4) for reading in readings)
    assert "how sure the reader was (0\N{EN DASH}3)" in card
    assert "SHA-256 of `recollection/passage`" in card


@pytest.mark.parametrize(
    ("start", "system"),
    [
        ("BM25 (`bm25`)", "bm25"),
        ("all-MiniLM-L6-v2, 256 tokens (`minilm`)", "minilm"),
        ("`stylometry`", "stylometry"),
    ],
)
def test_card_scores(card: str, start: str, system: str) -> None:
    measures = ["ndcg@10", "recall@10", "recall@100"]
    run = read_run(RUNS / system / "OBLIQ-Mini-Congress" / "run.parquet")
    means = score(run, load("OBLIQ-Mini-Congress").gold, measures).known()
    assert "| NDCG@10 / Recall@10 / Recall@100 |" in card
    assert row(card, start) == printed(*(means[measure] for measure in measures))
