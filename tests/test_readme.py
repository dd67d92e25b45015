"""The README and docs/ are true: their commands are run in order, in one folder each, and print what they show."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from obliq_eval.data.sources import load
from obliq_eval.data.split import dev_queries
from obliq_eval.significance import paired_bootstrap

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


@pytest.mark.slow
@pytest.mark.parametrize("page", DOCS.PAGES, ids=[page.stem for page in DOCS.PAGES])
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


def test_tables_of_families_are_those_of_the_leaderboards() -> None:
    """Two pages have some; the rounding is worked out on one row."""
    pages = {page.name: page.read_text(encoding="utf-8") for page in DOCS.PAGES}
    assert {name for name, page in pages.items() if "<!-- family " in page} == {"README.md", "training.md"}
    for name, page in pages.items():
        assert DOCS.with_families(page) == page, name


def test_what_the_pages_say_of_the_other_tasks_follows_from_the_runs() -> None:
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    for task in ("OBLIQ-Mini-Math", "OBLIQ-Mini-Congress"):
        data = load(task)
        dev = dev_queries(task, data.queries, data.groups)
        base, ours = (scores(model, task, "ndcg@10") for model in ("minilm", "obliq-ir-mini"))
        asked = [query for query in base if query not in dev]
        test = paired_bootstrap([ours[query] for query in asked], [base[query] for query in asked])
        means = " to ".join(short(fmean(some[query] for query in asked)) for some in (base, ours))
        change = f"{short(test.difference, '+')} [{short(test.low, '+')}, {short(test.high, '+')}]"
        assert f"{task.removeprefix('OBLIQ-')} {means} ({change}, n = {len(asked)}" in page
    assert f"Mini-Congress gains ({means})" in README
    found = (scores(model, task, "recall@100") for model in ("minilm", "obliq-ir-mini"))
    recall = " to ".join(short(fmean(some[query] for query in asked)) for some in found)
    assert f"Recall@100 {recall}" in page


def test_the_readme_says_how_many_queries_were_trained_on() -> None:
    file = ROOT / "obliq_train" / "mini" / "writing.jsonl"
    trained = {json.loads(line)["text"] for line in file.read_text(encoding="utf-8").splitlines()}
    seen = sum(text in trained for text in load("OBLIQ-Mini-Writing").queries.values())
    assert f"the texts of {seen} of them are among the passages for training" in README
    rows = json.loads((ROOT / "obliq_models" / "weights" / "obliq-ir-mini" / "training.json").read_text("utf-8"))
    parts = rows["rows"]["parts"]
    share = 100 * parts["writing-graph"] / sum(parts.values())
    assert f"{share:.0f} % of its {sum(parts.values()):,} rows" in README
    assert f"trained for {rows['seconds'] / 60:.0f} minutes on one core" in README


def scores(model: str, task: str, measure: str) -> dict[str, float]:
    """Return what each query scores, gold judgments, from the leaderboards."""
    file = ROOT / "leaderboards" / "mini" / model / task / "scores.json"
    told = json.loads(file.read_text(encoding="utf-8"))["judgments"]["gold"]
    return dict(zip(told["queries"], told["values"][measure], strict=True))


def short(value: float, sign: str = "") -> str:
    return f"{value:{sign}.3f}".replace("0.", ".")


def test_a_table_of_a_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"member": "control", "ndcg@10": 0.25, "difference": None, "recall@100": 0.5},
        {
            "member": "base",
            "ndcg@10": 0.1234,
            "difference": {"difference": -0.1266, "low": -0.2, "high": 0.0126},
            "recall@100": 0.4444,
        },
    ]
    (tmp_path / "some.json").write_text(json.dumps({"tasks": [{"task": "T", "rows": rows}]}), "utf-8")
    monkeypatch.setattr(DOCS, "FAMILIES", tmp_path)
    comment = "<!-- family some T\nbase: the base: as it is\ncontrol: ours\n-->\n"
    table = (
        "| | NDCG@10 | Δ, 95 % interval | Recall@100 |\n|---|---:|---|---:|\n"
        "| the base: as it is | 0.123 | -0.127 [-0.200, +0.013] | 0.444 |\n| ours | 0.250 |  | 0.500 |\n"
    )
    for old in ("", "| old |\n| row |\n"):
        assert DOCS.with_families(f"Before\n\n{comment}{old}\nAfter\n") == f"Before\n\n{comment}{table}\nAfter\n"


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
