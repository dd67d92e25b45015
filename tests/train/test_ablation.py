"""Families of recipes: what is run and what is not, once; and every number of the tables by another way."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from obliq_eval import comparison, reference, runs, significance
from obliq_eval.data.sources import load
from obliq_eval.data.split import dev_queries
from obliq_eval.errors import UserError
from obliq_eval.records import Run
from obliq_train import ablation, ablation_tables, launching, recipe
from obliq_train.ablation import Family
from obliq_train.ablation_runs import Runs
from obliq_train.data import missing
from obliq_train.rows import Passage, Row
from tests.train.tiny import write_cross_encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

WORDS = ("sea", "ship", "whale", "king", "tax", "war", "harvest", "law", "tree", "house", "river", "stone")
CORPUS = {
    f"d{i}": " ".join(np.random.default_rng(i).choice(WORDS, 8)) + f" {WORDS[i % 12]} {WORDS[i // 12]}"
    for i in range(24)
}
QUERIES = {f"q{i}": " ".join(np.random.default_rng(100 + i).choice(WORDS, 5)) for i in range(10)}
GOLD = {f"q{i}": {f"d{i}": 1, f"d{i + 10}": 1} for i in range(10)}
SECOND = 1 / math.log2(3)


@pytest.fixture
def task(write_task: Callable[..., Path]) -> Path:
    return write_task(CORPUS, QUERIES, GOLD)


def judged(task: Path) -> list[str]:
    return sorted(set(QUERIES) - dev_queries(load(str(task)).name, QUERIES))


def stored(task: Path, name: str, rankings: Mapping[str, list[str]]) -> str:
    data = load(str(task))
    run = Run.of({q: {d: float(-rank) for rank, d in enumerate(some)} for q, some in rankings.items()}, 100)
    told = runs.Data(data.name, data.revision, "folder")
    return runs.store(
        run, runs.Manifest(task=data.name, data=told, model=runs.Model(f"x/{name}", "1"), depth=100, n_queries=10)
    ).name


def ranking(query: str, place: int) -> list[str]:
    """A ranking whose one relevant document stands at a place; the other one is not found."""
    others = [d for d in CORPUS if d not in GOLD[query]][:3]
    return [*others[: place - 1], f"d{query[1:]}", *others[place - 1 :]]


def test_values_of_a_table_by_hand(task: Path) -> None:
    """One of two relevant documents is found, first or second: NDCG@10 is 1 / i or s / i, i = 1 + s, s = 1 / log2 3.

    The control finds it first for each query. The member's two seeds find it second and first: (1 + s) / 2i on average,
    for each query alike, so that the interval is that point. "flat" puts d20 first for every query, and the relevant
    document second. "again" repeats the control.
    """
    ideal = 1 + SECOND
    first = stored(task, "control", {q: ranking(q, 1) for q in QUERIES})
    second = stored(task, "second", {q: ranking(q, 2) for q in QUERIES})
    flat = stored(task, "flat", {q: ["d20", f"d{q[1:]}"] for q in QUERIES})
    given = [
        Runs("control", {"toy": (first, first)}),
        Runs("member", {"toy": (second, first)}),
        Runs("again", {"toy": (first, first)}),
        Runs("flat", {"toy": (flat,)}),
    ]
    found = ablation_tables.table("toy", reference.open_task(str(task), "test"), given, {"again": "control"})
    control, member, again, same = found.rows
    assert list(found.queries) == judged(task)
    assert len(found.queries) == 8
    assert control.mean == again.mean == pytest.approx(1 / ideal)
    assert (control.test, again.test) == (None, None)
    assert member.means == pytest.approx((SECOND / ideal, 1 / ideal))
    assert member.mean == pytest.approx((1 + SECOND) / 2 / ideal)
    assert member.test is not None
    assert [member.test.difference, member.test.low, member.test.high] == pytest.approx([(SECOND - 1) / 2 / ideal] * 3)
    assert member.adjusted_p == pytest.approx(2 * member.test.p)
    assert (control.recall, member.recall) == (0.5, 0.5)
    assert control.distinct == 8
    tops = len({ranking(q, 2)[0] for q in judged(task)})
    assert member.distinct == (8 + tops) / 2
    assert (same.distinct, same.share) == (1, 1.0)
    notes = ablation_tables.notes([found], (0, 1))
    assert any(
        "one document comes first for more than half of the queries of" in one and "flat" in one for one in notes
    )
    assert any("n = 8 is small" in note for note in notes)
    whole, detail = ablation_tables.views("t", [found], {})
    assert [row[0] for row in whole.rows] == ["control", "member", "again", "flat"]
    assert detail.rows[1][2] == f"{SECOND / ideal:.3f} to {1 / ideal:.3f}"
    assert detail.rows[3][-2:] == (1, "100 %")


def test_one_seed_is_what_compare_says(task: Path) -> None:
    """Interval, p and Holm's adjustment of `obliq compare`, on runs that differ from query to query."""
    places = np.random.default_rng(0).integers(1, 4, (3, 10))
    ids = [
        stored(task, f"m{n}", {q: ranking(q, int(place)) for q, place in zip(QUERIES, row, strict=True)})
        for n, row in enumerate(places)
    ]
    against = reference.open_task(str(task), "test")
    found = ablation_tables.table("toy", against, [Runs(f"m{n}", {"toy": (one,)}) for n, one in enumerate(ids)], {})
    theirs = comparison.compare(against, [reference.fit(runs.load(one), against) for one in ids]).parts[0]
    for row, contrast in zip(found.rows[1:], theirs.contrasts, strict=True):
        assert row.test == contrast.test
        assert row.adjusted_p == contrast.adjusted_p


def test_every_member_is_a_recipe() -> None:
    for family in ablation.FAMILIES.values():
        for name in family.members:
            assert "*" in name or name in recipe.names()
        assert list(ablation._references(family, None)) or not family.members
    assert set(ablation._references(ablation.FAMILIES["dose"], None)) >= {
        "no-distillation", "dose-full-blend", "dose-full-replace",
    }  # fmt: skip


ON_MINI: dict[str, dict[str, str]] = {
    "teacher-graph": dict.fromkeys(("random-graph", "k1", "k3", "k10", "second-teacher", "no-distillation"), "")
    | {"k5": "same", "decade": "", "own-graph": "", "transductive": ""},
    "dose": dict.fromkeys(("no-distillation", "dose-full-blend", "dose-2048", "dose-256"), "")
    | {"dose-full-replace": "no part has the name 'writing'"},
    "losses": dict.fromkeys(("margin-mse", "hybrid-loss"), "needs a cross-encoder's scores in every row"),
    "leave-out-task": dict.fromkeys(("leave-out-math", "leave-out-writing", "leave-out-congress"), "")
    | {"leave-out-twitter": "no part has the task 'OBLIQ-Twitter'"},
    "leave-out-mechanism": dict.fromkeys(("leave-out-analogue", "leave-out-tip-of-the-tongue"), "")
    | {"leave-out-descriptive": "no part has the mechanism 'descriptive'"},
    "lens": dict.fromkeys(("generic-lens", "second-generator"), "it changes the part 'twitter'"),
    "context": {"context-2048": ""},
    "seeds": {},
    "anchor": {"document-anchors": "same"},
}  # fmt: skip
"""What becomes of each member of a family on small data: it is run, has the control's recipe, or why it cannot be."""


@pytest.mark.parametrize("family", ablation.FAMILIES)
def test_what_a_family_can_run_on_small_data(family: str) -> None:
    first = ablation._read("obliq-ir-mini", "obliq-ir-mini", "mini", (), (0,))
    told, found = dict[str, str](), [first]
    for full in ablation._references(ablation.FAMILIES[family], "mini"):
        name = ablation._short(full, "mini")
        try:
            found.append(ablation._read(name, full, "mini", (), (0,)))
            told[name] = "; ".join(missing(found[-1].recipes[0], {}))
        except UserError as error:
            told[name] = str(error)
    told |= dict.fromkeys(ablation._same(found), "same")
    assert told.keys() == ON_MINI[family].keys()
    for name, expected in ON_MINI[family].items():
        assert (expected in told[name]) if expected else not told[name]


def test_what_is_asked_for_wrongly(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no family is called 'doses'; did you mean \"dose\""):
        ablation.run("doses", output=tmp_path)
    with pytest.raises(UserError, match="give each training seed once"):
        ablation.run("dose", output=tmp_path, seeds=(1, 1))
    with pytest.raises(UserError, match="no part of these recipes is called 'wrting'; did you mean \"writing\""):
        ablation.run("dose", data=None, output=tmp_path, files={"wrting": tmp_path})
    assert not list(tmp_path.iterdir())


def test_a_folder_of_something_else_is_not_taken_for_a_member(tmp_path: Path) -> None:
    own, other = recipe.read("k1"), recipe.read("k5")
    folder = tmp_path / "k1"
    assert not ablation.finished(own, folder)
    folder.mkdir()
    with pytest.raises(UserError, match="is there and holds no finished training"):
        ablation.finished(own, folder)
    told = {"digest": other.digest, "rows": {"sha256": "0"}}
    (folder / "training.json").write_text(json.dumps(told), "utf-8")
    with pytest.raises(UserError, match="holds an adapter of another recipe"):
        ablation.finished(own, folder)
    assert ablation.finished(other, folder)


def test_a_member_counts_as_finished_with_its_own_rows_and_weights_alone(tiny_training: Path) -> None:
    """Its rows are compared as long as they are there; without them the recipe tells."""
    own, output = recipe.read(str(tiny_training)), tiny_training.parent / "member"
    launching.run(own, output, {})
    assert ablation.finished(own, output)
    rows = tiny_training.parent / "rows.jsonl"
    lines = rows.read_text("utf-8").splitlines(keepends=True)
    rows.write_text("".join(lines[1:]), "utf-8")
    with pytest.raises(UserError, match="holds an adapter that was trained on other rows"):
        ablation.finished(own, output)
    rows.write_text("".join(lines), "utf-8")
    assert ablation.finished(own, output)
    weights = output / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    with pytest.raises(UserError, match="is not what the training wrote"):
        ablation.finished(own, output)


def test_what_cannot_be_judged_is_not_trained(tmp_path: Path, changes: list[str]) -> None:
    other = f'evaluation.tasks=["{tmp_path / "nowhere"}"]'
    with pytest.raises(UserError, match="nowhere"):
        ablation.run("seeds", output=tmp_path / "out", changes=[*changes, other])
    assert not (tmp_path / "out").exists()


@pytest.fixture
def changes(tmp_path: Path, task: Path) -> list[str]:
    base = write_cross_encoder(tmp_path / "models" / "base", [*CORPUS.values(), *QUERIES.values()], head=False)
    short = ("query_length", "document_length", "encode_query_length", "encode_document_length")
    return [
        f"model.base={base}", *(f"model.{name}=16" for name in short), 'lora.targets=["query", "value"]', "lora.rank=2",
        "schedule.steps=2", "schedule.rate=0.05", "batch.per_device=4", "batch.accumulation=1", "run.precision=fp32",
        f'evaluation.tasks=["{task}"]', f"part.writing-graph.corpus={task}", "part.writing-graph.teacher=stylometry",
        "part.writing-graph.anchor=document", "part.writing-graph.one_line=false", "part.writing-graph.dose=12",
    ]  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    rows = tmp_path / "rows.jsonl"
    texts = list(CORPUS.values())
    lines = [
        Row(Passage("", text[:20]), (Passage("", text),), (Passage("", other),)).to_json() + "\n"
        for text, other in zip(texts[:4], texts[4:8], strict=True)
    ]
    rows.write_text("".join(lines), "utf-8")
    return dict.fromkeys(("twitter", "math", "writing", "congress"), rows)


def by_hand(folder: Path, task: Path) -> tuple[list[float], int]:
    """Each test query's NDCG@10 by plain sentence-transformers and the formula, and the number of first documents."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    scores = model.encode_query(list(QUERIES.values())) @ model.encode_document(list(CORPUS.values())).T
    found, first = [], set[str]()
    for query, row in zip(QUERIES, scores, strict=True):
        if query not in judged(task):
            continue
        order = sorted(CORPUS, key=lambda d: (row[list(CORPUS).index(d)], d), reverse=True)
        first.add(order[0])
        gain = sum(1 / math.log2(place + 2) for place, d in enumerate(order[:10]) if d in GOLD[query])  # type: ignore[index]
        found.append(gain / (1 + SECOND))
    return found, len(first)


def test_a_family_end_to_end(
    tmp_path: Path, task: Path, changes: list[str], files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two members are trained, one has the control's recipe, one cannot be run; a second seed trains what is new."""
    family = Family("a test", ("random-graph", "k3", "margin-mse"), frozen=("bm25",), teachers=True)
    monkeypatch.setattr(ablation, "FAMILIES", {"tiny": family})
    output = tmp_path / "out"

    @cache
    def own(name: str) -> tuple[list[float], int]:
        return by_hand(output / name, task)

    def run(*seeds: int) -> Any:
        return ablation.run("tiny", data=None, output=output, changes=changes, seeds=seeds, files=files)

    found = run(0)
    [table] = found.results
    rows = {row.name: row for row in table.rows}
    assert list(rows) == ["obliq-ir-3b", "random-graph", "k3", "base", "stylometry", "bm25"]
    assert found.same == {"k3": "obliq-ir-3b"}
    assert list(found.missing) == ["margin-mse"]
    assert "needs a cross-encoder's score" in found.missing["margin-mse"]
    assert not (output / "k3").exists()
    for name in ("obliq-ir-3b", "random-graph"):
        values, first = own(name)
        assert rows[name].queries == pytest.approx(values)
        assert rows[name].distinct == first
    test = rows["random-graph"].test
    assert test == significance.paired_bootstrap(rows["random-graph"].queries, rows["obliq-ir-3b"].queries)
    assert test is not None
    assert test.difference == pytest.approx(np.mean(own("random-graph")[0]) - np.mean(own("obliq-ir-3b")[0]))
    told = json.loads((output / "tiny.json").read_text("utf-8"))
    assert told["tasks"][0]["query ids"] == judged(task)
    assert told["tasks"][0]["rows"][1]["by query"] == pytest.approx(own("random-graph")[0])
    assert told == json.loads(json.dumps(found.to_dict()))
    assert (output / "tiny.md").read_text("utf-8") == found.markdown()
    assert "Not run" in found.markdown()

    before = {path: path.stat().st_mtime_ns for path in output.glob("*/training.json")}
    assert len(before) == 2
    again = run(0, 1)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    [table] = again.results
    row = next(row for row in table.rows if row.name == "random-graph")
    assert row.runs[0] == rows["random-graph"].runs[0]
    seeds = np.array([own("random-graph")[0], own("random-graph-seed1")[0]])
    assert row.queries == pytest.approx(seeds.mean(axis=0))
    assert row.means == pytest.approx(seeds.mean(axis=1))
    assert len(list(output.glob("*/training.json"))) == 4
