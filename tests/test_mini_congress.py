"""Mini-Congress: every recollection is oblique, has one gold passage, and was solved by readers."""

from __future__ import annotations

import json
import re
from statistics import fmean

import pytest

from obliq_eval.analyses.obliqueness import content_words, coverage, jaccard
from obliq_eval.data.sources import MINI_FOLDER, load

FOLDER = MINI_FOLDER / "congress"
SHARED_RUN = 4  # words in a row


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
        inside = re.findall(r"(?<=[a-z,;:] )[A-Z][a-z]+", data.queries[query])
        assert not inside, query


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
