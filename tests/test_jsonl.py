"""A line of JSON that others wrote: its value, or a ValueError."""

from __future__ import annotations

import pytest

from obliq_eval.jsonl import value_of


def test_values() -> None:
    assert value_of('{"a": "\\u00e9\\ud83d\\ude00"}') == value_of('{"a": "é😀"}'.encode()) == {"a": "é😀"}


@pytest.mark.parametrize("line", ["{", "[" * 200_000, '{"n": ' + "9" * 5_000 + "}", '"\\ud800"', b'"\\ud800"', b"\xff"])
def test_whatever_is_wrong_is_one_kind_of_error(line: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        value_of(line)
