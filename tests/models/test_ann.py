"""The approximate index: its recall is counted, not assumed, and its answers are exact where it looks."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from obliq_eval.errors import MissingExtraError, UserError
from obliq_models import ann, index_files
from obliq_models.ann import Graph, recall_at
from obliq_models.encoders.base import Encoded, Encoder
from obliq_models.index import Index
from obliq_models.retrievers.dense import DenseRetriever

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

pytest.importorskip("faiss", reason="the extra `ann` is not installed")
DIMS = 16


def vectors(count: int, seed: int = 0) -> NDArray[np.float32]:
    """Unit vectors around a few centres."""
    random = np.random.default_rng(seed)
    found = random.standard_normal((20, DIMS))[random.integers(20, size=count)] + random.standard_normal((count, DIMS))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


class Numbers(Encoder):
    """The text is the number of a vector, or of two with the same one: "3" and "3 again"."""

    def __init__(self, count: int) -> None:
        super().__init__("org/numbers", "1", DIMS)
        self.vectors = vectors(count)

    def settings(self, _: str) -> Mapping[str, Any]:
        return {"count": len(self.vectors)}

    def run(self, texts: Sequence[str], *_: str) -> Encoded:
        return Encoded(self.vectors[[int(text.split()[0]) for text in texts]])


class Stub:
    """An index that answers as it is told, where a graph of faiss would stand."""

    def __init__(self, answers: Mapping[int, Sequence[int]], count: int) -> None:
        self.answers, self.ntotal, self.asked = answers, count, 0

    def search(self, queries: NDArray[np.float32], k: int, **_: Any) -> tuple[None, NDArray[np.int64]]:
        rows = [list(self.answers[int(query[0])])[:k] for query in queries]
        return None, np.array([row + [-1] * (k - len(row)) for row in rows], np.int64)


def test_recall_is_the_share_of_the_exact_rows() -> None:
    """The first query has 1 of 2, the second 2 of 2, so 3/4; a query without exact rows does not count."""
    found = [np.array([7, 3, 9]), np.array([2, 1]), np.array([4])]
    exact = [np.array([3, 5, 7]), np.array([1, 2]), np.array([], np.int64)]
    assert recall_at(2, found, exact) == 0.75
    assert recall_at(2, [], []) == 1.0


def test_recall_is_counted_against_the_dot_products_without_the_document_itself() -> None:
    """Four vectors on a line: (0), (1), (2), (3), products i·j, so that everything is nearest to 3, then 2, 1, 0.

    Exact without itself: for 0 all products are 0; for 1: 3, 2, 0; for 2: 3, 1, 0; for 3: 2, 1, 0. The stub finds all
    three others for 0, 1 and 2, and for 3 only itself and 2: shares 1, 1, 1 and 1/3, mean 5/6.
    """
    line = torch.arange(4.0)[:, None]
    graph = Graph(Stub({0: [0, 1, 2, 3], 1: [3, 2, 1, 0], 2: [3, 2, 1, 0], 3: [3, 2]}, 4))
    recall = graph.tune(lambda: [line[:1], line[1:]])
    assert (recall.at_10, recall.at_100, recall.sample) == (pytest.approx(5 / 6), pytest.approx(5 / 6), 4)
    assert recall.width == ann.WIDTHS[-1]  # none reached the target


def test_the_first_width_that_is_enough_is_taken() -> None:
    line = torch.arange(3.0)[:, None]
    recall = Graph(Stub(dict.fromkeys(range(3), (2, 1, 0)), 3)).tune(lambda: [line])
    assert (recall.width, recall.at_10, recall.at_100) == (ann.WIDTHS[0], 1.0, 1.0)


def test_the_recall_that_is_told_is_that_of_the_graph() -> None:
    """Counted once more by sorting all products: 40 documents of 3,000 as queries."""
    points = vectors(3_000)
    shards = [torch.from_numpy(points[:1_000]), torch.from_numpy(points[1_000:])]
    graph = Graph.build(lambda: shards, DIMS)
    recall = graph.tune(lambda: shards, sample=40)
    rows = np.linspace(0, 2_999, 40).astype(np.int64)
    shares: dict[int, list[float]] = {10: [], 100: []}
    for row in rows:
        order = [other for other in np.argsort(-(points @ points[row]), kind="stable").tolist() if other != row]
        found = [other for other in graph.search(points[[row]], 101)[0].tolist() if other != row]
        for k, counted in shares.items():
            counted.append(len(set(order[:k]) & set(found[:k])) / k)
    assert recall.at_10 == pytest.approx(np.mean(shares[10]), abs=0.003)  # equal products may be ordered otherwise
    assert recall.at_100 == pytest.approx(np.mean(shares[100]), abs=0.003)
    assert recall.at_100 >= ann.TARGET


def test_a_graph_on_disk_answers_as_the_one_that_was_built(tmp_path: Path) -> None:
    points = vectors(500)
    graph = Graph.build(lambda: [torch.from_numpy(points)], DIMS)
    graph.write(tmp_path / "graph")
    again = Graph.open(tmp_path / "graph", graph.width)
    assert len(again) == 500
    assert np.array_equal(again.search(points[:20], 7), graph.search(points[:20], 7))
    (tmp_path / "graph").write_bytes((tmp_path / "graph").read_bytes()[:1_000])
    with pytest.raises(UserError, match="damaged"):
        Graph.open(tmp_path / "graph", 64)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """400 vectors, each of two documents with one text."""
    documents = {f"{copy}{number:03}": str(number) for number in range(400) for copy in "ab"}
    Index.build(documents, DenseRetriever(Numbers(400)), tmp_path / "i", ann=True)
    return Index.open(tmp_path / "i", DenseRetriever(Numbers(400)))


def test_approximate_answers_have_the_exact_scores_and_order(index: Index) -> None:
    """With as many candidates as there are texts nothing is missed, so both are the same, repeated texts included."""
    queries = ["5", "77", "123"]
    exact = index.search(queries, 400)
    near = index.search(queries, 400, approximate=True)
    for left, right in zip(exact, near, strict=True):
        assert [hit.id for hit in left] == [hit.id for hit in right]
        assert [hit.score for hit in left] == pytest.approx([hit.score for hit in right], abs=1e-6)
    assert [hit.id for hit in near[0][:2]] == ["b005", "a005"]


def test_excluded_documents_are_replaced_by_the_next(index: Index) -> None:
    barred = [hit.id for hit in index.search(["5"], 25)[0]]
    [hits] = index.search(["5"], 10, excluded=[barred], approximate=True)
    assert len(hits) == 10
    assert not {hit.id for hit in hits} & set(barred)
    assert [hit.id for hit in hits] == [hit.id for hit in index.search(["5"], 35)[0][25:]]


def test_what_the_graph_does_not_find_is_searched_exactly_and_counted(index: Index) -> None:
    index.__dict__["graph"] = Graph(_Blind())
    assert index.search(["5"], 3, approximate=True) == index.search(["5"], 3)
    assert index.inexact == 1


class _Blind:
    ntotal = 400

    def search(self, queries: NDArray[np.float32], k: int, **_: Any) -> tuple[None, NDArray[np.int64]]:
        return None, np.full((len(queries), k), -1, np.int64)


def test_the_recall_is_kept(index: Index) -> None:
    recall = index_files.read_manifest(index.path).recall
    assert recall is not None
    assert recall.sample == 400
    assert 0 < recall.at_100 <= 1


def test_a_graph_of_other_vectors_is_refused(index: Index) -> None:
    Graph.build(lambda: [torch.from_numpy(vectors(30))], DIMS).write(index.path / index_files.GRAPH)
    with pytest.raises(UserError, match="does not fit"):
        index.search(["5"], approximate=True)


def test_a_model_without_vectors_has_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no vectors"):
        Index.build({"1": "a"}, "bm25", tmp_path / "i", ann=True)
    assert not (tmp_path / "i").exists()


def test_a_missing_faiss_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: Any, **more: Any) -> Any:
        if name == "faiss":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingExtraError, match=r"faiss-cpu: pip install 'obliq\[ann\]'"):
        ann.library()
