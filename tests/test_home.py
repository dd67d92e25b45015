"""Files and folders get to their place whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from obliq_eval.errors import UserError
from obliq_eval.home import whole_file, whole_folder


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "target"
    for content in ("old", "new"):
        with whole_folder(target) as part:
            (part / "file").write_text(content)
    assert (target / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_what_was_there_stays_when_it_is_stopped_between_the_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: BaseException | type[BaseException]
) -> None:
    target = tmp_path / "target"
    with whole_folder(target) as part:
        (part / "file").write_text("old")
    rename = Path.rename

    def stopped(self: Path, to: Path) -> Path:
        if self.name.startswith(".part-"):
            raise stop
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", stopped)
    with pytest.raises((KeyboardInterrupt, UserError)), whole_folder(target) as part:
        (part / "file").write_text("new")
    assert (target / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_full_disk_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="free space, or set OBLIQ_HOME"), whole_file(tmp_path / "file"):
        raise OSError(28, "No space left on device")
    assert not list(tmp_path.iterdir())
