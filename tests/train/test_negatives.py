"""BM25 negatives: what may never be one, which ranks they come from, and what is said when there are too few."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import datasets
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obliq_eval.edges import Edge
from obliq_eval.errors import UserError
from obliq_train import negatives, pairs
from obliq_train.distinct import Distinct
from obliq_train.negatives import Miner, Ranks, Wanted
from obliq_train.pairs import Reader, kind_of, read_descriptions, with_negatives
from obliq_train.rows import Passage, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def table(texts: Mapping[str, str]) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"id": list(texts), "text": list(texts.values())})


def steps(count: int) -> dict[str, str]:
    """Documents that hold the word whale 1 to `count` times in as many words: BM25 ranks d1 last."""
    return {f"d{i:02d}": " ".join(["whale"] * i + ["filler"] * (count - i)) for i in range(1, count + 1)}


def mine(
    texts: Mapping[str, str], *wanted: Wanted, ranks: Ranks | None = None, edges: Iterable[Edge] = ()
) -> list[tuple[str, ...]]:
    return list(Miner(table(texts), edges).mine(wanted, ranks))


MINING = {
    "p1": "whales sing in the cold sea",
    "p2": "whales sing of the cold sea at night",
    "copy": "  whales sing in the   cold sea ",
    "n1": "whales sing",
    "n2": "whales",
    "source": "whales whales sing sing in the cold cold sea sea",
    "other": "mountains",
}


def test_case_16_positives_and_their_copies_are_never_negatives() -> None:
    """CASES 16: positives p1, p2, and p1's text under another id: none of the three becomes a negative."""
    miner = Miner(table(MINING))
    [found] = miner.mine([Wanted("row", "whales sing in the cold sea", ("p1", "p2", "source"))])
    assert found == ("n1", "n2")
    assert miner.counts["rows with fewer negatives than asked for"] == 1
    assert miner.counts["negatives that are missing"] == 2


def test_case_16_written_positives_are_found_by_their_texts() -> None:
    row = Wanted("row", "whales sing in the cold sea", texts=(MINING["p1"], MINING["p2"], "not in the corpus"))
    assert mine(MINING, row) == [("source", "n1", "n2")]


def test_case_16_scored_from_the_text_that_the_recipe_names(tmp_path: Path) -> None:
    """A synthetic row is scored from its query, a graph row from d'; either way a setting."""
    texts = {"d": "about boats", "d'": "about whales", "w": "whales again", "b": "boats again", "q": "query again"}
    held = Distinct(table(texts))
    file = tmp_path / "synthetic.jsonl"
    file.write_text(json.dumps({"document": "d", "query": "query", "description": "boats"}) + "\n", "utf-8")
    edges = [Edge("d", "d'", 1)]

    def of(kind: pairs.Kind, scored: pairs.Scored | None = None) -> tuple[str, ...]:
        reader = Reader(held)
        rows = reader.synthetic(file) if kind == "synthetic" else reader.edges(edges, {"d": "query"})
        [row] = with_negatives(rows, Miner(held, edges), scored or pairs.SCORED[kind], Ranks(1))
        return row.negative_ids

    assert of("synthetic") == ("q",)
    assert of("edges") == ("w",)
    assert of("synthetic", "positive") == ("b",)
    assert of("edges", "query") == ("q",)


def test_case_16_a_shortage_is_reported() -> None:
    miner = Miner(table({"p": "whales", "n": "blue whales", "x": "mountains"}))
    found = list(miner.mine([Wanted("1", "whales", ("p",)), Wanted("2", "nothing"), Wanted("3", "")], Ranks(2)))
    assert found == [("n",), (), ()]
    assert dict(miner.counts) == {
        "rows": 3, "negatives": 1, "rows with fewer negatives than asked for": 3, "negatives that are missing": 5,
        "rows without a negative": 2,
    }  # fmt: skip


def test_no_neighbour_of_the_anchor_is_a_negative_whatever_its_id_is() -> None:
    """Neighbours of d5: d9 and the text of d8, which `copy` has too. The graph names the anchor by its copy."""
    texts = {**steps(9), "copy": steps(9)["d08"], "five": steps(9)["d05"]}
    edges = [Edge("five", "d09", 1), Edge("d05", "copy", 2), Edge("d01", "d07", 1)]
    row = Wanted("row", "whale", anchor="d05")
    assert mine(texts, row, edges=edges) == [("d07", "d06", "d04", "d03")]
    assert mine(texts, row) == [("d09", "d08", "d07", "d06")]


def test_of_documents_with_one_text_one_can_be_a_negative() -> None:
    """The highest id stands for the text."""
    texts = {"a": "whale song", "z": "whale song", "b": "whale", "e": ""}
    [found] = mine(texts, Wanted("row", "whale"))
    assert sorted(found) == ["b", "z"]


def test_the_first_ranks_are_skipped_after_what_is_barred() -> None:
    row = Wanted("row", "whale", ("d09",))
    assert mine(steps(9), row, ranks=Ranks(3, first=3)) == [("d06", "d05", "d04")]
    assert mine(steps(4), Wanted("row", "whale"), ranks=Ranks(3, first=3)) == [("d02", "d01")]


def test_negatives_are_drawn_from_a_range_of_ranks_by_seed_and_row() -> None:
    """Ranks 3 to 8 of d30, d29, …: d28 to d23, best first whatever was drawn."""
    miner = Miner(table(steps(30)))
    rows = [Wanted(str(i), "whale") for i in range(300)]
    found = list(miner.mine(rows, Ranks(2, 3, 8), seed=1))
    assert {document for drawn in found for document in drawn} == {f"d{i}" for i in range(23, 29)}
    assert all(first > second for first, second in found)
    assert len(set(found)) == 15  # all pairs of six
    assert list(miner.mine(rows, Ranks(2, 3, 8), seed=1)) == found
    assert list(miner.mine(rows, Ranks(2, 3, 8), seed=2)) != found
    assert list(miner.mine(rows[7:9], Ranks(2, 3, 8), seed=1)) == found[7:9]  # whatever stands beside it
    assert list(Miner(table(steps(4))).mine(rows[:1], Ranks(2, 3, 8))) == [("d02", "d01")]  # all there are


@pytest.mark.parametrize(
    ("ranks", "message"), [((0,), "0 negatives"), ((4, 0), "from rank 0"), ((4, 5, 7), "fewer than 4")]
)
def test_ranks_that_cannot_be_are_refused(ranks: tuple[int, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Ranks(*ranks)


WORDS = ["sea", "whale", "boat", "song", "night", "cold"]


def bm25(query: str, document: str, texts: list[str]) -> float:
    """Lucene's BM25 (k1 1.5, b .75), written out."""
    mean, total = sum(len(text.split()) for text in texts) / len(texts), 0.0
    for word in query.split():
        found = sum(word in text.split() for text in texts)
        tf = document.split().count(word)
        if tf:
            idf = math.log1p((len(texts) - found + 0.5) / (found + 0.5))
            total += idf * tf / (tf + 1.5 * (0.25 + 0.75 * len(document.split()) / mean))
    return total


@settings(max_examples=40, deadline=None)
@given(
    documents=st.lists(st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join), min_size=2, max_size=9),
    query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
    barred=st.sets(st.integers(0, 8), max_size=3),
    near=st.sets(st.integers(0, 8), max_size=3),
    first=st.integers(1, 3),
)
def test_negatives_equal_a_slow_oracle(
    documents: list[str], query: str, barred: set[int], near: set[int], first: int
) -> None:
    texts = {f"d{i}": text for i, text in enumerate(documents)}
    edges = [Edge("d0", f"d{i}", 1) for i in near if 0 < i < len(texts)]
    row = Wanted("row", query, tuple(f"d{i}" for i in barred), anchor="d0")
    found = mine(texts, row, ranks=Ranks(3, first), edges=edges)
    never = {texts[d] for d in (*row.barred, "d0", *(edge.neighbour for edge in edges)) if d in texts}
    left = {max(d for d in texts if texts[d] == text) for text in texts.values() if text and text not in never}
    scores = {d: bm25(query, texts[d], documents) for d in left}
    wanted = sorted((d for d in left if scores[d] > 0), key=lambda d: (round(scores[d], 5), d), reverse=True)
    assert found == [tuple(wanted[first - 1 : first + 2])]


def test_rows_stream_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(negatives, "AT_ONCE", 2)
    rows = [Wanted(str(i), f"whale{' nothing' * i}", (f"d0{9 - i}",)) for i in range(5)]
    assert [found[0] for found in Miner(table(steps(9))).mine(rows)] == ["d08", "d09", "d09", "d09", "d09"]


def test_a_row_holds_texts_ids_and_where_it_comes_from(tmp_path: Path) -> None:
    texts = {"d": "old boats", "n": "new boats", "x": "whales"}
    held = Distinct(table(texts))
    file = tmp_path / "s.jsonl"
    synthetic = {"document": "d", "query": "boats", "description": "on boats", "lens": "descriptive", "sample": 0}
    file.write_text(json.dumps(synthetic) + "\n", "utf-8")
    reader = Reader(held, "part", "Find: ", "Doc: ")
    assert list(with_negatives(reader.synthetic(file), Miner(held), "query")) == [
        Row(
            query=Passage("Find: ", "boats"),
            positives=(Passage("Doc: ", "old boats"),),
            negatives=(Passage("Doc: ", "new boats"),),
            source="part",
            query_id="d",
            positive_ids=("d",),
            negative_ids=("n",),
            more={"lens": "descriptive", "sample": 0},
        )
    ]


def test_an_edge_asks_with_a_description_or_with_the_document() -> None:
    held = Distinct(table({"d": "old boats", "e": "new boats", "f": "boats"}))
    edges = [Edge("d", "e", 1), Edge("e", "d", 2)]
    reader = Reader(held)
    asked = [pair.row.query.text for pair in reader.edges(edges, {"d": "terse"})]
    assert (asked, reader.counts["edges whose anchor has no description"]) == (["terse"], 1)
    assert [pair.row.query.text for pair in reader.edges(edges)] == ["old boats", "new boats"]
    assert [pair.row.more for pair in reader.edges(edges)] == [{"rank": 1}, {"rank": 2}]


def test_a_control_has_the_negatives_of_its_teacher() -> None:
    """The teacher's d' holds whales; the control's positive, boats, changes nothing but may be no negative itself."""
    texts = {"d": "anchor", "t": "whales", "w1": "whales one", "w2": "whales two", "c": "boats", "b": "boats again"}
    held, teacher = Distinct(table(texts)), [Edge("d", "t", 1)]

    def found(edges: list[Edge], like: list[Edge]) -> set[str]:
        [row] = with_negatives(Reader(held).edges(edges, like=like), Miner(held, teacher), "positive")
        return set(row.negative_ids)

    assert found(teacher, []) == found([Edge("d", "c", 1)], teacher) == {"w1", "w2"}
    assert found([Edge("d", "w1", 1)], teacher) == {"w2"}
    assert found([Edge("d", "c", 1)], []) == {"b"}
    with pytest.raises(UserError, match="none of rank 2 at 'd'"):
        found([Edge("d", "c", 2)], teacher)


def test_rows_are_mined_anew_and_keep_what_they_say(tmp_path: Path) -> None:
    texts = {"d": "old boats", "n": "new boats", "x": "blue boats"}
    held = Distinct(table(texts))
    file = tmp_path / "rows.jsonl"
    rows = [
        {"query": ["Find: ", "boats"], "pos": [["Doc: ", "old  boats"]], "neg": [["", "junk"]], "task": "t"},
        {"query": "boats", "pos": ["n"], "query_id": "d"},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    reader = Reader(held, "part")
    first, second = with_negatives(reader.rows(file), Miner(held), "query")
    assert (first.negative_ids, first.negatives[0]) == (("x", "n"), Passage("Doc: ", "blue boats"))
    assert (first.positives, first.more, first.source) == ((Passage("Doc: ", "old  boats"),), {"task": "t"}, "part")
    assert (second.positives, second.positive_ids, second.negative_ids) == ((Passage("", "new boats"),), ("n",), ("x",))
    assert reader.counts["negatives that were replaced"] == 1


def test_a_query_that_is_a_document_is_no_negative_of_itself(tmp_path: Path) -> None:
    held = Distinct(table({"d": "old boats", "n": "new boats", "x": "blue boats"}))
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"query": "new boats", "pos": ["old boats"]}) + "\n", "utf-8")
    [row] = with_negatives(Reader(held).rows(file), Miner(held), "query")
    assert row.negative_ids == ("x",)


def test_descriptions_whole_and_of_one_line(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    lines = [
        {"document": "d", "description": "Short, dry sentences. No\nadjectives.", "query": "q", "sample": 0},
        {"document": "d", "description": "Another.", "query": "q", "sample": 1},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    assert read_descriptions(file) == {"d": "Short, dry sentences. No\nadjectives."}
    assert read_descriptions(file, one_line=True) == {"d": "Short, dry sentences."}


def test_kinds_are_told_by_the_first_line(tmp_path: Path) -> None:
    kinds = {
        "synthetic": {"document": "d", "query": "q"},
        "edges": {"anchor": "d", "neighbour": "e", "rank": 1},
        "rows": {"query": "q", "pos": ["p"]},
    }
    for kind, line in kinds.items():
        (tmp_path / "f.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
        assert kind_of(tmp_path / "f.jsonl") == kind
    (tmp_path / "f.jsonl").write_text("[1]\n", "utf-8")
    with pytest.raises(UserError, match="neither synthetic queries nor edges nor rows"):
        kind_of(tmp_path / "f.jsonl")


def test_documents_of_another_corpus_and_broken_lines_are_refused(tmp_path: Path) -> None:
    held = Distinct(table({"d": "a", "e": "b"}))
    file = tmp_path / "s.jsonl"
    file.write_text('{"document": "z", "query": "q"}\n', "utf-8")
    with pytest.raises(UserError, match="line 1: document 'z' is not in the corpus"):
        list(Reader(held).synthetic(file))
    file.write_text('{"document": "d"}\n', "utf-8")
    with pytest.raises(UserError, match='line 1: expected an object with the texts "document" and "query"'):
        list(Reader(held).synthetic(file))
    with pytest.raises(UserError, match="'z' is not in the corpus"):
        list(Reader(held).edges([Edge("d", "z", 1)]))
    with pytest.raises(UserError, match="BM25 has no variant"):
        Miner(held, variant="stm")
