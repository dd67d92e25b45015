"""Two processes with gloo: what each anchor is contrasted with, and that gradients are those of one process."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

from obliq_eval.edges import Edge, edge_lines
from obliq_train.batches import TEXTS, TrainingSet
from obliq_train.losses import Contrast
from obliq_train.recipe import Base, Loss, Recipe
from obliq_train.rows import Passage, Row, row_lines
from tests.train.tiny import write_roberta

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCRIPT = Path(__file__).parent / "data" / "two_processes.py"
BASE = Base(base="x", query_prefix="query: ", document_prefix="passage: ", query_length=40, document_length=40)


def row(query: str, positive: str, *negatives: str) -> Row:
    scores = {"pos": [2.0], "neg": [len(text) / 50 for text in negatives]}
    return Row(
        Passage("", query), (Passage("", positive),), tuple(Passage("", n) for n in negatives), more={"scores": scores}
    )


def named(its: Row, anchor: str, *ids: str) -> Row:
    return replace(its, query_id=anchor, positive_ids=ids[:1], negative_ids=ids[1:])


ROWS = [
    row("whales sing", "songs of the cold and of the sea", "a ship of the north", "taxes and the harvest"),
    named(row("the king spoke", "to his people about the war"), "king", "people"),
    row("whales sing", "night falls where nobody sails in winter", "it was the best of times"),
    named(
        row("induction on edges", "the proof is by contradiction and by cases", "songs of the cold and of the sea"),
        "induction", "cases", "songs",
    ),
]  # fmt: skip
"""The first two are one process's, with three texts more than the other's. The third has the first one's query: its
positive answers the first, and the first's positive, which is the fourth's negative too, answers it."""
EDGES = {"": [Edge("king", "people", 1), Edge("king", "cases", 2)]}
"""In the graph alone the fourth's positive answers the second."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both processes' losses and gradients."""
    folder = tmp_path_factory.mktemp("processes")
    read = Transformer(str(write_roberta(folder / "plain")))
    SentenceTransformer(modules=[read, Pooling(32, "mean"), Normalize()], device="cpu").save_pretrained(
        str(folder / "model"), create_model_card=False
    )
    (folder / "rows.jsonl").write_text("".join(row_lines(ROWS)), "utf-8")
    (folder / "edges.jsonl").write_text("".join(edge_lines(EDGES[""])), "utf-8")
    (folder / "recipe.json").write_text(Recipe(name="r", purpose="a test", model=BASE).model_dump_json(), "utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    running = subprocess.Popen([*command, str(SCRIPT), str(folder)], stderr=subprocess.PIPE, text=True)
    try:
        _, told = running.communicate(timeout=900)
    finally:
        running.terminate()  # which ends both processes as well
    assert running.returncode == 0, told[-9000:]
    return folder


def alone(
    folder: Path, rows: Sequence[int], edges: Mapping[str, Sequence[Edge]] = EDGES, **loss: Any
) -> tuple[float, torch.Tensor]:
    """Loss and gradient of rows in this process."""
    model = SentenceTransformer(str(folder / "model"), device="cpu")
    recipe = Recipe(name="r", purpose="a test", model=BASE, loss=Loss(**loss))
    made = TrainingSet.of(ROWS, edges, model.tokenizer, recipe)
    batch = made.collate([{"row": number} for number in rows])
    found = Contrast(model, recipe.loss, 100)([{k.removeprefix(TEXTS): v for k, v in batch.items()}])
    found.backward()
    return found.item(), torch.cat([w.grad.flatten() for w in model.parameters() if w.grad is not None])


def processes(folder: Path, name: str) -> list[dict[str, Any]]:
    return [torch.load(folder / f"found-{rank}.pt")[name] for rank in (0, 1)]


def close(one: torch.Tensor, two: torch.Tensor) -> bool:
    return torch.allclose(one, two, atol=1e-5 * float(two.abs().max()))


@pytest.mark.parametrize("budget", [40, 60, 10_000])
@pytest.mark.parametrize("kind", ["infonce", "hybrid"])
def test_gathered_it_is_the_loss_of_all_rows_in_one_process(folder: Path, kind: str, budget: int) -> None:
    """The loss's mean over processes and the exchanged gradient, with activations kept of all, of some and of few."""
    loss, gradient = alone(folder, range(4), kind=kind)
    first, second = processes(folder, f"{kind} True {budget}")
    assert (first["loss"] + second["loss"]) / 2 == pytest.approx(loss, rel=1e-5)
    assert close(first["gradient"], gradient)
    assert torch.equal(first["gradient"], second["gradient"])


def test_an_answer_on_the_other_process_is_left_out(folder: Path) -> None:
    """Without masks the loss of both is larger by far more than rounding, and the gathered one has them."""
    masked, unmasked = alone(folder, range(4))[0], alone(folder, range(4), mask=False)[0]
    first, second = processes(folder, "infonce True 60")
    assert unmasked > masked + 0.01
    assert (first["loss"] + second["loss"]) / 2 < unmasked - 0.01


def test_a_neighbour_in_the_graph_on_the_other_process_is_left_out(folder: Path) -> None:
    masked, unmasked = alone(folder, range(4))[0], alone(folder, range(4), edges={})[0]
    first, second = processes(folder, "infonce True 60")
    assert unmasked > masked + 0.001
    assert (first["loss"] + second["loss"]) / 2 < unmasked - 0.001


@pytest.mark.parametrize("budget", [40, 10_000])
def test_without_gathering_each_process_contrasts_its_own_rows(folder: Path, budget: int) -> None:
    apart = [alone(folder, rows) for rows in ((0, 1), (2, 3))]
    for (loss, _), found in zip(apart, processes(folder, f"infonce False {budget}"), strict=True):
        assert found["loss"] == pytest.approx(loss, rel=1e-5)
        assert close(found["gradient"], (apart[0][1] + apart[1][1]) / 2)
