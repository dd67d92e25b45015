"""What is printed: whole at any width and in any encoding."""

from __future__ import annotations

import io
import sys

import pytest

from obliq_eval import show

COLUMNS = ("task", "queries", "NDCG@10", "remark")
ROWS = [("OBLIQ-Congress", 213_650, 0.123456, "tip-of-the-tongue"), ("x", 1, None, "")]


@pytest.mark.parametrize("width", [1, 5, 20, 40, 80, 200])
def test_a_table_loses_nothing_however_narrow_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    show.table(COLUMNS, ROWS, title="A title")
    lines = capsys.readouterr().out.splitlines()
    assert any("213,650" in line for line in lines)  # numbers stay whole
    assert any("0.123" in line for line in lines)
    starts = [next(i for i, line in enumerate(lines) if "213,650" in line)]
    starts.append(next(i for i, line in enumerate(lines) if show.UNKNOWN in line))
    first = "".join("".join(line.split()) for line in lines[starts[0] : starts[1]])
    for letter in "OBLIQ-Congress" + "tip-of-the-tongue":
        assert first.count(letter) >= ("OBLIQ-Congress" + "tip-of-the-tongue").count(letter)


def test_a_terminal_that_is_wide_enough_keeps_words_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show.table(COLUMNS, ROWS)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.split()]
    assert ["OBLIQ-Congress", "213,650", "0.123", "tip-of-the-tongue"] in lines
    assert ["x", "1", show.UNKNOWN] in lines


def test_an_empty_table_is_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    show.table(COLUMNS, [])
    assert capsys.readouterr().out.split()[:4] == list(COLUMNS)


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("utf-8", "caf\u00e9 \u2013 \\ud800"),
        ("latin-1", "caf\u00e9 - \\ud800"),
        ("ascii", "caf\\xe9 - \\ud800"),
    ],
)
def test_what_an_encoding_lacks_is_spelled_out(encoding: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dash becomes a hyphen as soon as anything has to be spelled out, in UTF-8 for half a surrogate pair."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    found = show.encodable("caf\u00e9 \u2013 \ud800", stream)
    assert found == (expected.replace("\u2013", "-") if encoding == "utf-8" else expected)
    assert show.encodable("plain", stream) == "plain"
    monkeypatch.setattr(sys, "stdout", stream)
    show.table(("caf\u00e9",), [[None], ["\ud800"]], title="\u2013")
    show.say("caf\u00e9 \ud800")
    stream.flush()


def test_what_is_shown_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show.table(["id"], [["n\x1b[31mx"]])
    show.warn("bell \x07")
    out, err = capsys.readouterr()
    assert "n\\x1b[31mx" in out
    assert "bell \\x07" in err
