"""Exact top-k against a full sort."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from obliq_models import search
from obliq_models.embeddings import Embeddings
from obliq_models.shards import Cost, Storage
from obliq_models.stores import Stored


def slow(scores: np.ndarray, k: int, excluded: list[np.ndarray], floor: float) -> list[list[tuple[int, float]]]:
    """Sort everything, best score first and then lower column first; drop what is excluded; cut."""
    answers = []
    for row, barred in zip(scores, excluded, strict=True):
        ranked = sorted(range(len(row)), key=lambda column: (-row[column], column))
        kept = [column for column in ranked if column not in set(barred.tolist()) and row[column] > floor]
        answers.append([(column, float(row[column])) for column in kept[:k]])
    return answers


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, int, list[np.ndarray], float]:
    rows, width = draw(st.integers(1, 4)), draw(st.integers(1, 30))
    values = st.sampled_from([0.0, -0.0, 1.0, 1.0000001, 0.5, -2.0, float("-inf")])
    scores = draw(arrays(np.float32, (rows, width), elements=values.map(lambda v: float(np.float32(v)))))
    columns = st.lists(st.integers(0, width - 1), max_size=width)
    excluded = [np.array(draw(columns), np.int64) for _ in range(rows)]
    return scores, draw(st.integers(1, 35)), excluded, draw(st.sampled_from([-np.inf, 0.0, 1.0]))


@settings(max_examples=300, deadline=None)
@given(cases())
def test_top_k_equals_a_full_sort(case: tuple[np.ndarray, int, list[np.ndarray], float]) -> None:
    scores, *rest = case
    expected = slow(scores.copy(), *rest)
    found = search.top_k(scores, *rest)
    assert [list(zip(c.tolist(), s.tolist(), strict=True)) for c, s in found] == expected


def test_ties_at_the_cut_take_the_lower_columns() -> None:
    # 2,000 equal scores and one better: torch's own choice among the equals is arbitrary.
    scores = np.ones((1, 2000), np.float32)
    scores[0, 1234] = 2
    ((columns, values),) = search.top_k(scores, 4)
    assert columns.tolist() == [1234, 0, 1, 2]
    assert values.tolist() == [2, 1, 1, 1]


def test_excluded_documents_leave_before_the_cut() -> None:
    ((columns, _),) = search.top_k(np.array([[0.9, 0.8, 0.7]], np.float32), 2, [np.array([0, 1])])
    assert columns.tolist() == [2]


@pytest.mark.parametrize("k", [0, 1, 5])
def test_nothing_left_is_an_empty_answer(k: int) -> None:
    ((columns, values),) = search.top_k(np.array([[1.0, 2.0]], np.float32), k, [np.array([0, 1])])
    assert columns.tolist() == []
    assert values.dtype == np.float32
    assert [c.tolist() for c, _ in search.top_k(np.zeros((2, 0), np.float32), k)] == [[], []]


def test_products_in_blocks_equal_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "BLOCK", 10)  # three queries over five documents: two at a time
    queries, documents = torch.randn(3, 4), torch.randn(5, 4)
    blocks = list(search.products(queries, documents))
    assert [len(block) for block in blocks] == [2, 1]
    torch.testing.assert_close(torch.cat(blocks), queries @ documents.T)


def store(distinct: np.ndarray, rows: list[int], storage: Storage = "float16", size: int = 3) -> Embeddings:
    """Keep vectors, and say which text has which."""
    told = {"model": "org/given", "role": "document"}
    kept = Stored(told, "", distinct.shape[1], storage, size, len(rows), len(distinct))
    for shard in kept.shards():
        first = shard.number * size
        shard.write(distinct[first : first + shard.texts].astype(np.float32), Cost(shard.texts, 0, 0, 0, 0))
    return Embeddings(kept, np.array(rows, np.int32), {})


@st.composite
def kept_vectors(draw: st.DrawFn) -> tuple[np.ndarray, list[int], np.ndarray]:
    """Whole numbers, of which every type of storage and every order of summing gives the exact products."""
    dims = draw(st.integers(1, 5))
    whole = st.integers(-3, 3)
    distinct = draw(arrays(np.float32, (draw(st.integers(1, 8)), dims), elements=whole.map(float)))
    more = draw(st.lists(st.integers(0, len(distinct) - 1), max_size=10))
    rows = [*range(len(distinct)), *more]  # without repeats each text has its own row
    rows = list(draw(st.permutations(rows))) if more else rows
    return distinct, rows, draw(arrays(np.float32, (draw(st.integers(1, 5)), dims), elements=whole.map(float)))


@pytest.mark.parametrize("storage", ["float32", "float16", "bfloat16"])
@settings(max_examples=25, deadline=None)
@given(kept_vectors(), st.integers(1, 4), st.integers(1, 40), st.integers(1, 4), st.integers(1, 12))
def test_search_in_a_store_equals_a_full_sort(
    storage: Storage, case: tuple[np.ndarray, list[int], np.ndarray], size: int, block: int, chunk: int, k: int
) -> None:
    """Shards, blocks, chunks, repeated texts and equal vectors change nothing, ties at the cut included."""
    distinct, rows, queries = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)  # a disk takes its time, and there are thousands of files
        patch.setattr(search, "BLOCK", block)
        patch.setattr(search, "CHUNK", chunk)
        blocks = list(search.products(torch.from_numpy(queries), store(distinct, rows, storage, size)))
    assert all(part.dtype == torch.float32 and part.shape[1] == len(rows) for part in blocks)
    scores = queries @ distinct[rows].T
    np.testing.assert_array_equal(torch.cat(blocks).cpu().numpy(), scores)
    found = [hit for part in blocks for hit in search.top_k(part, k)]
    nothing = [np.zeros(0, np.int64)] * len(queries)
    expected = slow(scores, k, nothing, float("-inf"))
    assert [list(zip(c.tolist(), s.tolist(), strict=True)) for c, s in found] == expected


def test_a_block_holds_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 8 texts 4 are distinct: 24 scores hold 6 queries, of which a quarter of a block, 6, holds none; so 1."""
    monkeypatch.setattr(search, "BLOCK", 24)
    vectors = store(np.eye(4, dtype=np.float32), [0, 1, 2, 3, 3, 2, 1, 0])
    assert [tuple(block.shape) for block in search.products(torch.eye(4)[:3], vectors)] == [(1, 8)] * 3
    alone = store(np.eye(4, dtype=np.float32), [0, 1, 2, 3])
    assert [tuple(block.shape) for block in search.products(torch.eye(4).repeat(2, 1), alone)] == [(6, 4), (2, 4)]


@pytest.mark.parametrize("queries", [1, 2, 15, 16, 40])
@pytest.mark.parametrize("documents", [1, 2, 15, 16, 17, 37, 300])
def test_equal_vectors_tie_wherever_they_stand(queries: int, documents: int) -> None:
    """A matrix library takes other paths for few rows or columns, which round otherwise."""
    torch.manual_seed(0)
    asked = torch.randn(queries, 999)
    vectors = torch.randn(documents, 999)
    vectors[:: max(1, documents // 9)] = vectors[-1]
    (scores,) = search.products(asked, vectors)
    assert bool((scores[:, :: max(1, documents // 9)] == scores[:, -1:]).all())
    for row in range(queries):
        (alone,) = search.products(asked[row : row + 1], vectors)
        assert bool((alone == scores[row]).all())


def test_nothing_to_search() -> None:
    empty = store(np.zeros((0, 3)), [])
    assert [tuple(block.shape) for block in search.products(torch.ones(2, 3), empty)] == [(2, 0)]
    assert sum(map(len, search.products(torch.ones(0, 3), store(np.eye(3), [0, 1, 2])))) == 0


MEASURED = """
import sys
sys.path.insert(0, {here!r})
import numpy as np, torch
from obliq_models.embeddings import embed
from obliq_models.encoders.base import Encoded, Encoder
from obliq_models.search import products, top_k

def anonymous():
    status = open("/proc/self/status").read()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024

import threading
start = peak = anonymous()
def watch():
    global peak
    while not over.wait(0.002):
        peak = max(peak, anonymous())
over = threading.Event()

class Random(Encoder):
    def settings(self, role):
        return {{}}

    def run(self, texts, role, instruction):
        rng = np.random.default_rng(int(texts[0].split()[0]))
        return Encoded(rng.standard_normal((len(texts), self.dims), np.float32))

class Texts:
    def __len__(self):
        return 60_000

    def __iter__(self):
        return (f"{{number // 2}} " + "x" * 4_000 for number in range(len(self)))

queries = torch.randn(50, 1024)
top_k(queries @ queries.T, 3)  # whatever the library sets up
thread = threading.Thread(target=watch)
thread.start()
vectors = embed(Random("org/random", "1", 1024), Texts(), "document", storage="float16", shard=2_048)
hits = [hit for block in products(queries, vectors) for hit in top_k(block, 1000)]
over.set()
thread.join()
assert len(vectors) == 60_000 and vectors.distinct == 30_000 and len(hits) == 50
print(peak - start)
"""


def test_memory_stays_far_below_texts_and_vectors() -> None:
    """60,000 texts have 240 MB, half of them distinct; their vectors 120 MB in float32, scores 12 + 6 MB at a time.

    A shard of 2,048 has 8 MB of texts, and 8 MB of vectors in float32 and as many more in float64 when drawn.
    """
    script = MEASURED.format(here=str(Path(__file__).parent))
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert 5 < float(told) < 110
