"""Synthesis through Ray Data, on a cluster of this machine's own, against the loopback writer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from obliq_eval.cli import app
from obliq_eval.demo.personalities import writer

pytest.importorskip("ray", reason="the extra `ray` is optional")
pytest.importorskip("openai", reason="the extra `openai` is optional")

if TYPE_CHECKING:
    from pathlib import Path

MAIN = """
import sys
from obliq_train import bulk
bulk.BLOCK = 5
from obliq_eval.cli import main
main()
"""


@pytest.mark.slow  # Ray starts a dozen processes
def test_rows_are_those_of_one_process_in_the_same_order(tmp_path: Path, serve: Any) -> None:
    """Twelve documents in three blocks for two workers; order and content are as without Ray."""
    server = serve(writer())
    settings = ("synth", "OBLIQ-Mini-Math", "--lens", "math", "--limit", "12", "-o")
    assert CliRunner().invoke(app, [*settings, str(tmp_path / "local.jsonl")]).exit_code == 0
    asked = len(server.bodies)
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *settings, str(tmp_path / "ray.jsonl"), "--engine", "ray", "--json"],
        capture_output=True, text=True, check=False, env={**os.environ, "OBLIQ_HOME": str(tmp_path / "ray-home")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ray.jsonl").read_bytes() == (tmp_path / "local.jsonl").read_bytes()
    assert len(server.bodies) == 2 * asked == 48
    counts = json.loads(done.stdout)["counts"]
    assert (counts["queries"], counts["query: answers"], counts["describe: answers"]) == (12, 12, 12)
