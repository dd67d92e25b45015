"""How busy a server is kept: TourRank over 50 queries at Y = 5, against one call after the other.

A loopback server in another process answers each request after 200 ms and works on 32 at once; the share of its slots'
time in which it works is measured by the server itself, from the first request to the last. All queries, tournaments
and groups are asked about at once. The peer is the loop that such scripts use: the calls of the same tournaments, each
awaited before the next, here for the first few queries alone.

    python benchmarks/llm.py [--queries N] [--peer N]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from obliq_eval.demo.llm_server import MODEL, LlmServer
from obliq_eval.demo.personalities import Answer, Asked
from obliq_eval.records import Run
from obliq_models.llm.client import Client
from obliq_models.llm.openai_backend import OpenAIBackend
from obliq_models.llm.settings import LLMSettings
from obliq_models.rerankers import stage
from obliq_models.rerankers.asking import Asking
from obliq_models.rerankers.base import Candidate, Query
from obliq_models.rerankers.tourrank import TourRank

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SLOTS, DELAY, LEAST = 32, 0.2, 0.95
AHEAD = 48  # calls on their way: some wait at the server, so that a slot that becomes free finds work there
TEXT = 14 * "eleven words of some document that nobody reads, again and again "


def given(queries: int) -> stage.Pools:
    """Return pools of a hundred documents."""
    run = Run.from_lists({f"q{q}": [f"d{d}" for d in range(100)] for q in range(queries)})
    pool = tuple(Candidate(f"d{d}", f"{d} {TEXT}") for d in range(100))
    return stage.Pools(run, {Query(f"q{q}", f"query {q}", "T"): pool for q in range(queries)})


def choose(asked: Asked) -> Answer:
    """Choose the first documents of a group, as many as the schema asks for."""
    schema = asked.response_format["json_schema"]["schema"]
    wanted = schema["properties"]["selection"]["minItems"]
    return Answer(json.dumps({"selection": list(range(1, wanted + 1))}))


def serve(pipe: Connection) -> None:
    """Serve in a process of its own until told to stop; send the address, then calls and busy share."""
    with LlmServer(choose, slots=SLOTS, delay=DELAY) as server:
        pipe.send(server.url)
        pipe.recv()
        pipe.send((len(server.bodies), server.busy()))


def measure(queries: int, concurrency: int) -> tuple[int, float, float, float, stage.Staged]:
    """Return the calls, the seconds, the client's seconds of processor, the share of busy slots, and the result."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=serve, args=(there,))
    process.start()
    os.environ["OPENAI_BASE_URL"] = here.recv()
    pools = given(queries)
    with Client(OpenAIBackend(), concurrency=concurrency) as client:
        reranker = TourRank(Asking(LLMSettings(model=MODEL), client), y=5)
        start, worked = time.perf_counter(), time.process_time()
        staged = stage.rerank(pools, reranker)
        seconds, worked = time.perf_counter() - start, time.process_time() - worked
    here.send("stop")
    calls, busy = here.recv()
    process.join()
    return calls, seconds, worked, busy, staged


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--peer", type=int, default=2, help="queries of the loop that makes one call after the other")
    options = parser.parse_args()
    os.environ["OBLIQ_HOME"] = tempfile.mkdtemp(prefix="obliq-benchmark-")

    rows = [
        (f"obliq, {AHEAD} calls on their way", options.queries, AHEAD),
        (f"obliq, {SLOTS} calls on their way", options.queries, SLOTS),
        ("one call after the other", options.peer, 1),
    ]
    measure(1, SLOTS)  # the client library is imported at its first call
    found = [(name, queries, *measure(queries, concurrency)) for name, queries, concurrency in rows]
    table = Table(title=f"A server of {SLOTS} slots and {1000 * DELAY:.0f} ms; TourRank, Y = 5, pools of 100")
    for column in ("client", "queries", "calls", "seconds", "seconds/query", "CPU seconds", "busy"):
        table.add_column(column, justify="left" if column == "client" else "right")
    for name, queries, calls, seconds, worked, busy, _ in found:
        table.add_row(
            name,
            str(queries),
            f"{calls:,}",
            f"{seconds:.1f}",
            f"{seconds / queries:.2f}",
            f"{worked:.1f}",
            f"{busy:.1%}",
        )
    Console().print(table)
    ours, peer = found[0][-1].run.rankings, found[-1][-1].run.rankings
    same = all(ours[query].documents == ranking.documents for query, ranking in peer.items() if query in ours)
    busy = found[0][5]
    print(f"same orders from both: {'yes' if same else 'NO'}")
    print(f"{busy:.1%} busy (at least {LEAST:.0%}): {'yes' if busy >= LEAST else 'NO'}")


if __name__ == "__main__":
    main()
