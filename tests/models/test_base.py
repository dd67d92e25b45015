"""What every retriever owes, whatever it computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import datasets
import mteb
import numpy as np
import pytest
from mteb.models import SearchProtocol

from obliq_eval.catalogue import Origin
from obliq_eval.errors import UserError
from obliq_models.repositories import Repository
from obliq_models.retrievers.base import Retriever, Texts, check_dims

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Table = Callable[..., datasets.Dataset]


class Numbers(Retriever):
    """Documents and queries are numbers; the score is their product."""

    def fit(self, texts: Texts) -> None:
        self.values = np.array([float(text) for text in texts], np.float32)

    def score(self, texts: Sequence[str]) -> Iterator[np.ndarray]:
        for text in texts:  # one query at a time: blocks need not be equal
            yield float(text) * self.values[None, :]


def test_it_is_a_search_model_for_mteb() -> None:
    assert isinstance(Numbers(), SearchProtocol)
    assert Numbers().accepts_exclusions


def test_every_query_is_answered_in_canonical_order(table: Table) -> None:
    model = Numbers()
    model.index(table({"a": "1", "b": "2", "c": "2", "007": "-1"}))
    queries = table({"q1": "1", "q2": "0"}, excluded={"q1": ["b", "unknown"]})
    answers = model.search(queries, top_k=10)
    assert list(answers["q1"].items()) == [("c", 2.0), ("a", 1.0), ("007", -1.0)]
    assert list(answers["q2"]) == ["c", "b", "a", "007"]  # all tie: ids descending
    assert list(model.search(queries, top_k=2)["q2"]) == ["c", "b"]


def test_candidates_are_the_only_answers(table: Table) -> None:
    model = Numbers()
    model.index(table({"a": "1", "b": "2", "c": "3"}))
    queries = table({"q1": "1", "q2": "1"}, excluded={"q1": ["c"]})
    assert model.search(queries, top_k=5, top_ranked={"q1": ["c", "a"]}) == {"q1": {"a": 1.0}, "q2": {}}
    with pytest.raises(UserError, match="candidate 'x' of query 'q2' is not in the corpus"):
        model.search(queries, top_k=5, top_ranked={"q1": [], "q2": ["x"]})


def test_all_excluded_and_empty_corpora_give_empty_answers(table: Table) -> None:
    model = Numbers()
    model.index(table({"a": "1"}))
    assert model.search(table({"q": "1"}, excluded={"q": ["a"]}), top_k=3) == {"q": {}}
    empty = Numbers()
    empty.index(datasets.Dataset.from_dict({"id": [], "text": []}))
    assert empty.search(table({"q": "1"}), top_k=3) == {"q": {}}


def test_duplicate_documents_are_refused(table: Table) -> None:
    corpus = datasets.Dataset.from_dict({"id": ["a", "b", "a"], "text": ["1", "2", "3"]})
    with pytest.raises(UserError, match="'a' occurs more than once"):
        Numbers().index(corpus)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (np.full((1, 2), np.nan), "not a number"),
        (np.full((1, 2), np.inf), "not a number"),
        (np.zeros((1, 3)), r"shape \(1, 3\) where 1 queries and 2 documents"),
        (np.zeros((2, 2)), r"shape \(2, 2\) where 1 queries and 2 documents"),
        (np.zeros((0, 2)), r"shape \(0, 2\) where 1 queries and 2 documents"),
    ],
)
def test_wrong_scores_are_refused_by_the_models_name(table: Table, block: np.ndarray, message: str) -> None:
    class Broken(Numbers):
        def score(self, texts: Sequence[str]) -> Iterator[np.ndarray]:  # noqa: ARG002
            yield block

    model = Broken()
    model.index(table({"a": "1", "b": "2"}))
    with pytest.raises(UserError, match="Broken returned"):
        model.search(table({"q": "1"}), top_k=1)
    model.mteb_model_meta = mteb.get_model_meta("mteb/baseline-bm25s").model_copy(update={"name": "some/model"})
    with pytest.raises(UserError, match=f"some/model returned .*{message}"):
        model.search(table({"q": "1"}), top_k=1)


def test_texts_are_joined_as_mteb_joins_them() -> None:
    from mteb._create_dataloaders import _corpus_to_dict

    rows = {"id": ["a", "b", "c"], "text": [" one ", "two", ""], "title": ["T", "", "only title"]}
    corpus = datasets.Dataset.from_dict(rows)
    texts = Texts(corpus)
    assert list(texts) == [_corpus_to_dict(row)["text"] for row in corpus] == ["T  one", "two", "only title"]
    assert list(texts) == list(texts)  # more than one pass
    assert list(Texts(corpus.remove_columns("title"))) == ["one", "two", ""]
    assert list(texts.sample(2)) == ["T  one", "only title"]


def test_an_instruction_follows_the_query_as_in_mteb() -> None:
    class Recording(Numbers):
        def score(self, texts: Sequence[str]) -> Iterator[np.ndarray]:
            self.seen = list(texts)
            yield np.zeros((len(texts), 1), np.float32)

    model = Recording()
    model.index(datasets.Dataset.from_dict({"id": ["a"], "text": ["1"]}))
    told = {"id": ["q1", "q2"], "text": ["x", "y"], "instruction": ["say why", None]}
    model.search(datasets.Dataset.from_dict(told), top_k=1)
    assert model.seen == ["x say why", "y"]


A, B = "a" * 40, "b" * 40


@pytest.mark.parametrize(
    ("given", "sources", "revision"),
    [
        ("main", [Repository("o/m", A, "main")], A),
        (A, [Repository("o/m", A, A)], A),
        ("main", [Repository("o/m", A, "main"), Repository("o/base", B)], f"{A}-{B[:12]}"),
        (A, [Repository("o/m", A, A), Repository("o/base", B, B)], A),
        ("hash", [Repository("/a/folder"), Repository("o/base", B)], f"hash-{B[:12]}"),
        ("hash", [Repository("o/m", A, "main")], f"hash-{A[:12]}"),
        ("hash", [Repository("/a/folder")], "hash"),
    ],
)
def test_results_are_kept_under_the_commits_that_were_loaded(
    given: str, sources: list[Repository], revision: str
) -> None:
    """What may be another commit tomorrow is named, so that mteb never serves numbers of another model.

    A pinned commit that was asked for stands for itself; a folder's content is part of the hash that is its revision.
    """
    model = Numbers()
    model.sources = sources
    asked = mteb.get_model_meta("mteb/baseline-bm25s").model_copy(update={"revision": given})
    model.mteb_model_meta = asked
    assert model.mteb_model_meta is not None
    assert model.mteb_model_meta.revision == revision
    told = [str(source) for source in sources if source.commit]
    assert (model.mteb_model_meta.loader_kwargs or {}).get("loaded", "") == ", ".join(told)
    assert asked.revision == given
    model.origin = Origin("m:f", "o/m", {"revision": given})
    model.origin = Origin("m:around", "o/m", {})
    assert model.origin is not None
    assert model.origin.reference == "m:f"
    commits = {key: one.commit for key, one in zip(("revision", "base_revision"), sources, strict=False) if one.commit}
    assert model.origin.settings == {"revision": given, **commits}


def test_vectors_of_another_length_than_declared_are_refused() -> None:
    check_dims("o/m", 48, 48)
    check_dims("o/m", 48, None)
    check_dims("o/m", None, 48)
    with pytest.raises(UserError, match="its vectors have 48 dimensions, and 3072 are declared"):
        check_dims("o/m", 48, 3072)
