"""The oldest mteb that is supported, installed from the package index into an environment of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval import runs
from obliq_eval.data import sources
from obliq_eval.evaluation import panels
from obliq_eval.registry import TESTED

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow
TASK = "OBLIQ-Mini-Math"


def test_it_is_the_oldest_that_the_package_asks_for(installed_with_oldest_mteb: Any, tmp_path: Path) -> None:
    code = "from importlib.metadata import requires, version; print(version('mteb'), *requires('obliq'), sep='\\n')"
    version, *required = installed_with_oldest_mteb.ask(tmp_path, "-c", code).splitlines()
    assert version == TESTED[0]
    assert f"mteb<3,>={version}" in [line.replace(" ", "") for line in required]


def test_a_mini_set_runs_and_the_result_file_equals_our_panels(
    installed_with_oldest_mteb: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("-m", "mteb", "run", "-t", TASK, "-m", "bm25", "--output-folder", "results")
    installed_with_oldest_mteb.ask(tmp_path, *command, HF_HUB_OFFLINE="1")
    (file,) = (tmp_path / "results").rglob(f"{TASK}.json")
    result = json.loads(file.read_text("utf-8"))
    assert result["mteb_version"] == TESTED[0]
    (scores,) = result["scores"]["test"]
    monkeypatch.setenv("OBLIQ_HOME", str(tmp_path / "obliq"))
    for name, panel in panels(runs.load(scores["obliq_run"]).read(), sources.load(TASK)).items():
        prefix = "" if name == "gold" else "pooled_"
        for measure, mean in panel.means().items():
            assert mean is not None
            assert scores[prefix + measure.replace("@", "_at_")] == round(mean, 5), (name, measure)
