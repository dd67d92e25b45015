"""Unmodified `mteb run -t OBLIQ-Writing -m obliq-ir`, on tiny twins under the official names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from obliq_eval import runs
from obliq_eval.demo.hub import LoopbackHub
from obliq_eval.demo.toy import official_repo
from obliq_eval.demo.twins import ADAPTER_ID, BASE_ID, twin_repos, twin_revision

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_obliq_ir_runs_verbatim_and_its_result_carries_both_commits(
    installed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    twins = twin_repos(tmp_path / "twins", only=(BASE_ID, ADAPTER_ID))
    with LoopbackHub([official_repo(tmp_path / "data"), *twins]) as hub:
        hub_url = hub.url
        done = installed.run(
            home, "-m", "mteb", "run", "-t", "OBLIQ-Writing", "-m", "obliq-ir", "--output-folder", "results",
            HF_ENDPOINT=hub_url,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    offline = installed.run(
        home, "-m", "mteb", "run", "-t", "OBLIQ-Writing", "-m", "obliq-ir", "--output-folder", "offline",
        HF_ENDPOINT=hub_url, HF_HUB_OFFLINE="1",
    )  # fmt: skip
    assert offline.returncode == 0, offline.stderr
    folder = home / "results" / "results" / ADAPTER_ID.replace("/", "__") / twin_revision(ADAPTER_ID)
    (scores,) = json.loads((folder / "OBLIQ-Writing.json").read_text("utf-8"))["scores"]["test"]
    assert scores["n_queries"] > 0
    assert scores["n_unanswered"] == 0
    assert (home / "offline" / folder.relative_to(home / "results") / "OBLIQ-Writing.json").is_file()

    monkeypatch.setenv("OBLIQ_HOME", str(home / "obliq"))
    manifest = runs.load(scores["obliq_run"]).manifest
    assert manifest is not None
    assert (manifest.model.name, manifest.model.revision) == (ADAPTER_ID, twin_revision(ADAPTER_ID))
    assert manifest.model.settings["loaded"] == f"{BASE_ID}@{twin_revision(BASE_ID)}"
    assert (manifest.model.settings["query_prefix"], manifest.model.settings["document_length"]) == ("query: ", 1024)
