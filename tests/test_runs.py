"""The run store: whole entries or none, nothing twice, and comparisons worked out by hand."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from obliq_eval import runs
from obliq_eval.errors import UserError
from obliq_eval.records import Run

if TYPE_CHECKING:
    from pathlib import Path

SCORES = {"q1": {"a": 3.0, "b": 2.0}, "q 2/é": {"007": 1.0, "7": 0.5}, "none": {}}
RUN = Run.of(SCORES, depth=10)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OBLIQ_HOME", str(tmp_path))
    return tmp_path / "runs"


def manifest(name: str = "org/model", **changes: Any) -> runs.Manifest:
    made = runs.Manifest(
        task="OBLIQ-Math",
        data=runs.Data("OBLIQ-Math", "4ebee29", "hub"),
        model=runs.Model(name, "r1", {"length": 512, "prefix": "query: "}),
        depth=10,
        n_queries=3,
        unanswered=("none",),
        counts={"dropped": 2},
        seed=42,
    )
    return replace(made, **changes)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name != ".lock")


def test_store_and_load_return_what_was_given(root: Path) -> None:
    stored = runs.store(RUN, manifest())
    again = runs.load(stored.name)
    assert again == stored
    assert again.read().to_dict() == RUN.to_dict()
    assert again.read().depth == 10
    assert again.manifest is not None
    assert again.manifest.unanswered == ("none",)
    assert again.manifest.versions["python"].count(".") == 2
    assert replace(again.manifest, run_id="", content="") == manifest(created=again.manifest.created)
    assert names(root) == [f"model_OBLIQ-Math-{manifest().fingerprint}"]
    assert names(root / stored.name) == ["manifest.json", "run.parquet"]
    with pytest.raises(FrozenInstanceError):
        again.manifest.task = "other"  # type: ignore[misc]


def test_names_of_any_kind_give_safe_folders(root: Path) -> None:
    model = runs.Model("org/../fuse:A, B\n" + "é" * 300, None)
    stored = runs.store(RUN, manifest(model=model, task="/"))
    assert [stored.path] == list(root.glob("*_*"))
    assert stored.path.name.startswith("fuse-A-B_run-")
    assert runs.load(stored.name) == stored


def test_every_part_of_the_fingerprint_counts() -> None:
    whole: dict[str, Any] = {
        "task": "t", "data_revision": "d", "model_name": "m", "model_revision": "r", "settings": {"a": 1, "b": 2},
        "depth": 10, "coverage": "all", "exclusions_sha": "e", "seed": None,
    }  # fmt: skip
    changes: dict[str, Any] = {
        "task": "u", "data_revision": None, "model_name": "n", "model_revision": None, "settings": {"a": 1, "b": 3},
        "depth": 11, "coverage": "dev", "exclusions_sha": "", "seed": 1,
    }  # fmt: skip
    prints = {runs.fingerprint(**(whole | {key: value})) for key, value in changes.items()}
    assert len(prints | {runs.fingerprint(**whole)}) == len(changes) + 1
    assert runs.fingerprint(**(whole | {"settings": {"b": 2, "a": 1}})) == runs.fingerprint(**whole)
    assert all(len(one) == 16 and int(one, 16) >= 0 for one in prints)


def test_content_hash_is_over_answers_and_depth() -> None:
    """Order of queries and empty answers do not count; documents, scores and depth do."""
    same = Run.of({"q 2/é": {"7": 0.5, "007": 1.0}, "q1": SCORES["q1"]}, depth=10)
    assert runs.content_hash(same) == runs.content_hash(RUN)
    others = [Run.of(SCORES, depth=11), Run.of(SCORES | {"q1": {"a": 3.0, "b": 2.5}}, depth=10), RUN.only(["q1"])]
    assert len({runs.content_hash(run) for run in [RUN, *others]}) == 4


def test_same_again_is_not_stored_again(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = runs.store(RUN, manifest(created="2020-01-01T00:00:00+00:00"))
    before = {path: path.stat().st_mtime_ns for path in first.path.iterdir()}
    second = runs.store(RUN, manifest(created="2021-01-01T00:00:00+00:00"))
    assert second == first
    assert {path: path.stat().st_mtime_ns for path in first.path.iterdir()} == before
    assert not caplog.records


def test_scores_are_added_to_a_run_that_has_none() -> None:
    first = runs.store(RUN, manifest())
    scores = {"gold": {"ndcg@10": 1 / 3}}
    assert runs.store(RUN, manifest(scores=scores)).manifest == replace(first.manifest, scores=scores)  # type: ignore[type-var]
    assert runs.load(first.name).manifest.scores == scores  # type: ignore[union-attr]


def test_another_result_replaces_and_warns(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = runs.store(RUN, manifest())
    other = Run.of(SCORES | {"q1": {"a": 2.0, "b": 3.0}}, depth=10)
    with caplog.at_level(logging.WARNING, logger="obliq"):
        second = runs.store(other, manifest())
    assert second.name == first.name
    assert names(root) == [first.name]
    assert runs.load(first.name).read().to_dict() == other.to_dict()
    assert "of 2 common queries 1 have the same top 10, 1 the same scores (largest difference 1.00e+00)" in caplog.text


DAMAGES = {
    "bad JSON": ("manifest.json", b'{"task": "OBLIQ-M'),
    "not an object": ("manifest.json", b"[1]"),
    "missing fields": ("manifest.json", b"{}"),
    "not text": ("manifest.json", b"\xff"),
    "half a run": ("run.parquet", b"PAR1 and then nothing"),
    "empty run": ("run.parquet", b""),
    "no run": ("run.parquet", None),
    "no manifest": ("manifest.json", None),
}


@pytest.mark.parametrize(("file", "content"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_entry_is_one_sentence_and_is_replaced(root: Path, file: str, content: bytes | None) -> None:
    whole = runs.store(RUN, manifest("org/whole"))
    broken = runs.store(RUN, manifest("org/broken"))
    (broken.path / file).unlink()
    if content is not None:
        (broken.path / file).write_bytes(content)
    entries, problems = runs.scan()
    assert entries == [whole]
    assert len(problems) == 1
    assert "\n" not in problems[0]
    assert f"{broken.name} is damaged" in problems[0]
    assert file in problems[0]
    with pytest.raises(UserError, match="is damaged"):
        runs.load(broken.name)
    runs.store(RUN, manifest("org/broken"))
    assert runs.load(broken.name).read().to_dict() == RUN.to_dict()
    assert runs.scan()[1] == []


def test_a_run_that_is_not_its_manifests_is_refused() -> None:
    one, two = runs.store(RUN, manifest("org/one")), runs.store(RUN.only(["q1"]), manifest("org/two"))
    (one.path / "run.parquet").write_bytes((two.path / "run.parquet").read_bytes())
    with pytest.raises(UserError, match="is damaged"):
        runs.load(one.name).read()


def test_references(tmp_path: Path) -> None:
    old = runs.store(RUN, manifest(created="2026-01-01T00:00:00+00:00"))
    new = runs.store(RUN, manifest(created="2026-01-01T00:30:00-01:00", depth=20))
    other = runs.store(RUN, manifest(model=runs.Model("org/other", alias="alias")))
    assert [entry.name for entry in runs.scan()[0]] == [other.name, new.name, old.name]
    for ref in (old.name, str(old.path), old.name[:-1], old.name.rpartition("-")[2], f"{old.path}/"):
        assert runs.load(ref) == old, ref
    for ref in ("org/model:OBLIQ-Math", "model:OBLIQ-Math"):
        assert runs.load(ref) == new, ref
    for ref in ("alias:OBLIQ-Math", "other:OBLIQ-Math", "alias_"):
        assert runs.load(ref) == other, ref
    (tmp_path / "x.trec").write_text("q Q0 d 1 1 t\n")
    outside = runs.load(str(tmp_path / "x.trec"))
    assert outside.manifest is None
    assert outside.read().to_dict() == {"q": {"d": 1.0}}


def test_references_that_mean_nothing_or_too_much() -> None:
    runs.store(RUN, manifest())
    runs.store(RUN, manifest(depth=20))
    with pytest.raises(UserError, match="begins 2 run ids"):
        runs.load("model_")
    with pytest.raises(UserError, match='did you mean "org/model:OBLIQ-Math"'):
        runs.load("org/modle:OBLIQ-Math")
    for ref in ("", ".", "..", "nothing", "x" * 300):  # no file system takes the last one as a name
        with pytest.raises(UserError, match="no run"):
            runs.load(ref)


def test_the_name_of_a_model_alone_is_answered_with_its_tasks() -> None:
    for task in ("OBLIQ-Math", "OBLIQ-Writing"):
        runs.store(RUN, manifest(model=runs.Model("obliq/bm25", alias="bm25"), task=task))
    for ref in ("bm25", "obliq/bm25"):
        with pytest.raises(
            UserError, match=rf"its stored runs are of OBLIQ-Math, OBLIQ-Writing; give {ref}:OBLIQ-Math"
        ):
            runs.load(ref)


def test_an_empty_store_is_no_error(root: Path) -> None:
    assert runs.scan() == ([], [])
    assert not root.exists()


def test_a_store_that_cannot_be_written_is_one_sentence(root: Path) -> None:
    root.write_text("a file where the folder should be")
    with pytest.raises(UserError, match="cannot write"):
        runs.store(RUN, manifest())


def test_diff_worked_out_by_hand() -> None:
    """Four common queries.

    same: all alike. scores: order alike, one score .25 higher. order: a, b swapped, so that each moves by 1.
    tail: alike in the first document, the second differs. Query `left` is in one run only; `none` has no answer.
    """
    a = Run.of(
        {
            "same": {"a": 2.0, "b": 1.0}, "scores": {"a": 2.0, "b": 1.0}, "order": {"a": 2.0, "b": 1.0},
            "tail": {"a": 2.0, "b": 1.0}, "left": {"a": 1.0}, "none": {},
        }
    )  # fmt: skip
    b = Run.of(
        {
            "same": {"a": 2.0, "b": 1.0}, "scores": {"a": 2.25, "b": 1.0}, "order": {"a": 1.0, "b": 2.0},
            "tail": {"a": 2.0, "c": 1.0}, "none": {"x": 1.0},
        }
    )  # fmt: skip
    found = runs.diff(a, b)
    assert found == runs.RunDiff(100, 4, ("left",), ("none",), 2, 1, 3, 1.0)
    assert not found.same
    assert runs.diff(a, b, depth=1) == runs.RunDiff(1, 4, ("left",), ("none",), 3, 2, 3, 0.25)


def test_diff_of_equal_runs_and_of_strangers() -> None:
    assert runs.diff(RUN, RUN) == runs.RunDiff(100, 2, (), (), 2, 2, 2, 0.0)
    assert runs.diff(RUN, RUN).same
    strangers = runs.diff(Run.of({"q": {"a": 1.0}}), Run.of({"q": {"b": 1.0}}))
    assert strangers == runs.RunDiff(100, 1, (), (), 0, 0, 0, None)
    assert not runs.diff(RUN, Run({}, 10)).same


def test_diff_sees_the_last_bit() -> None:
    step = float(np.nextafter(np.float32(1), np.float32(2)) - np.float32(1))
    found = runs.diff(Run.of({"q": {"a": 1.0}}), Run.of({"q": {"a": 1.0 + step}}))
    assert (found.same_order, found.same_scores, found.max_difference) == (1, 0, step)


CHILD = """
import json, os, signal, sys
from obliq_eval import runs
from obliq_eval.records import Run

kill_at, seed = sys.argv[1], int(sys.argv[2])
if kill_at:
    write = runs.write_run
    def dies(run, path, form):
        write(run, path, form)
        os.kill(os.getpid(), signal.SIGKILL)
    runs.write_run = dies
for turn in range(1 if kill_at else 4):
    run = Run.of({"q": {"a": 1.0, "b": float(seed * turn)}}, depth=10)
    runs.store(run, runs.Manifest("T", runs.Data("T", "r", "hub"), runs.Model("m"), 10, 1))
    for entry in runs.scan()[0]:
        entry.manifest
"""


def child(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments], env=os.environ, stderr=subprocess.PIPE, text=True
    )


def test_processes_may_store_the_same_run_at_once(root: Path) -> None:
    """Two of three processes store equal content, and the third another one: one whole entry is left."""
    children = [child("", seed) for seed in ("1", "1", "2")]
    errors = [process.communicate(timeout=120)[1] for process in children]
    assert [process.returncode for process in children] == [0, 0, 0], errors
    assert all("damaged" not in error for error in errors)
    entries, problems = runs.scan()
    assert problems == []
    assert len(entries) == 1
    assert entries[0].read().to_dict()["q"].keys() == {"a", "b"}
    assert names(root) == [entries[0].name]


def test_a_kill_leaves_only_what_the_next_store_removes(root: Path) -> None:
    process = child("killed", "1")
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert [name[:6] for name in names(root)] == [".part-"]
    assert runs.scan() == ([], [])
    stored = runs.store(RUN, manifest())
    assert names(root) == [stored.name]


def test_manifest_is_plain_json_that_a_later_version_may_extend() -> None:
    stored = runs.store(RUN, manifest(scores={"gold": {"ndcg@10": 0.1 + 0.2}}))
    path = stored.path / "manifest.json"
    record = json.loads(path.read_text())
    assert record["scores"] == {"gold": {"ndcg@10": 0.30000000000000004}}
    path.write_text(json.dumps(record | {"later": 1}))
    assert runs.load(stored.name) == stored
