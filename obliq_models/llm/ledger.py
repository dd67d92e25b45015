"""What was asked, by stage and query, for the run's manifest."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from obliq_eval.analyses.cost import Stage, stage_counts

if TYPE_CHECKING:
    from collections.abc import Callable

    from obliq_models.llm.protocol import Request, Response

UNNAMED = "language model"


@dataclass
class Line:
    """What one stage asked for one query.

    Args:
        answers: Answers delivered, stored ones among them.
        cached: Those for which no call was made.
        prompt_tokens: Tokens of all of them, stored ones among them: what the system costs, not what was paid.
        completion_tokens: Likewise.
        seconds: Time of the calls that were made, waits between them left out.
        retries: Calls that were made again because one failed.
        cut: Answers that did not come to an end, such as those at the token limit.
        unparsed: Answers that came to an end and could not be read.
        failures: Questions that were given up, after all answers to them were cut or could not be read.
        unfit: Answers that do not fit the schema that was asked for.
    """

    answers: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    retries: int = 0
    cut: int = 0
    unparsed: int = 0
    failures: int = 0
    unfit: int = 0

    def __add__(self, other: Line) -> Line:
        mine, theirs = asdict(self), asdict(other)
        return Line(**{name: mine[name] + theirs[name] for name in mine})

    @property
    def calls(self) -> int:
        """Calls that brought an answer, in this process."""
        return self.answers - self.cached


SHOWN = {
    "answers from the cache": "cached",
    "repeated calls": "retries",
    "unfinished answers": "cut",
    "answers that could not be read": "unparsed",
    "answers without the schema asked for": "unfit",
    "failed questions": "failures",
}
"""What else than calls and tokens goes into a manifest, where it is not 0."""


@dataclass
class _Clock:
    """Wall-clock time during which a stage had at least one call on its way."""

    active: int = 0
    since: float = 0.0
    total: float = 0.0


@dataclass
class Ledger:
    """Lines by stage and query.

    Args:
        clock: Seconds from any origin.
    """

    clock: Callable[[], float] = time.perf_counter
    lines: dict[tuple[str, str], Line] = field(default_factory=dict)
    _clocks: dict[str, _Clock] = field(default_factory=dict)

    def line(self, request: Request) -> Line:
        """Return the line of a request."""
        return self.lines.setdefault((request.stage or UNNAMED, request.query), Line())

    def answered(self, request: Request, response: Response) -> None:
        """Enter an answer, stored or not."""
        line = self.line(request)
        line.answers += 1
        line.cached += response.cached
        line.prompt_tokens += response.prompt_tokens
        line.completion_tokens += response.completion_tokens
        line.seconds += 0.0 if response.cached else response.seconds
        line.cut += not response.complete

    def begin(self, request: Request) -> None:
        """Note that a call is on its way."""
        clock = self._clocks.setdefault(request.stage or UNNAMED, _Clock())
        if not clock.active:
            clock.since = self.clock()
        clock.active += 1

    def end(self, request: Request) -> None:
        """Note that it has come back, or has failed for good."""
        clock = self._clocks[request.stage or UNNAMED]
        clock.active -= 1
        if not clock.active:
            clock.total += self.clock() - clock.since

    def by_stage(self) -> dict[str, Line]:
        """Return one line for each stage, in the order in which they began."""
        found: dict[str, Line] = {}
        for (stage, _), line in self.lines.items():
            found[stage] = found.get(stage, Line()) + line
        return found

    def queries(self, stage: str) -> int:
        """Return how many queries went through a stage."""
        return len({query for name, query in self.lines if name == stage})

    def counts(self) -> dict[str, int]:
        """Return counts for a manifest: what `obliq analyze cost` reads, and whatever was repaired or failed.

        Calls and tokens are those of all answers, stored ones among them: they say what the system costs. Its time is
        known only where every answer was asked for anew.
        """
        found: dict[str, int] = {}
        for stage, line in self.by_stage().items():
            clock = self._clocks.get(stage)
            seconds = clock.total if clock is not None and not line.cached else None
            found |= stage_counts(
                Stage(
                    stage,
                    self.queries(stage),
                    batch_seconds=seconds,
                    calls=line.answers,
                    prompt_tokens=line.prompt_tokens,
                    completion_tokens=line.completion_tokens,
                )
            )
            found |= {f"{stage}: {name}": n for name, key in SHOWN.items() if (n := getattr(line, key))}
        return found

    def as_json(self) -> dict[str, Any]:
        """Return every line, by stage and then by query, as JSON values."""
        found: dict[str, Any] = {}
        for (stage, query), line in self.lines.items():
            found.setdefault(stage, {})[query] = asdict(line)
        return found

    def total(self) -> Line:
        """Return the sum of all lines."""
        return sum(self.lines.values(), Line())
