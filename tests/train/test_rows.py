"""Training rows: both shapes in, one out, and nothing lost on the way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obliq_eval.errors import UserError
from obliq_train.rows import Passage, Row, read_rows, row_lines

if TYPE_CHECKING:
    from pathlib import Path

PAIRS = {"query": ["Find: ", "q"], "pos": [["", "p1"], ["Doc: ", "p2"]], "neg": [["", "n1"]]}
FLAT = {"query": "q", "pos": ["p1", "p2"], "neg": ["n1", "n2"]}


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_both_shapes_are_read_and_pairs_are_written(tmp_path: Path) -> None:
    pairs, flat = read_rows(write(tmp_path / "rows.jsonl", PAIRS, FLAT))
    assert pairs == Row(Passage("Find: ", "q"), (Passage("", "p1"), Passage("Doc: ", "p2")), (Passage("", "n1"),))
    assert flat.positives == (Passage("", "p1"), Passage("", "p2"))  # two documents, not an instruction and a document
    assert json.loads(pairs.to_json()) == PAIRS
    assert json.loads(flat.to_json()) == {
        "query": ["", "q"], "pos": [["", "p1"], ["", "p2"]], "neg": [["", "n1"], ["", "n2"]],
    }  # fmt: skip


@pytest.mark.parametrize("score", [10**400, float("inf"), float("nan"), True, "1", None])
def test_what_is_no_finite_number_is_no_score(score: object) -> None:
    told = {"query": "q", "pos": ["p"], "neg": ["n"], "scores": {"pos": [1], "neg": [score]}}
    assert Row.of(told).scores is None
    assert Row.of({**told, "scores": {"pos": [1], "neg": [-0.5]}}).scores == ([1], [-0.5])


def test_single_strings_and_a_missing_neg_are_read() -> None:
    row = Row.of({"query": ["q"], "pos": "p"})
    assert row == Row(Passage("", "q"), (Passage("", "p"),))


def test_unknown_keys_are_kept_and_known_ones_are_fields() -> None:
    more = {"task": "math", "lens": {"name": "analogue"}, "rank": 3, "none": None}
    row = Row.of({**PAIRS, "source": "part", "query_id": "d1", "pos_ids": ["a", "b"], "neg_ids": ["c"], **more})
    assert (row.source, row.query_id, row.positive_ids, row.negative_ids) == ("part", "d1", ("a", "b"), ("c",))
    assert row.more == more
    assert Row.of(json.loads(row.to_json())) == row


TEXT = st.text(max_size=8)
PASSAGES = st.lists(st.builds(Passage, TEXT, TEXT), min_size=1, max_size=3).map(tuple)
KEYS = st.dictionaries(st.sampled_from(["task", "lens", "x"]), st.none() | st.integers() | TEXT, max_size=2)


@given(query=st.builds(Passage, TEXT, TEXT), positives=PASSAGES, negatives=PASSAGES, source=TEXT, more=KEYS)
def test_what_is_written_is_read_again(
    query: Passage, positives: tuple[Passage, ...], negatives: tuple[Passage, ...], source: str, more: dict[str, Any]
) -> None:
    row = Row(query, positives, negatives, source, positive_ids=tuple("x" for _ in positives), more=more)
    [line] = row_lines([row])
    assert line.count("\n") == 1
    assert Row.of(json.loads(line)) == row


def test_documents_that_are_named_by_ids_are_resolved(tmp_path: Path) -> None:
    """Positives by id and negatives written out: the form of ReasonIR's harder rows."""
    texts = {"007": "a secret", "7": "a number"}
    file = write(
        tmp_path / "rows.jsonl",
        {"query": ["", "q"], "pos": [["Doc: ", "007"]], "neg": [["", "written out"]]},
        {"query": ["", "q"], "pos": [["", "7"], ["", "written"]], "neg": [["", "007"]]},
    )
    first, second = read_rows(file, texts)
    assert (first.positives, first.positive_ids) == ((Passage("Doc: ", "a secret"),), ("007",))
    assert (first.negatives, first.negative_ids) == ((Passage("", "written out"),), ())
    assert (second.positives, second.positive_ids) == ((Passage("", "a number"), Passage("", "written")), ())
    assert (second.negatives, second.negative_ids) == ((Passage("", "a secret"),), ("007",))
    assert [row.named(texts) for row in read_rows(file)] == [1, 2]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1], "expected an object"),
        ({"query": "q", "neg": []}, 'expected "query"'),
        ({"query": "q", "pos": []}, "no positive"),
        ({"query": 7, "pos": ["p"]}, "found 7"),
        ({"query": ["a", "b", "c"], "pos": ["p"]}, "found"),
        ({"query": "q", "pos": [["", "p", "x"]]}, "found"),
        ({"query": "q", "pos": [7]}, "found 7"),
        ({"query": "q", "pos": ["p"], "pos_ids": [7]}, '"007", not 7'),
        ({"query": "q", "pos": ["p"], "pos_ids": ["a", "b"]}, '"pos_ids" has 2 ids for 1 documents'),
        ({"query": "q", "pos": ["p"], "neg_ids": ["a"]}, '"neg_ids" has 1 ids for 0 documents'),
        ({"query": "q", "pos": ["\ud800"]}, "not a JSON object"),
        ({"query": "q", "pos": ["p"], "source": 7}, '"source" must be a string'),
    ],
)
def test_what_is_no_row_is_refused_with_its_line(row: object, message: str, tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", FLAT, row)
    with pytest.raises(UserError, match="line 2") as told:
        list(read_rows(file))
    assert message in str(told.value)


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"query": "q", "pos": ["p"', "utf-8")
    with pytest.raises(UserError, match="line 1: not a JSON object; is the file cut off"):
        list(read_rows(tmp_path / "rows.jsonl"))
