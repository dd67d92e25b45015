"""Unmodified `mteb run -t OBLIQ-Writing -m …` for the models of the table, on tiny twins under the official names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval import runs
from obliq_eval.catalogue import resolve
from obliq_eval.data import sources
from obliq_eval.data.official import OFFICIAL
from obliq_eval.demo import personalities
from obliq_eval.demo.hub import LoopbackHub
from obliq_eval.demo.llm_server import MODEL, LlmServer
from obliq_eval.demo.toy import official_repo
from obliq_eval.demo.twins import ADAPTER_ID, BASE_ID, MERGED_ID, twin_repos, twin_revision
from obliq_eval.evaluation import panels
from obliq_models.pins import PINS

if TYPE_CHECKING:
    from pathlib import Path

TASK = "OBLIQ-Writing"
SIBLINGS = {
    "obliq-ir-merged": MERGED_ID,
    "luar": "rrivera1849/LUAR-MUD",
    "luar-crud": "rrivera1849/LUAR-CRUD",
    "style-embedding": "AnnaWegmann/Style-Embedding",
    "styledistance": "StyleDistance/styledistance",
    "mstyledistance": "StyleDistance/mstyledistance",
    "star": "AIDA-UPM/star",
    "qwen3-embed-0.6b": "Qwen/Qwen3-Embedding-0.6B",
    "qwen3-embed-4b": "Qwen/Qwen3-Embedding-4B",
    "lateon": "lightonai/LateOn",
}


def command(alias: str, output: str) -> tuple[str, ...]:
    return ("-m", "mteb", "run", "-t", TASK, "-m", alias, "--output-folder", output)


def commit(repository: str) -> str:
    """Return the commit that the hub serves: the pinned one, or a made-up one that `main` stands for."""
    return PINS[repository] or twin_revision(repository)


def stored(home: Path, data: Path, revision: str, name: str) -> runs.Manifest:
    """Return the manifest of the run behind a result file, once both say the same."""
    folder = home / "results" / "results" / name.replace("/", "__") / revision
    (scores,) = json.loads((folder / f"{TASK}.json").read_text("utf-8"))["scores"]["test"]
    entry = runs.load(scores["obliq_run"])
    assert entry.manifest is not None
    assert (entry.manifest.model.name, entry.manifest.model.revision) == (name, revision)
    panel = panels(entry.read(), sources.load(data / OFFICIAL[TASK].folder))["gold"]
    assert scores["n_queries"] == len(panel.queries) > 0
    assert scores["n_unanswered"] == 0
    for measure, mean in panel.means().items():
        assert mean is not None
        assert scores[measure.replace("@", "_at_")] == round(mean, 5), measure
    return entry.manifest


@pytest.mark.slow
def test_obliq_ir_runs_verbatim_and_its_result_carries_both_commits(
    installed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Online, then from the cache alone. Neither commit is pinned, so that the result's folder names both."""
    home, data = tmp_path / "home", tmp_path / "data"
    twins = twin_repos(tmp_path / "twins", only=(BASE_ID, ADAPTER_ID))
    with LoopbackHub([official_repo(data), *twins]) as hub:
        hub_url = hub.url
        installed.ask(home, *command("obliq-ir", "results"), HF_ENDPOINT=hub_url)
    installed.ask(home, *command("obliq-ir", "offline"), HF_ENDPOINT=hub_url, HF_HUB_OFFLINE="1")
    monkeypatch.setenv("OBLIQ_HOME", str(home / "obliq"))
    assert PINS[ADAPTER_ID] is PINS[BASE_ID] is None
    revision = f"{commit(ADAPTER_ID)}-{commit(BASE_ID)[:12]}"
    model = stored(home, data, revision, ADAPTER_ID).model
    assert model.settings["loaded"] == f"{ADAPTER_ID}@{commit(ADAPTER_ID)}, {BASE_ID}@{commit(BASE_ID)}"
    assert (model.settings["query_prefix"], model.settings["document_length"]) == ("query: ", 1024)
    (again,) = (home / "offline").rglob(f"{TASK}.json")
    assert again.parent.name == revision


@pytest.mark.slow
def test_its_siblings_run_verbatim(installed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, data = tmp_path / "home", tmp_path / "data"
    twins = twin_repos(tmp_path / "twins", revisions=PINS)
    with LoopbackHub([official_repo(data), *twins]) as hub:
        for alias in SIBLINGS:
            installed.ask(home, *command(alias, "results"), HF_ENDPOINT=hub.url)
    monkeypatch.setenv("OBLIQ_HOME", str(home / "obliq"))
    for alias, repository in SIBLINGS.items():
        model = stored(home, data, commit(repository), resolve(alias).name).model
        assert model.alias == alias
        assert model.settings["loaded"] == f"{repository}@{commit(repository)}"


@pytest.mark.slow
def test_the_whole_system_runs_verbatim(installed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TourRank of five tournaments on Math; identity on Writing, for which nothing is asked."""
    home, data = tmp_path / "home", tmp_path / "data"
    twins = twin_repos(tmp_path / "twins", only=(BASE_ID, ADAPTER_ID))
    with LoopbackHub([official_repo(data), *twins]) as hub, LlmServer(personalities.topical()) as llm:
        asked = {"OPENAI_BASE_URL": llm.url, "OPENAI_API_KEY": "none", "OBLIQ_LLM": MODEL, "HF_ENDPOINT": hub.url}
        for task in ("OBLIQ-Writing", "OBLIQ-Math"):
            before = len(llm.bodies)
            installed.ask(home, "-m", "mteb", "run", "-t", task, "-m", "obliq-ir-full", **asked)
            assert (len(llm.bodies) > before) == (task == "OBLIQ-Math")
    monkeypatch.setenv("OBLIQ_HOME", str(home / "obliq"))
    (file,) = home.rglob("OBLIQ-Math.json")
    (scores,) = json.loads(file.read_text("utf-8"))["scores"]["test"]
    manifest = runs.load(scores["obliq_run"]).manifest
    assert manifest is not None
    assert manifest.model.alias == "obliq-ir-full"
    assert manifest.counts["tourrank-y5: calls"] > 0
