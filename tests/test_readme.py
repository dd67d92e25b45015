"""The README is true: its commands are run in order, in one folder, and their output is what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def sessions() -> list[tuple[str, str]]:
    """Return every `$ command` of the README with the output that it shows."""
    found: list[tuple[str, str]] = []
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def plain(text: str) -> list[str]:
    """Drop blank lines, trailing spaces and rules; the day of a run is not the README's."""
    lines = (re.sub(r"\d{4}-\d\d-\d\d", "DAY", line).rstrip() for line in text.splitlines())
    return [line for line in lines if line and not set(line) <= {"─", " "}]


def call(command: str, folder: Path) -> str:
    environment = {
        **os.environ,
        "OBLIQ_HOME": str(folder / "home"),
        "HF_HUB_OFFLINE": "1",
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in {0, 1}, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the README's first command, without the installation."""
    folder = tmp_path_factory.mktemp("readme")
    install, _, first = blocks("bash")[0].strip().partition(" && ")
    assert install.startswith("pip install")
    call(first, folder)
    return folder


def test_installation_commands_are_run_by_ci() -> None:
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert len(blocks("bash")) == 2
    for block in blocks("bash"):
        assert block.strip() in ci


def test_commands_print_what_the_readme_shows(folder: Path) -> None:
    assert len(sessions()) >= 8
    for command, shown in sessions():
        assert plain(call(command, folder))[: len(plain(shown))] == plain(shown), command


def test_the_python_example_prints_what_its_comment_says(folder: Path) -> None:
    (example,) = blocks("python")
    expected = re.findall(r"#\s*(.*)$", example, flags=re.MULTILINE)[-1]
    (folder / "example.py").write_text(example, encoding="utf-8")
    assert call(f'"{sys.executable}" example.py', folder).strip() == expected


def test_the_model_file_is_a_valid_one(tmp_path: Path) -> None:
    from obliq_models.specs import read_spec

    (example,) = blocks("toml")
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "modules.json").write_text("[]")
    (tmp_path / "my-model.toml").write_text(example, encoding="utf-8")
    entry = read_spec(tmp_path / "my-model.toml")
    assert (entry.name, entry.query_prefix, entry.document_length) == ("me/my-model", "query: ", 1024)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
