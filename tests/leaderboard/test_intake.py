"""What `add`, `verify`, `build` and the reader of submissions refuse."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval import runs
from obliq_eval.data.corpus import ids_of
from obliq_eval.data.sources import load
from obliq_eval.data.split import covered
from obliq_eval.errors import UserError
from obliq_eval.leaderboard import intake, publish
from obliq_eval.leaderboard.entries import Exposure
from obliq_eval.leaderboard.submissions import load_submissions, parsed, read_about
from obliq_eval.manifest import Data, Manifest, Model
from obliq_eval.records import Run
from obliq_eval.run_files import read_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TASK = "OBLIQ-Mini-Congress"
SAID = {"description": "Half.", "licence": "mit"}


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> runs.StoredRun:
    """A run of depth 10 that answers one query right."""
    monkeypatch.setenv("OBLIQ_HOME", str(tmp_path / "home"))
    data = load(TASK)
    query = data.gold.queries[0]
    manifest = Manifest(
        TASK, Data(TASK, data.revision, "mini"), Model("me/half"), 10, 1, versions={}, hardware="a machine"
    )
    return runs.store(Run.of({query: {next(iter(data.gold.grades[query])): 1.0}}, 10), manifest)


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")


@pytest.mark.parametrize("depth", [1000, 0])
def test_the_depths_of_run_and_manifest_must_agree(tmp_path: Path, stored: runs.StoredRun, depth: int) -> None:
    root = tmp_path / "boards"
    (added,) = intake.add(stored.name, root, SAID)
    edit(added / "manifest.json", depth=depth)
    (found,) = intake.verify(root)
    assert not found.good
    assert f"is 10 documents deep, but its manifest.json says {depth}" in found.problem
    problems: list[str] = []
    assert stored.manifest is not None
    assert intake.take(replace(stored, manifest=replace(stored.manifest, depth=depth)), {}, problems) is None
    assert len(problems) == 1


def test_a_system_keeps_its_facts_and_lends_them_to_no_other(tmp_path: Path, stored: runs.StoredRun) -> None:
    root = tmp_path / "boards"
    facts: dict[str, Any] = {
        "label": "The half", "links": ("https://a.example",), "ran_by": "us", "oracle": True,
        "exposure": Exposure(trained_on_corpus=True),
    }  # fmt: skip
    for system in ("me/half", "Mine"):
        intake.add(stored.name, root, SAID | facts | {"system": system})
    first, second = (root / "mini" / name / "submission.toml" for name in ("me-half", "mine"))
    before = read_about(first), read_about(second)
    intake.add(stored.name, root, {})
    intake.add(stored.name, root, {"system": "Mine"})
    assert (read_about(first), read_about(second)) == before
    assert before[1].label == "The half"
    with pytest.raises(UserError, match="description is missing"):
        intake.add(stored.name, root, {"system": "Other"})
    intake.add(stored.name, root, SAID | {"system": "Other"})
    other = read_about(root / "mini" / "other" / "submission.toml")
    assert (other.label, other.links, other.oracle, other.exposure) == ("", (), False, Exposure())
    intake.add(stored.name, root, {"exposure": Exposure(saw_dev=True)})
    assert read_about(first).exposure == Exposure(trained_on_corpus=True, saw_dev=True)


def test_the_run_of_an_oracle_is_added_as_one(tmp_path: Path, stored: runs.StoredRun) -> None:
    root = tmp_path / "boards"
    assert stored.manifest is not None
    seer = replace(stored.manifest, model=Model("me/seer", settings={"oracle": True}))
    run = runs.store(stored.read(), seer)
    intake.add(run.name, root, SAID)
    assert read_about(root / "mini" / "me-seer" / "submission.toml").oracle
    with pytest.raises(UserError, match="is the run of an oracle, a system that is shown judgments: add it with"):
        intake.add(run.name, root, SAID | {"oracle": False})
    with pytest.raises(UserError, match="is the run of an oracle"):
        intake.add(run.name, root, SAID | {"oracle": False, "system": "me/half"})


def test_an_unknown_key_of_exposure_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "submission.toml"
    path.write_text('system = "a"\n[exposure]\nsaw_devs = true\n')
    with pytest.raises(UserError, match=r"unknown field 'saw_devs' in \[exposure\]; did you mean \"saw_dev\"\?"):
        read_about(path)


def test_a_folder_is_named_by_its_system(submit: Callable[..., Path]) -> None:
    root = submit("Toy A", [0.5, 1.0])
    assert len(list(load_submissions(root))) == 1
    (root / "submissions" / "toy-a").rename(root / "submissions" / "toy-b")
    with pytest.raises(UserError, match=r"toy-b is about the system 'Toy A', whose folder is named 'toy-a'"):
        list(load_submissions(root))


def test_a_run_without_submission_toml_is_not_passed_over(submit: Callable[..., Path]) -> None:
    root = submit("toy", [0.5, 1.0])
    (root / "submissions" / "notes").mkdir()
    assert len(list(load_submissions(root))) == 1
    (root / "submissions" / "toy" / "submission.toml").unlink()
    with pytest.raises(UserError, match=r"toy holds a run, but no submission\.toml"):
        list(load_submissions(root))


@pytest.mark.parametrize("field", ["unjudged_at_10", "unknown", "unjudgeable", "n_queries"])
def test_verify_compares_every_count(tmp_path: Path, stored: runs.StoredRun, field: str) -> None:
    root = tmp_path / "boards"
    (added,) = intake.add(stored.name, root, SAID)
    assert all(found.good for found in intake.verify(root))
    if field == "n_queries":
        edit(added / "manifest.json", n_queries=7)
    else:
        judgments = json.loads((added / "scores.json").read_text("utf-8"))["judgments"]
        judgments["gold"][field] = ["q"] if field == "unjudgeable" else 777
        edit(added / "scores.json", judgments=judgments)
    (found,) = intake.verify(root)
    assert not found.good
    assert found.problem == f"{field}: not as recomputed"


@pytest.mark.parametrize("name", ["README.md", "OBLIQ-Math.md", "site/index.html", "site/mine.txt"])
def test_build_writes_over_nothing_that_it_did_not_make(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("Mine.\n")
    with pytest.raises(UserError, match="cannot build in"):
        publish.build(tmp_path)
    assert path.read_text() == "Mine.\n"
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]


def test_build_fills_an_empty_site_and_builds_again(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    assert publish.build(tmp_path) == publish.build(tmp_path)


def _scores(**changes: Any) -> str:
    row = {m: [0.5, 1.0] for m in ("ndcg@10", "ndcg@50", "recall@10", "recall@50", "recall@100", "recall@1000")}
    gold = {
        "queries": ["q0", "q1"], "values": row, "unanswered": [], "unjudgeable": [], "unknown": 0,
        "judged_at_10": 0.25, "unjudged_at_10": 3,
    }  # fmt: skip
    return json.dumps({"content": "abc", "judgments": {"gold": gold | changes}})


def test_the_scores_below_are_good_but_for_what_is_changed(submit: Callable[..., Path]) -> None:
    root = submit("toy", [0.5, 1.0])
    (root / "submissions/toy/OBLIQ-Math/scores.json").write_text(_scores())
    assert len(list(load_submissions(root))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"content": "abc", "judgments": {}}',
        '{"content": "abc", "judgments": []}',
        _scores().replace("ndcg@10", "ndcg@11"),
        _scores(queries=[]),
        _scores(unknown="0"),
        _scores(judged_at_10="0.25"),
        _scores().replace("[0.5, 1.0]", '["0.5", "1.0"]'),
        _scores().replace("[0.5, 1.0]", "[0.5, 1e400]"),
        _scores().replace("[0.5, 1.0]", "[0.5]"),
        "[" * 100_000,
    ],
    ids=range(11),
)
def test_tampered_scores_are_named(submit: Callable[..., Path], text: str) -> None:
    root = submit("toy", [0.5, 1.0])
    (root / "submissions/toy/OBLIQ-Math/scores.json").write_text(text)
    with pytest.raises(UserError, match=r"scores\.json is damaged"):
        list(load_submissions(root))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"seconds": 12.0', '"seconds": 1e400'),
        ('"seconds": 12.0', '"seconds": "12"'),
        ('"depth": 1000', '"depth": "1000"'),
        ('"scores": {}', '"scores": {"gold": {"ndcg@10": 1e400}}'),
        ("{", "[" * 100_000),
        ('"created": "2026-01-02T03:04:05+00:00"', '"created": "once"'),
    ],
    ids=range(6),
)
def test_a_tampered_manifest_is_named(submit: Callable[..., Path], old: str, new: str) -> None:
    root = submit("toy", [0.5, 1.0])
    path = root / "submissions/toy/OBLIQ-Math/manifest.json"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UserError, match=r"manifest\.json is damaged"):
        list(load_submissions(root))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "^cannot read .*file.json .No such file"),
        (b"{", "file.json is damaged .Expecting"),
        (b"\xff", "file.json is damaged .*decode"),
        (b"[" * 200_000, "file.json is damaged .nested too deeply"),
    ],
    ids=range(4),
)
def test_whatever_is_wrong_with_a_file_is_told_with_the_remedy(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "file.json").write_bytes(content)
    with pytest.raises(UserError, match=f"{message}.*; make it again$"):
        parsed(tmp_path / "file.json", json.loads, "make it again")


def test_two_runs_of_one_system_added_at_once_both_stay(
    tmp_path: Path, stored: runs.StoredRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each `add` copies what stands there; without a lock the second one's copy lacks the first one's run."""
    data = load("OBLIQ-Mini-Math")
    query = data.gold.queries[0]
    manifest = Manifest(
        data.name, Data(data.name, data.revision, "mini"), Model("me/half"), 10, 1, versions={}, hardware="a machine"
    )
    other = runs.store(Run.of({query: {next(iter(data.gold.grades[query])): 1.0}}, 10), manifest)
    write = intake._write_compact

    def slowly(run: Run, path: Path) -> None:
        time.sleep(0.3)
        write(run, path)

    monkeypatch.setattr(intake, "_write_compact", slowly)
    root = tmp_path / "boards"
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda run: intake.add(run.name, root, SAID), (stored, other)))
    found = {path.name for path in (root / "mini" / "me-half").iterdir() if path.is_dir()}
    assert found == {TASK, "OBLIQ-Mini-Math"}


def test_what_is_replaced_and_renamed_is_said(
    tmp_path: Path, stored: runs.StoredRun, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "boards"
    intake.add(stored.name, root, SAID)
    assert not caplog.text
    intake.add(stored.name, root, {})
    assert "stood there already and is replaced; it counts as run by: submitter" in caplog.text
    intake.add(stored.name, root, SAID | {"system": "me/other"})
    assert "a run of me/half is added as me/other" in caplog.text


def whole(depth: int = 10, **changes: Any) -> runs.StoredRun:
    """A run over all queries: the relevant document comes first for a held-out query, and for no other."""
    data = load(TASK)
    held_out = covered(data, "held-out").queries
    none = next(d for d in ids_of(data.corpus.documents) if all(d not in some for some in data.gold.grades.values()))
    answers = {q: {next(iter(data.gold.grades[q])) if q in held_out else none: 1.0} for q in data.gold.queries}
    manifest = Manifest(
        TASK, Data(TASK, data.revision, "mini"), Model("me/part"), depth, len(answers), versions={},
        hardware="a machine", seconds=1.7,
    )  # fmt: skip
    return runs.store(Run.of(answers, depth), replace(manifest, **changes))


@pytest.mark.usefixtures("stored")
def test_a_part_of_a_run_over_all_queries_is_kept_and_scored(tmp_path: Path) -> None:
    """All held-out queries are answered right and no other is, so NDCG@10 is 1 over these, and 0 over dev."""
    root, run = tmp_path / "boards", whole()
    data = load(TASK)
    for part, value in (("held-out", 1.0), ("dev", 0.0), ("all", None)):
        (added,) = intake.add(run.name, root, SAID, part)  # type: ignore[arg-type] # parts by name
        (submitted,) = load_submissions(root)
        queries = covered(data, submitted.manifest.coverage).queries
        assert submitted.manifest.coverage == part
        assert set(submitted.panels["gold"].queries) == set(read_run(added / "run.parquet").rankings) == set(queries)
        assert submitted.manifest.n_queries == len(queries)
        assert submitted.manifest.seconds == (1.7 if part == "all" else None)
        if value is not None:
            assert submitted.panels["gold"].mean("ndcg@10") == value
        assert all(found.good for found in intake.verify(root))
    assert 0 < len(covered(data, "held-out").queries) < len(covered(data, "test").queries) < len(data.queries)


@pytest.mark.usefixtures("stored")
def test_a_part_that_was_not_asked_is_refused(tmp_path: Path) -> None:
    data, run = load(TASK), whole()
    test = covered(data, "test").queries
    part = runs.store(run.read().only(test), replace(run.manifest, coverage="test"))  # type: ignore[type-var] # it has one
    root = tmp_path / "boards"
    for wrong in ("all", "dev"):
        with pytest.raises(UserError, match=f"covers the test queries, so not all of the {wrong} ones"):
            intake.add(part.name, root, SAID, wrong)  # type: ignore[arg-type] # parts by name
    assert not root.exists()
    (added,) = intake.add(part.name, root, SAID, "held-out")
    assert set(read_run(added / "run.parquet").rankings) == set(covered(data, "held-out").queries)
