"""OBLIQ-Mini from end to end, offline: graph, purity, queries, quality, negatives, mixture; all of it made again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from obliq_eval.cli import app
from obliq_eval.data.sources import MINI_FOLDER
from obliq_train import provenance
from obliq_train.lenses import load
from tests.train.conftest import CHECKED, DATA, checked, knowing

pytest.importorskip("openai", reason="the extra `openai` is optional")

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow  # all that makes training data, twice

RUNNER = CliRunner()
WRITING = "OBLIQ-Mini-Writing"


def run(*arguments: object, status: int = 0) -> Any:
    result = RUNNER.invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.stderr
    return result


def option(name: str, value: object) -> list[object]:
    return [] if value is None else [name, value]


def again(manifest: dict[str, Any], place: Path, output: Path) -> list[object]:
    """Return the command that a manifest describes, from its settings, seed and inputs alone."""
    told, seed = manifest["settings"], option("--seed", manifest["seed"])
    if manifest["command"] == "obliq graph":
        if "model" in told:
            made: list[object] = ["-m", told["model"], "-k", told["k"], *(["--mutual"] if told["mutual"] else [])]
        else:
            made = ["--edges", told["edges"]]
        keys = ("source", "source_pattern", "dose", "control", "match")
        made += [part for key in keys for part in option(f"--{key.replace('_', '-')}", told[key])]
        return ["graph", told["corpus"], *made, *seed, "-o", output]
    if manifest["command"] == "obliq negatives":
        flags = {"-n": "n", "--from": "from", "--anchor": "anchor", "--instruction": "instruction", "--bm25": "bm25",
                "--name": "name", "--graph": "graph", "--like": "like"}  # fmt: skip
        made = [part for flag, key in flags.items() for part in option(flag, told[key])]
        return ["negatives", told["file"], "--data", told["corpus"], *made, *seed, "-o", output]
    if manifest["command"] == "obliq synth":
        lens = told["lens"] if told["lens"] != "stance" else DATA / "stance.toml"
        made = ["--lens", lens, "--limit", told["limit"], "--per-document", told["per_document"], "--tries"]
        return ["synth", told["source"], *made, told["tries"], *seed, "-o", output]
    files = [told["files"][part["name"]] for part in told["parts"]]
    assert all(provenance.sha256(place / file) == manifest["inputs"][part["name"]]
               for file, part in zip(files, told["parts"], strict=True))  # fmt: skip
    return ["mix", *files, "--conflicts", told["conflicts"], *seed, "-o", output]


def test_from_a_corpus_to_a_mixture_and_every_file_again_from_its_manifest(
    tmp_path: Path, serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    address = ("--source", f"{MINI_FOLDER / 'writing' / 'provenance.tsv'}#speech", "--source-pattern", r"^(.*)-\d+$")
    run("graph", WRITING, "-m", "stylometry", "-k", 5, *address, "-o", "graph.jsonl")
    run("graph", WRITING, "--edges", "graph.jsonl", "--dose", 50, "--seed", 3, "-o", "dose.jsonl")
    run("graph", WRITING, "--edges", "dose.jsonl", "--control", "random", *address, "-o", "random.jsonl")
    found = json.loads(run("purity", "graph.jsonl", "-t", WRITING, *address, "--json").stdout)
    assert [found["by_k"][k]["edges"] for k in ("1", "3", "5")] == [655, 1_965, 3_275]
    run("negatives", "dose.jsonl", "--data", WRITING, "--graph", "graph.jsonl", "--anchor", "document")
    run("negatives", "random.jsonl", "--data", WRITING, "--like", "dose.jsonl", "--graph", "graph.jsonl",
        "--anchor", "document")  # fmt: skip
    parts, queries = [], 0
    for lens, task in CHECKED.items():
        serve(knowing(lens))
        wanted = {row["document"] for row in checked(lens)}
        texts = {row["_id"]: row["text"] for row in documents(task) if row["_id"] in wanted}
        own = tmp_path / f"{lens}-corpus.jsonl"
        own.write_text("".join(json.dumps({"_id": i, "text": text}) + "\n" for i, text in texts.items()), "utf-8")
        name = DATA / "stance.toml" if lens == "stance" else load(lens).name
        run("synth", own.name, "--lens", name, "--limit", 10, "-o", f"{lens}.jsonl")
        run("negatives", f"{lens}.jsonl", "--data", task, "-n", 4)
        parts.append(f"{lens}.rows.jsonl")
        [told] = json.loads(run("quality", f"{lens}.jsonl", "--json").stdout).values()
        assert (told["leakage"], told["copied"]) == (0, 0)
        queries += told["queries"]
    assert queries == 40
    run("mix", *parts, "dose.rows.jsonl", "--seed", 5, "-o", "rows.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text("utf-8").splitlines()]
    assert len(rows) == 90
    assert all(len(row["neg"]) == 4 and not set(row["pos_ids"]) & set(row["neg_ids"]) for row in rows)
    whole = sorted(tmp_path.glob("*.manifest.json"))
    assert len(whole) == 3 + 2 + 2 * len(CHECKED) + 1
    for file in whole:
        manifest = json.loads(file.read_text("utf-8"))
        if manifest["command"] == "obliq synth":
            serve(knowing(manifest["settings"]["lens"]))
        run(*again(manifest, tmp_path, tmp_path / "again.jsonl"))
        assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / manifest["file"]).read_bytes(), manifest["file"]


def documents(task: str) -> list[dict[str, Any]]:
    from obliq_eval.data.documents import read_source

    table = read_source(task).table
    return [{"_id": i, "text": text} for i, text in zip(table["id"][:], table["text"][:], strict=True)]
