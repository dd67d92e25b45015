"""Memory and time of a corpus of OBLIQ-WildChat's size, against `datasets.load_dataset("json")`.

A corpus of 507,729 documents of 4,161 characters on average, half of them copies, is written as JSONL into a temporary
folder (5 GB at most, deleted afterwards). Each step runs in a process of its own; "added" is the peak of RssAnon
(anonymous memory; mapped file pages do not count) above what the process held once everything was imported.

    python benchmarks/corpus.py [--documents N] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import datasets
import numpy as np
from rich.console import Console
from rich.table import Table

from obliq_eval.data.corpus import open_corpus

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENTS, CHARACTERS, LONGEST = 507_729, 4_161, 10_020
ALLOWED_MB = 500
INTERVAL = 0.005  # seconds between two looks at the memory


def write(path: Path, documents: int) -> int:
    """Write the corpus and return how many characters its texts hold."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoin shrdlu cmfwyp vbgkqjxz"))
    source = "".join(rng.choice(letters, 20_000_000))
    half = -(-documents // 2)
    drawn = np.minimum(LONGEST, rng.gamma(3, CHARACTERS / 3, half))
    lengths = np.repeat((drawn * CHARACTERS / drawn.mean()).astype(int), 2)[:documents]
    starts = np.repeat(rng.integers(0, len(source) - 2 * LONGEST, half), 2)[:documents]
    with path.open("w", encoding="utf-8") as stream:
        for i, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
            stream.write(json.dumps({"_id": f"conversation {i}/turn 1", "text": source[start : start + length]}) + "\n")
    return int(lengths.sum())


class Memory:
    """The peak of RssAnon while a block runs, in MB above its value at the start."""

    def __enter__(self) -> Self:
        self._over = threading.Event()
        self._start = self._peak = anonymous()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(INTERVAL):
            self._peak = max(self._peak, anonymous())

    @property
    def added(self) -> float:
        """Megabytes (10^6 bytes)."""
        return (max(self._peak, anonymous()) - self._start) / 1e6


def anonymous() -> int:
    """Return RssAnon in bytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))


def ours(corpus: Path) -> datasets.Dataset:
    """Open the corpus as this project does."""
    return open_corpus(corpus, "benchmark")[0]


def peer(corpus: Path) -> datasets.Dataset:
    """Open the corpus as `datasets` does."""
    return datasets.load_dataset("json", data_files=str(corpus), split="train", cache_dir=str(corpus.parent / "peer"))


def measure(opened: Callable[[Path], datasets.Dataset], corpus: Path, *, read: bool) -> dict[str, float]:
    """Open the corpus, or read each row of it once it is open."""
    table = opened(corpus) if read else None
    with Memory() as memory:
        start = time.perf_counter()
        rows = len(opened(corpus)) if table is None else sum(len(row["text"]) >= 0 for row in table)
        seconds = time.perf_counter() - start
    return {"added": memory.added, "seconds": seconds, "rows": rows}


def in_own_process(who: str, step: str, corpus: Path, documents: int) -> dict[str, float]:
    """Measure one step in a new process."""
    done = subprocess.run(
        [sys.executable, __file__, "--step", who, step, "--folder", str(corpus.parent)],
        env={**os.environ, "OBLIQ_HOME": str(corpus.parent / "ours"), "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    assert found["rows"] == documents
    return found


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        who, step = options.step
        opened = {"ours": ours, "peer": peer}[who]
        print(json.dumps(measure(opened, options.folder / "corpus.jsonl", read=step == "pass")))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        corpus = Path(folder) / "corpus.jsonl"
        characters = write(corpus, options.documents)
        title = f"{options.documents:,} documents of {characters / options.documents:,.0f} characters"
        found = {}
        for who in ("ours", "peer"):
            for step in ("convert", "load", "pass"):
                found[who, step] = in_own_process(who, step, corpus, options.documents)
            shutil.rmtree(corpus.parent / who)
    table = Table(title=title)
    for column in ("step", "obliq MB added", "datasets MB added", "ratio", "obliq s", "datasets s", "ratio"):
        table.add_column(column, justify="left" if column == "step" else "right")
    for step, what in {"convert": "convert", "load": "load again", "pass": "one pass, row by row"}.items():
        mine, theirs = found["ours", step], found["peer", step]
        table.add_row(
            what,
            *(f"{one['added']:,.0f}" for one in (mine, theirs)),
            f"{mine['added'] / max(theirs['added'], 0.1):.2f}",
            *(f"{one['seconds']:.2f}" for one in (mine, theirs)),
            f"{mine['seconds'] / theirs['seconds']:.2f}",
        )
    Console().print(table)
    worst = max(found["ours", step]["added"] for step in ("convert", "load", "pass"))
    print(f"obliq adds at most {worst:,.0f} MB; {ALLOWED_MB} are allowed: {'yes' if worst <= ALLOWED_MB else 'NO'}")


if __name__ == "__main__":
    main()
