"""From a recipe's parts to rows, on a corpus of 24 documents by four people in two decades."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obliq_eval.demo.hub import LoopbackHub
from obliq_eval.demo.toy import official_repo, toy_task
from obliq_eval.edges import read_edges
from obliq_eval.errors import UserError
from obliq_models.documents import read_source
from obliq_train import data, lineage, parts, provenance
from obliq_train.data import Data, prepare
from obliq_train.distinct import Distinct
from obliq_train.graph import knn_graph
from obliq_train.recipe import Recipe
from obliq_train.recipe import read as read_recipe
from obliq_train.rows import Row, read_rows
from obliq_train.sentences import cloze, sentence_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

WORDS = ("harbour", "winter", "ledger", "orchard", "senate", "violin", "granite", "meadow", "engine", "letter")
HABITS = ("which, however, was", "and so, by and by,", "-- never; no: not", "for the most part is")


def text(number: int) -> str:
    """Return three sentences: the person's habit in each, the subject by number."""
    habit = HABITS[number % 4]
    subjects = [WORDS[(number * step + 3) % 10] for step in (1, 3, 7)]
    return " ".join(f"The {one} {habit} seen in place {at} of year {number}." for at, one in enumerate(subjects))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Return a corpus: document n is by person n % 4, of address n % 12, and of one of two decades."""
    path = tmp_path / "corpus.jsonl"
    known = [{"address": f"a{n % 12}", "decade": 1800 + 10 * (n // 12)} for n in range(24)]
    return write(path, *({"_id": f"d{n:02}", "text": text(n), **more} for n, more in enumerate(known)))


def write(path: Path, *rows: Mapping[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def recipe(*parts_: Mapping[str, Any], **tables: Any) -> Recipe:
    known = {
        "name": "own", "purpose": "A test", "model": {"base": "obliq/all-MiniLM-L6-v2"}, "schedule": {"steps": 1},
        "part": tuple(parts_), "negatives": {"count": 2},
    }  # fmt: skip
    return Recipe.model_validate({**known, **tables})


def graph(corpus: Path, **more: Any) -> dict[str, Any]:
    return {"name": "graph", "corpus": str(corpus), "teacher": "stylometry", "k": 3, "anchor": "document", **more}


def row(query: str, positive: str, *negatives: str, **more: Any) -> dict[str, Any]:
    return {"query": ["", query], "pos": [["", positive]], "neg": [["", one] for one in negatives], **more}


def rows(found: Data) -> list[Row]:
    return list(read_rows(found.rows))


def by_place(folder: Path) -> dict[tuple[str, int], Row]:
    return {(one.query_id, one.more["rank"]): one for one in read_rows(folder / "data" / "graph.rows.jsonl")}


def test_rows_are_built_from_a_teachers_graph(tmp_path: Path, corpus: Path) -> None:
    """24 documents x 3 neighbours = 72 edges, of which 40 become rows; the whole graph is barred from negatives."""
    found = prepare(recipe(graph(corpus, dose=40, seed=5)), tmp_path / "run")
    whole = read_edges(found.edges["graph"])
    held = Distinct(read_source(str(corpus)).table)
    from obliq_models.loading import load
    from obliq_models.naming import find

    assert whole == knn_graph(held, load(find("stylometry")), 3).edges
    assert len(whole) == 72
    near = {(edge.anchor, edge.neighbour) for edge in whole}
    texts = {held[one]: one for one in held}
    made = rows(found)
    assert len(made) == 40 == found.counts["rows"] == found.manifest["lines"]
    for one in made:
        assert one.source == "graph"
        assert texts[one.query.text] == one.query_id
        assert (one.query_id, one.positive_ids[0]) in near
        assert texts[one.positives[0].text] == one.positive_ids[0]
        assert len(one.negatives) == 2
        assert not {(one.query_id, negative) for negative in one.negative_ids} & near
        assert not {one.query_id, *one.positive_ids} & set(one.negative_ids)
    assert found.counts["graph: edges of the graph"] == 72
    assert found.manifest["content"] == provenance.sha256(found.rows)


def test_what_is_finished_is_found_again(tmp_path: Path, corpus: Path) -> None:
    """Nothing is written twice; what is gone, changed or asked for otherwise is, and what lies under it is not."""
    one, work = recipe(graph(corpus, dose=40)), tmp_path / "run"
    names = ("data/graph.graph.jsonl", "data/graph.rows.jsonl", "rows.jsonl")

    def written(found: Recipe) -> list[str]:
        before = {name: (work / name).stat().st_ino if (work / name).exists() else 0 for name in names}
        kept = [(work / name).open("rb") for name in names if (work / name).exists()]  # their inodes are not used again
        prepare(found, work)
        for stream in kept:
            stream.close()
        return [name for name in names if (work / name).stat().st_ino != before[name]]

    assert written(one) == list(names)
    content = (work / "rows.jsonl").read_bytes()
    assert written(one) == []
    (work / "rows.jsonl").unlink()
    (work / "data" / "graph.rows.jsonl").unlink()
    assert written(one) == ["data/graph.rows.jsonl", "rows.jsonl"]
    assert (work / "rows.jsonl").read_bytes() == content
    assert written(one.model_copy(update={"run": one.run.model_copy(update={"seed": 9})})) == []
    (work / "data" / "graph.graph.jsonl").write_text("cut off", "utf-8")
    assert written(one) == ["data/graph.graph.jsonl"]
    assert written(recipe(graph(corpus, dose=30))) == ["data/graph.rows.jsonl", "rows.jsonl"]
    assert written(recipe(graph(corpus, dose=30, k=2))) == list(names)
    corpus.write_text(corpus.read_text("utf-8").replace("year 3", "age 3"), "utf-8")
    assert written(recipe(graph(corpus, dose=30, k=2))) == list(names)


@pytest.mark.parametrize("positives", ["random", "matched:decade"])
def test_a_control_differs_in_its_positives_alone(tmp_path: Path, corpus: Path, positives: str) -> None:
    same = {"dose": 40, "seed": 3, "apart": "address"}
    prepare(recipe(graph(corpus, **same)), tmp_path / "run")
    found = prepare(recipe(graph(corpus, **same, positives=positives)), tmp_path / "other")
    teacher, control = by_place(tmp_path / "run"), by_place(tmp_path / "other")
    assert teacher.keys() == control.keys()
    assert len(control) == 40
    decade = {f"d{n:02}": n // 12 for n in range(24)}
    for place, one in control.items():
        true = teacher[place]
        assert one.query == true.query
        kept = [negative for negative in true.negative_ids if negative != one.positive_ids[0]]
        assert [negative for negative in one.negative_ids if negative in true.negative_ids] == kept
        assert len(one.negatives) == 2
        assert int(one.positive_ids[0][1:]) % 12 != int(one.query_id[1:]) % 12, "they share an address"
        if positives != "random":
            assert decade[one.positive_ids[0]] == decade[true.positive_ids[0]]
    changed = sum(one.positive_ids != teacher[place].positive_ids for place, one in control.items())
    assert changed > 20
    whole = read_edges(found.edges["graph"])
    assert {(one.query_id, one.positive_ids[0]) for one in control.values()} <= {edge[:2] for edge in whole}
    assert len(whole) == 72


def test_no_edge_lies_inside_what_is_kept_apart(tmp_path: Path, corpus: Path) -> None:
    found = prepare(recipe(graph(corpus, apart="address")), tmp_path / "run")
    assert all(int(edge.anchor[1:]) % 12 != int(edge.neighbour[1:]) % 12 for edge in read_edges(found.edges["graph"]))
    free = prepare(recipe(graph(corpus)), tmp_path / "free")
    assert free.rows.read_bytes() != found.rows.read_bytes()
    with pytest.raises(UserError, match=r"part 'graph': .*no line has the key 'adress'; did you mean \"address\""):
        prepare(recipe(graph(corpus, apart="adress")), tmp_path / "wrong")
    with pytest.raises(UserError, match="OBLIQ-Writing holds nothing but texts, so it has no field 'address'"):
        parts.field_file("OBLIQ-Writing", "address")
    assert parts.field_file("OBLIQ-Mini-Writing", "speech").endswith("provenance.tsv#speech")


def test_a_part_may_use_some_documents_alone(tmp_path: Path, corpus: Path) -> None:
    """The first twelve documents are of the decade 1800: anchors, positives and negatives are all theirs."""
    first = {f"d{n:02}" for n in range(12)}
    for name, part in (("graph", graph(corpus)), ("cloze", {"name": "c", "corpus": str(corpus), "sentences": True})):
        whole = rows(prepare(recipe(part), tmp_path / f"{name}-whole"))
        assert {one.query_id for one in whole} > first
        found = rows(prepare(recipe({**part, "only": "decade=1800"}), tmp_path / name))
        assert {one.query_id for one in found} == first
        assert {one for row in found for one in (*row.positive_ids, *row.negative_ids)} <= first
    both = recipe(graph(corpus, only="decade=1800"), graph(corpus, name="other", only="decade=1810"))
    assert Counter(one.source for one in rows(prepare(both, tmp_path / "both"))) == {"graph": 36, "other": 36}
    with pytest.raises(UserError, match=r"part 'graph': no document of .*corpus\.jsonl has decade = '1900'"):
        prepare(recipe(graph(corpus, only="decade=1900")), tmp_path / "none")
    with pytest.raises(UserError, match=r"part 'graph': .*no line has the key 'decad'; did you mean \"decade\""):
        prepare(recipe(graph(corpus, only="decad=1800")), tmp_path / "none")


def test_of_a_file_the_rows_about_some_documents_alone_may_be_used(tmp_path: Path, corpus: Path) -> None:
    """Documents are named by their ids, in `pos` or beside it, or written out; the dose is drawn from what is left."""
    texts = {row["_id"]: row["text"] for row in map(json.loads, corpus.read_text("utf-8").splitlines())}
    told = [
        {"query": "by id", "pos": ["d03"]},
        {"query": "another's", "pos": ["d13"]},
        {"query": "beside", "pos": ["a text"], "pos_ids": ["d04"]},
        {"query": "written", "pos": [texts["d05"]], "neg": [texts["d06"]]},
        {"query": "its negative is another's", "pos": [texts["d07"]], "neg": [texts["d17"]]},
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in told), "utf-8")
    part = {"name": "own", "file": str(file), "corpus": str(corpus), "only": "decade=1800"}
    found = prepare(recipe(part), tmp_path / "run")
    assert {one.query.text for one in rows(found)} == {"by id", "beside", "written"}
    assert {one.positives[0].text for one in rows(found)} == {texts["d03"], "a text", texts["d05"]}
    other = prepare(recipe({**part, "only": "decade=1810"}), tmp_path / "run")
    assert [one.query.text for one in rows(other)] == ["another's"]
    assert len(rows(prepare(recipe({**part, "dose": 2}), tmp_path / "dose"))) == 2
    with pytest.raises(UserError, match=r"the dose is 4, and .* has 3 different rows"):
        prepare(recipe({**part, "dose": 4}), tmp_path / "dose")
    file.write_text(json.dumps(told[1]) + "\n", "utf-8")
    with pytest.raises(UserError, match=r"no row of .*rows\.jsonl is about documents with decade=1800"):
        prepare(recipe(part), tmp_path / "none")


def test_other_documents_are_other_rows(tmp_path: Path, corpus: Path) -> None:
    """Rows of some documents are not found again for others in the same folder."""
    once = rows(prepare(recipe(graph(corpus, only="decade=1800")), tmp_path / "run"))
    again = rows(prepare(recipe(graph(corpus, only="decade=1810")), tmp_path / "run"))
    assert not {one.query_id for one in once} & {one.query_id for one in again}


def test_without_negatives_nothing_is_mined(tmp_path: Path, corpus: Path) -> None:
    found = prepare(recipe(graph(corpus, dose=10), negatives={"count": 0}), tmp_path / "run")
    mined = prepare(recipe(graph(corpus, dose=10)), tmp_path / "mined")
    assert [(one.query, one.positives) for one in rows(found)] == [(one.query, one.positives) for one in rows(mined)]
    assert all(not one.negatives for one in rows(found))


def test_anchors_are_descriptions_where_there_are_some(tmp_path: Path, corpus: Path) -> None:
    """20 of 24 documents have one, so 60 of the 72 edges can be drawn."""
    told = write(
        tmp_path / "told.jsonl",
        *({"document": f"d{n:02}", "description": f"Dry style {n}. And more."} for n in range(20)),
    )
    part = graph(corpus, anchor="description", descriptions=str(told))
    found = prepare(recipe(part), tmp_path / "run")
    assert len(rows(found)) == 60
    assert {one.query.text for one in rows(found)} == {f"Dry style {n}. And more." for n in range(20)}
    assert found.counts["graph: edges whose anchor has no description"] == 12
    short = prepare(recipe({**part, "one_line": True, "dose": 60}), tmp_path / "short")
    assert {one.query.text for one in rows(short)} == {f"Dry style {n}." for n in range(20)}
    with pytest.raises(UserError, match="the dose is 61, and there are 60 edges"):
        prepare(recipe({**part, "dose": 61}), tmp_path / "more")


def test_a_sentence_is_answered_by_what_stands_around_it(tmp_path: Path) -> None:
    """Of a document of two sentences nothing is made, of a text and its copy one row."""
    corpus = write(
        tmp_path / "c.jsonl",
        {"_id": "two", "text": "Only two sentences here. That is all of it."},
        {"_id": "short", "text": "No. Yes! Why? So it may be."},
        *({"_id": f"d{n}", "text": text(n)} for n in range(6)),
        {"_id": "copy", "text": f" {text(0)}"},
    )
    part = {"name": "cloze", "corpus": str(corpus), "sentences": True}
    found = prepare(recipe(part), tmp_path / "run")
    assert found.counts["cloze: documents without a sentence to take out"] == 1
    assert {one.query_id for one in rows(found)} == {"short", *(f"d{n}" for n in range(6))}
    texts = {f"d{n}": text(n) for n in range(6)} | {"short": "No. Yes! Why? So it may be."}
    for one in rows(found):
        assert one.positive_ids == (one.query_id,)
        assert one.query.text in texts[one.query_id]
        assert one.query.text not in one.positives[0].text
        assert Counter(f"{one.query.text} {one.positives[0].text}".split()) == Counter(texts[one.query_id].split())
        assert one.query_id not in one.negative_ids
    assert not found.edges
    assert len(rows(prepare(recipe({**part, "dose": 4}), tmp_path / "dose"))) == 4
    with pytest.raises(UserError, match="the dose is 8, and there are 7 documents with a sentence to take out"):
        prepare(recipe({**part, "dose": 8}), tmp_path / "more")


def test_the_first_of_a_sentences_conditions() -> None:
    """Three sentences, and one of them of four words."""
    assert sentence_of("No. Yes! So it is now.", 0, "a") == ("So it is now.", "No. Yes!")
    assert sentence_of("No. Yes! So it.", 0, "a") is None
    assert sentence_of("One has four words. Two.", 0, "a") is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ab \n.!", max_size=30), max_size=6), st.integers(0, 9))
def test_no_word_is_lost_with_a_sentence(pieces: list[str], seed: int) -> None:
    whole = ". ".join(pieces)
    cut = sentence_of(whole, seed, "id")
    assert cut == sentence_of(whole, seed, "id")
    if cut is not None:
        assert len(cut[0].split()) >= 4
        assert Counter(" ".join(cut).split()) == Counter(whole.split())


def test_sentences_depend_on_the_seed_and_not_on_other_documents(tmp_path: Path) -> None:
    def queries(name: str, numbers: range, seed: int) -> dict[str, str]:
        path = write(tmp_path / name, *({"_id": f"d{n:02}", "text": text(n)} for n in numbers))
        held = Distinct(read_source(str(path)).table)
        return {pair.anchor: pair.row.query.text for pair in cloze(held, "c", seed, Counter())}

    few, many = queries("few.jsonl", range(5, 10), 1), queries("many.jsonl", range(20), 1)
    assert few.items() <= many.items()
    assert queries("many.jsonl", range(20), 2) != many


def test_files_are_taken_and_doses_drawn_from_them(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", *(row(f"q{n}", f"p{n}", "n") for n in range(9)))
    one = {"name": "a", "file": str(file), "task": "T"}
    whole = prepare(recipe(one), tmp_path / "run")
    assert sorted(found.query.text for found in rows(whole)) == [f"q{n}" for n in range(9)]
    assert {(found.source, found.more["task"]) for found in rows(whole)} == {("a", "T")}
    drawn = [
        {found.query.text for found in rows(prepare(recipe({**one, "dose": 5, "seed": seed}), tmp_path / f"r{seed}"))}
        for seed in (0, 1)
    ]
    assert [len(some) for some in drawn] == [5, 5]
    assert drawn[0] != drawn[1]
    assert prepare(recipe({**one, "dose": 5}), tmp_path / "r0").counts["a: rows not drawn"] == 4
    with pytest.raises(UserError, match=r"the dose is 10, and .*a\.jsonl has 9 different rows"):
        prepare(recipe({**one, "dose": 10}), tmp_path / "more")
    assert not list((tmp_path / "more").rglob("*.jsonl"))
    other = write(tmp_path / "b.jsonl", row("other", "p", "n"))
    assert [found.query.text for found in rows(prepare(recipe(one), tmp_path / "b", {"a": other}))] == ["other"]


def test_documents_of_a_file_may_be_named_by_their_ids(tmp_path: Path, corpus: Path) -> None:
    file = write(tmp_path / "a.jsonl", row("q", "d01", "d02"))
    (found,) = rows(prepare(recipe({"name": "a", "file": str(file), "corpus": str(corpus)}), tmp_path / "run"))
    assert (found.positives[0].text, found.positive_ids, found.negatives[0].text) == (text(1), ("d01",), text(2))


def test_a_file_without_a_row_is_refused(tmp_path: Path) -> None:
    """Training would go on without it, and nobody would know."""
    full, empty = write(tmp_path / "full.jsonl", row("q", "a text", "another text")), tmp_path / "empty.jsonl"
    empty.write_text("\n", "utf-8")
    one = recipe({"name": "full", "file": str(full)}, {"name": "empty", "file": str(empty)})
    with pytest.raises(UserError, match=r"part 'empty': .*empty\.jsonl has no row: leave the part out"):
        prepare(one, tmp_path / "run")


@pytest.mark.parametrize("dose", [None, 1])
def test_rows_follow_the_corpus_that_they_name(tmp_path: Path, corpus: Path, dose: int | None) -> None:
    """The file is the same, and a document's text another: rows of the first time are not found again."""
    file = write(tmp_path / "a.jsonl", row("q", "d01"))
    one = recipe({"name": "a", "file": str(file), "corpus": str(corpus), "dose": dose})
    (before,) = rows(prepare(one, tmp_path / "run"))
    changed = corpus.read_text("utf-8").replace(text(1), "Another text.")
    corpus.write_text(changed, "utf-8")
    (after,) = rows(prepare(one, tmp_path / "run"))
    assert (before.positives[0].text, after.positives[0].text) == (text(1), "Another text.")


def test_everything_that_is_missing_is_named_at_once(tmp_path: Path, corpus: Path) -> None:
    one = recipe(
        {"name": "a"},
        {"name": "b", "file": str(tmp_path / "none.jsonl")},
        graph(corpus, anchor="description"),
        graph(tmp_path / "no-corpus.jsonl", name="c", descriptions=str(tmp_path / "told.jsonl"), anchor="description"),
        {"name": "shipped", "corpus": "package:none.jsonl", "sentences": True},
        {"name": "out", "task": "T"},
        leave_out={"tasks": ("T",)},
        negatives={"variant": "stemm"},
    )
    with pytest.raises(UserError) as error:
        prepare(one, tmp_path / "run", {"d": corpus, "out": corpus})
    for told in (
        "the rows of own: 9 problems",
        "no part is called 'd'",
        "part 'out' is left out",
        "part 'a' has no file: --file a=FILE",
        "part 'b': its file",
        "part 'graph': its anchors are descriptions, and there are no descriptions",
        "part 'c': its corpus",
        "part 'c': its anchors are descriptions, and ",
        "part 'shipped': package:none.jsonl is no file",
        "negatives.variant is 'stemm'",
    ):
        assert told in str(error.value), told
    assert not (tmp_path / "run").exists()


def test_what_is_left_out_needs_no_file(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", row("q", "p", "n"))
    one = recipe(
        {"name": "a", "file": str(file)},
        {"name": "b", "mechanism": "analogue"},
        leave_out={"mechanisms": ("analogue",)},
    )
    assert len(rows(prepare(one, tmp_path / "run"))) == 1


def test_rows_that_cannot_be_trained_on_are_refused_with_their_lines(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", row("q", "p", "n"), row("q2", "p2", "n", "p2"), row("q3", "p3", "n", "p3"))
    one = recipe({"name": "a", "file": str(file)})
    with pytest.raises(UserError, match=r"positive is among their negatives(.|\n)*line 2(.|\n)*line 3"):
        prepare(one, tmp_path / "run")
    write(file, row("q", "p"), {"query": "q2", "pos": [], "neg": ["n"]})
    with pytest.raises(UserError, match=r"a\.jsonl, line 2: the row has no positive"):
        prepare(one, tmp_path / "run")
    write(file, {"query": "q2", "neg": ["n"]})
    with pytest.raises(UserError, match=r"a\.jsonl, line 1: .*"):
        prepare(one, tmp_path / "run")
    write(file, {"document": "d", "query": "q"})
    with pytest.raises(UserError, match=r"holds synthetic queries, not rows: `obliq negatives a\.jsonl"):
        prepare(one, tmp_path / "run")
    write(file, {"anchor": "d", "neighbour": "e", "rank": 1})
    with pytest.raises(UserError, match="holds edges, not rows"):
        prepare(one, tmp_path / "run")
    assert not (tmp_path / "run" / "rows.jsonl").exists()


def test_duplicates_are_counted(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", row("q", "p", "n"), row("q", "p", "n2"))
    second = write(tmp_path / "b.jsonl", row(" q", "p ", "n"), row("r", "p", "n"))
    found = prepare(recipe({"name": "a", "file": str(first)}, {"name": "b", "file": str(second)}), tmp_path / "run")
    assert len(rows(found)) == 2
    assert (found.counts["a: duplicate rows"], found.counts["b: duplicate rows"]) == (1, 1)


def test_an_input_is_never_overwritten(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", row("q", "p", "n"))
    with pytest.raises(UserError, match=r"rows\.jsonl is one of the inputs"):
        prepare(recipe({"name": "a", "file": str(file)}), tmp_path)
    assert [one.query.text for one in read_rows(file)] == ["q"]


def synthetic(folder: Path, lens: str, model: str) -> Path:
    """Write rows as three commands leave them: queries, rows with negatives, a mixture of these."""
    folder.mkdir()
    source, mined, mixed = (folder / f"{name}.jsonl" for name in ("queries", "mined", "mixed"))
    line = [json.dumps(row("q", "p", "n")) + "\n"]
    provenance.write(source, line, command="obliq synth", settings={"lens": lens, "llm": {"model": model}}, inputs={})
    provenance.write(mined, line, command="obliq negatives", settings={"file": "queries.jsonl"},
                     inputs={"corpus": "0" * 64, "queries.jsonl": provenance.sha256(source)})  # fmt: skip
    provenance.write(mixed, line, command="obliq mix", settings={"files": {"part": str(mined)}},
                     inputs={"part": provenance.sha256(mined)})  # fmt: skip
    return mixed


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"lens": "writing"}, ""),
        ({"lens": "generic"}, "has the lens 'writing', and the recipe asks for 'generic'"),
        ({"generator": "qwen3.6-27b"}, ""),
        ({"generator": "other/model"}, "has the generator 'Qwen/Qwen3.6-27B', and the recipe asks for 'other/model'"),
        ({"generator": "not:Qwen3.6-27B"}, "has the generator 'Qwen/Qwen3.6-27B', and the recipe asks for 'not:Qwen"),
        ({"generator": "not:other"}, ""),
    ],
)
def test_lens_and_generator_are_what_the_manifests_say(tmp_path: Path, asked: dict[str, str], told: str) -> None:
    file = synthetic(tmp_path / "made", "writing", "Qwen/Qwen3.6-27B")
    one = recipe({"name": "a", "file": str(file), **asked})
    if told:
        with pytest.raises(UserError) as error:
            prepare(one, tmp_path / "run")
        assert told in str(error.value)
    else:
        assert not [what for what in prepare(one, tmp_path / "run").counts if "not known" in what]


def test_what_no_manifest_tells_is_counted(tmp_path: Path) -> None:
    file = synthetic(tmp_path / "made", "writing", "m")
    write(tmp_path / "made" / "queries.jsonl", row("another", "p", "n"))  # its hash is no longer the one of the rows
    found = prepare(recipe({"name": "a", "file": str(file), "lens": "writing", "generator": "m"}), tmp_path / "run")
    assert found.counts["a: files whose lens is not known"] == 1
    assert found.counts["a: files whose generator is not known"] == 1


def test_a_given_file_is_held_against_the_graph_that_it_comes_from(tmp_path: Path, corpus: Path) -> None:
    """Rows that were built before keep their graph; other k, another teacher, or a control are told from it."""
    built = prepare(recipe(graph(corpus, dose=40)), tmp_path / "run")
    control = prepare(recipe(graph(corpus, dose=40, positives="random")), tmp_path / "control")
    file, other = (folder / "data" / "graph.rows.jsonl" for folder in (tmp_path / "run", tmp_path / "control"))
    again = prepare(recipe(graph(corpus)), tmp_path / "again", {"graph": file})
    assert again.edges == built.edges
    assert sorted(one.to_json() for one in rows(again)) == sorted(one.to_json() for one in rows(built))
    assert lineage.graph_of(built.rows) == built.edges["graph"], "through the mixture as well"
    for part, taken, told in (
        (graph(corpus, k=2), file, "comes from a graph whose k is 3, and the recipe asks for 2"),
        (graph(corpus, teacher="bm25"), file, "comes from a graph whose model is "),
        (graph(corpus), other, "is a control (random), and the recipe asks for the teacher's own"),
        (graph(corpus, positives="random"), file, "is no control"),
        (graph(corpus, positives="matched:decade"), other, "is no control"),
    ):
        with pytest.raises(UserError) as error:
            prepare(recipe(part), tmp_path / "wrong", {"graph": taken})
        assert told in str(error.value)
    kept = prepare(recipe(graph(corpus, positives="random")), tmp_path / "kept", {"graph": other})
    assert not kept.edges
    assert len(rows(kept)) == len(rows(control))
    bare = write(tmp_path / "bare.jsonl", row("q", "p", "n"))
    unknown = prepare(recipe(graph(corpus)), tmp_path / "bare", {"graph": bare})
    assert unknown.counts["graph: files whose graph is not known"] == 1


def test_margins_need_scores(tmp_path: Path, corpus: Path) -> None:
    good = row("q", "p", "n", "m", scores={"pos": [2.5], "neg": [0, -1.0]})
    bad = [
        row("a", "p", "n"), row("b", "p", "n", scores={"pos": [1.0]}),
        row("c", "p", "n", scores={"pos": [1.0], "neg": [True]}),
        row("d", "p", "n", scores={"pos": [1.0], "neg": [1.0, 2.0]}), row("e", "p", "n", scores=[1.0]),
    ]  # fmt: skip
    file = write(tmp_path / "a.jsonl", good, *bad)
    one = recipe({"name": "a", "file": str(file)}, graph(corpus), loss={"kind": "margin-mse"})
    with pytest.raises(UserError, match="part 'graph' is built here, and margin-mse needs a cross-encoder's scores"):
        prepare(one, tmp_path / "run")
    one = one.model_copy(update={"part": one.part[:1]})
    with pytest.raises(UserError, match=r"5 rows lack them \(rows 2, 3, 4, 5, 6\)"):
        prepare(one, tmp_path / "run")
    write(file, good)
    (found,) = rows(prepare(one, tmp_path / "run"))
    assert found.more["scores"] == good["scores"]


def test_a_reranker_learns_from_no_rows_that_are_built_without_scores(tmp_path: Path, corpus: Path) -> None:
    with pytest.raises(UserError, match="part 'graph' is built here, and a reranker needs a cross-encoder's scores"):
        prepare(recipe(graph(corpus), trains="reranker"), tmp_path / "run")


def test_a_corpus_may_ship_with_the_package(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SHIPPED", tmp_path)
    shipped = {**graph(corpus), "corpus": f"package:{corpus.name}", "apart": "address"}
    found = prepare(recipe(shipped), tmp_path / "run")
    own = prepare(recipe(graph(corpus, apart="address")), tmp_path / "own")
    assert found.rows.read_bytes() == own.rows.read_bytes()
    assert str(tmp_path) not in (tmp_path / "run" / "data" / "graph.rows.jsonl.manifest.json").read_text("utf-8")


def test_rows_may_ship_with_the_package(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dose of them too; one that a recipe's file names elsewhere is beside that file, as ever."""
    monkeypatch.setattr(parts, "SHIPPED", tmp_path)
    write(tmp_path / "asked.jsonl", row("q", "d01"), row("r", "d02"))
    part = {"name": "asked", "file": "package:asked.jsonl", "corpus": str(corpus)}
    assert [one.positives[0].text for one in rows(prepare(recipe(part), tmp_path / "run"))] == [text(1), text(2)]
    assert len(list(rows(prepare(recipe({**part, "dose": 1}), tmp_path / "dose")))) == 1
    own = tmp_path / "own.toml"
    own.write_text('extends = "obliq-ir-mini"\n[[part]]\nname = "congress"\nfile = "mine.jsonl"\n', "utf-8")
    assert [read_recipe(name).part[1].file for name in ("obliq-ir-mini", str(own))] == [
        "package:congress.jsonl",
        str(tmp_path / "mine.jsonl"),
    ]


PREPARE = """
import sys
from pathlib import Path
from obliq_train import data
from obliq_train.recipe import Recipe
data.prepare(Recipe.model_validate_json(sys.argv[1]), Path(sys.argv[2]))
"""


def test_preparing_asks_the_hub_for_no_judgments(tmp_path: Path) -> None:
    """A graph and sentences over an official task: its corpus is fetched, and nothing else of it."""
    one = recipe(
        {"name": "graph", "corpus": "OBLIQ-Writing", "teacher": "stylometry", "k": 2, "anchor": "document"},
        {
            "name": "random",
            "corpus": "OBLIQ-Writing",
            "teacher": "stylometry",
            "anchor": "document",
            "positives": "random",
        },
        {"name": "cloze", "corpus": "OBLIQ-Writing", "sentences": True},
    )
    with LoopbackHub([official_repo(tmp_path / "repo")]) as hub:
        done = subprocess.run(
            [sys.executable, "-c", PREPARE, one.model_dump_json(), str(tmp_path / "run")],
            env={**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf")},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        paths = [path for _, path in hub.requests]
    assert any(path.endswith("analogues/writing/corpus/corpus.jsonl") for path in paths)
    assert not [path for path in paths if "qrels" in path or "queries" in path]
    ids = {identifier for identifier, _ in toy_task("analogues/writing").corpus}
    assert {found.query_id for found in read_rows(tmp_path / "run" / "rows.jsonl")} <= ids


def test_the_seed_of_the_file_is_not_the_seed_of_training() -> None:
    assert data.SEED == 0
