"""Exact top-k against a full sort."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from obliq_models import search


def slow(scores: np.ndarray, k: int, excluded: list[np.ndarray], floor: float) -> list[list[tuple[int, float]]]:
    """Sort everything, best score first and then lower column first; drop what is excluded; cut."""
    answers = []
    for row, barred in zip(scores, excluded, strict=True):
        ranked = sorted(range(len(row)), key=lambda column: (-row[column], column))
        kept = [column for column in ranked if column not in set(barred.tolist()) and row[column] > floor]
        answers.append([(column, float(row[column])) for column in kept[:k]])
    return answers


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, int, list[np.ndarray], float]:
    rows, width = draw(st.integers(1, 4)), draw(st.integers(1, 30))
    values = st.sampled_from([0.0, -0.0, 1.0, 1.0000001, 0.5, -2.0, float("-inf")])
    scores = draw(arrays(np.float32, (rows, width), elements=values.map(lambda v: float(np.float32(v)))))
    columns = st.lists(st.integers(0, width - 1), max_size=width)
    excluded = [np.array(draw(columns), np.int64) for _ in range(rows)]
    return scores, draw(st.integers(1, 35)), excluded, draw(st.sampled_from([-np.inf, 0.0, 1.0]))


@settings(max_examples=300, deadline=None)
@given(cases())
def test_top_k_equals_a_full_sort(case: tuple[np.ndarray, int, list[np.ndarray], float]) -> None:
    scores, *rest = case
    expected = slow(scores.copy(), *rest)
    found = search.top_k(scores, *rest)
    assert [list(zip(c.tolist(), s.tolist(), strict=True)) for c, s in found] == expected


def test_ties_at_the_cut_take_the_lower_columns() -> None:
    # 2,000 equal scores and one better: torch's own choice among the equals is arbitrary.
    scores = np.ones((1, 2000), np.float32)
    scores[0, 1234] = 2
    ((columns, values),) = search.top_k(scores, 4)
    assert columns.tolist() == [1234, 0, 1, 2]
    assert values.tolist() == [2, 1, 1, 1]


def test_excluded_documents_leave_before_the_cut() -> None:
    ((columns, _),) = search.top_k(np.array([[0.9, 0.8, 0.7]], np.float32), 2, [np.array([0, 1])])
    assert columns.tolist() == [2]


@pytest.mark.parametrize("k", [0, 1, 5])
def test_nothing_left_is_an_empty_answer(k: int) -> None:
    ((columns, values),) = search.top_k(np.array([[1.0, 2.0]], np.float32), k, [np.array([0, 1])])
    assert columns.tolist() == []
    assert values.dtype == np.float32
    assert [c.tolist() for c, _ in search.top_k(np.zeros((2, 0), np.float32), k)] == [[], []]


def test_products_in_blocks_equal_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "BLOCK", 10)  # three queries over five documents: two at a time
    queries, documents = torch.randn(3, 4), torch.randn(5, 4)
    blocks = list(search.products(queries, documents))
    assert [len(block) for block in blocks] == [2, 1]
    torch.testing.assert_close(torch.cat(blocks), queries @ documents.T)
