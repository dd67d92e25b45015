"""Export to the official layout, BEIR's and TREC's, and the way back."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import datasets
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obliq_eval.data.corpus import CorpusFacts
from obliq_eval.data.export import export
from obliq_eval.data.sources import Loaded, assemble, open_source
from obliq_eval.demo.toy import TASKS, write_official
from obliq_eval.errors import UserError
from obliq_eval.records import Corpus, Dataset, Judgments

if TYPE_CHECKING:
    from collections.abc import Mapping

ODD = ["007", "7", "a b", "a/b", 'q"uote', "é", "\u2028", "100%", "%20", "-", "\r", "\ufeffbom"]


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OBLIQ_HOME", str(tmp_path / "home"))


def made(
    documents: Mapping[str, str],
    queries: Mapping[str, str],
    gold: Mapping[str, Mapping[str, int]],
    pooled: Mapping[str, Mapping[str, int]] | None = None,
    exclusions: Mapping[str, frozenset[str]] | None = None,
    groups: Mapping[str, str] | None = None,
) -> Loaded:
    """Return a data set that was never in a file."""
    table = datasets.Dataset.from_dict({"id": list(documents), "text": list(documents.values())})
    judged = None if pooled is None else Judgments(pooled)
    data = assemble(Corpus("made", "r1", table), queries, Judgments(gold), judged, exclusions, groups)
    facts = CorpusFacts(len(documents), len(set(documents.values())), 0, 0)
    return Loaded(data, facts, "made", queries, exclusions or {}, groups or {})


def content(data: Dataset) -> dict[str, Any]:
    """Return what a data set says, in plain containers; order counts."""
    return {
        "documents": list(zip(data.corpus.documents["id"], data.corpus.documents["text"], strict=True)),
        "queries": list(data.queries.items()),
        "judgments": {name: list(judgments.pairs()) for name, judgments in data.judgments().items()},
        "exclusions": dict(data.exclusions),
        "groups": dict(data.groups),
    }


@pytest.mark.parametrize("task", TASKS)
def test_official_to_official_says_the_same(task: str, tmp_path: Path) -> None:
    write_official(tmp_path / "in", task)
    before = open_source(tmp_path / "in")
    assert export(before, "official", tmp_path / "out") == ()
    after = open_source(tmp_path / "out")
    assert content(after.dataset) == content(before.dataset)
    assert after.query_texts == before.query_texts
    again = tmp_path / "again"
    export(after, "official", again)
    assert {p.relative_to(again): p.read_bytes() for p in again.rglob("*.*")} == {
        p.relative_to(tmp_path / "out"): p.read_bytes() for p in (tmp_path / "out").rglob("*.*")
    }


@pytest.mark.parametrize("task", TASKS)
def test_official_to_beir_says_the_same_under_gold(task: str, tmp_path: Path) -> None:
    write_official(tmp_path / "in", task)
    before = open_source(tmp_path / "in")
    notes = export(before, "beir", tmp_path / "out")
    after = open_source(tmp_path / "out")
    assert content(replace(after.dataset, pooled=None)) == content(replace(before.dataset, pooled=None))
    assert after.query_texts == before.query_texts
    pooled = before.dataset.pooled
    assert (tmp_path / "out" / "qrels_pool.tsv").exists() == (pooled is not None)
    assert any("qrels_pool.tsv" in note for note in notes) == (pooled is not None)
    assert any("BEIR has no exclusions" in note for note in notes) == bool(before.dataset.exclusions)
    first = json.loads((tmp_path / "out" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert list(first) == ["_id", "title", "text"]
    assert first["title"] == ""


identifiers = st.one_of(
    st.sampled_from(ODD), st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\t\n"), max_size=6)
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def data_sets(draw: st.DrawFn) -> Loaded:
    """Draw a small data set with odd ids, in which every query has a relevant document."""
    documents = draw(st.dictionaries(identifiers, texts, min_size=2, max_size=6))
    queries = draw(st.dictionaries(identifiers, texts, min_size=1, max_size=4))
    some = st.dictionaries(st.sampled_from(list(documents)), st.integers(1, 3), min_size=1, max_size=4)
    gold = {query: draw(some) for query in queries}
    pooled = draw(st.none() | st.just({q: {**grades, next(iter(documents)): 1} for q, grades in gold.items()}))
    excluded = draw(st.dictionaries(st.sampled_from(list(queries)), st.sets(identifiers, min_size=1, max_size=3)))
    groups = draw(st.dictionaries(st.sampled_from(list(queries)), identifiers))
    return made(documents, queries, gold, pooled, {q: frozenset(ids) for q, ids in excluded.items()}, groups)


@settings(max_examples=30, deadline=None)
@given(before=data_sets())
def test_any_id_comes_back_verbatim(before: Loaded) -> None:
    with tempfile.TemporaryDirectory() as folder:
        export(before, "official", Path(folder) / "official")
        assert content(open_source(Path(folder) / "official").dataset) == content(before.dataset)
        export(before, "beir", Path(folder) / "beir")
        after = open_source(Path(folder) / "beir").dataset
        kept = {key: value for key, value in content(after).items() if key in ("documents", "queries", "exclusions")}
        assert kept == {key: content(before.dataset)[key] for key in kept}
        assert list(after.gold.pairs()) == list(before.dataset.gold.pairs())


def test_trec_files_worked_out_by_hand(tmp_path: Path) -> None:
    before = made({"d1": "one\ntext", "d2": ""}, {"q1": "what\n is  it", "q2": "x"}, {"q1": {"d1": 2}, "q2": {"d2": 1}})
    notes = export(before, "trec", tmp_path / "out")
    files = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "out").iterdir()}
    assert files == {
        "documents.jsonl": '{"id": "d1", "contents": "one\\ntext"}\n{"id": "d2", "contents": ""}\n',
        "topics.tsv": "q1\twhat is it\nq2\tx\n",
        "qrels.txt": "q1 0 d1 2\nq2 0 d2 1\n",
    }
    assert notes == ("in 1 topics runs of white space became one space: a topic is one line",)


@settings(max_examples=30, deadline=None)
@given(before=data_sets())
def test_trec_qrels_have_four_columns_whatever_the_ids(before: Loaded) -> None:
    with tempfile.TemporaryDirectory() as folder:
        notes = export(before, "trec", Path(folder) / "out")
        encoded = any("percent-encoded" in note for note in notes)
        # bytes split on ASCII white space alone
        rows = [line.split() for line in (Path(folder) / "out" / "qrels.txt").read_bytes().split(b"\n") if line]
        spell = (lambda i: "" if i == "%" else unquote(i)) if encoded else str
        found = [(spell(q.decode()), spell(d.decode()), int(grade)) for q, _, d, grade in rows]
        assert found == list(before.dataset.gold.pairs())


def test_trec_encodes_every_id_as_run_files_do(tmp_path: Path) -> None:
    before = made(
        {"a b": "t", "50%": "u"}, {"q": "x"}, {"q": {"a b": 1, "50%": 1}}, exclusions={"q": frozenset({"a b"})}
    )
    notes = export(before, "trec", tmp_path / "out")
    assert (tmp_path / "out" / "qrels.txt").read_text() == "q 0 a%20b 1\nq 0 50%25 1\n"
    assert json.loads((tmp_path / "out" / "per_query_excluded_ids.json").read_text()) == {"q": ["a%20b"]}
    assert notes[0].startswith("1 ids do not fit TREC's columns")
    assert notes[1].startswith("TREC has no exclusions")


@pytest.mark.parametrize("form", ["official", "beir"])
def test_queries_that_nobody_judged_are_kept_with_all_that_is_known_of_them(form: str, tmp_path: Path) -> None:
    excluded, groups = {"not": frozenset({"d"}), "judged": frozenset({"e"})}, {"not": "Ada", "judged": "Bob"}
    before = made({"d": "t", "e": "u"}, {"judged": "x", "not": "y"}, {"judged": {"d": 1}}, None, excluded, groups)
    export(before, form, tmp_path / "out")
    after = open_source(tmp_path / "out")
    assert after.query_texts == {"judged": "x", "not": "y"}
    assert (after.exclusions, after.groups) == (excluded, groups)
    assert after.dataset.exclusions == {"judged": frozenset({"e"})}
    assert after.dataset.groups == {"judged": "Bob"}


def test_trec_keeps_the_exclusions_of_queries_that_nobody_judged(tmp_path: Path) -> None:
    before = made({"d": "t"}, {"q": "x", "not": "y"}, {"q": {"d": 1}}, None, {"not": frozenset({"d"})}, {"not": "Ada"})
    notes = export(before, "trec", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "per_query_excluded_ids.json").read_text()) == {"not": ["d"]}
    assert json.loads((tmp_path / "out" / "groups.json").read_text()) == {"not": "Ada"}
    assert any("TREC has no exclusions" in note for note in notes)


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    before = made({"d": "t"}, {"q": "x"}, {"q": {"d": 1}})
    (tmp_path / "mine").mkdir()
    export(before, "official", tmp_path / "mine")  # empty: fine
    with pytest.raises(UserError, match="not empty"):
        export(before, "beir", tmp_path / "mine")
    export(before, "beir", tmp_path / "mine", force=True)
    assert not (tmp_path / "mine" / "corpus").exists()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match=r"thesis\.tex"):
        export(before, "beir", tmp_path / "mine", force=True)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file"):
        export(before, "beir", tmp_path / "file", force=True)


@pytest.mark.parametrize("form", ["official", "beir", "trec"])
def test_every_form_replaces_every_other(form: str, tmp_path: Path) -> None:
    odd = {"q": frozenset({"d"})}
    before = made({"d": "t", "e": "u"}, {"q": "x"}, {"q": {"e": 1}}, {"q": {"e": 1}}, odd, {"q": "Ada"})
    export(before, form, tmp_path / "out")
    for other in ("official", "beir", "trec"):
        export(before, form, tmp_path / "out", force=True)
        export(before, other, tmp_path / "out", force=True)


@pytest.mark.parametrize(
    "own", ["corpus/mine.txt", "qrels/dev.tsv", "queries+qrels/old/notes", "corpus.jsonl/x", ".hidden", "corpus/qrels/"]
)
def test_force_replaces_no_file_and_no_folder_that_an_export_does_not_write(own: str, tmp_path: Path) -> None:
    before, out = made({"d": "t"}, {"q": "x"}, {"q": {"d": 1}}), tmp_path / "out"
    export(before, "official", out)
    path = out / own
    path.parent.mkdir(exist_ok=True, parents=True)
    if own.endswith("/"):
        path.mkdir()
    else:
        path.write_text("years of work")
    with pytest.raises(UserError, match="holds what no export writes"):
        export(before, "official", out, force=True)
    assert path.exists()


def test_a_link_in_the_folder_is_not_replaced(tmp_path: Path) -> None:
    before, out = made({"d": "t"}, {"q": "x"}, {"q": {"d": 1}}), tmp_path / "out"
    export(before, "official", out)
    (out / "corpus").rename(tmp_path / "elsewhere")
    (out / "corpus").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"no export writes \(corpus\)"):
        export(before, "official", out, force=True)
    assert (tmp_path / "elsewhere" / "corpus.jsonl").exists()


def test_a_link_to_a_folder_stays_and_the_folder_is_written(tmp_path: Path) -> None:
    before, link = made({"d": "t"}, {"q": "x"}, {"q": {"d": 1}}), tmp_path / "link"
    (tmp_path / "real").mkdir()
    link.symlink_to(tmp_path / "real")
    export(before, "official", link)
    export(before, "beir", link, force=True)
    assert link.is_symlink()
    assert sorted(path.name for path in (tmp_path / "real").iterdir()) == ["corpus.jsonl", "qrels", "queries.jsonl"]
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(UserError, match="leads nowhere"):
        export(before, "official", tmp_path / "circle")


@pytest.mark.parametrize("identifier", ["a\tb", "a\nb"])
def test_an_id_that_would_break_a_line_is_refused_and_nothing_is_written(identifier: str, tmp_path: Path) -> None:
    before = made({identifier: "t"}, {"q": "x"}, {"q": {identifier: 1}})
    with pytest.raises(UserError, match="TAB or a line end"):
        export(before, "official", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_text_that_no_file_can_hold_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    before = made({"d": "t"}, {"q": "half a pair: \ud800"}, {"q": {"d": 1}})
    with pytest.raises(UserError, match="not valid Unicode"):
        export(before, "official", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_duplicate_ids_and_unknown_forms_are_refused(tmp_path: Path) -> None:
    before = made({"d": "t"}, {"q": "x"}, {"q": {"d": 1}})
    twice = replace(before, facts=CorpusFacts(2, 1, 0, 1, ("d",)))
    with pytest.raises(UserError, match="repeat an id"):
        export(twice, "official", tmp_path / "out")
    with pytest.raises(UserError, match="official, beir, trec"):
        export(before, "csv", tmp_path / "out")


def test_without_gold_the_file_is_empty_and_said_so(tmp_path: Path) -> None:
    before = made({"d": "t"}, {"q": "x"}, {}, {"q": {"d": 1}})
    assert export(before, "official", tmp_path / "out") == (
        "made has no gold judgments in this source; their file is empty",
    )
    assert content(open_source(tmp_path / "out").dataset) == content(before.dataset)
