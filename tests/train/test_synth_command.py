"""`obliq synth` against a loopback language model: hand-checked outputs, a real kill, and what the hub is asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from obliq_eval.cli import app
from obliq_eval.demo.hub import LoopbackHub
from obliq_eval.demo.personalities import writer
from obliq_eval.demo.toy import official_repo, toy_task
from tests.train.conftest import CHECKED, DATA, checked, knowing

pytest.importorskip("openai", reason="the extra `openai` is optional")

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from obliq_eval.demo.llm_server import LlmServer

    Serve = Callable[..., LlmServer]
RUNNER = CliRunner()


def run(*arguments: object) -> Any:
    return RUNNER.invoke(app, [str(argument) for argument in arguments])


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


EACH = """
import json, sys
from obliq_eval.cli import app
for arguments in json.loads(sys.argv[1]):
    app(arguments, standalone_mode=False)
"""


def start(*commands: tuple[object, ...], **env: str) -> subprocess.Popen[str]:
    """Start commands, one after the other, in a process of their own."""
    arguments = json.dumps([[str(argument) for argument in command] for command in commands])
    return subprocess.Popen(
        [sys.executable, "-c", EACH, arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env},
    )  # fmt: skip


@pytest.mark.parametrize("lens", CHECKED)
def test_hand_checked_outputs_come_through_whole(lens: str, tmp_path: Path, serve: Serve) -> None:
    """Ten documents of a mini set, their descriptions and queries as written by hand; the gate rejects none."""
    server = serve(knowing(lens))
    given = DATA / "stance.toml" if lens == "stance" else lens
    output = tmp_path / f"{lens}.jsonl"
    done = run("synth", CHECKED[lens], "--lens", given, "--limit", 10, "-o", output, "--json")
    assert done.exit_code == 0, done.stderr
    found = rows(output)
    expected = {row["document"]: row for row in checked(lens)}
    assert {row["document"] for row in found} == expected.keys()
    for row in found:
        assert (row["description"], row["query"]) == (
            expected[row["document"]]["description"],
            expected[row["document"]]["query"],
        )
        assert (row["task"], row["lens"], row["sample"]) == (CHECKED[lens], lens, 0)
    manifest = json.loads(done.stdout)
    assert manifest["counts"]["queries"] == 10
    assert not [name for name in manifest["counts"] if "rejected" in name]
    assert manifest["settings"]["prompt"] == found[0]["prompt"]
    assert len(server.bodies) == 20

    measured = run("quality", output, "--json")
    assert measured.exit_code == 0, measured.stderr
    [table] = json.loads(measured.stdout).values()
    assert (table["queries"], table["pairs"], table["leakage"], table["copied"]) == (10, 10, 0.0, 0.0)
    assert table["coverage"] < 0.1


def test_the_same_bytes_again_cost_nothing(tmp_path: Path, serve: Serve) -> None:
    server = serve(writer())
    settings = ("OBLIQ-Mini-Math", "--lens", "math", "--limit", 8, "--per-document", 2, "-o")
    assert run("synth", *settings, tmp_path / "a.jsonl").exit_code == 0
    asked = len(server.bodies)
    assert asked == 24
    replayed = run("synth", *settings, tmp_path / "b.jsonl", "--replay")
    assert replayed.exit_code == 0, replayed.stderr
    assert len(server.bodies) == asked
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    first, second = (json.loads((tmp_path / f"{name}.jsonl.manifest.json").read_text()) for name in "ab")
    for key in ("content", "settings", "inputs", "seed", "counts"):
        assert first[key] == second[key], key


def test_a_killed_run_goes_on_where_it_was(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch, obliq_home: Path
) -> None:
    """After 40 answers SIGKILL ends the process; no file is left. The rerun asks for the rest alone.

    Of 2 x 40 questions at most four, which were on their way, are asked twice.
    """
    server = serve(writer(), delay=0.05)
    settings = ("OBLIQ-Mini-Math", "--lens", "math", "--limit", 40, "--concurrency", 4, "-o")
    output = tmp_path / "killed.jsonl"
    process = start(("synth", *settings, output), OBLIQ_HOME=str(obliq_home))
    deadline = time.monotonic() + 120
    while len(server.bodies) < 40 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = len(server.bodies)
    assert 40 <= before < 80
    assert not output.exists()

    again = run("synth", *settings, output)
    assert again.exit_code == 0, again.stderr
    assert len(server.bodies) <= 80 + 4
    monkeypatch.setenv("OBLIQ_HOME", str(tmp_path / "another home"))
    server.delay = 0.0
    whole = tmp_path / "whole.jsonl"
    assert run("synth", *settings, whole).exit_code == 0
    assert output.read_bytes() == whole.read_bytes()
    assert len(rows(whole)) == 40


def test_the_gate_rejects_reports_and_ends_with_status_1(tmp_path: Path, serve: Serve) -> None:
    """A model that recites: every sample of both documents is rejected, and nothing is left of them."""
    folder = tmp_path / "reviews"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.txt").write_text(f"The waiter {name} brought the soup cold and we waited an hour.", "utf-8")

    def recite(asked: Any) -> Any:
        from obliq_eval.demo.personalities import Answer

        key = "description" if '{"description":' in asked.prompt else "query"
        return Answer(json.dumps({key: "waiter brought the soup cold and we waited an hour"}))

    serve(recite)
    done = run("synth", folder, "--lens", DATA / "stance.toml", "--tries", 2, "-o", tmp_path / "out.jsonl")
    assert done.exit_code == 1
    assert "100.0% of the queries were not written" in done.stderr
    counts = json.loads((tmp_path / "out.jsonl.manifest.json").read_text())["counts"]
    assert counts["rejected: copies a span of its source"] == 4
    assert counts["queries given up"] == 2
    open_gate = run("synth", folder, "--lens", DATA / "stance.toml", "--no-gate", "-o", tmp_path / "open.jsonl")
    assert open_gate.exit_code == 1  # the second repeats the first, whatever the sample
    [row] = rows(tmp_path / "open.jsonl")
    assert "task" not in row


def test_an_estimate_makes_no_call(tmp_path: Path, serve: Serve) -> None:
    server = serve(writer())
    settings = ("synth", "OBLIQ-Mini-Math", "--lens", "math", "--limit", 5, "-o", tmp_path / "x.jsonl")
    first = json.loads(run(*settings, "--estimate", "--json", "--rate", "2").stdout)
    assert (first["documents"], first["calls"], first["stored"], first["seconds"]) == (5, 10, 0, 5.0)
    assert not server.bodies
    assert not (tmp_path / "x.jsonl").exists()
    assert run(*settings).exit_code == 0
    second = json.loads(run(*settings, "--estimate", "--json").stdout)
    assert (second["calls"], second["stored"]) == (0, 10)


def test_what_cannot_be_done_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OBLIQ_LLM"):
        monkeypatch.delenv(name, raising=False)
    lens = ("--lens", "math", "-o", tmp_path / "x.jsonl")
    for arguments, told in (
        (("OBLIQ-Mini-Math", *lens), "a language model is needed"),
        (("OBLIQ-Mini-Mth", *lens), 'did you mean "OBLIQ-Mini-Math"'),
        (("OBLIQ-Mini-Math", *lens, "--cap", "coverag=1"), 'did you mean "coverage"'),
        (("OBLIQ-Mini-Math", "--lens", "maths"), 'did you mean "math"'),
    ):
        done = run("synth", *arguments)
        assert done.exit_code == 2
        assert told in done.stderr
    assert not (tmp_path / "x.jsonl").exists()


def test_training_asks_the_hub_for_no_judgments(tmp_path: Path, serve: Serve) -> None:
    """Synthesis, the graph and negatives over an official task: its corpus is fetched, and nothing else of it."""
    serve(writer())
    with LoopbackHub([official_repo(tmp_path / "repo")]) as hub:
        env = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf")}
        synthetic, edges = tmp_path / "s.jsonl", tmp_path / "e.jsonl"
        process = start(
            ("synth", "OBLIQ-Writing", "--lens", "writing", "--limit", 5, "-o", synthetic),
            ("graph", "OBLIQ-Writing", "-m", "stylometry", "-k", 2, "-o", edges),
            ("negatives", synthetic, "--data", "OBLIQ-Writing", "-n", 2, "-o", tmp_path / "s.rows.jsonl"),
            ("negatives", edges, "--data", "OBLIQ-Writing", "--anchor", "document", "-o", tmp_path / "e.rows.jsonl"),
            ("mix", tmp_path / "s.rows.jsonl", tmp_path / "e.rows.jsonl", "-o", tmp_path / "rows.jsonl"),
            **env,
        )
        _, told = process.communicate()
        assert process.returncode == 0, told
        paths = [path for _, path in hub.requests]
    assert any(path.endswith("analogues/writing/corpus/corpus.jsonl") for path in paths)
    assert not [path for path in paths if "qrels" in path or "queries" in path]
    ids = {identifier for identifier, _ in toy_task("analogues/writing").corpus}
    assert {row["document"] for row in rows(synthetic)} < ids
