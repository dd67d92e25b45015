"""Files of a model in a folder; the hub's side is walked by the tests that serve twins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from obliq_eval.errors import UserError
from obliq_models.repositories import Repository, local_base, settle

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_has_no_commit_and_its_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"a": 1}')
    found = settle(str(tmp_path), "ignored")
    assert (found, found.given, str(found)) == (Repository(str(tmp_path)), {}, str(tmp_path))
    assert found.file("config.json") == tmp_path / "config.json"
    assert (found.has("config.json"), found.has("other.json"), found.file("other.json")) == (True, False, None)
    assert (found.record("config.json"), found.record("other.json"), found.json("other.json")) == ({"a": 1}, {}, None)


def test_a_commit_is_part_of_the_name_and_of_what_the_libraries_are_given() -> None:
    found = Repository("org/model", "a" * 40)
    assert (str(found), found.given) == (f"org/model@{'a' * 40}", {"revision": "a" * 40})
    assert settle("org/model", "a" * 40) == found  # a commit needs no hub


@pytest.mark.parametrize(
    ("content", "message"), [("{", "cannot read x.json"), ("3", "neither an object nor a list"), ("[]", "no object")]
)
def test_a_file_that_holds_no_object_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(UserError, match=message):
        Repository(str(tmp_path)).record("x.json")


def test_what_can_be_no_repository_is_said() -> None:
    with pytest.raises(UserError, match="neither a folder nor a name on the hub"):
        settle("/no/such/folder", None)


def test_a_folder_that_lies_here_takes_no_repositorys_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor may it run the code that is trusted under that name; as a path, or with its whole path, it is taken."""
    name = "DataScience-UIBK/OBLIQ-IR-3B-LoRA"
    (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"the folder {name} in .* hides the repository of this name"):
        settle(name)
    assert settle("any/name", "main", path=name) == Repository(name)
    assert settle(str(tmp_path / name)).place == str(tmp_path / name)
    assert local_base(name) is None
    with pytest.raises(UserError, match=r"there is no folder x{300}$"):
        settle("any/name", path="x" * 300)
