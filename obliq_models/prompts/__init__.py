"""Prompts as data: one TOML file each, with its placeholders, the form of its answer, and a version."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from obliq_eval.errors import UserError, near, raise_all
from obliq_eval.toml import read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).parent
Answer = Literal["selection", "ranking", "query", "reading", "description"]
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_KEYS = {"version", "purpose", "answer", "system", "user"}
_OPTIONAL = {"schema", "attribute"}


@dataclass(frozen=True)
class Prompt:
    """What a language model is told, but for what is filled in.

    Args:
        name: Name of the file, without its ending.
        version: Changes whenever the text does.
        purpose: What it is for, one line.
        answer: Form of the answer.
        system: The system message.
        user: The user message; names in braces are placeholders.
        schema: JSON schema of the answer; None where it depends on the number of documents.
        attribute: The latent attribute that it names; empty for a generic prompt.
    """

    name: str
    version: int
    purpose: str
    answer: Answer
    system: str
    user: str
    schema: Mapping[str, Any] | None = None
    attribute: str = ""

    @property
    def placeholders(self) -> frozenset[str]:
        """The names that have to be filled in."""
        return frozenset(_PLACEHOLDER.findall(self.system + self.user))

    @property
    def revision(self) -> str:
        """Version and the first 8 hexadecimal digits of the text's SHA-256."""
        text = "\0".join((self.system, self.user, repr(self.schema)))
        return f"{self.version}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    def messages(self, **values: object) -> tuple[tuple[str, str], ...]:
        """Return the messages as (role, content), every placeholder filled in, each value taken literally.

        Raises:
            ValueError: If a placeholder is left, or a value has none; this is a defect of the caller.
        """
        if set(values) != self.placeholders:
            raise ValueError(f"prompt {self.name} needs {sorted(self.placeholders)}, not {sorted(values)}")

        def fill(template: str) -> str:  # in one pass, so that braces inside a value stay as they are
            return _PLACEHOLDER.sub(lambda found: str(values[found[1]]), template.strip())

        return (("system", fill(self.system)), ("user", fill(self.user)))


def names() -> tuple[str, ...]:
    """Return the names of the bundled prompts."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


@cache
def load(name: str) -> Prompt:
    """Return a bundled prompt.

    Raises:
        UserError: If there is none of this name; the message suggests the nearest.
    """
    if name not in names():
        raise UserError(f"no prompt is called {name!r}{near(name, names())} (`obliq prompts` lists them)")
    return read(FOLDER / f"{name}.toml")


def read(path: Path) -> Prompt:
    """Read a prompt from a TOML file, a bundled one or a user's own.

    Raises:
        UserError: If the file cannot be read, or a key is missing, unknown or of the wrong form; all at once.
    """
    data = read_toml(path)
    known = _KEYS | _OPTIONAL
    problems = [f"{key} is missing" for key in sorted(_KEYS - data.keys())]
    problems += [f"{key} is not a key of a prompt{near(key, known)}" for key in sorted(data.keys() - known)]
    types = {"version": int, "schema": dict}
    problems += [
        f"{key} is {type(data[key]).__name__}, not {types.get(key, str).__name__}"
        for key in sorted(known & data.keys())
        if not isinstance(data[key], types.get(key, str))
    ]
    if isinstance(data.get("answer"), str) and data["answer"] not in get_args(Answer):
        problems.append(f"answer is {data['answer']!r}, not one of {', '.join(get_args(Answer))}")
    raise_all(problems, str(path))
    return Prompt(name=path.stem, **data)
