"""BM25 negatives over a corpus of Twitter-Conflict's size, against bm25s's own retrieval in the same run.

Generated English-like text (see `bm25.py`): 72,122 documents and 5,000 queries of about 35 words, of one vocabulary;
4 negatives for each query, after 5 masked documents (a positive, the source, three neighbours). bm25s has no masks, so
it retrieves 9 documents, from which the masked ones would have to be taken out; it is given the same stopwords and
tokens.

    python benchmarks/negatives.py [--queries N] [--documents N] [--repeats N]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import bm25s
import numpy as np
from rich.console import Console
from rich.table import Table

from obliq_eval.edges import Edge
from obliq_train.distinct import Distinct
from obliq_train.negatives import Miner, Wanted

sys.path.insert(0, str(Path(__file__).parent))
from bm25 import table

ALLOWED = 5_000  # queries a minute at least
N, MASKED = 4, 5


def ours(corpus: Distinct, queries: list[str], edges: list[Edge]) -> tuple[float, float, Miner]:
    """Return the seconds for the index and for mining."""
    start = time.perf_counter()
    miner = Miner(corpus, edges)
    indexed = time.perf_counter()
    rows = (
        Wanted(key=str(i), scored=text, barred=(corpus.ids[-1 - i], edges[3 * i].anchor), anchor=edges[3 * i].anchor)
        for i, text in enumerate(queries)
    )
    found = list(miner.mine(rows))
    assert len(found) == len(queries)
    return indexed - start, time.perf_counter() - indexed, miner


def peer(texts: list[str], queries: list[str]) -> tuple[float, float]:
    """Return the seconds for the index and for retrieval with bm25s, on both cores."""
    start = time.perf_counter()
    index = bm25s.BM25()
    index.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)
    indexed = time.perf_counter()
    asked = bm25s.tokenize(queries, stopwords="en", show_progress=False, return_ids=False)
    index.retrieve(asked, k=N + MASKED, show_progress=False, n_threads=2)
    return indexed - start, time.perf_counter() - indexed


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=72_122)
    parser.add_argument("--queries", type=int, default=5_000)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    both = table(options.documents + options.queries, 35, "d", 0)  # one vocabulary
    documents = both.select(range(options.documents))
    queries = both.select(range(options.documents, len(both)))["text"][:]
    corpus = Distinct(documents)
    random = np.random.default_rng(2)
    edges = [
        Edge(corpus.ids[i], corpus.ids[(i + 1 + int(step)) % len(corpus)], rank)
        for i in range(options.queries)
        for rank, step in enumerate(random.choice(1_000, 3, replace=False), start=1)
    ]
    mined, retrieved, counts = [], [], {}
    for _ in range(options.repeats):
        index, seconds, miner = ours(corpus, queries, edges)
        mined.append((seconds, index))
        counts = dict(miner.counts)
        index, seconds = peer(documents["text"][:], queries)
        retrieved.append((seconds, index))
    view = Table(title=f"{options.documents:,} documents of 35 words, {options.queries:,} queries")
    for column in ("way", "index s", "queries s", "queries a minute", "÷ bm25s"):
        view.add_column(column, justify="left" if column == "way" else "right")
    for name, (seconds, index) in (("bm25s, k = 9, no masks", min(retrieved)), ("obliq, 4 negatives", min(mined))):
        speed = 60 * options.queries / seconds
        view.add_row(name, f"{index:.2f}", f"{seconds:.2f}", f"{speed:,.0f}", f"{seconds / min(retrieved)[0]:.2f}")
    Console().print(view)
    print(counts)
    print(f"at least {ALLOWED:,} a minute: {'yes' if 60 * options.queries / min(mined)[0] >= ALLOWED else 'NO'}")


if __name__ == "__main__":
    main()
