"""The specialist's graph: exact, against a slow oracle; and nothing but its topology leaves the module."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, get_type_hints

import datasets
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obliq_eval.demo.twins import twin_repos
from obliq_eval.edges import Edge, edge_lines
from obliq_eval.errors import UserError
from obliq_eval.records import Corpus
from obliq_models.encoders.base import Encoded, Encoder
from obliq_models.loading import encoder_of
from obliq_models.naming import find
from obliq_models.retrievers import authorship, bm25
from obliq_models.retrievers.base import Retriever
from obliq_models.retrievers.dense import DenseRetriever
from obliq_models.retrievers.stylometry import StylometryRetriever
from obliq_train import graph
from obliq_train.distinct import Distinct
from obliq_train.graph import Graph, knn_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from numpy.typing import NDArray

    from obliq_models.encoders.base import Role
    from obliq_models.retrievers.base import Texts


def table(texts: Mapping[str, str]) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"id": list(texts), "text": list(texts.values())})


class Given(Retriever):
    """A specialist whose similarity of two texts is a given function."""

    def __init__(self, similarity: Callable[[str, str], float]) -> None:
        super().__init__()
        self.similarity = similarity
        self.texts: list[str] = []

    def fit(self, texts: Texts) -> None:
        self.texts = list(texts)

    def score(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        for text in texts:
            yield np.array([[self.similarity(text, other) for other in self.texts]], np.float32)


def near(a: str, b: str) -> float:
    """Closeness of the numbers that texts are."""
    return -abs(float(a) - float(b))


TOY = ["the cat sat", "a dog barked", "ships at sea, far away", "Why not?", "it rained; it poured", "the end."]


def edges(found: Graph) -> list[tuple[str, str, int]]:
    return [tuple(edge) for edge in found.edges]


LINE = {"a": "0", "b": "1", "c": "3", "d": "7"}


def test_a_line_of_four_by_hand() -> None:
    """Distances: a-b 1, a-c 3, a-d 7, b-c 2, b-d 6, c-d 4."""
    found = knn_graph(table(LINE), Given(near), 2)
    assert edges(found) == [
        ("d", "c", 1), ("d", "b", 2), ("c", "b", 1), ("c", "a", 2),
        ("b", "a", 1), ("b", "c", 2), ("a", "b", 1), ("a", "c", 2),
    ]  # fmt: skip
    assert found.counts["anchors with fewer neighbours than k"] == 0


def test_mutual_edges_are_there_both_ways_and_keep_their_ranks() -> None:
    """Neither c nor b, the neighbours of d, have d among their two: both edges go; all others are mutual."""
    found = knn_graph(table(LINE), Given(near), 2, mutual=True)
    assert edges(found) == [
        ("c", "b", 1), ("c", "a", 2), ("b", "a", 1), ("b", "c", 2), ("a", "b", 1), ("a", "c", 2),
    ]  # fmt: skip
    assert found.counts["edges that are not mutual"] == 2


def test_equally_near_documents_come_in_descending_order_of_ids() -> None:
    found = knn_graph(table({"m": "5", "a": "4", "z": "6", "b": "4.0", "y": "6.0"}), Given(near), 3)
    assert [edge[1] for edge in edges(found) if edge[0] == "m"] == ["z", "y", "b"]


def test_each_distinct_text_is_there_once_and_empty_ones_are_not() -> None:
    """a, b and c have one text but for white space; c stands for it. d and e are empty."""
    texts = {"a": "one two", "b": " one  two\n", "c": "one two", "d": "", "e": "  ", "f": "three", "g": "four"}
    found = knn_graph(table(texts), Given(lambda _, b: float(len(b.split()))), 5)
    assert edges(found) == [("g", "c", 1), ("g", "f", 2), ("f", "c", 1), ("f", "g", 2), ("c", "g", 1), ("c", "f", 2)]
    counts = {"documents": 7, "distinct texts": 3, "duplicate documents": 2, "empty documents": 2}
    assert counts.items() <= found.counts.items()
    assert found.counts["anchors with fewer neighbours than k"] == 3


def test_no_edge_inside_a_source() -> None:
    """Sources join b to a and d to c; a text is of every source that one of its documents has."""
    sources = {
        "a": frozenset("x"),
        "b": frozenset("xy"),
        "c": frozenset("z"),
        "d": frozenset("z"),
        "other": frozenset("x"),
    }
    found = knn_graph(table(LINE), Given(near), 1, sources=sources)
    assert edges(found) == [("d", "b", 1), ("c", "b", 1), ("b", "c", 1), ("a", "c", 1)]
    assert found.counts["distinct texts with a source"] == 4
    copies = {**LINE, "bb": "1"}
    again = knn_graph(table(copies), Given(near), 1, sources={"b": frozenset("x"), "a": frozenset("x")})
    assert edges(again)[-1] == ("a", "c", 1)


TEXTS = st.lists(st.sampled_from(["", " ", "1", "1 ", "2", "3", "5", "8", "13", "21"]), min_size=2, max_size=12)


@settings(max_examples=60, deadline=None)
@given(
    texts=TEXTS,
    similarities=st.lists(st.integers(-3, 3), min_size=169, max_size=169),
    k=st.integers(1, 5),
    mutual=st.booleans(),
    groups=st.lists(st.sampled_from(["", "p", "q", "pq"]), min_size=12, max_size=12),
    block=st.integers(1, 40),
)
def test_the_graph_equals_a_slow_oracle(
    texts: list[str], similarities: list[int], k: int, mutual: bool, groups: list[str], block: int
) -> None:
    ids = [f"d{(7 * i) % 13:02d}" for i in range(len(texts))]
    held = dict(zip(ids, texts, strict=True))
    sources = {i: frozenset(g) for i, g in zip(ids, groups, strict=False) if g}

    def similarity(a: str, b: str) -> float:
        return float(similarities[(31 * int(a or 0) + int(b or 0)) % 169])

    def run() -> list[tuple[str, str, int]]:
        return edges(knn_graph(table(held), Given(similarity), k, sources=sources, mutual=mutual))

    stands = {text.strip(): max(i for i in ids if held[i].strip() == text.strip()) for text in texts if text.strip()}
    of = {
        text: frozenset().union(*(sources.get(i, frozenset()) for i in ids if held[i].strip() == text))
        for text in stands
    }
    wanted = []
    for a in sorted(stands, key=stands.__getitem__, reverse=True):
        others = [b for b in stands if b != a and not of[a] & of[b]]
        ranked = sorted(others, key=lambda b: (similarity(a, b), stands[b]), reverse=True)[:k]
        wanted += [(stands[a], stands[b], rank) for rank, b in enumerate(ranked, start=1)]
    if mutual:
        both = {(a, b) for a, b, _ in wanted}
        wanted = [edge for edge in wanted if (edge[1], edge[0]) in both]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph, "BLOCK", block)
        patch.setattr(graph, "TEXTS_AT_ONCE", 3)
        if len(stands) < 2:
            with pytest.raises(UserError, match="two different texts"):
                run()
        else:
            assert run() == wanted


TRANSFORMS: list[Callable[[float], float]] = [
    lambda s: 1000 * s + 5,
    math.exp,
    lambda s: s**3,
    lambda s: math.atan(s) / 7,
]


@settings(max_examples=25, deadline=None)
@given(values=st.lists(st.integers(-6, 6), min_size=169, max_size=169), which=st.sampled_from(range(len(TRANSFORMS))))
def test_similarity_values_cannot_leave(values: list[int], which: int) -> None:
    """Whatever raises all similarities monotonously changes not one byte of what comes out."""
    texts = table({f"d{i}": str(i) for i in range(9)})

    def similarity(a: str, b: str) -> float:
        return float(values[(17 * int(a) + int(b)) % 169])

    first = knn_graph(texts, Given(similarity), 4)
    second = knn_graph(texts, Given(lambda a, b: TRANSFORMS[which](similarity(a, b))), 4)
    assert "".join(edge_lines(first.edges)).encode() == "".join(edge_lines(second.edges)).encode()
    assert first.counts == second.counts


def test_what_is_public_returns_ids_ranks_and_counts_alone() -> None:
    own = {name: f for name, f in inspect.getmembers(graph, inspect.isfunction) if f.__module__ == graph.__name__}
    assert [name for name in own if not name.startswith("_")] == ["knn_graph"]
    assert inspect.signature(knn_graph).return_annotation == "Graph"
    assert list(Graph.__dataclass_fields__) == ["edges", "counts"]
    assert get_type_hints(Edge) == {"anchor": str, "neighbour": str, "rank": int}
    found = knn_graph(table(LINE), Given(near), 3)
    assert {type(part) for edge in found.edges for part in edge} == {str, int}
    assert {type(number) for number in found.counts.values()} == {int}
    assert all(edge.rank in {1, 2, 3} for edge in found.edges)


class TwoSided(Encoder):
    """Documents are points on a half circle by their numbers; queries are nonsense, so that their use would show."""

    def __init__(self) -> None:
        super().__init__("test/two-sided", "1", 2)
        self.encoded = 0

    def settings(self, role: Role) -> Mapping[str, Any]:  # noqa: ARG002 -- an encoder's form
        return {}

    def run(self, texts: Sequence[str], role: Role, instruction: str) -> Encoded:  # noqa: ARG002
        self.encoded += len(texts)
        if role == "query":
            return Encoded(np.tile(np.array([1, 0], np.float32), (len(texts), 1)))
        angles = np.array([float(text or 0) / 10 for text in texts])
        return Encoded(np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32))


@pytest.mark.parametrize("block", [1, 3, 1 << 25])
def test_encoders_see_both_sides_as_documents_through_the_store(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "BLOCK", block)
    texts = {**LINE, "b2": "1", "empty": ""}
    encoder = TwoSided()
    found = knn_graph(table(texts), DenseRetriever(encoder), 2)
    assert [edge for edge in edges(found) if edge[0] == "d"] == [("d", "c", 1), ("d", "b2", 2)]
    assert [edge for edge in edges(found) if edge[0] == "a"] == [("a", "b2", 1), ("a", "c", 2)]
    assert encoder.encoded == 5  # each distinct text once, and no query
    assert knn_graph(table(texts), DenseRetriever(encoder), 2).edges == found.edges
    assert encoder.encoded == 5


def test_a_symmetric_specialist_without_vectors() -> None:
    """Two writers by punctuation alone, on unlike subjects; stylometry joins each to himself."""
    calm = [
        "The sea was grey, and the boat was slow, and we waited.",
        "The corn was high, and the road was dry, and we slept.",
    ]
    loud = ["What! Never! Who said so? Not I! Ha!", "Why! Where! Who went there? Not he! Oh!"]
    texts = dict(zip("abcd", [*calm, *loud], strict=True))
    found = knn_graph(table(texts), StylometryRetriever(), 1)
    assert edges(found) == [("d", "c", 1), ("c", "d", 1), ("b", "a", 1), ("a", "b", 1)]


@pytest.mark.parametrize("teacher", ["luar", "luar-crud"])
def test_both_checkpoints_of_the_paper_s_teacher(teacher: str, tmp_path: Path) -> None:
    """Tiny twins with the table's settings; by hand: cosines of what they encode as documents."""
    entry = find(teacher)
    [twin] = twin_repos(tmp_path, only=[entry.name])
    model = authorship.load(entry.name, "1", path=str(twin.folder), **entry.settings)
    texts = {f"d{i}": text for i, text in enumerate(TOY)}
    found = knn_graph(table(texts), model, 3)
    encoder = encoder_of(model)
    assert encoder is not None
    vectors = encoder.encode(list(texts.values()), "document").vectors.astype(np.float64)
    similar = vectors @ vectors.T
    np.fill_diagonal(similar, -np.inf)
    wanted = [
        (f"d{a}", f"d{b}", r) for a in reversed(range(len(TOY))) for r, b in enumerate(np.argsort(-similar[a])[:3], 1)
    ]
    assert edges(found) == wanted


def test_bm25_joins_only_documents_with_a_common_word() -> None:
    texts = {"a": "grey whales", "b": "blue whales", "c": "quiet mountains"}
    found = knn_graph(table(texts), bm25.load("bm25"), 2)
    assert edges(found) == [("b", "a", 1), ("a", "b", 1)]
    assert found.counts["anchors with fewer neighbours than k"] == 3


def test_a_corpus_record_and_prepared_documents_serve_as_well() -> None:
    texts = table(LINE)
    one, two = Corpus("toy", "1", texts), Distinct(texts)
    assert knn_graph(one, Given(near), 2).edges == knn_graph(two, Given(near), 2).edges


def test_what_cannot_be_done_is_said() -> None:
    with pytest.raises(UserError, match="k is 0"):
        knn_graph(table(LINE), Given(near), 0)
    with pytest.raises(UserError, match="not a number"):
        knn_graph(table(LINE), Given(lambda *_: float("nan")), 1)
    with pytest.raises(UserError, match="more than once"):
        knn_graph(datasets.Dataset.from_dict({"id": ["a", "a"], "text": ["x", "y"]}), Given(near), 1)

    class Short(Given):
        def score(self, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
            yield from list(super().score(texts))[1:]

    with pytest.raises(UserError, match="answered 3 of 4"):
        knn_graph(table(LINE), Short(near), 1)
