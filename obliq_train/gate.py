"""Which synthetic queries are let through: caps on the measures of Appendix J, and more.

A query above a cap is rejected and the next sample is asked for; reasons are counted. Nothing here filters by whether
a retriever finds the source again: that would remove exactly the oblique queries.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from obliq_eval.analyses.obliqueness import SPAN, measure
from obliq_eval.errors import UserError, near, raise_all

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obliq_eval.analyses.obliqueness import Measures

REPEATED = "repeats an earlier query"
OFF = 1_000_000.0
"""A cap that nothing reaches."""


@dataclass(frozen=True)
class Caps:
    """The most, and for words the least, that passes.

    The values are ours: the paper publishes means, such as a coverage of .359 for its Congress queries against .102
    for the official ones, and asks for a cap without giving one.

    Args:
        coverage: Share of the query's content words that the source holds.
        jaccard: Overlap of both texts' content words.
        entities: How many of the source's entities the query may hold.
        copied: Words of the longest span repeated from the source.
        least_words: Words of the shortest query.
        most_words: Words of the longest.
    """

    coverage: float = 0.5
    jaccard: float = 0.3
    entities: float = 0
    copied: float = SPAN - 1
    least_words: float = 5
    most_words: float = 150

    @classmethod
    def open(cls) -> Caps:
        """Return caps that let everything through."""
        return cls(OFF, OFF, OFF, OFF, 0, OFF)

    @staticmethod
    def problems(caps: Mapping[str, Any]) -> list[str]:
        """Return what is wrong with caps by name, one sentence each."""
        known = [one.name for one in fields(Caps)]
        found = [f"{name} is no cap{near(name, known)}" for name in caps if name not in known]
        return found + [
            f"the cap {name} is {value!r}, not a number of 0 or more"
            for name, value in caps.items()
            if name in known and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0)
        ]

    def but(self, caps: Mapping[str, float]) -> Caps:
        """Return these caps with some of them changed.

        Raises:
            UserError: If one is not a cap or not a number of 0 or more; all at once.
        """
        raise_all(self.problems(caps), "the gate")
        return replace(self, **{name: float(value) for name, value in caps.items()})

    def settings(self) -> dict[str, float | None]:
        """Return the caps as JSON values, None for one that is off."""
        return {name: None if value == OFF else value for name, value in asdict(self).items()}


def parse_caps(texts: list[str]) -> dict[str, float]:
    """Return the caps that a command's options name, `coverage=0.2` each; `off` lifts one.

    Raises:
        UserError: If a text is not of that form.
    """
    found: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            found[name.strip()] = OFF if value.strip() == "off" else float(value)
        except ValueError:
            raise UserError(f"--cap {text!r} is not of the form coverage=0.2 or coverage=off") from None
    return found


def reasons(measured: Measures, caps: Caps) -> tuple[str, ...]:
    """Return why a query is rejected, in words that stay the same from query to query; empty if it passes."""
    checks = (
        (measured.words < caps.least_words, "too short"),
        (measured.words > caps.most_words, "too long"),
        (len(measured.leaked) > caps.entities, "names an entity of its source"),
        (measured.copied > caps.copied, "copies a span of its source"),
        (measured.coverage > caps.coverage, "covered by its source"),
        (measured.jaccard > caps.jaccard, "overlaps with its source"),
    )
    return tuple(reason for failed, reason in checks if failed)


def judge(query: str, source: str, caps: Caps) -> tuple[str, ...]:
    """Return why a query is rejected against its source; empty if it passes."""
    return reasons(measure(query, source), caps)
