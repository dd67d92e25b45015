"""What a user can be told in one sentence, without a traceback."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SHOWN = 20  # a damaged file of a million lines must not print a million


class UserError(Exception):
    """Something that the user can put right; the message says what, where and what to do.

    The command line prints the message alone and ends with status 2.
    """


class MissingExtraError(UserError, ImportError):
    """An optional dependency is not installed; the message names the command that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package}: pip install 'obliq[{extra}]'")


def raise_all(problems: Sequence[str], heading: str) -> None:
    """Raise one `UserError` that lists every problem, or return when there is none.

    Args:
        problems: One sentence each.
        heading: What was being read when they were found.

    Raises:
        UserError: If there is at least one problem.
    """
    if len(problems) == 1:
        raise UserError(f"{heading}: {problems[0]}")
    if problems:
        more = [f"  … and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
        lines = [f"{heading}: {len(problems)} problems", *(f"  - {line}" for line in problems[:SHOWN]), *more]
        raise UserError("\n".join(lines))


def near(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean "X"?` for the nearest known name, or an empty string."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return f'; did you mean "{by_lower[found[0]]}"?' if found else ""
