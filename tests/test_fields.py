"""Labels, sources and nuisance fields of documents from files and from rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from obliq_eval.errors import UserError
from obliq_eval.fields import by_pattern, read_field, read_sources

if TYPE_CHECKING:
    from pathlib import Path

WANTED = {"007": frozenset(["x"]), "a b": frozenset(["1880"])}


@pytest.mark.parametrize(
    ("name", "content", "field"),
    [
        ("f.json", '{"007": "x", "a b": 1880, "none": null, "empty": []}', ""),
        ("f.json", '{"007": ["x"], "a b": ["1880"]}', ""),
        ("f.jsonl", '{"_id": "007", "v": "x"}\n{"id": "a b", "v": 1880}\n{"id": "c"}\n', "#v"),
        ("f.tsv", "007\tx\na b\t1880\nc\t\n", ""),
        ("f.tsv", "id\tanything\n007\tx\na b\t1880\n", ""),
        ("f.tsv", "id\tw\tv\n007\tno\tx\na b\tno\t1880\n", "#v"),
    ],
)
def test_every_form_gives_the_same(name: str, content: str, field: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, "utf-8")
    assert read_field(f"{tmp_path / name}{field}") == WANTED


def test_a_path_may_hold_the_mark_itself(tmp_path: Path) -> None:
    folder = tmp_path / "a#b"
    folder.mkdir()
    (folder / "f.tsv").write_text("id\tw\tv\n007\tno\tx\na b\tno\t1880\n", "utf-8")
    assert read_field(f"{folder / 'f.tsv'}#v") == WANTED
    assert read_field(str(folder / "f.tsv"))["007"] == frozenset({"no"})


def test_several_values_come_as_a_list_or_on_several_lines(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text('{"a": ["x", "y"]}', "utf-8")
    (tmp_path / "f.tsv").write_text("a\tx\na\ty\n", "utf-8")
    assert read_field(str(tmp_path / "f.json")) == read_field(str(tmp_path / "f.tsv")) == {"a": frozenset("xy")}


@pytest.mark.parametrize(
    ("name", "content", "field", "message"),
    [
        ("f.csv", "a,b", "", "a JSON object"),
        ("f.json", "[1]", "", "expected an object"),
        ("f.json", "{", "", "not valid JSON"),
        ("f.json", '{"a": {"b": 1}}', "", "neither text nor a number"),
        ("f.json", '{"a": null}', "", "says nothing"),
        ("f.json", '{"a": NaN}', "", "neither text nor a number"),
        ("f.json", '{"a": 1, "b": 2, "a": 3}', "", "'a' is there 2 times"),
        ("f.json", "[" * 200_000, "", "not valid JSON"),
        ("f.jsonl", "[" * 200_000, "#v", "line 1: expected an object with an id"),
        ("f.jsonl", '{"id": "a", "year": 1}\n', "", "say which key"),
        ("f.jsonl", '{"id": "a", "year": 1}\n', "#yaer", 'did you mean "year"'),
        ("f.jsonl", '{"year": 1}\n', "#year", "line 1: expected an object with an id"),
        ("f.tsv", "id\tyear\na\t1\n", "#yaer", 'did you mean "year"'),
        ("f.tsv", "id\tyear\na\n", "", "line 2: expected an id and a value"),
    ],
)
def test_what_cannot_be_read_is_said(name: str, content: str, field: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, "utf-8")
    with pytest.raises(UserError, match=message):
        read_field(f"{tmp_path / name}{field}")


def test_a_rule_takes_the_source_from_the_id_or_from_the_value(tmp_path: Path) -> None:
    ids = ["book1_p1", "book1_p2", "book2_p1", "stray"]
    assert read_sources(None, r"^(\w+)_p\d+$", ids) == {
        "book1_p1": frozenset(["book1"]), "book1_p2": frozenset(["book1"]), "book2_p1": frozenset(["book2"]),
    }  # fmt: skip
    (tmp_path / "f.tsv").write_text("a\t1882-Arthur-1\nb\t1882-Arthur-2\nz\t1990-Bush-1\n", "utf-8")
    found = read_sources(str(tmp_path / "f.tsv"), r"^(.*)-\d+$", ["a", "b", "c"])
    assert found == {"a": frozenset(["1882-Arthur"]), "b": frozenset(["1882-Arthur"])}
    assert read_sources(None, None, ids) is None


def test_rules_that_cannot_work_are_refused(tmp_path: Path) -> None:
    for pattern, message in (
        ("(", "not a regular expression"),
        ("a", "0 groups"),
        ("(a)(b)", "2 groups"),
        ("(9)", "nowhere"),
    ):
        with pytest.raises(UserError, match=message):
            by_pattern(pattern, {"a": ["a"]})
    (tmp_path / "f.tsv").write_text("a\tx\n", "utf-8")
    with pytest.raises(UserError, match="knows none of the documents"):
        read_sources(str(tmp_path / "f.tsv"), None, ["b"])
