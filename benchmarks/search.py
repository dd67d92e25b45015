"""Exact search with exclusions at the size of OBLIQ-Writing, against a plain top-k and mteb's own way.

Random unit vectors, 10,389 documents, 512 queries, 3,072 dims, 1 to 3 documents excluded per query, k = 1000.
mteb can exclude documents only by naming every other document as a candidate (`top_ranked`).

    python benchmarks/search.py [--documents N] [--repeats N]

With `--stream`, exact search in a store of OBLIQ-WildChat's size: 254 queries, 507,729 documents, 3,072 dims in
float16, k = 1000. The store (3.1 GB; 1.6 GB with `--distinct 264042`, the distinct texts of WildChat) is written into a
temporary folder and deleted. Its values are small whole numbers, so that every sum is exact, ties abound, and the
answers of a sample of queries must equal those of a full sort of products in float64. Memory is the peak of RssAnon
(mapped file pages do not count) above what the process held once everything was imported.

    python benchmarks/search.py --stream [--documents N] [--distinct N] [--folder DIR]
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import mteb
import numpy as np
import torch
from mteb.models import ModelMeta, SearchEncoderWrapper
from rich.console import Console
from rich.table import Table

from obliq_models.embeddings import Embeddings
from obliq_models.search import products, top_k
from obliq_models.shards import Cost
from obliq_models.stores import Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

K = 1000
ALLOWED = {"plain": 1.3, "mteb": 20}  # times plain at most, times faster than mteb at least
ALLOWED_BYTES = 2e9
DIMS, QUERIES, SAMPLE = 3072, 254, 8  # of the streaming search


class Precomputed:
    """An encoder for mteb that returns vectors made before."""

    mteb_model_meta = ModelMeta.create_empty({"name": "benchmark/precomputed"})

    def __init__(self, queries: torch.Tensor, documents: torch.Tensor) -> None:
        self.vectors = {"query": queries, "document": documents}

    def encode(self, inputs: Any, *, prompt_type: Any, **_: Any) -> torch.Tensor:
        """Walk over the texts, as any encoder must, and return their vectors."""
        assert sum(len(batch["text"]) for batch in inputs) == len(self.vectors[prompt_type.value])
        return self.vectors[prompt_type.value]

    def similarity(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return dot products."""
        return left @ right.T

    similarity_pairwise = similarity


def best_of(repeats: int, work: Callable[[], object]) -> float:
    """Return the shortest of several runs, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def anonymous() -> int:
    """Return RssAnon in bytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


@contextmanager
def peak_of_memory() -> Iterator[list[int]]:
    """Yield a list whose only item is the highest RssAnon of the block, read every 5 ms, once the block is over."""
    peak, over = [anonymous()], threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            peak[0] = max(peak[0], anonymous())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def whole_numbers(rng: np.random.Generator, rows: int) -> NDArray[np.float32]:
    """Return vectors of whole numbers from -4 to 4: a product is below 3,072 x 16, and exact in float32."""
    return rng.integers(-4, 5, (rows, DIMS), np.int8).astype(np.float32)


def written(documents: int, distinct: int, rng: np.random.Generator) -> Embeddings:
    """Write a store, documents drawn from the distinct texts."""
    store = Stored({"model": "benchmark/random", "role": "document"}, "", DIMS, "float16", 8192, documents, distinct)
    for shard in store.shards():
        shard.write(whole_numbers(rng, shard.texts), Cost(shard.texts, 0, 0, 0, 0))
    store.write()
    rows = np.concatenate([np.arange(distinct), rng.integers(0, distinct, documents - distinct)])
    np.save(store.folder / "rows.npy", rng.permutation(rows).astype(np.int32))
    return Embeddings.read(store)


def slow(queries: NDArray[np.float32], embeddings: Embeddings) -> list[tuple[list[int], list[float]]]:
    """Return each query's answers from products in float64 and a full sort."""
    kept = [np.load(shard.vectors) for shard in embeddings.store.shards()]
    scores = np.concatenate([queries.astype(np.float64) @ part.astype(np.float64).T for part in kept], axis=1)
    answers = []
    for row in scores[:, embeddings.rows]:
        best = np.lexsort((np.arange(len(row)), -row))[:K]
        answers.append((best.tolist(), row[best].tolist()))
    return answers


def stream(documents: int, distinct: int, folder: str | None) -> None:
    """Print one table on the search in a store."""
    rng = np.random.default_rng(0)
    start = anonymous()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        needed, free = distinct * DIMS * 2, shutil.disk_usage(place).free
        if free < 1.2 * needed:
            raise SystemExit(f"{place} has {free / 1e9:.1f} GB free; {1.2 * needed / 1e9:.1f} GB are needed")
        os.environ["OBLIQ_HOME"] = place
        embeddings = written(documents, distinct, rng)
        asked = whole_numbers(rng, QUERIES)
        queries = torch.from_numpy(asked)
        with peak_of_memory() as peak:
            begun, product = time.perf_counter(), 0.0
            hits = []
            blocks = products(queries, embeddings)
            while True:
                before = time.perf_counter()
                block = next(blocks, None)
                product += time.perf_counter() - before
                if block is None:
                    break
                hits += top_k(block, K)
                del block
            seconds = time.perf_counter() - begun
        shard = next(embeddings.shards())
        bare = best_of(3, lambda: queries @ shard.T) * distinct / len(shard)
        kept = next(embeddings.kept())
        converted = best_of(3, kept.float) * distinct / len(kept)
        sample = rng.choice(QUERIES, SAMPLE, replace=False)
        found = [(hits[q][0].tolist(), hits[q][1].tolist()) for q in sample]
        equal = found == slow(asked[sample], embeddings)
    ties = sum(len(scores) - len(np.unique(scores)) for _, scores in hits)
    table = Table(title=f"{documents:,} documents ({distinct:,} distinct), {QUERIES} queries, {DIMS:,} dims, float16")
    table.add_column("part")
    table.add_column("seconds", justify="right")
    for name, value in {
        "search, all of it": seconds,
        "products, reading and conversion included": product,
        "top-1000": seconds - product,
        "for comparison: the bare products, float32 in memory": bare,
        "for comparison: conversion alone": converted,
    }.items():
        table.add_row(name, f"{value:.2f}")
    Console().print(table)
    added = peak[0] - start
    print(f"{2 * QUERIES * distinct * DIMS / product / 1e9:.0f} GFLOP/s; {torch.get_num_threads()} threads")
    print(f"{SAMPLE} queries equal to the full sort, {ties:,} ties among all answers: {'yes' if equal else 'NO'}")
    fine = "yes" if added <= ALLOWED_BYTES else "NO"
    print(f"RssAnon {added / 1e9:.2f} GB above the interpreter (at most {ALLOWED_BYTES / 1e9:.0f} GB): {fine}")


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--distinct", type=int)
    parser.add_argument("--folder")
    options = parser.parse_args()
    if options.stream:
        documents = options.documents or 507_729
        stream(documents, options.distinct or documents, options.folder)
    else:
        excluding(options.documents or 10_389, options.repeats)


def excluding(n_documents: int, repeats: int) -> None:
    """Print one table on the search with exclusions."""
    rng = np.random.default_rng(0)
    documents, queries = (
        torch.nn.functional.normalize(torch.from_numpy(rng.standard_normal((n, 3072), np.float32)))
        for n in (n_documents, 512)
    )
    excluded = [rng.choice(n_documents, rng.integers(1, 4), replace=False) for _ in range(512)]

    def plain() -> object:
        return (queries @ documents.T).topk(K, dim=1)

    def ours() -> object:
        return [hits for block in products(queries, documents) for hits in top_k(block, K, excluded)]

    ids = [f"d{i:06d}" for i in range(n_documents)]
    corpus = datasets.Dataset.from_dict({"id": ids, "text": ["x"] * len(ids)})
    asked = datasets.Dataset.from_dict({"id": [f"q{i}" for i in range(512)], "text": ["x"] * 512})
    barred = [set(row.tolist()) for row in excluded]
    candidates = {f"q{q}": [d for i, d in enumerate(ids) if i not in barred[q]] for q in range(512)}
    common: dict[str, Any] = {
        "task_metadata": mteb.get_task("NFCorpus").metadata,
        "hf_split": "test",
        "hf_subset": "default",
        "encode_kwargs": {"batch_size": 512, "show_progress_bar": False},
    }
    wrapper = SearchEncoderWrapper(Precomputed(queries, documents))  # type: ignore[arg-type]
    wrapper.index(corpus, num_proc=None, **common)

    def mteb_way() -> object:
        return wrapper.search(asked, top_k=K, top_ranked=candidates, num_proc=None, **common)

    seconds = {
        "plain matrix product + topk, nothing excluded": best_of(repeats, plain),
        "obliq: masked before selection, ties ordered": best_of(repeats, ours),
        "mteb: top_ranked = every other document": best_of(1, mteb_way),
    }
    base = seconds["plain matrix product + topk, nothing excluded"]
    mine = seconds["obliq: masked before selection, ties ordered"]
    table = Table(title=f"{n_documents:,} documents x 512 queries x 3,072 dims, k = {K}")
    for column in ("search", "seconds", "÷ plain", "÷ obliq"):
        table.add_column(column, justify="left" if column == "search" else "right")
    for name, value in seconds.items():
        table.add_row(name, f"{value:.2f}", f"{value / base:.2f}", f"{value / mine:.1f}")
    Console().print(table)
    faster = seconds["mteb: top_ranked = every other document"] / mine
    fine = mine / base <= ALLOWED["plain"] and faster >= ALLOWED["mteb"]
    print(
        f"{mine / base:.2f} x plain (at most {ALLOWED['plain']}) and {faster:.0f} x faster than mteb "
        f"(at least {ALLOWED['mteb']}): {'yes' if fine else 'NO'}"
    )


if __name__ == "__main__":
    main()
