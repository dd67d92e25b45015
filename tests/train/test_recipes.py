"""The bundled recipes against what the paper publishes, and each other."""

from __future__ import annotations

import re
import tomllib

import pytest

from obliq_eval.errors import UserError
from obliq_models.naming import find
from obliq_train import lenses, mixing, recipe, recipe_files

PAPER = "obliq-ir-3b"
OWN = {
    "no-distillation": {"leave_out"},
    "random-graph": {"part.writing-graph"},
    "k1": {"part.writing-graph"},
    "k3": set(),
    "k5": {"part.writing-graph"},
    "k10": {"part.writing-graph"},
    "second-teacher": {"part.writing-graph"},
    "dose-full-blend": {"part.writing-graph"},
    "dose-full-replace": {"part.writing-graph", "leave_out"},
    "context-2048": {"model"},
    "margin-mse": {"loss"},
    "hybrid-loss": {"loss"},
    "document-anchors": {"part.writing-graph"},
    "distilled-listwise": {"trains", "leave_out"},
    "leave-out-twitter": {"leave_out"},
    "leave-out-math": {"leave_out"},
    "leave-out-writing": {"leave_out"},
    "leave-out-congress": {"leave_out"},
    "leave-out-descriptive": {"leave_out"},
    "leave-out-analogue": {"leave_out"},
    "leave-out-tip-of-the-tongue": {"leave_out"},
    "generic-lens": {f"part.{name}" for name in ("twitter", "math", "writing", "congress")},
    "second-generator": {f"part.{name}" for name in ("twitter", "math", "writing", "congress")},
}
"""Each variant of the paper's recipe, and the only tables in which it may differ from it."""


def tables(one: recipe.Recipe) -> dict[str, object]:
    told = one.model_dump(exclude={"name", "purpose", "sources"})
    return {key: value for key, value in told.items() if key != "part"} | {f"part.{p['name']}": p for p in told["part"]}


def test_the_papers_recipe_is_what_the_paper_says() -> None:
    """Section 4, table C.1 and the model card: 4 x 2 x 40 = 320 anchors, temperature 1/0.02 = 50."""
    found = recipe.read(PAPER)
    assert found.model.base == "nvidia/llama-nv-embed-reasoning-3b"
    assert (found.model.query_prefix, found.model.document_prefix) == ("query: ", "passage: ")
    assert (found.model.query_length, found.model.document_length) == (1024, 1024)
    assert (found.model.encode_query_length, found.model.encode_document_length) == (256, 1024)
    assert (found.model.pooling, found.model.normalize, found.model.bidirectional) == ("mean", True, True)
    assert (found.lora.rank, found.lora.alpha, found.lora.dropout) == (16, 32, 0.05)
    assert [name[0] for name in found.lora.targets] == ["q", "k", "v", "o", "g", "u", "d"]
    assert (found.loss.kind, found.loss.scale, found.loss.gather) == ("infonce", 1 / 0.02, True)
    assert found.batch.per_device * found.batch.accumulation * found.batch.devices == 320
    assert (found.schedule.epochs, found.schedule.rate, found.schedule.warmup) == (1.0, 2e-4, 0.03)
    assert (found.schedule.shape, found.negatives.count) == ("linear", 4)
    graph = found.part[-1]
    assert (graph.k, graph.dose, graph.distils, graph.teacher) == (3, 5000, True, "luar")
    assert [part.mechanism for part in found.part[:4]] == ["descriptive", "analogue", "analogue", "tip-of-the-tongue"]
    assert "CC-BY-NC" in found.licence
    assert "author" in found.risk


def test_the_recipe_and_the_mixture_name_the_same_parts() -> None:
    mixture = mixing.read("paper")
    assert [(p.name, p.task, p.dose) for p in mixture.parts] == [
        (p.name, p.task, p.dose) for p in recipe.read(PAPER).part
    ]


def test_every_value_of_the_papers_recipe_has_a_source() -> None:
    """All that the file says of the method; where rows lie and how often a point is logged is ours."""
    told = tomllib.loads((recipe_files.FOLDER / f"{PAPER}.toml").read_text("utf-8"))
    ours = {"run.log_steps", "run.save_steps"}
    said = {
        f"{table}.{key}"
        for table in ("model", "lora", "loss", "batch", "schedule", "run", "negatives")
        for key in told[table]
    }
    said |= {f"part.writing-graph.{key}" for key in ("teacher", "k", "anchor", "dose")}
    said |= {f"part.{part['name']}.mechanism" for part in told["part"][:4]}
    assert said - ours <= told["sources"].keys()


def test_there_is_a_recipe_for_each_experiment() -> None:
    assert {PAPER, *OWN} <= set(recipe.names())


@pytest.mark.parametrize("name", OWN)
def test_a_variant_differs_in_one_thing(name: str) -> None:
    own, base = tables(recipe.read(name)), tables(recipe.read(PAPER))
    assert {key for key in base | own if own.get(key) != base.get(key)} == OWN[name]
    file = tomllib.loads((recipe_files.FOLDER / f"{name}.toml").read_text("utf-8"))
    assert file["extends"] == PAPER
    assert file["purpose"] != recipe.read(PAPER).purpose


def test_what_the_variants_change() -> None:
    parts = {name: recipe.read(name).part[-1] for name in OWN}
    assert [parts[f"k{k}"].k for k in (1, 3, 5, 10)] == [1, 3, 5, 10]
    assert {parts[f"k{k}"].dose for k in (1, 3, 5, 10)} == {5000}
    assert parts["random-graph"].positives == "random"
    assert parts["second-teacher"].teacher == "luar-crud"
    assert parts["document-anchors"].anchor == "document"
    assert parts["dose-full-blend"].dose is None
    assert recipe.read("context-2048").model.document_length == 2048
    assert [recipe.read(name).loss.kind for name in ("margin-mse", "hybrid-loss")] == ["margin-mse", "hybrid"]
    assert recipe.read("distilled-listwise").trains == "reranker"
    assert {part.lens for part in recipe.read("generic-lens").part[:4]} == {"generic"}
    assert {part.generator for part in recipe.read("second-generator").part[:4]} == {"not:Qwen3.6-27B"}


@pytest.mark.parametrize(
    ("name", "used"),
    [
        ("no-distillation", "twitter math writing congress"),
        ("distilled-listwise", "twitter math writing congress"),
        ("dose-full-replace", "twitter math congress writing-graph"),
        ("leave-out-writing", "twitter math congress"),
        ("leave-out-twitter", "math writing congress writing-graph"),
        ("leave-out-analogue", "twitter congress"),
        ("leave-out-descriptive", "math writing congress writing-graph"),
        ("leave-out-tip-of-the-tongue", "twitter math writing writing-graph"),
    ],
)
def test_what_is_left_out(name: str, used: str) -> None:
    assert [part.name for part in recipe.read(name).used] == used.split()


@pytest.mark.parametrize("name", recipe.names())
def test_recipes_name_lenses_and_teachers_that_there_are(name: str) -> None:
    one = recipe.read(name)
    assert one.name == name
    assert re.fullmatch(r"[A-Z0-9].*[^.]", one.purpose), one.purpose
    for part in one.part:
        assert not part.lens or part.lens in lenses.names()
        assert not part.teacher or find(part.teacher)


MINI = [name for name in recipe.names() if name.startswith("mini-") or name == "obliq-ir-mini"]
INDUCTIVE = {"package:writing.jsonl", "OBLIQ-Mini-Math"}
"""Corpora that hold no passage of a person who is held out; `tests/test_mini_training.py` looks into the first."""
RECOLLECTIONS = "package:congress.jsonl"
"""Rows over that corpus; the same tests look into them."""


@pytest.mark.parametrize("name", MINI)
def test_a_small_recipe_sees_nobody_who_is_held_out(name: str) -> None:
    """But for `mini-transductive`, the paper's own setting: its graph is over the corpus of the task itself."""
    found = recipe.read(name, data="mini")
    assert found == recipe.read(name)
    assert {part.file for part in found.part} == {"", RECOLLECTIONS}
    assert not any(part.descriptions for part in found.part)
    corpora = {part.name: part.corpus for part in found.used}
    transductive = {part for part, corpus in corpora.items() if corpus not in INDUCTIVE}
    assert transductive == ({"writing-graph"} if name == "mini-transductive" else set())
    assert not transductive or corpora["writing-graph"] == "OBLIQ-Mini-Writing"
    for part in found.used:
        if part.name == "writing-graph":
            assert part.apart, "an edge inside an address would show the subject, not the style"


def test_settings_are_chosen_without_the_persons_behind_dev_queries() -> None:
    for part in recipe.read("mini-dev").used:
        assert part.only == ("part=train" if part.corpus == "package:writing.jsonl" else "")


def test_an_unknown_recipe_is_named_with_a_near_one() -> None:
    with pytest.raises(UserError, match='did you mean "no-distillation"'):
        recipe.read("no-destillation")
