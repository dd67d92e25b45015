"""`obliq models` and what it knows of optional dependencies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from obliq_eval import catalogue
from obliq_eval.catalogue import ModelEntry
from obliq_eval.cli import app
from obliq_eval.commands import extras

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUNNER = CliRunner()
METADATA = """Metadata-Version: 2.1
Name: obliq-fake
Version: 1.0
Requires-Dist: rich>=1
Requires-Dist: no-such-package-of-obliq>=2
Provides-Extra: there
Requires-Dist: typer; extra == "there"
Provides-Extra: gone
Requires-Dist: no-such-package-of-obliq; extra == "gone"
Provides-Extra: future
Requires-Dist: rich>=999; extra == "future"
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package in the place of obliq: one extra is installed, one is missing, one is too old."""
    folder = tmp_path / "obliq_fake-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(METADATA)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(extras, "PACKAGE", "obliq-fake")
    extras.extras.cache_clear()
    yield
    extras.extras.cache_clear()


@pytest.fixture
def models(package: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three models: one without needs, one whose extra is missing, one whose extra belongs to another package."""
    entries = (
        ModelEntry(
            name="org/plain", alias="plain", loader="m:f", revision="7", kind="lexical", licence="mit",
            query_prefix="query: ", query_length=32, risk="may unmask writers",
        ),
        ModelEntry(name="org/needy", alias="needy", loader="m:f", revision="1", extra="gone", n_parameters=1_234),
        ModelEntry(name="org/foreign", alias="foreign", loader="m:f", revision="1", extra="elsewhere"),
        ModelEntry(name="org/served", alias="served", loader="m:f", revision="1", extra="there"),
    )  # fmt: skip
    monkeypatch.setattr(catalogue, "_installed", lambda: tuple((entry, "here") for entry in entries))
    monkeypatch.setattr(catalogue, "_registered", {})


@pytest.mark.usefixtures("package")
def test_extras_name_what_is_missing_or_too_old() -> None:
    assert extras.extras() == {"there": (), "gone": ("no-such-package-of-obliq",), "future": ("rich",)}
    needed = {name: (wanted, extras.fits(found, wanted)) for name, wanted, found in extras.requirements()}
    assert needed == {"rich": (">=1", True), "no-such-package-of-obliq": (">=2", False)}


def test_a_package_that_is_not_installed_has_no_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "PACKAGE", "no-such-package-of-obliq")
    extras.extras.cache_clear()
    assert extras.extras() == {}
    assert extras.requirements() == ()
    extras.extras.cache_clear()


@pytest.mark.usefixtures("models")
def test_the_table_names_the_extra_and_whether_it_is_there() -> None:
    lines = RUNNER.invoke(app, ["models"]).stdout.splitlines()
    by_alias = {line.split()[0]: line for line in lines if line.strip()}
    assert "mit" in by_alias["plain"]
    assert "pip install 'obliq[gone]'" in by_alias["needy"]
    assert "[elsewhere] of its package" in by_alias["foreign"]
    assert "[there], installed" in by_alias["served"]


@pytest.mark.usefixtures("models")
def test_json_lists_every_field() -> None:
    found = {model["alias"]: model for model in json.loads(RUNNER.invoke(app, ["models", "--json"]).stdout)}
    assert [model["installed"] for model in found.values()] == [True, False, None, True]
    assert found["plain"]["query_prefix"] == "query: "
    assert "meta" not in found["plain"]


@pytest.mark.usefixtures("models")
def test_show_tells_risk_prefixes_lengths_and_revision() -> None:
    rows = RUNNER.invoke(app, ["models", "show", "org/plain"]).stdout.splitlines()
    shown = dict(line.strip().split(maxsplit=1) for line in rows if len(line.split()) > 1)
    assert shown["risk"] == "may unmask writers"
    assert shown["revision"] == "7"
    assert "'query: '" in "\n".join(rows)  # its last space can be seen


def test_show_leaves_no_field_out() -> None:
    from dataclasses import fields

    from obliq_eval.commands.models import FIELDS

    assert set(FIELDS) == {field.name for field in fields(ModelEntry)} - {"meta"}


@pytest.mark.usefixtures("models")
def test_unknown_model_suggests_the_near_name() -> None:
    done = RUNNER.invoke(app, ["models", "show", "plian"])
    assert done.exit_code == 2
    assert done.stderr == "error: no model is called 'plian'; did you mean \"plain\"?\n"


def test_the_bundled_models_are_listed_with_licence() -> None:
    found = {model["alias"]: model for model in json.loads(RUNNER.invoke(app, ["models", "--json"]).stdout)}
    assert {"bm25", "stylometry", "minilm", "obliq-ir-mini"} <= found.keys()
    assert all(model["licence"] for model in found.values())
    assert found["stylometry"]["risk"]
