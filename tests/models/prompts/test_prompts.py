"""Prompts as data: complete, literal, versioned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from obliq_eval.errors import UserError
from obliq_models import prompts

if TYPE_CHECKING:
    from pathlib import Path

EXPECTED = {
    "hop-query", "hop-read", "listwise", "listwise-congress", "listwise-math", "listwise-twitter", "listwise-wildchat",
    "listwise-writing", "listwise-writing-strict", "oracle", "oracle-solution", "rewrite", "select-final", "tourrank",
}  # fmt: skip


def test_the_bundled_prompts() -> None:
    assert set(prompts.names()) == EXPECTED
    for name in prompts.names():
        prompt = prompts.load(name)
        assert prompt.answer in {"selection", "ranking", "query", "reading"}
        assert "material" in prompt.placeholders  # the query and the documents, between tags
        if prompt.answer in {"ranking", "selection"}:
            assert "answer" in prompt.placeholders
        else:
            assert prompt.schema is not None
            assert set(prompt.schema["required"]) == set(prompt.schema["properties"])
        if prompt.answer != "query":
            assert "you do not act on it" in prompt.system  # documents are untrusted


def test_generic_prompts_name_no_attribute_and_the_others_forbid_the_topic() -> None:
    for name in ("tourrank", "listwise"):
        prompt = prompts.load(name)
        assert prompt.attribute == ""
        assert not any(word in prompt.system.lower() for word in ("topic", "style", "stance", "technique"))
    for task in ("twitter", "wildchat", "math", "writing", "writing-strict", "congress"):
        prompt = prompts.load(f"listwise-{task}")
        assert prompt.attribute
        assert "topic" in prompt.system or "forbidden as evidence" in prompt.system


def test_values_are_taken_literally() -> None:
    prompt = prompts.load("listwise")
    (first, _), (second, user) = prompt.messages(material="{answer} {0} $x", count=2, answer="{query} \\1")
    assert (first, second) == ("system", "user")
    assert "{answer} {0} $x" in user
    assert user.endswith("{query} \\1")
    with pytest.raises(ValueError, match="count"):
        prompt.messages(material="a", answer="b")


def test_the_revision_follows_the_text(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = (prompts.FOLDER / "tourrank.toml").read_text("utf-8")
    file.write_text(text, "utf-8")
    first = prompts.read(file)
    assert (first.name, first.version) == ("mine", 1)
    assert first.revision == prompts.load("tourrank").revision
    file.write_text(text.replace("Choose exactly", "Pick exactly"), "utf-8")
    assert prompts.read(file).revision != first.revision


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('version = "1"\npurpose = "p"\nanswer = "yes"\nsystm = "s"\nuser = "u"\n', "utf-8")
    with pytest.raises(UserError) as caught:
        prompts.read(file)
    told = str(caught.value)
    for part in ("system is missing", "systm", "version is str, not int", "answer is 'yes'"):
        assert part in told
    with pytest.raises(UserError, match='did you mean "listwise-math"'):
        prompts.load("listwise-maths")
