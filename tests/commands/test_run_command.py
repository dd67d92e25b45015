"""`obliq run`: what it hands to mteb, what it prints, and how it refuses."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from obliq_eval import catalogue, running, runs
from obliq_eval.catalogue import ModelEntry
from obliq_eval.cli import app
from obliq_eval.commands.run import spread
from obliq_eval.data.sources import open_source
from obliq_eval.demo.toy import write_official
from obliq_eval.metrics import score

RUNNER = CliRunner()

NAN_MODEL = """
import numpy as np
from mteb.models.abs_encoder import AbsEncoder

class Broken(AbsEncoder):
    mteb_model_meta = None

    def __init__(self, name, revision, device=None, **settings):
        pass

    def encode(self, inputs, **settings):
        return np.full((len(inputs.dataset), 4), np.nan, dtype=np.float32)
"""


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OBLIQ_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalogue, "_registered", {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The toy of Math: gold and pooled judgments, exclusions."""
    write_official(tmp_path / "my-math", "analogues/math")
    return tmp_path / "my-math"


def run(*arguments: object) -> Any:
    """Run `obliq run` in this process."""
    return RUNNER.invoke(app, ["run", *map(str, arguments)])


def test_several_values_may_follow_one_option() -> None:
    assert spread(["-m", "x", "-t", "A", "B", "--device", "cpu", "--data", "d", "e", "-v", "1"]) == [
        "-m", "x", "-t", "A", "-t", "B", "--device", "cpu", "--data", "d", "--data", "e", "-v", "1",
    ]  # fmt: skip
    assert spread(["--tasks=A", "B"]) == ["--tasks=A", "--tasks", "B"]
    assert spread(["--batch_size", "3", "--output_folder=a_b"]) == ["--batch-size", "3", "--output-folder=a_b"]
    assert spread(["-t", "A", "--json"]) == ["-t", "A", "--json"]
    assert spread([]) == []
    assert spread(["-mmy_model.toml", "-v_1", "-x_y"]) == ["-mmy_model.toml", "-v_1", "-x_y"]
    assert spread(["-tA_1", "B_2"]) == ["-tA_1", "-t", "B_2"]


def test_a_folder_is_evaluated_under_both_judgments_and_then_served_from_the_result_file(folder: Path) -> None:
    done = run("-m", "bm25", "--data", folder, "--json")
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)
    assert (found["task"], found["model"], found["benchmark"]) == ("my-math", "obliq/bm25", None)
    assert (found["cached"], found["stored"], found["rounded"]) == (False, True, False)

    data = open_source(folder).dataset
    stored = runs.load(found["run"]).read()
    for name, judgments in data.judgments().items():
        means = score(stored, judgments, ("ndcg@10", "recall@100")).means()
        assert {m: found["scores"][name][m] for m in means} == pytest.approx(means, abs=1e-12)
    (row,) = json.loads(Path(found["result"]).read_text())["scores"]["test"]
    assert row["ndcg_at_10"] == pytest.approx(found["scores"]["gold"]["ndcg@10"], abs=6e-6)
    assert found["main_score"] == row["main_score"]

    table = run("-m", "bm25", "--data", folder)
    assert table.exit_code == 0
    assert "nothing was run" in table.stdout
    assert found["run"] in table.stdout
    rows = [line.split() for line in table.stdout.splitlines() if line.split()[:2] == ["my-math", "obliq/bm25"]]
    assert [cells[2] for cells in rows] == ["gold", "pooled"]
    assert rows[0][5] == f"{found['scores']['gold']['ndcg@10']:.3f}"
    assert table.stderr == ""

    always = run("-m", "bm25", "--data", folder, "--overwrite-strategy", "always", "--json")
    assert json.loads(always.stdout)[0]["cached"] is False


def test_scores_of_a_run_that_is_gone_are_the_rounded_ones(folder: Path, tmp_path: Path) -> None:
    first = json.loads(run("-m", "bm25", "--data", folder, "--json").stdout)[0]
    for path in (tmp_path / "home" / "runs" / first["run"]).iterdir():
        path.unlink()
    again = json.loads(run("-m", "bm25", "--data", folder, "--json").stdout)[0]
    assert (again["stored"], again["rounded"]) == (False, True)
    assert again["scores"]["pooled"]["ndcg@10"] == round(first["scores"]["pooled"]["ndcg@10"], 5)
    assert "no longer in the store" in run("-m", "bm25", "--data", folder).stdout


def test_prediction_file_batch_size_and_output_folder_reach_mteb(folder: Path, tmp_path: Path) -> None:
    done = run(
        "-m", "bm25", "--data", folder, "--prediction-folder", tmp_path / "pred", "--batch_size", 3,
        "--output-folder", tmp_path / "out", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert list((tmp_path / "pred").rglob("*my-math*"))
    assert json.loads(done.stdout)[0]["result"].startswith(str(tmp_path / "out"))
    (entry,), _ = runs.scan()
    assert entry.manifest is not None
    assert entry.manifest.model.settings["batch_size"] == 3


def test_a_model_file_is_read_by_reference(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "speller.py").write_text(
        "from obliq_eval.catalogue import ModelEntry\n"
        "def read(text):\n"
        "    return ModelEntry(name='local/' + open(text).read(), alias='mine', revision='9',\n"
        "                      loader='obliq_models.retrievers.bm25:load', settings={'variant': 'default'})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(running, "FIND", "speller:read")
    (tmp_path / "my.toml").write_text("my-own")
    done = run("-m", "my.toml", "--data", folder, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)[0]["model"] == "local/my-own"


def test_the_reader_of_model_files_is_where_it_is_said_to_be(folder: Path) -> None:
    done = run("-m", "missing.toml", "--data", folder)
    assert done.exit_code == 2
    assert "missing.toml" in done.stderr


def test_a_model_that_answers_nan_is_refused_in_one_sentence(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nan_model.py").write_text(NAN_MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    running.import_mteb()
    catalogue.register(ModelEntry(name="test/nan", alias="nan", loader="nan_model:Broken", revision="1"))
    done = run("-m", "nan", "--data", folder)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "test/nan returned NaN or infinity" in done.stderr
    assert "Traceback" not in done.stderr
    assert runs.scan() == ([], [])
    assert not list(tmp_path.glob("results/**/my-math.json"))


def test_one_task_that_fails_leaves_the_others_be(folder: Path, tmp_path: Path) -> None:
    write_official(tmp_path / "broken", "analogues/writing")
    corpus = tmp_path / "broken" / "corpus" / "corpus.jsonl"
    corpus.write_text(corpus.read_text() * 2)  # every id twice
    done = run("-m", "bm25", "--data", tmp_path / "broken", folder)
    assert done.exit_code == 2
    assert "my-math" in done.stdout
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: not evaluated: ")
    assert "repeat an id" in last


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("-m", "stylometri", "-t", "OBLIQ-Math"), "no model is called 'stylometri'; did you mean \"stylometry\"?"),
        (("-m", "bm25", "-t", "OBLIQ-Maths"), "no task is called 'OBLIQ-Maths'; did you mean \"OBLIQ-Math\"?"),
        (("-m", "bm25", "-t", "NFCorpuss"), "no task is called 'NFCorpuss'; did you mean \"NFCorpus\"?"),
        (("-m", "bm25", "-b", "OBLIQ-Bnch"), "no benchmark is called 'OBLIQ-Bnch'; did you mean \"OBLIQ-Bench\"?"),
        (("-m", "bm25"), "no task is chosen"),
        (("-m", "bm25", "--data", "nowhere"), "nowhere holds neither"),
        (("-m", "bm25", "-t", "OBLIQ-Math", "--overwrite-strategy", "sometimes"), "only-missing, always, never"),
        (("-m", "bm25", "-t", "OBLIQ-Math", "--model-revision", "77"), "revision 77 not found"),
        (("-mmy_model.toml", "-t", "OBLIQ-Math"), "cannot read my_model.toml"),
        (("-m", "bm25", "-m", "minilm", "-t", "OBLIQ-Math"), "--model is given 2 times"),
        (("-m", "bm25", "-t", "OBLIQ-Math", "--output-folder=a", "--output_folder", "b"), "--output-folder is given 2"),
        (("-m", "bm25", "-t", "OBLIQ-Math", "--device", "nonsense"), "there is no device 'nonsense' here"),
        (("-m", "bm25", "-t", "OBLIQ-Math", "--device", "meta"), "there is no device 'meta' here"),
        (("-m", "bm25", "-t", "OBLIQ-Math", "--device", "999"), "there is no device '999' here"),
        (("-m", "x" * 300, "-t", "OBLIQ-Math"), "no model is called 'xxx"),
        (("-m", "./nothing/here", "-t", "OBLIQ-Math"), "no model is called './nothing/here'"),
        (("-m", "bm25", "--data", "d", "--eval-splits", "test"), "--eval-splits test is for mteb's tasks"),
        (("-m", "bm25", "--data", "d", "-l", "deu", "--task-types", "Retrieval"), "--languages deu, --task-types Retr"),
        (("-m", "bm25", "-b", "OBLIQ-Mini", "-t", "SciFact"), "leave -t out"),
        (("-m", "bm25", "-b", "OBLIQ-Mini", "--categories", "t2t"), "leave --categories t2t out"),
        (("-m", "bm25", "-t", "SciFact", "--task-types", "Reranking"), "--task-types Reranking chooses among mteb's"),
        (("-m", "bm25", "-t", "SciFact", "--eval-splits", "nope"), "SciFact has no split 'nope'"),
        (
            ("-m", "bm25", "-t", "SciFact", "BelebeleRetrieval", "-l", "deu"),
            "--languages deu leaves nothing of SciFact",
        ),
        (("-m", "bm25", "-l", "xxx"), "--languages xxx: Invalid language code"),
        (("-m", "bm25", "--task-types", "Retreival"), "no task of mteb fits --task-types Retreival"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_folder_of_weights_is_answered_with_the_file_that_it_needs(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    for name in ("weights", "./weights", str(tmp_path / "weights")):
        done = run("-m", name, "-t", "OBLIQ-Math")
        assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
        assert f'path = "{name}"' in done.stderr
        assert "-m my-model.toml" in done.stderr


def test_two_folders_of_one_name_are_refused_and_one_given_twice_is_run_once(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    write_official(tmp_path / "other" / "my-math", "analogues/writing")
    done = run("-m", "bm25", "--data", folder, tmp_path / "other" / "my-math")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "have one name" in done.stderr
    twice = run("-m", "bm25", "--data", folder, "my-math", "-t", "OBLIQ-Mini-Math", "OBLIQ-Mini-Math", "--json")
    assert [found["task"] for found in json.loads(twice.stdout)] == ["OBLIQ-Mini-Math", "my-math"]


@pytest.mark.parametrize("content", ["", "half", "[]", "{}", '{"a": 1}', "\x00", "[" * 100_000])
@pytest.mark.parametrize("strategy", ["only-missing", "always", "never"])
def test_a_result_file_that_cannot_be_read_is_set_aside(content: str, strategy: str, folder: Path) -> None:
    first = json.loads(run("-m", "bm25", "--data", folder, "--json").stdout)[0]
    path = Path(first["result"])
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2] if content == "half" else content)
    damaged = path.read_text()
    again = run("-m", "bm25", "--data", folder, "--overwrite-strategy", strategy, "--json")
    assert again.exit_code == 0, again.output
    (found,) = json.loads(again.stdout)
    assert (found["cached"], found["scores"]) == (False, first["scores"])
    assert "is no file that mteb can read" in again.stderr
    assert path.with_name("my-math.json.unreadable").read_text() == damaged
    served = run("-m", "bm25", "--data", folder, "--json")
    assert (json.loads(served.stdout)[0]["cached"], served.stderr) == (True, "")


@pytest.mark.parametrize("content", ["", "[]", '{"default": []}', '{"default": {"te'])
def test_a_prediction_file_that_cannot_be_read_is_set_aside(content: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "pred").mkdir()
    (tmp_path / "pred" / "my-math_predictions.json").write_text(content)
    done = run("-m", "bm25", "--data", folder, "--prediction-folder", "pred")
    assert done.exit_code == 0, done.output
    assert "is no file that mteb can read" in done.stderr
    assert (tmp_path / "pred" / "my-math_predictions.json.unreadable").read_text() == content
    assert json.loads((tmp_path / "pred" / "my-math_predictions.json").read_text())["default"]["test"]


@pytest.mark.parametrize("option", ["--output-folder", "--prediction-folder"])
@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_file_in_place_of_a_folder_is_said_before_anything_is_computed(
    option: str, below: str, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    done = run("-m", "bm25", "--data", folder, option, tmp_path / "file" / below)
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert f"there is a file where a folder is needed; choose another {option}" in done.stderr
    assert runs.scan() == ([], [])
    assert (tmp_path / "file").read_text() == "mine"


def test_a_name_too_long_for_a_file_is_said_before_anything_is_computed(tmp_path: Path) -> None:
    for name, options in (("x" * 255, ()), ("y" * 245, ("--prediction-folder", "pred"))):
        write_official(tmp_path / name, "analogues/math")
        done = run("-m", "bm25", "--data", name, *options)
        assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
        assert f"File name too long; shorten the name {name}" in done.stderr
        assert runs.scan() == ([], [])


def test_a_disk_that_fills_up_leaves_no_half_written_result(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mteb.results import TaskResult

    def torn(_: object, path: Path) -> None:
        path.write_text('{"dataset_rev')
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TaskResult, "to_disk", torn)
    done = run("-m", "bm25", "--data", folder)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "error: not evaluated: my-math: No space left on device; free space" in done.stderr
    assert not list(Path("results").rglob("my-math.json"))


def test_a_defect_in_one_task_leaves_the_others_be(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_official(folder.with_name("second"), "analogues/writing")
    evaluate = running.evaluate

    def breaks(request: Any, task: Any, model: Any) -> Any:
        if task.metadata.name == "second":
            raise ZeroDivisionError("by nought")
        return evaluate(request, task, model)

    monkeypatch.setattr(running, "evaluate", breaks)
    done = run("-m", "bm25", "--data", "second", folder)
    assert done.exit_code == 2
    assert "my-math" in done.stdout
    assert "error: not evaluated: second: ZeroDivisionError: by nought; this is a defect" in done.stderr


def test_a_cache_of_mtebs_that_cannot_be_made_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: str) -> Any:
        raise PermissionError(13, "Permission denied", "home/.cache/mteb")

    monkeypatch.setattr(running, "importlib", SimpleNamespace(import_module=refused))
    running.import_mteb.cache_clear()
    done = run("-m", "bm25", "-t", "OBLIQ-Math")
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert "home/.cache/mteb: Permission denied" in done.stderr
    assert "MTEB_CACHE" in done.stderr


def test_only_cache_without_a_result_is_refused(folder: Path) -> None:
    done = run("-m", "bm25", "--data", folder, "--overwrite-strategy", "only-cache")
    assert done.exit_code == 2
    assert "no results found in cache" in done.stderr


def drop_one_query(folder: Path) -> None:
    """Set the grades of one query to 0, which leaves it without a relevant document."""
    qrels = folder / "queries+qrels" / "qrels.tsv"
    header, *rows = (line.split("\t") for line in qrels.read_text(encoding="utf-8").splitlines())
    rows = [[q, d, "0" if q == rows[0][0] else grade] for q, d, grade in rows]
    qrels.write_text("".join("\t".join(row) + "\n" for row in (header, *rows)), encoding="utf-8")


def test_changed_data_is_never_answered_with_an_old_result(folder: Path) -> None:
    before = json.loads(run("-m", "bm25", "--data", folder, "--json").stdout)[0]
    drop_one_query(folder)
    for strategy in ("never", "only-cache"):
        refused = run("-m", "bm25", "--data", folder, "--overwrite-strategy", strategy)
        assert refused.exit_code == 2
        assert "--overwrite-strategy always" in refused.stderr
    after = json.loads(run("-m", "bm25", "--data", folder, "--json").stdout)[0]
    assert after["cached"] is False
    assert after["queries"] == before["queries"] - 1
    assert after["run"] != before["run"]


def test_what_obliq_logs_is_shown_as_a_warning(folder: Path) -> None:
    drop_one_query(folder)
    done = run("-m", "bm25", "--data", folder)
    assert done.exit_code == 0
    assert "warning: my-math: 1 queries have no relevant document" in done.stderr
    assert [type(handler).__name__ for handler in logging.getLogger("obliq").handlers].count("_Warnings") == 1


def test_a_risk_is_said_where_the_model_is_chosen(tmp_path: Path) -> None:
    write_official(tmp_path / "mine", "analogues/writing")
    done = run("-m", "stylometry", "--data", tmp_path / "mine")
    assert done.exit_code == 0, done.output
    assert catalogue.resolve("stylometry").risk in done.stderr


def test_the_risk_of_what_a_checkpoint_or_a_fusion_is_made_from_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    from obliq_eval.commands.run import _mention_licence

    for name in ("obliq-ir@nowhere", "fuse:bm25,obliq-ir"):
        _mention_licence(name)
        assert f"obliq-ir: {catalogue.resolve('obliq-ir').risk} (licence: cc-by-nc-4.0)" in " ".join(
            capsys.readouterr().err.split()
        )
    _mention_licence("unknown")
    assert capsys.readouterr().err == ""
