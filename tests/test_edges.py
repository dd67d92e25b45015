"""Edge files in their forms, and what is refused with its line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obliq_eval.edges import Edge, edge_lines, read_edges
from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

EDGES = (Edge("007", "7", 1), Edge("007", "a b/c", 2), Edge("é\u2028x", "7", 1))


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "e.jsonl"
    file.write_text("".join(edge_lines(EDGES)), "utf-8")
    assert read_edges(file) == EDGES
    assert file.read_text("utf-8").split("\n")[0] == '{"anchor": "007", "neighbour": "7", "rank": 1}'


@pytest.mark.parametrize("header", ["", "anchor\tneighbour\trank\n"])
def test_tsv_with_and_without_a_header_and_ranks(header: str, tmp_path: Path) -> None:
    file = tmp_path / "e.tsv"
    file.write_text(header + "".join(f"{a}\t{b}\t{r}\n" for a, b, r in EDGES), "utf-8")
    assert read_edges(file) == EDGES
    file.write_text("a\tb\nc\ta\na\tc\n", "utf-8")
    assert read_edges(file) == (Edge("a", "b", 1), Edge("c", "a", 1), Edge("a", "c", 2))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"anchor": "a"}', 'expected an object with "anchor"'),
        ("[]", "expected an object"),
        ("[" * 200_000, "expected an object"),
        ('{"anchor": "a", "neighbour": 7, "rank": 1}', "is not a string"),
        ('{"anchor": "a", "neighbour": "a", "rank": 1}', "leads to itself"),
        ('{"anchor": "a", "neighbour": "b", "rank": 0}', "whole number from 1"),
        ('{"anchor": "a", "neighbour": "b", "rank": 1.5}', "whole number from 1"),
        ('{"anchor": "a", "neighbour": "b", "rank": null}', "whole number from 1"),
        ('{"anchor": "x", "neighbour": "y", "rank": 3}', "is there twice"),
    ],
)
def test_what_is_no_edge_is_refused_with_its_line(line: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "e.jsonl"
    file.write_text(f'{{"anchor": "x", "neighbour": "y", "rank": 1}}\n{line}\n', "utf-8")
    with pytest.raises(UserError, match="line 2") as told:
        read_edges(file)
    assert message in str(told.value)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text("", "utf-8")
    with pytest.raises(UserError, match="holds no edges"):
        read_edges(tmp_path / "e.jsonl")


@given(rank=st.integers(1, 10**6))
def test_ranks_are_whole_numbers(rank: int) -> None:
    assert f'"rank": {rank}}}' in next(edge_lines([Edge("a", "b", rank)]))
