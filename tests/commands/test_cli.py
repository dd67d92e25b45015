"""The command line as a whole: what it imports, what it says when something goes wrong, how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from obliq_eval import __version__, cli
from obliq_eval.commands import tasks
from obliq_eval.errors import UserError

HEAVY = {"torch", "mteb", "ranx", "datasets", "pandas", "transformers", "scipy", "pyarrow"}
RUNNER = CliRunner()


def obliq(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", "from obliq_eval.cli import main; main()", *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, **env},
    )  # fmt: skip


def modules_after(*arguments: str) -> set[str]:
    """Return the top-level modules that are loaded once a command has ended."""
    code = (
        "import json, sys\nfrom obliq_eval.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)])
def test_start_up_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    loaded = modules_after(*arguments)
    assert not loaded & (HEAVY | {"numpy", "obliq_models"})
    assert "typer" in loaded


@pytest.mark.parametrize("command", ["tasks", "models"])
def test_the_tables_of_names_import_neither_mteb_nor_torch(command: str) -> None:
    assert not modules_after(command) & HEAVY


def test_help_lists_every_command_with_its_line() -> None:
    text = RUNNER.invoke(cli.app, ["--help"], env={"COLUMNS": "200"}).stdout
    for name, (_, summary) in cli.COMMANDS.items():
        assert f" {name} " in text
        assert summary in text


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_is_there_and_has_help(name: str) -> None:
    done = RUNNER.invoke(cli.app, [name, "--help"])
    assert done.exit_code == 0
    assert "Usage" in done.stdout


def test_unknown_command_suggests_the_near_one() -> None:
    done = RUNNER.invoke(cli.app, ["taks"])
    assert done.exit_code == 2
    assert "'tasks'" in done.stderr


def test_version() -> None:
    done = RUNNER.invoke(cli.app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"obliq {__version__}\n")


def _raising(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(tasks, "known_tasks", fail)


def test_a_user_error_is_one_sentence_with_status_2(monkeypatch: pytest.MonkeyPatch) -> None:
    _raising(UserError("the shelf is empty; fill it"), monkeypatch)
    done = RUNNER.invoke(cli.app, ["tasks"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "error: the shelf is empty; fill it\n"


def test_debug_shows_the_traceback_of_a_user_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OBLIQ_DEBUG", "1")
    _raising(UserError("the shelf is empty"), monkeypatch)
    done = RUNNER.invoke(cli.app, ["tasks"])
    assert done.exit_code == 2
    assert "Traceback" in done.stderr


def test_ctrl_c_is_one_line_with_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    _raising(KeyboardInterrupt(), monkeypatch)
    done = RUNNER.invoke(cli.app, ["tasks"])
    assert done.exit_code == 130
    assert done.stderr.startswith("error: interrupted")
    assert done.stderr.count("\n") == 1


TOLD_TO_END = """
import os, signal
from pathlib import Path
from obliq_eval import cli, home, show

def work(*_, **__):
    with home.whole_folder(Path("target")):
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()

show.table = work
cli.main()
"""


def test_who_is_told_to_end_leaves_nothing_half_written(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", TOLD_TO_END, "tasks"], cwd=tmp_path, check=False, timeout=120)
    assert done.returncode == 143
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("debug", ["", "1"])
def test_an_unforeseen_error_is_called_a_defect(
    debug: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OBLIQ_DEBUG", debug)
    monkeypatch.setattr(sys, "argv", ["obliq", "tasks"])
    _raising(ZeroDivisionError("by nought"), monkeypatch)
    with pytest.raises(SystemExit) as end:
        cli.main()
    told = capsys.readouterr().err
    assert end.value.code == 2
    assert "ZeroDivisionError: by nought" in told
    assert "defect" in told
    assert "OBLIQ_DEBUG=1" in told
    assert ("Traceback" in told) == bool(debug)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (FileNotFoundError(2, "No such file or directory", "a/b"), "a/b: No such file or directory"),
        (NotADirectoryError(20, "Not a directory", b"a/b"), "a/b: Not a directory"),
        (OSError(28, "No space left"), "No space left; free space, or choose a folder on another disk"),
        (OSError(36, "File name too long", "x" * 300), f"{'x' * 300}: File name too long; choose a shorter name"),
        (
            RuntimeError("Could not determine home directory."),
            "there is no home folder to keep anything in: set HOME to a folder",
        ),
    ],
)
def test_what_the_system_refuses_is_one_sentence_and_no_defect(
    error: Exception, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["obliq", "tasks"])
    _raising(error, monkeypatch)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert capsys.readouterr().err == f"error: {sentence}\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [("tasks",), ("tasks", "--json"), ("--version",)])
def test_output_that_cannot_be_written_is_one_sentence(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from obliq_eval.cli import main; main()", *arguments],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [("tasks",), ("run", "--help"), ("doctor", "--help")])
def test_an_output_of_ascii_alone_is_enough(arguments: tuple[str, ...]) -> None:
    done = obliq(*arguments, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert "\\u2013" not in done.stdout


def test_json_is_whole_in_an_output_of_ascii_alone() -> None:
    code = "from obliq_eval import show; show.payload(['\\u00e9\\u2013', '\\ud800'])"
    for encoding in ("ascii", "utf-8"):  # half a surrogate pair has no form in UTF-8 either
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONIOENCODING": encoding},
        )
        assert json.loads(done.stdout) == ["\u00e9\u2013", "\ud800"]


def test_a_reader_that_has_gone_is_no_news() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "from obliq_eval.cli import main; main()", "tasks"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    told = process.stderr.read()
    assert (process.wait(), told) == (141, b"")


def test_the_installed_command_ends_with_the_status_of_the_failure() -> None:
    done = obliq("tasks", "show", "OBLIQ-Writting")
    assert done.returncode == 2
    assert done.stderr == "error: no task is called 'OBLIQ-Writting'; did you mean \"OBLIQ-Writing\"?\n"


def test_every_command_stands_in_one_panel_of_the_help() -> None:
    listed = [name for names in cli.PANELS.values() for name in names]
    assert sorted(listed) == sorted(cli.COMMANDS)
    text = RUNNER.invoke(cli.app, ["--help"], env={"COLUMNS": "120"}).stdout
    assert [panel for panel in cli.PANELS if panel in text] == list(cli.PANELS)
