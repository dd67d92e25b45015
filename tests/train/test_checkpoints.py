"""The run's folder: which checkpoints are whole, which are kept, and whose run it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from obliq_eval.errors import UserError
from obliq_train import checkpoints
from obliq_train.checkpoints import SEAL, Folder, claim, step_of, whole

if TYPE_CHECKING:
    from pathlib import Path

RECIPE = {"schedule": {"rate": 1e-3, "steps": 4}, "part": [{"name": "a", "dose": 5}, {"name": "b", "dose": None}]}
MINE = {"digest": "1", "rows": "r", "edges": {"a": "e"}, "base": "b", "processes": 1, "recipe": RECIPE}


def write(folder: Folder, step: int) -> None:
    made = folder.part / f"checkpoint-{step}"
    (made / "1_Pooling").mkdir(parents=True)
    (made / "weights").write_bytes(b"1234")
    (made / "1_Pooling" / "config.json").write_text("{}", "utf-8")


def test_a_checkpoint_counts_once_it_is_sealed_and_the_oldest_go(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "run")
    assert folder.newest() is None
    for step in (8, 9, 10, 100):  # by number, not by name
        write(folder, step)
        assert folder.newest() is None or step_of(folder.newest()) < step  # type: ignore[arg-type]
        assert folder.keep(step, 2) == folder.newest()
    assert sorted(path.name for path in folder.checkpoints.iterdir()) == ["checkpoint-10", "checkpoint-100"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda place: (place / "weights").write_bytes(b"123"),
        lambda place: (place / "weights").write_bytes(b"1243"),
        lambda place: (place / "weights").unlink(),
        lambda place: (place / "1_Pooling" / "config.json").unlink(),
        lambda place: (place / SEAL).unlink(),
        lambda place: (place / SEAL).write_text('{"weights": 4', "utf-8"),
        lambda place: (place / SEAL).write_text("{}", "utf-8"),
        lambda place: (place / SEAL).write_text("[]", "utf-8"),
    ],
)
def test_what_is_damaged_is_passed_over_and_made_again(tmp_path: Path, damage: object) -> None:
    folder = Folder(tmp_path / "run")
    for step in (1, 2):
        write(folder, step)
        folder.keep(step, 2)
    damage(folder.checkpoints / "checkpoint-2")  # type: ignore[operator]
    assert not whole(folder.checkpoints / "checkpoint-2")
    assert folder.resumed() == (folder.checkpoints / "checkpoint-1", ["checkpoint-2"])
    write(folder, 2)
    folder.keep(2, 2)  # in the place of the damaged one
    assert folder.resumed() == (folder.checkpoints / "checkpoint-2", [])


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "run")
    write(folder, 3)
    folder.begin()
    assert not folder.part.exists()
    folder.begin()


def test_the_folder_lies_beside_its_output(tmp_path: Path) -> None:
    assert Folder.beside(tmp_path / "a.b").path == tmp_path / "a.b-run"


def test_the_same_run_is_let_in_again(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    claim(folder, MINE)
    claim(folder, {**MINE, "recipe": {**RECIPE, "purpose": "another"}})  # the digest says that no weight changes


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"digest": "2", "recipe": {**RECIPE, "schedule": {"rate": 2e-3}}},
         "schedule.rate was 0.001 and is 0.002, schedule.steps was 4 and is not there"),
        ({"digest": "2", "recipe": {**RECIPE, "part": [{"name": "a", "dose": 6}, {"name": "b", "dose": None}]}},
         "part.a.dose was 5 and is 6"),
        ({"digest": "2"}, "the recipe (it was written by another version of obliq)"),
        ({"rows": "s"}, "the rows"),
        ({"edges": {"a": "f"}}, "the edges"),
        ({"processes": 2}, "processes was 1 and is 2"),
        ({"base": "c"}, 'base was "b" and is "c"'),
    ],
)  # fmt: skip
def test_another_run_is_refused_with_what_differs(tmp_path: Path, change: dict[str, object], told: str) -> None:
    folder = Folder(tmp_path)
    claim(folder, MINE)
    with pytest.raises(UserError) as refused:
        claim(folder, {**MINE, **change})
    end = "give another --output, or --fresh to begin again"
    assert str(refused.value) == f"{tmp_path} is the run of another recipe or of other rows: {told}; {end}"


def test_what_is_known_of_a_run_is_compared_before_the_rest(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    checkpoints.check(folder, {"digest": "1"})
    assert not folder.identity.exists(), "nobody's yet, and still so"
    claim(folder, MINE)
    checkpoints.check(folder, {"digest": "1", "recipe": RECIPE})
    with pytest.raises(UserError, match=r"schedule\.rate was 0\.001 and is 0\.002"):
        checkpoints.check(folder, {"digest": "2", "recipe": {**RECIPE, "schedule": {"rate": 2e-3, "steps": 4}}})


def test_a_checkpoint_under_another_step_s_name_is_none(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "run")
    write(folder, 3)
    folder.keep(3, 2).rename(folder.checkpoints / "checkpoint-9")
    assert folder.resumed() == (None, ["checkpoint-9"])


@pytest.mark.parametrize(
    "content", ["", "[]", '{"digest": ', '{"digest": "x", "recipe": "y"}', '{"recipe": [1]}', "[" * 100_000]
)
def test_a_damaged_identity_is_refused(tmp_path: Path, content: str) -> None:
    folder = Folder(tmp_path)
    folder.identity.write_text(content, "utf-8")
    with pytest.raises(UserError, match=r"cannot read .*run.json: give --fresh"):
        claim(folder, MINE)
