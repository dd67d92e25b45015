"""`obliq mix`: recipes, files, and the authors' rows from the loopback hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from obliq_eval.cli import app
from obliq_eval.demo.hub import LoopbackHub, Repo
from obliq_train.authors import REPOSITORY, fetch

if TYPE_CHECKING:
    from pathlib import Path

RUNNER = CliRunner()
COMMIT = "a" * 40
MAIN = "from obliq_eval.cli import main; main()"
ROWS = [{"query": ["Find", f"q{n}"], "pos": [["", f"p{n}"]], "neg": [["", "n"]]} for n in range(4)]


def run(*arguments: object) -> Any:
    return RUNNER.invoke(app, ["mix", *map(str, arguments)])


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), "utf-8")
    return path


def authors(folder: Path) -> Repo:
    """A repository of unknown layout: rows of both shapes, and files that are none."""
    write(folder / "train" / "mix.jsonl", ROWS[:2])
    write(folder / "no-distill.jsonl", [{"query": "q9", "pos": ["p9"], "neg": ["n"]}])
    write(folder / "OBLIQ" / "queries.jsonl", [{"_id": "q", "text": "x"}])
    write(folder / "OBLIQ" / "qrels.jsonl", ROWS)
    write(folder / "runs" / "writing.jsonl", ROWS)
    (folder / "README.md").write_text("cc-by-nc-4.0", "utf-8")
    return Repo("dataset", REPOSITORY, folder, COMMIT)


def test_a_recipe_makes_the_same_bytes_and_says_what_went_in(tmp_path: Path) -> None:
    write(tmp_path / "rows" / "a.jsonl", ROWS)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('total = 3\n[[part]]\nname = "a"\nfile = "rows/a.jsonl"\ndose = 3\n', "utf-8")
    outputs = [tmp_path / f"{name}.jsonl" for name in ("x", "y")]
    for output in outputs:
        done = run(recipe, "-o", output, "--json")
        assert done.exit_code == 0, done.stderr
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    manifest = json.loads(done.stdout)
    assert manifest["lines"] == 3
    assert list(manifest["inputs"]) == ["a"]
    assert len(manifest["inputs"]["a"]) == 64
    assert manifest["settings"]["parts"][0]["share"] == "3 rows"
    other = run(recipe, "-o", outputs[1], "--seed", 5)
    assert other.exit_code == 0, other.stderr
    assert outputs[0].read_bytes() != outputs[1].read_bytes()


def test_the_papers_recipe_takes_files_and_warns(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", ROWS)
    names = ("twitter", "math", "writing", "congress", "writing-graph")
    given = [text for name in names for text in ("--file", f"{name}={file}")]
    done = run("paper", *given, "-o", tmp_path / "out.jsonl")
    assert done.exit_code == 0, done.stderr
    assert "the share of twitter is not published" in done.stderr
    assert "4 rows, and the recipe says 154,361" in done.stderr


def test_what_cannot_be_mixed_is_told(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", [{**ROWS[0], "neg": [["", "p0"]]}])
    for arguments, told in (
        ((file, "-o", tmp_path / "o.jsonl"), "line 1"),
        ((file, "-o", file), "is one of the inputs"),
        ((file, "--conflicts", "keep", "-o", tmp_path / "o.jsonl"), "neither refuse nor repair"),
        ((file, "--seed=-1", "-o", tmp_path / "o.jsonl"), "--seed"),
        (("papr", "-o", tmp_path / "o.jsonl"), 'did you mean "paper"'),
        (("paper", file), "give one recipe, or files of rows"),
        (("paper", "--file", "twitter"), "not of the form PART=FILE"),
        ((file, "--file", f"a={file}"), "--file belongs to a recipe"),
        ((tmp_path / "none.jsonl", "-o", tmp_path / "o.jsonl"), "cannot read"),
    ):
        done = run(*arguments)
        assert done.exit_code == 2, arguments
        assert told in done.stderr, done.stderr
    assert not (tmp_path / "o.jsonl").exists()


def test_the_authors_rows_are_found_by_their_form(tmp_path: Path) -> None:
    """Both shapes are rows; files whose paths say judgments or runs are not even asked for."""
    output = tmp_path / "rows.jsonl"
    with LoopbackHub([authors(tmp_path / "repo")]) as hub:
        done = subprocess.run(
            [sys.executable, "-c", MAIN, "mix", "hub:", "-o", str(output), "--json"],
            capture_output=True, text=True, check=False,
            env={**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf")},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        fetched = {path.rpartition("/resolve/")[2].partition("/")[2] for _, path in hub.requests if "/resolve/" in path}
    assert "CC-BY-NC-4.0" in done.stderr
    assert fetched == {"train/mix.jsonl", "no-distill.jsonl", "OBLIQ/queries.jsonl"}
    manifest = json.loads(done.stdout)
    assert manifest["settings"]["hub"] == {
        REPOSITORY: {"revision": COMMIT, "licence": "CC-BY-NC-4.0", "files": ["no-distill.jsonl", "train/mix.jsonl"]}
    }
    found = sorted(json.loads(line)["query"][1] for line in output.read_text("utf-8").splitlines())
    assert found == ["q0", "q1", "q9"]


def test_a_folder_in_the_authors_form(tmp_path: Path) -> None:
    authors(tmp_path / "copy")
    found = fetch(str(tmp_path / "copy"))
    assert sorted(found.files) == ["no-distill.jsonl", "train/mix.jsonl"]
    assert found.left["OBLIQ/queries.jsonl"] == "its first line is no training row"
    assert found.left["OBLIQ/qrels.jsonl"] == "not fetched: its path says qrels"
    assert found.left["README.md"] == "no .jsonl file"
