"""Files and folders get to their place whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
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


def test_what_a_killed_process_has_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    """Three temporary folders: of a process that was killed, of another target, and of one that writes at the time."""
    code = (
        "import os, signal, sys; from pathlib import Path; from obliq_eval.home import whole_folder\n"
        "with whole_folder(Path(sys.argv[1])) as part: os.kill(os.getpid(), signal.SIGKILL)"
    )
    for name in ("target[1]", "other"):
        subprocess.run([sys.executable, "-c", code, str(tmp_path / name)], check=False)
    killed, other = (next(tmp_path.glob(f".part-{name}*")) for name in ("target", "other"))
    with whole_folder(tmp_path / "target[1]") as living:
        assert not killed.exists()
        with whole_folder(tmp_path / "target[1]"):
            assert living.exists()
        living.joinpath("file").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["target[1]", other.name])
    assert (tmp_path / "target[1]" / "file").exists()


def test_a_folder_behind_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    with whole_folder(tmp_path / "link") as part:
        (part / "file").touch()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "file").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "there"]


def test_files_in_a_folder_may_be_read_by_those_who_may_read_files_here(tmp_path: Path) -> None:
    """Safetensors writes its own for the owner alone."""
    with whole_folder(tmp_path / "there") as part:
        (part / "deep").mkdir()
        for name in ("plain", "deep/private", "deep/program"):
            (part / name).touch()
        (part / "deep" / "private").chmod(0o600)
        (part / "deep" / "program").chmod(0o700)
    modes = {name: (tmp_path / "there" / name).stat().st_mode & 0o777 for name in ("plain", "deep/private")}
    assert len(set(modes.values())) == 1
    assert (tmp_path / "there" / "deep" / "program").stat().st_mode & 0o100


def test_a_full_disk_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="free space, or set OBLIQ_HOME"), whole_file(tmp_path / "file"):
        raise OSError(28, "No space left on device")
    assert not list(tmp_path.iterdir())


def test_a_device_or_folder_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(UserError, match="no file"), whole_file(tmp_path / name) as part:
            part.write_text("x")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]
