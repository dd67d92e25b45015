"""How far a reranker has come, on a terminal: queries done, calls, the likely rest."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from obliq_eval import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from obliq_models.llm.ledger import Ledger


@contextmanager
def watch(name: str, queries: int, ledger: Ledger | None) -> Iterator[Callable[[], None]]:
    """Yield what is to be called for each finished query; silent unless standard error is a terminal.

    Args:
        name: What is working.
        queries: How many queries there are.
        ledger: Where calls are entered.
    """
    if not sys.stderr.isatty():
        yield lambda: None
        return
    with show.progress("{task.description}", "queries, {task.fields[calls]}") as bar:
        task = bar.add_task(name, total=queries, calls=_calls(ledger))

        def done() -> None:
            bar.update(task, advance=1, calls=_calls(ledger))

        yield done


def _calls(ledger: Ledger | None) -> str:
    if ledger is None:
        return "no calls"
    line = ledger.total()
    return f"{line.calls:,} calls, {line.cached:,} from the cache"
