"""Cross-encoders out of folders: as the half behind a plus sign, with a task's instruction, and what is refused."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch
from sentence_transformers import CrossEncoder
from typer.testing import CliRunner

from obliq_eval.cli import app
from obliq_eval.errors import UserError
from obliq_eval.tasks import MINI_TASKS
from obliq_models.naming import find
from obliq_models.rerankers import crossencoder
from obliq_models.rerankers.base import Query
from obliq_models.rerankers.conditional import instruction
from tests.train.tiny import write_cross_encoder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TEXTS = {"d1": "whales sing in the sea", "d2": "a ship in the sea", "d3": "the sea is cold", "d4": "a king of the sea"}
QUERY = "the sea and whales"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cross_encoder(tmp_path_factory.mktemp("models") / "judge", [*TEXTS.values(), QUERY, "find alike :"])


def saved(folder: Path, target: Path, **prompts: str) -> Path:
    model = CrossEncoder(
        str(folder), device="cpu", prompts={key.replace("_", "-"): told for key, told in prompts.items()}
    )
    model.activation_fn = torch.nn.Identity()
    model.save_pretrained(str(target), create_model_card=False)
    return target


def scored(folder: Path, task: Any) -> list[float]:
    model = crossencoder.CrossEncoder(crossencoder.load(str(folder), "cpu"), task=task)
    return model.grouped([(Query("q", QUERY), list(TEXTS.values()))])[0]


def test_a_folder_reranks_behind_a_plus_sign(folder: Path, write_task: Callable[..., Path], tmp_path: Path) -> None:
    """Its own order, by sentence-transformers; the retriever finds all four documents."""
    task = write_task(TEXTS, {"q": QUERY}, {"q": {"d1": 1}})
    done = CliRunner().invoke(app, ["run", "-m", f"bm25+{folder}", "--data", str(task), "--output-folder",
                                    str(tmp_path / "results"), "--json"])  # fmt: skip
    assert done.exit_code == 0, done.output
    [found] = json.loads(done.stdout)
    assert found["model"] == "local/bm25-then-judge"
    values = CrossEncoder(str(folder), device="cpu").predict([(QUERY, text) for text in TEXTS.values()])
    wanted = [name for _, name in sorted(zip(-values, TEXTS, strict=True))]
    from obliq_eval import runs

    assert list(runs.load(found["run"]).read().rankings["q"].documents) == wanted


def test_other_weights_are_another_model(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "judge"
    shutil.copytree(folder, copy)
    before = find(f"bm25+{copy}").revision
    assert find(f"bm25+{copy}").revision == before
    write_cross_encoder(copy, TEXTS.values(), seed=1)
    assert find(f"bm25+{copy}").revision != before


def test_the_instruction_of_the_task_stands_before_the_query(folder: Path, tmp_path: Path) -> None:
    """Saved for the official task, it holds for the mini task of the same attribute, and for no other."""
    place = saved(folder, tmp_path / "own", OBLIQ_Writing="find alike : ")
    tasks = {task.metadata.name: task.metadata for task in MINI_TASKS}
    plain = CrossEncoder(str(place), device="cpu", prompts={})

    def told(before: str) -> list[float]:
        return [float(one) for one in plain.predict([(before + QUERY, text) for text in TEXTS.values()])]

    assert scored(place, tasks["OBLIQ-Mini-Writing"]) == pytest.approx(told("find alike : "), abs=1e-6)
    assert scored(place, tasks["OBLIQ-Mini-Math"]) == pytest.approx(told(""), abs=1e-6)
    assert told("") != pytest.approx(told("find alike : "), abs=1e-4)
    assert instruction({"OBLIQ-Writing": "x"}, "OBLIQ-Writing") == "x"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ("no head", "holds no cross-encoder but BertModel, which would get a head of random weights"),
        ("classes", "is a classifier of 3 classes: a reranker gives one score"),
        ("pickle", "holds its weights in a form that can run code"),
        ("empty", "holds no model"),
        ("cut", r"holds no cross-encoder \("),
    ],
)
def test_what_is_no_cross_encoder_is_refused(folder: Path, tmp_path: Path, spoil: str, message: str) -> None:
    place = tmp_path / "spoilt"
    shutil.copytree(folder, place)
    weights = place / "model.safetensors"
    if spoil == "no head":
        write_cross_encoder(place, TEXTS.values(), head=False)
    elif spoil == "classes":
        config = json.loads((place / "config.json").read_text("utf-8"))
        labels = {"id2label": {n: str(n) for n in range(3)}, "label2id": {str(n): n for n in range(3)}}
        (place / "config.json").write_text(json.dumps(config | labels), "utf-8")
        weights.unlink()
        from transformers import AutoConfig, AutoModelForSequenceClassification

        library: Any = AutoModelForSequenceClassification
        library.from_config(AutoConfig.from_pretrained(place)).save_pretrained(place)
    elif spoil == "pickle":
        torch.save({}, place / "pytorch_model.bin")
        weights.unlink()
    elif spoil == "empty":
        (place / "config.json").unlink()
    else:
        weights.write_bytes(weights.read_bytes()[:200])
    with pytest.raises(UserError, match=message):
        crossencoder.load(str(place))
