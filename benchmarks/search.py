"""Exact search with exclusions at the size of OBLIQ-Writing, against a plain top-k and mteb's own way.

Random unit vectors, 10,389 documents, 512 queries, 3,072 dims, 1 to 3 documents excluded per query, k = 1000.
mteb can exclude documents only by naming every other document as a candidate (`top_ranked`).

    python benchmarks/search.py [--documents N] [--repeats N]
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

import datasets
import mteb
import numpy as np
import torch
from mteb.models import ModelMeta, SearchEncoderWrapper
from rich.console import Console
from rich.table import Table

from obliq_models.search import products, top_k

if TYPE_CHECKING:
    from collections.abc import Callable

K = 1000
ALLOWED = {"plain": 1.3, "mteb": 20}  # times plain at most, times faster than mteb at least


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


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=10_389)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    documents, queries = (
        torch.nn.functional.normalize(torch.from_numpy(rng.standard_normal((n, 3072), np.float32)))
        for n in (options.documents, 512)
    )
    excluded = [rng.choice(options.documents, rng.integers(1, 4), replace=False) for _ in range(512)]

    def plain() -> object:
        return (queries @ documents.T).topk(K, dim=1)

    def ours() -> object:
        return [hits for block in products(queries, documents) for hits in top_k(block, K, excluded)]

    ids = [f"d{i:06d}" for i in range(options.documents)]
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
        "plain matrix product + topk, nothing excluded": best_of(options.repeats, plain),
        "obliq: masked before selection, ties ordered": best_of(options.repeats, ours),
        "mteb: top_ranked = every other document": best_of(1, mteb_way),
    }
    base = seconds["plain matrix product + topk, nothing excluded"]
    mine = seconds["obliq: masked before selection, ties ordered"]
    table = Table(title=f"{options.documents:,} documents x 512 queries x 3,072 dims, k = {K}")
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
