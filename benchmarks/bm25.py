"""BM25 end to end, against mteb's own baseline, and its memory on a corpus of WildChat's size.

Generated English-like text: words drawn by Zipf's law from a vocabulary that is the same for both.

    python benchmarks/bm25.py                 # 72,122 documents of about 35 words, 281 queries, k = 1000
    python benchmarks/bm25.py --wildchat DIR  # 507,729 documents of 4,161 characters in an Arrow file under DIR
"""

from __future__ import annotations

import argparse
import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import mteb
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from obliq_eval.catalogue import resolve, to_meta

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

VOCABULARY = 0  # the seed of the words, which corpus and queries share
ALLOWED_GB = 8  # of anonymous memory at WildChat's size
K = 1000


def vocabulary(size: int, rng: np.random.Generator) -> NDArray[np.object_]:
    """Return made-up words of 2 to 11 letters; the commonest are short."""
    letters = np.array(list("etaoinshrdlcumwfgypbvk"))
    lengths = np.minimum(11, 2 + (np.log1p(np.arange(size)) * 0.7).astype(int) + rng.integers(0, 2, size))
    return np.array(["".join(rng.choice(letters, n)) for n in lengths], dtype=object)


def texts(count: int, words: float, rng: np.random.Generator, size: int = 200_000) -> Iterator[str]:
    """Yield texts of about this many words."""
    known = vocabulary(size, np.random.default_rng(VOCABULARY))
    share = np.cumsum(1 / np.arange(1, size + 1) ** 1.05)
    for _ in range(count):
        drawn = np.searchsorted(share, rng.random(max(1, rng.poisson(words))) * share[-1])
        yield " ".join(known[drawn])


def table(count: int, words: float, prefix: str, seed: int) -> datasets.Dataset:
    """Return a table of generated texts with ids."""
    rows = list(texts(count, words, np.random.default_rng(seed)))
    return datasets.Dataset.from_dict({"id": [f"{prefix}{i:06d}" for i in range(count)], "text": rows})


def end_to_end(name: str, corpus: datasets.Dataset, queries: datasets.Dataset) -> dict[str, float]:
    """Return the seconds for indexing and for searching."""
    meta = to_meta(resolve(name)) if "/" not in name else mteb.get_model_meta(name)
    model: Any = meta.load_model()
    common: dict[str, Any] = {
        "task_metadata": mteb.get_task("NFCorpus").metadata,
        "hf_split": "test",
        "hf_subset": "default",
        "encode_kwargs": {"show_progress_bar": False},
        "num_proc": None,
    }
    start = time.perf_counter()
    model.index(corpus, **common)
    indexed = time.perf_counter()
    model.search(queries, top_k=K, **common)
    return {"index": indexed - start, "search": time.perf_counter() - indexed}


def twitter(documents: int, repeats: int) -> None:
    """Print the times of every variant and of mteb's baseline, the shortest of several runs."""
    corpus, queries = table(documents, 35, "d", 0), table(281, 50, "q", 1)
    names = ["mteb/baseline-bm25s", "bm25", "bm25-okapi", "bm25-stem"]
    runs = [(name, end_to_end(name, corpus, queries)) for _ in range(repeats) for name in names]
    best = {name: min((r for n, r in runs if n == name), key=lambda run: sum(run.values())) for name in names}
    peer = sum(best[names[0]].values())
    view = Table(title=f"{documents:,} documents of 35 words, 281 queries of 50, k = {K}")
    for column in ("model", "index s", "search s", "total s", "÷ mteb"):
        view.add_column(column, justify="left" if column == "model" else "right")
    for name, run in best.items():
        total = sum(run.values())
        view.add_row(name, f"{run['index']:.2f}", f"{run['search']:.2f}", f"{total:.2f}", f"{total / peer:.2f}")
    Console().print(view)


class Anonymous:
    """The highest RssAnon of this process, in bytes, read ten times a second."""

    def __init__(self) -> None:
        self.peak = self.start = self.now()
        threading.Thread(target=self._watch, daemon=True).start()

    @staticmethod
    def now() -> int:
        """Return the anonymous memory of this process; mapped file pages do not count."""
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.split("RssAnon:")[1].split()[0]) * 1024

    def _watch(self) -> None:
        while True:
            self.peak = max(self.peak, self.now())
            time.sleep(0.1)


def wildchat(folder: Path, documents: int, name: str) -> None:
    """Print the time and the peak of anonymous memory."""
    file = folder / f"wildchat-{documents}.arrow"
    if not file.exists():
        schema = pa.schema({"id": pa.string(), "text": pa.string()})
        source = texts(documents, 576, np.random.default_rng(2), size=2_000_000)
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for first in range(0, documents, 1000):
                part = [text for _, text in zip(range(min(1000, documents - first)), source, strict=False)]
                ids = [f"d{first + i:06d}" for i in range(len(part))]
                writer.write_batch(pa.record_batch({"id": ids, "text": part}, schema=schema))
    corpus = datasets.Dataset.from_file(str(file))
    characters = np.mean([len(text) for text in corpus.select(range(0, documents, max(1, documents // 1000)))["text"]])
    queries = table(40, 50, "q", 1)
    memory = Anonymous()
    run = end_to_end(name, corpus, queries)
    view = Table(title=f"{documents:,} documents of {characters:,.0f} characters, 40 queries, k = {K}")
    for column in ("model", "index s", "search s", "anonymous memory before", "peak"):
        view.add_column(column, justify="left" if column == "model" else "right")
    seconds = (f"{run['index']:.0f}", f"{run['search']:.1f}")
    view.add_row(name, *seconds, f"{memory.start / 1e9:.2f} GB", f"{memory.peak / 1e9:.2f} GB")
    Console().print(view)
    verdict = "yes" if memory.peak <= ALLOWED_GB * 1e9 else "NO"
    print(f"peak of {memory.peak / 1e9:.2f} GB; {ALLOWED_GB} are allowed: {verdict}")


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wildchat", type=Path, metavar="DIR", help="generate and index the large corpus there")
    parser.add_argument("--documents", type=int, help="another number of documents")
    parser.add_argument("--model", default="bm25", help="for --wildchat")
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    if options.wildchat is None:
        twitter(options.documents or 72_122, options.repeats)
    else:
        wildchat(options.wildchat, options.documents or 507_729, options.model)


if __name__ == "__main__":
    main()
