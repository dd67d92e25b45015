"""The one way in which judgments reach a model: while it searches, and only if it declares itself an oracle."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from obliq_eval.records import Judgments

MARK = "oracle"
"""Key of a run's settings, and of mteb's result file, that is true where judgments were shown."""


def is_oracle(model: Any) -> bool:
    """Return whether a model declares that it wants to see judgments: its attribute `is_oracle` is `True`."""
    return getattr(model, "is_oracle", False) is True


@contextmanager
def shown(model: Any, judgments: Mapping[str, Judgments]) -> Iterator[bool]:
    """Let an oracle see judgments, as its attribute `judgments`, until the block ends; any other model sees nothing.

    Args:
        model: Any model.
        judgments: By name: `gold`, and `pooled` where it exists.

    Yields:
        Whether the model was shown them.
    """
    if not is_oracle(model):
        yield False
        return
    model.judgments = judgments
    try:
        yield True
    finally:
        model.judgments = None


def saw_judgments(settings: Mapping[str, Any]) -> bool:
    """Return whether a run's settings say that its system, or that of the run it builds on, was shown judgments."""
    first = settings.get("first")
    before = first.get("settings") if isinstance(first, dict) else None
    return settings.get(MARK) is True or (isinstance(before, dict) and saw_judgments(before))
