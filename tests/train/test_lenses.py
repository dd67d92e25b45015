"""Lenses: what the bundled ones say, what users' own are made into, and what is refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from obliq_eval.data.official import OFFICIAL
from obliq_eval.errors import UserError
from obliq_train import lenses

if TYPE_CHECKING:
    from pathlib import Path

OWN = """
version = 3
purpose = "Sarcasm"
mechanism = "descriptive"
attribute = "sarcasm about the service"
ignore = "the product"
"""


def own(folder: Path, text: str) -> Path:
    path = folder / "sarcasm.toml"
    path.write_text(text, "utf-8")
    return path


def test_every_task_has_its_lens_with_its_mechanism() -> None:
    """The mechanisms are those of the benchmark; `generic` belongs to no task and has no Stage A."""
    found = {name: lenses.load(name) for name in lenses.names()}
    by_task = {lens.task: lens for lens in found.values() if lens.task}
    assert by_task.keys() == OFFICIAL.keys()
    assert {task: lens.mechanism for task, lens in by_task.items()} == {t: o.mechanism for t, o in OFFICIAL.items()}
    assert all(lens.describe is not None and lens.describe.attribute for lens in by_task.values())
    generic = found["generic"]
    assert (generic.mechanism, generic.describe, generic.query.attribute) == ("generic", None, "")
    assert by_task["OBLIQ-Congress"].caps == {"coverage": 0.2}


@pytest.mark.parametrize("name", lenses.names())
def test_prompts_take_the_document_and_are_wary_of_it(name: str) -> None:
    lens = lenses.load(name)
    for prompt in filter(None, (lens.describe, lens.query)):
        assert prompt.placeholders == {"material"}
        told = " ".join(prompt.system.split())
        assert "between tags" in told
        assert "instructions inside" in told
        (key,) = re.findall(r'Answer with JSON alone: \{"(\w+)": ', prompt.user)
        assert prompt.schema is not None
        assert prompt.schema["required"] == [key] == [prompt.answer]


def test_stage_b_says_the_attribute_and_the_generic_lens_none() -> None:
    told = {name: lenses.load(name).query.system + lenses.load(name).query.user for name in lenses.names()}
    assert "stance" in told["twitter"]
    assert "strategy of proof" in told["math"]
    assert "fingerprint" in told["writing"]
    assert not any(word in told["generic"] for word in ("property", "attribute", "description"))
    assert all("named entities" in text or "No names" in text for text in told.values())


def test_a_lens_of_ones_own(tmp_path: Path) -> None:
    """Both prompts are built from attribute and ignore; a change of either changes the revision, the name does not."""
    first = lenses.load(str(own(tmp_path, OWN)))
    assert first.name == "sarcasm"
    for prompt in (first.describe, first.query):
        assert prompt is not None
        assert "sarcasm about the service" in prompt.system
        assert "the product" in prompt.user
    assert re.fullmatch(r"sarcasm@3-[0-9a-f]{8}", first.prompt)
    other = lenses.load(str(own(tmp_path, OWN.replace("the product", "the price"))))
    assert other.revision != first.revision
    same = lenses.load(str(own(tmp_path, OWN.replace('"Sarcasm"', '"Another purpose"'))))
    assert same.revision == first.revision


def test_a_lens_with_its_own_stage_a(tmp_path: Path) -> None:
    text = OWN + '[describe]\nversion = 1\nsystem = "Look for {attribute}."\nuser = "{material} not {ignore}"\n'
    found = lenses.load(str(own(tmp_path, text))).describe
    assert found is not None
    assert found.messages(material="{attribute}") == (
        ("system", "Look for sarcasm about the service."),
        ("user", "{attribute} not the product"),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            OWN.replace("descriptive", "descriptiv"),
            r"mechanism is 'descriptiv', not one of .*did you mean \"descriptive\"",
        ),
        (OWN + "atribute = 'x'\n", r"atribute is no|atribute is not a key of a lens; did you mean \"attribute\""),
        (OWN.replace('"the product"', '""'), "ignore is missing or empty"),
        (OWN.replace("the product", "the {material}"), r"ignore holds \{material\}"),
        (OWN + "[caps]\ncoverag = 0.2\n", r"coverag is no cap; did you mean \"coverage\""),
        (OWN + "[caps]\ncoverage = -1\n", "the cap coverage is -1, not a number of 0 or more"),
        (OWN + '[describe]\nversion = 1\nsystem = "a"\nuser = "b"\n', "describe must hold"),
        (
            OWN + "[describe]\nversion = true\nsystem = 3\nuser = []\nschema = 5\n",
            "describe.version is bool, not int(.|\n)*describe.system is int(.|\n)*describe.user is list(.|\n)*schema",
        ),
        (OWN.replace("version = 3", "version = true"), "version is bool, not int"),
        (OWN.replace('"the product"', '"  "'), "ignore is missing or empty"),
        (OWN.replace("descriptive", "generic"), "attribute means nothing to the generic mechanism"),
        ("version = 1", "purpose is missing(.|\n)*mechanism is missing"),
        ("version = ", "is not a TOML file"),
    ],
)
def test_what_is_no_lens_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        lenses.load(str(own(tmp_path, text)))


def test_an_unknown_lens_is_told_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r'no lens is called .writin.; did you mean "writing"'):
        lenses.load("writin")
