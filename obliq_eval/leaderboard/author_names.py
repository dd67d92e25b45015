"""Which of the paper's systems the words of a path or of a table name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GENERIC = frozenset({
    "2", "ablation", "embed", "embedding", "encoder", "gpt", "ir", "query", "rerun", "teacher", "tournament", "with",
})  # fmt: skip
"""Words of a system's name that a path may leave out."""
SPELLINGS = (
    (r"multi-?hop|\bagent\b", " multihop "),
    (r"rewrit(e|ing|ten)s?\b", " rewriter "),
    (r"qwen-?3\b", " qwen3 "),
    (r"\b0[.-]6b\b", " 0p6b "),
    (r"\b(no|without)-?distill\w*", " no distillation "),
    (r"obliq-?ir\b", " obliqir "),
    (r"tour-?rank", " tourrank "),
    (r"late-?on\b", " lateon "),
    (r"gemini-?2?\b", " gemini "),
    (r"\bluar\b", " authorship "),
)
"""Other spellings of the words in the names of the paper's systems."""


def recognise_system(path: str, systems: Sequence[str], given: Mapping[str, str]) -> tuple[str | None, str]:
    """Return the system that the words of a path name, or None and why it is in doubt.

    A word of the path that belongs to another system's name is a doubt: `obliq-ir_tourrank.txt` is not `obliq-ir`.
    """
    told = [system for part, system in given.items() if part in path]
    if told:
        return told[-1], ""
    words = _word_set(path)
    names = {system: _word_set(system) for system in systems}
    needed = {system: words_of - GENERIC or words_of for system, words_of in names.items()}
    best = [system for system, wanted in needed.items() if wanted <= words]
    most = max((len(needed[system]) for system in best), default=0)
    best = [system for system in best if len(needed[system]) == most]
    if not best:
        return None, "no system of the paper is named in its path"
    if len(best) > 1:
        return None, f"its path may name {' or '.join(best)}"
    vocabulary = frozenset().union(*needed.values())
    rest = words & vocabulary - names[best[0]] - GENERIC
    if rest:
        return None, f"its path names {best[0]}, and also {', '.join(sorted(rest))}"
    return best[0], ""


def _word_set(text: str) -> frozenset[str]:
    text = re.sub(r"[_\s]+", "-", text.lower())
    for pattern, plain in SPELLINGS:
        text = re.sub(pattern, plain, text)
    return frozenset(re.findall(r"[a-z0-9]+", text))
