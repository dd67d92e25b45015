"""Time to score 512 queries x 1,000 documents under gold and pooled judgments: ours, plain ranx, pytrec_eval.

    python benchmarks/metrics.py

Each engine runs in fresh processes, import included: the first ever, with nothing compiled yet, then a second one; and
once more inside the second ("warm", the best of five). All get the same in-memory run, and must give the same means.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

QUERIES, DOCUMENTS = 512, 1000
ALLOWED = {"second": 4.0, "warm": 0.3}  # seconds
TREC_NAMES = {
    "ndcg@10": "ndcg_cut_10",
    "ndcg@50": "ndcg_cut_50",
    "recall@10": "recall_10",
    "recall@50": "recall_50",
    "recall@100": "recall_100",
    "recall@1000": "recall_1000",
}

Scores = dict[str, dict[str, float]]
Grades = dict[str, dict[str, int]]
Means = list[dict[str, float | None]]


def made_up() -> tuple[Scores, list[Grades]]:
    """Return a run without ties, and gold (9 documents a query) and pooled (14) judgments."""
    rng = np.random.default_rng(0)
    ids = np.array([f"document-{i}" for i in range(3 * DOCUMENTS)])
    run: Scores = {}
    gold: Grades = {}
    pooled: Grades = {}
    for q in range(QUERIES):
        returned = rng.permutation(ids)[:DOCUMENTS].tolist()
        run[f"q{q}"] = dict(zip(returned, rng.permutation(DOCUMENTS).astype(float).tolist(), strict=True))
        relevant = rng.permutation(ids)[:14].tolist()
        gold[f"q{q}"] = dict.fromkeys(relevant[:9], 1)
        pooled[f"q{q}"] = dict.fromkeys(relevant, 1)
    return run, [gold, pooled]


def ours_from_run(run: Scores, judgments: list[Grades]) -> Callable[[], Means]:
    """Score a `Run`, as the run store keeps it."""
    from obliq_eval.records import Judgments, Run

    stored, both = Run.of(run), [Judgments.from_dict(grades) for grades in judgments]

    def call() -> Means:
        from obliq_eval.metrics import score

        return [score(stored, grades).means() for grades in both]

    return call


def ours_from_dicts(run: Scores, judgments: list[Grades]) -> Callable[[], Means]:
    """Score dicts; this checks them and puts the run into canonical order."""

    def call() -> Means:
        from obliq_eval.metrics import evaluate
        from obliq_eval.records import Run

        canonical = Run.of(run)
        return [evaluate(canonical, grades).means() for grades in judgments]

    return call


def plain_ranx(run: Scores, judgments: list[Grades]) -> Callable[[], Means]:
    """Score dicts with ranx as its documentation shows."""

    def call() -> Means:
        from ranx import Qrels, Run, evaluate

        made = Run(run)
        return [evaluate(Qrels(grades), made, list(TREC_NAMES), make_comparable=True) for grades in judgments]

    return call


def plain_pytrec_eval(run: Scores, judgments: list[Grades]) -> Callable[[], Means]:
    """Score dicts with pytrec_eval."""

    def call() -> Means:
        import pytrec_eval

        means: Means = []
        for grades in judgments:
            evaluator = pytrec_eval.RelevanceEvaluator(grades, {"ndcg_cut.10,50", "recall.10,50,100,1000"})
            values = evaluator.evaluate(run).values()
            means.append({m: float(np.mean([v[t] for v in values])) for m, t in TREC_NAMES.items()})
        return means

    return call


ENGINES = {
    "ours, from a stored run": ours_from_run,
    "ours, from dicts": ours_from_dicts,
    "ranx, from dicts": plain_ranx,
    "pytrec_eval, from dicts": plain_pytrec_eval,
}


def child(engine: str) -> None:
    """Print the seconds of a process's first call, of the best of five more, and the means."""
    call = ENGINES[engine](*made_up())
    seconds = []
    for _ in range(6):
        start = time.perf_counter()
        means = call()
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"first": seconds[0], "warm": min(seconds[1:]), "means": means}))


def measure(engine: str) -> tuple[float, float, float, Means]:
    """Return seconds in the first process ever, in the second, and warm; and the means."""
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"NUMBA_CACHE_DIR": f"{folder}/numba", "IR_DATASETS_HOME": f"{folder}/ir"}
        command = [sys.executable, __file__, engine]
        runs = [subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True) for _ in range(2)]
    first, second = (json.loads(run.stdout.splitlines()[-1]) for run in runs)
    return first["first"], second["first"], second["warm"], second["means"]


def main() -> None:
    """Print the table."""
    rows = {engine: measure(engine) for engine in ENGINES}
    *base, expected = rows[next(iter(ENGINES))]
    print(f"{'seconds (ratio)':26}{'first process':>18}{'second process':>18}{'warm':>18}")
    for engine, (*seconds, means) in rows.items():
        for got, wanted in zip(means, expected, strict=True):
            assert all(abs((got[m] or 0.0) - (wanted[m] or 0.0)) < 1e-12 for m in TREC_NAMES), engine
        cells = (f"{s:.3f} ({s / b:.2f})" for s, b in zip(seconds, base, strict=True))
        print(f"{engine:26}" + "".join(f"{cell:>18}" for cell in cells))
    _, second, warm = base
    fine = second <= ALLOWED["second"] and warm <= ALLOWED["warm"]
    print(f"at most {ALLOWED['second']} s in a second process and {ALLOWED['warm']} s warm: {'yes' if fine else 'NO'}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(sys.argv[1])
    else:
        main()
