"""An index of one's own documents: exact search, exclusions, odd ids, other models, damage, a kill in the middle."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path  # noqa: TC003 -- hypothesis reads the annotations
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from obliq_eval.errors import UserError
from obliq_models import index as index_module
from obliq_models import index_files, stores
from obliq_models.embeddings import embed
from obliq_models.encoders.base import Encoded, Encoder
from obliq_models.index import Hit, Index
from obliq_models.retrievers.bm25 import BM25Retriever
from obliq_models.retrievers.dense import DenseRetriever

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ODD = ["007", "7", "a b", "a/b/../c", 'say "no"', "naïve", "日本", "-1", "", "a\tb", "Zebra", "\u2028", "x" * 300]
WORDS = "abcd"
FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Bag(Encoder):
    """Counts words: whole numbers, so that products are exact and often equal."""

    def __init__(self, words: str = WORDS, *, revision: str = "1", prefix: str = "", dies_at: int = 0) -> None:
        super().__init__("org/bag", revision, len(words))
        self.words, self.prefix, self.dies_at, self.encoded = words, prefix, dies_at, 0

    def settings(self, role: str) -> Mapping[str, Any]:
        return {"prefix": self.prefix if role == "query" else "", "words": self.words}

    def run(self, texts: Sequence[str], role: str, _: str) -> Encoded:
        self.encoded += len(texts)
        if self.dies_at and self.encoded > self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        put = self.prefix if role == "query" else ""
        return Encoded(np.array([[(put + t).count(w) for w in self.words] for t in texts], np.float32), len(texts))


def model(**given: Any) -> DenseRetriever:
    return DenseRetriever(Bag(**given))


def many() -> dict[str, str]:
    """20 documents; every text is another."""
    return {str(number): f"{number} {WORDS[number % 4] * (number % 7)}" for number in range(20)}


def reference(documents: Mapping[str, str], query: str, k: int, excluded: Sequence[str]) -> list[tuple[str, float]]:
    """Search by sorting all documents, without anything that the index uses."""
    scored = [(float(sum(query.count(w) * t.count(w) for w in WORDS)), i) for i, t in documents.items()]
    return [(i, score) for score, i in sorted(scored, reverse=True) if i not in excluded][:k]


texts = st.text(alphabet=WORDS + " ", max_size=6)


@FEW
@given(
    corpus=st.dictionaries(st.sampled_from(ODD), texts, min_size=1),
    queries=st.lists(texts.filter(str.strip), min_size=1, max_size=3),
    k=st.integers(1, 15),
    data=st.data(),
)
def test_search_equals_sorting_everything(
    corpus: dict[str, str], queries: list[str], k: int, data: st.DataObject, tmp_path: Path
) -> None:
    excluded = [data.draw(st.lists(st.sampled_from(sorted(corpus)), unique=True)) for _ in queries]
    Index.build(corpus, model(), tmp_path / "index", force=True)
    found = Index.open(tmp_path / "index", model()).search(queries, k, excluded=excluded)
    for query, barred, hits in zip(queries, excluded, found, strict=True):
        assert [(hit.id, hit.score) for hit in hits] == reference(corpus, query, k, barred)
        assert all(hit.text == corpus[hit.id] for hit in hits)


def test_ties_are_broken_and_exclusions_applied_before_the_cut(tmp_path: Path) -> None:
    """Of 2·a, the documents a (1) are equal: descending ids put "b" before "7" before "007"; "b" is excluded."""
    Index.build({"7": "a", "007": "a", "b": "a", "c": "aa", "d": "d"}, model(), tmp_path / "i")
    index = Index.open(tmp_path / "i", model())
    assert index.search(["aa"], 2, excluded=[["b", "c"]]) == [(Hit("7", 2.0, "a"), Hit("007", 2.0, "a"))]
    assert [hit.id for hit in index.search(["aa"], 99)[0]] == ["c", "b", "7", "007", "d"]


def test_texts_come_back_as_they_are_and_equal_ones_are_encoded_once(tmp_path: Path) -> None:
    made = model()
    Index.build({"1": " a\n b ", "2": "b", "3": "b"}, made, tmp_path / "i")
    assert made.encoder.encoded == 2
    assert [hit.text for hit in Index.open(tmp_path / "i", model()).search(["b"])[0]] == ["b", "b", " a\n b "]


def test_the_vectors_are_those_of_the_store_under_a_second_name(tmp_path: Path) -> None:
    index = Index.build({"1": "a", "2": "b"}, model(), tmp_path / "i")
    [store] = stores.stored()
    names = sorted(path.name for path in store.folder.iterdir())
    assert sorted(path.name for path in (tmp_path / "i" / "vectors").iterdir()) == names
    assert all((store.folder / name).samefile(tmp_path / "i" / "vectors" / name) for name in names)
    stores.remove(store)
    assert [hit.id for hit in Index.open(tmp_path / "i", model()).search(["b"], 1)[0]] == ["2"]
    assert index.manifest.counts["document texts"] == 2


def test_an_index_can_be_moved(tmp_path: Path) -> None:
    Index.build({"1": "a"}, model(), tmp_path / "i")
    (tmp_path / "i").rename(tmp_path / "j")
    assert Index.open(tmp_path / "j", model()).search(["a"]) == [(Hit("1", 1.0, "a"),)]


def test_vectors_of_an_evaluation_are_taken(tmp_path: Path, table: Any) -> None:
    evaluated, again = model(), model()
    evaluated.index(table({"1": "a", "3": "b", "2": "c"}))
    Index.build({"1": "a", "2": "c", "3": "b"}, again, tmp_path / "i")
    assert again.encoder.encoded == 0


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"revision": "2"}, "revision was '1' and is '2'"),
        ({"words": "abc"}, "words was 'abcd' and is 'abc'"),
        ({"prefix": "q: "}, "query.prefix was '' and is 'q: '"),
    ],
)
def test_another_model_is_refused(other: dict[str, str], told: str, tmp_path: Path) -> None:
    Index.build({"1": "a"}, model(), tmp_path / "i")
    with pytest.raises(UserError, match=re.escape(told)):
        Index.open(tmp_path / "i", model(**other))


def test_a_model_by_name_is_remembered_and_another_is_refused(tmp_path: Path) -> None:
    Index.build({"1": "red fox", "2": "grey wolf"}, "bm25", tmp_path / "i")
    assert [hit.id for hit in Index.open(tmp_path / "i").search(["wolf"])[0]] == ["2"]
    with pytest.raises(UserError, match="was indexed with obliq/bm25, which this is not"):
        Index.open(tmp_path / "i", "bm25-okapi")


def test_a_model_without_vectors_answers_as_in_an_evaluation(tmp_path: Path, table: Any) -> None:
    corpus = {"7": "red fox", "007": "red fox", "x y": "grey wolf", "z": "fox fox"}
    evaluated = BM25Retriever()
    evaluated.index(table(corpus))
    expected = evaluated.search(table({"q": "red fox"}, {"q": ["z"]}), top_k=2)["q"]
    Index.build(corpus, "bm25", tmp_path / "i")
    [hits] = Index.open(tmp_path / "i").search(["red fox"], 2, excluded=[["z"]])
    assert [(hit.id, hit.score, hit.text) for hit in hits] == [
        ("7", expected["7"], "red fox"),
        ("007", expected["007"], "red fox"),
    ]
    assert Index.open(tmp_path / "i").search(["heron"]) == [()]


def test_an_object_has_to_be_given_again(tmp_path: Path) -> None:
    Index.build({"1": "a"}, model(), tmp_path / "i")
    with pytest.raises(UserError, match="give that model"):
        Index.open(tmp_path / "i")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"texts": "a"}, "list of queries"),
        ({"texts": ["a", " \n"]}, "query 2 of 2 is empty"),
        ({"texts": [""]}, "the query is empty"),
        ({"texts": ["a"], "k": 0}, "at least one"),
        ({"texts": ["a"], "excluded": [["01"]]}, "no document with the id '01'"),
        ({"texts": ["a"], "excluded": [["1"], ["1"]]}, "1 queries and 2 lists"),
        ({"texts": ["a"], "excluded": ["1"]}, "put the one id into brackets"),
        ({"texts": ["a\ud800"]}, "a query holds half of a surrogate pair"),
        ({"texts": ["a"], "approximate": True}, "no approximate index"),
    ],
)
def test_what_cannot_be_asked_is_told(arguments: dict[str, Any], told: str, tmp_path: Path) -> None:
    index = Index.build({"1": "a"}, model(), tmp_path / "i")
    with pytest.raises(UserError, match=told):
        index.search(**arguments)


@pytest.mark.parametrize(
    ("documents", "told"),
    [
        ([("1", "a"), ("2", "b"), ("1", "c")], "document '1' occurs more than once"),
        ({}, "no documents"),
        ({"a\0b": "a"}, "NUL"),
        ({7: "a"}, "the id 7 is not a string"),
        ({"a": None}, "the text of 'a' is no string"),
        ({"a": "half \ud800"}, "the text of 'a' is no string"),
        (datasets.Dataset.from_dict({"id": [7], "text": ["a"]}), "no column 'id' of strings"),
        (datasets.Dataset.from_dict({"id": ["7"], "body": ["a"]}), "no column 'text' of strings"),
    ],
)
def test_documents_that_cannot_be_indexed(documents: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=told):
        Index.build(documents, model(), tmp_path / "i")
    assert not (tmp_path / "i").exists()


def test_what_is_no_index_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "i").mkdir()
    (tmp_path / "i" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("more work")
    for place in ("i", "file"):
        with pytest.raises(UserError, match="choose another folder"):
            Index.build({"1": "a"}, model(), tmp_path / place, force=True)
    assert (tmp_path / "i" / "thesis.txt").read_text() == "years of work"
    assert (tmp_path / "file").read_text() == "more work"


def test_an_index_is_replaced_when_that_is_wanted_and_whole(tmp_path: Path) -> None:
    Index.build({"1": "a"}, model(), tmp_path / "i")
    with pytest.raises(UserError, match="--force"):
        Index.build({"2": "a"}, model(), tmp_path / "i")
    with pytest.raises(UserError, match="more than once"):
        Index.build([("2", "a"), ("2", "b")], model(), tmp_path / "i", force=True)
    assert [hit.id for hit in Index.open(tmp_path / "i", model()).search(["a"])[0]] == ["1"]
    Index.build({"2": "a"}, model(), tmp_path / "i", force=True)
    assert [hit.id for hit in Index.open(tmp_path / "i", model()).search(["a"])[0]] == ["2"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "i").mkdir()
    assert len(Index.build({"1": "a"}, model(), tmp_path / "i")) == 1


@pytest.mark.parametrize(
    ("file", "told"),
    [
        (index_files.MANIFEST, "damaged"),
        (index_files.DOCUMENTS, "gone or damaged"),
        ("vectors/shard-00000.npy", "not whole"),
        ("vectors/manifest.json", "gone or damaged"),
        ("vectors/rows.npy", "not whole"),
    ],
)
def test_a_damaged_index_is_told(file: str, told: str, tmp_path: Path) -> None:
    Index.build({str(n): "a" * (n // 2) for n in range(50)}, model(), tmp_path / "i")
    target = tmp_path / "i" / file
    content = target.read_bytes()
    target.unlink()  # not through the second name of the file
    target.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=told):
        Index.open(tmp_path / "i", model()).search(["a"])


@pytest.mark.parametrize(
    ("file", "change", "told"),
    [
        ("vectors/rows.npy", lambda rows: rows + 1, "not whole"),  # the last text has no vector
        ("vectors/rows.npy", lambda rows: rows - 1, "not whole"),
        ("vectors/rows.npy", lambda rows: rows.astype(float), "not whole"),
        ("vectors/shard-00000.npy", lambda vectors: vectors * np.float32("nan"), "a score is no number"),
    ],
)
def test_damage_that_leaves_the_size_is_told(file: str, change: Any, told: str, tmp_path: Path) -> None:
    Index.build({"1": "a", "2": "b", "3": "b"}, model(), tmp_path / "i")
    target = tmp_path / "i" / file
    values = np.load(target)
    target.unlink()
    np.save(target, change(values))
    with pytest.raises(UserError, match=told):
        Index.open(tmp_path / "i", model()).search(["a"])


@pytest.mark.parametrize("field", ["dims", "texts", "shard"])
def test_a_manifest_of_other_types_is_told(field: str, tmp_path: Path) -> None:
    Index.build({"1": "a"}, model(), tmp_path / "i")
    file = tmp_path / "i" / "vectors" / "manifest.json"
    told = json.loads(file.read_text())
    file.unlink()
    file.write_text(json.dumps({**told, field: "many"}))
    with pytest.raises(UserError, match="gone or damaged"):
        Index.open(tmp_path / "i", model()).search(["a"])


def test_an_index_that_was_replaced_is_not_answered_from_both(tmp_path: Path) -> None:
    """Opened, but not asked yet; the new one has as many documents."""
    Index.build({"1": "a", "2": "b"}, model(), tmp_path / "i")
    opened, asked = (Index.open(tmp_path / "i", model()) for _ in range(2))
    before = asked.search(["a"], 1)
    Index.build({"1": "b", "2": "a"}, model(), tmp_path / "i", force=True)
    assert before == [(Hit("1", 1.0, "a"),)]
    for index in (opened, asked):
        with pytest.raises(UserError, match="was replaced while it was open"):
            index.search(["a"])


def test_vectors_of_other_documents_are_refused(tmp_path: Path) -> None:
    Index.build({"1": "a", "2": "b"}, model(), tmp_path / "i")
    Index.build({"1": "b", "2": "a"}, model(), tmp_path / "j")
    shutil.rmtree(tmp_path / "i" / "vectors")
    shutil.copytree(tmp_path / "j" / "vectors", tmp_path / "i" / "vectors")
    with pytest.raises(UserError, match="its vectors are not its documents'"):
        Index.open(tmp_path / "i", model()).search(["a"])


def test_what_another_process_has_written_meanwhile_stays(tmp_path: Path) -> None:
    class Slow(Bag):
        def run(self, texts: Sequence[str], role: str, instruction: str) -> Encoded:
            if not (tmp_path / "i").exists():
                Index.build({"theirs": "a"}, model(), tmp_path / "i")
            return super().run(texts, role, instruction)

    with pytest.raises(UserError, match="is an index already"):
        Index.build({"ours": "b"}, DenseRetriever(Slow(revision="2")), tmp_path / "i")
    assert len(Index.open(tmp_path / "i", model()).search(["a"], 9)[0]) == 1
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".part")] == []


def test_a_link_to_an_index_stays_a_link(tmp_path: Path) -> None:
    Index.build({"1": "a"}, model(), tmp_path / "disk" / "i")
    (tmp_path / "i").symlink_to(tmp_path / "disk" / "i")
    Index.build({"2": "a"}, model(), tmp_path / "i", force=True)
    assert (tmp_path / "i").is_symlink()
    assert [hit.id for hit in Index.open(tmp_path / "disk" / "i", model()).search(["a"])[0]] == ["2"]
    assert sorted(path.name for path in (tmp_path / "disk").iterdir()) == ["i"]


class Thirds(Bag):
    """Vectors that float16 rounds."""

    def run(self, texts: Sequence[str], role: str, instruction: str) -> Encoded:
        found = super().run(texts, role, instruction)
        return Encoded((found.vectors / 3 + 0.01).astype(np.float32), found.tokens)


@pytest.mark.parametrize("storage", ["float32", "float16", "bfloat16"])
def test_an_index_ranks_as_an_evaluation_does(storage: Any, tmp_path: Path, table: Any) -> None:
    """Queries are rounded as in an evaluation, and no task's prompt stands before them."""
    made = DenseRetriever(Thirds(), storage=storage)
    made.index(table(many()))
    expected = made.search(table({"q": "abca", "r": "d dd"}), top_k=20)
    Index.build(many(), made, tmp_path / "i")
    found = Index.open(tmp_path / "i", DenseRetriever(Thirds(), storage=storage)).search(["abca", "d dd"], 20)
    assert [[(hit.id, hit.score) for hit in hits] for hits in found] == [list(row.items()) for row in expected.values()]


def test_what_is_not_there_or_of_another_form_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        Index.open(tmp_path / "i")
    with pytest.raises(UserError, match="is no index"):
        Index.open(tmp_path)
    Index.build({"1": "a"}, model(), tmp_path / "i")
    file = tmp_path / "i" / index_files.MANIFEST
    file.write_text(json.dumps({**json.loads(file.read_text()), "form": 99}))
    with pytest.raises(UserError, match="form 99"):
        Index.open(tmp_path / "i", model())


def test_a_kill_costs_one_shard_and_leaves_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 texts in shards of 8 are 8, 8 and 4; the process is killed in the third."""
    monkeypatch.setattr(index_module, "embed", partial(embed, shard=8))
    code = [sys.executable, __file__, str(tmp_path / "killed")]
    assert subprocess.run(code, check=False, cwd=tmp_path).returncode == -signal.SIGKILL
    assert not (tmp_path / "killed").exists()
    resumed = model()
    Index.build(many(), resumed, tmp_path / "killed")
    assert resumed.encoder.encoded == 4
    shutil.rmtree(stores.root())
    Index.build(many(), model(), tmp_path / "whole")
    assert _digest(tmp_path / "killed") == _digest(tmp_path / "whole")


def _digest(index: Path) -> dict[str, str]:
    files = [index / index_files.DOCUMENTS, *sorted((index / index_files.VECTORS).glob("*.npy"))]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


if __name__ == "__main__":  # the process that is killed
    index_module.embed = partial(embed, shard=8)  # type: ignore[assignment]
    Index.build(many(), model(dies_at=16), sys.argv[1])
