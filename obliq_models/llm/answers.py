"""From what a model wrote to a ranking, a selection or an object: every text is read, or counts as no answer.

Nothing here ever raises, and nothing is taken for a rank that the model did not write as one: numbers in prose never
are. Thinking text counts for nothing. Numbers of documents begin at 1, as prompts show them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RANKING, SELECTION = "ranking", "selection"

_OPEN, _CLOSE = re.compile(r"<think>", re.IGNORECASE), re.compile(r"</think>", re.IGNORECASE)
_FENCE = re.compile(r"```[\w-]*[ \t]*\n(.*?)```", re.DOTALL)
_LONGEST = 200_000  # characters of an answer that are looked at, from its end
_OBJECTS = 1000  # braces at which an object is looked for

_BRACE = re.compile(r'\{(?=\s*")')  # where an object begins; the braces of LaTeX are none
_BEGUN = re.compile(r'^\{|\{\s*"')
_SPACE = re.compile(r"\s+")

# What stands alone: at the beginning, or after a line's end or a colon; before the end, or a line's end.
_BEFORE, _AFTER = re.compile(r"(?:^|[:\n])\s?$"), re.compile(r"\s?\.?\s?(?:$|(?<=\n)|\n)")
_N = r"[0-9]{1,9}"
_ITEM = rf"(?:{_N}[.)]\s)?\[{_N}\]"
_CHAIN = re.compile(rf"\[{_N}\](?:\s?[>=]\s?\[{_N}\])+")
_ALONE = (
    re.compile(rf"{_N}(?:\s?>\s?{_N})+"),
    re.compile(rf"\[\s?{_N}(?:\s?,\s?{_N})*\s?\]"),
    re.compile(rf"{_ITEM}(?:[\s,;]*{_ITEM})*"),
)
_NUMBER = re.compile(r"[0-9]{1,9}")
_BRACKETED = re.compile(r"\[([0-9]{1,9})\]")
_WHOLE = re.compile(r"\s*\[?\s*([0-9]{1,9})\s*\]?\s*")

# A backslash that JSON allows stays, unless a LaTeX command is meant: \frac and \beta are valid JSON (form feed,
# backspace) that no answer ever means; \t, \n and \r do occur, so there the whole command must be a known one.
_COMMANDS = (
    "tau|text|textbf|textit|tfrac|theta|tilde|times|to|top|triangle|"
    "nabla|neg|neq|nmid|not|notin|nu|rangle|rceil|rfloor|rho|right|rightarrow|Rightarrow"
)
_ESCAPE = re.compile(
    rf'\\(?:(?P<keep>\\|"|/|u[0-9a-fA-F]{{4}})|(?P<latex>[bf](?=[A-Za-z])|(?:{_COMMANDS})(?![A-Za-z]))|(?P<plain>[bfnrt])|)'
)


@dataclass(frozen=True)
class Reading:
    """Document numbers that an answer gives, and what had to be repaired.

    Args:
        numbers: Distinct numbers from 1 to n: a permutation of all, or a selection.
        unknown: Numbers that no document has, dropped.
        repeated: Numbers given again, dropped.
        added: For a ranking, documents that were not named, appended in their order; for a selection, documents
            beyond the number asked for, dropped.
    """

    numbers: tuple[int, ...]
    unknown: int = 0
    repeated: int = 0
    added: int = 0

    @property
    def repaired(self) -> bool:
        """Whether the answer was anything but exactly what was asked for."""
        return bool(self.unknown or self.repeated or self.added)


def ranking_schema(n: int) -> dict[str, Any]:
    """Return the schema of an answer that ranks n documents: `{"ranking": [3, 1, 2]}`."""
    return _schema(RANKING, n)


def selection_schema(m: int) -> dict[str, Any]:
    """Return the schema of an answer that selects m documents: `{"selection": [3, 1]}`."""
    return _schema(SELECTION, m)


def ranking(text: str, n: int) -> list[int] | None:
    """Return a permutation of 1 … n, or None if the text holds no ranking; see `read_ranking`."""
    found = read_ranking(text, n)
    return None if found is None else list(found.numbers)


def selection(text: str, n: int, m: int) -> list[int] | None:
    """Return m distinct numbers of 1 … n, or None if the text does not select as many; see `read_selection`."""
    found = read_selection(text, n, m)
    return None if found is None else list(found.numbers)


def read_ranking(text: str, n: int) -> Reading | None:
    """Read a ranking of n documents.

    Unknown numbers are dropped, of repeated ones the first stays, and missing documents follow in their order, as
    RankGPT does it. A text that names no known document is no answer.

    Args:
        text: JSON `{"ranking": [3, 1, 2]}`, or `[3] > [1] > [2]`, or a list of numbers that ends the text.
        n: Number of documents.
    """
    found = _known(text, RANKING, n)
    if found is None:
        return None
    named = set(found.numbers)
    missing = tuple(number for number in range(1, n + 1) if number not in named)
    return Reading(found.numbers + missing, found.unknown, found.repeated, len(missing))


def read_selection(text: str, n: int, m: int) -> Reading | None:
    """Read a selection of m among n documents.

    Unknown and repeated numbers are dropped; of more than m the first m stay. Fewer are no answer: to fill them up
    would choose documents that the model has not chosen.

    Args:
        text: JSON `{"selection": [3, 1]}`, or a form that `read_ranking` takes.
        n: Number of documents.
        m: How many are to be selected.
    """
    found = _known(text, SELECTION, n)
    if found is None or len(found.numbers) < m or m < 1:
        return None
    return Reading(found.numbers[:m], found.unknown, found.repeated, len(found.numbers) - m)


def visible(text: str) -> str | None:
    """Return what follows the last closing `</think>`, or None where a `<think>` stays open."""
    rest = _CLOSE.split(text)[-1]
    return None if _OPEN.search(rest) else rest.strip()


def read_object(text: str, *keys: str) -> dict[str, Any] | None:
    """Return the last JSON object of an answer that has all of these keys, or None.

    Code fences may stand around it and prose beside it; single backslashes of LaTeX inside strings are kept.
    """
    rest = visible(text)
    if rest is None:
        return None
    return next((found for found in _objects(rest) if all(key in found for key in keys)), None)


def fits(text: str, schema: Mapping[str, Any]) -> bool:
    """Return whether an answer is one JSON object with the required keys of a schema, fences and thinking aside.

    Servers that ignore a schema answer with status 200 all the same; this notices them.
    """
    rest = visible(text)
    value = None if rest is None else _load(_unfenced(rest))
    return isinstance(value, dict) and all(key in value for key in schema.get("required", ()))


def _known(text: str, key: str, n: int) -> Reading | None:
    """Return the distinct numbers of known documents that an answer gives, None if there are none."""
    given = _numbers(text, key)
    if given is None:
        return None
    kept = tuple(dict.fromkeys(number for number in given if 1 <= number <= n))
    if not kept:
        return None
    unknown = sum(not 1 <= number <= n for number in given)
    return Reading(kept, unknown, len(given) - unknown - len(kept))


def _numbers(text: str, key: str) -> list[int] | None:
    rest = visible(text)
    if not rest:
        return None
    rest = rest[-_LONGEST:]
    found = next((value for value in _objects(rest) if key in value), None)
    if found is not None:
        return _listed(found[key])
    if _BEGUN.search(rest):  # an object of another kind, or one that was broken off
        return None
    return _written(_unfenced(rest))


def _listed(value: Any) -> list[int] | None:
    """Return the numbers of a JSON value: integers, or texts such as "3" and "[3]"."""
    if isinstance(value, str):
        return _written(value)
    if not isinstance(value, list):
        return None
    found = [_one(item) for item in value]
    return None if None in found else [number for number in found if number is not None]


def _one(item: Any) -> int | None:
    if isinstance(item, int) and not isinstance(item, bool):
        return item
    if isinstance(item, float) and item.is_integer():
        return int(item)
    match = _WHOLE.fullmatch(item) if isinstance(item, str) else None
    return int(match[1]) if match else None


def _written(text: str) -> list[int] | None:
    """Return the numbers of `[3] > [1]` (the last such chain), or of a list that ends the text."""
    # White space becomes one character, so that no pattern can run over the same stretch of it again and again.
    text = _SPACE.sub(lambda match: "\n" if "\n" in match[0] else " ", text.strip())
    chains = _CHAIN.findall(text)
    if chains:
        return _integers(_NUMBER, chains[-1])
    for pattern, numbers in zip(_ALONE, (_NUMBER, _NUMBER, _BRACKETED), strict=True):
        *_, last = (None, *pattern.finditer(text))
        if last and _BEFORE.search(text[max(0, last.start() - 2) : last.start()]) and _ends(text, last.end()):
            return _integers(numbers, last[0])
    return None


def _ends(text: str, at: int) -> bool:
    return _AFTER.match(text, at) is not None


def _integers(pattern: re.Pattern[str], text: str) -> list[int]:
    return [int(number) for number in pattern.findall(text)]


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a text that are not inside one another, the last first."""
    whole = _load(_unfenced(text))
    if isinstance(whole, dict):
        yield whole
        return
    repaired = _repair(text)
    decoder = json.JSONDecoder(strict=False)
    found: list[dict[str, Any]] = []
    end = 0
    for brace in islice(_BRACE.finditer(repaired), _OBJECTS):
        if brace.start() < end:
            continue
        try:
            value, end = decoder.raw_decode(repaired, brace.start())
        except ValueError:
            continue
        except RecursionError:  # thousands of braces inside one another are no answer
            break
        found.append(value)
    yield from reversed(found)


def _load(text: str) -> Any:
    try:
        return json.loads(_repair(text), strict=False)
    except (ValueError, RecursionError):
        return None


def _unfenced(text: str) -> str:
    """Return the content of the last code fence, or the text if it has none."""
    fenced = _FENCE.findall(text)
    return str(fenced[-1]).strip() if fenced else text.strip()


def _repair(text: str) -> str:
    r"""Double the backslashes that JSON does not allow, and those of LaTeX that it would read as something else."""
    return _ESCAPE.sub(lambda match: match[0] if match["keep"] or match["plain"] else "\\" + match[0], text)


def _schema(key: str, size: int) -> dict[str, Any]:
    numbers = {"type": "array", "items": {"type": "integer"}, "minItems": size, "maxItems": size}
    return {"type": "object", "properties": {key: numbers}, "required": [key], "additionalProperties": False}
