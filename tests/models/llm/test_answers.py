"""Whatever a model writes becomes a permutation, a valid selection, or no answer; CASES are worked out here."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from obliq_models.llm.answers import (
    Reading,
    fits,
    ranking,
    ranking_schema,
    read_object,
    read_ranking,
    read_selection,
    selection,
    selection_schema,
    visible,
)

REST = list(range(4, 21))
AFTER_3_1 = [3, 1, 2, *REST]

PIECES = st.sampled_from(
    ["[3]", "[1]", "[99]", " > ", ", ", "\n", "2", "20", '{"ranking": [', '{"selection": [', "]", "}", "<think>",
     "</think>", "```json\n", "```", '"', "\\", "\\frac{a}{b}", "of the 20 passages", ":", ".", "null", "1e400",
     "NaN", "{", "[", "٣"]
)  # fmt: skip
TEXTS = st.one_of(st.text(), st.lists(PIECES, max_size=25).map("".join))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[3] > [1]", AFTER_3_1),
        ("[3] > [3] > [99]", [3, 1, 2, *REST]),
        ("Of the 20 passages: [2] > [1]", [2, 1, 3, *REST]),
        ("", None),
        ('{"ranking": [3, 1', None),
        ('{"ranking": [3, 1], "why": "the thi', None),
        ("<think>[5] > [4] or so</think>[3] > [1]", AFTER_3_1),
        ("<think>[5] > [4] or so", None),
        ("[5] > [4] or so</think>[3] > [1]", AFTER_3_1),
        ("<think>a</think>[5] > [4]<think>no, </think>[3] > [1]", AFTER_3_1),
        ("<think>a</think>[5] > [4]<think>no, [3]", None),
    ],
)
def test_case_14(text: str, expected: list[int] | None) -> None:
    """The situations that broke other tools."""
    assert ranking(text, 20) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"ranking": [3, 1, 2]}', [3, 1, 2]),
        ('Here it is:\n```json\n{"ranking": [3, 1, 2]}\n```\nI hope it helps.', [3, 1, 2]),
        ('{"ranking": ["3", "[1]", 2.0]}', [3, 1, 2]),
        ('{"ranking": "[3] > [1] > [2]"}', [3, 1, 2]),
        ('{"why": "a {set} of \\\\{x\\\\}", "ranking": [3, 1, 2]}', [3, 1, 2]),
        ('{"why": "$\\alpha \\in \\mathbb{R}$", "ranking": [3, 1, 2]}', [3, 1, 2]),
        ('First {"ranking": [1, 2, 3]}, but on reflection {"ranking": [3, 1, 2]}', [3, 1, 2]),
        ("[3, 1, 2]", [3, 1, 2]),
        ("My ranking: [3, 1, 2].", [3, 1, 2]),
        ("3 > 1 > 2", [3, 1, 2]),
        ("Ranking: 3 > 1 > 2.", [3, 1, 2]),
        ("[3], [1], [2]", [3, 1, 2]),
        ("1. [3]\n2. [1]\n3. [2]", [3, 1, 2]),
        ("[3]", [3, 1, 2]),
        ("I read [1] and [2] first. [3] > [1] = [2]", [3, 1, 2]),
        ("[0] > [3] > [1]", [3, 1, 2]),
        ("Document 3 is the best of the 20, then 1.", None),
        ("Since 5 > 3, passage 2 loses.", None),
        ("I cannot decide between [1] and [2].", None),
        ("[99] > [98]", None),
        ('{"ranking": []}', None),
        ('{"ranking": [true, null]}', None),
        ('{"ranking": {"3": 1}}', None),
        ('{"scores": [3, 1, 2]}', None),
        ('{"notes": "[3] > [1]"}', None),
        ("[[3]]", None),
        ("no numbers", None),
    ],
)
def test_forms(text: str, expected: list[int] | None) -> None:
    """Forms that models use, and prose that is none of them."""
    assert ranking(text, 3) == expected


def test_what_was_repaired_is_told() -> None:
    """3 twice, 99 and 98 unknown, 2 and 4 missing."""
    assert read_ranking("[3] > [3] > [99] > [1] > [98]", 4) == Reading((3, 1, 2, 4), unknown=2, repeated=1, added=2)
    assert not Reading((1,)).repaired
    clean = read_ranking('{"ranking": [2, 1]}', 2)
    assert clean is not None
    assert not clean.repaired


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"selection": [4, 2]}', [4, 2]),
        ('{"selection": [4, 2, 1]}', [4, 2]),
        ('{"selection": [4, 4, 9, 2]}', [4, 2]),
        ('{"selection": [4]}', None),
        ('{"ranking": [4, 2]}', None),
        ("[4] > [2]", [4, 2]),
        ("[4], [2]", [4, 2]),
        ("", None),
    ],
)
def test_selections(text: str, expected: list[int] | None) -> None:
    """Two of five: too many are cut, too few are no answer."""
    assert selection(text, 5, 2) == expected


def test_selection_says_what_was_dropped() -> None:
    assert read_selection('{"selection": [4, 4, 9, 2, 1]}', 5, 2) == Reading((4, 2), unknown=1, repeated=1, added=1)


@given(TEXTS, st.integers(1, 25))
@settings(max_examples=400, deadline=None)
@example("{" * 3000 + '"a":', 3)
@example('{"a":' * 3000, 3)
@example("[" * 5000, 3)
@example('{"ranking": [' + "9" * 5000 + "]}", 3)
@example("\ud800[2] > [1]", 2)
def test_every_text_is_read_or_is_no_answer(text: str, n: int) -> None:
    found = ranking(text, n)
    assert found is None or sorted(found) == list(range(1, n + 1))
    for m in range(1, n + 1):
        chosen = selection(text, n, m)
        assert chosen is None or (len(chosen) == m == len(set(chosen)) and set(chosen) <= set(range(1, n + 1)))
    assert isinstance(fits(text, ranking_schema(n)), bool)
    assert read_object(text, "a") is None or "a" in (read_object(text, "a") or {})


@given(st.permutations(list(range(1, 12))), st.text())
def test_every_proper_answer_is_read_as_it_stands(order: list[int], why: str) -> None:
    """As JSON beside any other field, and as a chain after any thinking."""
    assert ranking(json.dumps({"why": why, "ranking": order}), 11) == order or "think>" in why
    assert ranking(f"<think>{why}</think>" + " > ".join(f"[{number}]" for number in order), 11) == order


def test_a_closed_thought_inside_a_field_counts_as_thinking() -> None:
    """What stands before `</think>` is gone, wherever the tag stands: half an object is no answer."""
    assert ranking('{"why": "</think>", "ranking": [2, 1]}', 2) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'{"query": "\alpha and \frac{1}{2}"}', r"\alpha and \frac{1}{2}"),
        (r'{"query": "\\alpha and \\frac{1}{2}"}', r"\alpha and \frac{1}{2}"),
        (r'{"query": "\theta \nu \rho \beta \times \to"}', r"\theta \nu \rho \beta \times \to"),
        (r'{"query": "one\ntwo\tthree \"four\" \u00e9"}', 'one\ntwo\tthree "four" é'),
        (r'{"query": "\underline{x}"}', r"\underline{x}"),
        (r'{"query": "first\nnotes\tthen\rrest"}', "first\nnotes\tthen\rrest"),
        ('{"query": "two\nlines"}', "two\nlines"),
    ],
)
def test_latex_survives_json(text: str, expected: str) -> None:
    """Single backslashes are LaTeX's, doubled ones were right, and real escapes stay what they are."""
    assert read_object(text, "query") == {"query": expected}


def test_objects() -> None:
    """The last object that has the keys; fences, prose and LaTeX's braces do not matter."""
    assert read_object('{"a": 1} then {"a": 2, "b": {"a": 3}} \\frac{x}{y}', "a") == {"a": 2, "b": {"a": 3}}
    assert read_object('<think>{"a": 1}</think>', "a") is None
    assert read_object('```\n{"a": 1}\n```', "a", "b") is None


def test_thinking() -> None:
    assert visible("<think>x</think> y ") == "y"
    assert visible("x</THINK>y") == "y"
    assert visible("<think>x") is None
    assert visible(" y ") == "y"


def test_an_ignored_schema_is_noticed() -> None:
    schema = ranking_schema(2)
    assert fits('{"ranking": [2, 1]}', schema)
    assert fits('<think>x</think>```json\n{"ranking": [2, 1]}\n```', schema)
    assert not fits('{"order": [2, 1]}', schema)
    assert not fits("[2] > [1]", schema)
    assert not fits('Sure: {"ranking": [2, 1]}', schema)


def test_schemas() -> None:
    assert selection_schema(4)["properties"]["selection"]["maxItems"] == 4
    assert ranking_schema(20)["required"] == ["ranking"]


@pytest.mark.parametrize(
    "piece", [" ", "\n", "[1]\n", ":", "{", '{"a":', "```\n", "1 >\n", ", ", "\\", "1. ", "<think"]
)
def test_long_answers_end(piece: str) -> None:
    """Repetition without end is a known failure of small models: even a megabyte of it is read in no time."""
    found = ranking("a" + piece * (1_000_000 // len(piece)) + "a", 20)
    assert found == (list(range(1, 21)) if piece == "[1]\n" else None)
