"""The README and docs/ are true: their commands are run in order, in one folder each, and print what they show."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def load_script() -> Any:
    spec = importlib.util.spec_from_file_location("obliq_docs_script", ROOT / "scripts" / "docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


DOCS = load_script()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", DOCS.PAGES, ids=lambda page: page.stem)
def test_commands_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    steps = DOCS.steps(page.read_text(encoding="utf-8"))
    assert sum(bool(step.command) for step in steps) >= 5
    for step in steps:
        printed, shown = DOCS.plain(DOCS.do(step, tmp_path)), DOCS.plain(step.shown)
        assert printed[: len(shown)] == shown, step.command
    if page.name == "README.md":
        (example,) = blocks("python")
        expected = re.findall(r"#\s*(.*)$", example, flags=re.MULTILINE)[-1]
        DOCS.do(DOCS.Step("", example, "example.py"), tmp_path)
        assert DOCS.do(DOCS.Step("python example.py", ""), tmp_path).strip() == expected


def test_every_command_shows_what_it_prints() -> None:
    """Only an installation prints nothing; a page that shows nothing would be compared with nothing."""
    for page in DOCS.PAGES:
        for step in DOCS.steps(page.read_text(encoding="utf-8")):
            quiet = step.command.startswith(("pip install -q", "mteb run"))
            assert step.shown.strip() or quiet, f"{page.name}: {step.command}"


def test_installation_commands_are_run_by_ci() -> None:
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert len(blocks("bash")) == 2
    for block in blocks("bash"):
        assert block.strip() in ci


def test_model_files_are_valid_ones(tmp_path: Path) -> None:
    from obliq_models.specs import read_spec

    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "modules.json").write_text("[]")
    for page in DOCS.PAGES:
        found = re.findall(r"^```toml(?: \S+)?\n(name = .*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        for number, example in enumerate(found):
            file = tmp_path / f"{page.stem}-{number}.toml"
            file.write_text(example, encoding="utf-8")
            assert read_spec(file).name == re.findall(r'^name = "(.*?)"', example)[0]


@pytest.mark.parametrize("page", DOCS.PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target
