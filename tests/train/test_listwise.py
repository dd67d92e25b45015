"""The distilled reranker: what it reads, what it learns, resumed weights, and its folder behind a plus sign."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import CrossEncoder
from typer.testing import CliRunner

from obliq_eval import runs
from obliq_eval.cli import app
from obliq_eval.errors import UserError
from obliq_train import build as building
from obliq_train import data, listwise, recipe, trainer
from obliq_train.lenses import load as load_lens
from obliq_train.listwise_trainer import ListNet
from obliq_train.rows import Passage, Row
from tests.train.tiny import write_cross_encoder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from obliq_train.recipe import Recipe

WORDS = ("sea", "ship", "whale", "king", "tax", "war", "harvest", "law")
TEXTS = [f"{one} {two}" for one in WORDS for two in WORDS if one != two]
LENS = load_lens("math").instruction


def row(query: str, documents: list[str], scores: list[float] | None, source: str = "math", before: str = "") -> Row:
    more: dict[str, Any] = {} if scores is None else {"scores": {"pos": scores[:1], "neg": scores[1:]}}
    first, *others = (Passage("", text) for text in documents)
    return Row(Passage(before, query), (first,), tuple(others), source=source, more=more)


def whales(count: int = 12) -> list[Row]:
    """Lists whose teacher likes one thing alone: the word whale; each list has one such document, anywhere."""
    rng, rows = np.random.default_rng(0), []
    for _ in range(count):
        some = [TEXTS[at] for at in rng.permutation(len(TEXTS)) if "whale" not in TEXTS[at]][:3]
        some.insert(int(rng.integers(4)), f"whale {rng.choice(WORDS[3:])}")
        scores = [4.0 * ("whale" in text) for text in some]
        rows.append(row(str(rng.choice(WORDS)), some, scores, before="find"))
    return rows


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("models")
    words = [*TEXTS, LENS, "find"]
    return {
        "judge": write_cross_encoder(place / "judge", words),
        "encoder": write_cross_encoder(place / "encoder", words, head=False),
    }


def asked(base: Path, *changes: str) -> Recipe:
    return recipe.read(
        "distilled-listwise",
        [
            f"model.base={base}", "model.document_length=48", 'lora.targets=["query", "value", "dense"]', "lora.rank=8",
            "lora.dropout=0", "schedule.steps=12", "schedule.rate=0.01", "batch.per_device=4", "batch.accumulation=1",
            "run.precision=fp32", "run.log_steps=1", *changes,
        ],
    )  # fmt: skip


def given(folder: Path, rows: list[Row]) -> data.Data:
    path = folder / "rows.jsonl"
    path.write_text("".join(one.to_json() + "\n" for one in rows), "utf-8")
    return data.Data(path, {}, {}, {})


def test_a_query_stands_behind_the_instruction_of_its_task(bases: dict[str, Path]) -> None:
    """Its own where the rows have one, else that of the task's lens; none for a part without a task."""
    found = listwise.Lists.of(
        [row("sea", ["a", "b"], [1.0, 2.0]), row("war", ["a", "b"], [1.0, 2.0], "twitter", "Find:"),
         row("tax", ["a", "b"], [1.0, 2.0], "elsewhere")],
        asked(bases["judge"]),
    )  # fmt: skip
    assert found.queries == (f"{LENS} sea", "Find: war", "tax")
    assert found.prompts == {"OBLIQ-Math": f"{LENS} ", "OBLIQ-Twitter": "Find: "}
    several = [row("sea", ["a", "b"], [1.0, 2.0], before=before) for before in ("Find:", "Seek:")]
    with pytest.raises(UserError, match="the rows of OBLIQ-Math have 2 instructions"):
        listwise.Lists.of(several, asked(bases["judge"]))


def test_what_is_no_list_is_left_out_and_counted(bases: dict[str, Path]) -> None:
    rows = [row("sea", ["a", "b", "c"], [1.0, 2.0, 3.0]), row("war", ["a", "b"], None), row("tax", ["a"], [1.0])]
    found = listwise.Lists.of(rows, asked(bases["judge"]))
    assert found.documents == (("a", "b", "c"),)
    assert found.scores == ((1.0, 2.0, 3.0),)
    assert dict(found.counts) == {
        "rows": 1, "documents": 3,
        "rows left out, without a teacher's scores": 1, "rows left out, with one document": 1,
    }  # fmt: skip
    with pytest.raises(UserError, match="no row has a teacher's list"):
        listwise.Lists.of(rows[1:], asked(bases["judge"]))


def test_the_loss_is_the_cross_entropy_of_two_softmaxes(bases: dict[str, Path]) -> None:
    """- sum p log q, p of the teacher's scores 0, 1, 3 and 2, 0, q of the student's; the mean over two lists."""
    lists = listwise.Lists.of(
        [row("sea", ["king tax", "whale", "law"], [0.0, 1.0, 3.0], ""), row("war", ["ship", "sea"], [2.0, 0.0], "")],
        asked(bases["judge"]),
    )
    model = CrossEncoder(str(bases["judge"]), device="cpu", activation_fn=torch.nn.Identity())
    model.eval()
    loss = ListNet(model, lists)([{"input_ids": torch.tensor([1, 0])}])
    wanted = []
    for query, documents, scores in zip(lists.queries, lists.documents, lists.scores, strict=True):
        values = model.predict([(query, text) for text in documents]).astype(float)
        teacher = np.exp(scores) / np.exp(scores).sum()
        wanted.append(-(teacher * (values - np.log(np.exp(values).sum()))).sum())
    assert float(loss.detach()) == pytest.approx(np.mean(wanted), abs=1e-5)


@pytest.mark.parametrize(("base", "targets"), [("judge", '["query", "value", "dense"]'), ("encoder", "[]")])
def test_it_learns_its_teachers_lists_and_loads_as_any_cross_encoder(
    tmp_path: Path, bases: dict[str, Path], base: str, targets: str, write_task: Callable[..., Path]
) -> None:
    """The document with a whale comes first in new lists too: an adapter on a judge, and all of an encoder.

    On a folder, a task without an instruction, it reranks by its scores of the query alone.
    """
    before = {name: weight.clone() for name, weight in load_file(bases[base] / "model.safetensors").items()}
    output = tmp_path / "out" / "own"
    own = asked(bases[base], f"lora.targets={targets}", "schedule.steps=30")
    done = listwise.train(own, given(tmp_path, whales(24)), output)
    assert (done.folder, done.steps) == (output, 30)
    losses = [json.loads(line)["loss"] for line in (output / "curves.jsonl").read_text("utf-8").splitlines()]
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) / 2
    after = load_file(bases[base] / "model.safetensors")
    assert all(torch.equal(weight, before[name]) for name, weight in after.items())
    assert not (output / "adapter_config.json").exists()
    model = CrossEncoder(str(output), device="cpu")
    assert model.prompts == {"OBLIQ-Math": "find "}
    for query in WORDS[:4]:
        ranked = model.rank(query, ["king tax", "sea ship", "whale law", "war tax"], prompt="find ")
        assert ranked[0]["corpus_id"] == 2
    told = json.loads((output / "training.json").read_text("utf-8"))
    assert told["head"] == ("new" if base == "encoder" else "the base's own")
    assert told["texts"]["rows"] == 24
    assert "RETRIEVER+own" in (output / "README.md").read_text("utf-8")

    task = write_task({"a": "king tax", "b": "whale tax", "c": "war tax"}, {"q": "tax"}, {"q": {"b": 1}})
    run = CliRunner().invoke(app, ["run", "-m", f"bm25+{output}", "--data", str(task), "--output-folder",
                                   str(tmp_path / "results"), "--json"])  # fmt: skip
    assert run.exit_code == 0, run.output
    values = model.predict([("tax", text) for text in ("king tax", "whale tax", "war tax")], prompt="")
    wanted = [name for _, name in sorted(zip(-values, "abc", strict=True))]
    assert list(runs.load(json.loads(run.stdout)[0]["run"]).read().rankings["q"].documents) == wanted


def test_a_run_that_was_stopped_ends_with_the_same_weights(
    tmp_path: Path, bases: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped by a full disk at step 8 of 12; the same call goes on from step 4."""
    from obliq_train.checkpoints import Folder

    own, rows = asked(bases["encoder"], "run.save_steps=4"), given(tmp_path, whales())
    listwise.train(own, rows, tmp_path / "whole")
    keep = Folder.keep

    def full(self: Folder, step: int, most: int) -> Path:
        if step == 8:
            raise OSError(28, "No space left on device")
        return keep(self, step, most)

    with monkeypatch.context() as disk:
        disk.setattr(Folder, "keep", full)
        with pytest.raises(UserError, match=r"cannot save step 8 .* the last good checkpoint is .*checkpoint-4"):
            listwise.train(own, rows, tmp_path / "parts")
    assert not (tmp_path / "parts").exists()
    listwise.train(own, rows, tmp_path / "parts")
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(weight, second[name]) for name, weight in first.items())
    with pytest.raises(UserError, match="is trained already"):
        listwise.train(own, rows, tmp_path / "whole")


def test_a_loss_that_is_no_number_ends_it(
    tmp_path: Path, bases: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ListNet, "forward", lambda *_: torch.tensor(float("nan"), requires_grad=True))
    with pytest.raises(UserError, match="the loss is nan at step 1"):
        listwise.train(asked(bases["judge"]), given(tmp_path, whales()), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("targets", ["[]", '["query"]'])
def test_a_reranker_that_has_learnt_nothing_is_not_written(
    tmp_path: Path, bases: dict[str, Path], targets: str
) -> None:
    """The only step has the rate 0, with all weights trained and with an adapter beside the head."""
    recipe = asked(bases["judge"], f"lora.targets={targets}", "schedule.steps=1")
    with pytest.raises(UserError, match="nothing was learnt in 1 step, and nothing is written"):
        listwise.train(recipe, given(tmp_path, whales()), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_length_at_which_nothing_is_read_is_refused(tmp_path: Path, bases: dict[str, Path]) -> None:
    recipe = asked(bases["judge"], "model.document_length=3")
    with pytest.raises(UserError, match=r"model.document_length is 3, and the special tokens of .* alone are \d: give"):
        listwise.train(recipe, given(tmp_path, whales()), tmp_path / "out")


def test_what_cannot_be_trained(tmp_path: Path, bases: dict[str, Path]) -> None:
    rows = given(tmp_path, whales())
    with pytest.raises(UserError, match="trains a retriever, and this trains rerankers"):
        listwise.train(recipe.read("k3"), rows, tmp_path / "out")
    with pytest.raises(UserError, match="distilled-listwise trains a reranker"):
        trainer.train(asked(bases["judge"]), rows, tmp_path / "out")
    with pytest.raises(UserError, match="names q_proj"):
        listwise.train(asked(bases["judge"], 'lora.targets=["q_proj"]'), rows, tmp_path / "out")
    with pytest.raises(UserError, match=r"lora\.rank is 10,000, and no change of a layer"):
        listwise.train(asked(bases["judge"], "lora.rank=10000"), rows, tmp_path / "out")
    with pytest.raises(
        UserError, match=r"document_length is 100,000, and .* positions for query and document together"
    ):
        listwise.train(asked(bases["judge"], "model.document_length=100000"), rows, tmp_path / "out")
    own = asked(bases["judge"])
    first, second = (listwise.build(own, building.origin(own), {})[0].state_dict() for _ in range(2))
    assert all(torch.equal(weight, second[name]) for name, weight in first.items())
